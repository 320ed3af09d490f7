/* SPDX-License-Identifier: Apache-2.0 */
/* The errors of an id or a label that is outside its axis. */
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

bool tsri_label_is_ignored(const tsri_kernel_desc *desc, int64_t label)
{
    return desc->attrs->ce.has_ignore && label == desc->attrs->ce.ignore_index;
}

tsr_status tsri_check_label(const tsri_kernel_desc *desc, int64_t i, int64_t label)
{
    const tsri_arg *x = &desc->in[0];
    if (tsri_label_is_ignored(desc, label) || (label >= 0 && label < x->gshape[1]))
        return TSR_OK;
    return tsri_fail(TSR_ERR_INVALID,
                     "%s: label %lld of row %lld is not a class: 0 <= label < %lld",
                     tsri_op_name(desc->op), (long long)label, (long long)(x->offset[0] + i),
                     (long long)x->gshape[1]);
}
