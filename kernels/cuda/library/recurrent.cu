/* SPDX-License-Identifier: Apache-2.0 */
/* The work between the products of a recurrent layer: a thread has a unit of a sample. */
#include "kernels/cuda/library/recurrent.h"

#include "kernels/cuda/code/recurrent.cuh"

enum { THREADS = 256 };

/* An element of a place that may be missing. */
template <typename A, typename T> static __device__ __forceinline__ A load(const void *p, int64_t i)
{
    return p ? tsri_to<A>(((const T *)p)[i]) : (A)0;
}

template <typename T> static __global__ void step_kernel(tsri_recurrent_step v)
{
    typedef tsri_acc<T> A;
    const int64_t h = v.size.h;
    A *state = (A *)v.state, *cells = (A *)v.cell_state;
    for (int64_t i = tsri_first(); i < v.size.n * h; i += tsri_step()) {
        const int64_t n = i / h, j = i - n * h, row = n * v.size.gates * h + j;
        A x[TSRI_CELL_GATES], s[TSRI_CELL_GATES], gate[TSRI_CELL_GATES], cell = 0;
#pragma unroll
        for (int k = 0; k < TSRI_CELL_GATES; k++)
            if (k < v.size.gates) {
                x[k] = load<A, T>(v.x, row + k * h);
                s[k] = ((const A *)v.products)[row + k * h] + load<A, T>(v.bias, k * h + j);
            }
        if (v.cells)
            cell = cells[i];
        const A y = tsri_cell_step(v.cell, x, s, state[i], &cell, gate);
        if (v.cells) {
            cells[i] = cell;
            ((T *)v.cells)[i] = tsri_to<T>(cell);
        }
#pragma unroll
        for (int k = 0; k < TSRI_CELL_GATES; k++)
            if (k < v.size.saved)
                ((T *)v.gates)[n * v.size.saved * h + k * h + j] = tsri_to<T>(gate[k]);
        state[i] = y;
        ((T *)v.y)[i] = tsri_to<T>(y);
    }
}

template <typename T> static __global__ void back_kernel(tsri_recurrent_back v)
{
    typedef tsri_acc<T> A;
    const int64_t h = v.size.h;
    A *dhs = (A *)v.dh, *dcells = (A *)v.dcell;
    for (int64_t i = tsri_first(); i < v.size.n * h; i += tsri_step()) {
        const int64_t n = i / h, j = i - n * h, row = n * v.size.gates * h + j;
        A gate[TSRI_CELL_GATES], d[TSRI_CELL_GATES];
#pragma unroll
        for (int k = 0; k < TSRI_CELL_GATES; k++)
            if (k < v.size.saved)
                gate[k] = load<A, T>(v.gates, n * v.size.saved * h + k * h + j);
        const A dh = (v.begins ? (A)0 : dhs[i]) + load<A, T>(v.dy, i);
        A dc = (v.begins ? (A)0 : dcells[i]) + load<A, T>(v.dc, i);
        dhs[i] = tsri_cell_back(v.cell, gate, load<A, T>(v.states, i), load<A, T>(v.before, i), dh,
                                &dc, d);
        dcells[i] = dc;
#pragma unroll
        for (int k = 0; k < TSRI_CELL_GATES; k++) {
            if (k >= v.size.gates)
                continue;
            ((T *)v.dx)[row + k * h] = tsri_to<T>(d[k]);
            const A slope = tsri_cell_slope(v.cell, gate, d, k);
            if (v.ds)
                ((T *)v.ds)[row + k * h] = tsri_to<T>(slope);
            if (v.slopes)
                ((A *)v.slopes)[row + k * h] = slope;
        }
    }
}

template <typename From, typename To>
static __global__ void copy_kernel(const From *from, To *to, int64_t count)
{
    for (int64_t i = tsri_first(); i < count; i += tsri_step())
        to[i] = tsri_to<To>(from[i]);
}

void tsri_recurrent_forward(const tsri_recurrent_step *s, cudaStream_t stream)
{
    TSRI_FLOATS(s->dtype, TSRI_LAUNCH((step_kernel<T>), tsri_blocks(s->size.n * s->size.h, THREADS),
                                      THREADS, stream, *s));
}

void tsri_recurrent_backward(const tsri_recurrent_back *s, cudaStream_t stream)
{
    TSRI_FLOATS(s->dtype, TSRI_LAUNCH((back_kernel<T>), tsri_blocks(s->size.n * s->size.h, THREADS),
                                      THREADS, stream, *s));
}

void tsri_recurrent_load(tsr_dtype dtype, const void *from, void *to, int64_t count,
                         cudaStream_t stream)
{
    TSRI_FLOATS(dtype, TSRI_LAUNCH((copy_kernel<T, tsri_acc<T>>), tsri_blocks(count, THREADS),
                                   THREADS, stream, (const T *)from, (tsri_acc<T> *)to, count));
}

void tsri_recurrent_store(tsr_dtype dtype, const void *from, void *to, int64_t count,
                          cudaStream_t stream)
{
    TSRI_FLOATS(dtype, TSRI_LAUNCH((copy_kernel<tsri_acc<T>, T>), tsri_blocks(count, THREADS),
                                   THREADS, stream, (const tsri_acc<T> *)from, (T *)to, count));
}
