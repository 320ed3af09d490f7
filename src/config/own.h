/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers that entries give to ops and optimizers of plug-ins. */
#ifndef TESSERA_CONFIG_OWN_H
#define TESSERA_CONFIG_OWN_H

#include <tessera/own_op.h>

#include "src/config/tree.h"

/* Reads numbers by name from a mapping (NULL: none is said); others have their defaults. list: most
 * `most`, up to a name of NULL. what: "op 'f'", in messages. */
tsr_status tsri_own_numbers(const tsri_yaml *map, const char *what, int most,
                            const tsr_op_option *list, double *out);

#endif
