/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors and values of a checkpoint's parts, as one list. */
#include "src/train/checkpoint/checkpoint.h"

#include "src/core/live.h"
#include "src/optim/state.h"

typedef struct listing {
    tsri_items *items;
    const tsri_part *part;
} listing;

static tsr_status add(tsri_items *items, tsri_item item)
{
    TSRI_NEED(item.name && TSRI_PUSH(items->pool, items->item, items->n, items->capacity));
    items->item[items->n++] = item;
    return TSR_OK;
}

static tsr_status add_variable(tsr_variable *v, const char *name, void *arg)
{
    const listing *l = arg;
    const tsri_item item = {
        .name = tsri_pool_printf(l->items->pool, "%s/%s", l->part->name, name),
        .part = l->part,
        .variable = v,
        .own = tsri_scope_is_local(v->scope),
    };
    return add(l->items, item);
}

/* States of a rank's own parameters live where these do: on the rank alone. */
static tsr_status add_state(tsr_variable *v, const char *name, void *arg)
{
    const listing *l = arg;
    TSRI_TRY(add_variable(v, name, arg));
    l->items->item[l->items->n - 1].own = tsri_optimizer_is_local(l->part->object);
    return TSR_OK;
}

static tsr_status add_value(const tsri_part *part, tsri_items *items)
{
    tsri_item item = {.part = part, .own = true, .may_lack = part->kind == TSRI_PART_EXPERIMENT};
    TSRI_TRY(tsri_part_get(part, items->pool, &item.bytes, &item.nbytes));
    item.name = part->kind == TSRI_PART_OPTIMIZER
                    ? tsri_pool_printf(items->pool, "%s/numbers", part->name)
                    : part->name;
    return item.bytes ? add(items, item) : TSR_OK;
}

static tsr_status check_live(const tsri_part *part)
{
    static const tsri_live_kind kinds[] = {
        [TSRI_PART_MODULE] = TSRI_LIVE_MODULE,
        [TSRI_PART_OPTIMIZER] = TSRI_LIVE_OPTIMIZER,
        [TSRI_PART_SCALER] = TSRI_LIVE_GRAD_SCALER,
        [TSRI_PART_LOADER] = TSRI_LIVE_LOADER,
        [TSRI_PART_SAMPLER] = TSRI_LIVE_SAMPLER,
        [TSRI_PART_BATCH_SAMPLER] = TSRI_LIVE_BATCH_SAMPLER,
        [TSRI_PART_GENERATOR] = TSRI_LIVE_GENERATOR,
    };
    return part->kind == TSRI_PART_BYTES || part->kind == TSRI_PART_EXPERIMENT
               ? TSR_OK
               : tsri_live_check(part->object, kinds[part->kind], part->name);
}

/* Gradients between two updates are saved where there are any; a file has them or not. */
static tsr_status add_mean(tsr_variable *v, const char *name, void *arg)
{
    const listing *l = arg;
    TSRI_TRY(add_state(v, name, arg));
    l->items->item[l->items->n - 1].may_lack = true;
    return TSR_OK;
}

static tsr_status add_optimizer(listing *l, bool to_save)
{
    tsr_optimizer *o = l->part->object;
    TSRI_TRY(tsri_optimizer_visit_states(o, add_state, l));
    return to_save && !tsri_optimizer_is_between(o) ? TSR_OK
                                                    : tsri_optimizer_visit_means(o, add_mean, l);
}

tsr_status tsri_ckpt_items(tsr_checkpoint *c, bool to_save, tsri_pool *pool, tsri_items *out_items)
{
    *out_items = (tsri_items){.pool = pool};
    for (int i = 0; i < c->nparts; i++) {
        const tsri_part *part = &c->parts[i];
        listing l = {.items = out_items, .part = part};
        TSRI_TRY(check_live(part));
        if (part->kind == TSRI_PART_MODULE)
            TSRI_TRY(tsr_module_visit(part->object, add_variable, &l));
        if (part->kind == TSRI_PART_OPTIMIZER)
            TSRI_TRY(add_optimizer(&l, to_save));
        TSRI_TRY(add_value(part, out_items));
    }
    return TSR_OK;
}
