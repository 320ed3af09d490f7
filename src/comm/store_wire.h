/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a store's client and server say to each other. All numbers are little-endian.
 *
 * Who connects sends a greeting, and so does the server: 8 bytes of magic, the version (u32), zero
 * (u32). Other magic closes the connection at once; the server answers another version with its
 * own greeting before it closes. The magic ends in an empty line, so that a server of HTTP or the
 * like answers it at once too.
 *
 * Then requests and replies, one at a time: 24 bytes of head and a payload of fields.
 *
 *   request  bytes of payload (u32), operation (u16), zero (u16), number (u64), how long the
 *            server may wait (f64, seconds)
 *   reply    bytes of payload (u32), status (i32), the request's number (u64), zero (u64)
 *
 *   operation    request's fields                      reply's
 *   set          key, value
 *   get          key, room (u64)                       size (u64), value
 *   add          key, amount (i64)                     value (i64)
 *   compare_set  key, expected, desired, room (u64)    size (u64), value
 *   wait, check  n (u32), n keys                       whether all are there (u64)
 *   delete       key                                   whether it was there (u64)
 *   count        prefix                                keys (i64)
 *   join         prefix, rank (u32), size (u32), id    round (u64)
 *
 * Keys, values, prefixes and ids are their size (u32) and their bytes. In place of fields, a reply
 * of an error has its text, no room the size (u64), and a timeout of get and wait how many keys are
 * absent (u32) and the first of them by their index in the request (u32 each).
 */
#ifndef TESSERA_COMM_STORE_WIRE_H
#define TESSERA_COMM_STORE_WIRE_H

#include "src/comm/store_inside.h"

#include <string.h>

#define TSRI_WIRE_MAGIC "TSRS\r\n\r\n"
enum {
    TSRI_WIRE_VERSION = 1,
    TSRI_WIRE_GREETING = 16, /* bytes */
    TSRI_WIRE_HEAD = 24,
    /* Two values and a key, with sizes: what the largest request holds. */
    TSRI_WIRE_MAX_PAYLOAD = 2 * TSRI_STORE_MAX_VALUE + TSRI_STORE_MAX_FULL_KEY + 64,
    TSRI_WIRE_NO_ROOM = 1000, /* a reply's status: the value is larger than room */
    TSRI_WIRE_WAITS = 1001,   /* inside the server: the reply comes later */
    TSRI_WIRE_ABSENT = 8,     /* the most absent keys that a reply names */
};
#define TSRI_WIRE_MAX_WAIT_S 1e9

static inline void tsri_wire_put(unsigned char *p, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (unsigned char)(value >> (8 * i));
}

static inline uint64_t tsri_wire_get(const unsigned char *p, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)p[i] << (8 * i);
    return value;
}

static inline void tsri_wire_greeting(unsigned char out[TSRI_WIRE_GREETING])
{
    memcpy(out, TSRI_WIRE_MAGIC, 8);
    tsri_wire_put(out + 8, TSRI_WIRE_VERSION, 4);
    tsri_wire_put(out + 12, 0, 4);
}

/* Reads fields; `bad` once they go beyond the end. */
typedef struct tsri_wire_reader {
    const unsigned char *at, *end;
    bool bad;
} tsri_wire_reader;

static inline uint64_t tsri_wire_read(tsri_wire_reader *r, int bytes)
{
    if (r->bad || r->end - r->at < bytes) {
        r->bad = true;
        return 0;
    }
    r->at += bytes;
    return tsri_wire_get(r->at - bytes, bytes);
}

static inline tsri_bytes tsri_wire_read_bytes(tsri_wire_reader *r, size_t max)
{
    size_t n = (size_t)tsri_wire_read(r, 4);
    if (r->bad || n > max || n > (size_t)(r->end - r->at)) {
        r->bad = true;
        return (tsri_bytes){0};
    }
    r->at += n;
    return (tsri_bytes){r->at - n, n};
}

#endif
