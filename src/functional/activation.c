/* SPDX-License-Identifier: Apache-2.0 */
/* Activations and reductions made of others. */
#include "src/functional/inside.h"

#include <math.h>

tsr_tensor *tsr_prelu_at(tsr_tensor *x, tsr_tensor *w, const char *file, int line)
{
    tsr_tensor *in[2] = {x, w};
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "prelu", 2, in, 0, (tsri_loc){file, line}) ||
        !tsri_want_same_dtype(&c, 2, in) || !tsri_want_float(&c, x))
        return c.failed;
    const int64_t channels = x->shape.ndim > 1 ? x->shape.d[1] : 1;
    const int64_t n = tsr_dims_count(w->shape);
    if (w->shape.ndim != 1 || (n != 1 && n != channels))
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "weights %s of x %s; legal are (1) and (%lld)",
                            tsri_op_dims(&c, w), tsri_op_dims(&c, x), (long long)channels);
    tsr_dims dims = x->shape.ndim ? TSR_DIMS(n) : TSR_SCALAR; /* no more axes than x */
    for (int i = 2; i < x->shape.ndim && n > 1; i++)
        dims.d[dims.ndim++] = 1;
    x = tsri_low(&c, x);
    tsr_tensor *slope = tsri_shaped(tsri_low(&c, w), dims, file, line);
    return tsri_make_binary("prelu", TSRI_BINARY_PRELU, x, slope, TSR_DTYPE_NONE, c.loc);
}

tsr_tensor *tsr_glu_at(tsr_tensor *x, int axis, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "glu", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_float(&c, x) || !tsri_want_axis(&c, x, &axis))
        return c.failed;
    const int64_t half = x->shape.d[axis] / 2;
    if (x->shape.d[axis] % 2)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "axis %d of %s has an odd size; it is halved", axis,
                            tsri_op_dims(&c, x));
    tsr_tensor *y[2];
    tsr_split(x, 2, ((int64_t[]){half, half}), axis, y);
    return tsr_mul(y[0], tsr_sigmoid(y[1]));
}

#define COMPOSED(name, value)                                                    \
    tsr_tensor *tsr_##name##_at(tsr_tensor *x, const char *file, int line)       \
    {                                                                            \
        TSRI_FUNCTION(c);                                                        \
        if (!tsri_function_begin(&c, #name, 1, &x, 0, (tsri_loc){file, line}) || \
            !tsri_want_float(&c, x))                                             \
            return c.failed;                                                     \
        return value;                                                            \
    }
COMPOSED(tanhshrink, tsr_sub(x, tsr_tanh(x)))
/* By two logarithms, since through log(x / (1 - x)) the gradient at 1 is 0 times infinity. */
COMPOSED(logit, tsri_as(&c, tsr_sub(tsr_log(x), tsr_log1p(tsr_neg(x))), x))

tsr_tensor *tsr_softmin_at(tsr_tensor *x, int axis, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "softmin", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_float(&c, x) || !tsri_want_axis(&c, x, &axis))
        return c.failed;
    return tsr_softmax(tsr_neg(x), axis);
}

/* The largest is taken out first, as a constant; where it is infinite, 0. */
tsr_tensor *tsr_logsumexp_at(tsr_tensor *x, tsr_axes axes, bool keepdim, const char *file, int line)
{
    TSRI_FUNCTION(c);
    uint32_t mask;
    if (!tsri_function_begin(&c, "logsumexp", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_float(&c, x) || !tsri_want_axes(&c, x, axes, &mask))
        return c.failed;
    tsr_tensor *top = tsri_number(x, 0, file, line);
    if (tsr_dims_count(x->shape) > 0) { /* of nothing, log 0 */
        tsr_tensor *most = tsr_max(tsr_detach(x), axes, true);
        top = tsr_where(tsr_isfinite(most), most, top);
    }
    tsr_tensor *sum = tsr_sum(tsr_exp(tsr_sub(x, top)), axes, true);
    tsr_tensor *y = tsri_as(&c, tsr_add(tsr_log(sum), top), x);
    return keepdim ? y : tsri_shaped(y, tsri_drop_axes(x->shape, mask), file, line);
}

tsr_tensor *tsr_argmin_at(tsr_tensor *x, int axis, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "argmin", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_axis(&c, x, &axis))
        return c.failed;
    if (x->shape.d[axis] == 0)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "axis %d of %s has size 0; nothing has no minimum",
                            axis, tsri_op_dims(&c, x));
    if (tsri_is_float(x->dtype))
        return tsr_argmax(tsr_neg(x), axis);
    /* -1 - x turns the order of whole numbers round, and wraps for none. */
    tsr_tensor *whole = x->dtype == TSR_I64 ? x : tsr_cast(x, TSR_I64);
    return tsr_argmax(tsr_sub(tsri_number(whole, -1, file, line), whole), axis);
}

/* Declares either dropout of selu's kind; the mask of features is (n,c,1,...). */
static tsr_tensor *alpha_dropout(const char *name, tsr_tensor *x, bool features, double p,
                                 const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, name, 1, &x, 0, (tsri_loc){file, line}) || !tsri_want_float(&c, x))
        return c.failed;
    if (!(p >= 0 && p < 1))
        return tsri_op_fail(&c, TSR_ERR_INVALID, "p is %g; it must be in [0, 1)", p);
    if (features && x->shape.ndim < 2)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "x is %s; it must be (n,c,...)",
                            tsri_op_dims(&c, x));
    if (!c.g->training || p == 0)
        return tsri_as_result(x, x, c.loc);
    /* Klambauer et al. 2017, section 3: selu tends to -scale alpha. */
    const double low = -1.7580993408473766, a = 1 / sqrt((1 - p) * (1 + p * low * low));
    tsr_tensor *kept = tsr_mul_scalar(tsri_dropped_ones(x, features, p, file, line), a * (1 - p));
    return tsr_add_scalar(tsr_mul(kept, tsr_add_scalar(x, -low)), a * low - a * low * p);
}

tsr_tensor *tsr_alpha_dropout_at(tsr_tensor *x, double p, const char *file, int line)
{
    return alpha_dropout("alpha_dropout", x, false, p, file, line);
}

tsr_tensor *tsr_feature_alpha_dropout_at(tsr_tensor *x, double p, const char *file, int line)
{
    return alpha_dropout("feature_alpha_dropout", x, true, p, file, line);
}

tsr_tensor *tsr_rrelu_at(tsr_tensor *x, double low, double high, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "rrelu", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_float(&c, x))
        return c.failed;
    if (!(low <= high) || !isfinite(low) || !isfinite(high))
        return tsri_op_fail(&c, TSR_ERR_INVALID,
                            "slopes from low = %g to high = %g; both must be finite and in order",
                            low, high);
    if (!c.g->training)
        return tsr_leaky_relu(x, (low + high) / 2);
    tsr_tensor *slope = tsr_add_scalar(tsr_mul_scalar(tsr_rand_like(x), high - low), low);
    return tsr_where(tsr_greater(x, tsri_number(x, 0, file, line)), x, tsr_mul(x, slope));
}

/* Returns 1 at the largest along an axis, else 0, as soft has them; the gradient is soft's. */
static tsr_tensor *straight_through(tsr_tensor *soft, int axis, const char *file, int line)
{
    const int ndim = soft->shape.ndim;
    tsr_tensor *hit =
        tsr_one_hot(tsr_argmax(soft, axis), soft->shape.d[axis], soft->dtype); /* classes last */
    tsr_axes order = {.n = ndim};
    for (int i = 0; i < ndim; i++)
        order.axis[i] = i < axis ? i : i == axis ? ndim - 1 : i - 1;
    return tsr_add(tsr_sub(tsr_permute(hit, order), tsr_detach(soft)), soft);
}

tsr_tensor *tsr_gumbel_softmax_at(tsr_tensor *x, double tau, bool hard, int axis, const char *file,
                                  int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "gumbel_softmax", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_float(&c, x) || !tsri_want_axis(&c, x, &axis))
        return c.failed;
    if (!(tau > 0) || !isfinite(tau))
        return tsri_op_fail(&c, TSR_ERR_INVALID, "tau is %g; it must be above 0", tau);
    /* An exponential number of mean 1 is at least half a step of the uniform one. */
    tsr_tensor *e = tsr_neg(tsr_log1p(tsr_neg(tsr_rand_like(x))));
    e = tsr_maximum(e, tsri_number(x, 0x1p-25, file, line));
    tsr_tensor *noisy = tsr_sub(x, tsr_log(e));
    tsr_tensor *soft = tsr_softmax(tsr_mul_scalar(noisy, 1 / tau), axis);
    return hard && tsr_dims_count(x->shape) ? straight_through(soft, axis, file, line) : soft;
}
