/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times tsri_route_find on pairs of signatures of a 4-axis tensor, and tsri_route_costs between all
 * of them: microseconds per query. usage: bench_route [PAIRS]
 */
#include "sbp/route/route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* The index-th signature over so many axes, B and P. */
static tsr_sbp signature(int ndim, int axes, int index)
{
    tsr_sbp s = {.ndim = (int8_t)ndim};
    for (int d = 0; d < ndim; d++) {
        int c = index % (axes + 2);
        index /= axes + 2;
        s.d[d] = c < axes    ? (tsr_sbp1){TSR_SBP_SPLIT, (int8_t)c}
                 : c == axes ? (tsr_sbp1){TSR_SBP_BROADCAST, 0}
                             : (tsr_sbp1){TSR_SBP_PARTIAL, TSR_REDUCE_SUM};
    }
    return s;
}

static int count(int ndim, int axes)
{
    int n = 1;
    for (int d = 0; d < ndim; d++)
        n *= axes + 2;
    return n;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *name, double *us, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += us[i];
    qsort(us, (size_t)n, sizeof *us, ascending);
    printf("%-34s mean %8.2f us, median %8.2f, p99 %8.2f, most %8.2f\n", name, sum / n, us[n / 2],
           us[n * 99 / 100], us[n - 1]);
}

/* Every query is timed on its own, the better of two runs: other programs disturb one. */
static void time_pairs(const char *name, const tsri_cost_model *m, const tsri_mesh *a,
                       const tsri_mesh *b, tsr_dims shape, int pairs)
{
    double *us = malloc((size_t)pairs * sizeof *us);
    uint64_t state = 1;
    for (int i = 0; i < pairs; i++) {
        tsri_route_query q = {.shape = shape, .element = 4, .from.mesh = *a, .to.mesh = *b};
        tsri_route r;
        us[i] = 1e9;
        q.from.layout = tsri_layout_of(
            a, signature(a->ndim, shape.ndim, (int)(draw(&state) % count(a->ndim, shape.ndim))));
        q.to.layout = tsri_layout_of(
            b, signature(b->ndim, shape.ndim, (int)(draw(&state) % count(b->ndim, shape.ndim))));
        for (int k = 0; k < 2; k++) {
            double start = now_s();
            if (tsri_route_find(m, &q, &r) != TSR_OK) {
                fprintf(stderr, "bench_route: %s\n", tsr_last_error());
                exit(1);
            }
            double t = 1e6 * (now_s() - start);
            us[i] = t < us[i] ? t : us[i];
        }
    }
    report(name, us, pairs);
    free(us);
}

static void time_costs(const char *name, const tsri_cost_model *m, const tsri_mesh *a,
                       const tsri_mesh *b, tsr_dims shape)
{
    int nfrom = count(a->ndim, shape.ndim), nto = count(b->ndim, shape.ndim);
    tsr_sbp *from = malloc((size_t)nfrom * sizeof *from), *to = malloc((size_t)nto * sizeof *to);
    float *cost = malloc((size_t)nfrom * (size_t)nto * sizeof *cost);
    double best = 1e9;
    tsri_mem mem = {0};
    for (int i = 0; i < nfrom; i++)
        from[i] = signature(a->ndim, shape.ndim, i);
    for (int i = 0; i < nto; i++)
        to[i] = signature(b->ndim, shape.ndim, i);
    for (int k = 0; k < 5; k++) {
        double start = now_s();
        if (tsri_route_costs(m, &mem, shape, 4, a, nfrom, from, b, nto, to, cost) != TSR_OK) {
            fprintf(stderr, "bench_route: %s\n", tsr_last_error());
            exit(1);
        }
        double t = 1e6 * (now_s() - start);
        best = t < best ? t : best;
    }
    printf("%-34s %d x %d in %.1f us: %.3f us a pair\n", name, nfrom, nto, best,
           best / nfrom / nto);
    free(from);
    free(to);
    free(cost);
}

int main(int argc, char **argv)
{
    int pairs = argc > 1 ? atoi(argv[1]) : 2000;
    tsri_cost_model one = tsri_cost_model_of(TSR_DEVICE_CPU);
    tsri_cost_model two = {.nlinks = 2,
                           .link = {{8, 10e-6, 320e9}, {0, 20e-6, 50e9}},
                           .local_bytes_per_s = 2e12,
                           .flops_per_s = 1e14,
                           .kernel_s = 3e-6};
    tsri_mesh m1 = {1, {8, 1, 1, 1}, 8, NULL}, m2 = {2, {4, 8, 1, 1}, 32, NULL},
              m3 = {3, {2, 4, 8, 1}, 64, NULL}, m4 = {4, {2, 4, 4, 8}, 256, NULL},
              big = {2, {512, 8, 1, 1}, 4096, NULL}, flat = {1, {32, 1, 1, 1}, 32, NULL};
    int *real = malloc(4096 * sizeof *real), *other = malloc(32 * sizeof *other);
    for (int i = 0; i < 4096; i++)
        real[i] = i;
    for (int i = 0; i < 32; i++)
        other[i] = 32 + i;
    tsri_mesh big_real = big, away = m2;
    big_real.rank = real;
    away.rank = other;
    const tsr_dims shapes[] = {TSR_DIMS(64, 256, 32, 32), TSR_DIMS(16, 24, 6, 7)};
    for (int s = 0; s < 2; s++)
        for (int l = 0; l < 2; l++) {
            const tsri_cost_model *m = l ? &two : &one;
            printf("%s tensor, %s\n", s ? "small" : "large", l ? "two links" : "one link");
            time_pairs("  find, 8", m, &m1, &m1, shapes[s], pairs);
            time_pairs("  find, 4x8", m, &m2, &m2, shapes[s], pairs);
            time_pairs("  find, 512x8", m, &big, &big, shapes[s], pairs);
            time_pairs("  find, 512x8, ranks listed", m, &big_real, &big_real, shapes[s], pairs);
            time_pairs("  find, 2x4x8", m, &m3, &m3, shapes[s], pairs);
            time_pairs("  find, 2x4x4x8", m, &m4, &m4, shapes[s], pairs);
            time_pairs("  find, 4x8 to 32 of the same", m, &m2, &flat, shapes[s], pairs / 10);
            time_pairs("  find, 4x8 to 4x8 elsewhere", m, &m2, &away, shapes[s], pairs / 10);
            time_costs("  costs, 4x8", m, &m2, &m2, shapes[s]);
            time_costs("  costs, 512x8", m, &big, &big, shapes[s]);
            time_costs("  costs, 2x4x8", m, &m3, &m3, shapes[s]);
            time_costs("  costs, 4x8 to 4x8 elsewhere", m, &m2, &away, shapes[s]);
        }
    free(real);
    free(other);
    return 0;
}
