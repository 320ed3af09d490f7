/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions along one, two and three axes and transposed ones, with torch.nn's parameters and
 * initial distributions. A layer keeps its options between its creation and its use. */
#include <tessera/functional.h>

#include "src/core/opts.h"
#include "src/nn/layers/layer.h"

/* The sizes that a layer's parameters follow from, with a window along n axes. */
typedef struct sizes {
    const char *who;
    int64_t in, out, groups;
    int n, kernel[3];
    bool transposed, bias;
} sizes;

/* Makes the layer and its parameters; fan_in is, as PyTorch's, that of the weight's second axis,
 * also of a transposed convolution. */
static tsr_module *create_conv(tsr_world *w, const tsr_nn_opts *o, const sizes *s,
                               tsr_forward_fn *forward, const void *opts, size_t bytes)
{
    bool fits = s->in >= 1 && s->out >= 1 && s->groups >= 1 && s->in % s->groups == 0 &&
                s->out % s->groups == 0;
    for (int i = 0; i < s->n; i++)
        fits = fits && s->kernel[i] >= 1;
    if (!fits) {
        tsri_fail(TSR_ERR_INVALID,
                  "%s: in = %lld and out = %lld channels must be multiples of groups = %lld, and "
                  "each size of the kernel at least 1",
                  s->who, (long long)s->in, (long long)s->out, (long long)s->groups);
        return NULL;
    }
    tsr_module *m = tsri_layer_create(w, o, forward, opts, bytes);
    if (!m)
        return NULL;
    tsr_dims dims = {.ndim = 2 + s->n};
    dims.d[0] = s->transposed ? s->in : s->out;
    dims.d[1] = (s->transposed ? s->out : s->in) / s->groups;
    double fan_in = (double)dims.d[1];
    for (int i = 0; i < s->n; i++) {
        dims.d[2 + i] = s->kernel[i];
        fan_in *= s->kernel[i];
    }
    tsr_module_param(m, "weight", dims, TSR_AUTO, tsri_layer_weight_init());
    if (s->bias)
        tsr_module_param(m, "bias", TSR_DIMS(s->out), TSR_AUTO, tsri_layer_bias_init(fan_in));
    return tsri_layer_finish(m);
}

static tsr_tensor *conv1d_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    tsr_tensor *w = tsr_use_at(m, "weight", x, m->loc.file, m->loc.line);
    return tsr_conv1d_at(x, w, tsri_layer_use(m, "bias", x), arg, m->loc.file, m->loc.line);
}

tsr_module *tsr_nn_conv1d(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t out, int kernel,
                          bool bias, const tsr_conv1d_opts *conv)
{
    tsr_conv1d_opts opts = *TSR_CONV1D_OPTS();
    if (tsri_opts_read(&opts, sizeof opts, conv, __func__) != TSR_OK)
        return NULL;
    const sizes s = {.who = __func__,
                     .in = in,
                     .out = out,
                     .groups = opts.groups,
                     .n = 1,
                     .kernel = {kernel},
                     .bias = bias};
    return create_conv(w, o, &s, conv1d_forward, &opts, sizeof opts);
}

static tsr_tensor *conv2d_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    tsr_tensor *w = tsr_use_at(m, "weight", x, m->loc.file, m->loc.line);
    return tsr_conv2d_at(x, w, tsri_layer_use(m, "bias", x), arg, m->loc.file, m->loc.line);
}

tsr_module *tsr_nn_conv2d(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t out, int kernel,
                          bool bias, const tsr_conv2d_opts *conv)
{
    tsr_conv2d_opts opts = *TSR_CONV2D_OPTS();
    if (tsri_opts_read(&opts, sizeof opts, conv, __func__) != TSR_OK)
        return NULL;
    const sizes s = {.who = __func__,
                     .in = in,
                     .out = out,
                     .groups = opts.groups,
                     .n = 2,
                     .kernel = {kernel, kernel},
                     .bias = bias};
    return create_conv(w, o, &s, conv2d_forward, &opts, sizeof opts);
}

static tsr_tensor *conv3d_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    tsr_tensor *w = tsr_use_at(m, "weight", x, m->loc.file, m->loc.line);
    return tsr_conv3d_at(x, w, tsri_layer_use(m, "bias", x), arg, m->loc.file, m->loc.line);
}

tsr_module *tsr_nn_conv3d(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t out,
                          tsr_dhw kernel, bool bias, const tsr_conv3d_opts *conv)
{
    tsr_conv3d_opts opts = *TSR_CONV3D_OPTS();
    if (tsri_opts_read(&opts, sizeof opts, conv, __func__) != TSR_OK)
        return NULL;
    const sizes s = {.who = __func__,
                     .in = in,
                     .out = out,
                     .groups = opts.groups,
                     .n = 3,
                     .kernel = {kernel.d, kernel.h, kernel.w},
                     .bias = bias};
    return create_conv(w, o, &s, conv3d_forward, &opts, sizeof opts);
}

static tsr_tensor *conv_transpose1d_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    tsr_tensor *w = tsr_use_at(m, "weight", x, m->loc.file, m->loc.line);
    return tsr_conv_transpose1d_at(x, w, tsri_layer_use(m, "bias", x), arg, m->loc.file,
                                   m->loc.line);
}

tsr_module *tsr_nn_conv_transpose1d(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t out,
                                    int kernel, bool bias, const tsr_conv_transpose1d_opts *conv)
{
    tsr_conv_transpose1d_opts opts = *TSR_CONV_TRANSPOSE1D_OPTS();
    if (tsri_opts_read(&opts, sizeof opts, conv, __func__) != TSR_OK)
        return NULL;
    const sizes s = {.who = __func__,
                     .in = in,
                     .out = out,
                     .groups = opts.groups,
                     .n = 1,
                     .kernel = {kernel},
                     .transposed = true,
                     .bias = bias};
    return create_conv(w, o, &s, conv_transpose1d_forward, &opts, sizeof opts);
}

static tsr_tensor *conv_transpose2d_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    tsr_tensor *w = tsr_use_at(m, "weight", x, m->loc.file, m->loc.line);
    return tsr_conv_transpose2d_at(x, w, tsri_layer_use(m, "bias", x), arg, m->loc.file,
                                   m->loc.line);
}

tsr_module *tsr_nn_conv_transpose2d(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t out,
                                    tsr_hw kernel, bool bias, const tsr_conv_transpose2d_opts *conv)
{
    tsr_conv_transpose2d_opts opts = *TSR_CONV_TRANSPOSE2D_OPTS();
    if (tsri_opts_read(&opts, sizeof opts, conv, __func__) != TSR_OK)
        return NULL;
    const sizes s = {.who = __func__,
                     .in = in,
                     .out = out,
                     .groups = opts.groups,
                     .n = 2,
                     .kernel = {kernel.h, kernel.w},
                     .transposed = true,
                     .bias = bias};
    return create_conv(w, o, &s, conv_transpose2d_forward, &opts, sizeof opts);
}

static tsr_tensor *conv_transpose3d_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    tsr_tensor *w = tsr_use_at(m, "weight", x, m->loc.file, m->loc.line);
    return tsr_conv_transpose3d_at(x, w, tsri_layer_use(m, "bias", x), arg, m->loc.file,
                                   m->loc.line);
}

tsr_module *tsr_nn_conv_transpose3d(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t out,
                                    tsr_dhw kernel, bool bias,
                                    const tsr_conv_transpose3d_opts *conv)
{
    tsr_conv_transpose3d_opts opts = *TSR_CONV_TRANSPOSE3D_OPTS();
    if (tsri_opts_read(&opts, sizeof opts, conv, __func__) != TSR_OK)
        return NULL;
    const sizes s = {.who = __func__,
                     .in = in,
                     .out = out,
                     .groups = opts.groups,
                     .n = 3,
                     .kernel = {kernel.d, kernel.h, kernel.w},
                     .transposed = true,
                     .bias = bias};
    return create_conv(w, o, &s, conv_transpose3d_forward, &opts, sizeof opts);
}
