/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_loader_feed: from a loader's rows of images to a plan's inputs. */
#include <string.h>

#include "src/core/live.h"
#include "src/data/loader/image_loader.h"
#include "src/exec/exec.h"
#include "src/plan/plan.h"

/* Whether rows of d are images of c x h x w; sizes of 1 in front may be left out. */
static bool are_images(const tsr_dims *d, const int64_t chw[3])
{
    const int left_out = 4 - d->ndim;
    bool equal = left_out >= 0 && left_out < 3;
    for (int i = 0; i < 3 && equal; i++)
        equal = i < left_out ? chw[i] == 1 : chw[i] == d->d[1 + i - left_out];
    return equal;
}

static tsr_status check_inputs(const tsri_image_loader *l, const tsri_ir_port *x,
                               const tsri_ir_port *y)
{
    const tsr_dims *d = &x->info.dims;
    const int64_t rows = tsri_image_rows(l) / l->base.ranks;
    const int64_t chw[] = {tsr_dataset_channels(l->ds), tsr_dataset_height(l->ds),
                           tsr_dataset_width(l->ds)};
    if (x->info.dtype != l->opts.dtype || y->info.dtype != TSR_I64)
        return tsri_fail(TSR_ERR_DTYPE,
                         "loader: inputs x and y are %s and %s; this loader feeds %s and i64",
                         tsr_dtype_name(x->info.dtype), tsr_dtype_name(y->info.dtype),
                         tsr_dtype_name(l->opts.dtype));
    if (!are_images(d, chw))
        return tsri_fail(TSR_ERR_SHAPE, "loader: input x is not (rows,%lld,%lld,%lld)",
                         (long long)chw[0], (long long)chw[1], (long long)chw[2]);
    if (rows && (d->d[0] != rows || y->info.dims.ndim != 1 || y->info.dims.d[0] != rows))
        return tsri_fail(
            TSR_ERR_SHAPE,
            "loader: the next batch has %lld rows, inputs x and y have %lld and %lld; "
            "compile a plan of that size (tsr_loader_peek_rows), or drop the last batch",
            (long long)rows, (long long)d->d[0],
            (long long)(y->info.dims.ndim ? y->info.dims.d[0] : 0));
    return TSR_OK;
}

/* An input's part on this rank. */
typedef struct part {
    bool is_here, by_rows;
    tsri_rank_rows
        rows; /* by_rows: of the batch; otherwise all, of which the input takes its part */
} part;

static part part_of(const tsri_ir_port *p, int rank)
{
    part mine = {.is_here = tsr_placement_find(p->info.placement, rank) >= 0};
    mine.by_rows = tsri_feed_rows(p, rank, &mine.rows);
    if (!mine.by_rows)
        mine.rows = (tsri_rank_rows){0};
    return mine;
}

static bool is_host(const tsri_ir_port *p)
{
    return tsri_placement_can(p->info.placement, TSRI_CAN_HOST_MEMORY);
}

static tsr_status feed_labels(tsri_image_loader *l, tsr_plan *plan, const tsri_ir_port *y,
                              int64_t rows)
{
    const int64_t *labels;
    TSRI_TRY(tsri_image_labels(l, &labels));
    return tsr_feed(plan, y->info.name, labels, (size_t)rows * sizeof *labels);
}

/* From the loader's memory. No image is decoded that this rank holds no part of. */
static tsr_status feed_parts(tsri_image_loader *l, tsr_plan *plan, const tsri_ir_port *x,
                             part mine_x, const tsri_ir_port *y, part mine_y, int64_t rows)
{
    if (!mine_x.is_here)
        return mine_y.is_here ? feed_labels(l, plan, y, rows) : TSR_OK;
    const void *images;
    const int64_t *labels;
    TSRI_TRY(tsri_image_take(l, &mine_x.rows, &images, &labels));
    size_t bytes = (size_t)tsr_dims_count(x->info.dims) * tsr_dtype_size(x->info.dtype);
    TSRI_TRY(mine_x.by_rows ? tsr_feed_shard(plan, x->info.name, images, x->bytes)
                            : tsr_feed(plan, x->info.name, images, bytes));
    if (!mine_y.is_here)
        return TSR_OK;
    return mine_y.by_rows && !memcmp(&mine_x.rows, &mine_y.rows, sizeof mine_x.rows)
               ? tsr_feed_shard(plan, y->info.name, labels, y->bytes)
               : feed_labels(l, plan, y, rows);
}

/* Inputs that this rank alone holds take its rows of all ranks' batch. */
static tsr_status check_local(const tsri_image_loader *l, const tsr_plan *plan,
                              const tsri_ir_port *x, const tsri_ir_port *y)
{
    const tsri_ir_port *both[] = {x, y};
    for (int i = 0; i < 2 && l->opts.local; i++)
        if (tsr_placement_nranks(both[i]->info.placement) != 1 ||
            tsr_placement_find(both[i]->info.placement, plan->ir.world->rank) < 0)
            return tsri_fail(
                TSR_ERR_PLACEMENT,
                "tsr_loader_feed: a loader with .local feeds local graphs; input %s is "
                "on %s",
                both[i]->info.name, tsr_placement_text(both[i]->info.placement));
    return TSR_OK;
}

tsr_status tsri_image_feed(tsr_loader *loader, tsr_plan *plan)
{
    tsri_image_loader *l = (tsri_image_loader *)loader;
    tsri_ir_port *x = NULL, *y = NULL;
    if (plan->ir.world->is_virtual)
        return tsri_fail(TSR_ERR_STATE, "tsr_loader_feed: a plan of a virtual world holds no data");
    TSRI_TRY(tsri_feed_find(plan, "x", &x));
    TSRI_TRY(tsri_feed_find(plan, "y", &y));
    TSRI_TRY(check_inputs(l, x, y));
    TSRI_TRY(check_local(l, plan, x, y));
    const int64_t rows = tsri_image_rows(l);
    int64_t global, local;
    part mine_x = part_of(x, l->world->rank), mine_y = part_of(y, l->world->rank);
    if (l->opts.local)
        mine_x.rows = mine_y.rows = tsri_image_own_rows(l);
    bool direct = mine_x.by_rows && mine_y.by_rows && is_host(x) && is_host(y) &&
                  !memcmp(&mine_x.rows, &mine_y.rows, sizeof mine_x.rows);
    if (direct || rows == 0) {
        TSRI_TRY(tsri_image_fill_rows(l, &mine_x.rows, x->info.shard.d[0], x->ptr, y->ptr, &global,
                                      &local));
        tsri_plan_note_fed(plan, x);
        tsri_plan_note_fed(plan, y);
        return TSR_OK;
    }
    TSRI_TRY(feed_parts(l, plan, x, mine_x, y, mine_y, rows));
    tsri_image_advance(l);
    return TSR_OK;
}
