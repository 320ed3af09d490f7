/* SPDX-License-Identifier: Apache-2.0 */
#include "src/nn/safetensors.h"
#include "src/core/new_file.h"
#include "src/core/retry.h"
#include "src/core/text_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/nn/safetensors_text.h"

typedef struct tensor {
    const char *name;
    tsr_dtype dtype;
    tsr_dims dims;
    uint64_t begin, bytes, written;
} tensor;

typedef struct pair {
    const char *key, *value;
} pair;

struct tsri_st_writer {
    tsri_pool pool;
    tsri_mem *mem;
    const char *path;
    tsri_new_file file; /* fd -1: not begun, or finished */
    bool begun;
    tensor *tensors; /* after begin: in the order of their bytes */
    int count, capacity;
    tensor **by_name;
    pair *pairs;
    int npairs, pairs_capacity;
    char *header;
    size_t header_bytes;
    tsri_st_seal_fn *seal;
    uint64_t data_at;
};

tsr_status tsri_st_writer_create(tsri_mem *mem, const char *path, tsri_st_writer **out_writer)
{
    tsri_st_writer *w = tsri_mem_alloc(mem, sizeof *w);
    TSRI_NEED(w);
    w->file.fd = -1;
    w->mem = mem;
    tsri_pool_init(&w->pool, mem);
    w->path = tsri_pool_strdup(&w->pool, path);
    if (!w->path) {
        tsri_st_writer_destroy(w);
        return TSR_ERR_NO_MEMORY;
    }
    *out_writer = w;
    return TSR_OK;
}

void tsri_st_writer_destroy(tsri_st_writer *w)
{
    if (!w)
        return;
    tsri_new_file_drop(&w->file);
    free(w->header);
    tsri_pool_finish(&w->pool);
    tsri_mem_free(w);
}

static tsr_status check_declaring(const tsri_st_writer *w, const char *name)
{
    if (w->begun)
        return tsri_fail(TSR_ERR_STATE, "%s: '%.200s' declared after the header was written",
                         w->path, name);
    if (!tsri_utf8_valid(name, strlen(name)))
        return tsri_fail(TSR_ERR_INVALID, "%s: the name '%.200s' isn't UTF-8", w->path, name);
    return TSR_OK;
}

tsr_status tsri_st_writer_add(tsri_st_writer *w, const char *name, tsr_dtype dtype, tsr_dims dims)
{
    TSRI_TRY(check_declaring(w, name));
    if (!strcmp(name, "__metadata__"))
        return tsri_fail(TSR_ERR_INVALID, "%s: a tensor can't be called __metadata__", w->path);
    if (!tsri_dtype_of(dtype)->safetensors)
        return tsri_fail(TSR_ERR_DTYPE, "%s: tensor '%.200s': no dtype", w->path, name);
    uint64_t bytes = tsr_dtype_size(dtype);
    bool legal = dims.ndim >= 0 && dims.ndim <= TSR_MAX_NDIM;
    for (int i = 0; legal && i < dims.ndim; i++)
        legal = dims.d[i] >= 0 && !__builtin_mul_overflow(bytes, (uint64_t)dims.d[i], &bytes);
    if (!legal || bytes > INT64_MAX)
        return tsri_fail(TSR_ERR_SHAPE, "%s: tensor '%.200s': illegal shape", w->path, name);
    TSRI_NEED(TSRI_PUSH(&w->pool, w->tensors, w->count, w->capacity));
    tensor t = {
        .name = tsri_pool_strdup(&w->pool, name), .dtype = dtype, .dims = dims, .bytes = bytes};
    TSRI_NEED(t.name);
    w->tensors[w->count++] = t;
    return TSR_OK;
}

tsr_status tsri_st_writer_add_metadata(tsri_st_writer *w, const char *key, const char *value)
{
    TSRI_TRY(check_declaring(w, key));
    TSRI_TRY(check_declaring(w, value));
    for (int i = 0; i < w->npairs; i++)
        if (!strcmp(w->pairs[i].key, key))
            return tsri_fail(TSR_ERR_INVALID, "%s: __metadata__ '%.200s' given twice", w->path,
                             key);
    TSRI_NEED(TSRI_PUSH(&w->pool, w->pairs, w->npairs, w->pairs_capacity));
    pair p = {.key = tsri_pool_strdup(&w->pool, key), .value = tsri_pool_strdup(&w->pool, value)};
    TSRI_NEED(p.key && p.value);
    w->pairs[w->npairs++] = p;
    return TSR_OK;
}

void tsri_st_writer_set_seal(tsri_st_writer *w, tsri_st_seal_fn *seal)
{
    w->seal = seal;
}

/* --- the header ------------------------------------------------------------------------------- */

static bool put_tensor(FILE *f, const tensor *t)
{
    bool fits = tsri_json_put_string(f, t->name);
    fprintf(f, ":{\"dtype\":\"%s\",\"shape\":[", tsri_dtype_of(t->dtype)->safetensors);
    for (int i = 0; i < t->dims.ndim; i++)
        fprintf(f, "%s%" PRId64, i ? "," : "", t->dims.d[i]);
    fprintf(f, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", t->begin, t->begin + t->bytes);
    return fits;
}

static bool put_header(FILE *f, const tsri_st_writer *w)
{
    bool fits = true;
    fputc('{', f);
    for (int i = 0; i < w->npairs; i++) {
        fputs(i ? "," : "\"__metadata__\":{", f);
        fits &= tsri_json_put_string(f, w->pairs[i].key);
        fputc(':', f);
        fits &= tsri_json_put_string(f, w->pairs[i].value);
    }
    if (w->npairs)
        fputs(w->count ? "}," : "}", f);
    for (int i = 0; i < w->count; i++) {
        fputs(i ? "," : "", f);
        fits &= put_tensor(f, &w->tensors[i]);
    }
    fputc('}', f);
    return fits;
}

static tsr_status make_header(tsri_st_writer *w)
{
    tsri_text_stream t;
    if (tsri_text_open(&t, w->mem)) {
        t.failed = !put_header(t.stream, w) || fflush(t.stream);
        for (size_t n = t.bytes; n % 8; n++) /* so that the data is aligned */
            fputc(' ', t.stream);
        w->header = tsri_text_close(&t, &w->header_bytes);
    }
    if (!w->header)
        return tsri_fail(TSR_ERR_NO_MEMORY, "%s: no memory for its header", w->path);
    if (w->header_bytes > TSRI_ST_MAX_HEADER)
        return tsri_fail(TSR_ERR_UNSUPPORTED, "%s: a header of %zu bytes; the format's limit is %d",
                         w->path, w->header_bytes, TSRI_ST_MAX_HEADER);
    return TSR_OK;
}

/* --- the file --------------------------------------------------------------------------------- */

static int compare_layout(const void *a, const void *b)
{
    const tensor *x = a, *y = b;
    size_t p = tsr_dtype_size(x->dtype), q = tsr_dtype_size(y->dtype);
    if (p != q)
        return p > q ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b)
{
    const tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static tsr_status lay_out(tsri_st_writer *w)
{
    if (w->count)
        qsort(w->tensors, (size_t)w->count, sizeof *w->tensors, compare_layout);
    w->by_name = tsri_pool_alloc(&w->pool, (size_t)w->count * sizeof *w->by_name);
    TSRI_NEED(w->by_name);
    uint64_t at = 0;
    for (int i = 0; i < w->count; i++) {
        w->tensors[i].begin = at;
        at += w->tensors[i].bytes;
        if (at > INT64_MAX)
            return tsri_fail(TSR_ERR_SHAPE, "%s: more than 2^63 bytes of tensors", w->path);
        w->by_name[i] = &w->tensors[i];
    }
    if (w->count)
        qsort(w->by_name, (size_t)w->count, sizeof(tensor *), compare_names);
    for (int i = 1; i < w->count; i++)
        if (!strcmp(w->by_name[i - 1]->name, w->by_name[i]->name))
            return tsri_fail(TSR_ERR_INVALID, "%s: tensor '%.200s' declared twice", w->path,
                             w->by_name[i]->name);
    return TSR_OK;
}

static tsr_status write_at(const tsri_st_writer *w, uint64_t at, const void *data, size_t bytes)
{
    const char *p = data;
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pwrite(w->file.fd, p + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return tsri_fail(TSR_ERR_IO, "%s: can't write: %s", w->path,
                             n ? strerror(errno) : "no progress");
        done += (size_t)n;
    }
    return TSR_OK;
}

tsr_status tsri_st_writer_begin(tsri_st_writer *w)
{
    if (w->begun)
        return tsri_fail(TSR_ERR_STATE, "%s: its header is written already", w->path);
    w->begun = true;
    TSRI_TRY(lay_out(w));
    TSRI_TRY(make_header(w));
    if (w->seal)
        w->seal(w->header, w->header_bytes);
    int rc = tsri_new_file_open(&w->file, w->path);
    if (rc)
        return tsri_fail(TSR_ERR_IO, "%s: can't create: %s", w->path, strerror(-rc));
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (unsigned char)((uint64_t)w->header_bytes >> 8 * i);
    w->data_at = sizeof prefix + w->header_bytes;
    TSRI_TRY(write_at(w, 0, prefix, sizeof prefix));
    return write_at(w, sizeof prefix, w->header, w->header_bytes);
}

tsr_status tsri_st_writer_write(tsri_st_writer *w, const char *name, uint64_t offset,
                                const void *data, size_t bytes)
{
    if (w->file.fd < 0)
        return tsri_fail(TSR_ERR_STATE, "%s: tensor '%.200s' written before the header", w->path,
                         name);
    tensor key = {.name = name}, *k = &key;
    tensor **found =
        w->count ? bsearch(&k, w->by_name, (size_t)w->count, sizeof k, compare_names) : NULL;
    if (!found)
        return tsri_fail(TSR_ERR_INVALID, "%s: tensor '%.200s' was not declared", w->path, name);
    tensor *t = *found;
    if (offset > t->bytes || bytes > t->bytes - offset || bytes > t->bytes - t->written)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: tensor '%.200s': bytes %" PRIu64 " + %zu written to its %" PRIu64
                         ", of which %" PRIu64 " are there already",
                         w->path, name, offset, bytes, t->bytes, t->written);
    tsr_status status = write_at(w, w->data_at + t->begin + offset, data, bytes);
    if (status != TSR_OK)
        return tsri_fail_prefix(status, "tensor '%.200s'", name);
    t->written += bytes;
    return TSR_OK;
}

/* So that the new name survives a crash. */
static tsr_status sync_folder(const tsri_st_writer *w)
{
    char *copy = tsri_mem_strdup(w->mem, w->path);
    TSRI_NEED(copy);
    int fd = TSRI_RETRY(open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    tsri_mem_free(copy);
    if (fd < 0)
        return TSR_OK;
    int rc = tsri_sync_folder(fd);
    close(fd);
    return rc ? tsri_fail(TSR_ERR_IO, "%s: can't sync its folder: %s", w->path, strerror(-rc))
              : TSR_OK;
}

tsr_status tsri_st_writer_finish(tsri_st_writer *w)
{
    if (w->file.fd < 0)
        return tsri_fail(TSR_ERR_STATE, "%s: finished before its header was written", w->path);
    for (int i = 0; i < w->count; i++)
        if (w->tensors[i].written != w->tensors[i].bytes)
            return tsri_fail(
                TSR_ERR_STATE, "%s: tensor '%.200s': %" PRIu64 " of %" PRIu64 " bytes were written",
                w->path, w->tensors[i].name, w->tensors[i].written, w->tensors[i].bytes);
    int rc = tsri_new_file_keep(&w->file, true);
    return rc ? tsri_fail(TSR_ERR_IO, "%s: can't finish: %s", w->path, strerror(-rc))
              : sync_folder(w);
}
