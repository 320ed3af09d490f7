/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the signatures of a graph within a limit of memory, among them those of variables that
 * the user left to the compiler. */
#include "src/plan/choose/choose.h"

#include <math.h>

#include "src/plan/report/report.h"

/* --- variables without a signature ------------------------------------------------------------ */
void tsri_choosing_begin(tsr_graph *g, const tsr_compile_opts *opts, bool fixes, tsri_pool *pool,
                         tsri_choosing *c)
{
    *c = (tsri_choosing){.g = g, .opts = opts, .pool = pool};
    c->is_open = tsri_pool_alloc(pool, (size_t)g->nops);
    c->is_chosen = tsri_pool_alloc(pool, (size_t)g->nops);
    for (int i = 0; i < g->nops && c->is_open && c->is_chosen; i++) {
        tsr_variable *v = g->ops[i]->kind == TSRI_OP_VARIABLE ? g->ops[i]->variable : NULL;
        c->is_open[i] = v && v->sbp.ndim == 0;
        /* Each rank holds the whole of a value that was given. Only a compile that fixes the
         * signature may cut it into shards, which only communication could put together again. */
        c->is_chosen[i] = c->is_open[i] && (fixes ? tsri_variable_can_move(v) : !v->given);
        if (c->is_open[i] && !c->is_chosen[i])
            v->sbp = v->held;
    }
}

void tsri_choosing_end(tsri_choosing *c)
{
    for (int i = 0; c->is_open && i < c->g->nops; i++)
        if (c->is_open[i])
            c->g->ops[i]->variable->sbp = TSR_AUTO;
}

void tsri_set_inferred(tsri_choosing *c, bool set)
{
    const tsri_inferred *inferred = &c->inferred;
    for (int i = 0; i < c->g->nops; i++)
        if (c->is_chosen[i]) {
            tsr_variable *v = c->g->ops[i]->variable;
            v->inferred = set && inferred->live[i];
            v->sbp = v->inferred ? inferred->chosen[i]->out[0] : TSR_AUTO;
        }
}

/* --- passes ----------------------------------------------------------------------------------- */
static const struct {
    tsri_pass pass;
    tsr_status (*run)(tsr_plan *plan);
    const char *changes; /* what in it changes the seconds of a step; NULL: nothing does */
} passes[] = {
    /* build_plan calls tsri_plan_build itself, as that needs the graph too. */
    {TSRI_PASS_BUILD, NULL, "conversions that are shared"},
    {TSRI_PASS_FUSE, tsri_plan_fuse, "ops that are fused"},
    {TSRI_PASS_LAYOUT, tsri_plan_layout, "copies into other memory layouts"},
    {TSRI_PASS_DEFER, tsri_plan_defer, NULL},
    {TSRI_PASS_ORDER, tsri_plan_order, NULL},
    {TSRI_PASS_SCHEDULE, tsri_plan_schedule, "buckets whose members are converted in several ways"},
};

/* Returns the seconds of all items, by the cost model. */
static double total_seconds(const tsr_plan *plan)
{
    double total = 0;
    for (int i = 0; i < plan->nitems; i++) {
        if (!tsri_item_shows(&plan->items[i]) && plan->items[i].kind != TSRI_ITEM_DEAD)
            total += plan->items[i].cost_s;
    }
    return total;
}

/* Notes as change i of the plan by how many seconds a pass has changed a step. */
static void note_change(tsr_plan *plan, int i, const char *reason)
{
    double seconds = total_seconds(plan);
    plan->change[i] = (tsri_change){reason, seconds - plan->info.step_s};
    plan->info.step_s = seconds;
}

/* Builds the plan anew from chosen signatures: all passes up to the order of items and the
 * lifetimes of values. */
static tsr_status build_plan(tsr_graph *g, tsr_plan *plan, const tsri_inferred *inferred)
{
    tsri_pool_finish(&plan->scratch);
    tsri_pool_init(&plan->scratch, &g->world->mem);
    plan->group = NULL;
    plan->cgroup = 0;
    plan->values = NULL;
    plan->items = NULL;
    plan->entries = NULL;
    plan->nvalues = plan->cvalues = plan->nitems = plan->citems = 0;
    plan->nentries = plan->centries = plan->info.ops = 0;
    plan->info.step_s = inferred->cost;
    TSRI_TRY(tsri_plan_build(plan, g, inferred));
    int nchanges = 0;
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        bool left_out = passes[i].pass == TSRI_PASS_FUSE && plan->opts.no_fusion;
        if (passes[i].run && !left_out)
            TSRI_TRY(passes[i].run(plan));
        TSRI_TRY(tsri_plan_check(plan, passes[i].pass));
        if (passes[i].changes)
            note_change(plan, nchanges++, passes[i].changes);
    }
    return TSR_OK;
}

/* --- within memory ---------------------------------------------------------------------------- */
/* Sets c->bytes to the most that a rank needs for the plan as built, kernels' scratch apart. */
static tsr_status measure_memory(tsri_choosing *c, tsr_plan *plan)
{
    tsri_report r = {.plan = plan};
    tsri_pool_init(&r.pool, &plan->world->mem);
    tsr_status status = tsri_report_memory_make(plan, &r);
    if (status == TSR_OK)
        c->bytes = (size_t)r.memory[0].total;
    tsri_pool_finish(&r.pool);
    return status;
}

tsr_status tsri_build_inferred(tsri_choosing *c, tsr_plan *plan)
{
    tsri_set_inferred(c, true);
    TSRI_TRY(build_plan(c->g, plan, &c->inferred));
    if (!plan->opts.memory_limit)
        return TSR_OK;
    TSRI_TRY(measure_memory(c, plan));
    TSRI_NEED(TSRI_PUSH(c->pool, c->tried, c->ntried, c->ctried));
    c->tried[c->ntried++] = (tsri_tried){c->inferred, c->bytes, c->seeks_leanest};
    return TSR_OK;
}

tsr_status tsri_plan_choose(tsr_plan *plan, tsri_choosing *c)
{
    TSRI_NEED(c->is_open && c->is_chosen);
    c->inferred = (tsri_inferred){0}; /* nothing of this plan is built */
    if (c->updates_tried != plan->opts.infer_updates) {
        c->ntried = 0;
        c->sought_leanest = false;
        c->updates_tried = plan->opts.infer_updates;
    }
    TSRI_TRY(c->leanest ? tsri_choose_leanest(c, plan) : tsri_choose_within(c, plan));
    if (!c->found)
        return TSR_OK;
    plan->info.cost_s = c->inferred.cost;
    plan->info.bound_s = c->inferred.bound;
    plan->relaxed = c->inferred.relaxed;
    /* Inference proves its choice the cheapest with buckets as it counts them. That holds for the
     * plan if the schedule's buckets cost the same. */
    plan->info.exact = c->inferred.exact && fabs(plan->change[TSRI_CHANGES - 1].more_s) <=
                                                TSRI_NO_CHANGE * c->inferred.cost;
    return tsri_plan_give_reasons(plan);
}
