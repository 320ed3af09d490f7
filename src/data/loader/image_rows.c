/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a batch of images that are a rank's, decoded ahead by a ring's threads. */
#include "src/data/loader/image_loader.h"

#include <inttypes.h>
#include <string.h>

#include <tessera/placement.h>

/* --- which rows ------------------------------------------------------------------------------- */

static int64_t rows_of_batch(const tsri_image_loader *l, int64_t batch)
{
    int64_t left = l->ds->count - batch * l->opts.batch_size;
    return left < l->opts.batch_size ? left - left % l->base.ranks : l->opts.batch_size;
}

static void split_rows(const tsri_rank_rows *rows, int64_t n, int64_t *out_first,
                       int64_t *out_count)
{
    int64_t first = 0;
    for (int i = 0; i < rows->ndim; i++) {
        int64_t offset;
        tsr_balanced_split(n, rows->parts[i], rows->part[i], &offset, &n);
        first += offset;
    }
    *out_first = first;
    *out_count = n;
}

static size_t row_elements(const tsri_image_loader *l)
{
    return (size_t)(l->ds->channels * l->ds->height * l->ds->width);
}

static size_t row_bytes(const tsri_image_loader *l)
{
    return row_elements(l) * tsr_dtype_size(l->opts.dtype);
}

static void decode_rows(const tsri_image_loader *l, const tsri_rank_rows *rows, int64_t batch,
                        char *x, int64_t *y)
{
    int64_t first, count;
    split_rows(rows, rows_of_batch(l, batch), &first, &count);
    for (int64_t i = 0; i < count; i++)
        tsri_decoder_decode(&l->decoder, batch * l->opts.batch_size + first + i,
                            x + (size_t)i * row_bytes(l), y + i);
}

tsri_rank_rows tsri_image_own_rows(const tsri_image_loader *l)
{
    return l->opts.local
               ? (tsri_rank_rows){.ndim = 1, .parts = {l->world->nranks}, .part = {l->world->rank}}
               : (tsri_rank_rows){0};
}

int64_t tsri_image_rows(const tsri_image_loader *l)
{
    return l->batch < l->batches ? rows_of_batch(l, l->batch) : 0;
}

/* --- decoding ahead --------------------------------------------------------------------------- */

static size_t whole_lines(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* A slot: the labels of the first (largest) batch's part, then its images. */
static void slot_sizes(const tsri_image_loader *l, const tsri_rank_rows *rows, size_t *out_labels,
                       size_t *out_bytes)
{
    int64_t first, count;
    split_rows(rows, rows_of_batch(l, 0), &first, &count);
    *out_labels = whole_lines((size_t)count * sizeof(int64_t));
    *out_bytes = *out_labels + whole_lines((size_t)count * row_bytes(l));
}

static size_t labels_bytes(const tsri_image_loader *l, const tsri_rank_rows *rows)
{
    size_t labels, bytes;
    slot_sizes(l, rows, &labels, &bytes);
    return labels;
}

static void decode_slot(void *arg, int64_t batch, void *slot)
{
    const tsri_image_loader *l = arg;
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
static tsr_status start_ring(tsri_image_loader *l, const tsri_rank_rows *rows)
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

void tsri_image_go_to_epoch(tsri_image_loader *l, int64_t epoch)
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

tsr_status tsri_image_take(tsri_image_loader *l, const tsri_rank_rows *rows, const void **out_x,
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

tsr_status tsri_image_labels(tsri_image_loader *l, const int64_t **out_y)
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

void tsri_image_advance(tsri_image_loader *l)
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

tsr_status tsri_image_fill_rows(tsri_image_loader *l, const tsri_rank_rows *rows,
                                int64_t capacity_rows, void *x, int64_t *y, int64_t *out_global,
                                int64_t *out_local)
{
    TSRI_TRY(check_fill(rows));
    if (l->batch == l->batches) {
        tsri_image_go_to_epoch(l, l->decoder.epoch + 1);
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
        TSRI_TRY(tsri_image_take(l, rows, &images, &labels));
        if (count) {
            memcpy(y, labels, (size_t)count * sizeof *y);
            memcpy(x, images, (size_t)count * row_bytes(l));
        }
    } else {
        decode_rows(l, rows, l->batch, x, y);
    }
    tsri_image_advance(l);
    *out_global = global;
    *out_local = count;
    return TSR_OK;
}

tsr_status tsri_image_next(tsr_loader *loader, tsr_batch *b)
{
    tsri_image_loader *l = (tsri_image_loader *)loader;
    const tsri_rank_rows rows = tsri_image_own_rows(l);
    /* Images, labels and indices lie one after the other, with room for the largest batch. */
    int64_t room, first, count, global;
    split_rows(&rows, rows_of_batch(l, 0), &first, &room);
    const size_t images = whole_lines((size_t)room * row_bytes(l));
    const size_t labels = whole_lines((size_t)room * sizeof(int64_t));
    if (!l->given && !(l->given = tsri_mem_alloc(&l->world->mem, images + 2 * labels)))
        return TSR_ERR_NO_MEMORY;
    int64_t *y = (int64_t *)(void *)(l->given + images);
    int64_t *indices = (int64_t *)(void *)(l->given + images + labels);
    split_rows(&rows, tsri_image_rows(l), &first, &count);
    for (int64_t i = 0; i < count; i++)
        indices[i] = tsri_decoder_index(&l->decoder, l->batch * l->opts.batch_size + first + i);
    *b = (tsr_batch){.number = l->batch,
                     .epoch = l->decoder.epoch,
                     .rows = count,
                     .indices = indices,
                     .nfields = 2,
                     .data = {l->given, y},
                     .bytes = {(size_t)count * row_bytes(l), (size_t)count * sizeof *y}};
    return tsri_image_fill_rows(l, &rows, room, l->given, y, &global, &count);
}
