/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropout and random numbers. An element's random word goes by its index in the global tensor, of
 * which a shard has runs of neighbours. Kernels pass over row-major data run by run. For images
 * whose channels are last, they make what keeps or drops run by run, for a few pixels of a few
 * channels, and turn that.
 */
#include "kernels/cpu/fast/fast.h"
#include "kernels/part.h"

#include <math.h>
#include <string.h>

enum {
    UNIT = 64,     /* elements: threads never share a cache line */
    CHANNELS = 64, /* of a turned tile */
    PIXELS = 64,
};

/* The runs of a shard. */
typedef struct runs {
    tsri_arg y;
    int64_t step[TSR_MAX_NDIM]; /* of the global index */
    int64_t each;               /* elements of a run */
    int split;                  /* the axis that a run begins in; those behind it are whole */
} runs;

static runs runs_of(const tsri_arg *y)
{
    runs r = {.y = *y, .split = y->ndim ? y->ndim - 1 : 0};
    int64_t step = 1;
    for (int i = y->ndim - 1; i >= 0; step *= y->gshape[i--])
        r.step[i] = step;
    while (r.split > 0 && y->shape[r.split] == y->gshape[r.split])
        r.split--;
    r.each = tsri_arg_count_of(y, r.split, y->ndim);
    return r;
}

/* The index in the global tensor of the shard's first element. */
static int64_t first_index(const runs *r)
{
    int64_t index = 0;
    for (int i = 0; i < r->y.ndim; i++)
        index += r->y.offset[i] * r->step[i];
    return index;
}

/* The index of an element of the shard, counted row-major, and how many from it on are neighbours,
 * `most` at most. */
static int64_t index_of(const runs *r, int64_t at, int64_t most, int64_t *out_n)
{
    int64_t run = at / r->each, index = first_index(r) + at % r->each;
    for (int i = r->split - 1; i >= 0; run /= r->y.shape[i--])
        index += run % r->y.shape[i] * r->step[i];
    *out_n = tsri_fast_least(r->each - at % r->each, most);
    return index;
}

/* --- dropout ---------------------------------------------------------------------------------- */
typedef struct drop {
    tsri_fast base;
    tsri_fast_dropout_args args;
    runs runs;
    int64_t line; /* of images: pixels that are neighbours */
    bool is_part; /* the operand is a micro-batch; `runs` describe micro-batch 0 in the whole tensor
                   */
    int64_t shift; /* between the indices of two micro-batches in the whole tensor */
} drop;

/* Returns the difference between the current micro-batch's indices and those of `runs`. */
static int64_t part_shift(const drop *k, const tsri_fast_part *p)
{
    return k->is_part ? *(const int64_t *)p->in[2] * k->shift : 0;
}

/* y[i] of x[i], i < n, whose global indices are from `index` on. */
static void drop_run(const drop *k, tsri_fast_dropout_args args, int64_t index, const float *x,
                     float *y, int64_t n)
{
    args.draws.index = (uint64_t)index;
    args.draws.n = n;
    args.draws.y = y;
    args.x = x;
    k->base.isa->dropout(&args);
}

/* Elements [begin, end). */
static void rows_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const drop *k = (const drop *)f;
    tsri_fast_dropout_args args = k->args;
    args.draws.step = (uint64_t) * (const int64_t *)p->in[1];
    const int64_t shift = part_shift(k, p);
    for (int64_t at = p->begin, n; at < p->end; at += n) {
        const int64_t index = shift + index_of(&k->runs, at, p->end - at, &n);
        drop_run(k, args, index, (const float *)p->in[0] + at, (float *)p->out[0] + at, n);
    }
}

/* Fills in what channels [c0, c1) and pixels [q0, q1) of an image are multiplied by, as rows of
 * channels. index: of the image's first element. */
static void fill_tile(const drop *k, const tsri_fast_dropout_args *args, int64_t index, int64_t c0,
                      int64_t c1, int64_t q0, int64_t q1, float *turned)
{
    float ones[PIXELS], tile[CHANNELS * PIXELS];
    for (int i = 0; i < PIXELS; i++)
        ones[i] = 1;
    for (int64_t c = c0; c < c1; c++)
        for (int64_t q = q0, n; q < q1; q += n) {
            const int64_t line = q / k->line, i = q % k->line, *step = k->runs.step;
            n = tsri_fast_least(k->line - i, q1 - q);
            drop_run(k, *args, index + c * step[1] + line * step[2] + i, ones,
                     tile + (c - c0) * PIXELS + (q - q0), n);
        }
    k->base.isa->f32.transpose(tile, PIXELS, turned, CHANNELS, q1 - q0, c1 - c0);
}

/* Tiles [begin, end) of all images. */
static void images_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const drop *k = (const drop *)f;
    const tsri_arg *y = &k->runs.y;
    const int64_t channels = y->shape[1], pixels = y->shape[2] * y->shape[3];
    const int64_t across = (channels + CHANNELS - 1) / CHANNELS;
    const int64_t tiles = (pixels + PIXELS - 1) / PIXELS * across;
    tsri_fast_dropout_args args = k->args;
    float turned[PIXELS * CHANNELS];
    args.draws.step = (uint64_t) * (const int64_t *)p->in[1];
    const int64_t first = first_index(&k->runs) + part_shift(k, p);
    for (int64_t t = p->begin; t < p->end; t++) {
        const int64_t image = t / tiles, q0 = t % tiles / across * PIXELS,
                      c0 = t % across * CHANNELS;
        const int64_t q1 = tsri_fast_least(q0 + PIXELS, pixels);
        const int64_t c1 = tsri_fast_least(c0 + CHANNELS, channels);
        fill_tile(k, &args, first + image * k->runs.step[0], c0, c1, q0, q1, turned);
        for (int64_t q = q0; q < q1; q++) {
            const int64_t at = (image * pixels + q) * channels + c0;
            k->base.isa->keep(turned + (q - q0) * CHANNELS, (const float *)p->in[0] + at,
                              (float *)p->out[0] + at, c1 - c0);
        }
    }
}

tsr_status tsri_fast_dropout(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &desc->in[0], *y = &desc->out[0];
    const int64_t count = tsri_arg_count(y);
    int64_t rows, channels;
    const bool fits =
        count && x->dtype == TSR_F32 && y->dtype == TSR_F32 && desc->in[1].dtype == TSR_I64;
    const bool flat = fits && tsri_fast_is_row_major(x) && tsri_fast_is_row_major(y);
    const bool images =
        fits && y->ndim == 4 && tsri_fast_is_rows(y, &rows, &channels) && tsri_fast_alike(x, y);
    tsri_arg placed = *y;
    int64_t shift = 0;
    if ((!flat && !images) || (desc->nin == 3 && (desc->in[2].dtype != TSR_I64 ||
                                                  !tsri_part_place(desc, &placed, &shift))))
        return tsri_fast_decline(desc);
    const int64_t tiles = images ? y->shape[0] * ((y->shape[1] + CHANNELS - 1) / CHANNELS) *
                                       ((y->shape[2] * y->shape[3] + PIXELS - 1) / PIXELS)
                                 : 0;
    drop *k = tsri_fast_make(mem, desc, flat ? rows_part : images_part, sizeof *k, count,
                             flat ? count : tiles);
    TSRI_NEED(k);
    const double p = desc->attrs->dropout.p;
    k->base.unit = flat ? UNIT : 1;
    k->args.draws.key = desc->attrs->dropout.key;
    k->args.least = (uint32_t)ceil(p * 0x1p24);
    k->args.scale = p < 1 ? (float)(1 / (1 - p)) : 0.0f;
    k->runs = runs_of(&placed);
    k->is_part = desc->nin == 3;
    k->shift = shift;
    if (!flat)
        k->line = y->shape[3] == placed.gshape[3] ? y->shape[2] * y->shape[3] : y->shape[3];
    *out_kernel = &k->base.base;
    return TSR_OK;
}

/* --- random numbers --------------------------------------------------------------------------- */
typedef struct numbers {
    tsri_fast base;
    tsri_fast_numbers_args args;
    void (*draw)(const tsri_fast_numbers_args *p);
    bool has_step;
    runs runs;
} numbers;

static void numbers_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const numbers *k = (const numbers *)f;
    tsri_fast_numbers_args args = k->args;
    args.draws.step = k->has_step ? (uint64_t) * (const int64_t *)p->in[0] : 0;
    for (int64_t at = p->begin; at < p->end; at += args.draws.n) {
        args.draws.index = (uint64_t)index_of(&k->runs, at, p->end - at, &args.draws.n);
        args.draws.y = (float *)p->out[0] + at;
        k->draw(&args);
    }
}

tsr_status tsri_fast_random(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const tsri_arg *y = &desc->out[0];
    const int64_t count = tsri_arg_count(y);
    const double a = desc->attrs->random.a, b = desc->attrs->random.b;
    if (!count || y->dtype != TSR_F32 || !tsri_fast_is_row_major(y) ||
        (desc->nin && desc->in[0].dtype != TSR_I64))
        return tsri_fast_decline(desc);
    numbers *k = tsri_fast_make(mem, desc, numbers_part, sizeof *k, count, count);
    TSRI_NEED(k);
    k->base.unit = UNIT;
    k->has_step = desc->nin > 0;
    const bool normal = desc->attrs->random.dist == TSRI_RANDOM_NORMAL;
    k->draw = normal ? k->base.isa->normal : k->base.isa->uniform;
    /* Rounding may reach b, which is not in the interval. */
    const float top = (float)b;
    k->args = (tsri_fast_numbers_args){.draws.key = desc->attrs->random.key,
                                       .low = a,
                                       .width = normal ? b : b - a,
                                       .most = !(a < b)           ? INFINITY
                                               : (double)top >= b ? nextafterf(top, -INFINITY)
                                                                  : top};
    k->runs = runs_of(y);
    *out_kernel = &k->base.base;
    return TSR_OK;
}
