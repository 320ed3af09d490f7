/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/dist/signatures/signature_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/graph/graph.h"
#include "tests/unary_cases.h"

#define D(...) TSR_DIMS(__VA_ARGS__)

static tsr_tensor *make(sc_graph *s, tsr_dtype dtype, tsr_dims dims, sc_fill fill)
{
    char name[16];
    if (s->ninputs == (int)(sizeof s->fill / sizeof *s->fill))
        abort();
    snprintf(name, sizeof name, "x%d", s->ninputs);
    s->fill[s->ninputs++] = fill;
    return tsr_input(s->g, name, dtype, dims, s->p, TSR_B);
}

static tsr_tensor *spread(sc_graph *s, tsr_dims dims)
{
    return make(s, s->real, dims, SC_SPREAD);
}

static tsr_tensor *positive(sc_graph *s, tsr_dims dims)
{
    return make(s, s->real, dims, SC_POSITIVE);
}

/* Gradients of y, weighted by numbers that differ from place to place. */
static void grads(sc_graph *s, tsr_tensor *y, int n, tsr_tensor *const *x)
{
    tsr_tensor *dx[8];
    tsr_gradients(tsr_mul(y, spread(s, tsr_tensor_dims(y))), n, x, dx);
}

static void grad(sc_graph *s, tsr_tensor *y, tsr_tensor *x)
{
    grads(s, y, 1, &x);
}

tsr_tensor *sc_make(sc_graph *s, tsr_dtype dtype, tsr_dims dims, sc_fill fill)
{
    return make(s, dtype, dims, fill);
}

void sc_grads(sc_graph *s, tsr_tensor *y, int n, tsr_tensor *const *x)
{
    grads(s, y, n, x);
}

/* --- element-wise ----------------------------------------------------------------------------- */

/* Every function, of one shape: all are one op with one rule. */
static void every_unary(sc_graph *s, tsr_dims dims)
{
    tsr_tensor *x = spread(s, dims), *p = positive(s, dims);
    tsr_tensor *inside = make(s, s->real, dims, SC_INSIDE);
    tsr_tensor *above = make(s, s->real, dims, SC_ABOVE);
#define from_ANY x
#define from_TAME x
#define from_POSITIVE p
#define from_INSIDE inside
#define from_ABOVE above
#define GRAD(T, FN, name, arity, a, b, from, ...) \
    grad(s, UNARY_CALL_##arity(name, from_##from, a, b), from_##from);
    UNARY_CASES(GRAD, )
#undef GRAD
}

static void unary_of(sc_graph *s, tsr_dims dims)
{
    tsr_tensor *x = spread(s, dims), *p = positive(s, dims);
    grad(s, tsr_neg(x), x);
    grad(s, tsr_exp(x), x);
    grad(s, tsr_relu6(x), x);
    grad(s, tsr_pow_scalar(p, 2.5), p);
    grad(s, tsr_add_scalar(x, 1.5), x);
    grad(s, tsr_sub_scalar(x, 1.5), x);
    grad(s, tsr_mul_scalar(x, 1.5), x);
    grad(s, tsr_div_scalar(x, 1.5), x);
    grad(s, tsr_rdiv_scalar(p, 1.5), p);
}

static void unary(sc_graph *s)
{
    every_unary(s, D(5, 7, 2));
    unary_of(s, D(5, 7, 2));
    unary_of(s, D(0, 3));
    unary_of(s, D(1, 4));
    unary_of(s, TSR_SCALAR);
    unary_of(s, D(2, 3, 4, 5));
}

static void binary_of(sc_graph *s, tsr_dims a, tsr_dims b)
{
    tsr_tensor *x[2] = {positive(s, a), positive(s, b)};
    grads(s, tsr_add(x[0], x[1]), 2, x);
    grads(s, tsr_sub(x[0], x[1]), 2, x);
    grads(s, tsr_mul(x[0], x[1]), 2, x);
    grads(s, tsr_div(x[0], x[1]), 2, x);
    grads(s, tsr_pow(x[0], x[1]), 2, x);
    tsr_equal(make(s, s->real, a, SC_FEW), make(s, s->real, b, SC_FEW));
}

static void whole_of(sc_graph *s, tsr_dtype dtype, tsr_dims a, tsr_dims b)
{
    tsr_tensor *x = make(s, dtype, a, SC_WHOLE), *y = make(s, dtype, b, SC_WHOLE);
    tsr_add(x, y);
    tsr_sub(x, y);
    tsr_mul(x, y);
    tsr_equal(make(s, dtype, a, SC_FEW), make(s, dtype, b, SC_FEW));
}

static void binary(sc_graph *s)
{
    binary_of(s, D(5, 7, 2), D(5, 7, 2));
    binary_of(s, D(5, 7, 2), D(7, 1));
    binary_of(s, D(7), D(5, 7));
    binary_of(s, D(5, 1), D(1, 4));
    binary_of(s, D(4, 6), TSR_SCALAR);
    binary_of(s, D(1, 3), D(0, 3));
    binary_of(s, D(2, 3, 4, 5), D(2, 3, 4, 5));
    binary_of(s, D(2, 3, 4, 5), D(3, 1, 1));
    whole_of(s, TSR_I64, D(5, 4), D(4));
    whole_of(s, TSR_I32, D(7), D(7));
}

static void add_n(sc_graph *s)
{
    const tsr_dims dims[] = {D(5, 4), D(0, 3), TSR_SCALAR, D(2, 3, 4, 5)};
    for (int i = 0; i < 4; i++) {
        tsr_tensor *x = positive(s, dims[i]);
        tsr_tensor *y = tsr_add(tsr_add(tsr_exp(x), tsr_tanh(x)), tsr_mul(x, x));
        grad(s, y, x);
    }
}

static void cast(sc_graph *s)
{
    static const tsr_dtype all[] = {TSR_F32, TSR_F64, TSR_I64, TSR_I32, TSR_U8, TSR_BOOL};
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++)
            tsr_cast(make(s, all[i], D(5, 4), i < 2 && j < 5 ? SC_POSITIVE : SC_FEW), all[j]);
    const tsr_dtype other = s->real == TSR_F64 ? TSR_F32 : TSR_F64;
    tsr_tensor *x = spread(s, D(2, 3, 4, 5));
    grad(s, tsr_cast(tsr_cast(x, other), s->real), x);
}

/* --- reductions, products --------------------------------------------------------------------- */

static void reduce_over(sc_graph *s, tsr_dims dims, tsr_axes axes, bool keepdim)
{
    tsr_tensor *x = spread(s, dims), *f = make(s, s->real, dims, SC_FEW);
    grad(s, tsr_sum(x, axes, keepdim), x);
    grad(s, tsr_mean(x, axes, keepdim), x);
    grad(s, tsr_prod(f, axes, keepdim), f);
    if (tsr_dims_count(dims)) {
        grad(s, tsr_max(f, axes, keepdim), f);
        grad(s, tsr_min(f, axes, keepdim), f);
        tsr_max(make(s, TSR_I64, dims, SC_WHOLE), axes, keepdim);
        tsr_min(make(s, TSR_I32, dims, SC_WHOLE), axes, keepdim);
    }
    tsr_sum(make(s, TSR_I64, dims, SC_WHOLE), axes, keepdim);
}

static void reduce(sc_graph *s)
{
    for (int keepdim = 0; keepdim < 2; keepdim++) {
        reduce_over(s, D(5, 4, 7), TSR_AXES(0), keepdim);
        reduce_over(s, D(5, 4, 7), TSR_AXES(1), keepdim);
        reduce_over(s, D(5, 4, 7), TSR_AXES(2), keepdim);
        reduce_over(s, D(5, 4, 7), TSR_AXES(0, 2), keepdim);
        reduce_over(s, D(5, 4, 7), TSR_ALL_AXES, keepdim);
        reduce_over(s, D(1, 6), TSR_AXES(0), keepdim);
        reduce_over(s, D(0, 6), TSR_AXES(1), keepdim);
        reduce_over(s, D(6, 0), TSR_AXES(1), keepdim);
    }
}

static void argmax_norm(sc_graph *s)
{
    for (int axis = 0; axis < 3; axis++) {
        tsr_argmax(make(s, s->real, D(5, 4, 7), SC_FEW), axis);
        tsr_argmax(make(s, TSR_I64, D(5, 4, 7), SC_WHOLE), axis);
    }
    tsr_argmax(make(s, s->real, D(0, 4), SC_FEW), 1);
    const double p[] = {1, 2, 3, (double)INFINITY};
    for (int i = 0; i < 4; i++) {
        tsr_tensor *x = spread(s, D(5, 4));
        grad(s, tsr_norm(x, p[i], TSR_AXES(1), false), x);
    }
}

static void matmul_of(sc_graph *s, int64_t m, int64_t k, int64_t n)
{
    for (int t = 0; t < 4; t++) {
        bool ta = t & 1, tb = t >> 1;
        tsr_tensor *x[2] = {spread(s, ta ? D(k, m) : D(m, k)), spread(s, tb ? D(n, k) : D(k, n))};
        grads(s, tsr_matmul_t(x[0], x[1], ta, tb), 2, x);
    }
}

static void matmul(sc_graph *s)
{
    matmul_of(s, 5, 7, 4);
    matmul_of(s, 0, 3, 5);
    matmul_of(s, 3, 0, 5);
    matmul_of(s, 1, 6, 1);
}

static void linear_of(sc_graph *s, tsr_dims x_dims, int64_t n, bool bias)
{
    int64_t k = x_dims.d[x_dims.ndim - 1];
    tsr_tensor *x[3] = {spread(s, x_dims), spread(s, D(n, k)), bias ? spread(s, D(n)) : NULL};
    grads(s, tsr_linear(x[0], x[1], x[2]), bias ? 3 : 2, x);
}

static void linear(sc_graph *s)
{
    for (int bias = 0; bias < 2; bias++) {
        linear_of(s, D(5, 7), 4, bias);
        linear_of(s, D(2, 3, 5), 7, bias);
        linear_of(s, D(5), 4, bias);
        linear_of(s, D(0, 5), 3, bias);
        linear_of(s, D(1, 1), 1, bias);
        linear_of(s, D(3, 5), 0, bias);
    }
}

/* --- convolution, pooling --------------------------------------------------------------------- */

static void conv_of(sc_graph *s, tsr_dims x_dims, int64_t out, int64_t kernel,
                    const tsr_conv2d_opts *o)
{
    int64_t groups = o->groups ? o->groups : 1;
    for (int bias = 0; bias < 2; bias++) {
        tsr_tensor *x[3] = {spread(s, x_dims),
                            spread(s, D(out, x_dims.d[1] / groups, kernel, kernel)),
                            bias ? spread(s, D(out)) : NULL};
        grads(s, tsr_conv2d(x[0], x[1], x[2], o), bias ? 3 : 2, x);
    }
}

static void conv(sc_graph *s)
{
    conv_of(s, D(3, 5, 6, 5), 4, 3, TSR_CONV2D_OPTS(.padding = {1, 1}));
    conv_of(s, D(3, 5, 7, 6), 2, 3, TSR_CONV2D_OPTS(.stride = {2, 2}, .padding = {1, 1}));
    conv_of(s, D(2, 5, 5, 4), 7, 1, TSR_CONV2D_OPTS());
    conv_of(s, D(2, 3, 6, 8), 4, 1, TSR_CONV2D_OPTS(.stride = {2, 2}));
    conv_of(s, D(2, 3, 8, 6), 4, 2, TSR_CONV2D_OPTS(.stride = {2, 2}));
    conv_of(s, D(2, 3, 7, 7), 4, 2, TSR_CONV2D_OPTS(.dilation = {2, 2}));
    conv_of(s, D(1, 1, 4, 4), 1, 3, TSR_CONV2D_OPTS(.padding = {1, 1}));
    conv_of(s, D(0, 2, 4, 4), 3, 3, TSR_CONV2D_OPTS(.padding = {1, 1}));
}

static void conv_groups(sc_graph *s)
{
    conv_of(s, D(2, 6, 5, 5), 6, 3, TSR_CONV2D_OPTS(.padding = {1, 1}, .groups = 6));
    conv_of(s, D(2, 5, 6, 5), 5, 3,
            TSR_CONV2D_OPTS(.stride = {2, 2}, .padding = {1, 1}, .groups = 5));
    conv_of(s, D(2, 4, 4, 4), 8, 3, TSR_CONV2D_OPTS(.padding = {1, 1}, .groups = 4));
    conv_of(s, D(2, 6, 4, 4), 4, 3, TSR_CONV2D_OPTS(.groups = 2));
    conv_of(s, D(2, 8, 4, 3), 4, 1, TSR_CONV2D_OPTS(.groups = 4));
    conv_of(s, D(2, 9, 3, 3), 6, 3, TSR_CONV2D_OPTS(.padding = {1, 1}, .groups = 3));
}

static void pool_of(sc_graph *s, tsr_dims dims, const tsr_pool2d_opts *o)
{
    tsr_tensor *x = spread(s, dims);
    grad(s, tsr_max_pool2d(x, o), x);
    grad(s, tsr_avg_pool2d(x, o), x);
}

static void pool(sc_graph *s)
{
    pool_of(s, D(3, 5, 7, 6),
            TSR_POOL2D_OPTS(.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}));
    pool_of(s, D(3, 2, 8, 6), TSR_POOL2D_OPTS(.kernel = {2, 2}));
    pool_of(s, D(3, 2, 6, 6), TSR_POOL2D_OPTS(.kernel = {2, 2}, .stride = {3, 3}));
    pool_of(s, D(2, 1, 5, 5),
            TSR_POOL2D_OPTS(.kernel = {3, 3}, .padding = {1, 1}, .count_include_pad = false));
    pool_of(s, D(0, 3, 4, 4), TSR_POOL2D_OPTS(.kernel = {2, 2}));
    pool_of(s, D(2, 3, 4, 5), TSR_POOL2D_OPTS(.kernel = {1, 1}));
}

static void adaptive(sc_graph *s)
{
    static const int64_t size[][4] = {{7, 5, 1, 1}, {6, 8, 2, 4}, {7, 5, 3, 2},
                                      {6, 6, 6, 1}, {4, 4, 8, 4}, {6, 9, 3, 3}};
    for (int i = 0; i < 6; i++) {
        tsr_tensor *x = spread(s, D(3, 2, size[i][0], size[i][1]));
        grad(s, tsr_adaptive_avg_pool2d(x, size[i][2], size[i][3]), x);
    }
    tsr_tensor *x = spread(s, D(0, 2, 4, 4));
    grad(s, tsr_adaptive_avg_pool2d(x, 1, 1), x);
}

/* --- batch norm ------------------------------------------------------------------------------- */

static void norm_of(sc_graph *s, tsr_dims dims, int parts)
{
    const tsr_nn_opts nn = {.placement = s->p, .sbp = TSR_B, .dtype = s->real};
    const tsr_batch_norm_opts *o =
        TSR_BATCH_NORM_OPTS(.stats = parts ? TSR_BN_LOCAL : TSR_BN_GLOBAL, .parts = parts);
    tsr_module *m = tsr_nn_batch_norm(s->world, &nn, dims.d[1], o);
    tsr_tensor *x[3] = {spread(s, dims), spread(s, D(dims.d[1])), spread(s, D(dims.d[1]))};
    tsr_tensor *mean = tsr_use(m, "running_mean", x[0]), *var = tsr_use(m, "running_var", x[0]);
    grads(s, tsr_batch_norm(x[0], x[1], x[2], mean, var, o), 3, x);
    if (parts)
        return;
    /* With the number of values as an operand, as local graphs declare it. */
    tsri_attrs attrs = {.bn = {.momentum = 0.1, .batch = dims.d[0], .spatial = 1, .parts = 1}};
    tsr_tensor *in[5] = {make(s, TSR_F64, D(1, 2, dims.d[1]), SC_SPREAD), mean, var,
                         make(s, TSR_F64, TSR_SCALAR, SC_SPREAD),
                         make(s, TSR_F64, D(1, 2, dims.d[1]), SC_SPREAD)};
    tsr_tensor *center[3] = {x[0], in[0], in[3]};
    tsri_graph_add1(s->g, TSRI_OP_BN_CENTER, &attrs, 3, center, dims, s->real,
                    (tsri_loc){TSR_HERE});
    for (int nin = 4; nin <= 5; nin++)
        tsri_graph_add(s->g, TSRI_OP_BN_RUNNING, &attrs, nin, in, 2,
                       (tsr_dims[]){mean->shape, var->shape}, (tsr_dtype[]){s->real, s->real}, NULL,
                       (tsri_loc){TSR_HERE});
}

static void norm(sc_graph *s)
{
    norm_of(s, D(5, 6, 3, 4), 0);
    norm_of(s, D(7, 5), 0);
    norm_of(s, D(1, 3, 4, 4), 0);
    norm_of(s, D(6, 1), 0);
}

static void norm_local(sc_graph *s)
{
    norm_of(s, D(6, 5, 3, 2), 2);
    norm_of(s, D(8, 3, 2, 2), 4);
    norm_of(s, D(12, 2), 3);
    norm_of(s, D(5, 3, 2, 3), 2); /* parts that the batch does not divide into */
    norm_of(s, D(7, 4, 2, 2), 3);
    norm_of(s, D(10, 3), 4);
    norm_of(s, D(2, 3, 4, 4), 4); /* virtual batches without a sample */
}

static void norm_eval(sc_graph *s)
{
    const tsr_dims dims[] = {D(5, 6, 3, 4), D(4, 7), D(0, 3, 2, 2)};
    for (int i = 0; i < 3; i++) {
        tsr_dims c = D(dims[i].d[1]);
        tsr_tensor *x[5] = {spread(s, dims[i]), spread(s, c), spread(s, c), spread(s, c),
                            positive(s, c)};
        grads(s, tsr_batch_norm(x[0], x[1], x[2], x[3], x[4], NULL), 5, x);
        tsr_dims rows = D(3, dims[i].d[1]);
        x[3] = spread(s, rows);
        x[4] = positive(s, rows);
        grads(s, tsr_batch_norm(x[0], x[1], x[2], x[3], x[4], NULL), 5, x);
    }
}

/* --- softmax, losses -------------------------------------------------------------------------- */

static void softmax(sc_graph *s)
{
    for (int axis = 0; axis < 3; axis++) {
        tsr_tensor *x = spread(s, D(5, 4, 7));
        grad(s, tsr_softmax(x, axis), x);
        grad(s, tsr_log_softmax(x, axis), x);
    }
    tsr_tensor *x = spread(s, D(0, 4));
    grad(s, tsr_softmax(x, 1), x);
}

static void losses(sc_graph *s)
{
    static const int64_t rows[] = {7, 4, 1, 0};
    for (int i = 0; i < 4; i++)
        for (int r = 0; r < 3; r++) {
            tsr_reduction reduction = r == 0 ? TSR_MEAN : r == 1 ? TSR_SUM : TSR_NONE;
            tsr_tensor *x = spread(s, D(rows[i], 5)), *t = spread(s, D(rows[i], 5));
            tsr_tensor *y = make(s, TSR_I64, D(rows[i]), SC_LABEL);
            grad(s, tsr_cross_entropy(x, y, reduction), x);
            grad(s,
                 tsr_cross_entropy_with(
                     x, y,
                     TSR_CROSS_ENTROPY_OPTS(.reduction = reduction, .label_smoothing = 0.1,
                                            .has_ignore_index = true, .ignore_index = 2)),
                 x);
            grad(s, tsr_mse_loss(x, t, reduction), x);
        }
}

/* --- random, movement ------------------------------------------------------------------------- */

static void random_of(sc_graph *s, tsr_dims dims)
{
    char name[2][16];
    for (int i = 0; i < 2; i++)
        snprintf(name[i], sizeof name[i], "r%d.%d", s->ninputs, i);
    tsr_tensor *x = spread(s, dims);
    grad(s, tsr_dropout(x, 0.5), x);
    tsr_uniform(s->g, name[0], s->real, dims, s->p, TSR_AUTO, -1, 2);
    tsr_normal(s->g, name[1], s->real, dims, s->p, TSR_AUTO, 1, 2);
    tsr_full(s->g, s->real, dims, s->p, TSR_AUTO, 2.5);
    tsr_full(s->g, TSR_I64, dims, s->p, TSR_AUTO, 3);
}

static void random_numbers(sc_graph *s)
{
    random_of(s, D(5, 7, 3));
    random_of(s, D(0, 3));
    random_of(s, TSR_SCALAR);
    random_of(s, D(1, 9));
    random_of(s, D(2, 3, 4, 5));
}

static void reshape(sc_graph *s)
{
    static const struct {
        tsr_dims from, to;
    } pair[] = {
        {{2, {8, 4}}, {3, {2, 4, 4}}},       {{2, {6, 4}}, {2, {4, 6}}},
        {{4, {5, 6, 2, 2}}, {2, {5, 24}}},   {{3, {9, 9, 8}}, {2, {81, 8}}},
        {{2, {5, 24}}, {1, {120}}},          {{1, {12}}, {3, {2, 3, 2}}},
        {{3, {1, 6, 1}}, {2, {6, 1}}},       {{2, {0, 3}}, {2, {3, 0}}},
        {{3, {4, 1, 5}}, {2, {4, 5}}},       {{0, {0}}, {2, {1, 1}}},
        {{3, {2, 2, 7}}, {3, {4, 7, 1}}},    {{2, {7, 5}}, {2, {35, 1}}},
        {{3, {4, 3, 6}}, {4, {4, 3, 2, 3}}}, {{4, {4, 5, 1, 1}}, {2, {4, 5}}},
    };
    for (int i = 0; i < (int)(sizeof pair / sizeof *pair); i++) {
        tsr_tensor *x = spread(s, pair[i].from);
        grad(s, tsr_reshape(x, pair[i].to), x);
        tsr_reshape(make(s, TSR_I64, pair[i].from, SC_WHOLE), pair[i].to);
    }
}

static void permute(sc_graph *s)
{
    static const tsr_axes order[] = {
        {3, {0, 1, 2}}, {3, {2, 0, 1}}, {3, {1, 0, 2}}, {3, {2, 1, 0}}};
    for (int i = 0; i < 4; i++) {
        tsr_tensor *x = spread(s, D(5, 4, 3));
        grad(s, tsr_permute(x, order[i]), x);
        tsr_permute(make(s, TSR_BOOL, D(0, 2, 3), SC_FEW), order[i]);
        tsr_permute(make(s, TSR_I64, D(4, 1, 3), SC_WHOLE), order[i]);
    }
    tsr_tensor *x = spread(s, D(7, 4));
    grad(s, tsr_transpose(x, 0, 1), x);
}

static void expand(sc_graph *s)
{
    static const struct {
        tsr_dims from, to;
    } pair[] = {
        {{2, {3, 1}}, {3, {2, 3, 4}}}, {{0, {0}}, {2, {3, 2}}},    {{1, {1}}, {1, {5}}},
        {{1, {4}}, {3, {5, 7, 4}}},    {{2, {1, 1}}, {2, {1, 6}}}, {{2, {0, 1}}, {2, {0, 3}}},
        {{1, {1}}, {2, {0, 3}}},
    };
    for (int i = 0; i < (int)(sizeof pair / sizeof *pair); i++) {
        tsr_tensor *x = spread(s, pair[i].from);
        grad(s, tsr_expand(x, pair[i].to), x);
    }
}

/* What no user declares: the copies of lowering, and assignment. */
static void copies(sc_graph *s)
{
    const tsr_dims dims[] = {D(5, 4), D(2, 3, 4, 5), D(0, 3)};
    for (int i = 0; i < 3; i++) {
        tsr_tensor *x = spread(s, dims[i]);
        const tsri_loc here = {TSR_HERE};
        tsri_graph_add1(s->g, TSRI_OP_COPY, NULL, 1, &x, dims[i], s->real, here);
        tsri_graph_add1(s->g, TSRI_OP_ASSIGN, NULL, 1, &x, dims[i], s->real, here);
    }
}

static void optimizer(sc_graph *s, tsr_optimizer *(*make_it)(tsr_module *))
{
    const tsr_nn_opts nn = {.placement = s->p, .sbp = TSR_B, .dtype = s->real};
    tsr_module *m = tsr_nn_linear(s->world, &nn, 5, 7, true);
    tsr_tensor *y = tsr_apply(m, spread(s, D(3, 5)));
    tsr_minimize(make_it(m), tsr_mean(tsr_mul(y, y), TSR_ALL_AXES, false));
}

static tsr_optimizer *plain(tsr_module *m)
{
    return tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.1));
}

static tsr_optimizer *momentum(tsr_module *m)
{
    return tsr_sgd(
        m, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9, .dampening = 0.2, .weight_decay = 0.01));
}

static tsr_optimizer *nesterov(tsr_module *m)
{
    return tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9, .nesterov = true));
}

static tsr_optimizer *adam(tsr_module *m)
{
    return tsr_adam(m, TSR_ADAM_OPTS(.lr = 0.1, .weight_decay = 0.1));
}

static tsr_optimizer *adamw(tsr_module *m)
{
    return tsr_adamw(m, TSR_ADAM_OPTS(.lr = 0.1));
}

static tsr_optimizer *rmsprop(tsr_module *m)
{
    return tsr_rmsprop(m, TSR_RMSPROP_OPTS(.lr = 0.1));
}

static tsr_optimizer *rmsprop_momentum(tsr_module *m)
{
    return tsr_rmsprop(m, TSR_RMSPROP_OPTS(.lr = 0.1, .momentum = 0.9));
}

static tsr_optimizer *adagrad(tsr_module *m)
{
    return tsr_adagrad(m, TSR_ADAGRAD_OPTS(.lr = 0.1));
}

static tsr_optimizer *lion(tsr_module *m)
{
    return tsr_lion(m, TSR_LION_OPTS(.lr = 0.1));
}

static tsr_optimizer *lamb(tsr_module *m)
{
    return tsr_lamb(m, TSR_ADAM_OPTS(.lr = 0.1));
}

static void optimizers(sc_graph *s)
{
    optimizer(s, rmsprop);
    optimizer(s, rmsprop_momentum);
    optimizer(s, adagrad);
    optimizer(s, lion);
    optimizer(s, lamb);
    optimizer(s, plain);
    optimizer(s, momentum);
    optimizer(s, nesterov);
    optimizer(s, adam);
    optimizer(s, adamw);
}

const sc_case sc_cases[] = {
    {"unary", true, unary},
    {"binary", true, binary},
    {"add_n", true, add_n},
    {"cast", true, cast},
    {"reduce", true, reduce},
    {"argmax and norm", true, argmax_norm},
    {"matmul", true, matmul},
    {"linear", true, linear},
    {"conv", true, conv},
    {"conv in groups", true, conv_groups},
    {"pool", true, pool},
    {"adaptive pool", true, adaptive},
    {"batch norm", true, norm},
    {"batch norm, local", true, norm_local},
    {"batch norm, evaluation", false, norm_eval},
    {"softmax", true, softmax},
    {"losses", true, losses},
    {"random", true, random_numbers},
    {"reshape", true, reshape},
    {"permute", true, permute},
    {"expand", true, expand},
    {"copies", true, copies},
    {"index_select", true, sc_gather},
    {"where", true, sc_where},
    {"comparisons", true, sc_compare},
    {"concat", true, sc_concat},
    {"slice", true, sc_slice},
    {"sources", true, sc_source},
    {"triangles", true, sc_triangle},
    {"resize", true, sc_resize},
    {"cumsum", true, sc_cumsum},
    {"variance", true, sc_variance},
    {"parts in time", true, sc_parts},
    {"own", true, sc_own},
    {"lines", true, sc_lines},
    {"order", true, sc_order},
    {"optimizers", true, optimizers},
    {"batch matmul", true, sc_batch_matmul},
    {"gelu", true, sc_gelu},
    {"layer norm", true, sc_layer_norm},
    {"attention", true, sc_attention},
    {"flash", true, sc_flash},
    {"recurrent", true, sc_recurrent},
};
const int sc_cases_count = sizeof sc_cases / sizeof *sc_cases;
