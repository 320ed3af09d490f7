/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks are told when one of them goes another way, is late, fails or leaves. */
#include "src/comm/comm.h"
#include "tests/dist/comm/rank_checks.h"
#include "tests/dist/comm/ranks.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static const tsr_world_opts small = {
    .size = sizeof small, .arena_bytes = 1 << 20, .timeout_s = 20, .threads = 1};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void spawn_ok(int n, tsr_rank_fn *fn, void *arg, const tsr_world_opts *opts)
{
    tsr_status status = test_ranks(n, fn, arg, opts);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
}

static bool is_local(void)
{
    return !strcmp(test_ranks_comm(), "local");
}

static tsr_status all_ranks(tsr_world *w, tsri_group **out)
{
    const int ranks[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    return w->comm->ops->group(w->comm, w->nranks, ranks, 0, out);
}

/* n elements at a fixed place of the arena. */
static tsri_segment segment_of(const tsr_world *w, int64_t n, tsr_dtype dtype)
{
    return (tsri_segment){.src = w->region.base,
                          .dst = w->region.base + 65536,
                          .dtype = dtype,
                          .shape = TSR_DIMS(n),
                          .src_axis = -1,
                          .dst_axis = -1};
}

/* One call on them. */
static tsr_status call(tsr_world *w, tsri_coll c, int64_t n, tsr_dtype dtype)
{
    tsri_group *g;
    tsri_ticket t;
    TSRI_TRY(all_ranks(w, &g));
    const tsri_segment s = segment_of(w, n, dtype);
    c.nseg = 1;
    c.seg = &s;
    TSRI_TRY(w->comm->ops->start(g, &c, &t));
    TSRI_TRY(w->comm->ops->finish(g, &t));
    return w->comm->ops->release(g, &t);
}

/* --- disagreement ----------------------------------------------------------------------------- */

static tsr_status mismatch_body(tsr_world *w, void *arg)
{
    (void)arg;
    bool odd = w->rank == 1;
    tsri_coll mine = {
        .kind = TSRI_COLL_ALL_REDUCE, .what = "grad bucket 3", .loc = {"a/model.c", 31}};
    tsri_coll other = {.kind = TSRI_COLL_BROADCAST, .what = "weights", .loc = {"b/train.c", 7}};
    TSRI_TRY(call(w, mine, 100, TSR_F32));
    CHECK(call(w, odd ? other : mine, 100, TSR_F32) == TSR_ERR_MISMATCH);
    CHECK_TEXT("rank 1");
    CHECK(w->rank == 1 || strstr(tsr_last_error(), w->rank == 0 ? "rank 0" : "rank 2"));
    CHECK_TEXT("all_reduce #2 'grad bucket 3' (model.c:31)");
    CHECK_TEXT("broadcast #2 'weights' (train.c:7)");
    CHECK_TEXT("400 bytes");
    /* Bytes, dtype at the same bytes, operation, algorithm, root, name. */
    CHECK(call(w, mine, odd ? 100 : 101, TSR_F32) == TSR_ERR_MISMATCH);
    CHECK_TEXT("400 bytes");
    CHECK_TEXT("404 bytes");
    CHECK(call(w, mine, 100, odd ? TSR_I32 : TSR_F32) == TSR_ERR_MISMATCH);
    CHECK_TEXT("i32 [100]");
    CHECK_TEXT("f32 [100]");
    other = mine;
    other.op = TSR_REDUCE_MAX;
    CHECK(call(w, odd ? other : mine, 100, TSR_F32) == TSR_ERR_MISMATCH);
    CHECK_TEXT("max");
    other = mine;
    other.algo = TSRI_ALGO_TWO_PHASE;
    CHECK(call(w, odd ? other : mine, 100, TSR_F32) == TSR_ERR_MISMATCH);
    CHECK_TEXT("two-phase");
    other = mine;
    other.what = "grad bucket 4";
    CHECK(call(w, odd ? other : mine, 100, TSR_F32) == TSR_ERR_MISMATCH);
    CHECK_TEXT("grad bucket 4");
    /* No data moved, and the group can go on. */
    return call(w, mine, 100, TSR_F32);
}

static void test_mismatch(void **state)
{
    (void)state;
    spawn_ok(2, mismatch_body, NULL, &small);
    spawn_ok(3, mismatch_body, NULL, &small);
}

static tsri_segment of_100(const void *src, void *dst, int src_axis)
{
    return (tsri_segment){.src = src,
                          .dst = dst,
                          .dtype = TSR_F32,
                          .shape = TSR_DIMS(100),
                          .src_axis = src_axis,
                          .dst_axis = -1};
}

static tsr_status invalid_body(tsr_world *w, void *arg)
{
    (void)arg;
    static float outside[100];
    char *in = w->region.base;
    tsri_group *g;
    tsri_ticket t;
    TSRI_TRY(all_ranks(w, &g));
    tsri_segment s = of_100(outside, in, -1);
    tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE, .nseg = 1, .seg = &s, .what = "x"};
    CHECK(w->comm->ops->start(g, &c, &t) == TSR_ERR_INVALID);
    CHECK_TEXT("src");
    CHECK_TEXT("outside");
    s = of_100(in, outside, -1);
    c.algo = TSRI_ALGO_TWO_PHASE;
    CHECK(w->comm->ops->start(g, &c, &t) == TSR_ERR_INVALID);
    CHECK_TEXT("dst");
    s = of_100(in, in + 16, -1);
    CHECK(w->comm->ops->start(g, &c, &t) == TSR_ERR_INVALID);
    CHECK_TEXT("overlap");
    s = of_100(in, in + 4096, 0);
    CHECK(w->comm->ops->start(g, &c, &t) == TSR_ERR_INVALID);
    CHECK_TEXT("src_axis");
    s = of_100(NULL, in, -1);
    CHECK(w->comm->ops->start(g, &c, &t) == TSR_ERR_INVALID);
    CHECK_TEXT("src is NULL");
    s = of_100(in + w->region.size - 396, in, -1);
    CHECK(w->comm->ops->start(g, &c, &t) == TSR_ERR_INVALID);
    /* A refused start leaves no trace. A dst that nobody reads may be anywhere. */
    s = of_100(in, outside, -1);
    c.algo = TSRI_ALGO_ONE_SHOT;
    s.dst = w->rank == 0 ? (void *)outside : (void *)(in + 4096);
    TSRI_TRY(w->comm->ops->start(g, &c, &t));
    TSRI_TRY(w->comm->ops->finish(g, &t));
    return w->comm->ops->release(g, &t);
}

static void test_invalid(void **state)
{
    (void)state;
    spawn_ok(2, invalid_body, NULL, &small);
    assert_int_equal(tsr_spawn(0, invalid_body, NULL), TSR_ERR_INVALID);
    tsr_world_opts o = small;
    o.timeout_s = -1;
    assert_int_equal(tsr_spawn_with(1, invalid_body, NULL, &o), TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "tsr_world_opts.timeout_s is -1"));
    o = small;
    o.threads = -1;
    assert_int_equal(tsr_spawn_with(1, invalid_body, NULL, &o), TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "tsr_world_opts.threads is -1"));
    o = small;
    o.size = 0;
    assert_int_equal(tsr_spawn_with(1, invalid_body, NULL, &o), TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "tsr_world_opts.size is 0"));
}

/* --- late, gone, failed ----------------------------------------------------------------------- */

typedef struct lateness {
    _Atomic int started, told;
} lateness;

static tsr_status late_body(tsr_world *w, void *arg)
{
    lateness *l = arg;
    tsri_group *g;
    tsri_ticket t;
    tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE, .what = "first", .loc = {"m.c", 30}};
    TSRI_TRY(call(w, c, 10, TSR_F32));
    c.what = "grad bucket 3";
    c.loc.line = 31;
    if (w->rank == 2) {
        await_count(&l->told, 2);
        return TSR_OK;
    }
    /* The other two are there when the time begins to count. */
    const tsri_segment s = segment_of(w, 10, TSR_F32);
    c.nseg = 1;
    c.seg = &s;
    TSRI_TRY(all_ranks(w, &g));
    TSRI_TRY(w->comm->ops->start(g, &c, &t));
    atomic_fetch_add(&l->started, 1);
    await_count(&l->started, 2);
    double start = now_s();
    w->timeout_s = 0.5;
    tsr_status status = w->comm->ops->finish(g, &t);
    atomic_fetch_add(&l->told, 1);
    CHECK(status == TSR_ERR_TIMEOUT);
    CHECK(now_s() - start < 15 && (!is_local() || now_s() - start >= 0.5));
    CHECK_TEXT("rank 2 did not come to all_reduce #2 'grad bucket 3' (m.c:31) within 0.5 s");
    CHECK(!is_local() || strstr(tsr_last_error(),
                                "its last call in this group is all_reduce #1 'first' (m.c:30)"));
    return TSR_OK;
}

static void test_late(void **state)
{
    (void)state;
    lateness l = {0};
    spawn_ok(3, late_body, &l, &small);
}

/* Of many that are late, some are named. */
static tsr_status many_late_body(tsr_world *w, void *arg)
{
    lateness *l = arg;
    const tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE, .what = "loss"};
    if (w->rank != 0) {
        await_count(&l->told, 1);
        return TSR_OK;
    }
    w->timeout_s = 0.2;
    tsr_status status = call(w, c, 10, TSR_F32);
    atomic_fetch_add(&l->told, 1);
    CHECK(status == TSR_ERR_TIMEOUT);
    CHECK_TEXT("; behind in this group: rank 1 at none, rank 2 at none, rank 3 at none, rank 4 at "
               "none, rank 5 at none, rank 6 at none, rank 7 at none, rank 8 at none and 3 more");
    return TSR_OK;
}

static void test_many_late(void **state)
{
    (void)state;
    lateness l = {0};
    if (is_local())
        spawn_ok(12, many_late_body, &l, &small);
}

static tsr_status leaves_body(tsr_world *w, void *arg)
{
    (void)arg;
    const tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE, .what = "loss"};
    TSRI_TRY(call(w, c, 10, TSR_F32));
    if (w->rank == 1) {
        usleep(200000);
        return TSR_OK;
    }
    double start = now_s();
    CHECK(call(w, c, 10, TSR_F32) == TSR_ERR_DEAD);
    CHECK(now_s() - start < 15);
    CHECK_TEXT("rank 1 has left");
    CHECK_TEXT("all_reduce #2 'loss'");
    return TSR_OK;
}

static tsr_status fails_body(tsr_world *w, void *arg)
{
    double *longest = arg, start = now_s();
    if (w->rank == 2) {
        usleep(200000);
        return tsri_fail(TSR_ERR_IO, "can't read 'data.bin'");
    }
    tsr_status status = tsr_world_barrier(w);
    if (w->rank == 0)
        *longest = now_s() - start;
    CHECK(status == TSR_ERR_REMOTE);
    CHECK_TEXT("rank 2 failed: can't read 'data.bin'");
    return status;
}

static tsr_status aborts_body(tsr_world *w, void *arg)
{
    (void)arg;
    if (w->rank == 0) {
        tsr_world_abort(w, "the user pressed a key");
        tsr_world_abort(w, "too late");
    }
    double start = now_s();
    tsr_status status = TSR_OK;
    for (int i = 0; i < 1000 && status == TSR_OK; i++) {
        status = tsr_world_barrier(w);
        usleep(1000);
    }
    CHECK(status == TSR_ERR_REMOTE && now_s() - start < 15);
    CHECK_TEXT("rank 0 failed: the user pressed a key");
    char all[8];
    CHECK(w->comm->ops->exchange(w->comm, "", 1, all) == TSR_ERR_REMOTE);
    return TSR_OK;
}

static void test_gone(void **state)
{
    (void)state;
    double longest = 0;
    spawn_ok(2, leaves_body, NULL, &small);
    spawn_ok(4, leaves_body, NULL, &small);
    assert_int_equal(test_ranks(4, fails_body, &longest, &small), TSR_ERR_IO);
    assert_string_equal(tsr_last_error(), "rank 2: can't read 'data.bin'");
    assert_true(longest > 0.1 && longest < 1.2);
    spawn_ok(3, aborts_body, NULL, &small);
}

/* --- worlds ----------------------------------------------------------------------------------- */

static void test_single_world(void **state)
{
    (void)state;
    tsr_world *w;
    tsr_world_opts o = small;
    assert_int_equal(tsr_world_create(&o, &w), TSR_OK);
    assert_int_equal(tsr_world_rank(w), 0);
    assert_int_equal(tsr_world_size(w), 1);
    assert_int_equal(tsr_world_local_rank(w), 0);
    assert_int_equal(w->region.size, 1 << 20);
    assert_int_equal(tsr_world_barrier(w), TSR_OK);
    tsr_world_destroy(w);
    tsr_world_destroy(NULL);
    assert_int_equal(tsr_world_create(NULL, &w), TSR_OK);
    assert_true(w->region.size >= (size_t)1 << 30);
    assert_int_equal(w->timeout_s, 60);
    tsr_world_destroy(w);
}

static void test_variables(void **state)
{
    (void)state;
    tsr_world *w;
    setenv("TESSERA_TIMEOUT_S", "2.5", 1);
    setenv("TESSERA_ARENA_BYTES", "1000000", 1);
    assert_int_equal(tsr_world_create(NULL, &w), TSR_OK);
    assert_true(w->timeout_s == 2.5);
    assert_int_equal(w->region.size, 1003520); /* whole pages */
    tsr_world_destroy(w);
    setenv("TESSERA_TIMEOUT_S", "soon", 1);
    assert_int_equal(tsr_world_create(NULL, &w), TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "TESSERA_TIMEOUT_S"));
    unsetenv("TESSERA_TIMEOUT_S");
    setenv("TESSERA_ARENA_BYTES", "9000000000000000000", 1);
    assert_int_equal(tsr_world_create(NULL, &w), TSR_ERR_NO_MEMORY);
    assert_non_null(strstr(tsr_last_error(), "TESSERA_ARENA_BYTES"));
    unsetenv("TESSERA_ARENA_BYTES");
    setenv("WORLD_SIZE", "4", 1);
    assert_int_equal(tsr_world_create(NULL, &w), TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "RANK"));
    setenv("RANK", "4", 1);
    assert_int_equal(tsr_world_create(NULL, &w), TSR_ERR_INVALID);
    setenv("RANK", "1", 1);
    assert_int_equal(tsr_world_create(NULL, &w), TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "tessera launch -n 4"));
    setenv("TESSERA_ARENA", "1:2", 1);
    assert_int_equal(tsr_world_create(NULL, &w), TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "TESSERA_ARENA"));
    setenv("TESSERA_ARENA", "999999999:0:4096", 1);
    assert_int_equal(tsr_world_create(NULL, &w), TSR_ERR_INVALID);
    unsetenv("TESSERA_ARENA");
    unsetenv("WORLD_SIZE");
    unsetenv("RANK");
}

static void test_virtual(void **state)
{
    (void)state;
    tsr_world *w;
    assert_int_equal(tsr_world_create_virtual(1000, 7, &w), TSR_OK);
    assert_int_equal(tsr_world_size(w), 1000);
    assert_int_equal(tsr_world_rank(w), 7);
    assert_true(w->is_virtual);
    assert_int_equal(tsr_world_barrier(w), TSR_ERR_STATE);
    tsr_world_abort(w, "nobody hears");
    tsr_world_destroy(w);
    assert_int_equal(tsr_world_create_virtual(4, 4, &w), TSR_ERR_INVALID);
    assert_int_equal(tsr_world_create_virtual(0, 0, &w), TSR_ERR_INVALID);
}

static void count_log(void *arg, tsr_log_level level, const char *text)
{
    if (level == TSR_LOG_INFO && !strcmp(text, "seven 7"))
        ++*(int *)arg;
}

static void test_log(void **state)
{
    (void)state;
    int n = 0;
    tsr_world *w;
    tsr_world_opts o = small;
    o.log = count_log;
    o.log_arg = &n;
    assert_int_equal(tsr_world_create(&o, &w), TSR_OK);
    tsri_log(w, TSR_LOG_INFO, "seven %d", 7);
    tsri_log(NULL, TSR_LOG_INFO, "seven %d", 7);
    tsr_world_destroy(w);
    assert_int_equal(n, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_many_late),
        cmocka_unit_test(test_gone),
    };
    const struct CMUnitTest of_local[] = {
        cmocka_unit_test(test_invalid),   cmocka_unit_test(test_single_world),
        cmocka_unit_test(test_variables), cmocka_unit_test(test_virtual),
        cmocka_unit_test(test_log),
    };
    int failed = cmocka_run_group_tests_name("faults", tests, NULL, NULL);
    if (is_local())
        failed += cmocka_run_group_tests_name("faults, worlds of a machine", of_local, NULL, NULL);
    return failed;
}
