/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers' updates of operands that lie alike in memory, and many of them in one launch: blocks
 * take chunks from a table, which lies in device memory with what is to be updated.
 */
#include "kernels/cuda/code/optim.cuh"

enum {
    THREADS = 256,
    UNIT = 2048,      /* elements: every chunk is a whole number of these */
    MOST_UNITS = 8,   /* in a chunk */
    PLENTY = 1 << 11, /* chunks that keep any GPU busy */
};

/* --- on the device ---------------------------------------------------------------------------- */
/* T: of p and g; S: of the states. */
template <typename Rule, typename T, typename S, int N>
static __device__ __forceinline__ void update_pack(const Rule &rule, const tsri_update &u,
                                                   int64_t i)
{
    typedef tsri_acc<T> A;
    enum { STATES = Rule::STATES };
    tsri_pack<T, N> p = tsri_load_pack<T, N>((const T *)u.p + i);
    const tsri_pack<T, N> g = tsri_load_pack<T, N>((const T *)u.g + i);
    tsri_pack<S, N> state[STATES];
#pragma unroll
    for (int s = 0; s < STATES; s++)
        if (u.has >> s & 1)
            state[s] = tsri_load_pack<S, N>((const S *)u.state[s] + i);
#pragma unroll
    for (int j = 0; j < N; j++) {
        A x = tsri_to<A>(p.v[j]), y[STATES];
#pragma unroll
        for (int s = 0; s < STATES; s++)
            y[s] = u.has >> s & 1 ? tsri_to<A>(state[s].v[j]) : (A)0;
        rule.update(x, y, u.has, tsri_to<A>(g.v[j]));
        p.v[j] = tsri_to<T>(x);
#pragma unroll
        for (int s = 0; s < STATES; s++)
            state[s].v[j] = tsri_to<S>(y[s]);
    }
    tsri_store_pack<T, N>((T *)u.p + i, p);
#pragma unroll
    for (int s = 0; s < STATES; s++)
        if (u.has >> s & 1)
            tsri_store_pack<S, N>((S *)u.state[s] + i, state[s]);
}

/* Elements [begin, end), by the block. */
template <typename Rule, typename T, typename S>
static __device__ __forceinline__ void update_chunk(const Rule &rule, const tsri_update &u,
                                                    int64_t begin, int64_t end)
{
    enum { N = tsri_wide<T>::N };
    const int64_t tail = u.wide ? begin + (end - begin) / N * N : begin;
    for (int64_t i = begin + (int64_t)threadIdx.x * N; i < tail; i += THREADS * N)
        update_pack<Rule, T, S, N>(rule, u, i);
    for (int64_t i = tail + threadIdx.x; i < end; i += THREADS)
        update_pack<Rule, T, S, 1>(rule, u, i);
}

template <typename Rule, typename T, typename S>
static __global__ void update_kernel(tsri_update u, int64_t chunk)
{
    __shared__ Rule rule;
    if (threadIdx.x == 0)
        rule.prepare(u);
    __syncthreads();
    for (int64_t begin = blockIdx.x * chunk; begin < u.count; begin += gridDim.x * chunk) {
        const int64_t end = begin + chunk < u.count ? begin + chunk : u.count;
        if (!rule.skips)
            update_chunk<Rule, T, S>(rule, u, begin, end);
    }
}

/* A part of an update. */
typedef struct piece {
    int64_t update, begin;
} piece;

template <typename Rule, typename T, typename S>
static __global__ void joined_kernel(const tsri_update *updates, const piece *pieces,
                                     int64_t npieces, int64_t chunk)
{
    __shared__ Rule rule;
    for (int64_t i = blockIdx.x; i < npieces; i += gridDim.x) {
        const piece at = pieces[i];
        const tsri_update u = updates[at.update];
        __syncthreads(); /* rule may still be read */
        if (threadIdx.x == 0)
            rule.prepare(u);
        __syncthreads();
        const int64_t end = at.begin + chunk < u.count ? at.begin + chunk : u.count;
        if (!rule.skips)
            update_chunk<Rule, T, S>(rule, u, at.begin, end);
    }
}

/* Elements of a chunk where there are `count` to update: more chunks than a GPU has room for, and
 * then larger ones, for which preparing the rule costs nothing. */
static int64_t chunk_of(int64_t count)
{
    const int64_t units = count / ((int64_t)UNIT * PLENTY);
    return UNIT * (units < 1 ? 1 : units > MOST_UNITS ? (int64_t)MOST_UNITS : units);
}

/* --- one update ------------------------------------------------------------------------------- */
template <typename T, typename S> static bool aligned(const tsri_update &u)
{
    const size_t pack = sizeof(tsri_pack<T, tsri_wide<T>::N>);
    const size_t states = sizeof(tsri_pack<S, tsri_wide<T>::N>);
    bool is = (uintptr_t)u.p % pack == 0 && (uintptr_t)u.g % pack == 0;
    for (int s = 0; u.has >> s & 1; s++)
        is = is && (uintptr_t)u.state[s] % states == 0;
    return is;
}

template <typename T, typename S>
static tsri_update update_of(const tsri_cuda_kernel *k, void *const *in, void *const *out)
{
    tsri_update u = tsri_update_of(&k->desc, in, out);
    u.wide = aligned<T, S>(u);
    return u;
}

template <int OP, typename T, typename S>
static tsr_status run_one(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                          void *scratch)
{
    (void)scratch;
    const tsri_update u = update_of<T, S>(k, in, out);
    const int64_t chunk = chunk_of(u.count);
    if (u.count > 0)
        TSRI_LAUNCH((update_kernel<tsri_update_rule<OP, tsri_acc<T>>, T, S>),
                    tsri_blocks((u.count + chunk - 1) / chunk, 1), THREADS, k->stream, u, chunk);
    return tsri_cuda_launched(k);
}

/* --- joined ----------------------------------------------------------------------------------- */
typedef struct joined {
    tsri_cuda_kernel kernel;
    void *table; /* in device memory: updates, then pieces */
    const piece *pieces;
    int64_t npieces, chunk;
} joined;

static void finish_joined(tsri_cuda_kernel *k)
{
    cudaFree(((joined *)k)->table);
}

template <int OP, typename T, typename S>
static tsr_status run_joined(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                             void *scratch)
{
    (void)in, (void)out, (void)scratch;
    const joined *v = (const joined *)k;
    if (v->npieces > 0)
        TSRI_LAUNCH((joined_kernel<tsri_update_rule<OP, tsri_acc<T>>, T, S>),
                    tsri_blocks(v->npieces, 1), THREADS, k->stream, (const tsri_update *)v->table,
                    v->pieces, v->npieces, v->chunk);
    return tsri_cuda_launched(k);
}

/* The table, in host memory: updates as given, then their pieces. Counts these if it is NULL. */
static int64_t list_pieces(const tsri_update *updates, int n, int64_t chunk, piece *to)
{
    int64_t count = 0;
    for (int i = 0; i < n; i++)
        for (int64_t begin = 0; begin < updates[i].count; begin += chunk, count++)
            if (to)
                to[count] = piece{i, begin};
    return count;
}

/* `updates` is the table's beginning, which grows by the pieces. */
static tsr_status fill_table(tsri_mem *mem, joined *v, tsri_update **updates, int n)
{
    int64_t count = 0;
    for (int i = 0; i < n; i++)
        count += (*updates)[i].count;
    v->chunk = chunk_of(count);
    v->npieces = list_pieces(*updates, n, v->chunk, NULL);
    if (v->npieces == 0)
        return TSR_OK;
    const size_t head = (size_t)n * sizeof **updates;
    const size_t bytes = head + (size_t)v->npieces * sizeof(piece);
    tsri_update *table = (tsri_update *)tsri_mem_realloc(mem, *updates, bytes);
    TSRI_NEED(table);
    *updates = table;
    list_pieces(table, n, v->chunk, (piece *)((char *)table + head));
    TSRI_TRY(tsri_cuda_upload(&v->kernel, table, bytes, "a table of updates", &v->table));
    v->pieces = (const piece *)((char *)v->table + head);
    return TSR_OK;
}

template <int OP, typename T, typename S>
static tsr_status join(tsri_mem *mem, int n, tsri_kernel *const *kernels, void *const *const *in,
                       void *const *const *out, tsri_kernel **out_kernel)
{
    const tsri_cuda_kernel *first = (const tsri_cuda_kernel *)kernels[0];
    for (int i = 1; i < n; i++)
        if (((const tsri_cuda_kernel *)kernels[i])->stream != first->stream)
            return tsri_fail(TSR_ERR_UNSUPPORTED, "%s: updates of several streams",
                             tsri_op_name(first->desc.op));
    joined *v =
        (joined *)tsri_cuda_make(mem, &first->desc, run_joined<OP, T, S>, "cuda", sizeof *v);
    tsri_update *updates = (tsri_update *)tsri_mem_alloc(mem, (size_t)n * sizeof *updates);
    tsr_status status = TSR_ERR_NO_MEMORY;
    if (v && updates) {
        v->kernel.finish = finish_joined;
        for (int i = 0; i < n; i++)
            updates[i] = update_of<T, S>((const tsri_cuda_kernel *)kernels[i], in[i], out[i]);
        status = fill_table(mem, v, &updates, n);
    }
    tsri_mem_free(updates);
    if (status == TSR_OK)
        *out_kernel = &v->kernel.base;
    else if (v)
        v->kernel.base.destroy(&v->kernel.base);
    return status;
}

/* --- making ----------------------------------------------------------------------------------- */
/* p, the states and g lie alike, and any order will do. */
static bool lie_alike(const tsri_kernel_desc *d)
{
    tsri_cuda_walk w;
    tsri_cuda_walk_init(&w, d->out[0].ndim, d->out[0].shape);
    for (int i = 0; i < d->nin - 1; i++)
        tsri_cuda_walk_push(&w, d->in[i].stride);
    tsri_cuda_walk_finish(&w);
    return w.flat || w.count == 0;
}

template <int OP, typename T, typename S>
static tsr_status create_of(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    TSRI_TRY(tsri_cuda_create(mem, d, run_one<OP, T, S>, "cuda", out_kernel));
    (*out_kernel)->join = join<OP, T, S>;
    return TSR_OK;
}

/* States may be f32 whatever p is: sums of f16 and bf16 gradients need it. */
template <int OP>
static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (!tsri_optim_takes(d) || d->in[d->nin - 2].dtype != d->out[0].dtype || !lie_alike(d))
        return tsri_cuda_decline(d);
    const tsr_dtype dtype = d->out[0].dtype, states = d->out[d->nout - 1].dtype;
    for (int o = 1; o < d->nout; o++)
        if (d->out[o].dtype != states)
            return tsri_cuda_decline(d);
    if (states == dtype)
        TSRI_FLOATS(dtype, return create_of<OP, T, T>(mem, d, out_kernel))
    else if (states == TSR_F32 && dtype == TSR_F16)
        return create_of<OP, __half, float>(mem, d, out_kernel);
    else if (states == TSR_F32 && dtype == TSR_BF16)
        return create_of<OP, __nv_bfloat16, float>(mem, d, out_kernel);
    return tsri_cuda_decline(d);
}

#define SLOT(KIND, name, ...)                                                                \
    tsr_status tsri_fast_##name(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out) \
    {                                                                                        \
        return create<TSRI_OP_##KIND>(mem, d, out);                                          \
    }
TSRI_UPDATE_LIST(SLOT)
