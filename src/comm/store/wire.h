/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol between a store's client and server. All numbers are little-endian.
 *
 * The client sends a greeting, and the server answers with its own: 8 bytes of magic, the version
 * (u32), flags (u32) and a nonce of 32 random bytes. Its first 16 bytes are the same in all
 * versions. Other magic closes the connection at once; the server answers another version with
 * those 16 bytes before it closes. The magic ends in an empty line, so that a server of HTTP or the
 * like answers it at once too.
 *
 * Then each side proves that it has the run's token, without showing it: the client sends the 32
 * bytes of HMAC-SHA256(token, "client" and both greetings, the client's first), and the server
 * answers with a verdict (u32, 0 is welcome), zero (u32) and HMAC-SHA256(token, "server" and the
 * same). The nonces keep a proof from being used again, the names from being sent back. The client
 * goes first, so that a stranger who connects gets nothing to try tokens on. Without a token the
 * key is empty; the flags tell which side has one, for the error's text. A server that takes no
 * more connections says so in the flags of its greeting, with no nonce, and closes.
 *
 * Behind that come requests and replies, one at a time: 24 bytes of head and a payload of fields.
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

#include "src/comm/store/inside.h"
#include "src/core/sha256.h"

#include <string.h>

#define TSRI_WIRE_MAGIC "TSRS\r\n\r\n"
enum {
    TSRI_WIRE_VERSION = 2,
    TSRI_WIRE_NONCE = 32,  /* bytes */
    TSRI_WIRE_SALUTE = 16, /* what all versions have of a greeting: magic, version, flags */
    TSRI_WIRE_GREETING = TSRI_WIRE_SALUTE + TSRI_WIRE_NONCE,
    TSRI_WIRE_PROOF = TSRI_SHA256_BYTES,
    TSRI_WIRE_VERDICT = 8 + TSRI_WIRE_PROOF,
    TSRI_WIRE_HAS_TOKEN = 1,   /* a greeting's flag */
    TSRI_WIRE_IS_FULL = 2,     /* another: the server takes no more connections, and closes */
    TSRI_WIRE_OTHER_TOKEN = 1, /* a verdict */
    TSRI_WIRE_HEAD = 24,
    /* Two values and a key, with sizes: what the largest request holds. */
    TSRI_WIRE_MAX_PAYLOAD = 2 * TSRI_STORE_MAX_VALUE + TSRI_STORE_MAX_FULL_KEY + 64,
    TSRI_WIRE_NO_ROOM = 1000, /* a reply's status: the value is larger than room */
    TSRI_WIRE_WAITS = 1001,   /* inside the server: the reply comes later */
    TSRI_WIRE_STALLS = 1002,  /* likewise: for want of room */
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

/* --- the greeting (greet.c) ------------------------------------------------------------------- */

/* A greeting with a fresh nonce. Errors: TSR_ERR_IO (the system has no random numbers). */
tsr_status tsri_wire_greeting(const tsri_store_token *token, unsigned char out[TSRI_WIRE_GREETING]);
/* The proof of who has the token: is_server says of whom. */
void tsri_wire_prove(const tsri_store_token *token, bool is_server,
                     const unsigned char client[TSRI_WIRE_GREETING],
                     const unsigned char server[TSRI_WIRE_GREETING],
                     unsigned char out[TSRI_WIRE_PROOF]);

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
