/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: packing and the register tile. Included once per instruction set and dtype; see
 * vec.h and of_f32.h. */

/* Adds to the sums of mr rows n terms, from *off on of a's rows and from *b on. asks: for one line
 * of what is wanted ahead with each term. */
VEC_FN void BY(tile_terms)(const tsri_fast_tile *t, const T *const a[8], const T **b, int64_t *off,
                           int64_t n, const int mr, const int nv, VT acc[8][3], const char *ahead,
                           const bool asks, const bool spread)
{
    /* Columns of the last vector; spread: of each. */
    const int64_t last = spread ? t->cols : t->cols - (int64_t)(nv - 1) * LANES;
    const int64_t apart = spread ? t->apart : LANES;
    /* b's rows are whole vectors when packed; else its last one may end inside a vector. */
    const bool whole = t->packed || last == LANES;
    const T *row = *b;
    int64_t at = *off;
    for (int64_t i = 0; i < n; i++, at += t->ak, row += t->bk) {
        VT bv[3];
        if (asks) {
            __builtin_prefetch(ahead, 0, 2);
            ahead += TSRI_AHEAD_LINE;
        }
        VEC_LOOP
        for (int j = 0; j < nv; j++)
            bv[j] = (j < nv - 1 && !spread) || whole ? VEC(load)(row + j * apart)
                                                     : VEC(loadn)(row + j * apart, last);
        VEC_LOOP
        for (int r = 0; r < mr; r++) {
            VT av = VEC(set1)(a[r][at]);
            VEC_LOOP
            for (int j = 0; j < nv; j++)
                acc[r][j] = VEC(fma)(av, bv[j], acc[r][j]);
        }
    }
    *b = row;
    *off = at;
}

/* Sums of mr rows from `first` on, of which `rows` are there. */
VEC_FN void BY(tile_sums)(const tsri_fast_tile *t, int64_t first, int64_t rows, const int mr,
                          const int nv, VT acc[8][3], const bool spread)
{
    const T *a[8];
    const T *b = t->b;
    int64_t off = 0, lines;
    VEC_LOOP
    for (int r = 0; r < mr; r++) {
        const int64_t at = first + (r < rows ? r : rows - 1);
        a[r] = (const T *)t->a + (t->row ? t->row[at].a : at * t->ar);
        VEC_LOOP
        for (int j = 0; j < nv; j++)
            acc[r][j] = VEC(set1)(0);
    }
    const char *ahead = tsri_ahead_take(t->ahead, t->k, &lines);
    if (lines)
        BY(tile_terms)(t, a, &b, &off, lines, mr, nv, acc, ahead, true, spread);
    if (!t->runs) {
        BY(tile_terms)(t, a, &b, &off, t->k - lines, mr, nv, acc, NULL, false, spread);
        return;
    }
    for (int64_t i = 0; i < t->runs; i++) {
        off = t->a_at ? t->a_at[i] : off;
        b = t->b_at ? (const T *)t->b + t->b_at[i] * t->b_unit : b;
        BY(tile_terms)(t, a, &b, &off, t->k, mr, nv, acc, NULL, false, spread);
    }
}

VEC_FN T *BY(tile_row)(const tsri_fast_tile *t, int64_t row)
{
    return (T *)t->c + (t->row ? t->row[row].c : row * t->ldc);
}

/* Stores sums of a tile's rows from `at` on, with what joins them. whole: there are mr rows, of nv
 * whole vectors. */
VEC_FN void BY(tile_join)(const tsri_fast_tile *t, int64_t at, const int mr, const int nv,
                          VT acc[8][3], const bool whole)
{
    const int64_t last = t->cols - (int64_t)(nv - 1) * LANES;
    VEC_LOOP
    for (int r = 0; r < mr; r++) {
        if (!whole && r >= t->rows - at)
            break;
        T *c = BY(tile_row)(t, at + r);
        const int64_t off = c - (T *)t->c;
        VEC_LOOP
        for (int j = 0; j < nv; j++) {
            const int64_t n = whole || j < nv - 1 ? LANES : last, i = j * LANES;
            VT v = acc[r][j];
            if (t->add)
                v += whole ? VEC(load)(c + i) : VEC(load_upto)(c + i, n);
            if (t->bias)
                v += whole ? VEC(load)((const T *)t->bias + i)
                           : VEC(load_upto)((const T *)t->bias + i, n);
            if (t->end)
                v = BY(end_vector)(t->end, v, i, n, off, whole);
            if (whole)
                VEC(store)(c + i, v);
            else
                VEC(store_upto)(c + i, v, n);
        }
    }
}

/* Rows [at, at + mr) of a tile, as far as they are there. */
VEC_FN void BY(tile_rows)(const tsri_fast_tile *t, int64_t at, const int mr, const int nv)
{
    const int64_t last = t->cols - (int64_t)(nv - 1) * LANES, rows = t->rows - at;
    VT acc[8][3];
    BY(tile_sums)(t, at, rows, mr, nv, acc, false);
    if (last < LANES || rows < mr) {
        BY(tile_join)(t, at, mr, nv, acc, false);
        return;
    }
    if (t->add || t->bias || t->end) {
        BY(tile_join)(t, at, mr, nv, acc, true);
        return;
    }
    VEC_LOOP
    for (int r = 0; r < mr; r++) {
        T *c = BY(tile_row)(t, at + r);
        VEC_LOOP
        for (int j = 0; j < nv; j++)
            VEC(store)(c + j * LANES, acc[r][j]);
    }
}

/* Rows [at, at + mr) of a tile of vectors that are apart. */
VEC_FN void BY(tile_rows_apart)(const tsri_fast_tile *t, int64_t at, const int mr, const int nv)
{
    const int64_t rows = t->rows - at;
    VT acc[8][3];
    BY(tile_sums)(t, at, rows, mr, nv, acc, true);
    VEC_LOOP
    for (int r = 0; r < mr; r++) {
        if (r >= rows)
            break;
        T *c = BY(tile_row)(t, at + r);
        VEC_LOOP
        for (int j = 0; j < nv; j++, c += t->c_apart)
            VEC(store_upto)
        (c, t->add ? acc[r][j] + VEC(load_upto)(c, t->cols) : acc[r][j], t->cols);
    }
}

VEC_FN void BY(tile_some)(const tsri_fast_tile *t, int64_t at, const int mr, const int nv,
                          const bool apart)
{
    if (apart)
        BY(tile_rows_apart)(t, at, mr, nv);
    else
        BY(tile_rows)(t, at, mr, nv);
}

/* Rows that are left over, or are few from the beginning, get a tile of about their number: of a
 * whole one's rows all are multiplied. */
VEC_FN void BY(tile)(const tsri_fast_tile *t, const int mr, const int nv, const bool apart)
{
    int64_t at = 0;
    for (; t->rows - at > mr * 3 / 4; at += mr)
        BY(tile_some)(t, at, mr, nv, apart);
    const int64_t left = t->rows - at;
    if (left > 4)
        BY(tile_some)(t, at, mr * 3 / 4, nv, apart);
    else if (left > 2)
        BY(tile_some)(t, at, 4, nv, apart);
    else if (left > 1)
        BY(tile_some)(t, at, 2, nv, apart);
    else if (left > 0)
        BY(tile_some)(t, at, 1, nv, apart);
}

#define GEMM_TILE(nv)                                      \
    static void BY(gemm_tile##nv)(const tsri_fast_tile *t) \
    {                                                      \
        if (t->apart)                                      \
            BY(tile)(t, ROWS##nv, nv, true);               \
        else                                               \
            BY(tile)(t, ROWS##nv, nv, false);              \
    }
GEMM_TILE(1)
GEMM_TILE(2)
GEMM_TILE(3)

/* dst[i * ldd + j] = src[j * lds + i] for i < rows, j < cols; whole lines of src are used at once.
 */
static void BY(transpose)(const void *from, int64_t lds, void *to, int64_t ldd, int64_t rows,
                          int64_t cols)
{
    enum { LINE = 64 / sizeof(T) };
    const T *src = from;
    T *dst = to;
    for (int64_t i = 0, end; rows >= 4 && i < rows; i = end) {
        end = i + LINE + 4 > rows ? rows : i + LINE;
        for (int64_t k = i; cols > 0 && cols < 4 && k < end; k = next_block(k, end))
            BY(transpose4_upto)(src + k, lds, dst + k * ldd, ldd, cols);
        for (int64_t j = 0; cols >= 4 && j < cols; j = next_block(j, cols))
            for (int64_t k = i; k < end; k = next_block(k, end))
                BY(transpose4)(src + j * lds + k, lds, dst + k * ldd + j, ldd);
    }
    for (int64_t i = 0; rows < 4 && i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            dst[i * ldd + j] = src[j * lds + i];
}

/* One panel: dst[k][width], columns from `cols` on are 0. b's element (k, j) is b[k*bk + j*bn],
 * and one of the strides is 1. */
static void BY(gemm_pack)(const void *from, int64_t bk, int64_t bn, int64_t k, int64_t cols,
                          int64_t width, void *to)
{
    const T *b = from;
    T *dst = to;
    if (cols < width)
        for (int64_t i = 0; i < k; i++)
            memset(dst + i * width + cols, 0, (size_t)(width - cols) * sizeof *dst);
    if (bn == 1) {
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j < cols; j += LANES)
                VEC(store_upto)
        (dst + i * width + j, VEC(load_upto)(b + i * bk + j, cols - j), cols - j);
        return;
    }
    BY(transpose)(b, bn, dst, width, k, cols);
}

/* c[n] += x[n] */
static void BY(gemm_add)(const void *from, void *to, int64_t n)
{
    const T *x = from;
    T *c = to;
    for (int64_t i = 0; i < n; i += LANES)
        VEC(store_upto)(c + i, VEC(load_upto)(c + i, n - i) + VEC(load_upto)(x + i, n - i), n - i);
}
