/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/route/table.h"

void tsri_table_finish(tsri_table *t)
{
    tsri_mem_free(t->state);
    tsri_mem_free(t->slot);
}

static int *find_slot(tsri_table *t, tsri_state state)
{
    unsigned mask = 2 * (unsigned)t->room - 1;
    unsigned at = (unsigned)((state * 0x9e3779b97f4a7c15u) >> 40) & mask;
    while (t->slot[at] && t->state[t->slot[at] - 1] != state)
        at = (at + 1) & mask;
    return &t->slot[at];
}

static tsr_status table_grow(tsri_table *t)
{
    int room = t->room ? 4 * t->room : 64;
    tsri_state *state = tsri_mem_realloc(t->mem, t->state, (size_t)room * sizeof *state);
    TSRI_NEED(state);
    t->state = state;
    int *slot = tsri_mem_alloc(t->mem, 2 * (size_t)room * sizeof *slot);
    TSRI_NEED(slot);
    tsri_mem_free(t->slot);
    t->slot = slot;
    t->room = room;
    for (int i = 0; i < t->n; i++)
        *find_slot(t, t->state[i]) = i + 1;
    return TSR_OK;
}

tsr_status tsri_table_add(tsri_table *t, tsri_state state, int *out_index)
{
    if (t->n == t->room)
        TSRI_TRY(table_grow(t));
    int *slot = find_slot(t, state);
    if (!*slot) {
        t->state[t->n] = state;
        *slot = ++t->n;
    }
    *out_index = *slot - 1;
    return TSR_OK;
}
