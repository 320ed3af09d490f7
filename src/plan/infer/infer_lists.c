/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of signatures, each kept once, and the sides of ops that have them. */
#include <string.h>

#include "src/core/rng.h"
#include "src/plan/infer/infer.h"

tsri_siglist *tsri_intern_list(tsri_problem *p, const tsr_sbp *sig, int n)
{
    uint64_t h = tsri_hash(TSRI_HASH_INIT, sig, (uint64_t)n * sizeof *sig);
    tsri_siglist **bucket = &p->kept.lists[h % TSRI_INFER_BUCKETS];
    for (tsri_siglist *l = *bucket; l; l = l->next)
        if (l->n == n && !memcmp(l->sig, sig, (size_t)n * sizeof *sig))
            return l;
    tsri_siglist *l = tsri_pool_alloc(p->pool, sizeof *l);
    if (!l || !(l->sig = tsri_pool_dup(p->pool, sig, (size_t)n * sizeof *sig)))
        return NULL;
    l->n = n;
    l->next = *bucket;
    *bucket = l;
    return l;
}

int tsri_sig_index(const tsr_sbp *list, int n, tsr_sbp sig)
{
    for (int i = 0; i < n; i++)
        if (tsr_sbp_equal(list[i], sig))
            return i;
    return -1;
}

/* Fills a side from the operand (or result) `arg` of each strategy. */
static tsr_status fill_side(tsri_problem *p, const tsri_strategies *s, bool is_out, int arg,
                            tsri_side *to)
{
    to->placement = s->op->placement;
    to->n = s->n;
    to->of = tsri_pool_alloc(p->pool, (size_t)s->n * sizeof *to->of);
    tsr_sbp *list = tsri_mem_alloc(p->pool->mem, (size_t)s->n * sizeof *list);
    if (!to->of || !list) {
        tsri_mem_free(list);
        return TSR_ERR_NO_MEMORY;
    }
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        tsr_sbp sig = is_out ? s->sig[i].out[arg] : s->sig[i].in[arg];
        int at = tsri_sig_index(list, n, sig);
        if (at < 0)
            list[at = n++] = sig;
        to->of[i] = at;
    }
    to->list = tsri_intern_list(p, list, n);
    tsri_mem_free(list);
    return to->list ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* Whether an op adds gradients up over runs, and keeps no shard of that. */
static bool adds_whole(const tsri_op *op)
{
    return op->kind == TSRI_OP_SGD && op->attrs.update.adds > 0;
}

tsr_status tsri_sides_of(tsri_problem *p, const tsri_strategies *s, tsri_sides **out)
{
    while (p->nsides <= s->id) {
        TSRI_NEED(TSRI_PUSH(p->pool, p->sides_of, p->nsides, p->csides));
        p->sides_of[p->nsides++] = NULL;
    }
    *out = p->sides_of[s->id];
    if (*out)
        return TSR_OK;
    tsri_sides *all = tsri_pool_alloc(p->pool, sizeof *all);
    TSRI_NEED(all);
    all->in = tsri_pool_alloc(p->pool, (size_t)s->op->nin * sizeof *all->in);
    all->out = tsri_pool_alloc(p->pool, (size_t)s->op->nout * sizeof *all->out);
    TSRI_NEED(all->in && all->out);
    for (int i = 0; i < s->op->nin; i++) {
        TSRI_TRY(fill_side(p, s, false, i, &all->in[i]));
        all->in[i].added = s->added >> i & 1;
        all->in[i].collects = tsri_op_def_of(s->op->kind)->collects || adds_whole(s->op);
    }
    for (int i = 0; i < s->op->nout; i++)
        TSRI_TRY(fill_side(p, s, true, i, &all->out[i]));
    *out = p->sides_of[s->id] = all;
    return TSR_OK;
}
