/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indexing. x has axes before the indexed one ("outer") and behind it ("inner"); y the same with
 * ids' axes between. A shard of x that begins at `first` answers for ids first <= id < first + len.
 */
#include "kernels/cpu/ref/ref.h"
#include "src/core/identity.h"

#include <string.h>

enum { PARALLEL = 1 << 15 }; /* elements below which a team costs more than it brings */

typedef struct gather {
    tsri_ref ref;  /* iter: the inner axes, of y then x; dx then dy */
    tsri_arg x, y; /* x or dx, y or dy */
    const tsri_arg *ids;
    int axis, nids;           /* number of ids' axes */
    int64_t outer, inner, n;  /* elements of the outer and inner axes; ids */
    int64_t first, len, size; /* of the indexed axis, here and globally */
} gather;

/* Id i. */
static int64_t id_of(const tsri_arg *ids, const void *p, int64_t i)
{
    return ((const int64_t *)p)[tsri_ref_offset(ids, 0, ids->ndim, i)];
}

/* Id i's place on the axis here; negative where it is none of this shard's. */
static int64_t local_id(const gather *v, const void *ids, int64_t i)
{
    int64_t id = id_of(v->ids, ids, i) - v->first;
    return id < v->len ? id : -1;
}

static tsr_status check_ids(const gather *v, const void *ids)
{
    for (int64_t i = 0; i < v->n; i++)
        TSRI_TRY(tsri_check_id(&v->ref.desc, v->ids, i, id_of(v->ids, ids, i), v->size));
    return TSR_OK;
}

/* --- forward ---------------------------------------------------------------------------------- */

/* Writes one element everywhere. */
static void clear_row(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_moved *m = arg;
    for (int64_t i = 0; i < r->n; i++)
        memcpy(m->to + (r->off[0] + i * r->step[0]) * (int64_t)m->size, m->from, m->size);
}

static void gather_one(const gather *v, void *const *in, char *out, int64_t item)
{
    const int64_t size = (int64_t)tsr_dtype_size(v->y.dtype);
    int64_t o = item / v->n, i = item % v->n, id = local_id(v, in[1], i);
    int64_t y = tsri_ref_offset(&v->y, 0, v->axis, o) +
                tsri_ref_offset(&v->y, v->axis, v->axis + v->nids, i);
    int64_t x = tsri_ref_offset(&v->x, 0, v->axis, o) + id * v->x.stride[v->axis];
    uint64_t none; /* an addend that the rank with the row adds to */
    tsri_fill_identity(v->y.dtype, TSR_REDUCE_SUM, 1, &none);
    tsri_ref_moved m = {(size_t)size, out + y * size, (const char *)&none};
    if (id >= 0)
        m.from = (const char *)in[0] + x * size;
    tsri_ref_iter_run(&v->ref.iter, id >= 0 ? tsri_ref_move_row : clear_row, &m, false);
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
static void sort_slices(const gather *v, const void *ids, int64_t *begin, int64_t *slice)
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
            slice[begin[id + 1]++] = tsri_ref_offset(&v->y, v->axis, v->axis + v->nids, i);
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
        int64_t x = tsri_ref_offset(&v->x, 0, v->axis, o) + r * v->x.stride[v->axis];
        sum_job j = {dy, dx + x * (int64_t)size, slice + begin[r], begin[r + 1] - begin[r]};
        if (j.n)
            j.dy = dy + tsri_ref_offset(&v->y, 0, v->axis, o) * (int64_t)size;
        tsri_ref_iter_run(&v->ref.iter, fn, &j, false);
    });
    return TSR_OK;
}

/* --- making them ------------------------------------------------------------------------------ */

tsr_status tsri_ref_index_select(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const bool dx = d->op == TSRI_OP_INDEX_SELECT_DX;
    const tsri_arg *x = dx ? &d->out[0] : &d->in[0], *y = dx ? &d->in[1] : &d->out[0];
    if (d->in[!dx].dtype != TSR_I64 || x->dtype != y->dtype || (dx && !tsri_ref_is_float(x->dtype)))
        return tsri_ref_decline(d);
    gather *v = tsri_ref_make(mem, d, dx ? gather_dx_run : gather_run, sizeof *v);
    TSRI_NEED(v);
    v->x = *x;
    v->y = *y;
    v->ids = &v->ref.desc.in[!dx];
    const int axis = d->attrs->gather.axis, behind = x->ndim - axis - 1;
    v->axis = axis;
    v->nids = v->ids->ndim;
    v->n = tsri_arg_count(v->ids);
    v->outer = tsri_arg_count_of(x, 0, axis);
    v->inner = tsri_arg_count_of(x, axis + 1, x->ndim);
    v->first = x->offset[axis];
    v->len = x->shape[axis];
    v->size = x->gshape[axis];
    const int64_t *sx = x->stride + axis + 1, *sy = y->stride + y->ndim - behind;
    tsri_ref_walk(&v->ref.iter, behind, x->shape + axis + 1, 2,
                  (const int64_t *[]){dx ? sx : sy, dx ? sy : sx});
    if (dx)
        v->ref.base.scratch_bytes = (size_t)(v->len + 2 + v->n) * sizeof(int64_t);
    *out_kernel = &v->ref.base;
    return TSR_OK;
}
TSRI_REF_SAME(index_select_dx, index_select);

/* --- one_hot ---------------------------------------------------------------------------------- */

static tsr_status one_hot_run(const tsri_kernel *k, void *const *in, void *const *out,
                              void *scratch)
{
    (void)scratch;
    const tsri_kernel_desc *d = &((const tsri_ref *)k)->desc;
    const tsri_arg *ids = &d->in[0], *y = &d->out[0];
    const int last = y->ndim - 1;
    if (tsri_arg_count(y)) /* dense, and 0 is no bit in any dtype */
        memset(out[0], 0, (size_t)tsri_arg_count(y) * tsr_dtype_size(y->dtype));
    for (int64_t i = 0; i < tsri_arg_count(ids); i++) {
        int64_t id = id_of(ids, in[0], i);
        TSRI_TRY(tsri_check_id(d, ids, i, id, y->gshape[last]));
        id -= y->offset[last];
        if (id >= 0 && id < y->shape[last])
            tsri_ref_store(y->dtype, out[0], tsri_ref_offset(y, 0, last, i) + id * y->stride[last],
                           1);
    }
    return TSR_OK;
}

tsr_status tsri_ref_one_hot(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (d->in[0].dtype != TSR_I64)
        return tsri_ref_decline(d);
    return tsri_ref_create(mem, d, one_hot_run, out_kernel);
}
