/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device vtable: where buffers live and in what order work is done on them. A device belongs to
 * a rank (a world) and is opened when its first buffer is needed.
 *
 * On a device with streams, kernels (tsri_kernel_desc.stream), copies and collectives
 * (tsri_coll.stream) are ordered by their stream and return before they are done; events order
 * streams among each other. A CPU has none: its stream is NULL, all is done when a call returns,
 * and the slots from `move` on are NULL.
 *
 * A call's error of asynchronous work may be one of earlier work.
 */
#ifndef TESSERA_KERNELS_DEVICE_H
#define TESSERA_KERNELS_DEVICE_H

#include <tessera/placement.h>
#include "kernels/kernels.h"
#include "kernels/move.h"
#include "src/core/world.h"

typedef struct tsri_event tsri_event;
typedef struct tsri_device tsri_device;
/* Something that the host looks after while it waits for a device. Embedded by its owner. */
typedef struct tsri_poll {
    struct tsri_poll *next;
    tsr_status (*fn)(void *arg); /* an error ends the wait */
    void *arg;
} tsri_poll;
/* Work that was recorded once and can be run again as one. */
typedef struct tsri_captured tsri_captured;

/* Everything that another process needs to read a region or wait for an event. Plain bytes. */
typedef struct tsri_share {
    unsigned char bytes[64];
} tsri_share;

typedef struct tsri_device_ops {
    size_t size; /* of this struct: slots behind it are absent */
    const char *name;
    void (*close)(tsri_device *d); /* frees d itself too */

    /* Persistent buffers: zeroed, aligned to 64 bytes, readable by peers' communicators. */
    tsr_status (*buffer_alloc)(tsri_device *d, size_t bytes, void **out_ptr);
    void (*buffer_free)(tsri_device *d, void *ptr, size_t bytes); /* ptr may be NULL */
    /* The block that all plans of the rank share: at least `bytes`. It does not move. */
    tsr_status (*plan_block)(tsri_device *d, size_t bytes, void **out_base);

    /* Copies from and to host memory. The host side may be reused on return: copy_in takes what it
     * says before it returns and is ordered by `stream`; copy_out waits for what is before it. */
    tsr_status (*copy_in)(tsri_device *d, void *dst, const void *host_src, size_t bytes,
                          tsri_stream *stream);
    tsr_status (*copy_out)(tsri_device *d, void *host_dst, const void *src, size_t bytes,
                           tsri_stream *stream);

    /* The kernel implementations, best first, NULL-terminated. */
    const tsri_kernels *const *(*kernels)(void);

    /* --- NULL on devices without streams --- */
    tsr_status (*move)(tsri_device *d, const tsri_move *move, tsri_stream *stream);
    /* `count` elements of dst become the identity of a reduction. */
    tsr_status (*fill)(tsri_device *d, tsr_dtype dtype, tsr_reduce_op op, int64_t count, void *dst,
                       tsri_stream *stream);

    tsr_status (*stream_create)(tsri_device *d, tsri_stream **out_stream);
    void (*stream_destroy)(tsri_device *d, tsri_stream *stream);
    /* Waits for all that is in the stream. Errors of kernels' data are for check() to tell. */
    tsr_status (*stream_sync)(tsri_device *d, tsri_stream *stream);
    /* Returns what kernels that are done by now met in their data, without waiting; told once, and
     * d->faulty is then the kernel. For who runs plans: others would take its errors away. */
    tsr_status (*check)(tsri_device *d);
    /* timed: event_seconds works; shared: event_share does. */
    tsr_status (*event_create)(tsri_device *d, bool timed, bool shared, tsri_event **out_event);
    void (*event_destroy)(tsri_device *d, tsri_event *event);
    tsr_status (*event_record)(tsri_device *d, tsri_event *event, tsri_stream *stream);
    /* Work put into the stream from now on starts after what the event stands for now. */
    tsr_status (*event_wait)(tsri_device *d, tsri_stream *stream, tsri_event *event);
    /* From one recorded event to another; both must be done (stream_sync). */
    tsr_status (*event_seconds)(tsri_device *d, tsri_event *from, tsri_event *to, double *out_s);

    /* Records what is put into the stream, and into others that it is ordered with by events,
     * instead of doing it. capture_end: on failure nothing has run, *out is NULL and the text says
     * why; the stream can be used as before. */
    tsr_status (*capture_begin)(tsri_device *d, tsri_stream *stream);
    tsr_status (*capture_end)(tsri_device *d, tsri_stream *stream, tsri_captured **out_captured);
    tsr_status (*captured_run)(tsri_device *d, tsri_captured *captured, tsri_stream *stream);
    void (*captured_destroy)(tsri_device *d, tsri_captured *captured);

    /* For ranks that are processes on one device: the region as others map it, and events. */
    tsr_status (*region_share)(tsri_device *d, tsri_share *out_share);
    tsr_status (*region_open)(tsri_device *d, const tsri_share *share, void **out_base);
    void (*region_close)(tsri_device *d, void *base);
    tsr_status (*event_share)(tsri_device *d, tsri_event *event, tsri_share *out_share);
    tsr_status (*event_open)(tsri_device *d, const tsri_share *share, tsri_event **out_event);

    /* For ranks that are threads: TSR_ERR_UNSUPPORTED unless this device can read the region that
     * begins at `base`, another rank's. May be NULL: it can read all. */
    tsr_status (*region_reach)(tsri_device *d, const void *base);

    /* Whether what the event stands for is done; never waits. */
    tsr_status (*event_done)(tsri_device *d, tsri_event *event, bool *out_done);
    /* The stream as programs know it: a cudaStream_t. */
    void *(*stream_native)(tsri_device *d, tsri_stream *stream);
} tsri_device_ops;

struct tsri_device {
    const tsri_device_ops *ops;
    tsr_world *world;
    tsr_device kind;     /* tsri_device_get sets it */
    tsri_stream *stream; /* of compute; NULL on a CPU */
    /* Called over and over while the host waits for the device: by communicators, whose collectives
     * a lost peer could keep from ever ending. NULL: none. */
    tsri_poll *polls;
    const tsri_kernel *faulty; /* whose error check() gave last; NULL: none's */
    tsri_region *region;       /* what buffers and plan blocks are taken from */
    char id[64]; /* of the hardware, the same in all processes: a PCI address; "" a CPU */
    tsri_owned owned;
};

/* Adds something to look after, and takes it away again (also if it was never added). The rank's
 * thread alone may do so. */
static inline void tsri_device_poll_add(tsri_device *d, tsri_poll *poll)
{
    poll->next = d->polls;
    d->polls = poll;
}

static inline void tsri_device_poll_remove(tsri_device *d, tsri_poll *poll)
{
    tsri_poll **at = &d->polls;
    while (*at && *at != poll)
        at = &(*at)->next;
    if (*at)
        *at = poll->next;
}

/* Looks after all of them; the first error. */
static inline tsr_status tsri_device_poll(const tsri_device *d)
{
    for (const tsri_poll *p = d->polls; p; p = p->next)
        TSRI_TRY(p->fn(p->arg));
    return TSR_OK;
}

/* The rank's device of a kind, opened if it isn't yet; belongs to the world. Errors:
 * TSR_ERR_UNSUPPORTED for a kind that has no module here or finds no device, with what was looked
 * for and found, and how to check; what opening met. */
tsr_status tsri_device_get(tsr_world *world, tsr_device kind, tsri_device **out_device);

/* Opens a CPU: buffers are the world's region of the arena. */
tsr_status tsri_device_open_cpu(tsr_world *world, tsri_device **out_device);
/* Opens the world's device of a kind that has a module, through it (kernels/module.h). */
tsr_status tsri_device_open_module(tsr_world *world, tsr_device kind, tsri_device **out_device);

#endif
