/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of the ops that index, select and cut: shapes, errors, signatures. */
#include "declared.h"

#include <math.h>

#include <tessera/functional.h>

/* --- gather, embedding ------------------------------------------------------------------------ */

static void test_gather(void **state)
{
    (void)state;
    start(true);
    tsr_tensor *x = f32(D(3, 5, 2)), *ids = make(TSR_I64, D(7, 4)), *dx;
    is(tsr_index_select(x, 1, ids), TSR_F32, D(3, 7, 4, 2));
    is(tsr_index_select(x, -1, make(TSR_I64, TSR_SCALAR)), TSR_F32, D(3, 5));
    is(tsr_index_select(make(TSR_BOOL, D(4)), 0, ids), TSR_BOOL, D(7, 4));
    tsr_tensor *table = f32(D(5, 3));
    is(tsr_embedding(table, ids, NULL), TSR_F32, D(7, 4, 3));
    derives(TSRI_OP_INDEX_SELECT, "B,S0->S0; B,S1->S1; S1,B->S2; S0,B->P; P,B->P", NULL);
    tsr_gradients(
        tsr_embedding(table, ids, TSR_EMBEDDING_OPTS(.has_padding_idx = true, .padding_idx = -1)),
        1, &table, &dx);
    is(dx, TSR_F32, D(5, 3));
    derives(TSRI_OP_INDEX_SELECT_DX, "S0,S0->P; S1,S1->P; B,S2->S1; B,B->S0; B,P->P", NULL);
    assert_int_equal(last_of(TSRI_OP_INDEX_SELECT_DX)->attrs.gather.pad, 4);
    tsr_index_select(x, 1, make(TSR_I64, D(6)));
    derives(TSRI_OP_INDEX_SELECT, "S0,B->S0; B,S0->S1; S2,B->S2; S1,B->P; P,B->P", NULL);
}

static void test_gather_errors(void **state)
{
    (void)state;
    FAILS(TSR_ERR_DTYPE, "embedding: ids are i32; i64 is needed: use tsr_cast(ids, TSR_I64)",
          tsr_embedding(f32(D(5, 3)), make(TSR_I32, D(2)), NULL));
    FAILS(TSR_ERR_SHAPE, "embedding: the table is (5); it must be (v,d)",
          tsr_embedding(f32(D(5)), make(TSR_I64, D(2)), NULL));
    FAILS(TSR_ERR_INVALID, "padding_idx is 5; legal for (5,3) are -5 to 4",
          tsr_embedding(f32(D(5, 3)), make(TSR_I64, D(2)),
                        TSR_EMBEDDING_OPTS(.has_padding_idx = true, .padding_idx = 5)));
    FAILS(TSR_ERR_SHAPE, "index_select: axis 2 of (5,3); legal are -2 to 1",
          tsr_index_select(f32(D(5, 3)), 2, make(TSR_I64, D(2))));
    FAILS(TSR_ERR_SHAPE, "axis 0 of a scalar",
          tsr_index_select(f32(TSR_SCALAR), 0, make(TSR_I64, D(2))));
    FAILS(TSR_ERR_SHAPE, "make 9 axes; at most 8 are possible",
          tsr_index_select(f32(D(1, 1, 1, 1, 1)), 0, make(TSR_I64, D(1, 1, 1, 1, 1))));
}

/* --- where, comparisons ----------------------------------------------------------------------- */

static void test_where(void **state)
{
    (void)state;
    start(true);
    tsr_tensor *cond = make(TSR_BOOL, D(7, 1)), *x = f32(D(5, 7, 2)), *y = f32(D(2));
    tsr_tensor *of[2] = {x, y}, *d[2];
    is(tsr_where(cond, x, y), TSR_F32, D(5, 7, 2));
    derives(TSRI_OP_WHERE, "B,S0,B->S0; S0,S1,B->S1; B,S2,S0->S2; B,P,P->P", NULL);
    tsr_gradients(tsr_where(cond, x, y), 2, of, d);
    is(d[0], TSR_F32, D(5, 7, 2));
    is(d[1], TSR_F32, D(2));
    derives(TSRI_OP_MASK, "B,S0->S0; S0,S1->S1; B,S2->S2; B,P->P", NULL);
    is(tsr_where(make(TSR_BOOL, D(3, 1, 1)), make(TSR_I64, D(2)), make(TSR_I64, TSR_SCALAR)),
       TSR_I64, D(3, 1, 2));
    is(tsr_less(x, y), TSR_BOOL, D(5, 7, 2));
    is(tsr_not_equal(cond, cond), TSR_BOOL, D(7, 1));
    is(tsr_maximum(x, y), TSR_F32, D(5, 7, 2));
    derives(TSRI_OP_BINARY, "S0,B->S0; S1,B->S1; S2,S0->S2", NULL);
    is(tsr_minimum(make(TSR_U8, D(4)), make(TSR_U8, D(1))), TSR_U8, D(4));
}

static void test_where_errors(void **state)
{
    (void)state;
    FAILS(TSR_ERR_DTYPE, "where: the condition is f32; bool is needed: compare",
          tsr_where(f32(D(3)), f32(D(3)), f32(D(3))));
    FAILS(TSR_ERR_DTYPE, "x and y are f32 and i64; one dtype is needed",
          tsr_where(make(TSR_BOOL, D(3)), f32(D(3)), make(TSR_I64, D(3))));
    FAILS(TSR_ERR_SHAPE, "where: condition (4), (3) and (2,1); from the right",
          tsr_where(make(TSR_BOOL, D(4)), f32(D(3)), f32(D(2, 1))));
    FAILS(TSR_ERR_DTYPE, "maximum: operands are bool",
          tsr_maximum(make(TSR_BOOL, D(4)), make(TSR_BOOL, D(4))));
}

/* --- concat, split, slice, pad ---------------------------------------------------------------- */

static void test_cuts(void **state)
{
    (void)state;
    start(true);
    tsr_tensor *x[3] = {f32(D(5, 2, 7)), f32(D(5, 3, 7)), f32(D(5, 0, 7))}, *y[3], *d[2];
    is(tsr_concat(3, x, -2), TSR_F32, D(5, 5, 7));
    derives(TSRI_OP_CONCAT,
            "S0,S0,S0->S0; S2,S2,S2->S2; P,P,P->P; Pmax,B,B->Pmax; B,Pmax,B->Pmax; "
            "B,B,Pmax->Pmax; Pmax,Pmax,Pmax->Pmax; Pmin,B,B->Pmin; B,Pmin,B->Pmin; "
            "B,B,Pmin->Pmin; Pmin,Pmin,Pmin->Pmin",
            NULL);
    shows(tsr_concat(1, x, 0), x[0]);
    tsr_gradients(tsr_concat(2, x, 1), 2, x, d);
    derives(TSRI_OP_SPLIT, "S0->S0,S0; S2->S2,S2; P->P,P; Pmax->Pmax,Pmax; Pmin->Pmin,Pmin", NULL);
    is(d[1], TSR_F32, D(5, 3, 7));
    y[0] = y[1] = x[0];
    is(tsr_stack(2, y, -1), TSR_F32, D(5, 2, 7, 2));
    is(tsr_stack(1, y, 0), TSR_F32, D(1, 5, 2, 7));
    tsr_split(x[1], 3, (const int64_t[]){2, 0, 1}, 1, y);
    is(y[0], TSR_F32, D(5, 2, 7));
    is(y[1], TSR_F32, D(5, 0, 7));
    is(y[2], TSR_F32, D(5, 1, 7));
    tsr_split(x[1], 1, (const int64_t[]){3}, 1, y);
    shows(y[0], x[1]);
    is(tsr_slice(x[1], D(1, -9, 0), D(-1, INT64_MAX, 6), D(2, 1, 4)), TSR_F32, D(2, 3, 2));
    derives(TSRI_OP_SLICE, "S1->S1; P->P; Pmax->Pmax; Pmin->Pmin", NULL);
    is(tsr_slice(x[1], D(3, 0, 0), D(2, 9, 9), TSR_SCALAR), TSR_F32, D(0, 3, 7));
    shows(tsr_slice(x[1], D(0, 0, 0), D(5, 3, 7), TSR_SCALAR), x[1]);
    is(tsr_narrow(x[1], 2, -3, 2), TSR_F32, D(5, 3, 2));
    is(tsr_narrow(x[1], 2, 7, 0), TSR_F32, D(5, 3, 0));
    is(tsr_pad(x[1], D(0, 1, 0), D(0, 2, 0), 0), TSR_F32, D(5, 6, 7));
    derives(TSRI_OP_PAD, "S0->S0; S2->S2; P->P; Pmax->Pmax; Pmin->Pmin", NULL);
    tsr_pad(x[1], D(0, 1, 0), D(0, 2, 0), 1);
    derives(TSRI_OP_PAD, "S0->S0; S2->S2; Pmax->Pmax; Pmin->Pmin", NULL);
    is(tsr_tril(x[1], -3), TSR_F32, D(5, 3, 7));
    derives(TSRI_OP_TRIANGLE, "S0->S0; S1->S1; S2->S2; P->P", NULL);
    shows(tsr_pad(x[1], D(0, 0, 0), D(0, 0, 0), 1), x[1]);
    /* The widest op: twelve operands of eight axes fit a rule's text. */
    tsr_tensor *wide[12];
    for (int i = 0; i < 12; i++)
        wide[i] = f32(D(1, 1, 1, 1, 1, 1, 1, 2));
    is(tsr_concat(12, wide, 0), TSR_F32, D(12, 1, 1, 1, 1, 1, 1, 2));
    tsri_rule_text t;
    assert_int_equal(tsri_op_write_rule(last_of(TSRI_OP_CONCAT), &t), TSR_OK);
}

static tsr_tensor *concat2(tsr_tensor *a, tsr_tensor *b, int axis)
{
    tsr_tensor *x[2] = {a, b};
    return tsr_concat(2, x, axis);
}

static tsr_tensor *split2(tsr_tensor *x, int n, int64_t a, int64_t b)
{
    tsr_tensor *y[2] = {NULL, NULL};
    tsr_split(x, n, (const int64_t[]){a, b}, 0, y);
    return n > 0 ? y[1] : &g->failure.tensor;
}

static void test_cut_errors(void **state)
{
    (void)state;
    FAILS(TSR_ERR_SHAPE,
          "concat: operands 0 and 1 are (2,3) and (2,4); all axes but 0 must be alike",
          concat2(f32(D(2, 3)), f32(D(2, 4)), 0));
    FAILS(TSR_ERR_SHAPE, "all axes but 1 must be alike", concat2(f32(D(2, 3)), f32(D(2)), 1));
    FAILS(TSR_ERR_DTYPE, "operands 0 and 1 are f32 and i64",
          concat2(f32(D(2)), make(TSR_I64, D(2)), 0));
    FAILS(TSR_ERR_SHAPE, "axis 0 of a scalar", concat2(f32(TSR_SCALAR), f32(TSR_SCALAR), 0));
    start(true);
    tsr_tensor *two[2] = {f32(D(3)), f32(D(4))};
    failed(tsr_stack(2, two, 0), TSR_ERR_SHAPE, "stack: operands 0 and 1 are (3) and (4)");
    start(true);
    two[0] = two[1] = f32(D(3));
    failed(tsr_stack(2, two, 2), TSR_ERR_SHAPE, "new axis 2 for (3); legal are -2 to 1");
    assert_null(tsr_concat(0, NULL, 0));
    assert_non_null(strstr(tsr_last_error(), "concat: of 0 tensors; at least one is needed"));
    FAILS(TSR_ERR_SHAPE, "split: the 2 sizes add up to 4; axis 0 of (5) needs 5",
          split2(f32(D(5)), 2, 1, 3));
    FAILS(TSR_ERR_SHAPE, "size 1 is -1", split2(f32(D(5)), 2, 6, -1));
    FAILS(TSR_ERR_INVALID, "into 0 parts", split2(f32(D(5)), 0, 0, 0));
    FAILS(TSR_ERR_SHAPE, "2 starts, 1 ends and 0 steps for (5)",
          tsr_slice(f32(D(5)), D(0, 0), D(1), TSR_SCALAR));
    FAILS(TSR_ERR_INVALID, "step 0 of axis 0; steps are >= 1",
          tsr_slice(f32(D(5)), D(0), D(1), D(0)));
    FAILS(TSR_ERR_SHAPE, "triu: operand (5); matrices, (...,m,n), are needed",
          tsr_triu(f32(D(5)), 0));
    FAILS(TSR_ERR_SHAPE, "narrow: 3 elements from 3 on of axis 0 of (5); it has 5",
          tsr_narrow(f32(D(5)), 0, 3, 3));
    FAILS(TSR_ERR_SHAPE, "-1 before and 0 after axis 0; sizes are >= 0",
          tsr_pad(f32(D(5)), D(-1), D(0), 0));
    FAILS(TSR_ERR_SHAPE, "before and 0 after axis 0; an axis has at most 2^56",
          tsr_pad(f32(D(5)), D(((int64_t)1 << 56) + 1), D(0), 0));
    FAILS(TSR_ERR_SHAPE, "axis 0; an axis has at most 2^56",
          tsr_pad(f32(D(5)), D(0), D(INT64_MAX), 0));
    FAILS(TSR_ERR_INVALID, "pad: 0.5 for dtype i64", tsr_pad(make(TSR_I64, D(5)), D(1), D(0), 0.5));
    FAILS(TSR_ERR_INVALID, "masked_fill: 2147483648 for dtype i32; a whole number from -2147483648",
          tsr_masked_fill(make(TSR_I32, D(3)), make(TSR_BOOL, D(3)), 0x1p31));
}

/* --- cumsum, variance ------------------------------------------------------------------------- */

static void test_sums(void **state)
{
    (void)state;
    start(true);
    tsr_tensor *x = f32(D(5, 7, 4)), *dx;
    tsr_gradients(tsr_cumsum(x, -2), 1, &x, &dx);
    is(dx, TSR_F32, D(5, 7, 4));
    derives(TSRI_OP_CUMSUM, "S0->S0; S2->S2; P->P", NULL);
    assert_int_equal(last_of(TSRI_OP_CUMSUM)->attrs.cumsum.reverse, 1);
    is(tsr_cumsum(make(TSR_I32, D(3)), 0), TSR_I64, D(3));
    is(tsr_prelu(f32(TSR_SCALAR), f32(D(1))), TSR_F32, TSR_SCALAR);
    tsr_tensor *one = f32(D(5, 1));
    shows(tsr_cumsum(one, 1), one);
    is(tsr_variance(x, TSR_AXES(0, 2), false, 1), TSR_F32, D(7));
    assert_float_equal(last_of(TSRI_OP_REDUCE)->attrs.reduce.scale, 1.0 / 19, 1e-15);
    derives(TSRI_OP_REDUCE, "S0->P; S1->S0; S2->P; P->P", NULL);
    is(tsr_std(x, TSR_ALL_AXES, true, 0), TSR_F32, D(1, 1, 1));
    is(tsr_cumsum(make(TSR_BOOL, D(3)), 0), TSR_I64, D(3));
    is(tsr_cumsum_with(make(TSR_I32, D(3)), 0, TSR_SUM_OPTS(.dtype = TSR_U8)), TSR_U8, D(3));
    FAILS(TSR_ERR_DTYPE, "cumsum: no such dtype: 77",
          tsr_cumsum_with(make(TSR_BOOL, D(3)), 0, TSR_SUM_OPTS(.dtype = (tsr_dtype)77)));
    FAILS(TSR_ERR_INVALID, "variance: of 1 elements with correction 1",
          tsr_variance(f32(D(1, 3)), TSR_AXES(0), false, 1));
    FAILS(TSR_ERR_INVALID, "std: of 3 elements with correction -1",
          tsr_std(f32(D(1, 3)), TSR_AXES(1), false, -1));
    FAILS(TSR_ERR_DTYPE, "variance: operand (3) is i64",
          tsr_variance(make(TSR_I64, D(3)), TSR_ALL_AXES, false, 1));
}

/* --- arange, constant, one_hot ---------------------------------------------------------------- */

static void test_sources(void **state)
{
    (void)state;
    float data[6] = {1, 2, 3, 4, 5, 6};
    const unsigned char flags[3] = {0, 7, 1};
    start(true);
    is(tsr_arange(g, TSR_I32, 5, -2, 3, place, TSR_S(0)), TSR_I32, D(5));
    derives(TSRI_OP_ARANGE, "->S0", NULL);
    is(tsr_arange(g, TSR_U8, 256, 0, 1, place, TSR_AUTO), TSR_U8, D(256));
    is(tsr_arange(g, TSR_F32, 0, 0.5, 0.25, place, TSR_B), TSR_F32, D(0));
    is(tsr_constant(g, TSR_F32, D(2, 3), data, place, TSR_S(1)), TSR_F32, D(2, 3));
    derives(TSRI_OP_CONSTANT, "->S0; ->S1", NULL);
    const tsri_attrs first = last_of(TSRI_OP_CONSTANT)->attrs;
    data[4] = 7; /* was copied */
    assert_float_equal(((const float *)first.constant.data)[4], 5, 0);
    tsr_constant(g, TSR_F32, D(2, 3), data, place, TSR_S(1));
    assert_int_not_equal(last_of(TSRI_OP_CONSTANT)->attrs.constant.hash, first.constant.hash);
    tsr_constant(g, TSR_BOOL, D(3), flags, place, TSR_B);
    assert_int_equal(((const unsigned char *)last_of(TSRI_OP_CONSTANT)->attrs.constant.data)[1], 1);
    is(tsr_constant(g, TSR_I64, D(0, 3), NULL, place, TSR_B), TSR_I64, D(0, 3));
    is(tsr_one_hot(make(TSR_I64, D(4, 2)), 7, TSR_F32), TSR_F32, D(4, 2, 7));
    derives(TSRI_OP_ONE_HOT, "S0->S0; S1->S1; B->S2", NULL);
    is(tsr_one_hot(make(TSR_I64, TSR_SCALAR), 7, TSR_BOOL), TSR_BOOL, D(7));
}

static void test_source_errors(void **state)
{
    (void)state;
    FAILS(TSR_ERR_INVALID, "arange: 3 numbers from 0 in steps of 0.5 are not all i64",
          tsr_arange(g, TSR_I64, 3, 0, 0.5, place, TSR_B));
    FAILS(TSR_ERR_INVALID, "are not all u8", tsr_arange(g, TSR_U8, 257, 0, 1, place, TSR_B));
    FAILS(TSR_ERR_INVALID, "are not all i32", tsr_arange(g, TSR_I32, 3, 1e9, 1e9, place, TSR_B));
    FAILS(TSR_ERR_INVALID, "are not all bool", tsr_arange(g, TSR_BOOL, 2, 0, 1, place, TSR_B));
    FAILS(TSR_ERR_INVALID, "both must be finite",
          tsr_arange(g, TSR_F32, 2, 0, (double)INFINITY, place, TSR_B));
    FAILS(TSR_ERR_SHAPE, "arange: axis 0 of (-1) is negative",
          tsr_arange(g, TSR_F32, -1, 0, 1, place, TSR_B));
    FAILS(TSR_ERR_SBP, "legal are B and S(i)", tsr_arange(g, TSR_F32, 2, 0, 1, place, TSR_P));
    FAILS(TSR_ERR_INVALID, "constant: no data for (3)",
          tsr_constant(g, TSR_F32, D(3), NULL, place, TSR_B));
    FAILS(TSR_ERR_DTYPE, "constant: no such dtype",
          tsr_constant(g, (tsr_dtype)77, D(3), "", place, TSR_B));
    FAILS(TSR_ERR_DTYPE, "one_hot: ids are f32", tsr_one_hot(f32(D(2)), 3, TSR_F32));
    FAILS(TSR_ERR_INVALID, "one_hot: 0 classes", tsr_one_hot(make(TSR_I64, D(2)), 0, TSR_F32));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather),        cmocka_unit_test(test_gather_errors),
        cmocka_unit_test(test_where),         cmocka_unit_test(test_where_errors),
        cmocka_unit_test(test_cuts),          cmocka_unit_test(test_cut_errors),
        cmocka_unit_test(test_sums),          cmocka_unit_test(test_sources),
        cmocka_unit_test(test_source_errors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
