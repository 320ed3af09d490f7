/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a call is done by NCCL: a list of primitive steps. Pure: no CUDA, no NCCL, no buffers; what
 * each step reads and writes is a place in a segment or in staging memory, which is found when the
 * step is done. The lists of a group's members fit each other: the same collectives in the same
 * order, and for each send a receive.
 *
 * A piece that is one run of its array is sent and received in place; others are packed into
 * staging before, or unpacked after, by moves on the device. Where pieces are even, the collective
 * of the call's name does it; where not, a group of broadcasts, of reductions, or of sends and
 * receives.
 *
 * Sums, and all reductions of whole numbers, are NCCL's: all members get the same bits, but the
 * order of a sum is NCCL's, and f16 and bf16 are rounded on the way. NCCL's max and min may lose a
 * NaN. So those of floats are done as the call's `algo` says: everyone gets all and reduces in the
 * order of members; or everyone does so with its part, and parts are gathered.
 */
#ifndef TESSERA_COMM_SCHEDULE_PLAN_H
#define TESSERA_COMM_SCHEDULE_PLAN_H

#include "src/comm/comm.h"

typedef enum tsri_nccl_step_kind {
    TSRI_NCCL_MOVE = 0, /* on the device, of one source or several */
    TSRI_NCCL_FILL,     /* count elements of dst become the identity of op */
    TSRI_NCCL_GROUP_START,
    TSRI_NCCL_GROUP_END,
    TSRI_NCCL_ALL_REDUCE,
    TSRI_NCCL_ALL_GATHER,     /* count: of a piece */
    TSRI_NCCL_REDUCE_SCATTER, /* likewise */
    TSRI_NCCL_BROADCAST,      /* src is nowhere but on `peer` */
    TSRI_NCCL_REDUCE,         /* dst is nowhere but on `peer` */
    TSRI_NCCL_SEND,
    TSRI_NCCL_RECV,
    TSRI_NCCL_STEP_COUNT_
} tsri_nccl_step_kind;

typedef enum tsri_nccl_where {
    TSRI_NCCL_NOWHERE = 0,
    TSRI_NCCL_SRC, /* of the segment */
    TSRI_NCCL_DST,
    TSRI_NCCL_STAGE, /* the call's staging memory */
} tsri_nccl_where;

typedef struct tsri_nccl_place {
    tsri_nccl_where where;
    int seg;
    int64_t at; /* bytes */
} tsri_nccl_place;

typedef struct tsri_nccl_step {
    tsri_nccl_step_kind kind;
    tsr_dtype dtype; /* of collectives: what NCCL is told; a bool is a u8, its sum a max */
    tsr_reduce_op op;
    int peer; /* SEND, RECV: the other member; BROADCAST, REDUCE: the root */
    int64_t count;
    tsri_nccl_place src, dst;
    tsri_move move; /* MOVE, but for src and dst */
    int first;      /* MOVE: its sources are plan->sources[first] to [first + move.nsrc - 1] */
} tsri_nccl_step;

typedef struct tsri_nccl_plan {
    int nsteps, nsources;
    tsri_nccl_step *steps;
    tsri_nccl_place *sources;
    size_t stage_bytes;
    uint64_t bytes_read; /* from peers: by tsri_coll_bytes; of SEND_RECV what is received */
    bool talks;          /* some step is NCCL's */
} tsri_nccl_plan;

/* The members' words about their sides of a SEND_RECV: those of member m are at
 * words + m * stride. */
typedef struct tsri_nccl_words {
    const int64_t *words;
    int64_t stride;
} tsri_nccl_words;

/* The most parts that a device's move reduces at once; on the host there may be one for each rank.
 */
enum { TSRI_NCCL_MAX_PARTS = 64, TSRI_PLAN_MAX_PARTS = 256 };

/*
 * Describes this rank's segments of a SEND_RECV to the others: `words` (of room for `room`)
 * gets as much as fits; returns how many there are. of: only the pulls that read of that member;
 * -1: all. A segment without pulls takes two words.
 */
int64_t tsri_nccl_describe(const tsri_coll *coll, int of, int64_t room, int64_t *words);

/*
 * ranks: the members' world ranks. words: NULL but for SEND_RECV in a group of several. direct: for
 * a communicator that has sends and receives alone (Gloo's). Then each piece goes straight to
 * whoever needs it, all reductions are in the order of members, and what a rank receives is what
 * tsri_coll_bytes says; a small broadcast goes down a binomial tree, a large one in parts that the
 * members pass around, and a barrier has no steps. Errors: TSR_ERR_NO_MEMORY; TSR_ERR_MISMATCH if a
 * member reads what another does not give (all members find the same); TSR_ERR_UNSUPPORTED.
 */
tsr_status tsri_nccl_plan_make(tsri_mem *mem, const tsri_coll *coll, int n, int index,
                               const int *ranks, const tsri_nccl_words *words, bool direct,
                               tsri_nccl_plan *out_plan);
void tsri_nccl_plan_finish(tsri_nccl_plan *plan);

/* Whether a step is a move on this rank, or a fill: the others are talk with peers. */
static inline bool tsri_nccl_is_here(const tsri_nccl_step *step)
{
    return step->kind == TSRI_NCCL_MOVE || step->kind == TSRI_NCCL_FILL;
}
/* Where the talk that begins at step `first` ends: behind that, or behind its group. */
int tsri_nccl_talk_end(const tsri_nccl_plan *plan, int first);
/* Where a place is, with the call's staging memory at `stage`; NULL for nowhere. */
char *tsri_nccl_locate(const tsri_coll *coll, char *stage, tsri_nccl_place place);

#endif
