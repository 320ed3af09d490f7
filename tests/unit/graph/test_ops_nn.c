/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of the ops that transformers are made of: shapes, texts of errors, signatures. */
#include "declared.h"

#include <math.h>

static void test_batch_matmul(void **state)
{
    (void)state;
    start(true);
    is(tsr_matmul(f32(D(7, 2, 3)), f32(D(7, 3, 5))), TSR_F32, D(7, 2, 5));
    is(tsr_matmul(f32(D(4, 1, 2, 3)), f32(D(7, 3, 5))), TSR_F32, D(4, 7, 2, 5));
    is(tsr_matmul(f32(D(4, 7, 2, 3)), f32(D(3, 5))), TSR_F32, D(4, 7, 2, 5));
    is(tsr_matmul_t(f32(D(3, 2)), f32(D(6, 5, 3)), true, true), TSR_F32, D(6, 2, 5));
    is(tsr_matmul(f32(D(0, 2, 3)), f32(D(1, 3, 5))), TSR_F32, D(0, 2, 5));
    FAILS(TSR_ERR_SHAPE,
          "matmul: (2,3,4) x (4,4,5): batch axes (2) and (4) do not broadcast; from the right, "
          "sizes must be equal or one of them 1",
          tsr_matmul(f32(D(2, 3, 4)), f32(D(4, 4, 5))));
    FAILS(TSR_ERR_SHAPE, "(2,3,4)^T x (2,4,5): inner sizes 3 and 4 differ",
          tsr_matmul_t(f32(D(2, 3, 4)), f32(D(2, 4, 5)), true, false));
    FAILS(TSR_ERR_SHAPE, "(2,3) x (3): operand 1 has 1 axis; matrices have 2, or more of which",
          tsr_matmul(f32(D(2, 3)), f32(D(3))));
    FAILS(TSR_ERR_DTYPE, "floating point is needed",
          tsr_matmul(make(TSR_I64, D(2, 3, 3)), make(TSR_I64, D(2, 3, 3))));
}

static void test_gelu(void **state)
{
    (void)state;
    start(true);
    is(tsr_gelu(f32(D(2, 3)), TSR_GELU_ERF), TSR_F32, D(2, 3));
    is(tsr_gelu(f32(D(0)), TSR_GELU_TANH), TSR_F32, D(0));
    FAILS(TSR_ERR_INVALID, "gelu: form is 2; legal are TSR_GELU_ERF and TSR_GELU_TANH",
          tsr_gelu(f32(D(2)), (tsr_gelu_form)2));
    FAILS(TSR_ERR_DTYPE, "operand (2) is i64; floating point",
          tsr_gelu(make(TSR_I64, D(2)), TSR_GELU_ERF));
}

static void test_layer_norm(void **state)
{
    (void)state;
    start(true);
    is(tsr_layer_norm(f32(D(2, 3, 4)), f32(D(4)), f32(D(4)), NULL), TSR_F32, D(2, 3, 4));
    is(tsr_layer_norm(f32(D(2, 3, 4)), NULL, f32(D(3, 4)), TSR_LAYER_NORM_OPTS(.axes = 2)), TSR_F32,
       D(2, 3, 4));
    is(last_of(TSRI_OP_LN_STATS)->out[0], TSR_F64, D(2, 2));
    is(tsr_layer_norm(f32(D(3, 0)), NULL, NULL, NULL), TSR_F32, D(3, 0));
    FAILS(TSR_ERR_SHAPE, "layer_norm: gamma is (5); it must be (4), the last axis of x (2,4)",
          tsr_layer_norm(f32(D(2, 4)), f32(D(5)), NULL, NULL));
    FAILS(TSR_ERR_SHAPE, "beta is (4); it must be (2,4), the last axes of x (2,4)",
          tsr_layer_norm(f32(D(2, 4)), NULL, f32(D(4)), TSR_LAYER_NORM_OPTS(.axes = 2)));
    FAILS(TSR_ERR_SHAPE, "3 trailing axes of (2,4); legal are 1 to 2",
          tsr_layer_norm(f32(D(2, 4)), NULL, NULL, TSR_LAYER_NORM_OPTS(.axes = 3)));
    FAILS(TSR_ERR_SHAPE, "1 trailing axes of (); legal",
          tsr_layer_norm(f32(TSR_SCALAR), NULL, NULL, NULL));
    FAILS(TSR_ERR_INVALID, "eps is -1",
          tsr_layer_norm(f32(D(2, 4)), NULL, NULL, TSR_LAYER_NORM_OPTS(.eps = -1)));
    FAILS(TSR_ERR_DTYPE, "operands 0 and 1 are f32 and f64",
          tsr_layer_norm(f32(D(2, 4)), make(TSR_F64, D(4)), NULL, NULL));
}

static void test_rules_layer_norm(void **state)
{
    (void)state;
    start(true);
    tsr_tensor *x[3] = {f32(D(5, 7, 6)), f32(D(6)), f32(D(6))}, *dx[3];
    tsr_gradients(tsr_layer_norm(x[0], x[1], x[2], NULL), 3, x, dx);
    derives(TSRI_OP_LN_STATS, "S0->S0; S1->S1; S2->P", NULL);
    derives(TSRI_OP_LN_APPLY, "S0,S0,B,B->S0; S1,S1,B,B->S1; S2,B,S0,S0->S2; B,B,P,P->P", NULL);
    derives(TSRI_OP_LN_BWD_STATS,
            "S0,S0,B,S0->S0; S1,S1,B,S1->S1; S2,B,S0,S2->P; B,B,P,B->P; B,B,B,P->P", NULL);
    derives(TSRI_OP_LN_BWD_APPLY,
            "S0,S0,B,S0,S0->S0; S1,S1,B,S1,S1->S1; S2,B,S0,S2,B->S2; B,B,P,B,P->P; B,B,B,P,P->P",
            NULL);
    derives(TSRI_OP_LN_PARAM_GRAD, "S0,S0,S0->P,P; S1,S1,S1->P,P; S2,B,S2->S0,S0; B,B,P->P,P",
            NULL);
}

static void test_attention(void **state)
{
    (void)state;
    start(true);
    tsr_tensor *q = f32(D(2, 3, 4, 5)), *k = f32(D(2, 3, 6, 5)), *v = f32(D(2, 3, 6, 7));
    is(tsr_attention(q, k, v, NULL), TSR_F32, D(2, 3, 4, 7));
    is(tsr_attention(q, k, v, TSR_ATTENTION_OPTS(.causal = true, .dropout = 0.1)), TSR_F32,
       D(2, 3, 4, 7));
    assert_float_equal(last_of(TSRI_OP_SCALE)->attrs.scale.a, 1 / sqrt(5), 1e-15);
    is(tsr_attention(q, f32(D(2, 3, 0, 5)), f32(D(2, 3, 0, 7)), NULL), TSR_F32, D(2, 3, 4, 7));
    is(tsr_causal_mask(f32(D(3, 4)), 1, -INFINITY), TSR_F32, D(3, 4));
    derives(TSRI_OP_CAUSAL_MASK, "S0->S0; S1->S1", NULL);
    tsr_causal_mask(f32(D(2, 3, 4)), 1, 0);
    derives(TSRI_OP_CAUSAL_MASK, "S0->S0; S1->S1; S2->S2; P->P", NULL);
    FAILS(TSR_ERR_SHAPE,
          "attention: queries (2,3,4,5), keys (2,3,6,4), values (2,3,6,7); legal are (b,h,s,d), "
          "(b,h,t,d), (b,h,t,e)",
          tsr_attention(f32(D(2, 3, 4, 5)), f32(D(2, 3, 6, 4)), f32(D(2, 3, 6, 7)), NULL));
    FAILS(TSR_ERR_SHAPE, "queries (3,4,5)",
          tsr_attention(f32(D(3, 4, 5)), f32(D(3, 4, 5)), f32(D(3, 4, 5)), NULL));
    FAILS(TSR_ERR_INVALID, "dropout is 1; it must be in [0, 1)",
          tsr_attention(f32(D(1, 1, 1, 1)), f32(D(1, 1, 1, 1)), f32(D(1, 1, 1, 1)),
                        TSR_ATTENTION_OPTS(.dropout = 1)));
    FAILS(TSR_ERR_INVALID, "scale is inf",
          tsr_attention(f32(D(1, 1, 1, 1)), f32(D(1, 1, 1, 1)), f32(D(1, 1, 1, 1)),
                        TSR_ATTENTION_OPTS(.scale = INFINITY)));
    FAILS(TSR_ERR_SHAPE, "causal_mask: x is (4); it must be (...,s,t)",
          tsr_causal_mask(f32(D(4)), 0, 0));
    FAILS(TSR_ERR_INVALID, "the value is NaN", tsr_causal_mask(f32(D(4, 4)), 0, NAN));
}

static void test_rules_batch_matmul(void **state)
{
    (void)state;
    start(true);
    tsr_tensor *x[2] = {f32(D(6, 5, 7)), f32(D(6, 7, 3))}, *dx[2];
    tsr_gradients(tsr_matmul(x[0], x[1]), 2, x, dx);
    derives(TSRI_OP_BATCH_MATMUL, "S0,S0->S0; S2,B->S1; B,S2->S2; S1,S1->P; P,B->P; B,P->P", NULL);
    /* Of the batch's axes, one is broadcast on the right, one on the left. */
    tsr_matmul_t(f32(D(6, 1, 5, 7)), f32(D(4, 3, 7)), false, true);
    derives(TSRI_OP_BATCH_MATMUL,
            "S0,B->S0; B,S0->S1; S2,B->S2; B,S1->S3; S3,S2->P; P,B->P; B,P->P", NULL);
    /* A matrix for the whole batch: its gradient is a linear layer's weight's. */
    x[0] = f32(D(4, 5, 7));
    x[1] = f32(D(7, 3));
    tsr_gradients(tsr_matmul(x[0], x[1]), 2, x, dx);
    assert_int_equal(dx[1]->op->kind, TSRI_OP_LINEAR_DW);
    is(dx[0], TSR_F32, D(4, 5, 7));
    is(dx[1], TSR_F32, D(7, 3));
    derives(TSRI_OP_LINEAR_DW, "S0,S0->P; S1,S1->P; B,S2->S0; S2,B->S1; P,B->P; B,P->P", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_matmul),       cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_layer_norm),         cmocka_unit_test(test_attention),
        cmocka_unit_test(test_rules_batch_matmul), cmocka_unit_test(test_rules_layer_norm),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
