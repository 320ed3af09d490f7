/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .npy files. The first byte says what follows: a whole file, or the dictionary of a header, around
 * which the target builds the file that the header speaks of: mutations alone would seldom keep
 * lengths right. Values are held against a copy of this file's own, element by element; some files
 * are read again through a descriptor.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "src/data/npy.h"
#include "tests/fuzz/fuzz.h"

enum {
    IS_FILE = 1 << 0,   /* what follows is the whole file */
    VERSION = 3 << 1,   /* of the file built around a header */
    ON_DISK = 1 << 3,   /* read it from a file, too */
    BUILT_MOST = 65536, /* bytes of values that are made up */
};

/* Where element n of the row-major array stands in the file, in elements. */
static size_t source_of(const tsri_npy *npy, size_t n)
{
    size_t at = 0, step = 1, index[TSR_MAX_NDIM];
    if (!npy->fortran)
        return n;
    for (int i = npy->dims.ndim - 1; i >= 0; i--) {
        index[i] = n % (size_t)npy->dims.d[i];
        n /= (size_t)npy->dims.d[i];
    }
    for (int i = 0; i < npy->dims.ndim; i++) {
        at += index[i] * step;
        step *= (size_t)npy->dims.d[i];
    }
    return at;
}

static void check_values(const tsri_npy *npy, const uint8_t *file, const uint8_t *values)
{
    size_t width = tsr_dtype_size(npy->dtype);
    for (size_t n = 0; n < npy->bytes / width; n++) {
        const uint8_t *src = file + npy->offset + source_of(npy, n) * width;
        for (size_t b = 0; b < width; b++) {
            uint8_t want = src[npy->swapped ? width - 1 - b : b];
            want = npy->dtype == TSR_BOOL ? want != 0 : want;
            FUZZ_MUST(values[n * width + b] == want, "element %zu, byte %zu", n, b);
        }
    }
}

static void check_header(const tsri_npy *npy, size_t size)
{
    size_t bytes = tsr_dtype_size(npy->dtype);
    FUZZ_MUST(bytes, "dtype %d", (int)npy->dtype);
    FUZZ_MUST(npy->dims.ndim >= 0 && npy->dims.ndim <= TSR_MAX_NDIM, "%d axes", npy->dims.ndim);
    for (int i = 0; i < npy->dims.ndim; i++) {
        FUZZ_MUST(npy->dims.d[i] >= 0, "axis %d", i);
        bytes *= (size_t)npy->dims.d[i];
    }
    FUZZ_MUST(bytes == npy->bytes, "%zu bytes, not %zu", npy->bytes, bytes);
    FUZZ_MUST(npy->offset <= size && npy->bytes == size - npy->offset, "offset %zu", npy->offset);
}

static void check_disk(const tsri_npy *npy, const uint8_t *data, size_t size, const uint8_t *values)
{
    char path[64];
    tsri_npy opened = {0}, read = {0};
    void *again = NULL;
    int fd = memfd_create("npy", MFD_CLOEXEC);
    FUZZ_MUST(fd >= 0 && write(fd, data, size) == (ssize_t)size, "no memory file");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    FUZZ_MUST(tsri_npy_open(path, &opened) == TSR_OK, "open");
    FUZZ_MUST(tsri_npy_read(NULL, path, &read, &again) == TSR_OK, "read");
    FUZZ_MUST(opened.bytes == npy->bytes && opened.offset == npy->offset &&
                  read.bytes == npy->bytes && tsr_dims_equal(read.dims, npy->dims),
              "another header");
    FUZZ_MUST(!memcmp(again, values, npy->bytes), "other values");
    tsri_mem_free(again);
    close(fd);
}

static tsr_status try_file(const uint8_t *data, size_t size, bool on_disk)
{
    tsri_npy npy = {0};
    tsr_status status = tsri_npy_parse("f", data, size, &npy);
    FUZZ_MUST_TELL(status);
    if (status != TSR_OK)
        return status;
    check_header(&npy, size);
    uint8_t *values = malloc(npy.bytes ? npy.bytes : 1);
    if (!values)
        abort();
    tsri_npy_values(&npy, data, values);
    check_values(&npy, data, values);
    if (on_disk)
        check_disk(&npy, data, size, values);
    free(values);
    return TSR_OK;
}

/* The file around a header; its values take as many bytes as the first try's error asks for. */
static void try_header(int flags, const uint8_t *text, size_t n)
{
    int version = 1 + (flags & VERSION) / 2 % 3, width = version == 1 ? 2 : 4;
    size_t start = 8 + (size_t)width, missing = 0;
    uint8_t *file = malloc(start + n + BUILT_MOST);
    if (!file)
        abort();
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (uint8_t)version;
    file[7] = 0;
    for (int i = 0; i < width; i++)
        file[8 + i] = (uint8_t)(n >> 8 * i);
    if (n)
        memcpy(file + start, text, n);
    if (try_file(file, start + n, flags & ON_DISK) != TSR_OK) {
        if (sscanf(tsr_last_error(), "f: %*u bytes of values; its shape and dtype need %zu",
                   &missing) == 1 &&
            missing <= BUILT_MOST) {
            for (size_t i = 0; i < missing; i++)
                file[start + n + i] = (uint8_t)(i * 37 + i / 256);
            FUZZ_MUST(try_file(file, start + n + missing, flags & ON_DISK) == TSR_OK,
                      "%zu bytes of values were asked for", missing);
        }
    }
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    if (data[0] & IS_FILE)
        try_file(data + 1, size - 1, data[0] & ON_DISK);
    else if (size < 65536)
        try_header(data[0], data + 1, size - 1);
    return 0;
}
