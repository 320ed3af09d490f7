/* SPDX-License-Identifier: Apache-2.0 */
/* Reading records of calls in the arena, and the fault that a group may have. */
#include "src/comm/local/local.h"

tsri_call_entry *tsri_call_of(tsri_member *m, uint64_t seq)
{
    return &m->ring[seq % TSRI_CALL_RING];
}

tsr_status tsri_call_check_fault(const tsri_local_group *g, uint64_t seq)
{
    const tsri_fault *f = &g->channel->fault;
    uint64_t state = atomic_load(&f->state); /* after what was stored before: see `writing` */
    if (state != (seq >> TSRI_SEQ_BITS << 2) + 2 || atomic_load(&f->seq) > seq)
        return TSR_OK;
    return tsri_fail((tsr_status)atomic_load(&f->status), "%s", f->text);
}
