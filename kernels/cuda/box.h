/* SPDX-License-Identifier: Apache-2.0 */
/* Moving boxes of elements by their size (move.cu): what movement kernels and collectives share. */
#ifndef TESSERA_KERNELS_CUDA_BOX_H
#define TESSERA_KERNELS_CUDA_BOX_H

#include "kernels/cuda/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where a box is read and written. to, from: the elements at which it begins. */
typedef struct tsri_cuda_box {
    tsri_cuda_walk walk; /* of the destination and of the source */
    int64_t to, from;
    size_t size; /* of an element: 1, 2, 4 or 8 bytes */
} tsri_cuda_box;

void tsri_cuda_box_init(tsri_cuda_box *box, tsr_dtype dtype, int ndim, const int64_t *shape,
                        const int64_t *dst_stride, const int64_t *src_stride);
/* Copies it; both may be NULL if it is empty. Chooses, by shape and alignment, a plain copy, a
 * transpose by tiles, or elements that are as wide as can be. */
tsr_status tsri_cuda_box_run(const tsri_cuda_box *box, void *dst, const void *src,
                             cudaStream_t stream);

/* Makes elements wider, up to 16 bytes, where the innermost axis of the walk's first `nops`
 * operands allows it: the walk counts the wide elements then, and so do the strides of those
 * operands. `address`: the bits that any of their addresses has. Returns how many elements of
 * `size` bytes are one now. */
int tsri_cuda_walk_widen(tsri_cuda_walk *w, int nops, size_t size, uintptr_t address);

/* `count` elements of dst become the one at `value` (on the host). */
tsr_status tsri_cuda_fill_with(void *dst, size_t size, const void *value, int64_t count,
                               cudaStream_t stream);
/* The element that a value is in a dtype, converted as cast does. */
uint64_t tsri_cuda_element(tsr_dtype dtype, double value);

#ifdef __cplusplus
}
#endif
#endif
