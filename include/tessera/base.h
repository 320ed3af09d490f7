/* SPDX-License-Identifier: Apache-2.0 */
/* Ground types of the public API: visibility, limits, element types, shapes. */
#ifndef TESSERA_BASE_H
#define TESSERA_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_API __attribute__((visibility("default")))
#define TSR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

#define TSR_VERSION_MAJOR 0
#define TSR_VERSION_MINOR 1
#define TSR_VERSION_PATCH 0
#define TSR_VERSION_STRING "0.1.0"

/* Axes a tensor can have. */
#define TSR_MAX_NDIM 8
/* Dimensions a placement's hierarchy can have. */
#define TSR_MAX_HIERARCHY 4
/*
 * A macro makes the literal of an options struct, TSR_SGD_OPTS(.lr = 0.1): it holds the defaults,
 * and the caller's fields override them, so that a zero that is given is a zero. NULL stands for
 * all defaults. A struct that is filled without the macro has zeros for what is left out: begin
 * with `tsr_sgd_opts o = *TSR_SGD_OPTS();`. The literal lives as long as the block that it is in.
 *
 * Compilers would warn of each default that is overridden, under -Wextra and at the caller's line.
 * So this header turns that off for the rest of the file (-Woverride-init; in C++ tessera.hpp turns
 * off -Wmissing-field-initializers): TSR_KEEP_OVERRIDE_WARNINGS leaves these warnings on. Pragmas
 * around a literal alone would need a block of its own, with which arrays that a field points to,
 * (double[]){0.9, 0.1}, would end.
 */
/* clang-format off */
#ifdef __cplusplus
/* The template tsr_opts_of and the macro TSR_MADE_ stand in tessera.hpp. */
#define TSR_OPTIONS(type, defaults, ...) \
    tsr_opts_of(TSR_MADE_(type, .size = sizeof(type), __VA_ARGS__))
#else
#define TSR_OPTIONS(type, defaults, ...) \
    (&TSR_OVERRIDDEN_(const type, TSR_FIELDS_(type, defaults, __VA_ARGS__)))
#define TSR_OVERRIDDEN_(type, ...) (type){__VA_ARGS__}
#ifndef TSR_KEEP_OVERRIDE_WARNINGS
#ifdef __clang__
#pragma clang diagnostic ignored "-Winitializer-overrides"
#else
#pragma GCC diagnostic ignored "-Woverride-init"
#endif
#endif
#endif
#define TSR_FIELDS_(type, defaults, ...) TSR_LISTED_ defaults.size = sizeof(type), __VA_ARGS__
#define TSR_LISTED_(...) __VA_ARGS__
/* clang-format on */
/* In C++, where a literal can't give a field twice, a member of an options struct has its default
 * by itself (see tessera.hpp). */
#ifdef __cplusplus
#define TSR_IS(...) = __VA_ARGS__
#else
#define TSR_IS(...)
#endif
/* The type of the member behind the size of an options struct, which stays NULL. Options are given
 * by name: TSR_SGD_OPTS(0.1) would set this member, and so does not compile. */
typedef const struct tsr_options_are_given_by_name *tsr_by_name;
/* An option whose default depends on other things: a number that is not one. */
#define TSR_NOT_GIVEN (__builtin_nan(""))

/* Element types. Appended only; 0 is "not given". */
typedef enum tsr_dtype {
    TSR_DTYPE_NONE = 0,
    TSR_DTYPE_F32,
    TSR_DTYPE_F16,
    TSR_DTYPE_BF16,
    TSR_DTYPE_F64,
    TSR_DTYPE_I64,
    TSR_DTYPE_I32,
    TSR_DTYPE_U8,
    TSR_DTYPE_BOOL,
    TSR_DTYPE_COUNT_
} tsr_dtype;

#define TSR_F32 TSR_DTYPE_F32
#define TSR_F16 TSR_DTYPE_F16
#define TSR_BF16 TSR_DTYPE_BF16
#define TSR_F64 TSR_DTYPE_F64
#define TSR_I64 TSR_DTYPE_I64
#define TSR_I32 TSR_DTYPE_I32
#define TSR_U8 TSR_DTYPE_U8
#define TSR_BOOL TSR_DTYPE_BOOL

/* Returns the bytes of one element; 0 for an invalid dtype. */
TSR_API size_t tsr_dtype_size(tsr_dtype dtype);
/* Returns the name of a dtype: "f32", "i64", ...; "?" for an invalid dtype. Static storage. */
TSR_API const char *tsr_dtype_name(tsr_dtype dtype);
/* Returns the dtype of a name that tsr_dtype_name gives; TSR_DTYPE_NONE if there is none. */
TSR_API tsr_dtype tsr_dtype_parse(const char *name);

/* A shape: ndim axes, outermost first. ndim 0 is a scalar. Axes may be 0. */
typedef struct tsr_dims {
    int ndim;
    int64_t d[TSR_MAX_NDIM];
} tsr_dims;

#ifndef __cplusplus
/* TSR_DIMS(64, 3, 32, 32): a shape from its axes, outermost first. */
#define TSR_DIMS(...)                                                              \
    ((tsr_dims){.ndim = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
                .d = {__VA_ARGS__}})
/* A scalar's shape. */
#define TSR_SCALAR ((tsr_dims){.ndim = 0})
#endif

/* Returns the number of elements: the product of the axes, 1 for a scalar; INT64_MAX if it is more.
 * */
TSR_API int64_t tsr_dims_count(tsr_dims dims);
/* Returns whether two shapes have the same axes. */
TSR_API bool tsr_dims_equal(tsr_dims a, tsr_dims b);

#ifdef __cplusplus
}
#endif
#endif
