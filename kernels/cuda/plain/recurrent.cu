/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurrent layers and their gradients, of operands with any strides. A block has a sample and
 * makes all its steps, as samples do not see each other: forward a warp makes a unit's products
 * with the state before, backward a thread those of a unit with the slopes of all gates. The
 * states between steps lie in scratch, in the type of sums. Loops over gates have a constant number
 * of turns, so that what a gate has stays in registers.
 */
#include "kernels/cuda/code/recurrent.cuh"

enum { THREADS = 256, OPERANDS = 7, RESULTS = 4 };

/* Steps from one time, sample (or row of weights) and element to the next. */
typedef struct layout {
    int64_t t, n, j;
} layout;

typedef struct shape {
    tsri_recurrent_sizes size;
    tsri_recurrent_roles role;
    tsri_cell cell;
    bool reverse;
    layout in[OPERANDS], out[RESULTS];
} shape;

typedef struct recurrent {
    tsri_cuda_kernel kernel;
    shape of;
} recurrent;

typedef struct buffers {
    const void *in[OPERANDS];
    void *out[RESULTS];
    void *scratch;
} buffers;

/* Element j of sample n at time t of operand i; of a matrix t is 0. */
template <typename A, typename T>
static __device__ __forceinline__ A load(const shape &v, const buffers &b, int i, int64_t t,
                                         int64_t n, int64_t j)
{
    const layout &l = v.in[i];
    return tsri_to<A>(((const T *)b.in[i])[t * l.t + n * l.n + j * l.j]);
}

template <typename T, typename A>
static __device__ __forceinline__ void store(const shape &v, const buffers &b, int i, int64_t t,
                                             int64_t n, int64_t j, A x)
{
    const layout &l = v.out[i];
    ((T *)b.out[i])[t * l.t + n * l.n + j * l.j] = tsri_to<T>(x);
}

static __device__ __forceinline__ int64_t place(const shape &v, int64_t step)
{
    return v.reverse ? v.size.t - 1 - step : step;
}

/* Unit j of a step at time t, from the state's part s of its gates: returns its state. */
template <typename T, typename A>
static __device__ A step_unit(const shape &v, const buffers &b, int64_t t, int64_t n, int64_t j,
                              const A *s, A before, A *cell)
{
    const int64_t h = v.size.h;
    A x[TSRI_CELL_GATES], gate[TSRI_CELL_GATES];
#pragma unroll
    for (int i = 0; i < TSRI_CELL_GATES; i++)
        if (i < v.size.gates)
            x[i] = load<A, T>(v, b, v.role.x, t, n, i * h + j);
    const A y = tsri_cell_step(v.cell, x, s, before, cell, gate);
    if (v.role.cells >= 0)
        store<T>(v, b, v.role.cells, t, n, j, *cell);
#pragma unroll
    for (int i = 0; i < TSRI_CELL_GATES; i++)
        if (i < v.size.saved)
            store<T>(v, b, v.role.gates, t, n, i * h + j, gate[i]);
    store<T>(v, b, v.role.y, t, n, j, y);
    return y;
}

/* scratch[n][3][h]: the states before and behind a step, and the cells. */
template <typename T> static __global__ void forward(shape v, buffers b)
{
    typedef tsri_acc<T> A;
    const int64_t h = v.size.h;
    const int lane = tsri_lane<TSRI_WARP>(), warp = threadIdx.x / TSRI_WARP;
    for (int64_t n = blockIdx.x; n < v.size.n; n += gridDim.x) {
        A *before = (A *)b.scratch + n * 3 * h, *behind = before + h, *cells = behind + h;
        for (int64_t j = threadIdx.x; j < h; j += THREADS) {
            before[j] = load<A, T>(v, b, v.role.h0, 0, n, j);
            if (v.role.c0 >= 0)
                cells[j] = load<A, T>(v, b, v.role.c0, 0, n, j);
        }
        __syncthreads();
        for (int64_t step = 0; step < v.size.t; step++) {
            for (int64_t j = warp; j < h; j += THREADS / TSRI_WARP) {
                A s[TSRI_CELL_GATES] = {};
                for (int64_t k = lane; k < h; k += TSRI_WARP)
#pragma unroll
                    for (int i = 0; i < TSRI_CELL_GATES; i++)
                        if (i < v.size.gates)
                            s[i] += load<A, T>(v, b, v.role.w, 0, i * h + j, k) * before[k];
#pragma unroll
                for (int i = 0; i < TSRI_CELL_GATES; i++) {
                    s[i] = tsri_warp_all<tsri_sum_fn>(s[i]);
                    if (i < v.size.gates && v.role.b >= 0)
                        s[i] += load<A, T>(v, b, v.role.b, 0, 0, i * h + j);
                }
                if (lane == 0)
                    behind[j] = step_unit<T>(v, b, place(v, step), n, j, s, before[j], &cells[j]);
            }
            __syncthreads();
            A *swap = before;
            before = behind;
            behind = swap;
        }
    }
}

/* The gradient of unit j of a step at time t: writes its slopes to s, `h` apart, and what of dh and
 * dc the step before gets besides products. */
template <typename T, typename A>
static __device__ void step_unit_back(const shape &v, const buffers &b, int64_t step, int64_t n,
                                      int64_t j, A *dh_at, A *dc_at, A *s)
{
    const int64_t h = v.size.h, t = place(v, step);
    const A y = load<A, T>(v, b, v.role.states, t, n, j);
    const A dh = *dh_at + load<A, T>(v, b, v.role.dy, t, n, j);
    A gate[TSRI_CELL_GATES], d[TSRI_CELL_GATES], before = 0;
#pragma unroll
    for (int i = 0; i < TSRI_CELL_GATES; i++)
        if (i < v.size.saved)
            gate[i] = load<A, T>(v, b, v.role.gates, t, n, i * h + j);
    if (v.role.first >= 0)
        before = step ? load<A, T>(v, b, v.role.states, place(v, step - 1), n, j)
                      : load<A, T>(v, b, v.role.first, 0, n, j);
    if (v.role.dc >= 0)
        *dc_at += load<A, T>(v, b, v.role.dc, t, n, j);
    *dh_at = tsri_cell_back(v.cell, gate, y, before, dh, dc_at, d);
#pragma unroll
    for (int i = 0; i < TSRI_CELL_GATES; i++) {
        if (i >= v.size.gates)
            continue;
        s[i * h] = tsri_cell_slope(v.cell, gate, d, i);
        store<T>(v, b, v.role.dx, t, n, i * h + j, d[i]);
        if (v.role.ds >= 0)
            store<T>(v, b, v.role.ds, t, n, i * h + j, s[i * h]);
    }
}

/* scratch[n][2 + gates][h]: dh, dc, the slopes of a step. */
template <typename T> static __global__ void backward(shape v, buffers b)
{
    typedef tsri_acc<T> A;
    const int64_t h = v.size.h, rows = v.size.gates * h;
    for (int64_t n = blockIdx.x; n < v.size.n; n += gridDim.x) {
        A *dh = (A *)b.scratch + n * (2 * h + rows), *dc = dh + h, *s = dc + h;
        for (int64_t j = threadIdx.x; j < 2 * h; j += THREADS)
            dh[j] = 0; /* and dc */
        __syncthreads();
        for (int64_t step = v.size.t - 1; step >= 0; step--) {
            for (int64_t j = threadIdx.x; j < h; j += THREADS)
                step_unit_back<T>(v, b, step, n, j, &dh[j], &dc[j], &s[j]);
            __syncthreads();
            for (int64_t j = threadIdx.x; j < h; j += THREADS) {
                A sum = 0;
                for (int64_t r = 0; r < rows; r++)
                    sum += s[r] * load<A, T>(v, b, v.role.w, 0, r, j);
                dh[j] += sum;
            }
            __syncthreads();
        }
        for (int64_t j = threadIdx.x; j < h; j += THREADS) {
            store<T>(v, b, v.role.dh0, 0, n, j, dh[j]);
            if (v.role.dc0 >= 0)
                store<T>(v, b, v.role.dc0, 0, n, j, dc[j]);
        }
    }
}

static tsr_status run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const recurrent *r = (const recurrent *)k;
    const bool back = k->desc.op == TSRI_OP_RECURRENT_DX;
    if (!r->of.size.n)
        return TSR_OK;
    buffers b = {};
    for (int i = 0; i < k->desc.nin; i++)
        b.in[i] = in[i];
    for (int i = 0; i < k->desc.nout; i++)
        b.out[i] = out[i];
    b.scratch = scratch;
    const unsigned blocks = tsri_blocks(r->of.size.n, 1);
    TSRI_FLOATS(k->desc.in[0].dtype, {
        if (back)
            TSRI_LAUNCH((backward<T>), blocks, THREADS, k->stream, r->of, b);
        else
            TSRI_LAUNCH((forward<T>), blocks, THREADS, k->stream, r->of, b);
    });
    return tsri_cuda_launched(k);
}

static layout layout_of(const tsri_arg *a)
{
    layout l = {};
    l.j = a->stride[a->ndim - 1];
    l.n = a->ndim > 1 ? a->stride[a->ndim - 2] : 0;
    l.t = a->ndim > 2 ? a->stride[0] : 0;
    return l;
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    for (int i = 0; i < d->nin + d->nout; i++) {
        const tsr_dtype type = i < d->nin ? d->in[i].dtype : d->out[i - d->nin].dtype;
        if (!tsri_cuda_is_float(type) || type != d->in[0].dtype)
            return tsri_cuda_decline(d);
    }
    recurrent *r = (recurrent *)tsri_cuda_make(mem, d, run, "plain", sizeof *r);
    TSRI_NEED(r);
    shape *of = &r->of;
    of->cell = (tsri_cell)d->attrs->recurrent.cell;
    of->reverse = d->attrs->recurrent.reverse;
    of->size = tsri_recurrent_sizes_of(d);
    of->role = tsri_recurrent_roles_of(d->op, d->attrs);
    for (int i = 0; i < d->nin; i++)
        of->in[i] = layout_of(&d->in[i]);
    for (int i = 0; i < d->nout; i++)
        of->out[i] = layout_of(&d->out[i]);
    const int64_t rows = d->op == TSRI_OP_RECURRENT ? 3 : 2 + of->size.gates;
    const size_t number = d->in[0].dtype == TSR_F64 ? sizeof(double) : sizeof(float);
    r->kernel.base.scratch_bytes = (size_t)(of->size.n * rows * of->size.h) * number;
    *out_kernel = &r->kernel.base;
    return TSR_OK;
}

tsr_status tsri_plain_recurrent(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return create(mem, d, out_kernel);
}

tsr_status tsri_plain_recurrent_dx(tsri_mem *mem, const tsri_kernel_desc *d,
                                   tsri_kernel **out_kernel)
{
    return create(mem, d, out_kernel);
}
