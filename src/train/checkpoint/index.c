/* SPDX-License-Identifier: Apache-2.0 */
/* The index of a checkpoint as text, and back. */
#include "src/train/checkpoint/index.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "src/core/dims.h"
#include "src/core/new_file.h"
#include "src/core/retry.h"
#include "src/core/text_stream.h"
#include "src/nn/safetensors.h"
#include "src/nn/safetensors_text.h"
#include "src/train/checkpoint/checksum.h"

/* The checksum's line, which ends the text, begins with this. */
static const char last_line[] = "\n\"checksum\":\"";
enum {
    CHECKSUM_DIGITS = 16,
    LAST_LINE = sizeof last_line - 1 + CHECKSUM_DIGITS + sizeof "\"}\n" - 1
};

void tsri_ckpt_file_name(char buf[TSRI_CKPT_FILE_NAME], int file, int nfiles)
{
    snprintf(buf, TSRI_CKPT_FILE_NAME, "shard-%05d-of-%05d.safetensors", file, nfiles);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const tsri_ckpt_tensor *)a)->name, ((const tsri_ckpt_tensor *)b)->name);
}

const tsri_ckpt_tensor *tsri_ckpt_index_find(const tsri_ckpt_index *index, const char *name)
{
    const tsri_ckpt_tensor key = {.name = name};
    return index->ntensors
               ? bsearch(&key, index->tensors, (size_t)index->ntensors, sizeof key, compare_names)
               : NULL;
}

void tsri_ckpt_index_finish(tsri_ckpt_index *index)
{
    tsri_pool_finish(&index->pool);
}

/* --- out -------------------------------------------------------------------------------------- */
static void put_numbers(FILE *f, int n, const int64_t *numbers)
{
    fputc('[', f);
    for (int i = 0; i < n; i++)
        fprintf(f, "%s%" PRId64, i ? "," : "", numbers[i]);
    fputc(']', f);
}

static bool put_tensor(FILE *f, const tsri_ckpt_tensor *t)
{
    bool fits = tsri_json_put_string(f, t->name);
    fprintf(f, ":{\"dtype\":\"%s\",\"shape\":", tsri_dtype_of(t->dtype)->safetensors);
    put_numbers(f, t->dims.ndim, t->dims.d);
    if (!tsr_dims_equal(t->dims, t->saved)) {
        fputs(",\"saved\":", f);
        put_numbers(f, t->saved.ndim, t->saved.d);
    }
    if (*t->sbp) {
        fputs(",\"placement\":", f);
        fits &= tsri_json_put_string(f, t->placement);
        fputs(",\"sbp\":", f);
        fits &= tsri_json_put_string(f, t->sbp);
    }
    fputs(t->own ? ",\"own\":true,\"pieces\":[" : ",\"pieces\":[", f);
    for (int i = 0; i < t->npieces; i++) {
        const tsri_ckpt_piece *p = &t->pieces[i];
        fprintf(f, "%s[%d,", i ? "," : "", p->file);
        put_numbers(f, p->dims.ndim, p->offset);
        fputc(',', f);
        put_numbers(f, p->dims.ndim, p->dims.d);
        fputc(']', f);
    }
    fputs("]}", f);
    return fits;
}

static bool put_index(FILE *f, const tsri_ckpt_index *index)
{
    bool fits = true;
    fprintf(f, "{\"tessera_checkpoint\":1,\n\"id\":\"%s\",\n\"time\":\"%s\",\n", index->id,
            index->time);
    fprintf(f, "\"step\":%" PRId64 ",\n", index->step);
    if (!isnan(index->metric))
        fprintf(f, "\"metric\":\"%a\",\n", index->metric);
    fprintf(f, "\"ranks\":%d,\n\"files\":%d,\n\"tensors\":{", index->nranks, index->nfiles);
    for (int i = 0; i < index->ntensors; i++) {
        fputs(i ? ",\n" : "\n", f);
        fits &= put_tensor(f, &index->tensors[i]);
    }
    fputs("},", f);
    return fits;
}

tsr_status tsri_ckpt_index_text(tsri_ckpt_index *index, char **out_text, size_t *out_bytes)
{
    if (index->ntensors)
        qsort(index->tensors, (size_t)index->ntensors, sizeof *index->tensors, compare_names);
    tsri_text_stream t;
    *out_text = NULL;
    if (tsri_text_open(&t, NULL)) {
        t.failed = !put_index(t.stream, index) || fflush(t.stream); /* the text so far is there */
        if (!t.failed)
            fprintf(t.stream, "%s%016" PRIx64 "\"}\n", last_line, tsri_checksum(t.text, t.bytes));
        *out_text = tsri_text_close(&t, out_bytes);
    }
    return *out_text ? TSR_OK : tsri_fail(TSR_ERR_NO_MEMORY, "no memory for a checkpoint's index");
}

tsr_status tsri_ckpt_index_write(tsri_ckpt_index *index, const char *folder)
{
    char path[PATH_MAX], *text = NULL;
    size_t bytes = 0;
    tsri_new_file file;
    if (snprintf(path, sizeof path, "%s/index.json", folder) >= (int)sizeof path)
        return tsri_fail(TSR_ERR_IO, "%.200s...: the path is too long", folder);
    tsr_status status = tsri_ckpt_index_text(index, &text, &bytes);
    int rc = status == TSR_OK ? tsri_new_file_stream(&file, path) : 0;
    if (status == TSR_OK && rc == 0) {
        fwrite(text, 1, bytes, file.stream);
        rc = tsri_new_file_keep(&file, true);
    }
    free(text);
    return rc ? tsri_fail(TSR_ERR_IO, "%s: can't write: %s", path, strerror(-rc)) : status;
}

/* --- in --------------------------------------------------------------------------------------- */
typedef struct reader {
    tsri_ckpt_index *index;
    const char *path;
    bool has_tensors;
    int mark, *marks; /* by file: that of the last tensor with a piece there; NULL: none yet */
} reader;

static tsr_status bad(const reader *r, const char *what)
{
    return tsri_fail(TSR_ERR_FORMAT, "%s: %s", r->path, what);
}

static tsr_status bad_tensor(const reader *r, const char *name, const char *what)
{
    return tsri_fail(TSR_ERR_FORMAT, "%s: tensor '%.200s': %s", r->path, name, what);
}

/* A whole number of [0, 2^53]. */
static bool number_of(const cJSON *json, int64_t *out)
{
    bool is = cJSON_IsNumber(json) && json->valuedouble >= 0 && json->valuedouble <= 0x1p53 &&
              json->valuedouble == floor(json->valuedouble);
    *out = is ? (int64_t)json->valuedouble : 0;
    return is;
}

/* An array of at most TSR_MAX_NDIM of them. */
static bool numbers_of(const cJSON *json, int *out_n, int64_t numbers[TSR_MAX_NDIM])
{
    int n = 0;
    const cJSON *item;
    if (!cJSON_IsArray(json))
        return false;
    cJSON_ArrayForEach(item,
                       json) if (n == TSR_MAX_NDIM || !number_of(item, &numbers[n++])) return false;
    *out_n = n;
    return true;
}

/* One piece of `n`. A rank's own begins at 0 and has the tensor's shape, but for bytes (a value),
 * of which each rank may have another number; any other piece lies within the tensor. */
static bool is_piece_legal(const tsri_ckpt_tensor *t, const tsri_ckpt_piece *p, int n)
{
    bool legal = p->dims.ndim == t->dims.ndim && tsri_dims_fit(p->dims);
    for (int i = 0; i < t->dims.ndim && legal; i++)
        legal = t->own
                    ? p->offset[i] == 0
                    : p->offset[i] <= t->dims.d[i] && p->dims.d[i] <= t->dims.d[i] - p->offset[i];
    const bool varies = n > 1 && t->dtype == TSR_U8 && t->dims.ndim == 1;
    return legal && (!t->own || varies || tsr_dims_equal(p->dims, t->dims));
}

static bool read_piece(const reader *r, const cJSON *json, tsri_ckpt_piece *p)
{
    int64_t file;
    int ndim;
    if (cJSON_GetArraySize(json) != 3 || !cJSON_IsArray(json) ||
        !number_of(cJSON_GetArrayItem(json, 0), &file) || file >= r->index->nfiles ||
        !numbers_of(cJSON_GetArrayItem(json, 1), &ndim, p->offset) ||
        !numbers_of(cJSON_GetArrayItem(json, 2), &p->dims.ndim, p->dims.d) || ndim != p->dims.ndim)
        return false;
    p->file = (int)file;
    return true;
}

static int compare_offsets(const void *a, const void *b)
{
    const tsri_ckpt_piece *x = a, *y = b;
    int i = 0;
    while (i < x->dims.ndim - 1 && x->offset[i] == y->offset[i])
        i++;
    return i < x->dims.ndim ? (x->offset[i] > y->offset[i]) - (x->offset[i] < y->offset[i]) : 0;
}

/*
 * Whether the pieces, each of which lies within the tensor, are the cells of a grid over it, as
 * every signature cuts one: then they are disjoint, and cover it. Sorts them row-major. The cells
 * that begin at 0 on all axes but `a` are stride[a] apart in that order, and say where the axis is
 * cut; every other piece must lie between such cuts.
 */
static bool is_grid(tsri_ckpt_tensor *t)
{
    int64_t stride[TSR_MAX_NDIM], cells[TSR_MAX_NDIM], n = 1;
    if (tsr_dims_count(t->dims) == 0)
        return t->npieces == 0;
    if (t->npieces)
        qsort(t->pieces, (size_t)t->npieces, sizeof *t->pieces, compare_offsets);
    for (int a = t->dims.ndim - 1; a >= 0; a--) {
        stride[a] = n;
        cells[a] = 0;
        for (int64_t at = 0; at < t->dims.d[a]; cells[a]++) {
            const int64_t i = cells[a] * stride[a];
            if (i >= t->npieces || t->pieces[i].offset[a] != at || !t->pieces[i].dims.d[a])
                return false;
            at += t->pieces[i].dims.d[a];
        }
        n *= cells[a];
    }
    for (int64_t i = 0; i < t->npieces && n == t->npieces; i++)
        for (int a = 0; a < t->dims.ndim; a++) {
            const tsri_ckpt_piece *p = &t->pieces[i],
                                  *cut = &t->pieces[i / stride[a] % cells[a] * stride[a]];
            if (p->offset[a] != cut->offset[a] || p->dims.d[a] != cut->dims.d[a])
                return false;
        }
    return n == t->npieces;
}

/* Whether no file has two of the tensor's pieces: it would be one tensor there, read for both. */
static bool has_own_files(reader *r, const tsri_ckpt_tensor *t)
{
    r->mark++;
    for (int i = 0; i < t->npieces; i++) {
        if (r->marks[t->pieces[i].file] == r->mark)
            return false;
        r->marks[t->pieces[i].file] = r->mark;
    }
    return true;
}

static tsr_status read_pieces(reader *r, const cJSON *json, tsri_ckpt_tensor *t)
{
    const cJSON *pieces = cJSON_GetObjectItemCaseSensitive(json, "pieces"), *item;
    const int n = cJSON_GetArraySize(pieces);
    if (!cJSON_IsArray(pieces) || (t->own && n < 1))
        return bad_tensor(r, t->name, "it has no pieces");
    if (!r->marks) {
        r->marks = tsri_pool_alloc(&r->index->pool, (size_t)r->index->nfiles * sizeof *r->marks);
        TSRI_NEED(r->marks);
    }
    t->pieces = tsri_pool_alloc(&r->index->pool, (size_t)n * sizeof *t->pieces);
    TSRI_NEED(t->pieces);
    cJSON_ArrayForEach(item, pieces)
    {
        tsri_ckpt_piece *p = &t->pieces[t->npieces++];
        if (!read_piece(r, item, p))
            return bad_tensor(r, t->name, "a piece makes no sense");
        if (!is_piece_legal(t, p, n))
            return bad_tensor(r, t->name, "a piece does not lie within it");
    }
    for (int i = 0; t->own && n > 1 && i < n; i++)
        if (n != r->index->nranks || t->pieces[i].file != i % r->index->nfiles)
            return bad_tensor(r, t->name, "its pieces are not one of each rank");
    if (!t->own && !has_own_files(r, t))
        return bad_tensor(r, t->name, "two of its pieces are in one file");
    return t->own || is_grid(t) ? TSR_OK : bad_tensor(r, t->name, "its pieces do not make it up");
}

static tsr_status read_text(const reader *r, const cJSON *json, const char *key, const char **out)
{
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(json, key);
    *out = tsri_pool_strdup(&r->index->pool, cJSON_IsString(text) ? text->valuestring : "");
    return *out ? TSR_OK : TSR_ERR_NO_MEMORY;
}

static tsr_status read_tensor_of(reader *r, const cJSON *json, tsri_ckpt_tensor *t)
{
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(json, "dtype");
    tsri_st_dtype known;
    if (!cJSON_IsString(dtype) || !tsri_st_dtype_find(dtype->valuestring, &known) ||
        known.dtype == TSR_DTYPE_NONE)
        return bad_tensor(r, t->name, "it has no dtype of ours");
    t->dtype = known.dtype;
    t->own = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "own"));
    if (!numbers_of(cJSON_GetObjectItemCaseSensitive(json, "shape"), &t->dims.ndim, t->dims.d) ||
        !tsri_dims_fit(t->dims))
        return bad_tensor(r, t->name, "its shape makes no sense");
    const cJSON *saved = cJSON_GetObjectItemCaseSensitive(json, "saved");
    t->saved = t->dims;
    if (saved && (!numbers_of(saved, &t->saved.ndim, t->saved.d) || !tsri_dims_fit(t->saved) ||
                  tsr_dims_count(t->saved) != tsr_dims_count(t->dims)))
        return bad_tensor(r, t->name, "the shape that it is saved as makes no sense");
    TSRI_TRY(read_text(r, json, "placement", &t->placement));
    TSRI_TRY(read_text(r, json, "sbp", &t->sbp));
    return read_pieces(r, json, t);
}

static tsr_status read_tensor(reader *r, tsri_span key, tsri_span value)
{
    tsri_ckpt_index *index = r->index;
    const char *end = NULL;
    tsr_status status;
    tsri_ckpt_tensor t = {.name = tsri_json_string(&index->pool, key, &status)};
    if (!t.name)
        return status == TSR_ERR_FORMAT ? bad(r, "a tensor's name is no string") : status;
    cJSON *json = cJSON_ParseWithLengthOpts(value.p, value.n, &end, false);
    status = cJSON_IsObject(json) && end == value.p + value.n
                 ? read_tensor_of(r, json, &t)
                 : bad_tensor(r, t.name, "its description is no object");
    cJSON_Delete(json);
    TSRI_TRY(status);
    if (index->ntensors && strcmp(index->tensors[index->ntensors - 1].name, t.name) >= 0)
        return bad_tensor(r, t.name, "tensors are not in order");
    TSRI_NEED(TSRI_PUSH(&index->pool, index->tensors, index->ntensors, index->capacity));
    index->tensors[index->ntensors++] = t;
    return TSR_OK;
}

static bool is_key(tsri_span key, const char *name)
{
    const size_t n = strlen(name);
    return key.n == n + 2 && !memcmp(key.p + 1, name, n);
}

static bool span_number(tsri_span value, int64_t low, int64_t high, int64_t *out)
{
    char text[32], *end;
    if (value.n >= sizeof text || !value.n)
        return false;
    memcpy(text, value.p, value.n);
    text[value.n] = 0;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return !*end && !errno && *out >= low && *out <= high;
}

/* A string without escapes. */
static bool span_text(tsri_span value, char *out, size_t size)
{
    if (value.n < 2 || value.n - 2 >= size || value.p[0] != '"' || memchr(value.p, '\\', value.n))
        return false;
    memcpy(out, value.p + 1, value.n - 2);
    out[value.n - 2] = 0;
    return true;
}

static bool span_metric(tsri_span value, double *out)
{
    char text[64], *end;
    if (!span_text(value, text, sizeof text) || !*text)
        return false;
    *out = strtod(text, &end);
    return !*end;
}

static tsr_status read_member(reader *r, tsri_span key, tsri_span value)
{
    tsri_ckpt_index *index = r->index;
    int64_t number;
    if (is_key(key, "tessera_checkpoint") && !span_number(value, 1, 1, &number))
        return bad(r, "a checkpoint of another version of the format; this library knows 1");
    if (is_key(key, "id") && !span_text(value, index->id, sizeof index->id))
        return bad(r, "its id makes no sense");
    if (is_key(key, "time") && !span_text(value, index->time, sizeof index->time))
        return bad(r, "its time makes no sense");
    if (is_key(key, "step") && !span_number(value, INT64_MIN, INT64_MAX, &index->step))
        return bad(r, "its step makes no sense");
    if (is_key(key, "metric") && !span_metric(value, &index->metric))
        return bad(r, "its metric makes no sense");
    const bool is_files = is_key(key, "files");
    if (is_files || is_key(key, "ranks")) {
        if (!span_number(value, 1, 1 << 20, &number))
            return bad(r, "its number of files or ranks makes no sense");
        int *const n = is_files ? &index->nfiles : &index->nranks;
        if (*n) /* the pieces were held against the first */
            return bad(r, "its number of files or ranks stands there twice");
        *n = (int)number;
    }
    if (!is_key(key, "tensors"))
        return TSR_OK;
    if (r->has_tensors || !index->nfiles || !index->nranks)
        return bad(r, "its tensors stand there twice, or before the numbers of files and ranks");
    r->has_tensors = true;
    tsri_members m = {.at = value.p, .end = value.p + value.n};
    tsri_span k, v;
    while (tsri_members_next(&m, &k, &v))
        TSRI_TRY(read_tensor(r, k, v));
    return m.fault ? bad(r, m.fault) : TSR_OK;
}

static tsr_status parse(reader *r, const char *text, size_t bytes)
{
    uint64_t said;
    char *end;
    const char *line = bytes > LAST_LINE ? text + bytes - LAST_LINE : text;
    if (bytes <= LAST_LINE || memcmp(line, last_line, sizeof last_line - 1) != 0 ||
        memcmp(text + bytes - 3, "\"}\n", 3) != 0)
        return bad(r, "cut short, or no index of a checkpoint");
    said = strtoull(line + sizeof last_line - 1, &end, 16);
    if (end != text + bytes - 3 || said != tsri_checksum(text, (size_t)(line - text)))
        return bad(r, "it is damaged: its checksum is another");
    if (!tsri_utf8_valid(text, bytes))
        return bad(r, "it isn't UTF-8");
    tsri_members m = {.at = text, .end = text + bytes};
    tsri_span k, v;
    r->index->metric = NAN;
    while (tsri_members_next(&m, &k, &v))
        TSRI_TRY(read_member(r, k, v));
    if (m.fault)
        return bad(r, m.fault);
    return r->index->nfiles && r->index->nranks && r->index->id[0]
               ? TSR_OK
               : bad(r, "it has no id, or no number of files");
}

/* All of a file, in memory of its own. */
static tsr_status read_file(tsri_mem *mem, const char *path, char **out_text, size_t *out_bytes)
{
    struct stat st;
    int fd = TSRI_RETRY(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    tsr_status status = TSR_OK;
    *out_text = NULL;
    if (fd < 0 || TSRI_RETRY(fstat(fd, &st)))
        status = tsri_fail(TSR_ERR_IO, "%s: can't open: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode) || st.st_size > TSRI_ST_MAX_HEADER)
        status =
            tsri_fail(TSR_ERR_FORMAT, "%s: no file of up to %d bytes", path, TSRI_ST_MAX_HEADER);
    else if (!(*out_text = tsri_mem_alloc(mem, (size_t)st.st_size + 1)))
        status = TSR_ERR_NO_MEMORY;
    for (*out_bytes = 0; status == TSR_OK && *out_bytes < (size_t)st.st_size;) {
        ssize_t n = read(fd, *out_text + *out_bytes, (size_t)st.st_size - *out_bytes);
        if (n > 0)
            *out_bytes += (size_t)n;
        else if (n == 0 || errno != EINTR)
            status = tsri_fail(TSR_ERR_IO, "%s: can't read: %s", path,
                               n ? strerror(errno) : "it has become shorter");
    }
    if (fd >= 0)
        close(fd);
    return status;
}

tsr_status tsri_ckpt_index_parse(tsri_mem *mem, const char *path, const char *text, size_t bytes,
                                 tsri_ckpt_index *out_index)
{
    *out_index = (tsri_ckpt_index){0};
    tsri_pool_init(&out_index->pool, mem);
    reader r = {.index = out_index, .path = path};
    const tsr_status status = parse(&r, text, bytes);
    if (status != TSR_OK)
        tsri_ckpt_index_finish(out_index);
    return status;
}

tsr_status tsri_ckpt_index_read(tsri_mem *mem, const char *folder, tsri_ckpt_index *out_index)
{
    char path[PATH_MAX], *text = NULL;
    size_t bytes = 0;
    if (snprintf(path, sizeof path, "%s/index.json", folder) >= (int)sizeof path)
        return tsri_fail(TSR_ERR_IO, "%.200s...: the path is too long", folder);
    tsr_status status = read_file(mem, path, &text, &bytes);
    if (status == TSR_OK)
        status = tsri_ckpt_index_parse(mem, path, text, bytes, out_index);
    tsri_mem_free(text);
    return status;
}
