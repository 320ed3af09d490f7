/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store's server and whatever its clients say. The first byte of an input says which of eight
 * connections have the token: these greet as they should, the others say the input's bytes alone.
 * Then come steps, a byte each: three bits for the connection, and the step:
 *
 *   0  N and N bytes: the connection says them
 *   1  OP, N and N bytes: it says a request with them as fields
 *   2  it is closed; what is said on it next is said on a new one
 *   3  its time is over, if it waits
 *   4  OP and four bytes: the head of a request of so many bytes
 */
#include "src/comm/store/server_inside.h"
#include "tests/fuzz/fuzz.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS = 8, STORED = 1 << 16, TALK = TSRI_WIRE_GREETING + TSRI_WIRE_VERDICT };

typedef struct input {
    const uint8_t *at, *end;
} input;

static tsri_store_server server;
static int fd[CONNECTIONS];       /* the clients' ends; -1: none */
static size_t heard[CONNECTIONS]; /* bytes since it was opened */
static uint8_t proven;            /* which are to greet */

static uint8_t take(input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

static size_t take_bytes(input *in, unsigned char *to)
{
    size_t n = take(in), left = (size_t)(in->end - in->at);
    n = n < left ? n : left;
    if (n)
        memcpy(to, in->at, n);
    in->at += n;
    return n;
}

/* The server's connection of a client, which is the last that has been opened, or was before. */
static tsri_conn *served[CONNECTIONS];

static bool is_there(const tsri_conn *wanted)
{
    for (const tsri_conn *c = server.first; c; c = c->next)
        if (c == wanted)
            return true;
    return false;
}

static void run_server(int i)
{
    tsri_server_go_on(&server);
    if (is_there(served[i]) && !served[i]->parked && !served[i]->stalled)
        tsri_conn_event(&server, served[i], EPOLLIN);
    tsri_server_go_on(&server);
}

static void hear(int i, unsigned char *to, size_t size)
{
    ssize_t n;
    size_t used = 0;
    unsigned char scratch[4096];
    while ((n = recv(fd[i], scratch, sizeof scratch, MSG_DONTWAIT)) > 0)
        for (ssize_t k = 0; k < n; k++, used++, heard[i]++)
            if (used < size)
                to[used] = scratch[k];
    FUZZ_MUST(proven >> i & 1 || heard[i] <= TALK, "a stranger heard %zu bytes", heard[i]);
}

static void say(int i, const void *data, size_t bytes)
{
    if (send(fd[i], data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        run_server(i);
    hear(i, NULL, 0);
}

static void greet(int i)
{
    unsigned char mine[TSRI_WIRE_GREETING], its[TSRI_WIRE_GREETING], proof[TSRI_WIRE_PROOF];
    FUZZ_MUST(tsri_wire_greeting(&server.token, mine) == TSR_OK, "no greeting");
    FUZZ_MUST(send(fd[i], mine, sizeof mine, MSG_NOSIGNAL) == sizeof mine, "no room");
    run_server(i);
    hear(i, its, sizeof its);
    tsri_wire_prove(&server.token, false, mine, its, proof);
    say(i, proof, sizeof proof);
    FUZZ_MUST(served[i]->greeted, "the token is not taken");
}

static void open_client(int i)
{
    int pair[2];
    if (fd[i] >= 0)
        return;
    FUZZ_MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0,
              "no sockets");
    fd[i] = pair[0];
    heard[i] = 0;
    tsri_conn_open(&server, pair[1]);
    served[i] = server.last;
    if (proven >> i & 1)
        greet(i);
}

static void close_client(int i)
{
    if (fd[i] < 0)
        return;
    close(fd[i]);
    fd[i] = -1;
    if (is_there(served[i]))
        tsri_conn_event(&server, served[i], EPOLLRDHUP);
    tsri_server_go_on(&server);
    served[i] = NULL;
}

static void say_request(int i, unsigned op, uint64_t payload, const unsigned char *fields, size_t n)
{
    unsigned char text[TSRI_WIRE_HEAD + 256] = {0};
    tsri_wire_put(text, payload, 4);
    tsri_wire_put(text + 4, op, 2);
    if (n)
        memcpy(text + TSRI_WIRE_HEAD, fields, n);
    say(i, text, TSRI_WIRE_HEAD + n);
}

static void take_step(input *in)
{
    unsigned char bytes[256];
    const uint8_t step = take(in);
    const int i = step & 7, kind = step >> 3 & 7;
    const uint8_t op = kind == 1 || kind >= 4 ? take(in) : 0;
    size_t n;
    open_client(i);
    switch (kind) {
    case 0:
        n = take_bytes(in, bytes);
        say(i, bytes, n);
        break;
    case 1:
        n = take_bytes(in, bytes);
        say_request(i, op, n, bytes, n);
        break;
    case 2:
        close_client(i);
        break;
    case 3:
        if (is_there(served[i]) && served[i]->parked)
            tsri_serve_timeout(&server, served[i]);
        tsri_server_go_on(&server);
        break;
    default:
        memset(bytes, 0, 4);
        for (n = 0; n < 4; n++)
            bytes[n] = take(in);
        say_request(i, op, tsri_wire_get(bytes, 4), NULL, 0);
    }
    tsri_conn_bury(&server);
}

/* Nothing is counted that is not there. */
static void check_empty(const tsri_store_server *s)
{
    FUZZ_MUST(!s->first && !s->greeted && !s->strangers && !s->members, "connections");
    FUZZ_MUST(!s->load.coming && !s->load.waiting && !s->load.going && !s->nstalled,
              "%zu, %zu, %zu, %d", s->load.coming, s->load.waiting, s->load.going, s->nstalled);
    FUZZ_MUST(!s->meetings && !s->seats, "%d seats", s->seats);
    FUZZ_MUST(s->map.entries == (size_t)s->map.there, "keys that are waited for by nobody");
    FUZZ_MUST(s->map.bytes <= STORED && (s->map.entries > 0) == (s->map.bytes > 0), "%zu bytes",
              s->map.bytes);
    FUZZ_MUST(proven || s->map.entries == 0, "a key that a stranger set");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char token[] = "0123456789abcdef";
    input in = {data, data + size};
    proven = take(&in);
    server = (tsri_store_server){.epoll_fd = epoll_create1(EPOLL_CLOEXEC),
                                 .map.max_bytes = STORED,
                                 .token.bytes = sizeof token - 1};
    FUZZ_MUST(server.epoll_fd >= 0, "no epoll");
    memcpy(server.token.text, token, sizeof token - 1);
    pthread_mutex_init(&server.lock, NULL);
    pthread_cond_init(&server.changed, NULL);
    for (int i = 0; i < CONNECTIONS; i++)
        fd[i] = -1;
    while (in.at < in.end)
        take_step(&in);
    for (int i = 0; i < CONNECTIONS; i++)
        close_client(i);
    tsri_conn_bury(&server);
    check_empty(&server);
    tsri_meet_finish(&server);
    tsri_store_map_finish(&server.map);
    pthread_cond_destroy(&server.changed);
    pthread_mutex_destroy(&server.lock);
    close(server.epoll_fd);
    return 0;
}
