/* SPDX-License-Identifier: Apache-2.0 */
/* Running products, sums of exponentials and places of extremes along an axis: a thread a line. */
#include "kernels/cuda/rows.cuh"

enum { LINES = 64 }; /* threads of a block */

/* Operands of the walk: the result, then the op's. */
typedef struct lines {
    tsri_cuda_walk walk;
    int64_t n, step[4];
    int fn;
} lines;

typedef struct scan {
    tsri_cuda_kernel kernel;
    lines of;
} scan;

template <typename T> static __global__ void forward(lines g, T *y, const T *x)
{
    for (int64_t l = tsri_first(); l < g.walk.count; l += tsri_step()) {
        int64_t at[2];
        tsri_walk_at<2>(g.walk, l, at);
        const bool product = g.fn == TSRI_SCAN_PRODUCT;
        double sum = product, most = -tsri_infinity<double>();
        for (int64_t i = 0; i < g.n; i++) {
            const double now = tsri_to<double>(x[at[1] + i * g.step[1]]);
            double value;
            if (product) {
                value = sum *= now;
            } else {
                const double top = now > most ? now : most;
                const double about = fabs(top) == tsri_infinity<double>() ? 0 : top;
                sum = sum * exp(most - about) + exp(now - about);
                most = top;
                value = sum == 0 ? most : about + log(sum);
            }
            y[at[0] + i * g.step[0]] = tsri_to<T>(value);
        }
    }
}

/* From the end; see ref_scan.c. */
template <typename T>
static __global__ void backward(lines g, T *dx, const T *x, const T *y, const T *dy)
{
    for (int64_t l = tsri_first(); l < g.walk.count; l += tsri_step()) {
        int64_t at[4];
        tsri_walk_at<4>(g.walk, l, at);
        double s = 0, behind = 0;
        for (int64_t i = g.n - 1; i >= 0; i--) {
            const double now = tsri_to<double>(x[at[1] + i * g.step[1]]);
            const double slope = tsri_to<double>(dy[at[3] + i * g.step[3]]);
            double value;
            if (g.fn == TSRI_SCAN_PRODUCT) {
                s = slope + s * behind;
                value = i ? tsri_to<double>(y[at[2] + (i - 1) * g.step[2]]) * s : s;
                behind = now;
            } else {
                const double sum = tsri_to<double>(y[at[2] + i * g.step[2]]);
                const double none = -tsri_infinity<double>();
                const bool apart = i == g.n - 1 || sum == none || fabs(behind) == -none;
                s = slope + (apart ? 0 : s * exp(sum - behind));
                value = now == none ? 0 : exp(now - sum) * s;
                behind = sum;
            }
            dx[at[0] + i * g.step[0]] = tsri_to<T>(value);
        }
    }
}

template <typename T> static __global__ void extremes(lines g, int64_t *y, const T *x)
{
    typedef tsri_acc<T> C; /* f16 and bf16 are compared as they are in f32 */
    for (int64_t l = tsri_first(); l < g.walk.count; l += tsri_step()) {
        int64_t at[2], best = 0;
        tsri_walk_at<2>(g.walk, l, at);
        C top = {};
        for (int64_t i = 0; i < g.n; i++) {
            const C now = tsri_to<C>(x[at[1] + i * g.step[1]]);
            const bool beats = g.fn == TSRI_SCAN_MAX ? now >= top : now <= top;
            if (i == 0 || now != now || (beats && top == top)) {
                best = i;
                top = now;
            }
            y[at[0] + i * g.step[0]] = best;
        }
    }
}

static tsr_status run(const tsri_cuda_kernel *k, void *const *in, void *const *out, void *)
{
    const scan *v = (const scan *)k;
    const int64_t lines = v->of.walk.count;
    if (lines == 0 || v->of.n == 0)
        return TSR_OK;
    const unsigned blocks = tsri_blocks(lines, LINES);
    if (k->desc.op == TSRI_OP_ARGSCAN)
        TSRI_NUMBERS(k->desc.in[0].dtype, TSRI_LAUNCH((extremes<T>), blocks, LINES, k->stream,
                                                      v->of, (int64_t *)out[0], (const T *)in[0]))
    else if (k->desc.op == TSRI_OP_SCAN)
        TSRI_FLOATS(k->desc.in[0].dtype, TSRI_LAUNCH((forward<T>), blocks, LINES, k->stream, v->of,
                                                     (T *)out[0], (const T *)in[0]))
    else
        TSRI_FLOATS(k->desc.in[0].dtype,
                    TSRI_LAUNCH((backward<T>), blocks, LINES, k->stream, v->of, (T *)out[0],
                                (const T *)in[0], (const T *)in[1], (const T *)in[2]))
    return tsri_cuda_launched(k);
}

static tsr_status create(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    const int axis = d->attrs->scan.axis;
    scan *v = (scan *)tsri_cuda_make(mem, d, run, "plain", sizeof *v);
    TSRI_NEED(v);
    const tsri_arg *operands[4] = {&d->out[0]};
    tsri_cuda_walk along;
    for (int i = 0; i < d->nin; i++)
        operands[1 + i] = &d->in[i];
    tsri_axis_walks(1 + d->nin, 1 + d->nin, operands, axis, &v->of.walk, &along);
    for (int i = 0; i < 1 + d->nin; i++)
        v->of.step[i] = operands[i]->stride[axis];
    v->of.n = d->out[0].shape[axis];
    v->of.fn = d->attrs->scan.fn;
    *out_kernel = &v->kernel.base;
    return TSR_OK;
}

tsr_status tsri_plain_scan(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    bool alike = tsri_cuda_is_float(d->out[0].dtype);
    for (int i = 0; i < d->nin; i++)
        alike = alike && d->in[i].dtype == d->out[0].dtype;
    return alike ? create(mem, d, out_kernel) : tsri_cuda_decline(d);
}

tsr_status tsri_plain_scan_dx(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return tsri_plain_scan(mem, d, out_kernel);
}

tsr_status tsri_plain_argscan(tsri_mem *mem, const tsri_kernel_desc *d, tsri_kernel **out_kernel)
{
    return d->out[0].dtype == TSR_I64 ? create(mem, d, out_kernel) : tsri_cuda_decline(d);
}
