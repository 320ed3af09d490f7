/* SPDX-License-Identifier: Apache-2.0 */
/* The local communicator on device memory: what ranks are told when one of them goes another way,
 * is late, fails or leaves. What the one on the host tells (tests/dist), and what devices add. */
#include "tests/cuda/local_device.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void each_setup(int n, ld_body *body, void *arg)
{
    for (const ld_setup *s = ld_setups(); s->name; s++)
        ld_spawn_ok(s, n, body, arg);
}

static tsr_status device_group(ld_rank *r, int lane, tsri_group **out)
{
    tsri_group *host;
    return ld_groups(r, lane, &host, out);
}

/* One call on n elements at a fixed place, and the half that its error came from: 1, 2, 3. */
static tsr_status call(ld_rank *r, tsri_coll c, tsri_segment s, int lane, int *out_half)
{
    tsri_group *g;
    tsri_ticket t;
    TSRI_TRY(device_group(r, lane, &g));
    c.nseg = 1;
    c.seg = &s;
    c.stream = r->stream[0];
    *out_half = 1;
    TSRI_TRY(r->c->ops->start(g, &c, &t));
    *out_half = 2;
    TSRI_TRY(r->c->ops->finish(g, &t));
    *out_half = 3;
    TSRI_TRY(r->c->ops->release(g, &t));
    *out_half = 0;
    return TSR_OK;
}

static tsr_status reduce(ld_rank *r, tsri_coll c, int64_t n, tsr_dtype dtype)
{
    int half;
    const tsri_segment s = {.src = r->block,
                            .dst = r->block + 65536,
                            .dtype = dtype,
                            .shape = TSR_DIMS(n),
                            .src_axis = -1,
                            .dst_axis = -1};
    return call(r, c, s, 0, &half);
}

static const tsri_coll loss = {.kind = TSRI_COLL_ALL_REDUCE, .what = "loss", .loc = {"a/m.c", 31}};

/* --- disagreement ----------------------------------------------------------------------------- */

static tsr_status mismatch_body(ld_rank *r)
{
    bool odd = r->w->rank == 1;
    tsri_coll other = {.kind = TSRI_COLL_BROADCAST, .what = "weights", .loc = {"b/train.c", 7}};
    TSRI_TRY(reduce(r, loss, 100, TSR_F32));
    CHECK(reduce(r, odd ? other : loss, 100, TSR_F32) == TSR_ERR_MISMATCH);
    CHECK_TEXT("all_reduce #2 'loss' (m.c:31)");
    CHECK_TEXT("broadcast #2 'weights' (train.c:7)");
    CHECK(reduce(r, loss, 100, odd ? TSR_I32 : TSR_F32) == TSR_ERR_MISMATCH);
    CHECK_TEXT("i32 [100]");
    other = loss;
    other.algo = TSRI_ALGO_TWO_PHASE;
    CHECK(reduce(r, odd ? other : loss, 100, TSR_F32) == TSR_ERR_MISMATCH);
    CHECK_TEXT("two-phase");
    /* No data moved, and the group can go on. */
    return reduce(r, loss, 100, TSR_F32);
}

/* 0 gives to 1, 1 to 2, 3 does nothing; rank 1 gives nothing, or reads beyond the end, or asks for
 * something else. */
static tsr_status send_body(ld_rank *r)
{
    enum { N = 32 };
    const int from = r->w->rank - 1;
    for (int how = 0; how < 3; how++) {
        tsri_pull p = {
            .ndim = 1, .length = {N}, .src_step = {1}, .dst_step = {1}, .nsrc = 1, .src = &from};
        tsri_segment s = {.src = r->w->rank < 2 ? r->block : NULL,
                          .dst = r->block + 4096,
                          .dtype = TSR_F32,
                          .shape = TSR_DIMS(N),
                          .npulls = r->w->rank == 1 || r->w->rank == 2,
                          .pulls = &p,
                          .dst_count = N};
        const tsri_coll c = {.kind = TSRI_COLL_SEND_RECV, .what = "stage"};
        int half;
        TSRI_TRY(call(r, c, s, how, &half));
        if (r->w->rank == 1 && how == 0)
            s.src = NULL;
        if (r->w->rank == 1 && how == 1)
            p.src_at = (int64_t)1 << 40;
        if (r->w->rank == 1 && how == 2)
            s.shape = TSR_DIMS(N + 1);
        CHECK(call(r, c, s, how, &half) == TSR_ERR_MISMATCH);
        CHECK_TEXT(how == 0   ? "rank 2 reads from rank 1, which gives nothing"
                   : how == 1 ? "rank 1 reads from rank 0, beyond the end of its arena"
                              : "f32 [33]");
        CHECK(call(r, c, s, how, &half) == TSR_ERR_MISMATCH && half == 1);
    }
    return TSR_OK;
}

static tsr_status invalid_body(ld_rank *r)
{
    tsri_group *g;
    tsri_ticket t;
    TSRI_TRY(device_group(r, 0, &g));
    tsri_segment s = {.src = r->host,
                      .dst = r->block,
                      .dtype = TSR_F32,
                      .shape = TSR_DIMS(100),
                      .src_axis = -1,
                      .dst_axis = -1};
    tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE, .nseg = 1, .seg = &s, .stream = r->stream[0]};
    CHECK(r->c->ops->start(g, &c, &t) == TSR_ERR_INVALID);
    CHECK_TEXT("src");
    CHECK_TEXT("outside");
    s.src = r->block;
    s.dst = r->block + 16;
    CHECK(r->c->ops->start(g, &c, &t) == TSR_ERR_INVALID);
    CHECK_TEXT("overlap");
    /* A refused start leaves no trace. */
    return reduce(r, loss, 100, TSR_F32);
}

static void test_disagreement(void **state)
{
    (void)state;
    each_setup(2, mismatch_body, NULL);
    each_setup(3, mismatch_body, NULL);
    each_setup(4, send_body, NULL);
    each_setup(2, invalid_body, NULL);
}

/* --- late, gone, failed ----------------------------------------------------------------------- */

/* Rank 2 stays away until the others have given up, however slowly they run here. */
static tsr_status late_body(ld_rank *r)
{
    atomic_int *given_up = r->arg;
    TSRI_TRY(reduce(r, loss, 10, TSR_F32));
    r->w->timeout_s = 0.3;
    if (r->w->rank == 2) {
        for (int ms = 0; ms < 60000 && atomic_load(given_up) < 2; ms++)
            usleep(1000);
        atomic_store(given_up, 0);
        return TSR_OK;
    }
    CHECK(reduce(r, loss, 10, TSR_F32) == TSR_ERR_TIMEOUT);
    CHECK_TEXT("rank 2 did not come to all_reduce #2 'loss' (m.c:31) within 0.3 s");
    CHECK_TEXT("its last call in this group is all_reduce #1 'loss' (m.c:31)");
    atomic_fetch_add(given_up, 1);
    return TSR_OK;
}

/* Rank 1 leaves between calls (0), or in one that it gives to, started and never finished (1). Who
 * waits for it, here or on the host, is told at once, though it lingers for the others. */
static tsr_status leaves_body(ld_rank *r)
{
    int how = *(int *)r->arg, half;
    const int from = 1;
    const tsri_pull p = {
        .ndim = 1, .length = {16}, .src_step = {1}, .dst_step = {1}, .nsrc = 1, .src = &from};
    const tsri_segment s = {.src = r->w->rank == 1 ? r->block : NULL,
                            .dst = r->block + 64,
                            .dtype = TSR_F32,
                            .shape = TSR_DIMS(16),
                            .npulls = r->w->rank == 2,
                            .pulls = &p,
                            .dst_count = 16};
    tsri_coll c = {.kind = TSRI_COLL_SEND_RECV, .what = "stage", .stream = r->stream[0]};
    TSRI_TRY(reduce(r, loss, 10, TSR_F32));
    if (r->w->rank == 1) {
        tsri_group *g;
        tsri_ticket t;
        TSRI_TRY(device_group(r, 1, &g));
        c.nseg = 1;
        c.seg = &s;
        if (how == 1)
            TSRI_TRY(r->c->ops->start(g, &c, &t));
        return TSR_OK;
    }
    usleep(100000);
    if (how == 1) {
        tsr_status status = call(r, c, s, 1, &half);
        /* A giver is done when it has started. */
        CHECK(status == TSR_OK);
    }
    CHECK(reduce(r, loss, 10, TSR_F32) == TSR_ERR_DEAD);
    CHECK_TEXT("rank 1 has left");
    CHECK_TEXT("all_reduce #2 'loss'");
    CHECK(tsr_world_barrier(r->w) == TSR_ERR_DEAD);
    CHECK_TEXT("rank 1 has left");
    return TSR_OK;
}

static tsr_status fails_body(ld_rank *r)
{
    TSRI_TRY(reduce(r, loss, 10, TSR_F32));
    if (r->w->rank == 2) {
        r->c->ops->abort(r->c, "can't read 'data.bin'");
        return TSR_OK;
    }
    CHECK(reduce(r, loss, 10, TSR_F32) == TSR_ERR_REMOTE);
    CHECK_TEXT("rank 2 failed: can't read 'data.bin'");
    return TSR_OK;
}

static void test_gone(void **state)
{
    (void)state;
    int how[] = {0, 1};
    atomic_int given_up = 0;
    each_setup(3, late_body, &given_up);
    each_setup(3, leaves_body, &how[0]);
    each_setup(3, leaves_body, &how[1]);
    each_setup(4, fails_body, NULL);
}

/* A device that fails is one rank's; all others hear of it, wherever they wait. */
static tsr_status broken_body(ld_rank *r)
{
    for (int i = 0; i < 3; i++)
        TSRI_TRY(reduce(r, loss, 10, TSR_F32));
    if (r->w->rank == 1)
        deferred_fail(r->d, 2);
    tsr_status status = TSR_OK;
    tsri_coll c = loss;
    c.algo = *(tsri_coll_algo *)r->arg;
    for (int i = 0; i < 3 && status == TSR_OK; i++)
        status = reduce(r, c, 10, TSR_F32);
    CHECK(status == (r->w->rank == 1 ? TSR_ERR_BACKEND : TSR_ERR_REMOTE));
    CHECK_TEXT("fallen off the bus");
    CHECK(r->w->rank == 1 || strstr(tsr_last_error(), "rank 1 failed"));
    return TSR_OK;
}

static void test_broken(void **state)
{
    (void)state;
    tsri_coll_algo algo[] = {TSRI_ALGO_ONE_SHOT, TSRI_ALGO_TWO_PHASE};
    if (!ld_setups()->deferred)
        skip();
    each_setup(3, broken_body, &algo[0]);
    each_setup(3, broken_body, &algo[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_disagreement),
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_broken),
    };
    return cmocka_run_group_tests_name("local_device_faults", tests, NULL, NULL);
}
