/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work between the products of a recurrent layer (recurrent.cu): of one step, all samples and
 * units. Matrices are row-major, the gates of a sample one after the other. States, cells, products
 * and gradients between steps are in scratch: f64 for f64, else f32.
 */
#ifndef TESSERA_KERNELS_CUDA_LIBRARY_RECURRENT_H
#define TESSERA_KERNELS_CUDA_LIBRARY_RECURRENT_H

#include "kernels/cuda/gpu.h"
#include "kernels/recurrent.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsri_recurrent_step {
    tsr_dtype dtype;
    tsri_cell cell;
    tsri_recurrent_sizes size;
    const void *x, *bias;    /* x: of this step; bias may be NULL */
    void *y, *cells, *gates; /* of this step; those that are not there are NULL */
    void *products, *state, *cell_state;
} tsri_recurrent_step;

/* products, state -> y and state; an LSTM's cells likewise. */
void tsri_recurrent_forward(const tsri_recurrent_step *s, cudaStream_t stream);

typedef struct tsri_recurrent_back {
    tsr_dtype dtype;
    tsri_cell cell;
    tsri_recurrent_sizes size;
    /* This step's; before: y or cells of the step before. Operands may be NULL. */
    const void *states, *before, *gates, *dy, *dc;
    void *dx, *ds;
    bool begins;  /* dh and dcell are 0 yet */
    void *slopes; /* those of the state's products, not rounded; NULL: ds or dx has them */
    void *dh, *dcell;
} tsri_recurrent_back;

/* dh, dcell -> dx and ds, and what of dh and dcell the step before gets besides products. */
void tsri_recurrent_backward(const tsri_recurrent_back *s, cudaStream_t stream);

/* Copies `count` numbers of an operand of a dtype to scratch, and from scratch to a result. */
void tsri_recurrent_load(tsr_dtype dtype, const void *from, void *to, int64_t count,
                         cudaStream_t stream);
void tsri_recurrent_store(tsr_dtype dtype, const void *from, void *to, int64_t count,
                          cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
