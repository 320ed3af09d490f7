/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device whose streams do nothing by themselves: work waits in queues until
 * somebody waits for it (stream_sync, copy_out), and then only what that needs is done. With a
 * chance, each call also does some work of random streams that could go on. So what is not ordered
 * by streams and events comes as late as can be, or in some other order that nobody hoped for.
 *
 * Its addresses are of pages that nobody may touch: host code that follows a pointer to the device
 * ends by SIGSEGV. Work is done on memory elsewhere (deferred_reach).
 *
 * All such devices of the process are one machine: their streams can wait for each other's events.
 * Sharing (region_share, event_share and the rest) works among them, too. There is no capture, and
 * no kernels but those that deferred_call queues: tests/mirror/kernels.c.
 */
#ifndef TESSERA_TESTS_DEFERRED_DEVICE_H
#define TESSERA_TESTS_DEFERRED_DEVICE_H

#include "kernels/device.h"

/* Before the first device is opened. eager: the chance, in percent, of work that nobody waits for;
 * 0: as late as can be. */
void deferred_set(uint64_t seed, int eager);
/* Opens a device of the calling rank with a region of so many bytes; goes by ops->close. */
tsr_status deferred_open(tsr_world *world, size_t bytes, tsri_device **out_device);
/* The n-th move from now on this device fails (n >= 1), and all after it. */
void deferred_fail(tsri_device *device, int n);

/* Its vtable, for devices that replace some of it. */
extern const tsri_device_ops deferred_ops;

/* Queues a call of fn, which does the work of a kernel. Its failure is one of the stream's device,
 * which check() reports once. */
typedef tsr_status deferred_fn(void *arg);
void deferred_call(tsri_stream *stream, const tsri_kernel *kernel, deferred_fn *fn, void *arg);
/* Called before a kernel is destroyed: executes the work in its stream, and drops the kernel's
 * failure. */
void deferred_forget(tsri_stream *stream, const tsri_kernel *kernel);
/* Only in a queued call: where `bytes` bytes of some device are in memory. NULL, which counts as a
 * fault, if no open device has them. */
char *deferred_reach(const void *p, size_t bytes);

/* After all devices are closed: what they were misused for (work on memory of no open device, waits
 * for events that were destroyed) and what of them was not given back (streams, events, opened
 * regions). Then forgets all. */
typedef struct deferred_report {
    int faults, left;
    int64_t works; /* that were done */
    char first[160];
} deferred_report;
deferred_report deferred_finish(void);

#endif
