/* SPDX-License-Identifier: Apache-2.0 */
#include "src/rewrite/rewrite.h"

/* A direct operand of a backward op is kept if it has at most 1/SMALL of the bytes of its own op's
 * largest operand. A small value with forward consumers only is recomputed with its consumer, so
 * that the two can still be fused. */
enum { SMALL = 16 };

typedef struct rewriter {
    tsr_graph *g;
    tsri_op **old; /* [nold] the ops before the rewrite */
    int nold;
    bool *kept;        /* per tensor: not recomputed */
    bool *needed;      /* per op: recomputed in the backward pass */
    int *next, *end;   /* per region: its first op that has not been repeated, the end of its ops */
    tsr_tensor **twin; /* per tensor: the recomputed value for backward consumers, or NULL */
} rewriter;

static int64_t bytes_of(const tsr_tensor *t)
{
    return tsr_dims_count(t->shape) * (int64_t)tsr_dtype_size(t->dtype);
}

/* Whether an op cannot be repeated: it has effects, no operands, or belongs to no region. */
static bool is_single(const tsri_op *op)
{
    bool once = !op->region || op->nin == 0 || op->kind == TSRI_OP_RANK_SUM;
    for (int j = 0; j < op->nout; j++)
        once |= op->out[j]->writes || op->out[j]->is_loss;
    return once;
}

static bool is_small(const tsr_tensor *t)
{
    int64_t largest = 0;
    for (int j = 0; j < t->op->nin; j++)
        if (bytes_of(t->op->in[j]) > largest)
            largest = bytes_of(t->op->in[j]);
    return SMALL * bytes_of(t) <= largest;
}

/* Marks the values that are kept, and finds where each region begins and ends. A value with
 * consumers in another turn of a step with micro-batches lives during all parts in any case. */
static void find_kept(rewriter *r)
{
    for (int i = 0; i < r->nold; i++) {
        const tsri_op *op = r->old[i];
        const bool once = is_single(op);
        for (int j = 0; j < op->nin; j++) {
            const tsr_tensor *t = op->in[j];
            r->kept[t->id] |= op->backward ? is_small(t) : op->region != t->op->region;
            r->kept[t->id] |= op->turn != t->op->turn;
        }
        for (int j = 0; j < op->nout; j++)
            r->kept[op->out[j]->id] = once;
        if (!r->end[op->region])
            r->next[op->region] = i;
        r->end[op->region] = i + 1;
    }
    for (int i = 0; i < r->g->nports; i++)
        r->kept[r->g->ports[i].tensor->id] = true;
}

/* Marks the ops that are recomputed: producers of values that backward ops or other marked ops
 * consume and that are not kept. Returns their number. */
static int find_needed(rewriter *r)
{
    int n = 0;
    for (int i = r->nold; i-- > 0;) {
        const tsri_op *op = r->old[i];
        n += r->needed[i];
        for (int j = 0; j < op->nin && (op->backward || r->needed[i]); j++)
            if (!r->kept[op->in[j]->id])
                r->needed[op->in[j]->op->id] = true;
    }
    return n;
}

static void read_twins(const rewriter *r, tsri_op *op)
{
    for (int j = 0; j < op->nin; j++)
        if (r->twin[op->in[j]->id])
            op->in[j] = r->twin[op->in[j]->id];
}

/* Appends a copy of an op for the backward pass. */
static tsr_status repeat(rewriter *r, const tsri_op *op)
{
    tsr_graph *g = r->g;
    tsri_op *again = tsri_pool_dup(&g->pool, op, sizeof *op);
    tsr_tensor *results = tsri_pool_alloc(&g->pool, (size_t)op->nout * sizeof *results);
    TSRI_NEED(again && results);
    again->again = again->backward = true;
    again->region = 0;
    again->in = tsri_pool_dup(&g->pool, op->in, (size_t)op->nin * sizeof(tsr_tensor *));
    again->out = tsri_pool_alloc(&g->pool, (size_t)op->nout * sizeof(tsr_tensor *));
    TSRI_NEED(again->in && again->out);
    read_twins(r, again);
    for (int j = 0; j < op->nout; j++) {
        tsr_tensor *t = again->out[j] = &results[j];
        *t = *op->out[j];
        t->op = again;
        t->id = g->ntensors;
        TSRI_NEED(TSRI_PUSH(&g->pool, g->tensors, g->ntensors, g->ctensors));
        g->tensors[g->ntensors++] = t;
        if (!r->kept[op->out[j]->id])
            r->twin[op->out[j]->id] = t;
    }
    g->ops[g->nops++] = again;
    return TSR_OK;
}

/* Before the backward op `op`, appends the copies of the regions whose values it consumes. Only ops
 * declared before `op` are copied, as a region may contain gradients. */
static tsr_status repeat_regions(rewriter *r, const tsri_op *op)
{
    for (int j = 0; j < op->nin; j++) {
        const int region = op->in[j]->op->region;
        if (r->kept[op->in[j]->id])
            continue;
        for (int *i = &r->next[region]; *i < r->end[region] && *i < op->id; ++*i)
            if (r->needed[*i] && r->old[*i]->region == region)
                TSRI_TRY(repeat(r, r->old[*i]));
    }
    return TSR_OK;
}

tsr_status tsri_rewrite_recompute(tsr_graph *copy)
{
    rewriter r = {.g = copy, .old = copy->ops, .nold = copy->nops};
    tsri_pool *pool = &copy->pool;
    const size_t nregions = (size_t)copy->now.nregions + 1, ntensors = (size_t)copy->ntensors;
    if (!copy->now.nregions)
        return TSR_OK;
    r.kept = tsri_pool_alloc(pool, ntensors * sizeof *r.kept);
    r.needed = tsri_pool_alloc(pool, (size_t)r.nold * sizeof *r.needed);
    r.next = tsri_pool_alloc(pool, 2 * nregions * sizeof *r.next);
    r.twin = tsri_pool_alloc(pool, ntensors * sizeof(tsr_tensor *));
    TSRI_NEED(r.kept && r.needed && r.next && r.twin);
    r.end = r.next + nregions;
    find_kept(&r);
    const int more = find_needed(&r);
    copy->ops = tsri_pool_alloc(pool, (size_t)(r.nold + more) * sizeof(tsri_op *));
    TSRI_NEED(copy->ops);
    copy->cops = r.nold + more;
    copy->nops = 0;
    for (int i = 0; i < r.nold; i++) {
        tsri_op *op = r.old[i];
        if (op->backward) {
            TSRI_TRY(repeat_regions(&r, op));
            read_twins(&r, op);
        }
        copy->ops[copy->nops++] = op;
    }
    for (int i = 0; i < copy->nops; i++)
        copy->ops[i]->id = i;
    return TSR_OK;
}
