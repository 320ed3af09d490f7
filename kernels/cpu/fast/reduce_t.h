/* SPDX-License-Identifier: Apache-2.0 */
/* Sums, maxima, minima and what is not finite, over rows and over columns; see tsri_fast_reduce_fn.
 * Included once per instruction set; see vec.h. Sums are f64. */

/* Rows that are too short for vectors are turned, W of them at once, and reduced as columns. */
enum { SHORT_ROW = 2 * W };

static void sum_rows(const float *x, int64_t rows, int64_t pitch, int64_t cols, void *acc)
{
    int64_t short_rows = cols < SHORT_ROW ? rows - rows % W : 0;
    float turned[SHORT_ROW * W];
    for (int64_t r = 0; r < short_rows; r += W, x += W * pitch) {
        double *to = (double *)acc + r;
        vd lo = vdload(to), hi = vdload(to + W / 2);
        transpose(x, pitch, turned, W, cols, W);
        for (int64_t i = 0; i < cols; i++) {
            lo += vdwiden(turned + i * W);
            hi += vdwiden(turned + i * W + W / 2);
        }
        vdstore(to, lo);
        vdstore(to + W / 2, hi);
    }
    for (int64_t r = short_rows; r < rows; r++, x += pitch) {
        vd s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
        int64_t i = 0;
        for (; i + 2 * W <= cols; i += 2 * W) {
            s0 += vdwiden(x + i);
            s1 += vdwiden(x + i + W / 2);
            s2 += vdwiden(x + i + W);
            s3 += vdwiden(x + i + W + W / 2);
        }
        for (; i < cols; i += W) {
            vf v = vload_upto(x + i, cols - i);
            s0 += vlo(v);
            s1 += vhi(v);
        }
        ((double *)acc)[r] += vdsum((s0 + s1) + (s2 + s3));
    }
}

/* Several rows at a time, so that the accumulators are read and written less often than x. */
static void sum_columns(const float *x, int64_t rows, int64_t pitch, int64_t cols, void *acc)
{
    enum { ROWS = 8 };
    for (int64_t r = 0; r < rows; r += ROWS, x += ROWS * pitch) {
        const int64_t count = rows - r < ROWS ? rows - r : ROWS;
        for (int64_t i = 0; i < cols; i += W) {
            double *to = (double *)acc + i;
            vd lo = vdload(to), hi = vdload(to + W / 2);
            for (int64_t k = 0; k < count; k++) {
                vf v = vload_upto(x + k * pitch + i, cols - i);
                lo += vlo(v);
                hi += vhi(v);
            }
            vdstore(to, lo);
            vdstore(to + W / 2, hi);
        }
    }
}

/* `best`, lane by lane, where it is not a number, else `next`. */
VEC_FN vf unless_nan(vf best, vf next)
{
    const __typeof__(best != best) is_nan = best != best;
    return (vf)((is_nan & (__typeof__(is_nan))best) | (~is_nan & (__typeof__(is_nan))next));
}

/* A NaN is taken, as vmax and vmin return their second operand then, and stays. */
#define EXTREME(name, vbest, BEYOND)                                                               \
    static void name##_rows(const float *x, int64_t rows, int64_t pitch, int64_t cols, void *acc)  \
    {                                                                                              \
        enum { AT_ONCE = 8 };                                                                      \
        int64_t short_rows = cols < SHORT_ROW ? rows - rows % W : 0;                               \
        float turned[SHORT_ROW * W];                                                               \
        for (int64_t r = 0; r < short_rows; r += W, x += W * pitch) {                              \
            vf v = vload((float *)acc + r);                                                        \
            transpose(x, pitch, turned, W, cols, W);                                               \
            for (int64_t i = 0; i < cols; i++)                                                     \
                v = unless_nan(v, vbest(v, vload(turned + i * W)));                                \
            vstore((float *)acc + r, v);                                                           \
        }                                                                                          \
        for (int64_t r = short_rows; r < rows; r++, x += pitch) {                                  \
            float best = ((float *)acc)[r], lane[W];                                               \
            vf v[AT_ONCE];                                                                         \
            int64_t i = 0;                                                                         \
            VEC_LOOP                                                                               \
            for (int k = 0; k < AT_ONCE; k++)                                                      \
                v[k] = vset1(best);                                                                \
            for (; i + AT_ONCE * W <= cols; i += AT_ONCE * W)                                      \
                VEC_LOOP                                                                           \
            for (int k = 0; k < AT_ONCE; k++)                                                      \
                v[k] = unless_nan(v[k], vbest(v[k], vload(x + i + k * W)));                        \
            for (; i + W <= cols; i += W)                                                          \
                v[0] = unless_nan(v[0], vbest(v[0], vload(x + i)));                                \
            VEC_LOOP                                                                               \
            for (int k = 1; k < AT_ONCE; k++)                                                      \
                v[0] = unless_nan(v[0], vbest(v[0], v[k]));                                        \
            vstore(lane, v[0]);                                                                    \
            for (int k = 0; k < W; k++)                                                            \
                best =                                                                             \
                    best != best || !(lane[k] BEYOND best || lane[k] != lane[k]) ? best : lane[k]; \
            for (; i < cols; i++)                                                                  \
                best = best != best || !(x[i] BEYOND best || x[i] != x[i]) ? best : x[i];          \
            ((float *)acc)[r] = best;                                                              \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void name##_columns(const float *x, int64_t rows, int64_t pitch, int64_t cols,          \
                               void *acc)                                                          \
    {                                                                                              \
        for (int64_t r = 0; r < rows; r++, x += pitch)                                             \
            for (int64_t i = 0; i < cols; i += W) {                                                \
                float *to = (float *)acc + i;                                                      \
                vf v = vload(to);                                                                  \
                vstore(to, unless_nan(v, vbest(v, vload_upto(x + i, cols - i))));                  \
            }                                                                                      \
    }
EXTREME(max, vmax, >)
EXTREME(min, vmin, <)
#undef EXTREME

/* Zero times what is finite is 0, and else NaN, which stays. */
static void fault_rows(const float *x, int64_t rows, int64_t pitch, int64_t cols, void *acc)
{
    for (int64_t r = 0; r < rows; r++, x += pitch) {
        vf all = vset1(0);
        float lane[W];
        for (int64_t i = 0; i < cols; i += W)
            all += vload_upto(x + i, cols - i) * vset1(0);
        vstore(lane, all);
        for (int64_t i = 0; i < W; i++)
            ((float *)acc)[r] += lane[i];
    }
}

static void fault_columns(const float *x, int64_t rows, int64_t pitch, int64_t cols, void *acc)
{
    for (int64_t r = 0; r < rows; r++, x += pitch)
        for (int64_t i = 0; i < cols; i += W) {
            float *to = (float *)acc + i;
            vstore(to, vload(to) + vload_upto(x + i, cols - i) * vset1(0));
        }
}
