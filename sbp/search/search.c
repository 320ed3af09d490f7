/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/search/search.h"

#include "sbp/search/memory.h"

#include <math.h>
#include <string.h>

/* Within the limit, from the answer without one: picked[], *result. */
static tsr_status keep_within(tsri_pool *pool, const tsri_search_problem *problem,
                              tsri_search_shared *shared, int *picked, tsri_search_result *result)
{
    bool over = problem->usage_limit && result->peak > problem->usage_limit;
    return over && !isinf(result->bound)
               ? tsri_search_limited(pool, problem, shared, picked, result)
               : TSR_OK;
}

tsr_status tsri_search_within(const tsri_search_problem *problem, tsri_search_shared *shared,
                              int *choice, tsri_search_result *out_result)
{
    tsri_pool pool;
    tsri_search_result result = shared->result;
    tsri_pool_init(&pool, problem->mem);
    tsr_status status = TSR_ERR_NO_MEMORY;
    int *picked = tsri_pool_dup(&pool, shared->choice, (size_t)problem->nnodes * sizeof(int));
    if (!picked)
        goto done;
    TSRI_GOTO(keep_within(&pool, problem, shared, picked, &result), done);
    memcpy(choice, picked, (size_t)problem->nnodes * sizeof(int));
    *out_result = result;
done:
    tsri_pool_finish(&pool);
    return status;
}

tsr_status tsri_search_least(const tsri_search_problem *problem, int64_t *out_least)
{
    tsri_pool pool;
    tsri_times times;
    tsri_pool_init(&pool, problem->mem);
    tsr_status status = tsri_times_start(&times, &pool, problem);
    if (status == TSR_OK)
        *out_least = times.least;
    tsri_pool_finish(&pool);
    return status;
}

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
    tsri_search_shared shared = {.pool = &pool, .choice = picked, .result = result};
    TSRI_GOTO(keep_within(&pool, problem, &shared, picked, &result), done);
    for (int v = 0; v < problem->nnodes; v++)
        choice[v] = picked[v];
    *out_result = result;
done:
    tsri_pool_finish(&pool);
    return status;
}
