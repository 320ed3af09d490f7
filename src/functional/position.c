/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of positions. */
#include "src/functional/inside.h"

#include <math.h>

/* Returns the angles (s,d/2) of all positions and pairs, in f64, whatever x is: a position's angle
 * may have many turns. */
static tsr_tensor *angles(const tsr_tensor *x, double base, int64_t first, const char *file,
                          int line)
{
    const int64_t s = x->shape.d[x->shape.ndim - 2], d = x->shape.d[x->shape.ndim - 1];
    tsr_graph *g = x->graph;
    tsr_tensor *at = tsr_arange(g, TSR_F64, s, (double)first, 1, x->placement, TSR_AUTO);
    tsr_tensor *pair = tsr_arange(g, TSR_F64, d / 2, 0, 1, x->placement, TSR_AUTO);
    return tsr_outer(at, tsr_exp(tsr_mul_scalar(pair, -2 * log(base) / (double)d)));
}

tsr_tensor *tsr_rotary_embedding_at(tsr_tensor *x, double base, int64_t first, bool interleaved,
                                    const char *file, int line)
{
    TSRI_FUNCTION(c);
    if (!tsri_function_begin(&c, "rotary_embedding", 1, &x, 0, (tsri_loc){file, line}) ||
        !tsri_want_float(&c, x))
        return c.failed;
    const int ndim = x->shape.ndim, last = ndim - 1;
    if (ndim < 2 || x->shape.d[last] % 2 || (interleaved && ndim == TSR_MAX_NDIM))
        return tsri_op_fail(&c, TSR_ERR_SHAPE, "x is %s; it must be (...,s,d) of an even d%s",
                            tsri_op_dims(&c, x),
                            interleaved ? ", with room for one axis more" : "");
    if (!(base > 0 && isfinite(base)) || first < -(1LL << 48) || first > 1LL << 48)
        return tsri_op_fail(&c, TSR_ERR_INVALID,
                            "base %g, first %lld; the base must be above 0, the position no more "
                            "than 2^48 from 0",
                            base, (long long)first);
    tsr_tensor *angle = angles(x, base, first, file, line);
    tsr_tensor *cosine = tsr_cast(tsr_cos(angle), x->dtype);
    tsr_tensor *sine = tsr_cast(tsr_sin(angle), x->dtype);
    tsr_dims pairs = x->shape;
    const int64_t half = pairs.d[last] / 2;
    pairs.d[last] = half;
    tsr_tensor *of[2], *y[2];
    if (interleaved) {
        tsr_dims split = pairs;
        split.d[split.ndim++] = 2;
        tsr_split(tsri_shaped(x, split, file, line), 2, ((const int64_t[]){1, 1}), ndim, of);
    } else {
        tsr_split(x, 2, ((const int64_t[]){half, half}), last, of);
    }
    for (int i = 0; i < 2; i++)
        of[i] = tsr_reshape(of[i], pairs);
    y[0] = tsr_sub(tsr_mul(of[0], cosine), tsr_mul(of[1], sine));
    y[1] = tsr_add(tsr_mul(of[1], cosine), tsr_mul(of[0], sine));
    if (!interleaved)
        return tsr_concat(2, y, last);
    return tsr_reshape(tsr_stack(2, y, ndim), x->shape);
}
