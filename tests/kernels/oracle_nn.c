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
        double xhat = (in[0][i] - mean) / sigma, g = dy ? dy[i] * (gamma ? gamma[f] : 1) : 0;
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
            out[0][i] = xhat * (gamma ? gamma[f] : 1) + (beta ? beta[f] : 0);
        }
    }
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
    default:
        return false;
    }
}
