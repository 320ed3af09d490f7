/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of indices, drawn ahead of the consumer in the order and at the moments in which
 * PyTorch's DataLoader draws them (the base seed first), and handed to a crew.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/data/loader/map_loader.h"

int64_t tsri_map_ahead(const tsri_map_loader *l)
{
    return (int64_t)l->spec.o.num_workers * l->spec.o.prefetch_factor;
}

/* --- an epoch --------------------------------------------------------------------------------- */

tsr_status tsri_map_begin(tsri_map_loader *l)
{
    TSRI_TRY(tsr_batch_sampler_reset(l->batches)); /* should somebody have begun */
    bool draws = !l->has_base_seed || !l->spec.o.persistent_workers;
    tsri_rng_state before = *l->root;
    if (draws)
        l->base_seed = tsri_generator_word64(l->root) & INT64_MAX;
    tsr_loader_state *start = &l->start;
    tsr_status status = tsr_batch_sampler_get_state(l->batches, &start->sampler);
    if (status == TSR_OK)
        status = tsri_crew_start(l->crew, l->epoch, l->base_seed, 0);
    if (status != TSR_OK) {
        *l->root = before;
        return status;
    }
    start->size = sizeof *start;
    start->epoch = l->epoch;
    start->base_seed = l->base_seed;
    start->begun = start->has_base_seed = 1;
    tsri_generator_store(l->root, start->generator);
    l->has_base_seed = true;
    l->begun = true;
    l->ended = false;
    return TSR_OK;
}

void tsri_map_leave(tsri_map_loader *l)
{
    if (l->spec.o.persistent_workers)
        tsri_crew_halt(l->crew);
    else
        tsri_crew_dismiss(l->crew);
    l->begun = l->ended = l->is_back = false;
    l->source = TSR_OK;
}

/* One batch of indices. A batch without memory for it is lost. */
static void hand_one(tsri_map_loader *l)
{
    const int64_t *indices;
    int64_t rows;
    tsri_error_clear();
    tsr_status status = tsr_batch_sampler_next(l->batches, &indices, &rows);
    if (status == TSR_END) {
        l->ended = true;
        return;
    }
    if (status != TSR_OK) {
        const char *text = tsr_last_error();
        snprintf(l->source_text, sizeof l->source_text, "tsr_loader_next: the sampler: %s",
                 *text ? text : tsr_status_text(status));
        l->source = status > 0 ? TSR_ERR_INVALID : status;
        return;
    }
    tsri_batch_slot *slot = tsri_crew_slot(l->crew);
    status = tsri_slot_reserve(slot, l->mem, rows);
    if (status != TSR_OK) {
        tsri_slot_fail(slot, status, "");
    } else if (rows) {
        memcpy(slot->indices, indices, (size_t)rows * sizeof *indices);
        slot->rows = rows;
    }
    tsri_crew_hand(l->crew);
}

/* Hands out until `limit` batches are on their way. */
static void hand_out(tsri_map_loader *l, int64_t limit)
{
    while (!l->ended && l->source == TSR_OK &&
           tsri_crew_handed(l->crew) - tsri_crew_taken(l->crew) < limit)
        hand_one(l);
}

static void describe(tsri_map_loader *l, tsri_batch_slot *slot, tsr_batch *b)
{
    *b = (tsr_batch){
        .number = slot->number, .epoch = l->epoch, .rows = slot->rows, .indices = slot->indices};
    for (int f = 0; f < TSR_BATCH_MAX_FIELDS; f++)
        if (slot->given[f]) {
            b->nfields = f + 1;
            b->data[f] = slot->arrays[f].at;
            b->bytes[f] = slot->arrays[f].bytes;
        }
}

/* Begins the epoch, if it has not, and sees to it that the next batch, if there is one, is on its
 * way. TSR_END: there is none; or what the sampler failed with, which comes again until next tells.
 */
static tsr_status draw(tsri_map_loader *l)
{
    if (!l->begun)
        TSRI_TRY(tsri_map_begin(l));
    hand_out(l, tsri_map_ahead(l) ? tsri_map_ahead(l) : 1);
    if (tsri_crew_handed(l->crew) != tsri_crew_taken(l->crew))
        return TSR_OK;
    return l->ended ? TSR_END : tsri_fail(l->source, "%s", l->source_text);
}

tsr_status tsri_map_next(tsr_loader *loader, tsr_batch *out_batch)
{
    tsri_map_loader *l = tsri_map_of(loader);
    if (l->is_back) {
        l->is_back = false;
        return TSR_OK;
    }
    const tsr_status status = draw(l);
    if (status != TSR_OK) {
        l->source = TSR_OK;
        if (status == TSR_END) {
            tsri_map_leave(l);
            l->epoch++;
        }
        return status;
    }
    tsri_batch_slot *slot;
    TSRI_TRY(tsri_crew_take(l->crew, l->spec.o.timeout_s, &slot));
    hand_out(l, tsri_map_ahead(l));
    if (slot->status != TSR_OK)
        return tsri_fail(slot->status, "%s", slot->text);
    describe(l, slot, out_batch);
    return TSR_OK;
}

tsr_status tsri_map_peek(tsr_loader *loader, int64_t *out_rows)
{
    tsri_map_loader *l = tsri_map_of(loader);
    if (l->is_back) {
        *out_rows = loader->batch.rows;
        return TSR_OK;
    }
    TSRI_TRY(draw(l));
    *out_rows = tsri_crew_next_rows(l->crew);
    return TSR_OK;
}

int64_t tsri_map_position(const tsr_loader *loader)
{
    const tsri_map_loader *l = tsri_map_look(loader);
    return l->begun ? tsri_crew_taken(l->crew) - l->is_back : 0;
}
