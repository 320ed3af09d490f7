/* SPDX-License-Identifier: Apache-2.0 */
#include "src/rewrite/rewrite.h"

tsr_status tsri_rewrite_replace(tsr_graph *copy, const tsr_tensor *from, tsr_tensor *to)
{
    if (!tsr_dims_equal(from->shape, to->shape) || from->dtype != to->dtype ||
        from->placement != to->placement)
        return tsri_fail(TSR_ERR_INTERNAL,
                         "tensor %d can't replace tensor %d, which has another shape, dtype or "
                         "placement",
                         to->id, from->id);
    for (int i = to->op->id + 1; i < copy->nops; i++) {
        tsri_op *op = copy->ops[i];
        for (int j = 0; j < op->nin; j++)
            if (op->in[j] == from)
                op->in[j] = to;
    }
    return TSR_OK;
}
