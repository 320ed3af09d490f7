/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU as a device: its memory is the rank's region of the shared arena; nothing is deferred. */
#include <string.h>

#include "kernels/device.h"

static void close_cpu(tsri_device *d)
{
    tsri_mem_free(d);
}

static tsr_status buffer_alloc(tsri_device *d, size_t bytes, void **out_ptr)
{
    TSRI_TRY(tsri_region_alloc(&d->world->region, bytes, out_ptr));
    memset(*out_ptr, 0, bytes);
    return TSR_OK;
}

static void buffer_free(tsri_device *d, void *ptr, size_t bytes)
{
    if (ptr)
        tsri_region_free(&d->world->region, ptr, bytes);
}

static tsr_status plan_block(tsri_device *d, size_t bytes, void **out_base)
{
    TSRI_TRY(tsri_region_reserve_plan(&d->world->region, bytes));
    *out_base = d->world->region.base;
    return TSR_OK;
}

static tsr_status copy(tsri_device *d, void *dst, const void *src, size_t bytes,
                       tsri_stream *stream)
{
    (void)d;
    (void)stream;
    if (bytes)
        memcpy(dst, src, bytes);
    return TSR_OK;
}

static const tsri_device_ops cpu_ops = {
    .size = sizeof(tsri_device_ops),
    .name = "cpu",
    .close = close_cpu,
    .buffer_alloc = buffer_alloc,
    .buffer_free = buffer_free,
    .plan_block = plan_block,
    .copy_in = copy,
    .copy_out = copy,
    .kernels = tsri_kernels_cpu,
};

tsr_status tsri_device_open_cpu(tsr_world *world, tsri_device **out_device)
{
    tsri_device *d = tsri_mem_alloc(&world->mem, sizeof *d);
    TSRI_NEED(d);
    d->ops = &cpu_ops;
    d->world = world;
    d->region = &world->region;
    *out_device = d;
    return TSR_OK;
}
