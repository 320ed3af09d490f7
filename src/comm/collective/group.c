/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of a world's collectives: its groups, and the memory that peers can read. */
#include "src/comm/collective/side.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "src/core/live.h"
#include "src/core/thread.h"

/* --- memory ----------------------------------------------------------------------------------- */

typedef struct block {
    void *ptr;
    size_t bytes;
    tsri_device *device; /* NULL: the host's memory */
} block;

static int by_address(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const block *)a)->ptr, y = (uintptr_t)((const block *)b)->ptr;
    return x < y ? -1 : x > y;
}

static tsr_status take(tsri_engine *engine, block *b)
{
    return b->device ? b->device->ops->buffer_alloc(b->device, b->bytes ? b->bytes : 1, &b->ptr)
                     : tsri_region_take(engine, b->bytes, &b->ptr);
}

static void give(tsr_world *world, block *b)
{
    if (b->device)
        b->device->ops->buffer_free(b->device, b->ptr, b->bytes ? b->bytes : 1);
    else
        tsri_region_free(&world->region, b->ptr, b->bytes);
    tsri_mem_free(b);
}

static tsr_status alloc(tsr_world *world, tsri_device *device, size_t bytes, void **out_ptr)
{
    tsri_engine *engine = NULL;
    TSRI_TRY(tsri_engine_of(world, &engine));
    block *b = tsri_mem_alloc(&world->mem, sizeof *b);
    TSRI_NEED(b);
    *b = (block){.bytes = bytes, .device = device};
    tsr_status status = take(engine, b);
    if (status != TSR_OK) {
        tsri_mem_free(b);
        return status;
    }
    if (!tsearch(b, &engine->blocks, by_address)) {
        give(world, b);
        return tsri_fail(TSR_ERR_NO_MEMORY, "tsr_alloc: no host memory for its books");
    }
    *out_ptr = b->ptr;
    return TSR_OK;
}

tsr_status tsr_alloc(tsr_world *world, size_t bytes, void **out_ptr)
{
    return out_ptr ? alloc(world, NULL, bytes, out_ptr)
                   : tsri_fail(TSR_ERR_INVALID, "tsr_alloc: out_ptr is NULL");
}

tsr_status tsr_alloc_on(tsr_world *world, tsr_device kind, size_t bytes, void **out_ptr)
{
    tsri_engine *engine;
    tsri_device *device = NULL;
    if (!out_ptr)
        return tsri_fail(TSR_ERR_INVALID, "tsr_alloc_on: out_ptr is NULL");
    if (!tsri_target_of(kind))
        return tsri_fail(TSR_ERR_INVALID, "tsr_alloc_on: there is no device %d", (int)kind);
    TSRI_TRY(tsri_engine_of(world, &engine)); /* which outlives the device */
    if (!tsri_target_can(kind, TSRI_CAN_HOST_MEMORY))
        TSRI_TRY(tsri_device_get(world, kind, &device));
    return alloc(world, device, bytes, out_ptr);
}

void tsr_free(tsr_world *world, void *ptr)
{
    if (!ptr || !tsri_is_live(world, TSRI_LIVE_WORLD, __func__))
        return;
    tsri_engine *engine = world->collectives;
    const block key = {.ptr = ptr};
    block **found = engine ? (block **)tfind(&key, &engine->blocks, by_address) : NULL;
    if (!found) {
        tsri_log(world, TSR_LOG_WARNING, "tsr_free: %p is no memory of tsr_alloc; left as it is",
                 ptr);
        return;
    }
    block *b = *found;
    tdelete(b, &engine->blocks, by_address);
    give(world, b);
}

/* Blocks on a device go with it. */
static void free_blocks(tsri_engine *engine)
{
    while (engine->blocks) {
        block *b = *(block **)engine->blocks;
        tdelete(b, &engine->blocks, by_address);
        if (b->device)
            tsri_mem_free(b);
        else
            give(engine->world, b);
    }
}

tsr_status tsr_copy(tsr_world *world, void *dst, const void *src, size_t bytes)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    if (!world || (bytes && (!dst || !src)))
        return tsri_fail(TSR_ERR_INVALID, "tsr_copy: %s is NULL",
                         !world ? "the world"
                         : !dst ? "dst"
                                : "src");
    if (bytes > PTRDIFF_MAX)
        return tsri_fail(TSR_ERR_INVALID, "tsr_copy: no memory has %zu bytes", bytes);
    tsri_device *to = tsri_device_of_memory(world, dst), *from = tsri_device_of_memory(world, src);
    if (!bytes)
        return TSR_OK;
    if (to && from)
        return tsri_side_move(to, dst, src, bytes, to->stream);
    if (to)
        return to->ops->copy_in(to, dst, src, bytes, to->stream);
    if (from)
        return from->ops->copy_out(from, dst, src, bytes, from->stream);
    memmove(dst, src, bytes);
    return TSR_OK;
}

/* Waits for the sides' streams too: compute follows those alone whose work was waited for. */
static tsr_status sync_sides(tsr_group *g)
{
    for (const tsri_side *s = g->sides; s; s = s->next) {
        TSRI_TRY(tsri_group_check(g));
        for (tsri_side_call *c = s->first; c; c = c->next)
            TSRI_TRY(tsri_side_finish(c));
        TSRI_TRY(s->device->ops->stream_sync(s->device, s->stream));
    }
    return TSR_OK;
}

tsr_status tsr_sync(tsr_world *world)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    if (!world)
        return tsri_fail(TSR_ERR_INVALID, "tsr_sync: the world is NULL");
    const tsri_engine *engine = world->collectives;
    for (tsr_group *g = engine ? engine->groups : NULL; g; g = g->next)
        TSRI_TRY(sync_sides(g));
    for (int k = 1; k < TSRI_DEVICES; k++) {
        tsri_device *d = world->devices[k];
        if (!d || !tsri_target_can((tsr_device)k, TSRI_CAN_QUEUE))
            continue;
        TSRI_TRY(d->ops->stream_sync(d, d->stream));
        TSRI_TRY(tsri_device_poll(d));
    }
    return TSR_OK;
}

/* --- the engine ------------------------------------------------------------------------------- */

tsr_status tsri_engine_create(tsr_world *world, tsri_comm *comm, tsri_engine **out_engine)
{
    tsri_engine *e = tsri_mem_alloc(&world->mem, sizeof *e);
    TSRI_NEED(e);
    e->world = world;
    e->comm = comm;
    pthread_mutex_init(&e->lock, NULL);
    *out_engine = e;
    return TSR_OK;
}

static void free_group(tsr_group *g)
{
    while (g->sides)
        tsri_side_destroy(g->sides);
    tsri_work_close(g);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    tsri_live_free(g, TSRI_LIVE_GROUP);
}

void tsri_engine_destroy(tsri_engine *engine)
{
    if (!engine)
        return;
    while (engine->groups) {
        tsr_group *next = engine->groups->next;
        free_group(engine->groups);
        engine->groups = next;
    }
    if (TSRI_COMM_HAS(engine->comm, leave))
        engine->comm->ops->leave(engine->comm);
    tsri_paths_free(engine);
    free_blocks(engine);
    if (engine->owns_comm)
        engine->comm->ops->destroy(engine->comm);
    pthread_mutex_destroy(&engine->lock);
    tsri_mem_free(engine);
}

static void destroy_owned(void *object)
{
    tsri_engine *engine = object;
    tsr_world *world = engine->world;
    tsri_engine_destroy(engine);
    world->collectives = NULL;
}

tsr_status tsri_engine_of(tsr_world *world, tsri_engine **out_engine)
{
    if (!world)
        return tsri_fail(TSR_ERR_INVALID, "a collective in no world (did its creation fail?)");
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, "a collective"));
    if (world->is_virtual)
        return tsri_fail(TSR_ERR_STATE, "a collective in a virtual world: its ranks do not exist");
    if (world->collectives) {
        *out_engine = world->collectives;
        return TSR_OK;
    }
    tsri_comm *comm = world->comm, *twin;
    tsri_engine *e;
    if (!TSRI_COMM_HAS(comm, twin))
        return tsri_fail(TSR_ERR_UNSUPPORTED,
                         "the communicator '%s' has no collectives for "
                         "per-rank buffers",
                         comm->ops->name);
    TSRI_TRY(comm->ops->twin(comm, &twin));
    tsr_status status = tsri_engine_create(world, twin, &e);
    if (status != TSR_OK) {
        twin->ops->destroy(twin);
        return status;
    }
    e->owns_comm = true;
    tsri_world_own_last(world, &e->owned, e, destroy_owned);
    world->collectives = e;
    *out_engine = e;
    return TSR_OK;
}

/* --- groups ----------------------------------------------------------------------------------- */

tsr_status tsri_engine_group(tsri_engine *engine, int nranks, const int *ranks,
                             tsr_group **out_group)
{
    int index;
    TSRI_TRY(tsri_ranks_check(engine->world, nranks, ranks, "makes", &index));
    size_t bytes = (size_t)nranks * sizeof *ranks;
    for (tsr_group *g = engine->groups; g; g = g->next) {
        if (g->nranks == nranks && !memcmp(g->ranks, ranks, bytes)) {
            *out_group = g;
            return TSR_OK;
        }
    }
    tsri_group *inner = NULL;
    if (nranks > 1) {
        pthread_mutex_lock(&engine->lock);
        tsr_status status = engine->comm->ops->group(engine->comm, nranks, ranks, 0, &inner);
        pthread_mutex_unlock(&engine->lock);
        TSRI_TRY(status);
    }
    tsr_group *g = tsri_live_alloc(&engine->world->mem, sizeof *g + bytes, TSRI_LIVE_GROUP);
    TSRI_NEED(g);
    g->engine = engine;
    g->inner = inner;
    g->nranks = nranks;
    g->index = index;
    g->ranks = (int *)(g + 1);
    memcpy(g->ranks, ranks, bytes);
    g->queue.group = g->sends.group = g;
    g->key = tsri_ranks_hash((uint64_t)nranks, nranks, ranks);
    tsri_cond_init(&g->changed);
    pthread_mutex_init(&g->lock, NULL);
    g->next = engine->groups;
    engine->groups = g;
    *out_group = g;
    return TSR_OK;
}

tsr_status tsr_group_create(tsr_world *world, int nranks, const int *ranks, tsr_group **out_group)
{
    tsri_engine *engine = NULL;
    if (!out_group)
        return tsri_fail(TSR_ERR_INVALID, "tsr_group_create: out_group is NULL");
    TSRI_TRY(tsri_engine_of(world, &engine));
    return tsri_engine_group(engine, nranks, ranks, out_group);
}

tsr_group *tsr_world_group(tsr_world *world)
{
    tsr_group *g = NULL;
    tsri_engine *engine = NULL;
    if (tsri_engine_of(world, &engine) != TSR_OK)
        return NULL;
    int *ranks = tsri_mem_alloc(&world->mem, (size_t)world->nranks * sizeof *ranks);
    if (!ranks)
        return NULL;
    for (int i = 0; i < world->nranks; i++)
        ranks[i] = i;
    if (tsri_engine_group(engine, world->nranks, ranks, &g) != TSR_OK)
        g = NULL;
    tsri_mem_free(ranks);
    return g;
}

int tsr_group_size(const tsr_group *group)
{
    return tsri_is_live(group, TSRI_LIVE_GROUP, __func__) ? group->nranks : 0;
}

int tsr_group_rank(const tsr_group *group)
{
    return tsri_is_live(group, TSRI_LIVE_GROUP, __func__) ? group->index : -1;
}

int tsr_group_world_rank(const tsr_group *group, int index)
{
    return tsri_is_live(group, TSRI_LIVE_GROUP, __func__) && index >= 0 && index < group->nranks
               ? group->ranks[index]
               : -1;
}

tsr_status tsr_group_set_label(tsr_group *group, const char *label)
{
    TSRI_TRY(tsri_live_check(group, TSRI_LIVE_GROUP, __func__));
    if (!group)
        return tsri_fail(TSR_ERR_INVALID, "tsr_group_set_label: the group is NULL");
    size_t n = label ? strlen(label) : 0;
    if (n >= sizeof group->label)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_group_set_label: '%.80s' has %zu bytes; expected at most %zu", label,
                         n, sizeof group->label - 1);
    memcpy(group->label, label ? label : "", n + 1);
    return TSR_OK;
}
