/* SPDX-License-Identifier: Apache-2.0 */
/* Loops that move elements by their places. Included once per instruction set; see vec.h. */

enum {
    LONG_ROW = 16384, /* bytes that are worth a call */
    ROWS_AHEAD = 8,   /* are asked for, where they do not lie behind each other, */
    FAR_ROW = 1024,   /* bytes; in longer ones hardware sees ahead by itself */
};

/* Pieces of a row: the last one may begin inside the one before, and in rows of many the second one
 * inside the first, so that stores do not touch two lines. */
#define COPY_BY(SIZE)                                                                   \
    for (int64_t r = 0; r < rows; r++, x += xr, y += yr) {                              \
        char piece[SIZE];                                                               \
        for (int64_t b = 0; apart && b < bytes; b += 64)                                \
            __builtin_prefetch(x + ROWS_AHEAD * xr + b);                                \
        memcpy(piece, x, SIZE);                                                         \
        memcpy(y, piece, SIZE);                                                         \
        const int64_t over = bytes < 8 * (SIZE) ? 0 : (int64_t)((uintptr_t)y % (SIZE)); \
        for (int64_t b = (SIZE)-over; b + (SIZE) < bytes; b += (SIZE)) {                \
            memcpy(piece, x + b, SIZE);                                                 \
            memcpy(y + b, piece, SIZE);                                                 \
        }                                                                               \
        memcpy(piece, x + bytes - (SIZE), SIZE);                                        \
        memcpy(y + bytes - (SIZE), piece, SIZE);                                        \
    }

static void copy_rows(const char *x, int64_t xr, char *y, int64_t yr, int64_t rows, int64_t bytes)
{
    const bool apart = xr > bytes + 64 && bytes <= FAR_ROW;
    if (bytes > LONG_ROW)
        for (int64_t r = 0; r < rows; r++)
            memcpy(y + r * yr, x + r * xr, (size_t)bytes);
    else if (bytes >= 4 * W)
        COPY_BY(4 * W)
    else if (W > 8 && bytes >= 32)
        COPY_BY(32)
    else if (W > 4 && bytes >= 16)
        COPY_BY(16)
    else if (bytes >= 8)
        COPY_BY(8)
    else if (bytes >= 4)
        COPY_BY(4)
    else if (bytes >= 2)
        COPY_BY(2)
    else
        COPY_BY(1)
}

VEC_FN vf vreverse(vf v)
{
#if VEC_ISA == 512
    const __m512i turned = _mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return (vf)_mm512_permutexvar_ps(turned, (__m512)v);
#elif VEC_ISA == 256
    return (vf)_mm256_permutevar8x32_ps((__m256)v, _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0));
#else
    return (vf){v[3], v[2], v[1], v[0]};
#endif
}

/* y[i] = x[-i], i < n. */
static void reverse(const float *x, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + W <= n; i += W)
        vstore(y + i, vreverse(vload(x - i - (W - 1))));
    for (; i < n; i++)
        y[i] = x[-i];
}

enum {
    PLACES_AHEAD = 512
}; /* are asked for: what is read beside them keeps their stream waiting */

static uint64_t most_id(const int64_t *ids, int64_t n)
{
    uint64_t most = 0;
    for (int64_t i = 0; i < n; i++)
        most = (uint64_t)ids[i] > most ? (uint64_t)ids[i] : most;
    return most;
}

static void pick(const float *x, const int64_t *ids, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const vq four = {x[ids[i]], x[ids[i + 1]], x[ids[i + 2]], x[ids[i + 3]]};
        memcpy(y + i, &four, sizeof four);
    }
    for (; i < n; i++)
        y[i] = x[ids[i]];
}

/* all: every id is a place here. */
VEC_FN void add_place(float x, int64_t at, int64_t len, const bool all, double *sums)
{
    if (all || (uint64_t)at < (uint64_t)len)
        sums[at] += (double)x;
}

VEC_FN void add_places(const float *x, const int64_t *ids, int64_t n, int64_t first, int64_t len,
                       const bool all, double *sums)
{
    enum { STEP = 8 };
    for (int64_t i = 0, step; i < n; i += step) {
        step = i + STEP <= n ? STEP : 1;
        __builtin_prefetch(ids + i + PLACES_AHEAD);
        __builtin_prefetch(x + i + PLACES_AHEAD);
        if (step == STEP)
            VEC_LOOP
        for (int k = 0; k < STEP; k++)
            add_place(x[i + k], ids[i + k] - first, len, all, sums);
        else add_place(x[i], ids[i] - first, len, all, sums);
    }
}

static uint64_t sum_places(const float *x, const int64_t *ids, int64_t n, int64_t first,
                           int64_t len, double *sums, float *y)
{
    const uint64_t most = most_id(ids, n);
    for (int64_t j = 0; j < len; j++)
        sums[j] = 0;
    if (first == 0 && most < (uint64_t)len)
        add_places(x, ids, n, 0, len, true, sums);
    else
        add_places(x, ids, n, first, len, false, sums);
    for (int64_t j = 0; j < len; j++)
        y[j] = (float)sums[j];
    return most;
}

/* At most four vectors of columns from c on, of which n exist. */
VEC_FN void add_block(const float *x, const int64_t *at, const double *by, int64_t rows,
                      int64_t cols, int64_t n, float *y)
{
    enum { WIDE = 4 };
    vd sum[WIDE][2] = {{{0}}};
    float own[WIDE * W];
    for (int64_t r = 0; r < rows; r++) {
        const float *row = x + at[r] * cols;
        if (n < WIDE * W)
            row = memcpy(own, row, (size_t)n * sizeof *row);
        const vd weight = (vd){0} + (by ? by[r] : 1);
        VEC_LOOP
        for (int v = 0; v < WIDE; v++) {
            sum[v][0] += vdwiden(row + v * W) * weight;
            sum[v][1] += vdwiden(row + v * W + W / 2) * weight;
        }
    }
    double all[WIDE * W];
    memcpy(all, sum, sizeof all);
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)all[i];
}

/* One row and two are summed in f32: it rounds as f64 does that is then rounded. */
static void add_rows(const float *x, const int64_t *at, const double *by, int64_t n, int64_t cols,
                     float *y)
{
    enum { WIDE = 4 * W };
    if (!by && n <= 2) {
        const float *a = n > 0 ? x + at[0] * cols : NULL, *b = n > 1 ? x + at[1] * cols : NULL;
        for (int64_t i = 0; i < cols; i += W) {
            const int64_t left = cols - i;
            vf sum = {0};
            if (a)
                sum += vload_upto(a + i, left);
            if (b)
                sum += vload_upto(b + i, left);
            vstore_upto(y + i, sum, left);
        }
        return;
    }
    int64_t i = 0;
    for (; i + WIDE <= cols; i += WIDE)
        add_block(x + i, at, by, n, cols, WIDE, y + i);
    if (i < cols)
        add_block(x + i, at, by, n, cols, cols - i, y + i);
}

static void mix(const float *a, const float *b, const float *part, float all, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += W) {
        const vf low = vload_upto(a + i, n - i), high = vload_upto(b + i, n - i);
        const vf by = part ? vload_upto(part + i, n - i) : vset1(all);
        vstore_upto(y + i, low + (high - low) * by, n - i);
    }
}

static void keys(const float *x, int64_t n, bool descending, uint32_t *key)
{
    const uint32_t turn = descending ? UINT32_MAX : 0;
    for (int64_t i = 0; i < n; i++) {
        const float v = x[i] == 0 ? 0 : x[i];
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        bits ^= (uint32_t) - (int32_t)(bits >> 31) | 1U << 31;
        key[i] = (v != v ? UINT32_MAX : bits) ^ turn;
    }
}

static int64_t below(const uint32_t *key, int64_t i, int64_t n, uint32_t limit)
{
#if VEC_ISA == 512
    const __m512i most = _mm512_set1_epi32((int)limit);
    for (; i + W <= n; i += W) {
        const __mmask16 less = _mm512_cmplt_epu32_mask(_mm512_loadu_si512(key + i), most);
        if (less)
            return i + __builtin_ctz(less);
    }
#elif VEC_ISA == 256
    const __m256i top = _mm256_set1_epi32(INT32_MIN);
    const __m256i most = _mm256_xor_si256(_mm256_set1_epi32((int)limit), top);
    for (; i + W <= n; i += W) {
        const __m256i v = _mm256_xor_si256(_mm256_loadu_si256((const void *)(key + i)), top);
        const int less = _mm256_movemask_ps((__m256)_mm256_cmpgt_epi32(most, v));
        if (less)
            return i + __builtin_ctz((unsigned)less);
    }
#endif
    while (i < n && key[i] >= limit)
        i++;
    return i;
}
