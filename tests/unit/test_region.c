/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SIZE = 64 * 1024 };

static tsri_region make(void)
{
    char *base = aligned_alloc(4096, SIZE);
    assert_non_null(base);
    memset(base, 0xee, SIZE);
    return (tsri_region){.base = base, .size = SIZE, .top = SIZE};
}

static void test_alloc_aligned(void **state)
{
    (void)state;
    tsri_region r = make();
    for (size_t bytes = 0; bytes < 300; bytes += 37) {
        char *p;
        assert_int_equal(tsri_region_alloc(&r, bytes, (void **)&p), TSR_OK);
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_true(p >= r.base && p + bytes <= r.base + SIZE);
        /* Blocks do not overlap: what was written into others is not seen here. */
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(p[i] & 0xff, 0xee);
        memset(p, 0x55, bytes);
    }
    free(r.base);
    tsri_region_finish(&r);
}

static void test_reuse_and_coalesce(void **state)
{
    (void)state;
    tsri_region r = make();
    void *p[4], *q;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tsri_region_alloc(&r, 1000, &p[i]), TSR_OK);
        memset(p[i], 0x77, 1000);
    }
    size_t top = r.top;
    /* Two neighbours in the middle make one hole that fits what neither would. */
    tsri_region_free(&r, p[1], 1000);
    tsri_region_free(&r, p[2], 1000);
    assert_int_equal(tsri_region_alloc(&r, 2000, &q), TSR_OK);
    assert_int_equal(r.top, top);
    tsri_region_free(&r, q, 2000);
    /* The other order of freeing. */
    assert_int_equal(tsri_region_alloc(&r, 1000, &p[1]), TSR_OK);
    assert_int_equal(tsri_region_alloc(&r, 1000, &p[2]), TSR_OK);
    assert_int_equal(r.top, top);
    for (int i = 3; i >= 0; i--)
        tsri_region_free(&r, p[i], 1000);
    assert_int_equal(r.top, SIZE);
    assert_int_equal(r.nholes, 0);
    free(r.base);
    tsri_region_finish(&r);
}

/* As many holes as blocks, one above each: freeing one still finds room for its hole. */
static void test_most_holes(void **state)
{
    (void)state;
    enum { N = 64, GRAIN = 64, ROOM = N * (N + 1) * GRAIN };
    tsri_region r = {.base = aligned_alloc(4096, ROOM), .size = ROOM, .top = ROOM};
    void *kept[N];
    assert_non_null(r.base);
    for (int i = 0; i < N; i++) { /* larger than all holes before */
        const size_t bytes = (size_t)(i + 1) * GRAIN;
        void *above;
        assert_int_equal(tsri_region_alloc(&r, bytes, &above), TSR_OK);
        assert_int_equal(tsri_region_alloc(&r, bytes, &kept[i]), TSR_OK);
        tsri_region_free(&r, above, bytes);
        assert_int_equal(r.nblocks, i + 1);
        assert_int_equal(r.nholes, i + 1);
        assert_true(r.nholes < r.choles);
    }
    for (int i = 1; i < N; i += 2)
        tsri_region_free(&r, kept[i], (size_t)(i + 1) * GRAIN);
    for (int i = 0; i < N; i += 2)
        tsri_region_free(&r, kept[i], (size_t)(i + 1) * GRAIN);
    assert_int_equal(r.nholes, 0);
    assert_int_equal(r.top, ROOM);
    free(r.base);
    tsri_region_finish(&r);
}

static void test_top_meets_bottom(void **state)
{
    (void)state;
    tsri_region r = make();
    void *p;
    assert_int_equal(tsri_region_reserve_plan(&r, SIZE / 2), TSR_OK);
    assert_int_equal(tsri_region_reserve_plan(&r, 100), TSR_OK);
    assert_int_equal(r.plan_bytes, SIZE / 2);
    assert_int_equal(tsri_region_alloc(&r, SIZE / 2 + 1, &p), TSR_ERR_NO_MEMORY);
    assert_non_null(strstr(tsr_last_error(), "32769 bytes"));
    assert_non_null(strstr(tsr_last_error(), "65536 bytes"));
    assert_non_null(strstr(tsr_last_error(), "TESSERA_ARENA_BYTES"));
    assert_int_equal(tsri_region_alloc(&r, SIZE / 2, &p), TSR_OK);
    assert_ptr_equal(p, r.base + SIZE / 2);
    assert_int_equal(tsri_region_alloc(&r, 1, &p), TSR_ERR_NO_MEMORY);
    assert_int_equal(tsri_region_reserve_plan(&r, SIZE / 2 + 1), TSR_ERR_NO_MEMORY);
    assert_int_equal(tsri_region_alloc(&r, SIZE_MAX, &p), TSR_ERR_NO_MEMORY);
    assert_int_equal(tsri_region_alloc(&r, SIZE_MAX - 10, &p), TSR_ERR_NO_MEMORY);
    free(r.base);
    tsri_region_finish(&r);
}

/* Blocks grow down from the end, so an end that is not aligned would make all of them so. */
static void test_end_not_aligned(void **state)
{
    (void)state;
    tsri_region r = make();
    void *p;
    r.size = r.top = SIZE - 1;
    assert_int_equal(tsri_region_alloc(&r, 100, &p), TSR_ERR_INTERNAL);
    assert_non_null(strstr(tsr_last_error(), "65535 bytes"));
    r.size = r.top = SIZE - 64;
    assert_int_equal(tsri_region_alloc(&r, 100, &p), TSR_OK);
    assert_int_equal((uintptr_t)p % 64, 0);
    free(r.base);
    tsri_region_finish(&r);
}

/* Random allocations against a byte map: blocks never overlap each other or the plans, and at the
 * end all is one piece again. */
static void test_random(void **state)
{
    (void)state;
    tsri_region r = make();
    assert_int_equal(tsri_region_reserve_plan(&r, 4000), TSR_OK);
    struct {
        unsigned char *p;
        size_t bytes;
    } live[40] = {{0}};
    uint32_t x = 12345;
    int full = 0;
    for (int step = 0; step < 20000; step++) {
        x = x * 1664525u + 1013904223u;
        int i = (int)(x >> 16) % 40;
        if (live[i].p) {
            for (size_t k = 0; k < live[i].bytes; k++)
                assert_int_equal(live[i].p[k], i + 1);
            tsri_region_free(&r, live[i].p, live[i].bytes);
            live[i].p = NULL;
            continue;
        }
        x = x * 1664525u + 1013904223u;
        live[i].bytes = (x >> 12) % 5000;
        void *p;
        if (tsri_region_alloc(&r, live[i].bytes, &p) == TSR_OK) {
            assert_true((char *)p >= r.base + 4000);
            live[i].p = p;
            memset(p, i + 1, live[i].bytes);
        } else {
            full++;
        }
    }
    assert_true(full > 0);
    for (int i = 0; i < 40; i++)
        tsri_region_free(&r, live[i].p, live[i].bytes);
    assert_int_equal(r.top, SIZE);
    assert_int_equal(r.nholes, 0);
    free(r.base);
    tsri_region_finish(&r);
}

static void note(void *object)
{
    int **cursor = object;
    *(*cursor)++ = 1;
}

static void test_owned(void **state)
{
    (void)state;
    tsr_world world = {0};
    int marks[3] = {0}, *cursor = marks;
    tsri_owned a = {0}, b = {0}, c = {0}, never = {0};
    tsri_world_own(&world, &a, &cursor, note);
    tsri_world_own(&world, &b, &cursor, note);
    tsri_world_own(&world, &c, &cursor, note);
    tsri_world_disown(&b);
    tsri_world_disown(&b);
    tsri_world_disown(&never);
    assert_ptr_equal(world.owned, &c);
    assert_ptr_equal(c.next, &a);
    tsri_world_destroy_owned(&world);
    assert_int_equal(cursor - marks, 2);
    assert_null(world.owned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc_aligned),    cmocka_unit_test(test_reuse_and_coalesce),
        cmocka_unit_test(test_top_meets_bottom), cmocka_unit_test(test_end_not_aligned),
        cmocka_unit_test(test_random),           cmocka_unit_test(test_owned),
        cmocka_unit_test(test_most_holes),
    };
    return cmocka_run_group_tests_name("region", tests, NULL, NULL);
}
