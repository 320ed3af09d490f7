/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of tsr_ddp.
 *
 *   ddp.c           making, comparing and ending
 *   ddp_bucket.c    which gradient lies where
 *   ddp_compare.c   TESSERA_COMPARE
 *   ddp_backward.c  gradients into buckets, declared in a local graph
 *   ddp_run.c       a run: forward and backward, buckets reduced as they fill
 *   ddp_reduce.c    reducing a bucket: averages, compression, hooks
 *   ddp_device.c    that on a device
 *   ddp_memory.c    a bucket's memory, on a device or not
 *   ddp_step.c      the update
 *   ddp_minimize.c  all of that as one declaration
 *   ddp_send.c      one rank's values for all
 *   ddp_join.c      ranks that run out of inputs at different times
 *
 * Ranks make the same collectives in the same order, whatever their graphs: at a run, the round of
 * join (if it is on), comparing (if asked for), the buffers, the buckets by number, the parameters
 * used. Each is labelled with the run's number, which the communicator compares.
 */
#ifndef TESSERA_TRAIN_DDP_H
#define TESSERA_TRAIN_DDP_H

#include <tessera/ddp.h>
#include "src/comm/collective/side.h"
#include "src/graph/graph.h"

/* A parameter whose gradient is averaged. In the order of the buckets: the reverse of the
 * module's. */
typedef struct tsri_ddp_param {
    tsr_variable *v;
    tsr_variable *grad; /* its data is this parameter's place in the bucket */
    const char *name;   /* qualified */
    int number;         /* in the module's order, as PyTorch counts them */
    int bucket;
    bool there;   /* the parameter has a gradient: PyTorch's .grad is not None */
    bool written; /* the run that is under way has written the gradient */
} tsri_ddp_param;

typedef struct tsri_ddp_scale tsri_ddp_scale;

/* All its memory is the device's on which the parameters live. */
typedef struct tsri_ddp_bucket {
    tsr_ddp_bucket pub; /* what hooks see */
    int first;          /* the bucket's first parameter, in params */
    size_t bytes;       /* of all its gradients */
    void *earlier;      /* a copy of the gradients that a run adds to; NULL until one is needed */
    void *small;        /* the compressed gradients; NULL without compression */
    int waiting;        /* how many gradients the run under way has yet to write */
    tsr_work *work;     /* in host memory */
    /* On a device with streams. */
    void *addends; /* what peers read; NULL: it is reduced in place */
    size_t addend_bytes;
    tsri_segment seg;
    tsri_side_call call;
    char what[sizeof((tsr_group *)0)->label]; /* of the call */
    tsri_ddp_scale *scales;
    tsri_kernel *narrow, *widen; /* to and from compressed gradients; NULL without compression */
} tsri_ddp_bucket;

/* An update of some set of parameters by an optimizer. */
typedef struct tsri_ddp_update {
    struct tsri_ddp_update *next;
    tsr_optimizer *optimizer;
    tsr_minimize_opts opts; /* accumulate 1, out_norm NULL */
    tsr_graph *graph;
    tsr_plan *plan;
    bool failed;  /* a run of the plan has failed: the plan can't be run again */
    bool there[]; /* by parameter: the update is for it */
} tsri_ddp_update;

/* A step that tsr_ddp_minimize has declared. */
typedef struct tsri_ddp_minimize {
    struct tsri_ddp_minimize *next;
    tsr_optimizer *optimizer;
    tsr_minimize_opts opts;
    tsri_loc loc;
} tsri_ddp_minimize;

/* The words of ranks to each other before a run while join is on. */
typedef struct tsri_ddp_round {
    int64_t active;  /* 1: this rank has inputs */
    int64_t syncs;   /* 1: this rank's run is not under no_sync */
    int64_t buffers; /* 1: this rank's run begins with sending buffers */
} tsri_ddp_round;

/* Variables that take rank 0's values. */
typedef struct tsri_ddp_sent {
    tsr_variable **buffers; /* [nbuffers]: sent before each synchronised run */
    const char **names;
    int nbuffers;
    tsr_variable **frozen; /* [nfrozen]: parameters, sent once by tsr_ddp_create */
    int nfrozen;
    void *block; /* block_bytes of the arena to send small buffers together; or NULL */
    size_t block_bytes;
} tsri_ddp_sent;

/* The comparison of ranks that TESSERA_COMPARE turns on. */
typedef struct tsri_ddp_compared {
    bool on;          /* some rank has set it */
    int64_t settings; /* hash of the last update's settings; 0 before the first update */
} tsri_ddp_compared;

/* The state of the current run. */
typedef struct tsri_ddp_run {
    bool reduces;      /* the run is synchronised */
    int next_bucket;   /* number of the next bucket to reduce */
    double divisor;    /* divisor of the sums of gradients */
    double first_at_s; /* start time of the first bucket, or 0 */
} tsri_ddp_run;

/* The state of a join. */
typedef struct tsri_ddp_joining {
    bool on;
    tsr_ddp_join_opts opts;
    tsri_ddp_round *rounds; /* [nranks] */
    int64_t runs;           /* number of rounds of all joins, which makes labels unique */
    int64_t before;         /* number of rounds of earlier joins */
    int last;               /* highest active rank of the last round; 0 before the first */
} tsri_ddp_joining;

struct tsr_ddp {
    tsri_owned owned;
    tsr_world *world;
    tsr_module *module;
    tsr_group *group;
    const tsr_placement *here;
    int nranks, rank; /* in the group */
    tsr_ddp_opts opts;
    tsri_pool pool;
    tsri_ddp_param *params;
    int nparams;
    tsr_variable **listed;      /* [nparams]: params[i].v, for hooks */
    struct tsri_device *device; /* the device on which the buckets lie */
    tsri_side *side;            /* of the group, on that device; NULL: it has no streams */
    tsri_side_call sending;     /* the buffers of the group's first rank */
    tsr_plan *norm_of;          /* an update whose norm has not been fetched; NULL: none */
    tsri_ddp_bucket *buckets;
    int nbuckets;
    tsri_ddp_sent sent;
    uint8_t *used;   /* by parameter, in the arena: a rank used it in the last synchronised run */
    bool knows_used; /* the ranks have agreed on `used` */
    tsri_ddp_update *updates;
    tsri_ddp_minimize *minimizes;

    tsri_ddp_compared compared;
    bool no_sync;
    bool buffers_next; /* the next run begins with sending buffers: the last one was synchronised */
    tsri_loc loc;      /* the user's line of the call under way */
    tsri_ddp_run run;
    tsri_ddp_joining joining;

    tsr_ddp_info info;
};

/* ddp_label.c. Sets the label of this rank's next collectives, such as "ddp run 7, bucket 2". */
tsr_status tsri_ddp_label(tsr_ddp *d, const char *fmt, ...) TSR_PRINTF(2, 3);
/* The group's label belongs to the user: a call keeps it when it begins, and puts it back. */
typedef struct tsri_ddp_kept {
    char label[sizeof((tsr_group *)0)->label];
} tsri_ddp_kept;
tsri_ddp_kept tsri_ddp_keep_label(const tsr_ddp *d);
void tsri_ddp_put_back(tsr_ddp *d, const tsri_ddp_kept *kept);

/* ddp_compare.c. If d->compares: TSR_ERR_MISMATCH, the same on all ranks, names what differs
 * (collective over the group); notes an update's settings for the next comparison. */
tsr_status tsri_ddp_compare(tsr_ddp *d);
tsr_status tsri_ddp_note_settings(tsr_ddp *d, const tsr_optimizer *o);

/* ddp_bucket.c. Lays the gradients of d->params, which are in the module's order, into buckets, and
 * brings d->params into the order of the buckets. */
tsr_status tsri_ddp_make_buckets(tsr_ddp *d);
void tsri_ddp_free_buckets(tsr_ddp *d);

/* ddp_backward.c. Declares the gradients of a loss for the parameters of an optimizer that are not
 * frozen there (NULL: for all of them). False: the graph has failed. */
struct tsri_ctx;
bool tsri_ddp_backward(const struct tsri_ctx *c, tsr_ddp *d, const tsr_optimizer *o,
                       tsr_tensor *loss);
/* Whether o trains a parameter; o NULL: all are trained. */
bool tsri_ddp_trains(const tsr_optimizer *o, const tsri_ddp_param *p);

/* ddp_run.c. A run of a plan; syncs: averages follow. Collective over the group if it syncs. */
tsr_status tsri_ddp_run_plan(tsr_ddp *d, tsr_plan *plan, bool syncs);
/* Notes that the gradient of parameter i has been written; starts what is complete. */
tsr_status tsri_ddp_written(void *arg, int i);

/* ddp_sync.c. Starts reducing the buckets that are complete, in their order. */
tsr_status tsri_ddp_start_buckets(tsr_ddp *d);
/* Waits for all buckets' averages, and agrees on which parameters were used. */
tsr_status tsri_ddp_finish_buckets(tsr_ddp *d);
/* Sends the buffers of the group's rank `root` to all ranks. Collective over the group. */
tsr_status tsri_ddp_send_buffers(tsr_ddp *d, int root);

/* ddp_send.c. Sends the values that n variables have on the group's rank `root` to all ranks, where
 * the variables are the same but for their values. Collective over the group. */
tsr_status tsri_ddp_send(tsr_ddp *d, int n, tsr_variable *const *v, int root);

/* ddp_reduce.c */
tsr_status tsri_ddp_make_small(tsr_ddp *d);
tsr_status tsri_ddp_start_bucket(tsr_ddp *d, int bucket);
tsr_status tsri_ddp_finish_bucket(tsr_ddp *d, int bucket);
/* Adds n elements of `from` to those of `into`; f16 and bf16 are added in f32. */
void tsri_ddp_add(tsr_dtype dtype, int64_t n, void *into, const void *from);

/* ddp_memory.c. The dtype of compressed gradients, and whether a bucket has such. */
tsr_dtype tsri_ddp_small_dtype(const tsr_ddp *d);
bool tsri_ddp_is_compressed(const tsr_ddp *d, const tsri_ddp_bucket *b);
/* Returns 1/divisor, rounded to the dtype. */
double tsri_ddp_factor(double divisor, tsr_dtype dtype);
/* Whether buckets lie on a device with streams; and what is put into the stream of compute there,
 * or done at once. */
bool tsri_ddp_on_device(const tsr_ddp *d);
tsr_status tsri_ddp_clear(tsr_ddp *d, void *data, size_t bytes);
tsr_status tsri_ddp_copy(tsr_ddp *d, void *dst, const void *src, size_t bytes);
tsr_status tsri_ddp_add_to(tsr_ddp *d, tsr_dtype dtype, int64_t n, void *into, const void *from);
/* ddp_device.c. The device's part of functions that go without `_on_device`. */
tsr_status tsri_ddp_make_on_device(tsr_ddp *d);
void tsri_ddp_free_on_device(tsr_ddp *d);
tsr_status tsri_ddp_start_on_device(tsr_ddp *d, int bucket);
tsr_status tsri_ddp_finish_on_device(tsr_ddp *d, int bucket);
tsr_status tsri_ddp_send_on_device(tsr_ddp *d, int n, tsr_variable *const *v, int root);

/* ddp_step.c. Fetches a norm that is on its way, which may wait for the device. */
tsr_status tsri_ddp_fetch_norm(tsr_ddp *d);
/* Updates the parameters that o trains from gradients of m->loss_scale times the loss,
 * clipped as *m says; who: the public call, in messages. m->accumulate and m->out_norm are not
 * looked at. Sets d->info.grad_norm. */
tsr_status tsri_ddp_update_params(tsr_ddp *d, tsr_optimizer *o, const tsr_minimize_opts *m,
                                  const char *who);
void tsri_ddp_free_updates(tsr_ddp *d, bool plans_too);

/* ddp_minimize.c. Takes back the gradients that optimizers were lent. */
void tsri_ddp_unlend(tsr_ddp *d);

/* ddp_join.c: before a run of an active rank while join is on. */
tsr_status tsri_ddp_join_round(tsr_ddp *d, bool syncs, bool *io_buffers, int *out_root);

#endif
