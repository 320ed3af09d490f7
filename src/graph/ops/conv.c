/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution, NCHW. */
#include <stdio.h>
#include <string.h>

#include "src/graph/op.h"

/* Options to attributes; the kernel size is the weight's. */
static bool read_options(const tsri_ctx *c, const tsr_conv2d_opts *opts, const tsr_tensor *w,
                         tsri_attrs *out)
{
    tsr_conv2d_opts o = *TSR_CONV2D_OPTS();
    *out = (tsri_attrs){0};
    if (!tsri_want_options(c, &o, sizeof o, opts) ||
        !tsri_want_pair(c, "stride", o.stride, 1, out->conv.stride) ||
        !tsri_want_pair(c, "padding", o.padding, 0, out->conv.pad) ||
        !tsri_want_pair(c, "dilation", o.dilation, 1, out->conv.dilation))
        return false;
    if (o.groups < 1)
        return tsri_op_refuse(c, TSR_ERR_INVALID, "groups is %lld; it must be at least 1",
                              (long long)o.groups);
    out->conv.groups = o.groups;
    for (int i = 0; i < 2; i++) {
        int64_t k = w->shape.d[2 + i];
        if (k < 1 || k > INT32_MAX)
            return tsri_op_refuse(c, TSR_ERR_SHAPE, "weight %s: kernel sizes must be at least 1",
                                  tsri_op_dims(c, w));
        out->conv.kernel[i] = (int32_t)k;
    }
    return true;
}

static bool want_channels(const tsri_ctx *c, const tsr_tensor *x, const tsr_tensor *w,
                          int64_t groups)
{
    int64_t channels = x->shape.d[1], out = w->shape.d[0];
    if (channels % groups || out % groups)
        return tsri_op_refuse(
            c, TSR_ERR_SHAPE,
            "x %s, weight %s: %lld groups must divide the %lld channels in and the %lld out",
            tsri_op_dims(c, x), tsri_op_dims(c, w), (long long)groups, (long long)channels,
            (long long)out);
    if (channels / groups == w->shape.d[1])
        return true;
    return tsri_op_refuse(
        c, TSR_ERR_SHAPE,
        "x %s, weight %s: with %lld group%s the weight must be (%lld,%lld,%lld,%lld)",
        tsri_op_dims(c, x), tsri_op_dims(c, w), (long long)groups, groups == 1 ? "" : "s",
        (long long)out, (long long)(channels / groups), (long long)w->shape.d[2],
        (long long)w->shape.d[3]);
}

tsr_tensor *tsr_conv2d_at(tsr_tensor *x, tsr_tensor *w, tsr_tensor *b, const tsr_conv2d_opts *opts,
                          const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *in[3] = {x, w, b};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "conv2d", 3, in, 1u << 2, loc))
        return c.failed;
    if (x->shape.ndim != 4 || w->shape.ndim != 4)
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "x %s, weight %s; legal are x (n,c,h,w), weight (o,c/groups,kh,kw)",
                            tsri_op_dims(&c, x), tsri_op_dims(&c, w));
    tsri_attrs attrs;
    if (!read_options(&c, opts, w, &attrs) || !want_channels(&c, x, w, attrs.conv.groups) ||
        !tsri_want_same_dtype(&c, 3, in) || !tsri_want_float(&c, x) ||
        (b && !tsri_want_vector(&c, "bias", b, w->shape.d[0])))
        return c.failed;
    tsr_dims shape = TSR_DIMS(x->shape.d[0], w->shape.d[0], 0, 0);
    for (int i = 0; i < 2; i++) {
        int64_t padded = x->shape.d[2 + i] + 2 * (int64_t)attrs.conv.pad[i];
        int64_t window = (int64_t)attrs.conv.dilation[i] * (attrs.conv.kernel[i] - 1) + 1;
        if (padded < window)
            return tsri_op_fail(
                &c, TSR_ERR_SHAPE,
                "x %s: the window of %lld (kernel with dilation) is larger than the "
                "%lld elements of axis %d with padding; pad more",
                tsri_op_dims(&c, x), (long long)window, (long long)padded, 2 + i);
        shape.d[2 + i] = (padded - window) / attrs.conv.stride[i] + 1;
    }
    return tsri_graph_add1(c.g, TSRI_OP_CONV2D, &attrs, b ? 3 : 2, in, shape, x->dtype, loc);
}

/* --- rules ------------------------------------------------------------------------------------ */

/* The shapes of the data, the weight and the result of a convolution, of which an op has one as its
 * own result. */
typedef struct conv_shapes {
    tsr_dims data, weight, res;
} conv_shapes;

static conv_shapes shapes_of(const tsri_op *op)
{
    const tsr_dims a = op->in[0]->shape, b = op->in[1]->shape, c = op->out[0]->shape;
    return op->kind == TSRI_OP_CONV2D      ? (conv_shapes){a, b, c}
           : op->kind == TSRI_OP_CONV2D_DX ? (conv_shapes){c, b, a}
                                           : (conv_shapes){a, c, b};
}

/* A and B: how axes h and w of the data and of the result read; C: the bias. Windows that neither
 * overlap nor hang over split with them; others would need halos. */
static void name_axes(const tsri_op *op, tsri_rule_names *names, tsri_rule_text *out)
{
    static const char *const whole[2] = {"h", "w"}, *const part[2] = {"(h .)", "(w .)"};
    const conv_shapes s = shapes_of(op);
    const int64_t groups = op->attrs.conv.groups;
    const char *d[2], *r[2];
    tsri_add_size(out, "g", groups);
    tsri_add_size(out, "i", s.weight.d[1]);
    tsri_add_size(out, "o", s.weight.d[0] / groups);
    for (int i = 0; i < 2; i++) {
        int64_t stride = op->attrs.conv.stride[i];
        int64_t window = (int64_t)op->attrs.conv.dilation[i] * (op->attrs.conv.kernel[i] - 1) + 1;
        bool apart =
            window <= stride && op->attrs.conv.pad[i] == 0 && s.data.d[2 + i] % stride == 0;
        d[i] = !apart ? "." : stride == 1 ? whole[i] : part[i];
        r[i] = apart ? whole[i] : ".";
        if (apart && stride > 1)
            tsri_add_size(out, whole[i], s.res.d[2 + i]);
    }
    sprintf(names->a, "%s %s", d[0], d[1]);
    sprintf(names->b, "%s %s", r[0], r[1]);
    strcpy(names->c, op->kind == TSRI_OP_CONV2D && op->nin == 3 ? " + (g o)" : "");
}

/* --- gradients, cost -------------------------------------------------------------------------- */

static void grad_conv(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    tsr_tensor *x = op->in[0], *w = op->in[1], *dy = dout[0];
    tsr_tensor *dx_in[2] = {dy, w}, *dw_in[2] = {x, dy};
    if (want[0])
        din[0] = tsri_graph_add_like(TSRI_OP_CONV2D_DX, &op->attrs, 2, dx_in, x, op->loc);
    if (want[1])
        din[1] = tsri_graph_add_like(TSRI_OP_CONV2D_DW, &op->attrs, 2, dw_in, w, op->loc);
    if (op->nin == 3 && want[2])
        din[2] = tsri_make_sum(dy, 1u << 0 | 1u << 2 | 1u << 3, false, 1, op->loc);
}

/* The result's gradient takes the place of the data's. */
static void grad_dx(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    tsr_tensor *dy = op->in[0], *w = op->in[1], *g = dout[0];
    tsr_tensor *dy_in[2] = {g, w}, *w_in[2] = {g, dy};
    if (want[0])
        din[0] = tsri_graph_add_like(TSRI_OP_CONV2D, &op->attrs, 2, dy_in, dy, op->loc);
    if (want[1])
        din[1] = tsri_graph_add_like(TSRI_OP_CONV2D_DW, &op->attrs, 2, w_in, w, op->loc);
}

/* The result's gradient takes the place of the weight's. */
static void grad_dw(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    tsr_tensor *x = op->in[0], *dy = op->in[1], *g = dout[0];
    tsr_tensor *x_in[2] = {dy, g}, *dy_in[2] = {x, g};
    if (want[0])
        din[0] = tsri_graph_add_like(TSRI_OP_CONV2D_DX, &op->attrs, 2, x_in, x, op->loc);
    if (want[1])
        din[1] = tsri_graph_add_like(TSRI_OP_CONV2D, &op->attrs, 2, dy_in, dy, op->loc);
}

/* Every weight meets each position of the result: 2 * |weight| * n * h' * w'. */
static double flops(const tsri_op *op)
{
    const conv_shapes s = shapes_of(op);
    return 2 * (double)tsr_dims_count(s.weight) * (double)s.res.d[0] * (double)s.res.d[2] *
           (double)s.res.d[3];
}

static const tsri_attr_field conv_attrs[] = {TSRI_ATTR_FIELDS(conv.stride, I32, 2, "stride"),
                                             TSRI_ATTR_FIELDS(conv.pad, I32, 2, "padding"),
                                             TSRI_ATTR_FIELDS(conv.dilation, I32, 2, "dilation"),
                                             TSRI_ATTR_FIELDS(conv.kernel, I32, 2, "kernel"),
                                             TSRI_ATTR_FIELD(conv.groups, I64, "groups"),
                                             TSRI_ATTR_END};

/* 1x1 and grouped, of which kernels take the depthwise ones row by row. */
static bool may_chain(const tsri_attrs *a)
{
    bool one = a->conv.groups == 1;
    for (int i = 0; i < 2; i++)
        one = one && a->conv.kernel[i] == 1 && a->conv.stride[i] == 1 && a->conv.pad[i] == 0;
    return one || a->conv.groups > 1;
}

/* A part in time of the channels has whole groups. */
static void cut_groups(tsri_op *op, const tsri_signature *sig, int k)
{
    const int channels = op->kind == TSRI_OP_CONV2D_DW ? 0 : 1;
    if (op->attrs.conv.groups > 1 && sig->out[0].kind == TSR_SBP_SPLIT &&
        sig->out[0].arg == channels)
        op->attrs.conv.groups /= k;
}

const tsri_op_def tsri_def_conv2d = {.rule_text = "n (g i) A, (g o) i . .C -> n (g o) B",
                                     .names = name_axes,
                                     .cut = cut_groups,
                                     .gradient = grad_conv,
                                     .flops = flops,
                                     .is_product = true,
                                     .attrs = conv_attrs,
                                     .layout = TSRI_LAYOUT_NHWC,
                                     .rows_in = 1 << 1,
                                     .chain = TSRI_CHAIN_PRODUCT,
                                     .walks = 1 << 0,
                                     .may_chain = may_chain,
                                     .has_groups = true,
                                     .autocast = TSRI_AUTOCAST_LOW};
const tsri_op_def tsri_def_conv2d_dx = {.rule_text = "n (g o) B, (g o) i . . -> n (g i) A",
                                        .names = name_axes,
                                        .cut = cut_groups,
                                        .gradient = grad_dx,
                                        .flops = flops,
                                        .is_product = true,
                                        .attrs = conv_attrs,
                                        .layout = TSRI_LAYOUT_NHWC,
                                        .rows_in = 1 << 1,
                                        .chain = TSRI_CHAIN_PRODUCT,
                                        .walks = 1 << 0,
                                        .may_chain = may_chain,
                                        .has_groups = true,
                                        .autocast = TSRI_AUTOCAST_LOW};
const tsri_op_def tsri_def_conv2d_dw = {.rule_text = "n (g i) A, n (g o) B -> (g o) i . .",
                                        .names = name_axes,
                                        .cut = cut_groups,
                                        .gradient = grad_dw,
                                        .flops = flops,
                                        .is_product = true,
                                        .attrs = conv_attrs,
                                        .layout = TSRI_LAYOUT_NHWC,
                                        .rows_out = 1 << 0,
                                        .chain = TSRI_CHAIN_OUTER,
                                        .walks = 3,
                                        .may_chain = may_chain,
                                        .has_groups = true};
