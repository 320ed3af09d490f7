/* SPDX-License-Identifier: Apache-2.0 */
/* Binary ops, broadcasting from the right: floats and whole numbers, both operands of one dtype. */
#include "kernels/cpu/ref/ref.h"

#include <math.h>
#include <string.h>

#define REAL double
#define REAL_FN static
#define WHOLE_FN static
#include "kernels/binary_t.h"
#undef REAL
#undef REAL_FN
#undef WHOLE_FN

#define wrap(v) ((uint64_t)(v))
#define pick(c, x, y) ((c) ? (x) : (y))

/* In A: double, or int64_t for whole numbers. */
#define LOOP(T, A, expr)                                           \
    do {                                                           \
        if (sx == 1 && su == 1 && sy == 1) {                       \
            _Pragma("omp simd") for (int64_t i = 0; i < r->n; i++) \
            {                                                      \
                const A a = (A)x[i], b = (A)u[i];                  \
                (void)a, (void)b; /* what no dtype has is 0 */     \
                y[i] = (T)(expr);                                  \
            }                                                      \
        } else {                                                   \
            for (int64_t i = 0; i < r->n; i++) {                   \
                const A a = (A)x[i * sx], b = (A)u[i * su];        \
                (void)a, (void)b;                                  \
                y[i * sy] = (T)(expr);                             \
            }                                                      \
        }                                                          \
    } while (0)

/* How two numbers compare: less 1, equal 2, greater 4; 0: one is NaN. */
#define ORDER(a, b) ((uint8_t)(((a) < (b)) | ((a) == (b)) << 1 | ((a) > (b)) << 2))

#define REAL(T, FN, name, takes, rule, cost, by, real, whole, doc) \
    case TSRI_BINARY_##FN:                                         \
        LOOP(T, double, real);                                     \
        break;
#define WHOLE(T, FN, name, takes, rule, cost, by, real, whole, doc) \
    case TSRI_BINARY_##FN:                                          \
        LOOP(T, int64_t, whole);                                    \
        break;

#define BINARY(T, name, KIND)                                                                   \
    static void binary_##name(void *arg, const tsri_ref_row *r)                                 \
    {                                                                                           \
        const tsri_ref_job *j = arg;                                                            \
        const T *x = (const T *)j->in[0] + r->off[1], *u = (const T *)j->in[1] + r->off[2];     \
        T *y = (T *)j->out[0] + r->off[0];                                                      \
        const int64_t sx = r->step[1], su = r->step[2], sy = r->step[0];                        \
        switch ((tsri_binary_fn)j->ref->attrs.binary.fn) {                                      \
            TSRI_ARITHMETIC_LIST(KIND, T)                                                       \
        default:                                                                                \
            break;                                                                              \
        }                                                                                       \
    }                                                                                           \
    static void order_##name(const void *px, int64_t sx, const void *pu, int64_t su, int64_t n, \
                             uint8_t *order)                                                    \
    {                                                                                           \
        const T *x = px, *u = pu;                                                               \
        if (sx == 1 && su == 1) {                                                               \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) order[i] = ORDER(x[i], u[i]);   \
            return;                                                                             \
        }                                                                                       \
        for (int64_t i = 0; i < n; i++)                                                         \
            order[i] = ORDER(x[i * sx], u[i * su]);                                             \
    }
BINARY(float, f32, REAL)
BINARY(double, f64, REAL)
BINARY(int64_t, i64, WHOLE)
BINARY(int32_t, i32, WHOLE)
BINARY(uint8_t, u8, WHOLE)

enum { LESS = 1, EQUAL = 2, GREATER = 4, ORDERS = 5 };

typedef void order_fn(const void *x, int64_t sx, const void *u, int64_t su, int64_t n,
                      uint8_t *out);

static order_fn *const orders_by[TSR_DTYPE_COUNT_] = {
    [TSR_F32] = order_f32, [TSR_F64] = order_f64, [TSR_I64] = order_i64,
    [TSR_I32] = order_i32, [TSR_U8] = order_u8,   [TSR_BOOL] = order_u8};

static tsri_ref_row_fn *const rows_by[TSR_DTYPE_COUNT_] = {[TSR_F32] = binary_f32,
                                                           [TSR_F64] = binary_f64,
                                                           [TSR_I64] = binary_i64,
                                                           [TSR_I32] = binary_i32,
                                                           [TSR_U8] = binary_u8};

static void compare_row(void *arg, const tsri_ref_row *r)
{
    enum { BLOCK = 512 };
    const tsri_ref_job *j = arg;
    const tsri_kernel_desc *d = &j->ref->desc;
    const tsr_dtype to = d->out[0].dtype;
    const int64_t size = (int64_t)tsr_dtype_size(d->in[0].dtype);
    const char *x = (const char *)j->in[0] + r->off[1] * size;
    const char *u = (const char *)j->in[1] + r->off[2] * size;
    order_fn *order = orders_by[d->in[0].dtype];
    uint8_t orders[BLOCK];
    const tsri_orders o = tsri_binary_orders((tsri_binary_fn)j->ref->attrs.binary.fn);
    const float result[ORDERS] = {
        [0] = o.none, [LESS] = o.less, [EQUAL] = o.equal, [GREATER] = o.greater};
    uint8_t whole[ORDERS];
    for (int i = 0; i < ORDERS; i++)
        whole[i] = result[i] != 0;
    for (int64_t b = 0; b < r->n; b += BLOCK) {
        int64_t n = r->n - b < BLOCK ? r->n - b : BLOCK;
        order(x + b * r->step[1] * size, r->step[1], u + b * r->step[2] * size, r->step[2], n,
              orders);
        if (to == TSR_BOOL) {
            uint8_t *y = (uint8_t *)j->out[0] + r->off[0] + b * r->step[0];
            for (int64_t i = 0; i < n; i++)
                y[i * r->step[0]] = whole[orders[i]];
            continue;
        }
        if (to == TSR_F32) {
            float *y = (float *)j->out[0] + r->off[0] + b * r->step[0];
            for (int64_t i = 0; i < n; i++)
                y[i * r->step[0]] = result[orders[i]];
            continue;
        }
        for (int64_t i = 0; i < n; i++)
            tsri_ref_store(to, j->out[0], r->off[0] + (b + i) * r->step[0],
                           (double)result[orders[i]]);
    }
}

tsr_status tsri_ref_binary(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    tsr_dtype x = d->in[0].dtype, y = d->out[0].dtype;
    bool compare = tsri_binary_compares((tsri_binary_fn)d->attrs->binary.fn);
    if ((unsigned)d->attrs->binary.fn >= TSRI_BINARY_COUNT_ || x != d->in[1].dtype ||
        !(compare ? orders_by[x] != NULL : x == y && rows_by[y]))
        return tsri_ref_decline(d);
    return tsri_ref_create_map(mem, d, compare ? compare_row : rows_by[y], out_kernel);
}
