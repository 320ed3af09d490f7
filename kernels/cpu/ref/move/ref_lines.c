/* SPDX-License-Identifier: Apache-2.0 */
/* gather: elements of lines along an axis, by ids of their own; and the sums into their places. */
#include <string.h>

#include "kernels/cpu/ref/ref.h"
#include "src/core/identity.h"

typedef struct lines {
    tsri_ref ref;             /* iter, forward: y, x without the axis, ids */
    int64_t first, len, size; /* of x's axis, here and globally */
    int64_t stride;           /* of x along it */
} lines;

/* Looks at all ids, and only where one is bad for which it is. */
static tsr_status check_ids(const lines *v, const tsri_arg *ids, const void *p)
{
    const int64_t *id = p, n = tsri_arg_count(ids), row = ids->ndim ? ids->shape[ids->ndim - 1] : 1;
    const int64_t step = ids->ndim ? ids->stride[ids->ndim - 1] : 1;
    for (int64_t begin = 0; begin < n; begin += row) {
        const int64_t at = tsri_ref_offset(ids, 0, ids->ndim, begin);
        uint64_t most = 0; /* a negative id is a very large one */
        for (int64_t i = 0; i < row; i++)
            most = (uint64_t)id[at + i * step] > most ? (uint64_t)id[at + i * step] : most;
        for (int64_t i = 0; i < row && most >= (uint64_t)v->size; i++)
            TSRI_TRY(tsri_check_id(&v->ref.desc, ids, begin + i, id[at + i * step], v->size));
    }
    return TSR_OK;
}

/* A run, and whether it has met an id of no line here. */
typedef struct gather_job {
    tsri_ref_job job;
    _Atomic bool missed;
} gather_job;

#define GATHER(T)                                                          \
    do {                                                                   \
        const T *x = (const T *)j->in[0] + r->off[1];                      \
        T *y = (T *)j->out[0] + r->off[0];                                 \
        T none; /* an addend that the rank with the line adds to */        \
        tsri_fill_identity(dtype, TSR_REDUCE_SUM, 1, &none);               \
        for (int64_t i = 0; i < r->n; i++) {                               \
            const uint64_t id = (uint64_t)(ids[i * si] - first);           \
            const bool here = id < len;                                    \
            const T value = x[i * sx + (here ? (int64_t)id : 0) * stride]; \
            y[i * sy] = here ? value : none;                               \
            missed |= !here;                                               \
        }                                                                  \
    } while (0)

static void gather_row(void *arg, const tsri_ref_row *r)
{
    gather_job *g = arg;
    const tsri_ref_job *j = &g->job;
    const lines *v = (const lines *)j->ref;
    const int64_t *ids = (const int64_t *)j->in[1] + r->off[2];
    const int64_t first = v->first, stride = v->stride;
    const int64_t sy = r->step[0], sx = r->step[1], si = r->step[2];
    const uint64_t len = (uint64_t)v->len;
    bool missed = false;
    const tsr_dtype dtype = v->ref.desc.out[0].dtype;
    switch (tsr_dtype_size(dtype)) {
    case 1:
        GATHER(uint8_t);
        break;
    case 2:
        GATHER(uint16_t);
        break;
    case 4:
        GATHER(uint32_t);
        break;
    default:
        GATHER(uint64_t);
    }
    if (missed)
        g->missed = true;
}

/* A shard of x without elements has none to read: addends of nothing, of ids that are good. */
static tsr_status gather_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const lines *v = (const lines *)k;
    const tsri_arg *y = &v->ref.desc.out[0];
    gather_job g = {{&v->ref, in, out, scratch}, v->len == 0};
    if (v->len)
        tsri_ref_iter_run(&v->ref.iter, gather_row, &g, true);
    else
        tsri_fill_identity(y->dtype, TSR_REDUCE_SUM, tsri_arg_count(y), out[0]);
    return g.missed ? check_ids(v, &v->ref.desc.in[1], in[1]) : TSR_OK;
}

/* Adds the elements of one line of dy, in their order, to sums in f64. */
#define ADD_LINE(T, name)                                                                        \
    static void name(const lines *v, const int64_t *ids, int64_t si, const void *dy, int64_t sy, \
                     int64_t n, double *sums, void *dx)                                          \
    {                                                                                            \
        memset(sums, 0, (size_t)v->len * sizeof *sums);                                          \
        for (int64_t i = 0; i < n; i++) {                                                        \
            const int64_t id = ids[i * si] - v->first;                                           \
            if (id >= 0 && id < v->len)                                                          \
                sums[id] += (double)((const T *)dy)[i * sy];                                     \
        }                                                                                        \
        for (int64_t i = 0; i < v->len; i++)                                                     \
            ((T *)dx)[i * v->stride] = (T)sums[i];                                               \
    }
ADD_LINE(float, add_line_f32)
ADD_LINE(double, add_line_f64)

static tsr_status gather_dx_run(const tsri_kernel *k, void *const *in, void *const *out,
                                void *scratch)
{
    const lines *v = (const lines *)k;
    const tsri_arg *ids = &v->ref.desc.in[0], *dy = &v->ref.desc.in[1], *dx = &v->ref.desc.out[0];
    const int axis = v->ref.attrs.gather.axis;
    TSRI_TRY(check_ids(v, ids, in[0]));
    if (!tsri_arg_count(dx))
        return TSR_OK;
    const int64_t size = (int64_t)tsr_dtype_size(dx->dtype), n = ids->shape[axis];
    const int64_t outer = tsri_arg_count_of(dx, 0, axis);
    const int64_t inner = tsri_arg_count_of(dx, axis + 1, dx->ndim);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
#define AT(a) (tsri_ref_offset(a, 0, axis, o) + tsri_ref_offset(a, axis + 1, (a)->ndim, i))
            char *to = (char *)out[0] + AT(dx) * size;
            const int64_t *id = n ? (const int64_t *)in[0] + AT(ids) : NULL;
            const char *from = n ? (const char *)in[1] + AT(dy) * size : NULL;
#undef AT
            (dx->dtype == TSR_F32 ? add_line_f32 : add_line_f64)(v, id, ids->stride[axis], from,
                                                                 dy->stride[axis], n, scratch, to);
        }
    return TSR_OK;
}

tsr_status tsri_ref_gather(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const bool dx = d->op == TSRI_OP_GATHER_DX;
    const tsri_arg *x = dx ? &d->out[0] : &d->in[0], *ids = &d->in[!dx];
    const tsri_arg *y = dx ? &d->in[1] : &d->out[0];
    const int axis = d->attrs->gather.axis;
    if (ids->dtype != TSR_I64 || x->dtype != y->dtype || (dx && !tsri_ref_is_float(x->dtype)))
        return tsri_ref_decline(d);
    lines *v = tsri_ref_make(mem, d, dx ? gather_dx_run : gather_run, sizeof *v);
    TSRI_NEED(v);
    v->first = x->offset[axis];
    v->len = x->shape[axis];
    v->size = x->gshape[axis];
    v->stride = x->stride[axis];
    int64_t rest[TSR_MAX_NDIM];
    memcpy(rest, x->stride, sizeof rest);
    rest[axis] = 0;
    if (dx)
        v->ref.base.scratch_bytes = (size_t)v->len * sizeof(double);
    else
        tsri_ref_walk(&v->ref.iter, y->ndim, y->shape, 3,
                      (const int64_t *[]){y->stride, rest, ids->stride});
    *out_kernel = &v->ref.base;
    return TSR_OK;
}
TSRI_REF_SAME(gather_dx, gather);
