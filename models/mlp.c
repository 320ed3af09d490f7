/* SPDX-License-Identifier: Apache-2.0 */
/* A multi-layer perceptron. */
#include <tessera/models.h>

#include <stdio.h>
#include <string.h>

static tsr_tensor *net_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    tsr_module *layer;
    x = tsr_flatten(x, 1);
    for (int i = 0; (layer = tsr_module_child_at(m, i)); i++)
        x = tsr_apply(layer, x);
    return x;
}

/* Pairs layers 0 and 1, 2 and 3, ...; the last of an odd number is in none. */
static bool set_roles(tsr_module *layer, int i, int layers)
{
    tsr_variable *weight = tsr_module_find(layer, "weight");
    if (i % 2)
        return tsr_variable_set_role(weight, TSR_ROLE_ROW, 1) == TSR_OK;
    return i + 1 == layers ||
           (tsr_variable_set_role(weight, TSR_ROLE_COLUMN, 0) == TSR_OK &&
            tsr_variable_set_role(tsr_module_find(layer, "bias"), TSR_ROLE_COLUMN, 0) == TSR_OK);
}

tsr_module *tsr_mlp(tsr_world *w, const tsr_placement *p, tsr_sbp sbp, const tsr_mlp_opts *opts)
{
    tsr_mlp_opts o = *TSR_MLP_OPTS();
    if (opts)
        memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    if (o.inputs < 1 || o.hidden < 1 || o.outputs < 1 || o.layers < 1) {
        tsr_set_error(
            TSR_ERR_INVALID,
            "tsr_mlp: inputs %lld, hidden %lld, outputs %lld, layers %d: each must be at least 1%s",
            (long long)o.inputs, (long long)o.hidden, (long long)o.outputs, o.layers,
            o.inputs ? "" : "; .inputs has no default");
        return NULL;
    }
    tsr_nn_opts nn = {.placement = p, .sbp = sbp, .dtype = o.dtype, .seed = o.seed};
    tsr_module *net = tsr_module_create(w, &nn, net_forward, NULL, NULL);
    bool ok = net;
    int64_t in = o.inputs;
    char name[16];
    for (int i = 0; i < o.layers && ok; i++) {
        int64_t out = i + 1 < o.layers ? o.hidden : o.outputs;
        snprintf(name, sizeof name, "%d", 2 * i);
        tsr_module *layer = tsr_module_add(net, name, tsr_nn_linear(w, &nn, in, out, true));
        ok = layer && set_roles(layer, i, o.layers);
        if (i + 1 < o.layers && ok) {
            snprintf(name, sizeof name, "%d", 2 * i + 1);
            ok = tsr_module_add(net, name, tsr_nn_relu(w, &nn));
        }
        in = out;
    }
    if (!ok) {
        tsr_module_destroy(net);
        return NULL;
    }
    return net;
}
