/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the kernels of 3x3 depthwise convolution, of data in channels-last order.
 *
 * A thread works on one pack of TSRI_DW_PACK channels, and on one item at a time: a tile of a few
 * rows, over a strip of columns. It walks along the strip and reads each column of its tile once,
 * with filter and sums in registers. A block works on one chunk of packs, with tsri_dw.height
 * threads for each pack. Their items are neighbours, so that the rows that two tiles share are read
 * from the L1 cache.
 */
#ifndef TESSERA_KERNELS_CUDA_DEPTHWISE_H
#define TESSERA_KERNELS_CUDA_DEPTHWISE_H

#include "kernels/cuda/code/channels.cuh"

enum {
    TSRI_DW_PACK = 4,      /* channels of a thread */
    TSRI_DW_CHUNK = 32,    /* packs of a block at most: 256 bytes of f16 */
    TSRI_DW_THREADS = 256, /* of a block */
    TSRI_DW_TAPS = 9,      /* positions of the 3x3 filter, row by row */
    TSRI_DW_STRIP = 28,    /* columns of a strip at most; stride 1 reads two more of x */
};

/* The sizes of a convolution, which kernels get by value. x is what is convolved and y is the
 * result, whichever of the kernel's operands these are. */
typedef struct tsri_dw {
    int h, w;   /* rows and columns of x: [n, h, w, c] in memory */
    int oh, ow; /* rows and columns of y: [n, oh, ow, c] in memory */
    int stride, pad_h, pad_w;
    int64_t c;  /* channels */
    int chunk;  /* packs of a chunk */
    int chunks; /* of all channels; the last may be part empty */
    int height; /* threads of a block for each pack */
    /* Tiles and strips count rows and columns of y. For the gradient of stride 2 they count pairs
     * of rows and of columns of padded x, from pair rows_begin and pair columns_begin on. */
    int rows_begin, columns_begin;
    int tiles;             /* of rows, of a sample */
    int columns;           /* of a sample */
    int strip;             /* columns of a strip */
    int strips;            /* of a tile */
    int items;             /* of all samples: n * strips * tiles */
    int64_t w_c, w_h, w_w; /* the filter's strides per channel, row, column, in elements */
    bool flip;             /* turn the filter round: the gradient of stride 1 */
} tsri_dw;

/* A thread's place in its block. */
typedef struct tsri_dw_place {
    int column;      /* its pack, counted in the chunk */
    int row;         /* its number among the threads of that pack */
    int64_t channel; /* the first of its pack, counted in x */
    bool idle;       /* there is no work at this place */
} tsri_dw_place;

/* An item of work: a strip of columns of one tile of rows of one sample. */
typedef struct tsri_dw_item {
    int64_t n;      /* the sample */
    int tile;       /* counted in the sample, from 0 */
    int begin, end; /* the strip's columns are [begin, end) */
} tsri_dw_item;

/* Returns the place of this thread in a block that works on a chunk, counted from 0. */
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

/* A pack of channels as words: halves that are handled one by one would be moved one by one. */
template <typename T> struct tsri_dw_pack {
    enum { WORDS = TSRI_DW_PACK * sizeof(T) / sizeof(uint32_t) };
    tsri_pack<uint32_t, WORDS> bits;
};

template <typename T> static __device__ __forceinline__ tsri_dw_pack<T> tsri_dw_load(const T *p)
{
    return {tsri_load_pack<uint32_t, tsri_dw_pack<T>::WORDS>((const uint32_t *)p)};
}

/* Channel i of a pack, for arithmetic. */
template <typename T>
static __device__ __forceinline__ float tsri_dw_at(const tsri_dw_pack<T> &p, int i)
{
    uint32_t word = p.bits.v[i * (int)sizeof(T) / 4];
    float value;
    if constexpr (std::is_same<T, __half>::value) {
        const uint16_t bits = (uint16_t)(i & 1 ? word >> 16 : word);
        return tsri_to<float>(__ushort_as_half(bits));
    }
    if constexpr (std::is_same<T, __nv_bfloat16>::value) /* the upper half of an f32 */
        word = i & 1 ? word & 0xffff0000u : word << 16;
    memcpy(&value, &word, sizeof value);
    return value;
}

/* A few rows of one column. */
template <typename T, int ROWS> struct tsri_dw_column {
    tsri_dw_pack<T> row[ROWS];
};

/* Reads columns of ROWS rows of a sample of data [n, h, w, c], one after the other; elements
 * outside of it are 0. */
template <typename T, int ROWS> struct tsri_dw_reader {
    const T *at;       /* the next column of the first row, at the thread's channel */
    int64_t down;      /* elements from a row to the next */
    int64_t right;     /* elements from a column to the next */
    bool inside[ROWS]; /* whether a row lies in the sample */
    int column;        /* the next column */
    unsigned end;      /* the first column that is not read */

    /* Reads columns `first` to `last`; later columns are 0. */
    __device__ __forceinline__ tsri_dw_reader(const T *data, int64_t n, int h, int w, int64_t c,
                                              int64_t channel, int first_row, int first, int last)
    {
        at = data + ((n * h + first_row) * w + first) * c + channel;
        down = w * c;
        right = c;
        column = first;
        end = last < 0 ? 0u : last + 1 < w ? (unsigned)(last + 1) : (unsigned)w;
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            inside[r] = first_row + r >= 0 && first_row + r < h;
    }

    __device__ __forceinline__ tsri_dw_column<T, ROWS> read(void)
    {
        tsri_dw_column<T, ROWS> v = {};
        read_on(v);
        return v;
    }

    /* Reads the next column to v, to which columns were read before: rows outside are 0 there. */
    __device__ __forceinline__ void read_on(tsri_dw_column<T, ROWS> &v)
    {
        if ((unsigned)column < end) {
            const T *from = at;
#pragma unroll
            for (int r = 0; r < ROWS; r++, from += down)
                if (inside[r])
                    v.row[r] = tsri_dw_load<T>(from);
        } else {
            v = {};
        }
        at += right;
        column++;
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
