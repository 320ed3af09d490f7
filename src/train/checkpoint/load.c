/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading, in phases that all ranks agree on: the index is held against the parts; each rank reads
 * and checks all that it needs, and keeps none of it but values; the values are set, and set back
 * if one does not fit; then the tensors are read again, into the variables.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/core/convert.h"
#include "src/core/live.h"
#include "src/core/opts.h"
#include "src/graph/variable.h"
#include "src/train/checkpoint/checkpoint.h"
#include "src/train/checkpoint/folder.h"
#include "src/train/checkpoint/shard.h"

/* Bytes that pass through a conversion, or to a device, at once. */
enum { CHUNK = 65536 };

typedef struct loading {
    tsr_checkpoint *c;
    tsri_pool pool;
    const char *path; /* of the checkpoint */
    bool partial;
    bool has_index;
    tsri_ckpt_index index;
    tsri_ckpt_shard **shards; /* by file; NULL: not open yet */
    tsri_items items;
    const char **names;               /* the items', sorted */
    const tsri_ckpt_tensor **tensors; /* by item; NULL: not in the file, and left as it is */
    char **values;                    /* by item, those of values */
    bool writes;                      /* else all is only read and checked */
    char *chunk;
} loading;

/* --- what goes where -------------------------------------------------------------------------- */
/* Whether a variable's pieces are whole values, in the shape that it is saved as. */
static bool is_reshaped(const tsr_variable *v, const tsri_ckpt_tensor *t)
{
    return !tsr_dims_equal(v->shape, t->dims) &&
           tsr_dims_equal(tsri_variable_saved_dims(v), t->dims) && (t->own || t->npieces <= 1);
}

static tsr_status check_fit(const loading *l, const tsri_item *item, const tsri_ckpt_tensor *t)
{
    const tsr_variable *v = item->variable;
    if (item->own != t->own)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: '%s' is %s in the checkpoint, and %s here (tsr_module_set_local)",
                         l->path, item->name, t->own ? "each rank's own" : "one of all ranks",
                         item->own ? "each rank's own" : "one of all ranks");
    if (v && !tsr_dims_equal(v->shape, t->dims) && !is_reshaped(v, t)) {
        char in_file[TSRI_DIMS_TEXT_MAX], here[TSRI_DIMS_TEXT_MAX];
        return tsri_fail(TSR_ERR_SHAPE, "%s: '%s' has shape (%s) in the checkpoint, (%s) here",
                         l->path, item->name, tsri_dims_format(t->dims, in_file),
                         tsri_dims_format(tsri_variable_saved_dims(v), here));
    }
    if (v && v->dtype != t->dtype && !(tsri_is_float(v->dtype) && tsri_is_float(t->dtype)))
        return tsri_fail(TSR_ERR_DTYPE,
                         "%s: '%s' is %s in the checkpoint, %s here; only floating point converts",
                         l->path, item->name, tsr_dtype_name(t->dtype), tsr_dtype_name(v->dtype));
    if (!v && (t->dtype != TSR_U8 || t->dims.ndim != 1 || t->dims.d[0] > INT32_MAX))
        return tsri_fail(TSR_ERR_FORMAT, "%s: '%s' is no value", l->path, item->name);
    const int nranks = l->c->world->nranks;
    const bool moves = !v && item->part->kind == TSRI_PART_LOADER;
    if (t->own && t->npieces > 1 && t->npieces != nranks && !moves)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: '%s' differs between the %d ranks that saved it; it can be loaded on "
                         "as many, and there are %d",
                         l->path, item->name, t->npieces, nranks);
    return TSR_OK;
}

/* Whether a tensor of the checkpoint is of a part. Gradients of an optimizer that has none yet are
 * refused with its numbers, which say more. */
static bool is_of_part(const char *name, const tsri_part *part)
{
    static const char mean[] = ".gradient";
    const size_t n = strlen(part->name), all = strlen(name);
    if (part->kind == TSRI_PART_OPTIMIZER && all >= sizeof mean &&
        !strcmp(name + all - (sizeof mean - 1), mean))
        return false;
    return !strncmp(name, part->name, n) && (!name[n] || name[n] == '/');
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_wanted(const loading *l, const char *name)
{
    return l->items.n && bsearch(&name, l->names, (size_t)l->items.n, sizeof name, compare_names);
}

/* Whether a part may lack tensors of the checkpoint, or have others: states that follow from
 * numbers of the program's. */
static bool may_differ(const loading *l, const tsri_part *part)
{
    return l->c->program_wins &&
           (part->kind == TSRI_PART_OPTIMIZER || part->kind == TSRI_PART_SCALER);
}

static tsr_status check_extra(const loading *l)
{
    for (int i = 0; i < l->index.ntensors && !l->partial; i++) {
        const char *name = l->index.tensors[i].name;
        for (int j = 0; j < l->c->nparts; j++)
            if (is_of_part(name, &l->c->parts[j]) && !is_wanted(l, name) &&
                !may_differ(l, &l->c->parts[j]))
                return tsri_fail(TSR_ERR_INVALID,
                                 "%s: it has '%s', which '%s' has not; a load with .partial = true "
                                 "takes what both have",
                                 l->path, name, l->c->parts[j].name);
    }
    return TSR_OK;
}

static tsr_status match_items(loading *l)
{
    const size_t n = (size_t)l->items.n;
    for (int i = 0; i < l->items.n; i++)
        l->names[i] = l->items.item[i].name;
    if (n)
        qsort(l->names, n, sizeof *l->names, compare_names);
    for (int i = 0; i < l->items.n; i++) {
        const tsri_item *item = &l->items.item[i];
        const tsri_ckpt_tensor *t = tsri_ckpt_index_find(&l->index, item->name);
        if (!t && (l->partial || item->may_lack || may_differ(l, item->part)))
            continue;
        if (!t)
            return tsri_fail(TSR_ERR_INVALID,
                             "%s: it has no '%s'; a load with .partial = true takes what there is",
                             l->path, item->name);
        TSRI_TRY(check_fit(l, item, t));
        l->tensors[i] = t;
        if (item->variable)
            TSRI_TRY(tsri_variable_place(item->variable));
    }
    return check_extra(l);
}

/* --- reading ---------------------------------------------------------------------------------- */
static tsr_status open_piece(loading *l, const tsri_ckpt_tensor *t, int piece,
                             tsri_ckpt_shard **out_shard, const tsri_st_entry **out_entry)
{
    const int file = t->pieces[piece].file;
    if (!l->shards[file])
        TSRI_TRY(
            tsri_ckpt_shard_open(&l->c->world->mem, l->path, &l->index, file, &l->shards[file]));
    *out_shard = l->shards[file];
    return tsri_ckpt_shard_find(*out_shard, t, piece, out_entry);
}

/* A run of elements from a piece to a variable's shard. */
typedef struct run {
    tsri_ckpt_shard *shard;
    const tsri_st_entry *entry;
    tsr_variable *v;
    int64_t from, to, n;
} run;

static tsr_status move_run(loading *l, const run *r)
{
    const size_t size = tsr_dtype_size(r->entry->dtype), own = tsr_dtype_size(r->v->dtype);
    const uint64_t at = (uint64_t)r->from * size;
    const bool same = r->entry->dtype == r->v->dtype, seen = !r->v->device->stream;
    if (l->writes)
        tsri_variable_wrote(r->v);
    if (!l->writes || (same && seen))
        return tsri_ckpt_shard_read(r->shard, r->entry, at, (size_t)r->n * size,
                                    l->writes ? (char *)r->v->data + (size_t)r->to * own : NULL);
    char *converted = l->chunk + CHUNK / 2; /* elements have at most 8 bytes on both sides */
    const int64_t most = CHUNK / 2 / (int64_t)sizeof(double);
    for (int64_t i = 0; i < r->n; i += most) {
        const int64_t n = r->n - i < most ? r->n - i : most;
        TSRI_TRY(tsri_ckpt_shard_read(r->shard, r->entry, at + (uint64_t)i * size, (size_t)n * size,
                                      l->chunk));
        if (!same)
            TSRI_TRY(tsri_convert(converted, r->v->dtype, l->chunk, r->entry->dtype, n));
        TSRI_TRY(tsri_variable_write(r->v, (size_t)(r->to + i) * own, same ? l->chunk : converted,
                                     (size_t)n * own));
    }
    return TSR_OK;
}

/* Moves what a piece and this rank's shard have in common, in runs that are contiguous in both.
 * *left: elements of the shard that no piece has given yet. */
static tsr_status move_box(loading *l, run *r, const tsri_ckpt_piece *p, int64_t *left)
{
    const tsr_variable *v = r->v;
    const int ndim = v->shape.ndim;
    int64_t low[TSR_MAX_NDIM], length[TSR_MAX_NDIM], outer = 1;
    for (int a = 0; a < ndim; a++) {
        const int64_t high_p = p->offset[a] + p->dims.d[a], high_v = v->offset[a] + v->lshape.d[a];
        low[a] = p->offset[a] > v->offset[a] ? p->offset[a] : v->offset[a];
        length[a] = (high_p < high_v ? high_p : high_v) - low[a];
        if (length[a] <= 0)
            return TSR_OK;
    }
    int inner = ndim; /* from this axis on a run is contiguous */
    r->n = 1;
    while (inner > 0) {
        inner--;
        r->n *= length[inner];
        if (length[inner] != p->dims.d[inner] || length[inner] != v->lshape.d[inner])
            break;
    }
    for (int a = 0; a < inner; a++)
        outer *= length[a];
    for (int64_t i = 0; i < outer; i++) {
        int64_t rest = i, scale_p = 1, scale_v = 1;
        r->from = r->to = 0;
        for (int a = ndim - 1; a >= 0; a--) {
            const int64_t at = low[a] + (a < inner ? rest % length[a] : 0);
            rest /= a < inner ? length[a] : 1;
            r->from += (at - p->offset[a]) * scale_p;
            r->to += (at - v->offset[a]) * scale_v;
            scale_p *= p->dims.d[a];
            scale_v *= v->lshape.d[a];
        }
        TSRI_TRY(move_run(l, r));
        *left -= r->n;
    }
    return TSR_OK;
}

static tsr_status move_variable(loading *l, int i)
{
    const tsri_ckpt_tensor *t = l->tensors[i];
    run r = {.v = l->items.item[i].variable};
    if (!r.v->data)
        return TSR_OK;
    int64_t left = tsr_dims_count(r.v->lshape);
    const int rank = l->c->world->rank;
    for (int p = 0; p < t->npieces; p++) {
        if (t->own && t->npieces > 1 && p != rank)
            continue;
        tsri_ckpt_piece box = t->pieces[p], *piece = &box;
        bool meets = true;
        if (is_reshaped(r.v, t))
            box = (tsri_ckpt_piece){.file = box.file, .dims = r.v->shape};
        for (int a = 0; a < r.v->shape.ndim; a++)
            meets &= piece->offset[a] < r.v->offset[a] + r.v->lshape.d[a] &&
                     r.v->offset[a] < piece->offset[a] + piece->dims.d[a];
        if (!meets)
            continue;
        TSRI_TRY(open_piece(l, t, p, &r.shard, &r.entry));
        TSRI_TRY(move_box(l, &r, piece, &left));
    }
    return left == 0 ? TSR_OK
                     : tsri_fail(TSR_ERR_FORMAT, "%s: '%s': its pieces do not make it up", l->path,
                                 t->name);
}

/* Which rank's value this rank takes. */
static int piece_here(const loading *l, const tsri_ckpt_tensor *t)
{
    return t->npieces == l->c->world->nranks ? l->c->world->rank : 0;
}

static tsr_status read_value(loading *l, int i)
{
    const tsri_ckpt_tensor *t = l->tensors[i];
    const int piece = t->npieces > 1 ? piece_here(l, t) : 0;
    const size_t bytes = (size_t)t->pieces[piece].dims.d[0];
    tsri_ckpt_shard *shard;
    const tsri_st_entry *entry;
    TSRI_TRY(open_piece(l, t, piece, &shard, &entry));
    l->values[i] = tsri_pool_alloc(&l->pool, bytes + 1);
    TSRI_NEED(l->values[i]);
    return tsri_ckpt_shard_read(shard, entry, 0, bytes, l->values[i]);
}

/* Reads and checks all that this rank needs. */
static tsr_status check_all(loading *l)
{
    for (int i = 0; i < l->items.n; i++)
        if (l->tensors[i])
            TSRI_TRY(l->items.item[i].variable ? move_variable(l, i) : read_value(l, i));
    return TSR_OK;
}

/* --- taking it -------------------------------------------------------------------------------- */
static tsr_status set_value(loading *l, int i)
{
    const tsri_item *item = &l->items.item[i];
    const tsri_ckpt_tensor *t = l->tensors[i];
    const int piece = t->npieces > 1 ? piece_here(l, t) : 0;
    const bool moved = l->index.nranks != l->c->world->nranks;
    tsr_status status =
        tsri_part_set(item->part, &l->pool, l->values[i], (size_t)t->pieces[piece].dims.d[0], moved,
                      l->c->program_wins);
    if (status == TSR_OK)
        return TSR_OK;
    char text[600];
    snprintf(text, sizeof text, "%s", tsr_last_error());
    return tsri_fail(status, "%s: '%s': %s", l->path, item->name, text);
}

/* Sets the values: generators last, since samplers that draw from one set it, too. */
static tsr_status set_each(loading *l)
{
    for (int last = 0; last < 2; last++)
        for (int i = 0; i < l->items.n; i++)
            if (l->values[i] && (l->items.item[i].part->kind == TSRI_PART_GENERATOR) == last)
                TSRI_TRY(set_value(l, i));
    return TSR_OK;
}

/* Sets all values, or none on any rank. */
static tsr_status set_values(loading *l)
{
    const tsr_status status = tsri_agree(l->c->world, set_each(l));
    if (status == TSR_OK)
        return TSR_OK;
    char text[1024];
    snprintf(text, sizeof text, "%s", tsr_last_error());
    for (int last = 0; last < 2; last++) /* to what items were made with */
        for (int i = 0; i < l->items.n; i++) {
            const tsri_item *item = &l->items.item[i];
            const bool now = l->values[i] && (item->part->kind == TSRI_PART_GENERATOR) == last;
            if (now && tsri_part_set(item->part, &l->pool, item->bytes, item->nbytes, false, false))
                tsri_log(l->c->world, TSR_LOG_WARNING,
                         "tsr_checkpoint_load: '%s' is not as it was: %s", item->name,
                         tsr_last_error());
        }
    return tsri_fail(status, "%s", text);
}

static tsr_status take_tensors(loading *l)
{
    l->writes = true;
    for (int i = 0; i < l->items.n; i++) {
        tsr_variable *v = l->items.item[i].variable;
        if (!l->tensors[i] || !v)
            continue;
        TSRI_TRY(move_variable(l, i));
        TSRI_TRY(tsri_variable_keep_addend(v));
        v->ready = v->given = true;
    }
    return TSR_OK;
}

static tsr_status open_index(loading *l)
{
    TSRI_TRY(tsri_ckpt_index_read(&l->c->world->mem, l->path, &l->index));
    l->has_index = true;
    return TSR_OK;
}

/* Hands the experiment of the checkpoint to the function that compares it. */
static tsr_status compare_experiments(loading *l)
{
    l->c->program_wins = false;
    for (int i = 0; i < l->items.n; i++) {
        const tsri_item *item = &l->items.item[i];
        if (item->part->kind != TSRI_PART_EXPERIMENT)
            continue;
        l->tensors[i] = tsri_ckpt_index_find(&l->index, item->name);
        if (l->tensors[i]) {
            TSRI_TRY(check_fit(l, item, l->tensors[i]));
            TSRI_TRY(read_value(l, i));
        }
        TSRI_TRY(item->part->resume(item->part->arg, l->path, l->values[i]));
        l->c->program_wins = l->tensors[i] != NULL;
    }
    return TSR_OK;
}

static tsr_status plan(loading *l)
{
    TSRI_TRY(open_index(l));
    TSRI_TRY(tsri_ckpt_items(l->c, false, &l->pool, &l->items));
    const size_t n = (size_t)l->items.n;
    l->names = tsri_pool_alloc(&l->pool, n * sizeof *l->names);
    l->tensors = tsri_pool_alloc(&l->pool, n * sizeof *l->tensors);
    l->values = tsri_pool_alloc(&l->pool, n * sizeof *l->values);
    l->shards = tsri_pool_alloc(&l->pool, (size_t)l->index.nfiles * sizeof *l->shards);
    l->chunk = tsri_pool_alloc(&l->pool, CHUNK);
    TSRI_NEED(l->names && l->tensors && l->values && l->shards && l->chunk);
    TSRI_TRY(compare_experiments(l));
    return match_items(l);
}

/* Loads one checkpoint. *damaged: it is of no use, and another may be; id: of its index, "" if that
 * can't be read. */
static tsr_status load(tsr_checkpoint *c, const char *path, bool partial, int64_t *out_step,
                       bool *damaged, char id[TSRI_CKPT_ID])
{
    tsr_world *w = c->world;
    loading l = {.c = c, .path = path, .partial = partial};
    tsri_pool_init(&l.pool, &w->mem);
    tsr_status status = tsri_agree(w, plan(&l));
    if (status == TSR_OK)
        status = tsri_agree(w, check_all(&l));
    *damaged = status == TSR_ERR_FORMAT || status == TSR_ERR_IO;
    if (status == TSR_OK)
        status = set_values(&l);
    if (status == TSR_OK)
        status = tsri_agree(w, take_tensors(&l));
    if (status == TSR_OK)
        *out_step = l.index.step;
    for (int i = 0; l.shards && i < l.index.nfiles; i++)
        tsri_ckpt_shard_close(l.shards[i]);
    snprintf(id, TSRI_CKPT_ID, "%s", l.has_index ? l.index.id : "");
    if (l.has_index)
        tsri_ckpt_index_finish(&l.index);
    tsri_pool_finish(&l.pool);
    return status;
}

/* --- which one -------------------------------------------------------------------------------- */
/* Rank 0 lists the folder for all, newest first: *out_n steps at `steps`, the best one alone if it
 * is asked for. */
static tsr_status list_for_all(tsr_checkpoint *c, bool best, int64_t steps[64], int *out_n)
{
    tsr_world *w = c->world;
    struct {
        int64_t n, steps[64];
    } mine = {0}, *all = tsri_mem_alloc(&w->mem, (size_t)w->nranks * sizeof mine);
    int64_t *found = NULL;
    int n = 0;
    tsr_status status = all ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK && w->rank == 0)
        status = tsri_ckpt_list(&w->mem, c->folder, &found, &n);
    tsr_status unread = TSR_OK;
    if (best && n)
        mine.n = tsri_ckpt_best(&w->mem, c->folder, found, n, c->opts.larger_is_better,
                                &mine.steps[0], &unread);
    if (unread != TSR_OK)
        tsri_log(w, TSR_LOG_WARNING, "%s; it can't be the best, then", tsr_last_error());
    for (int i = n - 1; !best && i >= 0 && mine.n < 64; i--)
        mine.steps[mine.n++] = found[i];
    tsri_mem_free(found);
    status = tsri_agree(w, status);
    if (status == TSR_OK && w->nranks > 1)
        status = w->comm->ops->exchange(w->comm, &mine, sizeof mine, all);
    else if (status == TSR_OK)
        all[0] = mine;
    if (status == TSR_OK) {
        *out_n = (int)all[0].n;
        memcpy(steps, all[0].steps, sizeof all[0].steps);
    }
    tsri_mem_free(all);
    return status;
}

/* Whether a rank finds that a run which saves has meanwhile removed or replaced the checkpoint:
 * ranks may have read the indexes of two saves. id: of this rank's. */
static bool has_gone(const tsr_checkpoint *c, int64_t step, const char *id)
{
    tsr_world *w = c->world;
    tsr_status status = TSR_OK;
    if (tsri_ckpt_has_gone(&w->mem, c->folder, step, id))
        status = tsri_fail(TSR_ERR_STATE, "%s: step %" PRId64 " has gone", c->folder, step);
    return tsri_agree(w, status) != TSR_OK;
}

/* Loads the first of the listed checkpoints that is not damaged. *gone: one of them was removed
 * before it was read, so that the list is old. */
static tsr_status load_listed(tsr_checkpoint *c, const tsr_checkpoint_load_opts *o,
                              int64_t *out_step, bool *gone)
{
    int64_t steps[64];
    int n = 0;
    bool damaged;
    tsr_status status = TSR_OK;
    *gone = false;
    TSRI_TRY(list_for_all(c, o->best, steps, &n));
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX], text[900], id[TSRI_CKPT_ID];
        TSRI_TRY(tsri_ckpt_path(c->folder, steps[i], path));
        status = load(c, path, o->partial, out_step, &damaged, id);
        if (status == TSR_OK || !damaged)
            return status;
        snprintf(text, sizeof text, "%s", tsr_last_error());
        *gone = has_gone(c, steps[i], id);
        if (!*gone && i + 1 < n && c->world->rank == 0)
            tsri_log(c->world, TSR_LOG_WARNING, "%s; the one before is taken", text);
        status = tsri_fail(status, "%s", text);
        if (*gone)
            return status;
    }
    return status;
}

tsr_status tsr_checkpoint_load(tsr_checkpoint *c, const tsr_checkpoint_load_opts *opts,
                               int64_t *out_step)
{
    tsr_checkpoint_load_opts o = *TSR_CHECKPOINT_LOAD_OPTS();
    int64_t step = -1;
    char id[TSRI_CKPT_ID];
    bool unused;
    if (!c)
        return tsri_fail(TSR_ERR_INVALID, "tsr_checkpoint_load: the checkpoint is NULL");
    TSRI_TRY(tsri_live_check(c, TSRI_LIVE_CHECKPOINT, __func__));
    TSRI_TRY(tsri_opts_read(&o, sizeof o, opts, __func__));
    TSRI_TRY(tsr_checkpoint_wait(c));
    tsr_status status = o.path ? load(c, o.path, o.partial, &step, &unused, id) : TSR_OK;
    bool gone = !o.path;
    for (int tries = 0; gone && tries < TSRI_CKPT_LISTS; tries++)
        status = load_listed(c, &o, &step, &gone);
    if (status == TSR_OK && out_step)
        *out_step = step;
    return status;
}
