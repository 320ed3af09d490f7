/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the mirror's module. */
#ifndef TESSERA_TESTS_MIRROR_MODULE_H
#define TESSERA_TESTS_MIRROR_MODULE_H

#include "kernels/kernels.h"

/* Its one implementation. */
const tsri_kernels *const *mirror_kernels(void);

#endif
