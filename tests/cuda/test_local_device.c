/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The local communicator on device memory, against the one on the host: values, bytes and order. On
 * the deferred device, where only what events order comes in order; with TESSERA_CUDA_MODULE on
 * what that finds (the emulator, or a GPU).
 */
#include "tests/cuda/local_device.h"

#include "tests/dist/comm/send_recv_values.h"
#include "tests/dist/comm/recorder.h"

#include <stdlib.h>
#include <string.h>

static void each_setup(int least, int most, ld_body *body, void *arg)
{
    for (const ld_setup *s = ld_setups(); s->name; s++)
        for (int n = least; n <= most; n++)
            ld_spawn_ok(s, n, body, arg);
}

/* --- every kind ------------------------------------------------------------------------------- */

typedef struct pair {
    ld_rank *r;
    tsri_group *host, *device;
} pair;

static tsr_status every_dtype(const pair *p, tsri_coll c, tsr_dims shape, int src_axis,
                              int dst_axis)
{
    tsri_segment seg[TSR_DTYPE_COUNT_];
    c.nseg = 0;
    for (int t = TSR_F32; t < TSR_DTYPE_COUNT_; t++)
        seg[c.nseg++] = (tsri_segment){
            .dtype = (tsr_dtype)t, .shape = shape, .src_axis = src_axis, .dst_axis = dst_axis};
    c.what = "every_dtype";
    return ld_both(p->r, p->host, p->device, c, seg, NULL);
}

static tsr_status every_kind(const pair *p, tsr_dims d)
{
    int n = p->host->nranks;
    for (int op = TSR_REDUCE_SUM; op <= TSR_REDUCE_MIN; op++) {
        tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE, .op = (tsr_reduce_op)op};
        TSRI_TRY(every_dtype(p, c, d, -1, -1));
        c.algo = TSRI_ALGO_TWO_PHASE;
        TSRI_TRY(every_dtype(p, c, d, -1, -1));
        c = (tsri_coll){.kind = TSRI_COLL_REDUCE, .op = (tsr_reduce_op)op, .root = n - 1};
        TSRI_TRY(every_dtype(p, c, d, -1, -1));
        c = (tsri_coll){.kind = TSRI_COLL_REDUCE_SCATTER, .op = (tsr_reduce_op)op};
        for (int a = 0; a < d.ndim; a++)
            TSRI_TRY(every_dtype(p, c, d, -1, a));
    }
    tsri_coll c = {.kind = TSRI_COLL_BROADCAST, .root = n / 2};
    TSRI_TRY(every_dtype(p, c, d, -1, -1));
    c = (tsri_coll){.kind = TSRI_COLL_BARRIER, .what = "barrier"};
    TSRI_TRY(ld_both(p->r, p->host, p->device, c, NULL, NULL));
    for (int a = 0; a < d.ndim; a++) {
        c = (tsri_coll){.kind = TSRI_COLL_ALL_GATHER};
        TSRI_TRY(every_dtype(p, c, d, a, -1));
        c.kind = TSRI_COLL_ALL_TO_ALL;
        for (int to = 0; to < d.ndim; to++)
            TSRI_TRY(every_dtype(p, c, d, a, to));
    }
    return TSR_OK;
}

static tsr_status values_body(ld_rank *r)
{
    const tsr_dims shapes[] = {TSR_SCALAR,         TSR_DIMS(0),       TSR_DIMS(13),
                               TSR_DIMS(3, 0, 4),  TSR_DIMS(2, 9, 5), TSR_DIMS(3, 5, 4, 2),
                               TSR_DIMS(7, 30, 11)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        pair p = {.r = r};
        TSRI_TRY(ld_groups(r, (int)i & 1, &p.host, &p.device));
        TSRI_TRY(every_kind(&p, shapes[i]));
    }
    return TSR_OK;
}

static void test_values(void **state)
{
    (void)state;
    each_setup(1, 5, values_body, NULL);
}

/* More segments than a record holds take several; all-reduces of both algorithms. */
static tsr_status segments_body(ld_rank *r)
{
    enum { MOST = 1100 };
    tsri_group *host, *device;
    tsri_ticket t;
    TSRI_TRY(ld_groups(r, 1, &host, &device));
    tsri_segment *seg = calloc(MOST, sizeof *seg);
    CHECK(seg);
    float *src = (float *)(void *)r->block, *dst = src + 8 * MOST, got[15];
    tsr_status status = TSR_OK;
    for (int algo = 0; algo < 2 && status == TSR_OK; algo++) {
        tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE,
                       .algo = (tsri_coll_algo)algo,
                       .nseg = MOST,
                       .seg = seg,
                       .stream = r->stream[0],
                       .what = "many"};
        for (int i = 0; i < MOST && status == TSR_OK; i++) {
            float ones[3] = {(float)i, (float)r->w->rank, 1};
            seg[i] = (tsri_segment){.src = src + 8 * i,
                                    .dst = dst + 8 * i,
                                    .dtype = TSR_F32,
                                    .shape = TSR_DIMS(3),
                                    .src_axis = -1,
                                    .dst_axis = -1};
            status = r->d->ops->copy_in(r->d, src + 8 * i, ones, sizeof ones, c.stream);
        }
        if (status == TSR_OK)
            status = device->comm->ops->start(device, &c, &t);
        if (status == TSR_OK)
            status = device->comm->ops->finish(device, &t);
        if (status == TSR_OK)
            status = device->comm->ops->release(device, &t);
        int n = r->w->nranks;
        for (int i = 0; i < MOST && status == TSR_OK; i += 99) {
            status = r->d->ops->copy_out(r->d, got, dst + 8 * i, 3 * sizeof *got, c.stream);
            if (status == TSR_OK && (got[0] != (float)(i * n) || got[2] != (float)n ||
                                     got[1] != (float)(n * (n - 1) / 2)))
                status = tsri_fail(TSR_ERR_INTERNAL, "algo %d, segment %d", algo, i);
        }
    }
    free(seg);
    return status;
}

static void test_many_segments(void **state)
{
    (void)state;
    each_setup(3, 3, segments_body, NULL);
}

/* --- SEND_RECV -------------------------------------------------------------------------------- */

enum { SEGMENTS = 2 * (TSR_DTYPE_COUNT_ - 1), PULLS = 6 };

typedef struct random_call {
    tsri_segment seg[SEGMENTS];
    tsri_pull pull[SEGMENTS][PULLS];
    int src[SEGMENTS][PULLS][64];
    bool gives[SEGMENTS];
} random_call;

static void draw(ld_rank *r, int n, int index, random_call *call)
{
    for (int i = 0; i < SEGMENTS; i++) {
        bool gives[64];
        int must = sr_below(&r->common, n);
        for (int m = 0; m < n; m++)
            gives[m] = m == must || sr_below(&r->common, 3) > 0;
        tsri_segment *s = &call->seg[i];
        *s = (tsri_segment){.dtype = (tsr_dtype)(1 + i / 2), .shape = TSR_DIMS(i + 1, WHOLE)};
        call->gives[i] = gives[index];
        if (sr_below(&r->random, 4) == 0)
            continue; /* gets nothing */
        s->npulls = sr_below(&r->random, PULLS + 1);
        s->pulls = call->pull[i];
        s->fill = sr_below(&r->random, 2);
        s->dst_count = WHOLE;
        for (int k = 0; k < s->npulls; k++)
            call->pull[i][k] = sr_random_pull(&r->random, n, gives, call->src[i][k]);
    }
}

static tsr_status random_body(ld_rank *r)
{
    tsri_group *host, *device;
    random_call *call = malloc(sizeof *call);
    CHECK(call);
    tsr_status status = ld_groups(r, 0, &host, &device);
    for (int i = 0; i < 30 && status == TSR_OK; i++) {
        tsri_coll c = {.kind = TSRI_COLL_SEND_RECV,
                       .op = (tsr_reduce_op)(i % 3),
                       .nseg = SEGMENTS,
                       .what = "random"};
        draw(r, device->nranks, device->index, call);
        status = ld_both(r, host, device, c, call->seg, call->gives);
    }
    free(call);
    return status;
}

static void test_send_recv(void **state)
{
    (void)state;
    each_setup(1, 5, random_body, NULL);
}

/* --- order ------------------------------------------------------------------------------------ */

/* Calls of one group on several streams, all started before the first is finished, released at the
 * very end, when their places in the rings have been taken again; two lanes at once. */
enum { CALLS = 200, AHEAD = 30, WORDS = 24 };

typedef struct ahead {
    tsri_segment seg[CALLS];
    tsri_coll coll[CALLS];
    tsri_ticket ticket[CALLS];
    tsri_pull pull[CALLS];
    int from[CALLS];
} ahead;

static int32_t word(int rank, int call, int k)
{
    return rank * 100000 + call * 100 + k;
}

static int32_t *given(const ld_rank *r, int i)
{
    return (int32_t *)(void *)r->block + i * 2 * WORDS;
}

static void make_ahead(ld_rank *r, ahead *a, int i)
{
    int32_t *src = given(r, i);
    int n = r->w->nranks;
    /* A ring of sends; every third call an all-reduce. */
    a->from[i] = (r->w->rank + 1) % n;
    a->pull[i] = (tsri_pull){.ndim = 1,
                             .length = {WORDS},
                             .src_step = {1},
                             .dst_step = {1},
                             .nsrc = 1,
                             .src = &a->from[i]};
    a->seg[i] = (tsri_segment){.src = src,
                               .dst = src + WORDS,
                               .dtype = TSR_I32,
                               .shape = TSR_DIMS(WORDS),
                               .src_axis = -1,
                               .dst_axis = -1,
                               .npulls = 1,
                               .pulls = &a->pull[i],
                               .dst_count = WORDS};
    a->coll[i] = (tsri_coll){.kind = i % 3 ? TSRI_COLL_SEND_RECV : TSRI_COLL_ALL_REDUCE,
                             .algo = i % 2 ? TSRI_ALGO_TWO_PHASE : TSRI_ALGO_ONE_SHOT,
                             .nseg = 1,
                             .seg = &a->seg[i],
                             .stream = r->stream[sr_below(&r->random, LD_STREAMS)],
                             .what = "ahead"};
}

static tsr_status start_ahead(ld_rank *r, tsri_group *g, ahead *a, int i)
{
    int32_t values[WORDS];
    for (int k = 0; k < WORDS; k++)
        values[k] = word(r->w->rank, i, k);
    TSRI_TRY(r->d->ops->copy_in(r->d, given(r, i), values, sizeof values, a->coll[i].stream));
    return g->comm->ops->start(g, &a->coll[i], &a->ticket[i]);
}

/* Behind the release src is overwritten, and dst kept apart. */
static tsr_status release_ahead(ld_rank *r, tsri_group *g, ahead *a, int i)
{
    const tsri_coll *c = &a->coll[i];
    const int32_t none[WORDS] = {0};
    int32_t *src = given(r, i);
    TSRI_TRY(g->comm->ops->release(g, &a->ticket[i]));
    TSRI_TRY(r->d->ops->copy_in(r->d, src, none, sizeof none, c->stream));
    if (c->kind != TSRI_COLL_ALL_REDUCE || c->algo != TSRI_ALGO_TWO_PHASE)
        return TSR_OK;
    /* Peers have read dst, too: it may move. */
    const tsri_move away = {.dtype = TSR_I32,
                            .ndim = 1,
                            .length = {WORDS},
                            .src_step = {1},
                            .dst_step = {1},
                            .nsrc = 1,
                            .src = (const void *const[]){src + WORDS},
                            .dst = src};
    TSRI_TRY(r->d->ops->move(r->d, &away, c->stream));
    TSRI_TRY(r->d->ops->copy_in(r->d, src + WORDS, none, sizeof none, c->stream));
    a->seg[i].dst = src;
    return TSR_OK;
}

static tsr_status verify_ahead(ld_rank *r, const ahead *a, int i)
{
    int32_t got[WORDS];
    int n = r->w->nranks;
    TSRI_TRY(r->d->ops->copy_out(r->d, got, a->seg[i].dst, sizeof got, a->coll[i].stream));
    for (int k = 0; k < WORDS; k++) {
        int32_t sum = 0;
        for (int m = 0; m < n; m++)
            sum += word(m, i, k);
        if (got[k] != (a->coll[i].kind == TSRI_COLL_ALL_REDUCE ? sum : word(a->from[i], i, k)))
            return tsri_fail(TSR_ERR_INTERNAL, "rank %d: call %d, word %d is %d", r->w->rank, i, k,
                             (int)got[k]);
    }
    return TSR_OK;
}

static tsr_status all_ahead(ld_rank *r, tsri_group *const *g, ahead *a, bool late)
{
    for (int i = 0; i < CALLS + AHEAD; i++) {
        if (i < CALLS) {
            make_ahead(r, a, i);
            TSRI_TRY(start_ahead(r, g[i & 1], a, i));
        }
        if (i < AHEAD)
            continue;
        TSRI_TRY(g[i & 1]->comm->ops->finish(g[i & 1], &a->ticket[i - AHEAD]));
        if (!late)
            TSRI_TRY(release_ahead(r, g[i & 1], a, i - AHEAD));
    }
    for (int i = 0; late && i < CALLS; i++)
        TSRI_TRY(release_ahead(r, g[i & 1], a, i));
    for (int i = CALLS - 1; i >= 0; i--)
        TSRI_TRY(verify_ahead(r, a, i));
    return TSR_OK;
}

static tsr_status ahead_body(ld_rank *r)
{
    tsri_group *host, *g[2];
    TSRI_TRY(ld_groups(r, 0, &host, &g[0]));
    TSRI_TRY(ld_groups(r, 1, &host, &g[1]));
    ahead *a = malloc(sizeof *a);
    CHECK(a);
    tsr_status status = all_ahead(r, g, a, *(bool *)r->arg);
    free(a);
    return status;
}

static void test_ahead(void **state)
{
    (void)state;
    bool late[] = {false, true};
    each_setup(2, 4, ahead_body, &late[0]);
    each_setup(2, 4, ahead_body, &late[1]);
}

/* Rank 1 reads all of rank 0's calls on one stream, then on another; only then does rank 0 release
 * them, overwrite what it gave, and wait for that. What the second stream has done says nothing of
 * the first. */
static tsr_status giver_body(ld_rank *r)
{
    static const int32_t none[WORDS];
    tsri_group *host, *g;
    TSRI_TRY(ld_groups(r, 0, &host, &g));
    ahead *a = malloc(sizeof *a);
    CHECK(a);
    tsr_status status = TSR_OK;
    for (int i = 0; i < CALLS && status == TSR_OK; i++) {
        make_ahead(r, a, i);
        a->coll[i].kind = TSRI_COLL_SEND_RECV;
        a->coll[i].stream = r->stream[r->w->rank == 1 && i >= 2 * TSRI_CALL_RING];
        a->seg[i].npulls = r->w->rank;
        status = start_ahead(r, g, a, i);
        if (status == TSR_OK)
            status = g->comm->ops->finish(g, &a->ticket[i]);
    }
    for (int i = 0; i < CALLS && status == TSR_OK; i++) {
        status = g->comm->ops->release(g, &a->ticket[i]);
        if (status == TSR_OK && r->w->rank == 0)
            status = r->d->ops->copy_in(r->d, given(r, i), none, sizeof none, a->coll[i].stream);
    }
    if (status == TSR_OK && r->w->rank == 0)
        status = r->d->ops->stream_sync(r->d, r->stream[0]);
    if (status == TSR_OK)
        status = tsr_world_barrier(r->w);
    for (int i = 0; r->w->rank == 1 && i < CALLS && status == TSR_OK; i++)
        status = verify_ahead(r, a, i);
    free(a);
    return status;
}

static void test_giver(void **state)
{
    (void)state;
    each_setup(2, 2, giver_body, NULL);
}

/* What is in a stream after a barrier comes after what was in all others before it. */
static tsr_status barrier_body(ld_rank *r)
{
    tsri_group *host, *g;
    tsri_ticket t;
    TSRI_TRY(ld_groups(r, 0, &host, &g));
    const tsri_coll c = {.kind = TSRI_COLL_BARRIER, .stream = r->stream[1], .what = "b"};
    int32_t one = 1 + r->w->rank, got = 0;
    /* Written here, read by the next rank without any call, then written again. */
    void *const mine = r->block;
    void *peers[TSRI_ARENA_MAX_RANKS];
    TSRI_TRY(r->c->ops->exchange(r->c, &mine, sizeof mine, peers));
    for (int i = 0; i < 100; i++, one += 10) {
        const tsri_move read = {.dtype = TSR_I32,
                                .nsrc = 1,
                                .src = (const void *const *)&peers[(r->w->rank + 1) % r->w->nranks],
                                .dst = r->block + 64 + i * 4};
        TSRI_TRY(r->d->ops->copy_in(r->d, r->block, &one, sizeof one, c.stream));
        for (int half = 0; half < 2; half++) {
            TSRI_TRY(g->comm->ops->start(g, &c, &t));
            TSRI_TRY(g->comm->ops->finish(g, &t));
            if (half == 0)
                TSRI_TRY(r->d->ops->move(r->d, &read, c.stream));
            TSRI_TRY(g->comm->ops->release(g, &t));
        }
    }
    for (int i = 99; i >= 0; i--) {
        TSRI_TRY(r->d->ops->copy_out(r->d, &got, r->block + 64 + i * 4, sizeof got, c.stream));
        CHECK(got == 1 + (r->w->rank + 1) % r->w->nranks + 10 * i);
    }
    return TSR_OK;
}

static void test_barrier(void **state)
{
    (void)state;
    each_setup(2, 4, barrier_body, NULL);
}

/* --- groups ----------------------------------------------------------------------------------- */

static tsr_status subgroups_body(ld_rank *r)
{
    /* Rows in reversed order, columns in order, of a 2 x 2; and each rank alone. */
    const int rows[2][2] = {{1, 0}, {3, 2}}, cols[2][2] = {{0, 2}, {1, 3}};
    const int *lists[] = {rows[r->w->rank / 2], cols[r->w->rank % 2], &r->w->rank};
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 3; i++) {
            pair p = {.r = r};
            tsri_comm *host = r->w->comm;
            TSRI_TRY(host->ops->group(host, i < 2 ? 2 : 1, lists[i], 0, &p.host));
            TSRI_TRY(r->c->ops->group(r->c, i < 2 ? 2 : 1, lists[i], 0, &p.device));
            CHECK(p.device->comm == r->c && p.device != p.host);
            TSRI_TRY(every_kind(&p, TSR_DIMS(5, 3 + round)));
        }
    return TSR_OK;
}

/* A communicator after another, in one world: their groups go on in the same channels. */
static tsr_status again_body(ld_rank *r)
{
    int ranks[] = {0, 1, 2};
    for (int i = 0; i < 4; i++) {
        pair p = {.r = r};
        TSRI_TRY(ld_groups(r, 0, &p.host, &p.device));
        TSRI_TRY(every_kind(&p, TSR_DIMS(4 + i)));
        TSRI_TRY(ld_flush(r));
        r->c->ops->destroy(r->c);
        r->c = NULL;
        TSRI_TRY(tsri_local_create_device(r->w, r->d, 3, ranks, TSRI_DEVICE_COMM_PLANS, &r->c));
    }
    return TSR_OK;
}

enum { LEFT_CALLS = 5 + 2 * TSRI_CALL_RING };

static int32_t *left_src(const ld_rank *r, int i)
{
    return (int32_t *)(void *)r->block + (ptrdiff_t)i * 2 * WORDS;
}

/* Sums, the first few on a stream of their own, which nobody waits for. */
static tsr_status left_calls(const ld_rank *r, tsri_group *g)
{
    for (int i = 0; i < LEFT_CALLS; i++) {
        int32_t values[WORDS];
        for (int k = 0; k < WORDS; k++)
            values[k] = word(r->w->rank, i, k);
        TSRI_TRY(r->d->ops->copy_in(r->d, left_src(r, i), values, sizeof values, r->stream[2]));
    }
    TSRI_TRY(r->d->ops->stream_sync(r->d, r->stream[2]));
    for (int i = 0; i < LEFT_CALLS; i++) {
        const tsri_segment s = {.src = left_src(r, i),
                                .dst = left_src(r, i) + WORDS,
                                .dtype = TSR_I32,
                                .shape = TSR_DIMS(WORDS),
                                .src_axis = -1,
                                .dst_axis = -1};
        const tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE,
                             .nseg = 1,
                             .seg = &s,
                             .stream = r->stream[i >= 5],
                             .what = "left"};
        tsri_ticket t;
        TSRI_TRY(g->comm->ops->start(g, &c, &t));
        TSRI_TRY(g->comm->ops->finish(g, &t));
        TSRI_TRY(g->comm->ops->release(g, &t));
    }
    return TSR_OK;
}

/* A communicator that goes reads first what is its peers', whatever stream was to do it: then they
 * may write there, in any stream. */
static tsr_status left_body(ld_rank *r)
{
    int ranks[] = {0, 1, 2};
    const int32_t none[WORDS] = {0};
    tsri_group *host, *g;
    TSRI_TRY(ld_groups(r, 0, &host, &g));
    TSRI_TRY(left_calls(r, g));
    r->c->ops->destroy(r->c);
    r->c = NULL;
    for (int i = 0; i < LEFT_CALLS; i++)
        TSRI_TRY(r->d->ops->copy_in(r->d, left_src(r, i), none, sizeof none, r->stream[2]));
    TSRI_TRY(r->d->ops->stream_sync(r->d, r->stream[2]));
    for (int i = 0; i < LEFT_CALLS; i++) {
        int32_t got[WORDS];
        TSRI_TRY(
            r->d->ops->copy_out(r->d, got, left_src(r, i) + WORDS, sizeof got, r->stream[i >= 5]));
        for (int k = 0; k < WORDS; k++)
            CHECK(got[k] == word(0, i, k) + word(1, i, k) + word(2, i, k));
    }
    return tsri_local_create_device(r->w, r->d, 3, ranks, TSRI_DEVICE_COMM_PLANS, &r->c);
}

/* Several communicators at once, with groups of the same ranks, and calls of them in turns. */
static tsr_status beside_body(ld_rank *r)
{
    const int some[] = {0, 1};
    tsri_comm *all = r->c, *c[2] = {all, NULL};
    pair p[2] = {{.r = r}, {.r = r}};
    tsr_status status = TSR_OK;
    if (r->w->rank > 1)
        return TSR_OK;
    tsri_comm *host = r->w->comm;
    TSRI_TRY(recorder_create(host, &r->w->comm)); /* is no obstacle */
    status = tsri_local_create_device(r->w, r->d, 2, some, TSRI_DEVICE_COMM_PLANS, &c[1]);
    r->w->comm->ops->destroy(r->w->comm);
    r->w->comm = host;
    TSRI_TRY(status);
    for (int i = 0; i < 2 && status == TSR_OK; i++) {
        status = r->w->comm->ops->group(r->w->comm, 2, some, i, &p[i].host);
        if (status == TSR_OK)
            status = c[i]->ops->group(c[i], 2, some, 0, &p[i].device);
    }
    for (int i = 0; i < 10 && status == TSR_OK; i++) {
        r->c = c[i % 3 == 0]; /* whose bytes are counted */
        status = every_kind(&p[i % 3 == 0], TSR_DIMS(5, 1 + i));
    }
    r->c = all;
    if (status == TSR_OK)
        status = ld_flush(r);
    c[1]->ops->destroy(c[1]);
    return status;
}

static tsr_status made_body(ld_rank *r)
{
    tsri_comm *c;
    CHECK(!strcmp(r->c->ops->name, "local") && !r->c->capturable);
    int me = r->w->rank, all[2];
    TSRI_TRY(r->c->ops->exchange(r->c, &me, sizeof me, all));
    CHECK(all[0] == 0 && all[1] == 1);
    tsri_device *cpu;
    TSRI_TRY(tsri_device_get(r->w, TSR_DEVICE_CPU, &cpu));
    CHECK(tsri_local_create_device(r->w, cpu, 1, &me, TSRI_DEVICE_COMM_PLANS, &c) ==
          TSR_ERR_INVALID);
    CHECK_TEXT("no streams");
    for (int n = 1;; n++) {
        r->w->mem.fail_countdown = n;
        tsr_status status =
            tsri_local_create_device(r->w, r->d, 1, &me, TSRI_DEVICE_COMM_PLANS, &c);
        r->w->mem.fail_countdown = 0;
        if (status == TSR_OK) {
            c->ops->destroy(c);
            CHECK(n == 4); /* the communicator, a group and a list */
            break;
        }
        CHECK(status == TSR_ERR_NO_MEMORY);
    }
    const int ranks[] = {1, 0};
    tsri_group *g;
    for (int n = 1; n <= 2; n++) {
        r->w->mem.fail_countdown = n;
        CHECK(r->c->ops->group(r->c, 2, ranks, 0, &g) == TSR_ERR_NO_MEMORY);
    }
    return r->c->ops->group(r->c, 2, ranks, 0, &g);
}

/* More ranks than a move takes sources. */
static tsr_status crowd_body(ld_rank *r)
{
    tsri_group *host, *device;
    TSRI_TRY(ld_groups(r, 0, &host, &device));
    for (int i = 0; i < 3; i++) {
        const tsri_segment s[] = {
            {.dtype = TSR_F32, .shape = TSR_DIMS(3, 140), .src_axis = -1, .dst_axis = i - 1},
            {.dtype = TSR_I64, .shape = TSR_DIMS(3, 70), .src_axis = -1, .dst_axis = i - 1}};
        tsri_coll c = {.kind = i ? TSRI_COLL_REDUCE_SCATTER : TSRI_COLL_ALL_REDUCE,
                       .nseg = 2,
                       .what = "crowd"};
        TSRI_TRY(ld_both(r, host, device, c, s, NULL));
    }
    return TSR_OK;
}

static void test_groups(void **state)
{
    (void)state;
    each_setup(4, 4, subgroups_body, NULL);
    each_setup(3, 3, again_body, NULL);
    each_setup(3, 3, left_body, NULL);
    each_setup(3, 3, beside_body, NULL);
    each_setup(2, 2, made_body, NULL);
    if (ld_setups()->deferred)
        ld_spawn_ok(ld_setups(), 67, crowd_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),    cmocka_unit_test(test_many_segments),
        cmocka_unit_test(test_send_recv), cmocka_unit_test(test_ahead),
        cmocka_unit_test(test_giver),     cmocka_unit_test(test_barrier),
        cmocka_unit_test(test_groups),
    };
    return cmocka_run_group_tests_name("local_device", tests, NULL, NULL);
}
