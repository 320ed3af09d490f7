/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_loader_feed: from the arrays of a batch to a plan's inputs. */
#include <inttypes.h>
#include <string.h>

#include "src/data/loader/feed.h"
#include "src/data/loader/map_loader.h"

tsr_status tsri_map_name_inputs(tsri_map_loader *l)
{
    static const char *const usual[] = {"x", "y"};
    const tsr_map_loader_opts *o = &l->spec.o;
    bool named = false;
    for (int f = 0; f < TSR_BATCH_MAX_FIELDS; f++)
        named |= o->inputs[f] != NULL;
    for (int f = 0; f < TSR_BATCH_MAX_FIELDS; f++) {
        const char *name = named ? o->inputs[f] : f < 2 ? usual[f] : NULL;
        if (name && !(l->inputs[f] = tsri_mem_strdup(l->mem, name)))
            return TSR_ERR_NO_MEMORY;
        l->spec.o.inputs[f] = NULL; /* the caller's */
    }
    return TSR_OK;
}

/* This rank's rows of a global batch, to an input that holds just these here. */
static tsr_status feed_own(const tsri_map_loader *l, tsr_plan *plan, const tsri_ir_port *port,
                           int f)
{
    const tsr_batch *b = &l->base.batch;
    tsri_rank_rows rows;
    if (tsri_feed_rows(port, plan->ir.world->rank, &rows) && port->info.shard.ndim > 0 &&
        port->info.shard.d[0] == b->rows)
        return tsr_feed_shard(plan, port->info.name, b->data[f], b->bytes[f]);
    return tsri_fail(TSR_ERR_SHAPE,
                     "tsr_loader_feed: this rank has %" PRId64 " rows of the batch, and input '%s' "
                     "does not hold as many here, split by rows (the loader's ranks are %d)",
                     b->rows, port->info.name, l->base.ranks);
}

static tsr_status feed_fields(const tsri_map_loader *l, tsr_plan *plan)
{
    const tsr_batch *b = &l->base.batch;
    for (int f = 0; f < b->nfields; f++) {
        tsri_ir_port *port;
        if (!l->inputs[f] && b->data[f])
            return tsri_fail(TSR_ERR_INVALID,
                             "tsr_loader_feed: which input takes field %d? (.inputs of "
                             "TSR_MAP_LOADER_OPTS; \"\": none)",
                             f);
        if (!b->data[f] || !l->inputs[f][0])
            continue;
        TSRI_TRY(tsri_feed_find(plan, l->inputs[f], &port));
        TSRI_TRY(l->base.ranks > 1 ? feed_own(l, plan, port, f)
                                   : tsr_feed(plan, l->inputs[f], b->data[f], b->bytes[f]));
    }
    return TSR_OK;
}

tsr_status tsri_map_feed(tsr_loader *loader, tsr_plan *plan)
{
    tsri_map_loader *l = tsri_map_of(loader);
    if (plan->ir.world->is_virtual)
        return tsri_fail(TSR_ERR_STATE, "tsr_loader_feed: a plan of a virtual world holds no data");
    TSRI_TRY(tsri_map_next(loader, &loader->batch));
    const tsr_status status = feed_fields(l, plan);
    l->is_back = status != TSR_OK;
    return status;
}
