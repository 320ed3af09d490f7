/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/route/cross.h"
#include "sbp/route/mover.h"
#include "sbp/route/table.h"
#include "sbp/route/hunt.h"

#include <math.h>

enum {
    MAX_ENDS = 256, /* states of each mesh that crossings are looked for between, cheapest first */
    MAX_READERS = 64,  /* that a crossing's price is taken from, where there are more */
    MAX_WALKED = 4096, /* sources times readers whose links are looked at one by one */
    MAX_STEPS = (TSRI_ROUTE_MAX - 1) / 2, /* on either side */
};

/* A state that can be had on one side. */
typedef struct end_state {
    tsri_hunt_node node;
    tsri_state parent; /* the state before it, from the source's or the destination's own */
    int number;        /* in the memo's table */
} end_state;

typedef struct end_list {
    tsri_space *space;
    tsri_state start;
    bool back;
    int n;
    end_state end[MAX_ENDS];
} end_list;

typedef struct reader {
    int pos_a, pos_b;
} reader;

typedef struct crosser {
    const tsri_cost_model *m;
    const tsri_route_query *q;
    tsri_space *a, *b;
    int nreaders, farthest, nearest; /* the farthest and the nearest link between the meshes */
    bool shared;                     /* a rank is in both */
    reader readers[MAX_READERS];
} crosser;

static bool settle(void *arg, tsri_hunt *h, int node)
{
    end_list *list = arg;
    const tsri_hunt_node *n = &h->node[node];
    list->end[list->n++] =
        (end_state){.node = *n, .parent = n->parent < 0 ? n->state : h->node[n->parent].state};
    return list->n < MAX_ENDS;
}

static void hunt_ends(void *arg, tsri_hunt *h)
{
    end_list *list = arg;
    h->back = list->back;
    h->most_steps = MAX_STEPS;
    tsri_hunt_run(h, list->start, settle, list);
}

/* The cheapest states from a layout or, back, to it. P of its kind may come and go. */
static void list_ends(end_list *list, tsri_space *s, const tsri_layout *l, bool back)
{
    list->space = s;
    list->start = tsri_space_encode(s, l);
    list->back = back;
    list->n = 0;
    tsri_space_allow(s, list->start, list->start);
    tsri_hunt_with(s, hunt_ends, list);
}

static void init_crosser(crosser *c)
{
    const tsri_mesh *a = &c->q->from.mesh, *b = &c->q->to.mesh;
    int sources = a->nranks < MAX_READERS ? a->nranks : MAX_READERS;
    c->nreaders = b->nranks < MAX_READERS ? b->nranks : MAX_READERS;
    c->farthest = c->nearest = 0;
    c->shared = false;
    int nearest = c->m->nlinks - 1;
    for (int i = 0; i < c->nreaders; i++) {
        reader *r = &c->readers[i];
        r->pos_b = (int)((int64_t)i * b->nranks / c->nreaders);
        int rank = tsri_mesh_rank(b, r->pos_b);
        r->pos_a = tsri_mesh_find(a, rank);
        c->shared |= r->pos_a >= 0;
        for (int j = 0; j < sources && c->m->nlinks > 1; j++) {
            int from = tsri_mesh_rank(a, (int)((int64_t)j * a->nranks / sources));
            int link = from == rank ? 0 : tsri_link_between(c->m, from, rank);
            c->farthest = link > c->farthest ? link : c->farthest;
            nearest = link < nearest ? link : nearest;
        }
    }
    if (a->nranks <= MAX_READERS && b->nranks <= MAX_READERS)
        c->nearest = nearest;
}

typedef struct tally {
    const tsri_cost_model *m;
    double links[TSRI_MAX_LINKS]; /* elements read over each */
    int src[MAX_WALKED];
} tally;

static tsr_status add_links(void *arg, const tsri_mover *mv, const int *coord,
                            const tsri_box_range *box, const tsri_box_range *source)
{
    tally *t = arg;
    bool self;
    int n = tsri_mover_sources(mv, coord, t->src, &self);
    (void)source;
    for (int i = 0; i < n; i++)
        if (t->src[i] != mv->rank)
            t->links[tsri_link_between(t->m, t->src[i], mv->rank)] +=
                (double)tsri_box_volume(mv, box);
    return TSR_OK;
}

static void read_links(const crosser *c, const tsri_mover *mv, tally *t)
{
    const tsri_mesh *a = &c->q->from.mesh, *b = &c->q->to.mesh;
    for (int l = 0; l < TSRI_MAX_LINKS; l++)
        t->links[l] = 0;
    if (mv->none)
        return;
    bool walk = mv->slots || c->m->nlinks > 1;
    if (walk && (int64_t)a->nranks * b->nranks <= MAX_WALKED) {
        (void)tsri_mover_walk(mv, add_links, t); /* add_links does not fail */
        return;
    }
    double addends = mv->slots ? (mv->naddends + mv->slots - 1) / mv->slots : mv->naddends;
    t->links[c->farthest] =
        addends * (double)tsri_box_volume(mv, &mv->part) - (double)tsri_mover_own(mv);
}

/* Elements that the busiest rank reads over each link; whether all ranks' parts stay as they are.
 */
static void read_all(const crosser *c, tsri_state x, tsri_state y, double *links, double *moved,
                     bool *same)
{
    tsri_route_step step = {.kind = TSRI_BOX_SEND_RECV, .crosses = true, .on_dst = true};
    step.from = tsri_space_decode(c->a, x);
    step.to = tsri_space_decode(c->b, y);
    tally t;
    t.m = c->m;
    for (int i = 0; i < c->nreaders; i++) {
        tsri_mover mv;
        tsri_mover_place(&mv, c->q, &step, c->readers[i].pos_a, c->readers[i].pos_b);
        read_links(c, &mv, &t);
        double all = 0;
        for (int l = 0; l < c->m->nlinks; l++) {
            all += t.links[l];
            links[l] = t.links[l] > links[l] ? t.links[l] : links[l];
        }
        *moved = all > *moved ? all : *moved;
        *same = *same && (mv.none || mv.pos_a < 0 || tsri_mover_same(&mv));
    }
}

/* Prices the step from state x of one mesh to y of the other; false if there is none. */
static bool price(const crosser *c, tsri_state x, tsri_state y, double *cost, double *moved)
{
    unsigned px = tsri_state_partial(x), py = tsri_state_partial(y);
    if (px && py && tsri_state_op(x) != tsri_state_op(y))
        return false;
    double links[TSRI_MAX_LINKS] = {0}, latency = 0, part = tsri_space_part(c->b, y);
    bool same = true; /* parts */
    *moved = 0;
    if (!c->shared && c->nearest == c->farthest)
        /* Nobody has anything yet; the first addend takes the most. */
        *moved = links[c->farthest] =
            part * (px && py ? ceil(c->a->size[px] / c->b->size[py]) : c->a->size[px]);
    else
        read_all(c, x, y, links, moved, &same);
    double local = part * c->b->local;
    if (*moved == 0) {
        *cost = c->m->kernel_s + (same ? 0 : 2 * local);
        return true;
    }
    *cost = local;
    for (int l = 0; l < c->m->nlinks; l++)
        if (links[l] > 0) {
            latency = c->m->link[l].latency_s;
            *cost += links[l] * c->b->element / c->m->link[l].bytes_per_s;
        }
    *cost += latency;
    return true;
}

static int64_t peak_of(const crosser *c, tsri_state x, tsri_state y)
{
    double p = tsri_space_part(c->a, x), q = tsri_space_part(c->b, y);
    return (int64_t)((c->shared ? p + q : p > q ? p : q) * c->b->element);
}

static void append_side(tsri_route *r, const end_list *list, int i)
{
    int path[MAX_STEPS + 1], n = 0;
    for (; i > 0; n++) {
        path[n] = i;
        tsri_state parent = list->end[i].parent;
        for (i = 0; list->end[i].node.state != parent; i++)
            ;
    }
    path[n] = 0;
    for (int k = 0; k < n; k++) {
        const tsri_hunt_node *e = &list->end[list->back ? path[k] : path[n - 1 - k]].node;
        const tsri_hunt_node *p = &list->end[list->back ? path[k + 1] : path[n - k]].node;
        tsri_hop hop = {
            .kind = e->kind, .dims = e->dims, .two_phase = e->two_phase, .cost = e->cost - p->cost};
        tsri_route_append(r, list->space, list->back ? e->state : p->state,
                          list->back ? p->state : e->state, &hop, list->back);
    }
}

static void append_crossing(tsri_route *r, const crosser *c, tsri_state x, tsri_state y)
{
    double cost = 0, moved = 0;
    price(c, x, y, &cost, &moved);
    int64_t peak = peak_of(c, x, y), bytes = (int64_t)(moved * c->b->element);
    r->step[r->n++] = (tsri_route_step){
        .kind = TSRI_BOX_SEND_RECV,
        .crosses = true,
        .on_dst = true,
        .op = (tsr_reduce_op)tsri_state_op(tsri_state_partial(x) ? x : y),
        .from = tsri_space_decode(c->a, x),
        .to = tsri_space_decode(c->b, y),
        .cost_s = cost,
        .bytes = bytes,
    };
    r->cost_s += cost;
    r->bytes += bytes;
    r->peak_bytes = peak > r->peak_bytes ? peak : r->peak_bytes;
}

/* Seconds that a crossing from x to y takes at least. */
static double least_price(const crosser *c, tsri_state x, tsri_state y)
{
    double start = c->m->kernel_s, pace = 0, read = 0;
    double part = tsri_space_part(c->b, y) * c->b->element;
    if (!c->shared && !tsri_state_partial(y) && part > 0) {
        start = INFINITY;
        for (int l = c->nearest; l <= c->farthest; l++) {
            const tsri_link *k = &c->m->link[l];
            start = k->latency_s < start ? k->latency_s : start;
            pace = k->bytes_per_s > pace ? k->bytes_per_s : pace;
        }
        read = part * c->a->size[tsri_state_partial(x)] / pace + part / c->m->local_bytes_per_s;
    }
    return (start + read) * (1 - 1e-12);
}

/* Prices of crossings that were asked for before. */
typedef struct memo {
    tsri_table from, to;
    double *cost; /* [from.n * to.n]; negative: not known */
} memo;

static double crossing_price(const crosser *c, const memo *m, const end_state *x,
                             const end_state *y)
{
    double moved, cost, *known = NULL;
    if (m) {
        known = &m->cost[(size_t)x->number * (size_t)m->to.n + (size_t)y->number];
        if (*known >= 0)
            return *known;
    }
    if (!price(c, x->node.state, y->node.state, &cost, &moved))
        cost = INFINITY;
    if (known)
        *known = cost;
    return cost;
}

/* The best way from the start of one list to that of the other: its cost, and where it crosses. */
static double find_crossing(const crosser *c, const memo *m, const end_list *from,
                            const end_list *to, int64_t most_bytes, int64_t *least_over, int *out_i,
                            int *out_j)
{
    double best = INFINITY;
    int best_steps = 0;
    for (int i = 0; i < from->n; i++)
        for (int j = 0; j < to->n; j++) {
            const tsri_hunt_node *x = &from->end[i].node, *y = &to->end[j].node;
            double so_far = x->cost + y->cost;
            int steps = x->steps + y->steps;
            if (so_far > best)
                break;
            int64_t peak = most_bytes ? peak_of(c, x->state, y->state) : 0;
            if (peak > most_bytes) {
                *least_over = peak < *least_over ? peak : *least_over;
                continue;
            }
            if (so_far + least_price(c, x->state, y->state) > best)
                continue;
            double cost = so_far + crossing_price(c, m, &from->end[i], &to->end[j]);
            if (cost < best || (cost == best && cost < INFINITY && steps < best_steps)) {
                best = cost;
                best_steps = steps;
                *out_i = i;
                *out_j = j;
            }
        }
    return best;
}

void tsri_cross_find(const tsri_cost_model *m, const tsri_route_query *q, tsri_space *a,
                     tsri_space *b, int64_t most_bytes, tsri_route *out_route, int64_t *least_over)
{
    crosser c = {.m = m, .q = q, .a = a, .b = b};
    end_list from, to;
    int i = 0, j = 0;
    a->most_bytes = b->most_bytes = most_bytes;
    init_crosser(&c);
    list_ends(&from, a, &q->from.layout, false);
    list_ends(&to, b, &q->to.layout, true);
    double best = find_crossing(&c, NULL, &from, &to, most_bytes, least_over, &i, &j);
    *least_over = a->least_over < *least_over ? a->least_over : *least_over;
    *least_over = b->least_over < *least_over ? b->least_over : *least_over;
    if (best == INFINITY)
        return;
    append_side(out_route, &from, i);
    append_crossing(out_route, &c, from.end[i].node.state, to.end[j].node.state);
    append_side(out_route, &to, j);
}

/* Lists what can be had from each of several signatures, and numbers the states. */
static tsr_status list_all(tsri_space *s, int n, const tsr_sbp *sbp, bool back, end_list *lists,
                           tsri_table *table)
{
    for (int i = 0; i < n; i++) {
        tsri_layout l = tsri_layout_of(s->mesh, sbp[i]);
        list_ends(&lists[i], s, &l, back);
        for (int k = 0; k < lists[i].n; k++)
            TSRI_TRY(tsri_table_add(table, lists[i].end[k].node.state, &lists[i].end[k].number));
    }
    return TSR_OK;
}

tsr_status tsri_cross_costs(const tsri_cost_model *m, tsr_dims shape, size_t element, tsri_space *a,
                            tsri_space *b, tsri_pool *pool, int nfrom, const tsr_sbp *from, int nto,
                            const tsr_sbp *to, float *cost)
{
    tsri_route_query q = {
        .shape = shape, .element = element, .from.mesh = *a->mesh, .to.mesh = *b->mesh};
    crosser c = {.m = m, .q = &q, .a = a, .b = b};
    memo known = {.from.pool = pool, .to.pool = pool};
    int64_t least_over = 0;
    int i, j;
    end_list *lists = tsri_pool_alloc(pool, (size_t)(nfrom + nto) * sizeof *lists);
    TSRI_NEED(lists);
    init_crosser(&c);
    TSRI_TRY(list_all(a, nfrom, from, false, lists, &known.from));
    TSRI_TRY(list_all(b, nto, to, true, lists + nfrom, &known.to));
    size_t n = (size_t)known.from.n * (size_t)known.to.n;
    known.cost = tsri_pool_alloc(pool, n * sizeof *known.cost);
    TSRI_NEED(known.cost);
    for (size_t k = 0; k < n; k++)
        known.cost[k] = -1;
    for (int k = 0; k < nfrom * nto; k++)
        cost[k] = (float)find_crossing(&c, &known, &lists[k / nto], &lists[nfrom + k % nto], 0,
                                       &least_over, &i, &j);
    return TSR_OK;
}

double tsri_cross_bound(const tsri_cost_model *m, const tsri_route_query *q)
{
    crosser c = {.m = m, .q = q};
    tsri_route_step step = {.kind = TSRI_BOX_SEND_RECV,
                            .crosses = true,
                            .on_dst = true,
                            .from = q->from.layout,
                            .to = q->to.layout};
    double missing = 0;
    if (tsri_layout_dims(&q->to.layout, TSR_SBP_PARTIAL))
        return 0;
    init_crosser(&c);
    for (int i = 0; i < c.nreaders; i++) {
        tsri_mover mv;
        tsri_mover_place(&mv, q, &step, c.readers[i].pos_a, c.readers[i].pos_b);
        double lacks =
            (double)(tsri_box_volume(&mv, &mv.part) - (mv.naddends > 1 ? 0 : tsri_mover_own(&mv)));
        missing = lacks > missing ? lacks : missing;
    }
    return tsri_least_seconds(m, missing * (double)q->element);
}
