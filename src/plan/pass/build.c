/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boxing: turns a graph whose signatures are chosen into values and items, with a conversion in
 * front of each op that wants a tensor in another signature. Equal conversions are made once.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "placement/placement.h"
#include "src/plan/pass/pass.h"

/* A graph's tensor as far as it exists: its value in each signature that was asked for. */
typedef struct made {
    struct made *next;
    int value;
} made;

typedef struct builder {
    tsri_ir *ir;
    tsr_graph *g;
    const tsri_inferred *inferred;
    made **of;              /* per tensor */
    bool *is_written_twice; /* per tensor that reads a variable */
    tsri_turn turn;         /* of the op that is built; TAIL for outputs */
} builder;

static tsr_status remember(builder *b, int tensor, int value)
{
    made *m = value < 0 ? NULL : tsri_pool_alloc(&b->ir->scratch, sizeof *m);
    TSRI_NEED(m);
    made **tail = &b->of[tensor];
    while (*tail)
        tail = &(*tail)->next;
    *m = (made){NULL, value};
    *tail = m;
    return TSR_OK;
}

tsri_route_query tsri_item_query(const tsri_ir *ir, const tsri_item *it, int pair)
{
    const tsri_value *from = &ir->values[it->in[pair]], *to = &ir->values[it->out[pair]];
    return (tsri_route_query){.shape = from->shape,
                              .element = tsr_dtype_size(from->dtype),
                              .from = {tsri_mesh_of(from->placement), from->layout},
                              .to = {tsri_mesh_of(to->placement), to->layout}};
}

/* One step of a conversion, as an item with a value of its own. */
static tsr_status add_conversion(builder *b, int from, const tsri_route_step *step,
                                 const tsr_placement *placement, tsri_item base, int *out_value)
{
    tsri_ir *ir = b->ir;
    tsri_value v = ir->values[from];
    v.layout = step->to;
    v.storage = TSRI_STORAGE_ARENA;
    v.variable = NULL;
    v.source = v.said = v.is_loss = false;
    v.alternatives = NULL;
    v.placement = placement;
    int value = tsri_ir_add_value(ir, &v);
    if (value < 0)
        return TSR_ERR_NO_MEMORY;
    bool talks = tsri_box_is_collective(step->kind) && step->bytes > 0;
    base.kind = talks                            ? TSRI_ITEM_COLLECTIVE
                : step->kind == TSRI_BOX_RELABEL ? TSRI_ITEM_RELABEL
                                                 : TSRI_ITEM_LOCAL_BOX;
    if (base.kind == TSRI_ITEM_RELABEL) {
        ir->values[value].storage = TSRI_STORAGE_ALIAS;
        ir->values[value].alias = from;
    }
    base.box.step = *step;
    const double every = (double)tsri_item_every(&base);
    base.cost_s = step->cost_s * tsri_item_times(ir, &base) / every;
    base.nin = base.nout = 1;
    base.placement = placement;
    base.box.from = ir->values[from].placement;
    if (!talks)
        base.box.part = (tsri_bucket_part){0};
    if (base.box.part.number)
        base.cost_s = tsri_joint_price(&base.box.joint, 1, base.box.part.share, NULL) / every;
    *out_value = value;
    return tsri_ir_add_item(ir, &base, &from, &value) ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* The route to `want`, and its price: that of a single step in a bucket, if it may wait in one and
 * is cheaper there. */
static tsr_status find_route(const builder *b, const tsri_route_query *q, tsri_item *base,
                             tsri_route *out_route, double *out_price)
{
    TSRI_TRY(tsri_route_find(&b->ir->model, q, out_route));
    *out_price = out_route->cost_s;
    base->box.joint = (tsri_joint){0};
    if (!base->box.part.number)
        return TSR_OK;
    tsri_route single;
    tsri_joint joint = tsri_route_join(&b->ir->model, q, &single);
    double price = joint.joins ? tsri_joint_price(&joint, 1, base->box.part.share, NULL) : INFINITY;
    if (price <= *out_price * (1 + 1e-9)) {
        base->box.joint = joint;
        *out_route = single;
        *out_price = price;
    } else if (out_route->step[0].kind != TSRI_BOX_ALL_GATHER) {
        /* The first of several steps may wait too; inference has not counted on it. */
        tsri_route_query first = *q;
        first.to = (tsri_end){q->from.mesh, out_route->step[0].to};
        base->box.joint = tsri_route_join(&b->ir->model, &first, &single);
        base->box.part.share = 1;
    }
    return TSR_OK;
}

/* The route to `want` from the value of a tensor that is nearest to it; sets base->box.joint. */
static tsr_status nearest(const builder *b, const tsr_tensor *t, const tsr_placement *placement,
                          const tsri_end *want, tsri_item *base, int *out_value,
                          tsri_route *out_route)
{
    const tsri_ir *ir = b->ir;
    double least = INFINITY;
    bool fills = true; /* what is a sum already is nearer than what is made one */
    for (const made *m = b->of[t->id]; m; m = m->next) {
        const tsri_value *v = &ir->values[m->value];
        const tsri_route_query q = {.shape = t->shape,
                                    .element = tsr_dtype_size(t->dtype),
                                    .from = {tsri_mesh_of(v->placement), v->layout},
                                    .to = *want};
        tsri_item member = *base;
        tsri_route route;
        double price;
        TSRI_TRY(find_route(b, &q, &member, &route, &price));
        bool filled = tsri_fills_zeros(v->placement, v->layout.sbp, placement, want->layout.sbp);
        if (filled < fills || (filled == fills && price < least)) {
            fills = filled;
            *out_value = m->value;
            *out_route = route;
            base->box.joint = member.box.joint;
            base->box.part.share = member.box.part.share;
            least = price;
        }
    }
    if (!base->box.joint.joins)
        base->box.part = (tsri_bucket_part){0};
    return TSR_OK;
}

/* --- between kinds of device ------------------------------------------------------------------ */
/* Interns a placement of the same ranks on the host. */
static tsr_status twin_of(const tsri_ir *ir, const tsr_placement *p, const tsr_placement **out)
{
    return tsri_placement_intern(ir->world, TSRI_TARGET_HOST, p->ndim, p->dim, p->ranks, out);
}

/* Crosses to the other kind of device, in one layout on the same ranks: ranks talk as CPUs, so that
 * a rank needs a GPU only if it is named as one. */
static tsr_status add_crossing(builder *b, const tsr_tensor *t, const tsr_placement *to,
                               tsri_item base, int *value)
{
    tsri_ir *ir = b->ir;
    tsri_value v = ir->values[*value];
    base.kind = TSRI_ITEM_LOCAL_BOX;
    base.nin = base.nout = 1;
    base.placement = to;
    base.box.from = v.placement;
    base.box.step = (tsri_route_step){.kind = TSRI_BOX_RELABEL, .from = v.layout, .to = v.layout};
    base.box.part = (tsri_bucket_part){0};
    base.cost_s = tsri_crossing_seconds(v.shape, tsr_dtype_size(v.dtype), to, v.layout.sbp) *
                  tsri_item_times(ir, &base);
    v.storage = TSRI_STORAGE_ARENA;
    v.variable = NULL;
    v.source = v.said = false;
    v.alternatives = NULL;
    v.placement = to;
    int copy = tsri_ir_add_value(ir, &v);
    if (copy < 0 || !tsri_ir_add_item(ir, &base, value, &copy))
        return TSR_ERR_NO_MEMORY;
    *value = copy;
    return remember(b, t->id, copy);
}

/* Returns the turn of a conversion of t for the current op. A value from before the parts is
 * converted once for all of them, unless weights are to be gathered again for backward, so that
 * they take memory for a short time. */
static tsri_turn conversion_turn(const builder *b, const tsr_tensor *t)
{
    const bool once = b->turn == TSRI_TURN_PARTS && t->op->turn == TSRI_TURN_HEAD;
    return once && !b->ir->opts.reshard_after_forward ? TSRI_TURN_HEAD : b->turn;
}

/* The value of a tensor in a signature on a placement, converting if need be. `base` says for whom
 * and why. */
static tsr_status get_value(builder *b, const tsr_tensor *t, const tsr_placement *placement,
                            tsr_sbp sbp, tsri_item base, int *out_value)
{
    tsri_ir *ir = b->ir;
    tsri_end want = {.mesh = tsri_mesh_of(placement)};
    want.layout = tsri_layout_of(&want.mesh, sbp);
    for (const made *m = b->of[t->id]; m; m = m->next) {
        const tsri_value *v = &ir->values[m->value];
        if (v->placement == placement && tsri_layout_equal(&v->layout, &want.layout)) {
            *out_value = m->value;
            return TSR_OK;
        }
    }
    tsri_route route = {0};
    int value = -1;
    base.turn = conversion_turn(b, t);
    TSRI_TRY(nearest(b, t, placement, &want, &base, &value, &route));
    base.name = ir->values[value].name;
    const tsr_placement *from = ir->values[value].placement, *last = placement;
    bool crosses = tsr_placement_device(from) != tsr_placement_device(placement);
    if (crosses && !tsri_placement_can(from, TSRI_CAN_HOST_MEMORY)) {
        TSRI_TRY(twin_of(ir, from, &from));
        TSRI_TRY(add_crossing(b, t, from, base, &value));
    } else if (crosses) {
        TSRI_TRY(twin_of(ir, placement, &placement));
    }
    for (int i = 0; i < route.n; i++) {
        TSRI_TRY(add_conversion(b, value, &route.step[i], route.step[i].on_dst ? placement : from,
                                base, &value));
        TSRI_TRY(remember(b, t->id, value));
        base.box.part = (tsri_bucket_part){0}; /* what follows waits for the bucket */
    }
    if (placement != last)
        TSRI_TRY(add_crossing(b, t, last, base, &value));
    *out_value = value;
    return TSR_OK;
}

static tsr_status build_source(builder *b, const tsri_op *op, int value)
{
    tsri_ir *ir = b->ir;
    tsri_value *v = &ir->values[value];
    if (op->kind == TSRI_OP_VARIABLE) {
        v->storage = TSRI_STORAGE_VARIABLE;
        v->variable = op->variable;
        v->source = true;
        v->fixed = op->variable->scope && !op->latest && !op->differentiated;
        return TSR_OK;
    }
    v->storage = TSRI_STORAGE_PORT;
    v->port = -1;
    for (int i = 0; i < b->g->nports; i++)
        if (b->g->ports[i].is_input && b->g->ports[i].tensor == op->out[0])
            v->port = i;
    if (v->port < 0 && strcmp(op->name, TSRI_STEP_INPUT) != 0 &&
        strcmp(op->name, TSRI_PART_INPUT) != 0)
        return tsri_fail_at(op->loc, TSR_ERR_STATE,
                            "input '%s' has to be fed: what depends on it can't be evaluated by "
                            "itself",
                            op->name);
    uint8_t dims = (uint8_t)tsri_sbp_dims(op->placement, v->layout.sbp, TSR_SBP_BROADCAST);
    if (!op->from_local || !dims)
        return TSR_OK;
    /* Local to global with B: the first rank's value of each group becomes everyone's. */
    tsri_value shared = *v;
    shared.storage = TSRI_STORAGE_ARENA;
    int out = tsri_ir_add_value(ir, &shared);
    const double part = tsri_largest_part(v->shape, op->placement, v->layout.sbp);
    const int64_t bytes = (int64_t)(part * (double)tsr_dtype_size(v->dtype));
    const tsri_item base = {
        .kind = TSRI_ITEM_COLLECTIVE,
        .nin = 1,
        .nout = 1,
        .placement = op->placement,
        .name = tsri_op_called(op),
        .loc = op->loc,
        .box = {.step = {.dims = dims, .from = v->layout, .to = v->layout, .bytes = bytes},
                .from = op->placement,
                .broadcast = true,
                .reason = "from_local in B: the first rank's value is "
                          "everyone's"}};
    if (out < 0 || !tsri_ir_add_item(ir, &base, &value, &out))
        return TSR_ERR_NO_MEMORY;
    b->of[op->out[0]->id]->value = out;
    return TSR_OK;
}

/* This rank's groups of a convolution: the split may be along the groups. */
static int64_t groups_here(const builder *b, const tsri_op *op)
{
    bool conv = tsri_op_def_of(op->kind)->has_groups;
    int64_t groups = conv ? op->attrs.conv.groups : 0, offset;
    int at = tsr_placement_find(op->placement, b->ir->world->rank);
    int index = b->inferred->groups_index[op->id], inner = tsr_placement_nranks(op->placement);
    const tsri_nd_signature *sig = b->inferred->chosen[op->id];
    for (int d = 0; conv && at >= 0 && index >= 0 && d < tsr_placement_ndim(op->placement); d++) {
        int k = tsr_placement_dim(op->placement, d);
        inner /= k;
        if (sig->split[d] >> index & 1)
            tsr_balanced_split(groups, k, at / inner % k, &offset, &groups);
    }
    return groups;
}

/* Operations of a product or a convolution, for figures; element-wise ops and the like count none.
 */
static double flops_of(const tsri_op *op)
{
    return tsri_op_def_of(op->kind)->is_product ? tsri_op_flops(op) : 0;
}

static tsr_status get_operands(builder *b, const tsri_op *op, int *in)
{
    const tsri_nd_signature *sig = b->inferred->chosen[op->id];
    for (int i = 0; i < op->nin; i++) {
        const tsr_tensor *t = op->in[i];
        tsri_item base = {.loc = op->loc,
                          .backward = t->op->backward,
                          .only_if = op->only_if,
                          .every = tsri_op_every(op)};
        base.box.part = b->inferred->gradient[t->id];
        TSRI_TRY(get_value(b, t, op->placement, sig->in[i], base, &in[i]));
    }
    return TSR_OK;
}

/* Makes a value the new one of a variable: over what it had, if the graph reads that. */
static void store_in_variable(const builder *b, int value, tsr_variable *var)
{
    tsri_value *v = &b->ir->values[value];
    const tsr_tensor *read = tsri_graph_find_read(b->g, var);
    if (read && b->of[read->id]) {
        v->storage = TSRI_STORAGE_ALIAS;
        v->alias = b->of[read->id]->value;
    } else {
        v->storage = TSRI_STORAGE_VARIABLE;
        v->variable = var;
    }
}

/* Returns the signature of a variable in this plan: the inferred one if the user has specified
 * none.
 */
static tsr_sbp signature_of(const builder *b, const tsr_variable *var)
{
    const tsr_tensor *read = var->sbp.ndim ? NULL : tsri_graph_find_read(b->g, var);
    return read && b->inferred->live[read->op->id] ? b->inferred->chosen[read->op->id]->out[0]
                                                   : var->sbp;
}

/* Notes the variables that get several updates, of which only the last one is stored. */
static void note_writes(builder *b)
{
    for (int i = 0; i < b->g->ntensors; i++) {
        const tsr_tensor *t = b->g->tensors[i];
        const tsr_tensor *read = t->superseded ? tsri_graph_find_read(b->g, t->writes) : NULL;
        if (read)
            b->is_written_twice[read->id] = true;
    }
}

/* Returns the condition of storing the results of an op in variables: where an earlier update is
 * stored with them, all runs store them. */
static const tsri_condition *condition_of_storing(const builder *b, const tsri_op *op)
{
    for (int i = 0; i < op->nout; i++) {
        const tsr_tensor *t = op->out[i];
        const tsr_tensor *read = t->writes ? tsri_graph_find_read(b->g, t->writes) : NULL;
        if (read && b->is_written_twice[read->id])
            return NULL;
    }
    return op->only_if;
}

/* Brings result i of an op to the variable that it is the new value of, in the variable's
 * signature. Nothing is left to do where the op updates the variable in place. */
static tsr_status keep_result(builder *b, const tsri_op *op, int i, int value)
{
    tsri_ir *ir = b->ir;
    tsr_variable *var = op->out[i]->writes;
    if (!var || op->out[i]->superseded)
        return TSR_OK;
    const tsri_item base = {.loc = op->loc,
                            .backward = op->backward,
                            .turn = op->turn,
                            .only_if = condition_of_storing(b, op),
                            .every = condition_of_storing(b, op) ? tsri_op_every(op) : 1,
                            .box = {.part = b->inferred->bucket[op->id],
                                    .part_of = 1 + i,
                                    .reason = "the variable keeps its signature"}};
    TSRI_TRY(get_value(b, op->out[i], op->placement, signature_of(b, var), base, &value));
    const tsri_value *root = &ir->values[tsri_ir_root(ir, value)];
    if (root->storage == TSRI_STORAGE_VARIABLE && root->variable == var)
        return TSR_OK;
    if (ir->values[value].storage == TSRI_STORAGE_ARENA) {
        store_in_variable(b, value, var);
        return TSR_OK;
    }
    /* A view of bytes that are not the variable's. */
    int copy = tsri_plan_add_copy(ir, &base, value, ir->values[value].nhwc);
    if (copy < 0)
        return TSR_ERR_NO_MEMORY;
    store_in_variable(b, copy, var);
    return TSR_OK;
}

/* Notes whether a signature was said, and where. */
static void note_said(const tsri_op *op, tsri_value *v)
{
    const tsr_variable *var = op->variable;
    v->said = op->sbp.ndim > 0;
    v->said_by = v->said ? op->said_by : NULL;
    v->said_at = v->said && !v->said_by ? op->loc : (tsri_loc){0};
    if (!var)
        return;
    v->said = var->sbp.ndim > 0 && !var->inferred && (var->scope || var->said_by);
    v->said_by = v->said ? var->said_by : NULL;
    v->said_at = v->said ? var->said_at : (tsri_loc){0};
}

static tsr_status add_results(builder *b, const tsri_op *op, const int *in, int *out)
{
    tsri_ir *ir = b->ir;
    const tsri_mesh mesh = tsri_mesh_of(op->placement);
    for (int i = 0; i < op->nout; i++) {
        const tsr_tensor *t = op->out[i];
        tsri_value v = {.name = tsri_op_called(op),
                        .dtype = t->dtype,
                        .shape = t->shape,
                        .placement = op->placement,
                        .layout = tsri_layout_of(&mesh, b->inferred->chosen[op->id]->out[i]),
                        .tensor = t->origin,
                        .is_loss = t->is_loss};
        note_said(op, &v);
        out[i] = tsri_ir_add_value(ir, &v);
        if (out[i] < 0)
            return TSR_ERR_NO_MEMORY;
        int over = tsri_op_over(op->kind, i);
        if (over >= 0) {
            ir->values[out[i]].storage = TSRI_STORAGE_ALIAS;
            ir->values[out[i]].alias = in[over];
        }
        TSRI_TRY(remember(b, t->id, out[i]));
    }
    return TSR_OK;
}

/* Keeps what else the op could do, if that was asked for: a copy that outlives inference. */
static tsr_status keep_alternatives(builder *b, const tsri_op *op, const int *out)
{
    tsri_pool *pool = &b->ir->program;
    if (!b->inferred->alternatives || !op->nout)
        return TSR_OK;
    tsri_alternatives *alt = tsri_pool_dup(pool, &b->inferred->alternatives[op->id], sizeof *alt);
    if (alt) {
        alt->nin = op->nin;
        alt->nout = op->nout;
    }
    for (int i = 0; alt && i < alt->n; i++)
        if (!(alt->sig[i] = tsri_pool_dup(pool, alt->sig[i], sizeof *alt->sig[i])))
            return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < op->nout; i++)
        b->ir->values[out[i]].alternatives = alt;
    return alt ? TSR_OK : TSR_ERR_NO_MEMORY;
}

static tsr_status build_op(builder *b, const tsri_op *op)
{
    tsri_ir *ir = b->ir;
    int in[TSRI_RULE_MAX_ARGS], out[TSRI_RULE_MAX_ARGS];
    b->turn = op->turn;
    TSRI_TRY(get_operands(b, op, in));
    TSRI_TRY(add_results(b, op, in, out));
    TSRI_TRY(keep_alternatives(b, op, out));
    if (op->kind == TSRI_OP_INPUT || op->kind == TSRI_OP_VARIABLE)
        return build_source(b, op, out[0]);
    if (op->kind == TSRI_OP_RANK_SUM)
        return tsri_plan_build_rank_sum(ir, op, in, out);
    tsri_item item = {.kind = TSRI_ITEM_KERNEL,
                      .nin = op->nin,
                      .nout = op->nout,
                      .placement = op->placement,
                      .name = tsri_op_called(op),
                      .loc = op->loc,
                      .backward = op->backward,
                      .turn = op->turn,
                      .cost_s = b->inferred->op_cost[op->id],
                      .only_if = tsri_op_over(op->kind, 0) >= 0 ? op->only_if
                                                                : condition_of_storing(b, op),
                      .kernel = {.op = op->kind,
                                 .attrs = op->attrs,
                                 .updates = op->out[0]->writes != NULL,
                                 .recomputes = op->again,
                                 .id = op->origin,
                                 .groups = groups_here(b, op),
                                 .flops = flops_of(op),
                                 .dtype = tsri_op_computes_in(op)}};
    if (tsri_op_def_of(op->kind)->is_view) {
        item.kind = TSRI_ITEM_VIEW;
        ir->values[out[0]].storage = TSRI_STORAGE_ALIAS;
        ir->values[out[0]].alias = in[0];
    }
    TSRI_NEED(tsri_ir_add_item(ir, &item, in, out));
    for (int i = 0; i < op->nout; i++)
        TSRI_TRY(keep_result(b, op, i, out[i]));
    return TSR_OK;
}

static tsr_status build_output(builder *b, int i)
{
    tsri_ir *ir = b->ir;
    const tsri_graph_port *from = &b->g->ports[i];
    const tsr_tensor *t = from->tensor;
    int value = b->of[t->id]->value;
    tsr_sbp sbp = from->is_local ? ir->values[value].layout.sbp : from->sbp;
    ir->ports[i].info.sbp = sbp;
    const tsri_item base = {.loc = from->loc, .backward = t->op->backward};
    TSRI_TRY(get_value(b, t, from->placement, sbp, base, &value));
    const tsri_item item = {.kind = TSRI_ITEM_OUTPUT,
                            .nin = 1,
                            .placement = from->placement,
                            .name = from->name,
                            .loc = from->loc,
                            .turn = b->turn,
                            .port = i};
    return tsri_ir_add_item(ir, &item, &value, &value) ? TSR_OK : TSR_ERR_NO_MEMORY;
}

static tsr_status describe_ports(builder *b)
{
    tsri_ir *ir = b->ir;
    for (int i = 0; i < ir->nports; i++) {
        const tsri_graph_port *from = &b->g->ports[i];
        tsri_ir_port *to = &ir->ports[i];
        const tsr_tensor *t = from->tensor;
        int64_t offset[TSR_MAX_NDIM];
        to->is_local = from->is_local;
        to->is_output = !from->is_input;
        to->is_loss = to->is_output && t->is_loss;
        tsr_sbp sbp = to->info.sbp;
        if (from->is_input) {
            to->from_local = t->op->from_local;
            sbp = t->op->sbp.ndim ? t->op->sbp : b->inferred->chosen[t->op->id]->out[0];
        }
        to->info = (tsr_port){.name = tsri_pool_strdup(&ir->program, from->name),
                              .is_input = from->is_input,
                              .dtype = t->dtype,
                              .dims = t->shape,
                              .sbp = sbp,
                              .placement = from->placement};
        tsri_shard(t->shape, from->placement, sbp, ir->world->rank, &to->info.shard, offset);
        if (tsr_placement_find(from->placement, ir->world->rank) >= 0)
            to->bytes = (size_t)tsr_dims_count(to->info.shard) * tsr_dtype_size(t->dtype);
        TSRI_NEED(to->info.name);
    }
    return TSR_OK;
}

/* Names outlive the graph. */
static tsr_status keep_names(tsri_ir *ir)
{
    for (int i = 0; i < ir->nitems; i++)
        if (!(ir->items[i].name = tsri_pool_strdup(&ir->program, ir->items[i].name)))
            return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < ir->nvalues; i++)
        if (!(ir->values[i].name = tsri_pool_strdup(&ir->program, ir->values[i].name)))
            return TSR_ERR_NO_MEMORY;
    return TSR_OK;
}

/* The lines that runs print; the graph may go before the plan. */
static tsr_status copy_prints(tsri_ir *ir, const tsr_graph *g)
{
    ir->nprints = g->nprints;
    if (!g->nprints)
        return TSR_OK;
    ir->prints = tsri_pool_dup(&ir->program, g->prints, (size_t)g->nprints * sizeof *g->prints);
    TSRI_NEED(ir->prints);
    for (int i = 0; i < g->nprints; i++) {
        ir->prints[i].label = tsri_pool_strdup(&ir->program, g->prints[i].label);
        ir->prints[i].port = tsri_pool_strdup(&ir->program, g->prints[i].port);
        TSRI_NEED(ir->prints[i].label && ir->prints[i].port);
    }
    return TSR_OK;
}

/* Keeps the signatures of all ops, for pricing the plan anew. */
static tsr_status keep_chosen(builder *b)
{
    tsri_ir *ir = b->ir;
    const size_t n = (size_t)b->g->nops;
    size_t live = 0;
    if (!b->inferred->alternatives)
        return TSR_OK;
    for (size_t i = 0; i < n; i++)
        live += b->inferred->live[i];
    tsri_nd_signature *copies = tsri_pool_alloc(&ir->program, live * sizeof *copies);
    ir->chosen = tsri_pool_alloc(&ir->program, n * sizeof(tsri_nd_signature *));
    TSRI_NEED(copies && ir->chosen);
    for (size_t i = 0; i < n; i++)
        if (b->inferred->live[i]) {
            *copies = *b->inferred->chosen[i];
            ir->chosen[b->g->ops[i]->origin] = copies++;
        }
    return TSR_OK;
}

/* Brings the items into the order of their turns. */
static tsr_status order_turns(tsri_ir *ir)
{
    const tsri_item *old = ir->items;
    const int n = ir->nitems;
    TSRI_TRY(tsri_ir_new_items(ir, n));
    for (int turn = TSRI_TURN_HEAD; turn <= TSRI_TURN_TAIL; turn++)
        for (int i = 0; i < n; i++)
            if ((int)old[i].turn == turn)
                TSRI_NEED(tsri_ir_add_item(ir, &old[i], old[i].in, old[i].out));
    return TSR_OK;
}

tsr_status tsri_plan_build(tsri_ir *ir, tsr_graph *g, const tsri_inferred *inferred)
{
    builder b = {.ir = ir, .g = g, .inferred = inferred};
    b.of = tsri_pool_alloc(&ir->scratch, (size_t)g->ntensors * sizeof *b.of);
    b.is_written_twice = tsri_pool_alloc(&ir->scratch, (size_t)g->ntensors);
    ir->parts = g->step.parts > 1 ? g->step.parts : 1;
    ir->nhooks = g->nhooks;
    ir->runner = g->runner;
    ir->hooks = tsri_pool_dup(&ir->program, g->hooks, (size_t)g->nhooks * sizeof *g->hooks);
    TSRI_NEED(b.of && b.is_written_twice && ir->hooks);
    note_writes(&b);
    TSRI_TRY(copy_prints(ir, g));
    ir->step_value = g->step_value ? g->step_value : &ir->own_step;
    ir->ports = tsri_pool_alloc(&ir->program, (size_t)g->nports * sizeof *ir->ports);
    TSRI_NEED(ir->ports);
    ir->nports = g->nports;
    for (int i = 0; i < g->nops; i++) {
        if (!inferred->live[i])
            continue;
        ir->nops++;
        TSRI_TRY(build_op(&b, g->ops[i]));
    }
    b.turn = tsri_ir_last_turn(ir);
    for (int i = 0; i < g->nports; i++)
        if (!g->ports[i].is_input)
            TSRI_TRY(build_output(&b, i));
    if (ir->parts > 1)
        TSRI_TRY(order_turns(ir));
    TSRI_TRY(describe_ports(&b));
    TSRI_TRY(keep_chosen(&b));
    return keep_names(ir);
}
