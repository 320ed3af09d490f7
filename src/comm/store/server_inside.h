/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a store's server. One thread does everything; a connection has one request at a
 * time in hand, and nothing more is read from it until the reply has gone. A request that waits is
 * parked: it stays in the connection's buffer until its key comes, its meeting is complete, or its
 * time is over.
 */
#ifndef TESSERA_COMM_STORE_SERVER_INSIDE_H
#define TESSERA_COMM_STORE_SERVER_INSIDE_H

#include "src/comm/store/inside.h"
#include "src/comm/store/wire.h"

#include <pthread.h>

typedef struct tsri_conn tsri_conn;

/* Ranks that meet under one name, again and again: a round begins when the one before is complete,
 * for ranks that have left that one. */
typedef struct tsri_meeting {
    struct tsri_meeting *next;
    int nranks, nlive; /* connections that have joined, in whatever round */
    int uses;          /* of functions that have it in hand: it goes with the last rank, or use */
    int here;          /* of these in the present round */
    uint64_t round;
    tsri_conn **live;                  /* of each rank; NULL: not there */
    unsigned char *gave_up;            /* of each rank: it came to this round, and waited in vain */
    char note[3 * TSRI_STORE_ID_SIZE]; /* what happened, for those who wait in vain; "" */
    size_t name_bytes;
    char name[];
} tsri_meeting;

/* A connection's buffer; bytes [at, used) are pending. */
typedef struct tsri_conn_buffer {
    unsigned char *bytes;
    size_t at, used, room;
} tsri_conn_buffer;

/* A parked request. */
typedef struct tsri_parked {
    double until_s;          /* its deadline */
    size_t key_at;           /* WAIT: position of the next key in the payload */
    tsri_store_entry *entry; /* the missing key; NULL if it waits for a meeting */
    tsri_conn *prev, *next;  /* neighbours in the key's list of waiting connections */
} tsri_parked;

struct tsri_conn {
    tsri_conn *prev, *next; /* all, oldest first */
    tsri_conn *next_ready;
    int fd;
    uint32_t events; /* that epoll watches for */
    bool said_hello, greeted, dead, ready, parked;
    bool stalled; /* waits for room: nothing is read from it, or its request is not served */
    unsigned char wanted[TSRI_WIRE_PROOF], proof[TSRI_WIRE_PROOF]; /* its, and ours */
    double since_s;                                                /* of the connection */
    double active_s;                                               /* of its last request's end */
    double whole_by_s;    /* the request that is coming must be whole then; 0: none is coming */
    double read_by_s;     /* the reply must have been read then; 0: there is none */
    size_t held;          /* bytes of a large request; 0: of a small one */
    bool held_waits;      /* it counts as one that waits, not as one that is coming */
    size_t going;         /* bytes of large replies */
    tsri_conn_buffer in;  /* received bytes; a request's head is at in.at */
    tsri_conn_buffer out; /* bytes to send */
    tsri_parked parks;
    /* of one that has joined */
    tsri_meeting *meeting;
    int rank;
    uint64_t round;
    char id[TSRI_STORE_ID_SIZE];
};

enum {
    TSRI_SERVER_MAX_ADDRESSES = 16, /* of a name; those behind are not served */
    /* Limits on all clients together; TSRI_STORE_MAX_... limit single keys and values. */
    TSRI_SERVER_MAX_STRANGERS = 256, /* that have not greeted; the oldest makes way */
    TSRI_SERVER_MAX_CONNECTIONS = 2 * TSRI_STORE_MAX_RANKS, /* or 7/8 of the descriptors */
    TSRI_SERVER_MAX_SEATS = 4 * TSRI_STORE_MAX_RANKS,       /* ranks of all meetings */
    TSRI_SERVER_SMALL = 4096,                               /* bytes that are not counted below */
    TSRI_SERVER_MAX_COMING = 128 << 20, /* bytes of requests that are not yet served */
    TSRI_SERVER_MAX_WAITING = 64 << 20, /* of those that wait for keys */
    TSRI_SERVER_MAX_GOING = 128 << 20,  /* of replies that are not yet read */
    TSRI_SERVER_MAX_STORED = 256 << 20, /* of keys and values */
};

/* Memory of large requests that are incomplete (coming) or parked (waiting), and of large replies
 * that are not sent yet (going); bytes. */
typedef struct tsri_server_load {
    size_t coming, waiting, going;
} tsri_server_load;

/* Times of the server's thread. */
typedef struct tsri_server_timers {
    double scan_at_s;    /* earliest end of a connection's timer, or 0 */
    double accept_at_s;  /* end of a pause in accepting connections, or 0 */
    double idle_since_s; /* time at which the last connection ended */
} tsri_server_timers;

struct tsri_store_server {
    int listen_fd[TSRI_SERVER_MAX_ADDRESSES], nlisten;
    int epoll_fd, wake_fd, port;
    char note[512]; /* why nobody may come from other machines; "" */
    double idle_s;
    tsri_store_token token;
    pthread_t thread;
    pthread_mutex_t lock; /* of the next four */
    pthread_cond_t changed;
    bool must_stop, must_drain, over;
    int members; /* connections that have joined */
    /* the thread's own */
    tsri_store_map map;
    tsri_meeting *meetings;
    tsri_conn *first, *last, *dead, *first_ready, *last_ready;
    int greeted, strangers; /* connections that have and have not greeted */
    int seats, nstalled;
    uint64_t next_round; /* of a meeting that begins: none of an earlier one of its name */
    tsri_server_load load;
    tsri_server_timers timers;
};

/* --- server.c --------------------------------------------------------------------------------- */
/* Timers are looked at no later than this. */
void tsri_server_set_timer(tsri_store_server *s, double at_s);
/* The connection is gone on with when the present event is done. */
void tsri_server_make_ready(tsri_store_server *s, tsri_conn *c);
/* Goes on with those. */
void tsri_server_go_on(tsri_store_server *s);
void tsri_server_count_members(tsri_store_server *s, int more);

/* --- conn.c ----------------------------------------------------------------------------------- */
/* Takes the socket. */
void tsri_conn_open(tsri_store_server *s, int fd);
/* Closes; the memory goes with tsri_conn_bury. */
void tsri_conn_kill(tsri_store_server *s, tsri_conn *c);
void tsri_conn_bury(tsri_store_server *s);
/* When its timer ends: of a parked request, or of a stranger; INFINITY: it has none. */
double tsri_conn_deadline(const tsri_conn *c);
void tsri_conn_event(tsri_store_server *s, tsri_conn *c, uint32_t events);
/* Sends what is there, and deals with what has come in, as far as that goes. */
void tsri_conn_pump(tsri_store_server *s, tsri_conn *c);
/* The reply to the request in hand, in two parts, either of which may be empty. */
void tsri_conn_reply(tsri_store_server *s, tsri_conn *c, int32_t status, tsri_bytes a,
                     tsri_bytes b);
void tsri_conn_reply_number(tsri_store_server *s, tsri_conn *c, uint64_t number);
/* Replies with the thread's error. */
void tsri_conn_reply_error(tsri_store_server *s, tsri_conn *c, tsr_status status);
/* The request in hand has been replied to. */
void tsri_conn_next(tsri_store_server *s, tsri_conn *c);

/* --- limits.c --------------------------------------------------------------------------------- */
/* How long a peer may take for so many bytes, in seconds. */
double tsri_limit_patience(size_t bytes);
/* Takes a new connection; another one makes way, or this one is refused, if there are too many. */
void tsri_limit_admit(tsri_store_server *s, int fd);
/* Closes the connection that is needed least: one that has not greeted, else one that has not
 * joined and has nothing to ask, else one that has not joined, the one idle for longest. False: all
 * are ranks'. */
bool tsri_limit_drop_weakest(tsri_store_server *s);
/* A request of so many bytes is coming; false: it waits for room. */
bool tsri_limit_coming(tsri_store_server *s, tsri_conn *c, size_t bytes);
/* The request in hand is to wait for a key. Errors: TSR_ERR_NO_MEMORY (too many wait). */
tsr_status tsri_limit_waiting(tsri_store_server *s, tsri_conn *c);
void tsri_limit_request_done(tsri_store_server *s, tsri_conn *c);
/* Whether there is room for a reply of so many bytes. */
bool tsri_limit_going(const tsri_store_server *s, size_t bytes);
void tsri_limit_replied(tsri_store_server *s, tsri_conn *c, size_t bytes);
/* All replies have been sent. */
void tsri_limit_read(tsri_store_server *s, tsri_conn *c);
/* The connection goes on when there is room. */
void tsri_limit_stall(tsri_store_server *s, tsri_conn *c);
/* The connection ends. */
void tsri_limit_leave(tsri_store_server *s, tsri_conn *c);

/* --- serve.c ---------------------------------------------------------------------------------- */
/* Deals with the request in hand: replies, or parks it and returns TSRI_WIRE_WAITS, or returns
 * TSRI_WIRE_STALLS for want of room for the reply. Another value than these and 0: it makes no
 * sense, and the connection is to be closed. */
int tsri_serve(tsri_store_server *s, tsri_conn *c);
/* Goes on with a parked request: its key has come. */
void tsri_serve_again(tsri_store_server *s, tsri_conn *c);
/* Its time is over. */
void tsri_serve_timeout(tsri_store_server *s, tsri_conn *c);
void tsri_serve_park(tsri_store_server *s, tsri_conn *c);
/* Waits no more for its key. */
void tsri_serve_unpark(tsri_store_server *s, tsri_conn *c);

/* --- meet.c ----------------------------------------------------------------------------------- */
int tsri_meet_join(tsri_store_server *s, tsri_conn *c, tsri_wire_reader *fields);
void tsri_meet_leave(tsri_store_server *s, tsri_conn *c);
/* Tells one who waits for the others that they have not come. */
void tsri_meet_give_up(tsri_store_server *s, tsri_conn *c);
void tsri_meet_finish(tsri_store_server *s);

#endif
