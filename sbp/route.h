/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boxing: how a tensor gets from one (mesh, layout) to another, as plain data, at least cost.
 *
 * A route is a list of steps. A step on one mesh changes the entries of the dimensions in `dims`
 * and talks within groups of ranks that differ in those dimensions alone:
 *
 *   kind             on each of `dims`      needs
 *   RELABEL          B -> P(max), P(min)    nothing moves
 *   SLICE            B -> S(i)              local
 *   FILL             S(i) -> P              local: own piece among the reduction's identity
 *   KEEP             B -> P(sum)            local: the first rank of the group keeps, others fill
 *   ALL_REDUCE       P -> B
 *   ALL_GATHER       S(i) -> B              the innermost splits of axis i
 *   REDUCE_SCATTER   P -> S(i)              become the innermost splits of axis i
 *   ALL_TO_ALL       S(i) -> S(j)           from the innermost of i to the innermost of j
 *   SEND_RECV        any -> S, B            straight to the destination's layout: every rank takes
 *                                           what it lacks from where it is, and reduces what is P;
 *                                           P that both have stays
 *
 * `dims` of one step share the entry that they have and the one that they get, but of the step that
 * goes straight to the destination (a SLICE if nothing has to be read). Parts are one box always.
 *
 * Between meshes there is SEND_RECV alone, from any layout to any: every rank of the destination
 * takes the pieces of its part from their nearest holders (itself first), in turns among equally
 * near ones; P sources are reduced by the reader; P destinations get each addend once. With P on
 * both sides, addend i of n goes to addend i of m modulo (of the same rank, where it is one); where
 * the source has none, the first destination addend gets all and the others the identity; kinds of
 * P do not change across. Crossings are looked for between the 256 cheapest layouts of either side,
 * which are all of up to two dimensions. One that moves nothing costs a kernel's start.
 *
 * What a step costs: the hand-shake of the farthest link that it reads over, the bytes of the
 * busiest rank over each link at that link's pace, and writing the new part. A group gives its
 * bytes evenly over its peers; where SEND_RECV brings parts that do not nest, the busiest rank is
 * taken to read all of its part over the farthest link. On a mesh that machines do not cut into
 * blocks, links are counted on at most 64 ranks.
 *
 * Search states are (mesh, layout) with P of the kinds that the ends have, over all axes longer
 * than 1 of a tensor that has up to four, else those that either end splits and the largest other.
 * A route has at most TSRI_ROUTE_MAX steps; one that crosses, five on either side.
 * Pure: plain data in and out, no allocation in tsri_route_find (but up to 800 KiB of stack for
 * four dimensions).
 */
#ifndef TESSERA_SBP_ROUTE_H
#define TESSERA_SBP_ROUTE_H

#include "sbp/cost.h"
#include "src/core/mem.h"

typedef enum tsri_box_kind {
    TSRI_BOX_RELABEL = 0,
    TSRI_BOX_SLICE,
    TSRI_BOX_FILL,
    TSRI_BOX_KEEP,
    TSRI_BOX_ALL_REDUCE,
    TSRI_BOX_ALL_GATHER,
    TSRI_BOX_REDUCE_SCATTER,
    TSRI_BOX_ALL_TO_ALL,
    TSRI_BOX_SEND_RECV,
} tsri_box_kind;

/* "slice", "all_reduce", ... */
const char *tsri_box_kind_name(tsri_box_kind kind);
/* Whether ranks talk. */
bool tsri_box_is_collective(tsri_box_kind kind);

/* One end of a conversion. */
typedef struct tsri_end {
    tsri_mesh mesh;
    tsri_layout layout;
} tsri_end;

typedef struct tsri_route_step {
    tsri_box_kind kind;
    uint8_t dims;     /* bit d: hierarchy dimension d takes part; 0 where `crosses` */
    bool crosses;     /* from the source's mesh to the destination's */
    bool on_dst;      /* the mesh of `to` is the destination's */
    bool two_phase;   /* ALL_REDUCE: reduce 1/n-th each, then gather */
    tsr_reduce_op op; /* of the P that goes, or comes */
    tsri_layout from, to;
    double cost_s;
    int64_t bytes; /* that the busiest rank reads from peers; of ALL_TO_ALL and SEND_RECV of uneven
                      parts that is at most this */
} tsri_route_step;

enum { TSRI_ROUTE_MAX = 12 };

typedef struct tsri_route {
    int n; /* 0: the ends are the same */
    tsri_route_step step[TSRI_ROUTE_MAX];
    double cost_s;
    double bound_s;     /* no route whatever can be cheaper */
    int64_t bytes;      /* sum of the steps' */
    int64_t peak_bytes; /* most that a rank holds at a time: a step's source and result; between
                           meshes that share a rank the largest of both */
} tsri_route;

typedef struct tsri_route_query {
    tsr_dims shape;
    size_t element; /* bytes of one */
    tsri_end from, to;
    int64_t most_bytes; /* peak allowed on a rank; 0: any */
} tsri_route_query;

/* The cheapest route. Among equals the one with fewer steps, then a fixed order: every rank finds
 * the same. Errors: TSR_ERR_SBP (no route within most_bytes; says how much the leanest needs),
 * TSR_ERR_UNSUPPORTED (kinds of P mixed in one signature). */
tsr_status tsri_route_find(const tsri_cost_model *m, const tsri_route_query *q,
                           tsri_route *out_route);

/*
 * Costs of many conversions of one tensor on one mesh (or from one mesh to another), as
 * tsri_route_find would tell them: cost[i * nto + j] is that of from[i] -> to[j], in seconds.
 * Signatures are laid out left to right.
 */
tsr_status tsri_route_costs(const tsri_cost_model *m, tsri_mem *mem, tsr_dims shape, size_t element,
                            const tsri_mesh *from_mesh, int nfrom, const tsr_sbp *from,
                            const tsri_mesh *to_mesh, int nto, const tsr_sbp *to, float *cost);

/* What one rank reads in a step: boxes of its new part (in global coordinates), each from one rank
 * that has it, or reduced over several. */
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
