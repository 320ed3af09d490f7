/* SPDX-License-Identifier: Apache-2.0 */
/* One call of a rank on its own buffers, as plain data. */
#ifndef TESSERA_COMM_TASK_H
#define TESSERA_COMM_TASK_H

#include <tessera/collective.h>
#include "src/comm/comm.h"

typedef enum tsri_task_kind {
    TSRI_TASK_ALL_REDUCE,
    TSRI_TASK_BROADCAST,
    TSRI_TASK_REDUCE,
    TSRI_TASK_ALL_GATHER,
    TSRI_TASK_REDUCE_SCATTER,
    TSRI_TASK_ALL_TO_ALL,
    TSRI_TASK_GATHER,
    TSRI_TASK_SCATTER,
    TSRI_TASK_BARRIER,
    TSRI_TASK_SEND,
    TSRI_TASK_RECV,
    TSRI_TASK_KIND_COUNT_
} tsri_task_kind;

/* Memory that peers can read: of the region, or of the heap where the communicator has no such
 * wish. Taken and given back by the rank's thread. */
typedef struct tsri_scratch {
    char *p;
    size_t bytes;
    struct tsri_side *side; /* whose device's memory it is; NULL: the host's */
} tsri_scratch;

/* One call of a rank. */
typedef struct tsri_task {
    tsri_task_kind kind;
    tsr_dtype dtype;
    tsr_reduce_op op;
    int root; /* its place in the group; of send and recv the other's place */
    int tag;
    int64_t count;
    const char *src;
    char *dst;         /* the same as src where the call has `data` */
    void *const *list; /* all_gather into n buffers: instead of dst */
    const int64_t *src_counts, *dst_counts;
    uint64_t number; /* among the rank's calls of the group, from 1 */
    uint64_t flight; /* its number in the flight recorder, until it is done; 0: none */
    tsri_loc loc;
    tsri_scratch scratch[2];
    struct tsri_parcel *parcel; /* of a send that has not been done */
    char label[64];             /* the group's, at the call */
    /* Buffers in a device's memory: the group's way between devices. NULL: host memory. */
    struct tsri_side *side;
    struct tsri_kernel *scale; /* of an average there */
    /* Its call of the communicator, once it is described. Points into the task. */
    tsri_coll coll;
    tsri_segment seg;
    tsri_pull pull;
    char what[128];
} tsri_task;

/* The kind of the record of a task. */
int tsri_task_coll_kind(tsri_task_kind kind);
/* "all_reduce" and the like. */
const char *tsri_task_name(tsri_task_kind kind);
/* Elements of the src of member `index`; 0 where it gives nothing. */
int64_t tsri_task_src_count(int nranks, int index, const tsri_task *task);
/* counts: row i is what member i sends to each, and then what it expects of each. A difference is
 * TSR_ERR_MISMATCH. */
tsr_status tsri_all_to_all_check(int nranks, const int *ranks, const tsri_task *task,
                                 const int64_t *counts);
#endif
