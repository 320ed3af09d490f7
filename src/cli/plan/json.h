/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a plan's JSON: see plan.schema.json for what it says, tessera-plan-json(5). */
#ifndef TESSERA_CLI_PLAN_JSON_H
#define TESSERA_CLI_PLAN_JSON_H

#include "src/cli/page/pieces.h"
#include "src/cli/plan/plan.h"
#include "src/plan/report/timeline.h"

#include <cjson/cJSON.h>

enum { PLAN_JSON_VERSION = 1 };

/* A plan while it is written: numbers of what is told. */
typedef struct plan_json {
    const tsri_report *report;
    const tsr_plan *plan;
    tsri_pool pool;
    int *value_id; /* per value of the plan; -1: nothing reads or makes it */
    int *row_of;   /* per item: its row; -1 */
    int nvalues;   /* that have an id */
    const tsr_placement **placements;
    int nplacements, cplacements;
    struct plan_module *modules;
    int nmodules, cmodules, *module_buckets;
    cJSON *moves; /* matrices of bytes, each once */
    uint64_t *move_hash;
    int nmoves, cmoves;
    page_splits splits;
    bool failed; /* no memory */
} plan_json;

/* json_names.c: numbers for values, placements and modules. */
void plan_json_number(plan_json *j);
int plan_json_placement(plan_json *j, const tsr_placement *p);
/* The module of a row of the report. */
int plan_json_module(plan_json *j, const tsri_report_row *row);
cJSON *plan_json_placements(plan_json *j);
cJSON *plan_json_modules(plan_json *j);
cJSON *plan_json_values(plan_json *j);

/* json_rows.c: ops and conversions. */
cJSON *plan_json_op(plan_json *j, int row);
cJSON *plan_json_box(plan_json *j, int row);

/* json_time.c: what is done when. */
cJSON *plan_json_order(plan_json *j);
cJSON *plan_json_timeline(plan_json *j);

#endif
