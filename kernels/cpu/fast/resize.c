/* SPDX-License-Identifier: Apache-2.0 */
/* Resizing an axis of row-major f32: x is [outer][in][inner], y is [outer][out][inner]. */
#include "kernels/cpu/fast/fast.h"

#define RESIZE_FN static inline
#include "kernels/resize.h"

typedef struct resize {
    tsri_fast base;
    int64_t in, out, inner;
    /* The source of each element behind; part NULL: all are of one element; alone: which are. */
    int64_t *low, *high, *alone, nalone;
    float *part;
    /* Element i before is in those behind: at[k] and weight[k] for begin[i] <= k < begin[i + 1]. */
    int64_t *begin, *at;
    double *weight;
    bool equal; /* all weights are 1, */
    bool pairs; /* and each element before is in two behind: low and high */
} resize;

/* Rows of y. */
static void rows_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const resize *k = (const resize *)f;
    const int64_t inner = k->inner, bytes = inner * (int64_t)sizeof(float);
    for (int64_t row = p->begin; row < p->end; row++) {
        const int64_t i = row % k->out;
        const float *x = (const float *)p->in[0] + row / k->out * k->in * inner;
        const float *low = x + k->low[i] * inner;
        float *y = (float *)p->out[0] + row * inner;
        if (k->high[i] != k->low[i])
            f->isa->mix(low, x + k->high[i] * inner, NULL, k->part[i], y, inner);
        else
            f->isa->copy_rows((const char *)low, bytes, (char *)y, bytes, 1, bytes);
    }
}

/* Lines of y along the last axis. */
static void lines_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const resize *k = (const resize *)f;
    float *high = p->scratch;
    high += p->index * k->out;
    for (int64_t line = p->begin; line < p->end; line++) {
        const float *x = (const float *)p->in[0] + line * k->in;
        float *y = (float *)p->out[0] + line * k->out;
        f->isa->pick(x, k->low, y, k->out);
        if (!k->part)
            continue;
        f->isa->pick(x, k->high, high, k->out);
        f->isa->mix(y, high, k->part, 0, y, k->out);
        for (int64_t i = 0; i < k->nalone; i++) /* infinite, it has no difference from itself */
            y[k->alone[i]] = x[k->low[k->alone[i]]];
    }
}

/* Rows of dx. */
static void dx_rows_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const resize *k = (const resize *)f;
    for (int64_t row = p->begin; row < p->end; row++) {
        const int64_t first = k->begin[row % k->in], n = k->begin[row % k->in + 1] - first;
        f->isa->add_rows((const float *)p->in[0] + row / k->in * k->out * k->inner, k->at + first,
                         k->equal ? NULL : k->weight + first, n, k->inner,
                         (float *)p->out[0] + row * k->inner);
    }
}

/* Lines of dx along the last axis. */
static void dx_lines_part(const tsri_fast *f, const tsri_fast_part *p)
{
    const resize *k = (const resize *)f;
    float *high = p->scratch;
    high += p->index * k->in;
    for (int64_t line = p->begin; line < p->end; line++) {
        const float *dy = (const float *)p->in[0] + line * k->out;
        float *dx = (float *)p->out[0] + line * k->in;
        if (k->pairs) {
            const tsri_fast_map add = {.x = dx, .y = high, .out = dx};
            f->isa->pick(dy, k->low, dx, k->in);
            f->isa->pick(dy, k->high, high, k->in);
            f->isa->binary[TSRI_BINARY_ADD](&add, 0, k->in);
            continue;
        }
        for (int64_t i = 0; i < k->in; i++) {
            double sum = 0;
            for (int64_t n = k->begin[i]; n < k->begin[i + 1]; n++)
                sum += k->weight[n] * (double)dy[k->at[n]];
            dx[i] = (float)sum;
        }
    }
}

static void set_sources(resize *k, int how)
{
    for (int64_t i = 0; i < k->out; i++) {
        const tsri_resize_source s = tsri_resize_source_of(i, k->in, k->out, how);
        k->low[i] = s.low;
        k->high[i] = s.high;
        k->part[i] = (float)s.part;
        if (s.high == s.low)
            k->alone[k->nalone++] = i;
    }
    if (k->nalone == k->out)
        k->part = NULL;
}

static void set_weights(resize *k, int how)
{
    int64_t n = 0;
    k->equal = true;
    for (int64_t at = 0; at < k->in; at++) {
        k->begin[at] = n;
        for (int64_t i = tsri_resize_first(at, k->in, k->out, how); i < k->out; i++) {
            const tsri_resize_source s = tsri_resize_source_of(i, k->in, k->out, how);
            if (s.low > at)
                break;
            k->at[n] = i;
            k->weight[n] = tsri_resize_weight(s, at);
            k->equal = k->equal && k->weight[n] == 1;
            n++;
        }
    }
    k->begin[k->in] = n;
    k->pairs = k->equal && n == 2 * k->in;
    for (int64_t at = 0; at < k->in && k->pairs; at++) {
        k->pairs = k->begin[at + 1] - k->begin[at] == 2;
        k->low[at] = k->at[k->begin[at]];
        k->high[at] = k->at[k->begin[at] + 1];
    }
}

/* A thread's part is rows where the axis has others behind it, else lines. */
tsr_status tsri_fast_resize(tsri_mem *mem, const tsri_kernel_desc *desc, tsri_kernel **out_kernel)
{
    const bool dx = desc->op == TSRI_OP_RESIZE_DX;
    const tsri_arg *x = dx ? &desc->out[0] : &desc->in[0], *y = dx ? &desc->in[0] : &desc->out[0];
    const int axis = desc->attrs->resize.axis, how = desc->attrs->resize.how;
    const int64_t inner = tsri_arg_count_of(x, axis + 1, x->ndim);
    if (!tsri_fast_is_plain(desc))
        return tsri_fast_decline(desc);
    const int64_t in = x->shape[axis], out = y->shape[axis];
    const int64_t lines = tsri_arg_count_of(x, 0, axis);
    const size_t places = (size_t)(dx ? 3 * in + 1 + 2 * out : 3 * out) * sizeof(int64_t);
    const size_t numbers = (size_t)out * (dx ? 2 * sizeof(double) : sizeof(float));
    tsri_fast_part_fn *const fn[2][2] = {{lines_part, rows_part}, {dx_lines_part, dx_rows_part}};
    resize *k = tsri_fast_make(mem, desc, fn[dx][inner > 1], sizeof *k + places + numbers,
                               tsri_arg_count(x) + tsri_arg_count(y),
                               inner > 1 ? lines * (dx ? in : out) : lines);
    TSRI_NEED(k);
    k->in = in;
    k->out = out;
    k->inner = inner;
    if (dx) {
        k->weight = (double *)(void *)(k + 1);
        k->begin = (int64_t *)(void *)(k->weight + 2 * out);
        k->at = k->begin + in + 1;
        k->low = k->at + 2 * out;
        k->high = k->low + in;
        set_weights(k, how);
        if (k->pairs && inner == 1)
            k->base.base.scratch_bytes = (size_t)(k->base.threads * in) * sizeof(float);
    } else {
        k->low = (int64_t *)(void *)(k + 1);
        k->high = k->low + out;
        k->alone = k->high + out;
        k->part = (float *)(void *)(k->alone + out);
        set_sources(k, how);
        if (k->part && inner == 1)
            k->base.base.scratch_bytes = (size_t)(k->base.threads * out) * sizeof(float);
    }
    *out_kernel = &k->base.base;
    return TSR_OK;
}
