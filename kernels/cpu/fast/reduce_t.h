/* SPDX-License-Identifier: Apache-2.0 */
/* Sums, products, maxima, minima and what is not finite, over rows and over columns; see
 * tsri_fast_reduce_fn. Included once per instruction set; see vec.h. Sums and products are f64. */

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

/* Returns the sum of n products, which f64 holds exactly; x may be y. */
static double sum_products(const float *x, const float *y, int64_t n)
{
    enum { AT_ONCE = 8, STEP = AT_ONCE * W / 2 };
    vd s[AT_ONCE] = {{0}};
    int64_t i = 0;
    if (x == y)
        for (; i + STEP <= n; i += STEP)
            VEC_LOOP
    for (int k = 0; k < AT_ONCE; k++) {
        const vd v = vdwiden(x + i + k * W / 2);
        s[k] = vdfma(v, v, s[k]);
    }
    for (; i + STEP <= n; i += STEP)
        VEC_LOOP
    for (int k = 0; k < AT_ONCE; k++)
        s[k] = vdfma(vdwiden(x + i + k * W / 2), vdwiden(y + i + k * W / 2), s[k]);
    for (; i < n; i += W) {
        const vf a = vload_upto(x + i, n - i), b = vload_upto(y + i, n - i);
        s[0] = vdfma(vlo(a), vlo(b), s[0]);
        s[1] = vdfma(vhi(a), vhi(b), s[1]);
    }
    return vdsum(((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])));
}

/* Several rows at a time, so that the accumulators are read and written less often than x. */
#define COLUMNS(name, OP)                                                                 \
    static void name##_columns(const float *x, int64_t rows, int64_t pitch, int64_t cols, \
                               void *acc)                                                 \
    {                                                                                     \
        enum { ROWS = 8 };                                                                \
        for (int64_t r = 0; r < rows; r += ROWS, x += ROWS * pitch) {                     \
            const int64_t count = rows - r < ROWS ? rows - r : ROWS;                      \
            for (int64_t i = 0; i < cols; i += W) {                                       \
                double *to = (double *)acc + i;                                           \
                vd lo = vdload(to), hi = vdload(to + W / 2);                              \
                for (int64_t k = 0; k < count; k++) {                                     \
                    const vf v = vload_upto(x + k * pitch + i, cols - i);                 \
                    lo = lo OP vlo(v);                                                    \
                    hi = hi OP vhi(v);                                                    \
                }                                                                         \
                vdstore(to, lo);                                                          \
                vdstore(to + W / 2, hi);                                                  \
            }                                                                             \
        }                                                                                 \
    }
/* The lanes behind the last column hold anything where products are made. */
COLUMNS(sum, +)
COLUMNS(prod, *)
#undef COLUMNS

/* Products of rows. */
static void prod_rows(const float *x, int64_t rows, int64_t pitch, int64_t cols, void *acc)
{
    const vd one = (vd){0} + 1.0;
    int64_t short_rows = cols < SHORT_ROW ? rows - rows % W : 0;
    float turned[SHORT_ROW * W];
    for (int64_t r = 0; r < short_rows; r += W, x += W * pitch) {
        double *to = (double *)acc + r;
        vd lo = vdload(to), hi = vdload(to + W / 2);
        transpose(x, pitch, turned, W, cols, W);
        for (int64_t i = 0; i < cols; i++) {
            lo *= vdwiden(turned + i * W);
            hi *= vdwiden(turned + i * W + W / 2);
        }
        vdstore(to, lo);
        vdstore(to + W / 2, hi);
    }
    for (int64_t r = short_rows; r < rows; r++, x += pitch) {
        vd s0 = one, s1 = one, s2 = one, s3 = one;
        double lane[W / 2], all = ((double *)acc)[r];
        int64_t i = 0;
        for (; i + 2 * W <= cols; i += 2 * W) {
            s0 *= vdwiden(x + i);
            s1 *= vdwiden(x + i + W / 2);
            s2 *= vdwiden(x + i + W);
            s3 *= vdwiden(x + i + W + W / 2);
        }
        vdstore(lane, (s0 * s1) * (s2 * s3));
        for (int k = 0; k < W / 2; k++)
            all *= lane[k];
        for (; i < cols; i++)
            all *= (double)x[i];
        ((double *)acc)[r] = all;
    }
}

/* `best`, lane by lane, where it is not a number, else `next`. */
VEC_FN vf unless_nan(vf best, vf next)
{
    const __typeof__(best != best) is_nan = best != best;
    return (vf)((is_nan & (__typeof__(is_nan))best) | (~is_nan & (__typeof__(is_nan))next));
}

/* A NaN is taken and stays. Vectors pass over it, as vmax and vmin return their second operand
 * then; two vectors are looked at for NaN at a time, and where there is one, all is done again with
 * care: that is the rarer case. */
#define EXTREME(name, vbest, BEYOND)                                                              \
    static float name##_with_care(const float *x, int64_t n, float best)                          \
    {                                                                                             \
        for (int64_t i = 0; i < n; i++)                                                           \
            best = best != best || !(x[i] BEYOND best || x[i] != x[i]) ? best : x[i];             \
        return best;                                                                              \
    }                                                                                             \
                                                                                                  \
    static float name##_row(const float *x, int64_t n, float best)                                \
    {                                                                                             \
        enum { AT_ONCE = 8 };                                                                     \
        const int64_t end = n - n % W;                                                            \
        float lane[W];                                                                            \
        vf v[AT_ONCE];                                                                            \
        vodd odd = vodd_none();                                                                   \
        int64_t i = 0;                                                                            \
        VEC_LOOP                                                                                  \
        for (int k = 0; k < AT_ONCE; k++)                                                         \
            v[k] = vset1(best);                                                                   \
        for (; i + AT_ONCE * W <= n; i += AT_ONCE * W)                                            \
            VEC_LOOP                                                                              \
        for (int k = 0; k < AT_ONCE; k += 2) {                                                    \
            const vf a = vload(x + i + k * W), b = vload(x + i + k * W + W);                      \
            odd = vodd_or(odd, vodd_of(a, b));                                                    \
            v[k] = vbest(a, v[k]);                                                                \
            v[k + 1] = vbest(b, v[k + 1]);                                                        \
        }                                                                                         \
        for (; i < end; i += W) {                                                                 \
            const vf a = vload(x + i);                                                            \
            odd = vodd_or(odd, vodd_of(a, a));                                                    \
            v[0] = vbest(a, v[0]);                                                                \
        }                                                                                         \
        if (vodd_any(odd) || best != best)                                                        \
            return name##_with_care(x, n, best);                                                  \
        VEC_LOOP                                                                                  \
        for (int k = 1; k < AT_ONCE; k++)                                                         \
            v[0] = vbest(v[k], v[0]);                                                             \
        vstore(lane, v[0]);                                                                       \
        return name##_with_care(x + end, n - end, name##_with_care(lane, W, best));               \
    }                                                                                             \
                                                                                                  \
    static void name##_rows(const float *x, int64_t rows, int64_t pitch, int64_t cols, void *acc) \
    {                                                                                             \
        int64_t short_rows = cols < SHORT_ROW ? rows - rows % W : 0;                              \
        float turned[SHORT_ROW * W];                                                              \
        for (int64_t r = 0; r < short_rows; r += W, x += W * pitch) {                             \
            vf v = vload((float *)acc + r);                                                       \
            transpose(x, pitch, turned, W, cols, W);                                              \
            for (int64_t i = 0; i < cols; i++)                                                    \
                v = unless_nan(v, vbest(v, vload(turned + i * W)));                               \
            vstore((float *)acc + r, v);                                                          \
        }                                                                                         \
        for (int64_t r = short_rows; r < rows; r++, x += pitch)                                   \
            ((float *)acc)[r] = name##_row(x, cols, ((float *)acc)[r]);                           \
    }                                                                                             \
                                                                                                  \
    static void name##_columns(const float *x, int64_t rows, int64_t pitch, int64_t cols,         \
                               void *acc)                                                         \
    {                                                                                             \
        enum { ROWS = 8 };                                                                        \
        for (int64_t r = 0; r < rows; r += ROWS, x += ROWS * pitch) {                             \
            const int64_t count = rows - r < ROWS ? rows - r : ROWS;                              \
            for (int64_t i = 0; i < cols; i += W) {                                               \
                float *to = (float *)acc + i;                                                     \
                const vf before = vload(to);                                                      \
                vf v = before;                                                                    \
                vodd odd = vodd_none();                                                           \
                for (int64_t k = 0; k < count; k++) {                                             \
                    const vf a = vload_upto(x + k * pitch + i, cols - i);                         \
                    odd = vodd_or(odd, vodd_of(a, a));                                            \
                    v = vbest(a, v);                                                              \
                }                                                                                 \
                if (vodd_any(odd)) {                                                              \
                    v = before;                                                                   \
                    for (int64_t k = 0; k < count; k++)                                           \
                        v = unless_nan(v, vbest(v, vload_upto(x + k * pitch + i, cols - i)));     \
                }                                                                                 \
                vstore(to, v);                                                                    \
            }                                                                                     \
        }                                                                                         \
    }
EXTREME(max, vmax, >)
EXTREME(min, vmin, <)
#undef EXTREME

/* --- whole numbers ---------------------------------------------------------------------------- */
/* Whole numbers of 64 bits, of which the compiler makes vectors; sums wrap around. */
#define WHOLE(name, U, KEEP)                                                                 \
    static void name##_i64_rows(const void *p, int64_t rows, int64_t pitch, int64_t cols,    \
                                void *acc)                                                   \
    {                                                                                        \
        const U *x = p;                                                                      \
        for (int64_t r = 0; r < rows; r++, x += pitch) {                                     \
            U all = ((const U *)acc)[r];                                                     \
            for (int64_t i = 0; i < cols; i++)                                               \
                all = KEEP(all, x[i]);                                                       \
            ((U *)acc)[r] = all;                                                             \
        }                                                                                    \
    }                                                                                        \
                                                                                             \
    static void name##_i64_columns(const void *p, int64_t rows, int64_t pitch, int64_t cols, \
                                   void *acc)                                                \
    {                                                                                        \
        const U *restrict x = p;                                                             \
        U *restrict all = acc;                                                               \
        for (int64_t r = 0; r < rows; r++, x += pitch)                                       \
            for (int64_t i = 0; i < cols; i++)                                               \
                all[i] = KEEP(all[i], x[i]);                                                 \
    }
#define KEEP_SUM(a, v) ((a) + (v))
#define KEEP_MAX(a, v) ((v) > (a) ? (v) : (a))
#define KEEP_MIN(a, v) ((v) < (a) ? (v) : (a))
WHOLE(sum, uint64_t, KEEP_SUM)
WHOLE(max, int64_t, KEEP_MAX)
WHOLE(min, int64_t, KEEP_MIN)
#undef KEEP_SUM
#undef KEEP_MAX
#undef KEEP_MIN
#undef WHOLE

/* --- what is not finite ----------------------------------------------------------------------- */
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
