/* SPDX-License-Identifier: Apache-2.0 */
/* Given to the compiler in front of tests that are written for CPUs (-include): their placements
 * are of the kind of device that TESSERA_TEST_DEVICE names, in which they are run once more. */
#ifndef TESSERA_TESTS_CUDA_ON_DEVICE_H
#define TESSERA_TESTS_CUDA_ON_DEVICE_H

#include <tessera/tessera.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the kind that the variable names, by the library's names; `otherwise` if it names none.
 */
static inline tsr_device on_device_kind(tsr_device otherwise)
{
    const char *device = getenv("TESSERA_TEST_DEVICE");
    for (int k = 1; device && strcmp(tsr_device_name((tsr_device)k), "?") != 0; k++)
        if (!strcmp(tsr_device_name((tsr_device)k), device))
            return (tsr_device)k;
    return otherwise;
}

static inline const tsr_placement *on_device_parse(tsr_world *world, const char *text)
{
    const char *device = getenv("TESSERA_TEST_DEVICE");
    char other[8192];
    if (!device || !text || strncmp(text, "cpu", 3) != 0)
        return tsr_placement_parse(world, text);
    snprintf(other, sizeof other, "%s%s", device, text + 3);
    return tsr_placement_parse(world, other);
}

static inline const tsr_placement *on_device_create(tsr_world *world, tsr_device kind, int ndim,
                                                    const int *hierarchy, const int *ranks)
{
    return tsr_placement_create(world, on_device_kind(kind), ndim, hierarchy, ranks);
}

/* Errors of a run surface in it, as on a CPU. */
static inline tsr_status on_device_run(tsr_plan *plan)
{
    tsr_status status = tsr_run(plan);
    return status == TSR_OK ? tsr_wait(plan) : status;
}

/* By the figures of CPUs, so that the same signatures and routes are taken. */
static inline tsr_status on_device_compile_with(tsr_graph *graph, const tsr_compile_opts *opts,
                                                tsr_plan **out_plan)
{
    tsr_compile_opts o = *TSR_COMPILE_OPTS();
    if (opts)
        memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    o.size = sizeof o;
    if (o.nlinks == 0) {
        o.nlinks = 1;
        o.link[0].latency_s = 3e-6;
        o.link[0].bytes_per_s = 8e9;
    }
    o.local_bytes_per_s = o.local_bytes_per_s > 0 ? o.local_bytes_per_s : 16e9;
    o.flops_per_s = o.flops_per_s > 0 ? o.flops_per_s : 80e9;
    o.kernel_s = o.kernel_s > 0 ? o.kernel_s : 0.5e-6;
    return tsr_compile_with(graph, &o, out_plan);
}

static inline tsr_status on_device_compile(tsr_graph *graph, tsr_plan **out_plan)
{
    return on_device_compile_with(graph, NULL, out_plan);
}

static inline const tsr_placement *on_device_local(tsr_world *world)
{
    return tsr_local_placement_on(world, on_device_kind(TSR_DEVICE_CPU));
}

/* A copy in host memory, kept until the process ends. */
static inline void *on_device_gradient(tsr_ddp *ddp, const tsr_variable *v, bool *out_there)
{
    static void *kept; /* all copies: each begins with the one before it */
    if (!tsr_ddp_gradient(ddp, v, out_there))
        return NULL;
    void **copy = malloc(32 + (size_t)tsr_dims_count(tsr_variable_dims(v)) *
                                  tsr_dtype_size(tsr_variable_dtype(v)));
    if (!copy)
        return NULL;
    *copy = __atomic_exchange_n(&kept, (void *)copy, __ATOMIC_RELAXED);
    return tsr_ddp_gradient_get(ddp, v, copy + 2, NULL) == TSR_OK ? copy + 2 : NULL;
}

/* Errors of a run surface in it. */
static inline tsr_status on_device_ddp_run(tsr_ddp *ddp, tsr_plan *plan, const char *file, int line)
{
    tsr_status status = tsr_ddp_run_at(ddp, plan, file, line);
    return status == TSR_OK ? tsr_wait(plan) : status;
}

#define tsr_run on_device_run
#define tsr_local_placement on_device_local
#define tsr_ddp_gradient on_device_gradient
#define tsr_ddp_run_at on_device_ddp_run
#define tsr_compile on_device_compile
#define tsr_compile_with on_device_compile_with
#define tsr_placement_parse on_device_parse
#define tsr_placement_create on_device_create

#endif
