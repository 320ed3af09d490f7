/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks whose batch has no row, in local graphs: every model trains on it, to no effect. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <tessera/collective.h>
#include <tessera/tessera.h>
#include "tests/dist/comm/rank_checks.h"

static const tsr_world_opts opts = {
    .size = sizeof opts, .arena_bytes = 256 << 20, .timeout_s = 120, .threads = 1};

/* --- models ----------------------------------------------------------------------------------- */
typedef struct model {
    const char *name;
    tsr_module *(*make)(tsr_world *w, const tsr_placement *p);
    tsr_dims image; /* of one sample */
    bool ids;
} model;

static tsr_module *make_mobilenet(tsr_world *w, const tsr_placement *p)
{
    return tsr_mobilenet_v2(
        w, p, TSR_B,
        TSR_MOBILENET_V2_OPTS(.num_classes = 10, .width = 0.25, .variant = TSR_MOBILENET_CIFAR));
}

static tsr_module *make_convnet(tsr_world *w, const tsr_placement *p)
{
    return tsr_convnet(w, p, TSR_B, NULL);
}

static tsr_module *make_mlp(tsr_world *w, const tsr_placement *p)
{
    return tsr_mlp(w, p, TSR_B, TSR_MLP_OPTS(.inputs = 12));
}

static tsr_module *make_transformer(tsr_world *w, const tsr_placement *p)
{
    return tsr_transformer(w, p, TSR_B,
                           TSR_TRANSFORMER_OPTS(.vocab = 10, .positions = 6, .width = 16,
                                                .heads = 2, .layers = 1, .dropout = 0.1));
}

static const model models[] = {
    {"mobilenet_v2", make_mobilenet, {3, {3, 16, 16}}, false},
    {"convnet", make_convnet, {3, {1, 28, 28}}, false},
    {"mlp", make_mlp, {1, {12}}, false},
    {"transformer", make_transformer, {1, {6}}, true},
};

/* --- one training step ------------------------------------------------------------------------ */
enum { MOST_VARIABLES = 400 };

typedef struct variables {
    tsr_variable *v[MOST_VARIABLES];
    float *before[MOST_VARIABLES];
    int n;
} variables;

static tsr_status collect(tsr_variable *v, const char *name, void *arg)
{
    (void)name;
    variables *b = arg;
    CHECK(b->n < MOST_VARIABLES);
    b->v[b->n++] = v;
    return TSR_OK;
}

static size_t bytes_of(const tsr_variable *v)
{
    return (size_t)tsr_dims_count(tsr_variable_dims(v)) * sizeof(float);
}

/* The values before training; or whether they are still the same: of buffers only if asked for. */
static tsr_status keep_values(variables *b)
{
    for (int i = 0; i < b->n; i++) {
        b->before[i] = malloc(bytes_of(b->v[i]) + 1);
        CHECK(b->before[i]);
        TSRI_TRY(tsr_variable_get(b->v[i], b->before[i], bytes_of(b->v[i])));
    }
    return TSR_OK;
}

static tsr_status check_values(const variables *b, bool buffers)
{
    for (int i = 0; i < b->n; i++) {
        float *now = malloc(bytes_of(b->v[i]) + 1);
        CHECK(now);
        TSRI_TRY(tsr_variable_get(b->v[i], now, bytes_of(b->v[i])));
        CHECK((!buffers && !tsr_variable_trainable(b->v[i])) ||
              !memcmp(now, b->before[i], bytes_of(b->v[i])));
        free(now);
        free(b->before[i]);
    }
    return TSR_OK;
}

static tsr_tensor *declare_loss(tsr_graph *g, const tsr_placement *p, const model *m,
                                tsr_module *net, int rows, tsr_tensor **out_y)
{
    tsr_dims dims = {1 + m->image.ndim, {rows}};
    for (int i = 0; i < m->image.ndim; i++)
        dims.d[1 + i] = m->image.d[i];
    tsr_tensor *x = tsr_input(g, "x", m->ids ? TSR_I64 : TSR_F32, dims, p, TSR_B);
    tsr_tensor *y = tsr_apply(net, x);
    int64_t labelled = m->ids ? rows * m->image.d[0] : rows;
    tsr_tensor *labels = tsr_input(g, "labels", TSR_I64, TSR_DIMS(labelled), p, TSR_B);
    if (m->ids)
        y = tsr_reshape(y, TSR_DIMS(labelled, 10));
    *out_y = y;
    return tsr_cross_entropy(y, labels, TSR_MEAN);
}

static tsr_status feed(tsr_plan *plan, const model *m, int rows)
{
    int64_t each = tsr_dims_count(m->image), count = rows * each, labelled = m->ids ? count : rows;
    float *x = malloc((size_t)count * sizeof *x + 1);
    int64_t *ids = malloc((size_t)(count + rows) * sizeof *ids + 1);
    CHECK(x && ids);
    for (int64_t i = 0; i < count; i++)
        x[i] = sinf(0.3f * (float)i);
    for (int64_t i = 0; i < count + rows; i++)
        ids[i] = (3 * i + 1) % 10;
    tsr_status status = m->ids ? tsr_feed(plan, "x", ids, (size_t)count * sizeof *ids)
                               : tsr_feed(plan, "x", x, (size_t)count * sizeof *x);
    if (status == TSR_OK)
        status = tsr_feed(plan, "labels", ids, (size_t)labelled * sizeof *ids);
    free(x);
    free(ids);
    return status;
}

enum { STEPS = 3 };

/* Trains on `rows` rows, the same each step, and evaluates them. */
static tsr_status train(tsr_world *w, const model *m, tsr_module *net, int rows, double *losses)
{
    const tsr_placement *p = tsr_local_placement(w);
    tsr_optimizer *opt = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9));
    tsr_plan *plan;
    tsr_tensor *y;
    tsr_dims shard;
    for (int training = 1; training >= 0; training--) {
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = training, .local = true));
        tsr_tensor *loss = declare_loss(g, p, m, net, rows, &y);
        if (training)
            tsr_minimize(opt, loss);
        tsr_output(g, "loss", loss, p, TSR_B);
        tsr_output(g, "y", y, p, TSR_B);
        TSRI_TRY(tsr_compile(g, &plan));
        TSRI_TRY(feed(plan, m, rows));
        for (int i = 0; i < (training ? STEPS : 1); i++) {
            TSRI_TRY(tsr_run(plan));
            TSRI_TRY(tsr_fetch_scalar(plan, "loss", &losses[training ? i : STEPS]));
        }
        TSRI_TRY(tsr_fetch_shard(plan, "y", NULL, 0, &shard));
        CHECK(shard.d[0] == rows * (m->ids ? m->image.d[0] : 1) && shard.d[1] == 10);
        tsr_plan_destroy(plan);
    }
    return TSR_OK;
}

/* Rank 0 has rows, the others have none. */
static tsr_status own_batches(tsr_world *w, void *arg)
{
    const model *m = arg;
    int rows = tsr_world_rank(w) == 0 ? 3 : 0;
    double losses[STEPS + 1];
    variables vars = {.n = 0};
    tsr_module *net = m->make(w, tsr_local_placement(w));
    TSRI_TRY(tsr_module_set_local(net));
    TSRI_TRY(tsr_module_visit(net, collect, &vars));
    TSRI_TRY(keep_values(&vars));
    TSRI_TRY(train(w, m, net, rows, losses));
    for (int i = 0; i <= STEPS; i++)
        CHECK(rows ? losses[i] > 0 && isfinite(losses[i]) : losses[i] == 0);
    if (rows) {
        CHECK(losses[1] != losses[0]);
        for (int i = 0; i < vars.n; i++)
            free(vars.before[i]);
        return TSR_OK;
    }
    return check_values(&vars, true);
}

static void test_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        model m = models[i];
        tsr_status status = tsr_spawn_with(2, own_batches, &m, &opts);
        if (status != TSR_OK)
            fail_msg("%s: %s: %s", m.name, tsr_status_name(status), tsr_last_error());
    }
}

/* Means of nothing are 0, and give no gradient that is not a number. */
static tsr_status losses_of_nothing(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_local_placement(w);
    const tsr_cross_entropy_opts *ignoring =
        TSR_CROSS_ENTROPY_OPTS(.label_smoothing = 0.1, .has_ignore_index = true, .ignore_index = 1);
    for (int kind = 0; kind < 3; kind++) {
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
        tsr_tensor *b = tsr_full(g, TSR_F64, TSR_DIMS(3), p, TSR_B, 2), *db;
        tsr_tensor *x = tsr_add(tsr_full(g, TSR_F64, TSR_DIMS(0, 3), p, TSR_B, 1), b);
        tsr_tensor *labels = tsr_full(g, TSR_I64, TSR_DIMS(0), p, TSR_B, 0);
        tsr_tensor *loss = kind == 0   ? tsr_cross_entropy(x, labels, TSR_MEAN)
                           : kind == 1 ? tsr_cross_entropy_with(x, labels, ignoring)
                                       : tsr_mse_loss(x, x, TSR_MEAN);
        tsr_plan *plan;
        double value, grad[3];
        tsr_gradients(loss, 1, &b, &db);
        tsr_output(g, "loss", loss, p, TSR_B);
        tsr_output(g, "db", db, p, TSR_B);
        TSRI_TRY(tsr_compile(g, &plan));
        TSRI_TRY(tsr_run(plan));
        TSRI_TRY(tsr_fetch_scalar(plan, "loss", &value));
        TSRI_TRY(tsr_fetch(plan, "db", grad, sizeof grad));
        CHECK(value == 0 && grad[0] == 0 && grad[1] == 0 && grad[2] == 0);
    }
    return TSR_OK;
}

static void test_losses(void **state)
{
    (void)state;
    tsr_status status = tsr_spawn_with(1, losses_of_nothing, NULL, &opts);
    if (status != TSR_OK)
        fail_msg("%s: %s", tsr_status_name(status), tsr_last_error());
}

/* --- batch norm over ranks that have nothing -------------------------------------------------- */
typedef struct joined {
    model m;
    double losses[3][STEPS + 1];
    float running[3][64];
} joined;

/* What rank 0 does with ranks that have no row is what it does alone; theirs are its averages. */
static tsr_status joined_batches(tsr_world *w, void *arg)
{
    joined *j = arg;
    int rank = tsr_world_rank(w), rows = rank == 0 ? 3 : 0;
    double alone[STEPS + 1], *losses = j->losses[rank];
    variables vars = {.n = 0};
    tsr_module *net = j->m.make(w, tsr_local_placement(w));
    TSRI_TRY(tsr_module_set_local(net));
    TSRI_TRY(tsr_module_visit(net, collect, &vars));
    TSRI_TRY(keep_values(&vars));
    TSRI_TRY(tsr_convert_sync_batchnorm(net, tsr_world_group(w)));
    TSRI_TRY(train(w, &j->m, net, rows, losses));
    for (int i = 0; i < vars.n; i++)
        if (!tsr_variable_trainable(vars.v[i])) {
            CHECK(bytes_of(vars.v[i]) <= sizeof j->running[rank]);
            TSRI_TRY(tsr_variable_get(vars.v[i], j->running[rank], bytes_of(vars.v[i])));
            break;
        }
    if (rows == 0)
        return check_values(&vars, false);
    for (int i = 0; i < vars.n; i++)
        free(vars.before[i]);
    tsr_module *plain = j->m.make(w, tsr_local_placement(w));
    TSRI_TRY(train(w, &j->m, plain, rows, alone));
    for (int i = 0; i <= STEPS; i++)
        CHECK(fabs(losses[i] - alone[i]) < 1e-3 * alone[i]);
    CHECK(fabs(losses[0] - alone[0]) < 1e-6 * alone[0]);
    return TSR_OK;
}

static void test_joined(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        joined *j = calloc(1, sizeof *j);
        assert_non_null(j);
        j->m = models[i];
        tsr_status status = tsr_spawn_with(3, joined_batches, j, &opts);
        if (status != TSR_OK)
            fail_msg("%s: %s: %s", j->m.name, tsr_status_name(status), tsr_last_error());
        assert_true(j->running[0][0] != 0);
        for (int r = 1; r < 3; r++) {
            assert_memory_equal(j->running[r], j->running[0], sizeof j->running[0]);
            for (int s = 0; s <= STEPS; s++)
                assert_true(j->losses[r][s] == 0);
        }
        free(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
