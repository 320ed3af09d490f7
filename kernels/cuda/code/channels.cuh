/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A channels-last tensor as a matrix: rows are samples and pixels, columns channels, without gaps.
 * How blocks and threads share it: columns are cut into packs (what a thread loads at once) and
 * those into tiles of equal width; a block has one tile and a range of rows, its threads lie as
 * rows x packs of the tile, so neighbours in a warp are neighbours in memory; a thread stays in its
 * pack, and keeps what it needs of those channels in registers.
 */
#ifndef TESSERA_KERNELS_CUDA_CHANNELS_H
#define TESSERA_KERNELS_CUDA_CHANNELS_H

#include <string.h>
#include <type_traits>

#include "kernels/cuda/device_code.cuh"

/* Elements of T in a pack of 16 bytes. */
template <typename T> constexpr int tsri_full_pack(void)
{
    return 16 / (int)sizeof(T);
}

/* Passed to kernels by value. */
typedef struct tsri_tiles {
    int64_t c;      /* channels */
    int pack;       /* elements of a pack */
    int width;      /* packs of a tile */
    int height;     /* rows that a block's threads cover at once */
    unsigned tiles; /* across the channels */
    int64_t ranges; /* of rows, for each of which there are blocks */
    int64_t each;   /* rows of a range: whole heights of threads */
} tsri_tiles;

/* The widest tile: the channels of it are at most TSRI_TILE_CHANNELS. */
enum { TSRI_TILE_CHANNELS = 256 };

/* Tiles of at most `most` packs for blocks of `threads`; one range. */
static inline tsri_tiles tsri_tiles_of(int64_t c, int pack, int most, int threads)
{
    tsri_tiles t = {c, pack, 0, 0, 0, 1, 0};
    int64_t packs = (c + pack - 1) / pack, tiles = (packs + most - 1) / most;
    if (packs == 0)
        return t;
    t.width = (int)((packs + tiles - 1) / tiles);
    if (tiles > 1 && t.width % 2 && t.width < most)
        t.width++; /* tiles of 16-byte packs begin at whole sectors of 32 bytes */
    t.height = threads / t.width;
    t.tiles = (unsigned)((packs + t.width - 1) / t.width);
    return t;
}

/* The place of a thread in its block: its row of threads, its pack's first channel. idle: it has
 * none. */
typedef struct tsri_tile_place {
    int row, column;
    int64_t channel;
    bool idle;
} tsri_tile_place;

static __device__ __forceinline__ tsri_tile_place tsri_tile_place_of(const tsri_tiles &t,
                                                                     unsigned tile)
{
    tsri_tile_place p;
    p.row = (int)threadIdx.x / t.width;
    p.column = (int)threadIdx.x - p.row * t.width;
    p.channel = ((int64_t)tile * t.width + p.column) * t.pack;
    p.idle = p.row >= t.height || p.channel >= t.c;
    return p;
}

/* [begin, end) */
typedef struct tsri_channel_rows {
    int64_t begin, end;
} tsri_channel_rows;

/* Cuts at most `rows` rows into ranges. */
static inline void tsri_tiles_cut(tsri_tiles *t, int64_t rows, int64_t ranges)
{
    int64_t heights = t->height ? (rows + t->height - 1) / t->height : 0;
    t->ranges = ranges < 1 ? 1 : ranges;
    t->each = (heights + t->ranges - 1) / t->ranges * t->height;
}

/* Range r of the rows begin..end, which may be fewer than were cut. */
static __device__ __forceinline__ tsri_channel_rows tsri_channel_rows_of(const tsri_tiles &t,
                                                                         int64_t begin, int64_t end,
                                                                         int64_t r)
{
    tsri_channel_rows rows = {begin + r * t.each, begin + (r + 1) * t.each};
    if (rows.end > end)
        rows.end = end;
    return rows;
}

/* How many rows of a range are a thread's: place.row, place.row + height, ... */
static __device__ __forceinline__ int64_t tsri_channel_rows_left(const tsri_tiles &t,
                                                                 const tsri_channel_rows &rows,
                                                                 const tsri_tile_place &place)
{
    int64_t rest = rows.end - rows.begin - place.row;
    return place.idle || rest <= 0 ? 0 : (rest + t.height - 1) / t.height;
}

/* Element i of a pack, for arithmetic. A pair of bf16 stays in one register: they are the halves of
 * a word's f32. */
template <typename T, int V>
static __device__ __forceinline__ tsri_acc<T> tsri_pack_at(const tsri_pack<T, V> &p, int i)
{
    if constexpr (std::is_same<T, __nv_bfloat16>::value && V % 2 == 0) {
        uint32_t word;
        float value;
        memcpy(&word, &p.v[i & ~1], sizeof word);
        word = i & 1 ? word & 0xffff0000u : word << 16;
        memcpy(&value, &word, sizeof value);
        return value;
    } else {
        return tsri_to<tsri_acc<T>>(p.v[i]);
    }
}

#endif
