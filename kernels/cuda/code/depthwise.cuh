/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the kernels of 3x3 depthwise convolution. Data is channels last. A thread has PACK
 * channels and walks along a strip of columns of a tile of rows, reading each column of its tile
 * once, so that it keeps filter and sums in registers; rows that tiles share are met in the L1
 * cache, since a block's threads are neighbouring tiles of one chunk of channels.
 */
#ifndef TESSERA_KERNELS_CUDA_DEPTHWISE_H
#define TESSERA_KERNELS_CUDA_DEPTHWISE_H

#include "kernels/cuda/code/channels.cuh"

enum {
    TSRI_DW_PACK = 4,   /* channels of a thread */
    TSRI_DW_CHUNK = 32, /* packs of a block, at most: 256 bytes of f16 */
    TSRI_DW_THREADS = 256,
    TSRI_DW_TAPS = 9,
    TSRI_DW_STRIP = 28, /* columns of a strip, at most: two more are read */
};

/* The sizes of a convolution, which kernels get by value. x is what is convolved and y is the
 * result, whichever of the kernel's operands these are. */
typedef struct tsri_dw {
    int h, w, oh, ow; /* of x, of y */
    int stride, pad_h, pad_w;
    int64_t c;
    int chunk, chunks, height; /* packs of a chunk; chunks; threads of a block for each pack */
    /* The walk of the threads: tiles of rows, each in strips of columns, of each sample. */
    int rows_begin, tiles, columns_begin, columns, strip, strips, items;
    int64_t w_c, w_h, w_w; /* strides of the filter */
    bool flip;             /* the filter, for the gradient of stride 1 */
} tsri_dw;

/* Which pack of channels a thread works on; an idle one works on none. */
typedef struct tsri_dw_place {
    int column; /* pack in the chunk */
    int row;    /* among the threads of the pack */
    int64_t channel;
    bool idle;
} tsri_dw_place;

/* An item of work: a strip of columns of one tile of rows of one sample. */
typedef struct tsri_dw_item {
    int64_t n;
    int tile, begin, end; /* columns of the strip */
} tsri_dw_item;

static __device__ __forceinline__ tsri_dw_place tsri_dw_place_of(const tsri_dw &d, unsigned chunk)
{
    tsri_dw_place p;
    p.row = (int)threadIdx.x / d.chunk;
    p.column = (int)threadIdx.x - p.row * d.chunk;
    p.channel = ((int64_t)chunk * d.chunk + p.column) * TSRI_DW_PACK;
    p.idle = p.row >= d.height || p.channel >= d.c;
    return p;
}

/* Returns item i: tiles below each other come first, then strips beside each other, then samples.
 */
static __device__ __forceinline__ tsri_dw_item tsri_dw_item_of(const tsri_dw &d, int i)
{
    tsri_dw_item t;
    int rest = i / d.tiles, n = rest / d.strips;
    t.tile = i - rest * d.tiles;
    t.n = n;
    t.begin = (rest - n * d.strips) * d.strip;
    t.end = t.begin + d.strip < d.columns ? t.begin + d.strip : d.columns;
    t.begin += d.columns_begin;
    t.end += d.columns_begin;
    return t;
}

/* A few rows of one column. */
template <typename T, int ROWS> struct tsri_dw_column {
    tsri_pack<T, TSRI_DW_PACK> row[ROWS];
};

/* Reads columns of ROWS rows of a sample; 0 outside. */
template <typename T, int ROWS> struct tsri_dw_reader {
    const T *at; /* column 0 of the first row */
    int64_t down, right;
    unsigned inside; /* bit r: row r is */
    int end;

    /* Reads columns up to `last`; those behind it are 0. */
    __device__ __forceinline__ tsri_dw_reader(const T *data, int64_t n, int h, int w, int64_t c,
                                              int64_t channel, int first_row, int last)
    {
        at = data + (n * h + first_row) * w * c + channel;
        down = w * c;
        right = c;
        end = last + 1 < w ? last + 1 : w;
        inside = 0;
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            inside |= (unsigned)(first_row + r >= 0 && first_row + r < h) << r;
    }

    __device__ __forceinline__ tsri_dw_column<T, ROWS> read(int column) const
    {
        tsri_dw_column<T, ROWS> v = {};
        if (column < 0 || column >= end)
            return v;
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            if (inside >> r & 1)
                v.row[r] = tsri_load_pack<T, TSRI_DW_PACK>(at + r * down + column * right);
        return v;
    }
};

/* Runs the statement with T as the type of a dtype that these kernels take. */
#define TSRI_DW_FLOATS(dtype, ...)                             \
    switch (dtype) {                                           \
        TSRI_CASE_(TSR_DTYPE_F32, float, __VA_ARGS__)          \
        TSRI_CASE_(TSR_DTYPE_F16, __half, __VA_ARGS__)         \
        TSRI_CASE_(TSR_DTYPE_BF16, __nv_bfloat16, __VA_ARGS__) \
    default:                                                   \
        break;                                                 \
    }

/* Returns whether these kernels take a convolution: 3x3, one channel in and out a group, channels
 * last, no dilation, stride 1 or 2, f32, f16 or bf16, channels in whole packs. */
bool tsri_cuda_is_dw(const tsri_kernel_desc *desc);
/* Returns a convolution's sizes, in tiles of `rows` rows of y, or of pairs of rows of x (the
 * gradient of stride 2). Strips are so short that each processor gets `threads`, unless most of a
 * strip would be its margin. */
tsri_dw tsri_cuda_dw(const tsri_kernel_desc *desc, int rows, int threads);

#endif
