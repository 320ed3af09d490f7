/* SPDX-License-Identifier: Apache-2.0 */
/* Max pooling of channels-last images, vectorised over channels. Included once per instruction set;
 * see vec.h. */
typedef int32_t vn __attribute__((vector_size(4 * W)));

VEC_FN vn vn_pick(vn mask, vn a, vn b)
{
    return (mask & a) | (~mask & b);
}

/* The largest of a window's pixels, and where it is; not-a-number is greater than all. */
VEC_FN void max_window(const tsri_fast_max *p, const int64_t from[2], const int64_t to[2],
                       int64_t c, float *y, int32_t *idx)
{
    const int64_t left = p->channels - c;
    vn at = (vn){0} + (int32_t)(from[0] * p->width + from[1]);
    vf best = vload_upto(p->image + (from[0] * p->width + from[1]) * p->channels + c, left);
    for (int64_t h = from[0]; h < to[0]; h++) {
        const float *x = p->image + (h * p->width + from[1]) * p->channels + c;
        for (int64_t w = from[1]; w < to[1]; w++, x += p->channels) {
            const vf v = vload_upto(x, left);
            const vn more = (v > best) | ((v != v) & (best == best));
            best = (vf)vn_pick(more, (vn)v, (vn)best);
            at = vn_pick(more, (vn){0} + (int32_t)(h * p->width + w), at);
        }
    }
    vstore_upto(y, best, left);
    if (idx)
        vstore_upto((float *)(void *)idx, (vf)at, left);
}

/* A line of results: lines [h0, h1) are under its windows. */
static void max_line(const tsri_fast_max *p, int64_t h0, int64_t h1, float *y, int32_t *idx)
{
    for (int64_t o = 0; o < p->results; o++) {
        const int64_t begin = o * p->stride - p->pad, end = begin + p->kernel;
        const int64_t from[2] = {h0, begin < 0 ? 0 : begin};
        const int64_t to[2] = {h1, end > p->width ? p->width : end};
        for (int64_t c = 0; c < p->channels; c += W)
            max_window(p, from, to, c, y + o * p->channels + c,
                       idx ? idx + o * p->channels + c : NULL);
    }
}
