/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder of ranks that go wrong: what they leave, and whom that names. Argument: the
 * command. */
#include "src/comm/local/local.h"
#include "tests/dist/collective/flight_run.h"

#include <tessera/collective.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static tsr_status spawn(int n, tsr_rank_fn *fn, double timeout_s)
{
    const tsr_world_opts o = {
        .size = sizeof o, .arena_bytes = 1 << 20, .timeout_s = timeout_s, .threads = 1};
    return tsr_spawn_with(n, fn, NULL, &o);
}

/* --- going wrong ------------------------------------------------------------------------------ */
static tsr_status disagree(tsr_world *w, void *arg)
{
    (void)arg;
    tsri_group *g;
    TSRI_TRY(all_ranks(w, &g));
    for (int i = 0; i < 4; i++)
        TSRI_TRY(sum(w, g, 100, 10));
    return call(w, g, w->rank == 1 ? TSRI_COLL_BROADCAST : TSRI_COLL_ALL_REDUCE, 100,
                w->rank == 1 ? 12 : 11);
}

static void test_disagree(void **state)
{
    (void)state;
    assert_int_equal(spawn(2, disagree, 60), TSR_ERR_MISMATCH);
    expect_first("ranks 0 and 1 disagree on call #5 of group [0,1]: rank 0 all_reduce f32 [100] "
                 "sum 'grad' at train.c:11, rank 1 broadcast f32 [100] root 1 'grad' at train.c:12",
                 "");
    tsri_flight_report r;
    read_report(folder, 0, &r);
    assert_non_null(strstr(r.reason, "TSR_ERR_MISMATCH: ranks disagree"));
    assert_int_equal(r.call[r.ncalls - 1].state, TSRI_FLIGHT_FAILED);
    assert_int_equal(r.call[r.ncalls - 2].state, TSRI_FLIGHT_COMPLETED);
    tsri_flight_report_finish(&r);
    read_report(folder, 1, &r);
    assert_string_equal(tsri_flight_kind_name(r.call[r.ncalls - 1].said.kind), "broadcast");
    assert_int_equal(r.call[r.ncalls - 1].said.root, 1);
    tsri_flight_report_finish(&r);
}

/* The last rank does something else for longer than the others wait. */
static tsr_status come_late(tsr_world *w, void *arg)
{
    (void)arg;
    tsri_group *g;
    TSRI_TRY(all_ranks(w, &g));
    for (int i = 0; i < 3; i++)
        TSRI_TRY(sum(w, g, 100, 20));
    if (w->rank == 1) {
        tsr_status gone = TSR_OK;
        for (int i = 0; i < 3000 && gone == TSR_OK; i++) {
            usleep(10000);
            gone = w->comm->ops->check(w->comm);
        }
    }
    return sum(w, g, 100, 21);
}

static void test_late(void **state)
{
    (void)state;
    assert_int_equal(spawn(3, come_late, 1.5), TSR_ERR_TIMEOUT);
    assert_non_null(strstr(tsr_last_error(), "rank 1 did not come to all_reduce #4"));
    expect_first("rank 1 did not come to all_reduce #4 of group [0,1,2] 'grad' (train.c:21); its "
                 "last call was all_reduce #3 of group [0,1,2] 'grad' (train.c:20), completed ",
                 "waited");
}

/* Rank 0 waits for 1, that for 2, that for 3, which does not come. */
static tsr_status chain(tsr_world *w, void *arg)
{
    (void)arg;
    tsri_group *left = NULL, *right = NULL;
    const int before[2] = {w->rank - 1, w->rank}, after[2] = {w->rank, w->rank + 1};
    if (w->rank > 0)
        TSRI_TRY(group_of(w, 2, before, &left));
    if (w->rank + 1 < w->nranks)
        TSRI_TRY(group_of(w, 2, after, &right));
    TSRI_TRY(tsr_world_barrier(w));
    if (!right) {
        while (w->comm->ops->check(w->comm) == TSR_OK)
            usleep(10000);
        return TSR_OK;
    }
    tsr_status status = sum(w, right, 10, 30);
    return status != TSR_OK || !left ? status : sum(w, left, 10, 31);
}

static void test_chain(void **state)
{
    (void)state;
    assert_int_equal(spawn(4, chain, 1.5), TSR_ERR_TIMEOUT);
    expect_first("rank 3 did not come to all_reduce #1 of group [2,3] 'grad' (train.c:30)",
                 "its last call was barrier #1 of group [0,1,2,3]");
}

/* Each rank has its groups in another order. */
static tsr_status circle(tsr_world *w, void *arg)
{
    (void)arg;
    tsri_group *left, *right;
    const int before[2] = {(w->rank + 2) % 3, w->rank}, after[2] = {w->rank, (w->rank + 1) % 3};
    TSRI_TRY(group_of(w, 2, before, &left));
    TSRI_TRY(group_of(w, 2, after, &right));
    TSRI_TRY(sum(w, right, 10, 40));
    return sum(w, left, 10, 41);
}

static void test_circle(void **state)
{
    (void)state;
    assert_int_equal(spawn(3, circle, 1.5), TSR_ERR_TIMEOUT);
    expect_first("ranks 0, 1 and 2 wait for each other: rank 0 in all_reduce #1 of group [0,1]",
                 "for rank 0");
}

/* Operations of collective.h: the second one is waited for, the third one behind it in the queue.
 */
static tsr_status queue(tsr_world *w, void *arg)
{
    (void)arg;
    float data[3][4] = {{1}};
    tsr_work *work[3];
    tsr_group *g = tsr_world_group(w);
    for (int i = 0; i < (w->rank ? 1 : 3); i++)
        TSRI_TRY(tsr_all_reduce_at(g, data[i], 4, TSR_F32, TSR_REDUCE_SUM, &work[i], "b/user.c",
                                   70 + i));
    TSRI_TRY(tsr_work_wait(&work[0], 0));
    while (w->rank && w->comm->ops->check(w->comm) == TSR_OK)
        usleep(10000);
    return w->rank ? TSR_OK : tsr_work_wait(&work[2], 0);
}

static void test_queue(void **state)
{
    (void)state;
    tsri_flight_report r;
    assert_int_equal(spawn(2, queue, 1.5), TSR_ERR_TIMEOUT);
    expect_first("rank 1 did not come to all_reduce #2 of group [0,1] (user.c:71); its last call "
                 "was all_reduce #1 of group [0,1] (user.c:70), completed ",
                 "rank 0 waited");
    read_report(folder, 0, &r);
    const tsri_flight_read_call *last = &r.call[r.ncalls - 1];
    assert_int_equal(last->state, TSRI_FLIGHT_SCHEDULED);
    assert_int_equal(last->said.shown, 3);
    assert_string_equal(last->at, "user.c:72");
    assert_int_equal(last[-1].state, TSRI_FLIGHT_FAILED);
    assert_int_equal(last[-1].waits, 1);
    tsri_flight_report_finish(&r);
}

/* A rank that leaves without a word, and one that fails by itself. */
static tsr_status fail_alone(tsr_world *w, void *arg)
{
    (void)arg;
    TSRI_TRY(tsr_world_barrier(w));
    if (w->rank == 1)
        return tsri_fail(TSR_ERR_IO, "no disk\nat all");
    return tsr_world_barrier(w);
}

static void test_fails_alone(void **state)
{
    (void)state;
    assert_int_equal(spawn(2, fail_alone, 60), TSR_ERR_IO);
    /* Rank 0 may learn of it before it comes to the second barrier. */
    expect_first("rank 1 gave up: no disk at all", "barrier #");
}

/* Nothing is written without a failure, or without the variable. */
static void test_quiet(void **state)
{
    (void)state;
    int code;
    unsetenv("TESSERA_FLIGHT_DIR");
    assert_int_equal(spawn(2, disagree, 60), TSR_ERR_MISMATCH);
    setenv("TESSERA_FLIGHT_DIR", folder, 1);
    assert_non_null(strstr(first_line(&code), "has no dumps of the flight recorder"));
    assert_int_equal(code, 1);
}

/* --- the ring --------------------------------------------------------------------------------- */
static tsr_status many(tsr_world *w, void *arg)
{
    (void)arg;
    char dir[128];
    tsri_group *g;
    TSRI_TRY(all_ranks(w, &g));
    for (int i = 1; i <= 5000; i++)
        TSRI_TRY(sum(w, g, i, i));
    snprintf(dir, sizeof dir, "%s/x/y", folder);
    TSRI_TRY(tsr_flight_dump(w, dir));
    return tsr_flight_dump(w, NULL);
}

static void test_many(void **state)
{
    (void)state;
    tsri_flight_report r;
    char dir[128], path[192];
    assert_int_equal(spawn(2, many, 60), TSR_OK);
    for (int rank = 0; rank < 2; rank++) {
        snprintf(dir, sizeof dir, "%s/x/y", folder);
        read_report(dir, rank, &r);
        assert_int_equal(r.calls, 5000);
        assert_int_equal(r.ncalls, TSRI_FLIGHT_CALLS);
        for (int i = 0; i < r.ncalls; i++) {
            const tsri_flight_read_call *c = &r.call[i];
            int n = 5000 - TSRI_FLIGHT_CALLS + 1 + i;
            char at[32];
            snprintf(at, sizeof at, "train.c:%d", n);
            assert_int_equal(c->number, n);
            assert_int_equal(c->said.seq, n);
            assert_int_equal(c->said.shape[0], n);
            assert_int_equal(c->said.bytes, 4 * n);
            assert_int_equal(c->state, TSRI_FLIGHT_COMPLETED);
            assert_string_equal(c->at, at);
            assert_true(c->said.asked_ns <= c->started_ns && c->started_ns <= c->ended_ns);
            assert_true(i == 0 || c->said.asked_ns >= r.call[i - 1].said.asked_ns);
        }
        tsri_flight_report_finish(&r);
        snprintf(path, sizeof path, "%s/flight.rank%d.txt", dir, rank);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(dir), 0);
    *strrchr(dir, '/') = 0;
    assert_int_equal(rmdir(dir), 0);
    expect_first("no rank is behind: all finished their calls\n", "");
}

static tsr_status nowhere(tsr_world *w, void *arg)
{
    (void)arg;
    char path[128];
    tsr_world *v;
    if (w->rank)
        return TSR_OK;
    snprintf(path, sizeof path, "%s/file", folder);
    FILE *f = fopen(path, "w");
    if (!f || fclose(f))
        return tsri_fail(TSR_ERR_INTERNAL, "no file");
    if (tsr_flight_dump(w, path) != TSR_ERR_IO || !strstr(tsr_last_error(), path))
        return tsri_fail(TSR_ERR_INTERNAL, "a file as a folder: %s", tsr_last_error());
    unsetenv("TESSERA_FLIGHT_DIR");
    if (tsr_flight_dump(w, NULL) != TSR_ERR_INVALID || tsr_flight_dump(w, "") != TSR_ERR_INVALID ||
        tsr_flight_dump(NULL, folder) != TSR_ERR_INVALID)
        return tsri_fail(TSR_ERR_INTERNAL, "no folder: %s", tsr_last_error());
    TSRI_TRY(tsr_world_create_virtual(2, 0, &v));
    tsr_status status = tsr_flight_dump(v, folder);
    tsr_world_destroy(v);
    return status == TSR_ERR_STATE ? TSR_OK : tsri_fail(TSR_ERR_INTERNAL, "a virtual world");
}

static void test_nowhere(void **state)
{
    (void)state;
    assert_int_equal(spawn(2, nowhere, 60), TSR_OK);
}

static tsr_status dump(tsr_world *w, void *arg)
{
    (void)arg;
    return tsr_flight_dump(w, NULL);
}

static void expect_run(const char *run)
{
    tsri_flight_report r;
    for (int rank = 0; rank < 2; rank++) {
        read_report(folder, rank, &r);
        assert_string_equal(r.run, run);
        tsri_flight_report_finish(&r);
    }
}

/* Two threads of a rank dump at once, again and again: each file is whole. */
static void *dump_often(void *arg)
{
    long bad = 0;
    for (int i = 0; i < 100; i++)
        bad += tsr_flight_dump(arg, NULL) != TSR_OK;
    return (void *)bad;
}

static tsr_status dump_at_once(tsr_world *w, void *arg)
{
    (void)arg;
    pthread_t thread;
    tsri_group *g;
    void *bad;
    TSRI_TRY(all_ranks(w, &g));
    for (int i = 1; i <= 500; i++)
        TSRI_TRY(sum(w, g, i, i));
    if (w->rank)
        return TSR_OK;
    if (pthread_create(&thread, NULL, dump_often, w))
        return tsri_fail(TSR_ERR_INTERNAL, "no thread");
    long mine = (long)dump_often(w);
    pthread_join(thread, &bad);
    return mine || bad ? tsri_fail(TSR_ERR_INTERNAL, "%ld and %ld dumps failed", mine, (long)bad)
                       : TSR_OK;
}

static void test_dumps_at_once(void **state)
{
    (void)state;
    tsri_flight_report r;
    assert_int_equal(spawn(2, dump_at_once, 60), TSR_OK);
    read_report(folder, 0, &r);
    assert_int_equal(r.ncalls, 500);
    tsri_flight_report_finish(&r);
}

static void test_run_names(void **state)
{
    (void)state;
    assert_int_equal(strlen(LONGEST_RUN), 64);
    setenv("TESSERA_RUN_ID", LONGEST_RUN, 1);
    assert_int_equal(spawn(2, dump, 60), TSR_OK);
    expect_run(LONGEST_RUN);
    setenv("TESSERA_RUN_ID", "my run\tno 3", 1);
    assert_int_equal(spawn(2, dump, 60), TSR_OK);
    expect_run("my_run_no_3");
    unsetenv("TESSERA_RUN_ID");
}

/* Two threads of a rank write, a third one reads: an entry is never half of one and half of
 * another, and no call is lost. */
enum { EACH = 20000 };

typedef struct writer {
    tsri_flight *f;
    int which, recorded;
    atomic_bool done;
} writer;

static void *write_calls(void *arg)
{
    writer *w = arg;
    const int ranks[2] = {0, 1};
    int group = tsri_flight_group_of(w->f, "local", w->which, 2, ranks);
    for (int i = 1; i <= EACH; i++) {
        int64_t mark = (int64_t)i << 1 | w->which;
        char what[32];
        snprintf(what, sizeof what, "%lld", (long long)mark);
        const tsri_segment s = {.dtype = TSR_F32, .shape = TSR_DIMS(mark, mark, mark)};
        const tsri_coll c = {
            .kind = TSRI_COLL_ALL_REDUCE, .nseg = 1, .seg = &s, .what = what, .root = (int)mark};
        uint64_t n = tsri_flight_begin(w->f, group, (uint64_t)i, (int)c.kind, &c, (uint64_t)mark,
                                       (uint64_t)mark);
        w->recorded += n != 0;
        tsri_flight_completed(w->f, n);
    }
    atomic_store(&w->done, true);
    return NULL;
}

/* Whether what is there of an entry holds together. */
static bool is_whole(const tsri_flight_seen *e)
{
    const tsri_flight_call *c = &e->call;
    int64_t mark = (int64_t)c->bytes;
    return c->hash == c->bytes && c->root == mark && c->shape[0] == mark && c->shape[2] == mark &&
           c->seq == (uint64_t)mark >> 1 && strtoll(c->what, NULL, 10) == mark;
}

static void test_two_threads(void **state)
{
    (void)state;
    tsri_flight *f = aligned_alloc(64, sizeof *f);
    assert_non_null(f);
    memset(f, 0, sizeof *f);
    tsri_flight_open(f, 0, 2, 1, "r");
    writer w[2] = {{.f = f, .which = 0}, {.f = f, .which = 1}};
    pthread_t thread[2];
    tsri_flight_seen c;
    int seen = 0, torn = 0, last = 0;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, write_calls, &w[i]), 0);
    do {
        for (int i = 0; i < TSRI_FLIGHT_CALLS; i++) {
            if (!tsri_flight_copy(f, i, &c))
                continue;
            seen++;
            torn += !is_whole(&c);
        }
    } while (!atomic_load(&w[0].done) || !atomic_load(&w[1].done));
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(torn, 0);
    assert_true(seen > 0);
    /* Only where a thread was kept from going on for a whole round is a number stepped over. */
    uint64_t calls = atomic_load(&f->calls);
    assert_int_equal(w[0].recorded + w[1].recorded, 2 * EACH);
    assert_true(calls >= 2 * EACH);
    for (uint64_t n = calls - TSRI_FLIGHT_CALLS + 1; n <= calls; n++) {
        assert_true(tsri_flight_copy(f, (int)((n - 1) % TSRI_FLIGHT_CALLS), &c));
        assert_true(is_whole(&c));
        assert_int_equal(c.state, TSRI_FLIGHT_COMPLETED);
        last += c.number == n;
    }
    assert_true(last >= TSRI_FLIGHT_CALLS - 16);
    for (int i = 0; i < 2; i++)
        assert_int_equal(atomic_load(&f->group[i].completed), EACH);
    print_message("%d entries were read while they were written\n", seen);
    free(f);
}

/* A call that is scheduled, and later done: one entry. */
static void test_scheduled(void **state)
{
    (void)state;
    tsri_flight *f = aligned_alloc(64, sizeof *f);
    const int ranks[2] = {0, 1};
    assert_non_null(f);
    memset(f, 0, sizeof *f);
    tsri_flight_open(f, 0, 2, 1, "r");
    int group = tsri_flight_group_of(f, "local", 0, 2, ranks);
    tsri_coll c = {.kind = TSRI_COLL_BARRIER};
    c.flight = tsri_flight_schedule(f, group, &c);
    assert_int_equal(c.flight, 1);
    tsri_flight_seen e;
    assert_true(tsri_flight_copy(f, 0, &e));
    assert_int_equal(e.state, TSRI_FLIGHT_SCHEDULED);
    assert_true(e.call.asked_ns > 0 && e.started_ns == 0);
    assert_int_equal(tsri_flight_begin(f, group, 7, TSRI_COLL_BARRIER, &c, 0, 0), 1);
    tsri_flight_waits(f, 1, 1);
    tsri_flight_waited(f, 1);
    assert_true(tsri_flight_copy(f, 0, &e));
    assert_int_equal(e.number, 1);
    assert_int_equal(e.state, TSRI_FLIGHT_STARTED);
    assert_true(e.started_ns >= e.call.asked_ns && e.ended_ns == 0);
    assert_int_equal(e.call.seq, 7);
    assert_int_equal(e.waits, -2);
    assert_int_equal(atomic_load(&f->group[0].started), 7);
    tsri_flight_failed(f, 1);
    assert_true(tsri_flight_copy(f, 0, &e));
    assert_int_equal(e.state, TSRI_FLIGHT_FAILED);
    /* One that is refused has not come, and gives its number back. */
    assert_int_equal(tsri_flight_begin(f, group, 8, TSRI_COLL_BARRIER, &(tsri_coll){0}, 0, 0), 2);
    tsri_flight_refused(f, 2);
    assert_int_equal(atomic_load(&f->group[0].started), 7);
    assert_true(tsri_flight_copy(f, 1, &e));
    assert_true(e.state == TSRI_FLIGHT_FAILED && e.started_ns == 0);
    /* One whose entry is gone gets a new one; groups of one have none. */
    for (int i = 0; i < TSRI_FLIGHT_CALLS; i++)
        tsri_flight_begin(f, group, 8, TSRI_COLL_BARRIER, &(tsri_coll){0}, 0, 0);
    assert_int_equal(tsri_flight_begin(f, group, 9, TSRI_COLL_BARRIER, &c, 0, 0),
                     TSRI_FLIGHT_CALLS + 3);
    tsri_flight_completed(f, 1); /* which is not there any more */
    assert_true(tsri_flight_copy(f, 0, &e));
    assert_int_equal(e.number, TSRI_FLIGHT_CALLS + 1);
    assert_int_equal(e.state, TSRI_FLIGHT_STARTED);
    assert_int_equal(tsri_flight_group_of(f, "local", 0, 1, ranks), 0);
    assert_int_equal(tsri_flight_group_of(f, "local", 0, 2, ranks), group);
    for (int i = 1; i < TSRI_FLIGHT_GROUPS; i++)
        assert_int_equal(tsri_flight_group_of(f, "local", i, 2, ranks), i + 1);
    assert_int_equal(tsri_flight_group_of(f, "local", TSRI_FLIGHT_GROUPS, 2, ranks), 0);
    assert_int_equal(tsri_flight_begin(f, 0, 1, TSRI_COLL_BARRIER, &c, 0, 0), 0);
    free(f);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s TESSERA\n", argv[0]);
        return 2;
    }
    static char path[4096];
    tessera = realpath(argv[1], path);
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_disagree),
        IN_FOLDER(test_late),
        IN_FOLDER(test_chain),
        IN_FOLDER(test_circle),
        IN_FOLDER(test_queue),
        IN_FOLDER(test_fails_alone),
        IN_FOLDER(test_quiet),
        IN_FOLDER(test_many),
        IN_FOLDER(test_nowhere),
        IN_FOLDER(test_dumps_at_once),
        IN_FOLDER(test_run_names),
        cmocka_unit_test(test_two_threads),
        cmocka_unit_test(test_scheduled),
    };
    return tessera ? cmocka_run_group_tests_name("flight", tests, NULL, NULL) : 1;
}
