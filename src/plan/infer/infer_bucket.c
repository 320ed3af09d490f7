/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buckets, before signatures are chosen: which gradients are made close enough to each other, and
 * are small enough, for their reductions to be one call. Each placement has one open bucket at a
 * time for each way in which its variables are laid out; a bucket is closed by its size, or by a
 * gradient that is made only when an update has read one of its members, or what an optimizer does
 * with it before that.
 *
 * Inference lets a member pay its share of the bucket's hand-shakes, in proportion to its bytes: so
 * the members of a bucket that are all reduced alike pay what its one call takes, and members that
 * are not pay less. A choice that is proven cheapest by these prices is so for the plan, wherever
 * the calls of the plan are these buckets.
 */
#include <math.h>
#include <stdlib.h>

#include "src/plan/infer/infer.h"

/* Members of a call, at most. */
enum { MOST_MEMBERS = 256 };

typedef struct member {
    int update, made, read, group; /* ops, of which `read` is the gradient's first reader; of open
                                      buckets */
    double bytes;
} member;

typedef struct open_bucket {
    const tsr_placement *placement;
    unsigned kept_whole; /* dimensions of the variables' signatures that are B; ~0: inferred */
    int number, n, first_read;
    double bytes;
} open_bucket;

static int by_making(const void *a, const void *b)
{
    const member *x = a, *y = b;
    return x->made != y->made ? (x->made > y->made) - (x->made < y->made) : x->update - y->update;
}

static unsigned whole_dims(tsr_sbp sbp)
{
    unsigned whole = sbp.ndim ? 0 : ~0u;
    for (int d = 0; d < sbp.ndim; d++)
        whole |= (unsigned)(sbp.d[d].kind == TSR_SBP_BROADCAST) << d;
    return whole;
}

/* The number of the group of open buckets that an update belongs to; adds one. */
static tsr_status find_group(tsri_pool *pool, const tsri_op *op, open_bucket **open, int *nopen,
                             int *copen, int *out_group)
{
    const tsr_variable *first = op->out[0]->writes;
    unsigned whole = whole_dims(first ? first->sbp : tsri_kept_signature(op));
    for (int i = 0; i < *nopen; i++)
        if ((*open)[i].placement == op->placement && (*open)[i].kept_whole == whole) {
            *out_group = i;
            return TSR_OK;
        }
    TSRI_NEED(TSRI_PUSH(pool, *open, *nopen, *copen));
    (*open)[*nopen] = (open_bucket){.placement = op->placement, .kept_whole = whole};
    *out_group = (*nopen)++;
    return TSR_OK;
}

/* Deals the members to buckets and returns how many there are; `exceed`: a bucket is closed when it
 * has reached the limit, not before. */
static int deal(const member *m, int n, double limit, bool exceed, open_bucket *open, int nopen,
                int *number)
{
    int count = 0;
    for (int i = 0; i < nopen; i++)
        open[i].n = 0;
    for (int i = 0; i < n; i++) {
        open_bucket *b = &open[m[i].group];
        bool full = b->bytes >= limit || (!exceed && b->bytes + m[i].bytes > limit);
        if (!b->n || full || b->n == MOST_MEMBERS || m[i].made > b->first_read) {
            b->number = count++;
            b->n = 0;
            b->bytes = 0;
            b->first_read = m[i].read;
        }
        b->n++;
        b->bytes += m[i].bytes;
        b->first_read = m[i].read < b->first_read ? m[i].read : b->first_read;
        number[i] = b->number;
    }
    return count;
}

/* Returns the gradient that an optimizer has made t of, element by element: cast, divided by a
 * scale, clipped; or that is brought into the signature of t, which is said, on the same ranks. Its
 * reduction may stand before or behind that. NULL: t is the differentiation's. */
static const tsr_tensor *gradient_before(const tsr_tensor *t)
{
    const tsri_op *op = t->op;
    if (op->kind == TSRI_OP_TO_GLOBAL && op->placement == op->in[0]->placement)
        return op->in[0];
    if (!op->optimizes || op->nin < 1 || tsri_op_def_of(op->kind)->layout != TSRI_LAYOUT_ANY ||
        !tsr_dims_equal(op->in[0]->shape, t->shape))
        return NULL;
    for (int i = 1; i < op->nin; i++)
        if (op->in[i]->shape.ndim > 0)
            return NULL;
    return op->in[0];
}

static tsr_status set_shares(tsri_problem *p, const member *m, int n, const int *number, int count)
{
    double *total = tsri_pool_alloc(p->pool, (size_t)count * sizeof *total);
    TSRI_NEED(total);
    for (int i = 0; i < n; i++)
        total[number[i]] += m[i].bytes;
    for (int i = 0; i < n; i++) {
        const tsri_op *update = p->g->ops[m[i].update];
        const tsri_bucket_part part = {number[i] + 1,
                                       total[number[i]] > 0 ? m[i].bytes / total[number[i]] : 1};
        p->out->bucket[m[i].update] = part;
        const tsr_tensor *t = update->in[tsri_op_gradient_operand(update->kind, update->nin)];
        for (; t; t = gradient_before(t))
            p->out->gradient[t->id] = part;
    }
    return TSR_OK;
}

/* The op that makes a tensor; views make nothing. */
static int maker_of(const tsr_tensor *t)
{
    while (tsri_op_def_of(t->op->kind)->is_view)
        t = t->op->in[0];
    return t->op->id;
}

tsr_status tsri_infer_buckets(tsri_problem *p, double limit)
{
    tsr_graph *g = p->g;
    size_t nops = (size_t)g->nops;
    member *m = tsri_pool_alloc(p->pool, nops * sizeof *m);
    int *number = tsri_pool_alloc(p->pool, nops * sizeof *number);
    int *first_read = tsri_pool_alloc(p->pool, (size_t)g->ntensors * sizeof *first_read);
    p->out->bucket = tsri_pool_alloc(p->pool, nops * sizeof *p->out->bucket);
    p->out->gradient = tsri_pool_alloc(p->pool, (size_t)g->ntensors * sizeof *p->out->gradient);
    TSRI_NEED(m && number && first_read && p->out->bucket && p->out->gradient);
    for (int i = g->nops - 1; i >= 0; i--)
        for (int j = 0; j < g->ops[i]->nin && p->out->live[i]; j++)
            first_read[g->ops[i]->in[j]->id] = i;
    open_bucket *open = NULL;
    int n = 0, nopen = 0, copen = 0;
    for (int i = 0; i < g->nops; i++) {
        const tsri_op *op = g->ops[i];
        int arg = tsri_op_gradient_operand(op->kind, op->nin);
        if (arg < 0 || !p->out->live[i])
            continue;
        const tsr_tensor *t = op->in[arg];
        for (const tsr_tensor *before; (before = gradient_before(t)); t = before)
            ;
        m[n] =
            (member){.update = i,
                     .made = maker_of(t),
                     .read = first_read[t->id],
                     .bytes = (double)tsr_dims_count(t->shape) * (double)tsr_dtype_size(t->dtype)};
        TSRI_TRY(find_group(p->pool, op, &open, &nopen, &copen, &m[n++].group));
    }
    qsort(m, (size_t)n, sizeof *m, by_making);
    int most = deal(m, n, limit, true, open, nopen, number);
    int count = deal(m, n, limit, false, open, nopen, number);
    if (most < count) /* so large are the members that most buckets would stay half empty */
        count = deal(m, n, limit, true, open, nopen, number);
    return set_shares(p, m, n, number, count);
}

tsr_status tsri_bucket_prices(tsri_problem *p, tsri_conversion *c, double share, float *price)
{
    size_t n = (size_t)c->from->n * (size_t)c->to->n;
    tsri_mesh mesh = tsri_mesh_of(c->from_placement);
    if (!c->joints && c->from_placement == c->to_placement) {
        c->joints = tsri_pool_alloc(p->pool, n * sizeof *c->joints);
        TSRI_NEED(c->joints);
        tsri_route_joints(p->m, c->shape, c->element, &mesh, c->from->n, c->from->sig, c->to->n,
                          c->to->sig, c->joints);
    }
    for (size_t i = 0; i < n; i++) {
        price[i] = c->cost[i];
        if (c->joints && c->joints[i].joins && !isinf(price[i]))
            price[i] = fminf(price[i], (float)(tsri_joint_price(&c->joints[i], 1, share, NULL) /
                                               (double)c->every));
    }
    return TSR_OK;
}
