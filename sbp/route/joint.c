/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/route/joint.h"

#include <math.h>

#include "sbp/route/space.h"

static bool may_join(const tsri_hop *hop)
{
    return hop->kind == TSRI_BOX_ALL_REDUCE || hop->kind == TSRI_BOX_REDUCE_SCATTER ||
           hop->kind == TSRI_BOX_ALL_GATHER;
}

/* The first of n hops that leads to a state and may be a member; NULL. */
static const tsri_hop *find_hop(const tsri_hop *hops, int n, tsri_state to)
{
    for (int i = 0; i < n; i++)
        if (hops[i].to == to && may_join(&hops[i]))
            return &hops[i];
    return NULL;
}

static tsri_joint joint_of(const tsri_space *s, const tsri_hop *hop, tsri_state from)
{
    if (!hop)
        return (tsri_joint){0};
    tsri_joint joint = {.joins = true, .alone_s = hop->cost, .shake_s = s->latency[hop->dims]};
    joint.rest_s[0] = hop->cost - joint.shake_s;
    joint.rest_s[1] = INFINITY;
    tsri_hop phase = *hop;
    for (int i = 0; i < 2; i++) {
        phase.two_phase = i > 0;
        joint.bytes[i] = tsri_space_moved(s, &phase, from, hop->to) * s->element;
    }
    if (hop->kind != TSRI_BOX_ALL_REDUCE)
        return joint;
    tsri_space_phases(s, hop, tsri_space_part(s, from), joint.rest_s);
    for (int i = 0; i < 2; i++)
        joint.rest_s[i] += tsri_space_part(s, hop->to) * s->local;
    return joint;
}

static unsigned split_axes(tsr_sbp sbp)
{
    unsigned axes = 0;
    for (int d = 0; d < sbp.ndim; d++)
        axes |= sbp.d[d].kind == TSR_SBP_SPLIT ? 1u << sbp.d[d].arg : 0;
    return axes;
}

void tsri_route_joints(const tsri_cost_model *m, tsr_dims shape, size_t element,
                       const tsri_mesh *mesh, int nfrom, const tsr_sbp *from, int nto,
                       const tsr_sbp *to, tsri_joint *out)
{
    tsri_space space;
    tsri_hop hops[TSRI_MAX_HOPS];
    unsigned axes = 0;
    for (int i = 0; i < nfrom + nto; i++)
        axes |= split_axes(i < nfrom ? from[i] : to[i - nfrom]);
    tsri_space_init(&space, m, mesh, shape, element, axes);
    for (int i = 0; i < nfrom; i++) {
        tsri_layout l = tsri_layout_of(mesh, from[i]);
        tsri_state x = tsri_space_encode(&space, &l);
        int nhops = tsri_space_hops(&space, x, false, hops);
        for (int j = 0; j < nto; j++) {
            l = tsri_layout_of(mesh, to[j]);
            const tsri_hop *hop = find_hop(hops, nhops, tsri_space_encode(&space, &l));
            out[i * nto + j] = joint_of(&space, hop, x);
        }
    }
}

tsri_joint tsri_route_join(const tsri_cost_model *m, const tsri_route_query *q,
                           tsri_route *out_route)
{
    tsri_space space;
    tsri_hop hops[TSRI_MAX_HOPS];
    if (!tsri_mesh_equal(&q->from.mesh, &q->to.mesh))
        return (tsri_joint){0};
    tsri_space_init(&space, m, &q->from.mesh, q->shape, q->element,
                    split_axes(q->from.layout.sbp) | split_axes(q->to.layout.sbp));
    tsri_state x = tsri_space_encode(&space, &q->from.layout);
    tsri_state y = tsri_space_encode(&space, &q->to.layout);
    const tsri_hop *hop = find_hop(hops, tsri_space_hops(&space, x, false, hops), y);
    if (hop) {
        *out_route = (tsri_route){0};
        tsri_route_append(out_route, &space, x, y, hop, false);
    }
    return joint_of(&space, hop, x);
}

double tsri_joint_price(const tsri_joint *member, int n, double share, bool *out_two_phase)
{
    double one = member[0].shake_s * share, two = 2 * one;
    for (int i = 0; i < n; i++) {
        one += member[i].rest_s[0];
        two += member[i].rest_s[1];
    }
    if (out_two_phase)
        *out_two_phase = two < one;
    return two < one ? two : one;
}
