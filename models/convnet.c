/* SPDX-License-Identifier: Apache-2.0 */
/* A small convolutional network for 28x28 digits. */
#include <tessera/models.h>

#include <string.h>

static bool add_layer(tsr_world *w, const tsr_nn_opts *nn, tsr_module *net, const char *name,
                      int64_t in, int64_t out, const tsr_batch_norm_opts *bn)
{
    tsr_module *m = tsr_module_add(net, name, tsr_nn_sequential(w, nn));
    return m &&
           tsr_module_add(
               m, "0",
               tsr_nn_conv2d(w, nn, in, out, 5, true, TSR_CONV2D_OPTS(.padding = {2, 2}))) &&
           tsr_module_add(m, "1", tsr_nn_batch_norm(w, nn, out, bn)) &&
           tsr_module_add(m, "2", tsr_nn_relu(w, nn)) &&
           tsr_module_add(m, "3", tsr_nn_max_pool2d(w, nn, TSR_POOL2D_OPTS(.kernel = {2, 2})));
}

static tsr_tensor *net_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    x = tsr_apply(tsr_module_child(m, "layer1"), x);
    x = tsr_apply(tsr_module_child(m, "layer2"), x);
    return tsr_apply(tsr_module_child(m, "fc"), tsr_flatten(x, 1));
}

tsr_module *tsr_convnet(tsr_world *w, const tsr_placement *p, tsr_sbp sbp,
                        const tsr_convnet_opts *opts)
{
    tsr_convnet_opts o = *TSR_CONVNET_OPTS();
    if (opts)
        memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    const int64_t largest = 1 << 24;
    if (o.channels < 1 || o.height < 4 || o.width < 4 || o.height > largest || o.width > largest ||
        o.num_classes < 1) {
        tsr_set_error(
            TSR_ERR_INVALID,
            "tsr_convnet: channels %lld, height %lld, width %lld, num_classes %lld: images "
            "from 4 x 4 to 2^24 x 2^24 are needed, and at least one channel and one class",
            (long long)o.channels, (long long)o.height, (long long)o.width,
            (long long)o.num_classes);
        return NULL;
    }
    tsr_nn_opts nn = {.placement = p, .sbp = sbp, .dtype = o.dtype, .seed = o.seed};
    const tsr_batch_norm_opts *bn = TSR_BATCH_NORM_OPTS(.stats = o.bn, .parts = o.bn_parts);
    tsr_module *net = tsr_module_create(w, &nn, net_forward, NULL, NULL);
    /* Two poolings halve each side, rounding down. */
    int64_t features = 32 * (o.height / 2 / 2) * (o.width / 2 / 2);
    bool ok = net && add_layer(w, &nn, net, "layer1", o.channels, 16, bn) &&
              add_layer(w, &nn, net, "layer2", 16, 32, bn) &&
              tsr_module_add(net, "fc", tsr_nn_linear(w, &nn, features, o.num_classes, true));
    if (!ok) {
        tsr_module_destroy(net);
        return NULL;
    }
    return net;
}
