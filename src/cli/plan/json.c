/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/plan/plan.h"

#include <cjson/cJSON.h>

static cJSON *json_value(const tsri_value *v)
{
    cJSON *json = cJSON_CreateObject(), *shape = cJSON_CreateArray();
    char sbp[TSRI_LAYOUT_TEXT_MAX];
    for (int i = 0; i < v->shape.ndim; i++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)v->shape.d[i]));
    cJSON_AddStringToObject(json, "name", v->name ? v->name : "");
    cJSON_AddStringToObject(json, "dtype", tsr_dtype_name(v->dtype));
    cJSON_AddItemToObject(json, "shape", shape);
    cJSON_AddStringToObject(json, "sbp", tsri_layout_format(&v->layout, sbp));
    cJSON_AddStringToObject(json, "placement", tsr_placement_text(v->placement));
    return json;
}

static cJSON *json_values(const tsr_plan *plan, int n, const int *values)
{
    cJSON *json = cJSON_CreateArray();
    for (int i = 0; i < n; i++)
        cJSON_AddItemToArray(json, json_value(&plan->values[values[i]]));
    return json;
}

static cJSON *json_sbps(int n, const tsr_sbp *sbps)
{
    cJSON *json = cJSON_CreateArray();
    char sbp[TSR_SBP_TEXT_MAX];
    for (int i = 0; i < n; i++)
        cJSON_AddItemToArray(json, cJSON_CreateString(tsr_sbp_format(sbps[i], sbp)));
    return json;
}

static void add_alternatives(cJSON *json, const tsri_report_row *row)
{
    const tsri_alternatives *alt = row->alternatives;
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; alt && i < alt->n; i++) {
        cJSON *one = cJSON_CreateObject();
        cJSON_AddItemToObject(one, "in",
                              json_sbps(row->item ? row->item->nin : 0, alt->sig[i]->in));
        cJSON_AddItemToObject(one, "out",
                              json_sbps(row->item ? row->item->nout : 1, alt->sig[i]->out));
        cJSON_AddNumberToObject(one, "more_s", alt->more_s[i]);
        cJSON_AddItemToArray(list, one);
    }
    cJSON_AddStringToObject(json, "why", row->said ? "said" : "chosen");
    if (alt)
        cJSON_AddNumberToObject(json, "legal", alt->legal);
    cJSON_AddItemToObject(json, "alternatives", list);
}

static void add_common(cJSON *json, const tsr_plan *plan, const tsri_report_row *row)
{
    char name[32];
    cJSON_AddStringToObject(json, "name", row->name);
    cJSON_AddItemToObject(
        json, "in",
        json_values(plan, row->item ? row->item->nin : 0, row->item ? row->item->in : NULL));
    cJSON_AddItemToObject(json, "out",
                          json_values(plan, row->item ? row->item->nout : 1,
                                      row->item ? row->item->out : &row->value));
    cJSON_AddNumberToObject(json, "cost_s", row->cost_s);
    if (row->cost_s > 0)
        cJSON_AddStringToObject(json, "bound_by", tsri_spent_name(row->most, name));
    if (row->item && row->item->loc.file) {
        cJSON_AddStringToObject(json, "file", row->item->loc.file);
        cJSON_AddNumberToObject(json, "line", row->item->loc.line);
    }
}

static cJSON *json_op(const tsr_plan *plan, const tsri_report_row *row)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "op", row->what);
    add_common(json, plan, row);
    add_alternatives(json, row);
    return json;
}

static cJSON *json_box(const tsr_plan *plan, const tsri_report_row *row)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "collective", row->what);
    add_common(json, plan, row);
    cJSON_AddBoolToObject(json, "communicates", row->link >= 0);
    cJSON_AddNumberToObject(json, "groups", row->groups);
    cJSON_AddNumberToObject(json, "group_size", row->group_size);
    if (row->link >= 0)
        cJSON_AddNumberToObject(json, "link", row->link + 1);
    cJSON_AddNumberToObject(json, "bytes", (double)row->bytes);
    cJSON_AddBoolToObject(json, "two_phase", row->item->box.step.two_phase);
    cJSON_AddStringToObject(json, "lane", row->item->box.is_bucket ? "bulk" : "critical");
    cJSON_AddStringToObject(json, "reason", row->item->box.reason);
    return json;
}

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
        cJSON_AddNumberToObject(one, "buffers", (double)m->buffers);
        cJSON_AddNumberToObject(one, "optimizer", (double)m->optimizer);
        cJSON_AddNumberToObject(one, "inputs_outputs", (double)m->ports);
        cJSON_AddNumberToObject(one, "gradients", (double)m->gradients);
        cJSON_AddNumberToObject(one, "activations", (double)m->activations);
        cJSON_AddNumberToObject(one, "communication", (double)m->communication);
        cJSON_AddNumberToObject(one, "other", (double)m->other);
        cJSON_AddNumberToObject(one, "total", (double)m->total);
        cJSON_AddBoolToObject(one, "exact", m->exact);
        cJSON_AddItemToArray(json, one);
    }
    return json;
}

static cJSON *json_step(const tsri_report *r)
{
    cJSON *json = cJSON_CreateObject(), *parts = cJSON_CreateObject();
    cJSON *changes = cJSON_CreateArray();
    char name[32];
    for (int s = 0; s < TSRI_SPENT_COUNT; s++)
        if (r->spent_s[s] > 0)
            cJSON_AddNumberToObject(parts, tsri_spent_name((tsri_spent)s, name), r->spent_s[s]);
    cJSON_AddNumberToObject(json, "cost_s", r->step_s);
    cJSON_AddNumberToObject(json, "compute_s", r->compute_s);
    cJSON_AddNumberToObject(json, "communication_s", r->comm_s);
    cJSON_AddItemToObject(json, "spent_s", parts);
    cJSON_AddStringToObject(json, "bound_by", tsri_spent_name(r->most, name));
    cJSON_AddNumberToObject(json, "signatures_cost_s", r->plan->info.cost_s);
    for (int i = 0; i < TSRI_CHANGES; i++) {
        const tsri_change *c = &r->plan->change[i];
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
    return json;
}

static cJSON *json_model(const plan_view *v)
{
    const tsri_cost_model *m = &v->report->plan->model;
    cJSON *json = cJSON_CreateObject(), *links = cJSON_CreateArray();
    char source[256];
    for (int i = 0; i < m->nlinks; i++) {
        cJSON *one = cJSON_CreateObject();
        cJSON_AddNumberToObject(one, "ranks", m->link[i].ranks);
        cJSON_AddNumberToObject(one, "latency_s", m->link[i].latency_s);
        cJSON_AddNumberToObject(one, "bytes_per_s", m->link[i].bytes_per_s);
        cJSON_AddItemToArray(links, one);
    }
    plan_links_source(v, source);
    cJSON_AddItemToObject(json, "links", links);
    cJSON_AddNumberToObject(json, "local_bytes_per_s", m->local_bytes_per_s);
    cJSON_AddNumberToObject(json, "flops_per_s", m->flops_per_s);
    cJSON_AddNumberToObject(json, "kernel_s", m->kernel_s);
    cJSON_AddStringToObject(json, "figures", source);
    if (v->limit_is) {
        cJSON_AddNumberToObject(json, "memory_limit", (double)v->report->plan->opts.memory_limit);
        cJSON_AddStringToObject(json, "memory_limit_is", v->limit_is);
    }
    return json;
}

cJSON *plan_make_json(const plan_view *v)
{
    const tsri_report *r = v->report;
    const tsr_plan *plan = r->plan;
    cJSON *json = cJSON_CreateObject(), *ops = cJSON_CreateArray(), *boxes = cJSON_CreateArray();
    for (int i = 0; i < r->nrows; i++)
        if (r->rows[i].kind == TSRI_REPORT_BOX)
            cJSON_AddItemToArray(boxes, json_box(plan, &r->rows[i]));
        else
            cJSON_AddItemToArray(ops, json_op(plan, &r->rows[i]));
    cJSON_AddStringToObject(json, "file", v->path);
    cJSON_AddNumberToObject(json, "ranks", plan->world->nranks);
    cJSON_AddNumberToObject(json, "compile_s", plan->info.compile_s);
    cJSON_AddNumberToObject(json, "infer_s", plan->info.infer_s);
    cJSON_AddItemToObject(json, "ops", ops);
    cJSON_AddItemToObject(json, "boxing", boxes);
    cJSON_AddItemToObject(json, "totals", json_totals(r));
    cJSON_AddItemToObject(json, "memory", json_memory(r));
    cJSON_AddItemToObject(json, "step", json_step(r));
    cJSON_AddItemToObject(json, "model", json_model(v));
    return json;
}
