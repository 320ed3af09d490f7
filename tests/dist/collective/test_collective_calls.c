/* SPDX-License-Identifier: Apache-2.0 */
/* What collectives ask of a communicator that has no way of its own for them, in a group of more
 * ranks than one machine has: of a stand-in that looks at each call and moves nothing. */
#include "src/comm/collective/collective.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { RANKS = 1000, ME = 7 };

static struct {
    tsri_group group;
    int calls, pulls; /* pulls: of the last call */
    bool in_order;    /* the last call reads 1 element of each member, one after the other */
    bool fails;       /* calls do, from now on */
    _Atomic int inside, most; /* calls under way: now, and at most */
    int pause_us, order[64];  /* what a call takes, and the elements of each, in their order */
    int poisons;
    const tsri_group *poisoned; /* the last one */
    tsr_status why;
    char text[64];
} seen;

static tsr_status find_group(tsri_comm *c, int nranks, const int *ranks, int lane,
                             tsri_group **out_group)
{
    seen.group =
        (tsri_group){.comm = c, .nranks = nranks, .index = ME, .ranks = ranks, .lane = lane};
    *out_group = &seen.group;
    return TSR_OK;
}

static tsr_status start(tsri_group *g, const tsri_coll *coll, tsri_ticket *out_ticket)
{
    const tsri_segment *s = coll->seg;
    *out_ticket = (tsri_ticket){.coll = coll};
    const int inside = atomic_fetch_add(&seen.inside, 1) + 1;
    if (inside > atomic_load(&seen.most))
        atomic_store(&seen.most, inside);
    seen.order[seen.calls++ % 64] = (int)s->shape.d[0];
    seen.pulls = s->npulls;
    seen.in_order = true;
    for (int i = 0; i < s->npulls; i++) {
        const tsri_pull *p = &s->pulls[i];
        seen.in_order = seen.in_order && p->ndim == 1 && p->nsrc == 1 && p->src[0] == i &&
                        p->length[0] == 1 && p->dst_at == i;
    }
    if (seen.fails)
        return tsri_fail(TSR_ERR_IO, "the cable is out");
    return g->nranks == RANKS ? TSR_OK : TSR_ERR_INTERNAL;
}

/* All ranks give what this one gives. */
static tsr_status finish(tsri_group *g, tsri_ticket *ticket)
{
    const tsri_segment *s = ticket->coll->seg;
    if (seen.pause_us)
        usleep((useconds_t)seen.pause_us);
    atomic_fetch_sub(&seen.inside, 1);
    size_t row = (size_t)s->shape.d[1] * tsr_dtype_size(s->dtype);
    for (int i = 0; ticket->coll->kind == TSRI_COLL_ALL_GATHER && i < g->nranks; i++)
        memcpy((char *)s->dst + (size_t)i * row, s->src, row);
    return TSR_OK;
}

static tsr_status release(tsri_group *g, tsri_ticket *ticket)
{
    (void)g;
    (void)ticket;
    return TSR_OK;
}

static void poison(tsri_group *g, tsr_status status, const char *text)
{
    seen.poisons++;
    seen.poisoned = g;
    seen.why = status;
    snprintf(seen.text, sizeof seen.text, "%s", text);
}

static const tsri_comm_ops ops = {.size = sizeof ops,
                                  .name = "stand-in",
                                  .group = find_group,
                                  .start = start,
                                  .finish = finish,
                                  .release = release,
                                  .poison = poison};

static float src[RANKS], dst[RANKS];
static int64_t ones[RANKS];
static tsr_world *w;
static tsri_comm comm;
static tsri_engine *e;
static tsr_group *g;

static void open_group(const tsri_comm_ops *with)
{
    int ranks[RANKS];
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = i;
        ones[i] = 1;
    }
    memset(&seen, 0, sizeof seen);
    assert_int_equal(tsr_world_create_virtual(RANKS, ME, &w), TSR_OK);
    comm = (tsri_comm){.ops = with, .world = w};
    assert_int_equal(tsri_engine_create(w, &comm, &e), TSR_OK);
    assert_int_equal(tsri_engine_group(e, RANKS, ranks, &g), TSR_OK);
}

static void close_group(void)
{
    tsri_engine_destroy(e);
    tsr_world_destroy(w);
}

static void test_wide(void **state)
{
    (void)state;
    open_group(&ops);
    assert_int_equal(tsr_gather_to(g, src, dst, 1, TSR_F32, ME), TSR_OK);
    assert_true(seen.calls == 1 && seen.pulls == RANKS && seen.in_order);
    assert_int_equal(tsr_gather_to(g, src, dst, 1, TSR_F32, 3), TSR_OK);
    assert_true(seen.calls == 2 && seen.pulls == 0);
    assert_int_equal(tsr_scatter_from(g, src, dst, 1, TSR_F32, 3), TSR_OK);
    assert_true(seen.calls == 3 && seen.pulls == 1);
    assert_int_equal(tsr_all_to_all(g, src, ones, dst, ones, TSR_F32), TSR_OK);
    assert_true(seen.calls == 5 && seen.pulls == RANKS && seen.in_order);
    tsr_work *work;
    assert_int_equal(tsr_all_to_all_async(g, src, ones, dst, ones, TSR_F32, &work), TSR_OK);
    assert_int_equal(tsr_work_wait(&work, 0), TSR_OK);
    assert_true(seen.calls == 7 && seen.pulls == RANKS && seen.in_order && !seen.poisons);
    close_group();
}

/* The group's later calls give the first error, and ask the communicator for nothing. */
static void expect_over(tsr_status status, const char *part)
{
    const int calls = seen.calls, poisons = seen.poisons;
    tsr_work *work = NULL;
    assert_int_equal(tsr_broadcast(g, src, 1, TSR_F32, 3), status);
    assert_non_null(strstr(tsr_last_error(), part));
    assert_int_equal(tsr_broadcast_async(g, src, 1, TSR_F32, 3, &work), status);
    assert_null(work);
    assert_int_equal(tsr_send(g, src, 1, TSR_F32, 3, 0), status);
    assert_true(seen.calls == calls && seen.poisons == poisons);
}

/* A call that fails ends the group, and the communicator tells the others, if it can; but not about
 * a message, which another thread may send, nor in a group of one. */
static void test_ends(void **state)
{
    (void)state;
    tsri_comm_ops older = ops;
    older.size = offsetof(tsri_comm_ops, poison);
    for (int tells = 0; tells < 2; tells++) {
        open_group(tells ? &ops : &older);
        assert_int_equal(tsr_broadcast(g, src, 1, TSR_F32, 3), TSR_OK);
        seen.fails = true;
        assert_int_equal(tsr_broadcast(g, src, 1, TSR_F32, 3), TSR_ERR_IO);
        assert_non_null(strstr(tsr_last_error(), "the cable is out"));
        assert_int_equal(seen.poisons, tells);
        if (tells) {
            assert_ptr_equal(seen.poisoned, &seen.group);
            assert_int_equal(seen.why, TSR_ERR_IO);
            assert_non_null(strstr(seen.text, "the cable is out"));
        }
        expect_over(TSR_ERR_IO, "the cable is out");
        close_group();
    }
    open_group(&ops);
    seen.fails = true;
    assert_int_equal(tsr_send(g, src, 1, TSR_F32, 3, 5), TSR_ERR_IO);
    assert_string_equal(tsr_last_error(), "send #1 to rank 3, tag 5: the cable is out");
    assert_int_equal(seen.poisons, 0);
    expect_over(TSR_ERR_IO, "send #1 to rank 3, tag 5: the cable is out");
    close_group();
    open_group(&ops);
    const int me = ME;
    const int64_t two = 2;
    assert_int_equal(tsri_engine_group(e, 1, &me, &g), TSR_OK);
    assert_int_equal(tsr_all_to_all(g, src, ones, dst, ones, TSR_F32), TSR_OK);
    assert_int_equal(tsr_all_to_all(g, src, ones, dst, &two, TSR_F32), TSR_ERR_MISMATCH);
    assert_true(seen.calls == 0 && seen.poisons == 0);
    close_group();
}

/* Calls of a group are made one at a time, in the order in which they were asked for, by whichever
 * thread: its own, one that makes a call at once, or one that waits. */
static void test_in_order(void **state)
{
    (void)state;
    enum { LATER = 4, ROUNDS = 48 };
    open_group(&ops);
    seen.pause_us = 300;
    for (int round = 0; round < ROUNDS; round++) {
        tsr_work *work[LATER];
        seen.calls = 0;
        for (int i = 0; i < LATER; i++)
            assert_int_equal(tsr_broadcast_async(g, src, i + 1, TSR_F32, 3, &work[i]), TSR_OK);
        /* The group's thread has begun, or may not have. */
        for (int tries = 0; round & 1 && tries < 100000 && !atomic_load(&seen.inside); tries++)
            sched_yield();
        switch (round / 2 % 4) {
        case 0:
            assert_int_equal(tsr_broadcast(g, src, LATER + 1, TSR_F32, 3), TSR_OK);
            break;
        case 1:
            assert_int_equal(tsr_work_wait(&work[LATER - 1], 0), TSR_OK);
            break;
        case 2:
            assert_int_equal(tsr_work_wait(&work[1], 60), TSR_OK);
            break;
        default:
            while (!tsr_work_test(work[0]))
                usleep(100);
        }
        for (int i = 0; i < LATER; i++)
            if (work[i])
                assert_int_equal(tsr_work_wait(&work[i], round & 2 ? 60 : 0), TSR_OK);
        assert_int_equal(seen.calls, LATER + (round / 2 % 4 == 0));
        for (int i = 0; i < seen.calls; i++)
            assert_int_equal(seen.order[i], i + 1);
        assert_int_equal(seen.most, 1);
        assert_int_equal(seen.inside, 0);
    }
    close_group();
}

static size_t mapped_bytes(void)
{
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%llu", &pages), 1);
    fclose(f);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Both threads of a group are joined when it closes: one that is not keeps its stack. */
static void test_threads_go(void **state)
{
    (void)state;
    enum { WARM = 8, TIMES = 72 };
    pthread_attr_t attr;
    size_t stack, before = 0;
    assert_int_equal(pthread_getattr_default_np(&attr), 0);
    pthread_attr_getstacksize(&attr, &stack);
    pthread_attr_destroy(&attr);
    for (int i = 0; i < TIMES; i++) {
        tsr_work *work;
        if (i == WARM)
            before = mapped_bytes();
        open_group(&ops);
        assert_int_equal(tsr_broadcast_async(g, src, 1, TSR_F32, 3, &work), TSR_OK);
        assert_int_equal(tsr_work_wait(&work, 0), TSR_OK);
        close_group();
    }
    assert_true(mapped_bytes() < before + (TIMES - WARM) / 2 * stack);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_threads_go),
    };
    return cmocka_run_group_tests_name("collective_calls", tests, NULL, NULL);
}
