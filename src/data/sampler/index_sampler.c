/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by all samplers: passes, positions and states; and the samplers that draw nothing. */
#include "src/core/opts.h"
#include "src/data/sampler/index_sampler.h"

#include <inttypes.h>
#include <string.h>

#include "src/core/live.h"

/* Words of a generator that set_epoch goes past at most: some ten seconds. */
#define MAX_SKIP (UINT64_C(1) << 32)

/* --- making ----------------------------------------------------------------------------------- */

tsr_status tsri_sampler_check(const char *who, int64_t n, const void *out)
{
    if (!out)
        return tsri_fail(TSR_ERR_INVALID, "%s: out_sampler is NULL", who);
    if (n < 0 || n > TSRI_MAX_SAMPLES)
        return tsri_fail(TSR_ERR_INVALID, "%s: %" PRId64 " samples; legal are 0 .. 2^56", who, n);
    return TSR_OK;
}

tsr_status tsri_sampler_create(tsr_world *world, const tsri_sampler_ops *ops, int64_t n,
                               int64_t count, tsr_sampler **out_sampler)
{
    tsri_mem *mem = world ? &world->mem : NULL;
    tsr_sampler *s = tsri_live_alloc(mem, sizeof *s, TSRI_LIVE_SAMPLER);
    TSRI_NEED(s);
    s->mem = mem;
    s->ops = ops;
    s->n = n;
    s->count = count;
    *out_sampler = s;
    return TSR_OK;
}

tsr_status tsri_sampler_draw_from(tsr_sampler *s, tsr_generator *generator, uint64_t seed)
{
    TSRI_TRY(tsri_live_check(generator, TSRI_LIVE_GENERATOR, "a sampler of a generator"));
    s->seed = seed;
    if (generator) {
        s->root = &generator->s;
        return TSR_OK;
    }
    s->own = s->root = tsri_mem_alloc(s->mem, sizeof *s->own);
    TSRI_NEED(s->own);
    tsri_generator_seed(s->own, seed);
    return TSR_OK;
}

tsr_status tsri_sampler_room(tsr_sampler *s, int64_t block)
{
    s->block = tsri_mem_alloc(s->mem, (size_t)block * sizeof *s->block);
    return s->block ? TSR_OK : TSR_ERR_NO_MEMORY;
}

static void destroy_owned(void *sampler)
{
    tsr_sampler_destroy(sampler);
}

tsr_status tsri_sampler_finish(tsr_world *world, tsr_sampler *s, tsr_status status,
                               tsr_sampler **out_sampler)
{
    if (status != TSR_OK) {
        tsr_sampler_destroy(s);
        return status;
    }
    if (world)
        tsri_world_own(world, &s->owned, s, destroy_owned);
    *out_sampler = s;
    return TSR_OK;
}

void tsr_sampler_destroy(tsr_sampler *s)
{
    if (!tsri_is_live(s, TSRI_LIVE_SAMPLER, __func__))
        return;
    tsri_world_disown(&s->owned);
    tsri_mem_free(s->block);
    tsri_mem_free(s->own);
    tsri_mem_free(s->indices);
    tsri_mem_free(s->cumulative);
    tsri_live_free(s, TSRI_LIVE_SAMPLER);
}

/* --- passes ----------------------------------------------------------------------------------- */

static tsr_status begin(tsr_sampler *s)
{
    s->block_first = s->block_count = 0;
    s->position = 0;
    if (s->root)
        s->start = *s->root;
    s->pass = s->root;
    if (s->seeds_passes) {
        tsri_generator_seed(&s->seeded, tsri_generator_word64(s->root) & INT64_MAX);
        s->pass = &s->seeded;
    }
    if (s->ops->begin)
        TSRI_TRY(s->ops->begin(s));
    s->begun = true;
    return TSR_OK;
}

void tsri_sampler_rewind(tsr_sampler *s, int64_t epoch)
{
    s->begun = false;
    s->position = 0;
    s->epoch = epoch;
}

static tsr_status end(tsr_sampler *s)
{
    if (s->ops->end)
        s->ops->end(s);
    tsri_sampler_rewind(s, s->epoch + !s->ops->keeps_epoch);
    return TSR_END;
}

/* Draws until s->position lies in the block. */
static tsr_status reach(tsr_sampler *s)
{
    while (s->ops->fill && s->position >= s->block_first + s->block_count)
        TSRI_TRY(s->ops->fill(s));
    return TSR_OK;
}

tsr_status tsr_sampler_next(tsr_sampler *s, int64_t *out_index)
{
    TSRI_TRY(tsri_live_check(s, TSRI_LIVE_SAMPLER, __func__));
    if (!s || !out_index)
        return tsri_fail(TSR_ERR_INVALID, "tsr_sampler_next: %s is NULL",
                         s ? "out_index" : "the sampler");
    if (!s->begun)
        TSRI_TRY(begin(s));
    if (s->ops->next) {
        tsr_status status = s->ops->next(s, out_index);
        s->position += status == TSR_OK;
        return status == TSR_END ? end(s) : status;
    }
    if (s->position == s->count)
        return end(s);
    TSRI_TRY(reach(s));
    *out_index = s->ops->at ? s->ops->at(s) : s->block[s->position - s->block_first];
    s->position++;
    return TSR_OK;
}

int64_t tsr_sampler_count(const tsr_sampler *s)
{
    return tsri_is_live(s, TSRI_LIVE_SAMPLER, __func__)
               ? s->ops->next && s->calls.count ? s->calls.count(s->calls.arg) : s->count
               : 0;
}

tsr_status tsr_sampler_reset(tsr_sampler *s)
{
    TSRI_TRY(tsri_live_check(s, TSRI_LIVE_SAMPLER, __func__));
    if (!s)
        return tsri_fail(TSR_ERR_INVALID, "tsr_sampler_reset: the sampler is NULL");
    if (s->begun)
        tsri_sampler_rewind(s, s->epoch + !s->ops->keeps_epoch);
    return TSR_OK;
}

bool tsri_sampler_is_driven(const tsr_sampler *s)
{
    return s->over ? tsri_sampler_is_driven(s->over) : s->root && !s->own;
}

tsr_status tsr_sampler_set_epoch(tsr_sampler *s, int64_t epoch)
{
    TSRI_TRY(tsri_live_check(s, TSRI_LIVE_SAMPLER, __func__));
    if (!s || epoch < 0)
        return tsri_fail(TSR_ERR_INVALID, "tsr_sampler_set_epoch: %s",
                         s ? "the epoch is negative" : "the sampler is NULL");
    if (tsri_sampler_is_driven(s))
        return tsri_fail(TSR_ERR_STATE,
                         "tsr_sampler_set_epoch: the order comes from a generator of yours: set "
                         "that one, or use tsr_sampler_set_state");
    if (s->over)
        TSRI_TRY(tsr_sampler_set_epoch(s->over, epoch));
    if (s->own) {
        uint64_t words = s->ops->words(s);
        if (words && (uint64_t)epoch > MAX_SKIP / words)
            return tsri_fail(TSR_ERR_INVALID,
                             "tsr_sampler_set_epoch: epoch %" PRId64 " is %" PRIu64
                             " draws an epoch away; at most 2^32 draws can be passed",
                             epoch, words);
        tsri_generator_seed(s->own, s->seed);
        tsri_generator_skip(s->own, words * (uint64_t)epoch);
    }
    tsri_sampler_rewind(s, epoch);
    return TSR_OK;
}

int64_t tsr_sampler_epoch(const tsr_sampler *s)
{
    if (!tsri_is_live(s, TSRI_LIVE_SAMPLER, __func__))
        return 0;
    if (s->over)
        return s->begun ? s->over_start.epoch : tsr_sampler_epoch(s->over);
    return s->epoch;
}

/* --- positions and states --------------------------------------------------------------------- */

int64_t tsr_sampler_position(const tsr_sampler *s)
{
    return tsri_is_live(s, TSRI_LIVE_SAMPLER, __func__) ? s->position : 0;
}

/* Stands at the start of this pass again, its order unchanged. */
static tsr_status begin_again(tsr_sampler *s)
{
    if (s->begun) {
        if (s->root)
            *s->root = s->start;
        if (s->over)
            TSRI_TRY(tsr_sampler_set_state(s->over, &s->over_start));
    }
    s->begun = false;
    return begin(s);
}

tsr_status tsr_sampler_set_position(tsr_sampler *s, int64_t position)
{
    TSRI_TRY(tsri_live_check(s, TSRI_LIVE_SAMPLER, __func__));
    if (!s)
        return tsri_fail(TSR_ERR_INVALID, "tsr_sampler_set_position: the sampler is NULL");
    int64_t count = tsr_sampler_count(s);
    if (position < 0 || (count >= 0 && position > count))
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_sampler_set_position: %" PRId64
                         " is outside the pass; legal are 0 .. %" PRId64,
                         position, count < 0 ? INT64_MAX : count);
    bool back = s->ops->next ? position < s->position : position < s->block_first;
    if (!s->begun || back)
        TSRI_TRY(begin_again(s));
    if (!s->ops->next) { /* what has been drawn is what the indices before it took */
        s->position = position ? position - 1 : 0;
        TSRI_TRY(position ? reach(s) : TSR_OK);
        s->position = position;
        return TSR_OK;
    }
    while (s->position < position) { /* a custom one */
        int64_t index;
        tsr_status status = tsr_sampler_next(s, &index);
        if (status == TSR_END)
            return tsri_fail(TSR_ERR_INVALID,
                             "tsr_sampler_set_position: the pass ends before %" PRId64, position);
        TSRI_TRY(status);
    }
    return TSR_OK;
}

tsr_status tsr_sampler_get_state(const tsr_sampler *s, tsr_sampler_state *out_state)
{
    TSRI_TRY(tsri_live_check(s, TSRI_LIVE_SAMPLER, __func__));
    if (!s || !out_state)
        return tsri_fail(TSR_ERR_INVALID, "tsr_sampler_get_state: %s is NULL",
                         s ? "out_state" : "the sampler");
    memset(out_state, 0, sizeof *out_state); /* padding too: it may be written to a file */
    out_state->size = sizeof *out_state;
    if (s->over) {
        if (s->begun)
            *out_state = s->over_start;
        else
            TSRI_TRY(tsr_sampler_get_state(s->over, out_state));
    } else if (s->root) {
        out_state->has_generator = 1;
        tsri_generator_store(s->begun ? &s->start : s->root, out_state->generator);
    }
    out_state->kind = s->ops->kind;
    out_state->count = s->count;
    out_state->epoch = tsr_sampler_epoch(s);
    out_state->position = s->position;
    return TSR_OK;
}

static tsr_status check_state(const tsr_sampler *s, const tsr_sampler_state *state)
{
    if (!s || !state)
        return tsri_fail(TSR_ERR_INVALID, "tsr_sampler_set_state: %s is NULL",
                         s ? "state" : "the sampler");
    const tsr_sampler *drawn = s;
    while (drawn->over)
        drawn = drawn->over;
    if (state->size != sizeof *state || state->kind != s->ops->kind ||
        state->has_generator != (drawn->root != NULL))
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_sampler_set_state: this is no state of a %s sampler made this way",
                         s->ops->name);
    if (state->count != s->count || state->epoch < 0 || state->position < 0 ||
        (s->count >= 0 && state->position > s->count))
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_sampler_set_state: position %" PRId64 " of %" PRId64
                         " indices in epoch %" PRId64 ", for a sampler of %" PRId64 " indices",
                         state->position, state->count, state->epoch, s->count);
    return TSR_OK;
}

tsr_status tsr_sampler_set_state(tsr_sampler *s, const tsr_sampler_state *state)
{
    TSRI_TRY(tsri_live_check(s, TSRI_LIVE_SAMPLER, __func__));
    TSRI_TRY(check_state(s, state));
    if (s->over) {
        tsr_sampler_state below = *state;
        below.kind = s->over->ops->kind;
        below.count = s->over->count;
        below.position = 0;
        TSRI_TRY(tsr_sampler_set_state(s->over, &below));
    } else if (s->root) {
        TSRI_TRY(tsri_generator_load(s->root, state->generator));
    }
    tsri_sampler_rewind(s, state->epoch);
    return state->position ? tsr_sampler_set_position(s, state->position) : TSR_OK;
}

/* --- in order --------------------------------------------------------------------------------- */

static int64_t at_position(const tsr_sampler *s)
{
    return s->position;
}

static const tsri_sampler_ops sequential = {.kind = 1, .name = "sequential", .at = at_position};

tsr_status tsr_sequential_sampler(tsr_world *world, int64_t n, tsr_sampler **out_sampler)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    TSRI_TRY(tsri_sampler_check("tsr_sequential_sampler", n, out_sampler));
    tsr_sampler *s;
    TSRI_TRY(tsri_sampler_create(world, &sequential, n, n, &s));
    return tsri_sampler_finish(world, s, TSR_OK, out_sampler);
}

/* --- the user's own --------------------------------------------------------------------------- */

static tsr_status begin_custom(tsr_sampler *s)
{
    return s->calls.begin ? s->calls.begin(s->calls.arg, s->epoch) : TSR_OK;
}

static tsr_status next_custom(tsr_sampler *s, int64_t *out_index)
{
    return s->calls.next(s->calls.arg, out_index);
}

static const tsri_sampler_ops custom = {
    .kind = 2, .name = "custom", .begin = begin_custom, .next = next_custom};

tsr_status tsr_custom_sampler(tsr_world *world, const tsr_sampler_calls *calls,
                              tsr_sampler **out_sampler)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    tsr_sampler_calls known = {.size = sizeof known};
    TSRI_TRY(tsri_sampler_check("tsr_custom_sampler", 0, out_sampler));
    TSRI_TRY(tsri_opts_read(&known, sizeof known, calls, "tsr_custom_sampler"));
    if (!known.next)
        return tsri_fail(TSR_ERR_INVALID, "tsr_custom_sampler: there is no function `next`");
    tsr_sampler *s;
    TSRI_TRY(tsri_sampler_create(world, &custom, 0, -1, &s));
    s->calls = known;
    return tsri_sampler_finish(world, s, TSR_OK, out_sampler);
}
