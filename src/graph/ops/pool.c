/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling, NCHW. */
#include <stdio.h>

#include "src/graph/op.h"

static bool want_planes(const tsri_ctx *c, const tsr_tensor *x)
{
    if (x->shape.ndim != 4)
        return tsri_op_refuse(c, TSR_ERR_SHAPE, "x is %s; it must be (n,c,h,w)",
                              tsri_op_dims(c, x));
    if (x->shape.d[2] == 0 || x->shape.d[3] == 0)
        return tsri_op_refuse(c, TSR_ERR_SHAPE, "x is %s; planes must not be empty",
                              tsri_op_dims(c, x));
    return tsri_want_float(c, x);
}

static bool read_options(const tsri_ctx *c, const tsr_pool2d_opts *opts, tsri_attrs *out)
{
    tsr_pool2d_opts o = *TSR_POOL2D_OPTS();
    *out = (tsri_attrs){0};
    if (!tsri_want_options(c, &o, sizeof o, opts) ||
        !tsri_want_pair(c, "kernel", o.kernel, 1, out->pool.kernel) ||
        !tsri_want_pair(c, "padding", o.padding, 0, out->pool.pad))
        return false;
    for (int i = 0; i < 2; i++) {
        /* The default stride is the kernel, of each axis. */
        out->pool.stride[i] = out->pool.kernel[i];
        if (out->pool.pad[i] > out->pool.kernel[i] / 2)
            return tsri_op_refuse(
                c, TSR_ERR_INVALID,
                "padding %d is more than half the kernel %d: windows would be all padding",
                out->pool.pad[i], out->pool.kernel[i]);
    }
    if ((o.stride.h || o.stride.w) && !tsri_want_pair(c, "stride", o.stride, 1, out->pool.stride))
        return false;
    out->pool.count_include_pad = o.count_include_pad;
    return true;
}

static bool pooled_shape(const tsri_ctx *c, const tsr_tensor *x, const tsri_attrs *attrs,
                         tsr_dims *out)
{
    *out = x->shape;
    for (int i = 0; i < 2; i++) {
        int64_t padded = x->shape.d[2 + i] + 2 * (int64_t)attrs->pool.pad[i];
        if (padded < attrs->pool.kernel[i])
            return tsri_op_refuse(
                c, TSR_ERR_SHAPE,
                "x %s: kernel %d is larger than the %lld elements of axis %d with padding",
                tsri_op_dims(c, x), attrs->pool.kernel[i], (long long)padded, 2 + i);
        out->d[2 + i] = (padded - attrs->pool.kernel[i]) / attrs->pool.stride[i] + 1;
    }
    return true;
}

tsr_tensor *tsr_max_pool2d_at(tsr_tensor *x, const tsr_pool2d_opts *opts, const char *file,
                              int line)
{
    tsri_loc loc = {file, line};
    tsri_ctx c;
    tsri_attrs attrs;
    tsr_dims shape[2];
    if (!tsri_op_begin(&c, "max_pool2d", 1, &x, 0, loc) || !want_planes(&c, x) ||
        !read_options(&c, opts, &attrs) || !pooled_shape(&c, x, &attrs, &shape[0]))
        return c.failed;
    if (x->shape.d[2] > INT32_MAX / x->shape.d[3])
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "x %s: planes may have at most %d elements",
                            tsri_op_dims(&c, x), INT32_MAX);
    shape[1] = shape[0];
    tsr_dtype dtype[2] = {x->dtype, TSR_I32};
    tsri_op *op = tsri_graph_add(c.g, TSRI_OP_MAX_POOL, &attrs, 1, &x, 2, shape, dtype, NULL, loc);
    return op ? op->out[0] : &c.g->failure.tensor;
}

tsr_tensor *tsr_avg_pool2d_at(tsr_tensor *x, const tsr_pool2d_opts *opts, const char *file,
                              int line)
{
    tsri_loc loc = {file, line};
    tsri_ctx c;
    tsri_attrs attrs;
    tsr_dims shape;
    if (!tsri_op_begin(&c, "avg_pool2d", 1, &x, 0, loc) || !want_planes(&c, x) ||
        !read_options(&c, opts, &attrs) || !pooled_shape(&c, x, &attrs, &shape))
        return c.failed;
    return tsri_graph_add1(c.g, TSRI_OP_AVG_POOL, &attrs, 1, &x, shape, x->dtype, loc);
}

tsr_tensor *tsr_adaptive_avg_pool2d_at(tsr_tensor *x, int64_t out_h, int64_t out_w,
                                       const char *file, int line)
{
    tsri_loc loc = {file, line};
    const char *name = "adaptive_avg_pool2d";
    tsri_ctx c;
    if (!tsri_op_begin(&c, name, 1, &x, 0, loc) || !want_planes(&c, x))
        return c.failed;
    if (out_h < 1 || out_w < 1)
        return tsri_op_fail(&c, TSR_ERR_INVALID, "result size (%lld,%lld); each must be at least 1",
                            (long long)out_h, (long long)out_w);
    tsr_dims shape = TSR_DIMS(x->shape.d[0], x->shape.d[1], out_h, out_w);
    return tsri_graph_add1(c.g, TSRI_OP_ADAPTIVE_POOL, NULL, 1, &x, shape, x->dtype, loc);
}

/* --- max -------------------------------------------------------------------------------------- */

static void grad_max_pool(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    tsr_tensor *in[2] = {op->out[1], dout[0]}, *x = op->in[0];
    if (dout[0])
        din[0] = tsri_graph_add_like(TSRI_OP_MAX_POOL_DX, &op->attrs, 2, in, x, op->loc);
}

static double flops_window(const tsri_op *op)
{
    return (double)tsr_dims_count(op->out[0]->shape) * op->attrs.pool.kernel[0] *
           op->attrs.pool.kernel[1];
}

static const tsri_attr_field pool_attrs[] = {
    TSRI_ATTR_FIELDS(pool.kernel, I32, 2, "kernel"),
    TSRI_ATTR_FIELDS(pool.stride, I32, 2, "stride"), TSRI_ATTR_FIELDS(pool.pad, I32, 2, "padding"),
    TSRI_ATTR_FIELD(pool.count_include_pad, I32, "count_include_pad"), TSRI_ATTR_END};

/* The second result, the winners' places, is not a maximum of places: so no '^'. */
const tsri_op_def tsri_def_max_pool = {.rule_text = "!n c . . -> n c . ., n c . .",
                                       .gradient = grad_max_pool,
                                       .flops = flops_window,
                                       .attrs = pool_attrs,
                                       .layout = TSRI_LAYOUT_NHWC};
const tsri_op_def tsri_def_max_pool_dx = {
    .rule_text = "!n c . ., n c . . -> n c . .", .attrs = pool_attrs, .layout = TSRI_LAYOUT_NHWC};

/* --- averages --------------------------------------------------------------------------------- */

/* A: how the axes of the plane read, B: those of its windows. Along an axis one window is all, or
 * windows tile it, or they overlap, and it can't be split. One window of halves is not split
 * either: its sum would cross ranks in halves. */
static void name_windows(const tsri_op *op, tsri_rule_names *names, tsri_rule_text *out)
{
    static const char *const letter[2] = {"h", "w"}, *const tiles[2] = {"(h .)", "(w .)"};
    const bool forward = op->kind == TSRI_OP_AVG_POOL || op->kind == TSRI_OP_ADAPTIVE_POOL;
    const bool adapts = op->kind == TSRI_OP_ADAPTIVE_POOL || op->kind == TSRI_OP_ADAPTIVE_POOL_DX;
    const tsr_dims big = forward ? op->in[0]->shape : op->out[0]->shape;
    const tsr_dims small = forward ? op->out[0]->shape : op->in[0]->shape;
    const char *plane[2], *window[2];
    for (int i = 0; i < 2; i++) {
        const int32_t stride = op->attrs.pool.stride[i];
        const bool is_all = adapts && small.d[2 + i] == 1;
        const bool tile = adapts ? big.d[2 + i] % small.d[2 + i] == 0
                                 : op->attrs.pool.pad[i] == 0 && big.d[2 + i] % stride == 0 &&
                                       op->attrs.pool.kernel[i] <= stride;
        const bool crosses = forward && is_all && tsri_is_half(op->out[0]->dtype);
        plane[i] = crosses ? "." : is_all ? letter[i] : tile ? tiles[i] : ".";
        window[i] = is_all ? "1" : tile ? letter[i] : ".";
        if (tile && !is_all)
            tsri_add_size(out, letter[i], small.d[2 + i]);
    }
    sprintf(names->a, "%s %s", plane[0], plane[1]);
    sprintf(names->b, "%s %s", window[0], window[1]);
}

static void grad_avg(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    tsr_tensor *x = op->in[0];
    tsri_op_kind kind =
        op->kind == TSRI_OP_AVG_POOL ? TSRI_OP_AVG_POOL_DX : TSRI_OP_ADAPTIVE_POOL_DX;
    din[0] = tsri_graph_add_like(kind, &op->attrs, 1, &dout[0], x, op->loc);
}

const tsri_op_def tsri_def_avg_pool = {.rule_text = "n c A -> n c B",
                                       .names = name_windows,
                                       .gradient = grad_avg,
                                       .flops = flops_window,
                                       .attrs = pool_attrs,
                                       .layout = TSRI_LAYOUT_ANY};
const tsri_op_def tsri_def_avg_pool_dx = {.rule_text = "n c B -> n c A",
                                          .names = name_windows,
                                          .attrs = pool_attrs,
                                          .layout = TSRI_LAYOUT_NHWC};
const tsri_op_def tsri_def_adaptive_pool = {.cuts = TSRI_CUT_ROWS,
                                            .rule_text = "n c A -> n c B",
                                            .names = name_windows,
                                            .gradient = grad_avg,
                                            .flops_per_element = 1,
                                            .attrs = pool_attrs,
                                            .layout = TSRI_LAYOUT_PLANES};
const tsri_op_def tsri_def_adaptive_pool_dx = {.cuts = TSRI_CUT_ROWS,
                                               .rule_text = "n c B -> n c A",
                                               .names = name_windows,
                                               .attrs = pool_attrs,
                                               .layout = TSRI_LAYOUT_NHWC};
