/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights in and out of safetensors files. Loading has two phases that all ranks agree on: what the
 * file has is checked against the module, then each rank reads its own shards into fresh memory;
 * only when all have, the variables change.
 */
#include <stdio.h>

#include "src/core/live.h"
#include "src/core/opts.h"
#include "src/comm/agree.h"
#include "src/core/convert.h"
#include "src/nn/module.h"
#include "src/nn/safetensors.h"
#include "src/graph/variable.h"

/* Elements that pass through a conversion at once. */
enum { CHUNK = 16384 };

/* Running statistics of R virtual batches, [R, c]: in files they are one (c). */
static bool is_row_statistics(const tsr_variable *v)
{
    return !v->trainable && v->shape.ndim == 2 &&
           (!strcmp(v->name, "running_mean") || !strcmp(v->name, "running_var"));
}

static tsr_dims file_dims(const tsr_variable *v)
{
    return is_row_statistics(v) ? TSR_DIMS(v->shape.d[1]) : tsri_variable_saved_dims(v);
}

/* Counted by PyTorch's batch norm, and of no use here. */
static bool is_ignored(const char *name)
{
    static const char suffix[] = "num_batches_tracked";
    size_t n = strlen(name), m = sizeof suffix - 1;
    return n >= m && !strcmp(name + n - m, suffix);
}

/* Nobody else has to know of a rank's own module. */
static tsr_status agree(const tsr_module *m, tsr_status status)
{
    return tsri_scope_is_local(&m->scope) ? status : tsri_agree(m->world, status);
}

/* --- lists of names in messages --------------------------------------------------------------- */
typedef struct name_list {
    int n;
    size_t used;
    char text[900];
} name_list;

static void list_add(name_list *list, const char *name)
{
    enum { SHOWN = 10 };
    if (list->n++ < SHOWN && list->used < sizeof list->text)
        list->used += (size_t)snprintf(list->text + list->used, sizeof list->text - list->used,
                                       "%s%s", list->used ? ", " : "", name);
}

/* "2 missing in the file: a, b" or "". */
static const char *list_text(const name_list *list, const char *what, char buf[1024])
{
    buf[0] = 0;
    if (list->n)
        snprintf(buf, 1024, "%d %s: %s%s", list->n, what, list->text, list->n > 10 ? ", ..." : "");
    return buf;
}

/* --- loading ---------------------------------------------------------------------------------- */
typedef struct load_item {
    tsr_variable *v;
    const tsri_st_entry *entry;
    bool same_rows; /* the file has one row, for all of v's */
    char *fresh;    /* this rank's shard to be, v->bytes */
} load_item;

typedef struct loader {
    tsr_module *module;
    const char *path;
    tsri_st_file *file;
    tsri_pool pool;
    load_item *items;
    int n, capacity;
    name_list missing, extra;
} loader;

static tsr_status plan_variable(tsr_variable *v, const char *name, void *arg)
{
    loader *l = arg;
    const tsri_st_entry *e = tsri_st_find(l->file, name);
    if (!e) {
        list_add(&l->missing, name);
        return TSR_OK;
    }
    TSRI_TRY(tsri_st_usable(l->file, e));
    bool same_rows = is_row_statistics(v) && tsr_dims_equal(e->dims, file_dims(v));
    if (!same_rows && !tsr_dims_equal(e->dims, v->shape) &&
        !tsr_dims_equal(e->dims, tsri_variable_saved_dims(v))) {
        char in_file[TSRI_DIMS_TEXT_MAX], here[TSRI_DIMS_TEXT_MAX];
        return tsri_fail(TSR_ERR_SHAPE, "%s: '%s' has shape (%s) in the file, (%s) in the module",
                         l->path, name, tsri_dims_format(e->dims, in_file),
                         tsri_dims_format(tsri_variable_saved_dims(v), here));
    }
    if (e->dtype != v->dtype && !(tsri_is_float(e->dtype) && tsri_is_float(v->dtype)))
        return tsri_fail(
            TSR_ERR_DTYPE,
            "%s: '%s' is %s in the file, %s in the module; only floating point converts", l->path,
            name, tsr_dtype_name(e->dtype), tsr_dtype_name(v->dtype));
    TSRI_TRY(tsri_variable_place(v));
    TSRI_NEED(TSRI_PUSH(&l->pool, l->items, l->n, l->capacity));
    l->items[l->n++] = (load_item){.v = v, .entry = e, .same_rows = same_rows};
    return TSR_OK;
}

/* Lists the names of the file that the module does not have. */
static void list_extra(loader *l)
{
    for (int64_t i = 0; i < tsri_st_count(l->file); i++) {
        const char *name = tsri_st_at(l->file, i)->name;
        if (!is_ignored(name) && !tsri_module_lookup(l->module, name))
            list_add(&l->extra, name);
    }
}

static tsr_status check_names(const loader *l)
{
    char missing[1024], extra[1024];
    if (!l->missing.n && !l->extra.n)
        return TSR_OK;
    list_text(&l->missing, "missing in the file", missing);
    list_text(&l->extra, "extra in the file", extra);
    return tsri_fail(TSR_ERR_INVALID,
                     "%s is not of this module: %s%s%s; %d of its names fit; a load with .partial "
                     "= true takes those alone",
                     l->path, missing, missing[0] && extra[0] ? "; " : "", extra, l->n);
}

/* Opens the file and settles what goes where; reads no data and changes no variable. */
static tsr_status plan_load(loader *l, const tsr_load_opts *o)
{
    if (!l->path || !l->path[0])
        return tsri_fail(TSR_ERR_INVALID, "tsr_load: the path is %s", l->path ? "empty" : "NULL");
    TSRI_TRY(tsri_st_open(&l->module->world->mem, l->path, &l->file));
    TSRI_TRY(tsr_module_visit(l->module, plan_variable, l));
    list_extra(l);
    return o->partial ? TSR_OK : check_names(l);
}

/* Reads elements [at, at + n) of an entry as `dtype`. */
static tsr_status read_elements(loader *l, const tsri_st_entry *e, int64_t at, int64_t n,
                                tsr_dtype dtype, char *dst, char *scratch)
{
    size_t size = tsr_dtype_size(e->dtype);
    if (dtype == e->dtype)
        return tsri_st_read(l->file, e, (uint64_t)at * size, (size_t)n * size, dst);
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = n - i < CHUNK ? n - i : CHUNK;
        TSRI_TRY(tsri_st_read(l->file, e, (uint64_t)(at + i) * size, (size_t)m * size, scratch));
        TSRI_TRY(
            tsri_convert(dst + (size_t)i * tsr_dtype_size(dtype), dtype, scratch, e->dtype, m));
    }
    return TSR_OK;
}

static tsr_status read_item(loader *l, load_item *item, char *scratch)
{
    const tsr_variable *v = item->v;
    size_t size = tsr_dtype_size(v->dtype);
    if (!v->data)
        return TSR_OK;
    if (!(item->fresh = tsri_pool_alloc(&l->pool, v->bytes)))
        return TSR_ERR_NO_MEMORY;
    if (item->same_rows) {
        size_t row = (size_t)v->lshape.d[1] * size;
        for (int64_t i = 0; i < v->lshape.d[0]; i++)
            TSRI_TRY(read_elements(l, item->entry, v->offset[1], v->lshape.d[1], v->dtype,
                                   item->fresh + (size_t)i * row, scratch));
        return TSR_OK;
    }
    int64_t runs, length = tsri_shard_runs(v->shape, v->lshape, &runs);
    for (int64_t i = 0; i < runs; i++)
        TSRI_TRY(read_elements(l, item->entry, tsri_shard_run_at(v->shape, v->lshape, v->offset, i),
                               length, v->dtype, item->fresh + (size_t)(i * length) * size,
                               scratch));
    return TSR_OK;
}

static tsr_status read_all(loader *l)
{
    char *scratch = tsri_pool_alloc(&l->pool, CHUNK * sizeof(double));
    TSRI_NEED(scratch);
    for (int i = 0; i < l->n; i++)
        TSRI_TRY(read_item(l, &l->items[i], scratch));
    return TSR_OK;
}

tsr_status tsr_load(tsr_module *m, const char *path, const tsr_load_opts *opts)
{
    if (!m)
        return tsri_fail(TSR_ERR_INVALID, "tsr_load: the module is NULL");
    TSRI_TRY(tsri_live_check(m, TSRI_LIVE_MODULE, "tsr_load"));
    if (m->world->is_virtual)
        return tsri_fail(TSR_ERR_STATE, "tsr_load: a virtual world has no data");
    tsr_load_opts o = *TSR_LOAD_OPTS();
    TSRI_TRY(tsri_opts_read(&o, sizeof o, opts, "tsr_load"));
    loader l = {.module = m, .path = path};
    tsri_pool_init(&l.pool, &m->world->mem);
    tsr_status status = agree(m, plan_load(&l, &o));
    if (status == TSR_OK)
        status = agree(m, read_all(&l));
    for (int i = 0; i < l.n && status == TSR_OK; i++) {
        if (l.items[i].fresh)
            status = tsri_variable_write(l.items[i].v, 0, l.items[i].fresh, l.items[i].v->bytes);
        l.items[i].v->ready = l.items[i].v->given = true;
    }
    if (status == TSR_OK && o.out_counts)
        *o.out_counts = (tsr_load_counts){l.n, l.missing.n, l.extra.n};
    tsri_st_close(l.file);
    tsri_pool_finish(&l.pool);
    return status;
}

/* --- saving ----------------------------------------------------------------------------------- */
typedef struct saver {
    tsri_st_writer *writer; /* of rank 0, or whose module it is */
    tsr_status written;     /* a rank that can't write any more goes on taking part */
    char *buffer;           /* for the largest global value, beside a writer */
    size_t largest;
} saver;

static tsr_status declare(tsr_variable *v, const char *name, void *arg)
{
    saver *s = arg;
    size_t bytes = (size_t)tsr_dims_count(v->shape) * tsr_dtype_size(v->dtype);
    s->largest = bytes > s->largest ? bytes : s->largest;
    return tsri_st_writer_add(s->writer, name, v->dtype, file_dims(v));
}

static tsr_status start_writing(tsr_module *m, const char *path, saver *s)
{
    TSRI_TRY(tsri_st_writer_create(&m->world->mem, path, &s->writer));
    TSRI_TRY(tsri_st_writer_add_metadata(s->writer, "format", "pt"));
    TSRI_TRY(tsr_module_visit(m, declare, s));
    s->buffer = tsri_mem_alloc(&m->world->mem, s->largest);
    return s->buffer ? tsri_st_writer_begin(s->writer) : TSR_ERR_NO_MEMORY;
}

static tsr_status save_variable(tsr_variable *v, const char *name, void *arg)
{
    saver *s = arg;
    TSRI_TRY(tsri_variable_gather(v, s->buffer));
    if (s->writer && s->written == TSR_OK)
        s->written =
            tsri_st_writer_write(s->writer, name, 0, s->buffer,
                                 (size_t)tsr_dims_count(file_dims(v)) * tsr_dtype_size(v->dtype));
    return TSR_OK;
}

static tsr_status check_save(tsr_module *m, const char *path, saver *s)
{
    if (!path || !path[0])
        return tsri_fail(TSR_ERR_INVALID, "tsr_save: the path is %s", path ? "empty" : "NULL");
    bool writes = m->world->rank == 0 || tsri_scope_is_local(&m->scope);
    return writes ? start_writing(m, path, s) : TSR_OK;
}

tsr_status tsr_save(tsr_module *m, const char *path)
{
    if (!m)
        return tsri_fail(TSR_ERR_INVALID, "tsr_save: the module is NULL");
    TSRI_TRY(tsri_live_check(m, TSRI_LIVE_MODULE, "tsr_save"));
    if (m->world->is_virtual)
        return tsri_fail(TSR_ERR_STATE, "tsr_save: a virtual world has no data");
    saver s = {0};
    tsr_status status = agree(m, check_save(m, path, &s));
    if (status == TSR_OK) {
        status = tsr_module_visit(m, save_variable, &s);
        if (status == TSR_OK)
            status = s.written;
        /* The file gets its name only when all of it is there. */
        if (status == TSR_OK && s.writer)
            status = tsri_st_writer_finish(s.writer);
        status = agree(m, status);
    }
    tsri_st_writer_destroy(s.writer);
    tsri_mem_free(s.buffer);
    return status;
}
