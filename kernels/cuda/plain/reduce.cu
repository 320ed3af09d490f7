/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions over axes, argmax and sums along an axis, of any dtype and strides. */
#include "kernels/cuda/code/argmax.cuh"
#include "kernels/cuda/code/map_code.cuh"
#include "kernels/cuda/rows.cuh"

enum { THREADS = 256, LINES = 128 };

/* The type in which a dtype is reduced. */
template <typename T> struct sum_of {
    typedef int64_t type;
};
template <> struct sum_of<float> {
    typedef float type;
};
template <> struct sum_of<double> {
    typedef double type;
};
template <> struct sum_of<__half> {
    typedef float type;
};
template <> struct sum_of<__nv_bfloat16> {
    typedef float type;
};

/* The dtype of sums, running sums and products of x. */
static tsr_dtype sum_dtype(tsr_dtype x)
{
    return tsri_cuda_is_float(x) ? x : TSR_I64;
}

/* --- reduce ----------------------------------------------------------------------------------- */
typedef struct reduce_args {
    tsri_cuda_walk kept, reduced; /* operands: x, y; x */
    tsr_dtype to;
    int op;
    double scale;
} reduce_args;

typedef struct reduce {
    tsri_cuda_kernel kernel;
    reduce_args args;
} reduce;

/* Products of whole numbers wrap. */
struct prod_fn {
    template <typename A> static __device__ __forceinline__ A identity(void)
    {
        return 1;
    }
    template <typename A> static __device__ __forceinline__ A of(A a, A v)
    {
        if constexpr (std::is_integral<A>::value)
            return (A)((uint64_t)a * (uint64_t)v);
        else
            return a * v;
    }
};

template <typename A> static __device__ __forceinline__ A combine(int op, A a, A v)
{
    return op == TSR_REDUCE_SUM       ? tsri_sum_fn::of(a, v)
           : op == TSR_REDUCE_PRODUCT ? prod_fn::of(a, v)
           : op == TSRI_REDUCE_FAULT  ? tsri_fault_fn::of(a, v)
           : op == TSR_REDUCE_MAX     ? tsri_max_fn::of(a, v)
                                      : tsri_min_fn::of(a, v);
}

template <int LANES, typename A> static __device__ __forceinline__ A combine_lanes(int op, A a)
{
    return op == TSR_REDUCE_SUM       ? tsri_all<LANES, tsri_sum_fn>(a)
           : op == TSR_REDUCE_PRODUCT ? tsri_all<LANES, prod_fn>(a)
           : op == TSRI_REDUCE_FAULT  ? tsri_all<LANES, tsri_fault_fn>(a)
           : op == TSR_REDUCE_MAX     ? tsri_all<LANES, tsri_max_fn>(a)
                                      : tsri_all<LANES, tsri_min_fn>(a);
}

/* Every BLOCK elements are reduced on their own first, which keeps a long sum's error small. */
template <typename T, int LANES>
static __global__ void reduce_kernel(reduce_args g, const T *x, void *y,
                                     typename sum_of<T>::type identity)
{
    typedef typename sum_of<T>::type A;
    enum { BLOCK = 128 };
    const int64_t lane = tsri_lane<LANES>(), lanes = tsri_lanes<LANES>(), n = g.reduced.count;
    for (int64_t r = tsri_first_row<LANES>(); r < g.kept.count; r += tsri_row_step<LANES>()) {
        int64_t at[2], to[1];
        tsri_walk_at<2>(g.kept, r, at);
        A all = identity;
        for (int64_t b = lane; b < n; b += BLOCK * lanes) {
            A part = identity;
            const int64_t end = b + BLOCK * lanes < n ? b + BLOCK * lanes : n;
            for (int64_t c = b; c < end; c += lanes) {
                tsri_walk_at<1>(g.reduced, c, to);
                part = combine<A>(g.op, part, tsri_to<A>(x[at[0] + to[0]]));
            }
            all = combine<A>(g.op, all, part);
        }
        all = combine_lanes<LANES, A>(g.op, all);
        if (lane != 0)
            continue;
        if constexpr (std::is_same<A, int64_t>::value)
            tsri_store(g.to, y, at[1], all); /* wraps */
        else
            tsri_store(g.to, y, at[1], g.scale * (double)all);
    }
}

/* The reduction of no elements: 0, 1 of a product, or a dtype's least or greatest value. */
template <typename T> static typename sum_of<T>::type identity_of(tsr_dtype d, int op)
{
    typedef typename sum_of<T>::type A;
    if (op == TSR_REDUCE_SUM || op == TSR_REDUCE_PRODUCT || op == TSRI_REDUCE_FAULT)
        return op == TSR_REDUCE_PRODUCT;
    const bool max = op == TSR_REDUCE_MAX;
    if constexpr (std::is_same<A, int64_t>::value) {
        if (max)
            return d == TSR_I64 ? INT64_MIN : d == TSR_I32 ? INT32_MIN : 0;
        return d == TSR_I64 ? INT64_MAX : d == TSR_I32 ? INT32_MAX : d == TSR_U8 ? 255 : 1;
    } else {
        return max ? -tsri_infinity<A>() : tsri_infinity<A>();
    }
}

/* Threads side by side take results side by side where those are read from places side by side;
 * else, and where there are few results, they share a result. */
template <typename T> static void launch_reduce(const reduce *v, const void *x, void *y)
{
    enum { FEW = 1 << 13, MANY_TERMS = 2048 };
    const reduce_args &g = v->args;
    const cudaStream_t stream = v->kernel.stream;
    const auto identity = identity_of<T>(v->kernel.desc.in[0].dtype, g.op);
    const int64_t results = g.kept.count, terms = g.reduced.count;
    const bool across = g.reduced.stride[0][0] < g.kept.stride[0][0] || results == 1;
    if (terms < TSRI_WARP || (!across && results >= FEW))
        TSRI_LAUNCH((reduce_kernel<T, TSRI_THREAD>), tsri_blocks(results, LINES), LINES, stream, g,
                    (const T *)x, y, identity);
    else if (terms < MANY_TERMS)
        TSRI_LAUNCH((reduce_kernel<T, TSRI_WARP>), tsri_blocks(results, THREADS / TSRI_WARP),
                    THREADS, stream, g, (const T *)x, y, identity);
    else
        TSRI_LAUNCH((reduce_kernel<T, TSRI_BLOCK>), tsri_blocks(results, 1), THREADS, stream, g,
                    (const T *)x, y, identity);
}

static tsr_status run_reduce(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                             void *scratch)
{
    (void)scratch;
    const reduce *v = (const reduce *)k;
    if (v->args.kept.count > 0)
        TSRI_NUMBERS(k->desc.in[0].dtype, launch_reduce<T>(v, in[0], out[0]));
    return tsri_cuda_launched(k);
}

/* Strides of y along x's axes; 0 where they are reduced. */
static void strides_along(const tsri_kernel_desc *d, int64_t *stride)
{
    int axis = d->out[0].ndim;
    for (int i = d->in[0].ndim - 1; i >= 0; i--) {
        const bool reduced = d->attrs->reduce.axes >> i & 1;
        if (!reduced || d->attrs->reduce.keepdim)
            axis--;
        stride[i] = reduced ? 0 : d->out[0].stride[axis];
    }
}

/* x's shape with the axes that are reduced, or the others, of size 1. */
static void shapes_of(const tsri_kernel_desc *d, int64_t kept[TSR_MAX_NDIM],
                      int64_t reduced[TSR_MAX_NDIM])
{
    for (int i = 0; i < d->in[0].ndim; i++) {
        const bool is_reduced = d->attrs->reduce.axes >> i & 1;
        kept[i] = is_reduced ? 1 : d->in[0].shape[i];
        reduced[i] = is_reduced ? d->in[0].shape[i] : 1;
    }
}

tsr_status tsri_plain_reduce(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0];
    if ((!tsri_cuda_is_float(x->dtype) && d->attrs->reduce.op == TSR_REDUCE_SUM &&
         d->attrs->reduce.scale != 1) ||
        d->attrs->reduce.op == TSRI_REDUCE_SQUARES)
        return tsri_cuda_decline(d);
    reduce *v = (reduce *)tsri_cuda_make(mem, d, run_reduce, "plain", sizeof *v);
    TSRI_NEED(v);
    int64_t stride[TSR_MAX_NDIM], kept[TSR_MAX_NDIM], reduced[TSR_MAX_NDIM];
    shapes_of(d, kept, reduced);
    strides_along(d, stride);
    tsri_cuda_walk_init(&v->args.kept, x->ndim, kept);
    tsri_cuda_walk_push(&v->args.kept, x->stride);
    tsri_cuda_walk_push(&v->args.kept, stride);
    tsri_cuda_walk_finish(&v->args.kept);
    tsri_cuda_walk_init(&v->args.reduced, x->ndim, reduced);
    tsri_cuda_walk_push(&v->args.reduced, x->stride);
    tsri_cuda_walk_finish(&v->args.reduced);
    v->args.to = d->out[0].dtype;
    v->args.op = d->attrs->reduce.op;
    v->args.scale = v->args.op == TSR_REDUCE_SUM ? d->attrs->reduce.scale : 1;
    *out_kernel = &v->kernel.base;
    return TSR_OK;
}

tsr_status tsri_plain_softmax_max(tsri_mem *mem, const tsri_kernel_desc *d,
                                  tsri_kernel **out_kernel)
{
    return tsri_plain_reduce(mem, d, out_kernel);
}

tsr_status tsri_plain_prod(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (d->out[0].dtype != sum_dtype(d->in[0].dtype))
        return tsri_cuda_decline(d);
    return tsri_plain_reduce(mem, d, out_kernel);
}

/* --- the gradient of a product ---------------------------------------------------------------- */
typedef struct prod_dx_args {
    tsri_cuda_walk kept, reduced; /* operands: x, dx, dy; x, dx */
} prod_dx_args;

typedef struct prod_dx {
    tsri_cuda_kernel kernel;
    prod_dx_args args;
} prod_dx;

/* A block a product; each thread has neighbouring factors. dx = dy times the product of the factors
 * before, which `before` keeps as far as they are the thread's own, and of those behind. */
template <typename T>
static __global__ void prod_dx_kernel(prod_dx_args g, const T *x, const T *dy, T *dx,
                                      typename sum_of<T>::type *before)
{
    typedef typename sum_of<T>::type A;
    __shared__ A product[THREADS];
    const int64_t n = g.reduced.count, each = (n + blockDim.x - 1) / blockDim.x;
    const int64_t from = each * threadIdx.x < n ? each * threadIdx.x : n;
    const int64_t end = from + each < n ? from + each : n;
    for (int64_t r = blockIdx.x; r < g.kept.count; r += gridDim.x) {
        int64_t at[3], to[2];
        tsri_walk_at<3>(g.kept, r, at);
        A own = 1, left = 1, right = 1;
        for (int64_t c = from; c < end; c++) {
            tsri_walk_at<2>(g.reduced, c, to);
            before[r * n + c] = own;
            own *= tsri_to<A>(x[at[0] + to[0]]);
        }
        __syncthreads(); /* the products of the block's last row were read */
        product[threadIdx.x] = own;
        __syncthreads();
        for (unsigned t = 0; t < blockDim.x; t++) {
            left *= t < threadIdx.x ? product[t] : (A)1;
            right *= t > threadIdx.x ? product[t] : (A)1;
        }
        for (int64_t c = end; c-- > from;) {
            tsri_walk_at<2>(g.reduced, c, to);
            const A others = left * before[r * n + c] * right;
            dx[at[1] + to[1]] = tsri_to<T>(tsri_to<A>(dy[at[2]]) * others);
            right *= tsri_to<A>(x[at[0] + to[0]]);
        }
    }
}

static tsr_status run_prod_dx(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                              void *scratch)
{
    const prod_dx_args &g = ((const prod_dx *)k)->args;
    if (g.kept.count == 0 || g.reduced.count == 0)
        return TSR_OK;
    const int threads = g.reduced.count < THREADS ? (int)TSRI_WARP : (int)THREADS;
    TSRI_FLOATS(k->desc.out[0].dtype,
                TSRI_LAUNCH((prod_dx_kernel<T>), tsri_blocks(g.kept.count, 1), threads, k->stream,
                            g, (const T *)in[0], (const T *)in[1], (T *)out[0],
                            (typename sum_of<T>::type *)scratch));
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_prod_dx(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *dy = &d->in[1], *dx = &d->out[0];
    if (!tsri_cuda_is_float(x->dtype) || dy->dtype != x->dtype || dx->dtype != x->dtype)
        return tsri_cuda_decline(d);
    prod_dx *v = (prod_dx *)tsri_cuda_make(mem, d, run_prod_dx, "plain", sizeof *v);
    TSRI_NEED(v);
    int64_t kept[TSR_MAX_NDIM], reduced[TSR_MAX_NDIM];
    shapes_of(d, kept, reduced);
    tsri_cuda_walk_init(&v->args.kept, x->ndim, kept);
    tsri_cuda_walk_push(&v->args.kept, x->stride);
    tsri_cuda_walk_push(&v->args.kept, dx->stride);
    tsri_cuda_walk_push(&v->args.kept, dy->stride);
    tsri_cuda_walk_finish(&v->args.kept);
    tsri_cuda_walk_init(&v->args.reduced, x->ndim, reduced);
    tsri_cuda_walk_push(&v->args.reduced, x->stride);
    tsri_cuda_walk_push(&v->args.reduced, dx->stride);
    tsri_cuda_walk_finish(&v->args.reduced);
    v->kernel.base.scratch_bytes =
        (size_t)tsri_cuda_count(x) * (x->dtype == TSR_F64 ? sizeof(double) : sizeof(float));
    *out_kernel = &v->kernel.base;
    return TSR_OK;
}

/* --- argmax ----------------------------------------------------------------------------------- */
typedef struct axis_kernel {
    tsri_cuda_kernel kernel;
    tsri_cuda_walk rows, columns;
} axis_kernel;

static tsr_status run_argmax(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                             void *scratch)
{
    (void)scratch;
    const axis_kernel *v = (const axis_kernel *)k;
    TSRI_NUMBERS(
        k->desc.in[0].dtype,
        tsri_launch_plain(tsri_argmax_op<T>{{{(const T *)in[0], NULL}, NULL}, (int64_t *)out[0]},
                          v->rows, v->columns, k->stream));
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_argmax(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    const int axis = d->attrs->softmax.axis;
    if (y->dtype != TSR_I64)
        return tsri_cuda_decline(d);
    if (!x->shape[axis] && tsri_cuda_count(y))
        return tsri_fail(TSR_ERR_INVALID, "argmax: axis %d has no elements", axis);
    axis_kernel *v = (axis_kernel *)tsri_cuda_make(mem, d, run_argmax, "plain", sizeof *v);
    TSRI_NEED(v);
    tsri_arg along = *y; /* with x's axes */
    for (int i = 0, o = 0; i < x->ndim; i++)
        along.stride[i] = i != axis || y->ndim == x->ndim ? y->stride[o++] : 0;
    const tsri_arg *operands[2] = {x, &along};
    tsri_axis_walks(2, 1, operands, axis, &v->rows, &v->columns);
    *out_kernel = &v->kernel.base;
    return TSR_OK;
}

/* --- sums along an axis ----------------------------------------------------------------------- */
/* Floats are summed in f64; sums of whole numbers and bools are i64, and wrap around. */
template <typename T> struct scan_of {
    typedef typename std::conditional<std::is_integral<T>::value, unsigned long long, double>::type
        type;
    typedef typename std::conditional<std::is_integral<T>::value, int64_t, T>::type result;
};

/* Operands: y, x. From the axis's end, if reversed: its steps are negative then. */
typedef struct scan_args {
    tsri_cuda_walk lines;
    int64_t n, begin[2], step[2];
} scan_args;

typedef struct scan {
    tsri_cuda_kernel kernel;
    scan_args args;
} scan;

template <typename T>
static __global__ void scan_lines_kernel(scan_args g, const T *x, typename scan_of<T>::result *y)
{
    typedef typename scan_of<T>::type A;
    for (int64_t l = tsri_first(); l < g.lines.count; l += tsri_step()) {
        int64_t at[2];
        tsri_walk_at<2>(g.lines, l, at);
        A sum = 0;
        for (int64_t c = 0; c < g.n; c++) {
            sum += tsri_to<A>(x[at[1] + g.begin[1] + c * g.step[1]]);
            y[at[0] + g.begin[0] + c * g.step[0]] = tsri_to<typename scan_of<T>::result>(sum);
        }
    }
}

/* The sum of v over the threads before this one, and with it if INCLUSIVE; *all: over the block. No
 * difference of sums: an infinity reaches the threads behind it only. */
template <bool INCLUSIVE, typename A> static __device__ A scan_block(A v, A *all)
{
    __shared__ A warps[THREADS / TSRI_WARP];
    const int lane = (int)threadIdx.x % TSRI_WARP, warp = (int)threadIdx.x / TSRI_WARP;
#pragma unroll
    for (int d = 1; d < TSRI_WARP; d *= 2) {
        const A before = __shfl_up_sync(0xffffffffu, v, d);
        v += lane >= d ? before : (A)0;
    }
    __syncthreads(); /* warps may still be read, for what was summed before */
    if (lane == TSRI_WARP - 1)
        warps[warp] = v;
    __syncthreads();
    A before = 0, sum = 0;
    for (int w = 0; w < THREADS / TSRI_WARP; w++) {
        before = w == warp ? sum : before;
        sum += warps[w];
    }
    *all = sum;
    if (INCLUSIVE)
        return before + v;
    const A left = __shfl_up_sync(0xffffffffu, v, 1);
    return before + (lane > 0 ? left : (A)0);
}

/* A block a line, THREADS elements at a time. */
template <typename T>
static __global__ void scan_kernel(scan_args g, const T *x, typename scan_of<T>::result *y)
{
    typedef typename scan_of<T>::type A;
    for (int64_t l = blockIdx.x; l < g.lines.count; l += gridDim.x) {
        int64_t at[2];
        tsri_walk_at<2>(g.lines, l, at);
        A carry = 0;
        for (int64_t c0 = 0; c0 < g.n; c0 += THREADS) {
            const int64_t c = c0 + threadIdx.x;
            A v = 0, all;
            if (c < g.n)
                v = tsri_to<A>(x[at[1] + g.begin[1] + c * g.step[1]]);
            v = scan_block<true>(v, &all);
            if (c < g.n)
                y[at[0] + g.begin[0] + c * g.step[0]] =
                    tsri_to<typename scan_of<T>::result>(carry + v);
            carry += all;
        }
    }
}

/* Lines of neighbours, begun and cut at multiples of V: a thread has a pack of V in a turn. */
template <typename T, int V>
static __global__ void scan_packs_kernel(scan_args g, const T *x, typename scan_of<T>::result *y)
{
    typedef typename scan_of<T>::type A;
    typedef typename scan_of<T>::result Y;
    const bool back = g.step[1] < 0;
    for (int64_t l = blockIdx.x; l < g.lines.count; l += gridDim.x) {
        int64_t at[2];
        tsri_walk_at<2>(g.lines, l, at);
        A carry = 0;
        for (int64_t c0 = 0; c0 < g.n; c0 += THREADS * V) {
            const int64_t c = c0 + (int64_t)threadIdx.x * V, place = back ? g.n - V - c : c;
            A v[V] = {}, all;
            if (c < g.n) {
                const tsri_pack<T, V> in = tsri_load_pack<T, V>(x + at[1] + place);
#pragma unroll
                for (int i = 0; i < V; i++)
                    v[i] = (i ? v[i ? i - 1 : 0] : (A)0) +
                           tsri_to<A>(back ? in.v[V - 1 - i] : in.v[i]);
            }
            const A before = carry + scan_block<false>(v[V - 1], &all);
            if (c < g.n) {
                tsri_pack<Y, V> out;
#pragma unroll
                for (int i = 0; i < V; i++)
                    out.v[i] = tsri_to<Y>(before + (back ? v[V - 1 - i] : v[i]));
                tsri_store_pack<Y, V>(y + at[0] + place, out);
            }
            carry += all;
        }
    }
}

/* The elements of a pack: 16 bytes of floats, and 32 of the sums of whole numbers. */
template <typename T> static constexpr int scan_pack()
{
    return std::is_integral<T>::value ? 4 : 16 / (int)sizeof(T);
}

template <typename T> static bool has_packs(const scan_args &g)
{
    bool has =
        (g.step[0] == 1 || g.step[0] == -1) && g.step[0] == g.step[1] && g.n % scan_pack<T>() == 0;
    for (int a = 0; a < g.lines.ndim; a++)
        for (int o = 0; o < 2; o++)
            has = has && g.lines.stride[o][a] % scan_pack<T>() == 0;
    return has;
}

template <typename T> static void launch_scan(const scan *v, const void *x, void *y)
{
    enum { FEW = 1 << 12 };
    typedef typename scan_of<T>::result Y;
    const scan_args &g = v->args;
    const int64_t step = g.step[1] < 0 ? -g.step[1] : g.step[1];
    const bool across = step < g.lines.stride[1][0] || g.lines.count == 1;
    if (g.n >= THREADS && has_packs<T>(g))
        TSRI_LAUNCH((scan_packs_kernel<T, scan_pack<T>()>), tsri_blocks(g.lines.count, 1), THREADS,
                    v->kernel.stream, g, (const T *)x, (Y *)y);
    else if (g.n >= LINES && (across || g.lines.count < FEW))
        TSRI_LAUNCH((scan_kernel<T>), tsri_blocks(g.lines.count, 1), THREADS, v->kernel.stream, g,
                    (const T *)x, (Y *)y);
    else
        TSRI_LAUNCH((scan_lines_kernel<T>), tsri_blocks(g.lines.count, LINES), LINES,
                    v->kernel.stream, g, (const T *)x, (Y *)y);
}

static tsr_status run_scan(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                           void *scratch)
{
    (void)scratch;
    const scan *v = (const scan *)k;
    if (v->args.lines.count == 0 || v->args.n == 0)
        return TSR_OK;
    TSRI_NUMBERS(k->desc.in[0].dtype, launch_scan<T>(v, in[0], out[0]));
    return tsri_cuda_launched(k);
}

tsr_status tsri_plain_cumsum(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    const int axis = d->attrs->cumsum.axis;
    if (y->dtype != sum_dtype(x->dtype))
        return tsri_cuda_decline(d);
    scan *v = (scan *)tsri_cuda_make(mem, d, run_scan, "plain", sizeof *v);
    TSRI_NEED(v);
    const tsri_arg *operands[2] = {y, x};
    tsri_cuda_walk along;
    tsri_axis_walks(2, 2, operands, axis, &v->args.lines, &along);
    v->args.n = y->shape[axis];
    for (int o = 0; o < 2; o++) {
        const int64_t step = operands[o]->stride[axis];
        const bool back = d->attrs->cumsum.reverse && v->args.n > 0;
        v->args.begin[o] = back ? (v->args.n - 1) * step : 0;
        v->args.step[o] = back ? -step : step;
    }
    *out_kernel = &v->kernel.base;
    return TSR_OK;
}
