/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/route/hunt.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Whether node a is to be settled before b. Indices make the order the same everywhere. */
static bool before(const tsri_hunt *h, int a, int b)
{
    const tsri_hunt_node *p = &h->node[a], *q = &h->node[b];
    if (p->bound != q->bound)
        return p->bound < q->bound;
    if (p->steps != q->steps)
        return p->steps < q->steps;
    return a < b;
}

static void place(tsri_hunt *h, int at, int node)
{
    h->open[at] = (uint16_t)node;
    h->node[node].place = (uint16_t)(at + 1);
}

static void rise(tsri_hunt *h, int at, int node)
{
    for (; at > 0 && before(h, node, h->open[(at - 1) / 2]); at = (at - 1) / 2)
        place(h, at, h->open[(at - 1) / 2]);
    place(h, at, node);
}

static int pop(tsri_hunt *h)
{
    int top = h->open[0], node = h->open[--h->nopen], at = 0;
    h->node[top].place = 0;
    if (h->nopen == 0)
        return top;
    for (int child; (child = 2 * at + 1) < h->nopen; at = child) {
        if (child + 1 < h->nopen && before(h, h->open[child + 1], h->open[child]))
            child++;
        if (!before(h, h->open[child], node))
            break;
        place(h, at, h->open[child]);
    }
    place(h, at, node);
    return top;
}

/* The node of a state; a new one has an infinite cost. */
static int find(tsri_hunt *h, tsri_state state)
{
    unsigned mask = 2 * (unsigned)h->room - 1;
    unsigned at = (unsigned)((state * 0x9e3779b97f4a7c15u) >> 40) & mask;
    for (; h->slot[at]; at = (at + 1) & mask)
        if (h->node[h->slot[at] - 1].state == state)
            return h->slot[at] - 1;
    assert(h->n < h->room);
    h->node[h->n] = (tsri_hunt_node){.state = state, .cost = INFINITY};
    h->slot[at] = (uint16_t)(h->n + 1);
    return h->n++;
}

/* Whether a path of that cost and length, by a last step of that kind, is better than what a node
 * has. */
static bool better(const tsri_hunt_node *n, double cost, int steps, int kind)
{
    if (cost != n->cost)
        return cost < n->cost;
    return steps < n->steps || (steps == n->steps && kind < n->kind);
}

static void set(tsri_hunt *h, int node, int parent, double cost, int steps, const tsri_hop *hop)
{
    tsri_hunt_node *n = &h->node[node];
    /* The cost that is left does not depend on the way here: n->bound - n->cost would, by rounding.
     */
    double left = h->goal ? tsri_goal_bound(h->goal, h->space, n->state) : 0;
    n->cost = cost;
    n->bound = cost + left;
    n->parent = (int16_t)parent;
    n->steps = (uint8_t)steps;
    n->kind = hop->kind;
    n->dims = hop->dims;
    n->two_phase = hop->two_phase;
    rise(h, n->place ? n->place - 1 : h->nopen++, node);
}

static void reach(tsri_hunt *h, int parent, const tsri_hop *hop, int *goal_node)
{
    double cost = h->node[parent].cost + hop->cost;
    int steps = h->node[parent].steps + 1;
    if (steps > h->most_steps ||
        (*goal_node >= 0 && !better(&h->node[*goal_node], cost, steps, hop->kind)))
        return;
    int node = find(h, hop->to);
    if (!better(&h->node[node], cost, steps, hop->kind))
        return;
    bool fresh = h->node[node].cost == INFINITY;
    set(h, node, parent, cost, steps, hop);
    if (h->goal && hop->to == h->goal->state)
        *goal_node = node;
    /* Backwards every state also has its step straight to the start. */
    tsri_hop direct;
    if (fresh && h->back && tsri_space_direct(h->space, hop->to, h->node[0].state, &direct) &&
        better(&h->node[node], direct.cost, 1, direct.kind))
        set(h, node, 0, direct.cost, 1, &direct);
}

int tsri_hunt_run(tsri_hunt *h, tsri_state start, tsri_hunt_fn *settled, void *arg)
{
    int goal_node = -1;
    h->n = h->nopen = 0;
    memset(h->slot, 0, 2 * (size_t)h->room * sizeof *h->slot);
    tsri_hop none = {0}, direct;
    set(h, find(h, start), -1, 0, 0, &none);
    if (h->goal && start == h->goal->state)
        goal_node = 0;
    while (h->nopen) {
        int node = pop(h);
        if (node == goal_node || (settled && !settled(arg, h, node)))
            break;
        tsri_state state = h->node[node].state;
        if (h->goal && tsri_space_direct(h->space, state, h->goal->state, &direct))
            reach(h, node, &direct, &goal_node);
        int n = tsri_space_hops(h->space, state, h->back, h->hops);
        for (int i = 0; i < n; i++)
            reach(h, node, &h->hops[i], &goal_node);
    }
    return goal_node;
}

/* One function per size, so that a small mesh touches little stack. */
#define HUNT_WITH(name, size)                                                                 \
    __attribute__((noinline)) static void name(tsri_hunt *h, tsri_hunt_body *body, void *arg) \
    {                                                                                         \
        tsri_hunt_node node[size];                                                            \
        uint16_t open[size], slot[2 * (size)];                                                \
        h->room = (size);                                                                     \
        h->node = node;                                                                       \
        h->open = open;                                                                       \
        h->slot = slot;                                                                       \
        body(arg, h);                                                                         \
    }

HUNT_WITH(with_2d, TSRI_HUNT_2D)
HUNT_WITH(with_3d, TSRI_HUNT_3D)
HUNT_WITH(with_4d, TSRI_HUNT_4D)

void tsri_hunt_with(tsri_space *space, tsri_hunt_body *body, void *arg)
{
    tsri_hunt h;
    int dims = __builtin_popcount(space->dims);
    h.space = space;
    h.goal = NULL;
    h.back = false;
    h.most_steps = TSRI_ROUTE_MAX;
    (dims <= 2 ? with_2d : dims == 3 ? with_3d : with_4d)(&h, body, arg);
}
