/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that are one op, or none, with options of their own at most. */
#include <tessera/functional.h>

#include <math.h>

#include "src/nn/layers/layer.h"

/* The facts that such a layer keeps; each uses its own part. */
typedef struct facts {
    tsr_unary_op_fn *fn;
    double slope, p;
    tsr_gelu_form form;
    int axis;
} facts;

static tsr_module *make(tsr_world *w, const tsr_nn_opts *o, tsr_forward_fn *forward,
                        const facts *of)
{
    return tsri_layer_create(w, o, forward, of, sizeof *of);
}

static tsr_tensor *fn_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const facts *l = arg;
    return l->fn(x, m->loc.file, m->loc.line);
}

tsr_module *tsr_nn_fn(tsr_world *w, tsr_unary_op_fn *function)
{
    if (!function) {
        tsri_fail(TSR_ERR_INVALID, "tsr_nn_fn: the function is NULL");
        return NULL;
    }
    return make(w, NULL, fn_forward, &(facts){.fn = function});
}

tsr_module *tsr_nn_relu(tsr_world *w, const tsr_nn_opts *o)
{
    return make(w, o, fn_forward, &(facts){.fn = tsr_relu_at});
}

tsr_module *tsr_nn_relu6(tsr_world *w, const tsr_nn_opts *o)
{
    return make(w, o, fn_forward, &(facts){.fn = tsr_relu6_at});
}

tsr_module *tsr_nn_identity(tsr_world *w, const tsr_nn_opts *o)
{
    /* A container without children passes x on as it is. */
    return tsri_layer_create(w, o, NULL, NULL, 0);
}

tsr_module *tsr_nn_sequential(tsr_world *w, const tsr_nn_opts *o)
{
    return tsri_layer_create(w, o, NULL, NULL, 0);
}

static tsr_tensor *dropout_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const facts *l = arg;
    return tsr_dropout(x, l->p);
}

tsr_module *tsr_nn_dropout(tsr_world *w, const tsr_nn_opts *o, double p)
{
    if (!(p >= 0 && p < 1)) {
        tsri_fail(TSR_ERR_INVALID, "tsr_nn_dropout: p is %g; it must be in [0, 1)", p);
        return NULL;
    }
    return make(w, o, dropout_forward, &(facts){.p = p});
}

static tsr_tensor *leaky_relu_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const facts *l = arg;
    return tsr_leaky_relu(x, l->slope);
}

tsr_module *tsr_nn_leaky_relu(tsr_world *w, const tsr_nn_opts *o, double slope)
{
    if (isnan(slope)) {
        tsri_fail(TSR_ERR_INVALID, "tsr_nn_leaky_relu: the slope is NaN");
        return NULL;
    }
    return make(w, o, leaky_relu_forward, &(facts){.slope = slope});
}

static tsr_tensor *gelu_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const facts *l = arg;
    return tsr_gelu(x, l->form);
}

tsr_module *tsr_nn_gelu(tsr_world *w, const tsr_nn_opts *o, tsr_gelu_form form)
{
    if (form != TSR_GELU_ERF && form != TSR_GELU_TANH) {
        tsri_fail(TSR_ERR_INVALID, "tsr_nn_gelu: %d is no tsr_gelu_form", (int)form);
        return NULL;
    }
    return make(w, o, gelu_forward, &(facts){.form = form});
}

static tsr_tensor *prelu_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    return tsr_prelu(x, tsr_use(m, "weight", x));
}

tsr_module *tsr_nn_prelu(tsr_world *w, const tsr_nn_opts *o, int64_t c)
{
    if (c < 1) {
        tsri_fail(TSR_ERR_INVALID, "tsr_nn_prelu: %lld channels; at least 1 is needed",
                  (long long)c);
        return NULL;
    }
    tsr_module *m = tsri_layer_create(w, o, prelu_forward, NULL, 0);
    if (m)
        tsr_module_param(m, "weight", TSR_DIMS(c), TSR_AUTO,
                         (tsr_init){.kind = TSR_INIT_CONSTANT, .a = 0.25});
    return tsri_layer_finish(m);
}

static tsr_tensor *softmax_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const facts *l = arg;
    return tsr_softmax(x, l->axis);
}

tsr_module *tsr_nn_softmax(tsr_world *w, const tsr_nn_opts *o, int axis)
{
    return make(w, o, softmax_forward, &(facts){.axis = axis});
}

static tsr_tensor *flatten_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const facts *l = arg;
    return tsr_flatten(x, l->axis);
}

tsr_module *tsr_nn_flatten(tsr_world *w, const tsr_nn_opts *o, int from_axis)
{
    return make(w, o, flatten_forward, &(facts){.axis = from_axis});
}
