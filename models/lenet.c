/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LeNet-5 (LeCun et al., "Gradient-Based Learning Applied to Document Recognition", 1998) in the
 * form of PyTorch's tutorials: ReLU, and the maximum of each 2x2 window.
 */
#include <tessera/models.h>

#include <string.h>

static tsr_tensor *net_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    static const char *const convs[] = {"conv1", "conv2"}, *const linears[] = {"fc1", "fc2", "fc3"};
    (void)arg;
    for (int i = 0; i < 2; i++)
        x = tsr_max_pool2d(tsr_relu(tsr_apply(tsr_module_child(m, convs[i]), x)),
                           TSR_POOL2D_OPTS(.kernel = {2, 2}));
    x = tsr_flatten(x, 1);
    for (int i = 0; i < 3; i++) {
        x = tsr_apply(tsr_module_child(m, linears[i]), x);
        x = i < 2 ? tsr_relu(x) : x;
    }
    return x;
}

tsr_module *tsr_lenet(tsr_world *w, const tsr_placement *p, tsr_sbp sbp, const tsr_lenet_opts *opts)
{
    tsr_lenet_opts o = *TSR_LENET_OPTS();
    if (opts)
        memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    if (o.num_classes < 1 || o.channels < 1 || o.height != o.width ||
        (o.height != 28 && o.height != 32)) {
        tsr_set_error(TSR_ERR_INVALID,
                      "tsr_lenet: num_classes %lld, channels %lld, height %lld, width %lld: images "
                      "of 28 x 28 or 32 x 32 are needed, and at least one channel and one class",
                      (long long)o.num_classes, (long long)o.channels, (long long)o.height,
                      (long long)o.width);
        return NULL;
    }
    const int around = o.height == 28 ? 2 : 0; /* both sizes leave 16 planes of 5 x 5 */
    const tsr_conv2d_opts *first = TSR_CONV2D_OPTS(.padding = {around, around});
    tsr_nn_opts nn = {.placement = p, .sbp = sbp, .dtype = o.dtype, .seed = o.seed};
    tsr_module *net = tsr_module_create(w, &nn, net_forward, NULL, NULL);
    bool ok = net &&
              tsr_module_add(net, "conv1", tsr_nn_conv2d(w, &nn, o.channels, 6, 5, true, first)) &&
              tsr_module_add(net, "conv2", tsr_nn_conv2d(w, &nn, 6, 16, 5, true, NULL)) &&
              tsr_module_add(net, "fc1", tsr_nn_linear(w, &nn, 16 * 5 * 5, 120, true)) &&
              tsr_module_add(net, "fc2", tsr_nn_linear(w, &nn, 120, 84, true)) &&
              tsr_module_add(net, "fc3", tsr_nn_linear(w, &nn, 84, o.num_classes, true));
    if (!ok) {
        tsr_module_destroy(net);
        return NULL;
    }
    return net;
}
