/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_eval: compiles and runs what one tensor needs; plans of the last few tensors are kept. */
#include <string.h>

#include "src/core/live.h"
#include "src/core/rng.h"
#include "src/exec/exec.h"
#include "src/rewrite/rewrite.h"

/* --- what is kept ----------------------------------------------------------------------------- */
/* How the variables that the graph reads are laid out; 0: some are still open, so that a plan of
 * now is none for later. Ranks see the same. */
static uint64_t layout_of(const tsr_graph *g)
{
    uint64_t h = TSRI_HASH_INIT;
    for (size_t i = 0; i < g->reads.size; i++) {
        const tsr_variable *v = g->reads.op[i] ? g->reads.op[i]->variable : NULL;
        if (!v)
            continue;
        if (!v->ready || v->sbp.ndim == 0)
            return 0;
        h = tsri_hash(h, &v, sizeof v);
        h = tsri_hash(h, &v->sbp, sizeof v->sbp);
        h = tsri_hash(h, &v->held, sizeof v->held);
    }
    return h ? h : 1;
}

static void drop(tsri_kept_eval *kept)
{
    if (kept->tensor && tsri_live_has(kept->plan, TSRI_LIVE_PLAN))
        tsr_plan_destroy(kept->plan);
    *kept = (tsri_kept_eval){0};
}

static void drop_evals(tsr_graph *g)
{
    for (int i = 0; i < TSRI_EVALS; i++)
        drop(&g->evals.kept[i]);
}

static tsri_kept_eval *find(tsr_graph *g, const tsr_tensor *x)
{
    for (int i = 0; i < TSRI_EVALS; i++)
        if (g->evals.kept[i].tensor == x && tsri_live_has(g->evals.kept[i].plan, TSRI_LIVE_PLAN))
            return &g->evals.kept[i];
    return NULL;
}

static void keep(tsr_graph *g, const tsr_tensor *x, tsr_plan *plan, uint64_t variables)
{
    tsri_kept_eval *to = &g->evals.kept[g->evals.next];
    g->evals.next = (g->evals.next + 1) % TSRI_EVALS;
    drop(to);
    *to = (tsri_kept_eval){x, plan, variables};
    g->evals.drop = drop_evals;
}

/* --- compiling -------------------------------------------------------------------------------- */
static tsr_status compile(const tsr_tensor *x, tsr_plan **out_plan)
{
    tsr_graph *only;
    TSRI_TRY(tsri_graph_copy(x->graph, &only));
    tsr_status status = tsri_rewrite_only(only, x->id, "(eval)");
    if (status == TSR_OK)
        status = tsri_plan_compile(only, NULL, false, out_plan);
    tsri_graph_copy_free(only);
    return status;
}

tsr_status tsr_eval(tsr_tensor *x, void *data, size_t bytes)
{
    TSRI_TRY(tsri_live_check(x, TSRI_LIVE_TENSOR, "tsr_eval"));
    if (!x || x->failed) {
        if (x && x->graph)
            return tsr_graph_status(x->graph);
        return tsri_fail(TSR_ERR_INVALID, "eval: no tensor%s", tsri_error_cause());
    }
    tsr_graph *g = x->graph;
    TSRI_TRY(tsr_graph_status(g));
    const uint64_t variables = layout_of(g);
    tsri_kept_eval *kept = find(g, x);
    if (kept && (!variables || kept->variables != variables)) {
        drop(kept);
        kept = NULL;
    }
    tsr_plan *plan = kept ? kept->plan : NULL;
    if (!plan)
        TSRI_TRY(compile(x, &plan));
    plan->ir.own_step = 0; /* random masks are those of the first run, each time */
    tsr_status status = tsr_run(plan);
    /* Ranks agree on what is kept: so an error in reading, which may be one rank's, does not count.
     */
    const bool keeps = status == TSR_OK && variables && layout_of(g) == variables;
    if (status == TSR_OK && tsr_placement_find(x->placement, g->world->rank) >= 0)
        status = tsr_fetch(plan, "(eval)", data, bytes);
    if (kept && !keeps)
        drop(kept);
    else if (!kept && keeps)
        keep(g, x, plan, variables);
    else if (!kept)
        tsr_plan_destroy(plan);
    return status;
}
