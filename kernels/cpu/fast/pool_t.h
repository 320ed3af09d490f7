/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Max pooling of channels-last images, vectorised over channels, and means of these and of planes.
 * Included once per instruction set; see vec.h.
 *
 * Where the channels end inside a vector, its further lanes work on the next pixels' channels. They
 * are stored too where these pixels get their own results later, as whole vectors take less time.
 */
typedef int32_t vn __attribute__((vector_size(4 * W)));

/* Takes v and its place over where v is greater; not-a-number is greater than all, the first one.
 */
VEC_FN void max_take(vf v, int32_t place, vf *best, vn *at)
{
#if VEC_ISA == 512
    __mmask16 more = _mm512_cmp_ps_mask((__m512)*best, (__m512)*best, _CMP_ORD_Q);
    more = _mm512_mask_cmp_ps_mask(more, (__m512)v, (__m512)*best, _CMP_NLE_UQ);
    *best = (vf)_mm512_mask_mov_ps((__m512)*best, more, (__m512)v);
    *at = (vn)_mm512_mask_set1_epi32((__m512i)*at, more, place);
#elif VEC_ISA == 256
    const __m256 was = _mm256_cmp_ps((__m256)*best, (__m256)*best, _CMP_ORD_Q);
    const __m256 more = _mm256_and_ps(was, _mm256_cmp_ps((__m256)v, (__m256)*best, _CMP_NLE_UQ));
    *best = (vf)_mm256_blendv_ps((__m256)*best, (__m256)v, more);
    *at = (vn)_mm256_blendv_epi8((__m256i)*at, _mm256_set1_epi32(place), (__m256i)more);
#else
    const vn more = (v > *best) | ((v != v) & (*best == *best));
    *best = (vf)((more & (vn)v) | (~more & (vn)*best));
    *at = (more & ((vn){0} + place)) | (~more & *at);
#endif
}

/* Sets the pixels [from, to) under the window of result o, along a line. */
VEC_FN void pixels_under(const tsri_fast_pool *p, int64_t o, int64_t *from, int64_t *to)
{
    const int64_t begin = o * p->stride - p->pad, end = begin + p->kernel;
    *from = begin < 0 ? 0 : begin;
    *to = end > p->width ? p->width : end;
}

/* Channels [c, c + W) of a window's largest pixels, and where they are: lines of it `pitch` floats
 * apart from x on, the first pixel of which is `place`. n lanes of vectors are there. */
VEC_FN void max_window(const float *x, int64_t pitch, int64_t lines, int64_t pixels,
                       int64_t channels, int32_t place, int32_t width, int64_t n, float *y,
                       int32_t *idx)
{
    vn at = (vn){0} + place;
    vf best = vload_upto(x, n);
    for (int64_t h = 0; h < lines; h++, x += pitch, place += width) {
        const float *pixel = x;
        for (int64_t w = 0; w < pixels; w++, pixel += channels)
            max_take(vload_upto(pixel, n), place + (int32_t)w, &best, &at);
    }
    vstore_upto(y, best, n);
    if (idx)
        vstore_upto((float *)(void *)idx, (vf)at, n);
}

/* A line of results: lines [h0, h1) are under its windows. */
static void max_line(const tsri_fast_pool *args, int64_t h0, int64_t h1, float *y, int32_t *idx)
{
    const tsri_fast_pool p = *args;
    const int64_t channels = p.channels, pitch = p.width * channels;
    int64_t from, to;
    for (int64_t o = 0; o < p.results; o++, y += channels, idx += idx ? channels : 0) {
        pixels_under(&p, o, &from, &to);
        const float *x = p.image + h0 * pitch + from * channels;
        const int32_t place = (int32_t)(h0 * p.width + from), width = (int32_t)p.width;
        const bool whole = (p.width - to) * channels >= W && (p.results - o - 1) * channels >= W;
        for (int64_t c = 0; c < channels; c += W)
            if (whole)
                max_window(x + c, pitch, h1 - h0, to - from, channels, place, width, W, y + c,
                           idx ? idx + c : NULL);
            else
                max_window(x + c, pitch, h1 - h0, to - from, channels, place, width, channels - c,
                           y + c, idx ? idx + c : NULL);
    }
}

/* dy and 0 by lanes: dy's own where the place is that of its lane. */
VEC_FN vf max_share(vf dy, vn at, vn place)
{
#if VEC_ISA == 512
    const __mmask16 here = _mm512_cmpeq_epi32_mask((__m512i)at, (__m512i)place);
    return (vf)_mm512_maskz_mov_ps(here, (__m512)dy);
#else
    return (vf)((at == place) & (vn)dy);
#endif
}

#if defined(__clang__)
VEC_FN vf max_pick(vf v, vn lane)
{
    vf out = v;
    for (int i = 0; i < W; i++)
        out[i] = v[lane[i]];
    return out;
}
#else
VEC_FN vf max_pick(vf v, vn lane)
{
    return __builtin_shuffle(v, lane);
}
#endif

/* The gradient of a line of results whose windows share no pixel, and leave none of lines [h0, h1)
 * out: of windows whose lines are not longer than a vector, which is made of one pixel's. */
VEC_FN void max_narrow_dx(const tsri_fast_pool *p, int64_t h0, int64_t h1, const int32_t *idx,
                          const float *dy, float *image)
{
    const int64_t channels = p->channels, run = p->kernel * channels, pitch = p->width * channels;
    vn channel = {0}, pixel = {0};
    for (int i = 0, w = 0; w < p->kernel; w++)
        for (int c = 0; c < channels; c++, i++) {
            channel[i] = c;
            pixel[i] = w;
        }
    for (int64_t h = h0; h < h1; h++) {
        float *dx = image + h * pitch;
        vn place = pixel + (int32_t)(h * p->width);
        for (int64_t o = 0; o < p->results; o++, dx += run, place += p->kernel) {
            const int64_t left = (p->results - o) * channels;
            const vf share = vload_upto(dy + o * channels, left) + vset1(0.0f);
            const vn at = (vn)vload_upto((const float *)(const void *)(idx + o * channels), left);
            const vf own = max_pick(share, channel);
            vstore_upto(dx, max_share(own, (vn)max_pick((vf)at, channel), place), left * p->kernel);
        }
    }
}

/* Does that for any windows, pixel by pixel. */
static void max_line_dx(const tsri_fast_pool *args, int64_t h0, int64_t h1, const int32_t *idx,
                        const float *dy, float *image)
{
    const tsri_fast_pool p = *args;
    const int64_t channels = p.channels, pitch = p.width * channels;
    if (p.kernel * channels <= W) {
        max_narrow_dx(&p, h0, h1, idx, dy, image);
        return;
    }
    for (int64_t h = h0; h < h1; h++) {
        float *dx = image + h * pitch;
        for (int64_t o = 0; o < p.results; o++)
            for (int64_t w = o * p.kernel; w < (o + 1) * p.kernel; w++, dx += channels)
                for (int64_t c = 0; c < channels; c += W) {
                    const int64_t at = o * channels + c, n = channels - c;
                    const vf share = vload_upto(dy + at, n) + vset1(0.0f);
                    const vn from = (vn)vload_upto((const float *)(const void *)(idx + at), n);
                    vstore_upto(dx + c,
                                max_share(share, from, (vn){0} + (int32_t)(h * p.width + w)), n);
                }
    }
}

/* --- means ------------------------------------------------------------------------------------ */
/* The even, or with `odd` the odd, elements of two vectors. */
VEC_FN vf vhalves(vf a, vf b, const bool odd)
{
#if VEC_ISA == 512
    const __m512i lane =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return (vf)_mm512_permutex2var_ps((mf)a, _mm512_add_epi32(lane, _mm512_set1_epi32(odd)), (mf)b);
#elif VEC_ISA == 256
    const mf both =
        odd ? _mm256_shuffle_ps((mf)a, (mf)b, 0xdd) : _mm256_shuffle_ps((mf)a, (mf)b, 0x88);
    return (vf)_mm256_permute4x64_pd((md)both, 0xd8);
#else
    return odd ? (vf){a[1], a[3], b[1], b[3]} : (vf){a[0], a[2], b[0], b[2]};
#endif
}

/* The sums of W windows of a line that has its padding, from x on. */
VEC_FN vf sums_along(const tsri_fast_pool *p, const float *x)
{
    vf s = vset1(0.0f);
    if (p->stride == 1) {
        for (int k = 0; k < p->kernel; k++)
            s += vload(x + k);
    } else if (p->stride == 2) {
        for (int k = 0; k < p->kernel; k += 2) {
            const vf a = vload(x + k), b = vload(x + k + W);
            s += vhalves(a, b, false);
            s += k + 1 < p->kernel ? vhalves(a, b, true) : vset1(0.0f);
        }
    }
    return s;
}

/* Writes a line of means of one channel: adds up lines first, then along their sum. */
VEC_FN void mean_plane(const tsri_fast_pool *p, const float *x, int64_t lines, float *y)
{
    float *to = p->room + p->pad;
    for (int64_t i = 0; i < p->width; i += W) {
        const int64_t n = p->width - i;
        vf s = vload_upto(x + i, n);
        for (int64_t h = 1; h < lines; h++)
            s += vload_upto(x + h * p->width + i, n);
        vstore_upto(to + i, s, n);
    }
    for (int64_t o = 0; o < p->results && p->stride <= 2; o += W) {
        const int64_t n = p->results - o;
        const vf by = vset1(p->lines_count) * vload_upto(p->counts + o, n);
        vstore_upto(y + o, sums_along(p, p->room + o * p->stride) / by, n);
    }
    for (int64_t o = 0; o < p->results && p->stride > 2; o++) {
        float s = 0;
        for (int k = 0; k < p->kernel; k++)
            s += p->room[o * p->stride + k];
        y[o] = s / (p->lines_count * p->counts[o]);
    }
}

/* A line of means. */
static void mean_line(const tsri_fast_pool *args, int64_t h0, int64_t h1, float *y)
{
    const tsri_fast_pool p = *args;
    const int64_t channels = p.channels, pitch = p.width * channels;
    int64_t from, to;
    if (channels == 1) {
        mean_plane(&p, p.image + h0 * pitch, h1 - h0, y);
        return;
    }
    for (int64_t o = 0; o < p.results; o++, y += channels) {
        pixels_under(&p, o, &from, &to);
        const vf by = vset1(p.lines_count * p.counts[o]);
        for (int64_t c = 0; c < channels; c += W) {
            const float *x = p.image + h0 * pitch + from * channels + c;
            vf s = vset1(0.0f);
            for (int64_t h = h0; h < h1; h++, x += pitch)
                for (int64_t w = 0; w < to - from; w++)
                    s += vload_upto(x + w * channels, channels - c);
            vstore_upto(y + c, s / by, channels - c);
        }
    }
}
