/* SPDX-License-Identifier: Apache-2.0 */
/* Times of the inference search on training ladders: the least of five runs. */
#include "tests/bench/search_ladder.h"

#include <stdio.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int bench(int nodes, int strategies, bool full, ladder_costs kind)
{
    ladder l = ladder_create(nodes / 18, strategies, full, kind, 1);
    int *choice = calloc((size_t)l.problem.nnodes, sizeof *choice);
    tsri_search_result result = {0};
    double least = INFINITY;
    for (int i = 0; i < 5; i++) {
        double t = now_ms();
        tsr_status status = tsri_search(&l.problem, choice, &result);
        t = now_ms() - t;
        if (status != TSR_OK) {
            fprintf(stderr, "bench_search: %s\n", tsr_last_error());
            return 1;
        }
        least = t < least ? t : least;
    }
    printf("%6d %6d %4s%-3d %-8s %9.2f %10lld %-6s %.6f\n", l.problem.nnodes, l.problem.nedges,
           full ? "" : "2..", strategies, kind == LADDER_NOISE ? "noise" : "layouts", least,
           (long long)result.tables, result.exact ? "exact" : "local", result.cost);
    free(choice);
    ladder_free(&l);
    return 0;
}

int main(void)
{
    static const int sizes[] = {500, 1500, 3000};
    int status = 0;
    printf("%6s %6s %7s %-8s %9s %10s %-6s %s\n", "nodes", "edges", "strat", "costs", "ms", "table",
           "how", "cost");
    for (int i = 0; i < 3; i++)
        for (int kind = LADDER_NOISE; kind <= LADDER_LAYOUTS; kind++) {
            status |= bench(sizes[i], 8, false, (ladder_costs)kind);
            status |= bench(sizes[i], 8, true, (ladder_costs)kind);
            status |= bench(sizes[i], 12, true, (ladder_costs)kind);
        }
    return status;
}
