/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax of a row, and its gradient. Included once per instruction set; see vec.h. Sums are of W
 * lanes, joined in f64. */

VEC_FN double vsum(vf a)
{
    float lane[W];
    double sum = 0;
    vstore(lane, a);
    for (int i = 0; i < W; i++)
        sum += (double)lane[i];
    return sum;
}

VEC_FN vf vload_or(const float *p, int64_t n, float other)
{
    float lane[W];
    if (n >= W)
        return vload(p);
    for (int i = 0; i < W; i++)
        lane[i] = i < n ? p[i] : other;
    return vload(lane);
}

/* A NaN stays one in the sum, and so in all of the row. */
static void softmax(const float *x, float *y, int64_t n, bool is_log)
{
    float lane[W], most = -__builtin_inff();
    vf m = vset1(most), s = vset1(0.0f);
    for (int64_t i = 0; i < n; i += W)
        m = vmax(m, vload_or(x + i, n - i, most));
    vstore(lane, m);
    for (int i = 0; i < W; i++)
        most = lane[i] > most ? lane[i] : most;
    m = vset1(most);
    double total = 0;
    for (int64_t block = 0; block < n; block += 64 * W) { /* of long rows, sums of sums */
        const int64_t end = block + 64 * W < n ? block + 64 * W : n;
        s = vset1(0.0f);
        for (int64_t i = block; i < end; i += W) {
            vf e = vexp(vload_or(x + i, end - i, -__builtin_inff()) - m);
            s += e;
            if (!is_log)
                vstore_upto(y + i, e, end - i);
        }
        total += vsum(s);
    }
    const vf scale = vset1((float)(1 / total)), shift = vset1((float)__builtin_log(total));
    for (int64_t i = 0; i < n; i += W) {
        vf v = is_log ? vload_upto(x + i, n - i) - m - shift : vload_upto(y + i, n - i) * scale;
        vstore_upto(y + i, v, n - i);
    }
}

static void softmax_dx(const float *y, const float *dy, float *dx, int64_t n, bool is_log)
{
    double total = 0;
    for (int64_t block = 0; block < n; block += 64 * W) {
        const int64_t end = block + 64 * W < n ? block + 64 * W : n;
        vf s = vset1(0.0f);
        for (int64_t i = block; i < end; i += W) {
            vf g = vload_upto(dy + i, end - i);
            s = is_log ? s + g : vfma(g, vload_upto(y + i, end - i), s);
        }
        total += vsum(s);
    }
    const vf sum = vset1((float)total);
    for (int64_t i = 0; i < n; i += W) {
        vf p = vload_upto(y + i, n - i), g = vload_upto(dy + i, n - i);
        vstore_upto(dx + i, is_log ? g - vexp(p) * sum : p * (g - sum), n - i);
    }
}
