/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the ranks of local graphs, whose placements are each its own: an all-reduce where the
 * program has it, in the critical lane, so that their order is the program's. */
#include "src/plan/pass/pass.h"

int tsri_plan_farthest(const tsri_ir *ir, const int *ranks, int n)
{
    int farthest = 0;
    for (int i = 1; i < n; i++) {
        int l = tsri_link_between(&ir->model, ranks[0], ranks[i]);
        farthest = l > farthest ? l : farthest;
    }
    return farthest;
}

tsr_status tsri_plan_build_rank_sum(tsri_ir *ir, const tsri_op *op, const int *in, const int *out)
{
    const int *ranks = op->attrs.rank_sum.ranks;
    int n = op->attrs.rank_sum.nranks;
    double bytes = 0;
    tsri_item item = {
        .kind = TSRI_ITEM_COLLECTIVE,
        .nin = op->nin,
        .nout = op->nout,
        .placement = op->placement,
        .name = tsri_op_called(op),
        .loc = op->loc,
        .backward = op->backward,
        .box = {.step = {.kind = TSRI_BOX_ALL_REDUCE, .op = TSR_REDUCE_SUM},
                .from = op->placement,
                .reason = "a sum over the ranks of local graphs",
                .nranks = n,
                .group = op->attrs.rank_sum.group,
                .ranks = tsri_pool_dup(&ir->program, ranks, (size_t)n * sizeof *ranks)}};
    TSRI_NEED(item.box.ranks);
    for (int i = 0; i < op->nin; i++)
        bytes +=
            (double)tsr_dims_count(op->in[i]->shape) * (double)tsr_dtype_size(op->in[i]->dtype);
    int far = tsri_plan_farthest(ir, ranks, n);
    const tsri_link *link = &ir->model.link[far];
    bool two = item.box.step.two_phase = tsri_two_phase(link, bytes, n);
    double read = two ? 2 * bytes * (n - 1) / n : bytes * (n - 1);
    item.box.step.from = item.box.step.to = ir->values[in[0]].layout;
    item.box.step.bytes = (int64_t)read;
    item.cost_s = item.box.step.cost_s = (1 + two) * link->latency_s + read / link->bytes_per_s;
    return tsri_ir_add_item(ir, &item, in, out) ? TSR_OK : TSR_ERR_NO_MEMORY;
}
