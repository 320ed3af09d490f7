/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What collectives for per-rank buffers say when something is wrong: arguments that make no sense,
 * ranks that disagree, come too late, leave or are killed. Everybody concerned gets an error that
 * names the ranks, the calls and their lines; nobody hangs; the group is over then.
 */
#include "src/comm/collective/collective.h"
#include "src/comm/local/local.h"
#include "tests/dist/collective/collective_checks.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- arguments -------------------------------------------------------------------------------- */

#define REFUSED(call, part) NAMES((call), TSR_ERR_INVALID, (part))

static tsr_status arguments(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w), *other;
    float x[16] = {0};
    int64_t counts[2] = {1, 1}, bad[2] = {1, -1};
    void *list[2] = {x, x + 4}, *close[2] = {x, x + 1}, *hole[2] = {x, NULL}, *p;
    tsr_work *work;
    (void)arg;
    REFUSED(tsr_all_reduce(NULL, x, 1, TSR_F32, TSR_REDUCE_SUM), "all_reduce: the group is NULL");
    REFUSED(tsr_all_reduce(g, NULL, 1, TSR_F32, TSR_REDUCE_SUM), "data is NULL, for 1 elements");
    REFUSED(tsr_all_reduce(g, x, -1, TSR_F32, TSR_REDUCE_SUM), "count of -1");
    REFUSED(tsr_all_reduce(g, x, INT64_MAX / 2, TSR_F32, TSR_REDUCE_SUM), "expected 0 to");
    REFUSED(tsr_all_reduce(g, x, 1, TSR_DTYPE_NONE, TSR_REDUCE_SUM), "no dtype 0");
    REFUSED(tsr_all_reduce(g, x, 1, (tsr_dtype)77, TSR_REDUCE_SUM), "no dtype 77");
    REFUSED(tsr_all_reduce(g, x, 1, TSR_F32, (tsr_reduce_op)9), "no reduction 9");
    REFUSED(tsr_all_reduce(g, x, 1, TSR_I32, TSR_REDUCE_AVG), "average of i32");
    REFUSED(tsr_all_reduce_async(g, NULL, 1, TSR_F32, TSR_REDUCE_SUM, &work), "data is NULL");
    REFUSED(tsr_all_reduce_at(g, NULL, 1, TSR_F32, TSR_REDUCE_SUM, NULL, AT(12)), "user.c:12");
    REFUSED(tsr_broadcast(g, x, 1, TSR_F32, 2), "root 2 is no rank of the group [0,1]");
    REFUSED(tsr_reduce(g, x, 1, TSR_F32, TSR_REDUCE_SUM, -1), "root -1");
    REFUSED(tsr_all_gather_into(g, x, x + 1, 2, TSR_F32), "buffers overlap");
    REFUSED(tsr_all_gather_into(g, x + 3, x, 2, TSR_F32), "buffers overlap");
    REFUSED(tsr_all_gather_into(g, x, NULL, 2, TSR_F32), "dst is NULL");
    REFUSED(tsr_all_gather(g, x + 8, NULL, 4, TSR_F32), "dst is NULL; expected 2 pointers");
    REFUSED(tsr_all_gather(g, x + 8, hole, 4, TSR_F32), "dst[1] is NULL");
    REFUSED(tsr_all_gather(g, x + 8, close, 4, TSR_F32), "buffers overlap");
    REFUSED(tsr_all_gather(g, x + 2, list, 4, TSR_F32), "buffers overlap");
    REFUSED(tsr_all_gather(g, w->rank == 0 ? x + 4 : x, list, 4, TSR_F32),
            w->rank == 0 ? "dst[1] is src; of all dst, dst[0] alone"
                         : "dst[0] is src; of all dst, dst[1]");
    REFUSED(tsr_reduce_scatter(g, x, x + 1, 2, TSR_F32, TSR_REDUCE_SUM), "buffers overlap");
    REFUSED(tsr_all_to_all(g, x, NULL, x + 8, counts, TSR_F32), "src_counts is NULL");
    REFUSED(tsr_all_to_all(g, x, counts, x + 8, bad, TSR_F32), "dst_counts[1] is -1");
    REFUSED(tsr_all_to_all(g, x, counts, x + 1, counts, TSR_F32), "buffers overlap");
    REFUSED(tsr_send(g, x, 1, TSR_F32, w->rank, 0), "is this rank itself");
    REFUSED(tsr_send(g, x, 1, TSR_F32, 7, 0), "to 7 is no rank");
    REFUSED(tsr_recv(g, x, 1, TSR_F32, 1 - w->rank, 65536), "a tag of 65536");
    REFUSED(tsr_recv(g, x, 1, TSR_F32, 1 - w->rank, -1), "a tag of -1");
    REFUSED(tsr_group_set_label(NULL, "x"), "group is NULL");
    REFUSED(
        tsr_group_set_label(g, "0123456789012345678901234567890123456789012345678901234567890123"),
        "at most 63");
    REFUSED(tsr_group_create(w, 0, (const int[]){0}, &other), "a group of 0 ranks");
    REFUSED(tsr_group_create(w, 2, NULL, &other), "list is NULL");
    REFUSED(tsr_group_create(w, 2, (const int[]){0, 0}, &other), "rank 0 twice");
    REFUSED(tsr_group_create(w, 2, (const int[]){0, 2}, &other), "rank 2 in a world of 2");
    REFUSED(tsr_group_create(w, 1, (const int[]){1 - w->rank}, &other), "not in");
    REFUSED(tsr_alloc(w, 1, NULL), "out_ptr is NULL");
    CHECK(tsr_alloc(w, 64 << 20, &p) == TSR_ERR_NO_MEMORY);
    CHECK(tsr_group_size(NULL) == 0 && tsr_group_rank(NULL) == -1);
    CHECK(tsr_work_test(NULL));
    tsr_free(w, NULL);
    /* Nothing was sent by all that: the group is as it was. */
    x[0] = 1;
    TSRI_TRY(tsr_all_reduce(g, x, 1, TSR_F32, TSR_REDUCE_SUM));
    CHECK(x[0] == 2);
    return TSR_OK;
}

static tsr_status no_world(void)
{
    tsr_world *w;
    tsr_group *g;
    void *p;
    CHECK(!tsr_world_group(NULL) && strstr(tsr_last_error(), "no world"));
    TSRI_TRY(tsr_world_create_virtual(2, 0, &w));
    CHECK(!tsr_world_group(w) && strstr(tsr_last_error(), "virtual"));
    CHECK(tsr_group_create(w, 1, (const int[]){0}, &g) == TSR_ERR_STATE);
    CHECK(tsr_alloc(w, 1, &p) == TSR_ERR_STATE);
    tsr_free(w, &p);
    tsr_world_destroy(w);
    return TSR_OK;
}

static void test_arguments(void **state)
{
    (void)state;
    run(2, 60, arguments, NULL);
    if (no_world() != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

/* --- ranks that disagree ---------------------------------------------------------------------- */

static float data[4][1024]; /* by rank */

static tsr_status call(tsr_group *g, int rank, int which)
{
    float *x = data[rank];
    switch (which) {
    case 0:
        return tsr_all_reduce_at(g, x, 4, TSR_F32, TSR_REDUCE_SUM, NULL, AT(100));
    case 1:
        return tsr_all_reduce_at(g, x, 5, TSR_F32, TSR_REDUCE_SUM, NULL, AT(101));
    case 2:
        return tsr_all_reduce_at(g, x, 4, TSR_I32, TSR_REDUCE_SUM, NULL, AT(102));
    case 3:
        return tsr_all_reduce_at(g, x, 4, TSR_F32, TSR_REDUCE_AVG, NULL, AT(103));
    case 4:
        return tsr_broadcast_at(g, x, 4, TSR_F32, 0, NULL, AT(104));
    case 5:
        return tsr_broadcast_at(g, x, 4, TSR_F32, 1, NULL, AT(105));
    case 6:
        return tsr_gather_to_at(g, x, x + 8, 4, TSR_F32, 0, NULL, AT(106));
    case 7:
        return tsr_gather_to_at(g, x, x + 8, 4, TSR_F32, 1, NULL, AT(107));
    case 8:
        return tsr_all_gather_into_at(g, x, x + 8, 4, TSR_F32, NULL, AT(108));
    case 9:
        return tsr_barrier_at(g, NULL, AT(109));
    case 10:
        return tsr_reduce_scatter_at(g, x + 8, x, 4, TSR_F32, TSR_REDUCE_SUM, NULL, AT(110));
    case 11:
        return tsr_scatter_from_at(g, x + 8, x, 4, TSR_F32, 0, NULL, AT(111));
    case 12:
        return tsr_reduce_at(g, x, 4, TSR_F32, TSR_REDUCE_PRODUCT, 0, NULL, AT(112));
    default:
        TSRI_TRY(tsr_group_set_label(g, "step 7"));
        return tsr_all_reduce_at(g, x, 4, TSR_F32, TSR_REDUCE_SUM, NULL, AT(113));
    }
}

typedef struct pair {
    int a, b; /* of rank 0, and of the others */
    const char *text_a, *text_b;
} pair;

static const pair pairs[] = {
    {0, 1, "all_reduce #3 (user.c:100): sum, 16 bytes, f32 [4]",
     "all_reduce #3 (user.c:101): sum, 20 bytes, f32 [5]"},
    {0, 2, "(user.c:100): sum, 16 bytes, f32", "(user.c:102): sum, 16 bytes, i32"},
    {0, 3, "(user.c:100): sum", "(user.c:103): avg"},
    {0, 4, "all_reduce #3 (user.c:100)", "broadcast #3 (user.c:104): root 0"},
    {4, 5, "broadcast #3 (user.c:104): root 0", "broadcast #3 (user.c:105): root 1"},
    {6, 7, "gather #3 (user.c:106): root 0", "gather #3 (user.c:107): root 1"},
    {8, 6, "all_gather #3 (user.c:108)", "gather #3 (user.c:106)"},
    {9, 0, "barrier #3 (user.c:109)", "all_reduce #3 (user.c:100)"},
    {10, 11, "reduce_scatter #3 (user.c:110): sum", "scatter #3 (user.c:111): root 0"},
    {12, 4, "reduce #3 (user.c:112): product, root 0", "broadcast #3 (user.c:104)"},
    {0, 13, "all_reduce #3 (user.c:100)", "all_reduce #3 'step 7' (user.c:113)"},
};

static tsr_status disagree(tsr_world *w, void *arg)
{
    const pair *p = arg;
    tsr_group *g = tsr_world_group(w);
    double begin = now_s();
    TSRI_TRY(tsr_group_barrier(g));
    TSRI_TRY(tsr_group_barrier(g));
    tsr_status status = call(g, w->rank, w->rank == 0 ? p->a : p->b);
    NAMES(status, TSR_ERR_MISMATCH, "ranks disagree", "rank 0 is at", p->text_a, "is at",
          p->text_b);
    CHECK(now_s() - begin < 30); /* long before the timeout */
    TSRI_TRY(is_over(g, TSR_ERR_MISMATCH));
    /* Other groups go on. */
    int two[2] = {1, 0};
    if (w->rank < 2) {
        TSRI_TRY(tsr_group_create(w, 2, two, &g));
        return tsr_group_barrier(g);
    }
    return TSR_OK;
}

static void test_disagree(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int n = 2; n <= 3; n++)
            run(n, 60, disagree, (void *)(uintptr_t)&pairs[i]);
}

/* Rank 2 never comes: the other two still see at once that they disagree. */
static tsr_status third_is_away(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    _Atomic int *told = arg;
    double begin = now_s();
    if (w->rank != 2) {
        tsr_status status = call(g, w->rank, w->rank);
        atomic_fetch_add(told, 1);
        NAMES(status, TSR_ERR_MISMATCH, "rank 0 is at", "user.c:100", "user.c:101");
        CHECK(now_s() - begin < 30);
    }
    int two[2] = {0, 1};
    if (w->rank < 2) {
        TSRI_TRY(tsr_group_create(w, 2, two, &g));
        TSRI_TRY(tsr_group_barrier(g));
    } else {
        /* It comes later, to a group that is over. */
        await_count(told, 2);
        tsr_status status = call(g, 2, 0);
        NAMES(status, TSR_ERR_MISMATCH, "rank 0 is at", "user.c:100", "user.c:101");
    }
    return TSR_OK;
}

/* One blocks where the other does not. */
static tsr_status mixed(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    tsr_work *work, *next;
    float x = 1, y = 2;
    (void)arg;
    if (w->rank == 0) {
        TSRI_TRY(tsr_all_reduce(g, &x, 1, TSR_F32, TSR_REDUCE_SUM));
        tsr_status status = call(g, 0, 0);
        NAMES(status, TSR_ERR_MISMATCH, "user.c:100", "user.c:300");
        return TSR_OK;
    }
    TSRI_TRY(tsr_all_reduce_async(g, &x, 1, TSR_F32, TSR_REDUCE_SUM, &work));
    TSRI_TRY(tsr_broadcast_at(g, &y, 1, TSR_F32, 0, &next, AT(300)));
    TSRI_TRY(tsr_work_wait(&work, 0));
    CHECK(x == 2);
    tsr_status status = tsr_work_wait(&next, 0);
    CHECK(!next);
    NAMES(status, TSR_ERR_MISMATCH, "user.c:100", "user.c:300");
    return is_over(g, TSR_ERR_MISMATCH);
}

static tsr_status uneven_counts(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    int64_t out[3] = {1, 1, 1}, in[3] = {1, 1, 1};
    float x[3] = {0}, y[8];
    (void)arg;
    if (w->rank == 1)
        out[2] = 4;
    float longer[8] = {0};
    tsr_status status = tsr_all_to_all_at(g, w->rank == 1 ? longer : x, out, y, in, TSR_F32, NULL,
                                          AT(50 + w->rank));
    NAMES(status, TSR_ERR_MISMATCH, "all_to_all #1", "rank 1 sends 4 elements to rank 2",
          "expects 1");
    return is_over(g, TSR_ERR_MISMATCH);
}

static void test_disagree_more(void **state)
{
    (void)state;
    _Atomic int told = 0;
    run(3, 60, third_is_away, &told);
    run(2, 60, mixed, NULL);
    run(3, 60, uneven_counts, NULL);
}

/* --- ranks that do not come ------------------------------------------------------------------- */

typedef struct lateness {
    char mode; /* async, blocking, large */
    _Atomic int told;
} lateness;

/* Rank 0 waits for rank 1, for a short time; it tells the others, whenever they come. */
static tsr_status too_late(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    tsr_work *work;
    lateness *l = arg;
    const char mode = l->mode;
    TSRI_TRY(tsr_group_barrier(g));
    if (w->rank == 0)
        w->timeout_s = 0.4;
    if (w->rank == 1)
        await_count(&l->told, 1);
    tsr_status status;
    if (mode == 'a') {
        status = tsr_all_reduce_at(g, data[w->rank], 4, TSR_F32, TSR_REDUCE_SUM, &work, AT(70));
        if (status == TSR_OK)
            status = tsr_work_wait(&work, 0);
    } else {
        status = tsr_all_reduce_at(g, data[w->rank], mode == 'l' ? 3000 : 4, TSR_U8, TSR_REDUCE_SUM,
                                   NULL, AT(70));
    }
    if (w->rank == 0)
        atomic_store(&l->told, 1);
    NAMES(status, TSR_ERR_TIMEOUT, "rank 1 did not come to all_reduce #2 (user.c:70) within 0.4 s");
    TSRI_TRY(is_over(g, TSR_ERR_TIMEOUT));
    return TSR_OK;
}

/* Comes to the call at which rank 0 is, and no further. */
static void come(tsr_group *group)
{
    tsri_local_group *g = group->inner->priv;
    uint64_t seq = g->started + 1;
    while (!tsri_local_reached(g, 0, TSRI_WAIT_PUBLISHED, seq))
        nap(0.001);
    memcpy(tsri_call_of(g->mine, seq), tsri_call_of(&g->members[0], seq), sizeof(tsri_call_entry));
    tsri_small *mine = &g->mine->small[seq % TSRI_SMALL_SLOTS];
    mine->print = g->members[0].small[seq % TSRI_SMALL_SLOTS].print;
    atomic_store(&mine->seq, seq);
    g->started = seq;
    tsri_local_advance(g->mine, TSRI_WAIT_PUBLISHED, seq);
}

/* The others stand still while rank 0 has staged a broadcast and gone on: its next call waits for
 * memory of the group, before it is shown. */
static tsr_status stages_ahead(tsr_world *w, void *arg)
{
    enum { STAGED = 4 * 256 * 1024 };
    static char all[STAGED];
    tsr_group *g = tsr_world_group(w);
    _Atomic int *seen = arg;
    float x[2048] = {0};
    TSRI_TRY(tsr_group_barrier(g));
    if (w->rank != 0) {
        come(g);
        await_count(seen, 1);
        return TSR_OK;
    }
    tsr_status status = tsr_broadcast(g, all, STAGED, TSR_U8, 0);
    if (status == TSR_OK) {
        w->timeout_s = 0.1;
        status = tsr_all_reduce_at(g, x, 2048, TSR_F32, TSR_REDUCE_SUM, NULL, AT(71));
    }
    atomic_store(seen, 1);
    NAMES(status, TSR_ERR_TIMEOUT, "rank 1 did not finish all_reduce #3 (user.c:71)",
          "its last call in this group is broadcast #2", "rank 1 at #2, rank 2 at #2");
    return TSR_OK;
}

/* Likewise where a small all_reduce finds what an earlier world has left in its slot, which the
 * others may still read. */
static tsr_status shows_ahead(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    _Atomic int *seen = arg;
    float x = 1;
    for (int i = 0; w->rank != 0 && i < 2; i++)
        come(g);
    if (w->rank != 0) {
        await_count(seen, 1);
        return TSR_OK;
    }
    tsr_status status = tsr_all_reduce(g, &x, 1, TSR_F32, TSR_REDUCE_SUM);
    if (status == TSR_OK)
        status = tsr_group_barrier(g);
    if (status == TSR_OK) {
        w->timeout_s = 0.1;
        ((tsri_local_group *)g->inner->priv)->passed = 0;
        status = tsr_all_reduce_at(g, &x, 1, TSR_F32, TSR_REDUCE_SUM, NULL, AT(72));
    }
    atomic_store(seen, 1);
    NAMES(status, TSR_ERR_TIMEOUT, "rank 1 did not finish all_reduce #3 (user.c:72)",
          "its last call in this group is barrier #2", "rank 1 at #2, rank 2 at #2");
    return TSR_OK;
}

static void test_stages_ahead(void **state)
{
    (void)state;
    _Atomic int seen = 0;
    run(3, 60, stages_ahead, &seen);
    seen = 0;
    run(3, 60, shows_ahead, &seen);
}

static void test_timeout(void **state)
{
    (void)state;
    for (const char *mode = "bal"; *mode; mode++) {
        lateness l = {.mode = *mode};
        run(3, 60, too_late, &l);
    }
}

/* Rank 1 leaves; 0 and 2 find out, whether they block or not, and end. */
static tsr_status leaves(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    tsr_work *work, *unattended;
    float x = 1;
    (void)arg;
    TSRI_TRY(tsr_group_barrier(g));
    if (w->rank == 1)
        return TSR_OK;
    tsr_status status;
    if (w->rank == 0) {
        status = tsr_all_reduce_at(g, &x, 1, TSR_F32, TSR_REDUCE_SUM, NULL, AT(90));
    } else {
        status = tsr_all_reduce_at(g, &x, 1, TSR_F32, TSR_REDUCE_SUM, &work, AT(90));
        if (status == TSR_OK) { /* else rank 0 has found out by now */
            (void)tsr_all_reduce_at(g, &x, 1, TSR_F32, TSR_REDUCE_SUM, &unattended, AT(91));
            status = tsr_work_wait(&work, 0);
        }
    }
    NAMES(status, TSR_ERR_DEAD, "rank 1 has left", "all_reduce #2 (user.c:90)");
    return is_over(g, TSR_ERR_DEAD);
}

/* Rank 1 ends the group and leaves when rank 0, which waits for it, has just seen that the group is
 * not over: rank 0 is told why, not that rank 1 is gone. */
typedef struct parting {
    tsri_local *local; /* rank 0's */
    _Atomic int goes;
} parting;

static tsr_status let_go(void *arg)
{
    parting *p = arg;
    atomic_store(&p->goes, 1);
    while (tsri_rank_state_of(atomic_load(&tsri_arena_slot(&p->local->arena, 1)->holder)) !=
           TSRI_RANK_LEFT)
        nap(0.001);
    return TSR_OK;
}

static tsr_status parts(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    parting *p = arg;
    TSRI_TRY(tsr_group_barrier(g));
    if (w->rank == 1) {
        await_count(&p->goes, 1);
        tsri_local_poison(g->inner, TSR_ERR_TIMEOUT, "rank 1 has waited in vain");
        return TSR_OK;
    }
    p->local = w->comm->priv;
    p->local->poll = let_go;
    p->local->poll_arg = p;
    tsr_status status = tsr_group_barrier(g);
    p->local->poll = NULL;
    NAMES(status, TSR_ERR_TIMEOUT, "rank 1 has waited in vain");
    return TSR_OK;
}

/* What was asked for, and then refused as the group was over, is on record as that. */
static tsr_status refused_later(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    tsr_work *work;
    _Atomic int *step = arg;
    tsri_flight_seen e = {0};
    TSRI_TRY(tsr_group_barrier(g));
    if (w->rank == 1) {
        tsri_local_poison(g->inner, TSR_ERR_MISMATCH, "rank 1 has had enough");
        atomic_fetch_add(step, 1);
        return TSR_OK;
    }
    await_count(step, 1);
    TSRI_TRY(tsr_barrier_at(g, &work, AT(95)));
    NAMES(tsr_work_wait(&work, 0), TSR_ERR_MISMATCH, "rank 1 has had enough");
    for (int i = 0; i < TSRI_FLIGHT_CALLS && e.call.line != 95; i++)
        if (!tsri_flight_copy(w->flight, i, &e))
            e.call.line = 0;
    CHECK(e.call.line == 95 && e.state == TSRI_FLIGHT_FAILED);
    return TSR_OK;
}

/* Rank 1 is about to write into rank 0's memory when the group ends: rank 0 has its error, and its
 * memory back, when rank 1 has written. */
typedef struct writer {
    _Atomic int writes, wrote;
} writer;

static tsr_status writes_late(tsr_world *w, void *arg)
{
    enum { COUNT = 8192 };
    tsr_group *g = tsr_world_group(w);
    tsri_local_group *local = g->inner->priv;
    writer *wr = arg;
    void *x;
    TSRI_TRY(tsr_alloc(w, COUNT * sizeof(float), &x));
    TSRI_TRY(tsr_group_barrier(g));
    uint64_t seq = local->started + 1;
    if (w->rank == 1) {
        atomic_store(&local->mine->writing, seq);
        atomic_store(&wr->writes, 1);
        for (int i = 0; i < 60000 && !tsri_local_reached(local, 0, TSRI_WAIT_PUBLISHED, seq); i++)
            nap(0.001);
        tsri_local_poison(g->inner, TSR_ERR_MISMATCH, "rank 1 has had enough");
        nap(0.3);
        atomic_store(&wr->wrote, 1);
        atomic_store(&local->mine->writing, 0);
        return TSR_OK;
    }
    await_count(&wr->writes, 1);
    memset(x, 0, COUNT * sizeof(float));
    tsr_status status = tsr_all_reduce(g, x, COUNT, TSR_F32, TSR_REDUCE_SUM);
    CHECK(atomic_load(&wr->wrote));
    NAMES(status, TSR_ERR_MISMATCH, "rank 1 has had enough");
    return TSR_OK;
}

/* Destroying the world ends what nobody waits for. */
static tsr_status abandons(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    static float x[2];
    tsr_work *work;
    (void)arg;
    TSRI_TRY(tsr_group_barrier(g));
    tsr_status status = TSR_OK;
    for (int i = 0; i < 20 && w->rank == 0 && status == TSR_OK; i++)
        status = tsr_all_reduce_async(g, x, 1, TSR_F32, TSR_REDUCE_SUM, &work);
    /* Rank 1 may have left by then, and the group be over. */
    return status == TSR_ERR_DEAD ? TSR_OK : status;
}

static tsr_status gives_up(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    (void)arg;
    if (w->rank == 1)
        tsr_world_abort(w, "no data for rank 1");
    tsr_status status = tsr_group_barrier(g);
    NAMES(status, TSR_ERR_REMOTE, "rank 1 failed: no data for rank 1");
    return TSR_OK;
}

static void test_leaves(void **state)
{
    (void)state;
    double begin = now_s();
    parting p = {0};
    _Atomic int refused = 0;
    writer wr = {0};
    run(3, 60, leaves, NULL);
    run(2, 60, parts, &p);
    run(2, 60, refused_later, &refused);
    run(2, 60, writes_late, &wr);
    run(2, 60, abandons, NULL);
    run(2, 60, gives_up, NULL);
    assert_true(now_s() - begin < 40);
}

/* --- killed ----------------------------------------------------------------------------------- */

/* A rank of several processes, of which rank 1 kills itself: 0, or the line that went wrong. */
static int survivor(int rank, int mode)
{
    const tsr_world_opts o = {.size = sizeof o, .timeout_s = 60, .threads = 1};
    tsr_world *w;
    tsr_work *work = NULL;
    static float x[100000];
    if (tsr_world_create(&o, &w) != TSR_OK)
        return 2;
    tsr_group *g = tsr_world_group(w);
    tsr_status status = tsr_group_barrier(g);
    if (rank == 1) {
        if (mode == 2) /* in the middle of things */
            tsr_all_reduce_async(g, x, 100000, TSR_F32, TSR_REDUCE_SUM, &work);
        kill(getpid(), SIGKILL);
    }
    for (int i = 0; i < 3 && status == TSR_OK; i++) {
        if (mode == 0)
            status = tsr_all_reduce(g, x, 100000, TSR_F32, TSR_REDUCE_SUM);
        else
            status = tsr_all_reduce_async(g, x, 100000, TSR_F32, TSR_REDUCE_SUM, &work);
        if (mode != 0 && status == TSR_OK && mode != 3)
            status = tsr_work_wait(&work, 0);
    }
    bool good = mode == 3 || (status == TSR_ERR_DEAD && strstr(tsr_last_error(), "rank 1 died") &&
                              strstr(tsr_last_error(), "all_reduce #"));
    if (!good)
        fprintf(stderr, "%s: %s\n", tsr_status_name(status), tsr_last_error());
    tsr_world_destroy(w);
    return good ? 0 : 3;
}

static void one_killed(int n, int mode)
{
    size_t bytes = 16 << 20;
    char text[64];
    int fd = tsri_arena_create_fd(n, &bytes);
    pid_t pids[4];
    assert_true(fd >= 0);
    snprintf(text, sizeof text, "%d:%d:%zu", (int)getpid(), fd, bytes);
    setenv("TESSERA_ARENA", text, 1);
    snprintf(text, sizeof text, "%d", n);
    setenv("WORLD_SIZE", text, 1);
    double begin = now_s();
    for (int r = 0; r < n; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0) {
            snprintf(text, sizeof text, "%d", r);
            setenv("RANK", text, 1);
            _exit(survivor(r, mode));
        }
    }
    unsetenv("TESSERA_ARENA");
    unsetenv("WORLD_SIZE");
    for (int r = 0; r < n; r++) {
        int how;
        assert_int_equal(waitpid(pids[r], &how, 0), pids[r]);
        if (r == 1)
            assert_true(WIFSIGNALED(how));
        else
            assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    }
    close(fd);
    assert_true(now_s() - begin < 30);
}

static void test_killed(void **state)
{
    (void)state;
    for (int mode = 0; mode < 4; mode++) {
        one_killed(2, mode);
        one_killed(3, mode);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed), /* forks: before there are threads */
        cmocka_unit_test(test_arguments),     cmocka_unit_test(test_disagree),
        cmocka_unit_test(test_disagree_more), cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_stages_ahead),  cmocka_unit_test(test_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
