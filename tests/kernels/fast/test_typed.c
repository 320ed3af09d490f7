/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons and conversions on CPUs, of every pair of dtypes, arithmetic of whole numbers and
 * choices by a condition, with what does not fit and what is no number among the operands: bit for
 * bit as the reference has them. */
#include "tests/kernels/fast/fast_case.h"

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
static const tsr_dtype dtypes[] = {TSR_F32, TSR_F64, TSR_I64, TSR_I32, TSR_U8, TSR_BOOL};
enum { DTYPES = sizeof dtypes / sizeof *dtypes, ROWS = 7, COLUMNS = 67 };

/* Numbers of both signs, edges of whole numbers on either side, infinities and NaN. */
static void fill(fc_tensor *t, int salt)
{
    static const double edges[] = {NAN,     INFINITY, -INFINITY, 0x1p31, -0x1p31, 0x1p63,
                                   -0x1p63, 0x1p62,   1e300,     -1e300, 0.75,    -0.75,
                                   -0.0,    255.9,    -1,        256};
    enum { EDGES = sizeof edges / sizeof *edges };
    for (int64_t i = 0; i < t->n; i++) {
        const int64_t at = (i * 7 + salt) % 53;
        const double v = at < EDGES ? edges[at] : (double)(at - 35) / 2;
        switch (t->arg.dtype) {
        case TSR_F32:
            ((float *)t->data)[i] = (float)v;
            break;
        case TSR_F64:
            ((double *)t->data)[i] = v;
            break;
        case TSR_I64:
            ((int64_t *)t->data)[i] =
                at < EDGES ? (int64_t)(UINT64_C(0x8000000080000000) >> at) : at - 35;
            break;
        case TSR_I32:
            ((int32_t *)t->data)[i] =
                at < EDGES ? (int32_t)(UINT32_C(0x80000000) >> at) : (int32_t)at - 35;
            break;
        default:
            ((uint8_t *)t->data)[i] = (uint8_t)(t->arg.dtype == TSR_BOOL ? at & 1 : at * 5);
        }
    }
}

static void same_as_reference(tsri_op_kind op, const tsri_attrs *at, int nin, fc_tensor *const *in,
                              tsr_dtype to)
{
    fc_tensor got = fc_rows(to, 2, ROWS, COLUMNS, 0, 0), want = fc_rows(to, 2, ROWS, COLUMNS, 0, 0);
    assert_true(fc_run(&tsri_kernels_cpu_fast, op, at, 0, nin, in, 1, (fc_tensor *[]){&got}));
    assert_true(fc_run(&tsri_kernels_cpu_ref, op, at, 0, nin, in, 1, (fc_tensor *[]){&want}));
    const size_t size = tsr_dtype_size(to);
    for (int64_t i = 0; i < got.n; i++)
        if (memcmp((char *)got.data + i * (int64_t)size, (char *)want.data + i * (int64_t)size,
                   size) != 0)
            fail_msg("%s of %s to %s: element %d is not the reference's", tsri_op_name(op),
                     tsr_dtype_name(in[0]->arg.dtype), tsr_dtype_name(to), (int)i);
    fc_free(2, (fc_tensor *[]){&got, &want});
}

static void test_casts(void **state)
{
    (void)state;
    const tsri_attrs at = {0};
    for (int i = 0; i < 3 * DTYPES * DTYPES; i++) {
        const tsr_dtype from = dtypes[i / 3 % DTYPES], to = dtypes[i / 3 / DTYPES];
        if (from == to || from == TSR_BOOL) /* bool: as u8, of 0 and 1 alone */
            continue;
        setenv("TESSERA_CPU_ISA", isas[i % 3], 1);
        fc_tensor x = fc_rows(from, 2, ROWS, COLUMNS, 0, 0);
        fill(&x, i);
        same_as_reference(TSRI_OP_CAST, &at, 1, (fc_tensor *[]){&x}, to);
        fc_free(1, (fc_tensor *[]){&x});
    }
    unsetenv("TESSERA_CPU_ISA");
}

/* Operands of one shape, and a row, a column and a single number beside a matrix, on either side.
 */
static const int64_t shapes[][4] = {{ROWS, COLUMNS, ROWS, COLUMNS},
                                    {ROWS, COLUMNS, 1, COLUMNS},
                                    {ROWS, 1, ROWS, COLUMNS},
                                    {1, 1, ROWS, COLUMNS},
                                    {ROWS, COLUMNS, ROWS, 1}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void test_comparisons(void **state)
{
    (void)state;
    enum { FUNCTIONS = 6 };
    for (int i = 0; i < 3 * DTYPES * SHAPES * FUNCTIONS; i++) {
        const tsr_dtype dtype = dtypes[i / 3 % DTYPES];
        const int64_t *s = shapes[i / 3 / DTYPES % SHAPES];
        const int fn = TSRI_BINARY_EQUAL + i / 3 / DTYPES / SHAPES;
        const tsri_attrs at = {.binary = {.fn = (tsri_binary_fn)fn}};
        setenv("TESSERA_CPU_ISA", isas[i % 3], 1);
        fc_tensor x = fc_rows(dtype, 2, s[0], s[1], 0, 0), u = fc_rows(dtype, 2, s[2], s[3], 0, 0);
        fill(&x, i);
        fill(&u, i % 5 ? i + 3 : i);
        same_as_reference(TSRI_OP_BINARY, &at, 2, (fc_tensor *[]){&x, &u}, TSR_BOOL);
        fc_free(2, (fc_tensor *[]){&x, &u});
    }
    unsetenv("TESSERA_CPU_ISA");
}

/* Numbers around those whose quotients f64 has, of both signs, and around 0. */
static void fill_whole(fc_tensor *t, int salt)
{
    for (int64_t i = 0; i < t->n; i++) {
        const int64_t at = i * 13 + salt, near = at % 7 - 3;
        const int shift = (int)(at % 5 < 3 ? at % 11 : 44 + at % 20);
        const int64_t v =
            (int64_t)(((at % 2 ? UINT64_C(1) : UINT64_C(0) - 1) << shift) + (uint64_t)near);
        if (t->arg.dtype == TSR_I64)
            ((int64_t *)t->data)[i] = v;
        else
            ((int32_t *)t->data)[i] = (int32_t)(v % 100000 + (at % 97 == 0 ? INT32_MIN : 0));
    }
}

static void test_arithmetic(void **state)
{
    (void)state;
    int taken = 0;
    for (int i = 0; i < 3 * 2 * SHAPES * TSRI_BINARY_EQUAL; i++) {
        const tsr_dtype dtype = i / 3 % 2 ? TSR_I64 : TSR_I32;
        const int64_t *s = shapes[i / 6 % SHAPES];
        const tsri_attrs at = {.binary = {.fn = (tsri_binary_fn)(i / 6 / SHAPES)}};
        setenv("TESSERA_CPU_ISA", isas[i % 3], 1);
        fc_tensor x = fc_rows(dtype, 2, s[0], s[1], 0, 0), u = fc_rows(dtype, 2, s[2], s[3], 0, 0);
        fc_tensor y = fc_rows(dtype, 2, ROWS, COLUMNS, 0, 0), *in[2] = {&x, &u}, *out[1] = {&y};
        fill_whole(&x, i);
        fill_whole(&u, i + 5);
        if (fc_run(&tsri_kernels_cpu_fast, TSRI_OP_BINARY, &at, 0, 2, in, 1, out)) {
            same_as_reference(TSRI_OP_BINARY, &at, 2, in, dtype);
            taken++;
        }
        fc_free(3, (fc_tensor *[]){&x, &u, &y});
    }
    assert_int_equal(taken, 3 * SHAPES * (13 + 10)); /* i32 is divided by the reference */
    unsetenv("TESSERA_CPU_ISA");
}

/* Quotients that f64 rounds, one beside each multiple. */
static void test_large_quotients(void **state)
{
    (void)state;
    enum { N = 4001 };
    fc_tensor x = fc_rows(TSR_I64, 1, N, 0, 0, 0), u = fc_rows(TSR_I64, 1, N, 0, 0, 0);
    for (int64_t i = 0; i < N; i++) {
        const int64_t by = (i % 61 + 1) * (i % 2 ? 1 : -1), most = (INT64_C(1) << 51) - 1;
        ((int64_t *)u.data)[i] = by;
        ((int64_t *)x.data)[i] = (most / by - i % 1000) * by + i % 3 - 1;
    }
    for (int i = 0; i < 9; i++) {
        const tsri_attrs at = {.binary = {.fn = i / 3 == 0   ? TSRI_BINARY_FMOD
                                                : i / 3 == 1 ? TSRI_BINARY_REMAINDER
                                                             : TSRI_BINARY_FLOOR_DIVIDE}};
        fc_tensor y = fc_rows(TSR_I64, 1, N, 0, 0, 0), want = fc_rows(TSR_I64, 1, N, 0, 0, 0);
        fc_tensor *in[2] = {&x, &u};
        setenv("TESSERA_CPU_ISA", isas[i % 3], 1);
        assert_true(
            fc_run(&tsri_kernels_cpu_fast, TSRI_OP_BINARY, &at, 0, 2, in, 1, (fc_tensor *[]){&y}));
        assert_true(fc_run(&tsri_kernels_cpu_ref, TSRI_OP_BINARY, &at, 0, 2, in, 1,
                           (fc_tensor *[]){&want}));
        assert_memory_equal(y.data, want.data, N * sizeof(int64_t));
        fc_free(2, (fc_tensor *[]){&y, &want});
    }
    fc_free(2, (fc_tensor *[]){&x, &u});
    unsetenv("TESSERA_CPU_ISA");
}

/* where and its gradient's masks, whose condition is true for any byte but 0. */
static void test_choices(void **state)
{
    (void)state;
    static const tsr_dtype of[] = {TSR_U8, TSR_BF16, TSR_F32, TSR_I64};
    for (int i = 0; i < 3 * 4 * SHAPES * 3; i++) {
        const tsr_dtype dtype = of[i / 3 % 4];
        const int64_t *s = shapes[i / 12 % SHAPES];
        const int what = i / 12 / SHAPES; /* where, and masks that keep either */
        const tsri_attrs at = {.mask = {.keep = what == 1}};
        fc_tensor c = fc_rows(TSR_BOOL, 2, ROWS, COLUMNS, 0, 0);
        fc_tensor x = fc_rows(dtype, 2, s[0], s[1], 0, 0), u = fc_rows(dtype, 2, s[2], s[3], 0, 0);
        fc_tensor *in[3] = {&c, &x, &u};
        setenv("TESSERA_CPU_ISA", isas[i % 3], 1);
        for (int64_t k = 0; k < c.n; k++)
            ((uint8_t *)c.data)[k] = (uint8_t)((k * 7 + i) % 3 ? 0 : 1 + what * 2);
        for (int64_t k = 0; k < x.n * (int64_t)tsr_dtype_size(dtype); k++)
            ((uint8_t *)x.data)[k] = (uint8_t)(k * 29 + i);
        for (int64_t k = 0; k < u.n * (int64_t)tsr_dtype_size(dtype); k++)
            ((uint8_t *)u.data)[k] = (uint8_t)(k * 31 + i + 1);
        same_as_reference(what ? TSRI_OP_MASK : TSRI_OP_WHERE, &at, what ? 2 : 3, in, dtype);
        fc_free(3, (fc_tensor *[]){&c, &x, &u});
    }
    unsetenv("TESSERA_CPU_ISA");
}

/* Whole numbers by rows, by columns and in the middle, with tails, by one thread and by three. */
static void test_whole_reductions(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {{7, 33, 1, 2},   {300, 67, 1, 2}, {1, 40003, 1, 2},
                                       {3, 5000, 7, 2}, {40, 9, 21, 2},  {9, 5, 3, 7},
                                       {1, 300, 17, 1}, {1, 1, 5, 2},    {2, 30001, 2, 5}};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    for (int i = 0; i < 3 * 3 * 2 * SIZES; i++) {
        const int64_t *s = sizes[i / 18];
        const uint32_t axes = (uint32_t)s[3];
        const tsri_attrs at = {.reduce = {.op = i / 3 % 3, .axes = axes, .scale = 1}};
        int64_t kept[3] = {1, 1, 1};
        int n = 0;
        for (int a = 0; a < 3; a++)
            if (!(axes >> a & 1))
                kept[n++] = s[a];
        setenv("TESSERA_CPU_ISA", isas[i % 3], 1);
        omp_set_num_threads(1 + i / 9 % 2 * 2);
        fc_tensor x = fc_rows(TSR_I64, 3, s[0], s[1], s[2], 0);
        fc_tensor got = fc_rows(TSR_I64, n, kept[0], kept[1], kept[2], 0);
        fc_tensor want = fc_rows(TSR_I64, n, kept[0], kept[1], kept[2], 0);
        fill(&x, i);
        assert_true(fc_run(&tsri_kernels_cpu_fast, TSRI_OP_REDUCE, &at, 0, 1, (fc_tensor *[]){&x},
                           1, (fc_tensor *[]){&got}));
        assert_true(fc_run(&tsri_kernels_cpu_ref, TSRI_OP_REDUCE, &at, 0, 1, (fc_tensor *[]){&x}, 1,
                           (fc_tensor *[]){&want}));
        assert_memory_equal(got.data, want.data, (size_t)got.n * sizeof(int64_t));
        fc_free(3, (fc_tensor *[]){&x, &got, &want});
    }
    unsetenv("TESSERA_CPU_ISA");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_casts),      cmocka_unit_test(test_comparisons),
        cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_large_quotients),
        cmocka_unit_test(test_choices),    cmocka_unit_test(test_whole_reductions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
