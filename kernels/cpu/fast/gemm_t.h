/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: packing and the register tile. Included once per instruction set; see vec.h. */

/* Rows of a tile of 1, 2, 3 vectors: what the registers hold. */
#if VEC_ISA == 512
enum { ROWS1 = 8, ROWS2 = 8, ROWS3 = 8 };
#else
enum { ROWS1 = 8, ROWS2 = 6, ROWS3 = 4 };
#endif

/* Adds to the sums of mr rows n terms, from *off on of a's rows and from *b on. asks: for one line
 * of what is wanted ahead with each term. */
VEC_FN void tile_terms(const tsri_fast_tile *t, const float *const a[8], const float **b,
                       int64_t *off, int64_t n, const int mr, const int nv, vf acc[8][3],
                       const char *ahead, const bool asks, const bool spread)
{
    /* Columns of the last vector; spread: of each. */
    const int64_t last = spread ? t->cols : t->cols - (int64_t)(nv - 1) * W;
    const int64_t apart = spread ? t->apart : W;
    /* b's rows are whole vectors when packed; else its last one may end inside a vector. */
    const bool whole = t->packed || last == W;
    const float *row = *b;
    int64_t at = *off;
    for (int64_t i = 0; i < n; i++, at += t->ak, row += t->bk) {
        vf bv[3];
        if (asks) {
            __builtin_prefetch(ahead, 0, 2);
            ahead += TSRI_AHEAD_LINE;
        }
        VEC_LOOP
        for (int j = 0; j < nv; j++)
            bv[j] = (j < nv - 1 && !spread) || whole ? vload(row + j * apart)
                                                     : vloadn(row + j * apart, last);
        VEC_LOOP
        for (int r = 0; r < mr; r++) {
            vf av = vset1(a[r][at]);
            VEC_LOOP
            for (int j = 0; j < nv; j++)
                acc[r][j] = vfma(av, bv[j], acc[r][j]);
        }
    }
    *b = row;
    *off = at;
}

/* Sums of mr rows from `first` on, of which `rows` are there. */
VEC_FN void tile_sums(const tsri_fast_tile *t, int64_t first, int64_t rows, const int mr,
                      const int nv, vf acc[8][3], const bool spread)
{
    const float *a[8];
    const float *b = t->b;
    int64_t off = 0, lines;
    VEC_LOOP
    for (int r = 0; r < mr; r++) {
        const int64_t at = first + (r < rows ? r : rows - 1);
        a[r] = t->a + (t->row ? t->row[at].a : at * t->ar);
        VEC_LOOP
        for (int j = 0; j < nv; j++)
            acc[r][j] = vset1(0.0f);
    }
    const char *ahead = tsri_ahead_take(t->ahead, t->k, &lines);
    if (lines)
        tile_terms(t, a, &b, &off, lines, mr, nv, acc, ahead, true, spread);
    if (!t->runs) {
        tile_terms(t, a, &b, &off, t->k - lines, mr, nv, acc, NULL, false, spread);
        return;
    }
    for (int64_t i = 0; i < t->runs; i++) {
        off = t->a_at ? t->a_at[i] : off;
        b = t->b_at ? t->b + t->b_at[i] * t->b_unit : b;
        tile_terms(t, a, &b, &off, t->k, mr, nv, acc, NULL, false, spread);
    }
}

VEC_FN float *tile_row(const tsri_fast_tile *t, int64_t row)
{
    return t->c + (t->row ? t->row[row].c : row * t->ldc);
}

/* Rows [at, at + mr) of a tile, as far as they are there. */
VEC_FN void tile_rows(const tsri_fast_tile *t, int64_t at, const int mr, const int nv)
{
    const int64_t last = t->cols - (int64_t)(nv - 1) * W, rows = t->rows - at;
    vf acc[8][3];
    tile_sums(t, at, rows, mr, nv, acc, false);
    /* Nearly always, where k is short. */
    if (last == W && !t->add && !t->bias && rows >= mr) {
        VEC_LOOP
        for (int r = 0; r < mr; r++) {
            float *c = tile_row(t, at + r);
            VEC_LOOP
            for (int j = 0; j < nv; j++)
                vstore(c + j * W, acc[r][j]);
        }
        return;
    }
    VEC_LOOP
    for (int r = 0; r < mr; r++) {
        if (r >= rows)
            break;
        float *c = tile_row(t, at + r);
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

/* Rows [at, at + mr) of a tile of vectors that are apart. */
VEC_FN void tile_rows_apart(const tsri_fast_tile *t, int64_t at, const int mr, const int nv)
{
    const int64_t rows = t->rows - at;
    vf acc[8][3];
    tile_sums(t, at, rows, mr, nv, acc, true);
    VEC_LOOP
    for (int r = 0; r < mr; r++) {
        if (r >= rows)
            break;
        float *c = tile_row(t, at + r);
        VEC_LOOP
        for (int j = 0; j < nv; j++, c += t->c_apart)
            vstore_upto(c, t->add ? acc[r][j] + vload_upto(c, t->cols) : acc[r][j], t->cols);
    }
}

VEC_FN void tile_some(const tsri_fast_tile *t, int64_t at, const int mr, const int nv,
                      const bool apart)
{
    if (apart)
        tile_rows_apart(t, at, mr, nv);
    else
        tile_rows(t, at, mr, nv);
}

/* Rows that are left over, or are few from the beginning, get a tile of about their number: of a
 * whole one's rows all are multiplied. */
VEC_FN void tile(const tsri_fast_tile *t, const int mr, const int nv, const bool apart)
{
    int64_t at = 0;
    for (; t->rows - at > mr * 3 / 4; at += mr)
        tile_some(t, at, mr, nv, apart);
    const int64_t left = t->rows - at;
    if (left > 4)
        tile_some(t, at, mr * 3 / 4, nv, apart);
    else if (left > 2)
        tile_some(t, at, 4, nv, apart);
    else if (left > 1)
        tile_some(t, at, 2, nv, apart);
    else if (left > 0)
        tile_some(t, at, 1, nv, apart);
}

#define GEMM_TILE(nv)                                  \
    static void gemm_tile##nv(const tsri_fast_tile *t) \
    {                                                  \
        if (t->apart)                                  \
            tile(t, ROWS##nv, nv, true);               \
        else                                           \
            tile(t, ROWS##nv, nv, false);              \
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

/* The first n < 4 columns of transpose4. */
VEC_FN void transpose4_upto(const float *src, int64_t lds, float *dst, int64_t ldd, int64_t n)
{
    vq r0 = vqload(src), r1 = n > 1 ? vqload(src + lds) : r0;
    vq r2 = n > 2 ? vqload(src + 2 * lds) : r0;
    vq a = VQ_SHUFFLE(r0, r1, 0, 4, 1, 5), b = VQ_SHUFFLE(r0, r1, 2, 6, 3, 7);
    for (int i = 0; i < 4; i++) {
        const vq pair = i < 2 ? a : b;
        if (n > 1)
            memcpy(dst + i * ldd, (const char *)&pair + (i & 1) * 8, 8);
        else
            dst[i * ldd] = r0[i];
        if (n > 2)
            dst[i * ldd + 2] = r2[i];
    }
}

/* The block of four after the one at i, of n: the last one may begin inside the one before. */
VEC_FN int64_t next_block(int64_t i, int64_t n)
{
    return i + 4 < n && i + 8 > n ? n - 4 : i + 4;
}

/* dst[i * ldd + j] = src[j * lds + i] for i < rows, j < cols; whole lines of src are used at once.
 */
static void transpose(const float *src, int64_t lds, float *dst, int64_t ldd, int64_t rows,
                      int64_t cols)
{
    enum { LINE = 16 };
    for (int64_t i = 0, end; rows >= 4 && i < rows; i = end) {
        end = i + LINE + 4 > rows ? rows : i + LINE;
        for (int64_t k = i; cols > 0 && cols < 4 && k < end; k = next_block(k, end))
            transpose4_upto(src + k, lds, dst + k * ldd, ldd, cols);
        for (int64_t j = 0; cols >= 4 && j < cols; j = next_block(j, cols))
            for (int64_t k = i; k < end; k = next_block(k, end))
                transpose4(src + j * lds + k, lds, dst + k * ldd + j, ldd);
    }
    for (int64_t i = 0; rows < 4 && i < rows; i++)
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
