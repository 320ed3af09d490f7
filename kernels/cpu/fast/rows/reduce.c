/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions over axes of a dense operand, in the order of its memory: x[lead][outer][n][inner] ->
 * y[outer][inner]. Threads share what is longest of the last three. In a chain they go by rows:
 * each result is of one row of operands, or all results are of all rows.
 */
#include "kernels/cpu/fast/fast.h"

#include <math.h>
#include <string.h>

#include <tessera/sbp.h>

typedef enum cut { CUT_OUTER = 0, CUT_INNER, CUT_N } cut;

/* The types of accumulators: f64 for sums and products, f32 for extremes; i64 for all of i64. */
typedef enum acc_type { ACC_F64 = 0, ACC_F32, ACC_I64 } acc_type;

typedef struct reduce {
    tsri_fast base;
    int op;
    acc_type type;
    cut cut;
    int64_t lead, outer, n, inner;
    int64_t pitch; /* of the accumulators acc[outer][pitch]; with CUT_N, those of each thread */
    int team;      /* threads of a chain */
    double scale;
} reduce;

/* A part of the work: o0 <= outer < o1 and so on. */
typedef struct range {
    int64_t o0, o1, n0, n1, i0, i1;
} range;

static int64_t element_bytes(const reduce *k)
{
    return k->type == ACC_I64 ? sizeof(int64_t) : sizeof(float);
}

static int64_t accumulator_bytes(const reduce *k)
{
    return k->type == ACC_F32 ? sizeof(float) : sizeof(double);
}

/* Fills accumulators with the result of a reduction of nothing. */
static void fill(const reduce *k, void *acc, int64_t n)
{
    const double of_none = k->op == TSR_REDUCE_MAX       ? -INFINITY
                           : k->op == TSR_REDUCE_MIN     ? INFINITY
                           : k->op == TSR_REDUCE_PRODUCT ? 1
                                                         : 0;
    const int64_t whole_none = k->op == TSR_REDUCE_MAX   ? INT64_MIN
                               : k->op == TSR_REDUCE_MIN ? INT64_MAX
                                                         : 0;
    if (of_none == 0)
        memset(acc, 0, (size_t)(n * accumulator_bytes(k)));
    for (int64_t i = 0; i < n && of_none != 0; i++)
        if (k->type == ACC_F64)
            ((double *)acc)[i] = of_none;
        else if (k->type == ACC_F32)
            ((float *)acc)[i] = (float)of_none;
        else
            ((int64_t *)acc)[i] = whole_none;
}

/* Reduces rows, `pitch` elements apart, into acc: one by row, or one by column. */
static void fold(const reduce *k, const char *x, int64_t rows, int64_t pitch, int64_t cols,
                 bool columns, char *acc)
{
    if (k->type == ACC_I64)
        k->base.isa->reduce_i64[k->op][columns](x, rows, pitch, cols, acc);
    else
        k->base.isa->reduce[k->op][columns]((const float *)(const void *)x, rows, pitch, cols, acc);
}

/* Joins accumulators `step` apart. */
static double joined(const reduce *k, const char *acc, int64_t at, int64_t step, int parts)
{
    double all = k->op == TSR_REDUCE_PRODUCT;
    for (int p = 0; p < parts; p++, at += step) {
        if (k->type == ACC_F64) {
            const double v = ((const double *)(const void *)acc)[at];
            all = k->op == TSR_REDUCE_SUM ? all + v : all * v;
            continue;
        }
        const double v = (double)((const float *)(const void *)acc)[at];
        const bool beyond = k->op == TSR_REDUCE_MAX ? v > all : v < all;
        if (p == 0 || beyond || v != v)
            all = all != all ? all : v;
    }
    return all;
}

static int64_t joined_i64(const reduce *k, const char *acc, int64_t at, int64_t step, int parts)
{
    const int64_t *from = (const int64_t *)(const void *)acc;
    int64_t all = from[at];
    for (int p = 1; p < parts; p++) {
        const int64_t v = from[at + p * step];
        if (k->op == TSR_REDUCE_SUM)
            all = (int64_t)((uint64_t)all + (uint64_t)v);
        else if (k->op == TSR_REDUCE_MAX ? v > all : v < all)
            all = v;
    }
    return all;
}

/* Reduces by column dense rows that are no longer than NARROW: so many of them as the vectors have
 * lanes are one row, and its accumulators are then joined. */
enum { NARROW = 32, MOST_LANES = 16 };

static void fold_narrow(const reduce *k, const char *x, int64_t rows, char *acc)
{
    const int64_t cols = k->inner, many = k->base.isa->width, size = accumulator_bytes(k);
    double own[NARROW * (MOST_LANES + 1)];
    char *wide = (char *)own + cols * size;
    fold(k, x + rows / many * many * cols * element_bytes(k), rows % many, cols, cols, true, acc);
    memcpy(own, acc, (size_t)(cols * size));
    fill(k, wide, many * cols);
    fold(k, x, rows / many, many * cols, many * cols, true, wide);
    for (int64_t i = 0; i < cols; i++)
        if (k->type == ACC_F64)
            ((double *)(void *)acc)[i] = joined(k, (char *)own, i, cols, (int)many + 1);
        else if (k->type == ACC_F32)
            ((float *)(void *)acc)[i] = (float)joined(k, (char *)own, i, cols, (int)many + 1);
        else
            ((int64_t *)(void *)acc)[i] = joined_i64(k, (char *)own, i, cols, (int)many + 1);
}

/* Reduces columns [0, cols) of rows that are k->inner apart. */
static void fold_columns(const reduce *k, const char *x, int64_t rows, int64_t cols, char *acc)
{
    if (cols == k->inner && cols <= NARROW && rows >= 4 * k->base.isa->width)
        fold_narrow(k, x, rows, acc);
    else
        fold(k, x, rows, k->inner, cols, true, acc);
}

/* Writes results y[n] of accumulators from `at` on, and of those of the other parts. */
static void store(const reduce *k, const char *acc, int64_t at, int64_t step, int parts, int64_t n,
                  void *y)
{
    const double scale = k->scale, *sums = (const double *)(const void *)acc + at;
    for (int64_t i = 0; i < n && k->type == ACC_I64; i++)
        ((int64_t *)y)[i] = joined_i64(k, acc, at + i, step, parts);
    if (k->type == ACC_F64 && parts == 1) {
        for (int64_t i = 0; i < n; i++)
            ((float *)y)[i] = (float)(scale * sums[i]);
        return;
    }
    for (int64_t i = 0; i < n && k->type != ACC_I64; i++) {
        const double all = joined(k, acc, at + i, step, parts);
        ((float *)y)[i] =
            k->op == TSRI_REDUCE_FAULT ? (all == 0 ? 0 : INFINITY) : (float)(scale * all);
    }
}

static void store_range(const reduce *k, const range *r, const char *acc, int parts, char *y)
{
    for (int64_t o = r->o0; o < r->o1; o++)
        store(k, acc, o * k->pitch + r->i0, k->outer * k->pitch, parts, r->i1 - r->i0,
              y + (o * k->inner + r->i0) * element_bytes(k));
}

/* Fills the accumulators of columns [i0, i1), in whole vectors. */
static void fill_columns(const reduce *k, const range *r, char *acc)
{
    const int64_t width = k->base.isa->width, end = (r->i1 + width - 1) / width * width;
    fill(k, acc, tsri_fast_least(end, k->pitch) - r->i0);
}

/* Reduces all of n of the range's rows, a few results at a time. acc: accumulators of the columns,
 * where these are several. */
static void reduce_whole(const reduce *k, const range *r, const char *x, char *acc, char *y)
{
    enum { AT_ONCE = 64 };
    const int64_t row = k->n * k->inner, size = element_bytes(k);
    for (int64_t o = r->o0; o < r->o1 && k->inner == 1; o += AT_ONCE) {
        double own[AT_ONCE];
        const int64_t n = tsri_fast_least(r->o1 - o, AT_ONCE);
        fill(k, own, n);
        fold(k, x + o * row * size, n, k->n, k->n, false, (char *)own);
        store(k, (char *)own, 0, 0, 1, n, y + o * size);
    }
    for (int64_t o = r->o0; o < r->o1 && k->inner > 1; o++) {
        fill_columns(k, r, acc);
        fold_columns(k, x + (o * row + r->i0) * size, k->n, r->i1 - r->i0, acc);
        store(k, acc, 0, 0, 1, r->i1 - r->i0, y + (o * k->inner + r->i0) * size);
    }
}

static void reduce_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const reduce *k = (const reduce *)f;
    const int64_t bytes = accumulator_bytes(k), size = element_bytes(k);
    const char *x = p->in[0];
    range r = {0, k->outer, 0, k->n, 0, k->inner};
    int64_t *first[] = {&r.o0, &r.i0, &r.n0}, *end[] = {&r.o1, &r.i1, &r.n1};
    char *acc = p->scratch;
    *first[k->cut] = p->begin;
    *end[k->cut] = p->end;
    if (k->cut != CUT_N && k->lead == 1) {
        reduce_whole(k, &r, x, acc + (r.o0 * k->pitch + r.i0) * bytes, p->out[0]);
        return;
    }
    if (k->cut == CUT_N)
        acc += p->index * k->outer * k->pitch * bytes;
    for (int64_t o = r.o0; o < r.o1; o++)
        fill_columns(k, &r, acc + (o * k->pitch + r.i0) * bytes);
    for (int64_t l = 0; l < k->lead; l++, x += k->outer * k->n * k->inner * size) {
        if (k->inner == 1)
            fold(k, x + (r.o0 * k->n + r.n0) * size, r.o1 - r.o0, k->n, r.n1 - r.n0, false,
                 acc + r.o0 * bytes);
        for (int64_t o = r.o0; o < r.o1 && k->inner > 1; o++)
            fold_columns(k, x + ((o * k->n + r.n0) * k->inner + r.i0) * size, r.n1 - r.n0,
                         r.i1 - r.i0, acc + (o * k->pitch + r.i0) * bytes);
    }
    if (k->cut != CUT_N)
        store_range(k, &r, acc, 1, p->out[0]);
}

/* Joins what the threads have made of their parts of n. */
static tsr_status join_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                           void *scratch)
{
    const reduce *k = (const reduce *)kernel;
    TSRI_TRY(tsri_fast_run(kernel, in, out, scratch));
    store_range(k, &(range){0, k->outer, 0, k->n, 0, k->inner}, scratch, k->base.threads, out[0]);
    return TSR_OK;
}

/* --- in a chain ------------------------------------------------------------------------------- */
/* Reduces some of the rows of the outer axes. */
static void rows_piece(const tsri_kernel *kernel, const tsri_kernel_piece *p)
{
    const reduce *k = (const reduce *)kernel;
    const range r = {0, k->outer / p->units * p->n, 0, k->n, 0, k->inner};
    char *acc = (char *)p->scratch + p->thread * k->pitch * accumulator_bytes(k);
    reduce_whole(k, &r, p->in[0], acc, p->out[0]);
}

static void sums_begin(const tsri_kernel *kernel, const tsri_kernel_piece *p)
{
    const reduce *k = (const reduce *)kernel;
    const int64_t bytes = k->pitch * accumulator_bytes(k);
    fill(k, (char *)p->scratch + p->thread * bytes, k->pitch);
}

static void sums_piece(const tsri_kernel *kernel, const tsri_kernel_piece *p)
{
    const reduce *k = (const reduce *)kernel;
    const int64_t n = k->n / p->units * p->n, bytes = k->pitch * accumulator_bytes(k);
    char *acc = (char *)p->scratch + p->thread * bytes;
    if (k->inner == 1)
        fold(k, p->in[0], 1, n, n, false, acc);
    else
        fold_columns(k, p->in[0], n, k->inner, acc);
}

/* Writes a thread's share of the results: all threads' accumulators, in their order. */
static void sums_end(const tsri_kernel *kernel, const tsri_kernel_piece *p)
{
    const reduce *k = (const reduce *)kernel;
    const int64_t unit = k->base.isa->width;
    const int64_t begin = tsri_fast_cut(k->inner, k->team, p->thread, unit);
    const int64_t end = tsri_fast_cut(k->inner, k->team, p->thread + 1, unit);
    store(k, p->scratch, begin, k->pitch, k->team, end - begin,
          (char *)p->out[0] + begin * element_bytes(k));
}

/* Sums of products of two operands, which a chain asks for instead of a product and its sum. */
static void products_rows_piece(const tsri_kernel *kernel, const tsri_kernel_piece *p)
{
    const reduce *k = (const reduce *)kernel;
    const int64_t rows = k->outer / p->units * p->n;
    const float *x = p->in[0], *y = p->in[1];
    for (int64_t o = 0; o < rows; o++)
        ((float *)p->out[0])[o] =
            (float)(k->scale * k->base.isa->sum_products(x + o * k->n, y + o * k->n, k->n));
}

static void products_sums_piece(const tsri_kernel *kernel, const tsri_kernel_piece *p)
{
    const reduce *k = (const reduce *)kernel;
    double *acc = (double *)p->scratch + p->thread * k->pitch;
    *acc += k->base.isa->sum_products(p->in[0], p->in[1], k->n / p->units * p->n);
}

static void set_pieces(reduce *k, bool products)
{
    if (k->lead > 1)
        return;
    const bool rows = k->outer > 1;
    k->base.pieces = rows ? (tsri_kernel_pieces){.in = 1, .out = 1, .units = k->outer}
                          : (tsri_kernel_pieces){.in = 1, .units = k->n};
    k->base.pieces.begin = rows ? NULL : sums_begin;
    k->base.pieces.piece = rows ? rows_piece : sums_piece;
    k->base.pieces.end = rows ? NULL : sums_end;
    if (products) {
        k->base.pieces.in = 3;
        k->base.pieces.piece = rows ? products_rows_piece : products_sums_piece;
    }
    k->base.base.pieces = &k->base.pieces;
}

/* --- making ----------------------------------------------------------------------------------- */
/* The axes of a that are longer than 1, from the largest stride to the least; returns how many
 * there are, or -1 where the elements are not dense in that order. */
static int memory_order(const tsri_arg *a, int axis[TSR_MAX_NDIM])
{
    int n = 0;
    int64_t step = 1;
    for (int i = 0; i < a->ndim; i++) {
        int at = n;
        if (a->shape[i] == 1)
            continue;
        for (; at > 0 && a->stride[axis[at - 1]] < a->stride[i]; at--)
            axis[at] = axis[at - 1];
        axis[at] = i;
        n++;
    }
    for (int i = n; i-- > 0; step *= a->shape[axis[i]])
        if (a->stride[axis[i]] != step)
            return -1;
    return n;
}

/* Sets the four sizes; false where the reduced axes are in more than two places, or in two of which
 * none is in front, or the result has its axes in another order. */
static bool read_sizes(const tsri_kernel_desc *d, reduce *k)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    const uint32_t axes = d->attrs->reduce.axes;
    int order[TSR_MAX_NDIM], kept[TSR_MAX_NDIM], n = memory_order(x, order), m = 0;
    if (n < 0 || memory_order(y, kept) < 0)
        return false;
    k->lead = k->outer = k->n = k->inner = 1;
    for (int i = 0; i < n; i++) {
        const int axis = order[i];
        if (axes >> axis & 1) {
            /* Axes reduced in front become the lead, and those behind them the outer part. */
            if (k->inner > 1) {
                if (k->lead > 1 || k->outer > 1)
                    return false;
                k->lead = k->n;
                k->outer = k->inner;
                k->n = k->inner = 1;
            }
            k->n *= x->shape[axis];
            continue;
        }
        int out_axis = axis;
        for (int a = 0; a < axis && !d->attrs->reduce.keepdim; a++)
            out_axis -= axes >> a & 1;
        if (kept[m++] != out_axis)
            return false;
        *(k->n > 1 ? &k->inner : &k->outer) *= x->shape[axis];
    }
    if (k->n == 1) { /* nothing to reduce: one row */
        k->inner = k->outer;
        k->outer = 1;
    }
    return true;
}

/* Whether there are loops for the operand's dtype, which then are `type`'s. */
static bool read_type(const tsri_kernel_desc *d, reduce *k)
{
    const unsigned op = (unsigned)d->attrs->reduce.op;
    const tsr_dtype dtype = d->in[0].dtype;
    const tsri_fast_isa *isa = tsri_fast_isa_best();
    const bool whole = dtype == TSR_I64;
    if (op > TSRI_REDUCE_FAULT || d->out[0].dtype != dtype || (!whole && dtype != TSR_F32) ||
        (whole ? !isa->reduce_i64[op][0] : !isa->reduce[op][0]))
        return false;
    k->op = (int)op;
    k->scale = op == TSR_REDUCE_SUM ? d->attrs->reduce.scale : 1;
    k->type = whole                                              ? ACC_I64
              : op == TSR_REDUCE_SUM || op == TSR_REDUCE_PRODUCT ? ACC_F64
                                                                 : ACC_F32;
    return !whole || k->scale == 1;
}

tsr_status tsri_fast_reduce(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    reduce sizes = {0};
    const int64_t count = tsri_arg_count(&d->in[0]);
    const bool products = d->nin == 2;
    if (!count || !read_type(d, &sizes) || !read_sizes(d, &sizes))
        return tsri_fast_decline(d);
    if (products &&
        (sizes.type != ACC_F64 || sizes.op != TSR_REDUCE_SUM || sizes.lead > 1 || sizes.inner > 1 ||
         d->in[1].dtype != TSR_F32 || !tsri_fast_alike(&d->in[0], &d->in[1])))
        return tsri_fast_decline(d);
    reduce *k = tsri_fast_make(mem, d, reduce_part, sizeof *k, count, 0);
    TSRI_NEED(k);
    const int64_t width = k->base.isa->width;
    sizes.base = k->base;
    *k = sizes;
    k->team = k->base.threads;
    k->pitch = k->inner == 1 ? 1 : (k->inner + width - 1) / width * width;
    k->cut = k->outer >= k->base.threads           ? CUT_OUTER
             : k->inner >= k->base.threads * width ? CUT_INNER
                                                   : CUT_N;
    k->base.items = k->cut == CUT_OUTER ? k->outer : k->cut == CUT_INNER ? k->inner : k->n;
    if (k->cut == CUT_INNER)
        k->base.unit = width;
    if (k->cut == CUT_N) {
        k->base.threads = (int)(k->base.threads < k->n ? k->base.threads : k->n);
        k->base.base.run = join_run;
    }
    const int64_t parts = k->cut == CUT_N ? k->base.threads : 1, own = k->team;
    const int64_t most = parts * k->outer > own ? parts * k->outer : own;
    k->base.base.scratch_bytes = (size_t)(most * k->pitch * accumulator_bytes(k));
    set_pieces(k, products);
    *out_kernel = &k->base.base;
    return TSR_OK;
}
