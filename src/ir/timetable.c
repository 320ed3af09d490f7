/* SPDX-License-Identifier: Apache-2.0 */
/* A program's stages, and the seconds of a step that they share. */
#include "src/ir/ir.h"

int tsri_ir_stage_of(const tsri_ir *ir, int rank)
{
    const tsri_timetable *t = &ir->timetable;
    if (t->nstages < 2)
        return 0;
    if (t->stage_of)
        return t->stage_of[rank];
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        if (it->turn == TSRI_TURN_PARTS && it->kind != TSRI_ITEM_DEAD &&
            tsr_placement_find(tsri_item_converts(it) ? it->box.from : it->placement, rank) >= 0)
            return t->segment[it->segment].stage;
    }
    return -1;
}

int tsri_ir_entry_segment(const tsri_ir *ir, const tsri_entry *entry)
{
    const tsri_item *it = &ir->items[entry->item];
    return entry->side == TSRI_SIDE_RECEIVES ? tsri_item_arrival(it) : it->segment;
}

bool tsri_entry_has(const tsri_ir *ir, const tsri_entry *entry, int rank)
{
    const tsri_item *it = &ir->items[entry->item];
    if (entry->side == TSRI_SIDE_ALL)
        return tsri_item_has(it, rank);
    const bool sends = entry->side == TSRI_SIDE_SENDS;
    return tsr_placement_find(sends ? it->box.from : it->placement, rank) >= 0;
}

bool tsri_parts_are_queued(const tsri_ir *ir)
{
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        if (it->turn == TSRI_TURN_PARTS && it->kind != TSRI_ITEM_DEAD &&
            !tsri_placement_can(it->placement, TSRI_CAN_HOST_MEMORY))
            return true;
    }
    return false;
}

int tsri_copies_together(int a, int b)
{
    int rest = a > 1 ? a : 1, divisor = b > 1 ? b : 1;
    const int product = rest * divisor;
    while (rest) {
        const int next = divisor % rest;
        divisor = rest;
        rest = next;
    }
    return product / divisor;
}

/* Whether a stage has a rank on a placement. Most placements are within a stage. */
static bool is_on(const tsri_ir *ir, const tsr_placement *p, int stage)
{
    const int n = p ? tsr_placement_nranks(p) : 0;
    const int first = n ? tsri_ir_stage_of(ir, tsr_placement_rank(p, 0)) : -1;
    if (!n || first == tsri_ir_stage_of(ir, tsr_placement_rank(p, n - 1)))
        return n && first == stage;
    for (int i = 0; i < n; i++)
        if (tsri_ir_stage_of(ir, tsr_placement_rank(p, i)) == stage)
            return true;
    return false;
}

/* Whether a stage has a part in an item, as the sender or otherwise. */
static bool takes_part(const tsri_ir *ir, const tsri_item *it, int stage)
{
    return is_on(ir, it->placement, stage) ||
           (tsri_item_converts(it) && it->box.from != it->placement &&
            is_on(ir, it->box.from, stage));
}

int tsri_ir_stages_of(const tsri_ir *ir, const tsri_item *it)
{
    int n = 0;
    for (int s = 0; s < ir->timetable.nstages && ir->timetable.nstages > 1; s++)
        n += takes_part(ir, it, s);
    return n > 0 ? n : 1;
}

/* Returns the seconds of the items of a turn on the stage that spends most on them. */
static double most_seconds(const tsri_ir *ir, tsri_turn turn)
{
    double most = 0;
    for (int s = 0; s < ir->timetable.nstages; s++) {
        double sum = 0;
        for (int i = 0; i < ir->nitems; i++) {
            const tsri_item *it = &ir->items[i];
            const bool counts = it->turn == turn && it->cost_s > 0 && !tsri_item_shows(it) &&
                                it->kind != TSRI_ITEM_DEAD;
            sum += counts && takes_part(ir, it, s) ? it->cost_s : 0;
        }
        most = sum > most ? sum : most;
    }
    return most;
}

double tsri_timetable_seconds(const tsri_timetable *t)
{
    double end = 0;
    for (int i = 0; i < t->ntasks; i++)
        end = t->task[i].end_s > end ? t->task[i].end_s : end;
    return end;
}

double tsri_ir_seconds(const tsri_ir *ir)
{
    const tsri_timetable *t = &ir->timetable;
    double total = 0;
    for (int i = 0; i < ir->nitems && t->nstages < 2; i++)
        if (!tsri_item_shows(&ir->items[i]) && ir->items[i].kind != TSRI_ITEM_DEAD)
            total += ir->items[i].cost_s;
    if (t->nstages < 2)
        return total;
    return most_seconds(ir, TSRI_TURN_HEAD) + tsri_timetable_seconds(t) +
           most_seconds(ir, TSRI_TURN_TAIL);
}

int tsri_tasks_ahead(int nindices, int index, int chunks)
{
    const int after = nindices - index;
    return chunks < 2 || nindices < 2 ? after : 2 * after - 1 + (chunks - 1) * nindices;
}

double tsri_stage_copies(tsr_pipeline pipeline, int nstages, int nindices, int stage, int parts)
{
    enum { LEAST = 2 }; /* a sent value has two copies, so that its stage need not wait */
    const int chunks = nstages / nindices;
    const double ahead = (double)tsri_tasks_ahead(nindices, stage % nindices, chunks) / chunks;
    const double kept = pipeline == TSR_PIPELINE_GPIPE ? parts : ahead < LEAST ? LEAST : ahead;
    return stage == nstages - 1 ? 1 : kept < parts ? kept : parts;
}
