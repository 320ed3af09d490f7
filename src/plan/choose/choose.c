/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the signatures of a graph within a limit of memory, among them those of variables that
 * the user left to the compiler. */
#include "src/plan/choose/choose.h"

#include <math.h>

#include "src/core/clock.h"
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

/* Gives variables the signatures that were chosen for them (set), or makes them AUTO again. */
static void set_inferred(tsri_choosing *c, bool set)
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
    {TSRI_PASS_RESHARD, tsri_plan_reshard, "weights that are gathered again"},
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

/* Builds the plan of what c->inferred has, and measures it. */
static tsr_status build_inferred(tsri_choosing *c, tsr_plan *plan)
{
    set_inferred(c, true);
    TSRI_TRY(build_plan(c->g, plan, &c->inferred));
    return plan->opts.memory_limit ? measure_memory(c, plan) : TSR_OK;
}

/* Infers signatures of which a rank needs at most `limit` bytes (0: any) by inference's estimate,
 * and builds their plan. Where there are none, c->inferred.fits is false, and nothing is built. */
static tsr_status try_limit(tsri_choosing *c, tsr_plan *plan, double limit, bool quick)
{
    const tsri_infer_opts opts = {.memory_limit = (int64_t)limit,
                                  .quick_within = quick,
                                  .alternatives = plan->opts.alternatives,
                                  .bucket_bytes = plan->opts.bucket_mb * 1048576,
                                  .infer_updates = plan->opts.infer_updates};
    double started_at = tsri_now_s();
    set_inferred(c, false);
    c->inferred = (tsri_inferred){0};
    TSRI_TRY(tsri_infer(c->g, &plan->model, &opts, c->pool, &c->inferred));
    plan->info.infer_s += tsri_now_s() - started_at;
    return c->inferred.fits ? build_inferred(c, plan) : TSR_OK;
}

/* No plan is looked for within a limit that what was not found within is so many times of, by the
 * least that a plan so far needs of its estimate. */
static const double hopeless = 1.33;

/*
 * Builds the fastest plan within the limit, and sets c->found to whether there is one. Inference
 * only estimates a rank's memory, as results in place, layouts, buckets and gaps come later. So the
 * fastest plan is built and measured, and inference is asked for less by its own estimate: in
 * proportion where a limit tells how much less, until the plan that is built fits, or inference
 * finds nothing. Estimates that it finds nothing within grow by ever larger steps.
 */
static tsr_status choose_within(tsri_choosing *c, tsr_plan *plan)
{
    enum { MOST_TRIES = 8 };
    const double limit = (double)plan->opts.memory_limit - (double)c->reserve;
    TSRI_TRY(try_limit(c, plan, 0, false));
    c->found = !plan->opts.memory_limit || (double)c->bytes <= limit;
    if (c->found || limit <= 0)
        return TSR_OK;
    /* Limits in bytes by inference's estimate. Inference finds nothing within `low`, and the plan
     * that it finds within `high` is too large. */
    double low = 0, high = (double)c->inferred.peak, step = 1.1;
    double next = high * limit / (double)c->bytes, share = (double)c->bytes / high;
    for (int i = 0; i < MOST_TRIES && high - low > 0.01 * high; i++) {
        double asked = next > low && next < high ? next : 0.4 * low + 0.6 * high;
        TSRI_TRY(try_limit(c, plan, asked, false));
        if (!c->inferred.fits) {
            low = fmax(asked, (double)c->inferred.least);
            if (share * low > hopeless * limit)
                return TSR_OK;
            next = step * low;
            step *= step;
            continue;
        }
        c->found = (double)c->bytes <= limit;
        if (c->found)
            return TSR_OK;
        high = fmin((double)c->inferred.peak, asked);
        share = fmin(share, (double)c->bytes / high);
        next = asked * 0.98 * limit / (double)c->bytes;
    }
    return TSR_OK;
}

/* Takes the fastest plan that the limit admits and that needs no more than the leanest, in its
 * place, where it is to be used. */
static tsr_status hasten_leanest(tsri_choosing *c, tsr_plan *plan, double asked)
{
    const size_t least_bytes = c->bytes;
    const tsri_inferred leanest = c->inferred;
    if (least_bytes + c->reserve > plan->opts.memory_limit)
        return TSR_OK;
    TSRI_TRY(try_limit(c, plan, asked, false));
    if (c->inferred.fits && c->bytes <= least_bytes)
        return TSR_OK;
    set_inferred(c, false);
    c->inferred = leanest;
    return build_inferred(c, plan);
}

/* Builds the plan that needs least memory a rank, whatever the limit is, so that every refused
 * limit is compared with the same plan. It is searched quickly. */
static tsr_status choose_leanest(tsri_choosing *c, tsr_plan *plan)
{
    enum { MOST_TRIES = 6, TRIES_OF_LARGE = 3, LARGE = 4000 };
    const int most = c->g->nops > LARGE ? TRIES_OF_LARGE : MOST_TRIES;
    TSRI_TRY(try_limit(c, plan, 0, false));
    double low = 0, high = (double)c->inferred.peak, asked = 0, asked_best = 0;
    size_t least_bytes = c->bytes;
    tsri_inferred best = c->inferred;
    for (int i = 0; i < most && high - low > 0.01 * high; i++) {
        asked = 0.4 * low + 0.6 * high;
        TSRI_TRY(try_limit(c, plan, asked, true));
        low = fmax(low, (double)c->inferred.least);
        if (!c->inferred.fits) {
            low = fmax(low, asked);
            continue;
        }
        high = fmin((double)c->inferred.peak, asked);
        if (c->bytes < least_bytes) {
            least_bytes = c->bytes;
            best = c->inferred;
            asked_best = asked;
        }
    }
    c->found = true;
    if (asked != asked_best || !asked) {
        set_inferred(c, false);
        c->inferred = best;
        TSRI_TRY(build_inferred(c, plan));
    }
    return asked_best > 0 ? hasten_leanest(c, plan, asked_best) : TSR_OK;
}

tsr_status tsri_plan_choose(tsr_plan *plan, tsri_choosing *c)
{
    TSRI_NEED(c->is_open && c->is_chosen);
    TSRI_TRY(c->leanest ? choose_leanest(c, plan) : choose_within(c, plan));
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
