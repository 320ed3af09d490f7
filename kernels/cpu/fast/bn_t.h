/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm over rows of `width` elements, a multiple of the channel count and of W: coefficient
 * vectors are repeated to that width so that few channels still fill vectors. Rows [r0, r1) of
 * `count` elements in all; the last row may be short. Included once per instruction set; see vec.h.
 *
 * Columns are walked in the inner loop over blocks of a few rows, so that coefficients stay in
 * registers for a block and memory is read along a few streams. half: x, dy and y are bf16, known
 * when compiled.
 */
enum {
    BN_ROWS = 8,
    BN_NEAR = 256, /* width of rows of which two blocks and more fit into the first cache */
};

/* A column of a block: one vector of each of `rows` rows from r on, at j; `ahead` elements on is
 * the next whole block, 0 if there is none. full: BN_ROWS whole rows, known when compiled; else
 * rows end where count does. */
typedef struct bn_column {
    int64_t r, j, rows, ahead;
} bn_column;

VEC_FN int64_t bn_rows(bn_column c, const bool full)
{
    return full ? BN_ROWS : c.rows;
}

/* Elements of the column's row i: W, some, or none (0 or less). */
VEC_FN int64_t bn_left(const tsri_fast_bn *p, bn_column c, int64_t i, const bool full)
{
    if (full)
        return W;
    int64_t n = p->count - (c.r + i) * p->width;
    return (n < p->width ? n : p->width) - c.j;
}

VEC_FN int64_t bn_at(const tsri_fast_bn *p, bn_column c, int64_t i)
{
    return (c.r + i) * p->width + c.j;
}

/* Asks for the next block's part of a column: the column's steps are too long for the processor to
 * foresee, and most of what batch norm reads has left the nearest caches. */
VEC_FN void bn_ask(bn_column c, const void *data, int64_t at, const bool full, const bool half)
{
    if (full)
        __builtin_prefetch(vplace(data, at + c.ahead, half));
}

VEC_FN void bn_add(double *at, vf v)
{
    vdstore(at, vdload(at) + vlo(v));
    vdstore(at + W / 2, vdload(at + W / 2) + vhi(v));
}

/* acc[0][width] += x - about, acc[1][width] += (x - about)^2, in f64. */
VEC_FN void column_stats(const tsri_fast_bn *p, bn_column c, double *acc, const bool full,
                         const bool half)
{
    double *sum = acc + c.j, *sq = sum + p->width;
    const float *about = p->coef[TSRI_BN_MEAN] + c.j;
    const vd k0 = vdwiden(about), k1 = vdwiden(about + W / 2);
    vd s0 = vdload(sum), s1 = vdload(sum + W / 2);
    vd q0 = vdload(sq), q1 = vdload(sq + W / 2);
    VEC_LOOP
    for (int64_t i = 0; i < bn_rows(c, full); i++) {
        int64_t n = bn_left(p, c, i, full);
        if (n <= 0)
            break;
        const int64_t at = bn_at(p, c, i);
        bn_ask(c, p->x, at, full, half);
        vd a, b;
        if (full && half) {
            const vf v = vload16((const uint16_t *)p->x + at);
            a = vlo(v) - k0;
            b = vhi(v) - k1;
        } else if (full) {
            const float *x = (const float *)p->x + at;
            a = vdwiden(x) - k0;
            b = vdwiden(x + W / 2) - k1;
        } else { /* nothing is 0 - 0 */
            vf v = vget(p->x, at, n, half), from = vload_upto(about, n);
            a = vlo(v) - vlo(from);
            b = vhi(v) - vhi(from);
        }
        s0 += a;
        s1 += b;
        q0 = vdfma(a, a, q0);
        q1 = vdfma(b, b, q1);
    }
    vdstore(sum, s0);
    vdstore(sum + W / 2, s1);
    vdstore(sq, q0);
    vdstore(sq + W / 2, q1);
}

/* y = act((x - mean) * scale + shift): the mean is taken off first, or x far from zero would lose
 * its digits in a difference of large products. */
VEC_FN void column_apply(const tsri_fast_bn *p, bn_column c, const bool act, const bool full,
                         const bool half)
{
    vf a = vload(p->coef[TSRI_BN_SCALE] + c.j), b = vload(p->coef[TSRI_BN_SHIFT] + c.j);
    vf m = vload(p->coef[TSRI_BN_MEAN] + c.j);
    vf lo = vset1(0.0f), hi = vset1(p->hi);
    VEC_LOOP
    for (int64_t i = 0; i < bn_rows(c, full); i++) {
        int64_t at = bn_at(p, c, i), n = bn_left(p, c, i, full);
        if (n <= 0)
            break;
        bn_ask(c, p->x, at, full, half);
        vf y = vfma(vget(p->x, at, n, half) - m, a, b);
        if (act)
            y = vmin(hi, vmax(lo, y));
        vput(p->y, at, y, n, half);
    }
}

/* dy where the activation let y pass; d: x - mean. */
VEC_FN vf bn_gradient(const tsri_fast_bn *p, vf d, vf dy, int64_t j, const bool act)
{
    if (!act)
        return dy;
    vf y = vfma(d, vload(p->coef[TSRI_BN_SCALE] + j), vload(p->coef[TSRI_BN_SHIFT] + j));
    return vinside(dy, y, vset1(0.0f), vset1(p->hi));
}

/* acc[0] += g, acc[1] += g * (x - mean). A few rows are summed in f32 before they join the f64
 * sums. */
VEC_FN void column_bwd_stats(const tsri_fast_bn *p, bn_column c, double *acc, const bool act,
                             const bool full, const bool half)
{
    vf m = vload(p->coef[TSRI_BN_MEAN] + c.j), s = vset1(0.0f), d = vset1(0.0f);
    VEC_LOOP
    for (int64_t i = 0; i < bn_rows(c, full); i++) {
        int64_t at = bn_at(p, c, i), n = bn_left(p, c, i, full);
        if (n <= 0)
            break;
        bn_ask(c, p->x, at, full, half);
        bn_ask(c, p->dy, at, full, half);
        vf from = vget(p->x, at, n, half) - m;
        vf g = bn_gradient(p, from, vget(p->dy, at, n, half), c.j, act);
        s += g;
        d = vfma(g, from, d);
    }
    bn_add(acc + c.j, s);
    bn_add(acc + p->width + c.j, d);
}

/* dx = g * gain + (x - mean) * slope + level. */
VEC_FN void column_bwd_apply(const tsri_fast_bn *p, bn_column c, const bool act, const bool full,
                             const bool half)
{
    vf m = vload(p->coef[TSRI_BN_MEAN] + c.j), gain = vload(p->coef[TSRI_BN_GAIN] + c.j);
    vf slope = vload(p->coef[TSRI_BN_SLOPE] + c.j), level = vload(p->coef[TSRI_BN_LEVEL] + c.j);
    VEC_LOOP
    for (int64_t i = 0; i < bn_rows(c, full); i++) {
        int64_t at = bn_at(p, c, i), n = bn_left(p, c, i, full);
        if (n <= 0)
            break;
        bn_ask(c, p->x, at, full, half);
        bn_ask(c, p->dy, at, full, half);
        vf from = vget(p->x, at, n, half) - m;
        vf g = bn_gradient(p, from, vget(p->dy, at, n, half), c.j, act);
        vput(p->y, at, vfma(g, gain, vfma(from, slope, level)), n, half);
    }
}

enum { STATS, APPLY, BWD_STATS, BWD_APPLY };

VEC_FN void bn_do(const tsri_fast_bn *p, bn_column c, double *acc, const int what, const bool act,
                  const bool full, const bool half)
{
    if (what == STATS)
        column_stats(p, c, acc, full, half);
    else if (what == APPLY)
        column_apply(p, c, act, full, half);
    else if (what == BWD_STATS)
        column_bwd_stats(p, c, acc, act, full, half);
    else
        column_bwd_apply(p, c, act, full, half);
}

VEC_FN void bn_walk(const tsri_fast_bn *of, int64_t r0, int64_t r1, double *acc, const int what,
                    const bool act, const bool half)
{
    const tsri_fast_bn own = *of, *p = &own; /* which no store can change */
    int64_t whole = p->count / p->width;
    bool near = p->width <= BN_NEAR;
    for (bn_column c = {.r = r0}; c.r < r1; c.r += BN_ROWS) {
        c.rows = r1 - c.r < BN_ROWS ? r1 - c.r : BN_ROWS;
        c.ahead = near && c.r + 2 * BN_ROWS <= whole ? BN_ROWS * p->width : 0;
        if (c.rows == BN_ROWS && c.r + BN_ROWS <= whole)
            for (c.j = 0; c.j < p->width; c.j += W)
                bn_do(p, c, acc, what, act, true, half);
        else
            for (c.j = 0; c.j < p->width; c.j += W)
                bn_do(p, c, acc, what, act, false, half);
    }
}

#define BN_LOOP(name, what, act)                                                        \
    static void bn_##name(const tsri_fast_bn *p, int64_t r0, int64_t r1, double *acc)   \
    {                                                                                   \
        bn_walk(p, r0, r1, acc, what, act, false);                                      \
    }                                                                                   \
    static void bn16_##name(const tsri_fast_bn *p, int64_t r0, int64_t r1, double *acc) \
    {                                                                                   \
        bn_walk(p, r0, r1, acc, what, act, true);                                       \
    }
BN_LOOP(stats, STATS, false)
BN_LOOP(apply, APPLY, false)
BN_LOOP(apply_act, APPLY, true)
BN_LOOP(bwd_stats, BWD_STATS, false)
BN_LOOP(bwd_stats_act, BWD_STATS, true)
BN_LOOP(bwd_apply, BWD_APPLY, false)
BN_LOOP(bwd_apply_act, BWD_APPLY, true)
