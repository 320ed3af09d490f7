/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates once in several runs. The reference is a graph that applies the net to the rows of all
 * these runs, one after the other, and updates by the mean of its losses: parameters, states and
 * losses of 20 updates are equal on 1, 2 and 4 ranks. Also what a run without an update sends, as
 * the communicators count it, checkpoints between two updates, and counts of runs that disagree.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/optim/optim.h"
#include "src/plan/plan.h"
#include "tests/dist/comm/rank_checks.h"

enum { ROWS = 16, RUNS = 3, UPDATES = 20, MOST_VALUES = 200000, TOKENS = 6 };

static const tsr_world_opts opts = {
    .size = sizeof opts, .arena_bytes = 128 << 20, .timeout_s = 60, .threads = 1};

typedef enum net { MLP, CONV, GPT } net;
typedef enum method { SGD, ADAM, ADAMW, LAMB } method;
typedef enum layout { DATA, ZERO, INFERRED } layout;

typedef struct job {
    net net;
    method method;
    layout layout;
    int parts; /* micro-batches of a run */
    bool clips, scales, fetches, compares;
    int inf_in; /* number of a run, from 1, with an infinite input; 0: none */
} job;

typedef struct trained {
    tsr_module *net;
    tsr_graph *g;
    tsr_optimizer *o;
    tsr_grad_scaler *scaler;
    tsr_plan *plan;
} trained;

typedef struct result {
    double loss[UPDATES * RUNS], norm[UPDATES * RUNS];
    float found[UPDATES * RUNS];
    double value[MOST_VALUES];
    int64_t n, steps;
} result;

/* --- declaring -------------------------------------------------------------------------------- */
static tsr_module *make_net(tsr_world *w, const tsr_placement *p, const job *j)
{
    const tsr_sbp sbp = j->layout == INFERRED ? TSR_AUTO : TSR_B;
    if (j->net == MLP)
        return tsr_mlp(w, p, sbp,
                       TSR_MLP_OPTS(.inputs = 12, .hidden = 24, .outputs = 8, .dtype = TSR_F64));
    if (j->net == CONV)
        return tsr_convnet(
            w, p, sbp,
            TSR_CONVNET_OPTS(.num_classes = 8, .height = 8, .width = 8, .dtype = TSR_F64));
    return tsr_gpt(w, p, sbp,
                   TSR_GPT_OPTS(.vocab = 24, .positions = TOKENS, .width = 16, .heads = 4,
                                .layers = 2, .dropout = 0, .dtype = TSR_F64));
}

static tsr_optimizer *make_optimizer(tsr_module *m, const job *j)
{
    const tsr_sbp state = j->layout == ZERO ? TSR_S(0) : TSR_AUTO;
    const tsr_adam_opts *adam =
        TSR_ADAM_OPTS(.lr = 1e-2, .weight_decay = 0.02, .eps = 1e-4, .state = state);
    return j->method == SGD    ? tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9,
                                                         .weight_decay = 0.01, .state = state))
           : j->method == ADAM ? tsr_adam(m, adam)
           : j->method == LAMB ? tsr_lamb(m, adam)
                               : tsr_adamw(m, adam);
}

/* Declares the loss of one batch, whose inputs end in a number. */
static tsr_tensor *declare_loss(tsr_graph *g, tsr_module *m, const tsr_placement *p, const job *j,
                                int number)
{
    char x_name[8], y_name[8];
    snprintf(x_name, sizeof x_name, "x%d", number);
    snprintf(y_name, sizeof y_name, "y%d", number);
    const bool is_gpt = j->net == GPT;
    const tsr_dims dims = is_gpt          ? TSR_DIMS(ROWS, TOKENS)
                          : j->net == MLP ? TSR_DIMS(ROWS, 12)
                                          : TSR_DIMS(ROWS, 1, 8, 8);
    const int64_t rows = is_gpt ? ROWS * TOKENS : ROWS;
    const tsr_input_opts *cut = TSR_INPUT_OPTS(.batch_axis = 0);
    tsr_tensor *x = tsr_input_with(g, x_name, is_gpt ? TSR_I64 : TSR_F64, dims, p, TSR_S(0), cut);
    tsr_tensor *y = tsr_input_with(g, y_name, TSR_I64, TSR_DIMS(rows), p, TSR_S(0), cut);
    tsr_tensor *out = tsr_apply(m, x);
    if (is_gpt)
        out = tsr_reshape(out, TSR_DIMS(rows, 24));
    return tsr_cross_entropy(out, y, TSR_MEAN);
}

/* Declares training by the mean of the losses of n batches, with an update in the last of `runs`.
 */
static tsr_status declare(tsr_world *w, const job *j, int n, int runs, trained *t)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_tensor *loss[RUNS], *part[RUNS], *norm = NULL, *found = NULL;
    t->net = make_net(w, p, j);
    t->g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .seed = 5));
    t->o = make_optimizer(t->net, j);
    t->scaler = j->scales ? tsr_grad_scaler_create(
                                w, TSR_GRAD_SCALER_OPTS(.init_scale = 1024, .growth_interval = 4))
                          : NULL;
    for (int i = 0; i < n; i++) {
        loss[i] = declare_loss(t->g, t->net, p, j, i);
        part[i] = n == 1 ? loss[i] : tsr_mul_scalar(loss[i], 1.0 / n);
    }
    tsr_minimize_with(t->o, n, part,
                      TSR_MINIMIZE_OPTS(.clip_norm = j->clips ? 0.3 : 0,
                                        .out_norm = j->clips ? &norm : NULL, .scaler = t->scaler,
                                        .out_found_inf = j->scales ? &found : NULL,
                                        .accumulate = runs));
    for (int i = 0; i < n; i++)
        tsr_output(t->g, (const char *[]){"loss0", "loss1", "loss2"}[i], loss[i], NULL, TSR_B);
    if (norm)
        tsr_output(t->g, "norm", norm, NULL, TSR_B);
    if (found)
        tsr_output(t->g, "found", found, NULL, TSR_B);
    if (j->fetches)
        tsr_output(t->g, "gradient", tsr_read_gradient(t->g, tsr_module_find(t->net, "0.weight")),
                   NULL, TSR_B);
    return tsr_compile_with(
        t->g, TSR_COMPILE_OPTS(.microbatches = j->parts, .compare_values = j->compares), &t->plan);
}

static void destroy(trained *t)
{
    tsr_plan_destroy(t->plan);
    tsr_graph_destroy(t->g);
    tsr_optimizer_destroy(t->o);
    tsr_grad_scaler_destroy(t->scaler);
    tsr_module_destroy(t->net);
}

/* Feeds input `number` of a plan with batch `run`. */
static tsr_status feed(const trained *t, const job *j, int number, int run)
{
    double x[ROWS * 64];
    int64_t ids[ROWS * TOKENS];
    char name[8];
    const int nx = ROWS * (j->net == MLP ? 12 : 64);
    const int ny = j->net == GPT ? ROWS * TOKENS : ROWS;
    for (int i = 0; i < nx; i++)
        x[i] = sin(1.7 * i + run);
    if (j->inf_in == run + 1)
        x[5] = INFINITY;
    for (int i = 0; i < ROWS * TOKENS; i++)
        ids[i] = (i * 7 + i / 5 + run) % 8;
    snprintf(name, sizeof name, "x%d", number);
    TSRI_TRY(j->net == GPT ? tsr_feed(t->plan, name, ids, sizeof ids)
                           : tsr_feed(t->plan, name, x, (size_t)nx * sizeof *x));
    snprintf(name, sizeof name, "y%d", number);
    return tsr_feed(t->plan, name, ids, (size_t)ny * sizeof *ids);
}

static tsr_status keep(tsr_variable *v, const char *name, void *arg)
{
    result *r = arg;
    const int64_t n = tsr_dims_count(tsr_variable_dims(v));
    if (strstr(name, "num_batches") || strstr(name, "running"))
        return TSR_OK; /* of applications one after the other: compared between ranks */
    CHECK(r->n + n <= MOST_VALUES);
    TSRI_TRY(tsr_variable_get(v, r->value + r->n, (size_t)n * sizeof(double)));
    r->n += n;
    return TSR_OK;
}

static bool near(double got, double want)
{
    return (isnan(got) && isnan(want)) || got == want ||
           fabs(got - want) <= 1e-12 * fmax(1, fabs(want));
}

static bool all_near(const char *what, const double *got, const double *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!near(got[i], want[i])) {
            fprintf(stderr, "%s[%lld]: %.17g, not %.17g\n", what, (long long)i, got[i], want[i]);
            return false;
        }
    return true;
}

/* --- runs ------------------------------------------------------------------------------------- */
static uint64_t bytes_of(const tsri_comm_stats *s)
{
    uint64_t bytes = 0;
    for (int k = 0; k < TSRI_COLL_KIND_COUNT_; k++)
        bytes += s->bytes_read[k];
    return bytes;
}

/* Makes run `run`, fetches, and counts what this rank reads from its peers. */
static tsr_status run_once(tsr_world *w, const trained *t, const job *j, int run, result *r,
                           uint64_t *out_bytes)
{
    tsri_comm_stats before, after;
    TSRI_TRY(feed(t, j, 0, run));
    tsri_plan_stats(w, &before);
    TSRI_TRY(tsr_run(t->plan));
    tsri_plan_stats(w, &after);
    *out_bytes = bytes_of(&after) - bytes_of(&before);
    TSRI_TRY(tsr_fetch(t->plan, "loss0", &r->loss[run], sizeof(double)));
    if (j->clips)
        TSRI_TRY(tsr_fetch(t->plan, "norm", &r->norm[run], sizeof(double)));
    if (j->scales)
        TSRI_TRY(tsr_fetch(t->plan, "found", &r->found[run], sizeof(float)));
    return TSR_OK;
}

static tsr_status finish(trained *t, result *r)
{
    r->n = 0;
    TSRI_TRY(tsr_module_visit(t->net, keep, r));
    r->steps = tsr_optimizer_steps(t->o);
    return TSR_OK;
}

static tsr_status accumulate(tsr_world *w, const job *j, result *r)
{
    trained t;
    uint64_t bytes[RUNS], gradients = 0;
    TSRI_TRY(declare(w, j, 1, RUNS, &t));
    for (int run = 0; run < UPDATES * RUNS; run++)
        TSRI_TRY(run_once(w, &t, j, run, r, &bytes[run % RUNS]));
    TSRI_TRY(finish(&t, r));
    for (int64_t i = 0; i < r->n; i++)
        gradients += sizeof(double);
    if (tsr_world_size(w) > 1 && j->layout == DATA && !j->compares) {
        /* A loss, found-inf, and batch norm's sums: no gradient. */
        const uint64_t few = j->net == CONV ? 20000 : (uint64_t)tsr_world_size(w) * 16;
        CHECK(bytes[0] <= few && bytes[1] == bytes[0]);
        CHECK(bytes[2] >= bytes[0] + gradients / 2);
    }
    if (tsr_world_size(w) > 1) /* shards are reduced in each run, parameters gathered in one */
        CHECK(bytes[0] < bytes[2] && bytes[1] == bytes[0]);
    destroy(&t);
    return TSR_OK;
}

static tsr_status apart(tsr_world *w, const job *j, result *r)
{
    trained t;
    job one = *j;
    one.fetches = false;
    one.parts = 0;
    TSRI_TRY(declare(w, &one, RUNS, 1, &t));
    for (int u = 0; u < UPDATES; u++) {
        for (int i = 0; i < RUNS; i++)
            TSRI_TRY(feed(&t, j, i, u * RUNS + i));
        TSRI_TRY(tsr_run(t.plan));
        for (int i = 0; i < RUNS; i++) {
            const char *name = (const char *[]){"loss0", "loss1", "loss2"}[i];
            TSRI_TRY(tsr_fetch(t.plan, name, &r->loss[u * RUNS + i], sizeof(double)));
            r->norm[u * RUNS + i] = NAN;
        }
        if (j->clips)
            TSRI_TRY(tsr_fetch(t.plan, "norm", &r->norm[u * RUNS + RUNS - 1], sizeof(double)));
        if (j->scales)
            TSRI_TRY(tsr_fetch(t.plan, "found", &r->found[u * RUNS + RUNS - 1], sizeof(float)));
    }
    TSRI_TRY(finish(&t, r));
    destroy(&t);
    return TSR_OK;
}

static tsr_status compare(tsr_world *w, const job *j, result *r)
{
    result *got = &r[0], *want = &r[1];
    TSRI_TRY(accumulate(w, j, got));
    TSRI_TRY(apart(w, j, want));
    CHECK(got->n == want->n && all_near("value", got->value, want->value, got->n));
    CHECK(all_near("loss", got->loss, want->loss, UPDATES * RUNS));
    CHECK(!j->clips || all_near("norm", got->norm, want->norm, UPDATES * RUNS));
    CHECK(got->steps == want->steps && got->steps == UPDATES - (j->inf_in > 0));
    for (int run = 0; run < UPDATES * RUNS && j->scales; run++) {
        const int first = j->inf_in - 1, end = first < 0 ? -1 : (first / RUNS + 1) * RUNS;
        CHECK(got->found[run] == (float)(first >= 0 && run >= first && run < end));
    }
    return TSR_OK;
}

static tsr_status as_apart(tsr_world *w, void *arg)
{
    result *r = calloc(2, sizeof *r);
    CHECK(r);
    const tsr_status status = compare(w, arg, r);
    free(r);
    return status;
}

static void spawn_within(int n, tsr_rank_fn *fn, void *arg, double timeout_s)
{
    tsr_world_opts o = opts;
    o.timeout_s = timeout_s;
    tsr_status status = tsr_spawn_with(n, fn, arg, &o);
    if (status != TSR_OK)
        fail_msg("%d ranks: %s: %s", n, tsr_status_name(status), tsr_last_error());
}

static void spawn_ok(int n, tsr_rank_fn *fn, void *arg)
{
    spawn_within(n, fn, arg, 60);
}

static void hold(job j)
{
    for (int n = 1; n <= 4; n *= 2)
        spawn_ok(n, as_apart, &j);
}

static void test_mlp(void **state)
{
    (void)state;
    hold((job){.net = MLP, .method = SGD});
    hold((job){.net = MLP, .method = SGD, .compares = true});
    hold((job){.net = MLP, .method = ADAM, .clips = true});
    hold((job){.net = MLP, .method = LAMB});
    hold((job){.net = MLP, .method = LAMB, .clips = true, .scales = true});
    hold((job){.net = MLP, .method = ADAMW, .layout = INFERRED, .clips = true});
    hold((job){.net = MLP, .method = ADAMW, .parts = 2, .clips = true});
}

static void test_zero(void **state)
{
    (void)state;
    hold((job){.net = MLP, .method = ADAMW, .layout = ZERO});
    hold((job){.net = MLP, .method = SGD, .layout = ZERO, .clips = true, .scales = true});
    hold((job){.net = GPT, .method = LAMB, .layout = ZERO, .parts = 2});
}

static void test_scaler(void **state)
{
    (void)state;
    hold((job){.net = MLP, .method = SGD, .scales = true});
    hold((job){.net = MLP, .method = ADAM, .scales = true, .inf_in = 11});
    hold((job){.net = MLP, .method = SGD, .scales = true, .clips = true, .inf_in = 12});
    hold((job){.net = MLP, .method = ADAM, .scales = true, .layout = ZERO, .inf_in = 10});
}

static void test_nets(void **state)
{
    (void)state;
    hold((job){.net = CONV, .method = SGD});
    hold((job){.net = GPT, .method = ADAMW, .clips = true});
    hold((job){.net = GPT, .method = ADAM, .parts = 4});
}

/* --- between two updates ---------------------------------------------------------------------- */
static char folder[64];

typedef struct resuming {
    job j;
    bool one_file, saves;
    int at;               /* runs before the save */
    double loss[UPDATES]; /* rank 0's, of all runs from `at` on */
    double value[MOST_VALUES];
    int64_t n;
} resuming;

/* Trains and saves after some runs, or loads that; makes a few more runs. */
static tsr_status train_on(tsr_world *w, void *arg)
{
    resuming *p = arg;
    trained t;
    tsr_checkpoint *c;
    uint64_t bytes;
    result *r = calloc(1, sizeof *r);
    CHECK(r);
    TSRI_TRY(tsr_checkpoint_create(w, folder, TSR_CHECKPOINT_OPTS(.one_file = p->one_file), &c));
    TSRI_TRY(declare(w, &p->j, 1, RUNS, &t));
    TSRI_TRY(tsr_checkpoint_add_module(c, "net", t.net));
    TSRI_TRY(tsr_checkpoint_add_optimizer(c, "o", t.o));
    for (int run = 0; run < p->at && p->saves; run++)
        TSRI_TRY(run_once(w, &t, &p->j, run, r, &bytes));
    TSRI_TRY(p->saves ? tsr_checkpoint_save(c, p->at, NAN) : tsr_checkpoint_load(c, NULL, NULL));
    for (int run = p->at; run < UPDATES; run++)
        TSRI_TRY(run_once(w, &t, &p->j, run, r, &bytes));
    TSRI_TRY(finish(&t, r));
    if (tsr_world_rank(w) == 0) {
        p->n = r->n;
        memcpy(p->loss, r->loss + p->at, sizeof(double) * (size_t)(UPDATES - p->at));
        memcpy(p->value, r->value, sizeof(double) * (size_t)r->n);
    }
    free(r);
    tsr_checkpoint_destroy(c);
    destroy(&t);
    return TSR_OK;
}

static void resume(job j, int at, bool one_file, int from, int to)
{
    static resuming saved, loaded;
    char command[100];
    saved = (resuming){.j = j, .one_file = one_file, .saves = true, .at = at};
    loaded = (resuming){.j = j, .one_file = one_file, .at = at};
    snprintf(folder, sizeof folder, "/tmp/tessera-accumulate-%d", (int)getpid());
    spawn_ok(from, train_on, &saved);
    spawn_ok(to, train_on, &loaded);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    assert_true(all_near("loss", loaded.loss, saved.loss, UPDATES - at));
    assert_true(loaded.n == saved.n && all_near("value", loaded.value, saved.value, saved.n));
}

static void test_resume(void **state)
{
    (void)state;
    const job mlp = {.net = MLP, .method = ADAM};
    for (int from = 1; from <= 4; from *= 2)
        for (int to = 1; to <= 4; to *= 2)
            resume(mlp, 7 + from % 2, to == 2, from, to);
    resume((job){.net = MLP, .method = SGD, .layout = ZERO}, 5, false, 4, 2);
    resume((job){.net = MLP, .method = SGD, .layout = INFERRED}, 4, true, 2, 4);
    resume((job){.net = GPT, .method = ADAMW, .clips = true}, 4, false, 4, 1);
    resume(mlp, 6, false, 2, 4); /* after an update */
}

/* --- what a plan says ------------------------------------------------------------------------- */
/* The reduction of a gradient that is fetched is made in each run, and its bytes count. */
static tsr_status fetched(tsr_world *w, void *arg)
{
    job j = {.net = MLP, .fetches = *(bool *)arg};
    trained t;
    static _Thread_local result r;
    uint64_t bytes[RUNS];
    tsr_plan_info info = {.size = sizeof info};
    const int n = tsr_world_size(w);
    double gradient[24 * 12], sum = 0;
    TSRI_TRY(declare(w, &j, 1, RUNS, &t));
    for (int run = 0; run < RUNS; run++) {
        TSRI_TRY(run_once(w, &t, &j, run, &r, &bytes[run]));
        if (j.fetches)
            TSRI_TRY(tsr_fetch(t.plan, "gradient", gradient, sizeof gradient));
        for (int i = 0; i < 24 * 12 && j.fetches; i++)
            sum += fabs(gradient[i]);
        CHECK(!j.fetches || sum > 0);
    }
    const char *text = tsr_plan_explain(t.plan);
    CHECK(strstr(text, "updates in one of 3 runs") && strstr(text, "once in 3 runs"));
    CHECK((strstr(text, "in each run") != NULL) == (n > 1));
    CHECK(!j.fetches || n == 1 || strstr(text, "output 'gradient'"));
    TSRI_TRY(tsr_plan_get_info(t.plan, &info));
    CHECK(bytes[RUNS - 1] == info.comm_bytes);
    char few[100];
    snprintf(few, sizeof few, "reads %llu bytes from peers", (unsigned long long)bytes[0]);
    CHECK(strstr(text, few));
    CHECK(n == 1 || (bytes[0] >= sizeof gradient / 2) == j.fetches);
    destroy(&t);
    return TSR_OK;
}

static void test_fetched(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n *= 2)
        for (int fetches = 0; fetches < 2; fetches++)
            spawn_ok(n, fetched, &(bool){fetches});
}

/* Where shards of states are kept, so are shards of the mean, and explain says what that costs. */
static tsr_status shards(tsr_world *w, void *arg)
{
    (void)arg;
    job j = {.net = MLP, .layout = ZERO};
    trained t;
    TSRI_TRY(declare(w, &j, 1, RUNS, &t));
    CHECK(
        strstr(tsr_plan_explain(t.plan), "in each run, as shards of the mean over runs are kept"));
    destroy(&t);
    return TSR_OK;
}

static void test_shards(void **state)
{
    (void)state;
    spawn_ok(2, shards, NULL);
    spawn_ok(4, shards, NULL);
}

/* A plan with accumulation takes no more than one that updates in each run. */
static tsr_status memory(tsr_world *w, void *arg)
{
    for (int clips = 0; clips < 2; clips++) {
        const job j = {.net = *(net *)arg, .clips = clips};
        trained t;
        tsr_plan_info each = {.size = sizeof each}, once = each;
        TSRI_TRY(declare(w, &j, 1, 1, &t));
        TSRI_TRY(tsr_plan_get_info(t.plan, &each));
        destroy(&t);
        TSRI_TRY(declare(w, &j, 1, RUNS, &t));
        TSRI_TRY(tsr_plan_get_info(t.plan, &once));
        destroy(&t);
        CHECK(once.activation_bytes <= each.activation_bytes);
    }
    return TSR_OK;
}

static void test_memory(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n *= 2)
        for (int which = MLP; which <= GPT; which++)
            spawn_ok(n, memory, &(net){which});
}

/* Two optimizers of one net, of which one updates in each run: what it stores stays where the other
 * one leaves its update out. */
static tsr_status two(tsr_world *w, void *arg)
{
    const job j = {.net = MLP};
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    static _Thread_local result r;
    trained t = {.net = make_net(w, p, &j)};
    tsr_optimizer *each = tsr_rmsprop(t.net, TSR_RMSPROP_OPTS(.lr = 0.01, .state = TSR_S(0)));
    t.o = tsr_adamw(t.net, TSR_ADAM_OPTS(.lr = 0.01, .state = TSR_S(0)));
    t.g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .seed = 5));
    tsr_tensor *loss = declare_loss(t.g, t.net, p, &j, 0);
    tsr_minimize(each, loss);
    tsr_minimize_with(t.o, 1, &loss, TSR_MINIMIZE_OPTS(.accumulate = RUNS));
    tsr_output(t.g, "loss0", loss, NULL, TSR_B);
    TSRI_TRY(tsr_compile(t.g, &t.plan));
    for (int run = 0; run < RUNS + 1; run++) {
        uint64_t bytes;
        TSRI_TRY(run_once(w, &t, &j, run, &r, &bytes));
    }
    TSRI_TRY(finish(&t, &r));
    if (tsr_world_rank(w) == 0)
        memcpy(arg, &r, sizeof r);
    destroy(&t);
    tsr_optimizer_destroy(each);
    return TSR_OK;
}

static void test_two(void **state)
{
    (void)state;
    static result alone, together;
    spawn_ok(1, two, &alone);
    for (int n = 2; n <= 4; n *= 2) {
        spawn_ok(n, two, &together);
        assert_true(all_near("loss", together.loss, alone.loss, RUNS + 1));
        assert_true(all_near("value", together.value, alone.value, alone.n));
    }
}

/* Ranks that count differently are told so, and none of them hangs. */
static tsr_status miscounted(tsr_world *w, void *arg)
{
    const int how = *(int *)arg;
    const job j = {.net = MLP, .compares = how == 1};
    trained t;
    static _Thread_local result r;
    uint64_t bytes;
    TSRI_TRY(declare(w, &j, 1, RUNS, &t));
    for (int run = 0; run < 4; run++)
        TSRI_TRY(run_once(w, &t, &j, run, &r, &bytes));
    t.o->runs += tsr_world_rank(w) == 1;
    if (how == 0) {
        tsr_plan *plan = NULL;
        CHECK(tsr_compile(t.g, &plan) == TSR_ERR_MISMATCH);
        CHECK(strstr(tsr_last_error(), "runs since the last update"));
        return TSR_OK;
    }
    tsr_status status = TSR_OK;
    for (int run = 4; run < 8 && status == TSR_OK; run++) {
        TSRI_TRY(feed(&t, &j, 0, run));
        status = tsr_run(t.plan);
    }
    CHECK(status == (how == 1 ? TSR_ERR_MISMATCH : status) && status != TSR_OK);
    return TSR_OK;
}

static void test_miscounted(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++)
        spawn_within(2, miscounted, &how, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp),    cmocka_unit_test(test_zero),
        cmocka_unit_test(test_scaler), cmocka_unit_test(test_nets),
        cmocka_unit_test(test_resume), cmocka_unit_test(test_fetched),
        cmocka_unit_test(test_shards), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_two),    cmocka_unit_test(test_miscounted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
