/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the communicator over NCCL, a part of the CUDA module:
 *
 *   nccl.c        all that NCCL is asked: the one file that knows nccl.h
 *   comm.c   the vtable, and groups
 *   call.c   calls, worked out and done
 *   ../schedule   what a call's steps are: pure
 *   agree.c  what members say to each other before
 *   watch.c  the watchdog
 *
 * Each lane has a stream and communicators of its own, so that what is small and critical does not
 * queue behind bulk. All lanes of sends between stages have one stream: plans make these calls in
 * one order on all ranks, so they do not wait for each other. All of NCCL is used without blocking,
 * so that it can be given up: NCCL promises that for no other communicators. So each call outside
 * of a graph has a thread within NCCL (see docs/guides/gpus.md).
 */
#ifndef TESSERA_COMM_NCCL_INSIDE_H
#define TESSERA_COMM_NCCL_INSIDE_H

#include "kernels/cuda/inside.h"
#include "kernels/cuda/nccl_mark.h"
#include "src/comm/flight/flight.h"
#include "src/comm/nccl/agree.h"
#include "src/comm/nccl/watch.h"

/* SENDS: the lane here of all lanes from this one on. */
enum { TSRI_NCCL_SENDS = TSRI_LANE_SENDS, TSRI_NCCL_LANES = 3 };

struct ncclComm;

typedef struct tsri_nccl tsri_nccl;

typedef struct tsri_nccl_group {
    tsri_group pub;
    struct tsri_nccl_group *next;
    tsri_nccl *owner;
    struct ncclComm *comm; /* NULL in a group of one */
    bool own;              /* not the lane's */
    uint64_t started, finished;
    uint64_t started_before, finished_before; /* the capture */
} tsri_nccl_group;

/* A group that some ranks have; all ranks know all groups. */
typedef struct tsri_nccl_made {
    struct tsri_nccl_made *next;
    int lane, n;
    int ranks[];
} tsri_nccl_made;

/* Staging memory. The calls of a lane run one after the other, so they share it. */
typedef struct tsri_nccl_stage_block {
    struct tsri_nccl_stage_block *next;
    int lane, users;
    size_t bytes;
    void *ptr;
} tsri_nccl_stage_block;

/* A call that is worked out. */
typedef struct tsri_nccl_call {
    struct tsri_nccl_call *next; /* of n->temporary */
    tsri_nccl_plan plan;
    tsri_nccl_stage_block *stage;
    cudaEvent_t ready, done; /* src may be read; dst may be */
    int name;                /* of the watch */
    bool temporary;          /* goes with its ticket */
    bool is_like;            /* the plan is another call's */
    bool sends;              /* a call between stages, of which this rank takes nothing */
} tsri_nccl_call;

/* The arena as one communicator has registered it. */
typedef struct tsri_nccl_registration {
    struct tsri_nccl_registration *next;
    struct ncclComm *comm;
    void *handle;
} tsri_nccl_registration;

struct tsri_nccl {
    tsri_comm pub;
    tsri_cuda_device *device;
    tsri_watch *watch;
    tsri_poll poll; /* of the watch, while the host waits for the device */
    int n, index, *ranks;
    struct ncclComm *parent[TSRI_NCCL_LANES];
    struct ncclComm *coming; /* NCCL writes to it while a communicator is made */
    cudaStream_t stream[TSRI_NCCL_LANES];
    tsri_nccl_mark *marks, *marks_device; /* one memory, two addresses */
    unsigned long long *counts;           /* of the marks, in device memory */
    tsri_nccl_group *groups;
    tsri_nccl_made *made;
    tsri_nccl_stage_block *stages;
    tsri_nccl_registration *registrations;
    tsri_nccl_call *temporary;           /* under way */
    tsri_comm_stats stats, stats_before; /* before: the capture */
    bool captures;
};

/* The lane of a group here. */
static inline int tsri_nccl_lane(int lane)
{
    return lane < TSRI_NCCL_SENDS ? lane : TSRI_NCCL_SENDS;
}

/* nccl.c */
extern const tsri_watch_ops tsri_nccl_watch_ops;
/* Makes the communicators of lanes 0 and 1, together with the other ranks. */
tsr_status tsri_nccl_join(tsri_nccl *n, const unsigned char id[128]);
/* Makes that of another lane, as most programs need none. */
tsr_status tsri_nccl_open_lane(tsri_nccl *n, int lane);
/* Makes a communicator of those who give the same color; none for a negative one. Collective over
 * the lane's ranks. It is left in n->coming. */
tsr_status tsri_nccl_split(tsri_nccl *n, int lane, int color, int key);
/* Waits, not for long, for the others to be done with a communicator, and ends it. */
void tsri_nccl_end(tsri_nccl *n, struct ncclComm *comm, double seconds);
/* Ends it at once. */
void tsri_nccl_drop(struct ncclComm *comm);
/* Steps [first, end) of a call as one launch. */
tsr_status tsri_nccl_talk(tsri_nccl *n, const tsri_nccl_group *g, const tsri_coll *coll,
                          const tsri_nccl_call *c, int first, int end);

/* call.c */
tsr_status tsri_nccl_call_make(tsri_nccl *n, const tsri_group *g, const tsri_coll *coll,
                               tsri_nccl_call **out_call);
/* A call that differs from `like` by its pointers alone, and goes before it. */
tsr_status tsri_nccl_call_make_like(tsri_nccl *n, const tsri_group *g, const tsri_coll *coll,
                                    const tsri_nccl_call *like, tsri_nccl_call **out_call);
void tsri_nccl_call_free(tsri_nccl *n, tsri_nccl_call *c);
/* Puts a call into its lane's stream, behind what is in the caller's. */
tsr_status tsri_nccl_call_do(tsri_nccl *n, const tsri_nccl_group *g, const tsri_coll *coll,
                             const tsri_nccl_call *c, cudaStream_t user);
/* Where a place is; NULL for nowhere. */
char *tsri_nccl_find(const tsri_coll *coll, const tsri_nccl_call *c, tsri_nccl_place p);

#endif
