/* SPDX-License-Identifier: Apache-2.0 */
/* How a client comes to be connected with a store's server, which may start later than it, and what
 * it says if it does not. */
#include "src/comm/store/wire.h"
#include "src/core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static const double first_pause_s = 0.01, last_pause_s = 0.5;
static const double attempt_s = 5; /* at one address; then it is the next one's turn */

/* How an attempt ended; of several addresses' the last in this list is told. From TOKEN_HERE on
 * another attempt would end in the same way. */
typedef enum outcome {
    NOTHING,
    REFUSED,
    FAILED, /* error */
    CLOSED, /* after it had accepted, without a greeting */
    SILENT,
    FULL,
    TOKEN_HERE, /* on one side alone */
    TOKEN_THERE,
    OTHER_TOKEN,
    UNPROVED, /* it takes our proof, and has none of its own */
    VERSION,
    FOREIGN,
    GREETED,
} outcome;

typedef struct attempt {
    outcome outcome;
    int error, fd;
    uint64_t version;
    unsigned char said[TSRI_WIRE_GREETING];
    size_t said_bytes;
} attempt;

static void connect_to(const struct addrinfo *at, double until_s, attempt *a)
{
    struct sockaddr_storage mine = {0}, theirs = {0};
    socklen_t mine_bytes = sizeof mine, theirs_bytes = sizeof theirs, bytes = sizeof a->error;
    a->outcome = FAILED;
    a->fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (a->fd < 0) {
        a->error = errno;
        return;
    }
    if (connect(a->fd, at->ai_addr, at->ai_addrlen) != 0) {
        a->error = errno;
        if (errno == EINPROGRESS && !tsri_store_await_socket(a->fd, true, until_s))
            a->error = ETIMEDOUT;
        else if (errno == EINPROGRESS)
            getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &a->error, &bytes);
    }
    /* Where nobody listens, a port of the ephemeral range may have been given to this very socket,
     * which then is connected with itself. */
    if (a->error == 0 && getsockname(a->fd, (struct sockaddr *)&mine, &mine_bytes) == 0 &&
        getpeername(a->fd, (struct sockaddr *)&theirs, &theirs_bytes) == 0 &&
        mine_bytes == theirs_bytes && memcmp(&mine, &theirs, mine_bytes) == 0)
        a->error = ECONNREFUSED;
    if (a->error == ECONNREFUSED)
        a->outcome = REFUSED;
    else if (a->error == 0)
        a->outcome = SILENT; /* until it says something */
}

/* Reads `bytes` of what the server says; the outcome says why not. */
static bool hear(double until_s, unsigned char *to, size_t bytes, size_t *used, attempt *a)
{
    while (*used < bytes) {
        if (!tsri_store_await_socket(a->fd, false, until_s))
            return false;
        ssize_t n = recv(a->fd, to + *used, bytes - *used, 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0) {
            a->outcome = CLOSED;
            return false;
        }
        *used += (size_t)n;
        if (to == a->said && memcmp(to, TSRI_WIRE_MAGIC, *used < 8 ? *used : 8) != 0) {
            a->outcome = FOREIGN;
            return false;
        }
    }
    return true;
}

/* The server's greeting: of another version, only what all versions have. */
static bool hear_greeting(double until_s, attempt *a)
{
    if (!hear(until_s, a->said, TSRI_WIRE_SALUTE, &a->said_bytes, a)) {
        if (a->outcome == CLOSED && a->said_bytes)
            a->outcome = FOREIGN;
        return false;
    }
    a->version = tsri_wire_get(a->said + 8, 4);
    if (a->version == TSRI_WIRE_VERSION)
        return hear(until_s, a->said, sizeof a->said, &a->said_bytes, a);
    a->outcome = VERSION;
    return false;
}

/* Proves the token, and has the server prove it. */
static void exchange_proofs(const tsri_store_token *token, double until_s,
                            const unsigned char mine[TSRI_WIRE_GREETING], attempt *a)
{
    unsigned char proof[TSRI_WIRE_PROOF], verdict[TSRI_WIRE_VERDICT];
    size_t used = 0;
    tsri_wire_prove(token, false, mine, a->said, proof);
    if (send(a->fd, proof, sizeof proof, MSG_NOSIGNAL) != sizeof proof) {
        a->outcome = CLOSED;
        return;
    }
    if (!hear(until_s, verdict, sizeof verdict, &used, a))
        return;
    tsri_wire_prove(token, true, mine, a->said, proof);
    if (tsri_wire_get(verdict, 4) != 0)
        a->outcome = OTHER_TOKEN;
    else
        a->outcome = tsri_hmac_is_same(verdict + 8, proof) ? GREETED : UNPROVED;
}

static void greet(const tsri_store_token *token, double until_s, attempt *a)
{
    unsigned char mine[TSRI_WIRE_GREETING];
    tsri_store_tune_socket(a->fd);
    if (tsri_wire_greeting(token, mine) != TSR_OK) {
        a->outcome = FAILED;
        a->error = errno;
        return;
    }
    if (send(a->fd, mine, sizeof mine, MSG_NOSIGNAL) != sizeof mine) {
        a->outcome = CLOSED;
        return;
    }
    if (!hear_greeting(until_s, a))
        return;
    if (tsri_wire_get(a->said + 12, 4) & TSRI_WIRE_IS_FULL) {
        a->outcome = FULL;
        return;
    }
    const bool has_token = tsri_wire_get(a->said + 12, 4) & TSRI_WIRE_HAS_TOKEN;
    if (has_token != (token->bytes > 0))
        a->outcome = has_token ? TOKEN_THERE : TOKEN_HERE;
    else
        exchange_proofs(token, until_s, mine, a);
}

/* All addresses of the host once. Returns getaddrinfo's error. */
static int try_all(const tsri_store_place *place, const tsri_store_token *token, double until_s,
                   attempt *best)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found;
    char service[16];
    snprintf(service, sizeof service, "%d", place->port);
    *best = (attempt){.fd = -1};
    int error = getaddrinfo(place->host, service, &hints, &found);
    if (error) {
        best->error = errno;
        return error;
    }
    for (const struct addrinfo *at = found; at && best->outcome != GREETED; at = at->ai_next) {
        const double by_s = fmin(until_s, tsri_now_s() + attempt_s);
        attempt a = {.fd = -1};
        connect_to(at, by_s, &a);
        if (a.outcome == SILENT)
            greet(token, by_s, &a);
        if (a.outcome != GREETED && a.fd >= 0)
            close(a.fd);
        if (a.outcome > best->outcome)
            *best = a;
    }
    freeaddrinfo(found);
    return 0;
}

static tsr_status say_host(const tsri_store_place *place, int error, int system_error)
{
    return tsri_fail(TSR_ERR_IO, "store: no such host: '%s': %s", place->host,
                     error == EAI_SYSTEM ? strerror(system_error) : gai_strerror(error));
}

static tsr_status say_foreign(const char *where, const attempt *a)
{
    char text[TSRI_WIRE_GREETING + 1];
    const tsri_bytes said = {a->said, a->said_bytes};
    return tsri_fail(TSR_ERR_IO,
                     "store: what listens at %s is no store of ours: it says '%s'; the port is "
                     "another program's",
                     where, tsri_store_key_text(said, text, sizeof text));
}

static tsr_status say_token(const char *where, outcome how)
{
    switch (how) {
    case TOKEN_HERE:
        return tsri_fail(TSR_ERR_MISMATCH,
                         "store: this process has a token and the server at %s has none: set "
                         "TESSERA_STORE_TOKEN there too, or here neither",
                         where);
    case TOKEN_THERE:
        return tsri_fail(TSR_ERR_MISMATCH,
                         "store: the server at %s wants a token and this process has none: set "
                         "TESSERA_STORE_TOKEN to the run's (tessera launch hands it to its ranks)",
                         where);
    case OTHER_TOKEN:
        return tsri_fail(TSR_ERR_MISMATCH,
                         "store: the server at %s has another token than this process: set "
                         "TESSERA_STORE_TOKEN to the same on all nodes",
                         where);
    default:
        return tsri_fail(TSR_ERR_MISMATCH,
                         "store: what listens at %s does not prove that it has this process's "
                         "token (TESSERA_STORE_TOKEN): it is no server of this run",
                         where);
    }
}

static tsr_status say_why(const char *where, bool rank0_serves, double seconds, const attempt *a)
{
    switch (a->outcome) {
    case REFUSED:
        return tsri_fail(
            TSR_ERR_TIMEOUT, "store: %s within %g s: nobody listens at %s (connection refused)",
            rank0_serves ? "rank 0, which serves, has not come" : "no server", seconds, where);
    case CLOSED:
        return tsri_fail(TSR_ERR_IO,
                         "store: what listens at %s closes connections %s a store's greeting, "
                         "for %g s: the port is another program's",
                         where, a->said_bytes ? "amid" : "without", seconds);
    case SILENT:
        return tsri_fail(TSR_ERR_TIMEOUT,
                         "store: what listens at %s says nothing, for %g s: the port is another "
                         "program's, or the store's server hangs",
                         where, seconds);
    case FULL:
        return tsri_fail(TSR_ERR_IO,
                         "store: the server at %s takes no more connections, for %g s: ranks hold "
                         "all that its limit of descriptors allows (ulimit -n)",
                         where, seconds);
    case TOKEN_HERE:
    case TOKEN_THERE:
    case OTHER_TOKEN:
    case UNPROVED:
        return say_token(where, a->outcome);
    case VERSION:
        return tsri_fail(TSR_ERR_MISMATCH,
                         "store: the server at %s speaks version %llu of our protocol, this is "
                         "version %d: all ranks need the same Tessera",
                         where, (unsigned long long)a->version, TSRI_WIRE_VERSION);
    case FOREIGN:
        return say_foreign(where, a);
    default:
        return tsri_fail(a->error == ETIMEDOUT ? TSR_ERR_TIMEOUT : TSR_ERR_IO,
                         "store: no connection to %s within %g s: %s", where, seconds,
                         strerror(a->error));
    }
}

/* Whether an attempt says nothing, but that it had next to no time. */
static bool was_cut_short(const attempt *a, double began_s)
{
    return tsri_now_s() - began_s < 1 &&
           (a->outcome == SILENT || (a->outcome == FAILED && a->error == ETIMEDOUT));
}

tsr_status tsri_store_dial(const tsri_store_place *place, const char *where, bool rank0_serves,
                           double until_s, double seconds, int *out_fd)
{
    double pause_s = first_pause_s;
    attempt last = {.outcome = NOTHING};
    tsri_store_token token;
    TSRI_TRY(tsri_store_env_token(&token));
    for (;;) {
        const double began_s = tsri_now_s();
        attempt a;
        int error = try_all(place, &token, until_s, &a);
        if (a.outcome == GREETED) {
            *out_fd = a.fd;
            return TSR_OK;
        }
        const double left_s = until_s - tsri_now_s();
        if (error && (error != EAI_AGAIN || left_s <= 0))
            return say_host(place, error, a.error);
        if (last.outcome == NOTHING || !was_cut_short(&a, began_s))
            last = a;
        if (left_s <= 0 || a.outcome >= TOKEN_HERE)
            return say_why(where, rank0_serves, seconds, &last);
        tsri_sleep_s(fmin(pause_s, left_s));
        pause_s = fmin(1.6 * pause_s, last_pause_s);
    }
}
