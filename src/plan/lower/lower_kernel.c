/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of lowering that single kernels and chains share. */
#include <stdlib.h>
#include <string.h>

#include "src/plan/lower/lower.h"

tsri_arg tsri_plan_arg(const tsri_value *v)
{
    tsri_arg a = {.dtype = v->dtype, .ndim = v->shape.ndim};
    int order[TSR_MAX_NDIM];
    tsri_physical_order(v, order);
    int64_t stride = 1;
    for (int i = a.ndim - 1; i >= 0; i--) {
        a.stride[order[i]] = stride;
        stride *= v->lshape.d[order[i]] > 0 ? v->lshape.d[order[i]] : 1;
    }
    for (int i = 0; i < a.ndim; i++) {
        a.shape[i] = v->lshape.d[i];
        a.gshape[i] = v->shape.d[i];
        a.offset[i] = v->offset[i];
    }
    return a;
}

tsri_kernel_desc tsri_lower_desc(const tsr_plan *plan, const tsri_item *it)
{
    tsri_kernel_desc d = {.op = it->kernel.op,
                          .attrs = &it->kernel.attrs,
                          .nin = it->nin,
                          .nout = it->nout,
                          .groups = it->kernel.groups};
    d.stream = plan->part[tsr_placement_device(it->placement)].device->stream;
    for (int i = 0; i < it->nin; i++)
        d.in[i] = tsri_plan_arg(&plan->values[it->in[i]]);
    for (int i = 0; i < it->nout; i++)
        d.out[i] = tsri_plan_arg(&plan->values[it->out[i]]);
    return d;
}

tsr_status tsri_lower_ports(tsr_plan *plan, tsri_step *step, int nin, int nout)
{
    step->in = tsri_pool_alloc(&plan->pool, (size_t)nin * sizeof *step->in);
    step->out = tsri_pool_alloc(&plan->pool, (size_t)nout * sizeof *step->out);
    return step->in && step->out ? TSR_OK : TSR_ERR_NO_MEMORY;
}

tsr_status tsri_lower_fail(tsr_status status, const tsri_item *it)
{
    return tsri_fail_prefix(status, "%s:%d: %s%s%s", tsri_basename(it->loc.file), it->loc.line,
                            tsri_op_word(it->kernel.op, &it->kernel.attrs), it->name[0] ? " " : "",
                            it->name);
}

void tsri_lower_took(tsr_plan *plan, tsri_item *it, const char *impl, size_t scratch)
{
    tsri_part *part = &plan->part[tsr_placement_device(it->placement)];
    it->kernel.impl = impl;
    it->kernel.scratch = scratch;
    if (scratch > part->scratch_bytes)
        part->scratch_bytes = scratch;
    const char *verbose = getenv("TESSERA_VERBOSE");
    if (verbose && strstr(verbose, "dispatch"))
        tsri_log(plan->world, TSR_LOG_INFO, "dispatch: %s %s -> %s",
                 tsri_op_title(it->kernel.op, &it->kernel.attrs), it->name, impl);
}
