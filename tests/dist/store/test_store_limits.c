/* SPDX-License-Identifier: Apache-2.0 */
/* The limits on a store's clients that have greeted: connections, bytes, meetings. Each test
 * is an attack that went through once, with its figure before; and ranks get in meanwhile. */
#include "store_ranks.h"
#include "store_raw.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };
static tsri_store_server *server;
static char url[64];

static int start_server(void **state)
{
    (void)state;
    if (tsri_store_server_start("127.0.0.1", 0, 0, &server) != TSR_OK)
        return -1;
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", tsri_store_server_port(server));
    return 0;
}

static int stop_server(void **state)
{
    (void)state;
    tsri_store_server_stop(server);
    server = NULL;
    return 0;
}

static int client(void)
{
    int fd = raw_connect(tsri_store_server_port(server));
    say_greeting(fd);
    return fd;
}

/* A rank joins, sets and leaves, within seconds. */
static void expect_rank(const char *name)
{
    tsr_store *s;
    const double start = now_s();
    if (tsri_store_open_under(url, TSR_STORE_OPTS(.nranks = 1, .hosted = true, .timeout_s = 20),
                              name, &s) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    assert_int_equal(tsr_store_set(s, "key", "value", 5), TSR_OK);
    tsr_store_close(s);
    assert_true(now_s() - start < 8);
}

/* 128 MiB each way are the limit, twice that with buffers. ThreadSanitizer doubles memory. */
#ifdef __SANITIZE_THREAD__
enum { MOST_HELD = 1500 };
#else
enum { MOST_HELD = 500 };
#endif

/* MiB of this process's memory that are in use (1), or of its address space (0). */
static long used_mib(int field)
{
    long pages[2] = {0};
    FILE *f = fopen("/proc/self/statm", "re");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &pages[0], &pages[1]), 2);
    fclose(f);
    return pages[field] / (MIB / sysconf(_SC_PAGESIZE));
}

/* --- connections ------------------------------------------------------------------------------ */

/* Runs in a process of its own, so that its descriptors are not the server's; `ready` is of both.
 */
static pid_t begin_crowd(void (*fill)(void), _Atomic int **ready)
{
    *ready = mmap(NULL, sizeof **ready, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(*ready != MAP_FAILED);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        fill();
        atomic_store(*ready, 1);
        for (;;)
            pause();
    }
    return pid;
}

static void end_crowd(pid_t pid, _Atomic int *ready)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    munmap(ready, sizeof *ready);
}

static void greet_and_idle(void)
{
    struct rlimit many = {4096, 4096};
    setrlimit(RLIMIT_NOFILE, &many);
    for (int i = 0; i < 1015; i++)
        client();
}

/* 1,015 clients that have greeted kept a rank out of 1,024 descriptors. */
static void test_idle_clients(void **state)
{
    (void)state;
    struct rlimit old, few;
    _Atomic int *ready;
    tsr_store *rank;
    getrlimit(RLIMIT_NOFILE, &old);
    few = (struct rlimit){.rlim_cur = 1024, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_int_equal(
        tsri_store_open_under(url, TSR_STORE_OPTS(.nranks = 1, .hosted = true), "first/", &rank),
        TSR_OK);
    pid_t pid = begin_crowd(greet_and_idle, &ready);
    await_flag(ready, 1);
    expect_rank("second/");
    assert_true(count_fds() < 1024 - 100); /* some are left for the process itself */
    assert_int_equal(tsr_store_set(rank, "key", "", 0), TSR_OK); /* no rank has made way */
    tsr_store_close(rank);
    end_crowd(pid, ready);
    setrlimit(RLIMIT_NOFILE, &old);
}

/* Ranks make way for nobody: another one is told. */
static void test_full(void **state)
{
    (void)state;
    enum { MOST = 512 };
    static tsr_store *s[MOST];
    struct rlimit old, few;
    char name[16];
    int n = 0;
    tsr_status status = TSR_OK;
    getrlimit(RLIMIT_NOFILE, &old);
    few = old;
    few.rlim_cur = 8 * ((rlim_t)count_fds() + 4);
    const int most = 7 * (count_fds() + 4);
    assert_true(most < MOST);
    fflush(stdout);
    setrlimit(RLIMIT_NOFILE, &few);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setrlimit(RLIMIT_NOFILE, &old);
        for (; status == TSR_OK && n < MOST; n++) {
            snprintf(name, sizeof name, "run%d/", n);
            status = tsri_store_open_under(
                url, TSR_STORE_OPTS(.nranks = 1, .hosted = true, .timeout_s = 20), name, &s[n]);
        }
        _exit(status == TSR_ERR_IO && strstr(tsr_last_error(), "takes no more connections") &&
                      n == most + 1 && tsr_store_set(s[0], "key", "", 0) == TSR_OK
                  ? 0
                  : 1);
    }
    int code;
    waitpid(pid, &code, 0);
    setrlimit(RLIMIT_NOFILE, &old);
    assert_int_equal(code, 0);
}

/* --- bytes ------------------------------------------------------------------------------------ */

/* Sends the same bytes, at most `most` of them, on all connections, until none takes more. */
static void pour(const int *fd, int n, const void *chunk, size_t bytes, size_t most)
{
    size_t *sent = calloc((size_t)n, sizeof *sent);
    for (int idle = 0; idle < 30;) {
        size_t before = 0, after = 0;
        for (int i = 0; i < n; i++) {
            before += sent[i];
            const size_t left = most - sent[i];
            ssize_t k =
                left ? send(fd[i], chunk, left < bytes ? left : bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                     : 0;
            sent[i] += k > 0 ? (size_t)k : 0;
            after += sent[i];
        }
        idle = after == before ? idle + 1 : 0;
        if (after == before)
            sleep_s(0.01);
    }
    free(sent);
}

/* Half-sent requests held 990 MB. */
static void test_half_sent(void **state)
{
    (void)state;
    enum { MANY = 64 };
    int fd[MANY];
    unsigned char head[64];
    char *chunk = calloc(1, MIB);
    for (int i = 0; i < MANY; i++) {
        fd[i] = client();
        say(fd[i], head, request(head, 32 * MIB, TSRI_STORE_SET, 0));
    }
    const long before = used_mib(1);
    pour(fd, MANY, chunk, MIB, (size_t)15 * MIB + MIB / 2);
    const long held = used_mib(1) - before;
    if (held > MOST_HELD)
        fail_msg("half-sent requests hold %ld MiB", held);
    expect_rank("meanwhile/");
    for (int i = 0; i < MANY; i++)
        close(fd[i]);
    free(chunk);
    expect_rank("behind/");
}

/* A request that waits for room goes on as soon as there is some. */
static void test_room_again(void **state)
{
    (void)state;
    enum { MANY = 6 };
    int fd[MANY];
    unsigned char head[64], reply[TSRI_WIRE_HEAD];
    char *value = calloc(1, 16 * MIB);
    tsr_store *s;
    for (int i = 0; i < MANY - 1; i++) {
        fd[i] = client();
        say(fd[i], head, request(head, 32 * MIB, TSRI_STORE_SET, 0));
    }
    sleep_s(0.05); /* the last waits */
    assert_int_equal(tsri_store_connect(url, NULL, &s), TSR_OK);
    for (int i = 0; i < MANY - 1; i++)
        close(fd[i]);
    assert_int_equal(tsr_store_set(s, "key", value, 16 * MIB), TSR_OK);
    /* Two replies that are not read, and a third that is. */
    size_t n = request(head, 15, TSRI_STORE_GET, 1);
    memcpy(head + n, "\3\0\0\0key\xff\xff\xff\x7f\0\0\0\0", 15);
    for (int i = 0; i < MANY; i++) {
        fd[i] = client();
        say(fd[i], head, n + 15);
    }
    for (int i = MANY - 1; i >= 0; i--) {
        size_t left = 8 + 16 * MIB;
        assert_int_equal(recv(fd[i], reply, sizeof reply, MSG_WAITALL), sizeof reply);
        assert_int_equal(tsri_wire_get(reply, 4), left);
        for (ssize_t k = 1; left && k > 0; left -= (size_t)k)
            k = recv(fd[i], value, left < 16 * MIB ? left : 16 * MIB, 0);
        assert_int_equal(left, 0);
        close(fd[i]);
    }
    tsr_store_close(s);
    free(value);
}

/* Replies that nobody reads, of 16 MiB for 40 bytes each. */
static void test_unread(void **state)
{
    (void)state;
    enum { MANY = 64 };
    int fd[MANY];
    unsigned char ask[64];
    char *value = calloc(1, 16 * MIB);
    tsr_store *s;
    assert_int_equal(tsri_store_connect(url, NULL, &s), TSR_OK);
    assert_int_equal(tsr_store_set(s, "key", value, 16 * MIB), TSR_OK);
    free(value);
    const long before = used_mib(1);
    size_t n = request(ask, 15, TSRI_STORE_GET, 1);
    memcpy(ask + n, "\3\0\0\0key\xff\xff\xff\x7f\0\0\0\0", 15);
    for (int i = 0; i < MANY; i++) {
        fd[i] = client();
        say(fd[i], ask, n + 15);
    }
    assert_int_equal(tsr_store_add(s, "n", 1, NULL), TSR_OK);
    const long held = used_mib(1) - before;
    if (held > MOST_HELD)
        fail_msg("unread replies hold %ld MiB", held);
    expect_rank("meanwhile/");
    for (int i = 0; i < MANY; i++)
        close(fd[i]);
    tsr_store_close(s);
}

/* SETs held 2.6 GB. */
static void test_values(void **state)
{
    (void)state;
    char key[16], *value = calloc(1, 16 * MIB);
    tsr_status status = TSR_OK;
    tsr_store *s;
    int n = 0;
    assert_int_equal(tsri_store_connect(url, NULL, &s), TSR_OK);
    for (; status == TSR_OK && n < 40; n++) {
        snprintf(key, sizeof key, "%d", n);
        status = tsr_store_set(s, key, value, 16 * MIB);
    }
    assert_int_equal(status, TSR_ERR_NO_MEMORY);
    if (!strstr(tsr_last_error(), "the store is full: ") ||
        !strstr(tsr_last_error(), "legal are 268435456: delete what nobody needs"))
        fail_msg("%s", tsr_last_error());
    assert_int_equal(n, 16);
    expect_rank("small/");
    for (int again = 0; again < 20; again++) /* in place of one, there is room for it */
        assert_int_equal(tsr_store_set(s, "0", value, (size_t)(15 + again % 2) * MIB), TSR_OK);
    assert_int_equal(tsr_store_delete(s, "1", NULL), TSR_OK);
    assert_int_equal(tsr_store_set(s, "x", value, 16 * MIB), TSR_OK);
    assert_int_equal(tsr_store_set(s, "y", value, 16 * MIB), TSR_ERR_NO_MEMORY);
    tsr_store_close(s);
    free(value);
}

/* Requests that wait for many keys stay whole in memory. */
static void test_waits(void **state)
{
    (void)state;
    enum { KEYS = 15000, KEY = 2000, BYTES = 4 + KEYS * (4 + KEY), MANY = 3 };
    unsigned char *ask = calloc(1, TSRI_WIRE_HEAD + BYTES), *at = ask, reply[TSRI_WIRE_HEAD + 256];
    int fd[MANY];
    at += request(ask, BYTES, TSRI_STORE_WAIT, 60);
    tsri_wire_put(at, KEYS, 4);
    at += 4;
    for (int k = 0; k < KEYS; k++, at += 4 + KEY) {
        tsri_wire_put(at, KEY, 4);
        tsri_wire_put(at + 4, (uint64_t)k, 4);
    }
    for (int i = 0; i < MANY; i++) {
        fd[i] = client();
        say(fd[i], ask, TSRI_WIRE_HEAD + BYTES);
        sleep_s(0.1);
    }
    ssize_t n = recv(fd[MANY - 1], reply, sizeof reply - 1, 0);
    assert_true(n > TSRI_WIRE_HEAD);
    reply[n] = 0;
    assert_int_equal((int32_t)tsri_wire_get(reply + 4, 4), TSR_ERR_NO_MEMORY);
    assert_non_null(strstr((char *)reply + TSRI_WIRE_HEAD, "legal are 67108864 in all"));
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(recv(fd[i], reply, 1, MSG_DONTWAIT), -1);
        close(fd[i]);
    }
    expect_rank("behind/");
    free(ask);
}

/* --- meetings --------------------------------------------------------------------------------- */

static int join_alone(const char *name, int nranks)
{
    unsigned char ask[128];
    const size_t bytes = strlen(name);
    int fd = client();
    size_t n = request(ask, 16 + bytes, TSRI_STORE_JOIN, 60);
    tsri_wire_put(ask + n, bytes, 4);
    memcpy(ask + n + 4, name, bytes);
    n += 4 + bytes;
    tsri_wire_put(ask + n, 0, 4);
    tsri_wire_put(ask + n + 4, (uint64_t)nranks, 4);
    tsri_wire_put(ask + n + 8, 0, 4);
    say(fd, ask, n + 12);
    return fd;
}

/* Joins of 65,536 ranks each, under names of their own, took 1.2 GB of address space. */
static void test_joins(void **state)
{
    (void)state;
    enum { TIMES = 2000, SEATS = 4 };
    char name[32];
    int fd[SEATS + 1];
    unsigned char reply[TSRI_WIRE_HEAD + 256];
    join_alone("warm up", 65536);
    const long before = used_mib(0);
    for (int i = 0; i < TIMES; i++) {
        snprintf(name, sizeof name, "%d", i);
        close(join_alone(name, 65536));
    }
    expect_rank("behind/");
    const long grown = used_mib(0) - before;
    if (grown > 100)
        fail_msg("meetings that are over hold %ld MiB of address space", grown);
    stop_server(NULL);
    start_server(NULL);
    for (int i = 0; i <= SEATS; i++) {
        snprintf(name, sizeof name, "%d", i);
        fd[i] = join_alone(name, 65536);
        sleep_s(0.02);
    }
    ssize_t n = recv(fd[SEATS], reply, sizeof reply - 1, 0);
    assert_true(n > TSRI_WIRE_HEAD);
    reply[n] = 0;
    assert_non_null(strstr((char *)reply + TSRI_WIRE_HEAD, "327680 ranks in all, with these 65536: "
                                                           "legal are up to 262144"));
    for (int i = 0; i <= SEATS; i++)
        close(fd[i]);
    expect_rank("0");
}

#define WITH_SERVER(fn) cmocka_unit_test_setup_teardown(fn, start_server, stop_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(test_idle_clients), WITH_SERVER(test_full),   WITH_SERVER(test_half_sent),
        WITH_SERVER(test_room_again),   WITH_SERVER(test_unread), WITH_SERVER(test_values),
        WITH_SERVER(test_waits),        WITH_SERVER(test_joins),
    };
    return cmocka_run_group_tests_name("store_limits", tests, NULL, NULL);
}
