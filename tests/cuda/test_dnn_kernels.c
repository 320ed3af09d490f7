/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuDNN's kernels in the CUDA module, beyond their values (test_cuda.c): that they take what is
 * meant for them and nothing else, obey the environment, repeat, and can be captured. Skipped where
 * there is no device; on the emulator with TESSERA_CUDA_MODULE.
 */
#include "tests/kernels/cases.h"
#include "tests/kernels/on_cuda.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const tsri_kernels *implementation(const char *name)
{
    for (const tsri_kernels *const *list = device->ops->kernels(); *list; list++)
        if (!strcmp((*list)->name, name))
            return *list;
    fail_msg("no implementation is called %s", name);
    return NULL;
}

static bool is_conv(const kernel_case *c)
{
    return c->op == TSRI_OP_CONV2D || c->op == TSRI_OP_CONV2D_DX || c->op == TSRI_OP_CONV2D_DW;
}

/* Something to do for cuDNN: elements, and more than one channel per group. */
static bool is_meant(const kernel_case *c)
{
    const kc_arg *w = c->op == TSRI_OP_CONV2D_DW ? &c->out[0] : &c->in[1];
    for (int i = 0; i < c->nin; i++)
        if (!kc_count(&c->in[i]))
            return false;
    return kc_count(&c->out[0]) && (c->groups == 1 || w->dims.d[1] > 1);
}

/* Returns the result of an implementation's kernel for a case; the caller frees out, which may be
 * NULL. */
static tsr_status run_case_by(const char *name, const kernel_case *c, tsr_dtype dtype,
                              kc_layout layout, double **out)
{
    double *in[8] = {0}, *result = calloc((size_t)kc_count(&c->out[0]) + 1, sizeof *result);
    for (int i = 0; i < c->nin; i++)
        in[i] = kc_make(c, i, 5);
    tsr_status status = kc_run_on(device, c, implementation(name), dtype, layout, in, &result);
    for (int i = 0; i < c->nin; i++)
        free(in[i]);
    if (out)
        *out = result;
    else
        free(result);
    return status;
}

static tsr_status run_case(const kernel_case *c, tsr_dtype dtype, kc_layout layout, double **out)
{
    return run_case_by("cudnn", c, dtype, layout, out);
}

/* --- what is taken ---------------------------------------------------------------------------- */
static void test_takes(void **state)
{
    (void)state;
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    int taken = 0;
    for (int i = 0; i < kernel_cases_count; i++)
        for (size_t d = 0; d < 3 && is_conv(&kernel_cases[i]) && is_meant(&kernel_cases[i]); d++) {
            const kernel_case *c = &kernel_cases[i];
            if (run_case(c, dtypes[d], KC_PLAN, NULL) != TSR_OK ||
                run_case(c, dtypes[d], KC_NHWC, NULL) != TSR_OK)
                fail_msg("%s, %s: %s", c->name, tsr_dtype_name(dtypes[d]), tsr_last_error());
            taken++;
        }
    assert_true(taken > 0);
}

static void test_declines(void **state)
{
    (void)state;
    int declined = 0;
    for (int i = 0; i < kernel_cases_count; i++) {
        const kernel_case *c = &kernel_cases[i];
        if (!is_conv(c))
            continue;
        assert_int_equal(run_case(c, TSR_F64, KC_NHWC, NULL), TSR_ERR_UNSUPPORTED);
        if (!is_meant(c)) {
            assert_int_equal(run_case(c, TSR_F32, KC_NHWC, NULL), TSR_ERR_UNSUPPORTED);
            declined++;
        }
    }
    assert_true(declined > 0);
    assert_int_equal(run_case(kernel_case_find("conv2d 3x3"), TSR_F32, KC_ROW, NULL),
                     TSR_ERR_UNSUPPORTED);
    tsri_device *kept = device; /* without a stream there is nothing to run in */
    const tsri_kernels *impl = implementation("cudnn");
    double *none[8] = {0};
    device = NULL;
    assert_int_equal(
        kc_run_on(NULL, kernel_case_find("conv2d 3x3"), impl, TSR_F32, KC_NHWC, none, none),
        TSR_ERR_UNSUPPORTED);
    device = kept;
}

/* --- the environment -------------------------------------------------------------------------- */
/* Returns the result of an implementation for a case, in a world that is opened with a variable
 * set. */
static double *run_with_by(const char *impl, const char *name, const char *value,
                           const kernel_case *c, tsr_dtype dtype)
{
    tsr_world *old_world = world;
    tsri_device *old_device = device;
    double *out;
    setenv(name, value, 1);
    assert_int_equal(tsr_world_create(NULL, &world), TSR_OK);
    assert_int_equal(tsri_device_get(world, TSR_DEVICE_CUDA, &device), TSR_OK);
    tsr_status status = run_case_by(impl, c, dtype, KC_PLAN, &out);
    if (status != TSR_OK)
        fail_msg("%s=%s, %s: %s", name, value, c->name, tsr_last_error());
    tsr_world_destroy(world);
    unsetenv(name);
    world = old_world;
    device = old_device;
    return out;
}

static double *run_with(const char *name, const char *value, const kernel_case *c, tsr_dtype dtype)
{
    return run_with_by("cudnn", name, value, c, dtype);
}

static double largest_difference(const kernel_case *c, const double *a, const double *b)
{
    double most = 0, top = 0;
    for (int64_t i = 0; i < kc_count(&c->out[0]); i++) {
        most = fmax(most, fabs(a[i] - b[i]));
        top = fmax(top, fabs(a[i]));
    }
    return most / top;
}

static void test_environment(void **state)
{
    (void)state;
    static const char *const names[] = {"conv2d 3x3 wide", "conv2d_dx 3x3 wide",
                                        "conv2d_dw 3x3 wide"};
    for (int i = 0; i < 3; i++) {
        const kernel_case *c = kernel_case_find(names[i]);
        double *want, *tf32, *timed, *loose;
        assert_int_equal(run_case(c, TSR_F32, KC_PLAN, &want), TSR_OK);
        tf32 = run_with("TESSERA_CUDA_TF32", "1", c, TSR_F32);
        timed = run_with("TESSERA_CUDA_AUTOTUNE", "1", c, TSR_F32);
        loose = run_with("TESSERA_CUDA_DETERMINISTIC", "0", c, TSR_F32);
        assert_true(largest_difference(c, want, tf32) > 1e-5);
        assert_true(largest_difference(c, want, tf32) < 1e-2);
        assert_true(largest_difference(c, want, timed) < 2e-5);
        assert_true(largest_difference(c, want, loose) < 2e-5);
        free(want);
        free(tf32);
        free(timed);
        free(loose);
    }
}

/* Products and convolutions have a switch each, whichever library makes a convolution. */
static void test_tf32_apart(void **state)
{
    (void)state;
    static const struct {
        const char *impl, *name;
        bool is_conv;
    } runs[] = {{"cudnn", "conv2d 3x3 wide", true},
                {"cublaslt", "conv2d 1x1 wide", true},
                {"cublaslt", "conv2d_dx 1x1 wide", true},
                {"cublaslt", "conv2d_dw 1x1 wide", true},
                {"cublaslt", "matmul", false},
                {"cublaslt", "linear", false}};
    for (int i = 0; i < (int)(sizeof runs / sizeof runs[0]); i++)
        for (int both = 0; both < 2; both++)
            for (int conv = 0; conv < 2; conv++) {
                const kernel_case *c = kernel_case_find(runs[i].name);
                double *want, *got;
                if (!c)
                    fail_msg("no case %s", runs[i].name);
                assert_int_equal(run_case_by(runs[i].impl, c, TSR_F32, KC_PLAN, &want), TSR_OK);
                setenv("TESSERA_CUDA_TF32", both ? "1" : "0", 1);
                got = run_with_by(runs[i].impl, "TESSERA_CUDA_TF32_CONV", conv ? "1" : "0", c,
                                  TSR_F32);
                unsetenv("TESSERA_CUDA_TF32");
                const bool on = runs[i].is_conv ? conv : both;
                if ((largest_difference(c, want, got) > 1e-5) != on)
                    fail_msg("%s by %s: products %d, convolutions %d", c->name, runs[i].impl, both,
                             conv);
                free(want);
                free(got);
            }
}

/* --- capturing -------------------------------------------------------------------------------- */
/* x, w and bias in device memory, y twice, scratch. */
typedef struct buffers {
    void *p[6];
    size_t bytes[6];
} buffers;

static tsri_arg arg_of(int ndim, const int64_t *shape, bool last)
{
    static const int rows[4] = {0, 1, 2, 3}, nhwc[4] = {0, 2, 3, 1};
    tsri_arg a = {.dtype = TSR_F32, .ndim = ndim};
    int64_t step = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        int axis = last ? nhwc[i] : rows[i];
        a.shape[axis] = a.gshape[axis] = shape[axis];
        a.stride[axis] = step;
        step *= shape[axis];
    }
    return a;
}

static void fill(buffers *b, int i, size_t count)
{
    float *host = malloc(count * sizeof *host);
    assert_non_null(host);
    for (size_t j = 0; j < count; j++)
        host[j] = (float)((int)(j * 37 % 101) - 50) / 50;
    b->bytes[i] = count * sizeof *host;
    assert_int_equal(device->ops->buffer_alloc(device, b->bytes[i], &b->p[i]), TSR_OK);
    assert_int_equal(device->ops->copy_in(device, b->p[i], host, b->bytes[i], device->stream),
                     TSR_OK);
    free(host);
}

static void test_capture(void **state)
{
    (void)state;
    enum { N = 2, C = 16, SIZE = 9, O = 24, Y = N * O * SIZE * SIZE };
    static float now[Y], later[Y];
    const tsri_attrs attrs = {.conv = {{1, 1}, {1, 1}, {1, 1}, {3, 3}, 1}};
    tsri_kernel_desc d = {.op = TSRI_OP_CONV2D,
                          .attrs = &attrs,
                          .nin = 3,
                          .nout = 1,
                          .groups = 1,
                          .stream = device->stream};
    buffers b = {{0}, {0}};
    tsri_kernel *k;
    tsri_captured *captured;
    d.in[0] = arg_of(4, (int64_t[]){N, C, SIZE, SIZE}, true);
    d.in[1] = arg_of(4, (int64_t[]){O, C, 3, 3}, false);
    d.in[2] = arg_of(1, (int64_t[]){O}, false);
    d.out[0] = arg_of(4, (int64_t[]){N, O, SIZE, SIZE}, true);
    assert_int_equal(implementation("cudnn")->slot[d.op](NULL, &d, &k), TSR_OK);
    fill(&b, 0, N * C * SIZE * SIZE);
    fill(&b, 1, O * C * 9);
    fill(&b, 2, O);
    fill(&b, 3, Y);
    fill(&b, 4, Y);
    b.bytes[5] = k->scratch_bytes;
    if (k->scratch_bytes)
        assert_int_equal(device->ops->buffer_alloc(device, b.bytes[5], &b.p[5]), TSR_OK);
    assert_int_equal(k->run(k, b.p, &b.p[3], b.p[5]), TSR_OK);
    assert_int_equal(device->ops->capture_begin(device, device->stream), TSR_OK);
    assert_int_equal(k->run(k, b.p, &b.p[4], b.p[5]), TSR_OK);
    assert_int_equal(device->ops->capture_end(device, device->stream, &captured), TSR_OK);
    assert_int_equal(device->ops->captured_run(device, captured, device->stream), TSR_OK);
    assert_int_equal(device->ops->captured_run(device, captured, device->stream), TSR_OK);
    assert_int_equal(device->ops->copy_out(device, now, b.p[3], sizeof now, device->stream),
                     TSR_OK);
    assert_int_equal(device->ops->copy_out(device, later, b.p[4], sizeof later, device->stream),
                     TSR_OK);
    assert_memory_equal(now, later, sizeof now);
    device->ops->captured_destroy(device, captured);
    for (int i = 0; i < 6; i++)
        device->ops->buffer_free(device, b.p[i], b.bytes[i]);
    k->destroy(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes),       cmocka_unit_test(test_declines),
        cmocka_unit_test(test_environment), cmocka_unit_test(test_tf32_apart),
        cmocka_unit_test(test_capture),
    };
    int none = open_cuda();
    return none ? none : close_cuda(cmocka_run_group_tests(tests, NULL, NULL));
}
