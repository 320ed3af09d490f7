/* SPDX-License-Identifier: Apache-2.0 */
/* Attention's work on a row of scores of one block of keys. Included once per instruction set; see
 * vec.h and softmax_t.h. */

/* Adds the mask to the row; where it is -inf the sum is, also of a NaN. */
VEC_FN void attend_mask(const tsri_fast_attend *p)
{
    const vf none = vset1(-__builtin_inff());
    for (int64_t i = 0; p->mask && i < p->n; i += W) {
        vf by = p->mask_step ? vload_upto(p->mask + i, p->n - i) : vset1(*p->mask);
        vf sum = vload_upto(p->s + i, p->n - i) + by;
        vstore_upto(p->s + i, vchoose(by == none, none, sum), p->n - i);
    }
}

VEC_FN void attend_clear(float *s, int64_t n, int64_t width)
{
    memset(s + n, 0, (size_t)(width - n) * sizeof *s);
}

/* Makes weights of scores, relative to the largest score so far; what was summed before is scaled
 * to it. */
static void attend(const tsri_fast_attend *p)
{
    float lane[W], most = *p->most;
    const float before = most;
    attend_mask(p);
    vf m = vset1(most);
    for (int64_t i = 0; i < p->n; i += W)
        m = vmax(m, vload_or(p->s + i, p->n - i, most));
    vstore(lane, m);
    for (int i = 0; i < W; i++)
        most = lane[i] > most ? lane[i] : most;
    const float about = most == -__builtin_inff() ? 0 : most; /* no key was seen yet */
    vf sum = vset1(0.0f);
    for (int64_t i = 0; i < p->n; i += W) {
        vf e = vexp(vload_or(p->s + i, p->n - i, -__builtin_inff()) - vset1(about));
        sum += e;
        vstore_upto(p->s + i, e, p->n - i);
    }
    attend_clear(p->s, p->n, p->width);
    if (before != most && *p->sum != 0) {
        const float by = __builtin_expf(before - about);
        *p->sum *= (double)by;
        for (int64_t i = 0; i < p->features; i += W)
            vstore_upto(p->y + i, vload_upto(p->y + i, p->features - i) * vset1(by),
                        p->features - i);
    }
    *p->most = most;
    *p->sum += vsum(sum);
}

/* Makes weights of scores, with the row's lse, and slopes of what y's gradient is by the values:
 * scale weight (slope - mean). */
static void attend_back(const tsri_fast_attend *p)
{
    const vf lse = vset1(p->lse), gain = vset1(p->gain), mean = vset1(p->mean);
    const vf scale = vset1(p->scale), zero = vset1(0.0f), hidden = vset1(-__builtin_inff());
    attend_mask(p);
    for (int64_t i = 0; i < p->n; i += W) {
        const vf s = vload_upto(p->s + i, p->n - i);
        vf weight = vexp(s - lse) * gain, slope = vload_upto(p->slope + i, p->n - i);
        slope = weight * (slope - mean) * scale;
        vstore_upto(p->s + i, vchoose(s == hidden, zero, weight), p->n - i);
        vstore_upto(p->slope + i, vchoose(s == hidden, zero, slope), p->n - i);
    }
    attend_clear(p->s, p->n, p->width);
    attend_clear(p->slope, p->n, p->width);
}

static double dot(const float *x, const float *y, int64_t n)
{
    double total = 0;
    for (int64_t block = 0; block < n; block += 64 * W) {
        const int64_t end = block + 64 * W < n ? block + 64 * W : n;
        vf s = vset1(0.0f);
        for (int64_t i = block; i < end; i += W)
            s = vfma(vload_upto(x + i, end - i), vload_upto(y + i, end - i), s);
        total += vsum(s);
    }
    return total;
}
