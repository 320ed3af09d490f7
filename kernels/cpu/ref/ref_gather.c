/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indexing. x has axes before the indexed one ("outer") and behind it ("inner"); y the same with
 * ids' axes between. A shard of x that begins at `first` answers for ids first <= id < first + len.
 */
#include "kernels/cpu/ref/ref.h"

#include <string.h>

enum { PARALLEL = 1 << 15 }; /* elements below which a team costs more than it brings */

typedef struct gather {
    tsri_ref ref;             /* iter: the inner axes, of y then x; dx then dy */
    tsri_arg x, y;            /* x or dx, y or dy */
    int axis, nids;           /* number of ids' axes */
    int64_t outer, inner, n;  /* elements of the outer and inner axes; ids */
    int64_t first, len, size; /* of the indexed axis, here and globally */
} gather;

/* Offset of element i, row-major, of axes [begin, end). */
static int64_t offset_of(const tsri_arg *a, int begin, int end, int64_t i)
{
    int64_t off = 0;
    for (int k = end - 1; k >= begin; k--) {
        off += i % a->shape[k] * a->stride[k];
        i /= a->shape[k];
    }
    return off;
}

static int64_t count_of(const tsri_arg *a, int begin, int end)
{
    int64_t n = 1;
    for (int k = begin; k < end; k++)
        n *= a->shape[k];
    return n;
}

static const tsri_arg *ids_of(const gather *v)
{
    return &v->ref.desc.in[v->ref.desc.op == TSRI_OP_GATHER_DX ? 0 : 1];
}

/* Id i; negative where it is none of this shard's. */
static int64_t local_id(const gather *v, const int64_t *ids, int64_t i)
{
    const tsri_arg *a = ids_of(v);
    int64_t id = ids[offset_of(a, 0, a->ndim, i)] - v->first;
    return id < v->len ? id : -1;
}

static tsr_status check_ids(const gather *v, const int64_t *ids)
{
    const tsri_arg *a = ids_of(v);
    for (int64_t i = 0; i < v->n; i++)
        TSRI_TRY(tsri_check_id(&v->ref.desc, a, i, ids[offset_of(a, 0, a->ndim, i)], v->size));
    return TSR_OK;
}

/* --- forward ---------------------------------------------------------------------------------- */

typedef struct copy_job {
    size_t size;
    char *y;
    const char *x; /* NULL: zeros */
} copy_job;

static void copy_row(void *arg, const tsri_ref_row *r)
{
    const copy_job *j = arg;
    char *y = j->y + r->off[0] * (int64_t)j->size;
    if (j->x) {
        tsri_ref_move(j->size, y, r->step[0], j->x + r->off[1] * (int64_t)j->size, r->step[1],
                      r->n);
        return;
    }
    for (int64_t i = 0; i < r->n; i++)
        memset(y + i * r->step[0] * (int64_t)j->size, 0, j->size);
}

static void gather_one(const gather *v, void *const *in, char *out, int64_t item)
{
    const int64_t size = (int64_t)tsr_dtype_size(v->y.dtype);
    int64_t o = item / v->n, i = item % v->n, id = local_id(v, in[1], i);
    int64_t y = offset_of(&v->y, 0, v->axis, o) + offset_of(&v->y, v->axis, v->axis + v->nids, i);
    int64_t x = offset_of(&v->x, 0, v->axis, o) + id * v->x.stride[v->axis];
    copy_job j = {(size_t)size, out + y * size, NULL};
    if (id >= 0)
        j.x = (const char *)in[0] + x * size;
    tsri_ref_iter_run(&v->ref.iter, copy_row, &j, false);
}

static tsr_status gather_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const gather *v = (const gather *)k;
    TSRI_TRY(check_ids(v, in[1]));
    if (v->inner)
        TSRI_REF_EACH(item, 0, v->outer * v->n, v->outer * v->n * v->inner >= PARALLEL,
                      { gather_one(v, in, out[0], item); });
    return TSR_OK;
}

/* --- gradient --------------------------------------------------------------------------------- */

/* The slices of dy that belong to one row of dx, in the order of the ids. */
typedef struct sum_job {
    const void *dy;
    void *dx;
    const int64_t *slice; /* their offsets in dy */
    int64_t n;
} sum_job;

/* In f64, a block of elements at a time; in an order that depends on the ids alone. */
#define SUM(T, name)                                                                     \
    static void name(void *arg, const tsri_ref_row *r)                                   \
    {                                                                                    \
        const sum_job *j = arg;                                                          \
        const int64_t sx = r->step[0], sy = r->step[1];                                  \
        for (int64_t b = 0; b < r->n; b += TSRI_REF_BLOCK) {                             \
            double sum[TSRI_REF_BLOCK] = {0};                                            \
            int64_t m = r->n - b < TSRI_REF_BLOCK ? r->n - b : TSRI_REF_BLOCK;           \
            for (int64_t p = 0; p < j->n; p++) {                                         \
                const T *dy = (const T *)j->dy + j->slice[p] + r->off[1] + b * sy;       \
                if (sy == 1)                                                             \
                    _Pragma("omp simd") for (int64_t i = 0; i < m; i++) sum[i] += dy[i]; \
                else                                                                     \
                    for (int64_t i = 0; i < m; i++)                                      \
                        sum[i] += dy[i * sy];                                            \
            }                                                                            \
            T *dx = (T *)j->dx + r->off[0] + b * sx;                                     \
            for (int64_t i = 0; i < m; i++)                                              \
                dx[i * sx] = (T)sum[i];                                                  \
        }                                                                                \
    }
SUM(float, sum_f32)
SUM(double, sum_f64)

/* Sorts the ids' slices of dy by id, keeping their order: those of row r are slice[begin[r]] up to
 * slice[begin[r + 1]]. */
static void sort_slices(const gather *v, const int64_t *ids, int64_t *begin, int64_t *slice)
{
    const int64_t pad = v->ref.attrs.gather.has_pad ? v->ref.attrs.gather.pad - v->first : -1;
    memset(begin, 0, (size_t)(v->len + 2) * sizeof *begin);
    for (int64_t i = 0; i < v->n; i++) {
        int64_t id = local_id(v, ids, i);
        if (id >= 0 && id != pad)
            begin[id + 2]++;
    }
    for (int64_t r = 0; r < v->len; r++)
        begin[r + 2] += begin[r + 1];
    for (int64_t i = 0; i < v->n; i++) {
        int64_t id = local_id(v, ids, i);
        if (id >= 0 && id != pad)
            slice[begin[id + 1]++] = offset_of(&v->y, v->axis, v->axis + v->nids, i);
    }
}

static tsr_status gather_dx_run(const tsri_kernel *k, void *const *in, void *const *out,
                                void *scratch)
{
    const gather *v = (const gather *)k;
    TSRI_TRY(check_ids(v, in[0]));
    if (!v->outer || !v->len || !v->inner)
        return TSR_OK;
    int64_t *begin = scratch, *slice = begin + v->len + 2;
    sort_slices(v, in[0], begin, slice);
    const size_t size = tsr_dtype_size(v->x.dtype);
    tsri_ref_row_fn *fn = v->x.dtype == TSR_F32 ? sum_f32 : sum_f64;
    const char *dy = in[1];
    char *dx = out[0];
    TSRI_REF_EACH(item, 0, v->outer * v->len, v->outer * (v->len + v->n) * v->inner >= PARALLEL, {
        int64_t o = item / v->len, r = item % v->len;
        int64_t x = offset_of(&v->x, 0, v->axis, o) + r * v->x.stride[v->axis];
        sum_job j = {dy, dx + x * (int64_t)size, slice + begin[r], begin[r + 1] - begin[r]};
        if (j.n)
            j.dy = dy + offset_of(&v->y, 0, v->axis, o) * (int64_t)size;
        tsri_ref_iter_run(&v->ref.iter, fn, &j, false);
    });
    return TSR_OK;
}

/* --- making them ------------------------------------------------------------------------------ */

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_ref_run_fn *run,
                         const tsri_arg *x, const tsri_arg *ids, const tsri_arg *y,
                         tsri_kernel **out_kernel)
{
    bool dx = d->op == TSRI_OP_GATHER_DX;
    if (ids->dtype != TSR_I64 || x->dtype != y->dtype || (dx && !tsri_ref_is_float(x->dtype)))
        return tsri_ref_decline(d);
    gather *v = tsri_ref_make(mem, d, run, sizeof *v);
    TSRI_NEED(v);
    const int axis = d->attrs->gather.axis, behind = x->ndim - axis - 1;
    v->x = *x;
    v->y = *y;
    v->axis = axis;
    v->nids = ids->ndim;
    v->n = tsri_ref_count(ids);
    v->outer = count_of(x, 0, axis);
    v->inner = count_of(x, axis + 1, x->ndim);
    v->first = x->offset[axis];
    v->len = x->shape[axis];
    v->size = x->gshape[axis];
    const int64_t *sx = x->stride + axis + 1, *sy = y->stride + y->ndim - behind;
    tsri_ref_iter_init(&v->ref.iter, behind, x->shape + axis + 1);
    tsri_ref_iter_push(&v->ref.iter, dx ? sx : sy);
    tsri_ref_iter_push(&v->ref.iter, dx ? sy : sx);
    tsri_ref_iter_finish(&v->ref.iter);
    if (dx)
        v->ref.base.scratch_bytes = (size_t)(v->len + 2 + v->n) * sizeof(int64_t);
    *out_kernel = &v->ref.base;
    return TSR_OK;
}

tsr_status tsri_ref_gather(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return create(mem, d, gather_run, &d->in[0], &d->in[1], &d->out[0], out_kernel);
}

tsr_status tsri_ref_gather_dx(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return create(mem, d, gather_dx_run, &d->out[0], &d->in[0], &d->in[1], out_kernel);
}

/* --- one_hot ---------------------------------------------------------------------------------- */

static tsr_status one_hot_run(const tsri_kernel *k, void *const *in, void *const *out,
                              void *scratch)
{
    (void)scratch;
    const tsri_kernel_desc *d = &((const tsri_ref *)k)->desc;
    const tsri_arg *ids = &d->in[0], *y = &d->out[0];
    const int last = y->ndim - 1;
    if (tsri_ref_count(y)) /* dense, and 0 is no bit in any dtype */
        memset(out[0], 0, (size_t)tsri_ref_count(y) * tsr_dtype_size(y->dtype));
    for (int64_t i = 0; i < tsri_ref_count(ids); i++) {
        int64_t id = ((const int64_t *)in[0])[offset_of(ids, 0, ids->ndim, i)];
        TSRI_TRY(tsri_check_id(d, ids, i, id, y->gshape[last]));
        id -= y->offset[last];
        if (id >= 0 && id < y->shape[last])
            tsri_ref_store(y->dtype, out[0], offset_of(y, 0, last, i) + id * y->stride[last], 1);
    }
    return TSR_OK;
}

tsr_status tsri_ref_one_hot(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (d->in[0].dtype != TSR_I64)
        return tsri_ref_decline(d);
    return tsri_ref_create(mem, d, one_hot_run, out_kernel);
}
