/* SPDX-License-Identifier: Apache-2.0 */
/* A unit's step of a recurrent layer, and its gradient; formulas: kernels/recurrent.h. Arrays of
 * gates have TSRI_CELL_GATES elements, and indices that are constants, so that they stay in
 * registers. */
#ifndef TESSERA_KERNELS_CUDA_RECURRENT_H
#define TESSERA_KERNELS_CUDA_RECURRENT_H

#include "kernels/cuda/reduce.cuh"
#include "kernels/recurrent.h"

template <typename A> static __device__ __forceinline__ A tsri_sigmoid(A x)
{
    return (A)1 / ((A)1 + tsri_exp(-x));
}

/* Return the slope s of a tanh, and of a sigmoid, y, by its operand. */
template <typename A> static __device__ __forceinline__ A tsri_tanh_back(A y, A s)
{
    return s * ((A)1 - y * y);
}

template <typename A> static __device__ __forceinline__ A tsri_sigmoid_back(A y, A s)
{
    return s * y * ((A)1 - y);
}

/* Returns the state after a step, from x and the state's products s; before: the state before.
 * Writes the gates that are saved, and an LSTM's cell. */
template <typename A>
static __device__ __forceinline__ A tsri_cell_step(tsri_cell kind, const A *x, const A *s, A before,
                                                   A *cell, A *gate)
{
    if (kind == TSRI_CELL_LSTM) {
        gate[0] = tsri_sigmoid(x[0] + s[0]);
        gate[1] = tsri_sigmoid(x[1] + s[1]);
        gate[2] = (A)tanh(x[2] + s[2]);
        gate[3] = tsri_sigmoid(x[3] + s[3]);
        *cell = gate[1] * *cell + gate[0] * gate[2];
        return gate[3] * (A)tanh(*cell);
    }
    if (kind == TSRI_CELL_GRU) {
        gate[0] = tsri_sigmoid(x[0] + s[0]);
        gate[1] = tsri_sigmoid(x[1] + s[1]);
        gate[2] = (A)tanh(x[2] + gate[0] * s[2]);
        gate[3] = s[2];
        return gate[2] + gate[1] * (before - gate[2]);
    }
    const A y = x[0] + s[0];
    return kind == TSRI_CELL_TANH ? (A)tanh(y) : y <= 0 ? (A)0 : y;
}

/* The gradient of a step. gate: those saved; y: the state after it, or an LSTM's cell; before: the
 * state before it, or the cell; dh: the gradient of the state. *dc: on entry the gradient of the
 * cell from later steps and others, on return that of the cell before. Writes the slopes d of x,
 * and returns the gradient of the state before, but for products. */
template <typename A>
static __device__ __forceinline__ A tsri_cell_back(tsri_cell kind, const A *gate, A y, A before,
                                                   A dh, A *dc, A *d)
{
    if (kind == TSRI_CELL_LSTM) {
        const A e = (A)tanh(y), sum = *dc + tsri_tanh_back(e, dh * gate[3]);
        d[0] = tsri_sigmoid_back(gate[0], sum * gate[2]);
        d[1] = tsri_sigmoid_back(gate[1], sum * before);
        d[2] = tsri_tanh_back(gate[2], sum * gate[0]);
        d[3] = tsri_sigmoid_back(gate[3], dh * e);
        *dc = sum * gate[1];
        return 0;
    }
    if (kind == TSRI_CELL_GRU) {
        d[2] = tsri_tanh_back(gate[2], dh * ((A)1 - gate[1]));
        d[0] = tsri_sigmoid_back(gate[0], d[2] * gate[3]);
        d[1] = tsri_sigmoid_back(gate[1], dh * (before - gate[2]));
        return dh * gate[1];
    }
    d[0] = kind == TSRI_CELL_TANH ? tsri_tanh_back(y, dh) : y > 0 ? dh : (A)0;
    return 0;
}

/* The slope of gate i's products: that of x, but for a GRU's n, whose products r takes in. */
template <typename A>
static __device__ __forceinline__ A tsri_cell_slope(tsri_cell kind, const A *gate, const A *d,
                                                    int i)
{
    return kind == TSRI_CELL_GRU && i == 2 ? d[2] * gate[0] : d[i];
}

#endif
