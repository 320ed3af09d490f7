/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisations made of others. */
#include "src/functional/inside.h"

#include <stdlib.h>

#include <math.h>

tsr_tensor *tsr_group_norm_at(tsr_tensor *x, int64_t groups, tsr_tensor *gamma, tsr_tensor *beta,
                              double eps, const char *file, int line)
{
    tsr_tensor *in[3] = {x, gamma, beta};
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "group_norm", 3, in, 6, (tsri_loc){file, line}) ||
        !tsri_want_same_dtype(&c, 3, in) || !tsri_want_float(&c, x) || !tsri_want_eps(&c, eps))
        return c.failed;
    if (x->shape.ndim < 2)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "x is %s; it must be (n,c,...)",
                            tsri_op_dims(&c, x));
    const int64_t n = x->shape.d[0], channels = x->shape.d[1];
    x = tsri_full(&c, x);
    gamma = tsri_full(&c, gamma);
    beta = tsri_full(&c, beta);
    if (groups < 1 || channels % groups)
        return tsri_op_fail(&c, TSR_ERR_INVALID,
                            "%lld groups of %lld channels; the number must divide them",
                            (long long)groups, (long long)channels);
    if ((gamma && !tsri_want_vector(&c, "gamma", gamma, channels)) ||
        (beta && !tsri_want_vector(&c, "beta", beta, channels)))
        return c.failed;
    /* Rows of one group's channels and their elements; gamma and beta are one number for each. */
    const int64_t count = tsr_dims_count(x->shape), each = channels / groups;
    const int64_t plane = count ? count / n / channels : 0;
    const tsr_dims rows = TSR_DIMS(n, groups, each, plane), params = TSR_DIMS(groups, each, 1);
    tsr_tensor *y = tsr_layer_norm(tsri_shaped(x, rows, file, line), NULL, NULL,
                                   TSR_LAYER_NORM_OPTS(.eps = eps, .axes = 2));
    y = gamma ? tsr_mul(y, tsri_shaped(gamma, params, file, line)) : y;
    y = beta ? tsr_add(y, tsri_shaped(beta, params, file, line)) : y;
    return tsri_shaped(y, x->shape, file, line);
}

tsr_tensor *tsr_rms_norm_at(tsr_tensor *x, tsr_tensor *gamma, double eps, const char *file,
                            int line)
{
    tsr_tensor *in[2] = {x, gamma};
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "rms_norm", 2, in, 2, (tsri_loc){file, line}) ||
        !tsri_want_same_dtype(&c, 2, in) || !tsri_want_float(&c, x) || !tsri_want_eps(&c, eps))
        return c.failed;
    const int naxes = gamma ? gamma->shape.ndim : 1, first = x->shape.ndim - naxes;
    bool fits = naxes > 0 && first >= 0;
    for (int i = 0; gamma && fits && i < naxes; i++)
        fits = gamma->shape.d[i] == x->shape.d[first + i];
    if (!fits)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "x is %s%s%s; gamma has x's last axes",
                            tsri_op_dims(&c, x), gamma ? ", gamma " : "",
                            gamma ? tsri_op_dims(&c, gamma) : "");
    tsr_axes axes = {.n = naxes};
    for (int i = 0; i < naxes; i++)
        axes.axis[i] = first + i;
    x = tsri_full(&c, x);
    tsr_tensor *mean = tsr_mean(tsr_square(x), axes, true);
    tsr_tensor *y = tsr_mul(x, tsr_rsqrt(tsr_add_scalar(mean, eps)));
    return gamma ? tsr_mul(y, gamma) : y;
}

tsr_tensor *tsr_normalize_at(tsr_tensor *x, int axis, double eps, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "normalize", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_float(&c, x) || !tsri_want_axis(&c, x, &axis) || !tsri_want_eps(&c, eps))
        return c.failed;
    x = tsri_full(&c, x);
    return tsr_div(x, tsri_length(x, axis, eps, file, line));
}

tsr_tensor *tsr_local_response_norm_at(tsr_tensor *x, int64_t size, double alpha, double beta,
                                       double k, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "local_response_norm", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_float(&c, x) || !tsri_want_number(&c, "alpha", alpha) ||
        !tsri_want_number(&c, "beta", beta) || !tsri_want_number(&c, "k", k))
        return c.failed;
    if (x->shape.ndim < 2 || size < 1 || size > 64)
        return tsri_op_fail(&c, TSR_ERR_INVALID,
                            "x is %s, size %lld; legal are (n,c,...) and 1 to 64",
                            tsri_op_dims(&c, x), (long long)size);
    tsr_dims before = {.ndim = x->shape.ndim}, after = before;
    before.d[1] = size / 2;
    after.d[1] = (size - 1) / 2;
    tsr_tensor *around = tsr_pad(tsr_square(x), before, after, 0);
    tsr_tensor *sum = tsr_narrow(around, 1, 0, x->shape.d[1]);
    for (int64_t i = 1; i < size; i++)
        sum = tsr_add(sum, tsr_narrow(around, 1, i, x->shape.d[1]));
    tsr_tensor *base = tsr_add_scalar(tsr_mul_scalar(sum, alpha / (double)size), k);
    return tsr_div(x, tsr_pow_scalar(base, beta));
}

tsr_tensor *tsr_pdist_at(tsr_tensor *x, double p, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "pdist", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_float(&c, x))
        return c.failed;
    if (!(p > 0))
        return tsri_op_fail(&c, TSR_ERR_INVALID, "p is %g; it must be above 0", p);
    enum { MOST = 4096 };
    const int64_t n = x->shape.d[0], pairs = n * (n - 1) / 2;
    if (x->shape.ndim != 2 || n > MOST)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "x is %s; it must be (n,d) with n at most %d",
                            tsri_op_dims(&c, x), MOST);
    int64_t *ids = malloc(((size_t)pairs * 2 + 1) * sizeof *ids);
    if (!ids)
        return tsri_op_fail(&c, TSR_ERR_NO_MEMORY, "no memory for %lld pairs", (long long)pairs);
    for (int64_t i = 0, k = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++, k++) {
            ids[k] = i;
            ids[pairs + k] = j;
        }
    tsr_tensor *row[2];
    for (int i = 0; i < 2; i++)
        row[i] = tsr_index_select(
            x, 0,
            tsr_constant(c.g, TSR_I64, TSR_DIMS(pairs), ids + i * pairs, x->placement, TSR_AUTO));
    free(ids);
    return tsr_norm(tsr_sub(tsri_full(&c, row[0]), tsri_full(&c, row[1])), p, TSR_AXES(1), false);
}
