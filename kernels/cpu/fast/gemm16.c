/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of bf16 in blocks of 32 x 32. Columns of b go in groups, which are packed and stay in a
 * core's second-level cache while all rows pass over them. A row block of a is read where it lies
 * if it is whole; else it is packed too. Sums longer than LONG_SUM are made of parts, whose sums
 * are kept in f32.
 */
#include "kernels/cpu/fast/gemm16.h"

#include <omp.h>

enum {
    LONG_SUM = 4096,
    GROUP_BYTES = 1 << 20,  /* of packed b */
    CHUNK = 512,            /* rows whose sums are kept */
    WORTH_A_TEAM = 1 << 20, /* multiplications */
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

tsri_gemm16 tsri_gemm16_plan(const tsri_kernel_desc *desc, const tsri_fast_gemm *of, bool alone)
{
    tsri_gemm16 g = {.isa = tsri_isa16_best(),
                     .m = of->m,
                     .n = of->n,
                     .k = of->k,
                     .lda = of->lda,
                     .bk = of->bk,
                     .bn = of->bn,
                     .ldc = of->ldc,
                     .ta = of->ta,
                     .wide = desc->out[0].dtype == TSR_F32,
                     .wide_bias = desc->nin > 2 && desc->in[2].dtype == TSR_F32};
    g.threads = alone || g.m * g.n * g.k < WORTH_A_TEAM ? 1 : omp_get_max_threads();
    g.by_columns = g.n > g.m;
    g.terms = least(round_up(g.k, TSRI_STEP), LONG_SUM);
    const int64_t columns = g.by_columns ? (g.n + g.threads - 1) / g.threads : g.n;
    g.group = GROUP_BYTES / (g.terms * 2) / TSRI_BLOCK * TSRI_BLOCK;
    g.group = least(g.group, round_up(columns, TSRI_BLOCK) + TSRI_BLOCK);
    g.chunk = least(CHUNK, round_up(g.m, TSRI_BLOCK));
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

bool tsri_gemm16_takes(const tsri_kernel_desc *desc)
{
    return desc->in[0].dtype == TSR_BF16 && desc->in[1].dtype == TSR_BF16 &&
           (desc->nin < 3 || is_bf16_or_f32(&desc->in[2])) && is_bf16_or_f32(&desc->out[0]) &&
           tsri_isa16_best();
}

/* Packs columns [j, j + n) of terms [k, k + terms). */
static void pack_b(const tsri_gemm16 *g, const uint16_t *b, int64_t j, int64_t n, int64_t k,
                   int64_t terms, uint16_t *to)
{
    const bool turn = g->bk == 1;
    for (int64_t c = 0; c < n; c += TSRI_BLOCK)
        for (int64_t s = 0; s < terms; s += TSRI_STEP)
            for (int64_t t = c; t < c + TSRI_BLOCK; t += TSRI_TILE, to += 2 * TSRI_TILE_WORDS) {
                const int64_t cols = t < n ? least(n - t, TSRI_TILE) : 0;
                const int64_t deep = least(terms - s, TSRI_STEP);
                const uint16_t *from = b + (k + s) * g->bk + (j + t) * g->bn;
                if (turn)
                    g->isa->pack(from, g->bn, cols, deep, false, true, to);
                else
                    g->isa->pack(from, g->bk, cols ? deep : 0, cols, true, false, to);
            }
}

/* Packs rows [r, r + rows) of terms [k, k + terms): [step][2 tiles][16 rows][32]. */
static void pack_a(const tsri_gemm16 *g, const uint16_t *a, int64_t r, int64_t rows, int64_t k,
                   int64_t terms, uint16_t *to)
{
    for (int64_t s = 0; s < terms; s += TSRI_STEP)
        for (int64_t t = 0; t < TSRI_BLOCK; t += TSRI_TILE, to += 2 * TSRI_TILE_WORDS) {
            const int64_t lines = t < rows ? least(rows - t, TSRI_TILE) : 0;
            const int64_t deep = least(terms - s, TSRI_STEP);
            if (g->ta)
                g->isa->pack(a + (k + s) * g->lda + r + t, g->lda, lines ? deep : 0, lines, true,
                             true, to);
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

/* Columns [j, j + n), which are packed, of rows [r, r + rows), over terms [k, k + terms). sums: of
 * the blocks so far, one behind the other; of one block where all terms are here. */
static void row_block(const job *q, int64_t r, int64_t rows, int64_t j, int64_t n, int64_t k,
                      int64_t terms, uint16_t *room, const uint16_t *packed, float *sums)
{
    const tsri_gemm16 *g = q->g;
    const bool first = k == 0, last = k + terms == g->k;
    tsri_block16 p = {.a = room,
                      .pitch = TSRI_STEP,
                      .step = 4 * TSRI_TILE_WORDS,
                      .steps = (terms + TSRI_STEP - 1) / TSRI_STEP,
                      .rows = rows > TSRI_TILE ? 2 : 1,
                      .add = !first};
    if (!g->ta && rows % TSRI_TILE == 0 && terms % TSRI_STEP == 0) {
        p.a = q->a + r * g->lda + k;
        p.pitch = g->lda;
        p.step = TSRI_STEP;
    } else {
        pack_a(g, q->a, r, rows, k, terms, room);
    }
    for (int64_t t = 0; t < n; t += TSRI_BLOCK) {
        const int64_t cols = least(n - t, TSRI_BLOCK), at = j + t;
        p.b = packed + t * p.steps * TSRI_STEP;
        p.cols = cols > TSRI_TILE ? 2 : 1;
        p.c = sums + (first && last ? 0 : t * TSRI_BLOCK);
        g->isa->block(&p);
        if (!last)
            continue;
        const char *bias = q->bias;
        bias = bias ? bias + at * (g->wide_bias ? 4 : 2) : NULL;
        g->isa->store(p.c, rows, cols, bias, g->wide_bias,
                      (char *)q->c + (r * g->ldc + at) * (g->wide ? 4 : 2), g->ldc, g->wide);
    }
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
        const int64_t end = least(c + g->chunk, m1);
        for (int64_t k = 0; k < g->k; k += g->terms) {
            const int64_t terms = least(g->terms, g->k - k);
            if (parts || c == m0)
                pack_b(g, q->b, j, n, k, terms, packed);
            for (int64_t r = c; r < end; r += TSRI_BLOCK)
                row_block(q, r, least(end - r, TSRI_BLOCK), j, n, k, terms, room, packed,
                          sums + (parts ? (r - c) * g->group : 0));
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
        group(q, m0, m1, j, least(g->group, n1 - j), q->scratch + (size_t)part * g->part_bytes);
    if (g->isa->end)
        g->isa->end();
}

void tsri_gemm16_run(const tsri_gemm16 *g, const uint16_t *a, const uint16_t *b, const void *bias,
                     void *c, void *scratch)
{
    job q = {.g = g, .a = a, .b = b, .bias = bias, .c = c, .scratch = scratch};
    tsri_fast_team(g->threads, run_part, &q);
}
