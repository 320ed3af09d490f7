/* SPDX-License-Identifier: Apache-2.0 */
/* The error of an id that is outside its axis. */
#include "kernels/kernels.h"

tsr_status tsri_check_id(const tsri_kernel_desc *desc, const tsri_arg *ids, int64_t i, int64_t id,
                         int64_t size)
{
    if (id >= 0 && id < size)
        return TSR_OK;
    int64_t at = 0, rest = i, step = 1;
    for (int k = ids->ndim - 1; k >= 0; k--) {
        at += (rest % ids->shape[k] + ids->offset[k]) * step;
        rest /= ids->shape[k];
        step *= ids->gshape[k];
    }
    return tsri_fail(TSR_ERR_INVALID,
                     "%s: id %lld, element %lld of the ids, is not in 0 <= id < %lld",
                     tsri_op_name(desc->op), (long long)id, (long long)at, (long long)size);
}
