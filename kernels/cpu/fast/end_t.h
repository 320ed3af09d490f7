/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of results of convolutions and products: see tsri_kernel_end. Included once per instruction
 * set, behind math_t.h. */

/* n columns of the row that is `off` elements behind the first, from column c on. whole: n is a
 * vector's, known when compiled. */
VEC_FN vf end_vector_f32(const tsri_fast_end *e, vf v, int64_t c, int64_t n, int64_t off,
                         const bool whole)
{
    if (e->scale && whole)
        v = vfma(v, vload(e->scale + c), vload(e->shift + c));
    else if (e->scale)
        v = vfma(v, vload_upto(e->scale + c, n), vload_upto(e->shift + c, n));
    if (e->add)
        v += whole ? vload(e->add + off + c) : vload_upto(e->add + off + c, n);
    if (e->relu)
        v = e->relu == 6 ? forward_RELU6(v, v, v) : forward_RELU(v, v, v);
    return v;
}

/* Products of f64 have no end. */
VEC_FN vd end_vector_f64(const tsri_fast_end *e, vd v, int64_t c, int64_t n, int64_t off,
                         const bool whole)
{
    (void)e, (void)c, (void)n, (void)off, (void)whole;
    return v;
}

/* y[rows][columns], `pitch` apart. */
static void end_rows(const tsri_fast_end *e, float *y, int64_t pitch, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++, y += pitch) {
        const int64_t off = r * pitch;
        int64_t c = 0;
        for (; c + W <= columns; c += W)
            vstore(y + c, end_vector_f32(e, vload(y + c), c, W, off, true));
        const int64_t n = columns - c;
        if (n)
            vstore_upto(y + c, end_vector_f32(e, vload_upto(y + c, n), c, n, off, false), n);
    }
}
