/* SPDX-License-Identifier: Apache-2.0 */
/* Losses, of ops; none sums what a loss of its own would not. */
#include "src/functional/inside.h"

#include <math.h>

static bool want_reduction(const tsri_ctx *c, tsr_reduction r)
{
    if (r == TSR_MEAN || r == TSR_SUM || r == TSR_NONE)
        return true;
    return tsri_op_refuse(c, TSR_ERR_INVALID,
                          "reduction is %d; legal are TSR_MEAN, TSR_SUM and TSR_NONE", (int)r);
}

#define OPERANDS(...)  \
    (tsr_tensor * *[]) \
    {                  \
        __VA_ARGS__    \
    }

/* Begins a loss of n <= 3 operands of one floating dtype and one shape, which are made f32 where
 * autocast has a say. */
static bool begin_loss(tsri_ctx *c, const char *name, int n, tsr_tensor **const *operands,
                       tsr_reduction reduction, const char *file, int line)
{
    tsr_tensor *x[3];
    for (int i = 0; i < n; i++)
        x[i] = *operands[i];
    if (!tsri_function_begin(c, name, n, x, 0, (tsri_loc){file, line}) ||
        !tsri_want_same_dtype(c, n, x) || !tsri_want_float(c, x[0]) ||
        !want_reduction(c, reduction))
        return false;
    for (int i = 1; i < n; i++)
        if (!tsr_dims_equal(x[0]->shape, x[i]->shape)) {
            c->failed = tsri_op_fail(c, TSR_ERR_SHAPE, "%s and %s; all must have one shape",
                                     tsri_op_dims(c, x[0]), tsri_op_dims(c, x[i]));
            return false;
        }
    for (int i = 0; i < n; i++)
        *operands[i] = tsri_full(c, x[i]);
    return true;
}

static bool want_positive(tsri_ctx *c, const char *what, double value)
{
    if (value > 0 && isfinite(value))
        return true;
    return tsri_op_refuse(c, TSR_ERR_INVALID, "%s is %g; it must be above 0", what, value);
}

tsr_tensor *tsr_l1_loss_at(tsr_tensor *x, tsr_tensor *y, tsr_reduction reduction, const char *file,
                           int line)
{
    TSRI_FUNCTION(c);
    if (!begin_loss(&c, "l1_loss", 2, OPERANDS(&x, &y), reduction, file, line))
        return c.failed;
    return tsri_reduced(tsr_abs(tsr_sub(x, y)), reduction, file, line);
}

/* Returns d^2 / 2 where |d| < edge, else edge (|d| - edge/2): with m = min(|d|, edge) both are
 * m (|d| - m/2), whose gradient is that of each side, too. */
static tsr_tensor *huber(tsr_tensor *d, double edge, const char *file, int line)
{
    tsr_tensor *size = tsr_abs(d), *m = tsr_clamp(size, 0, edge);
    return tsr_mul(m, tsr_sub(size, tsr_mul_scalar(m, 0.5)));
}

tsr_tensor *tsr_huber_loss_at(tsr_tensor *x, tsr_tensor *y, double delta, tsr_reduction reduction,
                              const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!begin_loss(&c, "huber_loss", 2, OPERANDS(&x, &y), reduction, file, line) ||
        !want_positive(&c, "delta", delta))
        return c.failed;
    return tsri_reduced(huber(tsr_sub(x, y), delta, file, line), reduction, file, line);
}

tsr_tensor *tsr_smooth_l1_loss_at(tsr_tensor *x, tsr_tensor *y, double beta,
                                  tsr_reduction reduction, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!begin_loss(&c, "smooth_l1_loss", 2, OPERANDS(&x, &y), reduction, file, line) ||
        !want_positive(&c, "beta", beta))
        return c.failed;
    tsr_tensor *loss = tsr_mul_scalar(huber(tsr_sub(x, y), beta, file, line), 1 / beta);
    return tsri_reduced(loss, reduction, file, line);
}

tsr_tensor *tsr_kl_div_at(tsr_tensor *x, tsr_tensor *y, bool log_target, tsr_reduction reduction,
                          const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!begin_loss(&c, "kl_div", 2, OPERANDS(&x, &y), reduction, file, line))
        return c.failed;
    tsr_tensor *loss;
    if (log_target) {
        loss = tsr_mul(tsr_exp(y), tsr_sub(y, x));
    } else { /* 0 log 0 is 0; of a target below 0 the logarithm is NaN */
        tsr_tensor *is_zero = tsr_equal(y, tsri_number(y, 0, file, line));
        tsr_tensor *log = tsr_log(tsr_where(is_zero, tsri_number(y, 1, file, line), y));
        loss = tsr_sub(tsr_mul(y, log), tsr_mul(y, x));
    }
    return tsri_reduced(loss, reduction, file, line);
}

/* Returns log(x), or log(1 - x), not below -100; at the edge, where the logarithm is infinite, -100
 * without a gradient. */
static tsr_tensor *bounded_log(tsr_tensor *x, bool of_rest, const char *file, int line)
{
    tsr_tensor *at_edge = tsr_equal(x, tsri_number(x, of_rest, file, line));
    tsr_tensor *inside = tsr_where(at_edge, tsri_number(x, 0.5, file, line), x);
    tsr_tensor *log = of_rest ? tsr_log1p(tsr_neg(inside)) : tsr_log(inside);
    return tsr_where(at_edge, tsri_number(x, -100, file, line), tsr_clamp(log, -100, INFINITY));
}

tsr_tensor *tsr_binary_cross_entropy_at(tsr_tensor *x, tsr_tensor *y, tsr_reduction reduction,
                                        const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!begin_loss(&c, "binary_cross_entropy", 2, OPERANDS(&x, &y), reduction, file, line))
        return c.failed;
    if (tsri_autocasts(c.g))
        return tsri_op_fail(&c, TSR_ERR_DTYPE,
                            "a mean of logarithms of f16 and bf16 probabilities is not safe under "
                            "autocast; use tsr_binary_cross_entropy_with_logits, or a region of "
                            "f32: tsr_autocast(g, TSR_F32)");
    tsr_tensor *is = bounded_log(x, false, file, line);
    tsr_tensor *is_not = bounded_log(x, true, file, line);
    /* -(y is + (1 - y) is_not) */
    tsr_tensor *loss = tsr_sub(tsr_mul(y, tsr_sub(is_not, is)), is_not);
    return tsri_reduced(loss, reduction, file, line);
}

tsr_tensor *tsr_binary_cross_entropy_with_logits_at(tsr_tensor *x, tsr_tensor *y,
                                                    tsr_tensor *pos_weight, tsr_reduction reduction,
                                                    const char *file, int line)
{
    tsr_tensor *all[3] = {x, y, pos_weight};
    TSRI_FUNCTION(c);
    if (!begin_loss(&c, "binary_cross_entropy_with_logits", 2, OPERANDS(&x, &y), reduction, file,
                    line) ||
        !tsri_function_begin(&c, c.op, 3, all, 4, c.loc) || !tsri_want_same_dtype(&c, 3, all))
        return c.failed;
    pos_weight = tsri_full(&c, pos_weight);
    /* y w softplus(-x) + (1 - y) softplus(x), and softplus(x) = x + softplus(-x) */
    tsr_tensor *low = tsr_softplus(tsr_neg(x));
    tsr_tensor *rest = tsr_sub(x, tsr_mul(y, x));
    if (pos_weight) {
        tsr_tensor *more = tsr_mul(y, tsr_sub_scalar(pos_weight, 1));
        low = tsr_add(low, tsr_mul(more, low));
    }
    return tsri_reduced(tsr_add(rest, low), reduction, file, line);
}

/* Returns `is` where y is 1, else `is_not`. */
static tsr_tensor *by_sign(tsr_tensor *y, tsr_tensor *is, tsr_tensor *is_not, const char *file,
                           int line)
{
    return tsr_where(tsr_greater(y, tsri_number(y, 0, file, line)), is, is_not);
}

tsr_tensor *tsr_hinge_embedding_loss_at(tsr_tensor *x, tsr_tensor *y, double margin,
                                        tsr_reduction reduction, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!begin_loss(&c, "hinge_embedding_loss", 2, OPERANDS(&x, &y), reduction, file, line) ||
        !tsri_want_number(&c, "margin", margin))
        return c.failed;
    tsr_tensor *far = tsr_relu(tsr_add_scalar(tsr_neg(x), margin));
    return tsri_reduced(by_sign(y, x, far, file, line), reduction, file, line);
}

tsr_tensor *tsr_margin_ranking_loss_at(tsr_tensor *a, tsr_tensor *b, tsr_tensor *y, double margin,
                                       tsr_reduction reduction, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!begin_loss(&c, "margin_ranking_loss", 3, OPERANDS(&a, &b, &y), reduction, file, line) ||
        !tsri_want_number(&c, "margin", margin))
        return c.failed;
    tsr_tensor *loss = tsr_relu(tsr_add_scalar(tsr_mul(y, tsr_sub(b, a)), margin));
    return tsri_reduced(loss, reduction, file, line);
}

tsr_tensor *tsr_soft_margin_loss_at(tsr_tensor *x, tsr_tensor *y, tsr_reduction reduction,
                                    const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!begin_loss(&c, "soft_margin_loss", 2, OPERANDS(&x, &y), reduction, file, line))
        return c.failed;
    return tsri_reduced(tsr_softplus(tsr_neg(tsr_mul(y, x))), reduction, file, line);
}

tsr_tensor *tsr_poisson_nll_loss_at(tsr_tensor *x, tsr_tensor *y, tsr_reduction reduction,
                                    const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!begin_loss(&c, "poisson_nll_loss", 2, OPERANDS(&x, &y), reduction, file, line))
        return c.failed;
    return tsri_reduced(tsr_sub(tsr_exp(x), tsr_mul(y, x)), reduction, file, line);
}

tsr_tensor *tsr_gaussian_nll_loss_at(tsr_tensor *x, tsr_tensor *y, tsr_tensor *variance, double eps,
                                     tsr_reduction reduction, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!begin_loss(&c, "gaussian_nll_loss", 3, OPERANDS(&x, &y, &variance), reduction, file,
                    line) ||
        !tsri_want_eps(&c, eps))
        return c.failed;
    tsr_tensor *raised = tsr_detach(tsr_sub(tsr_clamp(variance, eps, INFINITY), variance));
    tsr_tensor *v = tsr_add(variance, raised);
    tsr_tensor *loss = tsr_add(tsr_log(v), tsr_div(tsr_square(tsr_sub(x, y)), v));
    return tsri_reduced(tsr_mul_scalar(loss, 0.5), reduction, file, line);
}

tsr_tensor *tsr_cosine_similarity_at(tsr_tensor *a, tsr_tensor *b, int axis, double eps,
                                     const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!begin_loss(&c, "cosine_similarity", 2, OPERANDS(&a, &b), TSR_NONE, file, line) ||
        !tsri_want_axis(&c, a, &axis) || !tsri_want_eps(&c, eps))
        return c.failed;
    tsr_tensor *x = tsr_div(a, tsri_length(a, axis, eps, file, line));
    tsr_tensor *y = tsr_div(b, tsri_length(b, axis, eps, file, line));
    return tsr_sum(tsr_mul(x, y), TSR_AXES(axis), false);
}

tsr_tensor *tsr_cosine_embedding_loss_at(tsr_tensor *a, tsr_tensor *b, tsr_tensor *y, double margin,
                                         tsr_reduction reduction, const char *file, int line)
{
    tsr_tensor *all[3] = {a, b, y};
    TSRI_FUNCTION(c);
    if (!begin_loss(&c, "cosine_embedding_loss", 2, OPERANDS(&a, &b), reduction, file, line) ||
        !tsri_function_begin(&c, c.op, 3, all, 0, c.loc) || !tsri_want_same_dtype(&c, 3, all) ||
        !tsri_want_number(&c, "margin", margin))
        return c.failed;
    if (a->shape.ndim != 2 || y->shape.ndim != 1 || y->shape.d[0] != a->shape.d[0])
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "%s, and %s for y; legal are (n,d) and (n)",
                            tsri_op_dims(&c, a), tsri_op_dims(&c, y));
    y = tsri_full(&c, y);
    tsr_tensor *cosine = tsr_cosine_similarity(a, b, 1, 1e-8);
    tsr_tensor *near = tsr_add_scalar(tsr_neg(cosine), 1);
    tsr_tensor *far = tsr_relu(tsr_sub_scalar(cosine, margin));
    return tsri_reduced(by_sign(y, near, far, file, line), reduction, file, line);
}

tsr_tensor *tsr_triplet_margin_loss_at(tsr_tensor *anchor, tsr_tensor *positive,
                                       tsr_tensor *negative, double margin, double power,
                                       tsr_reduction reduction, const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!begin_loss(&c, "triplet_margin_loss", 3, OPERANDS(&anchor, &positive, &negative),
                    reduction, file, line) ||
        !tsri_want_number(&c, "margin", margin) ||
        !(power == INFINITY || want_positive(&c, "power", power)))
        return c.failed;
    tsr_tensor *apart[2];
    for (int i = 0; i < 2; i++)
        apart[i] = tsr_norm(tsr_add_scalar(tsr_sub(anchor, i ? negative : positive), 1e-6), power,
                            TSR_AXES(-1), false);
    tsr_tensor *loss = tsr_relu(tsr_add_scalar(tsr_sub(apart[0], apart[1]), margin));
    return tsri_reduced(loss, reduction, file, line);
}

tsr_tensor *tsr_multi_margin_loss_at(tsr_tensor *x, tsr_tensor *labels, int power, double margin,
                                     tsr_reduction reduction, const char *file, int line)
{
    tsr_tensor *in[2] = {x, labels};
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "multi_margin_loss", 2, in, 0, (tsri_loc){file, line}) ||
        !tsri_want_float(&c, x) || !want_reduction(&c, reduction) ||
        !tsri_want_number(&c, "margin", margin))
        return c.failed;
    if (power != 1 && power != 2)
        return tsri_op_fail(&c, TSR_ERR_INVALID, "power is %d; legal are 1 and 2", power);
    if (x->shape.ndim != 2 || labels->shape.ndim != 1 || x->shape.d[0] != labels->shape.d[0] ||
        x->shape.d[1] < 1 || labels->dtype != TSR_I64)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "x %s, labels %s of %s; legal are (n,c) and i64 (n)",
                            tsri_op_dims(&c, x), tsri_op_dims(&c, labels),
                            tsr_dtype_name(labels->dtype));
    x = tsri_full(&c, x);
    tsr_tensor *none = tsri_number(x, 0, file, line);
    tsr_tensor *hit = tsr_one_hot(labels, x->shape.d[1], TSR_BOOL);
    tsr_tensor *own = tsr_sum(tsr_where(hit, x, none), TSR_AXES(1), true);
    tsr_tensor *over = tsr_relu(tsr_add_scalar(tsr_sub(x, own), margin));
    over = tsr_where(hit, none, power == 2 ? tsr_square(over) : over);
    return tsri_reduced(tsr_mean(over, TSR_AXES(1), false), reduction, file, line);
}

tsr_tensor *tsr_nll_loss_at(tsr_tensor *x, tsr_tensor *labels, const tsr_nll_loss_opts *opts,
                            const char *file, int line)
{
    tsr_tensor *in[2] = {x, labels};
    TSRI_FUNCTION(c);
    tsr_nll_loss_opts o = *TSR_NLL_LOSS_OPTS();
    if (!tsri_function_begin(&c, "nll_loss", 2, in, 0, (tsri_loc){file, line}) ||
        !tsri_want_options(&c, &o, sizeof o, opts) || !tsri_want_float(&c, x) ||
        !want_reduction(&c, o.reduction))
        return c.failed;
    if (x->shape.ndim != 2 || labels->shape.ndim != 1 || x->shape.d[0] != labels->shape.d[0] ||
        labels->dtype != TSR_I64)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "x %s, labels %s of %s; legal are (n,c) and i64 (n)",
                            tsri_op_dims(&c, x), tsri_op_dims(&c, labels),
                            tsr_dtype_name(labels->dtype));
    tsr_tensor *both[2] = {x, o.weight};
    if (!tsri_function_begin(&c, c.op, 2, both, 2, c.loc) || !tsri_want_same_dtype(&c, 2, both) ||
        (o.weight && !tsri_want_vector(&c, "weight", o.weight, x->shape.d[1])))
        return c.failed;
    x = tsri_full(&c, x);
    o.weight = tsri_full(&c, o.weight);
    tsr_tensor *counts = NULL, *seen = NULL, *ids = labels;
    if (o.has_ignore_index) {
        tsr_tensor *ignored =
            tsr_equal(labels, tsri_number(labels, (double)o.ignore_index, file, line));
        ids = tsr_where(ignored, tsri_number(labels, 0, file, line), labels);
        counts = seen = tsr_cast(tsr_logical_not(ignored), x->dtype);
    }
    if (o.weight) {
        tsr_tensor *w = tsr_index_select(o.weight, 0, ids);
        counts = counts ? tsr_mul(w, counts) : w;
    }
    /* Infinite logarithms of other classes count nothing. */
    tsr_tensor *hit = tsr_one_hot(ids, x->shape.d[1], TSR_BOOL);
    tsr_tensor *picked = tsr_where(hit, x, tsri_number(x, 0, file, line));
    tsr_tensor *loss = tsr_neg(tsr_sum(picked, TSR_AXES(1), false));
    if (!counts)
        return tsri_reduced(loss, o.reduction, file, line);
    if (o.has_ignore_index) /* an ignored row may be infinite */
        loss = tsr_where(tsr_logical_not(seen), tsri_number(x, 0, file, line), loss);
    loss = tsr_mul(loss, counts);
    if (o.reduction != TSR_MEAN || labels->shape.d[0] == 0)
        return tsri_reduced(loss, o.reduction, file, line);
    tsr_tensor *by = tsr_sum(counts, TSR_ALL_AXES, false);
    if (seen)
        by = tsri_make_divisor(by, o.weight ? tsr_sum(seen, TSR_ALL_AXES, false) : by, c.loc);
    return tsr_div(tsr_sum(loss, TSR_ALL_AXES, false), by);
}
