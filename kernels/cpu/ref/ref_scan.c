/* SPDX-License-Identifier: Apache-2.0 */
/* Running sums along an axis, products and extremes: floats in f64; sums of whole numbers and bools
 * are i64 and wrap around. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/ref/ref.h"

typedef struct scan {
    tsri_ref ref;                   /* iter: the shape without the axis */
    int64_t size, begin_y, begin_x; /* of the axis; where it begins: its end, if reversed */
    int64_t sy, sx;                 /* steps along it */
} scan;

/* Lines that lie side by side are summed several at once. */
#define SCAN(T, SUM, Y, name)                                                   \
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
            Y *y = (Y *)j->out[0] + v->begin_y + r->off[0] + b * ry;            \
            if (most == 1) {                                                    \
                for (int64_t c = 0; c < v->size; c++) {                         \
                    sum += (SUM)x[c * sx];                                      \
                    y[c * sy] = (Y)sum;                                         \
                }                                                               \
                continue;                                                       \
            }                                                                   \
            memset(sums, 0, sizeof sums);                                       \
            for (int64_t c = 0; c < v->size; c++)                               \
                _Pragma("omp simd") for (int64_t i = 0; i < n; i++)             \
                {                                                               \
                    sums[i] += (SUM)x[c * sx + i];                              \
                    y[c * sy + i] = (Y)sums[i];                                 \
                }                                                               \
        }                                                                       \
    }
SCAN(float, double, float, scan_f32)
SCAN(double, double, double, scan_f64)
SCAN(int64_t, uint64_t, int64_t, scan_i64)
SCAN(int32_t, uint64_t, int64_t, scan_i32)
SCAN(uint8_t, uint64_t, int64_t, scan_u8)

static tsri_ref_row_fn *const rows_by[TSR_DTYPE_COUNT_] = {
    [TSR_F32] = scan_f32, [TSR_F64] = scan_f64, [TSR_I64] = scan_i64,
    [TSR_I32] = scan_i32, [TSR_U8] = scan_u8,   [TSR_BOOL] = scan_u8};

tsr_status tsri_ref_cumsum(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    const int axis = d->attrs->cumsum.axis;
    if (y->dtype != (tsri_ref_is_float(x->dtype) ? x->dtype : TSR_I64) || !rows_by[x->dtype])
        return tsri_ref_decline(d);
    scan *v = tsri_ref_make_rows(mem, d, rows_by[x->dtype], sizeof *v);
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

/* --- a line at a time ------------------------------------------------------------------------- */

/* Products, or logarithms of sums of exponentials. */
static void forward(const scan *v, tsr_dtype dtype, const void *x, void *y)
{
    double sum = v->ref.attrs.scan.fn == TSRI_SCAN_PRODUCT, most = -INFINITY;
    for (int64_t i = 0; i < v->size; i++) {
        const double now = tsri_ref_load(dtype, x, i * v->sx);
        if (v->ref.attrs.scan.fn == TSRI_SCAN_PRODUCT) {
            sum *= now;
        } else {
            const double top = now > most ? now : most, about = isinf(top) ? 0 : top;
            sum = sum * exp(most - about) + exp(now - about);
            most = top;
        }
        const double value = v->ref.attrs.scan.fn == TSRI_SCAN_PRODUCT ? sum
                             : most == -INFINITY && !isnan(sum)        ? most
                                                                       : most + log(sum);
        tsri_ref_store(dtype, y, i * v->sy, value);
    }
}

/* From the end, with s[i] = dy[i] + what comes from behind: of a product s[i+1] x[i+1], by which
 * dx[i] = y[i-1] s[i]; of a logarithm s[i+1] e^(y[i] - y[i+1]), by which dx[i] = e^(x[i] - y[i])
 * s[i]. Nothing is divided by what may be 0. An infinite y[i+1] is a constant of what came before
 * it: its s goes to the infinite x[i+1] alone, whose slope is NaN, as PyTorch's is. */
static void backward(const scan *v, tsr_dtype dtype, void *const *p, const int64_t *off,
                     const int64_t *step)
{
    double s = 0, behind = 0; /* behind: x or y of i + 1 */
    for (int64_t i = v->size - 1; i >= 0; i--) {
#define AT(o, i) tsri_ref_load(dtype, p[o], off[o] + (i)*step[o])
        const double x = AT(1, i), y = AT(2, i), dy = AT(3, i);
        double dx;
        if (v->ref.attrs.scan.fn == TSRI_SCAN_PRODUCT) {
            s = dy + s * behind;
            dx = (i ? AT(2, i - 1) : 1) * s;
            behind = x;
        } else {
            const bool apart = i == v->size - 1 || y == -INFINITY || isinf(behind);
            s = dy + (apart ? 0 : s * exp(y - behind));
            dx = x == -INFINITY ? 0 : exp(x - y) * s;
            behind = y;
        }
#undef AT
        tsri_ref_store(dtype, p[0], off[0] + i * step[0], dx);
    }
}

static void extremes(const scan *v, tsr_dtype dtype, const void *x, int64_t *y)
{
    int64_t best = 0;
    double top = 0;
    for (int64_t i = 0; i < v->size; i++) {
        const double now = tsri_ref_load(dtype, x, i * v->sx);
        const bool beats = v->ref.attrs.scan.fn == TSRI_SCAN_MAX ? now >= top : now <= top;
        if (i == 0 || isnan(now) || (beats && !isnan(top))) {
            best = i;
            top = now;
        }
        y[i * v->sy] = best;
    }
}

/* Whole numbers of 64 bits are more than a double tells apart. */
static void extremes_i64(const scan *v, const int64_t *x, int64_t *y)
{
    int64_t best = 0;
    for (int64_t i = 0; i < v->size; i++) {
        const int64_t now = x[i * v->sx], top = x[best * v->sx];
        if (v->ref.attrs.scan.fn == TSRI_SCAN_MAX ? now >= top : now <= top)
            best = i;
        y[i * v->sy] = best;
    }
}

static void lines_row(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const scan *v = (const scan *)j->ref;
    const tsri_kernel_desc *d = &v->ref.desc;
    const tsr_dtype dtype = d->in[0].dtype;
    const int64_t size = (int64_t)tsr_dtype_size(dtype);
    for (int64_t b = 0; b < r->n; b++) {
        int64_t off[4] = {0}, step[4] = {v->sy, v->sx};
        for (int o = 0; o < 1 + d->nin; o++)
            off[o] = r->off[o] + b * r->step[o];
        const char *x = (const char *)j->in[0] + off[1] * size;
        if (d->op == TSRI_OP_SCAN) {
            forward(v, dtype, x, (char *)j->out[0] + off[0] * size);
        } else if (d->op == TSRI_OP_SCAN_DX) {
            void *const p[4] = {j->out[0], j->in[0], j->in[1], j->in[2]};
            for (int o = 2; o < 4; o++)
                step[o] = d->in[o - 1].stride[v->ref.attrs.scan.axis];
            backward(v, dtype, p, off, step);
        } else if (dtype == TSR_I64) {
            extremes_i64(v, (const int64_t *)x, (int64_t *)j->out[0] + off[0]);
        } else {
            extremes(v, dtype, x, (int64_t *)j->out[0] + off[0]);
        }
    }
}

static tsr_status create_lines(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *y = &d->out[0];
    const int axis = d->attrs->scan.axis;
    scan *v = tsri_ref_make_rows(mem, d, lines_row, sizeof *v);
    TSRI_NEED(v);
    int64_t shape[TSR_MAX_NDIM];
    const int64_t *strides[4] = {y->stride};
    for (int i = 0; i < y->ndim; i++)
        shape[i] = i == axis && y->shape[i] ? 1 : y->shape[i];
    for (int i = 0; i < d->nin; i++)
        strides[1 + i] = d->in[i].stride;
    v->size = y->shape[axis];
    v->sy = y->stride[axis];
    v->sx = d->in[0].stride[axis];
    tsri_ref_walk(&v->ref.iter, y->ndim, shape, 1 + d->nin, strides);
    *out_kernel = &v->ref.base;
    return TSR_OK;
}

tsr_status tsri_ref_scan(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return tsri_ref_is_float(d->out[0].dtype) && tsri_ref_alike(d, 0, d->nin)
               ? create_lines(mem, d, out_kernel)
               : tsri_ref_decline(d);
}
TSRI_REF_SAME(scan_dx, scan);

tsr_status tsri_ref_argscan(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsr_dtype dtype = d->in[0].dtype;
    return d->out[0].dtype == TSR_I64 && dtype != TSR_F16 && dtype != TSR_BF16
               ? create_lines(mem, d, out_kernel)
               : tsri_ref_decline(d);
}
