/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm, gelu, softmax, cross entropy, products of batches and attention against stored values
 * and gradients of PyTorch, on 1 to 3 ranks, with every axis of the operands split. */
#include "../rank.h"

#include "nn_values.h"

enum { MOST = 3, ROOM = 512 };

typedef tsr_tensor *program(tsr_tensor *const x[MOST], tsr_tensor *labels);

static tsr_tensor *layer_norm(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    (void)labels;
    return tsr_layer_norm(x[0], x[1], x[2], NULL);
}

static tsr_tensor *layer_norm_two_axes(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    (void)labels;
    return tsr_layer_norm(x[0], x[1], x[2], TSR_LAYER_NORM_OPTS(.eps = 0.01, .axes = 2));
}

static tsr_tensor *layer_norm_plain(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    (void)labels;
    return tsr_layer_norm(x[0], NULL, NULL, NULL);
}

static tsr_tensor *gelu(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    (void)labels;
    return tsr_gelu(tsr_mul_scalar(x[0], 3), TSR_GELU_ERF);
}

static tsr_tensor *gelu_tanh(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    (void)labels;
    return tsr_gelu(tsr_mul_scalar(x[0], 3), TSR_GELU_TANH);
}

static tsr_tensor *softmax(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    (void)labels;
    return tsr_softmax(x[0], 1);
}

static tsr_tensor *log_softmax(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    (void)labels;
    return tsr_log_softmax(x[0], 0);
}

static tsr_tensor *cross_entropy(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    return tsr_cross_entropy(x[0], labels, TSR_MEAN);
}

static tsr_tensor *cross_entropy_smooth(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    return tsr_cross_entropy_with(x[0], labels, TSR_CROSS_ENTROPY_OPTS(.label_smoothing = 0.2));
}

static tsr_tensor *cross_entropy_ignore(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    return tsr_cross_entropy_with(
        x[0], labels,
        TSR_CROSS_ENTROPY_OPTS(.reduction = TSR_SUM, .has_ignore_index = true, .ignore_index = 6));
}

static tsr_tensor *matmul(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    (void)labels;
    return tsr_matmul(x[0], x[1]);
}

static tsr_tensor *attention(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    (void)labels;
    return tsr_attention(x[0], x[1], x[2], NULL);
}

static tsr_tensor *attention_causal(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    (void)labels;
    return tsr_attention(x[0], x[1], x[2], TSR_ATTENTION_OPTS(.causal = true));
}

static tsr_tensor *attention_scale(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    (void)labels;
    return tsr_attention(x[0], x[1], x[2], TSR_ATTENTION_OPTS(.causal = true, .scale = 0.3));
}

typedef struct value_case {
    const char *name;
    program *make;
    const double *values;
    int64_t count;
    int n;
    tsr_dims dims[MOST];
} value_case;

/* clang-format off */
#define D(...) {(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}}
#define CASE(name, n, ...)                                                                         \
    {#name, name, values_##name, sizeof values_##name / sizeof(double), n, {__VA_ARGS__}}
static const value_case cases[] = {
    CASE(layer_norm, 3, D(4, 3, 7), D(7), D(7)),
    CASE(layer_norm_two_axes, 3, D(4, 3, 5), D(3, 5), D(3, 5)),
    CASE(layer_norm_plain, 1, D(4, 7)),
    CASE(gelu, 1, D(4, 7)),
    CASE(gelu_tanh, 1, D(4, 7)),
    CASE(softmax, 1, D(4, 7, 3)),
    CASE(log_softmax, 1, D(4, 7)),
    CASE(cross_entropy, 1, D(4, 7)),
    CASE(cross_entropy_smooth, 1, D(4, 7)),
    CASE(cross_entropy_ignore, 1, D(4, 7)),
    CASE(matmul, 2, D(2, 1, 3, 5), D(4, 5, 2)),
    CASE(attention, 3, D(2, 3, 4, 5), D(2, 3, 6, 5), D(2, 3, 6, 2)),
    CASE(attention_causal, 3, D(2, 3, 4, 5), D(2, 3, 4, 5), D(2, 3, 4, 2)),
    CASE(attention_scale, 3, D(2, 3, 4, 5), D(2, 3, 4, 5), D(2, 3, 4, 2)),
};
/* clang-format on */

/* As make_nn_values.py has it. */
static void wave(double *v, int64_t n, int k)
{
    for (int64_t i = 0; i < n; i++)
        v[i] = sin(0.7 * (double)i + k) + 0.1 * (double)(i % 3);
}

typedef struct how {
    const value_case *c;
    int axis;  /* that is split in every operand that has it; -1: none */
    bool hint; /* hold the result to that split too */
} how;

static tsr_status one(tsr_world *w, void *arg)
{
    const how *h = arg;
    const value_case *c = h->c;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x[MOST] = {NULL}, *dx[MOST];
    char name[16];
    for (int i = 0; i < c->n; i++) {
        snprintf(name, sizeof name, "x%d", i);
        const bool split = h->axis >= 0 && h->axis < c->dims[i].ndim;
        x[i] = tsr_input(g, name, TSR_F64, c->dims[i], p, split ? TSR_S(h->axis) : TSR_B);
    }
    const bool labelled = strstr(c->name, "entropy") != NULL;
    tsr_tensor *labels = labelled ? tsr_input(g, "labels", TSR_I64, TSR_DIMS(4), p, TSR_B) : NULL;
    tsr_tensor *y = c->make(x, labels);
    if (h->hint && h->axis >= 0 && h->axis < tsr_tensor_dims(y).ndim)
        y = tsr_to_global(y, p, TSR_S(h->axis));
    tsr_tensor *weight = tsr_input(g, "w", TSR_F64, tsr_tensor_dims(y), p, TSR_B);
    tsr_gradients(tsr_sum(tsr_mul(y, weight), TSR_ALL_AXES, false), c->n, x, dx);
    tsr_output(g, "y", y, p, TSR_B);
    for (int i = 0; i < c->n; i++) {
        snprintf(name, sizeof name, "dx%d", i);
        tsr_output(g, name, dx[i], p, TSR_B);
    }
    tsr_plan *plan;
    double buf[ROOM];
    int64_t n, at;
    TRY(tsr_compile(g, &plan));
    for (int i = 0; i < c->n; i++) {
        n = tsr_dims_count(c->dims[i]);
        wave(buf, n, i);
        snprintf(name, sizeof name, "x%d", i);
        TRY(tsr_feed(plan, name, buf, (size_t)n * sizeof *buf));
    }
    if (labelled)
        TRY(tsr_feed(plan, "labels", (int64_t[]){2, 0, 6, 4}, 4 * sizeof(int64_t)));
    at = tsr_dims_count(tsr_tensor_dims(y));
    wave(buf, at, 9);
    TRY(tsr_feed(plan, "w", buf, (size_t)at * sizeof *buf));
    TRY(tsr_run(plan));
    TRY(tsr_fetch(plan, "y", buf, (size_t)at * sizeof *buf));
    CHECK(all_near(c->name, buf, c->values, at, 1e-12));
    for (int i = 0; i < c->n; i++, at += n) {
        n = tsr_dims_count(c->dims[i]);
        snprintf(name, sizeof name, "dx%d", i);
        TRY(tsr_fetch(plan, name, buf, (size_t)n * sizeof *buf));
        CHECK(all_near(name, buf, c->values + at, n, 1e-12));
    }
    CHECK(at == c->count);
    return TSR_OK;
}

static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int axis = -1; axis < cases[i].dims[0].ndim; axis++)
            for (int hint = 0; hint < 2; hint++)
                on_ranks(one, &(how){&cases[i], axis, hint});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
