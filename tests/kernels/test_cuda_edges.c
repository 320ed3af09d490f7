/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA module where the table of cases does not reach: empty shards, special values and bad
 * labels, against the CPU's reference. Skipped where there is no device.
 */
#include "cases.h"
#include "on_cuda.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static kernel_case find(const char *name)
{
    const kernel_case *c = kernel_case_find(name);
    if (!c)
        fail_msg("no case %s", name);
    return *c;
}

static double *zeros(const kc_arg *a)
{
    double *p = calloc((size_t)kc_count(a) + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

static bool same(double got, double want)
{
    if (isnan(want) || isinf(want))
        return isnan(want) ? isnan(got) : got == want;
    return fabs(got - want) <= 1e-5 * (1 + fabs(want));
}

/* Every implementation gives what the reference gives, in f32 and f64. */
static void check(const kernel_case *c, double *const *in)
{
    static const tsr_dtype dtypes[2] = {TSR_F32, TSR_F64};
    double *want[4] = {0}, *got[4] = {0};
    for (int o = 0; o < c->nout; o++) {
        want[o] = zeros(&c->out[o]);
        got[o] = zeros(&c->out[o]);
    }
    if (kc_run(c, reference(), TSR_F64, KC_ROW, in, want) != TSR_OK)
        fail_msg("%s: %s", c->name, tsr_last_error());
    int ran = 0;
    for (const tsri_kernels *const *impl = device->ops->kernels(); *impl; impl++)
        for (int d = 0; d < 2; d++) {
            tsr_status s = kc_run_on(device, c, *impl, dtypes[d], KC_ROW, in, got);
            if (s == TSR_ERR_UNSUPPORTED)
                continue;
            if (s != TSR_OK)
                fail_msg("%s, %s: %s", c->name, (*impl)->name, tsr_last_error());
            ran++;
            for (int o = 0; o < c->nout; o++)
                for (int64_t i = 0; i < kc_count(&c->out[o]); i++)
                    if (!same(got[o][i], want[o][i]))
                        fail_msg("%s, %s, %s: result %d, element %lld is %g, not %g", c->name,
                                 (*impl)->name, tsr_dtype_name(dtypes[d]), o, (long long)i,
                                 got[o][i], want[o][i]);
        }
    assert_true(ran > 0);
    for (int o = 0; o < c->nout; o++) {
        free(want[o]);
        free(got[o]);
    }
}

static void cut(kc_arg *a, int axis)
{
    if (!a->gshape[0])
        memcpy(a->gshape, a->dims.d, sizeof a->gshape);
    a->dims.d[axis] = 0;
}

/* The axis that is cut to nothing in each operand and in the results (-1: none). */
static const struct {
    const char *name;
    int in[6], out;
} empties[] = {
    {"reduce sum 0", {0}, -1},
    {"reduce sum all", {2}, -1},
    {"reduce max 2", {2}, -1},
    {"reduce min 03", {0}, -1},
    {"reduce fault all", {1}, -1},
    {"reduce columns", {1}, 0},
    {"prod dropped", {0}, -1},
    {"prod_dx last", {1, -1}, 1},
    {"argmax last", {0}, 0},
    {"cumsum last", {0}, 0},
    {"cumsum reverse", {1}, 1},
    {"softmax last", {0}, 0},
    {"softmax_dx last", {1, 1}, 1},
    {"softmax_max", {1}, -1},
    {"softmax_sum last", {2, -1}, -1},
    {"softmax_finish middle", {1, -1, -1}, 1},
    {"softmax_dot log", {0, 0}, -1},
    {"softmax_bwd last", {2, 2, -1}, 2},
    {"ce plain", {0, 0}, 0},
    {"ce_dx plain", {0, 0, 0, 0}, 0},
    {"ce_terms whole", {1, -1, -1}, -1},
    {"ce_finish whole", {0, 0, 0}, 0},
    {"ce_dx part whole", {1, -1, -1, -1}, 1},
    {"ln_stats 2 axes", {2}, -1},
    {"ln_apply ", {0, 0, -1, -1}, 0},
    {"ln_bwd_stats ", {0, 0, -1, 0}, 0},
    {"ln_bwd_apply plain ", {1, -1, 1, -1}, 1},
    {"ln_param_grad ", {0, 0, 0}, -1},
    {"sgd momentum", {0, 0, 0, -1}, 0},
    {"adam plain", {0, 0, 0, 0, -1}, 0},
    {"rmsprop centered momentum", {0, 0, 0, 0, 0, -1}, 0},
    {"adagrad plain", {0, 0, 0, -1}, 0},
    {"lion plain", {0, 0, 0, -1}, 0},
};

static void test_empty_shards(void **state)
{
    (void)state;
    for (size_t e = 0; e < sizeof empties / sizeof *empties; e++) {
        kernel_case c = find(empties[e].name);
        double *in[8] = {0};
        for (int i = 0; i < c.nin; i++) {
            if (empties[e].in[i] >= 0)
                cut(&c.in[i], empties[e].in[i]);
            in[i] = kc_make(&c, i, 1);
        }
        for (int o = 0; o < c.nout && empties[e].out >= 0; o++)
            cut(&c.out[o], empties[e].out);
        check(&c, in);
        for (int i = 0; i < c.nin; i++)
            free(in[i]);
    }
}

/* Operand 0 of a case becomes copies of x, the others stay. */
static void check_values(const char *name, const double *x, int64_t n)
{
    kernel_case c = find(name);
    double *in[8] = {0};
    for (int i = 0; i < c.nin; i++)
        in[i] = kc_make(&c, i, 1);
    for (int64_t i = 0; i < kc_count(&c.in[0]); i++)
        in[0][i] = x[i % n];
    check(&c, in);
    for (int i = 0; i < c.nin; i++)
        free(in[i]);
}

static void test_special_values(void **state)
{
    (void)state;
    static const double nans[] = {1, NAN, 3, -2, 0, 7}, infinities[] = {1, INFINITY, -INFINITY},
                        lows[] = {-INFINITY}, masked[] = {2, -INFINITY, -INFINITY, 1, 0},
                        big[] = {1000, 999, 1000.5};
    static const char *const names[] = {
        "reduce sum all",     "reduce max 2",         "reduce min 03",  "reduce odd rows",
        "reduce odd columns", "reduce wide columns",  "argmax last",    "argmax long rows",
        "softmax_max",        "softmax last",         "softmax middle", "softmax rows of 40",
        "softmax rows of 70", "softmax rows of 2000", "ce plain",       "ce smoothed",
        "ce 1031 classes",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        check_values(names[i], nans, 6);
        check_values(names[i], infinities, 3);
        check_values(names[i], lows, 1);
        check_values(names[i], masked, 5);
        check_values(names[i], big, 3);
    }
}

/* A label that is no class is an error of the run, once; an ignored one is nothing wrong. */
static void test_labels(void **state)
{
    (void)state;
    static const char *const names[] = {"ce plain", "ce_dx plain", "ce_terms whole"};
    for (int n = 0; n < 3; n++) {
        kernel_case c = find(names[n]);
        double *in[4] = {0}, *out[4] = {0};
        for (int i = 0; i < c.nin; i++)
            in[i] = kc_make(&c, i, 1);
        for (int o = 0; o < c.nout; o++)
            out[o] = zeros(&c.out[o]);
        for (const tsri_kernels *const *impl = device->ops->kernels(); *impl; impl++) {
            if (!(*impl)->slot[c.op])
                continue;
            for (int bad = -1; bad <= 7; bad += 8) {
                in[1][4] = bad;
                assert_int_equal(kc_run_on(device, &c, *impl, TSR_F32, KC_ROW, in, out),
                                 TSR_ERR_INVALID);
                assert_non_null(strstr(tsr_last_error(), bad < 0 ? "-1" : "7"));
                assert_int_equal(device->ops->check(device), TSR_OK);
            }
            kernel_case ignores = c;
            ignores.attrs.ce.has_ignore = 1;
            ignores.attrs.ce.ignore_index = 7;
            check(&ignores, in);
        }
        for (int i = 0; i < c.nin; i++)
            free(in[i]);
        for (int o = 0; o < c.nout; o++)
            free(out[o]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty_shards),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_labels),
    };
    int none = open_cuda();
    return none ? none : close_cuda(cmocka_run_group_tests(tests, NULL, NULL));
}
