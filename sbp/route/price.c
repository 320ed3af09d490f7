/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/route/space.h"

#include <math.h>

/* Elements of the busiest rank in a two-phase all-reduce: it reduces its share, then reads the
 * others'. */
static double two_phase_moved(double part, double k)
{
    return part + (k - 2) * ceil(part / k);
}

void tsri_space_phases(const tsri_space *s, const tsri_hop *hop, double from_part, double *talk)
{
    double k = s->size[hop->dims], each = s->ring[hop->dims];
    talk[0] = from_part * (k - 1) * each;
    talk[1] = two_phase_moved(from_part, k) * each;
}

double tsri_space_price(const tsri_space *s, const tsri_hop *hop, double from_part, double to_part,
                        double own, bool *out_two_phase)
{
    unsigned set = hop->dims;
    double k = s->size[set], talk = s->latency[set], ring = s->ring[set], one, two, phases[2];
    *out_two_phase = false;
    switch ((tsri_box_kind)hop->kind) {
    case TSRI_BOX_RELABEL:
        return 0;
    case TSRI_BOX_SLICE:
        return s->model->kernel_s + 2 * to_part * s->local;
    case TSRI_BOX_FILL:
    case TSRI_BOX_KEEP:
        return s->model->kernel_s + to_part * s->local;
    case TSRI_BOX_ALL_REDUCE:
        tsri_space_phases(s, hop, from_part, phases);
        one = talk + phases[0];
        two = 2 * talk + phases[1];
        *out_two_phase = two < one;
        return (two < one ? two : one) + to_part * s->local;
    case TSRI_BOX_REDUCE_SCATTER:
        return talk + to_part * (k - 1) * ring + to_part * s->local;
    case TSRI_BOX_ALL_GATHER:
        return talk + (to_part - own) * ring + to_part * s->local;
    case TSRI_BOX_ALL_TO_ALL:
        return talk + (to_part - own) * s->each[set] + to_part * s->local;
    case TSRI_BOX_SEND_RECV:
        break;
    }
    return INFINITY;
}

/* How the parts of two states meet. */
typedef struct meeting {
    bool apart; /* on some rank they surely do not */
    unsigned read, cut,
        reduced;         /* dimensions whose peers are read, that split anew, whose P goes */
    double part, shared; /* elements of y's largest part; of it and x's smallest */
} meeting;

static meeting meet(const tsri_space *s, tsri_state x, tsri_state y)
{
    meeting m = {.part = s->rest, .shared = s->rest};
    for (int a = 0; a < s->naxes; a++) {
        int p = tsri_state_nest(x, a), q = tsri_state_nest(y, a);
        unsigned px = s->mask[p], qy = s->mask[q];
        double length = s->most[a][qy];
        m.part *= length;
        if (p == q) {
            m.shared *= length;
            continue;
        }
        while (s->depth[p] > s->depth[q])
            p = s->pop[p];
        while (s->depth[q] > s->depth[p])
            q = s->pop[q];
        m.apart |= p != q;
        while (p != q) {
            p = s->pop[p];
            q = s->pop[q];
        }
        unsigned tail = px & ~(unsigned)s->mask[p];
        m.read |= tail;
        m.cut |= qy & ~(unsigned)s->mask[p];
        m.shared *= tail ? s->most[a][px] - (s->most[a][px] * s->size[tail] != length) : length;
    }
    m.reduced = tsri_state_partial(x) & ~tsri_state_partial(y);
    m.read |= m.reduced;
    return m;
}

static double meeting_moved(const tsri_space *s, const meeting *m)
{
    if (!m->read)
        return 0;
    return s->size[m->reduced] * m->part - (m->apart ? 0 : m->shared);
}

double tsri_space_moved(const tsri_space *s, const tsri_hop *hop, tsri_state x, tsri_state y)
{
    if (!tsri_box_is_collective((tsri_box_kind)hop->kind))
        return 0;
    if (hop->two_phase)
        return two_phase_moved(tsri_space_part(s, x), s->size[hop->dims]);
    meeting m = meet(s, x, y);
    return meeting_moved(s, &m);
}

bool tsri_space_direct(tsri_space *s, tsri_state x, tsri_state y, tsri_hop *out)
{
    unsigned kept = tsri_state_partial(y);
    if (x == y || kept & ~tsri_state_partial(x) || (kept && tsri_state_op(x) != tsri_state_op(y)))
        return false;
    meeting m = meet(s, x, y);
    if (s->most_bytes) {
        int64_t peak = (int64_t)((m.part + tsri_space_part(s, x)) * s->element);
        if (peak > s->most_bytes) {
            s->least_over = peak < s->least_over ? peak : s->least_over;
            return false;
        }
    }
    *out = (tsri_hop){.to = y, .dims = (uint8_t)(m.read | m.cut)};
    if (m.read) {
        out->kind = TSRI_BOX_SEND_RECV;
        out->cost = s->latency[m.read] +
                    meeting_moved(s, &m) * (m.apart ? s->far : s->each)[m.read] + m.part * s->local;
    } else {
        out->kind = TSRI_BOX_SLICE;
        out->cost = tsri_space_price(s, out, 0, m.part, 0, &out->two_phase);
    }
    return true;
}
