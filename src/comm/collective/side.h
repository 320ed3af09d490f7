/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group's way between devices of a kind that has streams, for buffers in their memory. A side has
 * a communicator and a stream of its own: its calls queue behind neither those of plans nor the
 * device's compute, and the calls of two sides do not wait for each other.
 *
 * The rank's thread alone makes calls. It waits for its peers' hosts where the communicator does,
 * never for the device. An error of a call ends the group, as on the host.
 *
 * NCCL's calls are not compared before they are made, since that would be a wait for all peers. On
 * one machine each is made on the host too, as a word: whoever comes last finds that the members
 * mean different calls, and the watchdog's error says who has not come.
 */
#ifndef TESSERA_COMM_COLLECTIVE_SIDE_H
#define TESSERA_COMM_COLLECTIVE_SIDE_H

#include "src/comm/collective/collective.h"

struct tsri_side {
    tsri_owned owned;
    struct tsri_side *next; /* of the group */
    tsr_group *group;
    tsri_device *device;
    tsri_comm *comm;   /* NULL in a group of one */
    tsri_group *inner; /* likewise */
    tsri_group *words; /* of the host, for calls that are compared apart; NULL: none are */
    tsri_poll poll;    /* of `words` */
    double looked_s;   /* when it last looked for lost members */
    tsri_stream *stream;
    tsri_event *compute, *side;    /* by which the two streams follow each other */
    bool in_place;                 /* a sum by all_reduce may have one buffer as src and dst */
    tsri_side_call *first, **last; /* calls that are not released, the oldest first */
    int ncalls;
    uint64_t works; /* of this rank, by now */
    struct tsri_side_block *blocks;
};

/* The group's side on this rank's device, made when it is first asked for: collective over the
 * group then. Goes before the device and the group. */
tsr_status tsri_side_of(tsr_group *g, tsri_device *device, tsri_side **out_side);
void tsri_side_destroy(tsri_side *s);

/* side_memory.c. The side's stream goes on after all that is in the stream of compute; and the
 * reverse. */
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
/* Finishes all calls of the rank's sides that can be finished without a wait. */
void tsri_side_advance_all(const tsri_engine *engine);
/* Whether tsri_side_finish would not wait. */
bool tsri_side_is_ready(const tsri_side_call *call);
/* Work that is put into the side's stream from now on may write over the sources. May wait for
 * peers' hosts. */
tsr_status tsri_side_release(tsri_side_call *call);
/* Takes memory of the device for work in the side's stream, which follows compute first: a new
 * block is cleared there. Its next user writes to it in the side's stream. */
tsr_status tsri_side_take(tsri_side *s, size_t bytes, tsri_scratch *out);
void tsri_side_give(tsri_scratch *scratch);
void tsri_side_free_blocks(tsri_side *s);
/* In a stream of the device; in the side's. bytes may be 0. */
tsr_status tsri_side_move(tsri_device *d, void *dst, const void *src, size_t bytes,
                          tsri_stream *stream);
tsr_status tsri_side_copy(tsri_side *s, void *dst, const void *src, size_t bytes);
/* Likewise: dst[i] = src[i] times 1/nranks; they may be the same.
 * *out_kernel is destroyed by the caller, when the work is done. */
tsr_status tsri_side_scale(tsri_side *s, tsr_dtype dtype, int64_t count, int nranks, void *dst,
                           const void *src, tsri_kernel **out_kernel);
/* Makes the kernel of tsri_side_scale, or of a cast, for buffers of `count` elements. */
tsr_status tsri_side_make_scale(tsri_side *s, tsr_dtype dtype, int64_t count, double factor,
                                tsri_kernel **out_kernel);
tsr_status tsri_side_make_cast(tsri_side *s, tsr_dtype from, tsr_dtype to, int64_t count,
                               tsri_kernel **out_kernel);
/* Queues a kernel of the two functions above, with the scratch that it requires. */
tsr_status tsri_side_run(tsri_side *s, const tsri_kernel *k, void *in, void *out);

/* side_work.c. The rank's device in whose memory p is; NULL: none. */
tsri_device *tsri_device_of_memory(const tsr_world *w, const void *p);
/* The device whose memory a task's buffers are in; NULL: the host's. Buffers of both
 * are TSR_ERR_INVALID. */
tsr_status tsri_task_device(const tsr_group *g, const tsri_task *task, tsri_device **out_device);
/* tsri_work_submit, wait and test of tasks there. */
tsr_status tsri_side_submit(tsr_group *g, tsri_device *device, const tsri_task *task,
                            tsr_work **out_work);
tsr_status tsri_side_wait(tsr_work *w, double timeout_s);
bool tsri_side_test(tsr_work *w);

/* side_group.c. Makes the group of one call of a plan of local graphs between devices, whose
 * operations go through the side of `group`; it is what coll->prepared keeps until unprepare. Not
 * collective: the call's first start is, and makes the side. */
tsr_status tsri_side_group_make(tsr_group *group, tsri_device *device, tsri_coll *coll,
                                tsri_group **out_group);

/* A call that is made once, from start to release. */
tsr_status tsri_side_once(tsri_side *s, const tsri_coll *coll);

#endif
