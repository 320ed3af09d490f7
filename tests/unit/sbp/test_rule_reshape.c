/* SPDX-License-Identifier: Apache-2.0 */
/* Reshape: the rules of known cases, and all pairs of small shapes against really splitting. */
#include "sbp/rule/rule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <tessera/placement.h>

static void check_text(tsr_dims from, tsr_dims to, const char *want)
{
    char buf[256];
    tsri_index_size sizes[TSRI_RULE_MAX_INDICES];
    int n;
    assert_int_equal(tsri_rule_reshape(from, to, buf, sizeof buf, sizes, &n), TSR_OK);
    assert_string_equal(buf, want);
}

static void test_text(void **state)
{
    (void)state;
    check_text(TSR_DIMS(8, 4), TSR_DIMS(2, 4, 4), "^(a b) c -> a b c");
    check_text(TSR_DIMS(6, 4), TSR_DIMS(4, 6), "^(a .) . -> (a .) .");
    check_text(TSR_DIMS(5, 6, 2, 2), TSR_DIMS(5, 24), "^a b c d -> a (b c d)");
    check_text(TSR_DIMS(9, 9, 8), TSR_DIMS(81, 8), "^a b c -> (a b) c");
    check_text(TSR_DIMS(3, 4), TSR_DIMS(4, 3), "^. . -> . .");
    check_text(TSR_DIMS(3, 4, 5), TSR_DIMS(4, 3, 5), "^. . a -> . . a");
    check_text(TSR_DIMS(1, 5, 1), TSR_DIMS(5), "^1 a 1 -> a");
    check_text(TSR_DIMS(1, 1), TSR_SCALAR, "^1 1 -> ()");
    check_text(TSR_DIMS(0, 5), TSR_DIMS(5, 0, 7), "^. . -> . . .");
    check_text(TSR_DIMS(2, 2, 2, 2, 2, 2, 2, 2), TSR_DIMS(256),
               "^a b c d e f g h -> (a b c d e f g h)");
}

static void test_errors(void **state)
{
    (void)state;
    char buf[256];
    tsri_index_size sizes[TSRI_RULE_MAX_INDICES];
    int n;
    int64_t big = INT64_MAX / 2;
    assert_int_equal(tsri_rule_reshape(TSR_DIMS(6), TSR_DIMS(2, 4), buf, sizeof buf, sizes, &n),
                     TSR_ERR_SHAPE);
    assert_non_null(strstr(tsr_last_error(), "6 elements to 8"));
    assert_int_equal(tsri_rule_reshape(TSR_DIMS(-6), TSR_DIMS(-6), buf, sizeof buf, sizes, &n),
                     TSR_ERR_SHAPE);
    assert_int_equal(
        tsri_rule_reshape(TSR_DIMS(big, big), TSR_DIMS(big, big), buf, sizeof buf, sizes, &n),
        TSR_ERR_SHAPE);
    assert_int_equal(tsri_rule_reshape(TSR_DIMS(6), TSR_DIMS(2, 3), buf, 5, sizes, &n),
                     TSR_ERR_INTERNAL);
}

enum { MAX_SHAPES = 256, MAX_ELEMENTS = 64 };

/* All shapes of n elements, with at most `ones` axes of size 1. */
static int make_shapes(int n, int ones, tsr_dims prefix, tsr_dims *shapes, int count)
{
    if (n == 1)
        shapes[count++] = prefix;
    if (prefix.ndim == TSR_MAX_NDIM)
        return count;
    for (int f = ones ? 1 : 2; f <= n; f++) {
        if (n % f)
            continue;
        tsr_dims longer = prefix;
        longer.d[longer.ndim++] = f;
        count = make_shapes(n / f, ones - (f == 1), longer, shapes, count);
    }
    assert_true(count < MAX_SHAPES);
    return count;
}

/* The elements of an arange tensor that part `part` has under S(axis), in order. */
static int piece(const tsr_dims *dims, int axis, int k, int part, int *elements)
{
    int64_t first, length, inner = 1, n = tsr_dims_count(*dims);
    int count = 0;
    tsr_balanced_split(dims->d[axis], k, part, &first, &length);
    for (int i = axis + 1; i < dims->ndim; i++)
        inner *= dims->d[i];
    for (int64_t e = 0; e < n; e++) {
        int64_t pos = e / inner % dims->d[axis];
        if (pos >= first && pos < first + length)
            elements[count++] = (int)e;
    }
    return count;
}

/* A reshape of pieces is the piece of the reshape iff they have the same elements in order. */
static bool legal(const tsr_dims *from, int i, const tsr_dims *to, int j, int k)
{
    int a[MAX_ELEMENTS], b[MAX_ELEMENTS];
    for (int part = 0; part < k; part++) {
        int na = piece(from, i, k, part, a), nb = piece(to, j, k, part, b);
        if (na != nb || memcmp(a, b, (size_t)na * sizeof *a) != 0)
            return false;
    }
    return true;
}

static int check_pair(tsr_dims from, tsr_dims to, int k)
{
    char text[256];
    tsri_index_size sizes[TSRI_RULE_MAX_INDICES];
    tsri_pool pool = {0};
    tsri_rule *rule;
    tsri_signature *sig;
    int nsizes, n, splits = 0;
    bool derived[TSR_MAX_NDIM][TSR_MAX_NDIM] = {{false}};
    assert_int_equal(tsri_rule_reshape(from, to, text, sizeof text, sizes, &nsizes), TSR_OK);
    if (tsri_rule_bind(&pool, text, 1, &from, 1, &to, nsizes, sizes, &rule) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    assert_int_equal(tsri_rule_derive(&pool, rule, k, &n, &sig), TSR_OK);
    for (int s = 0; s < n; s++) {
        if (sig[s].in[0].kind == TSR_SBP_SPLIT) {
            assert_int_equal(sig[s].out[0].kind, TSR_SBP_SPLIT);
            derived[sig[s].in[0].arg][sig[s].out[0].arg] = true;
            splits++;
        } else {
            assert_memory_equal(&sig[s].in[0], &sig[s].out[0], sizeof sig[s].in[0]);
        }
    }
    assert_int_equal(n, 4 + splits); /* B, P(sum), P(max), P(min) */
    for (int i = 0; i < from.ndim; i++)
        for (int j = 0; j < to.ndim; j++) {
            /* Splits of axes of size 1 are legal and of no use. */
            bool want = legal(&from, i, &to, j, k) && (from.d[i] != 1 || derived[i][j]);
            if (derived[i][j] != want)
                fail_msg("%s, k = %d: S(%d)->S(%d) is %slegal, but %sderived", text, k, i, j,
                         want ? "" : "not ", derived[i][j] ? "" : "not ");
        }
    tsri_pool_finish(&pool);
    return splits;
}

static void test_all_pairs(void **state)
{
    (void)state;
    static const int counts[] = {1, 4, 6, 7, 8, 12, 16, 18, 24};
    static tsr_dims shapes[MAX_SHAPES];
    int pairs = 0, splits = 0;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        int n = make_shapes(counts[c], counts[c] <= 12, (tsr_dims){0}, shapes, 0);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                for (int k = 2; k <= 4; k++, pairs++)
                    splits += check_pair(shapes[i], shapes[j], k);
    }
    print_message("%d cases, %d splits\n", pairs, splits);
    assert_true(pairs > 5000 && splits > 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_all_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
