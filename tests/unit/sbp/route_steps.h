/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states and steps of sbp/route/route.h by definition, for small meshes: every layout is
 * listed, any two are held against the table of steps, and steps are priced by looking at the parts
 * of every rank. Slow and plain; nothing of it is shared with the planner.
 */
#ifndef TESSERA_TESTS_UNIT_ROUTE_STEPS_H
#define TESSERA_TESTS_UNIT_ROUTE_STEPS_H

#include "tests/unit/sbp/route_run.h"

typedef struct rs_layout {
    tsri_layout layout;
    int64_t (*length)[TSR_MAX_NDIM]; /* [nranks] of the parts */
    int64_t most;                    /* elements of the largest part */
} rs_layout;

typedef struct rs_edge {
    int to;
    double cost;
    int64_t bytes;
} rs_edge;

/* What talking within a set of dimensions costs: the hand-shake of the farthest link, and seconds a
 * byte if all peers give the same, or the farthest ones all of it. */
typedef struct rs_talk {
    double k, latency, each, ring, far;
} rs_talk;

typedef struct rs_world {
    tsri_cost_model model;
    tsri_mesh mesh;
    tsr_dims shape;
    int64_t element, most_bytes; /* most_bytes: peak allowed; 0: any */
    int n, *first;               /* edges of layout i: first[i] to first[i + 1] */
    rs_layout *at;
    rs_edge *edge;
    rs_talk talk[16]; /* by the set of dimensions, as bits */
} rs_world;

/* All layouts that split the shape's axes, with B, P(sum) and (kinds 3) P(max), and all steps on
 * the mesh but those that lead straight to a destination. */
void rs_init(rs_world *w, const tsri_cost_model *model, const tsri_mesh *mesh, tsr_dims shape,
             int64_t element, int kinds, int64_t most_bytes);
void rs_finish(rs_world *w);
int rs_find(const rs_world *w, const tsri_layout *l);

/* The step of one kind on dimensions that share their entries: false if there is none. */
bool rs_step(const rs_world *w, int x, int y, double *cost, int64_t *bytes);
/* The step straight to a destination. */
bool rs_direct(const rs_world *w, int x, int y, double *cost, int64_t *bytes);

/* Least costs from a layout to all, over the edges (Bellman and Ford's way) and the layouts that a
 * way to another one may pass: of `to` the kinds of P and the short axes matter. cost[n]. */
void rs_costs(const rs_world *w, const tsri_layout *from, const tsri_layout *to, double *cost);
/* Axes of less than two elements that a layout splits, as bits. */
unsigned rs_short_axes(const rs_world *w, const tsri_layout *l);
/* The least cost of x -> y, given its rs_costs. */
double rs_best(const rs_world *w, const double *cost, int y);

#endif
