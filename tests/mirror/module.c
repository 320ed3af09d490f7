/* SPDX-License-Identifier: Apache-2.0 */
/* The mirror's module: its entry point, and opening and closing its devices. */
#include "kernels/module.h"
#include "tests/mirror/deferred_device.h"
#include "tests/mirror/module.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((visibility("default"))) tsri_module_entry_fn mirror_module;

static tsri_device_ops ops;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int nopen; /* devices; under the lock */

static unsigned long number(const char *variable, unsigned long otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? strtoul(text, NULL, 10) : otherwise;
}

/* --- planted faults --------------------------------------------------------------------------- */

static tsr_status wait_for_nothing(tsri_device *d, tsri_stream *stream, tsri_event *event)
{
    (void)d;
    (void)stream;
    (void)event;
    return TSR_OK;
}

static tsr_status copy_out_early(tsri_device *d, void *host_dst, const void *src, size_t bytes,
                                 tsri_stream *stream)
{
    tsri_stream *empty;
    TSRI_TRY(d->ops->stream_create(d, &empty));
    tsr_status status = deferred_ops.copy_out(d, host_dst, src, bytes, empty);
    d->ops->stream_destroy(d, empty);
    (void)stream;
    return status;
}

/* --- devices ---------------------------------------------------------------------------------- */

/* Closing the last device ends the process if the devices were misused. */
static void close_device(tsri_device *d)
{
    deferred_ops.close(d);
    pthread_mutex_lock(&lock);
    deferred_report report = --nopen ? (deferred_report){0} : deferred_finish();
    pthread_mutex_unlock(&lock);
    if (report.faults || report.left) {
        fprintf(stderr, "the mirror: %d faults (%s), %d things not given back\n", report.faults,
                report.first, report.left);
        abort();
    }
}

static tsr_status open_device(tsr_world *world, tsri_device **out_device)
{
    pthread_mutex_lock(&lock);
    if (nopen == 0)
        deferred_set(number("MIRROR_SEED", 1), (int)number("MIRROR_EAGER", 0));
    tsr_status status = deferred_open(world, number("MIRROR_BYTES", 4 << 20), out_device);
    if (status == TSR_OK) {
        nopen++;
        (*out_device)->ops = &ops;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static tsr_status list_devices(int most, tsri_module_gpu *out_gpus, int *out_n)
{
    if (most > 0)
        out_gpus[0] = (tsri_module_gpu){.name = "mirror", .id = "mirror"};
    *out_n = 1;
    return TSR_OK;
}

const tsri_module *mirror_module(const tsri_module_host *host)
{
    static const tsri_module module = {
        .size = sizeof module,
        .abi = TSRI_MODULE_ABI,
        .versions = "mirror",
        .gpus = list_devices,
        .device_open = open_device,
    };
    const char *fault = getenv("MIRROR_FAULT");
    if (!tsri_host_set(host))
        return NULL;
    ops = deferred_ops;
    ops.name = "mirror";
    ops.kernels = mirror_kernels;
    ops.close = close_device;
    if (fault && !strcmp(fault, "wait"))
        ops.event_wait = wait_for_nothing;
    if (fault && !strcmp(fault, "sync"))
        ops.copy_out = copy_out_early;
    return &module;
}
