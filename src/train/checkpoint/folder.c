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
#include <sys/stat.h>
#include <unistd.h>

#include "src/core/new_file.h"
#include "src/core/retry.h"
#include "src/train/checkpoint/entries.h"
#include "src/train/checkpoint/index.h"

static tsr_status fits(int written, char out[PATH_MAX])
{
    return written < PATH_MAX ? TSR_OK
                              : tsri_fail(TSR_ERR_INVALID, "%.200s...: the path is too long", out);
}

/* The name of a folder in which a checkpoint is written. */
static void making_name(char buf[TSRI_CKPT_ENTRY], int64_t step, const char *id)
{
    snprintf(buf, TSRI_CKPT_ENTRY, ".step-%08" PRId64 ".%.*s", step, TSRI_CKPT_ID - 1, id);
}

/* The run's own folder may be reached through links. */
static int open_folder(const char *folder)
{
    return TSRI_RETRY(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

tsr_status tsri_ckpt_path(const char *folder, int64_t step, char out[PATH_MAX])
{
    char name[TSRI_CKPT_ENTRY];
    tsri_ckpt_step_name(name, step);
    return fits(snprintf(out, PATH_MAX, "%s/%s", folder, name), out);
}

tsr_status tsri_ckpt_making_path(const char *folder, int64_t step, const char *id,
                                 char out[PATH_MAX])
{
    char name[TSRI_CKPT_ENTRY];
    making_name(name, step, id);
    return fits(snprintf(out, PATH_MAX, "%s/%s", folder, name), out);
}

/* --- which there are -------------------------------------------------------------------------- */
static int compare_steps(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The steps of the checkpoints that have an index, `or_shards`: or a shard. */
static tsr_status list_steps(tsri_mem *mem, const char *folder, bool or_shards, int64_t **out_steps,
                             int *out_n)
{
    int capacity = 0;
    void *steps = NULL;
    tsr_status status = TSR_OK;
    *out_steps = NULL;
    *out_n = 0;
    const int fd = open_folder(folder);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        const int error = errno;
        if (fd >= 0)
            close(fd);
        return error == ENOENT
                   ? TSR_OK
                   : tsri_fail(TSR_ERR_IO, "%s: can't open: %s", folder, strerror(error));
    }
    for (const struct dirent *e; status == TSR_OK && (errno = 0, e = readdir(d));) {
        int64_t step;
        if (!tsri_ckpt_is_step(e->d_name, &step) ||
            !tsri_ckpt_is_checkpoint(fd, e->d_name, or_shards))
            continue;
        if (!tsri_mem_grow(mem, &steps, *out_n, &capacity, sizeof step))
            status = TSR_ERR_NO_MEMORY;
        else
            ((int64_t *)steps)[(*out_n)++] = step;
    }
    closedir(d);
    *out_steps = steps;
    if (*out_n)
        qsort(steps, (size_t)*out_n, sizeof **out_steps, compare_steps);
    return status;
}

tsr_status tsri_ckpt_list(tsri_mem *mem, const char *folder, int64_t **out_steps, int *out_n)
{
    return list_steps(mem, folder, true, out_steps, out_n);
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
/* Removes what killed runs left in the folder. */
static void remove_left(const char *folder, tsri_ckpt_stays *stays)
{
    const int fd = open_folder(folder);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    for (const struct dirent *e; d && (e = readdir(d));) {
        const char *name = e->d_name;
        if (tsri_ckpt_is_left(name))
            tsri_ckpt_remove_entry(fd, name, name, stays);
        if (tsri_ckpt_is_mark(name) && TSRI_RETRY(unlinkat(fd, name, 0)) && errno != ENOENT)
            tsri_ckpt_note(stays, "", name);
    }
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
}

tsr_status tsri_ckpt_lock(const char *folder, int *out_fd, tsri_ckpt_stays *stays)
{
    char path[PATH_MAX];
    TSRI_TRY(fits(snprintf(path, sizeof path, "%s/.lock", folder), path));
    int rc = tsri_make_folders(folder, 0777);
    if (rc)
        return tsri_fail(TSR_ERR_IO, "%s: can't make it: %s", folder, strerror(-rc));
    int fd = TSRI_RETRY(open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (fd < 0)
        return tsri_fail(TSR_ERR_IO, "%s: can't make it: %s", path, strerror(errno));
    if (TSRI_RETRY(flock(fd, LOCK_EX | LOCK_NB)) && errno == EWOULDBLOCK) {
        close(fd);
        return tsri_fail(TSR_ERR_STATE, "%s: another run saves its checkpoints here", folder);
    }
    remove_left(folder, stays);
    *out_fd = fd;
    return TSR_OK;
}

void tsri_ckpt_discard(const char *folder, int64_t step, const char *id, tsri_ckpt_stays *stays)
{
    char making[TSRI_CKPT_ENTRY];
    const int fd = open_folder(folder);
    making_name(making, step, id);
    if (fd < 0)
        return;
    tsri_ckpt_remove_entry(fd, making, making, stays);
    close(fd);
}

/* --- giving it its name ----------------------------------------------------------------------- */
static bool is_whole(int making, int nfiles)
{
    char name[TSRI_CKPT_FILE_NAME];
    bool whole = !TSRI_RETRY(faccessat(making, "index.json", F_OK, 0));
    for (int i = 0; i < nfiles && whole; i++) {
        tsri_ckpt_file_name(name, i, nfiles);
        whole = !TSRI_RETRY(faccessat(making, name, F_OK, 0));
    }
    return whole;
}

/* Takes a checkpoint's name from what has it, where the file system can't exchange two. */
static int replace_in_turn(int folder, const char *making, const char *name, const char *gone)
{
    if (TSRI_RETRY(renameat(folder, name, folder, gone)) && errno != ENOENT)
        return -errno;
    if (!TSRI_RETRY(renameat(folder, making, folder, name)))
        return 0;
    const int error = errno;
    TSRI_RETRY(renameat(folder, gone, folder, name));
    return -error;
}

/* Puts `making` in the place of `name`, at one moment where the file system can. A user's own
 * entries move from the old checkpoint into the new one. */
static int replace(int folder, const char *making, const char *name, tsri_ckpt_stays *stays)
{
    struct stat st;
    char gone[TSRI_CKPT_ENTRY + sizeof ".gone-"];
    const char *old = making;
    if (!TSRI_RETRY(renameat2(folder, making, folder, name, RENAME_NOREPLACE)))
        return 0;
    const int error = errno;
    if (!TSRI_RETRY(fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW)) && !S_ISDIR(st.st_mode) &&
        !S_ISLNK(st.st_mode))
        return -EEXIST; /* a user's file */
    if (error != EEXIST || TSRI_RETRY(renameat2(folder, making, folder, name, RENAME_EXCHANGE))) {
        const int why = error != EEXIST ? error : errno;
        if (why != EINVAL && why != ENOSYS)
            return -why;
        snprintf(gone, sizeof gone, ".gone-%s", name);
        tsri_ckpt_remove_entry(folder, gone, gone, stays); /* of a run that was killed */
        const int rc = replace_in_turn(folder, making, name, gone);
        if (rc)
            return rc;
        old = gone;
    }
    tsri_ckpt_remove_entry(folder, old, name, stays);
    tsri_ckpt_give_back(folder, old, name);
    return 0;
}

/* Takes a checkpoint out of sight and removes its files. A folder that keeps foreign entries gets
 * its name back. */
static void drop(int folder, int64_t step, tsri_ckpt_stays *stays)
{
    char name[TSRI_CKPT_ENTRY], gone[TSRI_CKPT_ENTRY];
    tsri_ckpt_step_name(name, step);
    snprintf(gone, sizeof gone, ".gone-%08" PRId64, step);
    tsri_ckpt_remove_entry(folder, gone, gone, stays);
    const bool hidden =
        !tsri_ckpt_is_link(folder, name) && !TSRI_RETRY(renameat(folder, name, folder, gone));
    tsri_ckpt_remove_entry(folder, hidden ? gone : name, name, stays);
    if (hidden)
        TSRI_RETRY(renameat(folder, gone, folder, name));
}

/* Removes the checkpoints beyond `keep`, after step `last` was saved. Checkpoints of
 * later steps are left over from an abandoned run and count as older than `last`. */
static tsr_status prune(const char *folder, int fd, int64_t last, const tsri_ckpt_keep *keep,
                        tsri_ckpt_stays *stays)
{
    int64_t *steps, best = -1;
    int n, later = 0;
    if (!keep->newest)
        return TSR_OK;
    tsr_status status = list_steps(NULL, folder, false, &steps, &n);
    if (status != TSR_OK)
        n = 0;
    for (int i = 0; i < n; i++)
        later += steps[i] > last;
    if (keep->best && n > keep->newest &&
        !tsri_ckpt_best(NULL, folder, steps, n, keep->larger_is_better, &best))
        best = -1;
    for (int i = 0; i < n - keep->newest; i++) {
        const int64_t step = i < later ? steps[n - later + i] : steps[i - later];
        if (step != best)
            drop(fd, step, stays);
    }
    tsri_mem_free(steps);
    return status;
}

/* Gives it its name, which one rank alone does: it has made the mark. *done: it was this call. */
static tsr_status give_name(const char *folder, int fd, int64_t step, const char *making,
                            int nfiles, tsri_ckpt_stays *stays, bool *done)
{
    char name[TSRI_CKPT_ENTRY];
    tsri_ckpt_step_name(name, step);
    const int made = tsri_ckpt_open_entry(fd, making);
    if (made < 0)
        return TSR_OK; /* it is done */
    int rc = 0;
    if (is_whole(made, nfiles)) {
        rc = tsri_sync_folder(made);
        if (!rc)
            rc = replace(fd, making, name, stays);
        if (!rc)
            rc = tsri_sync_folder(fd);
        *done = !rc;
    }
    close(made);
    return rc ? tsri_fail(TSR_ERR_IO, "%s/%s: can't get its name: %s", folder, name, strerror(-rc))
              : TSR_OK;
}

static tsr_status commit(const char *folder, int fd, int64_t step, const char *id, int nfiles,
                         tsri_ckpt_stays *stays, bool *done)
{
    char making[TSRI_CKPT_ENTRY], mark[TSRI_CKPT_ENTRY];
    making_name(making, step, id);
    snprintf(mark, sizeof mark, ".commit-%.*s", TSRI_CKPT_ID - 1, id);
    const int made = tsri_ckpt_open_entry(fd, making);
    const bool whole = made >= 0 && is_whole(made, nfiles);
    if (made >= 0)
        close(made);
    if (!whole)
        return TSR_OK; /* of another rank, then; or it is done */
    /* Several may see the last file come: one of them goes on. */
    const int marked = TSRI_RETRY(openat(fd, mark, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (marked < 0 && errno == EEXIST)
        return TSR_OK;
    if (marked < 0)
        return tsri_fail(TSR_ERR_IO, "%s/%s: can't make it: %s", folder, mark, strerror(errno));
    close(marked);
    const tsr_status status = give_name(folder, fd, step, making, nfiles, stays, done);
    TSRI_RETRY(unlinkat(fd, mark, 0));
    return status;
}

tsr_status tsri_ckpt_commit(const char *folder, int64_t step, const char *id, int nfiles,
                            const tsri_ckpt_keep *keep, tsri_ckpt_stays *stays)
{
    bool done = false;
    const int fd = open_folder(folder);
    if (fd < 0)
        return tsri_fail(TSR_ERR_IO, "%s: can't open: %s", folder, strerror(errno));
    tsr_status status = commit(folder, fd, step, id, nfiles, stays, &done);
    if (done)
        status = prune(folder, fd, step, keep, stays);
    close(fd);
    return status;
}
