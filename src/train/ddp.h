/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of tsr_ddp.
 *
 *   ddp.c           making, comparing and ending
 *   ddp_bucket.c    which gradient lies where
 *   ddp_backward.c  gradients into buckets, declared in a local graph
 *   ddp_run.c       a run: forward and backward, buckets reduced as they fill
 *   ddp_reduce.c    reducing a bucket: averages, compression, hooks
 *   ddp_step.c      the update
 *   ddp_send.c      one rank's values for all
 *   ddp_join.c      ranks that run out of inputs at different times
 *
 * Ranks make the same collectives in the same order, whatever their graphs: at a run, the round of
 * join (if it is on), the buffers, the buckets by number, the parameters used. Each is labelled
 * with the run's number, which the communicator compares.
 */
#ifndef TESSERA_TRAIN_DDP_H
#define TESSERA_TRAIN_DDP_H

#include <tessera/ddp.h>
#include "src/comm/collective/collective.h"
#include "src/graph/graph.h"

/* A parameter whose gradient is averaged. In the order of the buckets: the reverse of the
 * module's. */
typedef struct tsri_ddp_param {
    tsr_variable *v;
    tsr_variable *grad; /* its data is this parameter's place in the bucket */
    const char *name;   /* qualified */
    int number;         /* in the module's order, as PyTorch counts them */
    int bucket;
    bool there;   /* has a gradient: .grad is not None */
    bool written; /* by the run that is under way */
} tsri_ddp_param;

typedef struct tsri_ddp_bucket {
    tsr_ddp_bucket pub;
    int first;     /* of its parameters */
    size_t bytes;  /* of data */
    void *earlier; /* a copy of gradients that a run adds to; NULL until one is needed */
    void *small;   /* compressed, in the arena; NULL without compression */
    int waiting;   /* gradients that the run under way has yet to write */
    tsr_work *work;
} tsri_ddp_bucket;

/* An update of some set of parameters by an optimizer. */
typedef struct tsri_ddp_update {
    struct tsri_ddp_update *next;
    tsr_optimizer *optimizer;
    tsr_graph *graph;
    tsr_plan *plan;
    bool failed;  /* a run of the plan did: it stays so */
    bool there[]; /* by parameter */
} tsri_ddp_update;

/* The words of ranks to each other before a run while join is on. */
typedef struct tsri_ddp_round {
    int64_t active; /* this rank has inputs */
    int64_t syncs;  /* its run is not under no_sync */
    int64_t buffers;
} tsri_ddp_round;

struct tsr_ddp {
    tsri_owned owned;
    tsr_world *world;
    tsr_module *module;
    tsr_group *group;
    const tsr_placement *here;
    int nranks, rank; /* of the group */
    tsr_ddp_opts opts;
    tsri_pool pool;
    tsri_ddp_param *params;
    int nparams;
    tsr_variable **listed;      /* params[i].v, for hooks */
    struct tsri_device *device; /* that the buckets lie on */
    tsri_ddp_bucket *buckets;
    int nbuckets;
    tsr_variable **buffers; /* that are broadcast */
    const char **buffer_names;
    int nbuffers;
    void *block; /* of block_bytes, in the arena: small buffers are sent together; NULL so far */
    size_t block_bytes;
    uint8_t *used; /* by parameter, in the arena: on some rank, in the last synchronised run */
    bool knows_used;
    tsri_ddp_update *updates;

    bool no_sync;
    bool buffers_next; /* the last run was synchronised */
    tsri_loc loc;      /* of the call under way */
    int next_bucket;   /* that is reduced next, in the run under way */
    bool runs;         /* a run is under way */
    bool reduces;      /* and is synchronised */
    double divisor;    /* of its averages */
    double first_at_s; /* when its first bucket started; 0: none yet */

    bool joins;
    tsr_ddp_join_opts join;
    tsri_ddp_round *rounds; /* of all ranks */
    int64_t joined_runs;    /* rounds so far, of all joins: labels name no round twice */
    int64_t joined_before;  /* of them, of the joins before this one */
    int last;               /* the highest rank that went on in the last round; 0 before any */

    tsr_ddp_info info;
};

/* ddp_label.c. "ddp run 7, bucket 2": what this rank's next collectives are called. */
tsr_status tsri_ddp_label(tsr_ddp *d, const char *fmt, ...) TSR_PRINTF(2, 3);
/* The group's label is the user's: kept where a call begins, and put back where it ends. */
typedef struct tsri_ddp_kept {
    char label[sizeof((tsr_group *)0)->label];
} tsri_ddp_kept;
tsri_ddp_kept tsri_ddp_keep_label(const tsr_ddp *d);
void tsri_ddp_put_back(tsr_ddp *d, const tsri_ddp_kept *kept);

/* ddp_bucket.c: lays the gradients of d->params, which are in the module's order, into buckets, and
 * brings d->params into their order. */
tsr_status tsri_ddp_make_buckets(tsr_ddp *d);
void tsri_ddp_free_buckets(tsr_ddp *d);

/* ddp_run.c: parameter i's gradient has been written. */
tsr_status tsri_ddp_written(void *arg, int i);

/* ddp_sync.c. Starts reducing the buckets that are complete, in their order. */
tsr_status tsri_ddp_start_buckets(tsr_ddp *d);
/* Waits for all buckets' averages, and agrees on which parameters were used. */
tsr_status tsri_ddp_finish_buckets(tsr_ddp *d);
/* Rank `root`'s (of the group) buffers become everyone's. */
tsr_status tsri_ddp_send_buffers(tsr_ddp *d, int root);

/* ddp_send.c: rank `root`'s (of the group) values of n variables, the same on all ranks but for
 * their values, become everyone's. */
tsr_status tsri_ddp_send(tsr_ddp *d, int n, tsr_variable *const *v, int root);

/* ddp_reduce.c */
tsr_status tsri_ddp_make_small(tsr_ddp *d);
tsr_status tsri_ddp_start_bucket(tsr_ddp *d, int bucket);
tsr_status tsri_ddp_finish_bucket(tsr_ddp *d, int bucket);
/* into[i] += from[i]; f16 and bf16 in f32. */
void tsri_ddp_add(tsr_dtype dtype, int64_t n, void *into, const void *from);

/* ddp_step.c */
void tsri_ddp_free_updates(tsr_ddp *d, bool plans_too);

/* ddp_join.c: before a run of an active rank while join is on. */
tsr_status tsri_ddp_join_round(tsr_ddp *d, bool syncs, bool *io_buffers, int *out_root);

#endif
