/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the functions made of ops: the place of the user's call, which all ops inside have too,
 * and checks of what several functions take. */
#ifndef TESSERA_FUNCTIONAL_INSIDE_H
#define TESSERA_FUNCTIONAL_INSIDE_H

#include <tessera/functional.h>

#include "src/graph/op.h"

/* The calls tsr_NAME in this folder pass on the place that their function was given. */
#undef TSR_HERE
#define TSR_HERE file, line

/* Returns a scalar of like's dtype and placement. */
tsr_tensor *tsri_number(const tsr_tensor *like, double value, const char *file, int line);
/* Returns x in another shape, of known sizes. */
tsr_tensor *tsri_shaped(tsr_tensor *x, tsr_dims dims, const char *file, int line);
/* Returns a loss's elements reduced as the user says; the mean of none is 0. */
tsr_tensor *tsri_reduced(tsr_tensor *loss, tsr_reduction reduction, const char *file, int line);
/* Returns sqrt(max(sum x^2, eps^2)) along an axis, which is kept with size 1. */
tsr_tensor *tsri_length(tsr_tensor *x, int axis, double eps, const char *file, int line);
/* Checks a way of looking between pixels. */
bool tsri_want_interpolation(const tsri_ctx *c, tsr_interpolation how);
/* Returns a dropout of ones of x's shape, whose scale is 1/(1-p); channels: (n,c,1,...), so that
 * whole channels of x fall. */
tsr_tensor *tsri_dropped_ones(const tsr_tensor *x, bool channels, double p, const char *file,
                              int line);

#endif
