/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which product an op is. An op that cuBLASLt can't be told (axes that do not lie one behind the
 * other, batches that broadcast in part, images by channel) is declined, and so are products
 * without an element or a term.
 */
#include "kernels/cuda/library/lt.h"

/* Several axes as one, outermost first: their count and step. False if they are not one. */
static bool join(const tsri_arg *x, int n, const int *axes, int64_t *count, int64_t *step)
{
    *count = 1;
    *step = 0;
    for (int i = n - 1; i >= 0; i--) {
        int64_t size = x->shape[axes[i]], stride = x->stride[axes[i]];
        if (size == 1)
            continue;
        if (*count == 1)
            *step = stride;
        else if (stride != *step * *count)
            return false;
        *count *= size;
    }
    return true;
}

/* Floats of one dtype, and elements in all of them. */
static bool takes(const tsri_kernel_desc *d)
{
    tsr_dtype dtype = d->out[0].dtype;
    bool all = tsri_cuda_is_float(dtype) && tsri_cuda_count(&d->out[0]) > 0;
    for (int i = 0; i < d->nin; i++)
        all &= d->in[i].dtype == dtype && tsri_cuda_count(&d->in[i]) > 0;
    return all;
}

/* --- linear, and convolutions of one pixel ---------------------------------------------------- */
/* Rows of features: the features' axis, and all others as one. */
typedef struct rows {
    int64_t count, step, features, feature_step;
} rows;

static bool find_rows(const tsri_arg *x, int feature_axis, rows *out)
{
    int axes[TSR_MAX_NDIM], n = 0;
    for (int i = 0; i < x->ndim; i++)
        if (i != feature_axis)
            axes[n++] = i;
    out->features = x->shape[feature_axis];
    out->feature_step = x->stride[feature_axis];
    return join(x, n, axes, &out->count, &out->step);
}

/* y = x w^T (+ b), for a filter w[o, i, ...] whose other axes are 1. */
static tsr_status forward(tsri_mem *mem, const tsri_kernel_desc *d, int axis,
                          tsri_kernel **out_kernel)
{
    const tsri_arg *w = &d->in[1];
    rows x, y;
    if (!takes(d) || !find_rows(&d->in[0], axis, &x) || !find_rows(&d->out[0], axis, &y))
        return tsri_cuda_decline(d);
    tsri_lt_product p = {.of_a = 0,
                         .of_b = 1,
                         .bias = d->nin > 2,
                         .m = x.count,
                         .n = w->shape[0],
                         .k = x.features,
                         .batch = 1,
                         .a = {x.step, x.feature_step, 0},
                         .b = {w->stride[0], w->stride[1], 0},
                         .c = {y.step, y.feature_step, 0}};
    return tsri_lt_create(mem, d, &p, out_kernel);
}

/* dx = dy w */
static tsr_status backward_data(tsri_mem *mem, const tsri_kernel_desc *d, int axis,
                                tsri_kernel **out_kernel)
{
    const tsri_arg *w = &d->in[1];
    rows dy, dx;
    if (!takes(d) || !find_rows(&d->in[0], axis, &dy) || !find_rows(&d->out[0], axis, &dx))
        return tsri_cuda_decline(d);
    tsri_lt_product p = {.of_a = 0,
                         .of_b = 1,
                         .m = dy.count,
                         .n = w->shape[1],
                         .k = dy.features,
                         .batch = 1,
                         .a = {dy.step, dy.feature_step, 0},
                         .b = {w->stride[1], w->stride[0], 0},
                         .c = {dx.step, dx.feature_step, 0}};
    return tsri_lt_create(mem, d, &p, out_kernel);
}

/* dw = dy^T x */
static tsr_status backward_filter(tsri_mem *mem, const tsri_kernel_desc *d, int axis,
                                  tsri_kernel **out_kernel)
{
    const tsri_arg *dw = &d->out[0];
    rows x, dy;
    if (!takes(d) || !find_rows(&d->in[0], axis, &x) || !find_rows(&d->in[1], axis, &dy))
        return tsri_cuda_decline(d);
    tsri_lt_product p = {.of_a = 1,
                         .of_b = 0,
                         .m = dw->shape[0],
                         .n = dw->shape[1],
                         .k = x.count,
                         .batch = 1,
                         .a = {dy.feature_step, dy.step, 0},
                         .b = {x.feature_step, x.step, 0},
                         .c = {dw->stride[0], dw->stride[1], 0}};
    return tsri_lt_create(mem, d, &p, out_kernel);
}

tsr_status tsri_lt_linear(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return forward(mem, d, d->in[0].ndim - 1, out_kernel);
}

tsr_status tsri_lt_linear_dx(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return backward_data(mem, d, d->in[0].ndim - 1, out_kernel);
}

tsr_status tsri_lt_linear_dw(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return backward_filter(mem, d, d->in[0].ndim - 1, out_kernel);
}

/* A pixel of the result is made from one pixel, of all channels. */
static bool is_pointwise(const tsri_kernel_desc *d)
{
    const tsri_attrs *at = d->attrs;
    bool all = d->groups == 1;
    for (int i = 0; i < 2; i++)
        all &= at->conv.kernel[i] == 1 && at->conv.stride[i] == 1 && at->conv.pad[i] == 0;
    return all;
}

tsr_status tsri_lt_conv2d(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return is_pointwise(d) ? forward(mem, d, 1, out_kernel) : tsri_cuda_decline(d);
}

tsr_status tsri_lt_conv2d_dx(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return is_pointwise(d) ? backward_data(mem, d, 1, out_kernel) : tsri_cuda_decline(d);
}

tsr_status tsri_lt_conv2d_dw(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return is_pointwise(d) ? backward_filter(mem, d, 1, out_kernel) : tsri_cuda_decline(d);
}

/* --- matmul and its batches ------------------------------------------------------------------- */
/* The step of x from one product of the batch to the next: 0 if x has one matrix. False if it
 * broadcasts along some axes only, or its matrices lie unevenly. */
static bool batch_step(const tsri_arg *x, int64_t batch, int64_t *out)
{
    int axes[TSR_MAX_NDIM], n = 0;
    int64_t count;
    for (int i = 0; i < x->ndim - 2; i++)
        axes[n++] = i;
    if (!join(x, n, axes, &count, out))
        return false;
    if (count == 1)
        *out = 0;
    return count == 1 || count == batch;
}

/* Where b is one matrix, the batch of a is so many more rows. */
static void fold_batch(tsri_lt_product *p)
{
    if (p->batch == 1 || p->b.batch != 0)
        return;
    if (p->m == 1) {
        p->a.row = p->a.batch;
        p->c.row = p->c.batch;
    }
    if (p->a.batch != p->m * p->a.row || p->c.batch != p->m * p->c.row)
        return;
    p->m *= p->batch;
    p->batch = 1;
    p->a.batch = p->c.batch = 0;
}

tsr_status tsri_lt_matmul(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const tsri_arg *a = &d->in[0], *b = &d->in[1], *c = &d->out[0];
    if (!takes(d))
        return tsri_cuda_decline(d);
    int ta = d->attrs->matmul.ta != 0, tb = d->attrs->matmul.tb != 0;
    int am = a->ndim - 2 + ta, ak = a->ndim - 1 - ta, bn = b->ndim - 1 - tb, bk = b->ndim - 2 + tb;
    int cm = c->ndim - 2, cn = c->ndim - 1;
    tsri_lt_product p = {.of_a = 0,
                         .of_b = 1,
                         .m = c->shape[cm],
                         .n = c->shape[cn],
                         .k = a->shape[ak],
                         .batch = 1,
                         .a = {a->stride[am], a->stride[ak], 0},
                         .b = {b->stride[bn], b->stride[bk], 0},
                         .c = {c->stride[cm], c->stride[cn], 0}};
    for (int i = 0; i < cm; i++)
        p.batch *= c->shape[i];
    if (!batch_step(c, p.batch, &p.c.batch) || !batch_step(a, p.batch, &p.a.batch) ||
        !batch_step(b, p.batch, &p.b.batch))
        return tsri_cuda_decline(d);
    fold_batch(&p);
    return tsri_lt_create(mem, d, &p, out_kernel);
}
