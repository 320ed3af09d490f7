/* SPDX-License-Identifier: Apache-2.0 */
/* Variables' shards: where they lie in the global value, and how they get there and back. */
#ifndef TESSERA_GRAPH_VARIABLE_H
#define TESSERA_GRAPH_VARIABLE_H

#include "src/graph/graph.h"

/* A variable with no owner yet: dims, signature and init are checked. sbp AUTO stays AUTO. `name`
 * is copied. Freed by tsri_variable_destroy. */
tsr_status tsri_variable_create(tsr_world *world, const char *name, const tsr_placement *placement,
                                tsr_dtype dtype, tsr_dims dims, tsr_sbp sbp, tsr_init init,
                                tsr_variable **out_variable);
/* NULL is fine. */
void tsri_variable_destroy(tsr_variable *v);

/* For a variable of a module that is a rank's own: whether it lives on this rank alone. */
tsr_status tsri_variable_check_local(const tsr_variable *v);

/* Takes (zeroed) memory for the shard, in which a value will be put; AUTO variables are held whole.
 * A value that was given stays. */
tsr_status tsri_variable_place(tsr_variable *v);

/* The shard is `*out_runs` contiguous runs of the global value, in this order, of equally many
 * elements each; returns how many. */
int64_t tsri_shard_runs(tsr_dims shape, tsr_dims lshape, int64_t *out_runs);
/* Where run `i` starts in the global value, in elements. */
int64_t tsri_shard_run_at(tsr_dims shape, tsr_dims lshape, const int64_t *offset, int64_t i);

/* Returns whether a rank's addend is the first in the sum of its part of the value; true on all
 * ranks if the variable does not add up. */
bool tsri_variable_is_first_addend(const tsr_variable *v, int rank);
/* Adds n elements to others. */
tsr_status tsri_add_elements(tsr_dtype dtype, void *to, const void *from, int64_t n);
/* Computes this rank's part of the sum of a variable's addends; out may be NULL if the part is
 * empty. Collective over the world. */
tsr_status tsri_variable_sum(tsr_variable *v, void *out);

/* As tsr_variable_get, but data may be NULL on ranks that only take part. */
tsr_status tsri_variable_gather(tsr_variable *v, void *data);

#endif
