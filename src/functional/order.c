/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the order of elements along an axis. */
#include "src/functional/inside.h"

/* Returns values that have an axis of size 1, or none, and sets *out_ids likewise. */
static tsr_tensor *picked(tsr_tensor *x, int axis, bool keepdim, tsr_tensor *ids,
                          tsr_tensor **out_ids, const char *file, int line)
{
    tsr_tensor *y = tsr_gather(x, axis, ids);
    if (!keepdim) {
        ids = tsr_squeeze(ids, axis);
        y = tsr_squeeze(y, axis);
    }
    if (out_ids)
        *out_ids = ids;
    return y;
}

tsr_tensor *tsr_kthvalue_at(tsr_tensor *x, int64_t k, int axis, bool keepdim, tsr_tensor **out_ids,
                            const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (out_ids)
        *out_ids = NULL;
    if (!tsri_function_begin(&c, "kthvalue", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_axis(&c, x, &axis))
        return c.failed;
    if (k < 1 || k > x->shape.d[axis])
        return tsri_op_fail(&c, TSR_ERR_INVALID, "k is %lld; legal are 1 to %lld, the axis's size",
                            (long long)k, (long long)x->shape.d[axis]);
    tsr_tensor *ids = NULL;
    tsr_topk(x, k, axis, false, &ids);
    return picked(x, axis, keepdim, tsr_narrow(ids, axis, k - 1, 1), out_ids, file, line);
}

tsr_tensor *tsr_median_at(tsr_tensor *x, int axis, bool keepdim, tsr_tensor **out_ids,
                          const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (out_ids)
        *out_ids = NULL;
    if (!tsri_function_begin(&c, "median", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_axis(&c, x, &axis))
        return c.failed;
    const int64_t n = x->shape.d[axis], k = (n + 1) / 2;
    if (n < 1)
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "axis %d of %s has size 0; nothing has no median",
                            axis, tsri_op_dims(&c, x));
    tsr_tensor *ids = NULL;
    tsr_topk(x, k, axis, false, &ids);
    ids = tsr_narrow(ids, axis, k - 1, 1);
    if (tsri_is_float(x->dtype)) {
        tsr_tensor *nan = tsr_any(tsr_isnan(x), TSR_AXES(axis), true);
        ids = tsr_where(nan, tsr_unsqueeze(tsr_argmax(x, axis), axis), ids);
    }
    return picked(x, axis, keepdim, ids, out_ids, file, line);
}
