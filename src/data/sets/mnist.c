/* SPDX-License-Identifier: Apache-2.0 */
/* The IDX format of MNIST: big-endian magic (0, 0, type, number of axes), the axes, the data.
 * zlib's gzread takes plain files as they are. */
#include "src/data/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "src/core/live.h"

enum {
    CLASSES = 10,
    MAX_AXES = 3,
    MAGIC_U8 = 0x0800, /* + number of axes */
    FIRST_BYTES = 16 << 20,
    /* A compressed file may unpack to so many times its size, or so many MiB if that is more.
     * MNIST's images unpack to 5 times their size; deflate's most is 1032 times. */
    MOST_TIMES = 64,
    ALWAYS_MIB = 64,
};

typedef struct idx {
    char path[PATH_MAX];
    gzFile gz;
    int64_t file_bytes; /* on the disk */
    int64_t at;         /* bytes of uncompressed data read so far */
    int64_t axes[MAX_AXES];
    uint8_t *data;
} idx;

static tsr_status find_path(idx *f, const char *dir, const char *name)
{
    int n = snprintf(f->path, sizeof f->path, "%s/%s.gz", dir, name);
    if (n < 0 || (size_t)n >= sizeof f->path)
        return tsri_fail(TSR_ERR_INVALID, "%.100s...: folder name too long", dir);
    f->path[n - 3] = 0;
    if (access(f->path, F_OK)) {
        f->path[n - 3] = '.';
        if (access(f->path, F_OK))
            return tsri_fail(TSR_ERR_IO, "%s/%s: no such file, nor with .gz", dir, name);
    }
    return TSR_OK;
}

/* Reads up to `bytes`; fewer only at the end of the file. */
static tsr_status read_some(idx *f, uint8_t *buf, size_t bytes, size_t *out_bytes)
{
    size_t done = 0;
    while (done < bytes) {
        size_t left = bytes - done;
        errno = 0;
        int n = gzread(f->gz, buf + done, left < INT_MAX ? (unsigned)left : INT_MAX);
        int code = Z_OK;
        const char *text = gzerror(f->gz, &code);
        if (n < 0 || code == Z_BUF_ERROR) {
            const char *what = code == Z_ERRNO       ? strerror(errno)
                               : code == Z_BUF_ERROR ? "the compressed file is cut short"
                                                     : text;
            return tsri_fail(code == Z_ERRNO ? TSR_ERR_IO : TSR_ERR_FORMAT,
                             "%s: byte %" PRId64 ": %s", f->path,
                             f->at + (int64_t)done + (n > 0 ? n : 0), what);
        }
        if (n == 0)
            break;
        done += (size_t)n;
    }
    f->at += (int64_t)done;
    *out_bytes = done;
    return TSR_OK;
}

static tsr_status read_header(idx *f, int naxes)
{
    uint8_t head[4 + 4 * MAX_AXES] = {0};
    size_t want = 4 + 4 * (size_t)naxes, got;
    TSRI_TRY(read_some(f, head, want, &got));
    uint32_t word[1 + MAX_AXES] = {0};
    for (int i = 0; i <= naxes; i++)
        word[i] = (uint32_t)head[4 * i] << 24 | (uint32_t)head[4 * i + 1] << 16 |
                  (uint32_t)head[4 * i + 2] << 8 | head[4 * i + 3];
    uint32_t magic = MAGIC_U8 + (uint32_t)naxes;
    if (got >= 4 && word[0] != magic)
        return tsri_fail(TSR_ERR_FORMAT,
                         "%s: byte 0: magic number 0x%08" PRIx32 ", where 0x%08" PRIx32
                         " (bytes, %d axes) is due",
                         f->path, word[0], magic, naxes);
    if (got < want)
        return tsri_fail(TSR_ERR_FORMAT, "%s: ends at byte %zu, within its header of %zu bytes",
                         f->path, got, want);
    for (int i = 0; i < naxes; i++) {
        f->axes[i] = word[1 + i];
        if (f->axes[i] < 1 || f->axes[i] > TSRI_DATASET_MAX_COUNT)
            return tsri_fail(TSR_ERR_FORMAT, "%s: byte %d: axis %d is %" PRId64 "; legal is 1..%d",
                             f->path, 4 + 4 * i, i, f->axes[i], TSRI_DATASET_MAX_COUNT);
    }
    return TSR_OK;
}

/* Refuses a small file that would unpack to gigabytes, before it does. */
static tsr_status check_unpacked(const idx *f, int64_t total)
{
    if (gzdirect(f->gz) || total <= (int64_t)ALWAYS_MIB << 20 || total / MOST_TIMES < f->file_bytes)
        return TSR_OK;
    return tsri_fail(TSR_ERR_FORMAT,
                     "%s: byte 4: its header promises %" PRId64 " bytes, but the compressed file "
                     "has %" PRId64
                     "; legal are %d times as many, or %d MiB: unpack it with gunzip "
                     "if it is meant to be so",
                     f->path, total, f->file_bytes, MOST_TIMES, ALWAYS_MIB);
}

/* The buffer grows with what is really there: a header may claim anything. */
static tsr_status read_data(tsr_world *world, idx *f, int naxes)
{
    int64_t total = 1;
    for (int i = 0; i < naxes; i++)
        if (__builtin_mul_overflow(total, f->axes[i], &total))
            return tsri_fail(TSR_ERR_FORMAT,
                             "%s: byte 4: axes %" PRId64 " x %" PRId64 " x %" PRId64
                             " are too large",
                             f->path, f->axes[0], f->axes[1], f->axes[2]);
    TSRI_TRY(check_unpacked(f, total));
    int64_t begin = f->at;
    size_t done = 0, capacity = 0;
    while (done < (size_t)total) {
        capacity = capacity ? 2 * capacity : FIRST_BYTES;
        if (capacity > (size_t)total)
            capacity = (size_t)total;
        uint8_t *more = tsri_mem_realloc(&world->mem, f->data, capacity);
        TSRI_NEED(more);
        f->data = more;
        size_t got;
        TSRI_TRY(read_some(f, f->data + done, capacity - done, &got));
        done += got;
        if (done < capacity)
            return tsri_fail(TSR_ERR_FORMAT,
                             "%s: ends at byte %" PRId64 "; its header promises %" PRId64 " bytes",
                             f->path, f->at, begin + total);
    }
    uint8_t extra;
    size_t got;
    TSRI_TRY(read_some(f, &extra, 1, &got));
    if (got)
        return tsri_fail(TSR_ERR_FORMAT, "%s: more data behind its end at byte %" PRId64, f->path,
                         begin + total);
    return TSR_OK;
}

static tsr_status open_idx(idx *f)
{
    struct stat st;
    /* O_NONBLOCK: a fifo of that name must not hang us; on files it means nothing. */
    int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    tsr_status status = TSR_OK;
    if (fd < 0 || fstat(fd, &st))
        status = tsri_fail(TSR_ERR_IO, "%s: can't open: %s", f->path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        status = tsri_fail(TSR_ERR_IO, "%s: not a regular file", f->path);
    else if (!(f->gz = gzdopen(fd, "rb")))
        status = tsri_fail(TSR_ERR_NO_MEMORY, "%s: can't open: no memory", f->path);
    else
        f->file_bytes = (int64_t)st.st_size;
    if (status != TSR_OK && fd >= 0)
        close(fd);
    return status;
}

static tsr_status read_idx(tsr_world *world, idx *f, const char *dir, const char *name, int naxes)
{
    TSRI_TRY(find_path(f, dir, name));
    TSRI_TRY(open_idx(f));
    TSRI_TRY(read_header(f, naxes));
    return read_data(world, f, naxes);
}

static tsr_status check_labels(const idx *images, const idx *labels)
{
    if (images->axes[0] != labels->axes[0])
        return tsri_fail(TSR_ERR_FORMAT,
                         "%s: byte 4: %" PRId64 " images, but %s: byte 4: %" PRId64 " labels",
                         images->path, images->axes[0], labels->path, labels->axes[0]);
    for (int64_t i = 0; i < labels->axes[0]; i++)
        if (labels->data[i] >= CLASSES)
            return tsri_fail(TSR_ERR_FORMAT, "%s: byte %" PRId64 ": label %d; MNIST's are 0..9",
                             labels->path, 8 + i, labels->data[i]);
    return TSR_OK;
}

static tsr_status read_set(tsr_world *world, const char *dir, bool train, idx *images, idx *labels,
                           tsr_dataset **out_dataset)
{
    TSRI_TRY(read_idx(world, images, dir,
                      train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte", 3));
    TSRI_TRY(read_idx(world, labels, dir,
                      train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte", 1));
    TSRI_TRY(check_labels(images, labels));
    tsr_dataset *ds;
    TSRI_TRY(tsri_dataset_create(world, &ds));
    ds->count = images->axes[0];
    ds->channels = 1;
    ds->height = images->axes[1];
    ds->width = images->axes[2];
    ds->classes = CLASSES;
    ds->images = images->data;
    ds->labels = labels->data;
    images->data = labels->data = NULL;
    *out_dataset = ds;
    return TSR_OK;
}

tsr_status tsr_mnist_open(tsr_world *world, const char *dir, bool train, tsr_dataset **out_dataset)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    if (!world || !dir || !out_dataset)
        return tsri_fail(TSR_ERR_INVALID, "tsr_mnist_open: world, dir or out_dataset is NULL");
    idx *f = tsri_mem_alloc(&world->mem, 2 * sizeof *f);
    TSRI_NEED(f);
    tsr_dataset *ds = NULL;
    tsr_status status = read_set(world, dir, train, &f[0], &f[1], &ds);
    for (int i = 0; i < 2; i++) {
        if (f[i].gz)
            gzclose_r(f[i].gz);
        tsri_mem_free(f[i].data);
    }
    tsri_mem_free(f);
    if (status != TSR_OK)
        return status;
    tsri_dataset_own(world, ds);
    *out_dataset = ds;
    return TSR_OK;
}

const char *tsri_zlib_version(void)
{
    return zlibVersion();
}
