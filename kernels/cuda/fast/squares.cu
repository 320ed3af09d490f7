/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of squares of whole tensors, each added to a running total, and many of them in two
 * launches: blocks square the chunks of a table in device memory, and one block adds the chunks'
 * sums, tensor after tensor. Sizes alone determine the chunks, so every GPU computes the same
 * results.
 */
#include "kernels/cuda/code/squares.cuh"

enum {
    THREADS = 256,
    FINISH_THREADS = 1024,
    CHUNK = 1 << 14, /* elements: 64 for each thread, which it sums in f32 */
};

/* One tensor. */
typedef struct tensor {
    const void *x;
    const double *before; /* what is added; NULL: nothing */
    double *to;
    int64_t count, first; /* first: the first of its chunks, counted over all tensors */
    bool follows;         /* before is the result of the tensor before */
} tensor;

/* --- on the device ---------------------------------------------------------------------------- */
template <typename T> static __device__ __forceinline__ double sum_chunk(const T *x, int64_t n)
{
    typedef tsri_acc<T> A;
    enum { N = tsri_wide<T>::N };
    const int64_t tail = (uintptr_t)x % 16 ? 0 : n / N * N;
    A sum = 0;
    for (int64_t i = (int64_t)threadIdx.x * N; i < tail; i += THREADS * N) {
        const tsri_pack<T, N> v = tsri_load_pack<T, N>(x + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const A e = tsri_to<A>(v.v[j]);
            sum += e * e;
        }
    }
    for (int64_t i = tail + threadIdx.x; i < n; i += THREADS) {
        const A e = tsri_to<A>(x[i]);
        sum += e * e;
    }
    return tsri_all<TSRI_BLOCK, tsri_sum_fn>((double)sum);
}

/* chunk[i]: the sum of chunk i of all. owner[i]: the tensor that it is of. */
template <typename T>
static __global__ void chunks_kernel(const tensor *tensors, const int32_t *owner, int64_t nchunks,
                                     double *chunk)
{
    for (int64_t i = blockIdx.x; i < nchunks; i += gridDim.x) {
        const tensor t = tensors[owner[i]];
        const int64_t begin = (i - t.first) * CHUNK, left = t.count - begin;
        const double sum =
            sum_chunk<T>((const T *)t.x + begin, left < CHUNK ? left : (int64_t)CHUNK);
        if (threadIdx.x == 0)
            chunk[i] = sum;
    }
}

/* A block. A warp adds a tensor's chunks up, then one thread the tensors, in their order. */
static __global__ void finish_kernel(const tensor *tensors, int n, int64_t nchunks,
                                     const double *chunk)
{
    __shared__ double sums[FINISH_THREADS];
    const int lane = tsri_lane<TSRI_WARP>(), warp = (int)threadIdx.x / TSRI_WARP;
    double total = 0;
    for (int t0 = 0; t0 < n; t0 += FINISH_THREADS) {
        const int end = n - t0 < FINISH_THREADS ? n - t0 : (int)FINISH_THREADS;
        for (int t = warp; t < end; t += FINISH_THREADS / TSRI_WARP) {
            const int64_t first = tensors[t0 + t].first;
            const int64_t behind = t0 + t + 1 < n ? tensors[t0 + t + 1].first : nchunks;
            double sum = 0;
            for (int64_t i = first + lane; i < behind; i += TSRI_WARP)
                sum += chunk[i];
            sum = tsri_warp_all<tsri_sum_fn>(sum);
            if (lane == 0)
                sums[t] = sum;
        }
        __syncthreads();
        for (int t = 0; t < end && threadIdx.x == 0; t++) {
            const tensor v = tensors[t0 + t];
            total = (v.follows ? total : v.before ? *v.before : 0) + sums[t];
            *v.to = total;
        }
        __syncthreads(); /* sums is written again */
    }
}

/* One tensor, whose chunks lie in scratch. */
template <typename T> static __global__ void lone_chunks_kernel(tensor t, double *chunk)
{
    for (int64_t begin = (int64_t)blockIdx.x * CHUNK; begin < t.count;
         begin += (int64_t)gridDim.x * CHUNK) {
        const int64_t left = t.count - begin;
        const double sum =
            sum_chunk<T>((const T *)t.x + begin, left < CHUNK ? left : (int64_t)CHUNK);
        if (threadIdx.x == 0)
            chunk[begin / CHUNK] = sum;
    }
}

/* Elements that lie apart: no plan has them so far, but any may. */
template <typename T>
static __global__ void apart_chunks_kernel(tsri_cuda_walk w, const T *x, double *chunk)
{
    typedef tsri_acc<T> A;
    for (int64_t begin = (int64_t)blockIdx.x * CHUNK; begin < w.count;
         begin += (int64_t)gridDim.x * CHUNK) {
        const int64_t end = begin + CHUNK < w.count ? begin + CHUNK : w.count;
        A sum = 0;
        for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
            int64_t at[1];
            tsri_walk_at<1>(w, i, at);
            const A e = tsri_to<A>(x[at[0]]);
            sum += e * e;
        }
        const double all = tsri_all<TSRI_BLOCK, tsri_sum_fn>((double)sum);
        if (threadIdx.x == 0)
            chunk[begin / CHUNK] = all;
    }
}

static __global__ void lone_finish_kernel(tensor t, int64_t nchunks, const double *chunk)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < nchunks; i += TSRI_WARP)
        sum += chunk[i];
    sum = tsri_warp_all<tsri_sum_fn>(sum);
    if (threadIdx.x == 0)
        *t.to = (t.before ? *t.before : 0) + sum;
}

/* --- one tensor ------------------------------------------------------------------------------- */
static int64_t chunks_of(int64_t count)
{
    return (count + CHUNK - 1) / CHUNK;
}

static tensor tensor_of(const tsri_kernel_desc *d, void *const *in, void *const *out)
{
    tensor t = {};
    t.x = in[0];
    t.before = d->nin > 1 ? (const double *)in[1] : NULL;
    t.to = (double *)out[0];
    t.count = tsri_cuda_count(&d->in[0]);
    return t;
}

typedef struct lone {
    tsri_cuda_kernel kernel;
    tsri_cuda_walk walk;
} lone;

template <typename T>
static tsr_status run_one(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                          void *scratch)
{
    const lone *v = (const lone *)k;
    const tensor t = tensor_of(&k->desc, in, out);
    const int64_t nchunks = chunks_of(t.count);
    if (nchunks > 0 && v->walk.flat)
        TSRI_LAUNCH((lone_chunks_kernel<T>), tsri_blocks(nchunks, 1), THREADS, k->stream, t,
                    (double *)scratch);
    else if (nchunks > 0)
        TSRI_LAUNCH((apart_chunks_kernel<T>), tsri_blocks(nchunks, 1), THREADS, k->stream, v->walk,
                    (const T *)t.x, (double *)scratch);
    TSRI_LAUNCH(lone_finish_kernel, 1, TSRI_WARP, k->stream, t, nchunks, (const double *)scratch);
    return tsri_cuda_launched(k);
}

/* --- joined ----------------------------------------------------------------------------------- */
typedef struct joined {
    tsri_cuda_kernel kernel;
    int n;
    int64_t nchunks;
    void *table; /* in device memory: tensors, sums of chunks, owners of chunks */
} joined;

static void finish_joined(tsri_cuda_kernel *k)
{
    cudaFree(((joined *)k)->table);
}

template <typename T>
static tsr_status run_joined(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                             void *scratch)
{
    (void)in, (void)out, (void)scratch;
    const joined *v = (const joined *)k;
    const tensor *tensors = (const tensor *)v->table;
    double *chunk = (double *)(tensors + v->n);
    const int32_t *owner = (const int32_t *)(chunk + v->nchunks);
    if (v->nchunks > 0)
        TSRI_LAUNCH((chunks_kernel<T>), tsri_blocks(v->nchunks, 1), THREADS, k->stream, tensors,
                    owner, v->nchunks, chunk);
    TSRI_LAUNCH(finish_kernel, 1, FINISH_THREADS, k->stream, tensors, v->n, v->nchunks,
                (const double *)chunk);
    return tsri_cuda_launched(k);
}

static tsr_status fill_table(tsri_mem *mem, joined *v, tsri_kernel *const *kernels,
                             void *const *const *in, void *const *const *out)
{
    for (int i = 0; i < v->n; i++)
        v->nchunks += chunks_of(tsri_cuda_count(&((tsri_cuda_kernel *)kernels[i])->desc.in[0]));
    const size_t bytes =
        (size_t)v->n * sizeof(tensor) + (size_t)v->nchunks * (sizeof(double) + sizeof(int32_t));
    tensor *table = (tensor *)tsri_mem_alloc(mem, bytes);
    TSRI_NEED(table);
    int32_t *owner = (int32_t *)((double *)(table + v->n) + v->nchunks);
    int64_t at = 0;
    for (int i = 0; i < v->n; i++) {
        table[i] = tensor_of(&((tsri_cuda_kernel *)kernels[i])->desc, in[i], out[i]);
        table[i].first = at;
        table[i].follows = i > 0 && table[i].before == table[i - 1].to;
        for (int64_t end = at + chunks_of(table[i].count); at < end; at++)
            owner[at] = i;
    }
    const tsr_status status =
        tsri_cuda_upload(&v->kernel, table, bytes, "a table of sums of squares", &v->table);
    tsri_mem_free(table);
    return status;
}

template <typename T>
static tsr_status join(tsri_mem *mem, int n, tsri_kernel *const *kernels, void *const *const *in,
                       void *const *const *out, tsri_kernel **out_kernel)
{
    const tsri_cuda_kernel *first = (const tsri_cuda_kernel *)kernels[0];
    for (int i = 1; i < n; i++)
        if (((const tsri_cuda_kernel *)kernels[i])->stream != first->stream)
            return tsri_fail(TSR_ERR_UNSUPPORTED, "%s: sums of several streams",
                             tsri_op_name(first->desc.op));
    joined *v = (joined *)tsri_cuda_make(mem, &first->desc, run_joined<T>, "cuda", sizeof *v);
    TSRI_NEED(v);
    v->kernel.finish = finish_joined;
    v->n = n;
    const tsr_status status = fill_table(mem, v, kernels, in, out);
    if (status == TSR_OK)
        *out_kernel = &v->kernel.base;
    else
        v->kernel.base.destroy(&v->kernel.base);
    return status;
}

/* --- making ----------------------------------------------------------------------------------- */
/* Joined where nothing lies between the elements, whatever their order. */
template <typename T>
static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    lone *v = (lone *)tsri_cuda_make(mem, d, run_one<T>, "cuda", sizeof *v);
    TSRI_NEED(v);
    tsri_cuda_walk_init(&v->walk, d->in[0].ndim, d->in[0].shape);
    tsri_cuda_walk_push(&v->walk, d->in[0].stride);
    tsri_cuda_walk_finish(&v->walk);
    tsri_kernel *k = &v->kernel.base;
    if (v->walk.flat || v->walk.count == 0)
        k->join = join<T>;
    k->joins_in_order = true;
    k->scratch_bytes = (size_t)chunks_of(tsri_cuda_count(&d->in[0])) * sizeof(double);
    *out_kernel = k;
    return TSR_OK;
}

tsr_status tsri_cuda_squares(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (d->out[0].dtype != TSR_F64 || (d->nin > 1 && d->in[1].dtype != TSR_F64))
        return tsri_cuda_decline(d);
    TSRI_FLOATS(d->in[0].dtype, return create<T>(mem, d, out_kernel));
    return tsri_cuda_decline(d);
}
