/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer norm and batch norm of f64 data that is far from zero: results, gradients and running
 * averages, on 1 to 4 ranks and in several signatures. The oracle takes the mean first and the
 * deviations from it after, in long double, of data from which an element has been subtracted.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <tessera/tessera.h>
#include "tests/dist/comm/rank_checks.h"

enum { MOST = 256, RANKS = 4 };

static const tsr_world_opts opts = {
    .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 60, .threads = 1};

/* A norm of data of some shape. */
typedef struct norm_case {
    const char *name;
    tsr_dims dims;
    int axes;  /* layer norm over so many; 0: batch norm */
    int parts; /* virtual batches; 0: global statistics */
    double eps;
} norm_case;

static const norm_case cases[] = {
    {"layer norm", {.ndim = 2, .d = {5, 7}}, 1, 0, 1e-12},
    {"layer norm of two axes", {.ndim = 3, .d = {3, 5, 4}}, 2, 0, 1e-5},
    {"layer norm of all", {.ndim = 1, .d = {11}}, 1, 0, 1e-12},
    {"batch norm", {.ndim = 4, .d = {5, 3, 2, 3}}, 0, 0, 1e-12},
    {"batch norm of rows", {.ndim = 2, .d = {7, 5}}, 0, 0, 1e-5},
    {"batch norm of fewer samples than ranks", {.ndim = 4, .d = {2, 3, 4, 1}}, 0, 0, 1e-12},
    {"batch norm, 2 virtual batches", {.ndim = 4, .d = {6, 3, 2, 2}}, 0, 2, 1e-12},
    {"batch norm, 3 uneven virtual batches", {.ndim = 4, .d = {7, 3, 2, 2}}, 0, 3, 1e-12},
};

typedef struct results {
    double y[MOST], dx[MOST], dgamma[MOST], dbeta[MOST], mean[MOST], var[MOST];
} results;

typedef struct task {
    const norm_case *c;
    const char *sbp; /* of x; NULL: inferred */
    double x[MOST], gamma[MOST], beta[MOST], weight[MOST];
    results got;
} task;

/* --- the oracle ------------------------------------------------------------------------------- */

/* Element i of x is in a group that has statistics, and has a gamma. */
typedef struct place {
    int64_t group, param;
} place;

static int64_t params_of(const norm_case *c)
{
    int64_t n = 1;
    for (int i = c->dims.ndim - c->axes; i < c->dims.ndim; i++)
        n *= c->dims.d[i];
    return c->axes ? n : c->dims.d[1];
}

static int64_t part_of(const norm_case *c, int64_t sample)
{
    const int64_t n = c->dims.d[0], parts = c->parts ? c->parts : 1;
    for (int64_t r = 0, end = 0; r < parts; r++)
        if (sample < (end += n / parts + (r < n % parts)))
            return r;
    return 0;
}

static place place_of(const norm_case *c, int64_t i)
{
    const int64_t params = params_of(c);
    if (c->axes)
        return (place){i / params, i % params};
    const int64_t plane = c->dims.ndim == 4 ? c->dims.d[2] * c->dims.d[3] : 1;
    const int64_t channel = i / plane % params;
    return (place){part_of(c, i / plane / params) * params + channel, channel};
}

static void find_wanted(const task *t, results *out)
{
    const norm_case *c = t->c;
    const int64_t n = tsr_dims_count(c->dims);
    long double count[MOST] = {0}, mean[MOST] = {0}, var[MOST] = {0}, hat[MOST], x[MOST];
    long double dgamma[MOST] = {0}, dbeta[MOST] = {0}, g[MOST] = {0}, ghat[MOST] = {0};
    double about[MOST] = {0};
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = place_of(c, i).group;
        if (count[at]++ == 0)
            about[at] = t->x[i];
        x[i] = (long double)t->x[i] - (long double)about[at];
        mean[at] += x[i];
    }
    for (int64_t i = 0; i < MOST && count[i] > 0; i++)
        mean[i] /= count[i];
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = place_of(c, i).group;
        const long double d = x[i] - mean[at];
        var[at] += d * d / count[at];
    }
    for (int64_t i = 0; i < n; i++) {
        const place at = place_of(c, i);
        const long double w = (long double)t->weight[i];
        hat[i] = (x[i] - mean[at.group]) / sqrtl(var[at.group] + (long double)c->eps);
        dgamma[at.param] += w * hat[i];
        dbeta[at.param] += w;
        g[at.group] += w * (long double)t->gamma[at.param] / count[at.group];
        ghat[at.group] += w * (long double)t->gamma[at.param] * hat[i] / count[at.group];
    }
    for (int64_t i = 0; i < n; i++) {
        const place at = place_of(c, i);
        const long double gamma = (long double)t->gamma[at.param];
        const long double rstd = 1 / sqrtl(var[at.group] + (long double)c->eps);
        out->y[i] = (double)(hat[i] * gamma + (long double)t->beta[at.param]);
        out->dx[i] = (double)(rstd * ((long double)t->weight[i] * gamma - g[at.group] -
                                      hat[i] * ghat[at.group]));
    }
    for (int64_t i = 0; i < MOST; i++) {
        out->dgamma[i] = (double)dgamma[i];
        out->dbeta[i] = (double)dbeta[i];
        out->mean[i] = (double)(mean[i] + (long double)about[i]);
        out->var[i] = count[i] > 1 ? (double)(var[i] * count[i] / (count[i] - 1)) : 0;
    }
}

/* --- the program ------------------------------------------------------------------------------ */

typedef struct buffers {
    tsr_variable *v[4];
    int n;
} buffers;

static tsr_status collect(tsr_variable *v, const char *name, void *arg)
{
    (void)name;
    buffers *b = arg;
    if (!tsr_variable_trainable(v))
        b->v[b->n++] = v;
    return TSR_OK;
}

static tsr_tensor *declare(tsr_module *m, const norm_case *c, tsr_tensor *const in[3],
                           const tsr_batch_norm_opts *bn)
{
    if (c->axes)
        return tsr_layer_norm(in[0], in[1], in[2],
                              TSR_LAYER_NORM_OPTS(.eps = c->eps, .axes = c->axes));
    return tsr_batch_norm(in[0], in[1], in[2], tsr_use(m, "running_mean", in[0]),
                          tsr_use(m, "running_var", in[0]), bn);
}

/* Feeds every input, and runs. */
static tsr_status feed_and_run(tsr_plan *plan, const task *t)
{
    const size_t n = (size_t)tsr_dims_count(t->c->dims) * sizeof(double);
    const size_t params = (size_t)params_of(t->c) * sizeof(double);
    TSRI_TRY(tsr_feed(plan, "x", t->x, n));
    TSRI_TRY(tsr_feed(plan, "weight", t->weight, n));
    TSRI_TRY(tsr_feed(plan, "gamma", t->gamma, params));
    TSRI_TRY(tsr_feed(plan, "beta", t->beta, params));
    return tsr_run(plan);
}

static tsr_status run_case(tsr_world *w, void *arg)
{
    task *t = arg;
    const norm_case *c = t->c;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const int64_t params = params_of(c);
    tsr_dims features = {.ndim = c->axes};
    for (int i = 0; i < c->axes; i++)
        features.d[i] = c->dims.d[c->dims.ndim - c->axes + i];
    if (!c->axes)
        features = TSR_DIMS(params);
    const tsr_batch_norm_opts *bn =
        TSR_BATCH_NORM_OPTS(.eps = c->eps, .momentum = 1, .parts = c->parts,
                            .stats = c->parts ? TSR_BN_LOCAL : TSR_BN_GLOBAL);
    const tsr_nn_opts nn = {.placement = p, .sbp = TSR_B, .dtype = TSR_F64};
    tsr_module *m = tsr_nn_batch_norm(w, &nn, params, bn);
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_sbp sbp = TSR_AUTO;
    if (t->sbp)
        TSRI_TRY(tsr_sbp_parse(t->sbp, &sbp));
    tsr_tensor *in[3] = {tsr_input(g, "x", TSR_F64, c->dims, p, sbp),
                         tsr_input(g, "gamma", TSR_F64, features, p, TSR_B),
                         tsr_input(g, "beta", TSR_F64, features, p, TSR_B)};
    tsr_tensor *weight = tsr_input(g, "weight", TSR_F64, c->dims, p, TSR_B), *d[3];
    tsr_tensor *y = declare(m, c, in, bn);
    tsr_gradients(tsr_sum(tsr_mul(y, weight), TSR_ALL_AXES, false), 3, in, d);
    static const char *const name[] = {"y", "dx", "dgamma", "dbeta"};
    tsr_tensor *out[4] = {y, d[0], d[1], d[2]};
    for (int i = 0; i < 4; i++)
        tsr_output(g, name[i], out[i], p, TSR_B);
    tsr_plan *plan;
    TSRI_TRY(tsr_compile(g, &plan));
    TSRI_TRY(feed_and_run(plan, t));
    results r = {0};
    double *to[4] = {r.y, r.dx, r.dgamma, r.dbeta};
    for (int i = 0; i < 4; i++)
        TSRI_TRY(tsr_fetch(plan, name[i], to[i],
                           (size_t)tsr_dims_count(i < 2 ? c->dims : features) * sizeof(double)));
    buffers b = {.n = 0};
    TSRI_TRY(tsr_module_visit(m, collect, &b));
    for (int i = 0; i < 2 && !c->axes; i++)
        TSRI_TRY(tsr_variable_get(b.v[i], i ? r.var : r.mean,
                                  (size_t)tsr_dims_count(tsr_variable_dims(b.v[i])) * 8));
    if (tsr_world_rank(w) == 0)
        t->got = r;
    tsr_plan_destroy(plan);
    return TSR_OK;
}

/* --- comparison ------------------------------------------------------------------------------- */

/* By the largest of what is wanted. */
static void close_to(const task *t, int ranks, const char *what, const double *got,
                     const double *want, int64_t n, double tolerance)
{
    double size = 0;
    for (int64_t i = 0; i < n; i++)
        size = fmax(size, fabs(want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= tolerance * size))
            fail_msg("%s, %d ranks, x %s: %s[%d] is %.17g and should be %.17g", t->c->name, ranks,
                     t->sbp ? t->sbp : "AUTO", what, (int)i, got[i], want[i]);
}

static void check(task *t, int ranks)
{
    const int64_t n = tsr_dims_count(t->c->dims), params = params_of(t->c);
    results *want = calloc(1, sizeof *want);
    assert_non_null(want);
    if (tsr_spawn_with(ranks, run_case, t, &opts) != TSR_OK)
        fail_msg("%s, %d ranks, x %s: %s", t->c->name, ranks, t->sbp ? t->sbp : "AUTO",
                 tsr_last_error());
    find_wanted(t, want);
    close_to(t, ranks, "y", t->got.y, want->y, n, 1e-12);
    close_to(t, ranks, "dx", t->got.dx, want->dx, n, 1e-12);
    close_to(t, ranks, "dgamma", t->got.dgamma, want->dgamma, params, 1e-12);
    close_to(t, ranks, "dbeta", t->got.dbeta, want->dbeta, params, 1e-12);
    const int64_t rows = t->c->axes ? 0 : params * (t->c->parts ? t->c->parts : 1);
    close_to(t, ranks, "running_mean", t->got.mean, want->mean, rows, 1e-15);
    close_to(t, ranks, "running_var", t->got.var, want->var, rows, 1e-12);
    free(want);
}

static void fill(task *t, double level)
{
    for (int i = 0; i < MOST; i++) {
        const double side = place_of(t->c, i).group % 2 ? -0.7 : 1;
        t->x[i] = side * level + 2 * sin(1.7 * i + 0.1 * i * i) + 0.3 * cos(13.1 * i);
        t->gamma[i] = 1.5 + cos(0.9 * i);
        t->beta[i] = sin(0.4 * i);
        t->weight[i] = sin(2.3 * i) + 0.25;
    }
}

/* Rounding the data to f64 has happened before, and the deviations from a mean are as good as
 * exact: so results are right to the last digits however far the data is from zero. */
static void test_far_from_zero(void **state)
{
    (void)state;
    static const char *const sbp[] = {NULL, "B", "S(0)", "S(1)", "S(2)"};
    static const double levels[] = {0, 1e3, 1e6, 1e8, -1e8};
    task *t = calloc(1, sizeof *t);
    assert_non_null(t);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (size_t l = 0; l < sizeof levels / sizeof *levels; l++)
            for (int ranks = 1; ranks <= RANKS; ranks++)
                for (int s = 0; s < 5; s++) {
                    t->c = &cases[c];
                    t->sbp = sbp[s];
                    if (s >= 2 && s - 2 >= t->c->dims.ndim)
                        continue;
                    fill(t, levels[l]);
                    check(t, ranks);
                }
    free(t);
}

/* By hand: deviations of -1.5, -0.5, 0.5, 1.5 and a variance of 1.25. */
static void test_four_values(void **state)
{
    (void)state;
    static const norm_case four = {"four values", {.ndim = 1, .d = {4}}, 1, 0, 1e-12};
    task *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->c = &four;
    t->sbp = "S(0)";
    for (int i = 0; i < 4; i++) {
        t->x[i] = 1e8 + i;
        t->gamma[i] = 1;
    }
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        if (tsr_spawn_with(ranks, run_case, t, &opts) != TSR_OK)
            fail_msg("%d ranks: %s", ranks, tsr_last_error());
        for (int i = 0; i < 4; i++)
            assert_true(fabs(t->got.y[i] - (i - 1.5) / sqrt(1.25 + 1e-12)) < 1e-14);
    }
    free(t);
}

/* What is not a number stays none: in its channel, and in no other. */
static void test_no_number(void **state)
{
    (void)state;
    task *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->c = &cases[3];
    for (int ranks = 1; ranks <= RANKS; ranks++)
        for (int infinite = 0; infinite < 2; infinite++)
            for (int at = 0; at < 90; at += 29) {
                t->sbp = ranks % 2 ? "S(0)" : "S(1)";
                fill(t, 1);
                t->x[at] = infinite ? INFINITY : NAN;
                if (tsr_spawn_with(ranks, run_case, t, &opts) != TSR_OK)
                    fail_msg("%d ranks: %s", ranks, tsr_last_error());
                const int64_t bad = place_of(t->c, at).param;
                for (int i = 0; i < 90; i++)
                    assert_true(isnan(t->got.y[i]) == (place_of(t->c, i).param == bad));
                for (int i = 0; i < 3; i++)
                    assert_true(isnan(t->got.var[i]) == (i == bad));
            }
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_far_from_zero),
        cmocka_unit_test(test_four_values),
        cmocka_unit_test(test_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
