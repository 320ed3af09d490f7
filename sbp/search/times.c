/* SPDX-License-Identifier: Apache-2.0 */
/* Usage over time, and assignments that are mended or improved node by node. */
#include "sbp/search/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Additions of one repair. */
static const double repair_work = 1e8;

static int by_value(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* The distinct times where a usage starts, ascending; and each node's range of them. */
static tsr_status list_times(tsri_pool *pool, const tsri_search_problem *p, int **out_from,
                             int **out_to, int *out_count)
{
    size_t n = (size_t)p->nnodes;
    int *starts = tsri_pool_alloc(pool, n * sizeof(int)), count = 0, kept = 0;
    int *from = tsri_pool_alloc(pool, n * sizeof(int)),
        *to = tsri_pool_alloc(pool, n * sizeof(int));
    TSRI_NEED(starts && from && to);
    for (int v = 0; v < p->nnodes; v++)
        if (p->nodes[v].usage)
            starts[count++] = p->nodes[v].first;
    qsort(starts, (size_t)count, sizeof(int), by_value);
    for (int i = 0; i < count; i++)
        if (!kept || starts[kept - 1] != starts[i])
            starts[kept++] = starts[i];
    for (int v = 0; v < p->nnodes; v++) {
        from[v] = 0;
        to[v] = -1;
        if (!p->nodes[v].usage)
            continue;
        const int *at = bsearch(&p->nodes[v].first, starts, (size_t)kept, sizeof(int), by_value);
        int low = from[v] = (int)(at - starts), high = kept;
        while (high - low > 1) {
            int mid = (low + high) / 2;
            if (starts[mid] <= p->nodes[v].last)
                low = mid;
            else
                high = mid;
        }
        to[v] = low;
    }
    *out_from = from;
    *out_to = to;
    *out_count = kept;
    return TSR_OK;
}

/* The extreme usage of a node among what is not forbidden. */
static int64_t extreme(const tsri_search_node *x, bool most)
{
    int64_t best = -1;
    for (int s = 0; s < x->nstrat; s++)
        if (x->cost[s] < INFINITY && (best < 0 || (most ? x->usage[s] > best : x->usage[s] < best)))
            best = x->usage[s];
    return best < 0 ? 0 : best;
}

/* Adds a usage to the changes of a load: what comes at a time, less what went. */
static void add_change(int64_t *change, int count, int from, int to, int64_t usage)
{
    if (from > to)
        return;
    change[from] += usage;
    if (to + 1 < count)
        change[to + 1] -= usage;
}

/* Makes the load at each time of its changes. */
static void sum_changes(int64_t *load, int count)
{
    for (int i = 1; i < count; i++)
        load[i] += load[i - 1];
}

tsr_status tsri_times_start(tsri_times *t, tsri_pool *pool, const tsri_search_problem *p)
{
    int count, kept = 0;
    *t = (tsri_times){.p = p};
    TSRI_TRY(list_times(pool, p, &t->from, &t->to, &count));
    int64_t *most = tsri_pool_alloc(pool, (size_t)count * sizeof *most);
    int64_t *least = tsri_pool_alloc(pool, (size_t)count * sizeof *least);
    int *place = tsri_pool_alloc(pool, ((size_t)count + 1) * sizeof *place);
    TSRI_NEED(most && least && place);
    for (int v = 0; v < p->nnodes; v++) {
        if (!p->nodes[v].usage)
            continue;
        add_change(most, count, t->from[v], t->to[v], extreme(&p->nodes[v], true));
        add_change(least, count, t->from[v], t->to[v], extreme(&p->nodes[v], false));
    }
    sum_changes(most, count);
    sum_changes(least, count);
    /* place[i]: times kept before time i. */
    for (int i = 0; i < count; i++) {
        place[i] = kept;
        kept += most[i] > p->usage_limit;
        t->least = least[i] > t->least ? least[i] : t->least;
    }
    t->infeasible = t->least > p->usage_limit;
    place[count] = kept;
    for (int v = 0; v < p->nnodes; v++) {
        t->from[v] = t->to[v] < t->from[v] ? 0 : place[t->from[v]];
        t->to[v] = t->to[v] < 0 ? -1 : place[t->to[v] + 1] - 1;
    }
    t->ntimes = kept;
    t->load = most;
    return TSR_OK;
}

int64_t tsri_times_load(const tsri_times *t, const int *choice, int64_t *load)
{
    int64_t most = 0;
    memset(load, 0, (size_t)t->ntimes * sizeof *load);
    for (int v = 0; v < t->p->nnodes; v++) {
        const int64_t *usage = t->p->nodes[v].usage;
        if (usage)
            add_change(load, t->ntimes, t->from[v], t->to[v], usage[choice[v]]);
    }
    sum_changes(load, t->ntimes);
    for (int i = 0; i < t->ntimes; i++)
        most = load[i] > most ? load[i] : most;
    return most;
}

tsr_status tsri_search_peak(tsri_pool *pool, const tsri_search_problem *p, const int *choice,
                            int64_t *out_peak)
{
    tsri_times t = {.p = p};
    TSRI_TRY(list_times(pool, p, &t.from, &t.to, &t.ntimes));
    int64_t *load = tsri_pool_alloc(pool, (size_t)t.ntimes * sizeof *load);
    TSRI_NEED(load);
    *out_peak = tsri_times_load(&t, choice, load);
    return TSR_OK;
}

/* The cost of node v with strategy s among its neighbours. adj[v]: its edges' numbers, count first.
 */
static double cost_here(const tsri_times *t, int *const *adj, const int *choice, int v, int s)
{
    double sum = t->p->nodes[v].cost[s];
    for (int i = 1; i <= adj[v][0]; i++) {
        const tsri_search_edge *e = &t->p->edges[adj[v][i]];
        int64_t kv = t->p->nodes[e->v].nstrat;
        sum += e->u == v ? e->cost[s * kv + choice[e->v]] : e->cost[choice[e->u] * kv + s];
    }
    return sum;
}

static void set(const tsri_times *t, int *choice, int v, int s)
{
    const int64_t *usage = t->p->nodes[v].usage;
    if (usage)
        for (int i = t->from[v]; i <= t->to[v]; i++)
            t->load[i] += usage[s] - usage[choice[v]];
    choice[v] = s;
}

static int fullest(const tsri_times *t)
{
    int worst = 0;
    for (int i = 1; i < t->ntimes; i++)
        if (t->load[i] > t->load[worst])
            worst = i;
    return worst;
}

bool tsri_times_repair(const tsri_times *t, int *const *adj, int *choice)
{
    const tsri_search_problem *p = t->p;
    double work = repair_work;
    tsri_times_load(t, choice, t->load);
    for (;;) {
        int at = fullest(t), node = -1, strategy = 0;
        int64_t over = t->load[at] - p->usage_limit;
        double best = INFINITY;
        if (over <= 0)
            return true;
        for (int v = 0; v < p->nnodes; v++) {
            if (t->from[v] > at || t->to[v] < at)
                continue;
            double now = cost_here(t, adj, choice, v, choice[v]);
            work -= (double)p->nodes[v].nstrat * (adj[v][0] + 1);
            for (int s = 0; s < p->nodes[v].nstrat; s++) {
                int64_t less = p->nodes[v].usage[choice[v]] - p->nodes[v].usage[s];
                if (less <= 0)
                    continue;
                double rate = cost_here(t, adj, choice, v, s) - now;
                rate = rate / (double)(less < over ? less : over);
                if (rate < best) {
                    best = rate;
                    node = v;
                    strategy = s;
                }
            }
        }
        if (node < 0 || work < 0.0)
            return false;
        set(t, choice, node, strategy);
    }
}

/* Returns the usage that the limit leaves at the fullest of the times of node v. */
static int64_t room_of(const tsri_times *t, int v)
{
    int64_t most = INT64_MIN;
    for (int i = t->from[v]; i <= t->to[v]; i++)
        most = t->load[i] > most ? t->load[i] : most;
    return most == INT64_MIN ? INT64_MAX : t->p->usage_limit - most;
}

/* The cheapest strategy of node v that the limit has room for. */
static int best_strategy(const tsri_times *t, int *const *adj, const int *choice, int v)
{
    const int64_t *usage = t->p->nodes[v].usage;
    int best = choice[v];
    int64_t room = -1; /* known when it is asked for: most nodes have nothing cheaper */
    double least = cost_here(t, adj, choice, v, best);
    for (int s = 0; s < t->p->nodes[v].nstrat; s++) {
        double cost = cost_here(t, adj, choice, v, s);
        /* By more than rounding: sweeps must end. */
        if (!(cost < least - 1e-12 * fabs(least)))
            continue;
        int64_t more = usage ? usage[s] - usage[choice[v]] : 0;
        if (more > 0 && room < 0)
            room = room_of(t, v);
        if (more > 0 && more > room)
            continue;
        least = cost;
        best = s;
    }
    return best;
}

void tsri_times_improve(const tsri_times *t, int *const *adj, int *choice)
{
    tsri_times_load(t, choice, t->load);
    bool better = true;
    for (int sweep = 0; better && sweep < 16; sweep++) {
        better = false;
        for (int v = 0; v < t->p->nnodes; v++) {
            int best = best_strategy(t, adj, choice, v);
            if (best == choice[v])
                continue;
            better = true;
            set(t, choice, v, best);
        }
    }
}

/* A connected part of differing nodes around v, of `size` at most, into nodes[]. */
static int collect_part(const tsri_times *t, int *const *adj, const int *choice, const int *other,
                        int v, int size, bool *seen, int *nodes)
{
    int count = 0;
    seen[v] = true;
    nodes[count++] = v;
    for (int at = 0; at < count; at++)
        for (int i = 1; i <= adj[nodes[at]][0] && count < size; i++) {
            const tsri_search_edge *e = &t->p->edges[adj[nodes[at]][i]];
            int w = e->u == nodes[at] ? e->v : e->u;
            if (!seen[w] && choice[w] != other[w]) {
                seen[w] = true;
                nodes[count++] = w;
            }
        }
    return count;
}

/* Takes the part over if that is cheaper and keeps within the limit. kept[count]: scratch. */
static void try_part(const tsri_times *t, int *const *adj, const int *nodes, int count,
                     const int *other, int *kept, int *choice)
{
    double change = 0.0;
    for (int i = 0; i < count; i++) {
        int v = nodes[i];
        kept[i] = choice[v];
        change -= cost_here(t, adj, choice, v, choice[v]);
        set(t, choice, v, other[v]);
        change += cost_here(t, adj, choice, v, choice[v]);
    }
    /* A NaN, out of forbidden pairs, is no gain. */
    if (change < 0.0 && t->load[fullest(t)] <= t->p->usage_limit)
        return;
    for (int i = 0; i < count; i++)
        set(t, choice, nodes[i], kept[i]);
}

tsr_status tsri_times_merge(const tsri_times *t, tsri_mem *mem, int *const *adj, const int *other,
                            int *choice)
{
    static const int sizes[] = {INT32_MAX, 64, 32, 16, 8, 4, 2, 1};
    size_t n = (size_t)t->p->nnodes;
    tsri_pool pool;
    tsri_pool_init(&pool, mem);
    bool *seen = tsri_pool_alloc(&pool, n);
    int *nodes = tsri_pool_alloc(&pool, n * sizeof(int));
    int *kept = tsri_pool_alloc(&pool, n * sizeof(int));
    tsr_status status = seen && nodes && kept ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        tsri_times_load(t, choice, t->load);
    for (int i = 0; i < 8 && status == TSR_OK; i++) {
        memset(seen, 0, n);
        for (int v = 0; v < t->p->nnodes; v++) {
            if (seen[v] || choice[v] == other[v])
                continue;
            int count = collect_part(t, adj, choice, other, v, sizes[i], seen, nodes);
            try_part(t, adj, nodes, count, other, kept, choice);
        }
    }
    tsri_pool_finish(&pool);
    return status;
}
