/* SPDX-License-Identifier: Apache-2.0 */
#include "src/core/new_file.h"
#include "src/core/retry.h"
#include "src/core/rng.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 100, START_MAX = 48 };

/* How the names of all temporaries of a file begin. */
static void write_start(const char *path, char start[START_MAX])
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    snprintf(start, START_MAX, ".tessera-%016" PRIx64 "-",
             tsri_hash(TSRI_HASH_INIT, name, strlen(name)));
}

/* Removes a temporary that nobody writes any more. */
static void remove_left(int folder, const char *name)
{
    struct stat st;
    int fd = TSRI_RETRY(openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(folder, name, 0);
    close(fd);
}

static void remove_all_left(const char *folder, const char *start)
{
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (!strncmp(e->d_name, start, strlen(start)))
            remove_left(dirfd(d), e->d_name);
    if (d)
        closedir(d);
}

/* A new file that this process has locked; who looks for what is left may remove it in between. */
static int make_locked(tsri_new_file *f, const char *folder, const char *start)
{
    for (int i = 0; i < TRIES; i++) {
        uint64_t random;
        struct stat st;
        if (TSRI_RETRY(getrandom(&random, sizeof random, 0)) != (ssize_t)sizeof random)
            return -EIO;
        int n =
            snprintf(f->temporary, sizeof f->temporary, "%s/%s%016" PRIx64, folder, start, random);
        if (n < 0 || (size_t)n >= sizeof f->temporary)
            return -ENAMETOOLONG;
        f->fd = TSRI_RETRY(
            open(f->temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
        if (f->fd < 0 && errno != EEXIST)
            return -errno;
        if (f->fd < 0)
            continue;
        /* Some file systems know no locks: there nothing is removed either. */
        if (TSRI_RETRY(flock(f->fd, LOCK_EX | LOCK_NB)) && errno == EWOULDBLOCK)
            st.st_nlink = 0;
        else if (TSRI_RETRY(fstat(f->fd, &st)))
            return -errno;
        if (st.st_nlink)
            return 0;
        close(f->fd);
        f->fd = -1;
    }
    return -EEXIST;
}

int tsri_new_file_open(tsri_new_file *f, const char *path)
{
    char folder[PATH_MAX], start[START_MAX];
    struct stat st;
    *f = (tsri_new_file){.fd = -1};
    if (!*path || strlen(path) >= sizeof f->path)
        return *path ? -ENAMETOOLONG : -ENOENT;
    strcpy(f->path, path);
    if (TSRI_RETRY(stat(path, &st)) == 0 && !S_ISREG(st.st_mode)) {
        f->fd = TSRI_RETRY(open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY));
        return f->fd < 0 ? -errno : 0;
    }
    strcpy(folder, path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = 0;
    else
        strcpy(folder, ".");
    write_start(path, start);
    remove_all_left(folder, start);
    int rc = make_locked(f, folder, start);
    if (rc) {
        tsri_new_file_drop(f);
        f->temporary[0] = 0;
    }
    return rc;
}

/* Behind the stream, which itself forgets why a write has failed. Nothing is written after that. */
static ssize_t write_stream(void *cookie, const char *data, size_t bytes)
{
    tsri_new_file *f = cookie;
    for (size_t done = 0; done < bytes && !f->error;) {
        ssize_t n = write(f->fd, data + done, bytes - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0 || errno != EINTR)
            f->error = n ? errno : EIO;
    }
    return f->error ? 0 : (ssize_t)bytes;
}

int tsri_new_file_stream(tsri_new_file *f, const char *path)
{
    int rc = tsri_new_file_open(f, path);
    if (rc)
        return rc;
    f->stream = fopencookie(f, "w", (cookie_io_functions_t){.write = write_stream});
    if (f->stream)
        return 0;
    tsri_new_file_drop(f);
    return -ENOMEM;
}

/* Closes it; 0, or -errno of whatever was wrong first. */
static int end_writing(tsri_new_file *f, bool sync)
{
    if (f->stream)
        fclose(f->stream);
    int rc = -f->error;
    if (!rc && sync && TSRI_RETRY(fsync(f->fd)))
        rc = -errno;
    if (close(f->fd) && errno != EINTR && !rc) /* interrupted, it is closed all the same */
        rc = -errno;
    f->stream = NULL;
    f->fd = -1;
    return rc;
}

int tsri_new_file_keep(tsri_new_file *f, bool sync)
{
    if (!f->temporary[0])
        return end_writing(f, false);
    /* Holds the lock until the file has its name: nobody may take it for what was left. */
    int held = fcntl(f->fd, F_DUPFD_CLOEXEC, 0), rc = held < 0 ? -errno : 0;
    int ended = end_writing(f, sync && !rc);
    rc = rc ? rc : ended;
    if (!rc && TSRI_RETRY(rename(f->temporary, f->path)))
        rc = -errno;
    if (rc)
        TSRI_RETRY(unlink(f->temporary));
    if (held >= 0)
        close(held);
    return rc;
}

void tsri_new_file_drop(tsri_new_file *f)
{
    if (f->fd < 0)
        return;
    end_writing(f, false);
    if (f->temporary[0])
        TSRI_RETRY(unlink(f->temporary));
}

int tsri_sync_folder(int fd)
{
    const int error = TSRI_RETRY(fsync(fd)) ? errno : 0;
    return error == EIO || error == ENOSPC || error == EDQUOT ? -error : 0;
}

static int make_one(const char *path, mode_t mode)
{
    struct stat st;
    if (TSRI_RETRY(mkdir(path, mode)) == 0)
        return 0;
    int error = errno;
    if (TSRI_RETRY(stat(path, &st)) == 0)
        return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
    return -error;
}

int tsri_make_folders(const char *path, mode_t mode)
{
    char part[PATH_MAX];
    size_t n = strlen(path);
    int rc = 0;
    if (n == 0 || n >= sizeof part)
        return n ? -ENAMETOOLONG : -ENOENT;
    memcpy(part, path, n + 1);
    for (char *c = part + 1; *c && !rc; c++) {
        if (*c != '/')
            continue;
        *c = 0;
        rc = make_one(part, mode);
        *c = '/';
    }
    return rc ? rc : make_one(part, mode);
}
