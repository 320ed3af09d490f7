/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of loader.h. */
#include "src/data/loader/loader.h"

#include <inttypes.h>
#include <string.h>

#include "src/core/live.h"

static void destroy_owned(void *loader)
{
    tsr_loader_destroy(loader);
}

void tsri_loader_enter(tsr_loader *l, tsr_world *world)
{
    if (world)
        tsri_world_own(world, &l->owned, l, destroy_owned);
}

void tsr_loader_destroy(tsr_loader *l)
{
    if (!tsri_is_live(l, TSRI_LIVE_LOADER, __func__))
        return;
    tsri_world_disown(&l->owned);
    l->ops->destroy(l);
}

/* Checks the loader, and `other`, which must be there too. */
static tsr_status check(const char *who, const tsr_loader *l, const void *other, const char *what)
{
    TSRI_TRY(tsri_live_check(l, TSRI_LIVE_LOADER, who));
    if (l && other)
        return TSR_OK;
    return tsri_fail(TSR_ERR_INVALID, "%s: %s is NULL%s", who, l ? what : "the loader",
                     tsri_error_cause());
}

tsr_status tsr_loader_next(tsr_loader *l, const tsr_batch **out_batch)
{
    TSRI_TRY(check(__func__, l, (const void *)out_batch, "out_batch"));
    TSRI_TRY(l->ops->next(l, &l->batch));
    *out_batch = &l->batch;
    return TSR_OK;
}

tsr_status tsr_loader_feed(tsr_loader *l, tsr_plan *plan)
{
    TSRI_TRY(check(__func__, l, plan, "the plan"));
    TSRI_TRY(tsri_live_check(plan, TSRI_LIVE_PLAN, __func__));
    return l->ops->feed(l, plan);
}

tsr_status tsri_loader_peek(tsr_loader *l, int64_t *out_rows)
{
    return l->ops->peek(l, out_rows);
}

int64_t tsr_loader_peek_rows(tsr_loader *l)
{
    int64_t rows;
    if (!tsri_is_live(l, TSRI_LIVE_LOADER, __func__))
        return 0;
    const tsr_status status = l->ops->peek(l, &rows);
    return status == TSR_OK ? rows * l->ranks : status == TSR_END ? 0 : -1;
}

tsr_status tsr_loader_reset(tsr_loader *l)
{
    TSRI_TRY(check(__func__, l, l, ""));
    return l->ops->reset(l);
}

tsr_status tsr_loader_set_epoch(tsr_loader *l, int64_t epoch)
{
    TSRI_TRY(check(__func__, l, l, ""));
    if (epoch < 0)
        return tsri_fail(TSR_ERR_INVALID, "tsr_loader_set_epoch: the epoch is negative");
    return l->ops->set_epoch(l, epoch);
}

tsr_status tsr_loader_set_position(tsr_loader *l, int64_t position)
{
    TSRI_TRY(check(__func__, l, l, ""));
    const int64_t batches = l->ops->batches(l);
    if (position < 0 || (batches >= 0 && position > batches))
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_loader_set_position: %" PRId64 "; an epoch has %" PRId64 " batches",
                         position, batches);
    return l->ops->set_position(l, position);
}

int64_t tsr_loader_epoch(const tsr_loader *l)
{
    return tsri_is_live(l, TSRI_LIVE_LOADER, __func__) ? l->ops->epoch(l) : 0;
}

int64_t tsr_loader_batches(const tsr_loader *l)
{
    return tsri_is_live(l, TSRI_LIVE_LOADER, __func__) ? l->ops->batches(l) : 0;
}

int64_t tsr_loader_position(const tsr_loader *l)
{
    return tsri_is_live(l, TSRI_LIVE_LOADER, __func__) ? l->ops->position(l) : 0;
}

tsr_status tsr_loader_get_state(const tsr_loader *l, tsr_loader_state *out_state)
{
    TSRI_TRY(check(__func__, l, out_state, "out_state"));
    memset(out_state, 0, sizeof *out_state);
    out_state->size = sizeof *out_state;
    return l->ops->get_state(l, out_state);
}

tsr_status tsr_loader_set_state(tsr_loader *l, const tsr_loader_state *state)
{
    TSRI_TRY(check(__func__, l, state, "state"));
    if (state->size != sizeof *state || state->epoch < 0 || state->position < 0)
        return tsri_fail(TSR_ERR_INVALID, "tsr_loader_set_state: this is no loader's state");
    return l->ops->set_state(l, state);
}
