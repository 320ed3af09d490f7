/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of bf16 in blocks of 32 x 32. Columns of b go in groups, which are packed and stay in a
 * core's second-level cache while all rows pass over them. A row block of a is read where it lies
 * if that can be; else it is packed too. Sums longer than LONG_SUM are made of parts, whose sums
 * are kept in f32.
 */
#include "kernels/cpu/fast/gemm16.h"

#include <omp.h>

enum {
    LONG_SUM = 4096,
    GROUP_BYTES = 1 << 20,  /* of packed b */
    CHUNK = 512,            /* rows whose sums are kept */
    WORTH_A_TEAM = 1 << 20, /* multiplications */
    BLOCK_FLOATS = TSRI_BLOCK * TSRI_BLOCK,
};

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

tsri_gemm16 tsri_gemm16_plan_packed(const tsri_fast_gemm *of, bool wide, bool wide_bias)
{
    return (tsri_gemm16){.isa = tsri_isa16_best(),
                         .m = of->m,
                         .n = of->n,
                         .k = of->k,
                         .lda = of->lda,
                         .bk = of->bk,
                         .bn = of->bn,
                         .ldc = of->ldc,
                         .ta = of->ta,
                         .wide = wide,
                         .wide_bias = wide_bias};
}

tsri_gemm16 tsri_gemm16_plan(const tsri_kernel_desc *desc, const tsri_fast_gemm *of, bool alone)
{
    tsri_gemm16 g = tsri_gemm16_plan_packed(of, desc->out[0].dtype == TSR_F32,
                                            desc->nin > 2 && desc->in[2].dtype == TSR_F32);
    g.threads = alone || g.m * g.n * g.k < WORTH_A_TEAM ? 1 : omp_get_max_threads();
    g.by_columns = g.n > g.m;
    g.terms = tsri_fast_least(round_up(g.k, TSRI_STEP), LONG_SUM);
    const int64_t columns = g.by_columns ? (g.n + g.threads - 1) / g.threads : g.n;
    g.group = GROUP_BYTES / (g.terms * 2) / TSRI_BLOCK * TSRI_BLOCK;
    g.group = tsri_fast_least(g.group, round_up(columns, TSRI_BLOCK) + TSRI_BLOCK);
    g.chunk = tsri_fast_least(CHUNK, round_up(g.m, TSRI_BLOCK));
    g.a_bytes = (size_t)(TSRI_BLOCK * g.terms) * 2;
    g.b_bytes = (size_t)(g.group * g.terms) * 2;
    g.part_bytes = g.a_bytes + g.b_bytes;
    g.part_bytes += (size_t)(g.k > g.terms ? g.chunk * g.group : TSRI_BLOCK * TSRI_BLOCK) * 4;
    g.scratch_bytes = (size_t)g.threads * g.part_bytes;
    return g;
}

static bool is_bf16_or_f32(const tsri_arg *a)
{
    return a->dtype == TSR_BF16 || a->dtype == TSR_F32;
}

bool tsri_fast_takes16(const tsri_kernel_desc *desc)
{
    return desc->in[0].dtype == TSR_BF16 && desc->in[1].dtype == TSR_BF16 &&
           (desc->nin < 3 || is_bf16_or_f32(&desc->in[2])) && is_bf16_or_f32(&desc->out[0]);
}

bool tsri_gemm16_takes(const tsri_kernel_desc *desc)
{
    return tsri_fast_takes16(desc) && tsri_isa16_best();
}

/* Packs columns [j, j + n) of terms [k, k + terms). */
static void pack_b(const tsri_gemm16 *g, const uint16_t *b, int64_t j, int64_t n, int64_t k,
                   int64_t terms, uint16_t *to)
{
    const bool turn = g->bk == 1;
    for (int64_t c = 0; c < n; c += TSRI_BLOCK)
        for (int64_t s = 0; s < terms; s += TSRI_STEP)
            for (int64_t t = c; t < c + TSRI_BLOCK; t += TSRI_TILE, to += 2 * TSRI_TILE_WORDS) {
                const int64_t cols = t < n ? tsri_fast_least(n - t, TSRI_TILE) : 0;
                const int64_t deep = tsri_fast_least(terms - s, TSRI_STEP);
                const uint16_t *from = b + (k + s) * g->bk + (j + t) * g->bn;
                if (turn)
                    g->isa->pack(from, g->bn, cols, deep, false, true, to);
                else
                    g->isa->pack(from, g->bk, cols ? deep : 0, cols, true, false, to);
            }
}

/* Packs rows [r, r + rows) of terms [k, k + terms): [step][2 tiles][16 rows][32]; of a[k][m], where
 * blocks read pairs, [step][2 tiles][16 pairs][16 rows][2]. */
static void pack_a(const tsri_gemm16 *g, const uint16_t *a, int64_t r, int64_t rows, int64_t k,
                   int64_t terms, uint16_t *to)
{
    for (int64_t s = 0; s < terms; s += TSRI_STEP)
        for (int64_t t = 0; t < TSRI_BLOCK; t += TSRI_TILE, to += 2 * TSRI_TILE_WORDS) {
            const int64_t lines = t < rows ? tsri_fast_least(rows - t, TSRI_TILE) : 0;
            const int64_t deep = tsri_fast_least(terms - s, TSRI_STEP);
            if (g->ta)
                g->isa->pack(a + (k + s) * g->lda + r + t, g->lda, lines ? deep : 0, lines, true,
                             !g->isa->by_pairs, to);
            else
                g->isa->pack(a + (r + t) * g->lda + k + s, g->lda, lines, deep, false, false, to);
        }
}

typedef struct job {
    const tsri_gemm16 *g;
    const uint16_t *a, *b;
    const void *bias;
    void *c;
    char *scratch;
} job;

/* Blocks of rows [r, r + rows), r being of a, by n packed columns, over terms [k, k + terms): added
 * to sums, or begun. One block lies `pitch` floats behind the other. With `c`, a block's sums are
 * stored there as they are complete. */
typedef struct strip {
    int64_t r, rows, n, k, terms, pitch;
    uint16_t *room;
    const uint16_t *packed;
    bool add;
    float *sums;
    const char *bias;
    char *c;
    tsri_ahead *ahead;
} strip;

static void store_block(const tsri_gemm16 *g, const strip *s, int64_t t, const float *sums)
{
    const char *bias = s->bias ? s->bias + t * (g->wide_bias ? 4 : 2) : NULL;
    g->isa->store(sums, s->rows, tsri_fast_least(s->n - t, TSRI_BLOCK), bias, g->wide_bias,
                  s->c + t * (g->wide ? 4 : 2), g->ldc, g->wide);
}

static void row_block(const tsri_gemm16 *g, const uint16_t *a, const strip *s)
{
    tsri_block16 p = {.a = s->room,
                      .pitch = TSRI_STEP,
                      .next = 2,
                      .step = 4 * TSRI_TILE_WORDS,
                      .steps = (s->terms + TSRI_STEP - 1) / TSRI_STEP,
                      .terms = s->terms,
                      .rows = s->rows,
                      .add = s->add,
                      .ahead = s->ahead};
    const bool by_pairs = g->isa->by_pairs;
    if (!g->ta &&
        (by_pairs ? s->terms % 2 == 0 : s->rows % TSRI_TILE == 0 && s->terms % TSRI_STEP == 0)) {
        p.a = a + s->r * g->lda + s->k;
        p.pitch = g->lda;
        p.step = TSRI_STEP;
    } else {
        pack_a(g, a, s->r, s->rows, s->k, s->terms, s->room);
        if (g->ta && by_pairs) {
            p.pitch = 2;
            p.next = 2 * TSRI_TILE;
        }
    }
    for (int64_t t = 0; t < s->n; t += TSRI_BLOCK) {
        p.b = s->packed + t * p.steps * TSRI_STEP;
        p.cols = tsri_fast_least(s->n - t, TSRI_BLOCK);
        p.c = s->sums + t / TSRI_BLOCK * s->pitch;
        g->isa->block(&p);
        if (s->c)
            store_block(g, s, t, p.c);
    }
}

/* Columns [j, j + n) of terms [k, k + terms) are packed. */
static strip strip_of(const job *q, int64_t r, int64_t rows, int64_t j, int64_t n)
{
    const tsri_gemm16 *g = q->g;
    return (strip){.r = r,
                   .rows = rows,
                   .n = n,
                   .bias = q->bias ? (const char *)q->bias + j * (g->wide_bias ? 4 : 2) : NULL,
                   .c = (char *)q->c + (r * g->ldc + j) * (g->wide ? 4 : 2)};
}

/* Rows [m0, m1) of columns [j, j + n). */
static void group(const job *q, int64_t m0, int64_t m1, int64_t j, int64_t n, char *scratch)
{
    const tsri_gemm16 *g = q->g;
    uint16_t *room = (uint16_t *)(void *)scratch;
    uint16_t *packed = (uint16_t *)(void *)(scratch + g->a_bytes);
    float *sums = (float *)(void *)(scratch + g->a_bytes + g->b_bytes);
    const bool parts = g->k > g->terms;
    for (int64_t c = m0; c < m1; c += g->chunk) {
        const int64_t end = tsri_fast_least(c + g->chunk, m1);
        for (int64_t k = 0; k < g->k; k += g->terms) {
            const int64_t terms = tsri_fast_least(g->terms, g->k - k);
            if (parts || c == m0)
                pack_b(g, q->b, j, n, k, terms, packed);
            for (int64_t r = c; r < end; r += TSRI_BLOCK) {
                strip s = strip_of(q, r, tsri_fast_least(end - r, TSRI_BLOCK), j, n);
                s.k = k;
                s.terms = terms;
                s.add = k > 0;
                s.room = room;
                s.packed = packed;
                s.sums = sums + (parts ? (r - c) * g->group : 0);
                s.pitch = parts ? BLOCK_FLOATS : 0;
                if (k + terms < g->k)
                    s.c = NULL;
                row_block(g, q->a, &s);
            }
        }
    }
}

static void run_part(void *arg, int part)
{
    const job *q = arg;
    const tsri_gemm16 *g = q->g;
    int64_t m0 = 0, m1 = g->m, n0 = 0, n1 = g->n;
    int64_t *const begin = g->by_columns ? &n0 : &m0, *const end = g->by_columns ? &n1 : &m1;
    const int64_t all = *end;
    *begin = tsri_fast_cut(all, g->threads, part, TSRI_BLOCK);
    *end = tsri_fast_cut(all, g->threads, part + 1, TSRI_BLOCK);
    if (g->isa->begin)
        g->isa->begin();
    for (int64_t j = n0; j < n1; j += g->group)
        group(q, m0, m1, j, tsri_fast_least(g->group, n1 - j),
              q->scratch + (size_t)part * g->part_bytes);
    if (g->isa->end)
        g->isa->end();
}

void tsri_gemm16_run(const tsri_gemm16 *g, const uint16_t *a, const uint16_t *b, const void *bias,
                     void *c, void *scratch)
{
    job q = {.g = g, .a = a, .b = b, .bias = bias, .c = c, .scratch = scratch};
    tsri_team(g->threads, run_part, &q);
}

/* --- by hand ---------------------------------------------------------------------------------- */

size_t tsri_gemm16_room(int64_t terms)
{
    return (size_t)(TSRI_BLOCK * round_up(terms, TSRI_STEP)) * 2;
}

size_t tsri_gemm16_packed(const tsri_gemm16 *g, int64_t terms)
{
    return (size_t)(round_up(g->n, TSRI_BLOCK) * round_up(terms, TSRI_STEP)) * 2;
}

void tsri_gemm16_pack(const tsri_gemm16 *g, int part, int parts, const uint16_t *b, int64_t terms,
                      uint16_t *packed)
{
    const int64_t j = tsri_fast_cut(g->n, parts, part, TSRI_BLOCK);
    const int64_t end = tsri_fast_cut(g->n, parts, part + 1, TSRI_BLOCK);
    pack_b(g, b, j, end - j, 0, terms, packed + j * round_up(terms, TSRI_STEP));
}

void tsri_gemm16_rows(const tsri_gemm16 *g, int64_t rows, const uint16_t *a, const uint16_t *packed,
                      const void *bias, void *c, void *room, tsri_ahead *ahead)
{
    float sums[BLOCK_FLOATS];
    const job q = {.g = g, .bias = bias, .c = c};
    if (g->isa->begin)
        g->isa->begin();
    for (int64_t r = 0; r < rows; r += TSRI_BLOCK) {
        strip s = strip_of(&q, r, tsri_fast_least(rows - r, TSRI_BLOCK), 0, g->n);
        s.terms = g->k;
        s.room = room;
        s.packed = packed;
        s.sums = sums;
        s.ahead = ahead;
        row_block(g, a, &s);
    }
    if (g->isa->end)
        g->isa->end();
}

static int64_t strip_floats(const tsri_gemm16 *g)
{
    return round_up(g->n, TSRI_BLOCK) * TSRI_BLOCK;
}

size_t tsri_gemm16_sums(const tsri_gemm16 *g)
{
    return (size_t)(round_up(g->m, TSRI_BLOCK) / TSRI_BLOCK * strip_floats(g)) * sizeof(float);
}

void tsri_gemm16_add(const tsri_gemm16 *g, int64_t terms, const uint16_t *a, const uint16_t *packed,
                     bool first, float *sums, void *room, tsri_ahead *ahead)
{
    if (g->isa->begin)
        g->isa->begin();
    for (int64_t r = 0; r < g->m; r += TSRI_BLOCK) {
        const strip s = {.r = r,
                         .rows = tsri_fast_least(g->m - r, TSRI_BLOCK),
                         .n = g->n,
                         .terms = terms,
                         .pitch = BLOCK_FLOATS,
                         .room = room,
                         .packed = packed,
                         .add = !first,
                         .ahead = ahead,
                         .sums = sums + r / TSRI_BLOCK * strip_floats(g)};
        row_block(g, a, &s);
    }
    if (g->isa->end)
        g->isa->end();
}

void tsri_gemm16_store(const tsri_gemm16 *g, int part, int parts, const float *sums, void *c)
{
    const job q = {.g = g, .c = c};
    const int64_t end = tsri_fast_cut(g->m, parts, part + 1, TSRI_BLOCK);
    for (int64_t r = tsri_fast_cut(g->m, parts, part, TSRI_BLOCK); r < end; r += TSRI_BLOCK) {
        const strip s = strip_of(&q, r, tsri_fast_least(g->m - r, TSRI_BLOCK), 0, g->n);
        const float *from = sums + r / TSRI_BLOCK * strip_floats(g);
        for (int64_t t = 0; t < g->n; t += TSRI_BLOCK)
            store_block(g, &s, t, from + t / TSRI_BLOCK * BLOCK_FLOATS);
    }
}
