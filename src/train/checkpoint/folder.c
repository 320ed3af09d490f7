/* SPDX-License-Identifier: Apache-2.0 */
#include "src/train/checkpoint/folder.h"

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

typedef struct listing {
    tsri_mem *mem;
    void *steps;
    int n, capacity;
    bool or_shards; /* also checkpoints that have lost their index */
    bool is_old;    /* an entry has gone since the folder was read */
} listing;

static tsr_status list_entry(listing *l, int folder, const char *name)
{
    int64_t step;
    struct stat st;
    if (!tsri_ckpt_is_step(name, &step))
        return TSR_OK;
    if (!tsri_ckpt_is_checkpoint(folder, name, l->or_shards)) {
        l->is_old |= TSRI_RETRY(fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW)) && errno == ENOENT;
        return TSR_OK;
    }
    TSRI_NEED(tsri_mem_grow(l->mem, &l->steps, l->n, &l->capacity, sizeof step));
    ((int64_t *)l->steps)[l->n++] = step;
    return TSR_OK;
}

static tsr_status list_once(listing *l, const char *folder)
{
    const int fd = open_folder(folder);
    DIR *d = tsri_ckpt_names(fd);
    tsr_status status = TSR_OK;
    l->n = 0;
    l->is_old = false;
    if (!d && errno == ENOENT)
        return TSR_OK;
    if (!d)
        return tsri_fail(TSR_ERR_IO, "%s: can't open: %s", folder, strerror(errno));
    for (const char *name; status == TSR_OK && (name = tsri_ckpt_next_name(d));)
        status = list_entry(l, fd, name);
    if (status == TSR_OK && errno)
        status = tsri_fail(TSR_ERR_IO, "%s: can't read: %s", folder, strerror(errno));
    closedir(d);
    return status;
}

/* The steps of the checkpoints, rising: none on an error. */
static tsr_status list_steps(tsri_mem *mem, const char *folder, bool or_shards, int64_t **out_steps,
                             int *out_n)
{
    listing l = {.mem = mem, .or_shards = or_shards};
    tsr_status status = list_once(&l, folder);
    for (int i = 0; i < TSRI_CKPT_LISTS && status == TSR_OK && l.is_old; i++)
        status = list_once(&l, folder);
    if (status != TSR_OK || !l.n) {
        tsri_mem_free(l.steps);
        l = (listing){0};
    }
    *out_steps = l.steps;
    *out_n = l.n;
    if (l.n)
        qsort(l.steps, (size_t)l.n, sizeof **out_steps, compare_steps);
    return status;
}

tsr_status tsri_ckpt_list(tsri_mem *mem, const char *folder, int64_t **out_steps, int *out_n)
{
    return list_steps(mem, folder, true, out_steps, out_n);
}

bool tsri_ckpt_best(tsri_mem *mem, const char *folder, const int64_t *steps, int n,
                    bool larger_is_better, int64_t *out_step, tsr_status *out_error)
{
    double best = NAN;
    *out_error = TSR_OK;
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        tsri_ckpt_index index;
        tsr_status status = tsri_ckpt_path(folder, steps[i], path);
        if (status == TSR_OK)
            status = tsri_ckpt_index_read(mem, path, &index);
        if (status != TSR_OK) {
            *out_error = status;
            continue;
        }
        const double m = index.metric;
        tsri_ckpt_index_finish(&index);
        if (isnan(m) || !(isnan(best) || (larger_is_better ? m > best : m < best)))
            continue;
        best = m;
        *out_step = steps[i];
    }
    return !isnan(best);
}

bool tsri_ckpt_has_gone(tsri_mem *mem, const char *folder, int64_t step, const char *id)
{
    char path[PATH_MAX], name[TSRI_CKPT_ENTRY];
    tsri_ckpt_index index;
    tsri_ckpt_step_name(name, step);
    const int fd = open_folder(folder);
    const bool is = fd >= 0 && tsri_ckpt_is_checkpoint(fd, name, true);
    if (fd >= 0)
        close(fd);
    if (!is)
        return true;
    if (tsri_ckpt_path(folder, step, path) != TSR_OK ||
        tsri_ckpt_index_read(mem, path, &index) != TSR_OK)
        return false;
    const bool is_other = strcmp(index.id, id) != 0;
    tsri_ckpt_index_finish(&index);
    return is_other;
}

/* --- who saves -------------------------------------------------------------------------------- */
/* Removes what killed runs left in the folder. */
static void remove_left(const char *folder, tsri_ckpt_stays *stays)
{
    const int fd = open_folder(folder);
    DIR *d = tsri_ckpt_names(fd);
    for (const char *name; d && (name = tsri_ckpt_next_name(d));) {
        if (tsri_ckpt_is_left(name))
            tsri_ckpt_remove_entry(fd, name, name, stays);
        if (tsri_ckpt_is_mark(name) && TSRI_RETRY(unlinkat(fd, name, 0)) && errno != ENOENT)
            tsri_ckpt_note(stays, "", name);
    }
    if (d)
        closedir(d);
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
/* Whether all files are there; *out_error: 0, or why that can't be told. */
static bool is_whole(int making, int nfiles, int *out_error)
{
    char name[TSRI_CKPT_FILE_NAME];
    bool whole = !TSRI_RETRY(faccessat(making, "index.json", F_OK, 0));
    for (int i = 0; i < nfiles && whole; i++) {
        tsri_ckpt_file_name(name, i, nfiles);
        whole = !TSRI_RETRY(faccessat(making, name, F_OK, 0));
    }
    *out_error = whole || errno == ENOENT ? 0 : errno;
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
 * its name back; one that keeps files of the checkpoint does not, so that the next run removes it.
 */
static void drop(int folder, int64_t step, tsri_ckpt_stays *stays)
{
    char name[TSRI_CKPT_ENTRY], gone[TSRI_CKPT_ENTRY];
    tsri_ckpt_step_name(name, step);
    snprintf(gone, sizeof gone, ".gone-%08" PRId64, step);
    tsri_ckpt_remove_entry(folder, gone, gone, stays);
    const bool hidden =
        !tsri_ckpt_is_link(folder, name) && !TSRI_RETRY(renameat(folder, name, folder, gone));
    const bool removed = tsri_ckpt_remove_entry(folder, hidden ? gone : name, name, stays);
    if (hidden && removed)
        TSRI_RETRY(renameat(folder, gone, folder, name));
}

/* Removes the checkpoints beyond `keep`, after step `last` was saved. Checkpoints of later steps
 * are left over from an abandoned run and count as older than `last`. */
static tsr_status prune(const char *folder, int fd, int64_t last, const tsri_ckpt_keep *keep,
                        tsri_ckpt_stays *stays)
{
    int64_t *steps, best = -1;
    int n, later = 0;
    tsr_status unread = TSR_OK;
    if (!keep->newest)
        return TSR_OK;
    const tsr_status status = list_steps(NULL, folder, false, &steps, &n);
    for (int i = 0; i < n; i++)
        later += steps[i] > last;
    if (keep->best && n > keep->newest &&
        !tsri_ckpt_best(NULL, folder, steps, n, keep->larger_is_better, &best, &unread))
        best = -1;
    if (unread != TSR_OK && unread != TSR_ERR_FORMAT) { /* it may be the best: all stay this time */
        tsri_ckpt_note(stays, "", "all steps, of which one can't be read");
        n = 0;
    }
    for (int i = 0; i < n - keep->newest; i++) {
        const int64_t step = i < later ? steps[n - later + i] : steps[i - later];
        if (step != best)
            drop(fd, step, stays);
    }
    tsri_mem_free(steps);
    return status;
}

/* A checkpoint that is being given its name. */
typedef struct committing {
    const char *folder;
    int fd; /* of the folder */
    char name[TSRI_CKPT_ENTRY], making[TSRI_CKPT_ENTRY], mark[TSRI_CKPT_ENTRY];
    int nfiles;
    bool last, done; /* done: it has got its name here */
    tsri_ckpt_stays *stays;
} committing;

static tsr_status cannot(const committing *c, int error)
{
    return tsri_fail(TSR_ERR_IO, "%s/%s: can't get its name: %s", c->folder, c->name,
                     strerror(error));
}

/* Opens the folder in which it was written, if all of its files are there. *out_made -1: they are
 * not, or another rank has given it its name. */
static tsr_status open_whole(const committing *c, int *out_made)
{
    int error = 0;
    *out_made = tsri_ckpt_open_entry(c->fd, c->making);
    if (*out_made < 0)
        return errno == ENOENT ? TSR_OK : cannot(c, errno);
    if (is_whole(*out_made, c->nfiles, &error))
        return TSR_OK;
    close(*out_made);
    *out_made = -1;
    return error || c->last ? cannot(c, error ? error : ENOENT) : TSR_OK;
}

/* Gives it its name, which one rank alone does: it has made the mark. */
static tsr_status give_name(committing *c)
{
    int made;
    TSRI_TRY(open_whole(c, &made));
    if (made < 0)
        return TSR_OK;
    int rc = tsri_sync_folder(made);
    if (!rc)
        rc = replace(c->fd, c->making, c->name, c->stays);
    if (!rc)
        rc = tsri_sync_folder(c->fd);
    close(made);
    c->done = !rc;
    return rc ? cannot(c, -rc) : TSR_OK;
}

static tsr_status commit(committing *c)
{
    int made;
    TSRI_TRY(open_whole(c, &made));
    if (made < 0)
        return TSR_OK;
    close(made);
    /* Several may see the last file come: one of them goes on. */
    const int marked =
        TSRI_RETRY(openat(c->fd, c->mark, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (marked < 0)
        return errno == EEXIST && !c->last ? TSR_OK : cannot(c, errno);
    close(marked);
    const tsr_status status = give_name(c);
    TSRI_RETRY(unlinkat(c->fd, c->mark, 0));
    return status;
}

tsr_status tsri_ckpt_commit(const char *folder, int64_t step, const char *id, int nfiles, bool last,
                            const tsri_ckpt_keep *keep, tsri_ckpt_stays *stays)
{
    committing c = {.folder = folder, .nfiles = nfiles, .last = last, .stays = stays};
    tsri_ckpt_step_name(c.name, step);
    making_name(c.making, step, id);
    snprintf(c.mark, sizeof c.mark, ".commit-%.*s", TSRI_CKPT_ID - 1, id);
    c.fd = open_folder(folder);
    if (c.fd < 0)
        return cannot(&c, errno);
    tsr_status status = commit(&c);
    if (c.done)
        status = prune(folder, c.fd, step, keep, stays);
    close(c.fd);
    return status;
}
