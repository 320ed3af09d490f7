/* SPDX-License-Identifier: Apache-2.0 */
/* Selection: elements are moved by their size. */
#include "kernels/cpu/ref/ref.h"

#include <string.h>

#define WHERE(T)                                                                                 \
    do {                                                                                         \
        const T *x = (const T *)j->in[1] + r->off[2], *u = (const T *)j->in[2] + r->off[3];      \
        T *y = (T *)j->out[0] + r->off[0];                                                       \
        if (sc == 1 && sx == 1 && su == 1 && sy == 1) {                                          \
            _Pragma("omp simd") for (int64_t i = 0; i < r->n; i++) y[i] = cond[i] ? x[i] : u[i]; \
        } else {                                                                                 \
            for (int64_t i = 0; i < r->n; i++)                                                   \
                y[i * sy] = cond[i * sc] ? x[i * sx] : u[i * su];                                \
        }                                                                                        \
    } while (0)

#define MASK(T)                                                           \
    do {                                                                  \
        const T *x = (const T *)j->in[1] + r->off[2];                     \
        T *y = (T *)j->out[0] + r->off[0];                                \
        if (sc == 1 && sx == 1 && sy == 1) {                              \
            _Pragma("omp simd") for (int64_t i = 0; i < r->n; i++) y[i] = \
                (cond[i] != 0) == keep ? x[i] : 0;                        \
        } else {                                                          \
            for (int64_t i = 0; i < r->n; i++)                            \
                y[i * sy] = (cond[i * sc] != 0) == keep ? x[i * sx] : 0;  \
        }                                                                 \
    } while (0)

#define BY_SIZE(MOVE)                                    \
    switch (tsr_dtype_size(j->ref->desc.out[0].dtype)) { \
    case 1:                                              \
        MOVE(uint8_t);                                   \
        break;                                           \
    case 2:                                              \
        MOVE(uint16_t);                                  \
        break;                                           \
    case 4:                                              \
        MOVE(uint32_t);                                  \
        break;                                           \
    default:                                             \
        MOVE(uint64_t);                                  \
    }

static void where_row(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const uint8_t *cond = (const uint8_t *)j->in[0] + r->off[1];
    const int64_t sc = r->step[1], sx = r->step[2], su = r->step[3], sy = r->step[0];
    BY_SIZE(WHERE)
}

static void mask_row(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const bool keep = j->ref->attrs.mask.keep != 0;
    const uint8_t *cond = (const uint8_t *)j->in[0] + r->off[1];
    const int64_t sc = r->step[1], sx = r->step[2], sy = r->step[0];
    BY_SIZE(MASK)
}

tsr_status tsri_ref_where(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (d->in[0].dtype != TSR_BOOL || !tsri_ref_alike(d, 1, d->nin))
        return tsri_ref_decline(d);
    return tsri_ref_create_map(mem, d, d->op == TSRI_OP_MASK ? mask_row : where_row, out_kernel);
}
TSRI_REF_SAME(mask, where);

/* --- triangles -------------------------------------------------------------------------------- */

/* Column - row is an operand of the walk like any other: the last. */
#define TRIANGLE(T)                                                 \
    do {                                                            \
        const T *x = (const T *)j->in[0] + r->off[1];               \
        T *to = (T *)j->out[0] + r->off[0];                         \
        for (int64_t i = 0; i < r->n; i++) {                        \
            const int64_t d = first + i * step;                     \
            to[i * sy] = (upper ? d >= 0 : d <= 0) ? x[i * sx] : 0; \
        }                                                           \
    } while (0)

static void triangle_row(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const bool upper = j->ref->attrs.triangle.upper != 0;
    const tsri_arg *y = &j->ref->desc.out[0];
    const int64_t begin = y->offset[y->ndim - 1] - y->offset[y->ndim - 2];
    const int64_t first = begin + r->off[2] - j->ref->attrs.triangle.diagonal;
    const int64_t sx = r->step[1], sy = r->step[0], step = r->step[2];
    if (sx == 1 && sy == 1 && step == 1) { /* a row is kept up to an edge, or from it on */
        const size_t size = tsr_dtype_size(y->dtype);
        const int64_t edge = first >= 0 ? 0 : first > -r->n ? -first : r->n;
        const int64_t begin_kept = upper ? edge : 0;
        const int64_t end_kept = upper ? r->n : first > 0 ? 0 : edge + (edge < r->n);
        char *to = (char *)j->out[0] + (size_t)r->off[0] * size;
        const char *x = (const char *)j->in[0] + (size_t)r->off[1] * size;
        memset(to, 0, (size_t)begin_kept * size);
        memmove(to + (size_t)begin_kept * size, x + (size_t)begin_kept * size,
                (size_t)(end_kept - begin_kept) * size);
        memset(to + (size_t)end_kept * size, 0, (size_t)(r->n - end_kept) * size);
        return;
    }
    BY_SIZE(TRIANGLE)
}

tsr_status tsri_ref_triangle(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (!tsri_ref_alike(d, 0, 1))
        return tsri_ref_decline(d);
    const tsri_arg *y = &d->out[0];
    int64_t place[TSR_MAX_NDIM] = {0};
    place[y->ndim - 1] = 1;
    place[y->ndim - 2] = -1;
    return tsri_ref_create_rows(mem, d, triangle_row, 3,
                                (const int64_t *[]){y->stride, d->in[0].stride, place}, out_kernel);
}
