/* SPDX-License-Identifier: Apache-2.0 */
/* The fast kernels on shapes with tails and edges, of every instruction set that this
 * machine has, against plain loops in double. */
#include "tests/kernels/fast/fast_case.h"

#include <tessera/sbp.h>

#include "src/core/rng.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
/* clang-format on */

static const char *const isas[] = {"base", "avx2", "avx512"};

static double gelu(bool by_tanh, bool slope, double x)
{
    const double c = sqrt(2 / acos(-1)), u = c * (x + 0.044715 * x * x * x);
    const double gate = by_tanh ? 1 / (1 + exp(-2 * u)) : erfc(-x / sqrt(2)) / 2;
    const double tilt =
        by_tanh ? 2 * gate * (1 - gate) * c * (1 + 3 * 0.044715 * x * x) : c / 2 * exp(-x * x / 2);
    return slope ? gate + x * tilt : x * gate;
}

/* Each element to a few units of its own last place, also where the normal distribution ends. */
static void test_gelu(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        setenv("TESSERA_CPU_ISA", isas[i / 4], 1);
        omp_set_num_threads(1);
        const bool by_tanh = i & 1, slope = i >> 1 & 1;
        tsri_attrs at = {.unary = {.fn = by_tanh ? TSRI_UNARY_GELU_TANH : TSRI_UNARY_GELU}};
        fc_tensor x = fc_rows(TSR_F32, 1, 4099, 0, 0, 0), y = fc_rows(TSR_F32, 1, 4099, 0, 0, 0);
        fc_tensor dy = fc_rows(TSR_F32, 1, 4099, 0, 0, 0);
        float *px = x.data, *py = y.data, *pdy = dy.data;
        for (int64_t k = 0; k < x.n; k++)
            px[k] = k == 0 ? 1e30f : k == 1 ? -1e15f : (float)(k - 2049) * (10.0f / 2049);
        assert_true(fc_run(&tsri_kernels_cpu_fast, slope ? TSRI_OP_UNARY_GRAD : TSRI_OP_UNARY, &at,
                           0, 1 + slope, (fc_tensor *[]){&x, &dy}, 1, (fc_tensor *[]){&y}));
        for (int64_t k = 0; k < x.n; k++) {
            const double v = (double)px[k];
            const double want = gelu(by_tanh, slope, v) * (slope ? (double)pdy[k] : 1);
            /* e^z multiplies z's own rounding; a slope's two terms cancel where it is 0. */
            const double tol = 1e-6 * (1 + (v < 0 && v > -100 ? fabs(v * v * (1 + fabs(v))) : 0));
            if (!(fabs((double)py[k] - want) <= tol * fabs(want) + (slope ? 2e-7 : 1e-37)))
                fail_msg("%s %s %d at %.9g: %.9g, not %.9g", isas[i / 4],
                         by_tanh ? "gelu_tanh" : "gelu", slope, v, (double)py[k], want);
        }
        fc_free(3, (fc_tensor *[]){&x, &y, &dy});
    }
}

typedef struct norm_shape {
    int64_t n, c, h, w;
    double level; /* the mean; 1 is the deviation's size */
} norm_shape;

static const norm_shape norms[] = {
    {1, 1, 1, 2, 0},      {2, 24, 5, 7, 3},      {3, 3, 9, 9, -2},
    {1, 17, 4, 4, 0},     {64, 40, 1, 1, 1},     {64, 160, 2, 2, 0},
    {5, 24, 16, 16, 100}, {16, 24, 17, 19, 0.1}, {5, 24, 16, 16, -1e4},
};
static const double norm_eps = 1e-3;

/* What is wanted, from x alone: means first, then variances, in double. */
typedef struct norm_want {
    double *mean, *rstd, *y;
    double *sums, *mass; /* [2][c]: of dy and dy xhat, and of their sizes */
    double *dx;
    double gain; /* the largest factor of dy: terms of dx are of this size, and may cancel */
} norm_want;

static double *zeros(int64_t n)
{
    double *p = calloc((size_t)n, sizeof *p);
    assert_non_null(p);
    return p;
}

static void want_moments(const norm_shape *s, const fc_tensor *x, norm_want *v)
{
    const double rows = (double)(s->n * s->h * s->w);
    const float *p = x->data;
    v->mean = zeros(s->c);
    v->rstd = zeros(s->c);
    for (int64_t i = 0; i < x->n; i++)
        v->mean[i % s->c] += (double)p[i] / rows;
    for (int64_t i = 0; i < x->n; i++) {
        const double d = (double)p[i] - v->mean[i % s->c];
        v->rstd[i % s->c] += d * d / rows;
    }
    for (int64_t c = 0; c < s->c; c++)
        v->rstd[c] = 1 / sqrt(v->rstd[c] + norm_eps);
}

static double xhat_of(const norm_shape *s, const fc_tensor *x, const norm_want *v, int64_t i)
{
    return ((double)((const float *)x->data)[i] - v->mean[i % s->c]) * v->rstd[i % s->c];
}

/* Results by the formulas of op_list.h. With an activation dy becomes 0 where z is so near a kink
 * that rounding may put it on either side. */
static norm_want want_norm(const norm_shape *s, bool act, const fc_tensor *x, const float *gamma,
                           const float *beta, float *dy)
{
    const double rows = (double)(s->n * s->h * s->w);
    norm_want v = {.y = zeros(x->n), .dx = zeros(x->n)};
    v.sums = zeros(2 * s->c);
    v.mass = zeros(2 * s->c);
    want_moments(s, x, &v);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < x->n; i++) {
            const int64_t c = i % s->c;
            const double xhat = xhat_of(s, x, &v, i), scale = (double)gamma[c] * v.rstd[c];
            const double z = xhat * (double)gamma[c] + (double)beta[c];
            if (act && (fabs(z) < 1e-4 || fabs(z - 6) < 1e-4))
                dy[i] = 0;
            const double g = act && !(z > 0 && z < 6) ? 0 : (double)dy[i];
            if (pass) {
                v.dx[i] = scale * (g - v.sums[c] / rows - xhat * v.sums[s->c + c] / rows);
                continue;
            }
            v.y[i] = act ? fmin(fmax(z, 0), 6) : z;
            v.gain = fmax(v.gain, fabs(scale));
            v.sums[c] += g;
            v.sums[s->c + c] += g * xhat;
            v.mass[c] += fabs(g);
            v.mass[s->c + c] += fabs(g * xhat);
        }
    return v;
}

/* f64 sums of up to some thousand terms, with a rounding of 2^-53 each. */
static void check_stats(const norm_shape *s, const fc_tensor *x, const double *stats)
{
    const float *p = x->data;
    for (int64_t c = 0; c < s->c; c++) {
        long double s0 = 0, s1 = 0, size = 0;
        for (int64_t i = c; i < x->n; i += s->c) {
            s0 += (long double)p[i];
            s1 += (long double)p[i] * (long double)p[i];
            size += fabsl((long double)p[i]);
        }
        assert_true(fabs(stats[c] - (double)s0) <= 1e-13 * (double)size);
        assert_true(fabs(stats[s->c + c] - (double)s1) <= 1e-13 * (double)s1);
    }
}

/* Eight rows are summed in f32, of terms that have three roundings: 11 times 2^-24 of each. */
static void sums_close(const norm_shape *s, const double *got, const norm_want *v)
{
    for (int64_t i = 0; i < 2 * s->c; i++)
        if (!(fabs(got[i] - v->sums[i]) <= 7e-7 * v->mass[i] + 1e-30))
            fail_msg("bn_bwd_stats: sum %ld is %.9g, not %.9g", (long)i, got[i], v->sums[i]);
}

static void one_norm(const norm_shape *s, bool act)
{
    tsri_attrs at = {.bn = {.eps = norm_eps,
                            .count = s->n * s->h * s->w,
                            .batch = s->n,
                            .spatial = s->h * s->w,
                            .parts = 1,
                            .act = act ? TSRI_ACT_RELU6 : TSRI_ACT_NONE}};
    const tsri_kernels *f = &tsri_kernels_cpu_fast;
    fc_tensor x = fc_images(s->n, s->c, s->h, s->w), y = fc_images(s->n, s->c, s->h, s->w);
    fc_tensor dy = fc_images(s->n, s->c, s->h, s->w), dx = fc_images(s->n, s->c, s->h, s->w);
    fc_tensor st = fc_rows(TSR_F64, 3, 1, 2, s->c, 0), bst = fc_rows(TSR_F64, 3, 1, 2, s->c, 0);
    fc_tensor ga = fc_rows(TSR_F32, 1, s->c, 0, 0, 0), be = fc_rows(TSR_F32, 1, s->c, 0, 0, 0);
    for (int64_t i = 0; i < x.n; i++)
        ((float *)x.data)[i] += (float)s->level;
    for (int64_t i = 0; i < s->c; i++) { /* so that both kinks are met */
        ((float *)ga.data)[i] = 4 * ((float *)ga.data)[i] + 2;
        ((float *)be.data)[i] = ((float *)be.data)[i] + 3;
    }
    norm_want v = want_norm(s, act, &x, ga.data, be.data, dy.data);
    assert_true(
        fc_run(f, TSRI_OP_BN_STATS, &at, 0, 1, (fc_tensor *[]){&x}, 1, (fc_tensor *[]){&st}));
    check_stats(s, &x, st.data);
    assert_true(fc_run(f, act ? TSRI_OP_BN_ACT : TSRI_OP_BN_APPLY, &at, 0, 4,
                       (fc_tensor *[]){&x, &st, &ga, &be}, 1, (fc_tensor *[]){&y}));
    /* Four roundings of 2^-24, of values below 6 sqrt(3) + 4, at any level. */
    fc_close_within("bn_apply", y.data, v.y, y.n, 3e-7, 15);
    if (act) {
        fc_tensor *in[] = {&x, &st, &ga, &be, &dy, &bst};
        assert_true(fc_run(f, TSRI_OP_BN_ACT_BWD_STATS, &at, 0, 5, in, 1, (fc_tensor *[]){&bst}));
        assert_true(fc_run(f, TSRI_OP_BN_ACT_BWD_APPLY, &at, 0, 6, in, 1, (fc_tensor *[]){&dx}));
    } else {
        fc_tensor *in[] = {&x, &st, &ga, &dy, &bst}, *sums[] = {&x, &st, &dy};
        assert_true(fc_run(f, TSRI_OP_BN_BWD_STATS, &at, 0, 3, sums, 1, (fc_tensor *[]){&bst}));
        assert_true(fc_run(f, TSRI_OP_BN_BWD_APPLY, &at, 0, 5, in, 1, (fc_tensor *[]){&dx}));
    }
    sums_close(s, bst.data, &v);
    /* Three terms of the size of the gain, of which one has the error of the sums. */
    fc_close_within("bn_bwd_apply", dx.data, v.dx, dx.n, 1e-6, v.gain);
    fc_free(8, (fc_tensor *[]){&x, &y, &dy, &dx, &st, &bst, &ga, &be});
    double *own[] = {v.mean, v.rstd, v.y, v.sums, v.mass, v.dx};
    for (int i = 0; i < 6; i++)
        free(own[i]);
}

static void test_norm(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++)
        for (int threads = 1; threads <= 3; threads += 2) {
            setenv("TESSERA_CPU_ISA", isas[i], 1);
            omp_set_num_threads(threads);
            for (size_t k = 0; k < sizeof norms / sizeof norms[0]; k++) {
                one_norm(&norms[k], false);
                one_norm(&norms[k], true);
            }
        }
}

/* With a gamma of 1 and dy of 1, what BN_ACT_BWD_STATS sums is the number of elements that BN_ACT
 * left strictly inside: they must agree exactly, also where y rounds to a kink. */
static void test_masks_agree(void **state)
{
    (void)state;
    enum { N = 40, C = 24, HW = 7 };
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        setenv("TESSERA_CPU_ISA", isas[i], 1);
        omp_set_num_threads(2);
        tsri_attrs at = {.bn = {.eps = 0,
                                .count = N * HW * HW,
                                .batch = N,
                                .spatial = HW * HW,
                                .parts = 1,
                                .act = TSRI_ACT_RELU6}};
        fc_tensor x = fc_images(N, C, HW, HW), y = fc_images(N, C, HW, HW);
        fc_tensor dy = fc_images(N, C, HW, HW);
        fc_tensor st = fc_rows(TSR_F64, 3, 1, 2, C, 0), bst = fc_rows(TSR_F64, 3, 1, 2, C, 0);
        fc_tensor ga = fc_rows(TSR_F32, 1, C, 0, 0, 0), be = fc_rows(TSR_F32, 1, C, 0, 0, 0);
        float *px = x.data;
        for (int64_t k = 0; k < x.n; k++) {
            ((float *)dy.data)[k] = 1;
            px[k] = (float)(k / C % 5) * 0.3f; /* few values: many lie where y is 0 or 6 */
        }
        for (int c = 0; c < C; c++) { /* mean 0.6, variance 1: y = x - 0.6 + beta or so */
            ((double *)st.data)[c] = 0.6f * (double)(N * HW * HW);
            ((double *)st.data)[C + c] = (1 + 0.6f * (double)0.6f) * (double)(N * HW * HW);
            ((float *)ga.data)[c] = c % 3 ? 1.0f : 10.0f / 3;
            ((float *)be.data)[c] = c % 2 ? 0.0f : 5.7f;
        }
        fc_tensor *in[] = {&x, &st, &ga, &be, &dy};
        assert_true(
            fc_run(&tsri_kernels_cpu_fast, TSRI_OP_BN_ACT, &at, 0, 4, in, 1, (fc_tensor *[]){&y}));
        assert_true(fc_run(&tsri_kernels_cpu_fast, TSRI_OP_BN_ACT_BWD_STATS, &at, 0, 5, in, 1,
                           (fc_tensor *[]){&bst}));
        for (int c = 0; c < C; c++) {
            double inside = 0;
            for (int64_t k = c; k < y.n; k += C)
                inside += ((float *)y.data)[k] > 0 && ((float *)y.data)[k] < 6;
            assert_true(inside > 0 && inside < N * HW * HW);
            assert_true(((double *)bst.data)[c] == inside);
        }
        fc_free(7, (fc_tensor *[]){&x, &y, &dy, &st, &bst, &ga, &be});
    }
}

static void test_dropout_mask(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        setenv("TESSERA_CPU_ISA", isas[i], 1);
        omp_set_num_threads(2);
        tsri_attrs at = {.dropout = {.key = 0x123456789abcdefu, .p = 0.3}};
        fc_tensor x = fc_rows(TSR_F32, 2, 333, 68, 0, 0), y = fc_rows(TSR_F32, 2, 333, 68, 0, 0);
        fc_tensor step = fc_rows(TSR_I64, 0, 0, 0, 0, 0);
        *(int64_t *)step.data = ((int64_t)1 << 33) + 5;
        for (int k = 0; k < 2; k++) {
            fc_tensor *t = k ? &y : &x;
            t->arg.gshape[0] = (int64_t)1 << 33;
            t->arg.offset[0] = ((int64_t)1 << 32) + 7; /* blocks beyond 32 bits */
        }
        assert_true(fc_run(&tsri_kernels_cpu_fast, TSRI_OP_DROPOUT, &at, 0, 2,
                           (fc_tensor *[]){&x, &step}, 1, (fc_tensor *[]){&y}));
        uint64_t begin = (uint64_t)x.arg.offset[0] * 68;
        for (int64_t k = 0; k < x.n; k++) {
            bool keep = tsri_rng_uniform(at.dropout.key, *(uint64_t *)step.data,
                                         begin + (uint64_t)k) >= 0.3;
            double want = keep ? (double)((float *)x.data)[k] / 0.7 : 0;
            assert_true(fabs((double)((float *)y.data)[k] - want) <= 1e-6 * fabs(want));
        }
        fc_free(3, (fc_tensor *[]){&x, &y, &step});
    }
}

/* What a reduction of x[outer][n][inner] makes; a NaN stays. */
static double reduced(int op, const float *x, const int64_t *s, int64_t at)
{
    const float *first = x + at / s[2] * s[1] * s[2] + at % s[2];
    double all = op == TSR_REDUCE_SUM ? 0 : op == TSR_REDUCE_PRODUCT ? 1 : (double)first[0];
    for (int64_t i = 0; i < s[1]; i++) {
        const double v = (double)first[i * s[2]];
        if (op == TSR_REDUCE_SUM)
            all += v;
        else if (op == TSR_REDUCE_PRODUCT)
            all *= v;
        else if (v != v || (op == TSR_REDUCE_MAX ? v > all : v < all))
            all = all != all ? all : v;
    }
    return op == TSR_REDUCE_SUM ? 0.5 * all : all;
}

/* Rows and columns with tails, few and many, cut by threads in each of the three ways, and rows of
 * one; a NaN anywhere is the result's. Sums and products are f64 until they are stored. */
static void test_reduce(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 2, 1},     {3, 5, 1},     {7, 33, 1},    {2, 40003, 1},
                                        {5000, 10, 1}, {1, 70001, 1}, {1, 3, 2},     {2, 9, 17},
                                        {1, 300, 333}, {3, 5000, 3},  {40, 70, 21},  {1, 2, 90001},
                                        {5, 1, 30},    {9, 271, 1},   {17, 1000, 1}, {1, 9001, 10},
                                        {2, 700, 31},  {20, 64, 50},  {41, 16, 1},   {1, 40, 200}};
    static const int ops[] = {TSR_REDUCE_SUM, TSR_REDUCE_MAX, TSR_REDUCE_MIN, TSR_REDUCE_PRODUCT};
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    for (int i = 0; i < 3 * 4 * 2 * SHAPES; i++) {
        const int64_t *s = shapes[i / 24];
        const bool has_nan = i / 12 % 2;
        tsri_attrs at = {.reduce = {.op = ops[i / 3 % 4], .axes = 2, .scale = 0.5}};
        const bool product = at.reduce.op == TSR_REDUCE_PRODUCT;
        setenv("TESSERA_CPU_ISA", isas[i % 3], 1);
        omp_set_num_threads(1 + i % 2 * 2);
        fc_tensor x = fc_rows(TSR_F32, 3, s[0], s[1], s[2], 0);
        fc_tensor y = fc_rows(TSR_F32, 2, s[0], s[2], 0, 0);
        for (int64_t k = 0; k < x.n && product; k++) /* near 1, of both signs */
            ((float *)x.data)[k] = (k % 5 ? 1 : -1) + 0.125f * ((float *)x.data)[k];
        for (int k = 0; k < 3 && has_nan; k++)
            ((float *)x.data)[tsri_rng_word(5, (uint64_t)i, (uint64_t)k) % x.n] =
                k ? NAN : INFINITY;
        assert_true(fc_run(&tsri_kernels_cpu_fast, product ? TSRI_OP_PROD : TSRI_OP_REDUCE, &at, 0,
                           1, (fc_tensor *[]){&x}, 1, (fc_tensor *[]){&y}));
        for (int64_t e = 0; e < y.n; e++) {
            const double want = (double)(float)reduced(at.reduce.op, x.data, s, e);
            const double got = (double)((float *)y.data)[e];
            const bool rounds = at.reduce.op == TSR_REDUCE_SUM || product;
            const double slack = rounds ? 1.5e-7 * fabs(want) + (product ? 1e-44 : 1e-9) : 0;
            assert_true(isnan(want) ? isnan(got) : got == want || fabs(got - want) <= slack);
        }
        fc_free(2, (fc_tensor *[]){&x, &y});
    }
}

/* One attention or its gradient: q, k, v, the mask, y, lse and dy, then what the fast kernel and
 * the reference make of them. lse comes from a forward run of the reference, as does y. */
static void one_attention(const int64_t *n, bool causal, int mask)
{
    const tsri_attrs at = {.attention = {.scale = 0.4, .causal = causal, .has_mask = mask >= 0}};
    const int has = mask >= 0;
    fc_tensor t[7] = {fc_rows(TSR_F32, 4, n[0], n[1], n[2], n[4]),
                      fc_rows(TSR_F32, 4, n[0], n[1], n[3], n[4]),
                      fc_rows(TSR_F32, 4, n[0], n[1], n[3], n[5]),
                      fc_rows(TSR_F32, 4, mask & 1 ? n[0] : 1, mask & 2 ? n[1] : 1,
                              mask & 4 ? n[2] : 1, mask & 8 ? n[3] : 1),
                      fc_rows(TSR_F32, 4, n[0], n[1], n[2], n[5]),
                      fc_rows(TSR_F64, 3, n[0], n[1], n[2], 0),
                      fc_rows(TSR_F32, 4, n[0], n[1], n[2], n[5])};
    fc_tensor y = fc_rows(TSR_F32, 4, n[0], n[1], n[2], n[5]);
    fc_tensor lse = fc_rows(TSR_F64, 3, n[0], n[1], n[2], 0), got[3], want[3];
    fc_tensor *in[7] = {&t[0], &t[1], &t[2]};
    if (has)
        in[3] = &t[3];
    for (int i = 0; i < 3; i++) {
        got[i] = fc_rows(TSR_F32, 4, n[0], n[1], n[2 + !!i], n[4 + (i == 2)]);
        want[i] = fc_rows(TSR_F32, 4, n[0], n[1], n[2 + !!i], n[4 + (i == 2)]);
    }
    for (int i = 0; i < 3; i++)
        in[3 + has + i] = &t[4 + i];
    assert_true(fc_run(&tsri_kernels_cpu_ref, TSRI_OP_FLASH_ATTENTION, &at, 0, 3 + has, in, 2,
                       (fc_tensor *[]){&t[4], &t[5]}));
    assert_true(fc_run(&tsri_kernels_cpu_fast, TSRI_OP_FLASH_ATTENTION, &at, 0, 3 + has, in, 2,
                       (fc_tensor *[]){&y, &lse}));
    for (int64_t i = 0; i < lse.n; i++) {
        const double a = ((double *)lse.data)[i], b = ((double *)t[5].data)[i];
        assert_true(a == b || fabs(a - b) <= 2e-6 * (1 + fabs(b)));
    }
    double *wide = calloc((size_t)(n[0] * n[1] * (n[2] + n[3]) * (n[4] + n[5])), sizeof *wide);
    for (int64_t i = 0; i < y.n; i++)
        wide[i] = (double)((float *)t[4].data)[i];
    fc_close_to("attention", y.data, wide, y.n, 4e-6);
    fc_tensor *all[2][3] = {{&got[0], &got[1], &got[2]}, {&want[0], &want[1], &want[2]}};
    assert_true(
        fc_run(&tsri_kernels_cpu_fast, TSRI_OP_FLASH_ATTENTION_DX, &at, 0, 6 + has, in, 3, all[0]));
    assert_true(
        fc_run(&tsri_kernels_cpu_ref, TSRI_OP_FLASH_ATTENTION_DX, &at, 0, 6 + has, in, 3, all[1]));
    for (int r = 0; r < 3; r++) {
        for (int64_t i = 0; i < want[r].n; i++)
            wide[i] = (double)((float *)want[r].data)[i];
        fc_close_to("attention's gradient", got[r].data, wide, want[r].n, 6e-6);
        fc_free(2, (fc_tensor *[]){&got[r], &want[r]});
    }
    free(wide);
    fc_free(9, (fc_tensor *[]){&t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &y, &lse});
}

/* Heads fewer and more than threads, blocks with tails, queries that see no key. */
static void test_attention(void **state)
{
    (void)state;
    static const int64_t shapes[][6] = {{1, 1, 1, 1, 1, 1},      {2, 3, 5, 7, 4, 6},
                                        {1, 1, 97, 241, 16, 17}, {1, 3, 300, 700, 33, 8},
                                        {1, 2, 500, 130, 8, 40}, {3, 3, 40, 500, 19, 64}};
    const int before = omp_get_max_threads();
    for (size_t i = 0; i < 3 * sizeof shapes / sizeof *shapes; i++)
        for (int threads = 1; threads <= 4; threads++) {
            setenv("TESSERA_CPU_ISA", isas[i % 3], 1);
            omp_set_num_threads(threads);
            one_attention(shapes[i / 3], threads & 1, -1);
            one_attention(shapes[i / 3], threads & 2, (int)i % 16);
        }
    omp_set_num_threads(before);
    unsetenv("TESSERA_CPU_ISA");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gelu),        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_masks_agree), cmocka_unit_test(test_dropout_mask),
        cmocka_unit_test(test_reduce),      cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
