/* SPDX-License-Identifier: Apache-2.0 */
/* A store's map against an array of what must be in it, while it grows and shrinks. */
#include "src/comm/store/inside.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { KEYS = 700, STEPS = 12000 };

static tsri_store_map map;
static int value_of[KEYS]; /* 0: not there; else what its value is made of */
static bool waited_for[KEYS];

static tsri_bytes key_of(int k, char *buf, size_t size)
{
    return (tsri_bytes){buf, (size_t)snprintf(buf, size, "%s%d", k & 1 ? "run/" : "", k)};
}

static void expect_key(int k)
{
    char key[16], value[16];
    const tsri_bytes name = key_of(k, key, sizeof key);
    const tsri_store_entry *e = tsri_store_map_find(&map, name);
    const size_t bytes = (size_t)snprintf(value, sizeof value, "%d", value_of[k]);
    assert_int_equal(tsri_store_map_has(&map, name), value_of[k] != 0);
    if (value_of[k]) {
        assert_true(e && e->bytes == bytes && memcmp(e->value, value, bytes) == 0);
        assert_true(e->key_bytes == name.bytes && memcmp(e->key, key, name.bytes) == 0);
    }
    assert_int_equal(e != NULL, value_of[k] || waited_for[k]);
    assert_ptr_equal(e ? e->waiters : NULL, waited_for[k] ? &waited_for[k] : NULL);
}

static void expect_all(void)
{
    int64_t there = 0, odd = 0, tens = 0;
    size_t entries = 0;
    for (int k = 0; k < KEYS; k++) {
        expect_key(k);
        there += value_of[k] != 0;
        odd += value_of[k] && (k & 1);
        tens += value_of[k] && (k == 10 || (k >= 100 && k < 110)) && !(k & 1);
        entries += value_of[k] || waited_for[k];
    }
    assert_int_equal(map.entries, entries);
    assert_int_equal(tsri_store_map_count(&map, (tsri_bytes){"", 0}), there);
    assert_int_equal(tsri_store_map_count(&map, (tsri_bytes){"run/", 4}), odd);
    assert_int_equal(tsri_store_map_count(&map, (tsri_bytes){"10", 2}), tens);
    assert_int_equal(tsri_store_map_count(&map, (tsri_bytes){"run/1234", 8}), 0);
}

static void set(int k, int value)
{
    char key[16], text[16];
    const tsri_bytes bytes = {text, (size_t)snprintf(text, sizeof text, "%d", value)};
    assert_int_equal(tsri_store_map_set(&map, key_of(k, key, sizeof key), bytes), TSR_OK);
    value_of[k] = value;
}

/* Somebody waits for the key, or no longer. */
static void wait_for(int k, bool waits)
{
    char key[16];
    tsri_store_entry *e = tsri_store_map_make(&map, key_of(k, key, sizeof key));
    assert_non_null(e);
    e->waiters = waits ? &waited_for[k] : NULL;
    waited_for[k] = waits;
    tsri_store_map_tidy(&map, e);
}

static void test_against_an_array(void **state)
{
    (void)state;
    uint64_t seed = 3;
    char key[16];
    expect_all();
    for (int k = 0; k < KEYS; k++) { /* each size at which it grows */
        set(k, k + 1);
        for (int i = 0; i <= k; i++)
            expect_key(i);
    }
    expect_all();
    for (int step = 0; step < STEPS; step++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const int k = (int)(seed >> 33) % KEYS, what = (int)(seed >> 60);
        if (what < 5) {
            set(k, step + 1);
        } else if (what < 11) {
            tsri_store_map_delete(&map, key_of(k, key, sizeof key));
            value_of[k] = 0;
        } else {
            wait_for(k, what < 13);
        }
        expect_key(k);
        if (step % 500 == 0)
            expect_all();
    }
    expect_all();
    for (int k = 0; k < KEYS; k++) {
        tsri_store_map_delete(&map, key_of(k, key, sizeof key));
        value_of[k] = 0;
        wait_for(k, false);
    }
    expect_all();
    assert_int_equal(map.entries, 0);
    set(1, 1);
    tsri_store_map_finish(&map);
    memset(value_of, 0, sizeof value_of);
    expect_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_an_array)};
    return cmocka_run_group_tests_name("store_map", tests, NULL, NULL);
}
