/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/plan/json.h"

#include <stdlib.h>

static cJSON *json_totals(const tsri_report *r)
{
    cJSON *json = cJSON_CreateObject(), *list = cJSON_CreateArray();
    for (int i = 0; i < r->ntotals; i++) {
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "collective", r->totals[i].what);
        cJSON_AddNumberToObject(one, "calls", r->totals[i].calls);
        cJSON_AddNumberToObject(one, "bytes", (double)r->totals[i].bytes);
        cJSON_AddNumberToObject(one, "cost_s", r->totals[i].cost_s);
        cJSON_AddItemToArray(list, one);
    }
    cJSON_AddItemToObject(json, "collectives", list);
    cJSON_AddNumberToObject(json, "bytes", (double)r->bytes);
    return json;
}

static cJSON *json_memory(const tsri_report *r)
{
    cJSON *json = cJSON_CreateArray();
    char ranks[4096];
    for (int i = 0; i < r->nmemory; i++) {
        const tsri_report_memory *m = &r->memory[i];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "ranks", plan_ranks_text(r, i, ranks, sizeof ranks));
        cJSON_AddNumberToObject(one, "nranks", m->nranks);
        cJSON_AddNumberToObject(one, "parameters", (double)m->parameters);
        cJSON_AddNumberToObject(one, "masters", (double)m->masters);
        cJSON_AddNumberToObject(one, "buffers", (double)m->buffers);
        cJSON_AddNumberToObject(one, "optimizer", (double)m->optimizer);
        cJSON_AddNumberToObject(one, "inputs_outputs", (double)m->ports);
        cJSON_AddNumberToObject(one, "gradients", (double)m->gradients);
        cJSON_AddNumberToObject(one, "activations", (double)m->activations);
        cJSON_AddNumberToObject(one, "communication", (double)m->communication);
        cJSON_AddNumberToObject(one, "scratch", (double)m->scratch);
        cJSON_AddNumberToObject(one, "other", (double)m->other);
        cJSON_AddNumberToObject(one, "total", (double)m->total);
        cJSON_AddBoolToObject(one, "exact", m->exact);
        cJSON_AddNumberToObject(one, "peak", m->peak);
        cJSON_AddItemToArray(json, one);
    }
    return json;
}

/* For each stage the runs of its parameters; a run is its first and its last name. */
static cJSON *json_stages(const tsri_ir *ir)
{
    cJSON *json = cJSON_CreateArray();
    for (int s = 0; s < ir->timetable.nstages; s++) {
        const int n = tsri_stages_parameters(ir, s, 0, NULL);
        tsri_stage_run *run = calloc((size_t)n + 1, sizeof *run);
        cJSON *runs = cJSON_CreateArray();
        if (run)
            tsri_stages_parameters(ir, s, n, run);
        for (int i = 0; i < n && run; i++) {
            const char *const names[] = {run[i].first, run[i].last};
            cJSON_AddItemToArray(runs, cJSON_CreateStringArray(names, 2));
        }
        free(run);
        cJSON_AddItemToArray(json, runs);
    }
    return json;
}

/* The timetable: its tasks in their order, in seconds since the first one's start. */
static cJSON *json_pipeline(const tsri_ir *ir)
{
    const tsri_timetable *t = &ir->timetable;
    cJSON *json = cJSON_CreateObject(), *tasks = cJSON_CreateArray(), *ahead = cJSON_CreateArray();
    cJSON_AddStringToObject(json, "kind", tsri_pipeline_name(ir->opts.pipeline));
    cJSON_AddNumberToObject(json, "stages", t->nstages);
    cJSON_AddNumberToObject(json, "bubble", tsri_stages_bubble(ir));
    for (int s = 0; s < t->nstages; s++)
        cJSON_AddItemToArray(ahead, cJSON_CreateNumber(t->slots[s]));
    cJSON_AddItemToObject(json, "copies", ahead);
    cJSON_AddItemToObject(json, "parameters", json_stages(ir));
    for (int i = 0; i < t->ntasks; i++) {
        const tsri_task_of *k = &t->task[i];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddNumberToObject(one, "stage", t->segment[k->segment].stage);
        cJSON_AddNumberToObject(one, "depth", t->segment[k->segment].depth);
        cJSON_AddNumberToObject(one, "microbatch", k->part);
        cJSON_AddNumberToObject(one, "start_s", k->start_s);
        cJSON_AddNumberToObject(one, "end_s", k->end_s);
        cJSON_AddItemToArray(tasks, one);
    }
    cJSON_AddItemToObject(json, "tasks", tasks);
    return json;
}

static cJSON *json_step(const plan_view *v)
{
    const tsri_report *r = v->report;
    const plan_pace pace = plan_pace_of(r, v->experiment);
    cJSON *json = cJSON_CreateObject(), *parts = cJSON_CreateObject();
    cJSON *changes = cJSON_CreateArray();
    char name[TSRI_SPENT_NAME_MAX];
    for (int s = 0; s < TSRI_SPENT_COUNT; s++)
        if (r->spent_s[s] > 0)
            cJSON_AddNumberToObject(parts, tsri_spent_name(NULL, (tsri_spent)s, name),
                                    r->spent_s[s]);
    cJSON_AddNumberToObject(json, "cost_s", r->step_s);
    cJSON_AddNumberToObject(json, "compute_s", r->compute_s);
    cJSON_AddNumberToObject(json, "communication_s", r->comm_s);
    if (pace.samples_per_s > 0)
        cJSON_AddNumberToObject(json, "samples_per_s", pace.samples_per_s);
    if (pace.tokens_per_s > 0)
        cJSON_AddNumberToObject(json, "tokens_per_s", pace.tokens_per_s);
    if (pace.mfu > 0)
        cJSON_AddNumberToObject(json, "mfu", pace.mfu);
    cJSON_AddItemToObject(json, "spent_s", parts);
    cJSON_AddStringToObject(json, "bound_by", tsri_spent_name(NULL, r->most, name));
    cJSON_AddNumberToObject(json, "signatures_cost_s", r->plan->info.cost_s);
    for (int i = 0; i < TSRI_CHANGES; i++) {
        const tsri_change *c = &r->plan->ir.change[i];
        cJSON *one = tsri_change_counts(r->plan, c) ? cJSON_CreateObject() : NULL;
        if (!one)
            continue;
        cJSON_AddStringToObject(one, "reason", c->reason);
        cJSON_AddNumberToObject(one, "more_s", c->more_s);
        cJSON_AddItemToArray(changes, one);
    }
    cJSON_AddItemToObject(json, "changes", changes);
    cJSON_AddNumberToObject(json, "lower_bound_s", r->plan->info.bound_s);
    cJSON_AddBoolToObject(json, "exact", r->plan->info.exact);
    if (r->plan->ir.opts.search_s > 0)
        cJSON_AddBoolToObject(json, "search_ended", r->plan->is_cut);
    return json;
}

static cJSON *json_model(const plan_view *v)
{
    static const tsr_dtype computed[] = {TSR_F64, TSR_F32, TSR_F16, TSR_BF16};
    const tsri_cost_model *m = &v->report->plan->ir.model;
    const tsr_dtype dtype = tsri_experiment_dtype(v->experiment);
    cJSON *json = cJSON_CreateObject(), *links = cJSON_CreateArray();
    char source[256];
    for (int i = 0; i < m->nlinks; i++) {
        cJSON *one = cJSON_CreateObject();
        if (m->link_name[i])
            cJSON_AddStringToObject(one, "name", m->link_name[i]);
        cJSON_AddNumberToObject(one, "ranks", m->link[i].ranks);
        cJSON_AddNumberToObject(one, "latency_s", m->link[i].latency_s);
        cJSON_AddNumberToObject(one, "bytes_per_s", m->link[i].bytes_per_s);
        cJSON_AddItemToArray(links, one);
    }
    plan_links_source(v, source);
    cJSON_AddItemToObject(json, "links", links);
    cJSON_AddNumberToObject(json, "local_bytes_per_s", m->local_bytes_per_s);
    cJSON_AddStringToObject(json, "dtype", tsr_dtype_name(dtype));
    cJSON_AddNumberToObject(json, "flops_per_s", tsri_flops_of(m, dtype));
    cJSON *of = cJSON_AddObjectToObject(json, "dtype_flops_per_s");
    for (size_t i = 0; i < sizeof computed / sizeof *computed; i++)
        cJSON_AddNumberToObject(of, tsr_dtype_name(computed[i]), tsri_flops_of(m, computed[i]));
    cJSON_AddNumberToObject(json, "kernel_s", m->kernel_s);
    cJSON_AddStringToObject(json, "figures", source);
    return json;
}

static void add_rows(plan_json *j, cJSON *json)
{
    cJSON *ops = cJSON_AddArrayToObject(json, "ops");
    cJSON *boxes = cJSON_AddArrayToObject(json, "boxing");
    for (int i = 0; i < j->report->nrows; i++)
        if (j->report->rows[i].kind == TSRI_REPORT_BOX)
            cJSON_AddItemToArray(boxes, plan_json_box(j, i));
        else
            cJSON_AddItemToArray(ops, plan_json_op(j, i));
}

/* In an order in which what is named by a number has its number: placements last. */
static void add_program(plan_json *j, cJSON *json)
{
    j->moves = cJSON_CreateArray();
    j->splits = (page_splits){.pool = &j->pool, .json = cJSON_CreateArray()};
    add_rows(j, json);
    cJSON_AddItemToObject(json, "values", plan_json_values(j));
    cJSON_AddItemToObject(json, "modules", plan_json_modules(j));
    cJSON_AddItemToObject(json, "placements", plan_json_placements(j));
    cJSON_AddItemToObject(json, "splits", j->splits.json);
    cJSON_AddItemToObject(json, "moves", j->moves);
    cJSON_AddItemToObject(json, "order", plan_json_order(j));
    cJSON_AddItemToObject(json, "timeline", plan_json_timeline(j));
    j->failed |= j->splits.failed;
}

cJSON *plan_make_json(const plan_view *v)
{
    const tsri_report *r = v->report;
    plan_json j = {.report = r, .plan = r->plan};
    cJSON *json = cJSON_CreateObject();
    tsri_pool_init(&j.pool, &r->plan->ir.world->mem);
    plan_json_number(&j);
    cJSON_AddNumberToObject(json, "version", PLAN_JSON_VERSION);
    cJSON_AddStringToObject(json, "file", v->path);
    cJSON_AddNumberToObject(json, "ranks", r->plan->ir.world->nranks);
    cJSON_AddNumberToObject(json, "microbatches", r->plan->ir.parts);
    if (r->plan->ir.timetable.nstages > 1)
        cJSON_AddItemToObject(json, "pipeline", json_pipeline(&r->plan->ir));
    if (r->plan->ir.opts.memory_limit)
        cJSON_AddNumberToObject(json, "memory_limit", (double)r->plan->ir.opts.memory_limit);
    if (v->limit_is)
        cJSON_AddStringToObject(json, "memory_limit_is", v->limit_is);
    cJSON_AddStringToObject(json, "strategy", r->strategy.words);
    cJSON_AddStringToObject(json, "layout", r->strategy.layout);
    char warning[160];
    if (tsri_experiment_warning(v->experiment, warning))
        cJSON_AddStringToObject(json, "warning", warning);
    cJSON_AddNumberToObject(json, "compile_s", r->plan->info.compile_s);
    cJSON_AddNumberToObject(json, "infer_s", r->plan->info.infer_s);
    cJSON_AddItemToObject(json, "step", json_step(v));
    cJSON_AddItemToObject(json, "totals", json_totals(r));
    cJSON_AddItemToObject(json, "memory", json_memory(r));
    cJSON_AddItemToObject(json, "model", json_model(v));
    if (!j.failed)
        add_program(&j, json);
    tsri_pool_finish(&j.pool);
    if (!j.failed)
        return json;
    cJSON_Delete(json);
    return NULL;
}
