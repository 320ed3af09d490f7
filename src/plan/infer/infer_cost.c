/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "placement/placement.h"
#include "src/core/rng.h"
#include "src/plan/infer/infer.h"

tsr_status tsri_made_side(tsri_problem *p, const tsr_tensor *t, const tsri_side **out)
{
    tsri_sides *all;
    TSRI_TRY(tsri_sides_of(p, p->strat[t->op->id], &all));
    *out = &all->out[t->out];
    return TSR_OK;
}

bool tsri_fills_zeros(const tsr_placement *from_placement, tsr_sbp from,
                      const tsr_placement *to_placement, tsr_sbp to)
{
    unsigned sums = 0;
    for (int d = 0; d < to.ndim; d++) {
        bool is_sum = to.d[d].kind == TSR_SBP_PARTIAL && to.d[d].arg == TSR_REDUCE_SUM;
        bool was_sum =
            from_placement == to_placement && !memcmp(&from.d[d], &to.d[d], sizeof to.d[d]);
        sums |= is_sum && !was_sum;
    }
    return sums;
}

/* --- costs ------------------------------------------------------------------------------------ */
uint64_t tsri_hash_pointers(const void *a, const void *b)
{
    uintptr_t key[2] = {(uintptr_t)a, (uintptr_t)b};
    return tsri_hash(TSRI_HASH_INIT, key, sizeof key);
}

static tsri_parallel *parallel_of(const tsri_problem *p, const tsr_placement *placement)
{
    for (int i = 0; i < p->nparallel; i++)
        if (p->parallel[i].placement == placement)
            return &p->parallel[i];
    return NULL;
}

unsigned tsri_parallel_dims(const tsri_problem *p, const tsr_placement *placement)
{
    const tsri_parallel *parallel = parallel_of(p, placement);
    return parallel ? parallel->dims : 0;
}

/* The signature in which ops use a variable, as far as the program says it. */
typedef struct said_use {
    unsigned dims; /* those in which all uses are B or S */
    bool any;      /* some op uses it */
    bool open;     /* some op uses it in whatever signature is cheapest */
} said_use;

/* Notes, by tensor, how the variables' values are used. */
static void find_uses(const tsri_problem *p, said_use *uses)
{
    const tsr_graph *g = p->g;
    for (int i = 0; i < g->nops; i++) {
        const tsri_op *op = g->ops[i];
        bool is_update = tsri_op_gradient_operand(op->kind, op->nin) >= 0;
        for (int j = 0; j < op->nin && p->out->live[i] && !is_update; j++) {
            if (op->in[j]->op->kind != TSRI_OP_VARIABLE)
                continue;
            said_use *u = &uses[op->in[j]->id];
            unsigned dims = tsri_sbp_dims(op->placement, op->sbp, TSR_SBP_BROADCAST) |
                            tsri_sbp_dims(op->placement, op->sbp, TSR_SBP_SPLIT);
            u->open |= op->kind != TSRI_OP_TO_GLOBAL || !op->sbp.ndim;
            u->dims = u->any ? u->dims & dims : dims;
            u->any = true;
        }
    }
}

/* The dimensions on which an update's parameter is as the program says: B where it is kept; or B or
 * S wherever it is used. */
static unsigned said_dims(const tsri_op *op, const said_use *uses)
{
    const tsr_tensor *value = op->in[0];
    const said_use *u = value->op->kind == TSRI_OP_VARIABLE ? &uses[value->id] : NULL;
    return u && u->any && !u->open
               ? u->dims
               : tsri_sbp_dims(op->placement, tsri_kept_signature(op), TSR_SBP_BROADCAST);
}

tsr_status tsri_infer_parallel(tsri_problem *p)
{
    tsr_graph *g = p->g;
    said_use *uses = tsri_pool_alloc(p->pool, (size_t)g->ntensors * sizeof *uses);
    TSRI_NEED(uses);
    find_uses(p, uses);
    for (int i = 0; i < g->nops; i++) {
        const tsri_op *op = g->ops[i];
        if (!p->out->live[i] || tsri_op_gradient_operand(op->kind, op->nin) < 0)
            continue;
        /* The mean of gradients over runs is no parameter: updates alone read it. */
        const tsr_tensor *value = op->in[0];
        if (value->op->kind == TSRI_OP_VARIABLE && !uses[value->id].any)
            continue;
        tsri_parallel *known = parallel_of(p, op->placement);
        unsigned whole = said_dims(op, uses);
        if (known)
            known->dims &= whole;
        else if (!TSRI_PUSH(p->pool, p->parallel, p->nparallel, p->cparallel))
            return TSR_ERR_NO_MEMORY;
        else
            p->parallel[p->nparallel++] = (tsri_parallel){op->placement, whole};
    }
    for (int k = 0; k < p->nparallel; k++) {
        unsigned split = 0;
        for (int i = 0; i < g->nops; i++)
            if (p->out->live[i] && g->ops[i]->placement == p->parallel[k].placement &&
                g->ops[i]->kind != TSRI_OP_VARIABLE)
                split |= tsri_sbp_dims(g->ops[i]->placement, g->ops[i]->sbp, TSR_SBP_SPLIT);
        p->parallel[k].dims &= split;
    }
    return TSR_OK;
}

static bool same_on(tsr_sbp a, tsr_sbp b, unsigned dims)
{
    for (int d = 0; d < a.ndim; d++)
        if (dims >> d & 1 && (a.d[d].kind != b.d[d].kind || a.d[d].arg != b.d[d].arg))
            return false;
    return true;
}

/* Forbids to take what is split along the data out of its splits, where it can stay in them. */
static void keep_splits(const tsri_problem *p, tsri_conversion *c)
{
    const tsri_parallel *parallel = parallel_of(p, c->from_placement);
    for (int i = 0; parallel && i < c->from->n; i++) {
        tsr_sbp from = c->from->sig[i];
        unsigned dims = parallel->dims & tsri_sbp_dims(c->from_placement, from, TSR_SBP_SPLIT);
        bool can_stay = false;
        for (int j = 0; j < c->to->n; j++)
            can_stay |= same_on(from, c->to->sig[j], dims);
        for (int j = 0; j < c->to->n && can_stay; j++)
            if (!same_on(from, c->to->sig[j], dims))
                c->cost[i * c->to->n + j] = INFINITY;
    }
}

/* Adds the time of crossing between kinds of device. A value leaves a GPU before any conversion and
 * enters a GPU after all conversions: in between, the ranks convert it as CPUs. */
static void add_crossings(tsri_conversion *c)
{
    const bool leaves = !tsri_placement_can(c->from_placement, TSRI_CAN_HOST_MEMORY);
    const tsri_siglist *crossing = leaves ? c->from : c->to;
    const tsr_placement *place = leaves ? c->from_placement : c->to_placement;
    for (int i = 0; i < c->from->n; i++)
        for (int j = 0; j < c->to->n; j++)
            c->cost[i * c->to->n + j] += (float)tsri_crossing_seconds(
                c->shape, c->element, place, crossing->sig[leaves ? i : j]);
}

/* Returns how often a step converts t. A total, and a value from before the micro-batches, are
 * converted once; a weight is converted in each micro-batch if the options ask to gather it anew.
 */
static int conversion_times(const tsr_tensor *t)
{
    const tsri_step_form *form = &t->graph->step;
    if (form->regathers && form->parts > 1 && t->op->kind == TSRI_OP_VARIABLE)
        return form->parts;
    return tsri_op_def_of(t->op->kind)->collects ? 1 : tsri_op_times(t->op);
}

tsr_status tsri_find_conversion(tsri_problem *p, const tsr_tensor *t, int64_t every,
                                const tsr_placement *from_place, const tsri_siglist *from,
                                const tsr_placement *to_place, const tsri_siglist *to,
                                tsri_conversion **out)
{
    size_t element = tsr_dtype_size(t->dtype);
    bool of_variable = t->op->kind == TSRI_OP_VARIABLE || t->writes; /* its value, old or new */
    const int times = conversion_times(t);
    tsri_conversion **bucket =
        &p->kept.conversions[tsri_hash_pointers(from, to) % TSRI_INFER_BUCKETS];
    for (tsri_conversion *c = *bucket; c; c = c->next)
        if (c->from == from && c->to == to && c->from_placement == from_place &&
            c->to_placement == to_place && c->element == element && c->of_variable == of_variable &&
            c->times == times && c->every == every && tsr_dims_equal(c->shape, t->shape)) {
            *out = c;
            return TSR_OK;
        }
    tsri_conversion *c = tsri_pool_alloc(p->pool, sizeof *c);
    TSRI_NEED(c);
    *c = (tsri_conversion){.next = *bucket,
                           .shape = t->shape,
                           .element = element,
                           .from_placement = from_place,
                           .to_placement = to_place,
                           .from = from,
                           .to = to,
                           .of_variable = of_variable,
                           .times = times,
                           .every = every};
    c->cost = tsri_pool_alloc(p->pool, (size_t)from->n * (size_t)to->n * sizeof *c->cost);
    TSRI_NEED(c->cost);
    tsri_mesh a = tsri_mesh_of(from_place), b = tsri_mesh_of(to_place);
    const bool known = from_place == to_place && tsr_placement_ndim(from_place) > 2;
    if (!known)
        tsri_spend_prices(p, (double)from->n * to->n);
    TSRI_TRY(known ? tsri_known_costs(p, c)
                   : tsri_route_costs(p->m, p->pool->mem, t->shape, element, &a, from->n, from->sig,
                                      &b, to->n, to->sig, c->cost));
    if (!of_variable && from_place == to_place)
        keep_splits(p, c);
    if (tsr_placement_device(from_place) != tsr_placement_device(to_place))
        add_crossings(c);
    for (int i = 0; i < from->n * to->n && (times > 1 || every > 1); i++)
        c->cost[i] *= (float)times / (float)every;
    *bucket = c;
    *out = c;
    return TSR_OK;
}

float *tsri_find_matrix(tsri_problem *p, const void *from, const void *to, double share)
{
    for (tsri_matrix *m = p->kept.matrices[tsri_hash_pointers(from, to) % TSRI_INFER_BUCKETS]; m;
         m = m->next)
        if (m->from == from && m->to == to && m->share == share)
            return m->cost;
    return NULL;
}

tsr_status tsri_add_matrix(tsri_problem *p, const void *from, const void *to, double share,
                           float *cost)
{
    tsri_matrix **bucket = &p->kept.matrices[tsri_hash_pointers(from, to) % TSRI_INFER_BUCKETS];
    tsri_matrix *m = tsri_pool_alloc(p->pool, sizeof *m);
    TSRI_NEED(m);
    *m = (tsri_matrix){*bucket, from, to, share, cost};
    *bucket = m;
    return TSR_OK;
}
