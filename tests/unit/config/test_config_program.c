/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of experiments: what they compute, where they put things, and how building fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/placement.h"
#include "src/config/print/man.h"
#include "src/config/program.h"
#include "src/data/npy.h"
#include "src/graph/graph.h"
#include "src/optim/optim.h"
#include "tests/unit/files.h"
#include "tests/sample.h"

static tsri_experiment *load(const char *text)
{
    tsri_experiment *e = NULL;
    write_file("f.yaml", text, strlen(text));
    if (tsri_experiment_load(test_path("f.yaml"), 0, NULL, &e) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    return e;
}

/* --- running ---------------------------------------------------------------------------------- */
typedef struct want {
    const char *name;
    int n;
    double v[16];
} want;

typedef struct job {
    const tsri_experiment *e;
    const want *wants; /* n 0: the last */
    int64_t fail_at;   /* on rank 0; 0: never */
    bool reached;
    double losses[64];
    int nlosses;
} job;

static tsr_status check_fetch(tsr_plan *plan, const tsri_fetch *f, const want *w)
{
    double values[16];
    char raw[16 * 8];
    int64_t n = tsr_dims_count(f->dims);
    if (strcmp(f->name, w->name) || n != w->n)
        return tsri_fail(TSR_ERR_INTERNAL, "%s has %lld elements", f->name, (long long)n);
    TSRI_TRY(tsr_fetch(plan, f->name, raw, (size_t)n * tsr_dtype_size(f->dtype)));
    for (int64_t i = 0; i < n; i++) {
        float f32;
        int64_t i64;
        memcpy(&f32, raw + (f->dtype == TSR_F32 ? 4 * i : 0), 4);
        memcpy(&i64, raw + (f->dtype == TSR_I64 ? 8 * i : 0), 8);
        memcpy(&values[i], raw + (f->dtype == TSR_F64 ? 8 * i : 0), 8);
        values[i] = f->dtype == TSR_F32   ? (double)f32
                    : f->dtype == TSR_I64 ? (double)i64
                                          : values[i];
        if (fabs(values[i] - w->v[i]) > 1e-6 * (1 + fabs(w->v[i])))
            return tsri_fail(TSR_ERR_INTERNAL, "%s[%lld] is %g, not %g", f->name, (long long)i,
                             values[i], w->v[i]);
    }
    return TSR_OK;
}

static tsr_status run_steps(tsri_program *p, tsr_plan *plan, job *j)
{
    /* One of those that have the loss writes it down. */
    bool mine = tsr_placement_rank(p->fetches[0].placement, 0) == tsr_world_rank(p->world);
    for (int64_t step = 0; step < p->steps; step++) {
        TSRI_TRY(tsri_program_feed(p, plan));
        TSRI_TRY(tsr_run(plan));
        for (int i = 0; j->wants && i < p->nfetches; i++)
            if (tsr_placement_find(p->fetches[i].placement, tsr_world_rank(p->world)) >= 0)
                TSRI_TRY(check_fetch(plan, &p->fetches[i], &j->wants[i]));
        if (!j->wants && mine)
            TSRI_TRY(tsr_fetch_scalar(plan, "loss", &j->losses[j->nlosses++]));
    }
    return TSR_OK;
}

static tsr_status run_rank(tsr_world *w, void *arg)
{
    job *j = arg;
    bool mine = tsr_world_rank(w) == 0;
    tsri_program *p;
    tsr_plan *plan;
    if (mine)
        w->mem.fail_countdown = j->fail_at;
    TSRI_TRY(tsri_program_build(j->e, w, NULL, &p));
    tsr_status status = tsr_compile(p->graph, &plan);
    if (status == TSR_OK)
        status = run_steps(p, plan, j);
    if (mine) {
        j->reached = w->mem.fail_countdown == 0;
        w->mem.fail_countdown = 0;
    }
    tsri_program_destroy(p);
    return status;
}

static void run(const char *text, const want *wants)
{
    tsri_experiment *e = load(text);
    job j = {.e = e, .wants = wants};
    if (tsr_spawn(tsri_experiment_nranks(e), run_rank, &j) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    tsri_experiment_destroy(e);
}

#define HEAD "tessera: 1\nplacements: {a: {ranks: [0, 1]}, r: {ranks: [1, 0]}, o: {ranks: [0]}}\n"

static void test_graph(void **state)
{
    (void)state;
    static const want wants[] = {{"z", 6, {9, 12, 15, 19, 26, 33}},
                                 {"grad(w)", 6, {4, 4, 4, 6, 6, 6}},
                                 {"q", 3, {19, 26, 33}},
                                 {"l", 1, {114}}};
    run(HEAD "graph:\n"
             "  x: {op: constant, value: [[1, 2], [3, 4]], dtype: f32, placement: a, sbp: S(0)}\n"
             "  p: {op: from_local, locals: [[[1, 2]], [[2, 2]]], placement: a, sbp: P}\n"
             "  w: {op: parameter, arange: [1, 1], shape: [2, 3], placement: a, sbp: [B]}\n"
             "  y: {op: matmul, in: [x, w]}\n"
             "  z: {op: to_global, in: y, placement: a, sbp: S(1)}\n"
             "  q: {op: matmul, in: [p, w]}\n"
             "  l: {op: sum, in: z}\n"
             "loss: l\nfetch: [z, grad(w), q, l]\ntrain: {steps: 3}\n",
        wants);
}

/* Several results; partial values; operands that are moved to where an entry is made, or to where
 * its first operand is. */
static void test_results(void **state)
{
    (void)state;
    static const want wants[] = {
        {"s.0", 1, {1}},           {"s.1", 2, {2, 3}}, {"grad(s.1)", 2, {4, 6}}, {"p", 2, {5, 6}},
        {"c", 5, {2, 3, 1, 5, 6}}, {"l", 1, {13}},     {"m", 2, {12, 23}},       {"n", 2, {8, 17}}};
    run(HEAD "graph:\n"
             "  x: {op: constant, value: [1, 2, 3], sbp: S(0)}\n"
             "  s: {op: split, in: x, sizes: [1, 2], sbp: B}\n"
             "  p: {op: constant, value: [5, 6], sbp: P}\n"
             "  c: {op: concat, in: [s.1, s.0, p]}\n"
             "  q: {op: mul, in: [s.1, s.1], sbp: S(0)}\n"
             "  l: {op: sum, in: q}\n"
             "  u: {op: constant, value: [10, 20], placement: o}\n"
             "  m: {op: add, in: [s.1, u]}\n"
             "  n: {op: sub, in: [u, s.1]}\n"
             "loss: l\nfetch: [s.0, s.1, grad(s.1), p, c, l, m, n]\n",
        wants);
}

/* The ranks of the placement are in their own order, not in the world's. */
static void test_locals(void **state)
{
    (void)state;
    static const want wants[] = {{"s", 3, {1, 2, 3}}, {"b", 1, {5}}, {"m", 2, {4, 9}}};
    run(HEAD "graph:\n"
             "  s: {op: from_local, locals: [[1, 2], [3]], placement: r, sbp: S(0)}\n"
             "  b: {op: from_local, locals: [[5], [6]], placement: r, sbp: B}\n"
             "  m: {op: from_local, locals: [[4, 1], [2, 9]], placement: r, sbp: P(max)}\n"
             "fetch: [s, b, m]\n",
        wants);
}

static void test_values(void **state)
{
    (void)state;
    static const want wants[] = {{"n", 3, {0.5, 1.5, 2.5}}, {"i", 2, {7, -7}},
                                 {"g", 3, {1, 3, 5}},       {"c", 2, {1.25, 1.25}},
                                 {"d", 1, {0.1}},           {"h", 3, {0.5, 1.5, 2.5}},
                                 {"t", 2, {0, 1}}};
    const float n[3] = {0.5F, 1.5F, 2.5F};
    const int64_t i[2] = {7, -7};
    assert_int_equal(tsri_npy_write(test_path("n.npy"), TSR_F32, TSR_DIMS(3), n), TSR_OK);
    assert_int_equal(tsri_npy_write(test_path("i.npy"), TSR_I64, TSR_DIMS(2), i), TSR_OK);
    run(HEAD "graph:\n"
             "  n: {op: constant, file: n.npy}\n"
             "  i: {op: constant, file: i.npy, shape: [2], sbp: B}\n"
             "  g: {op: parameter, arange: [1, 2], shape: [3], dtype: i64}\n"
             "  c: {op: parameter, fill: 1.25, shape: [2], sbp: S(0)}\n"
             "  d: {op: constant, value: 0.1, dtype: f64, placement: o}\n"
             "  h: {op: parameter, file: n.npy, dtype: f64}\n"
             "  e: {op: constant, value: [true, false], dtype: bool}\n"
             "  f: {op: constant, value: [0, 1]}\n"
             "  t: {op: dropout, in: f, p: 0.5}\n" /* not in training: as it was */
             "fetch: [n, i, g, c, d, h, t]\n",
        wants);
}

/* The same seed and names give the same numbers on any ranks; dtype reaches all. */
static void test_random(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "tessera: 1\nplacements: {a: {ranks: [0]}}\ngraph:\n"
        "  x: {op: constant, normal: [1, 2], shape: [64], sbp: B}\n"
        "  w: {op: parameter, uniform: [0, 1], shape: [64], sbp: B}\n"
        "  y: {op: mul, in: [x, w]}\n  loss: {op: sum, in: y}\ndtype: f64\ntrain: {seed: 3}\n",
        "tessera: 1\nplacements: {a: {ranks: [2, 0, 1]}}\ngraph:\n"
        "  x: {op: constant, normal: [1, 2], shape: [64], sbp: S(0)}\n"
        "  w: {op: parameter, uniform: true, shape: [64], sbp: S(0)}\n"
        "  y: {op: mul, in: [x, w]}\n  loss: {op: sum, in: y}\ndtype: f64\ntrain: {seed: 3}\n"};
    double loss[2];
    for (int t = 0; t < 2; t++) {
        tsri_experiment *e = load(texts[t]);
        job j = {.e = e};
        if (tsr_spawn(tsri_experiment_nranks(e), run_rank, &j) != TSR_OK)
            fail_msg("%s", tsr_last_error());
        loss[t] = j.losses[0];
        tsri_experiment_destroy(e);
    }
    assert_true(fabs(loss[0] - loss[1]) < 1e-9 && fabs(loss[0]) > 1);
}

/* --- training --------------------------------------------------------------------------------- */
#define NET_BUT_OPTIMIZER                                                                      \
    "model: {name: mlp, args: {hidden: 16}}\n"                                                 \
    "data: {dataset: synthetic, shape: [1, 4, 4], classes: 3, batch_size: 32, samples: 100}\n" \
    "train: {epochs: 5, seed: 1}\n"
#define NET NET_BUT_OPTIMIZER "optimizer: {name: sgd, lr: 0.2, momentum: 0.9}\n"

static int train(const char *text, double losses[64])
{
    tsri_experiment *e = load(text);
    job j = {.e = e};
    if (tsr_spawn(tsri_experiment_nranks(e), run_rank, &j) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    memcpy(losses, j.losses, sizeof j.losses);
    tsri_experiment_destroy(e);
    return j.nlosses;
}

/* Five epochs of three full batches; the same losses in any layout; and it learns. */
static void test_training(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "tessera: 1\nplacements: {d: {ranks: [0]}}\n" NET,
        "tessera: 1\nplacements: {d: {ranks: [0, 1]}}\n" NET,
        "tessera: 1\nplacements: {d: {ranks: [1, 2, 0]}}\n" NET
        "parameters: [{match: '*', placement: d, sbp: S(0)}, {match: '*.bias', sbp: auto}]\n"
        "tensors: {label: {sbp: B}, logits: {sbp: S(1)}}\n",
        "tessera: 1\nplacements: {d: {ranks: [0, 1]}}\n" NET "tensors: {input: {sbp: S(2)}}\n",
        "tessera: 1\nplacements: {d: {ranks: [0, 1]}}\n" NET_BUT_OPTIMIZER
        "optimizer: {name: sgd, lr: 0.2, momentum: 0.9, state: {sbp: S(0)}}\n",
        "tessera: 1\nplacements: {d: {ranks: [0, 1]}, e: {ranks: [2]}}\n" NET
        "parameters: [{match: '2.*', placement: e}]\n",
        "tessera: 1\nplacements: {d: {ranks: [[0, 1], [2, 3]]}}\n" NET
        "tensors: {input: {sbp: [S(0), B]}}\nparameters: [{match: '*', sbp: '(B,S(0))'}]\n"};
    double first[64], losses[64];
    assert_int_equal(train(texts[0], first), 15);
    assert_true(first[14] < 0.5 * first[0]);
    for (size_t t = 1; t < sizeof texts / sizeof *texts; t++) {
        assert_int_equal(train(texts[t], losses), 15);
        for (int i = 0; i < 15; i++)
            if (fabs(losses[i] - first[i]) > 1e-4)
                fail_msg("%zu: loss %d is %g, not %g", t, i, losses[i], first[i]);
    }
}

/* Every optimizer and schedule trains, alike on one rank and on two. */
static void test_optimizers(void **state)
{
    (void)state;
    static const char *const optimizers[] = {
        "{name: sgd, lr: 0.2, clip_norm: 0.5, schedule: {name: exponential, gamma: 0.9}}",
        "{name: rmsprop, accumulate: 3, momentum: 0.5, centered: true, schedule: {name: linear}}",
        "{name: adagrad, lr_decay: 0.1, initial_accumulator_value: 0.5, loss_scale: 8, "
        "schedule: {name: multi_step, milestones: [3, 7]}}",
        "{name: lion, lr: 0.01, weight_decay: 0.1, schedule: {name: one_cycle, max_lr: 0.02}}",
        "{name: lamb, lr: 0.02, schedule: {name: cosine_restarts, steps: 4}}",
        "{name: adamw, clip_value: 0.1, groups: [{match: '*.bias', weight_decay: 0, lr: 0.01}, "
        "{match: '0.*', frozen: true}]}"};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        double losses[2][64];
        for (int ranks = 1; ranks <= 2; ranks++) {
            char text[1024];
            snprintf(text, sizeof text,
                     "tessera: 1\nplacements: {d: {ranks: [0%s]}}\n" NET_BUT_OPTIMIZER
                     "optimizer: %s\n",
                     ranks > 1 ? ", 1" : "", optimizers[i]);
            assert_int_equal(train(text, losses[ranks - 1]), 15);
        }
        assert_true(losses[0][14] < losses[0][0]);
        for (int k = 0; k < 15; k++)
            assert_true(fabs(losses[0][k] - losses[1][k]) < 1e-4);
    }
}

static tsr_status save_weights(tsr_world *w, void *arg)
{
    const tsri_experiment *e = arg;
    tsri_program *p;
    tsr_plan *plan;
    TSRI_TRY(tsri_program_build(e, w, NULL, &p));
    TSRI_TRY(tsr_compile(p->graph, &plan));
    TSRI_TRY(tsri_program_feed(p, plan));
    TSRI_TRY(tsr_run(plan));
    tsr_status status = tsr_save(p->module, test_path("w.safetensors"));
    tsri_program_destroy(p);
    return status;
}

/* Training goes on from saved weights, whatever the seed says. */
static void test_init(void **state)
{
    (void)state;
    tsri_experiment *e = load("tessera: 1\nplacements: {d: {ranks: [0]}}\n" NET);
    double a[64], b[64];
    if (tsr_spawn(1, save_weights, e) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    tsri_experiment_destroy(e);
#define FROM(seed)                                                                             \
    "tessera: 1\nplacements: {d: {ranks: [0, 1]}}\nmodel: {name: mlp, args: {hidden: 16}}\n"   \
    "data: {dataset: synthetic, shape: [1, 4, 4], classes: 3, batch_size: 32, samples: 100}\n" \
    "train: {steps: 2, init: w.safetensors, seed: " seed "}\n"
    assert_int_equal(train(FROM("1"), a), 2);
    assert_int_equal(train(FROM("2"), b), 2);
    assert_true(fabs(a[0] - b[0]) < 1e-6 && fabs(a[1] - b[1]) < 1e-6);
}

/* --- planning --------------------------------------------------------------------------------- */
static tsr_status plan_text(const char *text, int nranks, tsri_program **out_program,
                            tsri_experiment **out_experiment, tsr_world **out_world)
{
    *out_experiment = load(text);
    assert_int_equal(tsr_world_create_virtual(nranks, 0, out_world), TSR_OK);
    return tsri_program_build(*out_experiment, *out_world, NULL, out_program);
}

/* The keys of an optimizer reach it. */
static void test_optimizer_keys(void **state)
{
    (void)state;
    tsri_program *p;
    tsri_experiment *e;
    tsr_world *w;
    assert_int_equal(
        plan_text("tessera: 1\nplacements: {d: {ranks: [0]}}\n" NET_BUT_OPTIMIZER
                  "optimizer: {name: rmsprop, alpha: 0.5, momentum: 0.25, schedule: {name: "
                  "one_cycle, pct_start: 0.5, three_phase: true, max_lr: 3}, groups: [{match: "
                  "'*.weight', lr: 7}, {match: '0.*', frozen: true}, {match: '0.bias', frozen: "
                  "false}]}\n",
                  1, &p, &e, &w),
        TSR_OK);
    const tsr_optimizer *o = p->optimizer;
    assert_true(o->kind == TSRI_OPTIM_RMSPROP && o->groups[0].number[TSRI_ALPHA] == 0.5);
    assert_true(o->groups[0].number[TSRI_MOMENTUM] == 0.25);
    const tsr_schedule *s = &o->groups[0].schedule;
    assert_true(s->kind == TSR_SCHEDULE_ONE_CYCLE && s->pct_start == 0.5 && s->three_phase);
    assert_true(s->max_lr == 3 && s->steps == 15 && s->div_factor == 25);
    assert_true(o->ngroups == 2 && o->groups[1].number[TSRI_LR] == 7);
    for (int i = 0; i < o->nslots; i++) {
        char name[TSRI_NAME_MAX];
        tsri_variable_qualified_name(o->slots[i].param, name, sizeof name);
        const tsri_optim_class *c = &o->classes[o->slots[i].class];
        assert_int_equal(c->frozen, !strcmp(name, "0.weight"));
        assert_int_equal(c->group, strstr(name, "weight") != NULL);
    }
    tsri_program_destroy(p);
    tsr_world_destroy(w);
    tsri_experiment_destroy(e);
    assert_int_not_equal(plan_text("tessera: 1\nplacements: {d: {ranks: [0]}}\n" NET_BUT_OPTIMIZER
                                   "optimizer: {name: sgd, groups: [{match: 'x.*', lr: 1}]}\n",
                                   1, &p, &e, &w),
                         TSR_OK);
    assert_non_null(strstr(tsr_last_error(), "no name of the optimizer's 4 parameters fits 'x.*'"));
    tsr_world_destroy(w);
    tsri_experiment_destroy(e);
}

#define SMALL "data: {dataset: synthetic, shape: [3, 2, 2], classes: 2}\n"
static void test_planning(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t steps, per_epoch;
    } rows[] = {
        {"model: {name: mobilenet_v2, args: {variant: stem1, width: 0.25}}\n"
         "data: {dataset: cifar10, dir: /nowhere, batch_size: 100}\n",
         500, 500},
        {"model: {name: convnet}\ndata: {dataset: mnist, dir: /nowhere, batch_size: 64}\n"
         "train: {epochs: 2}\n",
         1874, 937},
        {"model: {name: mlp}\ndata: {dataset: synthetic, shape: [4], classes: 2}\n"
         "train: {epochs: 2, steps: 5}\n",
         5, 16},
        {"model: {name: mlp}\n" SMALL "train: {steps: 50}\n", 50, 16},
        {"model: {name: resnet18, args: {variant: cifar, width: 4}}\n"
         "data: {dataset: cifar10, dir: /nowhere, batch_size: 100}\n",
         500, 500},
        {"model: {name: lenet}\ndata: {dataset: mnist, dir: /nowhere, batch_size: 64}\n", 937, 937},
        {"model: {name: gpt, args: {width: 8, heads: 2, layers: 1}}\n" SMALL, 16, 16},
        {"model: {name: lstm_lm, args: {width: 8, hidden: 8}}\n" SMALL, 16, 16},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tsri_program *p;
        tsri_experiment *e;
        tsr_world *w;
        tsr_plan *plan;
        char text[1000];
        snprintf(text, sizeof text, "tessera: 1\nplacements: {d: {ranks: [0, 1, 2, 3]}}\n%s",
                 rows[i].text);
        if (plan_text(text, 4, &p, &e, &w) != TSR_OK || tsr_compile(p->graph, &plan) != TSR_OK)
            fail_msg("%s", tsr_last_error());
        assert_int_equal(p->steps, rows[i].steps);
        assert_int_equal(p->steps_per_epoch, rows[i].per_epoch);
        assert_null(p->loader);
        assert_int_equal(p->nfetches, 1);
        assert_true(p->fetches[0].is_loss && !strcmp(p->fetches[0].name, "loss"));
        assert_int_equal(tsri_program_feed(p, plan), TSR_ERR_STATE);
        assert_non_null(strstr(tsr_plan_explain(plan), "loss"));
        tsr_plan_destroy(plan);
        tsri_program_destroy(p);
        tsr_world_destroy(w);
        tsri_experiment_destroy(e);
    }
}

static void test_planning_without_files(void **state)
{
    (void)state;
    tsri_program *p;
    tsri_experiment *e;
    tsr_world *w;
    if (plan_text(HEAD "graph:\n"
                       "  x: {op: constant, file: no.npy, shape: [4, 6]}\n"
                       "  y: {op: from_local, locals: [1.npy, 2.npy], shape: [4, 6], sbp: S(0)}\n"
                       "  w: {op: parameter, file: no.npy, shape: [6]}\n"
                       "  z: {op: add, in: [x, y]}\n  l: {op: mul, in: [z, w]}\n",
                  2, &p, &e, &w) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    assert_true(tsr_dims_equal(p->fetches[0].dims, TSR_DIMS(4, 6)));
    /* All placements are there, in the file's order, though no entry is on the last two. */
    const tsr_placement *last = w->placements ? tsr_placement_parse(w, "cpu:[0]") : NULL;
    assert_non_null(last);
    assert_string_equal(last->next->text, "cpu:[1,0]");
    assert_string_equal(last->next->next->text, "cpu:[0,1]");
    tsri_program_destroy(p);
    tsr_world_destroy(w);
    tsri_experiment_destroy(e);
}

static void assert_compiles(const char *name, tsri_experiment *e)
{
    tsri_program *p;
    tsr_world *w;
    tsr_plan *plan;
    assert_int_equal(tsr_world_create_virtual(tsri_experiment_nranks(e), 0, &w), TSR_OK);
    if (tsri_program_build(e, w, NULL, &p) != TSR_OK || tsr_compile(p->graph, &plan) != TSR_OK)
        fail_msg("%s: %s", name, tsr_last_error());
    tsri_program_destroy(p);
    tsr_world_destroy(w);
    tsri_experiment_destroy(e);
}

/* The examples, and those of the manual page, compile for as many ranks as they name. */
static void test_examples(void **state)
{
    (void)state;
    for (int i = 0; tsri_config_examples[i]; i++)
        assert_compiles("tessera-yaml(5)", load(tsri_config_examples[i]));
    DIR *dir = opendir(TESSERA_SOURCE "/examples/experiments");
    int n = 0;
    assert_non_null(dir);
    for (struct dirent *d; (d = readdir(dir));) {
        char path[PATH_MAX];
        tsri_experiment *e;
        if (!strstr(d->d_name, ".yaml"))
            continue;
        snprintf(path, sizeof path, "%s/%s", TESSERA_SOURCE "/examples/experiments", d->d_name);
        if (tsri_experiment_load(path, 0, NULL, &e) != TSR_OK)
            fail_msg("%s", tsr_last_error());
        assert_compiles(path, e);
        n++;
    }
    closedir(dir);
    assert_true(n >= 3);
}

/* Where the patterns put variables: the last that fits and says so counts, key by key. */
static void test_patterns(void **state)
{
    (void)state;
    tsri_program *p;
    tsri_experiment *e;
    tsr_world *w;
    char text[TSR_SBP_TEXT_MAX];
    if (plan_text("tessera: 1\n"
                  "placements: {d: {ranks: [0, 1]}, s: {ranks: [1, 0]}, g: {ranks: [[0], [1]]}}\n"
                  "model: {name: mlp, args: {layers: 1}}\n"
                  "data: {dataset: synthetic, shape: [1, 4, 4], classes: 4}\n"
                  "tensors: {input: {placement: s}}\n"
                  "parameters:\n"
                  "  - {match: '*', placement: g, sbp: B}\n"
                  "  - {match: '*.weight', sbp: '(B,S(1))'}\n"
                  "  - {match: '*.weight'}\n"
                  "  - {match: '0.[a-c]*', sbp: auto}\n",
                  2, &p, &e, &w) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    const tsr_variable *weight = tsr_module_find(p->module, "0.weight");
    const tsr_variable *bias = tsr_module_find(p->module, "0.bias");
    assert_string_equal(tsr_placement_text(weight->placement), "cpu:[[0],[1]]");
    assert_string_equal(tsr_sbp_format(weight->sbp, text), "(B,S(1))");
    assert_string_equal(tsr_placement_text(bias->placement), "cpu:[[0],[1]]");
    assert_string_equal(tsr_sbp_format(bias->sbp, text), "auto");
    tsri_program_destroy(p);
    tsr_world_destroy(w);
    tsri_experiment_destroy(e);
}

/* --- errors ----------------------------------------------------------------------------------- */
static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error; /* %s is the folder */
    } rows[] = {
        {"graph:\n  x: {op: full, value: 1, shape: [2, 3]}\n  y: {op: matmul, in: [x, x]}\n",
         "%s/f.yaml:5:6: graph.y: matmul: (2,3) x (2,3): inner sizes 3 and 2 differ; transpose an "
         "operand"},
        {"graph:\n  x: {op: constant, file: no.npy}\n",
         "%s/f.yaml:4:27: graph.x.file: %s/no.npy: can't be opened: No such file or directory"},
        {"graph:\n  x: {op: constant, file: n.npy, dtype: i64}\n",
         "%s/f.yaml:4:27: graph.x.file: %s/n.npy is f32; dtype is i64"},
        {"graph:\n  x: {op: constant, file: n.npy, shape: [4]}\n",
         "%s/f.yaml:4:41: graph.x.shape: %s/n.npy has 1 axes, the first of 3, and another shape"},
        {"graph:\n  x: {op: from_local, locals: [[1], [2, 3]], sbp: S(0)}\n",
         "%s/f.yaml:4:32: graph.x.locals[0]: rank 0 has a part of shape (1); of (3) in S(0) on "
         "cpu:[0,1] it must be (2)"},
        {"graph:\n  x: {op: from_local, locals: [[1], [2, 3]], sbp: P}\n",
         "%s/f.yaml:4:37: graph.x.locals[1]: rank 1 has a part of shape (2); of (1) in P on "
         "cpu:[0,1] it must be (1)"},
        {"graph:\n  x: {op: from_local, locals: [n.npy, [1]], dtype: f64, shape: [3], sbp: S(0)}\n",
         "%s/f.yaml:4:64: graph.x.shape: the parts make (4)"},
        {"graph:\n  x: {op: parameter, fill: 1, shape: [3], sbp: P}\n",
         "%s/f.yaml:4:6: graph.x: parameter 'x': signature P for shape (3); legal are B and "
         "S(i) with i below its number of axes (P is for values that are computed)"},
        {"graph:\n  x: {op: full, value: 1, shape: [3]}\n  y: {op: sum, in: x}\n"
         "loss: y\nfetch: grad(y)\n",
         NULL},
        {"graph:\n  x: {op: parameter, fill: 1, shape: [3]}\n  y: {op: full, value: 1, shape: []}\n"
         "loss: y\nfetch: grad(x)\n",
         "%s/f.yaml:7:8: fetch: the loss 'y' does not depend on 'x': it is full, computed from "
         "nothing"},
        {"model: {name: mlp}\ndata: {dataset: cifar10, dir: gone}\n",
         "%s/f.yaml:4:7: data: %s/gone"},
        {"model: {name: mlp}\ndata: {dataset: synthetic, shape: [4], classes: 2, samples: 10}\n",
         "%s/f.yaml:4:7: data: a batch of 64 rows; the set has 10"},
        {"model: {name: lstm_lm}\ndata: {dataset: text, file: missing.txt}\n",
         "%s/f.yaml:4:7: data: %s/missing.txt: can't open: No such file or directory"},
        {"model: {name: mlp}\ndata: {dataset: synthetic, shape: [4], classes: 2}\n"
         "parameters: [{match: 3.weight}]\n",
         "%s/f.yaml:5:22: parameters[0].match: no variable's name fits "
         "'3.weight'; there are, for example, 0.weight, 0.bias, 2.weight"},
        {"model: {name: mlp}\ndata: {dataset: synthetic, shape: [4], classes: 2}\n"
         "parameters: [{match: '*', sbp: S(1)}]\n",
         "%s/f.yaml:5:32: parameters[0].sbp: variable 0.bias: signature S(1) for shape (128); "
         "legal "
         "are B and S(i) with i below its number of axes (P is for values that are computed)"},
        {"model: {name: mlp}\ndata: {dataset: synthetic, shape: [4], classes: 2}\n"
         "optimizer: {name: sgd, nesterov: true}\n",
         "%s/f.yaml:5:12: optimizer: sgd: nesterov needs a momentum above 0 and no dampening; "
         "found momentum 0, dampening 0"},
        {"model: {name: lenet}\ndata: {dataset: synthetic, shape: [30, 32], classes: 2}\n",
         "%s/f.yaml:3:8: model: lenet: num_classes 2, channels 1, height 30, width 32: images "
         "of 28 x 28 or 32 x 32 are needed"},
        {"model: {name: mlp, args: {inputs: 5}}\n"
         "data: {dataset: synthetic, shape: [4], classes: 2}\n",
         "%s/f.yaml:3:8: model: 0: linear: x (64,4), weight (128,5): "},
        {"model: {name: mlp}\ndata: {dataset: synthetic, shape: [4], classes: 2}\n"
         "tensors: {input: {sbp: S(7)}}\n",
         "%s/f.yaml:5:18: tensors.input: x: signature S(7) for shape (64,1,1,4); legal are B, P "
         "and S(i) with i below its number of axes"},
    };
    const float n[3] = {1, 2, 3};
    assert_int_equal(tsri_npy_write(test_path("n.npy"), TSR_F32, TSR_DIMS(3), n), TSR_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[1000], error[2 * PATH_MAX + 600] = "";
        snprintf(text, sizeof text, HEAD "%s", rows[i].text);
        tsri_experiment *e = load(text);
        job j = {.e = e};
        tsr_status status = tsr_spawn(2, run_rank, &j);
        const char *got = tsr_last_error();
        if (!strncmp(got, "rank ", 5))
            got += strlen("rank 0: ");
        /* Each %s of the wanted text is the folder. */
        for (const char *p = rows[i].error; p && *p; p++) {
            bool is_folder = p[0] == '%' && p[1] == 's';
            size_t used = strlen(error);
            snprintf(error + used, sizeof error - used, is_folder ? "%s" : "%.1s",
                     is_folder ? test_dir : p);
            p += is_folder;
        }
        if (rows[i].error && (status == TSR_OK || strncmp(got, error, strlen(error))))
            fail_msg("\n%s\n%s\ninstead of\n%s", text, got, error);
        tsri_experiment_destroy(e);
    }
}

static void test_small_world(void **state)
{
    (void)state;
    tsri_program *p;
    tsri_experiment *e;
    tsr_world *w;
    char want_text[PATH_MAX + 200];
    assert_int_equal(plan_text(HEAD "graph: {x: {op: full, value: 1, shape: []}}\n", 1, &p, &e, &w),
                     TSR_ERR_PLACEMENT);
    snprintf(want_text, sizeof want_text,
             "%s/f.yaml:2:13: placements: the placements name ranks up to 1; the world has 1",
             test_dir);
    assert_string_equal(tsr_last_error(), want_text);
    tsr_world_destroy(w);
    tsri_experiment_destroy(e);
    assert_int_equal(tsri_program_build(NULL, NULL, NULL, &p), TSR_ERR_INVALID);
    assert_int_equal(tsri_program_feed(NULL, NULL), TSR_ERR_INVALID);
    tsri_program_destroy(NULL);
    tsri_experiment_destroy(NULL);
}

/* The n-th allocation of building, compiling and running fails: it is told, and nothing leaks. At
 * most two may be done without. */
static void every_allocation(const char *text, int64_t at_least)
{
    tsri_experiment *e = load(text);
    int64_t n = 1, step = test_sample();
    int spared = 0;
    for (;; n += step) {
        job j = {.e = e, .fail_at = n};
        tsr_status status = tsr_spawn(1, run_rank, &j);
        if (status == TSR_OK && !j.reached)
            break;
        if (status != TSR_OK && !strstr(tsr_last_error(), "no memory"))
            fail_msg("allocation %lld: %s", (long long)n, tsr_last_error());
        spared += status == TSR_OK;
    }
    assert_true(n > at_least);
    assert_true(spared <= 2);
    tsri_experiment_destroy(e);
}

static void test_no_memory(void **state)
{
    (void)state;
    const float n[3] = {1, 2, 3};
    assert_int_equal(tsri_npy_write(test_path("n.npy"), TSR_F32, TSR_DIMS(3), n), TSR_OK);
    every_allocation("tessera: 1\nplacements: {d: {ranks: [0]}}\ngraph:\n"
                     "  x: {op: constant, file: n.npy, dtype: f64}\n"
                     "  y: {op: from_local, locals: [n.npy], sbp: S(0), dtype: f64}\n"
                     "  w: {op: parameter, value: [1, 2, 3], dtype: f64}\n"
                     "  z: {op: mul, in: [x, w]}\n"
                     "  loss: {op: mse_loss, in: [z, y]}\n"
                     "loss: loss\nfetch: [loss, grad(w)]\n",
                     50);
    every_allocation(
        "tessera: 1\nplacements: {d: {ranks: [0]}}\n"
        "model: {name: mlp, args: {layers: 1}}\n"
        "data: {dataset: synthetic, shape: [4], classes: 2, batch_size: 4, samples: 4, "
        "workers: 0}\n"
        "parameters: [{match: '*', placement: d, sbp: S(0)}]\n"
        "train: {steps: 2, epochs: 2}\n",
        50);
}

int main(void)
{
#define FOLDER(fn) cmocka_unit_test_setup_teardown(fn, make_test_dir, remove_test_dir)
    const struct CMUnitTest tests[] = {
        FOLDER(test_graph),
        FOLDER(test_results),
        FOLDER(test_locals),
        FOLDER(test_values),
        FOLDER(test_random),
        FOLDER(test_training),
        FOLDER(test_optimizers),
        FOLDER(test_optimizer_keys),
        FOLDER(test_init),
        FOLDER(test_planning),
        FOLDER(test_planning_without_files),
        FOLDER(test_patterns),
        FOLDER(test_examples),
        FOLDER(test_errors),
        FOLDER(test_small_world),
        FOLDER(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
