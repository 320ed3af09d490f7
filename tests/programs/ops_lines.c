/* SPDX-License-Identifier: Apache-2.0 */
/* Lines along an axis: running products, sums of exponentials and extremes; order; elements by ids
 * of their own. */
#include <math.h>
#include <stdlib.h>

#include "program.h"

/* The elements of a tensor as lines: element k of line l is at base(l) + k step. */
typedef struct lines {
    int64_t size, step, count; /* of a line; between its elements; of the lines */
} lines;

static int axis_of(const pnode *n, tsr_dims d)
{
    return (int)(n->i[0] < 0 ? n->i[0] + d.ndim : n->i[0]);
}

static lines lines_of(tsr_dims d, int axis)
{
    lines v = {.size = d.d[axis], .step = 1, .count = 1};
    for (int i = 0; i < d.ndim; i++) {
        v.step *= i > axis ? d.d[i] : 1;
        v.count *= i != axis ? d.d[i] : 1;
    }
    return v;
}

static int64_t base_of(const lines *v, int64_t line)
{
    return line / v->step * v->step * v->size + line % v->step;
}

static bool draw_line(gen *g, pnode *n, int x)
{
    if (!gen_begin(g, n, x) || !n->shape.ndim)
        return false;
    n->i[0] = rnd_below(&g->r, n->shape.ndim) - (rnd_chance(&g->r, 0.2) ? n->shape.ndim : 0);
    n->below = 0;
    return true;
}

/* --- running products and sums of exponentials ------------------------------------------------ */
static bool draw_running(gen *g, pnode *n)
{
    if (!draw_line(g, n, gen_float(g, 1, 4)))
        return false;
    const tape_value *x = gen_value(g, n->in[0]);
    bool tame = true;
    for (int64_t i = 0; i < x->n; i++)
        tame &= fabs(x->v[i]) < 6 || g->p->special;
    return tame;
}

static tsr_tensor *declare_cumprod(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_cumprod(in[0], (int)n->i[0]);
}

static tsr_tensor *declare_logcumsumexp(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_logcumsumexp(in[0], (int)n->i[0]);
}

/* Combines an axis's slice with those before it. */
typedef int combine_fn(walk *w, const pnode *n, int64_t count, int before, int slice);

static int multiply(walk *w, const pnode *n, int64_t count, int before, int slice)
{
    return tape_binary(w->t, count, before, NULL, slice, NULL, FN_MUL, unit_of(n->dtype));
}

static int add(walk *w, const pnode *n, int64_t count, int before, int slice)
{
    return tape_binary(w->t, count, before, NULL, slice, NULL, FN_ADD, unit_of(n->dtype));
}

/* log(exp(a) + exp(b)) without the exponentials, which may overflow. */
static int add_exponentials(walk *w, const pnode *n, int64_t count, int a, int b)
{
    const double u = unit_of(n->dtype);
    const int most = tape_binary(w->t, count, a, NULL, b, NULL, FN_MAXIMUM, u);
    const int difference = tape_binary(w->t, count, a, NULL, b, NULL, FN_SUB, u);
    const int rest =
        tape_unary(w->t, tape_unary(w->t, difference, FN_ABS, 0, u), FN_LOGSIGMOID, 0, u);
    return tape_binary(w->t, count, most, NULL, rest, NULL, FN_SUB, u);
}

/* Combines the slices of an axis one by one. */
static int eval_running(walk *w, const pnode *n, int x, combine_fn *combine)
{
    const lines v = lines_of(n->shape, axis_of(n, n->shape));
    const int64_t count = count_of(n->shape);
    int *slice = tape_alloc(w->t, (v.size + 1) * (int64_t)sizeof *slice);
    for (int64_t k = 0; k < v.size; k++) {
        tape_from *from = tape_alloc(w->t, (v.count + 1) * (int64_t)sizeof *from);
        for (int64_t l = 0; l < v.count; l++)
            from[l] = (tape_from){0, (int32_t)(base_of(&v, l) + k * v.step), 1};
        slice[k] = tape_move(w->t, v.count, 1, &x, from);
        if (k)
            slice[k] = combine(w, n, v.count, slice[k - 1], slice[k]);
    }
    tape_from *from = tape_alloc(w->t, (count + 1) * (int64_t)sizeof *from);
    for (int64_t l = 0; l < v.count; l++)
        for (int64_t k = 0; k < v.size; k++)
            from[base_of(&v, l) + k * v.step] = (tape_from){(int32_t)k, (int32_t)l, 1};
    return v.size ? tape_move(w->t, count, (int)v.size, slice, from)
                  : tape_move(w->t, 0, 1, &x, NULL);
}

static int eval_cumprod(walk *w, const pnode *n, const int *in)
{
    return eval_running(w, n, in[0], multiply);
}

static int eval_logcumsumexp(walk *w, const pnode *n, const int *in)
{
    static const double most_tame = 80; /* whose exponential overflows in no dtype */
    const double u = unit_of(n->dtype);
    const tape_value *x = tape_at(w->t, in[0]);
    double most = 0;
    for (int64_t i = 0; i < x->n; i++)
        most = fabs(x->v[i]) <= most ? most : fabs(x->v[i]);
    if (most > most_tame && isfinite(most))
        return eval_running(w, n, in[0], add_exponentials);
    return tape_unary(w->t, eval_running(w, n, tape_unary(w->t, in[0], FN_EXP, 0, u), add), FN_LOG,
                      0, u);
}

static const op_def op_cumprod = {"cumprod",       "tsr_cumprod($0, #0)", draw_running,
                                  declare_cumprod, eval_cumprod,          3};
static const op_def op_logcumsumexp = {"logcumsumexp",    "tsr_logcumsumexp($0, #0)",
                                       draw_running,      declare_logcumsumexp,
                                       eval_logcumsumexp, 2};

/* --- order: values that are exact, as else it is not determined ------------------------------- */

/* Returns an operand that is fed or made by a seed, not computed; -1: there is none. */
static int exact_operand(gen *g)
{
    static const char *const kinds[] = {"input", "constant", "random", "arange"};
    for (int k = 0; k < 8; k++) {
        int x = rnd_chance(&g->r, 0.7) ? gen_float(g, 1, 4) : gen_any(g, TSR_I64);
        for (int i = 0; x >= 0 && i < 4; i++)
            if (gen_at(g, x)->op == op_find(kinds[i]) && gen_at(g, x)->shape.ndim)
                return x;
    }
    return -1;
}

/* i = axis, descending (or the smaller ones), ids, how many (topk). */
static bool draw_order(gen *g, pnode *n)
{
    int x = exact_operand(g);
    if (x < 0 || !draw_line(g, n, x))
        return false;
    n->i[1] = rnd_chance(&g->r, 0.5);
    n->i[2] = rnd_chance(&g->r, 0.3);
    if (n->i[2]) {
        n->dtype = TSR_I64;
        n->below = n->shape.d[axis_of(n, n->shape)];
    }
    return true;
}

static bool draw_topk(gen *g, pnode *n)
{
    if (!draw_order(g, n))
        return false;
    const int axis = axis_of(n, n->shape);
    n->i[3] = rnd_below(&g->r, (int)n->shape.d[axis] + 1);
    n->shape.d[axis] = n->i[3];
    return true;
}

static tsr_tensor *declare_sort(declared *d, const pnode *n, tsr_tensor *const *in)
{
    tsr_tensor *ids, *y = tsr_sort(in[0], (int)n->i[0], n->i[1], &ids);
    (void)d;
    return n->i[2] ? ids : y;
}

static tsr_tensor *declare_topk(declared *d, const pnode *n, tsr_tensor *const *in)
{
    tsr_tensor *ids, *y = tsr_topk(in[0], n->i[3], (int)n->i[0], n->i[1], &ids);
    (void)d;
    return n->i[2] ? ids : y;
}

static tsr_tensor *declare_cummax(declared *d, const pnode *n, tsr_tensor *const *in)
{
    tsr_tensor *ids, *y = n->i[1] ? tsr_cummin(in[0], (int)n->i[0], &ids)
                                  : tsr_cummax(in[0], (int)n->i[0], &ids);
    (void)d;
    return n->i[2] ? ids : y;
}

/* Whether a stands before b in ascending order; NaN is the largest. */
static bool before(double a, double b)
{
    return isnan(a) ? false : isnan(b) || a < b;
}

/* Gives the elements that place[] says, or the places. */
static int eval_places(walk *w, const pnode *n, int x, const lines *from_lines,
                       const int64_t *place)
{
    const lines v = lines_of(n->shape, axis_of(n, n->shape));
    const int64_t count = count_of(n->shape);
    const tape_value *a = tape_at(w->t, x);
    tape_from *from = tape_alloc(w->t, (count + 1) * (int64_t)sizeof *from);
    double *id = tape_alloc(w->t, (count + 1) * 8), *e = tape_alloc(w->t, (count + 1) * 8);
    bool doubt = false;
    for (int64_t i = 0; i < a->n; i++)
        doubt |= a->e[i] != 0;
    for (int64_t l = 0; l < v.count; l++)
        for (int64_t k = 0; k < v.size; k++) {
            const int64_t at = base_of(&v, l) + k * v.step, p = place[l * v.size + k];
            from[at] = (tape_from){0, (int32_t)(base_of(from_lines, l) + p * from_lines->step), 1};
            id[at] = (double)p;
            e[at] = doubt ? INFINITY : 0;
        }
    if (n->i[2])
        return tape_leaf(w->t, count, id, e, 0, false);
    const int y = tape_move(w->t, count, 1, &x, from);
    for (int64_t i = 0; i < count && doubt; i++)
        tape_at(w->t, y)->e[i] = INFINITY;
    return y;
}

/* Sorts by insertion, which keeps equals in their order. */
static int eval_sorted(walk *w, const pnode *n, int x)
{
    const tsr_dims d = w->g->node[n->in[0]].shape;
    const int axis = axis_of(n, d);
    const lines v = lines_of(d, axis);
    const int64_t keep = n->shape.d[axis];
    const double *a = tape_at(w->t, x)->v;
    int64_t *place = tape_alloc(w->t, (v.count * v.size + 1) * 8);
    int64_t *order = tape_alloc(w->t, (v.size + 1) * 8);
    for (int64_t l = 0; l < v.count; l++) {
        const double *line = a + base_of(&v, l);
        for (int64_t k = 0; k < v.size; k++) {
            int64_t at = k;
            for (; at > 0; at--) {
                const double now = line[k * v.step], last = line[order[at - 1] * v.step];
                if (!(n->i[1] ? before(last, now) : before(now, last)))
                    break;
                order[at] = order[at - 1];
            }
            order[at] = k;
        }
        for (int64_t k = 0; k < keep; k++)
            place[l * keep + k] = order[k];
    }
    return eval_places(w, n, x, &v, place);
}

static int eval_sort(walk *w, const pnode *n, const int *in)
{
    return eval_sorted(w, n, in[0]);
}

/* Of equals the last. */
static int eval_cummax(walk *w, const pnode *n, const int *in)
{
    const lines v = lines_of(n->shape, axis_of(n, n->shape));
    const double *a = tape_at(w->t, in[0])->v;
    int64_t *place = tape_alloc(w->t, (v.count * v.size + 1) * 8);
    for (int64_t l = 0; l < v.count; l++) {
        const double *line = a + base_of(&v, l);
        int64_t best = 0;
        for (int64_t k = 0; k < v.size; k++) {
            const double now = line[k * v.step], top = line[best * v.step];
            if (isnan(now) || (!isnan(top) && (n->i[1] ? now <= top : now >= top)))
                best = k;
            place[l * v.size + k] = best;
        }
    }
    return eval_places(w, n, in[0], &v, place);
}

#define IDS(call) "({ tsr_tensor *ids_, *y_ = " call "; #2 ? ids_ : y_; })"
static const op_def op_sort = {
    "sort", IDS("tsr_sort($0, #0, #1, &ids_)"), draw_order, declare_sort, eval_sort, 3};
static const op_def op_topk = {
    "topk", IDS("tsr_topk($0, #3, #0, #1, &ids_)"), draw_topk, declare_topk, eval_sort, 3};
static const op_def op_cummax = {
    "cummax",    IDS("#1 ? tsr_cummin($0, #0, &ids_) : tsr_cummax($0, #0, &ids_)"),
    draw_order,  declare_cummax,
    eval_cummax, 3};

/* --- by ids ----------------------------------------------------------------------------------- */

/* Sets *out to a shape that fits into x's beside the axis. */
static bool draw_ids(gen *g, pnode *n, tsr_dims *out)
{
    if (!draw_line(g, n, gen_float(g, 1, 4)))
        return false;
    const int axis = axis_of(n, n->shape);
    *out = n->shape;
    for (int i = 0; i < out->ndim; i++) {
        if (n->shape.d[i] < 1)
            return false;
        if (i == axis)
            out->d[i] = 1 + rnd_below(&g->r, 5);
        else if (rnd_chance(&g->r, 0.3))
            out->d[i] = 1 + rnd_below(&g->r, (int)n->shape.d[i]);
    }
    if (count_of(*out) > 200)
        return false;
    n->nin = 2;
    n->in[1] = gen_ids(g, *out, n->shape.d[axis], n->place);
    return n->in[1] >= 0;
}

static bool draw_gather(gen *g, pnode *n)
{
    tsr_dims ids;
    if (!draw_ids(g, n, &ids))
        return false;
    n->shape = ids;
    return true;
}

static bool draw_scatter_add(gen *g, pnode *n)
{
    tsr_dims ids;
    if (!draw_ids(g, n, &ids))
        return false;
    n->nin = 3;
    n->in[2] = gen_like(g, ids, n->dtype, n->place);
    return n->in[2] >= 0;
}

static tsr_tensor *declare_gather(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_gather(in[0], (int)n->i[0], in[1]);
}

static tsr_tensor *declare_scatter_add(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_scatter_add(in[0], (int)n->i[0], in[1], in[2]);
}

/* Returns where in x each element of ids points to; *out_doubt: an id is not determined. */
static int64_t *targets(walk *w, const pnode *n, int ids, bool *out_doubt)
{
    const tsr_dims xd = w->g->node[n->in[0]].shape, d = w->g->node[n->in[1]].shape;
    const int axis = axis_of(n, xd);
    const int64_t count = count_of(d);
    const tape_value *v = tape_at(w->t, ids);
    int64_t *at = tape_alloc(w->t, (count + 1) * 8);
    *out_doubt = false;
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = i, stride = 1, id = (int64_t)v->v[i];
        *out_doubt |= v->e[i] != 0;
        id = id < 0 || id >= xd.d[axis] ? 0 : id;
        at[i] = 0;
        for (int k = d.ndim - 1; k >= 0; k--) {
            at[i] += (k == axis ? id : rest % d.d[k]) * stride;
            rest /= d.d[k];
            stride *= xd.d[k];
        }
    }
    return at;
}

static int undetermined(walk *w, int y, bool doubt)
{
    for (int64_t i = 0; i < tape_at(w->t, y)->n && doubt; i++)
        tape_at(w->t, y)->e[i] = INFINITY;
    return y;
}

static int eval_gather(walk *w, const pnode *n, const int *in)
{
    bool doubt;
    const int64_t *at = targets(w, n, in[1], &doubt), count = count_of(n->shape);
    tape_from *from = tape_alloc(w->t, (count + 1) * (int64_t)sizeof *from);
    for (int64_t i = 0; i < count; i++)
        from[i] = (tape_from){0, (int32_t)at[i], 1};
    return undetermined(w, tape_move(w->t, count, 1, in, from), doubt);
}

static int eval_scatter_add(walk *w, const pnode *n, const int *in)
{
    bool doubt;
    const int64_t *at = targets(w, n, in[1], &doubt), terms = tape_at(w->t, in[2])->n;
    const int64_t count = count_of(n->shape);
    tape_term *term = tape_alloc(w->t, (terms + 1) * (int64_t)sizeof *term);
    for (int64_t i = 0; i < terms; i++)
        term[i] = (tape_term){(int32_t)at[i], (int32_t)i, 0, 1};
    const double u = unit_of(n->dtype);
    const int sums = tape_terms(w->t, count, in[2], -1, terms, term, u);
    return undetermined(w, tape_binary(w->t, count, in[0], NULL, sums, NULL, FN_ADD, u), doubt);
}

static const op_def op_gather = {
    "gather", "tsr_gather($0, #0, $1)", draw_gather, declare_gather, eval_gather, 4};
static const op_def op_scatter_add = {"scatter_add",    "tsr_scatter_add($0, #0, $1, $2)",
                                      draw_scatter_add, declare_scatter_add,
                                      eval_scatter_add, 4};

extern const op_def *const ops_lines[];
const op_def *const ops_lines[] = {&op_cumprod, &op_logcumsumexp, &op_sort,        &op_topk,
                                   &op_cummax,  &op_gather,       &op_scatter_add, NULL};
