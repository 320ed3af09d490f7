/* SPDX-License-Identifier: Apache-2.0 */
#include "src/comm/agree.h"

#include <stdio.h>

#include "src/comm/comm.h"

typedef struct verdict {
    int32_t status;
    char text[1020];
} verdict;

tsr_status tsri_agree(tsr_world *world, tsr_status status)
{
    if (world->nranks == 1 && !world->is_virtual)
        return status;
    if (!world->comm)
        return status != TSR_OK
                   ? status
                   : tsri_fail(TSR_ERR_STATE,
                               "a virtual world is for planning: it has no other ranks "
                               "to agree with, and no data");
    verdict mine = {.status = status};
    if (status != TSR_OK)
        snprintf(mine.text, sizeof mine.text, "%s", tsr_last_error());
    verdict *all = tsri_mem_alloc(NULL, (size_t)world->nranks * sizeof *all);
    if (!all) {
        /* Peers are about to wait for this rank: they must learn that it won't come. */
        world->comm->ops->abort(world->comm, "no host memory to agree with the other ranks");
        return TSR_ERR_NO_MEMORY;
    }
    tsr_status result = world->comm->ops->exchange(world->comm, &mine, sizeof mine, all);
    if (result == TSR_OK && status != TSR_OK) {
        /* Written again: the exchange may have used the thread's text. */
        result = tsri_fail(status, "%s", mine.text);
    } else if (result == TSR_OK) {
        for (int i = 0; i < world->nranks && result == TSR_OK; i++)
            if (all[i].status != TSR_OK)
                result = tsri_fail((tsr_status)all[i].status, "rank %d: %s", i, all[i].text);
    }
    tsri_mem_free(all);
    return result;
}
