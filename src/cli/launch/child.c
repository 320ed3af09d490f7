/* SPDX-License-Identifier: Apache-2.0 */
/* Starting one rank: its descriptors, files and process group. */
#include "src/cli/launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

/* State that the child's side of the fork needs; nothing there may allocate. */
typedef struct start {
    const launch *l;
    int local;
    pid_t launcher;
    char **argv, **env;
    int out, err; /* -1: ours */
    int failed;   /* tells an errno if the program can't be run */
} start;

/* Rank 0 of the world reads what the launcher is fed, but not a terminal: a process group in the
 * background would be stopped for that. */
static void set_stdin(int rank)
{
    if (rank == 0 && !isatty(STDIN_FILENO))
        return;
    int null = open("/dev/null", O_RDONLY);
    if (null > 0) {
        dup2(null, STDIN_FILENO);
        close(null);
    }
}

static void become_rank(const start *s)
{
    const launch *l = s->l;
    setpgid(0, 0);
    launch_guard_tell(l, getpid());
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* The launcher may have died before the line above. */
    if (getppid() != s->launcher)
        _exit(1);
    sigprocmask(SIG_SETMASK, &l->old_mask, NULL);
    /* Not in the terminal's foreground, it would be stopped for writing there under `stty tostop`,
     * or for setting its modes, and nobody would see that. */
    signal(SIGTTOU, SIG_IGN);
    setrlimit(RLIMIT_NOFILE, &l->old_files);
    set_stdin(l->base + s->local);
    if (s->out >= 0)
        dup2(s->out, STDOUT_FILENO);
    if (s->err >= 0)
        dup2(s->err, STDERR_FILENO);
    if (l->cores)
        sched_setaffinity(0, sizeof l->cores[s->local], &l->cores[s->local]);
    fcntl(l->arena_fd, F_SETFD, 0);
    execvpe(s->argv[0], s->argv, s->env);
    int why = errno;
    if (write(s->failed, &why, sizeof why) != (ssize_t)sizeof why)
        _exit(126);
    _exit(127);
}

/* --- where its output goes -------------------------------------------------------------------- */

/* A terminal of its own for the rank's stderr, where ours is one: programs colour by that. Raw, so
 * bytes pass unchanged. -1 if there are none to be had. */
static int open_terminal(int *child)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    char name[128];
    struct termios t;
    struct winsize size;
    *child = -1;
    if (master >= 0 && !grantpt(master) && !unlockpt(master) &&
        !ptsname_r(master, name, sizeof name))
        *child = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*child < 0 || tcgetattr(*child, &t)) {
        if (*child >= 0)
            close(*child);
        if (master >= 0)
            close(master);
        *child = -1;
        return -1;
    }
    cfmakeraw(&t);
    tcsetattr(*child, TCSANOW, &t);
    if (!ioctl(STDERR_FILENO, TIOCGWINSZ, &size))
        ioctl(*child, TIOCSWINSZ, &size);
    return master;
}

/* 0 or an errno. */
static int open_pipe(launch_stream *s, bool terminal, int *child)
{
    int fds[2];
    s->from = terminal ? open_terminal(child) : -1;
    if (s->from < 0) {
        if (pipe2(fds, O_CLOEXEC))
            return errno;
        s->from = fds[0];
        *child = fds[1];
    }
    fcntl(s->from, F_SETFL, O_NONBLOCK);
    return 0;
}

/* DIR/run/attempt_n/local_rank, and all folders before it; of several nodes, which may share DIR,
 * DIR/run/attempt_n/node_r/local_rank. 0 or an errno. */
static int make_folder(const launch *l, int local, char *path, size_t size)
{
    char node[32] = "";
    if (l->config.nnodes > 1)
        snprintf(node, sizeof node, "node_%d/", l->node_rank);
    int n = snprintf(path, size, "%s/%s/attempt_%d/%s%d/", l->config.log_dir, l->config.run_id,
                     l->attempt, node, local);
    if (n < 0 || (size_t)n + sizeof "stdout.log" > size)
        return ENAMETOOLONG;
    for (char *p = path + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = 0;
        if (mkdir(path, 0777) && errno != EEXIST)
            return errno;
    }
    return 0;
}

/* -1 with errno. path: that of the folder, becomes the file's. */
static int open_log(const char *name, char *path)
{
    strcat(path, name);
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

/* Decides where one of the two streams goes. *child: the rank's end; -1: our own stream. */
static int open_stream(launch *l, int local, int bit, launch_stream *s, int *child)
{
    const launch_config *c = &l->config;
    bool redirect = c->redirect[local] & bit, tee = c->tee[local] & bit, shown = c->shown[local];
    bool plain = !c->prefix && shown && !tee;
    int console = bit == LAUNCH_OUT ? 0 : 1, fd = -1;
    if (redirect || tee) {
        int rc = make_folder(l, local, s->path, sizeof s->path);
        if (rc)
            return rc;
        fd = open_log(bit == LAUNCH_OUT ? "stdout.log" : "stderr.log", s->path);
        if (fd < 0)
            return errno;
    }
    if (redirect && !tee) {
        *child = fd;
        return 0;
    }
    s->log = fd;
    s->console = shown ? &l->console[console] : NULL;
    s->tag = c->prefix ? l->base + local : -1;
    if (plain && bit == LAUNCH_OUT)
        return 0;
    return open_pipe(s, plain && isatty(STDERR_FILENO), child);
}

/* --- the parent's side ------------------------------------------------------------------------ */

/* Waits until the child runs its program, or can't. */
static int read_failure(int fd)
{
    int why = 0;
    ssize_t n;
    do
        n = read(fd, &why, sizeof why);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof why ? why : 0;
}

static int fork_rank(launch_rank *r, start *s)
{
    int failed[2];
    if (pipe2(failed, O_CLOEXEC))
        return errno;
    s->failed = failed[1];
    s->launcher = getpid();
    pid_t pid = fork();
    if (pid == 0)
        become_rank(s);
    int rc = pid < 0 ? errno : 0;
    close(failed[1]);
    if (!rc) {
        setpgid(pid, pid); /* whoever of the two is first */
        r->pid = pid;
        rc = read_failure(failed[0]);
    }
    close(failed[0]);
    return rc;
}

int launch_start_rank(launch *l, int local, const char **what)
{
    launch_rank *r = &l->ranks[local];
    start s = {.l = l, .local = local, .out = -1, .err = -1};
    int rc = open_stream(l, local, LAUNCH_OUT, &r->out, &s.out);
    *what = r->out.path;
    if (!rc) {
        rc = open_stream(l, local, LAUNCH_ERR, &r->err, &s.err);
        *what = r->err.path;
    }
    if (!rc) {
        *what = l->config.argv[0];
        s.argv = launch_arguments(l, local);
        s.env = launch_environment(l, local);
        rc = s.argv && s.env ? fork_rank(r, &s) : ENOMEM;
    }
    launch_words_free(s.argv);
    launch_words_free(s.env);
    if (s.out >= 0)
        close(s.out);
    if (s.err >= 0)
        close(s.err);
    return rc;
}
