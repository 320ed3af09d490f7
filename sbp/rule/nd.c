/* SPDX-License-Identifier: Apache-2.0 */
/*
 * n-D signatures: 1-D derivations, one per hierarchy dimension, each at the sizes that the ones
 * before it leave. Where every axis is a single index these are the plain product. Where one is
 * composed, as in "(a b) c", what may be split depends on sizes: whether parts are equal, and
 * whether an index is split down to 1. So the sizes of such indices, and no others, tell one state
 * of the walk from another. Few differ, and each is derived once, however many ways lead to it.
 */
#include <string.h>

#include "sbp/rule/types.h"

/* The sizes of an index's pieces. Balanced splits of balanced splits differ by 1 at most; which
 * parts have the larger piece of one index says nothing of another's. */
typedef struct pieces {
    int64_t larger, lesser;
} pieces;

/* The choices of dimension d where the ones before it have left these pieces. */
typedef struct node node;
struct node {
    node *other; /* of the same dimension */
    int n;
    tsri_rule_entry *entries;
    node **after; /* [n], of dimension d + 1; NULL in the last */
    pieces size[];
};

typedef struct walk {
    tsri_pool nodes;                              /* for the time of the walk */
    tsri_rule rule;                               /* a copy, whose sizes change */
    int ntracked, tracked[TSRI_RULE_MAX_INDICES]; /* the indices in composed axes */
    int ndim;
    const int *dim;
    node *first[TSR_MAX_HIERARCHY];
    uint32_t partials; /* bit op: some tensor is P(op) */
    tsri_nd_signature now;
    tsri_nd_signature *list; /* NULL while they are counted */
    int count;
} walk;

static uint32_t composed_indices(const tsri_rule *rule, const tsri_rule_arg *arg)
{
    uint32_t found = 0;
    for (int a = 0; a < arg->naxes; a++)
        for (int i = arg->axis[a]; i < arg->axis[a + 1]; i++)
            if (arg->axis[a + 1] - arg->axis[a] > 1 && rule->items[i] >= 0)
                found |= UINT32_C(1) << rule->items[i];
    return found;
}

static void track(walk *w)
{
    uint32_t found = 0;
    for (int r = 0; r < w->rule.nrules; r++) {
        for (int i = 0; i < w->rule.nin; i++)
            found |= composed_indices(&w->rule, &w->rule.rules[r].in[i]);
        for (int i = 0; i < w->rule.rules[r].nout; i++)
            found |= composed_indices(&w->rule, &w->rule.rules[r].out[i]);
    }
    for (; found; found &= found - 1)
        w->tracked[w->ntracked++] = __builtin_ctz(found);
}

static uint32_t partials_of(int n, const tsr_sbp1 *s)
{
    uint32_t found = 0;
    for (int i = 0; i < n; i++)
        if (s[i].kind == TSR_SBP_PARTIAL)
            found |= UINT32_C(1) << s[i].arg;
    return found;
}

static tsr_status reach(walk *w, int d, const pieces *size, node **out_node);

/* The node after an entry: its split indices' pieces are split again. */
static tsr_status reach_next(walk *w, int d, node *at, int entry)
{
    pieces size[TSRI_RULE_MAX_INDICES];
    int64_t k = w->dim[d];
    for (int i = 0; i < w->ntracked; i++) {
        size[i] = at->size[i];
        if (at->entries[entry].split >> w->tracked[i] & 1) {
            size[i].larger = size[i].larger / k + (size[i].larger % k != 0);
            size[i].lesser = size[i].lesser / k;
        }
    }
    return reach(w, d + 1, size, &at->after[entry]);
}

static tsr_status fill_node(walk *w, int d, node *at)
{
    for (int i = 0; i < w->ntracked; i++) {
        w->rule.index[w->tracked[i]].size = at->size[i].larger;
        w->rule.index[w->tracked[i]].lesser = at->size[i].lesser;
    }
    TSRI_TRY(tsri_rule_entries(&w->nodes, &w->rule, w->dim[d], &at->n, &at->entries));
    for (int e = 0; e < at->n; e++)
        w->partials |= partials_of(w->rule.nin, at->entries[e].sig.in) |
                       partials_of(w->rule.nout, at->entries[e].sig.out);
    if (d + 1 == w->ndim)
        return TSR_OK;
    at->after = tsri_pool_alloc(&w->nodes, (size_t)at->n * sizeof *at->after);
    TSRI_NEED(at->after);
    for (int e = 0; e < at->n; e++)
        TSRI_TRY(reach_next(w, d, at, e));
    return TSR_OK;
}

static tsr_status reach(walk *w, int d, const pieces *size, node **out_node)
{
    size_t bytes = (size_t)w->ntracked * sizeof *size;
    node *at = w->first[d];
    while (at && memcmp(at->size, size, bytes) != 0)
        at = at->other;
    if (!at) {
        at = tsri_pool_alloc(&w->nodes, sizeof *at + bytes);
        TSRI_NEED(at);
        memcpy(at->size, size, bytes);
        at->other = w->first[d];
        w->first[d] = at;
        TSRI_TRY(fill_node(w, d, at));
    }
    *out_node = at;
    return TSR_OK;
}

/* Whether the last of d + 1 entries is a P of another kind than one before it. */
static bool mixes(const tsr_sbp *s, int d)
{
    bool other = false;
    for (int i = 0; i < d && s->d[d].kind == TSR_SBP_PARTIAL; i++)
        other |= s->d[i].kind == TSR_SBP_PARTIAL && s->d[i].arg != s->d[d].arg;
    return other;
}

static bool mixes_any(const walk *w, int d)
{
    bool any = false;
    for (int i = 0; i < w->rule.nin; i++)
        any |= mixes(&w->now.in[i], d);
    for (int i = 0; i < w->rule.nout; i++)
        any |= mixes(&w->now.out[i], d);
    return any;
}

static void list_from(walk *w, int d, const node *at)
{
    bool several = (w->partials & (w->partials - 1)) != 0;
    for (int e = 0; e < at->n; e++) {
        const tsri_rule_entry *entry = &at->entries[e];
        for (int i = 0; i < w->rule.nin; i++)
            w->now.in[i].d[d] = entry->sig.in[i];
        for (int i = 0; i < w->rule.nout; i++)
            w->now.out[i].d[d] = entry->sig.out[i];
        w->now.split[d] = entry->split;
        if (several && mixes_any(w, d))
            continue;
        if (d + 1 < w->ndim && d + 1 < TSR_MAX_HIERARCHY)
            list_from(w, d + 1, at->after[e]);
        else if (w->list)
            w->list[w->count++] = w->now;
        else
            w->count++;
    }
}

/* Lists twice: first to count. */
static tsr_status list_all(walk *w, tsri_pool *pool, const node *root)
{
    for (int i = 0; i < w->rule.nin; i++)
        w->now.in[i].ndim = (int8_t)w->ndim;
    for (int i = 0; i < w->rule.nout; i++)
        w->now.out[i].ndim = (int8_t)w->ndim;
    list_from(w, 0, root);
    w->list = tsri_pool_alloc(pool, (size_t)w->count * sizeof *w->list);
    TSRI_NEED(w->list);
    w->count = 0;
    list_from(w, 0, root);
    return TSR_OK;
}

tsr_status tsri_rule_derive_nd(tsri_pool *pool, const tsri_rule *rule, int ndim, const int *dim,
                               int *out_count, tsri_nd_signature **out_signatures)
{
    if (ndim < 1 || ndim > TSR_MAX_HIERARCHY)
        return tsri_fail(TSR_ERR_INTERNAL, "rule \"%.300s\": signatures over %d dimensions",
                         rule->text, ndim);
    walk w = {.nodes = {.mem = pool->mem}, .rule = *rule, .ndim = ndim, .dim = dim};
    pieces whole[TSRI_RULE_MAX_INDICES];
    node *root;
    track(&w);
    for (int i = 0; i < w.ntracked; i++)
        whole[i].larger = whole[i].lesser = rule->index[w.tracked[i]].size;
    tsr_status status = reach(&w, 0, whole, &root);
    if (status == TSR_OK)
        status = list_all(&w, pool, root);
    tsri_pool_finish(&w.nodes);
    if (status != TSR_OK)
        return status;
    *out_count = w.count;
    *out_signatures = w.list;
    return TSR_OK;
}
