/* SPDX-License-Identifier: Apache-2.0 */
/* Attention, composed of products, a mask and softmax, so that batch, heads, queries, keys and
 * features may each be split; and the mask. */
#include <math.h>

#include "src/graph/op.h"

/* --- the mask --------------------------------------------------------------------------------- */

static tsr_tensor *add_mask(tsr_tensor *x, int64_t diagonal, double value, tsri_loc loc)
{
    tsri_attrs attrs = {0};
    attrs.mask_above.diagonal = diagonal;
    attrs.mask_above.value = value;
    return tsri_graph_add_like(TSRI_OP_CAUSAL_MASK, &attrs, 1, &x, x, loc);
}

tsr_tensor *tsr_causal_mask_at(tsr_tensor *x, int64_t diagonal, double value, const char *file,
                               int line)
{
    tsri_loc loc = {file, line};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "causal_mask", 1, &x, 0, loc) || !tsri_want_float(&c, x) ||
        !tsri_want_number(&c, "the value", value))
        return c.failed;
    if (x->shape.ndim < 2)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "x is %s; it must be (...,s,t)",
                            tsri_op_dims(&c, x));
    return add_mask(x, diagonal, value, loc);
}

/* A fill with 0 alone is linear; so a P(sum) never meets an infinity. */
static const char *rule_mask(const tsri_op *op)
{
    return op->attrs.mask_above.value != 0 ? "!A -> A" : "A -> A";
}

static void grad_mask(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    if (!dout[0]->failed)
        din[0] = add_mask(dout[0], op->attrs.mask_above.diagonal, 0, op->loc);
}

static const tsri_attr_field mask_above_attrs[] = {
    TSRI_ATTR_FIELD(mask_above.diagonal, I64, "diagonal"),
    TSRI_ATTR_FIELD(mask_above.value, F64, "value"), TSRI_ATTR_END};

const tsri_op_def tsri_def_causal_mask = {.rule_of = rule_mask,
                                          .names = tsri_name_matrices,
                                          .gradient = grad_mask,
                                          .attrs = mask_above_attrs,
                                          .alike = TSRI_ALL_OPERANDS};

/* --- attention -------------------------------------------------------------------------------- */

static bool want_heads(const tsri_ctx *c, const tsr_tensor *q, const tsr_tensor *k,
                       const tsr_tensor *v)
{
    const int64_t *a = q->shape.d, *b = k->shape.d, *e = v->shape.d;
    if (q->shape.ndim == 4 && k->shape.ndim == 4 && v->shape.ndim == 4 && a[0] == b[0] &&
        a[0] == e[0] && a[1] == b[1] && a[1] == e[1] && a[3] == b[3] && b[2] == e[2])
        return true;
    return tsri_op_refuse(
        c, TSR_ERR_SHAPE,
        "queries %s, keys %s, values %s; legal are (b,h,s,d), (b,h,t,d), (b,h,t,e)",
        tsri_op_dims(c, q), tsri_op_dims(c, k), tsri_op_dims(c, v));
}

tsr_tensor *tsr_attention_at(tsr_tensor *q, tsr_tensor *k, tsr_tensor *v,
                             const tsr_attention_opts *opts, const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *in[3] = {q, k, v};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "attention", 3, in, 0, loc))
        return c.failed;
    tsr_attention_opts o = *TSR_ATTENTION_OPTS();
    if (!tsri_want_options(&c, &o, sizeof o, opts) || !tsri_want_same_dtype(&c, 3, in) ||
        !tsri_want_float(&c, q) || !want_heads(&c, q, k, v))
        return c.failed;
    if (isinf(o.scale))
        return tsri_op_fail(&c, TSR_ERR_INVALID, "scale is %g; it must be finite", o.scale);
    if (!(o.dropout >= 0 && o.dropout < 1))
        return tsri_op_fail(&c, TSR_ERR_INVALID, "dropout is %g; it must be in [0, 1)", o.dropout);
    double d = (double)q->shape.d[3], scale = !isnan(o.scale) ? o.scale : d > 0 ? 1 / sqrt(d) : 1;
    /* The queries are fewer numbers than the scores. */
    tsr_tensor *scores =
        tsr_matmul_t_at(tsri_make_scale(q, scale, loc), k, false, true, file, line);
    if (o.causal)
        scores = tsr_causal_mask_at(scores, 0, -INFINITY, file, line);
    tsr_tensor *weights = tsr_softmax_at(scores, -1, file, line);
    if (o.dropout > 0)
        weights = tsr_dropout_at(weights, o.dropout, file, line);
    return tsr_matmul_at(weights, v, file, line);
}
