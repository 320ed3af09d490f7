/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TSR_NAN_STOP on devices, where the host sees a loss only when it fetches it: a step with a loss
 * that is not finite changes no parameter, as after a loss scaler has found such gradients. A
 * vector is added to the numbers of an update: infinity at the element that leaves the update out
 * if a loss is not finite, else zeros.
 */
#include "placement/placement.h"
#include "src/graph/op.h"
#include "src/rewrite/rewrite.h"

/* Ops that were declared, and the declared op that they are placed before. */
typedef struct insertion {
    int before, begin, end;
} insertion;

/* The numbers of an update, and the tensor that replaces them. */
typedef struct replacement {
    tsr_tensor *from, *to;
} replacement;

typedef struct stopper {
    tsr_graph *g;
    int declared;
    bool *follows;      /* per tensor: a number that is computed from a loss */
    tsr_tensor **fault; /* per tensor: of a loss, infinity if it is not finite, else 0; or NULL */
    tsr_tensor **losses;
    insertion *list;
    replacement *replaced;
    int n, nreplaced;
} stopper;

/* Lists the losses that are declared before an op, without those that are computed from others, and
 * returns how many; 0 if the host's memory has them all. */
static int find_losses(const stopper *s, int before)
{
    int n = 0;
    bool away = false;
    for (int i = 0; i < before; i++) {
        const tsri_op *op = s->g->ops[i];
        bool follows = false;
        for (int j = 0; j < op->nin; j++)
            follows |= op->in[j]->is_loss || s->follows[op->in[j]->id];
        for (int j = 0; j < op->nout; j++) {
            tsr_tensor *t = op->out[j];
            s->follows[t->id] = follows && tsr_dims_count(t->shape) == 1;
            if (!t->is_loss || follows)
                continue;
            away |= !tsri_placement_can(op->placement, TSRI_CAN_HOST_MEMORY);
            s->losses[n++] = t;
        }
    }
    return away ? n : 0;
}

/* Notes the ops that were declared since there were `begin` of them; they are named as `like` is.
 */
static void note(stopper *s, int before, int begin, const tsri_op *like)
{
    s->list[s->n++] = (insertion){before, begin, s->g->nops};
    for (int i = begin; i < s->g->nops; i++) {
        tsri_op *op = s->g->ops[i];
        op->backward = like->backward;
        op->name = like->name;
        op->label = like->label;
        op->region = 0;
    }
}

/* Returns the fault of a loss, which is computed directly after it. */
static tsr_tensor *fault_of(stopper *s, tsr_tensor *loss)
{
    const tsri_op *op = loss->op;
    const int begin = s->g->nops;
    tsr_tensor **fault = &s->fault[loss->id];
    if (!*fault) {
        *fault = tsri_make_cast(tsri_make_fault(loss, false, op->loc), TSR_F64, op->loc);
        note(s, op->id + 1, begin, op);
    }
    return *fault;
}

/* Returns x on a placement, in a signature that inference chooses. */
static tsr_tensor *bring(tsr_tensor *x, const tsr_placement *p, tsri_loc loc)
{
    if (x->placement == p || x->failed)
        return x;
    const tsri_op *op = tsri_graph_append(x->graph, TSRI_OP_TO_GLOBAL, NULL, 1, &x, 1, &x->shape,
                                          &x->dtype, p, loc);
    return op ? op->out[0] : &x->graph->failure.tensor;
}

/* Returns `numbers`, which are of `variable`, with a fault added at the element that leaves the
 * update out. */
static tsr_tensor *add_fault(tsr_tensor *numbers, const tsr_variable *variable, tsr_tensor *fault)
{
    const tsri_loc loc = numbers->op->loc;
    const tsri_attrs add = {.binary.fn = TSRI_BINARY_ADD};
    tsri_attrs pad = {0};
    fault = bring(fault, numbers->placement, loc);
    for (int d = 0; d < TSR_MAX_NDIM; d++)
        pad.slice.step[d] = 1;
    pad.slice.start[0] = variable->leaves_out - 1;
    tsr_tensor *in[2] = {numbers, tsri_graph_add_like(TSRI_OP_PAD, &pad, 1, &fault, numbers, loc)};
    return tsri_graph_add_like(TSRI_OP_BINARY, &add, 2, in, numbers, loc);
}

/* The first declared op that has a tensor as an operand; s->declared: none has. */
static int first_consumer(const stopper *s, const tsr_tensor *t)
{
    for (int i = t->op->id + 1; i < s->declared; i++)
        for (int j = 0; j < s->g->ops[i]->nin; j++)
            if (s->g->ops[i]->in[j] == t)
                return i;
    return s->declared;
}

/* Declares the tensor that replaces the numbers of an update. */
static tsr_status join(stopper *s, tsr_tensor *numbers)
{
    tsr_graph *g = s->g;
    const int before = first_consumer(s, numbers);
    const int n = before < s->declared ? find_losses(s, before) : 0;
    tsr_tensor *joined = numbers;
    for (int i = 0; i < n; i++)
        fault_of(s, s->losses[i]);
    const int begin = g->nops;
    for (int i = 0; i < n; i++)
        joined = add_fault(joined, numbers->op->variable, s->fault[s->losses[i]->id]);
    TSRI_TRY(tsri_graph_status(g));
    if (n > 0) {
        note(s, before, begin, g->ops[before]);
        s->replaced[s->nreplaced++] = (replacement){numbers, joined};
    }
    return TSR_OK;
}

/* Moves the new ops to their places, and lets the updates consume their results. */
static tsr_status put(const stopper *s)
{
    tsr_graph *g = s->g;
    tsri_op **old = tsri_pool_dup(&g->pool, g->ops, (size_t)g->nops * sizeof(tsri_op *));
    TSRI_NEED(old);
    g->nops = 0;
    for (int i = 0; i < s->declared; i++) {
        for (int k = 0; k < s->n; k++)
            for (int o = s->list[k].begin; o < s->list[k].end && s->list[k].before == i; o++)
                g->ops[g->nops++] = old[o];
        g->ops[g->nops++] = old[i];
    }
    for (int i = 0; i < g->nops; i++)
        g->ops[i]->id = i;
    for (int k = 0; k < s->nreplaced; k++)
        TSRI_TRY(tsri_rewrite_replace(g, s->replaced[k].from, s->replaced[k].to));
    return TSR_OK;
}

tsr_status tsri_rewrite_stop(tsr_graph *copy)
{
    stopper s = {.g = copy, .declared = copy->nops};
    const size_t ntensors = (size_t)copy->ntensors;
    /* A rank's own loss says nothing of gradients that ranks add up. */
    if (!copy->step.stops || (copy->local && copy->world->nranks > 1))
        return TSR_OK;
    s.follows = tsri_pool_alloc(&copy->pool, ntensors * sizeof *s.follows);
    s.losses = tsri_pool_alloc(&copy->pool, ntensors * sizeof(tsr_tensor *));
    s.fault = tsri_pool_alloc(&copy->pool, ntensors * sizeof(tsr_tensor *));
    s.list = tsri_pool_alloc(&copy->pool, (ntensors + (size_t)s.declared) * sizeof *s.list);
    s.replaced = tsri_pool_alloc(&copy->pool, (size_t)s.declared * sizeof *s.replaced);
    TSRI_NEED(s.follows && s.losses && s.fault && s.list && s.replaced);
    copy->now.only_if = NULL;
    for (int i = 0; i < s.declared; i++) {
        const tsri_op *op = copy->ops[i];
        if (op->kind == TSRI_OP_VARIABLE && op->variable->leaves_out)
            TSRI_TRY(join(&s, op->out[0]));
    }
    return s.n ? put(&s) : TSR_OK;
}
