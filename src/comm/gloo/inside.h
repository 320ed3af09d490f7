/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the Gloo communicator.
 *
 *   api.h, module.cc  Gloo itself, in a module of its own
 *   pair.h, pair.cc   its connections, which only members make
 *   gloo.c            loading it; making the communicator; the vtable
 *   root.c            what a communicator and its twins share: the store, and how all of it ends
 *   end.c             how a group, or a wait of its thread, comes to nothing
 *   merge.c           messages, of one piece or several
 *   agree.c           what members tell each other before a call
 *   steps.c           the steps of a plan
 *   pulls.c           a SEND_RECV that was not prepared
 *   call.c            all other calls, on the group's thread
 *   group.c           groups: finding them, connecting them, their threads
 *   wait.c            waiting for a group's calls
 *
 * A group has connections of its own between any two members, and a thread of its own, which does
 * the group's calls one after the other, in the order in which they were started. Both are made by
 * its first call, and need the members alone, which find each other by keys of the store. So groups
 * never wait for each other, and calls proceed while the rank computes. The rank's own thread waits
 * (finish, release, prepare, exchange), and it alone loses patience: after the world's timeout
 * without any progress of the group.
 *
 * How a call is done is a list of steps, as for NCCL (tsri_nccl_plan), in the form in which all is
 * sends and receives between two members: everyone gets what it reduces and does so in the order of
 * members. So the bits are those of the local communicator, on all ranks and in each run, and each
 * rank receives just the bytes that tsri_coll_bytes says. (Gloo's own reductions run round a ring,
 * round half floats at each step, and can't be interrupted.)
 *
 * Before a call the members exchange records of it, all with all, and compare; a call that was
 * prepared has done so once.
 *
 * What ends one group ends all of a root's: the first rank that sees a peer die or not come, fails
 * itself, or is told to abort, leaves a note in the store (the key "end"), and then cuts its
 * connections. Peers that wait for it see that, find the note and do the same; the others look for
 * it ten times a second. A rank that sleeps notes for whom (the key "sleep/RANK"), so that a rank
 * that loses patience blames the end of the chain, and not a rank that waits itself. A rank that
 * leaves in peace says so, of each twin before that one's connections go (the key
 * "left/RANK/TWIN").
 */
#ifndef TESSERA_COMM_GLOO_INSIDE_H
#define TESSERA_COMM_GLOO_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "src/comm/gloo/gloo.h"
#include "src/comm/gloo/api.h"
#include "src/comm/call.h"
#include "src/comm/move/move.h"
#include "src/comm/schedule/plan.h"

/* Why all is over. */
typedef struct tsri_gloo_end {
    tsr_status status; /* as `by` met it */
    int by, about;     /* world ranks: who says so; who did not come, or is gone (-1: nobody) */
    char text[1280];
} tsri_gloo_end;

/* State that a communicator and its twins share. */
typedef struct tsri_gloo_root {
    tsr_world *world;
    const tsri_gloo_api *api;
    tsri_gloo_device *device;
    int twins;
    char key[48]; /* before all keys: of this world among those that met in this store */
    tsr_store *store;
    pthread_mutex_t store_lock; /* never held for longer than a request takes */
    pthread_mutex_t lock;       /* of all below, and of all groups' jobs; taken after store_lock */
    pthread_cond_t changed;     /* `ended`, `stop` */
    atomic_bool ended;
    bool ending, stop, watches;
    tsri_gloo_end end;
    struct tsri_gloo_group *groups; /* of all twins */
    pthread_t watcher;
} tsri_gloo_root;

typedef struct tsri_gloo {
    tsri_comm pub;
    tsri_gloo_root *root;
    bool owns_root;
    int twin;                       /* its number: 0 owns the root */
    struct tsri_gloo_group *groups; /* by next_own */
    struct tsri_gloo_group *agree;  /* all ranks, for exchange */
    tsri_comm_stats stats;          /* under root->lock */
} tsri_gloo;

typedef enum tsri_gloo_job_kind {
    TSRI_GLOO_CALL = 0,
    TSRI_GLOO_PREPARE,
    TSRI_GLOO_EXCHANGE,
    TSRI_GLOO_POISON,
} tsri_gloo_job_kind;

/* The kind of the record of a rank that comes to no further call of a group. */
enum { TSRI_COLL_POISON_ = TSRI_COLL_EXCHANGE_ + 1 };

/* Why. */
typedef struct tsri_gloo_over {
    int32_t status; /* TSR_OK: it is not over */
    char text[1532];
} tsri_gloo_over;

/* A member's words about a call: its record, and how many words follow on what it reads
 * (SEND_RECV). */
typedef struct tsri_gloo_record {
    tsri_call_entry call;
    int64_t words;
    int64_t gives; /* not a record: what the other member reads is on its way to it */
} tsri_gloo_record;

/* Where a group's thread is: what a message about a member that is late says. */
typedef enum tsri_gloo_stage {
    TSRI_GLOO_CONNECTING = 0,
    TSRI_GLOO_MEETING, /* the member has not come to the call */
    TSRI_GLOO_MOVING,
} tsri_gloo_stage;

/* Pieces that go together, merged into messages: made once, and done as often as is wanted. */
typedef struct tsri_gloo_moves {
    int npieces, nmessages, capacity;
    tsri_gloo_piece *pieces, *messages;
    struct tsri_gloo_part *parts; /* of each piece */
    int *count, *open;            /* pieces of each message; see merge.c */
    char *joint;                  /* messages of several pieces */
    size_t joint_bytes;
    tsri_gloo_post *post;
} tsri_gloo_moves;

enum { TSRI_GLOO_TALKS = 2 };

/* A call worked out: kept in coll->prepared; or in the group, for calls that are not prepared but
 * made again with the same buffers. The group's thread's, while a job has it. */
typedef struct tsri_gloo_call {
    struct tsri_gloo_call *next; /* in the group's list, latest first */
    tsri_nccl_plan plan;
    uint64_t hash; /* of what the members agreed on */
    /* The messages of each talk of the plan, with the group's staging memory at `staging`. */
    tsri_gloo_moves talk[TSRI_GLOO_TALKS];
    const char *staging;
    bool is_resolved;
    uint64_t bytes_read; /* by one call */
    tsri_coll coll;      /* in the group's list: with segments of its own, behind it */
} tsri_gloo_call;

/* A job of a group's thread. Belongs to its group until it is released. */
typedef struct tsri_gloo_job {
    struct tsri_gloo_job *next, *older; /* in the queue; among all of the group */
    tsri_gloo_job_kind kind;
    const tsri_coll *coll;
    tsri_call_entry record; /* what this rank says about it */
    uint64_t number;        /* of the group's jobs, from 1 */
    uint64_t flight;        /* in the flight recorder */
    bool early;             /* SEND_RECV that reads nothing of peers: finish does not wait */
    const void *mine;       /* EXCHANGE */
    void *all;
    size_t bytes;
    tsri_gloo_call *prepared; /* PREPARE: what came of it */
    /* Under root->lock. */
    bool done, told; /* told: the error has been returned */
    bool pulled;     /* SEND_RECV: dst is complete */
    tsr_status status;
    uint64_t bytes_read;
    char text[1792];
} tsri_gloo_job;

/* The progress of a group's thread, which writes it; waiting threads read it. */
typedef struct tsri_gloo_where {
    _Atomic int stage; /* tsri_gloo_stage */
    int at;            /* the member that it waits for, or -1 for any */
    uint64_t moved;    /* number of messages so far */
    int *due;          /* number of missing messages of each member, if at is -1 */
} tsri_gloo_where;

/* Buffers of a group's thread, kept from call to call. */
typedef struct tsri_gloo_room {
    char *staging;
    size_t staging_bytes;
    tsri_gloo_piece *pieces;
    int cpieces;
} tsri_gloo_room;

typedef struct tsri_gloo_group {
    tsri_group pub;
    tsri_gloo *comm;
    struct tsri_gloo_group *next, *next_own;
    char key[128]; /* of its connections, in the store */
    /* The rank's own thread's. */
    uint64_t started, finished; /* calls */
    uint64_t jobs;
    int nprepared;      /* that are */
    tsri_gloo_job *all; /* newest first */
    tsri_gloo_job *free_jobs;
    /* Under root->lock. */
    pthread_cond_t asked, done;
    tsri_gloo_job *first, *last; /* first: the one that is being done */
    uint64_t ndone;
    bool stop, has_thread;
    bool parting; /* the rank only waits for what it has given: failures are this group's alone */
    tsri_gloo_over over;
    tsri_gloo_mesh *mesh; /* written by the group's thread, under root->lock */
    pthread_t thread;
    tsri_gloo_where where;
    /* The group's thread's. */
    bool poisoned; /* another member has ended it */
    tsri_gloo_room room;
    tsri_gloo_moves meeting, moves; /* of records; of what is done once */
    tsri_gloo_call *known;          /* calls that were not prepared, latest first */
    tsri_gloo_record *records;      /* of all members */
} tsri_gloo_group;

/* --- root.c ----------------------------------------------------------------------------------- */
/* TSR_OK, or why all is over, as this rank is to be told. Never waits. */
tsr_status tsri_gloo_check(tsri_gloo_root *root);
/* Ends all, for all ranks, unless it is over already: then the first end stays. Returns as
 * tsri_gloo_check. */
tsr_status tsri_gloo_fail(tsri_gloo_root *root, tsr_status status, int about, const char *text);
/* Returns what rank `rank` has left in the store about its sleep, as in its tsri_flight.sleeps_for;
 * 0: nothing. */
uint64_t tsri_gloo_sleep_of(tsri_gloo_root *root, int rank);
/* Begins and ends looking for the ends that others note, and noting for whom this rank sleeps. */
tsr_status tsri_gloo_watch(tsri_gloo_root *root);
void tsri_gloo_unwatch(tsri_gloo_root *root);
/* Requests to the store, from any thread. */
tsr_status tsri_gloo_store_set(tsri_gloo_root *root, const char *key, const void *value,
                               size_t bytes);
/* *out_bytes is 0 if it is not there yet. `take`: and deletes it. */
tsr_status tsri_gloo_store_poll(tsri_gloo_root *root, const char *key, bool take, void *value,
                                size_t room, size_t *out_bytes);

/* --- end.c ------------------------------------------------------------------------------------ */
/* The group's end, once it is there. */
tsr_status tsri_gloo_check_over(tsri_gloo_group *g);
/* Ends the group on this rank, unless it has ended; returns as tsri_gloo_check_over. */
tsr_status tsri_gloo_set_over(tsri_gloo_group *g, tsr_status status, const char *text);
/* On the group's thread. */
void tsri_gloo_job_pulled(tsri_gloo_group *g, tsri_gloo_job *job);
/* On the group's thread: what it means that Gloo did not do what was asked. */
tsr_status tsri_gloo_backend(tsri_gloo_group *g, const tsri_gloo_job *job, tsri_gloo_result result,
                             const tsri_gloo_error *err);
/* TSR_ERR_DEAD: the connection to a member is gone, as it died, or has left. */
tsr_status tsri_gloo_lost(tsri_gloo_group *g, int member, const tsri_call_entry *record,
                          const tsri_gloo_error *err);
/* Where a rank says that it has left this one of the twins. */
void tsri_gloo_left_key(const tsri_gloo *comm, int rank, char *key, size_t size);
/* Where member `to` finds the address at which `from` listens for it. */
void tsri_gloo_pair_key(const tsri_gloo_group *g, int from, int to, char *key, size_t size);
bool tsri_gloo_is_stopped(tsri_gloo_group *g);
tsr_status tsri_gloo_fail_stopped(void);

/* --- merge.c ---------------------------------------------------------------------------------- */
/* Slots of messages: a number for each job, and the round of it; data's also hold what was agreed
 * on, so that calls that were prepared apart can't meet. */
enum { TSRI_GLOO_RECORDS = 0, TSRI_GLOO_WORDS, TSRI_GLOO_DATA };
static inline uint64_t tsri_gloo_slot(const tsri_gloo_job *job, int round, uint64_t hash)
{
    return hash << 48 ^ (job->number << 2 | (uint64_t)round);
}
/* Room for so many in g->pieces. */
tsr_status tsri_gloo_reserve_pieces(tsri_gloo_group *g, int count);
tsr_status tsri_gloo_post_pieces(tsri_gloo_group *g, const tsri_gloo_job *job, uint64_t slot, int n,
                                 const tsri_gloo_piece *pieces, tsri_gloo_post **out_post);
/* Posts pieces again that tsri_gloo_post_pieces made a post of. */
tsr_status tsri_gloo_post_again(tsri_gloo_group *g, const tsri_gloo_job *job, uint64_t slot,
                                tsri_gloo_post *post);
tsr_status tsri_gloo_wait_pieces(tsri_gloo_group *g, const tsri_gloo_job *job, tsri_gloo_post *post,
                                 int first, int end);
/* Makes `moves` of the first n of g->pieces; nothing to do if they are those already. */
tsr_status tsri_gloo_moves_make(tsri_gloo_group *g, const tsri_gloo_job *job,
                                tsri_gloo_moves *moves, int n);
/* Returns when they are done. */
tsr_status tsri_gloo_moves_run(tsri_gloo_group *g, const tsri_gloo_job *job, uint64_t slot,
                               tsri_gloo_moves *moves);
void tsri_gloo_moves_finish(tsri_gloo_group *g, tsri_gloo_moves *moves);
/* Moves the first n of g->pieces, once. */
tsr_status tsri_gloo_move(tsri_gloo_group *g, const tsri_gloo_job *job, uint64_t slot, int n);

/* --- agree.c ---------------------------------------------------------------------------------- */
/* Passes member i's bytes[i] bytes (same_bytes, if that is NULL) to all, at `all` + i * stride;
 * mine stand there already. */
tsr_status tsri_gloo_pass_around(tsri_gloo_group *g, const tsri_gloo_job *job, int round, void *all,
                                 size_t stride, const size_t *bytes, size_t same_bytes);
/* Everybody's record is here afterwards, and they agree; else all members find that they do not. */
tsr_status tsri_gloo_meet(tsri_gloo_group *g, const tsri_gloo_job *job);
/* Passes around what each member reads from the others. The caller frees out->words. */
tsr_status tsri_gloo_pass_words(tsri_gloo_group *g, const tsri_gloo_job *job, tsri_nccl_words *out);
/* A member has ended the group: gets its reason, and returns that. */
tsr_status tsri_gloo_take_poison(tsri_gloo_group *g, const tsri_gloo_job *job, int member);
/* TSR_ERR_MISMATCH: this rank's record, and that of a member that differs. */
tsr_status tsri_gloo_differ(const tsri_gloo_group *g, int other);

/* --- steps.c ---------------------------------------------------------------------------------- */
/* A step that is a move on this rank, or a fill. */
void tsri_gloo_do_here(const tsri_coll *coll, const tsri_nccl_plan *plan, char *staging,
                       const tsri_nccl_step *step);
/* Copies what this rank reads of itself in a SEND_RECV in which it reads nothing of peers; all of
 * it in a group of one. On the rank's own thread. */
void tsri_gloo_do_own(const tsri_gloo_group *g, const tsri_coll *coll);

typedef enum tsri_gloo_way { TSRI_GLOO_BOTH = 0, TSRI_GLOO_IN, TSRI_GLOO_OUT } tsri_gloo_way;
/* Makes g->pieces of the sends, the receives, or both, among the steps [first, end) of a plan; adds
 * the bytes that are received to *received. */
tsr_status tsri_gloo_pieces_of(tsri_gloo_group *g, const tsri_coll *coll,
                               const tsri_nccl_plan *plan, char *staging, int first, int end,
                               tsri_gloo_way way, int *out_count, uint64_t *received);

/* --- pulls.c ---------------------------------------------------------------------------------- */
/* A SEND_RECV that was not prepared. */
tsr_status tsri_gloo_send_recv(tsri_gloo_group *g, tsri_gloo_job *job);

/* --- call.c ----------------------------------------------------------------------------------- */
/* On the group's thread, when it is connected. */
tsr_status tsri_gloo_do(tsri_gloo_group *g, tsri_gloo_job *job);
/* NULL is fine. Not while a job has it. */
void tsri_gloo_call_free(tsri_gloo_group *g, tsri_gloo_call *call);

/* --- group.c ---------------------------------------------------------------------------------- */
tsr_status tsri_gloo_group_find(tsri_comm *c, int nranks, const int *ranks, int lane,
                                tsri_group **out_group);
/* All ranks, in a lane that no program has. */
tsr_status tsri_gloo_group_agree(tsri_gloo *comm, tsri_gloo_group **out_group);
/* Ends its thread, whatever that does. */
void tsri_gloo_group_stop(tsri_gloo_group *g);
/* Ends the group's thread likewise, and frees the group. */
void tsri_gloo_group_free(tsri_gloo_group *g);
/* A job of the group, not yet asked for. NULL: no memory. */
tsri_gloo_job *tsri_gloo_job_make(tsri_gloo_group *g, tsri_gloo_job_kind kind,
                                  const tsri_coll *coll);
/* Hands it to the group's thread. */
tsr_status tsri_gloo_job_ask(tsri_gloo_group *g, tsri_gloo_job *job);
void tsri_gloo_job_free(tsri_gloo_group *g, tsri_gloo_job *job);

/* --- wait.c ----------------------------------------------------------------------------------- */
/* Waits for it; its status, with its text. TSR_ERR_TIMEOUT, for all, if the group makes no progress
 * for the world's timeout. */
tsr_status tsri_gloo_job_wait(tsri_gloo_group *g, tsri_gloo_job *job);
/* Wait until its dst is complete; until at most `most` of the group's jobs are not done. */
tsr_status tsri_gloo_job_wait_pulled(tsri_gloo_group *g, tsri_gloo_job *job);
tsr_status tsri_gloo_jobs_wait(tsri_gloo_group *g, uint64_t most);
/* tsri_comm_ops.leave. Ends the threads of all groups. */
void tsri_gloo_leave(tsri_comm *c);

#endif
