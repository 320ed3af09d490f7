/* SPDX-License-Identifier: Apache-2.0 */
/* Transformers against PyTorch's losses over steps of SGD (transformer_values.h), with data,
 * sharded, tensor and vocabulary parallelism, which are signatures of the same program. */
#include "tests/api/rank.h"

#include "transformer_values.h"

enum { STEPS = 4, BATCH = 4, LENGTH = 5, ROWS = BATCH * LENGTH, WIDTH = 12 };

typedef enum layout { DATA = 0, SHARDED, TENSOR, VOCAB, LAYOUTS } layout;

typedef struct setting {
    bool words;
    layout how;
} setting;

typedef struct names {
    const char *const *want;
    int n, at;
} names;

/* As make_transformer_values.py fills it. */
static tsr_status fill(tsr_variable *v, const char *name, void *arg)
{
    names *list = arg;
    char text[128], *p = text;
    double value[1024];
    tsr_dims d = tsr_variable_dims(v);
    int64_t n = tsr_dims_count(d), k = 0;
    bool one = strstr(name, "norm") && strstr(name, "weight");
    p += sprintf(p, "%s (", name);
    for (int i = 0; i < d.ndim; i++)
        p += sprintf(p, i ? ",%d" : "%d", (int)d.d[i]);
    sprintf(p, ")");
    CHECK(list->at < list->n && !strcmp(text, list->want[list->at]));
    list->at++;
    CHECK(n <= 1024);
    for (const char *c = name; *c; c++)
        k += *c;
    for (int64_t i = 0; i < n; i++)
        value[i] = 0.2 * sin(0.7 * (double)i + (double)(k % 97)) + one;
    return tsr_variable_set(v, value, (size_t)n * sizeof *value);
}

static tsr_module *make_net(tsr_world *w, const tsr_placement *p, const setting *s)
{
    tsr_sbp sbp = s->how == SHARDED ? TSR_S(0) : TSR_B;
    if (s->words)
        return tsr_transformer(w, p, sbp,
                               TSR_TRANSFORMER_OPTS(.vocab = 11, .positions = 7, .width = WIDTH,
                                                    .heads = 6, .layers = 2, .mlp_ratio = 2,
                                                    .tied = true, .causal = true,
                                                    .dtype = TSR_F64));
    return tsr_transformer(w, p, sbp,
                           TSR_TRANSFORMER_OPTS(.width = WIDTH, .heads = 3, .layers = 1,
                                                .mlp_ratio = 1.5, .classes = 4,
                                                .gelu = TSR_GELU_TANH, .dtype = TSR_F64));
}

static tsr_status place(tsr_module *net, const setting *s)
{
    if (s->how == TENSOR) {
        TRY(tsr_module_place(net, "*.attn.[qkv].*", NULL, TSR_S(0)));
        TRY(tsr_module_place(net, "*.mlp.fc1.*", NULL, TSR_S(0)));
        TRY(tsr_module_place(net, "*.attn.proj.weight", NULL, TSR_S(1)));
        TRY(tsr_module_place(net, "*.mlp.fc2.weight", NULL, TSR_S(1)));
    }
    if (s->how == VOCAB)
        TRY(tsr_module_place(net, s->words ? "tok_emb.weight" : "head.weight", NULL, TSR_S(0)));
    return TSR_OK;
}

static tsr_status compile(tsr_world *w, const tsr_placement *p, const setting *s, tsr_module *net,
                          tsr_optimizer *opt, tsr_plan **out_plan)
{
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_sbp data = s->how == TENSOR ? TSR_B : TSR_S(0);
    tsr_tensor *x = s->words ? tsr_input(g, "x", TSR_I64, TSR_DIMS(BATCH, LENGTH), p, data)
                             : tsr_input(g, "x", TSR_F64, TSR_DIMS(BATCH, LENGTH, WIDTH), p, data);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(ROWS), p, TSR_B);
    tsr_tensor *logits = tsr_reshape(tsr_apply(net, x), TSR_DIMS(ROWS, -1));
    tsr_tensor *loss = tsr_cross_entropy(logits, y, TSR_MEAN);
    tsr_minimize(opt, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    return tsr_compile(g, out_plan);
}

static tsr_status train(tsr_world *w, void *arg)
{
    const setting *s = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_module *net = make_net(w, p, s);
    CHECK(net);
    TRY(place(net, s));
    names list = {s->words ? names_words : names_features,
                  s->words ? sizeof names_words / sizeof *names_words
                           : sizeof names_features / sizeof *names_features,
                  0};
    TRY(tsr_module_visit(net, fill, &list));
    CHECK(list.at == list.n);
    tsr_optimizer *opt = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.3, .momentum = 0.9));
    tsr_plan *plan;
    TRY(compile(w, p, s, net, opt, &plan));
    const int classes = s->words ? 11 : 4;
    int64_t ids[ROWS], labels[ROWS];
    double features[ROWS * WIDTH];
    for (int i = 0; i < ROWS; i++) {
        ids[i] = (3 * i + i / 4) % classes;
        labels[i] = (5 * i + 2) % classes;
    }
    for (int i = 0; i < ROWS * WIDTH; i++)
        features[i] = sin(0.7 * i + 3);
    if (s->words)
        TRY(tsr_feed(plan, "x", ids, sizeof ids));
    else
        TRY(tsr_feed(plan, "x", features, sizeof features));
    TRY(tsr_feed(plan, "y", labels, sizeof labels));
    for (int i = 0; i < STEPS; i++) {
        double loss, want = s->words ? losses_words[i] : losses_features[i];
        TRY(tsr_run(plan));
        TRY(tsr_fetch_scalar(plan, "loss", &loss));
        CHECK(all_near("loss", &loss, &want, 1, 1e-10));
    }
    return TSR_OK;
}

static void test_losses(void **state)
{
    (void)state;
    for (int words = 0; words < 2; words++)
        for (int how = 0; how < LAYOUTS; how++)
            on_ranks(train, &(setting){words, (layout)how});
}

/* Few words and wide layers: weights stay where they are, and what is sent is activations. One rank
 * first, which says what the losses are. */
static tsr_status tensor_parallel(tsr_world *w, void *arg)
{
    double *losses = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_module *net =
        tsr_transformer(w, p, TSR_B,
                        TSR_TRANSFORMER_OPTS(.vocab = 61, .width = 96, .heads = 6, .layers = 2,
                                             .causal = true, .dtype = TSR_F64, .seed = 5));
    TRY(place(net, &(setting){.how = TENSOR}));
    TRY(tsr_module_place(net, "tok_emb.weight", NULL, TSR_S(0)));
    TRY(tsr_module_place(net, "head.weight", NULL, TSR_S(0)));
    tsr_optimizer *opt = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.1));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_I64, TSR_DIMS(2, 3), p, TSR_B);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(6), p, TSR_B);
    tsr_tensor *logits = tsr_reshape(tsr_apply(net, x), TSR_DIMS(6, 61));
    tsr_tensor *loss = tsr_cross_entropy(logits, y, TSR_MEAN);
    tsr_minimize(opt, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    TRY(tsr_feed(plan, "x", (int64_t[]){5, 60, 31, 0, 5, 17}, 6 * sizeof(int64_t)));
    TRY(tsr_feed(plan, "y", (int64_t[]){60, 31, 1, 5, 17, 44}, 6 * sizeof(int64_t)));
    for (int i = 0; i < STEPS; i++) {
        double got;
        TRY(tsr_run(plan));
        TRY(tsr_fetch_scalar(plan, "loss", &got));
        if (tsr_world_size(w) == 1)
            losses[i] = got;
        CHECK(near_to(got, losses[i], 1e-11));
    }
    CHECK(losses[STEPS - 1] < losses[0]);
    tsr_plan_info info = {.size = sizeof info};
    TRY(tsr_plan_get_info(plan, &info));
    CHECK(info.comm_bytes < (uint64_t)tsr_module_count(net) * sizeof(double) / 8);
    return TSR_OK;
}

static void test_tensor_parallel(void **state)
{
    (void)state;
    double losses[STEPS];
    on_ranks(tensor_parallel, losses);
}

/* f32, by the fast kernels. */
static tsr_status train_f32(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_module *net = tsr_transformer(
        w, p, TSR_B,
        TSR_TRANSFORMER_OPTS(.vocab = 17, .positions = 16, .width = 32, .heads = 2, .layers = 2,
                             .causal = true, .dropout = 0.05, .seed = 3));
    tsr_optimizer *opt = tsr_adamw(net, TSR_ADAM_OPTS(.lr = 3e-3));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .seed = 1));
    tsr_tensor *x = tsr_input(g, "x", TSR_I64, TSR_DIMS(6, 16), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(96), p, TSR_B);
    tsr_tensor *loss =
        tsr_cross_entropy(tsr_reshape(tsr_apply(net, x), TSR_DIMS(96, -1)), y, TSR_MEAN);
    tsr_minimize(opt, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    int64_t ids[96], next[96];
    for (int i = 0; i < 96; i++) { /* the next word is a function of this one */
        ids[i] = i % 16 ? (5 * ids[i - 1] + 3) % 17 : i / 16;
        next[i] = (5 * ids[i] + 3) % 17;
    }
    TRY(tsr_feed(plan, "x", ids, sizeof ids));
    TRY(tsr_feed(plan, "y", next, sizeof next));
    double first = 0, last = 0;
    for (int i = 0; i < 60; i++) {
        TRY(tsr_run(plan));
        TRY(tsr_fetch_scalar(plan, "loss", i ? &last : &first));
    }
    CHECK(fabs(first - log(17)) < 0.5 && last < 0.3 * first);
    return TSR_OK;
}

static void test_learns(void **state)
{
    (void)state;
    on_ranks(train_f32, NULL);
}

static void test_errors(void **state)
{
    (void)state;
    tsr_world *w;
    assert_int_equal(tsr_world_create_virtual(1, 0, &w), TSR_OK);
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[0]");
    assert_null(tsr_transformer(w, p, TSR_B, TSR_TRANSFORMER_OPTS(.width = 10, .heads = 4)));
    assert_non_null(strstr(tsr_last_error(), "width 10, heads 4"));
    assert_non_null(strstr(tsr_last_error(), "heads must divide the width"));
    assert_null(
        tsr_transformer(w, p, TSR_B, TSR_TRANSFORMER_OPTS(.vocab = 9, .classes = 4, .tied = true)));
    assert_non_null(strstr(tsr_last_error(), "a tied head has the embedding's 9 classes"));
    assert_null(tsr_transformer(NULL, p, TSR_B, NULL));
    assert_null(tsr_nn_layer_norm(w, &(tsr_nn_opts){.placement = p}, TSR_SCALAR, NULL));
    assert_non_null(strstr(tsr_last_error(), "sizes of at least one axis are needed"));
    /* Without a head: features. */
    tsr_module *net = tsr_transformer(w, p, TSR_B, TSR_TRANSFORMER_OPTS(.width = 8, .layers = 1));
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *y = tsr_apply(net, tsr_input(g, "x", TSR_F32, TSR_DIMS(2, 3, 8), p, TSR_B));
    tsr_dims d = tsr_tensor_dims(y);
    assert_true(tsr_tensor_ok(y) && d.ndim == 3 && d.d[2] == 8);
    tsr_world_destroy(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_tensor_parallel),
        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
