/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that a program adds to a checkpoint, and their values as bytes. */
#include "src/train/checkpoint/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/core/foreign.h"
#include "src/core/live.h"
#include "src/core/opts.h"
#include "src/core/text_stream.h"
#include "src/nn/safetensors_text.h"
#include "src/optim/scaler.h"
#include "src/optim/state.h"

enum { MAX_NAME = 200 };

/* --- the object ------------------------------------------------------------------------------- */
static void destroy(void *object)
{
    tsr_checkpoint *c = object;
    tsri_world_disown(&c->owned);
    if (tsri_ckpt_join(c) != TSR_OK)
        tsri_log(c->world, TSR_LOG_WARNING, "tsr_checkpoint_destroy: the last save has failed: %s",
                 tsr_last_error());
    if (c->lock_fd >= 0)
        close(c->lock_fd);
    tsri_mem_free(c->copies);
    tsri_pool_finish(&c->pool);
    tsri_live_free(c, TSRI_LIVE_CHECKPOINT);
}

void tsr_checkpoint_destroy(tsr_checkpoint *c)
{
    if (tsri_is_live(c, TSRI_LIVE_CHECKPOINT, __func__))
        destroy(c);
}

tsr_status tsr_checkpoint_create(tsr_world *world, const char *folder,
                                 const tsr_checkpoint_opts *opts, tsr_checkpoint **out_checkpoint)
{
    tsr_checkpoint_opts o = *TSR_CHECKPOINT_OPTS();
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    if (!world || !out_checkpoint || !folder || !folder[0])
        return tsri_fail(TSR_ERR_INVALID, "tsr_checkpoint_create: %s",
                         !world            ? "the world is NULL"
                         : !out_checkpoint ? "out_checkpoint is NULL"
                         : !folder         ? "the folder is NULL"
                                           : "the folder is empty");
    if (world->is_virtual)
        return tsri_fail(TSR_ERR_STATE, "tsr_checkpoint_create: a virtual world has no data");
    TSRI_TRY(tsri_opts_read(&o, sizeof o, opts, __func__));
    if (o.keep < 0)
        return tsri_fail(TSR_ERR_INVALID, "tsr_checkpoint_create: keep is %d; it is at least 0",
                         o.keep);
    tsr_checkpoint *c = tsri_live_alloc(&world->mem, sizeof *c, TSRI_LIVE_CHECKPOINT);
    TSRI_NEED(c);
    c->world = world;
    c->opts = o;
    c->lock_fd = -1;
    tsri_pool_init(&c->pool, &world->mem);
    c->folder = tsri_pool_strdup(&c->pool, folder);
    if (!c->folder) {
        tsri_pool_finish(&c->pool);
        tsri_live_free(c, TSRI_LIVE_CHECKPOINT);
        return TSR_ERR_NO_MEMORY;
    }
    tsri_world_own(world, &c->owned, c, destroy);
    *out_checkpoint = c;
    return TSR_OK;
}

/* --- adding ----------------------------------------------------------------------------------- */
static tsr_status add(tsr_checkpoint *c, const char *name, tsri_part part, const char *who)
{
    TSRI_TRY(tsri_live_check(c, TSRI_LIVE_CHECKPOINT, who));
    if (!c || !name || (!part.object && !part.text))
        return tsri_fail(TSR_ERR_INVALID, "%s: the %s is NULL%s", who,
                         !c      ? "checkpoint"
                         : !name ? "name"
                                 : "part",
                         c && name ? tsri_error_cause() : "");
    if (!name[0] || strlen(name) > MAX_NAME || strpbrk(name, "/@\n") ||
        !tsri_utf8_valid(name, strlen(name)))
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: '%.200s': a part's name has 1 to %d bytes of UTF-8, without '/', '@' "
                         "and ends of lines",
                         who, name, MAX_NAME);
    for (int i = 0; i < c->nparts; i++)
        if (!strcmp(c->parts[i].name, name))
            return tsri_fail(TSR_ERR_INVALID, "%s: there is a part '%s' already", who, name);
    part.name = tsri_pool_strdup(&c->pool, name);
    TSRI_NEED(part.name && TSRI_PUSH(&c->pool, c->parts, c->nparts, c->capacity));
    c->parts[c->nparts++] = part;
    return TSR_OK;
}

tsr_status tsr_checkpoint_remove(tsr_checkpoint *c, const char *name)
{
    TSRI_TRY(tsri_live_check(c, TSRI_LIVE_CHECKPOINT, __func__));
    if (!c || !name)
        return tsri_fail(TSR_ERR_INVALID, "tsr_checkpoint_remove: the %s is NULL",
                         c ? "name" : "checkpoint");
    for (int i = 0; i < c->nparts; i++)
        if (!strcmp(c->parts[i].name, name)) {
            c->nparts--;
            memmove(&c->parts[i], &c->parts[i + 1], (size_t)(c->nparts - i) * sizeof *c->parts);
            return TSR_OK;
        }
    return tsri_fail(TSR_ERR_INVALID, "tsr_checkpoint_remove: there is no part '%.200s'", name);
}

/* X(function, type, KIND, LIVE): the calls that add an object. */
#define ADDERS(X)                                                     \
    X(module, tsr_module, MODULE, MODULE)                             \
    X(optimizer, tsr_optimizer, OPTIMIZER, OPTIMIZER)                 \
    X(grad_scaler, tsr_grad_scaler, SCALER, GRAD_SCALER)              \
    X(loader, tsr_loader, LOADER, LOADER)                             \
    X(sampler, tsr_sampler, SAMPLER, SAMPLER)                         \
    X(batch_sampler, tsr_batch_sampler, BATCH_SAMPLER, BATCH_SAMPLER) \
    X(generator, tsr_generator, GENERATOR, GENERATOR)
#define ADDER(function, type, KIND, LIVE)                                                       \
    tsr_status tsr_checkpoint_add_##function(tsr_checkpoint *c, const char *name, type *object) \
    {                                                                                           \
        TSRI_TRY(tsri_live_check(object, TSRI_LIVE_##LIVE, __func__));                          \
        return add(c, name, (tsri_part){.kind = TSRI_PART_##KIND, .object = object}, __func__); \
    }
ADDERS(ADDER)

tsr_status tsr_checkpoint_add_bytes(tsr_checkpoint *c, const char *name, void *data, size_t bytes)
{
    return add(c, name, (tsri_part){.kind = TSRI_PART_BYTES, .object = data, .bytes = bytes},
               __func__);
}

tsr_status tsri_checkpoint_add_experiment(tsr_checkpoint *c, const char *name, const char *text,
                                          tsri_ckpt_resume_fn *resume, void *arg)
{
    const tsri_part part = {
        .kind = TSRI_PART_EXPERIMENT, .text = text, .resume = resume, .arg = arg};
    return add(c, name, part, __func__);
}

/* --- values out ------------------------------------------------------------------------------- */
static tsr_status get_text(tsri_pool *pool, const char *text, char **out_bytes, size_t *out_n)
{
    *out_n = strlen(text);
    *out_bytes = tsri_pool_dup(pool, text, *out_n + 1);
    return *out_bytes ? TSR_OK : TSR_ERR_NO_MEMORY;
}

static tsr_status get_numbers(const tsri_part *part, tsri_pool *pool, char **out_bytes,
                              size_t *out_n)
{
    tsri_text_stream t;
    tsr_status status = TSR_OK;
    if (!tsri_text_open(&t, pool->mem))
        return TSR_ERR_NO_MEMORY;
    if (part->kind == TSRI_PART_SCALER)
        status = tsri_scaler_put(part->object, t.stream);
    else
        tsri_optimizer_put_numbers(part->object, t.stream);
    char error[600] = "";
    if (status != TSR_OK)
        snprintf(error, sizeof error, "%s", tsr_last_error());
    char *text = tsri_text_close(&t, NULL);
    if (status != TSR_OK)
        status = tsri_fail(status, "%s", error);
    else if (!text || get_text(pool, text, out_bytes, out_n) != TSR_OK)
        status = tsri_fail(TSR_ERR_NO_MEMORY, "no memory for the numbers of part '%s'", part->name);
    free(text);
    return status;
}

tsr_status tsri_part_get(const tsri_part *part, tsri_pool *pool, char **out_bytes, size_t *out_n)
{
    union {
        tsr_sampler_state sampler;
        tsr_loader_state loader;
        unsigned char generator[TSR_GENERATOR_STATE_BYTES];
    } state;
    memset(&state, 0, sizeof state);
    const void *from = &state;
    *out_bytes = NULL;
    *out_n = 0;
    switch (part->kind) {
    case TSRI_PART_OPTIMIZER:
    case TSRI_PART_SCALER:
        return get_numbers(part, pool, out_bytes, out_n);
    case TSRI_PART_LOADER:
        TSRI_TRY(tsr_loader_get_state(part->object, &state.loader));
        *out_n = sizeof state.loader;
        break;
    case TSRI_PART_SAMPLER:
        TSRI_TRY(tsr_sampler_get_state(part->object, &state.sampler));
        *out_n = sizeof state.sampler;
        break;
    case TSRI_PART_BATCH_SAMPLER:
        TSRI_TRY(tsr_batch_sampler_get_state(part->object, &state.sampler));
        *out_n = sizeof state.sampler;
        break;
    case TSRI_PART_GENERATOR:
        TSRI_TRY(tsr_generator_get_state(part->object, state.generator));
        *out_n = sizeof state.generator;
        break;
    case TSRI_PART_BYTES:
        from = part->object;
        *out_n = part->bytes;
        break;
    case TSRI_PART_EXPERIMENT:
        return get_text(pool, part->text, out_bytes, out_n);
    case TSRI_PART_MODULE:
        return TSR_OK;
    }
    *out_bytes = tsri_pool_dup(pool, from, *out_n);
    return *out_bytes ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* --- values in -------------------------------------------------------------------------------- */
/* Puts a loader, which may have another number of ranks, seed or order, after as many batches of
 * the same epoch. */
static tsr_status move_loader(tsr_loader *l, const tsr_loader_state *from)
{
    tsr_loader_state before;
    TSRI_TRY(tsr_loader_get_state(l, &before));
    tsr_status status = tsr_loader_set_epoch(l, from->epoch);
    if (status == TSR_OK)
        status = tsr_loader_set_position(l, from->position);
    if (status == TSR_OK)
        return TSR_OK;
    char text[400];
    snprintf(text, sizeof text, "%s", tsr_last_error());
    TSRI_TRY(tsr_loader_set_state(l, &before));
    return tsri_fail(status, "%s", text);
}

tsr_status tsri_part_set(const tsri_part *part, tsri_pool *pool, const char *bytes, size_t n,
                         bool moved, bool program_wins)
{
    static const size_t sizes[] = {
        [TSRI_PART_LOADER] = sizeof(tsr_loader_state),
        [TSRI_PART_SAMPLER] = sizeof(tsr_sampler_state),
        [TSRI_PART_BATCH_SAMPLER] = sizeof(tsr_sampler_state),
        [TSRI_PART_GENERATOR] = TSR_GENERATOR_STATE_BYTES,
        [TSRI_PART_BYTES] = 0,
    };
    if (part->kind == TSRI_PART_EXPERIMENT)
        return TSR_OK; /* its function has it */
    const size_t size = part->kind == TSRI_PART_BYTES ? part->bytes : sizes[part->kind];
    const bool is_text = part->kind == TSRI_PART_OPTIMIZER || part->kind == TSRI_PART_SCALER;
    if (!is_text && n != size)
        return tsri_fail(TSR_ERR_INVALID, "it has %zu bytes in the checkpoint, %zu here", n, size);
    char *copy = tsri_pool_alloc(pool, n + 1); /* aligned, and ended by a NUL */
    TSRI_NEED(copy);
    memcpy(copy, bytes, n);
    void *state = copy;
    switch (part->kind) {
    case TSRI_PART_OPTIMIZER:
        return tsri_optimizer_take_numbers(part->object, copy, program_wins);
    case TSRI_PART_SCALER:
        return tsri_scaler_take(part->object, copy, program_wins);
    case TSRI_PART_LOADER:
        return moved || program_wins ? move_loader(part->object, state)
                                     : tsr_loader_set_state(part->object, state);
    case TSRI_PART_SAMPLER:
        return tsr_sampler_set_state(part->object, state);
    case TSRI_PART_BATCH_SAMPLER:
        return tsr_batch_sampler_set_state(part->object, state);
    case TSRI_PART_GENERATOR:
        return tsr_generator_set_state(part->object, state);
    case TSRI_PART_BYTES:
        memcpy(part->object, copy, n);
        return TSR_OK;
    case TSRI_PART_MODULE:
    case TSRI_PART_EXPERIMENT:
        break;
    }
    return TSR_OK;
}
