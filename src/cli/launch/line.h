/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two sides of the line between launchers: the launcher, and the thread that talks
 * to the store (nodes.c; meeting the others is join.c). */
#ifndef TESSERA_CLI_LAUNCH_LINE_H
#define TESSERA_CLI_LAUNCH_LINE_H

#include "src/cli/launch/launch.h"
#include "src/comm/store/store.h"
#include "src/core/status.h"

#include <pthread.h>
#include <stdarg.h>

enum { LAUNCH_HOST_MAX = 64 };

/* Node 0's word on all nodes: the run's name, the number of all ranks, and of those before this
 * node's. */
typedef struct launch_places {
    char run_id[LAUNCH_RUN_ID_MAX + 1];
    int base, world;
} launch_places;

/* The wait of a node for the others. */
typedef struct launch_joining {
    char for_whom[1024]; /* the missing nodes; protected by the lock */
    double seconds;
    int64_t until_ms;
    bool hurries; /* the launcher was stopped before all nodes had come */
} launch_joining;

/* Node 0's arrays over nodes. */
typedef struct launch_each {
    int *nranks;             /* number of ranks, or 0 before the node has come */
    int64_t *beat, *beat_ms; /* count and time of its last heartbeat */
    char (*host)[LAUNCH_HOST_MAX];
} launch_each;

struct launch_nodes {
    pthread_t thread;
    pthread_mutex_t lock;
    int wake_fd, told_fd; /* to the thread, and from it */
    /* With the lock. */
    int wanted_phase;
    bool is_done, has_post, has_verdict, quit;
    char post[LAUNCH_TEXT_MAX], verdict[LAUNCH_TEXT_MAX];
    launch_places places; /* once phase 0's verdict has been taken, and is no failure */
    /* The thread's own; node_rank and run_id are the launcher's too, once phase 0 is over. */
    tsr_store *store;
    tsri_store_server *server; /* node 0's */
    int nnodes, node_rank, max_restarts, monitor_ms, grace_ms, port, own_nranks, phase;
    bool by_arrival;
    launch_joining joining;
    char addr[256], where[300], run_id[LAUNCH_RUN_ID_MAX + 1];
    char lost[1024];
    launch_each each; /* node 0's */
};

/* The thread: connects, and claims a number. An error is in `lost` then. */
tsr_status launch_line_join(launch_nodes *n);
/* The thread: until there is something to do, at most ms. */
void launch_line_rest(launch_nodes *n, int ms);
/* The thread: says why the line is lost. Returns TSR_ERR_DEAD. */
tsr_status launch_line_lose(launch_nodes *n, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The thread: for whom it waits, while joining; "": for nobody in particular. */
void launch_line_wait_for(launch_nodes *n, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The thread: whether the launcher wants it to end. */
bool launch_line_quits(launch_nodes *n);
/* The thread: the phase has failed, for all and for good, unless there is a verdict on it. */
tsr_status launch_line_propose_failure(launch_nodes *n, const char *text);
/* Reads "O run-id ranks ranks ...". Returns whether it is that, and has this node's ranks. */
bool launch_line_read_places(const launch_nodes *n, const char *text, launch_places *out);
/* The thread itself. */
void *launch_line_main(void *nodes);

#endif
