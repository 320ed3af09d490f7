/* SPDX-License-Identifier: Apache-2.0 */
/* Which local shapes belong together, op by op. */
#include "tests/dist/signatures/verify.h"

#include "kernels/recurrent.h"

static bool same(const tsri_arg *a, const tsri_arg *b)
{
    bool ok = a->ndim == b->ndim;
    for (int i = 0; i < a->ndim && ok; i++)
        ok = a->shape[i] == b->shape[i];
    return ok;
}

static bool whole(const tsri_arg *a)
{
    bool ok = true;
    for (int i = 0; i < a->ndim; i++)
        ok &= a->shape[i] == a->gshape[i];
    return ok;
}

static bool all_same(const tsri_kernel_desc *d, int nin)
{
    bool ok = true;
    for (int i = 0; i < nin; i++)
        ok &= same(&d->in[i], &d->out[0]);
    for (int i = 1; i < d->nout; i++)
        ok &= same(&d->out[i], &d->out[0]);
    return ok;
}

/* From the right, equal or, if the whole axis has size 1, one. */
static bool broadcasts(const tsri_arg *x, const tsri_arg *y)
{
    int lead = y->ndim - x->ndim;
    bool ok = lead >= 0;
    for (int i = 0; i < x->ndim && ok; i++)
        ok = x->shape[i] == y->shape[lead + i] || (x->gshape[i] == 1 && x->shape[i] == 1);
    return ok;
}

static bool reduces(const tsri_arg *x, const tsri_arg *y, uint32_t axes, bool keepdim)
{
    int at = 0;
    bool ok = true;
    for (int i = 0; i < x->ndim; i++) {
        if (!(axes >> i & 1))
            ok &= y->shape[at++] == x->shape[i];
        else if (keepdim)
            ok &= y->shape[at++] == 1;
    }
    return ok && at == y->ndim;
}

/* Whether the axes are not split. */
static bool axes_whole(const tsri_arg *x, uint32_t axes)
{
    bool ok = true;
    for (int i = 0; i < x->ndim; i++)
        ok &= !(axes >> i & 1) || x->shape[i] == x->gshape[i];
    return ok;
}

static bool matmul(const tsri_kernel_desc *d)
{
    const int64_t *a = d->in[0].shape, *b = d->in[1].shape, *c = d->out[0].shape;
    int ta = d->attrs->matmul.ta != 0, tb = d->attrs->matmul.tb != 0;
    return a[ta] == c[0] && a[!ta] == b[tb] && b[!tb] == c[1];
}

/* The batch's axes are equal, or broadcast where the whole axis is 1. */
static bool batch_matmul(const tsri_kernel_desc *d)
{
    const tsri_arg *a = &d->in[0], *b = &d->in[1], *c = &d->out[0];
    int ta = d->attrs->matmul.ta != 0, tb = d->attrs->matmul.tb != 0;
    bool ok = a->shape[a->ndim - 2 + ta] == c->shape[c->ndim - 2] &&
              b->shape[b->ndim - 1 - tb] == c->shape[c->ndim - 1] &&
              a->shape[a->ndim - 1 - ta] == b->shape[b->ndim - 2 + tb];
    for (int o = 0; o < 2; o++) {
        tsri_arg x = d->in[o], y = *c;
        x.ndim -= 2;
        y.ndim -= 2;
        ok &= broadcasts(&x, &y);
    }
    return ok;
}

/* x[..., k], w[n, k], y[..., n] */
static bool linear(const tsri_arg *x, const tsri_arg *w, const tsri_arg *y)
{
    bool ok = x->ndim == y->ndim;
    for (int i = 0; i + 1 < x->ndim && ok; i++)
        ok = x->shape[i] == y->shape[i];
    return ok && w->shape[1] == x->shape[x->ndim - 1] && w->shape[0] == y->shape[y->ndim - 1];
}

/* Windows of `window` elements, `stride` apart, in n elements with padding. */
static bool windows(int64_t n, int64_t pad, int64_t window, int64_t stride, int64_t out)
{
    int64_t padded = n + 2 * pad;
    return out == (padded < window ? 0 : (padded - window) / stride + 1);
}

static bool conv(const tsri_kernel_desc *d, const tsri_arg *x, const tsri_arg *w, const tsri_arg *y)
{
    const tsri_attrs *at = d->attrs;
    bool ok = x->shape[0] == y->shape[0] && w->shape[0] == y->shape[1];
    ok &= d->groups > 0 ? x->shape[1] == d->groups * w->shape[1] && w->shape[0] % d->groups == 0
                        : x->shape[1] == 0 && w->shape[0] == 0;
    for (int i = 0; i < 2; i++) {
        int64_t window = (int64_t)at->conv.dilation[i] * (at->conv.kernel[i] - 1) + 1;
        ok &= w->shape[2 + i] == at->conv.kernel[i];
        ok &=
            windows(x->shape[2 + i], at->conv.pad[i], window, at->conv.stride[i], y->shape[2 + i]);
    }
    return ok;
}

static bool pool(const tsri_kernel_desc *d, const tsri_arg *x, const tsri_arg *y)
{
    const tsri_attrs *at = d->attrs;
    bool ok = x->shape[0] == y->shape[0] && x->shape[1] == y->shape[1];
    for (int i = 0; i < 2; i++)
        ok &= windows(x->shape[2 + i], at->pool.pad[i], at->pool.kernel[i], at->pool.stride[i],
                      y->shape[2 + i]);
    return ok;
}

/* Windows are those of the whole planes, so a part has whole windows or is part of the only one. */
static bool adaptive(const tsri_arg *x, const tsri_arg *y)
{
    bool ok = x->shape[0] == y->shape[0] && x->shape[1] == y->shape[1];
    for (int i = 2; i < 4; i++) {
        bool uncut = x->shape[i] == x->gshape[i] && y->shape[i] == y->gshape[i];
        bool one = y->gshape[i] == 1 && y->shape[i] == 1;
        bool tiles = x->gshape[i] % y->gshape[i] == 0 &&
                     x->shape[i] == y->shape[i] * (x->gshape[i] / y->gshape[i]) &&
                     x->offset[i] == y->offset[i] * (x->gshape[i] / y->gshape[i]);
        ok &= uncut || one || tiles;
    }
    return ok;
}

static int64_t count(const tsri_arg *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->ndim; i++)
        n *= a->shape[i];
    return n;
}

/* stats [R, 2, c] with data [n, c, ...] */
static bool stats(const tsri_arg *s, const tsri_arg *x)
{
    return s->ndim == 3 && s->shape[1] == 2 && s->shape[2] == x->shape[1];
}

static bool channels(const tsri_kernel_desc *d, int first, int last, int64_t c)
{
    bool ok = true;
    for (int i = first; i <= last; i++)
        ok &= d->in[i].shape[d->in[i].ndim - 1] == c;
    return ok;
}

static bool norm_fits(const tsri_kernel_desc *d)
{
    const tsri_arg *in = d->in, *out = d->out;
    switch (d->op) {
    case TSRI_OP_BN_STATS:
        return stats(&out[0], &in[0]);
    case TSRI_OP_BN_CENTER:
        return same(&in[0], &out[0]) && stats(&in[1], &in[0]);
    case TSRI_OP_BN_APPLY:
        return same(&in[0], &out[0]) && stats(&in[1], &in[0]) && channels(d, 2, 3, in[0].shape[1]);
    case TSRI_OP_BN_BWD_STATS:
        return stats(&in[1], &in[0]) && same(&in[0], &in[2]) && same(&in[1], &out[0]);
    case TSRI_OP_BN_BWD_APPLY:
        return same(&in[0], &out[0]) && same(&in[0], &in[3]) && stats(&in[1], &in[0]) &&
               same(&in[1], &in[4]) && channels(d, 2, 2, in[0].shape[1]);
    case TSRI_OP_BN_PARAM_GRAD:
        return in[0].shape[1] == 2 && out[0].shape[0] == in[0].shape[2] && same(&out[0], &out[1]);
    case TSRI_OP_BN_RUNNING:
        return in[0].shape[1] == 2 && channels(d, 1, 2, in[0].shape[2]) && same(&in[1], &out[0]) &&
               same(&in[2], &out[1]) && same(&in[1], &in[2]) &&
               (in[1].ndim == 1 || in[1].shape[0] == in[0].shape[0]);
    case TSRI_OP_BN_FOLD:
        return channels(d, 0, 3, out[0].shape[0]) && same(&out[0], &out[1]) &&
               (in[2].ndim == 1 || (in[2].offset[0] == 0 && in[2].shape[0] > 0));
    default: /* SCALE_SHIFT */
        return same(&in[0], &out[0]) && channels(d, 1, 2, in[0].shape[1]);
    }
}

/* Alike but for one axis. */
static bool lines(const tsri_arg *x, const tsri_arg *ids, int axis)
{
    bool fits = x->ndim == ids->ndim;
    for (int i = 0; i < x->ndim && fits; i++)
        fits = i == axis || (x->shape[i] == ids->shape[i] && x->offset[i] == ids->offset[i]);
    return fits;
}

/* y has ids' axes in place of x's axis. */
static bool gathers(const tsri_arg *x, const tsri_arg *ids, const tsri_arg *y, int axis)
{
    bool ok = y->ndim == x->ndim - 1 + ids->ndim;
    for (int i = 0; i < y->ndim && ok; i++)
        ok = y->shape[i] == (i < axis               ? x->shape[i]
                             : i < axis + ids->ndim ? ids->shape[i - axis]
                                                    : x->shape[i - ids->ndim + 1]);
    return ok;
}

/* Pieces that make up y along an axis of which every part has all. */
static bool joins(const tsri_arg *piece, int n, const tsri_arg *y, int axis)
{
    int64_t sum = 0;
    bool ok = y->shape[axis] == y->gshape[axis];
    for (int i = 0; i < n; i++) {
        for (int a = 0; a < y->ndim; a++)
            ok &= a == axis ? piece[i].shape[a] == piece[i].gshape[a]
                            : piece[i].shape[a] == y->shape[a];
        sum += piece[i].shape[axis];
    }
    return ok && sum == y->shape[axis];
}

/* Axes that are cut, or whose elements move, are whole, the others alike. */
static bool cuts(const tsri_arg *small, const tsri_arg *large, const tsri_attrs *at)
{
    bool ok = small->ndim == large->ndim;
    for (int i = 0; i < small->ndim && ok; i++) {
        int64_t n = small->shape[i];
        const int64_t start = at->slice.start[i], last = start + (n - 1) * at->slice.step[i];
        const bool alike = small->gshape[i] == large->gshape[i];
        const bool moved = !alike || start != 0 || at->slice.step[i] != 1;
        const bool inside = !n || (last >= 0 && last < large->shape[i]) || alike;
        ok = moved ? n == small->gshape[i] && large->shape[i] == large->gshape[i] && inside
                   : n == large->shape[i];
    }
    return ok;
}

/* Rows of a part and of the whole: of the same blocks, none of which is cut. */
static bool part_rows(const tsri_arg *part, const tsri_arg *all, const tsri_attrs *at)
{
    const int axis = at->part.axis;
    const int64_t n = part->gshape[axis] / at->part.blocks;
    bool ok = lines(part, all, axis) && all->shape[axis] == at->part.parts * part->shape[axis] &&
              all->offset[axis] == at->part.parts * part->offset[axis];
    return ok && (!n || (part->shape[axis] % n == 0 && part->offset[axis] % n == 0));
}

static bool index_fits(const tsri_kernel_desc *d)
{
    const tsri_arg *in = d->in, *out = d->out;
    switch (d->op) {
    case TSRI_OP_RESIZE:
    case TSRI_OP_RESIZE_DX:
        return lines(&in[0], &out[0], d->attrs->resize.axis) &&
               in[0].shape[d->attrs->resize.axis] == in[0].gshape[d->attrs->resize.axis] &&
               out[0].shape[d->attrs->resize.axis] == out[0].gshape[d->attrs->resize.axis];
    case TSRI_OP_CUMSUM:
        return same(&in[0], &out[0]) &&
               in[0].shape[d->attrs->cumsum.axis] == in[0].gshape[d->attrs->cumsum.axis];
    case TSRI_OP_SCAN:
    case TSRI_OP_SCAN_DX:
    case TSRI_OP_ARGSCAN:
        for (int i = 0; i < d->nin; i++)
            if (!same(&in[i], &out[0]))
                return false;
        return in[0].shape[d->attrs->scan.axis] == in[0].gshape[d->attrs->scan.axis];
    case TSRI_OP_ARGSORT:
        return lines(&in[0], &out[0], d->attrs->sort.axis) &&
               in[0].shape[d->attrs->sort.axis] == in[0].gshape[d->attrs->sort.axis];
    case TSRI_OP_CONCAT:
        return joins(in, d->nin, &out[0], d->attrs->cut.axis);
    case TSRI_OP_SPLIT:
        return joins(out, d->nout, &in[0], d->attrs->cut.axis);
    case TSRI_OP_PART:
        return part_rows(&out[0], &in[0], d->attrs);
    case TSRI_OP_WHOLE:
        return part_rows(&in[0], &out[0], d->attrs);
    case TSRI_OP_SLICE:
        return cuts(&out[0], &in[0], d->attrs);
    case TSRI_OP_PAD:
        return cuts(&in[0], &out[0], d->attrs);
    case TSRI_OP_WHERE:
        return broadcasts(&in[0], &out[0]) && broadcasts(&in[1], &out[0]) &&
               broadcasts(&in[2], &out[0]);
    case TSRI_OP_MASK:
        return broadcasts(&in[0], &out[0]) && same(&in[1], &out[0]);
    case TSRI_OP_INDEX_SELECT:
        return gathers(&in[0], &in[1], &out[0], d->attrs->gather.axis);
    case TSRI_OP_GATHER:
        return lines(&in[0], &in[1], d->attrs->gather.axis) && same(&in[1], &out[0]);
    case TSRI_OP_GATHER_DX:
        return lines(&out[0], &in[0], d->attrs->gather.axis) && same(&in[0], &in[1]);
    case TSRI_OP_OWN: /* its rule alone says */
    case TSRI_OP_OWN_BACKWARD:
        return true;
    case TSRI_OP_ONE_HOT:
        return reduces(&out[0], &in[0], 1u << in[0].ndim, false);
    case TSRI_OP_INDEX_SELECT_DX:
        return gathers(&out[0], &in[0], &in[1], d->attrs->gather.axis);
    default:
        return norm_fits(d);
    }
}

/* s[row.., 2], p[f..] and x[row.., f..] */
static bool ln_stats(const tsri_arg *s, const tsri_arg *x, int axes)
{
    bool ok = s->ndim == x->ndim - axes + 1 && s->shape[s->ndim - 1] == 2;
    for (int i = 0; i < s->ndim - 1 && ok; i++)
        ok = s->shape[i] == x->shape[i];
    return ok;
}

static bool ln_params(const tsri_arg *p, const tsri_arg *x, int axes)
{
    bool ok = p->ndim == axes;
    for (int i = 0; i < axes && ok; i++)
        ok = p->shape[i] == x->shape[x->ndim - axes + i];
    return ok;
}

static bool layer_norm(const tsri_kernel_desc *d)
{
    const tsri_arg *in = d->in, *out = d->out;
    const int axes = d->attrs->ln.axes, last = d->nin - 1;
    if (d->op == TSRI_OP_LN_STATS)
        return ln_stats(&out[0], &in[0], axes);
    if (!ln_stats(&in[1], &in[0], axes))
        return false;
    if (d->op == TSRI_OP_LN_PARAM_GRAD)
        return same(&in[0], &in[2]) && ln_params(&out[0], &in[0], axes) && same(&out[0], &out[1]);
    if (d->attrs->ln.has_gamma && !ln_params(&in[2], &in[0], axes))
        return false;
    if (d->op == TSRI_OP_LN_BWD_STATS)
        return same(&in[last], &in[0]) && same(&in[1], &out[0]);
    if (d->op == TSRI_OP_LN_BWD_APPLY)
        return same(&in[last - 1], &in[0]) && same(&in[last], &in[1]) && same(&in[0], &out[0]);
    return same(&in[0], &out[0]) && (!d->attrs->ln.has_beta || ln_params(&in[last], &in[0], axes));
}

/* Returns whether axis i of x and axis j of y are cut alike: same size, same offset. */
static bool along(const tsri_arg *a, int i, const tsri_arg *b, int j)
{
    return a->shape[i] == b->shape[j] && a->offset[i] == b->offset[j];
}

/* Forward all keys are there; a mask has its parts, or one for all. */
static bool attention(const tsri_kernel_desc *d)
{
    const bool back = d->op == TSRI_OP_FLASH_ATTENTION_DX;
    const tsri_arg *q = &d->in[0], *k = &d->in[1], *v = &d->in[2];
    const tsri_arg *y = back ? &d->in[d->nin - 3] : &d->out[0];
    const tsri_arg *lse = back ? &d->in[d->nin - 2] : &d->out[1];
    bool ok = q->shape[3] == q->gshape[3] && k->shape[3] == q->shape[3] && along(k, 2, v, 2);
    for (int i = 0; i < 2; i++)
        ok &= along(q, i, k, i) && along(q, i, v, i);
    for (int i = 0; i < 3; i++)
        ok &= along(q, i, y, i) && along(q, i, lse, i);
    ok &= along(v, 3, y, 3) && (back || k->shape[2] == k->gshape[2]);
    if (d->attrs->attention.has_mask) {
        const tsri_arg *m = &d->in[3];
        for (int i = 0; i < 4; i++)
            ok &= m->gshape[i] == 1 || (i < 3 ? along(m, i, q, i) : along(m, i, k, 2));
    }
    return ok && (!back || (same(&d->in[d->nin - 1], y) && same(&d->out[0], q) &&
                            same(&d->out[1], k) && same(&d->out[2], v)));
}

/* x[t, n, g h] and all that has its samples; a sample's state is whole. */
static bool recurrent(const tsri_kernel_desc *d)
{
    const tsri_recurrent_sizes size = tsri_recurrent_sizes_of(d);
    const bool back = d->op == TSRI_OP_RECURRENT_DX;
    const tsri_arg *w = &d->in[!back], *y = back ? &d->out[0] : &d->in[0];
    bool ok = w->shape[0] == size.gates * size.h && w->shape[1] == size.h;
    for (int i = 0; i < d->nin + d->nout; i++) {
        const tsri_arg *a = i < d->nin ? &d->in[i] : &d->out[i - d->nin];
        if (a == w || a->ndim == 1)
            ok &= a->shape[0] == size.gates * size.h;
        else if (a->ndim == 3)
            ok &= along(a, 0, y, 0) && along(a, 1, y, 1) && a->shape[2] % size.h == 0;
        else
            ok &= along(a, 0, y, 1) && a->shape[1] == size.h;
    }
    return ok;
}

static bool data_fits(const tsri_kernel_desc *d)
{
    const tsri_arg *in = d->in, *out = d->out;
    bool ok = true;
    switch (d->op) {
    case TSRI_OP_FLASH_ATTENTION:
    case TSRI_OP_FLASH_ATTENTION_DX:
        return attention(d);
    case TSRI_OP_RECURRENT:
    case TSRI_OP_RECURRENT_DX:
        return recurrent(d);
    case TSRI_OP_CONV2D:
        return conv(d, &in[0], &in[1], &out[0]) &&
               (d->nin < 3 || in[2].shape[0] == out[0].shape[1]);
    case TSRI_OP_CONV2D_DX:
        return conv(d, &out[0], &in[1], &in[0]);
    case TSRI_OP_CONV2D_DW:
        return conv(d, &in[0], &out[0], &in[1]);
    case TSRI_OP_MAX_POOL:
        return pool(d, &in[0], &out[0]) && same(&out[0], &out[1]);
    case TSRI_OP_MAX_POOL_DX:
        return pool(d, &out[0], &in[1]) && same(&in[0], &in[1]);
    case TSRI_OP_AVG_POOL:
        return pool(d, &in[0], &out[0]);
    case TSRI_OP_AVG_POOL_DX:
        return pool(d, &out[0], &in[0]);
    case TSRI_OP_ADAPTIVE_POOL:
        return adaptive(&in[0], &out[0]);
    case TSRI_OP_ADAPTIVE_POOL_DX:
        return adaptive(&out[0], &in[0]);
    case TSRI_OP_CE_TERMS:
        return in[0].shape[0] == in[1].shape[0] && same(&in[1], &in[2]) && out[0].ndim == 2 &&
               out[0].shape[0] == in[0].shape[0] && out[0].shape[1] == 3;
    case TSRI_OP_CE_FINISH:
        return in[0].shape[0] == in[1].shape[0] && in[0].shape[1] == 3 && same(&in[1], &out[0]) &&
               same(&in[1], &out[1]) && out[2].ndim == 2 && out[2].shape[0] == in[1].shape[0] &&
               out[2].shape[1] == 2 && (d->nin < 3 || same(&in[1], &in[2]));
    case TSRI_OP_CE_DX:
        return same(&in[0], &out[0]) && same(&in[1], &in[3]) && in[2].ndim == 2 &&
               in[2].shape[0] == in[1].shape[0] && in[2].shape[1] == 2 &&
               in[0].shape[0] == in[1].shape[0];
    case TSRI_OP_LN_STATS:
    case TSRI_OP_LN_APPLY:
    case TSRI_OP_LN_BWD_STATS:
    case TSRI_OP_LN_BWD_APPLY:
    case TSRI_OP_LN_PARAM_GRAD:
        return layer_norm(d);
    case TSRI_OP_RESHAPE:
        return count(&in[0]) == count(&out[0]);
    case TSRI_OP_PERMUTE:
        for (int i = 0; i < in[0].ndim; i++)
            ok &= out[0].shape[i] == in[0].shape[d->attrs->permute.perm[i]];
        return ok;
    default:
        return index_fits(d);
    }
}

bool vf_shapes_fit(const tsri_kernel_desc *d)
{
    const tsri_arg *in = d->in, *out = d->out;
    switch (d->op) {
    case TSRI_OP_UNARY:
    case TSRI_OP_UNARY_GRAD:
    case TSRI_OP_SCALE:
    case TSRI_OP_CAST:
    case TSRI_OP_ADD_N:
    case TSRI_OP_FILL:
    case TSRI_OP_TRIANGLE:
    case TSRI_OP_ARANGE:
    case TSRI_OP_CONSTANT:
    case TSRI_OP_CAUSAL_MASK:
    case TSRI_OP_COPY:
    case TSRI_OP_ASSIGN:
        return all_same(d, d->nin);
    case TSRI_OP_DROPOUT:
    case TSRI_OP_TOTAL:
        return all_same(d, 1);
    case TSRI_OP_RANDOM:
        return all_same(d, 0);
    case TSRI_OP_SGD:
    case TSRI_OP_ADAM:
    case TSRI_OP_RMSPROP:
    case TSRI_OP_ADAGRAD:
    case TSRI_OP_LION:
        return all_same(d, d->nin - 1) && whole(&in[d->nin - 1]);
    case TSRI_OP_BINARY:
        return broadcasts(&in[0], &out[0]) && broadcasts(&in[1], &out[0]);
    case TSRI_OP_EXPAND:
        return broadcasts(&in[0], &out[0]);
    case TSRI_OP_REDUCE:
        return reduces(&in[0], &out[0], d->attrs->reduce.axes, d->attrs->reduce.keepdim);
    case TSRI_OP_SOFTMAX_MAX:
        return reduces(&in[0], &out[0], d->attrs->reduce.axes, d->attrs->reduce.keepdim);
    case TSRI_OP_SOFTMAX_SUM:
        return reduces(&in[0], &out[0], 1u << d->attrs->softmax.axis, true) &&
               same(&in[1], &out[0]);
    case TSRI_OP_SOFTMAX_FINISH:
        return same(&in[0], &out[0]) && same(&in[1], &in[2]) &&
               reduces(&in[0], &in[1], 1u << d->attrs->softmax.axis, true);
    case TSRI_OP_SOFTMAX_DOT:
        return same(&in[0], &in[1]) && reduces(&in[0], &out[0], 1u << d->attrs->softmax.axis, true);
    case TSRI_OP_SOFTMAX_BWD:
        return all_same(d, 2) && reduces(&in[0], &in[2], 1u << d->attrs->softmax.axis, true);
    case TSRI_OP_PROD:
        return reduces(&in[0], &out[0], d->attrs->reduce.axes, d->attrs->reduce.keepdim) &&
               axes_whole(&in[0], d->attrs->reduce.axes);
    case TSRI_OP_PROD_DX:
        return same(&in[0], &out[0]) && reduces(&in[0], &in[1], d->attrs->reduce.axes, true) &&
               axes_whole(&in[0], d->attrs->reduce.axes);
    case TSRI_OP_ARGMAX:
        return reduces(&in[0], &out[0], 1u << d->attrs->softmax.axis, false);
    case TSRI_OP_MATMUL:
        return matmul(d);
    case TSRI_OP_BATCH_MATMUL:
        return batch_matmul(d);
    case TSRI_OP_LINEAR:
        return linear(&in[0], &in[1], &out[0]) && (d->nin < 3 || in[2].shape[0] == in[1].shape[0]);
    case TSRI_OP_LINEAR_DX:
        return linear(&out[0], &in[1], &in[0]);
    case TSRI_OP_LINEAR_DW:
        return linear(&in[0], &out[0], &in[1]);
    default:
        return data_fits(d);
    }
}
