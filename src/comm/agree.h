/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks settle whether a thing that each tried worked for all. */
#ifndef TESSERA_COMM_AGREE_H
#define TESSERA_COMM_AGREE_H

#include "src/core/world.h"

/*
 * Every rank tells its own `status` (and, if it isn't OK, the thread's last error). OK when all
 * were OK; else a failing rank gets its own error back, the others that of the first rank that
 * failed, with its number. Collective over the world. TSR_ERR_STATE in a virtual world.
 */
tsr_status tsri_agree(tsr_world *world, tsr_status status);

#endif
