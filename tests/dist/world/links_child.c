/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of links.py: all-reduces SIZE bytes CALLS times, and checks the values. usage: links_child
 * buffer|plan SIZE CALLS. `buffer` does it in a buffer of its own, `plan` by a compiled program.
 * Prints what its plan says that it reads of peers in a run.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/tessera.h>

#define TRY(expr)               \
    do {                        \
        tsr_status s_ = (expr); \
        if (s_ != TSR_OK)       \
            return s_;          \
    } while (0)

/* Whole numbers, so that all sums are exact. */
static float addend(int rank, int64_t i, int call)
{
    return (float)((i * 7 + call) % 1021 + 31 * rank);
}

static void fill(float *x, int64_t n, int rank, int call)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = addend(rank, i, call);
}

static tsr_status check(const float *x, int64_t n, int nranks, int call)
{
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int r = 0; r < nranks; r++)
            sum += addend(r, i, call);
        if (x[i] != sum)
            return tsr_set_error(TSR_ERR_INTERNAL, "call %d: [%" PRId64 "] is %g, not %g", call, i,
                                 (double)x[i], (double)sum);
    }
    return TSR_OK;
}

static tsr_status by_buffer(tsr_world *w, float *x, int64_t n, int calls)
{
    tsr_group *g = tsr_world_group(w);
    for (int c = 0; c < calls; c++) {
        fill(x, n, tsr_world_rank(w), c);
        TRY(tsr_all_reduce(g, x, n, TSR_F32, TSR_REDUCE_SUM));
        TRY(check(x, n, tsr_world_size(w), c));
    }
    return TSR_OK;
}

static tsr_status by_plan(tsr_world *w, float *x, int64_t n, int calls)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = false));
    tsr_output(g, "y", tsr_input(g, "x", TSR_F32, TSR_DIMS(n), p, TSR_P), p, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    tsr_plan_info info = {.size = sizeof info};
    TRY(tsr_plan_get_info(plan, &info));
    printf("rank %d reads %" PRIu64 " bytes\n", tsr_world_rank(w), info.comm_bytes);
    for (int c = 0; c < calls; c++) {
        fill(x, n, tsr_world_rank(w), c);
        TRY(tsr_feed_shard(plan, "x", x, (size_t)n * sizeof *x));
        TRY(tsr_run(plan));
        TRY(tsr_fetch(plan, "y", x, (size_t)n * sizeof *x));
        TRY(check(x, n, tsr_world_size(w), c));
    }
    return TSR_OK;
}

int main(int argc, char **argv)
{
    tsr_world *w = NULL;
    if (argc != 4) {
        fprintf(stderr, "usage: links_child buffer|plan SIZE CALLS\n");
        return 2;
    }
    int64_t n = strtoll(argv[2], NULL, 10) / (int64_t)sizeof(float);
    float *x = malloc((size_t)n * sizeof *x);
    tsr_status status = x ? tsr_world_create(NULL, &w) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = !strcmp(argv[1], "plan") ? by_plan(w, x, n, atoi(argv[3]))
                                          : by_buffer(w, x, n, atoi(argv[3]));
    if (status != TSR_OK)
        fprintf(stderr, "%s\n", tsr_last_error());
    tsr_world_destroy(w);
    free(x);
    return status != TSR_OK;
}
