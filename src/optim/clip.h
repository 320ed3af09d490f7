/* SPDX-License-Identifier: Apache-2.0 */
/* Norms of gradients and clipping, as ops of a graph. */
#ifndef TESSERA_OPTIM_CLIP_H
#define TESSERA_OPTIM_CLIP_H

#include <tessera/optim.h>
#include "src/graph/op.h"

/* Sets the graph of *c, that of the first of n tensors (NULL: left out), and checks that all are
 * live, floating point, and of that graph. False: it has failed, or the thread's error is set. */
bool tsri_begin_tensors(tsri_ctx *c, int n, tsr_tensor *const *x);
/* Checks a limit and the power of a norm. */
bool tsri_want_norm(const tsri_ctx *c, double most, double power);
/* The sum of x's squares, as an f64 scalar. */
tsr_tensor *tsri_make_squares(const tsri_ctx *c, tsr_tensor *x);
/* Returns the norm of all of n tensors together (NULL: left out), an f64 scalar on the placement of
 * the first. */
tsr_tensor *tsri_make_global_norm(const tsri_ctx *c, int n, tsr_tensor *const *x, double power);
/* Returns min(1, most / (norm + 1e-6)). */
tsr_tensor *tsri_make_clip_scale(const tsri_ctx *c, tsr_tensor *norm, double most);
/* Returns x with every element in [-most, most]. */
tsr_tensor *tsri_make_clipped(const tsri_ctx *c, tsr_tensor *x, double most);

#endif
