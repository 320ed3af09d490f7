/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/sbp/route_run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POISON INT64_C(0x5eadbeef5eadbeef)

uint64_t rr_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

int rr_below(uint64_t *state, int n)
{
    return (int)(rr_random(state) % (uint64_t)n);
}

tsr_sbp rr_sbp(int ndim, const int *code)
{
    tsr_sbp s = {.ndim = (int8_t)ndim};
    for (int d = 0; d < ndim; d++)
        s.d[d] = code[d] >= 0      ? (tsr_sbp1){TSR_SBP_SPLIT, (int8_t)code[d]}
                 : code[d] == RR_B ? (tsr_sbp1){TSR_SBP_BROADCAST, 0}
                                   : (tsr_sbp1){TSR_SBP_PARTIAL, (int8_t)(RR_P - code[d])};
    return s;
}

int rr_signatures(int ndim, int axes, int kinds)
{
    int n = 1;
    for (int d = 0; d < ndim; d++)
        n *= axes + kinds;
    return n;
}

bool rr_signature(int ndim, int axes, int kinds, int index, tsr_sbp *out)
{
    int code[TSR_MAX_HIERARCHY], partial = 0;
    for (int d = 0; d < ndim; d++) {
        int c = index % (axes + kinds);
        index /= axes + kinds;
        code[d] = c < axes ? c : axes - 1 - c;
        if (code[d] <= RR_P && partial && partial != code[d])
            return false;
        partial = code[d] <= RR_P ? code[d] : partial;
    }
    *out = rr_sbp(ndim, code);
    return true;
}

tsri_mesh rr_mesh(int ndim, const int *dim, const int *rank)
{
    tsri_mesh m = {.ndim = ndim, .dim = {1, 1, 1, 1}, .nranks = 1, .rank = rank};
    for (int d = 0; d < ndim; d++) {
        m.dim[d] = dim[d];
        m.nranks *= dim[d];
    }
    return m;
}

static void coordinates(const tsri_mesh *m, int index, int *at)
{
    for (int d = m->ndim - 1; d >= 0; d--) {
        at[d] = index % m->dim[d];
        index /= m->dim[d];
    }
}

void rr_part(tsr_dims shape, const tsri_mesh *m, const tsri_layout *l, int index, int64_t *begin,
             int64_t *length)
{
    int at[TSR_MAX_HIERARCHY];
    coordinates(m, index, at);
    for (int a = 0; a < shape.ndim; a++) {
        begin[a] = 0;
        length[a] = shape.d[a];
        for (int depth = 0; depth < m->ndim; depth++)
            for (int d = 0; d < m->ndim; d++) {
                if (l->sbp.d[d].kind != TSR_SBP_SPLIT || l->sbp.d[d].arg != a ||
                    l->depth[d] != depth)
                    continue;
                /* Parts one after the other, the first (n mod k) of them one longer. */
                int64_t whole = length[a], k = m->dim[d];
                for (int p = 0; p <= at[d]; p++) {
                    length[a] = whole / k + (p < whole % k);
                    begin[a] += p < at[d] ? length[a] : 0;
                }
            }
    }
}

/* The parts of all ranks of a mesh in one layout. */
typedef struct parts {
    const tsri_mesh *mesh;
    tsri_layout layout;
    int64_t (*begin)[TSR_MAX_NDIM], (*length)[TSR_MAX_NDIM];
    int64_t **data;
} parts;

static int64_t volume(int ndim, const int64_t *length)
{
    int64_t v = 1;
    for (int a = 0; a < ndim; a++)
        v *= length[a];
    return v;
}

static parts new_parts(tsr_dims shape, const tsri_mesh *m, const tsri_layout *l)
{
    size_t n = (size_t)m->nranks;
    parts p = {m, *l, calloc(n, sizeof *p.begin), calloc(n, sizeof *p.length),
               calloc(n, sizeof *p.data)};
    for (int i = 0; i < m->nranks; i++) {
        rr_part(shape, m, l, i, p.begin[i], p.length[i]);
        size_t count = (size_t)volume(shape.ndim, p.length[i]);
        p.data[i] = malloc((count + 1) * sizeof **p.data);
        for (size_t e = 0; e < count; e++)
            p.data[i][e] = POISON;
    }
    return p;
}

static void free_parts(parts *p)
{
    for (int i = 0; p->data && i < p->mesh->nranks; i++)
        free(p->data[i]);
    free(p->begin);
    free(p->length);
    free(p->data);
    *p = (parts){0};
}

/* Steps through a box; false at its end. */
static bool next(int ndim, const int64_t *length, int64_t *at)
{
    for (int a = ndim - 1; a >= 0; a--) {
        if (++at[a] < length[a])
            return true;
        at[a] = 0;
    }
    return false;
}

/* The place of a global element in a part. */
static int64_t *element(const parts *p, int ndim, int i, const int64_t *at)
{
    int64_t index = 0;
    for (int a = 0; a < ndim; a++)
        index = index * p->length[i][a] + at[a] - p->begin[i][a];
    return &p->data[i][index];
}

static int64_t identity(tsr_reduce_op op)
{
    return op == TSR_REDUCE_SUM ? 0 : op == TSR_REDUCE_MAX ? INT64_MIN : INT64_MAX;
}

static int64_t reduce(tsr_reduce_op op, int64_t a, int64_t b)
{
    if (op == TSR_REDUCE_SUM)
        return a + b;
    return (op == TSR_REDUCE_MAX) == (a > b) ? a : b;
}

static bool wrong(char *why, const char *fmt, ...) TSR_PRINTF(2, 3);
static bool wrong(char *why, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, RR_WHY, fmt, ap);
    va_end(ap);
    return false;
}

/* The value of the whole tensor at a place, from -1000 to 1000. */
static int64_t global(tsr_dims shape, const int64_t *at, uint64_t seed)
{
    uint64_t index = seed;
    for (int a = 0; a < shape.ndim; a++)
        index = index * 131 + (uint64_t)at[a];
    return (int64_t)(rr_random(&index) % 2001) - 1000;
}

static tsr_reduce_op partial_op(const tsri_layout *l, bool *has)
{
    *has = false;
    for (int d = 0; d < l->sbp.ndim; d++)
        if (l->sbp.d[d].kind == TSR_SBP_PARTIAL) {
            *has = true;
            return (tsr_reduce_op)l->sbp.d[d].arg;
        }
    return TSR_REDUCE_SUM;
}

/* The number of a rank's addend, and of how many. */
static int addend_of(const parts *p, int i, int *out_n)
{
    int at[TSR_MAX_HIERARCHY], index = 0;
    coordinates(p->mesh, i, at);
    *out_n = 1;
    for (int d = 0; d < p->mesh->ndim; d++)
        if (p->layout.sbp.d[d].kind == TSR_SBP_PARTIAL) {
            index = index * p->mesh->dim[d] + at[d];
            *out_n *= p->mesh->dim[d];
        }
    return index;
}

/* Addend k of n of a value: random ones of both signs that sum up to it; or ones beyond it on the
 * harmless side, and one that is it. */
static int64_t addend(tsr_reduce_op op, int64_t value, int k, int n, uint64_t seed)
{
    uint64_t state = seed ^ (uint64_t)value * 77;
    int64_t sum = 0, mine = 0;
    int special = rr_below(&state, n);
    for (int i = 0; i < n; i++) {
        int64_t r = (int64_t)(rr_random(&state) % 20001) - 10000;
        if (op != TSR_REDUCE_SUM)
            r = op == TSR_REDUCE_MAX ? value - llabs(r) : value + llabs(r);
        sum += i == special ? 0 : r;
        mine = i == k ? r : mine;
    }
    if (k == special)
        return op == TSR_REDUCE_SUM ? value - sum : value;
    return mine;
}

static void fill_source(parts *p, tsr_dims shape, uint64_t seed)
{
    bool has;
    tsr_reduce_op op = partial_op(&p->layout, &has);
    for (int i = 0; i < p->mesh->nranks; i++) {
        int64_t local[TSR_MAX_NDIM] = {0}, at[TSR_MAX_NDIM];
        int n, k = addend_of(p, i, &n);
        if (volume(shape.ndim, p->length[i]) == 0)
            continue;
        do {
            for (int a = 0; a < shape.ndim; a++)
                at[a] = p->begin[i][a] + local[a];
            int64_t value = global(shape, at, seed);
            *element(p, shape.ndim, i, at) = has ? addend(op, value, k, n, seed + 1) : value;
        } while (next(shape.ndim, p->length[i], local));
    }
}

static int position(const tsri_mesh *m, int rank)
{
    for (int i = 0; i < m->nranks; i++)
        if ((m->rank ? m->rank[i] : i) == rank)
            return i;
    return -1;
}

/* Copies, or reduces, one piece into the new part of rank i. */
static bool do_piece(const tsri_route_query *q, const tsri_route_step *step, const tsri_piece *p,
                     const parts *old, parts *new, int i, char *why)
{
    int ndim = q->shape.ndim;
    int64_t local[TSR_MAX_NDIM] = {0}, at[TSR_MAX_NDIM];
    if (volume(ndim, p->length) <= 0 || p->nsrc < 1)
        return wrong(why, "an empty piece");
    for (int s = 0; s < p->nsrc; s++) {
        int j = position(old->mesh, p->src[s]);
        if (j < 0)
            return wrong(why, "rank %d reads from rank %d, which has nothing", i, p->src[s]);
        for (int a = 0; a < ndim; a++) {
            if (p->part_offset[a] != old->begin[j][a] || p->part_length[a] != old->length[j][a])
                return wrong(why, "a piece says another part of rank %d than it has", p->src[s]);
            if (p->offset[a] < old->begin[j][a] ||
                p->offset[a] + p->length[a] > old->begin[j][a] + old->length[j][a] ||
                p->offset[a] < new->begin[i][a] ||
                p->offset[a] + p->length[a] > new->begin[i][a] + new->length[i][a])
                return wrong(why, "a piece is outside of a part");
        }
    }
    do {
        for (int a = 0; a < ndim; a++)
            at[a] = p->offset[a] + local[a];
        int64_t value = 0;
        for (int s = 0; s < p->nsrc; s++) {
            int64_t v = *element(old, ndim, position(old->mesh, p->src[s]), at);
            value = s ? reduce(step->op, value, v) : v;
        }
        int64_t *to = element(new, ndim, i, at);
        if (*to != POISON)
            return wrong(why, "an element comes twice");
        *to = value;
    } while (next(ndim, p->length, local));
    return true;
}

static bool check_group(const tsri_route_query *q, const tsri_route_step *step, int rank,
                        const tsri_piece *pieces, int n, char *why)
{
    int room = q->from.mesh.nranks + q->to.mesh.nranks;
    int *group = malloc((size_t)room * sizeof *group),
        *other = malloc((size_t)room * sizeof *other);
    int size = tsri_step_group(q, step, rank, group);
    bool ok = position(&(tsri_mesh){.nranks = size, .rank = group}, rank) >= 0;
    for (int i = 0; ok && i < size; i++)
        ok = tsri_step_group(q, step, group[i], other) == size &&
             !memcmp(group, other, (size_t)size * sizeof *group);
    for (int i = 0; ok && i < n; i++)
        for (int s = 0; ok && s < pieces[i].nsrc; s++)
            ok = position(&(tsri_mesh){.nranks = size, .rank = group}, pieces[i].src[s]) >= 0;
    free(group);
    free(other);
    return ok || wrong(why, "the groups of rank %d do not agree, or it reads from outside", rank);
}

static bool check_bytes(const tsri_route_query *q, const tsri_route_step *step, int rank,
                        const tsri_piece *pieces, int n, int64_t *busiest, char *why)
{
    int64_t read = 0, told = tsri_step_bytes(q, step, rank);
    for (int i = 0; i < n; i++) {
        int peers = 0;
        for (int s = 0; s < pieces[i].nsrc; s++)
            peers += pieces[i].src[s] != rank;
        read += volume(q->shape.ndim, pieces[i].length) * peers * (int64_t)q->element;
    }
    *busiest = told > *busiest ? told : *busiest;
    if (!tsri_box_is_collective(step->kind) && (read || told))
        return wrong(why, "a local step reads from peers");
    if (!step->two_phase && read != told)
        return wrong(why, "rank %d reads %lld bytes; tsri_step_bytes says %lld", rank,
                     (long long)read, (long long)told);
    return true;
}

static bool do_rank(const tsri_route_query *q, const tsri_route_step *step, const parts *old,
                    parts *new, int i, int64_t *busiest, char *why)
{
    tsri_pool pool = {0};
    int n = 0, rank = new->mesh->rank ? new->mesh->rank[i] : i;
    bool fill = false, ok = true, missing = false;
    tsri_piece *pieces = NULL;
    if (tsri_step_pieces(&pool, q, step, rank, &n, &pieces, &fill) != TSR_OK)
        return wrong(why, "no pieces: %s", tsr_last_error());
    for (int p = 0; ok && p < n; p++)
        ok = do_piece(q, step, &pieces[p], old, new, i, why);
    ok = ok && check_group(q, step, rank, pieces, n, why);
    ok = ok && check_bytes(q, step, rank, pieces, n, busiest, why);
    int64_t count = volume(q->shape.ndim, new->length[i]);
    for (int64_t e = 0; ok && e < count; e++)
        if (new->data[i][e] == POISON) {
            missing = true;
            new->data[i][e] = identity(step->op);
        }
    if (ok && missing != fill)
        ok = wrong(why, "rank %d: elements are%s left, but fill is %d", rank, missing ? "" : " not",
                   fill);
    tsri_pool_finish(&pool);
    return ok;
}

/* Steps whose busiest rank the planner knows exactly; of others it knows a bound. */
static bool is_exact(const tsri_route_step *step)
{
    return step->crosses || (step->kind != TSRI_BOX_ALL_TO_ALL && step->kind != TSRI_BOX_SEND_RECV);
}

static bool do_step(const tsri_route_query *q, const tsri_route_step *step, parts *now, char *why)
{
    const tsri_mesh *mesh = step->on_dst ? &q->to.mesh : &q->from.mesh;
    const tsri_mesh *from = step->crosses ? &q->from.mesh : mesh;
    if (!tsri_mesh_equal(from, now->mesh) || memcmp(&step->from, &now->layout, sizeof now->layout))
        return wrong(why, "a step starts from what is not there");
    parts new = new_parts(q->shape, mesh, &step->to);
    int64_t busiest = 0;
    bool ok = true;
    for (int i = 0; ok && i < mesh->nranks; i++)
        ok = do_rank(q, step, now, &new, i, &busiest, why);
    if (ok && (is_exact(step) ? busiest != step->bytes : busiest > step->bytes))
        ok = wrong(why, "the busiest rank reads %lld bytes; the step says %lld", (long long)busiest,
                   (long long)step->bytes);
    free_parts(now);
    *now = new;
    return ok;
}

/* The addends of every element reduce to its value, and ranks that differ in B alone have the same.
 */
static bool check_end(const tsri_route_query *q, const parts *p, uint64_t seed, char *why)
{
    bool has;
    tsr_reduce_op op = partial_op(&p->layout, &has);
    for (int i = 0; i < p->mesh->nranks; i++) {
        int64_t local[TSR_MAX_NDIM] = {0}, at[TSR_MAX_NDIM];
        int ci[TSR_MAX_HIERARCHY], cj[TSR_MAX_HIERARCHY];
        coordinates(p->mesh, i, ci);
        if (volume(q->shape.ndim, p->length[i]) == 0)
            continue;
        do {
            for (int a = 0; a < q->shape.ndim; a++)
                at[a] = p->begin[i][a] + local[a];
            int64_t sum = identity(op), mine = *element(p, q->shape.ndim, i, at);
            for (int j = 0; j < p->mesh->nranks; j++) {
                bool addends = true, copies = true;
                coordinates(p->mesh, j, cj);
                for (int d = 0; d < p->mesh->ndim; d++) {
                    int kind = p->layout.sbp.d[d].kind;
                    addends = addends && (ci[d] == cj[d] || kind == TSR_SBP_PARTIAL);
                    copies = copies && (ci[d] == cj[d] || kind == TSR_SBP_BROADCAST);
                }
                if (copies && *element(p, q->shape.ndim, j, at) != mine)
                    return wrong(why, "copies differ");
                if (addends)
                    sum = reduce(op, sum, *element(p, q->shape.ndim, j, at));
            }
            if (sum != global(q->shape, at, seed))
                return wrong(why, "rank %d of the destination has a wrong value", i);
        } while (next(q->shape.ndim, p->length[i], local));
    }
    return true;
}

bool rr_run(const tsri_route_query *q, const tsri_route *route, uint64_t seed, char why[RR_WHY])
{
    parts now = new_parts(q->shape, &q->from.mesh, &q->from.layout);
    bool ok = true;
    fill_source(&now, q->shape, seed);
    for (int s = 0; ok && s < route->n; s++)
        ok = do_step(q, &route->step[s], &now, why);
    if (ok && (!tsri_mesh_equal(now.mesh, &q->to.mesh) ||
               memcmp(&now.layout, &q->to.layout, sizeof now.layout)))
        ok = wrong(why, "the route ends elsewhere");
    ok = ok && check_end(q, &now, seed, why);
    free_parts(&now);
    return ok;
}
