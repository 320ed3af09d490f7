/* SPDX-License-Identifier: Apache-2.0 */
#include <tessera/sbp.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void check_parse(const char *text, tsr_sbp want, const char *formatted)
{
    char buf[TSR_SBP_TEXT_MAX];
    tsr_sbp got;
    memset(&got, 0x55, sizeof got);
    if (tsr_sbp_parse(text, &got) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    /* Bytewise, as the header promises. */
    assert_memory_equal(&got, &want, sizeof got);
    assert_true(tsr_sbp_equal(got, want));
    assert_string_equal(tsr_sbp_format(got, buf), formatted);
}

static void test_parse(void **state)
{
    (void)state;
    check_parse("S(0)", TSR_S(0), "S(0)");
    check_parse("S(7)", TSR_S(7), "S(7)");
    check_parse("s ( 003 ) ", TSR_S(3), "S(3)");
    check_parse("B", TSR_B, "B");
    check_parse("\tb", TSR_B, "B");
    check_parse("P", TSR_P, "P");
    check_parse("P(sum)", TSR_P, "P");
    check_parse("p( Max )", TSR_P_MAX, "P(max)");
    check_parse("P(MIN)", TSR_P_MIN, "P(min)");
    check_parse("auto", TSR_AUTO, "auto");
    check_parse(" Auto ", TSR_AUTO, "auto");
    check_parse("(B)", TSR_B, "B");
    check_parse("(S(0),B)", (tsr_sbp){2, {{TSR_SBP_SPLIT, 0}, {TSR_SBP_BROADCAST, 0}}}, "(S(0),B)");
    check_parse(" ( p , s(2),P(sum) ) ",
                (tsr_sbp){3, {{TSR_SBP_PARTIAL, 0}, {TSR_SBP_SPLIT, 2}, {TSR_SBP_PARTIAL, 0}}},
                "(P,S(2),P)");
}

/* Every signature of up to four dimensions with these entries. */
static void test_nd(void **state)
{
    (void)state;
    const tsr_sbp five[] = {TSR_B, TSR_B, TSR_B, TSR_B, TSR_B};
    char buf[TSR_SBP_TEXT_MAX];
    check_parse("(S(0),B)", TSR_ND(TSR_S(0), TSR_B), "(S(0),B)");
    check_parse("(B,P,S(2),P)", TSR_ND(TSR_B, TSR_P, TSR_S(2), TSR_P), "(B,P,S(2),P)");
    check_parse("S(1)", TSR_ND(TSR_S(1)), "S(1)");
    assert_int_equal(TSR_ND(TSR_S(0), TSR_AUTO).ndim, -1);
    assert_int_equal(TSR_ND(TSR_S(0), TSR_ND(TSR_B, TSR_B)).ndim, -1);
    assert_int_equal(tsr_sbp_nd(5, five).ndim, -1);
    assert_int_equal(tsr_sbp_nd(0, five).ndim, -1);
    assert_int_equal(tsr_sbp_nd(1, NULL).ndim, -1);
    tsr_sbp_format(tsr_sbp_nd(5, five), buf);
}

static void test_round_trip(void **state)
{
    (void)state;
    static const tsr_sbp1 entries[] = {
        {TSR_SBP_SPLIT, 0},   {TSR_SBP_SPLIT, 7},   {TSR_SBP_BROADCAST, 0},
        {TSR_SBP_PARTIAL, 0}, {TSR_SBP_PARTIAL, 1}, {TSR_SBP_PARTIAL, 2},
    };
    int count = 1, legal = 0;
    for (int ndim = 1; ndim <= 4; ndim++) {
        count *= 6;
        for (int c = 0; c < count; c++) {
            tsr_sbp sbp = {.ndim = (int8_t)ndim}, back;
            unsigned kinds = 0;
            char buf[TSR_SBP_TEXT_MAX], again[TSR_SBP_TEXT_MAX];
            for (int d = 0, rest = c; d < ndim; d++, rest /= 6) {
                sbp.d[d] = entries[rest % 6];
                if (sbp.d[d].kind == TSR_SBP_PARTIAL)
                    kinds |= 1u << sbp.d[d].arg;
            }
            tsr_status status = tsr_sbp_parse(tsr_sbp_format(sbp, buf), &back);
            if (kinds & (kinds - 1)) { /* partials of two kinds */
                assert_int_equal(status, TSR_ERR_FORMAT);
                assert_non_null(strstr(tsr_last_error(), "one kind"));
                continue;
            }
            legal++;
            assert_int_equal(status, TSR_OK);
            assert_memory_equal(&back, &sbp, sizeof sbp);
            assert_string_equal(tsr_sbp_format(back, again), buf);
        }
    }
    assert_true(legal > 500);
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "column 1"},
        {"X", "column 1"},
        {"S", "column 2"},
        {"S(", "column 3"},
        {"S()", "0 to 7"},
        {"S(8)", "0 to 7"},
        {"S(-1)", "0 to 7"},
        {"S(99999999999999999999)", "0 to 7"},
        {"S(1", "')'"},
        {"S(1 2)", "column 5"},
        {"S0", "column 1"},
        {"BB", "column 1"},
        {"B B", "column 3"},
        {"P(", "sum, max or min"},
        {"P(avg)", "column 3"},
        {"P(summ)", "column 3"},
        {"P(sum", "')'"},
        {"()", "column 2"},
        {"(B", "',' or ')'"},
        {"(B,", "column 4"},
        {"(B,)", "column 4"},
        {"(B B)", "column 4"},
        {"B)", "column 2"},
        {"B,B", "column 2"},
        {"(B,B,B,B,B)", "more than 4"},
        {"((B))", "column 2"},
        {"(auto)", "column 2"},
        {"autos", "column 1"},
        {"(P,P(max))", "P(max) beside P(sum)"},
        {"B\xc3\xa4", "column 2"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tsr_sbp got = TSR_S(5);
        assert_int_equal(tsr_sbp_parse(bad[i].text, &got), TSR_ERR_FORMAT);
        if (!strstr(tsr_last_error(), bad[i].says))
            fail_msg("\"%s\": %s", bad[i].text, tsr_last_error());
        assert_true(tsr_sbp_equal(got, TSR_S(5))); /* written on success only */
    }
    tsr_sbp got;
    assert_int_equal(tsr_sbp_parse(NULL, &got), TSR_ERR_INVALID);
    assert_int_equal(tsr_sbp_parse("B", NULL), TSR_ERR_INVALID);
}

static void test_equal(void **state)
{
    (void)state;
    assert_true(tsr_sbp_equal(TSR_AUTO, TSR_AUTO));
    assert_false(tsr_sbp_equal(TSR_AUTO, TSR_B));
    assert_false(tsr_sbp_equal(TSR_S(0), TSR_S(1)));
    assert_false(tsr_sbp_equal(TSR_P, TSR_P_MAX));
    tsr_sbp two = {2, {{TSR_SBP_BROADCAST, 0}, {TSR_SBP_BROADCAST, 0}}};
    assert_false(tsr_sbp_equal(TSR_B, two));
}

/* Formatting something that is no signature stays inside the buffer. */
static void test_format_garbage(void **state)
{
    (void)state;
    char buf[TSR_SBP_TEXT_MAX + 1];
    tsr_sbp sbp;
    for (int i = 0; i < 256; i++) {
        memset(&sbp, i, sizeof sbp);
        memset(buf, '#', sizeof buf);
        assert_true(strlen(tsr_sbp_format(sbp, buf)) < TSR_SBP_TEXT_MAX);
        assert_int_equal(buf[TSR_SBP_TEXT_MAX], '#');
    }
    sbp = (tsr_sbp){1, {{TSR_SBP_PARTIAL, TSR_REDUCE_AVG}}};
    assert_string_equal(tsr_sbp_format(sbp, buf), "P(?)");
    sbp = (tsr_sbp){4,
                    {{TSR_SBP_SPLIT, -128},
                     {TSR_SBP_SPLIT, -128},
                     {TSR_SBP_SPLIT, -128},
                     {TSR_SBP_SPLIT, -128}}};
    assert_string_equal(tsr_sbp_format(sbp, buf), "(S(-128),S(-128),S(-128),S(-128))");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nd),         cmocka_unit_test(test_parse),
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_equal),      cmocka_unit_test(test_format_garbage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
