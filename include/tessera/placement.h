/* SPDX-License-Identifier: Apache-2.0 */
/* Where a tensor lives: a device type and an array of ranks, whose shape is the hierarchy. */
#ifndef TESSERA_PLACEMENT_H
#define TESSERA_PLACEMENT_H

#include <tessera/world.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tsr_device {
    TSR_DEVICE_CPU = 1,
    TSR_DEVICE_CUDA,
} tsr_device;

/* Returns the name of a device: "cpu", "cuda". */
TSR_API const char *tsr_device_name(tsr_device device);

/* Immutable. Belongs to its world; equal placements of a world are one object. */
typedef struct tsr_placement tsr_placement;

/*
 * Parses "cpu:[0,1,2,3]" (1-D), "cpu:[[0,1],[2,3]]" (2x2), up to TSR_MAX_HIERARCHY dimensions.
 * "0..127" in a list is the ranks 0 to 127: "cuda:[[0..7],[8..15]]" is 2x8.
 * "cpu" alone is every rank of the world, 1-D. Rank order is kept. Borrowed by the caller, freed
 * with the world. NULL on error (see tsr_last_error): malformed text, ragged nesting, a rank
 * twice, a rank outside the world. An op given a NULL placement fails with that text.
 * Not collective, but every rank must make the same placements.
 */
TSR_API const tsr_placement *tsr_placement_parse(tsr_world *world, const char *text);

/* Makes a placement from numbers: ranks[] in row-major order of hierarchy[ndim]. */
TSR_API const tsr_placement *tsr_placement_create(tsr_world *world, tsr_device device, int ndim,
                                                  const int *hierarchy, const int *ranks);

/*
 * Returns the placement of those ranks of p that have `index` on dimension `dim`; its dimensions
 * are the other ones of p, in their order. So index 1 of dimension 0 of cpu:[[0,1],[2,3]] is
 * cpu:[2,3]. A slice of a placement with one dimension is one rank, as cpu:[1]. Stages of a
 * pipeline are made so (tsr_module_stage). Borrowed by the caller, freed with the world. NULL on
 * error (see tsr_last_error): p is NULL, it has no such dimension, the dimension has no such index.
 * Not collective, but every rank must make the same placements.
 */
TSR_API const tsr_placement *tsr_placement_slice(const tsr_placement *p, int dim, int index);

/* Returns the device of a placement. This call and those that follow give, for NULL: 0, rank -1,
 * "(no placement)". */
TSR_API tsr_device tsr_placement_device(const tsr_placement *p);
/* Returns the number of dimensions of a placement's hierarchy. */
TSR_API int tsr_placement_ndim(const tsr_placement *p);
/* Returns the number of ranks along hierarchy dimension `dim`. */
TSR_API int tsr_placement_dim(const tsr_placement *p, int dim);
/* Returns the number of ranks of a placement. */
TSR_API int tsr_placement_nranks(const tsr_placement *p);
/* Returns the i-th rank in row-major order. */
TSR_API int tsr_placement_rank(const tsr_placement *p, int i);
/* Returns where `rank` stands in row-major order; -1 if it is not part of p. */
TSR_API int tsr_placement_find(const tsr_placement *p, int rank);
/* Returns the text form; tsr_placement_parse reads it back. Lives as long as p. */
TSR_API const char *tsr_placement_text(const tsr_placement *p);

/* Computes the balanced split of n elements over `parts`: the first n mod parts parts get one more.
 * Writes the offset and the length of part `part`, 0 to parts-1; fewer than one part is one. Either
 * may be NULL. */
TSR_API void tsr_balanced_split(int64_t n, int parts, int part, int64_t *out_offset,
                                int64_t *out_length);

#ifdef __cplusplus
}
#endif
#endif
