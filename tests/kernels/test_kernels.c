/* SPDX-License-Identifier: Apache-2.0 */
/* Every case on every implementation, in every layout, against the f64 reference on the same
 * rounded operands; the reference against the formulas of oracle.c. Gradients have no formula
 * there: see test_kernel_grads.c. */
#include "cases.h"
#include "tests/sample.h"

#include "src/core/dims.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static const tsri_kernels *reference(void)
{
    const tsri_kernels *const *list = tsri_kernels_cpu();
    while (list[1])
        list++;
    return *list;
}

/* Whether results are 0 and infinity, which no tolerance tells apart. */
static bool is_fault(const kernel_case *c)
{
    return c->op == TSRI_OP_REDUCE && c->attrs.reduce.op == TSRI_REDUCE_FAULT;
}

/* Every element must be the rounding of a value that is within tolerance of what it ought to be. */
static void compare(const kc_values *v, const char *who, tsr_dtype dtype, double tolerance)
{
    for (int o = 0; o < v->c->nout; o++) {
        const kc_arg *a = &v->c->out[o];
        const tsr_dtype to = a->dtype ? a->dtype : dtype;
        double top = 0;
        for (int64_t i = 0; i < kc_count(a); i++)
            top = fmax(top, fabs(v->want[o][i]));
        for (int64_t i = 0; i < kc_count(a); i++) {
            const double limit = tsri_is_float(to) && !is_fault(v->c) ? tolerance * top : 0;
            const double low = kc_round(to, v->want[o][i] - limit);
            const double high = kc_round(to, v->want[o][i] + limit);
            /* Written so that a NaN fails. */
            if (!(v->out[o][i] >= low && v->out[o][i] <= high))
                fail_msg("%s, %s, %s: result %d, element %lld is %.17g, not %.17g", v->c->name, who,
                         tsr_dtype_name(dtype), o, (long long)i, v->out[o][i], v->want[o][i]);
        }
    }
}

static double tolerance_of(const kernel_case *c, tsr_dtype dtype)
{
    /* A random number that rounding brings to the end of its interval is the one before. */
    if (c->op == TSRI_OP_RANDOM && dtype != TSR_F32)
        return 4e-3;
    if (dtype == TSR_F64)
        return 1e-12;
    return c->tolerance > 0 ? c->tolerance : 2e-5;
}

static void test_reference_against_formulas(void **state)
{
    (void)state;
    int checked = 0;
    for (int i = 0; i < kernel_cases_count; i++) {
        kc_values v = kc_values_make(&kernel_cases[i], TSR_F32);
        if (kc_oracle(v.c, v.in, v.want)) {
            for (int layout = KC_ROW; layout <= KC_OTHER; layout++) {
                if (kc_run(v.c, reference(), TSR_F64, (kc_layout)layout, v.in, v.out) != TSR_OK)
                    fail_msg("%s: %s", v.c->name, tsr_last_error());
                compare(&v, "reference", TSR_F64, 1e-13);
            }
            checked++;
        }
        kc_values_free(&v);
    }
    print_message("%d cases have a formula\n", checked);
    assert_true(checked > 80);
}

static void test_layouts_agree(void **state)
{
    (void)state;
    for (int i = 0; i < kernel_cases_count; i++) {
        kc_values v = kc_values_make(&kernel_cases[i], TSR_F32);
        assert_int_equal(kc_run(v.c, reference(), TSR_F64, KC_ROW, v.in, v.want), TSR_OK);
        for (int layout = KC_NHWC; layout <= KC_OTHER; layout++) {
            assert_int_equal(kc_run(v.c, reference(), TSR_F64, (kc_layout)layout, v.in, v.out),
                             TSR_OK);
            /* Not bit for bit: long sums are added in the order of memory. */
            compare(&v, layout == KC_NHWC ? "channels last" : "mixed layouts", TSR_F64, 1e-13);
        }
        kc_values_free(&v);
    }
}

/* Runs a case, whose results are known, in a dtype on an implementation, in every layout up to
 * `last`; returns how often it was taken. */
static int run_case(const kc_values *v, const tsri_kernels *impl, const char *who, tsr_dtype dtype,
                    kc_layout last)
{
    int ran = 0;
    for (int layout = KC_ROW; layout <= (int)last; layout++) {
        tsr_status s = kc_run(v->c, impl, dtype, (kc_layout)layout, v->in, v->out);
        if (s == TSR_ERR_UNSUPPORTED && (impl != reference() || dtype != TSR_F32))
            continue;
        if (s != TSR_OK)
            fail_msg("%s, %s, %s: %s", v->c->name, who, tsr_dtype_name(dtype), tsr_last_error());
        compare(v, who, dtype, tolerance_of(v->c, dtype));
        ran++;
    }
    return ran;
}

static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16, TSR_F64};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* Case i / DTYPES with operands of dtype i % DTYPES, and its results. */
static kc_values values_of(int i)
{
    kc_values v = kc_values_make(&kernel_cases[i / DTYPES], dtypes[i % DTYPES]);
    assert_int_equal(kc_run(v.c, reference(), TSR_F64, KC_ROW, v.in, v.want), TSR_OK);
    return v;
}

static void test_implementations(void **state)
{
    (void)state;
    int ran[8] = {0};
    for (int i = 0; i < DTYPES * kernel_cases_count; i += test_sample()) {
        kc_values v = values_of(i);
        const tsri_kernels *const *impl = tsri_kernels_cpu();
        for (int k = 0; impl[k]; k++)
            ran[k] += run_case(&v, impl[k], impl[k]->name, dtypes[i % DTYPES], KC_OTHER);
        kc_values_free(&v);
    }
    for (int k = 0; tsri_kernels_cpu()[k]; k++) {
        print_message("%s: %d runs\n", tsri_kernels_cpu()[k]->name, ran[k]);
        assert_true(ran[k] > 0);
    }
}

/* Every op is computed in every float dtype, whichever implementation does it. */
static void test_every_dtype_is_taken(void **state)
{
    (void)state;
    for (int i = 0; i < DTYPES * kernel_cases_count; i++) {
        const kernel_case *c = &kernel_cases[i / DTYPES];
        const tsri_kernel_desc d = kc_desc(c, dtypes[i % DTYPES], KC_PLAN);
        tsri_kernel *k;
        if (tsri_kernel_create(NULL, tsri_kernels_cpu(), &d, &k) != TSR_OK)
            fail_msg("%s: %s", c->name, tsr_last_error());
        k->destroy(k);
    }
}

/* Every instruction set, alone and in a team that some cases are worth. */
static void test_instruction_sets(void **state)
{
    (void)state;
    static const char *const isas[] = {"base", "avx2", "avx512", "avx512_bf16"};
    enum { ISAS = sizeof isas / sizeof *isas };
    int ran = 0;
    for (int i = 0; i < DTYPES * kernel_cases_count; i += test_sample()) {
        kc_values v = values_of(i);
        for (int at = 0; at < 2 * ISAS; at++) {
            setenv("TESSERA_CPU_ISA", isas[at % ISAS], 1);
            omp_set_num_threads(at < ISAS ? 1 : 3);
            for (const tsri_kernels *const *impl = tsri_kernels_cpu(); impl[1]; impl++)
                ran += run_case(&v, *impl, isas[at % ISAS], dtypes[i % DTYPES], KC_ROW);
        }
        omp_set_num_threads(1);
        unsetenv("TESSERA_CPU_ISA");
        kc_values_free(&v);
    }
    assert_true(ran > 3000 / test_sample());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_against_formulas),
        cmocka_unit_test(test_layouts_agree),
        cmocka_unit_test(test_implementations),
        cmocka_unit_test(test_every_dtype_is_taken),
        cmocka_unit_test(test_instruction_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
