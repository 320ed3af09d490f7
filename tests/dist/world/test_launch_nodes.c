/* SPDX-License-Identifier: Apache-2.0 */
/* `tessera launch` on several nodes, which are launchers on this machine: what they tell each
 * other. Arguments: the command, and launch_child. */
#include "launch_run.h"
#include "src/comm/store/store.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

enum { MOST = 3 };
static const double soon_s = 8; /* of 2 s */

static run node[MOST];
static char port[16], endpoint[32];

/* A port that nobody has now. */
static void choose_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    close(fd);
    snprintf(port, sizeof port, "%d", ntohs(at.sin_port));
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%s", port);
}

static const char *monitor = "0.05";

static void begin_node(int r, const char *nnodes, const char *more, const char *value,
                       const char *script)
{
    char rank[8];
    snprintf(rank, sizeof rank, "%d", r);
    const char *const args[] = {"--nnodes",
                                nnodes,
                                "--node-rank",
                                rank,
                                "--master_addr",
                                "127.0.0.1",
                                "--master_port",
                                port,
                                "-n",
                                "2",
                                "--monitor-interval",
                                monitor,
                                more,
                                value,
                                "sh",
                                "-c",
                                script,
                                NULL};
    run_begin(&node[r], args);
}

static void both(const char *more, const char *value, const char *script)
{
    choose_port();
    for (int r = 0; r < 2; r++)
        begin_node(r, "2", more, value, script);
}

static void end_both(int code, const char *part)
{
    for (int r = 0; r < 2; r++)
        run_end(&node[r]);
    for (int r = 0; r < 2; r++)
        run_expect(&node[r], code, part);
}

static void test_variables(void **state)
{
    (void)state;
    char all[256];
    both("--max-restarts", "3",
         "echo $RANK.$LOCAL_RANK.$WORLD_SIZE.$LOCAL_WORLD_SIZE.$GROUP_RANK.$GROUP_WORLD_SIZE."
         "$TESSERA_STORE_HOSTED.$TESSERA_MAX_RESTARTS at $MASTER_ADDR:$MASTER_PORT id "
         "$TESSERA_RUN_ID.");
    end_both(0, "id ");
    for (int i = 0; i < 4; i++) {
        snprintf(all, sizeof all, "%d.%d.4.2.%d.2.1.3 at %s id ", i, i % 2, i / 2, endpoint);
        run_expect(&node[i / 2], 0, all);
    }
    const char *id = strstr(node[0].text, "id ");
    snprintf(all, sizeof all, "%.*s", (int)strcspn(id, "\n"), id);
    assert_int_equal(run_count(&node[0], all), 2);
    assert_int_equal(run_count(&node[1], all), 2);
}

/* Runs one after the other at the same port. Node 2 reads late how the first has ended, so that
 * node 0 still serves that when node 1 comes to the second. */
static void test_runs_in_a_row(void **state)
{
    static const char script[] = "echo rank $RANK of $WORLD_SIZE id $TESSERA_RUN_ID.";
    (void)state;
    choose_port();
    char first[128] = "";
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MOST; i++) {
            static const int order[] = {1, 0, 2};
            int r = order[i];
            monitor = r == 2 ? "0.8" : "0.05";
            if (round > 0) {
                run_end(&node[r]);
                run_expect(&node[r], 0, "of 6 id ");
                const char *id = strstr(node[r].text, "id ");
                snprintf(first, sizeof first, "%.*s", (int)strcspn(id, "\n"), id);
            }
            begin_node(r, "3", "--timeout", "9", script);
        }
    }
    monitor = "0.05";
    for (int r = 0; r < MOST; r++) {
        run_end(&node[r]);
        run_expect(&node[r], 0, "of 6 id ");
        assert_int_equal(run_count(&node[r], first), 0);
    }
}

/* Node 1 stands still for longer than a second while node 0 comes to its end: it still learns that
 * all went well. */
static void test_late_reader(void **state)
{
    (void)state;
    both("--timeout", "9", "[ $GROUP_RANK = 1 ] && { echo soon; exit 0; }; sleep 1.5; echo done");
    run_read_until(&node[1], "soon\n", 2);
    usleep(300000); /* for its launcher to say that it is done */
    kill(node[1].pid, SIGSTOP);
    run_read_until(&node[0], "done\n", 2);
    usleep(1500000);
    kill(node[1].pid, SIGCONT);
    end_both(0, "");
}

/* Node 0 serves all ranks of the run: it takes the descriptors that it may have. The ranks find as
 * many as it did. */
static void test_descriptors(void **state)
{
    struct rlimit old, few, own;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    few = old;
    few.rlim_cur = 200;
    if (old.rlim_max <= few.rlim_cur)
        skip();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    both("--timeout", "9", "echo files $(ulimit -n).; exec sleep 60");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    for (int r = 0; r < 2; r++)
        run_read_until(&node[r], "files 200.", 2);
    assert_int_equal(prlimit(node[0].pid, RLIMIT_NOFILE, NULL, &own), 0);
    kill(node[0].pid, SIGTERM);
    end_both(143, "files 200.");
    assert_true(own.rlim_cur == (old.rlim_max < 65536 ? old.rlim_max : 65536));
}

/* A folder that the nodes share: a file for each rank. */
static void test_logs(void **state)
{
    char folder[] = "/tmp/tessera-logs-XXXXXX", path[256], text[64], found[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    both("--log-dir", folder, "echo rank $RANK; cd $TESSERA_FLIGHT_DIR && pwd");
    end_both(0, "rank ");
    char flights[128]; /* where all ranks' calls go */
    const char *said = strstr(node[0].text, folder);
    assert_non_null(said);
    snprintf(flights, sizeof flights, "%.*s", (int)strcspn(said, "\n"), said);
    assert_int_equal(run_count(&node[1], flights), 2);
    for (int rank = 0; rank < 4; rank++) {
        snprintf(path, sizeof path, "%s/node_%d/%d/stdout.log", flights, rank / 2, rank % 2);
        snprintf(text, sizeof text, "rank %d\n", rank);
        FILE *f = fopen(path, "r");
        if (!f)
            fail_msg("there is no %s", path);
        assert_non_null(fgets(found, sizeof found, f));
        fclose(f);
        assert_string_equal(found, text);
    }
    snprintf(text, sizeof text, "rm -r %s", folder);
    assert_int_equal(system(text), 0);
}

/* Numbers in order of arrival; nodes of different sizes. */
static void test_arrival(void **state)
{
    static const char *const sizes[] = {"1", "2", "3"};
    static const char script[] = "echo node $GROUP_RANK of $LOCAL_WORLD_SIZE rank $RANK.";
    (void)state;
    choose_port();
    for (int i = 0; i < 3; i++) {
        const char *const args[] = {"--nnodes=3",
                                    "--rdzv-endpoint",
                                    endpoint,
                                    "--rdzv-id",
                                    "job-7",
                                    "--rdzv-backend=c10d",
                                    "--nproc_per_node",
                                    sizes[i],
                                    "sh",
                                    "-c",
                                    script,
                                    NULL};
        run_begin(&node[i], args);
    }
    int has_node[3] = {0}, has_rank[6] = {0}, size[3] = {0}, lowest[3] = {6, 6, 6};
    for (int i = 0; i < 3; i++) {
        run_end(&node[i]);
        run_expect(&node[i], 0, "node ");
        for (const char *p = node[i].text; (p = strstr(p, "node ")); p++) {
            int number, n, rank;
            assert_int_equal(sscanf(p, "node %d of %d rank %d.", &number, &n, &rank), 3);
            assert_true(number >= 0 && number < 3 && rank >= 0 && rank < 6);
            assert_int_equal(n, i + 1);
            size[number] = n;
            lowest[number] = rank < lowest[number] ? rank : lowest[number];
            has_node[number]++;
            has_rank[rank]++;
        }
    }
    for (int r = 0; r < 6; r++)
        assert_int_equal(has_rank[r], 1);
    for (int i = 0, base = 0; i < 3; base += size[i++]) {
        assert_int_equal(has_node[i], size[i]);
        assert_int_equal(lowest[i], base);
    }
}

static void test_failures(void **state)
{
    (void)state;
    both("--timeout", "9", "[ $RANK = 3 ] && { sleep 0.2; echo woe >&2; exit 9; }; exec sleep 60");
    end_both(9, "rank 3 (local rank 1 of node 1, ");
    run_expect(&node[0], 9, "exited with code 9; stopping the others\n");
    run_expect(&node[0], 9, "the last lines of rank 3's stderr:\n  | woe\n");
    assert_true(node[0].seconds < soon_s && node[1].seconds < soon_s);
    both("--timeout", "9", "[ $RANK = 1 ] && kill -SEGV $$; exec sleep 60");
    end_both(139, "rank 1 (local rank 1 of node 0, ");
    assert_true(node[0].seconds < soon_s && node[1].seconds < soon_s);
    /* When node 0 has long been done. */
    both("--timeout", "9", "[ $RANK = 2 ] && { sleep 0.5; exit 3; }; exit 0");
    end_both(3, "rank 2 (local rank 0 of node 1, ");
    both("--timeout", "9", "exec /no/such/program");
    end_both(127, "exited with code 127");
}

/* Who gave up, not who heard of it first, on another node or its own. */
static void test_told(void **state)
{
    char script[4200];
    (void)state;
    if (!getenv("TESSERA_GLOO_MODULE"))
        skip();
    snprintf(script, sizeof script, "exec '%s' give_up", run_child);
    for (int i = 0; i < 3; i++) {
        both("--timeout", "30", script);
        end_both(5, "rank 2 (local rank 0 of node 1, ");
        assert_int_equal(run_count(&node[0], "tessera launch: rank "), 1);
    }
}

/* A message to another machine arrives though its sender has left; one that nobody receives holds
 * nobody up. */
static void test_sent_and_gone(void **state)
{
    char script[4200];
    (void)state;
    if (!getenv("TESSERA_GLOO_MODULE"))
        skip();
    snprintf(script, sizeof script, "exec '%s' parts", run_child);
    both("--timeout", "30", script);
    for (int r = 0; r < 2; r++) {
        run_end(&node[r]);
        run_expect(&node[r], 0, r ? "rank 2 of 4 ok" : "rank 0 of 4 ok");
        run_expect(&node[r], 0, r ? "rank 3 of 4 ok" : "rank 1 of 4 ok");
        assert_true(node[r].seconds < 15);
    }
}

/* Launchers that wait for ranks to end sleep: 3 s here, most of which a loop would work. */
static void test_sleeps_while_stopping(void **state)
{
    (void)state;
    both("--signal-timeout", "3",
         "[ $RANK = 3 ] && { sleep 1; exit 9; }; trap '' TERM; sleep 60; sleep 60");
    end_both(9, "rank 3 (local rank 1 of node 1, ");
    assert_true(node[0].seconds > 2.5);
    for (int r = 0; r < 2; r++)
        if (node[r].cpu_s > 1.5)
            fail_msg("the launcher of node %d took %.2f s of CPU time", r, node[r].cpu_s);
}

static void test_restarts(void **state)
{
    (void)state;
    both("--max-restarts", "2",
         "echo try $TESSERA_RESTART_COUNT rank $RANK.; "
         "[ $RANK = $TESSERA_RESTART_COUNT ] && kill -9 $$; "
         "[ $TESSERA_RESTART_COUNT = 2 ] && exit 0; exec sleep 60");
    end_both(137, "starting all ranks again (2 of 2)");
    both("--max-restarts", "2",
         "echo try $TESSERA_RESTART_COUNT rank $RANK.; "
         "[ $RANK = 3 ] && [ $TESSERA_RESTART_COUNT -lt 2 ] && exit 4; "
         "[ $TESSERA_RESTART_COUNT = 2 ] && exit 0; exec sleep 60");
    end_both(0, "starting all ranks again (2 of 2)");
    for (int i = 0; i < 4; i++) {
        char text[64];
        snprintf(text, sizeof text, "try 2 rank %d.", i);
        run_expect(&node[i / 2], 0, text);
    }
}

static void test_signals(void **state)
{
    (void)state;
    for (int r = 0; r < 2; r++) {
        both("--max-restarts", "2", "echo pid $$.; exec sleep 60");
        run_read_until(&node[0], "pid ", 2);
        run_read_until(&node[1], "pid ", 2);
        kill(node[r].pid, SIGTERM);
        end_both(143, r ? "the launcher of node 1 was stopped by SIGTERM"
                        : "the launcher of node 0 was stopped by SIGTERM");
        run_expect_gone(&node[0]);
        run_expect_gone(&node[1]);
    }
}

/* While ranks are stopped, of a run that would start again. */
static void test_signal_while_stopping(void **state)
{
    static const char stubborn[] =
        "trap 'echo told $RANK.' TERM; [ $RANK = 3 ] && { sleep 0.5; exit 9; }; "
        "while :; do sleep 0.1; done";
    (void)state;
    for (int r = 0; r < 2; r++) {
        both("--max-restarts=2", "--signal-timeout=4", stubborn);
        run_read_until(&node[0], "told ", 2);
        run_read_until(&node[1], "told ", 1);
        kill(node[r].pid, SIGTERM);
        end_both(143, "a launcher was stopped by signal 15");
    }
}

/* Killed, or frozen as if its machine were. */
static void test_vanished(void **state)
{
    (void)state;
    for (int victim = 0; victim < 2; victim++) {
        both("--max-restarts", "2", "echo pid $$.; exec sleep 60");
        run_read_until(&node[0], "pid ", 2);
        run_read_until(&node[1], "pid ", 2);
        kill(node[victim].pid, victim ? SIGSTOP : SIGKILL);
        run_end(&node[!victim]);
        run_expect(&node[!victim], 1,
                   victim ? "the launcher of node 1 (" : "the launcher of node 0 (");
        run_expect(&node[!victim], 1, "is gone");
        assert_true(node[!victim].seconds < 20);
        kill(node[victim].pid, SIGKILL);
        kill(node[victim].pid, SIGCONT);
        run_end(&node[victim]);
        run_expect_gone(&node[0]);
        run_expect_gone(&node[1]);
    }
}

/* Killed when it had just claimed its number. */
static void test_vanished_early(void **state)
{
    static const char line[] = "2 2 0 - ghost 1";
    const tsr_store_opts opts = {.size = sizeof opts, .timeout_s = 30, .hosted = true};
    char url[64], now[64];
    tsr_store *store;
    (void)state;
    choose_port();
    begin_node(0, "2", "--timeout", "9", "exit 0");
    snprintf(url, sizeof url, "tcp://%s", endpoint);
    assert_int_equal(tsri_store_connect(url, &opts, &store), TSR_OK);
    assert_int_equal(tsr_store_compare_set(store, "launch/n/1", "", 0, line, strlen(line), now,
                                           sizeof now, NULL),
                     TSR_OK);
    run_end(&node[0]);
    run_expect(&node[0], 1, "the launcher of node 1 (ghost) is gone");
    tsr_store_close(store);
}

/* The launchers' store, once node r has claimed its number there. */
static tsr_store *connect_as_stranger(int r)
{
    const tsr_store_opts opts = {.size = sizeof opts, .timeout_s = 30, .hosted = true};
    char url[64], key[32], line[512];
    tsr_store *store;
    snprintf(url, sizeof url, "tcp://%s", endpoint);
    snprintf(key, sizeof key, "launch/n/%d", r);
    assert_int_equal(tsri_store_connect(url, &opts, &store), TSR_OK);
    assert_int_equal(tsr_store_get(store, key, line, sizeof line, NULL), TSR_OK);
    return store;
}

static void test_disagreements(void **state)
{
    (void)state;
    choose_port();
    begin_node(0, "2", "--timeout", "9", "exit 0");
    begin_node(1, "3", "--timeout", "9", "exit 0");
    end_both(1, "has --nnodes 3, node 0 has 2");
    /* One that node 0 does not know of, before all others. */
    choose_port();
    begin_node(0, "2", "--timeout", "9", "exit 0");
    begin_node(2, "3", "--timeout", "9", "exit 0");
    for (int r = 0; r < 3; r += 2) {
        run_end(&node[r]);
        run_expect(&node[r], 1, "node 2 (");
        run_expect(&node[r], 1, "has --nnodes 3, node 0 has 2");
    }
    choose_port();
    begin_node(0, "2", "--max-restarts", "1", "exit 0");
    begin_node(1, "2", "--max-restarts", "2", "exit 0");
    end_both(1, "has --max-restarts 2, node 0 has 1");
    choose_port();
    begin_node(0, "2", "--rdzv-id", "here", "exit 0");
    begin_node(1, "2", "--rdzv-id", "there", "exit 0");
    end_both(1, "has --rdzv-id there, node 0 has here");
    /* Two that call themselves node 1. */
    choose_port();
    begin_node(0, "3", "--timeout", "9", "exit 0");
    begin_node(1, "3", "--timeout", "9", "exit 0");
    tsr_store_close(connect_as_stranger(1));
    const char *const args[] = {"--nnodes",        "3",      "--node-rank", "1",
                                "--rdzv-endpoint", endpoint, "true",        NULL};
    run_begin(&node[2], args);
    run_end(&node[2]);
    run_expect(&node[2], 1, "there is a launcher of node 1 already");
    kill(node[0].pid, SIGINT);
    run_end(&node[0]);
    assert_int_equal(node[0].code, 130);
    run_end(&node[1]);
    assert_int_equal(node[1].code, 130);
    /* The port is somebody else's. */
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    assert_true(bind(fd, (struct sockaddr *)&at, size) == 0 && listen(fd, 1) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    snprintf(port, sizeof port, "%d", ntohs(at.sin_port));
    begin_node(0, "2", "--timeout", "9", "exit 0");
    run_end(&node[0]);
    run_expect(&node[0], 1, port);
    close(fd);
}

/* Sets a key of the launchers' store, as whoever can connect may. */
static void set_as_stranger(const char *key, const char *text)
{
    tsr_store *s = connect_as_stranger(0);
    assert_int_equal(tsr_store_set(s, key, text, strlen(text)), TSR_OK);
    tsr_store_close(s);
}

/* A verdict that no launcher writes fails the run, and is shown without control characters. */
static void test_strangers(void **state)
{
    (void)state;
    static const struct {
        const char *says, *shown;
    } cases[] = {
        {"F 0 1 0 -1\nall is well", "the store has 'F 0 1 0 -1?all is well' as launch/v/1"},
        {"F 256 1 0 -1\nall is well", "as launch/v/1, which no launcher writes"},
        {"F 1 1 0 x\nall is well", "as launch/v/1, which no launcher writes"},
        {"O and well", "the store has 'O and well' as launch/v/1, which no launcher writes"},
        {"", "the store has '' as launch/v/1, which no launcher writes"},
        {"F 1 1 0 -1\n\033]0;gone\a", "?]0;gone?"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        both("--timeout", "9", "echo up; exec sleep 30");
        for (int r = 0; r < 2; r++)
            run_read_until(&node[r], "up\n", 2);
        set_as_stranger("launch/v/1", cases[i].says);
        end_both(1, cases[i].shown);
        for (int r = 0; r < 2; r++)
            assert_null(strpbrk(node[r].text, "\033\a"));
    }
    static const char *const places[] = {"O ../x 2 2",        "O id 2", "O id 2 -2", "O id 2 2 2",
                                         "O id 2 4294967298", "O"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        choose_port();
        begin_node(0, "2", "--timeout", "9", "echo up");
        set_as_stranger("launch/v/0", places[i]);
        run_end(&node[0]);
        run_expect(&node[0], 1, "as launch/v/0, which no launcher writes");
        assert_int_equal(run_count(&node[0], "up\n"), 0);
    }
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
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_runs_in_a_row),
        cmocka_unit_test(test_late_reader),
        cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_logs),
        cmocka_unit_test(test_arrival),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_told),
        cmocka_unit_test(test_sent_and_gone),
        cmocka_unit_test(test_sleeps_while_stopping),
        cmocka_unit_test(test_restarts),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_signal_while_stopping),
        cmocka_unit_test(test_vanished),
        cmocka_unit_test(test_vanished_early),
        cmocka_unit_test(test_disagreements),
        cmocka_unit_test(test_strangers),
    };
    return cmocka_run_group_tests_name("launch_nodes", tests, NULL, NULL);
}
