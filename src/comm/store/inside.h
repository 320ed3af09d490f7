/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of stores: addresses, operations on a map of keys, and the kinds of stores.
 */
#ifndef TESSERA_COMM_STORE_INSIDE_H
#define TESSERA_COMM_STORE_INSIDE_H

#include "src/comm/store/store.h"
#include "src/core/status.h"

#include <limits.h>

enum {
    TSRI_STORE_MAX_KEY = 1000,      /* a caller's key */
    TSRI_STORE_MAX_PREFIX = 1000,   /* what is put before it */
    TSRI_STORE_MAX_FULL_KEY = 2048, /* both, and a round's number */
    TSRI_STORE_MAX_VALUE = 16 << 20,
    TSRI_STORE_MAX_KEYS = 65536, /* of one call */
    TSRI_STORE_MAX_RANKS = 65536,
    TSRI_STORE_MIN_TOKEN = 16,
    TSRI_STORE_MAX_TOKEN = 256,
    TSRI_STORE_ID_SIZE = 128, /* a process, for messages: "process 12 on node-a" */
};

/* Bytes somewhere else. */
typedef struct tsri_bytes {
    const void *data;
    size_t bytes;
} tsri_bytes;

/* --- tokens (greet.c) ------------------------------------------------------------------------- */

/* The secret that client and server prove to each other. */
typedef struct tsri_store_token {
    size_t bytes; /* 0: none */
    char text[TSRI_STORE_MAX_TOKEN];
} tsri_store_token;

/* This process's, TESSERA_STORE_TOKEN. Errors: TSR_ERR_INVALID. */
tsr_status tsri_store_env_token(tsri_store_token *out);

/* --- addresses -------------------------------------------------------------------------------- */

typedef enum tsri_store_kind { TSRI_STORE_TCP = 1, TSRI_STORE_FILE } tsri_store_kind;

/* Where a store is, and who we are in it. */
typedef struct tsri_store_place {
    tsri_store_kind kind;
    char host[256]; /* without brackets */
    int port;
    char path[PATH_MAX];
    int rank, nranks; /* -1 and 0: not said */
    bool hosted;
    bool from_env;
} tsri_store_place;

/* Reads an address alone; env:// reads the environment. */
tsr_status tsri_store_place_read(const char *url, tsri_store_place *out);
/* Reads an address and the options; if `ranks`, rank and size must then be known. */
tsr_status tsri_store_place_resolve(const char *url, const tsr_store_opts *opts, bool ranks,
                                    tsri_store_place *out);
/* "tcp://[::1]:29500", "file:///path": without rank and size. */
void tsri_store_place_text(const tsri_store_place *place, char *buf, size_t size);
/* A whole number in [low, high], and nothing else; false if it is not one. */
bool tsri_store_number(const char *text, size_t bytes, long low, long high, long *out);

/* --- operations ------------------------------------------------------------------------------- */

typedef enum tsri_store_op {
    TSRI_STORE_SET = 1,
    TSRI_STORE_GET,
    TSRI_STORE_ADD,
    TSRI_STORE_COMPARE_SET,
    TSRI_STORE_WAIT,
    TSRI_STORE_CHECK,
    TSRI_STORE_DELETE,
    TSRI_STORE_COUNT,
    TSRI_STORE_JOIN, /* only between client and server */
    TSRI_STORE_OP_END_,
} tsri_store_op;

/* `room` of a caller who wants the size alone. */
#define TSRI_STORE_SIZE_ALONE UINT64_MAX

/* An operation on one key, by its full name. */
typedef struct tsri_store_ask {
    tsri_store_op op;
    tsri_bytes key;
    tsri_bytes value;    /* set; compare_set: desired */
    tsri_bytes expected; /* compare_set */
    int64_t amount;      /* add */
    uint64_t room;       /* get, compare_set: the most bytes that the caller can take */
} tsri_store_ask;

/* Its outcome. */
typedef struct tsri_store_answer {
    bool changes;      /* the key becomes `result`, or goes (delete) */
    bool there;        /* the key is there now */
    bool no_room;      /* result is larger than room: nothing changes */
    tsri_bytes result; /* what the key is then: in the ask, the map or `digits` */
    int64_t number;    /* add: the same as a number */
    char digits[24];
} tsri_store_answer;

typedef struct tsri_store_entry {
    struct tsri_store_entry *next; /* of its bucket */
    void *waiters;                 /* the server's: requests that wait for this key */
    uint64_t hash;
    bool there; /* else it is only waited for */
    size_t bytes;
    unsigned char *value;
    size_t key_bytes;
    char key[];
} tsri_store_entry;

typedef struct tsri_store_map {
    tsri_store_entry **bucket; /* a power of 2 of them */
    size_t nbuckets, entries;
    size_t bytes, max_bytes; /* of keys and values; 0: without limit */
    int64_t there;
} tsri_store_map;

void tsri_store_map_finish(tsri_store_map *map);
/* NULL: neither there nor waited for. */
tsri_store_entry *tsri_store_map_find(const tsri_store_map *map, tsri_bytes key);
/* Finds an entry, or makes one; NULL: TSR_ERR_NO_MEMORY, which has a text. */
tsri_store_entry *tsri_store_map_make(tsri_store_map *map, tsri_bytes key);
bool tsri_store_map_has(const tsri_store_map *map, tsri_bytes key);
/* Errors: TSR_ERR_NO_MEMORY, also where there would be more than max_bytes. */
tsr_status tsri_store_map_set(tsri_store_map *map, tsri_bytes key, tsri_bytes value);
void tsri_store_map_delete(tsri_store_map *map, tsri_bytes key);
/* Forgets an entry that is neither there nor waited for. */
void tsri_store_map_tidy(tsri_store_map *map, tsri_store_entry *entry);
/* How many keys begin so. */
int64_t tsri_store_map_count(const tsri_store_map *map, tsri_bytes prefix);

/* Decides what set, get, add, compare_set, check and delete of one key would do; nothing changes
 * yet. Errors: TSR_ERR_FORMAT and TSR_ERR_INVALID of counters. */
tsr_status tsri_store_decide(const tsri_store_map *map, const tsri_store_ask *ask,
                             tsri_store_answer *out);
/* Does it; answer->result is valid until the map changes again. */
tsr_status tsri_store_commit(tsri_store_map *map, const tsri_store_ask *ask,
                             const tsri_store_answer *answer);

/* --- texts ------------------------------------------------------------------------------------ */

/* "rank 3", "ranks 1, 3, 5-7": those for which has[rank] is 0; returns how many. */
int tsri_store_absent_text(const unsigned char *has, int nranks, char *buf, size_t size);
/* The beginning of a key, with what can't be printed as '?'. */
const char *tsri_store_key_text(tsri_bytes key, char *buf, size_t size);
/* This process: "process 12 on node-a". */
void tsri_store_own_id(char *buf, size_t size);

/* --- sockets ---------------------------------------------------------------------------------- */

/* No delay; a peer that has vanished is seen within half a minute. */
void tsri_store_tune_socket(int fd);

/* Returns whether the socket is ready in time to be sent to, or read; else errno, ETIMEDOUT if it
 * is late. */
bool tsri_store_await_socket(int fd, bool to_send, double until_s);

/* --- kinds of stores -------------------------------------------------------------------------- */

/* A call of the public interface. Pointers are the caller's. */
typedef struct tsri_store_call {
    tsri_store_op op;
    int nkeys;
    const char *const *keys;
    tsri_store_ask ask; /* all but key */
    double timeout_s;
    void *dst;        /* room for the result */
    size_t out_bytes; /* the result's size, also where there is no room for it */
    int64_t number;   /* add, count */
    bool there;       /* check, delete: before */
} tsri_store_call;

typedef struct tsri_store_ops {
    /* Does it, or fails with the whole text. TSR_ERR_DEAD is final. */
    tsr_status (*call)(tsr_store *store, tsri_store_call *call);
    /* NULL: no network, no address. */
    void (*address)(const tsr_store *store, char *buf, size_t size);
    /* Leaves; store may be half-opened. */
    void (*close)(tsr_store *store);
} tsri_store_ops;

struct tsr_store {
    const tsri_store_ops *ops;
    int rank, nranks; /* -1 and 0 of one that has only connected */
    double timeout_s;
    char where[PATH_MAX + 16];                                 /* the address, for messages */
    char prefix[TSRI_STORE_MAX_FULL_KEY - TSRI_STORE_MAX_KEY]; /* before every key */
    size_t base;    /* bytes of it that stay when another one is set */
    char dead[512]; /* why, once it is */
    void *self;     /* the kind's own */
};

/* The terms of a meeting. */
typedef struct tsri_store_joining {
    const tsri_store_place *place;
    bool meet;          /* wait for all ranks; else only connect */
    double start_s;     /* when opening began; until start_s + store->timeout_s */
    const char *prefix; /* of the meeting */
} tsri_store_joining;

tsr_status tsri_store_tcp_open(tsr_store *store, const tsri_store_joining *joining);
tsr_status tsri_store_file_open(tsr_store *store, const tsri_store_joining *joining);

/* Connects to the server at `place` and greets it, again and again until until_s; seconds: in all,
 * for messages. The caller owns *out_fd, which does not block. */
tsr_status tsri_store_dial(const tsri_store_place *place, const char *where, bool rank0_serves,
                           double until_s, double seconds, int *out_fd);

enum { TSRI_STORE_NAMED = 8 }; /* the most absent keys that a message names */
/* calls.c. TSR_ERR_TIMEOUT: so many of a call's keys are absent, the first of them those `named`,
 * by their places in the call. */
tsr_status tsri_store_say_absent(const tsr_store *store, const tsri_store_call *call, int absent,
                                 int nnamed, const int *named);
/* Makes TSR_ERR_DEAD final, with the error's text. */
tsr_status tsri_store_die(tsr_store *store, const char *fmt, ...) TSR_PRINTF(2, 3);
/* calls.c. "get", "set", ... */
const char *tsri_store_op_text(tsri_store_op op);
/* "get of 'name'": what a call does, for messages. */
const char *tsri_store_call_text(const tsri_store_call *call, char *buf, size_t size);

#endif
