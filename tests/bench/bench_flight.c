/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times how long the flight recorder takes for a call, from its begin to its end, on one thread and
 * on two threads of a rank at once. A call of a plan is described once for all runs; other calls
 * are described each time.
 *
 * usage: bench_flight [CALLS]
 */
#include "src/comm/comm.h"
#include "src/comm/flight/flight.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Of this thread alone: what others do on the machine costs it no time. */
static double busy_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct recording {
    tsri_flight *flight;
    int group;
    bool described;
    uint64_t calls;
    double ns;
} recording;

static void *record(void *arg)
{
    recording *r = arg;
    const tsri_segment s = {.dtype = TSR_F32, .shape = TSR_DIMS(64, 1280)};
    const tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE,
                         .nseg = 1,
                         .seg = &s,
                         .what = "features.17.conv.3.bn_stats",
                         .loc = {"examples/05_mobilenet_v2_cifar10.c", 131}};
    tsri_flight_call call;
    tsri_flight_describe(&call, (int)c.kind, &c, 327680, 1);
    double start = busy_s();
    for (uint64_t i = 1; i <= r->calls; i++) {
        uint64_t n = r->described
                         ? tsri_flight_begin_described(r->flight, r->group, i, &call, 0)
                         : tsri_flight_begin(r->flight, r->group, i, (int)c.kind, &c, 327680, i);
        tsri_flight_completed(r->flight, n);
    }
    r->ns = 1e9 * (busy_s() - start) / (double)r->calls;
    return NULL;
}

static double clock_ns(clockid_t clock)
{
    enum { READS = 2000000 };
    struct timespec t;
    double start = busy_s();
    for (int i = 0; i < READS; i++)
        clock_gettime(clock, &t);
    return 1e9 * (busy_s() - start) / READS;
}

int main(int argc, char **argv)
{
    const int ranks[] = {0, 1};
    uint64_t calls = argc > 1 ? strtoull(argv[1], NULL, 10) : 3000000;
    tsri_flight *f = aligned_alloc(64, sizeof *f);
    pthread_t other;
    if (!f || !calls)
        return 1;
    memset(f, 0, sizeof *f);
    tsri_flight_open(f, 0, 2, 1, "bench");
    recording one = {f, tsri_flight_group_of(f, "local", 0, 2, ranks), true, calls, 0};
    recording two = {f, tsri_flight_group_of(f, "local", 1, 2, ranks), true, calls, 0};
    printf("of the clocks, exact %.1f ns, coarse %.1f ns\n", clock_ns(CLOCK_REALTIME),
           clock_ns(CLOCK_REALTIME_COARSE));
    record(&one); /* the ring is in memory now */
    for (int i = 0; i < 6; i++) {
        one.described = i % 2 == 0;
        record(&one);
        printf("a call %.1f ns%s\n", one.ns, one.described ? "" : ", described each time");
    }
    one.described = true;
    if (pthread_create(&other, NULL, record, &two))
        return 1;
    record(&one);
    pthread_join(other, NULL);
    printf("a call, two threads at once: %.1f and %.1f ns\n", one.ns, two.ns);
    free(f);
    return 0;
}
