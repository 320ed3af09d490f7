/* SPDX-License-Identifier: Apache-2.0 */
/* Every element-wise function of one or two operands that CPUs compute in vectors, on floats of all
 * sizes and with each instruction set, beside the reference in f64. */
#include "tests/kernels/fast/fast_case.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

extern const tsri_kernels tsri_kernels_cpu_ref;

static const char *const isas[] = {"base", "avx2", "avx512"};

enum { FRACTIONS = 7, EXPONENTS = 277, STEPS = 4001, SPECIAL = 8 };

/* Floats of each exponent and sign, many between -20 and 20, and those that are special. */
static fc_tensor inputs(void)
{
    static const float special[SPECIAL] = {0.0f,    -0.0f,    INFINITY, -INFINITY,
                                           FLT_MAX, -FLT_MAX, FLT_MIN,  NAN};
    fc_tensor x = fc_rows(TSR_F32, 1, 2 * FRACTIONS * EXPONENTS + STEPS + SPECIAL, 0, 0, 0);
    float *p = x.data;
    for (int e = 0; e < EXPONENTS; e++)
        for (int f = 0; f < FRACTIONS; f++) {
            const double size = ldexp(1 + f / 7.3, e - 149);
            *p++ = (float)size;
            *p++ = (float)-size;
        }
    for (int i = 0; i < STEPS; i++)
        *p++ = (float)(i - STEPS / 2) / 100;
    memcpy(p, special, sizeof special);
    return x;
}

static fc_tensor widened(const fc_tensor *x)
{
    fc_tensor wide = fc_rows(TSR_F64, 1, x->n, 0, 0, 0);
    for (int64_t i = 0; i < x->n; i++)
        ((double *)wide.data)[i] = (double)((const float *)x->data)[i];
    return wide;
}

/* What is lost where two terms of a gradient cancel, as a multiple of u. */
static double cancelled(tsri_unary_fn fn, bool gradient, double v)
{
    const bool waves = fn == TSRI_UNARY_SILU || fn == TSRI_UNARY_GELU ||
                       fn == TSRI_UNARY_GELU_TANH || fn == TSRI_UNARY_HARDSWISH ||
                       fn == TSRI_UNARY_MISH;
    return gradient && waves ? 4e-7 * (1 + fabs(v)) : 0;
}

/* Relative errors: a few units in the last place, but for gelu's, whose e^z multiplies the rounding
 * of z, a polynomial of v. */
static double relative(tsri_unary_fn fn, double v)
{
    const bool gelu = fn == TSRI_UNARY_GELU || fn == TSRI_UNARY_GELU_TANH;
    if (fn == TSRI_UNARY_CELU && fabs(v) < 200) /* e^(v/a) likewise */
        return 5e-7 + 1e-7 * fabs(v);
    if (fn == TSRI_UNARY_ERF || fn == TSRI_UNARY_ERFC) /* e^-v^2 likewise */
        return 1e-6 * (1 + fmin(v * v, 1e3));
    return 5e-7 + (gelu && v < 0 && v > -100 ? 1e-6 * fabs(v * v * (1 + fabs(v))) : 0);
}

/* by: what the slope is multiplied with; an f32 slope may be infinite where the product is not. */
static bool is_near(float y, double want, double by, double tol)
{
    const float w = (float)want;
    if (isnan(w) || isnan(y))
        return isnan(w) && isnan(y);
    if (isinf(w) || isinf(y))
        return y == w || (fabs(want) > 0.99999 * (double)FLT_MAX * fmin(fabs(by), 1) &&
                          signbit(y) == signbit(w));
    return fabs((double)y - want) <= tol;
}

static void check(const char *isa, tsri_unary_fn fn, double a, bool gradient)
{
    const tsri_attrs at = {.unary = {.a = a, .b = 2.5, .fn = fn}};
    const tsri_op_kind op = gradient ? TSRI_OP_UNARY_GRAD : TSRI_OP_UNARY;
    fc_tensor x = inputs();
    if (gradient && tsri_unary_saves_output(fn)) { /* v is then a result */
        fc_tensor y = inputs();
        assert_true(fc_run(&tsri_kernels_cpu_ref, TSRI_OP_UNARY, &at, 0, 1, (fc_tensor *[]){&x}, 1,
                           (fc_tensor *[]){&y}));
        fc_free(1, (fc_tensor *[]){&x});
        x = y;
    }
    fc_tensor u = fc_rows(TSR_F32, 1, x.n, 0, 0, 0);
    fc_tensor wx = widened(&x), wu = widened(&u);
    fc_tensor y = fc_rows(TSR_F32, 1, x.n, 0, 0, 0), want = fc_rows(TSR_F64, 1, x.n, 0, 0, 0);
    setenv("TESSERA_CPU_ISA", isa, 1);
    assert_true(fc_run(&tsri_kernels_cpu_fast, op, &at, 0, 1 + gradient, (fc_tensor *[]){&x, &u}, 1,
                       (fc_tensor *[]){&y}));
    assert_true(fc_run(&tsri_kernels_cpu_ref, op, &at, 0, 1 + gradient, (fc_tensor *[]){&wx, &wu},
                       1, (fc_tensor *[]){&want}));
    for (int64_t i = 0; i < x.n; i++) {
        const double v = ((double *)wx.data)[i], more = fn == TSRI_UNARY_POW ? a : 1;
        const double by = gradient ? ((double *)wu.data)[i] * more : 1;
        const double w = ((double *)want.data)[i];
        const double tol =
            relative(fn, v) * fabs(w) + cancelled(fn, gradient, v) * fabs(by) + 1e-36;
        if (!is_near(((float *)y.data)[i], w, by, tol))
            fail_msg("%s %s %g%s at %.9g: %.9g, not %.9g", isa, tsri_unary_name(fn), a,
                     gradient ? "'s gradient" : "", v, (double)((float *)y.data)[i], w);
    }
    fc_free(6, (fc_tensor *[]){&x, &u, &wx, &wu, &y, &want});
}

static void test_vectors(void **state)
{
    (void)state;
    for (int fn = 0; fn < TSRI_UNARY_COUNT_; fn++)
        for (int i = 0; i < 6; i++)
            check(isas[i / 2], (tsri_unary_fn)fn, 1.5, i % 2);
}

/* Exponents that few operations make, and those that no float is. */
static void test_powers(void **state)
{
    (void)state;
    static const double exponents[] = {0, 1,  2,   3,   -1,    -2,   0.5,    -0.5,   4,
                                       7, -3, 2.7, 0.1, -1e-9, -0.7, 1000.1, 8388607};
    for (size_t k = 0; k < sizeof exponents / sizeof exponents[0]; k++)
        for (int i = 0; i < 6; i++)
            check(isas[i / 2], TSRI_UNARY_POW, exponents[k], i % 2);
    const tsri_attrs large = {.unary = {.a = 16777217, .fn = TSRI_UNARY_POW}};
    fc_tensor x = inputs(), y = inputs();
    assert_false(fc_run(&tsri_kernels_cpu_fast, TSRI_OP_UNARY, &large, 0, 1, (fc_tensor *[]){&x}, 1,
                        (fc_tensor *[]){&y}));
    fc_free(2, (fc_tensor *[]){&x, &y});
}

/* Returns how far a vector's result may be from the reference: 4 units in the last place for pow
 * and atan2; 0 for functions of one rounding, and for rests, which are exact. */
static double binary_tolerance(tsri_binary_fn fn, double want)
{
    return fn == TSRI_BINARY_POW || fn == TSRI_BINARY_ATAN2 ? 5e-7 * fabs(want) + 1e-36 : 0;
}

/* Any NaN is as good as another. */
static void test_binary(void **state)
{
    (void)state;
    fc_tensor x = inputs(), u = inputs(), y = inputs(), want = inputs();
    float *pu = u.data, *py = y.data, *pwant = want.data;
    int taken = 0;
    for (int64_t i = 0; i < u.n; i++) /* 1231 has no factor of u.n: every element is met */
        pu[i] = ((float *)x.data)[i * 1231 % u.n];
    for (int i = 0; i < 3 * TSRI_BINARY_COUNT_; i++) {
        const tsri_binary_fn fn = (tsri_binary_fn)(i / 3);
        const tsri_attrs at = {.binary = {.fn = fn}};
        setenv("TESSERA_CPU_ISA", isas[i % 3], 1);
        if (!fc_run(&tsri_kernels_cpu_fast, TSRI_OP_BINARY, &at, 0, 2, (fc_tensor *[]){&x, &u}, 1,
                    (fc_tensor *[]){&y}))
            continue;
        taken++;
        assert_true(fc_run(&tsri_kernels_cpu_ref, TSRI_OP_BINARY, &at, 0, 2,
                           (fc_tensor *[]){&x, &u}, 1, (fc_tensor *[]){&want}));
        for (int64_t k = 0; k < y.n; k++)
            if (!is_near(py[k], (double)pwant[k], 1, binary_tolerance(fn, (double)pwant[k])))
                fail_msg("%s %s of %.9g and %.9g: %.9g, not %.9g", isas[i % 3],
                         tsri_binary_name(fn), (double)((float *)x.data)[k], (double)pu[k],
                         (double)py[k], (double)pwant[k]);
    }
    assert_int_equal(taken, 3 * 12); /* comparisons are left to the reference */
    fc_free(4, (fc_tensor *[]){&x, &u, &y, &want});
}

/* Operands with axes of one element, on either side. */
static void test_broadcast(void **state)
{
    (void)state;
    static const int64_t small[][3] = {{1, 6, 1},  {1, 1, 37}, {1, 1, 1},
                                       {4, 1, 37}, {4, 1, 1},  {1, 6, 37}};
    int taken = 0;
    for (int i = 0; i < 3 * 6 * 2 * TSRI_BINARY_COUNT_; i++) {
        const tsri_attrs at = {.binary = {.fn = (tsri_binary_fn)(i / 36)}};
        const int64_t *dims = small[i / 6 % 6];
        fc_tensor x = fc_rows(TSR_F32, 3, 4, 6, 37, 0), y = fc_rows(TSR_F32, 3, 4, 6, 37, 0);
        fc_tensor want = fc_rows(TSR_F32, 3, 4, 6, 37, 0);
        fc_tensor u = fc_rows(TSR_F32, 3, dims[0], dims[1], dims[2], 0);
        fc_tensor *in[2] = {i % 2 ? &x : &u, i % 2 ? &u : &x};
        setenv("TESSERA_CPU_ISA", isas[i / 2 % 3], 1);
        if (fc_run(&tsri_kernels_cpu_fast, TSRI_OP_BINARY, &at, 0, 2, in, 1, (fc_tensor *[]){&y})) {
            taken++;
            assert_true(fc_run(&tsri_kernels_cpu_ref, TSRI_OP_BINARY, &at, 0, 2, in, 1,
                               (fc_tensor *[]){&want}));
            for (int64_t k = 0; k < y.n; k++) {
                const double w = (double)((float *)want.data)[k];
                assert_true(is_near(((float *)y.data)[k], w, 1, binary_tolerance(at.binary.fn, w)));
            }
        }
        fc_free(4, (fc_tensor *[]){&x, &y, &want, &u});
    }
    assert_int_equal(taken, 3 * 6 * 2 * 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors),
                                       cmocka_unit_test(test_powers), cmocka_unit_test(test_binary),
                                       cmocka_unit_test(test_broadcast)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
