/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a placement, and of the list that a world keeps of its own. */
#ifndef TESSERA_PLACEMENT_PLACEMENT_H
#define TESSERA_PLACEMENT_PLACEMENT_H

#include <tessera/placement.h>
#include "src/core/world.h"

struct tsr_placement {
    tsr_placement *next; /* in its world's list */
    tsr_world *world;
    tsr_device device;
    int ndim;
    int dim[TSR_MAX_HIERARCHY]; /* unused ones are 0 */
    int nranks;
    const int *ranks; /* [nranks], row-major */
    int least, most;  /* of ranks */
    const char *text;
    /* Names of the dimensions, for texts alone: equality and `text` do not depend on them. */
    const char *axis[TSR_MAX_HIERARCHY]; /* NULL: none */
};

/* As tsr_placement_parse, with the error's status. */
tsr_status tsri_placement_parse(tsr_world *world, const char *text, const tsr_placement **out);
/* Finds the equal placement of the world, or makes it. The numbers have been checked: ranks unique,
 * inside the world, as many as the dimensions say. */
tsr_status tsri_placement_intern(tsr_world *world, tsr_device device, int ndim, const int *dim,
                                 const int *ranks, const tsr_placement **out_placement);

/* Returns whether the devices of a placement have an ability; false for NULL. */
bool tsri_placement_can(const tsr_placement *p, tsri_ability ability);

/* Names the dimensions of a placement, one name for each. The names that it has already stay: equal
 * placements are one object. */
tsr_status tsri_placement_name_axes(const tsr_placement *p, const char *const *axis);
/* Returns the name of a dimension; NULL if it has none. */
const char *tsri_placement_axis(const tsr_placement *p, int dim);

/* Returns the dimension of p of which `slice` is one index (tsr_placement_slice); -1: of none. */
int tsri_placement_sliced(const tsr_placement *p, const tsr_placement *slice);

/* Returns TSR_OK for a live placement of this world and for NULL, which callers refuse in their own
 * words; else TSR_ERR_PLACEMENT. call: the public function, for the message. */
tsr_status tsri_placement_check(const tsr_world *world, const tsr_placement *p, const char *call);

#endif
