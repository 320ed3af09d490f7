/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving. On the ranks' own threads: they settle what is saved and who writes which piece, and copy
 * what can't be read later. Then a job, on a thread of its own where the user asks for it: it
 * writes this rank's file, and gives the checkpoint its name if that was the last one.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "placement/placement.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/core/live.h"
#include "src/core/retry.h"
#include "src/core/rng.h"
#include "src/graph/variable.h"
#include "src/train/checkpoint/checksum.h"
#include "src/train/checkpoint/job.h"

/* --- a save ----------------------------------------------------------------------------------- */
typedef struct saving {
    tsr_checkpoint *c;
    tsri_ckpt_job *job;
    tsri_items items;
    /* By item: how many bytes each rank has of its own; NULL: all have the same bytes. */
    int64_t **lengths;
    char **held;    /* of each item, this rank's bytes in host memory; NULL: not needed here */
    int64_t *loads; /* bytes that each rank writes, so far */
    size_t used;    /* of the copies */
} saving;

static size_t item_bytes(const tsri_item *item)
{
    const tsr_variable *v = item->variable;
    return v ? (size_t)tsr_dims_count(v->shape) * tsr_dtype_size(v->dtype) : item->nbytes;
}

/* Returns a hash of what all ranks must have alike: names, dtypes, shapes and layouts. */
static uint64_t hash_items(const saving *s)
{
    uint64_t h = TSRI_HASH_INIT;
    for (int i = 0; i < s->items.n; i++) {
        const tsri_item *item = &s->items.item[i];
        const tsr_variable *v = item->variable;
        h = tsri_hash(h, item->name, strlen(item->name) + 1);
        if (!v)
            continue;
        const int64_t facts[] = {(int64_t)v->dtype, v->shape.ndim, item->own};
        h = tsri_hash(h, facts, sizeof facts);
        h = tsri_hash(h, v->shape.d, sizeof *v->shape.d * (size_t)v->shape.ndim);
        if (!item->own)
            h = tsri_hash(h, &v->held, sizeof v->held);
    }
    return h;
}

/* Ranks show each other this first. */
typedef struct greeting {
    uint64_t items;
    int64_t step;
    char id[TSRI_CKPT_ID + 7];
} greeting;

static tsr_status exchange(tsr_world *w, const void *mine, size_t bytes, void *all)
{
    if (w->nranks == 1) {
        memcpy(all, mine, bytes);
        return TSR_OK;
    }
    return w->comm->ops->exchange(w->comm, mine, bytes, all);
}

static tsr_status make_id(char id[TSRI_CKPT_ID])
{
    uint64_t random[2];
    if (TSRI_RETRY(getrandom(random, sizeof random, 0)) != sizeof random)
        return tsri_fail(TSR_ERR_IO, "getrandom: %s", strerror(errno));
    snprintf(id, TSRI_CKPT_ID, "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    return TSR_OK;
}

/* All ranks get rank 0's id, and learn whether they save the same. */
static tsr_status greet(saving *s)
{
    tsr_world *w = s->c->world;
    greeting mine = {.items = hash_items(s), .step = s->job->index.step};
    tsr_status status = make_id(mine.id);
    greeting *all = tsri_pool_alloc(&s->job->pool, (size_t)w->nranks * sizeof *all);
    if (status == TSR_OK && !all)
        status = TSR_ERR_NO_MEMORY;
    TSRI_TRY(tsri_agree(w, status));
    TSRI_TRY(exchange(w, &mine, sizeof mine, all));
    memcpy(s->job->index.id, all[0].id, TSRI_CKPT_ID);
    for (int r = 1; r < w->nranks; r++) {
        if (all[r].step != all[0].step)
            return tsri_fail(TSR_ERR_MISMATCH,
                             "tsr_checkpoint_save: rank %d saves step %" PRId64
                             ", rank 0 step %" PRId64,
                             r, all[r].step, all[0].step);
        if (all[r].items != all[0].items)
            return tsri_fail(TSR_ERR_MISMATCH,
                             "tsr_checkpoint_save: rank %d saves other parts or tensors than "
                             "rank 0, or has them in another layout",
                             r);
    }
    return TSR_OK;
}

/* Makes room for `bytes` of copies; what was copied stays. */
static tsr_status need_copies(tsr_checkpoint *c, size_t bytes)
{
    if (bytes <= c->copies_bytes)
        return TSR_OK;
    tsri_mem_free(c->copies);
    c->copies_bytes = 0;
    c->copies = tsri_mem_alloc(&c->world->mem, bytes);
    TSRI_NEED(c->copies);
    c->copies_bytes = bytes;
    return TSR_OK;
}

/* Whether a variable's shard must be copied, or can be read where it is while it is written. */
static bool is_copied(const saving *s, const tsr_variable *v)
{
    return v->data && (s->c->opts.async || v->device->stream || tsri_variable_adds_up(v));
}

/* Bytes of copies, at most: of all shards here. */
static size_t count_copies(const saving *s)
{
    size_t n = 0;
    for (int i = 0; i < s->items.n; i++) {
        const tsr_variable *v = s->items.item[i].variable;
        const bool gathers = s->c->opts.one_file && v && !s->items.item[i].own;
        if (gathers)
            n += s->c->world->rank == 0 ? (item_bytes(&s->items.item[i]) + 63) & ~(size_t)63 : 0;
        else if (v && is_copied(s, v))
            n += (v->bytes + 63) & ~(size_t)63;
    }
    return n;
}

static char *take_copy(saving *s, size_t bytes)
{
    char *p = s->c->copies + s->used;
    s->used += (bytes + 63) & ~(size_t)63;
    return p;
}

/* Puts this rank's bytes of an item where the job will read them. */
static tsr_status hold(saving *s, int i)
{
    const tsri_item *item = &s->items.item[i];
    tsr_variable *v = item->variable;
    if (s->held[i] || (v && !v->data))
        return TSR_OK;
    s->held[i] = !v ? item->bytes : is_copied(s, v) ? take_copy(s, v->bytes) : v->data;
    return v && is_copied(s, v) ? tsri_variable_read(v, 0, s->held[i], v->bytes) : TSR_OK;
}

/* Reduces a variable of which each rank has an addend, so that any number of ranks can load it.
 * Collective. */
static tsr_status hold_sum(saving *s, int i)
{
    tsr_variable *v = s->items.item[i].variable;
    s->held[i] = v->data ? take_copy(s, v->bytes) : NULL;
    return tsri_variable_sum(v, s->held[i]);
}

static tsr_status list_items(saving *s)
{
    tsr_checkpoint *c = s->c;
    tsri_pool *pool = &s->job->pool;
    TSRI_TRY(tsri_ckpt_items(c, true, pool, &s->items));
    for (int i = 0; i < s->items.n; i++)
        if (s->items.item[i].variable)
            TSRI_TRY(tsri_variable_prepare(s->items.item[i].variable));
    const size_t n = (size_t)s->items.n;
    s->lengths = tsri_pool_alloc(pool, n * sizeof *s->lengths);
    s->held = tsri_pool_alloc(pool, n * sizeof *s->held);
    s->loads = tsri_pool_alloc(pool, (size_t)c->world->nranks * sizeof *s->loads);
    TSRI_NEED(s->lengths && s->held && s->loads);
    TSRI_TRY(need_copies(c, count_copies(s)));
    for (int i = 0; i < s->items.n; i++)
        if (s->items.item[i].own)
            TSRI_TRY(hold(s, i));
    return TSR_OK;
}

typedef struct own_sum {
    uint64_t sum;
    int64_t bytes;
} own_sum;

/* Notes how many bytes of item i each rank has, unless all have the same. */
static tsr_status note_lengths(saving *s, int i, const own_sum *of_first, int stride)
{
    const int n = s->c->world->nranks;
    bool same = true;
    for (int r = 1; r < n; r++)
        same &= !memcmp(&of_first[r * stride], of_first, sizeof *of_first);
    if (same)
        return TSR_OK;
    s->lengths[i] = tsri_pool_alloc(&s->job->pool, (size_t)n * sizeof **s->lengths);
    TSRI_NEED(s->lengths[i]);
    for (int r = 0; r < n; r++)
        s->lengths[i][r] = of_first[r * stride].bytes;
    return TSR_OK;
}

/* Finds which of the items that ranks have of their own are the same everywhere. */
static tsr_status compare_own(saving *s)
{
    enum { PIECE = 1024 }; /* sums in one exchange */
    tsr_world *w = s->c->world;
    own_sum *mine = tsri_pool_alloc(&s->job->pool, PIECE * sizeof *mine);
    own_sum *all = tsri_pool_alloc(&s->job->pool, (size_t)w->nranks * PIECE * sizeof *all);
    tsr_status status = tsri_agree(w, mine && all ? TSR_OK : TSR_ERR_NO_MEMORY);
    for (int begin = 0; begin < s->items.n && status == TSR_OK; begin += PIECE) {
        const int n = s->items.n - begin < PIECE ? s->items.n - begin : PIECE;
        memset(mine, 0, PIECE * sizeof *mine);
        for (int i = 0; i < n; i++) {
            const size_t bytes = item_bytes(&s->items.item[begin + i]);
            const char *held = s->items.item[begin + i].own ? s->held[begin + i] : NULL;
            if (held)
                mine[i] = (own_sum){tsri_checksum(held, bytes), (int64_t)bytes};
        }
        status = exchange(w, mine, (size_t)n * sizeof *mine, all);
        for (int i = 0; i < n && status == TSR_OK; i++)
            status = note_lengths(s, begin + i, &all[i], n);
    }
    return status;
}

/* --- pieces ----------------------------------------------------------------------------------- */
/* Adds the next piece of tensor t, which `owner` writes: `data` is its bytes there. */
static tsr_status add_piece(saving *s, tsri_ckpt_tensor *t, const char *name, int owner,
                            tsr_dims dims, const int64_t *offset, const void *data)
{
    tsri_ckpt_job *job = s->job;
    tsri_ckpt_piece *p = &t->pieces[t->npieces++];
    *p = (tsri_ckpt_piece){.file = owner, .dims = dims};
    for (int a = 0; a < dims.ndim && offset; a++)
        p->offset[a] = offset[a];
    s->loads[owner] += tsr_dims_count(dims) * (int64_t)tsr_dtype_size(t->dtype);
    if (owner != job->rank)
        return TSR_OK;
    TSRI_NEED(TSRI_PUSH(&job->pool, job->sources, job->nsources, job->capacity));
    const tsri_ckpt_source source = {tsri_pool_strdup(&job->pool, name), t->dtype, dims, data};
    TSRI_NEED(source.name);
    job->sources[job->nsources++] = source;
    return TSR_OK;
}

/* Which box of the value the i-th rank of a placement holds, by its place on the axes that split.
 */
static int box_of(const tsr_placement *p, tsr_sbp sbp, int i)
{
    int box = 0, scale = tsr_placement_nranks(p);
    for (int a = 0; a < sbp.ndim; a++) {
        const int n = tsr_placement_dim(p, a);
        scale /= n;
        if (sbp.d[a].kind == TSR_SBP_SPLIT)
            box = box * n + i / scale;
        i %= scale;
    }
    return box;
}

/* Each box of a variable is written by that of its holders which writes least so far. */
static tsr_status add_boxes(saving *s, int i, tsri_ckpt_tensor *t)
{
    const tsr_variable *v = s->items.item[i].variable;
    const int n = tsr_placement_nranks(v->placement);
    int *owners = tsri_pool_alloc(&s->job->pool, (size_t)n * sizeof *owners); /* by box; less 1 */
    TSRI_NEED(owners);
    if (tsri_variable_adds_up(v))
        TSRI_TRY(hold_sum(s, i));
    for (int j = 0; j < n; j++) {
        const int rank = tsr_placement_rank(v->placement, j);
        int *owner = &owners[box_of(v->placement, v->held, j)];
        if (!*owner || s->loads[rank] < s->loads[*owner - 1])
            *owner = rank + 1;
    }
    for (int box = 0; box < n; box++) {
        const int owner = owners[box] - 1;
        tsr_dims dims;
        int64_t offset[TSR_MAX_NDIM];
        if (owner < 0)
            continue;
        tsri_shard(v->shape, v->placement, v->held, owner, &dims, offset);
        if (tsr_dims_count(dims) == 0)
            continue;
        if (owner == s->job->rank)
            TSRI_TRY(hold(s, i));
        if (tsr_dims_count(dims) == tsr_dims_count(v->shape)) /* a whole one, as it is saved */
            t->dims = dims = tsri_variable_saved_dims(v);
        TSRI_TRY(add_piece(s, t, t->name, owner, dims, offset, s->held[i]));
    }
    return TSR_OK;
}

/* An item that each rank has of its own is one piece, or one of each rank. */
static tsr_status add_own(saving *s, int i, tsri_ckpt_tensor *t)
{
    const int nranks = s->c->world->nranks;
    int least = 0;
    t->own = true;
    if (!s->lengths[i]) {
        for (int r = 1; r < nranks && !s->c->opts.one_file; r++)
            least = s->loads[r] < s->loads[least] ? r : least;
        return add_piece(s, t, t->name, least, t->dims, NULL, s->held[i]);
    }
    if (s->c->opts.one_file)
        return tsri_fail(TSR_ERR_STATE,
                         "'%s' differs from rank to rank; without .one_file each writes its own",
                         t->name);
    for (int r = 0; r < nranks; r++) {
        char name[TSRI_CKPT_NAME];
        tsri_ckpt_own_name(t->name, r, name, sizeof name);
        const tsr_dims dims = s->items.item[i].variable ? t->dims : TSR_DIMS(s->lengths[i][r]);
        TSRI_TRY(add_piece(s, t, name, r, dims, NULL, s->held[i]));
    }
    return TSR_OK;
}

/* Rank 0 writes the whole value. Collective. */
static tsr_status add_gathered(saving *s, int i, tsri_ckpt_tensor *t)
{
    const bool writes = s->job->rank == 0;
    char *whole = writes ? take_copy(s, item_bytes(&s->items.item[i])) : NULL;
    TSRI_TRY(tsri_variable_gather(s->items.item[i].variable, whole));
    return tsr_dims_count(t->dims) ? add_piece(s, t, t->name, 0, t->dims, NULL, whole) : TSR_OK;
}

/* The signature in which a variable is saved. */
static tsr_sbp saved_sbp(const tsr_variable *v)
{
    tsr_sbp sbp = v->held;
    for (int d = 0; d < sbp.ndim; d++)
        if (sbp.d[d].kind == TSR_SBP_PARTIAL)
            sbp.d[d] = (tsr_sbp1){TSR_SBP_BROADCAST, 0};
    return sbp;
}

static tsr_status add_tensor(saving *s, int i)
{
    const tsri_item *item = &s->items.item[i];
    const tsr_variable *v = item->variable;
    tsri_ckpt_index *index = &s->job->index;
    char sbp[TSR_SBP_TEXT_MAX] = "";
    if (v && !item->own)
        tsr_sbp_format(saved_sbp(v), sbp);
    const int most = v && !item->own ? tsr_placement_nranks(v->placement) : s->c->world->nranks;
    tsri_ckpt_tensor t = {
        .name = tsri_pool_strdup(&index->pool, item->name),
        .dtype = v ? v->dtype : TSR_U8,
        .dims = !v                                 ? TSR_DIMS((int64_t)item->nbytes)
                : item->own || s->c->opts.one_file ? tsri_variable_saved_dims(v)
                                                   : v->shape,
        .saved = v ? tsri_variable_saved_dims(v) : TSR_DIMS((int64_t)item->nbytes),
        .placement = v ? tsri_pool_strdup(&index->pool, tsr_placement_text(v->placement)) : "",
        .sbp = tsri_pool_strdup(&index->pool, sbp),
        .pieces = tsri_pool_alloc(&index->pool, (size_t)most * sizeof *t.pieces),
    };
    TSRI_NEED(t.name && t.placement && t.sbp && t.pieces);
    TSRI_TRY(item->own             ? add_own(s, i, &t)
             : s->c->opts.one_file ? add_gathered(s, i, &t)
                                   : add_boxes(s, i, &t));
    TSRI_NEED(TSRI_PUSH(&index->pool, index->tensors, index->ntensors, index->capacity));
    index->tensors[index->ntensors++] = t;
    return TSR_OK;
}

/* --- the folder ------------------------------------------------------------------------------- */
/* Rank 0 makes the folder that all write into; the others look whether they see it. */
static tsr_status make_folder(saving *s)
{
    tsr_checkpoint *c = s->c;
    tsri_ckpt_job *job = s->job;
    tsr_status status =
        tsri_ckpt_making_path(c->folder, job->index.step, job->index.id, job->making);
    if (status == TSR_OK && job->rank == 0 && c->lock_fd < 0)
        status = tsri_ckpt_lock(c->folder, &c->lock_fd, &job->stays);
    if (status == TSR_OK && job->rank == 0 && TSRI_RETRY(mkdir(job->making, 0777)))
        status = tsri_fail(TSR_ERR_IO, "%s: can't make it: %s", job->making, strerror(errno));
    TSRI_TRY(tsri_agree(c->world, status));
    if (TSRI_RETRY(access(job->making, W_OK)))
        status = tsri_fail(TSR_ERR_IO,
                           "%s: %s; all ranks write into it, so the folder must be one that all "
                           "machines share",
                           job->making, strerror(errno));
    return tsri_agree(c->world, status);
}

static void set_index(tsri_ckpt_index *index, const tsr_checkpoint *c, int64_t step, double metric)
{
    struct tm utc;
    const time_t now = time(NULL);
    index->step = step;
    index->metric = metric;
    index->nranks = c->world->nranks;
    index->nfiles = c->opts.one_file ? 1 : c->world->nranks;
    if (gmtime_r(&now, &utc))
        strftime(index->time, sizeof index->time, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

static tsr_status make_job(tsr_checkpoint *c, int64_t step, double metric)
{
    tsri_ckpt_job *job = tsri_mem_alloc(&c->world->mem, sizeof *job);
    TSRI_NEED(job);
    tsri_pool_init(&job->pool, &c->world->mem);
    tsri_pool_init(&job->index.pool, &c->world->mem);
    set_index(&job->index, c, step, metric);
    job->rank = c->world->rank;
    job->nfiles = job->index.nfiles;
    job->folder = c->folder;
    job->keep = (tsri_ckpt_keep){c->opts.keep, c->opts.keep_best, c->opts.larger_is_better};
    c->job = job;
    return TSR_OK;
}

/* Settles what is saved and copies it: what the job needs. */
static tsr_status prepare(saving *s)
{
    tsr_world *w = s->c->world;
    TSRI_TRY(tsri_agree(w, list_items(s)));
    TSRI_TRY(greet(s));
    tsr_status status = compare_own(s);
    for (int i = 0; i < s->items.n && status == TSR_OK; i++)
        status = add_tensor(s, i);
    TSRI_TRY(tsri_agree(w, status));
    return make_folder(s);
}

/* All ranks' writing has ended: whether it went well for all, and no file is left if not. */
static tsr_status settle(tsr_checkpoint *c, tsr_status status, int64_t step, const char *id)
{
    tsri_ckpt_stays stays = {0};
    status = tsri_agree(c->world, status);
    if (!id[0])
        return status;
    if (status != TSR_OK) {
        if (c->world->rank == 0)
            tsri_ckpt_discard(c->folder, step, id, &stays);
        tsri_ckpt_warn(c, &stays);
        return status;
    }
    /* The last rank may not have seen all files, as of a file system of a network. */
    const tsri_ckpt_keep keep = {c->opts.keep, c->opts.keep_best, c->opts.larger_is_better};
    const int nfiles = c->opts.one_file ? 1 : c->world->nranks;
    if (c->world->rank == 0)
        status = tsri_ckpt_commit(c->folder, step, id, nfiles, true, &keep, &stays);
    tsri_ckpt_warn(c, &stays);
    return tsri_agree(c->world, status);
}

/* Waits for the save under way, in a call that all ranks make. Collective. */
static tsr_status end_save(tsr_checkpoint *c, const char *call)
{
    const bool has_job = c->job != NULL;
    const int64_t step = has_job ? c->job->index.step : 0;
    char id[TSRI_CKPT_ID] = "";
    if (c->job)
        memcpy(id, c->job->index.id, sizeof id);
    char text[1024];
    tsr_status status = settle(c, tsri_ckpt_join(c), step, id);
    if (status == TSR_OK)
        return status;
    snprintf(text, sizeof text, "%s", tsr_last_error());
    return has_job ? tsri_fail(status, "the checkpoint of step %" PRId64 ": %s", step, text)
                   : tsri_fail(status, "%s, which all ranks call: %s", call, text);
}

/* Whether an error is the disk's or the memory's, so that a run can go on without the checkpoint.
 */
static bool is_local_failure(tsr_status status)
{
    return status == TSR_ERR_IO || status == TSR_ERR_NO_MEMORY;
}

static tsr_status answer(const tsr_checkpoint *c, tsr_status status)
{
    if (status == TSR_OK || !c->opts.warn || !is_local_failure(status))
        return status;
    tsri_log(c->world, TSR_LOG_WARNING, "not saved: %s", tsr_last_error());
    return TSR_OK;
}

static tsr_status save(tsr_checkpoint *c, int64_t step, double metric)
{
    saving s = {.c = c};
    tsr_status status = tsri_agree(c->world, make_job(c, step, metric));
    s.job = c->job;
    if (status == TSR_OK)
        status = prepare(&s);
    if (status == TSR_OK)
        tsri_ckpt_job_start(c);
    else if (s.job) {
        if (s.job->rank == 0 && s.job->making[0])
            tsri_ckpt_discard(c->folder, step, s.job->index.id, &s.job->stays);
        tsri_ckpt_warn(c, &s.job->stays);
        tsri_ckpt_job_free(s.job);
        c->job = NULL;
    }
    TSRI_TRY(status);
    return c->opts.async ? TSR_OK : end_save(c, "tsr_checkpoint_save");
}

static tsr_status check(const tsr_checkpoint *c, const char *who)
{
    return c ? tsri_live_check(c, TSRI_LIVE_CHECKPOINT, who)
             : tsri_fail(TSR_ERR_INVALID, "%s: the checkpoint is NULL", who);
}

tsr_status tsr_checkpoint_save(tsr_checkpoint *c, int64_t step, double metric)
{
    TSRI_TRY(check(c, __func__));
    if (step < 0 || isinf(metric))
        return tsri_fail(TSR_ERR_INVALID, "tsr_checkpoint_save: step %" PRId64 ", metric %g", step,
                         metric);
    TSRI_TRY(answer(c, end_save(c, __func__)));
    return answer(c, save(c, step, metric));
}

tsr_status tsr_checkpoint_wait(tsr_checkpoint *c)
{
    TSRI_TRY(check(c, __func__));
    return answer(c, end_save(c, __func__));
}
