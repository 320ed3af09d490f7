/* SPDX-License-Identifier: Apache-2.0 */
#include "src/nn/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "src/core/retry.h"
#include "src/nn/safetensors_text.h"

enum {
    MAX_ENTRY = 65536, /* bytes of one tensor's description */
};

typedef struct pair {
    const char *key, *value;
} pair;

struct tsri_st_file {
    tsri_pool pool;
    const char *path;
    int fd;
    uint64_t data_at, data_bytes; /* the buffer, in the file */
    tsri_st_entry *entries;       /* by their bytes */
    int count, capacity;
    const tsri_st_entry **by_name;
    pair *pairs; /* of __metadata__, by key */
    int npairs, pairs_capacity;
};

static tsr_status read_at(const tsri_st_file *f, uint64_t at, void *buf, size_t bytes)
{
    char *p = buf;
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(f->fd, p + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tsri_fail(TSR_ERR_IO, "%s: byte %" PRIu64 ": can't read: %s", f->path, at + done,
                             strerror(errno));
        if (n == 0)
            return tsri_fail(TSR_ERR_IO,
                             "%s: ends at byte %" PRIu64
                             ", %zu bytes before the end of what was to "
                             "be read: it became shorter",
                             f->path, at + done, bytes - done);
        done += (size_t)n;
    }
    return TSR_OK;
}

/* --- one tensor's description ----------------------------------------------------------------- */

static tsr_status bad_entry(const tsri_st_file *f, const char *name, const char *what)
{
    return tsri_fail(TSR_ERR_FORMAT, "%s: tensor '%.200s': %s", f->path, name, what);
}

/* An integer in 0 .. 2^53-1, which a double holds exactly. */
static bool to_integer(const cJSON *item, uint64_t *out_value)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble < 0x1p53))
        return false;
    *out_value = (uint64_t)item->valuedouble;
    return (double)*out_value == item->valuedouble;
}

static tsr_status set_shape(const tsri_st_file *f, tsri_st_entry *e, const cJSON *shape,
                            uint64_t *out_count)
{
    uint64_t count = 1;
    const cJSON *item;
    cJSON_ArrayForEach(item, shape)
    {
        uint64_t n;
        if (!to_integer(item, &n))
            return bad_entry(f, e->name, "shape: an axis isn't an integer in 0 .. 2^53-1");
        if (__builtin_mul_overflow(count, n, &count))
            return bad_entry(f, e->name, "shape: its element count overflows 64 bits");
        if (e->ndim < TSR_MAX_NDIM)
            e->dims.d[e->ndim] = (int64_t)n;
        e->ndim++;
    }
    e->dims.ndim = e->ndim;
    if (e->ndim > TSR_MAX_NDIM)
        e->dims = (tsr_dims){0};
    *out_count = count;
    return TSR_OK;
}

static tsr_status set_extent(const tsri_st_file *f, tsri_st_entry *e, const tsri_st_dtype *type,
                             uint64_t count, const cJSON *offsets)
{
    if (cJSON_GetArraySize(offsets) != 2 ||
        !to_integer(cJSON_GetArrayItem(offsets, 0), &e->begin) ||
        !to_integer(cJSON_GetArrayItem(offsets, 1), &e->end) || e->begin > e->end)
        return bad_entry(f, e->name, "data_offsets: must be [begin, end], integers, begin <= end");
    if (e->end > f->data_bytes)
        return tsri_fail(TSR_ERR_FORMAT,
                         "%s: tensor '%.200s': data_offsets [%" PRIu64 ", %" PRIu64
                         "], but the file has %" PRIu64 " bytes of data",
                         f->path, e->name, e->begin, e->end, f->data_bytes);
    uint64_t bits;
    if (__builtin_mul_overflow(count, (uint64_t)type->bits, &bits) || bits % 8 ||
        bits / 8 != e->end - e->begin)
        return tsri_fail(TSR_ERR_FORMAT,
                         "%s: tensor '%.200s': data_offsets give it %" PRIu64
                         " bytes, which is not "
                         "its shape's %" PRIu64 " elements of %s",
                         f->path, e->name, e->end - e->begin, count, type->name);
    return TSR_OK;
}

static tsr_status set_entry(const tsri_st_file *f, tsri_st_entry *e, const cJSON *json)
{
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    const cJSON *found[3] = {NULL, NULL, NULL}, *member;
    cJSON_ArrayForEach(member, json)
    {
        int k = 0;
        while (k < 3 && strcmp(member->string, keys[k]))
            k++;
        if (k == 3 || found[k])
            return tsri_fail(TSR_ERR_FORMAT, "%s: tensor '%.200s': %s key '%.50s'", f->path,
                             e->name, k == 3 ? "unknown" : "repeated", member->string);
        found[k] = member;
    }
    if (!cJSON_IsString(found[0]) || !cJSON_IsArray(found[1]) || !cJSON_IsArray(found[2]))
        return bad_entry(f, e->name, "must have a string dtype, and arrays shape and data_offsets");
    tsri_st_dtype type;
    if (!tsri_st_dtype_find(found[0]->valuestring, &type))
        return tsri_fail(TSR_ERR_FORMAT, "%s: tensor '%.200s': unknown dtype '%.50s'", f->path,
                         e->name, found[0]->valuestring);
    e->stored_dtype = type.name;
    e->dtype = type.dtype;
    uint64_t count = 0;
    TSRI_TRY(set_shape(f, e, found[1], &count));
    return set_extent(f, e, &type, count, found[2]);
}

static tsr_status add_entry(tsri_st_file *f, const char *name, tsri_span value)
{
    if (value.n > MAX_ENTRY)
        return bad_entry(f, name, "its description is longer than 64 KiB");
    const char *end = NULL;
    cJSON *json = cJSON_ParseWithLengthOpts(value.p, value.n, &end, false);
    tsr_status status;
    tsri_st_entry e = {.name = name};
    if (!cJSON_IsObject(json) || end != value.p + value.n)
        status = bad_entry(f, name, "its description isn't a JSON object");
    else
        status = set_entry(f, &e, json);
    cJSON_Delete(json);
    TSRI_TRY(status);
    TSRI_NEED(TSRI_PUSH(&f->pool, f->entries, f->count, f->capacity));
    f->entries[f->count++] = e;
    return TSR_OK;
}

/* --- the header ------------------------------------------------------------------------------- */

static tsr_status bad_header(const tsri_st_file *f, const char *header, const tsri_members *m)
{
    return tsri_fail(TSR_ERR_FORMAT, "%s: header, byte %td: %s", f->path, 8 + (m->at - header),
                     m->fault);
}

static tsr_status bad_string(const tsri_st_file *f, const char *header, tsri_span literal,
                             tsr_status status)
{
    if (status != TSR_ERR_FORMAT)
        return status;
    return tsri_fail(status, "%s: header, byte %td: not a JSON string", f->path,
                     8 + (literal.p - header));
}

static int compare_pairs(const void *a, const void *b)
{
    return strcmp(((const pair *)a)->key, ((const pair *)b)->key);
}

static tsr_status add_metadata(tsri_st_file *f, const char *header, tsri_span value)
{
    tsri_members m = {.at = value.p, .end = value.p + value.n};
    tsri_span k, v;
    while (tsri_members_next(&m, &k, &v)) {
        tsr_status status;
        pair p = {.key = tsri_json_string(&f->pool, k, &status)};
        if (!p.key)
            return bad_string(f, header, k, status);
        p.value = tsri_json_string(&f->pool, v, &status);
        if (!p.value && status == TSR_ERR_FORMAT)
            return tsri_fail(status, "%s: __metadata__: the value of '%.100s' isn't a string",
                             f->path, p.key);
        TSRI_NEED(p.value && TSRI_PUSH(&f->pool, f->pairs, f->npairs, f->pairs_capacity));
        f->pairs[f->npairs++] = p;
    }
    if (m.fault)
        return bad_header(f, header, &m);
    if (f->npairs)
        qsort(f->pairs, (size_t)f->npairs, sizeof *f->pairs, compare_pairs);
    for (int i = 1; i < f->npairs; i++)
        if (!strcmp(f->pairs[i - 1].key, f->pairs[i].key))
            return tsri_fail(TSR_ERR_FORMAT, "%s: __metadata__: '%.100s' stands there twice",
                             f->path, f->pairs[i].key);
    return TSR_OK;
}

static tsr_status parse_header(tsri_st_file *f, const char *header, size_t bytes)
{
    tsri_members m = {.at = header, .end = header + bytes};
    tsri_span k, v;
    bool has_metadata = false;
    if (header[0] != '{')
        return tsri_fail(TSR_ERR_FORMAT, "%s: byte 8: the header must begin with '{'", f->path);
    if (!tsri_utf8_valid(header, bytes))
        return tsri_fail(TSR_ERR_FORMAT, "%s: the header isn't UTF-8", f->path);
    while (tsri_members_next(&m, &k, &v)) {
        tsr_status status;
        const char *name = tsri_json_string(&f->pool, k, &status);
        if (!name)
            return bad_string(f, header, k, status);
        if (strcmp(name, "__metadata__")) {
            TSRI_TRY(add_entry(f, name, v));
            continue;
        }
        if (has_metadata)
            return tsri_fail(TSR_ERR_FORMAT, "%s: __metadata__ stands there twice", f->path);
        has_metadata = true;
        TSRI_TRY(add_metadata(f, header, v));
    }
    if (m.fault)
        return bad_header(f, header, &m);
    for (; m.at < m.end; m.at++)
        if (*m.at != ' ' && *m.at != '\t' && *m.at != '\n' && *m.at != '\r') {
            m.fault = "text behind the header's end";
            return bad_header(f, header, &m);
        }
    return TSR_OK;
}

/* --- the tensors together --------------------------------------------------------------------- */

static int compare_extents(const void *a, const void *b)
{
    const tsri_st_entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b)
{
    const tsri_st_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static tsr_status check_names(tsri_st_file *f)
{
    f->by_name = tsri_pool_alloc(&f->pool, (size_t)f->count * sizeof *f->by_name);
    TSRI_NEED(f->by_name);
    for (int i = 0; i < f->count; i++)
        f->by_name[i] = &f->entries[i];
    if (f->count)
        qsort(f->by_name, (size_t)f->count, sizeof(tsri_st_entry *), compare_names);
    for (int i = 1; i < f->count; i++)
        if (!strcmp(f->by_name[i - 1]->name, f->by_name[i]->name))
            return bad_entry(f, f->by_name[i]->name, "stands there twice");
    return TSR_OK;
}

/* In order of their bytes, each tensor must begin where the one before it ends. */
static tsr_status check_extents(const tsri_st_file *f)
{
    uint64_t at = 0;
    for (int i = 0; i < f->count; i++) {
        const tsri_st_entry *e = &f->entries[i];
        if (e->begin < at)
            return tsri_fail(TSR_ERR_FORMAT, "%s: tensor '%.200s' overlaps tensor '%.200s'",
                             f->path, e->name, f->entries[i - 1].name);
        if (e->begin > at)
            return tsri_fail(TSR_ERR_FORMAT,
                             "%s: tensor '%.200s': a hole of %" PRIu64 " bytes before its data",
                             f->path, e->name, e->begin - at);
        at = e->end;
    }
    if (at != f->data_bytes)
        return tsri_fail(TSR_ERR_FORMAT,
                         "%s: byte %" PRIu64 ": the last %" PRIu64 " bytes belong to no tensor",
                         f->path, f->data_at + at, f->data_bytes - at);
    return TSR_OK;
}

static tsr_status load_header(tsri_st_file *f, tsri_mem *mem)
{
    struct stat st;
    f->fd = TSRI_RETRY(open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (f->fd < 0 || TSRI_RETRY(fstat(f->fd, &st)))
        return tsri_fail(TSR_ERR_IO, "%s: can't open: %s", f->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return tsri_fail(TSR_ERR_IO, "%s: not a regular file", f->path);
    uint64_t size = (uint64_t)st.st_size, bytes = 0;
    unsigned char prefix[8];
    if (size < sizeof prefix)
        return tsri_fail(TSR_ERR_FORMAT, "%s: %" PRIu64 " bytes are too short for safetensors",
                         f->path, size);
    TSRI_TRY(read_at(f, 0, prefix, sizeof prefix));
    for (int i = 7; i >= 0; i--)
        bytes = bytes << 8 | prefix[i];
    if (bytes < 2 || bytes > TSRI_ST_MAX_HEADER || bytes > size - sizeof prefix)
        return tsri_fail(TSR_ERR_FORMAT,
                         "%s: byte 0: a header of %" PRIu64 " bytes; legal in this file of %" PRIu64
                         " are 2 .. %" PRIu64 ": not safetensors, or cut short",
                         f->path, bytes, size,
                         size - 8 < TSRI_ST_MAX_HEADER ? size - 8 : TSRI_ST_MAX_HEADER);
    f->data_at = sizeof prefix + bytes;
    f->data_bytes = size - f->data_at;
    char *header = tsri_mem_alloc(mem, (size_t)bytes);
    TSRI_NEED(header);
    tsr_status status = read_at(f, sizeof prefix, header, (size_t)bytes);
    if (status == TSR_OK)
        status = parse_header(f, header, (size_t)bytes);
    tsri_mem_free(header);
    TSRI_TRY(status);
    if (f->count)
        qsort(f->entries, (size_t)f->count, sizeof *f->entries, compare_extents);
    TSRI_TRY(check_names(f));
    return check_extents(f);
}

tsr_status tsri_st_open(tsri_mem *mem, const char *path, tsri_st_file **out_file)
{
    tsri_st_file *f = tsri_mem_alloc(mem, sizeof *f);
    TSRI_NEED(f);
    f->fd = -1;
    tsri_pool_init(&f->pool, mem);
    f->path = tsri_pool_strdup(&f->pool, path);
    tsr_status status = f->path ? load_header(f, mem) : TSR_ERR_NO_MEMORY;
    if (status != TSR_OK) {
        tsri_st_close(f);
        return status;
    }
    *out_file = f;
    return TSR_OK;
}

void tsri_st_close(tsri_st_file *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    tsri_pool_finish(&f->pool);
    tsri_mem_free(f);
}

const char *tsri_st_path(const tsri_st_file *f)
{
    return f->path;
}

int64_t tsri_st_count(const tsri_st_file *f)
{
    return f->count;
}

const tsri_st_entry *tsri_st_at(const tsri_st_file *f, int64_t i)
{
    return &f->entries[i];
}

const tsri_st_entry *tsri_st_find(const tsri_st_file *f, const char *name)
{
    const tsri_st_entry key = {.name = name}, *k = &key;
    const tsri_st_entry **found =
        f->count ? bsearch(&k, f->by_name, (size_t)f->count, sizeof k, compare_names) : NULL;
    return found ? *found : NULL;
}

tsr_status tsri_st_header(const tsri_st_file *f, tsri_mem *mem, char **out_header,
                          size_t *out_bytes)
{
    const uint64_t at = sizeof(uint64_t);
    const size_t bytes = (size_t)(f->data_at - at);
    char *header = tsri_mem_alloc(mem, bytes);
    TSRI_NEED(header);
    tsr_status status = read_at(f, at, header, bytes);
    if (status != TSR_OK) {
        tsri_mem_free(header);
        return status;
    }
    *out_header = header;
    *out_bytes = bytes;
    return TSR_OK;
}

const char *tsri_st_metadata(const tsri_st_file *f, const char *key)
{
    const pair k = {.key = key};
    const pair *found =
        f->npairs ? bsearch(&k, f->pairs, (size_t)f->npairs, sizeof k, compare_pairs) : NULL;
    return found ? found->value : NULL;
}

tsr_status tsri_st_usable(const tsri_st_file *f, const tsri_st_entry *e)
{
    if (e->dtype == TSR_DTYPE_NONE)
        return tsri_fail(TSR_ERR_UNSUPPORTED,
                         "%s: tensor '%.200s' has dtype %s; Tessera has F64, F32, F16, BF16, I64, "
                         "I32, U8 and BOOL",
                         f->path, e->name, e->stored_dtype);
    if (e->ndim > TSR_MAX_NDIM)
        return tsri_fail(TSR_ERR_UNSUPPORTED,
                         "%s: tensor '%.200s' has %d axes; Tessera takes up to %d", f->path,
                         e->name, e->ndim, TSR_MAX_NDIM);
    return TSR_OK;
}

tsr_status tsri_st_read(const tsri_st_file *f, const tsri_st_entry *e, uint64_t offset,
                        size_t bytes, void *buf)
{
    TSRI_TRY(tsri_st_usable(f, e));
    uint64_t size = e->end - e->begin;
    if (offset > size || bytes > size - offset)
        return tsri_fail(TSR_ERR_INVALID,
                         "%s: tensor '%.200s': bytes %" PRIu64 " + %zu asked of its %" PRIu64,
                         f->path, e->name, offset, bytes, size);
    tsr_status status = read_at(f, f->data_at + e->begin + offset, buf, bytes);
    return status == TSR_OK ? status : tsri_fail_prefix(status, "tensor '%.200s'", e->name);
}
