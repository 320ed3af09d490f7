/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of others: numbers within bounds, and what of them is shown. */
#include "src/core/foreign.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* A text that begins with a number in bounds is taken up to `rest`; rest NULL: none is taken. */
static void expect_number(const char *text, int64_t low, int64_t high, int64_t number,
                          const char *rest)
{
    const char *at = text;
    int64_t v = 77;
    assert_int_equal(tsri_take_number(&at, low, high, &v), rest != NULL);
    if (rest)
        assert_string_equal(at, rest);
    else
        assert_ptr_equal(at, text);
    assert_int_equal(v, rest ? number : 77);
}

static void test_numbers(void **state)
{
    (void)state;
    expect_number("0", 0, 9, 0, "");
    expect_number("9 8", 0, 9, 9, " 8");
    expect_number("-3x", -3, 9, -3, "x");
    expect_number("007", 0, 9, 7, "");
    expect_number("10", 0, 9, 0, NULL);
    expect_number("-1", 0, 9, 0, NULL);
    expect_number("-4", -3, 9, 0, NULL);
    static const char *const none[] = {"", "-", "--1", "+1", " 1", "x", "\t1", "- 1"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        expect_number(none[i], INT64_MIN, INT64_MAX, 0, NULL);
    expect_number("9223372036854775807", 0, INT64_MAX, INT64_MAX, "");
    expect_number("-9223372036854775808", INT64_MIN, 0, INT64_MIN, "");
    expect_number("9223372036854775808", INT64_MIN, INT64_MAX, 0, NULL);
    expect_number("-9223372036854775809", INT64_MIN, INT64_MAX, 0, NULL);
    expect_number("99999999999999999999999999", INT64_MIN, INT64_MAX, 0, NULL);
    const char *at = "4294967297";
    int v = 77;
    assert_false(tsri_take_int(&at, 0, INT_MAX, &v));
    assert_int_equal(v, 77);
    at = "12:";
    assert_true(tsri_take_int(&at, 0, INT_MAX, &v) && v == 12);
    assert_false(tsri_take_char(&at, ' '));
    assert_true(tsri_take_char(&at, ':'));
    assert_false(tsri_take_char(&at, 0)); /* nothing is behind the end */
    assert_string_equal(at, "");
}

static void test_errors(void **state)
{
    (void)state;
    tsr_status s = TSR_OK;
    for (int i = -20; i < 4; i++) {
        char text[16];
        const char *at = text;
        snprintf(text, sizeof text, "%d", i);
        assert_int_equal(tsri_take_error(&at, &s), i < 0 && i >= TSR_ERR_INTERNAL);
        if (i < 0 && i >= TSR_ERR_INTERNAL)
            assert_int_equal(s, i);
    }
}

static void expect_shown(const char *text, bool lines, const char *shown)
{
    char copy[64];
    snprintf(copy, sizeof copy, "%s", text);
    assert_ptr_equal(tsri_make_printable(copy, lines), copy);
    assert_string_equal(copy, shown);
}

static void test_printable(void **state)
{
    (void)state;
    expect_shown("", false, "");
    expect_shown("plain ~", false, "plain ~");
    expect_shown("\033[2J\a\177\t", false, "?[2J???");
    expect_shown("a\nb\rc", true, "a\nb?c");
    expect_shown("a\nb", false, "a?b");
    expect_shown("\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80", false,
                 "\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80");
    expect_shown("\xc2\x9b"
                 "31m",
                 false, "??31m"); /* a control sequence of one character */
    expect_shown("\xc2\xa0", false, "\xc2\xa0");
    expect_shown("\xc3\x92", false, "\xc3\x92"); /* only behind 0xc2 is 0x92 a control character */
    expect_shown("\x9b"
                 "31m \xff \xc0\xaf",
                 false, "?31m ? ??");
    expect_shown("\xe2\x82 x", false, "?? x");
    expect_shown("cut \xe2\x82", false, "cut ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_printable),
    };
    return cmocka_run_group_tests_name("foreign", tests, NULL, NULL);
}
