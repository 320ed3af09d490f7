/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `tessera box`. */
#ifndef TESSERA_CLI_BOX_BOX_H
#define TESSERA_CLI_BOX_BOX_H

#include "sbp/route/route.h"
#include "src/cli/cli.h"

#include <tessera/plan.h>

enum { BOX_OTHERS = 3 };

/* One end of the conversion, as the user said it. */
typedef struct box_end {
    const tsr_placement *placement;
    tsr_sbp sbp;
} box_end;

typedef struct box {
    tsr_world *world; /* virtual */
    tsri_pool pool;
    int nranks;
    tsr_dtype dtype;
    tsr_dims shape;
    box_end from, to;
    tsr_compile_opts opts; /* the links */
    tsri_cost_model model;
    tsri_route_query query;
    tsri_route route, other[BOX_OTHERS];
    int nothers; /* routes that lost, cheapest first */
} box;

/* draw.c: a picture in text of who holds what: a ruler where ranks split one axis in many parts, a
 * grid of rank numbers, where at most two axes are split, else a list. Addends of a P are joined by
 * '+', copies by ','. False when there is no memory. */
bool box_draw(FILE *f, tsr_dims shape, const tsri_end *end);

/* others.c: routes that lost. Why one did: what it needs more and less of. */
enum { BOX_WHY_MAX = 160 };
char *box_why_lost(const box *b, const tsri_route *r, char buf[BOX_WHY_MAX]);
void box_print_others(const box *b, const cli_style *style);
struct cJSON *box_others_json(const box *b);
/* box.c */
struct cJSON *box_step_json(const box *b, const tsri_route_step *s);

/* run.c: what a run on thread ranks read and whether its values are those of the definition. */
typedef struct box_run {
    uint64_t *read, *planned; /* [nranks] bytes from peers */
    int64_t elements;         /* compared */
    char wrong[256];          /* the first difference; "" if there is none */
} box_run;
tsr_status box_run_on_threads(const box *b, box_run *out_run);
void box_run_finish(box_run *run);

#endif
