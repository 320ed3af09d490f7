/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/search.h"

#include "sbp/search_graph.h"

static const int64_t default_table = 1 << 20, most_table = (int64_t)1 << 40;

double tsri_search_cost(const tsri_search_problem *problem, const int *choice)
{
    double sum = 0.0;
    for (int v = 0; v < problem->nnodes; v++)
        sum += problem->nodes[v].cost[choice[v]];
    for (int i = 0; i < problem->nedges; i++) {
        const tsri_search_edge *e = &problem->edges[i];
        sum += e->cost[(int64_t)choice[e->u] * problem->nodes[e->v].nstrat + choice[e->v]];
    }
    return sum;
}

static tsr_status solve(tsri_pool *pool, const tsri_search_problem *problem, int *choice,
                        tsri_search_result *result)
{
    tsri_sgraph g;
    int64_t limit = problem->max_table ? problem->max_table : default_table;
    limit = limit < most_table ? limit : most_table;
    TSRI_TRY(tsri_sg_build(pool, problem, &g));
    int *picked = tsri_pool_alloc(pool, (size_t)g.n * sizeof(int));
    if (!picked)
        return TSR_ERR_NO_MEMORY;
    if (!g.empty) {
        TSRI_TRY(tsri_sg_solve(pool->mem, &g, (double)limit, picked, result));
        for (int v = 0; v < g.n; v++)
            picked[v] = g.orig[v][picked[v]];
    } else {
        result->exact = true;
    }
    for (int v = 0; v < g.n; v++)
        choice[v] = picked[v];
    result->cost = tsri_search_cost(problem, picked);
    return TSR_OK;
}

tsr_status tsri_search(const tsri_search_problem *problem, int *choice,
                       tsri_search_result *out_result)
{
    tsri_pool pool;
    tsri_search_result result = {0};
    tsri_pool_init(&pool, problem->mem);
    tsr_status status = solve(&pool, problem, choice, &result);
    tsri_pool_finish(&pool);
    if (status == TSR_OK)
        *out_result = result;
    return status;
}
