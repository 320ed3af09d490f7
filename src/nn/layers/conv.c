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

/* A layer's forward function and its maker, by the name of its function and options; the rest is
 * the kernel's sizes along n axes. */
#define CONV_LAYER(name, OPTS, size, n_, is_transposed, ...)                                      \
    static tsr_tensor *name##_forward(tsr_module *m, tsr_tensor *x, void *arg)                    \
    {                                                                                             \
        tsr_tensor *w = tsr_use_at(m, "weight", x, m->loc.file, m->loc.line);                     \
        tsr_tensor *b = tsri_layer_use(m, "bias", x);                                             \
        return tsr_##name##_at(x, w, b, arg, m->loc.file, m->loc.line);                           \
    }                                                                                             \
    tsr_module *tsr_nn_##name(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t out,        \
                              size kernel, bool bias, const tsr_##name##_opts *conv)              \
    {                                                                                             \
        tsr_##name##_opts opts = *OPTS();                                                         \
        if (tsri_opts_read(&opts, sizeof opts, conv, __func__) != TSR_OK)                         \
            return NULL;                                                                          \
        const sizes s = {__func__, in, out, opts.groups, n_, {__VA_ARGS__}, is_transposed, bias}; \
        return create_conv(w, o, &s, name##_forward, &opts, sizeof opts);                         \
    }

CONV_LAYER(conv1d, TSR_CONV1D_OPTS, int, 1, false, kernel)
CONV_LAYER(conv2d, TSR_CONV2D_OPTS, int, 2, false, kernel, kernel)
CONV_LAYER(conv3d, TSR_CONV3D_OPTS, tsr_dhw, 3, false, kernel.d, kernel.h, kernel.w)
CONV_LAYER(conv_transpose1d, TSR_CONV_TRANSPOSE1D_OPTS, int, 1, true, kernel)
CONV_LAYER(conv_transpose2d, TSR_CONV_TRANSPOSE2D_OPTS, tsr_hw, 2, true, kernel.h, kernel.w)
CONV_LAYER(conv_transpose3d, TSR_CONV_TRANSPOSE3D_OPTS, tsr_dhw, 3, true, kernel.d, kernel.h,
           kernel.w)
