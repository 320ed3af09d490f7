/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank's values become everyone's. Each broadcast is a hand-shake of all ranks, which takes
 * longer than a small variable's bytes: so small ones that follow each other go together, as bytes.
 */
#include <string.h>

#include "src/train/ddp.h"

enum { SMALL = 256 << 10, BLOCK = 1 << 20 };

/* How many of n variables go together: their bytes fit into one block. At least one. */
static int count_together(int n, tsr_variable *const *v, size_t *out_bytes)
{
    size_t bytes = 0;
    int i = 0;
    while (i < n && v[i]->bytes <= SMALL && bytes + v[i]->bytes <= BLOCK)
        bytes += v[i++]->bytes;
    *out_bytes = i ? bytes : v[0]->bytes;
    return i ? i : 1;
}

static void copy(int n, tsr_variable *const *v, char *block, bool in)
{
    for (int i = 0; i < n; i++) {
        if (v[i]->bytes)
            memcpy(in ? block : v[i]->data, in ? v[i]->data : block, v[i]->bytes);
        block += v[i]->bytes;
    }
}

static tsr_status need_block(tsr_ddp *d, size_t bytes)
{
    if (d->sent.block_bytes >= bytes)
        return TSR_OK;
    tsr_free(d->world, d->sent.block);
    d->sent.block = NULL;
    d->sent.block_bytes = 0;
    TSRI_TRY(tsr_alloc(d->world, bytes, &d->sent.block));
    d->sent.block_bytes = bytes;
    return TSR_OK;
}

tsr_status tsri_ddp_send(tsr_ddp *d, int n, tsr_variable *const *v, int root)
{
    for (int i = 0; i < n; i++)
        tsri_variable_wrote(v[i]);
    if (d->side && d->nranks > 1)
        return tsri_ddp_send_on_device(d, n, v, root);
    for (int at = 0, m; at < n && d->nranks > 1; at += m) {
        size_t bytes;
        m = count_together(n - at, v + at, &bytes);
        if (!bytes)
            continue;
        if (m > 1)
            TSRI_TRY(need_block(d, bytes));
        void *data = m > 1 ? d->sent.block : v[at]->data;
        if (m > 1 && d->rank == root)
            copy(m, v + at, d->sent.block, true);
        TSRI_TRY(tsr_broadcast_at(d->group, data, (int64_t)bytes, TSR_U8,
                                  tsr_group_world_rank(d->group, root), NULL, d->loc.file,
                                  d->loc.line));
        if (m > 1 && d->rank != root)
            copy(m, v + at, d->sent.block, false);
    }
    return TSR_OK;
}
