/* SPDX-License-Identifier: Apache-2.0 */
/* Feeding inputs and fetching outputs. */
#include <stdio.h>
#include <string.h>

#include "src/core/convert.h"
#include "src/core/live.h"
#include "src/exec/finite.h"
#include "src/graph/variable.h"

static tsr_status find_port(tsr_plan *plan, const char *call, const char *name, bool input,
                            tsri_ir_port **out_port)
{
    if (!plan || !name)
        return tsri_fail(TSR_ERR_INVALID, "%s: no plan or no name", call);
    TSRI_TRY(tsri_live_check(plan, TSRI_LIVE_PLAN, call));
    if (plan->ir.world->is_virtual)
        return tsri_fail(TSR_ERR_STATE, "%s: a plan of a virtual world holds no data", call);
    char list[512] = "";
    for (int i = 0; i < plan->ir.nports; i++) {
        tsri_ir_port *p = &plan->ir.ports[i];
        if (p->info.is_input != input)
            continue;
        if (!strcmp(p->info.name, name)) {
            *out_port = p;
            return TSR_OK;
        }
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s'%s'", n ? ", " : "", p->info.name);
    }
    return tsri_fail(TSR_ERR_INVALID, "%s: no %s is named '%s'; there %s %s", call,
                     input ? "input" : "output", name, list[0] ? "are" : "is",
                     list[0] ? list : "none");
}

static tsr_status check_bytes(const char *call, const tsri_ir_port *p, size_t got, size_t want)
{
    if (got == want)
        return TSR_OK;
    return tsri_fail(TSR_ERR_SHAPE, "%s: '%s' has %zu bytes (%s), not %zu", call, p->info.name,
                     want, tsr_dtype_name(p->info.dtype), got);
}

static bool is_here(const tsr_plan *plan, const tsri_ir_port *p)
{
    return tsr_placement_find(p->info.placement, plan->ir.world->rank) >= 0;
}

/* Whether this rank is the first of its groups over the dimensions of a kind. */
static bool is_first_over(const tsr_plan *plan, const tsri_ir_port *p, tsr_sbp1 kind)
{
    int at = tsr_placement_find(p->info.placement, plan->ir.world->rank);
    for (int d = p->info.sbp.ndim - 1; d >= 0; d--) {
        int k = tsr_placement_dim(p->info.placement, d);
        tsr_sbp1 s = p->info.sbp.d[d];
        if (s.kind == kind.kind && s.arg == kind.arg && at % k != 0)
            return false;
        at /= k;
    }
    return true;
}

/* The first rank of a group keeps a global value that is fed in P(sum). */
static bool keeps_sum(const tsr_plan *plan, const tsri_ir_port *p)
{
    return is_first_over(plan, p, (tsr_sbp1){TSR_SBP_PARTIAL, TSR_REDUCE_SUM});
}

/* --- what was fed ----------------------------------------------------------------------------- */
void tsri_plan_note_inputs(tsr_plan *plan)
{
    for (int i = 0; i < plan->ir.nitems; i++) {
        const tsri_item *it = &plan->ir.items[i];
        for (int j = 0; j < it->nin && it->kind != TSRI_ITEM_DEAD; j++) {
            const tsri_value *v = &plan->ir.values[it->in[j]];
            if (v->storage == TSRI_STORAGE_PORT && v->port >= 0)
                plan->ir.ports[v->port].must_feed = true;
        }
    }
    for (int i = 0; i < plan->ir.nports; i++) {
        tsri_ir_port *p = &plan->ir.ports[i];
        bool gives = !p->from_local || is_first_over(plan, p, (tsr_sbp1){TSR_SBP_BROADCAST, 0});
        p->must_feed &= p->info.is_input && p->bytes > 0 && gives;
        plan->nunfed += p->must_feed;
    }
}

void tsri_plan_note_fed(tsr_plan *plan, tsri_ir_port *p)
{
    plan->nunfed -= p->must_feed && !p->fed;
    p->fed = true;
}

/* Whether outputs can be read. */
static tsr_status check_ran(const tsr_plan *plan, const char *call, const char *name)
{
    if (plan->has_results)
        return TSR_OK;
    return tsri_fail(TSR_ERR_STATE, "%s: output '%s' has no value: %s", call, name,
                     plan->failure[0]       ? plan->failure
                     : plan->info.runs == 0 ? "the plan has not run yet; call tsr_run first"
                                            : "the plan's last run failed");
}

/* Whether every rank holds the whole value. */
static bool is_whole(const tsri_ir_port *p)
{
    for (int d = 0; d < p->info.sbp.ndim; d++)
        if (p->info.sbp.d[d].kind != TSR_SBP_BROADCAST &&
            tsr_placement_dim(p->info.placement, d) > 1)
            return false;
    return true;
}

static tsri_device *device_of(const tsr_plan *plan, const tsri_ir_port *p)
{
    return plan->part[tsr_placement_device(p->info.placement)].device;
}

/* Waits for the runs so far; their errors surface here. */
static tsr_status read_port(tsr_plan *plan, const tsri_ir_port *p, void *data, size_t bytes)
{
    tsri_device *d = device_of(plan, p);
    if (!d || !bytes)
        return TSR_OK;
    tsr_status status = d->ops->copy_out(d, data, p->ptr, bytes, d->stream);
    if (status != TSR_OK)
        return tsri_plan_fail(plan, status);
    TSRI_TRY(tsri_plan_poll(plan));
    return p->is_loss ? tsri_finite_fetched(plan, p, data) : TSR_OK;
}

/* The conversion from the global value to this rank's part: a slice, a copy, or nothing. */
static tsr_status take_part(tsr_plan *plan, tsri_ir_port *p, const void *data)
{
    tsri_local_box box = {.dtype = p->info.dtype, .ndim = p->info.dims.ndim, .copy = true};
    tsr_dims shard;
    int64_t offset[TSR_MAX_NDIM], src = 1, dst = 1, runs;
    tsri_shard(p->info.dims, p->info.placement, p->info.sbp, plan->ir.world->rank, &shard, offset);
    tsri_shard_runs(p->info.dims, shard, &runs);
    for (int i = box.ndim - 1; i >= 0; i--) {
        box.box[i] = shard.d[i];
        box.src_stride[i] = src;
        box.dst_stride[i] = dst;
        box.src_offset += offset[i] * src;
        src *= p->info.dims.d[i];
        dst *= shard.d[i];
    }
    box.dst_count = tsr_dims_count(shard);
    if (!keeps_sum(plan, p)) {
        box.copy = false; /* the first rank of a group holds the value, the others nothing */
        box.fill = true;
    }
    if (!p->bytes)
        return TSR_OK;
    tsri_device *d = device_of(plan, p);
    if (!d->ops->move) {
        tsri_local_box_run(&box, data, p->ptr);
        return TSR_OK;
    }
    /* On a device: as it is where it is one run of the value, else gathered on the host first. */
    if (box.copy && runs == 1)
        return d->ops->copy_in(
            d, p->ptr, (const char *)data + (size_t)box.src_offset * tsr_dtype_size(box.dtype),
            p->bytes, d->stream);
    if (!p->staging && !(p->staging = tsri_pool_alloc(&plan->pool, p->bytes)))
        return TSR_ERR_NO_MEMORY;
    tsri_local_box_run(&box, data, p->staging);
    return d->ops->copy_in(d, p->ptr, p->staging, p->bytes, d->stream);
}

tsr_status tsr_feed(tsr_plan *plan, const char *name, const void *data, size_t bytes)
{
    tsri_ir_port *p;
    TSRI_TRY(find_port(plan, "feed", name, true, &p));
    TSRI_TRY(check_bytes("feed", p, bytes,
                         (size_t)tsr_dims_count(p->info.dims) * tsr_dtype_size(p->info.dtype)));
    if (!data && bytes)
        return tsri_fail(TSR_ERR_INVALID, "feed: no data for '%s'", name);
    if (!is_here(plan, p))
        return TSR_OK;
    TSRI_TRY(take_part(plan, p, data));
    tsri_plan_note_fed(plan, p);
    return TSR_OK;
}

tsr_status tsr_feed_shard(tsr_plan *plan, const char *name, const void *data, size_t bytes)
{
    tsri_ir_port *p;
    TSRI_TRY(find_port(plan, "feed_shard", name, true, &p));
    TSRI_TRY(check_bytes("feed_shard", p, bytes, p->bytes));
    if (!data && bytes)
        return tsri_fail(TSR_ERR_INVALID, "feed_shard: no data for '%s'", name);
    tsri_device *d = device_of(plan, p);
    if (!p->bytes)
        return TSR_OK;
    TSRI_TRY(d->ops->copy_in(d, p->ptr, data, bytes, d->stream));
    tsri_plan_note_fed(plan, p);
    return TSR_OK;
}

tsr_status tsr_fetch(tsr_plan *plan, const char *name, void *data, size_t bytes)
{
    tsri_ir_port *p;
    char text[TSR_SBP_TEXT_MAX];
    TSRI_TRY(find_port(plan, "fetch", name, false, &p));
    if (!is_here(plan, p))
        return tsri_fail(TSR_ERR_PLACEMENT, "fetch: '%s' lives on %s, of which rank %d is no part",
                         name, tsr_placement_text(p->info.placement), plan->ir.world->rank);
    if (!is_whole(p))
        return tsri_fail(TSR_ERR_SBP,
                         "fetch: '%s' is an output in %s: use tsr_fetch_shard, or declare it in B",
                         name, tsr_sbp_format(p->info.sbp, text));
    TSRI_TRY(check_bytes("fetch", p, bytes, p->bytes));
    if (!data && bytes)
        return tsri_fail(TSR_ERR_INVALID, "fetch: no room for '%s'", name);
    TSRI_TRY(check_ran(plan, "fetch", name));
    return read_port(plan, p, data, bytes);
}

tsr_status tsr_fetch_shard(tsr_plan *plan, const char *name, void *data, size_t bytes,
                           tsr_dims *out_dims)
{
    tsri_ir_port *p;
    TSRI_TRY(find_port(plan, "fetch_shard", name, false, &p));
    if (data && !is_here(plan, p))
        return tsri_fail(TSR_ERR_PLACEMENT,
                         "fetch_shard: '%s' lives on %s, of which rank %d is no part", name,
                         tsr_placement_text(p->info.placement), plan->ir.world->rank);
    if (data) {
        TSRI_TRY(check_bytes("fetch_shard", p, bytes, p->bytes));
        TSRI_TRY(check_ran(plan, "fetch_shard", name));
        TSRI_TRY(read_port(plan, p, data, bytes));
    }
    if (out_dims)
        *out_dims = p->info.shard;
    return TSR_OK;
}

tsr_status tsr_fetch_scalar(tsr_plan *plan, const char *name, double *out_value)
{
    tsri_ir_port *p;
    TSRI_TRY(find_port(plan, "fetch_scalar", name, false, &p));
    if (!out_value)
        return tsri_fail(TSR_ERR_INVALID, "fetch_scalar: no room for '%s'", name);
    if (tsr_dims_count(p->info.dims) != 1)
        return tsri_fail(TSR_ERR_SHAPE, "fetch_scalar: '%s' is not a scalar", name);
    union {
        char bytes[8];
        int64_t i64;
        int32_t i32;
        uint8_t u8;
    } value;
    TSRI_TRY(tsr_fetch(plan, name, &value, tsr_dtype_size(p->info.dtype)));
    switch (p->info.dtype) {
    case TSR_DTYPE_I64:
        *out_value = (double)value.i64;
        return TSR_OK;
    case TSR_DTYPE_I32:
        *out_value = (double)value.i32;
        return TSR_OK;
    case TSR_DTYPE_U8:
    case TSR_DTYPE_BOOL:
        *out_value = (double)value.u8;
        return TSR_OK;
    default:
        return tsri_convert(out_value, TSR_F64, value.bytes, p->info.dtype, 1);
    }
}

int tsr_plan_nports(const tsr_plan *plan)
{
    return tsri_is_live(plan, TSRI_LIVE_PLAN, __func__) ? plan->ir.nports : 0;
}

tsr_port tsr_plan_port(const tsr_plan *plan, int i)
{
    return tsri_is_live(plan, TSRI_LIVE_PLAN, __func__) && i >= 0 && i < plan->ir.nports
               ? plan->ir.ports[i].info
               : (tsr_port){0};
}
