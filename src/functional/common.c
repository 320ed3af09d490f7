/* SPDX-License-Identifier: Apache-2.0 */
#include "src/functional/inside.h"

#include <math.h>

tsr_tensor *tsri_number(const tsr_tensor *like, double value, const char *file, int line)
{
    return tsri_make_fill(like->graph, TSR_SCALAR, like->dtype, like->placement, value,
                          (tsri_loc){file, line});
}

tsr_tensor *tsri_shaped(tsr_tensor *x, tsr_dims dims, const char *file, int line)
{
    return x->failed ? x : tsri_make_reshape(x, dims, (tsri_loc){file, line});
}

tsr_tensor *tsri_reduced(tsr_tensor *loss, tsr_reduction reduction, const char *file, int line)
{
    if (loss->failed || reduction == TSR_NONE)
        return loss;
    const int64_t count = tsr_dims_count(loss->shape);
    const double scale = reduction == TSR_MEAN && count > 0 ? 1.0 / (double)count : 1;
    return tsri_make_sum(loss, (1u << loss->shape.ndim) - 1, false, scale, (tsri_loc){file, line});
}

tsr_tensor *tsri_length(tsr_tensor *x, int axis, double eps, const char *file, int line)
{
    tsr_tensor *squares = tsr_sum(tsr_square(x), TSR_AXES(axis), true);
    return tsr_sqrt(tsr_clamp(squares, eps * eps, INFINITY));
}

bool tsri_want_interpolation(const tsri_ctx *c, tsr_interpolation how)
{
    if (how == TSR_NEAREST || how == TSR_BILINEAR || how == TSR_BILINEAR_CORNERS)
        return true;
    return tsri_op_refuse(c, TSR_ERR_INVALID,
                          "how is %d; legal are TSR_NEAREST, TSR_BILINEAR and "
                          "TSR_BILINEAR_CORNERS",
                          (int)how);
}

tsr_tensor *tsri_dropped_ones(const tsr_tensor *x, bool channels, double p, const char *file,
                              int line)
{
    tsr_dims dims = x->shape;
    for (int i = 2; i < dims.ndim && channels; i++)
        dims.d[i] = 1;
    return tsr_dropout(
        tsri_make_fill(x->graph, dims, x->dtype, x->placement, 1, (tsri_loc){file, line}), p);
}
