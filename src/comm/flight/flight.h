/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flight recorder: each rank's last calls, in the arena, so that they can be read when the rank
 * is gone. Always on. Written by the communicators; threads of a rank may write at once. Shared
 * with the launcher, which dumps what a dead rank has left.
 *
 *   flight.c                 recording: needs no library, so the CUDA module has it, too
 *   ../local/dump.c          the recorder's memory as text, flight.rank<R>.txt
 *   ../local/report.c        dumps of a rank about itself: when a call fails, and tsr_flight_dump
 *   ../../cli/flight/read.c  the text, read again; judge.c: which rank the others waited for
 *
 * A call is SCHEDULED when it is asked for behind others, STARTED when this rank has come to it,
 * COMPLETED when `finish` has returned (on streams: when its work has been put there), and FAILED.
 * Calls of groups of one, in which nobody waits, are not recorded.
 *
 * A record costs about 27 ns, and 10 more where the call has to be described first. Its times
 * are of the coarse clock, to 4 ms, but for the end of a call in which the rank slept, or which
 * failed, when there is time for an exact one.
 */
#ifndef TESSERA_COMM_FLIGHT_FLIGHT_H
#define TESSERA_COMM_FLIGHT_FLIGHT_H

#include <tessera/world.h>

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct tsr_world;
struct tsri_coll;

enum {
    TSRI_FLIGHT_CALLS = 2000,      /* the last ones of a rank are kept */
    TSRI_FLIGHT_GROUPS = 512,      /* that a rank's calls are told apart by */
    TSRI_FLIGHT_GROUP_RANKS = 256, /* of a group's list: the first ones */
    TSRI_FLIGHT_LINE = 64,         /* of the cache */
    TSRI_FLIGHT_PAGE = 4096,
    TSRI_FLIGHT_RUN = 72, /* bytes of a run's name: a launcher's has 64 at most */
};

typedef enum tsri_flight_state {
    TSRI_FLIGHT_EMPTY = 0,
    TSRI_FLIGHT_SCHEDULED, /* asked for; behind others of its group */
    TSRI_FLIGHT_STARTED,   /* this rank has come to it */
    TSRI_FLIGHT_COMPLETED,
    TSRI_FLIGHT_FAILED,   /* in vain; or refused, if it has not started */
    TSRI_FLIGHT_HELD = 7, /* of an entry that is being written */
} tsri_flight_state;

/* A call as it was asked for. kind: a tsri_coll_kind, or the one behind them: an exchange. */
typedef struct tsri_flight_call {
    uint64_t seq;   /* in its group and world, from 1; 0: not known yet */
    uint64_t shown; /* what messages call it; 0: by seq */
    uint64_t bytes, hash;
    int64_t asked_ns;     /* times are of CLOCK_REALTIME */
    int32_t group, world; /* group: place in the table plus 1; 0: it was full */
    int32_t line, nseg, root;
    uint8_t kind, op, algo, dtype, ndim;
    uint8_t unused[7];
    int64_t shape[8]; /* of the first segment */
    char what[48], file[40];
} tsri_flight_call;

enum { TSRI_FLIGHT_WORDS = sizeof(tsri_flight_call) / sizeof(uint64_t) };

typedef struct tsri_flight_entry {
    _Atomic uint64_t mark; /* its number, of this rank's calls from 1, and its state */
    /* The rank that this one waits for, plus 1, once it has had to sleep; below 0: it came. Stays
     * when the wait is in vain. */
    _Atomic int64_t waits;
    _Atomic int64_t started_ns, ended_ns;     /* 0: not yet */
    _Atomic uint64_t word[TSRI_FLIGHT_WORDS]; /* a tsri_flight_call */
} tsri_flight_entry;

static inline uint64_t tsri_flight_mark(uint64_t number, int state)
{
    return number << 3 | (uint64_t)state;
}

static inline uint64_t tsri_flight_number_of(uint64_t mark)
{
    return mark >> 3;
}

static inline int tsri_flight_state_of(uint64_t mark)
{
    return (int)(mark & 7);
}

/* Two of different ranks are the same group if comm, lane and the list of ranks are. */
typedef struct tsri_flight_group {
    _Atomic int32_t ready;               /* what follows is written */
    int32_t lane, nranks;                /* ranks may be more than are listed */
    _Atomic uint64_t started, completed; /* the last call in this world */
    char comm[16];                       /* "local", "gloo.1", ...: who makes the calls */
    int32_t ranks[TSRI_FLIGHT_GROUP_RANKS];
} tsri_flight_group;

typedef enum tsri_flight_exit {
    TSRI_FLIGHT_RUNNING = 0, /* or it isn't known */
    TSRI_FLIGHT_EXITED,      /* with a code */
    TSRI_FLIGHT_KILLED,      /* by a signal */
    TSRI_FLIGHT_STOPPED,     /* ended after the launcher had begun to stop the ranks */
} tsri_flight_exit;

typedef struct tsri_flight {
    _Atomic uint64_t calls;
    _Atomic int64_t latest_ns;                         /* the last exact time */
    _Atomic int32_t rank, nranks, pid, world, restart; /* world 0: it has made none yet */
    /* The world that a dump was left of; less than 0: of that one it is being written. */
    _Atomic int32_t dumped;
    _Atomic int32_t exit, exit_status; /* tsri_flight_exit; the code or signal */
    _Atomic int32_t ngroups;
    char run[TSRI_FLIGHT_RUN]; /* what tells this run from others */
    tsri_flight_group group[TSRI_FLIGHT_GROUPS];
    _Alignas(TSRI_FLIGHT_LINE) tsri_flight_entry entry[TSRI_FLIGHT_CALLS];
    /* The rank that this one sleeps for, plus 1; in the upper half a count that grows while it
     * sleeps. So a count that stands still is of a rank that does not wait, or of a process that
     * stands still itself. */
    _Atomic uint64_t sleeps_for;
    /* So that what follows in the arena stays where it is in its page: at other places counters of
     * two ranks meet in one set of the cache, and a hand-shake takes 0.54 us instead of 0.42. */
    char unused[TSRI_FLIGHT_PAGE - sizeof(uint64_t)];
} tsri_flight;

/* Where a dump differs from what the recorder itself knows. */
typedef struct tsri_flight_about {
    int rank, nranks;   /* of a rank that never made a world */
    const char *run;    /* likewise */
    int restart;        /* likewise */
    const char *reason; /* why there is a dump; one line is made of it */
    tsr_log_fn *log;    /* told by name of a dump that can't be written; may be NULL */
    void *log_arg;
} tsri_flight_about;

/* --- flight.c: recording. f NULL and number 0 are fine everywhere ----------------------------- */
/* Begins world number `world` of the rank. run: of which TSRI_FLIGHT_RUN - 1 characters count. */
void tsri_flight_open(tsri_flight *f, int rank, int nranks, int world, const char *run);
/* The number of a group in the table, from 1; 0 if that is full. comm: up to 15 characters without
 * blanks. Looks through the table, so ask once per group. */
int tsri_flight_group_of(tsri_flight *f, const char *comm, int lane, int nranks, const int *ranks);
/* Records a call that waits for others before its communicator is asked for it, so its number in
 * the group isn't known: keep the returned number in coll->flight. */
uint64_t tsri_flight_schedule(tsri_flight *f, int group, const struct tsri_coll *coll);
/* Records that the rank comes to call `seq` of a group (or finds the record by coll->flight).
 * Returns its number. kind: of the call; bytes: of all segments; hash: equal where ranks agree, 0
 * if none is at hand. */
uint64_t tsri_flight_begin(tsri_flight *f, int group, uint64_t seq, int kind,
                           const struct tsri_coll *coll, uint64_t bytes, uint64_t hash);
/* Does so in two steps for a call that is made again and again: describes it once, and begins it
 * by that, where what differs from time to time is filled in. scheduled: coll->flight. */
void tsri_flight_describe(tsri_flight_call *out_call, int kind, const struct tsri_coll *coll,
                          uint64_t bytes, uint64_t hash);
uint64_t tsri_flight_begin_described(tsri_flight *f, int group, uint64_t seq,
                                     tsri_flight_call *call, uint64_t scheduled);
void tsri_flight_completed(tsri_flight *f, uint64_t number);
void tsri_flight_failed(tsri_flight *f, uint64_t number);
/* It never came about: its number in the group is the next call's. */
void tsri_flight_refused(tsri_flight *f, uint64_t number);
/* Before the rank sleeps until world rank `rank` comes; and when it has come. */
void tsri_flight_waits(tsri_flight *f, uint64_t number, int rank);
void tsri_flight_waited(tsri_flight *f, uint64_t number);
/* Notes that the rank goes on sleeping for world rank `rank`. Called about ten times a second while
 * it sleeps in any call. */
void tsri_flight_sleeps_on(tsri_flight *f, int rank);
/* Returns the rank that a rank sleeps for, by two values of its sleeps_for, half a second or more
 * apart; -1 if it does not sleep, or stands still. */
int tsri_flight_sleeps_for(uint64_t before, uint64_t now);

/* --- report.c --------------------------------------------------------------------------------- */
/* Passes on the `status` of a recorded call, and keeps the error's text. If another rank is to
 * blame, or the communicator's work is over, the call has failed, and the first such one of a world
 * leaves a dump where TESSERA_FLIGHT_DIR says. */
tsr_status tsri_flight_fail(struct tsr_world *world, uint64_t number, tsr_status status);
/* Ends a recorded call: completes it, or fails it as tsri_flight_fail does. */
tsr_status tsri_flight_end(struct tsr_world *world, uint64_t number, tsr_status status);
/* Notes a call that fails while it starts: for any other reason, the call is refused. */
tsr_status tsri_flight_fail_start(struct tsr_world *world, uint64_t number, tsr_status status);
/* A dump because of `reason`, unless this world has left one already, where TESSERA_FLIGHT_DIR
 * says. Changes no error text. */
void tsri_flight_leave(tsri_flight *f, const tsri_flight_about *about);

/* --- dump.c ----------------------------------------------------------------------------------- */
/* Writes flight.rank<R>.txt, and makes its folder if it is missing. The file appears whole or not
 * at all. Returns 0 or -errno. */
int tsri_flight_write(const tsri_flight *f, const tsri_flight_about *about, const char *dir);
/* The dump of a rank whose process has ended, unless it has left a whole one itself. dir NULL or
 * "": nothing is done. Returns 0 or -errno. */
int tsri_flight_dump_ended(const tsri_flight *f, const tsri_flight_about *about, const char *dir);
/* For the launcher: how the process of a rank of this arena has ended (si_code and si_status of
 * waitid), and whether the ranks were being stopped by then. */
void tsri_flight_note_exit(int arena_fd, int rank, int code, int status, int stopping);
/* The dumps of those ranks of an arena that have left none themselves, or no whole one; their
 * processes have ended. dir NULL or "": nothing is done. first_rank: the world rank of the arena's
 * rank 0. run: what the run is called; NULL: by the arena. restart: how many attempts have failed
 * before. log: as in tsri_flight_about. Returns 0 or -errno of the first that fails. */
int tsri_flight_dump_rest(int arena_fd, int first_rank, int world_size, const char *run,
                          int restart, const char *dir, tsr_log_fn *log, void *log_arg);
/* An entry of the ring, as it was at one moment. */
typedef struct tsri_flight_seen {
    uint64_t number;
    int state, waits; /* waits: as in the entry */
    int64_t started_ns, ended_ns;
    tsri_flight_call call;
} tsri_flight_seen;
/* Copies entry `place`, which may be written meanwhile. Returns 0 if there is none to be had. */
int tsri_flight_copy(const tsri_flight *f, int place, tsri_flight_seen *out);

/* The words of the text; NULL for numbers that are none. */
const char *tsri_flight_kind_name(int kind);
const char *tsri_flight_state_name(int state);
const char *tsri_flight_dtype_name(int dtype);
const char *tsri_flight_op_name(int op);

#endif
