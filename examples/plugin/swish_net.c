/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in: a model of the library's layers, for `model: {plugin: swish_net.so, function:
 * swish_net}`. */
#include <tessera/tessera.h>

#include <tessera/layers.h>

TSR_API tsr_plugin_begin_fn tsr_plugin_begin;
TSR_API tsr_plugin_model_fn swish_net;

/* Defines nothing: the model needs no op of its own. */
tsr_status tsr_plugin_begin(tsr_world *world)
{
    (void)world;
    return TSR_OK;
}

static tsr_tensor *rows(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)m, (void)arg;
    return tsr_flatten(x, 1);
}

static tsr_tensor *swish(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)m, (void)arg;
    return tsr_mul(x, tsr_sigmoid(x));
}

/* Returns two linear layers over images of 64 elements, with x sigmoid(x) between. */
tsr_module *swish_net(tsr_world *w, const tsr_nn_opts *o)
{
    tsr_module *net = tsr_nn_sequential(w, o);
    tsr_module_add(net, "rows", tsr_module_create(w, o, rows, NULL, NULL));
    tsr_module_add(net, "first", tsr_nn_linear(w, o, 64, 16, true));
    tsr_module_add(net, "swish", tsr_module_create(w, o, swish, NULL, NULL));
    tsr_module_add(net, "last", tsr_nn_linear(w, o, 16, 10, true));
    return net;
}
