/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/search/search.h"

#include "sbp/search/memory.h"

#include <math.h>

tsr_status tsri_search(const tsri_search_problem *problem, int *choice,
                       tsri_search_result *out_result)
{
    tsri_pool pool;
    tsri_search_result result = {0};
    tsri_pool_init(&pool, problem->mem);
    tsr_status status = TSR_ERR_NO_MEMORY;
    size_t n = problem->nnodes > 0 ? (size_t)problem->nnodes : 0;
    int *picked = tsri_pool_alloc(&pool, n * sizeof(int));
    if (!picked)
        goto done;
    TSRI_GOTO(tsri_search_priced(problem, NULL, 1.0, picked, &result), done);
    TSRI_GOTO(tsri_search_peak(&pool, problem, picked, &result.peak), done);
    if (problem->usage_limit && result.peak > problem->usage_limit && !isinf(result.bound))
        TSRI_GOTO(tsri_search_limited(&pool, problem, picked, &result), done);
    for (int v = 0; v < problem->nnodes; v++)
        choice[v] = picked[v];
    *out_result = result;
done:
    tsri_pool_finish(&pool);
    return status;
}
