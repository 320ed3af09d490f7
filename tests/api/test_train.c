/* SPDX-License-Identifier: Apache-2.0 */
/* Modules, optimizers, weights and loaders by the public API alone, on 1, 2 and 3 thread ranks. One
 * linear layer with two inputs, so that its training is a few lines of plain C. */
#include "rank.h"

#include <unistd.h>

enum { ROWS = 5 };
static const double xs[ROWS][2] = {{1, 2}, {-1, 0.5}, {0.25, -2}, {3, 1}, {0, 1}};
static const double ys[ROWS] = {1, -2, 0.5, 0, 4};

/* --- a module of the user's own: y = scale * (x w^T + b) -------------------------------------- */
typedef struct scaled {
    double scale;
    int *freed;
} scaled;

static tsr_tensor *scaled_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const scaled *s = arg;
    tsr_tensor *y = tsr_linear(x, tsr_use(m, "w", x), tsr_use(m, "b", x));
    return tsr_mul_scalar(y, s->scale);
}

static void scaled_free(void *arg)
{
    scaled *s = arg;
    (*s->freed)++;
    free(s);
}

static tsr_module *make_scaled(tsr_world *w, tsr_sbp sbp, double scale, int *freed)
{
    scaled *s = malloc(sizeof *s);
    if (!s)
        return NULL;
    *s = (scaled){scale, freed};
    tsr_nn_opts nn = {.placement = tsr_placement_parse(w, "cpu"), .sbp = sbp, .dtype = TSR_F64};
    tsr_module *m = tsr_module_create(w, &nn, scaled_forward, s, scaled_free);
    tsr_module_param(m, "w", TSR_DIMS(1, 2), TSR_AUTO,
                     (tsr_init){.kind = TSR_INIT_CONSTANT, .a = 0.5});
    tsr_module_param(m, "b", TSR_DIMS(1), TSR_AUTO, (tsr_init){.kind = TSR_INIT_ONES});
    tsr_module_buffer(m, "unused", TSR_DIMS(3), TSR_B, (tsr_init){.kind = TSR_INIT_ZEROS});
    return m;
}

/* What the layer gives, and one step of SGD on the mean of squares: w -= lr dw. */
static double by_hand(double w[3], double scale, double lr)
{
    double loss = 0, d[3] = {0};
    for (int i = 0; i < ROWS; i++) {
        double e = scale * (xs[i][0] * w[0] + xs[i][1] * w[1] + w[2]) - ys[i];
        loss += e * e / ROWS;
        d[0] += 2 * e * scale * xs[i][0] / ROWS;
        d[1] += 2 * e * scale * xs[i][1] / ROWS;
        d[2] += 2 * e * scale / ROWS;
    }
    for (int k = 0; k < 3; k++)
        w[k] -= lr * d[k];
    return loss;
}

static tsr_status compile_net(tsr_module *net, tsr_optimizer *opt, tsr_world *w,
                              tsr_plan **out_plan)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = opt != NULL));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(ROWS, 2), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_F64, TSR_DIMS(ROWS, 1), p, TSR_S(0));
    tsr_tensor *loss = tsr_mse_loss(tsr_apply(net, x), y, TSR_MEAN);
    if (opt)
        tsr_minimize(opt, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    tsr_status status =
        tsr_compile_with(g, TSR_COMPILE_OPTS(.bucket_mb = 1, .no_fusion = true), out_plan);
    tsr_graph_destroy(g);
    return status;
}

static tsr_status step(tsr_plan *plan, double *out_loss)
{
    TRY(tsr_feed(plan, "x", xs, sizeof xs));
    TRY(tsr_feed(plan, "y", ys, sizeof ys));
    TRY(tsr_run(plan));
    TRY(tsr_fetch_scalar(plan, "loss", out_loss));
    return TSR_OK;
}

static tsr_status count_variable(tsr_variable *v, const char *name, void *arg)
{
    int *n = arg;
    CHECK(strstr("0.w 0.b 0.unused", name) != NULL);
    CHECK(tsr_variable_trainable(v) == (strcmp(name, "0.unused") != 0));
    (*n)++;
    return TSR_OK;
}

static tsr_status train_module(tsr_world *w, void *arg)
{
    int freed = 0, variables = 0;
    double hand[3] = {0.5, 0.5, 1}, got[3], loss;
    tsr_nn_opts nn = {.placement = tsr_placement_parse(w, "cpu"), .sbp = TSR_B, .dtype = TSR_F64};
    tsr_module *net = tsr_nn_sequential(w, &nn);
    tsr_module *layer =
        tsr_module_add(net, "0", make_scaled(w, *(const tsr_sbp *)arg, 1.5, &freed));
    CHECK(layer && tsr_module_child(net, "0") == layer && tsr_module_child_at(net, 0) == layer);
    CHECK(!tsr_module_child_at(net, 1) && !tsr_module_child(net, "1"));
    CHECK(tsr_module_count(net) == 3);
    TRY(tsr_module_visit(net, count_variable, &variables));
    CHECK(variables == 3);
    tsr_variable *v = tsr_module_find(net, "0.w");
    CHECK(v && tsr_dims_equal(tsr_variable_dims(v), TSR_DIMS(1, 2)));
    CHECK(tsr_variable_dtype(v) == TSR_F64 && !tsr_module_find(net, "w"));

    tsr_optimizer *opt = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.125));
    tsr_plan *train, *eval;
    TRY(compile_net(net, opt, w, &train));
    TRY(compile_net(net, NULL, w, &eval));
    CHECK(tsr_sbp_equal(tsr_variable_sbp(v), *(const tsr_sbp *)arg));
    for (int i = 0; i < 6; i++) {
        double lr = i < 3 ? 0.125 : 0.03125, before[3];
        tsr_optimizer_set_lr(opt, lr); /* recompiles nothing */
        CHECK(tsr_optimizer_steps(opt) == i && tsr_optimizer_lr(opt) == lr);
        memcpy(before, hand, sizeof before);
        TRY(step(eval, &loss)); /* shares the parameters, changes nothing */
        CHECK(near_to(loss, by_hand(before, 1.5, 0), 1e-13));
        TRY(step(train, &loss));
        CHECK(near_to(loss, by_hand(hand, 1.5, lr), 1e-13));
        TRY(tsr_variable_get(v, got, 16));
        TRY(tsr_variable_get(tsr_module_find(net, "0.b"), got + 2, 8));
        CHECK(all_near("parameters", got, hand, 3, 1e-13));
    }
    static const double set[2] = {-1, 2};
    TRY(tsr_variable_set(v, set, sizeof set));
    TRY(tsr_variable_get(v, got, sizeof set));
    CHECK(got[0] == -1 && got[1] == 2);
    tsr_plan_destroy(train);
    tsr_plan_destroy(eval);
    tsr_optimizer_destroy(opt);
    tsr_module_destroy(net);
    CHECK(freed == 1);
    return TSR_OK;
}

static void test_module(void **state)
{
    (void)state;
    on_ranks(train_module, &TSR_B);
    on_ranks(train_module, &TSR_S(0)); /* of (1, 2): ranks 1 and 2 have nothing */
}

/* One Adam step moves a parameter by lr g / (|g| + eps'): nearly lr, against the gradient's sign.
 */
static tsr_status adam_step(tsr_world *w, void *arg)
{
    bool decoupled = *(const bool *)arg;
    int freed = 0;
    double loss, got[2], hand[3] = {0.5, 0.5, 1};
    tsr_module *net = make_scaled(w, TSR_B, 1, &freed);
    const tsr_adam_opts *o = TSR_ADAM_OPTS(.lr = 0.1, .weight_decay = decoupled ? 0.5 : 0);
    tsr_optimizer *opt = decoupled ? tsr_adamw(net, o) : tsr_adam(net, o);
    tsr_plan *plan;
    TRY(compile_net(net, opt, w, &plan));
    TRY(step(plan, &loss));
    CHECK(near_to(loss, by_hand(hand, 1, 1), 1e-13)); /* hand: minus the gradient */
    TRY(tsr_variable_get(tsr_module_find(net, "w"), got, sizeof got));
    for (int i = 0; i < 2; i++) {
        double want = 0.5 * (decoupled ? 1 - 0.1 * 0.5 : 1) + (hand[i] > 0.5 ? 0.1 : -0.1);
        CHECK(near_to(got[i], want, 1e-7));
    }
    return TSR_OK;
}

static void test_adam(void **state)
{
    (void)state;
    on_ranks(adam_step, &(bool){false});
    on_ranks(adam_step, &(bool){true});
}

/* --- gradients -------------------------------------------------------------------------------- */
static tsr_status gradients(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x[2], *dx[2];
    x[0] = tsr_input(g, "a", TSR_F64, TSR_DIMS(ROWS, 2), p, TSR_S(0));
    x[1] = tsr_input(g, "b", TSR_F64, TSR_DIMS(2), p, TSR_B);
    tsr_gradients(tsr_mul(tsr_mul(x[0], x[0]), x[1]), 2, x, dx); /* of sum a^2 b */
    tsr_output(g, "da", dx[0], p, TSR_B);
    tsr_output(g, "db", dx[1], p, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    double b[2] = {3, -0.5}, da[ROWS][2], db[2], want[2] = {0};
    TRY(tsr_feed(plan, "a", xs, sizeof xs));
    TRY(tsr_feed(plan, "b", b, sizeof b));
    TRY(tsr_run(plan));
    TRY(tsr_fetch(plan, "da", da, sizeof da));
    TRY(tsr_fetch(plan, "db", db, sizeof db));
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < 2; j++) {
            CHECK(near_to(da[i][j], 2 * xs[i][j] * b[j], 1e-14));
            want[j] += xs[i][j] * xs[i][j];
        }
    CHECK(all_near("db", db, want, 2, 1e-14));
    return TSR_OK;
}

static void test_gradients(void **state)
{
    (void)state;
    on_ranks(gradients, NULL);
}

/* --- weights and data ------------------------------------------------------------------------- */
static tsr_status save_and_load(tsr_world *w, void *arg)
{
    const char *path = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    float a[10], b[10];
    tsr_module *one = tsr_convnet(w, p, TSR_B, TSR_CONVNET_OPTS(.seed = 1));
    tsr_module *two = tsr_convnet(w, p, TSR_S(0), TSR_CONVNET_OPTS(.seed = 2));
    TRY(tsr_variable_get(tsr_module_find(one, "fc.bias"), a, sizeof a));
    TRY(tsr_variable_get(tsr_module_find(two, "fc.bias"), b, sizeof b));
    CHECK(memcmp(a, b, sizeof a) != 0);
    TRY(tsr_save(one, path));
    TRY(tsr_load(two, path, NULL));
    TRY(tsr_variable_get(tsr_module_find(two, "fc.bias"), b, sizeof b));
    CHECK(!memcmp(a, b, sizeof a));
    return TSR_OK;
}

static void test_weights(void **state)
{
    char path[] = "/tmp/tessera-api-XXXXXX";
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    on_ranks(save_and_load, path);
    unlink(path);
}

/* Mean pixel and label of every batch, against the data set's own bytes. */
static tsr_status load_batches(tsr_world *w, void *arg)
{
    enum { BATCH = 7 };
    tsr_dataset *data;
    tsr_loader *loader;
    TRY(tsr_cifar10_open(w, arg, true, &data));
    CHECK(tsr_dataset_count(data) == 20 && tsr_dataset_channels(data) == 3);
    CHECK(tsr_dataset_height(data) == 32 && tsr_dataset_width(data) == 32);
    CHECK(tsr_dataset_classes(data) == 10);
    TRY(tsr_loader_create(w, data, TSR_LOADER_OPTS(.batch_size = BATCH, .drop_last = true),
                          &loader));
    CHECK(tsr_loader_batches(loader) == 2 && tsr_loader_epoch(loader) == 0);
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(BATCH, 3, 32, 32), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(BATCH), p, TSR_S(0));
    tsr_output(g, "mean", tsr_mean(tsr_cast(x, TSR_F64), TSR_ALL_AXES, false), p, TSR_B);
    tsr_output(g, "label", tsr_sum(tsr_cast(y, TSR_F64), TSR_ALL_AXES, false), p, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    for (int batch = 0; batch < 2; batch++) {
        double sum = 0, labels = 0, got;
        for (int i = batch * BATCH; i < (batch + 1) * BATCH; i++) {
            labels += tsr_dataset_labels(data)[i];
            for (int k = 0; k < 3072; k++)
                sum += tsr_dataset_images(data)[i * 3072 + k] / 255.0;
        }
        CHECK(tsr_loader_peek_rows(loader) == BATCH);
        TRY(tsr_loader_feed(loader, plan));
        TRY(tsr_run(plan));
        TRY(tsr_fetch_scalar(plan, "mean", &got));
        CHECK(near_to(got, sum / (BATCH * 3072), 1e-7)); /* pixels are f32 */
        TRY(tsr_fetch_scalar(plan, "label", &got));
        CHECK(got == labels);
    }
    CHECK(tsr_loader_peek_rows(loader) == 0 && tsr_loader_feed(loader, plan) == TSR_END);
    CHECK(tsr_loader_epoch(loader) == 1);
    TRY(tsr_loader_set_epoch(loader, 5));
    CHECK(tsr_loader_epoch(loader) == 5);
    tsr_loader_destroy(loader);
    tsr_dataset_destroy(data);
    return TSR_OK;
}

static void test_loader(void **state)
{
    char dir[] = "/tmp/tessera-api-XXXXXX", command[64];
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(tsr_synthetic_write_cifar10(dir, 4, 3), TSR_OK);
    on_ranks(load_batches, dir);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_module),    cmocka_unit_test(test_adam),
        cmocka_unit_test(test_gradients), cmocka_unit_test(test_weights),
        cmocka_unit_test(test_loader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
