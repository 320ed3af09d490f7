/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/route/table.h"

#include <string.h>

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
    tsri_state *state = tsri_pool_alloc(t->pool, (size_t)room * sizeof *state);
    int *slot = tsri_pool_alloc(t->pool, 2 * (size_t)room * sizeof *slot);
    TSRI_NEED(state && slot);
    if (t->n)
        memcpy(state, t->state, (size_t)t->n * sizeof *state);
    t->state = state;
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
