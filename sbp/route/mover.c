/* SPDX-License-Identifier: Apache-2.0 */
#include "sbp/route/mover.h"
#include "sbp/route/pieces.h"
#include "src/core/status.h"

#include <string.h>

static int rank_at(const tsri_mesh *m, const int *at)
{
    return tsri_mesh_rank(m, tsri_mesh_index(m, TSRI_ALL_DIMS, at));
}

static void find_part(const tsri_mover *mv, const tsri_mesh *m, const tsri_layout *l, int pos,
                      tsri_box_range *out)
{
    tsr_dims part;
    tsri_layout_part(mv->shape, m, l, pos, out->offset, &part);
    memcpy(out->length, part.d, sizeof out->length);
}

static bool meet(const tsri_box_range *p, const tsri_box_range *q, int ndim, tsri_box_range *out)
{
    for (int a = 0; a < ndim; a++) {
        int64_t begin = p->offset[a] > q->offset[a] ? p->offset[a] : q->offset[a];
        int64_t pe = p->offset[a] + p->length[a], qe = q->offset[a] + q->length[a];
        out->offset[a] = begin;
        out->length[a] = (pe < qe ? pe : qe) - begin;
        if (out->length[a] <= 0)
            return false;
    }
    return true;
}

void tsri_mover_place(tsri_mover *mv, const tsri_route_query *q, const tsri_route_step *step,
                      int pos_a, int pos_b)
{
    *mv = (tsri_mover){.crosses = step->crosses,
                       .local = !tsri_box_is_collective(step->kind),
                       .x = step->from,
                       .y = step->to,
                       .shape = q->shape,
                       .pos_a = pos_a,
                       .pos_b = pos_b,
                       .none = pos_b < 0};
    mv->b = step->on_dst ? &q->to.mesh : &q->from.mesh;
    mv->a = step->crosses ? &q->from.mesh : mv->b;
    if (mv->none)
        return;
    mv->rank = tsri_mesh_rank(mv->b, pos_b);
    tsri_mesh_coord(mv->b, TSRI_ALL_DIMS, pos_b, mv->at_b);
    if (pos_a >= 0)
        tsri_mesh_coord(mv->a, TSRI_ALL_DIMS, pos_a, mv->at_a);
    find_part(mv, mv->b, &mv->y, pos_b, &mv->part);
    unsigned px = tsri_layout_dims(&mv->x, TSR_SBP_PARTIAL),
             py = tsri_layout_dims(&mv->y, TSR_SBP_PARTIAL);
    mv->split = tsri_layout_dims(&mv->x, TSR_SBP_SPLIT);
    if (step->kind == TSRI_BOX_KEEP)
        mv->none = tsri_mesh_index(mv->b, step->dims, mv->at_b) != 0;
    if (!mv->crosses) {
        mv->addends = (uint8_t)(px & ~py);
    } else {
        mv->addends = (uint8_t)px;
        mv->free = tsri_layout_dims(&mv->x, TSR_SBP_BROADCAST);
        mv->slot = tsri_mesh_index(mv->b, py, mv->at_b);
        mv->slots = px && py ? tsri_mesh_count(mv->b, py) : 0;
        mv->none = py && !px && mv->slot > 0;
    }
    mv->naddends = tsri_mesh_count(mv->a, mv->addends);
}

void tsri_mover_init(tsri_mover *mv, const tsri_route_query *q, const tsri_route_step *step,
                     int rank)
{
    int pos_b = tsri_mesh_find(step->on_dst ? &q->to.mesh : &q->from.mesh, rank);
    int pos_a = step->crosses && pos_b >= 0 ? tsri_mesh_find(&q->from.mesh, rank) : pos_b;
    tsri_mover_place(mv, q, step, pos_a, pos_b);
}

int64_t tsri_mover_own(const tsri_mover *mv)
{
    tsri_box_range source, box;
    if (mv->none || mv->pos_a < 0)
        return 0;
    find_part(mv, mv->a, &mv->x, mv->pos_a, &source);
    return meet(&source, &mv->part, mv->shape.ndim, &box) ? tsri_box_volume(mv, &box) : 0;
}

bool tsri_mover_same(const tsri_mover *mv)
{
    tsri_box_range source;
    if (mv->pos_a < 0)
        return false;
    find_part(mv, mv->a, &mv->x, mv->pos_a, &source);
    for (int a = 0; a < mv->shape.ndim; a++)
        if (source.offset[a] != mv->part.offset[a] || source.length[a] != mv->part.length[a])
            return false;
    return true;
}

/* The addend of the destination that takes addend i of the source: that of the same rank where the
 * first rank that has i is one of the destination's, else by turns. */
static int slot_of(const tsri_mover *mv, int i)
{
    int at[TSR_MAX_HIERARCHY] = {0};
    tsri_mesh_coord(mv->a, mv->addends, i, at);
    int pos = tsri_mesh_find(mv->b, rank_at(mv->a, at));
    if (pos < 0)
        return i % mv->slots;
    tsri_mesh_coord(mv->b, TSRI_ALL_DIMS, pos, at);
    return tsri_mesh_index(mv->b, tsri_layout_dims(&mv->y, TSR_SBP_PARTIAL), at);
}

/* How far apart two ranks are, when the machine's groups of ranks are powers of two. */
static int distance(int a, int b)
{
    int bits = 0;
    for (unsigned x = (unsigned)a ^ (unsigned)b; x; x >>= 1)
        bits++;
    return bits;
}

/* The holder that the reader takes a part from: itself, or the nearest; readers take turns among
 * equally near ones, so that no holder serves all. */
static int choose(const tsri_mover *mv, int *at)
{
    unsigned fixed = mv->split | mv->addends;
    bool mine = mv->pos_a >= 0;
    for (int d = 0; mine && d < TSR_MAX_HIERARCHY; d++)
        mine = !(fixed >> d & 1) || at[d] == mv->at_a[d];
    if (mine)
        return mv->rank;
    int n = tsri_mesh_count(mv->a, mv->free), best = -1, nearest = 0;
    for (int i = 0; i < n; i++) {
        tsri_mesh_coord(mv->a, mv->free, (mv->pos_b + i) % n, at);
        int rank = rank_at(mv->a, at), far = distance(rank, mv->rank);
        if (best < 0 || far < nearest) {
            best = rank;
            nearest = far;
        }
    }
    return best;
}

int tsri_mover_sources(const tsri_mover *mv, const int *coord, int *src, bool *out_self)
{
    int at[TSR_MAX_HIERARCHY], n = 0;
    *out_self = false;
    for (int d = 0; d < TSR_MAX_HIERARCHY; d++)
        at[d] = mv->split >> d & 1 ? coord[d] : mv->crosses ? 0 : mv->at_b[d];
    for (int i = 0; i < mv->naddends; i++) {
        if (mv->slots && slot_of(mv, i) != mv->slot)
            continue;
        tsri_mesh_coord(mv->a, mv->addends, i, at);
        int rank = mv->crosses ? choose(mv, at) : rank_at(mv->a, at);
        *out_self = *out_self || rank == mv->rank;
        if (src)
            src[n] = rank;
        n++;
    }
    return n;
}

typedef struct walk {
    const tsri_mover *mv;
    tsri_meet_fn *fn;
    void *arg;
    int n, order[TSR_MAX_HIERARCHY]; /* the split dimensions, outermost first */
    int coord[TSR_MAX_HIERARCHY];
} walk;

static tsr_status descend(walk *w, int i, const tsri_box_range *source)
{
    const tsri_mover *mv = w->mv;
    tsri_box_range box;
    if (i == w->n)
        return meet(source, &mv->part, mv->shape.ndim, &box)
                   ? w->fn(w->arg, mv, w->coord, &box, source)
                   : TSR_OK;
    int d = w->order[i], axis = mv->x.sbp.d[d].arg;
    int64_t begin = mv->part.offset[axis], end = begin + mv->part.length[axis];
    for (int c = 0; c < mv->a->dim[d]; c++) {
        tsri_box_range sub = *source;
        int64_t offset;
        tsr_balanced_split(source->length[axis], mv->a->dim[d], c, &offset, &sub.length[axis]);
        sub.offset[axis] += offset;
        if (sub.offset[axis] >= end)
            break;
        if (sub.offset[axis] + sub.length[axis] <= begin)
            continue;
        w->coord[d] = c;
        TSRI_TRY(descend(w, i + 1, &sub));
    }
    return TSR_OK;
}

tsr_status tsri_mover_walk(const tsri_mover *mv, tsri_meet_fn *fn, void *arg)
{
    if (mv->none)
        return TSR_OK;
    tsri_box_range source, box;
    if (mv->local) {
        find_part(mv, mv->a, &mv->x, mv->pos_a, &source);
        return meet(&source, &mv->part, mv->shape.ndim, &box) ? fn(arg, mv, mv->at_a, &box, &source)
                                                              : TSR_OK;
    }
    walk w = {.mv = mv, .fn = fn, .arg = arg};
    for (int depth = 0; depth < mv->a->ndim; depth++)
        for (int d = 0; d < mv->a->ndim; d++)
            if (mv->split >> d & 1 && mv->x.depth[d] == depth)
                w.order[w.n++] = d;
    memset(source.offset, 0, sizeof source.offset);
    memcpy(source.length, mv->shape.d, sizeof source.length);
    return descend(&w, 0, &source);
}

/* --- pieces ----------------------------------------------------------------------------------- */
typedef struct collector {
    tsri_pool *pool;
    tsri_piece *pieces;
    int n, capacity;
    int64_t covered; /* elements */
} collector;

static tsr_status collect(void *arg, const tsri_mover *mv, const int *coord,
                          const tsri_box_range *box, const tsri_box_range *source)
{
    collector *c = arg;
    bool self;
    int nsrc = tsri_mover_sources(mv, coord, NULL, &self);
    if (nsrc == 0)
        return TSR_OK;
    TSRI_NEED(TSRI_PUSH(c->pool, c->pieces, c->n, c->capacity));
    tsri_piece *p = &c->pieces[c->n];
    *p = (tsri_piece){.nsrc = nsrc};
    p->src = tsri_pool_alloc(c->pool, (size_t)nsrc * sizeof *p->src);
    TSRI_NEED(p->src);
    tsri_mover_sources(mv, coord, p->src, &self);
    size_t axes = (size_t)mv->shape.ndim * sizeof *p->offset;
    memcpy(p->offset, box->offset, axes);
    memcpy(p->length, box->length, axes);
    memcpy(p->part_offset, source->offset, axes);
    memcpy(p->part_length, source->length, axes);
    c->covered += tsri_box_volume(mv, box);
    c->n++;
    return TSR_OK;
}

tsr_status tsri_step_pieces(tsri_pool *pool, const tsri_route_query *q, const tsri_route_step *step,
                            int rank, int *out_n, tsri_piece **out_pieces, bool *out_fill)
{
    tsri_mover mv;
    collector c = {.pool = pool};
    tsri_mover_init(&mv, q, step, rank);
    TSRI_TRY(tsri_mover_walk(&mv, collect, &c));
    *out_n = c.n;
    *out_pieces = c.pieces;
    *out_fill = mv.pos_b >= 0 && c.covered < tsri_box_volume(&mv, &mv.part);
    return TSR_OK;
}

static tsr_status count(void *arg, const tsri_mover *mv, const int *coord,
                        const tsri_box_range *box, const tsri_box_range *source)
{
    bool self;
    (void)source;
    int n = tsri_mover_sources(mv, coord, NULL, &self);
    *(int64_t *)arg += tsri_box_volume(mv, box) * (n - self);
    return TSR_OK;
}

int64_t tsri_step_bytes(const tsri_route_query *q, const tsri_route_step *step, int rank)
{
    tsri_mover mv;
    int64_t n = 0;
    tsri_mover_init(&mv, q, step, rank);
    if (mv.none || mv.local)
        return 0;
    if (step->two_phase) {
        int64_t offset, mine, all = tsri_box_volume(&mv, &mv.part);
        int k = tsri_mesh_count(mv.b, step->dims);
        tsr_balanced_split(all, k, tsri_mesh_index(mv.b, step->dims, mv.at_b), &offset, &mine);
        n = (k - 1) * mine + all - mine;
    } else {
        (void)tsri_mover_walk(&mv, count, &n); /* count does not fail */
    }
    return n * (int64_t)q->element;
}

int tsri_step_group(const tsri_route_query *q, const tsri_route_step *step, int rank, int *out)
{
    const tsri_mesh *b = step->on_dst ? &q->to.mesh : &q->from.mesh, *a = &q->from.mesh;
    int at[TSR_MAX_HIERARCHY], n = 0, pos = tsri_mesh_find(b, rank);
    if (step->crosses) {
        if (pos < 0 && tsri_mesh_find(a, rank) < 0)
            return 0;
        for (; n < a->nranks; n++)
            out[n] = tsri_mesh_rank(a, n);
        for (int i = 0; i < b->nranks; i++)
            if (tsri_mesh_find(a, tsri_mesh_rank(b, i)) < 0)
                out[n++] = tsri_mesh_rank(b, i);
        return n;
    }
    if (pos < 0)
        return 0;
    tsri_mesh_coord(b, TSRI_ALL_DIMS, pos, at);
    for (int count_ = tsri_mesh_count(b, step->dims); n < count_; n++) {
        tsri_mesh_coord(b, step->dims, n, at);
        out[n] = rank_at(b, at);
    }
    return n;
}
