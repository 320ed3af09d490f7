/* SPDX-License-Identifier: Apache-2.0 */
/* Going to an epoch, and to where a checkpoint stood. */
#include "src/data/loader/data_loader.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/core/live.h"

/* By the seed: what PyTorch's default generator would have given in the epochs before. A base seed
 * and the seed of an order are two words each. */
static void go_to_epoch(tsr_data_loader *l, int64_t epoch)
{
    const tsr_data_loader_opts *o = &l->spec.o;
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

tsr_status tsr_data_loader_set_epoch(tsr_data_loader *l, int64_t epoch)
{
    TSRI_TRY(tsri_live_check(l, TSRI_LIVE_DATA_LOADER, __func__));
    static const char who[] = "tsr_data_loader_set_epoch";
    if (!l || epoch < 0)
        return tsri_fail(TSR_ERR_INVALID, "%s: %s", who,
                         l ? "the epoch is negative" : "the loader is NULL");
    bool own = l->root == &l->own;
    if (l->spec.o.shuffle && !own)
        return tsri_fail(TSR_ERR_STATE,
                         "%s: the order comes from a generator of yours: set that one, or use "
                         "tsr_data_loader_set_state",
                         who);
    if (own && epoch > INT64_C(1) << 30)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: epoch %" PRId64 " is too many draws away; legal are 0 .. 2^30", who,
                         epoch);
    if (l->spec.o.shuffle)
        tsri_batch_sampler_rewind(l->batches, epoch);
    else
        TSRI_TRY(tsr_batch_sampler_set_epoch(l->batches, epoch));
    tsri_data_loader_leave(l);
    if (own)
        go_to_epoch(l, epoch);
    l->epoch = epoch;
    return TSR_OK;
}

tsr_status tsr_data_loader_get_state(const tsr_data_loader *l, tsr_data_loader_state *out_state)
{
    TSRI_TRY(tsri_live_check(l, TSRI_LIVE_DATA_LOADER, __func__));
    if (!l || !out_state)
        return tsri_fail(TSR_ERR_INVALID, "tsr_data_loader_get_state: %s is NULL",
                         l ? "out_state" : "the loader");
    if (l->begun) {
        *out_state = l->start;
        out_state->position = tsri_crew_taken(l->crew);
        return TSR_OK;
    }
    memset(out_state, 0, sizeof *out_state);
    out_state->size = sizeof *out_state;
    out_state->epoch = l->epoch;
    out_state->has_base_seed = l->has_base_seed;
    out_state->base_seed = l->base_seed;
    tsri_generator_store(l->root, out_state->generator);
    return tsr_batch_sampler_get_state(l->batches, &out_state->sampler);
}

/* The sampler is put where it stood after `position` batches; the root may be what it draws from.
 */
static tsr_status set_sampler(tsr_data_loader *l, const tsr_data_loader_state *state)
{
    TSRI_TRY(tsri_generator_load(l->root, state->generator));
    TSRI_TRY(tsr_batch_sampler_set_state(l->batches, &state->sampler));
    return state->position ? tsr_batch_sampler_set_position(l->batches, state->position) : TSR_OK;
}

tsr_status tsr_data_loader_set_state(tsr_data_loader *l, const tsr_data_loader_state *state)
{
    TSRI_TRY(tsri_live_check(l, TSRI_LIVE_DATA_LOADER, __func__));
    static const char who[] = "tsr_data_loader_set_state";
    if (!l || !state)
        return tsri_fail(TSR_ERR_INVALID, "%s: %s is NULL", who, l ? "state" : "the loader");
    if (state->size != sizeof *state || state->epoch < 0 || state->position < 0 ||
        (state->position && !state->begun))
        return tsri_fail(TSR_ERR_INVALID, "%s: this is no data loader's state", who);
    tsr_data_loader_state before;
    TSRI_TRY(tsr_data_loader_get_state(l, &before));
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
    tsri_data_loader_leave(l);
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
