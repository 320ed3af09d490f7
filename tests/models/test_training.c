/* SPDX-License-Identifier: Apache-2.0 */
/* One meaning on any placement: losses, final parameters, buffers and evaluation of a few training
 * steps in f64 are the same on 1 to 4 ranks, with parameters broadcast or split. */
#include "rank_train.h"

enum { STEPS = 4 };

typedef enum model_kind { CONVNET, MLP, NORM } model_kind;
typedef enum optimizer_kind { SGD, ADAM, ADAMW } optimizer_kind;

typedef struct run_spec {
    model_kind model;
    optimizer_kind optimizer;
    tsr_sbp params, data;
    int batch, parts; /* parts of NORM: R of TSR_BN_LOCAL, 0: global statistics */
    bool fewer;       /* the placement leaves out the last rank */
    /* Written by rank 0. */
    double losses[STEPS], eval_loss;
    flat_state state;
} run_spec;

enum { SIZE = 8 }; /* of the images: (batch, 3, SIZE, SIZE) */

static void fill_batch(double *x, int64_t *y, int batch, int number)
{
    for (int i = 0; i < batch; i++)
        y[i] = (int64_t)(10 * noise((uint64_t)(1000 * number + i)));
    for (int i = 0; i < batch * 3 * SIZE * SIZE; i++)
        x[i] =
            noise((uint64_t)(i + 100000 * (number + 1))) + 0.05 * (double)y[i / (3 * SIZE * SIZE)];
}

static tsr_module *make_model(tsr_world *w, const tsr_placement *p, const run_spec *r)
{
    tsr_nn_opts nn = {.placement = p, .sbp = r->params, .dtype = TSR_F64, .seed = 9};
    if (r->model == CONVNET)
        return tsr_convnet(w, p, r->params,
                           TSR_CONVNET_OPTS(.channels = 3, .height = SIZE, .width = SIZE,
                                            .dtype = TSR_F64, .seed = 9));
    if (r->model == MLP)
        return tsr_mlp(w, p, r->params,
                       TSR_MLP_OPTS(.inputs = 3 * SIZE * SIZE, .hidden = 21, .layers = 3,
                                    .dtype = TSR_F64, .seed = 9));
    tsr_module *net = tsr_nn_sequential(w, &nn);
    tsr_module_add(net, "conv", tsr_nn_conv2d(w, &nn, 3, 7, SIZE, true, NULL));
    tsr_module_add(
        net, "bn",
        tsr_nn_batch_norm(w, &nn, 7,
                          TSR_BATCH_NORM_OPTS(.stats = r->parts ? TSR_BN_LOCAL : TSR_BN_GLOBAL,
                                              .parts = r->parts)));
    tsr_module_add(net, "relu", tsr_nn_relu(w, &nn));
    tsr_module_add(net, "fc",
                   tsr_mlp(w, p, r->params,
                           TSR_MLP_OPTS(.inputs = 7, .layers = 1, .dtype = TSR_F64, .seed = 9)));
    return net;
}

static tsr_optimizer *make_optimizer(tsr_module *net, optimizer_kind kind)
{
    const tsr_schedule warm = {.kind = TSR_SCHEDULE_COSINE, .warmup = 2, .steps = 10};
    if (kind == SGD)
        return tsr_sgd(
            net, TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 1e-3));
    const tsr_adam_opts *o = TSR_ADAM_OPTS(.lr = 5e-3, .eps = 1e-4, .schedule = warm);
    return kind == ADAM ? tsr_adam(net, o) : tsr_adamw(net, o);
}

static tsr_status compile_run(tsr_world *w, const tsr_placement *p, const run_spec *r,
                              tsr_module *net, tsr_optimizer *opt, tsr_plan **out_plan)
{
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = opt != NULL));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(r->batch, 3, SIZE, SIZE), p, r->data);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(r->batch), p, TSR_AUTO);
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(net, x), y, TSR_MEAN);
    if (opt)
        tsr_minimize(opt, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    tsr_status status = tsr_compile(g, out_plan);
    tsr_graph_destroy(g);
    return status;
}

static tsr_status run_once(tsr_plan *plan, const run_spec *r, int number, bool here,
                           double *out_loss)
{
    double x[16 * 3 * SIZE * SIZE];
    int64_t y[16];
    CHECK(r->batch <= 16);
    fill_batch(x, y, r->batch, number);
    TRY(tsr_feed(plan, "x", x, (size_t)r->batch * 3 * SIZE * SIZE * sizeof *x));
    TRY(tsr_feed(plan, "y", y, (size_t)r->batch * sizeof *y));
    TRY(tsr_run(plan));
    if (here)
        TRY(tsr_fetch_scalar(plan, "loss", out_loss));
    return TSR_OK;
}

static tsr_status train(tsr_world *w, void *arg)
{
    run_spec *r = arg;
    int n = tsr_world_size(w), rank = tsr_world_rank(w), ranks[4] = {0, 1, 2, 3};
    n -= r->fewer;
    const tsr_placement *p = tsr_placement_create(w, TSR_DEVICE_CPU, 1, &n, ranks);
    tsr_module *net = make_model(w, p, r);
    tsr_optimizer *opt = make_optimizer(net, r->optimizer);
    tsr_plan *plan, *eval;
    double losses[STEPS], eval_loss = 0;
    TRY(compile_run(w, p, r, net, opt, &plan));
    TRY(compile_run(w, p, r, net, NULL, &eval));
    for (int i = 0; i < STEPS; i++)
        TRY(run_once(plan, r, 0, rank < n, &losses[i])); /* one batch, so that the loss falls */
    TRY(run_once(eval, r, 1, rank < n, &eval_loss));
    flat_state s = {0};
    TRY(tsr_module_visit(net, append_variable, &s));
    if (rank == 0) {
        memcpy(r->losses, losses, sizeof losses);
        r->eval_loss = eval_loss;
        r->state = s;
    } else {
        free(s.values);
    }
    return TSR_OK;
}

static run_spec run_on(int ranks, run_spec r)
{
    tsr_status status = tsr_spawn(ranks, train, &r);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s: %s", ranks, tsr_status_name(status), tsr_last_error());
    return r;
}

static void compare(int ranks, run_spec spec, const run_spec *want)
{
    char text[TSR_SBP_TEXT_MAX];
    run_spec got = run_on(ranks, spec);
    assert_true(got.state.count == want->state.count);
    bool same = all_near("loss", got.losses, want->losses, STEPS, 1e-9) &&
                all_near("evaluation", &got.eval_loss, &want->eval_loss, 1, 1e-9) &&
                all_near("state", got.state.values, want->state.values, got.state.count, 1e-9);
    if (!same)
        fail_msg("model %d, optimizer %d, %d ranks, parameters %s", (int)spec.model,
                 (int)spec.optimizer, ranks, tsr_sbp_format(spec.params, text));
    free(got.state.values);
}

static void on_all_ranks(model_kind model, optimizer_kind optimizer)
{
    run_spec spec = {
        .model = model, .optimizer = optimizer, .params = TSR_B, .data = TSR_S(0), .batch = 10};
    run_spec want = run_on(1, spec);
    assert_true(want.losses[STEPS - 1] < want.losses[0]); /* it does train */
    for (int n = 1; n <= 4; n++)
        for (int split = 0; split < 2; split++) {
            spec.params = split ? TSR_S(0) : TSR_B;
            compare(n, spec, &want);
        }
    spec.data = TSR_B;
    compare(3, spec, &want);
    spec.data = TSR_S(1);
    compare(2, spec, &want);
    spec.data = TSR_S(0);
    spec.fewer = true;
    compare(3, spec, &want);
    free(want.state.values);
}

static void test_convnet(void **state)
{
    (void)state;
    on_all_ranks(CONVNET, SGD);
    on_all_ranks(CONVNET, ADAM);
    on_all_ranks(CONVNET, ADAMW);
}

static void test_mlp(void **state)
{
    (void)state;
    on_all_ranks(MLP, SGD);
    on_all_ranks(MLP, ADAM);
    on_all_ranks(MLP, ADAMW);
}

/* R = 3 virtual batches of 3, 2, 2 rows on 1 to 4 ranks: one meaning, and not that of R = 1. */
static void test_local_batch_norm(void **state)
{
    (void)state;
    run_spec spec = {.model = NORM, .params = TSR_B, .data = TSR_S(0), .batch = 7, .parts = 3};
    run_spec want = run_on(1, spec);
    for (int n = 2; n <= 4; n++)
        compare(n, spec, &want);
    spec.params = TSR_S(0);
    compare(3, spec, &want);
    spec.parts = 0;
    run_spec global = run_on(3, spec);
    assert_false(near_to(global.losses[0], want.losses[0], 1e-3));
    free(global.state.values);
    free(want.state.values);
}

/* --- the meaning of R parts, and of evaluation, by plain C ------------------------------------ */
typedef struct norm_spec {
    int rows, parts;
} norm_spec;

static tsr_status norm_plan(tsr_world *w, tsr_module *bn, int rows, bool training, tsr_plan **plan)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = training));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(rows, 2), p, TSR_S(0));
    tsr_output(g, "y", tsr_apply(bn, x), p, TSR_B);
    TRY(tsr_compile(g, plan));
    tsr_graph_destroy(g);
    return TSR_OK;
}

/* y of x (rows,2): each part by its own mean and biased variance; the running averages move by 0.25
 * towards the first part's mean and unbiased variance. */
static void norm_by_hand(const norm_spec *s, const double *x, double *y, double *mean, double *var)
{
    for (int part = s->parts; part-- > 0;) {
        int64_t first, n;
        tsr_balanced_split(s->rows, s->parts, part, &first, &n);
        for (int c = 0; c < 2; c++) {
            double m = 0, v = 0;
            for (int64_t i = first; i < first + n; i++)
                m += x[2 * i + c] / (double)n;
            for (int64_t i = first; i < first + n; i++)
                v += (x[2 * i + c] - m) * (x[2 * i + c] - m) / (double)n;
            for (int64_t i = first; i < first + n; i++)
                y[2 * i + c] = (x[2 * i + c] - m) / sqrt(v + 1e-5);
            if (part == 0) {
                mean[c] = 0.75 * mean[c] + 0.25 * m;
                var[c] = 0.75 * var[c] + 0.25 * v * (double)n / (double)(n - 1);
            }
        }
    }
}

static tsr_status norm_steps(tsr_world *w, void *arg)
{
    const norm_spec *s = arg;
    double x[32], want[32], got[32], mean[2] = {0, 0}, var[2] = {1, 1};
    tsr_nn_opts nn = {.placement = tsr_placement_parse(w, "cpu"), .sbp = TSR_B, .dtype = TSR_F64};
    tsr_module *bn = tsr_nn_batch_norm(
        w, &nn, 2,
        TSR_BATCH_NORM_OPTS(.momentum = 0.25, .stats = s->parts > 1 ? TSR_BN_LOCAL : TSR_BN_GLOBAL,
                            .parts = s->parts > 1 ? s->parts : 0));
    tsr_plan *train, *eval;
    size_t bytes = (size_t)s->rows * 2 * sizeof *x;
    TRY(norm_plan(w, bn, s->rows, true, &train));
    TRY(norm_plan(w, bn, s->rows, false, &eval));
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < 2 * s->rows; i++)
            x[i] = 3 * noise((uint64_t)(i + 100 * step)) + i % 2;
        norm_by_hand(s, x, want, mean, var);
        TRY(tsr_feed(train, "x", x, bytes));
        TRY(tsr_run(train));
        TRY(tsr_fetch(train, "y", got, bytes));
        CHECK(all_near("training", got, want, 2 * s->rows, 1e-12));
        for (int i = 0; i < 2 * s->rows; i++)
            want[i] = (x[i] - mean[i % 2]) / sqrt(var[i % 2] + 1e-5);
        TRY(tsr_feed(eval, "x", x, bytes));
        TRY(tsr_run(eval));
        TRY(tsr_fetch(eval, "y", got, bytes));
        CHECK(all_near("evaluation", got, want, 2 * s->rows, 1e-12));
    }
    return TSR_OK;
}

static void test_running_averages(void **state)
{
    (void)state;
    on_ranks(norm_steps, &(norm_spec){7, 1});
    on_ranks(norm_steps, &(norm_spec){7, 2});
    on_ranks(norm_steps, &(norm_spec){7, 3});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convnet),
        cmocka_unit_test(test_mlp),
        cmocka_unit_test(test_local_batch_norm),
        cmocka_unit_test(test_running_averages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
