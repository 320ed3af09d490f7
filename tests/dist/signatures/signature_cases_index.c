/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of the indexing ops. */
#include "tests/dist/signatures/signature_cases.h"

#include "src/graph/graph.h"

#define D(...) TSR_DIMS(__VA_ARGS__)

static tsr_tensor *spread(sc_graph *s, tsr_dims dims)
{
    return sc_make(s, s->real, dims, SC_SPREAD);
}

static void grad(sc_graph *s, tsr_tensor *y, tsr_tensor *x)
{
    sc_grads(s, y, 1, &x);
}

/* --- gather ----------------------------------------------------------------------------------- */

static void gather_of(sc_graph *s, tsr_dims dims, int axis, tsr_dims ids)
{
    tsr_tensor *x = spread(s, dims), *i = sc_make(s, TSR_I64, ids, SC_LABEL);
    grad(s, tsr_index_select(x, axis, i), x);
    tsr_index_select(sc_make(s, TSR_I64, dims, SC_WHOLE), axis, i);
    tsr_index_select(sc_make(s, TSR_BOOL, dims, SC_FEW), axis, i);
}

void sc_gather(sc_graph *s)
{
    gather_of(s, D(5, 4), 0, D(7));
    gather_of(s, D(3, 5, 2), 1, D(2, 3));
    gather_of(s, D(2, 3, 7), 2, D(5));
    gather_of(s, D(4), 0, TSR_SCALAR);
    gather_of(s, D(4, 3), 0, D(1, 1));
    gather_of(s, D(5, 3), 0, D(0, 2));
    gather_of(s, D(0, 3), 0, D(0));
    gather_of(s, D(0, 4, 2), 1, D(3));
    gather_of(s, D(1, 3), 1, D(0));
    tsr_tensor *table = spread(s, D(7, 3)), *ids = sc_make(s, TSR_I64, D(4, 5), SC_LABEL);
    grad(s, tsr_embedding(table, ids, NULL), table);
    grad(s,
         tsr_embedding(table, ids, TSR_EMBEDDING_OPTS(.has_padding_idx = true, .padding_idx = 2)),
         table);
}

static void lines_of(sc_graph *s, tsr_dims dims, int axis, tsr_dims ids)
{
    tsr_tensor *x = spread(s, dims), *i = sc_make(s, TSR_I64, ids, SC_LABEL), *y = spread(s, ids);
    grad(s, tsr_gather(x, axis, i), x);
    tsr_gather(sc_make(s, TSR_I64, dims, SC_WHOLE), axis, i);
    tsr_gather(sc_make(s, TSR_BOOL, dims, SC_FEW), axis, i);
    grad(s, tsr_scatter_add(x, axis, i, y), y);
}

void sc_lines(sc_graph *s)
{
    lines_of(s, D(5, 7), 0, D(4, 7));
    lines_of(s, D(3, 5, 2), 1, D(3, 7, 2));
    lines_of(s, D(2, 3, 7), -1, D(2, 3, 5));
    lines_of(s, D(4), 0, D(6));
    lines_of(s, D(5, 3), 0, D(0, 3));
    lines_of(s, D(0, 4), 1, D(0, 2));
}

/* --- where, comparisons ----------------------------------------------------------------------- */

static void where_of(sc_graph *s, tsr_dims cond, tsr_dims a, tsr_dims b)
{
    tsr_tensor *c = sc_make(s, TSR_BOOL, cond, SC_FEW), *x[2] = {spread(s, a), spread(s, b)};
    sc_grads(s, tsr_where(c, x[0], x[1]), 2, x);
    tsr_where(c, sc_make(s, TSR_I64, a, SC_WHOLE), sc_make(s, TSR_I64, b, SC_WHOLE));
    tsr_where(c, sc_make(s, TSR_BOOL, a, SC_FEW), sc_make(s, TSR_BOOL, b, SC_FEW));
}

void sc_where(sc_graph *s)
{
    where_of(s, D(5, 7, 2), D(5, 7, 2), D(5, 7, 2));
    where_of(s, D(7, 1), D(5, 7, 2), D(2));
    where_of(s, D(5, 7), D(7), D(5, 1));
    where_of(s, D(6, 4), TSR_SCALAR, D(4));
    where_of(s, D(7), D(5, 7), D(5, 7));
    where_of(s, D(0, 3), D(3), D(1, 3));
    where_of(s, D(2, 3, 4, 5), D(2, 3, 4, 5), D(3, 1, 1));
}

static void compare_of(sc_graph *s, tsr_dtype dtype, tsr_dims a, tsr_dims b)
{
    tsr_tensor *x = sc_make(s, dtype, a, SC_FEW), *y = sc_make(s, dtype, b, SC_FEW);
    tsr_not_equal(x, y);
    tsr_less(x, y);
    tsr_less_equal(x, y);
    tsr_greater(x, y);
    tsr_greater_equal(x, y);
}

static void extrema_of(sc_graph *s, tsr_dims a, tsr_dims b)
{
    tsr_tensor *x[2] = {sc_make(s, s->real, a, SC_FEW), sc_make(s, s->real, b, SC_FEW)};
    sc_grads(s, tsr_maximum(x[0], x[1]), 2, x);
    sc_grads(s, tsr_minimum(x[0], x[1]), 2, x);
    tsr_maximum(sc_make(s, TSR_I64, a, SC_WHOLE), sc_make(s, TSR_I64, b, SC_WHOLE));
    compare_of(s, s->real, a, b);
    compare_of(s, TSR_I32, a, b);
}

static void rests_of(sc_graph *s, tsr_dims a, tsr_dims b)
{
    tsr_tensor *x[2] = {spread(s, a), sc_make(s, s->real, b, SC_WHOLE)};
    sc_grads(s, tsr_atan2(x[0], x[1]), 2, x);
    sc_grads(s, tsr_fmod(x[0], x[1]), 2, x);
    sc_grads(s, tsr_remainder(x[0], x[1]), 2, x);
    tsr_floor_divide(x[0], x[1]);
    tsr_tensor *m = sc_make(s, TSR_I64, a, SC_WHOLE), *n = sc_make(s, TSR_I64, b, SC_WHOLE);
    tsr_remainder(m, n);
    tsr_floor_divide(m, n);
    tsr_bitwise_and(m, n);
    tsr_bitwise_or(m, n);
    tsr_bitwise_xor(m, n);
    tsr_bitwise_left_shift(m, n);
    tsr_bitwise_right_shift(m, n);
}

void sc_compare(sc_graph *s)
{
    rests_of(s, D(5, 7), D(5, 7));
    rests_of(s, D(5, 7), D(7));
    extrema_of(s, D(5, 7, 2), D(5, 7, 2));
    extrema_of(s, D(5, 7, 2), D(7, 1));
    extrema_of(s, D(7), D(5, 7));
    extrema_of(s, D(0, 3), D(1, 3));
    extrema_of(s, D(2, 3, 4, 5), D(2, 3, 4, 5));
    compare_of(s, TSR_BOOL, D(5, 7), D(7));
}

/* --- concat, split, slice, pad ---------------------------------------------------------------- */

static void concat_of(sc_graph *s, tsr_dims a, tsr_dims b, tsr_dims c, int axis)
{
    tsr_tensor *x[3] = {spread(s, a), spread(s, b), spread(s, c)};
    sc_grads(s, tsr_concat(3, x, axis), 3, x);
    sc_grads(s, tsr_concat(2, x, axis), 1, x + 1);
    tsr_tensor *i[2] = {sc_make(s, TSR_I64, a, SC_WHOLE), sc_make(s, TSR_I64, b, SC_WHOLE)};
    tsr_concat(2, i, axis);
    tsr_tensor *f[2] = {sc_make(s, TSR_BOOL, a, SC_FEW), sc_make(s, TSR_BOOL, b, SC_FEW)};
    tsr_concat(2, f, axis);
    const int64_t sizes[3] = {a.d[axis], b.d[axis], c.d[axis]};
    tsr_tensor *whole = tsr_concat(3, x, axis), *part[3];
    tsr_split(whole, 3, sizes, axis, part);
    sc_grads(s, part[1], 1, &whole);
}

void sc_concat(sc_graph *s)
{
    concat_of(s, D(5, 2), D(5, 3), D(5, 1), 1);
    concat_of(s, D(4, 7), D(1, 7), D(2, 7), 0);
    concat_of(s, D(3, 2, 5), D(3, 4, 5), D(3, 0, 5), 1);
    concat_of(s, D(0, 2), D(0, 3), D(0, 1), 1);
    concat_of(s, D(2), D(3), D(1), 0);
    concat_of(s, D(2, 3, 4, 5), D(2, 2, 4, 5), D(2, 1, 4, 5), 1);
    tsr_tensor *x[2] = {spread(s, D(5, 4)), spread(s, D(5, 4))};
    sc_grads(s, tsr_stack(2, x, 1), 2, x);
}

static void slice_of(sc_graph *s, tsr_dims dims, tsr_dims starts, tsr_dims ends, tsr_dims steps)
{
    tsr_tensor *x = spread(s, dims);
    grad(s, tsr_slice(x, starts, ends, steps), x);
    tsr_slice(sc_make(s, TSR_I64, dims, SC_WHOLE), starts, ends, steps);
    tsr_slice(sc_make(s, TSR_BOOL, dims, SC_FEW), starts, ends, steps);
}

static void pad_of(sc_graph *s, tsr_dims dims, tsr_dims before, tsr_dims after)
{
    tsr_tensor *x = spread(s, dims);
    grad(s, tsr_pad(x, before, after, 0), x);
    grad(s, tsr_pad(x, before, after, -2.5), x);
    tsr_pad(sc_make(s, TSR_I64, dims, SC_WHOLE), before, after, 3);
    tsr_pad(sc_make(s, TSR_BOOL, dims, SC_FEW), before, after, 0);
}

void sc_slice(sc_graph *s)
{
    slice_of(s, D(5, 7), D(1, 0), D(4, 7), TSR_SCALAR);
    slice_of(s, D(5, 7, 4), D(0, 1, 1), D(5, 7, 4), D(1, 2, 3));
    slice_of(s, D(4, 5), D(0, 1), D(3, 5), TSR_SCALAR);
    slice_of(s, D(7), D(2), D(2), TSR_SCALAR);
    slice_of(s, D(0, 6), D(0, 2), D(0, 5), TSR_SCALAR);
    slice_of(s, D(1, 6), D(0, 5), D(1, 6), TSR_SCALAR);
    slice_of(s, D(2, 3, 4, 5), D(0, 0, 1, 0), D(2, 3, 3, 5), D(1, 1, 1, 2));
    tsr_tensor *x = spread(s, D(5, 3, 7));
    grad(s, tsr_flip(x, TSR_AXES(0, 2)), x);
    grad(s, tsr_roll(x, 2, 3), x);
    pad_of(s, D(5, 7), D(1, 0), D(2, 0));
    pad_of(s, D(3, 5, 4), D(0, 2, 1), D(0, 0, 3));
    pad_of(s, D(1, 6), D(0, 1), D(0, 0));
    pad_of(s, D(0, 6), D(0, 1), D(0, 1));
    pad_of(s, D(5, 0), D(0, 1), D(0, 1));
    pad_of(s, D(2, 3, 4, 5), D(0, 0, 1, 1), D(0, 0, 1, 1));
}

/* --- arange, constant, one_hot ---------------------------------------------------------------- */

void sc_source(sc_graph *s)
{
    static const float numbers[] = {3, -1, 4, 1, -5, 9, 2, 6, -5, 3,
                                    5, -8, 9, 7, 9,  3, 2, 3, 8,  -4};
    static const int64_t wholes[] = {7, -2, 3, 5, -8, 1};
    static const int64_t length[] = {7, 4, 1, 0};
    for (int i = 0; i < 4; i++) {
        tsr_arange(s->g, s->real, length[i], 1.5, -0.25, s->p, TSR_AUTO);
        tsr_arange(s->g, TSR_I64, length[i], -3, 4, s->p, TSR_AUTO);
        tsr_constant(s->g, TSR_F32, D(length[i]), numbers, s->p, TSR_AUTO);
    }
    tsr_constant(s->g, TSR_F32, D(5, 4), numbers, s->p, TSR_AUTO);
    tsr_constant(s->g, TSR_F32, D(2, 5, 2), numbers, s->p, TSR_AUTO);
    tsr_constant(s->g, TSR_F32, D(2, 2, 5, 1), numbers, s->p, TSR_AUTO);
    tsr_constant(s->g, TSR_I64, D(3, 2), wholes, s->p, TSR_AUTO);
    tsr_constant(s->g, TSR_F32, TSR_SCALAR, numbers, s->p, TSR_AUTO);
    const tsr_dims ids[] = {D(7), D(3, 4), D(1), D(0, 2), TSR_SCALAR};
    for (int i = 0; i < 5; i++) {
        tsr_tensor *x = sc_make(s, TSR_I64, ids[i], SC_LABEL);
        tsr_one_hot(x, 5, s->real);
        tsr_one_hot(x, 4, TSR_BOOL);
    }
}

/* --- triangles -------------------------------------------------------------------------------- */

/* Diagonals that leave something on either side. */
void sc_triangle(sc_graph *s)
{
    static const struct {
        tsr_dims dims;
        int64_t diagonal;
    } of[] = {{{2, {5, 7}}, 1},       {{2, {7, 4}}, -2}, {{3, {3, 4, 5}}, 0},
              {{4, {2, 3, 4, 5}}, 1}, {{2, {1, 9}}, 3},  {{2, {0, 4}}, 0}};
    for (int i = 0; i < (int)(sizeof of / sizeof *of); i++) {
        tsr_tensor *x = spread(s, of[i].dims);
        grad(s, tsr_triu(x, of[i].diagonal), x);
        grad(s, tsr_tril(x, of[i].diagonal), x);
        tsr_tril(sc_make(s, TSR_I64, of[i].dims, SC_WHOLE), of[i].diagonal);
    }
}

/* --- order ------------------------------------------------------------------------------------ */

static void order_of(sc_graph *s, tsr_dims dims, int axis)
{
    tsr_tensor *x = spread(s, dims), *few = sc_make(s, TSR_I64, dims, SC_WHOLE), *ids;
    grad(s, tsr_cumprod(x, axis), x);
    grad(s, tsr_logcumsumexp(x, axis), x);
    grad(s, tsr_cummax(x, axis, NULL), x);
    tsr_cummin(few, axis, &ids);
    grad(s, tsr_sort(x, axis, true, NULL), x);
    grad(s, tsr_topk(x, dims.d[axis < 0 ? dims.ndim - 1 : axis] / 2, axis, false, &ids), x);
    tsr_argsort(few, axis, false);
}

void sc_order(sc_graph *s)
{
    order_of(s, D(5, 7), 0);
    order_of(s, D(3, 5, 2), 1);
    order_of(s, D(2, 3, 4, 5), -1);
    order_of(s, D(6), 0);
    order_of(s, D(0, 3), 1);
    order_of(s, D(2, 0), 1);
}

/* --- images of another size ------------------------------------------------------------------- */

void sc_resize(sc_graph *s)
{
    tsr_tensor *x = spread(s, D(5, 3, 4, 7)), *none = spread(s, D(0, 2, 4, 3));
    grad(s, tsr_interpolate(x, 8, 5, TSR_BILINEAR), x);
    grad(s, tsr_interpolate(x, 4, 14, TSR_NEAREST), x);
    grad(s, tsr_interpolate(x, 9, 1, TSR_BILINEAR_CORNERS), x);
    grad(s, tsr_interpolate(none, 5, 3, TSR_BILINEAR), none);
}

/* --- cumsum, variance ------------------------------------------------------------------------- */

static void cumsum_of(sc_graph *s, tsr_dims dims, int axis)
{
    tsr_tensor *x = spread(s, dims);
    grad(s, tsr_cumsum(x, axis), x);
    tsr_cumsum(sc_make(s, TSR_I64, dims, SC_WHOLE), axis);
}

void sc_cumsum(sc_graph *s)
{
    cumsum_of(s, D(5, 7), 0);
    cumsum_of(s, D(5, 4, 3), 1);
    cumsum_of(s, D(2, 7), -1);
    cumsum_of(s, D(0, 3), 1);
    cumsum_of(s, D(2, 3, 4, 5), 2);
}

void sc_variance(sc_graph *s)
{
    tsr_tensor *x = spread(s, D(5, 4, 7));
    grad(s, tsr_variance(x, TSR_AXES(0, 2), false, 1), x);
    grad(s, tsr_std(x, TSR_AXES(1), true, 0), x);
}

/* --- parts in time: what rewrites alone declare ----------------------------------------------- */

/* Part 1 of k: of d blocks along an axis, n rows each; dims are those of the part. */
static void part_of(sc_graph *s, tsr_dtype dtype, tsr_dims dims, int axis, int k, int64_t d)
{
    const tsri_loc here = {TSR_HERE};
    const sc_fill fill = dtype == s->real ? SC_SPREAD : SC_FEW;
    tsr_tensor *number = sc_make(s, TSR_I64, TSR_SCALAR, SC_ONE);
    const tsri_attrs rows = {.part = {axis, k, d}};
    tsr_dims all = dims;
    all.d[axis] *= k;
    tsr_tensor *x[] = {sc_make(s, dtype, all, fill), number};
    tsri_graph_add1(s->g, TSRI_OP_PART, &rows, 2, x, dims, dtype, here);
    tsr_tensor *part[] = {sc_make(s, dtype, dims, fill), number};
    tsri_graph_add1(s->g, TSRI_OP_WHOLE, &rows, 2, part, all, dtype, here);
    if (dtype != s->real)
        return;
    const tsri_attrs drop = {.dropout = {77, 0.3, axis, k, d}};
    tsr_tensor *kept[] = {part[0], sc_make(s, TSR_I64, TSR_SCALAR, SC_LABEL), number};
    tsri_graph_add1(s->g, TSRI_OP_DROPOUT, &drop, 3, kept, dims, dtype, here);
}

static void total_of(sc_graph *s, tsr_dtype dtype, tsr_dims dims, tsr_reduce_op op)
{
    const tsri_attrs attrs = {.total = {(int32_t)op, 0}};
    tsr_tensor *in[] = {sc_make(s, dtype, dims, dtype == s->real ? SC_SPREAD : SC_FEW),
                        sc_make(s, TSR_I64, TSR_SCALAR, SC_ONE)};
    tsri_graph_add1(s->g, TSRI_OP_TOTAL, &attrs, 2, in, dims, dtype, (tsri_loc){TSR_HERE});
}

void sc_parts(sc_graph *s)
{
    part_of(s, s->real, D(12, 5), 0, 3, 4);
    part_of(s, s->real, D(6, 5), 0, 2, 3);
    part_of(s, s->real, D(4, 6), 0, 2, 1);
    part_of(s, s->real, D(3, 4, 2, 5), 1, 2, 4);
    part_of(s, s->real, D(4, 3, 4, 5), 0, 3, 2);
    part_of(s, s->real, D(0, 3), 0, 2, 2);
    part_of(s, TSR_I64, D(5, 12), 1, 2, 6);
    part_of(s, TSR_BOOL, D(8, 3), 0, 2, 4);
    const tsr_reduce_op ops[] = {TSR_REDUCE_SUM, TSR_REDUCE_MAX, TSR_REDUCE_MIN};
    for (int i = 0; i < 3; i++) {
        total_of(s, s->real, D(5, 4), ops[i]);
        total_of(s, s->real, D(2, 3, 4, 5), ops[i]);
        total_of(s, s->real, D(0, 3), ops[i]);
        total_of(s, s->real, D(3), ops[i]);
        total_of(s, TSR_I64, D(5, 4), ops[i]);
        total_of(s, TSR_I32, D(7), ops[i]);
    }
    total_of(s, TSR_BOOL, D(7, 2), TSR_REDUCE_MAX);
    total_of(s, TSR_BOOL, D(7, 2), TSR_REDUCE_MIN);
}
