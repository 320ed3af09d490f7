/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The local communicator on device memory: the hand-shakes of src/comm/local/local.h, through
 * channels of its own, and data that a device moves on streams.
 *
 *   device.c        the vtable; making one, and leaving it
 *   device_order.c  events: what comes before what
 *   device_move.c   moves
 *
 * The host waits for hand-shakes, never for the device, and no kernel waits for a peer's. Instead
 * whoever advances a counter first records an event, on the stream of that call, and whoever has
 * seen a peer's counter makes its own stream wait for the peer's event before it goes on:
 *
 *   PUBLISHED  recorded by start: src is there       awaited by finish, before src is read
 *   PHASE1     my part of a two-phase all-reduce     awaited by finish, before it is read
 *   DONE       recorded by finish: I have read all   awaited by release
 *
 * A stream waits for work that was put into some stream before, so nothing waits in a circle.
 *
 * An event that is recorded again stands for the later work at once, so no peer may still be about
 * to wait for it. Each group has, for each counter, a ring of events. Let R be TSRI_CALL_RING. A
 * rank starts call t + R only when all members' DONE counters say t.
 *  - PUBLISHED and PHASE1 have R events. The events of call t are recorded again in call t + R, and
 * a peer has waited for them before its DONE says t.
 *  - DONE has 2 R, as `release` may come any number of calls later. But a rank that starts call
 *    t + R lets go of call t, if it has not been released by then: its stream waits for the DONE
 *    events of t, and a later release finds that done. Now who finishes call t + 2 R, and records
 *    the event of t again, started it when all members' DONE said t + R: all had started t + R.
 * So a stream must live until its calls are released, or R more calls of the group are started.
 *
 * Nobody frees its events, nor has its region freed, while a peer may use them: who destroys the
 * communicator says that it is closing it (who waits for it in a call is told that it has left),
 * waits for its own reads, says so, and lingers until all others have said so, or can't. That is
 * the one place where the host waits for the device.
 */
#ifndef TESSERA_COMM_LOCAL_DEVICE_H
#define TESSERA_COMM_LOCAL_DEVICE_H

#include "src/comm/local/local.h"

typedef struct tsri_local_device {
    tsri_local local;
    tsri_device *device;
    /* Ranks that are processes open each other's regions and events; threads just use them. */
    tsri_poll poll; /* a stream may wait for work that a process that died has left undone */
    bool shares, has_share;
    tsri_share share; /* of this rank's region */
    void **opened;    /* regions, by world rank; NULL: not opened yet */
} tsri_local_device;

/* As tsri_local_create_device, for ranks that share (or not) in the sense above. */
tsr_status tsri_local_device_make(tsr_world *world, tsri_device *device, int nranks,
                                  const int *ranks, tsri_device_comm_of of_whom, bool shares,
                                  tsri_comm **out_comm);

static inline tsri_local_device *tsri_local_device_of(const tsri_local_group *g)
{
    return (tsri_local_device *)(void *)g->local;
}

/* Passes `status` on. A device that fails is this rank's alone, so all others are told. */
tsr_status tsri_local_device_check(const tsri_local_group *g, tsr_status status);

/* device_order.c: the mover's. */
tsr_status tsri_device_group_open(tsri_local_group *g);
void tsri_device_group_close(tsri_local_group *g);
tsr_status tsri_device_mark(tsri_local_group *g, const tsri_coll *c, tsri_wait_for which,
                            uint64_t seq);
tsr_status tsri_device_follow(tsri_local_group *g, const tsri_coll *c, int index,
                              tsri_wait_for which, uint64_t seq);
tsr_status tsri_device_follow_all(tsri_local_group *g, const tsri_coll *c, tsri_wait_for which,
                                  uint64_t seq);
/* Puts into the stream that it comes after all that this rank has read in the group. */
void tsri_device_group_drain(tsri_local_group *g, tsri_stream *stream);
/* Gives back what was opened of peers' events. */
void tsri_device_group_part(tsri_local_group *g);

/* device_move.c: the mover's. */
tsr_status tsri_device_walk(tsri_local_group *g, const tsri_coll *c, const tsri_walk *w,
                            tsr_dtype dtype, int nsrc, const char *const *src, char *dst);
tsr_status tsri_device_fill(tsri_local_group *g, const tsri_coll *c, const tsri_segment *s);

#endif
