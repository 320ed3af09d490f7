/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The communicator of ranks of one machine, over the shared arena. A rank publishes where its
 * source is, and pulls what it needs straight out of its peers' tensors.
 *
 *   (flight.h: each rank's last calls, recorded in the arena)
 *   arena.c   making, inheriting and mapping the arena
 *   wait.c    waiting for a peer's counter; finding out that it won't come
 *   record.c  call records (src/comm/call.h) in the arena, and the fault of a group: reading them
 *   call.c    publishing and comparing call records, ending groups
 *   prepare.c what a call says of its segments; said once for all, of calls of plans
 *   group.c   groups, and their channels in the arena
 *   move.c    what each kind of call moves; send.c: SEND_RECV
 *   host.c    who moves it (tsri_mover): this thread, in host memory
 *   device.c  who moves it: a device, on streams; device.h says how calls are ordered
 *   vtable.c  calls from start to release
 *   flow.c    the steps of collectives for per-rank buffers; task_move.c: those that reduce
 *             nothing; task.c: all_reduce, and how all of them begin and end; small.c: those that
 *             are done in one hand-shake
 *   twin.c    another communicator over the same arena, which those are done on
 *   local.c   making the communicator, and its vtable
 */
#ifndef TESSERA_COMM_LOCAL_LOCAL_H
#define TESSERA_COMM_LOCAL_LOCAL_H

#include "src/comm/local/arena.h"
#include "src/comm/comm.h"
#include "src/comm/flight/flight.h"
#include "src/comm/move/move.h"

#include <pthread.h>

/* In a tsri_seg_place: a side that peers do not read. */
#define TSRI_NOWHERE UINT64_MAX

_Static_assert((int)TSRI_ARENA_MAX_RANKS <= (int)TSRI_MOST_SOURCES, "all ranks may be reduced");

/* A mapping of the arena's file. */
typedef struct tsri_arena {
    char *base;
    int nranks;
    tsri_arena_layout layout;
} tsri_arena;

/* bytes_per_rank: 0 for the default. Errors: TSR_ERR_NO_MEMORY, TSR_ERR_INVALID. */
tsr_status tsri_arena_make(int nranks, size_t bytes_per_rank, tsri_arena *out_arena);
/* Makes an arena and returns its file too, which the caller closes. */
tsr_status tsri_arena_make_fd(int nranks, size_t bytes_per_rank, tsri_arena *out_arena,
                              int *out_fd);
/* Opens an arena that another process has made and keeps open. Errors: TSR_ERR_IO, TSR_ERR_INVALID
 * and those of making. */
tsr_status tsri_arena_open(int pid, int fd, size_t bytes_per_rank, int nranks,
                           tsri_arena *out_arena);
/* text: "pid:fd:bytes_per_rank", as the launcher gives it. */
tsr_status tsri_arena_inherit(const char *text, int nranks, tsri_arena *out_arena);
void tsri_arena_unmap(tsri_arena *arena);
/* Tells all ranks that `rank` has failed, and why; rank -1: the text says who. Only the first one's
 * word counts. */
void tsri_arena_abort(const tsri_arena *arena, int rank, const char *text);

static inline tsri_arena_head *tsri_arena_get_head(const tsri_arena *a)
{
    return (tsri_arena_head *)(void *)a->base;
}

static inline tsri_rank_slot *tsri_arena_slot(const tsri_arena *a, int rank)
{
    return (tsri_rank_slot *)(void *)(a->base + a->layout.slots) + rank;
}

static inline tsri_flight *tsri_arena_flight(const tsri_arena *a, int rank)
{
    return (tsri_flight *)(void *)(a->base + a->layout.flights) + rank;
}

static inline char *tsri_arena_region(const tsri_arena *a, int rank)
{
    return a->base + a->layout.regions + (size_t)rank * a->layout.bytes_per_rank;
}

static inline tsri_channel *tsri_arena_channel(const tsri_arena *a, int i)
{
    return (tsri_channel *)(void *)(a->base + a->layout.channels) + i;
}

/* The member blocks of a channel that is ready. */
static inline tsri_member *tsri_arena_members(const tsri_arena *a, const tsri_channel *ch)
{
    return (tsri_member *)(void *)(a->base + a->layout.members) + ch->first_block;
}

/* A member's region, where this rank reads it. */
typedef struct tsri_peer {
    char *base;
    uint64_t bytes;
} tsri_peer;

/* The words of a rank about its last small all_reduce, or barrier: one like it needs but new
 * numbers. */
typedef struct tsri_small_said {
    tsri_loc loc;
    int64_t count;
    tsr_dtype dtype;
    tsr_reduce_op op;
    uint64_t print; /* tsri_call_print; of what is said first, `call` is empty */
    tsri_call_entry call;
    tsri_flight_call flight;
} tsri_small_said;

typedef struct tsri_local_group {
    tsri_group pub;
    struct tsri_local_group *next;
    struct tsri_local *local;
    tsri_channel *channel; /* NULL in a group of one */
    tsri_member *members, *mine;
    uint64_t started, finished; /* calls, of mine */
    uint64_t failed;            /* the first call of mine that failed to finish; 0: none has */
    uint64_t done;              /* what my counter says: behind `finished` between its halves */
    uint64_t passed;            /* calls that all are known to be done with */
    uint64_t gives; /* a bit per place of the ring: a call that reads nothing of peers */
    int in_vain;    /* long spins one after the other that did not help */
    unsigned short_spins;
    tsri_comm_stats stats;
    uint64_t flight[TSRI_CALL_RING]; /* numbers of my calls in the flight recorder */
    tsri_small_said said[2];
    char *stage;      /* of a twin's: what peers read of buffers that they can't; task.c */
    const char **src; /* one per member: scratch of a reduction */
    tsri_peer *peer;  /* one per member */
    void *device;     /* the mover's, on streams */
} tsri_local_group;

typedef struct tsri_local {
    tsri_comm pub;
    const struct tsri_mover *mover;
    const tsri_region *region; /* of this rank, where peers read */
    int first_lane;            /* what lane 0 is in the arena */
    tsri_arena arena;
    bool owns_arena; /* process ranks; thread ranks share their spawner's */
    int *place;      /* by world rank: its place in the arena, -1 on another machine */
    /* Optional: what else ends a wait (what has ended the talk with other machines). Any thread may
     * ask. */
    tsr_status (*poll)(void *arg);
    void *poll_arg;
    int worlds; /* the number of this one among the rank's, from 1 */
    int twins;  /* made of this one so far */
    int spins;  /* before a rank yields its core, while that helps */
    /* The host's. One per place: 0 not opened yet, -1 can't be, else descriptor + 1. */
    int *pidfds;
    pthread_mutex_t lock; /* the host's, of pidfds: groups may be used by several threads */
    tsri_local_group *groups;
    tsri_local_group *agree; /* the host's: all of the machine, for exchange; made with it */
    /* On device memory: its ranks, which tell each other here when they close it. */
    tsri_local_group *closing;
    struct tsri_local *host;       /* this one, or the one that it is over */
    struct tsri_local *on_devices; /* of the host's: those over it */
    struct tsri_local *next;       /* among these */
} tsri_local;

/*
 * Makes the communicator of world->rank, and sets the world's region. ranks: the arena.nranks ranks
 * of this machine, ascending, of which the i-th has place i in the arena; NULL: all of the world.
 * Groups and messages have world ranks; exchange is over the machine, in this order. Takes the
 * arena if `owns_arena` (also on failure). A rank whose place is taken: TSR_ERR_INVALID or
 * TSR_ERR_STATE.
 */
tsr_status tsri_local_create(tsr_world *world, tsri_arena arena, bool owns_arena, const int *ranks,
                             tsri_comm **out_comm);

/* Where a rank of this machine is in the arena. */
static inline int tsri_local_place_of(const tsri_local *local, int rank)
{
    return local->host->place[rank];
}

static inline tsri_rank_slot *tsri_local_slot(const tsri_local *local, int rank)
{
    return tsri_arena_slot(&local->arena, tsri_local_place_of(local, rank));
}

/* How many ranks of this machine see the same GPUs as this one does, by CUDA_VISIBLE_DEVICES, with
 * it. All must have made their communicators. */
int tsri_local_count_alike(const tsri_local *local);

/* wait.c */
typedef enum tsri_wait_for {
    TSRI_WAIT_PUBLISHED,
    TSRI_WAIT_PHASE1,
    TSRI_WAIT_DONE,
    TSRI_WAIT_SMALL, /* it shows its part of a small task */
} tsri_wait_for;

/* Sets one of my counters, and wakes who sleeps on it. */
void tsri_local_advance(tsri_member *mine, tsri_wait_for which, uint64_t to);
/* Whether the counter of member `index` has reached seq. */
bool tsri_local_reached(tsri_local_group *g, int index, tsri_wait_for which, uint64_t seq);
/* Returns when the counter of member `index` has reached seq. `call` is for messages: what this
 * rank is doing. Errors: TSR_ERR_REMOTE, TSR_ERR_DEAD, TSR_ERR_TIMEOUT. */
tsr_status tsri_local_await(tsri_local_group *g, int index, tsri_wait_for which, uint64_t seq,
                            const tsri_call_entry *call);
/* Whether the counter of member `index` reaches seq while this rank spins. */
bool tsri_local_comes_soon(tsri_local_group *g, int index, tsri_wait_for which, uint64_t seq);
/* Waits for all other members. */
tsr_status tsri_local_await_all(tsri_local_group *g, tsri_wait_for which, uint64_t seq,
                                const tsri_call_entry *call);
/* Returns when all other members have reached seq, or never will; after an abort, at the latest
 * when the timeout has passed. */
void tsri_local_linger(tsri_local_group *g, tsri_wait_for which, uint64_t seq);
/* After a fault of call `seq`: returns when no other member writes into this rank's memory any
 * more; at the latest when the timeout has passed. */
void tsri_local_await_writers(tsri_local_group *g, uint64_t seq);
/* TSR_ERR_REMOTE if some rank has aborted; TSR_ERR_DEAD if a member can't advance any more. */
tsr_status tsri_local_check_members(tsri_local_group *g);
/* TSR_ERR_REMOTE if some rank has aborted. */
tsr_status tsri_local_check_abort(const tsri_local *local);
/* Whether process `pid` has ended (or is a zombie). */
bool tsri_local_pid_gone(int pid, int *pidfd);

/* prepare.c: what a rank says about a call that is made again and again, in coll->prepared.
 * Each run changes its numbers alone. */
typedef struct tsri_prepared_record {
    tsri_call_entry call;  /* but for the places; its number is that of the last run */
    tsri_seg_place *place; /* of its segments */
    bool gives;            /* it reads nothing of peers */
} tsri_prepared_record;

typedef struct tsri_local_prepared {
    tsri_flight_call flight;
    tsri_prepared_record record[]; /* as many as tsri_local_records_of says */
} tsri_local_prepared;

tsr_status tsri_local_prepare(tsri_group *pub, tsri_coll *coll);
void tsri_local_unprepare(tsri_group *pub, tsri_coll *coll);
/* Records that the call takes in the ring. */
uint64_t tsri_local_records_of(const tsri_coll *coll);
/* Checks segment i, and places for the peers what they read of it. */
tsr_status tsri_local_place_segment(const tsri_local_group *g, const tsri_coll *c, int i,
                                    tsri_seg_place *out);

/* call.c, record.c. A member's record of call `seq`. */
tsri_call_entry *tsri_call_of(tsri_member *m, uint64_t seq);
/* The places of its nseg segments. */
tsri_seg_place *tsri_call_places(tsri_member *m, tsri_call_entry *call, int nseg);
/* A call in the flight recorder, under the number `seq` that it will have: before it is entered. */
uint64_t tsri_call_record(tsri_local_group *g, const tsri_coll *coll, const tsri_call_entry *call,
                          uint64_t seq);
/* Takes the next number, waits until its place in the ring is free and writes the record there.
 * tsri_local_advance(PUBLISHED) then shows it. */
tsr_status tsri_call_enter(tsri_local_group *g, tsri_call_entry *call,
                           tsri_call_entry **out_record);
/* Waits for everybody's record of call `seq` and compares. On TSR_ERR_MISMATCH the call is over. */
tsr_status tsri_call_meet(tsri_local_group *g, uint64_t seq);
/* Waits and compares; a difference is a fault, seen as soon as two that differ are there. */
tsr_status tsri_call_meet_early(tsri_local_group *g, uint64_t seq);
/* Waits for member `index` to come to call `seq` of mine, and compares. A difference is a fault. */
tsr_status tsri_call_meet_one(tsri_local_group *g, uint64_t seq, int index);
/*
 * SEND_RECV does not wait for members that it has nothing to do with, so nobody sees every record.
 * But each member compares its own, before it says that it is done, with all that are there by
 * then: of two that differ, the later sees it. It leaves a fault in the channel, which all members
 * find, at the latest when they release that call: a group with a fault is over.
 */
void tsri_call_compare(tsri_local_group *g, uint64_t seq);
/* Notes a fault of call `seq`, if it is the first; returns TSR_ERR_MISMATCH with its text. */
tsr_status tsri_call_fault(tsri_local_group *g, uint64_t seq, const char *text);
/* Notes a fault with any status. */
tsr_status tsri_call_end(tsri_local_group *g, uint64_t seq, tsr_status status, const char *text);
/* The fault's status if there is one of call `seq` or an earlier one. */
tsr_status tsri_call_check_fault(const tsri_local_group *g, uint64_t seq);
/* Says that my part of call `seq` is done, and of those behind it that read nothing of peers. */
void tsri_call_done(tsri_local_group *g, uint64_t seq);

/* move.c: waits for the others' record `seq`, moves the data of the segments from `first` on
 * and marks the call done. */
tsr_status tsri_local_move(tsri_local_group *g, const tsri_coll *coll, uint64_t seq, int first);
/* Moves the data in a group of one: src is the result. */
tsr_status tsri_local_move_alone(tsri_local_group *g, const tsri_coll *coll);

/* vtable.c: for communicators on either memory. */
tsr_status tsri_local_start(tsri_group *pub, const tsri_coll *coll, tsri_ticket *out_ticket);
tsr_status tsri_local_finish(tsri_group *pub, tsri_ticket *ticket);
tsr_status tsri_local_release(tsri_group *pub, tsri_ticket *ticket);
void tsri_local_abort(tsri_comm *c, const char *text);
void tsri_local_stats(tsri_comm *c, tsri_comm_stats *out_stats);
tsr_status tsri_local_check(tsri_comm *c);
bool tsri_local_released(tsri_group *pub, const tsri_ticket *ticket);
/* The call is none in two phases. */
bool tsri_local_ready(tsri_group *pub, const tsri_ticket *ticket);
int tsri_local_late(tsri_group *pub, const tsri_ticket *ticket);
tsr_status tsri_local_lost(tsri_group *pub, const tsri_ticket *ticket);
void tsri_local_poison(tsri_group *pub, tsr_status status, const char *text);
/* task.c: the vtable's `task`; flow.c: the memory for it. */
tsr_status tsri_local_task(tsri_group *pub, struct tsri_task *task);
tsr_status tsri_local_stage_take(tsri_local_group *g);
void tsri_local_stage_give(tsri_local_group *g);
/* twin.c: the vtable's `twin`. */
tsr_status tsri_local_twin(tsri_comm *c, tsri_comm **out_comm);

/* send.c: SEND_RECV. Waits for those whom segments [first, first + nseg) read, moves, and marks the
 * call done. */
tsr_status tsri_send_move(tsri_local_group *g, const tsri_coll *c, uint64_t seq, int first,
                          int nseg);
/* Segment i in a group of one. */
tsr_status tsri_send_own(tsri_local_group *g, const tsri_coll *c, int i);

/* group.c: the vtable's `group`. */
tsr_status tsri_local_group_find(tsri_comm *c, int nranks, const int *ranks, int lane,
                                 tsri_group **out_group);
/* Lanes in the arena: below 0 of groups that the communicators keep for themselves.
 * TSRI_LANE_CLOSING less a tsri_device_comm_of is the lane of a communicator on devices. */
enum { TSRI_LANE_AGREE = -1, TSRI_LANE_CLOSING = -2, TSRI_LANES = 1 << 16 };
/* Such a group, which moves nothing. */
tsr_status tsri_local_group_own(tsri_local *local, int nranks, const int *ranks, int lane,
                                tsri_local_group **out_group);
/* Frees all groups of the communicator. */
void tsri_local_groups_free(tsri_local *local);

/* A mover moves the data of a communicator's calls. On streams, calls return before their data has
 * moved: then also what comes before what. */
typedef struct tsri_mover {
    /* Opens a group of several ranks, before its first call: fills g->peer, or does so later on. */
    tsr_status (*open)(tsri_local_group *g);
    void (*close)(tsri_local_group *g); /* optional */
    /* tsri_walk_run for call c; and dst becomes the identity of its op. */
    tsr_status (*walk)(tsri_local_group *g, const tsri_coll *c, const tsri_walk *w, tsr_dtype dtype,
                       int nsrc, const char *const *src, char *dst);
    tsr_status (*fill)(tsri_local_group *g, const tsri_coll *c, const tsri_segment *s);
    /* --- NULL where all is done when a call returns --- */
    /* Before my counter `which` says seq: what it tells peers will be true when what is in the
     * call's stream by now is done. */
    tsr_status (*mark)(tsri_local_group *g, const tsri_coll *c, tsri_wait_for which, uint64_t seq);
    /* After the counter of member `index` has said seq: what is put into the call's stream from now
     * on comes after what that member marked. */
    tsr_status (*follow)(tsri_local_group *g, const tsri_coll *c, int index, tsri_wait_for which,
                         uint64_t seq);
    /* Follows all members that matter: PUBLISHED, the members that this rank reads from; DONE,
     * those that read from it. Not for what SEND_RECV reads. */
    tsr_status (*follow_all)(tsri_local_group *g, const tsri_coll *c, tsri_wait_for which,
                             uint64_t seq);
} tsri_mover;

/* host.c */
extern const tsri_mover tsri_mover_host;

static inline tsr_status tsri_local_mark(tsri_local_group *g, const tsri_coll *c,
                                         tsri_wait_for which, uint64_t seq)
{
    return g->local->mover->mark ? g->local->mover->mark(g, c, which, seq) : TSR_OK;
}

static inline tsr_status tsri_local_follow(tsri_local_group *g, const tsri_coll *c, int index,
                                           tsri_wait_for which, uint64_t seq)
{
    return g->local->mover->follow ? g->local->mover->follow(g, c, index, which, seq) : TSR_OK;
}

static inline tsr_status tsri_local_follow_all(tsri_local_group *g, const tsri_coll *c,
                                               tsri_wait_for which, uint64_t seq)
{
    return g->local->mover->follow_all ? g->local->mover->follow_all(g, c, which, seq) : TSR_OK;
}

#endif
