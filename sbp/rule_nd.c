/* SPDX-License-Identifier: Apache-2.0 */
/*
 * n-D signatures: 1-D derivations, one per hierarchy dimension, each at the sizes that the ones
 * before it leave. Where every axis is a single index these are the plain product. Where one is
 * composed, as in "(a b) c", what may be split depends on sizes: whether parts are equal, and
 * whether an index is split down to 1.
 */
#include <string.h>

#include "sbp/rule_types.h"

/* An uneven split leaves two sizes per index and dimension; ranks hold combinations of them. */
enum { MAX_VARIANTS = 64 };

typedef struct variants {
    int n;
    int64_t (*size)[TSRI_RULE_MAX_INDICES]; /* [n][nindices] */
} variants;

typedef struct walk {
    tsri_pool *pool;
    tsri_rule rule; /* a copy, whose sizes change */
    bool composed;
    int ndim;
    const int *dim;
    tsri_nd_signature now;
    tsri_nd_signature *list;
    int count, capacity;
    /* Where no axis is composed: each dimension's entries, which do not depend on the others. */
    tsri_rule_entry *plain[TSR_MAX_HIERARCHY];
    int nplain[TSR_MAX_HIERARCHY];
} walk;

static bool is_composed(const tsri_rule *rule)
{
    for (int r = 0; r < rule->nrules; r++) {
        const tsri_subrule *sub = &rule->rules[r];
        for (int i = 0; i < rule->nin + sub->nout; i++) {
            const tsri_rule_arg *arg = i < rule->nin ? &sub->in[i] : &sub->out[i - rule->nin];
            for (int a = 0; a < arg->naxes; a++)
                if (arg->axis[a + 1] - arg->axis[a] > 1)
                    return true;
        }
    }
    return false;
}

static bool mixes_partials(const tsr_sbp *s)
{
    int op = -1;
    for (int d = 0; d < s->ndim; d++) {
        if (s->d[d].kind != TSR_SBP_PARTIAL)
            continue;
        if (op >= 0 && op != s->d[d].arg)
            return true;
        op = s->d[d].arg;
    }
    return false;
}

static tsr_status push(walk *w)
{
    for (int i = 0; i < w->rule.nin; i++)
        if (mixes_partials(&w->now.in[i]))
            return TSR_OK;
    for (int i = 0; i < w->rule.nout; i++)
        if (mixes_partials(&w->now.out[i]))
            return TSR_OK;
    if (!TSRI_PUSH(w->pool, w->list, w->count, w->capacity))
        return TSR_ERR_NO_MEMORY;
    w->list[w->count++] = w->now;
    return TSR_OK;
}

static bool same_entry(const tsri_rule *rule, const tsri_rule_entry *a, const tsri_rule_entry *b)
{
    return a->split == b->split &&
           !memcmp(a->sig.in, b->sig.in, (size_t)rule->nin * sizeof *a->sig.in) &&
           !memcmp(a->sig.out, b->sig.out, (size_t)rule->nout * sizeof *a->sig.out);
}

/* The 1-D entries over k parts that are legal at all the sizes. */
static tsr_status common_entries(walk *w, const variants *v, int k, int *out_n,
                                 tsri_rule_entry **out_entries)
{
    int n = 0;
    tsri_rule_entry *entries = NULL;
    for (int i = 0; i < v->n; i++) {
        int m, kept = 0;
        tsri_rule_entry *more;
        for (int l = 0; l < w->rule.nindices; l++)
            w->rule.index[l].size = v->size[i][l];
        TSRI_TRY(tsri_rule_entries(w->pool, &w->rule, k, &m, &more));
        if (i == 0) {
            n = m;
            entries = more;
            continue;
        }
        for (int a = 0; a < n; a++) {
            bool found = false;
            for (int b = 0; b < m && !found; b++)
                found = same_entry(&w->rule, &entries[a], &more[b]);
            if (found)
                entries[kept++] = entries[a];
        }
        n = kept;
    }
    *out_n = n;
    *out_entries = entries;
    return TSR_OK;
}

static bool add_variant(const walk *w, variants *v, const int64_t *size)
{
    size_t bytes = (size_t)w->rule.nindices * sizeof *size;
    for (int i = 0; i < v->n; i++)
        if (!memcmp(v->size[i], size, bytes))
            return true;
    if (v->n == MAX_VARIANTS)
        return false;
    memcpy(v->size[v->n++], size, bytes);
    return true;
}

/* The sizes after splitting the indices of `split` over k parts: for each, the larger and the
 * smaller piece. False if they are too many to follow. */
static bool split_variants(const walk *w, const variants *from, uint32_t split, int k, variants *to)
{
    to->n = 0;
    for (int i = 0; i < from->n; i++)
        for (uint32_t lesser = split;; lesser = (lesser - 1) & split) {
            int64_t size[TSRI_RULE_MAX_INDICES];
            for (int l = 0; l < w->rule.nindices; l++) {
                int64_t n = from->size[i][l];
                bool is_lesser = lesser >> l & 1 && n % k != 0;
                size[l] = split >> l & 1 ? (is_lesser ? n / k : (n + k - 1) / k) : n;
            }
            if (!add_variant(w, to, size))
                return false;
            if (!lesser)
                break;
        }
    return true;
}

static tsr_status descend(walk *w, int d, const variants *v)
{
    if (d == w->ndim)
        return push(w);
    if (w->composed || !w->plain[d])
        TSRI_TRY(common_entries(w, v, w->dim[d], &w->nplain[d], &w->plain[d]));
    int n = w->nplain[d];
    const tsri_rule_entry *entries = w->plain[d];
    variants next = {0};
    if (w->composed && !(next.size = tsri_pool_alloc(w->pool, MAX_VARIANTS * sizeof *next.size)))
        return TSR_ERR_NO_MEMORY;
    for (int e = 0; e < n; e++) {
        for (int i = 0; i < w->rule.nin; i++)
            w->now.in[i].d[d] = entries[e].sig.in[i];
        for (int i = 0; i < w->rule.nout; i++)
            w->now.out[i].d[d] = entries[e].sig.out[i];
        w->now.split[d] = entries[e].split;
        if (!w->composed)
            TSRI_TRY(descend(w, d + 1, v)); /* sizes play no part */
        else if (split_variants(w, v, entries[e].split, w->dim[d], &next))
            TSRI_TRY(descend(w, d + 1, &next));
    }
    return TSR_OK;
}

tsr_status tsri_rule_derive_nd(tsri_pool *pool, const tsri_rule *rule, int ndim, const int *dim,
                               int *out_count, tsri_nd_signature **out_signatures)
{
    walk w = {.pool = pool, .rule = *rule, .composed = is_composed(rule), .ndim = ndim, .dim = dim};
    variants whole = {.n = 1};
    whole.size = tsri_pool_alloc(pool, sizeof *whole.size);
    if (!whole.size)
        return TSR_ERR_NO_MEMORY;
    for (int l = 0; l < rule->nindices; l++)
        whole.size[0][l] = rule->index[l].size;
    for (int i = 0; i < rule->nin; i++)
        w.now.in[i].ndim = (int8_t)ndim;
    for (int i = 0; i < rule->nout; i++)
        w.now.out[i].ndim = (int8_t)ndim;
    TSRI_TRY(descend(&w, 0, &whole));
    *out_count = w.count;
    *out_signatures = w.list;
    return TSR_OK;
}
