/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/search/branch.h"

#include <math.h>
#include <string.h>

enum { DUAL_STEPS = 40 };

/* One assigned node: the state of the others before it is that of its level. */
typedef struct level {
    int node, next; /* the strategies in order[next...] are yet to be tried */
    int *order;
    double *cost;  /* all nodes' strategies: with the edges to what is assigned */
    double *least; /* [n] of those */
    double bound;
} level;

typedef struct brancher {
    tsri_branch *b;
    const tsri_sgraph *g;
    tsri_pool *pool;
    tsri_sg_dual dual;
    double **edge; /* [nedges] [k(u)][k(v)] >= 0, reparametrised */
    double *start; /* first costs */
    int *at;       /* [n] where a node's strategies start in level.cost */
    int total;
    double base;
    int *choice; /* [n]; -1: not assigned */
    level *levels;
    int64_t *room;   /* [ntimes] with unassigned nodes at their least usage */
    int64_t *slight; /* [n] that least usage */
    double slack;
} brancher;

/* Subtracts each row's least entry and gives it to the row's node. */
static void move_minima(double *edge, int rows, int cols, int64_t row, int64_t col, double *cost)
{
    for (int i = 0; i < rows; i++) {
        double least = edge[i * row];
        for (int j = 1; j < cols; j++)
            least = edge[i * row + j * col] < least ? edge[i * row + j * col] : least;
        for (int j = 0; j < cols; j++)
            edge[i * row + j * col] -= least;
        cost[i] += least;
    }
}

static tsr_status reparametrise(brancher *x)
{
    const tsri_sgraph *g = x->g;
    tsri_sg_dual *d = &x->dual;
    TSRI_TRY(tsri_sg_dual_start(x->pool, g, d));
    for (int i = 0; i < DUAL_STEPS; i++)
        tsri_sg_dual_step(d, x->choice);
    x->b->work -= d->pass * DUAL_STEPS;
    x->start = tsri_pool_alloc(x->pool, (size_t)x->total * sizeof(double));
    x->edge = tsri_pool_alloc(x->pool, (size_t)g->nedges * sizeof *x->edge);
    TSRI_NEED(x->start && x->edge);
    for (int v = 0; v < g->n; v++)
        memcpy(x->start + x->at[v], g->cost[v], (size_t)g->k[v] * sizeof(double));
    for (int e = 0; e < g->nedges; e++) {
        int u = g->edges[e].u, v = g->edges[e].v, ku = g->k[u], kv = g->k[v];
        double *cu = x->start + x->at[u], *cv = x->start + x->at[v];
        double *c = tsri_pool_alloc(x->pool, (size_t)ku * (size_t)kv * sizeof(double));
        TSRI_NEED(c);
        for (int i = 0; i < ku; i++)
            for (int j = 0; j < kv; j++)
                c[i * kv + j] = g->edges[e].cost[i * kv + j] - d->to_u[e][i] - d->to_v[e][j];
        for (int i = 0; i < ku; i++)
            cu[i] += d->to_u[e][i];
        for (int j = 0; j < kv; j++)
            cv[j] += d->to_v[e][j];
        move_minima(c, ku, kv, kv, 1, cu);
        move_minima(c, kv, ku, 1, kv, cv);
        x->edge[e] = c;
    }
    return TSR_OK;
}

static tsr_status start_usage(brancher *x)
{
    const tsri_usage *u = x->b->usage;
    if (!u)
        return TSR_OK;
    x->room = tsri_pool_dup(x->pool, u->room, (size_t)u->ntimes * sizeof(int64_t));
    x->slight = tsri_pool_alloc(x->pool, (size_t)x->g->n * sizeof(int64_t));
    TSRI_NEED(x->room && x->slight);
    for (int v = 0; v < x->g->n; v++) {
        if (!u->use[v])
            continue;
        x->slight[v] = (int64_t)tsri_least_of(u->use[v], x->g->k[v]);
        for (int t = u->from[x->g->node[v]]; t <= u->to[x->g->node[v]]; t++)
            x->room[t] -= x->slight[v];
    }
    return TSR_OK;
}

static tsr_status start(brancher *x)
{
    const tsri_sgraph *g = x->g;
    x->at = tsri_pool_alloc(x->pool, (size_t)g->n * sizeof(int));
    x->choice = tsri_pool_alloc(x->pool, (size_t)g->n * sizeof(int));
    x->levels = tsri_pool_alloc(x->pool, ((size_t)g->n + 1) * sizeof *x->levels);
    TSRI_NEED(x->at && x->choice && x->levels);
    for (int v = 0; v < g->n; v++) {
        x->at[v] = x->total;
        x->total += g->k[v];
    }
    TSRI_TRY(reparametrise(x));
    for (int v = 0; v < g->n; v++)
        x->choice[v] = -1;
    x->slack = 1e-12 * g->range;
    for (int i = 0; i <= g->n; i++) {
        level *l = &x->levels[i];
        l->cost = tsri_pool_alloc(x->pool, (size_t)x->total * sizeof(double));
        l->least = tsri_pool_alloc(x->pool, (size_t)g->n * sizeof(double));
        l->order = tsri_pool_alloc(x->pool, (size_t)x->total * sizeof(int));
        TSRI_NEED(l->cost && l->least && l->order);
    }
    level *first = &x->levels[0];
    memcpy(first->cost, x->start, (size_t)x->total * sizeof(double));
    for (int v = 0; v < g->n; v++) {
        first->least[v] = tsri_least_of(first->cost + x->at[v], g->k[v]);
        first->bound += first->least[v];
    }
    return start_usage(x);
}

/* Whether nothing of that bound can count. */
static bool hopeless(const brancher *x, double bound)
{
    double discount = x->b->usage ? x->b->usage->discount : 0.0;
    return bound - discount >= x->b->upper - x->slack || bound > x->g->range * (1.0 + 1e-9);
}

/* Lists the node's strategies that are not hopeless, best first, in order. */
static int list_strategies(const brancher *x, const level *l, int v, int *order)
{
    const double *cost = l->cost + x->at[v];
    int count = 0;
    for (int s = 0; s < x->g->k[v]; s++) {
        if (hopeless(x, l->bound - l->least[v] + cost[s]))
            continue;
        int i = count++;
        for (; i > 0 && cost[order[i - 1]] > cost[s]; i--)
            order[i] = order[i - 1];
        order[i] = s;
    }
    return count;
}

static int pick_node(const brancher *x, const level *l)
{
    int best = -1, fewest = 0;
    for (int v = 0; v < x->g->n; v++) {
        if (x->choice[v] >= 0)
            continue;
        int count = 0;
        for (int s = 0; s < x->g->k[v]; s++)
            count += !hopeless(x, l->bound - l->least[v] + l->cost[x->at[v] + s]);
        int degree = x->g->adj_start[v + 1] - x->g->adj_start[v];
        count = count * 64 - (degree < 63 ? degree : 63);
        if (best < 0 || count < fewest) {
            best = v;
            fewest = count;
        }
    }
    return best;
}

/* Takes the usage of strategy s of v beyond its least; with sign -1 gives it back. Whether all
 * times keep room. */
static bool use_room(brancher *x, int v, int s, int sign)
{
    const tsri_usage *u = x->b->usage;
    bool fits = true;
    if (!u || !u->use[v])
        return true;
    int64_t more = sign * ((int64_t)u->use[v][s] - x->slight[v]);
    for (int t = u->from[x->g->node[v]]; t <= u->to[x->g->node[v]]; t++) {
        x->room[t] -= more;
        fits &= x->room[t] >= 0;
    }
    return fits;
}

/* The level below: v takes s. */
static void descend(brancher *x, const level *l, level *down, int v, int s)
{
    const tsri_sgraph *g = x->g;
    memcpy(down->cost, l->cost, (size_t)x->total * sizeof(double));
    memcpy(down->least, l->least, (size_t)g->n * sizeof(double));
    down->least[v] = l->cost[x->at[v] + s];
    for (int i = g->adj_start[v]; i < g->adj_start[v + 1]; i++) {
        int e = g->adj[i];
        bool is_u = g->edges[e].u == v;
        int w = is_u ? g->edges[e].v : g->edges[e].u, kv = g->k[g->edges[e].v];
        if (x->choice[w] >= 0)
            continue;
        double *cost = down->cost + x->at[w];
        for (int t = 0; t < g->k[w]; t++)
            cost[t] += is_u ? x->edge[e][s * kv + t] : x->edge[e][t * kv + s];
        down->least[w] = tsri_least_of(cost, g->k[w]);
    }
    down->bound = 0.0;
    for (int w = 0; w < g->n; w++)
        down->bound += down->least[w];
    x->b->work -= 3.0 * x->total + g->n;
}

/* The cost without prices, summed anew. */
static void take(brancher *x)
{
    const tsri_usage *u = x->b->usage;
    double cost = tsri_sg_cost(x->g, x->choice);
    for (int v = 0; v < x->g->n && u; v++)
        if (u->use[v])
            cost -= u->price[x->g->node[v]] * u->use[v][x->choice[v]];
    if (cost >= x->b->upper)
        return;
    x->b->upper = cost;
    x->b->found = true;
    memcpy(x->b->choice, x->choice, (size_t)x->g->n * sizeof(int));
}

static void search(brancher *x, int *counts)
{
    int depth = 0, n = x->g->n;
    x->levels[0].node = -1;
    while (depth >= 0 && x->b->work > 0.0) {
        level *l = &x->levels[depth];
        if (depth == n) {
            take(x);
        } else if (l->node < 0) {
            l->node = pick_node(x, l);
            l->next = 0;
            counts[depth] = list_strategies(x, l, l->node, l->order);
        } else {
            /* Back from a strategy. */
            use_room(x, l->node, x->choice[l->node], -1);
            x->choice[l->node] = -1;
        }
        bool deeper = false;
        while (depth < n && !deeper && l->next < counts[depth]) {
            int v = l->node, s = l->order[l->next++];
            if (hopeless(x, l->bound - l->least[v] + l->cost[x->at[v] + s]))
                continue;
            if (!use_room(x, v, s, 1)) {
                use_room(x, v, s, -1);
                continue;
            }
            x->choice[v] = s;
            descend(x, l, l + 1, v, s);
            l[1].node = -1;
            deeper = true;
        }
        depth += deeper ? 1 : -1;
    }
}

tsr_status tsri_sg_branch(tsri_mem *mem, tsri_branch *branch)
{
    tsri_pool pool;
    tsri_pool_init(&pool, mem);
    brancher x = {.b = branch, .g = branch->g, .pool = &pool};
    tsr_status status;
    branch->found = false;
    TSRI_GOTO(start(&x), done);
    bool fits = true;
    for (int t = 0; branch->usage && t < branch->usage->ntimes; t++)
        fits &= x.room[t] >= 0;
    int *counts = tsri_pool_alloc(&pool, ((size_t)branch->g->n + 1) * sizeof(int));
    status = counts ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (counts && fits && !hopeless(&x, x.levels[0].bound))
        search(&x, counts);
done:
    tsri_pool_finish(&pool);
    return status;
}
