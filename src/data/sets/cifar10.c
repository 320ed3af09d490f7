/* SPDX-License-Identifier: Apache-2.0 */
/* CIFAR-10's binary format (www.cs.toronto.edu/~kriz/cifar.html): records of one label byte and
 * 3 x 32 x 32 pixel bytes, red plane first. */
#include "src/data/dataset.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/core/live.h"
#include "src/data/sets/row_file.h"

enum {
    SIDE = 32,
    PIXELS = 3 * SIDE * SIDE,
    RECORD = 1 + PIXELS,
    CLASSES = 10,
    CHUNK = 128, /* records read at a time */
    MAX_FILES = 5,
};

typedef struct input {
    char path[PATH_MAX];
    tsri_row_file file;
    int64_t records;
} input;

static tsr_status open_input(input *in)
{
    TSRI_TRY(tsri_row_file_open(in->path, &in->file));
    in->records = in->file.bytes / RECORD;
    int64_t rest = in->file.bytes % RECORD;
    if (rest)
        return tsri_fail(TSR_ERR_FORMAT,
                         "%s: incomplete record at byte %" PRId64 ": %" PRId64
                         " bytes of %d; a CIFAR-10 file is a whole number of records",
                         in->path, in->records * RECORD, rest, RECORD);
    return TSR_OK;
}

static tsr_status read_records(const input *in, uint8_t *buf, uint8_t *images, uint8_t *labels)
{
    for (int64_t first = 0; first < in->records; first += CHUNK) {
        int64_t n = in->records - first < CHUNK ? in->records - first : CHUNK;
        TSRI_TRY(tsri_row_file_read(&in->file, first * RECORD, buf, (size_t)n * RECORD));
        for (int64_t i = 0; i < n; i++) {
            const uint8_t *record = buf + i * RECORD;
            if (record[0] >= CLASSES)
                return tsri_fail(TSR_ERR_FORMAT,
                                 "%s: byte %" PRId64 ": label %d; CIFAR-10's are 0..9", in->path,
                                 (first + i) * RECORD, record[0]);
            labels[first + i] = record[0];
            memcpy(images + (first + i) * PIXELS, record + 1, PIXELS);
        }
    }
    return TSR_OK;
}

static tsr_status set_paths(const char *dir, bool train, input *in, int nfiles)
{
    /* The archive unpacks into a folder of its own: either may be named. */
    char probe[PATH_MAX];
    const char *sub = "";
    for (int i = 0; i < 2; i++) {
        const char *candidate = i ? "/cifar-10-batches-bin" : "";
        int n = snprintf(probe, sizeof probe, "%s%s/%s", dir, candidate,
                         train ? "data_batch_1.bin" : "test_batch.bin");
        if (n < 0 || (size_t)n >= sizeof probe)
            return tsri_fail(TSR_ERR_INVALID, "%.100s...: folder name too long", dir);
        if (!access(probe, F_OK)) {
            sub = candidate;
            break;
        }
    }
    for (int i = 0; i < nfiles; i++) {
        char name[32] = "test_batch.bin";
        if (train)
            snprintf(name, sizeof name, "data_batch_%d.bin", i + 1);
        int n = snprintf(in[i].path, sizeof in[i].path, "%s%s/%s", dir, sub, name);
        if (n < 0 || (size_t)n >= sizeof in[i].path)
            return tsri_fail(TSR_ERR_INVALID, "%.100s...: folder name too long", dir);
    }
    return TSR_OK;
}

static tsr_status read_all(tsr_world *world, const char *dir, bool train, input *in, int nfiles,
                           tsr_dataset *ds)
{
    TSRI_TRY(set_paths(dir, train, in, nfiles));
    for (int i = 0; i < nfiles; i++) {
        TSRI_TRY(open_input(&in[i]));
        ds->count += in[i].records;
    }
    if (!ds->count)
        return tsri_fail(TSR_ERR_FORMAT, "%s: byte 0: no records%s", in[0].path,
                         nfiles > 1 ? ", nor in the files after it" : "");
    if (ds->count > TSRI_DATASET_MAX_COUNT)
        return tsri_fail(TSR_ERR_UNSUPPORTED, "%s: %" PRId64 " records; at most %d can be used",
                         dir, ds->count, TSRI_DATASET_MAX_COUNT);
    ds->channels = 3;
    ds->height = ds->width = SIDE;
    ds->classes = CLASSES;
    ds->images = tsri_mem_alloc(&world->mem, (size_t)ds->count * PIXELS);
    ds->labels = ds->images ? tsri_mem_alloc(&world->mem, (size_t)ds->count) : NULL;
    uint8_t *buf = ds->labels ? tsri_mem_alloc(&world->mem, (size_t)CHUNK * RECORD) : NULL;
    TSRI_NEED(buf);
    tsr_status status = TSR_OK;
    int64_t at = 0;
    for (int i = 0; i < nfiles && status == TSR_OK; i++) {
        status = read_records(&in[i], buf, ds->images + at * PIXELS, ds->labels + at);
        at += in[i].records;
    }
    tsri_mem_free(buf);
    return status;
}

tsr_status tsr_cifar10_open(tsr_world *world, const char *dir, bool train,
                            tsr_dataset **out_dataset)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    if (!world || !dir || !out_dataset)
        return tsri_fail(TSR_ERR_INVALID, "tsr_cifar10_open: world, dir or out_dataset is NULL");
    int nfiles = train ? MAX_FILES : 1;
    input *in = tsri_mem_alloc(&world->mem, (size_t)nfiles * sizeof *in);
    TSRI_NEED(in);
    for (int i = 0; i < nfiles; i++)
        in[i].file.fd = -1;
    tsr_dataset *ds = NULL;
    tsr_status status = tsri_dataset_create(world, &ds);
    if (status == TSR_OK)
        status = read_all(world, dir, train, in, nfiles, ds);
    for (int i = 0; i < nfiles; i++)
        tsri_row_file_close(&in[i].file);
    tsri_mem_free(in);
    if (status != TSR_OK) {
        tsr_dataset_destroy(ds);
        return status;
    }
    tsri_dataset_own(world, ds);
    *out_dataset = ds;
    return TSR_OK;
}
