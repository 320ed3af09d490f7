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

#include "src/plan/pass/pass.h"

typedef struct resharder {
    tsri_ir *ir;
    const tsri_item *old;
    int nold;
    int *maker;     /* per value: its item among the old ones; -1 */
    bool *made;     /* per value: it is made of a variable alone */
    bool *gathered; /* per value: it is, and by a collective among others */
    int *forward;   /* per value: the last item of forward that reads it, through views and the
                     * like too; -1 */
    int *again;     /* per value: the value that backward reads in its place; -1 */
    int last;       /* the item that gathers last in forward; -1 */
    tsri_turn turn; /* of the item whose operands are made again */
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
    const tsri_value *values = r->ir->values;
    bool ended = false;
    for (int i = 0; i < r->nold; i++) {
        const tsri_item *it = &r->old[i];
        for (int j = 0; j < it->nout && it->kind != TSRI_ITEM_DEAD; j++)
            r->maker[it->out[j]] = i;
        /* The first gradients, which are constants, are computed before the micro-batches. */
        ended |= it->kind == TSRI_ITEM_KERNEL && it->backward &&
                 (r->ir->parts < 2 || it->turn == TSRI_TURN_PARTS);
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
    tsri_ir *ir = r->ir;
    tsri_item it = r->old[r->maker[value]];
    const int in = make_again(r, it.in[0]);
    tsri_value v = ir->values[value];
    if (v.storage == TSRI_STORAGE_ALIAS)
        v.alias = in;
    const int out = in < 0 ? -1 : tsri_ir_add_value(ir, &v);
    it.backward = true;
    it.turn = r->turn;
    if (out < 0 || !tsri_ir_add_item(ir, &it, &in, &out))
        return -1;
    return r->again[value] = out;
}

/* Lets an item of backward read what is made again, in front of it, if it has to be. An update does
 * not: it writes over its operand. */
static tsr_status read_again(resharder *r, tsri_item *it)
{
    tsri_ir *ir = r->ir;
    const bool updates = it->kind == TSRI_ITEM_KERNEL && it->kernel.updates;
    if (it->kind == TSRI_ITEM_DEAD || it->kind == TSRI_ITEM_OUTPUT || !it->backward || updates)
        return TSR_OK;
    it->in = tsri_pool_dup(&ir->scratch, it->in, (size_t)it->nin * sizeof *it->in);
    TSRI_NEED(it->in);
    r->turn = it->turn;
    for (int j = 0; j < it->nin; j++) {
        const int value = it->in[j];
        if (!r->gathered[value] || r->forward[value] < 0 || r->forward[value] >= r->last)
            continue;
        it->in[j] = make_again(r, value);
        TSRI_NEED(it->in[j] >= 0);
        if (tsri_item_shows(it))
            ir->values[it->out[0]].alias = it->in[j];
    }
    return TSR_OK;
}

tsr_status tsri_plan_reshard(tsri_ir *ir)
{
    resharder r = {.ir = ir, .old = ir->items, .nold = ir->nitems, .last = -1};
    const size_t n = (size_t)ir->nvalues;
    if (!ir->opts.reshard_after_forward)
        return TSR_OK;
    r.maker = tsri_pool_alloc(&ir->scratch, 3 * n * sizeof *r.maker);
    r.made = tsri_pool_alloc(&ir->scratch, 2 * n * sizeof *r.made);
    TSRI_NEED(r.maker && r.made);
    memset(r.maker, -1, 3 * n * sizeof *r.maker);
    r.gathered = r.made + n;
    r.forward = r.maker + n;
    r.again = r.maker + 2 * n;
    find_gathered(&r);
    find_readers(&r);
    TSRI_TRY(tsri_ir_new_items(ir, r.nold));
    for (int i = 0; i < r.nold; i++) {
        tsri_item it = r.old[i];
        TSRI_TRY(read_again(&r, &it));
        TSRI_NEED(tsri_ir_add_item(ir, &it, it.in, it.out));
    }
    return TSR_OK;
}
