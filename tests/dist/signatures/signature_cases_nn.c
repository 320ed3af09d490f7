/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of signature_cases.h with the ops that transformers are made of. */
#include "tests/dist/signatures/signature_cases.h"

#include "kernels/recurrent.h"
#include "src/graph/op.h"

#define D(...) TSR_DIMS(__VA_ARGS__)

static tsr_tensor *spread(sc_graph *s, tsr_dims dims)
{
    return sc_make(s, s->real, dims, SC_SPREAD);
}

static tsr_dims joined(tsr_dims batch, int64_t rows, int64_t cols)
{
    batch.d[batch.ndim++] = rows;
    batch.d[batch.ndim++] = cols;
    return batch;
}

static void products(sc_graph *s, tsr_dims of_a, tsr_dims of_b, int64_t m, int64_t k, int64_t n)
{
    for (int t = 0; t < 4; t++) {
        bool ta = t & 1, tb = t >> 1;
        tsr_tensor *x[2] = {spread(s, ta ? joined(of_a, k, m) : joined(of_a, m, k)),
                            spread(s, tb ? joined(of_b, n, k) : joined(of_b, k, n))};
        sc_grads(s, tsr_matmul_t(x[0], x[1], ta, tb), 2, x);
    }
}

void sc_batch_matmul(sc_graph *s)
{
    products(s, D(5), D(5), 3, 4, 2);
    products(s, D(3, 1), D(2), 3, 2, 5);
    products(s, D(2, 3), TSR_SCALAR, 3, 5, 2);
    products(s, TSR_SCALAR, D(4), 2, 3, 5);
    products(s, D(1), D(0), 2, 3, 2);
    products(s, D(3), D(3), 0, 2, 5);
    products(s, D(3), D(1), 2, 0, 5);
    products(s, D(1), D(1), 4, 1, 1);
}

void sc_gelu(sc_graph *s)
{
    const tsr_dims dims[] = {D(5, 3), D(0, 2), TSR_SCALAR, D(2, 3, 4, 5), D(6, 7), D(31)};
    for (int i = 0; i < 6; i++) {
        tsr_tensor *x = spread(s, dims[i]);
        sc_grads(s, tsr_gelu(x, TSR_GELU_ERF), 1, &x);
        sc_grads(s, tsr_gelu(x, TSR_GELU_TANH), 1, &x);
    }
}

static void norms(sc_graph *s, tsr_dims dims, int axes)
{
    tsr_dims features = {.ndim = axes};
    for (int i = 0; i < axes; i++)
        features.d[i] = dims.d[dims.ndim - axes + i];
    for (int i = 0; i < 4; i++) {
        tsr_tensor *x[3] = {spread(s, dims), i & 1 ? spread(s, features) : NULL,
                            i & 2 ? spread(s, features) : NULL};
        tsr_tensor *y = tsr_layer_norm(x[0], x[1], x[2], TSR_LAYER_NORM_OPTS(.axes = axes));
        tsr_tensor *of[3] = {x[0], x[1] ? x[1] : x[2], x[2]};
        sc_grads(s, y, 1 + (i & 1) + (i >> 1), of);
    }
}

void sc_layer_norm(sc_graph *s)
{
    norms(s, D(5, 7), 1);
    norms(s, D(2, 3, 6), 1);
    norms(s, D(3, 5, 4), 2);
    norms(s, D(7), 1);
    norms(s, D(0, 3), 1);
    norms(s, D(1, 4), 1);
}

void sc_attention(sc_graph *s)
{
    const tsr_dims dims[] = {D(5, 7), D(2, 7, 4), D(0, 3), D(2, 3, 5, 5), D(1, 1)};
    for (int i = 0; i < 5; i++) {
        tsr_tensor *x = spread(s, dims[i]);
        sc_grads(s, tsr_causal_mask(x, 0, -3), 1, &x);
        sc_grads(s, tsr_causal_mask(x, 2, 0), 1, &x);
        sc_grads(s, tsr_causal_mask(x, -2, 5), 1, &x);
    }
    for (int causal = 0; causal < 2; causal++) {
        tsr_tensor *x[3] = {sc_make(s, s->real, D(2, 3, 4, 5), SC_POSITIVE),
                            sc_make(s, s->real, D(2, 3, 6, 5), SC_POSITIVE),
                            spread(s, D(2, 3, 6, 2))};
        tsr_tensor *y =
            tsr_attention(x[0], x[1], x[2], TSR_ATTENTION_OPTS(.causal = causal, .dropout = 0.3));
        sc_grads(s, y, 3, x);
    }
}

static void flash(sc_graph *s, tsr_dims q, tsr_dims k, tsr_dims v, const tsr_dims *mask,
                  bool causal)
{
    tsr_tensor *x[4] = {sc_make(s, s->real, q, SC_POSITIVE), sc_make(s, s->real, k, SC_POSITIVE),
                        spread(s, v), mask ? spread(s, *mask) : NULL};
    tsr_tensor *y = tsr_scaled_dot_product_attention(x[0], x[1], x[2], x[3],
                                                     TSR_ATTENTION_OPTS(.causal = causal));
    sc_grads(s, y, mask ? 4 : 3, x);
}

void sc_flash(sc_graph *s)
{
    const tsr_dims q = D(2, 3, 4, 5), k = D(2, 3, 6, 5), v = D(2, 3, 6, 2);
    const tsr_dims masks[] = {D(2, 3, 4, 6), D(4, 6), D(2, 1, 1, 6), D(1, 3, 1, 6)};
    for (int causal = 0; causal < 2; causal++) {
        flash(s, q, k, v, NULL, causal);
        for (size_t i = 0; i < sizeof masks / sizeof *masks; i++)
            flash(s, q, k, v, &masks[i], causal);
        flash(s, D(1, 1, 5, 3), D(1, 1, 5, 3), D(1, 1, 5, 4), NULL, causal);
    }
}

/* Seven samples; gradients of the states, of an LSTM's cells, and of both. */
void sc_recurrent(sc_graph *s)
{
    for (int cell = 0; cell < TSRI_CELL_COUNT_; cell++)
        for (int reverse = 0; reverse < 2; reverse++) {
            const bool lstm = cell == TSRI_CELL_LSTM, bias = cell == TSRI_CELL_GRU && reverse;
            const int64_t t = 3, n = 7, h = 2, wide = tsri_cell_gates((tsri_cell)cell) * h;
            tsri_recurrent r = {.cell = (tsri_cell)cell,
                                .reverse = reverse,
                                .x = sc_make(s, s->real, D(t, n, wide), SC_INSIDE),
                                .w = sc_make(s, s->real, D(wide, h), SC_INSIDE),
                                .b = bias ? sc_make(s, s->real, D(wide), SC_INSIDE) : NULL,
                                .h0 = sc_make(s, s->real, D(n, h), SC_INSIDE),
                                .c0 = lstm ? sc_make(s, s->real, D(n, h), SC_INSIDE) : NULL};
            tsr_tensor *cells, *y = tsri_make_recurrent(&r, &cells, (tsri_loc){__FILE__, __LINE__});
            tsr_tensor *x[4] = {r.x, r.w, r.h0, lstm ? r.c0 : r.b};
            if (!lstm || !reverse)
                sc_grads(s, y, 3 + (lstm || bias), x);
            if (lstm)
                sc_grads(s, cells, 4, x);
            if (lstm && reverse)
                sc_grads(s, tsr_mul(y, cells), 4, x);
        }
}
