/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that only move elements, by their size: copy, assign, expand, permute, reshape. */
#include "kernels/cpu/ref/ref.h"

static void copy_row(void *arg, const tsri_ref_row *r)
{
    const tsri_ref_job *j = arg;
    tsri_ref_moved m = {tsr_dtype_size(j->ref->desc.out[0].dtype), j->out[0], j->in[0]};
    tsri_ref_move_row(&m, r);
}

tsr_status tsri_ref_copy(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (d->in[0].dtype != d->out[0].dtype)
        return tsri_ref_decline(d);
    return tsri_ref_create_map(mem, d, copy_row, out_kernel);
}
TSRI_REF_SAME(expand, copy);
TSRI_REF_SAME(assign, copy);

tsr_status tsri_ref_permute(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    /* A copy from the permuted view of x. */
    tsri_kernel_desc view = *d;
    for (int i = 0; i < d->out[0].ndim; i++) {
        view.in[0].shape[i] = d->in[0].shape[d->attrs->permute.perm[i]];
        view.in[0].stride[i] = d->in[0].stride[d->attrs->permute.perm[i]];
    }
    return tsri_ref_copy(mem, &view, out_kernel);
}

/* Walks a buffer in row-major order of its shape, whatever its strides. */
typedef struct cursor {
    const tsri_arg *arg;
    int64_t at[TSR_MAX_NDIM], off;
} cursor;

static int64_t run_left(const cursor *c)
{
    int last = c->arg->ndim - 1;
    return last < 0 ? 1 : c->arg->shape[last] - c->at[last];
}

static int64_t run_step(const cursor *c)
{
    return c->arg->ndim ? c->arg->stride[c->arg->ndim - 1] : 1;
}

/* Forward by n <= run_left elements. */
static void advance(cursor *c, int64_t n)
{
    for (int i = c->arg->ndim - 1; i >= 0; i--, n = 1) {
        c->at[i] += n;
        c->off += n * c->arg->stride[i];
        if (c->at[i] < c->arg->shape[i])
            return;
        c->off -= c->at[i] * c->arg->stride[i];
        c->at[i] = 0;
    }
}

static tsr_status reshape_run(const tsri_kernel *k, void *const *in, void *const *out,
                              void *scratch)
{
    (void)scratch;
    const tsri_kernel_desc *d = &((const tsri_ref *)k)->desc;
    size_t size = tsr_dtype_size(d->out[0].dtype);
    cursor x = {.arg = &d->in[0]}, y = {.arg = &d->out[0]};
    for (int64_t left = tsri_arg_count(y.arg); left > 0;) {
        int64_t n = run_left(&x) < run_left(&y) ? run_left(&x) : run_left(&y);
        tsri_ref_move(size, (char *)out[0] + y.off * (int64_t)size, run_step(&y),
                      (const char *)in[0] + x.off * (int64_t)size, run_step(&x), n);
        advance(&x, n);
        advance(&y, n);
        left -= n;
    }
    return TSR_OK;
}

/* Row-major buffers are runs of their whole length: axes that lie in order become one. */
static void flatten(tsri_arg *a)
{
    int n = 0;
    for (int i = 0; i < a->ndim; i++) {
        if (a->shape[i] == 1)
            continue;
        if (n && a->stride[n - 1] == a->stride[i] * a->shape[i]) {
            a->shape[n - 1] *= a->shape[i];
            a->stride[n - 1] = a->stride[i];
        } else {
            a->shape[n] = a->shape[i];
            a->stride[n++] = a->stride[i];
        }
    }
    a->ndim = n;
}

tsr_status tsri_ref_reshape(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    if (d->in[0].dtype != d->out[0].dtype)
        return tsri_ref_decline(d);
    if (tsri_arg_count(&d->in[0]) != tsri_arg_count(&d->out[0]))
        return tsri_fail(
            TSR_ERR_SHAPE, "reshape: a shard of %lld elements can't become one of %lld",
            (long long)tsri_arg_count(&d->in[0]), (long long)tsri_arg_count(&d->out[0]));
    tsri_kernel_desc flat = *d;
    flatten(&flat.in[0]);
    flatten(&flat.out[0]);
    return tsri_ref_create(mem, &flat, reshape_run, out_kernel);
}
