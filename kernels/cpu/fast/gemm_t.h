/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: packing and the register tile. Included once per instruction set; see vec.h. */

/* Rows of a tile of 1, 2, 3 vectors: what the registers hold. */
#if VEC_ISA == 512
enum { ROWS1 = 8, ROWS2 = 8, ROWS3 = 8 };
#else
enum { ROWS1 = 8, ROWS2 = 6, ROWS3 = 4 };
#endif

/* Adds to the sums of mr rows the terms from *k up to `end`; b is where term *k is. asks: for one
 * line of what is wanted ahead with each term. */
VEC_FN void tile_terms(const tsri_fast_tile *t, const float *const a[8], const float **b,
                       int64_t *k, int64_t end, const int mr, const int nv, vf acc[8][3],
                       const char *ahead, const bool asks)
{
    const int64_t last = t->cols - (int64_t)(nv - 1) * W; /* columns of the last vector */
    /* b's rows are whole vectors when packed; else its last one may end inside a vector. */
    const bool whole = t->packed || last == W;
    const float *row = *b;
    int64_t at = *k, off = at * t->ak;
    for (; at < end; at++, off += t->ak, row += t->bk) {
        vf bv[3];
        if (asks) {
            __builtin_prefetch(ahead, 0, 2);
            ahead += TSRI_AHEAD_LINE;
        }
        VEC_LOOP
        for (int j = 0; j < nv; j++)
            bv[j] = j < nv - 1 || whole ? vload(row + j * W) : vloadn(row + j * W, last);
        VEC_LOOP
        for (int r = 0; r < mr; r++) {
            vf av = vset1(a[r][off]);
            VEC_LOOP
            for (int j = 0; j < nv; j++)
                acc[r][j] = vfma(av, bv[j], acc[r][j]);
        }
    }
    *b = row;
    *k = at;
}

/* Sums of mr rows, of which `rows` are there: `first` is a's first one. */
VEC_FN void tile_sums(const tsri_fast_tile *t, const float *first, int64_t rows, const int mr,
                      const int nv, vf acc[8][3])
{
    const float *a[8];
    const float *b = t->b;
    int64_t k = 0, lines;
    VEC_LOOP
    for (int r = 0; r < mr; r++) {
        a[r] = first + (r < rows ? r : rows - 1) * t->ar;
        VEC_LOOP
        for (int j = 0; j < nv; j++)
            acc[r][j] = vset1(0.0f);
    }
    const char *ahead = tsri_ahead_take(t->ahead, t->k, &lines);
    if (lines)
        tile_terms(t, a, &b, &k, lines, mr, nv, acc, ahead, true);
    tile_terms(t, a, &b, &k, t->k, mr, nv, acc, NULL, false);
}

VEC_FN void tile(const tsri_fast_tile *t, const int mr, const int nv)
{
    const int64_t last = t->cols - (int64_t)(nv - 1) * W;
    const bool plain = last == W && !t->add && !t->bias; /* nearly always, where k is short */
    for (int64_t at = 0; at < t->rows; at += mr) {
        const int64_t rows = t->rows - at;
        float *to = t->c + at * t->ldc;
        vf acc[8][3];
        tile_sums(t, t->a + at * t->ar, rows, mr, nv, acc);
        if (plain && rows >= mr) {
            VEC_LOOP
            for (int r = 0; r < mr; r++)
                VEC_LOOP
            for (int j = 0; j < nv; j++)
                vstore(to + r * t->ldc + j * W, acc[r][j]);
            continue;
        }
        VEC_LOOP
        for (int r = 0; r < mr; r++) {
            if (r >= rows)
                break;
            float *c = to + r * t->ldc;
            VEC_LOOP
            for (int j = 0; j < nv; j++) {
                int64_t n = j < nv - 1 ? W : last;
                vf v = acc[r][j];
                if (t->add)
                    v += vload_upto(c + j * W, n);
                if (t->bias)
                    v += vload_upto(t->bias + j * W, n);
                vstore_upto(c + j * W, v, n);
            }
        }
    }
}

#define GEMM_TILE(nv)                                  \
    static void gemm_tile##nv(const tsri_fast_tile *t) \
    {                                                  \
        tile(t, ROWS##nv, nv);                         \
    }
GEMM_TILE(1)
GEMM_TILE(2)
GEMM_TILE(3)

typedef float vq __attribute__((vector_size(16)));
typedef int32_t vqi __attribute__((vector_size(16)));

VEC_FN vq vqload(const float *p)
{
    vq v;
    memcpy(&v, p, sizeof v);
    return v;
}

#if defined(__clang__)
#define VQ_SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define VQ_SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (vqi){i, j, k, l})
#endif

/* dst[i * ldd + j] = src[j * lds + i], i, j < 4. */
VEC_FN void transpose4(const float *src, int64_t lds, float *dst, int64_t ldd)
{
    vq r0 = vqload(src), r1 = vqload(src + lds), r2 = vqload(src + 2 * lds);
    vq r3 = vqload(src + 3 * lds);
    vq a = VQ_SHUFFLE(r0, r1, 0, 4, 1, 5), b = VQ_SHUFFLE(r2, r3, 0, 4, 1, 5);
    vq c = VQ_SHUFFLE(r0, r1, 2, 6, 3, 7), d = VQ_SHUFFLE(r2, r3, 2, 6, 3, 7);
    vq o0 = VQ_SHUFFLE(a, b, 0, 1, 4, 5), o1 = VQ_SHUFFLE(a, b, 2, 3, 6, 7);
    vq o2 = VQ_SHUFFLE(c, d, 0, 1, 4, 5), o3 = VQ_SHUFFLE(c, d, 2, 3, 6, 7);
    memcpy(dst, &o0, sizeof o0);
    memcpy(dst + ldd, &o1, sizeof o1);
    memcpy(dst + 2 * ldd, &o2, sizeof o2);
    memcpy(dst + 3 * ldd, &o3, sizeof o3);
}

/* dst[i * ldd + j] = src[j * lds + i] for i < rows, j < cols. */
static void transpose(const float *src, int64_t lds, float *dst, int64_t ldd, int64_t rows,
                      int64_t cols)
{
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        int64_t j = 0;
        for (; j + 4 <= cols; j += 4)
            transpose4(src + j * lds + i, lds, dst + i * ldd + j, ldd);
        for (; j < cols; j++)
            for (int64_t q = 0; q < 4; q++)
                dst[(i + q) * ldd + j] = src[j * lds + i + q];
    }
    for (; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            dst[i * ldd + j] = src[j * lds + i];
}

/* One panel: dst[k][width], columns from `cols` on are 0. b's element (k, j) is b[k*bk + j*bn],
 * and one of the strides is 1. */
static void gemm_pack(const float *b, int64_t bk, int64_t bn, int64_t k, int64_t cols,
                      int64_t width, float *dst)
{
    if (cols < width)
        for (int64_t i = 0; i < k; i++)
            memset(dst + i * width + cols, 0, (size_t)(width - cols) * sizeof *dst);
    if (bn == 1) {
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j < cols; j += W)
                vstore_upto(dst + i * width + j, vload_upto(b + i * bk + j, cols - j), cols - j);
        return;
    }
    transpose(b, bn, dst, width, k, cols);
}
