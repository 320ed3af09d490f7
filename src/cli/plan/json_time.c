/* SPDX-License-Identifier: Apache-2.0 */
/* The plan's order, and the step on a clock. Long lists are columns, so that they stay short. */
#include "src/cli/plan/json.h"

cJSON *plan_json_order(plan_json *j)
{
    static const char *const names[] = {"do", "start", "finish", "release"};
    cJSON *json = cJSON_CreateObject();
    cJSON *op = cJSON_AddArrayToObject(json, "op"), *phase = cJSON_AddArrayToObject(json, "phase");
    for (int e = 0; e < j->plan->ir.nentries; e++) {
        const tsri_entry *entry = &j->plan->ir.entries[e];
        cJSON_AddItemToArray(op, cJSON_CreateNumber(j->row_of[entry->item]));
        cJSON_AddItemToArray(phase, cJSON_CreateString(names[entry->phase]));
    }
    return json;
}

static cJSON *group_json(const tsri_timeline *t, int nranks, int g)
{
    cJSON *json = cJSON_CreateObject();
    char ranks[4096];
    cJSON_AddStringToObject(json, "ranks",
                            plan_ranks_like(t->group_of, nranks, g, ranks, sizeof ranks));
    cJSON_AddNumberToObject(json, "nranks", t->group[g].nranks);
    cJSON_AddNumberToObject(json, "end_s", t->group[g].end_s);
    cJSON_AddNumberToObject(json, "compute_s", t->group[g].compute_s);
    return json;
}

static cJSON *spans_json(const plan_json *j, const tsri_timeline *t)
{
    cJSON *json = cJSON_CreateObject();
    cJSON *op = cJSON_AddArrayToObject(json, "op"), *group = cJSON_AddArrayToObject(json, "group");
    cJSON *start = cJSON_AddArrayToObject(json, "start_s");
    cJSON *end = cJSON_AddArrayToObject(json, "end_s");
    cJSON *critical = cJSON_AddArrayToObject(json, "critical");
    for (int i = 0; i < t->nspans; i++) {
        const tsri_span *s = &t->span[i];
        cJSON_AddItemToArray(op, cJSON_CreateNumber(j->row_of[s->item]));
        cJSON_AddItemToArray(group, cJSON_CreateNumber(s->group));
        cJSON_AddItemToArray(start, cJSON_CreateNumber(s->start_s));
        cJSON_AddItemToArray(end, cJSON_CreateNumber(s->end_s));
        if (s->critical)
            cJSON_AddItemToArray(critical, cJSON_CreateNumber(i));
    }
    return json;
}

cJSON *plan_json_timeline(plan_json *j)
{
    tsri_timeline t;
    cJSON *json = cJSON_CreateObject();
    j->failed |= tsri_timeline_make(j->plan, &t) != TSR_OK;
    if (!j->failed) {
        cJSON *groups = cJSON_AddArrayToObject(json, "groups");
        cJSON_AddNumberToObject(json, "end_s", t.end_s);
        for (int g = 0; g < t.ngroups; g++)
            cJSON_AddItemToArray(groups, group_json(&t, j->plan->ir.world->nranks, g));
        cJSON_AddItemToObject(json, "spans", spans_json(j, &t));
    }
    tsri_timeline_finish(&t);
    return json;
}
