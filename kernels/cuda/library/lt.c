/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products by cuBLASLt: described to it, and run. */
#include "kernels/cuda/library/lt.h"

#include <stdio.h>

const tsri_kernels tsri_kernels_cublaslt = {
    .size = sizeof tsri_kernels_cublaslt,
    .name = "cublaslt",
    .call = tsri_cuda_create_on_gpu,
    .slot =
        {
            [TSRI_OP_MATMUL] = tsri_lt_matmul,
            [TSRI_OP_LINEAR] = tsri_lt_linear,
            [TSRI_OP_LINEAR_DX] = tsri_lt_linear_dx,
            [TSRI_OP_LINEAR_DW] = tsri_lt_linear_dw,
            [TSRI_OP_BATCH_MATMUL] = tsri_lt_matmul,
            [TSRI_OP_CONV2D] = tsri_lt_conv2d,
            [TSRI_OP_CONV2D_DX] = tsri_lt_conv2d_dx,
            [TSRI_OP_CONV2D_DW] = tsri_lt_conv2d_dw,
            [TSRI_OP_FLASH_ATTENTION] = tsri_lt_flash_attention,
            [TSRI_OP_FLASH_ATTENTION_DX] = tsri_lt_flash_attention_dx,
            [TSRI_OP_RECURRENT] = tsri_lt_recurrent,
            [TSRI_OP_RECURRENT_DX] = tsri_lt_recurrent_dx,
        },
};

tsr_status tsri_lt_check(cublasStatus_t status, const char *what)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return TSR_OK;
    return tsri_fail(status == CUBLAS_STATUS_ALLOC_FAILED ? TSR_ERR_NO_MEMORY : TSR_ERR_BACKEND,
                     "%s: %s (%s)", what, cublasLtGetStatusString(status),
                     cublasLtGetStatusName(status));
}

void tsri_lt_close(tsri_cuda_device *d)
{
    if (d->lt)
        cublasLtDestroy(d->lt);
    d->lt = NULL;
}

const char *tsri_lt_version(void)
{
    static char text[32];
    int version = (int)cublasLtGetVersion();
    snprintf(text, sizeof text, "%d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
    return text;
}

/* --- description ------------------------------------------------------------------------------ */
static cudaDataType_t type_of(tsr_dtype dtype)
{
    switch (dtype) {
    case TSR_F64:
        return CUDA_R_64F;
    case TSR_F16:
        return CUDA_R_16F;
    case TSR_BF16:
        return CUDA_R_16BF;
    default:
        return CUDA_R_32F;
    }
}

/* A matrix as the library has it: rows next to each other. */
typedef struct columns {
    int64_t rows, cols, ld, batch_step;
    bool transposed; /* a column is the terms of one m, or n */
} columns;

/* `count` rows (m or n) of `terms`, as an operand. False if neither has step 1. */
static bool operand_columns(int64_t count, int64_t terms, const tsri_lt_steps *s, columns *out)
{
    int64_t row = count > 1 ? s->row : terms, col = terms > 1 ? s->col : count;
    out->batch_step = s->batch;
    if ((terms == 1 || col == 1) && row >= terms) {
        out->transposed = true;
        out->rows = terms;
        out->cols = count;
        out->ld = row;
        return true;
    }
    out->transposed = false;
    out->rows = count;
    out->cols = terms;
    out->ld = col;
    return (count == 1 || row == 1) && col >= count;
}

/* The result, whose columns are our rows. */
static bool result_columns(const tsri_lt_product *p, columns *out)
{
    int64_t row = p->m > 1 ? p->c.row : p->n;
    *out = (columns){p->n, p->m, row, p->c.batch, false};
    return (p->n == 1 || p->c.col == 1) && row >= p->n;
}

static void swap_sides(tsri_lt_call *call)
{
    tsri_lt_product *p = &call->product, was = *p;
    const uint32_t alignment = call->alignment[0];
    call->alignment[0] = call->alignment[1];
    call->alignment[1] = alignment;
    p->of_a = was.of_b;
    p->of_b = was.of_a;
    p->m = was.n;
    p->n = was.m;
    p->a = was.b;
    p->b = was.a;
    p->c.row = was.c.col;
    p->c.col = was.c.row;
}

static bool is_small(const columns *c)
{
    return c->rows <= INT32_MAX && c->cols <= INT32_MAX && c->ld <= INT32_MAX;
}

static tsr_status make_layout(const columns *c, tsr_dtype dtype, int64_t batch,
                              cublasLtMatrixLayout_t *out)
{
    TSRI_LT(cublasLtMatrixLayoutCreate(out, type_of(dtype), (uint64_t)c->rows, (uint64_t)c->cols,
                                       c->ld));
    if (batch == 1)
        return TSR_OK;
    int32_t count = (int32_t)batch;
    TSRI_LT(cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                             sizeof count));
    TSRI_LT(cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                             &c->batch_step, sizeof c->batch_step));
    return TSR_OK;
}

static tsr_status set_transpose(tsri_lt_call *k, cublasLtMatmulDescAttributes_t which,
                                bool transposed)
{
    int32_t op = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    return tsri_lt_check(cublasLtMatmulDescSetAttribute(k->op, which, &op, sizeof op),
                         "cublasLtMatmulDescSetAttribute");
}

static tsr_status set_bias(const tsri_lt_call *k, const void *bias)
{
    return tsri_lt_check(cublasLtMatmulDescSetAttribute(k->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                        &bias, sizeof bias),
                         "cublasLtMatmulDescSetAttribute");
}

/* The bias along the rows of the library's result, which are our columns. Its place only matters
 * for its alignment until the kernel runs. */
static tsr_status set_epilogue(tsri_lt_call *k, bool adds_bias)
{
    uint32_t epilogue = adds_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    TSRI_LT(cublasLtMatmulDescSetAttribute(k->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                           sizeof epilogue));
    return set_bias(k, adds_bias ? (const void *)(uintptr_t)64 : NULL);
}

static tsr_status describe(tsri_lt_call *k, const columns *a, const columns *b, const columns *c)
{
    const tsr_dtype dtype = k->dtype;
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    if (dtype == TSR_F64)
        compute = CUBLAS_COMPUTE_64F;
    else if (dtype == TSR_F32 && k->tf32)
        compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    TSRI_LT(cublasLtMatmulDescCreate(&k->op, compute, dtype == TSR_F64 ? CUDA_R_64F : CUDA_R_32F));
    /* The library wants the terms of its A as columns, and those of its B as rows. */
    TSRI_TRY(set_transpose(k, CUBLASLT_MATMUL_DESC_TRANSA, a->transposed));
    TSRI_TRY(set_transpose(k, CUBLASLT_MATMUL_DESC_TRANSB, !b->transposed));
    TSRI_TRY(make_layout(a, dtype, k->product.batch, &k->a));
    TSRI_TRY(make_layout(b, dtype, k->product.batch, &k->b));
    return make_layout(c, k->result, k->product.batch, &k->c);
}

/* With the bias in the epilogue; where the library has no algorithm for that, spread over the
 * result before, to which the product is then added. */
static tsr_status choose(tsri_lt_kernel *k, bool *out_found)
{
    const tsri_lt_product *p = &k->call.product;
    *out_found = false;
    if (p->bias) {
        TSRI_TRY(set_epilogue(&k->call, true));
        TSRI_TRY(tsri_lt_choose(&k->call, true, out_found));
        if (*out_found)
            return TSR_OK;
        TSRI_TRY(set_epilogue(&k->call, false));
        k->spread = true;
        k->call.beta = 1;
        k->bias = (tsri_move){.dtype = k->base.desc.out[0].dtype,
                              .op = TSR_REDUCE_SUM,
                              .ndim = 2,
                              .length = {p->m, p->n},
                              .src_step = {0, 1},
                              .dst_step = {p->c.row, p->c.col},
                              .nsrc = 1};
    }
    return tsri_lt_choose(&k->call, false, out_found);
}

static tsr_status open_handle(tsri_cuda_device *d)
{
    cublasLtHandle_t handle;
    if (d->lt)
        return TSR_OK;
    TSRI_LT(cublasLtCreate(&handle));
    d->lt = handle;
    return TSR_OK;
}

/* Describes the product; *out_told is false where it cannot be told to the library. */
static tsr_status describe_product(tsri_lt_call *k, bool *out_told)
{
    const tsri_lt_product *p = &k->product;
    columns a, b, c;
    /* By columns itself: the same product with its sides exchanged, which a bias can't be. */
    if (!result_columns(p, &c) && !p->bias)
        swap_sides(k);
    *out_told = p->batch <= INT32_MAX && result_columns(p, &c) &&
                operand_columns(p->n, p->k, &p->b, &a) && operand_columns(p->m, p->k, &p->a, &b) &&
                is_small(&a) && is_small(&b) && is_small(&c);
    if (!*out_told)
        return TSR_OK;
    TSRI_TRY(open_handle(k->device));
    return describe(k, &a, &b, &c);
}

/* --- calls ------------------------------------------------------------------------------------ */
tsr_status tsri_lt_make(tsri_lt_call *c, bool *out_found)
{
    TSRI_TRY(describe_product(c, out_found));
    return *out_found ? tsri_lt_choose(c, false, out_found) : TSR_OK;
}

void tsri_lt_finish(tsri_lt_call *c)
{
    cublasLtMatrixLayout_t layouts[] = {c->a, c->b, c->c};
    for (int i = 0; i < 3; i++)
        if (layouts[i])
            cublasLtMatrixLayoutDestroy(layouts[i]);
    if (c->op)
        cublasLtMatmulDescDestroy(c->op);
}

cublasStatus_t tsri_lt_launch(const tsri_lt_call *c, const cublasLtMatmulAlgo_t *algo,
                              const void *a, const void *b, void *out, void *workspace,
                              size_t bytes)
{
    const float alpha = (float)c->alpha, beta = (float)c->beta;
    bool is64 = c->dtype == TSR_F64;
    return cublasLtMatmul(c->device->lt, c->op, is64 ? (const void *)&c->alpha : &alpha, b, c->a, a,
                          c->b, is64 ? (const void *)&c->beta : &beta, out, c->c, out, c->c, algo,
                          bytes ? workspace : NULL, bytes, c->stream);
}

tsr_status tsri_lt_run(const tsri_lt_call *c, const void *const *operands, void *out,
                       void *workspace)
{
    return tsri_lt_check(tsri_lt_launch(c, &c->algo, operands[c->product.of_a],
                                        operands[c->product.of_b], out, workspace, c->workspace),
                         "cublasLtMatmul");
}

/* --- kernels ---------------------------------------------------------------------------------- */

static tsr_status lt_run(const tsri_cuda_kernel *base, void *const *in, void *const *out,
                         void *scratch)
{
    const tsri_lt_kernel *k = (const tsri_lt_kernel *)base;
    const tsri_lt_product *p = &k->call.product;
    if (p->bias && k->spread) {
        const void *src = in[2];
        tsri_move move = k->bias;
        move.src = &src;
        move.dst = out[0];
        TSRI_TRY(tsri_cuda_move(&move, base->stream));
    } else if (p->bias) {
        TSRI_TRY(set_bias(&k->call, in[2]));
    }
    TSRI_TRY(tsri_lt_run(&k->call, (const void *const *)in, out[0], tsri_workspace_in(scratch)));
    return tsri_cuda_launched(base);
}

static void lt_finish(tsri_cuda_kernel *base)
{
    tsri_lt_finish(&((tsri_lt_kernel *)base)->call);
}

/* Convolutions of 1x1 are products here, but take the convolutions' switch. */
static bool takes_tf32(const tsri_cuda_kernel *k)
{
    switch (k->desc.op) {
    case TSRI_OP_CONV2D:
    case TSRI_OP_CONV2D_DX:
    case TSRI_OP_CONV2D_DW:
        return k->device->tf32_conv;
    default:
        return k->device->tf32;
    }
}

tsr_status tsri_lt_create(tsri_mem *mem, const tsri_kernel_desc *desc,
                          const tsri_lt_product *product, tsri_kernel **out_kernel)
{
    if (!desc->stream)
        return tsri_cuda_decline(desc);
    tsri_lt_kernel *k = tsri_cuda_make(mem, desc, lt_run, "cublaslt", sizeof *k);
    TSRI_NEED(k);
    bool found = false;
    const tsr_dtype dtype = desc->out[0].dtype;
    k->call =
        (tsri_lt_call){.device = k->base.device,
                       .stream = k->base.stream,
                       .product = *product,
                       .dtype = dtype,
                       .result = dtype,
                       .tf32 = takes_tf32(&k->base),
                       .alpha = 1,
                       .alignment = {TSRI_LT_ALIGNMENT, TSRI_LT_ALIGNMENT, TSRI_LT_ALIGNMENT}};
    k->base.finish = lt_finish;
    tsr_status status = describe_product(&k->call, &found);
    if (status == TSR_OK && found)
        status = choose(k, &found);
    k->base.base.scratch_bytes = tsri_workspace_scratch(k->call.workspace);
    if (status == TSR_OK && !found)
        status = tsri_cuda_decline(desc);
    if (status == TSR_OK)
        *out_kernel = &k->base.base;
    else
        k->base.base.destroy(&k->base.base);
    return status;
}
