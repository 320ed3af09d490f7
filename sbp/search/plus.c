/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/search/plus.h"

#include <math.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAVE_WIDE
#define WIDE __attribute__((target("avx2")))
#endif

static void min_columns(const double *h, const double *a, int rows, int cols, int from, double *out)
{
    for (int j = from; j < cols; j++)
        out[j] = INFINITY;
    for (int i = 0; i < rows; i++) {
        const double *row = a + (long)i * cols;
        for (int j = from; j < cols; j++) {
            double x = h[i] + row[j];
            out[j] = x < out[j] ? x : out[j];
        }
    }
}

static double excess(const double *t, const double *s, int count)
{
    double most = -INFINITY;
    for (int j = 0; j < count; j++) {
        double d = s[j] < INFINITY ? t[j] - s[j] : -INFINITY;
        most = d > most ? d : most;
    }
    return most;
}

#ifdef HAVE_WIDE

/* Columns j to j + 16: as many minima as hide an addition's latency. */
WIDE static void min_16(const double *h, const double *a, int rows, int cols, double *out)
{
    __m256d inf = _mm256_set1_pd(INFINITY), m0 = inf, m1 = inf, m2 = inf, m3 = inf;
    for (int i = 0; i < rows; i++, a += cols) {
        __m256d x = _mm256_set1_pd(h[i]);
        m0 = _mm256_min_pd(_mm256_add_pd(x, _mm256_loadu_pd(a)), m0);
        m1 = _mm256_min_pd(_mm256_add_pd(x, _mm256_loadu_pd(a + 4)), m1);
        m2 = _mm256_min_pd(_mm256_add_pd(x, _mm256_loadu_pd(a + 8)), m2);
        m3 = _mm256_min_pd(_mm256_add_pd(x, _mm256_loadu_pd(a + 12)), m3);
    }
    _mm256_storeu_pd(out, m0);
    _mm256_storeu_pd(out + 4, m1);
    _mm256_storeu_pd(out + 8, m2);
    _mm256_storeu_pd(out + 12, m3);
}

WIDE static void min_4(const double *h, const double *a, int rows, int cols, double *out)
{
    __m256d m = _mm256_set1_pd(INFINITY);
    for (int i = 0; i < rows; i++, a += cols)
        m = _mm256_min_pd(_mm256_add_pd(_mm256_set1_pd(h[i]), _mm256_loadu_pd(a)), m);
    _mm256_storeu_pd(out, m);
}

/* The last block overlaps the one before rather than being short. */
WIDE static void min_wide(const double *h, const double *a, int rows, int cols, double *out)
{
    int j = 0;
    for (; j + 16 <= cols; j += 16)
        min_16(h, a + j, rows, cols, out + j);
    if (cols - j > 8 && cols >= 16) {
        min_16(h, a + cols - 16, rows, cols, out + cols - 16);
        return;
    }
    for (; j + 4 <= cols; j += 4)
        min_4(h, a + j, rows, cols, out + j);
    if (j < cols)
        min_4(h, a + cols - 4, rows, cols, out + cols - 4);
}

WIDE static double excess_wide(const double *t, const double *s, int count)
{
    __m256d low = _mm256_set1_pd(-INFINITY), inf = _mm256_set1_pd(INFINITY), most = low;
    double lanes[4], best;
    int j = 0;
    for (; j + 4 <= count; j += 4) {
        __m256d own = _mm256_loadu_pd(s + j);
        __m256d d = _mm256_sub_pd(_mm256_loadu_pd(t + j), own);
        d = _mm256_blendv_pd(low, d, _mm256_cmp_pd(own, inf, _CMP_LT_OQ));
        most = _mm256_max_pd(d, most);
    }
    _mm256_storeu_pd(lanes, most);
    best = excess(t + j, s + j, count - j);
    for (int i = 0; i < 4; i++)
        best = lanes[i] > best ? lanes[i] : best;
    return best;
}

#endif

void tsri_plus_min(const double *h, const double *a, int rows, int cols, double *out)
{
#ifdef HAVE_WIDE
    if (cols >= 4 && __builtin_cpu_supports("avx2")) {
        min_wide(h, a, rows, cols, out);
        return;
    }
#endif
    min_columns(h, a, rows, cols, 0, out);
}

double tsri_plus_excess(const double *t, const double *s, int count)
{
#ifdef HAVE_WIDE
    if (count >= 4 && __builtin_cpu_supports("avx2"))
        return excess_wide(t, s, count);
#endif
    return excess(t, s, count);
}
