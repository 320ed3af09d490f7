/* SPDX-License-Identifier: Apache-2.0 */
/* The signatures that a tensor could have, and a plan that is held to one of them. */
#include <math.h>
#include <string.h>

#include "src/plan/infer/infer.h"

tsr_status tsri_legal_signatures(const tsri_cost_model *m, const tsr_tensor *t, tsri_pool *pool,
                                 int *out_n, tsr_sbp **out_sig)
{
    tsri_op *op = t->op;
    tsr_variable *v = op->kind == TSRI_OP_VARIABLE ? op->variable : NULL;
    tsri_strategy_table *table = tsri_pool_alloc(pool, sizeof *table);
    tsr_sbp said = op->sbp, kept = v ? v->sbp : TSR_AUTO;
    tsri_strategies *s;
    TSRI_NEED(table);
    *table = (tsri_strategy_table){
        .pool = pool, .model = m, .infer_updates = true, .most = TSRI_MOST_SIGNATURES};
    op->sbp = TSR_AUTO;
    if (v)
        v->sbp = TSR_AUTO;
    tsr_status status = tsri_strategies_of(table, op, &s);
    op->sbp = said;
    if (v)
        v->sbp = kept;
    TSRI_TRY(status);
    tsr_sbp *list = tsri_pool_alloc(pool, (size_t)s->n * sizeof *list);
    TSRI_NEED(list);
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (tsri_sig_index(list, n, s->sig[i].out[t->out]) < 0)
            list[n++] = s->sig[i].out[t->out];
    *out_n = n;
    *out_sig = list;
    return TSR_OK;
}

tsr_status tsri_pinned_costs(tsri_pool *pool, const tsri_pin *pin, const tsri_strategies *s,
                             const float **out_cost)
{
    float *cost = tsri_pool_dup(pool, s->cost, (size_t)s->n * sizeof *cost);
    TSRI_NEED(cost);
    for (int i = 0; i < s->n; i++)
        if (!tsr_sbp_equal(s->sig[i].out[pin->tensor->out], pin->sbp))
            cost[i] = INFINITY;
    *out_cost = cost;
    return TSR_OK;
}
