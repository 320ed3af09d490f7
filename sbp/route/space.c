/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/route/space.h"
#include "src/core/status.h"

#include <math.h>

/* Numbers every sequence of the mesh's dimensions, shorter ones first. */
static void make_nests(tsri_space *s)
{
    s->nnests = 1;
    s->pop[0] = s->last[0] = s->mask[0] = s->depth[0] = 0;
    for (int n = 0; n < s->nnests; n++)
        for (int d = 0; d < s->mesh->ndim; d++) {
            if ((s->mask[n] | ~(unsigned)s->dims) >> d & 1)
                continue;
            int next = s->nnests++;
            s->push[n][d] = (uint8_t)next;
            s->pop[next] = (uint8_t)n;
            s->last[next] = (uint8_t)d;
            s->mask[next] = (uint8_t)(s->mask[n] | 1u << d);
            s->depth[next] = (uint8_t)(s->depth[n] + 1);
        }
}

static void choose_axes(tsri_space *s, tsr_dims shape, unsigned used)
{
    int large = 0, largest = -1;
    for (int a = 0; a < shape.ndim; a++) {
        large += used >> a & 1 || shape.d[a] > 1;
        if (!(used >> a & 1) && (largest < 0 || shape.d[a] > shape.d[largest]))
            largest = a;
    }
    for (int a = 0; a < shape.ndim; a++)
        if (shape.d[a] > 1 && (large <= TSRI_SEARCH_AXES || a == largest))
            used |= 1u << a;
    s->rest = 1;
    for (int a = 0; a < shape.ndim; a++) {
        s->axis_of[a] = used >> a & 1 ? s->naxes : -1;
        if (used >> a & 1)
            s->axis[s->naxes++] = a;
        else
            s->rest *= (double)shape.d[a];
    }
}

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
    int at[TSR_MAX_HIERARCHY], count = tsri_mesh_count(m, set);
    tsri_mesh_coord(m, TSRI_ALL_DIMS, reader, at);
    for (int i = 0; i < count; i++) {
        tsri_mesh_coord(m, set, i, at);
        int index = tsri_mesh_index(m, TSRI_ALL_DIMS, at);
        if (index != reader)
            peers[tsri_link_between(s->model, tsri_mesh_rank(m, reader),
                                    tsri_mesh_rank(m, index))]++;
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

/* Fills in what talking within each set of dimensions costs. */
static void fill_links(tsri_space *s)
{
    const tsri_cost_model *m = s->model;
    int inside[TSRI_MAX_LINKS][TSR_MAX_HIERARCHY];
    bool blocks = m->nlinks == 1 || in_sequence(s->mesh);
    for (int l = 0; blocks && l < m->nlinks; l++)
        blocks = find_blocks(s->mesh, l + 1 < m->nlinks ? m->link[l].ranks : 0, inside[l]);
    s->local = s->element / m->local_bytes_per_s;
    s->quickest = s->fastest = INFINITY;
    s->latency[0] = s->each[0] = s->ring[0] = s->far[0] = 0;
    for (unsigned t = 1; t < 1u << s->mesh->ndim; t++) {
        s->latency[t] = s->each[t] = s->ring[t] = s->far[t] = 0;
        if (t & ~(unsigned)s->dims)
            continue;
        double peers[TSRI_MAX_LINKS] = {0}, inner = 1; /* ranks that nearer links join */
        most_peers(s, t, inside, blocks, peers);
        for (int l = 0; l < m->nlinks; l++) {
            if (peers[l] <= 0)
                continue;
            double pace = s->element / m->link[l].bytes_per_s;
            s->each[t] += peers[l] / (s->size[t] - 1) * pace;
            s->far[t] = pace > s->far[t] ? pace : s->far[t];
            s->ring[t] = pace / inner > s->ring[t] ? pace / inner : s->ring[t];
            inner += peers[l];
            s->latency[t] = m->link[l].latency_s;
        }
        s->quickest = s->latency[t] < s->quickest ? s->latency[t] : s->quickest;
        if (!m->rings)
            s->ring[t] = s->each[t];
        double least = s->ring[t] < s->each[t] ? s->ring[t] : s->each[t];
        s->fastest = least < s->fastest ? least : s->fastest;
    }
}

void tsri_space_init(tsri_space *s, const tsri_cost_model *m, const tsri_mesh *mesh, tsr_dims shape,
                     size_t element, unsigned used)
{
    s->model = m;
    s->mesh = mesh;
    s->naxes = 0;
    s->dims = s->make_dims = s->make_ops = 0;
    s->most_bytes = 0;
    s->least_over = INT64_MAX;
    s->element = (double)element;
    s->all = (double)tsr_dims_count(shape);
    for (int d = 0; d < mesh->ndim; d++)
        s->dims |= (uint8_t)((mesh->dim[d] > 1) << d);
    choose_axes(s, shape, used);
    make_nests(s);
    s->size[0] = 1;
    for (unsigned t = 1; t < 1u << mesh->ndim; t++) {
        int d = __builtin_ctz(t);
        s->size[t] = s->size[t & (t - 1)] * mesh->dim[d];
    }
    for (int a = 0; a < s->naxes; a++)
        for (unsigned t = 0; t < 1u << mesh->ndim; t++) {
            int64_t length = shape.d[s->axis[a]], k = (int64_t)s->size[t];
            s->least[a][t] = (double)(length / k);
            s->most[a][t] = (double)((length + k - 1) / k);
        }
    fill_links(s);
}

tsri_state tsri_space_encode(const tsri_space *s, const tsri_layout *l)
{
    int nest[TSR_MAX_NDIM] = {0};
    tsri_state state = 0;
    for (int depth = 0; depth < l->sbp.ndim; depth++)
        for (int d = 0; d < l->sbp.ndim; d++)
            if (l->sbp.d[d].kind == TSR_SBP_SPLIT && l->depth[d] == depth) {
                int a = s->axis_of[l->sbp.d[d].arg];
                nest[a] = s->push[nest[a]][d];
            }
    for (int a = 0; a < s->naxes; a++)
        state |= (tsri_state)nest[a] << (TSRI_NEST_BITS * a);
    for (int d = 0; d < l->sbp.ndim; d++)
        if (l->sbp.d[d].kind == TSR_SBP_PARTIAL) {
            state |= (tsri_state)1 << (TSRI_PARTIAL_AT + d);
            state |= (tsri_state)l->sbp.d[d].arg << TSRI_OP_AT;
        }
    return state;
}

tsri_layout tsri_space_decode(const tsri_space *s, tsri_state state)
{
    tsri_layout l = {.sbp = {.ndim = (int8_t)s->mesh->ndim}};
    for (int d = 0; d < s->mesh->ndim; d++)
        l.sbp.d[d] = tsri_state_partial(state) >> d & 1
                         ? (tsr_sbp1){TSR_SBP_PARTIAL, (int8_t)tsri_state_op(state)}
                         : (tsr_sbp1){TSR_SBP_BROADCAST, 0};
    for (int a = 0; a < s->naxes; a++)
        for (int n = tsri_state_nest(state, a); n; n = s->pop[n]) {
            l.sbp.d[s->last[n]] = (tsr_sbp1){TSR_SBP_SPLIT, (int8_t)s->axis[a]};
            l.depth[s->last[n]] = (int8_t)(s->depth[n] - 1);
        }
    return l;
}

void tsri_space_allow(tsri_space *s, tsri_state from, tsri_state to)
{
    s->make_dims = s->dims;
    s->make_ops = (uint8_t)((tsri_state_partial(from) ? 1u << tsri_state_op(from) : 0) |
                            (tsri_state_partial(to) ? 1u << tsri_state_op(to) : 0));
}

double tsri_space_part(const tsri_space *s, tsri_state state)
{
    double part = s->rest;
    for (int a = 0; a < s->naxes; a++)
        part *= s->most[a][s->mask[tsri_state_nest(state, a)]];
    return part;
}

tsr_status tsri_route_look(const tsri_layout *l, tsr_dims shape, unsigned *out_ops, unsigned *axes)
{
    char text[TSRI_LAYOUT_TEXT_MAX];
    unsigned ops = 0;
    for (int d = 0; d < l->sbp.ndim; d++) {
        tsr_sbp1 e = l->sbp.d[d];
        if (e.kind == TSR_SBP_PARTIAL && (e.arg < TSR_REDUCE_SUM || e.arg > TSR_REDUCE_MIN))
            return tsri_fail(TSR_ERR_SBP, "P of reduction %d; legal are P(sum), P(max) and P(min)",
                             e.arg);
        if (e.kind == TSR_SBP_PARTIAL)
            ops |= 1u << e.arg;
        if (e.kind == TSR_SBP_SPLIT && e.arg >= shape.ndim)
            return tsri_fail(TSR_ERR_SBP, "%s splits axis %d of a tensor of %d axes",
                             tsri_layout_format(l, text), e.arg, shape.ndim);
        if (e.kind == TSR_SBP_SPLIT)
            *axes |= 1u << e.arg;
    }
    if (ops & (ops - 1))
        return tsri_fail(TSR_ERR_UNSUPPORTED,
                         "%s mixes kinds of P; a signature has partials of one kind only",
                         tsri_layout_format(l, text));
    *out_ops = ops;
    return TSR_OK;
}
