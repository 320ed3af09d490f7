/* SPDX-License-Identifier: Apache-2.0 */
/* The update: a local plan that reads the gradients where they lie. One for each set of parameters
 * that has gradients. */
#include <stdlib.h>
#include <string.h>

#include "src/core/live.h"
#include "src/optim/optim.h"
#include "src/plan/plan.h"
#include "src/train/ddp.h"

static bool same_set(const tsr_ddp *d, const tsri_ddp_update *u)
{
    for (int i = 0; i < d->nparams; i++)
        if (u->there[i] != d->params[i].there)
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
    tsr_variable **params = tsri_pool_alloc(&g->pool, n * sizeof *params);
    tsr_tensor **grads = tsri_pool_alloc(&g->pool, n * sizeof(tsr_tensor *));
    TSRI_NEED(params && grads);
    int m = 0;
    /* In the module's order, as tsr_minimize has them. */
    for (int number = 0; number < d->nparams; number++)
        for (int i = 0; i < d->nparams; i++)
            if (d->params[i].number == number && d->params[i].there) {
                params[m] = d->params[i].v;
                grads[m++] = tsri_graph_read(g, d->params[i].grad, loc);
                u->there[i] = true;
            }
    tsr_apply_gradients_at(u->optimizer, m, params, grads, loc.file, loc.line);
    return tsr_compile(g, &u->plan);
}

static void free_update(tsri_ddp_update *u)
{
    tsr_plan_destroy(u->plan);
    tsr_graph_destroy(u->graph);
    tsri_mem_free(u);
}

static tsr_status make_update(tsr_ddp *d, tsr_optimizer *o, tsri_ddp_update **out_update)
{
    tsri_ddp_update *u =
        tsri_mem_alloc(&d->world->mem, sizeof *u + (size_t)d->nparams * sizeof *u->there);
    TSRI_NEED(u);
    u->optimizer = o;
    tsr_status status = declare(d, u);
    if (status != TSR_OK) {
        free_update(u);
        return tsri_fail_prefix(status, "tsr_ddp_step");
    }
    u->next = d->updates;
    d->updates = u;
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
        free_update(u);
    }
}

tsr_status tsr_ddp_step(tsr_ddp *d, tsr_optimizer *optimizer)
{
    TSRI_TRY(tsri_live_check(d, TSRI_LIVE_DDP, __func__));
    TSRI_TRY(tsri_live_check(optimizer, TSRI_LIVE_OPTIMIZER, __func__));
    if (!d || !optimizer)
        return tsri_fail(TSR_ERR_INVALID, "tsr_ddp_step: %s is NULL", d ? "the optimizer" : "ddp");
    if (optimizer->world != d->world)
        return tsri_fail(TSR_ERR_INVALID, "tsr_ddp_step: the optimizer belongs to another world");
    bool any = false;
    for (int i = 0; i < d->nparams; i++)
        any |= d->params[i].there;
    if (!any)
        return tsri_fail(TSR_ERR_STATE,
                         "tsr_ddp_step: there is no gradient: tsr_ddp_run comes first");
    drop_stale(d);
    tsri_ddp_update *u = d->updates;
    while (u && !(u->optimizer == optimizer && same_set(d, u)))
        u = u->next;
    if (!u)
        TSRI_TRY(make_update(d, optimizer, &u));
    tsr_status status = tsr_run(u->plan);
    u->failed |= status != TSR_OK;
    TSRI_TRY(status);
    d->info.steps++;
    tsr_ddp_zero_grad(d);
    return TSR_OK;
}

void tsri_ddp_free_updates(tsr_ddp *d, bool plans_too)
{
    while (d->updates) {
        tsri_ddp_update *next = d->updates->next;
        if (plans_too)
            free_update(d->updates);
        else
            tsri_mem_free(d->updates);
        d->updates = next;
    }
}
