/* SPDX-License-Identifier: Apache-2.0 */
/* Every gradient op of the reference against central differences of its forward op, in f64. */
#include "cases.h"
#include "tests/sample.h"
#include "tests/unary_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Where a gradient's operand comes from. */
enum { IN = 0, OUT = 10, DY = 20 };

/* Cases are paired by what follows the prefix in their names. */
static const struct pair {
    const char *forward, *grad;
    int wrt, from[7];
    double step;
} pairs[] = {
    {"unary", "unary_grad", 0, {IN, DY}, 1e-5}, /* or OUT: see run_pair */
    {"conv2d no bias", "conv2d_dx", 0, {DY, IN + 1}, 1e-2},
    {"conv2d no bias", "conv2d_dw", 1, {IN, DY}, 1e-2},
    {"linear", "linear_dx", 0, {DY, IN + 1}, 1e-2},
    {"linear", "linear_dw", 1, {IN, DY}, 1e-2},
    {"max_pool", "max_pool_dx", 0, {OUT + 1, DY}, 1e-6},
    {"avg_pool", "avg_pool_dx", 0, {DY}, 1e-2},
    {"adaptive_pool", "adaptive_pool_dx", 0, {DY}, 1e-2},
    {"softmax", "softmax_dx", 0, {OUT, DY}, 1e-5},
    {"ce", "ce_dx", 0, {IN, IN + 1, OUT + 2, DY}, 1e-5},
    {"prod", "prod_dx", 0, {IN, DY}, 1e-5},
    {"index_select", "index_select_dx", 0, {IN + 1, DY}, 1e-2},
    {"gather", "gather_dx", 0, {IN + 1, DY}, 1e-2},
    {"resize", "resize_dx", 0, {DY}, 1e-2},
    {"scan", "scan_dx", 0, {IN, OUT, DY}, 1e-5},
    {"flash_attention", "flash_attention_dx", 0, {IN, IN + 1, IN + 2, OUT, OUT + 1, DY}, 1e-5},
    {"flash_masked", "flash_masked_dx", 0, {IN, IN + 1, IN + 2, IN + 3, OUT, OUT + 1, DY}, 1e-5},
    {"flash_attention", "flash_attention_dx", 1, {IN, IN + 1, IN + 2, OUT, OUT + 1, DY}, 1e-5},
    {"flash_masked", "flash_masked_dx", 1, {IN, IN + 1, IN + 2, IN + 3, OUT, OUT + 1, DY}, 1e-5},
    {"flash_attention", "flash_attention_dx", 2, {IN, IN + 1, IN + 2, OUT, OUT + 1, DY}, 1e-5},
    {"flash_masked", "flash_masked_dx", 2, {IN, IN + 1, IN + 2, IN + 3, OUT, OUT + 1, DY}, 1e-5},
};

static const tsri_kernels *reference(void)
{
    const tsri_kernels *const *list = tsri_kernels_cpu();
    while (list[1])
        list++;
    return *list;
}

static double *zeros(const kc_arg *a)
{
    double *p = calloc((size_t)kc_count(a) + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

static void run(const kernel_case *c, double *const *in, double *const *out)
{
    if (kc_run(c, reference(), TSR_F64, KC_NHWC, in, out) != TSR_OK)
        fail_msg("%s: %s", c->name, tsr_last_error());
}

/* The sum of y times dy. */
typedef double loss_fn(void *arg);

static void check(const char *name, loss_fn *loss, void *arg, double *x, int64_t n, double step,
                  const double *got, bool flat)
{
    double top = 0;
    double *want = calloc((size_t)n, sizeof *want);
    assert_non_null(want);
    /* A sample takes the differences of some elements: each costs two runs of the same code. */
    const int64_t apart = test_sample() > 1 && n > 8 ? n / 8 : 1;
    for (int64_t i = 0; i < n; i += apart) {
        double keep = x[i], up, down;
        x[i] = keep + step;
        up = loss(arg);
        x[i] = keep - step;
        down = loss(arg);
        x[i] = keep;
        want[i] = (up - down) / (2 * step);
        top = fmax(top, fabs(want[i]));
    }
    assert_true((top == 0) == flat || apart > 1);
    for (int64_t i = 0; i < n; i += apart)
        if (!(fabs(got[i] - want[i]) <= 2e-8 * (1 + top)))
            fail_msg("%s: element %lld is %.12g, differences give %.12g", name, (long long)i,
                     got[i], want[i]);
    free(want);
}

typedef struct forward {
    const kernel_case *c;
    double *in[8], *out[4], *dy;
} forward;

static double dot(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}

static double forward_loss(void *arg)
{
    forward *f = arg;
    run(f->c, f->in, f->out);
    return dot(f->out[0], f->dy, kc_count(&f->c->out[0]));
}

static double *random_like(const kc_arg *a)
{
    kernel_case c = {.in = {*a}};
    c.in[0].fill = KC_UNIFORM;
    return kc_make(&c, 0, 77);
}

/* Whether a function is a step, whose slope is 0 wherever it has one. */
static bool is_flat(tsri_unary_fn fn)
{
    switch (fn) {
#define FLAT(T, FN, name, arity, p, q, from, value, slope) \
    case TSRI_UNARY_##FN:                                  \
        return !strcmp(#slope, "0");
        UNARY_CASES(FLAT, )
#undef FLAT
    default:
        return false;
    }
}

/* Nothing to differ: gradients of nothing are 0, and finite differences of it too. */
static bool is_empty(const kernel_case *c)
{
    bool empty = kc_count(&c->out[0]) == 0;
    for (int i = 0; i < c->nin; i++)
        empty |= kc_count(&c->in[i]) == 0;
    return empty;
}

static void run_pair(const struct pair *p, const kernel_case *fwd, const kernel_case *grad)
{
    kernel_case c = *fwd; /* maxima must be apart */
    if (c.op == TSRI_OP_MAX_POOL)
        c.in[0].fill = KC_UNIFORM;
    forward f = {.c = &c, .dy = random_like(&c.out[0])};
    for (int i = 0; i < c.nin; i++)
        f.in[i] = kc_make(&c, i, 5);
    for (int i = 0; i < c.nout; i++)
        f.out[i] = zeros(&c.out[i]);
    forward_loss(&f);
    double *gin[8] = {0}, *got[4] = {0};
    for (int i = 0; i < grad->nout; i++)
        got[i] = zeros(&grad->out[i]);
    for (int i = 0; i < grad->nin; i++) {
        int from = p->from[i];
        if (c.op == TSRI_OP_UNARY && !i && tsri_unary_saves_output((tsri_unary_fn)c.attrs.unary.fn))
            from = OUT;
        gin[i] = from >= DY ? f.dy : from >= OUT ? f.out[from - OUT] : f.in[from];
    }
    run(grad, gin, got);
    check(grad->name, forward_loss, &f, f.in[p->wrt], kc_count(&c.in[p->wrt]), p->step,
          got[grad->nout > 1 ? p->wrt : 0],
          c.op == TSRI_OP_UNARY && is_flat((tsri_unary_fn)c.attrs.unary.fn));
    for (int i = 0; i < grad->nout; i++)
        free(got[i]);
    free(f.dy);
    for (int i = 0; i < c.nin; i++)
        free(f.in[i]);
    for (int i = 0; i < c.nout; i++)
        free(f.out[i]);
}

static void test_pairs(void **state)
{
    (void)state;
    int checked = 0;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        size_t n = strlen(pairs[i].forward);
        int before = checked;
        for (int j = 0; j < kernel_cases_count; j++) {
            const char *name = kernel_cases[j].name;
            char grad[128];
            if (strncmp(name, pairs[i].forward, n) || (name[n] && name[n] != ' '))
                continue;
            if (is_empty(&kernel_cases[j]))
                continue;
            snprintf(grad, sizeof grad, "%s%s", pairs[i].grad, name + n);
            const kernel_case *g = kernel_case_find(grad);
            if (!g)
                continue; /* "linear no bias" */
            double work = (double)kc_count(&kernel_cases[j].in[pairs[i].wrt]) *
                          (double)kc_count(&kernel_cases[j].out[0]);
            if (work == 0 || work > 4e6)
                continue; /* no differences to take, or very many: made for other tests */
            run_pair(&pairs[i], &kernel_cases[j], g);
            checked++;
        }
        assert_true(checked > before);
    }
    print_message("%d gradients\n", checked);
}

/* Batch norm: the statistics depend on x too, so that forward and backward are chains. */
typedef struct norm {
    kernel_case stats, apply, bwd_stats, bwd_apply, param;
    bool fused;
    double *x, *gamma, *beta, *dy, *sums, *y;
} norm;

static double norm_loss(void *arg)
{
    norm *b = arg;
    run(&b->stats, &b->x, &b->sums);
    run(&b->apply, (double *[]){b->x, b->sums, b->gamma, b->beta}, &b->y);
    return dot(b->y, b->dy, kc_count(&b->apply.out[0]));
}

static kernel_case find(const char *op, const char *suffix)
{
    char name[128];
    snprintf(name, sizeof name, "%s %s", op, suffix);
    const kernel_case *c = kernel_case_find(name);
    assert_non_null(c);
    return *c;
}

static void check_norm(const char *suffix, bool fused)
{
    norm b = {.stats = find("bn_stats", suffix),
              .apply = find(fused ? "bn_act" : "bn_apply", suffix),
              .bwd_stats = find(fused ? "bn_act_bwd_stats" : "bn_bwd_stats", suffix),
              .bwd_apply = find(fused ? "bn_act_bwd_apply" : "bn_bwd_apply", suffix),
              .fused = fused};
    b.apply.in[2].fill = KC_POSITIVE; /* keeps both sides of the kinks in play */
    b.x = kc_make(&b.apply, 0, 3);
    b.gamma = kc_make(&b.apply, 2, 3);
    b.beta = kc_make(&b.apply, 3, 3);
    int64_t channels = kc_count(&b.apply.in[2]);
    for (int64_t i = 0; fused && i < channels; i++) {
        b.gamma[i] *= 4;
        b.beta[i] += i % 2 ? 5 : 0;
    }
    b.dy = random_like(&b.apply.out[0]);
    b.sums = zeros(&b.stats.out[0]);
    b.y = zeros(&b.apply.out[0]);
    norm_loss(&b);
    double *bsums = zeros(&b.stats.out[0]), *dx = zeros(&b.apply.in[0]);
    double *dp[2] = {zeros(&b.apply.in[2]), zeros(&b.apply.in[2])};
    if (fused) {
        run(&b.bwd_stats, (double *[]){b.x, b.sums, b.gamma, b.beta, b.dy}, &bsums);
        run(&b.bwd_apply, (double *[]){b.x, b.sums, b.gamma, b.beta, b.dy, bsums}, &dx);
    } else {
        run(&b.bwd_stats, (double *[]){b.x, b.sums, b.dy}, &bsums);
        run(&b.bwd_apply, (double *[]){b.x, b.sums, b.gamma, b.dy, bsums}, &dx);
    }
    b.param = (kernel_case){.name = "bn_param_grad",
                            .op = TSRI_OP_BN_PARAM_GRAD,
                            .nin = 1,
                            .nout = 2,
                            .in = {b.stats.out[0]},
                            .out = {b.apply.in[2], b.apply.in[2]}};
    run(&b.param, &bsums, dp);
    check(b.bwd_apply.name, norm_loss, &b, b.x, kc_count(&b.apply.in[0]), 1e-5, dx, false);
    check("dgamma", norm_loss, &b, b.gamma, channels, 1e-5, dp[0], false);
    check("dbeta", norm_loss, &b, b.beta, channels, 1e-5, dp[1], false);
    double *all[] = {b.x, b.gamma, b.beta, b.dy, b.sums, b.y, bsums, dx, dp[0], dp[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void test_norm(void **state)
{
    (void)state;
    const char *const suffixes[] = {"4-D", "4-D parts", "2-D"};
    for (int i = 0; i < 3; i++) {
        check_norm(suffixes[i], false);
        check_norm(suffixes[i], true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
