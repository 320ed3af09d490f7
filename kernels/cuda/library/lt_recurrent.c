/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurrent layers by products over the batch: each step is the product of all samples' states with
 * w, and the rest of the step (recurrent.cu) beside it. The input's products are the caller's, of
 * all steps at once. Backward a step's slopes, which are results, are multiplied with w onto the
 * gradient of the state before.
 *
 * Products of f16 and bf16 are those of f32: states and slopes are not rounded from step to step,
 * and w is widened once.
 *
 * A plain kernel has one block a sample, which reads w in each step: layers of few units are made
 * there, since a step takes two launches here.
 */
#include "kernels/cuda/library/lt.h"
#include "kernels/cuda/library/recurrent.h"

enum { LEAST_UNITS = 64 };

typedef struct lt_recurrent {
    tsri_cuda_kernel base;
    tsri_recurrent_sizes size;
    tsri_recurrent_roles role;
    tsri_cell cell;
    tsri_lt_call call;
    bool widens; /* f16 and bf16 */
    /* Offsets in scratch. Forward: products, states, cells; backward: dh, dc, slopes if it widens.
     * Then w, if it widens. */
    size_t at_state, at_cell, at_slopes, at_w, at_workspace;
} lt_recurrent;

/* Step `at` of an operand or result of `width` elements a sample; NULL where there is none. */
static char *step_of(const lt_recurrent *r, const void *p, int64_t at, int64_t width)
{
    const int64_t size = (int64_t)tsr_dtype_size(r->base.desc.in[0].dtype);
    return p ? (char *)(uintptr_t)p + at * r->size.n * width * size : NULL;
}

static void *buffer(void *const *list, int place)
{
    return place < 0 ? NULL : list[place];
}

/* w as products take it. */
static const void *weights(const lt_recurrent *r, void *const *in, char *scratch)
{
    const int64_t h = r->size.h;
    if (!r->widens)
        return in[r->role.w];
    tsri_recurrent_load(r->base.desc.in[0].dtype, in[r->role.w], scratch + r->at_w,
                        r->size.gates * h * h, r->base.stream);
    return scratch + r->at_w;
}

static tsr_status forward(const lt_recurrent *r, void *const *in, void *const *out, char *scratch)
{
    const tsri_recurrent_roles *role = &r->role;
    const tsr_dtype dtype = r->base.desc.in[0].dtype;
    const int64_t h = r->size.h, rows = r->size.gates * h, count = r->size.n * h;
    const void *w = weights(r, in, scratch);
    tsri_recurrent_step s = {.dtype = dtype,
                             .cell = r->cell,
                             .size = r->size,
                             .bias = buffer(in, role->b),
                             .products = scratch,
                             .state = scratch + r->at_state,
                             .cell_state = scratch + r->at_cell};
    tsri_recurrent_load(dtype, in[role->h0], s.state, count, r->base.stream);
    if (role->c0 >= 0)
        tsri_recurrent_load(dtype, in[role->c0], s.cell_state, count, r->base.stream);
    for (int64_t i = 0; i < r->size.t; i++) {
        const int64_t at = tsri_recurrent_at(&r->base.attrs, r->size.t, i);
        TSRI_TRY(tsri_lt_run(&r->call, (const void *const[]){s.state, w}, s.products,
                             scratch + r->at_workspace));
        s.x = step_of(r, in[role->x], at, rows);
        s.y = step_of(r, out[role->y], at, h);
        s.cells = step_of(r, buffer(out, role->cells), at, h);
        s.gates = step_of(r, buffer(out, role->gates), at, r->size.saved * h);
        tsri_recurrent_forward(&s, r->base.stream);
    }
    return TSR_OK;
}

static tsr_status backward(const lt_recurrent *r, void *const *in, void *const *out, char *scratch)
{
    const tsri_recurrent_roles *role = &r->role;
    const tsr_dtype dtype = r->base.desc.in[0].dtype;
    const int64_t h = r->size.h, rows = r->size.gates * h, count = r->size.n * h;
    const void *w = weights(r, in, scratch);
    tsri_recurrent_back s = {.dtype = dtype,
                             .cell = r->cell,
                             .size = r->size,
                             .begins = true,
                             .slopes = r->widens ? scratch + r->at_slopes : NULL,
                             .dh = scratch,
                             .dcell = scratch + r->at_cell};
    for (int64_t i = r->size.t - 1; i >= 0; i--, s.begins = false) {
        const int64_t at = tsri_recurrent_at(&r->base.attrs, r->size.t, i);
        s.states = step_of(r, in[role->states], at, h);
        s.before = buffer(in, role->first);
        if (s.before && i)
            s.before = step_of(r, in[role->states],
                               tsri_recurrent_at(&r->base.attrs, r->size.t, i - 1), h);
        s.gates = step_of(r, buffer(in, role->gates), at, r->size.saved * h);
        s.dy = step_of(r, in[role->dy], at, h);
        s.dc = step_of(r, buffer(in, role->dc), at, h);
        s.dx = step_of(r, out[role->dx], at, rows);
        s.ds = step_of(r, buffer(out, role->ds), at, rows);
        tsri_recurrent_backward(&s, r->base.stream);
        const void *slopes = s.slopes ? s.slopes : s.ds ? s.ds : s.dx;
        TSRI_TRY(tsri_lt_run(&r->call, (const void *const[]){slopes, w}, s.dh,
                             scratch + r->at_workspace));
    }
    tsri_recurrent_store(dtype, s.dh, out[role->dh0], count, r->base.stream);
    if (role->dc0 >= 0)
        tsri_recurrent_store(dtype, s.dcell, out[role->dc0], count, r->base.stream);
    return TSR_OK;
}

static tsr_status recurrent_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                                void *scratch)
{
    const bool back = k->desc.op == TSRI_OP_RECURRENT_DX;
    TSRI_TRY(
        (back ? backward : forward)((const lt_recurrent *)k, in, out, tsri_workspace_in(scratch)));
    return tsri_cuda_launched(k);
}

static void recurrent_finish(tsri_cuda_kernel *k)
{
    tsri_lt_finish(&((lt_recurrent *)k)->call);
}

/* --- making ----------------------------------------------------------------------------------- */
/* The bytes to which every step of an operand is aligned. */
static uint32_t alignment_of(const lt_recurrent *r, int64_t width)
{
    const int64_t size = (int64_t)tsr_dtype_size(r->base.desc.in[0].dtype);
    const int64_t offsets = TSRI_LT_ALIGNMENT | (r->size.n * width * size);
    return (uint32_t)(offsets & -offsets);
}

static tsr_status make(lt_recurrent *r, bool *out_found)
{
    const tsri_kernel_desc *d = &r->base.desc;
    const bool back = d->op == TSRI_OP_RECURRENT_DX;
    const tsr_dtype wide = d->in[0].dtype == TSR_F64 ? TSR_F64 : TSR_F32;
    const int64_t n = r->size.n, h = r->size.h, rows = r->size.gates * h;
    r->widens = wide != d->in[0].dtype;
    const size_t states = tsri_workspace_aligned((size_t)(n * h) * tsr_dtype_size(wide));
    const size_t products = tsri_workspace_aligned((size_t)(n * rows) * tsr_dtype_size(wide));
    const tsri_lt_product forwards = {
        .m = n, .n = rows, .k = h, .a = {h, 1, 0}, .b = {h, 1, 0}, .c = {rows, 1, 0}};
    const tsri_lt_product backwards = {
        .m = n, .n = h, .k = rows, .a = {rows, 1, 0}, .b = {1, h, 0}, .c = {h, 1, 0}};
    r->call =
        (tsri_lt_call){.device = r->base.device,
                       .stream = r->base.stream,
                       .product = back ? backwards : forwards,
                       .dtype = wide,
                       .result = wide,
                       .tf32 = r->base.device->tf32,
                       .alpha = 1,
                       .beta = back,
                       .alignment = {back && !r->widens ? alignment_of(r, rows) : TSRI_LT_ALIGNMENT,
                                     TSRI_LT_ALIGNMENT, TSRI_LT_ALIGNMENT}};
    r->call.product.of_b = 1;
    r->call.product.batch = 1;
    TSRI_TRY(tsri_lt_make(&r->call, out_found));
    r->at_state = products;
    r->at_cell = back ? states : products + states;
    r->at_slopes = r->at_cell + states;
    r->at_w = r->at_slopes + (back && r->widens ? products : 0);
    r->at_workspace = r->at_w;
    if (r->widens)
        r->at_workspace += tsri_workspace_aligned((size_t)(rows * h) * sizeof(float));
    r->base.base.scratch_bytes =
        tsri_workspace_scratch(r->at_workspace + tsri_workspace_aligned(r->call.workspace));
    return TSR_OK;
}

/* Whether all operands and results are dense rows of one float dtype, of enough units. */
static bool takes(const tsri_kernel_desc *d)
{
    const tsri_recurrent_sizes size = tsri_recurrent_sizes_of(d);
    bool all = d->stream && size.t > 0 && size.n > 0 && size.h >= LEAST_UNITS;
    for (int i = 0; i < d->nin + d->nout; i++) {
        const tsri_arg *a = i < d->nin ? &d->in[i] : &d->out[i - d->nin];
        all = all && a->dtype == d->in[0].dtype && tsri_cuda_is_row(a);
    }
    return all && tsri_cuda_is_float(d->in[0].dtype);
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (!takes(d))
        return tsri_cuda_decline(d);
    lt_recurrent *r = tsri_cuda_make(mem, d, recurrent_run, "cublaslt", sizeof *r);
    TSRI_NEED(r);
    bool found = false;
    r->base.finish = recurrent_finish;
    r->size = tsri_recurrent_sizes_of(d);
    r->role = tsri_recurrent_roles_of(d->op, d->attrs);
    r->cell = (tsri_cell)d->attrs->recurrent.cell;
    tsr_status status = make(r, &found);
    if (status == TSR_OK && !found)
        status = tsri_cuda_decline(d);
    if (status == TSR_OK)
        *out_kernel = &r->base.base;
    else
        r->base.base.destroy(&r->base.base);
    return status;
}

tsr_status tsri_lt_recurrent(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return create(mem, d, out_kernel);
}

tsr_status tsri_lt_recurrent_dx(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return create(mem, d, out_kernel);
}
