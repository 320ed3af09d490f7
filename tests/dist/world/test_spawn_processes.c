/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are processes of one program. What they find out comes back in shared memory. */
#include <errno.h>
#include <omp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "src/comm/comm.h"
#include "src/core/clock.h"
#include "tests/dist/plan/entries.h"

enum { MOST = 8, COUNT = 501 };

typedef struct board {
    pid_t pid[MOST];
    double sum[MOST];
    int size[MOST], local[MOST];
    int status[MOST];
    char text[MOST][256];
} board;

static board *shared;
static int private_number;
static int team_size = 4; /* 1 where OpenMP's threads can't be watched */

static tsr_status all_reduce(tsr_world *w, double *out_sum)
{
    int ranks[MOST];
    float *src, *dst;
    tsri_group *g;
    tsri_ticket t;
    for (int i = 0; i < w->nranks; i++)
        ranks[i] = i;
    TSRI_TRY(w->comm->ops->group(w->comm, w->nranks, ranks, 0, &g));
    TSRI_TRY(tsri_region_alloc(&w->region, COUNT * sizeof *src, (void **)&src));
    TSRI_TRY(tsri_region_alloc(&w->region, COUNT * sizeof *dst, (void **)&dst));
    for (int i = 0; i < COUNT; i++)
        src[i] = (float)((w->rank + 1) * (i % 7));
    const tsri_segment s = {.src = src,
                            .dst = dst,
                            .dtype = TSR_F32,
                            .shape = TSR_DIMS(COUNT),
                            .src_axis = -1,
                            .dst_axis = -1};
    const tsri_coll c = {.kind = TSRI_COLL_ALL_REDUCE, .nseg = 1, .seg = &s, .what = "sum"};
    TSRI_TRY(w->comm->ops->start(g, &c, &t));
    TSRI_TRY(w->comm->ops->finish(g, &t));
    TSRI_TRY(w->comm->ops->release(g, &t));
    *out_sum = 0;
    for (int i = 0; i < COUNT; i++)
        *out_sum += (double)dst[i];
    return TSR_OK;
}

static tsr_status report(tsr_world *w, void *arg)
{
    int r = tsr_world_rank(w), team = 0;
    private_number += 10 + r;
#pragma omp parallel num_threads(team_size)
#pragma omp atomic
    team++;
    if (team != team_size || private_number != 17 + r || strcmp(arg, "the argument"))
        return tsri_fail(TSR_ERR_INTERNAL, "a team of %d, number %d", team, private_number);
    shared->pid[r] = getpid();
    shared->size[r] = tsr_world_size(w);
    shared->local[r] = tsr_world_local_rank(w);
    return all_reduce(w, &shared->sum[r]);
}

static void test_results(void **state)
{
    char arg[] = "the argument";
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        double base = 0;
        int team = 0;
        memset(shared, 0, sizeof *shared);
        private_number = 7;
        /* A team of this process, which the children do not have. */
#pragma omp parallel num_threads(team_size)
#pragma omp atomic
        team++;
        assert_int_equal(team, team_size);
        if (tsr_spawn_processes(n, report, arg) != TSR_OK)
            fail_msg("%d ranks: %s", n, tsr_last_error());
        assert_int_equal(private_number, 7);
        for (int i = 0; i < COUNT; i++)
            base += i % 7;
        for (int r = 0; r < n; r++) {
            assert_int_equal(shared->size[r], n);
            assert_int_equal(shared->local[r], r);
            assert_true(shared->sum[r] == base * n * (n + 1) / 2);
            assert_int_not_equal(shared->pid[r], getpid());
            for (int k = 0; k < r; k++)
                assert_int_not_equal(shared->pid[r], shared->pid[k]);
        }
    }
}

static void note(int rank, tsr_status status)
{
    shared->status[rank] = (int)status;
    snprintf(shared->text[rank], sizeof shared->text[rank], "%s", tsr_last_error());
}

/* What the first rank to fail does; the others wait for it. */
static tsr_status go_wrong(tsr_world *w, void *arg)
{
    const char *how = arg;
    int r = tsr_world_rank(w);
    if (r != 1)
        signal(SIGTERM, SIG_IGN); /* to have the time to look */
    TSRI_TRY(tsr_world_barrier(w));
    if (r == 1 && !strcmp(how, "error"))
        return tsri_fail(TSR_ERR_FORMAT, "the file is torn");
    if (r == 1 && !strcmp(how, "silent"))
        return TSR_ERR_IO;
    if (r == 1 && !strcmp(how, "kill"))
        raise(SIGKILL);
    if (r == 1 && !strcmp(how, "segv"))
        raise(SIGSEGV);
    if (r == 1 && !strcmp(how, "exit"))
        exit(3);
    if (r == 1 && !strcmp(how, "leave"))
        return TSR_OK;
    if (r == 1 && !strcmp(how, "abort")) {
        tsr_world_abort(w, "out of patience");
        usleep(200000);
        return tsri_fail(TSR_ERR_STATE, "gave up");
    }
    tsr_status status = tsr_world_barrier(w);
    note(r, status);
    return status;
}

static void expect(int nranks, const char *how, tsr_status status, const char *text)
{
    char arg[16];
    snprintf(arg, sizeof arg, "%s", how);
    memset(shared, 0, sizeof *shared);
    double start = tsri_now_s();
    tsr_status got = tsr_spawn_processes(nranks, go_wrong, arg);
    if (got != status || strcmp(tsr_last_error(), text))
        fail_msg("%s: expected %s, '%s'; got %s, '%s'", how, tsr_status_name(status), text,
                 tsr_status_name(got), tsr_last_error());
    assert_true(tsri_now_s() - start < 20); /* far from the 60 s that a rank would wait */
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void test_failures(void **state)
{
    (void)state;
    expect(3, "error", TSR_ERR_FORMAT, "rank 1: the file is torn");
    assert_int_equal(shared->status[0], TSR_ERR_REMOTE);
    assert_string_equal(shared->text[0], "rank 1 failed: the file is torn");
    assert_int_equal(shared->status[2], TSR_ERR_REMOTE);
    expect(2, "silent", TSR_ERR_IO, "rank 1: its function returned TSR_ERR_IO");
    /* The others know before rank 1 has returned. */
    expect(3, "abort", TSR_ERR_STATE, "rank 1: gave up");
    assert_string_equal(shared->text[2], "rank 1 failed: out of patience");
    expect(3, "kill", TSR_ERR_DEAD, "rank 1 was killed by signal 9 (SIGKILL)");
    /* Who sees it first tells the others. */
    assert_true(shared->status[0] == TSR_ERR_DEAD || shared->status[2] == TSR_ERR_DEAD);
    assert_non_null(strstr(shared->text[0], "rank 1 died"));
    assert_non_null(strstr(shared->text[2], "rank 1 died"));
    expect(4, "segv", TSR_ERR_DEAD, "rank 1 was killed by signal 11 (SIGSEGV)");
    expect(2, "exit", TSR_ERR_DEAD, "rank 1 exited with code 3 before its function returned");
    expect(2, "leave", TSR_ERR_DEAD,
           "rank 0: rank 1 has left (its function returned, or its world was destroyed) while rank "
           "0 waited for it in barrier #2 'tsr_world_barrier'");
}

static void end_thread(void *how)
{
    if (!strcmp(how, "exit"))
        _exit(66);
    raise(SIGKILL);
}

/* Rank 1's thread goes wrong when its function has returned. */
static tsr_status end_badly(tsr_world *w, void *arg)
{
    pthread_key_t key;
    TSRI_TRY(tsr_world_barrier(w));
    if (tsr_world_rank(w) == 1 &&
        (pthread_key_create(&key, end_thread) || pthread_setspecific(key, arg)))
        return TSR_ERR_NO_MEMORY;
    return TSR_OK;
}

static void test_late_deaths(void **state)
{
    char how_exit[] = "exit", how_kill[] = "kill";
    (void)state;
    assert_int_equal(tsr_spawn_processes(3, end_badly, how_exit), TSR_ERR_DEAD);
    assert_string_equal(tsr_last_error(),
                        "rank 1 exited with code 66 after its function had returned");
    assert_int_equal(tsr_spawn_processes(2, end_badly, how_kill), TSR_ERR_DEAD);
    assert_string_equal(tsr_last_error(),
                        "rank 1 was killed by signal 9 (SIGKILL) after its function had returned");
}

/* Rank 0 waits for ever and does not heed SIGTERM. */
static tsr_status be_stubborn(tsr_world *w, void *arg)
{
    (void)arg;
    shared->pid[tsr_world_rank(w)] = getpid();
    if (tsr_world_rank(w) == 0)
        signal(SIGTERM, SIG_IGN);
    TSRI_TRY(tsr_world_barrier(w));
    if (tsr_world_rank(w) == 1)
        return tsri_fail(TSR_ERR_STATE, "no more");
    for (;;)
        pause();
    return TSR_OK;
}

static void test_stubborn(void **state)
{
    (void)state;
    assert_int_equal(tsr_spawn_processes(3, be_stubborn, NULL), TSR_ERR_STATE);
    assert_string_equal(tsr_last_error(), "rank 1: no more");
    assert_int_equal(kill(shared->pid[0], 0), -1);
}

static void test_arguments(void **state)
{
    (void)state;
    assert_int_equal(tsr_spawn_processes(0, report, NULL), TSR_ERR_INVALID);
    assert_int_equal(tsr_spawn_processes(257, report, NULL), TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "1 to 256"));
    assert_int_equal(tsr_spawn_processes(2, NULL, NULL), TSR_ERR_INVALID);
    assert_int_equal(tsr_spawn_processes_with(2, report, NULL, TSR_WORLD_OPTS(.timeout_s = -1)),
                     TSR_ERR_INVALID);
}

static tsr_status wait_for_nobody(tsr_world *w, void *arg)
{
    (void)arg;
    if (tsr_world_rank(w) == 1)
        sleep(20);
    return tsr_world_barrier(w);
}

static void test_options(void **state)
{
    (void)state;
    double start = tsri_now_s();
    assert_int_equal(
        tsr_spawn_processes_with(2, wait_for_nobody, NULL, TSR_WORLD_OPTS(.timeout_s = 0.3)),
        TSR_ERR_TIMEOUT);
    assert_true(tsri_now_s() - start < 15);
    assert_non_null(strstr(tsr_last_error(), "rank 0: rank 1 did not come to barrier"));
}

static void on_signal(int sig)
{
    (void)sig;
}

static void test_again_and_again(void **state)
{
    char arg[] = "the argument", wrong[] = "error";
    sigset_t mask, after;
    struct sigaction act = {.sa_handler = SIG_IGN}, now;
    (void)state;
    private_number = 7;
    sigaction(SIGCHLD, &act, NULL);
    act.sa_handler = on_signal;
    sigaction(SIGTERM, &act, NULL);
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    int before = count_fds();
    for (int i = 0; i < 50; i++) {
        tsr_status wanted = i % 5 == 4 ? TSR_ERR_FORMAT : TSR_OK;
        tsr_status got = wanted == TSR_OK ? tsr_spawn_processes(1 + i % 4, report, arg)
                                          : tsr_spawn_processes(3, go_wrong, wrong);
        if (got != wanted)
            fail_msg("round %d: %s", i, tsr_last_error());
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    }
    assert_int_equal(count_fds(), before);
    sigaction(SIGCHLD, NULL, &now);
    assert_true(now.sa_handler == SIG_IGN);
    sigaction(SIGTERM, NULL, &now);
    assert_true(now.sa_handler == on_signal);
    sigprocmask(SIG_SETMASK, NULL, &after);
    assert_true(sigismember(&after, SIGUSR2) == 1 && sigismember(&after, SIGCHLD) == 0);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    sigemptyset(&mask);
    sigprocmask(SIG_SETMASK, &mask, NULL);
}

static tsr_status say(tsr_world *w, void *arg)
{
    (void)arg;
    printf("rank %d\n", tsr_world_rank(w));
    return TSR_OK;
}

/* In a process of its own: output to a pipe is buffered, and must come out once. */
static void test_output(void **state)
{
    int fds[2], status;
    char text[256] = "";
    (void)state;
    assert_int_equal(pipe(fds), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], 1);
        close(fds[0]);
        close(fds[1]);
        printf("before\n");
        tsr_status s = tsr_spawn_processes(2, say, NULL);
        printf("after\n");
        fflush(stdout);
        _exit(s != TSR_OK);
    }
    close(fds[1]);
    size_t used = 0;
    for (ssize_t n; (n = read(fds[0], text + used, sizeof text - 1 - used)) > 0;)
        used += (size_t)n;
    close(fds[0]);
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    if (strcmp(text, "before\nrank 0\nrank 1\nafter\n") &&
        strcmp(text, "before\nrank 1\nrank 0\nafter\n"))
        fail_msg("%s", text);
}

static tsr_status stay(tsr_world *w, void *arg)
{
    (void)arg;
    shared->pid[tsr_world_rank(w)] = getpid();
    for (;;)
        pause();
    return TSR_OK;
}

/* Zombies count as gone. */
static bool is_gone(pid_t pid)
{
    char path[32], line[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return true;
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = 0;
    const char *paren = strrchr(line, ')');
    return !paren || paren[2] == 'Z' || paren[2] == 'X';
}

static void test_parent_dies(void **state)
{
    (void)state;
    memset(shared, 0, sizeof *shared);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        tsr_spawn_processes(3, stay, NULL);
        _exit(0);
    }
    for (int i = 0; i < 2000 && !(shared->pid[0] && shared->pid[1] && shared->pid[2]); i++)
        usleep(10000);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    for (int r = 0; r < 3; r++) {
        assert_int_not_equal(shared->pid[r], 0);
        for (int i = 0; i < 500 && !is_gone(shared->pid[r]); i++)
            usleep(10000);
        assert_true(is_gone(shared->pid[r]));
    }
}

/* Of a world that says nothing of its threads, alone in this process. */
static int default_threads(const char *variable)
{
    tsr_world *w;
    setenv("OMP_NUM_THREADS", variable, 1);
    if (tsr_world_create(TSR_WORLD_OPTS(.arena_bytes = 1 << 20), &w) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    int n = omp_get_max_threads();
    assert_int_equal(w->threads, n);
    tsr_world_destroy(w);
    return n;
}

/* The variable's word holds for each world, whatever the one before it was given. */
static void test_threads_of_worlds(void **state)
{
    const char *set = getenv("OMP_NUM_THREADS");
    char *before = set ? strdup(set) : NULL;
    tsr_world *w;
    (void)state;
    for (int n = 1; n <= 3; n++) {
        assert_int_equal(tsr_world_create(TSR_WORLD_OPTS(.threads = n, .arena_bytes = 1 << 20), &w),
                         TSR_OK);
        assert_int_equal(omp_get_max_threads(), n);
        tsr_world_destroy(w);
        assert_int_equal(default_threads("7"), 7);
        assert_int_equal(default_threads(" 5 ,2"), 5);
    }
    /* What OpenMP does not understand either. */
    omp_set_num_threads(4);
    assert_int_equal(default_threads("many"), 4);
    assert_int_equal(default_threads("0"), 4);
    if (before)
        setenv("OMP_NUM_THREADS", before, 1);
    else
        unsetenv("OMP_NUM_THREADS");
    free(before);
}

int main(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 2;
    if (getenv("TESSERA_TEST_ONE_THREAD"))
        team_size = 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results),         cmocka_unit_test(test_failures),
        cmocka_unit_test(test_late_deaths),     cmocka_unit_test(test_stubborn),
        cmocka_unit_test(test_arguments),       cmocka_unit_test(test_options),
        cmocka_unit_test(test_again_and_again), cmocka_unit_test(test_output),
        cmocka_unit_test(test_parent_dies),     cmocka_unit_test(test_threads_of_worlds),
    };
    return cmocka_run_group_tests_name("spawn_processes", tests, NULL, NULL);
}
