/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products ta whose result is large: gradients of weights. Both operands are packed, so that tiles
 * read them from near caches however far their rows lie apart, and the result is written row by
 * row, or, where its sums have few terms, handed on while it is in the first cache.
 */
#include "kernels/cpu/fast/fast.h"

#include <string.h>

enum {
    HEIGHT = 8,              /* rows of a panel of a: whole tiles of any instruction set */
    FEW_TERMS = 512,         /* of sums: packed at once, and the most that can be handed on */
    TERMS = 256,             /* of longer sums: packed at a time */
    BLOCK = 256,             /* terms that are summed before they join others */
    LARGE = 1 << 17,         /* elements of a result, */
    LARGER = 1 << 18,        /* and of one of longer sums */
    CHUNK_BYTES = 384 << 10, /* of packed b: what stays in a core's second-level cache */
    PANELS = 4,              /* of b, by which a row of the result is written at a time */
    STRIPS = 4,              /* of so many panels, for which memory is asked at a time */
};

bool tsri_fast_outer_suits(const tsri_fast_gemm *g)
{
    const int64_t least = g->k <= FEW_TERMS ? LARGE : LARGER;
    return g->ta && g->k <= TSRI_FAST_TA_LONG && g->m * g->n >= least &&
           g->m >= HEIGHT * g->threads;
}

bool tsri_fast_outer_hands_on(const tsri_fast_gemm *g)
{
    return g->outer && g->k <= FEW_TERMS;
}

/* Terms that are packed at a time. */
static int64_t packed_terms(const tsri_fast_gemm *g)
{
    return g->k <= FEW_TERMS ? g->k : TERMS;
}

/* Columns of the result that are written at a time, and those for which b is packed. */
static int64_t strip_columns(const tsri_fast_gemm *g)
{
    return (int64_t)PANELS * 3 * g->loops->width;
}

static int64_t chunk_columns(const tsri_fast_gemm *g)
{
    const int64_t strip = strip_columns(g);
    const int64_t fit = CHUNK_BYTES / (packed_terms(g) * g->loops->size) / strip * strip;
    const int64_t all = (g->n + strip - 1) / strip * strip;
    return fit < strip ? strip : tsri_fast_least(fit, all);
}

/* A part's scratch: a's rows, packed; b's columns, packed; and a strip of sums to be handed on. */
typedef struct room {
    void *a, *b, *sums;
} room;

static int64_t part_rows(const tsri_fast_gemm *g)
{
    const int64_t groups = (g->m + HEIGHT - 1) / HEIGHT;
    return (groups + g->threads - 1) / g->threads * HEIGHT;
}

/* Returns the bytes of so many elements. */
static size_t bytes_of(const tsri_fast_gemm *g, int64_t elements)
{
    return (size_t)elements * (size_t)g->loops->size;
}

static size_t a_bytes(const tsri_fast_gemm *g)
{
    return tsri_fast_align(bytes_of(g, part_rows(g) * packed_terms(g)));
}

static size_t b_bytes(const tsri_fast_gemm *g)
{
    return tsri_fast_align(bytes_of(g, chunk_columns(g) * packed_terms(g)));
}

size_t tsri_fast_outer_bytes(const tsri_fast_gemm *g)
{
    return a_bytes(g) + b_bytes(g) + tsri_fast_align(bytes_of(g, HEIGHT * strip_columns(g)));
}

static room room_of(const tsri_fast_gemm *g, void *scratch, int part)
{
    char *at = (char *)scratch + (size_t)part * tsri_fast_outer_bytes(g);
    room r = {.a = tsri_fast_take(&at, a_bytes(g))};
    r.b = tsri_fast_take(&at, b_bytes(g));
    r.sums = at;
    return r;
}

typedef struct job {
    const tsri_fast_gemm *g;
    const void *a, *b;
    void *c;
    bool add;          /* to what is in c */
    int64_t more;      /* terms that come behind these, */
    int64_t per_strip; /* of which a strip asks for so many */
    void *scratch;
    const tsri_kernel_sink *sink; /* NULL: c is written */
    int ntouched;                 /* what writing an element touches */
    const void *touched[TSRI_SINK_TOUCHES];
} job;

/* The position of a part's work: rows from m on and columns from n on, of its chunk and its part.
 */
typedef struct place {
    int64_t m, n, m0, m1, first, end;
} place;

/* Asks for what is touched STRIPS strips later: each time for some rows of all these strips, so
 * that few ranges of memory are walked at a time. */
static void ask(const job *q, const place *at, tsri_ahead *ahead)
{
    const tsri_fast_gemm *g = q->g;
    const int64_t strip = strip_columns(g), group = STRIPS * strip,
                  turn = (at->n - at->first) / strip;
    int64_t m = at->m, n = at->n - turn % STRIPS * strip + group;
    ahead->n = 0;
    if (n >= at->end) {
        n = at->first;
        m += HEIGHT;
    }
    const int64_t rows = HEIGHT / STRIPS, from = m + turn % STRIPS * rows;
    const int64_t columns = tsri_fast_least(group, at->end - n);
    for (int64_t r = from; r < from + rows && r < at->m1; r++)
        for (int i = 0; i < q->ntouched; i++) {
            const int64_t first = r * (q->sink ? g->n : g->ldc) + n;
            tsri_ahead_add(ahead, tsri_fast_gemm_at(g, q->touched[i], first), bytes_of(g, columns));
        }
}

/* Copies the elements of a group of HEIGHT rows of one term. */
static void copy_group(const tsri_fast_gemm *g, const void *from, void *to)
{
    if (g->loops->size == sizeof(double))
        memcpy(to, from, HEIGHT * sizeof(double));
    else
        memcpy(to, from, HEIGHT * sizeof(float));
}

/* Rows [m0, m1) of a: to[group of HEIGHT][term][row]. Some terms of a group are written together,
 * as groups may lie in one set of the cache. */
static void pack_rows(const job *q, int64_t m0, int64_t m1, void *to)
{
    enum { TOGETHER = 16 };
    const tsri_fast_gemm *g = q->g;
    for (int64_t first = 0; first < g->k; first += TOGETHER) {
        const int64_t end = tsri_fast_least(first + TOGETHER, g->k);
        int64_t m = m0;
        for (; m + HEIGHT <= m1; m += HEIGHT)
            for (int64_t k = first; k < end; k++)
                copy_group(g, tsri_fast_gemm_at(g, q->a, k * g->lda + m),
                           tsri_fast_gemm_to(g, to, (m - m0) * g->k + k * HEIGHT));
        for (int64_t k = first; m < m1 && k < end; k++)
            memcpy(tsri_fast_gemm_to(g, to, (m - m0) * g->k + k * HEIGHT),
                   tsri_fast_gemm_at(g, q->a, k * g->lda + m), bytes_of(g, m1 - m));
    }
}

/* Columns [n0, n1) of b, strip by strip, panel behind panel. */
static void pack_columns(const job *q, int64_t n0, int64_t n1, void *to)
{
    const tsri_fast_gemm *g = q->g;
    const int64_t w = g->loops->width, strip = strip_columns(g);
    for (int64_t first = n0; first < n1; first += strip) {
        const int64_t end = tsri_fast_least(first + strip, n1);
        for (int64_t n = first, width; n < end; n += width) {
            width = tsri_fast_panel((end - n + w - 1) / w) * w;
            g->loops->pack(tsri_fast_gemm_at(g, q->b, n), g->bk, 1, g->k,
                           tsri_fast_least(width, end - n), width,
                           tsri_fast_gemm_to(g, to, (n - n0) * g->k));
        }
    }
}

/* Sums of up to HEIGHT rows by a strip of columns, into c. */
static void sum_strip(const tsri_fast_gemm *g, int64_t rows, int64_t columns, const void *a,
                      const void *b, void *c, int64_t ldc, bool add, tsri_ahead *ahead)
{
    const int64_t w = g->loops->width;
    tsri_fast_tile t = {.ar = 1, .ak = HEIGHT, .ldc = ldc, .rows = rows};
    t.packed = true;
    t.ahead = ahead;
    for (int64_t k = 0; k < g->k; k += BLOCK)
        for (int64_t n = 0, nv; n < columns; n += nv * w) {
            nv = tsri_fast_panel((columns - n + w - 1) / w);
            t.bk = nv * w;
            t.k = tsri_fast_least(BLOCK, g->k - k);
            t.add = add || k > 0;
            t.cols = tsri_fast_least(nv * w, columns - n);
            t.a = tsri_fast_gemm_at(g, a, k * HEIGHT);
            t.b = tsri_fast_gemm_at(g, b, n * g->k + k * t.bk);
            t.c = tsri_fast_gemm_to(g, c, n);
            g->loops->tile[nv](&t);
        }
}

/* Asks for some of the terms that come next, all of a part's rows. */
static void ask_next(const job *q, int64_t strip, int64_t m0, int64_t m1, tsri_ahead *ahead)
{
    const tsri_fast_gemm *g = q->g;
    const int64_t end = tsri_fast_least((strip + 1) * q->per_strip, q->more);
    ahead->n = 0;
    for (int64_t k = strip * q->per_strip; k < end; k++) {
        tsri_ahead_add(ahead, tsri_fast_gemm_at(g, q->a, (g->k + k) * g->lda + m0),
                       bytes_of(g, m1 - m0));
        tsri_ahead_add(ahead, tsri_fast_gemm_at(g, q->b, (g->k + k) * g->bk), bytes_of(g, g->n));
    }
}

static void do_strip(const job *q, const place *at, int64_t turn, const void *a, const void *b,
                     void *sums)
{
    const tsri_fast_gemm *g = q->g;
    const int64_t strip = strip_columns(g), columns = tsri_fast_least(strip, at->end - at->n);
    const int64_t rows = tsri_fast_least(HEIGHT, at->m1 - at->m);
    tsri_ahead ahead;
    if (q->more)
        ask_next(q, turn, at->m0, at->m1, &ahead);
    else
        ask(q, at, &ahead);
    if (!q->sink) {
        sum_strip(g, rows, columns, a, b, tsri_fast_gemm_to(g, q->c, at->m * g->ldc + at->n),
                  g->ldc, q->add, &ahead);
        return;
    }
    sum_strip(g, rows, columns, a, b, sums, strip, false, &ahead);
    for (int64_t i = 0; i < rows; i++)
        q->sink->take(q->sink, (at->m + i) * g->n + at->n, columns,
                      tsri_fast_gemm_at(g, sums, i * strip));
}

/* The sums of a part's rows over the terms of q. */
static void outer_rows(const job *q, int part, const room *r)
{
    const tsri_fast_gemm *g = q->g;
    const int64_t m0 = tsri_fast_cut(g->m, g->threads, part, HEIGHT);
    const int64_t m1 = tsri_fast_cut(g->m, g->threads, part + 1, HEIGHT);
    const int64_t chunk = chunk_columns(g), strip = strip_columns(g);
    int64_t turn = 0;
    pack_rows(q, m0, m1, r->a);
    for (int64_t first = 0; first < g->n; first += chunk) {
        const int64_t end = tsri_fast_least(first + chunk, g->n);
        pack_columns(q, first, end, r->b);
        for (int64_t m = m0; m < m1; m += HEIGHT)
            for (int64_t n = first; n < end; n += strip) {
                const place at = {m, n, m0, m1, first, end};
                do_strip(q, &at, turn++, tsri_fast_gemm_at(g, r->a, (m - m0) * g->k),
                         tsri_fast_gemm_at(g, r->b, (n - first) * g->k), r->sums);
            }
    }
}

static void outer_part(void *arg, int part)
{
    const job *q = arg;
    const int64_t k = q->g->k, terms = packed_terms(q->g);
    const room r = room_of(q->g, q->scratch, part);
    tsri_fast_gemm some = *q->g;
    job own = *q;
    const int64_t strip = strip_columns(q->g);
    const int64_t strips = (part_rows(q->g) / HEIGHT) * ((q->g->n + strip - 1) / strip);
    own.g = &some;
    own.per_strip = (terms + strips - 1) / strips;
    for (int64_t at = 0; at < k; at += terms) {
        some.k = tsri_fast_least(terms, k - at);
        own.a = tsri_fast_gemm_at(&some, q->a, at * some.lda);
        own.b = tsri_fast_gemm_at(&some, q->b, at * some.bk);
        own.add = at > 0;
        own.more = tsri_fast_least(terms, k - at - some.k);
        outer_rows(&own, part, &r);
    }
}

void tsri_fast_outer_run(const tsri_fast_gemm *g, const void *a, const void *b, void *c,
                         void *scratch, const tsri_kernel_sink *sink)
{
    job q = {.g = g, .a = a, .b = b, .c = c, .scratch = scratch, .sink = sink, .ntouched = 1};
    q.touched[0] = c;
    if (sink)
        q.ntouched = sink->ntouches;
    for (int i = 0; sink && i < sink->ntouches; i++)
        q.touched[i] = sink->touches[i];
    tsri_team(g->threads, outer_part, &q);
}
