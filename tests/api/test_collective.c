/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives for per-rank buffers, as thread ranks and as processes: every operation against what
 * one rank computes by itself, from values that are functions of (rank, element). */
#include <time.h>
#include <unistd.h>

#include "rank.h"

static const tsr_world_opts opts = {
    .size = sizeof opts, .arena_bytes = 128 << 20, .timeout_s = 30, .threads = 1};

static bool as_processes;

static void expect_ok(int n, tsr_rank_fn *fn, void *arg)
{
    tsr_status status = as_processes ? tsr_spawn_processes_with(n, fn, arg, &opts)
                                     : tsr_spawn_with(n, fn, arg, &opts);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
}

/* --- values of any dtype ---------------------------------------------------------------------- */
static const tsr_dtype dtypes[] = {TSR_F32, TSR_F64, TSR_F16, TSR_BF16,
                                   TSR_I64, TSR_I32, TSR_U8,  TSR_BOOL};
enum { NDTYPES = sizeof dtypes / sizeof *dtypes };

/* Small whole numbers, which f16 and bf16 hold exactly, and their sums over few ranks too. */
static double value(int rank, int64_t i, tsr_dtype dtype)
{
    int v = (int)((uint64_t)(i * 7 + rank * 3) % 11) + 1;
    return dtype == TSR_BOOL ? v & 1 : v;
}

static uint16_t bits_of(float f, tsr_dtype dtype)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if (dtype == TSR_BF16)
        return (uint16_t)(u >> 16);
    if (f == 0)
        return 0;
    /* Exact for what is used here: a normal f16. */
    return (uint16_t)((u >> 16 & 0x8000) | (((u >> 23 & 0xff) - 112) << 10 | (u >> 13 & 0x3ff)));
}

static float float_of(uint16_t h, tsr_dtype dtype)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    if (dtype == TSR_F16)
        u = h == 0 ? 0
                   : (uint32_t)(h & 0x8000) << 16 | ((h >> 10 & 0x1fu) + 112) << 23 |
                         (uint32_t)(h & 0x3ff) << 13;
    memcpy(&f, &u, sizeof f);
    return f;
}

static void put(void *p, int64_t i, tsr_dtype dtype, double v)
{
    switch (dtype) {
    case TSR_F32:
        ((float *)p)[i] = (float)v;
        break;
    case TSR_F64:
        ((double *)p)[i] = v;
        break;
    case TSR_I64:
        ((int64_t *)p)[i] = (int64_t)v;
        break;
    case TSR_I32:
        ((int32_t *)p)[i] = (int32_t)v;
        break;
    case TSR_F16:
    case TSR_BF16:
        ((uint16_t *)p)[i] = bits_of((float)v, dtype);
        break;
    default:
        ((uint8_t *)p)[i] = (uint8_t)v;
        break;
    }
}

static double take(const void *p, int64_t i, tsr_dtype dtype)
{
    switch (dtype) {
    case TSR_F32:
        return (double)((const float *)p)[i];
    case TSR_F64:
        return ((const double *)p)[i];
    case TSR_I64:
        return (double)((const int64_t *)p)[i];
    case TSR_I32:
        return ((const int32_t *)p)[i];
    case TSR_F16:
    case TSR_BF16:
        return (double)float_of(((const uint16_t *)p)[i], dtype);
    default:
        return ((const uint8_t *)p)[i];
    }
}

static double combine(tsr_reduce_op op, tsr_dtype dtype, int n, double a, double b)
{
    (void)n;
    switch (op) {
    case TSR_REDUCE_MAX:
        return a > b ? a : b;
    case TSR_REDUCE_MIN:
        return a < b ? a : b;
    case TSR_REDUCE_PRODUCT:
        return dtype == TSR_BOOL ? a != 0 && b != 0 : a * b;
    default:
        return dtype == TSR_BOOL ? a != 0 || b != 0 : a + b;
    }
}

/* The reduction over places 0 .. n-1 of a group of these world ranks. */
static double reduced(tsr_reduce_op op, tsr_dtype dtype, int n, const int *ranks, int64_t i)
{
    double v = value(ranks[0], i, dtype);
    for (int r = 1; r < n; r++)
        v = combine(op, dtype, n, v, value(ranks[r], i, dtype));
    return op == TSR_REDUCE_AVG ? v / n : v;
}

/* --- a buffer, in the arena or on the heap, between guards ------------------------------------ */
typedef struct buffer {
    char *base, *p;
    size_t bytes;
    bool in_arena;
} buffer;

enum { GUARD = 64 };

static tsr_status make(tsr_world *w, buffer *b, size_t bytes, bool in_arena)
{
    *b = (buffer){.bytes = bytes, .in_arena = in_arena};
    if (in_arena)
        TRY(tsr_alloc(w, bytes + 2 * GUARD, (void **)&b->base));
    else
        CHECK((b->base = malloc(bytes + 2 * GUARD)));
    memset(b->base, 0xa5, bytes + 2 * GUARD);
    b->p = b->base + GUARD;
    return TSR_OK;
}

static tsr_status drop(tsr_world *w, buffer *b)
{
    for (int i = 0; i < GUARD; i++)
        CHECK((unsigned char)b->base[i] == 0xa5 &&
              (unsigned char)b->p[b->bytes + (size_t)i] == 0xa5);
    if (b->in_arena)
        tsr_free(w, b->base);
    else
        free(b->base);
    return TSR_OK;
}

/* One operation of one size, everywhere. */
typedef struct trial {
    tsr_world *w;
    tsr_group *g;
    int n, me;
    const int *ranks;
    tsr_dtype dtype;
    int64_t count;
    bool in_arena, async, in_place;
} trial;

static tsr_status finish(const trial *t, tsr_status status, tsr_work **work)
{
    TRY(status);
    return t->async ? tsr_work_wait(work, 0) : TSR_OK;
}

#define WORK(t) ((t)->async ? &work : NULL)

static void fill_values(const trial *t, void *p, int64_t n, int64_t from)
{
    for (int64_t i = 0; i < n; i++)
        put(p, i, t->dtype, value(t->ranks[t->me], from + i, t->dtype));
}

static tsr_status expect_at(const trial *t, const char *what, const void *p, int64_t i, double want)
{
    double got = take(p, i, t->dtype);
    double limit = t->dtype == TSR_F64   ? 1e-15
                   : t->dtype == TSR_F32 ? 1e-6
                   : t->dtype == TSR_F16 ? 2e-3
                                         : 1.6e-2;
    bool whole =
        t->dtype != TSR_F32 && t->dtype != TSR_F64 && t->dtype != TSR_F16 && t->dtype != TSR_BF16;
    if (whole ? got == want : fabs(got - want) <= limit * fmax(1, fabs(want)))
        return TSR_OK;
    fprintf(stderr, "%s, %s, %lld elements, %d ranks: place %d, element %lld is %g, not %g\n", what,
            tsr_dtype_name(t->dtype), (long long)t->count, t->n, t->me, (long long)i, got, want);
    return TSR_ERR_INTERNAL;
}

static bool op_fits(tsr_reduce_op op, tsr_dtype dtype)
{
    bool is_float = dtype == TSR_F32 || dtype == TSR_F64 || dtype == TSR_F16 || dtype == TSR_BF16;
    bool small = dtype == TSR_U8 || dtype == TSR_F16 || dtype == TSR_BF16;
    return op == TSR_REDUCE_AVG ? is_float : op == TSR_REDUCE_PRODUCT ? !small : true;
}

static tsr_status try_reductions(const trial *t)
{
    size_t bytes = (size_t)t->count * tsr_dtype_size(t->dtype);
    for (int op = TSR_REDUCE_SUM; op <= TSR_REDUCE_AVG; op++) {
        tsr_work *work = NULL;
        buffer b, all, part;
        int root = t->ranks[(op + 1) % t->n];
        if (!op_fits((tsr_reduce_op)op, t->dtype))
            continue;
        TRY(make(t->w, &b, bytes, t->in_arena));
        fill_values(t, b.p, t->count, 0);
        TRY(finish(
            t,
            tsr_all_reduce_at(t->g, b.p, t->count, t->dtype, (tsr_reduce_op)op, WORK(t), TSR_HERE),
            &work));
        for (int64_t i = 0; i < t->count; i++)
            TRY(expect_at(t, "all_reduce", b.p, i,
                          reduced((tsr_reduce_op)op, t->dtype, t->n, t->ranks, i)));
        fill_values(t, b.p, t->count, 0);
        TRY(finish(t,
                   tsr_reduce_at(t->g, b.p, t->count, t->dtype, (tsr_reduce_op)op, root, WORK(t),
                                 TSR_HERE),
                   &work));
        for (int64_t i = 0; i < t->count; i++)
            TRY(expect_at(t, "reduce", b.p, i,
                          t->ranks[t->me] == root
                              ? reduced((tsr_reduce_op)op, t->dtype, t->n, t->ranks, i)
                              : value(t->ranks[t->me], i, t->dtype)));
        TRY(make(t->w, &all, bytes * (size_t)t->n, t->in_arena));
        TRY(make(t->w, &part, bytes, t->in_arena));
        fill_values(t, all.p, t->count * t->n, 0);
        TRY(finish(t,
                   tsr_reduce_scatter_at(t->g, all.p, part.p, t->count, t->dtype, (tsr_reduce_op)op,
                                         WORK(t), TSR_HERE),
                   &work));
        for (int64_t i = 0; i < t->count; i++)
            TRY(expect_at(
                t, "reduce_scatter", part.p, i,
                reduced((tsr_reduce_op)op, t->dtype, t->n, t->ranks, t->me * t->count + i)));
        TRY(drop(t->w, &b));
        TRY(drop(t->w, &all));
        TRY(drop(t->w, &part));
    }
    return TSR_OK;
}

static tsr_status try_gathers(const trial *t)
{
    size_t bytes = (size_t)t->count * tsr_dtype_size(t->dtype);
    int root = t->ranks[t->n - 1];
    bool is_root = t->ranks[t->me] == root;
    tsr_work *work = NULL;
    buffer mine, all, each[8];
    void *list[8];
    TRY(make(t->w, &mine, bytes, t->in_arena));
    TRY(make(t->w, &all, bytes * (size_t)t->n, t->in_arena));
    fill_values(t, mine.p, t->count, 0);
    TRY(finish(t,
               tsr_all_gather_into_at(t->g, mine.p, all.p, t->count, t->dtype, WORK(t), TSR_HERE),
               &work));
    for (int64_t i = 0; i < t->count * t->n; i++)
        TRY(expect_at(t, "all_gather_into", all.p, i,
                      value(t->ranks[i / t->count], i % t->count, t->dtype)));
    for (int r = 0; r < t->n; r++) {
        TRY(make(t->w, &each[r], bytes, t->in_arena));
        list[r] = each[r].p;
    }
    TRY(finish(t, tsr_all_gather_at(t->g, mine.p, list, t->count, t->dtype, WORK(t), TSR_HERE),
               &work));
    for (int r = 0; r < t->n; r++) {
        for (int64_t i = 0; i < t->count; i++)
            TRY(expect_at(t, "all_gather", list[r], i, value(t->ranks[r], i, t->dtype)));
        TRY(drop(t->w, &each[r]));
    }
    memset(all.p, 0, all.bytes);
    TRY(finish(t,
               tsr_gather_to_at(t->g, mine.p, is_root ? all.p : NULL, t->count, t->dtype, root,
                                WORK(t), TSR_HERE),
               &work));
    for (int64_t i = 0; i < t->count * t->n && is_root; i++)
        TRY(expect_at(t, "gather_to", all.p, i,
                      value(t->ranks[i / t->count], i % t->count, t->dtype)));
    fill_values(t, all.p, t->count * t->n, 5);
    TRY(finish(t,
               tsr_scatter_from_at(t->g, is_root ? all.p : NULL, mine.p, t->count, t->dtype, root,
                                   WORK(t), TSR_HERE),
               &work));
    for (int64_t i = 0; i < t->count; i++)
        TRY(expect_at(t, "scatter_from", mine.p, i,
                      value(root, 5 + t->me * t->count + i, t->dtype)));
    fill_values(t, mine.p, t->count, 9);
    TRY(finish(t, tsr_broadcast_at(t->g, mine.p, t->count, t->dtype, root, WORK(t), TSR_HERE),
               &work));
    for (int64_t i = 0; i < t->count; i++)
        TRY(expect_at(t, "broadcast", mine.p, i, value(root, 9 + i, t->dtype)));
    TRY(drop(t->w, &mine));
    return drop(t->w, &all);
}

/* Member r sends (r + 2 d + count) % 5 rows of count / 4 + 1 elements to member d. */
static int64_t sent(const trial *t, int r, int d)
{
    return (r + 2 * d + t->count) % 5 * (t->count / 4 + 1);
}

static tsr_status try_all_to_all(const trial *t)
{
    int64_t src_counts[8], dst_counts[8], nsrc = 0, ndst = 0;
    for (int r = 0; r < t->n; r++) {
        nsrc += src_counts[r] = sent(t, t->me, r);
        ndst += dst_counts[r] = sent(t, r, t->me);
    }
    size_t size = tsr_dtype_size(t->dtype);
    tsr_work *work = NULL;
    buffer src, dst;
    TRY(make(t->w, &src, (size_t)nsrc * size, t->in_arena));
    TRY(make(t->w, &dst, (size_t)ndst * size, t->in_arena));
    fill_values(t, src.p, nsrc, 0);
    TRY(finish(
        t,
        tsr_all_to_all_at(t->g, src.p, src_counts, dst.p, dst_counts, t->dtype, WORK(t), TSR_HERE),
        &work));
    int64_t at = 0;
    for (int r = 0; r < t->n; r++) {
        int64_t from = 0;
        for (int d = 0; d < t->me; d++)
            from += sent(t, r, d);
        for (int64_t i = 0; i < dst_counts[r]; i++)
            TRY(expect_at(t, "all_to_all", dst.p, at++, value(t->ranks[r], from + i, t->dtype)));
    }
    TRY(drop(t->w, &src));
    return drop(t->w, &dst);
}

static tsr_status try_sends(const trial *t)
{
    size_t bytes = (size_t)t->count * tsr_dtype_size(t->dtype);
    int to = (t->me + 1) % t->n, from = (t->me + t->n - 1) % t->n;
    buffer a, b;
    if (t->n == 1)
        return TSR_OK;
    TRY(make(t->w, &a, bytes, t->in_arena));
    TRY(make(t->w, &b, bytes, t->in_arena));
    /* Around the ring, all sending first; two tags, received the other way round. */
    tsr_work *work[2];
    for (int tag = 0; tag < 2; tag++) {
        fill_values(t, a.p, t->count, tag * 100);
        if (t->async) {
            TRY(tsr_send_async(t->g, a.p, t->count, t->dtype, t->ranks[to], tag, &work[tag]));
            TRY(tsr_work_wait(&work[tag], 0));
        } else {
            TRY(tsr_send(t->g, a.p, t->count, t->dtype, t->ranks[to], tag));
        }
    }
    for (int tag = 1; tag >= 0; tag--) {
        if (t->async) {
            TRY(tsr_recv_async(t->g, b.p, t->count, t->dtype, t->ranks[from], tag, &work[tag]));
            TRY(tsr_work_wait(&work[tag], 0));
        } else {
            TRY(tsr_recv(t->g, b.p, t->count, t->dtype, t->ranks[from], tag));
        }
        for (int64_t i = 0; i < t->count; i++)
            TRY(expect_at(t, "send", b.p, i, value(t->ranks[from], tag * 100 + i, t->dtype)));
    }
    TRY(drop(t->w, &a));
    return drop(t->w, &b);
}

static const int64_t counts[] = {0, 1, 3, 17, 255, 5000};

static tsr_status try_all(tsr_world *w, tsr_group *g)
{
    int ranks[8];
    for (int i = 0; i < tsr_group_size(g); i++)
        ranks[i] = tsr_group_world_rank(g, i);
    for (int d = 0; d < NDTYPES; d++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (int how = 0; how < 4; how++) {
                const trial t = {.w = w,
                                 .g = g,
                                 .n = tsr_group_size(g),
                                 .me = tsr_group_rank(g),
                                 .ranks = ranks,
                                 .dtype = dtypes[d],
                                 .count = counts[c],
                                 .in_arena = how & 1,
                                 .async = how >> 1};
                TRY(try_reductions(&t));
                TRY(try_gathers(&t));
                TRY(try_all_to_all(&t));
                TRY(try_sends(&t));
            }
    return tsr_group_barrier(g);
}

static tsr_status whole_world(tsr_world *w, void *arg)
{
    (void)arg;
    return try_all(w, tsr_world_group(w));
}

static void test_whole_world(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++)
        expect_ok(n, whole_world, NULL);
}

/* {3, 1, 2} and {0, 4} of five ranks at the same time, then all of them. */
static tsr_status sub_groups(tsr_world *w, void *arg)
{
    static const int odd[] = {3, 1, 2}, even[] = {0, 4};
    (void)arg;
    int rank = tsr_world_rank(w);
    bool in_even = rank == 0 || rank == 4;
    tsr_group *g, *again;
    TRY(tsr_group_create(w, in_even ? 2 : 3, in_even ? even : odd, &g));
    TRY(tsr_group_create(w, in_even ? 2 : 3, in_even ? even : odd, &again));
    CHECK(g == again && tsr_group_size(g) == (in_even ? 2 : 3));
    CHECK(tsr_group_world_rank(g, tsr_group_rank(g)) == rank);
    CHECK(tsr_group_world_rank(g, 3) == -1 && tsr_group_world_rank(g, -1) == -1);
    TRY(try_all(w, g));
    return tsr_group_barrier(tsr_world_group(w));
}

static void test_sub_groups(void **state)
{
    (void)state;
    expect_ok(5, sub_groups, NULL);
}

/* Large ones, which go in pieces; the same bits on all ranks, in each run. */
static tsr_status large(tsr_world *w, void *arg)
{
    (void)arg;
    tsr_group *g = tsr_world_group(w);
    int n = tsr_world_size(w), rank = tsr_world_rank(w);
    for (int how = 0; how < 4; how++) {
        int64_t count = (1 << 20) + 12345 * (how + 1);
        buffer b, first;
        TRY(make(w, &b, (size_t)count * 4, how & 1));
        TRY(make(w, &first, (size_t)count * 4, false));
        for (int round = 0; round < 3; round++) {
            tsr_work *work = NULL;
            float *x = (float *)(void *)b.p;
            for (int64_t i = 0; i < count; i++)
                x[i] = (float)(1.0 / (double)(i % 1000 + 1 + rank));
            TRY(tsr_all_reduce_at(g, x, count, TSR_F32, TSR_REDUCE_SUM, how >> 1 ? &work : NULL,
                                  TSR_HERE));
            if (how >> 1)
                TRY(tsr_work_wait(&work, 0));
            if (round == 0)
                memcpy(first.p, b.p, b.bytes);
            CHECK(!memcmp(first.p, b.p, b.bytes));
        }
        for (int64_t i = 0; i < count; i += 997) {
            double want = 0;
            for (int r = 0; r < n; r++)
                want += 1.0 / (double)(i % 1000 + 1 + r);
            CHECK(near_to((double)((float *)(void *)b.p)[i], want, 1e-6));
        }
        /* Everybody's bits are rank 0's. */
        TRY(tsr_broadcast(g, first.p, count, TSR_F32, 0));
        CHECK(!memcmp(first.p, b.p, b.bytes));
        TRY(drop(w, &b));
        TRY(drop(w, &first));
    }
    return TSR_OK;
}

static void test_large(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++)
        expect_ok(n, large, NULL);
}

/* Two operations under way while one rank is late: they wait for it, the others go on. */
static tsr_status overlap(tsr_world *w, void *arg)
{
    (void)arg;
    tsr_group *g = tsr_world_group(w);
    int n = tsr_world_size(w), rank = tsr_world_rank(w);
    double a[100], b[50];
    for (int i = 0; i < 100; i++)
        a[i] = rank + i;
    for (int i = 0; i < 50; i++)
        b[i] = rank * i;
    tsr_work *one, *two;
    if (rank == n - 1)
        usleep(200000);
    TRY(tsr_all_reduce_async(g, a, 100, TSR_F64, TSR_REDUCE_SUM, &one));
    TRY(tsr_all_reduce_async(g, b, 50, TSR_F64, TSR_REDUCE_MAX, &two));
    if (n > 1 && rank == 0) {
        tsr_status status = tsr_work_wait(&one, 0.01);
        CHECK(status == TSR_OK || (status == TSR_ERR_TIMEOUT && one));
    }
    TRY(tsr_work_wait(&two, 0));
    CHECK(!two && (!one || tsr_work_test(one))); /* a later one implies the earlier */
    if (one)
        TRY(tsr_work_wait(&one, 0));
    for (int i = 0; i < 100; i++)
        CHECK(a[i] == n * i + n * (n - 1) / 2.0);
    for (int i = 0; i < 50; i++)
        CHECK(b[i] == (n - 1) * i);
    CHECK(tsr_work_wait(&two, 0) == TSR_ERR_INVALID && tsr_work_wait(NULL, 0) == TSR_ERR_INVALID);
    return TSR_OK;
}

static void test_overlap(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++)
        expect_ok(n, overlap, NULL);
}

/* Many under way in three groups, started and waited for in orders that differ by rank. */
enum { STORM = 60 };

static tsr_status storm(tsr_world *w, void *arg)
{
    static const int pairs[2][2] = {{0, 1}, {2, 3}};
    (void)arg;
    int rank = tsr_world_rank(w);
    tsr_group *groups[2] = {tsr_world_group(w), NULL};
    TRY(tsr_group_create(w, 2, pairs[rank / 2], &groups[1]));
    static _Thread_local int64_t data[2][STORM][64];
    tsr_work *work[2][STORM];
    uint32_t seed = 77 + (uint32_t)rank;
    int next[2] = {0, 0};
    while (next[0] < STORM || next[1] < STORM) {
        seed = seed * 1664525 + 1013904223;
        int which = next[0] == STORM ? 1 : next[1] == STORM ? 0 : seed >> 16 & 1, k = next[which]++;
        for (int i = 0; i < 64; i++)
            data[which][k][i] = rank * 1000 + k * 10 + i;
        TRY(tsr_all_reduce_async(groups[which], data[which][k], 1 + k, TSR_I64, TSR_REDUCE_SUM,
                                 &work[which][k]));
        if ((seed >> 20) % 13 == 0)
            usleep(seed >> 18 & 1023);
    }
    for (int k = STORM - 1; k >= 0; k--)
        for (int which = 0; which < 2; which++) {
            TRY(tsr_work_wait(&work[which][k], 0));
            int n = which ? 2 : 4, first = which ? rank / 2 * 2 : 0;
            for (int i = 0; i <= k; i++)
                CHECK(data[which][k][i] == 1000 * (first * n + n * (n - 1) / 2) + n * (k * 10 + i));
        }
    return TSR_OK;
}

static void test_storm(void **state)
{
    (void)state;
    expect_ok(4, storm, NULL);
}

/* --- wrong calls ------------------------------------------------------------------------------ */
#define FAILS(expr, wanted, part)                                             \
    do {                                                                      \
        tsr_status fails_ = (expr);                                           \
        if (fails_ != (wanted) || !strstr(tsr_last_error(), part)) {          \
            fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #expr, \
                    tsr_status_name(fails_), tsr_last_error());               \
            return TSR_ERR_INTERNAL;                                          \
        }                                                                     \
    } while (0)

static tsr_status wrong(tsr_world *w, void *arg)
{
    (void)arg;
    tsr_group *g = tsr_world_group(w), *none;
    float x[8];
    static const int others[] = {0, 7}, twice[] = {0, 0};
    FAILS(tsr_all_reduce(NULL, x, 1, TSR_F32, TSR_REDUCE_SUM), TSR_ERR_INVALID, "group");
    FAILS(tsr_all_reduce(g, NULL, 1, TSR_F32, TSR_REDUCE_SUM), TSR_ERR_INVALID, "NULL");
    FAILS(tsr_all_reduce(g, x, -1, TSR_F32, TSR_REDUCE_SUM), TSR_ERR_INVALID, "-1");
    FAILS(tsr_all_reduce(g, x, 1, TSR_DTYPE_NONE, TSR_REDUCE_SUM), TSR_ERR_INVALID, "dtype");
    FAILS(tsr_all_reduce(g, x, 1, TSR_F32, (tsr_reduce_op)17), TSR_ERR_INVALID, "reduction 17");
    FAILS(tsr_all_reduce(g, x, 1, TSR_I32, TSR_REDUCE_AVG), TSR_ERR_INVALID, "i32");
    FAILS(tsr_broadcast(g, x, 1, TSR_F32, 9), TSR_ERR_INVALID, "9");
    FAILS(tsr_send(g, x, 1, TSR_F32, tsr_world_rank(w), 0), TSR_ERR_INVALID, "itself");
    FAILS(tsr_send(g, x, 1, TSR_F32, 1 - tsr_world_rank(w), 70000), TSR_ERR_INVALID, "70000");
    FAILS(tsr_all_gather_into(g, x, x + 1, 2, TSR_F32), TSR_ERR_INVALID, "overlap");
    FAILS(tsr_group_create(w, 2, others, &none), TSR_ERR_INVALID, "7");
    FAILS(tsr_group_create(w, 2, twice, &none), TSR_ERR_INVALID, "twice");
    CHECK(tsr_group_size(NULL) == 0 && !tsr_world_group(NULL));
    tsr_free(w, NULL);
    /* Nothing of this was an operation. */
    x[0] = 1;
    TRY(tsr_all_reduce(g, x, 1, TSR_F32, TSR_REDUCE_SUM));
    CHECK(x[0] == 2);
    return TSR_OK;
}

static void test_wrong(void **state)
{
    (void)state;
    expect_ok(2, wrong, NULL);
}

/* After a disagreement the group is over, for each rank with the same text; others go on. */
static tsr_status over(tsr_world *w, void *arg)
{
    (void)arg;
    static const int both[] = {1, 0};
    tsr_group *g = tsr_world_group(w), *h;
    float x[8] = {0};
    int rank = tsr_world_rank(w);
    FAILS(tsr_all_reduce(g, x, 4 + rank, TSR_F32, TSR_REDUCE_SUM), TSR_ERR_MISMATCH,
          "ranks disagree: rank 0 is at all_reduce #1 (test_collective.c:");
    tsr_work *work = NULL;
    tsr_status status = tsr_all_reduce_async(g, x, 4, TSR_F32, TSR_REDUCE_SUM, &work);
    if (status == TSR_OK)
        status = tsr_work_wait(&work, 0);
    CHECK(status != TSR_OK && strstr(tsr_last_error(), "disagree"));
    TRY(tsr_group_create(w, 2, both, &h));
    x[0] = (float)(rank + 1);
    TRY(tsr_all_reduce(h, x, 1, TSR_F32, TSR_REDUCE_SUM));
    CHECK(x[0] == 3);
    return TSR_OK;
}

static void test_over(void **state)
{
    (void)state;
    expect_ok(2, over, NULL);
}

static int processes(void **state)
{
    (void)state;
    as_processes = true;
    return 0;
}

static int threads(void **state)
{
    (void)state;
    as_processes = false;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_world),
        cmocka_unit_test(test_sub_groups),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_storm),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_over),
        cmocka_unit_test_setup_teardown(test_whole_world, processes, threads),
        cmocka_unit_test_setup_teardown(test_sub_groups, processes, threads),
        cmocka_unit_test_setup_teardown(test_large, processes, threads),
        cmocka_unit_test_setup_teardown(test_storm, processes, threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
