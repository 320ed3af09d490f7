/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of collectives for per-rank buffers (tessera/collective.h).
 *
 *   collective.c        the calls: what they check, and the task that they make
 *   group.c  groups, memory, and the engine that a world has for all of them
 *   run.c    a task, done with any communicator
 *   send.c   send and recv
 *   side.c   a group between devices
 *   submit.c            which way a task goes: by host memory, or by a device's
 *   over.c              a group's end
 *   work.c              tasks under way: each group's queue, its thread, waiting
 *
 * The engine talks through a twin of the world's communicator, so plans and collectives do not
 * meet. Each group has a queue and, from its first asynchronous task on, a thread that works it
 * off: the tasks of a group are done in the order of the calls, and no group waits for another. A
 * blocking task is done by its caller, who first helps to empty the queue.
 *
 * Sends stand apart: their data is copied to where the receiver finds it, so the caller does them
 * at once, whatever (a recv, say) is under way. Only those that are too far ahead of their
 * receivers go into a queue, the group's second.
 *
 * Who may do what: the rank's thread makes groups, takes memory and puts tasks into queues. A task
 * is done by one thread, which has its queue's `running`.
 */
#ifndef TESSERA_COMM_COLLECTIVE_COLLECTIVE_H
#define TESSERA_COMM_COLLECTIVE_COLLECTIVE_H

#include <tessera/collective.h>
#include "src/comm/task.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct tsri_engine tsri_engine;
typedef struct tsri_side tsri_side;

/* A call from start to release; the calls of a side are finished, and released, in their order.
 * Embedded; its user fills in .coll, but for the stream, which lives until it is released. */
typedef struct tsri_side_call tsri_side_call;
struct tsri_side_call {
    tsri_side *side;
    tsri_coll coll;
    tsri_ticket ticket;
    tsri_side_call *next;
    enum { TSRI_SIDE_IDLE = 0, TSRI_SIDE_STARTED, TSRI_SIDE_FINISHED } state;
    /* A word for the call on the host, by which the members compare it, where the device's can't.
     */
    tsri_coll word;
    tsri_ticket word_ticket;
    bool is_said; /* and not met */
    /* Optional: puts work on the results into the side's stream, when the call is finished. */
    tsr_status (*end)(tsri_side_call *call);
    /* Optional: the call is over, and its memory may be used again in the side's stream. */
    void (*over)(tsri_side_call *call);
    void *arg; /* for these two */
};

typedef struct tsri_queue {
    tsr_group *group;
    tsr_work *head, *tail;
    tsr_work *running;
    bool has_thread;
    pthread_t thread;
    _Atomic int left; /* tasks that are not done */
} tsri_queue;

struct tsr_work {
    tsri_task task;
    tsr_group *group;
    tsri_queue *queue;
    tsr_work *next;          /* in the queue */
    tsr_work *newer, **link; /* among the group's handles */
    _Atomic bool done;       /* status is final */
    tsr_status status;
    /* The rest is for buffers in a device's memory. */
    tsri_device *device;
    tsri_side_call call;
    tsri_event *event; /* recorded when the call is finished */
    bool waited, over; /* by the program; the call */
    void *staged;      /* host memory in place of the buffer of a send or recv */
    void *staged_for;  /* of a recv: the buffer */
};

struct tsr_group {
    tsri_engine *engine;
    tsr_group *next;
    tsri_group *inner; /* NULL in a group of one */
    int nranks, index;
    int *ranks;
    uint64_t key;     /* a hash of the list */
    uint64_t calls;   /* of this rank, by now */
    char label[64];   /* of the next calls */
    tsr_work *works;  /* handles alive, of the rank's thread */
    tsri_side *sides; /* by device: side.h */

    pthread_mutex_t lock; /* of the rest */
    pthread_cond_t changed;
    bool stop;
    tsri_queue queue, sends;
    /* The first error ends the group; its text is set before its status. */
    _Atomic int over;
    char text[2048];
};

/* A world's means for its collectives. */
struct tsri_engine {
    tsr_world *world;
    tsri_comm *comm;
    bool owns_comm;
    tsri_owned owned;
    pthread_mutex_t lock; /* of the communicator's list of groups, and of paths */
    tsr_group *groups;
    struct tsri_path *paths;
    void *blocks; /* a tree of what tsr_alloc gave */
};

/* group.c. The world's engine, made when it is first asked for. */
tsr_status tsri_engine_of(tsr_world *world, tsri_engine **out_engine);
/* An engine over a communicator that stays the caller's; to be destroyed before it. */
tsr_status tsri_engine_create(tsr_world *world, tsri_comm *comm, tsri_engine **out_engine);
void tsri_engine_destroy(tsri_engine *engine);
tsr_status tsri_engine_group(tsri_engine *engine, int nranks, const int *ranks,
                             tsr_group **out_group);
/* send.c. Memory of the region; messages that have been read make room for it. */
tsr_status tsri_region_take(tsri_engine *engine, size_t bytes, void **out_ptr);
tsr_status tsri_scratch_take(tsri_engine *engine, size_t bytes, tsri_scratch *out);
void tsri_scratch_give(tsri_engine *engine, tsri_scratch *scratch);

/* submit.c. Does the task, or puts it into the queue and gives a handle. The task is copied, with
 * its arrays. */
tsr_status tsri_work_submit(tsr_group *g, const tsri_task *task, tsr_work **out_work);
/* work.c. Does so for a task whose buffers are in host memory. */
tsr_status tsri_work_submit_host(tsr_group *g, const tsri_task *task, tsr_work **out_work);
/* A handle with a copy of the task and its arrays; its end. */
tsr_work *tsri_work_new(tsr_group *g, const tsri_task *task);
void tsri_work_free(tsr_work *w);
/* Waits until the task is done, or for so long: then TSR_ERR_TIMEOUT. The handle stays. */
tsr_status tsri_work_wait_host(tsr_work *w, double timeout_s);

/* over.c. TSR_OK, or the error that has ended the group; that error. */
tsr_status tsri_group_check(tsr_group *g);
tsr_status tsri_group_fail_over(tsr_group *g);
bool tsri_group_is_over(tsr_group *g);
/* The thread's last error ends the group, if it is the first; its members' next calls fail. tells:
 * the other members hear of it by the inner group, in a call of which nobody else is. */
void tsri_group_end_by(tsr_group *g, bool tells, tsr_status status);
/* Does so by the rank's thread, and tells if it may. */
void tsri_group_end(tsr_group *g, tsr_status status);

/* The rest of the queue is done, the thread has ended, handles are freed. */
void tsri_work_close(tsr_group *g);

/* run.c. Takes the memory that doing it needs; on the rank's thread. */
tsr_status tsri_task_prepare(tsr_group *g, tsri_task *task);
/* Gives that back. */
void tsri_task_finish(tsr_group *g, tsri_task *task);
/* Tells the flight recorder that it is in the queue. */
void tsri_task_schedule(const tsr_group *g, tsri_task *task);
/* Does it, whoever's thread this is. On a device alone where the group has one rank. */
tsr_status tsri_task_run(tsr_group *g, tsri_task *task);
/* The parts of doing it on a device: before its call, which is filled in; and when it is finished.
 */
tsr_status tsri_task_describe(tsr_group *g, tsri_task *task);
tsr_status tsri_task_end(const tsr_group *g, const tsri_task *task);

/* send.c */
tsr_status tsri_send_prepare(tsr_group *g, tsri_task *task);
/* Whether a send can be done at once. */
bool tsri_send_is_ready(tsr_group *g, const tsri_task *task);
/* Frees what prepare took, where the send was not done. */
void tsri_send_drop(tsr_group *g, tsri_task *task);
tsr_status tsri_send_run(tsr_group *g, tsri_task *task);
tsr_status tsri_recv_run(tsr_group *g, tsri_task *task);
/* Frees what has been sent and read; on the rank's thread. */
void tsri_paths_collect(tsri_engine *engine);
/* Frees all paths, and what is on its way: after the communicator's `leave`. */
void tsri_paths_free(tsri_engine *engine);

#endif
