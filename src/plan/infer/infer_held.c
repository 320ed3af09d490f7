/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of micro-batches. A value from before them is converted once a step, and the result
 * stays for all of them. Edges of the search have no memory, so each such conversion gets a node
 * without cost. Its strategies are the producer's signatures, which take no memory, and the
 * signatures that the consumer accepts, which take the bytes of a part. Edges of infinite cost tie
 * the node to both. In a pipeline a stage keeps the operands of its backward pass for several
 * micro-batches.
 */
#include <math.h>

#include "src/plan/infer/infer.h"

/* A producer of more strategies gets no such node: its tables would be too large. */
enum { MOST_MADE = 256 };
/* In place of a bucket's share, these tell the tables of such nodes from those of conversions. */
static const double HELD_FROM = -1, HELD_TO = -2;

bool tsri_is_held(const tsri_problem *p, const tsr_tensor *t, const tsri_reader *r)
{
    return p->reads.holds && r->in_parts && t->op->turn == TSRI_TURN_HEAD;
}

tsr_status tsri_having_of(tsri_problem *p, const tsri_side *made, const tsri_shared *s,
                          tsri_having *out)
{
    const tsri_side *side = s && s->side.n ? &s->side : made; /* of a relay */
    const bool keeps = s && !s->side.n;
    const int n = keeps ? s->n : side->n;
    tsr_sbp *sig = tsri_pool_alloc(p->pool, (size_t)n * sizeof *sig);
    TSRI_NEED(sig);
    for (int i = 0; i < n; i++)
        sig[i] = keeps ? made->list->sig[s->a[i]] : side->list->sig[side->of[i]];
    *out = (tsri_having){.key = s ? (const void *)s : made,
                         .placement = made->placement,
                         .n = n,
                         .sig = sig,
                         .also = keeps ? s->e : NULL};
    return TSR_OK;
}

static bool has(const tsri_having *h, int i, tsr_sbp sig)
{
    return tsr_sbp_equal(h->sig[i], sig) || (h->also && tsr_sbp_equal(h->also[i], sig));
}

/* Fills the costs of strategies of the node with those of the producer, or of the consumer. */
static void fill(const tsri_having *h, const tsri_side *want, float *from, float *to)
{
    const int n = h->n + want->list->n;
    const bool stays = h->placement == want->placement;
    for (int i = 0; i < h->n; i++)
        for (int k = 0; k < n; k++)
            from[i * n + k] = k < h->n ? (k == i ? 0 : INFINITY)
                              : stays && has(h, i, want->list->sig[k - h->n]) ? INFINITY
                                                                              : 0;
    for (int k = 0; k < n; k++)
        for (int j = 0; j < want->n; j++) {
            const int of = want->of[j];
            const bool is_its = k < h->n ? stays && has(h, k, want->list->sig[of]) : k - h->n == of;
            to[k * want->n + j] = is_its ? 0 : INFINITY;
        }
}

tsr_status tsri_hold(tsri_problem *p, const tsr_tensor *t, int node, const tsri_having *h,
                     const tsri_reader *r)
{
    const tsri_side *want = r->want;
    const int n = h->n + want->list->n;
    int held;
    if (h->n > MOST_MADE)
        return TSR_OK;
    float *from = tsri_find_matrix(p, h->key, want->list, HELD_FROM);
    float *to = tsri_find_matrix(p, h->key, want, HELD_TO);
    if (!from || !to) {
        from = tsri_pool_alloc(p->pool, (size_t)(h->n * n) * sizeof *from);
        to = tsri_pool_alloc(p->pool, (size_t)(n * want->n) * sizeof *to);
        TSRI_NEED(from && to);
        fill(h, want, from, to);
        TSRI_TRY(tsri_add_matrix(p, h->key, want->list, HELD_FROM, from));
        TSRI_TRY(tsri_add_matrix(p, h->key, want, HELD_TO, to));
    }
    float *zero = tsri_pool_alloc(p->pool, (size_t)n * sizeof *zero);
    int64_t *usage = tsri_pool_alloc(p->pool, (size_t)n * sizeof *usage);
    TSRI_NEED(zero && usage);
    for (int k = h->n; k < n; k++)
        usage[k] = tsri_part_bytes(t, want->placement, want->list->sig[k - h->n]);
    const int window = tsri_window(p, want->placement);
    const int first = window + t->op->id, last = window + p->reads.last_use[t->id];
    TSRI_TRY(tsri_add_node(p,
                           (tsri_search_node){.nstrat = n,
                                              .cost = zero,
                                              .usage = usage,
                                              .first = first,
                                              .last = last > first ? last : first},
                           &held));
    TSRI_TRY(tsri_add_edge(p, node, held, from));
    return tsri_add_edge(p, held, r->node, to);
}

/* --- copies ----------------------------------------------------------------------------------- */
/* Writes the depth of each forward op of the parts, as src/plan/pass/stages.c has it: the most
 * changes of placement on a path to it. Returns the most of all. */
static int find_depths(const tsr_graph *g, int *depth)
{
    int most = 0;
    for (int i = 0; i < g->nops; i++) {
        const tsri_op *op = g->ops[i];
        for (int j = 0; j < op->nin && op->turn == TSRI_TURN_PARTS && !op->backward; j++) {
            const tsri_op *from = op->in[j]->op;
            const int moves = from->out[0]->placement != op->out[0]->placement;
            if (from->turn == TSRI_TURN_PARTS && depth[from->id] + moves > depth[i])
                depth[i] = depth[from->id] + moves;
        }
        most = depth[i] > most ? depth[i] : most;
    }
    return most;
}

/* Lists the placements that forward ops of the parts have; none if two of them share a rank. */
static tsr_status list_stages(tsri_problem *p)
{
    const tsr_graph *g = p->g;
    tsri_tensor_reads *r = &p->reads;
    int room = 0;
    bool *taken = tsri_pool_alloc(p->pool, (size_t)g->world->nranks);
    TSRI_NEED(taken);
    for (int i = 0; i < g->nops; i++) {
        const tsr_placement *here = g->ops[i]->out[0]->placement;
        bool is_new = g->ops[i]->turn == TSRI_TURN_PARTS && !g->ops[i]->backward;
        for (int k = r->nstages - 1; k >= 0 && is_new; k--)
            is_new = r->stage[k] != here;
        if (!is_new)
            continue;
        TSRI_NEED(TSRI_PUSH(p->pool, r->stage, r->nstages, room));
        r->stage[r->nstages++] = here;
        for (int k = 0; k < tsr_placement_nranks(here); k++) {
            bool *rank = &taken[tsr_placement_rank(here, k)];
            if (*rank) {
                r->nstages = 0;
                return TSR_OK;
            }
            *rank = true;
        }
    }
    return TSR_OK;
}

tsr_status tsri_find_copies(tsri_problem *p, tsr_pipeline pipeline, int parts)
{
    const int n = p->g->nops;
    TSRI_TRY(list_stages(p));
    if (p->reads.nstages < 2)
        return TSR_OK;
    int *depth = tsri_pool_alloc(p->pool, (size_t)n * sizeof *depth);
    TSRI_NEED(depth);
    const int stages = find_depths(p->g, depth) + 1;
    for (int i = 0; i < n; i++)
        depth[i] = (int)tsri_stage_copies(pipeline, stages, p->reads.nstages, depth[i], parts);
    p->reads.copies = depth;
    return TSR_OK;
}

int tsri_window(const tsri_problem *p, const tsr_placement *placement)
{
    for (int k = 0; k < p->reads.nstages && p->reads.copies; k++)
        if (p->reads.stage[k] == placement)
            return k * (p->g->nops + 1);
    return 0;
}

static int64_t copies_of(const tsri_problem *p, const tsr_tensor *t)
{
    const tsri_op *op = t->op;
    const bool is_kept = p->reads.copies && op->turn == TSRI_TURN_PARTS && !op->backward &&
                         p->g->ops[p->reads.last_use[t->id]]->backward;
    return is_kept ? p->reads.copies[op->id] : 1;
}

tsr_status tsri_copied_usage(tsri_problem *p, const tsr_tensor *t, int n, const int64_t **of)
{
    const int64_t copies = copies_of(p, t);
    if (copies < 2 || !*of)
        return TSR_OK;
    int64_t *all = tsri_pool_dup(p->pool, *of, (size_t)n * sizeof *all);
    TSRI_NEED(all);
    for (int i = 0; i < n; i++)
        all[i] *= copies;
    *of = all;
    return TSR_OK;
}
