/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the synthetic data set in CIFAR-10's binary format. */
#include "src/data/sets/synthetic.h"

#include <tessera/data.h>

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/core/new_file.h"
#include "src/core/rng.h"
#include "src/core/status.h"

enum {
    PIXELS = 3 * TSRI_SYNTHETIC_SIDE * TSRI_SYNTHETIC_SIDE,
    NFILES = 6, /* five of training, one of tests */
};

static const char meta_name[] = "batches.meta.txt";

/* The temporaries have the longest names in the folder. */
static tsr_status check_length(const char *dir)
{
    return strlen(dir) + 1 + TSRI_NEW_FILE_NAME <= PATH_MAX
               ? TSR_OK
               : tsri_fail(TSR_ERR_INVALID, "%.100s...: folder name too long", dir);
}

static void meta_path(const char *dir, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%s", dir, meta_name);
}

static void file_path(const char *dir, int file, char path[PATH_MAX])
{
    if (file < NFILES - 1)
        snprintf(path, PATH_MAX, "%s/data_batch_%d.bin", dir, file + 1);
    else
        snprintf(path, PATH_MAX, "%s/test_batch.bin", dir);
}

static tsr_status write_failed(const char *path, int rc)
{
    return tsri_fail(TSR_ERR_IO, "%s: can't write: %s", path, strerror(-rc));
}

/* A set that this function wrote may be replaced; a real one must not be lost. */
static tsr_status check_folder(const char *dir)
{
    char path[PATH_MAX], line[64] = "";
    bool any = false;
    for (int i = 0; i < NFILES && !any; i++) {
        file_path(dir, i, path);
        any = !access(path, F_OK);
    }
    if (!any)
        return TSR_OK;
    meta_path(dir, path);
    FILE *meta = fopen(path, "re");
    if (meta) {
        if (fgets(line, sizeof line, meta))
            line[strcspn(line, "\n")] = 0;
        fclose(meta);
    }
    if (strcmp(line, tsri_synthetic_class_name(0)))
        return tsri_fail(TSR_ERR_STATE,
                         "%s: holds a data set that is not synthetic; name another folder", dir);
    return TSR_OK;
}

static tsr_status write_meta(const char *dir)
{
    char path[PATH_MAX];
    tsri_new_file file;
    meta_path(dir, path);
    int rc = tsri_new_file_stream(&file, path);
    if (rc)
        return write_failed(path, rc);
    for (int i = 0; i < TSRI_SYNTHETIC_CLASSES; i++)
        fprintf(file.stream, "%s\n", tsri_synthetic_class_name(i));
    rc = tsri_new_file_keep(&file, false);
    return rc ? write_failed(path, rc) : TSR_OK;
}

static tsr_status write_records(const char *dir, int file, int64_t records, uint64_t seed)
{
    char path[PATH_MAX];
    tsri_new_file out;
    file_path(dir, file, path);
    int rc = tsri_new_file_stream(&out, path);
    if (rc)
        return write_failed(path, rc);
    uint64_t key = tsri_rng_key(seed, "synthetic labels");
    uint8_t record[1 + PIXELS];
    for (int64_t i = 0; i < records && !ferror(out.stream); i++) {
        /* Every ten in a row hold each class once, turned by a random amount. */
        uint32_t word = tsri_rng_word(key, (uint64_t)file, (uint64_t)(i / TSRI_SYNTHETIC_CLASSES));
        int label = (int)((word % TSRI_SYNTHETIC_CLASSES + (uint64_t)i) % TSRI_SYNTHETIC_CLASSES);
        record[0] = (uint8_t)label;
        tsri_synthetic_draw(seed, (uint64_t)file << 40 | (uint64_t)i, label, record + 1);
        fwrite(record, sizeof record, 1, out.stream);
    }
    rc = tsri_new_file_keep(&out, false);
    return rc ? write_failed(path, rc) : TSR_OK;
}

/* A record's number has 40 bits of what it is drawn by. */
static const int64_t MAX_RECORDS = (int64_t)1 << 40;

tsr_status tsr_synthetic_write_cifar10(const char *dir, int64_t records_per_file, uint64_t seed)
{
    if (!dir || records_per_file < 1 || records_per_file > MAX_RECORDS)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_synthetic_write_cifar10: %" PRId64
                         " records a file into %s; legal is a folder and 1 to 2^40",
                         records_per_file, dir ? dir : "NULL");
    TSRI_TRY(check_length(dir));
    if (mkdir(dir, 0777) && errno != EEXIST)
        return tsri_fail(TSR_ERR_IO, "%s: can't make the folder: %s", dir, strerror(errno));
    TSRI_TRY(check_folder(dir));
    TSRI_TRY(write_meta(dir));
    for (int i = 0; i < NFILES; i++)
        TSRI_TRY(write_records(dir, i, records_per_file, seed));
    return TSR_OK;
}
