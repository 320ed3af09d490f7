/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera launch`: runs a program as several ranks, on this machine or on several nodes, and sees
 * to it that they end together. */
#include "src/cli/launch/launch.h"
#include "src/cli/cli.h"
#include "src/comm/flight/flight.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 300, FILES_OF_SERVER = 65536 };

/* --- before the first attempt ----------------------------------------------------------------- */

/* A signal that is ignored when we start (nohup, a script's background job) stays so, for the ranks
 * too. */
static int open_signals(launch *l)
{
    static const int stopping[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t watched, blocked;
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    for (int i = 0; i < 3; i++) {
        struct sigaction now;
        if (sigaction(stopping[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&watched, stopping[i]);
    }
    /* An ignored SIGCHLD would reap the ranks behind our back. A reader of our output who is gone
     * is seen by the write. */
    signal(SIGCHLD, SIG_DFL);
    blocked = watched;
    sigaddset(&blocked, SIGPIPE);
    sigprocmask(SIG_BLOCK, &blocked, &l->old_mask);
    l->signal_fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    return l->signal_fd < 0 ? errno : 0;
}

/* Descriptors that are open now. */
static rlim_t count_files(rlim_t limit)
{
    enum { MOST = 65536 };
    rlim_t n = 0;
    for (int fd = 0; fd < MOST && (rlim_t)fd < limit; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Descriptors that the launcher keeps of a rank while that runs. */
static rlim_t files_of_rank(const launch_config *c, int r)
{
    rlim_t n = 1; /* by which it knows of the rank's end */
    for (int bit = LAUNCH_OUT; bit <= LAUNCH_ERR; bit++) {
        bool tee = c->tee[r] & bit, redirect = c->redirect[r] & bit;
        bool direct = bit == LAUNCH_OUT && c->shown[r] && !c->prefix;
        if (tee)
            n += 2;
        else if (!redirect && !direct)
            n++;
    }
    return n;
}

/* Takes as many descriptors as the ranks need. Returns false, and says so, if the limit allows
 * fewer. */
static bool want_files(launch *l)
{
    /* Signals, ends of ranks, two consoles, the guard's pipe, memory; six while a rank starts; and
     * threads, sockets and events of the line between nodes. */
    enum { OWN = 7, STARTING = 6, LINE = 16 };
    const launch_config *c = &l->config;
    getrlimit(RLIMIT_NOFILE, &l->old_files);
    rlim_t need = count_files(l->old_files.rlim_cur) + OWN + STARTING, most = l->old_files.rlim_max;
    for (int r = 0; r < c->nlocal; r++)
        need += files_of_rank(c, r);
    rlim_t wanted = need + 64;
    if (c->nnodes > 1) { /* of the store, which any of us may come to serve to all ranks */
        need += LINE;
        wanted = FILES_OF_SERVER;
    }
    if (need > most) {
        tsri_fshow(
            stderr,
            "tessera launch: %d rank%s need%s %llu open files, but the limit is %llu: raise it "
            "(ulimit -n), or start fewer ranks\n",
            c->nlocal, c->nlocal == 1 ? "" : "s", c->nlocal == 1 ? "s" : "",
            (unsigned long long)need, (unsigned long long)most);
        return false;
    }
    struct rlimit more = l->old_files;
    more.rlim_cur = wanted < most ? wanted : most;
    if (l->old_files.rlim_cur < wanted)
        setrlimit(RLIMIT_NOFILE, &more);
    return true;
}

void launch_make_run_id(char id[LAUNCH_RUN_ID_MAX + 1])
{
    unsigned char salt[3] = {0};
    struct tm tm;
    time_t now = time(NULL);
    gmtime_r(&now, &tm);
    if (getrandom(salt, sizeof salt, GRND_NONBLOCK) != (ssize_t)sizeof salt)
        memcpy(salt, &(pid_t){getpid()}, sizeof salt);
    size_t n = strftime(id, LAUNCH_RUN_ID_MAX, "%Y%m%d-%H%M%S", &tm);
    snprintf(id + n, LAUNCH_RUN_ID_MAX - n, "-%02x%02x%02x", salt[0], salt[1], salt[2]);
}

/* A number that nobody listens on. No port is opened: it is for programs that want one. */
static void choose_port(launch_config *c)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    int fd = c->port ? -1 : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (!bind(fd, (struct sockaddr *)&at, sizeof at) &&
        !getsockname(fd, (struct sockaddr *)&at, &size))
        c->port = ntohs(at.sin_port);
    close(fd);
}

static int open_launch(launch *l)
{
    int rc = 0, token = launch_take_token(&l->config);
    if (token != CLI_OK)
        return token;
    if (!want_files(l))
        return CLI_FAILED;
    l->ranks = calloc((size_t)l->config.nlocal, sizeof *l->ranks);
    if (!l->ranks || (rc = launch_console_open(l->console)) != 0 || (rc = open_signals(l)) != 0) {
        tsri_fshow(stderr, "tessera launch: %s\n", l->ranks ? strerror(rc) : "out of memory");
        return CLI_FAILED;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    launch_guard_open(l);
    launch_choose_cores(l);
    l->world = l->config.nlocal;
    if (l->config.nnodes > 1) {
        int code = launch_nodes_open(l);
        if (code == CLI_OK)
            launch_warn_of_no_token(l);
        return code;
    }
    if (!l->config.run_id[0])
        launch_make_run_id(l->config.run_id);
    choose_port(&l->config);
    return CLI_OK;
}

static void close_launch(launch *l)
{
    launch_nodes_close(l->nodes);
    launch_guard_close(l);
    if (l->signal_fd >= 0)
        close(l->signal_fd);
    launch_console_close(l->console);
    free(l->cores);
    free(l->ranks);
}

/* --- an attempt ------------------------------------------------------------------------------- */

/* The launcher itself can't go on. */
static void give_up(launch *l, int exit_code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void give_up(launch *l, int exit_code, const char *fmt, ...)
{
    launch_cause *c = calloc(1, sizeof *c);
    va_list ap;
    if (!c)
        return;
    *c = (launch_cause){.is_set = true, .is_final = true, .exit_code = exit_code, .rank = -1};
    va_start(ap, fmt);
    vsnprintf(c->text, sizeof c->text, fmt, ap);
    va_end(ap);
    if (l->nodes)
        launch_nodes_fail(l->nodes, c);
    else
        launch_console_print(&l->console[1], "tessera launch: %s\n", c->text);
    launch_stop(l, c, SIGKILL);
    free(c);
}

static void open_arena(launch *l)
{
    l->bytes_per_rank = 0;
    l->arena_fd = tsri_arena_create_fd(l->config.nlocal, &l->bytes_per_rank);
    if (l->arena_fd >= 0)
        return;
    const char *wanted = getenv("TESSERA_ARENA_BYTES");
    if (l->arena_fd == -EINVAL && wanted)
        give_up(l, CLI_FAILED, "TESSERA_ARENA_BYTES is '%s': expected bytes per rank", wanted);
    else
        give_up(l, CLI_FAILED,
                "can't make the shared memory of %d ranks x %zu bytes (%s): set "
                "TESSERA_ARENA_BYTES to fewer bytes per rank",
                l->config.nlocal, l->bytes_per_rank, strerror(-l->arena_fd));
}

static void start_all(launch *l)
{
    for (int r = 0; r < l->config.nlocal && !l->cause.is_set; r++) {
        const char *what;
        int rc = launch_start_rank(l, r, &what);
        if (l->ranks[r].pid) {
            l->running++;
            launch_watch_exit(l, r);
        }
        if (rc == 0)
            continue;
        if (what != l->config.argv[0]) {
            give_up(l, CLI_FAILED, "can't pass on the output of rank %d%s%s: %s", l->base + r,
                    *what ? " to " : "", what, strerror(rc));
            return;
        }
        bool missing = rc == ENOENT;
        give_up(l, missing ? CLI_NOT_FOUND : CLI_CANT_RUN, "can't run '%s': %s", what,
                missing && !strchr(what, '/') ? "there is no such program in PATH" : strerror(rc));
    }
}

static void say_lost_dump(void *arg, tsr_log_level level, const char *text)
{
    launch *l = arg;
    (void)level;
    launch_console_print(&l->console[1], "tessera launch: %s\n", text);
}

/* Writes what the ranks have left in the flight recorder, of those that could not write it
 * themselves: where they were told to. */
static void dump_flight(launch *l)
{
    const launch_config *c = &l->config;
    const char *dir = getenv("TESSERA_FLIGHT_DIR");
    char path[4096];
    if (!dir && c->log_dir) {
        snprintf(path, sizeof path, "%s/%s/attempt_%d", c->log_dir, c->run_id, l->attempt);
        dir = path;
    }
    tsri_flight_dump_rest(l->arena_fd, l->base, l->world, c->run_id, l->attempt, dir, say_lost_dump,
                          l);
}

/*
 * The ranks of this attempt have ended, because one has failed. Their arena is still there, with
 * what they have left in it: l->arena_fd, l->cause.rank. Says the last lines of the rank that
 * failed first, behind all that the others have said meanwhile.
 */
static void after_failure(launch *l)
{
    dump_flight(l);
    const char *lines = strchr(l->cause.text, '\n');
    if (lines && l->cause.rank >= 0)
        launch_console_print(&l->console[1], "tessera launch: the last lines of rank %d's %.*s\n",
                             l->cause.rank, (int)strlen(lines) - 2, lines + 1);
}

/* Output that was lost on its way is an error of the launcher, which the ranks know nothing of. */
static void tell_lost_output(launch *l)
{
    for (int r = 0; r < l->config.nlocal; r++)
        for (int i = 0; i < 2; i++) {
            const launch_stream *s = i ? &l->ranks[r].err : &l->ranks[r].out;
            if (!s->log_error)
                continue;
            l->loses_output = true;
            launch_console_print(&l->console[1], "tessera launch: %s: %s\n", s->path,
                                 strerror(s->log_error));
        }
    if (!l->console[0].error)
        return;
    l->loses_output = true;
    launch_console_print(&l->console[1], "tessera: stdout: %s\n", strerror(l->console[0].error));
    l->console[0].error = 0;
}

static void run_attempt(launch *l)
{
    l->cause = (launch_cause){.rank = -1};
    l->stopping = false;
    l->suspect.rank = LAUNCH_NOBODY;
    l->running = 0;
    for (int r = 0; r < l->config.nlocal; r++)
        l->ranks[r] = (launch_rank){.pidfd = -1,
                                    .out = {.from = -1, .log = -1, .tag = -1},
                                    .err = {.from = -1, .log = -1, .tag = -1}};
    l->exits = epoll_create1(EPOLL_CLOEXEC);
    if (l->nodes)
        launch_nodes_enter(l->nodes);
    open_arena(l);
    launch_guard_start(l); /* before there is a rank that could start something */
    start_all(l);
    launch_watch(l);
    launch_reap_all(l);
    if (l->cause.is_set)
        after_failure(l);
    tell_lost_output(l);
    launch_console_flush(&l->console[1], PATIENCE_MS);
    for (int r = 0; r < l->config.nlocal; r++) {
        launch_stream_free(&l->ranks[r].out);
        launch_stream_free(&l->ranks[r].err);
        if (l->ranks[r].pidfd >= 0)
            close(l->ranks[r].pidfd);
    }
    if (l->exits >= 0)
        close(l->exits);
    if (l->arena_fd >= 0)
        close(l->arena_fd);
}

/* Whether all start again; of several nodes, whether all of them can. */
static bool starts_again(launch *l)
{
    if (!l->cause.is_set || l->cause.is_final || l->attempt >= l->config.max_restarts)
        return false;
    /* The other nodes wait for our word, also if it is that we were told to stop. */
    if (l->nodes ? !launch_nodes_agree(l) : l->stopped_by != 0)
        return false;
    launch_console_print(&l->console[1], "tessera launch: starting all ranks again (%d of %d)\n",
                         l->attempt + 1, l->config.max_restarts);
    launch_console_flush(&l->console[1], PATIENCE_MS);
    return true;
}

int cli_launch(int argc, char **argv)
{
    static const launch nothing = {.signal_fd = -1, .exits = -1, .arena_fd = -1, .to_guard = -1};
    launch *l = malloc(sizeof *l);
    if (!l) {
        tsri_fshow(stderr, "tessera launch: out of memory\n");
        return CLI_FAILED;
    }
    *l = nothing;
    int code = launch_parse(argc, argv, &l->config);
    if (code < 0 && (code = open_launch(l)) == CLI_OK) {
        run_attempt(l);
        while (starts_again(l)) {
            l->attempt++;
            run_attempt(l);
        }
        code = l->cause.is_set ? l->cause.exit_code : l->loses_output ? CLI_FAILED : CLI_OK;
    }
    close_launch(l);
    free(l->config.module_argv);
    free(l);
    return code;
}
