/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LAMB (You et al. 2020): Adam's step and the weight decay, scaled for each parameter by its norm
 * over the norm of that step. The step is an update by Adam of what decays, and the parameter moves
 * by an update of SGD whose gradient is the step and whose scale is that of the norms.
 *
 * On GPUs all parameters come to each stage before any comes to the next, so that lowering joins
 * their kernels. That holds the steps of all parameters at once; on CPUs one parameter follows
 * the other.
 */
#include "placement/placement.h"
#include "src/optim/clip.h"
#include "src/optim/update.h"

/* Runs a stage of one update, in the scope of its parameter. */
typedef void stage_fn(tsri_applying *a, tsri_lamb *u);

/* Declares the tensors that updates of one class, placement and dtype share. */
static void begin_shared(tsri_applying *a, tsri_lamb *u)
{
    const tsri_loc loc = a->c.loc;
    tsr_graph *g = a->c.g;
    const tsr_placement *p = u->value->placement;
    tsr_tensor *numbers = tsri_update_numbers(a, u->slot, TSRI_HYPER_LAMB);
    u->decay = tsri_update_number(a, numbers, TSRI_HYPER_LAMB_DECAY, u->value->dtype);
    u->parts = tsri_update_parts(a, numbers);
    u->zero = tsri_make_fill(g, TSR_SCALAR, TSR_F64, p, 0, loc);
    u->one = tsri_make_fill(g, TSR_SCALAR, TSR_F64, p, 1, loc);
}

static void begin(tsri_applying *a, tsri_lamb *u)
{
    const tsri_lamb *like = u->like;
    if (!like) {
        begin_shared(a, u);
    } else {
        u->decay = like->decay;
        u->parts = like->parts;
        u->zero = like->zero;
        u->one = like->one;
    }
    u->step = tsr_mul_at(u->value, u->decay, a->c.loc.file, a->c.loc.line);
}

static void add_step(tsri_applying *a, tsri_lamb *u)
{
    tsr_tensor *numbers = tsri_update_numbers(a, u->slot, TSRI_HYPER_UPDATE);
    const tsri_op *op = tsri_update_add(a, TSRI_OP_ADAM, u->slot, u->step, u->grad, numbers);
    u->step = op ? op->out[0] : &a->c.g->failure.tensor;
}

static void measure(tsri_applying *a, tsri_lamb *u)
{
    u->size = tsri_make_squares(&a->c, u->value);
    u->far = tsri_make_squares(&a->c, u->step);
}

/* The scale of the step: the norms' ratio, and 1 where either is 0. */
static void weigh(tsri_applying *a, tsri_lamb *u)
{
    const char *file = a->c.loc.file;
    const int line = a->c.loc.line;
    tsr_tensor *ratio = tsr_sqrt_at(tsr_div_at(u->size, u->far, file, line), file, line);
    tsr_tensor *both =
        tsr_greater_at(tsr_minimum_at(u->size, u->far, file, line), u->zero, file, line);
    u->numbers = tsri_update_join(a, &u->parts, tsr_where_at(both, ratio, u->one, file, line));
}

static void move(tsri_applying *a, tsri_lamb *u)
{
    tsr_graph *g = a->c.g;
    tsr_tensor *in[] = {u->value, u->step, u->numbers};
    tsri_op *op = tsri_graph_add_all_like(TSRI_OP_SGD, NULL, 3, in, 1, u->value, a->c.loc);
    if (!op)
        return;
    op->name = u->value->op->name;
    op->backward = true;
    tsri_graph_write(g, op, 0, u->slot->param);
}

static bool run_stage(tsri_applying *a, int n, tsri_lamb *u, stage_fn *stage)
{
    tsr_graph *g = a->c.g;
    const char *scope = g->now.scope;
    for (int i = 0; i < n && g->failure.status == TSR_OK; i++) {
        g->now.scope = u[i].value->op->name;
        stage(a, &u[i]);
    }
    g->now.scope = scope;
    return g->failure.status == TSR_OK;
}

static bool run_stages(tsri_applying *a, int n, tsri_lamb *u)
{
    static stage_fn *const stages[] = {begin, add_step, measure, weigh, move};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        if (!run_stage(a, n, u, stages[i]))
            return false;
    return true;
}

/* Returns the first of n updates that has all in common with u; NULL: there is none. */
static const tsri_lamb *find_like(const tsri_lamb *all, int n, const tsri_lamb *u)
{
    for (int i = 0; i < n; i++)
        if (all[i].slot->class == u->slot->class && all[i].value->dtype == u->value->dtype &&
            all[i].value->placement == u->value->placement)
            return &all[i];
    return NULL;
}

bool tsri_lamb_add(tsri_applying *a, int n, tsri_lamb *u)
{
    bool joins = true;
    for (int i = 0; i < n; i++) {
        u[i].value = tsri_graph_current(a->c.g, u[i].slot->param, a->c.loc);
        if (u[i].value->failed || u[i].grad->failed)
            return false;
        u[i].like = find_like(u, i, &u[i]);
        joins &= tsri_placement_can(u[i].value->placement, TSRI_CAN_JOIN_LAUNCHES);
    }
    if (joins)
        return run_stages(a, n, u);
    for (int i = 0; i < n; i++)
        if (!run_stages(a, 1, &u[i]))
            return false;
    return true;
}
