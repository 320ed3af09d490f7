/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training in f16 and bf16 on CPUs, with parameters in f32 that are cast where they are used: the
 * losses of some steps are those of f32, within what the dtype can hold, on 1 to 4 ranks, whose
 * rows are uneven.
 */
#include "../rank.h"

enum { ROWS = 22, IN = 24, HIDDEN = 40, CLASSES = 6, STEPS = 8 };

static tsr_tensor *use(tsr_module *m, const char *name, tsr_dtype dtype, tsr_tensor *x)
{
    return tsr_cast(tsr_use(m, name, x), dtype);
}

static tsr_module *make_net(tsr_world *w)
{
    tsr_nn_opts nn = {.placement = tsr_placement_parse(w, "cpu"), .sbp = TSR_B, .dtype = TSR_F32};
    tsr_module *m = tsr_module_create(w, &nn, NULL, NULL, NULL);
    const tsr_init normal = {.kind = TSR_INIT_NORMAL, .a = 0, .b = 0.2};
    tsr_module_param(m, "first", TSR_DIMS(HIDDEN, IN), TSR_B, normal);
    tsr_module_param(m, "gamma", TSR_DIMS(HIDDEN), TSR_B,
                     (tsr_init){.kind = TSR_INIT_CONSTANT, .a = 1});
    tsr_module_param(m, "beta", TSR_DIMS(HIDDEN), TSR_B,
                     (tsr_init){.kind = TSR_INIT_CONSTANT, .a = 0});
    tsr_module_param(m, "last", TSR_DIMS(CLASSES, HIDDEN), TSR_B, normal);
    return m;
}

/* A layer, its norm, gelu, attention of the batch's rows among themselves, and a classifier. */
static tsr_tensor *apply_net(tsr_module *m, tsr_dtype d, tsr_tensor *x)
{
    tsr_tensor *h = tsr_linear(tsr_cast(x, d), use(m, "first", d, x), NULL);
    h = tsr_layer_norm(h, use(m, "gamma", d, x), use(m, "beta", d, x), NULL);
    h = tsr_gelu(h, TSR_GELU_ERF);
    tsr_tensor *weights =
        tsr_softmax(tsr_mul_scalar(tsr_matmul(h, tsr_transpose(h, 0, 1)), 0.1), 1);
    h = tsr_add(h, tsr_matmul(weights, h));
    return tsr_cast(tsr_linear(h, use(m, "last", d, x), NULL), TSR_F32);
}

static tsr_status train(tsr_world *w, tsr_dtype dtype, double loss[STEPS])
{
    tsr_module *m = make_net(w);
    tsr_optimizer *opt = tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.2, .momentum = 0.5));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    const tsr_placement *cpu = tsr_placement_parse(w, "cpu");
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(ROWS, IN), cpu, TSR_S(0));
    tsr_tensor *label = tsr_input(g, "label", TSR_I64, TSR_DIMS(ROWS), cpu, TSR_S(0));
    tsr_tensor *e = tsr_cross_entropy(apply_net(m, dtype, x), label, TSR_MEAN);
    tsr_minimize(opt, e);
    tsr_output(g, "loss", e, NULL, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    float rows[ROWS * IN];
    int64_t labels[ROWS];
    for (int i = 0; i < ROWS * IN; i++)
        rows[i] = (float)(i * 37 % 101) * 0.02f - 1;
    for (int i = 0; i < ROWS; i++)
        labels[i] = i * 5 % CLASSES;
    TRY(tsr_feed(plan, "x", rows, sizeof rows));
    TRY(tsr_feed(plan, "label", labels, sizeof labels));
    for (int i = 0; i < STEPS; i++) {
        TRY(tsr_run(plan));
        TRY(tsr_fetch_scalar(plan, "loss", &loss[i]));
    }
    return TSR_OK;
}

static tsr_status compare_losses(tsr_world *w, void *arg)
{
    double *alone = arg; /* of a rank that is alone; each dtype's */
    const tsr_dtype dtypes[3] = {TSR_F32, TSR_F16, TSR_BF16};
    const double limit[3] = {1e-5, 4e-3, 3e-2}; /* 8 units in the last place */
    double loss[3][STEPS];
    for (int d = 0; d < 3; d++) {
        TRY(train(w, dtypes[d], loss[d]));
        CHECK(loss[d][STEPS - 1] < 0.8 * loss[d][0]);
        for (int i = 0; i < STEPS; i++) {
            CHECK(near_to(loss[d][i], loss[0][i], limit[d]));
            if (tsr_world_size(w) > 1)
                CHECK(near_to(loss[d][i], alone[d * STEPS + i], limit[d]));
            else
                alone[d * STEPS + i] = loss[d][i];
        }
    }
    /* Values that are rounded to 8 bits differ from those of f32. */
    CHECK(loss[2][0] != loss[0][0]);
    return TSR_OK;
}

static void test_training(void **state)
{
    (void)state;
    double alone[3 * STEPS];
    for (int ranks = 1; ranks <= 4; ranks++)
        if (tsr_spawn(ranks, compare_losses, alone) != TSR_OK)
            fail_msg("%d ranks: %s", ranks, tsr_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_training)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
