/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every case on every implementation of the CUDA module, in every float dtype and layout, against
 * the CPU's f64 reference on the same rounded values. Skipped where there is no device; on the
 * emulator with TESSERA_CUDA_MODULE. TESSERA_TEST_CASES=text: only cases whose name has it.
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

/* Relative to the largest value of the result: what one rounding of the result, and of the terms
 * that it is a sum of, may make. */
static double tolerance_of(const kernel_case *c, tsr_dtype dtype)
{
    double f32 = c->tolerance > 0 ? c->tolerance : 2e-5;
    return dtype == TSR_F64 ? 1e-12 : dtype == TSR_F32 ? f32 : dtype == TSR_F16 ? 4e-3 : 3e-2;
}

static kc_values make_values(const kernel_case *c, tsr_dtype dtype)
{
    kc_values v = kc_values_make(c, dtype);
    if (kc_run(c, reference(), TSR_F64, KC_ROW, v.in, v.want) != TSR_OK)
        fail_msg("%s, reference: %s", c->name, tsr_last_error());
    return v;
}

/* Whether results are 0 and infinity, which no tolerance tells apart. */
static bool is_fault(const kernel_case *c)
{
    return c->op == TSRI_OP_REDUCE && c->attrs.reduce.op == TSRI_REDUCE_FAULT;
}

static void compare(const kc_values *v, const char *who, tsr_dtype dtype, kc_layout layout)
{
    for (int o = 0; o < v->c->nout; o++) {
        const kc_arg *a = &v->c->out[o];
        bool exact = a->dtype != TSR_DTYPE_NONE && a->dtype != TSR_F64;
        double top = 0;
        for (int64_t i = 0; i < kc_count(a); i++)
            top = fmax(top, fabs(v->want[o][i]));
        for (int64_t i = 0; i < kc_count(a); i++) {
            double limit = exact || is_fault(v->c) ? 0 : tolerance_of(v->c, dtype) * top;
            /* Values beyond f16's range become infinite. */
            bool nearest =
                !exact && v->out[o][i] == kc_round(a->dtype ? a->dtype : dtype, v->want[o][i]);
            if (!nearest && !(fabs(v->out[o][i] - v->want[o][i]) <= limit))
                fail_msg("%s, %s, %s, layout %d: result %d, element %lld is %.17g, not %.17g",
                         v->c->name, who, tsr_dtype_name(dtype), (int)layout, o, (long long)i,
                         v->out[o][i], v->want[o][i]);
        }
    }
}

/* What came of an implementation's cases, by op. in_plans: of f32, in the layout of plans, in which
 * axis 1 of four is the innermost; halves: of f16 and bf16 (bits 0 and 1), row-major. */
typedef struct tally {
    int ran, declined;
    int cases[TSRI_OP_COUNT_], in_plans[TSRI_OP_COUNT_];
    unsigned halves[TSRI_OP_COUNT_];
} tally;

static void run_case(const kernel_case *c, const tsri_kernels *impl, bool last, tsr_dtype dtype,
                     tally *t)
{
    kc_values v = make_values(c, dtype);
    for (int layout = KC_ROW; layout <= KC_PLAN; layout++) {
        tsr_status s = kc_run_on(device, c, impl, dtype, (kc_layout)layout, v.in, v.out);
        if (s == TSR_ERR_UNSUPPORTED && !last) {
            t->declined++;
            continue;
        }
        if (s != TSR_OK)
            fail_msg("%s, %s, %s: %s", c->name, impl->name, tsr_dtype_name(dtype),
                     tsr_last_error());
        compare(&v, impl->name, dtype, (kc_layout)layout);
        t->ran++;
        t->in_plans[c->op] += dtype == TSR_F32 && layout == KC_PLAN;
        if (layout == KC_ROW)
            t->halves[c->op] |= dtype == TSR_F16 ? 1u : dtype == TSR_BF16 ? 2u : 0u;
    }
    kc_values_free(&v);
}

/* cuDNN's attention is for halves whose features are one after the other. */
static bool is_for_halves(const tsri_kernels *impl)
{
    return !strcmp(impl->name, "cudnn-attention");
}

/* An implementation that declines all that an op has is one that nobody runs. */
static int count_idle(const tsri_kernels *impl, const tally *t)
{
    int idle = 0;
    for (int op = 0; op < TSRI_OP_COUNT_; op++) {
        const bool halves = is_for_halves(impl);
        if (t->cases[op] && !(halves ? t->halves[op] == 3 : t->in_plans[op])) {
            print_error("%s takes none of the %d cases of %s, in %s\n", impl->name, t->cases[op],
                        tsri_op_name((tsri_op_kind)op),
                        halves ? "f16 and bf16" : "f32 as plans have it");
            idle++;
        }
    }
    return idle;
}

static void test_cases(void **state)
{
    (void)state;
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F64, TSR_F16, TSR_BF16};
    const char *only = getenv("TESSERA_TEST_CASES");
    const char *few = getenv("TESSERA_FULL") ? NULL : getenv("TESSERA_TEST_DTYPES");
    const int n = sizeof dtypes / sizeof *dtypes;
    /* Each case runs in `count` of the dtypes; the first of them changes from case to case. */
    const int begin = few ? few[0] - '0' : 0, count = few ? few[1] - '0' : n;
    int idle = 0;
    for (const tsri_kernels *const *impl = device->ops->kernels(); *impl; impl++) {
        tally t = {0};
        for (int i = 0; i < kernel_cases_count; i++) {
            const kernel_case *c = &kernel_cases[i];
            if ((only && !strstr(c->name, only)) || !(*impl)->slot[c->op])
                continue;
            t.cases[c->op]++;
            for (int d = 0; d < count; d++)
                run_case(c, *impl, !impl[1], dtypes[(begin + i + d) % n], &t);
        }
        print_message("%s: %d runs, %d declined\n", (*impl)->name, t.ran, t.declined);
        idle += only || few ? 0 : count_idle(*impl, &t);
    }
    assert_int_equal(idle, 0);
}

/* Whatever the others decline, the last implementation takes. */
static void test_plain_has_every_op(void **state)
{
    (void)state;
    const tsri_kernels *plain = last_of(device->ops->kernels());
    for (int i = 0; i < kernel_cases_count && !getenv("TESSERA_TEST_CASES"); i++)
        if (!plain->slot[kernel_cases[i].op])
            fail_msg("no plain kernel for %s", tsri_op_name(kernel_cases[i].op));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_plain_has_every_op),
    };
    int none = open_cuda();
    return none ? none : close_cuda(cmocka_run_group_tests(tests, NULL, NULL));
}
