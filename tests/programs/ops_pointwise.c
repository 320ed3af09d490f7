/* SPDX-License-Identifier: Apache-2.0 */
/* Element by element: functions of one and of two, casts, where. */
#include <math.h>

#include "program.h"

static double largest(const tape_value *v)
{
    double m = 0;
    for (int64_t i = 0; i < v->n; i++)
        m = fabs(v->v[i]) > m ? fabs(v->v[i]) : m;
    return m;
}

static double least(const tape_value *v)
{
    double m = INFINITY;
    for (int64_t i = 0; i < v->n; i++)
        m = v->v[i] < m ? v->v[i] : m;
    return m;
}

static double greatest(const tape_value *v)
{
    double m = -INFINITY;
    for (int64_t i = 0; i < v->n; i++)
        m = v->v[i] > m ? v->v[i] : m;
    return m;
}

static double nearest_to_zero(const tape_value *v)
{
    double m = INFINITY;
    for (int64_t i = 0; i < v->n; i++)
        m = fabs(v->v[i]) < m ? fabs(v->v[i]) : m;
    return m;
}

static void same_shape(gen *g, pnode *n, int x)
{
    n->nin = 1;
    n->in[0] = x;
    n->shape = gen_at(g, x)->shape;
    n->dtype = gen_at(g, x)->dtype;
    n->place = gen_at(g, x)->place;
}

static bool draw_any(gen *g, pnode *n)
{
    int x = gen_float(g, 0, 5);
    if (x < 0)
        return false;
    same_shape(g, n, x);
    return true;
}

/* Operands as tests/unary_cases.h says; most of the time, as else there is a desert of infinities.
 */
static bool draw_from(gen *g, pnode *n, double low, double high)
{
    if (!draw_any(g, n))
        return false;
    const tape_value *v = gen_value(g, n->in[0]);
    return (least(v) > low && greatest(v) < high) || rnd_chance(&g->r, g->wild);
}

static bool draw_ANY(gen *g, pnode *n)
{
    return draw_any(g, n);
}

static bool draw_TAME(gen *g, pnode *n)
{
    return draw_from(g, n, -6, 6);
}

static bool draw_POSITIVE(gen *g, pnode *n)
{
    return draw_from(g, n, 0.05, INFINITY);
}

static bool draw_INSIDE(gen *g, pnode *n)
{
    return draw_from(g, n, -0.95, 0.95);
}

static bool draw_ABOVE(gen *g, pnode *n)
{
    return draw_from(g, n, 1.05, INFINITY);
}

static double scalar(gen *g)
{
    static const double some[] = {2, 0.5, -1, 3, 1, 0, -0.25, 1.5};
    return rnd_chance(&g->r, 0.6) ? some[rnd_below(&g->r, 8)] : rnd_in(&g->r, -2, 2);
}

static bool draw_scalar(gen *g, pnode *n)
{
    n->f[0] = scalar(g);
    return draw_any(g, n);
}

static bool draw_divisor(gen *g, pnode *n)
{
    do
        n->f[0] = scalar(g);
    while (n->f[0] == 0);
    return draw_any(g, n);
}

static bool draw_rdiv(gen *g, pnode *n)
{
    n->f[0] = scalar(g);
    return draw_any(g, n) &&
           (nearest_to_zero(gen_value(g, n->in[0])) > 0.05 || rnd_chance(&g->r, g->wild));
}

static bool draw_pow(gen *g, pnode *n)
{
    static const double some[] = {2, 3, 1, 0, 0.5, -1, 1.5, -2};
    n->f[0] = some[rnd_below(&g->r, 8)];
    if (!draw_any(g, n))
        return false;
    const tape_value *v = gen_value(g, n->in[0]);
    bool fine = n->f[0] >= 1 && n->f[0] == floor(n->f[0]) && largest(v) < 20;
    return fine || (least(v) > 0.05 && largest(v) < 20) || rnd_chance(&g->r, g->wild);
}

static bool draw_gelu(gen *g, pnode *n)
{
    n->i[0] = rnd_below(&g->r, 2);
    return draw_any(g, n);
}

static bool draw_cast(gen *g, pnode *n)
{
    static const tsr_dtype to[] = {TSR_F32, TSR_F64, TSR_I64};
    int x = rnd_chance(&g->r, 0.7) ? gen_float(g, 0, 5) : gen_any(g, TSR_DTYPE_NONE);
    if (x < 0)
        return false;
    same_shape(g, n, x);
    n->i[0] = to[rnd_below(&g->r, 3)];
    const bool real = unit_of(gen_at(g, x)->dtype) != 0;
    if ((n->i[0] == TSR_I64 || !real) && !(largest(gen_value(g, x)) < 1e6))
        return false;
    n->below = n->i[0] == TSR_I64 && gen_at(g, x)->dtype == TSR_I64 ? gen_at(g, x)->below : 0;
    n->dtype = (tsr_dtype)n->i[0];
    return true;
}

static int eval_cast(walk *w, const pnode *n, const int *in)
{
    tape_fn fn = n->dtype == TSR_I64 ? FN_WHOLE : FN_SAME;
    int id = tape_unary(w->t, in[0], fn, 0, unit_of(n->dtype));
    /* No gradient flows through whole numbers. */
    return unit_of(w->g->node[n->in[0]].dtype) == 0 ? tape_detach(w->t, id) : id;
}

/* A function of one: its name, its tape_fn, how it is drawn. */
#define ONE(name, FN, drawn, w)                                                           \
    static tsr_tensor *declare_##name(declared *d, const pnode *n, tsr_tensor *const *in) \
    {                                                                                     \
        (void)d, (void)n;                                                                 \
        return tsr_##name(in[0]);                                                         \
    }                                                                                     \
    static int eval_##name(walk *t, const pnode *n, const int *in)                        \
    {                                                                                     \
        return tape_unary(t->t, in[0], FN, 0, unit_of(n->dtype));                         \
    }                                                                                     \
    static const op_def op_##name = {#name,          "tsr_" #name "($0)", drawn,          \
                                     declare_##name, eval_##name,         w};
ONE(neg, FN_NEG, draw_any, 2)

#define TEXT_0(name) "tsr_" name "($0)"
#define TEXT_1(name) "tsr_" name "($0, %0)"
#define TEXT_2(name) "tsr_" name "($0, %0, %1)"
#define UNARY_OP(T, FN, name, arity, p, q, from, ...)                                     \
    static bool draw_##name(gen *g, pnode *n)                                             \
    {                                                                                     \
        n->f[0] = p;                                                                      \
        n->f[1] = q;                                                                      \
        return draw_##from(g, n);                                                         \
    }                                                                                     \
    static tsr_tensor *declare_##name(declared *d, const pnode *n, tsr_tensor *const *in) \
    {                                                                                     \
        (void)d, (void)n;                                                                 \
        return UNARY_CALL_##arity(name, in[0], n->f[0], n->f[1]);                         \
    }                                                                                     \
    static int eval_##name(walk *t, const pnode *n, const int *in)                        \
    {                                                                                     \
        return tape_unary(t->t, in[0], FN_##FN, 0, unit_of(n->dtype));                    \
    }                                                                                     \
    static const op_def op_##name = {#name,          TEXT_##arity(#name), draw_##name,    \
                                     declare_##name, eval_##name,         1};
UNARY_CASES(UNARY_OP, )

#define SCALAR(name, FN, drawn, sign, w)                                                  \
    static tsr_tensor *declare_##name(declared *d, const pnode *n, tsr_tensor *const *in) \
    {                                                                                     \
        (void)d;                                                                          \
        return tsr_##name(in[0], n->f[0]);                                                \
    }                                                                                     \
    static int eval_##name(walk *t, const pnode *n, const int *in)                        \
    {                                                                                     \
        return tape_unary(t->t, in[0], FN, (sign)*n->f[0], unit_of(n->dtype));            \
    }                                                                                     \
    static const op_def op_##name = {                                                     \
        #name, "tsr_" #name "($0, %0)", drawn, declare_##name, eval_##name, w};
SCALAR(pow_scalar, FN_POWS, draw_pow, 1, 3)
SCALAR(add_scalar, FN_ADDS, draw_scalar, 1, 3)
SCALAR(sub_scalar, FN_ADDS, draw_scalar, -1, 2)
SCALAR(mul_scalar, FN_MULS, draw_scalar, 1, 5)
SCALAR(div_scalar, FN_DIVS, draw_divisor, 1, 2)
SCALAR(rdiv_scalar, FN_RDIVS, draw_rdiv, 1, 2)

static tsr_tensor *declare_gelu(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_gelu(in[0], (tsr_gelu_form)n->i[0]);
}

static int eval_gelu(walk *w, const pnode *n, const int *in)
{
    return tape_unary(w->t, in[0], n->i[0] ? FN_GELU_TANH : FN_GELU, 0, unit_of(n->dtype));
}

static tsr_tensor *declare_cast(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d;
    return tsr_cast(in[0], (tsr_dtype)n->i[0]);
}

static const op_def op_gelu = {
    "gelu", "tsr_gelu($0, (tsr_gelu_form)#0)", draw_gelu, declare_gelu, eval_gelu, 3};
static const op_def op_cast = {"cast", "tsr_cast($0, ^D)", draw_cast, declare_cast, eval_cast, 5};

/* --- two -------------------------------------------------------------------------------------- */
/* A shape that broadcasts with dims. */
static tsr_dims partner(gen *g, tsr_dims dims)
{
    int how = rnd_below(&g->r, 5);
    tsr_dims r = dims;
    if (how == 0 && dims.ndim) { /* without its first axes */
        int cut = 1 + rnd_below(&g->r, dims.ndim);
        r.ndim -= cut;
        for (int i = 0; i < r.ndim; i++)
            r.d[i] = dims.d[i + cut];
    }
    for (int i = 0; i < r.ndim && how == 1; i++)
        if (rnd_chance(&g->r, 0.5))
            r.d[i] = 1;
    if (how == 2 && dims.ndim < 4 && count_of(dims) < 60) { /* one more in front */
        r.ndim++;
        for (int i = dims.ndim; i > 0; i--)
            r.d[i] = dims.d[i - 1];
        r.d[0] = 1 + rnd_below(&g->r, 3);
    }
    return r;
}

static bool draw_pair(gen *g, pnode *n, bool whole)
{
    int x = whole && rnd_chance(&g->r, 0.3) ? gen_any(g, TSR_I64) : gen_float(g, 0, 4);
    if (x < 0)
        return false;
    int y = gen_like(g, partner(g, gen_at(g, x)->shape), gen_at(g, x)->dtype, gen_at(g, x)->place);
    if (y < 0 || !broadcast_dims(gen_at(g, x)->shape, gen_at(g, y)->shape, &n->shape))
        return false;
    bool swap = rnd_chance(&g->r, 0.4);
    n->nin = 2;
    n->in[swap] = x;
    n->in[!swap] = y;
    n->dtype = gen_at(g, x)->dtype;
    n->place = gen_at(g, x)->place;
    return true;
}

static bool draw_arithmetic(gen *g, pnode *n)
{
    return draw_pair(g, n, true) &&
           (n->dtype != TSR_I64 ||
            largest(gen_value(g, n->in[0])) + largest(gen_value(g, n->in[1])) < 1e4);
}

static bool draw_quotient(gen *g, pnode *n)
{
    return draw_pair(g, n, false) &&
           (nearest_to_zero(gen_value(g, n->in[1])) > 0.05 || rnd_chance(&g->r, g->wild));
}

static bool draw_power(gen *g, pnode *n)
{
    return draw_pair(g, n, false) &&
           ((least(gen_value(g, n->in[0])) > 0.1 && largest(gen_value(g, n->in[0])) < 8 &&
             largest(gen_value(g, n->in[1])) < 4) ||
            rnd_chance(&g->r, g->wild));
}

/* Whole divisors are not 0, and tame operands keep the squares of a gradient in f32. */
static bool draw_rest(gen *g, pnode *n)
{
    return draw_pair(g, n, true) && nearest_to_zero(gen_value(g, n->in[1])) > 0.05 &&
           largest(gen_value(g, n->in[0])) < 1e3 && largest(gen_value(g, n->in[1])) < 1e3;
}

static bool draw_angle(gen *g, pnode *n)
{
    return draw_rest(g, n) && n->dtype != TSR_I64;
}

static bool draw_bits(gen *g, pnode *n)
{
    const int x = gen_any(g, TSR_I64);
    if (x < 0 || largest(gen_value(g, x)) > 1e4)
        return false;
    same_shape(g, n, x);
    n->nin = 2;
    n->in[1] = gen_like(g, n->shape, TSR_I64, n->place);
    n->below = 0;
    return n->in[1] >= 0 && largest(gen_value(g, n->in[1])) < 1e4;
}

static bool draw_shift(gen *g, pnode *n)
{
    const int x = gen_any(g, TSR_I64);
    if (x < 0 || largest(gen_value(g, x)) > 1e4)
        return false;
    same_shape(g, n, x);
    n->nin = 2;
    n->in[1] = gen_ids(g, n->shape, 6, n->place);
    n->below = 0;
    return n->in[1] >= 0;
}

static bool draw_compare(gen *g, pnode *n)
{
    if (!draw_pair(g, n, true))
        return false;
    n->dtype = TSR_BOOL;
    return true;
}

#define TWO(name, FN, drawn, w)                                                           \
    static tsr_tensor *declare_##name(declared *d, const pnode *n, tsr_tensor *const *in) \
    {                                                                                     \
        (void)d, (void)n;                                                                 \
        return tsr_##name(in[0], in[1]);                                                  \
    }                                                                                     \
    static int eval_##name(walk *t, const pnode *n, const int *in)                        \
    {                                                                                     \
        return eval_binary(t->t, FN, in[0], t->g->node[n->in[0]].shape, in[1],            \
                           t->g->node[n->in[1]].shape, n->shape, unit_of(n->dtype));      \
    }                                                                                     \
    static const op_def op_##name = {                                                     \
        #name, "tsr_" #name "($0, $1)", drawn, declare_##name, eval_##name, w};
TWO(add, FN_ADD, draw_arithmetic, 10)
TWO(sub, FN_SUB, draw_arithmetic, 6)
TWO(mul, FN_MUL, draw_arithmetic, 12)
TWO(div, FN_DIV, draw_quotient, 6)
TWO(pow, FN_POW, draw_power, 6)
TWO(atan2, FN_ATAN2, draw_angle, 2)
TWO(fmod, FN_FMOD, draw_rest, 2)
TWO(remainder, FN_REMAINDER, draw_rest, 2)
TWO(floor_divide, FN_FLOOR_DIVIDE, draw_rest, 1)
TWO(bitwise_and, FN_AND, draw_bits, 1)
TWO(bitwise_or, FN_OR, draw_bits, 1)
TWO(bitwise_xor, FN_XOR, draw_bits, 1)
TWO(bitwise_left_shift, FN_LEFT, draw_shift, 1)
TWO(bitwise_right_shift, FN_RIGHT, draw_shift, 1)
TWO(equal, FN_EQUAL, draw_compare, 1)
TWO(not_equal, FN_NOT_EQUAL, draw_compare, 1)
TWO(less, FN_LESS, draw_compare, 1)
TWO(less_equal, FN_LESS_EQUAL, draw_compare, 1)
TWO(greater, FN_GREATER, draw_compare, 1)
TWO(greater_equal, FN_GREATER_EQUAL, draw_compare, 1)
TWO(maximum, FN_MAXIMUM, draw_arithmetic, 3)
TWO(minimum, FN_MINIMUM, draw_arithmetic, 3)

static bool draw_where(gen *g, pnode *n)
{
    int x = gen_float(g, 0, 4);
    if (x < 0)
        return false;
    tsr_dims xd = gen_at(g, x)->shape, yd, cd, both;
    int y = gen_like(g, partner(g, xd), gen_at(g, x)->dtype, gen_at(g, x)->place);
    if (y < 0 || !broadcast_dims(xd, yd = gen_at(g, y)->shape, &both))
        return false;
    int c = gen_like(g, partner(g, both), TSR_BOOL, gen_at(g, x)->place);
    if (c < 0 || !broadcast_dims(both, cd = gen_at(g, c)->shape, &n->shape) ||
        count_of(n->shape) > 300)
        return false;
    n->nin = 3;
    n->in[0] = c;
    n->in[1] = x;
    n->in[2] = y;
    n->dtype = gen_at(g, x)->dtype;
    n->place = gen_at(g, x)->place;
    return true;
}

static tsr_tensor *declare_where(declared *d, const pnode *n, tsr_tensor *const *in)
{
    (void)d, (void)n;
    return tsr_where(in[0], in[1], in[2]);
}

static int eval_where(walk *w, const pnode *n, const int *in)
{
    int64_t count = count_of(n->shape);
    const tape_value *c = tape_at(w->t, in[0]);
    const int32_t *at[3];
    for (int k = 0; k < 3; k++)
        at[k] = eval_spread(w->t, w->g->node[n->in[k]].shape, n->shape);
    tape_from *from = tape_alloc(w->t, (count + 1) * (int64_t)sizeof *from);
    bool doubt = false;
    for (int64_t i = 0; i < count; i++) {
        int64_t ci = at[0] ? at[0][i] : i;
        int which = c->v[ci] != 0 ? 0 : 1;
        doubt |= c->e[ci] != 0;
        from[i] = (tape_from){which, (int32_t)(at[which + 1] ? at[which + 1][i] : i), 1};
    }
    int id = tape_move(w->t, count, 2, in + 1, from);
    if (!doubt)
        return id;
    /* Either may be taken there: a factor of 1 for the one and of 0 for the other, both with an
     * infinite error, so that no gradient of either is compared. */
    double *one = tape_alloc(w->t, (count + 1) * (int64_t)sizeof *one);
    double *none = tape_alloc(w->t, (count + 1) * (int64_t)sizeof *none);
    double *e = tape_alloc(w->t, (count + 1) * (int64_t)sizeof *e);
    tape_from *rest = tape_alloc(w->t, (count + 1) * (int64_t)sizeof *rest);
    for (int64_t i = 0; i < count; i++) {
        int other = !from[i].which;
        one[i] = 1;
        none[i] = 0;
        e[i] = c->e[at[0] ? at[0][i] : i] != 0 ? INFINITY : 0;
        rest[i] = (tape_from){0, -1, 0};
        if (e[i] != 0)
            rest[i] = (tape_from){other, (int32_t)(at[other + 1] ? at[other + 1][i] : i), 1};
    }
    double u = unit_of(n->dtype);
    int taken = tape_binary(w->t, count, id, NULL, tape_leaf(w->t, count, one, e, u, false), NULL,
                            FN_MUL, u);
    int left = tape_move(w->t, count, 2, in + 1, rest);
    left = tape_binary(w->t, count, left, NULL, tape_leaf(w->t, count, none, e, u, false), NULL,
                       FN_MUL, u);
    return tape_binary(w->t, count, taken, NULL, left, NULL, FN_ADD, u);
}
static const op_def op_where = {
    "where", "tsr_where($0, $1, $2)", draw_where, declare_where, eval_where, 6};

extern const op_def *const ops_pointwise[];
#define UNARY_REF(T, FN, name, ...) &op_##name,
const op_def *const ops_pointwise[] = {UNARY_CASES(UNARY_REF, ) & op_neg,
                                       &op_pow_scalar,
                                       &op_add_scalar,
                                       &op_sub_scalar,
                                       &op_mul_scalar,
                                       &op_div_scalar,
                                       &op_rdiv_scalar,
                                       &op_gelu,
                                       &op_cast,
                                       &op_add,
                                       &op_sub,
                                       &op_mul,
                                       &op_div,
                                       &op_pow,
                                       &op_atan2,
                                       &op_fmod,
                                       &op_remainder,
                                       &op_floor_divide,
                                       &op_bitwise_and,
                                       &op_bitwise_or,
                                       &op_bitwise_xor,
                                       &op_bitwise_left_shift,
                                       &op_bitwise_right_shift,
                                       &op_equal,
                                       &op_not_equal,
                                       &op_less,
                                       &op_less_equal,
                                       &op_greater,
                                       &op_greater_equal,
                                       &op_maximum,
                                       &op_minimum,
                                       &op_where,
                                       NULL};
