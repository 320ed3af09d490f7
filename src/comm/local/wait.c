/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for a peer: spin, then yield, then sleep on a futex in slices, between which the rank
 * looks whether the peer can still come. A sleeper raises `waiters` before it looks at the counter
 * for the last time, who advances a counter looks at `waiters` after it: both sequentially
 * consistent, so one of them sees the other.
 */
#include "src/comm/local/local.h"
#include "src/core/clock.h"
#include "src/core/proc.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { YIELDS = 20, FEW_SPINS = 20, MAX_IN_VAIN = 3, TRY_AGAIN = 32 };
static const double slice_s = 0.1;

static _Atomic uint64_t *counter_of(tsri_member *m, tsri_wait_for which, uint64_t seq)
{
    switch (which) {
    case TSRI_WAIT_PUBLISHED:
        return &m->published;
    case TSRI_WAIT_PHASE1:
        return &m->phase1;
    case TSRI_WAIT_SMALL:
        return &m->small[seq % TSRI_SMALL_SLOTS].seq;
    case TSRI_WAIT_DONE:
        break;
    }
    return &m->done;
}

void tsri_local_advance(tsri_member *mine, tsri_wait_for which, uint64_t to)
{
    atomic_store(counter_of(mine, which, to), to);
    if (atomic_load(&mine->waiters) == 0)
        return;
    atomic_fetch_add(&mine->wake, 1);
    syscall(SYS_futex, &mine->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

tsr_status tsri_local_check_abort(const tsri_local *local)
{
    tsri_arena_head *head = tsri_arena_get_head(&local->arena);
    if (atomic_load_explicit(&head->abort_state, memory_order_acquire) != 2)
        return TSR_OK;
    if (head->abort_rank < 0)
        return tsri_fail(TSR_ERR_REMOTE, "%s", head->abort_text);
    return tsri_fail(TSR_ERR_REMOTE, "rank %d failed: %s", (int)head->abort_rank, head->abort_text);
}

/* Without pidfds (an old kernel, or no descriptor left): the state letter of /proc/PID/stat. */
static bool stat_says_gone(int pid)
{
    tsri_proc p;
    if (!tsri_proc_read(pid, &p))
        return errno == ENOENT || errno == ESRCH;
    return p.state == 'Z' || p.state == 'X';
}

bool tsri_local_pid_gone(int pid, int *pidfd)
{
    if (*pidfd == 0) {
        long fd = syscall(SYS_pidfd_open, pid, 0);
        if (fd < 0 && errno == ESRCH)
            return true;
        *pidfd = fd < 0 ? -1 : (int)fd + 1;
    }
    if (*pidfd < 0)
        return stat_says_gone(pid);
    struct pollfd p = {.fd = *pidfd - 1, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

static const char has_left[] = "has left (its function returned, or its world was destroyed)";
static const char has_died[] = "died (its process has ended)";

/* Why `rank` will never advance again in this world; NULL if it may. */
static const char *why_world_gone(tsri_local *local, int rank)
{
    tsri_rank_slot *slot = tsri_local_slot(local, rank);
    /* In this order: it leaves, and only then makes its next world. */
    int worlds = atomic_load(&slot->worlds);
    uint64_t holder = atomic_load(&slot->holder);
    tsri_rank_state state = tsri_rank_state_of(holder);
    if (state == TSRI_RANK_EXITED)
        return has_died;
    if (worlds > local->worlds || (worlds == local->worlds && state == TSRI_RANK_LEFT))
        return has_left;
    /* Here, or between an earlier world and this one. */
    int pid = tsri_rank_pid_of(holder);
    tsri_local *host = local->host;
    pthread_mutex_lock(&host->lock);
    bool gone = pid && tsri_local_pid_gone(pid, &host->pidfds[tsri_local_place_of(host, rank)]);
    pthread_mutex_unlock(&host->lock);
    return gone ? has_died : NULL;
}

/* Whether `rank` is closing the communicator on device memory, which this rank still has. */
static bool is_closing(const tsri_local *device, int rank)
{
    tsri_local_group *g = device->closing;
    for (int i = 0; g && i < g->pub.nranks; i++)
        if (g->pub.ranks[i] == rank)
            return tsri_local_reached(g, i, TSRI_WAIT_PUBLISHED, g->started + 1);
    return false;
}

/* Why a call waits in vain for `rank`; NULL: it need not. A rank that closes a communicator waits
 * there for all others: a rank that waits for it elsewhere, on whichever memory, does so in vain.
 * (Not so a twin's threads, which need not be the one that closes.) */
static const char *why_gone(tsri_local *local, int rank)
{
    const char *why = why_world_gone(local, rank);
    const tsri_local *d = local->first_lane < 0 ? NULL : local->host->on_devices;
    for (; d && !why; d = d->next)
        if (is_closing(d, rank))
            why = has_left;
    return why;
}

bool tsri_local_reached(tsri_local_group *g, int index, tsri_wait_for which, uint64_t seq)
{
    uint64_t at = atomic_load(counter_of(&g->members[index], which, seq));
    /* A rank in its next world reads nothing of this one any more, but does not come either. */
    bool same_world = at >> TSRI_SEQ_BITS == seq >> TSRI_SEQ_BITS;
    return at >= seq && (same_world || which == TSRI_WAIT_DONE);
}

/* "; behind in this group: rank 1 at #16, rank 3 at none": who has not come to a call, if several
 * or not just `named`. */
static void behind_text(tsri_local_group *g, uint64_t seq, int named, char *buf, size_t size)
{
    enum { MOST = 8 };
    int n = 0, others = 0;
    size_t used = 0;
    buf[0] = 0;
    for (int i = 0; i < g->pub.nranks; i++) {
        uint64_t at = atomic_load(&g->members[i].published);
        if (i == g->pub.index || tsri_local_reached(g, i, TSRI_WAIT_PUBLISHED, seq))
            continue;
        others += i != named;
        if (++n > MOST || used + 40 > size)
            continue;
        used += (size_t)snprintf(buf + used, size - used, "%s rank %d at ",
                                 n == 1 ? "; behind in this group:" : ",", g->pub.ranks[i]);
        if (at >> TSRI_SEQ_BITS == seq >> TSRI_SEQ_BITS && tsri_seq_count(at))
            used += (size_t)snprintf(buf + used, size - used, "#%llu",
                                     (unsigned long long)tsri_seq_count(at));
        else
            used += (size_t)snprintf(buf + used, size - used, "none");
    }
    if (n > MOST)
        snprintf(buf + used, size - used, " and %d more", n - MOST);
    if (!others)
        buf[0] = 0;
}

static void sleep_on(tsri_local_group *g, int index, tsri_wait_for which, uint64_t seq, double s)
{
    tsri_member *m = &g->members[index];
    const struct timespec t = {.tv_nsec = (long)(s * 1e9)};
    atomic_fetch_add(&m->waiters, 1);
    uint32_t wake = atomic_load(&m->wake);
    if (!tsri_local_reached(g, index, which, seq))
        syscall(SYS_futex, &m->wake, FUTEX_WAIT, wake, &t, NULL, 0);
    atomic_fetch_sub(&m->waiters, 1);
}

/* --- timeouts --------------------------------------------------------------------------------- */

static uint64_t look_at_sleep(const tsri_local *local, int place)
{
    return atomic_load(&tsri_arena_flight(&local->arena, place)->sleeps_for);
}

/* Follows the ranks that sleep, from the one that member `index` is: returns the one that keeps
 * them all waiting, and in *out_waiter who sleeps for it, this rank or another. Sleeps for half a
 * second, unless the member comes. */
static int find_behind(tsri_local_group *g, int index, tsri_wait_for which, uint64_t seq,
                       int *out_waiter)
{
    enum { SLICES = 6 };
    const tsri_local *local = g->local;
    const tsr_world *world = local->pub.world;
    uint64_t before[TSRI_ARENA_MAX_RANKS];
    int direct = g->pub.ranks[index], rank = direct, waiter = world->rank;
    for (int i = 0; i < local->arena.nranks; i++)
        before[i] = look_at_sleep(local, i);
    for (int i = 0; i < SLICES && !tsri_local_reached(g, index, which, seq); i++) {
        tsri_flight_sleeps_on(world->flight, direct);
        sleep_on(g, index, which, seq, slice_s);
    }
    *out_waiter = world->rank;
    for (int i = 0; i < local->arena.nranks; i++) {
        int place = tsri_local_place_of(local, rank);
        int next =
            place < 0 ? -1 : tsri_flight_sleeps_for(before[place], look_at_sleep(local, place));
        if (next < 0 || next >= world->nranks) {
            *out_waiter = waiter;
            return rank;
        }
        waiter = rank;
        rank = next;
    }
    return direct; /* they wait for each other */
}

/* Blames `rank`, for which `waiter` sleeps. */
static tsr_status fail_behind(tsri_local_group *g, int index, int rank, int waiter,
                              const tsri_call_entry *call)
{
    char mine[192], behind[512];
    behind_text(g, call->seq, index, behind, sizeof behind);
    return tsri_fail(TSR_ERR_TIMEOUT,
                     "rank %d did not finish what rank %d waits for within %g s; rank %d waits for "
                     "rank %d in %s%s",
                     rank, waiter, g->local->pub.world->timeout_s, g->local->pub.world->rank,
                     g->pub.ranks[index], tsri_call_text(call, mine, sizeof mine), behind);
}

static tsr_status fail_timeout(tsri_local_group *g, int index, tsri_wait_for which,
                               const tsri_call_entry *call)
{
    char mine[192], theirs[192], behind[512];
    tsri_member *m = &g->members[index];
    uint64_t at = atomic_load(&m->published);
    if (at >> TSRI_SEQ_BITS != call->seq >> TSRI_SEQ_BITS)
        at = 0; /* of an earlier world */
    const tsri_rank_slot *slot = tsri_local_slot(g->local, g->pub.ranks[index]);
    tsri_call_text(call, mine, sizeof mine);
    if (tsri_rank_state_of(atomic_load(&slot->holder)) == TSRI_RANK_ABSENT)
        snprintf(theirs, sizeof theirs, "it has not made its world yet");
    else if (at == 0)
        snprintf(theirs, sizeof theirs, "it has not come to any call of this group yet");
    else
        snprintf(theirs, sizeof theirs, "%s", "its last call in this group is ");
    size_t used = strlen(theirs);
    if (at)
        tsri_call_text(tsri_call_of(m, at), theirs + used, sizeof theirs - used);
    behind_text(g, call->seq, index, behind, sizeof behind);
    return tsri_fail(TSR_ERR_TIMEOUT, "rank %d did not %s %s within %g s; %s%s",
                     g->pub.ranks[index], which == TSRI_WAIT_PUBLISHED ? "come to" : "finish", mine,
                     g->local->pub.world->timeout_s, theirs, behind);
}

/* Looks at all members: whom we wait for may itself wait for one that is gone. */
static tsr_status check_gone(tsri_local_group *g, tsri_wait_for which, uint64_t seq,
                             const tsri_call_entry *call)
{
    for (int i = 0; i < g->pub.nranks; i++) {
        if (i == g->pub.index || tsri_local_reached(g, i, which, seq))
            continue;
        const char *why = why_gone(g->local, g->pub.ranks[i]);
        /* Looked at again: it may have come, and only then gone. */
        if (!why || tsri_local_reached(g, i, which, seq))
            continue;
        /* A rank that failed, or ended the group, says so before it goes. */
        TSRI_TRY(tsri_local_check_abort(g->local));
        TSRI_TRY(tsri_call_check_fault(g, seq));
        char text[192], behind[512];
        behind_text(g, call->seq, i, behind, sizeof behind);
        return tsri_fail(TSR_ERR_DEAD, "rank %d %s while rank %d waited for it in %s%s",
                         g->pub.ranks[i], why, g->local->pub.world->rank,
                         tsri_call_text(call, text, sizeof text), behind);
    }
    return TSR_OK;
}

static tsr_status check_peers(tsri_local_group *g, tsri_wait_for which, uint64_t seq,
                              const tsri_call_entry *call)
{
    TSRI_TRY(tsri_local_check_abort(g->local));
    TSRI_TRY(tsri_call_check_fault(g, seq));
    if (g->local->host->poll)
        TSRI_TRY(g->local->host->poll(g->local->host->poll_arg));
    return check_gone(g, which, seq, call);
}

/* Where the core of the awaited rank is busy with something else, spinning keeps it from getting
 * this one. So after some spins in vain only every now and then a long one tries again. */
static bool spin(tsri_local_group *g, int index, tsri_wait_for which, uint64_t seq)
{
    const tsri_local *local = g->local;
    bool try_long = g->in_vain < MAX_IN_VAIN || ++g->short_spins % TRY_AGAIN == 0;
    int spins = try_long || local->spins < FEW_SPINS ? local->spins : FEW_SPINS;
    for (int i = 0; i < spins; i++) {
        relax();
        if (!tsri_local_reached(g, index, which, seq))
            continue;
        if (try_long)
            g->in_vain = 0;
        return true;
    }
    if (try_long)
        g->in_vain++;
    return false;
}

static tsr_status await_slowly(tsri_local_group *g, int index, tsri_wait_for which, uint64_t seq,
                               const tsri_call_entry *call)
{
    if (spin(g, index, which, seq))
        return TSR_OK;
    for (int i = 0; i < YIELDS; i++) {
        sched_yield();
        if (tsri_local_reached(g, index, which, seq))
            return TSR_OK;
    }
    double deadline = tsri_now_s() + g->local->pub.world->timeout_s;
    tsri_flight *flight = g->local->pub.world->flight;
    uint64_t number = g->flight[call->seq % TSRI_CALL_RING];
    int waiter;
    /* Whom it waits for stays on record where it comes to nothing. */
    tsri_flight_waits(flight, number, g->pub.ranks[index]);
    while (!tsri_local_reached(g, index, which, seq)) {
        TSRI_TRY(check_peers(g, which, seq, call));
        double left = deadline - tsri_now_s();
        if (left > 0) {
            sleep_on(g, index, which, seq, left < slice_s ? left : slice_s);
            tsri_flight_sleeps_on(flight, g->pub.ranks[index]);
            continue;
        }
        int rank = find_behind(g, index, which, seq, &waiter);
        TSRI_TRY(check_peers(g, which, seq, call)); /* others may have found out meanwhile */
        if (tsri_local_reached(g, index, which, seq))
            break;
        return waiter == g->local->pub.world->rank ? fail_timeout(g, index, which, call)
                                                   : fail_behind(g, index, rank, waiter, call);
    }
    tsri_flight_waited(flight, number);
    return TSR_OK;
}

tsr_status tsri_local_await(tsri_local_group *g, int index, tsri_wait_for which, uint64_t seq,
                            const tsri_call_entry *call)
{
    if (tsri_local_reached(g, index, which, seq))
        return TSR_OK;
    return await_slowly(g, index, which, seq, call);
}

bool tsri_local_comes_soon(tsri_local_group *g, int index, tsri_wait_for which, uint64_t seq)
{
    return tsri_local_reached(g, index, which, seq) || spin(g, index, which, seq);
}

/* A peer's counter is not looked at again for what it said before: its line stays with the peer. */
tsr_status tsri_local_await_all(tsri_local_group *g, tsri_wait_for which, uint64_t seq,
                                const tsri_call_entry *call)
{
    if (which == TSRI_WAIT_DONE && seq <= g->passed)
        return TSR_OK;
    for (int i = 0; i < g->pub.nranks; i++)
        if (i != g->pub.index)
            TSRI_TRY(tsri_local_await(g, i, which, seq, call));
    if (which == TSRI_WAIT_DONE)
        g->passed = seq;
    return TSR_OK;
}

static bool has_aborted(const tsri_local *local)
{
    const tsri_arena_head *head = tsri_arena_get_head(&local->arena);
    return atomic_load_explicit(&head->abort_state, memory_order_acquire) != 0;
}

void tsri_local_linger(tsri_local_group *g, tsri_wait_for which, uint64_t seq)
{
    double limit = 0;
    for (int i = 0; i < g->pub.nranks; i++) {
        while (i != g->pub.index && !tsri_local_reached(g, i, which, seq) &&
               !why_world_gone(g->local, g->pub.ranks[i])) {
            if (has_aborted(g->local)) {
                limit = limit > 0 ? limit : tsri_now_s() + g->local->pub.world->timeout_s;
                if (tsri_now_s() > limit)
                    return;
            }
            sleep_on(g, i, which, seq, slice_s);
        }
    }
}

void tsri_local_await_writers(tsri_local_group *g, uint64_t seq)
{
    double until = tsri_now_s() + g->local->pub.world->timeout_s;
    for (int i = 0; i < g->pub.nranks; i++) {
        _Atomic uint64_t *writing = &g->members[i].writing;
        while (i != g->pub.index && atomic_load(writing) >> TSRI_SEQ_BITS == seq >> TSRI_SEQ_BITS &&
               !why_world_gone(g->local, g->pub.ranks[i]) && tsri_now_s() < until)
            tsri_sleep_s(50e-6);
    }
}

tsr_status tsri_local_lost(tsri_group *pub, const tsri_ticket *ticket)
{
    tsri_local_group *g = pub->priv;
    uint64_t last = ticket->seq + tsri_local_records_of(ticket->coll) - 1;
    return check_gone(g, TSRI_WAIT_PUBLISHED, last, tsri_call_of(&g->members[pub->index], last));
}

tsr_status tsri_local_check_members(tsri_local_group *g)
{
    TSRI_TRY(tsri_local_check_abort(g->local));
    for (int i = 0; i < g->pub.nranks; i++) {
        const char *why = i == g->pub.index ? NULL : why_world_gone(g->local, g->pub.ranks[i]);
        if (why)
            return tsri_fail(TSR_ERR_DEAD, "rank %d %s while rank %d waited for its device",
                             g->pub.ranks[i], why, g->local->pub.world->rank);
    }
    return TSR_OK;
}
