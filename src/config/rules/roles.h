/* SPDX-License-Identifier: Apache-2.0 */
/* Derives the rules of megatron and sequence for a model from the roles of its parameters
 * (tsr_variable_set_role). */
#ifndef TESSERA_CONFIG_ROLES_H
#define TESSERA_CONFIG_ROLES_H

#include "src/config/inside.h"

enum { TSRI_PAIR_WHOLE = -1 /* B */ };

/* A second signature that sequence needs of a tensor. */
typedef enum tsri_pair_use {
    TSRI_PAIR_CUT = 0,
    TSRI_PAIR_USED_WHOLE, /* gathered before its consumers: a norm's result */
    TSRI_PAIR_MADE_WHOLE, /* its gradient is gathered before its consumers: a branch's result */
} tsri_pair_use;

/* A rule of megatron and of sequence: for each the axis that is split, or WHOLE. */
typedef struct tsri_pair_rule {
    const char *match;
    int naxes; /* of the parameters, as they are in files; 0: a rule of tensors */
    int megatron, sequence;
    tsri_pair_use use;
} tsri_pair_rule;

typedef struct tsri_pair_rules {
    tsri_pair_rule *rules; /* each matches no name of the model that needs another */
    int n;
    bool pairs;     /* a layer is divided by rows or columns */
    bool positions; /* tensors are (rows, positions, features), not (rows, features) */
} tsri_pair_rules;

/* Reads the roles of a model. All of the result lies in `pool`. */
tsr_status tsri_pair_rules_read(tsr_module *model, tsri_pool *pool, tsri_pair_rules *out_rules);

#endif
