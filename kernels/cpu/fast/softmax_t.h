/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax of a row or of columns, its gradient, and rows of cross entropy. Included once per
 * instruction set; see vec.h. Sums are of W lanes, joined in f64. */

VEC_FN vf vload_or(const float *p, int64_t n, float other)
{
    float lane[W];
    if (n >= W)
        return vload(p);
    for (int i = 0; i < W; i++)
        lane[i] = i < n ? p[i] : other;
    return vload(lane);
}

/* Returns the sum of e^(x - m), and writes its terms to y unless that is NULL. */
VEC_FN double exp_sum(const float *x, float *y, int64_t n, vf m)
{
    double total = 0;
    for (int64_t block = 0; block < n; block += 64 * W) { /* of long rows, sums of sums */
        const int64_t end = block + 64 * W < n ? block + 64 * W : n;
        vf s = vset1(0.0f);
        for (int64_t i = block; i < end; i += W) {
            vf e = vexp(vload_or(x + i, end - i, -__builtin_inff()) - m);
            s += e;
            if (y)
                vstore_upto(y + i, e, end - i);
        }
        total += vsum(s);
    }
    return total;
}

static double ce_sum(const float *x, int64_t n, float most)
{
    return exp_sum(x, NULL, n, vset1(most));
}

/* dx = by (e^(x - most - log_sum) - even) */
static void ce_dx(const float *x, float *dx, int64_t n, const float *lse, float by, float even)
{
    const vf most = vset1(lse[0]), log_sum = vset1(lse[1]);
    for (int64_t i = 0; i < n; i += W) {
        vf p = vexp(vload_upto(x + i, n - i) - most - log_sum);
        vstore_upto(dx + i, vset1(by) * (p - vset1(even)), n - i);
    }
}

/* A NaN stays one in the sum, and so in all of the row. */
static void softmax(const float *x, float *y, int64_t n, bool is_log)
{
    float lane[W], most = -__builtin_inff();
    vf m = vset1(most);
    for (int64_t i = 0; i < n; i += W)
        m = vmax(m, vload_or(x + i, n - i, most));
    vstore(lane, m);
    for (int i = 0; i < W; i++)
        most = lane[i] > most ? lane[i] : most;
    m = vset1(most);
    const double total = exp_sum(x, is_log ? NULL : y, n, m);
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

/* Softmax over n rows, `pitch` apart, of up to TSRI_FAST_COLUMNS columns; sums are f64. */
static void softmax_columns(const float *x, float *y, int64_t n, int64_t pitch, int64_t cols,
                            bool is_log)
{
    float most[TSRI_FAST_COLUMNS];
    double sum[TSRI_FAST_COLUMNS] = {0};
    for (int64_t i = 0; i < cols; i += W)
        vstore(most + i, vset1(-__builtin_inff()));
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < cols; i += W)
            vstore(most + i, vmax(vload(most + i), vload_upto(x + r * pitch + i, cols - i)));
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < cols; i += W) {
            vf e = vexp(vload_upto(x + r * pitch + i, cols - i) - vload(most + i));
            vdstore(sum + i, vdload(sum + i) + vlo(e));
            vdstore(sum + i + W / 2, vdload(sum + i + W / 2) + vhi(e));
            if (!is_log)
                vstore_upto(y + r * pitch + i, e, cols - i);
        }
    float by[TSRI_FAST_COLUMNS] = {0};
    for (int64_t i = 0; i < cols; i++)
        by[i] = (float)(is_log ? __builtin_log(sum[i]) : 1 / sum[i]);
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < cols; i += W) {
            const int64_t at = r * pitch + i;
            vf v = is_log ? vload_upto(x + at, cols - i) - vload(most + i) - vload(by + i)
                          : vload_upto(y + at, cols - i) * vload(by + i);
            vstore_upto(y + at, v, cols - i);
        }
}

static void softmax_dx_columns(const float *y, const float *dy, float *dx, int64_t n, int64_t pitch,
                               int64_t cols, bool is_log)
{
    double sum[TSRI_FAST_COLUMNS] = {0};
    float dot[TSRI_FAST_COLUMNS];
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < cols; i += W) {
            vf g = vload_upto(dy + r * pitch + i, cols - i);
            if (!is_log)
                g *= vload_upto(y + r * pitch + i, cols - i);
            vdstore(sum + i, vdload(sum + i) + vlo(g));
            vdstore(sum + i + W / 2, vdload(sum + i + W / 2) + vhi(g));
        }
    for (int64_t i = 0; i < TSRI_FAST_COLUMNS; i++)
        dot[i] = (float)sum[i];
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < cols; i += W) {
            const int64_t at = r * pitch + i;
            vf p = vload_upto(y + at, cols - i), g = vload_upto(dy + at, cols - i);
            vf d = vload(dot + i);
            vstore_upto(dx + at, is_log ? g - vexp(p) * d : p * (g - d), cols - i);
        }
}
