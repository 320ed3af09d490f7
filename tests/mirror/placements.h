/* SPDX-License-Identifier: Apache-2.0 */
/* Included by the compiler before the random programs (-include): like tests/cuda/on_device.h, but
 * with MIRROR_MIXED=1 every other placement, by its text, stays on CPUs. */
#ifndef TESSERA_TESTS_MIRROR_PLACEMENTS_H
#define TESSERA_TESTS_MIRROR_PLACEMENTS_H

#include "tests/cuda/on_device.h"

#undef tsr_placement_parse

static inline const tsr_placement *mixed_parse(tsr_world *world, const char *text)
{
    const char *mixed = getenv("MIRROR_MIXED");
    unsigned hash = 5381;
    for (const char *c = text; c && *c; c++)
        hash = 33 * hash + (unsigned char)*c;
    return mixed && *mixed == '1' && hash / 64 % 2 ? tsr_placement_parse(world, text)
                                                   : on_device_parse(world, text);
}

#define tsr_placement_parse mixed_parse

#endif
