/* SPDX-License-Identifier: Apache-2.0 */
/* Transposes of blocks of 4 x 4 elements, for packing. Included once per instruction set; see
 * vec.h.
 */

typedef float vq __attribute__((vector_size(16)));
typedef int32_t vqi __attribute__((vector_size(16)));

VEC_FN vq vqload(const float *p)
{
    vq v;
    memcpy(&v, p, sizeof v);
    return v;
}

#if defined(__clang__)
#define VQ_SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define VQ_SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (vqi){i, j, k, l})
#endif

/* dst[i * ldd + j] = src[j * lds + i], i, j < 4. */
VEC_FN void transpose4_f32(const float *src, int64_t lds, float *dst, int64_t ldd)
{
    vq r0 = vqload(src), r1 = vqload(src + lds), r2 = vqload(src + 2 * lds);
    vq r3 = vqload(src + 3 * lds);
    vq a = VQ_SHUFFLE(r0, r1, 0, 4, 1, 5), b = VQ_SHUFFLE(r2, r3, 0, 4, 1, 5);
    vq c = VQ_SHUFFLE(r0, r1, 2, 6, 3, 7), d = VQ_SHUFFLE(r2, r3, 2, 6, 3, 7);
    vq o0 = VQ_SHUFFLE(a, b, 0, 1, 4, 5), o1 = VQ_SHUFFLE(a, b, 2, 3, 6, 7);
    vq o2 = VQ_SHUFFLE(c, d, 0, 1, 4, 5), o3 = VQ_SHUFFLE(c, d, 2, 3, 6, 7);
    memcpy(dst, &o0, sizeof o0);
    memcpy(dst + ldd, &o1, sizeof o1);
    memcpy(dst + 2 * ldd, &o2, sizeof o2);
    memcpy(dst + 3 * ldd, &o3, sizeof o3);
}

/* The first n < 4 columns of transpose4_f32. */
VEC_FN void transpose4_upto_f32(const float *src, int64_t lds, float *dst, int64_t ldd, int64_t n)
{
    vq r0 = vqload(src), r1 = n > 1 ? vqload(src + lds) : r0;
    vq r2 = n > 2 ? vqload(src + 2 * lds) : r0;
    vq a = VQ_SHUFFLE(r0, r1, 0, 4, 1, 5), b = VQ_SHUFFLE(r0, r1, 2, 6, 3, 7);
    for (int i = 0; i < 4; i++) {
        const vq pair = i < 2 ? a : b;
        if (n > 1)
            memcpy(dst + i * ldd, (const char *)&pair + (i & 1) * 8, 8);
        else
            dst[i * ldd] = r0[i];
        if (n > 2)
            dst[i * ldd + 2] = r2[i];
    }
}

typedef double vqd __attribute__((vector_size(16)));
typedef int64_t vqdi __attribute__((vector_size(16)));

VEC_FN vqd vqdload(const double *p)
{
    vqd v;
    memcpy(&v, p, sizeof v);
    return v;
}

#if defined(__clang__)
#define VQD_SHUFFLE(a, b, i, j) __builtin_shufflevector(a, b, i, j)
#else
#define VQD_SHUFFLE(a, b, i, j) __builtin_shuffle(a, b, (vqdi){i, j})
#endif

VEC_FN void transpose4_f64(const double *src, int64_t lds, double *dst, int64_t ldd)
{
    VEC_LOOP
    for (int j = 0; j < 4; j += 2)
        VEC_LOOP
    for (int i = 0; i < 4; i += 2) {
        const vqd r0 = vqdload(src + j * lds + i), r1 = vqdload(src + (j + 1) * lds + i);
        const vqd o0 = VQD_SHUFFLE(r0, r1, 0, 2), o1 = VQD_SHUFFLE(r0, r1, 1, 3);
        memcpy(dst + i * ldd + j, &o0, sizeof o0);
        memcpy(dst + (i + 1) * ldd + j, &o1, sizeof o1);
    }
}

/* The first n < 4 columns of transpose4_f64. */
VEC_FN void transpose4_upto_f64(const double *src, int64_t lds, double *dst, int64_t ldd, int64_t n)
{
    for (int64_t i = 0; i < 4; i++)
        for (int64_t j = 0; j < n; j++)
            dst[i * ldd + j] = src[j * lds + i];
}

/* The block of four after the one at i, of n: the last one may begin inside the one before. */
VEC_FN int64_t next_block(int64_t i, int64_t n)
{
    return i + 4 < n && i + 8 > n ? n - 4 : i + 4;
}
