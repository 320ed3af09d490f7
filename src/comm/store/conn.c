/* SPDX-License-Identifier: Apache-2.0 */
/* The connections of a store's server: greeting, bytes in, bytes out. Nothing here blocks, and
 * nothing that a client sends, or leaves unsent, costs more than its own connection. */
#include "src/comm/store/server_inside.h"
#include "src/core/clock.h"
#include "src/core/mem.h"

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    FIRST_ROOM = 4096,
    KEEP_ROOM = FIRST_ROOM, /* larger buffers are given back when they are empty */
    READ_AT_ONCE = 262144,  /* bytes; then it is the others' turn */
};
static const double greeting_s = 10; /* how long a stranger may keep silent */

void tsri_store_tune_socket(int fd)
{
    const int on = 1, idle_s = 10, between_s = 5, probes = 4, unacked_ms = 30000;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked_ms, sizeof unacked_ms);
}

void tsri_conn_open(tsri_store_server *s, int fd)
{
    tsri_conn *c = tsri_mem_alloc(NULL, sizeof *c);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = c};
    if (!c || epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        tsri_mem_free(c);
        close(fd);
        return;
    }
    tsri_store_tune_socket(fd);
    c->fd = fd;
    c->events = event.events;
    c->since_s = c->active_s = tsri_now_s();
    c->prev = s->last;
    *(s->last ? &s->last->next : &s->first) = c;
    s->last = c;
    s->strangers++;
    tsri_server_set_timer(s, c->since_s + greeting_s);
}

void tsri_conn_kill(tsri_store_server *s, tsri_conn *c)
{
    if (c->dead)
        return;
    tsri_serve_unpark(s, c);
    tsri_meet_leave(s, c);
    c->dead = true;
    tsri_limit_leave(s, c);
    if (!c->greeted)
        s->strangers--;
    else if (--s->greeted == 0)
        s->timers.idle_since_s = tsri_now_s();
    *(c->prev ? &c->prev->next : &s->first) = c->next;
    *(c->next ? &c->next->prev : &s->last) = c->prev;
    /* A child of this process may hold the socket too: neither epoll nor the peer would notice. */
    epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
    shutdown(c->fd, SHUT_RDWR);
    close(c->fd);
    c->next = s->dead;
    s->dead = c;
}

void tsri_conn_bury(tsri_store_server *s)
{
    while (s->dead) {
        tsri_conn *c = s->dead;
        s->dead = c->next;
        tsri_mem_free(c->in.bytes);
        tsri_mem_free(c->out.bytes);
        tsri_mem_free(c);
    }
}

/* Room for `more` bytes behind what is to be sent. */
static bool make_out_room(tsri_conn *c, size_t more)
{
    if (c->out.room - c->out.used >= more)
        return true;
    size_t room = c->out.used + more < FIRST_ROOM ? FIRST_ROOM : c->out.used + more;
    unsigned char *out = tsri_mem_realloc(NULL, c->out.bytes, room);
    if (!out)
        return false;
    c->out.bytes = out;
    c->out.room = room;
    return true;
}

/* false: the connection is gone. */
static bool flush(tsri_store_server *s, tsri_conn *c)
{
    while (c->out.at < c->out.used) {
        ssize_t n = send(c->fd, c->out.bytes + c->out.at, c->out.used - c->out.at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            if (c->read_by_s == 0) {
                c->read_by_s = tsri_now_s() + tsri_limit_patience(c->out.used - c->out.at);
                tsri_server_set_timer(s, c->read_by_s);
            }
            return true;
        }
        if (n <= 0) {
            tsri_conn_kill(s, c);
            return false;
        }
        c->out.at += (size_t)n;
    }
    tsri_limit_read(s, c);
    c->out.at = c->out.used = 0;
    if (c->out.room > KEEP_ROOM) {
        tsri_mem_free(c->out.bytes);
        c->out.bytes = NULL;
        c->out.room = 0;
    }
    return true;
}

void tsri_conn_reply(tsri_store_server *s, tsri_conn *c, int32_t status, tsri_bytes a, tsri_bytes b)
{
    if (c->dead)
        return;
    if (!make_out_room(c, TSRI_WIRE_HEAD + a.bytes + b.bytes)) {
        tsri_conn_kill(s, c);
        return;
    }
    unsigned char *p = c->out.bytes + c->out.used;
    tsri_wire_put(p, a.bytes + b.bytes, 4);
    tsri_wire_put(p + 4, (uint32_t)status, 4);
    memcpy(p + 8, c->in.bytes + c->in.at + 8, 8); /* the request's number */
    memset(p + 16, 0, 8);
    if (a.bytes)
        memcpy(p + TSRI_WIRE_HEAD, a.data, a.bytes);
    if (b.bytes)
        memcpy(p + TSRI_WIRE_HEAD + a.bytes, b.data, b.bytes);
    c->out.used += TSRI_WIRE_HEAD + a.bytes + b.bytes;
    tsri_limit_replied(s, c, TSRI_WIRE_HEAD + a.bytes + b.bytes);
}

void tsri_conn_reply_number(tsri_store_server *s, tsri_conn *c, uint64_t number)
{
    unsigned char text[8];
    tsri_wire_put(text, number, 8);
    tsri_conn_reply(s, c, TSR_OK, (tsri_bytes){text, sizeof text}, (tsri_bytes){0});
}

void tsri_conn_reply_error(tsri_store_server *s, tsri_conn *c, tsr_status status)
{
    const char *text = tsr_last_error();
    tsri_conn_reply(s, c, status, (tsri_bytes){text, strlen(text)}, (tsri_bytes){0});
}

void tsri_conn_next(tsri_store_server *s, tsri_conn *c)
{
    tsri_limit_request_done(s, c);
    c->in.at += TSRI_WIRE_HEAD + (size_t)tsri_wire_get(c->in.bytes + c->in.at, 4);
    if (c->in.at < c->in.used)
        return;
    c->in.at = c->in.used = 0;
    if (c->in.room > KEEP_ROOM) {
        tsri_mem_free(c->in.bytes);
        c->in.bytes = NULL;
        c->in.room = 0;
    }
}

static bool put_out(tsri_store_server *s, tsri_conn *c, const void *data, size_t bytes)
{
    if (!make_out_room(c, bytes)) {
        tsri_conn_kill(s, c);
        return false;
    }
    memcpy(c->out.bytes + c->out.used, data, bytes);
    c->out.used += bytes;
    return true;
}

/* Says what is to be said before the connection is closed. */
static void put_last(tsri_store_server *s, tsri_conn *c, const void *data, size_t bytes)
{
    if (put_out(s, c, data, bytes) && flush(s, c))
        tsri_conn_kill(s, c);
}

/* Returns whether there was a whole greeting; kills those who say something else. */
static bool take_hello(tsri_store_server *s, tsri_conn *c)
{
    const size_t n = c->in.used - c->in.at;
    const unsigned char *its = c->in.bytes + c->in.at;
    unsigned char mine[TSRI_WIRE_GREETING];
    if (n && memcmp(its, TSRI_WIRE_MAGIC, n < 8 ? n : 8) != 0) {
        tsri_conn_kill(s, c);
        return false;
    }
    if (n < TSRI_WIRE_SALUTE)
        return false;
    const bool is_ours = tsri_wire_get(its + 8, 4) == TSRI_WIRE_VERSION;
    if (is_ours && n < TSRI_WIRE_GREETING)
        return false;
    if (tsri_wire_greeting(&s->token, mine) != TSR_OK) {
        tsri_conn_kill(s, c);
        return false;
    }
    if (!is_ours) {
        put_last(s, c, mine, TSRI_WIRE_SALUTE);
        return false;
    }
    tsri_wire_prove(&s->token, false, its, mine, c->wanted);
    tsri_wire_prove(&s->token, true, its, mine, c->proof);
    c->in.at += TSRI_WIRE_GREETING;
    c->said_hello = true;
    return put_out(s, c, mine, sizeof mine);
}

/* Returns whether there was a whole proof, and a right one. Another token is told before the
 * connection is closed. */
static bool take_proof(tsri_store_server *s, tsri_conn *c)
{
    unsigned char verdict[TSRI_WIRE_VERDICT] = {TSRI_WIRE_OTHER_TOKEN};
    if (c->in.used - c->in.at < TSRI_WIRE_PROOF)
        return false;
    if (!tsri_hmac_is_same(c->in.bytes + c->in.at, c->wanted)) {
        put_last(s, c, verdict, sizeof verdict);
        return false;
    }
    verdict[0] = 0;
    memcpy(verdict + 8, c->proof, sizeof c->proof);
    c->in.at += TSRI_WIRE_PROOF;
    c->greeted = true;
    s->strangers--;
    s->greeted++;
    return put_out(s, c, verdict, sizeof verdict);
}

/* Returns whether a whole request is at in.at; kills those whose head makes no sense, and stalls
 * those for which there is no room yet. */
static bool has_request(tsri_store_server *s, tsri_conn *c)
{
    size_t n = c->in.used - c->in.at;
    if (n < TSRI_WIRE_HEAD)
        return false;
    const unsigned char *head = c->in.bytes + c->in.at;
    uint64_t payload = tsri_wire_get(head, 4), op = tsri_wire_get(head + 4, 2);
    if (payload > TSRI_WIRE_MAX_PAYLOAD || op < TSRI_STORE_SET || op >= TSRI_STORE_OP_END_ ||
        tsri_wire_get(head + 6, 2) != 0) {
        tsri_conn_kill(s, c);
        return false;
    }
    return tsri_limit_coming(s, c, TSRI_WIRE_HEAD + (size_t)payload) &&
           n >= TSRI_WIRE_HEAD + (size_t)payload;
}

static void watch(tsri_store_server *s, tsri_conn *c)
{
    const bool reads = !c->parked && !c->stalled;
    uint32_t events = EPOLLRDHUP | (c->out.at < c->out.used ? EPOLLOUT : reads ? EPOLLIN : 0);
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (events != c->events && epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, c->fd, &event) != 0)
        tsri_conn_kill(s, c);
    c->events = events;
}

void tsri_conn_pump(tsri_store_server *s, tsri_conn *c)
{
    while (!c->dead) {
        if (c->out.at < c->out.used && (!flush(s, c) || c->out.at < c->out.used))
            break;
        if (c->parked || c->stalled)
            break;
        if (!c->greeted) {
            if (!(c->said_hello ? take_proof(s, c) : take_hello(s, c)))
                break;
            continue;
        }
        if (!has_request(s, c))
            break;
        int served = tsri_serve(s, c);
        if (served == 0)
            tsri_conn_next(s, c);
        else if (served == TSRI_WIRE_STALLS)
            tsri_limit_stall(s, c);
        else if (served != TSRI_WIRE_WAITS)
            tsri_conn_kill(s, c);
    }
    if (c->dead)
        return;
    if (c->greeted && !c->parked && c->in.used > c->in.at && c->whole_by_s == 0) {
        c->whole_by_s = tsri_now_s() + tsri_limit_patience(0);
        tsri_server_set_timer(s, c->whole_by_s);
    }
    watch(s, c);
}

/* Room to read into: never more than twice what has come of a request, whatever its head says, nor
 * more than the request is, so that nothing stands behind a large one in the buffer. */
static bool make_in_room(tsri_conn *c)
{
    if (c->in.at > 0) {
        memmove(c->in.bytes, c->in.bytes + c->in.at, c->in.used - c->in.at);
        c->in.used -= c->in.at;
        c->in.at = 0;
    }
    if (c->in.used < c->in.room)
        return true;
    size_t room = c->in.room ? 2 * c->in.room : FIRST_ROOM;
    if (c->held && room > c->held)
        room = c->held;
    unsigned char *in = tsri_mem_realloc(NULL, c->in.bytes, room);
    if (!in)
        return false;
    c->in.bytes = in;
    c->in.room = room;
    return true;
}

/* Returns whether there may be more to read. */
static bool read_some(tsri_store_server *s, tsri_conn *c, size_t *total)
{
    if (!make_in_room(c)) {
        tsri_conn_kill(s, c);
        return false;
    }
    ssize_t n = recv(c->fd, c->in.bytes + c->in.used, c->in.room - c->in.used, 0);
    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) {
        tsri_conn_kill(s, c);
        return false;
    }
    c->in.used += (size_t)n;
    *total += (size_t)n;
    tsri_conn_pump(s, c);
    return !c->dead && (c->events & EPOLLIN) && *total < READ_AT_ONCE;
}

double tsri_conn_deadline(const tsri_conn *c)
{
    double at_s = (double)INFINITY;
    if (c->parked)
        return c->parks.until_s;
    if (!c->greeted)
        return c->since_s + greeting_s;
    if (c->read_by_s > 0)
        at_s = c->read_by_s;
    if (c->whole_by_s > 0 && !c->stalled)
        at_s = fmin(at_s, c->whole_by_s);
    return at_s;
}

void tsri_conn_event(tsri_store_server *s, tsri_conn *c, uint32_t events)
{
    size_t total = 0;
    if (c->dead)
        return;
    if (events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP))
        tsri_conn_kill(s, c);
    else if (events & EPOLLOUT)
        tsri_conn_pump(s, c);
    else
        while (read_some(s, c, &total))
            ;
}
