/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks over Gloo that go while others work: who has done its part may, and who is still waited for
 * is told apart from one that has died. */
#include "tests/dist/gloo_processes.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
        for (int i = 0; i < 600000 && !__atomic_load_n(&data[1000], __ATOMIC_RELAXED); i++)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_done),
        cmocka_unit_test(test_within),
        cmocka_unit_test(test_twin),
    };
    return cmocka_run_group_tests_name("gloo_leaves", tests, NULL, NULL);
}
