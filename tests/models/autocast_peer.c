/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Tessera side of autocasts.py: the dtypes that ops give in a region of tsr_autocast.
 *
 * usage: autocast_peer DTYPE [RANKS]
 *
 * DTYPE is f16 or bf16. For each op a line "op OPERANDS RESULT", with operands of f32 ("f32"), of
 * DTYPE ("low"), of f32 and DTYPE where there are two ("both"), and of f64. Nothing is run.
 *
 * With RANKS it trains a net of two layers for 10 steps, data parallel, and prints the loss of each
 * step, and a line with the weights.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/tessera.h>

/* Operands: x, y (4,6), positive; m (6,4); w (3,6), v (3) weights; im (2,4,6,6), k (4,4,3,3); seq
 * (2,4,6), k1 (4,4,3); q (2,2,4,6); c (6) per column; labels (4). x and im are of the case's first
 * type, all others of the second. */
typedef struct operands {
    tsr_tensor *x, *y, *m, *w, *v, *im, *k, *seq, *k1, *vol, *k3, *q, *q2, *c, *ch, *labels, *cond;
    tsr_tensor *b1, *b2, *grid;
} operands;

#define ALL TSR_ALL_AXES, false
#define UNARY(name)             \
    {                           \
#name, tsr_##name(o->x) \
    }

typedef struct result {
    const char *name;
    tsr_tensor *y;
} result;

/* y: of two tensors, in one list. */
static tsr_tensor *joined(tsr_tensor *a, tsr_tensor *b, bool stack)
{
    tsr_tensor *both[2] = {a, b};
    return stack ? tsr_stack(2, both, 0) : tsr_concat(2, both, 0);
}

static tsr_tensor *einsum(tsr_tensor *a, tsr_tensor *b)
{
    tsr_tensor *both[2] = {a, b};
    return tsr_einsum("ij,jk->ik", 2, both);
}

static int declare(const operands *o, result *out)
{
    const result all[] = {
        UNARY(abs),
        UNARY(sign),
        UNARY(square),
        UNARY(sqrt),
        UNARY(rsqrt),
        UNARY(reciprocal),
        UNARY(exp),
        UNARY(exp2),
        UNARY(expm1),
        UNARY(log),
        UNARY(log2),
        UNARY(log10),
        UNARY(log1p),
        UNARY(sin),
        UNARY(cos),
        UNARY(tan),
        UNARY(asin),
        UNARY(acos),
        UNARY(atan),
        UNARY(sinh),
        UNARY(cosh),
        UNARY(tanh),
        UNARY(asinh),
        UNARY(acosh),
        UNARY(atanh),
        UNARY(erf),
        UNARY(erfc),
        UNARY(floor),
        UNARY(ceil),
        UNARY(round),
        UNARY(trunc),
        UNARY(relu),
        UNARY(relu6),
        UNARY(sigmoid),
        UNARY(logsigmoid),
        UNARY(hardsigmoid),
        UNARY(silu),
        UNARY(hardswish),
        UNARY(mish),
        UNARY(softplus),
        UNARY(softsign),
        UNARY(selu),
        UNARY(neg),
        UNARY(tanhshrink),
        UNARY(logit),
        {"gelu", tsr_gelu(o->x, TSR_GELU_ERF)},
        {"leaky_relu", tsr_leaky_relu(o->x, 0.1)},
        {"elu", tsr_elu(o->x, 1)},
        {"clamp", tsr_clamp(o->x, 0, 1)},
        {"pow_scalar", tsr_pow_scalar(o->x, 3)},
        {"rdiv_scalar", tsr_rdiv_scalar(o->x, 3)},
        {"add_scalar", tsr_add_scalar(o->x, 3)},
        {"mul_scalar", tsr_mul_scalar(o->x, 3)},
        {"dropout", tsr_dropout(o->x, 0.5)},
        {"softmax", tsr_softmax(o->x, 1)},
        {"log_softmax", tsr_log_softmax(o->x, 1)},
        {"softmin", tsr_softmin(o->x, 1)},
        {"logsumexp", tsr_logsumexp(o->x, ALL)},
        {"sum", tsr_sum(o->x, ALL)},
        {"mean", tsr_mean(o->x, ALL)},
        {"max", tsr_max(o->x, ALL)},
        {"prod", tsr_prod(o->x, TSR_AXES(1), false)},
        {"cumsum", tsr_cumsum(o->x, 1)},
        {"cumprod", tsr_cumprod(o->x, 1)},
        {"logcumsumexp", tsr_logcumsumexp(o->x, 1)},
        {"norm", tsr_norm(o->x, 2, ALL)},
        {"norm_inf", tsr_norm(o->x, INFINITY, ALL)},
        {"std", tsr_std(o->x, ALL, 1)},
        {"normalize", tsr_normalize(o->x, 1, 1e-12)},
        {"pdist", tsr_pdist(o->x, 2)},
        {"transpose", tsr_transpose(o->x, 0, 1)},
        {"sort", tsr_sort(o->x, 1, false, NULL)},
        {"tril", tsr_tril(o->x, 0)},
        {"avg_pool2d", tsr_avg_pool2d(o->im, TSR_POOL2D_OPTS(.kernel = {2, 2}, .stride = {2, 2}))},
        {"max_pool2d", tsr_max_pool2d(o->im, TSR_POOL2D_OPTS(.kernel = {2, 2}, .stride = {2, 2}))},
        {"adaptive_avg_pool2d", tsr_adaptive_avg_pool2d(o->im, 1, 1)},
        {"interpolate", tsr_interpolate(o->im, 8, 8, TSR_BILINEAR)},
        {"cross_entropy", tsr_cross_entropy(o->x, o->labels, TSR_MEAN)},
        {"nll_loss", tsr_nll_loss(o->x, o->labels, NULL)},
        {"multi_margin_loss", tsr_multi_margin_loss(o->x, o->labels, 1, 1, TSR_MEAN)},
        {"rotary_embedding", tsr_rotary_embedding(o->q, 1e4, 0, false)},
        {"glu", tsr_glu(o->x, 1)},
        {"add", tsr_add(o->x, o->y)},
        {"sub", tsr_sub(o->x, o->y)},
        {"mul", tsr_mul(o->x, o->y)},
        {"div", tsr_div(o->x, o->y)},
        {"pow", tsr_pow(o->x, o->y)},
        {"maximum", tsr_maximum(o->x, o->y)},
        {"atan2", tsr_atan2(o->x, o->y)},
        {"where", tsr_where(o->cond, o->x, o->y)},
        {"concat", joined(o->x, o->y, false)},
        {"stack", joined(o->x, o->y, true)},
        {"less", tsr_less(o->x, o->y)},
        {"matmul", tsr_matmul(o->x, o->m)},
        {"bmm", tsr_matmul(o->b1, o->b2)},
        {"linear", tsr_linear(o->x, o->w, o->v)},
        {"einsum", einsum(o->x, o->m)},
        {"outer", tsr_outer(tsr_reshape(o->x, TSR_DIMS(24)), o->c)},
        {"tensordot", tsr_tensordot(o->x, o->m, TSR_AXES(1), TSR_AXES(0))},
        {"baddbmm", tsr_baddbmm(tsr_matmul(o->b1, o->b2), o->b1, o->b2, 1, 1)},
        {"conv2d", tsr_conv2d(o->im, o->k, o->ch, NULL)},
        {"conv1d", tsr_conv1d(o->seq, o->k1, o->ch, NULL)},
        {"conv3d", tsr_conv3d(o->vol, o->k3, o->ch, NULL)},
        {"conv_transpose2d", tsr_conv_transpose2d(o->im, o->k, o->ch, NULL)},
        {"prelu", tsr_prelu(o->x, o->c)},
        {"scaled_dot_product_attention",
         tsr_scaled_dot_product_attention(o->q, o->q2, o->q2, NULL, NULL)},
        {"attention", tsr_attention(o->q, o->q2, o->q2, NULL)},
        {"layer_norm", tsr_layer_norm(o->x, o->c, o->c, NULL)},
        {"rms_norm", tsr_rms_norm(o->x, o->c, 1e-6)},
        {"group_norm", tsr_group_norm(o->im, 2, o->ch, o->ch, 1e-5)},
        {"batch_norm", tsr_batch_norm(o->im, o->ch, o->ch, NULL, NULL, NULL)},
        {"mse_loss", tsr_mse_loss(o->x, o->y, TSR_MEAN)},
        {"l1_loss", tsr_l1_loss(o->x, o->y, TSR_MEAN)},
        {"smooth_l1_loss", tsr_smooth_l1_loss(o->x, o->y, 1, TSR_MEAN)},
        {"huber_loss", tsr_huber_loss(o->x, o->y, 1, TSR_MEAN)},
        {"kl_div", tsr_kl_div(o->x, o->y, false, TSR_MEAN)},
        {"binary_cross_entropy_with_logits",
         tsr_binary_cross_entropy_with_logits(o->x, o->y, NULL, TSR_MEAN)},
        {"poisson_nll_loss", tsr_poisson_nll_loss(o->x, o->y, TSR_MEAN)},
        {"soft_margin_loss", tsr_soft_margin_loss(o->x, o->y, TSR_MEAN)},
        {"hinge_embedding_loss", tsr_hinge_embedding_loss(o->x, o->y, 1, TSR_MEAN)},
        {"margin_ranking_loss", tsr_margin_ranking_loss(o->x, o->y, o->y, 0, TSR_MEAN)},
        {"triplet_margin_loss", tsr_triplet_margin_loss(o->x, o->y, o->y, 1, 2, TSR_MEAN)},
        {"cosine_similarity", tsr_cosine_similarity(o->x, o->y, 1, 1e-8)},
        {"grid_sample", tsr_grid_sample(o->im, o->grid, TSR_BILINEAR, false)},
    };
    memcpy(out, all, sizeof all);
    return (int)(sizeof all / sizeof *all);
}

static tsr_tensor *input(tsr_graph *g, tsr_dtype dtype, tsr_dims dims, const tsr_placement *p)
{
    static int n;
    char name[32];
    snprintf(name, sizeof name, "in%d", n++);
    return tsr_input(g, name, dtype, dims, p, TSR_B);
}

static tsr_status print_case(tsr_world *w, tsr_dtype region, const char *what, tsr_dtype a,
                             tsr_dtype b)
{
    static result all[256];
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    const operands o = {
        .x = input(g, a, TSR_DIMS(4, 6), p),
        .y = input(g, b, TSR_DIMS(4, 6), p),
        .m = input(g, b, TSR_DIMS(6, 4), p),
        .w = input(g, b, TSR_DIMS(3, 6), p),
        .v = input(g, b, TSR_DIMS(3), p),
        .im = input(g, a, TSR_DIMS(2, 4, 6, 6), p),
        .k = input(g, b, TSR_DIMS(4, 4, 3, 3), p),
        .seq = input(g, a, TSR_DIMS(2, 4, 6), p),
        .k1 = input(g, b, TSR_DIMS(4, 4, 3), p),
        .vol = input(g, a, TSR_DIMS(1, 4, 4, 4, 4), p),
        .k3 = input(g, b, TSR_DIMS(4, 4, 3, 3, 3), p),
        .q = input(g, a, TSR_DIMS(2, 2, 4, 6), p),
        .q2 = input(g, b, TSR_DIMS(2, 2, 4, 6), p),
        .c = input(g, b, TSR_DIMS(6), p),
        .ch = input(g, b, TSR_DIMS(4), p),
        .labels = input(g, TSR_I64, TSR_DIMS(4), p),
        .cond = input(g, TSR_BOOL, TSR_DIMS(4, 6), p),
        .b1 = input(g, a, TSR_DIMS(2, 4, 6), p),
        .b2 = input(g, b, TSR_DIMS(2, 6, 4), p),
        .grid = input(g, b, TSR_DIMS(2, 3, 3, 2), p),
    };
    tsr_autocast(g, region);
    const int n = declare(&o, all);
    tsr_autocast_end(g);
    TSR_TRY(tsr_graph_status(g));
    for (int i = 0; i < n; i++)
        printf("%s %s %s\n", all[i].name, what, tsr_dtype_name(tsr_tensor_dtype(all[i].y)));
    return TSR_OK;
}

/* --- training --------------------------------------------------------------------------------- */
enum { ROWS = 16, IN = 12, HIDDEN = 10, OUT = 5, STEPS = 10 };

static void fill(float *x, int n, int step)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)((i * 7 + step * 5) % 23) / 16 - 0.7f;
}

static tsr_status train(tsr_world *w, void *arg)
{
    const tsr_dtype low = !strcmp(arg, "f16") ? TSR_F16 : TSR_BF16;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_module *net =
        tsr_mlp(w, p, TSR_B, TSR_MLP_OPTS(.inputs = IN, .hidden = HIDDEN, .outputs = OUT));
    static const char *const names[] = {"0.weight", "0.bias", "2.weight", "2.bias"};
    static const int sizes[] = {IN * HIDDEN, HIDDEN, HIDDEN * OUT, OUT};
    float v[IN * HIDDEN], x[ROWS * IN];
    int64_t labels[ROWS];
    for (int i = 0; i < 4; i++) {
        fill(v, sizes[i], i);
        TSR_TRY(tsr_variable_set(tsr_module_find(net, names[i]), v, (size_t)sizes[i] * sizeof *v));
    }
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .autocast = low));
    tsr_tensor *in = tsr_input(g, "x", TSR_F32, TSR_DIMS(ROWS, IN), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(ROWS), p, TSR_S(0));
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(net, in), y, TSR_MEAN);
    tsr_grad_scaler *scaler = tsr_grad_scaler_create(w, NULL);
    tsr_minimize_with(tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.5)), 1, &loss,
                      TSR_MINIMIZE_OPTS(.scaler = low == TSR_F16 ? scaler : NULL));
    tsr_output(g, "loss", loss, p, TSR_B);
    tsr_plan *plan;
    TSR_TRY(tsr_compile(g, &plan));
    for (int step = 0; step < STEPS; step++) {
        double value;
        fill(x, ROWS * IN, step);
        for (int i = 0; i < ROWS; i++)
            labels[i] = (i * 3 + step) % OUT;
        TSR_TRY(tsr_feed(plan, "x", x, sizeof x));
        TSR_TRY(tsr_feed(plan, "y", labels, sizeof labels));
        TSR_TRY(tsr_run(plan));
        TSR_TRY(tsr_fetch_scalar(plan, "loss", &value));
        if (tsr_world_rank(w) == 0)
            printf("%.9g\n", value);
    }
    for (int i = 0; i < 4; i++) {
        TSR_TRY(tsr_variable_get(tsr_module_find(net, names[i]), v, (size_t)sizes[i] * sizeof *v));
        for (int k = 0; k < sizes[i] && tsr_world_rank(w) == 0; k++)
            printf("%.9g ", (double)v[k]);
    }
    return TSR_OK;
}

static tsr_status rank(tsr_world *w, void *arg)
{
    const tsr_dtype low = !strcmp(arg, "f16") ? TSR_F16 : TSR_BF16;
    TSR_TRY(print_case(w, low, "f32", TSR_F32, TSR_F32));
    TSR_TRY(print_case(w, low, "low", low, low));
    TSR_TRY(print_case(w, low, "both", low, TSR_F32));
    TSR_TRY(print_case(w, low, "f64", TSR_F64, TSR_F64));
    return print_case(w, TSR_F32, "off", low, low);
}

int main(int argc, char **argv)
{
    const int ranks = argc > 2 ? atoi(argv[2]) : 1;
    if (argc < 2 || tsr_spawn(ranks, argc > 2 ? train : rank, argv[1]) != TSR_OK) {
        fprintf(stderr, "autocast_peer: %s\n", tsr_last_error());
        return 1;
    }
    return 0;
}
