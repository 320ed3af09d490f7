/* SPDX-License-Identifier: Apache-2.0 */
/* The store's server against everything that is no proper client, its addresses and its end; and
 * its client against everything that is no proper server. */
#include "store_ranks.h"
#include "store_raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

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

static int stranger(void)
{
    return raw_connect(tsri_store_server_port(server));
}

/* A proper client is served meanwhile, and at once. */
static void expect_service(void)
{
    tsr_store *s;
    int64_t n;
    const double start = now_s();
    if (tsri_store_connect(url, TSR_STORE_OPTS(.timeout_s = 60), &s) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    for (int i = 0; i < 20; i++)
        assert_int_equal(tsr_store_add(s, "n", 1, &n), TSR_OK);
    tsr_store_close(s);
    assert_true(now_s() - start < 8); /* strangers are waited for for 10 s */
}

static void test_strangers(void **state)
{
    (void)state;
    static const char *const texts[] = {"GET / HTTP/1.1\r\n\r\n", "\n", "TSRT", "TSRS\r\n\r\r",
                                        "SSH-2.0-x\r\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int fd = stranger();
        say(fd, texts[i], strlen(texts[i]));
        expect_closed(fd);
    }
    /* It says its own version to earlier ones, whose greeting ends here, and to later ones. */
    for (int version = 1; version <= 3; version += 2) {
        unsigned char other[TSRI_WIRE_SALUTE], its[TSRI_WIRE_SALUTE];
        memcpy(other, TSRI_WIRE_MAGIC, 8);
        tsri_wire_put(other + 8, (uint64_t)version, 8);
        int fd = stranger();
        say(fd, other, sizeof other);
        assert_int_equal(recv(fd, its, sizeof its, MSG_WAITALL), sizeof its);
        assert_memory_equal(its, TSRI_WIRE_MAGIC, 8);
        assert_int_equal(tsri_wire_get(its + 8, 4), 2);
        expect_closed(fd);
    }
    expect_service();
}

/* Requests that make no sense. */
static void test_nonsense(void **state)
{
    (void)state;
    static const struct {
        uint64_t payload, op;
        double wait_s;
        const char *fields; /* in hex */
    } bad[] = {
        {0, 0, 0, ""},
        {0, TSRI_STORE_OP_END_, 0, ""},
        {0, 65537, 0, ""},
        /* Legal but for the operation: none, a later one, other bytes beside it. */
        {5, 0, 0, "010000006B"},
        {5, TSRI_STORE_OP_END_, 0, "010000006B"},
        {5, TSRI_STORE_DELETE | 1 << 8, 0, "010000006B"},
        {5, TSRI_STORE_DELETE | 1 << 16, 0, "010000006B"},
        {5, TSRI_STORE_DELETE | 1 << 24, 0, "010000006B"},
        {0xFFFFFFFF, TSRI_STORE_SET, 0, ""},
        {TSRI_WIRE_MAX_PAYLOAD + 1, TSRI_STORE_SET, 0, ""},
        {0, TSRI_STORE_SET, 0, ""},
        {4, TSRI_STORE_SET, 0, "00000000"},
        {8, TSRI_STORE_SET, 0, "0000000000000000"},          /* no key */
        {8, TSRI_STORE_SET, 0, "FFFFFFFF00000000"},          /* a key beyond the end */
        {9, TSRI_STORE_SET, 0, "010000006BFFFFFFFF"},        /* a value beyond it */
        {10, TSRI_STORE_SET, 0, "010000006B0000000000"},     /* one byte more */
        {5, TSRI_STORE_GET, 0, "010000006B"},                /* no room */
        {12, TSRI_STORE_ADD, 0, "010000006B01000000000000"}, /* a byte less, and one more */
        {14, TSRI_STORE_ADD, 0, "010000006B010000000000000000"},
        {6, TSRI_STORE_DELETE, 0, "010000006B00"},
        {5, TSRI_STORE_COUNT, 0, "0000000000"},
        {10, TSRI_STORE_CHECK, 0, "01000000010000006B00"},
        {5, TSRI_STORE_DELETE, 2e9, "010000006B"},              /* waits nobody can mean */
        {13, TSRI_STORE_GET, -1, "010000006BFFFFFFFFFFFFFFFF"}, /* a wait of less than nothing */
        {13, TSRI_STORE_GET, 1e300, "010000006BFFFFFFFFFFFFFFFF"},
        {4, TSRI_STORE_WAIT, 1, "FFFFFFFF"},
        {4, TSRI_STORE_WAIT, 1, "01000000"},
        {8, TSRI_STORE_CHECK, 1, "0100000000000000"},
        {9, TSRI_STORE_WAIT, 1, "00000000010000006B"},
        {0, TSRI_STORE_COUNT, 0, ""},
        {0, TSRI_STORE_JOIN, 0, ""},
        {16, TSRI_STORE_JOIN, 0, "00000000040000000400000000000000"}, /* rank 4 of 4 */
        {16, TSRI_STORE_JOIN, 0, "00000000000000000000000000000000"},
        {16, TSRI_STORE_JOIN, 0, "0000000000000000FFFFFFFF00000000"},
        {16, TSRI_STORE_JOIN, 0, "000000000000000001000000FFFFFFFF"},
    };
    unsigned char text[256];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t n = request(text, bad[i].payload, bad[i].op, bad[i].wait_s);
        for (const char *p = bad[i].fields; *p; p += 2) {
            unsigned byte;
            sscanf(p, "%2x", &byte);
            text[n++] = (unsigned char)byte;
        }
        int fd = stranger();
        say_greeting(fd);
        say(fd, text, n);
        expect_closed(fd);
    }
    expect_service();
}

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Random bytes behind a greeting, or a proper request in which bytes differ. A connection that the
 * server keeps waits for more. */
static void test_random(void **state)
{
    (void)state;
    uint64_t seed = 7;
    unsigned char text[300];
    const int fds = count_fds();
    for (int i = 0; i < 600; i++) {
        const size_t payload = 5 + (size_t)(draw(&seed) % 200);
        size_t n = request(text, payload, 1 + draw(&seed) % 9, 0.01);
        for (size_t b = 0; b < payload; b++)
            text[n++] = (unsigned char)(draw(&seed) & (draw(&seed) & 1 ? 255 : 3));
        for (int changes = (int)(draw(&seed) % 3); changes > 0; changes--)
            text[draw(&seed) % (i & 1 ? n : 8)] = (unsigned char)draw(&seed);
        int fd = stranger();
        say_greeting(fd);
        say(fd, text, draw(&seed) % (n + 1));
        if (i % 3 == 0)
            shutdown(fd, SHUT_WR);
        close(fd);
    }
    expect_service();
    for (int tries = 0; count_fds() != fds && tries < 500; tries++)
        sleep_s(0.01);
    assert_int_equal(count_fds(), fds);
}

/* Who connects and says nothing, or half of something; very many of them. */
static void test_half_open(void **state)
{
    (void)state;
    /* With the server's half still below 1024 descriptors; HALF has sent 23 bytes of a request. */
    enum { MANY = 400, HALF = 3 };
    static int fd[MANY];
    unsigned char text[64];
    for (int i = 0; i < MANY; i++) {
        fd[i] = stranger();
        if (i % 4 == 1) {
            say(fd[i], TSRI_WIRE_MAGIC, 5);
        } else if (i % 4 >= 2 && i < 200) {
            say_greeting(fd[i]);
            /* 32 MiB are to come, of which the server gets and keeps a few bytes. */
            say(fd[i], text, request(text, TSRI_WIRE_MAX_PAYLOAD, TSRI_STORE_SET, 0) - (i & 1));
        }
    }
    expect_service();
    expect_closed(fd[0]); /* at once: there are too many */
    for (int i = 1; i < MANY - 1; i++)
        if (i != HALF)
            close(fd[i]);
    expect_service();
    /* Two are left alone for a while, and then closed too. */
    for (int tries = 0; tries < 40; tries++) {
        struct pollfd p = {.fd = fd[MANY - 1], .events = POLLIN};
        if (poll(&p, 1, 1000) == 1)
            break;
        assert_true(tries < 39);
    }
    expect_closed(fd[MANY - 1]);
    expect_closed(fd[HALF]);
}

/* Who asks and asks, and reads nothing. */
static void test_deaf(void **state)
{
    (void)state;
    enum { DEAF = 8 };
    tsr_store *s;
    int fd[DEAF];
    unsigned char text[64];
    char *value = calloc(1, TSRI_STORE_MAX_VALUE);
    assert_int_equal(tsri_store_connect(url, NULL, &s), TSR_OK);
    assert_int_equal(tsr_store_set(s, "k", value, TSRI_STORE_MAX_VALUE), TSR_OK);
    free(value);
    size_t n = request(text, 13, TSRI_STORE_GET, 1);
    memcpy(text + n, "\1\0\0\0k\xff\xff\xff\0\0\0\0\0", 13);
    for (int i = 0; i < DEAF; i++) {
        fd[i] = stranger();
        say_greeting(fd[i]);
        fcntl(fd[i], F_SETFL, O_NONBLOCK);
        for (int asks = 0; asks < 10000; asks++)
            say(fd[i], text, n + 13);
    }
    expect_service();
    for (int i = 0; i < DEAF; i++)
        close(fd[i]);
    assert_int_equal(tsr_store_delete(s, "k", NULL), TSR_OK);
    tsr_store_close(s);
}

static double seconds_of(const struct rusage *r)
{
    return (double)(r->ru_utime.tv_sec + r->ru_stime.tv_sec) +
           1e-6 * (double)(r->ru_utime.tv_usec + r->ru_stime.tv_usec);
}

/* More connections than there are descriptors: the server waits for some to be free. */
static void test_no_descriptors(void **state)
{
    (void)state;
    struct rlimit old, few;
    int fd[256], n = 0;
    tsr_store *s;
    unsigned char mine[TSRI_WIRE_GREETING];
    const tsri_store_token none = {0};
    assert_int_equal(tsri_wire_greeting(&none, mine), TSR_OK);
    expect_service();
    assert_int_equal(tsri_store_connect(url, NULL, &s), TSR_OK);
    getrlimit(RLIMIT_NOFILE, &old);
    few = old;
    few.rlim_cur = (rlim_t)count_fds() + 60;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    while (n < 256 && (fd[n] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0) {
        struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)tsri_store_server_port(server)),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        assert_int_equal(connect(fd[n], (struct sockaddr *)&at, sizeof at), 0);
        say(fd[n++], mine, sizeof mine); /* else the server would close it to accept the next */
        /* The server drops the client that has been idle longest: this one must not be. */
        assert_int_equal(tsr_store_add(s, "n", 1, NULL), TSR_OK);
    }
    assert_int_equal(tsr_store_add(s, "n", 1, NULL), TSR_OK);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    sleep_s(1);
    getrusage(RUSAGE_SELF, &after);
    assert_true(seconds_of(&after) - seconds_of(&before) < 0.5); /* it waits, and doesn't spin */
    for (int i = 0; i < n; i++)
        close(fd[i]);
    setrlimit(RLIMIT_NOFILE, &old);
    tsr_store_close(s);
    expect_service();
}

/* Requests in one go are answered in their order; the server parks the second until the third,
 * from elsewhere. */
static void test_pipelined(void **state)
{
    (void)state;
    unsigned char text[256], reply[TSRI_WIRE_HEAD + 8 + 3];
    tsr_store *s;
    int fd = stranger();
    say_greeting(fd);
    size_t n = request(text, 5 + 8, TSRI_STORE_ADD, 0);
    memcpy(text + n, "\1\0\0\0c\2\0\0\0\0\0\0\0", 13);
    n += 13;
    size_t second = n;
    n += request(text + n, 13, TSRI_STORE_GET, 60);
    tsri_wire_put(text + second + 8, 2, 8);
    memcpy(text + n, "\1\0\0\0w\3\0\0\0\0\0\0\0", 13);
    n += 13;
    say(fd, text, n);
    say(fd, text, 37);
    assert_int_equal(recv(fd, reply, 32, MSG_WAITALL), 32);
    assert_int_equal(tsri_wire_get(reply + 24, 8), 2);
    assert_int_equal(tsri_store_connect(url, NULL, &s), TSR_OK);
    assert_int_equal(tsr_store_set(s, "w", "abc", 3), TSR_OK);
    assert_int_equal(recv(fd, reply, 35, MSG_WAITALL), 35);
    assert_int_equal(tsri_wire_get(reply + 8, 8), 2);
    assert_int_equal(tsri_wire_get(reply + 24, 8), 3);
    assert_memory_equal(reply + 32, "abc", 3);
    assert_int_equal(recv(fd, reply, 32, MSG_WAITALL), 32);
    assert_int_equal(tsri_wire_get(reply + 24, 8), 4);
    close(fd);
    tsr_store_close(s);
}

/* --- addresses -------------------------------------------------------------------------------- */

static void test_addresses(void **state)
{
    (void)state;
    tsri_store_server *other;
    const int port = tsri_store_server_port(server);
    static const struct {
        const char *host;
        int port;
        tsr_status status;
        const char *text;
    } bad[] = {
        {NULL, 0, TSR_ERR_INVALID, "can't serve at no host"},
        {"", 0, TSR_ERR_INVALID, "no host"},
        {"127.0.0.1", -1, TSR_ERR_INVALID, "port -1"},
        {"127.0.0.1", 65536, TSR_ERR_INVALID, "port 65536"},
        {"no-such-host.invalid", 0, TSR_ERR_IO, "no such host"},
        {"192.0.2.1", 0, TSR_ERR_IO, "this is no address of this machine"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tsri_store_server_start(bad[i].host, bad[i].port, 0, &other),
                         bad[i].status);
        if (!strstr(tsr_last_error(), bad[i].text))
            fail_msg("expected '%s', got '%s'", bad[i].text, tsr_last_error());
    }
    assert_int_equal(tsri_store_server_start("127.0.0.1", port, 0, &other), TSR_ERR_IO);
    assert_non_null(strstr(tsr_last_error(), "the port is taken"));
    assert_int_equal(tsri_store_server_start("127.0.0.1", 0, -1, &other), TSR_ERR_INVALID);
    assert_int_equal(tsri_store_server_start("127.0.0.1", 0, 0, NULL), TSR_ERR_INVALID);
    /* That address alone: another one's same port is free. */
    assert_int_equal(tsri_store_server_start("127.0.0.2", port, 0, &other), TSR_OK);
    assert_int_equal(tsri_store_server_port(other), port);
    tsri_store_server_stop(other);
    tsr_store *s;
    assert_int_equal(tsr_store_open("tcp://no-such-host.invalid:1?rank=1&world_size=2",
                                    TSR_STORE_OPTS(.timeout_s = 3), &s),
                     TSR_ERR_IO);
    assert_non_null(strstr(tsr_last_error(), "no such host: 'no-such-host.invalid'"));
}

static void test_ipv6(void **state)
{
    (void)state;
    tsri_store_server *six;
    tsr_store *s;
    char at[64], address[64];
    if (!has_ipv6())
        skip();
    if (tsri_store_server_start("::1", 0, 0, &six) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    snprintf(at, sizeof at, "tcp://[::1]:%d", tsri_store_server_port(six));
    assert_int_equal(tsri_store_connect(at, NULL, &s), TSR_OK);
    tsri_store_address(s, address, sizeof address);
    assert_string_equal(address, "::1");
    tsr_store_close(s);
    /* A name with several addresses, of which one is served. */
    snprintf(at, sizeof at, "tcp://localhost:%d", tsri_store_server_port(server));
    assert_int_equal(tsri_store_connect(at, NULL, &s), TSR_OK);
    tsr_store_close(s);
    tsri_store_server_stop(six);
}

/* --- its end ---------------------------------------------------------------------------------- */

static void test_idle(void **state)
{
    (void)state;
    tsri_store_server *brief;
    tsr_store *s;
    char at[64];
    assert_int_equal(tsri_store_server_start("127.0.0.1", 0, 0.5, &brief), TSR_OK);
    snprintf(at, sizeof at, "tcp://127.0.0.1:%d", tsri_store_server_port(brief));
    assert_int_equal(tsri_store_connect(at, NULL, &s), TSR_OK);
    int fd = raw_connect(tsri_store_server_port(brief)); /* a stranger doesn't count */
    sleep_s(1);
    assert_true(tsri_store_server_running(brief));
    assert_int_equal(tsr_store_set(s, "x", "", 0), TSR_OK);
    tsr_store_close(s);
    const double start = now_s();
    while (tsri_store_server_running(brief) && now_s() - start < 8)
        sleep_s(0.01);
    assert_false(tsri_store_server_running(brief));
    close(fd);
    assert_int_equal(tsri_store_connect(at, TSR_STORE_OPTS(.timeout_s = 0.2), &s), TSR_ERR_TIMEOUT);
    assert_true(tsri_store_server_drain(brief, 10));
    tsri_store_server_stop(brief);
}

static void test_drain(void **state)
{
    (void)state;
    tsr_store *s[2], *other;
    assert_int_equal(tsri_store_connect(url, NULL, &s[1]), TSR_OK); /* hasn't joined */
    assert_int_equal(tsr_store_open(url, TSR_STORE_OPTS(.nranks = 1, .hosted = true), &s[0]),
                     TSR_OK);
    assert_false(tsri_store_server_drain(server, 0.2));
    assert_int_equal(tsri_store_connect(url, TSR_STORE_OPTS(.timeout_s = 0.2), &other),
                     TSR_ERR_TIMEOUT);
    assert_int_equal(tsr_store_set(s[0], "x", "", 0), TSR_OK);
    tsr_store_close(s[0]);
    assert_true(tsri_store_server_drain(server, 60));
    stop_server(NULL);
    assert_int_equal(tsr_store_set(s[1], "x", "", 0), TSR_ERR_DEAD);
    assert_non_null(strstr(tsr_last_error(), "is gone"));
    tsr_store_close(s[1]);
}

/* --- other programs' servers ------------------------------------------------------------------ */

typedef struct impostor {
    int fd;
    const void *says;
    size_t bytes;
    bool stays, greets; /* greets: as a server does, before it says that */
} impostor;

/* Accepts until it is shut down. */
static void *pretend(void *arg)
{
    const impostor *i = arg;
    int held[256], n = 0;
    for (int fd; n < 256 && (fd = accept(i->fd, NULL, NULL)) >= 0;) {
        if (!i->greets || answer_greeting(fd, false, NULL, NULL))
            say(fd, i->says, i->bytes);
        if (i->stays)
            held[n++] = fd;
        else
            close(fd);
    }
    while (n > 0)
        close(held[--n]);
    return NULL;
}

/* Listens at a free port of loopback; writes the URL of a store that would be there. */
static int listen_as_store(char its[static 64])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 16), 0);
    getsockname(fd, (struct sockaddr *)&at, &size);
    snprintf(its, 64, "tcp://127.0.0.1:%d", ntohs(at.sin_port));
    return fd;
}

static void expect_impostor(impostor i, tsr_status status, const char *part)
{
    char its[64];
    i.fd = listen_as_store(its);
    pthread_t thread;
    tsr_store *s;
    assert_int_equal(pthread_create(&thread, NULL, pretend, &i), 0);
    tsr_status found =
        tsr_store_open(its, TSR_STORE_OPTS(.rank = 1, .nranks = 2, .timeout_s = 3), &s);
    if (found != status || !strstr(tsr_last_error(), part))
        fail_msg("expected %s and '%s', got %s and '%s'", tsr_status_name(status), part,
                 tsr_status_name(found), tsr_last_error());
    shutdown(i.fd, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(i.fd);
}

static void test_impostors(void **state)
{
    (void)state;
    static const char http[] = "HTTP/1.1 400 Bad Request\r\n\r\n", ssh[] = "SSH-2.0-x\r\n";
    unsigned char later[TSRI_WIRE_SALUTE] = TSRI_WIRE_MAGIC, head[TSRI_WIRE_HEAD] = {0};
    unsigned char unproved[TSRI_WIRE_GREETING + TSRI_WIRE_VERDICT] = TSRI_WIRE_MAGIC;
    later[8] = 9;
    unproved[8] = TSRI_WIRE_VERSION;
    expect_impostor((impostor){.says = http, .bytes = sizeof http - 1}, TSR_ERR_IO,
                    "it says 'HTTP/1.1 400");
    expect_impostor((impostor){.says = ssh, .bytes = sizeof ssh - 1, .stays = true}, TSR_ERR_IO,
                    "is no store of ours: it says 'SSH-2.0");
    expect_impostor((impostor){.says = "TSRS\r\n", .bytes = 6}, TSR_ERR_IO, "is no store of ours");
    expect_impostor((impostor){0}, TSR_ERR_IO, "closes connections without a store's greeting");
    expect_impostor((impostor){.says = unproved, .bytes = TSRI_WIRE_GREETING}, TSR_ERR_IO,
                    "closes connections amid a store's greeting");
    expect_impostor((impostor){.stays = true}, TSR_ERR_TIMEOUT, "says nothing, for 3 s");
    expect_impostor((impostor){.says = later, .bytes = sizeof later, .stays = true},
                    TSR_ERR_MISMATCH, "speaks version 9");
    expect_impostor((impostor){.says = unproved, .bytes = sizeof unproved, .stays = true},
                    TSR_ERR_MISMATCH, "does not prove that it has this process's token");
    expect_impostor((impostor){.greets = true, .stays = true}, TSR_ERR_TIMEOUT, "does not answer");
    expect_impostor((impostor){.greets = true}, TSR_ERR_DEAD, "is gone");
    impostor sick = {.says = head, .bytes = sizeof head, .greets = true, .stays = true};
    memset(head, 0xFF, sizeof head);
    expect_impostor(sick, TSR_ERR_DEAD, "makes no sense");
    memset(head, 0, sizeof head);
    head[8] = 1;
    expect_impostor(sick, TSR_ERR_DEAD, "makes no sense");
    head[4] = 5;
    expect_impostor(sick, TSR_ERR_DEAD, "replies with status 5, which is none");
    static const tsr_status errors[] = {TSR_ERR_INVALID, TSR_ERR_TIMEOUT};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        unsigned char error[TSRI_WIRE_HEAD + 6] = {6, [8] = 1};
        tsri_wire_put(error + 4, (uint32_t)errors[i], 4);
        memcpy(error + TSRI_WIRE_HEAD, "a\033[m\233", 6);
        const impostor rude = {.says = error, .bytes = sizeof error, .greets = true, .stays = true};
        expect_impostor(rude, errors[i], "a?[m?");
    }
}

static void on_signal(int sig)
{
    (void)sig;
}

/* A server that greets byte by byte; in between, a signal finds the client waiting. */
typedef struct stammer {
    int fd;
    pthread_t client;
} stammer;

static void interrupt(void *arg)
{
    const stammer *t = arg;
    usleep(2000);
    pthread_kill(t->client, SIGUSR1);
    usleep(2000);
}

static void *greet_slowly(void *arg)
{
    stammer *t = arg;
    const int fd = accept(t->fd, NULL, NULL);
    answer_greeting(fd, true, interrupt, t);
    close(fd);
    return NULL;
}

static void test_interrupted_greeting(void **state)
{
    (void)state;
    char its[64];
    struct sigaction act = {.sa_handler = on_signal}, before;
    stammer t = {.fd = listen_as_store(its), .client = pthread_self()};
    pthread_t thread;
    tsr_store *s;
    sigaction(SIGUSR1, &act, &before);
    assert_int_equal(pthread_create(&thread, NULL, greet_slowly, &t), 0);
    if (tsri_store_connect(its, TSR_STORE_OPTS(.timeout_s = 4), &s) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    tsr_store_close(s);
    pthread_join(thread, NULL);
    sigaction(SIGUSR1, &before, NULL);
    close(t.fd);
}

static void test_nothing_is_left(void **state)
{
    (void)state;
    const int fds = count_fds(), threads = count_threads();
    for (int i = 0; i < 5; i++) {
        tsri_store_server *other;
        assert_int_equal(tsri_store_server_start("127.0.0.1", 0, 0, &other), TSR_OK);
        int fd = raw_connect(tsri_store_server_port(other));
        say_greeting(fd);
        tsri_store_server_stop(other);
        expect_closed(fd);
    }
    assert_int_equal(count_fds(), fds);
    expect_threads(threads);
}

#define WITH_SERVER(fn) cmocka_unit_test_setup_teardown(fn, start_server, stop_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(test_strangers),
        WITH_SERVER(test_nonsense),
        WITH_SERVER(test_random),
        WITH_SERVER(test_half_open),
        WITH_SERVER(test_deaf),
        WITH_SERVER(test_no_descriptors),
        WITH_SERVER(test_pipelined),
        WITH_SERVER(test_addresses),
        WITH_SERVER(test_ipv6),
        cmocka_unit_test(test_idle),
        WITH_SERVER(test_drain),
        cmocka_unit_test(test_impostors),
        cmocka_unit_test(test_interrupted_greeting),
        WITH_SERVER(test_nothing_is_left),
    };
    return cmocka_run_group_tests_name("store_server", tests, NULL, NULL);
}
