/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/box.h"

static tsri_box_kind direct(tsr_sbp1 from, tsr_sbp1 to)
{
    switch ((tsr_sbp_kind)from.kind) {
    case TSR_SBP_SPLIT:
        return to.kind == TSR_SBP_SPLIT       ? TSRI_BOX_ALL_TO_ALL
               : to.kind == TSR_SBP_BROADCAST ? TSRI_BOX_ALL_GATHER
                                              : TSRI_BOX_FILL;
    case TSR_SBP_BROADCAST:
        return to.kind == TSR_SBP_SPLIT   ? TSRI_BOX_SLICE
               : to.arg == TSR_REDUCE_SUM ? TSRI_BOX_KEEP
                                          : TSRI_BOX_RELABEL;
    case TSR_SBP_PARTIAL:
        return to.kind == TSR_SBP_SPLIT ? TSRI_BOX_REDUCE_SCATTER : TSRI_BOX_ALL_REDUCE;
    case TSR_SBP_AUTO:
        break;
    }
    return TSRI_BOX_RELABEL;
}

tsri_box_route tsri_box_find(tsr_sbp1 from, tsr_sbp1 to)
{
    const tsr_sbp1 b = {TSR_SBP_BROADCAST, 0};
    tsri_box_route r = {0};
    if (tsri_sbp1_equal(from, to))
        return r;
    if (from.kind == TSR_SBP_PARTIAL && to.kind == TSR_SBP_PARTIAL) {
        r.step[r.n++] = (tsri_box_step){TSRI_BOX_ALL_REDUCE, from, b};
        from = b;
    }
    r.step[r.n++] = (tsri_box_step){direct(from, to), from, to};
    return r;
}

static double all_reduce_cost(const tsri_cost_model *m, double bytes, int k, bool two_phase)
{
    double n = k;
    if (two_phase)
        return 2 * m->link[0].latency_s + 2 * bytes * (n - 1) / n / m->link[0].bytes_per_s +
               bytes / m->local_bytes_per_s;
    return m->link[0].latency_s + bytes * (n - 1) / m->link[0].bytes_per_s +
           bytes / m->local_bytes_per_s;
}

bool tsri_box_two_phase(const tsri_cost_model *m, double bytes, int k)
{
    return k > 1 && all_reduce_cost(m, bytes, k, true) < all_reduce_cost(m, bytes, k, false);
}

static double step_cost(const tsri_cost_model *m, tsri_box_kind kind, double bytes, int k)
{
    double n = k, whole = bytes / m->local_bytes_per_s;
    switch (kind) {
    case TSRI_BOX_RELABEL:
        return 0;
    case TSRI_BOX_SLICE:
        return m->kernel_s + 2 * whole / n;
    case TSRI_BOX_FILL:
    case TSRI_BOX_KEEP:
        return m->kernel_s + whole;
    case TSRI_BOX_ALL_REDUCE:
        return all_reduce_cost(m, bytes, k, tsri_box_two_phase(m, bytes, k));
    case TSRI_BOX_ALL_GATHER:
        return m->link[0].latency_s + bytes * (n - 1) / n / m->link[0].bytes_per_s + whole;
    case TSRI_BOX_REDUCE_SCATTER:
        return m->link[0].latency_s + bytes * (n - 1) / n / m->link[0].bytes_per_s + whole / n;
    case TSRI_BOX_ALL_TO_ALL:
        return m->link[0].latency_s + bytes * (n - 1) / (n * n) / m->link[0].bytes_per_s +
               whole / n;
    case TSRI_BOX_SEND_RECV:
        break;
    }
    return 0;
}

double tsri_box_cost(const tsri_cost_model *m, tsr_sbp1 from, tsr_sbp1 to, double bytes, int k)
{
    tsri_box_route r = tsri_box_find(from, to);
    double cost = 0;
    for (int i = 0; i < r.n && k > 1; i++)
        cost += step_cost(m, r.step[i].kind, bytes, k);
    return cost;
}
