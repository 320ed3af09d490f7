/* SPDX-License-Identifier: Apache-2.0 */
/* What members of a SEND_RECV are told when one of them goes another way, leaves, or is wrong. */
#include "src/comm/comm.h"
#include "src/comm/schedule/plan.h"
#include "tests/dist/comm/rank_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { N = 32, RANKS = 4 };

static const tsr_world_opts small = {
    .size = sizeof small, .arena_bytes = 1 << 20, .timeout_s = 20, .threads = 1};

static void spawn_ok(int n, tsr_rank_fn *fn, void *arg)
{
    tsr_status status = tsr_spawn_with(n, fn, arg, &small);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
}

/* 0 gives to 1, 1 gives to 2, 3 does nothing. */
typedef struct chain {
    tsri_group *g;
    int from;
    tsri_pull pull;
    tsri_segment seg[2];
    tsri_coll coll;
} chain;

static tsr_status make_chain(tsr_world *w, int lane, chain *c)
{
    const int ranks[RANKS] = {0, 1, 2, 3};
    float *mem = (float *)(void *)w->region.base;
    c->from = w->rank - 1;
    c->pull = (tsri_pull){
        .ndim = 1, .length = {N}, .src_step = {1}, .dst_step = {1}, .nsrc = 1, .src = &c->from};
    c->seg[0] = (tsri_segment){.src = w->rank < 2 ? mem : NULL,
                               .dst = mem + N,
                               .dtype = TSR_F32,
                               .shape = TSR_DIMS(N),
                               .src_axis = -1,
                               .dst_axis = -1,
                               .npulls = w->rank == 1 || w->rank == 2,
                               .pulls = &c->pull,
                               .dst_count = N};
    c->seg[1] = (tsri_segment){.dtype = TSR_F32, .shape = TSR_DIMS(N)};
    c->coll = (tsri_coll){.kind = TSRI_COLL_SEND_RECV,
                          .nseg = 1,
                          .seg = c->seg,
                          .what = "stage 1",
                          .loc = {"a/stages.c", 12}};
    return w->comm->ops->group(w->comm, w->nranks, ranks, lane, &c->g);
}

/* The first error of a call, and which half it came from: 1, 2 or 3; 0 for none. */
static tsr_status whole_call(tsr_world *w, const chain *c, int *out_half)
{
    tsri_ticket t;
    *out_half = 1;
    TSRI_TRY(w->comm->ops->start(c->g, &c->coll, &t));
    *out_half = 2;
    TSRI_TRY(w->comm->ops->finish(c->g, &t));
    *out_half = 3;
    TSRI_TRY(w->comm->ops->release(c->g, &t));
    *out_half = 0;
    return TSR_OK;
}

/* --- disagreement ----------------------------------------------------------------------------- */

typedef enum deviation { SHAPE, DTYPE, OP, SEGMENTS, NAME, KIND, DEVIATIONS } deviation;

static void deviate(tsr_world *w, chain *c, deviation how)
{
    switch (how) {
    case SHAPE:
        c->seg[0].shape = TSR_DIMS(N + 1);
        break;
    case DTYPE:
        c->seg[0].dtype = TSR_I32;
        break;
    case OP:
        c->coll.op = TSR_REDUCE_MAX;
        break;
    case SEGMENTS:
        c->coll.nseg = 2;
        break;
    case NAME:
        c->coll.what = "stage 2";
        break;
    default:
        c->coll.kind = TSRI_COLL_ALL_REDUCE;
        c->seg[0].src = w->region.base;
        break;
    }
}

/* Every rank deviates in every way; each time all ranks get an error for that call. */
static tsr_status mismatch_body(tsr_world *w, void *arg)
{
    static const char *const theirs[DEVIATIONS] = {"f32 [33]",   "i32 [32]", "max",
                                                   "2 segments", "stage 2",  "all_reduce"};
    (void)arg;
    for (int who = 0; who < RANKS; who++)
        for (int how = 0; how < DEVIATIONS; how++) {
            chain c, other;
            char rank[16];
            int half, lane = 2 + who * DEVIATIONS + how;
            TSRI_TRY(make_chain(w, lane, &c));
            TSRI_TRY(whole_call(w, &c, &half));
            if (w->rank == who) {
                deviate(w, &c, (deviation)how);
                if (how == KIND)
                    usleep(5000); /* alone sees it then, if nobody reads from it */
            }
            CHECK(whole_call(w, &c, &half) == TSR_ERR_MISMATCH);
            snprintf(rank, sizeof rank, "rank %d is at", who);
            CHECK_TEXT("ranks disagree");
            CHECK_TEXT(rank);
            CHECK_TEXT(theirs[how]);
            CHECK_TEXT("send_recv #2 'stage 1' (stages.c:12)");
            /* That group is over, others are not. */
            CHECK(whole_call(w, &c, &half) == TSR_ERR_MISMATCH && half == 1);
            TSRI_TRY(make_chain(w, 0, &other));
            TSRI_TRY(whole_call(w, &other, &half));
        }
    return TSR_OK;
}

static void test_mismatch(void **state)
{
    (void)state;
    spawn_ok(RANKS, mismatch_body, NULL);
}

/* Calls before the one that disagrees are not touched by it, however late they are released. */
static tsr_status before_body(tsr_world *w, void *arg)
{
    (void)arg;
    chain c, bad;
    tsri_ticket first, second;
    int half;
    TSRI_TRY(make_chain(w, 0, &c));
    bad = c;
    bad.coll.seg = bad.seg;
    bad.seg[0].shape = TSR_DIMS(w->rank == 0 ? 7 : N);
    TSRI_TRY(w->comm->ops->start(c.g, &c.coll, &first));
    tsr_status started = w->comm->ops->start(c.g, &bad.coll, &second), status = started;
    TSRI_TRY(w->comm->ops->finish(c.g, &first));
    if (started == TSR_OK)
        status = w->comm->ops->finish(c.g, &second);
    CHECK(w->rank != 1 || status == TSR_ERR_MISMATCH); /* it reads from rank 0 */
    CHECK(status == TSR_OK || status == TSR_ERR_MISMATCH);
    TSRI_TRY(w->comm->ops->release(c.g, &first));
    CHECK(started || w->comm->ops->release(c.g, &second) == TSR_ERR_MISMATCH);
    CHECK(whole_call(w, &c, &half) == TSR_ERR_MISMATCH && half == 1);
    return TSR_OK;
}

static void test_before(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        spawn_ok(RANKS, before_body, NULL);
}

/* 0 and 1 disagree in call 2 before 2 and 3 do in call 1: that one has failed too. */
static tsr_status later_first_body(tsr_world *w, void *arg)
{
    _Atomic int *found = arg;
    chain c[2];
    tsri_ticket t[2];
    for (int i = 0; i < 2; i++) {
        TSRI_TRY(make_chain(w, 0, &c[i]));
        c[i].coll.seg = c[i].seg;
        c[i].seg[0].npulls = w->rank == 1;
        if (w->rank == 2 * (1 - i))
            c[i].seg[0].shape = TSR_DIMS(7);
    }
    for (int i = 0; w->rank >= 2 && !atomic_load(found); i++) {
        CHECK(i < 100000);
        usleep(100);
    }
    tsr_status status = w->comm->ops->start(c[0].g, &c[0].coll, &t[0]);
    if (w->rank < 2) {
        CHECK(status == TSR_OK);
        TSRI_TRY(w->comm->ops->finish(c[0].g, &t[0]));
        status = w->comm->ops->start(c[1].g, &c[1].coll, &t[1]);
        if (status == TSR_OK)
            status = w->comm->ops->finish(c[1].g, &t[1]);
        CHECK(w->rank == 0 || status == TSR_ERR_MISMATCH);
        if (w->rank == 1)
            atomic_store(found, 1);
        status = TSR_OK;
    }
    /* Of 2 and 3, the later may be told when it starts. */
    if (status == TSR_OK)
        status = w->comm->ops->release(c[0].g, &t[0]);
    CHECK(status == TSR_ERR_MISMATCH);
    return TSR_OK;
}

static void test_later_first(void **state)
{
    (void)state;
    _Atomic int found = 0;
    spawn_ok(RANKS, later_first_body, &found);
}

/* Reads of what is not given, or does not exist: the giver is told too. */
static tsr_status nothing_body(tsr_world *w, void *arg)
{
    (void)arg;
    chain c;
    int half;
    TSRI_TRY(make_chain(w, 0, &c));
    if (w->rank == 1)
        c.seg[0].src = NULL;
    CHECK(whole_call(w, &c, &half) == TSR_ERR_MISMATCH);
    CHECK_TEXT("send_recv #1 'stage 1' (stages.c:12), segment 0");
    CHECK_TEXT("rank 2 reads from rank 1, which gives nothing");
    TSRI_TRY(make_chain(w, 1, &c));
    if (w->rank == 1)
        c.pull.src_at = (int64_t)1 << 18; /* of f32, from the start of an arena of 1 MiB */
    CHECK(whole_call(w, &c, &half) == TSR_ERR_MISMATCH);
    CHECK_TEXT("rank 1 reads from rank 0, beyond the end of its arena");
    TSRI_TRY(make_chain(w, 2, &c));
    if (w->rank == 1)
        c.pull.src_at = ((int64_t)1 << 18) - N; /* the very last */
    return whole_call(w, &c, &half);
}

static void test_nothing_given(void **state)
{
    (void)state;
    spawn_ok(RANKS, nothing_body, NULL);
}

/* --- gone, late, failed ----------------------------------------------------------------------- */

/* Rank 1 leaves before the call (0), or within it, having given and not taken (1), or fails (2). */
static tsr_status leaves_body(tsr_world *w, void *arg)
{
    int how = *(int *)arg, half;
    chain c;
    tsri_ticket t;
    TSRI_TRY(make_chain(w, 0, &c));
    TSRI_TRY(whole_call(w, &c, &half));
    if (w->rank == 1) {
        if (how == 1)
            TSRI_TRY(w->comm->ops->start(c.g, &c.coll, &t));
        usleep(100000);
        return how == 2 ? tsri_fail(TSR_ERR_IO, "can't read 'data.bin'") : TSR_OK;
    }
    tsr_status status = whole_call(w, &c, &half);
    CHECK(status == (how == 2 ? TSR_ERR_REMOTE : TSR_ERR_DEAD));
    CHECK(half == (w->rank == 2 && how != 1 ? 2 : 3));
    if (how == 2) {
        CHECK_TEXT("rank 1 failed: can't read 'data.bin'");
        return status;
    }
    CHECK_TEXT("rank 1 has left");
    CHECK_TEXT("send_recv #2 'stage 1' (stages.c:12)");
    return TSR_OK;
}

static void test_gone(void **state)
{
    (void)state;
    int how[] = {0, 1, 2};
    spawn_ok(RANKS, leaves_body, &how[0]);
    spawn_ok(RANKS, leaves_body, &how[1]);
    assert_int_equal(tsr_spawn_with(RANKS, leaves_body, &how[2], &small), TSR_ERR_IO);
    assert_string_equal(tsr_last_error(), "rank 1: can't read 'data.bin'");
}

typedef struct lateness {
    _Atomic int started, told;
} lateness;

/* Rank 1 stays away until the others, who are there when the time begins to count, have been told.
 */
static tsr_status late_body(tsr_world *w, void *arg)
{
    lateness *l = arg;
    chain c;
    tsri_ticket t;
    TSRI_TRY(make_chain(w, 0, &c));
    if (w->rank == 1) {
        await_count(&l->told, RANKS - 1);
        return TSR_OK;
    }
    TSRI_TRY(w->comm->ops->start(c.g, &c.coll, &t));
    atomic_fetch_add(&l->started, 1);
    await_count(&l->started, RANKS - 1);
    w->timeout_s = 0.2;
    tsr_status finished = w->comm->ops->finish(c.g, &t), status = finished;
    if (finished == TSR_OK)
        status = w->comm->ops->release(c.g, &t);
    atomic_fetch_add(&l->told, 1);
    await_count(&l->told, RANKS - 1); /* who left at once would be missed by the others */
    CHECK(status == TSR_ERR_TIMEOUT && (finished == TSR_OK) == (w->rank != 2));
    CHECK_TEXT(w->rank == 2 ? "rank 1 did not come to send_recv #1 'stage 1' (stages.c:12)"
                            : "rank 1 did not finish send_recv #1 'stage 1' (stages.c:12)");
    CHECK_TEXT("it has not come to any call of this group yet");
    return TSR_OK;
}

static void test_late(void **state)
{
    (void)state;
    lateness l = {0};
    spawn_ok(RANKS, late_body, &l);
}

/* --- wrong ------------------------------------------------------------------------------------ */

typedef struct wrong {
    const char *text;
    tsri_pull pull; /* of 32 f32 from member 0 (this rank) and 1 */
    bool src_null, dst_null, src_outside, src_is_dst;
} wrong;

static const wrong wrongs[] = {
    {.text = "pull 0 has 0 sources", .pull = {.nsrc = 0}},
    {.text = "pull 0 has 3 sources", .pull = {.nsrc = 3}},
    {.text = "pull 0 has 9 axes", .pull = {.nsrc = 1, .ndim = 9}},
    {.text = "length -1", .pull = {.nsrc = 1, .ndim = 1, .length = {-1}}},
    {.text = "dst_step 0", .pull = {.nsrc = 1, .ndim = 1, .length = {2}}},
    {.text = "writes elements 0 to 32 of dst, which has 32",
     .pull = {.nsrc = 1, .ndim = 1, .length = {33}, .src_step = {1}, .dst_step = {1}}},
    {.text = "writes elements -1 to 1 of dst",
     .pull = {.nsrc = 1, .ndim = 1, .length = {3}, .dst_step = {-1}, .dst_at = 1}},
    {.text = "reads element -2",
     .pull = {.nsrc = 1, .ndim = 1, .length = {3}, .src_step = {-1}, .dst_step = {1}}},
    {.text = "reads this rank's src, which is NULL", .pull = {.nsrc = 1}, .src_null = true},
    {.text = "dst is NULL", .pull = {.nsrc = 1}, .dst_null = true},
    {.text = "outside of this rank's arena", .pull = {.nsrc = 1}, .src_outside = true},
    {.text = "overlap", .pull = {.nsrc = 1, .src_at = 3}, .src_is_dst = true},
};

static tsr_status wrong_body(tsr_world *w, void *arg)
{
    (void)arg;
    static float outside[N];
    const int ranks[2] = {0, 1}, own_first[2] = {w->rank, 1 - w->rank};
    const int nobody[][2] = {{2, 0}, {0, 2}, {-1, 1}, {1, -1}};
    enum { WRONGS = sizeof wrongs / sizeof *wrongs, NOBODY = sizeof nobody / sizeof *nobody };
    float *mem = (float *)(void *)w->region.base;
    tsri_group *g;
    tsri_ticket t;
    TSRI_TRY(w->comm->ops->group(w->comm, 2, ranks, 0, &g));
    for (int i = 0; i < WRONGS + NOBODY; i++) {
        bool beyond = i >= WRONGS;
        wrong x = beyond ? (wrong){.pull = {.nsrc = 2}} : wrongs[i];
        if (beyond)
            x.text = i - WRONGS < 2 ? "reads member 2 of a group of 2"
                                    : "reads member -1 of a group of 2";
        x.pull.src = beyond ? nobody[i - WRONGS] : own_first;
        tsri_segment s = {.src = x.src_null      ? NULL
                                 : x.src_outside ? outside
                                 : x.src_is_dst  ? mem + N - 3
                                                 : mem,
                          .dst = x.dst_null ? NULL : mem + N,
                          .dtype = TSR_F32,
                          .shape = TSR_DIMS(N),
                          .npulls = 1,
                          .pulls = &x.pull,
                          .dst_count = N};
        tsri_coll c = {.kind = TSRI_COLL_SEND_RECV, .nseg = 1, .seg = &s, .what = "x"};
        CHECK(w->comm->ops->start(g, &c, &t) == TSR_ERR_INVALID);
        CHECK_TEXT("send_recv 'x', segment 0");
        CHECK_TEXT(x.text);
        /* Where memory is not shared, it may lie anywhere. */
        tsri_error_clear();
        CHECK(tsri_coll_check_here(&c, 2, w->rank, i & 1) ==
              (x.src_outside ? TSR_OK : TSR_ERR_INVALID));
        CHECK(x.src_outside || (strstr(tsr_last_error(), "send_recv 'x', segment 0") &&
                                strstr(tsr_last_error(), x.text)));
    }
    /* They left no trace. */
    const tsri_pull p = {.nsrc = 2, .src = own_first};
    tsri_segment s = {
        .src = mem, .dst = mem + N, .dtype = TSR_F32, .npulls = 1, .pulls = &p, .dst_count = 1};
    const tsri_coll c = {.kind = TSRI_COLL_SEND_RECV, .nseg = 1, .seg = &s, .what = "x"};
    mem[0] = (float)w->rank + 1;
    TSRI_TRY(w->comm->ops->start(g, &c, &t));
    TSRI_TRY(w->comm->ops->finish(g, &t));
    CHECK(mem[N] == 3);
    return w->comm->ops->release(g, &t);
}

static void test_wrong(void **state)
{
    (void)state;
    spawn_ok(2, wrong_body, NULL);
}

/* A rank's message to itself may end where the result begins, and the other way round. */
static void test_next_to_each_other(void **state)
{
    (void)state;
    static float mem[4 * N];
    const int own = 1;
    for (int at = 0; at <= 2 * N; at++) {
        tsri_pull p = {.ndim = 1, .length = {N}, .src_step = {1}, .dst_step = {1}, .nsrc = 1};
        p.src = &own;
        const tsri_segment s = {.src = mem + at,
                                .dst = mem + N,
                                .dtype = TSR_F32,
                                .shape = TSR_DIMS(N),
                                .npulls = 1,
                                .pulls = &p,
                                .dst_count = N};
        const tsri_coll c = {.kind = TSRI_COLL_SEND_RECV, .nseg = 1, .seg = &s, .what = "x"};
        const bool apart = at == 0 || at == 2 * N;
        assert_int_equal(tsri_coll_check_here(&c, 2, 1, true), apart ? TSR_OK : TSR_ERR_INVALID);
        assert_int_equal(tsri_coll_check_here(&c, 2, 0, true), TSR_OK); /* the other's */
        p.length[0] = 0;
        assert_int_equal(tsri_coll_check_here(&c, 2, 1, true), TSR_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mismatch),    cmocka_unit_test(test_before),
        cmocka_unit_test(test_later_first), cmocka_unit_test(test_nothing_given),
        cmocka_unit_test(test_gone),        cmocka_unit_test(test_late),
        cmocka_unit_test(test_wrong),       cmocka_unit_test(test_next_to_each_other),
    };
    return cmocka_run_group_tests_name("send_recv_faults", tests, NULL, NULL);
}
