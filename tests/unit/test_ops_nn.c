/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations of the ops that transformers are made of: shapes, texts of errors, signatures. */
#include "declared.h"

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
        cmocka_unit_test(test_batch_matmul),
        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_rules_batch_matmul),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
