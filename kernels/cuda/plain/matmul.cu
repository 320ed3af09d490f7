/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: each op is an arrangement of axes for the common product. */
#include "kernels/cuda/code/product.cuh"

typedef struct matmul_kernel {
    tsri_cuda_kernel base;
    tsri_product product;
    int a, b; /* operands in those places */
} matmul_kernel;

static tsr_status matmul_run(const tsri_cuda_kernel *k, void *const *in, void *const *out,
                             void *scratch)
{
    const matmul_kernel *p = (const matmul_kernel *)k;
    const void *bias = k->desc.op == TSRI_OP_LINEAR && k->desc.nin > 2 ? in[2] : NULL;
    TSRI_FLOATS(k->desc.out[0].dtype,
                tsri_product_launch<T, false>(p->product, in[p->a], in[p->b], bias, out[0], scratch,
                                              k->stream));
    return tsri_cuda_launched(k);
}

/* How an operand's axes become those of the product: one, or all but the last (-1). */
typedef struct arrangement {
    int a, b;             /* operands */
    int a_m, a_k;         /* axes of a */
    int b_n, b_k;         /* of b */
    int c_m, c_n;         /* of the result */
    bool batch_of_result; /* the result's axes before its last two are a batch */
} arrangement;

/* The axes `which` of x with, as first operand, those of `with` if there is one. */
static tsri_axes take(const tsri_arg *with, int of_with, const tsri_arg *x, int which)
{
    tsri_axes axes = {};
    int first = which < 0 ? 0 : which, end = which < 0 ? x->ndim - 1 : which + 1;
    int at = of_with < 0 ? 0 : of_with;
    for (int i = first; i < end; i++, at++)
        tsri_axes_add(&axes, x->shape[i], with->stride[at], x->stride[i]);
    return axes;
}

static void set_batch(tsri_product *p, const tsri_kernel_desc *d)
{
    const tsri_arg *c = &d->out[0];
    tsri_axes batch = {};
    for (int axis = 0; axis < c->ndim - 2; axis++) {
        int64_t stride[2];
        for (int i = 0; i < 2; i++) {
            const tsri_arg *x = &d->in[i];
            int j = axis - c->ndim + x->ndim; /* from the right */
            stride[i] = j >= 0 && x->shape[j] != 1 ? x->stride[j] : 0;
        }
        tsri_axes_add(&batch, c->shape[axis], c->stride[axis], stride[0], stride[1]);
    }
    tsri_axes_walk(&batch, TSRI_BATCH_OPS, &p->batch);
}

static tsr_status make(tsri_mem *mem, const tsri_kernel_desc *d, const arrangement *how,
                       tsri_kernel **out_kernel)
{
    const tsri_arg *a = &d->in[how->a], *b = &d->in[how->b], *c = &d->out[0];
    for (int i = 0; i < d->nin; i++)
        if (d->in[i].dtype != c->dtype || !tsri_cuda_is_float(c->dtype))
            return tsri_cuda_decline(d);
    matmul_kernel *k =
        (matmul_kernel *)tsri_cuda_make(mem, d, matmul_run, "plain", sizeof(matmul_kernel));
    TSRI_NEED(k);
    tsri_product *p = &k->product;
    tsri_axes none = {}, m = take(c, how->c_m, a, how->a_m), n = take(c, how->c_n, b, how->b_n);
    n.stride[TSRI_SIDE_BIAS][0] = 1; /* a bias runs along n */
    tsri_axes terms = take(b, how->b_k, a, how->a_k);
    for (int i = 0; i < terms.n; i++) {
        int64_t of_b = terms.stride[0][i];
        terms.stride[TSRI_TERM_ORDER][i] = terms.stride[TSRI_TERM_A][i];
        terms.stride[TSRI_TERM_B][i] = of_b;
    }
    tsri_axes_walk(&m, TSRI_SIDE_OPS, &p->m);
    tsri_axes_walk(&n, TSRI_SIDE_OPS, &p->n);
    tsri_axes_walk(&terms, TSRI_TERM_OPS, &p->k);
    if (how->batch_of_result)
        set_batch(p, d);
    else
        tsri_axes_walk(&none, TSRI_BATCH_OPS, &p->batch);
    k->a = how->a;
    k->b = how->b;
    k->base.base.scratch_bytes = tsri_product_plan(p, c->dtype);
    *out_kernel = &k->base.base;
    return TSR_OK;
}

tsr_status tsri_plain_batch_matmul(tsri_mem *mem, const tsri_kernel_desc *d,
                                   tsri_kernel **out_kernel)
{
    int ta = d->attrs->matmul.ta != 0, tb = d->attrs->matmul.tb != 0;
    int a = d->in[0].ndim, b = d->in[1].ndim, c = d->out[0].ndim;
    arrangement how = {0, 1, a - 2 + ta, a - 1 - ta, b - 1 - tb, b - 2 + tb, c - 2, c - 1, true};
    return make(mem, d, &how, out_kernel);
}

tsr_status tsri_plain_matmul(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return tsri_plain_batch_matmul(mem, d, out_kernel);
}

tsr_status tsri_plain_linear(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    int last = d->in[0].ndim - 1;
    arrangement how = {0, 1, -1, last, 0, 1, -1, last, false};
    return make(mem, d, &how, out_kernel);
}

tsr_status tsri_plain_linear_dx(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    int last = d->in[0].ndim - 1;
    arrangement how = {0, 1, -1, last, 1, 0, -1, last, false};
    return make(mem, d, &how, out_kernel);
}

tsr_status tsri_plain_linear_dw(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    int last = d->in[0].ndim - 1;
    arrangement how = {1, 0, last, -1, last, -1, 0, 1, false};
    return make(mem, d, &how, out_kernel);
}
