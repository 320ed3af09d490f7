/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/route/route.h"
#include "sbp/route/cross.h"
#include "sbp/route/goal.h"
#include "sbp/route/hunt.h"

#include <math.h>

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
