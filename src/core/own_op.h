/* SPDX-License-Identifier: Apache-2.0 */
/* An op of a program's own, as declaring, kernels and messages need it. */
#ifndef TESSERA_CORE_OWN_OP_H
#define TESSERA_CORE_OWN_OP_H

#include <tessera/own_op.h>

#include "src/core/world.h"

struct tsr_op {
    tsri_owned owned;
    tsr_world *world;
    tsri_pool pool; /* of the texts */
    tsr_op *next;   /* that the world defined before */
    tsr_op_def def;
    const char *backward_name; /* "NAME_backward" */
    int noptions;
    uint64_t hash; /* of all that ranks must agree on */
};

#endif
