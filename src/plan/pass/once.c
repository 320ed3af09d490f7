/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the items that a run may leave out. Optimizers with `accumulate` update in one of several
 * runs, and only that run executes the items that updates alone need: reductions of gradients,
 * norms, gathers of updated values. The declaration permits this op by op; an item whose result has
 * a consumer in every run is executed in every run even so.
 *
 * A variable keeps its value where its update is left out, and so does an operand that an update
 * writes over: consumers of the update in every run get the value from before it.
 */
#include "src/plan/pass/pass.h"

/* The runs that need a value or an item: none so far, those in which a condition holds, or all.
 * Further consumers only widen it. */
typedef struct need {
    bool any, always;
    const tsri_condition *only_if;
} need;

static bool add_need(need *n, need more)
{
    const need was = *n;
    n->always |= more.always || (n->any && more.any && n->only_if != more.only_if);
    n->any |= more.any;
    n->only_if = more.any ? more.only_if : n->only_if;
    return n->any != was.any || n->always != was.always;
}

static need need_of(const tsri_condition *only_if)
{
    return (need){.any = true, .always = !only_if, .only_if = only_if};
}

/* The operand over which an item writes result j; -1: none. */
static int operand_over(const tsri_item *it, int j)
{
    return it->kind == TSRI_ITEM_KERNEL ? tsri_op_over(it->kernel.op, j) : -1;
}

/* Returns when an item is needed, by the needs of its results' consumers so far. */
static need find_need(const tsri_ir *ir, const need *of, const tsri_item *it)
{
    need all = {0};
    if (it->kind == TSRI_ITEM_OUTPUT || (it->kind == TSRI_ITEM_COLLECTIVE && it->box.ranks))
        return need_of(NULL);
    for (int j = 0; j < it->nout; j++) {
        const tsri_storage storage = ir->values[tsri_ir_root(ir, it->out[j])].storage;
        if (storage == TSRI_STORAGE_PORT)
            return need_of(NULL);
        const bool stays = storage == TSRI_STORAGE_VARIABLE && !tsri_item_shows(it);
        (void)add_need(&all,
                       stays || operand_over(it, j) >= 0 ? need_of(it->only_if) : of[it->out[j]]);
    }
    return all;
}

tsr_status tsri_plan_once(tsri_ir *ir)
{
    bool any = false, changed = true;
    for (int i = 0; i < ir->nitems; i++)
        any |= ir->items[i].only_if != NULL;
    if (!any)
        return TSR_OK;
    need *of = tsri_pool_alloc(&ir->scratch, (size_t)ir->nvalues * sizeof *of);
    need *found = tsri_pool_alloc(&ir->scratch, (size_t)ir->nitems * sizeof *found);
    TSRI_NEED(of && found);
    /* Joined items come after their consumers in the list, so one round is not enough. */
    while (changed) {
        changed = false;
        for (int i = ir->nitems; i-- > 0;) {
            const tsri_item *it = &ir->items[i];
            if (it->kind == TSRI_ITEM_DEAD)
                continue;
            changed |= add_need(&found[i], find_need(ir, of, it));
            for (int j = 0; j < it->nin; j++)
                changed |= add_need(&of[it->in[j]], found[i]);
            for (int j = 0; j < it->nout; j++)
                if (operand_over(it, j) >= 0)
                    changed |= add_need(&of[it->in[operand_over(it, j)]], of[it->out[j]]);
        }
    }
    for (int i = 0; i < ir->nitems; i++) {
        tsri_item *it = &ir->items[i];
        it->only_if = found[i].any && !found[i].always ? found[i].only_if : NULL;
        it->every = it->only_if ? it->only_if->every : 0;
    }
    return TSR_OK;
}
