/* SPDX-License-Identifier: Apache-2.0 */
/* Going to an epoch, and to where a checkpoint stood. */
#include "src/data/loader/map_loader.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/core/live.h"

/* By the seed: what PyTorch's default generator would have given in the epochs before. A base seed
 * and the seed of an order are two words each. */
static void go_to_epoch(tsri_map_loader *l, int64_t epoch)
{
    const tsr_map_loader_opts *o = &l->spec.o;
    uint64_t n = (uint64_t)epoch, orders = o->shuffle ? n : 0;
    uint64_t base_seeds = o->persistent_workers ? n > 0 : n;
    tsri_generator_seed(&l->own, o->seed);
    l->has_base_seed = o->persistent_workers && n;
    if (l->has_base_seed) {
        tsri_rng_state first = l->own;
        l->base_seed = tsri_generator_word64(&first) & INT64_MAX;
    }
    tsri_generator_skip(&l->own, 2 * (base_seeds + orders));
}

tsr_status tsri_map_set_epoch(tsr_loader *loader, int64_t epoch)
{
    static const char who[] = "tsr_loader_set_epoch";
    tsri_map_loader *l = tsri_map_of(loader);
    bool own = l->root == &l->own;
    if (l->spec.o.shuffle && !own)
        return tsri_fail(TSR_ERR_STATE,
                         "%s: the order comes from a generator of yours: set that one, or use "
                         "tsr_loader_set_state",
                         who);
    if (own && epoch > INT64_C(1) << 30)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: epoch %" PRId64 " is too many draws away; legal are 0 .. 2^30", who,
                         epoch);
    if (l->spec.o.shuffle)
        tsri_batch_sampler_rewind(l->batches, epoch);
    else
        TSRI_TRY(tsr_batch_sampler_set_epoch(l->batches, epoch));
    tsri_map_leave(l);
    if (own)
        go_to_epoch(l, epoch);
    l->epoch = epoch;
    return TSR_OK;
}

tsr_status tsri_map_get_state(const tsr_loader *loader, tsr_loader_state *out_state)
{
    const tsri_map_loader *l = tsri_map_look(loader);
    if (l->begun) {
        *out_state = l->start;
        out_state->position = tsri_map_position(loader);
        return TSR_OK;
    }
    out_state->epoch = l->epoch;
    out_state->has_base_seed = l->has_base_seed;
    out_state->base_seed = l->base_seed;
    tsri_generator_store(l->root, out_state->generator);
    return tsr_batch_sampler_get_state(l->batches, &out_state->sampler);
}

/* The sampler is put where it stood after `position` batches; the root may be what it draws from.
 */
static tsr_status set_sampler(tsri_map_loader *l, const tsr_loader_state *state)
{
    TSRI_TRY(tsri_generator_load(l->root, state->generator));
    TSRI_TRY(tsr_batch_sampler_set_state(l->batches, &state->sampler));
    return state->position ? tsr_batch_sampler_set_position(l->batches, state->position) : TSR_OK;
}

tsr_status tsri_map_set_state(tsr_loader *loader, const tsr_loader_state *state)
{
    static const char who[] = "tsr_loader_set_state";
    tsri_map_loader *l = tsri_map_of(loader);
    if (state->position && !state->begun)
        return tsri_fail(TSR_ERR_INVALID, "%s: this is the state of a loader of images", who);
    tsr_loader_state before = {.size = sizeof before};
    TSRI_TRY(tsri_map_get_state(loader, &before));
    if (l->begun)
        before.position = tsri_crew_handed(l->crew);
    tsr_status status = set_sampler(l, state);
    if (status != TSR_OK) { /* nothing has happened */
        char text[512];
        snprintf(text, sizeof text, "%s", tsr_last_error());
        set_sampler(l, &before);
        l->ended = false; /* where the pass had met its end, it will again, and draw what it drew */
        return tsri_fail(status, "%s: %s", who, text);
    }
    tsri_map_leave(l);
    if (state->begun)
        TSRI_TRY(tsri_crew_start(l->crew, state->epoch, state->base_seed, state->position));
    l->begun = state->begun;
    l->epoch = state->epoch;
    l->base_seed = state->base_seed;
    l->has_base_seed = state->has_base_seed;
    l->start = *state;
    l->start.position = 0;
    return TSR_OK;
}

tsr_status tsri_map_set_position(tsr_loader *loader, int64_t position)
{
    tsri_map_loader *l = tsri_map_of(loader);
    if (!l->begun && !position)
        return TSR_OK;
    if (!l->begun)
        TSRI_TRY(tsri_map_begin(l));
    tsr_loader_state state = l->start;
    state.position = position;
    return tsri_map_set_state(loader, &state);
}
