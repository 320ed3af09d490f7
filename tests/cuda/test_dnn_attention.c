/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engines that the true cuDNN offers for attention on an H200 that is only described
 * (h200.json), with a driver that only pretends to load them (driver/). No GPU is needed: plans are
 * made and never executed. Prints what was chosen.
 */
#include "described.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

enum { ROW, BY_HEAD }; /* (b,h,s,d); (b,s,h,d) */
enum way { FORWARD, SLOPES, SUMS };

static const char *const way_names[] = {"forward", "gradient by slopes", "gradient by sums"};
static tsri_dnn_target target;

typedef struct shape {
    int64_t b, h, s, t, d, e;
    bool causal;
    int layout;
} shape;

/* Other shapes than the kernel's tests have: a model's, and sizes that divide nothing. */
static const shape shapes[] = {
    {8, 12, 1024, 1024, 64, 64, true, BY_HEAD}, {8, 12, 1024, 1024, 64, 64, true, ROW},
    {2, 3, 100, 250, 64, 64, false, ROW},       {1, 5, 333, 331, 128, 128, true, BY_HEAD},
    {3, 2, 20, 77, 80, 40, true, ROW},          {2, 3, 77, 20, 8, 8, true, BY_HEAD},
    {2, 3, 1, 77, 64, 64, false, BY_HEAD},      {1, 1, 2, 1, 64, 64, true, ROW},
    {2, 2, 130, 130, 256, 256, true, BY_HEAD},
};

static void set(tsri_dnn_attention *a, int which, int layout, int64_t rows, int64_t cols,
                const shape *s)
{
    static const int orders[2][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}};
    const int64_t dims[4] = {s->b, s->h, rows, cols};
    int64_t step = 1;
    for (int i = 3; i >= 0; i--) {
        const int axis = orders[layout][i];
        a->dims[which][axis] = dims[axis];
        a->steps[which][axis] = step;
        step *= dims[axis];
    }
}

static tsri_dnn_attention attention_of(const shape *s, tsr_dtype dtype, enum way way)
{
    tsri_dnn_attention a = {
        .dtype = dtype, .back = way != FORWARD, .causal = s->causal, .dq_sum = way == SUMS};
    set(&a, TSRI_DNN_Q, s->layout, s->s, s->d, s);
    set(&a, TSRI_DNN_K, s->layout, s->t, s->d, s);
    set(&a, TSRI_DNN_V, s->layout, s->t, s->e, s);
    set(&a, TSRI_DNN_O, s->layout, s->s, s->e, s);
    set(&a, TSRI_DNN_STATS, ROW, s->s, 1, s);
    set(&a, TSRI_DNN_DO, s->layout, s->s, s->e, s);
    set(&a, TSRI_DNN_DQ, s->layout, s->s, s->d, s);
    set(&a, TSRI_DNN_DK, s->layout, s->t, s->d, s);
    set(&a, TSRI_DNN_DV, s->layout, s->t, s->e, s);
    set(&a, TSRI_DNN_SUM, ROW, s->s, 1, s);
    set(&a, TSRI_DNN_DQ_SUM, ROW, s->s, s->d, s);
    return a;
}

/* The first plan, of which what it says is left. */
static tsr_status find(const tsri_dnn_attention *a, size_t cap, tsri_dnn_plan *out)
{
    const tsri_dnn_policy policy = {.deterministic = true, .tf32 = false, .workspace_cap = cap};
    tsri_dnn_graph graph;
    tsri_dnn_plan plan;
    int n = 0;
    tsr_status status = tsri_dnn_attention_graph(&target, a, &graph);
    if (status == TSR_OK)
        status = tsri_dnn_choose(&target, &policy, &graph, (tsr_dtype)a->dtype, 1, &plan, &n);
    if (status == TSR_OK) {
        assert_int_equal(n, 1);
        assert_non_null(plan.plan);
        *out = plan;
        tsri_dnn_plan_finish(&plan);
    }
    tsri_dnn_graph_finish(&graph);
    return status;
}

static size_t in_tiles(int64_t n)
{
    return (size_t)(n + 127) / 128 * 128;
}

/* The bytes of workspace that an engine may take: the slopes, in halves and whole tiles, by which
 * dnn_attention.c cuts its parts; as many sums as the operand for them has; else next to nothing.
 */
static size_t most_workspace(const shape *s, enum way way)
{
    const size_t heads = (size_t)(s->b * s->h);
    const size_t each = way == SLOPES ? in_tiles(s->s) * in_tiles(s->t) * 2
                        : way == SUMS ? in_tiles(s->s) * (size_t)s->d * 4
                                      : 0;
    return heads * each + 4096;
}

static void test_engines(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (enum way way = FORWARD; way <= SUMS; way++) {
            const shape *s = &shapes[i];
            const tsr_dtype dtype = i % 2 ? TSR_F16 : TSR_BF16;
            const tsri_dnn_attention a = attention_of(s, dtype, way);
            tsri_dnn_plan p;
            if (find(&a, (size_t)256 << 20, &p) != TSR_OK)
                fail_msg("shape %zu, %s: %s", i, way_names[way], tsr_last_error());
            assert_true(p.notes >> CUDNN_NUMERICAL_NOTE_TENSOR_CORE & 1);
            if (p.workspace > most_workspace(s, way))
                fail_msg("shape %zu, %s: a workspace of %zu bytes, not of %zu", i, way_names[way],
                         p.workspace, most_workspace(s, way));
            print_message("%lld x %2lld heads, %4lld queries x %lld, %4lld keys x %lld%s, %s, %s: "
                          "engine %lld, %.2f MB\n",
                          (long long)s->b, (long long)s->h, (long long)s->s, (long long)s->d,
                          (long long)s->t, (long long)s->e, s->causal ? ", causal" : "",
                          tsr_dtype_name(dtype), way_names[way], (long long)p.engine,
                          (double)p.workspace * 1e-6);
        }
}

/* The slopes need their bytes, which a cap refuses. */
static void test_cap(void **state)
{
    (void)state;
    const tsri_dnn_attention a = attention_of(&shapes[0], TSR_BF16, SLOPES);
    tsri_dnn_plan p;
    const size_t slopes = (size_t)8 * 12 * 1024 * 1024 * 2;
    assert_int_equal(find(&a, slopes + 4096, &p), TSR_OK);
    assert_int_equal(find(&a, slopes - 1, &p), TSR_ERR_UNSUPPORTED);
}

/* What dnn_attention.c does not ask for. */
static void test_refused(void **state)
{
    (void)state;
    static const shape odd = {2, 3, 64, 64, 12, 12, true, ROW};
    static const shape wide = {2, 3, 64, 64, 264, 264, true, ROW};
    tsri_dnn_plan p;
    for (enum way way = FORWARD; way <= SUMS; way++) {
        const tsri_dnn_attention a = attention_of(&odd, TSR_BF16, way);
        assert_int_equal(find(&a, (size_t)256 << 20, &p), TSR_ERR_UNSUPPORTED);
    }
    const tsri_dnn_attention a = attention_of(&wide, TSR_BF16, SLOPES);
    assert_int_equal(find(&a, (size_t)256 << 20, &p), TSR_ERR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_engines), cmocka_unit_test(test_cap),
                                       cmocka_unit_test(test_refused)};
    if (!describe_device(&target)) {
        printf("skipped: cuDNN %zu takes no description of a device: %s\n", cudnnGetVersion(),
               tsr_last_error());
        return 77;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cudnnBackendDestroyDescriptor(target.description);
    return failed;
}
