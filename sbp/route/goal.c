/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/route/goal.h"

/* Sets how much of axis a the part of nest n and the goal's part (nest q) share at most, in
 * elements, on the first rank, whose parts are the largest, and on the last, whose are the
 * smallest. Ranks that differ along the goal's P alone count as one group: an element that one of
 * them has need not be read by another. */
static void set_shared(tsri_goal *goal, const tsri_space *s, int a, int n, int q)
{
    const unsigned partial = tsri_state_partial(goal->state);
    double first = s->most[a][s->mask[q]], last = s->least[a][s->mask[q]];
    /* The parts of a group have at most so many elements together, wherever they lie. */
    const double reach = s->size[s->mask[n] & partial] * s->most[a][s->mask[n]];
    /* Nest n without its innermost splits along the goal's P, whose parts the group shares. */
    int joined = n;
    while (s->mask[joined] & partial && partial >> s->last[joined] & 1)
        joined = s->pop[joined];
    /* The splits of `joined` outside of its outermost split along the goal's P. Where it has no
     * such split, the parts of a group make up one box. */
    int outer = joined;
    for (int m = joined; m; m = s->pop[m])
        if (partial >> s->last[m] & 1)
            outer = s->pop[m];
    const bool one_box = outer == joined;
    /* Where one nest begins with the other, the deeper one's part lies in the other's. */
    const unsigned deeper = s->mask[s->depth[joined] > s->depth[q] ? joined : q];
    int mine = outer, goals = q;
    while (s->depth[mine] > s->depth[goals])
        mine = s->pop[mine];
    while (s->depth[goals] > s->depth[mine])
        goals = s->pop[goals];
    const bool nested = mine == goals;
    if (one_box && nested) {
        first = s->most[a][deeper];
        last = s->least[a][deeper];
    } else {
        first = reach < first ? reach : first;
        last = !nested ? 0 : reach < last ? reach : last;
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
            set_shared(goal, s, a, n, q);
    }
    goal->holders = s->size[s->dims & ~(split | tsri_state_partial(state))];
}

double tsri_goal_missing(const tsri_goal *goal, const tsri_space *s, tsri_state x)
{
    /* Sets of the mesh's dimensions: P in x, P in the goal, P of one kind in both, and P in x alone
     * or of another kind than the goal's, which every way has to reduce. */
    unsigned x_p = tsri_state_partial(x), goal_p = tsri_state_partial(goal->state);
    unsigned kept = tsri_state_op(x) == tsri_state_op(goal->state) ? x_p & goal_p : 0;
    unsigned reduced = x_p & ~kept;
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
    } /* else no rank has the sum of any element yet: all of the goal's part is missing */
    double missing = (first > last ? first : last) / s->size[goal_p];
    if (reduced) {
        /* The rank that first has an element's sum has read an addend from each rank that held
         * another, those along the goal's P apart; every other holder has read the element once. */
        double outside = s->size[kept] * (s->size[reduced] - s->size[reduced & goal_p]);
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
    /* Every way ends with writing the goal's part, but for one that ends with a relabel. */
    double writing = goal->relabels ? 0 : goal->first * s->local;
    double bound = 0;
    if (missing > 0) {
        bound = s->quickest + missing * s->fastest + writing;
    } else if (!goal->relabels) {
        /* At least one step is taken: a collective, or a kernel on the rank's own part. */
        bound = (s->quickest < s->model->kernel_s ? s->quickest : s->model->kernel_s) + writing;
    }
    /* The margin keeps rounding from putting the bound above the cost. */
    return bound * (1 - 1e-12);
}
