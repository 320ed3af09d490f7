/* SPDX-License-Identifier: Apache-2.0 */
/* Streams to memory: what was written is there as a whole, or nothing is, whichever allocation
 * fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/core/text_stream.h"

static void test_whole(void **state)
{
    (void)state;
    for (size_t n = 0; n < 70000; n = n * 2 + 1)
        for (int flushes = 0; flushes < 2; flushes++) {
            tsri_text_stream t;
            size_t bytes = 99;
            assert_true(tsri_text_open(&t, NULL));
            for (size_t i = 0; i < n; i++) {
                fputc((int)('a' + i % 26), t.stream);
                if (flushes && i % 1000 == 999) {
                    assert_int_equal(fflush(t.stream), 0);
                    assert_int_equal(t.bytes, i + 1);
                }
            }
            char *text = tsri_text_close(&t, &bytes);
            assert_non_null(text);
            assert_int_equal(bytes, n);
            assert_int_equal(strlen(text), n);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(text[i], 'a' + i % 26);
            free(text);
        }
}

/* A failure in the middle is not forgotten where what follows fits. */
static void test_no_memory(void **state)
{
    (void)state;
    int failures = 0;
    for (int64_t i = 1;; i++) {
        tsri_mem mem = {.fail_countdown = i};
        tsri_text_stream t;
        assert_true(tsri_text_open(&t, &mem));
        for (int k = 0; k < 40; k++) {
            for (int j = 0; j < 500; j++)
                fputc('x', t.stream);
            fflush(t.stream);
        }
        size_t bytes = 0;
        char *text = tsri_text_close(&t, &bytes);
        const bool all = mem.fail_countdown > 0; /* it did not come to the i-th allocation */
        assert_int_equal(text != NULL, all);
        if (all) {
            assert_int_equal(bytes, 20000);
            free(text);
            break;
        }
        failures++;
        assert_non_null(strstr(tsr_last_error(), "no memory"));
    }
    assert_true(failures > 3);
}

/* The last allocation of all, as that of an empty text. */
static void test_empty(void **state)
{
    (void)state;
    tsri_mem mem = {.fail_countdown = 1};
    tsri_text_stream t;
    assert_true(tsri_text_open(&t, &mem));
    assert_null(tsri_text_close(&t, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
