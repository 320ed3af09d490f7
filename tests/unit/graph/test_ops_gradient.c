/* SPDX-License-Identifier: Apache-2.0 */
/* Every op's declared gradient against central differences of the op itself, in f64, on the
 * reference kernels: the graph is walked op by op on whole tensors. */
#include <tessera/functional.h>
#include <tessera/ops.h>
#include <tessera/world.h>

#include "kernels/recurrent.h"
#include "src/graph/op.h"
#include "tests/unary_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define D(...) TSR_DIMS(__VA_ARGS__)
enum { MOST = 4 };

static tsr_world *world;
static const tsr_placement *place;
static tsr_graph *g;
static tsr_tensor *leaf[MOST]; /* the f64 inputs that are differentiated */
static int nleaves;
static void **value; /* per tensor of the graph */
static unsigned seed;

/* Both signs, away from 0, where |x|, relu and the like have no gradient. */
static double draw(double low, double high)
{
    seed = seed * 1664525u + 1013904223u;
    return low + (high - low) * (double)(seed >> 8) / 16777216.0;
}

static void start(bool training)
{
    tsr_graph_destroy(g);
    g = tsr_graph_create(world, TSR_GRAPH_OPTS(.training = training, .seed = 5));
    assert_non_null(g);
    nleaves = 0;
}

static tsr_tensor *input(tsr_dtype dtype, tsr_dims dims)
{
    char name[16];
    snprintf(name, sizeof name, "x%d", g->nports);
    return tsr_input(g, name, dtype, dims, place, TSR_B);
}

static tsr_tensor *x64(tsr_dims dims)
{
    return leaf[nleaves++] = input(TSR_F64, dims);
}

/* --- a walk over the graph -------------------------------------------------------------------- */

static tsri_arg whole(const tsr_tensor *t)
{
    tsri_arg a = {.dtype = t->dtype, .ndim = t->shape.ndim};
    int64_t stride = 1;
    for (int i = a.ndim; i-- > 0; stride *= t->shape.d[i]) {
        a.shape[i] = a.gshape[i] = t->shape.d[i];
        a.stride[i] = stride;
    }
    return a;
}

static void run_op(const tsri_op *op)
{
    tsri_kernel_desc d = {.op = op->kind, .attrs = &op->attrs, .nin = op->nin, .nout = op->nout};
    void *in[TSRI_KERNEL_MAX_ARGS], *out[TSRI_KERNEL_MAX_ARGS];
    for (int i = 0; i < op->nin; i++) {
        d.in[i] = whole(op->in[i]);
        in[i] = value[op->in[i]->id];
    }
    for (int i = 0; i < op->nout; i++) {
        d.out[i] = whole(op->out[i]);
        out[i] = value[op->out[i]->id];
    }
    bool conv = op->kind == TSRI_OP_CONV2D || op->kind == TSRI_OP_CONV2D_DX ||
                op->kind == TSRI_OP_CONV2D_DW;
    d.groups = conv ? op->attrs.conv.groups : 1;
    tsri_kernel *k;
    tsr_status status = tsri_kernel_create(NULL, tsri_kernels_cpu(), &d, &k);
    if (status != TSR_OK)
        fail_msg("%s: %s", tsri_op_name(op->kind), tsr_last_error());
    void *scratch = k->scratch_bytes ? aligned_alloc(64, (k->scratch_bytes + 63) / 64 * 64) : NULL;
    status = k->run(k, in, out, scratch);
    if (status != TSR_OK)
        fail_msg("%s: %s", tsri_op_name(op->kind), tsr_last_error());
    free(scratch);
    k->destroy(k);
}

static void run_graph(int nops)
{
    for (int i = 0; i < nops; i++)
        if (g->ops[i]->kind != TSRI_OP_INPUT)
            run_op(g->ops[i]);
}

/* --- differences ------------------------------------------------------------------------------ */

/* d(sum w*y)/dx of every leaf, with random weights w so that nothing cancels. */
static void check(tsr_tensor *y, double low, double high)
{
    assert_int_equal(tsr_graph_status(g), TSR_OK);
    tsr_tensor *w = input(TSR_F64, y->shape), *grad[MOST];
    tsr_tensor *loss = tsr_sum(tsr_mul(y, w), TSR_ALL_AXES, false);
    int forward = g->nops;
    tsr_gradients(loss, nleaves, leaf, grad);
    if (tsr_graph_status(g) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    value = calloc((size_t)g->ntensors, sizeof *value);
    for (int i = 0; i < g->ntensors; i++) {
        const tsr_tensor *t = g->tensors[i];
        int64_t n = tsr_dims_count(t->shape);
        value[i] = calloc((size_t)n + 1, tsr_dtype_size(t->dtype));
        if (t->op->kind != TSRI_OP_INPUT)
            continue;
        for (int64_t j = 0; j < n && t->dtype == TSR_F64; j++)
            ((double *)value[i])[j] = t == w ? draw(0.5, 1.5) : draw(low, high);
        for (int64_t j = 0; j < n && t->dtype == TSR_I64 && n > 1; j++)
            ((int64_t *)value[i])[j] = j % 3; /* labels; the step, a scalar, stays 0 */
    }
    run_graph(g->nops);
    for (int i = 0; i < nleaves; i++) {
        assert_true(tsr_dims_equal(grad[i]->shape, leaf[i]->shape));
        int64_t n = tsr_dims_count(leaf[i]->shape);
        double *found = malloc((size_t)n * sizeof *found), *x = value[leaf[i]->id];
        memcpy(found, value[grad[i]->id], (size_t)n * sizeof *found);
        for (int64_t j = 0; j < n; j++) {
            const double h = 1e-5, keep = x[j];
            double side[2];
            for (int s = 0; s < 2; s++) {
                x[j] = keep + (s ? h : -h);
                run_graph(forward);
                side[s] = *(double *)value[loss->id];
            }
            x[j] = keep;
            double want = (side[1] - side[0]) / (2 * h);
            if (!(fabs(found[j] - want) <= 1e-6 * (1 + fabs(want))))
                fail_msg("%s: d/d(x%d)[%d] is %.9g, by differences %.9g", tsri_op_name(y->op->kind),
                         i, (int)j, found[j], want);
        }
        free(found);
    }
    for (int i = 0; i < g->ntensors; i++)
        free(value[i]);
    free(value);
}

#define CHECK(low, high, y)        \
    do {                           \
        start(true);               \
        check((y), (low), (high)); \
    } while (0)

/* --- cases ------------------------------------------------------------------------------------ */

static void test_unary(void **state)
{
    (void)state;
    CHECK(-2, 2, tsr_neg(x64(D(5))));
#define LOW_ANY -3.9
#define HIGH_ANY 8.7
#define LOW_TAME -2
#define HIGH_TAME 2
#define LOW_POSITIVE 0.2
#define HIGH_POSITIVE 2
#define LOW_INSIDE -0.9
#define HIGH_INSIDE 0.9
#define LOW_ABOVE 1.1
#define HIGH_ABOVE 3
#define CHECK_UNARY(T, FN, name, arity, p, q, from, ...) \
    CHECK(LOW_##from, HIGH_##from, UNARY_CALL_##arity(name, x64(D(17)), p, q));
    UNARY_CASES(CHECK_UNARY, )
#undef CHECK_UNARY
    CHECK(0.2, 2, tsr_pow_scalar(x64(D(5)), 2.5));
    CHECK(-2, 2, tsr_pow_scalar(x64(D(5)), 3));
    CHECK(-2, 2, tsr_add_scalar(x64(D(5)), 3));
    CHECK(-2, 2, tsr_sub_scalar(x64(D(5)), 3));
    CHECK(-2, 2, tsr_mul_scalar(x64(D(5)), 3));
    CHECK(-2, 2, tsr_div_scalar(x64(D(5)), 3));
    CHECK(0.3, 2, tsr_rdiv_scalar(x64(D(5)), 3));
}

static void test_binary(void **state)
{
    (void)state;
    CHECK(-2, 2, tsr_add(x64(D(3, 4)), x64(D(4))));
    CHECK(-2, 2, tsr_sub(x64(D(3, 1)), x64(D(2, 1, 4))));
    CHECK(-2, 2, tsr_mul(x64(D(2, 3, 4)), x64(D(3, 1))));
    CHECK(-2, 2, tsr_mul(x64(TSR_SCALAR), x64(D(3, 2))));
    CHECK(0.5, 2, tsr_div(x64(D(3, 4)), x64(D(1, 4))));
    CHECK(0.5, 2, tsr_div(x64(D(4)), x64(D(3, 4))));
    CHECK(0.5, 2, tsr_pow(x64(D(3, 4)), x64(D(4))));
    start(true);
    tsr_tensor *x = x64(D(5));
    check(tsr_mul(x, tsr_add(x, x)), -2, 2);
}

static void test_reduce(void **state)
{
    (void)state;
    CHECK(-2, 2, tsr_sum(x64(D(2, 3, 4)), TSR_AXES(1), false));
    CHECK(-2, 2, tsr_sum(x64(D(2, 3, 4)), TSR_AXES(0, 2), true));
    CHECK(-2, 2, tsr_mean(x64(D(2, 3, 4)), TSR_AXES(0, 2), false));
    CHECK(-2, 2, tsr_mean(x64(D(2, 3)), TSR_ALL_AXES, false));
    CHECK(-2, 2, tsr_prod(x64(D(2, 3, 4)), TSR_AXES(0, 2), false));
    CHECK(-2, 2, tsr_prod(x64(D(2, 3, 4)), TSR_AXES(1), true));
    CHECK(-2, 2, tsr_max(x64(D(2, 3, 4)), TSR_AXES(1), false));
    CHECK(-2, 2, tsr_max(x64(D(2, 3, 4)), TSR_AXES(0), false));
    CHECK(-2, 2, tsr_min(x64(D(2, 3, 4)), TSR_AXES(2), true));
    CHECK(0.2, 2, tsr_norm(x64(D(3, 4)), 2, TSR_AXES(1), false));
    CHECK(0.2, 2, tsr_norm(x64(D(3, 4)), 1, TSR_AXES(0), true));
    CHECK(0.2, 2, tsr_norm(x64(D(3, 4)), 3, TSR_ALL_AXES, false));
    CHECK(0.2, 2, tsr_norm(x64(D(3, 4)), INFINITY, TSR_AXES(1), false));
    CHECK(-2, 2, tsr_expand(x64(D(3, 1)), D(2, 3, 4)));
    /* At 0 the norm's gradient is 0, not 0/0. */
    start(true);
    check(tsr_norm(tsr_mul_scalar(x64(D(3)), 0), 2, TSR_ALL_AXES, false), 1, 2);
}

/* Differences can't tell at ties: by the rule, equal shares. */
static void test_ties_share(void **state)
{
    (void)state;
    start(true);
    tsr_tensor *x = x64(D(4)), *dx;
    tsr_gradients(tsr_max(x, TSR_ALL_AXES, false), 1, &x, &dx);
    double buf[4] = {3, 1, 3, 2};
    value = calloc((size_t)g->ntensors, sizeof *value);
    for (int i = 0; i < g->ntensors; i++)
        value[i] = calloc(8, 8);
    memcpy(value[x->id], buf, sizeof buf);
    run_graph(g->nops);
    const double want[4] = {0.5, 0, 0.5, 0};
    assert_memory_equal(value[dx->id], want, sizeof want);
    for (int i = 0; i < g->ntensors; i++)
        free(value[i]);
    free(value);
}

static void test_products(void **state)
{
    (void)state;
    CHECK(-2, 2, tsr_matmul_t(x64(D(2, 3)), x64(D(3, 4)), false, false));
    CHECK(-2, 2, tsr_matmul_t(x64(D(3, 2)), x64(D(3, 4)), true, false));
    CHECK(-2, 2, tsr_matmul_t(x64(D(2, 3)), x64(D(4, 3)), false, true));
    CHECK(-2, 2, tsr_matmul_t(x64(D(3, 2)), x64(D(4, 3)), true, true));
    CHECK(-2, 2, tsr_linear(x64(D(2, 2, 3)), x64(D(4, 3)), x64(D(4))));
    CHECK(-2, 2, tsr_linear(x64(D(3)), x64(D(1, 3)), x64(D(1))));
    CHECK(-2, 2,
          tsr_conv2d(x64(D(2, 4, 5, 4)), x64(D(6, 2, 3, 2)), x64(D(6)),
                     TSR_CONV2D_OPTS(.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2},
                                     .groups = 2)));
    CHECK(-2, 2,
          tsr_conv2d(x64(D(2, 3, 4, 4)), x64(D(3, 1, 3, 3)), NULL,
                     TSR_CONV2D_OPTS(.padding = {1, 1}, .groups = 3)));
}

/* The gradient of a convolution's squares by x or by w, of which w is split in two groups. */
static tsr_tensor *conv_slope(bool by_weight, bool transposed)
{
    tsr_tensor *of[2] = {x64(D(2, 4, 3, 4)), x64(D(4, 2, 3, 2))}, *slope[2];
    tsr_tensor *y =
        transposed
            ? tsr_conv_transpose2d(of[0], of[1], NULL,
                                   TSR_CONV_TRANSPOSE2D_OPTS(.stride = {2, 1}, .padding = {1, 0},
                                                             .output_padding = {1, 0}, .groups = 2))
            : tsr_conv2d(of[0], of[1], NULL,
                         TSR_CONV2D_OPTS(.stride = {2, 1}, .padding = {1, 0}, .groups = 2));
    tsr_gradients(tsr_sum(tsr_mul(y, y), TSR_ALL_AXES, false), 2, of, slope);
    return slope[by_weight];
}

static void test_convolutions_again(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        CHECK(-1, 1, conv_slope(i & 1, i & 2));
    CHECK(-2, 2,
          tsr_conv_transpose2d(x64(D(2, 4, 3, 2)), x64(D(4, 3, 3, 2)), x64(D(6)),
                               TSR_CONV_TRANSPOSE2D_OPTS(.stride = {2, 1}, .padding = {1, 0},
                                                         .output_padding = {1, 1},
                                                         .dilation = {1, 2}, .groups = 2)));
    CHECK(-2, 2,
          tsr_conv_transpose1d(x64(D(2, 3, 1)), x64(D(3, 2, 3)), NULL,
                               TSR_CONV_TRANSPOSE1D_OPTS(.stride = 2, .output_padding = 1)));
}

static void test_gelu(void **state)
{
    (void)state;
    CHECK(-4, 4, tsr_gelu(x64(D(17)), TSR_GELU_ERF));
    CHECK(-4, 4, tsr_gelu(x64(D(17)), TSR_GELU_TANH));
}

static void test_layer_norm(void **state)
{
    (void)state;
    CHECK(-2, 2, tsr_layer_norm(x64(D(2, 3, 5)), x64(D(5)), x64(D(5)), NULL));
    CHECK(-2, 2, tsr_layer_norm(x64(D(3, 5)), x64(D(5)), NULL, NULL));
    CHECK(-2, 2, tsr_layer_norm(x64(D(3, 5)), NULL, x64(D(5)), NULL));
    CHECK(-2, 2, tsr_layer_norm(x64(D(3, 5)), NULL, NULL, TSR_LAYER_NORM_OPTS(.eps = 0.1)));
    CHECK(-2, 2,
          tsr_layer_norm(x64(D(2, 3, 2)), x64(D(3, 2)), x64(D(3, 2)),
                         TSR_LAYER_NORM_OPTS(.axes = 2)));
    CHECK(-2, 2, tsr_layer_norm(x64(D(7)), x64(D(7)), x64(D(7)), NULL));
}

static void test_attention(void **state)
{
    (void)state;
    CHECK(-2, 2, tsr_causal_mask(x64(D(2, 3, 4)), 0, 5));
    CHECK(-2, 2, tsr_causal_mask(x64(D(3, 4)), -1, 0));
    CHECK(-2, 2, tsr_attention(x64(D(1, 2, 3, 2)), x64(D(1, 2, 4, 2)), x64(D(1, 2, 4, 3)), NULL));
    CHECK(-2, 2,
          tsr_attention(x64(D(1, 2, 3, 2)), x64(D(1, 2, 3, 2)), x64(D(1, 2, 3, 2)),
                        TSR_ATTENTION_OPTS(.causal = true, .scale = 0.3)));
    CHECK(-2, 2,
          tsr_attention(x64(D(2, 1, 3, 2)), x64(D(2, 1, 2, 2)), x64(D(2, 1, 2, 1)),
                        TSR_ATTENTION_OPTS(.causal = true, .dropout = 0.4)));
}

/* One direction of a layer of two units, its states or, of an LSTM, its cells too. */
static tsr_tensor *recurrent(tsri_cell cell, bool bias, bool reverse, int64_t t)
{
    const int64_t h = 2, wide = tsri_cell_gates(cell) * h;
    tsri_recurrent r = {.cell = cell, .reverse = reverse, .x = x64(D(t, 3, wide))};
    r.w = x64(D(wide, h));
    r.b = bias ? x64(D(wide)) : NULL;
    r.h0 = x64(D(3, h));
    r.c0 = cell == TSRI_CELL_LSTM ? x64(D(3, h)) : NULL;
    tsr_tensor *cells = NULL, *y = tsri_make_recurrent(&r, &cells, (tsri_loc){__FILE__, __LINE__});
    return cells ? tsr_concat(2, (tsr_tensor *[]){y, cells}, 0) : y;
}

static void test_recurrent(void **state)
{
    (void)state;
    for (int reverse = 0; reverse < 2; reverse++)
        for (int64_t t = 1; t < 4; t += 2) {
            CHECK(-2, 2, recurrent(TSRI_CELL_LSTM, false, reverse, t));
            CHECK(-2, 2, recurrent(TSRI_CELL_GRU, true, reverse, t));
            CHECK(-2, 2, recurrent(TSRI_CELL_GRU, false, reverse, t));
            CHECK(-2, 2, recurrent(TSRI_CELL_TANH, false, reverse, t));
            CHECK(0.1, 2, recurrent(TSRI_CELL_RELU, false, reverse, t));
        }
}

static void test_flash_attention(void **state)
{
    (void)state;
#define Q x64(D(2, 1, 3, 2))
#define K x64(D(2, 1, 4, 2))
#define V x64(D(2, 1, 4, 3))
    CHECK(-2, 2, tsr_scaled_dot_product_attention(Q, K, V, NULL, NULL));
    CHECK(-2, 2,
          tsr_scaled_dot_product_attention(Q, K, V, x64(D(3, 4)),
                                           TSR_ATTENTION_OPTS(.causal = true, .scale = 0.3)));
    CHECK(-2, 2,
          tsr_scaled_dot_product_attention(Q, K, V, x64(D(2, 1, 1, 4)),
                                           TSR_ATTENTION_OPTS(.dropout = 0.4)));
    CHECK(-2, 2, tsr_scaled_dot_product_attention(Q, K, V, x64(D(1)), NULL));
#undef Q
#undef K
#undef V
}

static void test_batch_products(void **state)
{
    (void)state;
    for (int t = 0; t < 4; t++) {
        const bool ta = t & 1, tb = t >> 1;
        tsr_dims a = ta ? D(3, 2) : D(2, 3), b = tb ? D(4, 3) : D(3, 4);
        const tsr_dims of_a[3] = {D(2, a.d[0], a.d[1]), D(2, 1, a.d[0], a.d[1]), a};
        const tsr_dims of_b[3] = {D(2, b.d[0], b.d[1]), D(3, b.d[0], b.d[1]),
                                  D(1, 3, b.d[0], b.d[1])};
        for (int i = 0; i < 3; i++)
            CHECK(-2, 2, tsr_matmul_t(x64(of_a[i]), x64(of_b[i]), ta, tb));
        CHECK(-2, 2, tsr_matmul_t(x64(of_a[1]), x64(b), ta, tb));
    }
}

static void test_pool(void **state)
{
    (void)state;
    CHECK(-9, 9,
          tsr_max_pool2d(x64(D(2, 2, 5, 4)),
                         TSR_POOL2D_OPTS(.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1})));
    CHECK(-2, 2,
          tsr_avg_pool2d(x64(D(1, 2, 5, 4)),
                         TSR_POOL2D_OPTS(.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1})));
    CHECK(-2, 2,
          tsr_avg_pool2d(x64(D(1, 2, 5, 4)), TSR_POOL2D_OPTS(.kernel = {3, 2}, .padding = {1, 0},
                                                             .count_include_pad = false)));
    CHECK(-2, 2, tsr_adaptive_avg_pool2d(x64(D(2, 2, 5, 4)), 2, 3));
    CHECK(-2, 2, tsr_adaptive_avg_pool2d(x64(D(2, 2, 5, 4)), 1, 1));
}

static void test_norm(void **state)
{
    (void)state;
    CHECK(-2, 2, tsr_batch_norm(x64(D(3, 2, 2, 2)), x64(D(2)), x64(D(2)), NULL, NULL, NULL));
    CHECK(-2, 2,
          tsr_batch_norm(x64(D(6, 2)), x64(D(2)), x64(D(2)), NULL, NULL,
                         TSR_BATCH_NORM_OPTS(.stats = TSR_BN_LOCAL, .parts = 2)));
    CHECK(-2, 2,
          tsr_batch_norm(x64(D(5, 2, 2, 1)), x64(D(2)), x64(D(2)), NULL, NULL,
                         TSR_BATCH_NORM_OPTS(.stats = TSR_BN_LOCAL, .parts = 2)));
    /* Evaluation, with respect to x, gamma, beta and the mean; averages of 3 parts are rows. */
    for (int rows = 0; rows < 3; rows++) {
        start(false);
        tsr_tensor *x = x64(D(3, 2, 2, 2)), *gamma = x64(D(2)), *beta = x64(D(2));
        tsr_dims dims = rows ? D(2 * rows - 1, 2) : D(2);
        tsr_tensor *mean = x64(dims), *var = input(TSR_F64, dims);
        check(tsr_batch_norm(x, gamma, beta, mean, var, NULL), 0.3, 2);
    }
    start(false);
    tsr_tensor *x = input(TSR_F64, D(3, 2)), *c = x64(D(2)), *var = x64(D(2));
    check(tsr_batch_norm(x, c, c, c, var, NULL), 0.3, 2);
    start(false);
    tsr_tensor *rows = x64(D(3, 2));
    check(tsr_batch_norm(input(TSR_F64, D(3, 2)), x64(D(2)), x64(D(2)), rows, rows, NULL), 0.3, 2);
}

static void test_losses(void **state)
{
    (void)state;
    tsr_dims labels = D(4);
    CHECK(-2, 2, tsr_softmax(x64(D(2, 3, 2)), 1));
    CHECK(-2, 2, tsr_log_softmax(x64(D(2, 3)), -1));
    for (int r = TSR_MEAN; r <= TSR_NONE; r++) {
        tsr_reduction red = (tsr_reduction)r;
        CHECK(-2, 2, tsr_mse_loss(x64(D(2, 3)), x64(D(2, 3)), red));
        CHECK(-2, 2, tsr_cross_entropy(x64(D(4, 3)), input(TSR_I64, labels), red));
        CHECK(-2, 2,
              tsr_cross_entropy_with(
                  x64(D(4, 3)), input(TSR_I64, labels),
                  TSR_CROSS_ENTROPY_OPTS(.reduction = red, .label_smoothing = 0.2,
                                         .has_ignore_index = true, .ignore_index = 1)));
    }
}

static void test_movement(void **state)
{
    (void)state;
    CHECK(-2, 2, tsr_reshape(x64(D(2, 6)), D(3, -1)));
    CHECK(-2, 2, tsr_flatten(x64(D(2, 3, 2)), 1));
    CHECK(-2, 2, tsr_permute(x64(D(2, 3, 4)), TSR_AXES(2, 0, 1)));
    CHECK(-2, 2, tsr_transpose(x64(D(2, 3, 4)), 0, 2));
    CHECK(-2, 2, tsr_dropout(x64(D(5, 7)), 0.4));
}

static void test_select(void **state)
{
    (void)state;
    CHECK(-2, 2, tsr_maximum(x64(D(3, 4)), x64(D(3, 4))));
    CHECK(-2, 2, tsr_maximum(x64(D(4)), x64(D(3, 1))));
    CHECK(-2, 2, tsr_minimum(x64(D(3, 4)), x64(D(4))));
    CHECK(-2, 2, tsr_atan2(x64(D(3, 4)), x64(D(4))));
    CHECK(1, 2, tsr_fmod(x64(D(3, 4)), x64(D(4))));
    CHECK(1, 2, tsr_remainder(x64(D(3, 4)), x64(D(4))));
    start(true);
    tsr_tensor *x = input(TSR_F64, D(3, 4)), *y = x64(D(4)), *z = x64(D(2, 1, 4));
    check(tsr_where(tsr_less(x, y), z, y), -2, 2);
}

/* At ties of two operands: halves. */
static void test_halves(void **state)
{
    (void)state;
    for (int max = 0; max < 2; max++) {
        start(true);
        tsr_tensor *x = x64(D(4)), *y = x64(D(4)), *of[2] = {x, y}, *d[2];
        tsr_gradients(max ? tsr_maximum(x, y) : tsr_minimum(x, y), 2, of, d);
        const double xv[4] = {3, 1, NAN, 2}, yv[4] = {3, 2, 1, 1};
        const double dx[2][4] = {{0.5, 1, 1, 0}, {0.5, 0, 1, 1}};
        const double dy[2][4] = {{0.5, 0, 1, 1}, {0.5, 1, 1, 0}};
        value = calloc((size_t)g->ntensors, sizeof *value);
        for (int i = 0; i < g->ntensors; i++)
            value[i] = calloc(8, 8);
        memcpy(value[x->id], xv, sizeof xv);
        memcpy(value[y->id], yv, sizeof yv);
        run_graph(g->nops);
        assert_memory_equal(value[d[0]->id], dx[max], sizeof dx[max]);
        assert_memory_equal(value[d[1]->id], dy[max], sizeof dy[max]);
        for (int i = 0; i < g->ntensors; i++)
            free(value[i]);
        free(value);
    }
}

static void test_cuts(void **state)
{
    (void)state;
    start(true);
    tsr_tensor *x[3] = {x64(D(2, 3)), x64(D(2, 1)), input(TSR_F64, D(2, 2))}, *part[3];
    check(tsr_concat(3, x, -1), -2, 2);
    start(true);
    x[0] = x64(D(2, 3)), x[1] = x64(D(2, 3));
    check(tsr_stack(2, x, -1), -2, 2);
    start(true);
    tsr_split(x64(D(6, 2)), 3, (const int64_t[]){1, 3, 2}, 0, part);
    check(tsr_mul(tsr_sum(part[2], TSR_AXES(0), false), part[0]), -2, 2);
    CHECK(-2, 2, tsr_slice(x64(D(5, 7)), D(1, -6), D(-1, 99), D(1, 2)));
    CHECK(-2, 2, tsr_narrow(x64(D(3, 5)), 1, -3, 2));
    CHECK(-2, 2, tsr_pad(x64(D(3, 2)), D(1, 0), D(0, 2), 1.5));
    CHECK(-2, 2, tsr_flip(x64(D(3, 2, 4)), TSR_AXES(0, -1)));
    CHECK(-2, 2, tsr_roll(x64(D(3, 5)), 1, -7));
    CHECK(-2, 2, tsr_interpolate(x64(D(2, 1, 3, 4)), 5, 3, TSR_BILINEAR));
    CHECK(-2, 2, tsr_interpolate(x64(D(1, 2, 3, 2)), 7, 4, TSR_NEAREST));
    CHECK(-2, 2, tsr_cumsum(x64(D(2, 4, 3)), 1));
    CHECK(-2, 2, tsr_cumprod(x64(D(2, 4, 3)), 1));
    CHECK(-2, 2, tsr_logcumsumexp(x64(D(2, 4, 3)), 2));
    CHECK(-2, 2, tsr_cummax(x64(D(7, 2)), 0, NULL));
    CHECK(-2, 2, tsr_cummin(x64(D(7, 2)), -2, NULL));
    CHECK(-2, 2, tsr_sort(x64(D(7, 2)), 0, false, NULL));
    CHECK(-2, 2, tsr_topk(x64(D(2, 7)), 3, 1, true, NULL));
    CHECK(-2, 2, tsr_variance(x64(D(2, 4, 3)), TSR_AXES(0, 2), false, 1));
    CHECK(-2, 2, tsr_variance(x64(D(4)), TSR_ALL_AXES, true, 0));
    CHECK(-2, 2, tsr_std(x64(D(4, 3)), TSR_AXES(0), false, 1));
    CHECK(-2, 2, tsr_triu(x64(D(2, 3, 4)), 1));
    CHECK(-2, 2, tsr_tril(x64(D(4, 3)), 0));
    /* More than an op takes. */
    start(true);
    tsr_tensor *one = x64(D(30)), *many[30];
    int64_t sizes[30];
    for (int i = 0; i < 30; i++)
        sizes[i] = 1;
    tsr_split(one, 30, sizes, 0, many);
    for (int i = 0; i < 30; i += 2)
        many[i] = tsr_mul(many[i], many[i + 1]);
    check(tsr_concat(30, many, 0), -2, 2);
}

static void test_index(void **state)
{
    (void)state;
    tsr_dims ids = D(4), two = D(2, 2);
    CHECK(-2, 2, tsr_embedding(x64(D(5, 3)), input(TSR_I64, ids), NULL));
    CHECK(-2, 2, tsr_index_select(x64(D(2, 3, 2)), 1, input(TSR_I64, two)));
    CHECK(-2, 2, tsr_index_select(x64(D(2, 4)), -1, input(TSR_I64, ids)));
    CHECK(-2, 2, tsr_gather(x64(D(3, 4)), 0, input(TSR_I64, D(5, 4))));
    CHECK(-2, 2, tsr_scatter_add(x64(D(3, 4)), 0, input(TSR_I64, D(5, 4)), x64(D(5, 4))));
}

/* --- values of what is composed --------------------------------------------------------------- */

/* The mean divides by the labels that count: with labels 0,1,2,0 and 1 ignored, by 3. */
static void test_ignore_index_value(void **state)
{
    (void)state;
    start(true);
    tsr_tensor *x = x64(D(4, 3)), *labels = input(TSR_I64, D(4));
    tsr_tensor *loss = tsr_cross_entropy_with(
        x, labels, TSR_CROSS_ENTROPY_OPTS(.has_ignore_index = true, .ignore_index = 1));
    value = calloc((size_t)g->ntensors, sizeof *value);
    for (int i = 0; i < g->ntensors; i++)
        value[i] = calloc(16, 8);
    double *v = value[x->id], want = 0;
    int64_t *l = value[labels->id];
    for (int i = 0; i < 12; i++)
        v[i] = draw(-2, 2);
    for (int i = 0; i < 4; i++) {
        l[i] = i % 3;
        double sum = exp(v[3 * i]) + exp(v[3 * i + 1]) + exp(v[3 * i + 2]);
        want += l[i] == 1 ? 0 : log(sum) - v[3 * i + l[i]];
    }
    run_graph(g->nops);
    assert_float_equal(*(double *)value[loss->id], want / 3, 1e-12);
    for (int i = 0; i < g->ntensors; i++)
        free(value[i]);
    free(value);
}

static int setup(void **state)
{
    (void)state;
    if (tsr_world_create_virtual(1, 0, &world) != TSR_OK)
        return -1;
    place = tsr_placement_parse(world, "cpu:[0]");
    return place ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    tsr_world_destroy(world);
    return 0;
}

static int ops_of(tsri_op_kind kind, int from)
{
    int n = 0;
    for (int i = from; i < g->nops; i++)
        n += g->ops[i]->kind == kind;
    return n;
}

/* The gradient of y = x u to x is u itself: no product with the ones that differentiation begins
 * with is declared. The user gets a view of u, which has gradients of its own; a square adds both.
 */
static void test_products_with_ones(void **state)
{
    (void)state;
    start(true);
    tsr_tensor *x = input(TSR_F64, D(3, 4)), *u = input(TSR_F64, D(3, 4)), *of[2] = {x, u};
    tsr_tensor *dx[2], *again[2], *row = input(TSR_F64, D(4));
    tsr_tensor *y = tsr_mul(x, u);
    const int forward = g->nops;
    tsr_gradients(y, 2, of, dx);
    assert_int_equal(ops_of(TSRI_OP_BINARY, forward), 0);
    assert_ptr_equal(dx[0]->op->in[0], u);
    assert_ptr_equal(dx[1]->op->in[0], x);
    tsr_tensor *more = tsr_add(tsr_square(dx[0]), u), *more_of[2] = {dx[0], u};
    tsr_gradients(more, 2, more_of, again);
    assert_ptr_not_equal(again[0], again[1]);
    assert_int_equal(again[0]->op->kind, TSRI_OP_UNARY_GRAD);
    tsr_gradients(tsr_mul(x, x), 1, &x, dx);
    assert_int_equal(dx[0]->op->kind, TSRI_OP_ADD_N);
    assert_ptr_equal(dx[0]->op->in[0], x);
    assert_ptr_equal(dx[0]->op->in[1], x);
    const int broadcast = g->nops;
    tsr_gradients(tsr_mul(x, row), 1, &x, dx); /* row is not of x's shape */
    assert_int_equal(ops_of(TSRI_OP_BINARY, broadcast), 2);
    assert_int_equal(tsr_graph_status(g), TSR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_ties_share),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_convolutions_again),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_movement),
        cmocka_unit_test(test_ignore_index_value),
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_select),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_batch_products),
        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_flash_attention),
        cmocka_unit_test(test_recurrent),
        cmocka_unit_test(test_products_with_ones),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
