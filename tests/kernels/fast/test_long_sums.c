/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of many f32 terms: DESIGN, section 6, wants them in blocks or in f64. All terms are the same
 * number, so that what each addition rounds off has one sign and the errors of a naive sum add up;
 * what is right is then a product. The bound is what blocks of a few hundred terms may come to,
 * whatever the length of the sum: 256 terms that each lose up to half of 2^-24.
 */
#include "tests/kernels/fast/fast_case.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
/* clang-format on */

extern const tsri_kernels tsri_kernels_cpu_ref;

static const char *const isas[] = {"base", "avx2", "avx512"};
enum { THREADS = 2 };
static const double bound = 0x1p-17;

static fc_tensor all(fc_tensor t, float v)
{
    for (int64_t i = 0; i < t.n; i++)
        ((float *)t.data)[i] = v;
    return t;
}

static void close_to(const char *what, const fc_tensor *t, int64_t at, double want)
{
    const double got = (double)((const float *)t->data)[at];
    if (!(fabs(got - want) <= bound * fabs(want)))
        fail_msg("%s: element %d is %.9g and should be %.9g: %.2g", what, (int)at, got, want,
                 fabs(got / want - 1));
}

/* Runs `test` with all kernels, of every instruction set that this machine has. */
static void with_all(void (*test)(const tsri_kernels *, int *ran))
{
    int ran = 0;
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++)
        for (int threads = 1; threads <= THREADS; threads++) {
            setenv("TESSERA_CPU_ISA", isas[i], 1);
            omp_set_num_threads(threads);
            test(&tsri_kernels_cpu_fast, &ran);
        }
    assert_true(ran > 0);
    omp_set_num_threads(1);
    test(&tsri_kernels_cpu_ref, &ran);
}

/* --- gradients of filters: a term for each pixel of each image -------------------------------- */

typedef struct filter {
    const char *name;
    int64_t n, ci, co, h, w, groups;
    int kernel, stride, pad, dilation;
} filter;

static const filter filters[] = {
    {"depthwise 3x3", 2, 3, 3, 300, 200, 3, 3, 1, 1, 1},
    {"depthwise 3x3, one row", 1, 17, 17, 3, 30000, 17, 3, 1, 1, 1},
    {"depthwise 3x3, stride 2", 1, 3, 3, 401, 399, 3, 3, 2, 1, 1},
    {"depthwise 3x3, stride 2, one row", 1, 3, 3, 3, 60000, 3, 3, 2, 1, 1},
    {"depthwise 3x3, dilation 2", 1, 3, 3, 300, 200, 3, 3, 1, 2, 2},
    {"depthwise 5x5", 1, 3, 3, 300, 200, 3, 5, 1, 2, 1},
    {"dense 3x3", 2, 16, 16, 300, 200, 1, 3, 1, 1, 1},
    {"dense 5x5, few channels", 3, 3, 6, 400, 300, 1, 5, 1, 2, 1},
    {"dense 1x1", 2, 5, 7, 700, 300, 1, 1, 1, 0, 1},
};

static int64_t reach(int64_t in, const filter *f)
{
    return (in + 2 * f->pad - f->dilation * (f->kernel - 1) - 1) / f->stride + 1;
}

/* Output positions whose tap k reads inside the image. */
static int64_t inside(int64_t in, const filter *f, int k)
{
    int64_t n = 0;
    for (int64_t o = 0; o < reach(in, f); o++) {
        const int64_t i = o * f->stride - f->pad + k * f->dilation;
        n += i >= 0 && i < in;
    }
    return n;
}

static void one_filter(const tsri_kernels *impl, const filter *f, int *ran)
{
    tsri_attrs at = {.conv = {.stride = {f->stride, f->stride},
                              .pad = {f->pad, f->pad},
                              .dilation = {f->dilation, f->dilation},
                              .kernel = {f->kernel, f->kernel},
                              .groups = f->groups}};
    const float a = 0.7f, b = 0.3f;
    fc_tensor x = all(fc_images(f->n, f->ci, f->h, f->w), a);
    fc_tensor dy = all(fc_images(f->n, f->co, reach(f->h, f), reach(f->w, f)), b);
    fc_tensor dw = fc_rows(TSR_F32, 4, f->co, f->ci / f->groups, f->kernel, f->kernel);
    const int taps = f->kernel * f->kernel;
    if (fc_run(impl, TSRI_OP_CONV2D_DW, &at, f->groups, 2, (fc_tensor *[]){&x, &dy}, 1,
               (fc_tensor *[]){&dw})) {
        for (int64_t i = 0; i < dw.n; i++) {
            const int k = (int)(i % taps);
            close_to(f->name, &dw, i,
                     (double)a * (double)b * (double)f->n * (double)inside(f->h, f, k / f->kernel) *
                         (double)inside(f->w, f, k % f->kernel));
        }
        ++*ran;
    }
    fc_free(3, (fc_tensor *[]){&x, &dy, &dw});
}

static void all_filters(const tsri_kernels *impl, int *ran)
{
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
        one_filter(impl, &filters[i], ran);
}

static void test_filters(void **state)
{
    (void)state;
    with_all(all_filters);
}

/* --- products --------------------------------------------------------------------------------- */

/* c[m, n] = a b with k terms: neither transposed, a, b. */
static void all_products(const tsri_kernels *impl, int *ran)
{
    enum { M = 3, N = 18, K = 1000003 };
    for (int form = 0; form < 3; form++) {
        const int ta = form == 1, tb = form == 2;
        tsri_attrs at = {.matmul = {.ta = ta, .tb = tb}};
        fc_tensor a = all(fc_rows(TSR_F32, 2, ta ? K : M, ta ? M : K, 0, 0), 0.7f);
        fc_tensor b = all(fc_rows(TSR_F32, 2, tb ? N : K, tb ? K : N, 0, 0), 0.3f);
        fc_tensor c = fc_rows(TSR_F32, 2, M, N, 0, 0);
        if (fc_run(impl, TSRI_OP_MATMUL, &at, 0, 2, (fc_tensor *[]){&a, &b}, 1,
                   (fc_tensor *[]){&c})) {
            close_to(form == 0 ? "a b"
                     : ta      ? "a' b"
                               : "a b'",
                     &c, M * N - 1, (double)0.7f * (double)0.3f * K);
            ++*ran;
        }
        fc_free(3, (fc_tensor *[]){&a, &b, &c});
    }
}

static void test_products(void **state)
{
    (void)state;
    with_all(all_products);
}

/* --- means, softmax, normalisation ------------------------------------------------------------ */

static void all_means(const tsri_kernels *impl, int *ran)
{
    static const int64_t side[] = {32, 300};
    for (int i = 0; i < 2; i++) {
        tsri_attrs at = {0};
        fc_tensor x = all(fc_images(2, 19, side[i], side[i]), 0.7f), y = fc_images(2, 19, 1, 1);
        if (fc_run(impl, TSRI_OP_ADAPTIVE_POOL, &at, 0, 1, (fc_tensor *[]){&x}, 1,
                   (fc_tensor *[]){&y})) {
            close_to("mean", &y, y.n - 1, (double)0.7f);
            ++*ran;
        }
        fc_free(2, (fc_tensor *[]){&x, &y});
    }
}

static void all_softmaxes(const tsri_kernels *impl, int *ran)
{
    enum { N = 1000003 };
    tsri_attrs at = {.softmax = {.axis = 1}};
    fc_tensor x = all(fc_rows(TSR_F32, 2, 1, N, 0, 0), 0.7f), y = fc_rows(TSR_F32, 2, 1, N, 0, 0);
    if (fc_run(impl, TSRI_OP_SOFTMAX, &at, 0, 1, (fc_tensor *[]){&x}, 1, (fc_tensor *[]){&y})) {
        close_to("softmax", &y, N - 1, 1.0 / N);
        ++*ran;
    }
    fc_free(2, (fc_tensor *[]){&x, &y});
}

/* Gradients of gamma and beta: xhat is 1 where x is 3, the mean 2 and the variance 1. */
static void all_norms(const tsri_kernels *impl, int *ran)
{
    enum { ROWS = 500009, F = 5 };
    tsri_attrs at = {.ln = {.eps = 0, .count = F, .axes = 1, .has_gamma = 1, .has_beta = 1}};
    fc_tensor x = all(fc_rows(TSR_F32, 2, ROWS, F, 0, 0), 3), stats;
    fc_tensor dy = all(fc_rows(TSR_F32, 2, ROWS, F, 0, 0), 0.7f);
    fc_tensor dgamma = fc_rows(TSR_F32, 1, F, 0, 0, 0), dbeta = fc_rows(TSR_F32, 1, F, 0, 0, 0);
    stats = fc_rows(TSR_F64, 2, ROWS, 2, 0, 0);
    for (int64_t i = 0; i < stats.n; i++)
        ((double *)stats.data)[i] = i % 2 ? 5.0 * F : 2.0 * F;
    if (fc_run(impl, TSRI_OP_LN_PARAM_GRAD, &at, 0, 3, (fc_tensor *[]){&x, &stats, &dy}, 2,
               (fc_tensor *[]){&dgamma, &dbeta})) {
        close_to("dgamma", &dgamma, F - 1, (double)0.7f * ROWS);
        close_to("dbeta", &dbeta, F - 1, (double)0.7f * ROWS);
        ++*ran;
    }
    fc_free(5, (fc_tensor *[]){&x, &stats, &dy, &dgamma, &dbeta});
}

static void test_rows(void **state)
{
    (void)state;
    with_all(all_means);
    with_all(all_softmaxes);
    with_all(all_norms);
}

/* --- the variance of f32 data far from zero --------------------------------------------------- */

/* Sums of x and x^2 as f64 hold them lose some 2^-53 of the square of the mean, here a million
 * deviations: less than the 2^-24 of the mean that f32 data is rounded to. A sum of squares that
 * is rounded at every term loses a hundred times as much. */
static void all_statistics(const tsri_kernels *impl, int *ran)
{
    enum { N = 300, C = 16, HW = 32, ROWS = N * HW * HW };
    const double level = 1e6;
    tsri_attrs at = {.bn = {.batch = N, .spatial = HW * HW, .parts = 1}};
    fc_tensor x = fc_images(N, C, HW, HW), stats = fc_rows(TSR_F64, 3, 1, 2, C, 0);
    double mean[C] = {0}, var[C] = {0};
    float *p = x.data;
    for (int64_t i = 0; i < x.n; i++) {
        p[i] = (float)(level + 2 * (double)p[i]);
        mean[i % C] += ((double)p[i] - level) / ROWS;
    }
    for (int64_t i = 0; i < x.n; i++) {
        const double d = (double)p[i] - level - mean[i % C];
        var[i % C] += d * d / ROWS;
    }
    if (fc_run(impl, TSRI_OP_BN_STATS, &at, 0, 1, (fc_tensor *[]){&x}, 1,
               (fc_tensor *[]){&stats})) {
        const double *s = stats.data;
        for (int c = 0; c < C; c++) {
            const double m = s[c] / ROWS, got = s[C + c] / ROWS - m * m;
            if (!(fabs(got - var[c]) <= 5 * 0x1p-53 * level * level))
                fail_msg("variance %d is %.9g and should be %.9g", c, got, var[c]);
        }
        ++*ran;
    }
    fc_free(2, (fc_tensor *[]){&x, &stats});
}

static void test_statistics(void **state)
{
    (void)state;
    with_all(all_statistics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_filters),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_statistics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
