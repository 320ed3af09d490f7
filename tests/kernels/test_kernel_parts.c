/* SPDX-License-Identifier: Apache-2.0 */
/* Parts in time where the table of cases does not reach: shards, all parts in turn, the parts of a
 * dropout against the whole, and special values of totals. */
#include "cases.h"

#include <tessera/sbp.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "tests/kernels/shards.h"

/* Shards of parts in time, on 1, 2 and 4 ranks: of whole blocks where rows move, of any rows where
 * elements are dropped. */
static void test_part_shards(void **state)
{
    (void)state;
    const int rows[3] = {0, -1, 0}, columns[3] = {1, -1, 1}, drops[3] = {0, -1, -1};
    for (int64_t ranks = 1; ranks <= 4; ranks *= 2)
        for (int64_t r = 0; r < ranks; r++) {
            /* 4 blocks of 20 rows, of each of 3 parts */
            const int64_t n = 80 / ranks, begin = r * n;
            check_shard("part long blocks", rows, 0, (int64_t[]){3 * begin}, (int64_t[]){3 * n},
                        begin, n);
            check_shard("whole long blocks", rows, 0, (int64_t[]){begin, 0, 3 * begin},
                        (int64_t[]){n, 0, 3 * n}, 3 * begin, 3 * n);
            check_shard("part long blocks", columns, 1, (int64_t[]){r * 66}, (int64_t[]){66},
                        r * 66, 66);
            check_shard("whole long blocks", columns, 1, (int64_t[]){r * 66, 0, r * 66},
                        (int64_t[]){66, 0, 66}, r * 66, 66);
        }
    /* 3 blocks of 2 samples */
    for (int64_t first = 0; first < 6; first++)
        for (int64_t n = 1; n <= 6 - first; n++)
            check_shard("dropout part of blocks", drops, 0, &first, &n, first, n);
    const int pixels[3] = {3, -1, -1};
    for (int64_t first = 0; first < 6; first++)
        check_shard("dropout part pixels of blocks", pixels, 3, &first, (int64_t[]){6 - first},
                    first, 6 - first);
}

/* Dropout of the parts equals dropout of the whole tensor, bit for bit. */
static void drops_alike(int64_t k, int64_t d, int64_t n, const tsri_kernels *impl)
{
    enum { COLUMNS = 37 };
    const int64_t rows = d * k * n, count = rows * COLUMNS;
    kernel_case c = {.name = "dropout", .op = TSRI_OP_DROPOUT, .nin = 2, .nout = 1};
    c.attrs.dropout.key = 99;
    c.attrs.dropout.p = 0.4;
    c.in[0].dims = c.out[0].dims = (tsr_dims){2, {rows, COLUMNS}};
    c.in[1].dtype = c.in[2].dtype = TSR_I64;
    double *x = zeros(&c.in[0]), *y = zeros(&c.in[0]), *part = zeros(&c.in[0]);
    double *got = zeros(&c.in[0]), step = 5, m = 0;
    for (int64_t i = 0; i < count; i++)
        x[i] = (double)(i % 100 + 1);
    assert_int_equal(kc_run(&c, impl, TSR_F32, KC_ROW, (double *[]){x, &step}, &y), TSR_OK);
    c.nin = 3;
    c.attrs.dropout.parts = (int32_t)k;
    c.attrs.dropout.blocks = d;
    c.in[0].dims.d[0] = c.out[0].dims.d[0] = d * n;
    for (; m < (double)k; m++) {
        for (int64_t i = 0; i < d * n * COLUMNS; i++)
            part[i] = x[(i / (n * COLUMNS) * k + (int64_t)m) * n * COLUMNS + i % (n * COLUMNS)];
        const tsr_status status =
            kc_run(&c, impl, TSR_F32, KC_ROW, (double *[]){part, &step, &m}, &got);
        assert_int_equal(status, d > 1 && impl != reference() ? TSR_ERR_UNSUPPORTED : TSR_OK);
        for (int64_t i = 0; status == TSR_OK && i < d * n * COLUMNS; i++)
            assert_true(got[i] ==
                        y[(i / (n * COLUMNS) * k + (int64_t)m) * n * COLUMNS + i % (n * COLUMNS)]);
    }
    free(x);
    free(y);
    free(part);
    free(got);
}

static void test_parts_drop_alike(void **state)
{
    (void)state;
    for (int64_t k = 1; k <= 5; k++)
        for (int64_t d = 1; d <= 4; d++)
            for (int64_t n = 1; n <= 7; n += 3) {
                drops_alike(k, d, n, reference());
                drops_alike(k, d, n, *tsri_kernels_cpu());
            }
}

/* Sums and extremes keep a NaN, +0 is more than -0, and the first part overwrites the old value. */
static void test_special_totals(void **state)
{
    (void)state;
    static const struct {
        tsr_reduce_op op;
        double held, x, want;
    } sums[] = {
        {TSR_REDUCE_SUM, NAN, 1, NAN},       {TSR_REDUCE_SUM, 1, NAN, NAN},
        {TSR_REDUCE_MAX, NAN, 1, NAN},       {TSR_REDUCE_MAX, 1, NAN, NAN},
        {TSR_REDUCE_MIN, NAN, 1, NAN},       {TSR_REDUCE_MIN, 1, NAN, NAN},
        {TSR_REDUCE_MAX, -0.0, 0.0, 0.0},    {TSR_REDUCE_MAX, 0.0, -0.0, 0.0},
        {TSR_REDUCE_MIN, -0.0, 0.0, -0.0},   {TSR_REDUCE_MIN, 0.0, -0.0, -0.0},
        {TSR_REDUCE_MAX, -INFINITY, -1, -1}, {TSR_REDUCE_SUM, INFINITY, 1, INFINITY},
    };
    kernel_case c = find("total a number");
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        for (int first = 0; first < 2; first++) {
            double x = sums[i].x, held = sums[i].held, m = !first, got = 0;
            const double want = first ? x : sums[i].want;
            c.attrs.total.op = (int32_t)sums[i].op;
            run(&c, KC_ROW, (double *[]){&x, &m, &held}, (double *[]){&got});
            assert_true((isnan(got) && isnan(want)) ||
                        (got == want && signbit(got) == signbit(want)));
        }
}

/* Whole numbers wrap in their own dtype, and keep digits that a double has not. */
static void test_whole_totals(void **state)
{
    (void)state;
    const tsri_attrs attrs = {.total = {TSR_REDUCE_SUM, 0}};
    tsri_kernel_desc d = {.op = TSRI_OP_TOTAL, .attrs = &attrs, .nin = 2, .nout = 1};
    int64_t m = 1, large = INT64_MAX, total = 2;
    int32_t total32 = INT32_MAX, x32 = 3;
    tsri_kernel *k;
    d.in[0].dtype = d.in[1].dtype = d.out[0].dtype = TSR_I64;
    assert_int_equal(tsri_kernel_create(NULL, tsri_kernels_cpu(), &d, &k), TSR_OK);
    void *in[] = {&large, &m}, *out[] = {&total};
    assert_int_equal(k->run(k, in, out, NULL), TSR_OK);
    assert_true(total == INT64_MIN + 1);
    k->destroy(k);
    d.in[0].dtype = d.out[0].dtype = TSR_I32;
    assert_int_equal(tsri_kernel_create(NULL, tsri_kernels_cpu(), &d, &k), TSR_OK);
    in[0] = &x32;
    out[0] = &total32;
    assert_int_equal(k->run(k, in, out, NULL), TSR_OK);
    assert_int_equal(total32, INT32_MIN + 2);
    k->destroy(k);
}

/* PART of each part, then WHOLE of each, gives the whole tensor. */
static void parts_in_turn(const tsri_kernels *impl, int64_t d, int32_t k, int64_t n)
{
    enum { COLUMNS = 19, MOST = 4 * 5 * 7 * COLUMNS };
    const tsri_attrs attrs = {.part = {0, k, d}};
    const tsri_arg number = {.dtype = TSR_I64};
    const tsri_arg part = {.dtype = TSR_F32,
                           .ndim = 2,
                           .shape = {d * n, COLUMNS},
                           .stride = {COLUMNS, 1},
                           .gshape = {d * n, COLUMNS}};
    tsri_arg whole = part;
    whole.shape[0] = whole.gshape[0] = d * k * n;
    tsri_kernel_desc take = {.op = TSRI_OP_PART, .attrs = &attrs, .nin = 2, .nout = 1};
    tsri_kernel_desc put = {.op = TSRI_OP_WHOLE, .attrs = &attrs, .nin = 2, .nout = 1};
    take.in[0] = put.out[0] = whole;
    take.out[0] = put.in[0] = part;
    take.in[1] = put.in[1] = number;
    float x[MOST], rows[MOST], y[MOST];
    tsri_kernel *taking, *putting;
    assert_int_equal(impl->slot[TSRI_OP_PART](NULL, &take, &taking), TSR_OK);
    assert_int_equal(impl->slot[TSRI_OP_WHOLE](NULL, &put, &putting), TSR_OK);
    const int64_t count = d * k * n * COLUMNS;
    for (int64_t i = 0; i < count; i++) {
        x[i] = (float)i;
        y[i] = -1;
    }
    for (int64_t m = 0; m < k; m++) {
        assert_int_equal(taking->run(taking, (void *[]){x, &m}, (void *[]){rows}, NULL), TSR_OK);
        for (int64_t i = 0; i < d * n; i++)
            assert_true(rows[i * COLUMNS] == x[(i / n * k * n + m * n + i % n) * COLUMNS]);
        assert_int_equal(putting->run(putting, (void *[]){rows, &m}, (void *[]){y}, NULL), TSR_OK);
        int64_t written = 0;
        for (int64_t i = 0; i < count; i++)
            written += y[i] == x[i];
        assert_int_equal(written, (m + 1) * d * n * COLUMNS);
    }
    int64_t none[] = {-1, k};
    for (int i = 0; i < 2; i++)
        assert_int_equal(taking->run(taking, (void *[]){x, &none[i]}, (void *[]){rows}, NULL),
                         TSR_ERR_INVALID);
    taking->destroy(taking);
    putting->destroy(putting);
}

static void test_parts_in_turn(void **state)
{
    (void)state;
    for (int64_t d = 1; d <= 4; d++)
        for (int32_t k = 1; k <= 5; k++)
            for (int64_t n = 1; n <= 7; n += 3) {
                parts_in_turn(reference(), d, k, n);
                parts_in_turn(*tsri_kernels_cpu(), d, k, n);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_part_shards),    cmocka_unit_test(test_parts_drop_alike),
        cmocka_unit_test(test_special_totals), cmocka_unit_test(test_whole_totals),
        cmocka_unit_test(test_parts_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
