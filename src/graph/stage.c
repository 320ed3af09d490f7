/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stages of a pipeline during declaration: the stage of an op, and the conversions of its operands
 * to that stage. tsr_module_stage gives a module its stage. An op is in the stage of the innermost
 * module that is applied, else in the latest of its operands' stages; constants and inputs have
 * none and move to the stages of their consumers.
 */
#include "src/graph/stage.h"

static tsr_tensor *copy_at(tsri_stage stage, tsr_tensor *x, tsri_loc loc)
{
    tsr_graph *g = x->graph;
    for (tsr_tensor *c = x->copies; c; c = c->next_copy)
        if (c->placement == stage.placement)
            return c;
    tsri_op *op = tsri_graph_append(g, TSRI_OP_TO_GLOBAL, NULL, 1, &x, 1, &x->shape, &x->dtype,
                                    stage.placement, loc);
    if (!op)
        return &g->failure.tensor;
    op->stage = stage.number;
    op->region = 0; /* other regions may read it; a send is not worth repeating */
    if (x->op->kind == TSRI_OP_VARIABLE)
        op->name = x->op->name;
    /* A value that the open call has not rounded yet goes there unrounded, if that is asked for. */
    op->out[0]->call = x->call && x->call == g->now.call ? x->call : 0;
    op->out[0]->moved = x->moved;
    op->out[0]->next_copy = x->copies;
    return x->copies = op->out[0];
}

bool tsri_stage_gather(tsri_stage stage, int n, tsr_tensor *const *x, tsr_tensor **out,
                       tsri_loc loc)
{
    bool ok = true;
    for (int i = 0; i < n; i++) {
        out[i] = x[i]->placement == stage.placement ? x[i] : copy_at(stage, x[i], loc);
        ok &= !out[i]->failed;
    }
    return ok;
}

int tsri_stage_at(const tsr_graph *g, const tsr_placement *p, int from)
{
    int next = 0, last = 0;
    for (int i = 0; i < g->now.nstages; i++) {
        const tsri_stage s = g->now.stages[i];
        if (s.placement != p)
            continue;
        next = s.number >= from && (!next || s.number < next) ? s.number : next;
        last = s.number > last ? s.number : last;
    }
    return next ? next : last;
}
