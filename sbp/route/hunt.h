/* SPDX-License-Identifier: Apache-2.0 */
/* The search over the states of one mesh: A* to a goal, or Dijkstra from a state to all others.
 * Inside of sbp/route/. */
#ifndef TESSERA_SBP_ROUTE_HUNT_H
#define TESSERA_SBP_ROUTE_HUNT_H

#include "sbp/route/goal.h"

/* States that a mesh of so many dimensions (of more than one rank) can have, with the axes that
 * tsri_space_init takes: 54 of 2, 932 of 3, 15,680 of 4. */
enum { TSRI_HUNT_2D = 64, TSRI_HUNT_3D = 1024, TSRI_HUNT_4D = 16384 };

typedef struct tsri_hunt_node {
    tsri_state state;
    double cost, bound; /* so far; with what is left at least */
    int16_t parent;     /* -1: the start */
    uint16_t place;     /* in the heap, from 1; 0: not in it */
    uint8_t steps, kind, dims;
    bool two_phase;
} tsri_hunt_node;

typedef struct tsri_hunt {
    tsri_space *space;
    const tsri_goal *goal; /* NULL: none, all states are visited */
    bool back;             /* steps are taken backwards, from a destination */
    int most_steps;        /* of a path */
    int n, nopen, room;    /* room: a power of two */
    tsri_hunt_node *node;  /* [room] */
    uint16_t *open;        /* [room] heap of nodes */
    uint16_t *slot;        /* [2 * room] hash of states: node + 1 */
    tsri_hop hops[TSRI_MAX_HOPS];
} tsri_hunt;

/* Called with each settled node, cheapest first; false ends the search. */
typedef bool tsri_hunt_fn(void *arg, tsri_hunt *hunt, int node);

/* Runs it from a state; the node of the goal, or -1. */
int tsri_hunt_run(tsri_hunt *hunt, tsri_state start, tsri_hunt_fn *settled, void *arg);

/* Calls fn with a hunt that has its memory on the stack, of the size that the mesh asks for. */
typedef void tsri_hunt_body(void *arg, tsri_hunt *hunt);
void tsri_hunt_with(tsri_space *space, tsri_hunt_body *body, void *arg);

#endif
