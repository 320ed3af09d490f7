/* SPDX-License-Identifier: Apache-2.0 */
#include "src/data/loader/batch_make.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/core/clock.h"

struct tsr_batch_out {
    tsri_maker *maker;
    tsri_batch_slot *slot;
};

bool tsr_worker_is_stopping(const tsr_worker *worker)
{
    return worker && atomic_load(((const tsri_maker *)worker)->stop);
}

/* --- memory ----------------------------------------------------------------------------------- */

enum { LINE = 64 };

static void drop(const tsri_batch_spec *spec, tsri_host_buffer *b)
{
    if (b->block && spec->o.host_alloc)
        spec->o.host_free(spec->o.host_arg, b->block, b->block_bytes);
    else
        tsri_mem_free(b->block);
    *b = (tsri_host_buffer){0};
}

/* The one place where batches get their memory. b keeps nothing of what was in it. */
static tsr_status reserve(const tsri_batch_spec *spec, tsri_mem *mem, tsri_host_buffer *b,
                          size_t bytes)
{
    if (b->at && bytes <= b->capacity) {
        b->bytes = bytes;
        return TSR_OK;
    }
    drop(spec, b);
    size_t unit = spec->o.pin_memory ? (size_t)sysconf(_SC_PAGESIZE) : LINE;
    size_t whole = bytes ? (bytes + unit - 1) / unit * unit : unit;
    if (whole < bytes || whole > SIZE_MAX - unit)
        return tsri_fail(TSR_ERR_NO_MEMORY, "no memory for a batch's array of %zu bytes", bytes);
    if (spec->o.host_alloc) {
        b->block = spec->o.host_alloc(spec->o.host_arg, whole);
        if (!b->block)
            return tsri_fail(TSR_ERR_NO_MEMORY, "host_alloc has no %zu bytes", whole);
        b->block_bytes = whole;
        b->at = b->block;
    } else {
        b->block = tsri_mem_alloc(mem, whole + unit);
        TSRI_NEED(b->block);
        b->at = (char *)b->block + (unit - (uintptr_t)b->block % unit) % unit;
    }
    b->capacity = whole;
    b->bytes = bytes;
    return TSR_OK;
}

void *tsr_batch_array(tsr_batch_out *out, int field, size_t bytes)
{
    if (!out || field < 0 || field >= TSR_BATCH_MAX_FIELDS) {
        tsri_fail(TSR_ERR_INVALID, "tsr_batch_array: field %d; legal are 0 .. %d", field,
                  TSR_BATCH_MAX_FIELDS - 1);
        return NULL;
    }
    tsri_host_buffer *b = &out->slot->arrays[field];
    out->slot->given[field] = reserve(out->maker->spec, out->maker->mem, b, bytes) == TSR_OK;
    return out->slot->given[field] ? b->at : NULL;
}

tsr_status tsri_slot_reserve(tsri_batch_slot *slot, tsri_mem *mem, int64_t rows)
{
    if (rows <= slot->capacity)
        return TSR_OK;
    int64_t *indices = tsri_mem_realloc(mem, slot->indices, (size_t)rows * sizeof *slot->indices);
    TSRI_NEED(indices);
    slot->indices = indices;
    slot->capacity = rows;
    return TSR_OK;
}

void tsri_slot_finish(const tsri_batch_spec *spec, tsri_batch_slot *slot)
{
    tsri_mem_free(slot->indices);
    for (int f = 0; f < TSR_BATCH_MAX_FIELDS; f++)
        drop(spec, &slot->arrays[f]);
}

/* --- errors ----------------------------------------------------------------------------------- */

/* The meaning of a status of the user's function: TSR_END is no way to say that a batch failed. */
static tsr_status as_error(tsr_status status)
{
    return status > 0 ? TSR_ERR_INVALID : status;
}

static void say(char *out, size_t room, tsr_status status, const char *prefix)
{
    const char *text = tsr_last_error();
    if (*text)
        snprintf(out, room, "%s%s", prefix, text);
    else
        snprintf(out, room, "%s%s (%s)", prefix, tsr_status_name(status), tsr_status_text(status));
}

void tsri_slot_fail(tsri_batch_slot *slot, tsr_status status, const char *prefix)
{
    say(slot->text, sizeof slot->text, status, prefix);
    slot->status = as_error(status);
}

/* --- makers ----------------------------------------------------------------------------------- */

void tsri_maker_start(tsri_maker *m)
{
    const tsr_map_loader_opts *o = &m->spec->o;
    m->is_up = true;
    m->init_status = TSR_OK;
    if (!o->worker_init)
        return;
    tsri_error_clear();
    tsr_status status = o->worker_init(o->worker_arg, &m->worker);
    if (status == TSR_OK)
        return;
    char prefix[64];
    snprintf(prefix, sizeof prefix, "worker %d: worker_init: ", m->worker.id);
    say(m->init_text, sizeof m->init_text, status, prefix);
    m->init_status = as_error(status);
}

void tsri_maker_finish(tsri_maker *m)
{
    const tsr_map_loader_opts *o = &m->spec->o;
    if (m->is_up && m->init_status == TSR_OK && o->worker_exit)
        o->worker_exit(o->worker_arg, &m->worker);
    m->is_up = false;
    m->worker.user = NULL;
    for (int f = 0; f < TSR_BATCH_MAX_FIELDS; f++)
        drop(m->spec, &m->samples[f]);
}

/* Row i's place in each field. */
static void places(const tsri_maker *m, const tsri_host_buffer *arrays, int64_t i, void **out)
{
    const tsr_map_loader_opts *o = &m->spec->o;
    for (int f = 0; f < o->nfields; f++)
        out[f] = arrays[f].at + (size_t)i * o->field_bytes[f];
}

static tsr_status get_row(tsri_maker *m, const tsri_batch_slot *slot, tsri_host_buffer *arrays,
                          int64_t i)
{
    int64_t index = slot->indices[i];
    if (index < 0 || index >= m->spec->len)
        return tsri_fail(TSR_ERR_INVALID, "the data set has samples 0 .. %" PRId64,
                         m->spec->len - 1);
    if (!m->spec->ds.get)
        return TSR_OK;
    void *out[TSR_BATCH_MAX_FIELDS] = {0};
    places(m, arrays, i, out);
    tsri_error_clear();
    return m->spec->ds.get(m->spec->ds.arg, index, out, &m->worker);
}

/* *out_got: how many went well. The status is the slot's already. */
static void get_rows(tsri_maker *m, tsri_batch_slot *slot, tsri_host_buffer *arrays,
                     int64_t *out_got)
{
    int64_t i = 0;
    for (; i < slot->rows && slot->status == TSR_OK; i++) {
        if (atomic_load(m->stop)) { /* nobody will look at it */
            slot->status = TSR_ERR_STATE;
            break;
        }
        atomic_store(&slot->row, i);
        atomic_store(&slot->since_ns, (long long)(tsri_now_s() * 1e9));
        tsr_status status = get_row(m, slot, arrays, i);
        if (status != TSR_OK) {
            char prefix[64];
            snprintf(prefix, sizeof prefix, "sample %" PRId64 ": ", slot->indices[i]);
            tsri_slot_fail(slot, status, prefix);
            break;
        }
    }
    *out_got = i;
}

static void release_rows(tsri_maker *m, const tsri_batch_slot *slot, int64_t got)
{
    const tsr_map_loader_opts *o = &m->spec->o;
    for (int64_t i = 0; o->release && i < got; i++) {
        void *fields[TSR_BATCH_MAX_FIELDS] = {0};
        places(m, m->samples, i, fields);
        o->release(o->collate_arg, slot->indices[i], fields);
    }
}

static void collate(tsri_maker *m, tsri_batch_slot *slot)
{
    const tsr_map_loader_opts *o = &m->spec->o;
    const void *fields[TSR_BATCH_MAX_FIELDS] = {0};
    for (int f = 0; f < o->nfields; f++)
        fields[f] = m->samples[f].at;
    const tsr_samples samples = {
        .rows = slot->rows, .indices = slot->indices, .nfields = o->nfields, .fields = fields};
    tsr_batch_out out = {.maker = m, .slot = slot};
    atomic_store(&slot->row, slot->rows);
    atomic_store(&slot->since_ns, (long long)(tsri_now_s() * 1e9));
    tsri_error_clear();
    tsr_status status = o->collate(o->collate_arg, &samples, &out, &m->worker);
    if (status != TSR_OK) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "batch %" PRId64 ": collate: ", slot->number);
        tsri_slot_fail(slot, status, prefix);
    }
}

static tsr_status reserve_rows(tsri_maker *m, const tsri_batch_slot *slot, tsri_host_buffer *arrays)
{
    for (int f = 0; f < m->spec->o.nfields; f++) {
        size_t bytes;
        if (__builtin_mul_overflow((size_t)slot->rows, m->spec->o.field_bytes[f], &bytes))
            return tsri_fail(TSR_ERR_NO_MEMORY, "%" PRId64 " samples of %zu bytes are too many",
                             slot->rows, m->spec->o.field_bytes[f]);
        TSRI_TRY(reserve(m->spec, m->mem, &arrays[f], bytes));
    }
    return TSR_OK;
}

void tsri_batch_make(tsri_maker *m, tsri_batch_slot *slot)
{
    if (slot->status != TSR_OK)
        return;
    if (m->init_status != TSR_OK) {
        memcpy(slot->text, m->init_text, sizeof m->init_text);
        slot->status = m->init_status;
        return;
    }
    bool by_user = m->spec->o.collate != NULL;
    tsri_host_buffer *arrays = by_user ? m->samples : slot->arrays;
    tsr_status status = reserve_rows(m, slot, arrays);
    if (status != TSR_OK) {
        tsri_slot_fail(slot, status, "");
        return;
    }
    for (int f = 0; f < TSR_BATCH_MAX_FIELDS; f++)
        slot->given[f] = !by_user && f < m->spec->o.nfields;
    int64_t got = 0;
    get_rows(m, slot, arrays, &got);
    if (by_user && slot->status == TSR_OK)
        collate(m, slot);
    if (by_user)
        release_rows(m, slot, got);
}
