/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all_reduce of per-rank buffers costs: a line "SIZE MEMORY MICROSECONDS" per size in bytes
 * and memory (arena, heap), the median over the calls of one run, on rank 0. Each rank has written
 * its whole buffer just before a call, as it does with gradients: what another core wrote must come
 * over, where a buffer that is only reduced again and again would stay where it is. One rank of
 * several:
 *
 *     tessera launch -n 2 bench_collective [SECONDS [BYTES...]]
 *
 * collective_mpi.py runs it side by side with the same loop over MPI.
 */
#include <tessera/tessera.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRY(expr)                    \
    do {                             \
        tsr_status status_ = (expr); \
        if (status_ != TSR_OK)       \
            return status_;          \
    } while (0)

enum { MOST = 20000 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Calls until `seconds` have passed on rank 0, at least 20. */
static tsr_status measure(tsr_group *g, float *data, size_t bytes, double seconds, const char *name)
{
    static double times[MOST];
    int64_t count = (int64_t)(bytes / sizeof *data);
    int32_t calls = 20;
    for (int round = 0; round < 2; round++) {
        double begin = now_s();
        for (int i = 0; i < calls; i++) {
            memset(data, i % 2, bytes);
            TRY(tsr_group_barrier(g));
            double t = now_s();
            TRY(tsr_all_reduce(g, data, count, TSR_F32, TSR_REDUCE_SUM));
            times[i] = now_s() - t;
        }
        if (round == 1)
            break;
        double each = (now_s() - begin) / calls;
        calls = each * MOST < seconds ? MOST : (int32_t)(seconds / each);
        calls = calls < 20 ? 20 : calls;
        TRY(tsr_broadcast(g, &calls, 1, TSR_I32, 0));
    }
    qsort(times, (size_t)calls, sizeof *times, by_value);
    if (tsr_group_rank(g) == 0)
        printf("%zu %s %.3f\n", bytes, name, 1e6 * times[calls / 2]);
    return TSR_OK;
}

static tsr_status run(tsr_world *world, double seconds, int nsizes, const char *const *sizes)
{
    tsr_group *g = tsr_world_group(world);
    if (!g)
        return TSR_ERR_INVALID;
    for (int i = 0; i < nsizes; i++) {
        size_t bytes = strtoull(sizes[i], NULL, 10);
        float *arena, *heap = malloc(bytes + 1);
        TRY(tsr_alloc(world, bytes, (void **)&arena));
        if (!heap)
            return tsr_set_error(TSR_ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
        tsr_status status = measure(g, arena, bytes, seconds, "arena");
        if (status == TSR_OK)
            status = measure(g, heap, bytes, seconds, "heap");
        free(heap);
        tsr_free(world, arena);
        TRY(status);
    }
    return TSR_OK;
}

/* A core for each rank of a machine, as mpirun does it: else both sit on one now and then. */
static void bind_to_core(void)
{
    const char *rank = getenv("LOCAL_RANK"), *ranks = getenv("LOCAL_WORLD_SIZE");
    cpu_set_t all, one;
    if (!rank || (ranks && atoi(ranks) == 1) || sched_getaffinity(0, sizeof all, &all))
        return;
    int nth = atoi(rank) % CPU_COUNT(&all);
    CPU_ZERO(&one);
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &all) && nth-- == 0)
            CPU_SET(c, &one);
    sched_setaffinity(0, sizeof one, &one);
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"8",      "1024",    "16384",   "65536",
                                        "262144", "1048576", "16777216"};
    double seconds = argc > 1 ? atof(argv[1]) : 0.2;
    bool given = argc > 2;
    bind_to_core();
    tsr_world *world;
    tsr_status status = tsr_world_create(NULL, &world);
    if (status == TSR_OK) {
        status = run(world, seconds, given ? argc - 2 : (int)(sizeof usual / sizeof *usual),
                     given ? (const char *const *)argv + 2 : usual);
        if (status != TSR_OK)
            fprintf(stderr, "%s\n", tsr_last_error());
        tsr_world_destroy(world);
    } else {
        fprintf(stderr, "%s\n", tsr_last_error());
    }
    return status != TSR_OK;
}
