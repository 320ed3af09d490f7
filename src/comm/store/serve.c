/* SPDX-License-Identifier: Apache-2.0 */
/* The answers of a store's server. Requests for keys that are absent hang on the key's entry. */
#include "src/comm/store/server_inside.h"
#include "src/core/clock.h"

/* The payload of the request in hand. */
static tsri_wire_reader payload_of(const tsri_conn *c)
{
    const unsigned char *head = c->in.bytes + c->in.at;
    const size_t bytes = (size_t)tsri_wire_get(head, 4);
    return (tsri_wire_reader){.at = head + TSRI_WIRE_HEAD, .end = head + TSRI_WIRE_HEAD + bytes};
}

static tsri_store_op op_of(const tsri_conn *c)
{
    return (tsri_store_op)tsri_wire_get(c->in.bytes + c->in.at + 4, 2);
}

static tsri_bytes read_key(tsri_wire_reader *r)
{
    return tsri_wire_read_bytes(r, TSRI_STORE_MAX_FULL_KEY);
}

/* Fields of an operation on one key; false: they make no sense. */
static bool read_ask(const tsri_conn *c, tsri_store_ask *ask)
{
    tsri_wire_reader r = payload_of(c);
    *ask = (tsri_store_ask){.op = op_of(c), .key = read_key(&r)};
    switch (ask->op) {
    case TSRI_STORE_SET:
        ask->value = tsri_wire_read_bytes(&r, TSRI_STORE_MAX_VALUE);
        break;
    case TSRI_STORE_GET:
        ask->room = tsri_wire_read(&r, 8);
        break;
    case TSRI_STORE_ADD:
        ask->amount = (int64_t)tsri_wire_read(&r, 8);
        break;
    case TSRI_STORE_COMPARE_SET:
        ask->expected = tsri_wire_read_bytes(&r, TSRI_STORE_MAX_VALUE);
        ask->value = tsri_wire_read_bytes(&r, TSRI_STORE_MAX_VALUE);
        ask->room = tsri_wire_read(&r, 8);
        break;
    default:
        break;
    }
    return !r.bad && r.at == r.end && ask->key.bytes > 0;
}

void tsri_serve_park(tsri_store_server *s, tsri_conn *c)
{
    const uint64_t bits = tsri_wire_get(c->in.bytes + c->in.at + 16, 8);
    double wait_s;
    if (c->parked)
        return;
    memcpy(&wait_s, &bits, sizeof wait_s);
    c->parked = true;
    c->parks.until_s = tsri_now_s() + wait_s;
    tsri_server_set_timer(s, c->parks.until_s);
}

static bool wait_makes_sense(const tsri_conn *c)
{
    const uint64_t bits = tsri_wire_get(c->in.bytes + c->in.at + 16, 8);
    double wait_s;
    memcpy(&wait_s, &bits, sizeof wait_s);
    return wait_s >= 0 && wait_s <= TSRI_WIRE_MAX_WAIT_S; /* no NaN */
}

/* Parks the request until somebody sets the key. */
static int park_on(tsri_store_server *s, tsri_conn *c, tsri_bytes key)
{
    tsri_store_entry *e = NULL;
    if (tsri_limit_waiting(s, c) != TSR_OK || !(e = tsri_store_map_make(&s->map, key))) {
        tsri_conn_reply_error(s, c, TSR_ERR_NO_MEMORY);
        return 0;
    }
    c->parks.entry = e;
    c->parks.prev = NULL;
    c->parks.next = e->waiters;
    if (c->parks.next)
        c->parks.next->parks.prev = c;
    e->waiters = c;
    tsri_serve_park(s, c);
    return TSRI_WIRE_WAITS;
}

/* Off the key; parked still. */
static void take_off(tsri_store_server *s, tsri_conn *c)
{
    tsri_store_entry *e = c->parks.entry;
    if (!e)
        return;
    if (c->parks.prev)
        c->parks.prev->parks.next = c->parks.next;
    else
        e->waiters = c->parks.next;
    if (c->parks.next)
        c->parks.next->parks.prev = c->parks.prev;
    c->parks.entry = NULL;
    tsri_store_map_tidy(&s->map, e);
}

void tsri_serve_unpark(tsri_store_server *s, tsri_conn *c)
{
    take_off(s, c);
    c->parked = false;
}

/* Clients that wait for the key look again, when this request is done. */
static void wake_waiters(tsri_store_server *s, tsri_bytes key)
{
    const tsri_store_entry *e = tsri_store_map_find(&s->map, key);
    for (tsri_conn *c = e ? e->waiters : NULL; c; c = c->parks.next)
        tsri_server_make_ready(s, c);
}

static bool replies_with_value(const tsri_store_ask *ask, const tsri_store_answer *answer)
{
    return (ask->op == TSRI_STORE_GET || ask->op == TSRI_STORE_COMPARE_SET) && !answer->no_room &&
           ask->room != TSRI_STORE_SIZE_ALONE;
}

static int serve_key(tsri_store_server *s, tsri_conn *c)
{
    tsri_store_ask ask;
    tsri_store_answer answer;
    unsigned char size[8];
    if (!read_ask(c, &ask))
        return -1;
    if (ask.op == TSRI_STORE_GET && !tsri_store_map_has(&s->map, ask.key))
        return park_on(s, c, ask.key);
    tsr_status status = tsri_store_decide(&s->map, &ask, &answer);
    if (status == TSR_OK && replies_with_value(&ask, &answer) &&
        !tsri_limit_going(s, TSRI_WIRE_HEAD + sizeof size + answer.result.bytes))
        return TSRI_WIRE_STALLS;
    if (status == TSR_OK)
        status = tsri_store_commit(&s->map, &ask, &answer);
    if (status != TSR_OK) {
        tsri_conn_reply_error(s, c, status);
        return 0;
    }
    if (answer.changes && ask.op != TSRI_STORE_DELETE)
        wake_waiters(s, ask.key);
    tsri_wire_put(size, answer.result.bytes, sizeof size);
    const tsri_bytes size_bytes = {size, sizeof size};
    if (answer.no_room)
        tsri_conn_reply(s, c, TSRI_WIRE_NO_ROOM, size_bytes, (tsri_bytes){0});
    else if (ask.op == TSRI_STORE_ADD)
        tsri_conn_reply_number(s, c, (uint64_t)answer.number);
    else if (ask.op == TSRI_STORE_DELETE)
        tsri_conn_reply_number(s, c, answer.there);
    else if (ask.op == TSRI_STORE_SET)
        tsri_conn_reply(s, c, TSR_OK, (tsri_bytes){0}, (tsri_bytes){0});
    else
        tsri_conn_reply(s, c, TSR_OK, size_bytes,
                        ask.room == TSRI_STORE_SIZE_ALONE ? (tsri_bytes){0} : answer.result);
    return 0;
}

/* Whether the fields of wait and check are n keys. */
static bool keys_make_sense(tsri_wire_reader r)
{
    uint64_t n = tsri_wire_read(&r, 4);
    if (n > TSRI_STORE_MAX_KEYS)
        return false;
    for (uint64_t i = 0; i < n && !r.bad; i++)
        if (read_key(&r).bytes == 0)
            return false;
    return !r.bad && r.at == r.end;
}

static int serve_check(tsri_store_server *s, tsri_conn *c)
{
    tsri_wire_reader r = payload_of(c);
    bool all = true;
    if (!keys_make_sense(r))
        return -1;
    for (uint64_t n = tsri_wire_read(&r, 4); n > 0 && all; n--)
        all = tsri_store_map_has(&s->map, read_key(&r));
    tsri_conn_reply_number(s, c, all);
    return 0;
}

/* From the key that was absent when it last looked, so that n keys which come one by one cost n
 * looks and not n^2 / 2; then all once more, for some may have been deleted. */
static int serve_wait(tsri_store_server *s, tsri_conn *c)
{
    tsri_wire_reader r = payload_of(c);
    const unsigned char *start = r.at;
    if (!c->parked) {
        if (!keys_make_sense(r))
            return -1;
        c->parks.key_at = 4;
    }
    for (;;) {
        const bool from_first = c->parks.key_at == 4;
        r.at = start + c->parks.key_at;
        while (r.at < r.end) {
            c->parks.key_at = (size_t)(r.at - start);
            tsri_bytes key = read_key(&r);
            if (!tsri_store_map_has(&s->map, key))
                return park_on(s, c, key);
        }
        c->parks.key_at = 4;
        if (from_first)
            break;
    }
    tsri_conn_reply_number(s, c, true);
    return 0;
}

static int serve_count(tsri_store_server *s, tsri_conn *c)
{
    tsri_wire_reader r = payload_of(c);
    tsri_bytes prefix = read_key(&r);
    if (r.bad || r.at != r.end)
        return -1;
    tsri_conn_reply_number(s, c, (uint64_t)tsri_store_map_count(&s->map, prefix));
    return 0;
}

int tsri_serve(tsri_store_server *s, tsri_conn *c)
{
    tsri_wire_reader r = payload_of(c);
    if (!c->parked && !wait_makes_sense(c))
        return -1;
    switch (op_of(c)) {
    case TSRI_STORE_WAIT:
        return serve_wait(s, c);
    case TSRI_STORE_CHECK:
        return serve_check(s, c);
    case TSRI_STORE_COUNT:
        return serve_count(s, c);
    case TSRI_STORE_JOIN:
        return tsri_meet_join(s, c, &r);
    default:
        return serve_key(s, c);
    }
}

void tsri_serve_again(tsri_store_server *s, tsri_conn *c)
{
    if (c->parked && c->parks.entry) {
        take_off(s, c);
        const int served = tsri_serve(s, c);
        c->parked = served == TSRI_WIRE_WAITS;
        if (served == TSRI_WIRE_STALLS)
            tsri_limit_stall(s, c);
        else if (served != TSRI_WIRE_WAITS)
            tsri_conn_next(s, c);
    }
    tsri_conn_pump(s, c);
}

void tsri_serve_timeout(tsri_store_server *s, tsri_conn *c)
{
    unsigned char absent[4 + 4 * TSRI_WIRE_ABSENT];
    uint32_t n = 0;
    if (!c->parks.entry) {
        tsri_meet_give_up(s, c);
        return;
    }
    tsri_wire_reader r = payload_of(c);
    const bool is_wait = op_of(c) == TSRI_STORE_WAIT;
    const uint64_t keys = is_wait ? tsri_wire_read(&r, 4) : 1;
    for (uint64_t i = 0; i < keys; i++)
        if (!tsri_store_map_has(&s->map, read_key(&r)) && n++ < TSRI_WIRE_ABSENT)
            tsri_wire_put(absent + 4 * n, i, 4);
    tsri_wire_put(absent, n, 4);
    tsri_serve_unpark(s, c);
    const uint32_t named = n < TSRI_WIRE_ABSENT ? n : TSRI_WIRE_ABSENT;
    tsri_conn_reply(s, c, TSR_ERR_TIMEOUT, (tsri_bytes){absent, 4 + 4 * named}, (tsri_bytes){0});
    tsri_conn_next(s, c);
    tsri_server_make_ready(s, c);
}
