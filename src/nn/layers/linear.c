/* SPDX-License-Identifier: Apache-2.0 */
/* The linear layer. */
#include "src/nn/layers/layer.h"

static tsr_tensor *linear_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    tsr_tensor *w = tsr_use_at(m, "weight", x, m->loc.file, m->loc.line);
    return tsr_linear_at(x, w, tsri_layer_use(m, "bias", x), m->loc.file, m->loc.line);
}

tsr_module *tsr_nn_linear(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t out, bool bias)
{
    if (in < 1 || out < 1) {
        tsri_fail(TSR_ERR_INVALID, "tsr_nn_linear: in = %lld and out = %lld must be at least 1",
                  (long long)in, (long long)out);
        return NULL;
    }
    tsr_module *m = tsri_layer_create(w, o, linear_forward, NULL, 0);
    tsr_module_param(m, "weight", TSR_DIMS(out, in), TSR_AUTO, tsri_layer_weight_init());
    if (bias)
        tsr_module_param(m, "bias", TSR_DIMS(out), TSR_AUTO, tsri_layer_bias_init((double)in));
    return tsri_layer_finish(m);
}
