/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective over NCCL's stand-in, against the host's communicator on the same data; and what
 * NCCL was asked, against what its peers asked it. */
#include "tests/cuda/emulator/nccl_log.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/dist/comm/send_recv_values.h"

#include <tessera/placement.h>

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MAX_SEG = 16, MAX_PULLS = 6 };

/* --- what NCCL was asked ---------------------------------------------------------------------- */
static tsri_emulated_nccl_log_fn *get_log;
static tsri_emulated_nccl_clear_fn *clear_log;

static bool find_log(void)
{
    void *module = dlopen(getenv("TESSERA_CUDA_MODULE"), RTLD_NOW | RTLD_LOCAL);
    if (!module)
        return false;
    *(void **)&get_log = dlsym(module, "tsri_emulated_nccl_log");
    *(void **)&clear_log = dlsym(module, "tsri_emulated_nccl_clear");
    return get_log && clear_log;
}

static bool is_p2p(const tsri_emulated_nccl_call *c)
{
    return !strcmp(c->name, "Send") || !strcmp(c->name, "Recv");
}

/* The next call of `rank` on the clique from *at on, of collectives or with a peer. */
static const tsri_emulated_nccl_call *next_of(const tsri_emulated_nccl_call *log, int n, int clique,
                                              int rank, const char *p2p, int peer, int *at)
{
    for (; *at < n; ++*at) {
        const tsri_emulated_nccl_call *c = &log[*at];
        if (c->clique != clique || c->rank != rank)
            continue;
        if (p2p ? !strcmp(c->name, p2p) && c->peer == peer : !is_p2p(c)) {
            ++*at;
            return c;
        }
    }
    return NULL;
}

static void compare_collectives(const tsri_emulated_nccl_call *log, int n, int clique, int nranks)
{
    for (int r = 1; r < nranks; r++) {
        int first = 0, other = 0;
        for (;;) {
            const tsri_emulated_nccl_call *a = next_of(log, n, clique, 0, NULL, 0, &first);
            const tsri_emulated_nccl_call *b = next_of(log, n, clique, r, NULL, 0, &other);
            assert_true(!a == !b);
            if (!a)
                break;
            assert_string_equal(a->name, b->name);
            assert_true(a->count == b->count && a->type == b->type && a->op == b->op &&
                        a->peer == b->peer && a->nranks == nranks);
        }
    }
}

static void compare_pairs(const tsri_emulated_nccl_call *log, int n, int clique, int nranks)
{
    for (int from = 0; from < nranks; from++)
        for (int to = 0; to < nranks; to++) {
            int sends = 0, recvs = 0;
            for (;;) {
                const tsri_emulated_nccl_call *s =
                    next_of(log, n, clique, from, "Send", to, &sends);
                const tsri_emulated_nccl_call *r =
                    next_of(log, n, clique, to, "Recv", from, &recvs);
                assert_true(!s == !r);
                if (!s)
                    break;
                assert_true(s->count == r->count && s->type == r->type && from != to);
            }
        }
}

/* The ranks' calls since the last look fit each other; returns how many there were. */
static int check_log(void)
{
    int n = get_log(0, NULL), clique = -1;
    tsri_emulated_nccl_call *log = calloc((size_t)n + 1, sizeof *log);
    assert_non_null(log);
    get_log(n, log);
    for (int i = 0; i < n; i++)
        if (log[i].clique > clique) {
            clique = log[i].clique;
            compare_collectives(log, n, clique, log[i].nranks);
            compare_pairs(log, n, clique, log[i].nranks);
        }
    free(log);
    clear_log();
    return n;
}

/* --- one call, twice -------------------------------------------------------------------------- */
/* Host and device memory of a segment. */
typedef struct sides {
    size_t src_bytes, dst_bytes;
    void *src, *dst, *device_src, *device_dst;
} sides;

typedef struct twin {
    tsri_coll host, device;
    tsri_segment host_seg[MAX_SEG], device_seg[MAX_SEG];
    sides sides[MAX_SEG];
    bool again; /* prepared, and made twice */
} twin;

/* Buffers for segment i as the host's call has it, src filled by the caller. */
static tsr_status add_sides(nr_rank *r, twin *t, int i)
{
    sides *b = &t->sides[i];
    tsri_segment *h = &t->host_seg[i], *d = &t->device_seg[i];
    *d = *h;
    h->src = b->src;
    TSRI_TRY(nr_put(r, b->src, b->src_bytes, &b->device_src));
    d->src = b->device_src;
    if (b->dst_bytes) {
        TSRI_TRY(tsri_region_alloc(&r->world->region, b->dst_bytes, &b->dst));
        memset(b->dst, 0x5a, b->dst_bytes);
    }
    TSRI_TRY(nr_put(r, b->dst, b->dst_bytes, &b->device_dst));
    h->dst = b->dst;
    d->dst = b->device_dst;
    return TSR_OK;
}

static void free_sides(nr_rank *r, twin *t, int n)
{
    const tsri_device_ops *ops = r->device->ops;
    for (int i = n - 1; i >= 0; i--) {
        sides *b = &t->sides[i];
        if (b->dst)
            tsri_region_free(&r->world->region, b->dst, b->dst_bytes);
        if (b->src)
            tsri_region_free(&r->world->region, b->src, b->src_bytes);
        if (b->device_dst)
            ops->buffer_free(r->device, b->device_dst, b->dst_bytes);
        if (b->device_src)
            ops->buffer_free(r->device, b->device_src, b->src_bytes);
    }
}

static tsr_status compare_sides(nr_rank *r, const twin *t)
{
    for (int i = 0; i < t->host.nseg; i++) {
        const sides *b = &t->sides[i];
        const tsri_segment *s = &t->host_seg[i];
        char *got = malloc(b->dst_bytes + 1);
        CHECK(got);
        if (b->dst_bytes)
            TSRI_TRY(nr_get(r, b->device_dst, b->dst_bytes, got));
        int differs = b->dst_bytes ? memcmp(got, b->dst, b->dst_bytes) : 0;
        free(got);
        if (differs)
            return tsri_fail(
                TSR_ERR_INTERNAL, "%s algo %d op %d, %d ranks, segment %d %s, axes %d %d",
                tsri_coll_kind_name(t->host.kind), t->host.algo, t->host.op, r->group->nranks, i,
                tsr_dtype_name(s->dtype), s->src_axis, s->dst_axis);
    }
    return TSR_OK;
}

/* By both communicators. */
static tsr_status run_twin(nr_rank *r, tsri_group *g, tsri_group *host_group, twin *t)
{
    const tsri_comm_ops *ops = r->comm->ops;
    int times = t->again ? 2 : 1;
    uint64_t bytes = 0;
    tsri_comm_stats before, after;
    t->host.seg = t->host_seg;
    t->device = t->host;
    t->device.seg = t->device_seg;
    t->device.stream = r->device->stream;
    for (int i = 0; i < t->host.nseg; i++)
        bytes += tsri_coll_bytes(t->host.kind, t->host.algo, g->nranks, g->index, t->host.root,
                                 &t->host_seg[i]);
    ops->stats(r->comm, &before);
    if (times > 1)
        TSRI_TRY(ops->prepare(g, &t->device));
    for (int k = 0; k < times; k++)
        TSRI_TRY(nr_call(g, &t->device));
    if (times > 1)
        ops->unprepare(g, &t->device);
    CHECK(!t->device.prepared);
    ops->stats(r->comm, &after);
    CHECK(after.calls[t->host.kind] - before.calls[t->host.kind] == (uint64_t)times);
    CHECK(after.bytes_read[t->host.kind] - before.bytes_read[t->host.kind] ==
          (uint64_t)times * bytes);
    TSRI_TRY(nr_call(host_group, &t->host));
    return compare_sides(r, t);
}

/* --- pieces ----------------------------------------------------------------------------------- */
static int64_t side_count(const tsri_segment *s, int axis, const tsri_group *g)
{
    int64_t offset, length, count = 1;
    for (int a = 0; a < s->shape.ndim; a++) {
        tsr_balanced_split(s->shape.d[a], g->nranks, g->index, &offset, &length);
        count *= a == axis ? length : s->shape.d[a];
    }
    return count;
}

/* A segment of each dtype; a NaN here and there where they must be kept. */
static tsr_status every_dtype(nr_rank *r, tsri_group *g, tsri_group *host_group, tsri_coll c,
                              tsr_dims shape, int from, int to)
{
    twin t = {.host = c, .again = ((int)c.op + shape.d[0] + from + to) & 1};
    t.host.what = "every dtype";
    t.host.nseg = TSR_DTYPE_COUNT_ - 1;
    for (int i = 0; i < t.host.nseg; i++) {
        tsri_segment *s = &t.host_seg[i];
        *s = (tsri_segment){
            .dtype = (tsr_dtype)(i + 1), .shape = shape, .src_axis = from, .dst_axis = to};
        size_t size = tsr_dtype_size(s->dtype);
        int64_t nsrc = side_count(s, from, g), ndst = side_count(s, to, g);
        nsrc = c.kind == TSRI_COLL_BROADCAST && g->index != c.root ? 0 : nsrc;
        ndst = c.kind == TSRI_COLL_REDUCE && g->index != c.root ? 0 : ndst;
        t.sides[i].src_bytes = (size_t)nsrc * size;
        t.sides[i].dst_bytes = (size_t)ndst * size;
        if (nsrc)
            TSRI_TRY(tsri_region_alloc(&r->world->region, (size_t)nsrc * size, &t.sides[i].src));
        for (int64_t e = 0; e < nsrc; e++)
            sr_put(s->dtype, t.sides[i].src, e, sr_value(g->index, i, e));
        if (s->dtype == TSR_F32 && c.op != TSR_REDUCE_SUM && g->index == g->nranks - 1 && nsrc > 2)
            memset((char *)t.sides[i].src + 8, 0xff, 4);
        TSRI_TRY(add_sides(r, &t, i));
    }
    TSRI_TRY(run_twin(r, g, host_group, &t));
    free_sides(r, &t, t.host.nseg);
    return TSR_OK;
}

static tsr_status every_kind(nr_rank *r, tsri_group *g, tsri_group *hg, tsr_dims d)
{
    for (int op = TSR_REDUCE_SUM; op <= TSR_REDUCE_MIN; op++) {
        tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE, .op = (tsr_reduce_op)op};
        TSRI_TRY(every_dtype(r, g, hg, c, d, -1, -1));
        c.algo = TSRI_ALGO_TWO_PHASE;
        TSRI_TRY(every_dtype(r, g, hg, c, d, -1, -1));
        c = (tsri_coll){.kind = TSRI_COLL_REDUCE, .op = (tsr_reduce_op)op, .root = g->nranks - 1};
        TSRI_TRY(every_dtype(r, g, hg, c, d, -1, -1));
        c = (tsri_coll){.kind = TSRI_COLL_REDUCE_SCATTER, .op = (tsr_reduce_op)op};
        for (int a = 0; a < d.ndim; a++)
            TSRI_TRY(every_dtype(r, g, hg, c, d, -1, a));
    }
    tsri_coll c = {.kind = TSRI_COLL_BROADCAST, .root = g->nranks / 2};
    TSRI_TRY(every_dtype(r, g, hg, c, d, -1, -1));
    for (int a = 0; a < d.ndim; a++) {
        c = (tsri_coll){.kind = TSRI_COLL_ALL_GATHER};
        TSRI_TRY(every_dtype(r, g, hg, c, d, a, -1));
        c.kind = TSRI_COLL_ALL_TO_ALL;
        for (int to = 0; to < d.ndim; to++)
            TSRI_TRY(every_dtype(r, g, hg, c, d, a, to));
    }
    return TSR_OK;
}

static tsr_status pieces_body(tsr_world *w, void *arg)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 5, 7, 8};
    nr_rank r;
    (void)arg;
    TSRI_TRY(nr_open(w, 0, &r));
    size_t before = r.device->region->top;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        TSRI_TRY(every_kind(&r, r.group, r.host_group, TSR_DIMS(sizes[i])));
        TSRI_TRY(every_kind(&r, r.group, r.host_group, TSR_DIMS(2, sizes[i], 3)));
    }
    TSRI_TRY(every_kind(&r, r.group, r.host_group, TSR_SCALAR));
    CHECK(r.device->region->top == before);
    tsri_coll barrier = {.kind = TSRI_COLL_BARRIER, .what = "barrier"};
    TSRI_TRY(nr_call(r.group, &barrier));
    nr_close(&r);
    CHECK(w->region.top == w->region.size);
    return TSR_OK;
}

static void test_pieces(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        nr_spawn(n, pieces_body, NULL, 0);
        int calls = check_log();
        assert_true(n == 1 ? calls == 0 : calls > 1000);
    }
}

/* --- pulls ------------------------------------------------------------------------------------ */
typedef struct drawn {
    twin twin;
    tsri_pull pull[MAX_SEG][MAX_PULLS];
    int src[MAX_SEG][MAX_PULLS][8];
} drawn;

static tsr_status draw(nr_rank *r, drawn *d, uint64_t seed)
{
    const tsri_group *g = r->group;
    twin *t = &d->twin;
    t->again = seed & 1;
    t->host = (tsri_coll){.kind = TSRI_COLL_SEND_RECV,
                          .op = (tsr_reduce_op)(seed % 3),
                          .nseg = TSR_DTYPE_COUNT_ - 1,
                          .what = "random"};
    for (int i = 0; i < t->host.nseg; i++) {
        uint64_t common = seed * 1000 + (uint64_t)i, mine = common * 64 + (uint64_t)g->index + 7;
        bool gives[8];
        int must = sr_below(&common, g->nranks);
        for (int m = 0; m < g->nranks; m++)
            gives[m] = m == must || sr_below(&common, 3) > 0;
        tsri_segment *s = &t->host_seg[i];
        *s = (tsri_segment){.dtype = (tsr_dtype)(i + 1), .shape = TSR_DIMS(i + 1, WHOLE)};
        size_t bytes = tsr_dtype_size(s->dtype) * WHOLE;
        t->sides[i] = (sides){.src_bytes = gives[g->index] ? bytes : 0};
        if (gives[g->index])
            TSRI_TRY(tsri_region_alloc(&r->world->region, bytes, &t->sides[i].src));
        for (int e = 0; e < WHOLE && gives[g->index]; e++)
            sr_put(s->dtype, t->sides[i].src, e, sr_value(g->index, i, e));
        if (sr_below(&mine, 6)) {
            t->sides[i].dst_bytes = bytes;
            s->dst_count = WHOLE;
            s->npulls = sr_below(&mine, MAX_PULLS + 1);
            s->pulls = d->pull[i];
            s->fill = sr_below(&mine, 2);
            for (int k = 0; k < s->npulls; k++)
                d->pull[i][k] = sr_random_pull(&mine, g->nranks, gives, d->src[i][k]);
        }
        TSRI_TRY(add_sides(r, t, i));
    }
    return TSR_OK;
}

static tsr_status pulls_body(tsr_world *w, void *arg)
{
    nr_rank r;
    (void)arg;
    TSRI_TRY(nr_open(w, 1, &r));
    drawn *d = malloc(sizeof *d);
    CHECK(d);
    for (uint64_t seed = 0; seed < 20; seed++) {
        TSRI_TRY(draw(&r, d, seed * 11 + (uint64_t)w->nranks));
        TSRI_TRY(run_twin(&r, r.group, r.host_group, &d->twin));
        free_sides(&r, &d->twin, d->twin.host.nseg);
    }
    free(d);
    nr_close(&r);
    return TSR_OK;
}

static void test_pulls(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        nr_spawn(n, pulls_body, NULL, 0);
        check_log();
    }
}

/* --- groups ----------------------------------------------------------------------------------- */
static tsr_status in_group(nr_rank *r, int n, const int *ranks, int lane)
{
    tsri_group *g, *hg;
    const tsri_coll c = {.kind = TSRI_COLL_ALL_GATHER};
    TSRI_TRY(nr_groups(r, n, ranks, lane, &g, &hg));
    CHECK(g->nranks == n && g->index == hg->index && g->lane == lane);
    return every_dtype(r, g, hg, c, TSR_DIMS(5, 2), 0, -1);
}

/* Pairs side by side, pairs across, all but one in another order; groups that are there already. */
static tsr_status groups_body(tsr_world *w, void *arg)
{
    static const int side[] = {0, 0, 2, 2}, across[] = {0, 1, 0, 1}, some[] = {5, -1, 5, 5};
    static const int key[] = {0, 1, 2, 3}, back[] = {3, 2, 1, 0};
    static const int alone[] = {0, 0, 2, 3};
    nr_rank r;
    tsri_group *g, *hg;
    (void)arg;
    int me = w->rank;
    TSRI_TRY(nr_open(w, 0, &r));
    const int pair[] = {me & ~1, me | 1}, other[] = {me & 1, (me & 1) + 2}, three[] = {3, 2, 0};
    CHECK(nr_groups(&r, 2, pair, 0, &g, &hg) == TSR_ERR_STATE);
    CHECK_TEXT("was not made together");
    TSRI_TRY(r.comm->ops->partition(r.comm, side, key, 0));
    TSRI_TRY(in_group(&r, 2, pair, 0));
    TSRI_TRY(r.comm->ops->partition(r.comm, across, key, 1));
    TSRI_TRY(r.comm->ops->partition(r.comm, side, key, 1));
    TSRI_TRY(in_group(&r, 2, other, 1));
    TSRI_TRY(in_group(&r, 2, pair, 1));
    TSRI_TRY(r.comm->ops->partition(r.comm, some, back, 0));
    if (me != 1)
        TSRI_TRY(in_group(&r, 3, three, 0));
    TSRI_TRY(r.comm->ops->partition(r.comm, alone, key, 0)); /* nothing is new */
    TSRI_TRY(in_group(&r, 1, &me, 0));
    TSRI_TRY(in_group(&r, 4, key, 1));
    nr_close(&r);
    return TSR_OK;
}

static void test_groups(void **state)
{
    (void)state;
    nr_spawn(4, groups_body, NULL, 0);
    check_log();
}

/* --- captured calls --------------------------------------------------------------------------- */
static tsr_status captured_body(tsr_world *w, void *arg)
{
    enum { N = 5 };
    nr_rank r;
    (void)arg;
    TSRI_TRY(nr_open(w, 0, &r));
    tsri_device *d = r.device;
    float data[N], sum[N];
    void *src, *dst;
    tsri_captured *captured;
    TSRI_TRY(nr_put(&r, data, sizeof data, &src));
    TSRI_TRY(nr_put(&r, data, sizeof data, &dst));
    const tsri_segment s = {.src = src,
                            .dst = dst,
                            .dtype = TSR_F32,
                            .shape = TSR_DIMS(N),
                            .src_axis = -1,
                            .dst_axis = -1};
    tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE, .nseg = 1, .seg = &s, .stream = d->stream};
    TSRI_TRY(d->ops->capture_begin(d, d->stream));
    CHECK(nr_call(r.group, &c) == TSR_ERR_STATE);
    CHECK_TEXT("must be prepared before it is captured");
    TSRI_TRY(d->ops->capture_end(d, d->stream, &captured));
    d->ops->captured_destroy(d, captured);
    TSRI_TRY(r.comm->ops->prepare(r.group, &c));
    TSRI_TRY(d->ops->capture_begin(d, d->stream));
    TSRI_TRY(nr_call(r.group, &c));
    TSRI_TRY(d->ops->capture_end(d, d->stream, &captured));
    for (int turn = 0; turn < 5; turn++) {
        for (int i = 0; i < N; i++)
            data[i] = (float)(w->rank + i * turn);
        TSRI_TRY(d->ops->copy_in(d, src, data, sizeof data, d->stream));
        TSRI_TRY(d->ops->captured_run(d, captured, d->stream));
        TSRI_TRY(nr_get(&r, dst, sizeof sum, sum));
        for (int i = 0; i < N; i++)
            CHECK(sum[i] == (float)(w->nranks * (w->nranks - 1) / 2 + i * turn * w->nranks));
    }
    d->ops->captured_destroy(d, captured);
    r.comm->ops->unprepare(r.group, &c);
    nr_close(&r);
    return TSR_OK;
}

static void test_captured(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        nr_spawn(n, captured_body, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_pulls),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_captured),
    };
    int skip = nr_skip();
    if (skip)
        return skip;
    if (!find_log())
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
