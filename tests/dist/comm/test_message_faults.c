/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that the receiver does not want so, or that do not come: both ranks hear of it, by
 * whatever they do next. */
#include "src/comm/collective/collective.h"
#include "tests/dist/collective/collective_checks.h"

#include <stdatomic.h>

static tsr_status wrong_message(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    double x[4] = {0};
    (void)arg;
    if (w->rank == 0) {
        TSRI_TRY(tsr_send_at(g, x, 3, TSR_F64, 1, 9, NULL, AT(61)));
        /* It hears of it at the next call. */
        tsr_status status = tsr_group_barrier(g);
        NAMES(status, TSR_ERR_MISMATCH,
              "rank 0 is at send #1 to rank 1, tag 9 (user.c:61): f64 [3]",
              "rank 1 is at recv #1 from rank 0 (user.c:62): f32 [3]");
        return TSR_OK;
    }
    tsr_status status = tsr_recv_at(g, x, 3, TSR_F32, 0, 9, NULL, AT(62));
    NAMES(status, TSR_ERR_MISMATCH, "rank 0 is at send #1 to rank 1, tag 9 (user.c:61): f64 [3]",
          "rank 1 is at recv #1 from rank 0 (user.c:62): f32 [3]");
    return is_over(g, TSR_ERR_MISMATCH);
}

/* What rank 0 does after a message that rank 1 refused. */
typedef struct after {
    enum { SENDS, WAITS, SENT_AHEAD } then;
    bool kept, late; /* rank 1 has taken a later message first; it waited in vain for any */
    _Atomic int refused;
} after;

static tsr_status refuses(tsr_world *w, tsr_group *g, after *a)
{
    static const int turned[2] = {1, 0};
    double x[4] = {0}, ahead = 0; /* the asynchronous send may read until its work is done */
    tsr_group *other;
    tsr_work *work = NULL;
    TSRI_TRY(tsr_group_create(w, 2, turned, &other));
    for (int i = 0; a->then == SENT_AHEAD && i < 64; i++)
        TSRI_TRY(tsr_send(other, x, 1, TSR_F64, 0, 1));
    if (a->then == SENT_AHEAD) /* waits for rank 0, perhaps when the next fails */
        TSRI_TRY(tsr_send_async(other, &ahead, 1, TSR_F64, 0, 1, &work));
    if (a->kept)
        TSRI_TRY(tsr_recv(g, x, 4, TSR_F64, 0, 8));
    if (a->late)
        w->timeout_s = 0.1;
    tsr_status status = tsr_recv_at(g, x, 3, TSR_F32, 0, 9, NULL, AT(62));
    if (a->late)
        NAMES(status, TSR_ERR_TIMEOUT, "recv #1 from rank 0, tag 9");
    else
        NAMES(status, TSR_ERR_MISMATCH, "user.c:61", "user.c:62");
    TSRI_TRY(is_over(g, status));
    atomic_store(&a->refused, 1);
    if (!work)
        return TSR_OK;
    status = tsr_work_wait(&work, 0);
    CHECK(status == TSR_OK || status == TSR_ERR_MISMATCH);
    return TSR_OK;
}

/* Rank 0 is told by whatever it does next, long before the timeout. */
static tsr_status refused_message(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w), *other;
    after *a = arg;
    double x[4] = {0}, begin = now_s();
    static const int turned[2] = {1, 0};
    if (w->rank == 1)
        return refuses(w, g, a);
    TSRI_TRY(tsr_group_create(w, 2, turned, &other));
    tsr_status status = TSR_OK;
    if (!a->late)
        TSRI_TRY(tsr_send_at(g, x, 3, TSR_F64, 1, 9, NULL, AT(61)));
    if (a->kept)
        TSRI_TRY(tsr_send(g, x, 4, TSR_F64, 1, 8));
    if (a->then == SENDS) {
        await_count(&a->refused, 1);
        status = tsr_send(g, x, 3, TSR_F32, 1, 9);
    } else if (a->then == WAITS) {
        status = tsr_recv(g, x, 3, TSR_F32, 1, 9);
    } else {
        int got = 0;
        while (got < 66 && (status = tsr_recv(other, x, 1, TSR_F64, 1, 1)) == TSR_OK)
            got++;
        CHECK(got == 64 || got == 65);
    }
    if (a->late)
        NAMES(status, TSR_ERR_TIMEOUT, "recv #1 from rank 0, tag 9", "user.c:62");
    else
        NAMES(status, TSR_ERR_MISMATCH, "rank 0 is at send #1 to rank 1, tag 9 (user.c:61)",
              "from rank 0 (user.c:62)");
    CHECK(now_s() - begin < 30);
    return TSR_OK;
}

static tsr_status no_message(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    _Atomic int *told = arg;
    int x;
    if (w->rank == 1) {
        w->timeout_s = 0.4;
        tsr_status status = tsr_recv_at(g, &x, 1, TSR_I32, 0, 3, NULL, AT(80));
        atomic_store(told, 1);
        NAMES(status, TSR_ERR_TIMEOUT, "recv #1 from rank 0, tag 3", "user.c:80", "0.4 s");
        return is_over(g, TSR_ERR_TIMEOUT);
    }
    await_count(told, 1);
    return TSR_OK;
}

/* Messages come all the time, but not the one. */
static tsr_status other_messages(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    double begin = now_s();
    int x = 0;
    (void)arg;
    if (w->rank == 1) {
        w->timeout_s = 0.2;
        tsr_status status = tsr_recv_at(g, &x, 1, TSR_I32, 0, 5, NULL, AT(81));
        NAMES(status, TSR_ERR_TIMEOUT, "recv #1 from rank 0, tag 5", "user.c:81", "0.2 s");
        return TSR_OK;
    }
    tsr_status status = TSR_OK;
    for (; status == TSR_OK && now_s() - begin < 3; nap(0.002))
        status = tsr_send(g, &x, 1, TSR_I32, 1, 6);
    if (status == TSR_OK)
        status = tsr_send(g, &x, 1, TSR_I32, 1, 5);
    NAMES(status, TSR_ERR_TIMEOUT, "recv #1 from rank 0, tag 5", "user.c:81");
    return TSR_OK;
}

static void test_wrong_message(void **state)
{
    (void)state;
    run(2, 60, wrong_message, NULL);
}

static void test_refused_message(void **state)
{
    (void)state;
    for (int then = SENDS; then <= SENT_AHEAD; then++)
        for (int how = 0; how < (then == SENT_AHEAD ? 2 : 3); how++) {
            after a = {.then = then, .kept = how == 1, .late = how == 2};
            run(2, 60, refused_message, &a);
        }
}

static void test_no_message(void **state)
{
    (void)state;
    _Atomic int told = 0;
    run(2, 60, no_message, &told);
    run(2, 60, other_messages, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_message),
        cmocka_unit_test(test_refused_message),
        cmocka_unit_test(test_no_message),
    };
    return cmocka_run_group_tests_name("message_faults", tests, NULL, NULL);
}
