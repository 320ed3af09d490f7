/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two all-reduces under way at once, and one rank late: the others start both, work on, and wait
 * when they need the sums.
 *
 *     tessera launch -n 3 async_all_reduce        (alone, it starts three thread ranks)
 */
#include <stdio.h>
#include <unistd.h>

#include <tessera/tessera.h>

#define TRY(expr)               \
    do {                        \
        tsr_status s_ = (expr); \
        if (s_ != TSR_OK)       \
            return s_;          \
    } while (0)

enum { COUNT = 1000 };

static tsr_status run(tsr_world *world, void *arg)
{
    (void)arg;
    int rank = tsr_world_rank(world), n = tsr_world_size(world);
    tsr_group *group = tsr_world_group(world);
    float sum[COUNT];
    int64_t most[COUNT];
    for (int i = 0; i < COUNT; i++) {
        sum[i] = (float)(rank + 1);
        most[i] = (int64_t)rank * i;
    }
    bool late = n > 1 && rank == n - 1;
    if (late)
        usleep(300000);
    tsr_work *first, *second;
    TRY(tsr_all_reduce_async(group, sum, COUNT, TSR_F32, TSR_REDUCE_SUM, &first));
    TRY(tsr_all_reduce_async(group, most, COUNT, TSR_I64, TSR_REDUCE_MAX, &second));

    /* Meanwhile this rank works; it may look, or wait for a while. */
    long worked = 0;
    for (volatile int i = 0; i < 1000000; i++)
        worked++;
    bool done = tsr_work_test(first);
    if (!late && !done) {
        tsr_status status = tsr_work_wait(&first, 0.01);
        if (status != TSR_OK && status != TSR_ERR_TIMEOUT)
            return status;
    }
    /* Waiting for the second waits for the first too. */
    TRY(tsr_work_wait(&second, 0));
    if (first)
        TRY(tsr_work_wait(&first, 0));
    printf("rank %d%s: worked %ld times meanwhile; sum[0] = %g, most[%d] = %lld\n", rank,
           late ? " (late)" : "", worked, (double)sum[0], COUNT - 1, (long long)most[COUNT - 1]);
    return TSR_OK;
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* into files and pipes line by line, too */
    if (tsr_start_ranks(3, run, NULL) == TSR_OK)
        return 0;
    fprintf(stderr, "async_all_reduce: %s\n", tsr_last_error());
    return 1;
}
