/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions with factors that are not finite: 0 times infinity is NaN, so that zeros which a
 * kernel puts around an image would spread one to results that do not depend on it. */
#include "kernels/cpu/ref/ref.h"

#include <math.h>

typedef struct edges {
    tsri_ref ref;
    tsri_kernel *inner;
    void (*destroy)(tsri_kernel *k);
    tsri_ref_end_fn *end; /* NULL: the inner kernel takes no end */
    /* The weights are fixed: the kernel keeps whether they are finite, as a bool at byte kept_at.
     * The inner kernel has the bytes before it. */
    bool keeps;
    size_t kept_at;
} edges;

/* The axes of sums: x (n, i, h, w), w (o, i of a group, kh, kw), y (n, o, p, q). */
typedef struct shape {
    const tsri_arg *x, *w, *y;
    const void *px, *pw, *py, *bias;
    int64_t from, to; /* channels of x and of y in a group */
    const tsri_attrs *at;
} shape;

static double load(const tsri_arg *a, const void *p, int64_t i, int64_t j, int64_t h, int64_t w)
{
    return tsri_ref_load(a->dtype, p,
                         i * a->stride[0] + j * a->stride[1] + h * a->stride[2] + w * a->stride[3]);
}

static void store(const tsri_arg *a, void *p, const int64_t at[4], double v)
{
    int64_t off = 0;
    for (int i = 0; i < 4; i++)
        off += at[i] * a->stride[i];
    tsri_ref_store(a->dtype, p, off, v);
}

/* Returns where tap k of the window at p is, or -1: outside of the image. */
static int64_t pixel(const shape *s, int axis, int64_t p, int64_t k)
{
    const int64_t h =
        p * s->at->conv.stride[axis] - s->at->conv.pad[axis] + k * s->at->conv.dilation[axis];
    return h < s->x->shape[2 + axis] ? h : -1;
}

/* Returns the window whose tap k is at h, or -1. */
static int64_t window(const shape *s, int axis, int64_t h, int64_t k)
{
    const int64_t p = h + s->at->conv.pad[axis] - k * s->at->conv.dilation[axis];
    return p < 0 || p % s->at->conv.stride[axis] ||
                   p / s->at->conv.stride[axis] >= s->y->shape[2 + axis]
               ? -1
               : p / s->at->conv.stride[axis];
}

/* Each returns one element of its result; a NaN ends the sum. */
static double y_at(const shape *s, const int64_t at[4])
{
    const int64_t first = at[1] / s->to * s->from;
    double sum = s->bias ? tsri_ref_load(s->y->dtype, s->bias, at[1]) : 0;
    for (int64_t a = 0; a < s->w->shape[2]; a++)
        for (int64_t b = 0; b < s->w->shape[3]; b++) {
            const int64_t h = pixel(s, 0, at[2], a), w = pixel(s, 1, at[3], b);
            for (int64_t i = 0; h >= 0 && w >= 0 && i < s->from && !isnan(sum); i++)
                sum +=
                    load(s->x, s->px, at[0], first + i, h, w) * load(s->w, s->pw, at[1], i, a, b);
        }
    return sum;
}

static double dx_at(const shape *s, const int64_t at[4])
{
    const int64_t first = at[1] / s->from * s->to;
    double sum = 0;
    for (int64_t a = 0; a < s->w->shape[2]; a++)
        for (int64_t b = 0; b < s->w->shape[3]; b++) {
            const int64_t p = window(s, 0, at[2], a), q = window(s, 1, at[3], b);
            for (int64_t o = first; p >= 0 && q >= 0 && o < first + s->to && !isnan(sum); o++)
                sum +=
                    load(s->y, s->py, at[0], o, p, q) * load(s->w, s->pw, o, at[1] % s->from, a, b);
        }
    return sum;
}

static double dw_at(const shape *s, const int64_t at[4])
{
    const int64_t i = at[0] / s->to * s->from + at[1];
    double sum = 0;
    for (int64_t p = 0; p < s->y->shape[2]; p++)
        for (int64_t q = 0; q < s->y->shape[3]; q++) {
            const int64_t h = pixel(s, 0, p, at[2]), w = pixel(s, 1, q, at[3]);
            for (int64_t n = 0; h >= 0 && w >= 0 && n < s->x->shape[0] && !isnan(sum); n++)
                sum += load(s->y, s->py, n, at[0], p, q) * load(s->x, s->px, n, i, h, w);
        }
    return sum;
}

/* Defines whether all of n numbers, given by their bits, are finite: of none are the bits of the
 * exponent all set, so that adding the lowest of these carries into the sign. */
#define ARE_FINITE(name, T, exponent)                                                              \
    static bool name(const T *bits, int64_t n)                                                     \
    {                                                                                              \
        const T lowest = (T)((exponent) & -(exponent)), sign = (T)((exponent) << 1 & ~(exponent)); \
        T found = 0;                                                                               \
        for (int64_t i = 0; i < n; i++)                                                            \
            found |= (T)((bits[i] & (exponent)) + lowest);                                         \
        return !(found & sign);                                                                    \
    }
ARE_FINITE(are_finite_f64, uint64_t, UINT64_C(0x7ff0000000000000))
ARE_FINITE(are_finite_f32, uint32_t, UINT32_C(0x7f800000))
ARE_FINITE(are_finite_f16, uint16_t, 0x7c00)
ARE_FINITE(are_finite_bf16, uint16_t, 0x7f80)
#undef ARE_FINITE

static bool are_finite(tsr_dtype dtype, const void *p, int64_t first, int64_t n)
{
    return dtype == TSR_F64   ? are_finite_f64((const uint64_t *)p + first, n)
           : dtype == TSR_F32 ? are_finite_f32((const uint32_t *)p + first, n)
           : dtype == TSR_F16 ? are_finite_f16((const uint16_t *)p + first, n)
                              : are_finite_bf16((const uint16_t *)p + first, n);
}

/* Whether all elements are finite; buffers are dense, in some order of the axes. */
static bool is_finite(const tsri_arg *a, const void *p)
{
    enum { AT_ONCE = 1 << 14 };
    const int64_t count = tsri_arg_count(a), blocks = (count + AT_ONCE - 1) / AT_ONCE;
    int bad = 0;
    TSRI_REF_EACH(b, 0, blocks, blocks > 8, {
        const int64_t first = b * AT_ONCE, left = count - first,
                      n = left < AT_ONCE ? left : AT_ONCE;
        if (!are_finite(a->dtype, p, first, n))
            __atomic_store_n(&bad, 1, __ATOMIC_RELAXED);
    });
    return !bad;
}

/* Whether a factor of channel c of the result is not finite: of y the weights of that filter, of dx
 * those of its group that read the channel, of dw the channel of dy. */
static bool meets_infinity(const shape *s, tsri_op_kind op, int64_t c)
{
    const tsri_arg *a = op == TSRI_OP_CONV2D_DW ? s->y : s->w;
    const void *p = op == TSRI_OP_CONV2D_DW ? s->py : s->pw;
    const int64_t group = c / s->from * s->to;
    int64_t from[4] = {0}, end[4];
    for (int i = 0; i < 4; i++)
        end[i] = a->shape[i];
    const int of = op == TSRI_OP_CONV2D ? 0 : 1;
    from[of] = op == TSRI_OP_CONV2D_DX ? c % s->from : c;
    end[of] = from[of] + 1;
    if (op == TSRI_OP_CONV2D_DX) {
        from[0] = group;
        end[0] = group + s->to;
    }
    double sum = 0; /* of 0 times each: NaN where one is not finite */
    for (int64_t i = from[0]; i < end[0]; i++)
        for (int64_t j = from[1]; j < end[1]; j++)
            for (int64_t h = from[2]; h < end[2]; h++)
                for (int64_t w = from[3]; w < end[3]; w++)
                    sum += 0 * load(a, p, i, j, h, w);
    return isnan(sum);
}

/* Computes channel c of the result: axis 0 of dw, else axis 1. */
static void compute(const shape *s, const tsri_kernel_desc *d, int64_t c, void *out)
{
    const tsri_arg *a = &d->out[0];
    const int of = d->op == TSRI_OP_CONV2D_DW ? 0 : 1;
    const int64_t n = a->shape[0] * a->shape[1] / a->shape[of] * a->shape[2] * a->shape[3];
    for (int64_t e = 0; e < n; e++) {
        int64_t at[4], rest = e;
        for (int i = 3; i >= 0; i--) {
            at[i] = i == of ? c : rest % a->shape[i];
            rest = i == of ? rest : rest / a->shape[i];
        }
        store(a, out, at,
              d->op == TSRI_OP_CONV2D      ? y_at(s, at)
              : d->op == TSRI_OP_CONV2D_DX ? dx_at(s, at)
                                           : dw_at(s, at));
    }
}

static tsr_status edges_keep(const tsri_kernel *k, void *const *in, void *kept, void *scratch)
{
    const edges *v = (const edges *)k;
    if (v->inner->keep)
        TSRI_TRY(v->inner->keep(v->inner, in, kept, scratch));
    *((bool *)kept + v->kept_at) = is_finite(&v->ref.desc.in[1], in[1]);
    return TSR_OK;
}

/* Whether the weights are finite, or of dw dy. */
static bool are_factors_finite(const edges *v, void *const *in)
{
    const tsri_kernel_desc *d = &v->ref.desc;
    return v->keeps ? *((const bool *)in[d->nin] + v->kept_at) : is_finite(&d->in[1], in[1]);
}

static tsr_status edges_run(const tsri_kernel *k, void *const *in, void *const *out, void *scratch)
{
    const edges *v = (const edges *)k;
    const tsri_kernel_desc *d = &v->ref.desc;
    const bool dx = d->op == TSRI_OP_CONV2D_DX, dw = d->op == TSRI_OP_CONV2D_DW;
    shape s = {.x = dx ? &d->out[0] : &d->in[0], .w = dw ? &d->out[0] : &d->in[1], .at = d->attrs};
    s.y = dx ? &d->in[0] : dw ? &d->in[1] : &d->out[0];
    s.px = in[0];
    s.pw = in[1];
    s.py = dx ? in[0] : in[1];
    s.bias = d->nin > 2 ? in[2] : NULL;
    s.from = s.w->shape[1];
    s.to = s.w->shape[0] / d->groups;
    const int64_t channels = d->out[0].shape[dw ? 0 : 1];
    TSRI_TRY(v->inner->run(v->inner, in, out, scratch));
    if (are_factors_finite(v, in))
        return TSR_OK;
    TSRI_REF_EACH(c, 0, channels, true, {
        if (meets_infinity(&s, d->op, c)) {
            compute(&s, d, c, out[0]);
            if (v->end)
                v->end(v->inner, in, out[0], c);
        }
    });
    return TSR_OK;
}

static void edges_destroy(tsri_kernel *k)
{
    edges *v = (edges *)k;
    v->inner->destroy(v->inner);
    v->destroy(k);
}

/* Whether a window reaches beyond the image, or dx reads between the pixels of dy. */
static bool has_edges(const tsri_kernel_desc *d)
{
    bool beyond = false;
    for (int i = 0; i < 2; i++)
        beyond |= d->attrs->conv.pad[i] > 0 ||
                  (d->op == TSRI_OP_CONV2D_DX &&
                   (d->attrs->conv.kernel[i] > 1 || d->attrs->conv.stride[i] > 1));
    return beyond;
}

tsr_status tsri_ref_conv_edges(tsri_mem *mem, const tsri_kernel_desc *d, tsri_ref_end_fn *end,
                               tsri_kernel **kernel)
{
    tsri_kernel *inner = *kernel;
    bool some = d->groups > 0 && tsri_arg_count(&d->out[0]) > 0;
    for (int i = 0; i < 2; i++)
        some = some && tsri_arg_count(&d->in[i]) > 0;
    if (!some || !has_edges(d) || inner->pieces)
        return TSR_OK;
    edges *v = tsri_ref_make(mem, d, edges_run, sizeof *v);
    if (!v)
        inner->destroy(inner);
    TSRI_NEED(v);
    v->inner = inner;
    v->destroy = v->ref.base.destroy;
    v->ref.base.destroy = edges_destroy;
    v->ref.base.scratch_bytes = inner->scratch_bytes;
    v->keeps = d->fixed >> 1 & 1;
    if (v->keeps) {
        enum { ALIGNMENT = 64 };
        v->kept_at = (inner->kept_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        v->ref.base.keep = edges_keep;
        v->ref.base.kept_bytes = v->kept_at + ALIGNMENT;
    }
    v->ref.base.impl = inner->impl;
    v->ref.base.takes_end = inner->takes_end && end;
    v->end = end;
    *kernel = &v->ref.base;
    return TSR_OK;
}
