/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The communicator vtable: collectives over groups of ranks, on tensors that are laid out by 1-D
 * signatures.
 *
 * A collective moves *segments*: parts of one call that share its one hand-shake (NCCL would group
 * them). A segment is a dense row-major array of global shape `shape`; on a rank, a side of it is
 * either the whole array or this rank's balanced piece along an axis (piece `i` for the i-th rank
 * of the group). Which, follows from the kind:
 *
 *   kind            src holds            dst gets
 *   ALL_REDUCE      whole (an addend)    whole: the reduction over the group
 *   ALL_GATHER      piece of src_axis    whole
 *   REDUCE_SCATTER  whole (an addend)    piece of dst_axis of the reduction
 *   ALL_TO_ALL      piece of src_axis    piece of dst_axis
 *   BROADCAST       root: whole          whole
 *   REDUCE          whole (an addend)    root: the reduction
 *   SEND_RECV       its part             what the segment's pulls name: boxes of others' parts
 *
 * Reductions run over group members in order 0, 1, ... whatever arrives first, so that results
 * repeat and all ranks hold the same bits. f16 and bf16 are summed in f32.
 *
 * A call has two halves, so that it can overlap with compute: `start` publishes this rank's source
 * (and may do nothing else), `finish` returns when dst is complete. Where the communicator is
 * `early`, or the call has a stream, dst may be written from `start` on. src must stay untouched
 * until `release`, which returns when no peer reads src (or, for two-phase all-reduce, dst) any
 * more. Calls of one group are started, and finished, in the same order by all its members. src and
 * dst do not overlap; they may be the same in a group of one, at a broadcast's root, and where
 * `by_message` says so.
 *
 * SEND_RECV does not wait for everybody: `finish` waits for the members that this rank's pulls
 * name, and one that reads nothing of peers finishes at once. So stages of a pipeline run apart, by
 * up to 64 calls, after which a `start` waits. `release` returns when no member can read src any
 * more. Ranks must agree on op, number of segments, dtypes, global shapes and `what`; pulls are
 * each rank's own. A member that disagrees, or reads what is not given, fails with
 * TSR_ERR_MISMATCH, and so do all members, at the latest when they release that call; the group is
 * then over. Without `fill`, elements of dst that no pull names stay as they are. src and dst never
 * overlap. A member that gives nothing has src NULL.
 *
 * The memory that peers read (src, unless the kind says otherwise, and dst of a two-phase
 * all-reduce) lies in this rank's region. The sum of bools is their "or".
 */
#ifndef TESSERA_COMM_COMM_H
#define TESSERA_COMM_COMM_H

#include <tessera/sbp.h>
#include "kernels/device.h"
#include "src/core/world.h"

typedef enum tsri_coll_kind {
    TSRI_COLL_BARRIER = 0,
    TSRI_COLL_ALL_REDUCE,
    TSRI_COLL_ALL_GATHER,
    TSRI_COLL_REDUCE_SCATTER,
    TSRI_COLL_ALL_TO_ALL,
    TSRI_COLL_BROADCAST,
    TSRI_COLL_REDUCE,
    TSRI_COLL_SEND_RECV,
    TSRI_COLL_KIND_COUNT_
} tsri_coll_kind;

/* Further kinds of records, of communicators and the flight recorder: the vtable has no such calls.
 */
enum {
    TSRI_COLL_EXCHANGE_ = TSRI_COLL_KIND_COUNT_,
    TSRI_COLL_GATHER_,
    TSRI_COLL_SCATTER_,
};

/* How an all-reduce is done. ONE_SHOT: everyone reads everything, (n-1) T bytes a rank and one
 * hand-shake. TWO_PHASE: everyone reduces its flat 1/n-th, then reads the others' results: about
 * 2 T (n-1)/n bytes a rank and two hand-shakes. The planner chooses, so that bytes are known. In
 * groups by_message a reduce has the same choice: then its root reads 2 T (n-1)/n bytes, each
 * other member T (n-1)/n. */
typedef enum tsri_coll_algo {
    TSRI_ALGO_ONE_SHOT = 0,
    TSRI_ALGO_TWO_PHASE,
} tsri_coll_algo;

/* SEND_RECV: a box that this rank reads out of the src of one member (which may be itself), or
 * reduces out of those of several. All counts are elements; strides are the buffers' own. */
typedef struct tsri_pull {
    int ndim;
    int64_t length[TSR_MAX_NDIM];
    int64_t src_at, src_step[TSR_MAX_NDIM]; /* the same in all sources */
    int64_t dst_at, dst_step[TSR_MAX_NDIM]; /* not 0 along an axis of more than one */
    int nsrc;
    const int *src; /* members, in the order of reduction */
} tsri_pull;

typedef struct tsri_segment {
    const void *src; /* NULL if this rank's side is empty */
    void *dst;
    tsr_dtype dtype;
    tsr_dims shape;         /* global */
    int src_axis, dst_axis; /* -1: whole */
    /* SEND_RECV alone. shape is then the global one, for comparing; the parts are anything, and the
     * axes mean nothing. */
    int npulls;
    const tsri_pull *pulls;
    bool fill;         /* dst first becomes the identity of the call's op */
    int64_t dst_count; /* elements of dst */
} tsri_segment;

typedef struct tsri_coll {
    tsri_coll_kind kind;
    tsri_coll_algo algo;
    tsr_reduce_op op;
    int root; /* index in the group */
    int nseg;
    const tsri_segment *seg; /* lives until release */
    /* A stream of the device that makes src and reads dst; NULL on a CPU. On a stream, `start` and
     * `finish` put work into it, or into streams of the communicator that are ordered with it, and
     * return: what is put into the stream before start is done before src is read, and what is put
     * into it after finish (release) starts after dst is complete (src is not read any more). */
    struct tsri_stream *stream;
    void *prepared; /* see tsri_comm_ops.prepare */
    /* The members compare the call, and no data moves: src and dst are not looked at. For the local
     * communicators alone. */
    bool is_word;
    bool is_agreed;   /* the members compare it in another way: those over NCCL need not */
    const char *what; /* "grad bucket 3", "features.0.1.bn_stats": for messages */
    tsri_loc loc;     /* the user's line, if known */
    uint64_t number;  /* what messages call it; 0: its number among the group's calls */
    uint64_t flight;  /* of tsri_flight_schedule; 0: the recorder has not heard of it yet */
} tsri_coll;

enum { TSRI_LANE_SENDS = 2 };

/* A group of ranks: made once per list of ranks and lane, then used for ever. */
typedef struct tsri_group {
    struct tsri_comm *comm;
    int nranks, index; /* index: this rank's place in it */
    const int *ranks;  /* world ranks, in the placement's order */
    /* 0: small, critical; 1: bulk; TSRI_LANE_SENDS and more: between stages. Lanes have their own
     * order and hand-shakes. */
    int lane;
    int flight; /* its number in the flight recorder; 0: it has none */
    /* Peers get messages, and read no memory of this rank: src may lie anywhere, and be dst in an
     * all_reduce, a reduce, or a reduce_scatter along axis 0. */
    bool by_message;
    bool in_place; /* a sum by all_reduce may have one buffer as src and dst */
    void *priv;
} tsri_group;

/* A call under way. Embedded by whoever starts it; `priv` is the communicator's. */
typedef struct tsri_ticket {
    uint64_t seq;
    const tsri_coll *coll;
    uint64_t priv[4];
} tsri_ticket;

/* Traffic as the communicator itself has counted it: bytes copied or reduced out of peers'
 * memory by this rank. */
typedef struct tsri_comm_stats {
    uint64_t calls[TSRI_COLL_KIND_COUNT_];
    uint64_t bytes_read[TSRI_COLL_KIND_COUNT_];
} tsri_comm_stats;

struct tsri_task;

typedef struct tsri_comm_ops {
    size_t size; /* of this struct: slots behind it are absent */
    const char *name;
    /* Finds or makes the group. Not collective by itself. Belongs to the comm. */
    tsr_status (*group)(struct tsri_comm *c, int nranks, const int *ranks, int lane,
                        tsri_group **out_group);
    tsr_status (*start)(tsri_group *g, const tsri_coll *coll, tsri_ticket *out_ticket);
    tsr_status (*finish)(tsri_group *g, tsri_ticket *ticket);
    tsr_status (*release)(tsri_group *g, tsri_ticket *ticket);
    /* Optional: what can be worked out once for a call that will be made again and again with the
     * same coll, whose pointers are final; kept in coll->prepared until unprepare. Collective over
     * the group, in the same order on all its members: they may compare what they mean to do
     * (TSR_ERR_MISMATCH). A member's own failure is not told to the others, but nobody
     * waits for it: further calls can be prepared, so who prepares several goes on. unprepare is
     * not collective. */
    tsr_status (*prepare)(tsri_group *g, tsri_coll *coll);
    void (*unprepare)(tsri_group *g, tsri_coll *coll);
    /* Optional: for communicators that must make groups together. Makes those of a partition of the
     * communicator's ranks: color[r] is the group of world rank r, -1 if it is in none; within a
     * group ranks are ordered by key[r]. `group` finds them afterwards, and makes none. Collective
     * over the communicator's ranks, in the same order on all. */
    tsr_status (*partition)(struct tsri_comm *c, const int *color, const int *key, int lane);
    /* Every rank's `bytes` bytes (a number all agree on, at most 64 KiB), in rank order, into
     * `all`: host data for agreeing on programs and errors. Collective over the world. */
    tsr_status (*exchange)(struct tsri_comm *c, const void *mine, size_t bytes, void *all);
    /* Poisons the world: every rank that waits, or will, gets TSR_ERR_REMOTE with this text. */
    void (*abort)(struct tsri_comm *c, const char *text);
    void (*stats)(struct tsri_comm *c, tsri_comm_stats *out_stats);
    void (*destroy)(struct tsri_comm *c);
    /* Optional: TSR_OK, or what has ended the communicator's work, with its text; never waits. For
     * who waits for a device, on which calls under way are not seen to fail. Any thread may ask. */
    tsr_status (*check)(struct tsri_comm *c);
    /* Optional: another communicator between the same ranks, with groups, order and counts of its
     * own, for other threads of this rank: each of its groups is used by one thread at a time, but
     * two groups may be used by two threads at once. `group` is called by one at a time. A twin
     * need not have an exchange. Destroyed before this one, by whoever made it. An abort of either
     * is one of both. Not collective; ranks make their twins in the same order. */
    tsr_status (*twin)(struct tsri_comm *c, struct tsri_comm **out_comm);
    /* Optional: a task of src/comm/task.h that is neither send nor recv, from
     * start to release; its buffers lie anywhere. */
    tsr_status (*task)(tsri_group *g, struct tsri_task *task);
    /* Optional: whether `release` of a call that was finished would return at once. */
    bool (*released)(tsri_group *g, const tsri_ticket *ticket);
    /* Optional: ends a group, for all its members: their calls from the one on at which this rank
     * is fail with `status` and `text`. */
    void (*poison)(tsri_group *g, tsr_status status, const char *text);
    /* Optional: whether `task` does the tasks of this group. Without it, it does those of all. */
    bool (*does_tasks)(const tsri_group *g);
    /* Only capturable communicators: before and after calls that are captured, which are not made
     * now, but whenever (if ever) what was captured is run. All counts of calls, stats too, are
     * then as they were; a call that fails in between has failed on this rank alone, and need not
     * be finished. */
    void (*capture_begin)(struct tsri_comm *c);
    void (*capture_end)(struct tsri_comm *c);
    /* Optional: this rank starts no further call, and is about to destroy the communicator. Returns
     * when its peers have what it has given them in calls that it has finished but not released;
     * or when one of them has left, is gone, or has made no progress for the world's timeout, which
     * is nobody's error. Then no memory of such calls is used any more. For communicators whose
     * peers can't read the memory of a rank that has left. */
    void (*leave)(struct tsri_comm *c);
    /* Optional: the communicator of this machine's ranks over shared host memory that this one is,
     * or has. Belongs to it. */
    struct tsri_comm *(*on_machine)(struct tsri_comm *c);
    /* Optional: whether `finish` of a call that is next would not wait for peers. Without it, it
     * never does. */
    bool (*ready)(tsri_group *g, const tsri_ticket *ticket);
    /* Optional: the world rank of the first member that has not come to a call; -1: all have. */
    int (*late)(tsri_group *g, const tsri_ticket *ticket);
    /* Optional: TSR_OK, or TSR_ERR_DEAD where a member that has not come to a call never will, with
     * a text that names it. */
    tsr_status (*lost)(tsri_group *g, const tsri_ticket *ticket);
    /* Optional: prepares a call that differs from a prepared one by its pointers alone. Not
     * collective. Unprepared before that one. */
    tsr_status (*prepare_like)(tsri_group *g, const tsri_coll *like, tsri_coll *coll);
} tsri_comm_ops;

typedef struct tsri_comm {
    const tsri_comm_ops *ops;
    tsr_world *world;
    void *priv;
    bool capturable; /* calls may be made while the stream is captured */
    bool in_region;  /* what peers read must lie in this rank's region */
    bool early;      /* dst may be written from a call's start on, by threads of its own */
} tsri_comm;

/* Whose calls a communicator between devices makes: no two of the same ranks are of the same. */
typedef enum tsri_device_comm_of {
    TSRI_DEVICE_COMM_PLANS = 0,
    TSRI_DEVICE_COMM_GROUP, /* of a tsr_group */
} tsri_device_comm_of;

/*
 * Makes the communicator between devices of a kind that has streams, of the ranks in `ranks`, the
 * same list on all of them: NCCL, for which each has a GPU of its own, or by
 * TESSERA_CUDA_COMM=local the local one on device memory. Collective over these ranks. Goes before
 * the device: whoever made it destroys it. TSR_ERR_INVALID where ranks share a GPU unasked.
 */
tsr_status tsri_comm_create_device(tsr_world *world, tsri_device *device, int nranks,
                                   const int *ranks, tsri_device_comm_of of, tsri_comm **out_comm);
/* The local communicator on device memory, over world->comm, which is the local one on the host:
 * hand-shakes as there, data moved by the device. Collective over `ranks`. A call's stream lives
 * until the call is released. Destroying it waits until the others do so too, or can't: peers may
 * still read this rank's memory, and wait for its events. */
tsr_status tsri_local_create_device(tsr_world *world, tsri_device *device, int nranks,
                                    const int *ranks, tsri_device_comm_of of, tsri_comm **out_comm);

/* Makes the addends of an average: data[i] times 1/nranks, in the dtype. Floats alone. */
void tsri_scale_by_ranks(tsr_dtype dtype, int nranks, int64_t count, void *data);

/* Makes a call from start to release. */
tsr_status tsri_comm_call(tsri_group *group, const tsri_coll *coll);
/* All `count` words of each of n ranks, in their order, by the host's communicator in a lane beside
 * those of tensors. Collective over these ranks. */
tsr_status tsri_comm_gather_words(tsr_world *world, int n, const int *ranks, const char *what,
                                  int64_t count, const void *mine, int64_t *all);
/* The group of all ranks of the world, in their order, lane 0. */
tsr_status tsri_comm_everybody(tsri_comm *c, tsri_group **out_group);

/* "all_reduce" and the like, of records' kinds too; "sum" and the like. "?": there is none. */
const char *tsri_coll_kind_name(int kind);
const char *tsri_reduce_name(int op);
/* The kinds of calls and records that have an op, and a root. */
bool tsri_coll_has_op(int kind);
bool tsri_coll_has_root(int kind);

/* Elements of piece i of n along `axis` of a segment; all of them for -1. */
int64_t tsri_segment_count(const tsri_segment *seg, int axis, int n, int i);

/* The bytes that rank `index` of n reads from peers in one segment of a call: what the plan shows
 * and what the local communicator must count. */
uint64_t tsri_coll_bytes(tsri_coll_kind kind, tsri_coll_algo algo, int n, int index, int root,
                         const tsri_segment *seg);

/* --- ranks.c ---------------------------------------------------------------------------------- */
/* Whether world ranks make a group that this rank is in: each is one of the world's, none is there
 * twice. *out_index: this rank's place among them. does: what the rank does, for the message
 * ("makes"). */
tsr_status tsri_ranks_check(const tsr_world *world, int nranks, const int *ranks, const char *does,
                            int *out_index);
/* Chained by `h`. */
uint64_t tsri_ranks_hash(uint64_t h, int nranks, const int *ranks);
/* "[0,2,3]" */
char *tsri_ranks_text(int nranks, const int *ranks, char *buf, size_t size);
/* Whether a group is the one of this list and lane. */
bool tsri_group_is(const tsri_group *g, int nranks, const int *ranks, int lane);

/* --- coll.c ----------------------------------------------------------------------------------- */
/* Whether a communicator has an optional slot of the vtable. */
#define TSRI_COMM_HAS(comm, slot) \
    ((comm)->ops->size > offsetof(tsri_comm_ops, slot) && (comm)->ops->slot)

/* See on_machine of tsri_comm_ops; NULL: there is none. */
tsri_comm *tsri_comm_on_machine(tsri_comm *c);

/* --- check.c ---------------------------------------------------------------------------------- */
/* Whether kind, op, root, dtypes, shapes and axes of a call make sense in a group of `nranks`;
 * TSR_ERR_INVALID names the segment. */
tsr_status tsri_coll_check(const tsri_coll *coll, int nranks);
/* Whether what this rank, member `index` of a group of n that is by_message or not, gives and takes
 * in segment i makes sense. TSR_ERR_INVALID. */
tsr_status tsri_segment_check(const tsri_coll *coll, int i, int n, int index, bool by_message);
/* Both, for all segments. */
tsr_status tsri_coll_check_here(const tsri_coll *coll, int n, int index, bool by_message);
/* TSR_ERR_STATE: call `number` of its group is finished before call `next`. */
tsr_status tsri_coll_check_turn(const tsri_coll *coll, uint64_t number, uint64_t next);
/* "all_gather 'what', segment 2: ..." */
tsr_status tsri_coll_invalid(const tsri_coll *coll, int seg, const char *fmt, ...) TSR_PRINTF(3, 4);
/* The bytes of this rank's sides of a segment; not of SEND_RECV. */
void tsri_segment_sides(const tsri_coll *coll, const tsri_segment *seg, int n, int index,
                        size_t *out_src_bytes, size_t *out_dst_bytes);
/* The least and the greatest element of one side of a pull, from where its buffer starts. */
void tsri_pull_extent(const tsri_pull *pull, int64_t at, const int64_t *step, int64_t *out_low,
                      int64_t *out_high);
bool tsri_pull_is_empty(const tsri_pull *pull);
bool tsri_pull_reads(const tsri_pull *pull, int member);
/* Whether it is a SEND_RECV in whose segments [first, first + nseg) member `index` reads nothing of
 * its peers. */
bool tsri_coll_only_gives(const tsri_coll *coll, int first, int nseg, int index);

#endif
