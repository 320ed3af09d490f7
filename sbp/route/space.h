/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states of a tensor on one mesh: inside of sbp/route/.
 *
 * A state packs, per axis of the search, its nest (the sequence of dimensions that split it), then
 * the mask of the dimensions that are P and their kind; all other dimensions are B. Nested balanced
 * splits of a length L over k1, k2, ... give parts of ceil(L / k1 k2 ...) and floor of the same,
 * whatever the order, so that sizes depend on the set of a nest alone.
 */
#ifndef TESSERA_SBP_ROUTE_SPACE_H
#define TESSERA_SBP_ROUTE_SPACE_H

#include "sbp/route/step.h"

enum {
    TSRI_NESTS = 65,      /* sequences of up to 4 different dimensions */
    TSRI_NEST_BITS = 7,   /* of a state, per axis */
    TSRI_PARTIAL_AT = 56, /* mask of P in a state */
    TSRI_OP_AT = 60,      /* kind of P in a state; 0 where there is none */
    TSRI_MAX_HOPS = 1024, /* that leave one state */
    TSRI_DIM_SETS = 16,
    TSRI_SEARCH_AXES = 4, /* that a search looks at whoever splits them */
};

typedef uint64_t tsri_state;

/* A step between two states. */
typedef struct tsri_hop {
    tsri_state to; /* where the search goes */
    double cost;
    uint8_t kind, dims;
    bool two_phase;
} tsri_hop;

typedef struct tsri_space {
    const tsri_cost_model *model;
    const tsri_mesh *mesh;
    int naxes, axis[TSR_MAX_NDIM];  /* axes of the search */
    int axis_of[TSR_MAX_NDIM];      /* of a tensor's axis; -1 */
    uint8_t dims;                   /* of more than one rank */
    uint8_t make_dims, make_ops;    /* which may become P, and of which kinds (bits) */
    double element, rest, all;      /* bytes of an element; elements per one of the search's axes;
                                       of the tensor */
    int64_t most_bytes, least_over; /* peak allowed, 0: any; least peak of a hop left out for it */

    int nnests;
    uint8_t push[TSRI_NESTS][TSR_MAX_HIERARCHY], pop[TSRI_NESTS], last[TSRI_NESTS],
        mask[TSRI_NESTS], depth[TSRI_NESTS];
    double most[TSR_MAX_NDIM][TSRI_DIM_SETS], least[TSR_MAX_NDIM][TSRI_DIM_SETS]; /* part lengths */

    /* Per set of dimensions: ranks of a group, its hand-shake, seconds per element that one rank
     * takes in from all of the group alike, where it gathers or reduces, and from its farthest. */
    double size[TSRI_DIM_SETS], latency[TSRI_DIM_SETS], each[TSRI_DIM_SETS], ring[TSRI_DIM_SETS],
        far[TSRI_DIM_SETS];
    double quickest, fastest; /* least latency[]; least each[] and ring[] */
    double local;             /* seconds per element */
} tsri_space;

static inline int tsri_state_nest(tsri_state s, int a)
{
    return (int)(s >> (TSRI_NEST_BITS * a)) & 127;
}
static inline unsigned tsri_state_partial(tsri_state s)
{
    return (unsigned)(s >> TSRI_PARTIAL_AT) & 15;
}
static inline int tsri_state_op(tsri_state s)
{
    return (int)(s >> TSRI_OP_AT) & 3;
}

/* A space over the axes that `used` tells (bit a: an end splits axis a) and others; see route.h. */
void tsri_space_init(tsri_space *s, const tsri_cost_model *m, const tsri_mesh *mesh, tsr_dims shape,
                     size_t element, unsigned used);
tsri_state tsri_space_encode(const tsri_space *s, const tsri_layout *l);
tsri_layout tsri_space_decode(const tsri_space *s, tsri_state state);
/* Lets ways pass by P of the kinds that two states have. */
void tsri_space_allow(tsri_space *s, tsri_state from, tsri_state to);
/* Elements of the largest part. */
double tsri_space_part(const tsri_space *s, tsri_state state);
/* Checks a layout: the kinds of P that it has, as bits, and the axes that it splits, added to
 * *axes. Errors: kinds of P mixed, an axis that the shape has not. */
tsr_status tsri_route_look(const tsri_layout *l, tsr_dims shape, unsigned *out_ops, unsigned *axes);

/* --- steps: hops.c, price.c ------------------------------------------------------------------- */
/* The steps that leave a state, or, `back`, those that lead to it: then hops go to where they come
 * from. hops[] has room for TSRI_MAX_HOPS. */
int tsri_space_hops(tsri_space *s, tsri_state from, bool back, tsri_hop *hops);
/* Appends a step on one mesh from x to y. */
void tsri_route_append(tsri_route *r, const tsri_space *s, tsri_state x, tsri_state y,
                       const tsri_hop *hop, bool on_dst);
/* Seconds of a step between parts of so many elements at most; own: elements of the new part that
 * the busiest rank has, of ALL_GATHER and ALL_TO_ALL. */
double tsri_space_price(const tsri_space *s, const tsri_hop *hop, double from_part, double to_part,
                        double own, bool *out_two_phase);

/* Seconds that the bytes of an ALL_REDUCE take over links, in one phase and in two: talk[2]. */
void tsri_space_phases(const tsri_space *s, const tsri_hop *hop, double from_part, double *talk);

/* The step that goes straight from x to y; false if there is none. */
bool tsri_space_direct(tsri_space *s, tsri_state x, tsri_state y, tsri_hop *out);
/* Elements that the busiest rank reads in a hop x -> y. */
double tsri_space_moved(const tsri_space *s, const tsri_hop *hop, tsri_state x, tsri_state y);

#endif
