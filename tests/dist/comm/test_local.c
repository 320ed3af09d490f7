/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective over thread ranks (ranks.h), against what one rank computes by itself: each
 * rank's source is a function of (rank, element), so the oracle needs no communication and no
 * boxes. */
#include "src/comm/comm.h"
#include "tests/dist/comm/ranks.h"
#include "tests/dist/comm/recorder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define CHECK(cond)                                                                     \
    do {                                                                                \
        if (!(cond))                                                                    \
            return tsri_fail(TSR_ERR_INTERNAL, "%s:%d: %s", __FILE__, __LINE__, #cond); \
    } while (0)

enum { MAX_SEG = 1100 };

static const tsr_world_opts small = {
    .size = sizeof small, .arena_bytes = 64 << 20, .timeout_s = 60, .threads = 1};

/* --- the oracle ------------------------------------------------------------------------------- */

/* Deals n things to k parts, one by one; the start and the count of part i. */
static void deal(int64_t n, int k, int i, int64_t *start, int64_t *count)
{
    int64_t counts[16] = {0};
    for (int64_t e = 0; e < n; e++)
        counts[e % k]++;
    *start = 0;
    for (int p = 0; p < i; p++)
        *start += counts[p];
    *count = counts[i];
}

static int value(int rank, int seg, int64_t element)
{
    return (int)((element * 7 + rank * 3 + seg) % 11);
}

/* A whole number from 0 to 2047, in f16: its leading one is implied. */
static uint16_t half_of_int(int v)
{
    int exponent = 0;
    while (v >> exponent > 1)
        exponent++;
    return v == 0 ? 0 : (uint16_t)((exponent + 15) << 10 | ((v << (10 - exponent)) & 0x3ff));
}

static void put(tsr_dtype t, void *base, int64_t i, int v)
{
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    switch (t) {
    case TSR_F32:
        ((float *)base)[i] = f;
        break;
    case TSR_F16:
        ((uint16_t *)base)[i] = half_of_int(v);
        break;
    case TSR_BF16:
        ((uint16_t *)base)[i] = (uint16_t)(bits >> 16);
        break;
    case TSR_F64:
        ((double *)base)[i] = v;
        break;
    case TSR_I64:
        ((int64_t *)base)[i] = v;
        break;
    case TSR_I32:
        ((int32_t *)base)[i] = v;
        break;
    case TSR_U8:
        ((uint8_t *)base)[i] = (uint8_t)v;
        break;
    default:
        ((uint8_t *)base)[i] = v % 3 == 0;
        break;
    }
}

static int reduced(tsr_dtype t, tsr_reduce_op op, int n, int seg, int64_t element)
{
    int acc = 0;
    for (int r = 0; r < n; r++) {
        int v = value(r, seg, element);
        if (t == TSR_BOOL)
            v = v % 3 == 0;
        if (r == 0)
            acc = v;
        else if (op == TSR_REDUCE_SUM)
            acc += v;
        else if (op == TSR_REDUCE_MAX ? v > acc : v < acc)
            acc = v;
    }
    /* In bool's encoding by put(): 0 is true, 1 is false. */
    return t == TSR_BOOL ? (acc ? 0 : 1) : acc;
}

/* Elements of the box whose axis `axis` is piece i of n. */
static int64_t count_piece(tsr_dims d, int axis, int n, int i)
{
    int64_t start, length, count = 1;
    for (int a = 0; a < d.ndim; a++) {
        deal(d.d[a], n, i, &start, &length);
        count *= a == axis ? length : d.d[a];
    }
    return count;
}

/* Where local element `local` is in the whole, if the box has `count` of axis `axis` from `first`.
 */
static int64_t to_global(tsr_dims d, int axis, int64_t first, int64_t count, int64_t local)
{
    int64_t global = 0, scale = 1;
    for (int a = d.ndim - 1; a >= 0; a--) {
        int64_t start = a == axis ? first : 0, length = a == axis ? count : d.d[a];
        global += (start + local % length) * scale;
        local /= length;
        scale *= d.d[a];
    }
    return global;
}

static bool src_split(tsri_coll_kind k)
{
    return k == TSRI_COLL_ALL_GATHER || k == TSRI_COLL_ALL_TO_ALL;
}

static bool reduces(tsri_coll_kind k)
{
    return k == TSRI_COLL_ALL_REDUCE || k == TSRI_COLL_REDUCE_SCATTER || k == TSRI_COLL_REDUCE;
}

typedef struct buffers {
    size_t src_bytes, dst_bytes;
} buffers;

static tsr_status prepare(tsr_world *w, const tsri_group *g, tsri_coll_kind kind, int root, int seg,
                          tsri_segment *s, buffers *b)
{
    int64_t ns = count_piece(s->shape, s->src_axis, g->nranks, g->index);
    int64_t nd = count_piece(s->shape, s->dst_axis, g->nranks, g->index);
    bool no_src = kind == TSRI_COLL_BROADCAST && g->index != root;
    bool no_dst = kind == TSRI_COLL_REDUCE && g->index != root;
    b->src_bytes = no_src ? 0 : (size_t)ns * tsr_dtype_size(s->dtype);
    b->dst_bytes = no_dst ? 0 : (size_t)nd * tsr_dtype_size(s->dtype);
    void *p = NULL;
    if (b->src_bytes)
        TSRI_TRY(tsri_region_alloc(&w->region, b->src_bytes, &p));
    s->src = p;
    int64_t first = 0, count = 0;
    if (s->src_axis >= 0)
        deal(s->shape.d[s->src_axis], g->nranks, g->index, &first, &count);
    for (int64_t e = 0; b->src_bytes && e < ns; e++) {
        int64_t at = to_global(s->shape, s->src_axis, first, count, e);
        put(s->dtype, p, e, value(src_split(kind) ? 99 : g->index, seg, at));
    }
    p = NULL;
    if (b->dst_bytes)
        TSRI_TRY(tsri_region_alloc(&w->region, b->dst_bytes, &p));
    s->dst = p;
    return TSR_OK;
}

static tsr_status verify(const tsri_group *g, const tsri_coll *c, int seg, const buffers *b)
{
    const tsri_segment *s = &c->seg[seg];
    int64_t n = (int64_t)(b->dst_bytes / tsr_dtype_size(s->dtype));
    size_t size = tsr_dtype_size(s->dtype);
    int64_t first = 0, count = 0;
    if (s->dst_axis >= 0)
        deal(s->shape.d[s->dst_axis], g->nranks, g->index, &first, &count);
    for (int64_t e = 0; e < n; e++) {
        int64_t at = to_global(s->shape, s->dst_axis, first, count, e);
        char expected[8];
        int v = reduces(c->kind)     ? reduced(s->dtype, c->op, g->nranks, seg, at)
                : src_split(c->kind) ? value(99, seg, at)
                                     : value(c->root, seg, at);
        put(s->dtype, expected, 0, v);
        if (memcmp((char *)s->dst + (size_t)e * size, expected, size))
            return tsri_fail(TSR_ERR_INTERNAL,
                             "%s algo %d op %d n %d rank %d seg %d %s axes %d %d: "
                             "element %lld",
                             tsri_coll_kind_name(c->kind), c->algo, c->op, g->nranks, g->index, seg,
                             tsr_dtype_name(s->dtype), s->src_axis, s->dst_axis, (long long)e);
    }
    return TSR_OK;
}

/* One call, all its halves, and its bytes. */
static tsr_status make_call(tsr_world *w, tsri_group *g, const tsri_coll *c, const buffers *b)
{
    tsri_comm *comm = w->comm;
    tsri_comm_stats before, after;
    tsri_ticket t;
    uint64_t bytes = 0;
    for (int i = 0; i < c->nseg; i++) {
        bytes += tsri_coll_bytes(c->kind, c->algo, g->nranks, g->index, c->root, &c->seg[i]);
        if (b[i].dst_bytes)
            memset(c->seg[i].dst, 0xff, b[i].dst_bytes);
    }
    comm->ops->stats(comm, &before);
    TSRI_TRY(comm->ops->start(g, c, &t));
    TSRI_TRY(comm->ops->finish(g, &t));
    for (int i = 0; i < c->nseg; i++)
        TSRI_TRY(verify(g, c, i, &b[i]));
    TSRI_TRY(comm->ops->release(g, &t));
    comm->ops->stats(comm, &after);
    CHECK(after.calls[c->kind] == before.calls[c->kind] + 1);
    CHECK(after.bytes_read[c->kind] - before.bytes_read[c->kind] == bytes);
    return TSR_OK;
}

/* A call as it comes and, in shared memory, where that is cheap, prepared. */
static tsr_status run_call(tsr_world *w, tsri_group *g, tsri_coll *c, tsri_segment *seg)
{
    buffers *b = calloc((size_t)c->nseg + 1, sizeof *b);
    CHECK(b);
    for (int i = 0; i < c->nseg; i++)
        TSRI_TRY(prepare(w, g, c->kind, c->root, i, &seg[i], &b[i]));
    c->seg = seg;
    TSRI_TRY(make_call(w, g, c, b));
    if (!strcmp(test_ranks_comm(), "local")) {
        TSRI_TRY(w->comm->ops->prepare(g, c));
        for (int i = 0; i < 2; i++)
            TSRI_TRY(make_call(w, g, c, b));
        w->comm->ops->unprepare(g, c);
    }
    for (int i = c->nseg - 1; i >= 0; i--) {
        if (b[i].dst_bytes)
            tsri_region_free(&w->region, seg[i].dst, b[i].dst_bytes);
        if (b[i].src_bytes)
            tsri_region_free(&w->region,
                             (char *)w->region.base + ((const char *)seg[i].src - w->region.base),
                             b[i].src_bytes);
    }
    free(b);
    return TSR_OK;
}

static tsr_status all_ranks(tsr_world *w, int lane, tsri_group **out)
{
    int ranks[16];
    for (int i = 0; i < w->nranks; i++)
        ranks[i] = i;
    return w->comm->ops->group(w->comm, w->nranks, ranks, lane, out);
}

/* --- values and bytes ------------------------------------------------------------------------- */

static tsr_status every_dtype(tsr_world *w, tsri_group *g, tsri_coll c, tsr_dims shape,
                              int src_axis, int dst_axis)
{
    tsri_segment seg[TSR_DTYPE_COUNT_];
    c.nseg = 0;
    for (int t = TSR_F32; t < TSR_DTYPE_COUNT_; t++)
        seg[c.nseg++] = (tsri_segment){
            .dtype = (tsr_dtype)t, .shape = shape, .src_axis = src_axis, .dst_axis = dst_axis};
    c.what = "every_dtype";
    return run_call(w, g, &c, seg);
}

static tsr_status every_kind(tsr_world *w, tsri_group *g, tsr_dims d)
{
    for (int op = TSR_REDUCE_SUM; op <= TSR_REDUCE_MIN; op++) {
        tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE, .op = (tsr_reduce_op)op};
        TSRI_TRY(every_dtype(w, g, c, d, -1, -1));
        c.algo = TSRI_ALGO_TWO_PHASE;
        TSRI_TRY(every_dtype(w, g, c, d, -1, -1));
        c = (tsri_coll){.kind = TSRI_COLL_REDUCE, .op = (tsr_reduce_op)op, .root = g->nranks - 1};
        TSRI_TRY(every_dtype(w, g, c, d, -1, -1));
        c = (tsri_coll){.kind = TSRI_COLL_REDUCE_SCATTER, .op = (tsr_reduce_op)op};
        for (int a = 0; a < d.ndim; a++)
            TSRI_TRY(every_dtype(w, g, c, d, -1, a));
    }
    tsri_coll c = {.kind = TSRI_COLL_BROADCAST, .root = g->nranks / 2};
    TSRI_TRY(every_dtype(w, g, c, d, -1, -1));
    for (int a = 0; a < d.ndim; a++) {
        c = (tsri_coll){.kind = TSRI_COLL_ALL_GATHER};
        TSRI_TRY(every_dtype(w, g, c, d, a, -1));
        c.kind = TSRI_COLL_ALL_TO_ALL;
        for (int to = 0; to < d.ndim; to++)
            TSRI_TRY(every_dtype(w, g, c, d, a, to));
    }
    return TSR_OK;
}

static tsr_status values_body(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_dims shapes[] = {TSR_SCALAR,        TSR_DIMS(0),       TSR_DIMS(1),
                               TSR_DIMS(13),      TSR_DIMS(5, 3),    TSR_DIMS(3, 0, 4),
                               TSR_DIMS(2, 9, 5), TSR_DIMS(6, 1, 3), TSR_DIMS(3, 5, 4, 2)};
    tsri_group *g;
    TSRI_TRY(all_ranks(w, 0, &g));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        TSRI_TRY(every_kind(w, g, shapes[i]));
    CHECK(w->region.top == w->region.size);
    return TSR_OK;
}

static void spawn_ok(int n, tsr_rank_fn *fn, void *arg, const tsr_world_opts *opts)
{
    tsr_status status = test_ranks(n, fn, arg, opts);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
}

static void test_values(void **state)
{
    (void)state;
    for (int n = 1; n <= 8; n++)
        spawn_ok(n, values_body, NULL, &small);
}

static tsr_status many_segments_body(tsr_world *w, void *arg)
{
    static const int counts[] = {8, 9, 512, 513, MAX_SEG};
    (void)arg;
    tsri_group *g;
    TSRI_TRY(all_ranks(w, 1, &g));
    tsri_segment *seg = calloc(MAX_SEG, sizeof *seg);
    CHECK(seg);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        for (int algo = 0; algo < 2; algo++) {
            for (int i = 0; i < counts[k]; i++)
                seg[i] = (tsri_segment){
                    .dtype = TSR_F32, .shape = TSR_DIMS(i % 5, 3), .src_axis = -1, .dst_axis = -1};
            tsri_coll c = {
                .kind = TSRI_COLL_ALL_REDUCE, .algo = (tsri_coll_algo)algo, .nseg = counts[k]};
            TSRI_TRY(run_call(w, g, &c, seg));
        }
    }
    free(seg);
    return TSR_OK;
}

static void test_many_segments(void **state)
{
    (void)state;
    spawn_ok(3, many_segments_body, NULL, &small);
}

/* More than the threshold, so that a rank's own threads share the work; ragged on purpose. */
static tsr_status large_body(tsr_world *w, void *arg)
{
    (void)arg;
    tsri_group *g;
    TSRI_TRY(all_ranks(w, 0, &g));
    TSRI_TRY(every_kind(w, g, TSR_DIMS(37, 4001)));
    return TSR_OK;
}

static void test_large_with_threads(void **state)
{
    (void)state;
    tsr_world_opts o = small;
    o.threads = getenv("TESSERA_TEST_ONE_THREAD") ? 1 : 3;
    spawn_ok(2, large_body, NULL, &o);
}

/* --- order, lanes, groups --------------------------------------------------------------------- */

static tsr_status outstanding_body(tsr_world *w, void *arg)
{
    (void)arg;
    enum { CALLS = 40 };
    tsri_group *g[2];
    tsri_coll c[CALLS];
    tsri_segment s[CALLS];
    tsri_ticket t[CALLS];
    buffers b[CALLS];
    TSRI_TRY(all_ranks(w, 0, &g[0]));
    TSRI_TRY(all_ranks(w, 1, &g[1]));
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < CALLS; i++) {
            s[i] = (tsri_segment){
                .dtype = TSR_I32, .shape = TSR_DIMS(i + 1), .src_axis = -1, .dst_axis = -1};
            TSRI_TRY(prepare(w, g[i & 1], TSRI_COLL_ALL_REDUCE, 0, 0, &s[i], &b[i]));
            c[i] = (tsri_coll){.kind = TSRI_COLL_ALL_REDUCE,
                               .algo = (tsri_coll_algo)(i / 2 & 1),
                               .nseg = 1,
                               .seg = &s[i],
                               .what = "outstanding"};
            TSRI_TRY(w->comm->ops->start(g[i & 1], &c[i], &t[i]));
        }
        CHECK(w->comm->ops->finish(g[0], &t[2]) == TSR_ERR_STATE);
        /* One lane after the other: they do not wait for each other. */
        for (int lane = 1; lane >= 0; lane--) {
            for (int i = lane; i < CALLS; i += 2) {
                TSRI_TRY(w->comm->ops->finish(g[lane], &t[i]));
                TSRI_TRY(verify(g[lane], &c[i], 0, &b[i]));
            }
        }
        for (int i = 0; i < CALLS; i++)
            TSRI_TRY(w->comm->ops->release(g[i & 1], &t[i]));
    }
    const tsri_coll empty = {.kind = TSRI_COLL_BARRIER};
    tsri_ticket many[65];
    for (int i = 0; i < 64; i++)
        TSRI_TRY(w->comm->ops->start(g[0], &empty, &many[i]));
    CHECK(w->comm->ops->start(g[0], &empty, &many[64]) == TSR_ERR_STATE);
    for (int i = 0; i < 64; i++)
        TSRI_TRY(w->comm->ops->finish(g[0], &many[i]));
    return TSR_OK;
}

static void test_outstanding(void **state)
{
    (void)state;
    spawn_ok(3, outstanding_body, NULL, &small);
}

static tsr_status subgroups_body(tsr_world *w, void *arg)
{
    (void)arg;
    /* Rows in reversed order, columns in order, of a 2 x 2. */
    const int rows[2][2] = {{1, 0}, {3, 2}}, cols[2][2] = {{0, 2}, {1, 3}};
    tsri_group *row, *col, *again, *alone;
    tsri_comm *c = w->comm;
    TSRI_TRY(c->ops->group(c, 2, rows[w->rank / 2], 0, &row));
    TSRI_TRY(c->ops->group(c, 2, cols[w->rank % 2], 0, &col));
    TSRI_TRY(c->ops->group(c, 2, rows[w->rank / 2], 0, &again));
    TSRI_TRY(c->ops->group(c, 1, &w->rank, 0, &alone));
    CHECK(again == row && row->index == 1 - w->rank % 2 && col->index == w->rank / 2);
    for (int i = 0; i < 3; i++) {
        TSRI_TRY(every_kind(w, row, TSR_DIMS(5, 3)));
        TSRI_TRY(every_kind(w, col, TSR_DIMS(3, 4)));
        TSRI_TRY(every_kind(w, alone, TSR_DIMS(3)));
    }
    const int other[2] = {(w->rank + 1) % 4, (w->rank + 2) % 4}, twice[2] = {w->rank, w->rank};
    CHECK(c->ops->group(c, 2, other, 0, &again) == TSR_ERR_INVALID);
    CHECK(c->ops->group(c, 2, twice, 0, &again) == TSR_ERR_INVALID);
    return TSR_OK;
}

static void test_subgroups(void **state)
{
    (void)state;
    spawn_ok(4, subgroups_body, NULL, &small);
}

static tsr_status exchange_body(tsr_world *w, void *arg)
{
    (void)arg;
    tsri_comm *c = w->comm;
    unsigned char *mine = malloc(65536), *all = malloc(65536 * 8);
    CHECK(mine && all);
    for (int i = 0; i < 200; i++) {
        size_t bytes = i == 7 ? 65536 : (size_t)i * 13;
        for (size_t k = 0; k < bytes; k++)
            mine[k] = (unsigned char)(k + (size_t)w->rank * 31 + (size_t)i);
        TSRI_TRY(c->ops->exchange(c, mine, bytes, all));
        for (int r = 0; r < w->nranks; r++)
            for (size_t k = 0; k < bytes; k++)
                CHECK(all[(size_t)r * bytes + k] ==
                      (unsigned char)(k + (size_t)r * 31 + (size_t)i));
    }
    CHECK(c->ops->exchange(c, mine, 65537, all) == TSR_ERR_INVALID);
    if (w->nranks > 1) {
        CHECK(c->ops->exchange(c, mine, 8 + (size_t)(w->rank == 1), all) == TSR_ERR_MISMATCH);
        CHECK(strstr(tsr_last_error(), "8 bytes") && strstr(tsr_last_error(), "9 bytes"));
        TSRI_TRY(tsr_world_barrier(w));
    }
    free(mine);
    free(all);
    return TSR_OK;
}

static void test_exchange(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++)
        spawn_ok(n, exchange_body, NULL, &small);
}

/* --- the recorder ----------------------------------------------------------------------------- */

static tsr_status record_body(tsr_world *w, void *arg)
{
    (void)arg;
    tsri_comm *inner = w->comm, *rec;
    tsri_group *g;
    int count;
    TSRI_TRY(recorder_create(inner, &rec));
    w->comm = rec;
    TSRI_TRY(all_ranks(w, 1, &g));
    CHECK(g->comm == rec && g->lane == 1 && g->nranks == 2);
    tsri_segment s[1] = {
        {.dtype = TSR_F32, .shape = TSR_DIMS(5, 3), .src_axis = 0, .dst_axis = -1}};
    tsri_coll c = {.kind = TSRI_COLL_ALL_GATHER, .nseg = 1, .what = "gather me"};
    for (int i = 0; i < 300; i++)
        TSRI_TRY(run_call(w, g, &c, s));
    const recorded_call *r = recorder_calls(rec, &count);
    CHECK(count % 300 == 0 && count >= 300 && r[count - 1].kind == TSRI_COLL_ALL_GATHER);
    CHECK(r[count - 1].lane == 1);
    CHECK(r[0].bytes == (w->rank == 0 ? 2 : 3) * 3 * 4 && !strcmp(r[0].what, "gather me"));
    recorder_clear(rec);
    recorder_calls(rec, &count);
    CHECK(count == 0);
    rec->ops->destroy(rec);
    w->comm = inner;
    return tsr_world_barrier(w);
}

static void test_record(void **state)
{
    (void)state;
    spawn_ok(2, record_body, NULL, &small);
}

static tsr_status tiny_body(tsr_world *w, void *arg)
{
    int calls = *(int *)arg;
    float *src, *dst;
    tsri_group *g;
    tsri_ticket t;
    TSRI_TRY(all_ranks(w, 0, &g));
    TSRI_TRY(tsri_region_alloc(&w->region, 64, (void **)&src));
    TSRI_TRY(tsri_region_alloc(&w->region, 64, (void **)&dst));
    const tsri_segment s = {.src = src,
                            .dst = dst,
                            .dtype = TSR_F32,
                            .shape = TSR_DIMS(3),
                            .src_axis = -1,
                            .dst_axis = -1};
    for (int i = 0; i < calls; i++) {
        tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE,
                       .nseg = 1,
                       .seg = &s,
                       .what = "tiny",
                       .algo = (tsri_coll_algo)(i & 1)};
        for (int k = 0; k < 3; k++)
            src[k] = (float)(i % 1000 + w->rank + k);
        TSRI_TRY(w->comm->ops->start(g, &c, &t));
        TSRI_TRY(w->comm->ops->finish(g, &t));
        for (int k = 0; k < 3; k++)
            CHECK(dst[k] == (float)(4 * (i % 1000 + k) + 6));
        TSRI_TRY(w->comm->ops->release(g, &t));
    }
    return TSR_OK;
}

static void test_tiny_often(void **state)
{
    (void)state;
    /* Over Gloo each costs dozens of system calls. */
    int calls = strcmp(test_ranks_comm(), "local") ? 1000 : 10000;
    spawn_ok(4, tiny_body, &calls, &small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_many_segments),
        cmocka_unit_test(test_large_with_threads),
        cmocka_unit_test(test_outstanding),
        cmocka_unit_test(test_subgroups),
        cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_record),
        cmocka_unit_test(test_tiny_often),
    };
    return cmocka_run_group_tests_name(test_ranks_comm(), tests, NULL, NULL);
}
