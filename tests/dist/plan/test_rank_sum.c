/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the ranks of a group inside local graphs: values, gradients, and ranks that differ. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <tessera/collective.h>
#include <tessera/tessera.h>
#include "src/plan/plan.h"
#include "tests/dist/comm/rank_checks.h"

static const tsr_world_opts opts = {
    .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 60, .threads = 1};

static void spawn_ok(int n, tsr_rank_fn *fn, void *arg)
{
    tsr_status status = tsr_spawn_with(n, fn, arg, &opts);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
}

static tsr_graph *own_graph(tsr_world *w)
{
    return tsr_graph_create(w, TSR_GRAPH_OPTS(.local = true));
}

/* --- values ----------------------------------------------------------------------------------- */
/* What rank r puts at i: whole numbers, whose sums are exact. */
static double value_at(int r, int64_t i)
{
    return (double)((r + 1) * 1000 + (int)(i % 97));
}

static tsr_status store(void *data, tsr_dtype dtype, int64_t i, double v)
{
    switch (dtype) {
    case TSR_DTYPE_F32:
        ((float *)data)[i] = (float)v;
        return TSR_OK;
    case TSR_DTYPE_F64:
        ((double *)data)[i] = v;
        return TSR_OK;
    case TSR_DTYPE_I64:
        ((int64_t *)data)[i] = (int64_t)v;
        return TSR_OK;
    default:
        return TSR_ERR_DTYPE;
    }
}

/* Seconds of an all-reduce of `bytes` over k ranks of a link: the cheaper of one shot, in which
 * each rank reads all others' bytes, and two phases, of which each moves (k - 1) / k of them. */
static double model_s(tsr_link link, double bytes, int k)
{
    double one = link.latency_s + bytes * (k - 1) / link.bytes_per_s;
    double two = 2 * link.latency_s + 2 * bytes * (k - 1) / k / link.bytes_per_s;
    return one < two ? one : two;
}

/* Of n elements of a dtype over a group that is given by its ranks; twice, to see that runs repeat.
 */
static tsr_status sum_over(tsr_world *w, int nranks, const int *ranks, tsr_dtype dtype, int64_t n)
{
    tsr_group *group;
    size_t bytes = (size_t)n * tsr_dtype_size(dtype);
    char *x = malloc(bytes + 1), *y = malloc(bytes + 1), *want = malloc(bytes + 1);
    const tsr_placement *p = tsr_local_placement(w);
    tsr_graph *g = own_graph(w);
    tsr_plan *plan;
    tsr_plan_info info = {.size = sizeof info};
    tsri_comm_stats before, after;
    TSRI_TRY(tsr_group_create(w, nranks, ranks, &group));
    tsr_tensor *in = tsr_input(g, "x", dtype, TSR_DIMS(n), p, TSR_B);
    tsr_output(g, "y", tsr_rank_sum(in, group), p, TSR_B);
    const tsr_link link = {0, 1e-6, 1e9};
    TSRI_TRY(tsr_compile_with(g, TSR_COMPILE_OPTS(.nlinks = 1, .link = {link}), &plan));
    tsr_graph_destroy(g);
    TSRI_TRY(tsr_plan_get_info(plan, &info));
    CHECK(info.collectives == (nranks > 1));
    double model = nranks > 1 ? model_s(link, (double)bytes, nranks) : 0;
    CHECK(fabs(info.step_s - model) <= 1e-6 * model);
    for (int run = 0; run < 2; run++) {
        for (int64_t i = 0; i < n; i++) {
            double sum = 0;
            for (int r = 0; r < nranks; r++)
                sum += value_at(ranks[r] + run, i);
            TSRI_TRY(store(want, dtype, i, sum));
            TSRI_TRY(store(x, dtype, i, value_at(tsr_world_rank(w) + run, i)));
        }
        TSRI_TRY(tsr_feed(plan, "x", x, bytes));
        tsri_plan_stats(w, &before);
        TSRI_TRY(tsr_run(plan));
        tsri_plan_stats(w, &after);
        CHECK(after.bytes_read[TSRI_COLL_ALL_REDUCE] - before.bytes_read[TSRI_COLL_ALL_REDUCE] ==
              info.comm_bytes);
        TSRI_TRY(tsr_fetch(plan, "y", y, bytes));
        CHECK(!memcmp(y, want, bytes));
    }
    CHECK(nranks == 1 || n == 0 || info.comm_bytes >= bytes);
    CHECK(nranks == 1 || strstr(tsr_plan_explain(plan), "of ranks "));
    tsr_plan_destroy(plan);
    free(x);
    free(y);
    free(want);
    return TSR_OK;
}

static tsr_status sums(tsr_world *w, void *arg)
{
    (void)arg;
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F64, TSR_I64};
    int n = tsr_world_size(w), rank = tsr_world_rank(w), all[8], last_first[2] = {n - 1, 0};
    for (int i = 0; i < n; i++)
        all[i] = i;
    for (int d = 0; d < 3; d++) {
        const int64_t sizes[] = {1, 0, 300, 100000}; /* the last one in two phases */
        for (int s = 0; s < 4; s++)
            TSRI_TRY(sum_over(w, n, all, dtypes[d], sizes[s]));
    }
    if (n > 2 && (rank == 0 || rank == n - 1))
        TSRI_TRY(sum_over(w, 2, last_first, TSR_F64, 50));
    return sum_over(w, 1, &rank, TSR_F64, 50);
}

static void test_sums(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++)
        spawn_ok(n, sums, NULL);
}

/* --- gradients -------------------------------------------------------------------------------- */
/* L_r = sum_i c_r s_i t_i with s = rank_sum(x_r), t = rank_sum(x_r^2): of L = sum_r L_r, whose c is
 * C = sum_r c_r, dL/dx_r = C (t + 2 x_r s). */
static tsr_status gradients(tsr_world *w, void *arg)
{
    (void)arg;
    enum { N = 5 };
    int rank = tsr_world_rank(w), n = tsr_world_size(w);
    const tsr_placement *p = tsr_local_placement(w);
    tsr_graph *g = own_graph(w);
    tsr_group *group = tsr_world_group(w);
    tsr_plan *plan;
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(N), p, TSR_B), *dx;
    tsr_tensor *s = tsr_rank_sum(x, group), *t = tsr_rank_sum(tsr_mul(x, x), group);
    tsr_tensor *loss = tsr_sum(tsr_mul_scalar(tsr_mul(s, t), rank + 0.5), TSR_ALL_AXES, false);
    tsr_gradients(loss, 1, &x, &dx);
    tsr_output(g, "dx", dx, p, TSR_B);
    TSRI_TRY(tsr_compile(g, &plan));
    double mine[N], got[N], c = 0;
    for (int i = 0; i < N; i++)
        mine[i] = sin(1 + rank + 0.3 * i);
    for (int r = 0; r < n; r++)
        c += r + 0.5;
    TSRI_TRY(tsr_feed(plan, "x", mine, sizeof mine));
    TSRI_TRY(tsr_run(plan));
    TSRI_TRY(tsr_fetch(plan, "dx", got, sizeof got));
    for (int i = 0; i < N; i++) {
        double si = 0, ti = 0;
        for (int r = 0; r < n; r++) {
            double v = sin(1 + r + 0.3 * i);
            si += v;
            ti += v * v;
        }
        CHECK(fabs(got[i] - c * (ti + 2 * mine[i] * si)) < 1e-12);
    }
    return TSR_OK;
}

static void test_gradients(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++)
        spawn_ok(n, gradients, NULL);
}

/* --- programs that differ --------------------------------------------------------------------- */
/* Rank 0 makes its image by a convolution, which lies channels last; the others feed theirs. */
static tsr_status layouts(tsr_world *w, void *arg)
{
    (void)arg;
    enum { C = 3, H = 2, W = 4, COUNT = C * H * W };
    int rank = tsr_world_rank(w), n = tsr_world_size(w);
    const tsr_placement *p = tsr_local_placement(w);
    const tsr_nn_opts nn = {.placement = p, .dtype = TSR_F64};
    const double one[C * C] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    tsr_graph *g = own_graph(w);
    tsr_plan *plan;
    double in[COUNT], out[COUNT];
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(1, C, H, W), p, TSR_B);
    tsr_module *conv = tsr_nn_conv2d(w, &nn, C, C, 1, false, NULL);
    TSRI_TRY(tsr_variable_set(tsr_module_find(conv, "weight"), one, sizeof one));
    tsr_tensor *y = rank == 0 ? tsr_apply(conv, x) : x;
    y = tsr_rank_sum(y, tsr_world_group(w));
    tsr_output(g, "y", rank == 1 ? tsr_apply(conv, y) : y, p, TSR_B);
    TSRI_TRY(tsr_compile(g, &plan));
    for (int i = 0; i < COUNT; i++)
        in[i] = value_at(rank, i);
    TSRI_TRY(tsr_feed(plan, "x", in, sizeof in));
    TSRI_TRY(tsr_run(plan));
    TSRI_TRY(tsr_fetch(plan, "y", out, sizeof out));
    for (int i = 0; i < COUNT; i++) {
        double sum = 0;
        for (int r = 0; r < n; r++)
            sum += value_at(r, i);
        CHECK(out[i] == sum);
    }
    return TSR_OK;
}

static void test_layouts(void **state)
{
    (void)state;
    spawn_ok(3, layouts, NULL);
}

/* Ranks that sum different things are told where each is. */
static tsr_status differing(tsr_world *w, void *arg)
{
    (void)arg;
    int rank = tsr_world_rank(w);
    const tsr_placement *p = tsr_local_placement(w);
    tsr_graph *g = own_graph(w);
    tsr_plan *plan;
    char odd[64], even[64];
    tsr_tensor *x = tsr_full(g, TSR_F64, TSR_DIMS(rank == 1 ? 4 : 3), p, TSR_B, 1), *y;
    const int odd_line = __LINE__ + 2, even_line = __LINE__ + 4;
    if (rank == 1)
        y = tsr_rank_sum(x, tsr_world_group(w));
    else
        y = tsr_rank_sum(x, tsr_world_group(w));
    tsr_output(g, "y", y, p, TSR_B);
    TSRI_TRY(tsr_compile(g, &plan));
    CHECK(tsr_run(plan) == TSR_ERR_MISMATCH);
    snprintf(odd, sizeof odd, "test_rank_sum.c:%d", odd_line);
    snprintf(even, sizeof even, "test_rank_sum.c:%d", even_line);
    CHECK_TEXT(odd);
    CHECK_TEXT(even);
    CHECK(tsr_run(plan) == TSR_ERR_STATE);
    return TSR_OK;
}

/* The last rank never comes: it ends. */
static tsr_status missing(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_local_placement(w);
    tsr_graph *g = own_graph(w);
    tsr_tensor *x = tsr_full(g, TSR_F64, TSR_DIMS(3), p, TSR_B, 1);
    double y[3];
    x = tsr_rank_sum(x, tsr_world_group(w));
    if (tsr_world_rank(w) == tsr_world_size(w) - 1)
        return TSR_OK;
    tsr_status status = tsr_eval(x, y, sizeof y);
    CHECK(status == TSR_ERR_DEAD || status == TSR_ERR_REMOTE || status == TSR_ERR_TIMEOUT);
    return TSR_OK;
}

static void test_differing(void **state)
{
    (void)state;
    spawn_ok(3, differing, NULL);
    const tsr_world_opts soon = {
        .size = sizeof soon, .arena_bytes = 16 << 20, .timeout_s = 3, .threads = 1};
    tsr_status status = tsr_spawn_with(2, missing, NULL, &soon);
    if (status != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

static tsr_status declared_wrong(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_local_placement(w), *all = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_full(g, TSR_F64, TSR_DIMS(3), all, TSR_B, 1);
    CHECK(!tsr_tensor_ok(tsr_rank_sum(x, tsr_world_group(w))));
    CHECK(tsr_graph_status(g) == TSR_ERR_STATE);
    CHECK_TEXT("legal in local graphs alone");
    g = own_graph(w);
    x = tsr_full(g, TSR_F64, TSR_DIMS(3), p, TSR_B, 1);
    CHECK(!tsr_tensor_ok(tsr_rank_sum(x, NULL)));
    CHECK(tsr_graph_status(g) == TSR_ERR_INVALID);
    CHECK_TEXT("the group is NULL");
    return TSR_OK;
}

static void test_declared_wrong(void **state)
{
    (void)state;
    spawn_ok(2, declared_wrong, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),           cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_layouts),        cmocka_unit_test(test_differing),
        cmocka_unit_test(test_declared_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
