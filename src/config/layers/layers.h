/* SPDX-License-Identifier: Apache-2.0 */
/* Models of layers that stand in the file: how each layer is written, and what makes it. */
#ifndef TESSERA_CONFIG_LAYERS_H
#define TESSERA_CONFIG_LAYERS_H

#include "src/config/program.h"

enum { TSRI_CONFIG_MAX_LAYERS = 16384, TSRI_CONFIG_MAX_REPEAT = 4096 };

/* A layer: attributes of all kinds, of which each uses its own; first those that ops have, too. */
typedef struct tsri_config_layer {
    tsri_config_op op; /* head.variant: which layer */
    const char *name;
    int64_t repeat;
    int64_t in, out, channels, width, heads, hidden, count, inner, parts;
    bool bias, affine, bidirectional, batch_first, norm_first, final_norm, gelu;
    tsri_items layers, shortcut; /* tsri_config_layer */
    tsri_ref part;
} tsri_config_layer;

/* A list of layers with a name: `model.parts`. */
typedef struct tsri_config_part {
    tsri_head head;
    tsri_items layers;
} tsri_config_part;

/* The part of a name; NULL if there is none. */
const tsri_config_part *tsri_experiment_part(const tsri_experiment *e, const char *name);
/* Checks names, parts and how many layers there are. */
tsr_status tsri_layers_check(const tsri_experiment *e);
/* Makes the model that the file's layers are; NULL, with the error set. */
tsr_module *tsri_layers_make(tsri_program *p, const tsr_nn_opts *opts);

/* Visits pairs of linear layers with nothing but element-wise ops between them. */
typedef tsr_status tsri_layer_pair_fn(void *arg, const char *first, const char *second);
tsr_status tsri_layers_pairs(const tsri_experiment *e, tsri_layer_pair_fn *fn, void *arg);

#endif
