/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of `tensors` and `parameters` for the entries of a graph, which fit their names. An
 * entry's own words count more than a rule.
 */
#ifndef TESSERA_CONFIG_ENTRIES_H
#define TESSERA_CONFIG_ENTRIES_H

#include "src/config/inside.h"

/* Finds the placement that the entry or a rule says; *out_where is NULL where none does. */
tsr_status tsri_entry_place(const tsri_experiment *e, const tsri_config_op *op,
                            const tsri_config_placement **out_where);
/* Finds the signature that the entry says, or of entries that are made in one a rule: op->said,
 * said_by and sbp, which is one of op->where. */
tsr_status tsri_entry_sbp(const tsri_experiment *e, tsri_config_op *op);
/* Checks that each rule of `parameters` is about a parameter of the graph, and each placement of
 * `tensors` about an entry. */
tsr_status tsri_entries_check(const tsri_experiment *e, const tsri_reader *r);

#endif
