/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/opts.h"
#include "src/data/loader/loader.h"

#include <inttypes.h>
#include <string.h>

#include <tessera/placement.h>

#include "src/core/live.h"

static tsr_status resolve_opts(const tsr_loader_opts *given, tsr_loader_opts *o)
{
    *o = *TSR_LOADER_OPTS();
    TSRI_TRY(tsri_opts_read(o, sizeof *o, given, "tsr_loader_create"));
    if (o->batch_size < 1)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_loader_create: batch_size is %" PRId64 "; it must be at least 1",
                         o->batch_size);
    if (o->workers < 0 || o->prefetch < 0)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_loader_create: workers %d, prefetch %d: neither may be negative",
                         o->workers, o->prefetch);
    if (o->dtype == TSR_DTYPE_NONE)
        o->dtype = TSR_F32;
    if (o->dtype != TSR_F32 && o->dtype != TSR_F64)
        return tsri_fail(TSR_ERR_DTYPE, "tsr_loader_create: dtype %s; legal are f32 and f64",
                         tsr_dtype_name(o->dtype));
    if (!o->workers)
        o->prefetch = 0;
    if (o->workers > o->prefetch)
        o->workers = o->prefetch; /* a batch is one thread's work: more would only wait */
    return TSR_OK;
}

static void destroy_owned(void *loader)
{
    tsr_loader_destroy(loader);
}

tsr_status tsr_loader_create(tsr_world *world, tsr_dataset *dataset, const tsr_loader_opts *opts,
                             tsr_loader **out_loader)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    TSRI_TRY(tsri_live_check(dataset, TSRI_LIVE_DATASET, __func__));
    if (!world || !dataset || !out_loader)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_loader_create: world, dataset or out_loader is NULL");
    tsr_loader_opts resolved;
    TSRI_TRY(resolve_opts(opts, &resolved));
    tsr_loader *l = tsri_live_alloc(&world->mem, sizeof *l, TSRI_LIVE_LOADER);
    TSRI_NEED(l);
    l->world = world;
    l->opts = resolved;
    l->ds = dataset;
    tsri_dataset_ref(dataset);
    int64_t full = dataset->count / resolved.batch_size;
    bool rest = dataset->count % resolved.batch_size != 0;
    l->batches = full + (rest && !resolved.drop_last);
    tsr_status status = tsri_decoder_init(&l->decoder, &world->mem, dataset, &resolved);
    if (status != TSR_OK) {
        tsr_loader_destroy(l);
        return status;
    }
    tsri_world_own(world, &l->owned, l, destroy_owned);
    *out_loader = l;
    return TSR_OK;
}

void tsr_loader_destroy(tsr_loader *l)
{
    if (!tsri_is_live(l, TSRI_LIVE_LOADER, __func__))
        return;
    tsri_world_disown(&l->owned);
    tsri_ring_destroy(l->ring);
    tsri_mem_free(l->held);
    tsri_mem_free(l->labels);
    tsri_decoder_finish(&l->decoder);
    tsri_dataset_unref(l->ds);
    tsri_live_free(l, TSRI_LIVE_LOADER);
}

/* --- which rows ------------------------------------------------------------------------------- */

static int64_t rows_of_batch(const tsr_loader *l, int64_t batch)
{
    int64_t left = l->ds->count - batch * l->opts.batch_size;
    return left < l->opts.batch_size ? left : l->opts.batch_size;
}

static void split_rows(const tsri_rank_rows *rows, int64_t n, int64_t *out_first,
                       int64_t *out_count)
{
    int64_t first = 0;
    for (int i = 0; i < rows->ndim; i++) {
        int64_t offset;
        tsr_split(n, rows->parts[i], rows->part[i], &offset, &n);
        first += offset;
    }
    *out_first = first;
    *out_count = n;
}

static size_t row_elements(const tsr_loader *l)
{
    return (size_t)(l->ds->channels * l->ds->height * l->ds->width);
}

static size_t row_bytes(const tsr_loader *l)
{
    return row_elements(l) * tsr_dtype_size(l->opts.dtype);
}

static void decode_rows(const tsr_loader *l, const tsri_rank_rows *rows, int64_t batch, char *x,
                        int64_t *y)
{
    int64_t first, count;
    split_rows(rows, rows_of_batch(l, batch), &first, &count);
    for (int64_t i = 0; i < count; i++)
        tsri_decoder_decode(&l->decoder, batch * l->opts.batch_size + first + i,
                            x + (size_t)i * row_bytes(l), y + i);
}

/* --- decoding ahead --------------------------------------------------------------------------- */

static size_t whole_lines(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* A slot: the labels of the first (largest) batch's part, then its images. */
static void slot_sizes(const tsr_loader *l, const tsri_rank_rows *rows, size_t *out_labels,
                       size_t *out_bytes)
{
    int64_t first, count;
    split_rows(rows, rows_of_batch(l, 0), &first, &count);
    *out_labels = whole_lines((size_t)count * sizeof(int64_t));
    *out_bytes = *out_labels + whole_lines((size_t)count * row_bytes(l));
}

static size_t labels_bytes(const tsr_loader *l, const tsri_rank_rows *rows)
{
    size_t labels, bytes;
    slot_sizes(l, rows, &labels, &bytes);
    return labels;
}

static void decode_slot(void *arg, int64_t batch, void *slot)
{
    const tsr_loader *l = arg;
    decode_rows(l, &l->rows, batch, (char *)slot + labels_bytes(l, &l->rows), slot);
}

static bool same_rows(const tsri_rank_rows *a, const tsri_rank_rows *b)
{
    bool same = a->ndim == b->ndim;
    for (int i = 0; same && i < a->ndim; i++)
        same = a->parts[i] == b->parts[i] && a->part[i] == b->part[i];
    return same;
}

/* Has threads decode `rows` of this epoch from the loader's batch on, if there are to be any. */
static tsr_status start_ring(tsr_loader *l, const tsri_rank_rows *rows)
{
    if (!l->opts.workers || (l->ring && same_rows(rows, &l->rows)))
        return TSR_OK;
    tsri_ring_destroy(l->ring);
    l->ring = NULL;
    l->is_taken = false;
    l->rows = *rows;
    size_t labels, slot_bytes;
    slot_sizes(l, rows, &labels, &slot_bytes);
    TSRI_TRY(tsri_ring_create(&l->world->mem, l->opts.prefetch, slot_bytes, l->opts.workers,
                              decode_slot, l, &l->ring));
    tsri_ring_start(l->ring, l->batch, l->batches);
    return TSR_OK;
}

static void go_to_epoch(tsr_loader *l, int64_t epoch)
{
    if (l->ring)
        tsri_ring_pause(l->ring);
    l->is_taken = false;
    if (epoch != l->decoder.epoch)
        tsri_decoder_set_epoch(&l->decoder, epoch);
    l->batch = 0;
    if (l->ring)
        tsri_ring_start(l->ring, 0, l->batches);
}

static tsr_status check_fill(const tsri_rank_rows *rows)
{
    bool legal = rows->ndim >= 0 && rows->ndim <= TSR_MAX_HIERARCHY;
    for (int i = 0; legal && i < rows->ndim; i++)
        legal = rows->parts[i] >= 1 && rows->part[i] >= 0 && rows->part[i] < rows->parts[i];
    return legal ? TSR_OK
                 : tsri_fail(TSR_ERR_INVALID,
                             "loader: a part must be one of 0 .. parts-1, in at "
                             "most %d dimensions",
                             TSR_MAX_HIERARCHY);
}

/* --- a batch ---------------------------------------------------------------------------------- */

tsr_status tsri_loader_take(tsr_loader *l, const tsri_rank_rows *rows, const void **out_x,
                            const int64_t **out_y)
{
    TSRI_TRY(check_fill(rows));
    TSRI_TRY(start_ring(l, rows));
    size_t labels, bytes;
    slot_sizes(l, rows, &labels, &bytes);
    const char *slot;
    if (l->ring) {
        slot = tsri_ring_take(l->ring);
        l->is_taken = true;
    } else {
        if (!l->held || l->held_bytes < bytes) {
            char *more = tsri_mem_alloc(&l->world->mem, bytes);
            TSRI_NEED(more);
            tsri_mem_free(l->held);
            l->held = more;
            l->held_bytes = bytes;
        }
        decode_rows(l, rows, l->batch, l->held + labels, (int64_t *)(void *)l->held);
        slot = l->held;
    }
    *out_y = (const int64_t *)(const void *)slot;
    *out_x = slot + labels;
    return TSR_OK;
}

tsr_status tsri_loader_labels(tsr_loader *l, const int64_t **out_y)
{
    if (!l->labels) {
        size_t bytes = (size_t)rows_of_batch(l, 0) * sizeof *l->labels;
        if (!(l->labels = tsri_mem_alloc(&l->world->mem, bytes)))
            return TSR_ERR_NO_MEMORY;
    }
    int64_t rows = rows_of_batch(l, l->batch);
    for (int64_t i = 0; i < rows; i++) {
        int64_t sample = tsri_decoder_index(&l->decoder, l->batch * l->opts.batch_size + i);
        l->labels[i] = l->ds->labels[sample];
    }
    *out_y = l->labels;
    return TSR_OK;
}

void tsri_loader_advance(tsr_loader *l)
{
    if (l->ring && l->is_taken) {
        tsri_ring_release(l->ring);
    } else if (l->ring) { /* it would be in the way of who takes later batches */
        tsri_ring_destroy(l->ring);
        l->ring = NULL;
    }
    l->is_taken = false;
    l->batch++;
}

tsr_status tsri_loader_fill_rows(tsr_loader *l, const tsri_rank_rows *rows, int64_t capacity_rows,
                                 void *x, int64_t *y, int64_t *out_global, int64_t *out_local)
{
    TSRI_TRY(check_fill(rows));
    if (l->batch == l->batches) {
        go_to_epoch(l, l->decoder.epoch + 1);
        return TSR_END;
    }
    int64_t global = rows_of_batch(l, l->batch), first, count;
    split_rows(rows, global, &first, &count);
    if (count > capacity_rows)
        return tsri_fail(TSR_ERR_SHAPE,
                         "loader: %" PRId64 " rows of a batch of %" PRId64
                         " are due here, but there is room for %" PRId64,
                         count, global, capacity_rows);
    if (l->opts.workers) {
        const void *images;
        const int64_t *labels;
        TSRI_TRY(tsri_loader_take(l, rows, &images, &labels));
        if (count) {
            memcpy(y, labels, (size_t)count * sizeof *y);
            memcpy(x, images, (size_t)count * row_bytes(l));
        }
    } else {
        decode_rows(l, rows, l->batch, x, y);
    }
    tsri_loader_advance(l);
    *out_global = global;
    *out_local = count;
    return TSR_OK;
}

tsr_status tsri_loader_fill(tsr_loader *l, int parts, int part, int64_t capacity_rows, void *x,
                            int64_t *y, int64_t *out_global, int64_t *out_local)
{
    const tsri_rank_rows rows = {.ndim = 1, .parts = {parts}, .part = {part}};
    return tsri_loader_fill_rows(l, &rows, capacity_rows, x, y, out_global, out_local);
}

tsr_status tsr_loader_set_epoch(tsr_loader *l, int64_t epoch)
{
    TSRI_TRY(tsri_live_check(l, TSRI_LIVE_LOADER, __func__));
    if (!l || epoch < 0)
        return tsri_fail(TSR_ERR_INVALID, "tsr_loader_set_epoch: %s",
                         l ? "the epoch is negative" : "the loader is NULL");
    if (l->batch || epoch != l->decoder.epoch)
        go_to_epoch(l, epoch);
    return TSR_OK;
}

int64_t tsr_loader_position(const tsr_loader *l)
{
    return tsri_is_live(l, TSRI_LIVE_LOADER, __func__) ? l->batch : 0;
}

tsr_status tsr_loader_set_position(tsr_loader *l, int64_t position)
{
    TSRI_TRY(tsri_live_check(l, TSRI_LIVE_LOADER, __func__));
    if (!l)
        return tsri_fail(TSR_ERR_INVALID, "tsr_loader_set_position: the loader is NULL");
    if (position < 0 || position > l->batches)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_loader_set_position: %" PRId64 "; an epoch has %" PRId64 " batches",
                         position, l->batches);
    tsri_ring_destroy(l->ring);
    l->ring = NULL;
    l->is_taken = false;
    l->batch = position;
    return TSR_OK;
}

int64_t tsr_loader_epoch(const tsr_loader *l)
{
    return tsri_is_live(l, TSRI_LIVE_LOADER, __func__) ? l->decoder.epoch : 0;
}

int64_t tsr_loader_batches(const tsr_loader *l)
{
    return tsri_is_live(l, TSRI_LIVE_LOADER, __func__) ? l->batches : 0;
}

int64_t tsr_loader_peek_rows(const tsr_loader *l)
{
    return tsri_is_live(l, TSRI_LIVE_LOADER, __func__) && l->batch < l->batches
               ? rows_of_batch(l, l->batch)
               : 0;
}
