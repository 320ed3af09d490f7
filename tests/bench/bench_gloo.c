/* SPDX-License-Identifier: Apache-2.0 */
/* What calls over Gloo cost between thread ranks, on loopback. usage: bench_gloo [RANKS...] */
#include "src/comm/comm.h"
#include "tests/dist/comm/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SMALL = 64, SMALL_CALLS = 2000, LARGE = 16 << 20, LARGE_CALLS = 10 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds a call. */
static tsr_status time_calls(tsr_world *w, tsri_coll c, int64_t bytes, int calls, bool prepared,
                             double *out_s)
{
    int ranks[64];
    tsri_group *g;
    tsri_ticket t;
    const tsri_comm_ops *ops = w->comm->ops;
    tsri_segment seg = {.src = w->region.base,
                        .dst = w->region.base + (32 << 20),
                        .dtype = TSR_F32,
                        .shape = TSR_DIMS(bytes / 4),
                        .src_axis = c.kind == TSRI_COLL_ALL_GATHER ? 0 : -1,
                        .dst_axis = -1};
    for (int i = 0; i < w->nranks; i++)
        ranks[i] = i;
    c.nseg = 1;
    c.seg = &seg;
    TSRI_TRY(ops->group(w->comm, w->nranks, ranks, 0, &g));
    if (prepared)
        TSRI_TRY(ops->prepare(g, &c));
    double start = 0;
    for (int i = -calls / 10 - 1; i < calls; i++) {
        if (i == 0)
            start = now_s();
        TSRI_TRY(ops->start(g, &c, &t));
        TSRI_TRY(ops->finish(g, &t));
        TSRI_TRY(ops->release(g, &t));
    }
    *out_s = (now_s() - start) / calls;
    if (prepared)
        ops->unprepare(g, &c);
    return TSR_OK;
}

static tsr_status body(tsr_world *w, void *arg)
{
    const tsri_coll reduce = {.kind = TSRI_COLL_ALL_REDUCE};
    const tsri_coll two_phase = {.kind = TSRI_COLL_ALL_REDUCE, .algo = TSRI_ALGO_TWO_PHASE};
    const tsri_coll gather = {.kind = TSRI_COLL_ALL_GATHER}, cast = {.kind = TSRI_COLL_BROADCAST};
    double small, met, large, gathered, broadcast;
    (void)arg;
    TSRI_TRY(time_calls(w, reduce, SMALL, SMALL_CALLS, true, &small));
    TSRI_TRY(time_calls(w, reduce, SMALL, SMALL_CALLS, false, &met));
    TSRI_TRY(time_calls(w, two_phase, LARGE, LARGE_CALLS, true, &large));
    TSRI_TRY(time_calls(w, gather, LARGE, LARGE_CALLS, true, &gathered));
    TSRI_TRY(time_calls(w, cast, LARGE, LARGE_CALLS, true, &broadcast));
    if (w->rank == 0)
        printf("%5d %12.0f %12.0f %16.2f %16.2f %16.2f\n", w->nranks, 1e6 * small, 1e6 * met,
               1e-9 * LARGE / large, 1e-9 * LARGE / gathered, 1e-9 * LARGE / broadcast);
    return TSR_OK;
}

int main(int argc, char **argv)
{
    static const int usual[] = {2, 4};
    const tsr_world_opts o = {.size = sizeof o, .arena_bytes = 80 << 20, .threads = 1};
    int n = argc > 1 ? argc - 1 : (int)(sizeof usual / sizeof *usual);
    printf("        64 bytes: all-reduce/us     16 MiB, GB/s of the whole:\n"
           "ranks     prepared          not       all-reduce       all-gather        broadcast\n");
    for (int i = 0; i < n; i++) {
        tsr_status status = test_ranks(argc > 1 ? atoi(argv[i + 1]) : usual[i], body, NULL, &o);
        if (status != TSR_OK) {
            fprintf(stderr, "%s\n", tsr_last_error());
            return 1;
        }
    }
    return 0;
}
