/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies and rules: the rules that a word stands for, and the collectives of what is planned by
 * them, counted against what each strategy is defined by. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/layers.h>

#include "src/config/inside.h"
#include "src/config/rules/roles.h"
#include "src/nn/module.h"
#include "src/plan/report/report.h"
#include "tests/unit/config/config_refused.h"

#define PLACES "tessera: 1\nplacements: {d: {ranks: [0, 1, 2, 3]}, g: {ranks: [[0, 1], [2, 3]]}}\n"
#define DATA "data: {dataset: synthetic, shape: [1, 8, 8], classes: 16, batch_size: 64}\n"
#define MLP PLACES "model: {name: mlp, args: {hidden: 64}}\n" DATA "optimizer: {name: adam}\n"
/* Links so slow that nothing is sent which need not be. */
#define SLOW "cluster: {bandwidth_gb_s: 0.01}\n"
#define TRANSFORMER(layers)                                                          \
    PLACES SLOW "model: {name: transformer, args: {heads: 4, layers: " layers "}}\n" \
                "data: {dataset: synthetic, shape: [1, 8, 64], classes: 10, batch_size: 4}\n"
#define MESH "tessera: 1\nmesh: {dp: 2, tp: 2}\nmodel: {name: mlp, args: {hidden: 64}}\n" DATA
/* The file has 13 lines. */
#define NET                                                                            \
    PLACES "data: {dataset: synthetic, shape: [1, 1, 3], classes: 4, batch_size: 8}\n" \
           "graph:\n"                                                                  \
           "  x: {op: input, field: x}\n"                                              \
           "  y: {op: input, field: y}\n"                                              \
           "  f: {op: flatten, in: x, from_axis: 1}\n"                                 \
           "  w: {op: parameter, fill: 1, shape: [4, 3]}\n"                            \
           "  h: {op: linear, in: [f, w]}\n"                                           \
           "  z: {op: relu, in: h}\n"                                                  \
           "  l: {op: cross_entropy, in: [z, y]}\n"                                    \
           "loss: l\noptimizer: {name: adam}\n"
#define GRID "tensors: {input: {placement: g}}\n"

static tsri_experiment *parse(const char *text)
{
    tsri_experiment *e = NULL;
    if (tsri_experiment_parse("f.yaml", text, strlen(text), 0, NULL, &e) != TSR_OK)
        fail_msg("%s\n%s", text, tsr_last_error());
    return e;
}

/* --- what a word stands for ------------------------------------------------------------------- */
static void test_expansion(void **state)
{
    (void)state;
    static const struct {
        const char *text, *tensors, *parameters;
    } rows[] = {
        {MLP "strategy: data\n",
         "  input: {placement: d, sbp: S(0)}\n  label: {placement: d, sbp: S(0)}\n"
         "  logits: {}\n  loss: {}\n",
         "  - {match: \"*\", sbp: B}\n"},
        {MLP "strategy: zero1\nparameters: [{match: '2.*', state: B}]\n",
         "  input: {placement: d, sbp: S(0)}\n  label: {placement: d, sbp: S(0)}\n"
         "  logits: {}\n  loss: {}\n",
         "  - {match: \"*\", sbp: B, use: B, state: S(0), gradient: B}\n  - {match: \"2.*\", "
         "state: B}\n"},
        {MLP "strategy: zero2\n" GRID,
         "  input: {placement: g, sbp: \"(S(0),S(0))\"}\n"
         "  label: {placement: g, sbp: \"(S(0),S(0))\"}\n"
         "  logits: {}\n  loss: {}\n",
         "  - {match: \"*\", sbp: \"(B,B)\", use: \"(B,B)\", state: \"(S(0),S(0))\"}\n"},
        {MLP "strategy: [zero3, megatron]\n" GRID,
         "  input: {placement: g, sbp: \"(S(0),B)\"}\n"
         "  label: {placement: g, sbp: \"(S(0),B)\"}\n"
         "  logits: {}\n  loss: {}\n"
         "  match:\n"
         "    - {match: \"0\", sbp: \"(S(0),S(1))\", gradient: \"(S(0),S(1))\"}\n"
         "    - {match: \"2\", sbp: \"(S(0),B)\", gradient: \"(S(0),B)\"}\n",
         "  - {match: \"*\", sbp: \"(S(0),B)\", use: \"(B,B)\", state: \"(S(0),B)\"}\n"
         "  - {match: 0.weight, sbp: \"(S(1),S(0))\", use: \"(B,S(0))\", state: \"(S(1),S(0))\"}\n"
         "  - {match: 0.bias, sbp: \"(B,S(0))\", use: \"(B,S(0))\", state: \"(B,S(0))\"}\n"
         "  - {match: 2.weight, sbp: \"(S(0),S(1))\", use: \"(B,S(1))\", state: "
         "\"(S(0),S(1))\"}\n"},
        {MESH "strategy: {tp: megatron}\n",
         "  input: {placement: mesh, sbp: \"(S(0),B)\"}\n"
         "  label: {placement: mesh, sbp: \"(S(0),B)\"}\n"
         "  logits: {}\n  loss: {}\n"
         "  match:\n"
         "    - {match: \"0\", sbp: \"(S(0),S(1))\", gradient: \"(S(0),S(1))\"}\n"
         "    - {match: \"2\", sbp: \"(S(0),B)\", gradient: \"(S(0),B)\"}\n",
         "  - {match: \"*\", sbp: \"(B,B)\", use: \"(B,B)\"}\n"
         "  - {match: 0.weight, sbp: \"(B,S(0))\", use: \"(B,S(0))\"}\n"
         "  - {match: 0.bias, sbp: \"(B,S(0))\", use: \"(B,S(0))\"}\n"
         "  - {match: 2.weight, sbp: \"(B,S(1))\", use: \"(B,S(1))\"}\n"},
        {MLP "strategy: auto\n",
         "  input: {placement: d, sbp: S(0)}\n  label: {placement: d, sbp: S(0)}\n"
         "  logits: {}\n  loss: {}\n",
         "  - {match: \"*\", sbp: auto}\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tsri_experiment *e = parse(rows[i].text), *again;
        char *text = NULL, *twice = NULL;
        size_t size;
        FILE *f = open_memstream(&text, &size);
        assert_int_equal(tsri_experiment_dump(e, f), TSR_OK);
        fclose(f);
        char want[2048];
        snprintf(want, sizeof want, "tensors:\n%sparameters:\n%soptimizer:\n", rows[i].tensors,
                 rows[i].parameters);
        if (!strstr(text, want) || strstr(text, "strategy"))
            fail_msg("%s\nhas not\n%s", text, want);
        again = parse(text);
        f = open_memstream(&twice, &size);
        assert_int_equal(tsri_experiment_dump(again, f), TSR_OK);
        fclose(f);
        assert_string_equal(text, twice);
        tsri_experiment_destroy(again);
        tsri_experiment_destroy(e);
        free(text);
        free(twice);
    }
}

/* --- roles ------------------------------------------------------------------------------------ */
/* Adds a module of one parameter of three axes, with a role. */
static void add_layer(tsr_module *parent, const char *name, tsr_role role, int axis)
{
    const tsr_nn_opts nn = {.placement = tsr_placement_parse(parent->world, "cpu")};
    tsr_module *m = tsr_module_create(parent->world, &nn, NULL, NULL, NULL);
    assert_non_null(tsr_module_add(parent, name, m));
    tsr_variable *v = tsr_module_param(m, "p", TSR_DIMS(4, 4, 4), TSR_AUTO, (tsr_init){0});
    assert_int_equal(tsr_variable_set_role(v, role, axis), TSR_OK);
}

static tsr_module *add_list(tsr_module *parent, const char *name)
{
    tsr_module *m = tsr_nn_sequential(parent->world, NULL);
    return tsr_module_add(parent, name, m);
}

/* Two blocks, the second of which divides another axis of "w" where `uneven`. */
static tsr_module *own_net(tsr_world *w, bool uneven)
{
    tsr_module *net = tsr_nn_sequential(w, NULL);
    add_layer(net, "words", TSR_ROLE_EMBEDDING, 1);
    tsr_module *blocks = add_list(net, "body");
    for (int i = 0; i < 2; i++) {
        char name[2] = {(char)('0' + i)};
        tsr_module *block = add_list(blocks, name);
        add_layer(block, "n0", TSR_ROLE_NORM, 0);
        tsr_module *attn = add_list(block, "look");
        add_layer(attn, "qkv", TSR_ROLE_HEADS, 2);
        add_layer(attn, "out", TSR_ROLE_ROW, 0);
        add_layer(block, "n1", TSR_ROLE_NORM, 0);
        tsr_module *gated = add_list(block, "gated");
        add_layer(gated, "w", TSR_ROLE_COLUMN, uneven ? i : 1);
        add_layer(gated, "v", TSR_ROLE_COLUMN, 1);
        add_layer(gated, "down", TSR_ROLE_ROW, 2);
    }
    add_layer(net, "last", TSR_ROLE_NORM, 0);
    add_layer(net, "free", TSR_ROLE_NONE, 0);
    return net;
}

static void assert_rules(tsr_world *w, bool uneven, const char *want)
{
    tsri_pool pool;
    tsri_pair_rules rules;
    char text[1200] = "";
    tsr_module *net = own_net(w, uneven);
    tsri_pool_init(&pool, NULL);
    assert_int_equal(tsri_pair_rules_read(net, &pool, &rules), TSR_OK);
    assert_true(rules.pairs && rules.positions);
    for (int i = 0; i < rules.n; i++) {
        const tsri_pair_rule *r = &rules.rules[i];
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s %d %d %d %d\n", r->match,
                 r->naxes, r->megatron, r->sequence, (int)r->use);
    }
    assert_string_equal(text, want);
    tsri_pool_finish(&pool);
    tsr_module_destroy(net);
}

/* A user's model with roles gets the rules of the built-in models: by patterns that
 * match nothing else. */
static void test_roles(void **state)
{
    (void)state;
    tsr_world *w;
    assert_int_equal(tsr_world_create_virtual(1, 0, &w), TSR_OK);
#define TENSORS(gated)                                                                    \
    "words 0 -1 1 2\nlast 0 -1 1 1\nbody.*.n[01] 0 -1 1 1\nbody.*.look:permute 0 1 1 0\n" \
    "body.*.look:permute.[12] 0 1 1 0\nbody.*.look 0 -1 1 2\n" gated "body.*.gated 0 -1 1 2\n"
    assert_rules(w, false,
                 "words.p 3 1 1 0\nbody.*.look.qkv.p 3 2 2 0\nbody.*.look.out.p 3 0 0 0\n"
                 "body.*.gated.[wv].p 3 1 1 0\nbody.*.gated.down.p 3 2 2 0\n" TENSORS(
                     "body.*.gated.[wv] 0 2 2 0\n"));
    assert_rules(w, true,
                 "words.p 3 1 1 0\nbody.*.look.qkv.p 3 2 2 0\nbody.*.look.out.p 3 0 0 0\n"
                 "body.0.gated.w.p 3 0 0 0\nbody.*.gated.v.p 3 1 1 0\n"
                 "body.*.gated.down.p 3 2 2 0\nbody.1.gated.w.p 3 1 1 0\n" TENSORS(
                     "body.*.gated.[wv] 0 2 2 0\n"));
#undef TENSORS
    tsr_module *net = own_net(w, false);
    tsr_variable *v = tsr_module_find(net, "words.p");
    assert_int_equal(tsr_variable_set_role(v, TSR_ROLE_ROW, 3), TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "words.p has shape (4,4,4), and no axis 3"));
    assert_int_equal(tsr_variable_set_role(v, (tsr_role)9, 0), TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "there is no role 9"));
    add_layer(net, "free[0]", TSR_ROLE_NONE, 0);
    tsri_pool pool;
    tsri_pair_rules rules;
    tsri_pool_init(&pool, NULL);
    assert_int_equal(tsri_pair_rules_read(net, &pool, &rules), TSR_OK);
    add_layer(net, "last?", TSR_ROLE_ROW, 0);
    assert_int_equal(tsri_pair_rules_read(net, &pool, &rules), TSR_ERR_INVALID);
    assert_non_null(strstr(tsr_last_error(), "'last?.p' has a role"));
    tsri_pool_finish(&pool);
    tsr_world_destroy(w);
}

/* --- what is planned by it -------------------------------------------------------------------- */
typedef struct planned {
    tsri_experiment *e;
    tsr_world *world;
    tsri_program *program;
    tsr_plan *plan;
    tsri_report *report;
} planned;

static planned plan_of(const char *text)
{
    planned p = {.e = parse(text)};
    assert_int_equal(tsr_world_create_virtual(4, 0, &p.world), TSR_OK);
    if (tsri_program_build(p.e, p.world, NULL, &p.program) != TSR_OK)
        fail_msg("%s\n%s", text, tsr_last_error());
    const tsri_cluster *c = tsri_experiment_cluster(p.e);
    tsr_compile_opts opts = *TSR_COMPILE_OPTS();
    opts.link[0] =
        (tsr_link){.ranks = 4, .latency_s = 3e-6, .bytes_per_s = c ? c->bandwidth_gb_s * 1e9 : 5e9};
    opts.nlinks = 1;
    tsri_experiment_fill(p.e, &opts);
    if (tsr_compile_with(p.program->graph, &opts, &p.plan) != TSR_OK)
        fail_msg("%s\n%s", text, tsr_last_error());
    assert_int_equal(tsri_report_create(p.plan, &p.report), TSR_OK);
    return p;
}

static void drop(planned *p)
{
    tsri_report_destroy(p->report);
    tsr_plan_destroy(p->plan);
    tsri_program_destroy(p->program);
    tsr_world_destroy(p->world);
    tsri_experiment_destroy(p->e);
}

/* Calls of a kind of collective, and the bytes that the busiest rank reads in them. */
static int calls(const planned *p, const char *what, uint64_t *out_bytes)
{
    *out_bytes = 0;
    for (int i = 0; i < p->report->ntotals; i++)
        if (!strcmp(p->report->totals[i].what, what)) {
            *out_bytes = p->report->totals[i].bytes;
            return p->report->totals[i].calls;
        }
    return 0;
}

enum { PARAMETERS = 64 * 64 + 64 + 16 * 64 + 16, LOSS = 1 };

/* The mlp as a graph. */
#define NET64                                                           \
    PLACES DATA "graph:\n"                                              \
                "  x: {op: input, field: x}\n"                          \
                "  y: {op: input, field: y}\n"                          \
                "  f: {op: flatten, in: x, from_axis: 1}\n"             \
                "  w: {op: parameter, normal: true, shape: [64, 64]}\n" \
                "  b: {op: parameter, fill: 0, shape: [64]}\n"          \
                "  v: {op: parameter, normal: true, shape: [16, 64]}\n" \
                "  c: {op: parameter, fill: 0, shape: [16]}\n"          \
                "  h: {op: linear, in: [f, w, b]}\n"                    \
                "  r: {op: relu, in: h}\n"                              \
                "  z: {op: linear, in: [r, v, c]}\n"                    \
                "  l: {op: cross_entropy, in: [z, y]}\n"                \
                "loss: l\noptimizer: {name: adam}\n"

/* The mlp's 4 parameters on 4 ranks. A reduce_scatter and an all_gather of n bytes read 3/4 n on
 * each rank, an all_reduce both. */
static void test_data(void **state)
{
    (void)state;
    const uint64_t part = PARAMETERS * 4 / 4 * 3, loss = 2 * 3 * LOSS;
    static const struct {
        const char *word;
        int reduces, scatters, gathers;
    } rows[] = {{"data", 2, 0, 0}, {"zero1", 2, 0, 1}, {"zero2", 1, 1, 1}, {"zero3", 1, 1, 4}};
    enum { N = sizeof rows / sizeof *rows };
    /* A model and a graph; and where an update takes the mean of two steps: that reads nothing
     * more. */
    static const char *const programs[] = {MLP SLOW, NET64 SLOW,
                                           PLACES SLOW
                                           "model: {name: mlp, args: {hidden: 64}}\n" DATA
                                           "optimizer: {name: adam, accumulate: 2}\n"};
    for (size_t k = 0; k < 3 * N; k++) {
        const size_t i = k % N;
        char text[2000];
        uint64_t reduced, scattered, gathered, other;
        snprintf(text, sizeof text, "%sstrategy: %s\n", programs[k / N], rows[i].word);
        planned p = plan_of(text);
        assert_int_equal(calls(&p, "all_reduce", &reduced), rows[i].reduces);
        assert_int_equal(calls(&p, "reduce_scatter", &scattered), rows[i].scatters);
        assert_int_equal(calls(&p, "all_gather", &gathered), rows[i].gathers);
        assert_int_equal(calls(&p, "all_to_all", &other) + calls(&p, "send_recv", &other), 0);
        const bool reduces = rows[i].scatters == 0;
        assert_true(reduced >= (reduces ? 2 * part : 0) &&
                    reduced <= 2 * part * reduces + 2 * loss);
        assert_int_equal(scattered, rows[i].scatters ? part : 0);
        assert_int_equal(gathered, rows[i].gathers ? part : 0);
        drop(&p);
    }
}

/* Under zero3 backward gathers weights again, but the last layer's and (which it does not read) the
 * first one's and biases; unless the file says otherwise. */
static void test_gathered_again(void **state)
{
    (void)state;
#define DEEP(keys)                                                                             \
    PLACES SLOW "model: {name: mlp, args: {hidden: 64, layers: 8}}\n" DATA "bucket_mb: 0.01\n" \
                "strategy: zero3\n" keys
    uint64_t once, twice;
    planned kept = plan_of(DEEP("reshard_after_forward: false\n")), freed = plan_of(DEEP(""));
    assert_int_equal(calls(&kept, "all_gather", &once), 2 * 8);
    assert_int_equal(calls(&freed, "all_gather", &twice), 2 * 8 + 6);
    assert_int_equal(twice - once, 6 * (64 * 64 * 4 / 4 * 3));
    assert_true(freed.report->memory->total < kept.report->memory->total);
    for (int i = 0; i < freed.report->summary.ntraffic; i++)
        if (!strcmp(freed.report->summary.traffic[i].what, "all_gather"))
            assert_int_equal(freed.report->summary.traffic[i].kind, TSRI_TRAFFIC_WEIGHTS);
    drop(&kept);
    drop(&freed);
#undef DEEP
}

/* Optimizer states and parameters take the part of memory that their split says. */
static void test_memory(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        int parameters, states; /* parts of 4 */
    } rows[] = {{"data", 4, 4}, {"zero1", 4, 1}, {"zero2", 4, 1}, {"zero3", 1, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[1000];
        snprintf(text, sizeof text, "%sstrategy: %s\n", MLP, rows[i].word);
        planned p = plan_of(text);
        const tsri_report_memory *m = p.report->memory;
        const uint64_t quarter = PARAMETERS;
        /* Buffers are aligned; updates of split states copy their part of whole parameters. */
        const uint64_t copied = rows[i].parameters > rows[i].states ? quarter : 0;
        assert_in_range(m->parameters, quarter * (uint64_t)rows[i].parameters,
                        quarter * (uint64_t)rows[i].parameters + copied + 4 * 64);
        assert_in_range(m->optimizer, 2 * quarter * (uint64_t)rows[i].states,
                        2 * quarter * (uint64_t)rows[i].states + 16 * 64);
        drop(&p);
    }
}

/* Each pair of linear layers ends in one reduction forward, and begins with one backward. */
static void test_megatron(void **state)
{
    (void)state;
    uint64_t bytes, less;
    planned one = plan_of(TRANSFORMER("1") "strategy: megatron\n");
    planned three = plan_of(TRANSFORMER("3") "strategy: megatron\n");
    assert_int_equal(calls(&three, "all_reduce", &bytes) - calls(&one, "all_reduce", &less), 2 * 4);
    /* 4 rows of 8 positions with 64 features: an all_reduce reads 2 * 3/4 of it. Norms have two
     * parameters each, and proj and fc2 a bias, that are everywhere and need no sums. */
    assert_int_equal(bytes - less, 2 * 4 * (4 * 8 * 64 * 4 / 4 * 3 * 2));
    static const char *const others[] = {"all_gather", "reduce_scatter", "all_to_all", "send_recv"};
    for (int i = 0; i < 4; i++)
        assert_int_equal(calls(&three, others[i], &bytes), calls(&one, others[i], &less));
    drop(&one);
    drop(&three);
    /* By positions between the pairs: each of these is a reduce_scatter and an all_gather. */
    one = plan_of(TRANSFORMER("1") "strategy: sequence\n");
    three = plan_of(TRANSFORMER("3") "strategy: sequence\n");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(calls(&three, others[i], &bytes) - calls(&one, others[i], &less), 2 * 4);
        assert_int_equal(bytes - less, 2 * 4 * (4 * 8 * 64 * 4 / 4 * 3));
    }
    drop(&one);
    drop(&three);
}

/* GPT-2's blocks under sequence and megatron: no weight is sent, its packed one neither. */
static void test_gpt(void **state)
{
    (void)state;
#define GPT(layers)                                                                          \
    PLACES SLOW "model: {name: gpt, args: {width: 16, heads: 4, dropout: 0, layers: " layers \
                "}}\n"                                                                       \
                "data: {dataset: synthetic, shape: [1, 3, 3], classes: 10, batch_size: 64}\n"
    uint64_t bytes, less;
    const uint64_t stream = 64 * 8 * 16 * 4 / 4 * 3; /* rows of 8 positions with 16 features */
    planned one = plan_of(GPT("1") "strategy: sequence\n"), three = plan_of(GPT("3") "strategy: "
                                                                                     "sequence\n");
    /* Of attn and mlp a reduction forward, and one of norms backward. */
    assert_int_equal(calls(&three, "reduce_scatter", &bytes) - calls(&one, "reduce_scatter", &less),
                     2 * 4);
    assert_int_equal(bytes - less, 2 * 4 * stream);
    assert_int_equal(calls(&three, "all_gather", &bytes) - calls(&one, "all_gather", &less), 2 * 4);
    assert_int_equal(bytes - less, 2 * 4 * stream);
    drop(&one);
    drop(&three);
    one = plan_of(GPT("1") "strategy: megatron\n");
    three = plan_of(GPT("3") "strategy: megatron\n");
    uint64_t all = 0;
    static const char *const kinds[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                        "send_recv"};
    for (int i = 0; i < 5; i++) {
        calls(&three, kinds[i], &bytes);
        calls(&one, kinds[i], &less);
        all += bytes - less;
    }
    assert_int_equal(all, 2 * 4 * 2 * stream);
    drop(&one);
    drop(&three);
#undef GPT
}

/* Whether the plan brings a tensor of a shape into a signature under a name, as is said. */
static bool brings(const planned *p, const char *name, tsr_dims dims, const char *sbp)
{
    char text[TSRI_LAYOUT_TEXT_MAX];
    for (int i = 0; i < p->report->nrows; i++) {
        const tsri_report_row *row = &p->report->rows[i];
        if (strcmp(row->what, "to_global") || strcmp(row->name, name) || !row->item)
            continue;
        const tsri_value *v = &p->plan->ir.values[row->item->out[0]];
        if (tsr_dims_equal(v->shape, dims) && !strcmp(tsri_layout_format(&v->layout, text), sbp))
            return true;
    }
    return false;
}

static void test_rules(void **state)
{
    (void)state;
    planned p = plan_of(TRANSFORMER("1") "tensors:\n"
                                         "- {match: 'blocks.*.attn', sbp: B}\n"
                                         "- {match: '*.attn', sbp: S(2), gradient: S(1)}\n"
                                         "- {match: '*.attn:softmax', sbp: S(1)}\n"
                                         "- {match: '*.attn:permute.1', sbp: S(3)}\n"
                                         "- {match: head, sbp: S(1)}\n");
    const tsr_dims scores = TSR_DIMS(4, 4, 8, 8), head = TSR_DIMS(4, 8, 10),
                   keys = TSR_DIMS(4, 4, 8, 16), attn = TSR_DIMS(4, 8, 64);
    assert_true(brings(&p, "blocks.0.attn", scores, "S(1)"));
    assert_true(brings(&p, "blocks.0.attn", keys, "S(3)"));
    assert_true(brings(&p, "blocks.0.attn", attn, "S(2)"));
    assert_true(brings(&p, "blocks.0.attn", attn, "S(1)")); /* the gradient */
    assert_true(brings(&p, "head", head, "S(1)"));
    assert_false(brings(&p, "blocks.0.attn", attn, "B"));
    assert_false(brings(&p, "blocks.0.mlp", attn, "S(2)"));
    drop(&p);
}

/* --- errors ----------------------------------------------------------------------------------- */
static const refused errors[] = {
    {MLP "strategy: zero4\n", "f.yaml:6:11: strategy: found 'zero4'; legal is data, zero1, zero2, "
                              "zero3, megatron, sequence or auto, or a list, one for each "
                              "dimension, or by axes' names; did you mean 'zero1'?"},
    {MLP "strategy: [data, megtron]\n" GRID,
     "f.yaml:6:18: strategy[1]: found 'megtron'; legal is data, zero1, zero2, zero3, megatron, "
     "sequence or auto, or a list, one for each dimension, or by axes' names; did you mean "
     "'megatron'?"},
    {MLP "strategy: {a: data}\n",
     "f.yaml:6:11: strategy: the dimensions of placement d have no names; say a list with a word "
     "each, or a mesh"},
    {MESH "strategy: {dq: data}\n",
     "f.yaml:5:12: strategy.dq: placement mesh has no axis 'dq'; legal are dp, tp; did you mean "
     "'dp'?"},
    {MESH "strategy: {dp: auto}\n",
     "f.yaml:5:11: strategy: auto stands alone: it is for all dimensions"},
    {MESH "strategy: {dp: zero5}\n",
     "f.yaml:5:16: strategy.dp: found 'zero5'; legal is data, zero1, zero2, zero3, megatron, "
     "sequence or auto, or a list, one for each dimension, or by axes' names; did you mean "
     "'zero1'?"},
    {MESH "strategy: {}\n",
     "f.yaml:5:11: strategy: found a mapping; legal is data, zero1, zero2, zero3, megatron, "
     "sequence or auto, or a list, one for each dimension, or by axes' names"},
    {MLP "strategy: [data, data, data, data, data]\n",
     "f.yaml:6:36: strategy[4]: more than 4 words"},
    {MLP "strategy: [data, megatron]\n",
     "f.yaml:6:11: strategy: 2 words; placement d has 1 dimension, with a word each"},
    {MLP "strategy: [auto, data]\n" GRID,
     "f.yaml:6:11: strategy: auto stands alone: it is for all dimensions"},
    {MLP "strategy: [megatron, sequence]\n" GRID,
     "f.yaml:6:11: strategy: megatron and sequence are for one dimension"},
    {MLP "strategy: sequence\n",
     "f.yaml:6:11: strategy: sequence: there are no rules for model mlp; there are for "
     "transformer, gpt"},
    {PLACES "model: {name: lenet}\ndata: {dataset: mnist}\nstrategy: megatron\n",
     "f.yaml:5:11: strategy: megatron: there are no rules for model lenet; there are for "
     "transformer, gpt, mlp and layers"},
    {PLACES "model: {name: mlp, args: {layers: 1}}\n" DATA "strategy: megatron\n",
     "f.yaml:5:11: strategy: a pair of linear layers is needed; the model has 1"},
    {PLACES "graph: {x: {op: constant, fill: 1, shape: [2]}}\nstrategy: data\n",
     "f.yaml:4:11: strategy: graph has no entry {op: input, field: x}: there is no batch that "
     "could be split"},
    {NET "strategy: megatron\n",
     "f.yaml:14:11: strategy: megatron: there are no rules for a graph, which has no layers to "
     "pair; say them in parameters and tensors. Legal are data, zero1, zero2, zero3 and auto"},
    {NET "strategy: [data, zero1]\n",
     "f.yaml:14:11: strategy: 2 words; placement d has 1 dimension, with a word each"},
    {PLACES "data: {dataset: mnist}\ngraph: {x: {op: input, field: x}}\nstrategy: zero2\n",
     "f.yaml:5:11: strategy: zero2 splits what an optimizer keeps; 'optimizer' is missing"},
    {PLACES "data: {dataset: mnist}\ngraph: {x: {op: input, field: x}, w: {op: parameter, fill: 1, "
            "shape: [1]}}\nparameters: [{match: w, state: B}]\n",
     "f.yaml:5:32: parameters[0].state: 'optimizer' is missing: the graph trains nothing"},
    {NET "tensors: [{match: h, sbp: B, placement: e}]\n",
     "f.yaml:14:41: tensors[0].placement: there is no placement 'e'; legal are d, g"},
    {NET "tensors: [{match: 'h:*', sbp: B, placement: d}]\n",
     "f.yaml:14:34: tensors[0].placement: not of an op: an entry lives where its ops do"},
    {NET "tensors: [{match: w, sbp: B}]\n",
     "f.yaml:14:19: tensors[0].match: no entry but parameters fits 'w'; there are, for example, "
     "x, y, f, h, z, l"},
    {NET "tensors: [{match: 'h:linaer', sbp: B}]\n",
     "f.yaml:14:19: tensors[0].match: no op of the graph fits 'h:linaer'; there are, for example, "
     "f:reshape, h:linear, z:unary, l:softmax_max, l:ce_terms, l:ce_finish; did you mean "
     "'h:linear'?"},
    {NET "tensors: [{match: h, sbp: S(5)}]\n",
     "f.yaml:14:11: tensors[0]: h: to_global: signature S(5) for shape (8,4); legal are "
     "B, P and S(i) with i below its number of axes"},
    {NET "tensors: [{match: h, sbp: B, gradient: S(5)}]\n",
     "f.yaml:14:40: tensors[0].gradient: the gradient of h: signature S(5) for shape (8,4); legal "
     "are B, P and S(i) with i below its number of axes"},
    {NET "tensors: [{match: x, sbp: S(7)}]\n", "f.yaml:14:27: tensors[0].sbp: f.yaml:5: x: "
                                               "signature S(7) for shape (8,1,1,3); legal are B, P "
                                               "and S(i) with i below its number of axes"},
    {NET "tensors: [{match: x, sbp: \"(S(0),B)\"}]\n",
     "f.yaml:14:27: tensors[0].sbp: signature (S(0),B) has 2 entries; placement d has 1 dimension, "
     "and a signature one entry for each"},
    {PLACES
     "graph:\n  x: {op: full, value: 1, shape: [4]}\n  s: {op: split, in: x, sizes: [1, 3]}\n"
     "tensors: [{match: s.1, sbp: B, placement: g}]\n",
     "f.yaml:6:43: tensors[0].placement: 's.1' fits results of 's', which all live where that "
     "does: "
     "say it of 's'"},
    {NET "tensors: {logits: {sbp: B}}\n",
     "f.yaml:14:11: tensors.logits: not beside 'graph', whose entries have names: say it there, or "
     "in tensors.match"},
    {NET "parameters: [{match: h, sbp: B}]\n",
     "f.yaml:14:22: parameters[0].match: no parameter of the graph fits 'h'; there are w"},
    {NET "parameters: [{match: w, sbp: S(2)}]\n",
     "f.yaml:14:30: parameters[0].sbp: parameter 'w': signature S(2) for shape (4,3); legal are B "
     "and S(i) with i below its number of axes (P is for values that are computed)"},
    {MLP "strategy: data\ntensors: {input: {placement: e}}\n",
     "f.yaml:7:30: tensors.input.placement: there is no placement 'e'; legal are d, g"},
    {MLP "tensors: [B]\n", "f.yaml:6:11: tensors[0]: found 'B'; legal is a mapping with the keys "
                           "match, placement, sbp, use, gradient, gradient_use"},
    {MLP "tensors: [{match: '0'}]\n",
     "f.yaml:6:11: tensors[0]: 'sbp' is missing; legal is a signature, as in S(0), B, P, auto, "
     "\"(S(0),B)\", [S(0), B] or {dp: S(0)}"},
    {MLP "tensors: [{match: '0', sbp: S(1), placement: d}]\n",
     "f.yaml:6:35: tensors[0].placement: not beside 'model': 'parameters' says where modules live, "
     "and with them what they give"},
    {MLP "tensors: {match: {match: '0'}}\n",
     "f.yaml:6:18: tensors.match: found a mapping; legal is a list of mappings"},
    {MLP "tensors: {match: [{mach: '0', sbp: B}]}\n",
     "f.yaml:6:20: tensors.match[0].mach: unknown key; legal are match, placement, sbp, use, "
     "gradient, "
     "gradient_use; did you "
     "mean 'match'?"},
    {MLP "tensors: [{match: '3', sbp: B}]\n",
     "f.yaml:6:19: tensors[0].match: no module fits '3'; there are, for example, 0, 1, 2"},
    {TRANSFORMER("1") "tensors: [{match: '*', sbp: B}, {match: blocks.0.atn, sbp: B}]\n",
     "f.yaml:6:41: tensors[1].match: no module fits 'blocks.0.atn'; there are, for example, "
     "blocks.0.norm1, blocks.0.attn.q, blocks.0.attn.k, blocks.0.attn.v, blocks.0.attn.proj, "
     "blocks.0.attn; did you mean 'blocks.0.attn'?"},
    {TRANSFORMER("1") "tensors: [{match: 'blocks.0.attn:sofmax', sbp: B}]\n",
     "f.yaml:6:19: tensors[0].match: no op of the model fits 'blocks.0.attn:sofmax'; there are, "
     "for example, blocks.0.norm1:ln_stats, blocks.0.norm1:ln_apply, blocks.0.attn.q:linear, "
     "blocks.0.attn:reshape, blocks.0.attn:permute, blocks.0.attn.k:linear; did you mean "
     "'blocks.0.attn:softmax'?"},
    {MLP "tensors: [{match: '0', sbp: S(2)}]\n",
     "f.yaml:6:11: tensors[0]: 0: to_global: signature S(2) for shape (64,64); legal are B, P and "
     "S(i) with i below its number of axes"},
    {MLP "tensors: [{match: '0', sbp: S(0), gradient: S(2)}]\n",
     "f.yaml:6:45: tensors[0].gradient: the gradient of 0: signature S(2) for shape (64,64); legal "
     "are "
     "B, P and S(i) with i below its number of axes"},
    {MLP "tensors: [{match: '0', sbp: (S(0)}]\n",
     "f.yaml:6:29: tensors[0].sbp: signature \"(S(0)\": column 6: ',' or ')' is expected after an "
     "entry"},
    {MLP "parameters: [{match: '*', state: P}]\n",
     "f.yaml:6:34: parameters[0].state: P is for values that are computed; legal are B, S(i) and "
     "auto"},
    {MLP "parameters: [{match: '*', gradient: P}]\n",
     "f.yaml:6:37: parameters[0].gradient: P is for values that are computed; legal are B, S(i) "
     "and auto"},
    {MLP "parameters: [{match: '*', use: P}]\n",
     "f.yaml:6:32: parameters[0].use: P is for values that are computed; legal are B, S(i) and "
     "auto"},
    {MLP "parameters: [{match: '*', state: '(B,B)'}]\n",
     "f.yaml:6:34: parameters[0].state: state of 0.weight: signature (B,B) has 2 entries, but "
     "placement cpu:[0,1,2,3] has 1 dimension"},
    {MLP "parameters: [{match: '*', uses: B}]\n",
     "f.yaml:6:27: parameters[0].uses: unknown key; legal are match, placement, sbp, use, state, "
     "gradient; did you mean 'use'?"},
};

static void test_errors(void **state)
{
    (void)state;
    assert_refused(errors, sizeof errors / sizeof *errors, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expansion), cmocka_unit_test(test_roles),
        cmocka_unit_test(test_data),      cmocka_unit_test(test_gathered_again),
        cmocka_unit_test(test_memory),    cmocka_unit_test(test_megatron),
        cmocka_unit_test(test_gpt),       cmocka_unit_test(test_rules),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
