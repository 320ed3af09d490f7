/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise ops at the speed of memory: by packs of 16 bytes or more (pack.cuh), two under way
 * per thread, with the function known to the compiler. For operands that are flat, or alike along
 * the innermost axis; others are plain's.
 */
#include "kernels/cuda/code/map_code.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/rng_code.cuh"
#include "kernels/part.h"

enum { THREADS = 256, AHEAD = 2 };

typedef struct map {
    tsri_cuda_kernel k;
    tsri_packs p;
    uint64_t begin; /* dropout: the global index of the first element, */
    int64_t shift;  /* and of a part in time, by how much it grows from one part to the next */
} map;

template <typename T> struct width {
    enum { N = 16 / sizeof(T) };
};

/* --- kernels ---------------------------------------------------------------------------------- */
/* y may be x: a thread reads what it writes before it does. */
template <typename Ty, typename Tx, int N, typename F>
static __global__ void __launch_bounds__(THREADS, 4) map1(tsri_packs p, Ty *y, const Tx *x, F f)
{
    const int64_t step = tsri_step();
    for (int64_t i = tsri_first(); i < p.w.count; i += AHEAD * step) {
        int64_t at[AHEAD][2];
        tsri_pack<Tx, N> v[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (i + a * step < p.w.count) {
                tsri_walk_at<2>(p.w, i + a * step, at[a]);
                v[a] = tsri_pack_load<Tx, N>(p, 1, x + at[a][1]);
            }
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (i + a * step < p.w.count) {
                tsri_pack<Ty, N> r;
#pragma unroll
                for (int e = 0; e < N; e++)
                    r.v[e] = f(v[a].v[e]);
                tsri_store_pack<Ty, N>(y + at[a][0], r);
            }
    }
    for (int64_t t = tsri_first(); t < p.tail; t += step)
        y[tsri_tail_at(p, 0, t)] = f(x[tsri_tail_at(p, 1, t)]);
}

template <typename Tz, typename T, int N, typename F>
static __global__ void map2(tsri_packs p, Tz *z, const T *x, const T *y, F f)
{
    const int64_t step = tsri_step();
    for (int64_t i = tsri_first(); i < p.w.count; i += AHEAD * step) {
        int64_t at[AHEAD][3];
        tsri_pack<T, N> v[AHEAD], u[AHEAD];
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (i + a * step < p.w.count) {
                tsri_walk_at<3>(p.w, i + a * step, at[a]);
                v[a] = tsri_pack_load<T, N>(p, 1, x + at[a][1]);
                u[a] = tsri_pack_load<T, N>(p, 2, y + at[a][2]);
            }
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if (i + a * step < p.w.count) {
                tsri_pack<Tz, N> r;
#pragma unroll
                for (int e = 0; e < N; e++)
                    r.v[e] = f(v[a].v[e], u[a].v[e]);
                tsri_store_pack<Tz, N>(z + at[a][0], r);
            }
    }
    for (int64_t t = tsri_first(); t < p.tail; t += step)
        z[tsri_tail_at(p, 0, t)] = f(x[tsri_tail_at(p, 1, t)], y[tsri_tail_at(p, 2, t)]);
}

static unsigned blocks_of(const map *m)
{
    const int64_t each = (m->p.w.count + AHEAD - 1) / AHEAD;
    return tsri_blocks(each > m->p.tail ? each : m->p.tail, THREADS);
}

template <typename Ty, typename Tx, int N, typename F>
static void launch1(const map *m, void *const *in, void *const *out, F f)
{
    TSRI_LAUNCH((map1<Ty, Tx, N, F>), blocks_of(m), THREADS, m->k.stream, m->p, (Ty *)out[0],
                (const Tx *)in[0], f);
}
template <typename Tz, typename T, typename F>
static void launch2(const map *m, void *const *in, void *const *out, F f)
{
    TSRI_LAUNCH((map2<Tz, T, width<T>::N, F>), blocks_of(m), THREADS, m->k.stream, m->p,
                (Tz *)out[0], (const T *)in[0], (const T *)in[1], f);
}

/* The dtypes whose arithmetic is in f32. */
#define SINGLES(dtype, ...)                                    \
    switch (dtype) {                                           \
        TSRI_CASE_(TSR_DTYPE_F32, float, __VA_ARGS__)          \
        TSRI_CASE_(TSR_DTYPE_F16, __half, __VA_ARGS__)         \
        TSRI_CASE_(TSR_DTYPE_BF16, __nv_bfloat16, __VA_ARGS__) \
    default:                                                   \
        break;                                                 \
    }
static bool is_single(tsr_dtype d)
{
    return d == TSR_F32 || d == TSR_F16 || d == TSR_BF16;
}

/* Packs of n, or declines. */
static tsr_status make(tsri_mem *mem, const tsri_kernel_desc *d, tsri_cuda_run_fn *run,
                       const tsri_cuda_walk *w, int n, map **out)
{
    tsri_packs p;
    if (!tsri_packs_init(&p, w, n))
        return tsri_cuda_decline(d);
    *out = (map *)tsri_cuda_make(mem, d, run, "cuda", sizeof **out);
    TSRI_NEED(*out);
    (*out)->p = p;
    return TSR_OK;
}

/* All operands and the result of one dtype that counts in f32. */
static tsr_status make_single(tsri_mem *mem, const tsri_kernel_desc *d, tsri_cuda_run_fn *run,
                              tsri_kernel **out_kernel)
{
    const tsr_dtype dtype = d->out[0].dtype;
    bool alike = is_single(dtype);
    for (int i = 0; i < d->nin; i++)
        alike &= d->in[i].dtype == dtype;
    if (!alike)
        return tsri_cuda_decline(d);
    tsri_cuda_walk w;
    map *m = NULL;
    tsri_cuda_walk_of(&w, d);
    TSRI_TRY(make(mem, d, run, &w, 16 / (int)tsr_dtype_size(dtype), &m));
    *out_kernel = &m->k.base;
    return TSR_OK;
}

/* --- unary ------------------------------------------------------------------------------------ */
template <typename T, int FN> struct unary_fn {
    float a, b;
    __device__ __forceinline__ T operator()(T v) const
    {
        return tsri_to<T>(tsri_unary<float>(FN, tsri_to<float>(v), a, b));
    }
};
template <typename T, int FN> struct unary_grad_fn {
    float a, b;
    __device__ __forceinline__ T operator()(T v, T u) const
    {
        return tsri_to<T>(tsri_unary_grad<float>(FN, tsri_to<float>(v), tsri_to<float>(u), a, b));
    }
};

template <typename T> static void unary(const map *m, void *const *in, void *const *out)
{
    const float a = (float)m->k.attrs.unary.a, b = (float)m->k.attrs.unary.b;
#define UNARY(t, FN, ...)                                                           \
    case TSRI_UNARY_##FN:                                                           \
        launch1<T, T, width<T>::N>(m, in, out, unary_fn<T, TSRI_UNARY_##FN>{a, b}); \
        break;
    switch (m->k.attrs.unary.fn) {
        TSRI_UNARY_LIST(UNARY, )
    }
#undef UNARY
}

static tsr_status unary_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const map *m = (const map *)k;
    if (tsri_packs_empty(&m->p))
        return TSR_OK;
    SINGLES(k->desc.out[0].dtype, unary<T>(m, in, out));
    return tsri_cuda_launched(k);
}

tsr_status tsri_fast_unary(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if ((unsigned)d->attrs->unary.fn >= TSRI_UNARY_COUNT_)
        return tsri_cuda_decline(d);
    return make_single(mem, d, unary_run, out_kernel);
}

template <typename T> static void unary_grad(const map *m, void *const *in, void *const *out)
{
    const float a = (float)m->k.attrs.unary.a, b = (float)m->k.attrs.unary.b;
#define UNARY_GRAD(t, FN, ...)                                              \
    case TSRI_UNARY_##FN:                                                   \
        launch2<T, T>(m, in, out, unary_grad_fn<T, TSRI_UNARY_##FN>{a, b}); \
        break;
    switch (m->k.attrs.unary.fn) {
        TSRI_UNARY_LIST(UNARY_GRAD, )
    }
#undef UNARY_GRAD
}

static tsr_status unary_grad_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                                 void *)
{
    const map *m = (const map *)k;
    if (tsri_packs_empty(&m->p))
        return TSR_OK;
    SINGLES(k->desc.out[0].dtype, unary_grad<T>(m, in, out));
    return tsri_cuda_launched(k);
}

tsr_status tsri_fast_unary_grad(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if ((unsigned)d->attrs->unary.fn >= TSRI_UNARY_COUNT_)
        return tsri_cuda_decline(d);
    return make_single(mem, d, unary_grad_run, out_kernel);
}

template <typename T> struct scale_fn {
    float a;
    __device__ __forceinline__ T operator()(T v) const
    {
        return tsri_to<T>(tsri_to<float>(v) * a);
    }
};

static tsr_status scale_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const map *m = (const map *)k;
    if (tsri_packs_empty(&m->p))
        return TSR_OK;
    SINGLES(k->desc.out[0].dtype,
            launch1<T, T, width<T>::N>(m, in, out, scale_fn<T>{(float)k->attrs.scale.a}));
    return tsri_cuda_launched(k);
}

tsr_status tsri_fast_scale(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return make_single(mem, d, scale_run, out_kernel);
}

/* --- cast ------------------------------------------------------------------------------------- */
template <typename To, typename From> struct cast_fn {
    __device__ __forceinline__ To operator()(From v) const
    {
        return tsri_cast<To>(v);
    }
};

/* Four at once whatever the dtypes: at most 32 bytes of one side. */
enum { CAST_WIDTH = 4 };

template <typename From>
static void cast_from(const map *m, tsr_dtype to, void *const *in, void *const *out)
{
    TSRI_FLOATS(to, launch1<T, From, CAST_WIDTH>(m, in, out, cast_fn<T, From>{}));
}

static tsr_status cast_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const map *m = (const map *)k;
    const tsr_dtype to = k->desc.out[0].dtype;
    if (tsri_packs_empty(&m->p))
        return TSR_OK;
    switch (k->desc.in[0].dtype) {
    case TSR_F32:
        cast_from<float>(m, to, in, out);
        break;
    case TSR_F64:
        cast_from<double>(m, to, in, out);
        break;
    case TSR_F16:
        cast_from<__half>(m, to, in, out);
        break;
    case TSR_BF16:
        cast_from<__nv_bfloat16>(m, to, in, out);
        break;
    default:
        cast_from<uint8_t>(m, to, in, out);
    }
    return tsri_cuda_launched(k);
}

/* To floats, from floats and bytes. */
tsr_status tsri_fast_cast(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsr_dtype from = d->in[0].dtype;
    if (!tsri_cuda_is_float(d->out[0].dtype) || from == TSR_I32 || from == TSR_I64)
        return tsri_cuda_decline(d);
    tsri_cuda_walk w;
    map *m = NULL;
    tsri_cuda_walk_of(&w, d);
    TSRI_TRY(make(mem, d, cast_run, &w, CAST_WIDTH, &m));
    *out_kernel = &m->k.base;
    return TSR_OK;
}

/* --- binary ----------------------------------------------------------------------------------- */
template <typename T, int FN> struct binary_fn {
    __device__ __forceinline__ T operator()(T a, T b) const
    {
        return tsri_binary<T>(FN, a, b);
    }
};
template <typename Tz, typename T> struct compare_fn {
    tsri_orders orders;
    __device__ __forceinline__ Tz operator()(T a, T b) const
    {
        return tsri_cast<Tz>(tsri_order<T>(orders, a, b));
    }
};

template <typename T> static void binary(const map *m, void *const *in, void *const *out)
{
    const int fn = m->k.attrs.binary.fn;
#define BINARY(t, FN, ...)                                           \
    case TSRI_BINARY_##FN:                                           \
        launch2<T, T>(m, in, out, binary_fn<T, TSRI_BINARY_##FN>{}); \
        return;
    switch (fn) {
        TSRI_ARITHMETIC_LIST(BINARY, )
    }
#undef BINARY
    const tsri_orders orders = tsri_binary_orders((tsri_binary_fn)fn);
    if (m->k.desc.out[0].dtype == TSR_BOOL)
        launch2<bool, T>(m, in, out, compare_fn<bool, T>{orders});
    else
        launch2<T, T>(m, in, out, compare_fn<T, T>{orders});
}

static tsr_status binary_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const map *m = (const map *)k;
    if (tsri_packs_empty(&m->p))
        return TSR_OK;
    SINGLES(k->desc.in[0].dtype, binary<T>(m, in, out));
    return tsri_cuda_launched(k);
}

tsr_status tsri_fast_binary(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsr_dtype x = d->in[0].dtype, z = d->out[0].dtype;
    const unsigned fn = (unsigned)d->attrs->binary.fn;
    if (fn >= TSRI_BINARY_COUNT_ || !is_single(x) || x != d->in[1].dtype ||
        (x != z && !(z == TSR_BOOL && tsri_binary_compares((tsri_binary_fn)fn))))
        return tsri_cuda_decline(d);
    tsri_cuda_walk w;
    map *m = NULL;
    tsri_cuda_walk_of(&w, d);
    TSRI_TRY(make(mem, d, binary_run, &w, 16 / (int)tsr_dtype_size(x), &m));
    *out_kernel = &m->k.base;
    return TSR_OK;
}

/* --- add_n ------------------------------------------------------------------------------------ */
/* A reduction of several sources, which reads all before it writes. */
static tsr_status add_n_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    tsri_move m = {};
    m.dtype = k->desc.out[0].dtype;
    m.op = TSR_REDUCE_SUM;
    m.ndim = 1;
    m.length[0] = tsri_cuda_count(&k->desc.out[0]);
    m.src_step[0] = m.dst_step[0] = 1;
    m.nsrc = k->desc.nin;
    m.src = in;
    m.dst = out[0];
    TSRI_TRY(tsri_cuda_move(&m, k->stream));
    return tsri_cuda_launched(k);
}

tsr_status tsri_fast_add_n(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *y = &d->out[0];
    bool alike = tsri_cuda_is_float(y->dtype);
    for (int i = 0; i < d->nin; i++) {
        alike &= d->in[i].dtype == y->dtype;
        for (int a = 0; a < y->ndim; a++)
            alike &= y->shape[a] == 1 || d->in[i].stride[a] == y->stride[a];
    }
    if (!alike)
        return tsri_cuda_decline(d);
    return tsri_cuda_create(mem, d, add_n_run, "cuda", out_kernel);
}

/* --- dropout ---------------------------------------------------------------------------------- */
/* N neighbours whose global index begins at g. ALIGNED: at a multiple of 4, the elements that share
 * a block of random words. */
template <typename T, int N, bool ALIGNED>
static __device__ __forceinline__ tsri_pack<T, N>
drop(tsri_pack<T, N> v, uint64_t key, uint64_t step, uint64_t g, uint32_t least, float scale)
{
    tsri_words b = tsri_philox_block(key, step, g / 4);
#pragma unroll
    for (int e = 0; e < N; e++) {
        const uint32_t at = ALIGNED ? e % 4 : (uint32_t)((g + e) % 4);
        if (e && at == 0)
            b = tsri_philox_block(key, step, (g + e) / 4);
        v.v[e] = tsri_to<T>(tsri_word(b, at) >> 8 >= least ? tsri_to<float>(v.v[e]) * scale : 0.f);
    }
    return v;
}

template <typename T, int N, bool ALIGNED>
static __global__ void dropout_kernel(tsri_packs p, T *y, const T *x, const int64_t *pstep,
                                      const int64_t *part, int64_t shift, uint64_t key,
                                      uint64_t begin, uint32_t least, float scale)
{
    typedef tsri_pack<T, N> pack;
    typedef tsri_pack<T, 1> one;
    const uint64_t step = (uint64_t)*pstep;
    begin += part ? (uint64_t)(*part * shift) : 0;
    for (int64_t i = tsri_first(); i < p.w.count; i += tsri_step()) {
        int64_t at[3];
        tsri_walk_at<3>(p.w, i, at);
        *(pack *)(y + at[0]) = drop<T, N, ALIGNED>(*(const pack *)(x + at[1]), key, step,
                                                   begin + (uint64_t)at[2], least, scale);
    }
    for (int64_t t = tsri_first(); t < p.tail; t += tsri_step()) {
        const int64_t e = p.w.count * N + t;
        *(one *)(y + e) =
            drop<T, 1, false>(*(const one *)(x + e), key, step, begin + (uint64_t)e, least, scale);
    }
}

template <typename T, bool ALIGNED>
static void dropout(const map *m, void *const *in, void *const *out)
{
    const double p = m->k.attrs.dropout.p;
    TSRI_LAUNCH((dropout_kernel<T, width<T>::N, ALIGNED>), tsri_blocks(m->p.w.count, THREADS),
                THREADS, m->k.stream, m->p, (T *)out[0], (const T *)in[0], (const int64_t *)in[1],
                m->k.desc.nin == 3 ? (const int64_t *)in[2] : NULL, m->shift,
                m->k.attrs.dropout.key, m->begin, tsri_dropout_least(p),
                (float)tsri_dropout_scale(p));
}

static tsr_status dropout_run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const map *m = (const map *)k;
    if (tsri_packs_empty(&m->p))
        return TSR_OK;
    if (m->begin % 4 == 0 && m->shift % 4 == 0)
        SINGLES(k->desc.out[0].dtype, dropout<T, true>(m, in, out))
    else
        SINGLES(k->desc.out[0].dtype, dropout<T, false>(m, in, out))
    return tsri_cuda_launched(k);
}

tsr_status tsri_fast_dropout(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    if (!is_single(y->dtype) || x->dtype != y->dtype || d->in[1].dtype != TSR_I64)
        return tsri_cuda_decline(d);
    tsri_arg placed = *y;
    int64_t index[TSR_MAX_NDIM], shift = 0;
    if (d->nin == 3 && (d->in[2].dtype != TSR_I64 || !tsri_part_place(d, &placed, &shift)))
        return tsri_cuda_decline(d);
    const int64_t begin = tsri_cuda_global_index(&placed, index);
    tsri_cuda_walk w;
    tsri_cuda_walk_init(&w, y->ndim, y->shape);
    tsri_cuda_walk_push(&w, y->stride);
    tsri_cuda_walk_push(&w, x->stride);
    tsri_cuda_walk_push(&w, index);
    tsri_cuda_walk_finish(&w);
    map *m = NULL;
    TSRI_TRY(make(mem, d, dropout_run, &w, 16 / (int)tsr_dtype_size(y->dtype), &m));
    m->begin = (uint64_t)begin;
    m->shift = shift;
    *out_kernel = &m->k.base;
    return TSR_OK;
}
