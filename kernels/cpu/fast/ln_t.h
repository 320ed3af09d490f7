/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm: rows of features. Included once per instruction set; see vec.h. Sums over a row are
 * f64; deviations are taken from the mean as f32 has it, and `level` makes up for the rest. */

VEC_FN double vdsum(vd a)
{
    double lane[W / 2], sum = 0;
    vdstore(lane, a);
    for (int i = 0; i < W / 2; i++)
        sum += lane[i];
    return sum;
}

typedef struct ln_row {
    float mean, rstd, level; /* xhat = (x - mean) rstd + level */
} ln_row;

VEC_FN ln_row ln_moments(const tsri_fast_ln *p, int64_t row)
{
    const double *s = p->stats + 2 * row;
    double mean = s[0] / p->count, var = s[1] / p->count - mean * mean;
    double rstd = 1 / __builtin_sqrt((var < 0 ? 0 : var) + p->eps);
    return (ln_row){(float)mean, (float)rstd, (float)(((double)(float)mean - mean) * rstd)};
}

VEC_FN vf ln_hat(vf x, const ln_row *r)
{
    return vfma(x - vset1(r->mean), vset1(r->rstd), vset1(r->level));
}

VEC_FN vf ln_param(const float *p, int64_t i, int64_t n, float none)
{
    return p ? vload_upto(p + i, n) : vset1(none);
}

static void ln_stats(const tsri_fast_ln *p, int64_t r0, int64_t r1)
{
    for (int64_t r = r0; r < r1; r++) {
        const float *x = p->x + r * p->width;
        vd s0 = {0}, s1 = {0}, q0 = {0}, q1 = {0};
        for (int64_t i = 0; i < p->width; i += W) {
            vf v = vload_upto(x + i, p->width - i);
            vd lo = vlo(v), hi = vhi(v);
            s0 += lo;
            s1 += hi;
            q0 = vdfma(lo, lo, q0);
            q1 = vdfma(hi, hi, q1);
        }
        p->sums[2 * r] = vdsum(s0 + s1);
        p->sums[2 * r + 1] = vdsum(q0 + q1);
    }
}

static void ln_apply(const tsri_fast_ln *p, int64_t r0, int64_t r1)
{
    for (int64_t r = r0; r < r1; r++) {
        const ln_row m = ln_moments(p, r);
        for (int64_t i = 0; i < p->width; i += W) {
            const int64_t n = p->width - i;
            vf h = ln_hat(vload_upto(p->x + r * p->width + i, n), &m);
            vf y = vfma(h, ln_param(p->gamma, i, n, 1.0f), ln_param(p->beta, i, n, 0.0f));
            vstore_upto(p->y + r * p->width + i, y, n);
        }
    }
}

static void ln_bwd_stats(const tsri_fast_ln *p, int64_t r0, int64_t r1)
{
    for (int64_t r = r0; r < r1; r++) {
        const ln_row m = ln_moments(p, r);
        vd s0 = {0}, s1 = {0}, q0 = {0}, q1 = {0};
        for (int64_t i = 0; i < p->width; i += W) {
            const int64_t n = p->width - i, at = r * p->width + i;
            vf g = vload_upto(p->dy + at, n) * ln_param(p->gamma, i, n, 1.0f);
            vf h = ln_hat(vload_upto(p->x + at, n), &m);
            s0 += vlo(g);
            s1 += vhi(g);
            q0 = vdfma(vlo(g), vlo(h), q0);
            q1 = vdfma(vhi(g), vhi(h), q1);
        }
        p->sums[2 * r] = vdsum(s0 + s1);
        p->sums[2 * r + 1] = vdsum(q0 + q1);
    }
}

static void ln_bwd_apply(const tsri_fast_ln *p, int64_t r0, int64_t r1)
{
    for (int64_t r = r0; r < r1; r++) {
        const ln_row m = ln_moments(p, r);
        const vf d0 = vset1((float)(p->bstats[2 * r] / p->count));
        const vf d1 = vset1((float)(p->bstats[2 * r + 1] / p->count));
        for (int64_t i = 0; i < p->width; i += W) {
            const int64_t n = p->width - i, at = r * p->width + i;
            vf g = vload_upto(p->dy + at, n) * ln_param(p->gamma, i, n, 1.0f);
            vf h = ln_hat(vload_upto(p->x + at, n), &m);
            vstore_upto(p->y + at, vset1(m.rstd) * (g - d0 - h * d1), n);
        }
    }
}

/* sums[2][pitch] += over the rows: dy xhat, dy. Few rows are added in f32 before they join. */
static void ln_params(const tsri_fast_ln *p, int64_t r0, int64_t r1)
{
    enum { ROWS = 16 };
    for (int64_t r = r0; r < r1; r += ROWS) {
        const int rows = (int)(r1 - r < ROWS ? r1 - r : ROWS);
        ln_row m[ROWS];
        for (int k = 0; k < rows; k++)
            m[k] = ln_moments(p, r + k);
        for (int64_t i = 0; i < p->width; i += W) {
            const int64_t n = p->width - i;
            vf s = vset1(0.0f), q = vset1(0.0f);
            for (int k = 0; k < rows; k++) {
                const int64_t at = (r + k) * p->width + i;
                vf g = vload_upto(p->dy + at, n);
                q = vfma(g, ln_hat(vload_upto(p->x + at, n), &m[k]), q);
                s += g;
            }
            double *to = p->sums + i;
            vdstore(to, vdload(to) + vlo(q));
            vdstore(to + W / 2, vdload(to + W / 2) + vhi(q));
            to += p->pitch;
            vdstore(to, vdload(to) + vlo(s));
            vdstore(to + W / 2, vdload(to + W / 2) + vhi(s));
        }
    }
}
