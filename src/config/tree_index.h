/* SPDX-License-Identifier: Apache-2.0 */
/* How the children of a mapping are kept: a list in the file's order, and a hash of it. */
#ifndef TESSERA_CONFIG_TREE_INDEX_H
#define TESSERA_CONFIG_TREE_INDEX_H

#include "src/config/tree.h"

/* Puts a child behind the others. */
void tsri_yaml_append(tsri_yaml *parent, tsri_yaml *child);
/* Makes a finished mapping's keys findable. A key that is there twice is an error. */
tsr_status tsri_yaml_index(tsri_pool *pool, tsri_yaml *map);

/* Takes the child of a key off a mapping; NULL if there is none. */
tsr_status tsri_yaml_take(tsri_pool *pool, tsri_yaml *map, const char *key, tsri_yaml **out_child);
/* Makes an array the children of a mapping, in its order. */
tsr_status tsri_yaml_refill(tsri_pool *pool, tsri_yaml *map, int n, tsri_yaml *const *children);

#endif
