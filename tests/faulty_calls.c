/* SPDX-License-Identifier: Apache-2.0 */
/* A module to preload (LD_PRELOAD): system calls are interrupted, move fewer bytes than they could,
 * or fail, and allocations fail. Only calls that come from programs and libraries in the build
 * folder do, so that shells and the C library are left alone. FAULTY_CALLS says which, in words
 * with blanks between:
 *
 *   seed=N             the numbers that are drawn; ranks (RANK) draw others
 *   eintr=N            one call of N is interrupted before it has done anything
 *   short=N            one call of N moves a part of the bytes: files, pipes, streams
 *   fail=CALL:N:ERRNO  the N-th call of this name in a process fails; N 0: each does
 *   site=N             the first allocation of the N-th place that allocates fails; two places
 *                      differ in any of the innermost calls
 *   rank=N             only in processes whose RANK is N; -1: in those that have none
 *
 * A process in which `fail` or `site` came to its call adds a line to the file
 * FAULTY_CALLS_LOG. */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)
/* The next definition of a function: the C library's, or another preloaded module's. */
#define NEXT(name)                                 \
    static _Atomic(__typeof__(&name)) next_;       \
    __typeof__(&name) next = next_;                \
    if (!next) {                                   \
        *(void **)&next = dlsym(RTLD_NEXT, #name); \
        next_ = next;                              \
    }

enum { FRAMES = 7, MOST_SITES = 1 << 16 };

static struct {
    bool on;
    uint64_t seed;
    long eintr, moves_less, site;
    char call[32];
    long call_number;
    int call_errno;
    const char *log;
} set;
static atomic_long drawn, sites, calls;
static _Atomic uint64_t site_seen[MOST_SITES];
static _Thread_local bool inside;

/* --- what is to happen ------------------------------------------------------------------------ */

static bool take_word(const char *word)
{
    static const struct {
        const char *name;
        int number;
    } errors[] = {{"EMFILE", EMFILE},
                  {"ENOMEM", ENOMEM},
                  {"ECONNRESET", ECONNRESET},
                  {"ECONNABORTED", ECONNABORTED},
                  {"EIO", EIO},
                  {"ENOSPC", ENOSPC},
                  {"ECONNREFUSED", ECONNREFUSED},
                  {"EAGAIN", EAGAIN},
                  {"EPIPE", EPIPE},
                  {"EINTR", EINTR}};
    long n;
    char error[32], *end;
    const char *value = strchr(word, '=');
    if (!value)
        return false;
    n = strtol(++value, &end, 10);
    if (!strncmp(word, "fail=", 5)) {
        if (sscanf(value, "%31[^:]:%ld:%31s", set.call, &set.call_number, error) != 3)
            return false;
        for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
            if (!strcmp(error, errors[i].name))
                set.call_errno = errors[i].number;
        return set.call_errno != 0;
    }
    if (!strncmp(word, "seed=", 5))
        set.seed = (uint64_t)n;
    else if (!strncmp(word, "eintr=", 6))
        set.eintr = n;
    else if (!strncmp(word, "short=", 6))
        set.moves_less = n;
    else if (!strncmp(word, "site=", 5))
        set.site = n;
    else if (!strncmp(word, "rank=", 5))
        set.on = n == (getenv("RANK") ? atol(getenv("RANK")) : -1);
    else
        return false;
    return *end == 0;
}

__attribute__((constructor)) static void start(void)
{
    char text[256], *save;
    void *frame[FRAMES];
    const char *said = getenv("FAULTY_CALLS"), *rank = getenv("RANK");
    if (!said)
        return;
    set.on = true;
    set.log = getenv("FAULTY_CALLS_LOG");
    snprintf(text, sizeof text, "%s", said);
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save))
        if (!take_word(word)) {
            fprintf(stderr, "FAULTY_CALLS: '%s' is not understood\n", word);
            abort();
        }
    set.seed = set.seed * 1000 + (rank ? (uint64_t)atol(rank) + 1 : 0);
    backtrace(frame, FRAMES); /* the first of a process allocates */
}

/* Whether an address is in a program or library of the build folder, which the last answer about
 * its page says mostly. */
static bool is_ours(const void *address)
{
    static _Atomic uintptr_t known[1024];
    uintptr_t page = (uintptr_t)address >> 12;
    _Atomic uintptr_t *slot = &known[page % 1024];
    uintptr_t found = *slot;
    if (found >> 1 != page) {
        Dl_info info;
        char path[PATH_MAX];
        bool ours = dladdr(address, &info) && info.dli_fname &&
                    realpath(info.dli_fname, path) && /* a program's name is relative */
                    !strncmp(path, BUILD_ROOT "/", sizeof BUILD_ROOT);
        *slot = found = page << 1 | ours;
    }
    return found & 1;
}

static bool is_wanted(const void *caller)
{
    if (!set.on || inside)
        return false;
    int error = errno;
    inside = true;
    bool wanted = is_ours(caller);
    inside = false;
    errno = error;
    return wanted;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t draw(void)
{
    return mix(set.seed * 0x9e3779b97f4a7c15u + (uint64_t)atomic_fetch_add(&drawn, 1) + 1);
}

static void note(const char *what, long number)
{
    char line[128];
    if (!set.log)
        return;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, set.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                          0600);
    int n = snprintf(line, sizeof line, "%s %ld in %d\n", what, number, (int)getpid());
    if (fd < 0 || syscall(SYS_write, fd, line, (size_t)n) != n)
        abort();
    syscall(SYS_close, fd);
}

/* Whether a call is to return -1, with errno. */
static bool fails(const void *caller, const char *name, bool interruptible)
{
    if (!is_wanted(caller))
        return false;
    if (set.call_errno && !strcmp(name, set.call)) {
        long n = atomic_fetch_add(&calls, 1) + 1;
        if (!set.call_number || n == set.call_number) {
            note(name, n);
            errno = set.call_errno;
            return true;
        }
    }
    if (interruptible && set.eintr && draw() % (uint64_t)set.eintr == 0) {
        errno = EINTR;
        return true;
    }
    return false;
}

/* The kernel moves these in one piece: memory (a file without a name), a datagram, an eventfd's
 * number, and PIPE_BUF bytes of a pipe. */
static bool moves_in_pieces(const struct stat *st, int fd, size_t bytes)
{
    int type = 0;
    socklen_t size = sizeof type;
    if (S_ISSOCK(st->st_mode))
        return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_STREAM;
    return S_ISREG(st->st_mode) || (S_ISFIFO(st->st_mode) && bytes > PIPE_BUF);
}

/* The bytes that a call of `bytes` is to move; -1 if it is to fail. */
static ssize_t part(const void *caller, const char *name, int fd, size_t bytes)
{
    struct stat st;
    int error = errno;
    bool is_memory = fstat(fd, &st) || (S_ISREG(st.st_mode) && !st.st_nlink);
    errno = error;
    if (fails(caller, name, !is_memory))
        return -1;
    if (is_memory || !set.moves_less || bytes < 2 || !is_wanted(caller))
        return (ssize_t)bytes;
    uint64_t r = draw();
    if (r % (uint64_t)set.moves_less != 0 || !moves_in_pieces(&st, fd, bytes))
        return (ssize_t)bytes;
    r = mix(r);
    return (ssize_t)(1 + (r >> 1) % (r & 1 || bytes < 9 ? bytes - 1 : 8));
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Whether nobody has allocated from here before: by the addresses of the innermost calls. */
static bool is_new_site(void)
{
    void *frame[FRAMES];
    uint64_t hash = 1;
    inside = true;
    int n = backtrace(frame, FRAMES);
    inside = false;
    for (int i = 1; i < n; i++)
        hash = mix(hash * 31 + (uint64_t)(uintptr_t)frame[i]);
    for (uint64_t at = hash % MOST_SITES;; at = (at + 1) % MOST_SITES) {
        uint64_t none = 0;
        if (atomic_compare_exchange_strong(&site_seen[at], &none, hash))
            return true;
        if (none == hash)
            return false;
    }
}

static bool is_refused(const void *caller)
{
    if (!set.site || !is_wanted(caller) || !is_new_site())
        return false;
    long n = atomic_fetch_add(&sites, 1) + 1;
    if (n != set.site)
        return false;
    note("site", n);
    errno = ENOMEM;
    return true;
}

API void *malloc(size_t bytes)
{
    NEXT(malloc)
    return is_refused(CALLER) ? NULL : next(bytes);
}

API void *calloc(size_t n, size_t bytes)
{
    NEXT(calloc)
    return is_refused(CALLER) ? NULL : next(n, bytes);
}

API void *realloc(void *old, size_t bytes)
{
    NEXT(realloc)
    return is_refused(CALLER) ? NULL : next(old, bytes);
}

API void *aligned_alloc(size_t alignment, size_t bytes)
{
    NEXT(aligned_alloc)
    return is_refused(CALLER) ? NULL : next(alignment, bytes);
}

API char *strdup(const char *text)
{
    NEXT(strdup)
    return is_refused(CALLER) ? NULL : next(text);
}

API int vasprintf(char **out, const char *fmt, va_list ap)
{
    NEXT(vasprintf)
    return is_refused(CALLER) ? -1 : next(out, fmt, ap);
}

API int asprintf(char **out, const char *fmt, ...)
{
    NEXT(vasprintf)
    if (is_refused(CALLER))
        return -1;
    va_list ap;
    va_start(ap, fmt);
    int n = next(out, fmt, ap);
    va_end(ap);
    return n;
}

API int __vasprintf_chk(char **out, int flag, const char *fmt, va_list ap);
API int __vasprintf_chk(char **out, int flag, const char *fmt, va_list ap)
{
    NEXT(__vasprintf_chk)
    return is_refused(CALLER) ? -1 : next(out, flag, fmt, ap);
}

API int __asprintf_chk(char **out, int flag, const char *fmt, ...);
API int __asprintf_chk(char **out, int flag, const char *fmt, ...)
{
    NEXT(__vasprintf_chk)
    if (is_refused(CALLER))
        return -1;
    va_list ap;
    va_start(ap, fmt);
    int n = next(out, flag, fmt, ap);
    va_end(ap);
    return n;
}

API FILE *open_memstream(char **text, size_t *size)
{
    NEXT(open_memstream)
    return is_refused(CALLER) ? NULL : next(text, size);
}

/* --- bytes ------------------------------------------------------------------------------------ */

/* A call of the file or socket `fd` and `bytes` behind its other arguments. */
#define MOVES(name, params, ...)                       \
    API ssize_t name params                            \
    {                                                  \
        NEXT(name)                                     \
        ssize_t n = part(CALLER, #name, fd, bytes);    \
        return n < 0 ? -1 : next(fd, at, __VA_ARGS__); \
    }

MOVES(read, (int fd, void *at, size_t bytes), (size_t)n)
MOVES(write, (int fd, const void *at, size_t bytes), (size_t)n)
MOVES(pread, (int fd, void *at, size_t bytes, off_t from), (size_t)n, from)
MOVES(pwrite, (int fd, const void *at, size_t bytes, off_t to), (size_t)n, to)
MOVES(recv, (int fd, void *at, size_t bytes, int flags), (size_t)n, flags)
MOVES(send, (int fd, const void *at, size_t bytes, int flags), (size_t)n, flags)

/* The checked calls that the compiler makes of them where it knows how much room there is
 * (_FORTIFY_SOURCE). */
#define MOVES_CHECKED(name, shown, params, ...)        \
    API ssize_t name params;                           \
    API ssize_t name params                            \
    {                                                  \
        NEXT(name)                                     \
        ssize_t n = part(CALLER, #shown, fd, bytes);   \
        return n < 0 ? -1 : next(fd, at, __VA_ARGS__); \
    }

MOVES_CHECKED(__read_chk, read, (int fd, void *at, size_t bytes, size_t room), (size_t)n, room)
MOVES_CHECKED(__pread_chk, pread, (int fd, void *at, size_t bytes, off_t from, size_t room),
              (size_t)n, from, room)
MOVES_CHECKED(__pread64_chk, pread, (int fd, void *at, size_t bytes, off_t from, size_t room),
              (size_t)n, from, room)
MOVES_CHECKED(__recv_chk, recv, (int fd, void *at, size_t bytes, size_t room, int flags), (size_t)n,
              room, flags)

/* --- what waits, or makes descriptors --------------------------------------------------------- */

API int poll(struct pollfd *fds, nfds_t n, int ms)
{
    NEXT(poll)
    int ready = next(fds, n, 0); /* nothing is interrupted that need not wait */
    return ready ? ready : fails(CALLER, "poll", true) ? -1 : next(fds, n, ms);
}

API int __poll_chk(struct pollfd *fds, nfds_t n, int ms, size_t room);
API int __poll_chk(struct pollfd *fds, nfds_t n, int ms, size_t room)
{
    NEXT(__poll_chk)
    int ready = next(fds, n, 0, room);
    return ready ? ready : fails(CALLER, "poll", true) ? -1 : next(fds, n, ms, room);
}

API int epoll_wait(int fd, struct epoll_event *events, int most, int ms)
{
    NEXT(epoll_wait)
    int ready = next(fd, events, most, 0);
    return ready ? ready : fails(CALLER, "epoll_wait", ms != 0) ? -1 : next(fd, events, most, ms);
}

API pid_t waitpid(pid_t pid, int *status, int options)
{
    NEXT(waitpid)
    pid_t ended = next(pid, status, options | WNOHANG);
    if (ended || options & WNOHANG)
        return ended;
    return fails(CALLER, "waitpid", true) ? -1 : next(pid, status, options);
}

/* A call that fails, or is interrupted where it would wait. */
#define FAILS(type, name, interruptible, params, ...)                        \
    API type name params                                                     \
    {                                                                        \
        NEXT(name)                                                           \
        return fails(CALLER, #name, interruptible) ? -1 : next(__VA_ARGS__); \
    }

FAILS(int, nanosleep, true, (const struct timespec *time, struct timespec *left), time, left)
FAILS(int, usleep, true, (useconds_t time), time)
FAILS(int, sigtimedwait, true,
      (const sigset_t *signals, siginfo_t *info, const struct timespec *time), signals, info, time)
FAILS(int, accept4, true, (int fd, __SOCKADDR_ARG from, socklen_t *size, int flags), fd, from, size,
      flags)
/* Interrupted it would go on connecting, so it is not. */
FAILS(int, connect, false, (int fd, __CONST_SOCKADDR_ARG to, socklen_t size), fd, to, size)
FAILS(int, socket, false, (int domain, int type, int protocol), domain, type, protocol)
FAILS(int, pipe2, false, (int fds[2], int flags), fds, flags)
FAILS(int, eventfd, false, (unsigned int count, int flags), count, flags)

FAILS(int, fsync, false, (int fd), fd)
FAILS(int, rename, false, (const char *from, const char *to), from, to)

/* The file is closed all the same, as the kernel does it. */
API int close(int fd)
{
    NEXT(close)
    bool is_failure = fails(CALLER, "close", false);
    int error = errno, rc = next(fd);
    if (is_failure)
        errno = error;
    return is_failure ? -1 : rc;
}

/* No disk is too full for a stream that is in memory. */
API int fclose(FILE *f)
{
    NEXT(fclose)
    const int before = errno;
    const bool on_disk = fileno(f) >= 0;
    errno = before;
    bool is_failure = (on_disk || set.call_errno == ENOMEM) && fails(CALLER, "fclose", false);
    int error = errno, rc = next(f);
    if (is_failure)
        errno = error;
    return is_failure ? EOF : rc;
}

API int ptsname_r(int fd, char *name, size_t bytes)
{
    NEXT(ptsname_r)
    return fails(CALLER, "ptsname_r", false) ? errno : next(fd, name, bytes);
}

API int __ptsname_r_chk(int fd, char *name, size_t bytes, size_t room);
API int __ptsname_r_chk(int fd, char *name, size_t bytes, size_t room)
{
    NEXT(__ptsname_r_chk)
    return fails(CALLER, "ptsname_r", false) ? errno : next(fd, name, bytes, room);
}

API pid_t fork(void)
{
    NEXT(fork)
    return fails(CALLER, "fork", false) ? -1 : next();
}
