/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/route/route.h"
#include "sbp/route/cross.h"
#include "sbp/route/goal.h"
#include "sbp/route/hops.h"
#include "sbp/route/hunt.h"

#include <math.h>

/* A way from one state to another of a space. */
typedef struct request {
    tsri_space *space;
    tsri_state from, to;
    tsri_route *route;
    const tsri_goal *goal;
} request;

static void find_on_mesh(void *arg, tsri_hunt *hunt)
{
    request *rq = arg;
    int path[TSRI_ROUTE_MAX], n = 0;
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

/* Searches once, within most_bytes a rank (0: any). Without a route out->n is 0, and *least_over is
 * the least limit under which the search would have gone on. */
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
    request rq = {.space = &space, .from = from, .to = to, .route = out, .goal = &goal};
    tsri_hunt_with(&space, find_on_mesh, &rq);
    *least_over = space.least_over;
    double missing = tsri_goal_missing(&goal, &space, from), pace = INFINITY, start = INFINITY;
    /* The best link reads what is missing, after its hand-shake: nothing can be faster. */
    for (int l = 0; l < m->nlinks; l++) {
        double p = (double)q->element / m->link[l].bytes_per_s;
        pace = p < pace ? p : pace;
        start = m->link[l].latency_s < start ? m->link[l].latency_s : start;
    }
    if (missing > 0)
        out->bound_s = (start + missing * pace) * (1 - 1e-12);
}

tsr_status tsri_route_find(const tsri_cost_model *m, const tsri_route_query *q,
                           tsri_route *out_route)
{
    unsigned axes = 0, from_ops, to_ops;
    int64_t next = INT64_MAX;
    TSRI_TRY(tsri_route_look(&q->from.layout, q->shape, &from_ops, &axes));
    TSRI_TRY(tsri_route_look(&q->to.layout, q->shape, &to_ops, &axes));
    bool same_mesh = tsri_mesh_equal(&q->from.mesh, &q->to.mesh);
    bool same = same_mesh && tsri_layout_equal(&q->from.layout, &q->to.layout);
    tsri_route route;
    find_once(m, q, axes, same_mesh, q->most_bytes, &route, &next);
    if (route.n || same) {
        *out_route = route;
        return TSR_OK;
    }
    /* The limit grows, each time to the least peak that stopped the last search, so that the first
     * route that is found needs least. */
    while (!route.n && next < INT64_MAX) {
        int64_t limit = next;
        next = INT64_MAX;
        find_once(m, q, axes, same_mesh, limit, &route, &next);
    }
    char from[TSRI_LAYOUT_TEXT_MAX], to[TSRI_LAYOUT_TEXT_MAX];
    return tsri_fail(
        TSR_ERR_SBP, "no way from %s to %s within %lld bytes a rank; the leanest needs %lld",
        tsri_layout_format(&q->from.layout, from), tsri_layout_format(&q->to.layout, to),
        (long long)q->most_bytes, (long long)route.peak_bytes);
}
