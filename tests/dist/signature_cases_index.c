/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of the indexing ops. */
#include "tests/dist/signature_cases.h"

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
    grad(s, tsr_gather(x, axis, i), x);
    tsr_gather(sc_make(s, TSR_I64, dims, SC_WHOLE), axis, i);
    tsr_gather(sc_make(s, TSR_BOOL, dims, SC_FEW), axis, i);
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

void sc_compare(sc_graph *s)
{
    extrema_of(s, D(5, 7, 2), D(5, 7, 2));
    extrema_of(s, D(5, 7, 2), D(7, 1));
    extrema_of(s, D(7), D(5, 7));
    extrema_of(s, D(0, 3), D(1, 3));
    extrema_of(s, D(2, 3, 4, 5), D(2, 3, 4, 5));
    compare_of(s, TSR_BOOL, D(5, 7), D(7));
}
