/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products by cuBLASLt, in three parts: lt_ops.c says which product an op is, lt.c describes it to
 * the library and runs it, lt_algo.c chooses the algorithm.
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

/* A kernel: what the library calls A is our b, and its B our a, as its matrices are stored by
 * columns and ours by rows. */
typedef struct tsri_lt_kernel {
    tsri_cuda_kernel base;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    size_t workspace; /* bytes */
    tsri_lt_product product;
    bool spread; /* the bias is put into the result before; else the epilogue adds it */
    tsri_move bias;
} tsri_lt_kernel;

/* lt.c. The status for a failed call of the library. */
tsr_status tsri_lt_check(cublasStatus_t status, const char *what);
#define TSRI_LT(call) TSRI_TRY(tsri_lt_check((call), #call))

/* Makes the kernel, or declines. */
tsr_status tsri_lt_create(tsri_mem *mem, const tsri_kernel_desc *desc,
                          const tsri_lt_product *product, tsri_kernel **out_kernel);
/* out = a b, plus what is in out if the kernel spreads the bias. */
cublasStatus_t tsri_lt_launch(const tsri_lt_kernel *k, const cublasLtMatmulAlgo_t *algo,
                              const void *a, const void *b, void *out, void *workspace,
                              size_t bytes);

/* lt_algo.c. Fills in k->algo, workspace and scratch_bytes; *out_found is false where there is
 * none. */
tsr_status tsri_lt_choose(tsri_lt_kernel *k, bool *out_found);

/* lt_ops.c */
tsri_kernel_create_fn tsri_lt_matmul, tsri_lt_linear, tsri_lt_linear_dx, tsri_lt_linear_dw,
    tsri_lt_conv2d, tsri_lt_conv2d_dx, tsri_lt_conv2d_dw;

#endif
