/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/route_price.h"

#include <math.h>

enum {
    MAX_READERS = 64 /* whose links are looked at, where machine and mesh do not fit */
};

static bool in_sequence(const tsri_mesh *m)
{
    int off = 0;
    for (int i = 0; m->rank && i < m->nranks; i++)
        off |= m->rank[i] - m->rank[0] - i;
    return !off;
}

/* Whether the link joins blocks of the mesh: then inside[d] is how many ranks along d it joins. */
static bool find_blocks(const tsri_mesh *m, int ranks, int *inside)
{
    int first = tsri_mesh_rank(m, 0), last = first + m->nranks - 1;
    bool all = ranks <= 0 || first / ranks == last / ranks;
    bool aligned = all || first % ranks == 0;
    for (int d = TSR_MAX_HIERARCHY - 1; d >= 0; d--) {
        int k = m->dim[d];
        inside[d] = all || ranks % k == 0 ? k : k % ranks == 0 ? ranks : 0;
        if (!all && !inside[d])
            return false;
        ranks /= all ? 1 : inside[d];
    }
    return all || (aligned && ranks == 1);
}

/* Peers of one rank per link within a set of dimensions. */
static void count_peers(const tsri_space *s, unsigned set, int reader, double *peers)
{
    const tsri_mesh *m = s->mesh;
    int at[TSR_MAX_HIERARCHY], mine = tsri_mesh_rank(m, reader), left = reader;
    for (int d = TSR_MAX_HIERARCHY - 1; d >= 0; d--) {
        at[d] = set >> d & 1 ? 0 : left % m->dim[d];
        left /= m->dim[d];
    }
    for (;;) {
        int index = 0, d = TSR_MAX_HIERARCHY - 1;
        for (int e = 0; e < TSR_MAX_HIERARCHY; e++)
            index = index * m->dim[e] + at[e];
        if (index != reader)
            peers[tsri_link_between(s->model, mine, tsri_mesh_rank(m, index))]++;
        for (; d >= 0; d--) {
            if (!(set >> d & 1))
                continue;
            if (++at[d] < m->dim[d])
                break;
            at[d] = 0;
        }
        if (d < 0)
            return;
    }
}

/* Most peers that a rank has over each link within a set of dimensions. */
static void most_peers(const tsri_space *s, unsigned set, int inside[][TSR_MAX_HIERARCHY],
                       bool blocks, double *most)
{
    if (blocks) {
        double nearer = 1;
        for (int l = 0; l < s->model->nlinks; l++) {
            double joined = 1;
            for (int d = 0; d < s->mesh->ndim; d++)
                joined *= set >> d & 1 ? inside[l][d] : 1;
            most[l] = joined - nearer;
            nearer = joined;
        }
        return;
    }
    int n = s->mesh->nranks, readers = n < MAX_READERS ? n : MAX_READERS;
    for (int i = 0; i < readers; i++) {
        double peers[TSRI_MAX_LINKS] = {0};
        count_peers(s, set, (int)((int64_t)i * n / readers), peers);
        for (int l = 0; l < s->model->nlinks; l++)
            most[l] = peers[l] > most[l] ? peers[l] : most[l];
    }
}

void tsri_space_links(tsri_space *s)
{
    const tsri_cost_model *m = s->model;
    int inside[TSRI_MAX_LINKS][TSR_MAX_HIERARCHY];
    bool blocks = m->nlinks == 1 || in_sequence(s->mesh);
    for (int l = 0; blocks && l < m->nlinks; l++)
        blocks = find_blocks(s->mesh, l + 1 < m->nlinks ? m->link[l].ranks : 0, inside[l]);
    s->local = s->element / m->local_bytes_per_s;
    s->quickest = s->fastest = INFINITY;
    s->latency[0] = s->each[0] = s->far[0] = 0;
    for (unsigned t = 1; t < 1u << s->mesh->ndim; t++) {
        s->latency[t] = s->each[t] = s->far[t] = 0;
        if (t & ~(unsigned)s->dims)
            continue;
        double peers[TSRI_MAX_LINKS] = {0};
        most_peers(s, t, inside, blocks, peers);
        for (int l = 0; l < m->nlinks; l++) {
            if (peers[l] <= 0)
                continue;
            double pace = s->element / m->link[l].bytes_per_s;
            s->each[t] += peers[l] / (s->size[t] - 1) * pace;
            s->far[t] = pace > s->far[t] ? pace : s->far[t];
            s->latency[t] = m->link[l].latency_s;
        }
        s->quickest = s->latency[t] < s->quickest ? s->latency[t] : s->quickest;
        s->fastest = s->each[t] < s->fastest ? s->each[t] : s->fastest;
    }
}

/* Elements of the busiest rank in a two-phase all-reduce: it reduces its share, then reads the
 * others'. */
static double two_phase_moved(double part, double k)
{
    return part + (k - 2) * ceil(part / k);
}

void tsri_space_phases(const tsri_space *s, const tsri_hop *hop, double from_part, double *talk)
{
    double k = s->size[hop->dims], each = s->each[hop->dims];
    talk[0] = from_part * (k - 1) * each;
    talk[1] = two_phase_moved(from_part, k) * each;
}

double tsri_space_price(const tsri_space *s, const tsri_hop *hop, double from_part, double to_part,
                        double own, bool *out_two_phase)
{
    unsigned set = hop->dims;
    double k = s->size[set], talk = s->latency[set], each = s->each[set], one, two, phases[2];
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
        return talk + to_part * (k - 1) * each + to_part * s->local;
    case TSRI_BOX_ALL_GATHER:
    case TSRI_BOX_ALL_TO_ALL:
        return talk + (to_part - own) * each + to_part * s->local;
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

/* What the part of nest n and the goal's share at most along an axis, on the first rank and on the
 * last. Ranks along the goal's P count together: what one of them has need not be read. */
static void share(tsri_goal *goal, const tsri_space *s, int a, int n, int q)
{
    unsigned together = tsri_state_partial(goal->state), inside = s->mask[n] & together;
    double first = s->most[a][s->mask[q]], last = s->least[a][s->mask[q]];
    double reach = s->size[inside] * s->most[a][s->mask[n]];
    int p = n, r = q, lone = 0;
    while (s->mask[p] & together && together >> s->last[p] & 1)
        p = s->pop[p];
    /* The splits outside of the first one along the goal's P. */
    for (int m = lone = p; m; m = s->pop[m])
        lone = together >> s->last[m] & 1 ? s->pop[m] : lone;
    bool box = lone == p; /* together they have one box */
    unsigned deeper = s->mask[s->depth[p] > s->depth[q] ? p : q];
    for (p = lone; s->depth[p] > s->depth[r];)
        p = s->pop[p];
    while (s->depth[r] > s->depth[p])
        r = s->pop[r];
    bool apart = p != r;
    if (box && !apart) {
        first = s->most[a][deeper];
        last = s->least[a][deeper];
    } else {
        first = reach < first ? reach : first;
        last = apart ? 0 : reach < last ? reach : last;
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
            share(goal, s, a, n, q);
    }
    goal->holders = s->size[s->dims & ~(split | tsri_state_partial(state))];
}

double tsri_goal_missing(const tsri_goal *goal, const tsri_space *s, tsri_state x)
{
    unsigned px = tsri_state_partial(x), py = tsri_state_partial(goal->state);
    unsigned kept = tsri_state_op(x) == tsri_state_op(goal->state) ? px & py : 0;
    unsigned reduced = px & ~kept;
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
    } /* else nobody has any element's sum yet */
    double missing = (first > last ? first : last) / s->size[py];
    if (reduced) {
        /* The first ranks along the goal's P to have a sum take an addend from each rank outside
         * that has another; all others that hold the element take something. */
        double outside = s->size[kept] * (s->size[reduced] - s->size[reduced & py]);
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
    double result = goal->relabels ? 0 : goal->first * s->local;
    double start = s->quickest < s->model->kernel_s ? s->quickest : s->model->kernel_s;
    double bound = missing > 0      ? s->quickest + missing * s->fastest + result
                   : goal->relabels ? 0
                                    : start + result;
    return bound * (1 - 1e-12);
}
