/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Costs of conversions on one mesh of three or four dimensions, where a search from one signature
 * takes a millisecond and finds the costs to all others at the price of a few: so it is made once
 * for a shape, whatever lists the signatures are in.
 */
#include <string.h>

#include "src/plan/infer/infer.h"

struct tsri_known {
    struct tsri_known *next;
    tsr_dims shape;
    size_t element;
    const tsr_placement *placement;
    int n, csig, crow, cupto;
    tsr_sbp *sig; /* [n] all that ops could make or take the shape in */
    float **row;  /* [n] costs from sig[i] to sig[0 .. upto[i]) */
    int *upto;    /* [n] */
};

static tsr_status find_known(tsri_problem *p, tsr_dims shape, size_t element,
                             const tsr_placement *placement, tsri_known **out)
{
    for (tsri_known *k = *p->known; k; k = k->next)
        if (k->element == element && k->placement == placement && tsr_dims_equal(k->shape, shape)) {
            *out = k;
            return TSR_OK;
        }
    tsri_known *k = tsri_pool_alloc(p->pool, sizeof *k);
    TSRI_NEED(k);
    *k =
        (tsri_known){.next = *p->known, .shape = shape, .element = element, .placement = placement};
    *p->known = *out = k;
    return TSR_OK;
}

static tsr_status add_list(tsri_problem *p, tsri_known *k, const tsri_siglist *list)
{
    for (int i = 0; i < list->n; i++) {
        if (tsri_sig_index(k->sig, k->n, list->sig[i]) >= 0)
            continue;
        TSRI_NEED(TSRI_PUSH(p->pool, k->sig, k->n, k->csig) &&
                  TSRI_PUSH(p->pool, k->row, k->n, k->crow) &&
                  TSRI_PUSH(p->pool, k->upto, k->n, k->cupto));
        k->sig[k->n] = list->sig[i];
        k->row[k->n] = NULL;
        k->upto[k->n++] = 0;
    }
    return TSR_OK;
}

tsr_status tsri_know_lists(tsri_problem *p)
{
    const tsr_graph *g = p->g;
    for (int i = 0; i < g->nops; i++) {
        const tsri_op *op = g->ops[i];
        tsri_sides *all;
        tsri_known *k;
        if (!p->alike.live[i] || tsr_placement_ndim(op->placement) <= 2)
            continue;
        TSRI_TRY(tsri_sides_of(p, p->strat[i], &all));
        for (int j = 0; j < op->nin + op->nout; j++) {
            const tsr_tensor *t = j < op->nin ? op->in[j] : op->out[j - op->nin];
            const tsri_side *side = j < op->nin ? &all->in[j] : &all->out[j - op->nin];
            TSRI_TRY(find_known(p, t->shape, tsr_dtype_size(t->dtype), op->placement, &k));
            TSRI_TRY(add_list(p, k, side->list));
        }
    }
    return TSR_OK;
}

/* Searches from the signatures of a list that lack costs to some others. */
static tsr_status fill_rows(tsri_problem *p, tsri_known *k, const tsri_siglist *from)
{
    int *index = tsri_pool_alloc(p->pool, (size_t)from->n * sizeof *index);
    tsr_sbp *sig = tsri_pool_alloc(p->pool, (size_t)from->n * sizeof *sig);
    TSRI_NEED(index && sig);
    int n = 0, first = k->n;
    for (int i = 0; i < from->n; i++) {
        int at = tsri_sig_index(k->sig, k->n, from->sig[i]);
        if (k->upto[at] == k->n)
            continue;
        first = k->upto[at] < first ? k->upto[at] : first;
        index[n] = at;
        sig[n++] = from->sig[i];
    }
    const int nto = k->n - first;
    if (!n)
        return TSR_OK;
    float *cost = tsri_pool_alloc(p->pool, (size_t)n * (size_t)nto * sizeof *cost);
    TSRI_NEED(cost);
    tsri_mesh mesh = tsri_mesh_of(k->placement);
    tsri_spend_prices(p, (double)n * nto);
    TSRI_TRY(tsri_route_costs(p->m, p->pool->mem, k->shape, k->element, &mesh, n, sig, &mesh, nto,
                              k->sig + first, cost));
    for (int i = 0; i < n; i++) {
        float *row = tsri_pool_alloc(p->pool, (size_t)k->n * sizeof *row);
        TSRI_NEED(row);
        if (first)
            memcpy(row, k->row[index[i]], (size_t)first * sizeof *row);
        memcpy(row + first, cost + (size_t)i * (size_t)nto, (size_t)nto * sizeof *row);
        k->row[index[i]] = row;
        k->upto[index[i]] = k->n;
    }
    return TSR_OK;
}

tsr_status tsri_known_costs(tsri_problem *p, tsri_conversion *c)
{
    tsri_known *k;
    TSRI_TRY(find_known(p, c->shape, c->element, c->from_placement, &k));
    TSRI_TRY(add_list(p, k, c->from));
    TSRI_TRY(add_list(p, k, c->to));
    TSRI_TRY(fill_rows(p, k, c->from));
    int *to = tsri_pool_alloc(p->pool, (size_t)c->to->n * sizeof *to);
    TSRI_NEED(to);
    for (int j = 0; j < c->to->n; j++)
        to[j] = tsri_sig_index(k->sig, k->n, c->to->sig[j]);
    for (int i = 0; i < c->from->n; i++) {
        const float *row = k->row[tsri_sig_index(k->sig, k->n, c->from->sig[i])];
        for (int j = 0; j < c->to->n; j++)
            c->cost[i * c->to->n + j] = row[to[j]];
    }
    return TSR_OK;
}
