/* SPDX-License-Identifier: Apache-2.0 */
#include "src/data/sets/row_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

tsr_status tsri_row_file_open(const char *path, tsri_row_file *out)
{
    struct stat st;
    if (strlen(path) >= sizeof out->path)
        return tsri_fail(TSR_ERR_INVALID, "%.100s...: file name too long", path);
    memcpy(out->path, path, strlen(path) + 1);
    /* O_NONBLOCK: a fifo of that name must not hang us; on files it means nothing. */
    out->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (out->fd < 0)
        return tsri_fail(TSR_ERR_IO, "%s: can't open: %s", path, strerror(errno));
    tsr_status status = TSR_OK;
    if (fstat(out->fd, &st))
        status = tsri_fail(TSR_ERR_IO, "%s: can't open: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        status = tsri_fail(TSR_ERR_IO, "%s: not a regular file", path);
    else
        out->bytes = (int64_t)st.st_size;
    if (status != TSR_OK)
        tsri_row_file_close(out);
    return status;
}

void tsri_row_file_close(tsri_row_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

tsr_status tsri_row_file_read(const tsri_row_file *f, int64_t at, void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(f->fd, (char *)data + done, bytes - done, (off_t)(at + (int64_t)done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tsri_fail(TSR_ERR_IO, "%s: byte %" PRId64 ": can't read: %s", f->path,
                             at + (int64_t)done, strerror(errno));
        if (n == 0)
            return tsri_fail(TSR_ERR_IO,
                             "%s: ends at byte %" PRId64 ", but was %" PRId64
                             " bytes long when it was opened",
                             f->path, at + (int64_t)done, f->bytes);
        done += (size_t)n;
    }
    return TSR_OK;
}

static tsr_status check_npy(const char *path, const tsri_npy *npy)
{
    if (npy->swapped)
        return tsri_fail(TSR_ERR_UNSUPPORTED,
                         "%s: its numbers are in the other byte order; save x.astype("
                         "x.dtype.newbyteorder('='))",
                         path);
    if (npy->fortran && npy->dims.ndim > 1)
        return tsri_fail(TSR_ERR_UNSUPPORTED,
                         "%s: is in Fortran order, where rows are not together; save "
                         "numpy.ascontiguousarray(x)",
                         path);
    return TSR_OK;
}

tsr_status tsri_row_file_open_npy(const char *path, tsri_npy *npy, tsri_row_file *out)
{
    TSRI_TRY(tsri_npy_open(path, npy));
    TSRI_TRY(check_npy(path, npy));
    return tsri_row_file_open(path, out);
}

bool tsri_is_whole(tsr_dtype dtype)
{
    return dtype == TSR_U8 || dtype == TSR_I32 || dtype == TSR_I64;
}

int64_t tsri_whole_number(tsr_dtype dtype, const void *data, int64_t i)
{
    return dtype == TSR_I64   ? ((const int64_t *)data)[i]
           : dtype == TSR_I32 ? ((const int32_t *)data)[i]
                              : ((const uint8_t *)data)[i];
}
