/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buckets. By PyTorch's rule (compute_bucket_assignment_by_size, over the parameters in reverse):
 * parameters of one dtype fill a bucket until it has its limit, 1 MiB for the first bucket of a
 * dtype, bucket_cap_mb for the others; buckets are then in the order of their first parameters. A
 * gradient starts at a multiple of 64 bytes; what lies between them is zero.
 */
#include "src/train/ddp.h"

#include <stdlib.h>

#include "kernels/device.h"
#include "src/core/live.h"
#include "src/graph/variable.h"

enum { ALIGN = 64, FIRST_BYTES = 1 << 20 };

static size_t padded(const tsr_variable *v)
{
    size_t bytes = (size_t)tsr_dims_count(v->shape) * tsr_dtype_size(v->dtype);
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* The bucket that a dtype's parameters go to now. */
typedef struct filling {
    int bucket; /* -1: the next one opens a new bucket */
    bool is_first;
    size_t bytes; /* of elements, without padding: the limit counts those */
} filling;

/* Numbers the buckets as they are opened, which is the order of their first parameters. */
static int assign(tsr_ddp *d, size_t cap)
{
    filling at[TSR_DTYPE_COUNT_];
    int n = 0;
    for (int t = 0; t < TSR_DTYPE_COUNT_; t++)
        at[t] = (filling){-1, true, 0};
    for (int i = d->nparams - 1; i >= 0; i--) {
        tsr_variable *v = d->params[i].v;
        filling *f = &at[v->dtype];
        if (f->bucket < 0) {
            f->bucket = n++;
            f->bytes = 0;
        }
        d->params[i].bucket = f->bucket;
        f->bytes += (size_t)tsr_dims_count(v->shape) * tsr_dtype_size(v->dtype);
        if (f->bytes >= (f->is_first ? FIRST_BYTES : cap)) {
            f->bucket = -1;
            f->is_first = false;
        }
    }
    return n;
}

static int by_bucket(const void *a, const void *b)
{
    const tsri_ddp_param *x = a, *y = b;
    return x->bucket != y->bucket ? (x->bucket > y->bucket) - (x->bucket < y->bucket)
                                  : (x->number < y->number) - (x->number > y->number);
}

/* A variable over memory that is the bucket's. */
static tsr_status make_gradient(tsr_ddp *d, tsri_ddp_param *p, void *data)
{
    char *name = tsri_pool_printf(&d->pool, "%s.grad", p->name);
    TSRI_NEED(name);
    TSRI_TRY(tsri_variable_create(d->world, name, d->here, p->v->dtype, p->v->shape, TSR_B,
                                  (tsr_init){0}, &p->grad));
    p->grad->device = d->device;
    p->grad->data = data;
    p->grad->lshape = p->v->shape;
    p->grad->bytes = (size_t)tsr_dims_count(p->v->shape) * tsr_dtype_size(p->v->dtype);
    p->grad->held = p->grad->sbp;
    p->grad->ready = p->grad->used = p->grad->awaited = true;
    return TSR_OK;
}

static tsr_status fill_bucket(tsr_ddp *d, int b, int first)
{
    tsri_ddp_bucket *bucket = &d->buckets[b];
    tsr_dtype dtype = d->params[first].v->dtype;
    int end = first;
    for (; end < d->nparams && d->params[end].bucket == b; end++)
        bucket->bytes += padded(d->params[end].v);
    bucket->first = first;
    bucket->pub = (tsr_ddp_bucket){.size = sizeof bucket->pub,
                                   .index = b,
                                   .is_last = b == d->nbuckets - 1,
                                   .count = (int64_t)(bucket->bytes / tsr_dtype_size(dtype)),
                                   .dtype = dtype,
                                   .nparams = end - first,
                                   .params = d->listed + first,
                                   .group = d->group,
                                   .device = d->device->kind};
    TSRI_TRY(d->device->ops->buffer_alloc(d->device, bucket->bytes ? bucket->bytes : ALIGN,
                                          &bucket->pub.data));
    char *at = bucket->pub.data;
    for (int i = first; i < end; i++) {
        TSRI_TRY(make_gradient(d, &d->params[i], at));
        at += padded(d->params[i].v);
        d->listed[i] = d->params[i].v;
    }
    return TSR_OK;
}

tsr_status tsri_ddp_make_buckets(tsr_ddp *d)
{
    d->nbuckets = assign(d, (size_t)(d->opts.bucket_cap_mb * 1048576));
    d->buckets = tsri_pool_alloc(&d->pool, (size_t)d->nbuckets * sizeof *d->buckets);
    TSRI_NEED(d->buckets);
    qsort(d->params, (size_t)d->nparams, sizeof *d->params, by_bucket);
    for (int b = 0, first = 0; b < d->nbuckets; b++) {
        TSRI_TRY(fill_bucket(d, b, first));
        first += d->buckets[b].pub.nparams;
    }
    return TSR_OK;
}

void tsri_ddp_free_buckets(tsr_ddp *d)
{
    tsri_ddp_free_on_device(d);
    for (int i = 0; i < d->nparams && d->params; i++) {
        tsr_variable *grad = d->params[i].grad;
        if (!grad)
            continue;
        grad->data = NULL; /* the bucket's */
        tsri_variable_destroy(grad);
    }
    for (int b = 0; b < d->nbuckets && d->buckets; b++) {
        tsri_ddp_bucket *bucket = &d->buckets[b];
        tsr_status ignored = bucket->work ? tsr_work_wait(&bucket->work, 0) : TSR_OK;
        (void)ignored;
        if (bucket->pub.data)
            d->device->ops->buffer_free(d->device, bucket->pub.data,
                                        bucket->bytes ? bucket->bytes : ALIGN);
        tsr_free(d->world, bucket->small);
        tsri_mem_free(bucket->earlier);
    }
    tsr_free(d->world, d->used);
    tsr_free(d->world, d->sent.block);
}

void tsr_ddp_zero_grad(tsr_ddp *ddp)
{
    if (!tsri_is_live(ddp, TSRI_LIVE_DDP, __func__))
        return;
    for (int i = 0; i < ddp->nparams; i++)
        ddp->params[i].there = false;
}
