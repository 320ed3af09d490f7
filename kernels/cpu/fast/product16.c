/* SPDX-License-Identifier: Apache-2.0 */
/*
 * linear, 1x1 convolutions and their gradients of bf16. Where there are no products of bf16
 * (gemm16.h) they work by pieces alone, of which a few rows at a time are widened to f32.
 */
#include "kernels/cpu/fast/gemm16.h"

#include <string.h>

enum {
    SOME_ROWS = 96,         /* that are widened at a time */
    SOME_BYTES = 128 << 10, /* of packed rows that are summed at a time */
    LEAST_ROWS = 2 * TSRI_BLOCK,
    MOST_ROWS = 512,
};

/* With gemm16.isa by products of bf16, else gemm is f32's. */
typedef struct product {
    tsri_fast base;
    tsri_fast_gemm gemm;
    tsri_gemm16 gemm16;
    tsri_widen_fn *widen;
    tsri_narrow_fn *narrow;
    bool wide, bias, wide_bias; /* wide: the result is f32 */
    int64_t rows;               /* at a time */
    size_t packed_bytes;        /* of what all threads read, */
    size_t room_bytes, thread_bytes;
} product;

static tsr_status product_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                              void *scratch)
{
    const product *k = (const product *)kernel;
    const bool swap = k->gemm.ta; /* dw[out, in]: dy is its a, x its b */
    tsri_gemm16_run(&k->gemm16, in[swap], in[!swap], k->bias ? in[2] : NULL, out[0], scratch);
    return TSR_OK;
}

static char *thread_at(const product *k, void *scratch, int thread)
{
    return (char *)scratch + k->packed_bytes + (size_t)thread * k->thread_bytes;
}

/* --- rows of y or dx -------------------------------------------------------------------------- */
static void pack_begin(const tsri_fast *f, const tsri_fast_part *p)
{
    const product *k = (const product *)f;
    if (k->gemm16.isa) {
        tsri_gemm16_pack(&k->gemm16, p->index, f->threads, p->in[1], k->gemm16.k, p->scratch);
        return;
    }
    if (p->index)
        return;
    /* Packed weights, weights as f32, the bias as f32. */
    char *at = p->scratch;
    float *packed = tsri_fast_take(&at, (size_t)tsri_fast_packed(&k->gemm) * sizeof(float));
    float *wide = tsri_fast_take(&at, (size_t)(k->gemm.k * k->gemm.n) * sizeof(float));
    k->widen(p->in[1], wide, k->gemm.k * k->gemm.n);
    tsri_fast_gemm_pack(&k->gemm, 0, 1, wide, packed);
    if (k->bias && !k->wide_bias)
        k->widen(p->in[2], (float *)(void *)at, k->gemm.n);
}

/* n rows by f32. */
static void wide_rows(const product *k, const tsri_fast_part *p, int64_t first, int64_t n,
                      char *room)
{
    const tsri_fast_gemm *g = &k->gemm;
    char *at = p->scratch;
    const float *packed = tsri_fast_take(&at, (size_t)tsri_fast_packed(g) * sizeof(float));
    tsri_fast_take(&at, (size_t)(g->k * g->n) * sizeof(float));
    const float *bias = !k->bias ? NULL : k->wide_bias ? p->in[2] : (const float *)(void *)at;
    float *x = tsri_fast_take(&room, (size_t)(k->rows * g->k) * sizeof(float));
    float *y = k->wide ? (float *)p->out[0] + first * g->n : (float *)(void *)room;
    k->widen((const uint16_t *)p->in[0] + first * g->k, x, n * g->k);
    tsri_fast_gemm_rows(g, n, x, packed, bias, y, p->ahead);
    if (!k->wide)
        k->narrow(y, (uint16_t *)p->out[0] + first * g->n, n * g->n);
}

static void rows_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const product *k = (const product *)f;
    char *room = thread_at(k, p->scratch, p->index);
    if (k->gemm16.isa)
        tsri_gemm16_rows(
            &k->gemm16, p->end - p->begin, (const uint16_t *)p->in[0] + p->begin * k->gemm.k,
            p->scratch, k->bias ? p->in[2] : NULL,
            (char *)p->out[0] + p->begin * k->gemm.n * (k->wide ? 4 : 2), room, p->ahead);
    for (int64_t r = p->begin; !k->gemm16.isa && r < p->end; r += k->rows)
        wide_rows(k, p, r, tsri_fast_least(k->rows, p->end - r), room);
}

/* --- sums of dw ------------------------------------------------------------------------------- */
/* A thread's sums over rows of dy^T x: those of `block` wait to join `sum`, so that long sums are
 * made of several. */
typedef struct sums {
    int64_t terms; /* in `block` */
    bool any;      /* `sum` holds something */
    int64_t count;
    float *sum, *block;
    char *room;
} sums;

static size_t sum_bytes(const product *k)
{
    return k->gemm16.isa ? tsri_gemm16_sums(&k->gemm16)
                         : (size_t)(k->gemm.m * k->gemm.n) * sizeof(float);
}

static sums *sums_of(const product *k, void *scratch, int thread)
{
    return (sums *)(void *)thread_at(k, scratch, thread);
}

static void sums_begin(const tsri_fast *f, const tsri_fast_part *p)
{
    const product *k = (const product *)f;
    sums *s = sums_of(k, p->scratch, p->index);
    char *at = (char *)s + tsri_fast_align(sizeof *s);
    *s = (sums){.count = (int64_t)(sum_bytes(k) / sizeof(float))};
    s->sum = tsri_fast_take(&at, sum_bytes(k));
    s->block = tsri_fast_take(&at, sum_bytes(k));
    s->room = at;
}

/* Adds elements [begin, end). */
static void add(const product *k, const float *from, float *to, int64_t begin, int64_t end)
{
    tsri_fast_map map = {.x = to, .y = from, .out = to};
    k->base.isa->binary[TSRI_BINARY_ADD](&map, begin, end);
}

static void join_block(const product *k, sums *s)
{
    if (s->any)
        add(k, s->block, s->sum, 0, s->count);
    else
        memcpy(s->sum, s->block, (size_t)s->count * sizeof(float));
    s->any = true;
    s->terms = 0;
}

/* Adds n terms to the block. */
static void add_terms(const product *k, sums *s, const uint16_t *dy, const uint16_t *x, int64_t n,
                      tsri_ahead *ahead)
{
    const tsri_fast_gemm *g = &k->gemm;
    char *at = s->room;
    if (k->gemm16.isa) {
        uint16_t *packed = tsri_fast_take(&at, tsri_gemm16_packed(&k->gemm16, k->rows));
        tsri_gemm16_pack(&k->gemm16, 0, 1, x, n, packed);
        tsri_gemm16_add(&k->gemm16, n, dy, packed, s->terms == 0, s->block, at, ahead);
    } else {
        float *a = tsri_fast_take(&at, (size_t)(k->rows * g->m) * sizeof(float));
        float *b = (float *)(void *)at;
        k->widen(dy, a, n * g->m);
        k->widen(x, b, n * g->n);
        tsri_fast_gemm_ta(g, 0, n, 0, g->m, a, b, s->block, s->terms > 0, ahead);
    }
    s->terms += n;
}

static void sums_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const product *k = (const product *)f;
    sums *s = sums_of(k, p->scratch, p->index);
    const uint16_t *x = p->in[0], *dy = p->in[1];
    for (int64_t r = p->begin, n; r < p->end; r += n) {
        n = tsri_fast_least(k->rows, p->end - r);
        add_terms(k, s, dy + r * k->gemm.m, x + r * k->gemm.n, n, p->ahead);
        if (s->terms >= TSRI_FAST_TA_LONG)
            join_block(k, s);
    }
}

/* A thread's share of all threads' sums becomes its share of the result. */
static void sums_end(const tsri_fast *f, const tsri_fast_part *p)
{
    const product *k = (const product *)f;
    sums *first = sums_of(k, p->scratch, 0);
    const int64_t m = k->gemm.m, unit = k->gemm16.isa ? TSRI_BLOCK : 1;
    const int64_t pitch = first->count / ((m + unit - 1) / unit); /* of `unit` rows */
    const int64_t begin = tsri_fast_cut(m, f->threads, p->index, unit);
    const int64_t end = tsri_fast_cut(m, f->threads, p->index + 1, unit);
    const int64_t from = begin / unit * pitch, to = (end + unit - 1) / unit * pitch;
    if (begin == end)
        return;
    if (!first->any)
        memset(first->sum + from, 0, (size_t)(to - from) * sizeof(float));
    for (int t = 0; t < f->threads; t++) {
        const sums *s = sums_of(k, p->scratch, t);
        if (s->any && t)
            add(k, s->sum, first->sum, from, to);
        if (s->terms)
            add(k, s->block, first->sum, from, to);
    }
    float *c = (float *)p->out[0] + begin * k->gemm.n;
    if (k->gemm16.isa)
        tsri_gemm16_store(&k->gemm16, p->index, f->threads, first->sum, p->out[0]);
    else if (k->wide)
        memcpy(c, first->sum + from, (size_t)(to - from) * sizeof *c);
    else
        k->narrow(first->sum + from, (uint16_t *)p->out[0] + from, to - from);
}

/* --- making ----------------------------------------------------------------------------------- */
static void walk_rows(product *k)
{
    const tsri_fast_gemm *g = &k->gemm;
    k->base.begin = pack_begin;
    k->base.part = rows_part;
    tsri_fast_walks(&k->base, 1, 1, false);
    if (k->gemm16.isa) {
        k->packed_bytes = tsri_fast_align(tsri_gemm16_packed(&k->gemm16, g->k));
        k->thread_bytes = tsri_fast_align(tsri_gemm16_room(g->k));
        return;
    }
    k->rows = SOME_ROWS;
    k->packed_bytes = tsri_fast_align((size_t)tsri_fast_packed(g) * sizeof(float)) +
                      tsri_fast_align((size_t)(g->k * g->n) * sizeof(float)) +
                      tsri_fast_align((size_t)g->n * sizeof(float));
    k->thread_bytes = tsri_fast_align((size_t)(k->rows * g->k) * sizeof(float)) +
                      tsri_fast_align((size_t)(k->rows * g->n) * sizeof(float));
}

static void walk_sums(product *k)
{
    const tsri_fast_gemm *g = &k->gemm;
    k->base.begin = sums_begin;
    k->base.part = sums_part;
    k->base.end = sums_end;
    tsri_fast_walks(&k->base, 3, 0, false);
    k->rows = SOME_BYTES / (g->n * 2) / TSRI_BLOCK * TSRI_BLOCK;
    k->rows = k->rows < LEAST_ROWS ? LEAST_ROWS : tsri_fast_least(k->rows, MOST_ROWS);
    k->thread_bytes = tsri_fast_align(sizeof(sums)) + 2 * tsri_fast_align(sum_bytes(k));
    if (k->gemm16.isa)
        k->thread_bytes += tsri_fast_align(tsri_gemm16_packed(&k->gemm16, k->rows)) +
                           tsri_fast_align(tsri_gemm16_room(k->rows));
    else
        k->thread_bytes += tsri_fast_align((size_t)(k->rows * g->m) * sizeof(float)) +
                           tsri_fast_align((size_t)(k->rows * g->n) * sizeof(float));
}

tsr_status tsri_fast_product16(tsri_mem *mem, const tsri_kernel_desc *desc, int64_t rows,
                               int64_t out, int64_t in, tsri_kernel **out_kernel)
{
    const bool by16 = tsri_isa16_best() != NULL;
    if (!by16 && !desc->threads)
        return tsri_fast_decline(desc);
    product *k = tsri_fast_make(mem, desc, NULL, sizeof *k, 0, rows);
    TSRI_NEED(k);
    k->gemm = tsri_fast_gemm_linear(&k->base.isa->f32, desc->op, rows, out, in);
    k->widen = tsri_widen_of(TSR_BF16);
    k->narrow = tsri_narrow_of(TSR_BF16);
    k->bias = desc->nin > 2;
    k->wide = desc->out[0].dtype == TSR_F32;
    k->wide_bias = k->bias && desc->in[2].dtype == TSR_F32;
    if (by16) {
        k->gemm16 = tsri_gemm16_plan(desc, &k->gemm, false);
        k->base.base.run = product_run;
        k->base.base.impl = k->gemm16.isa->impl;
        k->base.base.scratch_bytes = k->gemm16.scratch_bytes;
    } else {
        tsri_fast_gemm_plan_alone(&k->gemm);
    }
    if (desc->threads) { /* pieces' scratch may be large: only who asks for threads works so */
        k->base.threads = desc->threads;
        if (k->gemm.ta)
            walk_sums(k);
        else
            walk_rows(k);
        const size_t bytes = k->packed_bytes + (size_t)desc->threads * k->thread_bytes;
        if (bytes > k->base.base.scratch_bytes)
            k->base.base.scratch_bytes = bytes;
    }
    *out_kernel = &k->base.base;
    return TSR_OK;
}
