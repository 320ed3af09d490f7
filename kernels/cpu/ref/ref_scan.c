/* SPDX-License-Identifier: Apache-2.0 */
/* Sums along an axis, one after the other: floats in f64, whole numbers wrap around. */
#include "kernels/cpu/ref/ref.h"

#include <string.h>

typedef struct scan {
    tsri_ref ref;                   /* iter: the shape without the axis */
    int64_t size, begin_y, begin_x; /* of the axis; where it begins: its end, if reversed */
    int64_t sy, sx;                 /* steps along it */
} scan;

/* Lines that lie side by side are summed several at once. */
#define SCAN(T, SUM, name)                                                      \
    static void name(void *arg, const tsri_ref_row *r)                          \
    {                                                                           \
        const tsri_ref_job *j = arg;                                            \
        const scan *v = (const scan *)j->ref;                                   \
        const int64_t sx = v->sx, sy = v->sy, rx = r->step[1], ry = r->step[0]; \
        const int64_t most = rx == 1 && ry == 1 ? TSRI_REF_BLOCK : 1;           \
        for (int64_t b = 0; b < r->n; b += most) {                              \
            SUM sums[TSRI_REF_BLOCK], sum = 0;                                  \
            const int64_t n = r->n - b < most ? r->n - b : most;                \
            const T *x = (const T *)j->in[0] + v->begin_x + r->off[1] + b * rx; \
            T *y = (T *)j->out[0] + v->begin_y + r->off[0] + b * ry;            \
            if (most == 1) {                                                    \
                for (int64_t c = 0; c < v->size; c++) {                         \
                    sum += (SUM)x[c * sx];                                      \
                    y[c * sy] = (T)sum;                                         \
                }                                                               \
                continue;                                                       \
            }                                                                   \
            memset(sums, 0, sizeof sums);                                       \
            for (int64_t c = 0; c < v->size; c++)                               \
                _Pragma("omp simd") for (int64_t i = 0; i < n; i++)             \
                {                                                               \
                    sums[i] += (SUM)x[c * sx + i];                              \
                    y[c * sy + i] = (T)sums[i];                                 \
                }                                                               \
        }                                                                       \
    }
SCAN(float, double, scan_f32)
SCAN(double, double, scan_f64)
SCAN(int64_t, uint64_t, scan_i64)
SCAN(int32_t, uint32_t, scan_i32)

static tsri_ref_row_fn *const rows_by[TSR_DTYPE_COUNT_] = {
    [TSR_F32] = scan_f32, [TSR_F64] = scan_f64, [TSR_I64] = scan_i64, [TSR_I32] = scan_i32};

tsr_status tsri_ref_cumsum(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    const int axis = d->attrs->cumsum.axis;
    if (x->dtype != y->dtype || !rows_by[y->dtype])
        return tsri_ref_decline(d);
    scan *v = tsri_ref_make_rows(mem, d, rows_by[y->dtype], sizeof *v);
    TSRI_NEED(v);
    int64_t shape[TSR_MAX_NDIM];
    for (int i = 0; i < y->ndim; i++)
        shape[i] = i == axis && y->shape[i] ? 1 : y->shape[i];
    v->size = y->shape[axis];
    v->sy = y->stride[axis];
    v->sx = x->stride[axis];
    if (d->attrs->cumsum.reverse && v->size) {
        v->begin_y = (v->size - 1) * v->sy;
        v->begin_x = (v->size - 1) * v->sx;
        v->sy = -v->sy;
        v->sx = -v->sx;
    }
    tsri_ref_walk(&v->ref.iter, y->ndim, shape, 2, (const int64_t *[]){y->stride, x->stride});
    *out_kernel = &v->ref.base;
    return TSR_OK;
}
