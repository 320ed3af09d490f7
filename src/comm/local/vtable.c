/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of a group from start to release: the part of the vtable that all local communicators have.
 */
#include "src/comm/local/local.h"

#include <stdio.h>
#include <string.h>

static tsri_local *of(tsri_comm *c)
{
    return (tsri_local *)c->priv;
}

static tsri_local_group *group_of(tsri_group *g)
{
    return (tsri_local_group *)g->priv;
}

/* Fills in the record of the call's segments from `first` on, under the next number. *number: the
 * call's in the flight recorder, where its first record puts it. */
static tsr_status fill_record(tsri_local_group *g, const tsri_coll *coll, int first,
                              uint64_t *number)
{
    tsri_local_prepared *p = coll->prepared;
    tsri_prepared_record *said = p ? &p->record[first / TSRI_CALL_MAX_SEG] : NULL;
    uint64_t seq = g->started + 1;
    int nseg = coll->nseg - first < TSRI_CALL_MAX_SEG ? coll->nseg - first : TSRI_CALL_MAX_SEG;
    tsri_call_entry own, *call = said ? &said->call : &own, *record;
    if (!said)
        tsri_call_fill(&own, coll, first, nseg);
    if (first == 0)
        *number = tsri_call_record(g, coll, call, seq);
    g->flight[seq % TSRI_CALL_RING] = *number;
    TSRI_TRY(tsri_call_enter(g, call, &record));
    tsri_seg_place *place = tsri_call_places(g->mine, record, nseg);
    if (said)
        memcpy(place, said->place, (size_t)nseg * sizeof *place);
    for (int i = 0; !said && !coll->is_word && i < nseg; i++)
        TSRI_TRY(tsri_local_place_segment(g, coll, first + i, &place[i]));
    if (coll->is_word)
        return TSR_OK;
    if (said ? said->gives : tsri_coll_only_gives(coll, first, nseg, g->pub.index))
        g->gives |= UINT64_C(1) << seq % TSRI_CALL_RING;
    return TSR_OK;
}

/* Peers see all records of a call at once, or none: a call that makes no sense leaves the group as
 * it was. */
static tsr_status publish(tsri_local_group *g, const tsri_coll *coll, uint64_t *number)
{
    uint64_t before = g->started, n = tsri_local_records_of(coll);
    tsr_status status = TSR_OK;
    for (uint64_t r = 0; r < n && status == TSR_OK; r++)
        status = fill_record(g, coll, (int)r * TSRI_CALL_MAX_SEG, number);
    for (uint64_t seq = before + 1; seq <= before + n && status == TSR_OK; seq++)
        status = tsri_local_mark(g, coll, TSRI_WAIT_PUBLISHED, seq);
    if (status != TSR_OK) {
        g->started = before;
        return status;
    }
    tsri_local_advance(g->mine, TSRI_WAIT_PUBLISHED, g->started);
    tsri_call_done(g, g->done);
    return TSR_OK;
}

static tsr_status check_call(const tsri_local_group *g, const tsri_coll *coll)
{
    tsri_seg_place place;
    TSRI_TRY(tsri_coll_check(coll, g->pub.nranks));
    for (int i = 0; g->pub.nranks == 1 && i < coll->nseg && !coll->is_word; i++)
        TSRI_TRY(tsri_local_place_segment(g, coll, i, &place));
    return TSR_OK;
}

static tsr_status start(tsri_group *pub, const tsri_coll *coll, tsri_ticket *out_ticket,
                        uint64_t *number)
{
    tsri_local_group *g = group_of(pub);
    TSRI_TRY(tsri_local_check_abort(g->local));
    if (!coll->prepared)
        TSRI_TRY(check_call(g, coll));
    uint64_t n = tsri_local_records_of(coll), seq = g->started + 1;
    if (pub->nranks == 1) {
        g->started += n;
    } else {
        if (g->started - g->finished + n > TSRI_CALL_RING)
            return tsri_fail_at(coll->loc, TSR_ERR_STATE,
                                "%s '%s': at most %d calls (of %d segments) of a group may be "
                                "under way; finish some first",
                                tsri_coll_kind_name(coll->kind), coll->what ? coll->what : "",
                                TSRI_CALL_RING, TSRI_CALL_MAX_SEG);
        TSRI_TRY(tsri_call_check_fault(g, seq));
        TSRI_TRY(publish(g, coll, number));
    }
    g->stats.calls[coll->kind]++;
    *out_ticket = (tsri_ticket){.seq = seq, .coll = coll, .priv = {*number}};
    return TSR_OK;
}

tsr_status tsri_local_start(tsri_group *pub, const tsri_coll *coll, tsri_ticket *out_ticket)
{
    tsr_world *world = pub->comm->world;
    uint64_t number = 0;
    tsr_status status = start(pub, coll, out_ticket, &number);
    if (status != TSR_OK)
        return tsri_flight_fail_start(world, number ? number : coll->flight, status);
    return TSR_OK;
}

static tsr_status finish(tsri_group *pub, tsri_ticket *ticket)
{
    tsri_local_group *g = group_of(pub);
    const tsri_coll *coll = ticket->coll;
    uint64_t n = tsri_local_records_of(coll);
    TSRI_TRY(
        tsri_coll_check_turn(coll, tsri_seq_count(ticket->seq), tsri_seq_count(g->finished + 1)));
    g->finished += n;
    if (pub->nranks == 1)
        return tsri_local_move_alone(g, coll);
    tsr_status status = TSR_OK;
    for (uint64_t r = 0; r < n && status == TSR_OK; r++)
        status = tsri_local_move(g, coll, ticket->seq + r, (int)r * TSRI_CALL_MAX_SEG);
    /* A member whose call had fewer records would count its next calls from another number. */
    if (status == TSR_ERR_MISMATCH && n > 1)
        return tsri_call_fault(g, ticket->seq, tsr_last_error());
    return status;
}

tsr_status tsri_local_finish(tsri_group *pub, tsri_ticket *ticket)
{
    tsri_local_group *g = group_of(pub);
    tsr_status status = finish(pub, ticket);
    if (status != TSR_OK && !g->failed)
        g->failed = ticket->seq;
    return tsri_flight_end(pub->comm->world, ticket->priv[0], status);
}

static tsr_status release(tsri_group *pub, tsri_ticket *ticket)
{
    tsri_local_group *g = group_of(pub);
    if (pub->nranks == 1)
        return TSR_OK;
    uint64_t last = ticket->seq + tsri_local_records_of(ticket->coll) - 1;
    TSRI_TRY(tsri_local_await_all(g, TSRI_WAIT_DONE, last, tsri_call_of(g->mine, last)));
    TSRI_TRY(tsri_call_check_fault(g, last));
    for (uint64_t seq = ticket->seq; seq <= last; seq++)
        TSRI_TRY(tsri_local_follow_all(g, ticket->coll, TSRI_WAIT_DONE, seq));
    return TSR_OK;
}

tsr_status tsri_local_release(tsri_group *pub, tsri_ticket *ticket)
{
    tsr_status status = release(pub, ticket);
    return status == TSR_OK ? TSR_OK : tsri_flight_fail(pub->comm->world, ticket->priv[0], status);
}

bool tsri_local_released(tsri_group *pub, const tsri_ticket *ticket)
{
    tsri_local_group *g = group_of(pub);
    uint64_t last = ticket->seq + tsri_local_records_of(ticket->coll) - 1;
    for (int i = 0; i < pub->nranks; i++)
        if (i != pub->index && !tsri_local_reached(g, i, TSRI_WAIT_DONE, last))
            return false;
    return true;
}

int tsri_local_late(tsri_group *pub, const tsri_ticket *ticket)
{
    tsri_local_group *g = group_of(pub);
    uint64_t last = ticket->seq + tsri_local_records_of(ticket->coll) - 1;
    for (int i = 0; i < pub->nranks; i++)
        if (i != pub->index && !tsri_local_reached(g, i, TSRI_WAIT_PUBLISHED, last))
            return pub->ranks[i];
    return -1;
}

bool tsri_local_ready(tsri_group *pub, const tsri_ticket *ticket)
{
    return tsri_local_late(pub, ticket) < 0;
}

void tsri_local_poison(tsri_group *pub, tsr_status status, const char *text)
{
    tsri_local_group *g = group_of(pub);
    /* The call that failed; what was before it may be under way elsewhere. */
    uint64_t seq = g->failed ? g->failed : g->finished + 1;
    if (g->channel)
        tsri_call_end(g, seq, status, text);
}

void tsri_local_abort(tsri_comm *c, const char *text)
{
    char reason[1100];
    tsri_arena_abort(&of(c)->arena, c->world->rank, text);
    snprintf(reason, sizeof reason, "gave up: %.1000s", text ? text : "");
    tsri_flight_leave(
        c->world->flight,
        &(tsri_flight_about){.reason = reason, .log = c->world->log, .log_arg = c->world->log_arg});
}

tsr_status tsri_local_check(tsri_comm *c)
{
    return tsri_local_check_abort(of(c));
}

void tsri_local_stats(tsri_comm *c, tsri_comm_stats *out_stats)
{
    tsri_comm_stats sum = {0};
    for (const tsri_local_group *g = of(c)->groups; g; g = g->next) {
        for (int k = 0; k < TSRI_COLL_KIND_COUNT_; k++) {
            sum.calls[k] += g->stats.calls[k];
            sum.bytes_read[k] += g->stats.bytes_read[k];
        }
    }
    *out_stats = sum;
}
