/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meeting, in a store. NAME is a machine's (its kernel's start, process and network namespaces,
 * and the user), K counts its ranks by arrival, from 1:
 *
 *   meet/came/RANK     the rank is here
 *   meet/all           set by the last of all ranks to come
 *   meet/NAME/n        a counter: ranks of the machine
 *   meet/NAME/K        "rank pid"
 *   meet/NAME/blind/R  rank R can't open what the machine's lowest rank, its host, has open
 *   meet/NAME/looked   a counter: who has tried; meet/NAME/sights is set by the last
 *   meet/NAME/arena    "pid:fd:bytes" of the host and the ranks that share it, or "! why not"
 *   meet/NAME/opened   a counter: who has it open; meet/NAME/open is set by the last, or to
 *                      "! rank status why not" by one that can't, and the host closes the file
 */
#include "src/comm/world/meet.h"
#include "src/core/foreign.h"
#include "src/core/proc.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = TSRI_ARENA_MAX_RANKS, KEY = 192, ARENA_TEXT = 64 + 12 * TSRI_ARENA_MAX_RANKS };

/* A rank that says that it is on this machine. */
typedef struct peer {
    int rank, pid;
} peer;

typedef struct meeting {
    tsr_store *store;
    int rank, nranks;
    char name[96];
    int npeers;
    peer peer[MOST]; /* ascending by rank; the first is the host */
} meeting;

/* --- keys ------------------------------------------------------------------------------------- */

static const char *key_of(char buf[KEY], const char *fmt, ...) TSR_PRINTF(2, 3);

static const char *key_of(char buf[KEY], const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, KEY, fmt, ap);
    va_end(ap);
    return buf;
}

static tsr_status get_text(const meeting *m, const char *key, char *buf, size_t size)
{
    size_t n;
    TSRI_TRY(tsr_store_get(m->store, key, buf, size - 1, &n));
    buf[n] = 0;
    return TSR_OK;
}

static tsr_status set_text(const meeting *m, const char *key, const char *text)
{
    return tsr_store_set(m->store, key, text, strlen(text));
}

/* Counts this rank in; the last of `n` sets `done`, if it is not NULL. */
static tsr_status count_in(const meeting *m, const char *counter, int n, const char *done)
{
    int64_t came;
    TSRI_TRY(tsr_store_add(m->store, counter, 1, &came));
    return came == n && done ? set_text(m, done, "1") : TSR_OK;
}

/* --- all ranks -------------------------------------------------------------------------------- */

void tsri_machine_boot(char *buf, size_t size)
{
    tsri_boot_id(buf, size);
    if (!buf[0] && gethostname(buf, size) != 0)
        buf[0] = 0;
    buf[size - 1] = 0;
    buf[strcspn(buf, "\n/")] = 0;
}

/* The name has the namespaces of processes and of the network in it: ranks share memory only if
 * they have both in common. */
static void name_machine(char *buf, size_t size)
{
    struct stat pids, net;
    char boot[64];
    tsri_machine_boot(boot, sizeof boot);
    if (stat("/proc/self/ns/pid", &pids))
        pids.st_ino = 0;
    if (stat("/proc/self/ns/net", &net))
        net.st_ino = 0;
    snprintf(buf, size, "%.40s-%llu-%llu-%u", boot, (unsigned long long)pids.st_ino,
             (unsigned long long)net.st_ino, (unsigned)geteuid());
}

/* Fails with the ranks to blame for the timeout: "ranks 1, 3 did not come"; the first few. */
static tsr_status fail_absent(const meeting *m, tsr_status status)
{
    char text[256] = "", key[KEY];
    size_t used = 0;
    int absent = 0;
    if (status != TSR_ERR_TIMEOUT)
        return status;
    for (int r = 0; r < m->nranks; r++) {
        bool there;
        const char *k = key_of(key, "meet/came/%d", r);
        if (tsr_store_check(m->store, 1, &k, &there) != TSR_OK)
            return status;
        if (!there && used < sizeof text - 32)
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "%s%d", absent ? ", " : "", r);
        absent += !there;
    }
    return tsri_fail(TSR_ERR_TIMEOUT, "rank%s %s%s did not come to the meeting of %d ranks%s",
                     absent > 1 ? "s" : "", absent ? text : "?",
                     used >= sizeof text - 32 ? ", ..." : "", m->nranks,
                     absent ? " (it was in the store, and then no more)" : "");
}

static tsr_status meet_all(const meeting *m)
{
    char key[KEY], text[32];
    int64_t k;
    TSRI_TRY(tsr_store_add(m->store, key_of(key, "meet/%s/n", m->name), 1, &k));
    snprintf(text, sizeof text, "%d %d", m->rank, (int)getpid());
    TSRI_TRY(set_text(m, key_of(key, "meet/%s/%lld", m->name, (long long)k), text));
    TSRI_TRY(set_text(m, key_of(key, "meet/came/%d", m->rank), "1"));
    TSRI_TRY(count_in(m, "meet/count", m->nranks, "meet/all"));
    const char *all = "meet/all";
    return fail_absent(m, tsr_store_wait(m->store, 1, &all, 0));
}

/* --- one machine ------------------------------------------------------------------------------ */

static int by_rank(const void *a, const void *b)
{
    return ((const peer *)a)->rank - ((const peer *)b)->rank;
}

static tsr_status read_peers(meeting *m)
{
    char key[KEY], text[64];
    TSRI_TRY(get_text(m, key_of(key, "meet/%s/n", m->name), text, sizeof text));
    const char *at = text;
    if (!tsri_take_int(&at, 1, MOST, &m->npeers) || *at)
        return tsri_fail(TSR_ERR_INVALID, "%s ranks are on one machine: at most %d can be",
                         tsri_make_printable(text, false), MOST);
    for (int i = 0; i < m->npeers; i++) {
        peer *p = &m->peer[i];
        TSRI_TRY(get_text(m, key_of(key, "meet/%s/%d", m->name, i + 1), text, sizeof text));
        at = text;
        if (!tsri_take_int(&at, 0, m->nranks - 1, &p->rank) || !tsri_take_char(&at, ' ') ||
            !tsri_take_int(&at, 1, INT_MAX, &p->pid) || *at)
            return tsri_fail(TSR_ERR_FORMAT,
                             "the store has '%s' as %s: expected a rank below %d and a process",
                             tsri_make_printable(text, false), key, m->nranks);
    }
    qsort(m->peer, (size_t)m->npeers, sizeof *m->peer, by_rank);
    bool is_here = false;
    for (int i = 0; i < m->npeers; i++) {
        is_here |= m->peer[i].rank == m->rank;
        if (i && m->peer[i].rank == m->peer[i - 1].rank)
            return tsri_fail(TSR_ERR_FORMAT, "the store has rank %d twice at meet/%s",
                             m->peer[i].rank, m->name);
    }
    return is_here ? TSR_OK
                   : tsri_fail(TSR_ERR_FORMAT, "the store has not rank %d at meet/%s, which set it",
                               m->rank, m->name);
}

/* The kernel asks the same right for opening another's files as for reading this link. */
static bool can_see(int pid)
{
    char path[32], target[8];
    snprintf(path, sizeof path, "/proc/%d/exe", pid);
    return readlink(path, target, sizeof target) >= 0;
}

/* Says whether this rank can open what the host has, and waits until all have said so. */
static tsr_status look(const meeting *m, bool *out_sees)
{
    char key[KEY], counter[KEY], done[KEY];
    *out_sees = m->peer[0].rank == m->rank || can_see(m->peer[0].pid);
    if (!*out_sees)
        TSRI_TRY(set_text(m, key_of(key, "meet/%s/blind/%d", m->name, m->rank), "1"));
    key_of(counter, "meet/%s/looked", m->name);
    key_of(done, "meet/%s/sights", m->name);
    return count_in(m, counter, m->npeers, done);
}

static tsr_status say_late(tsr_status status, const char *who)
{
    return status == TSR_ERR_TIMEOUT ? tsri_fail_prefix(status, "%s", who) : status;
}

/* Reads a refusal to share memory, as a rank of this machine writes it: "! rank status why", or
 * "! status why" of the host (rank NULL). Returns the reason; NULL if the text is no refusal. */
static const char *read_refusal(const meeting *m, char *text, int *rank, tsr_status *status)
{
    const char *at = tsri_make_printable(text, true);
    if (!tsri_take_char(&at, '!') || !tsri_take_char(&at, ' '))
        return NULL;
    if (rank && !(tsri_take_int(&at, 0, m->nranks - 1, rank) && tsri_take_char(&at, ' ')))
        return NULL;
    return tsri_take_error(&at, status) && tsri_take_char(&at, ' ') && *at ? at : NULL;
}

/* The host waits until the others have the arena open. If one says that it can't, those that have
 * learn it there. */
static tsr_status await_opened(const meeting *m, const tsri_machine *out)
{
    char key[KEY], text[ARENA_TEXT];
    int rank;
    tsr_status status;
    TSRI_TRY(say_late(get_text(m, key_of(key, "meet/%s/open", m->name), text, sizeof text),
                      "not all other ranks of this machine have opened its memory"));
    if (!strcmp(text, "1"))
        return TSR_OK;
    const char *why = read_refusal(m, text, &rank, &status);
    if (!why)
        return tsri_fail(TSR_ERR_FORMAT, "the store has '%.60s' as %s: expected 1 or a refusal",
                         tsri_make_printable(text, false), key);
    tsri_arena_abort(&out->arena, rank, why);
    return tsri_fail(status, "rank %d: %s", rank, why);
}

/* The host's part: makes the arena of those who can open it, and waits until they have. */
static tsr_status make_shared(const meeting *m, size_t arena_bytes, tsri_machine *out, int *out_fd)
{
    char key[KEY], text[ARENA_TEXT];
    TSRI_TRY(say_late(get_text(m, key_of(key, "meet/%s/sights", m->name), text, sizeof text),
                      "other ranks of this machine have come to the meeting, and then no more"));
    out->index = 0;
    out->nranks = 1;
    out->rank[0] = m->rank;
    for (int i = 1; i < m->npeers; i++) {
        bool blind;
        const char *k = key_of(key, "meet/%s/blind/%d", m->name, m->peer[i].rank);
        TSRI_TRY(tsr_store_check(m->store, 1, &k, &blind));
        if (!blind)
            out->rank[out->nranks++] = m->peer[i].rank;
    }
    TSRI_TRY(tsri_arena_make_fd(out->nranks, arena_bytes, &out->arena, out_fd));
    int used = snprintf(text, sizeof text, "%d:%d:%zu", (int)getpid(), *out_fd,
                        out->arena.layout.bytes_per_rank);
    for (int i = 0; i < out->nranks; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, " %d", out->rank[i]);
    TSRI_TRY(set_text(m, key_of(key, "meet/%s/arena", m->name), text));
    return out->nranks == 1 ? TSR_OK : await_opened(m, out);
}

static tsr_status be_host(const meeting *m, size_t arena_bytes, tsri_machine *out)
{
    char key[KEY], text[512];
    int fd = -1;
    tsr_status status = make_shared(m, arena_bytes, out, &fd);
    if (fd >= 0)
        close(fd);
    if (status == TSR_OK)
        return TSR_OK;
    /* Ranks that wait for it learn why it does not come; those who have it, there. */
    snprintf(text, sizeof text, "! %d %s", (int)status, tsr_last_error());
    if (out->arena.base)
        tsri_arena_abort(&out->arena, m->rank, strchr(text + 2, ' ') + 1);
    tsri_arena_unmap(&out->arena);
    if (fd < 0 && set_text(m, key_of(key, "meet/%s/arena", m->name), text) != TSR_OK)
        tsri_error_clear();
    return tsri_fail(status, "%s", strchr(text + 2, ' ') + 1);
}

/* " rank rank ...", ascending, of this machine's. Returns whether it is that to its end. */
static bool read_ranks(const meeting *m, const char *at, tsri_machine *out)
{
    out->nranks = 0;
    out->index = -1;
    for (int i = 0; *at; i++) {
        int rank, least = i ? out->rank[i - 1] + 1 : 0;
        if (!tsri_take_char(&at, ' ') || !tsri_take_int(&at, least, m->nranks - 1, &rank))
            return false;
        const peer wanted = {.rank = rank};
        if (i == MOST || !bsearch(&wanted, m->peer, (size_t)m->npeers, sizeof wanted, by_rank))
            return false;
        if (rank == m->rank)
            out->index = i;
        out->rank[i] = rank;
        out->nranks = i + 1;
    }
    return true;
}

/* Maps the arena that the host tells of, which is the host's own. */
static tsr_status take_arena(const meeting *m, char *text, tsri_machine *out)
{
    int pid, fd;
    int64_t bytes;
    const char *at = text;
    if (!tsri_take_int(&at, m->peer[0].pid, m->peer[0].pid, &pid) || !tsri_take_char(&at, ':') ||
        !tsri_take_int(&at, 0, INT_MAX, &fd) || !tsri_take_char(&at, ':') ||
        !tsri_take_number(&at, 1, INT64_MAX, &bytes) || !read_ranks(m, at, out))
        return tsri_fail(TSR_ERR_FORMAT,
                         "the store has '%.60s' as meet/%s/arena: expected pid:fd:bytes of process "
                         "%d, and ranks of this machine",
                         tsri_make_printable(text, false), m->name, m->peer[0].pid);
    if (out->index < 0)
        return tsri_fail(TSR_ERR_INTERNAL, "rank %d is not among those of its arena", m->rank);
    return tsri_arena_open(pid, fd, (size_t)bytes, out->nranks, &out->arena);
}

/* This rank's last error, to the host. Returns it again, or what another rank said before: the host
 * may have closed the file by that. */
static tsr_status tell_host(const meeting *m, tsr_status status)
{
    char key[KEY], text[512], first[512];
    size_t n = 0;
    int rank;
    tsr_status cause;
    int at = snprintf(text, sizeof text, "! %d %d ", m->rank, (int)status);
    snprintf(text + at, sizeof text - (size_t)at, "%s", tsr_last_error());
    key_of(key, "meet/%s/open", m->name);
    if (tsr_store_compare_set(m->store, key, "", 0, text, strlen(text), first, sizeof first - 1,
                              &n) != TSR_OK) {
        tsri_error_clear();
        n = 0;
    }
    first[n] = 0;
    const char *why = strcmp(first, text) != 0 ? read_refusal(m, first, &rank, &cause) : NULL;
    return why ? tsri_fail(cause, "rank %d: %s", rank, why) : tsri_fail(status, "%s", text + at);
}

static tsr_status open_shared(const meeting *m, tsri_machine *out)
{
    char key[KEY], done[KEY], text[ARENA_TEXT];
    tsr_status status;
    tsr_status got = get_text(m, key_of(key, "meet/%s/arena", m->name), text, sizeof text);
    if (got == TSR_ERR_TIMEOUT)
        return tsri_fail_prefix(got, "rank %d (this machine's first)", m->peer[0].rank);
    TSRI_TRY(got);
    const char *why = *text == '!' ? read_refusal(m, text, NULL, &status) : NULL;
    if (why)
        return tsri_fail(status, "rank %d: %s", m->peer[0].rank, why);
    tsr_status taken = take_arena(m, text, out);
    if (taken != TSR_OK)
        return tell_host(m, taken);
    key_of(key, "meet/%s/opened", m->name);
    tsr_status counted = count_in(m, key, out->nranks - 1, key_of(done, "meet/%s/open", m->name));
    if (counted != TSR_OK)
        tsri_arena_unmap(&out->arena);
    return counted;
}

tsr_status tsri_machine_meet(tsr_store *store, int rank, int nranks, size_t arena_bytes,
                             tsri_machine *out)
{
    meeting m = {.store = store, .rank = rank, .nranks = nranks};
    bool sees = true;
    *out = (tsri_machine){.nranks = 1, .rank = {rank}};
    name_machine(m.name, sizeof m.name);
    TSRI_TRY(meet_all(&m));
    TSRI_TRY(read_peers(&m));
    if (m.npeers > 1)
        TSRI_TRY(look(&m, &sees));
    if (m.npeers == 1 || !sees)
        return tsri_arena_make(1, arena_bytes, &out->arena);
    return m.peer[0].rank == rank ? be_host(&m, arena_bytes, out) : open_shared(&m, out);
}

/* --- addresses -------------------------------------------------------------------------------- */

void tsri_machine_address(char *buf, size_t size)
{
    struct ifaddrs *all = NULL;
    snprintf(buf, size, "127.0.0.1");
    if (getifaddrs(&all))
        return;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        char text[INET_ADDRSTRLEN];
        if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP) ||
            (i->ifa_flags & IFF_LOOPBACK))
            continue;
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)i->ifa_addr;
        if (inet_ntop(AF_INET, &in->sin_addr, text, sizeof text)) {
            snprintf(buf, size, "%s", text);
            break;
        }
    }
    freeifaddrs(all);
}
