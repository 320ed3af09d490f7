/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_loader_next: from a loader's rows to a plan's inputs. */
#include <string.h>

#include "src/core/live.h"
#include "src/data/loader/loader.h"
#include "src/plan/plan.h"

static tsr_status find_input(tsr_plan *plan, const char *name, tsri_plan_port **out_port)
{
    for (int i = 0; i < plan->nports; i++)
        if (plan->ports[i].info.is_input && !strcmp(plan->ports[i].info.name, name)) {
            *out_port = &plan->ports[i];
            return TSR_OK;
        }
    return tsri_fail(TSR_ERR_INVALID, "loader: the plan has no input named '%s'", name);
}

static tsr_status check_inputs(const tsr_loader *l, const tsri_plan_port *x,
                               const tsri_plan_port *y)
{
    const tsr_dims *d = &x->info.dims;
    int64_t rows = tsr_loader_peek_rows(l), c = tsr_dataset_channels(l->ds);
    int64_t h = tsr_dataset_height(l->ds), w = tsr_dataset_width(l->ds);
    if (x->info.dtype != l->opts.dtype || y->info.dtype != TSR_I64)
        return tsri_fail(TSR_ERR_DTYPE,
                         "loader: inputs x and y are %s and %s; this loader feeds %s and i64",
                         tsr_dtype_name(x->info.dtype), tsr_dtype_name(y->info.dtype),
                         tsr_dtype_name(l->opts.dtype));
    if (d->ndim != 4 || d->d[1] != c || d->d[2] != h || d->d[3] != w)
        return tsri_fail(TSR_ERR_SHAPE, "loader: input x is not (rows,%lld,%lld,%lld)",
                         (long long)c, (long long)h, (long long)w);
    if (rows && (d->d[0] != rows || y->info.dims.ndim != 1 || y->info.dims.d[0] != rows))
        return tsri_fail(
            TSR_ERR_SHAPE,
            "loader: the next batch has %lld rows, inputs x and y have %lld and %lld; "
            "compile a plan of that size (tsr_loader_peek_rows), or drop the last batch",
            (long long)rows, (long long)d->d[0],
            (long long)(y->info.dims.ndim ? y->info.dims.d[0] : 0));
    return TSR_OK;
}

/* The rows that this rank holds of an input that is split by rows or not at all. */
static bool rows_of(const tsri_plan_port *p, int rank, tsri_rank_rows *out_rows)
{
    const tsr_placement *place = p->info.placement;
    int at = tsr_placement_find(place, rank), inner = tsr_placement_nranks(place);
    *out_rows = (tsri_rank_rows){0};
    for (int d = 0; d < p->info.sbp.ndim && at >= 0; d++) {
        tsr_sbp1 s = p->info.sbp.d[d];
        int k = tsr_placement_dim(place, d);
        inner /= k;
        if (k == 1 || s.kind == TSR_SBP_BROADCAST)
            continue;
        if (s.kind != TSR_SBP_SPLIT || s.arg != 0)
            return false;
        out_rows->parts[out_rows->ndim] = k;
        out_rows->part[out_rows->ndim++] = at / inner % k;
    }
    return at >= 0;
}

/* An input's part on this rank. */
typedef struct part {
    bool is_here, by_rows;
    tsri_rank_rows
        rows; /* by_rows: of the batch; otherwise all, of which the input takes its part */
} part;

static part part_of(const tsri_plan_port *p, int rank)
{
    part mine = {.is_here = tsr_placement_find(p->info.placement, rank) >= 0};
    mine.by_rows = rows_of(p, rank, &mine.rows);
    if (!mine.by_rows)
        mine.rows = (tsri_rank_rows){0};
    return mine;
}

static bool is_host(const tsri_plan_port *p)
{
    return tsr_placement_device(p->info.placement) == TSR_DEVICE_CPU;
}

static tsr_status feed_labels(tsr_loader *l, tsr_plan *plan, const tsri_plan_port *y, int64_t rows)
{
    const int64_t *labels;
    TSRI_TRY(tsri_loader_labels(l, &labels));
    return tsr_feed(plan, y->info.name, labels, (size_t)rows * sizeof *labels);
}

/* From the loader's memory. No image is decoded that this rank holds no part of. */
static tsr_status feed_parts(tsr_loader *l, tsr_plan *plan, const tsri_plan_port *x, part mine_x,
                             const tsri_plan_port *y, part mine_y, int64_t rows)
{
    if (!mine_x.is_here)
        return mine_y.is_here ? feed_labels(l, plan, y, rows) : TSR_OK;
    const void *images;
    const int64_t *labels;
    TSRI_TRY(tsri_loader_take(l, &mine_x.rows, &images, &labels));
    size_t bytes = (size_t)tsr_dims_count(x->info.dims) * tsr_dtype_size(x->info.dtype);
    TSRI_TRY(mine_x.by_rows ? tsr_feed_shard(plan, x->info.name, images, x->bytes)
                            : tsr_feed(plan, x->info.name, images, bytes));
    if (!mine_y.is_here)
        return TSR_OK;
    return mine_y.by_rows && !memcmp(&mine_x.rows, &mine_y.rows, sizeof mine_x.rows)
               ? tsr_feed_shard(plan, y->info.name, labels, y->bytes)
               : feed_labels(l, plan, y, rows);
}

tsr_status tsr_loader_next(tsr_loader *l, tsr_plan *plan)
{
    TSRI_TRY(tsri_live_check(l, TSRI_LIVE_LOADER, __func__));
    TSRI_TRY(tsri_live_check(plan, TSRI_LIVE_PLAN, __func__));
    tsri_plan_port *x = NULL, *y = NULL;
    if (!l || !plan)
        return tsri_fail(TSR_ERR_INVALID, "tsr_loader_next: no loader or no plan");
    if (plan->world->is_virtual)
        return tsri_fail(TSR_ERR_STATE, "tsr_loader_next: a plan of a virtual world holds no data");
    TSRI_TRY(find_input(plan, "x", &x));
    TSRI_TRY(find_input(plan, "y", &y));
    TSRI_TRY(check_inputs(l, x, y));
    int64_t rows = tsr_loader_peek_rows(l), global, local;
    part mine_x = part_of(x, l->world->rank), mine_y = part_of(y, l->world->rank);
    bool direct = mine_x.by_rows && mine_y.by_rows && is_host(x) && is_host(y) &&
                  !memcmp(&mine_x.rows, &mine_y.rows, sizeof mine_x.rows);
    if (direct || rows == 0) {
        TSRI_TRY(tsri_loader_fill_rows(l, &mine_x.rows, x->info.shard.d[0], x->ptr, y->ptr, &global,
                                       &local));
        tsri_plan_note_fed(plan, x);
        tsri_plan_note_fed(plan, y);
        return TSR_OK;
    }
    TSRI_TRY(feed_parts(l, plan, x, mine_x, y, mine_y, rows));
    tsri_loader_advance(l);
    return TSR_OK;
}
