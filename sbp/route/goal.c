/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/route/goal.h"

#include <math.h>

/* The most that the part of nest n and the goal's share along an axis, on the first rank and on the
 * last. Ranks along the goal's P count together: what one of them has need not be read. */
static void share(tsri_goal *goal, const tsri_space *s, int a, int n, int q)
{
    unsigned together = tsri_state_partial(goal->state), inside = s->mask[n] & together;
    double first = s->most[a][s->mask[q]], last = s->least[a][s->mask[q]];
    double reach = s->size[inside] * s->most[a][s->mask[n]];
    int p = n, r = q, lone = 0;
    while (s->mask[p] & together && together >> s->last[p] & 1)
        p = s->pop[p];
    /* The splits outside of the first one along the goal's P. */
    for (int m = lone = p; m; m = s->pop[m])
        lone = together >> s->last[m] & 1 ? s->pop[m] : lone;
    bool box = lone == p; /* together they have one box */
    unsigned deeper = s->mask[s->depth[p] > s->depth[q] ? p : q];
    for (p = lone; s->depth[p] > s->depth[r];)
        p = s->pop[p];
    while (s->depth[r] > s->depth[p])
        r = s->pop[r];
    bool apart = p != r;
    if (box && !apart) {
        first = s->most[a][deeper];
        last = s->least[a][deeper];
    } else {
        first = reach < first ? reach : first;
        last = apart ? 0 : reach < last ? reach : last;
    }
    goal->shared_first[a][n] = first;
    goal->shared_last[a][n] = last;
}

void tsri_goal_init(tsri_goal *goal, const tsri_space *s, tsri_state state)
{
    unsigned split = 0;
    goal->state = state;
    goal->relabels = tsri_state_partial(state) && tsri_state_op(state) != TSR_REDUCE_SUM;
    goal->first = goal->last = s->rest;
    for (int a = 0; a < s->naxes; a++) {
        int q = tsri_state_nest(state, a);
        split |= s->mask[q];
        goal->first *= s->most[a][s->mask[q]];
        goal->last *= s->least[a][s->mask[q]];
        for (int n = 0; n < s->nnests; n++)
            share(goal, s, a, n, q);
    }
    goal->holders = s->size[s->dims & ~(split | tsri_state_partial(state))];
}

double tsri_goal_missing(const tsri_goal *goal, const tsri_space *s, tsri_state x)
{
    unsigned px = tsri_state_partial(x), py = tsri_state_partial(goal->state);
    unsigned kept = tsri_state_op(x) == tsri_state_op(goal->state) ? px & py : 0;
    unsigned reduced = px & ~kept;
    double first = goal->first, last = goal->last;
    if (!reduced) {
        double shared_first = s->rest, shared_last = s->rest;
        for (int a = 0; a < s->naxes; a++) {
            int n = tsri_state_nest(x, a);
            shared_first *= goal->shared_first[a][n];
            shared_last *= goal->shared_last[a][n];
        }
        first -= shared_first;
        last -= shared_last;
    } /* else nobody has any element's sum yet */
    double missing = (first > last ? first : last) / s->size[py];
    if (reduced) {
        /* The first ranks along the goal's P to have a sum take an addend from each rank outside
         * that has another; all others that hold the element take something. */
        double outside = s->size[kept] * (s->size[reduced] - s->size[reduced & py]);
        double average = s->all * (outside + goal->holders - 1) / s->mesh->nranks;
        missing = average > missing ? average : missing;
    }
    return missing;
}

double tsri_goal_bound(const tsri_goal *goal, const tsri_space *s, tsri_state x)
{
    if (x == goal->state)
        return 0;
    double missing = tsri_goal_missing(goal, s, x);
    double result = goal->relabels ? 0 : goal->first * s->local;
    double start = s->quickest < s->model->kernel_s ? s->quickest : s->model->kernel_s;
    double bound = missing > 0      ? s->quickest + missing * s->fastest + result
                   : goal->relabels ? 0
                                    : start + result;
    return bound * (1 - 1e-12);
}
