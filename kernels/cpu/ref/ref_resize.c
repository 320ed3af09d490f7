/* SPDX-License-Identifier: Apache-2.0 */
/* Resizing an axis, which is not split, and its gradient: lines along the axis. */
#include "kernels/cpu/ref/ref.h"

#include <string.h>

#define RESIZE_FN static inline
#include "kernels/resize.h"

typedef struct resize {
    tsri_ref ref;              /* iter: the other axes, of out[0] and in[0] */
    int64_t in, out, to, from; /* sizes before and behind; steps of out[0] and in[0] */
    int how;
} resize;

#define FORWARD(T)                                                                      \
    for (int64_t i = 0; i < v->out; i++) {                                              \
        const tsri_resize_source s = tsri_resize_source_of(i, v->in, v->out, v->how);   \
        const double low = ((const T *)x)[s.low * v->from];                             \
        const double high = ((const T *)x)[s.high * v->from];                           \
        ((T *)y)[i * v->to] = (T)(s.high == s.low ? low : low + (high - low) * s.part); \
    }

#define BACKWARD(T)                                                                       \
    for (int64_t at = 0; at < v->in; at++) {                                              \
        double sum = 0;                                                                   \
        for (int64_t i = tsri_resize_first(at, v->in, v->out, v->how); i < v->out; i++) { \
            const tsri_resize_source s = tsri_resize_source_of(i, v->in, v->out, v->how); \
            if (s.low > at)                                                               \
                break;                                                                    \
            sum += tsri_resize_weight(s, at) * (double)((const T *)x)[i * v->from];       \
        }                                                                                 \
        ((T *)y)[at * v->to] = (T)sum;                                                    \
    }

static void resize_lines(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    const resize *v = (const resize *)j->ref;
    const bool dx = v->ref.desc.op == TSRI_OP_RESIZE_DX, f32 = v->ref.desc.out[0].dtype == TSR_F32;
    const int64_t size = f32 ? sizeof(float) : sizeof(double);
    for (int64_t k = 0; k < r->n; k++) {
        void *y = (char *)j->out[0] + (r->off[0] + k * r->step[0]) * size;
        const void *x = (const char *)j->in[0] + (r->off[1] + k * r->step[1]) * size;
        if (f32 && dx)
            BACKWARD(float)
        else if (dx)
            BACKWARD(double)
        else if (f32)
            FORWARD(float)
        else
            FORWARD(double)
    }
}

static tsr_status resize_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const resize *v = (const resize *)k;
    tsri_ref_job j = {&v->ref, in, out, scratch};
    tsri_ref_iter_run(&v->ref.iter, resize_lines, &j, true);
    return TSR_OK;
}

tsr_status tsri_ref_resize(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const bool dx = d->op == TSRI_OP_RESIZE_DX;
    const tsri_arg *x = &d->in[0], *y = &d->out[0];
    const int axis = d->attrs->resize.axis;
    if (!tsri_ref_all_float(d) || x->dtype != y->dtype)
        return tsri_ref_decline(d);
    resize *v = tsri_ref_make(mem, d, resize_run, sizeof *v);
    TSRI_NEED(v);
    v->in = (dx ? y : x)->shape[axis];
    v->out = (dx ? x : y)->shape[axis];
    v->to = y->stride[axis];
    v->from = x->stride[axis];
    v->how = d->attrs->resize.how;
    int64_t lines[TSR_MAX_NDIM];
    memcpy(lines, y->shape, sizeof lines);
    lines[axis] = 1;
    tsri_ref_walk(&v->ref.iter, y->ndim, lines, 2, (const int64_t *[]){y->stride, x->stride});
    *out_kernel = &v->ref.base;
    return TSR_OK;
}
TSRI_REF_SAME(resize_dx, resize);
