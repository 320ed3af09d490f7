/* SPDX-License-Identifier: Apache-2.0 */
/* Formulas of the indexing ops: elements by their coordinates, one at a time. */
#include "cases.h"

#include <tessera/sbp.h>
#include <math.h>
#include <string.h>

static void coords(const tsr_dims *d, int64_t i, int64_t *at)
{
    for (int k = d->ndim - 1; k >= 0; k--) {
        at[k] = i % d->d[k];
        i /= d->d[k];
    }
}

static int64_t index_of(const tsr_dims *d, const int64_t *at)
{
    int64_t i = 0;
    for (int k = 0; k < d->ndim; k++)
        i = i * d->d[k] + at[k];
    return i;
}

/* The element of x that element i of y is. */
static int64_t taken(const tsr_dims *x, const tsr_dims *ids, const tsr_dims *y, int axis,
                     const double *id, int64_t i)
{
    int64_t at[TSR_MAX_NDIM], from[TSR_MAX_NDIM];
    coords(y, i, at);
    for (int k = 0; k < x->ndim; k++)
        from[k] = k < axis ? at[k] : k > axis ? at[k - 1 + ids->ndim] : 0;
    from[axis] = (int64_t)id[index_of(ids, at + axis)];
    return index_of(x, from);
}

static void gather(const kernel_case *k, double *const *in, double *y)
{
    for (int64_t i = 0; i < kc_count(&k->out[0]); i++)
        y[i] = in[0][taken(&k->in[0].dims, &k->in[1].dims, &k->out[0].dims, k->attrs.gather.axis,
                           in[1], i)];
}

static void gather_dx(const kernel_case *k, double *const *in, double *dx)
{
    int axis = k->attrs.gather.axis;
    memset(dx, 0, (size_t)kc_count(&k->out[0]) * sizeof *dx);
    for (int64_t i = 0; i < kc_count(&k->in[1]); i++) {
        int64_t at[TSR_MAX_NDIM];
        int64_t to = taken(&k->out[0].dims, &k->in[0].dims, &k->in[1].dims, axis, in[0], i);
        coords(&k->out[0].dims, to, at);
        if (!k->attrs.gather.has_pad || at[axis] != k->attrs.gather.pad)
            dx[to] += in[1][i];
    }
}

/* The element of x that element i of y is, by an id of its own. */
static int64_t taken_here(const tsr_dims *x, const tsr_dims *y, int axis, const double *id,
                          int64_t i)
{
    int64_t at[TSR_MAX_NDIM];
    coords(y, i, at);
    at[axis] = (int64_t)id[i];
    return index_of(x, at);
}

static void lines(const kernel_case *k, double *const *in, double *out)
{
    const int axis = k->attrs.gather.axis;
    const bool dx = k->op == TSRI_OP_GATHER_DX;
    const tsr_dims *x = dx ? &k->out[0].dims : &k->in[0].dims;
    const tsr_dims *y = dx ? &k->in[1].dims : &k->out[0].dims;
    for (int64_t i = 0; dx && i < tsr_dims_count(*x); i++)
        out[i] = 0;
    for (int64_t i = 0; i < tsr_dims_count(*y); i++)
        if (dx)
            out[taken_here(x, y, axis, in[0], i)] += in[1][i];
        else
            out[i] = in[0][taken_here(x, y, axis, in[1], i)];
}

/* Pieces of x along an axis, the other way round for split. */
static void join(const kernel_case *k, double *const *piece, const kc_arg *a, int n, double *whole,
                 const tsr_dims *dims, bool split)
{
    int axis = k->attrs.cut.axis;
    int64_t begin = 0;
    for (int p = 0; p < n; begin += a[p++].dims.d[axis])
        for (int64_t i = 0; i < kc_count(&a[p]); i++) {
            int64_t at[TSR_MAX_NDIM];
            coords(&a[p].dims, i, at);
            at[axis] += begin;
            if (split)
                piece[p][i] = whole[index_of(dims, at)];
            else
                whole[index_of(dims, at)] = piece[p][i];
        }
}

static void slice(const kernel_case *k, const double *x, double *y)
{
    bool pad = k->op == TSRI_OP_PAD;
    const tsr_dims *small = pad ? &k->in[0].dims : &k->out[0].dims;
    const tsr_dims *large = pad ? &k->out[0].dims : &k->in[0].dims;
    for (int64_t i = 0; pad && i < kc_count(&k->out[0]); i++)
        y[i] = k->attrs.slice.value;
    for (int64_t i = 0; i < tsr_dims_count(*small); i++) {
        int64_t at[TSR_MAX_NDIM];
        coords(small, i, at);
        for (int a = 0; a < small->ndim; a++)
            at[a] = (k->attrs.slice.start[a] + at[a] * k->attrs.slice.step[a]) % large->d[a];
        if (pad)
            y[index_of(large, at)] = x[i];
        else
            y[i] = x[index_of(large, at)];
    }
}

/* The element's index in the global tensor. */
static int64_t global_index(const kc_arg *a, int64_t i)
{
    int64_t at[TSR_MAX_NDIM];
    tsr_dims whole = a->dims;
    coords(&a->dims, i, at);
    for (int k = 0; k < a->dims.ndim; k++) {
        at[k] += a->offset[k];
        whole.d[k] = a->gshape[0] ? a->gshape[k] : whole.d[k];
    }
    return index_of(&whole, at);
}

static void source(const kernel_case *k, double *const *in, double *y)
{
    const kc_arg *a = &k->out[0];
    const int64_t last = a->dims.ndim ? a->dims.d[a->dims.ndim - 1] : 1;
    for (int64_t i = 0; i < kc_count(a); i++) {
        int64_t at = global_index(a, i);
        switch (k->op) {
        case TSRI_OP_ARANGE:
            y[i] = k->attrs.arange.start + (double)at * k->attrs.arange.step;
            break;
        case TSRI_OP_CONSTANT:
            y[i] = a->dtype == TSR_I64 ? (double)((const int64_t *)k->attrs.constant.data)[at]
                                       : (double)((const float *)k->attrs.constant.data)[at];
            break;
        default: /* one_hot */
            y[i] = (double)(i % last + a->offset[a->dims.ndim - 1]) == in[0][i / last];
        }
    }
}

static void triangle(const kernel_case *k, const double *x, double *y)
{
    const kc_arg *a = &k->out[0];
    int n = a->dims.ndim;
    for (int64_t i = 0; i < kc_count(a); i++) {
        int64_t at[TSR_MAX_NDIM];
        coords(&a->dims, i, at);
        int64_t d = at[n - 1] + a->offset[n - 1] - at[n - 2] - a->offset[n - 2];
        int64_t least = k->attrs.triangle.diagonal;
        y[i] = (k->attrs.triangle.upper ? d >= least : d <= least) ? x[i] : 0;
    }
}

/* Returns the weight of the operand's element j in the result's element i: it falls linearly with
 * the distance of j from the place of i. */
static double resize_weight(const kernel_case *k, int64_t i, int64_t j, int64_t in, int64_t out)
{
    const double ratio = (double)in / (double)out;
    double x = ((double)i + 0.5) * ratio - 0.5;
    if (k->attrs.resize.how == TSRI_RESIZE_NEAREST)
        return (double)(j == i * in / out);
    if (k->attrs.resize.how == TSRI_RESIZE_CORNERS)
        x = out > 1 ? (double)(i * (in - 1)) / (double)(out - 1) : 0;
    return fmax(0, 1 - fabs(fmin(fmax(x, 0), (double)(in - 1)) - (double)j));
}

static void resize(const kernel_case *k, const double *x, double *y)
{
    const bool dx = k->op == TSRI_OP_RESIZE_DX;
    const tsr_dims *to = &k->out[0].dims, *from = &k->in[0].dims;
    const int axis = k->attrs.resize.axis;
    for (int64_t i = 0; i < tsr_dims_count(*to); i++) {
        int64_t at[TSR_MAX_NDIM];
        coords(to, i, at);
        const int64_t here = at[axis], n = from->d[axis], m = to->d[axis];
        y[i] = 0;
        for (at[axis] = 0; at[axis] < n; at[axis]++)
            y[i] += x[index_of(from, at)] * (dx ? resize_weight(k, at[axis], here, m, n)
                                                : resize_weight(k, here, at[axis], n, m));
    }
}

static void cumsum(const kernel_case *k, const double *x, double *y)
{
    const tsr_dims *d = &k->out[0].dims;
    for (int64_t i = 0; i < tsr_dims_count(*d); i++) {
        int axis = k->attrs.cumsum.axis;
        int64_t at[TSR_MAX_NDIM];
        coords(d, i, at);
        int64_t here = at[axis];
        y[i] = 0;
        for (at[axis] = 0; at[axis] < d->d[axis]; at[axis]++)
            if (k->attrs.cumsum.reverse ? at[axis] >= here : at[axis] <= here)
                y[i] += x[index_of(d, at)];
    }
}

/* Element i of a line: products, or logarithms; backward by the derivative of each result. */
static void scans(const kernel_case *k, double *const *in, double *out)
{
    const tsr_dims *d = &k->out[0].dims;
    const bool product = k->attrs.scan.fn == TSRI_SCAN_PRODUCT;
    const int axis = k->attrs.scan.axis;
    for (int64_t i = 0; i < tsr_dims_count(*d); i++) {
        int64_t at[TSR_MAX_NDIM], here, end = d->d[axis];
        coords(d, i, at);
        here = at[axis];
        out[i] = k->op == TSRI_OP_SCAN && product;
        if (k->op == TSRI_OP_SCAN) {
            for (at[axis] = 0; at[axis] <= here; at[axis]++)
                out[i] = product ? out[i] * in[0][index_of(d, at)]
                                 : out[i] + exp(in[0][index_of(d, at)]);
            out[i] = product ? out[i] : log(out[i]);
            continue;
        }
        for (int64_t to = here; to < end; to++) {
            at[axis] = to;
            const int64_t y = index_of(d, at);
            double slope = product ? 1 : exp(in[0][i] - in[1][y]);
            /* the results before `here` stand for the products of what is before it */
            at[axis] = here - 1;
            if (product && here)
                slope = in[1][index_of(d, at)];
            for (at[axis] = here + 1; product && at[axis] <= to; at[axis]++)
                slope *= in[0][index_of(d, at)];
            out[i] += in[2][y] * slope;
        }
    }
}

static void places(const kernel_case *k, const double *x, double *y)
{
    const tsr_dims *from = &k->in[0].dims, *to = &k->out[0].dims;
    const bool sorts = k->op == TSRI_OP_ARGSORT;
    const int axis = sorts ? k->attrs.sort.axis : k->attrs.scan.axis;
    const double sign =
        (sorts ? !k->attrs.sort.descending : k->attrs.scan.fn == TSRI_SCAN_MIN) ? 1 : -1;
    for (int64_t i = 0; i < tsr_dims_count(*from); i++) {
        int64_t at[TSR_MAX_NDIM], before = 0;
        coords(from, i, at);
        const int64_t here = at[axis], end = sorts ? from->d[axis] : here + 1;
        int64_t best = 0;
        double least = INFINITY;
        for (at[axis] = 0; at[axis] < end; at[axis]++) {
            const double v = sign * x[index_of(from, at)], own = sign * x[i];
            before += v < own || (v == own && at[axis] < here);
            best = v <= least ? at[axis] : best;
            least = v <= least ? v : least;
        }
        at[axis] = sorts ? before : here;
        if (at[axis] < to->d[axis])
            y[index_of(to, at)] = (double)(sorts ? here : best);
    }
}

/* Rows of a part in time; other rows of the result keep their values. */
static void part_rows(const kernel_case *k, double *const *in, double *y)
{
    const bool takes = k->op == TSRI_OP_PART;
    const kc_arg *part = takes ? &k->out[0] : &k->in[0], *whole = takes ? &k->in[0] : &k->out[0];
    const int axis = k->attrs.part.axis;
    const int64_t m = (int64_t)in[1][0], parts = k->attrs.part.parts;
    const int64_t n =
        (part->gshape[0] ? part->gshape[axis] : part->dims.d[axis]) / k->attrs.part.blocks;
    if (!takes)
        memcpy(y, in[2], (size_t)kc_count(whole) * sizeof *y);
    for (int64_t i = 0; i < kc_count(part); i++) {
        int64_t at[TSR_MAX_NDIM];
        coords(&part->dims, i, at);
        at[axis] = at[axis] / n * parts * n + m * n + at[axis] % n;
        const int64_t j = index_of(&whole->dims, at);
        y[takes ? i : j] = in[0][takes ? j : i];
    }
}

static void total(const kernel_case *k, double *const *in, double *y)
{
    const int op = k->attrs.total.op;
    for (int64_t i = 0; i < kc_count(&k->out[0]); i++) {
        const double x = in[0][i], held = in[2][i];
        y[i] = in[1][0] == 0          ? x
               : op == TSR_REDUCE_SUM ? held + x
               : op == TSR_REDUCE_MAX ? fmax(held, x)
                                      : fmin(held, x);
    }
}

bool kc_oracle_index(const kernel_case *k, double *const *in, double *const *out)
{
    switch (k->op) {
    case TSRI_OP_INDEX_SELECT:
        return gather(k, in, out[0]), true;
    case TSRI_OP_INDEX_SELECT_DX:
        return gather_dx(k, in, out[0]), true;
    case TSRI_OP_GATHER:
    case TSRI_OP_GATHER_DX:
        return lines(k, in, out[0]), true;
    case TSRI_OP_ARANGE:
    case TSRI_OP_CONSTANT:
    case TSRI_OP_ONE_HOT:
        return source(k, in, out[0]), true;
    case TSRI_OP_TRIANGLE:
        return triangle(k, in[0], out[0]), true;
    case TSRI_OP_SCAN:
    case TSRI_OP_SCAN_DX:
        return scans(k, in, out[0]), true;
    case TSRI_OP_ARGSCAN:
    case TSRI_OP_ARGSORT:
        return places(k, in[0], out[0]), true;
    case TSRI_OP_RESIZE:
    case TSRI_OP_RESIZE_DX:
        return resize(k, in[0], out[0]), true;
    case TSRI_OP_CUMSUM:
        return cumsum(k, in[0], out[0]), true;
    case TSRI_OP_CONCAT:
        return join(k, in, k->in, k->nin, out[0], &k->out[0].dims, false), true;
    case TSRI_OP_SPLIT:
        return join(k, out, k->out, k->nout, in[0], &k->in[0].dims, true), true;
    case TSRI_OP_SLICE:
    case TSRI_OP_PAD:
        return slice(k, in[0], out[0]), true;
    case TSRI_OP_PART:
    case TSRI_OP_WHOLE:
        return part_rows(k, in, out[0]), true;
    case TSRI_OP_TOTAL:
        return total(k, in, out[0]), true;
    default:
        return false;
    }
}
