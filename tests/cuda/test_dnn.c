/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice of cuDNN's engines, by the true cuDNN, for an H200 that is only described (h200.json):
 * no GPU is needed, plans are made and never executed. Prints what was chosen.
 */
#include "described.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static tsri_dnn_target target;
static const char *self;

static const tsri_dnn_policy strict = {
    .deterministic = true, .tf32 = false, .workspace_cap = (size_t)256 << 20};
static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
static const tsri_op_kind ops[] = {TSRI_OP_CONV2D, TSRI_OP_CONV2D_DX, TSRI_OP_CONV2D_DW};

/* A convolution of n square images. */
typedef struct shape {
    int n, c, size, o, kernel, stride, groups;
} shape;

/* All dense ones of MobileNetV2 for CIFAR (models/mobilenet_v2.c) at batch 128. */
static const shape mobilenet[] = {
    {128, 3, 32, 32, 3, 1, 1},   {128, 32, 32, 16, 1, 1, 1},   {128, 16, 32, 96, 1, 1, 1},
    {128, 96, 32, 24, 1, 1, 1},  {128, 24, 32, 144, 1, 1, 1},  {128, 144, 32, 24, 1, 1, 1},
    {128, 144, 16, 32, 1, 1, 1}, {128, 32, 16, 192, 1, 1, 1},  {128, 192, 16, 32, 1, 1, 1},
    {128, 192, 8, 64, 1, 1, 1},  {128, 64, 8, 384, 1, 1, 1},   {128, 384, 8, 64, 1, 1, 1},
    {128, 384, 8, 96, 1, 1, 1},  {128, 96, 8, 576, 1, 1, 1},   {128, 576, 8, 96, 1, 1, 1},
    {128, 576, 4, 160, 1, 1, 1}, {128, 160, 4, 960, 1, 1, 1},  {128, 960, 4, 160, 1, 1, 1},
    {128, 960, 4, 320, 1, 1, 1}, {128, 320, 4, 1280, 1, 1, 1},
};

/* Of residual networks and vision transformers; and sizes that divide nothing. */
static const shape others[] = {
    {32, 3, 224, 64, 7, 2, 1},   {32, 64, 56, 64, 3, 1, 1},    {32, 128, 56, 128, 3, 2, 1},
    {32, 256, 56, 512, 1, 2, 1}, {32, 128, 56, 128, 3, 1, 32}, {64, 3, 224, 768, 16, 16, 1},
    {5, 7, 13, 9, 3, 2, 1},      {2, 6, 5, 9, 3, 1, 3},        {128, 1, 28, 20, 5, 1, 1},
};

static tsri_dnn_conv conv_of(const shape *s, tsri_op_kind op, tsr_dtype dtype, bool last)
{
    int64_t pad = s->kernel == s->stride ? 0 : (s->kernel - 1) / 2;
    int64_t out = (s->size + 2 * pad - s->kernel) / s->stride + 1;
    return (tsri_dnn_conv){
        .op = op,
        .dtype = dtype,
        .w_last = last,
        .x = {s->n, s->c, s->size, s->size},
        .w = {s->o, s->c / s->groups, s->kernel, s->kernel},
        .y = {s->n, s->o, out, out},
        .stride = {s->stride, s->stride},
        .pad = {pad, pad},
        .dilation = {1, 1},
    };
}

/* The first plan, by itself: only what it is said to be is left. */
static tsr_status first(const tsri_dnn_conv *c, const tsri_dnn_policy *policy, tsri_dnn_plan *out)
{
    tsri_dnn_graph graph;
    tsri_dnn_plan plan;
    int n = 0;
    tsr_status status = tsri_dnn_graph_make(&target, c, &graph);
    if (status == TSR_OK)
        status = tsri_dnn_choose(&target, policy, &graph, (tsr_dtype)c->dtype, 1, &plan, &n);
    if (status == TSR_OK) {
        assert_int_equal(n, 1);
        assert_non_null(plan.plan);
        *out = plan;
        tsri_dnn_plan_finish(&plan);
    }
    tsri_dnn_graph_finish(&graph);
    return status;
}

static bool has(const tsri_dnn_plan *p, cudnnBackendNumericalNote_t note)
{
    return p->notes >> note & 1;
}

static void check_plan(const tsri_dnn_plan *p, tsr_dtype dtype)
{
    assert_true(p->workspace <= strict.workspace_cap);
    assert_false(has(p, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
    assert_false(has(p, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS));
    assert_false(has(p, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION));
    if (dtype == TSR_F32)
        assert_false(has(p, CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
}

/* A line per op and dtype: engine, T for tensor cores, C for compiled at run time, workspace; for
 * weights as plans have them, and for channels-last ones. */
static void check_shape(const shape *s)
{
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            char text[128] = "";
            size_t n = 0;
            for (int last = s->kernel == 1 || s->c == s->groups; last < 2; last++) {
                tsri_dnn_conv c = conv_of(s, ops[o], dtypes[d], last);
                tsri_dnn_plan p;
                if (first(&c, &strict, &p) != TSR_OK)
                    fail_msg("%d->%d, %s of %s: %s", s->c, s->o, tsri_op_name(ops[o]),
                             tsr_dtype_name(dtypes[d]), tsr_last_error());
                check_plan(&p, dtypes[d]);
                n += (size_t)snprintf(
                    text + n, sizeof text - n, " %3lld%s%s %8.2f MB", (long long)p.engine,
                    has(&p, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) ? "T" : " ",
                    p.behaviour >> CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION & 1 ? "C" : " ",
                    (double)p.workspace * 1e-6);
            }
            print_message("%3d x %4d->%-4d at %3d, %2dx%-2d by %2d, %2d groups  %-9s %-4s%s\n",
                          s->n, s->c, s->o, s->size, s->kernel, s->kernel, s->stride, s->groups,
                          tsri_op_name(ops[o]), tsr_dtype_name(dtypes[d]), text);
        }
}

static void test_mobilenet(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mobilenet / sizeof *mobilenet; i++)
        check_shape(&mobilenet[i]);
}

static void test_others(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        check_shape(&others[i]);
}

/* --- the policy makes a difference ------------------------------------------------------------ */
static const shape residual = {32, 64, 56, 64, 3, 1, 1};

static void test_tf32(void **state)
{
    (void)state;
    tsri_dnn_policy loose = strict;
    loose.tf32 = true;
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
        tsri_dnn_conv c = conv_of(&residual, ops[o], TSR_F32, true);
        tsri_dnn_plan p;
        assert_int_equal(first(&c, &loose, &p), TSR_OK);
        assert_true(has(&p, CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
    }
}

static void test_cap(void **state)
{
    (void)state;
    tsri_dnn_conv c = conv_of(&residual, TSRI_OP_CONV2D, TSR_F32, true);
    tsri_dnn_policy tight = strict;
    tsri_dnn_plan p;
    assert_int_equal(first(&c, &strict, &p), TSR_OK);
    assert_true(p.workspace > 0);
    tight.workspace_cap = p.workspace - 1;
    assert_int_equal(first(&c, &tight, &p), TSR_OK);
    assert_true(p.workspace <= tight.workspace_cap);
}

/* Some gradient's first choice does not repeat. */
static void test_deterministic(void **state)
{
    (void)state;
    tsri_dnn_policy loose = strict;
    int unsteady = 0;
    loose.deterministic = false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
            tsri_dnn_conv c = conv_of(&others[i], ops[o], TSR_F32, true);
            tsri_dnn_plan p;
            assert_int_equal(first(&c, &loose, &p), TSR_OK);
            unsteady += has(&p, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
        }
    assert_true(unsteady > 0);
}

static void test_several(void **state)
{
    (void)state;
    tsri_dnn_conv c = conv_of(&residual, TSRI_OP_CONV2D, TSR_BF16, false);
    tsri_dnn_graph graph;
    tsri_dnn_plan plans[4];
    int n;
    assert_int_equal(tsri_dnn_graph_make(&target, &c, &graph), TSR_OK);
    assert_int_equal(tsri_dnn_choose(&target, &strict, &graph, TSR_BF16, 4, plans, &n), TSR_OK);
    assert_int_equal(n, 4);
    for (int i = 0; i < n; i++) {
        check_plan(&plans[i], TSR_BF16);
        tsri_dnn_plan_finish(&plans[i]);
    }
    tsri_dnn_graph_finish(&graph);
}

static void test_refused(void **state)
{
    (void)state;
    tsri_dnn_conv c = conv_of(&residual, TSRI_OP_CONV2D, TSR_F32, true);
    tsri_dnn_plan p;
    c.y[2]++; /* no window ends there */
    assert_int_not_equal(first(&c, &strict, &p), TSR_OK);
    assert_true(*tsr_last_error());
}

/* --- with a driver ---------------------------------------------------------------------------- */
/* The driver's stub does nothing, but cuDNN finds it and offers what it compiles at run time. What
 * it chooses is held to the same. */
static void test_with_stub(void **state)
{
    (void)state;
    char folder[] = "/tmp/tessera_dnn_XXXXXX", link[64], path[4096];
    const char *before = getenv("LD_LIBRARY_PATH");
    if (access(STUB, R_OK) != 0) {
        print_message("skipped: no %s, so engines that are compiled at run time are not offered\n",
                      STUB);
        skip();
    }
    assert_non_null(mkdtemp(folder));
    snprintf(link, sizeof link, "%s/libcuda.so.1", folder);
    assert_int_equal(symlink(STUB, link), 0);
    snprintf(path, sizeof path, "%s%s%s", folder, before ? ":" : "", before ? before : "");
    pid_t child = fork();
    if (child == 0) {
        setenv("LD_LIBRARY_PATH", path, 1);
        execl(self, self, "stub", (char *)NULL);
        _exit(127);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    unlink(link);
    rmdir(folder);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_stub_is_found(void **state)
{
    (void)state;
    assert_non_null(dlopen("libcuda.so.1", RTLD_LAZY));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mobilenet), cmocka_unit_test(test_others),
        cmocka_unit_test(test_tf32),      cmocka_unit_test(test_cap),
        cmocka_unit_test(test_several),   cmocka_unit_test(test_deterministic),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_with_stub),
    };
    const struct CMUnitTest with_stub[] = {cmocka_unit_test(test_stub_is_found),
                                           cmocka_unit_test(test_others)};
    self = argv[0];
    if (!describe_device(&target)) {
        printf("skipped: cuDNN %zu takes no description of a device: %s\n", cudnnGetVersion(),
               tsr_last_error());
        return 77;
    }
    int failed = argc > 1 ? cmocka_run_group_tests(with_stub, NULL, NULL)
                          : cmocka_run_group_tests(tests, NULL, NULL);
    cudnnBackendDestroyDescriptor(target.description);
    return failed;
}
