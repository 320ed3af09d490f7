/* SPDX-License-Identifier: Apache-2.0 */
/* Formulas on row-major doubles, as oracle.c's, of what transformers are made of. */
#include "cases.h"

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

bool kc_oracle_nn(const kernel_case *k, double *const *in, double *const *out)
{
    switch (k->op) {
    case TSRI_OP_BATCH_MATMUL:
        return batch_matmul(k, in, out[0]), true;
    default:
        return false;
    }
}
