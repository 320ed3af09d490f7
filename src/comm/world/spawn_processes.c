/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Process ranks of one program: forked, over an arena that the parent has mapped. A child runs its
 * rank on a fresh thread, as OpenMP's teams do not survive a fork, and says how it went through a
 * pipe that all share (a report is written whole). Only then it tells the other ranks, so the first
 * report is the cause of the others.
 */
#include "src/comm/flight/flight.h"
#include "src/comm/world/make.h"
#include "src/core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long the cause of a rank's TSR_ERR_REMOTE or TSR_ERR_DEAD has to show itself, and how long a
 * rank has between SIGTERM and SIGKILL. */
static const double cause_s = 1, term_s = 3;
static const char after[] = "after its function had returned";
/* Without pidfds (Linux before 5.3): between two looks at the children. */
enum { LOOK_MS = 20 };

typedef struct report {
    int32_t rank, status;
    char text[PIPE_BUF - 2 * sizeof(int32_t)];
} report;
_Static_assert(sizeof(report) <= PIPE_BUF, "a report is written whole");

typedef struct process {
    pid_t pid;                        /* 0: has ended */
    int pidfd;                        /* -1: none */
    bool has_reported, has_succeeded; /* its function has returned; TSR_OK */
} process;

typedef struct spawn {
    tsr_rank_fn *fn;
    void *arg;
    tsr_world_opts opts;
    tsri_arena arena;
    int to, from; /* the pipe */
    process *process;
    struct pollfd *polled; /* one more than processes */
    int running;
    /* The first rank that failed by itself; failing that, the first that failed. */
    tsr_status status;
    int rank;
    bool is_cause;
    char text[sizeof(report)];
    double term_at, kill_at; /* 0: not */
    /* The caller's. */
    sigset_t mask;
    struct sigaction on_child;
} spawn;

/* --- a child ---------------------------------------------------------------------------------- */

typedef struct child_rank {
    spawn *all;
    int rank;
    tsr_status status;
} child_rank;

static void send_report(const spawn *s, int rank, tsr_status status)
{
    report r = {.rank = rank, .status = (int32_t)status};
    ssize_t n;
    if (status != TSR_OK)
        snprintf(r.text, sizeof r.text, "%s", tsr_last_error());
    do
        n = write(s->to, &r, sizeof r);
    while (n < 0 && errno == EINTR);
}

static void *run_child(void *arg)
{
    child_rank *c = arg;
    spawn *s = c->all;
    tsr_world *world = NULL;
    tsri_error_clear();
    c->status =
        tsri_world_make(&s->opts, s->arena.nranks, c->rank, c->rank, s->arena, true, NULL, &world);
    if (c->status == TSR_OK)
        c->status = tsri_world_run(world, s->fn, s->arg);
    fflush(NULL);
    send_report(s, c->rank, c->status);
    if (c->status != TSR_OK && world)
        tsr_world_abort(world, tsr_last_error());
    tsr_world_destroy(world);
    return NULL;
}

/* Handlers are the parent's business; what it ignores stays ignored. */
static void reset_signals(const spawn *s)
{
    for (int sig = 1; sig < NSIG; sig++) {
        struct sigaction now;
        if (sigaction(sig, NULL, &now) == 0 &&
            ((now.sa_flags & SA_SIGINFO) ||
             (now.sa_handler != SIG_IGN && now.sa_handler != SIG_DFL)))
            signal(sig, SIG_DFL);
    }
    pthread_sigmask(SIG_SETMASK, &s->mask, NULL);
}

static _Noreturn void be_child(spawn *s, int rank, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it died before the line above */
        _exit(1);
    reset_signals(s);
    close(s->from);
    for (int i = 0; i < rank; i++)
        if (s->process[i].pidfd >= 0)
            close(s->process[i].pidfd);
    child_rank c = {.all = s, .rank = rank};
    pthread_t thread;
    int rc = pthread_create(&thread, NULL, run_child, &c);
    if (rc) {
        send_report(s, rank,
                    tsri_fail(TSR_ERR_NO_MEMORY, "can't start a thread: %s", strerror(rc)));
        tsri_arena_abort(&s->arena, rank, tsr_last_error());
        _exit(1);
    }
    pthread_join(thread, NULL);
    _exit(c.status != TSR_OK);
}

/* --- the parent: starting --------------------------------------------------------------------- */

static void note_failure(spawn *s, int rank, tsr_status status, bool is_cause, const char *text)
{
    if (s->status != TSR_OK && (s->is_cause || !is_cause))
        return;
    double now = tsri_now_s();
    s->status = status;
    s->rank = rank;
    s->is_cause = is_cause;
    snprintf(s->text, sizeof s->text, "%s", text);
    if (!s->kill_at)
        s->term_at = is_cause ? now : now + cause_s;
}

static void start_all(spawn *s)
{
    pid_t parent = getpid();
    for (int r = 0; r < s->arena.nranks; r++) {
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        pid_t pid = fork();
        int why = errno;
        if (pid == 0)
            be_child(s, r, parent);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (pid < 0) {
            char text[128];
            snprintf(text, sizeof text, "can't start a process: %s", strerror(why));
            note_failure(s, r, TSR_ERR_NO_MEMORY, true, text);
            tsri_arena_abort(&s->arena, r, text);
            return;
        }
        s->process[r].pid = pid;
        s->process[r].pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        s->running++;
    }
}

/* --- the parent: watching --------------------------------------------------------------------- */

static void read_reports(spawn *s)
{
    report r;
    for (;;) {
        ssize_t n = read(s->from, &r, sizeof r);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != (ssize_t)sizeof r || r.rank < 0 || r.rank >= s->arena.nranks)
            return;
        r.text[sizeof r.text - 1] = 0;
        s->process[r.rank].has_reported = true;
        s->process[r.rank].has_succeeded = r.status == TSR_OK;
        if (r.status != TSR_OK)
            note_failure(s, r.rank, (tsr_status)r.status,
                         r.status != TSR_ERR_REMOTE && r.status != TSR_ERR_DEAD, r.text);
    }
}

/* A rank has ended without a word, or otherwise than it had said. A process that we end ourselves
 * is nobody's failure. */
static void note_death(spawn *s, int rank, const siginfo_t *info, bool is_known)
{
    bool has_returned = s->process[rank].has_reported;
    char text[128];
    atomic_store(&tsri_arena_slot(&s->arena, rank)->holder, tsri_rank_holder(TSRI_RANK_EXITED, 0));
    if (!is_known)
        snprintf(text, sizeof text, "its process has ended");
    else if (info->si_code == CLD_EXITED)
        snprintf(text, sizeof text, "exited with code %d %s", info->si_status,
                 has_returned ? after : "before its function returned");
    else
        snprintf(text, sizeof text, "was killed by signal %d (SIG%s)%s%s", info->si_status,
                 sigabbrev_np(info->si_status) ? sigabbrev_np(info->si_status) : "?",
                 has_returned ? " " : "", has_returned ? after : "");
    if (!s->kill_at)
        note_failure(s, rank, TSR_ERR_DEAD, true, text);
}

/* For the rank's dump, as the launcher does it. */
static void note_exit(spawn *s, int rank, const siginfo_t *info)
{
    tsri_flight *f = tsri_arena_flight(&s->arena, rank);
    atomic_store(&f->exit_status, info->si_status);
    atomic_store(&f->exit, s->kill_at                    ? TSRI_FLIGHT_STOPPED
                           : info->si_code == CLD_EXITED ? TSRI_FLIGHT_EXITED
                                                         : TSRI_FLIGHT_KILLED);
}

static void look_at(spawn *s, int r)
{
    process *p = &s->process[r];
    siginfo_t info = {0};
    int rc = waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG);
    if ((rc == 0 && info.si_pid == 0) || (rc != 0 && errno != ECHILD))
        return;
    if (p->pidfd >= 0)
        close(p->pidfd);
    p->pid = 0;
    s->running--;
    if (rc == 0)
        note_exit(s, r, &info);
    read_reports(s); /* its own is there by now */
    bool is_clean = info.si_code == CLD_EXITED && info.si_status == 0;
    if (!p->has_reported || (p->has_succeeded && rc == 0 && !is_clean))
        note_death(s, r, &info, rc == 0);
}

/* A rank that has reported is on its way out, and may be telling the others why: SIGTERM is not for
 * it, or they would see it dead. */
static void signal_all(const spawn *s, int sig)
{
    for (int r = 0; r < s->arena.nranks; r++)
        if (s->process[r].pid && !(sig == SIGTERM && s->process[r].has_reported))
            kill(s->process[r].pid, sig);
}

/* Ends what is due by now; returns for how long nothing is, in ms, or -1. */
static int end_others(spawn *s)
{
    double now = tsri_now_s();
    if (s->term_at && now >= s->term_at) {
        signal_all(s, SIGTERM);
        s->term_at = 0;
        s->kill_at = now + term_s;
    }
    if (s->kill_at && now >= s->kill_at) {
        signal_all(s, SIGKILL);
        s->kill_at = now + term_s;
    }
    double at = s->term_at ? s->term_at : s->kill_at;
    return at ? (int)((at - now) * 1e3) + 1 : -1;
}

static void watch(spawn *s)
{
    while (s->running > 0) {
        int n = 0, ms = end_others(s);
        s->polled[n++] = (struct pollfd){.fd = s->from, .events = POLLIN};
        for (int r = 0; r < s->arena.nranks; r++) {
            if (!s->process[r].pid)
                continue;
            if (s->process[r].pidfd >= 0)
                s->polled[n++] = (struct pollfd){.fd = s->process[r].pidfd, .events = POLLIN};
            else if (ms < 0 || ms > LOOK_MS)
                ms = LOOK_MS;
        }
        if (poll(s->polled, (nfds_t)n, ms) < 0 && errno != EINTR)
            usleep(
                1000); /* no room in the kernel, or a limit that was lowered: all are looked at */
        /* Deaths first: the reports of who waited for the dead come with them. */
        for (int r = 0; r < s->arena.nranks; r++)
            if (s->process[r].pid)
                look_at(s, r);
        read_reports(s);
    }
    read_reports(s);
}

/* --- the call --------------------------------------------------------------------------------- */

static tsr_status open_pipe(spawn *s)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC))
        return tsri_fail(TSR_ERR_IO, "can't make a pipe: %s", strerror(errno));
    s->from = fds[0];
    s->to = fds[1];
    (void)fcntl(s->from, F_SETFL, O_NONBLOCK);
    return TSR_OK;
}

static void run_all(spawn *s)
{
    /* Its handler, or that it is ignored, would take the children's ends from us. */
    const struct sigaction plain = {.sa_handler = SIG_DFL};
    sigaction(SIGCHLD, &plain, &s->on_child);
    pthread_sigmask(SIG_SETMASK, NULL, &s->mask);
    fflush(NULL); /* or each child would write it again */
    start_all(s);
    close(s->to);
    watch(s);
    close(s->from);
    sigaction(SIGCHLD, &s->on_child, NULL);
}

/* Writes dumps of ranks that were killed, or hung until they were. */
static void dump_rest(const spawn *s)
{
    for (int r = 0; r < s->arena.nranks && s->status != TSR_OK; r++)
        (void)tsri_flight_dump_ended(tsri_arena_flight(&s->arena, r),
                                     &(tsri_flight_about){.rank = r,
                                                          .nranks = s->arena.nranks,
                                                          .log = s->opts.log,
                                                          .log_arg = s->opts.log_arg},
                                     getenv("TESSERA_FLIGHT_DIR"));
}

tsr_status tsr_spawn_processes_with(int nranks, tsr_rank_fn *fn, void *arg,
                                    const tsr_world_opts *opts)
{
    if (nranks < 1 || nranks > TSRI_ARENA_MAX_RANKS)
        return tsri_fail(TSR_ERR_INVALID, "tsr_spawn_processes of %d ranks: expected 1 to %d",
                         nranks, TSRI_ARENA_MAX_RANKS);
    if (!fn)
        return tsri_fail(TSR_ERR_INVALID, "tsr_spawn_processes without a function");
    spawn s = {.fn = fn, .arg = arg};
    TSRI_TRY(tsri_world_opts_resolve(opts, nranks, &s.opts));
    TSRI_TRY(tsri_arena_make(nranks, s.opts.arena_bytes, &s.arena));
    size_t n = (size_t)nranks;
    tsr_status status = TSR_ERR_NO_MEMORY;
    s.process = tsri_mem_alloc(NULL, n * sizeof *s.process);
    s.polled = tsri_mem_alloc(NULL, (n + 1) * sizeof *s.polled);
    if (s.process && s.polled)
        status = open_pipe(&s);
    if (status == TSR_OK) {
        run_all(&s);
        dump_rest(&s);
        status = s.status;
        if (status == TSR_ERR_DEAD && s.is_cause)
            tsri_fail(status, "rank %d %s", s.rank, s.text);
        else if (status != TSR_OK)
            tsri_fail(status, "rank %d: %s", s.rank, s.text);
    }
    tsri_mem_free(s.process);
    tsri_mem_free(s.polled);
    tsri_arena_unmap(&s.arena);
    return status;
}

tsr_status tsr_spawn_processes(int nranks, tsr_rank_fn *fn, void *arg)
{
    return tsr_spawn_processes_with(nranks, fn, arg, NULL);
}
