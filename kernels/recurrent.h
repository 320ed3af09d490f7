/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurrent layers: what the operands and results of RECURRENT and RECURRENT_DX are. With s a
 * step's products of the state before, h, with w (of a GRU plus b), a step is
 *
 *   LSTM  i, o, f = sigmoid, g = tanh of x + s; c' = f c + i g; h' = o tanh(c')
 *   GRU   r, z = sigmoid(x + s); n = tanh(x + r s); h' = n + z (h - n)
 *   else  h' = tanh or relu of x + s
 *
 * Saved gates: i, f, g, o; r, z, n and n's part of s.
 */
#ifndef TESSERA_KERNELS_RECURRENT_H
#define TESSERA_KERNELS_RECURRENT_H

#include <string.h>

#include "kernels/kernels.h"

enum { TSRI_CELL_GATES = 4, TSRI_RECURRENT_DX_INPUTS = 6 };

/* The sizes of one direction of a layer: `gates` parts of x, `saved` gates (0: none). */
typedef struct tsri_recurrent_sizes {
    int64_t t, n, h;
    int gates, saved;
} tsri_recurrent_sizes;

/* Places among the operands and the results; -1: there is none. first: of the gradient, the state
 * before the first step that it needs; states: y, or an LSTM's cells. */
typedef struct tsri_recurrent_roles {
    int x, w, b, h0, c0;
    int y, cells, gates;
    int first, states, dy, dc;
    int dx, dh0, dc0, ds;
} tsri_recurrent_roles;

static inline int tsri_cell_gates(tsri_cell cell)
{
    return cell == TSRI_CELL_LSTM ? 4 : cell == TSRI_CELL_GRU ? 3 : 1;
}

/* Whether a cell's gradient needs its gates, and not the states alone. */
static inline bool tsri_cell_saves(tsri_cell cell)
{
    return cell == TSRI_CELL_LSTM || cell == TSRI_CELL_GRU;
}

static inline tsri_recurrent_roles tsri_recurrent_roles_of(tsri_op_kind op, const tsri_attrs *attrs)
{
    const tsri_cell cell = (tsri_cell)attrs->recurrent.cell;
    const bool lstm = cell == TSRI_CELL_LSTM, saves = tsri_cell_saves(cell);
    tsri_recurrent_roles r;
    memset(&r, -1, sizeof r);
    if (op == TSRI_OP_RECURRENT) {
        const int bias = attrs->recurrent.has_bias;
        r.x = 0;
        r.w = 1;
        r.b = bias ? 2 : -1;
        r.h0 = 2 + bias;
        r.c0 = lstm ? 3 + bias : -1;
        r.y = 0;
        r.cells = lstm ? 1 : -1;
        r.gates = saves ? 1 + lstm : -1;
        return r;
    }
    r.w = 0;
    r.first = saves ? 1 : -1;
    r.states = 1 + saves;
    r.gates = saves ? 3 : -1;
    r.dy = 2 + 2 * saves;
    r.dc = attrs->recurrent.has_dc ? 3 + 2 * saves : -1;
    r.dx = 0;
    r.dh0 = 1;
    r.dc0 = lstm ? 2 : -1;
    r.ds = cell == TSRI_CELL_GRU ? 2 : -1;
    return r;
}

static inline tsri_recurrent_sizes tsri_recurrent_sizes_of(const tsri_kernel_desc *d)
{
    const tsri_cell cell = (tsri_cell)d->attrs->recurrent.cell;
    const tsri_arg *x = d->op == TSRI_OP_RECURRENT ? &d->in[0] : &d->out[0];
    tsri_recurrent_sizes size;
    size.gates = tsri_cell_gates(cell);
    size.saved = tsri_cell_saves(cell) ? TSRI_CELL_GATES : 0;
    size.t = x->shape[0];
    size.n = x->shape[1];
    size.h = x->shape[2] / size.gates;
    return size;
}

/* The place in time of step i, in the order in which steps are made. */
static inline int64_t tsri_recurrent_at(const tsri_attrs *attrs, int64_t t, int64_t i)
{
    return attrs->recurrent.reverse ? t - 1 - i : i;
}

#endif
