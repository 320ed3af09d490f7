/* SPDX-License-Identifier: Apache-2.0 */
/* Sums, products, maxima, minima and what is not finite, over rows and over columns; see
 * tsri_fast_reduce_fn. Included once per instruction set; see vec.h. Sums and products are f64. */

/* Rows that are too short for vectors are turned, W of them at once, and reduced as columns. */
enum { SHORT_ROW = 2 * W };

/* How far ahead of what is read its memory is asked for. */
enum { AHEAD = 1024 };

/* Returns the sum of a row as lanes. */
VEC_FN vd sum_lanes(const float *x, int64_t cols)
{
    enum { AT_ONCE = 8, STEP = AT_ONCE * W / 2 };
    vd s[AT_ONCE] = {{0}};
    int64_t i = 0;
    for (; i + STEP <= cols; i += STEP)
        VEC_LOOP
    for (int k = 0; k < AT_ONCE; k++) {
        const float *at = x + i + k * W / 2;
        if (k % 2 == 0)
            __builtin_prefetch(at + AHEAD);
        s[k] += vdwiden(at);
    }
    for (; i < cols; i += W) {
        const vf v = vload_upto(x + i, cols - i);
        s[0] += vlo(v);
        s[1] += vhi(v);
    }
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* Sums four rows, read side by side, as lanes; asks for memory that is `ahead` of them. */
VEC_FN void sum_four(const float *x, int64_t pitch, int64_t cols, int64_t ahead, vd *sums)
{
    vd s[8] = {{0}};
    int64_t i = 0;
    for (; i + W <= cols; i += W)
        VEC_LOOP
    for (int k = 0; k < 4; k++) {
        const float *at = x + k * pitch + i;
        __builtin_prefetch(at + ahead);
        s[2 * k] += vdwiden(at);
        s[2 * k + 1] += vdwiden(at + W / 2);
    }
    VEC_LOOP
    for (int k = 0; k < 4; k++) {
        const vf v = vloadn(x + k * pitch + i, cols - i);
        sums[k] = (s[2 * k] + vlo(v)) + (s[2 * k + 1] + vhi(v));
    }
}

/* Sums n rows of a vector at most, as lanes. */
VEC_FN void sum_short(const float *x, int64_t pitch, int64_t cols, vd *sums, const int n)
{
    VEC_LOOP
    for (int k = 0; k < n; k++) {
        const vf v = vloadn(x + k * pitch, cols);
        sums[k] = vlo(v) + vhi(v);
    }
}

/* Returns the sum of a row, of which quarters are read side by side where it is long. */
static double sum_row(const float *x, int64_t cols)
{
    enum { LONG = 64 * AHEAD };
    const int64_t part = cols >= LONG ? cols / 4 / W * W : 0;
    vd s[4];
    sum_four(x, part, part, AHEAD, s);
    return vdsum(sum_lanes(x + 4 * part, cols - 4 * part) + ((s[0] + s[1]) + (s[2] + s[3])));
}

static void sum_rows(const float *x, int64_t rows, int64_t pitch, int64_t cols, void *acc)
{
    enum { AT_ONCE = W > 8 ? W / 2 : 4, NEAR = 8 * AHEAD };
    double *to = acc;
    int64_t r = 0;
    for (; r + AT_ONCE <= rows; r += AT_ONCE, x += AT_ONCE * pitch) {
        vd s[AT_ONCE];
        if (cols <= W) {
            sum_short(x, pitch, cols, s, AT_ONCE);
        } else if (4 * pitch <= NEAR) {
            for (int k = 0; k < AT_ONCE; k += 4)
                sum_four(x + k * pitch, pitch, cols, 4 * pitch, s + k);
        } else {
            for (int k = 0; k < AT_ONCE; k++)
                s[k] = sum_lanes(x + k * pitch, cols);
        }
        for (int k = 0; k < AT_ONCE; k += W / 2)
            vdstore(to + r + k, vdload(to + r + k) + vdsums(s + k));
    }
    for (; r < rows; r++, x += pitch)
        to[r] += sum_row(x, cols);
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

/* Several rows at a time, so that the accumulators are read and written less often than x, and
 * several vectors of them, the last of which has `last` columns. Meanwhile the memory of as many
 * rows more is asked for where that is not far. */
#define COLUMNS(name, OP)                                                                 \
    VEC_FN void name##_block(const float *x, int64_t rows, int64_t pitch, int64_t ahead,  \
                             int64_t last, double *acc, const int n)                      \
    {                                                                                     \
        vd s[8];                                                                          \
        VEC_LOOP                                                                          \
        for (int k = 0; k < 2 * n; k++)                                                   \
            s[k] = vdload(acc + k * W / 2);                                               \
        for (int64_t r = 0; r < rows; r++, x += pitch) {                                  \
            VEC_LOOP                                                                      \
            for (int k = 0; k < n; k++)                                                   \
                __builtin_prefetch(x + k * W + ahead);                                    \
            VEC_LOOP                                                                      \
            for (int k = 0; k < 2 * n - 2; k++)                                           \
                s[k] = s[k] OP vdwiden(x + k * W / 2);                                    \
            const vf v = vload_upto(x + (n - 1) * W, last);                               \
            s[2 * n - 2] = s[2 * n - 2] OP vlo(v);                                        \
            s[2 * n - 1] = s[2 * n - 1] OP vhi(v);                                        \
        }                                                                                 \
        VEC_LOOP                                                                          \
        for (int k = 0; k < 2 * n; k++)                                                   \
            vdstore(acc + k * W / 2, s[k]);                                               \
    }                                                                                     \
                                                                                          \
    static void name##_columns(const float *x, int64_t rows, int64_t pitch, int64_t cols, \
                               void *acc)                                                 \
    {                                                                                     \
        enum { ROWS = 4, VECTORS = 4, CHUNK = 2048, FAR = 4 * CHUNK };                    \
        const int64_t some = CHUNK / cols, most = some > ROWS ? some : ROWS;              \
        const int64_t ahead = most * pitch <= FAR ? most * pitch : AHEAD / 4;             \
        for (int64_t r = 0; r < rows; r += most, x += most * pitch) {                     \
            const int64_t n = rows - r < most ? rows - r : most;                          \
            for (int64_t i = 0; i < cols; i += VECTORS * W) {                             \
                double *to = (double *)acc + i;                                           \
                const int64_t left = cols - i;                                            \
                if (left > 3 * W)                                                         \
                    name##_block(x + i, n, pitch, ahead, left - 3 * W, to, 4);            \
                else if (left > 2 * W)                                                    \
                    name##_block(x + i, n, pitch, ahead, left - 2 * W, to, 3);            \
                else if (left > W)                                                        \
                    name##_block(x + i, n, pitch, ahead, left - W, to, 2);                \
                else                                                                      \
                    name##_block(x + i, n, pitch, ahead, left, to, 1);                    \
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
        transpose_f32(x, pitch, turned, W, cols, W);
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

/* Lanes that are `distance` apart, a power of two, change places. */
VEC_FN vf vexchanged(vf v, const int distance)
{
#if VEC_ISA == 512
    const mf x = (mf)v;
    return distance == 8   ? (vf)_mm512_shuffle_f32x4(x, x, 0x4e)
           : distance == 4 ? (vf)_mm512_shuffle_f32x4(x, x, 0xb1)
           : distance == 2 ? (vf)_mm512_permute_ps(x, 0x4e)
                           : (vf)_mm512_permute_ps(x, 0xb1);
#elif VEC_ISA == 256
    const mf x = (mf)v;
    return distance == 4   ? (vf)_mm256_permute2f128_ps(x, x, 1)
           : distance == 2 ? (vf)_mm256_permute_ps(x, 0x4e)
                           : (vf)_mm256_permute_ps(x, 0xb1);
#else
    return distance == 2 ? (vf){v[2], v[3], v[0], v[1]} : (vf){v[1], v[0], v[3], v[2]};
#endif
}

/* A NaN is taken and stays. Vectors pass over it, as vmax and vmin return their second operand
 * then; two vectors are looked at for NaN at a time, and where there is one, all is done again with
 * care: that is the rarer case. A row's last vector may begin inside the one before. +0 is more
 * than -0, whatever the order. */
VEC_FN vf vgreatest(vf a, vf b)
{
    return vchoose(a == b, (vf)((vint)a & (vint)b), vmax(a, b));
}

VEC_FN vf vleast(vf a, vf b)
{
    return vchoose(a == b, (vf)((vint)a | (vint)b), vmin(a, b));
}

static float greatest(float a, float b)
{
    return a == 0 && b == 0 ? a + b : b > a || b != b ? b : a;
}

static float least(float a, float b)
{
    return a == 0 && b == 0 ? -(-a - b) : b < a || b != b ? b : a;
}

#define EXTREME(name, vbest, best_of)                                                             \
    static float name##_with_care(const float *x, int64_t n, float best)                          \
    {                                                                                             \
        for (int64_t i = 0; i < n; i++)                                                           \
            best = best_of(best, x[i]);                                                           \
        return best;                                                                              \
    }                                                                                             \
                                                                                                  \
    VEC_FN float name##_lanes(vf v, float best)                                                   \
    {                                                                                             \
        VEC_LOOP                                                                                  \
        for (int d = W / 2; d > 0; d /= 2)                                                        \
            v = vbest(v, vexchanged(v, d));                                                       \
        return best_of(best, v[0]);                                                               \
    }                                                                                             \
                                                                                                  \
    static float name##_row(const float *x, int64_t n, float best)                                \
    {                                                                                             \
        enum { AT_ONCE = 8 };                                                                     \
        vf v[AT_ONCE];                                                                            \
        int64_t i = 0;                                                                            \
        if (n < W)                                                                                \
            return name##_with_care(x, n, best);                                                  \
        VEC_LOOP                                                                                  \
        for (int k = 0; k < AT_ONCE; k++)                                                         \
            v[k] = vload(x + n - W);                                                              \
        vodd odd = vodd_of(v[0], v[0]);                                                           \
        for (; i + AT_ONCE * W <= n; i += AT_ONCE * W)                                            \
            VEC_LOOP                                                                              \
        for (int k = 0; k < AT_ONCE; k += 2) {                                                    \
            const float *at = x + i + k * W;                                                      \
            const vf a = vload(at), b = vload(at + W);                                            \
            __builtin_prefetch(at + AHEAD);                                                       \
            __builtin_prefetch(at + AHEAD + W);                                                   \
            odd = vodd_or(odd, vodd_of(a, b));                                                    \
            v[k] = vbest(a, v[k]);                                                                \
            v[k + 1] = vbest(b, v[k + 1]);                                                        \
        }                                                                                         \
        for (; i + W <= n; i += W) {                                                              \
            const vf a = vload(x + i);                                                            \
            odd = vodd_or(odd, vodd_of(a, a));                                                    \
            v[0] = vbest(a, v[0]);                                                                \
        }                                                                                         \
        if (vodd_any(odd))                                                                        \
            return name##_with_care(x, n, best);                                                  \
        VEC_LOOP                                                                                  \
        for (int k = 1; k < AT_ONCE; k++)                                                         \
            v[0] = vbest(v[k], v[0]);                                                             \
        return name##_lanes(v[0], best);                                                          \
    }                                                                                             \
                                                                                                  \
    static void name##_rows(const float *x, int64_t rows, int64_t pitch, int64_t cols, void *acc) \
    {                                                                                             \
        int64_t short_rows = cols < SHORT_ROW ? rows - rows % W : 0, r = 0;                       \
        float turned[SHORT_ROW * W];                                                              \
        for (; r < short_rows; r += W, x += W * pitch) {                                          \
            vf v = vload((float *)acc + r);                                                       \
            transpose_f32(x, pitch, turned, W, cols, W);                                          \
            for (int64_t i = 0; i < cols; i++)                                                    \
                v = unless_nan(v, vbest(v, vload(turned + i * W)));                               \
            vstore((float *)acc + r, v);                                                          \
        }                                                                                         \
        for (; r < rows; r++, x += pitch)                                                         \
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
EXTREME(max, vgreatest, greatest)
EXTREME(min, vleast, least)
#undef EXTREME

/* --- the places of the largest ---------------------------------------------------------------- */
static int64_t find(const float *x, int64_t n, float v)
{
    const vf wanted = vset1(v);
    const vint nan = (vint)(wanted != wanted);
    int64_t i = 0;
    for (; i + W <= n; i += W) {
        const vf a = vload(x + i);
        if (!vall(~((vint)(a == wanted) | ((vint)(a != a) & nan))))
            break;
    }
    while (x[i] != v && (v == v || x[i] == x[i]))
        i++;
    return i;
}

/* Columns of `vectors` vectors, the last of which has `last`. */
VEC_FN void argmax_block(const float *x, int64_t n, int64_t pitch, int64_t last, int64_t *y,
                         const int vectors)
{
    vf best[4];
    vn at[4];
    int32_t place[4 * W];
    VEC_LOOP
    for (int k = 0; k < vectors; k++) {
        best[k] = vload_upto(x + k * W, k < vectors - 1 ? W : last);
        at[k] = (vn){0};
    }
    for (int64_t r = 1; r < n; r++) {
        x += pitch;
        VEC_LOOP
        for (int k = 0; k < vectors - 1; k++)
            max_take(vload(x + k * W), (int32_t)r, &best[k], &at[k]);
        max_take(vload_upto(x + (vectors - 1) * W, last), (int32_t)r, &best[vectors - 1],
                 &at[vectors - 1]);
    }
    memcpy(place, at, (size_t)vectors * sizeof *at);
    for (int64_t i = 0; i < (vectors - 1) * W + last; i++)
        y[i] = place[i];
}

static void argmax_columns(const float *x, int64_t n, int64_t pitch, int64_t cols, int64_t *y)
{
    int64_t i = 0;
    for (; i + 4 * W <= cols; i += 4 * W)
        argmax_block(x + i, n, pitch, W, y + i, 4);
    for (; i < cols; i += W)
        argmax_block(x + i, n, pitch, cols - i < W ? cols - i : W, y + i, 1);
}

/* --- whole numbers ---------------------------------------------------------------------------- */
/* Whole numbers of 64 bits, of which the compiler makes vectors; sums wrap around. */
#define WHOLE_ROWS(name, U, KEEP)                                                         \
    static void name##_i64_rows(const void *p, int64_t rows, int64_t pitch, int64_t cols, \
                                void *acc)                                                \
    {                                                                                     \
        const U *x = p;                                                                   \
        for (int64_t r = 0; r < rows; r++, x += pitch) {                                  \
            U all = ((const U *)acc)[r];                                                  \
            for (int64_t i = 0; i < cols; i++)                                            \
                all = KEEP(all, x[i]);                                                    \
            ((U *)acc)[r] = all;                                                          \
        }                                                                                 \
    }
#define WHOLE_COLUMNS(name, U, KEEP)                                                         \
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
WHOLE_COLUMNS(sum, uint64_t, KEEP_SUM)
WHOLE_COLUMNS(max, int64_t, KEEP_MAX)
WHOLE_COLUMNS(min, int64_t, KEEP_MIN)
WHOLE_ROWS(max, int64_t, KEEP_MAX)
WHOLE_ROWS(min, int64_t, KEEP_MIN)
#undef KEEP_SUM
#undef KEEP_MAX
#undef KEEP_MIN
#undef WHOLE_ROWS
#undef WHOLE_COLUMNS

static void sum_i64_rows(const void *p, int64_t rows, int64_t pitch, int64_t cols, void *acc)
{
    enum { AT_ONCE = 8, LANES = W / 2 };
    const uint64_t *x = p;
    for (int64_t r = 0; r < rows; r++, x += pitch) {
        vu s[AT_ONCE] = {{0}}, v;
        uint64_t lane[LANES], all = ((const uint64_t *)acc)[r];
        int64_t i = 0;
        for (; i + AT_ONCE * LANES <= cols; i += AT_ONCE * LANES)
            VEC_LOOP
        for (int k = 0; k < AT_ONCE; k++) {
            __builtin_prefetch(x + i + k * LANES + AHEAD / 2);
            memcpy(&v, x + i + k * LANES, sizeof v);
            s[k] += v;
        }
        for (; i + LANES <= cols; i += LANES) {
            memcpy(&v, x + i, sizeof v);
            s[0] += v;
        }
        for (; i < cols; i++)
            all += x[i];
        v = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
        memcpy(lane, &v, sizeof v);
        for (int k = 0; k < LANES; k++)
            all += lane[k];
        ((uint64_t *)acc)[r] = all;
    }
}

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
