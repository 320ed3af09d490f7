/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indexing of row-major buffers: x is [outer][len][inner] of which ids first <= id < first + len
 * are here, y is [outer][n][inner]. Forward moves rows of any type; the gradient sums f32.
 */
#include "kernels/cpu/fast/fast.h"
#include "src/core/identity.h"

#include <string.h>

enum {
    AHEAD = 8, /* rows of dy, which are asked for in the order of their ids */
};

typedef struct gather {
    tsri_fast base;
    tsri_kernel_desc desc; /* for what is said of a bad id */
    int64_t inner, n, first, len, size, pad;
    size_t row; /* bytes of inner */
} gather;

/* The row that holds an id; negative: another shard has it. */
static int64_t row_of(const gather *k, int64_t id)
{
    return id - k->first < k->len ? id - k->first : -1;
}

static tsr_status check(const gather *k, const int64_t *ids)
{
    const tsri_arg *a = &k->desc.in[k->desc.op == TSRI_OP_INDEX_SELECT_DX ? 0 : 1];
    for (int64_t i = 0; i < k->n; i++)
        if (ids[i] < 0 || ids[i] >= k->size)
            return tsri_check_id(&k->desc, a, i, ids[i], k->size);
    return TSR_OK;
}

static void copy_row(char *y, const char *x, size_t row)
{
    if (row == 4) /* a last axis is indexed */
        memcpy(y, x, 4);
    else if (row == 8)
        memcpy(y, x, 8);
    else
        memcpy(y, x, row);
}

static void gather_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const gather *k = (const gather *)f;
    const int64_t row = (int64_t)k->row, *ids = p->in[1];
    for (int64_t at = p->begin; at < p->end;) {
        const int64_t o = at / k->n, i0 = at % k->n;
        const int64_t m = k->n - i0 < p->end - at ? k->n - i0 : p->end - at;
        const char *x = k->len ? (const char *)p->in[0] + o * k->len * row : NULL;
        char *y = (char *)p->out[0] + at * row;
        const bool whole = row == 4 && k->first == 0 && k->len == k->size;
        if (whole)
            f->isa->pick((const float *)(const void *)x, ids + i0, (float *)(void *)y, m);
        for (int64_t i = 0; i < m && !whole; i++, y += row) {
            int64_t r = row_of(k, ids[i0 + i]);
            if (r < 0)
                tsri_fill_identity(k->desc.out[0].dtype, TSR_REDUCE_SUM, k->inner, y);
            else
                copy_row(y, x + r * row, k->row);
        }
        at += m;
    }
}

static tsr_status gather_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                             void *scratch)
{
    TSRI_TRY(check((const gather *)kernel, in[1]));
    return tsri_fast_run(kernel, in, out, scratch);
}

/* Asks for the first lines of a row of dy, which no hardware foresees. */
static void ask_for(const gather *k, const float *dy, const int64_t *at, int64_t p)
{
    enum { LINE = 16, MOST = 8 * LINE };
    for (int64_t i = 0; i < k->inner && i < MOST; i += LINE)
        __builtin_prefetch(dy + at[p] * k->inner + i);
}

/* Rows of dx: each is the sum of its rows of dy, in f64 and in the order of the ids: those of row r
 * are number at[begin[r]] up to at[begin[r + 1]]. */
static void sum_part(const tsri_fast *f, const tsri_fast_part *q)
{
    const gather *k = (const gather *)f;
    const int64_t *begin = q->scratch, *at = begin + k->len + 2;
    int64_t o = q->begin / k->len, i0 = q->begin % k->len;
    for (int64_t r = q->begin; r < q->end; r++, i0++) {
        if (i0 == k->len) {
            i0 = 0;
            o++;
        }
        const int64_t first = begin[i0], last = begin[i0 + 1];
        const float *dy = q->in[1];
        float *dx = (float *)q->out[0] + r * k->inner;
        if (k->inner == 1) { /* a last axis is indexed */
            double sum = 0;
            for (int64_t p = first; p < last; p++)
                sum += (double)dy[o * k->n + at[p]];
            *dx = (float)sum;
            continue;
        }
        if (first < last)
            dy += o * k->n * k->inner;
        for (int64_t p = first + AHEAD; p < last + AHEAD && p < begin[k->len]; p++)
            ask_for(k, dy, at, p);
        f->isa->add_rows(dy, at + first, NULL, last - first, k->inner, dx);
    }
}

static tsr_status gather_dx_run(const tsri_kernel *kernel, void *const *in, void *const *out,
                                void *scratch)
{
    const gather *k = (const gather *)kernel;
    const int64_t *ids = in[0];
    TSRI_TRY(check(k, ids));
    /* Sorted by row, in their order: counted one further than where they will begin. */
    int64_t *begin = scratch, *at = begin + k->len + 2;
    memset(begin, 0, (size_t)(k->len + 2) * sizeof *begin);
    for (int64_t i = 0; i < k->n; i++)
        if (row_of(k, ids[i]) >= 0 && ids[i] != k->pad)
            begin[row_of(k, ids[i]) + 2]++;
    for (int64_t r = 0; r < k->len; r++)
        begin[r + 2] += begin[r + 1];
    for (int64_t i = 0; i < k->n; i++)
        if (row_of(k, ids[i]) >= 0 && ids[i] != k->pad)
            at[begin[row_of(k, ids[i]) + 1]++] = i;
    return tsri_fast_run(kernel, in, out, scratch);
}

tsr_status tsri_fast_gather(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const bool dx = desc->op == TSRI_OP_INDEX_SELECT_DX;
    const tsri_arg *x = dx ? &desc->out[0] : &desc->in[0], *y = dx ? &desc->in[1] : &desc->out[0];
    const tsri_arg *ids = &desc->in[!dx];
    const int axis = desc->attrs->gather.axis;
    const int64_t n = tsri_arg_count(ids), count = tsri_arg_count(&desc->out[0]);
    if (ids->dtype != TSR_I64 || x->dtype != y->dtype || (dx && x->dtype != TSR_F32) || !count ||
        !tsri_fast_is_row_major(x) || !tsri_fast_is_row_major(y) || !tsri_fast_is_row_major(ids))
        return tsri_fast_decline(desc);
    const int64_t outer = tsri_arg_count_of(x, 0, axis);
    gather *k = tsri_fast_make(mem, desc, dx ? sum_part : gather_part, sizeof *k, count,
                               outer * (dx ? x->shape[axis] : n));
    TSRI_NEED(k);
    k->base.base.run = dx ? gather_dx_run : gather_run;
    k->desc = *desc;
    k->desc.attrs = NULL; /* the caller's */
    k->inner = tsri_arg_count_of(x, axis + 1, x->ndim);
    k->row = (size_t)k->inner * tsr_dtype_size(x->dtype);
    k->n = n;
    k->first = x->offset[axis];
    k->len = x->shape[axis];
    k->size = x->gshape[axis];
    k->pad = desc->attrs->gather.has_pad ? desc->attrs->gather.pad : -1;
    if (dx)
        k->base.base.scratch_bytes = (size_t)(k->len + 2 + n) * sizeof(int64_t);
    *out_kernel = &k->base.base;
    return TSR_OK;
}
