/* SPDX-License-Identifier: Apache-2.0 */
/* The watch: who has ended, whose failure came first, and stopping the others. */
#include "src/cli/launch/launch.h"
#include "src/comm/flight/flight.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    TELL_MS = 250, /* for the other ranks to say what they are told of a failure, and to end */
    GRACE_MS = 5000,
    GRACE_AFTER_KILL_MS = 1000, /* a run whose rank was killed has ended within two seconds */
    SUSPECT_MS = 500,           /* for a rank that gave up to end */
    VERDICT_MS = 1500,          /* for the other launchers, once our ranks are gone */
    REAP_MS = 1000,             /* for what SIGKILL has been sent to */
    PATIENCE_MS = 300,          /* after a failure, for a console that takes nothing */
};

int64_t launch_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* --- stopping --------------------------------------------------------------------------------- */

/* To whole process groups, so that what a rank has started goes with it; also where the rank itself
 * has ended. */
static void signal_all(const launch *l, int sig)
{
    for (int r = 0; r < l->config.nlocal; r++)
        if (l->ranks[r].pid > 0)
            kill(-l->ranks[r].pid, sig);
}

int launch_grace_ms(const launch_config *c, bool is_kill)
{
    if (c->grace_s > 0)
        return (int)(1000 * (c->grace_s < 1e6 ? c->grace_s : 1e6));
    return is_kill ? GRACE_AFTER_KILL_MS : GRACE_MS;
}

/* Behind what the ranks have said. */
static void say(launch *l, const char *more)
{
    int length = (int)strcspn(l->cause.text, "\n");
    launch_console_print(&l->console[1], "tessera launch: %.*s%s\n", length, l->cause.text, more);
    launch_console_flush(&l->console[1], PATIENCE_MS);
}

/* Nothing more can be done than this. */
static void kill_all(launch *l)
{
    signal_all(l, SIGKILL);
    l->stop_at_ms = l->kill_at_ms = -1;
    l->stuck_at_ms = launch_now_ms() + REAP_MS;
}

/* A process that waits in the system for a device or a file server is not ended by SIGKILL before
 * that answers. */
static void say_who_is_stuck(launch *l)
{
    if (!l->stopping || l->stuck_at_ms < 0 || launch_now_ms() < l->stuck_at_ms)
        return;
    l->stuck_at_ms = -1;
    for (int r = 0; r < l->config.nlocal; r++)
        if (l->ranks[r].pid > 0 && !l->ranks[r].ended)
            launch_console_print(&l->console[1],
                                 "tessera launch: rank %d (pid %d) does not end: it was sent "
                                 "SIGKILL %d s ago; waiting for it\n",
                                 l->base + r, (int)l->ranks[r].pid, REAP_MS / 1000);
}

static void stop_when_due(launch *l)
{
    if (l->stopping && l->stop_at_ms >= 0 && launch_now_ms() >= l->stop_at_ms) {
        signal_all(l, l->stop_signal);
        l->stop_at_ms = -1;
    }
}

void launch_stop(launch *l, const launch_cause *cause, int sig)
{
    if (!l->cause.is_set)
        l->cause = *cause;
    if (l->stopping)
        return;
    l->stopping = true;
    l->stop_signal = sig;
    l->stuck_at_ms = -1;
    l->stop_at_ms = launch_now_ms() + (cause->rank >= 0 ? TELL_MS : 0);
    l->kill_at_ms = l->stop_at_ms + launch_grace_ms(&l->config, l->cause.is_kill);
    stop_when_due(l);
}

/* --- failures --------------------------------------------------------------------------------- */

static void name_rank(const launch *l, int local, char *buf, size_t size)
{
    char host[128] = "";
    if (l->config.nnodes == 1) {
        snprintf(buf, size, "rank %d", l->base + local);
        return;
    }
    gethostname(host, sizeof host - 1);
    snprintf(buf, size, "rank %d (local rank %d of node %d, %s)", l->base + local, local,
             l->node_rank, host);
}

/* The last lines of stderr; of stdout if there are none. A single rank has just said them. */
static void add_last_lines(const launch *l, int local, launch_cause *c)
{
    const launch_rank *r = &l->ranks[local];
    const launch_stream *streams[] = {&r->err, &r->out};
    if (l->world == 1 && l->config.shown[local] && !r->err.path[0])
        return;
    for (int i = 0; i < 2; i++) {
        char lines[LAUNCH_TEXT_MAX / 2];
        launch_stream_last_lines(streams[i], lines, sizeof lines);
        if (!lines[0])
            continue;
        size_t used = strlen(c->text);
        snprintf(c->text + used, sizeof c->text - used, "\n%s%s%s:\n%s", i ? "stdout" : "stderr",
                 streams[i]->path[0] ? ", all of it in " : "", streams[i]->path, lines);
        return;
    }
}

static void describe(const launch *l, int local, const siginfo_t *info, launch_cause *c)
{
    char who[256];
    name_rank(l, local, who, sizeof who);
    *c = (launch_cause){.is_set = true, .rank = l->base + local};
    if (info->si_code == CLD_EXITED) {
        c->exit_code = info->si_status;
        snprintf(c->text, sizeof c->text, "%s exited with code %d", who, info->si_status);
    } else {
        const char *name = sigabbrev_np(info->si_status);
        c->is_kill = true;
        c->exit_code = 128 + info->si_status;
        snprintf(c->text, sizeof c->text, "%s was killed by signal %d (SIG%s)", who,
                 info->si_status, name ? name : "?");
    }
    add_last_lines(l, local, c);
}

/* This rank's failure is the first that we know of. */
static void fail(launch *l, int local, const siginfo_t *info)
{
    static const launch_cause untold = {
        .is_set = true, .exit_code = 1, .rank = -1, .text = "a rank has failed; out of memory"};
    launch_cause *cause = malloc(sizeof *cause);
    const launch_cause *told = cause ? cause : &untold;
    launch_stream_drain(&l->ranks[local].err);
    launch_stream_drain(&l->ranks[local].out);
    l->suspect.rank = LAUNCH_NOBODY;
    if (cause)
        describe(l, local, info, cause);
    launch_stop(l, told, SIGTERM);
    if (l->nodes)
        launch_nodes_fail(l->nodes, told); /* whose failure was the first of all will be told */
    else
        say(l, l->running > 0 ? "; stopping the others" : "");
    free(cause);
}

/* The rank of this node that has made its failure everybody's (tsr_world_abort) and has not ended
 * yet; or LAUNCH_SOMEBODY on another node, of whose failure ours have been told; or LAUNCH_NOBODY,
 * also where the failure is that the rank `local` is gone. */
static int who_gave_up(const launch *l, int local)
{
    tsri_arena_head head;
    char died[32];
    if (pread(l->arena_fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        atomic_load(&head.abort_state) != 2)
        return LAUNCH_NOBODY;
    snprintf(died, sizeof died, "rank %d died", l->base + local);
    if (strstr(head.abort_text, died))
        return LAUNCH_NOBODY;
    int r = head.abort_rank - l->base;
    if (r < 0 || r >= l->config.nlocal)
        return l->nodes ? LAUNCH_SOMEBODY : LAUNCH_NOBODY;
    return r != local && !l->ranks[r].ended ? r : LAUNCH_NOBODY;
}

static void rank_ended(launch *l, int local, const siginfo_t *info)
{
    launch_rank *r = &l->ranks[local];
    tsri_arena_mark_exited(l->arena_fd, local);
    tsri_flight_note_exit(l->arena_fd, local, info->si_code, info->si_status, l->stopping);
    r->ended = true;
    r->failed = info->si_code != CLD_EXITED || info->si_status != 0;
    l->running--;
    if (r->failed || l->stopping)
        kill(-r->pid, SIGKILL);
    if (!r->failed || l->stopping)
        return;
    if (l->suspect.rank == local) {
        fail(l, local, info);
    } else if (l->suspect.rank == LAUNCH_NOBODY) {
        l->suspect.rank = who_gave_up(l, local);
        l->suspect.failed = local;
        l->suspect.info = *info;
        l->suspect.until_ms = launch_now_ms() + SUSPECT_MS;
        if (l->suspect.rank == LAUNCH_NOBODY)
            fail(l, local, info);
    }
}

/* A rank that gave up and then ended well, or not at all, or one of another node whose launcher
 * says nothing: the one that failed is the cause. */
static void settle_suspect(launch *l)
{
    if (l->suspect.rank != LAUNCH_NOBODY && !l->stopping &&
        ((l->suspect.rank >= 0 && l->ranks[l->suspect.rank].ended) ||
         launch_now_ms() >= l->suspect.until_ms))
        fail(l, l->suspect.failed, &l->suspect.info);
}

/* Whether the rank has ended; if so, sees to it. It is not reaped before all are: until then its
 * number stands for its group and for nothing else. */
static void look_at(launch *l, int r)
{
    siginfo_t info = {0};
    if (l->ranks[r].pid == 0 || l->ranks[r].ended ||
        waitid(P_PID, (id_t)l->ranks[r].pid, &info, WEXITED | WNOHANG | WNOWAIT) ||
        info.si_pid == 0)
        return;
    rank_ended(l, r, &info);
}

/* In the order in which ranks ended: several may have, the later ones because of the first. epoll
 * lists what became ready first in, first out. */
static void look_at_all(launch *l)
{
    struct epoll_event e;
    while (l->exits >= 0 && epoll_wait(l->exits, &e, 1, 0) == 1) {
        epoll_ctl(l->exits, EPOLL_CTL_DEL, l->ranks[e.data.u32].pidfd, NULL);
        close(l->ranks[e.data.u32].pidfd);
        l->ranks[e.data.u32].pidfd = -1;
        look_at(l, (int)e.data.u32);
    }
    for (int r = 0; r < l->config.nlocal; r++)
        if (l->ranks[r].pidfd < 0)
            look_at(l, r);
    settle_suspect(l);
}

static bool is_rank(const launch *l, pid_t pid)
{
    for (int r = 0; r < l->config.nlocal; r++)
        if (l->ranks[r].pid == pid)
            return true;
    return false;
}

/* Processes that the ranks have started and left come to us (PR_SET_CHILD_SUBREAPER). */
static void reap_orphans(const launch *l)
{
    siginfo_t info = {0};
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid > 0 &&
           !is_rank(l, info.si_pid)) {
        waitpid(info.si_pid, NULL, 0);
        info.si_pid = 0;
    }
}

/* Has the end of a rank told in its turn; without pidfds (Linux before 5.3) the lower rank is
 * taken for the first. */
void launch_watch_exit(launch *l, int local)
{
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)local};
    int fd = l->exits < 0 ? -1 : (int)syscall(SYS_pidfd_open, l->ranks[local].pid, 0);
    if (fd >= 0 && epoll_ctl(l->exits, EPOLL_CTL_ADD, fd, &e)) {
        close(fd);
        fd = -1;
    }
    l->ranks[local].pidfd = fd;
}

/* --- the watch -------------------------------------------------------------------------------- */

static void take_stop(launch *l, int sig)
{
    l->stopped_by = sig;
    if (l->stopping) {
        /* Asked twice: no more patience. */
        kill_all(l);
        return;
    }
    const char *name = sigabbrev_np(sig);
    launch_cause *c = calloc(1, sizeof *c);
    if (c) {
        *c = (launch_cause){.is_set = true, .is_final = true, .exit_code = 128 + sig, .rank = -1};
        snprintf(c->text, sizeof c->text, "the launcher of node %d was stopped by SIG%s",
                 l->node_rank, name ? name : "?");
        if (l->nodes)
            launch_nodes_fail(l->nodes, c);
        launch_stop(l, c, sig);
    }
    free(c);
}

static void take_signals(launch *l)
{
    struct signalfd_siginfo s;
    while (read(l->signal_fd, &s, sizeof s) == (ssize_t)sizeof s) {
        if (s.ssi_signo != SIGCHLD) {
            take_stop(l, (int)s.ssi_signo);
            continue;
        }
        look_at_all(l);
        reap_orphans(l);
    }
}

/* The verdict of all nodes replaces what we thought was the cause. */
static void take_verdict(launch *l, bool *over)
{
    launch_cause *c = malloc(sizeof *c);
    if (c && launch_nodes_verdict(l->nodes, c)) {
        *over = true;
        if (c->is_set) {
            l->cause = *c;
            launch_stop(l, c, SIGTERM);
            say(l, "; stopping the others");
        }
    }
    free(c);
}

static int wait_ms(const launch *l, int64_t verdict_until)
{
    int64_t now = launch_now_ms(), until = INT64_MAX;
    if (l->stopping && l->kill_at_ms >= 0)
        until = l->kill_at_ms;
    if (l->stopping && l->stop_at_ms >= 0)
        until = l->stop_at_ms;
    if (l->stopping && l->stuck_at_ms >= 0 && l->stuck_at_ms < until)
        until = l->stuck_at_ms;
    if (l->suspect.rank != LAUNCH_NOBODY && !l->stopping && l->suspect.until_ms < until)
        until = l->suspect.until_ms;
    if (verdict_until >= 0 && verdict_until < until)
        until = verdict_until;
    if (until == INT64_MAX)
        return -1;
    return until > now ? (int)(until - now) : 0;
}

/* Descriptors that are open, each with the stream that it is of, or NULL. */
typedef struct open_fds {
    struct pollfd *fd;
    launch_stream **stream;
    int n;
} open_fds;

static void add_fd(open_fds *o, int fd, short events, launch_stream *stream)
{
    if (fd < 0)
        return;
    o->fd[o->n] = (struct pollfd){.fd = fd, .events = events};
    o->stream[o->n++] = stream;
}

static bool can_read(const launch_stream *s)
{
    return s->from >= 0 && (!s->console || launch_console_has_room(s->console));
}

/* Waits until something can be read or written. Where poll fails, as it does for more descriptors
 * than a limit that somebody has lowered meanwhile, all are looked at, none of which waits. */
static void wait_for_any(open_fds *o, int timeout)
{
    enum { LOOK_US = 10000 };
    if (poll(o->fd, (nfds_t)o->n, timeout) >= 0 || errno == EINTR)
        return;
    usleep(LOOK_US);
    for (int i = 0; i < o->n; i++)
        o->fd[i].revents = o->fd[i].events;
}

/* One turn: waits for something to happen, and deals with all but verdicts. */
static void turn(launch *l, open_fds *o, int timeout)
{
    o->n = 0;
    add_fd(o, l->signal_fd, POLLIN, NULL);
    if (l->nodes)
        add_fd(o, launch_nodes_fd(l->nodes), POLLIN, NULL);
    for (int i = 0; i < 2; i++)
        add_fd(o, l->console[i].used > 0 ? l->console[i].fd : -1, POLLOUT, NULL);
    for (int i = 0; i < 2 * l->config.nlocal; i++) {
        launch_stream *s = i & 1 ? &l->ranks[i / 2].err : &l->ranks[i / 2].out;
        add_fd(o, can_read(s) ? s->from : -1, POLLIN, s);
    }
    wait_for_any(o, timeout);
    for (int i = 0; i < o->n; i++)
        if (o->stream[i] && o->fd[i].revents && can_read(o->stream[i]))
            launch_stream_pump(o->stream[i]);
    for (int i = 0; i < 2; i++)
        if (l->console[i].used > 0)
            launch_console_flush(&l->console[i], 0);
    if (o->fd[0].revents)
        take_signals(l);
    settle_suspect(l);
    stop_when_due(l);
    if (l->stopping && l->kill_at_ms >= 0 && launch_now_ms() >= l->kill_at_ms)
        kill_all(l);
    say_who_is_stuck(l);
}

static void finish_streams(launch *l)
{
    int patience = l->cause.is_set ? PATIENCE_MS : -1;
    for (int r = 0; r < l->config.nlocal; r++) {
        launch_stream_finish(&l->ranks[r].out, patience);
        launch_stream_finish(&l->ranks[r].err, patience);
    }
    for (int i = 0; i < 2; i++)
        launch_console_flush(&l->console[i], patience);
}

/* Until all ranks have ended, of all nodes. */
static void watch_ranks(launch *l, open_fds *o)
{
    bool over = !l->nodes, told = false;
    int64_t verdict_until = -1;
    look_at_all(l); /* what ended while the others were started */
    while (l->running > 0 || !over) {
        if (l->running == 0 && !told && !l->cause.is_set && l->suspect.rank == LAUNCH_NOBODY) {
            launch_nodes_done(l->nodes);
            told = true;
        }
        if (l->running == 0 && l->cause.is_set && verdict_until < 0)
            verdict_until = launch_now_ms() + VERDICT_MS;
        turn(l, o, wait_ms(l, verdict_until));
        if (l->nodes && !over)
            take_verdict(l, &over);
        if (!over && verdict_until >= 0 && launch_now_ms() >= verdict_until) {
            say(l, ""); /* the other launchers may not know it */
            l->cause.is_final = true;
            over = true;
        }
    }
}

/* --- the end ---------------------------------------------------------------------------------- */

static bool group_is_gone(pid_t pgid)
{
    return kill(-pgid, 0) != 0 && errno == ESRCH;
}

/* Whether a rank that has been reaped has left processes in its group. Their parents are gone or of
 * the group too, so the last of them is our child (PR_SET_CHILD_SUBREAPER), and the group's number
 * is nobody else's before it is reaped here; then the rank has no number any more. */
static bool has_left_processes(launch_rank *r)
{
    if (r->pid <= 0)
        return false;
    while (waitpid(-r->pid, NULL, WNOHANG) > 0)
        ;
    if (group_is_gone(r->pid))
        r->pid = 0;
    return r->pid > 0;
}

/* Names the lowest rank that has left processes running; -1: none has. */
static int find_left(const launch *l)
{
    int first = -1;
    for (int r = l->config.nlocal - 1; r >= 0; r--)
        if (has_left_processes(&l->ranks[r]))
            first = l->base + r;
    return first;
}

/* All ranks have ended well. Processes that they have started and left have a quarter of a second
 * to end too, as a `tee` does that reads the rank's output; then they are stopped as ranks are. */
static void stop_what_is_left(launch *l, open_fds *o)
{
    bool told = false;
    for (int r = 0; r < l->config.nlocal; r++)
        if (l->ranks[r].pid > 0)
            waitpid(l->ranks[r].pid, NULL, 0);
    int rank = find_left(l);
    if (rank < 0)
        return;
    launch_guard_forget(l);
    for (int r = 0; r < l->config.nlocal; r++)
        if (l->ranks[r].pid > 0)
            launch_guard_tell(l, l->ranks[r].pid);
    l->stopping = true;
    l->stop_signal = SIGTERM;
    l->stuck_at_ms = -1;
    l->stop_at_ms = launch_now_ms() + TELL_MS;
    l->kill_at_ms = l->stop_at_ms + launch_grace_ms(&l->config, false);
    while ((rank = find_left(l)) >= 0 && (l->kill_at_ms >= 0 || l->stuck_at_ms >= 0)) {
        turn(l, o, wait_ms(l, -1));
        if (!told &&
            l->stop_at_ms < 0) { /* it has sent the signal: the rank may have ended by now */
            told = true;
            launch_console_print(&l->console[1],
                                 "tessera launch: stopping what rank %d has left running\n", rank);
        }
    }
    if (rank >= 0)
        launch_console_print(&l->console[1],
                             "tessera launch: what rank %d has left running does not end\n", rank);
}

void launch_watch(launch *l)
{
    size_t most = 4 + 2 * (size_t)l->config.nlocal;
    open_fds o = {.fd = calloc(most, sizeof *o.fd), .stream = calloc(most, sizeof *o.stream)};
    if (o.fd && o.stream) {
        watch_ranks(l, &o);
        if (!l->cause.is_set && !l->stopping)
            stop_what_is_left(l, &o);
        finish_streams(l);
    } else {
        static const launch_cause none = {
            .is_set = true, .is_final = true, .exit_code = 1, .rank = -1, .text = "out of memory"};
        launch_stop(l, &none, SIGKILL);
        say(l, "");
    }
    free(o.fd);
    free(o.stream);
}

/* Orphans of the ranks are our children (PR_SET_CHILD_SUBREAPER): reaping them tells when a group
 * is empty. After a failure nothing of a group may be left. */
void launch_reap_all(launch *l)
{
    int64_t until = launch_now_ms() + REAP_MS;
    bool kill_groups = l->cause.is_set;
    if (kill_groups)
        signal_all(l, SIGKILL);
    launch_guard_forget(l); /* once reaped, their numbers may be others' */
    for (int r = 0; r < l->config.nlocal; r++)
        if (l->ranks[r].pid > 0)
            waitpid(l->ranks[r].pid, NULL, 0);
    for (int r = 0; kill_groups && r < l->config.nlocal; r++)
        while (l->ranks[r].pid > 0 && !group_is_gone(l->ranks[r].pid) && launch_now_ms() < until) {
            while (waitpid(-l->ranks[r].pid, NULL, WNOHANG) > 0)
                ;
            usleep(500);
        }
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}
