/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work on scores between the products of attention (attention.cu): a block of scores, which a
 * product left in scratch, becomes weights, or weights and slopes, of the operands' dtype, each row
 * in the bytes in which its scores were. Scores are f64 for f64, else f32.
 */
#ifndef TESSERA_KERNELS_CUDA_ATTENTION_H
#define TESSERA_KERNELS_CUDA_ATTENTION_H

#include "kernels/cuda/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Steps, in elements, from one sample, head, row and column to the next; 0 where they are shared.
 */
typedef struct tsri_matrices {
    const void *at; /* NULL: there are none */
    int64_t step[4];
} tsri_matrices;

/* Blocks of scores: of each of `heads` heads, queries first, first + 1, ... first + rows - 1 and
 * keys 0 to keys - 1. Head i of the block is head (number + i * number_step) % of_sample of sample
 * (number + i * number_step) / of_sample. */
typedef struct tsri_scores {
    tsr_dtype dtype;
    int64_t heads, rows, keys, first;
    int64_t number, number_step, of_sample;
    int64_t ahead; /* query i sees keys up to i + ahead */
    tsri_matrices mask;
    void *scores, *slopes; /* slopes: dy v^T */
    int64_t pitch;         /* tsri_scores_pitch(keys) */
    /* Forward writes lse, unless it is NULL, and does not use y and dy; backward reads all three,
     * and sums y dy over the features. The last step of lse is not used. */
    tsri_matrices lse, y, dy;
    int64_t features;
} tsri_scores;

/* Elements from one row of scores to the next: a multiple of 32 bytes. */
static inline int64_t tsri_scores_pitch(int64_t keys)
{
    return (keys + 7) / 8 * 8;
}

/* scores -> weights; writes lse. */
void tsri_scores_forward(const tsri_scores *s, cudaStream_t stream);
/* scores, slopes -> weights, weights (slopes - sum of y dy) */
void tsri_scores_backward(const tsri_scores *s, cudaStream_t stream);

/* `heads` matrices (rows,cols) from one place to another, dtypes each of its own; with only_finite
 * infinities and NaN become 0. Step 0 is not used, step 1 goes from matrix to matrix. */
typedef struct tsri_rows_copy {
    tsr_dtype from, to;
    int64_t heads, rows, cols;
    const void *src;
    void *dst;
    int64_t src_step[4], dst_step[4];
    bool only_finite;
} tsri_rows_copy;

void tsri_scores_copy(const tsri_rows_copy *c, cudaStream_t stream);

/* Copies n halves, a multiple of 8, between buffers aligned to 16 bytes; NaN become 0. */
void tsri_halves_without_nan(tsr_dtype dtype, int64_t n, const void *src, void *dst,
                             cudaStream_t stream);

/* lt_attention.c. The bytes that scores may take at a time: TESSERA_CUDA_SCORES. */
tsr_status tsri_scores_cap(int64_t *out_bytes);

#ifdef __cplusplus
}
#endif
#endif
