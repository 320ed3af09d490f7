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
    FEW_TALL = 64,             /* of few rows: bytes of vectors, from which on one tile has */
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
    KEPT_ROWS = 1024,          /* up to these, packing b takes long enough to keep what it gives */
};

/* Return p, moved by so many elements. Memory is walked in bytes, as products are of several
 * dtypes. */
static const void *elements_at(const tsri_fast_gemm *g, const void *p, int64_t elements)
{
    return tsri_fast_gemm_at(g, p, elements);
}

static void *elements_to(const tsri_fast_gemm *g, void *p, int64_t elements)
{
    return tsri_fast_gemm_to(g, p, elements);
}

/* Returns the bytes of so many elements. */
static size_t bytes_of(const tsri_fast_gemm *g, int64_t elements)
{
    return (size_t)elements * (size_t)g->loops->size;
}

tsri_fast_gemm tsri_fast_gemm_of(const tsri_fast_loops *loops, int64_t m, int64_t n, int64_t k,
                                 bool ta, bool tb)
{
    return (tsri_fast_gemm){.loops = loops,
                            .m = m,
                            .n = n,
                            .k = k,
                            .lda = ta ? m : k,
                            .bk = tb ? 1 : n,
                            .bn = tb ? k : 1,
                            .ldc = n,
                            .ta = ta};
}

tsri_fast_gemm tsri_fast_gemm_linear(const tsri_fast_loops *loops, tsri_op_kind op, int64_t rows,
                                     int64_t out, int64_t in)
{
    if (op == TSRI_OP_LINEAR_DX || op == TSRI_OP_CONV2D_DX)
        return tsri_fast_gemm_of(loops, rows, in, out, false, false);
    if (op == TSRI_OP_LINEAR_DW || op == TSRI_OP_CONV2D_DW)
        return tsri_fast_gemm_of(loops, out, in, rows, true, false);
    return tsri_fast_gemm_of(loops, rows, out, in, false, true);
}

static int64_t vectors(const tsri_fast_gemm *g)
{
    return (g->n + g->loops->width - 1) / g->loops->width;
}

int64_t tsri_fast_packed(const tsri_fast_gemm *g)
{
    return vectors(g) * g->loops->width * g->k;
}

/* Vectors of b's columns that are packed together. */
static int64_t group_vectors(const tsri_fast_gemm *g)
{
    int64_t n = GROUP_BYTES / (g->loops->width * g->k * g->loops->size) / 3 * 3;
    return n < 3 ? 3 : n;
}

/* Returns the vectors of the panel of b's columns that begins with vector v, of 3 at most: panels
 * are cut where a thread's share of columns begins, and a group of them. */
static int64_t panel_of(const tsri_fast_gemm *g, int64_t v)
{
    int64_t first = 0, end = vectors(g);
    for (int part = 0; g->by_columns && part < g->threads; part++) {
        first = tsri_fast_cut(vectors(g), g->threads, part, 1);
        end = tsri_fast_cut(vectors(g), g->threads, part + 1, 1);
        if (v < end)
            break;
    }
    first += (v - first) / group_vectors(g) * group_vectors(g);
    return tsri_fast_panel(tsri_fast_least(first + group_vectors(g), end) - v);
}

/* Columns of a's rows, packed, and of sums of b's columns by them: all of a's rows. */
static int64_t few_width(const tsri_fast_gemm *g)
{
    return (g->m + g->loops->width - 1) / g->loops->width * g->loops->width;
}

/* b's columns that a thread sums at a time. */
static int64_t few_chunk(const tsri_fast_gemm *g)
{
    const int64_t own = (vectors(g) + g->threads - 1) / g->threads * g->loops->width;
    const int64_t fit = FEW_SUM_BYTES / (few_width(g) * g->loops->size);
    return tsri_fast_least(own, fit / TILES * TILES);
}

static size_t few_packed_bytes(const tsri_fast_gemm *g)
{
    return tsri_fast_align(bytes_of(g, few_width(g) * g->k));
}

static void plan_for(tsri_fast_gemm *g, int threads)
{
    g->threads = threads;
    if (g->ta) {
        g->by_columns = threads == 1 || g->k < LONG_SUM || g->m * g->n > MANY_SUMS;
        g->part_bytes = tsri_fast_align(bytes_of(g, g->m * g->n));
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
    g->few = g->m <= VERY_FEW_ROWS && g->k * g->n >= MUCH && !g->packed;
    g->by_columns = (g->m < FEW_ROWS && vectors(g) >= threads) || g->few;
    if (g->few) {
        g->part_bytes = tsri_fast_align(bytes_of(g, few_width(g) * few_chunk(g)));
        g->scratch_bytes = g->bn == 1 ? 0 : few_packed_bytes(g) + (size_t)threads * g->part_bytes;
        return;
    }
    const int64_t share = g->by_columns ? (vectors(g) + threads - 1) / threads : vectors(g);
    const int64_t most = g->packed ? 0 : tsri_fast_least(share, group_vectors(g));
    g->part_bytes = tsri_fast_align(bytes_of(g, most * g->loops->width * g->k));
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

bool tsri_fast_gemm_keeps(const tsri_fast_gemm *g)
{
    return !g->ta && g->m > TSRI_FAST_DOTS && g->m <= KEPT_ROWS;
}

/* A panel of nv vectors of columns from j on, rows of a and c from `row` on, all of k. */
static void multiply(const tsri_fast_gemm *g, int64_t row, int64_t rows, const void *a,
                     const void *packed, int nv, int64_t j, const void *bias, void *c,
                     tsri_ahead *ahead)
{
    const int64_t width = (int64_t)nv * g->loops->width;
    tsri_fast_tile t = {.bk = width,
                        .ar = g->lda,
                        .ak = 1,
                        .ldc = g->ldc,
                        .packed = true,
                        .ahead = ahead,
                        .cols = tsri_fast_least(width, g->n - j)};
    const int64_t block = g->k > K_LONG ? K_LONG_BLOCK : K_BLOCK;
    const tsri_fast_ending *e = g->ending;
    const bool ends = e && tsri_fast_tiles_end(e->kernel);
    const tsri_fast_end end =
        ends ? tsri_fast_end_of(e->kernel, e->in, row, j) : (tsri_fast_end){0};
    for (int64_t k = 0; k < g->k; k += block) {
        t.k = tsri_fast_least(block, g->k - k);
        t.b = elements_at(g, packed, k * width);
        t.add = k > 0 || g->add;
        t.bias = bias && k + t.k == g->k ? elements_at(g, bias, j) : NULL;
        t.end = ends && k + t.k == g->k ? &end : NULL;
        t.rows = rows;
        t.a = elements_at(g, elements_at(g, a, row * g->lda), k);
        t.c = elements_to(g, c, row * g->ldc + j);
        g->loops->tile[nv](&t);
    }
}

void tsri_fast_gemm_pack(const tsri_fast_gemm *g, int part, int parts, const void *b, void *packed)
{
    int64_t end = vectors(g), w = g->loops->width, i = 0;
    for (int64_t v = 0, nv; v < end; v += nv, i++) {
        nv = panel_of(g, v);
        if (i % parts != part)
            continue;
        g->loops->pack(elements_at(g, b, v * w * g->bn), g->bk, g->bn, g->k,
                       tsri_fast_least(nv * w, g->n - v * w), nv * w,
                       elements_to(g, packed, v * w * g->k));
    }
}

/* Ends rows and columns of c, which are complete. */
static void end_rows(const tsri_fast_gemm *g, void *c, int64_t row, int64_t rows, int64_t c0,
                     int64_t c1)
{
    if (g->ending)
        tsri_fast_end_rows(g->ending->kernel, g->ending->in, c, row, rows, c0, c1);
}

void tsri_fast_gemm_rows(const tsri_fast_gemm *g, int64_t rows, const void *a, const void *packed,
                         const void *bias, void *c, tsri_ahead *ahead)
{
    const int64_t end = vectors(g), w = g->loops->width;
    const int64_t chunk = end * w * g->k * g->loops->size <= SMALL_BYTES ? TILES : rows;
    for (int64_t r = 0; r < rows; r += chunk) {
        for (int64_t v = 0, nv; v < end; v += nv) {
            nv = panel_of(g, v);
            multiply(g, r, tsri_fast_least(chunk, rows - r), a,
                     elements_at(g, packed, v * w * g->k), (int)nv, v * w, bias, c, ahead);
        }
        if (g->ending && !tsri_fast_tiles_end(g->ending->kernel))
            end_rows(g, c, r, tsri_fast_least(chunk, rows - r), 0, g->n);
    }
}

/* Asks for rows [from, end) of x, which are whole. */
static void ask(const tsri_fast_gemm *g, tsri_ahead *ahead, const void *x, int64_t width,
                int64_t from, int64_t end)
{
    if (from < end)
        tsri_ahead_add(ahead, elements_at(g, x, from * width), bytes_of(g, (end - from) * width));
}

void tsri_fast_gemm_ta(const tsri_fast_gemm *g, int64_t k0, int64_t k1, int64_t m0, int64_t m1,
                       const void *a, const void *b, void *c, bool add, tsri_ahead *ahead)
{
    const int64_t end = vectors(g), w = g->loops->width;
    tsri_ahead next; /* terms, unless the caller knows better */
    tsri_fast_tile t = {.ar = 1, .ak = g->lda, .bk = g->bk, .ldc = g->ldc};
    t.ahead = ahead ? ahead : &next;
    for (int64_t k = k0; k < k1; k += TA_BLOCK) {
        const int64_t soon = k + TA_BLOCK, until = tsri_fast_least(soon + TA_BLOCK, k1);
        next.n = 0;
        if (g->lda == g->m && m0 == 0 && m1 == g->m)
            ask(g, &next, a, g->lda, soon, until);
        if (g->bk == g->n)
            ask(g, &next, b, g->bk, soon, until);
        t.k = tsri_fast_least(TA_BLOCK, k1 - k);
        t.add = add || k > k0;
        for (int64_t v = 0, nv; v < end; v += nv) {
            nv = tsri_fast_panel(end - v);
            t.b = elements_at(g, b, k * g->bk + v * w);
            t.cols = tsri_fast_least(nv * w, g->n - v * w);
            t.rows = m1 - m0;
            t.a = elements_at(g, a, k * g->lda + m0);
            t.c = elements_to(g, c, m0 * g->ldc + v * w);
            g->loops->tile[nv](&t);
        }
    }
}

typedef struct job {
    const tsri_fast_gemm *g;
    const void *a, *b, *bias;
    void *c;
    char *scratch;
} job;

/* While all of packed b stays in the first-level cache, c is best written row by row. */
static int64_t chunk_rows(const tsri_fast_gemm *g, int64_t nv)
{
    const int64_t columns = nv * g->loops->width;
    if (columns * g->k * g->loops->size <= SMALL_BYTES)
        return TILES;
    int64_t rows = CHUNK_BYTES / ((g->k + columns) * g->loops->size) / TILES * TILES;
    return rows < 2 * TILES ? 2 * TILES : rows;
}

/* Rows [m0, m1), vectors [v0, v1) of columns: rows in chunks that stay in cache while all panels
 * pass over them, which are packed as the first chunk meets them. */
static void plain_block(const job *q, int64_t m0, int64_t m1, int64_t v0, int64_t v1, void *packed)
{
    const tsri_fast_gemm *g = q->g;
    const int64_t w = g->loops->width, chunk = chunk_rows(g, v1 - v0);
    for (int64_t m = m0; m < m1; m += chunk) {
        const int64_t soon = m + chunk, end = tsri_fast_least(soon + chunk, m1);
        tsri_ahead ahead = {0};
        if (v0 == 0 && v1 == vectors(g) && g->ldc == g->n)
            ask(g, &ahead, q->c, g->ldc, soon, end);
        if (g->lda == g->k)
            ask(g, &ahead, q->a, g->lda, soon, end);
        for (int64_t v = v0, nv; v < v1; v += nv) {
            nv = tsri_fast_panel(v1 - v);
            void *p = elements_to(g, packed, (v - v0) * w * g->k);
            if (m == m0 && !g->packed)
                g->loops->pack(elements_at(g, q->b, v * w * g->bn), g->bk, g->bn, g->k,
                               tsri_fast_least(nv * w, g->n - v * w), nv * w, p);
            multiply(g, m, tsri_fast_least(chunk, m1 - m), q->a,
                     g->packed ? elements_at(g, q->b, v * w * g->k) : p, (int)nv, v * w, q->bias,
                     q->c, &ahead);
        }
        if (g->ending && !tsri_fast_tiles_end(g->ending->kernel))
            end_rows(g, q->c, m, tsri_fast_least(chunk, m1 - m), v0 * w,
                     tsri_fast_least(v1 * w, g->n));
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
    const int64_t w = g->loops->width;
    tsri_fast_tile t = {.ar = g->lda, .ak = 1, .bk = g->bk, .ldc = g->ldc, .rows = g->m};
    const int64_t block = few_block(g);
    for (int64_t k = 0; k < g->k; k += block)
        for (int64_t v = v0, nv; v < v1; v += nv) {
            nv = tsri_fast_panel(v1 - v);
            t.k = tsri_fast_least(block, g->k - k);
            t.add = k > 0;
            t.bias = q->bias && k + t.k == g->k ? elements_at(g, q->bias, v * w) : NULL;
            t.cols = tsri_fast_least(nv * w, g->n - v * w);
            t.a = elements_at(g, q->a, k);
            t.b = elements_at(g, q->b, k * g->bk + v * w);
            t.c = elements_to(g, q->c, v * w);
            g->loops->tile[nv](&t);
        }
}

/* Packs a's rows as columns, block by block of terms, and these panel by panel. */
static void few_pack(void *arg, int part)
{
    const job *q = arg;
    const tsri_fast_gemm *g = q->g;
    const int64_t w = g->loops->width, width = few_width(g), block = few_block(g);
    int64_t turn = 0;
    for (int64_t k = 0; k < g->k; k += block)
        for (int64_t v = 0, nv; v < width / w; v += nv, turn++) {
            const int64_t terms = tsri_fast_least(block, g->k - k);
            nv = tsri_fast_panel(width / w - v);
            if (turn % g->threads == part)
                g->loops->pack(elements_at(g, q->a, v * w * g->lda + k), 1, g->lda, terms,
                               tsri_fast_least(nv * w, g->m - v * w), nv * w,
                               elements_to(g, q->scratch, width * k + v * w * terms));
        }
}

/* Asks for `rows` rows of b's terms [k, k + terms), from column `first` on. */
static void few_ask(const job *q, int64_t k, int64_t first, int64_t rows, tsri_ahead *ahead)
{
    const tsri_fast_gemm *g = q->g;
    const int64_t terms = tsri_fast_least(few_block(g), g->k - k);
    ahead->n = 0;
    for (int64_t r = rows - 1; r >= 0 && k < g->k; r--)
        tsri_ahead_add(ahead, elements_at(g, q->b, (first + r) * g->bn + k), bytes_of(g, terms));
}

/* Sums of `count` of b's columns from `first` on, which are rows in memory: sums[count][width].
 * They are read once, a few rows of a block of terms at a time, for all of a's rows. */
static void few_sums(const job *q, int64_t first, int64_t count, void *sums)
{
    const tsri_fast_gemm *g = q->g;
    const int64_t w = g->loops->width, width = few_width(g), block = few_block(g);
    const int64_t rows = w * g->loops->size >= FEW_TALL ? FEW_TALL_ROWS : FEW_LOW_ROWS;
    tsri_ahead ahead;
    tsri_fast_tile t = {.ar = g->bn, .ak = 1, .ldc = width, .packed = true, .ahead = &ahead};
    for (int64_t k = 0; k < g->k; k += block)
        for (int64_t r = 0; r < count; r += rows) {
            const int64_t next = r + rows < count ? r + rows : 0;
            t.k = tsri_fast_least(block, g->k - k);
            t.add = k > 0;
            t.rows = tsri_fast_least(rows, count - r);
            t.a = elements_at(g, q->b, (first + r) * g->bn + k);
            few_ask(q, next ? k : k + block, first + next, tsri_fast_least(rows, count - next),
                    &ahead);
            for (int64_t v = 0, nv; v < width / w; v += nv) {
                nv = tsri_fast_panel(width / w - v);
                t.bk = t.cols = nv * w;
                t.b = elements_at(g, q->scratch, width * k + v * w * t.k);
                t.c = elements_to(g, sums, r * width + v * w);
                g->loops->tile[nv](&t);
            }
        }
}

/* b's columns are rows in memory: their products with a's rows are summed the other way around, and
 * turned. */
static void few_turned(const job *q, int64_t n0, int64_t n1, void *sums)
{
    const tsri_fast_gemm *g = q->g;
    const int64_t width = few_width(g), chunk = few_chunk(g);
    for (int64_t n = n0; n < n1; n += chunk) {
        const int64_t count = tsri_fast_least(chunk, n1 - n);
        few_sums(q, n, count, sums);
        g->loops->transpose(sums, width, elements_to(g, q->c, n), g->ldc, g->m, count);
        for (int64_t m = 0; q->bias && m < g->m; m++)
            g->loops->add(elements_at(g, q->bias, n), elements_to(g, q->c, m * g->ldc + n), count);
    }
}

static void few_part(const job *q, int part)
{
    const tsri_fast_gemm *g = q->g;
    const int64_t w = g->loops->width;
    const int64_t v0 = tsri_fast_cut(vectors(g), g->threads, part, 1);
    const int64_t v1 = tsri_fast_cut(vectors(g), g->threads, part + 1, 1);
    if (g->bn == 1)
        few_direct(q, v0, v1);
    else
        few_turned(q, v0 * w, tsri_fast_least(v1 * w, g->n),
                   q->scratch + few_packed_bytes(g) + (size_t)part * g->part_bytes);
    end_rows(g, q->c, 0, g->m, v0 * w, tsri_fast_least(v1 * w, g->n));
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
    const int64_t n0 = tsri_fast_cut(g->n, g->threads, part, g->loops->width);
    const int64_t n1 = tsri_fast_cut(g->n, g->threads, part + 1, g->loops->width);
    g->loops->dots(&d, n0, n1);
    end_rows(g, q->c, 0, g->m, n0, n1);
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
    void *packed = q->scratch + (size_t)part * g->part_bytes;
    for (int64_t v = v0, group = group_vectors(g); v < v1; v += group)
        plain_block(q, m0, m1, v, tsri_fast_least(v + group, v1), packed);
}

void tsri_fast_gemm_add(const tsri_fast_gemm *g, const void *from, void *c, int64_t m0, int64_t m1)
{
    for (int64_t m = m0; m < m1; m++)
        g->loops->add(elements_at(g, from, m * g->n), elements_to(g, c, m * g->ldc), g->n);
}

/* c = over k0 <= k < k1; block[m][n] is used where these are more than TSRI_FAST_TA_LONG. */
static void ta_long(const tsri_fast_gemm *g, int64_t k0, int64_t k1, int64_t m0, int64_t m1,
                    const void *a, const void *b, void *c, void *block)
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
static void *scratch_part(const job *q, int i)
{
    return q->scratch + (size_t)i * q->g->part_bytes;
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
    void *c = q->c;
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

void tsri_fast_gemm_run(const tsri_fast_gemm *g, const void *a, const void *b, const void *bias,
                        void *c, void *scratch)
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
