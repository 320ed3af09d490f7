/* SPDX-License-Identifier: Apache-2.0 */
#include "src/comm/local/local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static tsr_status map(int fd, int nranks, size_t bytes_per_rank, tsri_arena *out_arena)
{
    tsri_arena a = {.nranks = nranks, .layout = tsri_arena_layout_of(nranks, bytes_per_rank)};
    void *p = mmap(NULL, a.layout.total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (p == MAP_FAILED)
        return tsri_fail(
            TSR_ERR_NO_MEMORY,
            "can't map the arena of %d ranks x %zu bytes (%s): set TESSERA_ARENA_BYTES "
            "to fewer bytes per rank, or raise the limit of address space (ulimit -v)",
            nranks, bytes_per_rank, strerror(errno));
    a.base = p;
    *out_arena = a;
    return TSR_OK;
}

tsr_status tsri_arena_make_fd(int nranks, size_t bytes_per_rank, tsri_arena *out_arena, int *out_fd)
{
    bool by_variable = !bytes_per_rank;
    int fd = tsri_arena_create_fd(nranks, &bytes_per_rank);
    if (fd == -EINVAL && by_variable)
        return tsri_fail(TSR_ERR_INVALID,
                         "TESSERA_ARENA_BYTES is '%s': expected a number of bytes per rank",
                         getenv("TESSERA_ARENA_BYTES"));
    if (fd < 0)
        return tsri_fail(TSR_ERR_NO_MEMORY,
                         "can't make the arena of %d ranks x %zu bytes (%s): give "
                         "tsr_world_opts.arena_bytes or TESSERA_ARENA_BYTES fewer bytes per rank",
                         nranks, bytes_per_rank, strerror(-fd));
    tsr_status status = map(fd, nranks, bytes_per_rank, out_arena);
    if (status != TSR_OK)
        close(fd);
    else
        *out_fd = fd;
    return status;
}

tsr_status tsri_arena_make(int nranks, size_t bytes_per_rank, tsri_arena *out_arena)
{
    int fd = -1;
    TSRI_TRY(tsri_arena_make_fd(nranks, bytes_per_rank, out_arena, &fd));
    close(fd);
    return TSR_OK;
}

/* A descriptor of what process `pid` has open as `fd`; -1 and errno. */
static int open_of(int pid, int fd, char path[64])
{
    snprintf(path, 64, "/proc/%d/fd/%d", pid, fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* Maps the file, which it closes, if it is an arena of these numbers. why: else, for the message.
 */
static tsr_status map_checked(int fd, const char *path, int nranks, size_t bytes_per_rank,
                              const char *why, tsri_arena *out_arena)
{
    tsr_status status;
    if (tsri_arena_check_fd(fd, nranks, bytes_per_rank))
        status = map(fd, nranks, bytes_per_rank, out_arena);
    else
        status =
            tsri_fail(TSR_ERR_INVALID, "%s is no arena of %d ranks x %zu bytes of this version: %s",
                      path, nranks, bytes_per_rank, why);
    close(fd);
    return status;
}

tsr_status tsri_arena_open(int pid, int fd, size_t bytes_per_rank, int nranks,
                           tsri_arena *out_arena)
{
    char path[64];
    int own = open_of(pid, fd, path);
    if (own < 0)
        return tsri_fail(TSR_ERR_IO, "can't open the arena that process %d has made, %s: %s", pid,
                         path, strerror(errno));
    return map_checked(own, path, nranks, bytes_per_rank,
                       "ranks run different versions of the library", out_arena);
}

tsr_status tsri_arena_inherit(const char *text, int nranks, tsri_arena *out_arena)
{
    int pid, fd, end = 0;
    size_t bytes;
    char path[64];
    if (sscanf(text, "%d:%d:%zu%n", &pid, &fd, &bytes, &end) != 3 || text[end] || pid < 1 ||
        fd < 0 || !bytes)
        return tsri_fail(TSR_ERR_INVALID,
                         "TESSERA_ARENA is '%s': expected 'pid:fd:bytes' as `tessera launch` sets "
                         "it",
                         text);
    if (tsri_arena_check_fd(fd, nranks, bytes))
        return map(fd, nranks, bytes, out_arena);
    /* Something between the launcher and this program closed the descriptor. */
    int own = open_of(pid, fd, path);
    if (own < 0)
        return tsri_fail(
            TSR_ERR_INVALID,
            "can't open the launcher's arena, %s: %s; TESSERA_ARENA is set by `tessera "
            "launch` and valid only while it runs",
            path, strerror(errno));
    return map_checked(own, path, nranks, bytes,
                       "WORLD_SIZE differs from the launcher's -n, or the launcher is of another "
                       "version than the library",
                       out_arena);
}

void tsri_arena_unmap(tsri_arena *arena)
{
    if (arena->base)
        munmap(arena->base, arena->layout.total);
    arena->base = NULL;
}

void tsri_arena_abort(const tsri_arena *arena, int rank, const char *text)
{
    tsri_arena_head *head = tsri_arena_get_head(arena);
    uint32_t nobody = 0;
    if (!atomic_compare_exchange_strong(&head->abort_state, &nobody, 1))
        return;
    head->abort_rank = rank;
    snprintf(head->abort_text, sizeof head->abort_text, "%s", text ? text : "it gave up");
    atomic_store(&head->abort_state, 2);
}
