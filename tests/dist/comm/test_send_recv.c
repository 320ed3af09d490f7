/* SPDX-License-Identifier: Apache-2.0 */
/* SEND_RECV: values and bytes, who waits for whom, many groups, and how it fails. */
#include "tests/dist/comm/ranks.h"
#include "tests/dist/comm/send_recv_values.h"
#include "tests/dist/comm/recorder.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define CHECK(cond)                                                                             \
    do {                                                                                        \
        if (!(cond))                                                                            \
            return tsri_fail(TSR_ERR_INTERNAL, "%s:%d: %s; last error: %s", __FILE__, __LINE__, \
                             #cond, tsr_last_error());                                          \
    } while (0)
#define CHECK_TEXT(part) CHECK(strstr(tsr_last_error(), part))

static const tsr_world_opts small = {
    .size = sizeof small, .arena_bytes = 4 << 20, .timeout_s = 60, .threads = 1};

static tsr_status all_ranks(tsr_world *w, int lane, tsri_group **out)
{
    int ranks[64];
    for (int i = 0; i < w->nranks; i++)
        ranks[i] = i;
    return w->comm->ops->group(w->comm, w->nranks, ranks, lane, out);
}

static void spawn_ok(int n, tsr_rank_fn *fn, void *arg)
{
    tsr_status status = test_ranks(n, fn, arg, &small);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
}

static tsr_status call(tsr_world *w, tsri_group *g, const tsri_coll *c)
{
    tsri_ticket t;
    TSRI_TRY(w->comm->ops->start(g, c, &t));
    TSRI_TRY(w->comm->ops->finish(g, &t));
    return w->comm->ops->release(g, &t);
}

/* --- values and bytes ------------------------------------------------------------------------- */

enum { SEGMENTS = 2 * (TSR_DTYPE_COUNT_ - 1), PULLS = 6 };

/* Two segments of each dtype; what is asked for follows from the seed, the same on all ranks but
 * for the pulls. */
typedef struct random_call {
    tsri_segment seg[SEGMENTS];
    tsri_pull pull[SEGMENTS][PULLS];
    int src[SEGMENTS][PULLS][64];
    int expected[SEGMENTS][WHOLE];
    uint64_t bytes;
} random_call;

static void draw_pulls(random_call *r, int i, uint64_t *state, const tsri_group *g,
                       const bool *gives)
{
    tsri_segment *s = &r->seg[i];
    s->npulls = sr_below(state, PULLS + 1);
    s->pulls = r->pull[i];
    s->fill = sr_below(state, 2);
    for (int k = 0; k < s->npulls; k++) {
        r->pull[i][k] = sr_random_pull(state, g->nranks, gives, r->src[i][k]);
        uint64_t count = 1;
        for (int a = 0; a < r->pull[i][k].ndim; a++)
            count *= (uint64_t)r->pull[i][k].length[a];
        for (int m = 0; m < r->pull[i][k].nsrc; m++)
            if (r->src[i][k][m] != g->index)
                r->bytes += count * tsr_dtype_size(s->dtype);
    }
}

static tsr_status draw(tsr_world *w, const tsri_group *g, tsr_reduce_op op, uint64_t seed,
                       random_call *r)
{
    r->bytes = 0;
    for (int i = 0; i < SEGMENTS; i++) {
        bool gives[64];
        uint64_t common = seed * 1000 + (uint64_t)i, mine = common * 64 + (uint64_t)g->index + 7;
        int must = sr_below(&common, g->nranks);
        for (int m = 0; m < g->nranks; m++)
            gives[m] = m == must || sr_below(&common, 3) > 0;
        tsri_segment *s = &r->seg[i];
        *s = (tsri_segment){.dtype = (tsr_dtype)(1 + i / 2), .shape = TSR_DIMS(i + 1, WHOLE)};
        size_t size = tsr_dtype_size(s->dtype) * WHOLE;
        char *src = w->region.base + i * WHOLE * 8;
        for (int e = 0; e < WHOLE; e++)
            sr_put(s->dtype, src, e, sr_value(g->index, i, e));
        s->src = gives[g->index] ? src : NULL;
        if (sr_below(&mine, 6) == 0)
            continue; /* gets nothing */
        draw_pulls(r, i, &mine, g, gives);
        s->dst = malloc(size); /* peers don't read it, so it may be anywhere */
        s->dst_count = WHOLE;
        CHECK(s->dst);
        memset(s->dst, 0x5a, size);
        sr_expect(s, op, i, r->expected[i]);
    }
    return TSR_OK;
}

static tsr_status verify(const tsri_group *g, const tsri_coll *c, const random_call *r)
{
    for (int i = 0; i < SEGMENTS; i++) {
        const tsri_segment *s = &r->seg[i];
        size_t size = tsr_dtype_size(s->dtype);
        for (int e = 0; s->dst && e < WHOLE; e++) {
            char expected[8];
            sr_put(s->dtype, expected, 0, r->expected[i][e]);
            if (memcmp((char *)s->dst + (size_t)e * size, expected, size))
                return tsri_fail(TSR_ERR_INTERNAL,
                                 "%s: op %d, rank %d of %d, seg %d %s: element %d", c->what, c->op,
                                 g->index, g->nranks, i, tsr_dtype_name(s->dtype), e);
        }
        free(s->dst);
    }
    return TSR_OK;
}

/* Bytes: as the oracle counts them, as tsri_coll_bytes foretells, as recorded, as really read. */
static tsr_status random_round(tsr_world *w, tsri_comm *rec, tsri_group *g, uint64_t seed,
                               random_call *r)
{
    tsri_coll c = {.kind = TSRI_COLL_SEND_RECV, .op = (tsr_reduce_op)(seed % 3), .what = "random"};
    tsri_comm_stats before, after;
    uint64_t bytes = 0;
    TSRI_TRY(draw(w, g, c.op, seed, r));
    c.nseg = SEGMENTS;
    c.seg = r->seg;
    for (int i = 0; i < SEGMENTS; i++)
        bytes += tsri_coll_bytes(c.kind, c.algo, g->nranks, g->index, 0, &r->seg[i]);
    w->comm->ops->stats(w->comm, &before);
    recorder_clear(rec);
    TSRI_TRY(call(w, g, &c));
    w->comm->ops->stats(w->comm, &after);
    int count;
    const recorded_call *record = recorder_calls(rec, &count);
    CHECK(bytes == r->bytes && count == 1 && record->bytes == bytes);
    CHECK(record->kind == TSRI_COLL_SEND_RECV && record->nranks == g->nranks);
    CHECK(after.calls[c.kind] == before.calls[c.kind] + 1);
    CHECK(after.bytes_read[c.kind] - before.bytes_read[c.kind] == bytes);
    return verify(g, &c, r);
}

static tsr_status random_body(tsr_world *w, void *arg)
{
    int rounds = *(int *)arg;
    tsri_comm *inner = w->comm, *rec;
    tsri_group *g;
    random_call *r = malloc(sizeof *r);
    CHECK(r);
    TSRI_TRY(recorder_create(inner, &rec));
    w->comm = rec;
    TSRI_TRY(all_ranks(w, 0, &g));
    tsr_status status = TSR_OK;
    for (int i = 0; i < rounds && status == TSR_OK; i++)
        status = random_round(w, rec, g, (uint64_t)(i * 10 + w->nranks), r);
    rec->ops->destroy(rec);
    w->comm = inner;
    free(r);
    return status;
}

static void test_random(void **state)
{
    (void)state;
    int rounds = 24;
    for (int n = 1; n <= 6; n++)
        spawn_ok(n, random_body, &rounds);
}

/* More than the threshold, so that a rank's own threads share the work: a transposition, and a
 * reduction of rows with gaps, of all ranks. */
static tsr_status large_body(tsr_world *w, void *arg)
{
    (void)arg;
    enum { N = 300, M = 401 };
    const int others[] = {(w->rank + 1) % w->nranks}, all[] = {1, 0, 2};
    float *src = (float *)(void *)w->region.base, *dst = src + N * M;
    const tsri_pull turned = {.ndim = 2,
                              .length = {N, M},
                              .src_step = {M, 1},
                              .dst_step = {1, N},
                              .nsrc = 1,
                              .src = others};
    tsri_pull gaps = {.ndim = 2,
                      .length = {N, M / 2},
                      .src_at = 1,
                      .src_step = {M, 2},
                      .dst_step = {M / 2, 1},
                      .nsrc = 3,
                      .src = all};
    tsri_segment s = {.src = src,
                      .dst = dst,
                      .dtype = TSR_F32,
                      .shape = TSR_DIMS(N, M),
                      .npulls = 1,
                      .pulls = &turned,
                      .dst_count = N * M};
    tsri_coll c = {.kind = TSRI_COLL_SEND_RECV, .nseg = 1, .seg = &s, .what = "large"};
    tsri_group *g;
    TSRI_TRY(all_ranks(w, 1, &g));
    for (int i = 0; i < N * M; i++)
        src[i] = (float)(i * (w->rank + 1));
    TSRI_TRY(call(w, g, &c));
    for (int i = 0; i < N; i++)
        for (int k = 0; k < M; k++)
            CHECK(dst[k * N + i] == (float)((i * M + k) * (others[0] + 1)));
    s.pulls = &gaps;
    TSRI_TRY(call(w, g, &c));
    for (int i = 0; i < N; i++)
        for (int k = 0; k < M / 2; k++)
            CHECK(dst[i * (M / 2) + k] == (float)((i * M + 1 + 2 * k) * 6));
    return TSR_OK;
}

static void test_large_with_threads(void **state)
{
    (void)state;
    tsr_world_opts o = small;
    o.threads = getenv("TESSERA_TEST_ONE_THREAD") ? 1 : 3;
    tsr_status status = test_ranks(3, large_body, NULL, &o);
    if (status != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

/* --- who waits for whom ----------------------------------------------------------------------- */

/* A call of n i32 that reads all of member `from`'s, or nothing (-1). */
typedef struct hop {
    int from;
    tsri_pull pull;
    tsri_segment seg;
    tsri_coll coll;
} hop;

static const tsri_coll *make_hop(hop *h, int from, const void *src, void *dst, int n)
{
    h->from = from;
    h->pull = (tsri_pull){
        .ndim = 1, .length = {n}, .src_step = {1}, .dst_step = {1}, .nsrc = 1, .src = &h->from};
    h->seg = (tsri_segment){
        .src = src, .dtype = TSR_I32, .shape = TSR_DIMS(n), .npulls = from >= 0, .pulls = &h->pull};
    if (from >= 0) {
        h->seg.dst = dst;
        h->seg.dst_count = n;
    }
    h->coll = (tsri_coll){.kind = TSRI_COLL_SEND_RECV,
                          .nseg = 1,
                          .seg = &h->seg,
                          .what = "hop",
                          .loc = {"a/stages.c", 12}};
    return &h->coll;
}

static tsr_status await(const _Atomic int *flag, int value)
{
    for (int i = 0; atomic_load(flag) < value; i++) {
        CHECK(i < 100000);
        usleep(100);
    }
    return TSR_OK;
}

/* 0 gives to 1, 2 to 3. Ranks 2 and 3 come to the call only when 1 has got its part, and only then
 * does 0 return from its release: nobody waits for whom he does not read. */
static tsr_status apart_body(tsr_world *w, void *arg)
{
    _Atomic int *got = arg;
    int32_t *mem = (int32_t *)(void *)w->region.base;
    hop h;
    tsri_group *g;
    tsri_ticket t;
    /* Gloo's members connect in the first call of a group: all together. */
    TSRI_TRY(tsr_world_barrier(w));
    TSRI_TRY(all_ranks(w, 0, &g));
    for (int i = 0; i < 16; i++)
        mem[i] = 100 * w->rank + i;
    const tsri_coll *c = make_hop(&h, w->rank % 2 ? w->rank - 1 : -1, mem, mem + 16, 16);
    if (w->rank >= 2)
        TSRI_TRY(await(got, 1));
    TSRI_TRY(w->comm->ops->start(g, c, &t));
    TSRI_TRY(w->comm->ops->finish(g, &t));
    for (int i = 0; w->rank % 2 && i < 16; i++)
        CHECK(mem[16 + i] == 100 * (w->rank - 1) + i);
    if (w->rank == 1)
        atomic_fetch_add(got, 1);
    return w->comm->ops->release(g, &t);
}

static void test_apart(void **state)
{
    (void)state;
    _Atomic int got = 0;
    spawn_ok(4, apart_body, &got);
}

/* 0 reads in its first call, and gives in the second. 1 gets its src back from both as soon as 0
 * has finished the first; 2 and 3, who do nothing, need only have started. */
static tsr_status givers_body(tsr_world *w, void *arg)
{
    _Atomic int *released = arg;
    int32_t *mem = (int32_t *)(void *)w->region.base;
    hop h[2];
    tsri_group *g;
    tsri_ticket t[2];
    TSRI_TRY(all_ranks(w, 0, &g));
    mem[0] = 7 + w->rank;
    const tsri_coll *first = make_hop(&h[0], w->rank == 0 ? 1 : -1, mem, mem + 1, 1);
    const tsri_coll *second = make_hop(&h[1], w->rank == 1 ? 0 : -1, mem, mem + 1, 1);
    TSRI_TRY(w->comm->ops->start(g, first, &t[0]));
    TSRI_TRY(w->comm->ops->start(g, second, &t[1]));
    if (w->rank <= 1)
        TSRI_TRY(w->comm->ops->finish(g, &t[0]));
    if (w->rank == 1) {
        TSRI_TRY(w->comm->ops->finish(g, &t[1]));
        CHECK(mem[1] == 7);
        TSRI_TRY(w->comm->ops->release(g, &t[0]));
        TSRI_TRY(w->comm->ops->release(g, &t[1]));
        atomic_fetch_add(released, 1);
        return TSR_OK;
    }
    TSRI_TRY(await(released, 1));
    for (int i = w->rank == 0; i < 2; i++)
        TSRI_TRY(w->comm->ops->finish(g, &t[i]));
    for (int i = 0; i < 2; i++)
        TSRI_TRY(w->comm->ops->release(g, &t[i]));
    return w->rank == 0 && mem[1] != 8 ? tsri_fail(TSR_ERR_INTERNAL, "%d", mem[1]) : TSR_OK;
}

static void test_givers(void **state)
{
    (void)state;
    _Atomic int released = 0;
    spawn_ok(4, givers_body, &released);
}

enum { CALLS = 200, RING = 64, WORDS = 40 };

typedef struct ahead {
    _Atomic int finished; /* calls of the producer */
} ahead;

/* The producer starts and finishes as many calls as the ring has places before the consumer comes
 * to the first; then it waits, and both get through. */
static tsr_status ahead_body(tsr_world *w, void *arg)
{
    ahead *a = arg;
    int32_t *mem = (int32_t *)(void *)w->region.base;
    static hop hops[2][CALLS];
    tsri_ticket t[CALLS];
    tsri_group *g;
    TSRI_TRY(all_ranks(w, 0, &g));
    if (w->rank == 1)
        TSRI_TRY(await(&a->finished, RING));
    for (int i = 0; i < CALLS; i++) {
        int32_t *at = mem + i * WORDS;
        for (int k = 0; w->rank == 0 && k < WORDS; k++)
            at[k] = i * 1000 + k;
        const tsri_coll *c =
            make_hop(&hops[w->rank][i], w->rank - 1, w->rank ? NULL : at, at, WORDS);
        if (w->rank == 1 && i == 0) {
            usleep(20000);
            CHECK(atomic_load(&a->finished) == RING);
        }
        TSRI_TRY(w->comm->ops->start(g, c, &t[i]));
        TSRI_TRY(w->comm->ops->finish(g, &t[i]));
        for (int k = 0; k < WORDS; k++)
            CHECK(at[k] == i * 1000 + k);
        if (w->rank == 0)
            atomic_fetch_add(&a->finished, 1);
    }
    for (int i = 0; i < CALLS; i++)
        TSRI_TRY(w->comm->ops->release(g, &t[i]));
    return TSR_OK;
}

static void test_ahead(void **state)
{
    (void)state;
    ahead a = {0};
    spawn_ok(2, ahead_body, &a);
}

/* A chain of stages with few buffers each: what is written again must have been released. Both
 * lanes: even calls go down the chain, odd ones up. */
enum { SLOTS = 3 };

static tsr_status start_stage(tsr_world *w, tsri_group *const *g, hop *h, int i, tsri_ticket *t)
{
    int n = w->nranks, lane = i & 1, before = lane ? w->rank + 1 : w->rank - 1;
    int32_t *src = (int32_t *)(void *)w->region.base + i % SLOTS * 2 * WORDS;
    for (int k = 0; k < WORDS; k++)
        src[k] = i * 1000 + w->rank * 100 + k;
    bool gives = lane ? w->rank > 0 : w->rank < n - 1;
    bool takes = before >= 0 && before < n;
    return w->comm->ops->start(
        g[lane], make_hop(h, takes ? before : -1, gives ? src : NULL, src + WORDS, WORDS), t);
}

static tsr_status finish_stage(tsr_world *w, tsri_group *const *g, const hop *h, int i,
                               tsri_ticket *t)
{
    TSRI_TRY(w->comm->ops->finish(g[i & 1], t));
    const int32_t *dst = h->seg.dst;
    for (int k = 0; dst && k < WORDS; k++)
        CHECK(dst[k] == i * 1000 + h->from * 100 + k);
    return TSR_OK;
}

static tsr_status chain_body(tsr_world *w, void *arg)
{
    (void)arg;
    uint64_t state = (uint64_t)w->rank;
    tsri_group *g[2];
    hop h[SLOTS];
    tsri_ticket t[SLOTS];
    TSRI_TRY(all_ranks(w, 0, &g[0]));
    TSRI_TRY(all_ranks(w, 1, &g[1]));
    for (int i = 0; i < CALLS + SLOTS; i++) {
        if (i >= SLOTS)
            TSRI_TRY(w->comm->ops->release(g[(i - SLOTS) & 1], &t[i % SLOTS]));
        if (i < CALLS)
            TSRI_TRY(start_stage(w, g, &h[i % SLOTS], i, &t[i % SLOTS]));
        if (sr_below(&state, 50) == 0)
            usleep(500);
        int j = i - 1; /* one call is under way while the next starts */
        if (j >= 0 && j < CALLS)
            TSRI_TRY(finish_stage(w, g, &h[j % SLOTS], j, &t[j % SLOTS]));
    }
    return TSR_OK;
}

static void test_chain(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++)
        spawn_ok(n, chain_body, NULL);
}

/* --- many groups ------------------------------------------------------------------------------ */

enum { MESH_DIMS = 4, SUBSETS = (1 << MESH_DIMS) - 1, LANES = 2, MANY = SUBSETS * LANES };

/* The ranks that differ from `rank` along the axes of `subset` alone. */
static int mesh_group(const int *mesh, int rank, int subset, int *ranks)
{
    int n = 1, stride = 1;
    ranks[0] = rank;
    for (int a = MESH_DIMS - 1; a >= 0; a--) {
        int at = rank / stride % mesh[a];
        if (subset >> a & 1) {
            for (int k = 1; k < mesh[a]; k++)
                for (int i = 0; i < n; i++)
                    ranks[k * n + i] = ranks[i] + k * stride;
            for (int i = 0; i < n * mesh[a]; i++)
                ranks[i] -= at * stride;
            n *= mesh[a];
        }
        stride *= mesh[a];
    }
    return n;
}

typedef struct many {
    tsri_group *g[MANY];
    tsri_ticket t[MANY];
    tsri_coll c[MANY];
    tsri_segment s[MANY];
    tsri_pull p[MANY][2];
    int next[MANY], all[64];
} many;

/* Reads one element of the next member, and the sum of one of all. */
static tsr_status start_many(tsr_world *w, many *m, int i, int round)
{
    int64_t *src = (int64_t *)(void *)w->region.base + 4 * i;
    src[0] = w->rank * 1000 + i;
    src[1] = w->rank + round;
    m->next[i] = (m->g[i]->index + 1) % m->g[i]->nranks;
    m->p[i][0] = (tsri_pull){.nsrc = 1, .src = &m->next[i]};
    m->p[i][1] = (tsri_pull){.src_at = 1, .dst_at = 1, .nsrc = m->g[i]->nranks, .src = m->all};
    m->s[i] = (tsri_segment){.src = src,
                             .dst = src + 2,
                             .dtype = TSR_I64,
                             .shape = TSR_DIMS(2),
                             .npulls = 2,
                             .pulls = m->p[i],
                             .dst_count = 2};
    m->c[i] =
        (tsri_coll){.kind = TSRI_COLL_SEND_RECV, .nseg = 1, .seg = &m->s[i], .what = "many groups"};
    return w->comm->ops->start(m->g[i], &m->c[i], &m->t[i]);
}

static tsr_status finish_many(tsr_world *w, many *m, int i, int round)
{
    const tsri_group *g = m->g[i];
    const int64_t *dst = m->s[i].dst;
    int64_t sum = 0;
    TSRI_TRY(w->comm->ops->finish(m->g[i], &m->t[i]));
    for (int k = 0; k < g->nranks; k++)
        sum += g->ranks[k] + round;
    CHECK(dst[0] == g->ranks[m->next[i]] * 1000 + i);
    CHECK(dst[1] == sum);
    return TSR_OK;
}

static tsr_status many_body(tsr_world *w, void *arg)
{
    const int *mesh = arg;
    static _Thread_local many m;
    for (int i = 0; i < 64; i++)
        m.all[i] = i;
    for (int i = 0; i < MANY; i++) {
        int ranks[64], n = mesh_group(mesh, w->rank, i / LANES + 1, ranks);
        TSRI_TRY(w->comm->ops->group(w->comm, n, ranks, i % LANES, &m.g[i]));
        CHECK(m.g[i]->ranks[m.g[i]->index] == w->rank);
    }
    for (int round = 0; round < mesh[MESH_DIMS]; round++) {
        for (int i = 0; i < MANY; i++)
            TSRI_TRY(start_many(w, &m, i, round));
        for (int k = 0; k < MANY; k++) /* in another order on each rank */
            TSRI_TRY(finish_many(w, &m, (k * 7 + w->rank * 11) % MANY, round));
        for (int i = 0; i < MANY; i++)
            TSRI_TRY(w->comm->ops->release(m.g[i], &m.t[i]));
    }
    return TSR_OK;
}

static void test_many_groups(void **state)
{
    (void)state;
    int two[] = {2, 2, 2, 2, 20}, wide[] = {2, 4, 2, 4, 2}, thin[] = {8, 2, 2, 2, 2};
    spawn_ok(16, many_body, two);
    spawn_ok(64, many_body, wide);
    spawn_ok(64, many_body, thin);
}

/* Groups are found again, and a rank may be in more of them than its share of the blocks. */
static tsr_status stock_body(tsr_world *w, void *arg)
{
    (void)arg;
    const int ranks[2] = {0, 1};
    tsri_group *g, *first;
    tsr_status status = TSR_OK;
    int lane = 0;
    if (w->rank > 1)
        return TSR_OK;
    TSRI_TRY(w->comm->ops->group(w->comm, 2, ranks, 0, &first));
    while (status == TSR_OK && lane < 10000)
        status = w->comm->ops->group(w->comm, 2, ranks, ++lane, &g);
    CHECK(status == TSR_ERR_NO_MEMORY && lane >= 400 && lane <= 512);
    CHECK_TEXT("too many groups of ranks");
    CHECK(w->comm->ops->group(w->comm, 2, ranks, lane, &g) == TSR_ERR_NO_MEMORY);
    TSRI_TRY(w->comm->ops->group(w->comm, 2, ranks, 0, &g));
    CHECK(g == first);
    return TSR_OK;
}

static void test_stock(void **state)
{
    (void)state;
    spawn_ok(4, stock_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random), cmocka_unit_test(test_large_with_threads),
        cmocka_unit_test(test_apart),  cmocka_unit_test(test_givers),
        cmocka_unit_test(test_ahead),  cmocka_unit_test(test_chain),
    };
    const struct CMUnitTest of_local[] = {
        cmocka_unit_test(test_many_groups),
        cmocka_unit_test(test_stock),
    };
    int failed = cmocka_run_group_tests_name("send_recv", tests, NULL, NULL);
    /* Dozens of groups of dozens of ranks in one process, and the arena's bounds. */
    if (!strcmp(test_ranks_comm(), "local"))
        failed += cmocka_run_group_tests_name("send_recv, many groups", of_local, NULL, NULL);
    return failed;
}
