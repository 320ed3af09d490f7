/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `tessera box`. */
#ifndef TESSERA_CLI_BOX_BOX_H
#define TESSERA_CLI_BOX_BOX_H

#include "sbp/route/route.h"
#include "src/cli/cli.h"

#include <tessera/plan.h>

/* One end of the conversion, as the user said it. */
typedef struct box_end {
    const tsr_placement *placement;
    tsr_sbp sbp;
} box_end;

typedef struct box {
    tsr_world *world; /* virtual */
    int nranks;
    tsr_dtype dtype;
    tsr_dims shape;
    box_end from, to;
    tsr_compile_opts opts; /* the links */
    tsri_cost_model model;
    tsri_route_query query;
    tsri_route route;
} box;

/* draw.c: a picture in text of who holds what: a grid of rank numbers, where at most two axes
 * are split, else a list. Addends of a P are joined by '+', copies by ','. False when there is no
 * memory. */
bool box_draw(FILE *f, tsr_dims shape, const tsri_end *end);

/* run.c: what a run on thread ranks read and whether its values are those of the definition. */
typedef struct box_run {
    uint64_t *read, *planned; /* [nranks] bytes from peers */
    int64_t elements;         /* compared */
    char wrong[256];          /* the first difference; "" if there is none */
} box_run;
tsr_status box_run_on_threads(const box *b, box_run *out_run);
void box_run_finish(box_run *run);

#endif
