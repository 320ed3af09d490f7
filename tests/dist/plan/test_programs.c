/* SPDX-License-Identifier: Apache-2.0 */
/* Whole programs on several ranks: how they fail together, and what they share when they don't. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/core/status.h"
#include "tests/dist/comm/rank_checks.h"

static const tsr_world_opts opts = {
    .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 20, .threads = 1};

static void spawn_ok(int n, tsr_rank_fn *fn, void *arg)
{
    tsr_status status = tsr_spawn_with(n, fn, arg, &opts);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
}

/* "test_programs.c:<line>:" */
static const char *place(char buf[64], int line)
{
    snprintf(buf, 64, "test_programs.c:%d:", line);
    return buf;
}

/* y = 2 x on every rank: the world still works. */
static tsr_status still_works(tsr_world *w)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_full(g, TSR_F32, TSR_DIMS(7), p, TSR_S(0), 3);
    float y[7];
    TSRI_TRY(tsr_eval(tsr_mul_scalar(x, 2), y, sizeof y));
    for (int i = 0; i < 7; i++)
        CHECK(y[i] == 6);
    return TSR_OK;
}

/* --- ranks that disagree ---------------------------------------------------------------------- */

typedef struct differing {
    int odd; /* the rank that does it */
} differing;

static tsr_status different_op(tsr_world *w, void *arg)
{
    const differing *d = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(6, 4), p, TSR_S(0));
    tsr_tensor *y;
    char at[64];
    tsr_plan *plan;
    const int odd_line = __LINE__ + 2, even_line = __LINE__ + 4;
    if (tsr_world_rank(w) == d->odd)
        y = tsr_sum(x, TSR_AXES(0), false);
    else
        y = tsr_softmax(x, 1);
    tsr_output(g, "y", y, p, TSR_B);
    CHECK(tsr_compile(g, &plan) == TSR_ERR_MISMATCH);
    CHECK_TEXT(place(at, odd_line));
    CHECK_TEXT(place(at, even_line));
    CHECK_TEXT("reduce");
    CHECK_TEXT("softmax");
    snprintf(at, sizeof at, "rank %d", d->odd ? d->odd : 1);
    CHECK_TEXT("rank 0");
    CHECK_TEXT(at);
    return still_works(w);
}

/* The same kinds and shapes, another number. */
static tsr_status different_number(tsr_world *w, void *arg)
{
    const differing *d = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(6, 4), p, TSR_S(0));
    char at[64];
    tsr_plan *plan;
    const int line = __LINE__ + 1;
    tsr_tensor *y = tsr_mul_scalar(x, tsr_world_rank(w) == d->odd ? 2 : 3);
    tsr_output(g, "y", y, p, TSR_B);
    CHECK(tsr_compile(g, &plan) == TSR_ERR_MISMATCH);
    CHECK_TEXT(place(at, line));
    CHECK_TEXT("scale");
    return still_works(w);
}

static tsr_status different_length(tsr_world *w, void *arg)
{
    const differing *d = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(6, 4), p, TSR_S(0));
    char at[64];
    tsr_plan *plan;
    const int line = __LINE__ + 2;
    if (tsr_world_rank(w) == d->odd)
        x = tsr_exp(x);
    tsr_output(g, "y", x, p, TSR_B);
    CHECK(tsr_compile(g, &plan) == TSR_ERR_MISMATCH);
    CHECK_TEXT(place(at, line));
    CHECK_TEXT("has no more ops");
    return still_works(w);
}

static tsr_status different_output(tsr_world *w, void *arg)
{
    const differing *d = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(6, 4), p, TSR_S(0));
    tsr_plan *plan;
    tsr_output(g, "y", x, p, tsr_world_rank(w) == d->odd ? TSR_S(1) : TSR_B);
    CHECK(tsr_compile(g, &plan) == TSR_ERR_MISMATCH);
    CHECK_TEXT("outputs");
    return still_works(w);
}

static void test_mismatch(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++)
        for (int odd = 0; odd < n; odd++) {
            differing d = {odd};
            spawn_ok(n, different_op, &d);
            spawn_ok(n, different_number, &d);
            spawn_ok(n, different_length, &d);
            spawn_ok(n, different_output, &d);
        }
}

/* --- one rank that fails ---------------------------------------------------------------------- */

static tsr_status bad_compile(tsr_world *w, void *arg)
{
    const differing *d = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    bool odd = tsr_world_rank(w) == d->odd;
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(6, odd ? 5 : 4), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_F32, TSR_DIMS(4, 3), p, TSR_B);
    char at[64];
    tsr_plan *plan;
    const int line = __LINE__ + 1;
    tsr_output(g, "z", tsr_matmul(x, y), p, TSR_B);
    CHECK(tsr_compile(g, &plan) == TSR_ERR_SHAPE);
    CHECK_TEXT(place(at, line));
    CHECK_TEXT("(6,5)");
    snprintf(at, sizeof at, "rank %d could not compile", d->odd);
    CHECK(odd || strstr(tsr_last_error(), at));
    return still_works(w);
}

static void test_compile_failure(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n++)
        for (int odd = 0; odd < n; odd++)
            spawn_ok(n, bad_compile, &(differing){odd});
}

static tsr_status bad_label(tsr_world *w, void *arg)
{
    const differing *d = arg;
    int rank = tsr_world_rank(w), n = tsr_world_size(w);
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(2 * n, 4), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(2 * n), p, TSR_S(0));
    tsr_plan *plan;
    char at[64];
    const float logits[8] = {0};
    int64_t labels[2] = {3, 0};
    const int line = __LINE__ + 1;
    tsr_output(g, "loss", tsr_cross_entropy(x, y, TSR_MEAN), p, TSR_B);
    TSRI_TRY(tsr_compile(g, &plan));
    TSRI_TRY(tsr_feed_shard(plan, "x", logits, sizeof logits));
    TSRI_TRY(tsr_feed_shard(plan, "y", labels, sizeof labels));
    TSRI_TRY(tsr_run(plan));
    double loss;
    TSRI_TRY(tsr_fetch_scalar(plan, "loss", &loss));
    CHECK(fabs(loss - log(4)) < 1e-6);
    labels[1] = rank == d->odd ? 4 : 1;
    TSRI_TRY(tsr_feed_shard(plan, "y", labels, sizeof labels));
    TSRI_TRY(tsr_world_barrier(w));
    tsr_status status = tsr_run(plan);
    /* Devices do not wait for each other's results: peers of theirs hear of it in the next run. */
    if (getenv("TESSERA_TEST_DEVICE") && rank != d->odd && status == TSR_OK)
        status = tsr_run(plan);
    CHECK_TEXT(place(at, line));
    CHECK_TEXT("label 4");
    if (rank == d->odd) {
        CHECK(status != TSR_OK && status != TSR_ERR_REMOTE);
        snprintf(at, sizeof at, "%d", 2 * rank + 1); /* the sample, by its global number */
        CHECK_TEXT(at);
    } else {
        CHECK(status == TSR_ERR_REMOTE);
    }
    CHECK(tsr_run(plan) != TSR_OK);
    return TSR_OK;
}

static void test_bad_label(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++)
        for (int odd = 0; odd < n; odd++)
            spawn_ok(n, bad_label, &(differing){odd});
}

/* --- shards ----------------------------------------------------------------------------------- */

static tsr_status shard_body(tsr_world *w, void *arg)
{
    (void)arg;
    enum { ROWS = 5, COLS = 3 };
    int rank = tsr_world_rank(w), n = tsr_world_size(w);
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(ROWS, COLS), p, TSR_S(0));
    tsr_tensor *y = tsr_add_scalar(tsr_mul_scalar(x, 2), 1);
    tsr_output(g, "rows", y, p, TSR_S(0));
    tsr_output(g, "columns", y, p, TSR_S(1));
    tsr_output(g, "all", y, p, TSR_B);
    tsr_plan *plan;
    TSRI_TRY(tsr_compile(g, &plan));
    double data[ROWS * COLS], got[ROWS * COLS];
    for (int pass = 0; pass < 2; pass++) {
        int64_t begin, rows, first, columns;
        tsr_dims dims;
        for (int i = 0; i < ROWS * COLS; i++)
            data[i] = i + 100 * pass;
        tsr_balanced_split(ROWS, n, rank, &begin, &rows);
        tsr_balanced_split(COLS, n, rank, &first, &columns);
        if (pass == 0)
            TSRI_TRY(tsr_feed(plan, "x", data, sizeof data));
        else
            TSRI_TRY(tsr_feed_shard(plan, "x", data + begin * COLS,
                                    (size_t)(rows * COLS) * sizeof *data));
        TSRI_TRY(tsr_run(plan));
        TSRI_TRY(tsr_fetch_shard(plan, "rows", got, (size_t)(rows * COLS) * sizeof *got, &dims));
        CHECK(tsr_dims_equal(dims, TSR_DIMS(rows, COLS)));
        for (int i = 0; i < rows * COLS; i++)
            CHECK(got[i] == 2 * data[begin * COLS + i] + 1);
        TSRI_TRY(
            tsr_fetch_shard(plan, "columns", got, (size_t)(ROWS * columns) * sizeof *got, &dims));
        CHECK(tsr_dims_equal(dims, TSR_DIMS(ROWS, columns)));
        for (int i = 0; i < ROWS * columns; i++)
            CHECK(got[i] == 2 * data[i / columns * COLS + first + i % columns] + 1);
        TSRI_TRY(tsr_fetch(plan, "all", got, sizeof got));
        for (int i = 0; i < ROWS * COLS; i++)
            CHECK(got[i] == 2 * data[i] + 1);
    }
    CHECK(tsr_feed(plan, "x", data, 8) == TSR_ERR_SHAPE);
    CHECK(tsr_feed_shard(plan, "x", data, sizeof data + 8) == TSR_ERR_SHAPE);
    CHECK(tsr_feed(plan, "z", data, sizeof data) == TSR_ERR_INVALID);
    CHECK_TEXT("'x'");
    CHECK(n == 1 || tsr_fetch(plan, "rows", got, sizeof got) == TSR_ERR_SBP);
    return TSR_OK;
}

/* Rank 2 takes part in compiling, and has no data. */
static tsr_status outsider_body(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[1,0]");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(3), p, TSR_S(0));
    tsr_output(g, "y", tsr_sum(x, TSR_ALL_AXES, true), p, TSR_B);
    tsr_plan *plan;
    double sum;
    TSRI_TRY(tsr_compile(g, &plan));
    TSRI_TRY(tsr_feed(plan, "x", (const double[]){1, 2, 4}, 24));
    TSRI_TRY(tsr_run(plan));
    if (tsr_world_rank(w) == 2) {
        CHECK(tsr_fetch(plan, "y", &sum, sizeof sum) == TSR_ERR_PLACEMENT);
        CHECK_TEXT("rank 2");
        return TSR_OK;
    }
    TSRI_TRY(tsr_fetch(plan, "y", &sum, sizeof sum));
    CHECK(sum == 7);
    return TSR_OK;
}

static void test_shards(void **state)
{
    (void)state;
    for (int n = 1; n <= 7; n++)
        spawn_ok(n, shard_body, NULL);
    spawn_ok(3, outsider_body, NULL);
}

/* --- several plans of one world --------------------------------------------------------------- */

enum { IMAGE = 8 * 8, MAX_BATCH = 8, STEPS = 4 };

typedef struct program {
    tsr_plan *train, *small, *eval;
    tsr_module *net;
    tsr_optimizer *opt;
} program;

static tsr_plan *make_plan(tsr_world *w, const program *m, int64_t batch, bool training)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = training, .seed = 1));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(batch, 1, 8, 8), p, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(batch), p, TSR_S(0));
    tsr_tensor *logits = tsr_apply(m->net, x);
    tsr_tensor *loss = tsr_cross_entropy(logits, y, TSR_MEAN);
    if (training)
        tsr_minimize(m->opt, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    tsr_output(g, "logits", logits, p, TSR_B);
    tsr_plan *plan = NULL;
    tsr_compile(g, &plan);
    tsr_graph_destroy(g);
    return plan;
}

static tsr_status make_program(tsr_world *w, double lr, program *m)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    m->net = tsr_convnet(w, p, TSR_B, TSR_CONVNET_OPTS(.height = 8, .width = 8, .seed = 5));
    m->opt = tsr_sgd(m->net, TSR_SGD_OPTS(.lr = lr));
    m->train = make_plan(w, m, MAX_BATCH, true);
    m->small = make_plan(w, m, 5, true);
    m->eval = make_plan(w, m, 7, false);
    CHECK(m->train && m->small && m->eval);
    return TSR_OK;
}

static tsr_status feed(tsr_plan *plan, int batch, int step)
{
    float x[MAX_BATCH * IMAGE];
    int64_t y[MAX_BATCH];
    for (int i = 0; i < batch * IMAGE; i++)
        x[i] = (float)((i * 7 + step * 13) % 17) / 8 - 1;
    for (int i = 0; i < batch; i++)
        y[i] = (i + step) % 10;
    TSRI_TRY(tsr_feed(plan, "x", x, (size_t)(batch * IMAGE) * sizeof *x));
    return tsr_feed(plan, "y", y, (size_t)batch * sizeof *y);
}

static tsr_status run(tsr_plan *plan, int batch, int step, double *out_loss)
{
    TSRI_TRY(feed(plan, batch, step));
    TSRI_TRY(tsr_run(plan));
    return tsr_fetch_scalar(plan, "loss", out_loss);
}

typedef struct losses {
    bool interleaved;
    double train[STEPS], small[STEPS], eval[STEPS];
} losses;

/* With evaluations in between or without: the same training. Outputs stay until their own plan runs
 * again, and inputs until they are fed again. */
static tsr_status interleaved_body(tsr_world *w, void *arg)
{
    losses *all = arg, mine = {.interleaved = all->interleaved};
    program m;
    float before[MAX_BATCH * 10], after[MAX_BATCH * 10];
    TSRI_TRY(make_program(w, 0.05, &m));
    for (int i = 0; i < STEPS; i++) {
        double again;
        TSRI_TRY(run(m.train, MAX_BATCH, i, &mine.train[i]));
        TSRI_TRY(tsr_fetch(m.train, "logits", before, sizeof before));
        if (mine.interleaved) {
            TSRI_TRY(run(m.eval, 7, i, &mine.eval[i]));
            TSRI_TRY(tsr_run(m.eval));
            TSRI_TRY(tsr_fetch_scalar(m.eval, "loss", &again));
            CHECK(again == mine.eval[i]);
            TSRI_TRY(tsr_fetch_scalar(m.train, "loss", &again));
            CHECK(again == mine.train[i]);
            TSRI_TRY(tsr_fetch(m.train, "logits", after, sizeof after));
            CHECK(!memcmp(before, after, sizeof before));
        }
        TSRI_TRY(run(m.small, 5, i, &mine.small[i]));
    }
    CHECK(tsr_optimizer_steps(m.opt) == 2 * STEPS);
    if (tsr_world_rank(w) == 0)
        *all = mine;
    return TSR_OK;
}

static void test_several_plans(void **state)
{
    (void)state;
    losses one = {.interleaved = true};
    spawn_ok(1, interleaved_body, &one);
    assert_true(one.train[0] > 1 && one.train[0] < 5);
    for (int n = 1; n <= 4; n++)
        for (int with = 0; with < 2; with++) {
            losses l = {.interleaved = with};
            spawn_ok(n, interleaved_body, &l);
            for (int i = 0; i < STEPS; i++) {
                assert_true(fabs(l.train[i] - one.train[i]) < 2e-5);
                assert_true(fabs(l.small[i] - one.small[i]) < 2e-5);
                assert_true(!with || fabs(l.eval[i] - one.eval[i]) < 2e-5);
            }
        }
}

/* --- learning rate ---------------------------------------------------------------------------- */

/* Plain SGD moves a weight by -lr g. One plan, one starting point, three rates: distances are as
 * the rates, element by element. */
static tsr_status rate_body(tsr_world *w, void *arg)
{
    (void)arg;
    enum { IN = 4, OUT = 3, ROWS = 6 };
    static const double rates[] = {0.25, 0.5, 0.125};
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const tsr_nn_opts nn = {.placement = p, .sbp = TSR_B, .dtype = TSR_F64, .seed = 2};
    tsr_module *net = tsr_nn_linear(w, &nn, IN, OUT, false);
    tsr_optimizer *opt = tsr_sgd(net, TSR_SGD_OPTS(.lr = rates[0]));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_uniform(g, "x", TSR_F64, TSR_DIMS(ROWS, IN), p, TSR_S(0), -1, 1);
    tsr_tensor *y = tsr_apply(net, x);
    tsr_minimize(opt, tsr_sum(tsr_mul(y, y), TSR_ALL_AXES, false));
    tsr_plan *plan;
    TSRI_TRY(tsr_compile(g, &plan));
    tsr_variable *v = tsr_module_find(net, "weight");
    double start[OUT * IN], end[OUT * IN], gradient[OUT * IN];
    TSRI_TRY(tsr_variable_get(v, start, sizeof start));
    for (int i = 0; i < 3; i++) {
        tsr_optimizer_set_lr(opt, rates[i]);
        CHECK(tsr_optimizer_lr(opt) == rates[i]);
        TSRI_TRY(tsr_variable_set(v, start, sizeof start));
        TSRI_TRY(tsr_run(plan));
        TSRI_TRY(tsr_variable_get(v, end, sizeof end));
        for (int j = 0; j < OUT * IN; j++) {
            double found = (start[j] - end[j]) / rates[i];
            if (i == 0)
                gradient[j] = found;
            CHECK(found != 0 && fabs(found - gradient[j]) < 1e-12);
        }
    }
    return TSR_OK;
}

static void test_learning_rate(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        spawn_ok(n, rate_body, NULL);
}

/* --- infinities ------------------------------------------------------------------------------- */
/* Products of an infinity and positive numbers, as partial sums: an addend of zeros of the other
 * operand, which is the smaller one, would make NaN of them. */
enum { PRODUCTS = 3 };
typedef struct infinite {
    double y[PRODUCTS][8]; /* of one rank */
} infinite;

static tsr_tensor *product_of(int i, tsr_tensor *x, tsr_tensor *w)
{
    switch (i) {
    case 0:
        return tsr_linear(x, w, NULL);
    case 1:
        return tsr_matmul(x, w);
    default:
        return tsr_mul(x, w);
    }
}

static tsr_status infinite_body(tsr_world *w, void *arg)
{
    infinite *one = arg;
    const double x[8] = {INFINITY, 1, 2, 3, 4, 5, 6, 7}, v[4] = {1, 2, 3, 4};
    const tsr_sbp sbp[] = {TSR_S(0), TSR_S(1), TSR_B, TSR_AUTO};
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    for (int i = 0; i < PRODUCTS * 4 * 4 * 4; i++) {
        double y[8];
        int k = i / 64;
        tsr_plan *plan;
        tsr_graph *g = tsr_graph_create(w, NULL);
        tsr_tensor *a = tsr_input(g, "x", TSR_F64, TSR_DIMS(4, 2), p, sbp[i % 4]);
        tsr_tensor *b =
            tsr_input(g, "w", TSR_F64, k < 2 ? TSR_DIMS(2, 2) : TSR_DIMS(1, 2), p, sbp[i / 4 % 4]);
        tsr_tensor *sum =
            tsr_to_global(product_of(k, a, b), p, i / 16 % 4 ? sbp[i / 16 % 4] : TSR_P);
        tsr_output(g, "y", sum, p, TSR_B);
        TSRI_TRY(tsr_compile(g, &plan));
        TSRI_TRY(tsr_feed(plan, "x", x, sizeof x));
        TSRI_TRY(tsr_feed(plan, "w", v, k < 2 ? sizeof v : sizeof v / 2));
        TSRI_TRY(tsr_run(plan));
        TSRI_TRY(tsr_fetch(plan, "y", y, sizeof y));
        if (tsr_world_size(w) == 1)
            memcpy(one->y[k], y, sizeof y);
        for (int j = 0; j < 8; j++)
            CHECK(y[j] == one->y[k][j]);
        tsr_plan_destroy(plan);
        tsr_graph_destroy(g);
    }
    return TSR_OK;
}

static void test_infinities(void **state)
{
    (void)state;
    infinite one = {0};
    for (int n = 1; n <= 4; n++)
        spawn_ok(n, infinite_body, &one);
}

/* --- large logits ----------------------------------------------------------------------------- */
/* Three rows whose logits, but for one row, have a large part in common. */
static const double large_logits[3][4] = {
    {1e6, 1e6 + 0.5, 1e6 - 1, 1e6 + 2}, {-3e6, -3e6 + 1, -3e6 - 0.25, -3e6}, {0.5, -1, 2, 0}};

/* The gradient of the rows' sum of cross entropy, as exp(x - max) / sum - target. */
static void large_gradient(const int64_t *label, double dx[3][4])
{
    for (int i = 0; i < 3; i++) {
        double most = -INFINITY, sum = 0;
        for (int j = 0; j < 4; j++)
            most = fmax(most, large_logits[i][j]);
        for (int j = 0; j < 4; j++)
            sum += exp(large_logits[i][j] - most);
        for (int j = 0; j < 4; j++)
            dx[i][j] = exp(large_logits[i][j] - most) / sum - (j == label[i]);
    }
}

static tsr_status large_body(tsr_world *w, void *arg)
{
    (void)arg;
    const int64_t label[3] = {3, 1, 0};
    const tsr_sbp sbp[] = {TSR_S(0), TSR_S(1), TSR_B, TSR_AUTO};
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    double want[3][4], got[3][4];
    large_gradient(label, want);
    for (int i = 0; i < 8; i++) {
        bool single = i >= 4;
        tsr_plan *plan;
        tsr_graph *g = tsr_graph_create(w, NULL);
        tsr_tensor *in = tsr_input(g, "x", TSR_F64, TSR_DIMS(3, 4), p, sbp[i % 4]), *dx;
        tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(3), p, TSR_AUTO);
        tsr_tensor *x = single ? tsr_cast(in, TSR_F32) : in;
        tsr_gradients(tsr_cross_entropy(x, y, TSR_SUM), 1, &x, &dx);
        tsr_output(g, "dx", single ? tsr_cast(dx, TSR_F64) : dx, p, TSR_B);
        TSRI_TRY(tsr_compile(g, &plan));
        TSRI_TRY(tsr_feed(plan, "x", large_logits, sizeof large_logits));
        TSRI_TRY(tsr_feed(plan, "y", label, sizeof label));
        TSRI_TRY(tsr_run(plan));
        TSRI_TRY(tsr_fetch(plan, "dx", got, sizeof got));
        for (int j = 0; j < 12; j++)
            CHECK(fabs(got[j / 4][j % 4] - want[j / 4][j % 4]) < (single ? 3e-7 : 1e-15));
        tsr_plan_destroy(plan);
        tsr_graph_destroy(g);
    }
    return TSR_OK;
}

static void test_large_logits(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++)
        spawn_ok(n, large_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mismatch),      cmocka_unit_test(test_compile_failure),
        cmocka_unit_test(test_bad_label),     cmocka_unit_test(test_shards),
        cmocka_unit_test(test_several_plans), cmocka_unit_test(test_learning_rate),
        cmocka_unit_test(test_infinities),    cmocka_unit_test(test_large_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
