/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations: the shapes and dtypes of results, the texts of errors, and the signatures that
 * follow from each op's rule, against lists in the tests. */
#include "declared.h"

#include <math.h>

/* --- shapes ----------------------------------------------------------------------------------- */

static void test_shapes_elementwise(void **state)
{
    (void)state;
    start(true);
    tsr_tensor *x = f32(D(2, 3, 4)), *i = make(TSR_I64, D(3));
    is(tsr_relu(x), TSR_F32, D(2, 3, 4));
    is(tsr_add(x, f32(D(3, 1))), TSR_F32, D(2, 3, 4));
    is(tsr_add(f32(D(5, 1)), f32(D(1, 4))), TSR_F32, D(5, 4));
    is(tsr_add(f32(D(0, 4)), f32(D(1, 4))), TSR_F32, D(0, 4));
    is(tsr_mul(x, f32(TSR_SCALAR)), TSR_F32, D(2, 3, 4));
    is(tsr_equal(i, i), TSR_BOOL, D(3));
    is(tsr_add(i, i), TSR_I64, D(3));
    is(tsr_cast(i, TSR_F32), TSR_F32, D(3));
    shows(tsr_cast(i, TSR_I64), i);
    is(tsr_sum(x, TSR_AXES(-1, 0), false), TSR_F32, D(3));
    is(tsr_max(x, TSR_AXES(1), true), TSR_F32, D(2, 1, 4));
    is(tsr_mean(x, TSR_ALL_AXES, false), TSR_F32, TSR_SCALAR);
    is(tsr_norm(x, 2, TSR_AXES(2), false), TSR_F32, D(2, 3));
    is(tsr_argmax(x, -2), TSR_I64, D(2, 4));
    is(tsr_reshape(x, D(4, -1)), TSR_F32, D(4, 6));
    is(tsr_flatten(x, 1), TSR_F32, D(2, 12));
    is(tsr_detach(x), TSR_F32, D(2, 3, 4));
    is(tsr_transpose(x, 0, -1), TSR_F32, D(4, 3, 2));
    is(tsr_permute(x, TSR_AXES(1, 2, 0)), TSR_F32, D(3, 4, 2));
    is(tsr_expand(f32(D(3, 1)), D(2, 3, 4)), TSR_F32, D(2, 3, 4));
    is(tsr_dropout(x, 0.5), TSR_F32, D(2, 3, 4));
    shows(tsr_dropout(x, 0), x);
    is(tsr_uniform(g, "u", TSR_F32, D(5, 7), place, TSR_S(1), 0, 1), TSR_F32, D(5, 7));
    is(tsr_full(g, TSR_I64, D(5), place, TSR_AUTO, 3), TSR_I64, D(5));
    start(false);
    tsr_tensor *dx;
    x = f32(D(2));
    shows(tsr_dropout(x, 0.5), x);
    /* Gradients are cast back. */
    tsr_gradients(tsr_exp(tsr_cast(x, TSR_F64)), 1, &x, &dx);
    is(dx, TSR_F32, D(2));
}

static void test_shapes_products(void **state)
{
    (void)state;
    start(true);
    is(tsr_matmul(f32(D(2, 3)), f32(D(3, 5))), TSR_F32, D(2, 5));
    is(tsr_matmul_t(f32(D(3, 2)), f32(D(5, 3)), true, true), TSR_F32, D(2, 5));
    is(tsr_linear(f32(D(2, 7, 3)), f32(D(5, 3)), f32(D(5))), TSR_F32, D(2, 7, 5));
    tsr_tensor *x = f32(D(2, 6, 9, 8));
    is(tsr_conv2d(x, f32(D(4, 6, 3, 3)), NULL, NULL), TSR_F32, D(2, 4, 7, 6));
    is(tsr_conv2d(x, f32(D(6, 1, 3, 3)), f32(D(6)),
                  TSR_CONV2D_OPTS(.stride = {2, 2}, .padding = {1, 1}, .groups = 6)),
       TSR_F32, D(2, 6, 5, 4));
    is(tsr_conv2d(x, f32(D(4, 6, 3, 3)), NULL,
                  TSR_CONV2D_OPTS(.padding = {2, 0}, .dilation = {2, 1})),
       TSR_F32, D(2, 4, 9, 6));
    is(tsr_max_pool2d(x, TSR_POOL2D_OPTS(.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1})),
       TSR_F32, D(2, 6, 5, 4));
    is(tsr_avg_pool2d(x, TSR_POOL2D_OPTS(.kernel = {3, 2})), TSR_F32, D(2, 6, 3, 4));
    is(tsr_adaptive_avg_pool2d(x, 1, 5), TSR_F32, D(2, 6, 1, 5));
    is(tsr_batch_norm(x, f32(D(6)), f32(D(6)), NULL, NULL, NULL), TSR_F32, D(2, 6, 9, 8));
    is(tsr_softmax(x, 1), TSR_F32, D(2, 6, 9, 8));
    tsr_tensor *logits = f32(D(8, 10)), *labels = make(TSR_I64, D(8));
    is(tsr_cross_entropy(logits, labels, TSR_MEAN), TSR_F32, TSR_SCALAR);
    is(tsr_cross_entropy(logits, labels, TSR_NONE), TSR_F32, D(8));
    is(tsr_cross_entropy_with(logits, labels,
                              TSR_CROSS_ENTROPY_OPTS(.has_ignore_index = true, .ignore_index = -1)),
       TSR_F32, TSR_SCALAR);
    is(tsr_mse_loss(logits, f32(D(8, 10)), TSR_SUM), TSR_F32, TSR_SCALAR);
    /* Older programs' shorter options: fields beyond their size are defaults. */
    tsr_conv2d_opts o = {
        .size = offsetof(tsr_conv2d_opts, padding), .stride = {2, 2}, .padding = {9, 9}};
    is(tsr_conv2d(f32(D(1, 1, 8, 8)), f32(D(1, 1, 2, 2)), NULL, &o), TSR_F32, D(1, 1, 4, 4));
}

/* --- errors ----------------------------------------------------------------------------------- */

static void test_errors_shapes(void **state)
{
    (void)state;
    FAILS(TSR_ERR_SHAPE,
          "matmul: (64,1280) x (1000,10): inner sizes 1280 and 1000 differ; transpose an operand "
          "(tsr_matmul_t) or change a shape",
          tsr_matmul(f32(D(64, 1280)), f32(D(1000, 10))));
    FAILS(TSR_ERR_SHAPE, "it must be (5,3) here", tsr_linear(f32(D(2, 3)), f32(D(5, 4)), NULL));
    FAILS(TSR_ERR_SHAPE, "bias is (4); it must be (5)",
          tsr_linear(f32(D(2, 3)), f32(D(5, 3)), f32(D(4))));
    FAILS(TSR_ERR_SHAPE, "add: (2,3) and (2); from the right", tsr_add(f32(D(2, 3)), f32(D(2))));
    FAILS(TSR_ERR_SHAPE, "axis 2 of (2,3); legal are -2 to 1",
          tsr_sum(f32(D(2, 3)), TSR_AXES(2), false));
    FAILS(TSR_ERR_INVALID, "named twice", tsr_sum(f32(D(2, 3)), TSR_AXES(1, -1), false));
    FAILS(TSR_ERR_SHAPE, "axes of size 0", tsr_max(f32(D(2, 0)), TSR_AXES(1), false));
    FAILS(TSR_ERR_SHAPE, "has 6 elements, which are not those of (4,2)",
          tsr_reshape(f32(D(2, 3)), D(4, 2)));
    FAILS(TSR_ERR_SHAPE, "one axis may be -1", tsr_reshape(f32(D(2, 3)), D(-1, -1)));
    FAILS(TSR_ERR_SHAPE, "grow from 1", tsr_expand(f32(D(2, 3)), D(4, 3)));
    FAILS(TSR_ERR_SHAPE, "3 groups must divide",
          tsr_conv2d(f32(D(1, 4, 5, 5)), f32(D(6, 1, 3, 3)), NULL, TSR_CONV2D_OPTS(.groups = 3)));
    FAILS(TSR_ERR_SHAPE, "with 2 groups the weight must be (6,2,3,3)",
          tsr_conv2d(f32(D(1, 4, 5, 5)), f32(D(6, 4, 3, 3)), NULL, TSR_CONV2D_OPTS(.groups = 2)));
    FAILS(TSR_ERR_SHAPE, "larger than",
          tsr_conv2d(f32(D(1, 1, 2, 5)), f32(D(1, 1, 3, 3)), NULL, NULL));
    FAILS(TSR_ERR_SHAPE, "planes must not be empty",
          tsr_max_pool2d(f32(D(1, 1, 4, 0)), TSR_POOL2D_OPTS(.kernel = {2, 2}, .padding = {1, 1})));
    FAILS(TSR_ERR_SHAPE, "gamma is (5); it must be (6)",
          tsr_batch_norm(f32(D(2, 6)), f32(D(5)), f32(D(6)), NULL, NULL, NULL));
    FAILS(TSR_ERR_SHAPE, "logits (8,10), labels (7)",
          tsr_cross_entropy(f32(D(8, 10)), make(TSR_I64, D(7)), TSR_MEAN));
    FAILS(TSR_ERR_SHAPE, "must have one shape", tsr_mse_loss(f32(D(8, 1)), f32(D(8)), TSR_MEAN));
}

static void test_errors_dtypes(void **state)
{
    (void)state;
    FAILS(TSR_ERR_DTYPE, "relu: operand (3) is i64; floating point is needed: use tsr_cast",
          tsr_relu(make(TSR_I64, D(3))));
    FAILS(TSR_ERR_DTYPE, "operands 0 and 1 are f32 and f64",
          tsr_add(f32(D(3)), make(TSR_F64, D(3))));
    FAILS(TSR_ERR_DTYPE, "legal are floating point, i32 and i64",
          tsr_add(make(TSR_BOOL, D(3)), make(TSR_BOOL, D(3))));
    FAILS(TSR_ERR_DTYPE, "labels are i32; i64 is needed",
          tsr_cross_entropy(f32(D(8, 10)), make(TSR_I32, D(8)), TSR_MEAN));
    FAILS(TSR_ERR_DTYPE, "mean:", tsr_mean(make(TSR_I32, D(8)), TSR_ALL_AXES, false));
    FAILS(TSR_ERR_DTYPE, "no such dtype", tsr_cast(f32(D(3)), (tsr_dtype)99));
}

static void test_errors_options(void **state)
{
    (void)state;
    FAILS(TSR_ERR_INVALID, "stride is (-2,-2); each must be at least 1",
          tsr_conv2d(f32(D(1, 1, 5, 5)), f32(D(1, 1, 3, 3)), NULL,
                     TSR_CONV2D_OPTS(.stride = {-2, -2})));
    FAILS(TSR_ERR_INVALID, "more than half the kernel",
          tsr_max_pool2d(f32(D(1, 1, 5, 5)), TSR_POOL2D_OPTS(.kernel = {3, 3}, .padding = {2, 2})));
    FAILS(TSR_ERR_INVALID, "kernel is (0,0)", tsr_avg_pool2d(f32(D(1, 1, 5, 5)), NULL));
    FAILS(TSR_ERR_INVALID, "p is 1; it must be in [0, 1)", tsr_dropout(f32(D(3)), 1));
    FAILS(TSR_ERR_INVALID, "it must be in [0, 1)", tsr_dropout(f32(D(3)), NAN));
    FAILS(TSR_ERR_INVALID, "is NaN", tsr_mul_scalar(f32(D(3)), NAN));
    FAILS(TSR_ERR_INVALID, "label_smoothing is 1",
          tsr_cross_entropy_with(f32(D(8, 10)), make(TSR_I64, D(8)),
                                 TSR_CROSS_ENTROPY_OPTS(.label_smoothing = 1)));
    FAILS(TSR_ERR_INVALID, "eps is",
          tsr_batch_norm(f32(D(2, 6)), f32(D(6)), f32(D(6)), NULL, NULL,
                         TSR_BATCH_NORM_OPTS(.eps = -1)));
    FAILS(TSR_ERR_INVALID, "running_mean is no variable",
          tsr_batch_norm(f32(D(2, 6)), f32(D(6)), f32(D(6)), f32(D(6)), f32(D(6)), NULL));
    FAILS(TSR_ERR_INVALID, "running_mean is given and running_var is not",
          tsr_batch_norm(f32(D(2, 6)), f32(D(6)), f32(D(6)), f32(D(6)), NULL, NULL));
    FAILS(TSR_ERR_INVALID, "low 2 is above high 1",
          tsr_uniform(g, "u", TSR_F32, D(3), place, TSR_B, 2, 1));
    FAILS(TSR_ERR_INVALID, "3 numbers from -2.14748e+09 in steps of 1 are not all i32",
          tsr_arange(g, TSR_I32, 3, INT32_MIN - 1.0, 1, place, TSR_B));
    FAILS(TSR_ERR_INVALID, "3 numbers from 2.14748e+09 in steps of 1 are not all i32",
          tsr_arange(g, TSR_I32, 3, INT32_MAX - 1.0, 1, place, TSR_B));
    start(true);
    is(tsr_arange(g, TSR_I32, 3, INT32_MIN, 1, place, TSR_B), TSR_I32, D(3));
    is(tsr_arange(g, TSR_I32, 3, INT32_MAX - 2.0, 1, place, TSR_B), TSR_I32, D(3));
    is(tsr_arange(g, TSR_U8, 256, 0, 1, place, TSR_B), TSR_U8, D(256));
    const tsr_sbp odd = {1, {{9, 0}}};
    FAILS(TSR_ERR_SBP, "x: not a signature", tsr_input(g, "x", TSR_F32, D(3), place, odd));
    FAILS(TSR_ERR_INVALID, "'u': 0 and inf; both must be finite",
          tsr_uniform(g, "u", TSR_F32, D(3), place, TSR_B, 0, INFINITY));
    FAILS(TSR_ERR_INVALID, "'n': nan and 1; both must be finite",
          tsr_normal(g, "n", TSR_F32, D(3), place, TSR_B, NAN, 1));
    FAILS(TSR_ERR_SBP, "legal are B and S(i)", tsr_full(g, TSR_F32, D(3), place, TSR_P, 2));
    FAILS(TSR_ERR_INVALID, "whole number", tsr_full(g, TSR_I64, D(3), place, TSR_B, 2.5));
    /* The first error stays; what follows from a failed tensor is silent. */
    start(true);
    tsr_tensor *bad = tsr_dropout(f32(D(3)), 2);
    failed(tsr_relu(tsr_matmul(bad, bad)), TSR_ERR_INVALID, "dropout: p is 2");
}

/* --- rules ------------------------------------------------------------------------------------ */

static void test_rules_elementwise(void **state)
{
    (void)state;
    start(true);
    tsr_tensor *x = f32(D(5, 7, 4)), *c = f32(D(4)), *k = f32(D(7, 1));
    tsr_exp(x);
    derives(TSRI_OP_UNARY, "S0->S0; S1->S1; S2->S2", NULL);
    tsr_mul_scalar(x, 2);
    derives(TSRI_OP_SCALE, "S0->S0; S1->S1; S2->S2; P->P", NULL);
    tsr_cast(x, TSR_F64);
    derives(TSRI_OP_CAST, "S0->S0; S1->S1; S2->S2; P->P; Pmax->Pmax; Pmin->Pmin", NULL);
    tsr_cast(x, TSR_BF16);
    derives(TSRI_OP_CAST, "S0->S0; S1->S1; S2->S2; Pmax->Pmax; Pmin->Pmin", NULL);
    tsr_add(x, c);
    derives(TSRI_OP_BINARY, "S0,B->S0; S1,B->S1; S2,S0->S2; P,P->P", NULL);
    tsr_add(x, k);
    derives(TSRI_OP_BINARY, "S0,B->S0; S1,S0->S1; S2,B->S2; P,P->P", NULL);
    tsr_mul(x, x);
    derives(TSRI_OP_BINARY, "S0,S0->S0; S1,S1->S1; S2,S2->S2; P,B->P; B,P->P", NULL);
    tsr_div(x, c);
    derives(TSRI_OP_BINARY, "S0,B->S0; S1,B->S1; S2,S0->S2; P,B->P", NULL);
    tsr_equal(x, c);
    derives(TSRI_OP_BINARY, "S0,B->S0; S1,B->S1; S2,S0->S2", NULL);
    tsr_sum(x, TSR_AXES(1), false);
    derives(TSRI_OP_REDUCE, "S0->S0; S1->P; S2->S1; P->P", NULL);
    tsr_sum(x, TSR_AXES(1), true);
    derives(TSRI_OP_REDUCE, "S0->S0; S1->P; S2->S2; P->P", NULL);
    tsr_sum(x, TSR_ALL_AXES, false);
    derives(TSRI_OP_REDUCE, "S0->P; S1->P; S2->P; P->P", NULL);
    tsr_max(x, TSR_AXES(1), false);
    derives(TSRI_OP_REDUCE, "S0->S0; S1->Pmax; S2->S1; Pmax->Pmax", NULL);
    tsr_min(x, TSR_AXES(1), false);
    derives(TSRI_OP_REDUCE, "S0->S0; S1->Pmin; S2->S1; Pmin->Pmin", NULL);
    tsr_argmax(x, 1);
    derives(TSRI_OP_ARGMAX, "S0->S0; S2->S1", NULL);
    tsr_expand(k, D(5, 7, 4));
    derives(TSRI_OP_EXPAND, "B->S0; S0->S1; B->S2; P->P", NULL);
    tsr_permute(x, TSR_AXES(2, 0, 1));
    derives(TSRI_OP_PERMUTE, "S0->S1; S1->S2; S2->S0; P->P; Pmax->Pmax; Pmin->Pmin", NULL);
    tsr_reshape(f32(D(8, 4)), D(2, 4, 4));
    derives(TSRI_OP_RESHAPE, "S0->S0; S1->S2; P->P; Pmax->Pmax; Pmin->Pmin",
            "S1->S2; P->P; Pmax->Pmax; Pmin->Pmin");
    tsr_dropout(x, 0.5);
    derives(TSRI_OP_DROPOUT, "S0,B->S0; S1,B->S1; S2,B->S2; P,B->P", NULL);
    tsr_normal(g, "n", TSR_F32, D(5, 7), place, TSR_AUTO, 0, 1);
    derives(TSRI_OP_RANDOM, "->S0; ->S1", NULL);
    tsr_full(g, TSR_F32, TSR_SCALAR, place, TSR_AUTO, 1);
    derives(TSRI_OP_FILL, "", NULL);
}

static void test_rules_products(void **state)
{
    (void)state;
    start(true);
    tsr_tensor *y = tsr_matmul(f32(D(5, 7)), f32(D(7, 3)));
    derives(TSRI_OP_MATMUL, "S0,B->S0; B,S1->S1; S1,S0->P; P,B->P; B,P->P", NULL);
    y = tsr_matmul_t(f32(D(7, 5)), f32(D(3, 7)), true, true);
    derives(TSRI_OP_MATMUL, "S1,B->S0; B,S0->S1; S0,S1->P; P,B->P; B,P->P", NULL);
    tsr_tensor *w = f32(D(3, 7)), *b = f32(D(3)), *x = f32(D(5, 2, 7)), *dx[3], *of[] = {x, w, b};
    y = tsr_linear(x, w, b);
    derives(TSRI_OP_LINEAR, "S0,B,B->S0; S1,B,B->S1; B,S0,S0->S2; S2,S1,P->P; P,B,P->P; B,P,P->P",
            NULL);
    tsr_gradients(y, 3, of, dx);
    derives(TSRI_OP_LINEAR_DX, "S0,B->S0; S1,B->S1; B,S1->S2; S2,S0->P; P,B->P; B,P->P", NULL);
    derives(TSRI_OP_LINEAR_DW, "S0,S0->P; S1,S1->P; B,S2->S0; S2,B->S1; P,B->P; B,P->P", NULL);
    derives(TSRI_OP_REDUCE, "S0->P; S1->P; S2->S0; P->P", NULL);
}

static void conv_of(int64_t groups, tsr_dims x_dims, tsr_dims w_dims, int stride, int pad,
                    bool bias)
{
    start(true);
    tsr_tensor *x = f32(x_dims), *w = f32(w_dims), *b = bias ? f32(D(w_dims.d[0])) : NULL;
    tsr_tensor *y = tsr_conv2d(
        x, w, b,
        TSR_CONV2D_OPTS(.stride = {stride, stride}, .padding = {pad, pad}, .groups = groups));
    tsr_tensor *dx[2], *of[2] = {x, w};
    tsr_gradients(y, 2, of, dx);
    assert_int_equal(tsr_graph_status(g), TSR_OK);
}

static void test_rules_conv(void **state)
{
    (void)state;
    conv_of(1, D(5, 7, 6, 6), D(5, 7, 3, 3), 1, 1, true);
    derives(TSRI_OP_CONV2D, "S0,B,B->S0; P,B,P->P; B,P,P->P; B,S0,S0->S1; S1,S1,P->P", NULL);
    derives(TSRI_OP_CONV2D_DX, "S0,B->S0; P,B->P; B,P->P; B,S1->S1; S1,S0->P", NULL);
    derives(TSRI_OP_CONV2D_DW, "S0,S0->P; P,B->P; B,P->P; B,S1->S0; S1,B->S1", NULL);
    /* Grouped: k must divide g. */
    conv_of(2, D(5, 4, 6, 6), D(6, 2, 3, 3), 1, 1, false);
    derives(TSRI_OP_CONV2D, "S0,B->S0; P,B->P; B,P->P; S1,S0->S1", "S0,B->S0; P,B->P; B,P->P");
    /* Depthwise: any k. */
    conv_of(7, D(5, 7, 6, 6), D(7, 1, 3, 3), 1, 1, true);
    derives(TSRI_OP_CONV2D, "S0,B,B->S0; P,B,P->P; B,P,P->P; S1,S0,S0->S1", NULL);
    derives(TSRI_OP_CONV2D_DX, "S0,B->S0; P,B->P; B,P->P; S1,S0->S1", NULL);
    derives(TSRI_OP_CONV2D_DW, "S0,S0->P; P,B->P; B,P->P; S1,S1->S0", NULL);
    /* 1x1: any k along h and w. */
    conv_of(1, D(5, 7, 5, 6), D(5, 7, 1, 1), 1, 0, false);
    derives(TSRI_OP_CONV2D, "S0,B->S0; P,B->P; B,P->P; B,S0->S1; S1,S1->P; S2,B->S2; S3,B->S3",
            NULL);
    derives(TSRI_OP_CONV2D_DW, "S0,S0->P; P,B->P; B,P->P; B,S1->S0; S1,B->S1; S2,S2->P; S3,S3->P",
            NULL);
    /* Patches of 2x2, of which there are 4 x 3: over 2 along h, over 3 along w. */
    conv_of(1, D(5, 7, 8, 6), D(5, 7, 2, 2), 2, 0, false);
    derives(TSRI_OP_CONV2D, "S0,B->S0; P,B->P; B,P->P; B,S0->S1; S1,S1->P; S2,B->S2",
            "S0,B->S0; P,B->P; B,P->P; B,S0->S1; S1,S1->P; S3,B->S3");
    derives(TSRI_OP_CONV2D_DX, "S0,B->S0; P,B->P; B,P->P; B,S1->S1; S1,S0->P; S2,B->S2",
            "S0,B->S0; P,B->P; B,P->P; B,S1->S1; S1,S0->P; S3,B->S3");
}

static void test_rules_pool(void **state)
{
    (void)state;
    start(true);
    tsr_tensor *x = f32(D(5, 7, 8, 6)), *dx;
    tsr_gradients(tsr_max_pool2d(x, TSR_POOL2D_OPTS(.kernel = {2, 2})), 1, &x, &dx);
    derives(TSRI_OP_MAX_POOL, "S0->S0,S0; S1->S1,S1", NULL);
    derives(TSRI_OP_MAX_POOL_DX, "S0,S0->S0; S1,S1->S1; B,P->P", NULL);
    tsr_gradients(tsr_avg_pool2d(x, TSR_POOL2D_OPTS(.kernel = {3, 3}, .padding = {1, 1})), 1, &x,
                  &dx);
    derives(TSRI_OP_AVG_POOL, "S0->S0; S1->S1; P->P", NULL);
    derives(TSRI_OP_AVG_POOL_DX, "S0->S0; S1->S1; P->P", NULL);
    tsr_gradients(tsr_avg_pool2d(x, TSR_POOL2D_OPTS(.kernel = {2, 2})), 1, &x, &dx);
    derives(TSRI_OP_AVG_POOL, "S0->S0; S1->S1; P->P; S2->S2", "S0->S0; S1->S1; P->P; S3->S3");
    derives(TSRI_OP_AVG_POOL_DX, "S0->S0; S1->S1; P->P; S2->S2", "S0->S0; S1->S1; P->P; S3->S3");
    tsr_gradients(tsr_adaptive_avg_pool2d(x, 1, 1), 1, &x, &dx);
    derives(TSRI_OP_ADAPTIVE_POOL, "S0->S0; S1->S1; P->P; S2->P; S3->P", NULL);
    derives(TSRI_OP_ADAPTIVE_POOL_DX, "S0->S0; S1->S1; P->P; B->S2; B->S3", NULL);
    tsr_adaptive_avg_pool2d(x, 5, 5);
    derives(TSRI_OP_ADAPTIVE_POOL, "S0->S0; S1->S1; P->P", NULL);
}

static void norm_of(int64_t n, const tsr_batch_norm_opts *opts)
{
    start(true);
    tsr_tensor *x = f32(D(n, 7, 5, 3)), *gamma = f32(D(7)), *beta = f32(D(7));
    tsr_tensor *of[3] = {x, gamma, beta}, *d[3];
    tsr_gradients(tsr_batch_norm(x, gamma, beta, NULL, NULL, opts), 3, of, d);
    assert_int_equal(tsr_graph_status(g), TSR_OK);
}

static void test_rules_norm(void **state)
{
    (void)state;
    norm_of(5, NULL);
    derives(TSRI_OP_BN_STATS, "S0->P; S1->S2; S2->P; S3->P", NULL);
    derives(TSRI_OP_BN_APPLY,
            "S0,B,B,B->S0; S1,S2,S0,S0->S1; S2,B,B,B->S2; S3,B,B,B->S3; B,B,P,P->P", NULL);
    derives(TSRI_OP_BN_BWD_STATS, "S0,B,S0->P; S1,S2,S1->S2; S2,B,S2->P; S3,B,S3->P; B,B,P->P",
            NULL);
    derives(TSRI_OP_BN_BWD_APPLY,
            "S0,B,B,S0,B->S0; S1,S2,S0,S1,S2->S1; S2,B,B,S2,B->S2; S3,B,B,S3,B->S3; B,B,P,B,B->P; "
            "B,B,B,P,P->P",
            NULL);
    derives(TSRI_OP_BN_PARAM_GRAD, "S2->S0,S0; P->P,P", NULL);
    /* Two virtual batches of 3: split over 2 without boxing, over 3 not. */
    norm_of(6, TSR_BATCH_NORM_OPTS(.stats = TSR_BN_LOCAL, .parts = 2));
    derives(TSRI_OP_BN_STATS, "S0->S0; S1->S2; S2->P; S3->P", "S1->S2; S2->P; S3->P");
    derives(TSRI_OP_BN_PARAM_GRAD, "S0->P,P; S2->S0,S0; P->P,P", NULL);
    assert_int_equal(last_of(TSRI_OP_BN_STATS)->out[0]->shape.d[0], 2);
    /* Three virtual batches of 5 samples: only three parts can be them. */
    norm_of(5, TSR_BATCH_NORM_OPTS(.stats = TSR_BN_LOCAL, .parts = 3));
    derives(TSRI_OP_BN_STATS, "S1->S2; S2->P; S3->P", NULL);
    tsri_rule_text t;
    assert_int_equal(tsri_op_write_rule(last_of(TSRI_OP_BN_APPLY), &t), TSR_OK);
    assert_int_equal(t.extra_parts, 3);
    assert_int_equal(t.extra_in[0].kind, TSR_SBP_SPLIT);
    assert_int_equal(t.extra_in[1].kind, TSR_SBP_SPLIT);
    assert_int_equal(t.extra_in[2].kind, TSR_SBP_BROADCAST);
    assert_int_equal(t.extra_out[0].kind, TSR_SBP_SPLIT);
    /* Evaluation. */
    start(false);
    tsr_tensor *x = f32(D(5, 7, 2, 3)), *c = f32(D(7)), *rows = f32(D(4, 7));
    tsr_batch_norm(x, c, c, rows, rows, NULL);
    derives(TSRI_OP_BN_FOLD, "S0,S0,S1,S1->S0,S0", NULL);
    derives(TSRI_OP_SCALE_SHIFT,
            "S0,B,B->S0; S1,S0,S0->S1; S2,B,B->S2; S3,B,B->S3; P,B,P->P; B,P,P->P", NULL);
}

static void test_rules_losses(void **state)
{
    (void)state;
    start(true);
    tsr_tensor *x = f32(D(5, 7)), *dx, *labels = make(TSR_I64, D(5));
    tsr_gradients(tsr_cross_entropy(x, labels, TSR_MEAN), 1, &x, &dx);
    derives(TSRI_OP_SOFTMAX_MAX, "S0->S0; S1->Pmax; Pmax->Pmax", NULL);
    derives(TSRI_OP_CE_TERMS, "S0,S0,S0->S0; S1,B,B->P", NULL);
    derives(TSRI_OP_CE_FINISH, "S0,S0->S0,S0,S0", NULL);
    derives(TSRI_OP_CE_DX, "S0,S0,S0,S0->S0; S1,B,B,B->S1; B,B,B,P->P", NULL);
    assert_float_equal(last_of(TSRI_OP_REDUCE)->attrs.reduce.scale, 0.2, 1e-15);
    tsr_gradients(tsr_softmax(x, 1), 1, &x, &dx);
    derives(TSRI_OP_SOFTMAX_MAX, "S0->S0; S1->Pmax; Pmax->Pmax", NULL);
    derives(TSRI_OP_SOFTMAX_SUM, "S0,S0->S0; S1,B->P", NULL);
    derives(TSRI_OP_SOFTMAX_FINISH, "S0,S0,S0->S0; S1,B,B->S1", NULL);
    derives(TSRI_OP_SOFTMAX_DOT, "S0,S0->S0; S1,S1->P; B,P->P; P,B->P", NULL);
    derives(TSRI_OP_SOFTMAX_BWD, "S0,S0,S0->S0; S1,S1,B->S1; B,P,P->P; P,B,B->P", NULL);
    tsr_gradients(tsr_log_softmax(x, 1), 1, &x, &dx);
    derives(TSRI_OP_SOFTMAX_BWD, "S0,S0,S0->S0; S1,S1,B->S1; B,P,P->P", NULL);
    derives(TSRI_OP_REDUCE, "S0->S0; S1->P; P->P", NULL);
}

/* Updates are declared by optimizers, with these operands. */
static void test_rules_updates(void **state)
{
    (void)state;
    start(true);
    tsr_tensor *p = f32(D(5, 7)), *hyper = make(TSR_F64, D(8));
    tsr_tensor *in[5] = {p, p, p, p, hyper}, *sgd[3] = {p, p, hyper};
    tsr_dims shapes[3] = {p->shape, p->shape, p->shape};
    tsr_dtype dtypes[3] = {TSR_F32, TSR_F32, TSR_F32};
    tsri_graph_add(g, TSRI_OP_SGD, NULL, 3, sgd, 1, shapes, dtypes, NULL, (tsri_loc){0});
    derives(TSRI_OP_SGD, "S0,S0,B->S0; S1,S1,B->S1", NULL);
    tsri_graph_add(g, TSRI_OP_SGD, NULL, 4, in + 1, 2, shapes, dtypes, NULL, (tsri_loc){0});
    derives(TSRI_OP_SGD, "S0,S0,S0,B->S0,S0; S1,S1,S1,B->S1,S1", NULL);
    tsri_graph_add(g, TSRI_OP_ADAM, NULL, 5, in, 3, shapes, dtypes, NULL, (tsri_loc){0});
    derives(TSRI_OP_ADAM, "S0,S0,S0,S0,B->S0,S0,S0; S1,S1,S1,S1,B->S1,S1,S1", NULL);
    tsri_graph_add(g, TSRI_OP_ADD_N, NULL, 3, in, 1, shapes, dtypes, NULL, (tsri_loc){0});
    derives(TSRI_OP_ADD_N, "S0,S0,S0->S0; S1,S1,S1->S1; P,P,P->P", NULL);
}

/* Training writes the running averages behind the variables that it read. */
static void test_running_averages(void **state)
{
    (void)state;
    tsr_variable v[2] = {
        {.world = world, .name = "mean", .dtype = TSR_F32, .shape = D(4, 6), .placement = place},
        {.world = world, .name = "var", .dtype = TSR_F32, .shape = D(4, 6), .placement = place}};
    for (int training = 0; training < 2; training++) {
        start(training);
        tsr_tensor *run[2];
        for (int i = 0; i < 2; i++)
            run[i] = tsri_graph_read(g, &v[i], (tsri_loc){0});
        /* R defaults to the placement's 4 ranks. */
        is(tsr_batch_norm(f32(D(8, 6)), f32(D(6)), f32(D(6)), run[0], run[1],
                          TSR_BATCH_NORM_OPTS(.stats = TSR_BN_LOCAL)),
           TSR_F32, D(8, 6));
        const tsri_op *op = last_of(training ? TSRI_OP_BN_RUNNING : TSRI_OP_BN_FOLD);
        assert_int_equal(op->attrs.bn.parts, 4);
        assert_ptr_equal(op->out[0]->writes, training ? &v[0] : NULL);
        assert_ptr_equal(op->out[1]->writes, training ? &v[1] : NULL);
        if (training)
            derives(TSRI_OP_BN_RUNNING, "S0,S0,S0->S0,S0; S2,S1,S1->S1,S1", NULL);
    }
    FAILS(TSR_ERR_SHAPE, "running_mean is (4,6), with 2 virtual batches and 6 channels",
          tsr_batch_norm(f32(D(8, 6)), f32(D(6)), f32(D(6)),
                         tsri_graph_read(g, &v[0], (tsri_loc){0}),
                         tsri_graph_read(g, &v[1], (tsri_loc){0}),
                         TSR_BATCH_NORM_OPTS(.stats = TSR_BN_LOCAL, .parts = 2)));
    start(true); /* drops the graph that reads v */
}

static void test_every_kind_has_a_rule(void **state)
{
    (void)state;
    for (int kind = 0; kind < TSRI_OP_COUNT_; kind++) {
        bool fused = kind == TSRI_OP_BN_ACT || kind == TSRI_OP_BN_ACT_BWD_STATS ||
                     kind == TSRI_OP_BN_ACT_BWD_APPLY || kind == TSRI_OP_SOFTMAX ||
                     kind == TSRI_OP_SOFTMAX_DX || kind == TSRI_OP_CE;
        bool source = kind <= TSRI_OP_TO_GLOBAL;
        assert_int_equal(tsri_op_has_rule((tsri_op_kind)kind), !fused && !source);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes_elementwise), cmocka_unit_test(test_shapes_products),
        cmocka_unit_test(test_errors_shapes),      cmocka_unit_test(test_errors_dtypes),
        cmocka_unit_test(test_errors_options),     cmocka_unit_test(test_every_kind_has_a_rule),
        cmocka_unit_test(test_rules_elementwise),  cmocka_unit_test(test_rules_products),
        cmocka_unit_test(test_rules_conv),         cmocka_unit_test(test_rules_pool),
        cmocka_unit_test(test_rules_norm),         cmocka_unit_test(test_running_averages),
        cmocka_unit_test(test_rules_losses),       cmocka_unit_test(test_rules_updates),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
