/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/search/search.h"

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
