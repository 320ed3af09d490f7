/* SPDX-License-Identifier: Apache-2.0 */
/* Attention, composed of products, a mask and softmax, so that batch, heads, queries, keys and
 * features may each be split; attention as one op, which keeps no scores; and the mask. */
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
                                          .alike = TSRI_ALL_OPERANDS,
                                          .is_exact = true};

/* --- attention of parts ----------------------------------------------------------------------- */

/* The operands and options of either attention, checked. */
typedef struct call {
    tsr_tensor *in[4]; /* q, k, v, the mask: (b,h,s,t) or 1, bool or of q's dtype; or NULL */
    double scale, dropout;
    bool causal;
} call;

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

/* Checks q, k, v and the options, and sets *out but for its mask. */
static bool read_call(const tsri_ctx *c, tsr_tensor *q, tsr_tensor *k, tsr_tensor *v,
                      const tsr_attention_opts *opts, call *out)
{
    tsr_attention_opts o = *TSR_ATTENTION_OPTS();
    *out = (call){.in = {q, k, v}};
    if (!tsri_want_options(c, &o, sizeof o, opts) || !tsri_want_same_dtype(c, 3, out->in) ||
        !tsri_want_float(c, q) || !want_heads(c, q, k, v))
        return false;
    if (isinf(o.scale))
        return tsri_op_refuse(c, TSR_ERR_INVALID, "scale is %g; it must be finite", o.scale);
    if (!(o.dropout >= 0 && o.dropout < 1))
        return tsri_op_refuse(c, TSR_ERR_INVALID, "dropout is %g; it must be in [0, 1)", o.dropout);
    const double d = (double)q->shape.d[3];
    out->scale = !isnan(o.scale) ? o.scale : d > 0 ? 1 / sqrt(d) : 1;
    out->dropout = o.dropout;
    out->causal = o.causal;
    return true;
}

/* Returns a number of x's dtype: -inf is the score of a key that is not seen. */
static tsr_tensor *number(const tsr_tensor *x, double value, tsri_loc loc)
{
    return tsri_make_fill(x->graph, TSR_SCALAR, x->dtype, x->placement, value, loc);
}

/* Returns the scores (b,h,s,t), -inf where a query does not see the key. */
static tsr_tensor *make_scores(const call *v, tsri_loc loc)
{
    /* The queries are fewer numbers than the scores. */
    tsr_tensor *mask = v->in[3];
    const bool selects = mask && mask->dtype == TSR_BOOL;
    tsr_tensor *x = tsri_make_scores(tsri_make_scale(v->in[0], v->scale, loc), v->in[1],
                                     v->causal || selects, loc);
    if (x->failed)
        return x;
    if (mask)
        x = selects ? tsr_where_at(mask, x, number(x, -INFINITY, loc), loc.file, loc.line)
                    : tsr_add_at(x, mask, loc.file, loc.line);
    return v->causal ? tsr_causal_mask_at(x, 0, -INFINITY, loc.file, loc.line) : x;
}

static tsr_tensor *compose(const call *v, tsri_loc loc)
{
    tsr_tensor *scores = make_scores(v, loc);
    tsr_tensor *weights = tsr_softmax_at(scores, -1, loc.file, loc.line);
    if (v->in[3] && !scores->failed) { /* of a query that sees no key 0, not 0/0 */
        tsr_tensor *unseen =
            tsr_equal_at(scores, number(scores, -INFINITY, loc), loc.file, loc.line);
        weights = tsr_where_at(unseen, number(weights, 0, loc), weights, loc.file, loc.line);
    }
    if (v->dropout > 0)
        weights = tsr_dropout_at(weights, v->dropout, loc.file, loc.line);
    return tsr_matmul_at(weights, v->in[2], loc.file, loc.line);
}

tsr_tensor *tsr_attention_at(tsr_tensor *q, tsr_tensor *k, tsr_tensor *v,
                             const tsr_attention_opts *opts, const char *file, int line)
{
    tsri_loc loc = {file, line};
    call o;
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "attention", 3, (tsr_tensor *[]){q, k, v}, 0, loc) ||
        !read_call(&c, q, k, v, opts, &o))
        return c.failed;
    return compose(&o, loc);
}

/* --- attention as one op ---------------------------------------------------------------------- */

/* Sets *mask to one of four axes, bool or of q's dtype. */
static bool read_mask(const tsri_ctx *c, const call *v, tsr_tensor **mask)
{
    const tsr_tensor *q = v->in[0];
    tsr_tensor *x = *mask;
    const tsr_dims scores =
        TSR_DIMS(q->shape.d[0], q->shape.d[1], q->shape.d[2], v->in[1]->shape.d[2]);
    tsr_dims dims = TSR_DIMS(1, 1, 1, 1);
    bool fits = x->shape.ndim <= 4;
    for (int i = 4 - x->shape.ndim, j = 0; fits && i < 4; i++, j++) {
        dims.d[i] = x->shape.d[j];
        fits = dims.d[i] == 1 || dims.d[i] == scores.d[i];
    }
    if (!fits)
        return tsri_op_refuse(
            c, TSR_ERR_SHAPE,
            "the mask is %s; it must broadcast to the scores (%lld,%lld,%lld,%lld)",
            tsri_op_dims(c, x), (long long)scores.d[0], (long long)scores.d[1],
            (long long)scores.d[2], (long long)scores.d[3]);
    if (x->dtype != TSR_BOOL && x->dtype != q->dtype && !tsri_autocast_joins(c->g, x, q))
        return tsri_op_refuse(c, TSR_ERR_DTYPE,
                              "the mask is %s and the queries are %s; legal are bool and their "
                              "dtype",
                              tsr_dtype_name(x->dtype), tsr_dtype_name(q->dtype));
    *mask = x->failed ? x : tsri_make_reshape(x, dims, c->loc);
    return !(*mask)->failed;
}

tsr_tensor *tsr_scaled_dot_product_attention_at(tsr_tensor *q, tsr_tensor *k, tsr_tensor *v,
                                                tsr_tensor *mask, const tsr_attention_opts *opts,
                                                const char *file, int line)
{
    tsri_loc loc = {file, line};
    call o;
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "scaled_dot_product_attention", 4, (tsr_tensor *[]){q, k, v, mask},
                             1u << 3, loc) ||
        !read_call(&c, q, k, v, opts, &o) || (mask && !read_mask(&c, &o, &mask)))
        return c.failed;
    o.in[3] = mask;
    if (o.dropout > 0)
        return compose(&o, loc);
    if (mask && mask->dtype == TSR_BOOL) /* -inf hides a key, whatever its score */
        o.in[3] = tsr_where_at(mask, number(q, 0, loc), number(q, -INFINITY, loc), file, line);
    tsri_attrs attrs = {0};
    attrs.attention.scale = o.scale;
    attrs.attention.causal = o.causal;
    attrs.attention.has_mask = mask != NULL;
    const int64_t *s = q->shape.d;
    const tsr_dims shapes[2] = {TSR_DIMS(s[0], s[1], s[2], v->shape.d[3]),
                                TSR_DIMS(s[0], s[1], s[2])};
    const tsr_dtype dtypes[2] = {q->dtype, TSR_F64};
    tsri_op *op = tsri_graph_add(c.g, TSRI_OP_FLASH_ATTENTION, &attrs, mask ? 4 : 3, o.in, 2,
                                 shapes, dtypes, NULL, loc);
    return op ? op->out[0] : c.failed;
}

/* lse does not depend on v. Offsets are for who may see whom. */
static tsr_status rule_flash(const tsri_op *op, tsri_rule_text *out)
{
    const char *at = op->attrs.attention.causal ? "@" : "";
    const char *mask = op->attrs.attention.has_mask ? ", !b h s ." : "";
    return tsri_write_rule(
        out, "!b h s%s ., !b h . ., b h . e%s -> b h s e; !b h s%s ., !b h . ., _%s -> b h s", at,
        mask, at, mask);
}

/* With the weights known, keys and values may be split too; of split values each part has its own
 * share of dy v^T and of the rows' sums of y dy. */
static tsr_status rule_flash_dx(const tsri_op *op, tsri_rule_text *out)
{
    const char *at = op->attrs.attention.causal ? "@" : "";
    const char *mask = op->attrs.attention.has_mask ? ", !b h s t" : "";
    return tsri_write_rule(out,
                           "!b h s%s ., !b h t%s ., !b h t e%s, !b h s e, !b h s, b h s e -> "
                           "b h s ., b h t ., b h t e",
                           at, at, mask);
}

/* The gradient of the mask has its shape before it was broadcast; on the way there is one of all
 * scores: weights (dy v^T - sum of y dy). */
static tsr_tensor *mask_gradient(const tsri_op *op, const call *v, tsr_tensor *dy)
{
    const char *file = op->loc.file;
    const int line = op->loc.line;
    tsr_tensor *y = op->out[0], *lse = op->out[1], *mask = op->in[3];
    tsr_dims rows = lse->shape;
    rows.d[rows.ndim++] = 1;
    /* Rows that see no key have weights 0, not 0/0. */
    tsr_tensor *least =
        tsr_clamp_at(tsr_cast_at(lse, y->dtype, file, line), -3e38, INFINITY, file, line);
    tsr_tensor *weights = tsr_exp_at(
        tsr_sub_at(make_scores(v, op->loc), tsri_make_reshape(least, rows, op->loc), file, line),
        file, line);
    tsr_tensor *dw = tsr_matmul_t_at(dy, op->in[2], false, true, file, line);
    tsr_tensor *sums = tsri_make_sum(tsr_mul_at(y, dy, file, line), 1u << 3, true, 1, op->loc);
    tsr_tensor *ds = tsr_mul_at(weights, tsr_sub_at(dw, sums, file, line), file, line);
    return ds->failed ? ds : tsri_make_sum_to(ds, mask->shape, op->loc);
}

static void grad_flash(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    const bool masked = op->attrs.attention.has_mask;
    if (!dout[0])
        return;
    call v = {.scale = op->attrs.attention.scale, .causal = op->attrs.attention.causal};
    for (int i = 0; i < op->nin; i++)
        v.in[i] = op->in[i];
    if (masked && want[3])
        din[3] = mask_gradient(op, &v, dout[0]);
    if (!want[0] && !want[1] && !want[2])
        return;
    tsr_tensor *in[7];
    int n = 0;
    for (; n < op->nin; n++)
        in[n] = op->in[n];
    in[n++] = op->out[0];
    in[n++] = op->out[1];
    in[n++] = dout[0];
    tsr_dims shapes[3];
    tsr_dtype dtypes[3];
    for (int i = 0; i < 3; i++) {
        shapes[i] = op->in[i]->shape;
        dtypes[i] = op->in[i]->dtype;
    }
    tsri_op *dx = tsri_graph_add(dout[0]->graph, TSRI_OP_FLASH_ATTENTION_DX, &op->attrs, n, in, 3,
                                 shapes, dtypes, NULL, op->loc);
    for (int i = 0; i < 3 && dx; i++)
        din[i] = dx->out[i];
}

/* Multiplications and additions of n products of queries with keys, and of m with values. */
static double flops_products(const tsri_op *op, double n, double m)
{
    const int64_t *q = op->in[0]->shape.d, *v = op->in[2]->shape.d;
    const double pairs = (double)q[0] * (double)q[1] * (double)q[2] * (double)v[2];
    return (op->attrs.attention.causal ? 1 : 2) * pairs * (n * (double)q[3] + m * (double)v[3]);
}

static double flops_flash(const tsri_op *op)
{
    return flops_products(op, 1, 1);
}

static double flops_flash_dx(const tsri_op *op)
{
    return flops_products(op, 3, 2);
}

/* Split values leave each rank the n products of queries with keys. */
static void lie_unevenly(const tsri_op *op, double n, double m, tsri_uneven *out)
{
    const double d = (double)op->in[0]->shape.d[3], e = (double)op->in[2]->shape.d[3];
    *out = (tsri_uneven){.some = "e", .whole = n * d + m * e > 0 ? n * d / (n * d + m * e) : 0};
    if (op->attrs.attention.causal) {
        out->rows = "s";
        out->columns = "t";
    }
}

static void uneven_flash(const tsri_op *op, tsri_uneven *out)
{
    lie_unevenly(op, 1, 1, out);
}

static void uneven_flash_dx(const tsri_op *op, tsri_uneven *out)
{
    lie_unevenly(op, 3, 2, out);
}

/*
 * Returns the part of what 16,384 keys reach forward without a mask, between two lengths by the
 * logarithm: FlashAttention-2 on an H100 with heads of 128 (figures 5 to 7 of Shah et al.,
 * "FlashAttention-3", 2024). A causal gradient, which these lack, is taken to lose what a causal
 * forward pass does.
 */
static double reach_by_length(const tsri_op *op, bool back)
{
    enum { LENGTHS = 6, FIRST = 9 }; /* 512 to 16,384 */
    static const double forward[] = {309, 350, 362, 368, 370, 370};
    static const double causal[] = {191, 260, 298, 319, 333, 335};
    static const double backward[] = {214, 260, 291, 310, 318, 322};
    const int64_t keys = op->in[1]->shape.d[2];
    double at = keys > 0 ? log2((double)keys) - FIRST : 0;
    at = at < 0 ? 0 : at > LENGTHS - 1 ? LENGTHS - 1 : at;
    const int i = at < LENGTHS - 1 ? (int)at : LENGTHS - 2;
    double part[2];
    for (int k = 0; k < 2; k++)
        part[k] = (back ? backward : forward)[i + k] / forward[LENGTHS - 1] *
                  (op->attrs.attention.causal ? causal[i + k] / forward[i + k] : 1);
    return part[0] + (at - i) * (part[1] - part[0]);
}

static double reach_flash(const tsri_op *op)
{
    return reach_by_length(op, false);
}

static double reach_flash_dx(const tsri_op *op)
{
    return reach_by_length(op, true);
}

/* Returns bits for halves without a mask, which cuDNN's engines take, else 0. */
static uint32_t halves_by_head(const tsri_attrs *attrs, tsr_dtype dtype, uint32_t bits)
{
    return tsri_is_half(dtype) && !attrs->attention.has_mask ? bits : 0;
}

/* (q, k, v) -> y, lse */
static uint32_t by_head_flash(const tsri_attrs *attrs, tsr_dtype dtype, bool results)
{
    return halves_by_head(attrs, dtype, results ? 1u : 7u);
}

/* (q, k, v, y, lse, dy) -> dq, dk, dv */
static uint32_t by_head_flash_dx(const tsri_attrs *attrs, tsr_dtype dtype, bool results)
{
    return halves_by_head(attrs, dtype, results ? 7u : 0x2f);
}

static const tsri_attr_field attention_attrs[] = {TSRI_ATTR_FIELD(attention.scale, F64, "scale"),
                                                  TSRI_ATTR_FIELD(attention.causal, I32, "causal"),
                                                  TSRI_ATTR_END};

const tsri_op_def tsri_def_flash_attention = {.rule = rule_flash,
                                              .gradient = grad_flash,
                                              .flops = flops_flash,
                                              .uneven = uneven_flash,
                                              .reach = reach_flash,
                                              .by_head = by_head_flash,
                                              .autocast = TSRI_AUTOCAST_LOW,
                                              .is_product = true,
                                              .is_attention = true,
                                              .attrs = attention_attrs};
const tsri_op_def tsri_def_flash_attention_dx = {.rule = rule_flash_dx,
                                                 .flops = flops_flash_dx,
                                                 .uneven = uneven_flash_dx,
                                                 .reach = reach_flash_dx,
                                                 .by_head = by_head_flash_dx,
                                                 .is_product = true,
                                                 .is_attention = true,
                                                 .attrs = attention_attrs};
