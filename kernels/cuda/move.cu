/* SPDX-License-Identifier: Apache-2.0 */
/* Moving and reducing boxes; see kernels/move.h. */
#include <type_traits>

#include "kernels/cuda/box.h"
#include "kernels/cuda/pack.cuh"

extern "C" {
#include "src/core/identity.h"
}

enum { THREADS = 256, MAX_SOURCES = 64, WIDE = 16 };

/* --- copies ----------------------------------------------------------------------------------- */
typedef tsri_pack<uint32_t, 4> wide;

int tsri_cuda_walk_widen(tsri_cuda_walk *w, int nops, size_t size, uintptr_t address)
{
    int by = WIDE / (int)size;
    for (; by > 1; by /= 2) {
        bool fits = w->size[0] % by == 0 && address % (by * size) == 0;
        for (int o = 0; o < nops && fits; o++) {
            fits = w->stride[o][0] == 1;
            for (int a = 1; a < w->ndim; a++)
                fits = fits && w->stride[o][a] % by == 0;
        }
        if (fits)
            break;
    }
    w->size[0] /= by;
    w->count /= by;
    for (int o = 0; o < nops; o++)
        for (int a = 1; a < w->ndim; a++)
            w->stride[o][a] /= by;
    return by;
}

template <typename T> static __global__ void move_kernel(tsri_cuda_walk w, T *dst, const T *src)
{
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[2];
        tsri_walk_at<2>(w, i, at);
        dst[at[0]] = src[at[1]];
    }
}

/* Two axes that change places: `low` is the destination's innermost, `high` the source's. */
typedef struct tiles {
    tsri_cuda_walk rest;           /* the other axes */
    int64_t low, high;             /* sizes */
    int64_t low_src, high_dst;     /* strides */
    int64_t low_tiles, high_tiles; /* tiles along each */
} tiles;

/* Where a tile begins in the source and in the destination, and its elements along each axis. */
typedef struct tile_spot {
    int64_t from, to;
    int nlow, nhigh;
} tile_spot;

template <int SIDE> static __device__ __forceinline__ tile_spot spot_of(const tiles &t, int64_t b)
{
    int64_t at[2];
    tsri_walk_at<2>(t.rest, b / (t.low_tiles * t.high_tiles), at);
    const int64_t low = b % t.low_tiles * SIDE, high = b / t.low_tiles % t.high_tiles * SIDE;
    return {at[1] + low * t.low_src + high, at[0] + high * t.high_dst + low,
            (int)(t.low - low < SIDE ? t.low - low : SIDE),
            (int)(t.high - high < SIDE ? t.high - high : SIDE)};
}

/* Through shared memory, so that both sides are read and written along their innermost axis. Rows
 * of a tile are an odd number of words apart: a column meets every bank once. */
template <typename T, int SIDE>
static __global__ void __launch_bounds__(THREADS) transpose_kernel(tiles t, T *dst, const T *src)
{
    enum { LANES = 32, ROWS = THREADS / LANES, PAD = sizeof(T) < 4 ? 4 / sizeof(T) : 1 };
    __shared__ T tile[SIDE][SIDE + PAD];
    const int lane = threadIdx.x % LANES, row = threadIdx.x / LANES;
    const int64_t count = t.rest.count * t.low_tiles * t.high_tiles;
    for (int64_t b = blockIdx.x; b < count; b += gridDim.x) {
        const tile_spot at = spot_of<SIDE>(t, b);
        const T *from = src + at.from;
        T *to = dst + at.to;
#pragma unroll
        for (int r = row; r < SIDE; r += ROWS)
#pragma unroll
            for (int c = lane; c < SIDE; c += LANES)
                if (r < at.nlow && c < at.nhigh)
                    tile[r][c] = from[r * t.low_src + c];
        __syncthreads();
#pragma unroll
        for (int r = row; r < SIDE; r += ROWS)
#pragma unroll
            for (int c = lane; c < SIDE; c += LANES)
                if (r < at.nhigh && c < at.nlow)
                    to[r * t.high_dst + c] = tile[c][r];
        __syncthreads();
    }
}

/* Elements of 2 bytes by pairs: half the loads and stores, of global and of shared memory, that
 * transpose_kernel makes. A thread takes two words below each other and stores two words that
 * belong to rows beside each other; 16 pairs of rows, every second bank, by two columns of words
 * meet every bank once. */
static __global__ void __launch_bounds__(THREADS)
    transpose_pairs_kernel(tiles t, uint16_t *dst, const uint16_t *src)
{
    constexpr int SIDE = 64, WORDS = SIDE / 2, LANES = 32, ROWS = THREADS / LANES;
    constexpr int HALF = LANES / 2;
    __shared__ uint32_t tile[SIDE][WORDS + 1];
    const int lane = threadIdx.x % LANES, row = threadIdx.x / LANES;
    const int64_t count = t.rest.count * t.low_tiles * t.high_tiles;
    for (int64_t b = blockIdx.x; b < count; b += gridDim.x) {
        const tile_spot at = spot_of<SIDE>(t, b);
        const uint16_t *from = src + at.from;
        uint16_t *to = dst + at.to;
#pragma unroll
        for (int r = row; r < SIDE; r += ROWS)
            if (r < at.nlow && 2 * lane < at.nhigh)
                tile[r][lane] = *(const uint32_t *)(from + r * t.low_src + 2 * lane);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < WORDS / HALF; i++)
#pragma unroll
            for (int r = 0; r < WORDS; r += 2 * ROWS) {
                const int c = 2 * (i * HALF + lane % HALF), word = r + 2 * row + lane / HALF;
                if (c >= at.nlow || 2 * word >= at.nhigh)
                    continue;
                const uint32_t above = tile[c][word], below = tile[c + 1][word];
                uint32_t *first = (uint32_t *)(to + 2 * word * t.high_dst + c);
                uint32_t *second = (uint32_t *)(to + (2 * word + 1) * t.high_dst + c);
                *first = (above & 0xffffu) | below << 16;
                *second = above >> 16 | (below & 0xffff0000u);
            }
        __syncthreads();
    }
}

/* Whether all pairs of neighbours begin at multiples of 4 bytes, of elements of 2 bytes. */
static bool has_pairs(const tiles *t, size_t size, uintptr_t address)
{
    bool has = size == 2 && address % 4 == 0;
    has = has && !((t->low | t->high | t->low_src | t->high_dst) & 1);
    for (int a = 0; a < t->rest.ndim; a++)
        has = has && !((t->rest.stride[0][a] | t->rest.stride[1][a]) & 1);
    return has;
}

/* Whether the walk is worth it, and its tiles. */
static bool find_tiles(const tsri_cuda_walk *w, int side, tiles *t)
{
    enum { LEAST = 8 }; /* shorter axes leave most of a tile empty */
    int high = 0;
    for (int a = 1; a < w->ndim && !high; a++)
        if (w->stride[1][a] == 1 && w->size[a] >= LEAST)
            high = a;
    if (!high || w->stride[0][0] != 1 || w->size[0] < LEAST)
        return false;
    t->low = w->size[0];
    t->high = w->size[high];
    t->low_src = w->stride[1][0];
    t->high_dst = w->stride[0][high];
    t->low_tiles = (t->low + side - 1) / side;
    t->high_tiles = (t->high + side - 1) / side;
    tsri_cuda_walk *rest = &t->rest;
    *rest = *w;
    rest->count = w->count / t->low / t->high;
    rest->ndim = 0;
    for (int a = 1; a < w->ndim; a++) {
        if (a == high)
            continue;
        rest->size[rest->ndim] = w->size[a];
        for (int o = 0; o < 2; o++)
            rest->stride[o][rest->ndim] = w->stride[o][a];
        rest->ndim++;
    }
    if (rest->ndim == 0) {
        rest->ndim = 1;
        rest->size[0] = 1;
        rest->stride[0][0] = rest->stride[1][0] = 0;
    }
    return true;
}

static void transpose(const tiles *t, size_t size, void *dst, const void *src, cudaStream_t stream)
{
    const unsigned blocks = tsri_blocks(t->rest.count * t->low_tiles * t->high_tiles, 1);
    if (has_pairs(t, size, (uintptr_t)dst | (uintptr_t)src)) {
        TSRI_LAUNCH(transpose_pairs_kernel, blocks, THREADS, stream, *t, (uint16_t *)dst,
                    (const uint16_t *)src);
        return;
    }
    TSRI_SIZES(size, TSRI_LAUNCH((transpose_kernel<T, (sizeof(T) < 4 ? 64 : 32)>), blocks, THREADS,
                                 stream, *t, (T *)dst, (const T *)src));
}

/* A non-empty walk over dst and src that is not flat. */
static void move(const tsri_cuda_walk *walk, size_t size, void *dst, const void *src,
                 cudaStream_t stream)
{
    tsri_cuda_walk w = *walk;
    tiles t;
    if (find_tiles(&w, size < 4 ? 64 : 32, &t)) {
        transpose(&t, size, dst, src, stream);
        return;
    }
    size *= (size_t)tsri_cuda_walk_widen(&w, 2, size, (uintptr_t)dst | (uintptr_t)src);
    const unsigned blocks = tsri_blocks(w.count, THREADS);
    if (size == WIDE) {
        TSRI_LAUNCH((move_kernel<wide>), blocks, THREADS, stream, w, (wide *)dst,
                    (const wide *)src);
        return;
    }
    TSRI_SIZES(size,
               TSRI_LAUNCH((move_kernel<T>), blocks, THREADS, stream, w, (T *)dst, (const T *)src));
}

void tsri_cuda_box_init(tsri_cuda_box *box, tsr_dtype dtype, int ndim, const int64_t *shape,
                        const int64_t *dst_stride, const int64_t *src_stride)
{
    tsri_cuda_walk_init(&box->walk, ndim, shape);
    tsri_cuda_walk_push(&box->walk, dst_stride);
    tsri_cuda_walk_push(&box->walk, src_stride);
    tsri_cuda_walk_finish(&box->walk);
    box->size = tsr_dtype_size(dtype);
}

tsr_status tsri_cuda_box_run(const tsri_cuda_box *box, void *dst_base, const void *src_base,
                             cudaStream_t stream)
{
    if (box->walk.count == 0)
        return TSR_OK;
    void *dst = (char *)dst_base + box->to * (int64_t)box->size;
    const void *src = (const char *)src_base + box->from * (int64_t)box->size;
    if (dst == src)
        return TSR_OK;
    if (box->walk.flat)
        return tsri_cuda_check(cudaMemcpyAsync(dst, src, (size_t)box->walk.count * box->size,
                                               cudaMemcpyDeviceToDevice, stream),
                               "cudaMemcpyAsync");
    move(&box->walk, box->size, dst, src, stream);
    return tsri_cuda_check(cudaGetLastError(), "a move");
}

/* --- reductions ------------------------------------------------------------------------------- */
typedef struct sources {
    int n;
    const void *p[MAX_SOURCES];
} sources;

template <typename T>
static __device__ __forceinline__ tsri_acc<T> combine(tsri_acc<T> x, tsri_acc<T> y, int op)
{
    if (op == TSR_REDUCE_SUM) {
        if constexpr (std::is_integral<T>::value)
            return (T)((uint64_t)x + (uint64_t)y); /* wraps */
        else
            return x + y;
    }
    if (op == TSR_REDUCE_PRODUCT) {
        if constexpr (std::is_integral<T>::value)
            return (T)((uint64_t)x * (uint64_t)y); /* wraps */
        else
            return x * y;
    }
    if (y != y)
        return y;
    return op == TSR_REDUCE_MAX ? (y > x ? y : x) : (y < x ? y : x);
}

template <> __device__ __forceinline__ bool combine<bool>(bool x, bool y, int op)
{
    return op == TSR_REDUCE_MIN || op == TSR_REDUCE_PRODUCT ? x && y : x || y;
}

/* N neighbours of all sources, from src_at on, in their order. Four loads are under way at once;
 * what they need not wait for is the sum before them. */
template <typename T, int N>
static __device__ __forceinline__ void reduce_pack(const sources &src, int64_t src_at, T *dst,
                                                   int op)
{
    enum { AHEAD = 4 };
    typedef tsri_pack<T, N> pack;
    tsri_acc<T> sum[N];
    pack x = *(const pack *)((const T *)src.p[0] + src_at);
#pragma unroll
    for (int i = 0; i < N; i++)
        sum[i] = tsri_to<tsri_acc<T>>(x.v[i]);
    for (int s = 1; s < src.n; s += AHEAD) {
        pack next[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (s + a < src.n)
                next[a] = *(const pack *)((const T *)src.p[s + a] + src_at);
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (s + a < src.n)
#pragma unroll
                for (int i = 0; i < N; i++)
                    sum[i] = combine<T>(sum[i], tsri_to<tsri_acc<T>>(next[a].v[i]), op);
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        x.v[i] = tsri_to<T>(sum[i]);
    *(pack *)dst = x;
}

template <typename T, int N>
static __global__ void reduce_kernel(tsri_packs p, T *dst, sources src, int64_t src_at, int op)
{
    for (int64_t i = tsri_first(); i < p.w.count; i += tsri_step()) {
        int64_t at[2];
        tsri_walk_at<2>(p.w, i, at);
        reduce_pack<T, N>(src, src_at + at[1], dst + at[0], op);
    }
    for (int64_t t = tsri_first(); t < p.tail; t += tsri_step())
        reduce_pack<T, 1>(src, src_at + p.w.count * N + t, dst + p.w.count * N + t, op);
}

template <typename T>
static void reduce(const tsri_cuda_walk *w, T *dst, const sources *src, int64_t src_at, int op,
                   cudaStream_t stream)
{
    enum { N = WIDE / sizeof(T) };
    tsri_packs p;
    uintptr_t address = (uintptr_t)dst;
    for (int s = 0; s < src->n; s++)
        address |= (uintptr_t)((const T *)src->p[s] + src_at);
    if (address % WIDE == 0 && w->stride[1][0] != 0 && tsri_packs_init(&p, w, N)) {
        TSRI_LAUNCH((reduce_kernel<T, N>), tsri_blocks(p.w.count, THREADS), THREADS, stream, p, dst,
                    *src, src_at, op);
        return;
    }
    p.w = *w;
    p.tail = 0;
    TSRI_LAUNCH((reduce_kernel<T, 1>), tsri_blocks(w->count, THREADS), THREADS, stream, p, dst,
                *src, src_at, op);
}

tsr_status tsri_cuda_move(const tsri_move *m, cudaStream_t stream)
{
    tsri_cuda_box box;
    tsri_cuda_box_init(&box, m->dtype, m->ndim, m->length, m->dst_step, m->src_step);
    box.to = m->dst_at;
    box.from = m->src_at;
    if (box.walk.count == 0)
        return TSR_OK;
    if (m->nsrc == 1)
        return tsri_cuda_box_run(&box, m->dst, m->src[0], stream);
    sources src = {};
    if (m->nsrc > MAX_SOURCES)
        return tsri_fail(TSR_ERR_UNSUPPORTED, "a reduction of %d parts; at most %d", m->nsrc,
                         MAX_SOURCES);
    src.n = m->nsrc;
    for (int i = 0; i < m->nsrc; i++)
        src.p[i] = m->src[i];
    TSRI_NUMBERS(m->dtype, reduce<T>(&box.walk, (T *)m->dst + m->dst_at, &src, m->src_at,
                                     (int)m->op, stream));
    return tsri_cuda_check(cudaGetLastError(), "a reduction");
}

/* --- fills ------------------------------------------------------------------------------------ */
/* `pattern` repeats the element, so that it fits wherever one begins. */
template <typename T>
static __global__ void fill_kernel(int64_t packs, int64_t n, T *dst, wide pattern, T value)
{
    enum { N = sizeof(wide) / sizeof(T) };
    for (int64_t i = tsri_first(); i < packs; i += tsri_step())
        ((wide *)dst)[i] = pattern;
    for (int64_t i = packs * N + tsri_first(); i < n; i += tsri_step())
        dst[i] = value;
}

tsr_status tsri_cuda_fill_with(void *dst, size_t size, const void *value, int64_t count,
                               cudaStream_t stream)
{
    if (count <= 0)
        return TSR_OK;
    union {
        wide whole;
        unsigned char bytes[WIDE];
    } pattern;
    bool one_byte = true;
    for (size_t i = 0; i < WIDE; i++) {
        pattern.bytes[i] = ((const unsigned char *)value)[i % size];
        one_byte &= pattern.bytes[i] == pattern.bytes[0];
    }
    if (one_byte)
        return tsri_cuda_check(cudaMemsetAsync(dst, pattern.bytes[0], (size_t)count * size, stream),
                               "cudaMemsetAsync");
    const int64_t packs = (uintptr_t)dst % WIDE ? 0 : count / (int64_t)(WIDE / size);
    TSRI_SIZES(size, TSRI_LAUNCH((fill_kernel<T>), tsri_blocks(packs ? packs : count, THREADS),
                                 THREADS, stream, packs, count, (T *)dst, pattern.whole,
                                 *(const T *)pattern.bytes));
    return tsri_cuda_check(cudaGetLastError(), "a fill");
}

tsr_status tsri_cuda_fill(tsr_dtype dtype, tsr_reduce_op op, int64_t count, void *dst,
                          cudaStream_t stream)
{
    uint64_t identity = 0;
    tsri_fill_identity(dtype, op, 1, &identity);
    return tsri_cuda_fill_with(dst, tsr_dtype_size(dtype), &identity, count, stream);
}
