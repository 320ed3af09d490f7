/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/opts.h"
#include "src/data/sampler/batch_sampler.h"

#include <inttypes.h>
#include <string.h>

#include "src/core/live.h"

static void destroy_owned(void *batch_sampler)
{
    tsr_batch_sampler_destroy(batch_sampler);
}

enum {
    FIRST_ROWS = 64
}; /* that there is room for at first: batch_size may be beyond all samples */

static tsr_status grow(tsr_batch_sampler *b, int64_t capacity)
{
    int64_t *indices = tsri_mem_realloc(b->mem, b->indices, (size_t)capacity * sizeof *b->indices);
    TSRI_NEED(indices);
    b->indices = indices;
    b->capacity = capacity;
    return TSR_OK;
}

/* Whose batches have `rows` indices at most. */
static tsr_status create(tsr_world *world, int64_t rows, tsr_batch_sampler **out_batch_sampler)
{
    tsri_mem *mem = world ? &world->mem : NULL;
    tsr_batch_sampler *b = tsri_live_alloc(mem, sizeof *b, TSRI_LIVE_BATCH_SAMPLER);
    TSRI_NEED(b);
    b->mem = mem;
    b->batch_size = rows;
    tsr_status status = grow(b, rows < FIRST_ROWS ? rows : FIRST_ROWS);
    if (status != TSR_OK) {
        tsr_batch_sampler_destroy(b);
        return status;
    }
    if (world)
        tsri_world_own(world, &b->owned, b, destroy_owned);
    *out_batch_sampler = b;
    return TSR_OK;
}

static tsr_status check(const char *who, int64_t rows, const char *option, const void *out)
{
    if (!out)
        return tsri_fail(TSR_ERR_INVALID, "%s: out_batch_sampler is NULL", who);
    if (rows < 1 || rows > TSRI_MAX_SAMPLES)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: %s should be a positive integer value, but got %" PRId64, who, option,
                         rows);
    return TSR_OK;
}

tsr_status tsr_batch_sampler_create(tsr_world *world, tsr_sampler *sampler, int64_t batch_size,
                                    bool drop_last, tsr_batch_sampler **out_batch_sampler)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    TSRI_TRY(tsri_live_check(sampler, TSRI_LIVE_SAMPLER, __func__));
    static const char who[] = "tsr_batch_sampler_create";
    TSRI_TRY(check(who, batch_size, "batch_size", out_batch_sampler));
    if (!sampler)
        return tsri_fail(TSR_ERR_INVALID, "%s: the sampler is NULL", who);
    tsr_batch_sampler *b;
    TSRI_TRY(create(world, batch_size, &b));
    b->sampler = sampler;
    b->drop_last = drop_last;
    *out_batch_sampler = b;
    return TSR_OK;
}

tsr_status tsr_custom_batch_sampler(tsr_world *world, const tsr_batch_sampler_calls *calls,
                                    tsr_batch_sampler **out_batch_sampler)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    static const char who[] = "tsr_custom_batch_sampler";
    tsr_batch_sampler_calls known = {.size = sizeof known};
    TSRI_TRY(tsri_opts_read(&known, sizeof known, calls, who));
    TSRI_TRY(check(who, known.max_rows, "max_rows", out_batch_sampler));
    if (!known.next)
        return tsri_fail(TSR_ERR_INVALID, "%s: there is no function `next`", who);
    tsr_batch_sampler *b;
    TSRI_TRY(create(world, known.max_rows, &b));
    b->calls = known;
    *out_batch_sampler = b;
    return TSR_OK;
}

void tsr_batch_sampler_destroy(tsr_batch_sampler *b)
{
    if (!tsri_is_live(b, TSRI_LIVE_BATCH_SAMPLER, __func__))
        return;
    tsri_world_disown(&b->owned);
    tsri_mem_free(b->indices);
    tsri_live_free(b, TSRI_LIVE_BATCH_SAMPLER);
}

/* --- passes ----------------------------------------------------------------------------------- */

static tsr_status begin(tsr_batch_sampler *b)
{
    b->position = b->given = 0;
    b->ended = false;
    if (b->sampler) {
        TSRI_TRY(tsr_sampler_reset(b->sampler)); /* should somebody have begun */
        TSRI_TRY(tsr_sampler_get_state(b->sampler, &b->start));
    } else if (b->calls.begin) {
        TSRI_TRY(b->calls.begin(b->calls.arg, b->epoch));
    }
    b->begun = true;
    return TSR_OK;
}

void tsri_batch_sampler_rewind(tsr_batch_sampler *b, int64_t epoch)
{
    b->begun = b->ended = false;
    b->position = b->given = 0;
    b->epoch = epoch;
    if (b->sampler)
        tsri_sampler_rewind(b->sampler, epoch);
}

/* The sampler itself stands before its next pass already. */
static tsr_status end(tsr_batch_sampler *b)
{
    b->begun = b->ended = false;
    b->position = b->given = 0;
    b->epoch++;
    return TSR_END;
}

/* An error in the middle of a batch leaves the batch out. */
static tsr_status collect(tsr_batch_sampler *b, int64_t *out_rows)
{
    int64_t rows = 0;
    while (rows < b->batch_size) {
        if (rows == b->capacity)
            TSRI_TRY(grow(b, rows < b->batch_size / 2 ? 2 * rows : b->batch_size));
        tsr_status status = tsr_sampler_next(b->sampler, &b->indices[rows]);
        if (status == TSR_END) {
            b->ended = true;
            break;
        }
        TSRI_TRY(status);
        rows++;
    }
    if (!rows || (rows < b->batch_size && b->drop_last))
        return TSR_END;
    *out_rows = rows;
    return TSR_OK;
}

static tsr_status collect_custom(tsr_batch_sampler *b, int64_t *out_rows)
{
    int64_t rows = 0;
    if (b->capacity < b->batch_size)
        TSRI_TRY(grow(b, b->batch_size));
    tsr_status status = b->calls.next(b->calls.arg, b->indices, &rows);
    if (status == TSR_OK && (rows < 0 || rows > b->batch_size))
        return tsri_fail(TSR_ERR_INVALID,
                         "batch sampler: `next` says that it wrote %" PRId64
                         " indices; there is room for max_rows = %" PRId64,
                         rows, b->batch_size);
    *out_rows = rows;
    return status;
}

tsr_status tsr_batch_sampler_next(tsr_batch_sampler *b, const int64_t **out_indices,
                                  int64_t *out_rows)
{
    TSRI_TRY(tsri_live_check(b, TSRI_LIVE_BATCH_SAMPLER, __func__));
    if (!b || !out_indices || !out_rows)
        return tsri_fail(TSR_ERR_INVALID, "tsr_batch_sampler_next: %s is NULL",
                         b ? "out_indices or out_rows" : "the batch sampler");
    if (!b->begun)
        TSRI_TRY(begin(b));
    if (b->ended)
        return end(b);
    int64_t rows = 0;
    tsr_status status = b->sampler ? collect(b, &rows) : collect_custom(b, &rows);
    if (status == TSR_END)
        return end(b);
    TSRI_TRY(status);
    b->position++;
    b->given += rows;
    *out_indices = b->indices;
    *out_rows = rows;
    return TSR_OK;
}

int64_t tsr_batch_sampler_count(const tsr_batch_sampler *b)
{
    if (!tsri_is_live(b, TSRI_LIVE_BATCH_SAMPLER, __func__))
        return 0;
    if (!b->sampler)
        return b->calls.count ? b->calls.count(b->calls.arg) : -1;
    int64_t n = tsr_sampler_count(b->sampler);
    if (n < 0)
        return -1;
    return n / b->batch_size + (n % b->batch_size && !b->drop_last);
}

tsr_status tsr_batch_sampler_reset(tsr_batch_sampler *b)
{
    TSRI_TRY(tsri_live_check(b, TSRI_LIVE_BATCH_SAMPLER, __func__));
    if (!b)
        return tsri_fail(TSR_ERR_INVALID, "tsr_batch_sampler_reset: the batch sampler is NULL");
    if (b->sampler && !b->ended) /* ended: it stands before its next pass already */
        TSRI_TRY(tsr_sampler_reset(b->sampler));
    if (b->begun)
        end(b);
    return TSR_OK;
}

tsr_status tsr_batch_sampler_set_epoch(tsr_batch_sampler *b, int64_t epoch)
{
    TSRI_TRY(tsri_live_check(b, TSRI_LIVE_BATCH_SAMPLER, __func__));
    if (!b || epoch < 0)
        return tsri_fail(TSR_ERR_INVALID, "tsr_batch_sampler_set_epoch: %s",
                         b ? "the epoch is negative" : "the batch sampler is NULL");
    if (b->sampler)
        TSRI_TRY(tsr_sampler_set_epoch(b->sampler, epoch));
    tsri_batch_sampler_rewind(b, epoch);
    return TSR_OK;
}

/* --- positions and states --------------------------------------------------------------------- */

int64_t tsr_batch_sampler_position(const tsr_batch_sampler *b)
{
    return tsri_is_live(b, TSRI_LIVE_BATCH_SAMPLER, __func__) ? b->position : 0;
}

enum { KIND_CUSTOM = 100 };

tsr_status tsr_batch_sampler_get_state(const tsr_batch_sampler *b, tsr_sampler_state *out_state)
{
    TSRI_TRY(tsri_live_check(b, TSRI_LIVE_BATCH_SAMPLER, __func__));
    if (!b || !out_state)
        return tsri_fail(TSR_ERR_INVALID, "tsr_batch_sampler_get_state: %s is NULL",
                         b ? "out_state" : "the batch sampler");
    if (!b->sampler) {
        memset(out_state, 0, sizeof *out_state);
        out_state->size = sizeof *out_state;
        out_state->kind = KIND_CUSTOM;
        out_state->count = -1;
        out_state->epoch = b->epoch;
        out_state->position = b->position;
        return TSR_OK;
    }
    if (!b->begun)
        return tsr_sampler_get_state(b->sampler, out_state);
    *out_state = b->start;
    out_state->position = b->given;
    return TSR_OK;
}

/* Goes past `batches` of a pass of the user's own functions, which has begun. */
static tsr_status pass_by(tsr_batch_sampler *b, int64_t batches)
{
    while (b->position < batches) {
        const int64_t *indices;
        int64_t rows;
        tsr_status status = tsr_batch_sampler_next(b, &indices, &rows);
        if (status == TSR_END)
            return tsri_fail(TSR_ERR_INVALID, "batch sampler: the pass ends before batch %" PRId64,
                             batches);
        TSRI_TRY(status);
    }
    return TSR_OK;
}

static tsr_status set_custom(tsr_batch_sampler *b, int64_t epoch, int64_t position)
{
    tsri_batch_sampler_rewind(b, epoch);
    return pass_by(b, position);
}

tsr_status tsr_batch_sampler_set_state(tsr_batch_sampler *b, const tsr_sampler_state *state)
{
    TSRI_TRY(tsri_live_check(b, TSRI_LIVE_BATCH_SAMPLER, __func__));
    if (!b || !state)
        return tsri_fail(TSR_ERR_INVALID, "tsr_batch_sampler_set_state: %s is NULL",
                         b ? "state" : "the batch sampler");
    if (!b->sampler) {
        if (state->kind != KIND_CUSTOM || state->epoch < 0 || state->position < 0)
            return tsri_fail(TSR_ERR_INVALID, "tsr_batch_sampler_set_state: this is no state of "
                                              "a batch sampler of the user's own");
        return set_custom(b, state->epoch, state->position);
    }
    int64_t batches = state->position / b->batch_size + (state->position % b->batch_size != 0);
    if (state->position % b->batch_size && state->count >= 0 && state->position != state->count)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_batch_sampler_set_state: position %" PRId64
                         " is not between batches of %" PRId64,
                         state->position, b->batch_size);
    TSRI_TRY(tsr_sampler_set_state(b->sampler, state));
    b->begun = batches > 0;
    b->ended = false;
    b->position = batches;
    b->given = state->position;
    b->start = *state;
    b->start.position = 0;
    return TSR_OK;
}

tsr_status tsr_batch_sampler_set_position(tsr_batch_sampler *b, int64_t position)
{
    TSRI_TRY(tsri_live_check(b, TSRI_LIVE_BATCH_SAMPLER, __func__));
    if (!b)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_batch_sampler_set_position: the batch sampler is NULL");
    int64_t count = tsr_batch_sampler_count(b);
    if (count < 0) /* nobody knows: as many as there are indices for */
        count = b->sampler ? INT64_MAX / b->batch_size : INT64_MAX;
    if (position < 0 || position > count)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_batch_sampler_set_position: %" PRId64
                         " is outside the pass; legal are 0 .. %" PRId64,
                         position, count);
    if (!b->sampler)
        return position < b->position ? set_custom(b, b->epoch, position) : pass_by(b, position);
    tsr_sampler_state state;
    TSRI_TRY(tsr_batch_sampler_get_state(b, &state));
    state.position = position * b->batch_size;
    if (state.count >= 0 && state.position > state.count)
        state.position = state.count;
    return tsr_batch_sampler_set_state(b, &state);
}
