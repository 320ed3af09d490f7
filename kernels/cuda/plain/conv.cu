/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions as products over patches that are gathered while tiles are loaded. Output positions
 * (n, oh, ow) are one index, filter taps with their channels (kh, kw, channel) another:
 *   forward   y[pos, o]   = x[pos, tap] w[o, tap]
 *   backward  dx[pix, i]  = dy[pix, tap] w[i, tap]: the window runs backwards and a position counts
 *                           only where the stride divides it
 *             dw[o, tap]  = dy[o, pos] x[tap, pos]
 * Groups are a batch of products; those of few channels go to conv_groups.cu, as most of
 * their tiles would be empty.
 */
#include "kernels/cuda/code/plain_conv.cuh"

typedef struct conv_kernel {
    tsri_cuda_kernel base;
    tsri_product product;
} conv_kernel;

static tsr_status conv_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                           void *scratch)
{
    const conv_kernel *v = (const conv_kernel *)k;
    bool dw = k->desc.op == TSRI_OP_CONV2D_DW;
    const void *bias = k->desc.op == TSRI_OP_CONV2D && k->desc.nin > 2 ? in[2] : NULL;
    TSRI_FLOATS(k->desc.out[0].dtype,
                tsri_product_launch<T, true>(v->product, in[dw], in[!dw], bias, out[0], scratch,
                                             k->stream));
    return tsri_cuda_launched(k);
}

typedef struct conv_axes {
    tsri_axes m, n, k, batch;
} conv_axes;

/* One product of a group; og: output channels of a group. Under a window, a side's axis moves it
 * instead of the element. */
static void plan_fwd(conv_axes *v, const tsri_kernel_desc *d, int64_t og, bool window)
{
    const tsri_arg *x = &d->in[0], *w = &d->in[1], *y = &d->out[0];
    const tsri_attrs *at = d->attrs;
    tsri_axes_add(&v->m, y->shape[0], y->stride[0], x->stride[0]);
    for (int i = 0; i < 2; i++) {
        int64_t s = at->conv.stride[i], move = window ? 0 : s * x->stride[2 + i];
        s = window ? s : 0;
        tsri_axes_add(&v->m, y->shape[2 + i], y->stride[2 + i], move, i ? 0 : s, i ? s : 0);
    }
    tsri_axes_add(&v->n, og, y->stride[1], w->stride[0], 0, 0, 1);
    for (int i = 0; i < 2; i++) {
        int64_t s = at->conv.dilation[i], step = s * x->stride[2 + i], move = window ? 0 : step;
        s = window ? s : 0;
        tsri_axes_add(&v->k, w->shape[2 + i], step, move, w->stride[2 + i], i ? 0 : s, i ? s : 0);
    }
    tsri_axes_add(&v->k, w->shape[1], x->stride[1], x->stride[1], w->stride[1]);
    tsri_axes_add(&v->batch, d->groups, og * y->stride[1], w->shape[1] * x->stride[1],
                  og * w->stride[0], og);
}

static void plan_dx(conv_axes *v, const tsri_kernel_desc *d, int64_t og, bool window)
{
    const tsri_arg *dy = &d->in[0], *w = &d->in[1], *dx = &d->out[0];
    tsri_axes_add(&v->m, dx->shape[0], dx->stride[0], dy->stride[0]);
    for (int i = 0; i < 2; i++) {
        int64_t move = window ? 0 : dy->stride[2 + i], s = window ? 1 : 0;
        tsri_axes_add(&v->m, dx->shape[2 + i], dx->stride[2 + i], move, i ? 0 : s, i ? s : 0);
    }
    tsri_axes_add(&v->n, w->shape[1], dx->stride[1], w->stride[1]);
    for (int i = 0; i < 2; i++) {
        int64_t s = d->attrs->conv.dilation[i], step = s * dy->stride[2 + i];
        tsri_axes_add(&v->k, w->shape[2 + i], step, 0, w->stride[2 + i], i ? 0 : -s, i ? -s : 0);
    }
    tsri_axes_add(&v->k, og, dy->stride[1], dy->stride[1], w->stride[0]);
    tsri_axes_add(&v->batch, d->groups, w->shape[1] * dx->stride[1], og * dy->stride[1],
                  og * w->stride[0]);
}

static void plan_dw(conv_axes *v, const tsri_kernel_desc *d, int64_t og, bool window)
{
    const tsri_arg *x = &d->in[0], *dy = &d->in[1], *dw = &d->out[0];
    const tsri_attrs *at = d->attrs;
    tsri_axes_add(&v->m, og, dw->stride[0], dy->stride[1]);
    for (int i = 0; i < 2; i++) {
        int64_t s = at->conv.dilation[i], move = window ? 0 : s * x->stride[2 + i];
        s = window ? s : 0;
        tsri_axes_add(&v->n, dw->shape[2 + i], dw->stride[2 + i], move, i ? 0 : s, i ? s : 0);
    }
    tsri_axes_add(&v->n, dw->shape[1], dw->stride[1], x->stride[1]);
    tsri_axes_add(&v->k, dy->shape[0], dy->stride[0], dy->stride[0], x->stride[0]);
    for (int i = 0; i < 2; i++) {
        int64_t s = at->conv.stride[i], move = window ? 0 : s * x->stride[2 + i];
        int64_t step = dy->stride[2 + i];
        s = window ? s : 0;
        tsri_axes_add(&v->k, dy->shape[2 + i], step, step, move, i ? 0 : s, i ? s : 0);
    }
    tsri_axes_add(&v->batch, d->groups, og * dw->stride[0], og * dy->stride[1],
                  dw->shape[1] * x->stride[1]);
}

/* Whether something lies outside of the image, or between its elements. */
static bool needs_window(const tsri_kernel_desc *d)
{
    const tsri_attrs *at = d->attrs;
    bool outside = at->conv.pad[0] || at->conv.pad[1];
    for (int i = 0; i < 2 && d->op == TSRI_OP_CONV2D_DX; i++)
        outside |= at->conv.stride[i] != 1 || at->conv.kernel[i] != 1;
    return outside;
}

void tsri_conv_window(const tsri_kernel_desc *d, tsri_window *out)
{
    const tsri_arg *image = &d->in[0]; /* x, or dy */
    bool back = d->op == TSRI_OP_CONV2D_DX;
    for (int i = 0; i < 2; i++) {
        out->base[i] = back ? d->attrs->conv.pad[i] : -d->attrs->conv.pad[i];
        out->div[i] = back ? d->attrs->conv.stride[i] : 1;
        out->size[i] = (int)image->shape[2 + i];
        out->stride[i] = image->stride[2 + i];
        out->divides |= out->div[i] != 1;
    }
}

/* Positions of a window are ints, with room for padding and taps. */
static bool takes(const tsri_kernel_desc *d)
{
    for (int i = 0; i < d->nin; i++)
        if (d->in[i].dtype != d->out[0].dtype)
            return false;
    for (int i = 0; i < 2; i++)
        if (d->in[0].shape[2 + i] > 1 << 30 || d->out[0].shape[2 + i] > 1 << 30)
            return false;
    return tsri_cuda_is_float(d->out[0].dtype);
}

static tsr_status make(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *w = d->op == TSRI_OP_CONV2D_DW ? &d->out[0] : &d->in[1];
    int64_t og = d->groups ? w->shape[0] / d->groups : 0;
    if (!takes(d))
        return tsri_cuda_decline(d);
    if (d->groups > 1 && (og < 8 || w->shape[1] < 8))
        return tsri_conv_groups(mem, d, out_kernel);
    conv_kernel *k = (conv_kernel *)tsri_cuda_make(mem, d, conv_run, "plain", sizeof(conv_kernel));
    TSRI_NEED(k);
    tsri_product *p = &k->product;
    conv_axes axes = {};
    bool window = needs_window(d), dw = d->op == TSRI_OP_CONV2D_DW;
    (dw ? plan_dw : d->op == TSRI_OP_CONV2D_DX ? plan_dx : plan_fwd)(&axes, d, og, window);
    tsri_axes_walk(&axes.m, TSRI_SIDE_OPS, &p->m);
    tsri_axes_walk(&axes.n, TSRI_SIDE_OPS, &p->n);
    tsri_axes_walk(&axes.k, TSRI_TERM_OPS, &p->k);
    tsri_axes_walk(&axes.batch, TSRI_BATCH_OPS, &p->batch);
    p->window_a = window && !dw;
    p->window_b = window && dw;
    tsri_conv_window(d, &p->window);
    k->base.base.scratch_bytes = tsri_product_plan(p, d->out[0].dtype);
    *out_kernel = &k->base.base;
    return TSR_OK;
}

tsr_status tsri_plain_conv2d(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return make(mem, d, out_kernel);
}

tsr_status tsri_plain_conv2d_dx(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return make(mem, d, out_kernel);
}

tsr_status tsri_plain_conv2d_dw(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return make(mem, d, out_kernel);
}
