/* SPDX-License-Identifier: Apache-2.0 */
/* The price of a step that was planned for other figures or sizes. */
#include "sbp/route/route.h"
#include "sbp/route/space.h"

static unsigned split_axes(const tsri_layout *l)
{
    unsigned axes = 0;
    for (int d = 0; d < l->sbp.ndim; d++)
        axes |= l->sbp.d[d].kind == TSR_SBP_SPLIT ? 1u << l->sbp.d[d].arg : 0;
    return axes;
}

/* The hop of the step's kind and dimensions from x to y; false if there is none. */
static bool find_hop(tsri_space *s, const tsri_route_step *step, tsri_state x, tsri_state y,
                     tsri_hop *out)
{
    tsri_hop hops[TSRI_MAX_HOPS];
    int n = tsri_space_hops(s, x, false, hops);
    for (int i = 0; i < n; i++)
        if (hops[i].to == y && hops[i].kind == (uint8_t)step->kind && hops[i].dims == step->dims) {
            *out = hops[i];
            return true;
        }
    return false;
}

static tsr_status price_on_mesh(const tsri_cost_model *m, const tsri_route_query *q,
                                tsri_route_step *step)
{
    tsri_space s;
    tsri_space_init(&s, m, &q->from.mesh, q->shape, q->element,
                    split_axes(&step->from) | split_axes(&step->to));
    tsri_state x = tsri_space_encode(&s, &step->from), y = tsri_space_encode(&s, &step->to);
    tsri_hop hop = {.to = y, .kind = (uint8_t)step->kind, .dims = step->dims};
    bool moves_splits = step->kind == TSRI_BOX_ALL_GATHER || step->kind == TSRI_BOX_ALL_TO_ALL;
    bool found = true;
    if (step->kind == TSRI_BOX_SEND_RECV)
        found = tsri_space_direct(&s, x, y, &hop) && hop.kind == TSRI_BOX_SEND_RECV;
    else if (moves_splits)
        found = find_hop(&s, step, x, y, &hop);
    else
        hop.cost = tsri_space_price(&s, &hop, tsri_space_part(&s, x), tsri_space_part(&s, y), 0,
                                    &hop.two_phase);
    if (!found)
        return tsri_fail(TSR_ERR_UNSUPPORTED, "a step that other sizes do not have");
    step->cost_s = hop.cost;
    step->two_phase = hop.two_phase;
    step->bytes = (int64_t)(tsri_space_moved(&s, &hop, x, y) * s.element);
    return TSR_OK;
}

tsr_status tsri_route_price_again(const tsri_cost_model *m, const tsri_route_query *q,
                                  tsri_route_step *step)
{
    tsri_route route;
    if (!step->crosses)
        return price_on_mesh(m, q, step);
    TSRI_TRY(tsri_route_find(m, q, &route));
    if (route.n != 1 || !route.step[0].crosses)
        return tsri_fail(TSR_ERR_UNSUPPORTED, "a route between placements that is another then");
    step->cost_s = route.step[0].cost_s;
    step->bytes = route.step[0].bytes;
    return TSR_OK;
}
