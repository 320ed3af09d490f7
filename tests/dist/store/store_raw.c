/* SPDX-License-Identifier: Apache-2.0 */
#include "store_raw.h"
#include "store_ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

int raw_connect(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

void say(int fd, const void *data, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = send(fd, (const char *)data + at, bytes - at, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        at += (size_t)n;
    }
}

void say_greeting(int fd)
{
    unsigned char mine[TSRI_WIRE_GREETING], its[TSRI_WIRE_GREETING], proof[TSRI_WIRE_PROOF];
    unsigned char verdict[TSRI_WIRE_VERDICT];
    tsri_store_token token;
    assert_int_equal(tsri_store_env_token(&token), TSR_OK);
    assert_int_equal(tsri_wire_greeting(&token, mine), TSR_OK);
    say(fd, mine, sizeof mine);
    assert_int_equal(recv(fd, its, sizeof its, MSG_WAITALL), sizeof its);
    assert_memory_equal(mine, its, TSRI_WIRE_SALUTE);
    tsri_wire_prove(&token, false, mine, its, proof);
    say(fd, proof, sizeof proof);
    assert_int_equal(recv(fd, verdict, sizeof verdict, MSG_WAITALL), sizeof verdict);
    assert_int_equal(tsri_wire_get(verdict, 8), 0);
    tsri_wire_prove(&token, true, mine, its, proof);
    assert_memory_equal(verdict + 8, proof, sizeof proof);
}

bool answer_greeting(int fd, bool slowly, void (*between)(void *), void *arg)
{
    unsigned char mine[TSRI_WIRE_GREETING], its[TSRI_WIRE_GREETING], proof[TSRI_WIRE_PROOF];
    unsigned char verdict[TSRI_WIRE_VERDICT] = {0};
    tsri_store_token token;
    if (tsri_store_env_token(&token) != TSR_OK || tsri_wire_greeting(&token, mine) != TSR_OK)
        return false;
    for (size_t i = 0; slowly && i < sizeof mine; i++) {
        between(arg);
        say(fd, mine + i, 1);
    }
    if (!slowly)
        say(fd, mine, sizeof mine);
    if (recv(fd, its, sizeof its, MSG_WAITALL) != sizeof its ||
        recv(fd, proof, sizeof proof, MSG_WAITALL) != sizeof proof)
        return false;
    tsri_wire_prove(&token, true, its, mine, verdict + 8);
    for (size_t i = 0; slowly && i < sizeof verdict; i++) {
        between(arg);
        say(fd, verdict + i, 1);
    }
    if (!slowly)
        say(fd, verdict, sizeof verdict);
    return true;
}

void expect_closed(int fd)
{
    char buf[4096];
    ssize_t n;
    do {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 5000) != 1)
            fail_msg("the server has not closed the connection");
        n = recv(fd, buf, sizeof buf, 0);
    } while (n > 0);
    close(fd);
}

size_t request(unsigned char *to, uint64_t payload, uint64_t op, double wait_s)
{
    uint64_t bits;
    memcpy(&bits, &wait_s, sizeof bits);
    tsri_wire_put(to, payload, 4);
    tsri_wire_put(to + 4, op, 4);
    tsri_wire_put(to + 8, 1, 8);
    tsri_wire_put(to + 16, bits, 8);
    return TSRI_WIRE_HEAD;
}
