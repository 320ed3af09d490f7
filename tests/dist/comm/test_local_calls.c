/* SPDX-License-Identifier: Apache-2.0 */
/* The local communicator before data moves: calls that are prepared once, calls that are refused,
 * and ranks that want one place. */
#include "src/comm/local/local.h"
#include "tests/dist/plan/entries.h"
#include "tests/dist/comm/rank_checks.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static void spawn_ok(int n, tsr_rank_fn *fn, void *arg)
{
    const tsr_world_opts o = {
        .size = sizeof o, .arena_bytes = 1 << 20, .timeout_s = 60, .threads = 1};
    tsr_status status = tsr_spawn_with(n, fn, arg, &o);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
}

static tsr_status make_call(tsri_group *g, const tsri_coll *c)
{
    const tsri_comm_ops *ops = g->comm->ops;
    tsri_ticket t;
    TSRI_TRY(ops->start(g, c, &t));
    TSRI_TRY(ops->finish(g, &t));
    return ops->release(g, &t);
}

/* The i-th of many floats at a fixed place of the arena: what is summed, and the sum. */
static tsri_segment one_float(const tsr_world *w, int i)
{
    float *src = (float *)(void *)w->region.base + 2 * i;
    return (tsri_segment){.src = src,
                          .dst = src + 1,
                          .dtype = TSR_F32,
                          .shape = TSR_DIMS(1),
                          .src_axis = -1,
                          .dst_axis = -1};
}

static void put(const tsri_segment *s, float value)
{
    *(float *)(uintptr_t)s->src = value;
    *(float *)s->dst = -1;
}

/* --- prepared calls --------------------------------------------------------------------------- */

/* A run reads no text and no shape again: they may even be gone. */
static tsr_status prepared_body(tsr_world *w, void *arg)
{
    (void)arg;
    char label[] = "grad bucket 3", file[] = "a/model.c";
    tsri_group *g;
    TSRI_TRY(tsri_comm_everybody(w->comm, &g));
    tsri_segment s = one_float(w, 0);
    tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE,
                   .nseg = 1,
                   .seg = &s,
                   .what = label,
                   .loc = {.file = file, .line = 31}};
    TSRI_TRY(w->comm->ops->prepare(g, &c));
    CHECK(c.prepared);
    memset(label, 'x' + w->rank, sizeof label - 1);
    memset(file, 'x' + w->rank, sizeof file - 1);
    for (int i = 0; i < 200; i++) {
        put(&s, (float)(w->rank + i));
        TSRI_TRY(make_call(g, &c));
        CHECK(*(float *)s.dst == (float)(2 * i + 1));
    }
    /* Beside one that another rank has not prepared, and one that differs. */
    const tsri_coll same = {.kind = TSRI_COLL_ALL_REDUCE,
                            .nseg = 1,
                            .seg = &s,
                            .what = "grad bucket 3",
                            .loc = {.file = "a/model.c", .line = 31}};
    tsri_coll other = same;
    other.what = "grad bucket 4";
    put(&s, 1);
    TSRI_TRY(make_call(g, w->rank ? &same : &c));
    CHECK(*(float *)s.dst == 2);
    CHECK(make_call(g, w->rank ? &other : &c) == TSR_ERR_MISMATCH);
    CHECK_TEXT("rank 0 is at all_reduce #202 'grad bucket 3' (model.c:31)");
    CHECK_TEXT("rank 1 is at all_reduce #202 'grad bucket 4' (model.c:31)");
    TSRI_TRY(make_call(g, &c));
    w->comm->ops->unprepare(g, &c);
    CHECK(!c.prepared);
    return TSR_OK;
}

static void test_prepared(void **state)
{
    (void)state;
    spawn_ok(2, prepared_body, NULL);
}

/* What is wrong is said when a call is prepared. */
static tsr_status prepared_in_vain_body(tsr_world *w, void *arg)
{
    (void)arg;
    tsri_group *g;
    TSRI_TRY(tsri_comm_everybody(w->comm, &g));
    tsri_segment s[2] = {one_float(w, 0), one_float(w, 1)};
    tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE, .nseg = 2, .seg = s, .what = "sum"};
    s[1].dst = NULL;
    CHECK(w->comm->ops->prepare(g, &c) == TSR_ERR_INVALID);
    CHECK_TEXT("all_reduce 'sum', segment 1: dst is NULL");
    CHECK(!c.prepared);
    s[1] = one_float(w, 1);
    c.root = w->nranks;
    CHECK(w->comm->ops->prepare(g, &c) == TSR_ERR_INVALID);
    CHECK_TEXT("root");
    c.root = 0;
    w->mem.fail_countdown = 1;
    CHECK(w->comm->ops->prepare(g, &c) == TSR_ERR_NO_MEMORY);
    CHECK(!c.prepared);
    TSRI_TRY(w->comm->ops->prepare(g, &c));
    put(&s[0], 1);
    put(&s[1], 2);
    TSRI_TRY(make_call(g, &c));
    CHECK(*(float *)s[0].dst == (float)w->nranks && *(float *)s[1].dst == (float)(2 * w->nranks));
    w->comm->ops->unprepare(g, &c);
    return TSR_OK;
}

static void test_prepared_in_vain(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        spawn_ok(n, prepared_in_vain_body, NULL);
}

static tsr_status last_recorded(const tsr_world *w, tsri_flight_seen *out)
{
    uint64_t number = atomic_load(&w->flight->calls);
    CHECK(tsri_flight_copy(w->flight, (int)((number - 1) % TSRI_FLIGHT_CALLS), out));
    CHECK(out->number == number && out->state == TSRI_FLIGHT_COMPLETED);
    return TSR_OK;
}

/* The flight recorder says the same about a call, prepared or not, but for its number and time. */
static tsr_status recorded_body(tsr_world *w, void *arg)
{
    (void)arg;
    tsri_group *g;
    tsri_flight_seen plain, prepared;
    TSRI_TRY(tsri_comm_everybody(w->comm, &g));
    const tsri_segment s[2] = {one_float(w, 0), one_float(w, 1)};
    tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE,
                   .op = TSR_REDUCE_MAX,
                   .nseg = 2,
                   .seg = s,
                   .what = "bn",
                   .loc = {.file = "src/net.c", .line = 9}};
    TSRI_TRY(make_call(g, &c));
    TSRI_TRY(last_recorded(w, &plain));
    TSRI_TRY(w->comm->ops->prepare(g, &c));
    TSRI_TRY(make_call(g, &c));
    TSRI_TRY(last_recorded(w, &prepared));
    CHECK(prepared.call.seq == plain.call.seq + 1);
    CHECK(prepared.call.asked_ns >= plain.call.asked_ns);
    CHECK(prepared.started_ns == prepared.call.asked_ns);
    CHECK(!strcmp(prepared.call.what, "bn") && !strcmp(prepared.call.file, "net.c"));
    prepared.call.seq = plain.call.seq;
    prepared.call.asked_ns = plain.call.asked_ns;
    CHECK(!memcmp(&prepared.call, &plain.call, sizeof plain.call));
    w->comm->ops->unprepare(g, &c);
    return TSR_OK;
}

static void test_recorded(void **state)
{
    (void)state;
    spawn_ok(2, recorded_body, NULL);
}

/* --- refused calls ---------------------------------------------------------------------------- */

enum { SEGMENTS = 2 * TSRI_CALL_MAX_SEG + 100 };

/* Of a call that takes several records, the last makes no sense on rank 1: its peers must not see
 * the others, as a call that is refused has not been made. */
static tsr_status refused_body(tsr_world *w, void *arg)
{
    (void)arg;
    tsri_group *g;
    tsri_ticket t;
    TSRI_TRY(tsri_comm_everybody(w->comm, &g));
    tsri_segment *s = calloc(SEGMENTS, sizeof *s);
    CHECK(s);
    for (int i = 0; i < SEGMENTS; i++) {
        s[i] = one_float(w, i);
        put(&s[i], (float)(i + w->rank));
    }
    tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE, .nseg = SEGMENTS, .seg = s, .what = "many"};
    if (w->rank == 1) {
        void *dst = s[SEGMENTS - 1].dst;
        s[SEGMENTS - 1].dst = NULL;
        CHECK(w->comm->ops->start(g, &c, &t) == TSR_ERR_INVALID);
        CHECK_TEXT("segment 1123: dst is NULL");
        s[SEGMENTS - 1].dst = dst;
    }
    TSRI_TRY(make_call(g, &c));
    for (int i = 0; i < SEGMENTS; i++)
        CHECK(*(float *)s[i].dst == (float)(w->nranks * i + w->nranks * (w->nranks - 1) / 2));
    free(s);
    return tsr_world_barrier(w);
}

/* The same where nobody waits for everybody: who gives is read at once. */
static tsr_status refused_send_body(tsr_world *w, void *arg)
{
    (void)arg;
    enum { PEER = 0 };
    static const int from = PEER;
    tsri_group *g;
    tsri_ticket t;
    TSRI_TRY(tsri_comm_everybody(w->comm, &g));
    tsri_segment *s = calloc(SEGMENTS, sizeof *s);
    CHECK(s);
    const tsri_pull pull = {
        .ndim = 1, .length = {1}, .src_step = {1}, .dst_step = {1}, .nsrc = 1, .src = &from};
    for (int i = 0; i < SEGMENTS; i++) {
        s[i] = one_float(w, i);
        put(&s[i], (float)(i + 10 * w->rank));
        s[i].dst_count = 1;
        s[i].pulls = &pull;
        s[i].npulls = w->rank != PEER;
    }
    tsri_coll c = {.kind = TSRI_COLL_SEND_RECV, .nseg = SEGMENTS, .seg = s, .what = "many"};
    if (w->rank == PEER) {
        const void *src = s[SEGMENTS - 1].src;
        s[SEGMENTS - 1].src = &t;
        CHECK(w->comm->ops->start(g, &c, &t) == TSR_ERR_INVALID);
        CHECK_TEXT("segment 1123: src");
        s[SEGMENTS - 1].src = src;
        for (int i = 0; i < SEGMENTS; i++)
            put(&s[i], (float)(i + 5));
    }
    TSRI_TRY(make_call(g, &c));
    for (int i = 0; i < SEGMENTS && w->rank != PEER; i++)
        CHECK(*(float *)s[i].dst == (float)(i + 5));
    free(s);
    return tsr_world_barrier(w);
}

/* After a call of which one rank's had more records than the other's, the ranks count differently:
 * the group is over, as else each call would meet the one before of the other rank. */
static tsr_status longer_body(tsr_world *w, void *arg)
{
    (void)arg;
    tsri_group *g;
    TSRI_TRY(tsri_comm_everybody(w->comm, &g));
    tsri_segment *s = calloc(SEGMENTS, sizeof *s);
    CHECK(s);
    for (int i = 0; i < SEGMENTS; i++)
        s[i] = one_float(w, i);
    tsri_coll c = {
        .kind = TSRI_COLL_ALL_REDUCE, .nseg = w->rank ? 1 : SEGMENTS, .seg = s, .what = "x"};
    for (int i = 0; i < 10; i++) {
        CHECK(make_call(g, &c) == TSR_ERR_MISMATCH);
        c.nseg = 1;
    }
    free(s);
    return TSR_OK;
}

static void test_longer(void **state)
{
    (void)state;
    spawn_ok(2, longer_body, NULL);
}

static void test_refused(void **state)
{
    (void)state;
    spawn_ok(2, refused_body, NULL);
    spawn_ok(3, refused_body, NULL);
    spawn_ok(3, refused_send_body, NULL);
}

/* --- one place, several ranks that want it ---------------------------------------------------- */

enum { RIVALS = 4, ROUNDS = 1500 };

/* In memory that all rivals share. */
typedef struct race {
    _Atomic int arrived, got, refused, wrong;
    int first_wrong; /* how many got the place in that round */
    int dead_pid;    /* of the holder that each round begins with; 0: none */
    tsri_arena arena;
    int fd; /* of the arena; -1: the rivals are threads */
} race;

/* Returns when all rivals have come here for the n-th time: as far as there are cores for them, at
 * one moment. */
static void meet(race *r, int n)
{
    enum { SPINS = 20000 };
    atomic_fetch_add(&r->arrived, 1);
    for (int i = 0; atomic_load(&r->arrived) < n * RIVALS; i++)
        if (i > SPINS)
            sched_yield();
}

/* What a rank maps before it takes its place. */
static tsr_status open_arena(const race *r, tsri_arena *out)
{
    *out = r->arena;
    return r->fd < 0 ? TSR_OK
                     : tsri_arena_open(getpid(), r->fd, r->arena.layout.bytes_per_rank, 1, out);
}

static void run_rival(race *r, int me)
{
    int met = 0;
    for (int i = 0; i < ROUNDS; i++) {
        tsri_rank_slot *slot = tsri_arena_slot(&r->arena, 0);
        tsr_world w = {.nranks = 1, .threads = 1, .timeout_s = 60, .is_thread = r->fd < 0};
        tsri_arena arena;
        bool is_open = open_arena(r, &arena) == TSR_OK;
        if (me == 0) {
            atomic_store(&r->got, 0);
            if (r->dead_pid)
                atomic_store(&slot->holder, tsri_rank_holder(TSRI_RANK_HERE, r->dead_pid));
        }
        meet(r, ++met);
        tsr_status status =
            is_open ? tsri_local_create(&w, arena, r->fd >= 0, NULL, &w.comm) : TSR_ERR_IO;
        if (status == TSR_OK)
            atomic_fetch_add(&r->got, 1);
        else if (status == (r->fd >= 0 ? TSR_ERR_INVALID : TSR_ERR_STATE))
            atomic_fetch_add(&r->refused, 1);
        meet(r, ++met);
        if (me == 0 && atomic_load(&r->got) != 1 && !atomic_fetch_add(&r->wrong, 1))
            r->first_wrong = atomic_load(&r->got);
        meet(r, ++met);
        if (status == TSR_OK)
            w.comm->ops->destroy(w.comm);
        meet(r, ++met);
    }
}

static race *begin_race(bool processes)
{
    race *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(r != MAP_FAILED);
    assert_int_equal(tsri_arena_make_fd(1, 4096, &r->arena, &r->fd), TSR_OK);
    if (!processes) {
        close(r->fd);
        r->fd = -1;
    }
    return r;
}

static void end_race(race *r)
{
    if (atomic_load(&r->wrong))
        fail_msg("in %d of %d rounds not one got the place, but (first) %d", atomic_load(&r->wrong),
                 ROUNDS, r->first_wrong);
    assert_int_equal(atomic_load(&r->refused), ROUNDS * (RIVALS - 1));
    tsri_arena_unmap(&r->arena);
    if (r->fd >= 0)
        close(r->fd);
    munmap(r, sizeof *r);
}

static void race_processes(race *r)
{
    pid_t pid[RIVALS];
    for (int i = 0; i < RIVALS; i++) {
        pid[i] = fork();
        assert_true(pid[i] >= 0);
        if (pid[i] == 0) {
            run_rival(r, i);
            _exit(0);
        }
    }
    for (int i = 0; i < RIVALS; i++) {
        int how;
        assert_int_equal(waitpid(pid[i], &how, 0), pid[i]);
        assert_int_equal(how, 0);
    }
}

/* A place that nobody has, or has left. */
static void test_race_of_processes(void **state)
{
    (void)state;
    race *r = begin_race(true);
    race_processes(r);
    end_race(r);
}

/* A place whose holder has died. */
static void test_race_for_the_dead(void **state)
{
    (void)state;
    race *r = begin_race(true);
    r->dead_pid = fork();
    assert_true(r->dead_pid >= 0);
    if (!r->dead_pid)
        _exit(0);
    assert_int_equal(waitpid(r->dead_pid, NULL, 0), r->dead_pid);
    race_processes(r);
    end_race(r);
}

typedef struct rival {
    race *race;
    int me;
    pthread_t thread;
} rival;

static void *rival_main(void *arg)
{
    const rival *v = arg;
    run_rival(v->race, v->me);
    return NULL;
}

static void test_race_of_threads(void **state)
{
    (void)state;
    race *r = begin_race(false);
    rival v[RIVALS];
    for (int i = 0; i < RIVALS; i++) {
        v[i] = (rival){.race = r, .me = i};
        assert_int_equal(pthread_create(&v[i].thread, NULL, rival_main, &v[i]), 0);
    }
    for (int i = 0; i < RIVALS; i++)
        assert_int_equal(pthread_join(v[i].thread, NULL), 0);
    end_race(r);
}

/* --- whether a process has ended -------------------------------------------------------------- */

/* By a pidfd, which stays open in *pidfd, or, without (old kernels, no descriptor left), by /proc:
 * a live process whose name looks like the state of a dead one, a zombie, and one that is no more.
 */
static void expect_gone(bool expected, pid_t pid)
{
    const int before = count_fds();
    int none = -1, pidfd = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tsri_local_pid_gone(pid, &none), expected);
        assert_int_equal(none, -1);
        assert_int_equal(tsri_local_pid_gone(pid, &pidfd), expected);
    }
    if (pidfd > 0)
        close(pidfd - 1);
    assert_int_equal(count_fds(), before);
}

static void test_gone(void **state)
{
    (void)state;
    int named[2], until[2], pidfd = 0;
    char byte;
    assert_true(pipe(named) == 0 && pipe(until) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(until[1]);
        prctl(PR_SET_NAME, "a) Z (b) X c");
        ssize_t n = write(named[1], "n", 1);
        n = read(until[0], &byte, 1); /* of a pipe that is closed */
        _exit((int)n);
    }
    assert_true(pid > 0);
    assert_int_equal(read(named[0], &byte, 1), 1);
    expect_gone(false, pid);
    expect_gone(false, getpid());
    assert_false(tsri_local_pid_gone(pid, &pidfd));
    close(until[0]), close(until[1]), close(named[0]), close(named[1]);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    expect_gone(true, pid);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    expect_gone(true, pid);
    assert_true(tsri_local_pid_gone(pid, &pidfd)); /* whatever else has the number by now */
    if (pidfd > 0)
        close(pidfd - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prepared),
        cmocka_unit_test(test_prepared_in_vain),
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_longer),
        cmocka_unit_test(test_race_of_processes),
        cmocka_unit_test(test_race_for_the_dead),
        cmocka_unit_test(test_race_of_threads),
        cmocka_unit_test(test_gone),
    };
    return cmocka_run_group_tests_name("local_calls", tests, NULL, NULL);
}
