/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESSERA_CONFIG_PRINT_MAN_H
#define TESSERA_CONFIG_PRINT_MAN_H

#include "src/config/experiment.h"

/* The examples of the manual page, NULL behind the last: tests read them. */
extern const char *const tsri_config_examples[];

#endif
