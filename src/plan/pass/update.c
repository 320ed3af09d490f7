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

#include "src/ir/flow.h"
#include "src/plan/pass/pass.h"

typedef struct mover {
    tsri_ir *ir;
    tsri_flow flow;
    int *touched; /* per root of values: the last item so far that reads or writes it; -1 */
    bool *talks;  /* per root: a call between ranks reads or writes it, at a time of its own */
    int *behind;  /* per item: the item behind which it goes; -1: it keeps its place */
    int *added;   /* per chain: updates that join it */
    int nchains, any;
} mover;

static tsr_status start(mover *m)
{
    tsri_ir *ir = m->ir;
    const size_t values = (size_t)ir->nvalues, items = (size_t)ir->nitems + 1;
    TSRI_TRY(tsri_flow_find(ir, &ir->scratch, &m->flow));
    m->touched = tsri_pool_alloc(&ir->scratch, values * sizeof *m->touched);
    m->talks = tsri_pool_alloc(&ir->scratch, values);
    m->behind = tsri_pool_alloc(&ir->scratch, items * sizeof *m->behind);
    TSRI_NEED(m->touched && m->talks && m->behind);
    memset(m->touched, -1, values * sizeof *m->touched);
    memset(m->behind, -1, items * sizeof *m->behind);
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        if (it->kind == TSRI_ITEM_KERNEL && it->kernel.chain > m->nchains)
            m->nchains = it->kernel.chain;
        for (int j = 0; j < it->nin && it->kind == TSRI_ITEM_COLLECTIVE; j++)
            m->talks[tsri_ir_root(ir, it->in[j])] = true;
        for (int j = 0; j < it->nout && it->kind == TSRI_ITEM_COLLECTIVE; j++)
            m->talks[tsri_ir_root(ir, it->out[j])] = true;
    }
    m->added = tsri_pool_alloc(&ir->scratch, (items + (size_t)m->nchains) * sizeof *m->added);
    return m->added ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* Returns the item that makes an update's gradient and may hand it on: the update alone reads it;
 * -1: there is none. */
static int giver_of(const mover *m, const tsri_item *update)
{
    const tsri_ir *ir = m->ir;
    const int g = update->in[update->nin - 2], maker = m->flow.maker[g];
    if (maker < 0 || m->flow.first[g + 1] - m->flow.first[g] != 1 ||
        ir->values[g].storage != TSRI_STORAGE_ARENA || ir->values[g].dtype != TSR_F32 ||
        ir->values[update->in[0]].dtype != TSR_F32)
        return -1;
    const tsri_item *it = &ir->items[maker];
    return it->kind == TSRI_ITEM_KERNEL && tsri_op_def_of(it->kernel.op)->hands_on &&
                   it->placement == update->placement
               ? maker
               : -1;
}

/* Whether a chain with an update more has as many members and values as one may have. */
static bool has_room(const mover *m, int begin, int end, const tsri_item *update)
{
    const tsri_ir *ir = m->ir;
    const int added = m->added[ir->items[begin].kernel.chain];
    int values = (1 + added) * (update->nin + update->nout);
    if (ir->items[begin].kernel.chain == 0)
        return true;
    for (int i = begin; i < end; i++)
        values += ir->items[i].nin + ir->items[i].nout;
    return end - begin + added < TSRI_CHAIN_MAX && values <= TSRI_CHAIN_VALUES;
}

/* Returns the item behind which the update at `position` may go: the last one of the chain that
 * makes its gradient; -1: it has to stay. */
static int place_of(const mover *m, int position)
{
    const tsri_ir *ir = m->ir;
    const tsri_item *update = &ir->items[position];
    if (!tsri_item_is_update(update) ||
        !tsri_placement_can(update->placement, TSRI_CAN_ROW_KERNELS))
        return -1;
    const int giver = giver_of(m, update);
    if (giver < 0 || ir->items[giver].turn != update->turn)
        return -1;
    const int begin = tsri_chain_begin(ir, giver), end = tsri_chain_end(ir, giver);
    if (end > position || !has_room(m, begin, end, update))
        return -1;
    for (int j = 0; j < update->nin; j++)
        if (m->flow.maker[update->in[j]] >= end)
            return -1;
    for (int j = 0; j < update->nout; j++) {
        const int root = tsri_ir_root(ir, update->out[j]);
        if (m->touched[root] >= end || m->talks[root] ||
            ir->values[root].storage != TSRI_STORAGE_VARIABLE)
            return -1;
    }
    return end - 1;
}

static void touch(mover *m, int item)
{
    const tsri_item *it = &m->ir->items[item];
    for (int j = 0; j < it->nin && it->kind != TSRI_ITEM_DEAD; j++)
        m->touched[tsri_ir_root(m->ir, it->in[j])] = item;
    for (int j = 0; j < it->nout && it->kind != TSRI_ITEM_DEAD; j++)
        m->touched[tsri_ir_root(m->ir, it->out[j])] = item;
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
        TSRI_NEED(tsri_ir_add_item(m->ir, &it, it.in, it.out));
    }
    return TSR_OK;
}

static tsr_status move(mover *m)
{
    tsri_ir *ir = m->ir;
    tsri_item *old = ir->items;
    const int nold = ir->nitems;
    bool *gets = tsri_pool_alloc(&ir->scratch, (size_t)nold);
    TSRI_NEED(gets);
    for (int u = 0; u < nold; u++)
        if (m->behind[u] >= 0)
            gets[m->behind[u]] = true;
    TSRI_TRY(tsri_ir_new_items(ir, nold));
    for (int i = 0; i < nold; i++) {
        if (m->behind[i] < 0)
            TSRI_NEED(tsri_ir_add_item(ir, &old[i], old[i].in, old[i].out));
        if (gets[i])
            TSRI_TRY(add_updates(m, old, nold, i));
    }
    return TSR_OK;
}

tsr_status tsri_plan_update(tsri_ir *ir)
{
    mover m = {.ir = ir};
    if (!tsri_plan_fuses(ir, TSR_FUSE_UPDATES))
        return TSR_OK;
    TSRI_TRY(start(&m));
    for (int i = 0; i < ir->nitems; i++) {
        const int last = place_of(&m, i);
        if (last >= 0) {
            tsri_item *giver = &ir->items[last];
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
