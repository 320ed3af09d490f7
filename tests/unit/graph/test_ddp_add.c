/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adding a gradient to one that is there, in each dtype and at lengths around the chunks in which
 * 16-bit numbers are added. The numbers are halves of small integers, so that every sum is exact.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "src/core/convert.h"
#include "src/train/ddp.h"

enum { MOST = 1600, BEHIND = 64 /* bytes that must stay as they are */ };

static void check_sum(tsr_dtype dtype, int64_t n)
{
    double a[MOST], b[MOST];
    static unsigned char into[MOST * 8 + BEHIND], from[MOST * 8 + BEHIND];
    size_t bytes = (size_t)n * tsr_dtype_size(dtype);
    for (int64_t i = 0; i < n; i++) {
        a[i] = (double)(i % 23 - 11) / 2;
        b[i] = (double)(i % 17 - 8) / 2;
    }
    memset(into, 0xa5, sizeof into);
    assert_int_equal(tsri_convert(into, dtype, a, TSR_F64, n), TSR_OK);
    assert_int_equal(tsri_convert(from, dtype, b, TSR_F64, n), TSR_OK);
    tsri_ddp_add(dtype, n, into, from);
    assert_int_equal(tsri_convert(b, TSR_F64, into, dtype, n), TSR_OK);
    for (int64_t i = 0; i < n; i++)
        assert_true(b[i] == a[i] + (double)(i % 17 - 8) / 2);
    for (size_t i = bytes; i < bytes + BEHIND; i++)
        assert_int_equal(into[i], 0xa5);
}

static void test_sums(void **state)
{
    (void)state;
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F64, TSR_F16, TSR_BF16};
    static const int64_t lengths[] = {0, 1, 511, 512, 513, 1024, 1537};
    for (int d = 0; d < 4; d++)
        for (int l = 0; l < 7; l++)
            check_sum(dtypes[d], lengths[l]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
