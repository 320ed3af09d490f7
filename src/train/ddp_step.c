/* SPDX-License-Identifier: Apache-2.0 */
/* The update: a local plan that reads the gradients where they lie. One for each set of parameters
 * that has gradients. */
#include <stdlib.h>
#include <string.h>

#include "src/core/live.h"
#include "src/core/opts.h"
#include "src/graph/op.h"
#include "src/optim/optim.h"
#include "src/plan/plan.h"
#include "src/train/ddp.h"

/* Whether an update of o is for parameter i, by what there is now. */
static bool is_due(const tsr_ddp *d, const tsr_optimizer *o, int i)
{
    return d->params[i].there && tsri_ddp_trains(o, &d->params[i]);
}

static bool fits(const tsr_ddp *d, const tsri_ddp_update *u, const tsr_optimizer *o,
                 const tsr_minimize_opts *m)
{
    if (u->optimizer != o || u->opts.loss_scale != m->loss_scale ||
        u->opts.clip_value != m->clip_value || u->opts.clip_norm != m->clip_norm ||
        u->opts.norm_type != m->norm_type || u->opts.scaler != m->scaler)
        return false;
    for (int i = 0; i < d->nparams; i++)
        if (u->there[i] != is_due(d, o, i))
            return false;
    return true;
}

static tsr_status declare(tsr_ddp *d, tsri_ddp_update *u)
{
    tsri_loc loc = d->loc;
    size_t n = (size_t)d->nparams;
    tsr_graph *g = u->graph =
        tsr_graph_create(d->world, TSR_GRAPH_OPTS(.training = true, .local = true));
    TSRI_NEED(g);
    const tsri_ctx c = {.g = g, .loc = loc, .op = "ddp_step"};
    tsr_variable **params = tsri_pool_alloc(&g->pool, n * sizeof *params);
    tsr_tensor **grads = tsri_pool_alloc(&g->pool, n * sizeof(tsr_tensor *)), *norm = NULL;
    TSRI_NEED(params && grads);
    if (!tsri_want_minimize(&c, &u->opts))
        return tsr_graph_status(g);
    int m = 0;
    /* In the module's order, as tsr_minimize has them. */
    for (int number = 0; number < d->nparams; number++)
        for (int i = 0; i < d->nparams; i++)
            if (d->params[i].number == number && is_due(d, u->optimizer, i)) {
                params[m] = d->params[i].v;
                grads[m++] = tsri_graph_read(g, d->params[i].grad, loc);
                u->there[i] = true;
            }
    u->opts.out_norm = u->opts.clip_norm > 0 ? &norm : NULL;
    tsri_apply_clipped(&c, u->optimizer, &u->opts, m, params, grads);
    u->opts.out_norm = NULL;
    if (norm)
        tsr_output_at(g, "norm", norm, d->here, TSR_B, loc.file, loc.line);
    return tsr_compile(g, &u->plan);
}

tsr_status tsri_ddp_fetch_norm(tsr_ddp *d)
{
    tsr_plan *plan = d->norm_of;
    d->norm_of = NULL;
    return plan ? tsr_fetch_scalar(plan, "norm", &d->info.grad_norm) : TSR_OK;
}

static void free_update(tsr_ddp *d, tsri_ddp_update *u)
{
    if (d->norm_of == u->plan) {
        tsr_status ignored =
            tsri_ddp_fetch_norm(d); /* of an update that has failed: there is none */
        (void)ignored;
    }
    tsr_plan_destroy(u->plan);
    tsr_graph_destroy(u->graph);
    tsri_mem_free(u);
}

/* Frees what was not asked for lately: a loss scale that changes all the time makes ever new ones.
 */
static void drop_old(tsr_ddp *d)
{
    enum { KEPT = 16 };
    tsri_ddp_update **at = &d->updates;
    for (int i = 0; *at && i < KEPT; i++)
        at = &(*at)->next;
    while (*at) {
        tsri_ddp_update *next = (*at)->next;
        free_update(d, *at);
        *at = next;
    }
}

static tsr_status make_update(tsr_ddp *d, tsr_optimizer *o, const tsr_minimize_opts *m,
                              tsri_ddp_update **out_update)
{
    tsri_ddp_update *u =
        tsri_mem_alloc(&d->world->mem, sizeof *u + (size_t)d->nparams * sizeof *u->there);
    TSRI_NEED(u);
    u->optimizer = o;
    u->opts = *m;
    tsr_status status = declare(d, u);
    if (status != TSR_OK) {
        free_update(d, u);
        return status;
    }
    u->next = d->updates;
    d->updates = u;
    drop_old(d);
    *out_update = u;
    return TSR_OK;
}

/* Frees updates whose optimizer is gone: another may lie where it lay. */
static void drop_stale(tsr_ddp *d)
{
    for (tsri_ddp_update **at = &d->updates, *u; (u = *at);) {
        if (u->failed || !u->plan->failure[0]) {
            at = &u->next;
            continue;
        }
        *at = u->next;
        free_update(d, u);
    }
}

/* The update for what there is, which becomes the first of the list; NULL: there is none yet. */
static tsri_ddp_update *find_update(tsr_ddp *d, const tsr_optimizer *o, const tsr_minimize_opts *m)
{
    tsri_ddp_update **at = &d->updates;
    while (*at && !fits(d, *at, o, m))
        at = &(*at)->next;
    tsri_ddp_update *u = *at;
    if (!u)
        return NULL;
    *at = u->next;
    u->next = d->updates;
    d->updates = u;
    return u;
}

static tsr_status update(tsr_ddp *d, tsr_optimizer *o, const tsr_minimize_opts *m, const char *who)
{
    tsri_ddp_update *u = find_update(d, o, m);
    if (!u) {
        const tsr_status made = make_update(d, o, m, &u);
        TSRI_TRY(made == TSR_OK ? made : tsri_fail_prefix(made, "%s", who));
    }
    tsr_status status = tsr_run(u->plan);
    u->failed |= status != TSR_OK;
    TSRI_TRY(status);
    TSRI_TRY(tsri_ddp_note_settings(d, o));
    d->info.steps++;
    d->norm_of = m->clip_norm > 0 ? u->plan : d->norm_of;
    return d->side ? TSR_OK : tsri_ddp_fetch_norm(d); /* a device may be at work on it */
}

tsr_status tsri_ddp_update_params(tsr_ddp *d, tsr_optimizer *o, const tsr_minimize_opts *m,
                                  const char *who)
{
    bool any = false, due = false;
    for (int i = 0; i < d->nparams; i++) {
        any |= d->params[i].there;
        due |= is_due(d, o, i);
    }
    if (!any)
        return tsri_fail(TSR_ERR_STATE, "%s: there is no gradient: tsr_ddp_run comes first", who);
    if (!due)
        return tsri_fail(TSR_ERR_STATE,
                         "%s: the optimizer trains none of the parameters that have a gradient: "
                         "they are frozen, or another's",
                         who);
    drop_stale(d);
    return update(d, o, m, who);
}

/* Reads the options of a step, whose loss_scale becomes what gradients are divided by. */
static tsr_status read_options(const tsr_minimize_opts *opts, tsr_minimize_opts *m)
{
    *m = *TSR_MINIMIZE_OPTS();
    TSRI_TRY(tsri_opts_read(m, sizeof *m, opts, "tsr_ddp_step_with"));
    if (m->out_norm)
        return tsri_fail(TSR_ERR_INVALID, "tsr_ddp_step_with: out_norm is for tsr_minimize_with; "
                                          "tsr_ddp_info has the norm");
    if (m->accumulate < 1)
        return tsri_fail(TSR_ERR_INVALID, "tsr_ddp_step_with: accumulate %lld must be at least 1",
                         (long long)m->accumulate);
    m->loss_scale *= (double)m->accumulate;
    return TSR_OK;
}

tsr_status tsr_ddp_step_with(tsr_ddp *d, tsr_optimizer *optimizer, const tsr_minimize_opts *opts)
{
    tsr_minimize_opts m;
    TSRI_TRY(tsri_live_check(d, TSRI_LIVE_DDP, "tsr_ddp_step"));
    TSRI_TRY(tsri_live_check(optimizer, TSRI_LIVE_OPTIMIZER, "tsr_ddp_step"));
    if (!d || !optimizer)
        return tsri_fail(TSR_ERR_INVALID, "tsr_ddp_step: %s is NULL", d ? "the optimizer" : "ddp");
    if (optimizer->world != d->world)
        return tsri_fail(TSR_ERR_INVALID, "tsr_ddp_step: the optimizer belongs to another world");
    if (optimizer->accumulate > 1)
        return tsri_fail(TSR_ERR_STATE,
                         "tsr_ddp_step: the optimizer updates once in %lld runs in a graph",
                         (long long)optimizer->accumulate);
    TSRI_TRY(read_options(opts, &m));
    TSRI_TRY(tsri_ddp_update_params(d, optimizer, &m, "tsr_ddp_step"));
    tsr_ddp_zero_grad(d);
    return TSR_OK;
}

tsr_status tsr_ddp_step(tsr_ddp *d, tsr_optimizer *optimizer)
{
    return tsr_ddp_step_with(d, optimizer, NULL);
}

void tsri_ddp_free_updates(tsr_ddp *d, bool plans_too)
{
    d->norm_of = NULL;
    while (d->updates) {
        tsri_ddp_update *next = d->updates->next;
        if (plans_too)
            free_update(d, d->updates);
        else
            tsri_mem_free(d->updates);
        d->updates = next;
    }
}
