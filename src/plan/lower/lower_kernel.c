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

uint32_t tsri_lower_fixed(const tsr_plan *plan, const tsri_item *it)
{
    uint32_t bits = 0;
    for (int i = 0; i < it->nin; i++) {
        const tsri_value *v = &plan->ir.values[tsri_ir_root(&plan->ir, it->in[i])];
        bits |= (uint32_t)(v->storage == TSRI_STORAGE_VARIABLE && v->source && v->fixed) << i;
    }
    /* A kernel packs immediately, so the host must see the memory. */
    const bool keeps = tsri_placement_can(it->placement, TSRI_CAN_HOST_MEMORY) &&
                       tsri_plan_fuses(&plan->ir, TSR_FUSE_KEPT) && !plan->ir.opts.memory_limit;
    return keeps ? bits : 0;
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
        d.in[i] = tsri_plan_arg(&plan->ir.values[it->in[i]]);
    for (int i = 0; i < it->nout; i++)
        d.out[i] = tsri_plan_arg(&plan->ir.values[it->out[i]]);
    return d;
}

tsr_status tsri_lower_ports(tsr_plan *plan, tsri_step *step, int nin, int nout)
{
    step->in = tsri_pool_alloc(&plan->pool, (size_t)nin * sizeof *step->in);
    step->out = tsri_pool_alloc(&plan->pool, (size_t)nout * sizeof *step->out);
    return step->in && step->out ? TSR_OK : TSR_ERR_NO_MEMORY;
}

tsr_status tsri_item_fail(tsr_status status, const tsri_item *it)
{
    tsri_fail_drop_prefix(tsri_op_name(it->kernel.op)); /* kernels begin with it too */
    return tsri_fail_prefix(status, "%s:%d: %s%s%s", tsri_basename(it->loc.file), it->loc.line,
                            tsri_op_word(it->kernel.op, &it->kernel.attrs), it->name[0] ? " " : "",
                            it->name);
}

/* The bytes that GPUs' libraries may work in for an item. A product of cuBLASLt has at most what
 * kernels/cuda/library/lt_algo.c offers, for sums of its parts in f32, of which 32 are many.
 * cuDNN's attention has sums of each row, of gradients two and the queries' gradient in f32
 * (dnn_attention.c). */
static size_t expected_scratch(const tsr_plan *plan, const tsri_item *it)
{
    enum { MOST_OF_PRODUCT = 32 << 20, MOST_PARTS = 32 };
    const tsri_op_def *def = tsri_op_def_of(it->kernel.op);
    if (!def->is_product || !tsri_placement_can(it->placement, TSRI_CAN_USE_WORKSPACE))
        return 0;
    if (!def->is_attention) {
        const int64_t n = tsr_dims_count(plan->ir.values[it->out[0]].lshape);
        const size_t parts = (size_t)n * MOST_PARTS * sizeof(float);
        return parts < MOST_OF_PRODUCT ? parts : MOST_OF_PRODUCT;
    }
    const tsr_dims q = plan->ir.values[it->in[0]].lshape;
    const size_t rows = (size_t)(q.d[0] * q.d[1] * q.d[2]) * sizeof(float);
    return it->nout < 3 ? rows : rows * (2 + (size_t)q.d[3]);
}

void tsri_lower_expect(tsr_plan *plan, tsri_item *it)
{
    tsri_part *part = &plan->part[tsr_placement_device(it->placement)];
    const size_t bytes = it->kind == TSRI_ITEM_KERNEL ? expected_scratch(plan, it) : 0;
    if (bytes > part->scratch_bytes)
        part->scratch_bytes = bytes;
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
        tsri_log(plan->ir.world, TSR_LOG_INFO, "dispatch: %s %s -> %s",
                 tsri_op_title(it->kernel.op, &it->kernel.attrs), it->name, impl);
}
