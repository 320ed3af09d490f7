/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights that forward gathered are given back behind their last reader there, and gathered again
 * for backward (tsr_compile_opts.reshard_after_forward), as FSDP's and ZeRO-3's are: Zhao et al.,
 * "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel" (2023). A value that is made
 * of a variable by conversions, by views and by ops of one operand is made a second time in front
 * of its first reader in backward, which then does not read the first one. Weights that are
 * gathered last in forward stay: backward reads them at once.
 */
#include <string.h>

#include "src/plan/plan.h"

typedef struct resharder {
    tsr_plan *plan;
    const tsri_item *old;
    int nold;
    int *maker;     /* per value: its item among the old ones; -1 */
    bool *made;     /* per value: it is made of a variable alone */
    bool *gathered; /* per value: it is, and by a collective among others */
    int *forward;   /* per value: the last item of forward that reads it, through views and the
                     * like too; -1 */
    int *again;     /* per value: the value that backward reads in its place; -1 */
    int last;       /* the item that gathers last in forward; -1 */
} resharder;

/* Returns whether an item makes the same of its only operand whenever it is done. */
static bool is_repeatable(const tsri_item *it)
{
    if (it->nin != 1 || it->nout != 1 || it->kind == TSRI_ITEM_DEAD)
        return false;
    if (it->kind == TSRI_ITEM_KERNEL) /* a user's op may remember what it did */
        return !tsri_op_def_of(it->kernel.op)->has_key && !it->kernel.updates &&
               it->kernel.op != TSRI_OP_OWN;
    return it->kind == TSRI_ITEM_VIEW ||
           (tsri_item_converts(it) && !it->box.part.number && !it->box.ranks);
}

/* Finds what is gathered of variables before backward begins. */
static void find_gathered(resharder *r)
{
    const tsri_value *values = r->plan->values;
    bool ended = false;
    for (int i = 0; i < r->nold; i++) {
        const tsri_item *it = &r->old[i];
        for (int j = 0; j < it->nout && it->kind != TSRI_ITEM_DEAD; j++)
            r->maker[it->out[j]] = i;
        ended |= it->kind == TSRI_ITEM_KERNEL && it->backward;
        if (!is_repeatable(it) || ended)
            continue;
        const int in = it->in[0], out = it->out[0];
        r->made[out] = r->made[in] || values[in].storage == TSRI_STORAGE_VARIABLE;
        const bool collects = it->kind == TSRI_ITEM_COLLECTIVE && r->made[out] && !r->gathered[in];
        r->gathered[out] = collects || r->gathered[in];
        if (collects)
            r->last = i;
    }
}

/* Finds the last readers in forward. An output keeps its value. */
static void find_readers(resharder *r)
{
    for (int i = r->nold; i-- > 0;) {
        const tsri_item *it = &r->old[i];
        const bool hands_on = it->nout == 1 && r->gathered[it->out[0]];
        const int at = it->kind == TSRI_ITEM_OUTPUT ? r->nold
                       : hands_on                   ? r->forward[it->out[0]]
                                                    : i;
        for (int j = 0; j < it->nin && it->kind != TSRI_ITEM_DEAD && !it->backward; j++)
            if (r->forward[it->in[j]] < at)
                r->forward[it->in[j]] = at;
    }
}

/* Makes a value again, and what it is made of, in front of the next item; returns the new value, or
 * -1 without memory. */
static int make_again(resharder *r, int value)
{
    if (!r->made[value])
        return value;
    if (r->again[value] >= 0)
        return r->again[value];
    tsr_plan *plan = r->plan;
    tsri_item it = r->old[r->maker[value]];
    const int in = make_again(r, it.in[0]);
    tsri_value v = plan->values[value];
    if (v.storage == TSRI_STORAGE_ALIAS)
        v.alias = in;
    const int out = in < 0 ? -1 : tsri_plan_add_value(plan, &v);
    it.backward = true;
    if (out < 0 || !tsri_plan_add_item(plan, &it, &in, &out))
        return -1;
    return r->again[value] = out;
}

/* Lets an item of backward read what is made again, in front of it, if it has to be. An update does
 * not: it writes over its operand. */
static tsr_status read_again(resharder *r, tsri_item *it)
{
    tsr_plan *plan = r->plan;
    const bool updates = it->kind == TSRI_ITEM_KERNEL && it->kernel.updates;
    if (it->kind == TSRI_ITEM_DEAD || it->kind == TSRI_ITEM_OUTPUT || !it->backward || updates)
        return TSR_OK;
    it->in = tsri_pool_dup(&plan->scratch, it->in, (size_t)it->nin * sizeof *it->in);
    TSRI_NEED(it->in);
    for (int j = 0; j < it->nin; j++) {
        const int value = it->in[j];
        if (!r->gathered[value] || r->forward[value] < 0 || r->forward[value] >= r->last)
            continue;
        it->in[j] = make_again(r, value);
        TSRI_NEED(it->in[j] >= 0);
        if (tsri_item_shows(it))
            plan->values[it->out[0]].alias = it->in[j];
    }
    return TSR_OK;
}

tsr_status tsri_plan_reshard(tsr_plan *plan)
{
    resharder r = {.plan = plan, .old = plan->items, .nold = plan->nitems, .last = -1};
    const size_t n = (size_t)plan->nvalues;
    if (!plan->opts.reshard_after_forward)
        return TSR_OK;
    r.maker = tsri_pool_alloc(&plan->scratch, 3 * n * sizeof *r.maker);
    r.made = tsri_pool_alloc(&plan->scratch, 2 * n * sizeof *r.made);
    TSRI_NEED(r.maker && r.made);
    memset(r.maker, -1, 3 * n * sizeof *r.maker);
    r.gathered = r.made + n;
    r.forward = r.maker + n;
    r.again = r.maker + 2 * n;
    find_gathered(&r);
    find_readers(&r);
    TSRI_TRY(tsri_plan_new_items(plan, r.nold));
    for (int i = 0; i < r.nold; i++) {
        tsri_item it = r.old[i];
        TSRI_TRY(read_again(&r, &it));
        TSRI_NEED(tsri_plan_add_item(plan, &it, it.in, it.out));
    }
    return TSR_OK;
}
