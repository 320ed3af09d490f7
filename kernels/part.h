/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of a part in time, for kernels. Along the cut axis the whole tensor has d k n rows, and rows
 * (i, m, j) of (d, k, n) are rows (i, j) of part m. A shard of either has some of the d blocks.
 */
#ifndef TESSERA_KERNELS_PART_H
#define TESSERA_KERNELS_PART_H

#include <string.h>

#include "kernels/kernels.h"

/* Returns n, the rows of a block of the part. */
static inline int64_t tsri_part_rows(const tsri_arg *part, int axis, int64_t blocks)
{
    return blocks > 0 ? part->gshape[axis] / blocks : 0;
}

/*
 * The memory layout of a shard of a part: `boxes` boxes of `shape`, with their strides in the part
 * and in the whole tensor. In the whole tensor, an element of part m lies `shift` * m elements
 * after the element of part 0 at the same position.
 */
typedef struct tsri_part_box {
    int ndim;
    int64_t shape[TSR_MAX_NDIM], part[TSR_MAX_NDIM], whole[TSR_MAX_NDIM];
    int64_t boxes, part_step, whole_step; /* from one box to the next */
    int64_t shift;
} tsri_part_box;

/* Returns the layout for an op PART or WHOLE. Blocks are an axis of the box, or separate boxes if
 * the tensor already has the most axes. */
static inline tsri_part_box tsri_part_box_of(const tsri_kernel_desc *d)
{
    const bool takes = d->op == TSRI_OP_PART;
    const tsri_arg *part = takes ? &d->out[0] : &d->in[0];
    const tsri_arg *whole = takes ? &d->in[0] : &d->out[0];
    const int axis = d->attrs->part.axis;
    const int64_t n = tsri_part_rows(part, axis, d->attrs->part.blocks);
    tsri_part_box b;
    memset(&b, 0, sizeof b);
    b.boxes = n ? part->shape[axis] / n : 0;
    b.shift = n * whole->stride[axis];
    b.part_step = n * part->stride[axis];
    b.whole_step = d->attrs->part.parts * b.shift;
    const bool axis_of_blocks = b.boxes > 1 && part->ndim < TSR_MAX_NDIM;
    int to = 0;
    for (int i = 0; i < part->ndim; i++, to++) {
        if (i == axis && axis_of_blocks) {
            b.shape[to] = b.boxes;
            b.part[to] = b.part_step;
            b.whole[to++] = b.whole_step;
            b.boxes = 1;
        }
        b.shape[to] = i == axis ? n : part->shape[i];
        b.part[to] = part->stride[i];
        b.whole[to] = whole->stride[i];
    }
    b.ndim = to;
    return b;
}

/* TSR_ERR_INVALID unless m is one of `parts`. */
static inline tsr_status tsri_part_check(tsri_op_kind op, int32_t parts, int64_t m)
{
    if (m >= 0 && m < parts)
        return TSR_OK;
    return tsri_fail(TSR_ERR_INVALID, "%s: part %lld of %d", tsri_op_name(op), (long long)m, parts);
}

/* --- dropout: indices in the whole tensor ----------------------------------------------------- */

/* Returns the number of row-major elements of the part's global tensor that are also consecutive in
 * the whole tensor: one block's elements at fixed positions on the outer axes. */
static inline int64_t tsri_part_run(const tsri_kernel_desc *d)
{
    const tsri_arg *y = &d->out[0];
    const int axis = d->attrs->dropout.axis;
    int64_t run = tsri_part_rows(y, axis, d->attrs->dropout.blocks);
    for (int i = axis + 1; i < y->ndim; i++)
        run *= y->gshape[i];
    return run;
}

/* Returns the index in the whole tensor of element `index` of part m; run: of tsri_part_run. */
#ifdef __CUDACC__
__host__ __device__
#endif
    static inline int64_t
    tsri_part_index(int64_t index, int64_t run, int64_t parts, int64_t m)
{
    return index + (index / run * (parts - 1) + m) * run;
}

/* Changes y from a shard of a part to the shard of the whole tensor that part 0 corresponds to.
 * Returns false if its rows belong to several blocks: then no single shard corresponds. In the
 * whole tensor, an element of part m has an index *out_shift * m higher than the element of part 0.
 */
static inline bool tsri_part_place(const tsri_kernel_desc *d, tsri_arg *y, int64_t *out_shift)
{
    const int axis = d->attrs->dropout.axis;
    const int64_t n = tsri_part_rows(y, axis, d->attrs->dropout.blocks);
    const int64_t first = y->offset[axis], last = first + y->shape[axis] - 1;
    if (!n || last < first || first / n != last / n)
        return false;
    *out_shift = tsri_part_run(d);
    y->offset[axis] += first / n * n * (d->attrs->dropout.parts - 1);
    y->gshape[axis] *= d->attrs->dropout.parts;
    return true;
}

#endif
