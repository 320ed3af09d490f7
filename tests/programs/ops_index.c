/* SPDX-License-Identifier: Apache-2.0 */
/* Indexing by ids: embedding, gather, one_hot. */
#include <math.h>

#include "program.h"

/* i = has_padding, padding */
static bool draw_embedding(gen *g, pnode *n)
{
    int x = gen_float(g, 2, 2);
    if (!gen_begin(g, n, x) || n->shape.d[0] < 1)
        return false;
    int64_t v = n->shape.d[0], d = n->shape.d[1];
    tsr_dims ids = gen_dims(g, 0, 2);
    if (count_of(ids) * d > 200)
        return false;
    n->nin = 2;
    n->in[1] = gen_ids(g, ids, v, n->place);
    if (n->in[1] < 0)
        return false;
    n->i[0] = rnd_chance(&g->r, 0.4);
    n->i[1] = n->i[0] ? rnd_below(&g->r, (int)v) - (rnd_chance(&g->r, 0.3) ? v : 0) : 0;
    n->shape = ids;
    n->shape.d[n->shape.ndim++] = d;
    n->below = 0;
    return true;
}

static tsr_tensor *declare_embedding(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_embedding(in[0], in[1],
                         TSR_EMBEDDING_OPTS(.has_padding_idx = n->i[0], .padding_idx = n->i[1]));
}

/* x's axis is replaced by ids' axes; the slice `pad` (-1: none) is read without gradient. */
static int eval_take(walk *w, const pnode *n, const int *in, int axis, int64_t pad)
{
    tsr_dims xd = w->g->node[n->in[0]].shape;
    const tape_value *ids = tape_at(w->t, in[1]);
    int64_t inner = 1, count = count_of(n->shape), size = xd.d[axis], m = ids->n;
    for (int i = axis + 1; i < xd.ndim; i++)
        inner *= xd.d[i];
    int ops[2] = {in[0], pad >= 0 ? tape_detach(w->t, in[0]) : in[0]};
    tape_from *from = tape_alloc(w->t, (count + 1) * (int64_t)sizeof *from);
    bool doubt = false;
    for (int64_t i = 0; i < count; i++) {
        int64_t row = i / inner / m, k = i / inner % m, id = (int64_t)ids->v[k];
        doubt |= ids->e[k] != 0;
        if (id < 0 || id >= size)
            id = 0;
        from[i] = (tape_from){id == pad, (int32_t)((row * size + id) * inner + i % inner), 1};
    }
    int y = tape_move(w->t, count, 2, ops, from);
    for (int64_t i = 0; i < count && doubt; i++)
        tape_at(w->t, y)->e[i] = INFINITY;
    return y;
}

static int eval_embedding(walk *w, const pnode *n, const int *in)
{
    int64_t v = w->g->node[n->in[0]].shape.d[0];
    return eval_take(w, n, in, 0, n->i[0] ? (n->i[1] < 0 ? n->i[1] + v : n->i[1]) : -1);
}
static const op_def op_embedding = {
    "embedding",
    "tsr_embedding($0, $1, TSR_EMBEDDING_OPTS(.has_padding_idx = #0, .padding_idx = #1))",
    draw_embedding,
    declare_embedding,
    eval_embedding,
    5};

static bool draw_gather(gen *g, pnode *n)
{
    if (!gen_begin(g, n, gen_float(g, 1, 3)))
        return false;
    tsr_dims xd = n->shape, ids = gen_dims(g, 0, 2), d = {0};
    int axis = rnd_below(&g->r, xd.ndim);
    if (xd.d[axis] < 1)
        return false;
    for (int i = 0; i < axis; i++)
        d.d[d.ndim++] = xd.d[i];
    for (int i = 0; i < ids.ndim; i++)
        d.d[d.ndim++] = ids.d[i];
    for (int i = axis + 1; i < xd.ndim; i++)
        d.d[d.ndim++] = xd.d[i];
    if (count_of(d) > 200)
        return false;
    n->nin = 2;
    n->in[1] = gen_ids(g, ids, xd.d[axis], n->place);
    n->i[0] = rnd_chance(&g->r, 0.2) ? axis - xd.ndim : axis;
    n->shape = d;
    n->below = 0;
    return n->in[1] >= 0;
}

static tsr_tensor *declare_gather(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_index_select(in[0], (int)n->i[0], in[1]);
}

static int eval_gather(walk *w, const pnode *n, const int *in)
{
    int nd = w->g->node[n->in[0]].shape.ndim;
    return eval_take(w, n, in, (int)(n->i[0] < 0 ? n->i[0] + nd : n->i[0]), -1);
}
static const op_def op_gather = {
    "index_select", "tsr_index_select($0, #0, $1)", draw_gather, declare_gather, eval_gather, 5};

/* i = classes, dtype */
static bool draw_one_hot(gen *g, pnode *n)
{
    tsr_dims ids = gen_dims(g, 0, 2);
    int64_t c = 1 + rnd_below(&g->r, 6);
    n->nin = 1;
    n->in[0] = gen_ids(g, ids, c, 0);
    if (n->in[0] < 0)
        return false;
    n->place = gen_at(g, n->in[0])->place;
    n->i[0] = c;
    n->dtype = g->dtype;
    n->i[1] = n->dtype;
    n->shape = gen_at(g, n->in[0])->shape;
    n->shape.d[n->shape.ndim++] = c;
    return count_of(n->shape) <= 200;
}

static tsr_tensor *declare_one_hot(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_one_hot(in[0], n->i[0], (tsr_dtype)n->i[1]);
}

static int eval_one_hot(walk *w, const pnode *n, const int *in)
{
    const tape_value *ids = tape_at(w->t, in[0]);
    int64_t count = count_of(n->shape);
    double *v = tape_alloc(w->t, (count + 1) * 8), *e = tape_alloc(w->t, (count + 1) * 8);
    for (int64_t i = 0; i < count; i++) {
        v[i] = (int64_t)ids->v[i / n->i[0]] == i % n->i[0];
        e[i] = ids->e[i / n->i[0]] != 0 ? INFINITY : 0;
    }
    return tape_leaf(w->t, count, v, e, unit_of(n->dtype), false);
}
static const op_def op_one_hot = {"one_hot",    "tsr_one_hot($0, #0, (tsr_dtype)#1)",
                                  draw_one_hot, declare_one_hot,
                                  eval_one_hot, 2};

extern const op_def *const ops_index[];
const op_def *const ops_index[] = {&op_embedding, &op_gather, &op_one_hot, NULL};
