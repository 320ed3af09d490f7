/* SPDX-License-Identifier: Apache-2.0 */
/* A loader of functions of the user's: where its indices come from, and the calls of loader.h. */
#include "src/data/loader/map_loader.h"

#include "src/core/live.h"

/* Where indices come from. */
static tsr_status make_batches(tsr_world *world, tsri_map_loader *l)
{
    const tsr_map_loader_opts *o = &l->spec.o;
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

/* --- the calls -------------------------------------------------------------------------------- */
static tsr_status reset(tsr_loader *loader)
{
    tsri_map_loader *l = tsri_map_of(loader);
    if (!l->begun)
        return TSR_OK;
    TSRI_TRY(tsr_batch_sampler_reset(l->batches));
    tsri_map_leave(l);
    l->epoch++;
    return TSR_OK;
}

static int64_t epoch_of(const tsr_loader *loader)
{
    return tsri_map_look(loader)->epoch;
}

static int64_t batches_of(const tsr_loader *loader)
{
    return tsr_batch_sampler_count(tsri_map_look(loader)->batches);
}

static void destroy(tsr_loader *loader)
{
    tsri_map_loader *l = tsri_map_of(loader);
    tsri_crew_destroy(l->crew);
    tsr_batch_sampler_destroy(l->made_batches);
    tsr_sampler_destroy(l->made_sampler);
    for (int f = 0; f < TSR_BATCH_MAX_FIELDS; f++)
        tsri_mem_free(l->inputs[f]);
    tsri_live_free(l, TSRI_LIVE_LOADER);
}

static const tsri_loader_ops map_ops = {
    .destroy = destroy,
    .next = tsri_map_next,
    .feed = tsri_map_feed,
    .peek = tsri_map_peek,
    .reset = reset,
    .set_epoch = tsri_map_set_epoch,
    .set_position = tsri_map_set_position,
    .epoch = epoch_of,
    .batches = batches_of,
    .position = tsri_map_position,
    .get_state = tsri_map_get_state,
    .set_state = tsri_map_set_state,
};

tsr_status tsr_map_loader_create(tsr_world *world, const tsr_map_dataset *dataset,
                                 const tsr_map_loader_opts *opts, tsr_loader **out_loader)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    if (!out_loader)
        return tsri_fail(TSR_ERR_INVALID, "tsr_map_loader_create: out_loader is NULL");
    tsri_batch_spec spec;
    TSRI_TRY(tsri_map_opts(dataset, opts, &spec));
    tsri_mem *mem = world ? &world->mem : NULL;
    tsri_map_loader *l = tsri_live_alloc(mem, sizeof *l, TSRI_LIVE_LOADER);
    TSRI_NEED(l);
    l->base.ops = &map_ops;
    l->base.ranks = spec.o.ranks;
    l->mem = mem;
    l->spec = spec;
    tsr_status status = make_batches(world, l);
    if (status == TSR_OK)
        status = tsri_map_name_inputs(l);
    if (status == TSR_OK)
        status = tsri_crew_create(mem, &l->spec, spec.o.num_workers, (int)tsri_map_ahead(l) + 1,
                                  &l->crew);
    if (status != TSR_OK) {
        destroy(&l->base);
        return status;
    }
    tsri_loader_enter(&l->base, world);
    *out_loader = &l->base;
    return TSR_OK;
}
