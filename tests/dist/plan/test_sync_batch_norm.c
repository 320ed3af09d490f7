/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm over the ranks of local graphs. The oracle is batch norm of a program of all ranks on
 * the concatenated batch, which takes its statistics over all of it; and finite differences.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <tessera/ddp.h>
#include <tessera/tessera.h>
#include "tests/dist/comm/rank_checks.h"
#include "src/graph/graph.h"

enum { RANKS = 4, C = 3, H = 4, W = 5, CLASSES = 4, ROWS = 12, PARAMS = 12, PARAM_ELEMENTS = 256 };
enum { IMAGE = C * H * W, RUNS = 2 };

static const tsr_world_opts opts = {
    .size = sizeof opts, .arena_bytes = 128 << 20, .timeout_s = 60, .threads = 1};

/* --- what is compared ------------------------------------------------------------------------- */
/* Of all runs; of parameters one after the other, in the module's order. */
typedef struct results {
    double loss[RUNS];
    double dx[ROWS * IMAGE];
    double params[PARAMS * PARAM_ELEMENTS]; /* gradients of parameters */
    double buffers[PARAMS * C * 4];         /* running averages after all runs */
} results;

typedef struct task {
    int rows[RANKS], n, total; /* of each rank's batch */
    bool flat;                 /* (n, c) data */
    double level;              /* which is added to it */
    results global, local[RANKS];
} task;

static double value_at(int64_t i)
{
    return sin(0.37 * (double)i) + 0.2 * cos(1.3 * (double)i) + 3;
}

static int64_t label_at(int64_t i)
{
    return (i * i + 1) % CLASSES;
}

/* conv, bn, relu, conv, bn, pooling, linear; or bn, linear. */
static tsr_tensor *forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    bool flat = !tsr_module_child(m, "conv0");
    if (!flat) {
        x = tsr_relu(
            tsr_apply(tsr_module_child(m, "bn0"), tsr_apply(tsr_module_child(m, "conv0"), x)));
        x = tsr_apply(tsr_module_child(m, "bn1"), tsr_apply(tsr_module_child(m, "conv1"), x));
        x = tsr_flatten(tsr_adaptive_avg_pool2d(x, 1, 1), 1);
    } else {
        x = tsr_apply(tsr_module_child(m, "bn0"), x);
    }
    return tsr_apply(tsr_module_child(m, "fc"), x);
}

static tsr_module *make_net(tsr_world *w, const tsr_placement *p, bool flat, int64_t classes)
{
    const tsr_nn_opts o = {.placement = p, .dtype = TSR_F64, .seed = 3};
    const tsr_conv2d_opts *conv = TSR_CONV2D_OPTS(.padding = {1, 1});
    const tsr_batch_norm_opts *bn = TSR_BATCH_NORM_OPTS(.momentum = 0.3);
    tsr_module *m = tsr_module_create(w, &o, forward, NULL, NULL);
    int64_t channels = flat ? IMAGE : C;
    if (!flat)
        tsr_module_add(m, "conv0", tsr_nn_conv2d(w, &o, C, C, 3, false, conv));
    tsr_module_add(m, "bn0", tsr_nn_batch_norm(w, &o, channels, bn));
    if (!flat) {
        tsr_module_add(m, "conv1", tsr_nn_conv2d(w, &o, C, C, 3, true, conv));
        tsr_module_add(m, "bn1", tsr_nn_batch_norm(w, &o, C, NULL));
    }
    tsr_module_add(m, "fc", tsr_nn_linear(w, &o, channels, classes, true));
    return m;
}

/* --- the programs ----------------------------------------------------------------------------- */
typedef struct collected {
    tsr_variable *v[PARAMS];
    int n;
    bool trainable;
} collected;

static tsr_status collect(tsr_variable *v, const char *name, void *arg)
{
    (void)name;
    collected *c = arg;
    if (tsr_variable_trainable(v) == c->trainable)
        c->v[c->n++] = v;
    return TSR_OK;
}

/* Declares loss = sum of cross entropies / all rows, and its gradients, as outputs. */
static tsr_status declare(tsr_graph *g, tsr_module *net, tsr_tensor *x, tsr_tensor *labels,
                          int total, const collected *params)
{
    tsr_tensor *of[PARAMS + 1] = {x}, *grads[PARAMS + 1];
    char name[32];
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(net, x), labels, TSR_SUM);
    loss = tsr_div_scalar(loss, total);
    for (int i = 0; i < params->n; i++)
        of[1 + i] = tsri_graph_read(g, params->v[i], (tsri_loc){TSR_HERE});
    tsr_gradients(loss, 1 + params->n, of, grads);
    tsr_output(g, "loss", loss, NULL, TSR_B);
    for (int i = 0; i <= params->n; i++) {
        snprintf(name, sizeof name, "d%d", i);
        tsr_output(g, name, grads[i], NULL, TSR_B);
    }
    return tsr_graph_status(g);
}

static tsr_status run_and_fetch(tsr_plan *plan, const task *t, int first, int rows,
                                const collected *params, results *out)
{
    double x[ROWS * IMAGE];
    int64_t labels[ROWS];
    char name[32];
    for (int run = 0; run < RUNS; run++) {
        for (int i = 0; i < rows * IMAGE; i++)
            x[i] = t->level + value_at(first * IMAGE + i + 1000 * run);
        for (int i = 0; i < rows; i++)
            labels[i] = label_at(first + i);
        TSRI_TRY(tsr_feed(plan, "x", x, (size_t)(rows * IMAGE) * sizeof *x));
        TSRI_TRY(tsr_feed(plan, "y", labels, (size_t)rows * sizeof *labels));
        TSRI_TRY(tsr_run(plan));
        TSRI_TRY(tsr_fetch_scalar(plan, "loss", &out->loss[run]));
    }
    TSRI_TRY(tsr_fetch(plan, "d0", out->dx, (size_t)(rows * IMAGE) * sizeof *x));
    for (int i = 0; i < params->n; i++) {
        snprintf(name, sizeof name, "d%d", i + 1);
        TSRI_TRY(tsr_fetch(plan, name, out->params + i * PARAM_ELEMENTS,
                           (size_t)tsr_dims_count(tsr_variable_dims(params->v[i])) * sizeof *x));
    }
    return TSR_OK;
}

/* The same program of all ranks (first 0, all rows), or of this one. */
static tsr_status train(tsr_world *w, const task *t, bool local, int first, int rows, results *out)
{
    const tsr_placement *p = local ? tsr_local_placement(w) : tsr_placement_parse(w, "cpu");
    tsr_module *net = make_net(w, p, t->flat, CLASSES);
    collected params = {.trainable = true}, buffers = {.n = 0};
    tsr_plan *plan;
    tsr_dims dims = t->flat ? TSR_DIMS(rows, IMAGE) : TSR_DIMS(rows, C, H, W);
    if (local) {
        TSRI_TRY(tsr_module_set_local(net));
        TSRI_TRY(tsr_convert_sync_batchnorm(net, tsr_world_group(w)));
    }
    TSRI_TRY(tsr_module_visit(net, collect, &params));
    TSRI_TRY(tsr_module_visit(net, collect, &buffers));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = local));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, dims, p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows), p, TSR_S(0));
    TSRI_TRY(declare(g, net, x, y, t->total, &params));
    TSRI_TRY(tsr_compile(g, &plan));
    TSRI_TRY(run_and_fetch(plan, t, first, rows, &params, out));
    for (int i = 0, at = 0; i < buffers.n; i++) {
        size_t count = (size_t)tsr_dims_count(tsr_variable_dims(buffers.v[i]));
        TSRI_TRY(tsr_variable_get(buffers.v[i], out->buffers + at, count * sizeof(double)));
        at += (int)count;
    }
    tsr_plan_destroy(plan);
    return TSR_OK;
}

static tsr_status both(tsr_world *w, void *arg)
{
    task *t = arg;
    int rank = tsr_world_rank(w), first = 0;
    results *global = calloc(1, sizeof *global);
    CHECK(global);
    for (int r = 0; r < rank; r++)
        first += t->rows[r];
    tsr_status status = train(w, t, false, 0, t->total, global);
    if (status == TSR_OK && rank == 0)
        t->global = *global;
    free(global);
    return status == TSR_OK ? train(w, t, true, first, t->rows[rank], &t->local[rank]) : status;
}

/* The largest difference of n numbers, by their size. */
static double differ(const double *a, const double *b, int64_t n)
{
    double most = 0, size = 1e-3;
    for (int64_t i = 0; i < n; i++)
        size = fmax(size, fabs(b[i]));
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, isfinite(a[i]) ? fabs(a[i] - b[i]) / size : INFINITY);
    return most;
}

static void compare(const task *t)
{
    const double tolerance = 1e-12;
    results sum = {.loss = {0}};
    int first = 0;
    for (int r = 0; r < t->n; r++) {
        const results *mine = &t->local[r];
        for (int i = 0; i < RUNS; i++)
            sum.loss[i] += mine->loss[i];
        for (int i = 0; i < PARAMS * PARAM_ELEMENTS; i++)
            sum.params[i] += mine->params[i];
        double dx = differ(mine->dx, t->global.dx + first * IMAGE, t->rows[r] * IMAGE);
        double running = differ(mine->buffers, t->global.buffers, PARAMS * C * 4);
        if (dx > tolerance || running > tolerance)
            fail_msg("rank %d of %d: dx differs by %g, running averages by %g", r, t->n, dx,
                     running);
        first += t->rows[r];
    }
    double loss = differ(sum.loss, t->global.loss, RUNS);
    double params = differ(sum.params, t->global.params, PARAMS * PARAM_ELEMENTS);
    if (loss > tolerance || params > tolerance)
        fail_msg("%d ranks: losses differ by %g, gradients by %g", t->n, loss, params);
    assert_true(t->global.loss[0] > 0.1 && t->global.buffers[0] != 0);
}

static void one_batch(double level)
{
    static const int rows[][RANKS + 1] = {
        {1, 6},       {2, 3, 3},    {2, 5, 1},       {2, 0, 4},       {3, 2, 2, 2},
        {3, 1, 0, 4}, {3, 0, 0, 2}, {4, 2, 2, 2, 2}, {4, 0, 5, 0, 1}, {4, 3, 1, 2, 6},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int flat = level != 0; flat < 2; flat++) {
            task *t = calloc(1, sizeof *t);
            assert_non_null(t);
            t->level = level;
            t->n = rows[i][0];
            t->flat = flat;
            for (int r = 0; r < t->n; r++)
                t->total += t->rows[r] = rows[i][1 + r];
            tsr_status status = tsr_spawn_with(t->n, both, t, &opts);
            if (status != TSR_OK)
                fail_msg("%d ranks: %s: %s", t->n, tsr_status_name(status), tsr_last_error());
            compare(t);
            free(t);
        }
}

static void test_as_one_batch(void **state)
{
    (void)state;
    one_batch(0);
}

/* Data whose mean is a million times its deviation, straight into batch norm. */
static void test_far_from_zero(void **state)
{
    (void)state;
    one_batch(1e6);
}

/* --- finite differences ----------------------------------------------------------------------- */
/* Of the sum of all ranks' losses, by an element of one rank's x; all ranks run together. */
static tsr_status differences(tsr_world *w, void *arg)
{
    const task *t = arg;
    enum { STEP = 7 };
    const double h = 1e-5;
    int rank = tsr_world_rank(w), rows = t->rows[rank], first = 0;
    const tsr_placement *p = tsr_local_placement(w);
    tsr_group *group = tsr_world_group(w);
    tsr_module *net = make_net(w, p, false, CLASSES);
    tsr_plan *plan;
    double x[ROWS * IMAGE], dx[ROWS * IMAGE], at[2];
    int64_t labels[ROWS];
    TSRI_TRY(tsr_convert_sync_batchnorm(net, group));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *in = tsr_input(g, "x", TSR_F64, TSR_DIMS(rows, C, H, W), p, TSR_B), *grad;
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows), p, TSR_B);
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(net, in), y, TSR_SUM);
    tsr_gradients(loss, 1, &in, &grad);
    tsr_output(g, "dx", grad, p, TSR_B);
    tsr_output(g, "all", tsr_rank_sum(loss, group), p, TSR_B);
    TSRI_TRY(tsr_compile(g, &plan));
    for (int r = 0; r < rank; r++)
        first += t->rows[r];
    for (int i = 0; i < rows * IMAGE; i++)
        x[i] = value_at(first * IMAGE + i);
    for (int i = 0; i < rows; i++)
        labels[i] = label_at(first + i);
    TSRI_TRY(tsr_feed(plan, "y", labels, (size_t)rows * sizeof *labels));
    TSRI_TRY(tsr_feed(plan, "x", x, (size_t)(rows * IMAGE) * sizeof *x));
    TSRI_TRY(tsr_run(plan));
    TSRI_TRY(tsr_fetch(plan, "dx", dx, (size_t)(rows * IMAGE) * sizeof *x));
    for (int i = 0; i < t->total * IMAGE; i += STEP) {
        bool mine = i >= first * IMAGE && i < (first + rows) * IMAGE;
        int j = i - first * IMAGE;
        for (int side = 0; side < 2; side++) {
            if (mine)
                x[j] += side ? -2 * h : h;
            TSRI_TRY(tsr_feed(plan, "x", x, (size_t)(rows * IMAGE) * sizeof *x));
            TSRI_TRY(tsr_run(plan));
            TSRI_TRY(tsr_fetch_scalar(plan, "all", &at[side]));
        }
        if (!mine)
            continue;
        x[j] += h;
        CHECK(fabs((at[0] - at[1]) / (2 * h) - dx[j]) < 1e-7);
    }
    return TSR_OK;
}

static void test_finite_differences(void **state)
{
    (void)state;
    task *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->n = 3;
    t->total = 4;
    t->rows[0] = 3;
    t->rows[2] = 1;
    tsr_status status = tsr_spawn_with(t->n, differences, t, &opts);
    if (status != TSR_OK)
        fail_msg("%s: %s", tsr_status_name(status), tsr_last_error());
    free(t);
}

/* --- under tsr_ddp ---------------------------------------------------------------------------- */
/* The last layer fills the first bucket, which takes 1 MiB; the other parameters have one each,
 * which are reduced between the sums of batch norm's backward passes. */
enum { STEPS = 4, WIDE = (1 << 20) / 8 / C + 1 };

/* Trains on all rows, or this rank's; every value of the model afterwards, in the module's order.
 */
static tsr_status fit(tsr_world *w, const task *t, bool local, int first, int rows, double *values)
{
    const tsr_placement *p = local ? tsr_local_placement(w) : tsr_placement_parse(w, "cpu");
    tsr_module *net = make_net(w, p, false, WIDE);
    tsr_optimizer *sgd = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9));
    double x[ROWS * IMAGE];
    int64_t labels[ROWS];
    collected params = {.trainable = true}, buffers = {.n = 0};
    tsr_ddp *ddp = NULL;
    tsr_plan *plan;
    TSRI_TRY(tsr_module_visit(net, collect, &params));
    TSRI_TRY(tsr_module_visit(net, collect, &buffers));
    if (local) {
        TSRI_TRY(tsr_convert_sync_batchnorm(net, tsr_world_group(w)));
        TSRI_TRY(tsr_ddp_create(net, TSR_DDP_OPTS(.bucket_cap_mb = 1e-6), &ddp));
        tsr_ddp_info info = {.size = sizeof info};
        TSRI_TRY(tsr_ddp_get_info(ddp, &info));
        CHECK(info.nbuckets == info.nparams - 1); /* fc's weight and bias share one */
    }
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = local));
    tsr_tensor *in = tsr_input(g, "x", TSR_F64, TSR_DIMS(rows, C, H, W), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows), p, TSR_S(0));
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(net, in), y, TSR_MEAN);
    if (local)
        tsr_ddp_backward(ddp, loss);
    else
        tsr_minimize(sgd, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    TSRI_TRY(tsr_compile(g, &plan));
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < rows * IMAGE; i++)
            x[i] = value_at((t->total * step + first) * IMAGE + i);
        for (int i = 0; i < rows; i++)
            labels[i] = label_at(first + i + step);
        TSRI_TRY(tsr_feed(plan, "x", x, (size_t)(rows * IMAGE) * sizeof *x));
        TSRI_TRY(tsr_feed(plan, "y", labels, (size_t)rows * sizeof *labels));
        TSRI_TRY(local ? tsr_ddp_run(ddp, plan) : tsr_run(plan));
        TSRI_TRY(local ? tsr_ddp_step(ddp, sgd) : TSR_OK);
    }
    for (int kind = 0, at = 0; kind < 2; kind++) {
        const collected *c = kind ? &buffers : &params;
        for (int i = 0; i < c->n; i++) {
            size_t count = (size_t)tsr_dims_count(tsr_variable_dims(c->v[i]));
            TSRI_TRY(tsr_variable_get(c->v[i], values + at, count * sizeof(double)));
            at += (int)count;
        }
    }
    return local ? tsr_ddp_close(&ddp) : TSR_OK;
}

static tsr_status fit_both(tsr_world *w, void *arg)
{
    const task *t = arg;
    enum { MOST = PARAMS * PARAM_ELEMENTS + WIDE * (C + 1) };
    int rank = tsr_world_rank(w), rows = t->rows[rank];
    double *values = calloc(2 * MOST, sizeof *values);
    CHECK(values);
    tsr_status status = fit(w, t, false, 0, t->total, values);
    if (status == TSR_OK)
        status = fit(w, t, true, rank * rows, rows, values + MOST);
    double off = differ(values + MOST, values, MOST);
    free(values);
    TSRI_TRY(status);
    CHECK(off < 1e-11);
    return TSR_OK;
}

static void test_under_ddp(void **state)
{
    (void)state;
    for (int n = 1; n <= RANKS; n++) {
        task *t = calloc(1, sizeof *t);
        assert_non_null(t);
        t->n = n;
        t->total = 3 * n;
        for (int r = 0; r < n; r++)
            t->rows[r] = 3;
        tsr_status status = tsr_spawn_with(n, fit_both, t, &opts);
        if (status != TSR_OK)
            fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
        free(t);
    }
}

/* --- one value, or none ----------------------------------------------------------------------- */
typedef struct few {
    int rows[2];
    tsr_status expected;
} few;

static tsr_status few_values(tsr_world *w, void *arg)
{
    const few *f = arg;
    int rows = f->rows[tsr_world_rank(w)];
    const tsr_placement *p = tsr_local_placement(w);
    const tsr_nn_opts o = {.placement = p, .dtype = TSR_F64};
    tsr_module *bn = tsr_nn_batch_norm(w, &o, 2, NULL);
    tsr_plan *plan;
    const double x[4] = {1, 2, 3, 4};
    double y[4], mean[2], var[2];
    TSRI_TRY(tsr_convert_sync_batchnorm(bn, tsr_world_group(w)));
    TSRI_TRY(tsr_module_set_local(bn));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *in = tsr_input(g, "x", TSR_F64, TSR_DIMS(rows, 2), p, TSR_B);
    tsr_output(g, "y", tsr_apply(bn, in), p, TSR_B);
    TSRI_TRY(tsr_compile(g, &plan));
    TSRI_TRY(tsr_feed(plan, "x", x, (size_t)(rows * 2) * sizeof *x));
    tsr_status status = tsr_run(plan);
    if (f->expected != TSR_OK) {
        /* Both meet it; one may hear of the other's first. */
        CHECK(status == f->expected || status == TSR_ERR_REMOTE);
        CHECK_TEXT("one value per channel");
        return TSR_OK;
    }
    TSRI_TRY(status);
    TSRI_TRY(tsr_fetch(plan, "y", y, (size_t)(rows * 2) * sizeof *y));
    TSRI_TRY(tsr_variable_get(tsr_module_find(bn, "running_mean"), mean, sizeof mean));
    TSRI_TRY(tsr_variable_get(tsr_module_find(bn, "running_var"), var, sizeof var));
    bool none = f->rows[0] + f->rows[1] == 0;
    for (int i = 0; i < 2 && none; i++)
        CHECK(mean[i] == 0 && var[i] == 1);
    return TSR_OK;
}

static void test_few_values(void **state)
{
    (void)state;
    /* Kernels of GPUs do not look at counts. */
    const tsr_status of_one = getenv("TESSERA_TEST_DEVICE") ? TSR_OK : TSR_ERR_SHAPE;
    const few cases[] = {
        {{1, 0}, of_one}, {{0, 1}, of_one}, {{1, 1}, TSR_OK}, {{0, 2}, TSR_OK}, {{0, 0}, TSR_OK}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        few f = cases[i];
        tsr_status status = tsr_spawn_with(2, few_values, &f, &opts);
        if (status != TSR_OK)
            fail_msg("(%d,%d): %s: %s", f.rows[0], f.rows[1], tsr_status_name(status),
                     tsr_last_error());
    }
}

/* --- where nothing changes -------------------------------------------------------------------- */
/* y = bn(x) of all 6 rows, in some graph. */
static tsr_status apply_in(tsr_world *w, tsr_module *bn, const tsr_placement *p,
                           const tsr_graph_opts *how, double *y)
{
    double x[12];
    tsr_graph *g = tsr_graph_create(w, how);
    tsr_plan *plan;
    for (int i = 0; i < 12; i++)
        x[i] = value_at(i);
    tsr_output(g, "y", tsr_apply(bn, tsr_input(g, "x", TSR_F64, TSR_DIMS(6, 2), p, TSR_S(0))), p,
               TSR_B);
    TSRI_TRY(tsr_compile(g, &plan));
    TSRI_TRY(tsr_feed(plan, "x", x, sizeof x));
    TSRI_TRY(tsr_run(plan));
    return tsr_fetch(plan, "y", y, 12 * sizeof *y);
}

static tsr_status nothing_changes(tsr_world *w, void *arg)
{
    (void)arg;
    int rank = tsr_world_rank(w);
    const tsr_placement *own = tsr_local_placement(w), *all = tsr_placement_parse(w, "cpu");
    tsr_group *group = tsr_world_group(w), *alone;
    double y[2][12];
    TSRI_TRY(tsr_group_create(w, 1, &rank, &alone));
    for (int converted = 0; converted < 2; converted++) {
        const tsr_nn_opts o = {.placement = all, .dtype = TSR_F64};
        tsr_module *bn = tsr_nn_batch_norm(w, &o, 2, NULL);
        if (converted)
            TSRI_TRY(tsr_convert_sync_batchnorm(bn, group));
        TSRI_TRY(apply_in(w, bn, all, TSR_GRAPH_OPTS(.training = true), y[converted]));
    }
    CHECK(!memcmp(y[0], y[1], sizeof y[0]));
    if (rank != 1)
        return TSR_OK;
    /* One rank alone: in evaluation, and as a group of one. */
    for (int training = 0; training < 2; training++) {
        for (int converted = 0; converted < 2; converted++) {
            const tsr_nn_opts o = {.placement = own, .dtype = TSR_F64};
            tsr_module *bn = tsr_nn_batch_norm(w, &o, 2, NULL);
            if (converted)
                TSRI_TRY(tsr_convert_sync_batchnorm(bn, training ? alone : group));
            TSRI_TRY(apply_in(w, bn, own, TSR_GRAPH_OPTS(.training = training, .local = true),
                              y[converted]));
        }
        CHECK(!memcmp(y[0], y[1], sizeof y[0]));
    }
    return TSR_OK;
}

static tsr_status convert_wrong(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_nn_opts o = {.placement = tsr_local_placement(w)};
    const tsr_batch_norm_opts *two = TSR_BATCH_NORM_OPTS(.stats = TSR_BN_LOCAL, .parts = 2);
    tsr_module *m = tsr_nn_sequential(w, &o);
    tsr_group *group = tsr_world_group(w);
    tsr_module_add(m, "0", tsr_nn_batch_norm(w, &o, 2, NULL));
    tsr_module_add(m, "1", tsr_nn_batch_norm(w, &o, 2, two));
    CHECK(tsr_convert_sync_batchnorm(m, group) == TSR_ERR_INVALID);
    CHECK_TEXT("batch norm '1' has statistics of 2 virtual batches");
    CHECK(tsr_convert_sync_batchnorm(NULL, group) == TSR_ERR_INVALID);
    CHECK(tsr_convert_sync_batchnorm(m, NULL) == TSR_ERR_INVALID);
    /* The first was not converted: one rank applies it alone. */
    if (tsr_world_rank(w) == 0) {
        double y[12];
        tsr_module *first = tsr_nn_batch_norm(
            w, &(tsr_nn_opts){.placement = o.placement, .dtype = TSR_F64}, 2, NULL);
        tsr_module *both = tsr_nn_sequential(w, &o);
        tsr_module_add(both, "0", first);
        tsr_module_add(both, "1", tsr_nn_batch_norm(w, &o, 2, two));
        CHECK(tsr_convert_sync_batchnorm(both, group) == TSR_ERR_INVALID);
        TSRI_TRY(
            apply_in(w, first, o.placement, TSR_GRAPH_OPTS(.training = true, .local = true), y));
    }
    return TSR_OK;
}

static void test_where_nothing_changes(void **state)
{
    (void)state;
    tsr_rank_fn *const fns[] = {nothing_changes, convert_wrong};
    for (int i = 0; i < 2; i++) {
        tsr_status status = tsr_spawn_with(2, fns[i], NULL, &opts);
        if (status != TSR_OK)
            fail_msg("%s: %s", tsr_status_name(status), tsr_last_error());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_one_batch),       cmocka_unit_test(test_far_from_zero),
        cmocka_unit_test(test_finite_differences), cmocka_unit_test(test_under_ddp),
        cmocka_unit_test(test_few_values),         cmocka_unit_test(test_where_nothing_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
