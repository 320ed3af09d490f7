/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates on CPUs that need not wait for the whole of backward. Where an update alone reads a
 * gradient, as it is on one rank without clipping, it becomes the last of the chain that makes that
 * gradient, once no other item reads the parameter. Its kernel then takes the gradient as it is
 * made, and the gradient takes no memory that outlives the chain.
 *
 * A gradient that is summed over ranks, scaled, clipped, accumulated, checked or kept has another
 * reader than its update, which stays where it is.
 */
#include <string.h>

#include "src/plan/flow.h"

typedef struct mover {
    tsr_plan *plan;
    tsri_flow flow;
    int *touched; /* per root of values: the last item so far that reads or writes it; -1 */
    bool *talks;  /* per root: a call between ranks reads or writes it, at a time of its own */
    int *behind;  /* per item: the item behind which it goes; -1: it keeps its place */
    int *added;   /* per chain: updates that join it */
    int nchains, any;
} mover;

static tsr_status start(mover *m)
{
    tsr_plan *plan = m->plan;
    const size_t values = (size_t)plan->nvalues, items = (size_t)plan->nitems + 1;
    TSRI_TRY(tsri_flow_find(plan, &plan->scratch, &m->flow));
    m->touched = tsri_pool_alloc(&plan->scratch, values * sizeof *m->touched);
    m->talks = tsri_pool_alloc(&plan->scratch, values);
    m->behind = tsri_pool_alloc(&plan->scratch, items * sizeof *m->behind);
    TSRI_NEED(m->touched && m->talks && m->behind);
    memset(m->touched, -1, values * sizeof *m->touched);
    memset(m->behind, -1, items * sizeof *m->behind);
    for (int i = 0; i < plan->nitems; i++) {
        const tsri_item *it = &plan->items[i];
        if (it->kind == TSRI_ITEM_KERNEL && it->kernel.chain > m->nchains)
            m->nchains = it->kernel.chain;
        for (int j = 0; j < it->nin && it->kind == TSRI_ITEM_COLLECTIVE; j++)
            m->talks[tsri_plan_root(plan, it->in[j])] = true;
        for (int j = 0; j < it->nout && it->kind == TSRI_ITEM_COLLECTIVE; j++)
            m->talks[tsri_plan_root(plan, it->out[j])] = true;
    }
    m->added = tsri_pool_alloc(&plan->scratch, (items + (size_t)m->nchains) * sizeof *m->added);
    return m->added ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* Returns the item that makes an update's gradient and may hand it on: the update alone reads it;
 * -1: there is none. */
static int giver_of(const mover *m, const tsri_item *update)
{
    const tsr_plan *plan = m->plan;
    const int g = update->in[update->nin - 2], maker = m->flow.maker[g];
    if (maker < 0 || m->flow.first[g + 1] - m->flow.first[g] != 1 ||
        plan->values[g].storage != TSRI_STORAGE_ARENA || plan->values[g].dtype != TSR_F32 ||
        plan->values[update->in[0]].dtype != TSR_F32)
        return -1;
    const tsri_item *it = &plan->items[maker];
    return it->kind == TSRI_ITEM_KERNEL && tsri_op_def_of(it->kernel.op)->hands_on &&
                   it->placement == update->placement
               ? maker
               : -1;
}

/* Whether a chain with an update more has as many members and values as one may have. */
static bool has_room(const mover *m, int begin, int end, const tsri_item *update)
{
    const tsr_plan *plan = m->plan;
    const int added = m->added[plan->items[begin].kernel.chain];
    int values = (1 + added) * (update->nin + update->nout);
    if (plan->items[begin].kernel.chain == 0)
        return true;
    for (int i = begin; i < end; i++)
        values += plan->items[i].nin + plan->items[i].nout;
    return end - begin + added < TSRI_CHAIN_MAX && values <= TSRI_CHAIN_VALUES;
}

/* Returns the item behind which the update at `position` may go: the last one of the chain that
 * makes its gradient; -1: it has to stay. */
static int place_of(const mover *m, int position)
{
    const tsr_plan *plan = m->plan;
    const tsri_item *update = &plan->items[position];
    if (!tsri_item_is_update(update) ||
        !tsri_placement_can(update->placement, TSRI_CAN_ROW_KERNELS))
        return -1;
    const int giver = giver_of(m, update);
    if (giver < 0)
        return -1;
    const int begin = tsri_chain_begin(plan, giver), end = tsri_chain_end(plan, giver);
    if (end > position || !has_room(m, begin, end, update))
        return -1;
    for (int j = 0; j < update->nin; j++)
        if (m->flow.maker[update->in[j]] >= end)
            return -1;
    for (int j = 0; j < update->nout; j++) {
        const int root = tsri_plan_root(plan, update->out[j]);
        if (m->touched[root] >= end || m->talks[root] ||
            plan->values[root].storage != TSRI_STORAGE_VARIABLE)
            return -1;
    }
    return end - 1;
}

static void touch(mover *m, int item)
{
    const tsri_item *it = &m->plan->items[item];
    for (int j = 0; j < it->nin && it->kind != TSRI_ITEM_DEAD; j++)
        m->touched[tsri_plan_root(m->plan, it->in[j])] = item;
    for (int j = 0; j < it->nout && it->kind != TSRI_ITEM_DEAD; j++)
        m->touched[tsri_plan_root(m->plan, it->out[j])] = item;
}

/* Appends the updates that go behind old item i, as members of its chain. */
static tsr_status add_updates(mover *m, const tsri_item *old, int nold, int i)
{
    for (int u = i + 1; u < nold; u++) {
        if (m->behind[u] != i)
            continue;
        tsri_item it = old[u];
        it.kernel.chain = old[i].kernel.chain;
        it.backward = old[i].backward;
        TSRI_NEED(tsri_plan_add_item(m->plan, &it, it.in, it.out));
    }
    return TSR_OK;
}

static tsr_status move(mover *m)
{
    tsr_plan *plan = m->plan;
    tsri_item *old = plan->items;
    const int nold = plan->nitems;
    bool *gets = tsri_pool_alloc(&plan->scratch, (size_t)nold);
    TSRI_NEED(gets);
    for (int u = 0; u < nold; u++)
        if (m->behind[u] >= 0)
            gets[m->behind[u]] = true;
    TSRI_TRY(tsri_plan_new_items(plan, nold));
    for (int i = 0; i < nold; i++) {
        if (m->behind[i] < 0)
            TSRI_NEED(tsri_plan_add_item(plan, &old[i], old[i].in, old[i].out));
        if (gets[i])
            TSRI_TRY(add_updates(m, old, nold, i));
    }
    return TSR_OK;
}

tsr_status tsri_plan_update(tsr_plan *plan)
{
    mover m = {.plan = plan};
    if (!tsri_plan_fuses(plan, TSR_FUSE_UPDATES))
        return TSR_OK;
    TSRI_TRY(start(&m));
    for (int i = 0; i < plan->nitems; i++) {
        const int last = place_of(&m, i);
        if (last >= 0) {
            tsri_item *giver = &plan->items[last];
            if (!giver->kernel.chain)
                giver->kernel.chain = ++m.nchains;
            m.behind[i] = last;
            m.added[giver->kernel.chain]++;
            m.any = true;
        }
        touch(&m, i);
    }
    return m.any ? move(&m) : TSR_OK;
}
