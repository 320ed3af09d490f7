/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products of bf16 with sums in f32, by AMX's tiles or AVX512-BF16's dot products, which
 * take subnormal numbers for 0. On machines that have neither nothing of this is there.
 */
#ifndef TESSERA_KERNELS_CPU_FAST_GEMM16_H
#define TESSERA_KERNELS_CPU_FAST_GEMM16_H

#include "kernels/cpu/fast/half.h"

enum {
    TSRI_TILE = 16,        /* rows of a tile; each holds 32 bf16, or 16 pairs of them, or 16 f32 */
    TSRI_BLOCK = 32,       /* rows and columns of a block: two tiles by two */
    TSRI_PAIRS = 16,       /* of a row */
    TSRI_STEP = 32,        /* terms of a sum that one pair of tiles has */
    TSRI_TILE_WORDS = 256, /* 32-bit words of a tile */
};

/* A block c[32][32] = (add ? c : 0) + a b over `steps` of 32 terms, of which `terms` are there in
 * all. a's rows are `pitch` bf16 apart, its pairs of terms `next`, its steps `step`; b is packed:
 * [step][2 tiles][16 pairs of k][16 columns][2]. The caller wants `rows` by `cols` of c. */
typedef struct tsri_block16 {
    const uint16_t *a, *b;
    int64_t pitch, next, step, steps, terms, rows, cols;
    bool add;
    float *c;
    tsri_ahead *ahead; /* asked for meanwhile; NULL: nothing */
} tsri_block16;

typedef struct tsri_isa16 {
    const char *impl;
    /* Whether a block reads a pair by pair, no more than are wanted, at any pitch and next; else
     * whole tiles, whose pairs are neighbours. */
    bool by_pairs;
    void (*begin)(void); /* on a thread, before its first block; NULL: nothing */
    void (*end)(void);
    void (*block)(const tsri_block16 *p);
    /* Packs a tile: 16 lines of 32 bf16, or, with `pairs`, 32 lines of 16, of which neighbours are
     * paired; then turned, words for words. `lines` and `length` are how many there are: the others
     * are 0. Lines are ld apart. */
    void (*pack)(const uint16_t *from, int64_t ld, int64_t lines, int64_t length, bool pairs,
                 bool turn, uint16_t *to);
    /* to[rows][cols], rows ld apart, of c[32][32] + bias: bf16, or with `wide` f32. bias: bf16, or
     * with `wide_bias` f32; NULL: none. */
    void (*store)(const float *c, int64_t rows, int64_t cols, const void *bias, bool wide_bias,
                  void *to, int64_t ld, bool wide);
} tsri_isa16;

/* Returns the fastest of this machine, or of TESSERA_CPU_ISA (amx, avx512_bf16) if that is less;
 * NULL: there is none. */
const tsri_isa16 *tsri_isa16_best(void);

/* c[m, n] = a b + bias; a, b and the strides as tsri_fast_gemm has them. wide: c is f32. */
typedef struct tsri_gemm16 {
    const tsri_isa16 *isa;
    int64_t m, n, k, lda, bk, bn, ldc;
    bool ta, wide, wide_bias;
    int threads;
    bool by_columns; /* threads share columns, else rows */
    int64_t terms;   /* of k that are summed at a time */
    int64_t group;   /* columns of b that are packed together */
    int64_t chunk;   /* rows whose sums are kept while k goes on */
    size_t a_bytes, b_bytes, part_bytes, scratch_bytes;
} tsri_gemm16;

/* Returns the product that `of` is, with the operands' dtypes of desc: planned for as many threads
 * as it is worth, or for one. */
tsri_gemm16 tsri_gemm16_plan(const tsri_kernel_desc *desc, const tsri_fast_gemm *of, bool alone);
/* Products by hand, on the calling thread: b is packed once for many rows, and all of k is summed
 * at a time. Bytes of the room that rows of a need; of packed b, of which `terms` are there;
 * packing it, of which each of `parts` callers does one; c[rows, n] with packed b. */
tsri_gemm16 tsri_gemm16_plan_packed(const tsri_fast_gemm *of, bool wide, bool wide_bias);
size_t tsri_gemm16_room(int64_t terms);
size_t tsri_gemm16_packed(const tsri_gemm16 *g, int64_t terms);
void tsri_gemm16_pack(const tsri_gemm16 *g, int part, int parts, const uint16_t *b, int64_t terms,
                      uint16_t *packed);
void tsri_gemm16_rows(const tsri_gemm16 *g, int64_t rows, const uint16_t *a, const uint16_t *packed,
                      const void *bias, void *c, void *room, tsri_ahead *ahead);
/* Products whose k comes in parts: bytes of the sums, which lie in blocks; adding `terms` more to
 * them, or beginning them; c of the sums, of which each of `parts` callers stores some rows. */
size_t tsri_gemm16_sums(const tsri_gemm16 *g);
void tsri_gemm16_add(const tsri_gemm16 *g, int64_t terms, const uint16_t *a, const uint16_t *packed,
                     bool first, float *sums, void *room, tsri_ahead *ahead);
void tsri_gemm16_store(const tsri_gemm16 *g, int part, int parts, const float *sums, void *c);
/* Whether a product's or convolution's operands and results are such: bf16, but for results and a
 * bias, which may be f32; and whether there are products of them. */
bool tsri_fast_takes16(const tsri_kernel_desc *desc);
bool tsri_gemm16_takes(const tsri_kernel_desc *desc);
void tsri_gemm16_run(const tsri_gemm16 *g, const uint16_t *a, const uint16_t *b, const void *bias,
                     void *c, void *scratch);

#endif
