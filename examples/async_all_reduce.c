/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two all-reduces under way at once, and one rank late: the others start both, work on, and wait
 * when they need the sums.
 *
 *     tessera launch -n 3 async_all_reduce [--device cpu|cuda] [--gpu 0,1]
 *
 * Alone, it starts three thread ranks. With --device cuda the numbers lie in the memory of GPUs,
 * one a rank; with TESSERA_CUDA_COMM=local ranks share GPUs.
 */
#define _DEFAULT_SOURCE /* setenv, usleep, also under -std=c17 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tessera/tessera.h>

#define TRY(expr)               \
    do {                        \
        tsr_status s_ = (expr); \
        if (s_ != TSR_OK)       \
            return s_;          \
    } while (0)

enum { COUNT = 1000 };

/* Makes a copy of data in the memory of this rank's device. */
static tsr_status put(tsr_world *world, tsr_device device, const void *data, size_t bytes,
                      void **out_copy)
{
    TRY(tsr_alloc_on(world, device, bytes, out_copy));
    return tsr_copy(world, *out_copy, data, bytes);
}

static tsr_status run(tsr_world *world, void *arg)
{
    const tsr_device device = *(const tsr_device *)arg;
    int rank = tsr_world_rank(world), n = tsr_world_size(world);
    tsr_group *group = tsr_world_group(world);
    float sum[COUNT];
    int64_t most[COUNT];
    for (int i = 0; i < COUNT; i++) {
        sum[i] = (float)(rank + 1);
        most[i] = (int64_t)rank * i;
    }
    void *sums, *maxima;
    TRY(put(world, device, sum, sizeof sum, &sums));
    TRY(put(world, device, most, sizeof most, &maxima));
    bool late = n > 1 && rank == n - 1;
    if (late)
        usleep(300000);
    tsr_work *first, *second;
    TRY(tsr_all_reduce_async(group, sums, COUNT, TSR_F32, TSR_REDUCE_SUM, &first));
    TRY(tsr_all_reduce_async(group, maxima, COUNT, TSR_I64, TSR_REDUCE_MAX, &second));

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
    TRY(tsr_copy(world, sum, sums, sizeof sum));
    TRY(tsr_copy(world, most, maxima, sizeof most));
    printf("rank %d%s: worked %ld times meanwhile; sum[0] = %g, most[%d] = %lld\n", rank,
           late ? " (late)" : "", worked, (double)sum[0], COUNT - 1, (long long)most[COUNT - 1]);
    return TSR_OK;
}

/* Takes --device cpu|cuda, where ranks compute, and --gpu 0,1, the GPUs, of which each rank gets
 * one. CUDA reads the variable when the first rank comes to use it. Returns false for other
 * options. */
static bool set_option(const char *name, const char *value, tsr_device *device)
{
    if (!strcmp(name, "--gpu"))
        return setenv("CUDA_VISIBLE_DEVICES", value, 1) == 0;
    if (strcmp(name, "--device") != 0 || (strcmp(value, "cpu") != 0 && strcmp(value, "cuda") != 0))
        return false;
    *device = !strcmp(value, "cuda") ? TSR_DEVICE_CUDA : TSR_DEVICE_CPU;
    return true;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* into files and pipes line by line, too */
    tsr_device device = TSR_DEVICE_CPU;
    for (int i = 1; i < argc; i += 2)
        if (i + 1 == argc || !set_option(argv[i], argv[i + 1], &device)) {
            fprintf(stderr, "usage: async_all_reduce [--device cpu|cuda] [--gpu 0,1]\n");
            return 2;
        }
    if (tsr_start_ranks(3, run, &device) == TSR_OK)
        return 0;
    fprintf(stderr, "async_all_reduce: %s\n", tsr_last_error());
    return 1;
}
