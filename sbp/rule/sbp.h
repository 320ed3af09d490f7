/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures that are made of others, and which dimensions of one have an entry of some kind. */
#ifndef TESSERA_SBP_RULE_SBP_H
#define TESSERA_SBP_RULE_SBP_H

#include <tessera/placement.h>
#include <tessera/sbp.h>

/* B on each of ndim dimensions. */
tsr_sbp tsri_sbp_b(int ndim);
/* A lone B as B on each of ndim dimensions; any other signature as it is. */
tsr_sbp tsri_sbp_extend(tsr_sbp sbp, int ndim);
/* The signature with B for splits of axes that a tensor of naxes axes does not have: that of a bias
 * under the S(1) of its weight. */
tsr_sbp tsri_sbp_for_axes(tsr_sbp sbp, int naxes);
/* The signature without its entry for a dimension, as a slice of the placement has it; the slice of
 * one dimension has one too, of one rank, on which it is B. AUTO stays. */
tsr_sbp tsri_sbp_without(tsr_sbp sbp, int dim);
/* The signature as the compiler compares it: B on dimensions of size 1. AUTO stays. */
tsr_sbp tsri_sbp_canonical(const tsr_placement *p, tsr_sbp sbp);
/* Checks a signature that a user gives a tensor of a shape on a placement; AUTO is legal. P is
 * legal where the tensor is computed. Errors: TSR_ERR_SBP. */
tsr_status tsri_sbp_check(const tsr_placement *p, tsr_dims shape, tsr_sbp sbp, bool is_computed);
/* Returns the dimensions of more than one rank, as bits, whose entry is of a kind. */
unsigned tsri_sbp_dims(const tsr_placement *p, tsr_sbp sbp, tsr_sbp_kind kind);

#endif
