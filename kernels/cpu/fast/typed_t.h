/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons and conversions of numbers of any dtype but the halves, arithmetic of whole numbers,
 * and choices, which the compiler vectorises by itself, but for divisions. Included once per
 * instruction set; see vec.h. */

/* --- comparisons, as bytes -------------------------------------------------------------------- */
#define COMPARE(T, dtype, name, OP)                                                        \
    static void name##_##dtype(const void *px, const void *pu, bool fixed_x, bool fixed_u, \
                               void *py, int64_t n)                                        \
    {                                                                                      \
        const T *x = px, *u = pu;                                                          \
        uint8_t *restrict y = py;                                                          \
        if (fixed_x) {                                                                     \
            const T v = *x;                                                                \
            for (int64_t i = 0; i < n; i++)                                                \
                y[i] = v OP u[i];                                                          \
        } else if (fixed_u) {                                                              \
            const T v = *u;                                                                \
            for (int64_t i = 0; i < n; i++)                                                \
                y[i] = x[i] OP v;                                                          \
        } else {                                                                           \
            for (int64_t i = 0; i < n; i++)                                                \
                y[i] = x[i] OP u[i];                                                       \
        }                                                                                  \
    }
#define COMPARE_BY(T, dtype)          \
    COMPARE(T, dtype, equal, ==)      \
    COMPARE(T, dtype, not_equal, !=)  \
    COMPARE(T, dtype, less, <)        \
    COMPARE(T, dtype, less_equal, <=) \
    COMPARE(T, dtype, greater, >)     \
    COMPARE(T, dtype, greater_equal, >=)
COMPARE_BY(float, f32)
COMPARE_BY(double, f64)
COMPARE_BY(int64_t, i64)
COMPARE_BY(int32_t, i32)
COMPARE_BY(uint8_t, u8)
#undef COMPARE_BY
#undef COMPARE

/* --- arithmetic of whole numbers -------------------------------------------------------------- */
/* An operand may be the result's buffer, so nothing here is restrict. */
#define wrap(v) ((uint64_t)(v))
#define WHOLE_LOOP(T, load_a, load_b, expr)                         \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++)             \
    {                                                               \
        const int64_t a = (int64_t)(load_a), b = (int64_t)(load_b); \
        (void)a, (void)b;                                           \
        y[i] = (T)(expr);                                           \
    }
#define WHOLE(T, FN, dtype, expr)                                                                \
    static void whole_##FN##_##dtype(const void *px, const void *pu, bool fixed_x, bool fixed_u, \
                                     void *py, int64_t n)                                        \
    {                                                                                            \
        const T *x = px, *u = pu;                                                                \
        T *y = py;                                                                               \
        if (fixed_x) {                                                                           \
            const T v = *x;                                                                      \
            WHOLE_LOOP(T, v, u[i], expr)                                                         \
        } else if (fixed_u) {                                                                    \
            const T v = *u;                                                                      \
            WHOLE_LOOP(T, x[i], v, expr)                                                         \
        } else {                                                                                 \
            WHOLE_LOOP(T, x[i], u[i], expr)                                                      \
        }                                                                                        \
    }
/* The elements of a vector, of which the first n are read; the rest are 1. */
VEC_FN vlong vlong_load(const int64_t *p, bool fixed, int64_t i, int64_t n)
{
    enum { LANES = W / 2 };
    vlong v = (vlong){0} + (fixed ? *p : 1);
    if (!fixed && n >= LANES)
        memcpy(&v, p + i, sizeof v);
    else if (!fixed)
        memcpy(&v, p + i, (size_t)n * sizeof *p);
    return v;
}

#define REST(FN, lane)                                                                       \
    static void whole_##FN##_i64(const void *px, const void *pu, bool fixed_x, bool fixed_u, \
                                 void *py, int64_t n)                                        \
    {                                                                                        \
        enum { LANES = W / 2 };                                                              \
        int64_t *y = py;                                                                     \
        for (int64_t i = 0; i < n; i += LANES) {                                             \
            const int64_t left = n - i;                                                      \
            const vlong x = vlong_load(px, fixed_x, i, left);                                \
            const vlong u = vlong_load(pu, fixed_u, i, left);                                \
            vlong v;                                                                         \
            if (!vlong_rest(x, u, VREST_##FN, &v))                                           \
                for (int k = 0; k < LANES; k++) {                                            \
                    const int64_t a = x[k], b = u[k];                                        \
                    v[k] = lane;                                                             \
                }                                                                            \
            if (left >= LANES)                                                               \
                memcpy(y + i, &v, sizeof v);                                                 \
            else                                                                             \
                memcpy(y + i, &v, (size_t)left * sizeof *y);                                 \
        }                                                                                    \
    }

/* The loop over whole numbers, by what a function takes and its cost; of floats alone there is
 * none.
 */
#define WHOLE_OF_FLOATS_CHEAP(FN, whole)
#define WHOLE_OF_FLOATS_SLOW(FN, whole)
#define WHOLE_OF_FLOATS_FULL(FN, whole)
#define WHOLE_OF_NUMBERS_CHEAP(FN, whole) \
    WHOLE(int64_t, FN, i64, whole)        \
    WHOLE(int32_t, FN, i32, whole)
#define WHOLE_OF_NUMBERS_SLOW(FN, whole) REST(FN, whole)
#define WHOLE_OF_BYTES_CHEAP(FN, whole) WHOLE_OF_NUMBERS_CHEAP(FN, whole)
#define WHOLE_OF_WHOLES_CHEAP(FN, whole) WHOLE_OF_NUMBERS_CHEAP(FN, whole)
#define WHOLE_OF(T, FN, name, takes, rule, cost, by, real, whole, doc) \
    WHOLE_OF_##takes##_##cost(FN, whole)
TSRI_ARITHMETIC_LIST(WHOLE_OF, )
#undef WHOLE_OF
#undef WHOLE_OF_WHOLES_CHEAP
#undef WHOLE_OF_BYTES_CHEAP
#undef WHOLE_OF_NUMBERS_SLOW
#undef WHOLE_OF_NUMBERS_CHEAP
#undef WHOLE_OF_FLOATS_FULL
#undef WHOLE_OF_FLOATS_SLOW
#undef WHOLE_OF_FLOATS_CHEAP
#undef REST
#undef WHOLE
#undef WHOLE_LOOP
#undef wrap

/* --- choices ---------------------------------------------------------------------------------- */
#define WHERE_LOOP(load_x, load_u)                      \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) \
    {                                                   \
        y[i] = c[i] ? load_x : load_u;                  \
    }
#define WHERE(T)                                                                          \
    static void where_##T(const uint8_t *c, const void *px, const void *pu, bool fixed_x, \
                          bool fixed_u, void *py, int64_t n)                              \
    {                                                                                     \
        const T *x = px, *u = pu;                                                         \
        T *y = py;                                                                        \
        if (fixed_x && fixed_u) {                                                         \
            const T v = *x, w = *u;                                                       \
            WHERE_LOOP(v, w)                                                              \
        } else if (fixed_x) {                                                             \
            const T v = *x;                                                               \
            WHERE_LOOP(v, u[i])                                                           \
        } else if (fixed_u) {                                                             \
            const T w = *u;                                                               \
            WHERE_LOOP(x[i], w)                                                           \
        } else {                                                                          \
            WHERE_LOOP(x[i], u[i])                                                        \
        }                                                                                 \
    }
WHERE(uint8_t)
WHERE(uint16_t)
WHERE(uint32_t)
WHERE(uint64_t)
#undef WHERE
#undef WHERE_LOOP

/* --- conversions ------------------------------------------------------------------------------ */
/* Toward zero; NaN is 0, and a number that does not fit is the nearest that does: the greatest from
 * `end` on, the least at or below `begin`. Nothing is converted that does not fit, so that the
 * compiler may do it for all. */
#define TO_WHOLE(T, most, least, end, begin)                \
    const double v = (double)x[i];                          \
    const bool above = v >= (end), below = v <= (begin);    \
    const double inside = above | below | (v != v) ? 0 : v; \
    const T whole = (T)inside;                              \
    y[i] = above ? (most) : below ? (least) : whole;
#define CAST_LOOP(FROM, from, TO, to, ...)                              \
    static void cast_##from##_##to(const void *px, void *py, int64_t n) \
    {                                                                   \
        const FROM *restrict x = px;                                    \
        TO *restrict y = py;                                            \
        for (int64_t i = 0; i < n; i++) {                               \
            __VA_ARGS__                                                 \
        }                                                               \
    }
#define CAST_PLAIN(FROM, from, TO, to) CAST_LOOP(FROM, from, TO, to, y[i] = (TO)x[i];)
#define CAST_TRUTH(FROM, from) CAST_LOOP(FROM, from, uint8_t, bool, y[i] = x[i] != 0;)
#define CAST_FLOAT(FROM, from)                                                                    \
    CAST_LOOP(FROM, from, int64_t, i64, TO_WHOLE(int64_t, INT64_MAX, INT64_MIN, 0x1p63, -0x1p63)) \
    CAST_LOOP(FROM, from, int32_t, i32, TO_WHOLE(int32_t, INT32_MAX, INT32_MIN, 0x1p31, -0x1p31)) \
    CAST_LOOP(FROM, from, uint8_t, u8, TO_WHOLE(uint8_t, UINT8_MAX, 0, 256, 0))                   \
    CAST_TRUTH(FROM, from)
#define CAST_WHOLE(FROM, from)           \
    CAST_PLAIN(FROM, from, float, f32)   \
    CAST_PLAIN(FROM, from, double, f64)  \
    CAST_PLAIN(FROM, from, int64_t, i64) \
    CAST_PLAIN(FROM, from, int32_t, i32) \
    CAST_PLAIN(FROM, from, uint8_t, u8)  \
    CAST_TRUTH(FROM, from)
CAST_FLOAT(float, f32)
CAST_FLOAT(double, f64)
CAST_PLAIN(float, f32, double, f64)
CAST_PLAIN(double, f64, float, f32)
CAST_WHOLE(int64_t, i64)
CAST_WHOLE(int32_t, i32)
CAST_WHOLE(uint8_t, u8)
#undef CAST_WHOLE
#undef CAST_FLOAT
#undef CAST_TRUTH
#undef CAST_PLAIN
#undef CAST_LOOP
#undef TO_WHOLE

#define CASTS_TO_WHOLE(from)                                                                   \
    [TSR_I64] = cast_##from##_i64, [TSR_I32] = cast_##from##_i32, [TSR_U8] = cast_##from##_u8, \
    [TSR_BOOL] = cast_##from##_bool
#define CASTS_OF(from)                                                                     \
    {                                                                                      \
        [TSR_F32] = cast_##from##_f32, [TSR_F64] = cast_##from##_f64, CASTS_TO_WHOLE(from) \
    }
#define COMPARES(name)                                                          \
    {                                                                           \
        [TSR_F32] = name##_f32, [TSR_F64] = name##_f64, [TSR_I64] = name##_i64, \
        [TSR_I32] = name##_i32, [TSR_U8] = name##_u8, [TSR_BOOL] = name##_u8,   \
    }
#define WHOLES_OF_FLOATS_CHEAP(FN)
#define WHOLES_OF_FLOATS_SLOW(FN)
#define WHOLES_OF_FLOATS_FULL(FN)
#define WHOLES_OF_NUMBERS_CHEAP(FN) \
    [TSRI_BINARY_##FN] = {[TSR_I64] = whole_##FN##_i64, [TSR_I32] = whole_##FN##_i32},
#define WHOLES_OF_NUMBERS_SLOW(FN) [TSRI_BINARY_##FN] = {[TSR_I64] = whole_##FN##_i64},
#define WHOLES_OF_BYTES_CHEAP(FN) WHOLES_OF_NUMBERS_CHEAP(FN)
#define WHOLES_OF_WHOLES_CHEAP(FN) WHOLES_OF_NUMBERS_CHEAP(FN)
