/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dense and grouped convolutions of any window, without an unfolded image: the register tiles of
 * matrix products read pixels where they are, one run of neighbouring taps after the other. Where
 * windows reach beyond the image, some of its lines are copied between zeros first; results go in
 * zones that have the same taps inside the image, and only these are multiplied, unless a zone is
 * too small.
 *
 * Forward and backward-data are the same sums: result pixel (q * apart + phase) reads pixel
 * (q * step + offset) for each of its taps. Forward has one phase, backward-data as many as the
 * stride has steps, with the taps that meet the stride there.
 */
#include "kernels/cpu/fast/fast.h"

#include <string.h>

enum {
    CHUNK_BYTES = 192 << 10, /* of lines that are read: some of a second-level cache; as many */
    MOST_CHUNK_BYTES = 768 << 10, /* as weights are, up to this: all of these pass for each chunk */
    TERMS = 384,                  /* of a tile's sums: of packed weights, what stays in cache */
    ZONE_ROWS = 8,                /* results of a zone, unless images are so small that a */
    SMALL_PLANE = 256,            /* zone is of several */
    SUM_ROWS = 256,               /* dw: pixels that are summed before they join others, */
    LONG_ROWS = 16 << 10,         /* and those of which the sums do so */
};

/* Results [begin, end) along one axis, of which taps [first, last) alone may read the image. */
typedef struct stretch {
    int64_t begin, end;
    int first, last;
} stretch;

/* Along one axis: the taps that results of a phase have, and where they read. */
typedef struct phase {
    int64_t count; /* results */
    int taps, *tap;
    int64_t *offset; /* ascending */
    int nstretches, *stretch_of;
    stretch *stretch;
} phase;

/* Results that have the same taps: runs of neighbouring ones. */
typedef struct zone {
    int64_t runs, length;     /* of terms */
    int64_t *at, *term;       /* where each begins: from a pixel's first channel in its group, and
                               * among the packed weights' terms */
    int64_t columns;          /* results of a line */
    const tsri_fast_row *row; /* of a chunk's results: [line][image][column] */
} zone;

/* Results of one phase along both axes. */
typedef struct cell {
    int64_t packed; /* floats of packed weights before these */
    int64_t terms;  /* of a result with all taps */
    zone whole;     /* all columns, all taps */
    zone *zone;     /* of each stretch of lines, one behind the other */
    int *begin;     /* zones before those of a stretch; one more */
} cell;

typedef struct direct {
    tsri_fast base;
    tsri_fast_conv conv;
    bool dx, copies;
    bool keeps;                /* runs get the packed weights as their last operand */
    int64_t k, n, kg, ng;      /* channels read and written; these of a group */
    int64_t in[2], out[2];     /* dw: of x and dy */
    int64_t step[2], apart[2]; /* phases: as many as apart */
    int64_t low[2], high[2];   /* the least and the largest offset */
    phase *phase[2];
    cell *cell;
    int64_t *line_at;      /* dw: where a chunk's lines begin, of x: [image][line], */
    int64_t *dy_at;        /* and of dy */
    int64_t lines, images; /* of a chunk: q of a phase; more images only with all lines */
    int64_t pitch, span;   /* pixels of a line and of an image of it */
    int64_t chunks;        /* of an image */
    int64_t weights, part; /* floats of scratch: see room_of */
    tsri_pool pool;
} direct;

/* The scratch: weights w[co][tap][channel of a group], the packed ones (all parts' or dw: none),
 * and for each part its lines, and dw's sums in w's order twice. */
typedef struct room {
    float *w, *packed, *lines, *sums, *block;
} room;

static int64_t padded(int64_t n)
{
    return (n + 15) / 16 * 16;
}

static int64_t weight_count(const direct *k)
{
    return k->conv.co * (k->conv.ci / k->conv.groups) * k->conv.kernel[0] * k->conv.kernel[1];
}

static int64_t line_floats(const direct *k)
{
    return k->copies ? padded(k->images * k->span * k->k) : 0;
}

static room room_of(const direct *k, void *scratch, int part)
{
    room r = {.w = scratch};
    r.packed = k->keeps ? NULL : r.w + padded(weight_count(k));
    r.lines = r.w + k->weights + part * k->part;
    r.sums = r.lines + line_floats(k);
    r.block = r.sums + padded(weight_count(k));
    return r;
}

static int64_t vectors(const direct *k, int64_t columns)
{
    return (columns + k->base.isa->width - 1) / k->base.isa->width;
}

/* w[co][ci][taps] -> [co][taps][ci], some outputs. */
static void order_weights(const tsri_fast *f, const tsri_fast_part *p)
{
    const direct *k = (const direct *)f;
    const int64_t ci = k->conv.ci / k->conv.groups;
    const int64_t taps = (int64_t)k->conv.kernel[0] * k->conv.kernel[1];
    const int64_t end = tsri_fast_cut(k->conv.co, f->threads, p->index + 1, 1);
    const float *from = p->in[1];
    float *to = p->scratch;
    for (int64_t o = tsri_fast_cut(k->conv.co, f->threads, p->index, 1); o < end; o++)
        f->isa->f32.transpose(from + o * ci * taps, taps, to + o * ci * taps, ci, taps, ci);
}

/* --- chunks ----------------------------------------------------------------------------------- */
/* Results [line, line + lines) of images [image, image + images), and where their pixels are. */
typedef struct chunk {
    int64_t image, images, line, lines;
    const float *pixels; /* the first offsets' of the first result */
} chunk;

static void copy_line(const direct *k, const float *line, bool inside, float *to)
{
    const int64_t left = k->low[1] < 0 ? tsri_fast_least(-k->low[1], k->pitch) : 0;
    const int64_t first = k->low[1] < 0 ? 0 : k->low[1];
    int64_t n = inside ? tsri_fast_least(k->in[1] - first, k->pitch - left) : 0;
    n = n < 0 ? 0 : n;
    memset(to, 0, (size_t)(left * k->k) * sizeof *to);
    if (n)
        memcpy(to + left * k->k, line + first * k->k, (size_t)(n * k->k) * sizeof *to);
    memset(to + (left + n) * k->k, 0, (size_t)((k->pitch - left - n) * k->k) * sizeof *to);
}

/* The i-th chunk of all images; its lines are copied where windows reach beyond the image. */
static chunk take_chunk(const direct *k, const float *x, int64_t i, float *lines)
{
    const int64_t size = k->in[0] * k->in[1] * k->k;
    chunk c = {.image = i / k->chunks * k->images, .line = i % k->chunks * k->lines};
    c.images = tsri_fast_least(k->images, k->conv.n - c.image);
    c.lines = tsri_fast_least(k->lines, k->phase[0][0].count - c.line);
    const int64_t first = c.line * k->step[0] + k->low[0];
    if (!k->copies) {
        c.pixels = x + c.image * size + (first * k->in[1] + k->low[1]) * k->k;
        return c;
    }
    const int64_t count = (c.lines - 1) * k->step[0] + k->high[0] - k->low[0] + 1;
    for (int64_t m = 0; m < c.images; m++)
        for (int64_t l = 0; l < count; l++) {
            const int64_t h = first + l;
            copy_line(k, x + (c.image + m) * size + h * k->in[1] * k->k, h >= 0 && h < k->in[0],
                      lines + (m * k->span + l * k->pitch) * k->k);
        }
    c.pixels = lines;
    return c;
}

/* --- forward and backward-data ---------------------------------------------------------------- */
/* Packs a cell's weights: [group][panel][tap][channel that is read][column]. Parts take turns. */
static void pack_cell(const direct *k, int64_t i, int part, const room *r)
{
    const phase *h = &k->phase[0][i / k->apart[1]], *v = &k->phase[1][i % k->apart[1]];
    const int64_t taps = (int64_t)k->conv.kernel[0] * k->conv.kernel[1];
    const int64_t depth = taps * (k->dx ? k->ng : k->kg), width = k->base.isa->width;
    float *to = r->packed + k->cell[i].packed;
    int64_t turn = 0;
    for (int64_t g = 0; g < k->conv.groups; g++)
        for (int64_t at = 0, nv; at < vectors(k, k->ng); at += nv) {
            nv = tsri_fast_panel(vectors(k, k->ng) - at);
            const int64_t columns = tsri_fast_least(nv * width, k->ng - at * width);
            for (int t = 0; t < h->taps * v->taps; t++, turn++, to += k->kg * nv * width) {
                const int64_t tap = h->tap[t / v->taps] * k->conv.kernel[1] + v->tap[t % v->taps];
                const float *w = r->w + (k->dx ? g * k->kg * depth + tap * k->ng + at * width
                                               : (g * k->ng + at * width) * depth + tap * k->kg);
                if (turn % k->base.threads == part)
                    k->base.isa->f32.pack(w, k->dx ? depth : 1, k->dx ? 1 : depth, k->kg, columns,
                                          nv * width, to);
            }
        }
}

static void pack_weights(const tsri_fast *f, const tsri_fast_part *p)
{
    const direct *k = (const direct *)f;
    room r = room_of(k, p->scratch, 0);
    r.packed = k->keeps ? p->out[0] : r.packed;
    for (int64_t i = 0; i < k->apart[0] * k->apart[1]; i++)
        pack_cell(k, i, p->index, &r);
}

static tsr_status keep_weights(const tsri_kernel *kernel, void *const *in, void *kept,
                               void *scratch)
{
    direct packs = *(const direct *)kernel;
    packs.base.begin = order_weights;
    packs.base.part = pack_weights;
    packs.base.end = NULL;
    return tsri_fast_run(&packs.base.base, in, &kept, scratch);
}

/* Sums over all runs of a zone, a panel's columns; b: the panel. */
static void sum_panel(const direct *k, const zone *z, tsri_fast_tile *t, int nv, const float *b)
{
    const float *a = t->a, *bias = t->bias;
    const tsri_fast_end *end = t->end;
    t->add = false;
    t->k = 0;
    t->runs = 0;
    if (!z->runs) {
        k->base.isa->f32.tile[nv](t);
        return;
    }
    const int64_t joined = z->length < TERMS ? TERMS / z->length : 1;
    const int64_t pieces = (z->length + TERMS - 1) / TERMS;
    const int64_t most = (z->length + pieces - 1) / pieces;
    for (int64_t i = 0; i < z->runs; i += t->runs) {
        t->runs = tsri_fast_least(joined, z->runs - i);
        t->a_at = z->at + i;
        t->b_at = z->term + i;
        for (int64_t at = 0; at < z->length; at += t->k) {
            t->k = tsri_fast_least(most, z->length - at);
            t->a = a + at;
            t->b = b + at * t->bk;
            const bool last = i + t->runs == z->runs && at + t->k == z->length;
            t->bias = last ? bias : NULL;
            t->end = last ? end : NULL;
            k->base.isa->f32.tile[nv](t);
            t->add = true;
        }
    }
    t->a = a;
}

/* A panel's columns of a cell's results in a chunk, stretch by stretch of lines. */
static void panel_results(const direct *k, int64_t i, const chunk *c, tsri_fast_tile *t, int nv,
                          const float *b)
{
    const phase *h = &k->phase[0][i / k->apart[1]];
    const cell *e = &k->cell[i];
    const int64_t end = tsri_fast_least(c->line + c->lines, h->count);
    for (int64_t l = c->line, next; l < end; l = next) {
        const int s = h->stretch_of[l];
        /* A line's images are neighbours in the list of rows; with some missing, lines are not. */
        next = c->images < k->images ? l + 1 : tsri_fast_least(end, h->stretch[s].end);
        for (const zone *z = e->zone + e->begin[s]; z < e->zone + e->begin[s + 1]; z++) {
            t->row = z->row + (l - c->line) * k->images * z->columns;
            t->rows = (next - l) * c->images * z->columns;
            sum_panel(k, z, t, nv, b);
        }
    }
}

static void cell_results(const direct *k, int64_t i, const chunk *c, const float *packed,
                         const tsri_fast_part *p)
{
    const int64_t h = i / k->apart[1], v = i % k->apart[1], width = k->base.isa->width;
    const int64_t row = ((c->image * k->out[0] + c->line * k->apart[0] + h) * k->out[1] + v);
    const float *b = packed + k->cell[i].packed, *bias = k->conv.bias ? p->in[2] : NULL;
    const bool ends = tsri_kernel_has_end(&k->base.ends);
    tsri_fast_tile t = {.ak = 1, .packed = true};
    for (int64_t g = 0; g < k->conv.groups; g++)
        for (int64_t at = 0, nv; at < vectors(k, k->ng); at += nv) {
            const int64_t column = g * k->ng + at * width;
            const tsri_fast_end end = tsri_fast_end_of(&k->base, p->in, row, column);
            nv = tsri_fast_panel(vectors(k, k->ng) - at);
            t.bk = t.b_unit = nv * width;
            t.cols = tsri_fast_least(t.bk, k->ng - at * width);
            t.a = c->pixels + g * k->kg;
            t.c = (float *)p->out[0] + row * k->n + column;
            t.bias = bias ? bias + column : NULL;
            t.end = ends ? &end : NULL;
            panel_results(k, i, c, &t, (int)nv, b);
            b += k->cell[i].terms * t.bk;
        }
}

static void results_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const direct *k = (const direct *)f;
    room r = room_of(k, p->scratch, p->index);
    r.packed = k->keeps ? p->in[k->conv.bias ? 3 : 2] : r.packed;
    for (int64_t i = p->begin; i < p->end; i++) {
        const chunk c = take_chunk(k, p->in[0], i, r.lines);
        for (int64_t e = 0; e < k->apart[0] * k->apart[1]; e++)
            cell_results(k, e, &c, r.packed, p);
    }
}

/* --- backward-weights ------------------------------------------------------------------------- */
/* Returns how many runs from `first` on one tile can take, a vector each: those that lie equally
 * far from each other. */
static int runs_of_tile(const zone *z, int64_t first)
{
    const int most = tsri_fast_panel(z->runs - first);
    int n = 1;
    while (n < most && z->at[first + n] - z->at[first + n - 1] == z->at[first + 1] - z->at[first])
        n++;
    return n;
}

/* sums[co][tap][ci] += over a chunk, of a group: runs that are a vector at most, several at a time,
 * so that registers hold enough sums to hide how long each addition takes. */
static void add_short_runs(const direct *k, tsri_fast_tile *t, const float *pixels, float *sums)
{
    const zone *z = &k->cell->whole;
    t->cols = t->c_apart = z->length;
    for (int64_t i = 0, nv; i < z->runs; i += nv) {
        nv = runs_of_tile(z, i);
        t->apart = nv > 1 ? z->at[i + 1] - z->at[i] : 0;
        t->b = pixels + z->at[i];
        t->c = sums + i * z->length;
        k->base.isa->f32.tile[nv](t);
    }
}

/* Leaves of the results [*begin, *end) those for which a tap reads the image. */
static void results_of_tap(const direct *k, int axis, int64_t offset, int64_t *begin, int64_t *end)
{
    const int64_t step = k->step[axis], last = k->in[axis] - 1 - offset;
    const int64_t first = offset < 0 ? (-offset + step - 1) / step : 0;
    *begin = first > *begin ? first : *begin;
    *end = last < 0 ? *begin : tsri_fast_least(*end, last / step + 1);
}

/* Leaves of a tile's terms the results for which run i reads the image; a chunk of several images
 * keeps all. Returns whether there are any. */
static bool cut_to_run(const direct *k, const chunk *c, int64_t i, tsri_fast_tile *t)
{
    const phase *h = &k->phase[0][0], *v = &k->phase[1][0];
    const int64_t each = k->cell->whole.runs / h->taps; /* runs of a line of taps */
    int64_t line = c->line, line_end = c->line + c->lines, column = 0, column_end = v->count;
    if (c->images == 1) {
        results_of_tap(k, 0, h->offset[i / each], &line, &line_end);
        if (each == v->taps)
            results_of_tap(k, 1, v->offset[i % each], &column, &column_end);
    }
    t->runs = c->images * (line_end - line);
    t->k = column_end - column;
    t->a_at = k->dy_at + line - c->line;
    t->b_at = k->line_at + line - c->line;
    t->a = (const float *)t->a + column * t->ak;
    t->b = (const float *)t->b + column * t->bk;
    return t->runs > 0 && t->k > 0;
}

/* sums[co][tap][ci] += over a chunk. */
static void add_chunk(const direct *k, const chunk *c, const float *dy, float *sums)
{
    const zone *z = &k->cell->whole;
    const int64_t depth = z->runs * z->length, width = k->base.isa->width;
    const int64_t columns = k->phase[1][0].count;
    tsri_fast_tile t = {.ar = 1, .ak = k->n, .bk = k->step[1] * k->k, .ldc = depth, .add = true};
    t.rows = k->ng;
    t.b_unit = 1;
    for (int64_t g = 0; g < k->conv.groups; g++) {
        const float *from = dy + (c->image * k->out[0] + c->line) * columns * k->n + g * k->ng;
        if (z->length <= width) {
            t.a = from;
            t.k = columns;
            t.runs = c->images * c->lines;
            t.b_at = k->line_at;
            add_short_runs(k, &t, c->pixels + g * k->kg, sums + g * k->ng * depth);
            continue;
        }
        for (int64_t i = 0; i < z->runs; i++)
            for (int64_t at = 0, nv; at < vectors(k, z->length); at += nv) {
                nv = tsri_fast_panel(vectors(k, z->length) - at);
                t.cols = tsri_fast_least(nv * width, z->length - at * width);
                t.a = from;
                t.b = c->pixels + z->at[i] + g * k->kg + at * width;
                t.c = sums + g * k->ng * depth + i * z->length + at * width;
                if (cut_to_run(k, c, i, &t))
                    k->base.isa->f32.tile[nv](&t);
            }
    }
}

static void sums_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const direct *k = (const direct *)f;
    const room r = room_of(k, p->scratch, p->index);
    const int64_t count = weight_count(k);
    float *to = r.sums;
    int64_t rows = 0;
    memset(to, 0, (size_t)count * sizeof *to);
    for (int64_t i = p->begin; i < p->end; i++) {
        if (rows >= LONG_ROWS) {
            if (to == r.block)
                f->isa->f32.add(to, r.sums, count);
            to = r.block;
            memset(to, 0, (size_t)count * sizeof *to);
            rows = 0;
        }
        const chunk c = take_chunk(k, p->in[0], i, r.lines);
        add_chunk(k, &c, p->in[1], to);
        rows += c.images * c.lines * k->phase[1][0].count;
    }
    if (to == r.block)
        f->isa->f32.add(to, r.sums, count);
}

/* Adds all parts' sums up and brings them into the weights' order: some outputs. */
static void sums_end(const tsri_fast *f, const tsri_fast_part *p)
{
    const direct *k = (const direct *)f;
    const int64_t taps = (int64_t)k->conv.kernel[0] * k->conv.kernel[1], depth = taps * k->kg;
    const int64_t begin = tsri_fast_cut(k->n, f->threads, p->index, 1) * depth;
    const int64_t end = tsri_fast_cut(k->n, f->threads, p->index + 1, 1) * depth;
    float *sums = room_of(k, p->scratch, 0).sums, *dw = p->out[0];
    for (int i = 1; i < f->threads; i++)
        f->isa->f32.add(room_of(k, p->scratch, i).sums + begin, sums + begin, end - begin);
    for (int64_t at = begin; at < end; at += depth)
        f->isa->f32.transpose(sums + at, k->kg, dw + at, taps, k->kg, taps);
}

/* --- plans ------------------------------------------------------------------------------------ */
/* How the results of a phase read along an axis. */
static void plan_phase(const direct *k, int axis, int64_t at, phase *p)
{
    const tsri_fast_conv *c = &k->conv;
    const int64_t stride = c->stride[axis], dilation = c->dilation[axis], pad = c->pad[axis];
    p->count = k->dx ? (k->out[axis] - at + stride - 1) / stride : k->out[axis];
    p->taps = 0;
    for (int i = 0; i < c->kernel[axis]; i++) {
        const int tap = k->dx ? c->kernel[axis] - 1 - i : i;
        const int64_t offset = k->dx ? at + pad - tap * dilation : tap * dilation - pad;
        if (k->dx && offset % stride)
            continue;
        p->tap[p->taps] = tap;
        p->offset[p->taps++] = k->dx ? offset / stride : offset;
    }
}

static bool neighbours(const phase *p)
{
    return p->taps > 0 && p->offset[p->taps - 1] - p->offset[0] == p->taps - 1;
}

/* How much of the images is read at a time. */
static void plan_chunks(direct *k, bool dw)
{
    const int64_t count[2] = {k->phase[0][0].count, k->phase[1][0].count}, n = k->conv.n;
    int64_t reach[2]; /* pixels that a result reads, from the first one to the last one */
    k->copies = false;
    for (int i = 0; i < 2; i++) {
        reach[i] = k->high[i] - k->low[i] + 1;
        k->copies |= k->low[i] < 0 || (count[i] - 1) * k->step[i] + k->high[i] >= k->in[i];
    }
    k->pitch = k->copies ? (count[1] - 1) * k->step[1] + reach[1] : k->in[1];
    const int64_t line = k->pitch * k->k * (int64_t)sizeof(float);
    int64_t bytes = weight_count(k) * (int64_t)sizeof(float);
    bytes = bytes < CHUNK_BYTES ? CHUNK_BYTES : tsri_fast_least(bytes, MOST_CHUNK_BYTES);
    const int64_t fit = (bytes / line - reach[0]) / k->step[0] + 1;
    int64_t lines = fit < 1 ? 1 : tsri_fast_least(fit, count[0]);
    if (dw)
        lines = tsri_fast_least(lines, (SUM_ROWS + count[1] - 1) / count[1]);
    if (n < k->base.threads)
        lines = tsri_fast_least(lines, (count[0] * n + k->base.threads - 1) / k->base.threads);
    k->chunks = (count[0] + lines - 1) / lines;
    k->lines = (count[0] + k->chunks - 1) / k->chunks;
    k->chunks = (count[0] + k->lines - 1) / k->lines;
    k->span = k->copies ? ((k->lines - 1) * k->step[0] + reach[0]) * k->pitch : k->in[0] * k->in[1];
    k->images = 1;
    if (k->chunks == 1) {
        int64_t images = bytes / (k->span * k->k * (int64_t)sizeof(float));
        images = tsri_fast_least(images, (n + k->base.threads - 1) / k->base.threads);
        if (dw)
            images = tsri_fast_least(images, SUM_ROWS / (count[0] * count[1]));
        k->images = images < 1 ? 1 : images;
    }
}

/* Lines of a chunk's results of a cell. */
static int64_t cell_lines(const direct *k, int64_t i)
{
    return k->images > 1 ? k->phase[0][i / k->apart[1]].count : k->lines;
}

/* Columns [begin, end) of a chunk's results of a cell: [line][image][column]. */
static tsr_status plan_rows(direct *k, int64_t i, int64_t begin, int64_t end, zone *z)
{
    const int64_t lines = cell_lines(k, i), count = lines * k->images * (end - begin);
    tsri_fast_row *row = tsri_pool_alloc(&k->pool, (size_t)(count + 1) * sizeof *row);
    TSRI_NEED(row);
    z->columns = end - begin;
    z->row = row;
    for (int64_t l = 0; l < lines; l++)
        for (int64_t m = 0; m < k->images; m++)
            for (int64_t v = begin; v < end; v++)
                *row++ = (tsri_fast_row){
                    (m * k->span + l * k->step[0] * k->pitch + v * k->step[1]) * k->k,
                    ((m * k->out[0] + l * k->apart[0]) * k->out[1] + v * k->apart[1]) * k->n};
    return TSR_OK;
}

/* The runs of some of a cell's taps. */
static tsr_status plan_runs(direct *k, int64_t i, const stretch *down, const stretch *across,
                            zone *z)
{
    const phase *h = &k->phase[0][i / k->apart[1]], *v = &k->phase[1][i % k->apart[1]];
    const int width = across->last - across->first;
    const bool joined = k->conv.groups == 1 && neighbours(v);
    const int each = joined ? width > 0 : width;
    z->runs = (int64_t)(down->last - down->first) * each;
    z->length = k->kg * (joined ? width : 1);
    z->at = tsri_pool_alloc(&k->pool, (size_t)(z->runs + 1) * sizeof *z->at);
    z->term = tsri_pool_alloc(&k->pool, (size_t)(z->runs + 1) * sizeof *z->term);
    TSRI_NEED(z->at && z->term);
    for (int64_t r = 0; r < z->runs; r++) {
        const int64_t th = down->first + r / each, tv = across->first + r % each;
        z->at[r] = ((h->offset[th] - k->low[0]) * k->pitch + v->offset[tv] - k->low[1]) * k->k;
        z->term[r] = (th * v->taps + tv) * k->kg;
    }
    return TSR_OK;
}

/* Zones of a cell: of each stretch of lines one for each stretch of columns, or one of all columns
 * where a stretch of these is too few results. The images of a chunk have no say: sums have the
 * same bits on any number of threads. */
static tsr_status plan_zones(direct *k, int64_t i, cell *e)
{
    const phase *h = &k->phase[0][i / k->apart[1]], *v = &k->phase[1][i % k->apart[1]];
    const size_t most = (size_t)h->nstretches * (size_t)v->nstretches + 1;
    zone *of = tsri_pool_alloc(&k->pool, (size_t)(v->nstretches + 1) * sizeof *of);
    e->zone = tsri_pool_alloc(&k->pool, most * sizeof *e->zone);
    e->begin = tsri_pool_alloc(&k->pool, (size_t)(h->nstretches + 1) * sizeof *e->begin);
    TSRI_NEED(of && e->zone && e->begin);
    int64_t fewest = v->count;
    for (int t = 0; t < v->nstretches; t++) {
        const stretch *across = &v->stretch[t];
        fewest = tsri_fast_least(fewest, across->end - across->begin);
        TSRI_TRY(plan_rows(k, i, across->begin, across->end, &of[t]));
    }
    TSRI_TRY(plan_rows(k, i, 0, v->count, &e->whole));
    int n = 0;
    for (int s = 0; s < h->nstretches; s++) {
        const stretch *down = &h->stretch[s], all = {0, v->count, 0, v->taps};
        const bool split =
            (down->end - down->begin) * fewest >= ZONE_ROWS || h->count * v->count <= SMALL_PLANE;
        e->begin[s] = n;
        for (int t = 0; t < (split ? v->nstretches : v->count > 0); t++, n++) {
            e->zone[n] = split ? of[t] : e->whole;
            TSRI_TRY(plan_runs(k, i, down, split ? &v->stretch[t] : &all, &e->zone[n]));
        }
        e->begin[s + 1] = n;
    }
    return TSR_OK;
}

static void direct_destroy(tsri_kernel *kernel)
{
    direct *k = (direct *)(void *)kernel;
    tsri_pool_finish(&k->pool);
    tsri_mem_free(k);
}

/* Finds the stretches of results that have the same taps. */
static tsr_status plan_stretches(direct *k, int axis, phase *p)
{
    const int64_t step = k->step[axis], in = k->in[axis];
    const size_t n = (size_t)p->count + 1;
    p->stretch = tsri_pool_alloc(&k->pool, n * sizeof *p->stretch);
    p->stretch_of = tsri_pool_alloc(&k->pool, n * sizeof *p->stretch_of);
    TSRI_NEED(p->stretch && p->stretch_of);
    p->nstretches = 0;
    for (int64_t q = 0; q < p->count; q++) {
        stretch s = {.begin = q, .end = q + 1, .last = p->taps};
        while (s.first < s.last && q * step + p->offset[s.first] < 0)
            s.first++;
        while (s.last > s.first && q * step + p->offset[s.last - 1] >= in)
            s.last--;
        stretch *before = p->nstretches ? &p->stretch[p->nstretches - 1] : NULL;
        if (before && before->first == s.first && before->last == s.last)
            before->end = q + 1;
        else
            p->stretch[p->nstretches++] = s;
        p->stretch_of[q] = p->nstretches - 1;
    }
    return TSR_OK;
}

static tsr_status plan_phases(direct *k)
{
    for (int i = 0; i < 2; i++) {
        bool any = false;
        k->phase[i] = tsri_pool_alloc(&k->pool, (size_t)k->apart[i] * sizeof *k->phase[i]);
        TSRI_NEED(k->phase[i]);
        for (int64_t q = 0; q < k->apart[i]; q++) {
            phase *p = &k->phase[i][q];
            p->tap = tsri_pool_alloc(&k->pool, (size_t)k->conv.kernel[i] * sizeof *p->tap);
            p->offset = tsri_pool_alloc(&k->pool, (size_t)k->conv.kernel[i] * sizeof *p->offset);
            TSRI_NEED(p->tap && p->offset);
            plan_phase(k, i, q, p);
            TSRI_TRY(plan_stretches(k, i, p));
            for (int t = 0; t < p->taps; t++, any = true) {
                k->low[i] = any ? tsri_fast_least(k->low[i], p->offset[t]) : p->offset[t];
                k->high[i] = any ? -tsri_fast_least(-k->high[i], -p->offset[t]) : p->offset[t];
            }
        }
    }
    return TSR_OK;
}

/* The cells; dw has one, and where a chunk's lines begin. */
static tsr_status plan_cells(direct *k, bool dw, int64_t *out_packed)
{
    const int64_t cells = k->apart[0] * k->apart[1], lines = k->images * k->lines;
    *out_packed = 0;
    k->cell = tsri_pool_alloc(&k->pool, (size_t)cells * sizeof *k->cell);
    TSRI_NEED(k->cell);
    for (int64_t i = 0; i < cells && !(dw && i); i++) {
        const phase *h = &k->phase[0][i / k->apart[1]], *v = &k->phase[1][i % k->apart[1]];
        const stretch down = {.last = h->taps}, across = {.last = v->taps};
        cell *e = &k->cell[i];
        *e = (cell){.packed = *out_packed, .terms = (int64_t)h->taps * v->taps * k->kg};
        *out_packed += k->conv.groups * vectors(k, k->ng) * k->base.isa->width * e->terms;
        TSRI_TRY(plan_runs(k, i, &down, &across, &e->whole));
        if (!dw)
            TSRI_TRY(plan_zones(k, i, e));
    }
    if (!dw)
        return TSR_OK;
    k->line_at = tsri_pool_alloc(&k->pool, (size_t)lines * sizeof *k->line_at);
    k->dy_at = tsri_pool_alloc(&k->pool, (size_t)lines * sizeof *k->dy_at);
    TSRI_NEED(k->line_at && k->dy_at);
    for (int64_t i = 0; i < lines; i++) {
        k->line_at[i] = (i / k->lines * k->span + i % k->lines * k->step[0] * k->pitch) * k->k;
        k->dy_at[i] = i * k->out[1] * k->n;
    }
    return TSR_OK;
}

static tsr_status plan(direct *k, bool dw)
{
    const tsri_fast_conv *c = &k->conv;
    int64_t packed;
    k->k = k->dx ? c->co : c->ci;
    k->n = k->dx ? c->ci : c->co;
    k->kg = k->k / c->groups;
    k->ng = k->n / c->groups;
    for (int i = 0; i < 2; i++) {
        k->in[i] = k->dx ? c->out[i] : c->in[i];
        k->out[i] = k->dx ? c->in[i] : c->out[i];
        k->step[i] = k->dx ? 1 : c->stride[i];
        /* A stride that is longer than the image has phases without results. */
        k->apart[i] = k->dx && k->out[i] > 0 ? tsri_fast_least(c->stride[i], k->out[i]) : 1;
    }
    TSRI_TRY(plan_phases(k));
    plan_chunks(k, dw);
    TSRI_TRY(plan_cells(k, dw, &packed));
    k->weights = dw ? 0 : padded(weight_count(k)) + (k->keeps ? 0 : padded(packed));
    k->base.base.kept_bytes = k->keeps ? (size_t)packed * sizeof(float) : 0;
    k->part = line_floats(k);
    if (dw)
        k->part += padded(weight_count(k)) * (c->n * k->out[0] * k->out[1] > LONG_ROWS ? 2 : 1);
    k->base.items = k->chunks * ((c->n + k->images - 1) / k->images);
    k->base.base.scratch_bytes = (size_t)(k->weights + k->base.threads * k->part) * sizeof(float);
    return TSR_OK;
}

tsr_status tsri_fast_direct(tsri_mem *mem, const tsri_kernel_desc *desc, const tsri_fast_conv *c,
                            tsri_kernel **out_kernel)
{
    const bool dw = desc->op == TSRI_OP_CONV2D_DW;
    const int64_t rows = c->n * c->out[0] * c->out[1], taps = (int64_t)c->kernel[0] * c->kernel[1];
    direct *k = tsri_fast_make(mem, desc, NULL, sizeof *k, rows * taps * (c->ci / c->groups), 0);
    TSRI_NEED(k);
    tsri_pool_init(&k->pool, mem);
    k->conv = *c;
    k->dx = desc->op == TSRI_OP_CONV2D_DX;
    k->keeps = !dw && desc->fixed >> 1 & 1;
    k->base.base.keep = k->keeps ? keep_weights : NULL;
    k->base.begin = dw || k->keeps ? NULL : order_weights;
    k->base.part = dw ? sums_part : k->keeps ? NULL : pack_weights;
    k->base.end = dw ? sums_end : results_part;
    k->base.base.destroy = direct_destroy;
    const tsr_status status = plan(k, dw);
    if (desc->op == TSRI_OP_CONV2D)
        tsri_fast_takes_end(&k->base, desc, k->n);
    k->base.base.takes_end &= tsri_fast_tiles_end(&k->base);
    if (status != TSR_OK)
        direct_destroy(&k->base.base);
    else
        *out_kernel = &k->base.base;
    return status;
}
