/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements by ids of their own: torch.gather, and the sum into places, torch.scatter_add. As a
 * product of each line with the matrix of zeros and ones that its ids stand for, gather is linear
 * in x and sums over the axis: with the axis split each part adds what it holds.
 */
#include "src/graph/op.h"

/* Checks ids beside the shape of what they point into: as many axes, and none longer but the axis.
 */
static bool want_ids(const tsri_ctx *c, const tsr_tensor *x, const tsr_tensor *ids, int axis)
{
    if (ids->dtype != TSR_I64)
        return tsri_op_refuse(c, TSR_ERR_DTYPE,
                              "ids are %s; i64 is needed: use tsr_cast(ids, TSR_I64)",
                              tsr_dtype_name(ids->dtype));
    bool fits = x->shape.ndim == ids->shape.ndim;
    for (int i = 0; i < x->shape.ndim && fits; i++)
        fits = i == axis || ids->shape.d[i] <= x->shape.d[i];
    return fits ||
           tsri_op_refuse(c, TSR_ERR_SHAPE,
                          "ids are %s; they must have the axes of x %s, and none longer but "
                          "axis %d",
                          tsri_op_dims(c, ids), tsri_op_dims(c, x), axis);
}

/* The dims of x with the sizes of ids, but for the axis. */
static tsr_dims lines_of(tsr_dims x, tsr_dims ids, int axis)
{
    ids.d[axis] = x.d[axis];
    return ids;
}

static tsr_tensor *add(tsri_op_kind kind, int axis, tsr_tensor *const in[2], tsr_dims shape,
                       tsr_dtype dtype, tsri_loc loc)
{
    tsri_attrs attrs = {0};
    attrs.gather.axis = axis;
    return tsri_graph_add1(in[0]->graph, kind, &attrs, 2, in, shape, dtype, loc);
}

tsr_tensor *tsr_gather_at(tsr_tensor *x, int axis, tsr_tensor *ids, const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *in[2] = {x, ids};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "gather", 2, in, 0, loc) || !tsri_want_axis(&c, x, &axis) ||
        !want_ids(&c, x, ids, axis))
        return c.failed;
    const tsr_dims lines = lines_of(x->shape, ids->shape, axis);
    const tsr_dims zeros = {.ndim = lines.ndim};
    if (!tsr_dims_equal(lines, x->shape))
        in[0] = tsr_slice_at(x, zeros, lines, TSR_SCALAR, file, line);
    return in[0]->failed ? in[0] : add(TSRI_OP_GATHER, axis, in, ids->shape, x->dtype, loc);
}

tsr_tensor *tsr_scatter_add_at(tsr_tensor *x, int axis, tsr_tensor *ids, tsr_tensor *y,
                               const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *all[3] = {x, ids, y}, *floats[2] = {x, y}, *in[2] = {ids, y};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "scatter_add", 3, all, 0, loc) || !tsri_want_same_dtype(&c, 2, floats) ||
        !tsri_want_float(&c, x) || !tsri_want_axis(&c, x, &axis) || !want_ids(&c, x, ids, axis))
        return c.failed;
    if (!tsr_dims_equal(ids->shape, y->shape))
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "ids are %s, what is added is %s; they must be alike",
                            tsri_op_dims(&c, ids), tsri_op_dims(&c, y));
    const tsr_dims lines = lines_of(x->shape, ids->shape, axis);
    tsr_tensor *sums = add(TSRI_OP_GATHER_DX, axis, in, lines, x->dtype, loc);
    const tsr_dims before = {.ndim = lines.ndim};
    tsr_dims after = lines;
    for (int i = 0; i < lines.ndim; i++)
        after.d[i] = x->shape.d[i] - lines.d[i];
    if (!tsr_dims_equal(lines, x->shape))
        sums = tsr_pad_at(sums, before, after, 0, file, line);
    return tsr_add_at(x, sums, file, line);
}

/* A: the axes of x, as "a v@ c "; B: those of ids, as "a i c ". */
static void name_axes(const tsri_op *op, tsri_rule_names *names, tsri_rule_text *out)
{
    (void)out;
    char *a = names->a, *b = names->b;
    for (int i = 0; i < op->in[0]->shape.ndim; i++) {
        const bool here = i == op->attrs.gather.axis;
        *a++ = here ? 'v' : tsri_letters[i];
        if (here)
            *a++ = '@';
        *b++ = here ? 'i' : tsri_letters[i];
        *a++ = *b++ = ' ';
    }
    *a = *b = 0;
}

static void grad_gather(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    tsr_tensor *x = op->in[0], *in[2] = {op->in[1], dout[0]};
    if (want[0])
        din[0] = add(TSRI_OP_GATHER_DX, op->attrs.gather.axis, in, x->shape, x->dtype, op->loc);
}

static void grad_gather_dx(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    tsr_tensor *y = op->in[1], *in[2] = {dout[0], op->in[0]};
    if (want[1])
        din[1] = add(TSRI_OP_GATHER, op->attrs.gather.axis, in, y->shape, y->dtype, op->loc);
}

static const tsri_attr_field gather_attrs[] = {TSRI_ATTR_FIELD(gather.axis, I32, "axis"),
                                               TSRI_ATTR_END};

const tsri_op_def tsri_def_gather = {.rule_text = "A, !B -> B",
                                     .names = name_axes,
                                     .gradient = grad_gather,
                                     .attrs = gather_attrs,
                                     .is_exact = true};
const tsri_op_def tsri_def_gather_dx = {.rule_text = "!B, B -> A",
                                        .names = name_axes,
                                        .gradient = grad_gather_dx,
                                        .attrs = gather_attrs};
