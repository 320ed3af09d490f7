/* SPDX-License-Identifier: Apache-2.0 */
/* How near a name is to another that was probably meant. */
#ifndef TESSERA_CORE_NEAR_H
#define TESSERA_CORE_NEAR_H

/* Insertions, deletions, replacements and swaps of neighbours from a to b (Damerau's distance in
 * its restricted form); more than `limit` counts as limit + 1. */
int tsri_edit_distance(const char *a, const char *b, int limit);

#endif
