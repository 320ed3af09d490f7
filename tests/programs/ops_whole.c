/* SPDX-License-Identifier: Apache-2.0 */
/* Whole numbers up to the limits of i32 and u8, which wrap. A double holds them all, so the walk
 * gives what any number of ranks must have, to the bit. */
#include <string.h>

#include "program.h"

static double wrapped(uint64_t v, tsr_dtype dtype)
{
    return dtype == TSR_I32  ? (double)(int32_t)(uint32_t)v
           : dtype == TSR_U8 ? (double)(uint8_t)v
                             : (double)(int64_t)v;
}

static uint64_t whole_of(double v)
{
    return (uint64_t)(int64_t)v;
}

static int exact_leaf(walk *w, const pnode *n, const double *v)
{
    return tape_leaf(w->t, count_of(n->shape), v, NULL, 0, false);
}

static double *room(walk *w, const pnode *n)
{
    return tape_alloc(w->t, (count_of(n->shape) + 1) * (int64_t)sizeof(double));
}

/* An operand with such numbers, mostly one that there is; -1. */
static int operand(gen *g, tsr_dtype dtype)
{
    const int x = rnd_chance(&g->r, 0.6) ? gen_any(g, dtype) : -1;
    return x >= 0 ? x : gen_leaf(g, gen_dims(g, 0, 3), dtype, rnd_below(&g->r, g->p->nplaces));
}

static bool draw_one(gen *g, pnode *n)
{
    return gen_begin(g, n, operand(g, rnd_chance(&g->r, 0.7) ? TSR_I32 : TSR_U8));
}

/* --- two operands ----------------------------------------------------------------------------- */
static bool draw_two_of(gen *g, pnode *n, tsr_dtype dtype)
{
    if (!gen_begin(g, n, operand(g, dtype)))
        return false;
    n->nin = 2;
    n->in[1] = gen_like(g, n->shape, dtype, n->place);
    return n->in[1] >= 0;
}

static bool draw_numbers(gen *g, pnode *n)
{
    return draw_two_of(g, n, TSR_I32);
}

static bool draw_wholes(gen *g, pnode *n)
{
    return draw_two_of(g, n, rnd_chance(&g->r, 0.6) ? TSR_I32 : TSR_U8);
}

/* Quotients by their definition, which the library's are not computed by. */
static int64_t floor_of(int64_t a, int64_t b)
{
    int64_t q = 0, size = a < 0 ? -a : a, by = b < 0 ? -b : b;
    if (b == 0)
        return 0;
    q = size / by;
    return (a < 0) == (b < 0) ? q : -(q + (q * by < size));
}

#define TWO(name, drawn, expr, w)                                                               \
    static tsr_tensor *declare_whole_##name(declared *d, const pnode *n, tsr_tensor *const *in) \
    {                                                                                           \
        (void)d, (void)n;                                                                       \
        return tsr_##name(in[0], in[1]);                                                        \
    }                                                                                           \
    static int eval_whole_##name(walk *w_, const pnode *n, const int *in)                       \
    {                                                                                           \
        const double *x = tape_at(w_->t, in[0])->v, *y = tape_at(w_->t, in[1])->v;              \
        double *v = room(w_, n);                                                                \
        for (int64_t i = 0; i < count_of(n->shape); i++) {                                      \
            const int64_t a = (int64_t)x[i], b = (int64_t)y[i];                                 \
            v[i] = wrapped((uint64_t)(expr), n->dtype);                                         \
        }                                                                                       \
        return exact_leaf(w_, n, v);                                                            \
    }                                                                                           \
    static const op_def op_##name = {"whole_" #name,       "tsr_" #name "($0, $1)", drawn,      \
                                     declare_whole_##name, eval_whole_##name,       w};
TWO(add, draw_numbers, a + b, 2)
TWO(sub, draw_numbers, a - b, 1)
TWO(mul, draw_numbers, a *b, 2)
TWO(maximum, draw_wholes, a > b ? a : b, 1)
TWO(minimum, draw_wholes, a < b ? a : b, 1)
TWO(floor_divide, draw_numbers, floor_of(a, b), 1)
TWO(remainder, draw_numbers, b ? a - b *floor_of(a, b) : 0, 1)
TWO(bitwise_xor, draw_wholes, a ^ b, 1)

/* --- sums and products ------------------------------------------------------------------------ */
/* Of the operand's dtype, a narrower or wider one, or i64. */
static void draw_result(gen *g, pnode *n)
{
    static const tsr_dtype some[] = {TSR_I32, TSR_U8, TSR_I64};
    n->dtype = some[rnd_below(&g->r, 3)];
    n->below = 0;
}

static bool draw_over(gen *g, pnode *n)
{
    if (!draw_one(g, n))
        return false;
    n->axes = (tsr_axes){0};
    for (int i = 0; i < n->shape.ndim; i++)
        if (rnd_chance(&g->r, 0.5))
            n->axes.axis[n->axes.n++] = i;
    n->i[0] = rnd_chance(&g->r, 0.4);
    n->shape = reduced_dims(n->shape, axes_mask(n->axes, n->shape.ndim), n->i[0]);
    draw_result(g, n);
    return true;
}

/* Products of more than 2^53 have no exact double. */
static bool draw_product(gen *g, pnode *n)
{
    const bool drawn = draw_over(g, n);
    n->dtype = n->dtype == TSR_I64 ? TSR_I32 : n->dtype;
    return drawn;
}

static int fold(walk *w, const pnode *n, int x, bool product)
{
    const tsr_dims dims = w->g->node[n->in[0]].shape;
    const int32_t *group = eval_groups(w->t, dims, axes_mask(n->axes, dims.ndim));
    const double *from = tape_at(w->t, x)->v;
    double *v = room(w, n);
    uint64_t all[400];
    for (int64_t i = 0; i < count_of(n->shape); i++)
        all[i] = product;
    for (int64_t i = 0; i < count_of(dims); i++) {
        uint64_t *to = &all[group[i]];
        *to = product ? *to * whole_of(from[i]) : *to + whole_of(from[i]);
    }
    for (int64_t i = 0; i < count_of(n->shape); i++)
        v[i] = wrapped(all[i], n->dtype);
    return exact_leaf(w, n, v);
}

#define FOLD(name, drawn, product)                                                                \
    static tsr_tensor *declare_whole_##name(declared *d, const pnode *n, tsr_tensor *const *in)   \
    {                                                                                             \
        (void)d;                                                                                  \
        return tsr_##name##_with(in[0], n->axes, n->i[0], TSR_SUM_OPTS(.dtype = n->dtype));       \
    }                                                                                             \
    static int eval_whole_##name(walk *w, const pnode *n, const int *in)                          \
    {                                                                                             \
        return fold(w, n, in[0], product);                                                        \
    }                                                                                             \
    static const op_def op_##name = {"whole_" #name,                                              \
                                     "tsr_" #name "_with($0, ^A, #0, TSR_SUM_OPTS(.dtype = ^D))", \
                                     drawn,                                                       \
                                     declare_whole_##name,                                        \
                                     eval_whole_##name,                                           \
                                     2};
FOLD(sum, draw_over, false)
FOLD(prod, draw_product, true)

static bool draw_cumsum(gen *g, pnode *n)
{
    if (!draw_one(g, n) || n->shape.ndim == 0)
        return false;
    n->i[0] = rnd_below(&g->r, n->shape.ndim);
    draw_result(g, n);
    return true;
}

static tsr_tensor *declare_cumsum(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_cumsum_with(in[0], (int)n->i[0], TSR_SUM_OPTS(.dtype = n->dtype));
}

static int eval_cumsum(walk *w, const pnode *n, const int *in)
{
    const double *x = tape_at(w->t, in[0])->v;
    double *v = room(w, n);
    int64_t inner = 1;
    for (int i = (int)n->i[0] + 1; i < n->shape.ndim; i++)
        inner *= n->shape.d[i];
    for (int64_t i = 0; i < count_of(n->shape); i++) {
        const int64_t size = n->shape.d[n->i[0]], place = i / inner % size;
        uint64_t sum = 0;
        for (int64_t k = 0; k <= place; k++)
            sum += whole_of(x[i - k * inner]);
        v[i] = wrapped(sum, n->dtype);
    }
    return exact_leaf(w, n, v);
}

static const op_def op_cumsum = {
    "whole_cumsum", "tsr_cumsum_with($0, #0, TSR_SUM_OPTS(.dtype = ^D))",
    draw_cumsum,    declare_cumsum,
    eval_cumsum,    2};

/* --- casts ------------------------------------------------------------------------------------ */
static bool draw_cast(gen *g, pnode *n)
{
    if (!draw_one(g, n))
        return false;
    const tsr_dtype from = n->dtype;
    draw_result(g, n);
    n->dtype = n->dtype == from ? TSR_I64 : n->dtype;
    return true;
}

static tsr_tensor *declare_cast(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_cast(in[0], n->dtype);
}

static int eval_cast(walk *w, const pnode *n, const int *in)
{
    const double *x = tape_at(w->t, in[0])->v;
    double *v = room(w, n);
    for (int64_t i = 0; i < count_of(n->shape); i++)
        v[i] = wrapped(whole_of(x[i]), n->dtype);
    return exact_leaf(w, n, v);
}

static const op_def op_cast = {"whole_cast", "tsr_cast($0, ^D)", draw_cast,
                               declare_cast, eval_cast,          2};

const op_def *const ops_whole[] = {&op_add,     &op_sub,          &op_mul,       &op_maximum,
                                   &op_minimum, &op_floor_divide, &op_remainder, &op_bitwise_xor,
                                   &op_sum,     &op_prod,         &op_cumsum,    &op_cast,
                                   NULL};
