/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indexing along an axis. As a product with the matrix of zeros and ones that the ids stand for, it
 * is linear in x and sums over the axis: with the axis split each part adds what it holds.
 */
#include <string.h>

#include "src/graph/op.h"

static bool want_ids(const tsri_ctx *c, const tsr_tensor *ids)
{
    if (ids->dtype == TSR_I64)
        return true;
    return tsri_op_refuse(c, TSR_ERR_DTYPE, "ids are %s; i64 is needed: use tsr_cast(ids, TSR_I64)",
                          tsr_dtype_name(ids->dtype));
}

static tsr_tensor *add_gather(const tsri_ctx *c, tsr_tensor *x, tsr_tensor *ids,
                              const tsri_attrs *attrs)
{
    int axis = attrs->gather.axis, ndim = x->shape.ndim - 1 + ids->shape.ndim;
    if (!want_ids(c, ids))
        return c->failed;
    if (ndim > TSR_MAX_NDIM)
        return tsri_op_fail(
            c, TSR_ERR_SHAPE,
            "ids %s in place of axis %d of %s make %d axes; at most %d are possible",
            tsri_op_dims(c, ids), axis, tsri_op_dims(c, x), ndim, TSR_MAX_NDIM);
    tsr_dims shape = {0};
    for (int i = 0; i < axis; i++)
        shape.d[shape.ndim++] = x->shape.d[i];
    for (int i = 0; i < ids->shape.ndim; i++)
        shape.d[shape.ndim++] = ids->shape.d[i];
    for (int i = axis + 1; i < x->shape.ndim; i++)
        shape.d[shape.ndim++] = x->shape.d[i];
    tsr_tensor *in[2] = {x, ids};
    return tsri_graph_add1(c->g, TSRI_OP_INDEX_SELECT, attrs, 2, in, shape, x->dtype, c->loc);
}

tsr_tensor *tsr_index_select_at(tsr_tensor *x, int axis, tsr_tensor *ids, const char *file,
                                int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *in[2] = {x, ids};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "index_select", 2, in, 0, loc) || !tsri_want_axis(&c, x, &axis))
        return c.failed;
    tsri_attrs attrs = {0};
    attrs.gather.axis = axis;
    return add_gather(&c, x, ids, &attrs);
}

tsr_tensor *tsr_embedding_at(tsr_tensor *table, tsr_tensor *ids, const tsr_embedding_opts *opts,
                             const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *in[2] = {table, ids};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "embedding", 2, in, 0, loc))
        return c.failed;
    tsr_embedding_opts o = *TSR_EMBEDDING_OPTS();
    if (!tsri_want_options(&c, &o, sizeof o, opts))
        return c.failed;
    if (table->shape.ndim != 2)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "the table is %s; it must be (v,d)",
                            tsri_op_dims(&c, table));
    int64_t v = table->shape.d[0], pad = o.padding_idx < 0 ? o.padding_idx + v : o.padding_idx;
    if (o.has_padding_idx && (pad < 0 || pad >= v))
        return tsri_op_fail(
            &c, TSR_ERR_INVALID, "padding_idx is %lld; legal for %s are %lld to %lld",
            (long long)o.padding_idx, tsri_op_dims(&c, table), (long long)-v, (long long)v - 1);
    tsri_attrs attrs = {0};
    attrs.gather.has_pad = o.has_padding_idx;
    attrs.gather.pad = o.has_padding_idx ? pad : 0;
    return add_gather(&c, table, ids, &attrs);
}

/* Appends n axes, lettered from `first` on. */
static char *put_axes(char *p, int first, int n)
{
    for (int i = 0; i < n; i++) {
        *p++ = (char)('a' + first + i);
        *p++ = ' ';
    }
    *p = 0;
    return p;
}

/* A: the axes of the table, as "a v@ b ", lettered from a on; B: those of ids, "i j "; C: those of
 * what is gathered, "a i j b ". */
static void name_axes(const tsri_op *op, tsri_rule_names *names, tsri_rule_text *out)
{
    (void)out;
    const bool forward = op->kind == TSRI_OP_INDEX_SELECT;
    const int axis = op->attrs.gather.axis, nids = op->in[forward]->shape.ndim;
    const int behind = (forward ? op->in[0] : op->out[0])->shape.ndim - axis - 1;
    char *p = put_axes(names->a, 0, axis);
    put_axes(stpcpy(p, "v@ "), axis + 1, behind);
    put_axes(names->b, TSR_MAX_NDIM, nids);
    p = put_axes(names->c, 0, axis);
    p = put_axes(p, TSR_MAX_NDIM, nids);
    put_axes(p, axis + 1, behind);
    if (!names->b[0])
        strcpy(names->b, "() ");
    if (!names->c[0])
        strcpy(names->c, "() ");
}

static void grad_gather(tsri_op *op, tsr_tensor *const *dout, const bool *want, tsr_tensor **din)
{
    tsr_tensor *x = op->in[0], *in[2] = {op->in[1], dout[0]};
    if (want[0])
        din[0] = tsri_graph_add_like(TSRI_OP_INDEX_SELECT_DX, &op->attrs, 2, in, x, op->loc);
}

static double flops_gather_dx(const tsri_op *op)
{
    return (double)tsr_dims_count(op->in[1]->shape);
}

/* --- one_hot ---------------------------------------------------------------------------------- */

tsr_tensor *tsr_one_hot_at(tsr_tensor *ids, int64_t classes, tsr_dtype dtype, const char *file,
                           int line)
{
    tsri_loc loc = {file, line};
    tsri_ctx c;
    if (!tsri_op_begin(&c, "one_hot", 1, &ids, 0, loc) || !want_ids(&c, ids))
        return c.failed;
    if (classes < 1)
        return tsri_op_fail(&c, TSR_ERR_INVALID, "%lld classes; at least one is needed",
                            (long long)classes);
    if (!tsr_dtype_size(dtype))
        return tsri_op_fail(&c, TSR_ERR_DTYPE, "no such dtype: %d", (int)dtype);
    if (ids->shape.ndim == TSR_MAX_NDIM)
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "ids %s have no room for one more axis; at most %d "
                            "are possible",
                            tsri_op_dims(&c, ids), TSR_MAX_NDIM);
    tsr_dims shape = ids->shape;
    shape.d[shape.ndim++] = classes;
    return tsri_graph_add1(c.g, TSRI_OP_ONE_HOT, NULL, 1, &ids, shape, dtype, loc);
}

static void name_one_hot(const tsri_op *op, tsri_rule_names *names, tsri_rule_text *out)
{
    (void)out;
    tsri_axes_text(names->a, op->in[0]->shape.ndim, 0, 0);
    strcpy(names->b, op->in[0]->shape.ndim ? names->a : "");
}

const tsri_op_def tsri_def_one_hot = {.rule_text = "!A -> B v@", .names = name_one_hot};
static const tsri_attr_field gather_attrs[] = {
    TSRI_ATTR_FIELD(gather.axis, I32, "axis"),
    TSRI_ATTR_FIELD(gather.has_pad, I32, "has a padding_index"),
    TSRI_ATTR_FIELD(gather.pad, I64, "padding_index"), TSRI_ATTR_END};

const tsri_op_def tsri_def_index_select = {.rule_text = "A, !B -> C",
                                           .names = name_axes,
                                           .gradient = grad_gather,
                                           .attrs = gather_attrs,
                                           .is_exact = true};
const tsri_op_def tsri_def_index_select_dx = {
    .rule_text = "!B, C -> A", .names = name_axes, .flops = flops_gather_dx, .attrs = gather_attrs};
