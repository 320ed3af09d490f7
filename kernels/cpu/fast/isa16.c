/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks of gemm16.h, and what packs and stores them, for AMX and for AVX512-BF16. */
#include "kernels/cpu/fast/gemm16.h"

#ifdef TSRI_FAST_X86
#include <cpuid.h>
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define VECTORS "avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,avx2,fma"
#define BF16 __attribute__((target(VECTORS)))
#define AMX __attribute__((target(VECTORS ",amx-tile,amx-bf16")))

/* --- packing and storing ---------------------------------------------------------------------- */

/* Rows become columns, of 16 words each. */
BF16 static inline void turn16(__m512i r[16])
{
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) { /* pairs of rows */
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) /* fours: r[i + q] has column q of each 128 bits */
        for (int q = 0; q < 2; q++) {
            r[i + 2 * q] = _mm512_unpacklo_epi64(t[i + q], t[i + 2 + q]);
            r[i + 2 * q + 1] = _mm512_unpackhi_epi64(t[i + q], t[i + 2 + q]);
        }
    for (int q = 0; q < 4; q++) {
        const __m512i a = _mm512_shuffle_i32x4(r[q], r[4 + q], 0x88);
        const __m512i b = _mm512_shuffle_i32x4(r[q], r[4 + q], 0xdd);
        const __m512i c = _mm512_shuffle_i32x4(r[8 + q], r[12 + q], 0x88);
        const __m512i d = _mm512_shuffle_i32x4(r[8 + q], r[12 + q], 0xdd);
        t[q] = _mm512_shuffle_i32x4(a, c, 0x88);
        t[4 + q] = _mm512_shuffle_i32x4(b, d, 0x88);
        t[8 + q] = _mm512_shuffle_i32x4(a, c, 0xdd);
        t[12 + q] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
    for (int i = 0; i < 16; i++)
        r[i] = t[i];
}

BF16 static inline __m512i load_line(const uint16_t *p, int64_t n)
{
    return _mm512_maskz_loadu_epi16((__mmask32)((UINT64_C(1) << n) - 1), p);
}

/* 16 words: lower halves of line 0, upper ones of line 1. */
BF16 static inline __m512i load_pair(const uint16_t *p, int64_t ld, int64_t lines, int64_t n)
{
    const __mmask16 some = (__mmask16)((1u << n) - 1);
    const __mmask16 m0 = lines > 0 ? some : 0, m1 = lines > 1 ? some : 0;
    const __m512i lo = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m0, p));
    const __m512i hi = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m1, p + (m1 ? ld : 0)));
    return _mm512_or_si512(lo, _mm512_slli_epi32(hi, 16));
}

BF16 static void pack16(const uint16_t *from, int64_t ld, int64_t lines, int64_t length, bool pairs,
                        bool turn, uint16_t *to)
{
    __m512i r[16];
    for (int i = 0; i < 16; i++) {
        if (pairs)
            r[i] = 2 * i < lines ? load_pair(from + 2 * i * ld, ld, lines - 2 * i, length)
                                 : _mm512_setzero_si512();
        else
            r[i] = i < lines ? load_line(from + i * ld, length) : _mm512_setzero_si512();
    }
    if (turn)
        turn16(r);
    for (int i = 0; i < 16; i++)
        _mm512_storeu_si512(to + 32 * i, r[i]);
}

BF16 static inline __m512 load_bias(const void *bias, bool wide, int64_t at, __mmask16 m)
{
    if (!bias)
        return _mm512_setzero_ps();
    if (wide)
        return _mm512_maskz_loadu_ps(m, (const float *)bias + at);
    const __m256i half = _mm256_maskz_loadu_epi16(m, (const uint16_t *)bias + at);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

BF16 static void store16(const float *c, int64_t rows, int64_t cols, const void *bias,
                         bool wide_bias, void *to, int64_t ld, bool wide)
{
    for (int64_t j = 0; j < cols; j += 16) {
        const __mmask16 m = cols - j >= 16 ? 0xffff : (__mmask16)((1u << (cols - j)) - 1);
        const __m512 add = load_bias(bias, wide_bias, j, m);
        for (int64_t r = 0; r < rows; r++) {
            __m512 v = _mm512_loadu_ps(c + r * TSRI_BLOCK + j);
            if (bias)
                v = _mm512_add_ps(v, add);
            if (wide)
                _mm512_mask_storeu_ps((float *)to + r * ld + j, m, v);
            else
                _mm256_mask_storeu_epi16((uint16_t *)to + r * ld + j, m,
                                         (__m256i)_mm512_cvtneps_pbh(v));
        }
    }
}

/* --- AVX512-BF16 ------------------------------------------------------------------------------ */
/* A packed a has its second tile of rows behind the first. */
static inline const uint16_t *row_of(const tsri_block16 *p, int64_t r)
{
    if (r < TSRI_TILE || p->step == TSRI_STEP)
        return p->a + r * p->pitch;
    return p->a + 2 * TSRI_TILE_WORDS + (r - TSRI_TILE) * p->pitch;
}

/* `count` rows from `first` on, of which the block may have fewer, by one or two tiles of columns:
 * both are known when compiled. */
BF16 static inline __attribute__((always_inline)) void rows16(const tsri_block16 *p, int64_t first,
                                                              const int count, const int tiles)
{
    __m512 acc[16][2];
    const uint16_t *a[16], *b = p->b;
    float *c = p->c + first * TSRI_BLOCK;
#pragma GCC unroll 16
    for (int r = 0; r < count; r++) {
        a[r] = row_of(p, first + r < p->rows ? first + r : p->rows - 1);
        for (int j = 0; j < tiles; j++)
            acc[r][j] = p->add ? _mm512_loadu_ps(c + r * TSRI_BLOCK + j * 16) : _mm512_setzero_ps();
    }
    int64_t at = 0, lines;
    const char *ahead = tsri_ahead_take(p->ahead, (p->terms + 1) / 2, &lines);
    for (int64_t s = 0, left = p->terms; s < p->steps; s++, left -= TSRI_STEP) {
        const int64_t pairs = left < TSRI_STEP ? (left + 1) / 2 : TSRI_STEP / 2;
        int64_t off = at;
        for (int64_t k = 0; k < pairs; k++, off += p->next, b += 2 * TSRI_TILE) {
            __m512bh bv[2];
            if (lines > 0) {
                _mm_prefetch(ahead, _MM_HINT_T1);
                ahead += TSRI_AHEAD_LINE;
                lines--;
            }
            for (int j = 0; j < tiles; j++)
                bv[j] = (__m512bh)_mm512_loadu_si512(b + j * 2 * TSRI_TILE_WORDS);
#pragma GCC unroll 16
            for (int r = 0; r < count; r++) {
                int32_t pair;
                memcpy(&pair, a[r] + off, sizeof pair);
                const __m512bh av = (__m512bh)_mm512_set1_epi32(pair);
                for (int j = 0; j < tiles; j++)
                    acc[r][j] = _mm512_dpbf16_ps(acc[r][j], av, bv[j]);
            }
        }
        b += 4 * TSRI_TILE_WORDS - pairs * 2 * TSRI_TILE;
        at += p->step;
    }
#pragma GCC unroll 16
    for (int r = 0; r < count; r++)
        for (int j = 0; j < tiles; j++)
            _mm512_storeu_ps(c + r * TSRI_BLOCK + j * 16, acc[r][j]);
}

/* As many rows at a time as have sums enough to hide how long one takes. */
BF16 static void block_bf16(const tsri_block16 *p)
{
    if (p->cols > TSRI_TILE)
        for (int64_t r = 0; r < p->rows; r += 8)
            rows16(p, r, 8, 2);
    else
        for (int64_t r = 0; r < p->rows; r += 16)
            rows16(p, r, 16, 1);
}

static const tsri_isa16 isa_bf16 = {.impl = "fast:avx512_bf16",
                                    .by_pairs = true,
                                    .block = block_bf16,
                                    .pack = pack16,
                                    .store = store16};

/* --- AMX -------------------------------------------------------------------------------------- */

/* All eight tiles are whole. A constant, as GCC takes only its first bytes for read. */
static const struct {
    uint8_t palette, start_row, none[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} whole_tiles = {.palette = 1,
                 .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                 .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

AMX static void begin_amx(void)
{
    _tile_loadconfig(&whole_tiles);
}

AMX static void end_amx(void)
{
    _tile_release();
}

/* Tiles 0 to 3: c; 4, 5: a; 6, 7: b. */
AMX static void block_amx(const tsri_block16 *p)
{
    /* LINES: that are asked for with each step. */
    enum { C_PITCH = TSRI_BLOCK * 4, C_LOWER = TSRI_TILE * TSRI_BLOCK, LINES = 8 };
    const uint16_t *a0 = p->a, *a1 = row_of(p, TSRI_TILE), *b = p->b;
    const size_t pitch = (size_t)p->pitch * 2;
    const bool low = p->rows > TSRI_TILE, right = p->cols > TSRI_TILE;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (p->add) {
        _tile_loadd(0, p->c, C_PITCH);
        _tile_loadd(1, p->c + TSRI_TILE, C_PITCH);
        _tile_loadd(2, p->c + C_LOWER, C_PITCH);
        _tile_loadd(3, p->c + C_LOWER + TSRI_TILE, C_PITCH);
    }
    int64_t lines;
    const char *ahead = tsri_ahead_take(p->ahead, LINES * p->steps, &lines);
    for (int64_t s = 0; s < p->steps; s++) {
        for (int i = 0; i < LINES && lines > 0; i++, lines--, ahead += TSRI_AHEAD_LINE)
            _mm_prefetch(ahead, _MM_HINT_T1);
        _tile_loadd(4, a0, pitch);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        if (right) {
            _tile_loadd(7, b + 2 * TSRI_TILE_WORDS, 64);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (low) {
            _tile_loadd(5, a1, pitch);
            _tile_dpbf16ps(2, 5, 6);
            if (right)
                _tile_dpbf16ps(3, 5, 7);
        }
        a0 += p->step;
        a1 += p->step;
        b += 4 * TSRI_TILE_WORDS;
    }
    _tile_stored(0, p->c, C_PITCH);
    _tile_stored(1, p->c + TSRI_TILE, C_PITCH);
    _tile_stored(2, p->c + C_LOWER, C_PITCH);
    _tile_stored(3, p->c + C_LOWER + TSRI_TILE, C_PITCH);
}

static const tsri_isa16 isa_amx = {.impl = "fast:amx",
                                   .begin = begin_amx,
                                   .end = end_amx,
                                   .block = block_amx,
                                   .pack = pack16,
                                   .store = store16};

/* Whether the processor has AMX's tiles of bf16 and the system lets this process use them, which it
 * has to be asked (Linux, Documentation/arch/x86/xstate.rst). Asking again changes nothing. */
static bool has_amx(void)
{
    unsigned a, b, c, d;
    const unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & amx_bf16) || !(d & amx_tile))
        return false;
#ifdef __linux__
    enum { REQUEST = 0x1023, TILES = 18 };
    return syscall(SYS_arch_prctl, REQUEST, TILES) == 0;
#else
    return false;
#endif
}

const tsri_isa16 *tsri_isa16_best(void)
{
    const char *limit = getenv("TESSERA_CPU_ISA");
    if (tsri_fast_isa_best() != &tsri_fast_isa_avx512 || !__builtin_cpu_supports("avx512bf16") ||
        (limit && !strcmp(limit, "avx512")))
        return NULL;
    if (limit && !strcmp(limit, "avx512_bf16"))
        return &isa_bf16;
    if (has_amx())
        return &isa_amx;
    /* Intel's processors take twice as long for one of these as for one of f32. */
    return __builtin_cpu_is("amd") ? &isa_bf16 : NULL;
}

#else

const tsri_isa16 *tsri_isa16_best(void)
{
    return NULL;
}

#endif
