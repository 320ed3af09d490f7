/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are processes and talk through Gloo: prepared calls, twins, what dies, is late or
 * aborts. */
#include "tests/dist/comm/gloo_processes.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static tsri_segment whole(void *src, void *dst, int64_t count)
{
    return (tsri_segment){.src = src,
                          .dst = dst,
                          .dtype = TSR_I64,
                          .shape = TSR_DIMS(count),
                          .src_axis = -1,
                          .dst_axis = -1};
}

/* --- prepared calls --------------------------------------------------------------------------- */
enum { SMALL_CALLS = 10000 };

/* Ten thousand small calls, prepared once, on two lanes. */
static tsr_status small_body(tsr_world *w, shared *s)
{
    (void)s;
    int64_t src[2][3], dst[2][3];
    tsri_segment seg[2];
    tsri_coll c[2];
    tsri_group *g[2];
    for (int l = 0; l < 2; l++) {
        TSRI_TRY(gloo_group(w, l, &g[l]));
        seg[l] = whole(src[l], dst[l], 3);
        c[l] = (tsri_coll){
            .kind = TSRI_COLL_ALL_REDUCE, .nseg = 1, .seg = &seg[l], .what = l ? "bulk" : "small"};
        TSRI_TRY(w->comm->ops->prepare(g[l], &c[l]));
        CHECK(c[l].prepared);
    }
    for (int64_t i = 0; i < SMALL_CALLS; i++) {
        int l = i % 3 == 0;
        for (int k = 0; k < 3; k++)
            src[l][k] = i * (w->rank + 1) + k;
        TSRI_TRY(gloo_call(g[l], &c[l]));
        for (int k = 0; k < 3; k++)
            CHECK(dst[l][k] == 3 * i + 2 * k);
    }
    for (int l = 0; l < 2; l++)
        w->comm->ops->unprepare(g[l], &c[l]);
    return TSR_OK;
}

static void test_small(void **state)
{
    (void)state;
    gloo_processes_ok(2, small_body);
}

/* Each kind, prepared once and called three times with other values. */
static tsr_status kind_body(tsr_world *w, tsri_group *g, tsri_coll_kind kind, tsri_coll_algo algo)
{
    enum { ROWS = 7, COLS = 5, COUNT = ROWS * COLS };
    int64_t src[COUNT], dst[COUNT], n = w->nranks, me = w->rank;
    bool split = kind == TSRI_COLL_ALL_GATHER, scatter = kind == TSRI_COLL_REDUCE_SCATTER;
    tsri_segment seg = {.src = src,
                        .dst = dst,
                        .dtype = TSR_I64,
                        .shape = TSR_DIMS(ROWS, COLS),
                        .src_axis = split ? 0 : -1,
                        .dst_axis = scatter ? 0 : -1};
    tsri_coll c = {.kind = kind, .algo = algo, .root = (int)n - 1, .nseg = 1, .seg = &seg};
    if (kind == TSRI_COLL_BARRIER)
        c.nseg = 0;
    TSRI_TRY(w->comm->ops->prepare(g, &c));
    int64_t base = ROWS / n, extra = ROWS % n;
    int64_t from = me * base + (me < extra ? me : extra), rows = base + (me < extra);
    for (int64_t round = 0; round < 3; round++) {
        for (int64_t e = 0; e < COUNT; e++) {
            src[e] = split ? (from * COLS + e) * 10 + round : e * 10 + round + 1000 * me;
            dst[e] = -1;
        }
        TSRI_TRY(gloo_call(g, &c));
        for (int64_t e = 0; e < COUNT && c.nseg; e++) {
            int64_t sum = n * (e * 10 + round) + 1000 * n * (n - 1) / 2, expected = sum;
            if (kind == TSRI_COLL_BROADCAST)
                expected = e * 10 + round + 1000 * (n - 1);
            else if (split)
                expected = e * 10 + round;
            else if (scatter)
                expected = e < rows * COLS ? sum + n * from * COLS * 10 : -1;
            else if (kind == TSRI_COLL_REDUCE && me != n - 1)
                expected = -1;
            CHECK(dst[e] == expected);
        }
    }
    w->comm->ops->unprepare(g, &c);
    return TSR_OK;
}

static tsr_status prepared_body(tsr_world *w, shared *s)
{
    tsri_group *g;
    (void)s;
    TSRI_TRY(gloo_group(w, 0, &g));
    for (int kind = TSRI_COLL_BARRIER; kind <= TSRI_COLL_REDUCE; kind++)
        if (kind != TSRI_COLL_ALL_TO_ALL)
            TSRI_TRY(kind_body(w, g, (tsri_coll_kind)kind, TSRI_ALGO_ONE_SHOT));
    TSRI_TRY(kind_body(w, g, TSRI_COLL_ALL_REDUCE, TSRI_ALGO_TWO_PHASE));
    TSRI_TRY(kind_body(w, g, TSRI_COLL_REDUCE, TSRI_ALGO_TWO_PHASE));
    /* Who disagrees hears of it when the call is prepared, and can go on. */
    int64_t a = 1, b;
    tsri_segment seg = whole(&a, &b, 1);
    tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE,
                   .nseg = 1,
                   .seg = &seg,
                   .what = w->rank ? "theirs" : "mine",
                   .loc = {"model.c", 10 + w->rank}};
    if (w->nranks > 1) {
        CHECK(w->comm->ops->prepare(g, &c) == TSR_ERR_MISMATCH);
        CHECK_TEXT("'mine' (model.c:10)");
        CHECK_TEXT("'theirs' (model.c:1");
    }
    c.what = "ours";
    return gloo_call(g, &c);
}

static void test_prepared(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++)
        gloo_processes_ok(n, prepared_body);
}

/* --- order ------------------------------------------------------------------------------------ */
/* Groups of two in a ring, each first used at another time on its two members: rank r calls with
 * its right neighbour first, and all calls are under way at once. */
static tsr_status ring_body(tsr_world *w, shared *s)
{
    int n = w->nranks;
    int64_t src[2], dst[2] = {0, 0};
    (void)s;
    tsri_group *g[2];
    tsri_segment seg[2];
    tsri_coll c[2];
    tsri_ticket t[2];
    for (int side = 0; side < 2; side++) {
        int left = (w->rank + n - side) % n, right = (left + 1) % n;
        const int ranks[2] = {left, right};
        TSRI_TRY(w->comm->ops->group(w->comm, 2, ranks, 0, &g[side]));
        src[side] = 10 + w->rank;
        seg[side] = whole(&src[side], &dst[side], 1);
        c[side] = (tsri_coll){.kind = TSRI_COLL_ALL_REDUCE, .nseg = 1, .seg = &seg[side]};
        TSRI_TRY(w->comm->ops->start(g[side], &c[side], &t[side]));
    }
    for (int side = 0; side < 2; side++) {
        TSRI_TRY(w->comm->ops->finish(g[side], &t[side]));
        int other = (w->rank + (side ? n - 1 : 1)) % n;
        CHECK(dst[side] == 20 + w->rank + other);
        TSRI_TRY(w->comm->ops->release(g[side], &t[side]));
    }
    return TSR_OK;
}

static void test_ring(void **state)
{
    (void)state;
    gloo_processes_ok(4, ring_body);
    gloo_processes_ok(5, ring_body);
}

/* Calls proceed while their rank does something else: here, waits for them to be counted. */
static tsr_status overlap_body(tsr_world *w, shared *s)
{
    enum { COUNT = 1 << 20 };
    int64_t *src = calloc(COUNT, sizeof *src), *dst = calloc(COUNT, sizeof *dst);
    tsri_comm_stats stats = {{0}, {0}};
    tsri_segment seg = whole(src, dst, COUNT);
    tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE,
                   .algo = TSRI_ALGO_TWO_PHASE,
                   .nseg = 1,
                   .seg = &seg,
                   .what = "bulk"};
    tsri_group *g;
    tsri_ticket t;
    (void)s;
    CHECK(src && dst);
    src[COUNT - 1] = w->rank + 1;
    TSRI_TRY(gloo_group(w, 1, &g));
    TSRI_TRY(w->comm->ops->start(g, &c, &t));
    for (int i = 0; i < 30000 && !stats.bytes_read[c.kind]; i++) {
        usleep(1000);
        w->comm->ops->stats(w->comm, &stats);
    }
    CHECK(stats.bytes_read[c.kind] == tsri_coll_bytes(c.kind, c.algo, w->nranks, w->rank, 0, &seg));
    TSRI_TRY(w->comm->ops->finish(g, &t));
    CHECK(dst[COUNT - 1] == 6);
    TSRI_TRY(w->comm->ops->release(g, &t));
    free(src);
    free(dst);
    return TSR_OK;
}

static void test_overlap(void **state)
{
    (void)state;
    gloo_processes_ok(3, overlap_body);
}

/* What the root has sent arrives, though it leaves at once. */
static tsr_status leaves_body(tsr_world *w, shared *s)
{
    enum { COUNT = 1 << 21 };
    int64_t *data = calloc(COUNT, sizeof *data);
    tsri_segment seg = whole(data, data, COUNT);
    tsri_coll c = {.kind = TSRI_COLL_BROADCAST, .nseg = 1, .seg = &seg};
    tsri_group *g;
    (void)s;
    CHECK(data);
    for (int64_t i = 0; w->rank == 0 && i < COUNT; i++)
        data[i] = i * 3;
    if (w->rank)
        seg.src = NULL;
    TSRI_TRY(gloo_group(w, 0, &g));
    TSRI_TRY(gloo_call(g, &c));
    for (int64_t i = 0; i < COUNT; i++)
        CHECK(data[i] == i * 3);
    free(data);
    return TSR_OK;
}

static void test_leaves(void **state)
{
    (void)state;
    gloo_processes_ok(2, leaves_body);
    gloo_processes_ok(4, leaves_body);
}

/* --- twins ------------------------------------------------------------------------------------ */
typedef struct twin_thread {
    tsri_comm *comm;
    tsr_status status;
    char text[512];
} twin_thread;

static tsr_status sum_often(tsri_comm *comm)
{
    tsri_group *g;
    int64_t src, dst;
    tsri_segment seg = whole(&src, &dst, 1);
    tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE, .nseg = 1, .seg = &seg, .what = "often"};
    TSRI_TRY(comm->ops->group(comm, 3, (const int[]){0, 1, 2}, 0, &g));
    for (int i = 0; i < 300; i++) {
        src = i + comm->world->rank;
        TSRI_TRY(gloo_call(g, &c));
        CHECK(dst == 3 * i + 3);
    }
    return TSR_OK;
}

static void *run_twin(void *arg)
{
    twin_thread *t = arg;
    t->status = sum_often(t->comm);
    if (t->status != TSR_OK)
        snprintf(t->text, sizeof t->text, "%s", tsr_last_error());
    return NULL;
}

/* The twin's calls go beside those of its communicator, in the same lane of the same ranks; an
 * abort of it is one of both. */
static tsr_status twin_body(tsr_world *w, shared *s)
{
    tsri_comm *twin;
    pthread_t thread;
    TSRI_TRY(w->comm->ops->twin(w->comm, &twin));
    twin_thread t = {.comm = twin};
    CHECK(!pthread_create(&thread, NULL, run_twin, &t));
    tsr_status status = sum_often(w->comm);
    pthread_join(thread, NULL);
    TSRI_TRY(status);
    if (t.status != TSR_OK)
        return tsri_fail(t.status, "twin: %s", t.text);
    tsri_comm_stats mine, its;
    w->comm->ops->stats(w->comm, &mine);
    twin->ops->stats(twin, &its);
    CHECK(mine.calls[TSRI_COLL_ALL_REDUCE] == 300 && its.calls[TSRI_COLL_ALL_REDUCE] == 300);
    atomic_fetch_add(&s->flag[0], 1);
    TSRI_TRY(gloo_await(&s->flag[0], 3));
    if (w->rank == 1)
        twin->ops->abort(twin, "the twin gives up");
    tsri_group *g;
    tsri_coll c = {.kind = TSRI_COLL_BARRIER};
    TSRI_TRY(gloo_group(w, 1, &g));
    CHECK(gloo_call(g, &c) == TSR_ERR_REMOTE);
    CHECK_TEXT("rank 1 failed: the twin gives up");
    twin->ops->destroy(twin);
    return TSR_OK;
}

static void test_twin(void **state)
{
    (void)state;
    gloo_processes_ok(3, twin_body);
}

/* --- who dies, is late, aborts ---------------------------------------------------------------- */
static tsr_status barrier_of(tsr_world *w, int n, const int *ranks, const char *what)
{
    tsri_group *g;
    tsri_coll c = {.kind = TSRI_COLL_BARRIER, .what = what, .loc = {"train.c", 31}};
    TSRI_TRY(w->comm->ops->group(w->comm, n, ranks, 0, &g));
    return gloo_call(g, &c);
}

static const int all4[4] = {0, 1, 2, 3}, pair01[2] = {0, 1}, pair23[2] = {2, 3};

/* Rank 3 is killed while 2 waits for it; 0 and 1, whom it never met but in the exchange, wait for
 * each other's end. */
static tsr_status dies_body(tsr_world *w, shared *s)
{
    TSRI_TRY(barrier_of(w, 4, all4, "all"));
    TSRI_TRY(w->rank < 2 ? barrier_of(w, 2, pair01, "low") : barrier_of(w, 2, pair23, "high"));
    atomic_fetch_add(&s->flag[1], 1);
    TSRI_TRY(gloo_await(&s->flag[1], 4));
    double start = now_s();
    if (w->rank == 3) {
        usleep(100000);
        raise(SIGKILL);
    }
    tsr_status status = TSR_OK;
    if (w->rank == 2)
        status = barrier_of(w, 2, pair23, "high again");
    else
        for (int i = 0; i < 20000 && status == TSR_OK; i++) {
            status = w->comm->ops->check(w->comm);
            usleep(1000);
        }
    CHECK(status == TSR_ERR_DEAD && now_s() - start < 15);
    CHECK_TEXT("rank 3 died, or was cut off, while rank 2 waited for it in barrier");
    CHECK_TEXT("'high again' (train.c:31)");
    CHECK(barrier_of(w, 2, w->rank < 2 ? pair01 : pair23, "after") == TSR_ERR_DEAD);
    return TSR_OK;
}

static void test_dies(void **state)
{
    (void)state;
    const gloo_run run = {.nranks = 4, .timeout_s = 60, .killed = 3, .missing = -1};
    shared *s = gloo_processes(&run, dies_body);
    for (int r = 0; r < 3; r++)
        if (s->status[r] != TSR_OK)
            fail_msg("rank %d: %s", r, s->text[r]);
    gloo_processes_free(s);
}

/* Rank 2 comes too late: the others are told at the same time, by name, and then it is too. */
static tsr_status late_body(tsr_world *w, shared *s)
{
    TSRI_TRY(barrier_of(w, 4, all4, "all"));
    w->timeout_s = 1; /* until now there was time to start */
    if (w->rank == 2) {
        TSRI_TRY(gloo_await(&s->flag[0], 3));
        CHECK(barrier_of(w, 4, all4, "epoch") == TSR_ERR_REMOTE);
        CHECK_TEXT("rank 2 did not come to barrier");
        return TSR_OK;
    }
    double start = now_s();
    CHECK(barrier_of(w, 4, all4, "epoch") == TSR_ERR_TIMEOUT);
    CHECK(now_s() - start >= 0.9);
    CHECK_TEXT("rank 2 did not come to barrier #2 'epoch' (train.c:31) within 1 s");
    atomic_fetch_add(&s->flag[0], 1);
    return TSR_OK;
}

static void test_late(void **state)
{
    (void)state;
    gloo_processes_ok(4, late_body);
}

/* Ranks wait in groups without the one that aborts, and for it; one is not in a call at all. */
static tsr_status aborts_body(tsr_world *w, shared *s)
{
    TSRI_TRY(barrier_of(w, 4, all4, "all"));
    (void)s;
    double start = now_s();
    if (w->rank == 3) {
        usleep(100000);
        w->comm->ops->abort(w->comm, "no more data");
        w->comm->ops->abort(w->comm, "too late");
        CHECK(w->comm->ops->check(w->comm) == TSR_ERR_REMOTE);
        return TSR_OK;
    }
    tsr_status status = TSR_OK;
    if (w->rank == 0)
        status = barrier_of(w, 2, pair01, "nobody comes");
    else if (w->rank == 2)
        status = barrier_of(w, 2, pair23, "the one that aborts");
    for (int i = 0; i < 20000 && status == TSR_OK; i++) {
        status = w->comm->ops->check(w->comm);
        usleep(1000);
    }
    CHECK(status == TSR_ERR_REMOTE && now_s() - start < 15);
    CHECK(!strcmp(tsr_last_error(), "rank 3 failed: no more data"));
    char all[4];
    CHECK(w->comm->ops->exchange(w->comm, "", 1, all) == TSR_ERR_REMOTE);
    return TSR_OK;
}

static void test_aborts(void **state)
{
    (void)state;
    gloo_processes_ok(4, aborts_body);
}

/* One rank ends a group of a twin: the others hear of it in their next call, and other groups go
 * on. */
static tsr_status poison_body(tsr_world *w, shared *s)
{
    tsri_comm *twin;
    tsri_group *g[2];
    tsri_coll c = {.kind = TSRI_COLL_BARRIER, .what = "poisoned"};
    (void)s;
    TSRI_TRY(w->comm->ops->twin(w->comm, &twin));
    for (int lane = 0; lane < 2; lane++) {
        TSRI_TRY(twin->ops->group(twin, 3, all4, lane, &g[lane]));
        TSRI_TRY(gloo_call(g[lane], &c));
    }
    tsri_ticket t;
    if (w->rank == 1) {
        /* What was started before still counts. */
        TSRI_TRY(twin->ops->start(g[0], &c, &t));
        tsri_fail(TSR_OK, "as it was");
        twin->ops->poison(g[0], TSR_ERR_IO, "a bad sector");
        CHECK(!strcmp(tsr_last_error(), "as it was"));
        TSRI_TRY(twin->ops->finish(g[0], &t));
        TSRI_TRY(twin->ops->release(g[0], &t));
        CHECK(twin->ops->released(g[0], &t));
    } else {
        TSRI_TRY(gloo_call(g[0], &c));
    }
    for (int i = 0; i < 3; i++) {
        CHECK(gloo_call(g[0], &c) == TSR_ERR_IO);
        CHECK(!strcmp(tsr_last_error(), "a bad sector"));
    }
    TSRI_TRY(gloo_call(g[1], &c));
    TSRI_TRY(barrier_of(w, 3, all4, "before they go"));
    twin->ops->destroy(twin);
    return w->comm->ops->check(w->comm);
}

static void test_poison(void **state)
{
    (void)state;
    gloo_processes_ok(3, poison_body);
}

/* Destroyed with calls under way that nobody comes to. */
static tsr_status walks_out_body(tsr_world *w, shared *s)
{
    tsri_group *g;
    tsri_ticket t[3];
    static tsri_coll c = {.kind = TSRI_COLL_BARRIER, .what = "never"}; /* outlives its calls */
    (void)s;
    TSRI_TRY(barrier_of(w, 2, pair01, "both"));
    TSRI_TRY(gloo_group(w, 0, &g));
    if (w->rank == 0) {
        for (int i = 0; i < 2; i++)
            TSRI_TRY(w->comm->ops->start(g, &c, &t[i]));
        TSRI_TRY(gloo_group(w, 7, &g)); /* not connected */
        return w->comm->ops->start(g, &c, &t[2]);
    }
    usleep(300000);
    CHECK(gloo_call(g, &c) == TSR_ERR_DEAD || w->comm->ops->check(w->comm) == TSR_ERR_DEAD);
    CHECK_TEXT("rank 0 has left while rank 1 waited for it in barrier");
    return TSR_OK;
}

static tsr_status walks_out_later(tsr_world *w, shared *s)
{
    tsr_status status = walks_out_body(w, s);
    if (w->rank == 1 && status != TSR_OK && strstr(tsr_last_error(), "gloo_call"))
        status = TSR_OK; /* the first of the two barriers still went through */
    return status;
}

static void test_walks_out(void **state)
{
    (void)state;
    gloo_processes_ok(2, walks_out_later);
}

static void test_does_not_come(void **state)
{
    (void)state;
    const gloo_run run = {.nranks = 4, .timeout_s = 5, .killed = -1, .missing = 2};
    shared *s = gloo_processes(&run, prepared_body);
    for (int r = 0; r < 4; r++) {
        if (r != 2 && (s->status[r] != TSR_ERR_TIMEOUT ||
                       !strstr(s->text[r], "rank 2 did not come to exchange #1 within 5 s")))
            fail_msg("rank %d: %d, %s", r, s->status[r], s->text[r]);
    }
    gloo_processes_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),     cmocka_unit_test(test_prepared),
        cmocka_unit_test(test_ring),      cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_leaves),    cmocka_unit_test(test_twin),
        cmocka_unit_test(test_dies),      cmocka_unit_test(test_late),
        cmocka_unit_test(test_aborts),    cmocka_unit_test(test_poison),
        cmocka_unit_test(test_walks_out), cmocka_unit_test(test_does_not_come),
    };
    return cmocka_run_group_tests_name("gloo_processes", tests, NULL, NULL);
}
