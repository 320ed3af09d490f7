/* SPDX-License-Identifier: Apache-2.0 */
/* From the problem to its core. */
#include "sbp/search/graph.h"

#include <math.h>
#include <string.h>

/* Additions of domination per node of the problem: it is optional. */
#define DOMINATION_WORK 60000.0

struct tsri_sr_record {
    tsri_sr_record *next; /* the one eliminated before */
    int v, cost, nsides;
    const int *orig;
    int m[2], other[2]; /* [own][other's] */
    const int *other_orig[2];
    int other_k[2];
};

static tsr_status check_entries(const float *cost, int64_t count, double *out_most,
                                const char *what, int number)
{
    float most = 0.0f;
    for (int64_t i = 0; i < count; i++) {
        float c = cost[i];
        if (isnan(c) || c == -INFINITY)
            return tsri_fail(TSR_ERR_INVALID,
                             "search: %s %d: cost %lld is %s; a cost is a number or +INFINITY",
                             what, number, (long long)i, isnan(c) ? "not a number" : "-INFINITY");
        if (fabsf(c) > most && c != INFINITY)
            most = fabsf(c);
    }
    *out_most = most;
    return TSR_OK;
}

static tsr_status check_node(const tsri_search_problem *p, int v, double *range)
{
    const tsri_search_node *x = &p->nodes[v];
    double most = 0.0;
    if (x->nstrat < 1)
        return tsri_fail(TSR_ERR_INVALID,
                         "search: node %d has %d strategies; each needs at least one", v,
                         x->nstrat);
    TSRI_TRY(check_entries(x->cost, x->nstrat, &most, "node", v));
    *range += most;
    if (x->usage && x->first > x->last)
        return tsri_fail(TSR_ERR_INVALID,
                         "search: node %d uses memory from time %d to %d; legal is first <= last",
                         v, x->first, x->last);
    for (int s = 0; s < x->nstrat && x->usage; s++)
        if (x->usage[s] < 0)
            return tsri_fail(TSR_ERR_INVALID,
                             "search: node %d: usage %d is %lld bytes; legal is 0 or more", v, s,
                             (long long)x->usage[s]);
    return TSR_OK;
}

static tsr_status check_problem(const tsri_search_problem *p)
{
    if (p->nnodes < 0 || p->nedges < 0 || p->max_table < 0 || p->usage_limit < 0)
        return tsri_fail(TSR_ERR_INVALID,
                         "search: %d nodes, %d edges, max_table %lld, usage_limit %lld: none may "
                         "be negative",
                         p->nnodes, p->nedges, (long long)p->max_table, (long long)p->usage_limit);
    for (int e = 0; e < p->nedges; e++) {
        int u = p->edges[e].u, v = p->edges[e].v;
        if (u < 0 || v < 0 || u >= p->nnodes || v >= p->nnodes || u == v)
            return tsri_fail(TSR_ERR_INVALID,
                             "search: edge %d joins nodes %d and %d; legal are two different nodes "
                             "of 0..%d",
                             e, u, v, p->nnodes - 1);
    }
    return TSR_OK;
}

static void enqueue(tsri_sreducer *r, int v)
{
    if (r->nodes[v].queued || r->nodes[v].gone)
        return;
    r->nodes[v].queued = true;
    r->queue[(r->head + r->waiting++) % r->p->nnodes] = v;
}

/* The lists of nodes hold the edges that are there, in the order of their numbers at first. */
static tsr_status list_edge(tsri_sreducer *r, int v, int e)
{
    tsri_sr_node *x = &r->nodes[v];
    if (!TSRI_PUSH(r->pool, x->edges, x->nedges, x->cap))
        return TSR_ERR_NO_MEMORY;
    x->edges[x->nedges++] = e;
    return TSR_OK;
}

static void unlist_edge(tsri_sreducer *r, int v, int e)
{
    tsri_sr_node *x = &r->nodes[v];
    int i = 0;
    while (x->edges[i] != e)
        i++;
    x->nedges--;
    memmove(&x->edges[i], &x->edges[i + 1], (size_t)(x->nedges - i) * sizeof(int));
}

static int other_end(const tsri_sr_edge *e, int v)
{
    return e->u == v ? e->v : e->u;
}

/* The edge's matrix as v sees it. */
static int side_of(const tsri_sreducer *r, int e, int v)
{
    const tsri_sr_edge *x = &r->edges[e];
    return x->u == v ? x->m : tsri_sm_flip(&r->memo, x->m);
}

/* Adds m [u][v] to the edge of the pair, or makes one. */
static tsr_status add_edge(tsri_sreducer *r, int u, int v, int m)
{
    const tsri_sr_node *x = &r->nodes[r->nodes[u].nedges < r->nodes[v].nedges ? u : v];
    for (int i = 0; i < x->nedges; i++) {
        tsri_sr_edge *e = &r->edges[x->edges[i]];
        if ((e->u == u && e->v == v) || (e->u == v && e->v == u)) {
            int own = e->u == u ? e->m : tsri_sm_flip(&r->memo, e->m);
            TSRI_TRY(tsri_sm_add(&r->memo, own, m, &own));
            r->edges[x->edges[i]] = (tsri_sr_edge){u, v, own};
            return TSR_OK;
        }
    }
    if (!TSRI_PUSH(r->pool, r->edges, r->nedges, r->cedges))
        return TSR_ERR_NO_MEMORY;
    r->edges[r->nedges] = (tsri_sr_edge){u, v, m};
    TSRI_TRY(list_edge(r, u, r->nedges));
    return list_edge(r, v, r->nedges++);
}

static tsr_status start_node(tsri_sreducer *r, int v, double price, bool keep_usage,
                             const int *counting, double *scratch)
{
    const tsri_search_node *x = &r->p->nodes[v];
    tsri_sr_node *node = &r->nodes[v];
    *node = (tsri_sr_node){.k = x->nstrat, .use = -1, .orig = counting};
    double most = 0.0;
    for (int s = 0; s < x->nstrat; s++) {
        scratch[s] = x->cost[s];
        if (x->usage && price > 0.0) {
            double extra = price * (double)x->usage[s];
            scratch[s] += extra;
            most = extra > most ? extra : most;
        }
    }
    r->range += most;
    TSRI_TRY(tsri_sm_vector(&r->memo, scratch, x->nstrat, &node->cost));
    if (!x->usage || !keep_usage)
        return TSR_OK;
    for (int s = 0; s < x->nstrat; s++)
        scratch[s] = (double)x->usage[s];
    return tsri_sm_vector(&r->memo, scratch, x->nstrat, &node->use);
}

static tsr_status start_edges(tsri_sreducer *r)
{
    const tsri_search_problem *p = r->p;
    double *most = NULL;
    int nmost = 0;
    for (int i = 0; i < p->nedges; i++) {
        const tsri_search_edge *e = &p->edges[i];
        int rows = p->nodes[e->u].nstrat, cols = p->nodes[e->v].nstrat, m, before = nmost;
        TSRI_TRY(tsri_sm_input(&r->memo, e->cost, rows, cols, &m));
        /* Each table is checked when it is first met. */
        while (nmost < r->memo.cmats) {
            double *more = tsri_pool_alloc(r->pool, (size_t)r->memo.cmats * sizeof *more);
            TSRI_NEED(more);
            for (nmost = 0; nmost < r->memo.cmats; nmost++)
                more[nmost] = nmost < before ? most[nmost] : -1.0;
            most = more;
        }
        if (most[m] < 0.0)
            TSRI_TRY(check_entries(e->cost, (int64_t)rows * cols, &most[m], "edge", i));
        r->range += most[m];
        TSRI_TRY(add_edge(r, e->u, e->v, m));
    }
    return TSR_OK;
}

tsr_status tsri_sr_start(tsri_sreducer *r, tsri_pool *pool, const tsri_search_problem *problem,
                         const double *price, bool keep_usage)
{
    *r = (tsri_sreducer){.p = problem, .pool = pool};
    TSRI_TRY(check_problem(problem));
    size_t n = (size_t)problem->nnodes;
    int widest = 1;
    for (int v = 0; v < problem->nnodes; v++) {
        TSRI_TRY(check_node(problem, v, &r->range));
        widest = problem->nodes[v].nstrat > widest ? problem->nodes[v].nstrat : widest;
    }
    TSRI_TRY(tsri_sm_init(&r->memo, pool));
    r->memo.work = DOMINATION_WORK * (double)n;
    r->nodes = tsri_pool_alloc(pool, n * sizeof *r->nodes);
    r->queue = tsri_pool_alloc(pool, n * sizeof(int));
    r->weight = tsri_pool_alloc(pool, n * sizeof(double));
    int *counting = tsri_pool_alloc(pool, (size_t)widest * sizeof(int));
    double *scratch = tsri_pool_alloc(pool, (size_t)widest * sizeof(double));
    TSRI_NEED(r->nodes && r->queue && r->weight && counting && scratch);
    TSRI_TRY(tsri_heap_init(&r->pending, pool, problem->nnodes, r->weight));
    for (int s = 0; s < widest; s++)
        counting[s] = s;
    for (int v = 0; v < problem->nnodes; v++)
        TSRI_TRY(start_node(r, v, price ? price[v] : 0.0, keep_usage, counting, scratch));
    TSRI_TRY(start_edges(r));
    /* An infeasible total is at least forbid - range = 2 range + 1 > range. */
    r->forbid = 3.0 * r->range + 1.0;
    for (int v = 0; v < problem->nnodes; v++)
        enqueue(r, v);
    return TSR_OK;
}

static tsr_status add_cost(tsri_sreducer *r, int v, int vector)
{
    return tsri_sm_add(&r->memo, r->nodes[v].cost, vector, &r->nodes[v].cost);
}

static void remove_edge(tsri_sreducer *r, int e)
{
    unlist_edge(r, r->edges[e].u, e);
    unlist_edge(r, r->edges[e].v, e);
    enqueue(r, r->edges[e].u);
    enqueue(r, r->edges[e].v);
    r->edges[e].m = -1;
}

/* Leaves the strategies kept->index of a node, whose costs and edges the caller sees to. */
static tsr_status keep(tsri_sreducer *r, tsri_sr_node *x, const tsri_smkept *kept)
{
    int *orig = tsri_pool_alloc(r->pool, (size_t)kept->count * sizeof(int));
    TSRI_NEED(orig);
    for (int s = 0; s < kept->count; s++)
        orig[s] = x->orig[kept->index[s]];
    x->orig = orig;
    x->k = kept->count;
    return x->use < 0 ? TSR_OK : tsri_sm_select(&r->memo, x->use, kept, &x->use);
}

static tsr_status apply(tsri_sreducer *r, int v, const tsri_smkept *kept)
{
    tsri_sr_node *x = &r->nodes[v];
    TSRI_TRY(keep(r, x, kept));
    TSRI_TRY(tsri_sm_select(&r->memo, x->cost, kept, &x->cost));
    for (int i = 0; i < x->nedges; i++) {
        int e = x->edges[i], w = other_end(&r->edges[e], v), m = side_of(r, e, v);
        TSRI_TRY(tsri_sm_select(&r->memo, m, kept, &m));
        r->edges[e] = (tsri_sr_edge){v, w, m};
        enqueue(r, w);
    }
    return TSR_OK;
}

tsr_status tsri_sr_rewrite(tsri_sreducer *r, int v, const int *index, int count, const double *cost)
{
    tsri_sr_node *x = &r->nodes[v];
    TSRI_TRY(keep(r, x, &(tsri_smkept){.count = count, .of = x->k, .index = index}));
    enqueue(r, v);
    return tsri_sm_own(&r->memo, cost, 1, count, &x->cost);
}

tsr_status tsri_sr_rewrite_edge(tsri_sreducer *r, int e, int u, int v, const double *cost)
{
    int m;
    TSRI_TRY(tsri_sm_own(&r->memo, cost, r->nodes[u].k, r->nodes[v].k, &m));
    r->edges[e] = (tsri_sr_edge){u, v, m};
    return TSR_OK;
}

/* Drops strategies of v, then edges of it that couple nothing. */
static tsr_status shrink(tsri_sreducer *r, int v)
{
    tsri_sr_node *x = &r->nodes[v];
    int *sides = tsri_pool_alloc(r->pool, (size_t)x->nedges * sizeof(int));
    TSRI_NEED(sides);
    for (int i = 0; i < x->nedges; i++)
        sides[i] = side_of(r, x->edges[i], v);
    tsri_smkept kept;
    TSRI_TRY(tsri_sm_dominate(&r->memo, x->cost, x->use, sides, x->nedges, &kept));
    if (kept.count == 0) {
        r->empty = true;
        return TSR_OK;
    }
    if (kept.count < kept.of)
        TSRI_TRY(apply(r, v, &kept));
    for (int i = x->nedges - 1; i >= 0; i--) {
        int e = x->edges[i], w = other_end(&r->edges[e], v), own, others;
        TSRI_TRY(tsri_sm_split(&r->memo, side_of(r, e, v), &own, &others));
        if (own < 0)
            continue;
        TSRI_TRY(add_cost(r, v, own));
        TSRI_TRY(add_cost(r, w, others));
        remove_edge(r, e);
    }
    return TSR_OK;
}

/* A node in the heap that has become cheaper or dearer meanwhile keeps its place. */
static void maybe_pend(tsri_sreducer *r, int v)
{
    const tsri_sr_node *x = &r->nodes[v];
    bool usage_matters = x->use >= 0 && x->k > 1;
    if (x->gone || x->nedges > 2 || usage_matters || r->pending.place[v])
        return;
    double w = x->k;
    for (int i = 0; i < x->nedges; i++)
        w *= r->nodes[other_end(&r->edges[x->edges[i]], v)].k;
    r->weight[v] = w;
    tsri_heap_put(&r->pending, v);
}

static tsr_status eliminate(tsri_sreducer *r, int v)
{
    tsri_sr_node *x = &r->nodes[v];
    tsri_sr_record *rec = tsri_pool_alloc(r->pool, sizeof *rec);
    TSRI_NEED(rec);
    *rec = (tsri_sr_record){
        .next = r->records, .v = v, .cost = x->cost, .nsides = x->nedges, .orig = x->orig};
    for (int i = 0; i < x->nedges; i++) {
        int e = x->edges[i], w = other_end(&r->edges[e], v);
        rec->m[i] = side_of(r, e, v);
        rec->other[i] = w;
        rec->other_orig[i] = r->nodes[w].orig;
        rec->other_k[i] = r->nodes[w].k;
    }
    r->records = rec;
    while (x->nedges)
        remove_edge(r, x->edges[x->nedges - 1]);
    x->gone = true;
    if (rec->nsides == 0) {
        const double *cost = tsri_sm_rows(&r->memo, x->cost);
        TSRI_NEED(cost);
        double least = tsri_least_of(cost, x->k);
        r->constant += least;
        r->empty |= least == INFINITY;
        return TSR_OK;
    }
    int m;
    if (rec->nsides == 1) {
        TSRI_TRY(tsri_sm_message(&r->memo, x->cost, rec->m[0], &m));
        return add_cost(r, rec->other[0], m);
    }
    TSRI_TRY(tsri_sm_join(&r->memo, x->cost, rec->m[0], rec->m[1], &m));
    return add_edge(r, rec->other[0], rec->other[1], m);
}

tsr_status tsri_sr_run(tsri_sreducer *r)
{
    while (!r->empty && (r->waiting || r->pending.n)) {
        if (!r->waiting) {
            int v = r->pending.item[0];
            tsri_heap_take(&r->pending, v);
            if (r->nodes[v].nedges <= 2)
                TSRI_TRY(eliminate(r, v));
            continue;
        }
        int v = r->queue[r->head];
        r->head = (r->head + 1) % r->p->nnodes;
        r->waiting--;
        r->nodes[v].queued = false;
        if (r->nodes[v].gone)
            continue;
        TSRI_TRY(shrink(r, v));
        maybe_pend(r, v);
    }
    return TSR_OK;
}

static int place_of(const int *orig, int k, int strategy)
{
    int low = 0, high = k - 1;
    while (low < high) {
        int mid = (low + high) / 2;
        if (orig[mid] < strategy)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

int tsri_sr_place(const tsri_sreducer *r, int v, int strategy)
{
    return place_of(r->nodes[v].orig, r->nodes[v].k, strategy);
}

tsr_status tsri_sr_complete(tsri_sreducer *r, int *choice)
{
    for (const tsri_sr_record *rec = r->records; rec; rec = rec->next) {
        const double *cost = tsri_sm_rows(&r->memo, rec->cost), *m[2] = {NULL, NULL};
        TSRI_NEED(cost);
        int at[2] = {0}, cols[2] = {0}, k = r->memo.mats[rec->cost].cols, best = 0;
        double least = INFINITY;
        for (int i = 0; i < rec->nsides; i++) {
            m[i] = tsri_sm_rows(&r->memo, rec->m[i]);
            TSRI_NEED(m[i]);
            cols[i] = rec->other_k[i];
            at[i] = place_of(rec->other_orig[i], cols[i], choice[rec->other[i]]);
        }
        for (int s = 0; s < k; s++) {
            double sum = cost[s];
            for (int i = 0; i < rec->nsides; i++)
                sum += m[i][(int64_t)s * cols[i] + at[i]];
            if (sum < least) {
                least = sum;
                best = s;
            }
        }
        choice[rec->v] = rec->orig[best];
    }
    return TSR_OK;
}
