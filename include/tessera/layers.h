/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers: modules that the library makes, with PyTorch's names, parameters and initial values. Each
 * call returns a root module, which tsr_module_add gives to a parent; NULL on error
 * (tsr_last_error).
 */
#ifndef TESSERA_LAYERS_H
#define TESSERA_LAYERS_H

#include <tessera/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- layers, with PyTorch's names and initial distributions ----------------------------------- */
/* "weight" (out, in), "bias" (out). */
TSR_API tsr_module *tsr_nn_linear(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t out,
                                  bool bias);
/* "weight" (out, in/groups, kh, kw), "bias" (out). conv may be NULL. */
TSR_API tsr_module *tsr_nn_conv2d(tsr_world *w, const tsr_nn_opts *o, int64_t in, int64_t out,
                                  int kernel, bool bias, const tsr_conv2d_opts *conv);
/* "weight", "bias", buffers "running_mean", "running_var" (c); (R, c) split S(0) with TSR_BN_LOCAL.
 * bn may be NULL. */
TSR_API tsr_module *tsr_nn_batch_norm(tsr_world *w, const tsr_nn_opts *o, int64_t c,
                                      const tsr_batch_norm_opts *bn);
/* "weight", "bias" of `shape`, the last axes of what is passed through. ln may be NULL. */
TSR_API tsr_module *tsr_nn_layer_norm(tsr_world *w, const tsr_nn_opts *o, tsr_dims shape,
                                      const tsr_layer_norm_opts *ln);
/* Makes a layer without parameters that applies tsr_relu. */
TSR_API tsr_module *tsr_nn_relu(tsr_world *w, const tsr_nn_opts *o);
/* Makes a layer without parameters that applies tsr_relu6. */
TSR_API tsr_module *tsr_nn_relu6(tsr_world *w, const tsr_nn_opts *o);
/* Makes a layer that returns what it is given. */
TSR_API tsr_module *tsr_nn_identity(tsr_world *w, const tsr_nn_opts *o);
/* Makes a layer that drops elements with probability p in training graphs (tsr_dropout). */
TSR_API tsr_module *tsr_nn_dropout(tsr_world *w, const tsr_nn_opts *o, double p);
/* Makes a layer without parameters that applies tsr_max_pool2d. */
TSR_API tsr_module *tsr_nn_max_pool2d(tsr_world *w, const tsr_nn_opts *o,
                                      const tsr_pool2d_opts *pool);
/*
 * Gives the batch norms in and below m (those of tsr_nn_batch_norm) statistics over the batches of
 * all ranks of a group, in local training graphs: PyTorch's SyncBatchNorm. Each rank converts its
 * own module, all alike, and applies it in the same order; batches may be uneven, and empty. The
 * running averages are then equal on all ranks; the gradients of weight and bias are of each rank's
 * own batch. In other graphs nothing changes. TSR_ERR_INVALID names a batch norm with statistics of
 * several virtual batches (TSR_BN_LOCAL); nothing is changed then. The group must outlive the
 * module's use. Not collective.
 */
TSR_API tsr_status tsr_convert_sync_batchnorm(tsr_module *m, const tsr_group *group);
/* An empty container; children are applied in the order in which they were added. */
TSR_API tsr_module *tsr_nn_sequential(tsr_world *w, const tsr_nn_opts *o);

#ifdef __cplusplus
}
#endif
#endif
