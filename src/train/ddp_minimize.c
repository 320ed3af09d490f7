/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tsr_ddp_minimize: backward, averages and update as one declaration, of which tsr_run makes steps.
 *
 * Between two updates of an accumulation a rank's gradients are in its buckets alone. The optimizer
 * is lent them, as what it keeps between two updates, so that a checkpoint has each rank's own.
 */
#include "src/core/live.h"
#include "src/graph/op.h"
#include "src/optim/clip.h"
#include "src/optim/optim.h"
#include "src/optim/scaler.h"
#include "src/plan/plan.h"
#include "src/train/ddp.h"

/* --- what the optimizer is lent --------------------------------------------------------------- */
static void lend(tsr_ddp *d, tsr_optimizer *o)
{
    for (int i = 0; i < d->nparams; i++) {
        tsri_optim_slot *slot = tsri_optim_find_slot(o, d->params[i].v);
        if (slot && tsri_ddp_trains(o, &d->params[i])) {
            slot->gradient = d->params[i].grad;
            slot->is_lent = true;
        }
    }
}

void tsri_ddp_unlend(tsr_ddp *d)
{
    for (const tsri_ddp_minimize *m = d->minimizes; m; m = m->next) {
        if (!tsri_live_has(m->optimizer, TSRI_LIVE_OPTIMIZER))
            continue;
        for (int i = 0; i < d->nparams; i++) {
            tsri_optim_slot *slot = tsri_optim_find_slot(m->optimizer, d->params[i].v);
            if (slot && slot->is_lent && slot->gradient == d->params[i].grad) {
                slot->gradient = NULL;
                slot->is_lent = false;
            }
        }
    }
}

/* Parameters of o have a gradient while runs of an accumulation are gathered. A checkpoint may have
 * been loaded since the last run. */
static tsr_status note_gathered(tsr_ddp *d, tsr_optimizer *o, int64_t accumulate)
{
    const int64_t gathered = o->runs % accumulate;
    const bool was_loaded = gathered != o->gathered;
    if (was_loaded && gathered && (d->opts.find_unused_parameters || d->opts.static_graph))
        return tsri_fail(TSR_ERR_STATE,
                         "tsr_run: the checkpoint was saved between two updates, and does not know "
                         "which parameters were used; load one of an update");
    for (int i = 0; i < d->nparams; i++)
        if ((was_loaded || !gathered) && tsri_ddp_trains(o, &d->params[i]))
            d->params[i].there = gathered > 0;
    o->gathered = gathered;
    return TSR_OK;
}

/* --- a step ----------------------------------------------------------------------------------- */
static tsr_status update(tsr_ddp *d, const tsri_ddp_minimize *m)
{
    tsr_optimizer *o = m->optimizer;
    tsr_minimize_opts opts = m->opts;
    opts.loss_scale *= (double)opts.accumulate;
    opts.accumulate = 1;
    TSRI_TRY(tsri_ddp_update_params(d, o, &opts, "tsr_run"));
    for (int i = 0; i < d->nparams; i++)
        if (tsri_ddp_trains(o, &d->params[i]))
            d->params[i].there = false;
    o->gathered = 0;
    return TSR_OK;
}

static tsr_status run_labelled(tsr_ddp *d, const tsri_ddp_minimize *m, tsr_plan *plan)
{
    tsr_optimizer *o = m->optimizer;
    const int64_t accumulate = m->opts.accumulate;
    TSRI_TRY(note_gathered(d, o, accumulate));
    const bool updates = o->gathered + 1 == accumulate;
    TSRI_TRY(tsri_ddp_run_plan(d, plan, updates));
    if (updates)
        return update(d, m);
    o->runs++;
    o->gathered++;
    return TSR_OK;
}

static tsr_status run(void *owner, void *arg, tsr_plan *plan)
{
    tsr_ddp *d = owner;
    const tsri_ddp_minimize *m = arg;
    TSRI_TRY(tsri_live_check(d, TSRI_LIVE_DDP, "tsr_run"));
    TSRI_TRY(tsri_live_check(m->optimizer, TSRI_LIVE_OPTIMIZER, "tsr_run"));
    if (d->no_sync)
        return tsri_fail(TSR_ERR_STATE,
                         "tsr_run: the plan is of tsr_ddp_minimize, and tsr_ddp_no_sync is on; "
                         "accumulate says when gradients are averaged");
    d->loc = m->loc;
    tsri_ddp_kept kept = tsri_ddp_keep_label(d);
    const tsr_status status = run_labelled(d, m, plan);
    tsri_ddp_put_back(d, &kept);
    return status;
}

/* --- declaring -------------------------------------------------------------------------------- */
static bool check(const tsri_ctx *c, tsr_ddp *d, const tsr_optimizer *o, const tsr_minimize_opts *m)
{
    if (!d)
        return tsri_op_refuse(c, TSR_ERR_INVALID, "ddp is NULL%s", tsri_error_cause());
    if (tsri_live_check(d, TSRI_LIVE_DDP, c->op) != TSR_OK)
        return tsri_op_refuse_last(c, TSR_ERR_INVALID);
    if (!tsri_want_optimizer(c, o) || !tsri_want_minimize(c, m) ||
        !tsri_want_scaled(c, m->scaler, m->accumulate))
        return false;
    if (m->out_found_inf)
        return tsri_op_refuse(c, TSR_ERR_INVALID, "out_found_inf is for tsr_minimize_with");
    if (m->out_norm)
        return tsri_op_refuse(c, TSR_ERR_INVALID,
                              "out_norm is for tsr_minimize_with; tsr_ddp_info has the norm");
    if (c->g->runner.run)
        return tsri_op_refuse(
            c, TSR_ERR_STATE, "this graph has a %s already; declare a graph for each",
            c->g->runner.arg ? "tsr_ddp_minimize" : "tsr_ddp_backward, which tsr_run does not run");
    if (o->accumulate && o->accumulate != m->accumulate)
        return tsri_op_refuse(c, TSR_ERR_STATE,
                              "the optimizer updates once in %lld runs here, and once in %lld in "
                              "another graph",
                              (long long)m->accumulate, (long long)o->accumulate);
    return true;
}

/* Notes the step, which lives as long as d. NULL: no memory. */
static tsri_ddp_minimize *note(tsr_ddp *d, tsr_optimizer *o, const tsr_minimize_opts *opts,
                               tsri_loc loc)
{
    tsri_ddp_minimize *m = tsri_pool_alloc(&d->pool, sizeof *m);
    if (!m)
        return NULL;
    *m = (tsri_ddp_minimize){.next = d->minimizes, .optimizer = o, .opts = *opts, .loc = loc};
    d->minimizes = m;
    return m;
}

static void minimize(const tsri_ctx *c, tsr_ddp *d, tsr_optimizer *o, int n,
                     tsr_tensor *const *losses, const tsr_minimize_opts *m)
{
    if (!check(c, d, o, m))
        return;
    tsr_tensor *loss = tsri_add_losses(c, n, losses, m->loss_scale);
    loss = loss ? tsri_scale_loss(c, m->scaler, loss) : NULL;
    if (!loss || !tsri_ddp_backward(c, d, o, loss))
        return;
    tsri_warn_of_evaluation(c->g, loss, c->loc);
    tsri_ddp_minimize *noted = note(d, o, m, c->loc);
    if (!noted) {
        tsri_op_refuse_last(c, TSR_ERR_NO_MEMORY);
        return;
    }
    o->accumulate = m->accumulate;
    if (m->accumulate > 1)
        lend(d, o);
    c->g->runner = (tsri_runner){run, d, noted};
    /* Masks follow the optimizer's runs, whichever graph makes them. */
    if (!c->g->step_value)
        c->g->step_value = &o->runs;
}

void tsr_ddp_minimize_at(tsr_ddp *d, tsr_optimizer *o, int n, tsr_tensor *const *losses,
                         const tsr_minimize_opts *opts, const char *file, int line)
{
    tsr_minimize_opts m = *TSR_MINIMIZE_OPTS();
    tsri_ctx c = {.loc = {file, line}, .op = "ddp_minimize"};
    if (tsri_begin_tensors(&c, n, losses) && tsri_want_options(&c, &m, sizeof m, opts))
        minimize(&c, d, o, n, losses, &m);
}
