/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions as matrix products over patches that are gathered while packing. Output positions
 * (n, oh, ow) are one index, filter taps with their channels (kh, kw, channel) another:
 *   forward   y[pos, o]   = x[pos, tap] w[o, tap]
 *   backward  dx[pix, i]  = dy[pix, tap] w[i, tap]: the window runs backwards and a position counts
 *                           only where the stride divides it
 *             dw[o, tap]  = dy[o, pos] x[tap, pos]
 */
#include "kernels/cpu/ref/ref.h"

typedef struct conv {
    tsri_ref ref;
    tsri_ref_gemm gemm;
    int64_t groups;
    int a, b;
    int64_t a_step, b_step, c_step, bias_step; /* bytes from group to group */
} conv;

static tsr_status conv_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const conv *v = (const conv *)k;
    const char *bias = v->gemm.bias_dtype ? in[2] : NULL;
    for (int64_t g = 0; g < v->groups; g++) {
        const char *a = in[v->a], *b = in[v->b];
        char *c = out[0];
        /* An operand without elements is NULL, and is not read. */
        tsri_ref_gemm_run(&v->gemm, a ? a + g * v->a_step : a, b ? b + g * v->b_step : b,
                          bias ? bias + g * v->bias_step : bias, c ? c + g * v->c_step : c,
                          scratch);
    }
    return TSR_OK;
}

static int64_t bytes(const tsri_arg *arg, int64_t elements)
{
    return elements * (int64_t)tsr_dtype_size(arg->dtype);
}

/* (n, h, w) of a tensor, or of its positions under a window that moves by step. */
static void add_pixels(tsri_ref_index *index, int64_t n_stride, const tsri_arg *like,
                       int64_t step_h, int64_t step_w)
{
    tsri_ref_index_add(index, like->shape[0], n_stride, 0, 0);
    tsri_ref_index_add(index, like->shape[2], 0, step_h, 0);
    tsri_ref_index_add(index, like->shape[3], 0, 0, step_w);
}

/* (n, h, w) where they stand. */
static void add_places(tsri_ref_index *index, const tsri_arg *arg)
{
    tsri_ref_index_add(index, arg->shape[0], arg->stride[0], 0, 0);
    tsri_ref_index_add(index, arg->shape[2], arg->stride[2], 0, 0);
    tsri_ref_index_add(index, arg->shape[3], arg->stride[3], 0, 0);
}

/* (kh, kw, channel) of a tensor under a window; sign -1: seen from the other side. */
static void add_taps(tsri_ref_index *index, const tsri_attrs *at, const tsri_arg *arg,
                     int64_t channels, int sign)
{
    tsri_ref_index_add(index, at->conv.kernel[0], 0, sign * at->conv.dilation[0], 0);
    tsri_ref_index_add(index, at->conv.kernel[1], 0, 0, sign * at->conv.dilation[1]);
    tsri_ref_index_add(index, channels, arg->stride[1], 0, 0);
}

/* (kh, kw, channel) of the filter: its axis 1 (inputs) or 0 (outputs). */
static void add_filter(tsri_ref_index *index, const tsri_arg *w, int axis, int64_t channels)
{
    tsri_ref_index_add(index, w->shape[2], w->stride[2], 0, 0);
    tsri_ref_index_add(index, w->shape[3], w->stride[3], 0, 0);
    tsri_ref_index_add(index, channels, w->stride[axis], 0, 0);
}

/* `positions` and `taps` are the row and column of m, one way or the other. */
static void set_window(tsri_ref_matrix *m, const tsri_arg *arg, tsri_ref_index *positions,
                       const tsri_attrs *at, int sign)
{
    bool forward = sign > 0, outside = at->conv.pad[0] || at->conv.pad[1];
    m->window = true;
    for (int i = 0; i < 2; i++) {
        m->size[i] = arg->shape[2 + i];
        m->stride[i] = arg->stride[2 + i];
        m->div[i] = forward ? 1 : at->conv.stride[i];
        outside |= !forward && (at->conv.stride[i] != 1 || at->conv.kernel[i] != 1);
    }
    positions->h0 = -sign * at->conv.pad[0];
    positions->w0 = -sign * at->conv.pad[1];
    if (!outside)
        tsri_ref_matrix_unwindow(m);
}

static void plan_fwd(conv *v, const tsri_kernel_desc *d)
{
    const tsri_arg *x = &d->in[0], *w = &d->in[1], *y = &d->out[0];
    const tsri_attrs *at = d->attrs;
    int64_t o = v->groups ? w->shape[0] / v->groups : 0;
    tsri_ref_gemm *g = &v->gemm;
    add_pixels(&g->a.row, x->stride[0], y, at->conv.stride[0], at->conv.stride[1]);
    add_taps(&g->a.col, at, x, w->shape[1], 1);
    set_window(&g->a, x, &g->a.row, at, 1);
    tsri_ref_index_add(&g->b.row, o, w->stride[0], 0, 0);
    add_filter(&g->b.col, w, 1, w->shape[1]);
    add_places(&g->c.row, y);
    tsri_ref_index_add(&g->c.col, o, y->stride[1], 0, 0);
    v->a = 0;
    v->b = 1;
    v->a_step = bytes(x, w->shape[1] * x->stride[1]);
    v->b_step = bytes(w, o * w->stride[0]);
    v->c_step = bytes(y, o * y->stride[1]);
    if (d->nin > 2) {
        g->bias_dtype = d->in[2].dtype;
        v->bias_step = bytes(&d->in[2], o);
    }
}

static void plan_dx(conv *v, const tsri_kernel_desc *d)
{
    const tsri_arg *dy = &d->in[0], *w = &d->in[1], *dx = &d->out[0];
    const tsri_attrs *at = d->attrs;
    int64_t o = v->groups ? w->shape[0] / v->groups : 0;
    tsri_ref_gemm *g = &v->gemm;
    add_pixels(&g->a.row, dy->stride[0], dx, 1, 1);
    add_taps(&g->a.col, at, dy, o, -1);
    set_window(&g->a, dy, &g->a.row, at, -1);
    tsri_ref_index_add(&g->b.row, w->shape[1], w->stride[1], 0, 0);
    add_filter(&g->b.col, w, 0, o);
    add_places(&g->c.row, dx);
    tsri_ref_index_add(&g->c.col, w->shape[1], dx->stride[1], 0, 0);
    v->a = 0;
    v->b = 1;
    v->a_step = bytes(dy, o * dy->stride[1]);
    v->b_step = bytes(w, o * w->stride[0]);
    v->c_step = bytes(dx, w->shape[1] * dx->stride[1]);
}

static void plan_dw(conv *v, const tsri_kernel_desc *d)
{
    const tsri_arg *x = &d->in[0], *dy = &d->in[1], *dw = &d->out[0];
    const tsri_attrs *at = d->attrs;
    int64_t o = v->groups ? dw->shape[0] / v->groups : 0;
    tsri_ref_gemm *g = &v->gemm;
    tsri_ref_index_add(&g->a.row, o, dy->stride[1], 0, 0);
    add_places(&g->a.col, dy);
    add_taps(&g->b.row, at, x, dw->shape[1], 1);
    add_pixels(&g->b.col, x->stride[0], dy, at->conv.stride[0], at->conv.stride[1]);
    set_window(&g->b, x, &g->b.col, at, 1);
    tsri_ref_index_add(&g->c.row, o, dw->stride[0], 0, 0);
    add_filter(&g->c.col, dw, 1, dw->shape[1]);
    v->a = 1;
    v->b = 0;
    v->a_step = bytes(dy, o * dy->stride[1]);
    v->b_step = bytes(x, dw->shape[1] * x->stride[1]);
    v->c_step = bytes(dw, o * dw->stride[0]);
}

tsr_status tsri_ref_conv2d(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    for (int i = 0; i < d->nin; i++)
        if (!tsri_ref_is_float(d->in[i].dtype))
            return tsri_ref_decline(d);
    if (!tsri_ref_is_float(d->out[0].dtype))
        return tsri_ref_decline(d);
    if (tsri_ref_is_depthwise(d))
        return tsri_ref_depthwise(mem, d, out_kernel);
    conv *v = tsri_ref_make(mem, d, conv_run, sizeof *v);
    TSRI_NEED(v);
    v->groups = d->groups;
    if (d->op == TSRI_OP_CONV2D)
        plan_fwd(v, d);
    else if (d->op == TSRI_OP_CONV2D_DX)
        plan_dx(v, d);
    else
        plan_dw(v, d);
    v->gemm.a.dtype = d->in[v->a].dtype;
    v->gemm.b.dtype = d->in[v->b].dtype;
    v->gemm.c.dtype = d->out[0].dtype;
    tsri_ref_gemm_plan(&v->gemm);
    v->ref.base.scratch_bytes = v->gemm.scratch_bytes;
    *out_kernel = &v->ref.base;
    return TSR_OK;
}
TSRI_REF_SAME(conv2d_dx, conv2d);
TSRI_REF_SAME(conv2d_dw, conv2d);
