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

/* Returns two linear layers over images of 64 elements, with x sigmoid(x) between. They tell their
 * roles, so `strategy: megatron` divides the first by its outputs and the last by its inputs. */
tsr_module *swish_net(tsr_world *w, const tsr_nn_opts *o)
{
    tsr_module *net = tsr_nn_sequential(w, o);
    tsr_module_add(net, "rows", tsr_module_create(w, o, rows, NULL, NULL));
    tsr_module_add(net, "first", tsr_nn_linear(w, o, 64, 16, true));
    tsr_module_add(net, "swish", tsr_module_create(w, o, swish, NULL, NULL));
    tsr_module_add(net, "last", tsr_nn_linear(w, o, 16, 10, true));
    if (tsr_variable_set_role(tsr_module_find(net, "first.weight"), TSR_ROLE_COLUMN, 0) != TSR_OK ||
        tsr_variable_set_role(tsr_module_find(net, "first.bias"), TSR_ROLE_COLUMN, 0) != TSR_OK ||
        tsr_variable_set_role(tsr_module_find(net, "last.weight"), TSR_ROLE_ROW, 1) != TSR_OK) {
        tsr_module_destroy(net);
        return NULL;
    }
    return net;
}
