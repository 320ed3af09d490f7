/* SPDX-License-Identifier: Apache-2.0 */
/* Products of so few rows that they are dot products. Included once per instruction set; see vec.h.
 */

/* Vectors that are summed before they join a sum in f64: no lane has many terms. */
enum { DOTS_BLOCK = 128, DOTS_COLUMNS = 4 };

/* Products of m rows of a with `count` rows of b: sums over terms [k0, k1) join acc. */
VEC_FN void dots_terms(const tsri_fast_dots *p, const float *b, int64_t k0, int64_t k1, const int m,
                       const int count, vf acc[TSRI_FAST_DOTS][DOTS_COLUMNS])
{
    for (int64_t k = k0; k < k1; k += W) {
        vf column[DOTS_COLUMNS];
        VEC_LOOP
        for (int j = 0; j < count; j++)
            column[j] = vload_upto(b + j * p->ldb + k, k1 - k);
        VEC_LOOP
        for (int i = 0; i < m; i++) {
            const vf row = vload_upto(p->a + i * p->lda + k, k1 - k);
            VEC_LOOP
            for (int j = 0; j < count; j++)
                acc[i][j] = vfma(row, column[j], acc[i][j]);
        }
    }
}

VEC_FN void dots_columns(const tsri_fast_dots *p, int64_t n, const int m, const int count)
{
    const float *b = p->b + n * p->ldb;
    double sum[TSRI_FAST_DOTS * DOTS_COLUMNS] = {0};
    for (int64_t k = 0; k < p->k; k += DOTS_BLOCK * W) {
        const int64_t end = p->k - k > DOTS_BLOCK * W ? k + DOTS_BLOCK * W : p->k;
        vf acc[TSRI_FAST_DOTS][DOTS_COLUMNS];
        VEC_LOOP
        for (int i = 0; i < m * count; i++)
            acc[i / count][i % count] = vset1(0.0f);
        dots_terms(p, b, k, end - end % W, m, count, acc);
        dots_terms(p, b, end - end % W, end, m, count, acc);
        VEC_LOOP
        for (int i = 0; i < m * count; i++)
            sum[i] += vsum(acc[i / count][i % count]);
    }
    for (int i = 0; i < m * count; i++) {
        const int64_t at = n + i % count;
        p->c[i / count * p->ldc + at] = (float)(sum[i] + (p->bias ? (double)p->bias[at] : 0));
    }
}

VEC_FN void dots_rows(const tsri_fast_dots *p, int64_t begin, int64_t end, const int m)
{
    int64_t n = begin;
    for (; end - n >= DOTS_COLUMNS; n += DOTS_COLUMNS)
        dots_columns(p, n, m, DOTS_COLUMNS);
    for (; n < end; n++)
        dots_columns(p, n, m, 1);
}

/* Columns [begin, end) of c. */
static void dots(const tsri_fast_dots *p, int64_t begin, int64_t end)
{
    switch (p->m) {
    case 1:
        dots_rows(p, begin, end, 1);
        break;
    case 2:
        dots_rows(p, begin, end, 2);
        break;
    case 3:
        dots_rows(p, begin, end, 3);
        break;
    default:
        dots_rows(p, begin, end, TSRI_FAST_DOTS);
    }
}
