/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of signatures that were inferred, built as far as their memory needs it. */
#include "src/ir/text/text.h"
#include "src/plan/choose/choose.h"
#include "src/plan/pass/pass.h"
#include "src/plan/report/report.h"

/* --- passes ----------------------------------------------------------------------------------- */
static const struct {
    tsri_pass pass;
    tsr_status (*run)(tsri_ir *ir);
    /* The reason by which it changes the seconds of a step; NULL: it doesn't. There are
     * TSRI_CHANGES of them; the schedule's is the last. */
    const char *changes;
} passes[] = {
    /* build_program calls tsri_plan_build itself, as that needs the graph too. */
    {TSRI_PASS_BUILD, NULL, "conversions that are shared"},
    {TSRI_PASS_FUSE, tsri_plan_fuse, "ops that are fused"},
    {TSRI_PASS_RESHARD, tsri_plan_reshard, "weights that are gathered again"},
    {TSRI_PASS_LAYOUT, tsri_plan_layout, "copies into other memory layouts"},
    {TSRI_PASS_CHAIN, tsri_plan_chain, NULL},
    {TSRI_PASS_DEFER, tsri_plan_defer, NULL},
    {TSRI_PASS_ORDER, tsri_plan_order, NULL},
    {TSRI_PASS_UPDATE, tsri_plan_update, NULL},
    {TSRI_PASS_STAGES, tsri_plan_stages, "stages that work at the same time"},
    {TSRI_PASS_SCHEDULE, tsri_plan_schedule, "buckets whose members are converted in several ways"},
};

/* Notes as change i of the program by how many seconds a pass has changed a step. */
static void note_change(tsri_ir *ir, int i, const char *reason)
{
    const double seconds = tsri_ir_seconds(ir);
    ir->change[i] = (tsri_change){reason, seconds - ir->step_s};
    ir->step_s = seconds;
}

/* Builds the program anew from chosen signatures: all passes up to the order of items and the
 * lifetimes of values. */
static tsr_status build_program(tsr_graph *g, tsri_ir *ir, const tsri_inferred *inferred)
{
    tsri_ir_reset(ir);
    ir->step_s = inferred->cost;
    TSRI_TRY(tsri_plan_build(ir, g, inferred));
    int nchanges = 0;
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        if (passes[i].run)
            TSRI_TRY(passes[i].run(ir));
        TSRI_TRY(tsri_plan_check(ir, passes[i].pass));
        TSRI_TRY(tsri_text_of_pass(ir, (int)i, tsri_pass_name(passes[i].pass)));
        if (!passes[i].changes)
            continue;
        if (nchanges == TSRI_CHANGES)
            return tsri_fail(TSR_ERR_INTERNAL, "more than %d passes have a reason: see ir.h",
                             TSRI_CHANGES);
        note_change(ir, nchanges++, passes[i].changes);
    }
    return TSR_OK;
}

/* --- within memory ---------------------------------------------------------------------------- */
/* Sets c->bytes to the most that a rank needs for the plan as built, kernels' scratch apart. */
static tsr_status measure_memory(tsri_choosing *c, tsr_plan *plan)
{
    tsri_report r = {.plan = plan};
    tsri_pool_init(&r.pool, &plan->ir.world->mem);
    tsr_status status = tsri_report_memory_make(plan, &r);
    if (status == TSR_OK)
        c->bytes = (size_t)r.memory[0].total;
    tsri_pool_finish(&r.pool);
    return status;
}

tsr_status tsri_build_inferred(tsri_choosing *c, tsr_plan *plan)
{
    TSRI_TRY(build_program(c->g, &plan->ir, &c->inferred));
    c->work -= (double)c->g->nops * TSRI_WORK_OF_BUILT;
    if (!plan->ir.opts.memory_limit)
        return TSR_OK;
    TSRI_TRY(measure_memory(c, plan));
    TSRI_NEED(TSRI_PUSH(c->pool, c->tried, c->ntried, c->ctried));
    c->tried[c->ntried++] = (tsri_tried){c->inferred, c->bytes, c->seeks_leanest};
    return TSR_OK;
}
