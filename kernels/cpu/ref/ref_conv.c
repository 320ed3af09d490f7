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

/* The groups, whose channels follow each other in all operands. */
static void add_groups(tsri_ref_gemm *g, const tsri_kernel_desc *d, int64_t a, int64_t b, int64_t c)
{
    tsri_ref_index_add(&g->a.batch, d->groups, a, 0, 0);
    tsri_ref_index_add(&g->b.batch, d->groups, b, 0, 0);
    tsri_ref_index_add(&g->c.batch, d->groups, c, 0, 0);
}

/* Forward, and backward to the data: a group has o outputs, w->shape[1] inputs. */
static void plan_data(tsri_ref_gemm *g, const tsri_kernel_desc *d)
{
    const bool dx = d->op == TSRI_OP_CONV2D_DX;
    const tsri_arg *x = &d->in[0], *w = &d->in[1], *y = &d->out[0];
    const tsri_attrs *at = d->attrs;
    const int64_t o = d->groups ? w->shape[0] / d->groups : 0;
    const int64_t from = dx ? o : w->shape[1], to = dx ? w->shape[1] : o;
    const int sign = dx ? -1 : 1;
    add_pixels(&g->a.row, x->stride[0], y, dx ? 1 : at->conv.stride[0],
               dx ? 1 : at->conv.stride[1]);
    add_taps(&g->a.col, at, x, from, sign);
    set_window(&g->a, x, &g->a.row, at, sign);
    tsri_ref_index_add(&g->b.row, to, w->stride[dx], 0, 0);
    add_filter(&g->b.col, w, !dx, from);
    add_places(&g->c.row, y);
    tsri_ref_index_add(&g->c.col, to, y->stride[1], 0, 0);
    add_groups(g, d, from * x->stride[1], o * w->stride[0], to * y->stride[1]);
}

static void plan_dw(tsri_ref_gemm *g, const tsri_kernel_desc *d)
{
    const tsri_arg *x = &d->in[0], *dy = &d->in[1], *dw = &d->out[0];
    const tsri_attrs *at = d->attrs;
    const int64_t o = d->groups ? dw->shape[0] / d->groups : 0;
    tsri_ref_index_add(&g->a.row, o, dy->stride[1], 0, 0);
    add_places(&g->a.col, dy);
    add_taps(&g->b.row, at, x, dw->shape[1], 1);
    add_pixels(&g->b.col, x->stride[0], dy, at->conv.stride[0], at->conv.stride[1]);
    set_window(&g->b, x, &g->b.col, at, 1);
    tsri_ref_index_add(&g->c.row, o, dw->stride[0], 0, 0);
    add_filter(&g->c.col, dw, 1, dw->shape[1]);
    add_groups(g, d, o * dy->stride[1], dw->shape[1] * x->stride[1], o * dw->stride[0]);
}

tsr_status tsri_ref_conv2d(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const bool dw = d->op == TSRI_OP_CONV2D_DW;
    if (tsri_ref_all_float(d) && tsri_ref_is_depthwise(d))
        return tsri_ref_depthwise(mem, d, out_kernel);
    tsri_ref_gemm *g = NULL;
    TSRI_TRY(tsri_ref_gemm_make(mem, d, dw, !dw, &g));
    if (dw)
        plan_dw(g, d);
    else
        plan_data(g, d);
    TSRI_TRY(tsri_ref_gemm_finish(g, out_kernel));
    return tsri_ref_conv_edges(mem, d, out_kernel);
}
TSRI_REF_SAME(conv2d_dx, conv2d);
TSRI_REF_SAME(conv2d_dw, conv2d);
