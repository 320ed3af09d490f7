/* SPDX-License-Identifier: Apache-2.0 */
/* Every op once, on 1, 2 and 3 ranks with the operands split along either axis and broadcast,
 * against values worked out in plain C from the header's words. */
#include "rank.h"
#include "../unary_cases.h"

enum { R = 4, C = 6, N = R * C, IMG = 2 * 4 * 5 * 5, OUT_MAX = 256 };

/* The operands, and their values: x and y positive, z of both signs, img (2,4,5,5). */
typedef struct ctx {
    tsr_world *world;
    tsr_graph *g;
    const tsr_placement *p;
    tsr_tensor *x, *y, *z, *img, *labels;
    double xv[N], yv[N], zv[N], iv[IMG];
    int64_t lv[R];
} ctx;

typedef struct op_case {
    const char *name;
    tsr_tensor *(*make)(ctx *c);
    int (*want)(const ctx *c, double *o); /* returns their number */
} op_case;

/* An op whose element i is `value`, from elements i of the operands. */
#define EACH(name, tensor, value)                            \
    static tsr_tensor *make_##name(ctx *c)                   \
    {                                                        \
        return tensor;                                       \
    }                                                        \
    static int want_##name(const ctx *c, double *o)          \
    {                                                        \
        for (int i = 0; i < N; i++) {                        \
            double x = c->xv[i], y = c->yv[i], z = c->zv[i]; \
            o[i] = value;                                    \
            (void)x, (void)y, (void)z;                       \
        }                                                    \
        return N;                                            \
    }

EACH(neg, tsr_neg(c->z), -z)

/* The functions of tests/unary_cases.h. */
#define OPERAND_ANY tsr_mul_scalar(c->z, 4)
#define OPERAND_TAME c->z
#define OPERAND_POSITIVE c->x
#define OPERAND_INSIDE tsr_mul_scalar(c->z, 0.5)
#define OPERAND_ABOVE tsr_add_scalar(c->x, 1)
#define AT_ANY (4 * c->zv[i])
#define AT_TAME c->zv[i]
#define AT_POSITIVE c->xv[i]
#define AT_INSIDE (0.5 * c->zv[i])
#define AT_ABOVE (c->xv[i] + 1)
#define EACH_UNARY(T, FN, name, arity, p_, q_, from, value, slope) \
    static tsr_tensor *make_##name(ctx *c)                         \
    {                                                              \
        return UNARY_CALL_##arity(name, OPERAND_##from, p_, q_);   \
    }                                                              \
    static int want_##name(const ctx *c, double *o)                \
    {                                                              \
        for (int i = 0; i < N; i++) {                              \
            const double x = AT_##from, p = p_, q = q_;            \
            o[i] = value;                                          \
            (void)x, (void)p, (void)q;                             \
        }                                                          \
        return N;                                                  \
    }
UNARY_CASES(EACH_UNARY, )

EACH(gelu, tsr_gelu(c->z, TSR_GELU_ERF), z *(1 + erf(z / sqrt(2))) / 2)
EACH(gelu_tanh, tsr_gelu(c->z, TSR_GELU_TANH),
     z *(1 + tanh(sqrt(2 / acos(-1)) * (z + 0.044715 * z * z * z))) / 2)
EACH(pow_scalar, tsr_pow_scalar(c->x, 2.5), exp(2.5 * log(x)))
EACH(add_scalar, tsr_add_scalar(c->x, 0.75), x + 0.75)
EACH(sub_scalar, tsr_sub_scalar(c->x, 0.75), x - 0.75)
EACH(mul_scalar, tsr_mul_scalar(c->x, -3), -3 * x)
EACH(div_scalar, tsr_div_scalar(c->x, 7), x / 7)
EACH(rdiv_scalar, tsr_rdiv_scalar(c->x, 7), 7 / x)
EACH(cast, tsr_cast(tsr_cast(c->y, TSR_F32), TSR_F64), (double)(float)y)
EACH(add, tsr_add(c->x, c->y), x + y)
EACH(sub, tsr_sub(c->x, c->y), x - y)
EACH(mul, tsr_mul(c->z, c->y), z *y)
EACH(div, tsr_div(c->z, c->y), z / y)
EACH(pow, tsr_pow(c->x, c->y), exp(y *log(x)))
EACH(equal, tsr_cast(tsr_equal(c->x, tsr_abs(c->z)), TSR_F64), x == fabs(z))
EACH(add_row, tsr_add(c->z, tsr_reshape(tsr_mean(c->y, TSR_AXES(0), false), TSR_DIMS(C))),
     z + (c->yv[i % C] + c->yv[C + i % C] + c->yv[2 * C + i % C] + c->yv[3 * C + i % C]) / 4)
EACH(reshape, tsr_reshape(c->z, TSR_DIMS(2, -1, 3)), z)
EACH(flatten, tsr_flatten(tsr_reshape(c->z, TSR_DIMS(2, 4, 3)), 1), z)
EACH(transpose, tsr_transpose(c->z, 0, 1), c->zv[i % R * C + i / R])
EACH(permute, tsr_permute(tsr_reshape(c->z, TSR_DIMS(2, 3, 4)), TSR_AXES(2, 0, 1)),
     c->zv[i % 6 / 3 * 12 + i % 3 * 4 + i / 6])
EACH(expand, tsr_expand(tsr_max(c->z, TSR_AXES(1), true), TSR_DIMS(R, C)),
     fmax(fmax(fmax(c->zv[i / C * C], c->zv[i / C * C + 1]),
               fmax(c->zv[i / C * C + 2], c->zv[i / C * C + 3])),
          fmax(c->zv[i / C * C + 4], c->zv[i / C * C + 5])))
EACH(dropout, tsr_dropout(c->z, 0.5), z) /* not a training graph */
EACH(full, tsr_full(c->g, TSR_F64, TSR_DIMS(R, C), c->p, TSR_S(1), 1.25), 1.25)
EACH(softmax, tsr_softmax(c->z, 0),
     exp(z) / (exp(c->zv[i % C]) + exp(c->zv[C + i % C]) + exp(c->zv[2 * C + i % C]) +
               exp(c->zv[3 * C + i % C])))
EACH(log_softmax, tsr_log_softmax(c->z, -2),
     z - log(exp(c->zv[i % C]) + exp(c->zv[C + i % C]) + exp(c->zv[2 * C + i % C]) +
             exp(c->zv[3 * C + i % C])))
EACH(to_global, tsr_to_global(tsr_to_global(c->z, c->p, TSR_P), c->p, TSR_S(1)), z)

/* --- reductions ------------------------------------------------------------------------------- */
static tsr_tensor *make_sum(ctx *c)
{
    return tsr_sum(c->z, TSR_AXES(0), false);
}

static int want_sum(const ctx *c, double *o)
{
    for (int j = 0; j < C; j++)
        o[j] = c->zv[j] + c->zv[C + j] + c->zv[2 * C + j] + c->zv[3 * C + j];
    return C;
}

static tsr_tensor *make_mean(ctx *c)
{
    return tsr_mean(c->z, TSR_ALL_AXES, false);
}

static int want_mean(const ctx *c, double *o)
{
    o[0] = 0;
    for (int i = 0; i < N; i++)
        o[0] += c->zv[i] / N;
    return 1;
}

static tsr_tensor *make_min(ctx *c)
{
    return tsr_min(c->z, TSR_AXES(-1), false);
}

static int want_min(const ctx *c, double *o)
{
    for (int i = 0; i < R; i++) {
        o[i] = c->zv[i * C];
        for (int j = 1; j < C; j++)
            o[i] = fmin(o[i], c->zv[i * C + j]);
    }
    return R;
}

static tsr_tensor *make_norm(ctx *c)
{
    return tsr_norm(c->z, 3, TSR_ALL_AXES, false);
}

static int want_norm(const ctx *c, double *o)
{
    double s = 0;
    for (int i = 0; i < N; i++)
        s += fabs(c->zv[i]) * c->zv[i] * c->zv[i];
    o[0] = cbrt(s);
    return 1;
}

static tsr_tensor *make_argmax(ctx *c)
{
    return tsr_cast(tsr_argmax(c->z, 1), TSR_F64);
}

static int want_argmax(const ctx *c, double *o)
{
    for (int i = 0; i < R; i++) {
        o[i] = 0;
        for (int j = 1; j < C; j++)
            if (c->zv[i * C + j] > c->zv[i * C + (int)o[i]])
                o[i] = j;
    }
    return R;
}

/* --- products --------------------------------------------------------------------------------- */
static tsr_tensor *make_matmul(ctx *c)
{
    return tsr_matmul(c->x, tsr_reshape(c->z, TSR_DIMS(C, R)));
}

static int want_matmul(const ctx *c, double *o)
{
    for (int i = 0; i < R * R; i++) {
        o[i] = 0;
        for (int k = 0; k < C; k++)
            o[i] += c->xv[i / R * C + k] * c->zv[k * R + i % R];
    }
    return R * R;
}

static tsr_tensor *make_matmul_t(ctx *c)
{
    return tsr_matmul_t(c->x, c->z, true, false);
}

static int want_matmul_t(const ctx *c, double *o)
{
    for (int i = 0; i < C * C; i++) {
        o[i] = 0;
        for (int k = 0; k < R; k++)
            o[i] += c->xv[k * C + i / C] * c->zv[k * C + i % C];
    }
    return C * C;
}

static tsr_tensor *make_linear(ctx *c)
{
    return tsr_linear(c->z, c->y, tsr_sum(c->x, TSR_AXES(1), false));
}

static int want_linear(const ctx *c, double *o)
{
    for (int i = 0; i < R * R; i++) {
        o[i] = 0;
        for (int k = 0; k < C; k++)
            o[i] += c->zv[i / R * C + k] * c->yv[i % R * C + k] + c->xv[i % R * C + k];
    }
    return R * R;
}

/* --- convolution, pooling, batch norm --------------------------------------------------------- */
static double pixel(const ctx *c, int n, int ch, int h, int w)
{
    return h < 0 || h > 4 || w < 0 || w > 4 ? 0 : c->iv[((n * 4 + ch) * 5 + h) * 5 + w];
}

/* Two groups of two channels; the weight is x, as (4,2,3,1). */
static tsr_tensor *make_conv2d(ctx *c)
{
    tsr_tensor *w = tsr_reshape(c->x, TSR_DIMS(4, 2, 3, 1));
    return tsr_conv2d(c->img, w, tsr_min(c->z, TSR_AXES(1), false),
                      TSR_CONV2D_OPTS(.stride = {2, 1}, .padding = {1, 0}, .groups = 2));
}

static int want_conv2d(const ctx *c, double *o)
{
    double bias[R];
    want_min(c, bias);
    int at = 0;
    for (int n = 0; n < 2; n++)
        for (int oc = 0; oc < 4; oc++)
            for (int h = 0; h < 3; h++)
                for (int w = 0; w < 5; w++, at++) {
                    o[at] = bias[oc];
                    for (int k = 0; k < 6; k++)
                        o[at] += c->xv[oc * 6 + k] *
                                 pixel(c, n, oc / 2 * 2 + k / 3, 2 * h + k % 3 - 1, w);
                }
    return at;
}

static tsr_tensor *make_max_pool2d(ctx *c)
{
    return tsr_max_pool2d(c->img, TSR_POOL2D_OPTS(.kernel = {2, 3}, .stride = {2, 2}));
}

static int want_max_pool2d(const ctx *c, double *o)
{
    for (int i = 0; i < 32; i++) {
        o[i] = -1e9;
        for (int k = 0; k < 6; k++)
            o[i] =
                fmax(o[i], pixel(c, i / 16, i / 4 % 4, i / 2 % 2 * 2 + k / 3, i % 2 * 2 + k % 3));
    }
    return 32;
}

static tsr_tensor *make_avg_pool2d(ctx *c)
{
    return tsr_avg_pool2d(c->img,
                          TSR_POOL2D_OPTS(.kernel = {3, 3}, .stride = {4, 4}, .padding = {1, 1}));
}

static int want_avg_pool2d(const ctx *c, double *o)
{
    for (int i = 0; i < 32; i++) {
        o[i] = 0;
        for (int k = 0; k < 9; k++)
            o[i] +=
                pixel(c, i / 16, i / 4 % 4, i / 2 % 2 * 4 + k / 3 - 1, i % 2 * 4 + k % 3 - 1) / 9;
    }
    return 32;
}

static tsr_tensor *make_adaptive(ctx *c)
{
    return tsr_adaptive_avg_pool2d(c->img, 1, 1);
}

static int want_adaptive(const ctx *c, double *o)
{
    for (int i = 0; i < 8; i++) {
        o[i] = 0;
        for (int k = 0; k < 25; k++)
            o[i] += c->iv[i * 25 + k] / 25;
    }
    return 8;
}

/* Not a training graph: the running averages are the statistics. */
static tsr_tensor *make_batch_norm(ctx *c)
{
    static const double mean[4] = {0.5, -0.25, 1, 0}, var[4] = {1, 4, 0.25, 2};
    tsr_nn_opts nn = {.placement = c->p, .sbp = TSR_B, .dtype = TSR_F64};
    tsr_module *bn = tsr_nn_batch_norm(c->world, &nn, 4, TSR_BATCH_NORM_OPTS(.eps = 0.5));
    if (tsr_variable_set(tsr_module_find(bn, "running_mean"), mean, sizeof mean) != TSR_OK ||
        tsr_variable_set(tsr_module_find(bn, "running_var"), var, sizeof var) != TSR_OK)
        return NULL;
    return tsr_apply(bn, c->img);
}

static int want_batch_norm(const ctx *c, double *o)
{
    static const double mean[4] = {0.5, -0.25, 1, 0}, var[4] = {1, 4, 0.25, 2};
    for (int i = 0; i < IMG; i++) {
        int ch = i / 25 % 4;
        o[i] = (c->iv[i] - mean[ch]) / sqrt(var[ch] + 0.5);
    }
    return IMG;
}

/* --- losses ----------------------------------------------------------------------------------- */
static double log_prob(const ctx *c, int row, int col)
{
    double s = 0;
    for (int j = 0; j < C; j++)
        s += exp(c->zv[row * C + j]);
    return c->zv[row * C + col] - log(s);
}

static tsr_tensor *make_cross_entropy(ctx *c)
{
    return tsr_cross_entropy(c->z, c->labels, TSR_NONE);
}

static int want_cross_entropy(const ctx *c, double *o)
{
    for (int i = 0; i < R; i++)
        o[i] = -log_prob(c, i, (int)c->lv[i]);
    return R;
}

/* The first label is ignored: a mean over three, of smoothed labels. */
static tsr_tensor *make_smoothed(ctx *c)
{
    return tsr_cross_entropy_with(c->z, c->labels,
                                  TSR_CROSS_ENTROPY_OPTS(.label_smoothing = 0.3,
                                                         .has_ignore_index = true,
                                                         .ignore_index = c->lv[0]));
}

static int want_smoothed(const ctx *c, double *o)
{
    o[0] = 0;
    for (int i = 1; i < R; i++)
        for (int j = 0; j < C; j++)
            o[0] -= ((j == c->lv[i] ? 0.7 : 0) + 0.3 / C) * log_prob(c, i, j) / 3;
    return 1;
}

static tsr_tensor *make_mse(ctx *c)
{
    return tsr_mse_loss(c->x, c->y, TSR_SUM);
}

static int want_mse(const ctx *c, double *o)
{
    o[0] = 0;
    for (int i = 0; i < N; i++)
        o[0] += (c->xv[i] - c->yv[i]) * (c->xv[i] - c->yv[i]);
    return 1;
}

/* A batch of R single rows, all times one matrix. */
static tsr_tensor *make_batches(ctx *c)
{
    tsr_tensor *rows = tsr_reshape(c->x, TSR_DIMS(R, 1, C));
    return tsr_reshape(tsr_matmul_t(rows, c->y, false, true), TSR_DIMS(R, R));
}

static int want_batches(const ctx *c, double *o)
{
    for (int i = 0; i < R * R; i++) {
        o[i] = 0;
        for (int k = 0; k < C; k++)
            o[i] += c->xv[i / R * C + k] * c->yv[i % R * C + k];
    }
    return R * R;
}

#define CASE(name)                      \
    {                                   \
#name, make_##name, want_##name \
    }
#define UNARY_CASE(T, FN, name, ...) CASE(name),
static const op_case cases[] = {
    UNARY_CASES(UNARY_CASE, ) CASE(neg),
    CASE(pow_scalar),
    CASE(add_scalar),
    CASE(sub_scalar),
    CASE(mul_scalar),
    CASE(div_scalar),
    CASE(rdiv_scalar),
    CASE(cast),
    CASE(add),
    CASE(sub),
    CASE(mul),
    CASE(div),
    CASE(pow),
    CASE(equal),
    CASE(add_row),
    CASE(reshape),
    CASE(flatten),
    CASE(transpose),
    CASE(permute),
    CASE(expand),
    CASE(dropout),
    CASE(full),
    CASE(softmax),
    CASE(log_softmax),
    CASE(to_global),
    CASE(sum),
    CASE(mean),
    CASE(min),
    CASE(norm),
    CASE(argmax),
    CASE(matmul),
    CASE(matmul_t),
    CASE(linear),
    CASE(conv2d),
    CASE(max_pool2d),
    CASE(avg_pool2d),
    CASE(adaptive),
    CASE(batch_norm),
    CASE(cross_entropy),
    CASE(smoothed),
    CASE(mse),
    CASE(gelu),
    CASE(gelu_tanh),
    CASE(batches),
};
enum { NCASES = sizeof cases / sizeof *cases };

/* The operands in signature `sbp`; every third |z| equals x. */
static void declare(ctx *c, tsr_world *w, tsr_sbp sbp)
{
    *c = (ctx){.world = w, .lv = {5, 0, 3, 2}};
    for (int i = 0; i < N; i++) {
        c->xv[i] = 0.25 + 0.125 * (7 * i % 13);
        c->yv[i] = 0.5 + 0.1 * (5 * i % 11);
        c->zv[i] = i % 3 == 0 ? -c->xv[i] : sin(3.0 * i) + 0.01;
    }
    for (int i = 0; i < IMG; i++)
        c->iv[i] = cos(1.7 * i);
    c->g = tsr_graph_create(w, NULL);
    c->p = tsr_placement_parse(w, "cpu");
    c->x = tsr_input(c->g, "x", TSR_F64, TSR_DIMS(R, C), c->p, sbp);
    c->y = tsr_input(c->g, "y", TSR_F64, TSR_DIMS(R, C), c->p, sbp);
    c->z = tsr_input(c->g, "z", TSR_F64, TSR_DIMS(R, C), c->p, sbp);
    c->img = tsr_input(c->g, "img", TSR_F64, TSR_DIMS(2, 4, 5, 5), c->p, sbp);
    c->labels = tsr_input(c->g, "labels", TSR_I64, TSR_DIMS(R), c->p, TSR_AUTO);
}

static tsr_status every_op(tsr_world *w, void *arg)
{
    ctx c;
    tsr_plan *plan;
    declare(&c, w, *(const tsr_sbp *)arg);
    for (int i = 0; i < NCASES; i++)
        tsr_output(c.g, cases[i].name, cases[i].make(&c), c.p, TSR_B);
    TRY(tsr_compile(c.g, &plan));
    TRY(tsr_feed(plan, "x", c.xv, sizeof c.xv));
    TRY(tsr_feed(plan, "y", c.yv, sizeof c.yv));
    TRY(tsr_feed(plan, "z", c.zv, sizeof c.zv));
    TRY(tsr_feed(plan, "img", c.iv, sizeof c.iv));
    TRY(tsr_feed(plan, "labels", c.lv, sizeof c.lv));
    TRY(tsr_run(plan));
    for (int i = 0; i < NCASES; i++) {
        double want[OUT_MAX], got[OUT_MAX];
        int n = cases[i].want(&c, want);
        TRY(tsr_fetch(plan, cases[i].name, got, (size_t)n * sizeof *got));
        CHECK(all_near(cases[i].name, got, want, n, 1e-12));
    }
    tsr_plan_destroy(plan);
    return TSR_OK;
}

static void test_split_rows(void **state)
{
    (void)state;
    on_ranks(every_op, &TSR_S(0));
}

static void test_split_columns(void **state)
{
    (void)state;
    on_ranks(every_op, &TSR_S(1));
}

static void test_broadcast(void **state)
{
    (void)state;
    on_ranks(every_op, &TSR_B);
}

/* Random values: their range and moments, and the same ones on any number of ranks and signature.
 */
static tsr_status random_values(tsr_world *w, void *arg)
{
    enum { M = 30000 };
    static double first[2][M];
    double *got = malloc(M * sizeof *got), sum[2] = {0}, squares[2] = {0};
    CHECK(got);
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    for (int kind = 0; kind < 2; kind++) {
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.seed = 4));
        tsr_sbp sbp = *(const tsr_sbp *)arg;
        tsr_tensor *t = kind ? tsr_normal(g, "r", TSR_F64, TSR_DIMS(100, M / 100), p, sbp, 1, 2)
                             : tsr_uniform(g, "r", TSR_F64, TSR_DIMS(100, M / 100), p, sbp, -1, 3);
        TRY(tsr_eval(t, got, M * sizeof *got));
        for (int i = 0; i < M; i++) {
            CHECK(kind || (got[i] >= -1 && got[i] < 3));
            sum[kind] += got[i] / M;
            squares[kind] += got[i] * got[i] / M;
        }
        if (tsr_world_size(w) == 1 && sbp.d[0].kind == TSR_SBP_BROADCAST)
            memcpy(first[kind], got, sizeof first[kind]);
        CHECK(!memcmp(first[kind], got, sizeof first[kind]));
        /* Both have mean 1; variances 16 / 12 and 4; five sigma of the estimate. */
        double var = kind ? 4 : 16.0 / 12;
        CHECK(near_to(sum[kind], 1, 5 * sqrt(var / M)));
        CHECK(near_to(squares[kind] - sum[kind] * sum[kind], var, 0.05));
        tsr_graph_destroy(g);
    }
    free(got);
    return TSR_OK;
}

static void test_random(void **state)
{
    (void)state;
    on_ranks(random_values, &TSR_B); /* one rank first: what the others are compared with */
    on_ranks(random_values, &TSR_S(0));
    on_ranks(random_values, &TSR_S(1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_rows),
        cmocka_unit_test(test_split_columns),
        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
