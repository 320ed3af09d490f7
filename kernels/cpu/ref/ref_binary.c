/* SPDX-License-Identifier: Apache-2.0 */
/* Binary ops, broadcasting from the right: floats and whole numbers, both operands of one dtype. */
#include "kernels/cpu/ref/ref.h"

#include <math.h>

typedef struct job {
    const tsri_ref *ref;
    void *const *in;
    void *const *out;
} job;

/* Whole numbers wrap around; x / 0 is 0. */
static int64_t whole_div(int64_t a, int64_t b)
{
    if (b == 0)
        return 0;
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static int64_t whole_pow(int64_t a, int64_t b)
{
    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    uint64_t y = 1, x = (uint64_t)a;
    for (; b; b >>= 1, x *= x)
        if (b & 1)
            y *= x;
    return (int64_t)y;
}

#define FLOAT_ADD(a, b) ((a) + (b))
#define FLOAT_SUB(a, b) ((a) - (b))
#define FLOAT_MUL(a, b) ((a) * (b))
#define FLOAT_DIV(a, b) ((a) / (b))
#define FLOAT_POW(a, b) pow((double)(a), (double)(b))
#define WHOLE_ADD(a, b) ((uint64_t)(a) + (uint64_t)(b))
#define WHOLE_SUB(a, b) ((uint64_t)(a) - (uint64_t)(b))
#define WHOLE_MUL(a, b) ((uint64_t)(a) * (uint64_t)(b))
#define WHOLE_DIV(a, b) whole_div((int64_t)(a), (int64_t)(b))
#define WHOLE_POW(a, b) whole_pow((int64_t)(a), (int64_t)(b))

#define LOOP(T, expr)                                              \
    do {                                                           \
        if (sx == 1 && su == 1 && sy == 1) {                       \
            _Pragma("omp simd") for (int64_t i = 0; i < r->n; i++) \
            {                                                      \
                const T a = x[i], b = u[i];                        \
                y[i] = (T)(expr);                                  \
            }                                                      \
        } else {                                                   \
            for (int64_t i = 0; i < r->n; i++) {                   \
                const T a = x[i * sx], b = u[i * su];              \
                y[i * sy] = (T)(expr);                             \
            }                                                      \
        }                                                          \
    } while (0)

#define BINARY(T, name, KIND)                                                               \
    static void binary_##name(void *arg, const tsri_ref_row *r)                             \
    {                                                                                       \
        const job *j = arg;                                                                 \
        const T *x = (const T *)j->in[0] + r->off[1], *u = (const T *)j->in[1] + r->off[2]; \
        T *y = (T *)j->out[0] + r->off[0];                                                  \
        const int64_t sx = r->step[1], su = r->step[2], sy = r->step[0];                    \
        switch ((tsri_binary_fn)j->ref->attrs.binary.fn) {                                  \
        case TSRI_BINARY_ADD:                                                               \
            LOOP(T, KIND##_ADD(a, b));                                                      \
            break;                                                                          \
        case TSRI_BINARY_SUB:                                                               \
            LOOP(T, KIND##_SUB(a, b));                                                      \
            break;                                                                          \
        case TSRI_BINARY_MUL:                                                               \
            LOOP(T, KIND##_MUL(a, b));                                                      \
            break;                                                                          \
        case TSRI_BINARY_DIV:                                                               \
            LOOP(T, KIND##_DIV(a, b));                                                      \
            break;                                                                          \
        case TSRI_BINARY_POW:                                                               \
            LOOP(T, KIND##_POW(a, b));                                                      \
            break;                                                                          \
        case TSRI_BINARY_EQUAL:                                                             \
        case TSRI_BINARY_COUNT_:                                                            \
            break;                                                                          \
        }                                                                                   \
    }                                                                                       \
    static bool equal_##name(const void *x, int64_t i, const void *u, int64_t j)            \
    {                                                                                       \
        return ((const T *)x)[i] == ((const T *)u)[j];                                      \
    }
BINARY(float, f32, FLOAT)
BINARY(double, f64, FLOAT)
BINARY(int64_t, i64, WHOLE)
BINARY(int32_t, i32, WHOLE)
BINARY(uint8_t, u8, WHOLE)

static bool equal(tsr_dtype d, const void *x, int64_t i, const void *u, int64_t j)
{
    switch (d) {
    case TSR_F32:
        return equal_f32(x, i, u, j);
    case TSR_F64:
        return equal_f64(x, i, u, j);
    case TSR_I64:
        return equal_i64(x, i, u, j);
    case TSR_I32:
        return equal_i32(x, i, u, j);
    default:
        return equal_u8(x, i, u, j);
    }
}

static void equal_row(void *arg, const tsri_ref_row *r)
{
    const job *j = arg;
    tsr_dtype from = j->ref->desc.in[0].dtype, to = j->ref->desc.out[0].dtype;
    for (int64_t i = 0; i < r->n; i++)
        tsri_ref_store(to, j->out[0], r->off[0] + i * r->step[0],
                       equal(from, j->in[0], r->off[1] + i * r->step[1], j->in[1],
                             r->off[2] + i * r->step[2]));
}

static tsri_ref_row_fn *row_fn(tsr_dtype d)
{
    switch (d) {
    case TSR_F32:
        return binary_f32;
    case TSR_F64:
        return binary_f64;
    case TSR_I64:
        return binary_i64;
    case TSR_I32:
        return binary_i32;
    case TSR_U8:
        return binary_u8;
    default:
        return NULL;
    }
}

static tsr_status binary_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const tsri_ref *ref = (const tsri_ref *)k;
    job j = {ref, in, out};
    bool compare = ref->attrs.binary.fn == TSRI_BINARY_EQUAL;
    tsri_ref_iter_run(&ref->iter, compare ? equal_row : row_fn(ref->desc.out[0].dtype), &j, true);
    return TSR_OK;
}

tsr_status tsri_ref_binary(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    tsr_dtype x = d->in[0].dtype, y = d->out[0].dtype;
    bool compare = d->attrs->binary.fn == TSRI_BINARY_EQUAL;
    if ((unsigned)d->attrs->binary.fn >= TSRI_BINARY_COUNT_ || x != d->in[1].dtype ||
        !(compare ? x == TSR_BOOL || row_fn(x) : x == y && row_fn(y)))
        return tsri_ref_decline(d);
    return tsri_ref_create_map(mem, d, binary_run, out_kernel);
}
