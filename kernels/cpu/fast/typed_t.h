/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons and conversions of numbers of any dtype but the halves, which the compiler vectorises
 * by itself. Included once per instruction set; see vec.h. */

/* --- comparisons, as bytes -------------------------------------------------------------------- */
#define COMPARE(T, dtype, name, OP)                                                        \
    static void name##_##dtype(const void *px, const void *pu, bool fixed_x, bool fixed_u, \
                               uint8_t *restrict y, int64_t n)                             \
    {                                                                                      \
        const T *x = px, *u = pu;                                                          \
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

/* --- conversions ------------------------------------------------------------------------------ */
/* Toward zero; NaN is 0 and what does not fit is the nearest that does. Nothing is converted that
 * does not fit, so that the compiler may do it for all. */
#define TO_WHOLE(T, edge, most, least)                      \
    const double v = (double)x[i];                          \
    const bool above = v >= (edge), below = v < -(edge);    \
    const double inside = above | below | (v != v) ? 0 : v; \
    const T whole = (T)inside;                              \
    const T result = above ? (most) : below ? (least) : whole;
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
#define CAST_FLOAT(FROM, from)                                                         \
    CAST_LOOP(FROM, from, int64_t, i64,                                                \
              TO_WHOLE(int64_t, 0x1p63, INT64_MAX, INT64_MIN) y[i] = result;)          \
    CAST_LOOP(FROM, from, int32_t, i32,                                                \
              TO_WHOLE(int32_t, 0x1p31, INT32_MAX, INT32_MIN) y[i] = result;)          \
    CAST_LOOP(FROM, from, uint8_t, u8,                                                 \
              TO_WHOLE(int64_t, 0x1p63, INT64_MAX, INT64_MIN) y[i] = (uint8_t)result;) \
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
