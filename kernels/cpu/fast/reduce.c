/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions over axes of a dense operand, in the order of its memory: x[lead][outer][n][inner] ->
 * y[outer][inner]. Threads share what is longest of the last three. */
#include "kernels/cpu/fast/fast.h"

#include <math.h>

#include <tessera/sbp.h>

typedef enum cut { CUT_OUTER = 0, CUT_INNER, CUT_N } cut;

typedef struct reduce {
    tsri_fast base;
    int op;
    cut cut;
    int64_t lead, outer, n, inner;
    int64_t pitch; /* of the accumulators acc[outer][pitch]; with CUT_N, those of each thread */
    double scale;
} reduce;

/* A part of the work: o0 <= outer < o1 and so on. */
typedef struct range {
    int64_t o0, o1, n0, n1, i0, i1;
} range;

static size_t accumulator_bytes(const reduce *k)
{
    return k->op == TSR_REDUCE_SUM ? sizeof(double) : sizeof(float);
}

static void clear(const reduce *k, const range *r, char *acc)
{
    const float none = k->op == TSR_REDUCE_MAX      ? -INFINITY
                       : k->op == TSRI_REDUCE_FAULT ? 0
                                                    : INFINITY;
    const int64_t width = k->base.isa->width, end = (r->i1 + width - 1) / width * width;
    for (int64_t o = r->o0; o < r->o1; o++)
        for (int64_t i = r->i0; i < end && i < k->pitch; i++)
            if (k->op == TSR_REDUCE_SUM)
                ((double *)(void *)acc)[o * k->pitch + i] = 0;
            else
                ((float *)(void *)acc)[o * k->pitch + i] = none;
}

static double joined(const reduce *k, const char *acc, int64_t at, int parts)
{
    double all = 0;
    for (int p = 0; p < parts; p++, at += k->outer * k->pitch) {
        if (k->op == TSR_REDUCE_SUM) {
            all += ((const double *)(const void *)acc)[at];
            continue;
        }
        const double v = (double)((const float *)(const void *)acc)[at];
        const bool beyond = k->op == TSR_REDUCE_MAX ? v > all : v < all;
        if (p == 0 || beyond || v != v)
            all = all != all ? all : v;
    }
    if (k->op == TSRI_REDUCE_FAULT)
        return all == 0 ? 0 : (double)INFINITY;
    return k->scale * all;
}

static void store(const reduce *k, const range *r, const char *acc, int parts, float *y)
{
    for (int64_t o = r->o0; o < r->o1; o++)
        for (int64_t i = r->i0; i < r->i1; i++)
            y[o * k->inner + i] = (float)joined(k, acc, o * k->pitch + i, parts);
}

static void reduce_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const reduce *k = (const reduce *)f;
    const size_t bytes = accumulator_bytes(k);
    const float *x = p->in[0];
    range r = {0, k->outer, 0, k->n, 0, k->inner};
    int64_t *first[] = {&r.o0, &r.i0, &r.n0}, *end[] = {&r.o1, &r.i1, &r.n1};
    char *acc = p->scratch;
    *first[k->cut] = p->begin;
    *end[k->cut] = p->end;
    if (k->cut == CUT_N)
        acc += (size_t)(p->index * k->outer * k->pitch) * bytes;
    clear(k, &r, acc);
    tsri_fast_reduce_fn *fn = f->isa->reduce[k->op][k->inner > 1];
    for (int64_t l = 0; l < k->lead; l++, x += k->outer * k->n * k->inner) {
        if (k->inner == 1)
            fn(x + r.o0 * k->n + r.n0, r.o1 - r.o0, k->n, r.n1 - r.n0, acc + (size_t)r.o0 * bytes);
        for (int64_t o = r.o0; o < r.o1 && k->inner > 1; o++)
            fn(x + (o * k->n + r.n0) * k->inner + r.i0, r.n1 - r.n0, k->inner, r.i1 - r.i0,
               acc + (size_t)(o * k->pitch + r.i0) * bytes);
    }
    if (k->cut != CUT_N)
        store(k, &r, acc, 1, p->out[0]);
}

/* Joins what the threads have made of their parts of n. */
static tsr_status join_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                           void *scratch)
{
    const reduce *k = (const reduce *)kernel;
    TSRI_TRY(tsri_fast_run(kernel, in, out, scratch));
    store(k, &(range){0, k->outer, 0, k->n, 0, k->inner}, scratch, k->base.threads, out[0]);
    return TSR_OK;
}

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
    return k->n > 1;
}

tsr_status tsri_fast_reduce(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    reduce sizes = {.op = d->attrs->reduce.op};
    const int64_t count = tsri_arg_count(&d->in[0]);
    const bool known = sizes.op <= TSR_REDUCE_MIN || sizes.op == TSRI_REDUCE_FAULT;
    if (!tsri_fast_is_f32(d) || !count || !known || !read_sizes(d, &sizes))
        return tsri_fast_decline(d);
    reduce *k = tsri_fast_make(mem, d, reduce_part, sizeof *k, count, 0);
    TSRI_NEED(k);
    const int64_t width = k->base.isa->width;
    sizes.base = k->base;
    *k = sizes;
    k->scale = k->op == TSR_REDUCE_SUM ? d->attrs->reduce.scale : 1;
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
    const int64_t parts = k->cut == CUT_N ? k->base.threads : 1;
    k->base.base.scratch_bytes = (size_t)(parts * k->outer * k->pitch) * accumulator_bytes(k);
    *out_kernel = &k->base.base;
    return TSR_OK;
}
