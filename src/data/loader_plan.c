/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_loader_next: from a loader's rows to a plan's inputs. */
#include <string.h>

#include "src/data/loader.h"
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
static bool rows_of(const tsri_plan_port *p, int rank, tsri_rows *out_rows)
{
    const tsr_placement *place = p->info.placement;
    int at = tsr_placement_find(place, rank), inner = tsr_placement_nranks(place);
    *out_rows = (tsri_rows){0};
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

/* Any other signatures: the whole batch is decoded here, and each input takes its part. */
static tsr_status feed_whole(tsr_loader *l, tsr_plan *plan, const tsri_plan_port *x, int64_t rows)
{
    const tsri_rows all = {0};
    size_t xb = (size_t)tsr_dims_count(x->info.dims) * tsr_dtype_size(x->info.dtype);
    size_t yb = (size_t)rows * sizeof(int64_t);
    char *buf = tsri_mem_alloc(&l->world->mem, xb + yb);
    int64_t global, local;
    if (!buf)
        return TSR_ERR_NO_MEMORY;
    int64_t *labels = (int64_t *)(void *)buf; /* first: they are the stricter aligned */
    char *images = buf + yb;
    tsr_status status = tsri_loader_fill_rows(l, &all, rows, images, labels, &global, &local);
    if (status == TSR_OK)
        status = tsr_feed(plan, "x", images, xb);
    if (status == TSR_OK)
        status = tsr_feed(plan, "y", labels, yb);
    tsri_mem_free(buf);
    return status;
}

tsr_status tsr_loader_next(tsr_loader *l, tsr_plan *plan)
{
    tsri_plan_port *x = NULL, *y = NULL;
    if (!l || !plan)
        return tsri_fail(TSR_ERR_INVALID, "tsr_loader_next: no loader or no plan");
    if (plan->world->is_virtual)
        return tsri_fail(TSR_ERR_STATE, "tsr_loader_next: a plan of a virtual world holds no data");
    TSRI_TRY(find_input(plan, "x", &x));
    TSRI_TRY(find_input(plan, "y", &y));
    TSRI_TRY(check_inputs(l, x, y));
    int64_t rows = tsr_loader_peek_rows(l), global, local;
    tsri_rows rx = {0}, ry = {0};
    bool direct = rows_of(x, l->world->rank, &rx) && rows_of(y, l->world->rank, &ry) &&
                  !memcmp(&rx, &ry, sizeof rx);
    if (direct || rows == 0)
        return tsri_loader_fill_rows(l, &rx, x->info.shard.d[0], x->ptr, y->ptr, &global, &local);
    return feed_whole(l, plan, x, rows);
}
