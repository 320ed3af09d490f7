/* SPDX-License-Identifier: Apache-2.0 */
/* Call records in the arena: publishing and comparing them, and ending groups. */
#include "src/comm/local/local.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

tsri_seg_place *tsri_call_places(tsri_member *m, tsri_call_entry *call, int nseg)
{
    return nseg <= TSRI_CALL_INLINE ? call->place : m->spill[call->seq % TSRI_CALL_RING];
}

uint64_t tsri_call_record(tsri_local_group *g, const tsri_coll *coll, const tsri_call_entry *call,
                          uint64_t seq)
{
    tsri_flight *flight = g->local->pub.world->flight;
    tsri_local_prepared *p = coll->prepared;
    uint64_t count = tsri_seq_count(seq), number;
    if (p)
        number =
            tsri_flight_begin_described(flight, g->pub.flight, count, &p->flight, coll->flight);
    else
        number = tsri_flight_begin(flight, g->pub.flight, count, call->kind, coll, call->bytes,
                                   call->hash);
    g->flight[seq % TSRI_CALL_RING] = number;
    return number;
}

tsr_status tsri_call_enter(tsri_local_group *g, tsri_call_entry *call, tsri_call_entry **out_record)
{
    call->seq = g->started + 1;
    if (tsri_seq_count(call->seq) > TSRI_CALL_RING)
        TSRI_TRY(tsri_local_await_all(g, TSRI_WAIT_DONE, call->seq - TSRI_CALL_RING, call));
    g->started = call->seq;
    g->gives &= ~(UINT64_C(1) << call->seq % TSRI_CALL_RING);
    *out_record = tsri_call_of(g->mine, call->seq);
    memcpy(*out_record, call, offsetof(tsri_call_entry, place));
    memcpy((*out_record)->shape, call->shape, sizeof *call - offsetof(tsri_call_entry, shape));
    return TSR_OK;
}

/* Between my record of call `seq` and member i's. */
static tsr_status fail_mismatch(const tsri_local_group *g, uint64_t seq, int i)
{
    /* Lower index first: all ranks of a pair print the same text. */
    int a = i < g->pub.index ? i : g->pub.index, b = i < g->pub.index ? g->pub.index : i;
    return tsri_call_differ(g->pub.ranks, a, tsri_call_of(&g->members[a], seq), b,
                            tsri_call_of(&g->members[b], seq));
}

tsr_status tsri_call_meet(tsri_local_group *g, uint64_t seq)
{
    const tsri_call_entry *mine = tsri_call_of(g->mine, seq);
    int differs = -1;
    bool sends = false;
    TSRI_TRY(tsri_local_await_all(g, TSRI_WAIT_PUBLISHED, seq, mine));
    for (int i = g->pub.nranks - 1; i >= 0; i--) {
        const tsri_call_entry *theirs = tsri_call_of(&g->members[i], seq);
        differs = tsri_call_agrees(mine, theirs) ? differs : i;
        sends |= theirs->kind == TSRI_COLL_SEND_RECV;
    }
    if (differs < 0)
        return TSR_OK;
    tsr_status status = fail_mismatch(g, seq, differs);
    /* A member at a SEND_RECV may not have looked at my record. */
    if (sends)
        status = tsri_call_fault(g, seq, tsr_last_error());
    /* Else everybody sees some difference, so nobody will read: the channel can go on. */
    tsri_local_advance(g->mine, TSRI_WAIT_PHASE1, seq);
    tsri_call_done(g, seq);
    return status;
}

/* --- without waiting for everybody ------------------------------------------------------------ */

tsr_status tsri_call_fault(tsri_local_group *g, uint64_t seq, const char *text)
{
    return tsri_call_end(g, seq, TSR_ERR_MISMATCH, text);
}

tsr_status tsri_call_end(tsri_local_group *g, uint64_t seq, tsr_status status, const char *text)
{
    tsri_fault *f = &g->channel->fault;
    uint64_t writing = (seq >> TSRI_SEQ_BITS << 2) + 1, there = atomic_load(&f->state), first;
    while (there < writing && !atomic_compare_exchange_weak(&f->state, &there, writing))
        ;
    if (there < writing) {
        atomic_store(&f->seq, seq);
        atomic_store(&f->status, (int32_t)status);
        snprintf(f->text, sizeof f->text, "%s", text);
        atomic_store(&f->state, writing + 1);
    }
    /* Before I am done, whoever waits for that must find it. The bound is for a writer killed. */
    for (int i = 0; i < 1000000 && atomic_load(&f->state) == writing; i++)
        sched_yield();
    first = atomic_load(&f->seq);
    while (first > seq && !atomic_compare_exchange_weak(&f->seq, &first, seq))
        ;
    return tsri_fail(status, "%s", text);
}

tsr_status tsri_call_meet_early(tsri_local_group *g, uint64_t seq)
{
    const tsri_call_entry *mine = tsri_call_of(g->mine, seq);
    /* Members that are here come first: one that never comes must not hide that two others
     * disagree. */
    for (int late = 0; late < 2; late++) {
        for (int i = 0; i < g->pub.nranks; i++) {
            if (i == g->pub.index || (!late && !tsri_local_reached(g, i, TSRI_WAIT_PUBLISHED, seq)))
                continue;
            TSRI_TRY(tsri_local_await(g, i, TSRI_WAIT_PUBLISHED, seq, mine));
            if (!tsri_call_agrees(mine, tsri_call_of(&g->members[i], seq))) {
                fail_mismatch(g, seq, i);
                return tsri_call_fault(g, seq, tsr_last_error());
            }
        }
    }
    return TSR_OK;
}

tsr_status tsri_call_meet_one(tsri_local_group *g, uint64_t seq, int index)
{
    const tsri_call_entry *mine = tsri_call_of(g->mine, seq);
    TSRI_TRY(tsri_local_await(g, index, TSRI_WAIT_PUBLISHED, seq, mine));
    if (tsri_call_agrees(mine, tsri_call_of(&g->members[index], seq)))
        return TSR_OK;
    fail_mismatch(g, seq, index);
    return tsri_call_fault(g, seq, tsr_last_error());
}

void tsri_call_compare(tsri_local_group *g, uint64_t seq)
{
    for (int i = 0; i < g->pub.nranks; i++)
        if (i != g->pub.index && tsri_local_reached(g, i, TSRI_WAIT_PUBLISHED, seq) &&
            tsri_call_meet_one(g, seq, i) != TSR_OK)
            return;
}

void tsri_call_done(tsri_local_group *g, uint64_t seq)
{
    uint64_t before = g->done;
    if (seq > g->done)
        g->done = seq;
    while (g->done < g->started && g->gives >> (g->done + 1) % TSRI_CALL_RING & 1)
        tsri_call_compare(g, ++g->done);
    if (g->done != before)
        tsri_local_advance(g->mine, TSRI_WAIT_DONE, g->done);
}
