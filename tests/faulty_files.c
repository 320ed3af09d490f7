/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A module to preload (LD_PRELOAD): one file operation of those under a folder goes wrong. Each
 * call on a path, or on a descriptor of a file, under the folder counts. FAULTY_FILES is "FOLDER N
 * KIND":
 *
 *   EINTR, EIO, ENOSPC   the N-th operation fails so, and does nothing (but close, which closes)
 *   short                if it reads or writes, it moves a part of the bytes
 *   stop                 before it the process stops (SIGSTOP), until it is continued
 *
 * FAULTY_FILES_LOG names a file that gets a line for each operation: its name. N 0: none goes
 * wrong.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define NEXT(name)                                 \
    static _Atomic(__typeof__(&name)) next_;       \
    __typeof__(&name) next = next_;                \
    if (!next) {                                   \
        *(void **)&next = dlsym(RTLD_NEXT, #name); \
        next_ = next;                              \
    }

static struct {
    char folder[PATH_MAX];
    size_t length;
    long number;
    int error;
    bool is_short, stops;
    const char *log;
} set;
static atomic_long count;

__attribute__((constructor)) static void start(void)
{
    char kind[16];
    const char *what = getenv("FAULTY_FILES");
    if (!what)
        return;
    set.log = getenv("FAULTY_FILES_LOG");
    if (sscanf(what, "%4000s %ld %15s", set.folder, &set.number, kind) != 3)
        abort();
    set.length = strlen(set.folder);
    set.is_short = !strcmp(kind, "short");
    set.stops = !strcmp(kind, "stop");
    set.error = !strcmp(kind, "EINTR")    ? EINTR
                : !strcmp(kind, "EIO")    ? EIO
                : !strcmp(kind, "ENOSPC") ? ENOSPC
                                          : 0;
}

/* --- what counts ------------------------------------------------------------------------------ */
static bool is_under(const char *path)
{
    return set.length && !strncmp(path, set.folder, set.length) &&
           (!path[set.length] || path[set.length] == '/');
}

static bool is_fd_under(int fd)
{
    char link[64], path[PATH_MAX];
    if (!set.length || fd < 0)
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const long n = syscall(SYS_readlink, link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    return is_under(path);
}

static bool is_at_under(int fd, const char *path)
{
    return path[0] == '/' ? is_under(path) : is_fd_under(fd);
}

static void note(const char *name)
{
    char line[64];
    if (!set.log)
        return;
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, set.log,
                                O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const int n = snprintf(line, sizeof line, "%s\n", name);
    if (fd < 0 || syscall(SYS_write, fd, line, (size_t)n) != n)
        abort();
    syscall(SYS_close, fd);
}

/* Counts an operation; whether it is the one that goes wrong. */
static bool is_chosen(const char *name, bool counts)
{
    const int error = errno;
    if (!counts)
        return false;
    note(name);
    const bool is = atomic_fetch_add(&count, 1) + 1 == set.number;
    if (is && set.stops)
        raise(SIGSTOP);
    errno = error;
    return is;
}

/* Whether it fails, with errno. */
static bool fails(const char *name, bool counts)
{
    const bool is = is_chosen(name, counts) && set.error;
    if (is)
        errno = set.error;
    return is;
}

/* --- calls on descriptors --------------------------------------------------------------------- */
static ssize_t part(const char *name, int fd, size_t bytes)
{
    const int error = errno;
    const bool counts = is_fd_under(fd);
    errno = error;
    if (!is_chosen(name, counts))
        return (ssize_t)bytes;
    if (set.error) {
        errno = set.error;
        return -1;
    }
    return set.is_short && bytes > 1 ? (ssize_t)(bytes / 2) : (ssize_t)bytes;
}

#define MOVES(name, params, ...)                       \
    API ssize_t name params                            \
    {                                                  \
        NEXT(name)                                     \
        const ssize_t n = part(#name, fd, bytes);      \
        return n < 0 ? -1 : next(fd, at, __VA_ARGS__); \
    }

MOVES(read, (int fd, void *at, size_t bytes), (size_t)n)
MOVES(write, (int fd, const void *at, size_t bytes), (size_t)n)
MOVES(pread, (int fd, void *at, size_t bytes, off_t from), (size_t)n, from)
MOVES(pwrite, (int fd, const void *at, size_t bytes, off_t to), (size_t)n, to)

#define CALL(type, none, name, counts, params, ...)             \
    API type name params                                        \
    {                                                           \
        NEXT(name)                                              \
        return fails(#name, counts) ? none : next(__VA_ARGS__); \
    }

CALL(int, -1, fsync, is_fd_under(fd), (int fd), fd)
CALL(int, -1, fstat, is_fd_under(fd), (int fd, struct stat *st), fd, st)
CALL(int, -1, flock, is_fd_under(fd), (int fd, int what), fd, what)
CALL(DIR *, NULL, fdopendir, is_fd_under(fd), (int fd), fd)
CALL(struct dirent *, NULL, readdir, is_fd_under(dirfd(d)), (DIR * d), d)

API int close(int fd)
{
    NEXT(close)
    const bool failed = fails("close", is_fd_under(fd));
    const int error = errno, rc = next(fd);
    if (failed)
        errno = error;
    return failed ? -1 : rc;
}

/* --- calls on paths --------------------------------------------------------------------------- */
static int mode_of(int flags, va_list ap)
{
    return flags & O_CREAT ? va_arg(ap, int) : 0;
}

API int open(const char *path, int flags, ...)
{
    NEXT(open)
    va_list ap;
    va_start(ap, flags);
    const int mode = mode_of(flags, ap);
    va_end(ap);
    return fails("open", is_under(path)) ? -1 : next(path, flags, mode);
}

API int openat(int fd, const char *path, int flags, ...)
{
    NEXT(openat)
    va_list ap;
    va_start(ap, flags);
    const int mode = mode_of(flags, ap);
    va_end(ap);
    return fails("openat", is_at_under(fd, path)) ? -1 : next(fd, path, flags, mode);
}

CALL(DIR *, NULL, opendir, is_under(path), (const char *path), path)
CALL(int, -1, mkdir, is_under(path), (const char *path, mode_t mode), path, mode)
CALL(int, -1, rmdir, is_under(path), (const char *path), path)
CALL(int, -1, unlink, is_under(path), (const char *path), path)
CALL(int, -1, rename, is_under(to), (const char *from, const char *to), from, to)
CALL(int, -1, access, is_under(path), (const char *path, int how), path, how)
CALL(int, -1, stat, is_under(path), (const char *path, struct stat *st), path, st)
CALL(int, -1, unlinkat, is_at_under(fd, path), (int fd, const char *path, int flags), fd, path,
     flags)
CALL(int, -1, renameat, is_at_under(to, b), (int from, const char *a, int to, const char *b), from,
     a, to, b)
CALL(int, -1, renameat2, is_at_under(to, b),
     (int from, const char *a, int to, const char *b, unsigned flags), from, a, to, b, flags)
CALL(int, -1, faccessat, is_at_under(fd, path), (int fd, const char *path, int how, int flags), fd,
     path, how, flags)
CALL(int, -1, fstatat, is_at_under(fd, path),
     (int fd, const char *path, struct stat *st, int flags), fd, path, st, flags)
