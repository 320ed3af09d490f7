/* SPDX-License-Identifier: Apache-2.0 */
/* All layers share how they are made, their initial values and their optional parameters. */
#ifndef TSRI_LAYER_H
#define TSRI_LAYER_H

#include <tessera/layers.h>

#include "src/nn/module.h"

/* The calls tsr_NAME in this folder, in functions of a module m, report errors at the user's call
 * of tsr_apply. */
#undef TSR_HERE
#define TSR_HERE m->loc.file, m->loc.line

/* Returns kaiming_uniform(a = sqrt(5)), which PyTorch's layers begin with: bound 1/sqrt(fan_in). */
tsr_init tsri_layer_weight_init(void);
/* Returns PyTorch's initial values of a bias: uniform below 1/sqrt(fan_in). */
tsr_init tsri_layer_bias_init(double fan_in);
/* Makes a layer that keeps a copy of `facts` (bytes long; NULL: none), which forward gets as its
 * arg. NULL on error. */
tsr_module *tsri_layer_create(tsr_world *w, const tsr_nn_opts *o, tsr_forward_fn *forward,
                              const void *facts, size_t bytes);
/* Makes a layer of several inputs and outputs likewise. */
tsr_module *tsri_layer_create_n(tsr_world *w, const tsr_nn_opts *o, tsr_forward_n_fn *forward,
                                const void *facts, size_t bytes);
/* Ends the making of a layer; m may be NULL. A variable or a child that failed has marked its
 * module: the text becomes the last error, and m is destroyed. */
tsr_module *tsri_layer_finish(tsr_module *m);
/* Returns the value of a variable if the layer has it, else NULL: an absent optional operand. */
tsr_tensor *tsri_layer_use(tsr_module *m, const char *name, tsr_tensor *x);

#endif
