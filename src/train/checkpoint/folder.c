/* SPDX-License-Identifier: Apache-2.0 */
#include "src/train/checkpoint/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "src/core/foreign.h"
#include "src/core/new_file.h"
#include "src/train/checkpoint/index.h"

static tsr_status fits(int written, char out[PATH_MAX])
{
    return written < PATH_MAX ? TSR_OK
                              : tsri_fail(TSR_ERR_INVALID, "%.200s...: the path is too long", out);
}

tsr_status tsri_ckpt_path(const char *folder, int64_t step, char out[PATH_MAX])
{
    return fits(snprintf(out, PATH_MAX, "%s/step-%08" PRId64, folder, step), out);
}

tsr_status tsri_ckpt_making_path(const char *folder, int64_t step, const char *id,
                                 char out[PATH_MAX])
{
    return fits(snprintf(out, PATH_MAX, "%s/.step-%08" PRId64 ".%s", folder, step, id), out);
}

void tsri_ckpt_remove(const char *path)
{
    DIR *d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    if (rmdir(path))
        unlink(path);
}

/* --- which there are -------------------------------------------------------------------------- */
static int compare_steps(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool step_of(const char *name, int64_t *out)
{
    static const char start[] = "step-";
    const char *at = name + sizeof start - 1;
    char again[64];
    if (strncmp(name, start, sizeof start - 1) != 0)
        return false;
    while (*at == '0' && at[1])
        at++;
    if (!tsri_take_number(&at, 0, INT64_MAX, out) || *at)
        return false;
    snprintf(again, sizeof again, "step-%08" PRId64, *out);
    return !strcmp(again, name);
}

tsr_status tsri_ckpt_list(tsri_mem *mem, const char *folder, int64_t **out_steps, int *out_n)
{
    int capacity = 0;
    void *steps = NULL;
    *out_steps = NULL;
    *out_n = 0;
    DIR *d = opendir(folder);
    if (!d && errno == ENOENT)
        return TSR_OK;
    if (!d)
        return tsri_fail(TSR_ERR_IO, "%s: can't open: %s", folder, strerror(errno));
    for (const struct dirent *e; (e = readdir(d));) {
        int64_t step;
        if (!step_of(e->d_name, &step))
            continue;
        if (!tsri_mem_grow(mem, &steps, *out_n, &capacity, sizeof step)) {
            tsri_mem_free(steps);
            closedir(d);
            return TSR_ERR_NO_MEMORY;
        }
        ((int64_t *)steps)[(*out_n)++] = step;
    }
    closedir(d);
    *out_steps = steps;
    if (*out_n)
        qsort(steps, (size_t)*out_n, sizeof **out_steps, compare_steps);
    return TSR_OK;
}

bool tsri_ckpt_best(tsri_mem *mem, const char *folder, const int64_t *steps, int n,
                    bool larger_is_better, int64_t *out_step)
{
    double best = NAN;
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        tsri_ckpt_index index;
        if (tsri_ckpt_path(folder, steps[i], path) != TSR_OK ||
            tsri_ckpt_index_read(mem, path, &index) != TSR_OK)
            continue;
        const double m = index.metric;
        tsri_ckpt_index_finish(&index);
        if (isnan(m) || !(isnan(best) || (larger_is_better ? m > best : m < best)))
            continue;
        best = m;
        *out_step = steps[i];
    }
    return !isnan(best);
}

/* --- who saves -------------------------------------------------------------------------------- */
/* Removes what a save left that did not come to its end. */
static void remove_left(const char *folder)
{
    static const char *const starts[] = {".step-", ".commit-", ".gone-"};
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));)
        for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
            char path[PATH_MAX];
            if (!strncmp(e->d_name, starts[i], strlen(starts[i])) &&
                snprintf(path, sizeof path, "%s/%s", folder, e->d_name) < (int)sizeof path)
                tsri_ckpt_remove(path);
        }
    if (d)
        closedir(d);
}

tsr_status tsri_ckpt_lock(const char *folder, int *out_fd)
{
    char path[PATH_MAX];
    TSRI_TRY(fits(snprintf(path, sizeof path, "%s/.lock", folder), path));
    int rc = tsri_make_folders(folder, 0777);
    if (rc)
        return tsri_fail(TSR_ERR_IO, "%s: can't make it: %s", folder, strerror(-rc));
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return tsri_fail(TSR_ERR_IO, "%s: can't make it: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
        close(fd);
        return tsri_fail(TSR_ERR_STATE, "%s: another run saves its checkpoints here", folder);
    }
    remove_left(folder);
    *out_fd = fd;
    return TSR_OK;
}

/* --- giving it its name ----------------------------------------------------------------------- */
static bool is_whole(const char *making, int nfiles)
{
    char path[PATH_MAX], name[TSRI_CKPT_FILE_NAME];
    if (snprintf(path, sizeof path, "%s/index.json", making) >= (int)sizeof path ||
        access(path, F_OK))
        return false;
    for (int i = 0; i < nfiles; i++) {
        tsri_ckpt_file_name(name, i, nfiles);
        if (snprintf(path, sizeof path, "%s/%s", making, name) >= (int)sizeof path ||
            access(path, F_OK))
            return false;
    }
    return true;
}

/* Puts `making` in the place of `path`, at one moment where the file system can. */
static int replace(const char *making, const char *path)
{
    if (renameat2(AT_FDCWD, making, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno == EEXIST && renameat2(AT_FDCWD, making, AT_FDCWD, path, RENAME_EXCHANGE) == 0) {
        tsri_ckpt_remove(making);
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    char gone[PATH_MAX];
    const char *name = strrchr(path, '/') + 1;
    if (snprintf(gone, sizeof gone, "%.*s.gone-%s", (int)(name - path), path, name) >=
        (int)sizeof gone)
        return -ENAMETOOLONG;
    if (rename(path, gone) && errno != ENOENT)
        return -errno;
    if (rename(making, path))
        return -errno;
    tsri_ckpt_remove(gone);
    return 0;
}

static void sync_folder(const char *folder)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd); /* where the file system can't, there is nothing to do about it */
        close(fd);
    }
}

/* Takes a checkpoint out of sight, then its files. */
static void drop(const char *folder, int64_t step)
{
    char path[PATH_MAX], gone[PATH_MAX];
    if (tsri_ckpt_path(folder, step, path) != TSR_OK ||
        fits(snprintf(gone, sizeof gone, "%s/.gone-%08" PRId64, folder, step), gone) != TSR_OK)
        return;
    tsri_ckpt_remove(gone);
    if (rename(path, gone) == 0)
        tsri_ckpt_remove(gone);
}

/* Removes what is not kept behind `last`, the step that was just saved. Later ones are of a run
 * that went on from there once: they count as older. */
static tsr_status prune(const char *folder, int64_t last, const tsri_ckpt_keep *keep)
{
    int64_t *steps, best = -1;
    int n, later = 0;
    if (!keep->newest)
        return TSR_OK;
    TSRI_TRY(tsri_ckpt_list(NULL, folder, &steps, &n));
    for (int i = 0; i < n; i++)
        later += steps[i] > last;
    if (keep->best && n > keep->newest &&
        !tsri_ckpt_best(NULL, folder, steps, n, keep->larger_is_better, &best))
        best = -1;
    for (int i = 0; i < n - keep->newest; i++) {
        const int64_t step = i < later ? steps[n - later + i] : steps[i - later];
        if (step != best)
            drop(folder, step);
    }
    tsri_mem_free(steps);
    return TSR_OK;
}

tsr_status tsri_ckpt_commit(const char *folder, int64_t step, const char *id, int nfiles,
                            const tsri_ckpt_keep *keep)
{
    char making[PATH_MAX], path[PATH_MAX], mark[PATH_MAX];
    TSRI_TRY(tsri_ckpt_path(folder, step, path));
    TSRI_TRY(tsri_ckpt_making_path(folder, step, id, making));
    TSRI_TRY(fits(snprintf(mark, sizeof mark, "%s/.commit-%s", folder, id), mark));
    if (!is_whole(making, nfiles))
        return TSR_OK; /* of another rank, then; or it is done */
    /* Several may see the last file come: one of them goes on. */
    int fd = open(mark, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return errno == EEXIST
                   ? TSR_OK
                   : tsri_fail(TSR_ERR_IO, "%s: can't make it: %s", mark, strerror(errno));
    close(fd);
    int rc = 0;
    if (is_whole(making, nfiles)) {
        sync_folder(making);
        rc = replace(making, path);
        sync_folder(folder);
    }
    unlink(mark);
    if (rc)
        return tsri_fail(TSR_ERR_IO, "%s: can't get its name: %s", path, strerror(-rc));
    return prune(folder, step, keep);
}
