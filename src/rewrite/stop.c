/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TSR_NAN_STOP where the host sees a loss only when it is fetched: updates are left out of a step
 * with a loss that is not finite, as they are after gradients that a loss scaler finds so. To the
 * numbers of an update a vector is added which has infinity at the place that leaves it out, or 0.
 */
#include <string.h>

#include "placement/placement.h"
#include "src/graph/op.h"
#include "src/rewrite/rewrite.h"

/* Ops that were declared for one update's numbers. */
typedef struct insertion {
    int before; /* the declared op that they are placed before */
    int begin, end;
} insertion;

/* The declared losses before an op of which at least one is out of the host's memory. */
static int find_losses(tsr_graph *g, int before, tsr_tensor **out_losses)
{
    int n = 0;
    bool away = false;
    for (int i = 0; i < before; i++)
        for (int j = 0; j < g->ops[i]->nout; j++)
            if (g->ops[i]->out[j]->is_loss) {
                away |= !tsri_placement_can(g->ops[i]->placement, TSRI_CAN_HOST_MEMORY);
                out_losses[n++] = g->ops[i]->out[j];
            }
    return away ? n : 0;
}

/* Returns x on a placement, in the signature that is cheapest. */
static tsr_tensor *bring(tsr_tensor *x, const tsr_placement *p, tsri_loc loc)
{
    if (x->placement == p)
        return x;
    const tsri_op *op = tsri_graph_append(x->graph, TSRI_OP_TO_GLOBAL, NULL, 1, &x, 1, &x->shape,
                                          &x->dtype, p, loc);
    return op ? op->out[0] : &x->graph->failure.tensor;
}

/* Returns `numbers` with infinity added at element `at` if a loss is not finite. */
static tsr_tensor *add_fault(tsr_tensor *numbers, int at, int n, tsr_tensor *const *losses)
{
    const tsri_loc loc = numbers->op->loc;
    for (int i = 0; i < n; i++) {
        tsri_attrs pad = {0};
        const tsri_attrs add = {.binary.fn = TSRI_BINARY_ADD};
        tsr_tensor *fault = tsri_make_cast(tsri_make_fault(losses[i], false, loc), TSR_F64, loc);
        tsr_tensor *in[2] = {numbers, NULL};
        for (int d = 0; d < TSR_MAX_NDIM; d++)
            pad.slice.step[d] = 1;
        pad.slice.start[0] = at;
        fault = bring(fault, numbers->placement, loc);
        in[1] = tsri_graph_add_like(TSRI_OP_PAD, &pad, 1, &fault, numbers, loc);
        numbers = tsri_graph_add_like(TSRI_OP_BINARY, &add, 2, in, numbers, loc);
    }
    return numbers;
}

/* The first op that has a tensor as an operand; `end`: none has. */
static int first_consumer(const tsr_graph *g, const tsr_tensor *t, int end)
{
    for (int i = t->op->id + 1; i < end; i++)
        for (int j = 0; j < g->ops[i]->nin; j++)
            if (g->ops[i]->in[j] == t)
                return i;
    return end;
}

/* Declares the numbers that an update takes in place of those of a variable. */
static tsr_status replace_numbers(tsr_graph *g, tsr_tensor *numbers, int declared,
                                  tsr_tensor **losses, insertion *out)
{
    const tsri_op *variable = numbers->op;
    out->before = first_consumer(g, numbers, declared);
    const int n = out->before < declared ? find_losses(g, out->before, losses) : 0;
    out->begin = out->end = g->nops;
    if (!n)
        return TSR_OK;
    tsr_tensor *joined = add_fault(numbers, variable->variable->leaves_out - 1, n, losses);
    TSRI_TRY(tsri_graph_status(g));
    const tsri_op *like = g->ops[out->before];
    for (out->end = out->begin; out->end < g->nops; out->end++) {
        tsri_op *op = g->ops[out->end];
        op->backward = like->backward;
        op->name = like->name;
        op->label = like->label;
        op->region = 0;
        op->origin = op->id; /* of no declared op: the rewrite changes its own number */
        op->out[0]->origin = op->out[0]->id;
    }
    for (int i = out->before; i < declared; i++)
        for (int j = 0; j < g->ops[i]->nin; j++)
            if (g->ops[i]->in[j] == numbers)
                g->ops[i]->in[j] = joined;
    return TSR_OK;
}

/* Moves the ops that were declared to their places. */
static tsr_status put(tsr_graph *g, int declared, const insertion *list, int n)
{
    tsri_op **old = tsri_pool_dup(&g->pool, g->ops, (size_t)g->nops * sizeof(tsri_op *));
    TSRI_NEED(old);
    g->nops = 0;
    for (int i = 0; i < declared; i++) {
        for (int k = 0; k < n; k++)
            for (int o = list[k].begin; o < list[k].end && list[k].before == i; o++)
                g->ops[g->nops++] = old[o];
        g->ops[g->nops++] = old[i];
    }
    for (int i = 0; i < g->nops; i++)
        g->ops[i]->id = i;
    return TSR_OK;
}

tsr_status tsri_rewrite_stop(tsr_graph *copy)
{
    const int declared = copy->nops;
    int n = 0;
    /* A rank's own loss says nothing of gradients that ranks add up. */
    if (!copy->step.stops || (copy->local && copy->world->nranks > 1))
        return TSR_OK;
    insertion *list = tsri_pool_alloc(&copy->pool, (size_t)declared * sizeof *list);
    tsr_tensor **losses =
        tsri_pool_alloc(&copy->pool, (size_t)copy->ntensors * sizeof(tsr_tensor *));
    TSRI_NEED(list && losses);
    copy->now.only_if = NULL;
    for (int i = 0; i < declared; i++) {
        const tsri_op *op = copy->ops[i];
        if (op->kind == TSRI_OP_VARIABLE && op->variable->leaves_out)
            TSRI_TRY(replace_numbers(copy, op->out[0], declared, losses, &list[n++]));
    }
    return put(copy, declared, list, n);
}
