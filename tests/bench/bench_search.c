/* SPDX-License-Identifier: Apache-2.0 */
/* Processor times of the inference search on training steps of one and two mesh dimensions: the
 * least of five runs. */
#include "tests/bench/search_ladder.h"
#include "tests/bench/search_mesh.h"

#include <stdio.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int bench(const tsri_search_problem *p, int runs, const char *what)
{
    int *choice = calloc((size_t)p->nnodes, sizeof *choice);
    tsri_search_result r = {0};
    double least = INFINITY;
    for (int i = 0; i < runs; i++) {
        double t = now_ms();
        tsr_status status = tsri_search(p, choice, &r);
        t = now_ms() - t;
        if (status != TSR_OK) {
            fprintf(stderr, "bench_search: %s\n", tsr_last_error());
            free(choice);
            return 1;
        }
        least = t < least ? t : least;
    }
    printf("%-28s %6d %6d %9.2f %10lld %-6s %.6g %.2e\n", what, p->nnodes, p->nedges, least,
           (long long)r.tables, r.exact ? "exact" : "local", r.cost,
           r.exact ? 0.0 : (r.cost - r.bound) / fabs(r.cost));
    free(choice);
    return 0;
}

static int bench_ladder(int nodes, int strategies, bool full, ladder_costs kind)
{
    char what[64];
    ladder l = ladder_create(nodes / 18, strategies, full, kind, 1);
    snprintf(what, sizeof what, "ladder %s%d %s", full ? "" : "2..", strategies,
             kind == LADDER_NOISE ? "noise" : "layouts");
    int status = bench(&l.problem, 5, what);
    ladder_free(&l);
    return status;
}

/* jitter: how much equal operators differ. share: of the peak without a limit; 0: no limit. */
static int bench_mesh(bool transformer, int layers, float jitter, double share)
{
    char what[64];
    mesh m = transformer ? mesh_transformer(layers, jitter, 1) : mesh_convnet(layers, jitter, 1);
    snprintf(what, sizeof what, "%s %d, +-%.0f%%, mem %.0f%%",
             transformer ? "transformer" : "convnet", layers, 100.0 * (double)jitter,
             share > 0.0 ? 100.0 * share : 100.0);
    if (share > 0.0) {
        int *choice = calloc((size_t)m.problem.nnodes, sizeof *choice);
        tsri_search_result r = {0};
        if (tsri_search(&m.problem, choice, &r) == TSR_OK)
            m.problem.usage_limit = (int64_t)(share * (double)r.peak);
        free(choice);
    }
    int status = bench(&m.problem, share > 0.0 ? 1 : 5, what);
    mesh_free(&m);
    return status;
}

int main(void)
{
    static const int sizes[] = {500, 1500, 3000};
    int status = 0;
    printf("%-28s %6s %6s %9s %10s %-6s %s gap\n", "", "nodes", "edges", "ms", "table", "how",
           "cost");
    for (int i = 0; i < 3; i++)
        for (int kind = LADDER_NOISE; kind <= LADDER_LAYOUTS; kind++) {
            status |= bench_ladder(sizes[i], 8, false, (ladder_costs)kind);
            status |= bench_ladder(sizes[i], 8, true, (ladder_costs)kind);
            status |= bench_ladder(sizes[i], 12, true, (ladder_costs)kind);
        }
    static const float jitters[] = {0.0f, 0.02f, 0.1f};
    for (int i = 0; i < 3; i++) {
        status |= bench_mesh(true, 24, jitters[i], 0.0);
        status |= bench_mesh(true, 48, jitters[i], 0.0);
        status |= bench_mesh(false, 52, jitters[i], 0.0);
    }
    for (int i = 9; i >= 5; i -= 2)
        status |= bench_mesh(true, 24, 0.0f, i / 10.0);
    status |= bench_mesh(true, 24, 0.02f, 0.7);
    return status;
}
