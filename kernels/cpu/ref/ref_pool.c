/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling. Gradients gather: each input position asks the windows that hold it, so every element
 * is written once, by one thread, in a fixed order. */
#include "kernels/cpu/ref/ref.h"

#include <math.h>

/* [begin, end) */
typedef struct span {
    int64_t begin, end;
} span;

/* The part of output position o's window that lies inside the local input, along axis 2 + i.
 * Adaptive windows are those of the global tensor, so a shard may hold a piece of one. */
static span window(const tsri_ref *ref, int i, int64_t o, const tsri_arg *big,
                   const tsri_arg *small)
{
    const tsri_attrs *at = &ref->attrs;
    span s;
    if (ref->desc.op == TSRI_OP_ADAPTIVE_POOL || ref->desc.op == TSRI_OP_ADAPTIVE_POOL_DX) {
        int64_t size = big->gshape[2 + i], parts = small->gshape[2 + i];
        o += small->offset[2 + i];
        s.begin = o * size / parts - big->offset[2 + i];
        s.end = ((o + 1) * size + parts - 1) / parts - big->offset[2 + i];
    } else {
        s.begin = o * at->pool.stride[i] - at->pool.pad[i];
        s.end = s.begin + at->pool.kernel[i];
    }
    s.begin = s.begin < 0 ? 0 : s.begin;
    s.end = s.end > big->shape[2 + i] ? big->shape[2 + i] : s.end;
    return s;
}

/* The output positions whose windows hold input position p. */
static span holders(const tsri_ref *ref, int i, int64_t p, const tsri_arg *big,
                    const tsri_arg *small)
{
    const tsri_attrs *at = &ref->attrs;
    span s;
    if (ref->desc.op == TSRI_OP_ADAPTIVE_POOL_DX) {
        int64_t size = big->gshape[2 + i], parts = small->gshape[2 + i];
        p += big->offset[2 + i];
        s.begin = p * parts / size - small->offset[2 + i];
        s.end = ((p + 1) * parts - 1) / size + 1 - small->offset[2 + i];
    } else {
        int64_t q = p + at->pool.pad[i], k = at->pool.kernel[i], st = at->pool.stride[i];
        s.begin = q < k ? 0 : (q - k) / st + 1;
        s.end = q / st + 1;
    }
    s.begin = s.begin < 0 ? 0 : s.begin;
    s.end = s.end > small->shape[2 + i] ? small->shape[2 + i] : s.end;
    return s;
}

/* The divisor of a window's sum. */
static double divisor(const tsri_ref *ref, int64_t oh, int64_t ow, const tsri_arg *big,
                      const tsri_arg *small)
{
    const tsri_attrs *at = &ref->attrs;
    bool adaptive =
        ref->desc.op == TSRI_OP_ADAPTIVE_POOL || ref->desc.op == TSRI_OP_ADAPTIVE_POOL_DX;
    if (!adaptive && at->pool.count_include_pad)
        return (double)at->pool.kernel[0] * at->pool.kernel[1];
    double n = 1;
    const int64_t at_out[2] = {oh, ow};
    for (int i = 0; i < 2; i++) {
        if (adaptive) {
            int64_t size = big->gshape[2 + i], parts = small->gshape[2 + i];
            int64_t o = at_out[i] + small->offset[2 + i];
            n *= (double)(((o + 1) * size + parts - 1) / parts - o * size / parts);
        } else {
            span s = window(ref, i, at_out[i], big, small);
            n *= (double)(s.end - s.begin);
        }
    }
    return n;
}

/* A pixel (n, p, q) of what is written, and the pixels of the other tensor that it is made of. */
typedef struct pixel {
    const tsri_ref *ref;
    const tsri_arg *big, *small; /* before pooling, and behind it */
    void *const *in, *const *out;
    int64_t n, p, q;
    span h, w;
} pixel;

#define T float
#define FN(name) name##_f32
#include "kernels/cpu/ref/ref_pool_t.h"
#undef T
#undef FN
#define T double
#define FN(name) name##_f64
#include "kernels/cpu/ref/ref_pool_t.h"
#undef T
#undef FN

static tsr_status pool_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    (void)scratch;
    const tsri_ref *ref = (const tsri_ref *)k;
    const tsri_arg *y = &ref->desc.out[0];
    const bool dx = ref->desc.op == TSRI_OP_MAX_POOL_DX || ref->desc.op == TSRI_OP_AVG_POOL_DX ||
                    ref->desc.op == TSRI_OP_ADAPTIVE_POOL_DX;
    const tsri_arg *big = dx ? y : &ref->desc.in[0];
    const tsri_arg *small = dx ? &ref->desc.in[ref->desc.nin - 1] : y;
    TSRI_REF_EACH(r, 0, y->shape[0] * y->shape[2], tsri_arg_count(big) > 1 << 14, {
        pixel q = {.ref = ref, .big = big, .small = small, .in = in, .out = out};
        q.n = r / y->shape[2];
        q.p = r % y->shape[2];
        q.h = (dx ? holders : window)(ref, 0, q.p, big, small);
        for (q.q = 0; q.q < y->shape[3]; q.q++) {
            q.w = (dx ? holders : window)(ref, 1, q.q, big, small);
            if (y->dtype == TSR_F32)
                pool_f32(&q);
            else
                pool_f64(&q);
        }
    });
    return TSR_OK;
}

tsr_status tsri_ref_max_pool(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const bool max_dx = d->op == TSRI_OP_MAX_POOL_DX; /* of which operand 0 are the indices */
    const tsri_arg *idx = max_dx ? &d->in[0] : d->nout > 1 ? &d->out[1] : NULL;
    if ((idx && idx->dtype != TSR_I32) || !tsri_ref_is_float(d->out[0].dtype) ||
        !tsri_ref_alike(d, max_dx, d->nin))
        return tsri_ref_decline(d);
    return tsri_ref_create(mem, d, pool_run, out_kernel);
}
TSRI_REF_SAME(max_pool_dx, max_pool);
TSRI_REF_SAME(avg_pool, max_pool);
TSRI_REF_SAME(avg_pool_dx, max_pool);
TSRI_REF_SAME(adaptive_pool, max_pool);
TSRI_REF_SAME(adaptive_pool_dx, max_pool);
