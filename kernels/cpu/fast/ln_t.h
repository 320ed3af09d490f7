/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm: rows of features. Included once per instruction set; see vec.h. Sums over a row are
 * f64; deviations are taken from the mean as f32 has it, and `level` makes up for the rest. */

/* The sums of the lanes of W / 2 vectors, in a vector. */
VEC_FN vd vdsums(const vd *v)
{
#if VEC_ISA == 512
    md s[4];
    VEC_LOOP
    for (int i = 0; i < 4; i++) {
        const md a = (md)v[2 * i], b = (md)v[2 * i + 1];
        s[i] = _mm512_add_pd(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
    }
    VEC_LOOP
    for (int i = 0; i < 2; i++)
        s[i] = _mm512_add_pd(_mm512_shuffle_f64x2(s[2 * i], s[2 * i + 1], 0x88),
                             _mm512_shuffle_f64x2(s[2 * i], s[2 * i + 1], 0xdd));
    return (vd)_mm512_add_pd(_mm512_shuffle_f64x2(s[0], s[1], 0x88),
                             _mm512_shuffle_f64x2(s[0], s[1], 0xdd));
#elif VEC_ISA == 256
    md s[2];
    VEC_LOOP
    for (int i = 0; i < 2; i++) {
        const md a = (md)v[2 * i], b = (md)v[2 * i + 1];
        s[i] = _mm256_add_pd(_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
    }
    return (vd)_mm256_add_pd(_mm256_permute2f128_pd(s[0], s[1], 0x20),
                             _mm256_permute2f128_pd(s[0], s[1], 0x31));
#else
    return (vd){v[0][0] + v[0][1], v[1][0] + v[1][1]};
#endif
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

/* Features [begin, end) of a row, and the parameters there: of each feature, or one for all. */
typedef struct ln_stretch {
    int64_t begin, end;
    const float *gamma, *beta;
    vf one_gamma, one_beta;
} ln_stretch;

VEC_FN int64_t ln_stretches(const tsri_fast_ln *p)
{
    return p->run ? p->width / p->run : 1;
}

VEC_FN ln_stretch ln_stretch_of(const tsri_fast_ln *p, int64_t row, int64_t i)
{
    if (!p->run)
        return (ln_stretch){0, p->width, p->gamma, p->beta, vset1(1.0f), vset1(0.0f)};
    const int64_t at = row % p->groups * (p->width / p->run) + i;
    return (ln_stretch){.begin = i * p->run,
                        .end = (i + 1) * p->run,
                        .one_gamma = vset1(p->gamma ? p->gamma[at] : 1.0f),
                        .one_beta = vset1(p->beta ? p->beta[at] : 0.0f)};
}

VEC_FN vf ln_param(const float *p, int64_t i, int64_t n, vf one)
{
    return p ? vload_upto(p + i, n) : one;
}

static void ln_stats(const tsri_fast_ln *p, int64_t r0, int64_t r1)
{
    enum { AT_ONCE = 4 };
    for (int64_t r = r0; r < r1; r++) {
        const float *x = p->x + r * p->width;
        vd s[AT_ONCE] = {{0}}, q[AT_ONCE] = {{0}};
        int64_t i = 0;
        for (; i + AT_ONCE * W / 2 <= p->width; i += AT_ONCE * W / 2)
            VEC_LOOP
        for (int k = 0; k < AT_ONCE; k++) {
            const vd v = vdwiden(x + i + k * W / 2);
            __builtin_prefetch(x + i + k * W / 2 + 1024);
            s[k] += v;
            q[k] = vdfma(v, v, q[k]);
        }
        for (; i < p->width; i += W) {
            vf v = vload_upto(x + i, p->width - i);
            vd lo = vlo(v), hi = vhi(v);
            s[0] += lo;
            s[1] += hi;
            q[0] = vdfma(lo, lo, q[0]);
            q[1] = vdfma(hi, hi, q[1]);
        }
        p->sums[2 * r] = vdsum((s[0] + s[1]) + (s[2] + s[3]));
        p->sums[2 * r + 1] = vdsum((q[0] + q[1]) + (q[2] + q[3]));
    }
}

static void ln_apply(const tsri_fast_ln *p, int64_t r0, int64_t r1)
{
    for (int64_t r = r0; r < r1; r++) {
        const ln_row m = ln_moments(p, r);
        for (int64_t k = 0; k < ln_stretches(p); k++) {
            const ln_stretch t = ln_stretch_of(p, r, k);
            for (int64_t i = t.begin; i < t.end; i += W) {
                const int64_t n = t.end - i, at = r * p->width + i;
                vf h = ln_hat(vload_upto(p->x + at, n), &m);
                vf y = vfma(h, ln_param(t.gamma, i, n, t.one_gamma),
                            ln_param(t.beta, i, n, t.one_beta));
                vstore_upto(p->y + at, y, n);
            }
        }
    }
}

static void ln_bwd_stats(const tsri_fast_ln *p, int64_t r0, int64_t r1)
{
    for (int64_t r = r0; r < r1; r++) {
        const ln_row m = ln_moments(p, r);
        vd s0 = {0}, s1 = {0}, q0 = {0}, q1 = {0};
        for (int64_t k = 0; k < ln_stretches(p); k++) {
            const ln_stretch t = ln_stretch_of(p, r, k);
            for (int64_t i = t.begin; i < t.end; i += W) {
                const int64_t n = t.end - i, at = r * p->width + i;
                vf g = vload_upto(p->dy + at, n) * ln_param(t.gamma, i, n, t.one_gamma);
                vf h = ln_hat(vload_upto(p->x + at, n), &m);
                s0 += vlo(g);
                s1 += vhi(g);
                q0 = vdfma(vlo(g), vlo(h), q0);
                q1 = vdfma(vhi(g), vhi(h), q1);
            }
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
        for (int64_t k = 0; k < ln_stretches(p); k++) {
            const ln_stretch t = ln_stretch_of(p, r, k);
            for (int64_t i = t.begin; i < t.end; i += W) {
                const int64_t n = t.end - i, at = r * p->width + i;
                vf g = vload_upto(p->dy + at, n) * ln_param(t.gamma, i, n, t.one_gamma);
                vf h = ln_hat(vload_upto(p->x + at, n), &m);
                vstore_upto(p->y + at, vset1(m.rstd) * (g - d0 - h * d1), n);
            }
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
