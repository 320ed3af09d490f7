/* SPDX-License-Identifier: Apache-2.0 */
/* Formulas on row-major doubles, as oracle.c's, of what transformers are made of. */
#include "cases.h"

#include <math.h>
#include <string.h>

/* Where pair i of the batch of c begins in x. */
static int64_t pair_of(const tsr_dims *c, const tsr_dims *x, int64_t i)
{
    int64_t at = 0, step = x->d[x->ndim - 1] * x->d[x->ndim - 2];
    for (int a = 3; a <= c->ndim; a++) {
        int64_t n = i % c->d[c->ndim - a];
        i /= c->d[c->ndim - a];
        if (a > x->ndim)
            break;
        at += (x->d[x->ndim - a] == 1 ? 0 : n) * step;
        step *= x->d[x->ndim - a];
    }
    return at;
}

static void batch_matmul(const kernel_case *k, double *const *in, double *c)
{
    const tsr_dims *d = &k->out[0].dims, *a = &k->in[0].dims;
    int64_t m = d->d[d->ndim - 2], n = d->d[d->ndim - 1];
    bool ta = k->attrs.matmul.ta, tb = k->attrs.matmul.tb;
    int64_t depth = a->d[a->ndim - 1 - ta];
    for (int64_t i = 0; i < kc_count(&k->out[0]); i++) {
        const double *x = in[0] + pair_of(d, a, i / (m * n));
        const double *y = in[1] + pair_of(d, &k->in[1].dims, i / (m * n));
        int64_t r = i / n % m, q = i % n;
        c[i] = 0;
        for (int64_t l = 0; l < depth; l++)
            c[i] += x[ta ? l * m + r : r * depth + l] * y[tb ? q * depth + l : l * n + q];
    }
}

/* Where the element of an operand is that broadcasts to element i of x. */
static int64_t spread_to(const tsr_dims *operand, const tsr_dims *x, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int a = x->ndim - 1, o = operand->ndim - 1; o >= 0;
         i /= x->d[a--], step *= operand->d[o--])
        at += i % x->d[a] % operand->d[o] * step;
    return at;
}

/* All of layer norm's parts, forward and backward, element by element. */
static void layer_norm(const kernel_case *k, double *const *in, double *const *out)
{
    const tsr_dims *x = &k->in[0].dims;
    const bool back = k->op == TSRI_OP_LN_BWD_STATS || k->op == TSRI_OP_LN_BWD_APPLY;
    const bool params = k->op == TSRI_OP_LN_PARAM_GRAD, sums = !back && !params && k->nin == 1;
    const bool scaled = k->attrs.ln.has_gamma && !params && !sums;
    const double *gamma = scaled ? in[2] : NULL, *dy = params ? in[2]
                                                       : back ? in[2 + scaled]
                                                              : NULL;
    const double *beta = !back && !params && !sums && k->attrs.ln.has_beta ? in[k->nin - 1] : NULL;
    int64_t n = 1;
    for (int i = x->ndim - k->attrs.ln.axes; i < x->ndim; i++)
        n *= x->d[i];
    for (int i = 0; i < k->nout; i++)
        memset(out[i], 0, (size_t)kc_count(&k->out[i]) * sizeof(double));
    for (int64_t i = 0; i < kc_count(&k->in[0]); i++) {
        int64_t r = i / n, f = i % n;
        if (sums) {
            out[0][2 * r] += in[0][i];
            out[0][2 * r + 1] += pow(in[0][i], 2);
            continue;
        }
        double count = (double)k->attrs.ln.count, mean = in[1][2 * r] / count;
        double sigma = sqrt(in[1][2 * r + 1] / count - mean * mean + k->attrs.ln.eps);
        double xhat = (in[0][i] - mean) / sigma;
        double scale = gamma ? gamma[spread_to(&k->in[2].dims, x, i)] : 1,
               g = dy ? dy[i] * scale : 0;
        if (params) {
            out[0][f] += g * xhat;
            out[1][f] += g;
        } else if (k->op == TSRI_OP_LN_BWD_STATS) {
            out[0][2 * r] += g;
            out[0][2 * r + 1] += g * xhat;
        } else if (back) {
            const double *s = in[k->nin - 1] + 2 * r;
            out[0][i] = (g - s[0] / count - xhat * s[1] / count) / sigma;
        } else {
            out[0][i] = xhat * scale;
            out[0][i] += beta ? beta[spread_to(&k->in[k->nin - 1].dims, x, i)] : 0;
        }
    }
}

/* In a softmax's operand o, the element of its axis of size 1 that stands for element i of all. */
static int64_t one_of(const kernel_case *k, const tsr_dims *all, int64_t i)
{
    int64_t inner = 1, n = all->d[k->attrs.softmax.axis];
    for (int j = k->attrs.softmax.axis + 1; j < all->ndim; j++)
        inner *= all->d[j];
    return i / (n * inner) * inner + i % inner;
}

static void softmax_part(const kernel_case *k, double *const *in, double *y)
{
    const tsr_dims *all = &k->in[0].dims;
    memset(y, 0, (size_t)kc_count(&k->out[0]) * sizeof *y);
    for (int64_t i = 0; i < kc_count(&k->in[0]); i++) {
        int64_t one = one_of(k, all, i);
        if (k->op == TSRI_OP_SOFTMAX_SUM)
            y[one] += exp(in[0][i]) / exp(in[1][one]);
        else if (k->op == TSRI_OP_SOFTMAX_DOT)
            y[one] += in[0][i] * in[1][i];
        else if (k->op == TSRI_OP_SOFTMAX_FINISH)
            y[i] = k->attrs.softmax.log ? in[0][i] - in[1][one] - log(in[2][one])
                                        : exp(in[0][i]) / exp(in[1][one]) / in[2][one];
        else
            y[i] = k->attrs.softmax.log ? in[1][i] - exp(in[0][i]) * in[2][one]
                                        : in[0][i] * in[1][i] - in[0][i] * in[2][one];
    }
}

/* Class j of the part is class offset + j of all. */
static void cross_entropy_part(const kernel_case *k, double *const *in, double *const *out)
{
    const double s = k->attrs.ce.smoothing, all = (double)k->attrs.ce.classes;
    const int64_t n = k->in[0].dims.d[1], first = k->in[0].offset[1];
    for (int64_t i = 0; i < k->in[0].dims.d[0]; i++) {
        const bool finish = k->op == TSRI_OP_CE_FINISH;
        const double label = in[finish ? 2 : 1][i];
        const bool out_of_count =
            k->attrs.ce.has_ignore && (int64_t)label == k->attrs.ce.ignore_index;
        if (finish) {
            const double *t = in[0] + 3 * i;
            out[0][i] = log(t[0]) - (1 - s) * t[1] - s * t[2] / all;
            out[0][i] *= !out_of_count;
            out[1][i] = !out_of_count;
            out[2][2 * i] = in[1][i];
            out[2][2 * i + 1] = log(t[0]);
            continue;
        }
        for (int j = 0; j < 3 && k->op == TSRI_OP_CE_TERMS; j++)
            out[0][3 * i + j] = 0;
        for (int64_t j = 0; j < n; j++) {
            const double x = in[0][i * n + j], hit = label == (double)(first + j) && !out_of_count;
            if (k->op == TSRI_OP_CE_DX) {
                double p = exp(x) / exp(in[2][2 * i] + in[2][2 * i + 1]) - (1 - s) * hit - s / all;
                out[0][i * n + j] = out_of_count ? 0 : in[3][i] * p;
                continue;
            }
            out[0][3 * i] += exp(x - in[2][i]);
            out[0][3 * i + 1] += hit * (x - in[2][i]);
            out[0][3 * i + 2] += s > 0 ? x - in[2][i] : 0;
        }
    }
}

static void causal_mask(const kernel_case *k, const double *x, double *y)
{
    const kc_arg *a = &k->in[0];
    const int64_t *d = a->dims.d + a->dims.ndim - 2, *off = a->offset + a->dims.ndim - 2;
    for (int64_t i = 0; i < kc_count(a); i++) {
        int64_t row = i / d[1] % d[0] + off[0], col = i % d[1] + off[1];
        y[i] = col <= row + k->attrs.mask_above.diagonal ? x[i] : k->attrs.mask_above.value;
    }
}

/* The score of query i and key j of a head; minus infinity where it does not see it. */
static double score(const kernel_case *k, double *const *in, int64_t head, int64_t i, int64_t j)
{
    const int64_t *q = k->in[0].dims.d, *t = k->in[1].dims.d, *m = k->in[3].dims.d;
    if (k->attrs.attention.causal && j + k->in[1].offset[2] > i + k->in[0].offset[2])
        return -INFINITY;
    double sum = 0;
    for (int64_t c = 0; c < q[3]; c++)
        sum += in[0][(head * q[2] + i) * q[3] + c] * in[1][(head * t[2] + j) * q[3] + c];
    sum *= k->attrs.attention.scale;
    if (k->attrs.attention.has_mask) {
        const int64_t at[4] = {head / q[1], head % q[1], i, j};
        int64_t off = 0;
        for (int a = 0; a < 4; a++)
            off = off * m[a] + at[a] % m[a];
        sum += in[3][off];
    }
    return sum;
}

/* The weights are those of all keys, and backward e^(score - lse). */
static void attention(const kernel_case *k, double *const *in, double *const *out)
{
    const bool back = k->op == TSRI_OP_FLASH_ATTENTION_DX;
    const int64_t *q = k->in[0].dims.d, *v = k->in[2].dims.d, s = q[2], d = q[3], t = v[2],
                  e = v[3];
    const double *y = in[k->nin - 3], *lse = in[k->nin - 2], *dy = in[k->nin - 1];
    for (int i = 0; i < k->nout; i++)
        memset(out[i], 0, (size_t)kc_count(&k->out[i]) * sizeof(double));
    for (int64_t r = 0; r < q[0] * q[1] * s; r++) {
        const int64_t head = r / s;
        double all = 0;
        for (int64_t j = 0; j < t; j++)
            all += exp(score(k, in, head, r % s, j));
        if (!back)
            out[1][r] = log(all);
        for (int64_t j = 0; j < t; j++) {
            const double x = score(k, in, head, r % s, j);
            const double weight = back ? exp(x - lse[r]) : exp(x) / all;
            double slope = 0;
            for (int64_t c = 0; c < e; c++) {
                const double value = in[2][(head * t + j) * e + c];
                if (!back) {
                    out[0][r * e + c] += weight * value;
                    continue;
                }
                out[2][(head * t + j) * e + c] += weight * dy[r * e + c];
                slope += k->attrs.attention.scale * weight * dy[r * e + c] * (value - y[r * e + c]);
            }
            for (int64_t c = 0; back && c < d; c++) {
                out[0][r * d + c] += slope * in[1][(head * t + j) * d + c];
                out[1][(head * t + j) * d + c] += slope * in[0][r * d + c];
            }
        }
    }
}

/* --- recurrent layers ------------------------------------------------------------------------- */

static double sigmoid(double x)
{
    return 0.5 * (1 + tanh(x / 2));
}

/* A case's sizes, and element (t, n, j) of gate i in what has `gates` of them. */
typedef struct layer {
    int64_t t, n, h;
    int cell;
    bool reverse;
} layer;

static int64_t gate_at(const layer *l, int64_t t, int64_t n, int gates, int i, int64_t j)
{
    return ((t * l->n + n) * gates + i) * l->h + j;
}

/* The place of the step before that of t in what has all of them; -1: there is none. */
static int64_t before(const layer *l, int64_t t)
{
    return l->reverse ? (t + 1 < l->t ? t + 1 : -1) : t - 1;
}

static void recurrent(const layer *l, bool bias, double *const *in, double *const *out)
{
    const int g = l->cell == TSRI_CELL_LSTM ? 4 : l->cell == TSRI_CELL_GRU ? 3 : 1;
    const double *w = in[1], *b = bias ? in[2] : NULL, *h0 = in[2 + bias];
    const double *c0 = l->cell == TSRI_CELL_LSTM ? in[3 + bias] : NULL;
    for (int64_t step = 0; step < l->t; step++)
        for (int64_t k = 0; k < l->n * l->h; k++) {
            const int64_t t = l->reverse ? l->t - 1 - step : step, n = k / l->h, j = k % l->h;
            const int64_t last = before(l, t), at = gate_at(l, t, n, 1, 0, j);
            const double *h = last < 0 ? h0 + n * l->h : out[0] + gate_at(l, last, n, 1, 0, 0);
            double x[4], s[4], *save = NULL;
            for (int i = 0; i < g; i++) {
                x[i] = in[0][gate_at(l, t, n, g, i, j)];
                s[i] = b ? b[i * l->h + j] : 0;
                for (int64_t q = 0; q < l->h; q++)
                    s[i] += h[q] * w[(i * l->h + j) * l->h + q];
            }
            if (g > 1)
                save = out[g == 4 ? 2 : 1] + gate_at(l, t, n, 4, 0, j);
            if (g == 4) {
                const double c = last < 0 ? c0[k] : out[1][gate_at(l, last, n, 1, 0, j)];
                save[0] = sigmoid(x[0] + s[0]);
                save[l->h] = sigmoid(x[1] + s[1]);
                save[2 * l->h] = tanh(x[2] + s[2]);
                save[3 * l->h] = sigmoid(x[3] + s[3]);
                out[1][at] = save[l->h] * c + save[0] * save[2 * l->h];
                out[0][at] = save[3 * l->h] * tanh(out[1][at]);
            } else if (g == 3) {
                save[0] = sigmoid(x[0] + s[0]);
                save[l->h] = sigmoid(x[1] + s[1]);
                save[2 * l->h] = tanh(x[2] + save[0] * s[2]);
                save[3 * l->h] = s[2];
                out[0][at] = (1 - save[l->h]) * save[2 * l->h] + save[l->h] * h[j];
            } else {
                out[0][at] = l->cell == TSRI_CELL_RELU ? fmax(0, x[0] + s[0]) : tanh(x[0] + s[0]);
            }
        }
}

/* Takes a unit's gradients dh and dc back through its step. The gradients of its gates go to d[4],
 * with respect to their inputs from x, and to s[4], with respect to those from the state.
 * *kept is the part of dh that reaches the state before past the products. */
static void unit_back(int cell, const double *gate, double first, double state, double dh,
                      double *dc, double d[4], double s[4], double *kept)
{
    *kept = 0;
    if (cell == TSRI_CELL_LSTM) {
        const double e = tanh(state);
        *dc += dh * gate[3] * (1 - e * e);
        d[0] = *dc * gate[2] * (gate[0] - gate[0] * gate[0]);
        d[1] = *dc * first * (gate[1] - gate[1] * gate[1]);
        d[2] = *dc * gate[0] * (1 - gate[2] * gate[2]);
        d[3] = dh * e * (gate[3] - gate[3] * gate[3]);
        *dc *= gate[1];
    } else if (cell == TSRI_CELL_GRU) {
        d[2] = dh * (1 - gate[1]) * (1 - gate[2] * gate[2]);
        d[1] = dh * (first - gate[2]) * (gate[1] - gate[1] * gate[1]);
        d[0] = d[2] * gate[3] * (gate[0] - gate[0] * gate[0]);
        *kept = dh * gate[1];
    } else {
        d[0] = cell == TSRI_CELL_RELU ? (state > 0) * dh : (1 - state * state) * dh;
    }
    for (int i = 0; i < 4; i++)
        s[i] = d[i] * (cell == TSRI_CELL_GRU && i == 2 ? gate[0] : 1);
}

static void recurrent_dx(const layer *l, bool has_dc, double *const *in, double *const *out)
{
    const int g = l->cell == TSRI_CELL_LSTM ? 4 : l->cell == TSRI_CELL_GRU ? 3 : 1, saves = g > 1;
    const double *first = in[1], *states = in[1 + saves], *gates = saves ? in[3] : NULL;
    const double *dy = in[2 + 2 * saves], *dcells = has_dc ? in[3 + 2 * saves] : NULL;
    double *dh0 = out[1], *dc0 = g == 4 ? out[2] : NULL;
    memset(dh0, 0, (size_t)(l->n * l->h) * sizeof *dh0);
    if (dc0)
        memset(dc0, 0, (size_t)(l->n * l->h) * sizeof *dc0);
    for (int64_t k = 0; k < l->t * l->n; k++) {
        const int64_t step = k / l->n, n = k % l->n, t = l->reverse ? step : l->t - 1 - step;
        double *dh = dh0 + n * l->h, product[512] = {0};
        for (int64_t j = 0; j < l->h; j++) {
            const int64_t at = gate_at(l, t, n, 1, 0, j), last = before(l, t);
            double gate[4] = {0}, d[4] = {0}, s[4], none = 0,
                   *dc = dc0 ? dc0 + n * l->h + j : &none;
            for (int i = 0; i < 4 && saves; i++)
                gate[i] = gates[gate_at(l, t, n, 4, i, j)];
            *dc += dcells ? dcells[at] : 0;
            unit_back(l->cell, gate,
                      !saves     ? 0
                      : last < 0 ? first[n * l->h + j]
                                 : states[gate_at(l, last, n, 1, 0, j)],
                      states[at], dh[j] + dy[at], dc, d, s, &dh[j]);
            for (int i = 0; i < g; i++) {
                out[0][gate_at(l, t, n, g, i, j)] = d[i];
                if (g == 3)
                    out[2][gate_at(l, t, n, g, i, j)] = s[i];
                for (int64_t q = 0; q < l->h; q++)
                    product[q] += s[i] * in[0][(i * l->h + j) * l->h + q];
            }
        }
        for (int64_t q = 0; q < l->h; q++)
            dh[q] += product[q];
    }
}

static void recurrent_case(const kernel_case *k, double *const *in, double *const *out)
{
    const bool back = k->op == TSRI_OP_RECURRENT_DX;
    const int64_t *x = back ? k->out[0].dims.d : k->in[0].dims.d;
    const layer l = {.t = x[0],
                     .n = x[1],
                     .h = back ? k->out[1].dims.d[1] : k->out[0].dims.d[2],
                     .cell = k->attrs.recurrent.cell,
                     .reverse = k->attrs.recurrent.reverse};
    if (back)
        recurrent_dx(&l, k->attrs.recurrent.has_dc, in, out);
    else
        recurrent(&l, k->attrs.recurrent.has_bias, in, out);
}

bool kc_oracle_nn(const kernel_case *k, double *const *in, double *const *out)
{
    switch (k->op) {
    case TSRI_OP_BATCH_MATMUL:
        return batch_matmul(k, in, out[0]), true;
    case TSRI_OP_LN_STATS:
    case TSRI_OP_LN_APPLY:
    case TSRI_OP_LN_BWD_STATS:
    case TSRI_OP_LN_BWD_APPLY:
    case TSRI_OP_LN_PARAM_GRAD:
        return layer_norm(k, in, out), true;
    case TSRI_OP_CAUSAL_MASK:
        return causal_mask(k, in[0], out[0]), true;
    case TSRI_OP_FLASH_ATTENTION:
    case TSRI_OP_FLASH_ATTENTION_DX:
        return attention(k, in, out), true;
    case TSRI_OP_RECURRENT:
    case TSRI_OP_RECURRENT_DX:
        return recurrent_case(k, in, out), true;
    case TSRI_OP_SOFTMAX_SUM:
    case TSRI_OP_SOFTMAX_FINISH:
    case TSRI_OP_SOFTMAX_DOT:
    case TSRI_OP_SOFTMAX_BWD:
        return softmax_part(k, in, out[0]), true;
    case TSRI_OP_CE_TERMS:
    case TSRI_OP_CE_FINISH:
        return cross_entropy_part(k, in, out), true;
    case TSRI_OP_CE_DX:
        return k->attrs.ce.classes ? cross_entropy_part(k, in, out), true : false;
    default:
        return false;
    }
}
