/* SPDX-License-Identifier: Apache-2.0 */
/* A text as windows of bytes or tokens, each with those behind them for labels. */
#include <inttypes.h>
#include <string.h>

#include "src/data/row_set.h"
#include "src/data/sets/row_file.h"

enum { READ_AT_ONCE = 4096 };

typedef struct text_set {
    tsri_row_set base;
    tsri_row_file file;
    tsr_dtype stored;
    int64_t start, context, vocab; /* start: byte of the first element */
} text_set;

static void close_text(tsri_row_set *set)
{
    text_set *t = (text_set *)set;
    tsri_row_file_close(&t->file);
    tsri_mem_free(t);
}

/* Some elements, which are checked. */
static tsr_status read_elements(const text_set *t, int64_t first, int64_t n, int64_t *out)
{
    _Alignas(8) char data[READ_AT_ONCE];
    const size_t size = tsr_dtype_size(t->stored);
    const int64_t most = (int64_t)(sizeof data / size);
    for (int64_t done = 0; done < n;) {
        const int64_t more = n - done < most ? n - done : most;
        const int64_t at = t->start + (first + done) * (int64_t)size;
        TSRI_TRY(tsri_row_file_read(&t->file, at, data, (size_t)more * size));
        for (int64_t i = 0; i < more; i++) {
            const int64_t v = tsri_whole_number(t->stored, data, i);
            if (v < 0 || v >= t->vocab)
                return tsri_fail(TSR_ERR_FORMAT,
                                 "%s: token %" PRId64 " is %" PRId64 "; legal are 0 to %" PRId64
                                 " (vocab is %" PRId64 ")",
                                 t->file.path, first + done + i, v, t->vocab - 1, t->vocab);
            out[done + i] = v;
        }
        done += more;
    }
    return TSR_OK;
}

static tsr_status get_window(const tsri_row_set *set, int64_t row, void *x, int64_t *y)
{
    const text_set *t = (const text_set *)set;
    int64_t *ids = x;
    const int64_t n = t->context;
    TSRI_TRY(read_elements(t, row * n, n, ids));
    memcpy(y, ids + 1, (size_t)(n - 1) * sizeof *y);
    return read_elements(t, row * n + n, 1, y + n - 1);
}

static tsr_status open_tokens(const char *path, text_set *t, int64_t *elements)
{
    tsri_npy npy;
    TSRI_TRY(tsri_row_file_open_npy(path, &npy, &t->file));
    t->stored = npy.dtype;
    t->start = (int64_t)npy.offset;
    *elements = tsr_dims_count(npy.dims);
    if (npy.dims.ndim != 1)
        return tsri_fail(TSR_ERR_SHAPE, "%s: has %d axes; tokens stand along one", path,
                         npy.dims.ndim);
    return tsri_is_whole(npy.dtype)
               ? TSR_OK
               : tsri_fail(TSR_ERR_DTYPE, "%s: is %s; tokens are u8, i32 or i64", path,
                           tsr_dtype_name(npy.dtype));
}

static tsr_status open_bytes(const char *path, text_set *t, int64_t *elements)
{
    TSRI_TRY(tsri_row_file_open(path, &t->file));
    t->stored = TSR_U8;
    *elements = t->file.bytes;
    return TSR_OK;
}

tsr_status tsri_text_set_open(tsri_mem *mem, const char *path, bool is_npy, int64_t context,
                              int64_t vocab, tsri_row_set **out_set)
{
    int64_t elements = 0;
    text_set *t = tsri_mem_alloc(mem, sizeof *t);
    TSRI_NEED(t);
    *t = (text_set){.file.fd = -1, .context = context, .vocab = vocab};
    tsr_status status = is_npy ? open_tokens(path, t, &elements) : open_bytes(path, t, &elements);
    if (status == TSR_OK && elements <= context)
        status = tsri_fail(TSR_ERR_FORMAT,
                           "%s: %" PRId64 " %s; a window of context %" PRId64 " and the one "
                           "behind it take %" PRId64,
                           path, elements, is_npy ? "tokens" : "bytes", context, context + 1);
    if (status != TSR_OK) {
        close_text(&t->base);
        return status;
    }
    t->base = (tsri_row_set){.dtype = TSR_I64,
                             .x = TSR_DIMS(context),
                             .y = TSR_DIMS(context),
                             .count = (elements - 1) / context,
                             .get = get_window,
                             .close = close_text};
    *out_set = &t->base;
    return TSR_OK;
}

tsr_status tsri_npy_largest(const char *path, int64_t *out_largest)
{
    _Alignas(8) char data[READ_AT_ONCE];
    tsri_npy npy;
    tsri_row_file file = {.fd = -1};
    TSRI_TRY(tsri_row_file_open_npy(path, &npy, &file));
    const size_t size = tsr_dtype_size(npy.dtype);
    const int64_t n = tsr_dims_count(npy.dims), most = (int64_t)(sizeof data / size);
    tsr_status status = tsri_is_whole(npy.dtype)
                            ? TSR_OK
                            : tsri_fail(TSR_ERR_DTYPE,
                                        "%s: is %s; legal are whole numbers: u8, "
                                        "i32 or i64",
                                        path, tsr_dtype_name(npy.dtype));
    int64_t largest = -1;
    for (int64_t done = 0; done < n && status == TSR_OK; done += most) {
        const int64_t more = n - done < most ? n - done : most;
        status = tsri_row_file_read(&file, (int64_t)npy.offset + done * (int64_t)size, data,
                                    (size_t)more * size);
        for (int64_t i = 0; i < more && status == TSR_OK; i++) {
            const int64_t v = tsri_whole_number(npy.dtype, data, i);
            largest = v > largest ? v : largest;
            if (v < 0)
                status = tsri_fail(TSR_ERR_FORMAT,
                                   "%s: number %" PRId64 " is %" PRId64
                                   "; legal are those of at least 0",
                                   path, done + i, v);
        }
    }
    tsri_row_file_close(&file);
    if (status == TSR_OK)
        *out_largest = largest;
    return status;
}
