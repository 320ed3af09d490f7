/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors with several readers, who should share a conversion.
 *
 * A computed tensor gets a relay: a node whose strategy is the one signature in which it is handed
 * on; its maker converts to that, its readers from that. (Boxing takes the nearest of what there
 * is, so plans cost no more than this.)
 *
 * Variables and inputs stay where they are, and memory must tell the shard that is kept from what
 * is gathered for a while: their nodes have pairs, the signature that is kept and the one, if any,
 * that is made of it and shared.
 */
#include <math.h>
#include <string.h>

#include "src/core/rng.h"
#include "src/plan/infer/infer.h"

/* --- tensors with several readers ------------------------------------------------------------- */
/* Whether e is a conversion of a worth sharing: on one dimension any; on several, each dimension
 * stays, is gathered or reduced, or is a partial sum that is scattered. */
static bool worth_sharing(tsr_sbp a, tsr_sbp e)
{
    for (int d = 0; d < a.ndim && a.ndim > 1; d++) {
        bool same = a.d[d].kind == e.d[d].kind && a.d[d].arg == e.d[d].arg;
        if (!same && e.d[d].kind != TSR_SBP_BROADCAST && a.d[d].kind != TSR_SBP_PARTIAL)
            return false;
        if (!same && a.d[d].kind == TSR_SBP_BROADCAST)
            return false;
    }
    return true;
}

/* Readers of the tensor's own mesh that could take it in `sig`. */
static int wanted_by(const tsri_shared *s, tsr_sbp sig)
{
    int n = 0;
    for (int i = 0; i < s->nwant; i++)
        n += s->want[i]->placement == s->made->placement &&
             tsri_sig_index(s->want[i]->list->sig, s->want[i]->list->n, sig) >= 0;
    return n;
}

/* All signatures that at least two readers could take: a conversion for one is no sharing. */
static tsr_status shareable(tsri_problem *p, const tsri_shared *s, tsri_siglist **out)
{
    int most = 0, n = 0;
    for (int i = 0; i < s->nwant; i++)
        most += s->want[i]->list->n;
    tsr_sbp *list = tsri_mem_alloc(p->pool->mem, (size_t)most * sizeof *list);
    TSRI_NEED(list);
    for (int i = 0; i < s->nwant; i++)
        for (int j = 0; j < s->want[i]->list->n; j++) {
            tsr_sbp sig = s->want[i]->list->sig[j];
            if (s->want[i]->placement == s->made->placement && tsri_sig_index(list, n, sig) < 0 &&
                wanted_by(s, sig) > 1)
                list[n++] = sig;
        }
    *out = tsri_intern_list(p, list, n);
    tsri_mem_free(list);
    return *out ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* More pairs than this are not searched: then only the whole is shared, gathered or reduced. A
 * weight of two axes has 625 on four dimensions. */
enum { MOST_PAIRS_OF_TWO = 256, MOST_PAIRS_OF_MORE = 640 };

/* Whether signature j of `also` is tried with what is made in signature i. */
static bool is_pair(const tsri_shared *s, const tsri_siglist *also, int i, int j, bool whole)
{
    tsr_sbp a = s->made->list->sig[i], e = also->sig[j];
    return !tsr_sbp_equal(a, e) && worth_sharing(a, e) &&
           (!whole || tsr_sbp_equal(e, tsri_sbp_b(e.ndim))) &&
           !tsri_fills_zeros(s->made->placement, a, s->made->placement, e);
}

static tsr_status list_pairs(tsri_problem *p, tsri_shared *s, const tsri_siglist *also,
                             const float *cost)
{
    const tsri_siglist *made = s->made->list;
    int n = made->n;
    for (int i = 0; i < made->n; i++)
        for (int j = 0; j < also->n; j++)
            n += is_pair(s, also, i, j, false);
    bool two = tsr_placement_ndim(s->made->placement) <= 2;
    bool whole = n > (two ? MOST_PAIRS_OF_TWO : MOST_PAIRS_OF_MORE);
    p->table.pruned |= whole;
    s->a = tsri_pool_alloc(p->pool, (size_t)n * sizeof *s->a);
    s->e = tsri_pool_alloc(p->pool, (size_t)n * sizeof *s->e);
    s->own = tsri_pool_alloc(p->pool, (size_t)n * sizeof *s->own);
    TSRI_NEED(s->a && s->e && s->own);
    for (int i = 0; i < made->n; i++)
        for (int j = -1; j < also->n; j++) {
            if (j >= 0 && !is_pair(s, also, i, j, whole))
                continue;
            s->a[s->n] = i;
            s->e[s->n] = j < 0 ? made->sig[i] : also->sig[j];
            s->own[s->n++] = j < 0 ? 0 : cost[i * also->n + j];
        }
    return TSR_OK;
}

static tsr_status make_pairs(tsri_problem *p, const tsr_tensor *t, tsri_shared *s)
{
    tsri_siglist *also;
    tsri_conversion *c = NULL;
    TSRI_TRY(shareable(p, s, &also));
    if (also->n)
        TSRI_TRY(tsri_find_conversion(p, t, tsri_tensor_every(t), s->made->placement, s->made->list,
                                      s->made->placement, also, &c));
    TSRI_TRY(list_pairs(p, s, also, c ? c->cost : NULL));
    s->up = tsri_pool_alloc(p->pool, (size_t)(s->made->n * s->n) * sizeof *s->up);
    s->usage = tsri_pool_alloc(p->pool, (size_t)s->n * sizeof *s->usage);
    TSRI_NEED(s->up && s->usage);
    for (int i = 0; i < s->made->n; i++)
        for (int j = 0; j < s->n; j++)
            s->up[i * s->n + j] = s->made->of[i] == s->a[j] ? 0 : INFINITY;
    for (int j = 0; j < s->n; j++)
        if (!tsr_sbp_equal(s->e[j], s->made->list->sig[s->a[j]]))
            s->usage[j] = tsri_part_bytes(t, s->made->placement, s->e[j]);
    return TSR_OK;
}

/* From a shared tensor to one of its readers: what it has in a or e is there. */
static tsr_status shared_edge(tsri_problem *p, const tsr_tensor *t, const tsri_shared *s, int node,
                              const tsri_reader *r)
{
    const tsri_side *want = r->want;
    float *cost = tsri_find_matrix(p, s, want, 0);
    if (!cost) {
        tsri_conversion *c;
        TSRI_TRY(tsri_find_conversion(p, t, tsri_tensor_every(t), s->made->placement, s->made->list,
                                      want->placement, want->list, &c));
        cost = tsri_pool_alloc(p->pool, (size_t)(s->n * want->n) * sizeof *cost);
        TSRI_NEED(cost);
        bool same_mesh = want->placement == s->made->placement;
        for (int i = 0; i < s->n; i++) {
            int e = same_mesh ? tsri_sig_index(want->list->sig, want->list->n, s->e[i]) : -1;
            for (int j = 0; j < want->n; j++)
                cost[i * want->n + j] =
                    want->of[j] == e ? 0
                    : tsri_may_convert(p, s->made, s->made->list->sig[s->a[i]], want, j)
                        ? c->cost[s->a[i] * want->list->n + want->of[j]]
                        : INFINITY;
        }
        TSRI_TRY(tsri_add_matrix(p, s, want, 0, cost));
    }
    return tsri_add_edge(p, node, r->node, cost);
}

/* --- computed tensors ------------------------------------------------------------------------- */
/* Lists the signatures that it can be handed on in: the one that it is made in, and those that two
 * readers could take. */
static tsri_siglist *relay_list(tsri_problem *p, const tsri_side *made, const tsri_siglist *also)
{
    int n = made->list->n;
    tsr_sbp *list = tsri_mem_alloc(p->pool->mem, (size_t)(n + also->n) * sizeof *list);
    if (!list)
        return NULL;
    memcpy(list, made->list->sig, (size_t)n * sizeof *list);
    for (int i = 0; i < also->n; i++)
        if (tsri_sig_index(list, n, also->sig[i]) < 0)
            list[n++] = also->sig[i];
    tsri_siglist *interned = tsri_intern_list(p, list, n);
    tsri_mem_free(list);
    return interned;
}

static tsr_status make_relay(tsri_problem *p, const tsr_tensor *t, tsri_shared *s)
{
    tsri_siglist *also;
    TSRI_TRY(shareable(p, s, &also));
    s->side.placement = s->made->placement;
    s->side.list = relay_list(p, s->made, also);
    TSRI_NEED(s->side.list);
    size_t n = (size_t)s->side.list->n;
    s->n = s->side.n = s->side.list->n;
    s->side.of = tsri_pool_alloc(p->pool, n * sizeof *s->side.of);
    s->own = tsri_pool_alloc(p->pool, n * sizeof *s->own);
    s->usage = tsri_pool_alloc(p->pool, n * sizeof *s->usage);
    TSRI_NEED(s->side.of && s->own && s->usage);
    for (int i = 0; i < s->n; i++) {
        s->side.of[i] = i;
        s->usage[i] = tsri_part_bytes(t, s->side.placement, s->side.list->sig[i]);
    }
    return TSR_OK;
}

/* --- both ------------------------------------------------------------------------------------- */
bool tsri_is_kept(const tsr_tensor *t)
{
    return t->op->kind == TSRI_OP_VARIABLE || t->op->kind == TSRI_OP_INPUT;
}

static tsr_status find_shared(tsri_problem *p, const tsr_tensor *t, const tsri_side *made,
                              tsri_shared **out)
{
    tsri_shared key = {.made = made};
    for (const tsri_reader *r = p->reads.first[t->id]; r; r = r->next)
        key.nwant++;
    key.want = tsri_pool_alloc(p->pool, (size_t)key.nwant * sizeof *key.want);
    TSRI_NEED(key.want);
    int n = 0;
    for (const tsri_reader *r = p->reads.first[t->id]; r; r = r->next)
        key.want[n++] = r->want;
    uint64_t h =
        tsri_hash(tsri_hash_pointers(made, NULL), key.want, (uint64_t)n * sizeof *key.want);
    for (tsri_shared *s = p->kept.shareds[h % TSRI_INFER_BUCKETS]; s; s = s->next)
        if (s->made == made && s->nwant == n &&
            !memcmp(s->want, key.want, (size_t)n * sizeof *key.want)) {
            *out = s;
            return TSR_OK;
        }
    tsri_shared *s = tsri_pool_dup(p->pool, &key, sizeof key);
    TSRI_NEED(s);
    TSRI_TRY(tsri_is_kept(t) ? make_pairs(p, t, s) : make_relay(p, t, s));
    s->next = p->kept.shareds[h % TSRI_INFER_BUCKETS];
    p->kept.shareds[h % TSRI_INFER_BUCKETS] = s;
    *out = s;
    return TSR_OK;
}

tsr_status tsri_add_shared(tsri_problem *p, const tsr_tensor *t, const tsri_side *made)
{
    tsri_shared *s;
    TSRI_TRY(find_shared(p, t, made, &s));
    const bool kept = tsri_is_kept(t);
    int node, maker = t->op->id, last = p->reads.last_use[t->id];
    const int64_t every = tsri_tensor_every(t);
    int first = kept ? maker : maker + 1; /* until then a relay is its maker's */
    const int64_t *usage = s->usage;
    const int window = tsri_window(p, made->placement);
    TSRI_TRY(tsri_copied_usage(p, t, s->n, &usage));
    TSRI_TRY(tsri_add_node(p,
                           (tsri_search_node){.nstrat = s->n,
                                              .cost = s->own,
                                              .usage = usage,
                                              .first = window + first,
                                              .last = window + (last > maker ? last : first)},
                           &node));
    if (p->reads.holds) {
        p->reads.shared[t->id] = s;
        p->reads.node[t->id] = node;
    }
    TSRI_TRY(kept ? tsri_add_edge(p, p->node_of[maker], node, s->up)
                  : tsri_conversion_edge(p, t, every, p->node_of[maker], made, node, &s->side, 0));
    for (const tsri_reader *r = p->reads.first[t->id]; r; r = r->next)
        TSRI_TRY(
            kept ? shared_edge(p, t, s, node, r)
                 : tsri_conversion_edge(p, t, every, node, &s->side, r->node, r->want, r->share));
    return TSR_OK;
}
