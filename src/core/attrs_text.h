/* SPDX-License-Identifier: Apache-2.0 */
/* The attributes of ops by name, for messages. */
#ifndef TESSERA_CORE_ATTRS_TEXT_H
#define TESSERA_CORE_ATTRS_TEXT_H

#include <stdio.h>

#include "src/core/op_list.h"

/* Writes a line "name: value", exactly. */
void tsri_put_number(FILE *f, const char *name, double value);
/* Writes one line "name: value" for each attribute of an op; nothing for kinds that have none. */
void tsri_attrs_put(FILE *f, tsri_op_kind kind, const tsri_attrs *attrs);

#endif
