/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watchdog of a communicator whose calls run on a device, where nobody sees them hang: a thread
 * that looks at marks which the device sets before and after each call, at the library's own
 * errors, and at what other ranks say on the host. When a call takes longer than the world's
 * timeout, or one of the others has failed, it notes why, tells the other ranks, and stops the
 * library's work. The rank's thread finds the note at its next call, or by check. An error that the
 * rank's thread itself meets is noted by it (tsri_watch_fail), and the stopping left to the
 * watchdog.
 */
#ifndef TESSERA_COMM_NCCL_WATCH_H
#define TESSERA_COMM_NCCL_WATCH_H

#include "kernels/cuda/nccl_mark.h"
#include "src/comm/comm.h"

typedef struct tsri_watch tsri_watch;

typedef struct tsri_watch_ops {
    /* The error that the library has met, with its text. Between enter and leave. */
    tsr_status (*look)(void *arg);
    /* Stops all of the library's work for good. Once, by the watchdog's thread, alone with the
     * library: it is not called while a call of the rank's thread hangs in that. It may wait until
     * the rank's thread has freed what it captured. */
    void (*stop)(void *arg);
} tsri_watch_ops;

/* marks: one per lane; outlive the watch. */
tsr_status tsri_watch_create(tsr_world *world, int nmarks, const tsri_nccl_mark *marks,
                             const tsri_watch_ops *ops, void *arg, tsri_watch **out_watch);
void tsri_watch_destroy(tsri_watch *w);

/* Before and after the rank's thread uses the library: the watchdog keeps out meanwhile. enter
 * fails with what was noted; then leave is not called. */
tsr_status tsri_watch_enter(tsri_watch *w);
void tsri_watch_leave(tsri_watch *w);

/* TSR_OK, or what was noted, with its text. */
tsr_status tsri_watch_check(tsri_watch *w);
/* Notes a failure, tells the other ranks and has all work stopped, for which it does not wait, if
 * it is the first. Returns what is noted. Not between enter and leave. */
tsr_status tsri_watch_fail(tsri_watch *w, tsr_status status, const char *text);

/* A call that the marks may name, for messages. */
tsr_status tsri_watch_name(tsri_watch *w, const tsri_group *g, const tsri_coll *coll,
                           int *out_name);
void tsri_watch_unname(tsri_watch *w, int name);

#endif
