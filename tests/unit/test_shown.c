/* SPDX-License-Identifier: Apache-2.0 */
/* Text of others, as it is shown: by hand, and random formats and bytes against printf. */
#include "src/core/shown.h"
#include "src/core/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static char *show(const char *fmt, ...) TSR_PRINTF(1, 2);
static char *show(const char *fmt, ...)
{
    static char buf[4096];
    va_list ap;
    va_start(ap, fmt);
    int n = tsri_show(buf, sizeof buf, fmt, ap);
    va_end(ap);
    assert_int_equal((size_t)n, strlen(buf));
    return buf;
}

static char *show_lines(const char *fmt, ...) TSR_PRINTF(1, 2);
static char *show_lines(const char *fmt, ...)
{
    static char buf[4096];
    va_list ap;
    va_start(ap, fmt);
    tsri_show_lines(buf, sizeof buf, fmt, ap);
    va_end(ap);
    return buf;
}

static void test_strings(void **state)
{
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"", ""},
        {"layer.0.weight", "layer.0.weight"},
        {"Gr\xc3\xbc\xc3\x9f"
         "e \xe4\xb8\xad \xf0\x9f\x98\x80",
         "Gr\xc3\xbc\xc3\x9f"
         "e \xe4\xb8\xad \xf0\x9f\x98\x80"},
        {"\033]0;pwn\a", "\\x1b]0;pwn\\x07"},
        {"a\nb\rc\td\x7f\x01", "a\\nb\\rc\\td\\x7f\\x01"},
        {"C1 \xc2\x9b"
         "31m \xc2\xa0",
         "C1 \\u009b31m \xc2\xa0"},
        {"\x9b \xff\xfe \xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80",
         "\\x9b \\xff\\xfe \\xc0\\xaf \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80"},
        {"cut \xe4\xb8", "cut \\xe4\\xb8"},
        {"to the left \xe2\x80\xae"
         "fdp.exe \xe2\x80\xa8 \xe2\x81\xa6 \xef\xbb\xbf",
         "to the left \\u202efdp.exe \\u2028 \\u2066 \\ufeff"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char buf[256], few[8];
        assert_string_equal(tsri_shown(cases[i].text, buf, sizeof buf), cases[i].shown);
        assert_string_equal(show("%s", cases[i].text), cases[i].shown);
        assert_string_equal(show("%s", cases[i].shown), cases[i].shown); /* again: it stays */
        tsri_shown(cases[i].text, few, sizeof few);
        assert_memory_equal(few, cases[i].shown, strlen(few));
    }
}

static void test_formats(void **state)
{
    (void)state;
    assert_string_equal(show("a\n\033%d%%\n", 3), "a\n\033"
                                                  "3%\n"); /* the format is ours */
    assert_string_equal(
        show("[%6s|%-6s|%.2s|%*s|%-*s|%.*s]", "ab", "\n", "abc", 4, "x", 4, "y", 1, "zz"),
        "[    ab|\\n    |ab|   x|y   |z]");
    assert_string_equal(show("%.4s|%.3s", "ab\xe4\xb8\xad", "ab\xe4\xb8\xad"),
                        "ab|ab"); /* cut within */
    assert_string_equal(show("%.5s", "ab\xe4\xb8\xad"), "ab\xe4\xb8\xad");
    assert_string_equal(show("%c%c%3c", 'x', '\033', 'y'), "x\\x1b  y");
    /* Styles are known by where they stand, not by what they are. */
    assert_string_equal(show("%sx%s", tsri_style_text[TSRI_STYLE_RED], "\033[31m"),
                        "\033[31mx\\x1b[31m");
    assert_string_equal(show_lines("%s|%s", "one\n  two\tthree\nfour\n", "\033"),
                        "one\n  two\tthree\\nfour\\n|\\x1b");
    assert_int_equal(tsri_fail(TSR_ERR_IO, "%s: gone", "a\nb\033[2J"), TSR_ERR_IO);
    assert_string_equal(tsr_last_error(), "a\\nb\\x1b[2J: gone");
    char few[8];
    memset(few, 'x', sizeof few);
    assert_string_equal(tsri_shown("123456789", few, 5), "1234");
    assert_int_equal(few[5], 'x');
}

static void test_json(void **state)
{
    (void)state;
    FILE *f = tmpfile();
    char text[128] = "";
    assert_non_null(f);
    tsri_show_json(f, "{\"a\\u001b\": \"\x7f \xc2\x9b \xff \xe4\xb8\xad\"}");
    rewind(f);
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    assert_string_equal(text, "{\"a\\u001b\": \"\\u007f \\u009b \\ufffd \xe4\xb8\xad\"}");
}

/* Numbers are printf's. */
#define SAME(fmt, ...)                                      \
    do {                                                    \
        char want_[512];                                    \
        snprintf(want_, sizeof want_, fmt, __VA_ARGS__);    \
        assert_string_equal(show(fmt, __VA_ARGS__), want_); \
    } while (0)

static uint64_t seed = 88172645463325252u;
static uint64_t draw(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

static void test_numbers(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++) {
        uint64_t a = draw() >> draw() % 64;
        double x = (double)(int64_t)draw() / (double)(1 + (draw() >> draw() % 64));
        int w = (int)(draw() % 30) - 10, p = (int)(draw() % 14) - 2;
        SAME("%d|%5d|%-5i|%+d|% d|%05d|%.3d", (int)a, (int)a, (int)a, (int)a, (int)a, (int)a,
             (int)a);
        SAME("%u|%x|%#x|%X|%o|%08x", (unsigned)a, (unsigned)a, (unsigned)a, (unsigned)a,
             (unsigned)a, (unsigned)a);
        SAME("%ld|%lu|%lld|%llu|%llx", (long)a, (unsigned long)a, (long long)a,
             (unsigned long long)a, (unsigned long long)a);
        SAME("%zu|%zd|%jd|%ju|%td", (size_t)a, (ssize_t)a, (intmax_t)a, (uintmax_t)a, (ptrdiff_t)a);
        SAME("%hhd|%hhu|%hd|%hu|%hhx", (signed char)a, (unsigned char)a, (short)a,
             (unsigned short)a, (unsigned char)a);
        SAME("%f|%.2f|%10.3f|%-12.4e|%g|%G|%a|%.0f|%+.1e|%#g", x, x, x, x, x, x, x, x, x, x);
        SAME("%*d|%.*f|%*.*g|%-*d", w, (int)a, p, x, w, p, x, w, (int)a);
        SAME("%Lf|%p|%5s|%%", (long double)x, (void *)&seed, "s");
    }
    SAME("%f %f %f", 1.0 / 0.0, -1.0 / 0.0, 0.0 / 0.0);
}

/* Of random bytes nothing is shown but printable characters, whatever room there is. */
static void test_bytes(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        char text[24] = "", buf[200];
        int n = (int)(draw() % 23);
        for (int k = 0; k < n; k++)
            text[k] = (char)(draw() % 3 ? 0x80 | draw() : draw());
        size_t size = 1 + draw() % sizeof buf;
        tsri_shown(text, buf, size);
        assert_true(strlen(buf) < size);
        for (const unsigned char *p = (const unsigned char *)buf; *p; p++)
            assert_true(*p >= ' ' && *p != 127 && !(*p == 0xc2 && p[1] && p[1] < 0xa0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings), cmocka_unit_test(test_formats), cmocka_unit_test(test_json),
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests_name("shown", tests, NULL, NULL);
}
