/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/fast/fast.h"

#include <omp.h>

enum {
    K_BLOCK = 192,      /* terms summed before they join c: of b, what the first cache holds */
    K_LONG_BLOCK = 512, /* the same, where they are more than */
    K_LONG = 64 * K_BLOCK,
    TA_BLOCK = 256,            /* the same, where both operands are walked along k */
    CHUNK_BYTES = 384 << 10,   /* of a's and c's rows: what stays in a core's second-level cache */
    SMALL_BYTES = 24 << 10,    /* of packed b: half of a first-level cache */
    TILES = 24,                /* rows: whole tiles of any height */
    FEW_TALL = 16,             /* of few rows: lanes of vectors, from which on one tile has */
    FEW_TALL_ROWS = 8,         /* so many rows */
    FEW_LOW_ROWS = 12,         /* below: whole tiles of 2 and 3 vectors */
    FEW_ROWS = 256,            /* below, threads share columns */
    VERY_FEW_ROWS = 64,        /* up to these, b is not packed */
    FEW_SUM_BYTES = 128 << 10, /* of sums that a thread holds then */
    MUCH = 1 << 12,            /* of b's elements, that packing is noticed */
    LONG_SUM = 512,            /* ta: from here on threads share k, */
    MANY_SUMS = 1 << 17,       /* unless each would need so many sums of its own */
    GROUP_BYTES = 1 << 20,     /* of b, packed at a time */
    WORTH_A_TEAM = 1 << 17,    /* multiplications */
};

tsri_fast_gemm tsri_fast_gemm_of(const tsri_fast_isa *isa, int64_t m, int64_t n, int64_t k, bool ta,
                                 bool tb)
{
    return (tsri_fast_gemm){.isa = isa,
                            .m = m,
                            .n = n,
                            .k = k,
                            .lda = ta ? m : k,
                            .bk = tb ? 1 : n,
                            .bn = tb ? k : 1,
                            .ldc = n,
                            .ta = ta};
}

tsri_fast_gemm tsri_fast_gemm_linear(const tsri_fast_isa *isa, tsri_op_kind op, int64_t rows,
                                     int64_t out, int64_t in)
{
    if (op == TSRI_OP_LINEAR_DX || op == TSRI_OP_CONV2D_DX)
        return tsri_fast_gemm_of(isa, rows, in, out, false, false);
    if (op == TSRI_OP_LINEAR_DW || op == TSRI_OP_CONV2D_DW)
        return tsri_fast_gemm_of(isa, out, in, rows, true, false);
    return tsri_fast_gemm_of(isa, rows, out, in, false, true);
}

static int64_t vectors(const tsri_fast_gemm *g)
{
    return (g->n + g->isa->width - 1) / g->isa->width;
}

int64_t tsri_fast_packed(const tsri_fast_gemm *g)
{
    return vectors(g) * g->isa->width * g->k;
}

/* Vectors of b's columns that are packed together. */
static int64_t group_vectors(const tsri_fast_gemm *g)
{
    int64_t n = GROUP_BYTES / (g->isa->width * g->k * 4) / 3 * 3;
    return n < 3 ? 3 : n;
}

/* Columns of a's rows, packed, and of sums of b's columns by them: all of a's rows. */
static int64_t few_width(const tsri_fast_gemm *g)
{
    return (g->m + g->isa->width - 1) / g->isa->width * g->isa->width;
}

/* b's columns that a thread sums at a time. */
static int64_t few_chunk(const tsri_fast_gemm *g)
{
    const int64_t own = (vectors(g) + g->threads - 1) / g->threads * g->isa->width;
    const int64_t fit = FEW_SUM_BYTES / (few_width(g) * (int64_t)sizeof(float));
    return tsri_fast_least(own, fit / TILES * TILES);
}

static size_t few_packed_bytes(const tsri_fast_gemm *g)
{
    return tsri_fast_align((size_t)(few_width(g) * g->k) * sizeof(float));
}

static void plan_for(tsri_fast_gemm *g, int threads)
{
    g->threads = threads;
    if (g->ta) {
        g->by_columns = threads == 1 || g->k < LONG_SUM || g->m * g->n > MANY_SUMS;
        g->part_bytes = tsri_fast_align((size_t)(g->m * g->n) * sizeof(float));
        g->outer = tsri_fast_outer_suits(g);
        if (g->outer) {
            g->by_columns = true;
            g->scratch_bytes = (size_t)threads * tsri_fast_outer_bytes(g);
            return;
        }
        const int sums = g->by_columns ? 0 : threads - 1, blocks = g->by_columns ? 1 : threads;
        g->scratch_bytes = (size_t)(sums + (g->k > TSRI_FAST_TA_LONG ? blocks : 0)) * g->part_bytes;
        return;
    }
    g->dots = g->m <= TSRI_FAST_DOTS && g->bn != 1 && !g->add && g->k * g->n >= MUCH;
    if (g->dots) {
        g->by_columns = true;
        g->part_bytes = g->scratch_bytes = 0;
        return;
    }
    g->few = g->m <= VERY_FEW_ROWS && g->k * g->n >= MUCH;
    g->by_columns = (g->m < FEW_ROWS && vectors(g) >= threads) || g->few;
    if (g->few) {
        g->part_bytes = tsri_fast_align((size_t)(few_width(g) * few_chunk(g)) * sizeof(float));
        g->scratch_bytes = g->bn == 1 ? 0 : few_packed_bytes(g) + (size_t)threads * g->part_bytes;
        return;
    }
    int64_t most = tsri_fast_least(
        g->by_columns ? (vectors(g) + threads - 1) / threads : vectors(g), group_vectors(g));
    g->part_bytes = tsri_fast_align((size_t)(most * g->isa->width * g->k) * sizeof(float));
    g->scratch_bytes = (size_t)threads * g->part_bytes;
}

void tsri_fast_gemm_plan(tsri_fast_gemm *g, int threads)
{
    const int worth = g->m * g->n * g->k < WORTH_A_TEAM ? 1 : omp_get_max_threads();
    plan_for(g, threads ? threads : worth);
}

void tsri_fast_gemm_plan_alone(tsri_fast_gemm *g)
{
    plan_for(g, 1);
}

/* A panel of nv vectors of columns from j on, rows of a and c as given, all of k. */
static void multiply(const tsri_fast_gemm *g, int64_t rows, const float *a, const float *packed,
                     int nv, int64_t j, const float *bias, float *c, tsri_ahead *ahead)
{
    const int64_t width = (int64_t)nv * g->isa->width;
    tsri_fast_tile t = {.bk = width,
                        .ar = g->lda,
                        .ak = 1,
                        .ldc = g->ldc,
                        .packed = true,
                        .ahead = ahead,
                        .cols = tsri_fast_least(width, g->n - j)};
    const int64_t block = g->k > K_LONG ? K_LONG_BLOCK : K_BLOCK;
    for (int64_t k = 0; k < g->k; k += block) {
        t.k = tsri_fast_least(block, g->k - k);
        t.b = packed + k * width;
        t.add = k > 0 || g->add;
        t.bias = bias && k + t.k == g->k ? bias + j : NULL;
        t.rows = rows;
        t.a = a + k;
        t.c = c + j;
        g->isa->tile[nv](&t);
    }
}

void tsri_fast_gemm_pack(const tsri_fast_gemm *g, int part, int parts, const float *b,
                         float *packed)
{
    int64_t end = vectors(g), w = g->isa->width, i = 0;
    for (int64_t v = 0, nv; v < end; v += nv, i++) {
        nv = tsri_fast_panel(end - v);
        if (i % parts != part)
            continue;
        g->isa->pack(b + v * w * g->bn, g->bk, g->bn, g->k, tsri_fast_least(nv * w, g->n - v * w),
                     nv * w, packed + v * w * g->k);
    }
}

void tsri_fast_gemm_rows(const tsri_fast_gemm *g, int64_t rows, const float *a, const float *packed,
                         const float *bias, float *c, tsri_ahead *ahead)
{
    const int64_t end = vectors(g), w = g->isa->width;
    const int64_t chunk = end * w * g->k * 4 <= SMALL_BYTES ? TILES : rows;
    for (int64_t r = 0; r < rows; r += chunk)
        for (int64_t v = 0, nv; v < end; v += nv) {
            nv = tsri_fast_panel(end - v);
            multiply(g, tsri_fast_least(chunk, rows - r), a + r * g->lda, packed + v * w * g->k,
                     (int)nv, v * w, bias, c + r * g->ldc, ahead);
        }
}

/* Asks for rows [from, end) of x, which are whole. */
static void ask(tsri_ahead *ahead, const float *x, int64_t width, int64_t from, int64_t end)
{
    if (from < end)
        tsri_ahead_add(ahead, x + from * width, (size_t)((end - from) * width) * sizeof *x);
}

void tsri_fast_gemm_ta(const tsri_fast_gemm *g, int64_t k0, int64_t k1, int64_t m0, int64_t m1,
                       const float *a, const float *b, float *c, bool add, tsri_ahead *ahead)
{
    const int64_t end = vectors(g), w = g->isa->width;
    tsri_ahead next; /* terms, unless the caller knows better */
    tsri_fast_tile t = {.ar = 1, .ak = g->lda, .bk = g->bk, .ldc = g->ldc};
    t.ahead = ahead ? ahead : &next;
    for (int64_t k = k0; k < k1; k += TA_BLOCK) {
        const int64_t soon = k + TA_BLOCK, until = tsri_fast_least(soon + TA_BLOCK, k1);
        next.n = 0;
        if (g->lda == g->m && m0 == 0 && m1 == g->m)
            ask(&next, a, g->lda, soon, until);
        if (g->bk == g->n)
            ask(&next, b, g->bk, soon, until);
        t.k = tsri_fast_least(TA_BLOCK, k1 - k);
        t.add = add || k > k0;
        for (int64_t v = 0, nv; v < end; v += nv) {
            nv = tsri_fast_panel(end - v);
            t.b = b + k * g->bk + v * w;
            t.cols = tsri_fast_least(nv * w, g->n - v * w);
            t.rows = m1 - m0;
            t.a = a + k * g->lda + m0;
            t.c = c + m0 * g->ldc + v * w;
            g->isa->tile[nv](&t);
        }
    }
}

typedef struct job {
    const tsri_fast_gemm *g;
    const float *a, *b, *bias;
    float *c;
    char *scratch;
} job;

/* While all of packed b stays in the first-level cache, c is best written row by row. */
static int64_t chunk_rows(const tsri_fast_gemm *g, int64_t nv)
{
    const int64_t columns = nv * g->isa->width;
    if (columns * g->k * 4 <= SMALL_BYTES)
        return TILES;
    int64_t rows = CHUNK_BYTES / ((g->k + columns) * 4) / TILES * TILES;
    return rows < 2 * TILES ? 2 * TILES : rows;
}

/* Rows [m0, m1), vectors [v0, v1) of columns: rows in chunks that stay in cache while all panels
 * pass over them, which are packed as the first chunk meets them. */
static void plain_block(const job *q, int64_t m0, int64_t m1, int64_t v0, int64_t v1, float *packed)
{
    const tsri_fast_gemm *g = q->g;
    const int64_t w = g->isa->width, chunk = chunk_rows(g, v1 - v0);
    for (int64_t m = m0; m < m1; m += chunk) {
        const int64_t soon = m + chunk, end = tsri_fast_least(soon + chunk, m1);
        tsri_ahead ahead = {0};
        if (v0 == 0 && v1 == vectors(g) && g->ldc == g->n)
            ask(&ahead, q->c, g->ldc, soon, end);
        if (g->lda == g->k)
            ask(&ahead, q->a, g->lda, soon, end);
        for (int64_t v = v0, nv; v < v1; v += nv) {
            nv = tsri_fast_panel(v1 - v);
            float *p = packed + (v - v0) * w * g->k;
            if (m == m0)
                g->isa->pack(q->b + v * w * g->bn, g->bk, g->bn, g->k,
                             tsri_fast_least(nv * w, g->n - v * w), nv * w, p);
            multiply(g, tsri_fast_least(chunk, m1 - m), q->a + m * g->lda, p, (int)nv, v * w,
                     q->bias, q->c + m * g->ldc, &ahead);
        }
    }
}

static int64_t few_block(const tsri_fast_gemm *g)
{
    return g->k > K_LONG ? K_LONG_BLOCK : K_BLOCK;
}

/* b's rows are in memory as they are multiplied: vectors [v0, v1) of columns, block by block of
 * rows so that memory is walked in order. */
static void few_direct(const job *q, int64_t v0, int64_t v1)
{
    const tsri_fast_gemm *g = q->g;
    const int64_t w = g->isa->width;
    tsri_fast_tile t = {.ar = g->lda, .ak = 1, .bk = g->bk, .ldc = g->ldc, .rows = g->m};
    const int64_t block = few_block(g);
    for (int64_t k = 0; k < g->k; k += block)
        for (int64_t v = v0, nv; v < v1; v += nv) {
            nv = tsri_fast_panel(v1 - v);
            t.k = tsri_fast_least(block, g->k - k);
            t.add = k > 0;
            t.bias = q->bias && k + t.k == g->k ? q->bias + v * w : NULL;
            t.cols = tsri_fast_least(nv * w, g->n - v * w);
            t.a = q->a + k;
            t.b = q->b + k * g->bk + v * w;
            t.c = q->c + v * w;
            g->isa->tile[nv](&t);
        }
}

/* Packs a's rows as columns, block by block of terms, and these panel by panel. */
static void few_pack(void *arg, int part)
{
    const job *q = arg;
    const tsri_fast_gemm *g = q->g;
    const int64_t w = g->isa->width, width = few_width(g), block = few_block(g);
    float *packed = (float *)(void *)q->scratch;
    int64_t turn = 0;
    for (int64_t k = 0; k < g->k; k += block)
        for (int64_t v = 0, nv; v < width / w; v += nv, turn++) {
            const int64_t terms = tsri_fast_least(block, g->k - k);
            nv = tsri_fast_panel(width / w - v);
            if (turn % g->threads == part)
                g->isa->pack(q->a + v * w * g->lda + k, 1, g->lda, terms,
                             tsri_fast_least(nv * w, g->m - v * w), nv * w,
                             packed + width * k + v * w * terms);
        }
}

/* Asks for `rows` rows of b's terms [k, k + terms), from column `first` on. */
static void few_ask(const job *q, int64_t k, int64_t first, int64_t rows, tsri_ahead *ahead)
{
    const tsri_fast_gemm *g = q->g;
    const int64_t terms = tsri_fast_least(few_block(g), g->k - k);
    ahead->n = 0;
    for (int64_t r = rows - 1; r >= 0 && k < g->k; r--)
        tsri_ahead_add(ahead, q->b + (first + r) * g->bn + k, (size_t)terms * sizeof(float));
}

/* Sums of `count` of b's columns from `first` on, which are rows in memory: sums[count][width].
 * They are read once, a few rows of a block of terms at a time, for all of a's rows. */
static void few_sums(const job *q, int64_t first, int64_t count, float *sums)
{
    const tsri_fast_gemm *g = q->g;
    const int64_t w = g->isa->width, width = few_width(g), block = few_block(g);
    const int64_t rows = w >= FEW_TALL ? FEW_TALL_ROWS : FEW_LOW_ROWS;
    const float *packed = (const float *)(const void *)q->scratch;
    tsri_ahead ahead;
    tsri_fast_tile t = {.ar = g->bn, .ak = 1, .ldc = width, .packed = true, .ahead = &ahead};
    for (int64_t k = 0; k < g->k; k += block)
        for (int64_t r = 0; r < count; r += rows) {
            const int64_t next = r + rows < count ? r + rows : 0;
            t.k = tsri_fast_least(block, g->k - k);
            t.add = k > 0;
            t.rows = tsri_fast_least(rows, count - r);
            t.a = q->b + (first + r) * g->bn + k;
            few_ask(q, next ? k : k + block, first + next, tsri_fast_least(rows, count - next),
                    &ahead);
            for (int64_t v = 0, nv; v < width / w; v += nv) {
                nv = tsri_fast_panel(width / w - v);
                t.bk = t.cols = nv * w;
                t.b = packed + width * k + v * w * t.k;
                t.c = sums + r * width + v * w;
                g->isa->tile[nv](&t);
            }
        }
}

/* b's columns are rows in memory: their products with a's rows are summed the other way around, and
 * turned. */
static void few_turned(const job *q, int64_t n0, int64_t n1, float *sums)
{
    const tsri_fast_gemm *g = q->g;
    const int64_t width = few_width(g), chunk = few_chunk(g);
    for (int64_t n = n0; n < n1; n += chunk) {
        const int64_t count = tsri_fast_least(chunk, n1 - n);
        few_sums(q, n, count, sums);
        g->isa->transpose(sums, width, q->c + n, g->ldc, g->m, count);
        for (int64_t m = 0; q->bias && m < g->m; m++) {
            float *c = q->c + m * g->ldc + n;
            tsri_fast_map map = {.x = c, .y = q->bias + n, .out = c};
            g->isa->binary[TSRI_BINARY_ADD](&map, 0, count);
        }
    }
}

static void few_part(const job *q, int part)
{
    const tsri_fast_gemm *g = q->g;
    const int64_t w = g->isa->width;
    const int64_t v0 = tsri_fast_cut(vectors(g), g->threads, part, 1);
    const int64_t v1 = tsri_fast_cut(vectors(g), g->threads, part + 1, 1);
    if (g->bn == 1)
        few_direct(q, v0, v1);
    else
        few_turned(
            q, v0 * w, tsri_fast_least(v1 * w, g->n),
            (float *)(void *)(q->scratch + few_packed_bytes(g) + (size_t)part * g->part_bytes));
}

static void dots_part(void *arg, int part)
{
    const job *q = arg;
    const tsri_fast_gemm *g = q->g;
    const tsri_fast_dots d = {.a = q->a,
                              .b = q->b,
                              .bias = q->bias,
                              .c = q->c,
                              .lda = g->lda,
                              .ldb = g->bn,
                              .ldc = g->ldc,
                              .m = g->m,
                              .k = g->k};
    g->isa->dots(&d, tsri_fast_cut(g->n, g->threads, part, g->isa->width),
                 tsri_fast_cut(g->n, g->threads, part + 1, g->isa->width));
}

static void plain_part(void *arg, int part)
{
    const job *q = arg;
    const tsri_fast_gemm *g = q->g;
    int64_t m0 = 0, m1 = g->m, v0 = 0, v1 = vectors(g);
    if (g->few) {
        few_part(q, part);
        return;
    }
    if (g->by_columns) {
        v0 = tsri_fast_cut(vectors(g), g->threads, part, 1);
        v1 = tsri_fast_cut(vectors(g), g->threads, part + 1, 1);
    } else {
        m0 = tsri_fast_cut(g->m, g->threads, part, 8);
        m1 = tsri_fast_cut(g->m, g->threads, part + 1, 8);
    }
    float *packed = (float *)(void *)(q->scratch + (size_t)part * g->part_bytes);
    for (int64_t v = v0, group = group_vectors(g); v < v1; v += group)
        plain_block(q, m0, m1, v, tsri_fast_least(v + group, v1), packed);
}

void tsri_fast_gemm_add(const tsri_fast_gemm *g, const float *from, float *c, int64_t m0,
                        int64_t m1)
{
    for (int64_t m = m0; m < m1; m++) {
        tsri_fast_map map = {.x = c + m * g->ldc, .y = from + m * g->n, .out = c + m * g->ldc};
        g->isa->binary[TSRI_BINARY_ADD](&map, 0, g->n);
    }
}

/* c = over k0 <= k < k1; block[m][n] is used where these are more than TSRI_FAST_TA_LONG. */
static void ta_long(const tsri_fast_gemm *g, int64_t k0, int64_t k1, int64_t m0, int64_t m1,
                    const float *a, const float *b, float *c, float *block)
{
    tsri_fast_gemm own = *g;
    own.ldc = g->n;
    tsri_fast_gemm_ta(g, k0, tsri_fast_least(k0 + TSRI_FAST_TA_LONG, k1), m0, m1, a, b, c, false,
                      NULL);
    for (int64_t k = k0 + TSRI_FAST_TA_LONG; k < k1; k += TSRI_FAST_TA_LONG) {
        tsri_fast_gemm_ta(&own, k, tsri_fast_least(k + TSRI_FAST_TA_LONG, k1), m0, m1, a, b, block,
                          false, NULL);
        tsri_fast_gemm_add(g, block, c, m0, m1);
    }
}

/* Part i of the scratch. */
static float *scratch_part(const job *q, int i)
{
    return (float *)(void *)(q->scratch + (size_t)i * q->g->part_bytes);
}

/* Part 0 sums into c itself, the others into scratch. */
static void ta_part(void *arg, int part)
{
    const job *q = arg;
    const tsri_fast_gemm *g = q->g;
    if (g->by_columns) {
        ta_long(g, 0, g->k, tsri_fast_cut(g->m, g->threads, part, 8),
                tsri_fast_cut(g->m, g->threads, part + 1, 8), q->a, q->b, q->c, scratch_part(q, 0));
        return;
    }
    tsri_fast_gemm own = *g;
    float *c = q->c;
    if (part) {
        c = scratch_part(q, part - 1);
        own.ldc = g->n;
    }
    ta_long(&own, tsri_fast_cut(g->k, g->threads, part, 8),
            tsri_fast_cut(g->k, g->threads, part + 1, 8), 0, g->m, q->a, q->b, c,
            scratch_part(q, g->threads - 1 + part));
}

static void ta_sum(void *arg, int part)
{
    const job *q = arg;
    const tsri_fast_gemm *g = q->g;
    int64_t m0 = tsri_fast_cut(g->m, g->threads, part, 1);
    int64_t m1 = tsri_fast_cut(g->m, g->threads, part + 1, 1);
    for (int p = 0; p + 1 < g->threads; p++)
        tsri_fast_gemm_add(g, scratch_part(q, p), q->c, m0, m1);
}

void tsri_fast_gemm_run(const tsri_fast_gemm *g, const float *a, const float *b, const float *bias,
                        float *c, void *scratch)
{
    job q = {.g = g, .a = a, .b = b, .bias = bias, .c = c, .scratch = scratch};
    if (!g->ta) {
        if (g->few && g->bn != 1)
            tsri_team(g->threads, few_pack, &q);
        tsri_team(g->threads, g->dots ? dots_part : plain_part, &q);
        return;
    }
    if (g->outer) {
        tsri_fast_outer_run(g, a, b, c, scratch, NULL);
        return;
    }
    tsri_team(g->threads, ta_part, &q);
    if (!g->by_columns)
        tsri_team(g->threads, ta_sum, &q);
}
