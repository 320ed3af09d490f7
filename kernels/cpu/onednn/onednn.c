/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/onednn/onednn.h"

#include "kernels/cpu/fast/fast.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <string.h>

/* The operands of a convolution, by role. */
enum { X = 0, Y, WEIGHTS, BIAS, ROLES };

typedef struct conv {
    tsri_kernel base;
    tsri_op_kind op;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t main, reorder; /* reorder NULL: the master's order suits */
    dnnl_memory_t role[ROLES];      /* as the convolution sees them */
    dnnl_memory_t master;           /* weights row-major */
    dnnl_memory_t pad[2];           /* scratchpads of main, reorder */
    size_t weights_bytes, pad_bytes;
} conv;

/* State that creation needs and the kernel does not. */
typedef struct plan {
    const tsri_kernel_desc *desc;
    tsri_fast_conv c;
    dnnl_memory_desc_t x, y, weights, master, bias;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t forward, main, reorder;
} plan;

static tsr_status check(dnnl_status_t s, const char *what)
{
    switch (s) {
    case dnnl_success:
        return TSR_OK;
    case dnnl_out_of_memory:
        return tsri_fail(TSR_ERR_NO_MEMORY, "oneDNN: %s: no memory", what);
    case dnnl_unimplemented:
    case dnnl_invalid_arguments:
        return tsri_fail(TSR_ERR_UNSUPPORTED, "oneDNN: %s: not for these operands", what);
    default:
        return tsri_fail(TSR_ERR_INTERNAL, "oneDNN: %s: status %d", what, (int)s);
    }
}

#define DNNL(call) TSRI_TRY(check((call), #call))

static tsr_status describe(plan *p)
{
    const tsri_fast_conv *c = &p->c;
    const dnnl_dims_t x = {c->n, c->ci, c->in[0], c->in[1]};
    const dnnl_dims_t y = {c->n, c->co, c->out[0], c->out[1]};
    const dnnl_dims_t w = {c->co, c->ci, c->kernel[0], c->kernel[1]};
    const dnnl_dims_t wg = {c->groups, c->co / c->groups, c->ci / c->groups, c->kernel[0],
                            c->kernel[1]};
    const dnnl_dims_t b = {c->co};
    const bool grouped = c->groups > 1;
    DNNL(dnnl_memory_desc_init_by_tag(&p->x, 4, x, dnnl_f32, dnnl_nhwc));
    DNNL(dnnl_memory_desc_init_by_tag(&p->y, 4, y, dnnl_f32, dnnl_nhwc));
    DNNL(dnnl_memory_desc_init_by_tag(&p->weights, grouped ? 5 : 4, grouped ? wg : w, dnnl_f32,
                                      dnnl_format_tag_any));
    DNNL(dnnl_memory_desc_init_by_tag(&p->master, grouped ? 5 : 4, grouped ? wg : w, dnnl_f32,
                                      grouped ? dnnl_goihw : dnnl_oihw));
    DNNL(dnnl_memory_desc_init_by_tag(&p->bias, 1, b, dnnl_f32, dnnl_x));
    DNNL(dnnl_primitive_attr_create(&p->attr));
    DNNL(dnnl_primitive_attr_set_scratchpad_mode(p->attr, dnnl_scratchpad_mode_user));
    return TSR_OK;
}

static tsr_status choose(plan *p, dnnl_engine_t engine)
{
    const tsri_fast_conv *c = &p->c;
    const dnnl_dims_t stride = {c->stride[0], c->stride[1]}, pad = {c->pad[0], c->pad[1]};
    const dnnl_dims_t dilate = {c->dilation[0] - 1, c->dilation[1] - 1};
    const bool bias = p->desc->op == TSRI_OP_CONV2D && c->bias;
    dnnl_convolution_desc_t d;
    DNNL(dnnl_dilated_convolution_forward_desc_init(
        &d, dnnl_forward_training, dnnl_convolution_direct, &p->x, &p->weights,
        bias ? &p->bias : NULL, &p->y, stride, dilate, pad, pad));
    DNNL(dnnl_primitive_desc_create(&p->forward, &d, p->attr, engine, NULL));
    if (p->desc->op == TSRI_OP_CONV2D)
        return TSR_OK;
    if (p->desc->op == TSRI_OP_CONV2D_DX)
        DNNL(dnnl_dilated_convolution_backward_data_desc_init(
            &d, dnnl_convolution_direct, &p->x, &p->weights, &p->y, stride, dilate, pad, pad));
    else
        DNNL(dnnl_dilated_convolution_backward_weights_desc_init(&d, dnnl_convolution_direct, &p->x,
                                                                 &p->weights, NULL, &p->y, stride,
                                                                 dilate, pad, pad));
    DNNL(dnnl_primitive_desc_create(&p->main, &d, p->attr, engine, p->forward));
    return TSR_OK;
}

static dnnl_primitive_desc_t chosen(const plan *p)
{
    return p->desc->op == TSRI_OP_CONV2D ? p->forward : p->main;
}

/* oneDNN's fallbacks are slower by an order of magnitude than the fast kernels. */
static bool is_slow(const plan *p)
{
    const char *impl = "";
    dnnl_primitive_desc_query(chosen(p), dnnl_query_impl_info_str, 0, &impl);
    return !strncmp(impl, "ref", 3);
}

static size_t pad_of(dnnl_primitive_desc_t pd, const dnnl_memory_desc_t **out_md)
{
    *out_md = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    return *out_md ? dnnl_memory_desc_get_size(*out_md) : 0;
}

static tsr_status make_memory(conv *k, const dnnl_memory_desc_t *md, dnnl_memory_t *out)
{
    DNNL(dnnl_memory_create(out, md, k->engine, DNNL_MEMORY_NONE));
    return TSR_OK;
}

/* The master's weights <-> the convolution's. */
static tsr_status prepare_reorder(conv *k, plan *p, const dnnl_memory_desc_t *weights)
{
    const bool dw = k->op == TSRI_OP_CONV2D_DW;
    TSRI_TRY(make_memory(k, weights, &k->role[WEIGHTS]));
    if (dnnl_memory_desc_equal(weights, &p->master))
        return TSR_OK;
    k->weights_bytes = tsri_fast_align(dnnl_memory_desc_get_size(weights));
    TSRI_TRY(make_memory(k, &p->master, &k->master));
    DNNL(dnnl_reorder_primitive_desc_create(&p->reorder, dw ? weights : &p->master, k->engine,
                                            dw ? &p->master : weights, k->engine, p->attr));
    DNNL(dnnl_primitive_create(&k->reorder, p->reorder));
    return TSR_OK;
}

static tsr_status prepare(conv *k, plan *p)
{
    dnnl_primitive_desc_t pd = chosen(p);
    const dnnl_query_t which =
        k->op == TSRI_OP_CONV2D_DW ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    const dnnl_memory_desc_t *pad[2] = {NULL, NULL};
    size_t reorder_pad = 0;
    DNNL(dnnl_primitive_create(&k->main, pd));
    TSRI_TRY(make_memory(k, &p->x, &k->role[X]));
    TSRI_TRY(make_memory(k, &p->y, &k->role[Y]));
    if (p->c.bias)
        TSRI_TRY(make_memory(k, &p->bias, &k->role[BIAS]));
    TSRI_TRY(prepare_reorder(k, p, dnnl_primitive_desc_query_md(pd, which, 0)));
    k->pad_bytes = pad_of(pd, &pad[0]);
    if (k->reorder)
        reorder_pad = pad_of(p->reorder, &pad[1]);
    for (int i = 0; i < 2; i++)
        if (pad[i])
            TSRI_TRY(make_memory(k, pad[i], &k->pad[i]));
    k->pad_bytes = tsri_fast_align(k->pad_bytes > reorder_pad ? k->pad_bytes : reorder_pad);
    k->base.scratch_bytes = k->weights_bytes + k->pad_bytes;
    return TSR_OK;
}

static void plan_finish(plan *p)
{
    if (p->reorder)
        dnnl_primitive_desc_destroy(p->reorder);
    if (p->main)
        dnnl_primitive_desc_destroy(p->main);
    if (p->forward)
        dnnl_primitive_desc_destroy(p->forward);
    if (p->attr)
        dnnl_primitive_attr_destroy(p->attr);
}

static void conv_destroy(tsri_kernel *kernel)
{
    conv *k = (conv *)(void *)kernel;
    for (int i = 0; i < ROLES; i++)
        if (k->role[i])
            dnnl_memory_destroy(k->role[i]);
    for (int i = 0; i < 2; i++)
        if (k->pad[i])
            dnnl_memory_destroy(k->pad[i]);
    if (k->master)
        dnnl_memory_destroy(k->master);
    if (k->main)
        dnnl_primitive_destroy(k->main);
    if (k->reorder)
        dnnl_primitive_destroy(k->reorder);
    if (k->stream)
        dnnl_stream_destroy(k->stream);
    if (k->engine)
        dnnl_engine_destroy(k->engine);
    tsri_mem_free(k);
}

static tsr_status run_reorder(const conv *k, dnnl_memory_t from, dnnl_memory_t to, void *pad)
{
    dnnl_exec_arg_t args[3] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    int n = 2;
    if (k->pad[1]) {
        DNNL(dnnl_memory_set_data_handle(k->pad[1], pad));
        args[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, k->pad[1]};
    }
    DNNL(dnnl_primitive_execute(k->reorder, k->stream, n, args));
    return TSR_OK;
}

static tsr_status run_main(const conv *k, void *pad)
{
    const bool dx = k->op == TSRI_OP_CONV2D_DX, dw = k->op == TSRI_OP_CONV2D_DW;
    dnnl_exec_arg_t args[5] = {
        {dx ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, k->role[X]},
        {k->op == TSRI_OP_CONV2D ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, k->role[Y]},
        {dw ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, k->role[WEIGHTS]},
    };
    int n = 3;
    if (k->role[BIAS])
        args[n++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, k->role[BIAS]};
    if (k->pad[0]) {
        DNNL(dnnl_memory_set_data_handle(k->pad[0], pad));
        args[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, k->pad[0]};
    }
    DNNL(dnnl_primitive_execute(k->main, k->stream, n, args));
    return TSR_OK;
}

static tsr_status conv_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                           void *scratch)
{
    const conv *k = (const conv *)(const void *)kernel;
    const bool dx = k->op == TSRI_OP_CONV2D_DX, dw = k->op == TSRI_OP_CONV2D_DW;
    void *pad = (char *)scratch + k->weights_bytes, *master = dw ? out[0] : in[1];
    DNNL(dnnl_memory_set_data_handle(k->role[X], dx ? out[0] : in[0]));
    DNNL(dnnl_memory_set_data_handle(k->role[Y], dx ? in[0] : dw ? in[1] : out[0]));
    DNNL(dnnl_memory_set_data_handle(k->role[WEIGHTS], k->reorder ? scratch : master));
    if (k->role[BIAS])
        DNNL(dnnl_memory_set_data_handle(k->role[BIAS], in[2]));
    if (k->reorder)
        DNNL(dnnl_memory_set_data_handle(k->master, master));
    if (k->reorder && !dw)
        TSRI_TRY(run_reorder(k, k->master, k->role[WEIGHTS], pad));
    TSRI_TRY(run_main(k, pad));
    if (k->reorder && dw)
        TSRI_TRY(run_reorder(k, k->role[WEIGHTS], k->master, pad));
    DNNL(dnnl_stream_wait(k->stream));
    return TSR_OK;
}

static tsr_status build(conv *k, plan *p, bool *out_slow)
{
    DNNL(dnnl_engine_create(&k->engine, dnnl_cpu, 0));
    DNNL(dnnl_stream_create(&k->stream, k->engine, dnnl_stream_default_flags));
    TSRI_TRY(describe(p));
    TSRI_TRY(choose(p, k->engine));
    *out_slow = is_slow(p);
    return *out_slow ? TSR_OK : prepare(k, p);
}

static tsr_status onednn_conv(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    plan p = {.desc = desc};
    if (!tsri_fast_conv_of(desc, &p.c) || p.c.bf16)
        return tsri_fail(TSR_ERR_UNSUPPORTED, "oneDNN: %s: not for these operands",
                         tsri_op_name(desc->op));
    conv *k = tsri_mem_alloc(mem, sizeof *k);
    TSRI_NEED(k);
    bool slow = false;
    k->op = desc->op;
    k->base.run = conv_run;
    k->base.destroy = conv_destroy;
    k->base.impl = "onednn";
    tsr_status status = build(k, &p, &slow);
    plan_finish(&p);
    if (status == TSR_OK && !slow) {
        *out_kernel = &k->base;
        return TSR_OK;
    }
    conv_destroy(&k->base);
    return status == TSR_OK ? tsri_fast_direct(mem, desc, &p.c, out_kernel) : status;
}

const tsri_kernels tsri_kernels_cpu_onednn = {
    .size = sizeof(tsri_kernels),
    .name = "onednn",
    .slot =
        {
            [TSRI_OP_CONV2D] = onednn_conv,
            [TSRI_OP_CONV2D_DX] = onednn_conv,
            [TSRI_OP_CONV2D_DW] = onednn_conv,
        },
};

void tsri_onednn_version(char *buf, size_t size)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(buf, size, "%d.%d.%d", v->major, v->minor, v->patch);
}
