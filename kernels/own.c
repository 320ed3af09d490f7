/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/own.h"

#include <string.h>

static bool is_row(const tsri_arg *a)
{
    int64_t stride = 1;
    for (int i = a->ndim - 1; i >= 0; i--) {
        if (a->shape[i] > 1 && a->stride[i] != stride)
            return false;
        stride *= a->shape[i] > 0 ? a->shape[i] : 1;
    }
    return true;
}

static tsr_op_buffer make_buffer(const tsri_arg *a)
{
    tsr_op_buffer b = {.dtype = a->dtype, .shape.ndim = a->ndim, .global.ndim = a->ndim};
    memcpy(b.shape.d, a->shape, sizeof a->shape);
    memcpy(b.global.d, a->gshape, sizeof a->gshape);
    memcpy(b.offset, a->offset, sizeof a->offset);
    return b;
}

tsr_status tsri_own_prepare(const tsri_kernel_desc *desc, bool cuda, tsri_own_call *c)
{
    const tsr_op_def *d = &desc->attrs->own.op->def;
    const bool backward = desc->op == TSRI_OP_OWN_BACKWARD;
    *c = (tsri_own_call){.op = desc->attrs->own.op,
                         .backward = backward,
                         .nin = desc->nin,
                         .nout = desc->nout,
                         .want = desc->attrs->own.want};
    c->fn = cuda ? (backward ? d->backward_cuda : d->forward_cuda)
                 : (backward ? d->backward : d->forward);
    if (!c->fn)
        return tsri_fail(TSR_ERR_UNSUPPORTED, "op '%s' has no %s%s function", d->name,
                         backward ? "backward" : "forward", cuda ? "_cuda" : "");
    memcpy(c->option, desc->attrs->own.option, sizeof c->option);
    bool rows = true;
    for (int i = 0; i < desc->nin; i++) {
        rows &= is_row(&desc->in[i]);
        c->in[i] = make_buffer(&desc->in[i]);
    }
    for (int i = 0; i < desc->nout; i++) {
        rows &= is_row(&desc->out[i]);
        c->out[i] = make_buffer(&desc->out[i]);
        c->works |= tsri_arg_count(&desc->out[i]) > 0;
    }
    return rows ? TSR_OK
                : tsri_fail(TSR_ERR_UNSUPPORTED, "op '%s': a buffer is not row-major", d->name);
}

tsr_status tsri_own_run(const tsri_own_call *c, void *const *in, void *const *out, void *stream)
{
    const tsr_op_def *d = &c->op->def;
    tsr_op_buffer x[TSRI_KERNEL_MAX_ARGS], y[TSRI_KERNEL_MAX_ARGS] = {0};
    tsr_op_args a = {.size = sizeof a,
                     .inputs = d->inputs,
                     .outputs = d->outputs,
                     .in = x,
                     .option = c->option,
                     .stream = stream};
    if (!c->works)
        return TSR_OK;
    for (int i = 0; i < c->nin; i++) {
        x[i] = c->in[i];
        x[i].data = in[i];
    }
    if (c->backward) {
        /* Gradients that nobody wants have no buffer. */
        for (int i = 0, j = 0; i < d->inputs; i++)
            if (c->want >> i & 1) {
                y[i] = c->out[j];
                y[i].data = out[j++];
            }
        a.din = y;
        a.dout = x + c->nin - d->outputs;
        if (d->flags & TSR_OP_KEEPS_RESULTS)
            a.out = x + d->inputs;
    } else {
        for (int i = 0; i < c->nout; i++) {
            y[i] = c->out[i];
            y[i].data = out[i];
        }
        a.out = y;
    }
    const tsr_op_buffer none[TSR_OP_MAX_OUTPUTS] = {0};
    if (!a.out)
        a.out = none;
    tsri_error_clear();
    const tsr_status status = c->fn(&a);
    if (status == TSR_OK)
        return TSR_OK;
    const char *name = c->backward ? c->op->backward_name : d->name;
    return tsr_last_error()[0] ? tsri_fail_prefix(status, "%s", name)
                               : tsri_fail(status, "%s: its function fails", name);
}
