/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dense and grouped convolutions of channels-last images by cuDNN; depthwise ones have kernels of
 * their own. Plans hold weights row-major, which cuDNN takes: its engines transpose them first.
 * Where it would transpose x and y instead, w is turned around its call.
 */
#include "kernels/cuda/library/dnn.h"
#include "kernels/cuda/inside.h"

#include <stdio.h>

typedef struct conv {
    tsri_cuda_kernel kernel;
    const tsri_dnn_plan *plan;
    tsri_move turn;    /* w into the plan's order, or dw out of it; ndim 0: it lies so */
    size_t w_bytes;    /* of the turned one, in front of the workspace */
    int64_t bias_from; /* channels; 0: no bias */
} conv;

static tsr_status turn(const conv *c, void *dst, const void *src)
{
    tsri_move move = c->turn;
    move.src = &src;
    move.dst = dst;
    return tsri_cuda_move(&move, c->kernel.stream);
}

static tsr_status run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const conv *c = (const conv *)k;
    const bool dx = k->desc.op == TSRI_OP_CONV2D_DX, dw = k->desc.op == TSRI_OP_CONV2D_DW;
    void *x = dx ? out[0] : in[0], *y = dx ? in[0] : dw ? in[1] : out[0], *w = dw ? out[0] : in[1];
    char *room = tsri_workspace_in(scratch);
    void *turned = c->turn.ndim ? room : w;
    cudnnHandle_t handle;
    TSRI_TRY(tsri_dnn_handle(k->device, k->stream, &handle));
    if (turned != w && !dw)
        TSRI_TRY(turn(c, turned, w));
    TSRI_TRY(tsri_dnn_execute(handle, c->plan, x, turned, y, room + c->w_bytes));
    if (turned != w && dw)
        TSRI_TRY(turn(c, w, turned));
    if (c->bias_from)
        tsri_dnn_add_bias(k->desc.out[0].dtype, tsri_cuda_count(&k->desc.out[0]), c->bias_from, y,
                          in[2], k->stream);
    return tsri_cuda_launched(k);
}

/* --- making ----------------------------------------------------------------------------------- */
/* The operands by role, whatever the op. */
typedef struct roles {
    const tsri_arg *x, *w, *y;
} roles;

static roles roles_of(const tsri_kernel_desc *d)
{
    switch (d->op) {
    case TSRI_OP_CONV2D:
        return (roles){&d->in[0], &d->in[1], &d->out[0]};
    case TSRI_OP_CONV2D_DX:
        return (roles){&d->out[0], &d->in[1], &d->in[0]};
    default:
        return (roles){&d->in[0], &d->out[0], &d->in[1]};
    }
}

static bool takes(const tsri_kernel_desc *d, const roles *r)
{
    tsr_dtype dtype = r->x->dtype;
    if (!d->stream || (dtype != TSR_F32 && dtype != TSR_F16 && dtype != TSR_BF16))
        return false;
    for (int i = 0; i < d->nin; i++)
        if (d->in[i].dtype != dtype || tsri_cuda_count(&d->in[i]) == 0)
            return false;
    if (d->out[0].dtype != dtype || tsri_cuda_count(&d->out[0]) == 0)
        return false;
    if (d->groups > 1 && r->w->shape[1] == 1)
        return false; /* depthwise */
    return tsri_cuda_is_nhwc(r->x) && tsri_cuda_is_nhwc(r->y) &&
           (tsri_cuda_is_nhwc(r->w) || tsri_cuda_is_row(r->w));
}

static tsri_dnn_conv describe(const tsri_kernel_desc *d, const roles *r)
{
    tsri_dnn_conv c = {.op = d->op, .dtype = r->x->dtype, .w_last = tsri_cuda_is_nhwc(r->w)};
    for (int i = 0; i < 4; i++) {
        c.x[i] = r->x->shape[i];
        c.w[i] = r->w->shape[i];
        c.y[i] = r->y->shape[i];
    }
    for (int i = 0; i < 2; i++) {
        c.stride[i] = d->attrs->conv.stride[i];
        c.pad[i] = d->attrs->conv.pad[i];
        c.dilation[i] = d->attrs->conv.dilation[i];
    }
    return c;
}

/* Row-major weights <-> channels last. */
static tsri_move turn_of(const tsri_arg *w, bool back)
{
    const int64_t c = w->shape[1], kh = w->shape[2], kw = w->shape[3];
    const int64_t row[4] = {c * kh * kw, kh * kw, kw, 1}, last[4] = {c * kh * kw, 1, kw * c, c};
    tsri_move m = {.dtype = w->dtype, .ndim = 4, .nsrc = 1};
    for (int i = 0; i < 4; i++) {
        m.length[i] = w->shape[i];
        m.src_step[i] = back ? last[i] : row[i];
        m.dst_step[i] = back ? row[i] : last[i];
    }
    return m;
}

/*
 * A workspace is mostly room for operands in another order, so its size tells what a plan moves
 * besides its work. Where the plan for weights as they lie needs more of it than the other and
 * their copy do, x or y would be transposed on account of w: w is turned instead.
 */
static tsr_status choose(conv *k, const tsri_kernel_desc *d, const roles *r)
{
    tsri_dnn_conv shape = describe(d, r);
    const tsri_dnn_plan *as_is = NULL, *last = NULL;
    const size_t bytes = (size_t)tsri_cuda_count(r->w) * tsr_dtype_size(r->w->dtype);
    tsr_status status = tsri_dnn_find(k->kernel.device, &shape, &as_is);
    k->plan = as_is;
    if (status != TSR_OK && status != TSR_ERR_UNSUPPORTED)
        return status;
    if (!shape.w_last) {
        shape.w_last = true;
        if (tsri_dnn_find(k->kernel.device, &shape, &last) == TSR_OK &&
            (!as_is || last->workspace + bytes < as_is->workspace)) {
            k->plan = last;
            k->turn = turn_of(r->w, d->op == TSRI_OP_CONV2D_DW);
            k->w_bytes = tsri_workspace_aligned(bytes);
        }
    }
    if (!k->plan)
        return TSR_ERR_UNSUPPORTED;
    k->kernel.base.scratch_bytes = tsri_workspace_scratch(k->w_bytes + k->plan->workspace);
    tsri_error_clear();
    return TSR_OK;
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const roles r = roles_of(desc);
    if (!takes(desc, &r))
        return tsri_cuda_decline(desc);
    conv *k = tsri_cuda_make(mem, desc, run, "cudnn", sizeof *k);
    TSRI_NEED(k);
    tsr_status status = choose(k, desc, &r);
    if (status != TSR_OK) {
        tsri_mem_free(k);
        return status;
    }
    k->bias_from = desc->nin > 2 ? r.y->shape[1] : 0;
    *out_kernel = &k->kernel.base;
    return TSR_OK;
}

/* Before cuBLASLt, which takes most of what this does. */
const tsri_kernels tsri_kernels_cudnn_attention = {
    .size = sizeof tsri_kernels_cudnn_attention,
    .name = "cudnn-attention",
    .slot = {[TSRI_OP_FLASH_ATTENTION] = tsri_dnn_flash_attention,
             [TSRI_OP_FLASH_ATTENTION_DX] = tsri_dnn_flash_attention},
};

const tsri_kernels tsri_kernels_cudnn = {
    .size = sizeof tsri_kernels_cudnn,
    .name = "cudnn",
    .call = tsri_cuda_create_on_gpu,
    .slot = {[TSRI_OP_CONV2D] = create, [TSRI_OP_CONV2D_DX] = create, [TSRI_OP_CONV2D_DW] = create},
};

const char *tsri_dnn_version(void)
{
    static char text[32];
    size_t v = cudnnGetVersion();
    snprintf(text, sizeof text, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    return text;
}
