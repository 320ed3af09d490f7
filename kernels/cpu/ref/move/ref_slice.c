/* SPDX-License-Identifier: Apache-2.0 */
/* Joining and cutting: boxes of elements copied by their size. */
#include "kernels/cpu/ref/ref.h"

#include <string.h>

enum {
    CHUNK = 8192,       /* elements of a fill that one thread does at once */
    PARALLEL = 1 << 16, /* elements below which a team costs more than it brings */
};

/* A box that is copied: a walk over the destination and the source, and where they begin. */
typedef struct box {
    tsri_ref_iter iter;
    int64_t to, from;
} box;

typedef struct boxes {
    tsri_ref ref;
    int n;
    box box[]; /* of operand i, or of result i, where these are several */
} boxes;

static void move_box(const boxes *v, const box *b, const void *x, void *y)
{
    const size_t size = tsr_dtype_size(v->ref.desc.out[0].dtype);
    if (!b->iter.count)
        return;
    tsri_ref_moved m = {size, (char *)y + b->to * (int64_t)size,
                        (const char *)x + b->from * (int64_t)size};
    tsri_ref_iter_run(&b->iter, tsri_ref_move_row, &m, true);
}

static tsr_status boxes_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const boxes *v = (const boxes *)k;
    const tsri_kernel_desc *d = &v->ref.desc;
    for (int i = 0; i < v->n; i++)
        move_box(v, &v->box[i], in[d->nin > 1 ? i : 0], out[d->nout > 1 ? i : 0]);
    return TSR_OK;
}

static tsr_status make(tsri_mem *mem, const tsri_kernel_desc *d, tsri_ref_run_fn *run, int n,
                       boxes **out)
{
    bool alike = tsri_ref_alike(d, 0, d->nin);
    for (int i = 1; i < d->nout; i++)
        alike &= d->out[i].dtype == d->out[0].dtype;
    if (!alike)
        return tsri_ref_decline(d);
    boxes *v = tsri_ref_make(mem, d, run, sizeof *v + (size_t)n * sizeof v->box[0]);
    TSRI_NEED(v);
    v->n = n;
    *out = v;
    return TSR_OK;
}

static void set_box(box *b, const tsri_arg *small, const int64_t *to_stride,
                    const int64_t *from_stride)
{
    tsri_ref_walk(&b->iter, small->ndim, small->shape, 2,
                  (const int64_t *[]){to_stride, from_stride});
}

/* The parts of a concat or a split lie behind each other along the axis of the whole. */
tsr_status tsri_ref_concat(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const bool split = d->op == TSRI_OP_SPLIT;
    const int axis = d->attrs->cut.axis, n = split ? d->nout : d->nin;
    const tsri_arg *whole = split ? &d->in[0] : &d->out[0], *part = split ? d->out : d->in;
    boxes *v = NULL;
    TSRI_TRY(make(mem, d, boxes_run, n, &v));
    for (int64_t i = 0, at = 0; i < n; at += part[i++].shape[axis]) {
        box *b = &v->box[i];
        *(split ? &b->from : &b->to) = at * whole->stride[axis];
        set_box(b, &part[i], split ? part[i].stride : whole->stride,
                split ? whole->stride : part[i].stride);
    }
    *out_kernel = &v->ref.base;
    return TSR_OK;
}
TSRI_REF_SAME(split, concat);

int64_t tsri_ref_view(const tsri_attrs *at, const tsri_arg *large, int64_t stride[TSR_MAX_NDIM])
{
    int64_t begin = 0;
    for (int i = 0; i < large->ndim; i++) {
        stride[i] = large->stride[i] * at->slice.step[i];
        begin += large->stride[i] * at->slice.start[i];
    }
    return begin;
}

tsr_status tsri_ref_slice(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const int wraps = tsri_slice_wraps(d->attrs, &d->in[0], &d->out[0]);
    boxes *v = NULL;
    TSRI_TRY(make(mem, d, boxes_run, wraps < 0 ? 1 : 2, &v));
    int64_t stride[TSR_MAX_NDIM];
    v->box[0].from = tsri_ref_view(d->attrs, &d->in[0], stride);
    tsri_arg part = d->out[0];
    if (wraps >= 0) {
        const int64_t start = d->attrs->slice.start[wraps], rest = part.shape[wraps] - start;
        v->box[1].from = v->box[0].from - start * stride[wraps];
        v->box[1].to = rest * part.stride[wraps];
        part.shape[wraps] = start;
        set_box(&v->box[1], &part, part.stride, stride);
        part.shape[wraps] = rest;
    }
    set_box(&v->box[0], &part, part.stride, stride);
    *out_kernel = &v->ref.base;
    return TSR_OK;
}

/* n elements of `size` bytes, each as the one at `value`. */
static void fill(char *y, size_t size, const void *value, int64_t n)
{
    static const char zero[8];
    if (!memcmp(value, zero, size)) {
        memset(y, 0, (size_t)n * size);
        return;
    }
    memcpy(y, value, size);
    for (int64_t done = 1; done < n; done *= 2)
        memcpy(y + done * (int64_t)size, y, (size_t)(n - done < done ? n - done : done) * size);
}

/* The whole result first, as the operand may lie in it in steps. */
static tsr_status pad_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const boxes *v = (const boxes *)k;
    const tsri_arg *y = &v->ref.desc.out[0];
    const size_t size = tsr_dtype_size(y->dtype);
    const int64_t count = tsri_arg_count(y);
    _Alignas(8) unsigned char value[8] = {0};
    tsri_ref_store(y->dtype, value, 0, v->ref.attrs.slice.value);
    TSRI_REF_EACH(c, 0, (count + CHUNK - 1) / CHUNK, count >= PARALLEL, {
        int64_t n = count - c * CHUNK < CHUNK ? count - c * CHUNK : CHUNK;
        fill((char *)out[0] + c * CHUNK * (int64_t)size, size, value, n);
    });
    move_box(v, &v->box[0], in[0], out[0]);
    return TSR_OK;
}

tsr_status tsri_ref_pad(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    boxes *v = NULL;
    TSRI_TRY(make(mem, d, pad_run, 1, &v));
    int64_t stride[TSR_MAX_NDIM];
    v->box[0].to = tsri_ref_view(d->attrs, &d->out[0], stride);
    set_box(&v->box[0], &d->in[0], stride, d->in[0].stride);
    *out_kernel = &v->ref.base;
    return TSR_OK;
}
