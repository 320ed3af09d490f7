/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits on all clients of a store's server. A large request or reply waits for room, in its
 * own connection, until others are done or late; so no client is refused for what others hold, and
 * those who never finish are closed. Small ones, of TSRI_SERVER_SMALL bytes, never wait.
 */
#include "src/comm/store/server_inside.h"
#include "src/core/clock.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static const double patience_s = 10, slowest_bytes_per_s = 1 << 20;

double tsri_limit_patience(size_t bytes)
{
    return patience_s + (double)bytes / slowest_bytes_per_s;
}

/* --- bytes ------------------------------------------------------------------------------------ */

void tsri_limit_stall(tsri_store_server *s, tsri_conn *c)
{
    if (c->stalled)
        return;
    c->stalled = true;
    s->nstalled++;
}

/* There may be room now: all that wait for it look again, the oldest first. */
static void wake_stalled(tsri_store_server *s)
{
    for (tsri_conn *c = s->first; c && s->nstalled > 0; c = c->next) {
        if (!c->stalled)
            continue;
        c->stalled = false;
        s->nstalled--;
        tsri_server_make_ready(s, c);
    }
}

bool tsri_limit_coming(tsri_store_server *s, tsri_conn *c, size_t bytes)
{
    if (bytes <= TSRI_SERVER_SMALL || c->held)
        return true;
    if (s->load.coming > 0 && s->load.coming + bytes > TSRI_SERVER_MAX_COMING) {
        tsri_limit_stall(s, c);
        return false;
    }
    c->held = bytes;
    s->load.coming += bytes;
    c->whole_by_s = tsri_now_s() + tsri_limit_patience(bytes);
    tsri_server_set_timer(s, c->whole_by_s);
    return true;
}

tsr_status tsri_limit_waiting(tsri_store_server *s, tsri_conn *c)
{
    if (!c->held || c->held_waits)
        return TSR_OK;
    if (s->load.waiting + c->held > TSRI_SERVER_MAX_WAITING)
        return tsri_fail(TSR_ERR_NO_MEMORY,
                         "calls that wait for keys hold %zu bytes of names already, and this one "
                         "has %zu: legal are %d in all: wait for fewer keys at once",
                         s->load.waiting, c->held, TSRI_SERVER_MAX_WAITING);
    s->load.coming -= c->held;
    s->load.waiting += c->held;
    c->held_waits = true;
    wake_stalled(s);
    return TSR_OK;
}

void tsri_limit_request_done(tsri_store_server *s, tsri_conn *c)
{
    c->whole_by_s = 0;
    c->active_s = tsri_now_s();
    if (!c->held)
        return;
    *(c->held_waits ? &s->load.waiting : &s->load.coming) -= c->held;
    c->held = 0;
    c->held_waits = false;
    wake_stalled(s);
}

bool tsri_limit_going(const tsri_store_server *s, size_t bytes)
{
    return bytes <= TSRI_SERVER_SMALL || s->load.going == 0 ||
           s->load.going + bytes <= TSRI_SERVER_MAX_GOING;
}

void tsri_limit_replied(tsri_store_server *s, tsri_conn *c, size_t bytes)
{
    if (bytes <= TSRI_SERVER_SMALL)
        return;
    c->going += bytes;
    s->load.going += bytes;
}

void tsri_limit_read(tsri_store_server *s, tsri_conn *c)
{
    c->read_by_s = 0;
    if (!c->going)
        return;
    s->load.going -= c->going;
    c->going = 0;
    wake_stalled(s);
}

void tsri_limit_leave(tsri_store_server *s, tsri_conn *c)
{
    if (c->stalled)
        s->nstalled--;
    c->stalled = false;
    tsri_limit_request_done(s, c);
    tsri_limit_read(s, c);
}

/* --- connections ------------------------------------------------------------------------------ */

/* An eighth of the descriptors is for the process that the server is in. */
static int most_connections(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur > TSRI_SERVER_MAX_CONNECTIONS)
        return TSRI_SERVER_MAX_CONNECTIONS;
    return (int)(files.rlim_cur - files.rlim_cur / 8);
}

/* How early a connection makes way; 0: never, it is a rank's. */
static int weakness(const tsri_conn *c)
{
    if (!c->greeted)
        return 3;
    return c->meeting ? 0 : c->parked || c->stalled ? 1 : 2;
}

bool tsri_limit_drop_weakest(tsri_store_server *s)
{
    tsri_conn *weakest = NULL;
    for (tsri_conn *c = s->first; c; c = c->next) {
        const int more = weakness(c) - (weakest ? weakness(weakest) : 0);
        if (more > 0 || (more == 0 && weakest && c->active_s < weakest->active_s))
            weakest = c;
    }
    if (weakest)
        tsri_conn_kill(s, weakest);
    return weakest != NULL;
}

/* Says why before the connection is closed; its client tries again. */
static void refuse(int fd)
{
    unsigned char full[TSRI_WIRE_GREETING] = TSRI_WIRE_MAGIC;
    tsri_wire_put(full + 8, TSRI_WIRE_VERSION, 4);
    tsri_wire_put(full + 12, TSRI_WIRE_IS_FULL, 4);
    if (send(fd, full, sizeof full, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        shutdown(fd, SHUT_RDWR);
    close(fd);
}

void tsri_limit_admit(tsri_store_server *s, int fd)
{
    const bool is_full = s->strangers >= TSRI_SERVER_MAX_STRANGERS ||
                         s->strangers + s->greeted >= most_connections();
    if (is_full && !tsri_limit_drop_weakest(s))
        refuse(fd);
    else
        tsri_conn_open(s, fd);
}
