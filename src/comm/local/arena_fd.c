/* SPDX-License-Identifier: Apache-2.0 */
/* The arena's file. Compiled into the library and into the launcher; needs neither. */
#include "src/comm/local/arena.h"
#include "src/comm/flight/flight.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const size_t page = 4096;
static const size_t least_default = (size_t)1 << 30;
static const size_t least_halved = (size_t)16 << 20;

static size_t up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* A launcher and a library whose layouts differ must not meet: the sizes are part of the magic. */
static uint64_t magic(void)
{
    return UINT64_C(0x7e55e7a100000000) ^ sizeof(tsri_member) << 8 ^ sizeof(tsri_rank_slot) ^
           (uint64_t)TSRI_ARENA_CHANNELS << 24 ^ (uint64_t)TSRI_ARENA_BLOCKS << 40 ^
           sizeof(tsri_channel) << 4 ^ (uint64_t)sizeof(tsri_flight) << 20;
}

tsri_arena_layout tsri_arena_layout_of(int nranks, size_t bytes_per_rank)
{
    tsri_arena_layout l = {.bytes_per_rank = up(bytes_per_rank, page)};
    size_t n = (size_t)nranks;
    l.slots = up(sizeof(tsri_arena_head), page);
    l.channels = up(l.slots + n * sizeof(tsri_rank_slot), page);
    l.members = up(l.channels + TSRI_ARENA_CHANNELS * sizeof(tsri_channel), page);
    l.flights = up(l.members + n * TSRI_ARENA_BLOCKS * sizeof(tsri_member), page);
    l.regions = up(l.flights + n * sizeof(tsri_flight), page);
    l.total = l.regions + n * l.bytes_per_rank;
    return l;
}

/* 0 or -errno: sets the size and tries to map it. */
static int size_fd(int fd, int nranks, size_t bytes_per_rank)
{
    tsri_arena_layout l = tsri_arena_layout_of(nranks, bytes_per_rank);
    if (bytes_per_rank > (SIZE_MAX >> 2) / (size_t)nranks)
        return -ENOMEM;
    if (ftruncate(fd, (off_t)l.total))
        return -errno;
    void *p = mmap(NULL, l.total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (p == MAP_FAILED)
        return -errno;
    munmap(p, l.total);
    return 0;
}

static size_t default_bytes(int nranks)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    size_t memory = pages > 0 && size > 0 ? (size_t)pages * (size_t)size : 0;
    size_t bytes = 2 * memory / (size_t)nranks;
    return up(bytes < least_default ? least_default : bytes, page);
}

int tsri_arena_create_fd(int nranks, size_t *bytes_per_rank)
{
    const char *text = *bytes_per_rank ? NULL : getenv("TESSERA_ARENA_BYTES");
    int may_halve = !*bytes_per_rank && !(text && *text);
    if (text && *text) {
        char *end;
        errno = 0;
        unsigned long long v = strtoull(text, &end, 10);
        if (errno || *end || !v || *text == '-')
            return -EINVAL;
        *bytes_per_rank = (size_t)v;
    } else if (may_halve) {
        *bytes_per_rank = default_bytes(nranks);
    }
    int fd = memfd_create("tessera", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rc = size_fd(fd, nranks, *bytes_per_rank);
    while (rc && may_halve && *bytes_per_rank / 2 >= least_halved) {
        *bytes_per_rank = up(*bytes_per_rank / 2, page);
        rc = size_fd(fd, nranks, *bytes_per_rank);
    }
    *bytes_per_rank = up(*bytes_per_rank, page);
    uint64_t head[4] = {magic(), (uint64_t)nranks, *bytes_per_rank};
    if (getrandom(&head[3], sizeof head[3], GRND_NONBLOCK) < 0)
        head[3] = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
    if (!rc && pwrite(fd, head, sizeof head, 0) != (ssize_t)sizeof head)
        rc = errno ? -errno : -EIO;
    if (!rc)
        return fd;
    close(fd);
    return rc;
}

int tsri_arena_check_fd(int fd, int nranks, size_t bytes_per_rank)
{
    struct stat st;
    uint64_t head[3];
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) ||
        (uint64_t)st.st_size != tsri_arena_layout_of(nranks, bytes_per_rank).total)
        return 0;
    return pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head && head[0] == magic() &&
           head[1] == (uint64_t)nranks && head[2] == bytes_per_rank;
}

void tsri_arena_mark_exited(int fd, int rank)
{
    /* A mapped store would do as well; an aligned word is written whole either way. */
    uint64_t holder = tsri_rank_holder(TSRI_RANK_EXITED, 0);
    size_t at = tsri_arena_layout_of(1, page).slots + (size_t)rank * sizeof(tsri_rank_slot) +
                offsetof(tsri_rank_slot, holder);
    /* Nothing to do about a failure: the ranks' own watch finds the death a little later. */
    if (pwrite(fd, &holder, sizeof holder, (off_t)at) < 0)
        return;
}
