/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions as plain data. A route is a list of steps. A step on one mesh changes the entries of
 * the dimensions in `dims` and talks within groups of ranks that differ in those dimensions alone:
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
 * P do not change across.
 */
#ifndef TESSERA_SBP_ROUTE_STEP_H
#define TESSERA_SBP_ROUTE_STEP_H

#include "sbp/route/cost_model.h"

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

#endif
