/* SPDX-License-Identifier: Apache-2.0 */
#include "src/config/rules/places.h"

/* Makes room for the uses of a tensor. */
static tsr_status reach(tsri_places *p, const tsr_tensor *x)
{
    while (p->nfirst <= x->id) {
        TSRI_NEED(TSRI_PUSH(p->pool, p->first, p->nfirst, p->cfirst));
        p->first[p->nfirst++] = -1;
    }
    return TSR_OK;
}

static void put(tsri_places *p, int use, const tsr_tensor *x)
{
    p->uses[use].next = p->first[x->id];
    p->first[x->id] = use;
}

tsr_status tsri_places_add(tsri_places *p, tsr_tensor **place, const tsri_op *reader)
{
    TSRI_TRY(reach(p, *place));
    TSRI_NEED(TSRI_PUSH(p->pool, p->uses, p->nuses, p->cuses));
    p->uses[p->nuses] = (tsri_use){.place = place, .reader = reader};
    put(p, p->nuses++, *place);
    return TSR_OK;
}

tsr_status tsri_places_init(tsri_places *p, tsr_graph *g, tsri_pool *pool)
{
    *p = (tsri_places){.graph = g, .pool = pool, .nops = g->nops};
    for (int i = 0; i < g->nops; i++)
        for (int j = 0; j < g->ops[i]->nin; j++)
            TSRI_TRY(tsri_places_add(p, &g->ops[i]->in[j], g->ops[i]));
    return TSR_OK;
}

tsr_status tsri_places_insert(tsri_places *p, const tsr_tensor *x, tsri_op *op)
{
    TSRI_NEED(TSRI_PUSH(p->pool, p->after, p->nafter, p->cafter));
    p->after[p->nafter++] = x->op->id;
    return tsri_places_add(p, &op->in[0], op);
}

int tsri_places_take(tsri_places *p, const tsr_tensor *x)
{
    if (x->id >= p->nfirst)
        return -1;
    const int list = p->first[x->id];
    p->first[x->id] = -1;
    return list;
}

tsr_status tsri_places_give(tsri_places *p, int list, const tsr_tensor *x, tsr_tensor *y,
                            bool (*keeps)(const tsri_op *reader, const tsr_tensor *x))
{
    TSRI_TRY(reach(p, x));
    TSRI_TRY(reach(p, y));
    for (int next; list >= 0; list = next) {
        const tsri_use *use = &p->uses[list];
        const bool kept = keeps && use->reader && keeps(use->reader, x);
        next = use->next;
        if (!kept)
            *use->place = y;
        put(p, list, kept ? x : y);
    }
    return TSR_OK;
}

/* --- the order of ops ------------------------------------------------------------------------- */
typedef struct order {
    tsri_op **ops, **sorted;
    int *first, *next; /* by op: those that stand behind it */
    int n;
} order;

static void emit(order *o, int op)
{
    o->sorted[o->n++] = o->ops[op];
    for (int i = o->first[op]; i >= 0; i = o->next[i])
        emit(o, i);
}

tsr_status tsri_places_sort(tsri_places *p)
{
    tsr_graph *g = p->graph;
    const size_t n = (size_t)g->nops;
    order o = {.ops = g->ops,
               .sorted = tsri_pool_alloc(p->pool, n * sizeof(tsri_op *)),
               .first = tsri_pool_alloc(p->pool, n * sizeof(int)),
               .next = tsri_pool_alloc(p->pool, n * sizeof(int))};
    TSRI_NEED(o.sorted && o.first && o.next);
    for (size_t i = 0; i < n; i++)
        o.first[i] = -1;
    for (int i = 0; i < p->nafter; i++) {
        o.next[p->nops + i] = o.first[p->after[i]];
        o.first[p->after[i]] = p->nops + i;
    }
    for (int i = 0; i < p->nops; i++)
        emit(&o, i);
    for (int i = 0; i < g->nops; i++) {
        g->ops[i] = o.sorted[i];
        g->ops[i]->id = i;
    }
    return TSR_OK;
}
