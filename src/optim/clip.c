/* SPDX-License-Identifier: Apache-2.0 */
/* Norms of gradients, and clipping them: torch.nn.utils.clip_grad_norm_ and clip_grad_value_. */
#include "src/optim/clip.h"

#include <math.h>

#include "src/core/live.h"

/* One gradient's part of the norm, as an f64 scalar on placement p: the sum of |x|^power, or the
 * largest |x|. A root of each, as tsr_norm takes, would need each sum whole: so partial sums are
 * added up, and reduced over the ranks once. */
static tsr_tensor *part_of_norm(const tsri_ctx *c, tsr_tensor *x, double power,
                                const tsr_placement *p)
{
    const char *file = c->loc.file;
    const int line = c->loc.line;
    const uint32_t all = (1u << x->shape.ndim) - 1;
    tsr_tensor *part;
    if (tsr_dims_count(x->shape) == 0)
        part = tsri_make_fill(c->g, TSR_SCALAR, x->dtype, x->placement, 0, c->loc);
    else if (isinf(power))
        part = tsri_make_reduce(tsr_abs_at(x, file, line), TSR_REDUCE_MAX, all, false, 1, c->loc);
    else if (power == 2)
        part = tsri_make_sum(tsr_mul_at(x, x, file, line), all, false, 1, c->loc);
    else
        part = tsri_make_sum(tsr_pow_scalar_at(tsr_abs_at(x, file, line), power, file, line), all,
                             false, 1, c->loc);
    part = tsr_cast_at(part, TSR_F64, file, line);
    return part->failed || part->placement == p ? part
                                                : tsr_to_global_at(part, p, TSR_AUTO, file, line);
}

tsr_tensor *tsri_make_squares(const tsri_ctx *c, tsr_tensor *x)
{
    tsri_declare_begin(c->g);
    tsr_tensor *sum = part_of_norm(c, x, 2, x->placement);
    tsri_declare_end(c->g);
    return sum;
}

tsr_tensor *tsri_make_global_norm(const tsri_ctx *c, int n, tsr_tensor *const *x, double power)
{
    const char *file = c->loc.file;
    const int line = c->loc.line;
    tsr_tensor *sum = NULL;
    for (int i = 0; i < n && c->g->failure.status == TSR_OK; i++) {
        if (!x[i] || x[i]->failed)
            continue;
        tsri_declare_begin(c->g);
        tsr_tensor *part = part_of_norm(c, x[i], power, sum ? sum->placement : x[i]->placement);
        tsri_declare_end(c->g);
        if (!sum)
            sum = part;
        else if (isinf(power))
            sum = tsr_maximum_at(sum, part, file, line);
        else
            sum = tsr_add_at(sum, part, file, line);
    }
    if (!sum || c->g->failure.status != TSR_OK)
        return c->g->failure.status == TSR_OK
                   ? tsri_op_fail(c, TSR_ERR_INVALID, "there is no gradient to take a norm of")
                   : &c->g->failure.tensor;
    if (isinf(power) || power == 1)
        return sum;
    return power == 2 ? tsr_sqrt_at(sum, file, line)
                      : tsr_pow_scalar_at(sum, 1 / power, file, line);
}

tsr_tensor *tsri_make_clip_scale(const tsri_ctx *c, tsr_tensor *norm, double most)
{
    const char *file = c->loc.file;
    const int line = c->loc.line;
    tsr_tensor *scale =
        tsr_rdiv_scalar_at(tsr_add_scalar_at(norm, 1e-6, file, line), most, file, line);
    tsr_tensor *one = tsri_make_fill(c->g, TSR_SCALAR, TSR_F64, norm->placement, 1, c->loc);
    return tsr_minimum_at(scale, one, file, line);
}

tsr_tensor *tsri_make_clipped(const tsri_ctx *c, tsr_tensor *x, double most)
{
    const char *file = c->loc.file;
    const int line = c->loc.line;
    tsr_tensor *hi = tsri_make_fill(c->g, TSR_SCALAR, x->dtype, x->placement, most, c->loc);
    tsr_tensor *lo = tsri_make_fill(c->g, TSR_SCALAR, x->dtype, x->placement, -most, c->loc);
    return tsr_minimum_at(tsr_maximum_at(x, lo, file, line), hi, file, line);
}

/* --- the user's calls ------------------------------------------------------------------------- */
bool tsri_want_norm(const tsri_ctx *c, double most, double power)
{
    if (!(most > 0))
        return tsri_op_refuse(c, TSR_ERR_INVALID, "a limit of %g; it must be above 0", most);
    if (!(power > 0))
        return tsri_op_refuse(c, TSR_ERR_INVALID,
                              "a norm of power %g; it must be above 0, or INFINITY", power);
    return true;
}

bool tsri_begin_tensors(tsri_ctx *c, int n, tsr_tensor *const *x)
{
    for (int i = 0; i < n && x; i++) {
        if (!x[i])
            continue;
        if (tsri_live_check(x[i], TSRI_LIVE_TENSOR, c->op) != TSR_OK)
            return c->g && tsri_op_refuse_last(c, TSR_ERR_INVALID);
        c->g = c->g ? c->g : x[i]->graph;
        if (x[i]->failed)
            return false;
        if (x[i]->graph != c->g)
            return tsri_op_refuse(c, TSR_ERR_INVALID, "tensor %d belongs to another graph", i);
        if (!tsri_want_float(c, x[i]))
            return false;
    }
    if (c->g)
        return c->g->failure.status == TSR_OK;
    return tsri_op_refuse(c, TSR_ERR_INVALID, "there is no tensor among the %d%s", n,
                          tsri_error_cause());
}

tsr_tensor *tsr_global_norm_at(int n, tsr_tensor *const *x, double power, const char *file,
                               int line)
{
    tsri_ctx c = {.loc = {file, line}, .op = "global_norm"};
    if (!tsri_begin_tensors(&c, n, x) || !tsri_want_norm(&c, 1, power))
        return c.g ? &c.g->failure.tensor : NULL;
    return tsri_make_global_norm(&c, n, x, power);
}

tsr_tensor *tsr_clip_grad_norm_at(int n, tsr_tensor **grads, double max_norm, double power,
                                  const char *file, int line)
{
    tsri_ctx c = {.loc = {file, line}, .op = "clip_grad_norm"};
    if (!tsri_begin_tensors(&c, n, grads) || !tsri_want_norm(&c, max_norm, power))
        return c.g ? &c.g->failure.tensor : NULL;
    tsr_tensor *norm = tsri_make_global_norm(&c, n, grads, power);
    if (norm->failed)
        return norm;
    tsr_tensor *scale = tsri_make_clip_scale(&c, norm, max_norm);
    for (int i = 0; i < n && !scale->failed; i++) {
        if (!grads[i])
            continue;
        tsr_tensor *factor = tsr_cast_at(scale, grads[i]->dtype, file, line);
        if (!factor->failed && factor->placement != grads[i]->placement)
            factor = tsr_to_global_at(factor, grads[i]->placement, TSR_AUTO, file, line);
        grads[i] = tsr_mul_at(grads[i], factor, file, line);
    }
    return norm;
}

void tsr_clip_grad_value_at(int n, tsr_tensor **grads, double max_value, const char *file, int line)
{
    tsri_ctx c = {.loc = {file, line}, .op = "clip_grad_value"};
    if (!tsri_begin_tensors(&c, n, grads) || !tsri_want_norm(&c, max_value, 1))
        return;
    for (int i = 0; i < n; i++)
        if (grads[i] && !grads[i]->failed)
            grads[i] = tsri_make_clipped(&c, grads[i], max_value);
}
