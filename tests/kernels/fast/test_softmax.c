/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax over any axis, cross entropy and their gradients by the fast kernels, of every
 * instruction set that this machine has, against the reference. */
#include "tests/kernels/fast/fast_case.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const char *const isas[] = {"base", "avx2", "avx512"};

/* Whether the fast kernel takes an op, and makes what the reference makes of the same operands, to
 * `tol` of the largest; NaN where that is NaN. */
static void like_reference(tsri_op_kind op, const tsri_attrs *at, int nin, fc_tensor *const *in,
                           int nout, fc_tensor *const *got, fc_tensor *const *want, double tol)
{
    assert_true(fc_run(&tsri_kernels_cpu_fast, op, at, 0, nin, in, nout, got));
    assert_true(fc_run(&tsri_kernels_cpu_ref, op, at, 0, nin, in, nout, want));
    for (int o = 0; o < nout; o++)
        for (int64_t i = 0; i < got[o]->n; i++) {
            const bool wide = got[o]->arg.dtype == TSR_F64;
            const double g =
                wide ? ((double *)got[o]->data)[i] : (double)((float *)got[o]->data)[i];
            const double w =
                wide ? ((double *)want[o]->data)[i] : (double)((float *)want[o]->data)[i];
            if (isnan(w) ? !isnan(g) : !(g == w || fabs(g - w) <= tol * fmax(1, fabs(w))))
                fail_msg("%s: result %d, element %ld is %.9g, not %.9g", tsri_op_name(op), o,
                         (long)i, g, w);
        }
}

/* Over the middle axis, of lengths around a vector's and a block's of columns. */
static void test_softmax(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 2, 1},    {3, 5, 1},    {7, 133, 1}, {1, 3, 2},
                                        {2, 9, 17},   {3, 10, 256}, {2, 3, 300}, {1, 5000, 3},
                                        {1, 40, 700}, {200, 1, 90}};
    for (int i = 0; i < 3 * 2 * 2 * (int)(sizeof shapes / sizeof *shapes); i++) {
        const int64_t *s = shapes[i / 12];
        const tsri_attrs at = {.softmax = {.axis = 1, .log = i / 3 % 2}};
        setenv("TESSERA_CPU_ISA", isas[i % 3], 1);
        omp_set_num_threads(1 + i % 2 * 2);
        fc_tensor x = fc_rows(TSR_F32, 3, s[0], s[1], s[2], 0), dy = x;
        fc_tensor y = fc_rows(TSR_F32, 3, s[0], s[1], s[2], 0);
        fc_tensor dx = fc_rows(TSR_F32, 3, s[0], s[1], s[2], 0);
        fc_tensor want = fc_rows(TSR_F32, 3, s[0], s[1], s[2], 0);
        for (int64_t k = 0; k < x.n; k++)
            ((float *)x.data)[k] *= 20;
        if (i / 6 % 2) { /* a column of one NaN, and one of an infinity */
            ((float *)x.data)[x.n - 1] = NAN;
            ((float *)x.data)[0] = -INFINITY;
        }
        like_reference(TSRI_OP_SOFTMAX, &at, 1, (fc_tensor *[]){&x}, 1, (fc_tensor *[]){&y},
                       (fc_tensor *[]){&want}, 1e-6);
        if (i / 6 % 2 == 0)
            like_reference(TSRI_OP_SOFTMAX_DX, &at, 2, (fc_tensor *[]){&y, &dy}, 1,
                           (fc_tensor *[]){&dx}, (fc_tensor *[]){&want}, 3e-5);
        fc_free(4, (fc_tensor *[]){&x, &y, &dx, &want});
    }
}

static void test_cross_entropy(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1}, {5, 3}, {9, 17}, {33, 1000}, {3, 40001}};
    for (int i = 0; i < 3 * 4 * (int)(sizeof shapes / sizeof *shapes); i++) {
        const int64_t n = shapes[i / 12][0], c = shapes[i / 12][1];
        tsri_attrs at = {.ce = {.classes = c}};
        at.ce.smoothing = i / 3 % 2 ? 0.1 : 0;
        at.ce.has_ignore = i / 6 % 2;
        at.ce.ignore_index = -100;
        setenv("TESSERA_CPU_ISA", isas[i % 3], 1);
        omp_set_num_threads(1 + i % 2 * 2);
        fc_tensor x = fc_rows(TSR_F32, 2, n, c, 0, 0), label = fc_rows(TSR_I64, 1, n, 0, 0, 0);
        fc_tensor dl = fc_rows(TSR_F32, 1, n, 0, 0, 0), m = fc_rows(TSR_F32, 1, n, 0, 0, 0);
        fc_tensor got[3], want[3], dx[2], terms[2];
        fc_tensor *to[2][3];
        for (int k = 0; k < 6; k++) {
            fc_tensor *t = k < 3 ? &got[k] : &want[k - 3];
            *t = k % 3 < 2 ? fc_rows(TSR_F32, 1, n, 0, 0, 0) : fc_rows(TSR_F32, 2, n, 2, 0, 0);
            to[k / 3][k % 3] = t;
        }
        for (int k = 0; k < 2; k++) {
            dx[k] = fc_rows(TSR_F32, 2, n, c, 0, 0);
            terms[k] = fc_rows(TSR_F64, 2, n, 3, 0, 0);
        }
        for (int64_t k = 0; k < x.n; k++)
            ((float *)x.data)[k] *= 10;
        for (int64_t k = 0; k < n; k++)
            ((int64_t *)label.data)[k] = at.ce.has_ignore && k % 3 == 1 ? -100 : k * 7 % c;
        ((float *)x.data)[x.n - 1] = i / 3 % 4 == 3 && n > 1 ? NAN : 1;
        like_reference(TSRI_OP_CE, &at, 2, (fc_tensor *[]){&x, &label}, 3, to[0], to[1], 1e-6);
        like_reference(TSRI_OP_CE_DX, &at, 4, (fc_tensor *[]){&x, &label, &want[2], &dl}, 1,
                       (fc_tensor *[]){&dx[0]}, (fc_tensor *[]){&dx[1]}, 3e-6);
        x.arg.offset[1] = 3 < c ? 3 : 0; /* a shard of the classes */
        x.arg.gshape[1] = c + x.arg.offset[1];
        for (int64_t k = 0; k < n; k++)
            ((float *)m.data)[k] = 10;
        like_reference(TSRI_OP_CE_TERMS, &at, 3, (fc_tensor *[]){&x, &label, &m}, 1,
                       (fc_tensor *[]){&terms[0]}, (fc_tensor *[]){&terms[1]}, 1e-6);
        fc_free(14, (fc_tensor *[]){&x, &label, &dl, &m, &got[0], &got[1], &got[2], &want[0],
                                    &want[1], &want[2], &dx[0], &dx[1], &terms[0], &terms[1]});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_softmax),
                                       cmocka_unit_test(test_cross_entropy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
