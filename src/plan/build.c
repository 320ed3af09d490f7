/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boxing: turns a graph whose signatures are chosen into values and items, with a conversion in
 * front of each op that wants a tensor in another signature. Equal conversions are made once.
 */
#include <stdio.h>
#include <string.h>

#include "src/plan/plan.h"

/* What exists of a graph's tensor so far: its value in each signature that was asked for. */
typedef struct made {
    struct made *next;
    int value;
} made;

typedef struct builder {
    tsr_plan *plan;
    tsr_graph *g;
    const tsri_inferred *inferred;
    made **of; /* per tensor */
} builder;

size_t tsri_value_bytes(const tsri_value *v, int rank)
{
    tsr_dims lshape;
    int64_t offset[TSR_MAX_NDIM];
    if (tsr_placement_find(v->placement, rank) < 0)
        return 0;
    tsri_shard(v->shape, v->placement, (tsr_sbp){1, {v->sbp}}, rank, &lshape, offset);
    return (size_t)tsr_dims_count(lshape) * tsr_dtype_size(v->dtype);
}

int tsri_plan_add_value(tsr_plan *plan, const tsri_value *value)
{
    if (!TSRI_PUSH(&plan->scratch, plan->values, plan->nvalues, plan->cvalues))
        return -1;
    tsri_value *v = &plan->values[plan->nvalues];
    int rank = plan->world->rank;
    *v = *value;
    v->first = v->last = -1;
    tsri_shard(v->shape, v->placement, (tsr_sbp){1, {v->sbp}}, rank, &v->lshape, v->offset);
    v->bytes = tsri_value_bytes(v, rank);
    return plan->nvalues++;
}

tsri_item *tsri_plan_add_item(tsr_plan *plan, const tsri_item *item, const int *in, const int *out)
{
    if (!TSRI_PUSH(&plan->scratch, plan->items, plan->nitems, plan->citems))
        return NULL;
    tsri_item *it = &plan->items[plan->nitems];
    *it = *item;
    it->in = tsri_pool_dup(&plan->scratch, in, (size_t)it->nin * sizeof *in);
    it->out = tsri_pool_dup(&plan->scratch, out, (size_t)it->nout * sizeof *out);
    if (!it->in || !it->out)
        return NULL;
    plan->nitems++;
    return it;
}

int tsri_plan_root(const tsr_plan *plan, int v)
{
    while (plan->values[v].storage == TSRI_STORAGE_ALIAS)
        v = plan->values[v].alias;
    return v;
}

static tsr_status remember(builder *b, int tensor, int value)
{
    made *m = value < 0 ? NULL : tsri_pool_alloc(&b->plan->scratch, sizeof *m);
    if (!m)
        return TSR_ERR_NO_MEMORY;
    made **tail = &b->of[tensor];
    while (*tail)
        tail = &(*tail)->next;
    *m = (made){NULL, value};
    *tail = m;
    return TSR_OK;
}

/* One step of a conversion, as an item with a value of its own. */
static tsr_status add_conversion(builder *b, int from, const tsri_box_step *step, tsri_item base,
                                 int *out_value)
{
    tsr_plan *plan = b->plan;
    tsri_value v = plan->values[from];
    v.sbp = step->to;
    v.storage = TSRI_STORAGE_ARENA;
    v.variable = NULL;
    int value = tsri_plan_add_value(plan, &v);
    if (value < 0)
        return TSR_ERR_NO_MEMORY;
    base.kind = tsri_box_is_collective(step->kind) ? TSRI_ITEM_COLLECTIVE
                : step->kind == TSRI_BOX_RELABEL   ? TSRI_ITEM_VIEW
                                                   : TSRI_ITEM_LOCAL_BOX;
    if (base.kind == TSRI_ITEM_VIEW) {
        plan->values[value].storage = TSRI_STORAGE_ALIAS;
        plan->values[value].alias = from;
    }
    base.box = step->kind;
    tsr_sbp1 p = step->from.kind == TSR_SBP_PARTIAL ? step->from : step->to;
    base.reduce = p.kind == TSR_SBP_PARTIAL ? (tsr_reduce_op)p.arg : TSR_REDUCE_SUM;
    base.nin = base.nout = 1;
    base.bucket = -1;
    base.placement = v.placement;
    *out_value = value;
    return tsri_plan_add_item(plan, &base, &from, &value) ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* The value of a tensor in a signature, converting if need be. `why` says who asks. */
static tsr_status get_value(builder *b, const tsr_tensor *t, tsr_sbp1 want, bool bucketable,
                            tsri_loc loc, const char *why, int *out_value)
{
    tsr_plan *plan = b->plan;
    for (const made *m = b->of[t->id]; m; m = m->next)
        if (tsri_sbp1_equal(plan->values[m->value].sbp, want)) {
            *out_value = m->value;
            return TSR_OK;
        }
    int value = b->of[t->id]->value; /* as it was made */
    if (tsr_placement_nranks(t->placement) == 1) {
        /* One rank: all signatures are one. */
        *out_value = value;
        return TSR_OK;
    }
    tsri_box_route route = tsri_box_find(plan->values[value].sbp, want);
    const tsri_item base = {.name = plan->values[value].name,
                            .loc = loc,
                            .backward = t->op->backward,
                            .bucketable = bucketable,
                            .reason = why};
    for (int i = 0; i < route.n; i++) {
        TSRI_TRY(add_conversion(b, value, &route.step[i], base, &value));
        TSRI_TRY(remember(b, t->id, value));
    }
    *out_value = value;
    return TSR_OK;
}

/* The gradient operand of an optimizer op: its reduction can wait and be bucketed. */
static bool is_gradient_operand(const tsri_op *op, int arg)
{
    return (op->kind == TSRI_OP_SGD && arg == op->nin - 2) ||
           (op->kind == TSRI_OP_ADAM && arg == 3);
}

static const char *reason_of(builder *b, const tsri_op *op, tsr_sbp1 want)
{
    char text[TSR_SBP_TEXT_MAX];
    const char *r = tsri_pool_printf(&b->plan->pool, "%s %s reads %s", tsri_op_name(op->kind),
                                     op->name, tsr_sbp_format((tsr_sbp){1, {want}}, text));
    return r ? r : "";
}

static tsr_status build_source(builder *b, const tsri_op *op, int value)
{
    tsr_plan *plan = b->plan;
    tsri_value *v = &plan->values[value];
    if (op->kind == TSRI_OP_VARIABLE) {
        v->storage = TSRI_STORAGE_VARIABLE;
        v->variable = op->variable;
        return TSR_OK;
    }
    v->storage = TSRI_STORAGE_PORT;
    v->port = -1;
    for (int i = 0; i < b->g->nports; i++)
        if (b->g->ports[i].is_input && b->g->ports[i].tensor == op->out[0])
            v->port = i;
    if (v->port < 0 && strcmp(op->name, TSRI_STEP_INPUT) != 0)
        return tsri_fail_at(op->loc, TSR_ERR_STATE,
                            "input '%s' has to be fed: what depends on it can't be evaluated by "
                            "itself",
                            op->name);
    if (!op->from_local || op->sbp.d[0].kind != TSR_SBP_BROADCAST ||
        tsr_placement_nranks(op->placement) == 1)
        return TSR_OK;
    /* Local to global with B: the first rank's value becomes everyone's. */
    tsri_value shared = *v;
    shared.storage = TSRI_STORAGE_ARENA;
    int out = tsri_plan_add_value(plan, &shared);
    const tsri_item base = {.kind = TSRI_ITEM_COLLECTIVE,
                            .nin = 1,
                            .nout = 1,
                            .placement = op->placement,
                            .name = op->name,
                            .loc = op->loc,
                            .broadcast = true,
                            .bucket = -1,
                            .reason = "from_local in B: the first rank's value is everyone's"};
    if (out < 0 || !tsri_plan_add_item(plan, &base, &value, &out))
        return TSR_ERR_NO_MEMORY;
    b->of[op->out[0]->id]->value = out;
    return TSR_OK;
}

/* This rank's groups of a convolution: the split may be along the groups. */
static int64_t groups_here(const builder *b, const tsri_op *op)
{
    bool conv = op->kind == TSRI_OP_CONV2D || op->kind == TSRI_OP_CONV2D_DX ||
                op->kind == TSRI_OP_CONV2D_DW;
    int64_t groups = conv ? op->attrs.conv.groups : 0, offset;
    int at = tsr_placement_find(op->placement, b->plan->world->rank);
    if (conv && at >= 0 && b->inferred->splits_groups[op->id])
        tsr_split(groups, tsr_placement_nranks(op->placement), at, &offset, &groups);
    return groups;
}

static tsr_status build_op(builder *b, const tsri_op *op)
{
    tsr_plan *plan = b->plan;
    const tsri_signature *sig = b->inferred->chosen[op->id];
    int in[TSRI_RULE_MAX_ARGS], out[TSRI_RULE_MAX_ARGS];
    for (int i = 0; i < op->nin; i++) {
        const tsr_tensor *t = op->in[i];
        const char *why = "";
        if (tsr_placement_nranks(op->placement) > 1 &&
            !tsri_sbp1_equal(plan->values[b->of[t->id]->value].sbp, sig->in[i]))
            why = reason_of(b, op, sig->in[i]);
        TSRI_TRY(get_value(b, t, sig->in[i], is_gradient_operand(op, i), op->loc, why, &in[i]));
    }
    for (int i = 0; i < op->nout; i++) {
        const tsr_tensor *t = op->out[i];
        const tsri_value v = {.name = op->name,
                              .dtype = t->dtype,
                              .shape = t->shape,
                              .placement = op->placement,
                              .sbp = sig->out[i],
                              .tensor = t->id};
        out[i] = tsri_plan_add_value(plan, &v);
        if (out[i] < 0)
            return TSR_ERR_NO_MEMORY;
        if (i < 4 && op->writes[i]) {
            plan->values[out[i]].storage = TSRI_STORAGE_VARIABLE;
            plan->values[out[i]].variable = op->writes[i];
        }
        TSRI_TRY(remember(b, t->id, out[i]));
    }
    if (op->kind == TSRI_OP_INPUT || op->kind == TSRI_OP_VARIABLE)
        return build_source(b, op, out[0]);
    tsri_item item = {.kind = TSRI_ITEM_KERNEL,
                      .op = op->kind,
                      .attrs = op->attrs,
                      .nin = op->nin,
                      .nout = op->nout,
                      .placement = op->placement,
                      .name = op->name,
                      .loc = op->loc,
                      .backward = op->backward,
                      .groups = groups_here(b, op),
                      .bucket = -1};
    memcpy(item.writes, op->writes, sizeof item.writes);
    if (op->kind == TSRI_OP_TO_GLOBAL || op->kind == TSRI_OP_RESHAPE) {
        item.kind = TSRI_ITEM_VIEW;
        plan->values[out[0]].storage = TSRI_STORAGE_ALIAS;
        plan->values[out[0]].alias = in[0];
    }
    return tsri_plan_add_item(plan, &item, in, out) ? TSR_OK : TSR_ERR_NO_MEMORY;
}

static tsr_status build_output(builder *b, int i)
{
    tsr_plan *plan = b->plan;
    const tsri_graph_port *from = &b->g->ports[i];
    const tsr_tensor *t = from->tensor;
    const char *why = tsri_pool_printf(&plan->pool, "output '%s'", from->name);
    int value = b->of[t->id]->value;
    tsr_sbp1 sbp = from->is_local ? plan->values[value].sbp : from->sbp.d[0];
    plan->ports[i].sbp = sbp;
    TSRI_TRY(get_value(b, t, sbp, false, from->loc, why ? why : "", &value));
    const tsri_item item = {.kind = TSRI_ITEM_OUTPUT,
                            .nin = 1,
                            .placement = t->placement,
                            .name = from->name,
                            .loc = from->loc,
                            .bucket = -1,
                            .port = i};
    return tsri_plan_add_item(plan, &item, &value, &value) ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* Outputs of variables are taken where the variable is read, before updates; others last. */
static tsr_status build_outputs(builder *b, const tsri_op *only)
{
    for (int i = 0; i < b->g->nports; i++) {
        const tsri_graph_port *port = &b->g->ports[i];
        bool early = port->tensor->op->kind == TSRI_OP_VARIABLE;
        if (!port->is_input && (only ? early && port->tensor->op == only : !early))
            TSRI_TRY(build_output(b, i));
    }
    return TSR_OK;
}

static tsr_status describe_ports(builder *b)
{
    tsr_plan *plan = b->plan;
    for (int i = 0; i < plan->nports; i++) {
        const tsri_graph_port *from = &b->g->ports[i];
        tsri_plan_port *to = &plan->ports[i];
        const tsr_tensor *t = from->tensor;
        int64_t offset[TSR_MAX_NDIM];
        to->is_local = from->is_local;
        to->is_output = !from->is_input;
        if (from->is_input) {
            to->from_local = t->op->from_local;
            to->sbp = t->op->sbp.d[0];
        }
        to->info = (tsr_port){.name = tsri_pool_strdup(&plan->pool, from->name),
                              .is_input = from->is_input,
                              .dtype = t->dtype,
                              .dims = t->shape,
                              .sbp = {1, {to->sbp}},
                              .placement = t->placement};
        tsri_shard(t->shape, t->placement, to->info.sbp, plan->world->rank, &to->info.shard,
                   offset);
        if (tsr_placement_find(t->placement, plan->world->rank) >= 0)
            to->bytes = (size_t)tsr_dims_count(to->info.shard) * tsr_dtype_size(t->dtype);
        if (!to->info.name)
            return TSR_ERR_NO_MEMORY;
    }
    return TSR_OK;
}

/* Names outlive the graph. */
static tsr_status keep_names(tsr_plan *plan)
{
    for (int i = 0; i < plan->nitems; i++)
        if (!(plan->items[i].name = tsri_pool_strdup(&plan->pool, plan->items[i].name)))
            return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < plan->nvalues; i++)
        if (!(plan->values[i].name = tsri_pool_strdup(&plan->pool, plan->values[i].name)))
            return TSR_ERR_NO_MEMORY;
    return TSR_OK;
}

tsr_status tsri_plan_build(tsr_plan *plan, tsr_graph *g, const tsri_inferred *inferred)
{
    builder b = {.plan = plan, .g = g, .inferred = inferred};
    b.of = tsri_pool_alloc(&plan->scratch, (size_t)(g->ntensors + 1) * sizeof *b.of);
    plan->nhooks = g->nhooks;
    plan->hooks = tsri_pool_dup(&plan->pool, g->hooks, (size_t)g->nhooks * sizeof *g->hooks);
    if (!b.of || !plan->hooks)
        return TSR_ERR_NO_MEMORY;
    plan->step_value = g->step_value == &g->own_step ? &plan->own_step : g->step_value;
    plan->ports = tsri_pool_alloc(&plan->pool, (size_t)(g->nports + 1) * sizeof *plan->ports);
    if (!plan->ports)
        return TSR_ERR_NO_MEMORY;
    plan->nports = g->nports;
    for (int i = 0; i < g->nops; i++) {
        if (!inferred->live[i])
            continue;
        plan->info.ops++;
        TSRI_TRY(build_op(&b, g->ops[i]));
        if (g->ops[i]->kind == TSRI_OP_VARIABLE)
            TSRI_TRY(build_outputs(&b, g->ops[i]));
    }
    TSRI_TRY(build_outputs(&b, NULL));
    TSRI_TRY(describe_ports(&b));
    return keep_names(plan);
}
