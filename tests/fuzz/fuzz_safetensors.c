/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors files. The first byte says what follows: a whole file, or the JSON of a header,
 * before which the target puts its length and behind which as many bytes as the header speaks of.
 * What is accepted holds together: tensors without gaps that are found by name and can be read.
 */
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "src/nn/safetensors.h"
#include "tests/fuzz/fuzz.h"

enum { IS_FILE = 1 << 0, READ_MOST = 64 };

static char path[64];
static int fd = -1;

/* One memory file serves all runs. */
static void put(const uint8_t *start, size_t nstart, const uint8_t *data, size_t size,
                uint64_t tail)
{
    if (fd < 0) {
        fd = memfd_create("safetensors", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    const struct iovec parts[2] = {{(void *)(uintptr_t)start, nstart},
                                   {(void *)(uintptr_t)data, size}};
    FUZZ_MUST(pwritev(fd, parts, 2, 0) == (ssize_t)(nstart + size) &&
                  !ftruncate(fd, (off_t)(nstart + size + tail)),
              "no memory file");
}

static void check_entry(const tsri_st_file *f, const tsri_st_entry *e, uint64_t begin)
{
    uint8_t buf[READ_MOST];
    FUZZ_MUST(e->begin == begin && e->end >= begin, "'%s' begins at %llu", e->name,
              (unsigned long long)e->begin);
    FUZZ_MUST(tsri_st_find(f, e->name) == e, "'%s' isn't found", e->name);
    uint64_t size = e->end - e->begin;
    size_t some = size < READ_MOST ? (size_t)size : READ_MOST;
    tsr_status usable = tsri_st_usable(f, e);
    FUZZ_MUST((usable == TSR_OK) == (e->dtype != TSR_DTYPE_NONE && e->ndim <= TSR_MAX_NDIM),
              "'%s': %d", e->name, (int)usable);
    tsr_status status = tsri_st_read(f, e, 0, some, buf);
    FUZZ_MUST(status == usable, "reading '%s': %d", e->name, (int)status);
    if (usable != TSR_OK)
        return;
    FUZZ_MUST(tsri_st_read(f, e, size - some, some, buf) == TSR_OK, "the end of '%s'", e->name);
    FUZZ_MUST(tsri_st_read(f, e, size, 1, buf) == TSR_ERR_INVALID, "behind '%s'", e->name);
    FUZZ_MUST(tsri_st_read(f, e, UINT64_MAX, 2, buf) == TSR_ERR_INVALID, "wraps");
    uint64_t bytes = tsr_dtype_size(e->dtype);
    FUZZ_MUST(e->dims.ndim == e->ndim, "'%s': %d axes, %d", e->name, e->ndim, e->dims.ndim);
    for (int i = 0; i < e->ndim; i++) {
        FUZZ_MUST(e->dims.d[i] >= 0, "'%s': axis %d", e->name, i);
        bytes *= (uint64_t)e->dims.d[i];
    }
    FUZZ_MUST(bytes == size, "'%s' has %llu bytes", e->name, (unsigned long long)size);
}

static tsr_status try_open(void)
{
    tsri_st_file *f = NULL;
    uint64_t at = 0;
    tsr_status status = tsri_st_open(NULL, path, &f);
    FUZZ_MUST_TELL(status);
    if (status != TSR_OK)
        return status;
    for (int64_t i = 0; i < tsri_st_count(f); i++) {
        const tsri_st_entry *e = tsri_st_at(f, i);
        check_entry(f, e, at);
        at = e->end;
    }
    FUZZ_MUST(!tsri_st_find(f, "no \x01 name"), "found");
    tsri_st_metadata(f, "format");
    tsri_st_close(f);
    return TSR_OK;
}

/* With more data than any header speaks of the error says where the last tensor ends. */
static void try_header(const uint8_t *text, size_t n)
{
    const uint64_t much = UINT64_C(1) << 54;
    unsigned long long end;
    uint8_t start[8];
    for (int i = 0; i < 8; i++)
        start[i] = (uint8_t)((uint64_t)n >> 8 * i);
    put(start, sizeof start, text, n, much);
    if (try_open() == TSR_OK)
        return;
    /* At the text's ends: names in the header may say the same. */
    const char *error = tsr_last_error(), *last = strrchr(error, ' '), *byte = error + strlen(path);
    if (!last || strcmp(last, " tensor") || sscanf(byte, ": byte %llu", &end) != 1)
        return;
    FUZZ_MUST(end >= 8 + n, "data begins within the header");
    put(start, sizeof start, text, n, end - 8 - n);
    FUZZ_MUST(try_open() == TSR_OK, "with as many bytes as it asked for");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    if (data[0] & IS_FILE) {
        put(data + 1, size - 1, NULL, 0, 0);
        try_open();
    } else {
        try_header(data + 1, size - 1);
    }
    return 0;
}
