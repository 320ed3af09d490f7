/* SPDX-License-Identifier: Apache-2.0 */
/* Costs between many signatures of one mesh: every state's steps are listed once, then each source
 * is searched from over that graph. */
#include "sbp/route/cross.h"
#include "sbp/route/hunt.h"
#include "sbp/route/route.h"
#include "sbp/route/table.h"

#include <math.h>
#include <string.h>

typedef struct edge {
    double cost;
    int to;
} edge;

/* The steps that leave a state. */
typedef struct edge_list {
    edge *edge; /* [n] */
    int n;
} edge_list;

/* The states of a mesh and their steps. */
typedef struct graph {
    tsri_space *space;
    tsri_pool *pool;
    tsri_table states;
    edge_list *steps; /* [states.n] */
    int room;         /* of steps */
} graph;

/* All states that can be reached from those that are there, and their steps. */
static tsr_status graph_build(graph *g)
{
    tsri_hop hops[TSRI_MAX_HOPS];
    for (int i = 0; i < g->states.n; i++) {
        int n = tsri_space_hops(g->space, g->states.state[i], false, hops);
        edge *edges = tsri_pool_alloc(g->pool, (size_t)n * sizeof *edges);
        TSRI_NEED(edges && TSRI_PUSH(g->pool, g->steps, i, g->room));
        g->steps[i] = (edge_list){edges, n};
        for (int k = 0; k < n; k++) {
            edges[k].cost = hops[k].cost;
            TSRI_TRY(tsri_table_add(&g->states, hops[k].to, &edges[k].to));
        }
    }
    return TSR_OK;
}

/* Searches from one source: Dijkstra over the graph, and straight from what it settles to each
 * destination. */
typedef struct source {
    graph *g;
    int nto, nopen, nactive;
    int *active;       /* [nactive] destinations that are looked for */
    tsri_state *to;    /* [nto] */
    double *best;      /* [nto] */
    double *straight;  /* [n * nto] costs of the steps straight to each; row by row when needed */
    bool *known;       /* [n] rows that are there */
    double *cost;      /* [n] */
    int *open, *place; /* [n] heap of states by that; where in it, from 1, or 0 */
} source;

static tsr_status source_init(source *s, graph *g, int nto)
{
    size_t n = (size_t)g->states.n, m = (size_t)nto;
    *s = (source){.g = g, .nto = nto};
    s->to = tsri_pool_alloc(g->pool, m * sizeof *s->to);
    s->best = tsri_pool_alloc(g->pool, m * sizeof *s->best);
    s->active = tsri_pool_alloc(g->pool, m * sizeof *s->active);
    s->straight = tsri_pool_alloc(g->pool, n * m * sizeof *s->straight);
    s->known = tsri_pool_alloc(g->pool, n * sizeof *s->known);
    s->cost = tsri_pool_alloc(g->pool, n * sizeof *s->cost);
    s->open = tsri_pool_alloc(g->pool, n * sizeof *s->open);
    s->place = tsri_pool_alloc(g->pool, n * sizeof *s->place);
    TSRI_NEED(s->to && s->best && s->active && s->straight && s->known && s->cost && s->open &&
              s->place);
    return TSR_OK;
}

/* src/core/heap.h would order states of equal costs too, which takes time here for nothing. */
static void rise(source *s, int at, int state)
{
    for (; at > 0 && s->cost[state] < s->cost[s->open[(at - 1) / 2]]; at = (at - 1) / 2) {
        s->open[at] = s->open[(at - 1) / 2];
        s->place[s->open[at]] = at + 1;
    }
    s->open[at] = state;
    s->place[state] = at + 1;
}

static int pop(source *s)
{
    int top = s->open[0], state = s->open[--s->nopen], at = 0;
    s->place[top] = 0;
    if (s->nopen == 0)
        return top;
    for (int child; (child = 2 * at + 1) < s->nopen; at = child) {
        if (child + 1 < s->nopen && s->cost[s->open[child + 1]] < s->cost[s->open[child]])
            child++;
        if (s->cost[s->open[child]] >= s->cost[state])
            break;
        s->open[at] = s->open[child];
        s->place[s->open[at]] = at + 1;
    }
    s->open[at] = state;
    s->place[state] = at + 1;
    return top;
}

static const double *straight_row(source *s, int x)
{
    double *row = &s->straight[(size_t)x * (size_t)s->nto];
    for (int j = 0; j < s->nto && !s->known[x]; j++) {
        tsri_hop hop;
        tsri_state state = s->g->states.state[x];
        row[j] = state == s->to[j]                                       ? 0
                 : tsri_space_direct(s->g->space, state, s->to[j], &hop) ? hop.cost
                                                                         : INFINITY;
    }
    s->known[x] = true;
    return row;
}

/* Lowers best[] of the destinations that are looked for by what state x gives, and drops those that
 * are as near as x: no state that is settled later can be on a shorter way. */
static void settle(source *s, int x)
{
    const double *row = straight_row(s, x);
    double cost = s->cost[x];
    int n = 0;
    for (int i = 0; i < s->nactive; i++) {
        int j = s->active[i];
        double way = cost + row[j], best = s->best[j];
        best = way < best ? way : best;
        s->best[j] = best;
        s->active[n] = j;
        n += best > cost;
    }
    s->nactive = n;
}

/* best[j] of the active destinations: least cost from `start` past states with P of the kinds `ops`
 * (bits). */
static void search(source *s, int start, unsigned ops)
{
    const graph *g = s->g;
    for (int i = 0; i < g->states.n; i++) {
        s->cost[i] = INFINITY;
        s->place[i] = 0;
    }
    s->nopen = 0;
    s->cost[start] = 0;
    rise(s, s->nopen++, start);
    while (s->nopen) {
        int x = pop(s);
        settle(s, x);
        if (s->nactive == 0)
            return;
        for (int e = 0; e < g->steps[x].n; e++) {
            int y = g->steps[x].edge[e].to;
            double cost = s->cost[x] + g->steps[x].edge[e].cost;
            if (cost >= s->cost[y] || (tsri_state_partial(g->states.state[y]) &&
                                       !(ops >> tsri_state_op(g->states.state[y]) & 1)))
                continue;
            s->cost[y] = cost;
            rise(s, s->place[y] ? s->place[y] - 1 : s->nopen++, y);
        }
    }
}

static tsri_state encode(const tsri_space *space, tsr_sbp sbp)
{
    tsri_layout l = tsri_layout_of(space->mesh, sbp);
    return tsri_space_encode(space, &l);
}

static unsigned ops_of(tsri_state state)
{
    return tsri_state_partial(state) ? 1u << tsri_state_op(state) : 0;
}

/* Ways may pass P of the kinds of their own two ends, so that destinations are searched for by
 * kind. */
static void search_all(source *s, int from, float *cost)
{
    unsigned own = ops_of(s->g->states.state[from]), done = 0;
    for (int i = 0; i < s->nto; i++) {
        unsigned ops = own | ops_of(s->to[i]);
        if (done >> ops & 1)
            continue;
        done |= 1u << ops;
        s->nactive = 0;
        for (int j = 0; j < s->nto; j++)
            if ((own | ops_of(s->to[j])) == ops) {
                s->best[j] = INFINITY;
                s->active[s->nactive++] = j;
            }
        search(s, from, ops);
    }
    for (int j = 0; j < s->nto; j++)
        cost[j] = (float)s->best[j];
}

static tsr_status same_mesh(tsri_space *space, tsri_pool *pool, int nfrom, const tsr_sbp *from,
                            int nto, const tsr_sbp *to, float *cost)
{
    graph g = {.space = space, .pool = pool, .states.pool = pool};
    source s;
    int index;
    for (int i = 0; i < nfrom + nto; i++) {
        tsri_state state = encode(space, i < nfrom ? from[i] : to[i - nfrom]);
        space->make_ops |= (uint8_t)ops_of(state);
        TSRI_TRY(tsri_table_add(&g.states, state, &index));
    }
    space->make_dims = space->dims;
    TSRI_TRY(graph_build(&g));
    TSRI_TRY(source_init(&s, &g, nto));
    for (int j = 0; j < nto; j++)
        s.to[j] = encode(space, to[j]);
    for (int i = 0; i < nfrom; i++) {
        TSRI_TRY(tsri_table_add(&g.states, encode(space, from[i]), &index));
        search_all(&s, index, cost + (size_t)i * (size_t)nto);
    }
    return TSR_OK;
}

tsr_status tsri_route_costs(const tsri_cost_model *m, tsri_mem *mem, tsr_dims shape, size_t element,
                            const tsri_mesh *from_mesh, int nfrom, const tsr_sbp *from,
                            const tsri_mesh *to_mesh, int nto, const tsr_sbp *to, float *cost)
{
    tsri_space a, b;
    unsigned axes = 0, ops;
    if (nfrom == 0 || nto == 0)
        return TSR_OK;
    for (int i = 0; i < nfrom + nto; i++) {
        tsri_layout l =
            i < nfrom ? tsri_layout_of(from_mesh, from[i]) : tsri_layout_of(to_mesh, to[i - nfrom]);
        TSRI_TRY(tsri_route_look(&l, shape, &ops, &axes));
    }
    tsri_pool pool;
    tsr_status status;
    tsri_pool_init(&pool, mem);
    tsri_space_init(&a, m, from_mesh, shape, element, axes);
    if (tsri_mesh_equal(from_mesh, to_mesh)) {
        status = same_mesh(&a, &pool, nfrom, from, nto, to, cost);
    } else {
        tsri_space_init(&b, m, to_mesh, shape, element, axes);
        status = tsri_cross_costs(m, shape, element, &a, &b, &pool, nfrom, from, nto, to, cost);
    }
    tsri_pool_finish(&pool);
    return status;
}
