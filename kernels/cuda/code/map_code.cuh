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

/* --- one operand ------------------------------------------------------------------------------ */
static __device__ __forceinline__ float normal_cdf(float x)
{
    return normcdff(x);
}
static __device__ __forceinline__ double normal_cdf(double x)
{
    return normcdf(x);
}

#define REAL_FN template <typename REAL> static __device__ __forceinline__
#define num(c) ((REAL)(c))
#define pick(c, a, b) ((c) ? (a) : (b))
#define pick_mostly pick
#include "kernels/unary_t.h"

REAL_FN REAL tsri_unary(int fn, REAL v, REAL a, REAL b)
{
    switch (fn) {
#define FORWARD(T, FN, name, gets, cost, by, forward, ...) \
    case TSRI_UNARY_##FN:                                  \
        return forward;
        TSRI_UNARY_LIST(FORWARD, )
#undef FORWARD
    default:
        return v;
    }
}

/* v: the operand or the result; u: dy. */
REAL_FN REAL tsri_unary_grad(int fn, REAL v, REAL u, REAL a, REAL b)
{
    switch (fn) {
#define GRADIENT(T, FN, name, gets, cost, by, forward, gradient, doc) \
    case TSRI_UNARY_##FN:                                             \
        return gradient;
        TSRI_UNARY_LIST(GRADIENT, )
#undef GRADIENT
    default:
        return u;
    }
}
#undef REAL_FN
#undef num
#undef pick

/* --- two operands ----------------------------------------------------------------------------- */
#define REAL_FN template <typename REAL> static __device__ __forceinline__
#define WHOLE_FN static __device__ __forceinline__
#include "kernels/binary_t.h"
#undef REAL_FN
#undef WHOLE_FN

#define wrap(v) ((uint64_t)(v))
#define pick(c, a, b) ((c) ? (a) : (b))
#define pick_mostly pick
static __device__ __forceinline__ int64_t tsri_whole_binary(int fn, int64_t a, int64_t b)
{
    switch (fn) {
#define WHOLE(T, FN, name, takes, rule, cost, by, real, whole, doc) \
    case TSRI_BINARY_##FN:                                          \
        return (int64_t)(whole);
        TSRI_ARITHMETIC_LIST(WHOLE, )
#undef WHOLE
    default:
        return 0;
    }
}

template <typename A> static __device__ __forceinline__ A tsri_float_binary(int fn, A a, A b)
{
    switch (fn) {
#define REAL(T, FN, name, takes, rule, cost, by, real, whole, doc) \
    case TSRI_BINARY_##FN:                                         \
        return real;
        TSRI_ARITHMETIC_LIST(REAL, )
#undef REAL
    default:
        return 0;
    }
}
#undef wrap
#undef pick

template <typename T> static __device__ __forceinline__ T tsri_binary(int fn, T a, T b)
{
    if constexpr (std::is_integral<T>::value)
        return (T)tsri_whole_binary(fn, (int64_t)a, (int64_t)b);
    else
        return tsri_to<T>(tsri_float_binary(fn, tsri_to<tsri_acc<T>>(a), tsri_to<tsri_acc<T>>(b)));
}

template <typename T> static __device__ __forceinline__ float tsri_order(tsri_orders o, T a, T b)
{
    const tsri_acc<T> x = tsri_to<tsri_acc<T>>(a), y = tsri_to<tsri_acc<T>>(b);
    return x < y ? o.less : x == y ? o.equal : x > y ? o.greater : o.none;
}

/* --- conversions ------------------------------------------------------------------------------ */
/* Toward zero; NaN is 0, and a number that does not fit is the nearest that does. */
template <typename To, typename A> static __host__ __device__ __forceinline__ To tsri_to_whole(A v)
{
    constexpr bool is_byte = std::is_same<To, uint8_t>::value;
    constexpr bool is_i32 = std::is_same<To, int32_t>::value;
    const A end = is_byte ? (A)256 : is_i32 ? (A)0x1p31 : (A)0x1p63;
    if (v != v)
        return 0;
    if (v >= end)
        return (To)(is_byte ? UINT8_MAX : is_i32 ? INT32_MAX : INT64_MAX);
    if (v <= (is_byte ? (A)0 : -end))
        return (To)(is_byte ? 0 : is_i32 ? INT32_MIN : INT64_MIN);
    return (To)v;
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
            return tsri_to_whole<To>(x);
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
