/* SPDX-License-Identifier: Apache-2.0 */
/* Places in a rank's region. */
#include "src/comm/local/local.h"

tsr_status tsri_local_place(const tsri_local_group *g, const void *p, size_t bytes,
                            const tsri_coll *c, int seg, const char *side, uint64_t *out_offset)
{
    const tsri_region *region = g->local->region;
    uintptr_t at = (uintptr_t)p, base = (uintptr_t)region->base;
    if (at < base || at - base > region->size || bytes > region->size - (at - base))
        return tsri_coll_invalid(c, seg,
                                 "%s %p (%zu bytes) lies outside of this rank's arena, where "
                                 "peers can't read it",
                                 side, p, bytes);
    *out_offset = at - base;
    return TSR_OK;
}
