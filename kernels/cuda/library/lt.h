/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products by cuBLASLt: lt_ops.c says which product an op is, lt.c describes it to the library and
 * runs it, lt_algo.c chooses the algorithm, lt_attention.c and lt_recurrent.c make attention and
 * recurrent layers of several products.
 */
#ifndef TESSERA_KERNELS_CUDA_LT_H
#define TESSERA_KERNELS_CUDA_LT_H

#include "kernels/cuda/library/cublaslt.h"
#include "kernels/cuda/inside.h"

/* Where element (row, term) of an operand, or (m, n) of the result, stands: steps in elements. */
typedef struct tsri_lt_steps {
    int64_t row, col, batch;
} tsri_lt_steps;

/* c[m, n] = sum over k of a[m, k] b[n, k] (+ bias[n]), `batch` times. */
typedef struct tsri_lt_product {
    int of_a, of_b; /* operands; a bias is operand 2 */
    bool bias;
    int64_t m, n, k, batch;
    tsri_lt_steps a, b, c;
} tsri_lt_product;

/* A product as cuBLASLt describes it: its operand A is our b, and its B our a, as its matrices are
 * stored by columns and ours by rows. The caller sets the first part; tsri_lt_make the rest. */
typedef struct tsri_lt_call {
    tsri_cuda_device *device;
    cudaStream_t stream;
    tsri_lt_product product; /* tsri_lt_make may exchange its sides */
    tsr_dtype dtype, result; /* of a and b; of c */
    bool tf32;               /* an f32 product may round its operands to TF32 */
    double alpha, beta;      /* c = alpha a b + beta c */
    uint32_t alignment[3];   /* bytes to which a, b and c are aligned, in all launches */

    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    size_t workspace; /* bytes */
} tsri_lt_call;

typedef struct tsri_lt_kernel {
    tsri_cuda_kernel base;
    tsri_lt_call call;
    bool spread; /* the bias is put into the result before; else the epilogue adds it */
    tsri_move bias;
} tsri_lt_kernel;

/* Alignment of the buffers of a plan, and of scratch. */
enum { TSRI_LT_ALIGNMENT = 64 };

/* lt.c. The status for a failed call of the library. */
tsr_status tsri_lt_check(cublasStatus_t status, const char *what);
#define TSRI_LT(call) TSRI_TRY(tsri_lt_check((call), #call))

/* Makes the kernel, or declines. */
tsr_status tsri_lt_create(tsri_mem *mem, const tsri_kernel_desc *desc,
                          const tsri_lt_product *product, tsri_kernel **out_kernel);
/* Describes the product and chooses its algorithm. *out_found is false where the library has none,
 * or cannot be told of the product. The caller finishes c in either case, also after an error. */
tsr_status tsri_lt_make(tsri_lt_call *c, bool *out_found);
void tsri_lt_finish(tsri_lt_call *c);
/* operands: what of_a and of_b number. workspace: of c->workspace bytes, aligned as libraries want
 * it. */
tsr_status tsri_lt_run(const tsri_lt_call *c, const void *const *operands, void *out,
                       void *workspace);
cublasStatus_t tsri_lt_launch(const tsri_lt_call *c, const cublasLtMatmulAlgo_t *algo,
                              const void *a, const void *b, void *out, void *workspace,
                              size_t bytes);

/* lt_algo.c. Fills in c->algo and workspace; *out_found is false where there is none. `bias`: the
 * epilogue adds one. */
tsr_status tsri_lt_choose(tsri_lt_call *c, bool bias, bool *out_found);

/* lt_ops.c */
tsri_kernel_create_fn tsri_lt_matmul, tsri_lt_linear, tsri_lt_linear_dx, tsri_lt_linear_dw,
    tsri_lt_conv2d, tsri_lt_conv2d_dx, tsri_lt_conv2d_dw;

/* lt_attention.c */
tsri_kernel_create_fn tsri_lt_flash_attention, tsri_lt_flash_attention_dx;

/* lt_recurrent.c */
tsri_kernel_create_fn tsri_lt_recurrent, tsri_lt_recurrent_dx;

#endif
