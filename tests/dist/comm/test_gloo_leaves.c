/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks over Gloo that go while others work: who has done its part may, and who is still waited for
 * is told apart from one that has died. */
#include "tests/dist/comm/gloo_processes.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

static tsri_segment whole(void *src, void *dst, int64_t count)
{
    return (tsri_segment){.src = src,
                          .dst = dst,
                          .dtype = TSR_I64,
                          .shape = TSR_DIMS(count),
                          .src_axis = -1,
                          .dst_axis = -1};
}

/* Rank 0 sums what the others send. Rank 2 has sent and left, while 1 computes for longer than 0
 * takes to look who is dead. */
static tsr_status done_body(tsr_world *w, shared *s)
{
    int64_t src = 10 + w->rank, dst = -1;
    const tsri_segment seg = whole(&src, &dst, 1);
    tsri_coll c = {.kind = TSRI_COLL_REDUCE, .nseg = 1, .seg = &seg, .what = "loss"};
    tsri_group *g;
    TSRI_TRY(gloo_group(w, 0, &g));
    TSRI_TRY(w->comm->ops->prepare(g, &c));
    if (w->rank == 1) {
        TSRI_TRY(gloo_await(&s->flag[0], 1));
        usleep(4000000);
    }
    tsr_status status = gloo_call(g, &c);
    w->comm->ops->unprepare(g, &c);
    TSRI_TRY(status);
    if (w->rank == 2)
        atomic_store(&s->flag[0], 1);
    CHECK(w->rank || dst == 33);
    return TSR_OK;
}

static void test_done(void **state)
{
    (void)state;
    gloo_processes_ok(3, done_body);
}

/* A look at what Gloo's thread is about to write: a race that is meant, hidden from the checker. */
__attribute__((no_sanitize("thread"))) static bool is_there(const int64_t *at)
{
    return *(const volatile int64_t *)at != 0;
}

/* Rank 1 is killed within a message, of which rank 0 has got the beginning. */
static tsr_status within_body(tsr_world *w, shared *s)
{
    enum { COUNT = 1 << 25 };
    int64_t *data = calloc(COUNT, sizeof *data);
    tsri_segment seg = whole(data, data, COUNT);
    tsri_coll c = {.kind = TSRI_COLL_BROADCAST, .root = 1, .nseg = 1, .seg = &seg};
    tsri_group *g;
    tsri_ticket t;
    CHECK(data);
    if (w->rank == 1)
        for (int64_t i = 0; i < COUNT; i++)
            data[i] = i + 1;
    else
        seg.src = NULL;
    TSRI_TRY(gloo_group(w, 0, &g));
    TSRI_TRY(w->comm->ops->prepare(g, &c));
    atomic_store(&s->flag[w->rank], (int)getpid());
    TSRI_TRY(gloo_await(&s->flag[1], 1));
    TSRI_TRY(w->comm->ops->start(g, &c, &t));
    if (w->rank == 0) {
        for (int i = 0; i < 600000 && !is_there(&data[1000]); i++)
            usleep(100);
        kill(s->flag[1], SIGKILL);
    }
    tsr_status status = w->comm->ops->finish(g, &t);
    if (status == TSR_OK && data[COUNT - 1] == COUNT)
        return TSR_OK; /* rank 0 was kept from running until all of it was there */
    CHECK(status == TSR_ERR_DEAD);
    CHECK_TEXT("rank 1 died, or was cut off, while rank 0 waited for it in broadcast");
    w->comm->ops->unprepare(g, &c);
    free(data);
    return TSR_OK;
}

static void test_within(void **state)
{
    (void)state;
    const gloo_run run = {.nranks = 2, .timeout_s = 60, .killed = 1, .missing = -1};
    shared *s = gloo_processes(&run, within_body);
    if (s->status[0] != TSR_OK)
        fail_msg("rank 0: %s", s->text[0]);
    gloo_processes_free(s);
}

/* Rank 0 leaves a twin, and stays in the world; rank 1 comes to the twin's next call. */
static tsr_status twin_body(tsr_world *w, shared *s)
{
    tsri_comm *twin;
    tsri_group *g;
    tsri_coll c = {.kind = TSRI_COLL_BARRIER, .what = "gradients"};
    TSRI_TRY(w->comm->ops->twin(w->comm, &twin));
    TSRI_TRY(twin->ops->group(twin, 2, (const int[]){0, 1}, 0, &g));
    TSRI_TRY(gloo_call(g, &c));
    if (w->rank == 1) {
        TSRI_TRY(gloo_await(&s->flag[0], 1));
        CHECK(gloo_call(g, &c) == TSR_ERR_DEAD);
        CHECK_TEXT("rank 0 has left while rank 1 waited for it in barrier #2 'gradients'");
    }
    twin->ops->destroy(twin);
    if (w->rank == 1) {
        atomic_store(&s->flag[1], 1);
        return TSR_OK;
    }
    atomic_store(&s->flag[0], 1);
    return gloo_await(&s->flag[1], 1);
}

static void test_twin(void **state)
{
    (void)state;
    gloo_processes_ok(2, twin_body);
}

/* Everybody gets a number of everybody, and rank 0 besides every other one of the many of rank 2,
 * for which that one takes a while. */
enum { MANY = 1 << 24 };
typedef enum which { BOTH, FEW, OVER } which; /* FEW: one of everybody alone; OVER: both, in vain */

static tsr_status gather(tsri_group *g, int64_t *src, int64_t *dst, which what)
{
    const int from[4] = {0, 1, 2, 3};
    tsri_pull pulls[5];
    for (int m = 0; m < 4; m++)
        pulls[m] = (tsri_pull){.dst_at = m, .nsrc = 1, .src = &from[m]};
    pulls[4] = (tsri_pull){.ndim = 1,
                           .length = {MANY},
                           .src_step = {2},
                           .dst_at = 4,
                           .dst_step = {1},
                           .nsrc = 1,
                           .src = &from[2]};
    const tsri_segment seg = {.src = src,
                              .dst = dst,
                              .dtype = TSR_I64,
                              .shape = TSR_DIMS(1),
                              .npulls = g->index || what == FEW ? 4 : 5,
                              .pulls = pulls,
                              .dst_count = what == FEW ? 4 : 4 + MANY};
    tsri_coll c = {.kind = TSRI_COLL_SEND_RECV, .nseg = 1, .seg = &seg, .what = "all"};
    if (what == OVER) {
        CHECK(gloo_call(g, &c) == TSR_ERR_IO);
        CHECK(!strcmp(tsr_last_error(), "a bad sector"));
        return TSR_OK;
    }
    TSRI_TRY(gloo_call(g, &c));
    for (int m = 0; m < 4; m++)
        CHECK(dst[m] == 100 + m);
    CHECK(g->index || what == FEW || (dst[4] == 102 && dst[3 + MANY] == 102 + 2 * (MANY - 1)));
    return TSR_OK;
}

static double busy_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* In each round rank 3 has ended its group, and rank 2 comes last. All are told why, whomever they
 * have heard of first; and other groups go on. */
static tsr_status over_rounds(tsr_world *w, shared *s, int64_t *src, int64_t *dst)
{
    enum { ROUNDS = 3 };
    tsri_group *g;
    for (int i = 0; i < ROUNDS; i++) {
        TSRI_TRY(gloo_group(w, i, &g));
        TSRI_TRY(gather(g, src, dst, BOTH));
        if (w->rank == 3)
            w->comm->ops->poison(g, TSR_ERR_IO, "a bad sector");
        if (w->rank == 2) {
            TSRI_TRY(gloo_await(&s->flag[0], 2 * (i + 1)));
            usleep(300000);
        }
        if (w->rank < 2)
            atomic_fetch_add(&s->flag[0], 1);
        TSRI_TRY(gather(g, src, dst, OVER));
        atomic_fetch_add(&s->flag[1], 1);
        TSRI_TRY(gloo_await(&s->flag[1], 4 * (i + 1)));
    }
    /* No message has come that nobody takes, which would keep Gloo's thread busy. */
    usleep(1000000);
    double before = busy_s();
    usleep(500000);
    CHECK(busy_s() - before < 0.1);
    TSRI_TRY(gloo_group(w, ROUNDS, &g));
    return gather(g, src, dst, BOTH);
}

static tsr_status over_body(tsr_world *w, shared *s)
{
    int64_t *src = calloc(2 * MANY, sizeof *src), *dst = calloc(4 + MANY, sizeof *dst);
    CHECK(src && dst);
    for (int64_t i = 0; i < (w->rank == 2 ? 2 * MANY : 1); i++)
        src[i] = 100 + w->rank + i;
    tsr_status status = over_rounds(w, s, src, dst);
    free(src);
    free(dst);
    return status;
}

static void test_over(void **state)
{
    (void)state;
    gloo_processes_ok(4, over_body);
}

/* Rank 2 dies while 0 waits for whichever of the others comes first, which is 3: by what that one
 * finds, or 0 by itself, when it waits for the rest. */
static tsr_status any_body(tsr_world *w, shared *s)
{
    int64_t src = 100 + w->rank, dst[4];
    tsri_group *g;
    TSRI_TRY(gloo_group(w, 0, &g));
    TSRI_TRY(gather(g, &src, dst, FEW));
    if (w->rank == 2) {
        TSRI_TRY(gloo_await(&s->flag[0], 1));
        usleep(200000);
        raise(SIGKILL);
    }
    if (w->rank == 0 || w->rank == 3) {
        if (w->rank == 0)
            atomic_store(&s->flag[0], 1);
        TSRI_TRY(gloo_await(&s->flag[0], 1));
        usleep(w->rank ? 600000 : 0);
        CHECK(gather(g, &src, dst, FEW) == TSR_ERR_DEAD);
    } else {
        for (int i = 0; i < 60000 && w->comm->ops->check(w->comm) == TSR_OK; i++)
            usleep(1000);
        CHECK(w->comm->ops->check(w->comm) == TSR_ERR_DEAD);
    }
    CHECK_TEXT("rank 2 died, or was cut off, while rank ");
    CHECK_TEXT(" waited for it in send_recv #2 'all'");
    return TSR_OK;
}

static void test_any(void **state)
{
    (void)state;
    const gloo_run run = {.nranks = 4, .timeout_s = 60, .killed = 2, .missing = -1};
    shared *s = gloo_processes(&run, any_body);
    for (int r = 0; r < 4; r++)
        if (r != 2 && s->status[r] != TSR_OK)
            fail_msg("rank %d: %s", r, s->text[r]);
    gloo_processes_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_done), cmocka_unit_test(test_within), cmocka_unit_test(test_twin),
        cmocka_unit_test(test_over), cmocka_unit_test(test_any),
    };
    return cmocka_run_group_tests_name("gloo_leaves", tests, NULL, NULL);
}
