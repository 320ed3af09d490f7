/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On devices where starting a kernel costs more than a small one's work, what nobody waits for is
 * put off until just before the updates, next to others of its kind, so that lowering can join
 * them: batch norm's parameter gradients and running averages, one pair per layer. A gradient that
 * goes into a bucket of a tsr_ddp is awaited by all ranks.
 */
#include "src/plan/pass/pass.h"

static bool is_of_kind(const tsri_item *it)
{
    return it->kind == TSRI_ITEM_KERNEL && tsri_op_def_of(it->kernel.op)->may_wait &&
           tsri_placement_can(it->placement, TSRI_CAN_JOIN_LAUNCHES);
}

static bool can_wait(const tsri_ir *ir, const tsri_item *it)
{
    /* Updates are in TAIL. */
    if (!is_of_kind(it) || it->turn != tsri_ir_last_turn(ir))
        return false;
    for (int j = 0; j < it->nout; j++) {
        const tsri_value *v = &ir->values[tsri_ir_root(ir, it->out[j])];
        if (v->storage == TSRI_STORAGE_VARIABLE && v->variable->awaited)
            return false;
    }
    return true;
}

bool tsri_item_may_join(const tsri_item *it)
{
    return (tsri_item_is_update(it) || is_of_kind(it)) &&
           tsri_placement_can(it->placement, TSRI_CAN_JOIN_LAUNCHES);
}

/* Appends the items of [0, end) that are put off and do `op`. */
static tsr_status append_deferred(tsri_ir *ir, const tsri_item *old, int end, const bool *deferred,
                                  tsri_op_kind op)
{
    for (int i = 0; i < end; i++)
        if (deferred[i] && old[i].kernel.op == op &&
            !tsri_ir_add_item(ir, &old[i], old[i].in, old[i].out))
            return TSR_ERR_NO_MEMORY;
    return TSR_OK;
}

/* Which of the items before `end` nobody before `end` reads, though they could wait. */
static tsr_status find_deferred(tsri_ir *ir, const tsri_item *items, int end, bool **out)
{
    int *maker = tsri_pool_alloc(&ir->scratch, (size_t)ir->nvalues * sizeof *maker);
    bool *deferred = tsri_pool_alloc(&ir->scratch, (size_t)end);
    TSRI_NEED(maker && deferred);
    for (int i = 0; i < ir->nvalues; i++)
        maker[i] = -1;
    for (int i = 0; i < end; i++) {
        for (int j = 0; j < items[i].nin; j++)
            for (int v = items[i].in[j];; v = ir->values[v].alias) {
                if (maker[v] >= 0)
                    deferred[maker[v]] = false;
                if (ir->values[v].storage != TSRI_STORAGE_ALIAS)
                    break;
            }
        deferred[i] = can_wait(ir, &items[i]);
        for (int j = 0; j < items[i].nout; j++)
            maker[items[i].out[j]] = i;
    }
    *out = deferred;
    return TSR_OK;
}

tsr_status tsri_plan_defer(tsri_ir *ir)
{
    tsri_item *old = ir->items;
    int n = ir->nitems, end = 0;
    bool any = false, *deferred;
    while (end < n && !tsri_item_is_update(&old[end]))
        any |= can_wait(ir, &old[end++]);
    if (!any)
        return TSR_OK;
    TSRI_TRY(find_deferred(ir, old, end, &deferred));
    TSRI_TRY(tsri_ir_new_items(ir, n));
    for (int i = 0; i < end; i++)
        if (!deferred[i] && !tsri_ir_add_item(ir, &old[i], old[i].in, old[i].out))
            return TSR_ERR_NO_MEMORY;
    for (int op = 0; op < TSRI_OP_COUNT_; op++)
        if (tsri_op_def_of((tsri_op_kind)op)->may_wait)
            TSRI_TRY(append_deferred(ir, old, end, deferred, (tsri_op_kind)op));
    for (int i = end; i < n; i++)
        TSRI_NEED(tsri_ir_add_item(ir, &old[i], old[i].in, old[i].out));
    return TSR_OK;
}
