/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/sbp/route_steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_valid(const tsri_mesh *m, const int *code, const int *depth)
{
    int partial = 0;
    for (int d = 0; d < m->ndim; d++) {
        if (m->dim[d] == 1 && code[d] != RR_B)
            return false;
        if (code[d] < 0 && depth[d] != 0)
            return false;
        if (code[d] <= RR_P && partial && partial != code[d])
            return false;
        partial = code[d] <= RR_P ? code[d] : partial;
        /* Depths of one axis are 0, 1, 2, ... in some order. */
        int same = 0;
        for (int e = 0; e < m->ndim && code[d] >= 0; e++) {
            same += code[e] == code[d];
            if (e != d && code[e] == code[d] && depth[e] == depth[d])
                return false;
        }
        if (code[d] >= 0 && depth[d] >= same)
            return false;
    }
    return true;
}

static void add_layout(rs_world *w, const int *code, const int *depth)
{
    w->at = realloc(w->at, ((size_t)w->n + 1) * sizeof *w->at);
    rs_layout *s = &w->at[w->n++];
    *s = (rs_layout){.layout.sbp = rr_sbp(w->mesh.ndim, code)};
    s->length = calloc((size_t)w->mesh.nranks, sizeof *s->length);
    for (int d = 0; d < w->mesh.ndim; d++)
        s->layout.depth[d] = (int8_t)depth[d];
    for (int i = 0; i < w->mesh.nranks; i++) {
        int64_t begin[TSR_MAX_NDIM], volume = 1;
        rr_part(w->shape, &w->mesh, &s->layout, i, begin, s->length[i]);
        for (int a = 0; a < w->shape.ndim; a++)
            volume *= s->length[i][a];
        s->most = volume > s->most ? volume : s->most;
    }
}

static void list_layouts(rs_world *w, int kinds)
{
    int m = w->mesh.ndim, codes = w->shape.ndim + kinds, n = 1;
    for (int d = 0; d < m; d++)
        n *= codes * m;
    for (int i = 0; i < n; i++) {
        int code[TSR_MAX_HIERARCHY], depth[TSR_MAX_HIERARCHY], left = i;
        for (int d = 0; d < m; d++) {
            int c = left % codes;
            code[d] = c < w->shape.ndim ? c : w->shape.ndim - 1 - c;
            left /= codes;
            depth[d] = left % m;
            left /= m;
        }
        if (is_valid(&w->mesh, code, depth))
            add_layout(w, code, depth);
    }
}

static bool same_entry(const rs_layout *x, const rs_layout *y, int d)
{
    return x->layout.sbp.d[d].kind == y->layout.sbp.d[d].kind &&
           x->layout.sbp.d[d].arg == y->layout.sbp.d[d].arg;
}

static void coordinates(const tsri_mesh *m, int index, int *at)
{
    for (int d = m->ndim - 1; d >= 0; d--) {
        at[d] = index % m->dim[d];
        index /= m->dim[d];
    }
}

static rs_talk talk_of(const rs_world *w, unsigned dims)
{
    rs_talk t = {.k = 1};
    double most[TSRI_MAX_LINKS] = {0};
    for (int d = 0; d < w->mesh.ndim; d++)
        t.k *= dims >> d & 1 ? w->mesh.dim[d] : 1;
    for (int i = 0; i < w->mesh.nranks; i++) {
        double peers[TSRI_MAX_LINKS] = {0};
        int ci[TSR_MAX_HIERARCHY], cj[TSR_MAX_HIERARCHY];
        coordinates(&w->mesh, i, ci);
        for (int j = 0; j < w->mesh.nranks; j++) {
            bool peer = i != j;
            coordinates(&w->mesh, j, cj);
            for (int d = 0; d < w->mesh.ndim; d++)
                peer = peer && (dims >> d & 1 || ci[d] == cj[d]);
            int l = 0, a = w->mesh.rank ? w->mesh.rank[i] : i,
                b = w->mesh.rank ? w->mesh.rank[j] : j;
            while (l < w->model.nlinks - 1 &&
                   a / w->model.link[l].ranks != b / w->model.link[l].ranks)
                l++;
            peers[l] += peer;
        }
        for (int l = 0; l < w->model.nlinks; l++)
            most[l] = fmax(most[l], peers[l]);
    }
    for (int l = 0; l < w->model.nlinks; l++)
        if (most[l] > 0) {
            t.latency = w->model.link[l].latency_s;
            t.each += most[l] / (t.k - 1) / w->model.link[l].bytes_per_s;
            t.far = fmax(t.far, 1 / w->model.link[l].bytes_per_s);
            double inner = 1; /* ranks of a node, whose shares of what comes in add up */
            for (int m = 0; m < l; m++)
                inner += most[m];
            t.ring = fmax(t.ring, 1 / w->model.link[l].bytes_per_s / inner);
        }
    if (!w->model.rings)
        t.ring = t.each;
    return t;
}

/* Dimensions that split an axis, outermost first. */
static int sequence(const tsri_layout *l, int axis, int *seq)
{
    int n = 0;
    for (int depth = 0; depth < l->sbp.ndim; depth++)
        for (int d = 0; d < l->sbp.ndim; d++)
            if (l->sbp.d[d].kind == TSR_SBP_SPLIT && l->sbp.d[d].arg == axis &&
                l->depth[d] == depth)
                seq[n++] = d;
    return n;
}

/* How two layouts meet: the dimensions that split x but not y the same way, and the reverse; what
 * every rank surely has of y's largest part. */
static double meet(const rs_world *w, const rs_layout *x, const rs_layout *y, unsigned *gone,
                   unsigned *come, bool *apart)
{
    double shared = 1;
    *gone = *come = 0;
    *apart = false;
    for (int a = 0; a < w->shape.ndim; a++) {
        int p[TSR_MAX_HIERARCHY], q[TSR_MAX_HIERARCHY], common = 0;
        int np = sequence(&x->layout, a, p), nq = sequence(&y->layout, a, q);
        while (common < np && common < nq && p[common] == q[common])
            common++;
        for (int i = common; i < np; i++)
            *gone |= 1u << p[i];
        for (int i = common; i < nq; i++)
            *come |= 1u << q[i];
        *apart = *apart || (common < np && common < nq);
        /* Of the ranks whose new part is longest, the least that one has of it. */
        int64_t longest = 0, has = INT64_MAX;
        for (int i = 0; i < w->mesh.nranks; i++)
            longest = y->length[i][a] > longest ? y->length[i][a] : longest;
        for (int i = 0; i < w->mesh.nranks; i++)
            if (y->length[i][a] == longest) {
                int64_t own = x->length[i][a] < longest ? x->length[i][a] : longest;
                has = own < has ? own : has;
            }
        shared *= (double)has;
    }
    return *apart ? 0 : shared;
}

static bool fits(const rs_world *w, const rs_layout *x, const rs_layout *y)
{
    return w->most_bytes == 0 || (x->most + y->most) * w->element <= w->most_bytes;
}

static double all_reduce(const rs_world *w, const rs_layout *x, const rs_talk *t, double *moved)
{
    double e = (double)w->element, part = (double)x->most;
    double chunk = ceil(part / t->k), two_moved = (t->k - 1) * chunk + part - chunk;
    double one = t->latency + part * (t->k - 1) * e * t->ring,
           two = 2 * t->latency + two_moved * e * t->ring;
    *moved = two < one ? two_moved : part * (t->k - 1);
    return fmin(one, two) + part * e / w->model.local_bytes_per_s;
}

bool rs_step(const rs_world *w, int from, int to, double *cost, int64_t *bytes)
{
    const rs_layout *x = &w->at[from], *y = &w->at[to];
    unsigned dims = 0, gone, come;
    bool apart;
    tsr_sbp1 p = {0}, q = {0};
    for (int d = 0; d < w->mesh.ndim; d++) {
        if (same_entry(x, y, d)) {
            if (x->layout.depth[d] != y->layout.depth[d])
                return false;
            continue;
        }
        if (dims && (p.kind != x->layout.sbp.d[d].kind || p.arg != x->layout.sbp.d[d].arg ||
                     q.kind != y->layout.sbp.d[d].kind || q.arg != y->layout.sbp.d[d].arg))
            return false;
        p = x->layout.sbp.d[d];
        q = y->layout.sbp.d[d];
        dims |= 1u << d;
    }
    if (!dims || !fits(w, x, y) || (p.kind == TSR_SBP_PARTIAL && q.kind == TSR_SBP_PARTIAL))
        return false;
    rs_talk t = w->talk[dims];
    double e = (double)w->element, local = (double)y->most * e / w->model.local_bytes_per_s;
    double moved = 0, shared = meet(w, x, y, &gone, &come, &apart);
    if (p.kind == TSR_SBP_BROADCAST) {
        *cost = q.kind == TSR_SBP_SPLIT   ? w->model.kernel_s + 2 * local
                : q.arg == TSR_REDUCE_SUM ? w->model.kernel_s + local
                                          : 0;
    } else if (p.kind == TSR_SBP_SPLIT && q.kind == TSR_SBP_PARTIAL) {
        *cost = w->model.kernel_s + local;
    } else if (p.kind == TSR_SBP_SPLIT) {
        moved = (double)y->most - shared;
        *cost = t.latency + moved * e * (q.kind == TSR_SBP_SPLIT ? t.each : t.ring) + local;
    } else if (q.kind == TSR_SBP_SPLIT) {
        moved = (t.k - 1) * (double)y->most;
        *cost = t.latency + moved * e * t.ring + local;
    } else {
        *cost = all_reduce(w, x, &t, &moved);
    }
    *bytes = (int64_t)(moved * e);
    return true;
}

bool rs_direct(const rs_world *w, int from, int to, double *cost, int64_t *bytes)
{
    const rs_layout *x = &w->at[from], *y = &w->at[to];
    unsigned gone, come, reduced = 0;
    bool apart;
    if (from == to || !fits(w, x, y))
        return false;
    for (int d = 0; d < w->mesh.ndim; d++) {
        bool px = x->layout.sbp.d[d].kind == TSR_SBP_PARTIAL;
        bool py = y->layout.sbp.d[d].kind == TSR_SBP_PARTIAL;
        if (py && !same_entry(x, y, d))
            return false;
        reduced |= (unsigned)(px && !py) << d;
    }
    double shared = meet(w, x, y, &gone, &come, &apart), e = (double)w->element;
    double local = (double)y->most * e / w->model.local_bytes_per_s;
    *bytes = 0;
    if (!(gone | reduced)) {
        *cost = w->model.kernel_s + 2 * local;
        return true;
    }
    rs_talk t = w->talk[gone | reduced], r = w->talk[reduced];
    double moved = r.k * (double)y->most - shared;
    *bytes = (int64_t)(moved * e);
    *cost = t.latency + moved * e * (apart ? t.far : t.each) + local;
    return true;
}

void rs_init(rs_world *w, const tsri_cost_model *model, const tsri_mesh *mesh, tsr_dims shape,
             int64_t element, int kinds, int64_t most_bytes)
{
    *w = (rs_world){.model = *model,
                    .mesh = *mesh,
                    .shape = shape,
                    .element = element,
                    .most_bytes = most_bytes};
    for (unsigned dims = 0; dims < 1u << mesh->ndim; dims++)
        w->talk[dims] = talk_of(w, dims);
    list_layouts(w, kinds);
    w->first = calloc((size_t)w->n + 1, sizeof *w->first);
    int count = 0, room = 0;
    for (int x = 0; x < w->n; x++) {
        for (int y = 0; y < w->n; y++) {
            rs_edge e = {.to = y};
            if (!rs_step(w, x, y, &e.cost, &e.bytes))
                continue;
            if (count == room) {
                room = 2 * room + 64;
                w->edge = realloc(w->edge, (size_t)room * sizeof *w->edge);
            }
            w->edge[count++] = e;
        }
        w->first[x + 1] = count;
    }
}

void rs_finish(rs_world *w)
{
    for (int i = 0; i < w->n; i++)
        free(w->at[i].length);
    free(w->at);
    free(w->edge);
    free(w->first);
}

int rs_find(const rs_world *w, const tsri_layout *l)
{
    for (int i = 0; i < w->n; i++)
        if (!memcmp(&w->at[i].layout, l, sizeof *l))
            return i;
    return -1;
}

/* The kinds of P that a layout has. */
static unsigned kinds_of(const tsri_layout *l)
{
    unsigned kinds = 0;
    for (int d = 0; d < l->sbp.ndim; d++)
        if (l->sbp.d[d].kind == TSR_SBP_PARTIAL)
            kinds |= 1u << l->sbp.d[d].arg;
    return kinds;
}

unsigned rs_short_axes(const rs_world *w, const tsri_layout *l)
{
    unsigned axes = 0;
    for (int d = 0; d < w->mesh.ndim; d++)
        if (l->sbp.d[d].kind == TSR_SBP_SPLIT && w->shape.d[l->sbp.d[d].arg] <= 1)
            axes |= 1u << l->sbp.d[d].arg;
    return axes;
}

void rs_costs(const rs_world *w, const tsri_layout *from, const tsri_layout *to, double *cost)
{
    /* It has P of the kinds that the ends have, and splits no axis of one element but theirs. */
    bool *way = calloc((size_t)w->n, sizeof *way);
    unsigned ends = rs_short_axes(w, from) | rs_short_axes(w, to);
    for (int i = 0; i < w->n; i++) {
        cost[i] = tsri_layout_equal(&w->at[i].layout, from) ? 0 : INFINITY;
        way[i] = !(kinds_of(&w->at[i].layout) & ~(kinds_of(from) | kinds_of(to))) &&
                 !(rs_short_axes(w, &w->at[i].layout) & ~ends);
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < w->n; i++)
            for (int e = w->first[i]; e < w->first[i + 1] && cost[i] < INFINITY; e++)
                if (way[w->edge[e].to] && cost[i] + w->edge[e].cost < cost[w->edge[e].to]) {
                    cost[w->edge[e].to] = cost[i] + w->edge[e].cost;
                    changed = true;
                }
    }
    free(way);
}

double rs_best(const rs_world *w, const double *cost, int y)
{
    double best = cost[y], last;
    int64_t bytes;
    for (int x = 0; x < w->n; x++)
        if (cost[x] < best && rs_direct(w, x, y, &last, &bytes) && cost[x] + last < best)
            best = cost[x] + last;
    return best;
}
