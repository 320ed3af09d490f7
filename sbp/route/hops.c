/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/route/space.h"

/* The state whose hops are being listed. */
typedef struct lister {
    tsri_space *s;
    tsri_state from;
    bool back;
    double part;                 /* elements */
    double length[TSR_MAX_NDIM]; /* of the part, per axis */
    double others[TSR_MAX_NDIM]; /* elements of it per one of the axis */
    int nest[TSR_MAX_NDIM], n;
    unsigned partial, broadcast;
    tsri_hop *hops;
} lister;

/* Adds a hop to `to`, whose part has `part` elements; own: what the busiest rank has of the new
 * part already, of steps that move splits. */
static void add(lister *g, tsri_box_kind kind, unsigned dims, tsri_state to, double part,
                double own)
{
    tsri_space *s = g->s;
    if (s->most_bytes) {
        int64_t peak = (int64_t)((part + g->part) * s->element);
        if (peak > s->most_bytes) {
            s->least_over = peak < s->least_over ? peak : s->least_over;
            return;
        }
    }
    tsri_hop *hop = &g->hops[g->n++];
    *hop = (tsri_hop){.to = to, .kind = (uint8_t)kind, .dims = (uint8_t)dims};
    hop->cost = tsri_space_price(s, hop, g->back ? part : g->part, g->back ? g->part : part, own,
                                 &hop->two_phase);
}

static tsri_state without_partial(tsri_state state, unsigned dims)
{
    state &= ~((tsri_state)dims << TSRI_PARTIAL_AT);
    return tsri_state_partial(state) ? state : state & ~((tsri_state)3 << TSRI_OP_AT);
}

/* The length that the smallest of k parts has of a length whose largest part is `most`. */
static double smallest(double most, double k, double length)
{
    return most - (most * k != length);
}

/* Dimensions of `left` become innermost splits of an axis: of B in any number and order, of P the
 * same; of splits of axis `source` all of them. */
static void list_pushes(lister *g, int axis, int nest, unsigned left, unsigned taken, int source,
                        bool partial, tsri_state base)
{
    tsri_space *s = g->s;
    for (unsigned rest = left; rest; rest &= rest - 1) {
        int d = __builtin_ctz(rest), next = s->push[nest][d];
        unsigned now = taken | 1u << d;
        double length = s->most[axis][s->mask[next]], k = s->size[now];
        tsri_state to = base + ((tsri_state)next << (TSRI_NEST_BITS * axis));
        if (source >= 0) {
            /* The axis that loses the splits, in the direction of the step, and what stays. */
            if (left == 1u << d) {
                double whole = s->most[source][s->mask[g->nest[source]] & ~now];
                double apart = s->rest;
                for (int a = 0; a < s->naxes; a++)
                    apart *= a == axis || a == source ? 1 : g->length[a];
                double own = g->back
                                 ? smallest(length, k, g->length[axis]) * g->length[source] * apart
                                 : smallest(g->length[source], k, whole) * length * apart;
                add(g, TSRI_BOX_ALL_TO_ALL, now, to, apart * whole * length, own);
            }
        } else if (partial) {
            add(g, g->back ? TSRI_BOX_FILL : TSRI_BOX_REDUCE_SCATTER, now, without_partial(to, now),
                length * g->others[axis], 0);
        } else {
            add(g, g->back ? TSRI_BOX_ALL_GATHER : TSRI_BOX_SLICE, now, to,
                length * g->others[axis], smallest(length, k, g->length[axis]) * g->others[axis]);
        }
        list_pushes(g, axis, next, left & ~(1u << d), now, source, partial, base);
    }
}

/* The innermost splits of an axis become B, P, or splits of another. */
static void list_pops(lister *g, int axis)
{
    tsri_space *s = g->s;
    unsigned taken = 0;
    tsri_state base = g->from - ((tsri_state)g->nest[axis] << (TSRI_NEST_BITS * axis));
    for (int n = g->nest[axis]; n;) {
        taken |= 1u << s->last[n];
        n = s->pop[n];
        double length = s->most[axis][s->mask[n]], part = length * g->others[axis];
        tsri_state to = base + ((tsri_state)n << (TSRI_NEST_BITS * axis));
        add(g, g->back ? TSRI_BOX_SLICE : TSRI_BOX_ALL_GATHER, taken, to, part,
            smallest(g->length[axis], s->size[taken], length) * g->others[axis]);
        for (int op = 0; op < 3 && !(taken & ~(unsigned)s->make_dims); op++)
            if (s->make_ops >> op & 1 && (!g->partial || tsri_state_op(g->from) == op))
                add(g, g->back ? TSRI_BOX_REDUCE_SCATTER : TSRI_BOX_FILL, taken,
                    to | (tsri_state)taken << TSRI_PARTIAL_AT | (tsri_state)op << TSRI_OP_AT, part,
                    0);
        for (int a = 0; a < s->naxes; a++)
            if (a != axis)
                list_pushes(g, a, g->nest[a], taken, 0, axis, false,
                            to - ((tsri_state)g->nest[a] << (TSRI_NEST_BITS * a)));
    }
}

/* B becomes P, and P B. */
static void list_partials(lister *g)
{
    const tsri_space *s = g->s;
    unsigned may = g->broadcast & s->make_dims;
    for (int op = 0; op < 3; op++) {
        if (!(s->make_ops >> op & 1) || (g->partial && tsri_state_op(g->from) != op))
            continue;
        tsri_box_kind kind = g->back                ? TSRI_BOX_ALL_REDUCE
                             : op == TSR_REDUCE_SUM ? TSRI_BOX_KEEP
                                                    : TSRI_BOX_RELABEL;
        for (unsigned t = may; t; t = (t - 1) & may)
            add(g, kind, t,
                g->from | (tsri_state)t << TSRI_PARTIAL_AT | (tsri_state)op << TSRI_OP_AT, g->part,
                0);
    }
    tsri_box_kind kind = !g->back                                   ? TSRI_BOX_ALL_REDUCE
                         : tsri_state_op(g->from) == TSR_REDUCE_SUM ? TSRI_BOX_KEEP
                                                                    : TSRI_BOX_RELABEL;
    for (unsigned t = g->partial; t; t = (t - 1) & g->partial)
        add(g, kind, t, without_partial(g->from, t), g->part, 0);
}

int tsri_space_hops(tsri_space *s, tsri_state from, bool back, tsri_hop *hops)
{
    lister g = {.s = s, .from = from, .back = back, .part = s->rest, .hops = hops};
    unsigned split = 0;
    for (int a = 0; a < s->naxes; a++) {
        g.nest[a] = tsri_state_nest(from, a);
        g.length[a] = s->most[a][s->mask[g.nest[a]]];
        g.part *= g.length[a];
        split |= s->mask[g.nest[a]];
    }
    for (int a = 0; a < s->naxes; a++) {
        g.others[a] = s->rest;
        for (int b = 0; b < s->naxes; b++)
            g.others[a] *= b == a ? 1 : g.length[b];
    }
    g.partial = tsri_state_partial(from);
    g.broadcast = s->dims & ~split & ~g.partial;
    list_partials(&g);
    for (int a = 0; a < s->naxes; a++) {
        tsri_state base = from - ((tsri_state)g.nest[a] << (TSRI_NEST_BITS * a));
        list_pops(&g, a);
        list_pushes(&g, a, g.nest[a], g.broadcast, 0, -1, false, base);
        list_pushes(&g, a, g.nest[a], g.partial, 0, -1, true, base);
    }
    return g.n;
}

void tsri_route_append(tsri_route *r, const tsri_space *s, tsri_state x, tsri_state y,
                       const tsri_hop *hop, bool on_dst)
{
    tsri_state p = tsri_state_partial(x) ? x : y;
    int64_t peak = (int64_t)((tsri_space_part(s, x) + tsri_space_part(s, y)) * s->element);
    tsri_route_step *step = &r->step[r->n++];
    *step = (tsri_route_step){.kind = (tsri_box_kind)hop->kind,
                              .dims = hop->dims,
                              .on_dst = on_dst,
                              .two_phase = hop->two_phase,
                              .op = (tsr_reduce_op)tsri_state_op(p),
                              .from = tsri_space_decode(s, x),
                              .to = tsri_space_decode(s, y),
                              .cost_s = hop->cost,
                              .bytes = (int64_t)(tsri_space_moved(s, hop, x, y) * s->element)};
    r->cost_s += step->cost_s;
    r->bytes += step->bytes;
    r->peak_bytes = peak > r->peak_bytes ? peak : r->peak_bytes;
}
