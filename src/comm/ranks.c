/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of ranks, of which groups are made. */
#include "src/comm/comm.h"

#include <stdio.h>
#include <string.h>

tsr_status tsri_ranks_check(const tsr_world *world, int nranks, const int *ranks, const char *does,
                            int *out_index)
{
    int index = -1;
    if (nranks < 1 || nranks > world->nranks || !ranks)
        return tsri_fail(TSR_ERR_INVALID, "a group of %d ranks%s in a world of %d", nranks,
                         ranks ? "" : " (the list is NULL)", world->nranks);
    for (int i = 0; i < nranks; i++) {
        if (ranks[i] < 0 || ranks[i] >= world->nranks)
            return tsri_fail(TSR_ERR_INVALID, "a group with rank %d in a world of %d", ranks[i],
                             world->nranks);
        for (int j = 0; j < i; j++)
            if (ranks[i] == ranks[j])
                return tsri_fail(TSR_ERR_INVALID, "a group with rank %d twice", ranks[i]);
        if (ranks[i] == world->rank)
            index = i;
    }
    if (index < 0)
        return tsri_fail(TSR_ERR_INVALID, "rank %d %s a group that it is not in", world->rank,
                         does);
    *out_index = index;
    return TSR_OK;
}

uint64_t tsri_ranks_hash(uint64_t h, int nranks, const int *ranks)
{
    for (int i = 0; i < nranks; i++) {
        h = (h ^ (uint64_t)ranks[i]) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 31;
    }
    return h;
}

char *tsri_ranks_text(int nranks, const int *ranks, char *buf, size_t size)
{
    size_t used = (size_t)snprintf(buf, size, "[");
    for (int i = 0; i < nranks; i++) {
        /* Room for one more, and for what stands for all others. */
        if (used + 24 > size) {
            used += (size_t)snprintf(buf + used, size - used, ",...");
            break;
        }
        used += (size_t)snprintf(buf + used, size - used, "%s%d", i ? "," : "", ranks[i]);
    }
    snprintf(buf + used, size - used, "]");
    return buf;
}

bool tsri_group_is(const tsri_group *g, int nranks, const int *ranks, int lane)
{
    return g->nranks == nranks && g->lane == lane &&
           !memcmp(g->ranks, ranks, (size_t)nranks * sizeof *ranks);
}
