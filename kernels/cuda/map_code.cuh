/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of element-wise ops, for one element: functions of one operand and their
 * gradients, of two operands, and conversions between dtypes. In f32 for f16, bf16 and f32; a
 * function's number that is a constant of the caller leaves only its own code.
 */
#ifndef TESSERA_KERNELS_CUDA_MAP_CODE_H
#define TESSERA_KERNELS_CUDA_MAP_CODE_H

#include <type_traits>

#include "kernels/cuda/device_code.cuh"

/* One name per function for both precisions. */
#define TSRI_MATH1(name, single, twice)                     \
    static __device__ __forceinline__ float name(float x)   \
    {                                                       \
        return single(x);                                   \
    }                                                       \
    static __device__ __forceinline__ double name(double x) \
    {                                                       \
        return twice(x);                                    \
    }
TSRI_MATH1(tsri_exp, expf, exp)
TSRI_MATH1(tsri_log_, logf, log)
TSRI_MATH1(tsri_sqrt, sqrtf, sqrt)
TSRI_MATH1(tsri_tanh, tanhf, tanh)
TSRI_MATH1(tsri_normal, normcdff, normcdf)
#undef TSRI_MATH1
static __device__ __forceinline__ float tsri_pow(float x, float y)
{
    return powf(x, y);
}
static __device__ __forceinline__ double tsri_pow(double x, double y)
{
    return pow(x, y);
}

/* --- one operand ------------------------------------------------------------------------------ */
/* (1 + tanh(u))/2 = 1/(1 + e^(-2u)) with u = sqrt(2/pi) (x + 0.044715 x^3). */
template <typename A> static __device__ __forceinline__ A tsri_gelu_gate(A x)
{
    return 1 / (1 + tsri_exp((A)(-2 * 0.79788456080286535588) * (x + (A)0.044715 * x * x * x)));
}

template <typename A> static __device__ __forceinline__ A tsri_gelu_tanh_grad(A x)
{
    A s = tsri_gelu_gate(x), flat = s * (1 - s);
    A slope = (A)(2 * 0.79788456080286535588) * (1 + (A)(3 * 0.044715) * x * x);
    return s + (flat == 0 ? 0 : x * flat * slope);
}

/* A NaN stays one, in relu too. */
template <typename A> static __device__ __forceinline__ A tsri_unary(int fn, A v, A a)
{
    switch (fn) {
    case TSRI_UNARY_ABS:
        return v < 0 ? -v : v == 0 ? 0 : v;
    case TSRI_UNARY_EXP:
        return tsri_exp(v);
    case TSRI_UNARY_LOG:
        return tsri_log_(v);
    case TSRI_UNARY_SQRT:
        return tsri_sqrt(v);
    case TSRI_UNARY_RELU:
        return v <= 0 ? 0 : v;
    case TSRI_UNARY_RELU6:
        return v <= 0 ? 0 : v >= 6 ? 6 : v;
    case TSRI_UNARY_TANH:
        return tsri_tanh(v);
    case TSRI_UNARY_SIGMOID:
        return 1 / (1 + tsri_exp(-v));
    case TSRI_UNARY_SILU:
        return v / (1 + tsri_exp(-v));
    case TSRI_UNARY_POW:
        return tsri_pow(v, a);
    case TSRI_UNARY_ADD:
        return v + a;
    case TSRI_UNARY_RDIV:
        return a / v;
    case TSRI_UNARY_GELU:
        return v * tsri_normal(v);
    default:
        return v * tsri_gelu_gate(v);
    }
}

/* v: what was saved; u: dy. */
template <typename A> static __device__ __forceinline__ A tsri_unary_grad(int fn, A v, A u, A a)
{
    A s;
    switch (fn) {
    case TSRI_UNARY_ABS:
        return v > 0 ? u : v < 0 ? -u : 0;
    case TSRI_UNARY_EXP:
        return u * v;
    case TSRI_UNARY_LOG:
        return u / v;
    case TSRI_UNARY_SQRT:
        return u / (2 * v);
    case TSRI_UNARY_RELU:
        return v > 0 ? u : 0;
    case TSRI_UNARY_RELU6:
        return v > 0 && v < 6 ? u : 0;
    case TSRI_UNARY_TANH: /* 1 - v*v would lose what is left of 1 */
        return u * ((1 - v) * (1 + v));
    case TSRI_UNARY_SIGMOID:
        return u * (1 - v) * v;
    case TSRI_UNARY_SILU:
        s = 1 / (1 + tsri_exp(-v));
        return u * s * (1 + v * (1 - s));
    case TSRI_UNARY_POW: /* x^0 is flat everywhere */
        return a == 0 ? 0 : u * a * tsri_pow(v, a - 1);
    case TSRI_UNARY_ADD:
        return u;
    case TSRI_UNARY_RDIV: /* twice, as v*v may overflow where this does not */
        return -u * a / v / v;
    case TSRI_UNARY_GELU:
        return u * (tsri_normal(v) + v * (A)0.39894228040143267794 * tsri_exp((A)-0.5 * v * v));
    default:
        return u * tsri_gelu_tanh_grad(v);
    }
}

/* --- two operands ----------------------------------------------------------------------------- */
/* Whole numbers wrap around; x / 0 is 0. */
static __device__ __forceinline__ int64_t tsri_whole_pow(int64_t a, int64_t b)
{
    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    uint64_t y = 1, x = (uint64_t)a;
    for (; b; b >>= 1, x *= x)
        if (b & 1)
            y *= x;
    return (int64_t)y;
}

static __device__ __forceinline__ int64_t tsri_whole_binary(int fn, int64_t a, int64_t b)
{
    switch (fn) {
    case TSRI_BINARY_ADD:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case TSRI_BINARY_SUB:
        return (int64_t)((uint64_t)a - (uint64_t)b);
    case TSRI_BINARY_MUL:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case TSRI_BINARY_DIV:
        return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
    case TSRI_BINARY_POW:
        return tsri_whole_pow(a, b);
    case TSRI_BINARY_MAXIMUM:
        return a > b ? a : b;
    default:
        return a < b ? a : b;
    }
}

/* NaN wins maximum and minimum. */
template <typename A> static __device__ __forceinline__ A tsri_float_binary(int fn, A a, A b)
{
    switch (fn) {
    case TSRI_BINARY_ADD:
        return a + b;
    case TSRI_BINARY_SUB:
        return a - b;
    case TSRI_BINARY_MUL:
        return a * b;
    case TSRI_BINARY_DIV:
        return a / b;
    case TSRI_BINARY_POW:
        return tsri_pow(a, b);
    case TSRI_BINARY_MAXIMUM:
        return a > b || a != a ? a : b;
    default:
        return a < b || a != a ? a : b;
    }
}

template <typename T> static __device__ __forceinline__ T tsri_binary(int fn, T a, T b)
{
    if constexpr (std::is_integral<T>::value)
        return (T)tsri_whole_binary(fn, (int64_t)a, (int64_t)b);
    else
        return tsri_to<T>(tsri_float_binary(fn, tsri_to<tsri_acc<T>>(a), tsri_to<tsri_acc<T>>(b)));
}

/* The results of a comparison: where one is NaN, less, equal, greater. */
typedef struct tsri_orders {
    float none, less, equal, greater;
} tsri_orders;

static inline tsri_orders tsri_orders_of(int fn)
{
    const bool step = fn == TSRI_BINARY_STEP, not_equal = fn == TSRI_BINARY_NOT_EQUAL;
    const bool less = fn == TSRI_BINARY_LESS || fn == TSRI_BINARY_LESS_EQUAL;
    const bool greater = fn == TSRI_BINARY_GREATER || fn == TSRI_BINARY_GREATER_EQUAL;
    const bool equal =
        fn == TSRI_BINARY_EQUAL || fn == TSRI_BINARY_LESS_EQUAL || fn == TSRI_BINARY_GREATER_EQUAL;
    tsri_orders o;
    o.none = not_equal || step;
    o.less = less || not_equal;
    o.equal = step ? 0.5f : (float)equal;
    o.greater = greater || not_equal || step;
    return o;
}

template <typename T> static __device__ __forceinline__ float tsri_order(tsri_orders o, T a, T b)
{
    const tsri_acc<T> x = tsri_to<tsri_acc<T>>(a), y = tsri_to<tsri_acc<T>>(b);
    return x < y ? o.less : x == y ? o.equal : x > y ? o.greater : o.none;
}

/* --- conversions ------------------------------------------------------------------------------ */
/* Toward zero; NaN is 0 and what does not fit is the nearest that does. */
template <typename A>
static __host__ __device__ __forceinline__ int64_t tsri_to_whole(A v, bool is_i32)
{
    const A end = is_i32 ? (A)0x1p31 : (A)0x1p63;
    if (v != v)
        return 0;
    if (v >= end)
        return is_i32 ? INT32_MAX : INT64_MAX;
    if (v < -end)
        return is_i32 ? INT32_MIN : INT64_MIN;
    return (int64_t)v;
}

/* Whole numbers wrap among themselves; through i64 and f64, which hold every value of their kind.
 * Stored bools are read as u8. */
template <typename To, typename From> static __device__ __forceinline__ To tsri_cast(From v)
{
    constexpr bool to_whole = std::is_integral<To>::value;
    if constexpr (std::is_integral<From>::value) {
        if constexpr (std::is_same<To, bool>::value)
            return v != 0;
        else if constexpr (to_whole || std::is_same<To, float>::value)
            return (To)v;
        else if constexpr (sizeof(From) == 1)
            return tsri_to<To>((float)v);
        else
            return tsri_to<To>((double)v);
    } else {
        const tsri_acc<From> x = tsri_to<tsri_acc<From>>(v);
        if constexpr (std::is_same<To, bool>::value)
            return x != 0;
        else if constexpr (to_whole)
            return (To)tsri_to_whole(x, std::is_same<To, int32_t>::value);
        else
            return tsri_to<To>(x);
    }
}

/* All eight: bools are read as u8. */
#define TSRI_OPERANDS(dtype, ...)                              \
    switch (dtype) {                                           \
        TSRI_CASE_(TSR_DTYPE_F32, float, __VA_ARGS__)          \
        TSRI_CASE_(TSR_DTYPE_F64, double, __VA_ARGS__)         \
        TSRI_CASE_(TSR_DTYPE_F16, __half, __VA_ARGS__)         \
        TSRI_CASE_(TSR_DTYPE_BF16, __nv_bfloat16, __VA_ARGS__) \
        TSRI_CASE_(TSR_DTYPE_I64, int64_t, __VA_ARGS__)        \
        TSRI_CASE_(TSR_DTYPE_I32, int32_t, __VA_ARGS__)        \
    default: {                                                 \
        typedef uint8_t T;                                     \
        __VA_ARGS__;                                           \
    }                                                          \
    }

/* Element i of a buffer whose dtype is known at run time. */
template <typename From>
static __device__ __forceinline__ void tsri_store(int dtype, void *p, int64_t i, From v)
{
    switch (dtype) {
    case TSR_DTYPE_F32:
        ((float *)p)[i] = tsri_cast<float>(v);
        break;
    case TSR_DTYPE_F64:
        ((double *)p)[i] = tsri_cast<double>(v);
        break;
    case TSR_DTYPE_F16:
        ((__half *)p)[i] = tsri_cast<__half>(v);
        break;
    case TSR_DTYPE_BF16:
        ((__nv_bfloat16 *)p)[i] = tsri_cast<__nv_bfloat16>(v);
        break;
    case TSR_DTYPE_I64:
        ((int64_t *)p)[i] = tsri_cast<int64_t>(v);
        break;
    case TSR_DTYPE_I32:
        ((int32_t *)p)[i] = tsri_cast<int32_t>(v);
        break;
    case TSR_DTYPE_BOOL:
        ((bool *)p)[i] = tsri_cast<bool>(v);
        break;
    default:
        ((uint8_t *)p)[i] = tsri_cast<uint8_t>(v);
    }
}

#endif
