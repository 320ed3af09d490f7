/* SPDX-License-Identifier: Apache-2.0 */
/* Records of calls in the arena: reading them, and the fault that a group may have. */
#include "src/comm/local/local.h"

#include <stdio.h>

static const char *name_of(int kind)
{
    switch (kind) {
    case TSRI_COLL_EXCHANGE_:
        return "exchange";
    case TSRI_COLL_GATHER_:
        return "gather";
    case TSRI_COLL_SCATTER_:
        return "scatter";
    default:
        return tsri_coll_kind_name((tsri_coll_kind)kind);
    }
}

tsri_call *tsri_call_of(tsri_member *m, uint64_t seq)
{
    return &m->ring[seq % TSRI_CALL_RING];
}

char *tsri_call_text(const tsri_call *call, char *buf, size_t size)
{
    int n = snprintf(buf, size, "%s #%llu", name_of(call->kind),
                     (unsigned long long)(call->number ? call->number : tsri_seq_count(call->seq)));
    if (call->what[0] && n > 0 && (size_t)n < size)
        n += snprintf(buf + n, size - (size_t)n, " '%s'", call->what);
    if (call->file[0] && n > 0 && (size_t)n < size)
        snprintf(buf + n, size - (size_t)n, " (%s:%d)", call->file, (int)call->line);
    return buf;
}

tsr_status tsri_call_check_fault(const tsri_local_group *g, uint64_t seq)
{
    const tsri_fault *f = &g->channel->fault;
    uint64_t state = atomic_load(&f->state); /* after what was stored before: see `writing` */
    if (state != (seq >> TSRI_SEQ_BITS << 2) + 2 || atomic_load(&f->seq) > seq)
        return TSR_OK;
    return tsri_fail((tsr_status)atomic_load(&f->status), "%s", f->text);
}
