/* SPDX-License-Identifier: Apache-2.0 */
/* The convolutions of the emulated cuDNN, by their definition, and its engines. */
#include "tests/cuda/emulator/cudnn.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace emulated_dnn {

static int64_t count(const tensor &t)
{
    int64_t n = 1;
    for (int64_t d : t.dims)
        n *= d;
    return n;
}

static size_t size_of(cudnnDataType_t type)
{
    return type == CUDNN_DATA_FLOAT ? 4 : 2;
}

static size_t bytes_of(const tensor &t)
{
    return (size_t)count(t) * size_of(t.type);
}

const char *check(const convolution &c)
{
    const std::vector<int64_t> &x = c.x.dims, &w = c.w.dims, &y = c.y.dims;
    if (x.size() != 4 || w.size() != 4 || y.size() != 4)
        return "four axes each";
    if (c.x.type != c.w.type || c.x.type != c.y.type)
        return "operands of one type";
    if (c.x.type != CUDNN_DATA_FLOAT && c.x.type != CUDNN_DATA_HALF &&
        c.x.type != CUDNN_DATA_BFLOAT16)
        return "f32, f16 or bf16";
    if (c.x.uid == c.w.uid || c.x.uid == c.y.uid || c.w.uid == c.y.uid)
        return "operands have names of their own";
    if (x[0] != y[0] || w[0] != y[1] || x[1] % w[1] || w[0] % (x[1] / w[1]))
        return "images and channels of the operands";
    for (size_t i = 0; i < 2; i++) {
        int64_t reach = c.slide.dilation[i] * (w[2 + i] - 1) + 1;
        int64_t room = x[2 + i] + c.slide.pad[i] + c.slide.pad_after[i] - reach;
        if (room < 0 || y[2 + i] != room / c.slide.stride[i] + 1)
            return "the plane of y";
    }
    return nullptr;
}

/* --- engines ---------------------------------------------------------------------------------- */
std::vector<engine> proposals(const convolution &c, cudnnBackendHeurMode_t mode)
{
    if (mode == CUDNN_HEUR_MODE_FALLBACK)
        return {engine::plain};
    std::vector<engine> list = {engine::unsteady, engine::huge, engine::unmade};
    /* Of dilated ones it proposes nothing that can be taken. */
    bool dilated = c.slide.dilation[0] != 1 || c.slide.dilation[1] != 1;
    if (c.x.type == CUDNN_DATA_FLOAT)
        list.insert(list.begin(), engine::tf32);
    else if (!dilated)
        list.push_back(engine::tensor_core);
    if (!dilated)
        list.push_back(engine::fma);
    return list;
}

std::vector<cudnnBackendNumericalNote_t> notes(engine e)
{
    if (e == engine::unsteady)
        return {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC};
    if (e == engine::tf32 || e == engine::tensor_core)
        return {CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
    return {};
}

/* As the true ones do, they want weights channels last and transpose them otherwise; but the plain
 * one, and f32's weight gradient, transpose x and y. */
size_t workspace_of(const convolution &c, engine e)
{
    const size_t own = 64;
    if (e == engine::huge)
        return (size_t)1 << 40;
    if (c.w.strides[1] == 1)
        return own;
    bool images = e == engine::plain || (e == engine::fma && c.kind == kind::filter);
    return own + (images ? bytes_of(c.x) + bytes_of(c.y) : bytes_of(c.w));
}

/* --- arithmetic ------------------------------------------------------------------------------- */
static float load(const tensor &t, const void *p, int64_t at)
{
    if (t.type == CUDNN_DATA_HALF)
        return __half2float(((const __half *)p)[at]);
    if (t.type == CUDNN_DATA_BFLOAT16)
        return __bfloat162float(((const __nv_bfloat16 *)p)[at]);
    return ((const float *)p)[at];
}

static void store(const tensor &t, void *p, int64_t at, float v)
{
    if (t.type == CUDNN_DATA_HALF)
        ((__half *)p)[at] = __float2half_rn(v);
    else if (t.type == CUDNN_DATA_BFLOAT16)
        ((__nv_bfloat16 *)p)[at] = __float2bfloat16_rn(v);
    else
        ((float *)p)[at] = v;
}

static float shorten(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    bits &= ~0x1fffu;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static int64_t place(const tensor &t, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return a * t.strides[0] + b * t.strides[1] + c * t.strides[2] + d * t.strides[3];
}

/* One product of every sum; `sums` lies as the result does. */
struct work {
    const convolution &c;
    bool tf32;
    const void *x, *w, *y;
    double *sums;

    double value(const tensor &t, const void *p, int64_t at) const
    {
        float v = load(t, p, at);
        return tf32 ? shorten(v) : v;
    }

    void add(int64_t x_at, int64_t w_at, int64_t y_at) const
    {
        if (c.kind == kind::forward)
            sums[y_at] += value(c.x, x, x_at) * value(c.w, w, w_at);
        else if (c.kind == kind::data)
            sums[x_at] += value(c.y, y, y_at) * value(c.w, w, w_at);
        else
            sums[w_at] += value(c.x, x, x_at) * value(c.y, y, y_at);
    }

    /* All that one element of y takes part in. */
    void run(int64_t n, int64_t o, int64_t oh, int64_t ow) const
    {
        const std::vector<int64_t> &xd = c.x.dims, &wd = c.w.dims;
        int64_t groups = xd[1] / wd[1], first = o / (wd[0] / groups) * wd[1];
        for (int64_t i = 0; i < wd[1]; i++)
            for (int64_t kh = 0; kh < wd[2]; kh++)
                for (int64_t kw = 0; kw < wd[3]; kw++) {
                    int64_t h = oh * c.slide.stride[0] - c.slide.pad[0] + kh * c.slide.dilation[0];
                    int64_t v = ow * c.slide.stride[1] - c.slide.pad[1] + kw * c.slide.dilation[1];
                    if (h >= 0 && h < xd[2] && v >= 0 && v < xd[3])
                        add(place(c.x, n, first + i, h, v), place(c.w, o, i, kh, kw),
                            place(c.y, n, o, oh, ow));
                }
    }
};

void compute(const convolution &c, engine e, void *x, void *w, void *y)
{
    const tensor &result = c.kind == kind::forward ? c.y : c.kind == kind::data ? c.x : c.w;
    void *out = c.kind == kind::forward ? y : c.kind == kind::data ? x : w;
    std::vector<double> sums((size_t)count(result));
    work job = {c, e == engine::tf32, x, w, y, sums.data()};
    for (int64_t n = 0; n < c.y.dims[0]; n++)
        for (int64_t o = 0; o < c.y.dims[1]; o++)
            for (int64_t oh = 0; oh < c.y.dims[2]; oh++)
                for (int64_t ow = 0; ow < c.y.dims[3]; ow++)
                    job.run(n, o, oh, ow);
    for (int64_t i = 0; i < count(result); i++) {
        double v = c.alpha * sums[(size_t)i];
        if (c.beta != 0)
            v += (double)c.beta * load(result, out, i);
        store(result, out, i, (float)v);
    }
}

} // namespace emulated_dnn
