/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorting lines along an axis: places are sorted by keys of whole numbers, short lines by
 * insertion, others by the bytes of the keys, the lowest first, each of which is a stable pass;
 * bytes that all keys share are left out.
 */
#include <string.h>

#include "kernels/cpu/ref/ref.h"

#define SORT_FN static inline
#include "kernels/sort_key.h"

enum { SHORT = 48, BYTE = 256 };

typedef struct item {
    uint64_t key;
    int64_t place;
} item;

typedef struct sort {
    tsri_ref ref;
    int64_t lines, n, count; /* of a line: elements, and how many places are asked for */
    int64_t inner;           /* lines that lie behind each other's axis */
} sort;

#define LOAD_KEYS(TYPE, key_of)                          \
    for (int64_t i = 0; i < n; i++)                      \
        to[i].key = key_of(((const TYPE *)x)[i * step]); \
    break

static void load(tsr_dtype dtype, const void *x, int64_t step, int64_t n, bool descending, item *to)
{
    switch (dtype) {
    case TSR_F32:
        LOAD_KEYS(float, sort_key_f32);
    case TSR_F64:
        LOAD_KEYS(double, sort_key_f64);
    case TSR_I64:
        LOAD_KEYS(int64_t, sort_key_whole);
    case TSR_I32:
        LOAD_KEYS(int32_t, sort_key_whole);
    default: /* u8, bool */
        LOAD_KEYS(uint8_t, (uint64_t));
    }
    for (int64_t i = 0; i < n; i++) {
        to[i].place = i;
        to[i].key = descending ? ~to[i].key : to[i].key;
    }
}

static void sort_short(item *x, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const item v = x[i];
        int64_t j = i;
        for (; j > 0 && x[j - 1].key > v.key; j--)
            x[j] = x[j - 1];
        x[j] = v;
    }
}

/* Sorts x, and returns where the result is: x or `other`. */
static item *sort_long(item *x, item *other, int64_t n)
{
    int64_t counts[8][BYTE] = {{0}};
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < 8; b++)
            counts[b][x[i].key >> 8 * b & 255]++;
    for (int b = 0; b < 8; b++) {
        if (counts[b][x[0].key >> 8 * b & 255] == n)
            continue;
        int64_t at = 0;
        for (int v = 0; v < BYTE; v++) {
            const int64_t many = counts[b][v];
            counts[b][v] = at;
            at += many;
        }
        for (int64_t i = 0; i < n; i++)
            other[counts[b][x[i].key >> 8 * b & 255]++] = x[i];
        item *const sorted = other;
        other = x;
        x = sorted;
    }
    return x;
}

static void sort_line(const sort *v, const void *in, int64_t *out, int64_t line, item *scratch)
{
    const tsri_arg *x = &v->ref.desc.in[0], *y = &v->ref.desc.out[0];
    const int axis = v->ref.attrs.sort.axis;
    const int64_t outer = line / v->inner, inner = line % v->inner;
#define AT(a) (tsri_ref_offset(a, 0, axis, outer) + tsri_ref_offset(a, axis + 1, (a)->ndim, inner))
    const char *from = (const char *)in + AT(x) * (int64_t)tsr_dtype_size(x->dtype);
    int64_t *to = out + AT(y);
#undef AT
    item *sorted = scratch;
    load(x->dtype, from, x->stride[axis], v->n, v->ref.attrs.sort.descending, scratch);
    if (v->n <= SHORT)
        sort_short(scratch, v->n);
    else
        sorted = sort_long(scratch, scratch + v->n, v->n);
    for (int64_t i = 0; i < v->count; i++)
        to[i * y->stride[axis]] = sorted[i].place;
}

static tsr_status run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const sort *v = (const sort *)k;
    if (!out[0])
        return TSR_OK;
    TSRI_REF_EACH(i, 0, v->lines, v->lines * v->n > 1 << 12, {
        sort_line(v, in[0], out[0], i, (item *)scratch + 2 * v->n * omp_get_thread_num());
    });
    return TSR_OK;
}

tsr_status tsri_ref_argsort(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    const int axis = d->attrs->sort.axis;
    if (y->dtype != TSR_I64 || x->dtype == TSR_F16 || x->dtype == TSR_BF16)
        return tsri_ref_decline(d);
    sort *v = tsri_ref_make(mem, d, run, sizeof *v);
    TSRI_NEED(v);
    v->n = x->shape[axis];
    v->count = y->shape[axis];
    v->inner = tsri_arg_count_of(x, axis + 1, x->ndim);
    v->lines = tsri_arg_count_of(x, 0, axis) * v->inner;
    v->ref.base.scratch_bytes = (size_t)(2 * v->n * omp_get_max_threads()) * sizeof(item);
    *out_kernel = &v->ref.base;
    return TSR_OK;
}
