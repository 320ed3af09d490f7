/* SPDX-License-Identifier: Apache-2.0 */
/* Every case on every implementation, in every layout, against the f64 reference; the reference
 * against the formulas of oracle.c. Gradients have no formula there: see test_kernel_grads.c. */
#include "cases.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

typedef struct values {
    const kernel_case *c;
    double *in[8], *out[4], *want[4];
} values;

static values make_values(const kernel_case *c)
{
    values v = {.c = c};
    for (int i = 0; i < c->nin; i++)
        v.in[i] = kc_make(c, i, 11);
    for (int i = 0; i < c->nout; i++) {
        v.out[i] = calloc((size_t)kc_count(&c->out[i]) + 1, sizeof(double));
        v.want[i] = calloc((size_t)kc_count(&c->out[i]) + 1, sizeof(double));
        assert_true(v.out[i] && v.want[i]);
    }
    return v;
}

static void free_values(values *v)
{
    for (int i = 0; i < 8; i++)
        free(v->in[i]);
    for (int i = 0; i < 4; i++) {
        free(v->out[i]);
        free(v->want[i]);
    }
}

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

static void compare(const values *v, const char *who, double tolerance)
{
    for (int o = 0; o < v->c->nout; o++) {
        const kc_arg *a = &v->c->out[o];
        bool exact = a->dtype != TSR_DTYPE_NONE && a->dtype != TSR_F64;
        double top = 0;
        for (int64_t i = 0; i < kc_count(a); i++)
            top = fmax(top, fabs(v->want[o][i]));
        for (int64_t i = 0; i < kc_count(a); i++) {
            double limit = exact || is_fault(v->c) ? 0 : tolerance * top;
            if (v->out[o][i] == v->want[o][i]) /* infinite ones too */
                continue;
            /* Written so that a NaN fails. */
            if (!(fabs(v->out[o][i] - v->want[o][i]) <= limit))
                fail_msg("%s, %s: result %d, element %lld is %.17g, not %.17g", v->c->name, who, o,
                         (long long)i, v->out[o][i], v->want[o][i]);
        }
    }
}

static void test_reference_against_formulas(void **state)
{
    (void)state;
    int checked = 0;
    for (int i = 0; i < kernel_cases_count; i++) {
        values v = make_values(&kernel_cases[i]);
        if (kc_oracle(v.c, v.in, v.want)) {
            for (int layout = KC_ROW; layout <= KC_OTHER; layout++) {
                if (kc_run(v.c, reference(), TSR_F64, (kc_layout)layout, v.in, v.out) != TSR_OK)
                    fail_msg("%s: %s", v.c->name, tsr_last_error());
                compare(&v, "reference", 1e-13);
            }
            checked++;
        }
        free_values(&v);
    }
    print_message("%d cases have a formula\n", checked);
    assert_true(checked > 80);
}

static void test_layouts_agree(void **state)
{
    (void)state;
    for (int i = 0; i < kernel_cases_count; i++) {
        values v = make_values(&kernel_cases[i]);
        assert_int_equal(kc_run(v.c, reference(), TSR_F64, KC_ROW, v.in, v.want), TSR_OK);
        for (int layout = KC_NHWC; layout <= KC_OTHER; layout++) {
            assert_int_equal(kc_run(v.c, reference(), TSR_F64, (kc_layout)layout, v.in, v.out),
                             TSR_OK);
            /* Not bit for bit: long sums are added in the order of memory. */
            compare(&v, layout == KC_NHWC ? "channels last" : "mixed layouts", 1e-13);
        }
        free_values(&v);
    }
}

static void test_implementations(void **state)
{
    (void)state;
    for (const tsri_kernels *const *impl = tsri_kernels_cpu(); *impl; impl++) {
        int ran = 0, declined = 0;
        for (int i = 0; i < kernel_cases_count; i++) {
            values v = make_values(&kernel_cases[i]);
            assert_int_equal(kc_run(v.c, reference(), TSR_F64, KC_ROW, v.in, v.want), TSR_OK);
            for (int layout = KC_ROW; layout <= KC_OTHER; layout++) {
                tsr_status s = kc_run(v.c, *impl, TSR_F32, (kc_layout)layout, v.in, v.out);
                if (s == TSR_ERR_UNSUPPORTED && *impl != reference()) {
                    declined++;
                    continue;
                }
                if (s != TSR_OK)
                    fail_msg("%s, %s: %s", v.c->name, (*impl)->name, tsr_last_error());
                compare(&v, (*impl)->name, v.c->tolerance > 0 ? v.c->tolerance : 2e-5);
                ran++;
            }
            free_values(&v);
        }
        print_message("%s: %d runs, %d declined\n", (*impl)->name, ran, declined);
        assert_true(ran > 0);
    }
}

/* The fast kernels' every instruction set, alone and in a team that some cases are worth. */
static void test_instruction_sets(void **state)
{
    (void)state;
    static const char *const isas[] = {"base", "avx2", "avx512"};
    int ran = 0;
    for (int i = 0; i < 3 * kernel_cases_count; i++) {
        values v = make_values(&kernel_cases[i / 3]);
        setenv("TESSERA_CPU_ISA", isas[i % 3], 1);
        assert_int_equal(kc_run(v.c, reference(), TSR_F64, KC_ROW, v.in, v.want), TSR_OK);
        for (int threads = 1; threads <= 3; threads += 2) {
            omp_set_num_threads(threads);
            tsr_status s = kc_run(v.c, *tsri_kernels_cpu(), TSR_F32, KC_ROW, v.in, v.out);
            if (s == TSR_ERR_UNSUPPORTED)
                continue;
            if (s != TSR_OK)
                fail_msg("%s, %s: %s", v.c->name, isas[i % 3], tsr_last_error());
            compare(&v, isas[i % 3], v.c->tolerance > 0 ? v.c->tolerance : 2e-5);
            ran++;
        }
        omp_set_num_threads(1);
        free_values(&v);
    }
    unsetenv("TESSERA_CPU_ISA");
    assert_true(ran > 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_against_formulas),
        cmocka_unit_test(test_layouts_agree),
        cmocka_unit_test(test_implementations),
        cmocka_unit_test(test_instruction_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
