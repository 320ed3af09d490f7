/* SPDX-License-Identifier: Apache-2.0 */
/* The offsets that the memory plan gives to blocks are compared with those of a walk over all
 * blocks.
 */
#include "src/plan/pass/occupied.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

enum { BLOCKS = 300 };

typedef struct block {
    int first, last;
    size_t from, to;
} block;

static bool is_free(const block *placed, int n, const block *b)
{
    for (int i = 0; i < n; i++)
        if (placed[i].first <= b->last && b->first <= placed[i].last && placed[i].from < b->to &&
            b->from < placed[i].to)
            return false;
    return true;
}

/* The lowest offset is 0 or the end of another block. */
static size_t lowest(const block *placed, int n, const block *b, size_t bytes)
{
    block at = {b->first, b->last, 0, bytes};
    if (is_free(placed, n, &at))
        return 0;
    size_t best = SIZE_MAX;
    for (int i = 0; i < n; i++) {
        at = (block){b->first, b->last, placed[i].to, placed[i].to + bytes};
        if (at.from < best && is_free(placed, n, &at))
            best = at.from;
    }
    return best;
}

static unsigned draw(unsigned *seed, unsigned below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

static void try_times(int times, unsigned seed)
{
    tsri_pool pool;
    tsri_occupied o;
    block placed[BLOCKS];
    tsri_pool_init(&pool, NULL);
    assert_int_equal(tsri_occupied_init(&o, &pool, times), TSR_OK);
    for (int i = 0; i < BLOCKS; i++) {
        int a = (int)draw(&seed, (unsigned)times), b = (int)draw(&seed, (unsigned)times);
        if (draw(&seed, 2)) /* short lives among long ones */
            b = a + (b % 3) < times ? a + b % 3 : a;
        block *x = &placed[i];
        *x = (block){.first = a < b ? a : b, .last = a < b ? b : a};
        size_t bytes = 1 + draw(&seed, i % 2 ? 8 : 100);
        x->from = tsri_occupied_lowest(&o, x->first, x->last, bytes);
        x->to = x->from + bytes;
        assert_int_equal(x->from, lowest(placed, i, x, bytes));
        assert_int_equal(tsri_occupied_take(&o, x->first, x->last, x->from, bytes), TSR_OK);
    }
    tsri_pool_finish(&pool);
}

static void test_lowest(void **state)
{
    (void)state;
    static const int times[] = {1, 2, 3, 7, 8, 9, 31, 64, 100, 1000};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        for (unsigned seed = 0; seed < 20; seed++)
            try_times(times[i], seed);
}

/* Blocks side by side are one extent, however many. */
static void test_joined(void **state)
{
    (void)state;
    tsri_pool pool;
    tsri_occupied o;
    tsri_pool_init(&pool, NULL);
    assert_int_equal(tsri_occupied_init(&o, &pool, 1000), TSR_OK);
    for (size_t i = 0; i < 10000; i++)
        assert_int_equal(tsri_occupied_take(&o, 0, 999, 64 * i, 64), TSR_OK);
    assert_int_equal(o.span[1].ever.n, 1);
    assert_int_equal(tsri_occupied_lowest(&o, 500, 500, 64), 640000);
    tsri_pool_finish(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lowest),
        cmocka_unit_test(test_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
