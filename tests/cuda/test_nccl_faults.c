/* SPDX-License-Identifier: Apache-2.0 */
/* How the communicator over NCCL fails: never by hanging, and always by name. */
#include "tests/cuda/nccl_ranks.h"

#include "src/core/clock.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { N = 8 };

/* A call of one segment on buffers of the device. */
typedef struct one {
    tsri_segment seg;
    tsri_coll coll;
} one;

static tsr_status make_one(nr_rank *r, tsri_coll_kind kind, int64_t count, const char *what,
                           one *out)
{
    float data[4 * N] = {0};
    void *src, *dst;
    TSRI_TRY(nr_put(r, data, sizeof data, &src));
    TSRI_TRY(nr_put(r, data, sizeof data, &dst));
    *out = (one){.seg = {.src = src,
                         .dst = dst,
                         .dtype = TSR_F32,
                         .shape = TSR_DIMS(count),
                         .src_axis = kind == TSRI_COLL_ALL_GATHER ? 0 : -1,
                         .dst_axis = -1},
                 .coll = {.kind = kind,
                          .nseg = 1,
                          .stream = r->device->stream,
                          .what = what,
                          .loc = {"model.c", 31}}};
    out->coll.seg = &out->seg;
    return TSR_OK;
}

/* --- ranks that differ ------------------------------------------------------------------------ */
static tsr_status mismatch_body(tsr_world *w, void *arg)
{
    nr_rank r;
    one a, b;
    (void)arg;
    TSRI_TRY(nr_open(w, 0, &r));
    bool odd = w->rank == w->nranks - 1;
    TSRI_TRY(make_one(&r, TSRI_COLL_ALL_REDUCE, odd ? 5 : 6, "loss", &a));
    CHECK(r.comm->ops->prepare(r.group, &a.coll) == TSR_ERR_MISMATCH);
    CHECK_TEXT("ranks disagree: rank 0 is at all_reduce 'loss'");
    CHECK_TEXT("24 bytes");
    CHECK_TEXT("20 bytes");
    CHECK(!a.coll.prepared);
    TSRI_TRY(make_one(&r, odd ? TSRI_COLL_ALL_GATHER : TSRI_COLL_ALL_REDUCE, N, "x", &b));
    CHECK(nr_call(r.group, &b.coll) == TSR_ERR_MISMATCH);
    CHECK_TEXT("all_gather 'x'");
    /* Nobody has asked NCCL for anything yet, so it all goes on. */
    TSRI_TRY(make_one(&r, TSRI_COLL_ALL_REDUCE, N, "y", &a));
    TSRI_TRY(nr_call(r.group, &a.coll));
    a.coll.root = 99;
    CHECK(nr_call(r.group, &a.coll) == TSR_ERR_INVALID);
    nr_close(&r);
    return TSR_OK;
}

static void test_mismatch(void **state)
{
    (void)state;
    nr_spawn(2, mismatch_body, NULL, 0);
    nr_spawn(3, mismatch_body, NULL, 0);
}

static tsr_status capture(nr_rank *r, one *a, tsri_captured **out_graph)
{
    tsri_device *d = r->device;
    TSRI_TRY(d->ops->capture_begin(d, d->stream));
    TSRI_TRY(nr_call(r->group, &a->coll));
    return d->ops->capture_end(d, d->stream, out_graph);
}

/* Prepared alike, started in another order: what is left is that it ends, with some error. So it
 * does while there is a graph with the communicator's calls, which only this thread can free. */
static tsr_status order_body(tsr_world *w, void *arg)
{
    const bool *kept = arg;
    nr_rank r;
    one a, b;
    tsri_ticket t;
    tsri_captured *graph = NULL;
    TSRI_TRY(nr_open(w, 0, &r));
    TSRI_TRY(make_one(&r, TSRI_COLL_ALL_REDUCE, N, "a", &a));
    TSRI_TRY(make_one(&r, TSRI_COLL_ALL_REDUCE, N - 1, "b", &b));
    TSRI_TRY(r.comm->ops->prepare(r.group, &a.coll));
    TSRI_TRY(r.comm->ops->prepare(r.group, &b.coll));
    if (*kept)
        TSRI_TRY(capture(&r, &a, &graph));
    tsr_status status = r.comm->ops->start(r.group, w->rank ? &b.coll : &a.coll, &t);
    if (status == TSR_OK)
        status = r.comm->ops->finish(r.group, &t);
    CHECK(nr_settle(&r, status) != TSR_OK);
    CHECK(r.comm->ops->check(r.comm) != TSR_OK);
    r.device->ops->captured_destroy(r.device, graph);
    r.comm->ops->unprepare(r.group, &a.coll);
    r.comm->ops->unprepare(r.group, &b.coll);
    nr_close(&r);
    return TSR_OK;
}

static void test_order(void **state)
{
    (void)state;
    for (int kept = 0; kept < 2; kept++)
        nr_spawn(2, order_body, &(bool){kept}, 2);
}

/* --- ranks that don't come -------------------------------------------------------------------- */
typedef struct late {
    int timed_out[4], remote[4]; /* per rank */
    int lane;
    bool captured; /* the call that hangs */
    bool kept;     /* there is a graph besides with the communicator's calls */
} late;

/* What the rank that stays away, or is left behind, hears. */
static tsr_status await_remote(nr_rank *r)
{
    double start = tsri_now_s();
    while (r->comm->ops->check(r->comm) == TSR_OK && tsri_now_s() - start < 10)
        usleep(1000);
    CHECK(r->comm->ops->check(r->comm) == TSR_ERR_REMOTE);
    return TSR_OK;
}

static tsr_status come(nr_rank *r, one *a, bool captured)
{
    tsri_device *d = r->device;
    tsri_captured *graph;
    if (!captured)
        return nr_call(r->group, &a->coll);
    TSRI_TRY(capture(r, a, &graph));
    TSRI_TRY(d->ops->captured_run(d, graph, d->stream));
    d->ops->captured_destroy(d, graph);
    return r->comm->ops->check(r->comm);
}

static tsr_status late_body(tsr_world *w, void *arg)
{
    late *l = arg;
    nr_rank r;
    one a;
    tsri_captured *graph = NULL;
    TSRI_TRY(nr_open(w, l->lane, &r));
    TSRI_TRY(make_one(&r, TSRI_COLL_ALL_REDUCE, N, "grad bucket 3", &a));
    TSRI_TRY(r.comm->ops->prepare(r.group, &a.coll));
    TSRI_TRY(nr_call(r.group, &a.coll));
    if (l->kept) {
        TSRI_TRY(capture(&r, &a, &graph));
        TSRI_TRY(r.device->ops->captured_run(r.device, graph, r.device->stream));
    }
    if (w->rank == w->nranks - 1) {
        TSRI_TRY(await_remote(&r));
        CHECK_TEXT("'grad bucket 3'");
    } else {
        double start = tsri_now_s();
        tsr_status status = nr_settle(&r, come(&r, &a, l->captured));
        CHECK(status == TSR_ERR_TIMEOUT || status == TSR_ERR_REMOTE);
        CHECK(tsri_now_s() - start < w->timeout_s + 3);
        CHECK_TEXT(l->kept ? "all_reduce #3 'grad bucket 3' (model.c:31) of ranks [0,1"
                           : "all_reduce #2 'grad bucket 3' (model.c:31) of ranks [0,1");
        CHECK_TEXT("did not finish within 0.5 s");
        l->timed_out[w->rank] = status == TSR_ERR_TIMEOUT;
        l->remote[w->rank] = status == TSR_ERR_REMOTE;
        char me[32];
        snprintf(me, sizeof me, "rank %d:", w->rank);
        CHECK(status == TSR_ERR_REMOTE || strstr(tsr_last_error(), me));
        /* And from then on. */
        tsri_ticket t;
        CHECK(r.comm->ops->start(r.group, &a.coll, &t) == status);
    }
    r.device->ops->captured_destroy(r.device, graph);
    r.comm->ops->unprepare(r.group, &a.coll);
    nr_close(&r);
    return TSR_OK;
}

static void run_late(int n, late l)
{
    int timed_out = 0, all = 0;
    nr_spawn(n, late_body, &l, 0.5);
    for (int r = 0; r < n - 1; r++) {
        timed_out += l.timed_out[r];
        all += l.timed_out[r] + l.remote[r];
    }
    assert_true(timed_out >= 1);
    assert_int_equal(all, n - 1);
}

static void test_late(void **state)
{
    (void)state;
    run_late(2, (late){0});
    run_late(3, (late){0});
    run_late(2, (late){.captured = true});
    run_late(3, (late){.captured = true});
}

/* What hangs is not the first communicator that is stopped, and waits for it. */
static void test_late_lane(void **state)
{
    (void)state;
    run_late(2, (late){.lane = 1});
    run_late(3, (late){.lane = 1, .captured = true});
}

/* The watchdog's work then waits for the rank's thread, which must not wait for the watchdog. */
static void test_late_kept(void **state)
{
    (void)state;
    run_late(2, (late){.kept = true});
    run_late(2, (late){.kept = true, .captured = true});
    run_late(3, (late){.kept = true, .lane = 1});
}

/* Never even comes to make the communicator. */
static tsr_status absent_body(tsr_world *w, void *arg)
{
    nr_rank r;
    (void)arg;
    if (w->rank == 1)
        return TSR_OK;
    tsr_status status = nr_open(w, 0, &r);
    CHECK(status == TSR_ERR_DEAD || status == TSR_ERR_REMOTE || status == TSR_ERR_TIMEOUT);
    CHECK_TEXT("rank 1");
    return TSR_OK;
}

static void test_absent(void **state)
{
    (void)state;
    nr_spawn(3, absent_body, NULL, 0.5);
}

/* --- ranks that fail -------------------------------------------------------------------------- */
static tsr_status remote_body(tsr_world *w, void *arg)
{
    nr_rank r;
    one a;
    (void)arg;
    TSRI_TRY(nr_open(w, 0, &r));
    TSRI_TRY(make_one(&r, TSRI_COLL_ALL_REDUCE, N, "x", &a));
    TSRI_TRY(r.comm->ops->prepare(r.group, &a.coll));
    if (w->rank == 1) {
        r.comm->ops->abort(r.comm, "the loss is a NaN");
    } else {
        CHECK(nr_settle(&r, nr_call(r.group, &a.coll)) == TSR_ERR_REMOTE);
        CHECK_TEXT("rank 1 failed: the loss is a NaN");
    }
    CHECK(r.comm->ops->check(r.comm) == TSR_ERR_REMOTE);
    r.comm->ops->unprepare(r.group, &a.coll);
    nr_close(&r);
    return TSR_OK;
}

static void test_remote(void **state)
{
    (void)state;
    nr_spawn(3, remote_body, NULL, 0);
}

/* --- the watchdog's thread -------------------------------------------------------------------- */
/* One line of what the system says of a thread of this process; "" if there is none. */
static void read_line(const char *thread, const char *file, const char *key, char *out, int size)
{
    char path[320];
    snprintf(path, sizeof path, "/proc/self/task/%.200s/%s", thread, file);
    FILE *f = fopen(path, "r");
    while (f && fgets(out, size, f) && strncmp(out, key, strlen(key)))
        ;
    if (!f || feof(f))
        out[0] = 0;
    if (f)
        fclose(f);
}

/* Watchdogs of this process, and whether each takes none of the program's signals. */
static tsr_status count_watchdogs(int *out_n)
{
    static const int programs[] = {SIGHUP, SIGINT, SIGPIPE, SIGALRM, SIGTERM, SIGUSR1, SIGCHLD};
    char line[256];
    DIR *threads = opendir("/proc/self/task");
    CHECK(threads);
    *out_n = 0;
    for (struct dirent *e; (e = readdir(threads));) {
        read_line(e->d_name, "comm", "", line, sizeof line);
        if (strcmp(line, "tsr-watch\n"))
            continue;
        unsigned long long blocked = ~0ull;
        for (int i = 0; i < 1000 && blocked >> (SIGSEGV - 1) & 1; i++) {
            if (i)
                usleep(1000); /* the C library starts a thread with all signals blocked */
            read_line(e->d_name, "status", "SigBlk:", line, sizeof line);
            blocked = strtoull(line + strlen("SigBlk:"), NULL, 16);
        }
        for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
            CHECK(blocked >> (programs[i] - 1) & 1);
        CHECK(!(blocked >> (SIGSEGV - 1) & 1));
        ++*out_n;
    }
    closedir(threads);
    return TSR_OK;
}

static tsr_status signals_body(tsr_world *w, void *arg)
{
    nr_rank r;
    int n = 0;
    (void)arg;
    TSRI_TRY(nr_open(w, 0, &r));
    TSRI_TRY(tsr_world_barrier(w));
    if (w->rank == 0)
        TSRI_TRY(count_watchdogs(&n));
    CHECK(w->rank || n == w->nranks);
    TSRI_TRY(tsr_world_barrier(w));
    nr_close(&r);
    return TSR_OK;
}

static void test_signals(void **state)
{
    (void)state;
    nr_spawn(2, signals_body, NULL, 0);
}

/* --- which communicator ----------------------------------------------------------------------- */
static tsr_status create(tsr_world *w, int n, const int *ranks, tsri_comm **out)
{
    tsri_device *d;
    bool in = false;
    TSRI_TRY(tsri_device_get(w, TSR_DEVICE_CUDA, &d));
    for (int i = 0; i < n; i++)
        in |= ranks[i] == w->rank;
    *out = NULL;
    return in ? tsri_comm_create_device(w, d, n, ranks, TSRI_DEVICE_COMM_PLANS, out) : TSR_OK;
}

/* Devices of their own: NCCL; a rank outside gets none. */
static tsr_status chosen_body(tsr_world *w, void *arg)
{
    static const int two[] = {0, 2};
    tsri_comm *c;
    (void)arg;
    TSRI_TRY(create(w, 2, two, &c));
    CHECK(w->rank == 1 ? !c : c && !strcmp(c->ops->name, "nccl"));
    if (!c)
        return TSR_OK;
    nr_rank r = {.world = w, .comm = c};
    one a;
    TSRI_TRY(tsri_device_get(w, TSR_DEVICE_CUDA, &r.device));
    TSRI_TRY(nr_groups(&r, 2, two, 0, &r.group, &r.host_group));
    TSRI_TRY(make_one(&r, TSRI_COLL_ALL_REDUCE, N, "x", &a));
    TSRI_TRY(nr_call(r.group, &a.coll));
    nr_close(&r);
    return TSR_OK;
}

/* Ranks that share a device: an error on all of them, unless the local one was asked for. */
static tsr_status shared_body(tsr_world *w, void *arg)
{
    static const int three[] = {0, 1, 2};
    tsri_comm *c;
    if (!arg) {
        CHECK(create(w, 3, three, &c) == TSR_ERR_INVALID);
        CHECK_TEXT("3 ranks of one machine have 2 GPUs: ranks 0 and 2 share the GPU ");
        CHECK_TEXT("; start one rank a GPU, or let ranks share by TESSERA_CUDA_COMM=local");
        return TSR_OK;
    }
    TSRI_TRY(create(w, 3, three, &c));
    CHECK(!strcmp(c->ops->name, "local"));
    c->ops->destroy(c);
    return TSR_OK;
}

static tsr_status wrong_body(tsr_world *w, void *arg)
{
    static const int two[] = {0, 1};
    tsri_comm *c;
    (void)arg;
    CHECK(create(w, 2, two, &c) == TSR_ERR_INVALID);
    CHECK_TEXT("TESSERA_CUDA_COMM is 'mpi' on rank 0: expected nccl or local");
    return TSR_OK;
}

/* All ranks of the communicator are told the first rank's error. */
static tsr_status uninvited_body(tsr_world *w, void *arg)
{
    static const int two[] = {2, 1};
    tsri_comm *c;
    (void)arg;
    if (w->rank == 0)
        return create(w, 2, two, &c);
    CHECK(create(w, 2, two, &c) == TSR_ERR_BACKEND);
    CHECK_TEXT("rank 2: NCCL, ncclGetUniqueId: ");
    CHECK_TEXT(": no network");
    return TSR_OK;
}

static void test_choice(void **state)
{
    bool shares = true;
    (void)state;
    unsetenv("TESSERA_CUDA_COMM");
    setenv("EMULATED_DEVICES", "3", 1);
    nr_spawn(3, chosen_body, NULL, 0);
    setenv("EMULATED_NO_NETWORK", "1", 1);
    nr_spawn(3, uninvited_body, NULL, 0);
    unsetenv("EMULATED_NO_NETWORK");
    setenv("EMULATED_DEVICES", "2", 1);
    nr_spawn(3, shared_body, NULL, 0);
    setenv("TESSERA_CUDA_COMM", "local", 1);
    nr_spawn(3, shared_body, &shares, 0);
    unsetenv("EMULATED_DEVICES");
    setenv("TESSERA_CUDA_COMM", "mpi", 1);
    nr_spawn(2, wrong_body, NULL, 0);
    setenv("TESSERA_CUDA_COMM", "nccl", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mismatch),  cmocka_unit_test(test_order),
        cmocka_unit_test(test_late),      cmocka_unit_test(test_late_lane),
        cmocka_unit_test(test_late_kept), cmocka_unit_test(test_absent),
        cmocka_unit_test(test_remote),    cmocka_unit_test(test_signals),
        cmocka_unit_test(test_choice),
    };
    int skip = nr_skip();
    return skip ? skip : cmocka_run_group_tests(tests, NULL, NULL);
}
