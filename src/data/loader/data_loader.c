/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A data loader: draws batches of indices ahead of its consumer, in the order and at the moments in
 * which PyTorch's DataLoader draws them (the base seed first), and hands them to a crew.
 */
#include "src/data/loader/data_loader.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/core/live.h"

static void destroy_owned(void *loader)
{
    tsr_data_loader_destroy(loader);
}

/* Where indices come from. */
static tsr_status make_batches(tsr_world *world, tsr_data_loader *l)
{
    const tsr_data_loader_opts *o = &l->spec.o;
    tsri_generator_seed(&l->own, o->seed);
    l->root = o->generator ? &o->generator->s : &l->own;
    l->batches = o->batch_sampler;
    if (l->batches)
        return TSR_OK;
    tsr_sampler *sampler = o->sampler;
    if (!sampler) {
        if (o->shuffle)
            TSRI_TRY(tsri_sampler_shuffled(world, l->spec.len, l->root, !o->generator,
                                           &l->made_sampler));
        else
            TSRI_TRY(tsr_sequential_sampler(NULL, l->spec.len, &l->made_sampler));
        sampler = l->made_sampler;
    }
    TSRI_TRY(
        tsr_batch_sampler_create(NULL, sampler, o->batch_size, o->drop_last, &l->made_batches));
    l->batches = l->made_batches;
    return TSR_OK;
}

static int64_t ahead(const tsr_data_loader *l)
{
    return (int64_t)l->spec.o.num_workers * l->spec.o.prefetch_factor;
}

tsr_status tsr_data_loader_create(tsr_world *world, const tsr_map_dataset *dataset,
                                  const tsr_data_loader_opts *opts, tsr_data_loader **out_loader)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    if (!out_loader)
        return tsri_fail(TSR_ERR_INVALID, "tsr_data_loader_create: out_loader is NULL");
    tsri_batch_spec spec;
    TSRI_TRY(tsri_data_loader_opts(dataset, opts, &spec));
    tsri_mem *mem = world ? &world->mem : NULL;
    tsr_data_loader *l = tsri_live_alloc(mem, sizeof *l, TSRI_LIVE_DATA_LOADER);
    TSRI_NEED(l);
    l->mem = mem;
    l->spec = spec;
    tsr_status status = make_batches(world, l);
    if (status == TSR_OK)
        status = tsri_crew_create(mem, &l->spec, spec.o.num_workers, (int)ahead(l) + 1, &l->crew);
    if (status != TSR_OK) {
        tsr_data_loader_destroy(l);
        return status;
    }
    if (world)
        tsri_world_own(world, &l->owned, l, destroy_owned);
    *out_loader = l;
    return TSR_OK;
}

void tsr_data_loader_destroy(tsr_data_loader *l)
{
    if (!tsri_is_live(l, TSRI_LIVE_DATA_LOADER, __func__))
        return;
    tsri_world_disown(&l->owned);
    tsri_crew_destroy(l->crew);
    tsr_batch_sampler_destroy(l->made_batches);
    tsr_sampler_destroy(l->made_sampler);
    tsri_live_free(l, TSRI_LIVE_DATA_LOADER);
}

/* --- an epoch --------------------------------------------------------------------------------- */

static tsr_status begin_epoch(tsr_data_loader *l)
{
    TSRI_TRY(tsr_batch_sampler_reset(l->batches)); /* should somebody have begun */
    bool draws = !l->has_base_seed || !l->spec.o.persistent_workers;
    tsri_rng_state before = *l->root;
    if (draws)
        l->base_seed = tsri_generator_word64(l->root) & INT64_MAX;
    tsr_data_loader_state *start = &l->start;
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

void tsri_data_loader_leave(tsr_data_loader *l)
{
    if (l->spec.o.persistent_workers)
        tsri_crew_halt(l->crew);
    else
        tsri_crew_dismiss(l->crew);
    l->begun = l->ended = false;
    l->source = TSR_OK;
}

/* One batch of indices. A batch without memory for it is lost. */
static void hand_one(tsr_data_loader *l)
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
        snprintf(l->source_text, sizeof l->source_text, "tsr_data_loader_next: the sampler: %s",
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
static void hand_out(tsr_data_loader *l, int64_t limit)
{
    while (!l->ended && l->source == TSR_OK &&
           tsri_crew_handed(l->crew) - tsri_crew_taken(l->crew) < limit)
        hand_one(l);
}

static void describe(tsr_data_loader *l, tsri_batch_slot *slot)
{
    tsr_batch *b = &l->batch;
    *b = (tsr_batch){
        .number = slot->number, .epoch = l->epoch, .rows = slot->rows, .indices = slot->indices};
    for (int f = 0; f < TSR_BATCH_MAX_FIELDS; f++)
        if (slot->given[f]) {
            b->nfields = f + 1;
            b->data[f] = slot->arrays[f].at;
            b->bytes[f] = slot->arrays[f].bytes;
        }
}

tsr_status tsr_data_loader_next(tsr_data_loader *l, const tsr_batch **out_batch)
{
    TSRI_TRY(tsri_live_check(l, TSRI_LIVE_DATA_LOADER, __func__));
    if (!l || !out_batch)
        return tsri_fail(TSR_ERR_INVALID, "tsr_data_loader_next: %s is NULL",
                         l ? "out_batch" : "the loader");
    if (!l->begun)
        TSRI_TRY(begin_epoch(l));
    hand_out(l, ahead(l) ? ahead(l) : 1);
    if (tsri_crew_handed(l->crew) == tsri_crew_taken(l->crew)) {
        if (l->ended) {
            tsri_data_loader_leave(l);
            l->epoch++;
            return TSR_END;
        }
        tsr_status status = l->source;
        l->source = TSR_OK;
        return tsri_fail(status, "%s", l->source_text);
    }
    tsri_batch_slot *slot;
    TSRI_TRY(tsri_crew_take(l->crew, l->spec.o.timeout_s, &slot));
    hand_out(l, ahead(l));
    if (slot->status != TSR_OK)
        return tsri_fail(slot->status, "%s", slot->text);
    describe(l, slot);
    *out_batch = &l->batch;
    return TSR_OK;
}

tsr_status tsr_data_loader_reset(tsr_data_loader *l)
{
    TSRI_TRY(tsri_live_check(l, TSRI_LIVE_DATA_LOADER, __func__));
    if (!l)
        return tsri_fail(TSR_ERR_INVALID, "tsr_data_loader_reset: the loader is NULL");
    if (!l->begun)
        return TSR_OK;
    TSRI_TRY(tsr_batch_sampler_reset(l->batches));
    tsri_data_loader_leave(l);
    l->epoch++;
    return TSR_OK;
}

int64_t tsr_data_loader_epoch(const tsr_data_loader *l)
{
    return tsri_is_live(l, TSRI_LIVE_DATA_LOADER, __func__) ? l->epoch : 0;
}

int64_t tsr_data_loader_count(const tsr_data_loader *l)
{
    return tsri_is_live(l, TSRI_LIVE_DATA_LOADER, __func__) ? tsr_batch_sampler_count(l->batches)
                                                            : 0;
}

int64_t tsr_data_loader_position(const tsr_data_loader *l)
{
    return tsri_is_live(l, TSRI_LIVE_DATA_LOADER, __func__) && l->begun ? tsri_crew_taken(l->crew)
                                                                        : 0;
}
