/* SPDX-License-Identifier: Apache-2.0 */
/* Images between planes and pixels with channels side by side. Included once per instruction set;
 * see vec.h. */
#if VEC_ISA == 512
/* Vectors of pixels are permuted where they have as many channels as this at most: that takes
 * channels times channels permutations for so many vectors. */
enum { FEW_CHANNELS = 6 };

/* The lane and the vector that each lane of a vector comes from. */
typedef struct lanes {
    __m512i lane;
    __mmask16 from[FEW_CHANNELS];
} lanes;

VEC_FN lanes lanes_of(__m512i lane, __m512i vector, int64_t vectors)
{
    lanes l = {.lane = lane};
    for (int64_t v = 0; v < vectors; v++)
        l.from[v] = _mm512_cmpeq_epi32_mask(vector, _mm512_set1_epi32((int)v));
    return l;
}

/* Numbers `first` and on, by lanes: each one divided by n, and what is left. They are below 96. */
VEC_FN __m512i count_from(int64_t first)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_epi32(lane, _mm512_set1_epi32((int)first));
}

VEC_FN __m512i divided(__m512i x, int64_t n)
{
    const __m512i by = _mm512_set1_epi32((int)((1 << 16) / n + 1));
    return _mm512_srli_epi32(_mm512_mullo_epi32(x, by), 16);
}

VEC_FN vf pick_lanes(const lanes *l, const vf *v, const int n)
{
    __m512 x = _mm512_permutexvar_ps(l->lane, (__m512)v[0]);
    VEC_LOOP
    for (int i = 1; i < n; i++)
        x = _mm512_mask_permutexvar_ps(x, l->from[i], l->lane, (__m512)v[i]);
    return (vf)x;
}

/* W pixels of n channels. */
VEC_FN void join_pixels(const lanes *l, const float *planes, int64_t plane, float *pixels,
                        const int n)
{
    vf v[FEW_CHANNELS];
    VEC_LOOP
    for (int i = 0; i < n; i++)
        v[i] = vload(planes + i * plane);
    VEC_LOOP
    for (int i = 0; i < n; i++)
        vstore(pixels + i * W, pick_lanes(&l[i], v, n));
}

VEC_FN void split_pixels(const lanes *l, const float *pixels, int64_t plane, float *planes,
                         const int n)
{
    vf v[FEW_CHANNELS];
    VEC_LOOP
    for (int i = 0; i < n; i++)
        v[i] = vload(pixels + i * W);
    VEC_LOOP
    for (int i = 0; i < n; i++)
        vstore(planes + i * plane, pick_lanes(&l[i], v, n));
}

VEC_FN void join_lines(const tsri_fast_planes *p, const float *planes, float *pixels, const int n)
{
    lanes l[FEW_CHANNELS];
    for (int i = 0; i < n; i++) {
        const __m512i at = count_from((int64_t)i * W), pixel = divided(at, n);
        const __m512i channel =
            _mm512_sub_epi32(at, _mm512_mullo_epi32(pixel, _mm512_set1_epi32(n)));
        l[i] = lanes_of(pixel, channel, n);
    }
    for (int64_t h = 0; h < p->lines; h++, planes += p->plane_pitch, pixels += p->pixel_pitch)
        for (int64_t w = 0, next; w < p->pixels; w = next) {
            /* The last vector may begin inside the one before. */
            next = w + W < p->pixels && w + 2 * W > p->pixels ? p->pixels - W : w + W;
            join_pixels(l, planes + w, p->plane, pixels + w * n, n);
        }
}

VEC_FN void split_lines(const tsri_fast_planes *p, const float *pixels, float *planes, const int n)
{
    lanes l[FEW_CHANNELS];
    for (int i = 0; i < n; i++) {
        const __m512i at = _mm512_add_epi32(_mm512_mullo_epi32(count_from(0), _mm512_set1_epi32(n)),
                                            _mm512_set1_epi32(i));
        l[i] =
            lanes_of(_mm512_and_epi32(at, _mm512_set1_epi32(W - 1)), _mm512_srli_epi32(at, 4), n);
    }
    for (int64_t h = 0; h < p->lines; h++, planes += p->plane_pitch, pixels += p->pixel_pitch)
        for (int64_t w = 0, next; w < p->pixels; w = next) {
            next = w + W < p->pixels && w + 2 * W > p->pixels ? p->pixels - W : w + W;
            split_pixels(l, pixels + w * n, p->plane, planes + w, n);
        }
}

/* Whether it did. */
#define BY_CHANNELS(name, lines)                                              \
    static bool name(const tsri_fast_planes *p, const float *from, float *to) \
    {                                                                         \
        switch (p->pixels < W ? 0 : p->channels) {                            \
        case 2:                                                               \
            lines(p, from, to, 2);                                            \
            return true;                                                      \
        case 3:                                                               \
            lines(p, from, to, 3);                                            \
            return true;                                                      \
        case 4:                                                               \
            lines(p, from, to, 4);                                            \
            return true;                                                      \
        case 5:                                                               \
            lines(p, from, to, 5);                                            \
            return true;                                                      \
        case 6:                                                               \
            lines(p, from, to, 6);                                            \
            return true;                                                      \
        default:                                                              \
            return false;                                                     \
        }                                                                     \
    }
BY_CHANNELS(join_few, join_lines)
BY_CHANNELS(split_few, split_lines)
#undef BY_CHANNELS
#else
VEC_FN bool join_few(const tsri_fast_planes *p, const float *from, float *to)
{
    (void)p, (void)from, (void)to;
    return false;
}
#define split_few join_few
#endif

static void join_planes(const tsri_fast_planes *p, const float *planes, float *pixels)
{
    if (join_few(p, planes, pixels))
        return;
    for (int64_t h = 0; h < p->lines; h++)
        transpose_f32(planes + h * p->plane_pitch, p->plane, pixels + h * p->pixel_pitch,
                      p->channels, p->pixels, p->channels);
}

static void split_planes(const tsri_fast_planes *p, const float *pixels, float *planes)
{
    if (split_few(p, pixels, planes))
        return;
    for (int64_t h = 0; h < p->lines; h++)
        transpose_f32(pixels + h * p->pixel_pitch, p->channels, planes + h * p->plane_pitch,
                      p->plane, p->channels, p->pixels);
}
