/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout and the ops that make values: random numbers, constants. An element's number depends on
 * its global index alone, so on no placement and no signature. */
#include <math.h>

#include "src/core/rng.h"
#include "src/graph/op.h"

tsr_tensor *tsr_dropout_at(tsr_tensor *x, double p, const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "dropout", 1, &x, 0, loc) || !tsri_want_float(&c, x))
        return c.failed;
    if (!(p >= 0 && p < 1))
        return tsri_op_fail(&c, TSR_ERR_INVALID, "p is %g; it must be in [0, 1)", p);
    if (!c.g->training || p == 0) {
        tsr_tensor *y = tsri_as_result(x, x, loc);
        if (p > 0 && y->op)
            y->op->evaluates = "dropout drops nothing";
        return y;
    }
    tsri_attrs attrs = {0};
    attrs.dropout.key = tsri_graph_rng_key(c.g, TSRI_OP_DROPOUT);
    attrs.dropout.p = p;
    tsr_tensor *in[2] = {x, tsri_graph_step(c.g, x->placement, loc)};
    return tsri_graph_add_like(TSRI_OP_DROPOUT, &attrs, 2, in, x, loc);
}

static void grad_dropout(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    tsr_tensor *x = op->in[0], *in[2] = {dout[0], op->in[1]};
    if (want[0])
        din[0] = tsri_graph_add_like(TSRI_OP_DROPOUT, &op->attrs, 2, in, x, op->loc);
}

static double flops_random(const tsri_op *op)
{
    return 10 * (double)tsr_dims_count(op->out[0]->shape);
}

static const char *rule_dropout(const tsri_op *op)
{
    return op->nin == 3 ? "B, !(), !() -> B" : "B, !() -> B";
}

static const tsri_attr_field dropout_attrs[] = {
    TSRI_ATTR_FIELD(dropout.p, F64, "p"),           TSRI_ATTR_KEY(dropout.key),
    TSRI_ATTR_FIELD(dropout.axis, I32, "axis"),     TSRI_ATTR_FIELD(dropout.parts, I32, "parts"),
    TSRI_ATTR_FIELD(dropout.blocks, I64, "blocks"), TSRI_ATTR_END};

const tsri_op_def tsri_def_dropout = {.counts_whole = true,
                                      .rule_of = rule_dropout,
                                      .gradient = grad_dropout,
                                      .flops = flops_random,
                                      .attrs = dropout_attrs,
                                      .layout = TSRI_LAYOUT_ANY,
                                      .alike = 1 << 0,
                                      .has_key = true};

/* --- sources ---------------------------------------------------------------------------------- */

tsr_tensor *tsri_add_source(tsr_graph *g, tsri_op_kind kind, const tsri_attrs *attrs, tsr_dims dims,
                            tsr_dtype dtype, const tsr_placement *p, tsr_sbp sbp, tsri_loc loc)
{
    tsri_op *op = tsri_graph_add(g, kind, attrs, 0, NULL, 1, &dims, &dtype, p, loc);
    if (!op)
        return &g->failure.tensor;
    op->sbp = sbp;
    return op->out[0];
}

static tsr_tensor *declare_random(const tsri_ctx *c, tsri_random_dist dist, const char *name,
                                  tsr_dtype dtype, tsr_dims dims, const tsr_placement *p,
                                  tsr_sbp sbp, double a, double b)
{
    if (!tsri_want_new(c, dtype, dims, p, sbp))
        return tsri_refused_new(c);
    if (!name || !name[0])
        return tsri_op_fail(c, TSR_ERR_INVALID, "a name is needed, from which the numbers follow");
    if (!tsri_is_float(dtype))
        return tsri_op_fail(c, TSR_ERR_DTYPE,
                            "'%s' is %s; floating point is drawn: use tsr_cast afterwards", name,
                            tsr_dtype_name(dtype));
    if (!isfinite(a) || !isfinite(b))
        return tsri_op_fail(c, TSR_ERR_INVALID, "'%s': %g and %g; both must be finite", name, a, b);
    if (dist == TSRI_RANDOM_UNIFORM && a > b)
        return tsri_op_fail(c, TSR_ERR_INVALID, "'%s': low %g is above high %g", name, a, b);
    if (dist == TSRI_RANDOM_NORMAL && b < 0)
        return tsri_op_fail(c, TSR_ERR_INVALID, "'%s': std is %g; it must not be negative", name,
                            b);
    tsri_attrs attrs = {0};
    attrs.random.key = tsri_rng_key(c->g->seed, name);
    attrs.random.dist = dist;
    attrs.random.a = a;
    attrs.random.b = b;
    return tsri_add_source(c->g, TSRI_OP_RANDOM, &attrs, dims, dtype, p, sbp, c->loc);
}

tsr_tensor *tsr_uniform_at(tsr_graph *g, const char *name, tsr_dtype dtype, tsr_dims dims,
                           const tsr_placement *p, tsr_sbp sbp, double low, double high,
                           const char *file, int line)
{
    tsri_ctx c = {.g = g, .loc = {file, line}, .op = "uniform"};
    return declare_random(&c, TSRI_RANDOM_UNIFORM, name, dtype, dims, p, sbp, low, high);
}

tsr_tensor *tsr_normal_at(tsr_graph *g, const char *name, tsr_dtype dtype, tsr_dims dims,
                          const tsr_placement *p, tsr_sbp sbp, double mean, double std,
                          const char *file, int line)
{
    tsri_ctx c = {.g = g, .loc = {file, line}, .op = "normal"};
    return declare_random(&c, TSRI_RANDOM_NORMAL, name, dtype, dims, p, sbp, mean, std);
}

tsr_tensor *tsr_full_at(tsr_graph *g, tsr_dtype dtype, tsr_dims dims, const tsr_placement *p,
                        tsr_sbp sbp, double value, const char *file, int line)
{
    tsri_ctx c = {.g = g, .loc = {file, line}, .op = "full"};
    if (!tsri_want_new(&c, dtype, dims, p, sbp) || !tsri_want_value(&c, dtype, value))
        return tsri_refused_new(&c);
    tsri_attrs attrs = {0};
    attrs.fill.value = value;
    return tsri_add_source(g, TSRI_OP_FILL, &attrs, dims, dtype, p, sbp, c.loc);
}

tsr_tensor *tsri_make_fill(tsr_graph *g, tsr_dims dims, tsr_dtype dtype, const tsr_placement *p,
                           double value, tsri_loc loc)
{
    tsri_attrs attrs = {0};
    attrs.fill.value = value;
    return tsri_add_source(g, TSRI_OP_FILL, &attrs, dims, dtype, p, TSR_AUTO, loc);
}

/* Declares numbers of x's shape, dtype and placement that differ from step to step. */
static tsr_tensor *draw_like(const char *name, tsr_tensor *x, tsri_random_dist dist, tsri_loc loc)
{
    tsri_ctx c;
    if (!tsri_op_begin(&c, name, 1, &x, 0, loc) || !tsri_want_float(&c, x))
        return c.failed;
    tsri_attrs attrs = {0};
    attrs.random.key = tsri_graph_rng_key(c.g, TSRI_OP_RANDOM);
    attrs.random.dist = dist;
    attrs.random.b = 1;
    tsr_tensor *step = tsri_graph_step(c.g, x->placement, loc);
    return tsri_graph_add1(c.g, TSRI_OP_RANDOM, &attrs, 1, &step, x->shape, x->dtype, loc);
}

tsr_tensor *tsr_rand_like_at(tsr_tensor *x, const char *file, int line)
{
    return draw_like("rand_like", x, TSRI_RANDOM_UNIFORM, (tsri_loc){file, line});
}

tsr_tensor *tsr_randn_like_at(tsr_tensor *x, const char *file, int line)
{
    return draw_like("randn_like", x, TSRI_RANDOM_NORMAL, (tsri_loc){file, line});
}

/* The numbers of a step have it as their operand. */
static const char *rule_random(const tsri_op *op)
{
    return op->nin ? "!() -> B" : "-> B";
}

static void name_random(const tsri_op *op, tsri_rule_names *names, tsri_rule_text *out)
{
    const int ndim = op->out[0]->shape.ndim;
    (void)out;
    tsri_offset_axes(names->b, ndim, ndim);
}

static const tsri_attr_field drawn_attrs[] = {
    TSRI_ATTR_FIELD(random.dist, I32, "distribution"), TSRI_ATTR_FIELD(random.a, F64, "a"),
    TSRI_ATTR_FIELD(random.b, F64, "b"), TSRI_ATTR_KEY(random.key), TSRI_ATTR_END};

const tsri_op_def tsri_def_random = {.rule_of = rule_random,
                                     .names = name_random,
                                     .flops = flops_random,
                                     .attrs = drawn_attrs,
                                     .has_key = true};
static const tsri_attr_field fill_attrs[] = {TSRI_ATTR_FIELD(fill.value, F64, "value"),
                                             TSRI_ATTR_END};

const tsri_op_def tsri_def_fill = {.spreads = true, .rule_text = "-> A", .attrs = fill_attrs};
