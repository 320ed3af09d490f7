/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of ids: counting, adding rows and putting elements into their places. */
#include "src/functional/inside.h"

/* A tensor of x's shape and dtype, all of it `value`. */
static tsr_tensor *filled(const tsr_tensor *x, double value, tsri_loc loc)
{
    return tsri_make_fill(x->graph, x->shape, x->dtype, x->placement, value, loc);
}

tsr_tensor *tsr_scatter_at(tsr_tensor *x, int axis, tsr_tensor *ids, tsr_tensor *y,
                           const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *all[3] = {x, ids, y}, *floats[2] = {x, y};
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "scatter", 3, all, 0, loc) ||
        !tsri_want_same_dtype(&c, 2, floats) || !tsri_want_float(&c, x) ||
        !tsri_want_axis(&c, x, &axis))
        return c.failed;
    if (!tsr_dims_equal(ids->shape, y->shape))
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "ids are %s, what is put there is %s; they must be "
                            "alike",
                            tsri_op_dims(&c, ids), tsri_op_dims(&c, y));
    tsr_tensor *none = filled(x, 0, loc);
    tsr_tensor *hits = tsr_scatter_add(none, axis, ids, filled(y, 1, loc));
    return tsr_where(tsr_greater(hits, none), tsr_scatter_add(none, axis, ids, y), x);
}

/* Ids of rows as ids of elements: their number along the axis, whatever the other coordinates. */
static tsr_tensor *spread_ids(tsr_tensor *ids, tsr_dims like, int axis, const char *file, int line)
{
    tsr_dims one = like;
    for (int i = 0; i < one.ndim; i++)
        one.d[i] = i == axis ? ids->shape.d[0] : 1;
    return tsr_expand(tsri_shaped(ids, one, file, line), like);
}

tsr_tensor *tsr_index_add_at(tsr_tensor *x, int axis, tsr_tensor *ids, tsr_tensor *y,
                             const char *file, int line)
{
    tsri_loc loc = {file, line};
    tsr_tensor *all[3] = {x, ids, y};
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "index_add", 3, all, 0, loc) || !tsri_want_float(&c, x) ||
        !tsri_want_axis(&c, x, &axis))
        return c.failed;
    tsr_dims want = x->shape;
    if (ids->shape.ndim == 1)
        want.d[axis] = ids->shape.d[0];
    if (ids->shape.ndim != 1 || !tsr_dims_equal(y->shape, want))
        return tsri_op_fail(
            &c, TSR_ERR_SHAPE,
            "ids %s and rows %s; ids (n) and the shape of x %s with n on axis %d are "
            "needed",
            tsri_op_dims(&c, ids), tsri_op_dims(&c, y), tsri_op_dims(&c, x), axis);
    return tsr_scatter_add(x, axis, spread_ids(ids, y->shape, axis, file, line), y);
}

tsr_tensor *tsr_bincount_at(tsr_tensor *ids, int64_t size, const char *file, int line)
{
    tsri_loc loc = {file, line};
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "bincount", 1, &ids, 0, loc))
        return c.failed;
    if (ids->dtype != TSR_I64)
        return tsri_op_fail(&c, TSR_ERR_DTYPE,
                            "ids are %s; i64 is needed: use tsr_cast(ids, TSR_I64)",
                            tsr_dtype_name(ids->dtype));
    if (ids->shape.ndim != 1 || size < 1 || !tsri_dims_fit(TSR_DIMS(size)))
        return tsri_op_fail(&c, TSR_ERR_SHAPE,
                            "ids %s and %lld bins; (n) and 1 to 2^56 are "
                            "needed",
                            tsri_op_dims(&c, ids), (long long)size);
    tsr_tensor *none =
        tsri_make_fill(c.g, TSR_DIMS(size), TSR_F64, ids->placement, 0, loc); /* whole up to 2^53 */
    tsr_tensor *ones = tsri_make_fill(c.g, ids->shape, TSR_F64, ids->placement, 1, loc);
    return tsr_cast(tsr_scatter_add(none, 0, ids, ones), TSR_I64);
}
