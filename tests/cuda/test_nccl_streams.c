/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the communicator over NCCL between which the host does not wait: from several streams,
 * in both lanes, with memory that goes from one call to the next. They gather or reduce columns,
 * which are packed in staging memory. */
#include "tests/cuda/nccl_ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { RANKS = 2, ROWS = 40, COLS = 6, ALL = ROWS * COLS * RANKS, MINE = ROWS * COLS, ROUNDS = 12 };

typedef struct gather {
    tsri_group *group;
    tsri_segment seg;
    tsri_coll coll;
    void *kept; /* the results of all rounds */
} gather;

static float value_of(int what, int rank, int round, int i)
{
    return (float)(what * 1000000 + round * 10000 + rank * 5000 + i);
}

static tsr_status gather_make(nr_rank *r, tsri_group *group, tsri_stream *stream, const char *name,
                              gather *out)
{
    float zero[ALL * ROUNDS] = {0};
    void *src, *dst;
    *out = (gather){.group = group};
    TSRI_TRY(nr_put(r, zero, MINE * sizeof *zero, &src));
    TSRI_TRY(nr_put(r, zero, ALL * sizeof *zero, &dst));
    TSRI_TRY(nr_put(r, zero, sizeof zero, &out->kept));
    out->seg = (tsri_segment){.src = src,
                              .dst = dst,
                              .dtype = TSR_F32,
                              .shape = TSR_DIMS(ROWS, COLS * RANKS),
                              .src_axis = 1,
                              .dst_axis = -1};
    out->coll = (tsri_coll){
        .kind = TSRI_COLL_ALL_GATHER, .nseg = 1, .seg = &out->seg, .stream = stream, .what = name};
    return TSR_OK;
}

/* The operand of a round, in the call's stream. */
static tsr_status gather_fill(nr_rank *r, gather *g, int what, int round)
{
    float mine[MINE];
    for (int i = 0; i < MINE; i++)
        mine[i] = value_of(what, g->group->index, round, i);
    return r->device->ops->copy_in(r->device, (void *)(uintptr_t)g->seg.src, mine, sizeof mine,
                                   g->coll.stream);
}

/* Keeps the result of a round, in the call's stream; dst is the next round's then. */
static tsr_status gather_keep(nr_rank *r, gather *g, int round)
{
    const void *src = g->seg.dst;
    const tsri_move move = {.src = &src,
                            .dst = (char *)g->kept + sizeof(float) * ALL * (size_t)round,
                            .nsrc = 1,
                            .dtype = TSR_F32,
                            .ndim = 1,
                            .length = {ALL},
                            .src_step = {1},
                            .dst_step = {1}};
    return r->device->ops->move(r->device, &move, g->coll.stream);
}

static tsr_status gather_check(nr_rank *r, gather *g, int what, int rounds)
{
    static _Thread_local float got[ALL * ROUNDS];
    TSRI_TRY(r->device->ops->stream_sync(r->device, g->coll.stream));
    TSRI_TRY(nr_get(r, g->kept, sizeof got, got));
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < ALL; i++) {
            int row = i / (COLS * RANKS), col = i % (COLS * RANKS);
            float want = value_of(what, col / COLS, round, row * COLS + col % COLS);
            if (got[round * ALL + i] != want)
                return tsri_fail(TSR_ERR_INTERNAL, "%s, round %d, element %d: %g, expected %g",
                                 g->coll.what, round, i, (double)got[round * ALL + i],
                                 (double)want);
        }
    return TSR_OK;
}

static void gather_free(nr_rank *r, gather *g)
{
    const tsri_device_ops *ops = r->device->ops;
    ops->buffer_free(r->device, g->kept, sizeof(float) * ALL * ROUNDS);
    ops->buffer_free(r->device, g->seg.dst, sizeof(float) * ALL);
    ops->buffer_free(r->device, (void *)(uintptr_t)g->seg.src, sizeof(float) * MINE);
}

static tsr_status both_lanes(nr_rank *r, tsri_stream *stream, gather out[2])
{
    static const int ranks[] = {0, 1};
    static const char *const names[] = {"lane 0", "lane 1"};
    tsri_group *host, *group;
    for (int lane = 0; lane < 2; lane++) {
        TSRI_TRY(nr_groups(r, RANKS, ranks, lane, &group, &host));
        TSRI_TRY(gather_make(r, group, stream, names[lane], &out[lane]));
    }
    return TSR_OK;
}

/* --- rounds without a wait -------------------------------------------------------------------- */
typedef struct variant {
    bool prepared, other_stream;
} variant;

static tsr_status rounds_body(tsr_world *w, void *arg)
{
    const variant *v = arg;
    nr_rank r;
    gather g[2];
    tsri_ticket t[2];
    TSRI_TRY(nr_open(w, 0, &r));
    const tsri_comm_ops *ops = r.comm->ops;
    tsri_stream *stream = r.device->stream;
    if (v->other_stream)
        TSRI_TRY(r.device->ops->stream_create(r.device, &stream));
    TSRI_TRY(both_lanes(&r, stream, g));
    TSRI_TRY(r.device->ops->stream_sync(r.device,
                                        r.device->stream)); /* buffers are there for `stream` */
    for (int lane = 0; lane < 2 && v->prepared; lane++) {
        size_t before = r.device->region->top;
        TSRI_TRY(ops->prepare(g[lane].group, &g[lane].coll));
        CHECK(r.device->region->top < before); /* staging memory of its own */
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int lane = 0; lane < 2; lane++) {
            TSRI_TRY(gather_fill(&r, &g[lane], lane, round));
            TSRI_TRY(ops->start(g[lane].group, &g[lane].coll, &t[lane]));
        }
        for (int lane = 0; lane < 2; lane++) {
            TSRI_TRY(ops->finish(g[lane].group, &t[lane]));
            TSRI_TRY(ops->release(g[lane].group, &t[lane]));
            TSRI_TRY(gather_keep(&r, &g[lane], round));
        }
    }
    for (int lane = 0; lane < 2; lane++)
        TSRI_TRY(gather_check(&r, &g[lane], lane, ROUNDS));
    for (int lane = 1; lane >= 0 && v->prepared; lane--)
        ops->unprepare(g[lane].group, &g[lane].coll);
    for (int lane = 1; lane >= 0; lane--)
        gather_free(&r, &g[lane]);
    if (v->other_stream)
        r.device->ops->stream_destroy(r.device, stream);
    nr_close(&r);
    return TSR_OK;
}

static void test_rounds(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        nr_spawn(RANKS, rounds_body, &(variant){i & 1, i & 2}, 0);
}

/* --- memory that has another owner ------------------------------------------------------------ */
/* What takes over a call's staging memory, and writes to it in the stream of compute, keeps its
 * values. */
static tsr_status take_over(nr_rank *r, size_t bytes, void **out)
{
    tsri_device *d = r->device;
    char *data = malloc(bytes);
    CHECK(data);
    memset(data, 0x77, bytes);
    tsr_status status = d->ops->buffer_alloc(d, bytes, out);
    if (status == TSR_OK)
        status = d->ops->copy_in(d, *out, data, bytes, d->stream);
    free(data);
    return status == TSR_OK ? d->ops->stream_sync(d, d->stream) : status;
}

static tsr_status check_owned(nr_rank *r, void *p, size_t bytes)
{
    char *data = malloc(bytes);
    CHECK(data);
    tsr_status status = nr_get(r, p, bytes, data);
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; i++)
        wrong += data[i] != 0x77;
    free(data);
    r->device->ops->buffer_free(r->device, p, bytes);
    TSRI_TRY(status);
    return wrong ? tsri_fail(TSR_ERR_INTERNAL, "%zu of %zu bytes were written by another", wrong,
                             bytes)
                 : TSR_OK;
}

enum { PLENTY = 8 * ALL * sizeof(float) };

/* A call in a stream of its own has been released, and not run yet. */
static tsr_status released_body(tsr_world *w, void *arg)
{
    nr_rank r;
    gather g;
    tsri_stream *stream;
    void *taken;
    (void)arg;
    TSRI_TRY(nr_open(w, 0, &r));
    TSRI_TRY(r.device->ops->stream_create(r.device, &stream));
    TSRI_TRY(gather_make(&r, r.group, stream, "released", &g));
    TSRI_TRY(r.device->ops->stream_sync(r.device, r.device->stream));
    TSRI_TRY(gather_fill(&r, &g, 3, 0));
    TSRI_TRY(nr_call(r.group, &g.coll));
    TSRI_TRY(take_over(&r, PLENTY, &taken));
    TSRI_TRY(gather_keep(&r, &g, 0));
    TSRI_TRY(gather_check(&r, &g, 3, 1));
    TSRI_TRY(check_owned(&r, taken, PLENTY));
    gather_free(&r, &g);
    r.device->ops->stream_destroy(r.device, stream);
    nr_close(&r);
    return TSR_OK;
}

/* One of two prepared calls goes, which had their staging memory together. */
static tsr_status shared_body(tsr_world *w, void *arg)
{
    nr_rank r;
    gather a, b;
    void *taken;
    (void)arg;
    TSRI_TRY(nr_open(w, 0, &r));
    TSRI_TRY(gather_make(&r, r.group, r.device->stream, "first", &a));
    TSRI_TRY(gather_make(&r, r.group, r.device->stream, "second", &b));
    TSRI_TRY(r.comm->ops->prepare(r.group, &a.coll));
    size_t before = r.device->region->top;
    TSRI_TRY(r.comm->ops->prepare(r.group, &b.coll));
    CHECK(r.device->region->top == before);
    r.comm->ops->unprepare(r.group, &a.coll);
    TSRI_TRY(take_over(&r, PLENTY, &taken));
    TSRI_TRY(gather_fill(&r, &b, 4, 0));
    TSRI_TRY(nr_call(r.group, &b.coll));
    TSRI_TRY(gather_keep(&r, &b, 0));
    TSRI_TRY(gather_check(&r, &b, 4, 1));
    TSRI_TRY(check_owned(&r, taken, PLENTY));
    r.comm->ops->unprepare(r.group, &b.coll);
    gather_free(&r, &b);
    gather_free(&r, &a);
    nr_close(&r);
    return TSR_OK;
}

static tsr_status refuse(void *arg)
{
    int *left = arg;
    return --*left > 0 ? TSR_OK : tsri_fail(TSR_ERR_STATE, "no more patience");
}

/* Memory that is cleared in the stream of compute when a call in another stream takes it: rank 0's
 * operand is packed into it, and the call waits for rank 1, when the stream of compute goes on. */
static tsr_status cleared_body(tsr_world *w, void *arg)
{
    float mine[ALL], got[MINE];
    nr_rank r;
    tsri_stream *stream;
    tsri_ticket t;
    void *src, *dst;
    (void)arg;
    TSRI_TRY(nr_open(w, 0, &r));
    tsri_device *d = r.device;
    for (int i = 0; i < ALL; i++)
        mine[i] = (float)(w->rank + 1);
    TSRI_TRY(d->ops->stream_create(d, &stream));
    TSRI_TRY(nr_put(&r, mine, sizeof mine, &src));
    TSRI_TRY(nr_put(&r, mine, sizeof got, &dst));
    TSRI_TRY(d->ops->stream_sync(d, d->stream));
    tsri_segment seg = {.src = src,
                        .dst = dst,
                        .dtype = TSR_F32,
                        .shape = TSR_DIMS(ROWS, COLS * RANKS),
                        .src_axis = -1,
                        .dst_axis = 1};
    tsri_coll coll = {.kind = TSRI_COLL_REDUCE_SCATTER,
                      .nseg = 1,
                      .seg = &seg,
                      .stream = stream,
                      .what = "cleared"};
    TSRI_TRY(r.comm->ops->prepare(r.group, &coll));
    if (w->rank == 0) {
        int patience = 4;
        tsri_poll poll = {.fn = refuse, .arg = &patience};
        TSRI_TRY(r.comm->ops->start(r.group, &coll, &t));
        TSRI_TRY(r.comm->ops->finish(r.group, &t));
        tsri_device_poll_add(d, &poll);
        CHECK(d->ops->stream_sync(d, stream) == TSR_ERR_STATE);
        tsri_device_poll_remove(d, &poll);
        TSRI_TRY(d->ops->stream_sync(d, d->stream));
    }
    TSRI_TRY(tsr_world_barrier(w));
    if (w->rank != 0) {
        TSRI_TRY(r.comm->ops->start(r.group, &coll, &t));
        TSRI_TRY(r.comm->ops->finish(r.group, &t));
    }
    TSRI_TRY(r.comm->ops->release(r.group, &t));
    TSRI_TRY(d->ops->stream_sync(d, stream));
    TSRI_TRY(nr_get(&r, dst, sizeof got, got));
    for (int i = 0; i < MINE; i++)
        CHECK(got[i] == 3);
    r.comm->ops->unprepare(r.group, &coll);
    d->ops->buffer_free(d, dst, sizeof got);
    d->ops->buffer_free(d, src, sizeof mine);
    d->ops->stream_destroy(d, stream);
    nr_close(&r);
    return TSR_OK;
}

static void test_owners(void **state)
{
    (void)state;
    nr_spawn(RANKS, cleared_body, NULL, 0);
    nr_spawn(RANKS, released_body, NULL, 0);
    nr_spawn(RANKS, shared_body, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_owners),
    };
    int skipped = nr_skip();
    return skipped ? skipped : cmocka_run_group_tests_name("nccl_streams", tests, NULL, NULL);
}
