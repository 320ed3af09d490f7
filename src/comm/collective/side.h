/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group's way between devices of a kind that has streams, for buffers in their memory. A side has
 * a communicator and a stream of its own: its calls queue behind neither those of plans nor the
 * device's compute, and the calls of two sides do not wait for each other.
 *
 * The rank's thread alone makes calls. It waits for its peers' hosts where the communicator does,
 * never for the device. An error of a call ends the group, as on the host.
 */
#ifndef TESSERA_COMM_COLLECTIVE_SIDE_H
#define TESSERA_COMM_COLLECTIVE_SIDE_H

#include "src/comm/collective/collective.h"

typedef struct tsri_side_call tsri_side_call;

struct tsri_side {
    tsri_owned owned;
    struct tsri_side *next; /* of the group */
    tsr_group *group;
    tsri_device *device;
    tsri_comm *comm;   /* NULL in a group of one */
    tsri_group *inner; /* likewise */
    tsri_stream *stream;
    tsri_event *compute, *side;    /* by which the two streams follow each other */
    bool in_place;                 /* a sum by all_reduce may have one buffer as src and dst */
    tsri_side_call *first, **last; /* calls that are not released, the oldest first */
    int ncalls;
};

/* A call from start to release; the calls of a side are finished, and released, in their order.
 * Embedded; its user fills in .coll, but for the stream, which lives until it is released. */
struct tsri_side_call {
    tsri_side *side;
    tsri_coll coll;
    tsri_ticket ticket;
    tsri_side_call *next;
    enum { TSRI_SIDE_IDLE = 0, TSRI_SIDE_STARTED, TSRI_SIDE_FINISHED } state;
    /* Optional: puts work on the results into the side's stream, when the call is finished. */
    tsr_status (*end)(tsri_side_call *call);
    /* Optional: the call is over, and its memory may be used again in the side's stream. */
    void (*over)(tsri_side_call *call);
    void *arg; /* for these two */
};

/* The group's side on this rank's device, made when it is first asked for: collective over the
 * group then. Goes before the device. */
tsr_status tsri_side_of(tsr_group *g, tsri_device *device, tsri_side **out_side);

/* The side's stream goes on after all that is in the stream of compute; and the reverse. */
tsr_status tsri_side_follow(tsri_side *s);
tsr_status tsri_side_lead(tsri_side *s);

/* Makes a call one of this side. `again`: it will be made again and again, with buffers that are
 * final, so it is worked out now where that takes a hand-shake; collective over the group then.
 * unprepare finishes and releases a call that is under way; fine if it was never prepared. */
tsr_status tsri_side_prepare(tsri_side *s, tsri_side_call *call, bool again);
void tsri_side_unprepare(tsri_side_call *call);
/* Puts the call into the side's stream, behind the last one; one that is under way is released
 * before. */
tsr_status tsri_side_start(tsri_side_call *call);
/* Work that is put into the side's stream from now on sees the results; so do all calls before this
 * one. May wait for peers' hosts. */
tsr_status tsri_side_finish(tsri_side_call *call);
/* Whether tsri_side_finish would not wait. */
bool tsri_side_is_ready(const tsri_side_call *call);
/* Work that is put into the side's stream from now on may write over the sources. May wait for
 * peers' hosts. */
tsr_status tsri_side_release(tsri_side_call *call);
/* A call that is made once, from start to release. */
tsr_status tsri_side_once(tsri_side *s, const tsri_coll *coll);

#endif
