/* SPDX-License-Identifier: Apache-2.0 */
/* One rank's reads in a step of a conversion. */
#ifndef TESSERA_SBP_ROUTE_PIECES_H
#define TESSERA_SBP_ROUTE_PIECES_H

#include "sbp/route/step.h"
#include "src/core/mem.h"

/* A piece that one rank reads in a step: boxes of its new part (in global coordinates), each from
 * one rank that has it, or reduced over several. */
typedef struct tsri_piece {
    int64_t offset[TSR_MAX_NDIM], length[TSR_MAX_NDIM];
    int64_t part_offset[TSR_MAX_NDIM],
        part_length[TSR_MAX_NDIM]; /* the sources' part that it is in */
    int nsrc;
    int *src; /* world ranks in the order of reduction; the reader may be one of them */
} tsri_piece;

/*
 * The pieces of world rank `rank` in a step of a route between q->from and q->to (whose layouts the
 * step's replace), in the pool. *out_fill: elements of the new part that no piece covers are the
 * identity of step->op. Local steps have pieces too: their one source is the rank itself. A rank
 * outside the step's destination mesh has none.
 */
tsr_status tsri_step_pieces(tsri_pool *pool, const tsri_route_query *q, const tsri_route_step *step,
                            int rank, int *out_n, tsri_piece **out_pieces, bool *out_fill);
/* Bytes that world rank `rank` reads from peers in a step; what is executed. A two-phase
 * all-reduce's are those of its two phases over the flat balanced split of the part. */
int64_t tsri_step_bytes(const tsri_route_query *q, const tsri_route_step *step, int rank);
/* The ranks that take part in a step together with world rank `rank`, in an order that all of them
 * agree on: those of the mesh that differ from it in `dims` alone, row-major; where it crosses, the
 * source's ranks and then the destination's others. out[] has room for all ranks of both meshes.
 * Returns how many; 0 if the rank takes no part. */
int tsri_step_group(const tsri_route_query *q, const tsri_route_step *step, int rank, int *out);

#endif
