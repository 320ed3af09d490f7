/* SPDX-License-Identifier: Apache-2.0 */
/* A loader of images: its options, and the calls of loader.h. */
#include "src/core/opts.h"
#include "src/data/loader/image_loader.h"

#include <inttypes.h>

#include "src/core/live.h"

static tsr_status resolve_opts(const tsr_loader_opts *given, tsr_loader_opts *o)
{
    *o = *TSR_LOADER_OPTS();
    TSRI_TRY(tsri_opts_read(o, sizeof *o, given, "tsr_loader_create"));
    if (o->batch_size < 1)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_loader_create: batch_size is %" PRId64 "; it must be at least 1",
                         o->batch_size);
    if (o->workers < 0 || o->prefetch < 0)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_loader_create: workers %d, prefetch %d: neither may be negative",
                         o->workers, o->prefetch);
    if (o->dtype == TSR_DTYPE_NONE)
        o->dtype = TSR_F32;
    if (o->dtype != TSR_F32 && o->dtype != TSR_F64)
        return tsri_fail(TSR_ERR_DTYPE, "tsr_loader_create: dtype %s; legal are f32 and f64",
                         tsr_dtype_name(o->dtype));
    if (!o->workers)
        o->prefetch = 0;
    if (o->workers > o->prefetch)
        o->workers = o->prefetch; /* a batch is one thread's work: more would only wait */
    return TSR_OK;
}

/* --- the calls -------------------------------------------------------------------------------- */
static tsri_image_loader *of(tsr_loader *l)
{
    return (tsri_image_loader *)l; /* which begins with it */
}

static const tsri_image_loader *look(const tsr_loader *l)
{
    return (const tsri_image_loader *)l;
}

static void destroy(tsr_loader *loader)
{
    tsri_image_loader *l = of(loader);
    tsri_ring_destroy(l->ring);
    tsri_mem_free(l->held);
    tsri_mem_free(l->labels);
    tsri_mem_free(l->given);
    tsri_decoder_finish(&l->decoder);
    tsri_dataset_unref(l->ds);
    tsri_live_free(l, TSRI_LIVE_LOADER);
}

static tsr_status peek(tsr_loader *loader, int64_t *out_rows)
{
    *out_rows = tsri_image_rows(look(loader)) / loader->ranks;
    return *out_rows ? TSR_OK : TSR_END;
}

static tsr_status set_epoch(tsr_loader *loader, int64_t epoch)
{
    tsri_image_loader *l = of(loader);
    if (l->batch || epoch != l->decoder.epoch)
        tsri_image_go_to_epoch(l, epoch);
    return TSR_OK;
}

static tsr_status reset(tsr_loader *loader)
{
    tsri_image_loader *l = of(loader);
    if (l->batch)
        tsri_image_go_to_epoch(l, l->decoder.epoch + 1);
    return TSR_OK;
}

static tsr_status set_position(tsr_loader *loader, int64_t position)
{
    tsri_image_loader *l = of(loader);
    tsri_ring_destroy(l->ring);
    l->ring = NULL;
    l->is_taken = false;
    l->batch = position;
    return TSR_OK;
}

static int64_t position_of(const tsr_loader *loader)
{
    return look(loader)->batch;
}

static int64_t epoch_of(const tsr_loader *loader)
{
    return look(loader)->decoder.epoch;
}

static int64_t batches_of(const tsr_loader *loader)
{
    return look(loader)->batches;
}

static tsr_status get_state(const tsr_loader *loader, tsr_loader_state *out_state)
{
    out_state->epoch = epoch_of(loader);
    out_state->position = position_of(loader);
    return TSR_OK;
}

static tsr_status set_state(tsr_loader *loader, const tsr_loader_state *state)
{
    if (state->begun || state->has_base_seed)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_loader_set_state: this is the state of a tsr_map_loader_create");
    const int64_t batches = batches_of(loader);
    if (state->position > batches)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_loader_set_state: it stood behind batch %" PRId64
                         " of an epoch; this loader's have %" PRId64,
                         state->position, batches);
    TSRI_TRY(set_epoch(loader, state->epoch));
    return set_position(loader, state->position);
}

static const tsri_loader_ops image_ops = {
    .destroy = destroy,
    .next = tsri_image_next,
    .feed = tsri_image_feed,
    .peek = peek,
    .reset = reset,
    .set_epoch = set_epoch,
    .set_position = set_position,
    .epoch = epoch_of,
    .batches = batches_of,
    .position = position_of,
    .get_state = get_state,
    .set_state = set_state,
};

tsr_status tsr_loader_create(tsr_world *world, tsr_dataset *dataset, const tsr_loader_opts *opts,
                             tsr_loader **out_loader)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    TSRI_TRY(tsri_live_check(dataset, TSRI_LIVE_DATASET, __func__));
    if (!world || !dataset || !out_loader)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_loader_create: world, dataset or out_loader is NULL");
    tsr_loader_opts resolved;
    TSRI_TRY(resolve_opts(opts, &resolved));
    if (resolved.local && resolved.batch_size % world->nranks != 0)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_loader_create: batch_size %" PRId64 " is no multiple of the %d ranks "
                         "(local)",
                         resolved.batch_size, world->nranks);
    tsri_image_loader *l = tsri_live_alloc(&world->mem, sizeof *l, TSRI_LIVE_LOADER);
    TSRI_NEED(l);
    l->base.ops = &image_ops;
    l->base.ranks = resolved.local ? world->nranks : 1;
    l->world = world;
    l->opts = resolved;
    l->ds = dataset;
    tsri_dataset_ref(dataset);
    int64_t full = dataset->count / resolved.batch_size;
    bool rest = dataset->count % resolved.batch_size >= l->base.ranks;
    l->batches = full + (rest && !resolved.drop_last);
    tsr_status status = tsri_decoder_init(&l->decoder, &world->mem, dataset, &resolved);
    if (status != TSR_OK) {
        destroy(&l->base);
        return status;
    }
    tsri_loader_enter(&l->base, world);
    *out_loader = &l->base;
    return TSR_OK;
}
