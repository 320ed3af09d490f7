/* SPDX-License-Identifier: Apache-2.0 */
#include "src/cli/ckpt/ckpt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/train/checkpoint/folder.h"

static tsr_status add(ckpt_source *s, ckpt_tensor t)
{
    if (!t.name || !TSRI_PUSH(&s->pool, s->tensors, s->ntensors, s->capacity))
        return TSR_ERR_NO_MEMORY;
    s->tensors[s->ntensors++] = t;
    return TSR_OK;
}

static tsr_status list_checkpoint(ckpt_source *s)
{
    for (int i = 0; i < s->index.ntensors; i++) {
        const tsri_ckpt_tensor *from = &s->index.tensors[i];
        ckpt_tensor t = {from->name, from->dtype, from->saved, !*from->placement, i, -1};
        const int n = from->own && from->npieces > 1 ? from->npieces : 0;
        if (!n)
            TSRI_TRY(add(s, t));
        for (t.piece = 0; t.piece < n; t.piece++) {
            char name[TSRI_CKPT_NAME];
            tsri_ckpt_own_name(from->name, t.piece, name, sizeof name);
            t.name = tsri_pool_strdup(&s->pool, name);
            t.dims = from->pieces[t.piece].dims;
            TSRI_TRY(add(s, t));
        }
    }
    s->shards = tsri_pool_alloc(&s->pool, (size_t)s->index.nfiles * sizeof *s->shards);
    return s->shards ? TSR_OK : TSR_ERR_NO_MEMORY;
}

static tsr_status list_file(ckpt_source *s)
{
    for (int i = 0; i < tsri_st_count(s->file); i++) {
        const tsri_st_entry *e = tsri_st_at(s->file, i);
        TSRI_TRY(tsri_st_usable(s->file, e));
        TSRI_TRY(add(s, (ckpt_tensor){e->name, e->dtype, e->dims, false, i, -1}));
    }
    return TSR_OK;
}

tsr_status ckpt_steps(const char *path, int64_t **out_steps, int *out_n)
{
    char index[PATH_MAX];
    struct stat st;
    *out_steps = NULL;
    *out_n = 0;
    const bool is_one = snprintf(index, sizeof index, "%s/index.json", path) < (int)sizeof index &&
                        !stat(index, &st);
    if (is_one || stat(path, &st) || !S_ISDIR(st.st_mode))
        return TSR_OK;
    return tsri_ckpt_list(NULL, path, out_steps, out_n);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const ckpt_tensor *)a)->name, ((const ckpt_tensor *)b)->name);
}

const ckpt_tensor *ckpt_find(const ckpt_source *s, const char *name)
{
    const ckpt_tensor key = {.name = name};
    return s->ntensors ? bsearch(&key, s->tensors, (size_t)s->ntensors, sizeof key, compare_names)
                       : NULL;
}

static tsr_status sorted(ckpt_source *s, tsr_status status)
{
    if (status == TSR_OK && s->ntensors)
        qsort(s->tensors, (size_t)s->ntensors, sizeof *s->tensors, compare_names);
    return status;
}

static tsr_status open_checkpoint(ckpt_source *s, bool reads)
{
    TSRI_TRY(tsri_ckpt_index_read(NULL, s->path, &s->index));
    s->is_checkpoint = true;
    TSRI_TRY(sorted(s, list_checkpoint(s)));
    for (int i = 0; i < s->index.nfiles && reads; i++) {
        tsri_ckpt_shard *shard;
        TSRI_TRY(ckpt_shard(s, i, &shard));
    }
    return TSR_OK;
}

/* Opens the newest checkpoint of a run's folder. *gone: it was removed before it was open. */
static tsr_status open_newest(const char *folder, bool reads, ckpt_source *s, bool *gone)
{
    int64_t *steps;
    int n;
    TSRI_TRY(ckpt_steps(folder, &steps, &n));
    const int64_t newest = n ? steps[n - 1] : 0;
    tsri_mem_free(steps);
    if (!n)
        return tsri_fail(TSR_ERR_IO, "%s: there is no checkpoint in it", folder);
    TSRI_TRY(tsri_ckpt_path(folder, newest, s->path));
    const tsr_status status = open_checkpoint(s, reads);
    if (status == TSR_OK)
        return status;
    char text[900];
    snprintf(text, sizeof text, "%s", tsr_last_error());
    *gone = tsri_ckpt_has_gone(NULL, folder, newest, s->is_checkpoint ? s->index.id : "");
    return tsri_fail(status, "%s", text);
}

tsr_status ckpt_open(const char *path, bool reads, ckpt_source *s)
{
    struct stat st;
    char index[PATH_MAX];
    *s = (ckpt_source){0};
    if (snprintf(s->path, sizeof s->path, "%s", path) >= (int)sizeof s->path ||
        snprintf(index, sizeof index, "%s/index.json", path) >= (int)sizeof index)
        return tsri_fail(TSR_ERR_INVALID, "%.200s...: the path is too long", path);
    if (stat(path, &st))
        return tsri_fail(TSR_ERR_IO, "%s: can't open: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) {
        TSRI_TRY(tsri_st_open(NULL, path, &s->file));
        return sorted(s, list_file(s));
    }
    if (stat(index, &st) == 0)
        return open_checkpoint(s, reads);
    bool gone = true;
    tsr_status status = TSR_OK;
    for (int tries = 0; gone && tries < TSRI_CKPT_LISTS; tries++) {
        ckpt_close(s);
        *s = (ckpt_source){0};
        gone = false;
        status = open_newest(path, reads, s, &gone);
    }
    return status;
}

void ckpt_close(ckpt_source *s)
{
    for (int i = 0; s->shards && i < s->index.nfiles; i++)
        tsri_ckpt_shard_close(s->shards[i]);
    if (s->is_checkpoint)
        tsri_ckpt_index_finish(&s->index);
    tsri_st_close(s->file);
    tsri_pool_finish(&s->pool);
}

size_t ckpt_bytes(const ckpt_tensor *t)
{
    return (size_t)tsr_dims_count(t->dims) * tsr_dtype_size(t->dtype);
}

tsr_status ckpt_shard(ckpt_source *s, int file, tsri_ckpt_shard **out_shard)
{
    if (!s->shards[file])
        TSRI_TRY(tsri_ckpt_shard_open(NULL, s->path, &s->index, file, &s->shards[file]));
    *out_shard = s->shards[file];
    return TSR_OK;
}

void ckpt_place(const tsri_ckpt_tensor *t, const tsri_ckpt_piece *p, const char *from, char *to)
{
    const int last = p->dims.ndim - 1;
    const size_t size = tsr_dtype_size(t->dtype);
    const int64_t length = last < 0 ? 1 : p->dims.d[last];
    const int64_t rows = length ? tsr_dims_count(p->dims) / length : 0;
    for (int64_t row = 0; row < rows; row++) {
        int64_t rest = row, at = last < 0 ? 0 : p->offset[last];
        int64_t scale = last < 0 ? 1 : t->dims.d[last];
        for (int a = last - 1; a >= 0; a--) {
            at += (p->offset[a] + rest % p->dims.d[a]) * scale;
            rest /= p->dims.d[a];
            scale *= t->dims.d[a];
        }
        memcpy(to + (size_t)at * size, from + (size_t)(row * length) * size, (size_t)length * size);
    }
}

static tsr_status read_piece(ckpt_source *s, const ckpt_tensor *t, int piece, char *out_data)
{
    const tsri_ckpt_tensor *of = &s->index.tensors[t->entry];
    const tsri_ckpt_piece *p = &of->pieces[piece];
    const size_t bytes = (size_t)tsr_dims_count(p->dims) * tsr_dtype_size(t->dtype);
    tsri_ckpt_shard *shard;
    const tsri_st_entry *entry;
    TSRI_TRY(ckpt_shard(s, p->file, &shard));
    TSRI_TRY(tsri_ckpt_shard_find(shard, of, piece, &entry));
    if (bytes == ckpt_bytes(t))
        return tsri_ckpt_shard_read(shard, entry, 0, bytes, out_data);
    char *data = tsri_mem_alloc(NULL, bytes);
    tsr_status status =
        data ? tsri_ckpt_shard_read(shard, entry, 0, bytes, data) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        ckpt_place(of, p, data, out_data);
    tsri_mem_free(data);
    return status;
}

tsr_status ckpt_read(ckpt_source *s, const ckpt_tensor *t, void *out_data)
{
    if (!s->is_checkpoint)
        return tsri_st_read(s->file, tsri_st_at(s->file, t->entry), 0, ckpt_bytes(t), out_data);
    if (t->piece >= 0)
        return read_piece(s, t, t->piece, out_data);
    for (int i = 0; i < s->index.tensors[t->entry].npieces; i++)
        TSRI_TRY(read_piece(s, t, i, out_data));
    return TSR_OK;
}
