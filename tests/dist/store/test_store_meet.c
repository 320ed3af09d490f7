/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks come together at a server: late, twice, not at all, again; and how it goes away. */
#include "src/comm/store/server_inside.h"
#include "src/comm/world/meet.h"
#include "store_ranks.h"

#include <tessera/world.h>

#include <errno.h>
#include <netdb.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void loopback(char *url, size_t size, int port)
{
    snprintf(url, size, "tcp://127.0.0.1:%d", port);
}

static tsri_store_server *serve(char *url, size_t size)
{
    tsri_store_server *server;
    if (tsri_store_server_start("127.0.0.1", 0, 0, &server) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    loopback(url, size, tsri_store_server_port(server));
    return server;
}

/* Until so many have joined. */
static void await_members(tsri_store_server *server, int wanted)
{
    const double until_s = now_s() + 60;
    for (int members = 0; members != wanted;) {
        pthread_mutex_lock(&server->lock);
        members = server->members;
        pthread_mutex_unlock(&server->lock);
        if (now_s() > until_s)
            fail_msg("%d ranks have joined after 60 s, and not %d", members, wanted);
        sleep_s(0.001);
    }
}

static void expect_error(tsr_status found, tsr_status status, const char *part)
{
    if (found != status || !strstr(tsr_last_error(), part))
        fail_msg("expected %s and '%s', got %s and '%s'", tsr_status_name(status), part,
                 tsr_status_name(found), tsr_last_error());
}

static void test_late_server(void **state)
{
    (void)state;
    crew c;
    char url[64];
    loopback(url, sizeof url, free_port());
    crew_make(&c, url, 4, NULL);
    for (int r = 3; r > 0; r--)
        crew_start(&c, r);
    sleep_s(0.7);
    crew_start(&c, 0);
    crew_finish(&c);
}

/* The ranks that have not come are named, to each. */
static void test_missing(void **state)
{
    (void)state;
    for (int hosted = 0; hosted < 2; hosted++) {
        crew c;
        char url[64];
        tsri_store_server *server = hosted ? serve(url, sizeof url) : NULL;
        if (!hosted)
            loopback(url, sizeof url, free_port());
        crew_make(&c, url, 6, NULL);
        c.hosted = hosted;
        c.timeout_s = 5;
        crew_start(&c, 0);
        sleep_s(0.1);
        crew_start(&c, 2);
        for (int r = 0; r < 3; r += 2) {
            crew_join(&c, r);
            crew_expect(&c, r, TSR_ERR_TIMEOUT, "store: ranks 1, 3-5 of 6 have not come to tcp://");
            crew_expect(&c, r, TSR_ERR_TIMEOUT, "within 5 s");
            assert_true(c.board->result[r].seconds < 30);
        }
        crew_free(&c);
        tsri_store_server_stop(server);
    }
    tsr_store *s;
    char url[64];
    loopback(url, sizeof url, free_port());
    expect_error(tsr_store_open(url, TSR_STORE_OPTS(.rank = 1, .nranks = 2, .timeout_s = 0.3), &s),
                 TSR_ERR_TIMEOUT,
                 "rank 0, which serves, has not come within 0.3 s: nobody listens");
    expect_error(tsri_store_connect(url, TSR_STORE_OPTS(.timeout_s = 0.3), &s), TSR_ERR_TIMEOUT,
                 "no server within 0.3 s: nobody listens at tcp://127.0.0.1:");
}

/* The second of a rank is told at once; the first doesn't notice. */
static void test_twice(void **state)
{
    (void)state;
    crew c;
    char url[64];
    tsr_store *s;
    tsri_store_server *server = serve(url, sizeof url);
    crew_make(&c, url, 3, NULL);
    c.hosted = true;
    crew_start(&c, 0);
    crew_start(&c, 1);
    await_members(server, 2);
    double start = now_s();
    expect_error(tsr_store_open(url, TSR_STORE_OPTS(.rank = 1, .nranks = 3), &s), TSR_ERR_INVALID,
                 "rank 1 has joined already: process ");
    expect_error(tsr_store_open(url, TSR_STORE_OPTS(.rank = 0, .nranks = 3, .hosted = true), &s),
                 TSR_ERR_INVALID, "rank 0 has joined already");
    expect_error(tsr_store_open(url, TSR_STORE_OPTS(.rank = 0, .nranks = 3), &s), TSR_ERR_IO,
                 "the port is taken: another program, or another run");
    expect_error(tsr_store_open(url, TSR_STORE_OPTS(.rank = 2, .nranks = 4), &s), TSR_ERR_MISMATCH,
                 "rank 2 of 4, but those who came before say that there are 3 ranks");
    assert_true(now_s() - start < 30);
    crew_start(&c, 2);
    crew_finish(&c);
    tsri_store_server_stop(server);
    /* Who waits in vain hears of it. */
    server = serve(url, sizeof url);
    crew_make(&c, url, 2, NULL);
    c.hosted = true;
    c.timeout_s = 5;
    crew_start(&c, 0);
    await_members(server, 1);
    expect_error(tsr_store_open(url, TSR_STORE_OPTS(.rank = 1, .nranks = 3), &s), TSR_ERR_MISMATCH,
                 "rank 1 of 3");
    crew_join(&c, 0);
    crew_expect(&c, 0, TSR_ERR_TIMEOUT, "rank 1 of 2 has not come to tcp://");
    crew_expect(&c, 0, TSR_ERR_TIMEOUT, "; rank 1 of 3 (process ");
    crew_free(&c);
    tsri_store_server_stop(server);
}

static tsr_status wait_for_ever(tsr_store *s, int rank, void *arg)
{
    static const char *const two[] = {"never", "ever"};
    crew_board *b = arg;
    char text[8];
    bool there;
    atomic_fetch_add(&b->flag[0], 1);
    if (rank == 0)
        sleep_s(100);
    tsr_status status = rank == 1 ? tsr_store_get(s, "never", text, sizeof text, NULL)
                                  : tsr_store_wait(s, 2, two, 0);
    char first[512];
    snprintf(first, sizeof first, "%s", tsr_last_error());
    CHECK(status == TSR_ERR_DEAD);
    const double start = now_s();
    CHECK(tsr_store_check(s, 2, two, &there) == TSR_ERR_DEAD); /* and stays so */
    CHECK(strcmp(tsr_last_error(), first) == 0);
    CHECK(now_s() - start < 30);
    return status;
}

static void test_server_is_killed(void **state)
{
    (void)state;
    crew c;
    char url[64];
    loopback(url, sizeof url, free_port());
    crew_make(&c, url, 3, wait_for_ever);
    c.processes = true;
    crew_start_all(&c);
    await_flag(&c.board->flag[0], 3);
    sleep_s(0.2);
    crew_kill(&c, 0);
    for (int r = 1; r < 3; r++) {
        crew_join(&c, r);
        crew_expect(&c, r, TSR_ERR_DEAD, "store: the server at tcp://127.0.0.1:");
        crew_expect(&c, r, TSR_ERR_DEAD, " (rank 0) is gone");
    }
    crew_expect(&c, 1, TSR_ERR_DEAD, "at tsr_store_get of 'never'");
    crew_expect(&c, 2, TSR_ERR_DEAD, "at tsr_store_wait of 'never' and 1 more");
    crew_free(&c);
}

/* A server that is stopped, and later goes on: calls end in time, and their late replies are not
 * taken for those of others. */
static tsr_status outlive(tsr_store *s, int rank, void *arg)
{
    crew_board *b = arg;
    int64_t n = 0;
    if (rank == 0) {
        await_flag(&b->flag[1], 1);
        return TSR_OK;
    }
    CHECK(tsr_store_set(s, "a", "12345", 5) == TSR_OK);
    atomic_store(&b->flag[0], 1);
    await_flag(&b->flag[0], 2);
    CHECK(tsr_store_set_timeout(s, 0.3) == TSR_OK);
    for (int i = 0; i < 3; i++) {
        CHECK(tsr_store_add(s, "a", 1, &n) == TSR_ERR_TIMEOUT && n == 0);
        CHECK_TEXT("tsr_store_add of 'a': the server at tcp://");
        CHECK_TEXT("does not answer");
    }
    atomic_store(&b->flag[0], 3);
    await_flag(&b->flag[0], 4);
    CHECK(tsr_store_set_timeout(s, 60) == TSR_OK);
    CHECK(tsr_store_count(s, &n) == TSR_OK && n == 1);
    CHECK(tsr_store_add(s, "a", 1, &n) == TSR_OK && n == 12349);
    atomic_store(&b->flag[1], 1);
    return TSR_OK;
}

static void test_server_is_stopped(void **state)
{
    (void)state;
    crew c;
    char url[64];
    loopback(url, sizeof url, free_port());
    crew_make(&c, url, 2, outlive);
    c.processes = true;
    crew_start_all(&c);
    await_flag(&c.board->flag[0], 1);
    int status;
    kill(c.pid[0], SIGSTOP);
    assert_int_equal(waitpid(c.pid[0], &status, WUNTRACED), c.pid[0]);
    assert_true(WIFSTOPPED(status));
    atomic_store(&c.board->flag[0], 2);
    await_flag(&c.board->flag[0], 3);
    kill(c.pid[0], SIGCONT);
    atomic_store(&c.board->flag[0], 4);
    crew_finish(&c);
}

/* A rank that is killed while the ranks meet may come again. */
static void test_come_again(void **state)
{
    (void)state;
    crew c;
    char url[64];
    loopback(url, sizeof url, free_port());
    crew_make(&c, url, 3, NULL);
    c.processes = true;
    crew_start(&c, 0);
    for (int i = 0; i < 5; i++) {
        crew_start(&c, 1);
        sleep_s(0.1);
        crew_kill(&c, 1);
    }
    crew_start(&c, 1);
    sleep_s(0.2);
    crew_start(&c, 2);
    crew_finish(&c);
}

/* Fifty runs on one port. */
static tsr_status count_to_one(tsr_store *s, int rank, void *arg)
{
    int64_t n;
    char key[16];
    (void)arg;
    snprintf(key, sizeof key, "rank-%d", rank);
    CHECK(tsr_store_add(s, key, 1, &n) == TSR_OK && n == 1);
    return TSR_OK;
}

static void test_one_port_many_runs(void **state)
{
    (void)state;
    char url[64];
    loopback(url, sizeof url, free_port());
    for (int i = 0; i < 50; i++) {
        crew c;
        crew_make(&c, url, 3, count_to_one);
        c.processes = i % 5 == 0;
        crew_start_all(&c);
        crew_finish(&c);
    }
}

/* On a server that stays: every round is a store of its own, and so is every prefix. */
static tsr_status again(tsr_store *s, int rank, void *arg)
{
    crew *c = arg;
    tsr_store *mine;
    (void)s;
    for (int i = 0; i < 20; i++) {
        TSRI_TRY(tsri_store_open_under(
            c->url, TSR_STORE_OPTS(.rank = rank, .nranks = c->nranks, .hosted = true), "again/",
            &mine));
        tsr_status status = count_to_one(mine, rank, NULL);
        tsr_store_close(mine);
        TSRI_TRY(status);
    }
    return TSR_OK;
}

static void test_rounds(void **state)
{
    (void)state;
    crew c;
    char url[64];
    tsr_store *all;
    int64_t n;
    tsri_store_server *server = serve(url, sizeof url);
    crew_make(&c, url, 4, again);
    c.hosted = true;
    c.arg = &c;
    crew_start_all(&c);
    crew_finish(&c);
    assert_int_equal(tsri_store_connect(url, NULL, &all), TSR_OK);
    assert_int_equal(tsr_store_rank(all), -1);
    assert_int_equal(tsr_store_count(all, &n), TSR_OK);
    assert_int_equal(n, 20 * 4);
    assert_int_equal(tsri_store_prefix(all, "again/"), TSR_OK);
    assert_int_equal(tsr_store_add(all, "rank-3", 0, &n), TSR_OK);
    assert_int_equal(n, 1);
    assert_int_equal(tsri_store_prefix(all, "again/round-7/"), TSR_OK);
    assert_int_equal(tsr_store_count(all, &n), TSR_OK);
    assert_int_equal(n, 4);
    tsr_store_close(all);
    tsri_store_server_stop(server);
}

static void test_prefixes(void **state)
{
    (void)state;
    char url[64], address[64], text[8], longest[1002];
    tsr_store *s[2];
    int64_t n;
    bool there;
    const char *key = "k";
    tsri_store_server *server = serve(url, sizeof url);
    for (int i = 0; i < 2; i++) /* the same rank, in runs that don't see each other */
        assert_int_equal(tsri_store_open_under(url, TSR_STORE_OPTS(.nranks = 1, .hosted = true),
                                               i ? "b/" : "a/", &s[i]),
                         TSR_OK);
    assert_int_equal(tsr_store_set(s[0], key, "0", 1), TSR_OK);
    assert_int_equal(tsr_store_check(s[1], 1, &key, &there), TSR_OK);
    assert_false(there);
    assert_int_equal(tsri_store_prefix(s[0], "x/"), TSR_OK);
    assert_int_equal(tsr_store_set(s[0], key, "1", 1), TSR_OK);
    assert_int_equal(tsr_store_count(s[0], &n), TSR_OK);
    assert_int_equal(n, 1);
    assert_int_equal(tsri_store_prefix(s[0], ""), TSR_OK);
    assert_int_equal(tsr_store_count(s[0], &n), TSR_OK);
    assert_int_equal(n, 2);
    assert_int_equal(tsr_store_get(s[0], "x/k", text, 8, NULL), TSR_OK);
    assert_int_equal(text[0], '1');
    memset(longest, 'p', sizeof longest);
    longest[1001] = 0;
    expect_error(tsri_store_prefix(s[0], longest), TSR_ERR_INVALID, "a prefix of 1003 bytes");
    longest[998] = 0;
    assert_int_equal(tsri_store_prefix(s[0], longest), TSR_OK);
    memset(longest, 'k', sizeof longest);
    longest[1000] = 0;
    assert_int_equal(tsr_store_set(s[0], longest, "y", 1), TSR_OK);
    assert_int_equal(tsr_store_get(s[0], longest, text, 8, NULL), TSR_OK);
    tsri_store_address(s[0], address, sizeof address);
    assert_string_equal(address, "127.0.0.1");
    tsr_store_close(s[0]);
    tsr_store_close(s[1]);
    tsri_store_server_stop(server);
}

static void test_environment(void **state)
{
    (void)state;
    char port[16];
    tsr_store *s;
    snprintf(port, sizeof port, "%d", free_port());
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "1", 1);
    setenv("MASTER_ADDR", "localhost", 1);
    setenv("MASTER_PORT", port, 1);
    assert_int_equal(tsr_store_open("env://", NULL, &s), TSR_OK);
    assert_int_equal(tsr_store_size(s), 1);
    assert_int_equal(tsr_store_set(s, "x", "", 0), TSR_OK);
    tsr_store_close(s);
    setenv("TESSERA_STORE_HOSTED", "1", 1);
    expect_error(tsr_store_open("env://", TSR_STORE_OPTS(.timeout_s = 0.2), &s), TSR_ERR_TIMEOUT,
                 "no server within 0.2 s");
    unsetenv("TESSERA_STORE_HOSTED");
    unsetenv("RANK");
    expect_error(tsr_store_open("env://", NULL, &s), TSR_ERR_INVALID,
                 "neither the environment nor the options say the rank");
}

/* Connections of that port that have been closed lately. */
static int count_closed(int port)
{
    FILE *f = fopen("/proc/net/tcp", "re");
    char line[512];
    int n = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        unsigned local, remote, how;
        if (sscanf(line, " %*d: %*x:%x %*x:%x %x", &local, &remote, &how) == 3 && how == 6 &&
            (local == (unsigned)port || remote == (unsigned)port))
            n++;
    }
    fclose(f);
    return n;
}

/* A world's rank 0 is named; while it is in an earlier world, its store is not worn out. */
static void test_world_without_rank_0(void **state)
{
    char url[64], method[128];
    tsr_world *world;
    tsr_store *s;
    (void)state;
    unsetenv("TESSERA_RUN_ID");
    unsetenv("TESSERA_RESTART_COUNT");
    loopback(url, sizeof url, free_port());
    snprintf(method, sizeof method, "%s?rank=1&world_size=2", url);
    expect_error(
        tsr_world_create(TSR_WORLD_OPTS(.init_method = method, .timeout_s = 0.3), &world),
        TSR_ERR_TIMEOUT,
        "rank 0 of 2, which serves, has not come: store: no server within 0.3 s: nobody listens");
    tsri_store_server *server = serve(url, sizeof url);
    /* The port may have been another test's in the last minute. */
    const int before = count_closed(tsri_store_server_port(server));
    snprintf(method, sizeof method, "%s?rank=1&world_size=2", url);
    assert_int_equal(tsri_store_connect(url, NULL, &s), TSR_OK);
    assert_int_equal(tsri_store_prefix(s, "tessera//"), TSR_OK);
    assert_int_equal(tsr_store_set(s, "kept by a world", "1", 1), TSR_OK);
    expect_error(tsr_world_create(TSR_WORLD_OPTS(.init_method = method, .timeout_s = 1), &world),
                 TSR_ERR_TIMEOUT,
                 "still that of an earlier world: rank 0 did not come to this one within 1 s");
    assert_in_range(count_closed(tsri_store_server_port(server)), 0, before + 2);
    tsr_store_close(s);
    tsri_store_server_stop(server);
}

/* Little more than what this process has mapped now. */
static tsr_status limit_memory(void)
{
    unsigned long long pages;
    FILE *f = fopen("/proc/self/statm", "re");
    CHECK(f && fscanf(f, "%llu", &pages) == 1);
    fclose(f);
    const rlim_t most = pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)256 << 20);
    const struct rlimit limit = {most, most};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    return TSR_OK;
}

/* Rank 2 can't map the arena of the machine. Rank 1 hears it in the arena, from rank 0, or in the
 * store, if it is so late that rank 0 has closed the file. */
static tsr_status meet_machine(tsr_store *s, int rank, void *arg)
{
    tsri_machine m;
    (void)arg;
    if (rank == 2)
        TSRI_TRY(limit_memory());
    tsr_status status = tsri_machine_meet(s, rank, 3, (size_t)1 << 30, &m);
    if (status == TSR_ERR_NO_MEMORY && rank == 1) {
        CHECK_TEXT("rank 2: can't map the arena of 3 ranks");
        return TSR_OK;
    }
    TSRI_TRY(status);
    CHECK(m.nranks == 3 && m.index == 1);
    const tsri_arena_head *head = tsri_arena_get_head(&m.arena);
    const double until_s = now_s() + 60;
    while (atomic_load(&head->abort_state) != 2 && now_s() < until_s)
        sleep_s(0.001);
    CHECK(atomic_load(&head->abort_state) == 2 && head->abort_rank == 2);
    CHECK(strstr(head->abort_text, "can't map the arena of 3 ranks"));
    tsri_arena_unmap(&m.arena);
    return TSR_OK;
}

static void test_machine_without_memory(void **state)
{
    (void)state;
    crew c;
    char url[64];
    loopback(url, sizeof url, free_port());
    crew_make(&c, url, 3, meet_machine);
    c.processes = true;
    crew_start_all(&c);
    for (int r = 0; r < 3; r++)
        assert_int_equal(crew_join(&c, r), 0);
    crew_expect(&c, 2, TSR_ERR_NO_MEMORY, "can't map the arena of 3 ranks");
    crew_expect(&c, 0, TSR_ERR_NO_MEMORY, "rank 2: can't map the arena of 3 ranks");
    crew_expect(&c, 1, TSR_OK, "");
    crew_free(&c);
}

enum { SKIPPED = 77 };

/* For this process alone; false: it may not. */
static bool set_hosts(const char *text)
{
    char path[] = "/tmp/tessera-hosts-XXXXXX";
    int fd = mkstemp(path);
    bool set = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) &&
               unshare(CLONE_NEWNS) == 0 &&
               mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
               mount(path, "/etc/hosts", NULL, MS_BIND, NULL) == 0;
    if (fd >= 0)
        close(fd), unlink(path);
    return set;
}

/* In a process in which "two" is several addresses of this machine: it is served at all of them. */
static tsr_status serve_two(int *out_addresses)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    tsri_store_server *server;
    tsr_store *s;
    char host[64], url[96];
    if (getaddrinfo("two", NULL, &hints, &found))
        return TSR_OK;
    TSRI_TRY(tsri_store_server_start("two", 0, 0, &server));
    for (const struct addrinfo *at = found; at; at = at->ai_next) {
        if (at->ai_family == AF_INET6 && !has_ipv6())
            continue;
        CHECK(getnameinfo(at->ai_addr, at->ai_addrlen, host, sizeof host, NULL, 0,
                          NI_NUMERICHOST) == 0);
        snprintf(url, sizeof url, at->ai_family == AF_INET6 ? "tcp://[%s]:%d" : "tcp://%s:%d", host,
                 tsri_store_server_port(server));
        TSRI_TRY(tsri_store_connect(url, TSR_STORE_OPTS(.timeout_s = 5), &s));
        tsr_store_close(s);
        ++*out_addresses;
    }
    freeaddrinfo(found);
    tsri_store_server_stop(server);
    /* Rank 0 waits where nobody comes from another machine, and says so; localhost is meant. */
    snprintf(url, sizeof url, "tcp://two:%d?rank=0&world_size=2", free_port());
    CHECK(tsr_store_open(url, TSR_STORE_OPTS(.timeout_s = 0.3), &s) == TSR_ERR_TIMEOUT);
    CHECK_TEXT("rank 1 of 2 has not come to ");
    CHECK_TEXT("rank 0's machine takes 'two' for itself, ");
    snprintf(url, sizeof url, "tcp://localhost:%d?rank=0&world_size=2", free_port());
    CHECK(tsr_store_open(url, TSR_STORE_OPTS(.timeout_s = 0.3), &s) == TSR_ERR_TIMEOUT);
    CHECK(!strstr(tsr_last_error(), "for itself"));
    return TSR_OK;
}

static void test_names(void **state)
{
    (void)state;
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int addresses = 0;
        if (!set_hosts("127.0.0.1 localhost\n127.0.0.2 two\n127.0.0.3 two\n::1 two\n"))
            _exit(SKIPPED);
        if (serve_two(&addresses) == TSR_OK)
            _exit(addresses > 1 ? 0 : SKIPPED);
        fprintf(stderr, "%s\n", tsr_last_error());
        _exit(1);
    }
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
        print_message("no namespaces of mounts here (root alone may make them)\n");
        skip();
    }
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late_server),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_server_is_killed),
        cmocka_unit_test(test_server_is_stopped),
        cmocka_unit_test(test_come_again),
        cmocka_unit_test(test_one_port_many_runs),
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_world_without_rank_0),
        cmocka_unit_test(test_machine_without_memory),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests_name("store_meet", tests, NULL, NULL);
}
