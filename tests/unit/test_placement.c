/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/placement.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "src/core/live.h"

static void check_parse(tsr_world *world, const char *text, const char *formatted, int ndim, int d0,
                        int d1)
{
    const tsr_placement *p = tsr_placement_parse(world, text);
    if (!p)
        fail_msg("%s", tsr_last_error());
    assert_string_equal(tsr_placement_text(p), formatted);
    assert_int_equal(tsr_placement_ndim(p), ndim);
    assert_int_equal(tsr_placement_dim(p, 0), d0);
    assert_int_equal(tsr_placement_dim(p, 1), d1);
    assert_ptr_equal(tsr_placement_parse(world, formatted), p);
}

/* Enters a world, as creating one does. */
static void enter(const tsr_world *world)
{
    assert_int_equal(tsri_live_add(NULL, world, TSRI_LIVE_WORLD), TSR_OK);
}

static void test_parse(void **state)
{
    (void)state;
    tsr_world world = {.nranks = 16};
    enter(&world);
    check_parse(&world, "cpu:[0]", "cpu:[0]", 1, 1, 0);
    check_parse(&world, "cuda:[0,1,2,3]", "cuda:[0,1,2,3]", 1, 4, 0);
    check_parse(&world, "cpu:[3,1,2]", "cpu:[3,1,2]", 1, 3, 0);
    check_parse(&world, " cpu : [ [0, 1] ,\t[2,3] ] ", "cpu:[[0,1],[2,3]]", 2, 2, 2);
    check_parse(&world, "cpu:[[007],[15]]", "cpu:[[7],[15]]", 2, 2, 1);
    check_parse(&world, "cpu:[[[[0,1]],[[2,3]],[[4,5]]]]", "cpu:[[[[0,1]],[[2,3]],[[4,5]]]]", 4, 1,
                3);
    check_parse(&world, "cpu:[0..3,8]", "cpu:[0,1,2,3,8]", 1, 5, 0);
    check_parse(&world, "cpu:[[0..1],[2 , 3]]", "cpu:[[0,1],[2,3]]", 2, 2, 2);
    check_parse(&world, "cpu:[[5..5],[0..0]]", "cpu:[[5],[0]]", 2, 2, 1);
    check_parse(&world, "cuda", "cuda:[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]", 1, 16, 0);
    tsri_world_destroy_owned(&world);
}

static void test_accessors(void **state)
{
    (void)state;
    tsr_world world = {.nranks = 8};
    enter(&world);
    const tsr_placement *p = tsr_placement_parse(&world, "cuda:[[6,0,4],[1,7,2]]");
    static const int ranks[] = {6, 0, 4, 1, 7, 2}, dims[] = {2, 3};
    assert_non_null(p);
    assert_int_equal(tsr_placement_device(p), TSR_DEVICE_CUDA);
    assert_int_equal(tsr_placement_nranks(p), 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(tsr_placement_rank(p, i), ranks[i]);
        assert_int_equal(tsr_placement_find(p, ranks[i]), i);
    }
    assert_int_equal(tsr_placement_find(p, 3), -1);
    assert_int_equal(tsr_placement_find(p, -1), -1);
    assert_int_equal(tsr_placement_rank(p, 6), -1);
    assert_int_equal(tsr_placement_rank(p, -1), -1);
    assert_int_equal(tsr_placement_dim(p, 2), 0);
    assert_int_equal(tsr_placement_dim(p, -1), 0);
    assert_ptr_equal(tsr_placement_create(&world, TSR_DEVICE_CUDA, 2, dims, ranks), p);
    assert_string_equal(tsr_device_name(TSR_DEVICE_CPU), "cpu");
    assert_string_equal(tsr_device_name(TSR_DEVICE_CUDA), "cuda");
    assert_string_equal(tsr_device_name((tsr_device)0), "?");
    tsri_world_destroy_owned(&world);
}

/* One object per value and world; what differs in any part is another. */
static void test_interning(void **state)
{
    (void)state;
    static const char *const texts[] = {"cpu:[0,1,2,3]",        "cuda:[0,1,2,3]",  "cpu:[0,1,3,2]",
                                        "cpu:[[0,1],[2,3]]",    "cpu:[[0,1,2,3]]", "cpu:[0,1,2]",
                                        "cpu:[[0],[1],[2],[3]]"};
    enum { N = sizeof texts / sizeof *texts };
    tsr_world world = {.nranks = 4}, other = {.nranks = 4};
    enter(&world);
    enter(&other);
    const tsr_placement *p[N];
    for (int i = 0; i < N; i++) {
        p[i] = tsr_placement_parse(&world, texts[i]);
        assert_non_null(p[i]);
        for (int j = 0; j < i; j++)
            assert_ptr_not_equal(p[i], p[j]);
    }
    for (int i = 0; i < N; i++)
        assert_ptr_equal(tsr_placement_parse(&world, texts[i]), p[i]);
    assert_ptr_equal(tsr_placement_parse(&world, "cpu"), p[0]);
    assert_ptr_not_equal(tsr_placement_parse(&other, "cpu"), p[0]);
    tsri_world_destroy_owned(&world);
    tsri_world_destroy_owned(&other);
}

static void check_slice(const tsr_placement *p, int dim, int index, const char *text)
{
    const tsr_placement *slice = tsr_placement_slice(p, dim, index);
    if (!slice)
        fail_msg("%s", tsr_last_error());
    assert_string_equal(tsr_placement_text(slice), text);
    assert_int_equal(tsri_placement_sliced(p, slice), dim);
    assert_ptr_equal(tsr_placement_slice(p, dim, index), slice);
}

static void test_slices(void **state)
{
    (void)state;
    static const char *const names[] = {"pp", "dp", "tp"};
    tsr_world world = {.nranks = 12};
    enter(&world);
    const tsr_placement *line = tsr_placement_parse(&world, "cpu:[3,1,2]");
    check_slice(line, 0, 0, "cpu:[3]");
    check_slice(line, 0, 2, "cpu:[2]");
    const tsr_placement *grid = tsr_placement_parse(&world, "cuda:[[6,0,4],[1,7,2]]");
    check_slice(grid, 0, 1, "cuda:[1,7,2]");
    check_slice(grid, 1, 1, "cuda:[0,7]");
    const tsr_placement *cube =
        tsr_placement_parse(&world, "cpu:[[[0,1],[2,3],[4,5]],[[6,7],[8,9],[10,11]]]");
    check_slice(cube, 0, 1, "cpu:[[6,7],[8,9],[10,11]]");
    check_slice(cube, 1, 2, "cpu:[[4,5],[10,11]]");
    check_slice(cube, 2, 0, "cpu:[[0,2,4],[6,8,10]]");
    assert_int_equal(tsri_placement_sliced(cube, grid), -1);
    assert_int_equal(tsri_placement_sliced(cube, cube), -1);
    assert_int_equal(tsri_placement_sliced(grid, line), -1);
    assert_int_equal(
        tsri_placement_sliced(cube, tsr_placement_parse(&world, "cpu:[[6,7],[8,9],[11,10]]")), -1);
    assert_int_equal(
        tsri_placement_sliced(cube, tsr_placement_parse(&world, "cpu:[6,7,8,9,10,11]")), -1);
    /* Names go with the dimensions that are left. */
    assert_int_equal(tsri_placement_name_axes(cube, names), TSR_OK);
    const tsr_placement *named = tsr_placement_slice(cube, 1, 0);
    assert_string_equal(tsri_placement_axis(named, 0), "pp");
    assert_string_equal(tsri_placement_axis(named, 1), "tp");
    assert_null(tsr_placement_slice(cube, 3, 0));
    assert_string_equal(tsr_last_error(),
                        "tsr_placement_slice: dimension 3; placement "
                        "cpu:[[[0,1],[2,3],[4,5]],[[6,7],[8,9],[10,11]]] has dimensions 0 to 2");
    assert_null(tsr_placement_slice(line, 0, 3));
    assert_string_equal(tsr_last_error(), "tsr_placement_slice: index 3; dimension 0 of placement "
                                          "cpu:[3,1,2] has indices 0 to 2");
    assert_null(tsr_placement_slice(line, -1, 0));
    assert_null(tsr_placement_slice(line, 0, -1));
    assert_null(tsr_placement_slice(NULL, 0, 0));
    tsri_world_destroy_owned(&world);
}

/* Names belong to the one object that equal placements are; what is equal does not ask for them. */
static void test_axes(void **state)
{
    (void)state;
    static const char *const names[] = {"dp", "tp"}, *const others[] = {"x", "y"};
    tsr_world world = {.nranks = 4};
    enter(&world);
    const tsr_placement *p = tsr_placement_parse(&world, "cpu:[[0,1],[2,3]]");
    const tsr_placement *line = tsr_placement_parse(&world, "cpu:[0..3]");
    assert_null(tsri_placement_axis(p, 0));
    assert_int_equal(tsri_placement_name_axes(p, names), TSR_OK);
    assert_int_equal(tsri_placement_name_axes(p, others), TSR_OK);
    assert_ptr_equal(tsr_placement_parse(&world, "cpu:[[0..1],[2..3]]"), p);
    assert_string_equal(tsr_placement_text(p), "cpu:[[0,1],[2,3]]");
    assert_string_equal(tsri_placement_axis(p, 0), "dp");
    assert_string_equal(tsri_placement_axis(p, 1), "tp");
    assert_null(tsri_placement_axis(p, 2));
    assert_null(tsri_placement_axis(p, -1));
    assert_null(tsri_placement_axis(line, 0));
    assert_null(tsri_placement_axis(NULL, 0));
    tsri_world_destroy_owned(&world);
}

static void test_parse_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "column 1"},
        {"[0]", "starts with its device"},
        {"tpu:[0]", "no device 'tpu'"},
        {"cpus:[0]", "no device 'cpus'"},
        {"CPU:[0]", "no device 'CPU'"},
        {"cpu:", "column 5"},
        {"cpu:0", "a list of ranks"},
        {"cpu[0]", "column 4"},
        {"cpu:[]", "column 6"},
        {"cpu:[[]]", "column 7"},
        {"cpu:[0", "the end of the text"},
        {"cpu:[0,", "the end of the text"},
        {"cpu:[0,]", "column 8"},
        {"cpu:[0 1]", "column 8"},
        {"cpu:[0]]", "after the end"},
        {"cpu:[0] x", "after the end"},
        {"cpu x", "column 5"},
        {"cpu:[-1]", "column 6"},
        {"cpu:[0.5]", "column 7"},
        {"cpu:[\x01]", "\\x01"},
        {"cpu:[8]", "rank 8 is outside the world, whose ranks are 0 to 7"},
        {"cpu:[0,99999999999999999999999]", "column 8: rank 99999999999999999999999 is outside"},
        {"cpu:[0,1,0]", "column 10: rank 0 is there twice"},
        {"cpu:[[0,1],[2,1]]", "column 15: rank 1 is there twice"},
        {"cpu:[[0,1],[2]]", "column 12: this list has 1 entries, the one before it has 2"},
        {"cpu:[[0],[1,2]]", "column 10"},
        {"cpu:[[0],1]", "nested unevenly"},
        {"cpu:[0,[1]]", "nested unevenly"},
        {"cpu:[[[0],[1]],[[2]]]", "column 16"},
        {"cpu:[[[[[0]]]]]", "more than 4 dimensions"},
        {"cpu:[0..]", "column 9: found ']'; the last rank of a range is expected, as in 0..7"},
        {"cpu:[0...3]", "column 9: found '.'"},
        {"cpu:[3..1]", "column 6: a range goes up, as in 1..3"},
        {"cpu:[0..8]", "column 9: rank 8 is outside the world, whose ranks are 0 to 7"},
        {"cpu:[2,0..3]", "column 8: rank 2 is there twice; a rank holds one shard"},
        {"cpu:[[0..2],[3..4]]", "column 13: this list has 2 entries, the one before it has 3"},
        {"cpu:[0..1..2]", "column 10: found '.'"},
        {"cpu:0..3", "a list of ranks"},
    };
    tsr_world world = {.nranks = 8};
    enter(&world);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_null(tsr_placement_parse(&world, bad[i].text));
        if (!strstr(tsr_last_error(), bad[i].says))
            fail_msg("\"%s\": %s", bad[i].text, tsr_last_error());
    }
    assert_null(tsr_placement_parse(NULL, "cpu"));
    assert_null(tsr_placement_parse(&world, NULL));
    /* A long text, a deep one. */
    char *text = malloc(100002);
    assert_non_null(text);
    memset(text, '[', 100000);
    memcpy(text, "cpu:", 4);
    text[100000] = 0;
    assert_null(tsr_placement_parse(&world, text));
    memset(text, 'x', 100000);
    assert_null(tsr_placement_parse(&world, text));
    free(text);
    tsri_world_destroy_owned(&world);
}

static void check_create(tsr_world *world, int device, int ndim, const int *dims, const int *ranks,
                         const char *says)
{
    assert_null(tsr_placement_create(world, (tsr_device)device, ndim, dims, ranks));
    if (!strstr(tsr_last_error(), says))
        fail_msg("%s", tsr_last_error());
}

static void test_create_errors(void **state)
{
    (void)state;
    tsr_world world = {.nranks = 4};
    enter(&world);
    const int two[] = {2, 2, 2, 2, 2}, ranks[] = {0, 1, 2, 3};
    check_create(NULL, 1, 1, two, ranks, "world is NULL");
    check_create(&world, 1, 1, NULL, ranks, "hierarchy is NULL");
    check_create(&world, 1, 1, two, NULL, "ranks is NULL");
    check_create(&world, 0, 1, two, ranks, "no device type 0");
    check_create(&world, 3, 1, two, ranks, "no device type 3");
    check_create(&world, 1, 0, two, ranks, "0 dimensions");
    check_create(&world, 1, 5, two, ranks, "5 dimensions");
    check_create(&world, 1, 3, two, ranks, "at least 8 different ranks; the world has 4");
    check_create(&world, 1, 1, (const int[]){0}, ranks, "dimension 0 has 0 ranks");
    check_create(&world, 1, 2, (const int[]){2, -1}, ranks, "dimension 1 has -1 ranks");
    check_create(&world, 1, 4, (const int[]){INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX}, ranks,
                 "the world has 4");
    check_create(&world, 1, 1, two, (const int[]){0, 4}, "rank 4");
    check_create(&world, 1, 1, two, (const int[]){-1, 0}, "rank -1");
    check_create(&world, 1, 2, two, (const int[]){0, 1, 2, 1}, "rank 1 is there twice");
    assert_string_equal(
        tsr_placement_text(tsr_placement_create(&world, TSR_DEVICE_CPU, 2, two, ranks)),
        "cpu:[[0,1],[2,3]]");
    tsri_world_destroy_owned(&world);
}

/* Every allocation of the way fails once; nothing leaks (with ASan) and the next try works. */
static void test_no_memory(void **state)
{
    (void)state;
    int failures = 0;
    for (int n = 1;; n++) {
        tsr_world world = {.nranks = 4, .mem = {.fail_countdown = n}};
        enter(&world);
        const tsr_placement *p = tsr_placement_parse(&world, "cpu:[[0,1],[2,3]]");
        bool failed = !p;
        failures += failed;
        if (failed) {
            assert_non_null(strstr(tsr_last_error(), "no memory"));
            p = tsr_placement_parse(&world, "cpu:[[0,1],[2,3]]");
        }
        assert_non_null(p);
        assert_string_equal(tsr_placement_text(p), "cpu:[[0,1],[2,3]]");
        tsri_world_destroy_owned(&world);
        if (!failed)
            break;
    }
    assert_true(failures >= 4);
}

static const tsr_placement *seen;
static char seen_text[32];

static void look(void *object)
{
    (void)object;
    snprintf(seen_text, sizeof seen_text, "%s", tsr_placement_text(seen));
}

/* What is owned longer than the first placement may still look at it while it goes. */
static void test_outlives_others(void **state)
{
    (void)state;
    tsr_world world = {.nranks = 2};
    enter(&world);
    tsri_owned older, younger;
    tsri_world_own(&world, &older, NULL, look);
    seen = tsr_placement_parse(&world, "cpu:[1,0]");
    tsri_world_own(&world, &younger, NULL, look);
    tsri_world_disown(&older);
    tsri_world_own(&world, &older, NULL, look);
    tsri_world_destroy_owned(&world);
    assert_string_equal(seen_text, "cpu:[1,0]");
    assert_null(world.owned);
    seen_text[0] = 0;
    world = (tsr_world){.nranks = 2};
    tsri_world_own(&world, &older, NULL, look);
    seen = tsr_placement_parse(&world, "cpu:[0,1]");
    tsri_world_destroy_owned(&world);
    assert_string_equal(seen_text, "cpu:[0,1]");
}

static void test_split(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 40; n++)
        for (int parts = 1; parts < 12; parts++) {
            int64_t next = 0;
            for (int part = 0; part < parts; part++) {
                int64_t offset, length;
                tsr_balanced_split(n, parts, part, &offset, &length);
                assert_int_equal(offset, next);
                assert_int_equal(length, n / parts + (part < n % parts ? 1 : 0));
                next += length;
            }
            assert_int_equal(next, n);
        }
    int64_t offset, length;
    tsr_balanced_split(INT64_MAX, 2, 1, &offset, &length);
    assert_true(offset == INT64_MAX / 2 + 1 && length == INT64_MAX / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),           cmocka_unit_test(test_accessors),
        cmocka_unit_test(test_interning),       cmocka_unit_test(test_slices),
        cmocka_unit_test(test_parse_errors),    cmocka_unit_test(test_axes),
        cmocka_unit_test(test_create_errors),   cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_outlives_others), cmocka_unit_test(test_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
