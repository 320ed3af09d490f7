/* SPDX-License-Identifier: Apache-2.0 */
/* Ops and conversions. */
#include "src/cli/page/moves.h"
#include "src/cli/plan/json.h"
#include "src/core/rng.h"
#include "src/plan/pass/pass.h"

#include <string.h>

/* --- what both have --------------------------------------------------------------------------- */
static cJSON *ids(const plan_json *j, int n, const int *values)
{
    cJSON *json = cJSON_CreateArray();
    for (int i = 0; i < n; i++)
        cJSON_AddItemToArray(json, cJSON_CreateNumber(j->value_id[values[i]]));
    return json;
}

static void add_common(plan_json *j, cJSON *json, const tsri_report_row *row)
{
    static const char *const turns[] = {
        [TSRI_TURN_HEAD] = "before", [TSRI_TURN_PARTS] = "parts", [TSRI_TURN_TAIL] = "after"};
    const tsri_item *it = row->item;
    char name[TSRI_SPENT_NAME_MAX];
    cJSON_AddStringToObject(json, "name", row->name);
    cJSON_AddNumberToObject(json, "module", plan_json_module(j, row));
    cJSON_AddItemToObject(json, "in", ids(j, it ? it->nin : 0, it ? it->in : NULL));
    cJSON_AddItemToObject(json, "out", ids(j, it ? it->nout : 1, it ? it->out : &row->value));
    if (it && j->plan->ir.parts > 1) {
        cJSON_AddStringToObject(json, "turn", turns[it->turn]);
        cJSON_AddNumberToObject(json, "times", row->times);
    }
    cJSON_AddNumberToObject(json, "cost_s", row->cost_s);
    if (row->cost_s > 0)
        cJSON_AddStringToObject(json, "bound_by", tsri_spent_name(NULL, row->most, name));
    if (it && it->loc.file) {
        cJSON_AddStringToObject(json, "file", it->loc.file);
        cJSON_AddNumberToObject(json, "line", it->loc.line);
    }
}

/* --- ops -------------------------------------------------------------------------------------- */
static cJSON *sbps(int n, const tsr_sbp *of)
{
    cJSON *json = cJSON_CreateArray();
    char sbp[TSR_SBP_TEXT_MAX];
    for (int i = 0; i < n; i++)
        cJSON_AddItemToArray(json, cJSON_CreateString(tsr_sbp_format(of[i], sbp)));
    return json;
}

static void add_alternatives(cJSON *json, const tsri_report_row *row)
{
    const tsri_alternatives *alt = row->alternatives;
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; alt && i < alt->n; i++) {
        cJSON *one = cJSON_CreateObject();
        cJSON_AddItemToObject(one, "in", sbps(row->item ? row->item->nin : 0, alt->sig[i]->in));
        cJSON_AddItemToObject(one, "out", sbps(row->item ? row->item->nout : 1, alt->sig[i]->out));
        cJSON_AddNumberToObject(one, "more_s", alt->more_s[i]);
        cJSON_AddItemToArray(list, one);
    }
    cJSON_AddStringToObject(json, "why", row->said ? "said" : "chosen");
    if (alt)
        cJSON_AddNumberToObject(json, "legal", alt->legal);
    cJSON_AddItemToObject(json, "alternatives", list);
}

static const char *phase_of(const tsri_report_row *row)
{
    if (!row->item)
        return "source";
    if (row->kind == TSRI_REPORT_OP && tsri_item_is_update(row->item))
        return "update";
    return row->item->backward ? "backward" : "forward";
}

cJSON *plan_json_op(plan_json *j, int row)
{
    const tsri_report_row *r = &j->report->rows[row];
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "id", row);
    cJSON_AddStringToObject(json, "op", r->what);
    cJSON_AddStringToObject(json, "phase", phase_of(r));
    if (r->item && r->item->kind == TSRI_ITEM_KERNEL && r->item->kernel.recomputes)
        cJSON_AddBoolToObject(json, "again", true);
    add_common(j, json, r);
    add_alternatives(json, r);
    return json;
}

/* --- conversions ------------------------------------------------------------------------------ */
static uint64_t move_hash(const page_move *m)
{
    uint64_t h = tsri_hash(TSRI_HASH_INIT, m->rank, (size_t)m->n * sizeof *m->rank);
    return tsri_hash(h, m->bytes, (size_t)m->n * (size_t)m->n * sizeof *m->bytes);
}

/* The number of the matrix of a conversion's bytes; -1 where there is none. */
static int add_move(plan_json *j, const tsri_item *it)
{
    const tsri_route_query first = tsri_item_query(&j->plan->ir, it, 0);
    tsri_pool pool;
    page_move m = {0};
    tsri_pool_init(&pool, &j->plan->ir.world->mem);
    tsr_status status = page_move_init(&pool, &first, &it->box.step, &m);
    for (int i = 0; i < it->nin && status == TSR_OK; i++) {
        const tsri_route_query q = tsri_item_query(&j->plan->ir, it, i);
        tsri_route_step step = it->box.step;
        step.from = j->plan->ir.values[it->in[i]].layout;
        step.to = j->plan->ir.values[it->out[i]].layout;
        status = page_move_add(&pool, &q, &step, &m);
    }
    j->failed |= status != TSR_OK;
    uint64_t hash = m.n && !j->failed ? move_hash(&m) : 0;
    int at = 0;
    while (at < j->nmoves && j->move_hash[at] != hash)
        at++;
    if (m.n && !j->failed && at == j->nmoves) {
        j->failed |= !TSRI_PUSH(&j->pool, j->move_hash, j->nmoves, j->cmoves);
        if (!j->failed)
            j->move_hash[j->nmoves++] = hash;
        cJSON_AddItemToArray(j->moves, page_move_json(&m));
    }
    tsri_pool_finish(&pool);
    return m.n && !j->failed ? at : -1;
}

static void add_group(plan_json *j, cJSON *json, const tsri_report_row *row)
{
    const tsri_item *it = row->item;
    cJSON *dims = cJSON_CreateArray();
    for (int d = 0; d < TSR_MAX_HIERARCHY && !it->box.step.crosses; d++)
        if (it->box.step.dims >> d & 1)
            cJSON_AddItemToArray(dims, cJSON_CreateNumber(d));
    cJSON_AddNumberToObject(json, "groups", row->groups);
    cJSON_AddNumberToObject(json, "group_size", row->group_size);
    cJSON_AddItemToObject(json, "dims", dims);
    if (row->link < 0)
        return;
    cJSON_AddNumberToObject(json, "link", row->link + 1);
    int move = it->box.broadcast || it->box.ranks ? -1 : add_move(j, it);
    if (move >= 0)
        cJSON_AddNumberToObject(json, "move", move);
}

cJSON *plan_json_box(plan_json *j, int row)
{
    const tsri_report_row *r = &j->report->rows[row];
    const tsri_item *it = r->item;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "id", row);
    cJSON_AddStringToObject(json, "collective", r->what);
    cJSON_AddStringToObject(json, "phase", it->backward ? "backward" : "forward");
    add_common(j, json, r);
    cJSON_AddBoolToObject(json, "communicates", r->link >= 0);
    add_group(j, json, r);
    cJSON_AddNumberToObject(json, "bytes", (double)r->bytes);
    cJSON_AddBoolToObject(json, "two_phase", it->box.step.two_phase);
    cJSON_AddStringToObject(json, "lane", it->box.is_bucket ? "bulk" : "critical");
    cJSON_AddStringToObject(json, "purpose", tsri_traffic_word(r->use));
    cJSON_AddStringToObject(json, "reason", it->box.reason);
    return json;
}
