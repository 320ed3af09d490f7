/* SPDX-License-Identifier: Apache-2.0 */
#include "src/train/checkpoint/shard.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/train/checkpoint/checksum.h"

static const char sums_name[] = "tessera.checksums";
/* A pair of the header, whose value is the header's sum. */
static const char seal_start[] = "\"tessera.checksum\":\"";
static const char zeros[] = "0000000000000000";
enum { DIGITS = sizeof zeros - 1 };

static int64_t blocks_of(uint64_t bytes)
{
    return (int64_t)((bytes + TSRI_CKPT_BLOCK - 1) / TSRI_CKPT_BLOCK);
}

static size_t block_bytes(uint64_t bytes, int64_t block)
{
    const uint64_t left = bytes - (uint64_t)block * TSRI_CKPT_BLOCK;
    return left < TSRI_CKPT_BLOCK ? (size_t)left : TSRI_CKPT_BLOCK;
}

/* Where the header's sum stands; NULL if there is none. */
static char *find_seal(char *header, size_t bytes)
{
    char *at = memmem(header, bytes, seal_start, sizeof seal_start - 1);
    const size_t before = at ? (size_t)(at - header) + sizeof seal_start - 1 : 0;
    return at && bytes - before > DIGITS ? header + before : NULL;
}

void tsri_ckpt_own_name(const char *name, int rank, char *buf, size_t size)
{
    snprintf(buf, size, "%s@%d", name, rank);
}

/* --- out -------------------------------------------------------------------------------------- */
static void seal(char *header, size_t bytes)
{
    char digits[DIGITS + 1], *at = find_seal(header, bytes);
    snprintf(digits, sizeof digits, "%016" PRIx64, tsri_checksum(header, bytes));
    if (at)
        memcpy(at, digits, DIGITS);
}

static size_t source_bytes(const tsri_ckpt_source *s)
{
    return (size_t)tsr_dims_count(s->dims) * tsr_dtype_size(s->dtype);
}

static int compare_sources(const void *a, const void *b)
{
    return strcmp(((const tsri_ckpt_source *)a)->name, ((const tsri_ckpt_source *)b)->name);
}

/* The sums of all blocks, of which there are *out_count. */
static uint64_t *sum_blocks(tsri_mem *mem, int n, const tsri_ckpt_source *sources,
                            int64_t *out_count)
{
    int64_t count = 0, at = 0;
    for (int i = 0; i < n; i++)
        count += blocks_of(source_bytes(&sources[i]));
    uint64_t *sums = tsri_mem_alloc(mem, (size_t)count * sizeof *sums);
    for (int i = 0; sums && i < n; i++) {
        const size_t bytes = source_bytes(&sources[i]);
        for (int64_t b = 0; b < blocks_of(bytes); b++)
            sums[at++] = tsri_checksum((const char *)sources[i].data + b * TSRI_CKPT_BLOCK,
                                       block_bytes(bytes, b));
    }
    *out_count = count;
    return sums;
}

static tsr_status write_all(tsri_st_writer *w, const char *id, int n,
                            const tsri_ckpt_source *sources, const uint64_t *sums, int64_t nsums)
{
    char sum[DIGITS + 1];
    const size_t bytes = (size_t)nsums * sizeof *sums;
    snprintf(sum, sizeof sum, "%016" PRIx64, tsri_checksum(sums, bytes));
    TSRI_TRY(tsri_st_writer_add_metadata(w, "tessera.id", id));
    TSRI_TRY(tsri_st_writer_add_metadata(w, sums_name, sum));
    TSRI_TRY(tsri_st_writer_add_metadata(w, "tessera.checksum", zeros));
    tsri_st_writer_set_seal(w, seal);
    for (int i = 0; i < n; i++)
        TSRI_TRY(tsri_st_writer_add(w, sources[i].name, sources[i].dtype, sources[i].dims));
    TSRI_TRY(tsri_st_writer_add(w, sums_name, TSR_I64, TSR_DIMS(nsums)));
    TSRI_TRY(tsri_st_writer_begin(w));
    for (int i = 0; i < n; i++)
        TSRI_TRY(tsri_st_writer_write(w, sources[i].name, 0, sources[i].data,
                                      source_bytes(&sources[i])));
    TSRI_TRY(tsri_st_writer_write(w, sums_name, 0, sums, bytes));
    return tsri_st_writer_finish(w);
}

tsr_status tsri_ckpt_shard_write(tsri_mem *mem, const char *path, const char *id, int n,
                                 tsri_ckpt_source *sources)
{
    int64_t nsums = 0;
    tsri_st_writer *w = NULL;
    if (n)
        qsort(sources, (size_t)n, sizeof *sources, compare_sources);
    uint64_t *sums = sum_blocks(mem, n, sources, &nsums);
    tsr_status status = sums ? tsri_st_writer_create(mem, path, &w) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = write_all(w, id, n, sources, sums, nsums);
    tsri_st_writer_destroy(w);
    tsri_mem_free(sums);
    return status;
}

/* --- in --------------------------------------------------------------------------------------- */
/* An entry, and where its sums begin. */
typedef struct summed {
    const tsri_st_entry *entry;
    int64_t first;
} summed;

struct tsri_ckpt_shard {
    tsri_mem *mem;
    tsri_st_file *file;
    summed *entries; /* by name, without the sums themselves */
    int64_t count;
    uint64_t *sums;
    char *block;             /* the one that was read last */
    const tsri_st_entry *of; /* whose it is; NULL: none yet */
    int64_t number;
};

/* The header as bytes: its sum is of them. */
static tsr_status check_seal(const tsri_ckpt_shard *s, const char *path)
{
    char *header, sum[DIGITS + 1];
    size_t bytes;
    TSRI_TRY(tsri_st_header(s->file, s->mem, &header, &bytes));
    char *at = find_seal(header, bytes);
    tsr_status status = TSR_OK;
    if (!at)
        status = tsri_fail(TSR_ERR_FORMAT, "%s: no file of a checkpoint, or a damaged one", path);
    if (status == TSR_OK) {
        char found[DIGITS + 1] = "";
        memcpy(found, at, DIGITS);
        memcpy(at, zeros, DIGITS);
        snprintf(sum, sizeof sum, "%016" PRIx64, tsri_checksum(header, bytes));
        if (strcmp(found, sum) != 0)
            status = tsri_fail(TSR_ERR_FORMAT, "%s: its header is damaged: its checksum is another",
                               path);
    }
    tsri_mem_free(header);
    return status;
}

static int compare_summed(const void *a, const void *b)
{
    return strcmp(((const summed *)a)->entry->name, ((const summed *)b)->entry->name);
}

/* Lists the entries by name; returns how many blocks they have. */
static tsr_status list_entries(tsri_ckpt_shard *s, int64_t *out_blocks)
{
    const int64_t n = tsri_st_count(s->file);
    s->entries = tsri_mem_alloc(s->mem, (size_t)n * sizeof *s->entries);
    TSRI_NEED(s->entries);
    for (int64_t i = 0; i < n; i++)
        if (strcmp(tsri_st_at(s->file, i)->name, sums_name) != 0)
            s->entries[s->count++].entry = tsri_st_at(s->file, i);
    if (s->count)
        qsort(s->entries, (size_t)s->count, sizeof *s->entries, compare_summed);
    *out_blocks = 0;
    for (int64_t i = 0; i < s->count; i++) {
        s->entries[i].first = *out_blocks;
        *out_blocks += blocks_of(s->entries[i].entry->end - s->entries[i].entry->begin);
    }
    return TSR_OK;
}

static tsr_status read_sums(tsri_ckpt_shard *s, const char *path)
{
    int64_t blocks;
    char sum[DIGITS + 1];
    const tsri_st_entry *e = tsri_st_find(s->file, sums_name);
    const char *said = tsri_st_metadata(s->file, sums_name);
    TSRI_TRY(list_entries(s, &blocks));
    if (!e || !said || e->dtype != TSR_I64 || e->ndim != 1 || e->dims.d[0] != blocks)
        return tsri_fail(TSR_ERR_FORMAT, "%s: it has no checksums of its tensors", path);
    const size_t bytes = (size_t)blocks * sizeof *s->sums;
    s->sums = tsri_mem_alloc(s->mem, bytes);
    s->block = tsri_mem_alloc(s->mem, TSRI_CKPT_BLOCK);
    TSRI_NEED(s->sums && s->block);
    TSRI_TRY(tsri_st_read(s->file, e, 0, bytes, s->sums));
    snprintf(sum, sizeof sum, "%016" PRIx64, tsri_checksum(s->sums, bytes));
    return strcmp(sum, said) == 0
               ? TSR_OK
               : tsri_fail(TSR_ERR_FORMAT, "%s: its list of checksums is damaged", path);
}

static tsr_status open_shard(tsri_ckpt_shard *s, const char *path, const char *id)
{
    TSRI_TRY(tsri_st_open(s->mem, path, &s->file));
    TSRI_TRY(check_seal(s, path));
    const char *found = tsri_st_metadata(s->file, "tessera.id");
    if (!found || strcmp(found, id) != 0)
        return tsri_fail(TSR_ERR_FORMAT, "%s: it is of another save than the index", path);
    return read_sums(s, path);
}

tsr_status tsri_ckpt_shard_open(tsri_mem *mem, const char *folder, const tsri_ckpt_index *index,
                                int file, tsri_ckpt_shard **out_shard)
{
    char name[TSRI_CKPT_FILE_NAME], path[PATH_MAX];
    tsri_ckpt_file_name(name, file, index->nfiles);
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return tsri_fail(TSR_ERR_IO, "%.200s...: the path is too long", folder);
    tsri_ckpt_shard *s = tsri_mem_alloc(mem, sizeof *s);
    TSRI_NEED(s);
    s->mem = mem;
    tsr_status status = open_shard(s, path, index->id);
    if (status == TSR_OK)
        *out_shard = s;
    else
        tsri_ckpt_shard_close(s);
    return status;
}

void tsri_ckpt_shard_close(tsri_ckpt_shard *s)
{
    if (!s)
        return;
    tsri_st_close(s->file);
    tsri_mem_free(s->entries);
    tsri_mem_free(s->sums);
    tsri_mem_free(s->block);
    tsri_mem_free(s);
}

tsr_status tsri_ckpt_shard_find(const tsri_ckpt_shard *s, const tsri_ckpt_tensor *t, int piece,
                                const tsri_st_entry **out_entry)
{
    char own[TSRI_CKPT_NAME];
    const char *name = t->name;
    if (t->own && t->npieces > 1) {
        tsri_ckpt_own_name(t->name, piece, own, sizeof own);
        name = own;
    }
    const tsri_st_entry *e = tsri_st_find(s->file, name);
    if (!e || e->dtype != t->dtype || !tsr_dims_equal(e->dims, t->pieces[piece].dims))
        return tsri_fail(TSR_ERR_FORMAT, "%s: tensor '%.200s' is not there as the index says",
                         tsri_st_path(s->file), name);
    *out_entry = e;
    return TSR_OK;
}

/* --- blocks ----------------------------------------------------------------------------------- */

/* Reads a block and checks its sum. */
static tsr_status read_block(const tsri_ckpt_shard *s, const summed *of, int64_t number, void *to)
{
    const tsri_st_entry *e = of->entry;
    const size_t bytes = block_bytes(e->end - e->begin, number);
    TSRI_TRY(tsri_st_read(s->file, e, (uint64_t)number * TSRI_CKPT_BLOCK, bytes, to));
    if (tsri_checksum(to, bytes) == s->sums[of->first + number])
        return TSR_OK;
    return tsri_fail(TSR_ERR_FORMAT,
                     "%s: tensor '%.200s' is damaged: the checksum of its bytes from %lld on is "
                     "another",
                     tsri_st_path(s->file), e->name, (long long)(number * TSRI_CKPT_BLOCK));
}

tsr_status tsri_ckpt_shard_read(tsri_ckpt_shard *s, const tsri_st_entry *entry, uint64_t offset,
                                size_t bytes, void *dst)
{
    const summed key = {.entry = entry};
    const summed *of =
        s->count ? bsearch(&key, s->entries, (size_t)s->count, sizeof key, compare_summed) : NULL;
    if (!of || offset > entry->end - entry->begin || bytes > entry->end - entry->begin - offset)
        return tsri_fail(TSR_ERR_INTERNAL, "a checkpoint's tensor is read outside of it");
    for (size_t done = 0; done < bytes;) {
        const uint64_t at = offset + done;
        const int64_t number = (int64_t)(at / TSRI_CKPT_BLOCK);
        const size_t within = (size_t)(at % TSRI_CKPT_BLOCK);
        const size_t here = block_bytes(entry->end - entry->begin, number);
        const size_t n = here - within < bytes - done ? here - within : bytes - done;
        if (s->of != entry || s->number != number) {
            if (dst && n == here) { /* all of it goes where it belongs at once */
                TSRI_TRY(read_block(s, of, number, (char *)dst + done));
                done += n;
                continue;
            }
            s->of = NULL;
            TSRI_TRY(read_block(s, of, number, s->block));
            s->of = entry;
            s->number = number;
        }
        if (dst)
            memcpy((char *)dst + done, s->block + within, n);
        done += n;
    }
    return TSR_OK;
}
