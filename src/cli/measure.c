/* SPDX-License-Identifier: Apache-2.0 */
/* How fast a rank of this machine computes: products, and the smallest kernels. */
#include "src/cli/links.h"

#include <tessera/graph.h>
#include <tessera/ops.h>
#include <tessera/plan.h>

#include <stdlib.h>
#include <time.h>

#include "src/core/clock.h"
#include "src/core/status.h"
#include "src/core/world.h"

/* A run of products takes some ten milliseconds, as long as a small step: a shared core holds its
 * highest rate for less time than that. */
enum { SIDE = 256, F32_PRODUCTS = 32, F64_PRODUCTS = 16, SMALL = 64, RUNS = 5 };

/* Runs are repeated for at least so many seconds. */
static const double measure_s = 0.15;

/* Seconds of some computing: of the best run, by the clock and by the time for which this thread
 * had a core, and of all runs. */
typedef struct timing {
    double best_s, best_core_s, wall_s, core_s;
} timing;

static double core_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Times runs of a plan, after one that warms up. */
static tsr_status time_runs(tsr_plan *plan, timing *t)
{
    const double first = tsri_now_s();
    for (int i = 0; i <= RUNS || tsri_now_s() - first < measure_s; i++) {
        double start = tsri_now_s(), core = core_now_s();
        TSRI_TRY(tsr_run(plan));
        double s = tsri_now_s() - start, core_s = core_now_s() - core;
        t->wall_s += s;
        t->core_s += core_s;
        t->best_s = i < 2 || s < t->best_s ? s : t->best_s;
        t->best_core_s = i < 2 || core_s < t->best_core_s ? core_s : t->best_core_s;
    }
    return TSR_OK;
}

/* Times `n` ops one behind the other on this rank alone: products of x by itself, or x negated. */
static tsr_status time_chain(tsr_world *world, tsr_dtype dtype, int side, int n, timing *t)
{
    tsr_graph *g = tsr_graph_create(world, TSR_GRAPH_OPTS(.local = true));
    TSRI_NEED(g);
    const int rank = tsr_world_rank(world), one = 1;
    const tsr_placement *p = tsr_placement_create(world, TSRI_TARGET_HOST, 1, &one, &rank);
    tsr_tensor *x = tsr_input(g, "x", dtype, TSR_DIMS(side, side), p, TSR_B), *y = x;
    for (int i = 0; i < n; i++)
        y = side > 1 ? tsr_matmul(y, x) : tsr_neg(y);
    tsr_output(g, "y", y, p, TSR_B);
    size_t bytes = (size_t)(side * side) * tsr_dtype_size(dtype);
    void *zeros = calloc(1, bytes);
    tsr_plan *plan = NULL;
    tsr_status status = zeros ? TSR_OK : tsri_fail(TSR_ERR_NO_MEMORY, "no memory to measure with");
    if (status == TSR_OK)
        status = tsr_compile_with(g, TSR_COMPILE_OPTS(.no_fusion = true), &plan);
    if (status == TSR_OK)
        status = tsr_feed(plan, "x", zeros, bytes);
    if (status == TSR_OK)
        status = time_runs(plan, t);
    free(zeros);
    tsr_plan_destroy(plan);
    tsr_graph_destroy(g);
    return status;
}

tsr_status cli_measure_compute(tsr_world *world, cli_links *l)
{
    const double product = 2.0 * SIDE * SIDE * SIDE;
    timing f32 = {0}, f64 = {0}, small = {0};
    TSRI_TRY(time_chain(world, TSR_F32, SIDE, F32_PRODUCTS, &f32));
    TSRI_TRY(time_chain(world, TSR_F64, SIDE, F64_PRODUCTS, &f64));
    TSRI_TRY(time_chain(world, TSR_F32, 1, SMALL, &small));
    /* A product lasts longer than other programs leave a thread alone. */
    bool is_one = world->threads == 1;
    l->flops_per_s = F32_PRODUCTS * product / (is_one ? f32.best_core_s : f32.best_s);
    l->f64_flops_per_s = F64_PRODUCTS * product / (is_one ? f64.best_core_s : f64.best_s);
    l->kernel_s = small.best_s / SMALL;
    l->core_share = (f32.core_s + f64.core_s) / (f32.wall_s + f64.wall_s);
    return TSR_OK;
}
