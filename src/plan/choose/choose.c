/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the signatures of a graph within a limit of memory, among them those of variables that
 * the user left to the compiler. */
#include "src/plan/choose/choose.h"
#include "src/ir/text/text.h"
#include "src/plan/pass/pass.h"

#include <math.h>

/* --- variables without a signature ------------------------------------------------------------ */
void tsri_choosing_begin(tsr_graph *declared, tsr_graph *g, const tsr_compile_opts *opts,
                         bool fixes, tsri_pool *pool, tsri_choosing *c)
{
    *c = (tsri_choosing){.declared = declared,
                         .g = g,
                         .opts = opts,
                         .pool = pool,
                         .work = opts->search_s * TSRI_WORK_PER_S};
    tsri_pool_init(&c->inferring, &g->world->mem);
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

/* Makes the variables of the marked ops AUTO again. */
static void free_variables(const tsri_choosing *c, const bool *which)
{
    for (int i = 0; which && i < c->g->nops; i++)
        if (which[i]) {
            c->g->ops[i]->variable->sbp = TSR_AUTO;
            c->g->ops[i]->variable->inferred = false;
        }
}

/* Sets the variables' signatures to those of the chosen plan. */
static void fix_variables(tsri_choosing *c)
{
    for (int i = 0; i < c->g->nops; i++)
        if (c->is_chosen[i] && c->inferred.live[i]) {
            c->g->ops[i]->variable->sbp = c->inferred.chosen[i]->out[0];
            c->g->ops[i]->variable->inferred = true;
        }
}

void tsri_choosing_end(tsri_choosing *c, bool frees)
{
    tsri_pool_finish(&c->inferring);
    if (frees)
        free_variables(c, c->is_open);
}

tsr_status tsri_plan_choose(tsr_plan *plan, tsri_choosing *c)
{
    TSRI_NEED(c->is_open && c->is_chosen);
    c->inferred = (tsri_inferred){0}; /* nothing of this plan is built */
    free_variables(c, c->is_chosen);
    if (c->updates_tried != plan->ir.opts.infer_updates) {
        c->ntried = 0;
        c->sought_leanest = false;
        c->updates_tried = plan->ir.opts.infer_updates;
    }
    TSRI_TRY(c->leanest ? tsri_choose_leanest(c, plan) : tsri_choose_within(c, plan));
    if (!c->found)
        return TSR_OK;
    fix_variables(c);
    plan->info.ops = plan->ir.nops;
    plan->info.step_s = plan->ir.step_s;
    plan->info.cost_s = c->inferred.cost;
    /* Several stages do the work side by side at best. */
    const int nstages = plan->ir.timetable.nstages > 1 ? plan->ir.timetable.nstages : 1;
    plan->info.bound_s = tsri_infer_bound(&c->inferred) / nstages;
    plan->ir.relaxed = c->inferred.relaxed;
    plan->is_cut = tsri_choosing_is_over(c);
    plan->search_work = c->opts->search_s * TSRI_WORK_PER_S - c->work;
    /* Inference proves its choice the cheapest with buckets as it counts them. That holds for the
     * plan if the schedule's buckets cost the same. */
    plan->info.exact =
        c->inferred.exact && nstages == 1 &&
        fabs(plan->ir.change[TSRI_CHANGES - 1].more_s) <= TSRI_NO_CHANGE * c->inferred.cost;
    TSRI_TRY(tsri_plan_give_reasons(&plan->ir));
    if (!plan->ir.opts.memory_limit) { /* no other signatures will be asked for */
        tsri_pool_finish(&c->inferring);
        c->inference = (tsri_inference){0};
        c->inferred = (tsri_inferred){0};
    }
    return tsri_text_check(&plan->ir);
}
