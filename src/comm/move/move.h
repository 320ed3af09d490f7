/* SPDX-License-Identifier: Apache-2.0 */
/* Moving boxes of elements between dense arrays of the host: walk.c works out how to go
 * through them, run.c does it, and strided.c, reduce.c and copy.c have the inner loops. */
#ifndef TESSERA_COMM_MOVE_MOVE_H
#define TESSERA_COMM_MOVE_MOVE_H

#include "src/comm/comm.h"
#include "src/core/cpu.h"

/* Sources of a reduction, at most. */
enum { TSRI_MOST_SOURCES = 256 };

/* The part of a dense row-major array that one side holds. */
typedef struct tsri_box {
    int64_t offset[TSR_MAX_NDIM], length[TSR_MAX_NDIM];
} tsri_box;

/* Piece i of n along `axis`; the whole for -1. */
tsri_box tsri_box_piece(tsr_dims shape, int axis, int n, int i);
int64_t tsri_box_count(tsr_dims shape, const tsri_box *box);

/* How to go through the elements that a source box and a destination box share. */
typedef struct tsri_walk {
    int nloop; /* around the run; outermost last */
    int64_t length[TSR_MAX_NDIM], src_step[TSR_MAX_NDIM], dst_step[TSR_MAX_NDIM]; /* elements */
    int64_t src_at, dst_at, rows, run;
} tsri_walk;

/* rows * run is 0 if the boxes do not meet. */
tsri_walk tsri_walk_of(tsr_dims shape, const tsri_box *src, const tsri_box *dst);
/* `length` elements at `offset` on both sides. */
tsri_walk tsri_walk_flat(int64_t offset, int64_t length);
/* The box of a pull: axes in the order of dst's strides, joined where both sides allow it. */
tsri_walk tsri_walk_pull(const tsri_pull *pull);
/* The axes of a walk, outermost first, with its run as the last; returns how many. */
int tsri_walk_axes(const tsri_walk *w, int64_t *length, int64_t *src_step, int64_t *dst_step);
/* Copies (nsrc 1), or reduces in the order of src[], with up to `threads` threads. dst overlaps no
 * source, but may be the one of a copy whose two boxes are the same. */
void tsri_walk_run(const tsri_walk *w, tsr_dtype dtype, tsr_reduce_op op, int nsrc,
                   const char *const *src, char *dst, int threads);

/* dst[i] = src[0][at + i] op src[1][at + i] op ..., i < count. */
typedef void tsri_reduce_fn(char *dst, const char *const *src, int64_t at, int nsrc, int64_t count);
tsri_reduce_fn *tsri_reduce_of(tsr_dtype dtype, tsr_reduce_op op);
/* The one that is compiled for `isa`, which this machine must have; all give the same bits. */
tsri_reduce_fn *tsri_reduce_with(tsri_cpu_isa isa, tsr_dtype dtype, tsr_reduce_op op);

/* memcpy, of no or more bytes. */
void tsri_copy(void *dst, const void *src, size_t bytes);
/* Copies to where a peer has read, or will. Memory so copied may be shown after
 * tsri_stream_end. */
void tsri_copy_stream(void *dst, const void *src, size_t bytes);
void tsri_stream_end(void);
/* Begins to load what will be read soon. */
void tsri_prefetch(const void *p, size_t bytes);
void tsri_prefetch_to_write(const void *p, size_t bytes);

/* `count` elements, of `element` bytes, at steps. */
void tsri_copy_strided(size_t element, const char *src, int64_t src_step, char *dst,
                       int64_t dst_step, int64_t count);
/* dst[i * dst_step] = src[0][at + i * src_step] op ... nsrc is at most TSRI_MOST_SOURCES. */
void tsri_reduce_strided(tsri_reduce_fn *reduce, size_t element, int nsrc, const char *const *src,
                         int64_t at, int64_t src_step, char *dst, int64_t dst_step, int64_t count);

#endif
