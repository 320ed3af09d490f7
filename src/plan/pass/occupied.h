/* SPDX-License-Identifier: Apache-2.0 */
/* The memory plan's record of which bytes of a block are taken at which times. */
#ifndef TESSERA_PLAN_OCCUPIED_H
#define TESSERA_PLAN_OCCUPIED_H

#include "src/core/mem.h"

/* Bytes from..to, without the last. */
typedef struct tsri_extent {
    size_t from, to;
} tsri_extent;

/* Bytes in ascending order; those that touch are one extent. */
typedef struct tsri_extents {
    tsri_extent *item;
    int n, capacity;
} tsri_extents;

/* A span of times, in a binary tree over all times. */
typedef struct tsri_span {
    tsri_extents through; /* taken during the whole span by what is kept at it */
    tsri_extents ever;    /* taken at some time of the span */
} tsri_span;

/* Node 1 is the root, 2 i and 2 i + 1 are the halves of node i, and the leaf of time t is at
 * times + t. */
typedef struct tsri_occupied {
    tsri_pool *pool;
    tsri_span *span;
    int times; /* a power of two */
} tsri_occupied;

/* All bytes are free at the times 0..times-1. The pool keeps what is needed. */
tsr_status tsri_occupied_init(tsri_occupied *o, tsri_pool *pool, int times);
/* Returns the lowest offset from which `bytes` are free from time `first` to `last`. */
size_t tsri_occupied_lowest(const tsri_occupied *o, int first, int last, size_t bytes);
/* Takes `bytes`, more than 0, from an offset at these times. */
tsr_status tsri_occupied_take(tsri_occupied *o, int first, int last, size_t offset, size_t bytes);

#endif
