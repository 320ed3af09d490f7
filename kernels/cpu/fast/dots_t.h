/* SPDX-License-Identifier: Apache-2.0 */
/* Products of so few rows that they are dot products. Included once per
 * instruction set and dtype; see vec.h and
 * of_f32.h. */

/* Products of m rows of a with `count` rows of b: sums over terms [k0, k1) join acc. */
VEC_FN void BY(dots_terms)(const tsri_fast_dots *p, const T *b, int64_t k0, int64_t k1, const int m,
                           const int count, VT acc[TSRI_FAST_DOTS][DOTS_COLUMNS])
{
    for (int64_t k = k0; k < k1; k += LANES) {
        VT column[DOTS_COLUMNS];
        VEC_LOOP
        for (int j = 0; j < count; j++)
            column[j] = VEC(load_upto)(b + j * p->ldb + k, k1 - k);
        VEC_LOOP
        for (int i = 0; i < m; i++) {
            const VT row = VEC(load_upto)((const T *)p->a + i * p->lda + k, k1 - k);
            VEC_LOOP
            for (int j = 0; j < count; j++)
                acc[i][j] = VEC(fma)(row, column[j], acc[i][j]);
        }
    }
}

VEC_FN void BY(dots_columns)(const tsri_fast_dots *p, int64_t n, const int m, const int count)
{
    const T *b = (const T *)p->b + n * p->ldb, *bias = p->bias;
    T *c = p->c;
    double sum[TSRI_FAST_DOTS * DOTS_COLUMNS] = {0};
    for (int64_t k = 0; k < p->k; k += DOTS_BLOCK * LANES) {
        const int64_t end = p->k - k > DOTS_BLOCK * LANES ? k + DOTS_BLOCK * LANES : p->k;
        VT acc[TSRI_FAST_DOTS][DOTS_COLUMNS];
        VEC_LOOP
        for (int i = 0; i < m * count; i++)
            acc[i / count][i % count] = VEC(set1)(0);
        BY(dots_terms)(p, b, k, end - end % LANES, m, count, acc);
        BY(dots_terms)(p, b, end - end % LANES, end, m, count, acc);
        VEC_LOOP
        for (int i = 0; i < m * count; i++)
            sum[i] += VEC(sum)(acc[i / count][i % count]);
    }
    for (int i = 0; i < m * count; i++) {
        const int64_t at = n + i % count;
        c[i / count * p->ldc + at] = (T)(sum[i] + (bias ? (double)bias[at] : 0));
    }
}

VEC_FN void BY(dots_rows)(const tsri_fast_dots *p, int64_t begin, int64_t end, const int m)
{
    int64_t n = begin;
    for (; end - n >= DOTS_COLUMNS; n += DOTS_COLUMNS)
        BY(dots_columns)(p, n, m, DOTS_COLUMNS);
    for (; n < end; n++)
        BY(dots_columns)(p, n, m, 1);
}

/* Columns [begin, end) of c. */
static void BY(dots)(const tsri_fast_dots *p, int64_t begin, int64_t end)
{
    switch (p->m) {
    case 1:
        BY(dots_rows)(p, begin, end, 1);
        break;
    case 2:
        BY(dots_rows)(p, begin, end, 2);
        break;
    case 3:
        BY(dots_rows)(p, begin, end, 3);
        break;
    default:
        BY(dots_rows)(p, begin, end, TSRI_FAST_DOTS);
    }
}
