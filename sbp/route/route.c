/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/route/route.h"
#include "sbp/route/cross.h"
#include "sbp/route/goal.h"
#include "sbp/route/hunt.h"

#include <math.h>
#include <stdlib.h>

/* A route that is searched for on one mesh; `route` gets its steps. */
typedef struct mesh_request {
    tsri_space *space;
    tsri_state from, to;
    tsri_route *route;
    const tsri_goal *goal;
} mesh_request;

/* Appends the steps of the cheapest way to the request's route; no steps where there is no way. */
static void find_on_mesh(void *arg, tsri_hunt *hunt)
{
    mesh_request *rq = arg;
    int path[TSRI_ROUTE_MAX], n = 0; /* nodes from the goal back to the start, without the start */
    hunt->goal = rq->goal;
    for (int i = tsri_hunt_run(hunt, rq->from, NULL, NULL); i > 0; i = hunt->node[i].parent)
        path[n++] = i;
    while (n--) {
        const tsri_hunt_node *node = &hunt->node[path[n]];
        tsri_hop hop = {.kind = node->kind, .dims = node->dims, .two_phase = node->two_phase};
        hop.cost = node->cost - hunt->node[node->parent].cost;
        tsri_route_append(rq->route, rq->space, hunt->node[node->parent].state, node->state, &hop,
                          false);
    }
}

/* Does so behind a first step, which takes one of the route's places. */
static void find_rest(void *arg, tsri_hunt *hunt)
{
    hunt->most_steps = TSRI_ROUTE_MAX - 1;
    find_on_mesh(arg, hunt);
}

/* Searches once, for a route that needs at most most_bytes on a rank (0: any). Where there is none,
 * out->n is 0, and *least_over is the least peak, in bytes, among the steps that were too large. */
static void find_once(const tsri_cost_model *m, const tsri_route_query *q, unsigned axes,
                      bool same_mesh, int64_t most_bytes, tsri_route *out, int64_t *least_over)
{
    tsri_space space, to_space;
    tsri_goal goal;
    *out = (tsri_route){0};
    tsri_space_init(&space, m, &q->from.mesh, q->shape, q->element, axes);
    if (!same_mesh) {
        tsri_space_init(&to_space, m, &q->to.mesh, q->shape, q->element, axes);
        tsri_cross_find(m, q, &space, &to_space, most_bytes, out, least_over);
        out->bound_s = tsri_cross_bound(m, q);
        return;
    }
    tsri_state from = tsri_space_encode(&space, &q->from.layout),
               to = tsri_space_encode(&space, &q->to.layout);
    tsri_space_allow(&space, from, to);
    space.most_bytes = most_bytes;
    tsri_goal_init(&goal, &space, to);
    if (from == to) {
        out->peak_bytes = (int64_t)(tsri_space_part(&space, from) * space.element);
        return;
    }
    mesh_request rq = {.space = &space, .from = from, .to = to, .route = out, .goal = &goal};
    tsri_hunt_with(&space, find_on_mesh, &rq);
    *least_over = space.least_over;
    out->bound_s = tsri_least_seconds(m, tsri_goal_missing(&goal, &space, from) * space.element);
}

tsr_status tsri_route_find(const tsri_cost_model *m, const tsri_route_query *q,
                           tsri_route *out_route)
{
    unsigned axes = 0, from_ops, to_ops;
    int64_t next_limit = INT64_MAX; /* bytes; INT64_MAX: no step was too large */
    TSRI_TRY(tsri_route_look(&q->from.layout, q->shape, &from_ops, &axes));
    TSRI_TRY(tsri_route_look(&q->to.layout, q->shape, &to_ops, &axes));
    bool same_mesh = tsri_mesh_equal(&q->from.mesh, &q->to.mesh);
    bool same = same_mesh && tsri_layout_equal(&q->from.layout, &q->to.layout);
    tsri_route route;
    find_once(m, q, axes, same_mesh, q->most_bytes, &route, &next_limit);
    if (route.n || same) {
        *out_route = route;
        return TSR_OK;
    }
    /* The message names the leanest route. To find it, the limit grows, each time to the least peak
     * that was too large for the last search. */
    while (!route.n && next_limit < INT64_MAX) {
        int64_t limit = next_limit;
        next_limit = INT64_MAX;
        find_once(m, q, axes, same_mesh, limit, &route, &next_limit);
    }
    char from[TSRI_LAYOUT_TEXT_MAX], to[TSRI_LAYOUT_TEXT_MAX];
    return tsri_fail(
        TSR_ERR_SBP, "no way from %s to %s within %lld bytes a rank; the leanest needs %lld",
        tsri_layout_format(&q->from.layout, from), tsri_layout_format(&q->to.layout, to),
        (long long)q->most_bytes, (long long)route.peak_bytes);
}

/* --- runners-up ------------------------------------------------------------------------------- */
/* A first step that a route could begin with. */
typedef struct first_step {
    tsri_hop hop;
    double bound; /* seconds that any route which begins so takes at least */
} first_step;

static int by_bound(const void *a, const void *b)
{
    const first_step *x = a, *y = b;
    if (x->bound != y->bound)
        return x->bound < y->bound ? -1 : 1;
    return x->hop.to != y->hop.to ? (x->hop.to < y->hop.to ? -1 : 1) : x->hop.kind - y->hop.kind;
}

/* The steps that leave a state, the one straight to the goal too, by what they take at least. */
static int first_steps(tsri_space *s, tsri_state from, const tsri_goal *goal, first_step *out)
{
    static const tsri_hop none;
    tsri_hop hops[TSRI_MAX_HOPS + 1] = {none};
    int n = tsri_space_hops(s, from, false, hops);
    n += tsri_space_direct(s, from, goal->state, &hops[n]);
    for (int i = 0; i < n; i++) {
        double rest = hops[i].to == goal->state ? 0 : tsri_goal_bound(goal, s, hops[i].to);
        out[i] = (first_step){hops[i], hops[i].cost + rest};
    }
    qsort(out, (size_t)n, sizeof *out, by_bound);
    return n;
}

/* Whether a route begins with a step of that kind to that state. */
static bool begins_with(const tsri_space *s, const tsri_route *r, const tsri_hop *hop)
{
    return r->n && r->step[0].kind == (tsri_box_kind)hop->kind &&
           tsri_space_encode(s, &r->step[0].to) == hop->to;
}

/* Whether a route comes back to a state behind its first step. */
static bool comes_back(const tsri_space *s, const tsri_route *r, tsri_state start)
{
    for (int i = 0; i < r->n; i++)
        if (tsri_space_encode(s, &r->step[i].to) == start)
            return true;
    return false;
}

static void keep_cheapest(tsri_route *routes, int *n, int most, const tsri_route *r)
{
    int at = *n;
    while (at > 0 && routes[at - 1].cost_s > r->cost_s)
        at--;
    if (at == most)
        return;
    *n += *n < most;
    for (int i = *n - 1; i > at; i--)
        routes[i] = routes[i - 1];
    routes[at] = *r;
}

int tsri_route_others(const tsri_cost_model *m, const tsri_route_query *q, const tsri_route *best,
                      int most, tsri_route *out_routes)
{
    unsigned axes = 0, ops;
    int n = 0;
    if (!tsri_mesh_equal(&q->from.mesh, &q->to.mesh) || best->n == 0 || most == 0 ||
        tsri_route_look(&q->from.layout, q->shape, &ops, &axes) != TSR_OK ||
        tsri_route_look(&q->to.layout, q->shape, &ops, &axes) != TSR_OK)
        return 0;
    tsri_space space;
    tsri_goal goal;
    first_step steps[TSRI_MAX_HOPS + 1];
    tsri_space_init(&space, m, &q->from.mesh, q->shape, q->element, axes);
    tsri_state from = tsri_space_encode(&space, &q->from.layout);
    tsri_space_allow(&space, from, tsri_space_encode(&space, &q->to.layout));
    space.most_bytes = q->most_bytes;
    tsri_goal_init(&goal, &space, tsri_space_encode(&space, &q->to.layout));
    int nsteps = first_steps(&space, from, &goal, steps);
    for (int i = 0; i < nsteps && (n < most || steps[i].bound < out_routes[n - 1].cost_s); i++) {
        tsri_route r = {0};
        const tsri_hop *hop = &steps[i].hop;
        if (begins_with(&space, best, hop))
            continue;
        tsri_route_append(&r, &space, from, hop->to, hop, false);
        mesh_request rq = {&space, hop->to, goal.state, &r, &goal};
        if (hop->to != goal.state)
            tsri_hunt_with(&space, find_rest, &rq);
        if (tsri_space_encode(&space, &r.step[r.n - 1].to) == goal.state &&
            !comes_back(&space, &r, from))
            keep_cheapest(out_routes, &n, most, &r);
    }
    return n;
}
