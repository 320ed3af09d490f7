/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives for per-rank buffers: every operation, reduction and dtype, at sizes around the
 * limits of slots and lines, in the arena, on the heap and mixed, over thread ranks; with the local
 * communicator's own way and with calls of the vtable. Results are compared bit for bit. As a rank
 * that a launcher has started, the same over processes.
 */
#include "src/comm/collective/collective.h"
#include "tests/dist/collective/collective_values.h"
#include "tests/dist/comm/recorder.h"
#include "tests/sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define CHECK(cond)                                                                     \
    do {                                                                                \
        if (!(cond))                                                                    \
            return tsri_fail(TSR_ERR_INTERNAL, "%s:%d: %s", __FILE__, __LINE__, #cond); \
    } while (0)

/* The tests run once more on GPUs: see tests/cuda/collectives_on_device.h. */
#ifndef ON_DEVICE
#define ON_DEVICE 0
#endif

enum { GUARD = 64, MAX_RANKS = 8 };

/* 2 MiB of arena for a group: slots are then of 32 KiB. */
static const tsr_world_opts small = {
    .size = sizeof small, .arena_bytes = 2 << 20, .timeout_s = 60, .threads = 1};

typedef enum memory { ARENA, HEAP, MIXED } memory;

/* Buffers of one case, with guards behind them. */
typedef struct buffer {
    tsr_world *world;
    char *p;
    size_t bytes;
    bool heap;
} buffer;

static tsr_status take(tsr_world *w, memory where, int salt, size_t bytes, buffer *b)
{
    b->world = w;
    b->bytes = bytes;
    b->heap = where == HEAP || (where == MIXED && (tsr_world_rank(w) + salt) % 2);
    if (b->heap)
        CHECK((b->p = malloc(bytes + GUARD)) != NULL);
    else
        TSRI_TRY(tsr_alloc(w, bytes + GUARD, (void **)&b->p));
    memset(b->p, 0x5a, bytes + GUARD);
    return TSR_OK;
}

static tsr_status give(buffer *b)
{
    for (int i = 0; i < GUARD; i++)
        CHECK((unsigned char)b->p[b->bytes + (size_t)i] == 0x5a);
    if (b->heap)
        free(b->p);
    else
        tsr_free(b->world, b->p);
    return TSR_OK;
}

/* One operation's surroundings. */
typedef struct scene {
    tsr_world *world;
    tsr_group *g;
    int n, me, ranks[MAX_RANKS];
    memory where;
    tsr_dtype dtype;
    int64_t count;
    uint64_t seed;
    char *expected; /* room for n times count elements */
} scene;

static tsr_status differ(const scene *s, const char *what, const char *got, const char *expected,
                         size_t bytes)
{
    size_t at = 0, size = tsr_dtype_size(s->dtype);
    while (at < bytes && got[at] == expected[at])
        at++;
    return tsri_fail(
        TSR_ERR_INTERNAL, "%s of %lld %s over %d ranks, memory %d: element %zu differs on rank %d",
        what, (long long)s->count, tsr_dtype_name(s->dtype), s->n, (int)s->where, at / size, s->me);
}

#define SAME(s, what, got, expected, bytes)                         \
    do {                                                            \
        if ((bytes) > 0 && memcmp((got), (expected), (bytes)) != 0) \
            return differ((s), (what), (got), (expected), (bytes)); \
    } while (0)

/* --- reductions ------------------------------------------------------------------------------- */

static tsr_status try_reductions(scene *s, tsr_reduce_op op)
{
    size_t size = tsr_dtype_size(s->dtype), bytes = (size_t)s->count * size;
    int root = s->ranks[s->seed % (uint64_t)s->n];
    buffer b, all, part;
    TSRI_TRY(take(s->world, s->where, 0, bytes, &b));
    values_fill(s->dtype, b.p, s->count, s->ranks[s->me], 0, s->seed);
    values_reduce(s->dtype, op, s->n, s->ranks, s->expected, s->count, 0, s->seed);
    TSRI_TRY(tsr_all_reduce(s->g, b.p, s->count, s->dtype, op));
    SAME(s, "all_reduce", b.p, s->expected, bytes);

    values_fill(s->dtype, b.p, s->count, s->ranks[s->me], 0, s->seed);
    TSRI_TRY(tsr_reduce(s->g, b.p, s->count, s->dtype, op, root));
    if (s->ranks[s->me] != root)
        values_fill(s->dtype, s->expected, s->count, s->ranks[s->me], 0, s->seed);
    SAME(s, "reduce", b.p, s->expected, bytes);
    TSRI_TRY(give(&b));

    int64_t rows = s->count * s->n;
    TSRI_TRY(take(s->world, s->where, 1, bytes * (size_t)s->n, &all));
    TSRI_TRY(take(s->world, s->where, 0, bytes, &part));
    values_fill(s->dtype, all.p, rows, s->ranks[s->me], 0, s->seed);
    values_reduce(s->dtype, op, s->n, s->ranks, s->expected, s->count, s->me * s->count, s->seed);
    TSRI_TRY(tsr_reduce_scatter(s->g, all.p, part.p, s->count, s->dtype, op));
    SAME(s, "reduce_scatter", part.p, s->expected, bytes);
    TSRI_TRY(tsr_reduce_scatter(s->g, all.p, all.p, s->count, s->dtype, op));
    SAME(s, "reduce_scatter in place", all.p, s->expected, bytes);
    TSRI_TRY(give(&part));
    return give(&all);
}

/* --- moves ------------------------------------------------------------------------------------ */

static tsr_status try_broadcast(scene *s)
{
    size_t bytes = (size_t)s->count * tsr_dtype_size(s->dtype);
    buffer b;
    TSRI_TRY(take(s->world, s->where, 0, bytes, &b));
    for (int r = 0; r < s->n; r++) {
        values_fill(s->dtype, b.p, s->count, s->ranks[s->me], r, s->seed);
        values_fill(s->dtype, s->expected, s->count, s->ranks[r], r, s->seed);
        TSRI_TRY(tsr_broadcast(s->g, b.p, s->count, s->dtype, s->ranks[r]));
        SAME(s, "broadcast", b.p, s->expected, bytes);
    }
    return give(&b);
}

static tsr_status try_gathers(scene *s)
{
    size_t bytes = (size_t)s->count * tsr_dtype_size(s->dtype), all_bytes = bytes * (size_t)s->n;
    int root = s->ranks[s->seed % (uint64_t)s->n];
    buffer src, dst, part[MAX_RANKS];
    void *list[MAX_RANKS];
    TSRI_TRY(take(s->world, s->where, 0, bytes, &src));
    TSRI_TRY(take(s->world, s->where, 1, all_bytes, &dst));
    values_fill(s->dtype, src.p, s->count, s->ranks[s->me], 0, s->seed);
    for (int r = 0; r < s->n; r++) {
        values_fill(s->dtype, s->expected + (size_t)r * bytes, s->count, s->ranks[r], 0, s->seed);
        TSRI_TRY(take(s->world, s->where, r, bytes, &part[r]));
        list[r] = part[r].p;
    }
    TSRI_TRY(tsr_all_gather_into(s->g, src.p, dst.p, s->count, s->dtype));
    SAME(s, "all_gather_into", dst.p, s->expected, all_bytes);
    TSRI_TRY(tsr_all_gather(s->g, src.p, list, s->count, s->dtype));
    for (int r = 0; r < s->n; r++) {
        SAME(s, "all_gather", part[r].p, s->expected + (size_t)r * bytes, bytes);
        TSRI_TRY(give(&part[r]));
    }
    memset(dst.p, 0, all_bytes);
    TSRI_TRY(tsr_gather_to(s->g, src.p, s->ranks[s->me] == root ? dst.p : NULL, s->count, s->dtype,
                           root));
    if (s->ranks[s->me] == root)
        SAME(s, "gather", dst.p, s->expected, all_bytes);
    memset(dst.p, 0, all_bytes);
    memcpy(dst.p, src.p, bytes);
    TSRI_TRY(tsr_all_gather_into(s->g, dst.p, dst.p, s->count, s->dtype));
    SAME(s, "all_gather_into in place", dst.p, s->expected, all_bytes);

    memset(src.p, 0, bytes);
    TSRI_TRY(tsr_scatter_from(s->g, s->ranks[s->me] == root ? dst.p : NULL, src.p, s->count,
                              s->dtype, root));
    SAME(s, "scatter", src.p, s->expected + (size_t)s->me * bytes, bytes);
    TSRI_TRY(give(&dst));
    return give(&src);
}

/* What member i sends to member j: uneven, and nothing between some. */
static int64_t part_of(const scene *s, int i, int j)
{
    uint64_t h = values_hash((uint64_t)i + 7, (uint64_t)j + 3, s->seed);
    return h % 4 == 0 ? 0 : (int64_t)(h % (uint64_t)(s->count + 1));
}

static tsr_status try_all_to_all(scene *s)
{
    size_t size = tsr_dtype_size(s->dtype);
    int64_t out[MAX_RANKS], in[MAX_RANKS], nout = 0, nin = 0;
    buffer src, dst;
    for (int m = 0; m < s->n; m++) {
        nout += out[m] = part_of(s, s->me, m);
        nin += in[m] = part_of(s, m, s->me);
    }
    TSRI_TRY(take(s->world, s->where, 0, (size_t)nout * size, &src));
    TSRI_TRY(take(s->world, s->where, 1, (size_t)nin * size, &dst));
    values_fill(s->dtype, src.p, nout, s->ranks[s->me], 0, s->seed);
    char *to = s->expected;
    for (int m = 0; m < s->n; m++) {
        int64_t first = 0;
        for (int k = 0; k < s->me; k++)
            first += part_of(s, m, k);
        values_fill(s->dtype, to, in[m], s->ranks[m], first, s->seed);
        to += (size_t)in[m] * size;
    }
    TSRI_TRY(tsr_all_to_all(s->g, src.p, out, dst.p, in, s->dtype));
    SAME(s, "all_to_all", dst.p, s->expected, (size_t)nin * size);
    TSRI_TRY(give(&dst));
    return give(&src);
}

static tsr_status try_messages(scene *s)
{
    size_t bytes = (size_t)s->count * tsr_dtype_size(s->dtype);
    int next = s->ranks[(s->me + 1) % s->n], last = s->ranks[(s->me + s->n - 1) % s->n];
    buffer src, dst;
    if (s->n == 1)
        return TSR_OK;
    TSRI_TRY(take(s->world, s->where, 0, bytes, &src));
    TSRI_TRY(take(s->world, s->where, 1, bytes, &dst));
    values_fill(s->dtype, src.p, s->count, s->ranks[s->me], 0, s->seed);
    values_fill(s->dtype, s->expected, s->count, last, 0, s->seed);
    TSRI_TRY(tsr_send(s->g, src.p, s->count, s->dtype, next, 5));
    memset(src.p, 0, bytes); /* a send that returned is done */
    TSRI_TRY(tsr_recv(s->g, dst.p, s->count, s->dtype, last, 5));
    SAME(s, "send and recv", dst.p, s->expected, bytes);
    TSRI_TRY(give(&dst));
    return give(&src);
}

/* --- all of it -------------------------------------------------------------------------------- */

static tsr_status try_size(scene *s)
{
    bool is_float =
        s->dtype == TSR_F32 || s->dtype == TSR_F64 || s->dtype == TSR_F16 || s->dtype == TSR_BF16;
    for (int op = TSR_REDUCE_SUM; op <= (is_float ? TSR_REDUCE_AVG : TSR_REDUCE_PRODUCT); op++) {
        s->seed++;
        TSRI_TRY(try_reductions(s, (tsr_reduce_op)op));
    }
    TSRI_TRY(try_broadcast(s));
    TSRI_TRY(try_gathers(s));
    TSRI_TRY(try_all_to_all(s));
    TSRI_TRY(try_messages(s));
    return tsr_group_barrier(s->g);
}

/* Tries a group with every count and dtype, in the memories up to where_last. A sample takes every
 * n-th diagonal of these three, in which each of them comes with nearly all of the others. */
static tsr_status try_group(tsr_world *w, tsr_group *g, memory where_last, const int64_t *counts)
{
    scene s = {.world = w, .g = g, .n = tsr_group_size(g), .me = tsr_group_rank(g), .seed = 1};
    int64_t most = 0;
    for (int i = 0; i < s.n; i++)
        s.ranks[i] = tsr_group_world_rank(g, i);
    for (int i = 0; counts[i] >= 0; i++)
        most = most > counts[i] ? most : counts[i];
    CHECK((s.expected = malloc((size_t)(most * s.n + 1) * 8)) != NULL);
    tsr_status status = TSR_OK;
    for (int i = 0; counts[i] >= 0; i++)
        for (int t = TSR_DTYPE_F32; t < TSR_DTYPE_COUNT_; t++)
            for (int where = ARENA; where <= (int)where_last && status == TSR_OK; where++) {
                if ((i + t + where) % test_sample() != 0)
                    continue;
                s.count = counts[i];
                s.dtype = (tsr_dtype)t;
                s.where = (memory)where;
                status = try_size(&s);
            }
    free(s.expected);
    return status;
}

/* Lines, one shot and two phases (4 KiB), slots (32 KiB), of elements of 1 to 8 bytes. */
static const int64_t few[] = {0, 1, 2, 5, 17, 64, 500, 513, 1025, -1};
static const int64_t many[] = {2049, 4097, 8191, 8192, 8193, 20000, -1};

static tsr_status all_ranks(tsr_world *w, void *counts)
{
    tsr_group *g = tsr_world_group(w);
    CHECK(g != NULL);
    CHECK(tsr_group_size(g) == tsr_world_size(w) && tsr_group_rank(g) == tsr_world_rank(w));
    return try_group(w, g, MIXED, counts);
}

static void test_values(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n += n == 3 ? 2 : 1)
        if (tsr_spawn_with(n, all_ranks, (void *)(uintptr_t)few, &small) != TSR_OK)
            fail_msg("%d ranks: %s", n, tsr_last_error());
}

static void test_sizes(void **state)
{
    static const tsr_world_opts larger = {
        .size = sizeof larger, .arena_bytes = 4 << 20, .timeout_s = 60, .threads = 1};
    (void)state;
    for (int n = 2; n <= 3; n++)
        if (tsr_spawn_with(n, all_ranks, (void *)(uintptr_t)many, &larger) != TSR_OK)
            fail_msg("%d ranks: %s", n, tsr_last_error());
}

/* Through calls of the vtable, as with communicators that do not do whole tasks. */
static tsr_status by_calls(tsr_world *w, void *counts)
{
    tsri_comm *twin, *recorder;
    tsri_engine *e;
    tsr_group *g;
    int ranks[MAX_RANKS];
    for (int i = 0; i < w->nranks; i++)
        ranks[i] = i;
    TSRI_TRY(w->comm->ops->twin(w->comm, &twin));
    TSRI_TRY(recorder_create(twin, &recorder));
    recorder->in_region = true;
    TSRI_TRY(tsri_engine_create(w, recorder, &e));
    TSRI_TRY(tsri_engine_group(e, w->nranks, ranks, &g));
    tsr_status status = try_group(w, g, MIXED, counts);
    tsri_engine_destroy(e);
    recorder->ops->destroy(recorder);
    twin->ops->destroy(twin);
    return status;
}

static void test_calls(void **state)
{
    (void)state;
    if (ON_DEVICE) /* the engine is not the world's */
        skip();
    for (int n = 1; n <= 3; n++)
        if (tsr_spawn_with(n, by_calls, (void *)(uintptr_t)few, &small) != TSR_OK)
            fail_msg("%d ranks: %s", n, tsr_last_error());
}

/* Groups of some ranks, in orders of their own, at once. */
static tsr_status some_ranks(tsr_world *w, void *arg)
{
    static const int lists[][4] = {{3, 1}, {0, 4, 2}, {2, 1, 3, 0}, {4}};
    static const int sizes[] = {2, 3, 4, 1};
    static const int64_t counts[] = {3, 1100, -1};
    (void)arg;
    for (int l = 0; l < 4; l++) {
        bool in = false;
        tsr_group *g, *again;
        for (int i = 0; i < sizes[l]; i++)
            in |= lists[l][i] == w->rank;
        if (!in) {
            CHECK(tsr_group_create(w, sizes[l], lists[l], &g) == TSR_ERR_INVALID);
            continue;
        }
        TSRI_TRY(tsr_group_create(w, sizes[l], lists[l], &g));
        TSRI_TRY(tsr_group_create(w, sizes[l], lists[l], &again));
        CHECK(g == again);
        for (int i = 0; i < sizes[l]; i++)
            CHECK(tsr_group_world_rank(g, i) == lists[l][i]);
        CHECK(tsr_group_world_rank(g, -1) == -1 && tsr_group_world_rank(g, sizes[l]) == -1);
        TSRI_TRY(try_group(w, g, MIXED, counts));
    }
    return TSR_OK;
}

static void test_groups(void **state)
{
    (void)state;
    if (tsr_spawn_with(5, some_ranks, NULL, &small) != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

/* A NaN anywhere wins max and min, and stays in sums. */
static tsr_status nans(tsr_world *w, void *arg)
{
    tsr_group *g = tsr_world_group(w);
    (void)arg;
    for (int op = TSR_REDUCE_SUM; op <= TSR_REDUCE_AVG; op++) {
        float x[3] = {1, (float)w->rank, 2};
        if (w->rank == 1)
            x[1] = (float)(0.0 / (double)(x[0] - 1));
        TSRI_TRY(tsr_all_reduce(g, x, 3, TSR_F32, (tsr_reduce_op)op));
        CHECK(x[1] != x[1] && x[0] == x[0] && x[2] == x[2]);
    }
    return TSR_OK;
}

static void test_nans(void **state)
{
    (void)state;
    if (tsr_spawn_with(3, nans, NULL, &small) != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

/* One rank of several processes. */
static int as_rank(void)
{
    tsr_world *w;
    tsr_status status = tsr_world_create(&small, &w);
    if (status == TSR_OK) {
        /* Four are on machines of their own, where such a size goes in two phases. */
        static const int64_t apart[] = {20000, -1};
        status = all_ranks(w, (void *)(uintptr_t)(w->nranks == 4 ? apart : few));
        if (status == TSR_OK && w->nranks == 3)
            status = all_ranks(w, (void *)(uintptr_t)(const int64_t[]){8193, -1});
        if (status != TSR_OK)
            tsr_world_abort(w, tsr_last_error());
        tsr_world_destroy(w);
    }
    if (status != TSR_OK)
        fprintf(stderr, "%s\n", tsr_last_error());
    return status != TSR_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values), cmocka_unit_test(test_sizes), cmocka_unit_test(test_calls),
        cmocka_unit_test(test_groups), cmocka_unit_test(test_nans),
    };
    values_init();
    if (getenv("TESSERA_ARENA"))
        return as_rank();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
