/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates that take gradients as they are made, against those that run behind all of backward:
 * equal bits of losses and parameters after some steps, by every optimizer, where gradients are
 * read by updates alone and where they are clipped, fetched or summed over ranks.
 */
#include "../rank.h"

enum { BATCH = 19, INPUTS = 301, HIDDEN = 437, CLASSES = 10, STEPS = 3, MOST = 1 << 18 };

typedef tsr_optimizer *make_fn(tsr_module *net);

static tsr_optimizer *sgd(tsr_module *net)
{
    return tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.05));
}

static tsr_optimizer *momentum(tsr_module *net)
{
    return tsr_sgd(
        net, TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 1e-3));
}

static tsr_optimizer *adam(tsr_module *net)
{
    return tsr_adam(net, TSR_ADAM_OPTS(.lr = 0.01));
}

static tsr_optimizer *rmsprop(tsr_module *net)
{
    return tsr_rmsprop(net, TSR_RMSPROP_OPTS(.lr = 0.01, .momentum = 0.5, .centered = true));
}

static make_fn *const optimizers[] = {sgd, momentum, adam, rmsprop};
enum { OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

/* A case: an optimizer, and what is done to its parameters and gradients. */
typedef struct training {
    make_fn *make;
    bool split, clips; /* parameters in S(0); gradients are clipped */
} training;

static tsr_status compile(tsr_world *w, const training *t, tsr_module *net, unsigned no_fusion,
                          tsr_plan **out_plan)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(BATCH, INPUTS), p, TSR_B);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(BATCH), p, TSR_B);
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(net, x), y, TSR_MEAN);
    tsr_minimize_with(t->make(net), 1, &loss, TSR_MINIMIZE_OPTS(.clip_norm = t->clips ? 0.5 : 0));
    tsr_output(g, "loss", loss, p, TSR_B);
    const tsr_status status =
        tsr_compile_with(g, TSR_COMPILE_OPTS(.no_fusion = no_fusion), out_plan);
    tsr_graph_destroy(g);
    return status;
}

/* A trained net: its losses, and one parameter behind the other. */
typedef struct outcome {
    double loss[STEPS];
    float *values;
    size_t n, bytes; /* values; of the plan's block */
} outcome;

static tsr_status keep_variable(tsr_variable *v, const char *name, void *arg)
{
    outcome *o = arg;
    int64_t n = 1;
    for (int i = 0; i < tsr_variable_dims(v).ndim; i++)
        n *= tsr_variable_dims(v).d[i];
    CHECK(name && o->n + (size_t)n <= 2 * MOST);
    TRY(tsr_variable_get(v, o->values + o->n, (size_t)n * sizeof *o->values));
    o->n += (size_t)n;
    return TSR_OK;
}

static tsr_status train(tsr_world *w, const training *t, unsigned no_fusion, outcome *o)
{
    static float x[BATCH * INPUTS];
    static int64_t y[BATCH];
    tsr_plan *plan;
    tsr_plan_info info = {.size = sizeof info};
    tsr_module *net = tsr_mlp(w, tsr_placement_parse(w, "cpu"), t->split ? TSR_S(0) : TSR_B,
                              TSR_MLP_OPTS(.inputs = INPUTS, .hidden = HIDDEN, .layers = 3,
                                           .outputs = CLASSES, .seed = 5));
    TRY(compile(w, t, net, no_fusion, &plan));
    for (int i = 0; i < BATCH * INPUTS && tsr_world_rank(w) == 0; i++)
        x[i] = (float)(i * 7919 % 10007) / 10007;
    for (int i = 0; i < BATCH && tsr_world_rank(w) == 0; i++)
        y[i] = i * 3 % CLASSES;
    TRY(tsr_world_barrier(w));
    TRY(tsr_feed(plan, "x", x, sizeof x));
    TRY(tsr_feed(plan, "y", y, sizeof y));
    for (int i = 0; i < STEPS; i++) {
        TRY(tsr_run(plan));
        TRY(tsr_fetch_scalar(plan, "loss", &o->loss[i]));
    }
    TRY(tsr_plan_get_info(plan, &info));
    o->bytes = info.activation_bytes;
    TRY(tsr_module_visit(net, keep_variable, o));
    tsr_plan_destroy(plan);
    tsr_module_destroy(net);
    return TSR_OK;
}

static tsr_status compare(tsr_world *w, void *arg)
{
    const training *t = arg;
    outcome fused = {.values = malloc(2 * MOST * sizeof(float))};
    outcome apart = {.values = malloc(2 * MOST * sizeof(float))};
    CHECK(fused.values && apart.values);
    TRY(train(w, t, 0, &fused));
    TRY(train(w, t, TSR_FUSE_UPDATES, &apart));
    CHECK(fused.n == apart.n && fused.n > HIDDEN * (INPUTS + HIDDEN));
    for (int i = 0; i < STEPS; i++)
        CHECK(fused.loss[i] == apart.loss[i] && isfinite(fused.loss[i]));
    CHECK(fused.loss[STEPS - 1] != fused.loss[0]);
    CHECK(!memcmp(fused.values, apart.values, fused.n * sizeof *fused.values));
    /* Gradients wait for no update where nothing else is done with them. */
    if (tsr_world_size(w) == 1)
        CHECK(t->clips ? fused.bytes == apart.bytes : fused.bytes < apart.bytes);
    free(fused.values);
    free(apart.values);
    return TSR_OK;
}

static void test_optimizers(void **state)
{
    (void)state;
    for (int i = 0; i < OPTIMIZERS; i++) {
        training t = {.make = optimizers[i]};
        on_ranks(compare, &t);
    }
}

static void test_split(void **state)
{
    (void)state;
    training t = {.make = momentum, .split = true};
    on_ranks(compare, &t);
}

static void test_clipped(void **state)
{
    (void)state;
    training t = {.make = momentum, .clips = true};
    on_ranks(compare, &t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_clipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
