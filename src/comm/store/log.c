/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a file:// store: bytes, locks, and who is alive. See log.h. */
#include "src/comm/store/log.h"
#include "src/comm/store/wire.h"
#include "src/core/clock.h"
#include "src/core/mem.h"
#include "src/core/proc.h"
#include "src/core/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "TESSERA-STORE-1\n"
enum {
    MAGIC_BYTES = 16,
    HEAD = 256,
    PROCESS_AT = 40,
    CHECK_AT = HEAD - 8,
    RECORD = 24,
    PROCESS = 32 + TSRI_STORE_ID_SIZE,
    FIRST_ROOM = 65536,
};
_Static_assert(PROCESS_AT + PROCESS <= CHECK_AT, "the head holds a process");

/* Bytes that are locked, none of which the file ever reaches. */
static const uint64_t lock_byte = (UINT64_C(1) << 40) - 1, first_rank_byte = UINT64_C(1) << 40;
static const double moments_s = 3;
enum { RANK_BITS = 17, NUMBER_MASK = (1 << 20) - 1 };

static void forget(tsri_log *log)
{
    tsri_store_map_finish(&log->map);
    tsri_mem_free(log->member);
    log->member = NULL;
    log->nonce = log->number = log->at = 0;
    log->nranks = 0;
    log->went = false;
}

void tsri_log_finish(tsri_log *log)
{
    if (log->fd >= 0)
        close(log->fd);
    forget(log);
    tsri_mem_free(log->buf);
}

static tsr_status fail_io(const tsri_log *log, const char *what)
{
    return tsri_fail(TSR_ERR_IO, "store: can't %s file://%s: %s", what, log->path, strerror(errno));
}

/* --- processes -------------------------------------------------------------------------------- */

/* When a process of this machine was started; 0: there is none. */
static uint64_t start_of(uint64_t pid)
{
    tsri_proc p;
    return pid <= INT_MAX && tsri_proc_read((long long)pid, &p) ? p.start : 0;
}

static void identify(tsri_log_process *out)
{
    char space[128], boot[64];
    ssize_t n = readlink("/proc/self/ns/pid", space, sizeof space);
    tsri_boot_id(boot, sizeof boot);
    *out = (tsri_log_process){.pid = (uint64_t)getpid(),
                              .boot = boot[0] ? tsri_hash(TSRI_HASH_INIT, boot, strlen(boot)) : 0};
    out->start = start_of(out->pid);
    if (n > 0)
        out->pid_space = tsri_hash(TSRI_HASH_INIT, space, (size_t)n);
    tsri_store_own_id(out->id, sizeof out->id);
}

void tsri_log_init(tsri_log *log, const char *path)
{
    *log = (tsri_log){.fd = -1, .path = path};
    identify(&log->self);
}

static void write_process(const tsri_log_process *p, unsigned char *to)
{
    tsri_wire_put(to, p->pid, 8);
    tsri_wire_put(to + 8, p->start, 8);
    tsri_wire_put(to + 16, p->boot, 8);
    tsri_wire_put(to + 24, p->pid_space, 8);
    memcpy(to + 32, p->id, sizeof p->id);
}

static void read_process(const unsigned char *from, tsri_log_process *p)
{
    char id[sizeof p->id];
    memcpy(id, from + 32, sizeof id);
    p->pid = tsri_wire_get(from, 8);
    p->start = tsri_wire_get(from + 8, 8);
    p->boot = tsri_wire_get(from + 16, 8);
    p->pid_space = tsri_wire_get(from + 24, 8);
    tsri_store_key_text((tsri_bytes){id, strnlen(id, sizeof id - 1)}, p->id, sizeof p->id);
}

static struct flock flock_of(uint64_t byte, short type)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};
}

static uint64_t rank_byte(uint64_t number, int rank)
{
    return first_rank_byte + ((number & NUMBER_MASK) << RANK_BITS) + (uint64_t)rank;
}

/* The lock that it holds says so. It may be held by a child of a process that is gone, though. */
bool tsri_log_is_alive(const tsri_log *log, int rank)
{
    const tsri_log_member *m = &log->member[rank];
    if (!m->joined || m->left)
        return false;
    struct flock lock = flock_of(rank_byte(log->number, rank), F_WRLCK);
    if (fcntl(log->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK)
        return false;
    const bool is_here = log->self.boot && log->self.boot == m->process.boot &&
                         log->self.pid_space && log->self.pid_space == m->process.pid_space &&
                         m->process.start;
    return !is_here || start_of(m->process.pid) == m->process.start;
}

int tsri_log_find_alive(const tsri_log *log, int but)
{
    for (int r = 0; r < log->nranks; r++)
        if (r != but && tsri_log_is_alive(log, r))
            return r;
    return -1;
}

/* --- bytes ------------------------------------------------------------------------------------ */

static tsr_status make_room(tsri_log *log, size_t bytes)
{
    if (log->room >= bytes)
        return TSR_OK;
    if (bytes < FIRST_ROOM)
        bytes = FIRST_ROOM;
    unsigned char *buf = tsri_mem_realloc(NULL, log->buf, bytes);
    TSRI_NEED(buf);
    log->buf = buf;
    log->room = bytes;
    return TSR_OK;
}

/* Into buf; fewer bytes than asked for only at the end of the file. */
static tsr_status read_at(tsri_log *log, uint64_t at, size_t bytes, size_t *out)
{
    TSRI_TRY(make_room(log, bytes));
    for (*out = 0; *out < bytes;) {
        ssize_t n = pread(log->fd, log->buf + *out, bytes - *out, (off_t)(at + *out));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_io(log, "read");
        if (n == 0)
            break;
        *out += (size_t)n;
    }
    return TSR_OK;
}

static tsr_status write_at(tsri_log *log, uint64_t at, const unsigned char *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pwrite(log->fd, data + done, bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail_io(log, "write");
        done += (size_t)n;
    }
    return TSR_OK;
}

/* Room for what the head tells of; the head is in buf. */
static tsr_status take_head(tsri_log *log)
{
    const unsigned char *head = log->buf;
    const uint64_t nonce = tsri_wire_get(head + 16, 8);
    if (log->nonce == nonce)
        return TSR_OK;
    forget(log);
    const int nranks = (int)tsri_wire_get(head + 32, 4);
    log->member = tsri_mem_alloc(NULL, (size_t)nranks * sizeof *log->member);
    TSRI_NEED(log->member);
    log->nonce = nonce;
    log->number = tsri_wire_get(head + 24, 8);
    log->nranks = nranks;
    log->at = HEAD;
    log->member[0].joined = true;
    read_process(head + PROCESS_AT, &log->member[0].process);
    return TSR_OK;
}

static tsr_status read_head(tsri_log *log, tsri_log_state *out)
{
    size_t n;
    TSRI_TRY(read_at(log, 0, HEAD, &n));
    const unsigned char *head = log->buf;
    if (memcmp(head, MAGIC, n < MAGIC_BYTES ? n : MAGIC_BYTES) != 0)
        return tsri_fail(TSR_ERR_FORMAT,
                         "store: file://%s is there and is no store of ours: it stays as it is; "
                         "legal is a path at which nothing is, or a store that an earlier run left",
                         log->path);
    *out = TSRI_LOG_EMPTY;
    const uint64_t nranks = n < HEAD ? 0 : tsri_wire_get(head + 32, 4);
    if (n < HEAD || nranks == 0 || nranks > TSRI_STORE_MAX_RANKS ||
        tsri_wire_get(head + 16, 8) == 0 ||
        tsri_wire_get(head + CHECK_AT, 8) != tsri_hash(TSRI_HASH_INIT, head, CHECK_AT)) {
        forget(log);
        return TSR_OK;
    }
    TSRI_TRY(take_head(log));
    *out = TSRI_LOG_RUN;
    return TSR_OK;
}

static bool rank_of(const tsri_log *log, tsri_bytes key, long *out)
{
    return tsri_store_number(key.data, key.bytes, 0, log->nranks - 1, out);
}

/* The contents of a whole record. */
static tsr_status apply(tsri_log *log, uint32_t type, tsri_bytes key, tsri_bytes value)
{
    long rank;
    switch ((tsri_log_type)type) {
    case TSRI_LOG_SET:
        return tsri_store_map_set(&log->map, key, value);
    case TSRI_LOG_DELETE:
        tsri_store_map_delete(&log->map, key);
        break;
    case TSRI_LOG_JOIN:
        if (value.bytes == PROCESS && rank_of(log, key, &rank)) {
            log->member[rank] = (tsri_log_member){.joined = true};
            read_process(value.data, &log->member[rank].process);
        }
        break;
    case TSRI_LOG_GO:
        log->went = true;
        break;
    case TSRI_LOG_LEAVE:
        if (rank_of(log, key, &rank))
            log->member[rank].left = true;
        break;
    }
    return TSR_OK;
}

/* The record at p, of which `here` bytes are there: its size, or how many more it takes to say that
 * (at least); 0: it is none. */
static size_t measure(const tsri_log *log, const unsigned char *p, size_t here)
{
    if (here < RECORD)
        return RECORD;
    const size_t key = (size_t)tsri_wire_get(p + 12, 4), value = (size_t)tsri_wire_get(p + 16, 4);
    if (key > TSRI_STORE_MAX_FULL_KEY || value > TSRI_STORE_MAX_VALUE)
        return 0;
    const size_t bytes = RECORD + key + value;
    if (here >= bytes && tsri_wire_get(p, 8) != tsri_hash(log->nonce, p + 8, bytes - 8))
        return 0;
    return bytes;
}

/* Records from log->at on, up to the end or to one that is not whole. */
static tsr_status read_records(tsri_log *log)
{
    size_t want = FIRST_ROOM;
    for (;;) {
        size_t here, used = 0, bytes = 0;
        TSRI_TRY(read_at(log, log->at, want, &here));
        while ((bytes = measure(log, log->buf + used, here - used)) && bytes <= here - used) {
            const unsigned char *p = log->buf + used;
            const tsri_bytes key = {p + RECORD, (size_t)tsri_wire_get(p + 12, 4)};
            const tsri_bytes value = {p + RECORD + key.bytes, (size_t)tsri_wire_get(p + 16, 4)};
            TSRI_TRY(apply(log, (uint32_t)tsri_wire_get(p + 8, 4), key, value));
            log->at += bytes;
            used += bytes;
        }
        if (bytes == 0 || here < want)
            return TSR_OK;
        want = bytes > FIRST_ROOM ? bytes : FIRST_ROOM;
    }
}

tsr_status tsri_log_append(tsri_log *log, tsri_log_type type, tsri_bytes key, tsri_bytes value)
{
    const size_t bytes = RECORD + key.bytes + value.bytes;
    TSRI_TRY(make_room(log, bytes));
    unsigned char *p = log->buf;
    tsri_wire_put(p + 8, (uint64_t)type, 4);
    tsri_wire_put(p + 12, key.bytes, 4);
    tsri_wire_put(p + 16, value.bytes, 4);
    tsri_wire_put(p + 20, 0, 4);
    if (key.bytes)
        memcpy(p + RECORD, key.data, key.bytes);
    if (value.bytes)
        memcpy(p + RECORD + key.bytes, value.data, value.bytes);
    tsri_wire_put(p, tsri_hash(log->nonce, p + 8, bytes - 8), 8);
    /* The rest of a writer that died goes first: nothing may follow our record. */
    if (ftruncate(log->fd, (off_t)log->at) != 0)
        return fail_io(log, "write");
    tsr_status status = write_at(log, log->at, p, bytes);
    if (status == TSR_OK)
        status = apply(log, (uint32_t)type, key, value);
    if (status != TSR_OK) {
        if (ftruncate(log->fd, (off_t)log->at) != 0)
            status = fail_io(log, "write");
        return status;
    }
    log->at += bytes;
    return TSR_OK;
}

tsr_status tsri_log_append_leave(tsri_log *log, int rank)
{
    char key[16];
    const size_t bytes = (size_t)snprintf(key, sizeof key, "%d", rank);
    return tsri_log_append(log, TSRI_LOG_LEAVE, (tsri_bytes){key, bytes}, (tsri_bytes){0});
}

/* The lock by which others see that this rank lives. A child that a former process of this rank has
 * left may hold it still: then our being there is seen by the process alone. */
static tsr_status hold_rank(tsri_log *log, uint64_t number, int rank)
{
    struct flock lock = flock_of(rank_byte(number, rank), F_WRLCK);
    if (fcntl(log->fd, F_OFD_SETLK, &lock) != 0 && errno != EAGAIN && errno != EACCES)
        return fail_io(log, "lock this rank's byte of");
    return TSR_OK;
}

tsr_status tsri_log_begin(tsri_log *log, int nranks)
{
    unsigned char head[HEAD] = {0};
    uint64_t random[2] = {0};
    size_t n;
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return fail_io(log, "draw random numbers for");
    const uint64_t number = log->nonce ? log->number + 1 : random[1] & NUMBER_MASK;
    memcpy(head, MAGIC, MAGIC_BYTES);
    tsri_wire_put(head + 16, random[0] | 1, 8);
    tsri_wire_put(head + 24, number, 8);
    tsri_wire_put(head + 32, (uint64_t)nranks, 4);
    write_process(&log->self, head + PROCESS_AT);
    tsri_wire_put(head + CHECK_AT, tsri_hash(TSRI_HASH_INIT, head, CHECK_AT), 8);
    TSRI_TRY(hold_rank(log, number, 0));
    if (ftruncate(log->fd, 0) != 0)
        return fail_io(log, "write");
    TSRI_TRY(write_at(log, 0, head, HEAD));
    TSRI_TRY(read_at(log, 0, HEAD, &n));
    return take_head(log);
}

tsr_status tsri_log_join(tsri_log *log, int rank)
{
    unsigned char value[PROCESS];
    char key[16];
    const size_t bytes = (size_t)snprintf(key, sizeof key, "%d", rank);
    write_process(&log->self, value);
    TSRI_TRY(hold_rank(log, log->number, rank));
    return tsri_log_append(log, TSRI_LOG_JOIN, (tsri_bytes){key, bytes},
                           (tsri_bytes){value, sizeof value});
}

void tsri_log_remove(tsri_log *log)
{
    unlink(log->path);
}

/* --- the lock --------------------------------------------------------------------------------- */

/* The file at the path; log->fd stays -1 if there is none. */
static tsr_status open_file(tsri_log *log, bool create)
{
    struct stat st;
    if (stat(log->path, &st) == 0 && !S_ISREG(st.st_mode))
        return tsri_fail(TSR_ERR_FORMAT, "store: file://%s is no regular file", log->path);
    log->fd = open(log->path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0600);
    if (log->fd >= 0)
        return TSR_OK;
    if (errno != ENOENT)
        return fail_io(log, "open");
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", log->path);
    *(strrchr(folder, '/') + 1) = 0;
    if (create || (stat(folder, &st) != 0 && errno == ENOENT))
        return tsri_fail(TSR_ERR_IO, "store: can't open file://%s: there is no folder %s",
                         log->path, folder);
    return TSR_OK;
}

/* Tries again and again: who holds the lock may have been stopped, and we have a deadline. It is
 * held for moments only: a call whose time is just over waits for these. */
static tsr_status take_lock(tsri_log *log, double until_s)
{
    struct flock lock = flock_of(lock_byte, F_WRLCK);
    double pause_s = 20e-6;
    until_s = fmax(until_s, tsri_now_s() + moments_s);
    while (fcntl(log->fd, F_OFD_SETLK, &lock) != 0) {
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != EACCES)
            return fail_io(log, "lock");
        if (tsri_now_s() >= until_s)
            return tsri_fail(TSR_ERR_TIMEOUT,
                             "store: file://%s: another process holds its lock, and does not go on",
                             log->path);
        tsri_sleep_s(pause_s);
        pause_s = pause_s < 2e-3 ? 1.5 * pause_s : pause_s;
    }
    return TSR_OK;
}

void tsri_log_unlock(tsri_log *log)
{
    struct flock lock = flock_of(lock_byte, F_UNLCK);
    if (log->fd >= 0)
        fcntl(log->fd, F_OFD_SETLK, &lock);
}

/* Whether what is open is what the path leads to. */
static bool is_current(const tsri_log *log)
{
    struct stat open_st, path_st;
    return fstat(log->fd, &open_st) == 0 && stat(log->path, &path_st) == 0 &&
           open_st.st_nlink > 0 && open_st.st_dev == path_st.st_dev &&
           open_st.st_ino == path_st.st_ino;
}

tsr_status tsri_log_lock(tsri_log *log, bool create, double until_s, tsri_log_state *out)
{
    *out = TSRI_LOG_NONE;
    for (;;) {
        if (log->fd < 0)
            TSRI_TRY(open_file(log, create));
        if (log->fd < 0)
            return TSR_OK;
        TSRI_TRY(take_lock(log, until_s));
        if (is_current(log))
            break;
        /* Removed, by the last of an earlier run. */
        close(log->fd);
        log->fd = -1;
        forget(log);
    }
    tsr_status status = read_head(log, out);
    if (status == TSR_OK && *out == TSRI_LOG_RUN)
        status = read_records(log);
    if (status != TSR_OK)
        tsri_log_unlock(log);
    return status;
}

bool tsri_log_is_quiet(const tsri_log *log)
{
    struct stat st;
    return log->fd >= 0 && fstat(log->fd, &st) == 0 && (uint64_t)st.st_size == log->at;
}
