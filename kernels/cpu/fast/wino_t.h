/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transforms of Winograd's convolutions F(4x4, 3x3), vectorised over channels: Lavin and Gray,
 * "Fast Algorithms for Convolutional Neural Networks" (2016). Included once per instruction set;
 * see vec.h.
 *
 * A polynomial of degree 5 is known by its values at 0, a, -a, b, -b and its first coefficient.
 * Points beside 1 make smaller errors than 1 and 2 do (Barabasz et al., "Error Analysis and
 * Improving the Accuracy of Winograd Convolution for Deep Neural Networks", 2020): with 3/4 and 3/2
 * they are about twice those of plain sums, and all of the images' factors are exact in f32.
 */
#define WINO_A 0.75f
#define WINO_B 1.5f
#define WINO_AA (WINO_A * WINO_A)
#define WINO_BB (WINO_B * WINO_B)

/* v = B^T d: six values of an image -> those of six points. */
VEC_FN void wino_points(const vf d[6], vf v[6])
{
    const vf a = vset1(WINO_A), b = vset1(WINO_B), aa = vset1(-WINO_AA), bb = vset1(-WINO_BB);
    const vf sum = vset1(-(WINO_AA + WINO_BB)), product = vset1(WINO_AA * WINO_BB);
    const vf even_a = vfma(bb, d[2], d[4]), odd_a = vfma(bb, d[1], d[3]);
    const vf even_b = vfma(aa, d[2], d[4]), odd_b = vfma(aa, d[1], d[3]);
    v[0] = vfma(product, d[0], vfma(sum, d[2], d[4]));
    v[1] = vfma(a, odd_a, even_a);
    v[2] = vfma(-a, odd_a, even_a);
    v[3] = vfma(b, odd_b, even_b);
    v[4] = vfma(-b, odd_b, even_b);
    v[5] = vfma(product, d[1], vfma(sum, d[3], d[5]));
}

/* y = A^T m: products at six points -> four values. */
VEC_FN void wino_values(const vf m[6], vf y[4])
{
    const vf even_a = m[1] + m[2], odd_a = (m[1] - m[2]) * vset1(WINO_A);
    const vf even_b = m[3] + m[4], odd_b = (m[3] - m[4]) * vset1(WINO_B);
    const vf aa = vset1(WINO_AA), bb = vset1(WINO_BB);
    y[0] = m[0] + (even_a + even_b);
    y[1] = odd_a + odd_b;
    y[2] = vfma(aa, even_a, bb * even_b);
    y[3] = vfma(aa, odd_a, vfma(bb, odd_b, m[5]));
}

/* z = A y: the other way around. */
VEC_FN void wino_values_back(const vf y[4], vf z[6])
{
    const vf a = vset1(WINO_A), b = vset1(WINO_B), aa = vset1(WINO_AA), bb = vset1(WINO_BB);
    const vf even_a = vfma(aa, y[2], y[0]), odd_a = vfma(aa, y[3], y[1]);
    const vf even_b = vfma(bb, y[2], y[0]), odd_b = vfma(bb, y[3], y[1]);
    z[0] = y[0];
    z[1] = vfma(a, odd_a, even_a);
    z[2] = vfma(-a, odd_a, even_a);
    z[3] = vfma(b, odd_b, even_b);
    z[4] = vfma(-b, odd_b, even_b);
    z[5] = y[3];
}

/* 1 over the products of a point's distances from the others. */
#define WINO_N0 (1.0f / (WINO_AA * WINO_BB))
#define WINO_NA (1.0f / (2.0f * WINO_AA * (WINO_AA - WINO_BB)))
#define WINO_NB (1.0f / (2.0f * WINO_BB * (WINO_BB - WINO_AA)))

/* u = G g: three taps -> six points. */
VEC_FN void wino_taps(const vf g[3], vf u[6])
{
    const vf na = vset1(WINO_NA), nb = vset1(WINO_NB);
    const vf even_a = vfma(g[2], vset1(WINO_AA), g[0]) * na, odd_a = g[1] * vset1(WINO_A * WINO_NA);
    const vf even_b = vfma(g[2], vset1(WINO_BB), g[0]) * nb, odd_b = g[1] * vset1(WINO_B * WINO_NB);
    u[0] = g[0] * vset1(WINO_N0);
    u[1] = even_a + odd_a;
    u[2] = even_a - odd_a;
    u[3] = even_b + odd_b;
    u[4] = even_b - odd_b;
    u[5] = g[2];
}

/* g = G^T u: the other way around. */
VEC_FN void wino_taps_back(const vf u[6], vf g[3])
{
    const vf na = vset1(WINO_NA), nb = vset1(WINO_NB);
    const vf even_a = (u[1] + u[2]) * na, even_b = (u[3] + u[4]) * nb;
    g[0] = vfma(u[0], vset1(WINO_N0), even_a + even_b);
    g[1] = vfma(u[1] - u[2], vset1(WINO_A * WINO_NA), (u[3] - u[4]) * vset1(WINO_B * WINO_NB));
    g[2] = vfma(even_a, vset1(WINO_AA), vfma(even_b, vset1(WINO_BB), u[5]));
}

/* Tells whether a pass over the images makes row i of the points: all, or two that share work. */
#define WINO_MAKES(rows, i) \
    ((rows) == TSRI_WINO_ALL || ((i) == 0 || (i) == 5 ? 0 : ((i) + 1) / 2) == (int)(rows))

/* dst[points][pitch]: n x n pixels at src, of `channels` each, become points. */
#define WINO_PIXELS(n, line, src, channels, dst, pitch, rows)                 \
    for (int64_t c = 0; c < (channels); c += W) {                             \
        vf half[6][n];                                                        \
        float *to = (dst) + c;                                                \
        VEC_LOOP                                                              \
        for (int j = 0; j < (n); j++) {                                       \
            vf column[n], v[6];                                               \
            VEC_LOOP                                                          \
            for (int i = 0; i < (n); i++)                                     \
                column[i] = vload_upto((src)[i * (n) + j] + c, (channels)-c); \
            line(column, v);                                                  \
            VEC_LOOP                                                          \
            for (int i = 0; i < 6; i++)                                       \
                half[i][j] = v[i];                                            \
        }                                                                     \
        VEC_LOOP                                                              \
        for (int i = 0; i < 6; i++) {                                         \
            vf v[6];                                                          \
            if (!WINO_MAKES(rows, i))                                         \
                continue;                                                     \
            line(half[i], v);                                                 \
            VEC_LOOP                                                          \
            for (int j = 0; j < 6; j++, to += (pitch))                        \
                vstore(to, v[j]);                                             \
        }                                                                     \
    }

#define WINO_PASSES(n, fn, line)                                                         \
    static void fn(const float *const *src, int64_t channels, float *dst, int64_t pitch, \
                   tsri_wino_rows rows)                                                  \
    {                                                                                    \
        if (rows == TSRI_WINO_ALL) {                                                     \
            WINO_PIXELS(n, line, src, channels, dst, pitch, TSRI_WINO_ALL)               \
        } else if (rows == TSRI_WINO_ENDS) {                                             \
            WINO_PIXELS(n, line, src, channels, dst, pitch, TSRI_WINO_ENDS)              \
        } else if (rows == TSRI_WINO_NEAR) {                                             \
            WINO_PIXELS(n, line, src, channels, dst, pitch, TSRI_WINO_NEAR)              \
        } else {                                                                         \
            WINO_PIXELS(n, line, src, channels, dst, pitch, TSRI_WINO_FAR)               \
        }                                                                                \
    }
WINO_PASSES(6, wino_image, wino_points)
WINO_PASSES(4, wino_slopes, wino_values_back)

/* sums[points][pitch] -> 4 x 4 pixels of `channels`, NULL where there is none, + bias. */
static void wino_pixels(const float *sums, int64_t pitch, int64_t channels, const float *bias,
                        float *const *dst)
{
    for (int64_t c = 0; c < channels; c += W) {
        const vf add = bias ? vload_upto(bias + c, channels - c) : vset1(0.0f);
        vf half[4][6];
        VEC_LOOP
        for (int j = 0; j < 6; j++) {
            vf m[6], y[4];
            VEC_LOOP
            for (int i = 0; i < 6; i++)
                m[i] = vload(sums + (6 * i + j) * pitch + c);
            wino_values(m, y);
            VEC_LOOP
            for (int i = 0; i < 4; i++)
                half[i][j] = y[i];
        }
        VEC_LOOP
        for (int i = 0; i < 4; i++) {
            vf y[4];
            wino_values(half[i], y);
            VEC_LOOP
            for (int j = 0; j < 4; j++)
                if (dst[4 * i + j])
                    vstore_upto(dst[4 * i + j] + c, y[j] + add, channels - c);
        }
    }
}

/* taps[9], `step` apart, of n products (whole vectors) -> dst[points][pitch]. */
static void wino_weights(const float *taps, int64_t step, int64_t n, float *dst, int64_t pitch)
{
    for (int64_t c = 0; c < n; c += W) {
        vf half[6][3];
        VEC_LOOP
        for (int j = 0; j < 3; j++) {
            vf g[3], u[6];
            VEC_LOOP
            for (int i = 0; i < 3; i++)
                g[i] = vload(taps + (3 * i + j) * step + c);
            wino_taps(g, u);
            VEC_LOOP
            for (int i = 0; i < 6; i++)
                half[i][j] = u[i];
        }
        VEC_LOOP
        for (int i = 0; i < 6; i++) {
            vf u[6];
            wino_taps(half[i], u);
            VEC_LOOP
            for (int j = 0; j < 6; j++)
                vstore(dst + (6 * i + j) * pitch + c, u[j]);
        }
    }
}

/* The sums over `parts`, `part_pitch` apart, of the points of a pass, [points][pitch], n of them
 * (whole vectors): taps[9][step] = or += what they are of the weights' gradient. */
static void wino_fold(const float *sums, int parts, int64_t part_pitch, int64_t pitch, int64_t n,
                      tsri_wino_rows rows, bool add, float *taps, int64_t step)
{
    for (int64_t c = 0; c < n; c += W) {
        const float *from = sums + c;
        vf half[3][6];
        VEC_LOOP
        for (int i = 0; i < 6; i++) {
            vf u[6], g[3];
            const bool made = WINO_MAKES(rows, i);
            VEC_LOOP
            for (int j = 0; j < 6; j++) {
                u[j] = vset1(0.0f);
                for (int q = 0; made && q < parts; q++)
                    u[j] += vload(from + q * part_pitch);
                from += made ? pitch : 0;
            }
            wino_taps_back(u, g);
            VEC_LOOP
            for (int j = 0; j < 3; j++)
                half[j][i] = g[j];
        }
        VEC_LOOP
        for (int j = 0; j < 3; j++) {
            vf g[3];
            wino_taps_back(half[j], g);
            VEC_LOOP
            for (int i = 0; i < 3; i++) {
                float *to = taps + (3 * i + j) * step + c;
                vstore(to, add ? vload(to) + g[i] : g[i]);
            }
        }
    }
}
