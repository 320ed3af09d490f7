/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device vtable: where buffers live and in what order work is done on them. A device belongs to
 * a rank (a world) and is opened when its first buffer is needed.
 *
 * On a device with streams, kernels (tsri_kernel_desc.stream), copies and collectives
 * (tsri_coll.stream) are ordered by their stream and return before they are done; events order
 * streams among each other. A CPU has none: its stream is NULL, all is done when a call returns,
 * and the slots for streams and events are NULL.
 */
#ifndef TESSERA_KERNELS_DEVICE_H
#define TESSERA_KERNELS_DEVICE_H

#include <tessera/placement.h>
#include "kernels/kernels.h"
#include "src/core/world.h"

typedef struct tsri_event tsri_event;
typedef struct tsri_device tsri_device;

typedef struct tsri_device_ops {
    size_t size; /* of this struct: slots behind it are absent */
    const char *name;
    void (*close)(tsri_device *d); /* frees d itself too */

    /* Persistent buffers: zeroed, aligned to 64 bytes, readable by peers' communicators. */
    tsr_status (*buffer_alloc)(tsri_device *d, size_t bytes, void **out_ptr);
    void (*buffer_free)(tsri_device *d, void *ptr, size_t bytes); /* ptr may be NULL */
    /* The block that all plans of the rank share: at least `bytes`. It does not move. */
    tsr_status (*plan_block)(tsri_device *d, size_t bytes, void **out_base);

    /* Copies from and to host memory. The host side may be reused on return. */
    tsr_status (*copy_in)(tsri_device *d, void *dst, const void *host_src, size_t bytes,
                          tsri_stream *stream);
    tsr_status (*copy_out)(tsri_device *d, void *host_dst, const void *src, size_t bytes,
                           tsri_stream *stream);

    /* The kernel implementations, best first, NULL-terminated. */
    const tsri_kernels *const *(*kernels)(void);

    /* Optional: NULL on devices without streams. */
    tsr_status (*stream_create)(tsri_device *d, tsri_stream **out_stream);
    void (*stream_destroy)(tsri_device *d, tsri_stream *stream);
    tsr_status (*stream_sync)(tsri_device *d, tsri_stream *stream);
    tsr_status (*event_create)(tsri_device *d, tsri_event **out_event);
    void (*event_destroy)(tsri_device *d, tsri_event *event);
    tsr_status (*event_record)(tsri_device *d, tsri_event *event, tsri_stream *stream);
    tsr_status (*event_wait)(tsri_device *d, tsri_stream *stream, tsri_event *event);
} tsri_device_ops;

struct tsri_device {
    const tsri_device_ops *ops;
    tsr_world *world;
    tsri_stream *stream; /* of compute; NULL on a CPU */
    tsri_owned owned;
};

/* The rank's device of a kind, opened if it isn't yet; belongs to the world. Errors:
 * TSR_ERR_UNSUPPORTED for a kind that this build has no module for, and what opening met. */
tsr_status tsri_device_get(tsr_world *world, tsr_device kind, tsri_device **out_device);

/* Opens a CPU: buffers are the world's region of the arena. */
tsr_status tsri_device_open_cpu(tsr_world *world, tsri_device **out_device);

#endif
