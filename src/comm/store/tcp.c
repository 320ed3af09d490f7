/* SPDX-License-Identifier: Apache-2.0 */
/* The client of a store's server; rank 0's holds the server too. */
#include "src/comm/store/wire.h"
#include "src/core/clock.h"
#include "src/core/foreign.h"
#include "src/core/mem.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* How much longer than the server a client waits for what is to come at the latest now. */
static const double grace_s = 3;
enum { KEEP_ROOM = 65536 };

typedef struct tcp_store {
    int fd;
    tsri_store_server *server; /* rank 0's */
    bool joined, rank0_serves;
    uint64_t number; /* of the last request */
    /* A request, then its reply's payload. */
    unsigned char *buf;
    size_t used, room;
    /* A reply that came too late for its call: the part of its head that is there, and the payload
     * that is still to be thrown away. */
    unsigned char head[TSRI_WIRE_HEAD];
    size_t head_used, skip;
} tcp_store;

static tsr_status make_room(tcp_store *t, size_t bytes)
{
    if (t->room >= bytes)
        return TSR_OK;
    unsigned char *buf = tsri_mem_realloc(NULL, t->buf, bytes);
    TSRI_NEED(buf);
    t->buf = buf;
    t->room = bytes;
    return TSR_OK;
}

/* --- a request's bytes; make_room has seen to it that there is room --------------------------- */

static void put_number(tcp_store *t, uint64_t value, int bytes)
{
    tsri_wire_put(t->buf + t->used, value, bytes);
    t->used += (size_t)bytes;
}

static void put_raw(tcp_store *t, const void *data, size_t bytes)
{
    if (bytes)
        memcpy(t->buf + t->used, data, bytes);
    t->used += bytes;
}

static void put_bytes(tcp_store *t, tsri_bytes b)
{
    put_number(t, b.bytes, 4);
    put_raw(t, b.data, b.bytes);
}

static void put_key(tcp_store *t, const char *prefix, const char *key)
{
    put_number(t, strlen(prefix) + strlen(key), 4);
    put_raw(t, prefix, strlen(prefix));
    put_raw(t, key, strlen(key));
}

static tsr_status begin_request(tcp_store *t, tsri_store_op op, double wait_s, size_t payload)
{
    uint64_t bits;
    if (payload > TSRI_WIRE_MAX_PAYLOAD)
        return tsri_fail(TSR_ERR_INVALID, "store: keys of %zu bytes in one call: legal are %d",
                         payload, TSRI_WIRE_MAX_PAYLOAD);
    TSRI_TRY(make_room(t, TSRI_WIRE_HEAD + payload));
    memcpy(&bits, &wait_s, sizeof bits);
    t->used = 0;
    put_number(t, payload, 4);
    put_number(t, (uint64_t)op, 4);
    put_number(t, ++t->number, 8);
    put_number(t, bits, 8);
    return TSR_OK;
}

static tsr_status write_request(tcp_store *t, const tsr_store *store, const tsri_store_call *call)
{
    const bool is_list = call->op == TSRI_STORE_WAIT || call->op == TSRI_STORE_CHECK;
    const tsri_store_ask *ask = &call->ask;
    /* An upper limit of keys, sizes and values. */
    size_t payload = 16 + ask->value.bytes + ask->expected.bytes;
    for (int i = 0; i < call->nkeys; i++)
        payload += 4 + strlen(store->prefix) + strlen(call->keys[i]);
    if (call->op == TSRI_STORE_COUNT)
        payload += strlen(store->prefix);
    TSRI_TRY(begin_request(t, call->op, fmin(call->timeout_s, TSRI_WIRE_MAX_WAIT_S), payload));
    if (is_list)
        put_number(t, (uint64_t)call->nkeys, 4);
    for (int i = 0; i < call->nkeys; i++)
        put_key(t, store->prefix, call->keys[i]);
    if (call->op == TSRI_STORE_COUNT)
        put_key(t, store->prefix, "");
    if (call->op == TSRI_STORE_COMPARE_SET)
        put_bytes(t, ask->expected);
    if (call->op == TSRI_STORE_SET || call->op == TSRI_STORE_COMPARE_SET)
        put_bytes(t, ask->value);
    if (call->op == TSRI_STORE_GET || call->op == TSRI_STORE_COMPARE_SET)
        put_number(t, ask->room, 8);
    if (call->op == TSRI_STORE_ADD)
        put_number(t, (uint64_t)ask->amount, 8);
    tsri_wire_put(t->buf, t->used - TSRI_WIRE_HEAD, 4);
    return TSR_OK;
}

/* --- to and fro ------------------------------------------------------------------------------- */

/* Until the socket is ready; `what` and `where` for messages. */
static tsr_status wait_ready(tsr_store *store, bool to_send, double until_s, const char *what)
{
    const tcp_store *t = store->self;
    if (tsri_store_await_socket(t->fd, to_send, until_s))
        return TSR_OK;
    if (errno != ETIMEDOUT)
        return tsri_fail(TSR_ERR_IO, "store: poll: %s", strerror(errno));
    return tsri_fail(TSR_ERR_TIMEOUT, "store: %s: the server at %s does not answer", what,
                     store->where);
}

static tsr_status gone(tsr_store *store, const char *what, const char *how)
{
    const tcp_store *t = store->self;
    return tsri_store_die(store, "store: the server at %s%s is gone (%s), at %s", store->where,
                          t->rank0_serves ? " (rank 0)" : "", how, what);
}

static tsr_status makes_no_sense(tsr_store *store)
{
    return tsri_store_die(store, "store: what the server at %s says makes no sense", store->where);
}

static tsr_status send_request(tsr_store *store, double until_s, const char *what)
{
    tcp_store *t = store->self;
    for (size_t at = 0; at < t->used;) {
        ssize_t n = send(t->fd, t->buf + at, t->used - at, MSG_NOSIGNAL);
        if (n >= 0) {
            at += (size_t)n;
        } else if (errno == EAGAIN) {
            tsr_status status = wait_ready(store, true, until_s, what);
            if (status == TSR_OK)
                continue;
            if (at == 0)
                return status;
            /* Half a request can't be taken back. */
            return tsri_store_die(store, "%s, and has taken only a part of the call",
                                  tsr_last_error());
        } else if (errno != EINTR) {
            return gone(store, what, strerror(errno));
        }
    }
    return TSR_OK;
}

/* Up to `bytes`; *used grows, so that a call which runs out of time can be gone on with. */
static tsr_status receive(tsr_store *store, unsigned char *to, size_t bytes, size_t *used,
                          double until_s, const char *what)
{
    const tcp_store *t = store->self;
    while (*used < bytes) {
        ssize_t n = recv(t->fd, to + *used, bytes - *used, 0);
        if (n > 0)
            *used += (size_t)n;
        else if (n == 0)
            return gone(store, what, "it closed the connection");
        else if (errno == EAGAIN)
            TSRI_TRY(wait_ready(store, false, until_s, what));
        else if (errno != EINTR)
            return gone(store, what, strerror(errno));
    }
    return TSR_OK;
}

static tsr_status skip_payload(tsr_store *store, double until_s, const char *what)
{
    tcp_store *t = store->self;
    unsigned char scratch[4096];
    while (t->skip > 0) {
        size_t n = t->skip < sizeof scratch ? t->skip : sizeof scratch, used = 0;
        tsr_status status = receive(store, scratch, n, &used, until_s, what);
        t->skip -= used;
        TSRI_TRY(status);
    }
    return TSR_OK;
}

/* The reply to the last request: its payload into buf, its status. */
static tsr_status receive_reply(tsr_store *store, double until_s, const char *what, int32_t *out)
{
    tcp_store *t = store->self;
    for (;;) {
        TSRI_TRY(skip_payload(store, until_s, what));
        TSRI_TRY(receive(store, t->head, sizeof t->head, &t->head_used, until_s, what));
        t->head_used = 0;
        const size_t payload = (size_t)tsri_wire_get(t->head, 4);
        const uint64_t number = tsri_wire_get(t->head + 8, 8);
        if (number > t->number || payload > TSRI_STORE_MAX_VALUE + 64)
            return makes_no_sense(store);
        t->skip = payload;
        if (number < t->number)
            continue; /* to a call that ran out of time */
        TSRI_TRY(make_room(t, payload + 1));
        t->used = 0;
        tsr_status status = receive(store, t->buf, payload, &t->used, until_s, what);
        t->skip -= t->used;
        TSRI_TRY(status);
        t->buf[payload] = 0;
        *out = (int32_t)(uint32_t)tsri_wire_get(t->head + 4, 4);
        return TSR_OK;
    }
}

static void drop_room(tcp_store *t)
{
    if (t->room <= KEEP_ROOM)
        return;
    tsri_mem_free(t->buf);
    t->buf = NULL;
    t->room = 0;
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Which keys are absent, by the reply's indices. */
static tsr_status say_absent(const tsr_store *store, const tsri_store_call *call)
{
    const tcp_store *t = store->self;
    tsri_wire_reader r = {.at = t->buf, .end = t->buf + t->used};
    const uint64_t said = tsri_wire_read(&r, 4);
    const int absent = said < TSRI_STORE_MAX_KEYS ? (int)said : TSRI_STORE_MAX_KEYS;
    int named[TSRI_STORE_NAMED], n = 0;
    while (n < absent && n < TSRI_STORE_NAMED && r.at < r.end) {
        const uint64_t i = tsri_wire_read(&r, 4);
        if (r.bad || i >= (uint64_t)call->nkeys)
            break;
        named[n++] = (int)i;
    }
    return tsri_store_say_absent(store, call, absent, n, named);
}

/* An error as the server tells it in the reply. */
static tsr_status say_error(tsr_store *store, int32_t status)
{
    tcp_store *t = store->self;
    const char *text = tsri_make_printable((char *)t->buf, true);
    if (status >= 0 || status < TSR_ERR_INTERNAL)
        return tsri_store_die(store,
                              "store: the server at %s replies with status %d, which is none",
                              store->where, (int)status);
    return tsri_fail((tsr_status)status, "store: %s: %.2000s", store->where, text);
}

/* The contents of a reply without error. */
static tsr_status take_reply(tsr_store *store, tsri_store_call *call, bool fits)
{
    const tcp_store *t = store->self;
    tsri_wire_reader r = {.at = t->buf, .end = t->buf + t->used};
    size_t here = 0;
    if (call->op == TSRI_STORE_SET)
        return TSR_OK;
    const uint64_t number = tsri_wire_read(&r, 8);
    call->number = (int64_t)number;
    call->there = number != 0;
    if (call->op == TSRI_STORE_GET || call->op == TSRI_STORE_COMPARE_SET) {
        call->out_bytes = (size_t)number;
        here = (size_t)(r.end - r.at);
        if (!r.bad && fits && call->ask.room != TSRI_STORE_SIZE_ALONE) {
            r.bad = here != number || here > call->ask.room;
            if (!r.bad && here)
                memcpy(call->dst, r.at, here);
        }
    }
    if (r.bad)
        return makes_no_sense(store);
    return TSR_OK;
}

static tsr_status tcp_call(tsr_store *store, tsri_store_call *call)
{
    tcp_store *t = store->self;
    const bool waits = call->op == TSRI_STORE_GET || call->op == TSRI_STORE_WAIT;
    const double until_s = tsri_now_s() + call->timeout_s + (waits ? grace_s : 0);
    char what[160];
    int32_t replied;
    tsri_store_call_text(call, what, sizeof what);
    TSRI_TRY(write_request(t, store, call));
    TSRI_TRY(send_request(store, until_s, what));
    TSRI_TRY(receive_reply(store, until_s, what, &replied));
    tsr_status status;
    if (replied == TSR_ERR_TIMEOUT && waits)
        status = say_absent(store, call);
    else if (replied != TSR_OK && replied != TSRI_WIRE_NO_ROOM)
        status = say_error(store, replied);
    else
        status = take_reply(store, call, replied == TSR_OK);
    drop_room(t);
    return status;
}

static void tcp_address(const tsr_store *store, char *buf, size_t size)
{
    const tcp_store *t = store->self;
    struct sockaddr_storage mine = {0};
    socklen_t bytes = sizeof mine;
    if (getsockname(t->fd, (struct sockaddr *)&mine, &bytes) != 0 ||
        getnameinfo((struct sockaddr *)&mine, bytes, buf, (socklen_t)size, NULL, 0,
                    NI_NUMERICHOST) != 0)
        buf[0] = 0;
}

static void leave(tcp_store *t)
{
    if (t->fd < 0)
        return;
    shutdown(t->fd, SHUT_RDWR); /* a child of this process may hold it too */
    close(t->fd);
    t->fd = -1;
}

static void tcp_close(tsr_store *store)
{
    tcp_store *t = store->self;
    if (!t)
        return;
    if (t->joined) {
        leave(t);
        tsri_store_server_drain(t->server, store->timeout_s);
    }
    tsri_store_server_stop(t->server);
    leave(t);
    tsri_mem_free(t->buf);
    tsri_mem_free(t);
    store->self = NULL;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* "ranks 1, 3 of 4 have not come\nnote", as the server says it. */
static tsr_status say_missing(const tsr_store *store)
{
    tcp_store *t = store->self;
    const char *text = tsri_make_printable((char *)t->buf, true);
    const size_t first = strcspn(text, "\n");
    return tsri_fail(TSR_ERR_TIMEOUT, "store: %.*s to %s within %g s%.600s%s", (int)first, text,
                     store->where, store->timeout_s, text + first + (text[first] == '\n'),
                     tsri_store_server_note(t->server));
}

static tsr_status join(tsr_store *store, const tsri_store_joining *joining)
{
    tcp_store *t = store->self;
    const double until_s = joining->start_s + store->timeout_s;
    const double left_s = fmax(until_s - tsri_now_s(), 0);
    const char *what = "the meeting of the ranks";
    char id[TSRI_STORE_ID_SIZE];
    int32_t replied;
    tsri_store_own_id(id, sizeof id);
    TSRI_TRY(begin_request(t, TSRI_STORE_JOIN, left_s,
                           4 + strlen(joining->prefix) + 8 + 4 + strlen(id)));
    put_key(t, joining->prefix, "");
    put_number(t, (uint64_t)store->rank, 4);
    put_number(t, (uint64_t)store->nranks, 4);
    put_key(t, id, "");
    TSRI_TRY(send_request(store, until_s + grace_s, what));
    TSRI_TRY(receive_reply(store, until_s + grace_s, what, &replied));
    if (replied == TSR_ERR_TIMEOUT)
        return say_missing(store);
    if (replied != TSR_OK)
        return say_error(store, replied);
    if (t->used != 8)
        return makes_no_sense(store);
    /* Ranks that meet again do not see what was set before. */
    const uint64_t round = tsri_wire_get(t->buf, 8);
    const size_t n = strlen(store->prefix);
    if (round > 0)
        snprintf(store->prefix + n, sizeof store->prefix - n, "round-%llu/",
                 (unsigned long long)round);
    t->joined = true;
    return TSR_OK;
}

static const tsri_store_ops tcp_ops = {
    .call = tcp_call,
    .address = tcp_address,
    .close = tcp_close,
};

tsr_status tsri_store_tcp_open(tsr_store *store, const tsri_store_joining *joining)
{
    const tsri_store_place *place = joining->place;
    tcp_store *t = tsri_mem_alloc(NULL, sizeof *t);
    TSRI_NEED(t);
    t->fd = -1;
    store->self = t;
    store->ops = &tcp_ops;
    t->rank0_serves = joining->meet && !place->hosted;
    if (t->rank0_serves && place->rank == 0)
        TSRI_TRY(tsri_store_server_start(place->host, place->port, 0, &t->server));
    TSRI_TRY(tsri_store_dial(place, store->where, t->rank0_serves,
                             joining->start_s + store->timeout_s, store->timeout_s, &t->fd));
    return joining->meet ? join(store, joining) : TSR_OK;
}
