/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a store's server brings the ranks of a run together. A meeting has a name (the prefix of its
 * keys), so that several runs can share a server, and rounds, so that one run can come again. A
 * rank is there as long as its connection is, and a meeting as long as a rank is.
 */
#include "src/comm/store/server_inside.h"
#include "src/core/mem.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

static tsri_meeting *find(tsri_store_server *s, tsri_bytes name)
{
    tsri_meeting *m = s->meetings;
    while (m && (m->name_bytes != name.bytes || memcmp(m->name, name.data, name.bytes) != 0))
        m = m->next;
    if (m || !(m = tsri_mem_alloc(NULL, sizeof *m + name.bytes)))
        return m;
    m->name_bytes = name.bytes;
    memcpy(m->name, name.data, name.bytes);
    m->round = s->next_round;
    m->next = s->meetings;
    s->meetings = m;
    return m;
}

/* Forgets a meeting that nobody is at. One of its name that comes later takes a higher round, so
 * that its ranks do not see what was set in this one. */
static void tidy(tsri_store_server *s, tsri_meeting *m)
{
    tsri_meeting **at = &s->meetings;
    if (m->nlive > 0 || m->uses > 0)
        return;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    s->seats -= m->nranks;
    s->next_round = m->round > s->next_round ? m->round : s->next_round;
    tsri_mem_free(m->live);
    tsri_mem_free(m->gave_up);
    tsri_mem_free(m);
}

void tsri_meet_finish(tsri_store_server *s)
{
    while (s->meetings) {
        tsri_meeting *m = s->meetings;
        s->meetings = m->next;
        tsri_mem_free(m->live);
        tsri_mem_free(m->gave_up);
        tsri_mem_free(m);
    }
}

/* The first to come says how many there are. */
static tsr_status set_size(tsri_store_server *s, tsri_meeting *m, int nranks)
{
    if (m->nlive == 0 && m->nranks != nranks) {
        const int seats = s->seats - m->nranks + nranks;
        if (seats > TSRI_SERVER_MAX_SEATS)
            return tsri_fail(TSR_ERR_NO_MEMORY,
                             "the runs that meet here have %d ranks in all, with these %d: legal "
                             "are up to %d",
                             seats, nranks, TSRI_SERVER_MAX_SEATS);
        tsri_conn **live = tsri_mem_alloc(NULL, (size_t)nranks * sizeof *live);
        unsigned char *gave_up = tsri_mem_alloc(NULL, (size_t)nranks);
        if (!live || !gave_up) {
            tsri_mem_free(live);
            tsri_mem_free(gave_up);
            return TSR_ERR_NO_MEMORY;
        }
        tsri_mem_free(m->live);
        tsri_mem_free(m->gave_up);
        m->live = live;
        m->gave_up = gave_up;
        m->nranks = nranks;
        s->seats = seats;
    }
    if (m->nlive == 0)
        m->note[0] = 0;
    return TSR_OK;
}

/* A rank that has died and come again may be here before its old connection's end was seen. */
static bool has_ended(const tsri_conn *c)
{
    char byte;
    ssize_t n = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* Whether the rank may join; errors are noted for those who wait for the right one. */
static tsr_status check(tsri_store_server *s, tsri_meeting *m, int rank, int nranks, const char *id)
{
    if (m->nranks != nranks) {
        snprintf(m->note, sizeof m->note, "; rank %d of %d (%s) was turned away", rank, nranks, id);
        return tsri_fail(TSR_ERR_MISMATCH,
                         "this is rank %d of %d, but those who came before say that there are %d "
                         "ranks",
                         rank, nranks, m->nranks);
    }
    tsri_conn *other = m->live[rank];
    if (other && has_ended(other)) {
        tsri_conn_kill(s, other);
        other = NULL;
    }
    if (other) {
        snprintf(m->note, sizeof m->note, "; a second rank %d (%s) was turned away", rank, id);
        return tsri_fail(TSR_ERR_INVALID, "rank %d has joined already: %s", rank, other->id);
    }
    return TSR_OK;
}

/* All are here. */
static void begin(tsri_store_server *s, tsri_meeting *m)
{
    const uint64_t round = m->round++;
    m->here = 0;
    m->note[0] = 0;
    memset(m->gave_up, 0, (size_t)m->nranks);
    for (int r = 0; r < m->nranks; r++) {
        tsri_conn *c = m->live[r];
        tsri_conn_reply_number(s, c, round);
        if (!c->parked)
            continue; /* the one who came last: its request is in hand still */
        tsri_serve_unpark(s, c);
        tsri_conn_next(s, c);
        tsri_server_make_ready(s, c);
    }
}

/* Has the rank join; *out_served is the request's end. */
static tsr_status take_seat(tsri_store_server *s, tsri_conn *c, tsri_meeting *m, int rank,
                            int nranks, int *out_served)
{
    TSRI_TRY(set_size(s, m, nranks));
    TSRI_TRY(check(s, m, rank, nranks, c->id));
    c->meeting = m;
    c->rank = rank;
    c->round = m->round;
    m->live[rank] = c;
    m->gave_up[rank] = 0;
    m->nlive++;
    tsri_server_count_members(s, 1);
    *out_served = 0;
    if (++m->here == m->nranks) {
        begin(s, m);
    } else {
        tsri_serve_park(s, c);
        *out_served = TSRI_WIRE_WAITS;
    }
    return TSR_OK;
}

int tsri_meet_join(tsri_store_server *s, tsri_conn *c, tsri_wire_reader *fields)
{
    tsri_bytes name = tsri_wire_read_bytes(fields, TSRI_STORE_MAX_PREFIX);
    const uint64_t rank = tsri_wire_read(fields, 4), nranks = tsri_wire_read(fields, 4);
    tsri_bytes id = tsri_wire_read_bytes(fields, TSRI_STORE_ID_SIZE - 1);
    if (fields->bad || fields->at != fields->end || nranks > TSRI_STORE_MAX_RANKS ||
        rank >= nranks || c->meeting)
        return -1;
    tsri_meeting *m = find(s, name);
    int served = 0;
    tsr_status status = TSR_ERR_NO_MEMORY;
    tsri_store_key_text(id, c->id, sizeof c->id);
    if (m) {
        m->uses++;
        status = take_seat(s, c, m, (int)rank, (int)nranks, &served);
        m->uses--;
        tidy(s, m);
    }
    if (status != TSR_OK)
        tsri_conn_reply_error(s, c, status);
    return served;
}

static void leave(tsri_store_server *s, tsri_conn *c, const char *how)
{
    tsri_meeting *m = c->meeting;
    if (!m)
        return;
    c->meeting = NULL;
    m->live[c->rank] = NULL;
    m->nlive--;
    if (c->round == m->round) {
        m->here--;
        snprintf(m->note, sizeof m->note, "; rank %d (%s) %s", c->rank, c->id, how);
    }
    tsri_server_count_members(s, -1);
    tidy(s, m);
}

void tsri_meet_leave(tsri_store_server *s, tsri_conn *c)
{
    leave(s, c, "came and has gone again");
}

void tsri_meet_give_up(tsri_store_server *s, tsri_conn *c)
{
    tsri_meeting *m = c->meeting;
    char ranks[512], text[1024];
    unsigned char *has = tsri_mem_alloc(NULL, (size_t)m->nranks);
    if (!has) {
        tsri_conn_kill(s, c);
        return;
    }
    for (int r = 0; r < m->nranks; r++)
        has[r] = (m->live[r] && m->live[r]->round == m->round) | m->gave_up[r] << 1;
    /* A rank that came and gave up did not keep us waiting, unless there is no other. */
    int absent = tsri_store_absent_text(has, m->nranks, ranks, sizeof ranks);
    for (int r = 0; r < m->nranks && absent == 0; r++)
        has[r] &= 1;
    if (absent == 0)
        absent = tsri_store_absent_text(has, m->nranks, ranks, sizeof ranks);
    tsri_mem_free(has);
    m->gave_up[c->rank] = 1;
    /* The client puts where and how long between the two. */
    int n = snprintf(text, sizeof text, "%s of %d %s not come\n%s", ranks, m->nranks,
                     absent == 1 ? "has" : "have", m->note);
    tsri_serve_unpark(s, c);
    leave(s, c, "has given up waiting");
    tsri_conn_reply(s, c, TSR_ERR_TIMEOUT, (tsri_bytes){text, (size_t)n}, (tsri_bytes){0});
    tsri_conn_next(s, c);
    tsri_server_make_ready(s, c);
}
