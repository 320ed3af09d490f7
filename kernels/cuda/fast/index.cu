/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient of gather for large tables. Ids are sorted stably by the row that they point to (a
 * radix sort, 8 bits a pass), so each row's slices of dy are neighbours in the order of the ids;
 * then rows are summed in an order that depends on the ids alone. Sums are in f64, as the CPU's.
 * Integer atomics only count; and order the list of long rows, on which nothing depends.
 */
#include "kernels/cuda/code/index.cuh"

enum {
    THREADS = 256,
    LANES = 32,
    WARPS = THREADS / LANES,
    DIGITS = 256,
    PER_WARP = 256, /* ids that one warp sorts in a pass */
    PER_BLOCK = WARPS * PER_WARP,
    SCAN_THREADS = 1024,
    LONG = 32, /* a row of more ids is summed by a block of its own */
    LONG_THREADS = 512,
};

typedef struct gather_dx {
    tsri_cuda_kernel k;
    tsri_cuda_walk outer, inner; /* dx; dy. inner: in packs of `width` */
    tsri_cuda_walk ids;          /* their row-major index; ids; dy */
    int64_t row_stride;          /* of dx */
    int width, passes;
    unsigned sort_blocks;
} gather_dx;

/* Scratch. */
typedef struct tables {
    uint32_t *key[2], *from[2]; /* sorted so far, and where to: rows, and the ids' places */
    uint32_t *counts;           /* [DIGITS, sort_blocks] */
    uint32_t *begin;            /* [rows + 1]: of a row, among the sorted ids */
    uint32_t *nlong, *longs;    /* rows of more than LONG ids */
} tables;

static size_t table_bytes(int64_t n, int64_t rows, unsigned blocks)
{
    return (size_t)(4 * n + (int64_t)DIGITS * blocks + rows + 1 + 1 + n / LONG) * sizeof(uint32_t);
}

static void place_tables(tables *t, uint32_t *at, int64_t n, int64_t rows, unsigned blocks)
{
    for (int i = 0; i < 2; i++) {
        t->key[i] = at;
        t->from[i] = at + n;
        at += 2 * n;
    }
    t->counts = at;
    t->begin = t->counts + (int64_t)DIGITS * blocks;
    t->nlong = t->begin + rows + 1;
    t->longs = t->nlong + 1;
}

/* --- sorting ---------------------------------------------------------------------------------- */
/* Finds the row of every id; `rows` for ids that have none here. */
static __global__ void key_kernel(tsri_cuda_walk w, const int64_t *ids, tsri_ids of, uint32_t *key,
                                  uint32_t *nlong)
{
    if (tsri_first() == 0)
        *nlong = 0;
    for (int64_t i = tsri_first(); i < w.count; i += tsri_step()) {
        int64_t at[2];
        tsri_walk_at<2>(w, i, at);
        const int64_t id = ids[at[1]], row = tsri_local_id(of, at[0], id);
        key[at[0]] = (uint32_t)(row < 0 || id == of.pad ? of.len : row);
    }
}

/* How often each digit is in a block's part. */
static __global__ void __launch_bounds__(THREADS)
    count_kernel(int64_t n, const uint32_t *key, int shift, uint32_t *counts)
{
    __shared__ uint32_t mine[DIGITS];
    mine[threadIdx.x] = 0;
    __syncthreads();
    for (int r = 0; r < PER_BLOCK / THREADS; r++) {
        const int64_t i = (int64_t)blockIdx.x * PER_BLOCK + r * THREADS + threadIdx.x;
        if (i < n)
            atomicAdd(&mine[key[i] >> shift & (DIGITS - 1)], 1u);
    }
    __syncthreads();
    counts[(int64_t)threadIdx.x * gridDim.x + blockIdx.x] = mine[threadIdx.x];
}

/* Counts become where each begins: one block. */
static __global__ void __launch_bounds__(SCAN_THREADS) scan_kernel(int64_t n, uint32_t *counts)
{
    __shared__ uint32_t sums[SCAN_THREADS];
    const int me = threadIdx.x;
    const int64_t each = (n + SCAN_THREADS - 1) / SCAN_THREADS;
    const int64_t first = me * each, last = first + each < n ? first + each : n;
    uint32_t sum = 0;
    for (int64_t i = first; i < last; i++)
        sum += counts[i];
    sums[me] = sum;
    __syncthreads();
    for (int d = 1; d < SCAN_THREADS; d *= 2) {
        const uint32_t before = me >= d ? sums[me - d] : 0;
        __syncthreads();
        sums[me] += before;
        __syncthreads();
    }
    sum = me ? sums[me - 1] : 0;
    for (int64_t i = first; i < last; i++) {
        const uint32_t count = counts[i];
        counts[i] = sum;
        sum += count;
    }
}

/* The lanes that have the same digit. */
static __device__ __forceinline__ unsigned peers_of(uint32_t digit, bool valid)
{
    unsigned peers = __ballot_sync(0xffffffffu, valid);
#pragma unroll
    for (int bit = 0; bit < 8; bit++) {
        const unsigned with = __ballot_sync(0xffffffffu, digit >> bit & 1);
        peers &= digit >> bit & 1 ? with : ~with;
    }
    return peers;
}

/* Puts a block's part in order. Warps have parts that follow each other, and go through theirs in
 * order: equal digits stay as they were. `from` is NULL in the first pass, which begins in order.
 */
static __global__ void __launch_bounds__(THREADS)
    scatter_kernel(int64_t n, const uint32_t *key, const uint32_t *from, int shift,
                   const uint32_t *counts, uint32_t *to_key, uint32_t *to_from)
{
    __shared__ uint32_t next[WARPS][DIGITS];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int64_t first = (int64_t)blockIdx.x * PER_BLOCK + warp * PER_WARP + lane;
    for (int w = 0; w < WARPS; w++)
        next[w][threadIdx.x] = 0;
    __syncthreads();
    for (int r = 0; r < PER_WARP; r += LANES)
        if (first + r < n)
            atomicAdd(&next[warp][key[first + r] >> shift & (DIGITS - 1)], 1u);
    __syncthreads();
    uint32_t at = counts[(int64_t)threadIdx.x * gridDim.x + blockIdx.x];
    for (int w = 0; w < WARPS; w++) {
        const uint32_t count = next[w][threadIdx.x];
        next[w][threadIdx.x] = at;
        at += count;
    }
    __syncthreads();
    for (int r = 0; r < PER_WARP; r += LANES) {
        const int64_t i = first + r;
        const uint32_t k = i < n ? key[i] : 0, digit = k >> shift & (DIGITS - 1);
        const unsigned peers = peers_of(digit, i < n);
        const int rank = __popc(peers & ((1u << lane) - 1));
        const uint32_t to = next[warp][digit] + (uint32_t)rank;
        __syncwarp();
        if (i < n) {
            if (rank == 0)
                next[warp][digit] += (uint32_t)__popc(peers);
            to_key[to] = k;
            to_from[to] = from ? from[i] : (uint32_t)i;
        }
        __syncwarp();
    }
}

/* The first of the sorted keys that is not below `row`. */
static __device__ __forceinline__ uint32_t lower_bound(const uint32_t *key, uint32_t n,
                                                       uint32_t row)
{
    uint32_t low = 0, high = n;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (key[middle] < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static __global__ void begin_kernel(int64_t rows, int64_t n, const uint32_t *key, uint32_t *begin,
                                    uint32_t *nlong, uint32_t *longs)
{
    for (int64_t r = tsri_first(); r <= rows; r += tsri_step()) {
        const uint32_t b = lower_bound(key, (uint32_t)n, (uint32_t)r);
        begin[r] = b;
        /* Whether there are more than LONG shows in the key that far behind. */
        if (r < rows && b + LONG < n && key[b + LONG] == r)
            longs[atomicAdd(nlong, 1u)] = (uint32_t)r;
    }
}

/* --- sums ------------------------------------------------------------------------------------- */
typedef struct sums {
    tsri_cuda_walk outer, inner, ids;
    int64_t row_stride, rows;
    int64_t tiles; /* of `lanes` packs each, along the inner axes */
    int lanes;     /* a power of 2, at most 32 */
    const uint32_t *begin, *from, *nlong, *longs;
} sums;

/* Adds the slices begin <= i < end of a row, in their order: four loads at a time. */
template <typename T, int N>
static __device__ __forceinline__ void add_slices(const sums &s, const T *dy, uint32_t begin,
                                                  uint32_t end, double *sum)
{
    enum { AHEAD = 4 };
    for (uint32_t i = begin; i < end; i += AHEAD) {
        tsri_pack<T, N> v[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (i + a < end) {
                int64_t at[3];
                tsri_walk_at<3>(s.ids, s.from[i + a], at);
                v[a] = *(const tsri_pack<T, N> *)(dy + at[2]);
            }
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (i + a < end)
#pragma unroll
                for (int e = 0; e < N; e++)
                    sum[e] += tsri_to<double>(v[a].v[e]);
    }
}

template <typename T, int N>
static __device__ __forceinline__ void store_sums(T *dx, const double *sum)
{
    tsri_pack<T, N> v;
#pragma unroll
    for (int e = 0; e < N; e++)
        v.v[e] = tsri_to<T>(sum[e]);
    tsri_store_pack<T, N>(dx, v);
}

/* Rows of up to LONG ids: some threads for each, and so many rows in a block. */
template <typename T, int N>
static __global__ void __launch_bounds__(THREADS) short_kernel(sums s, T *dx, const T *dy)
{
    const int lane = threadIdx.x % s.lanes, row = threadIdx.x / s.lanes, rows = THREADS / s.lanes;
    const int64_t groups = (s.rows + rows - 1) / rows;
    for (int64_t b = blockIdx.x; b < s.outer.count * groups * s.tiles; b += gridDim.x) {
        const int64_t pack = b % s.tiles * s.lanes + lane;
        const int64_t r = b / s.tiles % groups * rows + row;
        if (pack >= s.inner.count || r >= s.rows)
            continue;
        const uint32_t begin = s.begin[r], end = s.begin[r + 1];
        if (end - begin > LONG)
            continue;
        int64_t o[2], i[2];
        double sum[N] = {};
        tsri_walk_at<2>(s.outer, b / s.tiles / groups, o);
        tsri_walk_at<2>(s.inner, pack, i);
        add_slices<T, N>(s, dy + o[1] + i[1], begin, end, sum);
        store_sums<T, N>(dx + o[0] + r * s.row_stride + i[0], sum);
    }
}

/* The others: a block for each, cut into parts that follow each other. */
template <typename T, int N>
static __global__ void __launch_bounds__(LONG_THREADS) long_kernel(sums s, T *dx, const T *dy)
{
    __shared__ double parts[LONG_THREADS][N];
    const int lane = threadIdx.x % s.lanes, part = threadIdx.x / s.lanes;
    const int nparts = LONG_THREADS / s.lanes;
    const int64_t nlong = *s.nlong;
    for (int64_t b = blockIdx.x; b < s.outer.count * nlong * s.tiles; b += gridDim.x) {
        const int64_t pack = b % s.tiles * s.lanes + lane, r = s.longs[b / s.tiles % nlong];
        const uint32_t first = s.begin[r], n = s.begin[r + 1] - first;
        const uint32_t each = (n + (uint32_t)nparts - 1) / (uint32_t)nparts;
        const uint32_t begin = (uint32_t)part * each < n ? (uint32_t)part * each : n;
        const uint32_t end = begin + each < n ? begin + each : n;
        int64_t o[2], i[2];
        double sum[N] = {};
        if (pack < s.inner.count) {
            tsri_walk_at<2>(s.outer, b / s.tiles / nlong, o);
            tsri_walk_at<2>(s.inner, pack, i);
            add_slices<T, N>(s, dy + o[1] + i[1], first + begin, first + end, sum);
        }
        for (int e = 0; e < N; e++)
            parts[threadIdx.x][e] = sum[e];
        for (int half = nparts / 2; half; half /= 2) {
            __syncthreads();
            if (part < half)
                for (int e = 0; e < N; e++)
                    parts[threadIdx.x][e] += parts[threadIdx.x + half * s.lanes][e];
        }
        if (part == 0 && pack < s.inner.count)
            store_sums<T, N>(dx + o[0] + r * s.row_stride + i[0], parts[threadIdx.x]);
        __syncthreads();
    }
}

template <typename T, int N> static void sum_rows(const gather_dx *v, sums s, T *dx, const T *dy)
{
    s.lanes = 1;
    while (s.lanes < LANES && s.lanes < s.inner.count)
        s.lanes *= 2;
    s.tiles = (s.inner.count + s.lanes - 1) / s.lanes;
    const int64_t each = THREADS / s.lanes, groups = (s.rows + each - 1) / each;
    /* How many rows are long is known on the device only. */
    const int64_t most = v->ids.count / LONG < s.rows ? v->ids.count / LONG : s.rows;
    const int64_t fill = (int64_t)v->k.device->traits.processors * 4;
    const int64_t longs = s.outer.count * most * s.tiles;
    TSRI_LAUNCH((short_kernel<T, N>), tsri_blocks(s.outer.count * groups * s.tiles, 1), THREADS,
                v->k.stream, s, dx, dy);
    if (most)
        TSRI_LAUNCH((long_kernel<T, N>), tsri_blocks(longs < fill ? longs : fill, 1), LONG_THREADS,
                    v->k.stream, s, dx, dy);
}

/* --- the op ----------------------------------------------------------------------------------- */
static void sort(const gather_dx *v, const tables *t, const int64_t *ids, tsri_ids of)
{
    const int64_t n = v->ids.count;
    cudaStream_t stream = v->k.stream;
    TSRI_LAUNCH(key_kernel, tsri_blocks(n, THREADS), THREADS, stream, v->ids, ids, of, t->key[0],
                t->nlong);
    for (int p = 0; p < v->passes; p++) {
        const int now = p % 2;
        TSRI_LAUNCH(count_kernel, v->sort_blocks, THREADS, stream, n, t->key[now], 8 * p,
                    t->counts);
        TSRI_LAUNCH(scan_kernel, 1, SCAN_THREADS, stream, (int64_t)DIGITS * v->sort_blocks,
                    t->counts);
        TSRI_LAUNCH(scatter_kernel, v->sort_blocks, THREADS, stream, n, t->key[now],
                    p ? t->from[now] : NULL, 8 * p, t->counts, t->key[!now], t->from[!now]);
    }
    TSRI_LAUNCH(begin_kernel, tsri_blocks(of.len + 1, THREADS), THREADS, stream, of.len, n,
                t->key[v->passes % 2], t->begin, t->nlong, t->longs);
}

static tsr_status gather_dx_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                                void *scratch)
{
    const gather_dx *v = (const gather_dx *)k;
    const tsri_arg *dx = &k->desc.out[0];
    const tsri_ids of = tsri_ids_of(k);
    const int64_t count = tsri_cuda_count(dx);
    tables t;
    if (v->ids.count == 0) {
        if (count)
            TSRI_CUDA(
                cudaMemsetAsync(out[0], 0, (size_t)count * tsr_dtype_size(dx->dtype), k->stream));
        return TSR_OK;
    }
    place_tables(&t, (uint32_t *)scratch, v->ids.count, of.len, v->sort_blocks);
    sort(v, &t, (const int64_t *)in[0], of);
    if (count) {
        sums s = {v->outer, v->inner, v->ids,  v->row_stride,         of.len,
                  0,        0,        t.begin, t.from[v->passes % 2], t.nlong,
                  t.longs};
        if (v->width > 1) {
            TSRI_FLOATS(dx->dtype,
                        sum_rows<T, 16 / sizeof(T)>(v, s, (T *)out[0], (const T *)in[1]));
        } else {
            TSRI_FLOATS(dx->dtype, sum_rows<T, 1>(v, s, (T *)out[0], (const T *)in[1]));
        }
    }
    return tsri_cuda_launched(k);
}

/* Whether every slice begins at a multiple of `n` elements, and goes on without gaps: the inner
 * walk counts packs then. */
static bool widen(gather_dx *v, int n)
{
    tsri_cuda_walk *w = &v->inner;
    bool fits = w->size[0] % n == 0 && v->row_stride % n == 0;
    for (int o = 0; o < 2; o++) {
        fits = fits && w->stride[o][0] == 1;
        for (int a = 1; a < w->ndim; a++)
            fits = fits && w->stride[o][a] % n == 0;
        for (int a = 0; a < v->outer.ndim; a++)
            fits = fits && v->outer.stride[o][a] % n == 0;
    }
    for (int a = 0; a < v->ids.ndim; a++)
        fits = fits && v->ids.stride[2][a] % n == 0;
    if (!fits)
        return false;
    w->size[0] /= n;
    w->count /= n;
    w->stride[0][0] = w->stride[1][0] = n;
    return true;
}

static void walk_part(tsri_cuda_walk *w, int ndim, const int64_t *shape, const int64_t *dx,
                      const int64_t *dy)
{
    tsri_cuda_walk_init(w, ndim, shape);
    tsri_cuda_walk_push(w, dx);
    tsri_cuda_walk_push(w, dy);
    tsri_cuda_walk_finish(w);
}

/* Ids and rows are counted in 32 bits. */
tsr_status tsri_fast_index_select_dx(tsri_mem *mem, const tsri_kernel_desc *d,
                                     tsri_kernel **out_kernel)
{
    const tsri_arg *ids = &d->in[0], *dy = &d->in[1], *dx = &d->out[0];
    const int axis = d->attrs->gather.axis, behind = dx->ndim - axis - 1;
    const int64_t rows = dx->shape[axis], n = tsri_cuda_count(ids);
    if (ids->dtype != TSR_I64 || dx->dtype != dy->dtype || !tsri_cuda_is_float(dx->dtype) ||
        rows >= INT32_MAX || n >= INT32_MAX)
        return tsri_cuda_decline(d);
    gather_dx *v = (gather_dx *)tsri_cuda_make(mem, d, gather_dx_run, "cuda", sizeof *v);
    TSRI_NEED(v);
    walk_part(&v->outer, axis, dx->shape, dx->stride, dy->stride);
    walk_part(&v->inner, behind, dx->shape + axis + 1, dx->stride + axis + 1,
              dy->stride + dy->ndim - behind);
    tsri_walk_ids(&v->ids, ids, dy->stride + axis);
    v->row_stride = dx->stride[axis];
    const int n16 = 16 / (int)tsr_dtype_size(dx->dtype);
    v->width = widen(v, n16) ? n16 : 1;
    v->sort_blocks = (unsigned)((n + PER_BLOCK - 1) / PER_BLOCK);
    for (v->passes = 1; v->passes < 4 && rows >> (8 * v->passes); v->passes++)
        ;
    v->k.base.scratch_bytes = n ? table_bytes(n, rows, v->sort_blocks) : 0;
    *out_kernel = &v->k.base;
    return TSR_OK;
}
