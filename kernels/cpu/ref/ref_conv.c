/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions as matrix products over patches that are gathered while packing. Output positions
 * (n, oh, ow) are one index, filter taps with their channels (kh, kw, channel) another:
 *   forward   y[pos, o]   = x[pos, tap] w[o, tap]
 *   backward  dx[pix, i]  = dy[pix, tap] w[i, tap]: the window runs backwards and a position counts
 *                           only where the stride divides it
 *             dw[o, tap]  = dy[o, pos] x[tap, pos]
 * With a stride the pixels that are equally far from a multiple of it have taps of their own: they
 * are a product by themselves.
 */
#include "kernels/cpu/ref/ref.h"

enum { MOST_PHASES = 64 }; /* of the pixels of an image, that are worth a product each */

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

/* --- backward-data with a stride -------------------------------------------------------------- */

/* Along one axis: every stride-th pixel of dx from one on, and every period-th tap of the window
 * from `tap` on. Pixel i with tap j reads dy at base + i - j * step. */
typedef struct phase {
    int64_t pixels, taps, tap, period, base, step;
} phase;

/* The product of a phase along both axes, and where the filter and dx begin in it. */
typedef struct phase_product {
    tsri_kernel *product;
    int64_t w, dx;
} phase_product;

typedef struct phases {
    tsri_ref ref;
    void (*destroy)(tsri_kernel *k);
    int count;
    phase_product part[];
} phases;

static int64_t divisor(int64_t a, int64_t b)
{
    return b ? divisor(b, a % b) : a;
}

static phase phase_of(const tsri_kernel_desc *d, int axis, int64_t first)
{
    const tsri_attrs *at = d->attrs;
    const int64_t stride = at->conv.stride[axis], dilation = at->conv.dilation[axis];
    const int64_t kernel = at->conv.kernel[axis], place = first + at->conv.pad[axis];
    phase p = {.pixels = (d->out[0].shape[2 + axis] - first + stride - 1) / stride,
               .period = stride / divisor(stride, dilation)};
    while (p.tap < p.period && p.tap < kernel && (place - p.tap * dilation) % stride)
        p.tap++;
    if (p.tap == p.period || p.tap >= kernel)
        return p;
    p.taps = (kernel - 1 - p.tap) / p.period + 1;
    p.base = (place - p.tap * dilation) / stride;
    p.step = p.period * dilation / stride;
    return p;
}

static void plan_phase(tsri_ref_gemm *g, const tsri_kernel_desc *d, const phase *h, const phase *v)
{
    const tsri_arg *dy = &d->in[0], *w = &d->in[1], *dx = &d->out[0];
    const int64_t o = w->shape[0] / d->groups, s = d->attrs->conv.stride[0],
                  t = d->attrs->conv.stride[1];
    tsri_ref_index_add(&g->a.row, dx->shape[0], dy->stride[0], 0, 0);
    tsri_ref_index_add(&g->a.row, h->pixels, 0, 1, 0);
    tsri_ref_index_add(&g->a.row, v->pixels, 0, 0, 1);
    tsri_ref_index_add(&g->a.col, h->taps, 0, -h->step, 0);
    tsri_ref_index_add(&g->a.col, v->taps, 0, 0, -v->step);
    tsri_ref_index_add(&g->a.col, o, dy->stride[1], 0, 0);
    g->a.window = true;
    g->a.row.h0 = h->base;
    g->a.row.w0 = v->base;
    for (int i = 0; i < 2; i++) {
        g->a.size[i] = dy->shape[2 + i];
        g->a.stride[i] = dy->stride[2 + i];
        g->a.div[i] = 1;
    }
    tsri_ref_index_add(&g->b.row, w->shape[1], w->stride[1], 0, 0);
    tsri_ref_index_add(&g->b.col, h->taps, h->period * w->stride[2], 0, 0);
    tsri_ref_index_add(&g->b.col, v->taps, v->period * w->stride[3], 0, 0);
    tsri_ref_index_add(&g->b.col, o, w->stride[0], 0, 0);
    tsri_ref_index_add(&g->c.row, dx->shape[0], dx->stride[0], 0, 0);
    tsri_ref_index_add(&g->c.row, h->pixels, s * dx->stride[2], 0, 0);
    tsri_ref_index_add(&g->c.row, v->pixels, t * dx->stride[3], 0, 0);
    tsri_ref_index_add(&g->c.col, w->shape[1], dx->stride[1], 0, 0);
    add_groups(g, d, o * dy->stride[1], o * w->stride[0], w->shape[1] * dx->stride[1]);
}

static tsr_status phases_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const phases *p = (const phases *)k;
    const size_t w = tsr_dtype_size(p->ref.desc.in[1].dtype),
                 dx = tsr_dtype_size(p->ref.desc.out[0].dtype);
    for (int i = 0; i < p->count; i++) {
        const tsri_kernel *product = p->part[i].product;
        void *from[2] = {in[0], (char *)in[1] + p->part[i].w * (int64_t)w};
        void *to[1] = {(char *)out[0] + p->part[i].dx * (int64_t)dx};
        TSRI_TRY(product->run(product, from, to, scratch));
    }
    return TSR_OK;
}

static void phases_destroy(tsri_kernel *k)
{
    phases *p = (phases *)k;
    for (int i = 0; i < p->count; i++)
        p->part[i].product->destroy(p->part[i].product);
    p->destroy(k);
}

/* Returns the phases along an axis. */
static int64_t count_phases(const tsri_kernel_desc *d, int axis)
{
    const int64_t stride = d->attrs->conv.stride[axis], size = d->out[0].shape[2 + axis];
    return stride < size ? stride : size;
}

static bool has_phases(const tsri_kernel_desc *d)
{
    const bool some =
        d->groups > 0 && tsri_arg_count(&d->in[1]) > 0 && tsri_arg_count(&d->out[0]) > 0;
    if (d->op != TSRI_OP_CONV2D_DX || !some)
        return false;
    const int64_t h = count_phases(d, 0), v = count_phases(d, 1);
    return h <= MOST_PHASES && v <= MOST_PHASES && h * v > 1 && h * v <= MOST_PHASES;
}

static tsr_status make_phases(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const int64_t n[2] = {count_phases(d, 0), count_phases(d, 1)};
    const tsri_arg *w = &d->in[1], *dx = &d->out[0];
    phases *p =
        tsri_ref_make(mem, d, phases_run, sizeof *p + (size_t)(n[0] * n[1]) * sizeof *p->part);
    TSRI_NEED(p);
    p->destroy = p->ref.base.destroy;
    p->ref.base.destroy = phases_destroy;
    for (int64_t i = 0; i < n[0] * n[1]; i++) {
        const int64_t at[2] = {i / n[1], i % n[1]};
        const phase h = phase_of(d, 0, at[0]), v = phase_of(d, 1, at[1]);
        tsri_ref_gemm *g = NULL;
        tsri_kernel *product = NULL;
        tsr_status status = tsri_ref_gemm_make(mem, d, 0, 1, &g);
        if (status == TSR_OK) {
            plan_phase(g, d, &h, &v);
            status = tsri_ref_gemm_finish(g, &product);
        }
        if (status != TSR_OK) {
            phases_destroy(&p->ref.base);
            return status;
        }
        p->part[p->count].product = product;
        p->part[p->count].w = h.taps && v.taps ? h.tap * w->stride[2] + v.tap * w->stride[3] : 0;
        p->part[p->count++].dx = at[0] * dx->stride[2] + at[1] * dx->stride[3];
        if (product->scratch_bytes > p->ref.base.scratch_bytes)
            p->ref.base.scratch_bytes = product->scratch_bytes;
    }
    *out_kernel = &p->ref.base;
    return TSR_OK;
}

/* --- the choice ------------------------------------------------------------------------------- */

tsr_status tsri_ref_conv2d(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const bool dw = d->op == TSRI_OP_CONV2D_DW;
    if (tsri_ref_all_float(d) && tsri_ref_is_depthwise(d))
        return tsri_ref_depthwise(mem, d, out_kernel);
    if (has_phases(d) && tsri_ref_all_float(d)) {
        TSRI_TRY(make_phases(mem, d, out_kernel));
        return tsri_ref_conv_edges(mem, d, NULL, out_kernel);
    }
    tsri_ref_gemm *g = NULL;
    TSRI_TRY(tsri_ref_gemm_make(mem, d, dw, !dw, &g));
    if (dw)
        plan_dw(g, d);
    else
        plan_data(g, d);
    TSRI_TRY(tsri_ref_gemm_finish(g, out_kernel));
    return tsri_ref_conv_edges(mem, d, NULL, out_kernel);
}
TSRI_REF_SAME(conv2d_dx, conv2d);
TSRI_REF_SAME(conv2d_dw, conv2d);
