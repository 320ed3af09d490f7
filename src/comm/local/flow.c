/* SPDX-License-Identifier: Apache-2.0 */
/* The steps that tasks are made of, and the slots that peers read. */
#include "src/comm/local/task.h"

enum { LEAST_SLOT = 4096 };

/* --- slots ------------------------------------------------------------------------------------ */

size_t tsri_flow_slot_bytes(const tsri_local_group *g)
{
    size_t bytes = TSRI_STAGE_BYTES, most = g->local->arena.layout.bytes_per_rank / 64;
    while (bytes > LEAST_SLOT && bytes > most)
        bytes /= 2;
    return bytes;
}

tsr_status tsri_local_stage_take(tsri_local_group *g)
{
    void *p;
    TSRI_TRY(tsri_region_alloc(&g->local->pub.world->region,
                               TSRI_STAGE_SLOTS * tsri_flow_slot_bytes(g), &p));
    g->stage = p;
    return TSR_OK;
}

void tsri_local_stage_give(tsri_local_group *g)
{
    tsri_region_free(&g->local->pub.world->region, g->stage,
                     TSRI_STAGE_SLOTS * tsri_flow_slot_bytes(g));
    g->stage = NULL;
}

tsr_status tsri_flow_slot(tsri_flow *f, uint64_t seq, char **out_slot)
{
    if (tsri_seq_count(seq) > TSRI_STAGE_SLOTS)
        TSRI_TRY(tsri_local_await_all(f->g, TSRI_WAIT_DONE, seq - TSRI_STAGE_SLOTS, &f->call));
    *out_slot = f->g->stage + seq % TSRI_STAGE_SLOTS * f->slot;
    return TSR_OK;
}

/* --- tasks as calls --------------------------------------------------------------------------- */

tsri_segment tsri_task_segment(int nranks, const tsri_task *t)
{
    bool one = t->kind <= TSRI_TASK_REDUCE, uneven = t->kind == TSRI_TASK_ALL_TO_ALL;
    return (tsri_segment){.dtype = t->dtype,
                          .shape = one      ? TSR_DIMS(t->count)
                                   : uneven ? TSR_SCALAR
                                            : TSR_DIMS(nranks, t->count)};
}

tsri_coll tsri_task_coll(const tsri_task *t, const tsri_segment *seg)
{
    return (tsri_coll){.kind = (tsri_coll_kind)tsri_task_coll_kind(t->kind),
                       .op = t->op,
                       .root = t->root,
                       .nseg = t->kind == TSRI_TASK_BARRIER ? 0 : 1,
                       .seg = seg,
                       .what = t->label,
                       .loc = t->loc,
                       .number = t->number,
                       .flight = t->flight};
}

/* --- steps ------------------------------------------------------------------------------------ */

tsr_status tsri_flow_enter(tsri_flow *f, int places, uint64_t *out_seq, tsri_seg_place **out_place)
{
    tsri_call_entry *record;
    TSRI_TRY(tsri_call_enter(f->g, &f->call, &record));
    *out_seq = record->seq;
    f->g->flight[record->seq % TSRI_CALL_RING] = f->flight;
    *out_place = tsri_call_places(f->g->mine, record, places);
    return TSR_OK;
}

tsr_status tsri_flow_show(tsri_flow *f, uint64_t seq)
{
    tsri_local_advance(f->g->mine, TSRI_WAIT_PUBLISHED, seq);
    if (seq != f->first)
        return TSR_OK;
    TSRI_TRY(tsri_call_meet_early(f->g, seq));
    f->g->passed = seq - 1; /* a rank that comes to a task is done with all earlier ones */
    return TSR_OK;
}

const char *tsri_flow_peer(const tsri_flow *f, int m, uint64_t seq, int places, int place)
{
    tsri_member *member = &f->g->members[m];
    return f->g->peer[m].base +
           tsri_call_places(member, tsri_call_of(member, seq), places)[place].src;
}

tsr_status tsri_flow_end(tsri_flow *f)
{
    if (f->direct)
        TSRI_TRY(tsri_local_await_all(f->g, TSRI_WAIT_DONE, f->g->started, &f->call));
    return TSR_OK;
}
