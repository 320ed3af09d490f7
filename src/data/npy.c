/* SPDX-License-Identifier: Apache-2.0 */
/* The values of .npy files, and the files. */
#include "src/data/npy.h"
#include "src/core/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/data/npy_header.h"
#include "src/target/dtype.h"

tsr_status tsri_npy_parse(const char *name, const void *data, size_t size, tsri_npy *out_npy)
{
    return tsri_npy_parse_header(name, data, size, size, out_npy);
}

/* --- values ----------------------------------------------------------------------------------- */
static void swap_bytes(char *at, size_t size)
{
    for (size_t i = 0; i < size / 2; i++) {
        char c = at[i];
        at[i] = at[size - 1 - i];
        at[size - 1 - i] = c;
    }
}

/* From the first axis running fastest to the last one. */
static void reorder(const tsri_npy *npy, const char *src, char *dst)
{
    size_t size = tsr_dtype_size(npy->dtype), count = npy->bytes / size;
    int ndim = npy->dims.ndim;
    int64_t at[TSR_MAX_NDIM] = {0}, stride[TSR_MAX_NDIM], from = 0, step = 1;
    for (int i = 0; i < ndim; i++) {
        stride[i] = step;
        step *= npy->dims.d[i];
    }
    for (size_t n = 0; n < count; n++) {
        memcpy(dst + n * size, src + (size_t)from * size, size);
        for (int i = ndim - 1; i >= 0; i--) {
            from += stride[i];
            if (++at[i] < npy->dims.d[i])
                break;
            from -= at[i] * stride[i];
            at[i] = 0;
        }
    }
}

void tsri_npy_values(const tsri_npy *npy, const void *data, void *out_values)
{
    const char *src = (const char *)data + npy->offset;
    char *dst = out_values;
    size_t size = tsr_dtype_size(npy->dtype);
    if (npy->fortran && npy->dims.ndim > 1)
        reorder(npy, src, dst);
    else if (npy->bytes)
        memcpy(dst, src, npy->bytes);
    for (size_t i = 0; npy->swapped && i < npy->bytes; i += size)
        swap_bytes(dst + i, size);
    for (size_t i = 0; npy->dtype == TSR_BOOL && i < npy->bytes; i++)
        dst[i] = dst[i] != 0;
}

/* --- reading files ---------------------------------------------------------------------------- */
static tsr_status io_failed(const char *path, const char *what)
{
    return tsri_fail(TSR_ERR_IO, "%s: can't be %s: %s", path, what, strerror(errno));
}

static tsr_status read_at(const char *path, int fd, char *data, size_t bytes, size_t *out_got)
{
    size_t got = 0;
    while (got < bytes) {
        ssize_t n = pread(fd, data + got, bytes - got, (off_t)got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return io_failed(path, "read");
        if (n == 0)
            break;
        got += (size_t)n;
    }
    *out_got = got;
    return TSR_OK;
}

static tsr_status open_file(const char *path, int *out_fd, size_t *out_size)
{
    struct stat st;
    if (!path)
        return tsri_fail(TSR_ERR_INVALID, "npy: the file name is NULL");
    /* Without O_NONBLOCK a FIFO would be waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return io_failed(path, "opened");
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return tsri_fail(TSR_ERR_IO, "%s: not a regular file", path);
    }
    *out_fd = fd;
    *out_size = (size_t)st.st_size;
    return TSR_OK;
}

/* The file's first bytes, all of them or as many as a header may have; the caller frees them. */
static tsr_status read_file(tsri_mem *mem, const char *path, bool header_only, tsri_npy *out_npy,
                            char **out_data)
{
    int fd = -1;
    size_t size = 0, got = 0;
    TSRI_TRY(open_file(path, &fd, &size));
    size_t bytes = header_only && size > TSRI_NPY_MAX_START ? (size_t)TSRI_NPY_MAX_START : size;
    char *data = tsri_mem_alloc(mem, bytes);
    tsr_status status = data ? read_at(path, fd, data, bytes, &got) : TSR_ERR_NO_MEMORY;
    close(fd);
    if (status == TSR_OK && got < bytes)
        status = tsri_fail(TSR_ERR_IO, "%s: it became shorter while it was read", path);
    if (status == TSR_OK)
        status = tsri_npy_parse_header(path, data, bytes, size, out_npy);
    if (status != TSR_OK) {
        tsri_mem_free(data);
        return status;
    }
    *out_data = data;
    return TSR_OK;
}

tsr_status tsri_npy_open(const char *path, tsri_npy *out_npy)
{
    char *data;
    TSRI_TRY(read_file(NULL, path, true, out_npy, &data));
    tsri_mem_free(data);
    return TSR_OK;
}

tsr_status tsri_npy_read(tsri_mem *mem, const char *path, tsri_npy *out_npy, void **out_values)
{
    char *data;
    tsri_npy npy;
    TSRI_TRY(read_file(mem, path, false, &npy, &data));
    void *values = tsri_mem_alloc(mem, npy.bytes);
    if (values)
        tsri_npy_values(&npy, data, values);
    tsri_mem_free(data);
    TSRI_NEED(values);
    *out_npy = npy;
    *out_values = values;
    return TSR_OK;
}

/* --- writing ---------------------------------------------------------------------------------- */
static size_t make_header(tsr_dtype dtype, tsr_dims dims, char header[TSRI_NPY_HEADER_MAX])
{
    char shape[200] = "";
    int used = 0;
    for (int i = 0; i < dims.ndim; i++)
        used += snprintf(shape + used, sizeof shape - (size_t)used, "%lld%s", (long long)dims.d[i],
                         i + 1 < dims.ndim ? ", "
                         : dims.ndim == 1  ? ","
                                           : "");
    int n = snprintf(header + 10, TSRI_NPY_HEADER_MAX - 10,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                     tsri_dtype_of(dtype)->npy, shape);
    /* The values start at a multiple of 64, behind a newline. */
    size_t total = ((size_t)n + 11 + 63) / 64 * 64;
    memset(header + 10 + n, ' ', total - 10 - (size_t)n);
    header[total - 1] = '\n';
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)((total - 10) & 0xff);
    header[9] = (char)((total - 10) >> 8);
    return total;
}

/* Errors are the stream's. */
static void write_values(FILE *f, tsr_dtype dtype, size_t count, const void *values)
{
    if (dtype != TSR_BF16 && count > 0)
        fwrite(values, tsr_dtype_size(dtype), count, f);
    for (size_t i = 0; i < count && dtype == TSR_BF16 && !ferror(f); i++) {
        uint16_t half;
        memcpy(&half, (const char *)values + 2 * i, sizeof half);
        uint32_t wide = (uint32_t)half << 16;
        fwrite(&wide, sizeof wide, 1, f);
    }
}

tsr_status tsri_npy_write(const char *path, tsr_dtype dtype, tsr_dims dims, const void *values)
{
    if (!path || (!values && tsr_dims_count(dims)) || !tsr_dtype_size(dtype))
        return tsri_fail(TSR_ERR_INVALID, "npy: %s",
                         !path     ? "the file name is NULL"
                         : !values ? "the values are NULL"
                                   : "no such dtype");
    char header[TSRI_NPY_HEADER_MAX];
    size_t n = make_header(dtype, dims, header);
    tsri_new_file file;
    int rc = tsri_new_file_stream(&file, path);
    if (!rc) {
        fwrite(header, 1, n, file.stream);
        write_values(file.stream, dtype, (size_t)tsr_dims_count(dims), values);
        rc = tsri_new_file_keep(&file, false);
    }
    errno = -rc;
    return rc ? io_failed(path, "written") : TSR_OK;
}
