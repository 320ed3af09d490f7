/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and maxima as other ops and gradients declare them, and the shapes of broadcasting. */
#include "src/graph/op.h"

tsr_dims tsri_keepdim(tsr_dims dims, uint32_t mask)
{
    for (int i = 0; i < dims.ndim; i++)
        if (mask >> i & 1)
            dims.d[i] = 1;
    return dims;
}

tsr_dims tsri_drop_axes(tsr_dims dims, uint32_t mask)
{
    tsr_dims r = {0};
    for (int i = 0; i < dims.ndim; i++)
        if (!(mask >> i & 1))
            r.d[r.ndim++] = dims.d[i];
    return r;
}

tsr_dtype tsri_sum_dtype(const tsr_tensor *x)
{
    return tsri_is_float(x->dtype) ? x->dtype : TSR_I64;
}

bool tsri_wraps_before(tsr_dtype from, tsr_dtype to)
{
    return !tsri_is_float(from) && (tsri_is_float(to) || tsr_dtype_size(to) > tsr_dtype_size(from));
}

static tsr_tensor *add_kind(tsri_op_kind kind, tsr_tensor *x, tsr_reduce_op op, uint32_t mask,
                            bool keepdim, double scale, tsri_loc loc)
{
    tsri_attrs attrs = {0};
    attrs.reduce.op = op;
    attrs.reduce.axes = mask;
    attrs.reduce.keepdim = keepdim;
    attrs.reduce.scale = scale;
    tsr_dims shape = keepdim ? tsri_keepdim(x->shape, mask) : tsri_drop_axes(x->shape, mask);
    const tsr_dtype dtype = op == TSR_REDUCE_SUM ? tsri_sum_dtype(x) : x->dtype;
    return tsri_graph_add1(x->graph, kind, &attrs, 1, &x, shape, dtype, loc);
}

tsr_tensor *tsri_make_reduce(tsr_tensor *x, tsr_reduce_op op, uint32_t mask, bool keepdim,
                             double scale, tsri_loc loc)
{
    return add_kind(TSRI_OP_REDUCE, x, op, mask, keepdim, scale, loc);
}

tsr_tensor *tsri_make_max(tsr_tensor *x, tsri_op_kind kind, uint32_t mask, bool keepdim,
                          tsri_loc loc)
{
    return x->failed ? x : add_kind(kind, x, TSR_REDUCE_MAX, mask, keepdim, 1, loc);
}

tsr_tensor *tsri_make_sum(tsr_tensor *x, uint32_t mask, bool keepdim, double scale, tsri_loc loc)
{
    return x->failed ? x : tsri_make_reduce(x, TSR_REDUCE_SUM, mask, keepdim, scale, loc);
}

tsr_tensor *tsri_make_fault(tsr_tensor *x, bool of_addends, tsri_loc loc)
{
    if (x->failed)
        return x;
    tsr_tensor *y = tsri_make_reduce(x, (tsr_reduce_op)TSRI_REDUCE_FAULT, (1u << x->shape.ndim) - 1,
                                     false, 1, loc);
    if (!y->failed)
        y->op->attrs.reduce.addends = of_addends;
    return tsri_make_reshape(y, TSR_DIMS(1), loc);
}

bool tsri_broadcast_shapes(tsr_dims a, tsr_dims b, tsr_dims *out)
{
    tsr_dims r = {.ndim = a.ndim > b.ndim ? a.ndim : b.ndim};
    for (int i = 1; i <= r.ndim; i++) {
        int64_t m = i <= a.ndim ? a.d[a.ndim - i] : 1, n = i <= b.ndim ? b.d[b.ndim - i] : 1;
        if (m != n && m != 1 && n != 1)
            return false;
        r.d[r.ndim - i] = m == 1 ? n : m;
    }
    *out = r;
    return true;
}

tsr_tensor *tsri_make_sum_to(tsr_tensor *dy, tsr_dims dims, tsri_loc loc)
{
    int lead = dy->shape.ndim - dims.ndim;
    if (dy->failed || lead < 0)
        return dy;
    uint32_t grown = (1u << lead) - 1, kept = 0;
    for (int i = 0; i < dims.ndim; i++)
        if (dims.d[i] == 1 && dy->shape.d[lead + i] != 1)
            kept |= 1u << (lead + i);
    if (!grown && !kept)
        return dy;
    /* New axes in front are dropped; an axis that grew from 1 comes back as 1. */
    tsr_tensor *sum = tsri_make_sum(dy, grown | kept, !grown, 1, loc);
    return grown && kept ? tsri_make_reshape(sum, dims, loc) : sum;
}
