/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks killed at random moments: the launcher names the one that was killed, ends soon, and leaves
 * nothing; with restarts the run comes to its end. 40 moments; 200 with TESSERA_FULL. Arguments:
 * the command, and launch_child.
 */
#include "launch_run.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { RANKS = 3 };
/* What is promised is 2 s; a machine that does much else may take longer to come to it. */
static const double soon_s = 8;

static run it;

/* Entries, those that are links to `target`, or those whose names begin with `name`. */
static int count_entries(const char *folder, const char *target, const char *name)
{
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[512], link[256];
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        ssize_t length = target ? readlink(path, link, sizeof link - 1) : 0;
        if (length >= 0)
            link[length] = 0;
        n += (!target || (length > 0 && strstr(link, target))) &&
             (!name || !strncmp(e->d_name, name, strlen(name)));
    }
    if (d)
        closedir(d);
    return n;
}

/* "rank R pid P. pid Q.": who to kill. */
static pid_t pid_of(int rank)
{
    char begin[32];
    snprintf(begin, sizeof begin, "rank %d pid ", rank);
    const char *p = strstr(it.text, begin);
    assert_non_null(p);
    return (pid_t)strtol(p + strlen(begin), NULL, 10);
}

static double kill_one(unsigned *seed, bool restarts, char *folder)
{
    const char *const args[] = {
        "-n",   "3",       "--timeout", "50", "--max-restarts", restarts ? "1" : "0", "--log-dir",
        folder, run_child, "loop",      NULL};
    const char *const short_args[] = {"-n", "3", "--timeout", "50", run_child, "loop", NULL};
    char expected[128];
    int victim = rand_r(seed) % RANKS;
    run_begin(&it, folder ? args : short_args);
    run_read_until(&it, " pid ", 2 * RANKS);
    char fds[64];
    snprintf(fds, sizeof fds, "/proc/%d/fd", (int)it.pid);
    assert_int_equal(count_entries(fds, "socket:", NULL), 0); /* one node opens no port */
    usleep((useconds_t)(rand_r(seed) % 60000));
    double start = run_now_s();
    assert_int_equal(kill(pid_of(victim), SIGKILL), 0);
    run_end(&it);
    double seconds = run_now_s() - start;
    snprintf(expected, sizeof expected, "tessera launch: rank %d was killed by signal 9 (SIGKILL)",
             victim);
    run_expect(&it, restarts ? 0 : 137, expected);
    assert_int_equal(run_count(&it, "tessera launch: rank "), 1);
    for (int r = 0; restarts && r < RANKS; r++) {
        snprintf(expected, sizeof expected, "rank %d of 3 ok\n", r);
        run_expect(&it, 0, expected);
    }
    run_expect_gone(&it);
    return seconds;
}

static void test_kills(void **state)
{
    (void)state;
    int moments = getenv("TESSERA_FULL") ? 200 : 40,
        shm = count_entries("/dev/shm", NULL, "tessera");
    int fds = count_entries("/proc/self/fd", NULL, NULL);
    unsigned seed = 20261122;
    double slowest = 0;
    for (int i = 0; i < moments; i++) {
        double seconds = kill_one(&seed, false, NULL);
        slowest = seconds > slowest ? seconds : slowest;
    }
    double end = run_now_s() + 20; /* what programs beside this one have comes and goes */
    while (count_entries("/dev/shm", NULL, "tessera") > shm && run_now_s() < end)
        usleep(50000);
    assert_true(count_entries("/dev/shm", NULL, "tessera") <= shm);
    assert_int_equal(count_entries("/proc/self/fd", NULL, NULL), fds);
    printf("%d ranks killed; the launcher ended within %.3f s\n", moments, slowest);
    assert_true(slowest < soon_s);
}

/* Whether a process has ended and nobody has waited for it. */
static bool is_zombie(pid_t pid)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (f && !fgets(line, sizeof line, f))
        line[0] = 0;
    if (f)
        fclose(f);
    const char *paren = strrchr(line, ')');
    return paren && paren[2] == 'Z';
}

/* The launcher sleeps while the others find out and give up because of it. */
static void test_late_launcher(void **state)
{
    (void)state;
    const char *const args[] = {"-n", "3", "--timeout", "50", run_child, "loop_abort", NULL};
    run_begin(&it, args);
    run_read_until(&it, " pid ", 2 * RANKS);
    usleep(50000); /* they are in their loop */
    assert_int_equal(kill(it.pid, SIGSTOP), 0);
    assert_int_equal(kill(pid_of(1), SIGKILL), 0);
    double start = run_now_s();
    for (int r = 0; r < RANKS; r++)
        while (!is_zombie(pid_of(r)) && run_now_s() - start < soon_s)
            usleep(1000);
    assert_int_equal(kill(it.pid, SIGCONT), 0);
    run_end(&it);
    run_expect(&it, 137, "tessera launch: rank 1 was killed by signal 9 (SIGKILL)");
    run_expect_gone(&it);
}

static void test_kills_and_restarts(void **state)
{
    (void)state;
    char folder[] = "/tmp/tessera-kills-XXXXXX", command[64];
    assert_non_null(mkdtemp(folder));
    unsigned seed = 20261123;
    int moments = getenv("TESSERA_FULL") ? 50 : 10;
    for (int i = 0; i < moments; i++)
        kill_one(&seed, true, folder);
    assert_int_equal(count_entries(folder, NULL, NULL), moments + 2); /* a run each, "." and ".." */
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s TESSERA LAUNCH_CHILD\n", argv[0]);
        return 2;
    }
    run_tessera = argv[1];
    run_child = argv[2];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kills),
        cmocka_unit_test(test_late_launcher),
        cmocka_unit_test(test_kills_and_restarts),
    };
    return cmocka_run_group_tests_name("launch_kills", tests, NULL, NULL);
}
