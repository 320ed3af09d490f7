/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise ops, and conversions between dtypes. */
#include "kernels/cpu/ref/ref.h"

#include "src/core/convert.h"

#include <math.h>

/* y[i] = expr of v = x[i] and u = x2[i], in f64: flat where it can be. An out that is exactly an in
 * is allowed, so nothing is carried from one i to the next. */
#define MAP(expr)                                                           \
    do {                                                                    \
        if (sx == 1 && su == 1 && sy == 1) {                                \
            _Pragma("omp simd") for (int64_t i = 0; i < r->n; i++)          \
            {                                                               \
                const double v = (double)x[i], u = (double)x2[i];           \
                (void)v, (void)u;                                           \
                y[i] = (T)(expr);                                           \
            }                                                               \
        } else {                                                            \
            for (int64_t i = 0; i < r->n; i++) {                            \
                const double v = (double)x[i * sx], u = (double)x2[i * su]; \
                (void)v, (void)u;                                           \
                y[i * sy] = (T)(expr);                                      \
            }                                                               \
        }                                                                   \
    } while (0)

static double normal_cdf(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752440);
}

#define REAL double
#define REAL_FN static
#define num(c) ((double)(c))
#define pick(c, a, b) ((c) ? (a) : (b))
#define pick_mostly pick
#include "kernels/unary_t.h"

#define T float
#define FN(name) name##_f32
#include "kernels/cpu/ref/ref_elementwise_t.h"
#undef T
#undef FN
#define T double
#define FN(name) name##_f64
#include "kernels/cpu/ref/ref_elementwise_t.h"
#undef T
#undef FN

static tsr_status create_float(tsri_mem *mem, const tsri_kernel_desc *d, tsri_ref_row_fn *f32,
                               tsri_ref_row_fn *f64, tsri_kernel **out_kernel)
{
    if (!tsri_ref_is_float(d->out[0].dtype) || !tsri_ref_alike(d, 0, d->nin))
        return tsri_ref_decline(d);
    return tsri_ref_create_map(mem, d, d->out[0].dtype == TSR_F32 ? f32 : f64, out_kernel);
}

tsr_status tsri_ref_unary(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (d->op != TSRI_OP_SCALE && (unsigned)d->attrs->unary.fn >= TSRI_UNARY_COUNT_)
        return tsri_ref_decline(d);
    return create_float(mem, d, map_f32, map_f64, out_kernel);
}
TSRI_REF_SAME(unary_grad, unary);
TSRI_REF_SAME(scale, unary);

tsr_status tsri_ref_add_n(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return create_float(mem, d, add_n_f32, add_n_f64, out_kernel);
}

/* Conversions go through i64 from whole numbers and through f64 from the others: both hold every
 * value of their kind. */
static bool is_whole(tsr_dtype d)
{
    return d == TSR_I64 || d == TSR_I32 || d == TSR_U8 || d == TSR_BOOL;
}

static int64_t load_whole(tsr_dtype dtype, const void *p, int64_t i)
{
    switch (dtype) {
    case TSR_I64:
        return ((const int64_t *)p)[i];
    case TSR_I32:
        return ((const int32_t *)p)[i];
    default:
        return ((const uint8_t *)p)[i];
    }
}

double tsri_ref_load(tsr_dtype dtype, const void *p, int64_t i)
{
    switch (dtype) {
    case TSR_F32:
        return ((const float *)p)[i];
    case TSR_F64:
        return ((const double *)p)[i];
    case TSR_F16:
    case TSR_BF16: {
        double v = 0;
        tsri_convert(&v, TSR_F64, (const uint16_t *)p + i, dtype, 1);
        return v;
    }
    default:
        return (double)load_whole(dtype, p, i);
    }
}

void tsri_ref_store_whole(tsr_dtype dtype, void *p, int64_t i, int64_t v)
{
    switch (dtype) {
    case TSR_I64:
        ((int64_t *)p)[i] = v;
        break;
    case TSR_I32:
        ((int32_t *)p)[i] = (int32_t)v;
        break;
    case TSR_U8:
        ((uint8_t *)p)[i] = (uint8_t)v;
        break;
    case TSR_BOOL:
        ((uint8_t *)p)[i] = v != 0;
        break;
    case TSR_F32: /* not through f64: one rounding */
        ((float *)p)[i] = (float)v;
        break;
    default: /* rounded twice beyond 2^53 only */
        tsri_ref_store(dtype, p, i, (double)v);
    }
}

void tsri_ref_store(tsr_dtype dtype, void *p, int64_t i, double v)
{
    switch (dtype) {
    case TSR_F32:
        ((float *)p)[i] = (float)v;
        break;
    case TSR_F64:
        ((double *)p)[i] = v;
        break;
    case TSR_F16:
    case TSR_BF16:
        tsri_convert((uint16_t *)p + i, dtype, &v, TSR_F64, 1);
        break;
    default:
        tsri_ref_store_whole(dtype, p, i, tsri_whole_of(dtype, v));
    }
}

static void cast_row(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    tsr_dtype from = j->ref->desc.in[0].dtype, to = j->ref->desc.out[0].dtype;
    for (int64_t i = 0; i < r->n; i++) {
        int64_t x = r->off[1] + i * r->step[1], y = r->off[0] + i * r->step[0];
        if (is_whole(from))
            tsri_ref_store_whole(to, j->out[0], y, load_whole(from, j->in[0], x));
        else
            tsri_ref_store(to, j->out[0], y, tsri_ref_load(from, j->in[0], x));
    }
}

tsr_status tsri_ref_cast(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return tsri_ref_create_map(mem, d, cast_row, out_kernel);
}
