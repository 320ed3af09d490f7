/* SPDX-License-Identifier: Apache-2.0 */
/* Running sums and products, f64 until they are stored. Included once per instruction set; see
 * vec.h. Elements of a line are `step` apart, forward or backward. */

/* Several lines at a time: one alone would wait for each of its sums. */
#define SCAN_LINES(name, first, OP)                                                      \
    static void scan_##name##_rows(const float *x, float *y, int64_t rows, int64_t n,    \
                                   int64_t step)                                         \
    {                                                                                    \
        enum { AT_ONCE = 8 };                                                            \
        const int64_t begin = step < 0 ? n - 1 : 0, many = rows - rows % AT_ONCE;        \
        for (int64_t r = 0; r < many; r += AT_ONCE) {                                    \
            const float *from = x + r * n + begin;                                       \
            float *to = y + r * n + begin;                                               \
            double all[AT_ONCE];                                                         \
            VEC_LOOP                                                                     \
            for (int k = 0; k < AT_ONCE; k++)                                            \
                all[k] = first;                                                          \
            for (int64_t i = 0; i < n; i++, from += step, to += step)                    \
                VEC_LOOP                                                                 \
            for (int k = 0; k < AT_ONCE; k++) {                                          \
                all[k] = all[k] OP(double) from[k * n];                                  \
                to[k * n] = (float)all[k];                                               \
            }                                                                            \
        }                                                                                \
        for (int64_t r = many; r < rows; r++) {                                          \
            double all = first;                                                          \
            for (int64_t i = 0, at = r * n + begin; i < n; i++, at += step) {            \
                all = all OP(double) x[at];                                              \
                y[at] = (float)all;                                                      \
            }                                                                            \
        }                                                                                \
    }                                                                                    \
                                                                                         \
    static void scan_##name##_columns(const float *x, float *y, int64_t n, int64_t step, \
                                      int64_t cols)                                      \
    {                                                                                    \
        double all[TSRI_FAST_SCANNED];                                                   \
        const int64_t begin = step < 0 ? (1 - n) * step : 0;                             \
        for (int64_t c = 0; c < cols; c++)                                               \
            all[c] = first;                                                              \
        for (int64_t i = 0; i < n; i++) {                                                \
            const float *restrict from = x + begin + i * step;                           \
            float *restrict to = y + begin + i * step;                                   \
            for (int64_t c = 0; c < cols; c++) {                                         \
                all[c] = all[c] OP(double) from[c];                                      \
                to[c] = (float)all[c];                                                   \
            }                                                                            \
        }                                                                                \
    }
SCAN_LINES(sum, 0, +)
SCAN_LINES(product, 1, *)
#undef SCAN_LINES
