/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's devices, of every kind. */
#include "kernels/device.h"

static void close_device(void *object)
{
    tsri_device *d = object;
    d->ops->close(d);
}

tsr_status tsri_device_get(tsr_world *world, tsr_device kind, tsri_device **out_device)
{
    const tsri_target *target = tsri_target_of(kind);
    if (!target)
        return tsri_fail(TSR_ERR_INVALID, "no such device type: %d", (int)kind);
    tsri_device *d = world->devices[kind];
    if (!d) {
        TSRI_TRY(target->module ? tsri_device_open_module(world, kind, &d)
                                : tsri_device_open_cpu(world, &d));
        d->kind = kind;
        /* Behind all that is owned already, which may still hold its buffers. */
        tsri_world_own_last(world, &d->owned, d, close_device);
        world->devices[kind] = d;
    }
    *out_device = d;
    return TSR_OK;
}
