/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of the ops that index, select and cut: shapes, errors, signatures. */
#include "declared.h"

/* --- gather, embedding ----------------------------------------------------------------------- */

static void test_gather(void **state)
{
    (void)state;
    start(true);
    tsr_tensor *x = f32(D(3, 5, 2)), *ids = make(TSR_I64, D(7, 4)), *dx;
    is(tsr_gather(x, 1, ids), TSR_F32, D(3, 7, 4, 2));
    is(tsr_gather(x, -1, make(TSR_I64, TSR_SCALAR)), TSR_F32, D(3, 5));
    is(tsr_gather(make(TSR_BOOL, D(4)), 0, ids), TSR_BOOL, D(7, 4));
    tsr_tensor *table = f32(D(5, 3));
    is(tsr_embedding(table, ids, NULL), TSR_F32, D(7, 4, 3));
    derives(TSRI_OP_GATHER, "B,S0->S0; B,S1->S1; S1,B->S2; S0,B->P; P,B->P", NULL);
    tsr_gradients(
        tsr_embedding(table, ids, TSR_EMBEDDING_OPTS(.has_padding_idx = true, .padding_idx = -1)),
        1, &table, &dx);
    is(dx, TSR_F32, D(5, 3));
    derives(TSRI_OP_GATHER_DX, "S0,S0->P; S1,S1->P; B,S2->S1; B,B->S0; B,P->P", NULL);
    assert_int_equal(last_of(TSRI_OP_GATHER_DX)->attrs.gather.pad, 4);
    tsr_gather(x, 1, make(TSR_I64, D(6)));
    derives(TSRI_OP_GATHER, "S0,B->S0; B,S0->S1; S2,B->S2; S1,B->P; P,B->P", NULL);
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
    FAILS(TSR_ERR_SHAPE, "gather: axis 2 of (5,3); legal are -2 to 1",
          tsr_gather(f32(D(5, 3)), 2, make(TSR_I64, D(2))));
    FAILS(TSR_ERR_SHAPE, "axis 0 of a scalar", tsr_gather(f32(TSR_SCALAR), 0, make(TSR_I64, D(2))));
    FAILS(TSR_ERR_SHAPE, "make 9 axes; at most 8 are possible",
          tsr_gather(f32(D(1, 1, 1, 1, 1)), 0, make(TSR_I64, D(1, 1, 1, 1, 1))));
}

/* --- where, comparisons ---------------------------------------------------------------------- */

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_gather_errors),
        cmocka_unit_test(test_where),
        cmocka_unit_test(test_where_errors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
