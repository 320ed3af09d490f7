/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts a step into parts in time (micro-batches). The new graph has, in this order, the ops that
 * run before the parts (HEAD), the ops of one part, whose tensors have 1/k of the rows, and the ops
 * that run after the last part (TAIL). Declared ops that turns.c puts into the parts are copied;
 * the originals stay in HEAD, where they are live only if HEAD needs their whole results. Three ops
 * connect the turns: PART takes a part's rows, TOTAL adds up the parts' results, and WHOLE
 * assembles their rows.
 */
#include "src/rewrite/time.h"

#include <stdlib.h>
#include <string.h>

#include "sbp/rule/sbp.h"

/* An op's place in the graph: by turn, then by `key`. */
typedef struct place {
    tsri_op *op;
    int key, number; /* number: order in which it was placed */
} place;

typedef struct writer {
    tsri_cutter c;
    place *list;
    int n, size;
} writer;

static tsr_status put(writer *w, tsri_op *op, tsri_turn turn, int key)
{
    TSRI_NEED(op && TSRI_PUSH(&w->c.g->pool, w->list, w->n, w->size));
    op->turn = turn;
    w->list[w->n] = (place){op, key, w->n};
    w->n++;
    return TSR_OK;
}

/* Declared ops have even keys, so that other ops can be placed directly before and after each. */
static int key_of(const tsri_op *op)
{
    return 2 * op->id;
}

static tsr_dims cut_shape(const tsri_cutter *c, tsr_dims shape, tsr_sbp1 sig)
{
    if (sig.kind == TSR_SBP_SPLIT)
        shape.d[sig.arg] /= c->parts;
    return shape;
}

/* Adds an op with one result. It gets the placement, names and location of the producer of `like`.
 */
static tsr_status add(writer *w, tsri_op_kind kind, const tsri_attrs *attrs, int nin,
                      tsr_tensor *const *in, tsr_dims shape, tsr_dtype dtype,
                      const tsr_tensor *like, tsri_op **out_op)
{
    tsri_op *op = tsri_graph_append(w->c.g, kind, attrs, nin, in, 1, &shape, &dtype,
                                    like->op->placement, like->op->loc);
    TSRI_NEED(op);
    op->name = like->op->name;
    op->label = like->op->label;
    op->backward = like->op->backward;
    op->region = 0;
    op->out[0]->origin = like->origin;
    *out_op = op;
    return TSR_OK;
}

/* The number of the part that runs, on a placement. */
static tsr_status number_of(writer *w, const tsr_tensor *like, tsr_tensor **out_number)
{
    tsr_graph *g = w->c.g;
    tsri_op *op;
    for (int i = w->c.declared; i < g->nops; i++)
        if (g->ops[i]->kind == TSRI_OP_INPUT && g->ops[i]->placement == like->op->placement) {
            *out_number = g->ops[i]->out[0];
            return TSR_OK;
        }
    TSRI_TRY(add(w, TSRI_OP_INPUT, NULL, 0, NULL, TSR_SCALAR, TSR_I64, like, &op));
    op->name = TSRI_PART_INPUT;
    op->label = "";
    op->backward = false;
    op->sbp = tsri_sbp_b(tsr_placement_ndim(op->placement));
    *out_number = op->out[0];
    return put(w, op, TSRI_TURN_HEAD, -1);
}

static tsri_attrs rows_of(const tsri_cutter *c, tsr_sbp1 sig)
{
    tsri_attrs attrs = {0};
    attrs.part.axis = sig.arg;
    attrs.part.parts = c->parts;
    attrs.part.blocks = c->blocks;
    return attrs;
}

/* --- HEAD -> PARTS ---------------------------------------------------------------------------- */
static tsr_status part_of(writer *w, tsr_tensor *t, tsr_sbp1 sig, int key, tsr_tensor **out_part);

/* Copies a declared op into the parts. */
static tsr_status copy_op(writer *w, const tsri_op *op, const tsri_signature *sig, int key,
                          tsri_op **out_copy)
{
    tsr_graph *g = w->c.g;
    tsri_op *copy = tsri_pool_dup(&g->pool, op, sizeof *op);
    tsr_tensor *results = tsri_pool_alloc(&g->pool, (size_t)op->nout * sizeof *results);
    const int room = op->nin + 1; /* the number of the part */
    TSRI_NEED(copy && results);
    copy->in = tsri_pool_alloc(&g->pool, (size_t)room * sizeof(tsr_tensor *));
    copy->out = tsri_pool_alloc(&g->pool, (size_t)op->nout * sizeof(tsr_tensor *));
    TSRI_NEED(copy->in && copy->out);
    for (int i = 0; i < op->nin; i++)
        TSRI_TRY(part_of(w, op->in[i], sig->in[i], key - 1, &copy->in[i]));
    for (int j = 0; j < op->nout; j++) {
        tsr_tensor *t = copy->out[j] = &results[j];
        *t = *op->out[j];
        t->op = copy;
        t->shape = cut_shape(&w->c, t->shape, sig->out[j]);
        t->id = g->ntensors;
        TSRI_NEED(TSRI_PUSH(&g->pool, g->tensors, g->ntensors, g->ctensors));
        g->tensors[g->ntensors++] = t;
    }
    const tsri_op_def *def = tsri_op_def_of(op->kind);
    if (def->counts_whole && sig->out[0].kind == TSR_SBP_SPLIT) {
        const tsri_attrs rows = rows_of(&w->c, sig->out[0]);
        TSRI_TRY(number_of(w, op->out[0], &copy->in[copy->nin++]));
        copy->attrs.dropout.axis = rows.part.axis;
        copy->attrs.dropout.parts = rows.part.parts;
        copy->attrs.dropout.blocks = rows.part.blocks;
    }
    if (def->cut)
        def->cut(copy, sig, w->c.parts);
    *out_copy = copy;
    return put(w, copy, TSRI_TURN_PARTS, key);
}

/* Returns a part's rows of a HEAD value, computed in the part if that costs no more than a copy. */
static tsr_status cut_early(writer *w, tsr_tensor *t, tsr_sbp1 sig, int key, tsr_tensor **out_part)
{
    tsri_signature found;
    bool fits = false;
    tsri_op *op;
    if (tsri_op_def_of(t->op->kind)->spreads && t->op->sbp.ndim == 0)
        TSRI_TRY(tsri_time_signature(&w->c, t->op, &sig, t->out, &found, &fits));
    if (fits) {
        TSRI_TRY(copy_op(w, t->op, &found, key, &op));
        *out_part = op->out[t->out];
        return TSR_OK;
    }
    const tsri_attrs attrs = rows_of(&w->c, sig);
    tsr_tensor *in[2] = {t, NULL};
    TSRI_TRY(number_of(w, t, &in[1]));
    TSRI_TRY(
        add(w, TSRI_OP_PART, &attrs, 2, in, cut_shape(&w->c, t->shape, sig), t->dtype, t, &op));
    *out_part = op->out[0];
    return put(w, op, TSRI_TURN_PARTS, key);
}

/* Returns the tensor that an op of the parts reads in place of t, in a signature over time. */
static tsr_status part_of(writer *w, tsr_tensor *t, tsr_sbp1 sig, int key, tsr_tensor **out_part)
{
    tsri_over_time *x = &w->c.of[t->id];
    if (x->turn == TSRI_TURN_PARTS) {
        *out_part = x->part;
        return TSR_OK;
    }
    if (sig.kind == TSR_SBP_BROADCAST) {
        *out_part = t;
        return TSR_OK;
    }
    if (!x->part || x->sig.arg != sig.arg) {
        TSRI_TRY(cut_early(w, t, sig, key, &x->part));
        x->sig = sig;
    }
    *out_part = x->part;
    return TSR_OK;
}

/* --- PARTS -> TAIL ---------------------------------------------------------------------------- */
/* Returns the declared tensor that has the total of t. A half and its cast to f32 share one: the
 * total of halves is f32, and each addend is widened exactly. So no part needs the cast. */
static tsr_tensor *summed_as(const writer *w, tsr_tensor *t)
{
    const tsri_op *op = t->op;
    const bool widens = op->kind == TSRI_OP_CAST && t->dtype == TSR_F32 &&
                        tsri_is_half(op->in[0]->dtype) && op->sbp.ndim == 0;
    return widens && w->c.sig[op->id].in[0].kind == TSR_SBP_PARTIAL ? op->in[0] : t;
}

/* Returns the total of a sum over parts. */
static tsr_status total_of(writer *w, const tsr_tensor *t, tsr_tensor **out_total)
{
    tsri_over_time *x = &w->c.of[t->id];
    if (!x->total) {
        tsri_op *op;
        const tsri_attrs attrs = {.total = {.op = x->sig.arg}};
        tsr_tensor *in[2] = {x->part, NULL};
        TSRI_TRY(number_of(w, t, &in[1]));
        TSRI_TRY(add(w, TSRI_OP_TOTAL, &attrs, 2, in, t->shape,
                     tsri_is_half(t->dtype) ? TSR_F32 : t->dtype, t, &op));
        TSRI_TRY(put(w, op, TSRI_TURN_PARTS, key_of(t->op) + 1));
        x->total = op->out[0];
    }
    *out_total = x->total;
    return TSR_OK;
}

/* Returns the rows of all parts of a tensor. */
static tsr_status rows_of_all(writer *w, const tsr_tensor *t, tsr_tensor **out_rows)
{
    const tsri_over_time *x = &w->c.of[t->id];
    const tsri_attrs attrs = rows_of(&w->c, x->sig);
    tsr_tensor *in[2] = {x->part, NULL};
    tsri_op *op;
    TSRI_TRY(number_of(w, t, &in[1]));
    TSRI_TRY(add(w, TSRI_OP_WHOLE, &attrs, 2, in, t->shape, t->dtype, t, &op));
    *out_rows = op->out[0];
    return put(w, op, TSRI_TURN_PARTS, key_of(t->op) + 1);
}

/* Returns the tensor that TAIL reads in place of t. The total of a half is rounded once. */
static tsr_status whole_of(writer *w, tsr_tensor *t, int key, tsr_tensor **out_whole)
{
    tsri_over_time *x = &w->c.of[t->id];
    if (x->turn != TSRI_TURN_PARTS || !x->is_cut) {
        *out_whole = t;
        return TSR_OK;
    }
    if (!x->whole) {
        TSRI_TRY(x->sig.kind == TSR_SBP_PARTIAL ? total_of(w, summed_as(w, t), &x->whole)
                                                : rows_of_all(w, t, &x->whole));
        if (x->whole->dtype != t->dtype) {
            tsri_op *op;
            TSRI_TRY(add(w, TSRI_OP_CAST, NULL, 1, &x->whole, t->shape, t->dtype, t, &op));
            TSRI_TRY(put(w, op, TSRI_TURN_TAIL, key));
            x->whole = op->out[0];
        }
        x->whole->is_loss |= x->part->is_loss;
        x->part->is_loss = false;
    }
    *out_whole = x->whole;
    return TSR_OK;
}

/* --- the graph -------------------------------------------------------------------------------- */
/* Places the early forms of an op's results in HEAD after the op. */
static tsr_status put_early(writer *w, const tsri_op *op)
{
    tsr_graph *g = w->c.g;
    for (int j = 0; j < op->nout; j++) {
        const tsri_over_time *x = &w->c.of[op->out[j]->id];
        for (int i = x->early_begin; i < x->early_end && x->early; i++)
            TSRI_TRY(put(w, g->ops[i], TSRI_TURN_HEAD, key_of(op) + 1));
    }
    return TSR_OK;
}

/* Gives an op of HEAD the early forms of its operands. */
static void use_early(const writer *w, tsri_op *op)
{
    for (int i = 0; i < op->nin; i++)
        if (w->c.of[op->in[i]->id].early)
            op->in[i] = w->c.of[op->in[i]->id].early;
}

static tsr_status write_op(writer *w, tsri_op *op)
{
    tsri_cutter *c = &w->c;
    const tsri_turn turn = c->turn[op->id];
    tsri_op *copy;
    TSRI_TRY(put(w, op, turn == TSRI_TURN_TAIL ? turn : TSRI_TURN_HEAD, key_of(op)));
    /* A dead op reads the originals, so that no total is made for it alone and marked as a loss. */
    if (turn == TSRI_TURN_TAIL && c->live[op->id])
        for (int i = 0; i < op->nin; i++)
            TSRI_TRY(whole_of(w, op->in[i], key_of(op) - 1, &op->in[i]));
    if (turn == TSRI_TURN_PARTS) {
        TSRI_TRY(copy_op(w, op, &c->sig[op->id], key_of(op), &copy));
        for (int j = 0; j < op->nout; j++)
            c->of[op->out[j]->id].part = copy->out[j];
    }
    if (turn != TSRI_TURN_TAIL)
        use_early(w, op);
    return put_early(w, op);
}

static int by_turn(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->op->turn != y->op->turn)
        return x->op->turn > y->op->turn ? 1 : -1;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key)
                            : (x->number > y->number) - (x->number < y->number);
}

static tsr_status write_graph(writer *w)
{
    tsr_graph *g = w->c.g;
    for (int i = 0; i < w->c.declared; i++)
        TSRI_TRY(write_op(w, g->ops[i]));
    for (int i = 0; i < g->nports; i++)
        if (!g->ports[i].is_input)
            TSRI_TRY(whole_of(w, g->ports[i].tensor, 2 * w->c.declared, &g->ports[i].tensor));
    qsort(w->list, (size_t)w->n, sizeof *w->list, by_turn);
    g->ops = tsri_pool_alloc(&g->pool, (size_t)w->n * sizeof(tsri_op *));
    TSRI_NEED(g->ops);
    g->nops = g->cops = w->n;
    for (int i = 0; i < w->n; i++) {
        g->ops[i] = w->list[i].op;
        g->ops[i]->id = i;
    }
    return TSR_OK;
}

tsr_status tsri_rewrite_time(tsr_graph *copy)
{
    if (copy->step.parts <= 1)
        return TSR_OK;
    tsri_pool *pool = &copy->pool;
    writer w = {.c = {.g = copy, .parts = copy->step.parts, .declared = copy->nops}};
    w.c.of = tsri_pool_alloc(pool, (size_t)copy->ntensors * sizeof *w.c.of);
    w.c.turn = tsri_pool_alloc(pool, (size_t)copy->nops * sizeof *w.c.turn);
    w.c.sig = tsri_pool_alloc(pool, (size_t)copy->nops * sizeof *w.c.sig);
    w.c.live = tsri_pool_alloc(pool, (size_t)copy->nops * sizeof *w.c.live);
    TSRI_NEED(w.c.of && w.c.turn && w.c.sig && w.c.live);
    tsri_graph_mark_live(copy, w.c.live);
    TSRI_TRY(tsri_time_turns(&w.c));
    return write_graph(&w);
}
