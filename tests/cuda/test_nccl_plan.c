/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plans of all members of a group, done together by a machine that has neither CUDA nor NCCL:
 * that they meet each other, stay within their memory, and come to what one rank computes by
 * itself.
 */
#include "src/comm/schedule/plan.h"
#include "src/plan/plan.h"
#include "tests/dist/comm/send_recv_values.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MAX_RANKS = 9, MAX_SEG = 8, MAX_PULLS = 6 };

/* A rank of the machine: its call, and memory of exactly the size that it may use. */
typedef struct member {
    tsri_coll coll;
    tsri_segment seg[MAX_SEG];
    size_t src_bytes[MAX_SEG], dst_bytes[MAX_SEG];
    tsri_nccl_plan plan;
    char *stage;
    int at; /* next step */
} member;

typedef struct machine {
    int n;
    member m[MAX_RANKS];
    int64_t *words;
} machine;

static const int ranks[MAX_RANKS] = {0, 1, 2, 3, 4, 5, 6, 7, 8};

/* --- doing steps ------------------------------------------------------------------------------ */
static char *find(const member *m, tsri_nccl_place p, int64_t bytes)
{
    const char *base = NULL;
    size_t room = 0;
    switch (p.where) {
    case TSRI_NCCL_NOWHERE:
        return NULL;
    case TSRI_NCCL_SRC:
        base = m->seg[p.seg].src;
        room = m->src_bytes[p.seg];
        break;
    case TSRI_NCCL_DST:
        base = m->seg[p.seg].dst;
        room = m->dst_bytes[p.seg];
        break;
    case TSRI_NCCL_STAGE:
        base = m->stage;
        room = m->plan.stage_bytes;
        break;
    }
    assert_true(p.at >= 0 && bytes >= 0 && (size_t)(p.at + bytes) <= room);
    return (char *)(uintptr_t)base + p.at;
}

/* x = x op y. The sum of bools is their "or", also where NCCL is told that it is a max. */
static void combine(tsr_dtype t, tsr_reduce_op op, char *x, const char *y)
{
    if (t == TSR_F32) {
        float a, b;
        memcpy(&a, x, sizeof a);
        memcpy(&b, y, sizeof b);
        a = op == TSR_REDUCE_SUM ? a + b : (op == TSR_REDUCE_MAX) == (a > b) ? a : b;
        memcpy(x, &a, sizeof a);
    } else if (t == TSR_I32) {
        int32_t a, b;
        memcpy(&a, x, sizeof a);
        memcpy(&b, y, sizeof b);
        a = op == TSR_REDUCE_SUM ? a + b : (op == TSR_REDUCE_MAX) == (a > b) ? a : b;
        memcpy(x, &a, sizeof a);
    } else {
        assert_true(t == TSR_BOOL || (t == TSR_U8 && op != TSR_REDUCE_SUM));
        *x = op == TSR_REDUCE_MIN ? *x && *y : *x || *y;
    }
}

static void do_move(const member *m, const tsri_nccl_step *s)
{
    const tsri_move *mv = &s->move;
    int64_t index[TSR_MAX_NDIM] = {0}, count = 1, size = (int64_t)tsr_dtype_size(mv->dtype);
    for (int a = 0; a < mv->ndim; a++)
        count *= mv->length[a];
    for (int64_t n = 0; n < count; n++) {
        int64_t from = mv->src_at, to = mv->dst_at;
        char v[8];
        for (int a = 0; a < mv->ndim; a++) {
            from += index[a] * mv->src_step[a];
            to += index[a] * mv->dst_step[a];
        }
        for (int k = 0; k < mv->nsrc; k++) {
            tsri_nccl_place p = m->plan.sources[s->first + k];
            p.at += from * size;
            const char *x = find(m, p, size);
            if (k == 0)
                memcpy(v, x, (size_t)size);
            else
                combine(mv->dtype, mv->op, v, x);
        }
        tsri_nccl_place p = s->dst;
        p.at += to * size;
        memcpy(find(m, p, size), v, (size_t)size);
        for (int a = 0; a < mv->ndim && ++index[a] == mv->length[a]; a++)
            index[a] = 0;
    }
}

static void do_fill(const member *m, const tsri_nccl_step *s)
{
    size_t size = tsr_dtype_size(s->dtype);
    char *dst = find(m, s->dst, s->count * (int64_t)size);
    int v = s->op == TSR_REDUCE_SUM   ? (s->dtype == TSR_BOOL ? 1 : NOTHING)
            : s->op == TSR_REDUCE_MAX ? LOWEST
                                      : HIGHEST;
    for (int64_t i = 0; i < s->count; i++)
        sr_put(s->dtype, dst, i, v);
}

static bool is_here(const tsri_nccl_step *s)
{
    return s->kind == TSRI_NCCL_MOVE || s->kind == TSRI_NCCL_FILL;
}

/* Does what needs nobody else; gives the launch that follows. */
static const tsri_nccl_step *next_launch(member *m, int *out_count)
{
    const tsri_nccl_plan *p = &m->plan;
    for (; m->at < p->nsteps && is_here(&p->steps[m->at]); m->at++) {
        if (p->steps[m->at].kind == TSRI_NCCL_MOVE)
            do_move(m, &p->steps[m->at]);
        else
            do_fill(m, &p->steps[m->at]);
    }
    *out_count = 0;
    if (m->at == p->nsteps)
        return NULL;
    const tsri_nccl_step *first = &p->steps[m->at];
    if (first->kind != TSRI_NCCL_GROUP_START) {
        m->at++;
        *out_count = 1;
        return first;
    }
    while (p->steps[++m->at].kind != TSRI_NCCL_GROUP_END)
        ++*out_count;
    m->at++;
    return first + 1;
}

static bool is_between_two(const tsri_nccl_step *s)
{
    return s->kind == TSRI_NCCL_SEND || s->kind == TSRI_NCCL_RECV;
}

/* The k-th collective of a launch, or the k-th send or receive with a peer; NULL: there is none. */
static const tsri_nccl_step *pick(const tsri_nccl_step *s, int count, tsri_nccl_step_kind kind,
                                  int peer, int k)
{
    for (int i = 0; i < count; i++) {
        bool fits = kind == TSRI_NCCL_STEP_COUNT_ ? !is_between_two(&s[i])
                                                  : s[i].kind == kind && s[i].peer == peer;
        if (fits && k-- == 0)
            return &s[i];
    }
    return NULL;
}

static void do_collective(machine *mc, const tsri_nccl_step *const *steps)
{
    const tsri_nccl_step *s = steps[0];
    int n = mc->n;
    int64_t size = (int64_t)tsr_dtype_size(s->dtype), bytes = s->count * size;
    bool scatters = s->kind == TSRI_NCCL_REDUCE_SCATTER, gathers = s->kind == TSRI_NCCL_ALL_GATHER;
    int64_t total = scatters || gathers ? bytes * n : bytes;
    char *result = malloc((size_t)total);
    for (int r = 0; r < n; r++) {
        assert_true(steps[r]->kind == s->kind && steps[r]->count == s->count &&
                    steps[r]->dtype == s->dtype && steps[r]->peer == s->peer &&
                    (steps[r]->op == s->op || gathers || s->kind == TSRI_NCCL_BROADCAST));
        const char *src = find(&mc->m[r], steps[r]->src, scatters ? total : bytes);
        if (s->kind == TSRI_NCCL_BROADCAST) {
            assert_true((src != NULL) == (r == s->peer));
            if (src)
                memcpy(result, src, (size_t)bytes);
        } else if (gathers) {
            memcpy(result + r * bytes, src, (size_t)bytes);
        } else if (r == 0) {
            memcpy(result, src, (size_t)total);
        } else {
            for (int64_t i = 0; i < total; i += size)
                combine(s->dtype, s->op, result + i, src + i);
        }
    }
    for (int r = 0; r < n; r++) {
        char *dst = find(&mc->m[r], steps[r]->dst, gathers ? total : bytes);
        assert_true((dst != NULL) == (s->kind != TSRI_NCCL_REDUCE || r == s->peer));
        if (dst)
            memcpy(dst, scatters ? result + r * bytes : result, (size_t)(gathers ? total : bytes));
    }
    free(result);
}

static void do_pair(machine *mc, int from, int to, const tsri_nccl_step *const *launch,
                    const int *counts)
{
    for (int k = 0;; k++) {
        const tsri_nccl_step *s = pick(launch[from], counts[from], TSRI_NCCL_SEND, to, k);
        const tsri_nccl_step *r = pick(launch[to], counts[to], TSRI_NCCL_RECV, from, k);
        assert_true(!s == !r);
        if (!s)
            return;
        assert_true(s->count == r->count && s->dtype == r->dtype && s->count > 0);
        int64_t bytes = s->count * (int64_t)tsr_dtype_size(s->dtype);
        memcpy(find(&mc->m[to], r->dst, bytes), find(&mc->m[from], s->src, bytes), (size_t)bytes);
    }
}

/* All members' next launches. False: all are done. */
static bool do_launch(machine *mc)
{
    const tsri_nccl_step *launch[MAX_RANKS], *steps[MAX_RANKS];
    int counts[MAX_RANKS], any = 0;
    for (int r = 0; r < mc->n; r++) {
        launch[r] = next_launch(&mc->m[r], &counts[r]);
        any += counts[r];
    }
    for (int k = 0; any; k++) {
        for (int r = 0; r < mc->n; r++) {
            steps[r] = pick(launch[r], counts[r], TSRI_NCCL_STEP_COUNT_, 0, k);
            assert_true(!steps[r] == !steps[0]);
        }
        if (!steps[0])
            break;
        do_collective(mc, steps);
    }
    for (int from = 0; any && from < mc->n; from++)
        for (int to = 0; to < mc->n; to++)
            do_pair(mc, from, to, launch, counts);
    return any;
}

static void describe_all(machine *mc, tsri_nccl_words *out)
{
    int64_t most = 1;
    for (int r = 0; r < mc->n; r++) {
        int64_t count = tsri_nccl_describe(&mc->m[r].coll, -1, 0, NULL);
        most = count > most ? count : most;
    }
    mc->words = calloc((size_t)(most * mc->n), sizeof *mc->words);
    for (int r = 0; r < mc->n; r++)
        tsri_nccl_describe(&mc->m[r].coll, -1, most, mc->words + r * most);
    *out = (tsri_nccl_words){mc->words, most};
}

/* Makes all plans and does them. */
static void run(machine *mc)
{
    tsri_nccl_words words = {0};
    if (mc->m[0].coll.kind == TSRI_COLL_SEND_RECV)
        describe_all(mc, &words);
    for (int r = 0; r < mc->n; r++) {
        member *m = &mc->m[r];
        m->coll.seg = m->seg;
        uint64_t bytes = 0;
        for (int i = 0; i < m->coll.nseg; i++)
            bytes +=
                tsri_coll_bytes(m->coll.kind, m->coll.algo, mc->n, r, m->coll.root, &m->seg[i]);
        if (tsri_coll_check_here(&m->coll, mc->n, r, false) != TSR_OK ||
            tsri_nccl_plan_make(NULL, &m->coll, mc->n, r, ranks, &words, false, &m->plan) != TSR_OK)
            fail_msg("%s", tsr_last_error());
        assert_int_equal(m->plan.bytes_read, bytes);
        m->stage = malloc(m->plan.stage_bytes + 1);
    }
    while (do_launch(mc))
        ;
}

static void finish(machine *mc)
{
    for (int r = 0; r < mc->n; r++) {
        for (int i = 0; i < mc->m[r].coll.nseg; i++) {
            free((void *)(uintptr_t)mc->m[r].seg[i].src);
            free(mc->m[r].seg[i].dst);
        }
        free(mc->m[r].stage);
        tsri_nccl_plan_finish(&mc->m[r].plan);
    }
    free(mc->words);
}

/* --- pieces ----------------------------------------------------------------------------------- */
/* Deals n things to k parts, one by one; the start and the count of part i. */
static void deal(int64_t n, int k, int i, int64_t *start, int64_t *count)
{
    int64_t counts[MAX_RANKS] = {0};
    for (int64_t e = 0; e < n; e++)
        counts[e % k]++;
    *start = 0;
    for (int p = 0; p < i; p++)
        *start += counts[p];
    *count = counts[i];
}

/* Element `local` of a side, in the whole; the side's elements in *out_count. */
static int64_t to_whole(tsr_dims d, int axis, int n, int i, int64_t local, int64_t *out_count)
{
    int64_t at = 0, scale = 1;
    *out_count = 1;
    for (int a = d.ndim - 1; a >= 0; a--) {
        int64_t start = 0, length = d.d[a];
        if (a == axis)
            deal(d.d[a], n, i, &start, &length);
        *out_count *= length;
        if (length == 0)
            continue;
        at += (start + local % length) * scale;
        local /= length;
        scale *= d.d[a];
    }
    return at;
}

static int reduced(tsr_dtype t, tsr_reduce_op op, int n, int seg, int64_t e)
{
    int acc = sr_value(0, seg, e);
    for (int m = 1; m < n; m++) {
        int v = sr_value(m, seg, e);
        if (t == TSR_BOOL) /* 0 is true: see sr_put */
            acc = (op == TSR_REDUCE_MIN ? acc % 3 == 0 && v % 3 == 0 : acc % 3 == 0 || v % 3 == 0)
                      ? 0
                      : 1;
        else
            acc = op == TSR_REDUCE_SUM ? acc + v : (op == TSR_REDUCE_MAX) == (acc > v) ? acc : v;
    }
    return acc;
}

static void fill_member(machine *mc, int r, const tsri_coll *c, tsr_dims shape, int from, int to)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_BOOL, TSR_I32};
    member *m = &mc->m[r];
    m->coll = *c;
    m->coll.nseg = 3;
    for (int i = 0; i < m->coll.nseg; i++) {
        int64_t nsrc, ndst;
        size_t size = tsr_dtype_size(dtypes[i]);
        to_whole(shape, from, mc->n, r, 0, &nsrc);
        to_whole(shape, to, mc->n, r, 0, &ndst);
        nsrc = c->kind == TSRI_COLL_BROADCAST && r != c->root ? 0 : nsrc;
        ndst = c->kind == TSRI_COLL_REDUCE && r != c->root ? 0 : ndst;
        char *src = nsrc ? malloc((size_t)nsrc * size) : NULL;
        for (int64_t e = 0, count; e < nsrc; e++)
            sr_put(dtypes[i], src, e,
                   sr_value(from >= 0 ? 0 : r, i, to_whole(shape, from, mc->n, r, e, &count)));
        m->seg[i] = (tsri_segment){.src = src,
                                   .dst = ndst ? malloc((size_t)ndst * size) : NULL,
                                   .dtype = dtypes[i],
                                   .shape = shape,
                                   .src_axis = from,
                                   .dst_axis = to};
        m->src_bytes[i] = (size_t)nsrc * size;
        m->dst_bytes[i] = (size_t)ndst * size;
    }
}

static int cases;

static void run_pieces(int n, const tsri_coll *c, tsr_dims shape, int from, int to)
{
    machine mc = {.n = n};
    for (int r = 0; r < n; r++)
        fill_member(&mc, r, c, shape, from, to);
    run(&mc);
    for (int r = 0; r < n; r++)
        for (int i = 0; i < mc.m[r].coll.nseg; i++) {
            const tsri_segment *s = &mc.m[r].seg[i];
            size_t size = tsr_dtype_size(s->dtype);
            for (int64_t e = 0, count; e < (int64_t)(mc.m[r].dst_bytes[i] / size); e++) {
                int64_t at = to_whole(shape, to, n, r, e, &count);
                bool reduces = c->kind == TSRI_COLL_ALL_REDUCE || c->kind == TSRI_COLL_REDUCE ||
                               c->kind == TSRI_COLL_REDUCE_SCATTER;
                char expected[8];
                sr_put(s->dtype, expected, 0,
                       reduces ? reduced(s->dtype, c->op, n, i, at)
                               : sr_value(from >= 0 ? 0 : c->root, i, at));
                if (memcmp((char *)s->dst + (size_t)e * size, expected, size))
                    fail_msg("%s algo %d op %d, n %d, axes %d %d of %lld..., rank %d, %s: element "
                             "%lld",
                             tsri_coll_kind_name(c->kind), c->algo, c->op, n, from, to,
                             (long long)(shape.ndim ? shape.d[0] : 1), r, tsr_dtype_name(s->dtype),
                             (long long)e);
            }
        }
    finish(&mc);
    cases++;
}

static void run_shape(int n, tsr_dims d)
{
    for (int op = TSR_REDUCE_SUM; op <= TSR_REDUCE_MIN; op++) {
        tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE, .op = (tsr_reduce_op)op};
        run_pieces(n, &c, d, -1, -1);
        c.algo = TSRI_ALGO_TWO_PHASE;
        run_pieces(n, &c, d, -1, -1);
        c = (tsri_coll){.kind = TSRI_COLL_REDUCE, .op = (tsr_reduce_op)op, .root = n - 1};
        run_pieces(n, &c, d, -1, -1);
        c = (tsri_coll){.kind = TSRI_COLL_REDUCE_SCATTER, .op = (tsr_reduce_op)op};
        for (int a = 0; a < d.ndim; a++)
            run_pieces(n, &c, d, -1, a);
    }
    tsri_coll c = {.kind = TSRI_COLL_BROADCAST, .root = n / 2};
    run_pieces(n, &c, d, -1, -1);
    for (int a = 0; a < d.ndim; a++) {
        c = (tsri_coll){.kind = TSRI_COLL_ALL_GATHER};
        run_pieces(n, &c, d, a, -1);
        c.kind = TSRI_COLL_ALL_TO_ALL;
        for (int to = 0; to < d.ndim; to++)
            run_pieces(n, &c, d, a, to);
    }
}

static void test_pieces(void **state)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 5, 7, 8, 18};
    (void)state;
    for (int n = 1; n <= MAX_RANKS; n++) {
        run_shape(n, TSR_SCALAR);
        run_shape(n, TSR_DIMS(3, 5, 4, 2));
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            run_shape(n, TSR_DIMS(sizes[i]));
            run_shape(n, TSR_DIMS(sizes[i], 3));
            run_shape(n, TSR_DIMS(2, sizes[i], 3));
            run_shape(n, TSR_DIMS(6, sizes[i]));
        }
    }
    print_message("%d calls\n", cases);
}

/* --- pulls ------------------------------------------------------------------------------------ */
typedef struct pulls {
    tsri_pull pull[MAX_RANKS][MAX_SEG][MAX_PULLS];
    int src[MAX_RANKS][MAX_SEG][MAX_PULLS][MAX_RANKS];
} pulls;

static void draw(machine *mc, pulls *p, int r, uint64_t seed)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_BOOL, TSR_I32};
    member *m = &mc->m[r];
    m->coll = (tsri_coll){
        .kind = TSRI_COLL_SEND_RECV, .op = (tsr_reduce_op)(seed % 3), .nseg = 6, .what = "random"};
    for (int i = 0; i < m->coll.nseg; i++) {
        uint64_t common = seed * 1000 + (uint64_t)i, mine = common * 64 + (uint64_t)r + 7;
        bool gives[MAX_RANKS];
        int must = sr_below(&common, mc->n);
        for (int k = 0; k < mc->n; k++)
            gives[k] = k == must || sr_below(&common, 3) > 0;
        tsri_segment *s = &m->seg[i];
        *s = (tsri_segment){.dtype = dtypes[i % 3], .shape = TSR_DIMS(WHOLE)};
        size_t bytes = tsr_dtype_size(s->dtype) * WHOLE;
        char *src = gives[r] ? malloc(bytes) : NULL;
        for (int e = 0; src && e < WHOLE; e++)
            sr_put(s->dtype, src, e, sr_value(r, i, e));
        s->src = src;
        m->src_bytes[i] = bytes;
        if (sr_below(&mine, 6) == 0)
            continue; /* gets nothing */
        s->npulls = sr_below(&mine, MAX_PULLS + 1);
        s->pulls = p->pull[r][i];
        s->fill = sr_below(&mine, 2);
        for (int k = 0; k < s->npulls; k++)
            p->pull[r][i][k] = sr_random_pull(&mine, mc->n, gives, p->src[r][i][k]);
        s->dst = malloc(bytes);
        memset(s->dst, 0x5a, bytes);
        s->dst_count = WHOLE;
        m->dst_bytes[i] = bytes;
    }
}

static void run_pulls(int n, uint64_t seed)
{
    static int expected[WHOLE];
    machine mc = {.n = n};
    pulls *p = calloc(1, sizeof *p);
    for (int r = 0; r < n; r++) {
        draw(&mc, p, r, seed);
        mc.m[r].coll.seg = mc.m[r].seg;
    }
    run(&mc);
    for (int r = 0; r < n; r++)
        for (int i = 0; i < mc.m[r].coll.nseg; i++) {
            const tsri_segment *s = &mc.m[r].seg[i];
            size_t size = tsr_dtype_size(s->dtype);
            sr_expect(s, mc.m[r].coll.op, i, expected);
            for (int e = 0; s->dst && e < WHOLE; e++) {
                char v[8];
                sr_put(s->dtype, v, 0, expected[e]);
                if (memcmp((char *)s->dst + (size_t)e * size, v, size))
                    fail_msg("pulls, n %d, seed %d, rank %d, segment %d: element %d", n, (int)seed,
                             r, i, e);
            }
        }
    finish(&mc);
    free(p);
}

static void test_pulls(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_RANKS; n++)
        for (uint64_t seed = 0; seed < 40; seed++)
            run_pulls(n, seed * 10 + (uint64_t)n);
}

/* Whoever reads what is not given, all members find it, in the same words. */
static void test_nothing_given(void **state)
{
    (void)state;
    machine mc = {.n = 3};
    const int one[] = {1};
    float data[4] = {0}, dst[4];
    const tsri_pull pull = {
        .ndim = 1, .length = {4}, .src_step = {1}, .dst_step = {1}, .nsrc = 1, .src = one};
    for (int r = 0; r < 3; r++) {
        mc.m[r].seg[0] = (tsri_segment){.src = r == 1 ? NULL : data,
                                        .dst = dst,
                                        .dtype = TSR_F32,
                                        .shape = TSR_DIMS(4),
                                        .npulls = r == 2,
                                        .pulls = &pull,
                                        .dst_count = 4};
        mc.m[r].coll = (tsri_coll){
            .kind = TSRI_COLL_SEND_RECV, .nseg = 1, .seg = mc.m[r].seg, .what = "empty"};
    }
    tsri_nccl_words words;
    describe_all(&mc, &words);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(
            tsri_nccl_plan_make(NULL, &mc.m[r].coll, 3, r, ranks, &words, false, &mc.m[r].plan),
            TSR_ERR_MISMATCH);
        assert_non_null(strstr(tsr_last_error(), "rank 2 reads from rank 1, which gives nothing"));
    }
    free(mc.words);
}

/* The same box of two segments, read by two members: packed once a segment. */
static void test_same_boxes(void **state)
{
    enum { ROWS = 4, COLUMNS = 6, WIDTH = 2 };
    (void)state;
    machine mc = {.n = 3};
    const int zero[] = {0};
    const tsri_pull pull = {.ndim = 2,
                            .length = {ROWS, WIDTH},
                            .src_at = 1,
                            .src_step = {COLUMNS, 1},
                            .dst_step = {WIDTH, 1},
                            .nsrc = 1,
                            .src = zero};
    for (int r = 0; r < mc.n; r++) {
        member *m = &mc.m[r];
        m->coll = (tsri_coll){.kind = TSRI_COLL_SEND_RECV, .nseg = 2, .seg = m->seg};
        for (int i = 0; i < 2; i++) {
            int32_t *src = malloc(ROWS * COLUMNS * sizeof *src);
            for (int e = 0; e < ROWS * COLUMNS; e++)
                src[e] = 1000 * r + 100 * i + e;
            m->src_bytes[i] = ROWS * COLUMNS * sizeof *src;
            m->dst_bytes[i] = ROWS * WIDTH * sizeof *src;
            m->seg[i] = (tsri_segment){.src = src,
                                       .dst = malloc(m->dst_bytes[i]),
                                       .dtype = TSR_I32,
                                       .shape = TSR_DIMS(ROWS, COLUMNS),
                                       .npulls = r > 0,
                                       .pulls = &pull,
                                       .dst_count = ROWS * WIDTH};
        }
    }
    run(&mc);
    int moves = 0;
    for (int k = 0; k < mc.m[0].plan.nsteps; k++)
        moves += mc.m[0].plan.steps[k].kind == TSRI_NCCL_MOVE;
    assert_int_equal(moves, 2);
    for (int r = 1; r < mc.n; r++)
        for (int i = 0; i < 2; i++)
            for (int e = 0; e < ROWS * WIDTH; e++)
                assert_int_equal(((int32_t *)mc.m[r].seg[i].dst)[e],
                                 100 * i + 1 + e / WIDTH * COLUMNS + e % WIDTH);
    finish(&mc);
}

/* --- no copies where none are needed ---------------------------------------------------------- */
static void check_direct(tsri_coll_kind kind, tsr_dtype dtype, tsr_dims shape, int from, int to,
                         tsri_nccl_step_kind step)
{
    float src[64], dst[64];
    const tsri_segment s = {
        .src = src, .dst = dst, .dtype = dtype, .shape = shape, .src_axis = from, .dst_axis = to};
    const tsri_coll c = {.kind = kind, .nseg = 1, .seg = &s};
    tsri_nccl_plan p;
    assert_int_equal(tsri_nccl_plan_make(NULL, &c, 4, 1, ranks, NULL, false, &p), TSR_OK);
    assert_int_equal(p.nsteps, 1);
    assert_int_equal(p.steps[0].kind, step);
    assert_int_equal(p.stage_bytes, 0);
    tsri_nccl_plan_finish(&p);
}

static void test_direct(void **state)
{
    (void)state;
    check_direct(TSRI_COLL_ALL_REDUCE, TSR_F32, TSR_DIMS(5, 3), -1, -1, TSRI_NCCL_ALL_REDUCE);
    check_direct(TSRI_COLL_ALL_GATHER, TSR_F32, TSR_DIMS(8, 3), 0, -1, TSRI_NCCL_ALL_GATHER);
    check_direct(TSRI_COLL_ALL_GATHER, TSR_BF16, TSR_DIMS(1, 8, 3), 1, -1, TSRI_NCCL_ALL_GATHER);
    check_direct(TSRI_COLL_REDUCE_SCATTER, TSR_F32, TSR_DIMS(4, 3), -1, 0,
                 TSRI_NCCL_REDUCE_SCATTER);
    check_direct(TSRI_COLL_BROADCAST, TSR_I64, TSR_DIMS(5), -1, -1, TSRI_NCCL_BROADCAST);
    check_direct(TSRI_COLL_REDUCE, TSR_F16, TSR_DIMS(5), -1, -1, TSRI_NCCL_REDUCE);
}

/* --- rounds ----------------------------------------------------------------------------------- */
/* The peer of a member's k-th send, or receive; -1: it has fewer. */
static int peer_at(const tsri_nccl_plan *p, tsri_nccl_step_kind kind, int k)
{
    for (int i = 0; i < p->nsteps; i++)
        if (p->steps[i].kind == kind && k-- == 0)
            return p->steps[i].peer;
    return -1;
}

/* Members take turns: in each round, whoever is sent to receives from that sender alone. */
static void test_rounds(void **state)
{
    static float x[MAX_RANKS], y[MAX_RANKS];
    tsri_nccl_plan p[MAX_RANKS];
    (void)state;
    for (int round = 0, n = 2; n <= MAX_RANKS; n += round++ & 1) {
        const int from = round & 1 ? -1 : 0; /* all_reduce: -1 */
        const tsri_segment s = {x, y, TSR_F32, TSR_DIMS(n), .src_axis = from, .dst_axis = -1};
        const tsri_coll c = {
            .kind = from ? TSRI_COLL_ALL_REDUCE : TSRI_COLL_ALL_GATHER, .nseg = 1, .seg = &s};
        for (int i = 0; i < n; i++)
            assert_int_equal(tsri_nccl_plan_make(NULL, &c, n, i, ranks, NULL, true, &p[i]), TSR_OK);
        for (int i = 0; i < n * n; i++) {
            const int to = peer_at(&p[i / n], TSRI_NCCL_SEND, i % n);
            assert_int_equal(to >= 0, i % n < n - 1);
            assert_int_equal(to < 0 ? i / n : peer_at(&p[to], TSRI_NCCL_RECV, i % n), i / n);
        }
        for (int i = 0; i < n; i++)
            tsri_nccl_plan_finish(&p[i]);
    }
}

/* --- memory ----------------------------------------------------------------------------------- */
static void check_lifetimes(const char *placement, bool from_start)
{
    tsr_world *w;
    tsr_plan *plan;
    int starts = 0;
    assert_int_equal(tsr_world_create_virtual(4, 1, &w), TSR_OK);
    const tsr_placement *p = tsr_placement_parse(w, placement);
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_from_local(g, "x", TSR_F32, TSR_DIMS(8, 3), p, TSR_P);
    tsr_to_local(g, "sum", tsr_to_global(x, p, TSR_B));
    tsr_to_local(g, "part", tsr_to_global(x, p, TSR_S(0)));
    assert_int_equal(tsr_compile(g, &plan), TSR_OK);
    for (int e = 0; e < plan->ir.nentries; e++) {
        const tsri_item *it = &plan->ir.items[plan->ir.entries[e].item];
        if (plan->ir.entries[e].phase != TSRI_PHASE_START || it->kind != TSRI_ITEM_COLLECTIVE)
            continue;
        assert_int_equal(plan->ir.values[tsri_ir_root(&plan->ir, it->out[0])].first <= e,
                         from_start);
        starts++;
    }
    assert_true(starts > 0);
    tsr_world_destroy(w);
}

/* A call on a device may write its results as soon as it has started. */
static void test_lifetimes(void **state)
{
    (void)state;
    check_lifetimes("cuda:[0,1,2,3]", true);
    check_lifetimes("cpu:[0,1,2,3]", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),        cmocka_unit_test(test_pulls),
        cmocka_unit_test(test_nothing_given), cmocka_unit_test(test_same_boxes),
        cmocka_unit_test(test_direct),        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_lifetimes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
