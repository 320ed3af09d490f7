/* SPDX-License-Identifier: Apache-2.0 */
/* Another size of an axis, which is not split, by elements between its own: linear in x. */
#include "src/graph/op.h"

tsr_tensor *tsri_make_resize(tsr_tensor *x, int axis, int64_t size, tsri_resize_how how,
                             tsri_loc loc)
{
    if (x->failed || x->shape.d[axis] == size)
        return x;
    tsri_attrs attrs = {0};
    attrs.resize.axis = axis;
    attrs.resize.how = how;
    tsr_dims dims = x->shape;
    dims.d[axis] = size;
    return tsri_graph_add1(x->graph, TSRI_OP_RESIZE, &attrs, 1, &x, dims, x->dtype, loc);
}

static void name_line(const tsri_op *op, tsri_rule_names *names, tsri_rule_text *out)
{
    (void)out;
    tsri_axes_text(names->a, op->in[0]->shape.ndim, 1u << op->attrs.resize.axis, '.');
}

static void grad_resize(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    din[0] = tsri_graph_add_like(TSRI_OP_RESIZE_DX, &op->attrs, 1, &dout[0], op->in[0], op->loc);
}

static void grad_resize_dx(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    (void)want;
    din[0] = tsri_graph_add_like(TSRI_OP_RESIZE, &op->attrs, 1, &dout[0], op->in[0], op->loc);
}

static const tsri_attr_field resize_attrs[] = {TSRI_ATTR_FIELD(resize.axis, I32, "axis"),
                                               TSRI_ATTR_FIELD(resize.how, I32, "how"),
                                               TSRI_ATTR_END};

const tsri_op_def tsri_def_resize = {.rule_text = "A -> A",
                                     .names = name_line,
                                     .gradient = grad_resize,
                                     .flops_per_element = 3,
                                     .attrs = resize_attrs};
const tsri_op_def tsri_def_resize_dx = {.rule_text = "A -> A",
                                        .names = name_line,
                                        .gradient = grad_resize_dx,
                                        .flops_per_element = 4,
                                        .attrs = resize_attrs};
