/* SPDX-License-Identifier: Apache-2.0 */
/* Shards: where they lie in the global value, and the bytes of a variable's. */
#include <string.h>

#include "kernels/device.h"
#include "placement/placement.h"
#include "src/graph/variable.h"

void tsri_shard(tsr_dims shape, const tsr_placement *p, tsr_sbp sbp, int rank, tsr_dims *out_shape,
                int64_t *out_offset)
{
    const int at = tsr_placement_find(p, rank);
    const tsri_mesh mesh = tsri_mesh_of(p);
    const tsri_layout layout = tsri_layout_of(&mesh, sbp);
    memset(out_offset, 0, TSR_MAX_NDIM * sizeof *out_offset);
    *out_shape = (tsr_dims){.ndim = shape.ndim};
    if (at >= 0)
        tsri_layout_part(shape, &mesh, &layout, at, out_offset, out_shape);
}

int64_t tsri_shard_runs(tsr_dims shape, tsr_dims lshape, int64_t *out_runs)
{
    /* Trailing axes that are whole join with the one before them. */
    int axis = shape.ndim - 1;
    int64_t length = 1, runs = 1;
    for (; axis >= 0; axis--) {
        length *= lshape.d[axis];
        if (lshape.d[axis] != shape.d[axis])
            break;
    }
    for (int i = 0; i < axis; i++)
        runs *= lshape.d[i];
    *out_runs = length ? runs : 0;
    return length;
}

int64_t tsri_shard_run_at(tsr_dims shape, tsr_dims lshape, const int64_t *offset, int64_t i)
{
    int64_t at = 0, stride = 1;
    int axis = shape.ndim - 1;
    for (; axis >= 0; axis--) {
        at += offset[axis] * stride;
        stride *= shape.d[axis];
        if (lshape.d[axis] != shape.d[axis])
            break;
    }
    for (axis--; axis >= 0; axis--) {
        at += (offset[axis] + i % lshape.d[axis]) * stride;
        i /= lshape.d[axis];
        stride *= shape.d[axis];
    }
    return at;
}

void tsri_variable_wrote(tsr_variable *v)
{
    v->version = ++v->world->writes;
}

tsr_status tsri_variable_write(tsr_variable *v, size_t at, const void *from, size_t bytes)
{
    if (!v->data || !bytes)
        return TSR_OK;
    tsri_variable_wrote(v);
    return v->device->ops->copy_in(v->device, (char *)v->data + at, from, bytes, v->device->stream);
}

tsr_status tsri_variable_read(const tsr_variable *v, size_t at, void *to, size_t bytes)
{
    if (!v->data || !bytes)
        return TSR_OK;
    return v->device->ops->copy_out(v->device, to, (const char *)v->data + at, bytes,
                                    v->device->stream);
}
