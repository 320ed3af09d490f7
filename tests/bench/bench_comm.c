/* SPDX-License-Identifier: Apache-2.0 */
/* What communication between thread ranks costs here, and what preparing a call saves.
 * usage: bench_comm [RANKS...] */
#include "src/comm/comm.h"
#include "src/comm/world/measure.h"
#include "src/core/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SEGMENTS = 256, ROUNDS = 400, CALLS = 50 };

/* A call of `nseg` segments of 16 floats, as a step has them: made as it comes, and prepared. */
typedef struct small_call {
    tsri_group *group;
    tsri_segment seg[MOST_SEGMENTS];
    tsri_coll plain, prepared;
} small_call;

static tsr_status make_call(tsr_world *w, int nseg, float *data, small_call *c)
{
    enum { COUNT = 16 };
    for (int i = 0; i < nseg; i++)
        c->seg[i] = (tsri_segment){.src = data + 2 * COUNT * i,
                                   .dst = data + 2 * COUNT * i + COUNT,
                                   .dtype = TSR_F32,
                                   .shape = TSR_DIMS(COUNT),
                                   .src_axis = -1,
                                   .dst_axis = -1};
    c->plain = (tsri_coll){.kind = TSRI_COLL_ALL_REDUCE,
                           .nseg = nseg,
                           .seg = c->seg,
                           .what = "features.17.conv.3.bn_stats",
                           .loc = {"examples/05_mobilenet_v2_cifar10.c", 131}};
    c->prepared = c->plain;
    TSRI_TRY(tsri_comm_everybody(w->comm, &c->group));
    return w->comm->ops->prepare(c->group, &c->prepared);
}

static tsr_status time_calls(const small_call *c, const tsri_coll *coll, double *best_s)
{
    const tsri_comm_ops *ops = c->group->comm->ops;
    tsri_ticket t;
    double start = tsri_now_s();
    for (int i = 0; i < CALLS; i++) {
        TSRI_TRY(ops->start(c->group, coll, &t));
        TSRI_TRY(ops->finish(c->group, &t));
        TSRI_TRY(ops->release(c->group, &t));
    }
    double s = (tsri_now_s() - start) / CALLS;
    *best_s = *best_s == 0 || s < *best_s ? s : *best_s;
    return TSR_OK;
}

/* Turn about, so that both meet the same machine. */
static tsr_status compare(tsr_world *w, void *arg)
{
    static const int segments[] = {1, 8, 64, MOST_SEGMENTS};
    void *data;
    small_call c;
    (void)arg;
    TSRI_TRY(tsri_region_alloc(&w->region, MOST_SEGMENTS * 2 * 64, &data));
    memset(data, 0, MOST_SEGMENTS * 2 * 64);
    for (size_t k = 0; k < sizeof segments / sizeof *segments; k++) {
        double plain = 0, prepared = 0;
        TSRI_TRY(make_call(w, segments[k], data, &c));
        for (int i = 0; i < ROUNDS; i++) {
            TSRI_TRY(time_calls(&c, &c.plain, &plain));
            TSRI_TRY(time_calls(&c, &c.prepared, &prepared));
        }
        w->comm->ops->unprepare(c.group, &c.prepared);
        if (w->rank == 0)
            printf("%5d %9d %12.3f %12.3f %8.2f\n", w->nranks, segments[k], 1e6 * plain,
                   1e6 * prepared, plain / prepared);
    }
    return TSR_OK;
}

static tsr_status body(tsr_world *w, void *arg)
{
    (void)arg;
    double latency_s, peers, local;
    TSRI_TRY(tsri_comm_measure(w, &latency_s, &peers, &local));
    if (w->rank == 0)
        printf("%5d %12.2f %12.2f %12.2f\n", w->nranks, 1e6 * latency_s, 1e-9 * peers,
               1e-9 * local);
    return TSR_OK;
}

static tsr_status for_all(int argc, char **argv, const char *title, tsr_rank_fn *fn)
{
    static const int usual[] = {1, 2, 4, 8};
    const tsr_world_opts o = {.size = sizeof o, .arena_bytes = 64 << 20, .threads = 1};
    int n = argc > 1 ? argc - 1 : (int)(sizeof usual / sizeof *usual);
    puts(title);
    for (int i = 0; i < n; i++)
        TSRI_TRY(tsr_spawn_with(argc > 1 ? atoi(argv[i + 1]) : usual[i], fn, NULL, &o));
    return TSR_OK;
}

int main(int argc, char **argv)
{
    tsr_status status = for_all(argc, argv, "ranks   latency/us    peers GB/s    local GB/s", body);
    if (status == TSR_OK)
        status = for_all(argc, argv, "ranks  segments     plain/us  prepared/us    ratio", compare);
    if (status != TSR_OK)
        fprintf(stderr, "%s\n", tsr_last_error());
    return status != TSR_OK;
}
