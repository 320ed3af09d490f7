/* SPDX-License-Identifier: Apache-2.0 */
/* Experiments: every error with its text, defaults, dumps that read back, overrides. No world. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/config/inside.h"
#include "src/config/print/man.h"
#include "src/config/ops.h"
#include "tests/unit/config/config_errors.h"
#include "tests/unit/files.h"
#include "tests/unit/heap.h"
#include "tests/sample.h"

#define NERRORS ((int)(sizeof config_errors / sizeof *config_errors))

/* --- errors ----------------------------------------------------------------------------------- */
static char *make_text(int i)
{
    const char *base = config_errors[i].base, *find = config_errors[i].find;
    const char *at = find ? strstr(base, find) : base + strlen(base);
    char *text = malloc(4096);
    assert_non_null(text);
    assert_non_null(at);
    snprintf(text, 4096, "%.*s%s%s", (int)(at - base), base, config_errors[i].text,
             find ? at + strlen(find) : "");
    return text;
}

static void try_errors(void)
{
    tsri_experiment_destroy(parse_ok(TRAIN));
    tsri_experiment_destroy(parse_ok(GRAPH));
    for (int i = 0; i < NERRORS; i++) {
        tsri_experiment *e = NULL;
        char *text = make_text(i), want[2048];
        tsr_status status = parse(text, &e);
        snprintf(want, sizeof want, "f.yaml:%s", config_errors[i].error);
        if (status != TSR_ERR_FORMAT || e)
            fail_msg("accepted:\n%s", text);
        if (strcmp(tsr_last_error(), want))
            fail_msg("\n%s\nis told as   %s\ninstead of %s", text, tsr_last_error(), want);
        free(text);
    }
    assert_true(NERRORS > 230);
}

static void test_errors(void **state)
{
    (void)state;
    KEEPS_NOTHING(try_errors());
}

static void test_unknown_op(void **state)
{
    (void)state;
    tsri_experiment *e;
    assert_int_equal(parse(GRAPH "  y: {op: reluu, in: x}\n", &e), TSR_ERR_FORMAT);
    char want[200];
    snprintf(want, sizeof want,
             "f.yaml:5:11: graph.y.op: found 'reluu'; legal are the %d that tessera-yaml(5) lists; "
             "did you mean 'relu'?",
             tsri_nops);
    assert_string_equal(tsr_last_error(), want);
    assert_int_equal(parse(GRAPH "  y: {in: x}\n", &e), TSR_ERR_FORMAT);
    assert_non_null(strstr(tsr_last_error(), "f.yaml:5:3: graph.y: 'op' is missing; legal are "));
}

static void test_bad_files(void **state)
{
    (void)state;
    tsri_experiment *e;
    char want[PATH_MAX + 100];
    snprintf(want, sizeof want, "%s: can't be opened: No such file or directory", test_path("no"));
    assert_int_equal(tsri_experiment_load(test_path("no"), 0, NULL, &e), TSR_ERR_IO);
    assert_string_equal(tsr_last_error(), want);
    snprintf(want, sizeof want, "%s: can't be read: Is a directory", test_dir);
    assert_int_equal(tsri_experiment_load(test_dir, 0, NULL, &e), TSR_ERR_IO);
    assert_string_equal(tsr_last_error(), want);
    assert_int_equal(tsri_experiment_load(NULL, 0, NULL, &e), TSR_ERR_INVALID);
    assert_int_equal(tsri_experiment_parse("f", "", 0, 0, NULL, NULL), TSR_ERR_INVALID);
    FILE *f = fopen(test_path("large.yaml"), "w");
    assert_non_null(f);
    for (int i = 0; i < (16 << 10) + 1; i++)
        fprintf(f, "# %1021d\n", i);
    fclose(f);
    snprintf(want, sizeof want, "%s: more than 16 MiB; keep large arrays in .npy files",
             test_path("large.yaml"));
    assert_int_equal(tsri_experiment_load(test_path("large.yaml"), 0, NULL, &e), TSR_ERR_FORMAT);
    assert_string_equal(tsr_last_error(), want);
}

/* A list of every op that can be, or a million keys of one mapping: told, or read, in time. */
static void test_hostile(void **state)
{
    (void)state;
    if (test_small_inputs())
        skip();
    tsri_experiment *e;
    char *text = malloc(32 << 20);
    assert_non_null(text);
    size_t n = (size_t)sprintf(text, "%s", GRAPH);
    for (int i = 0; i < 20000; i++)
        n += (size_t)sprintf(text + n, "  y%d: {op: relu, in: x}\n", i);
    assert_int_equal(tsri_experiment_parse("f.yaml", text, n, 0, NULL, &e), TSR_ERR_FORMAT);
    assert_string_equal(tsr_last_error(),
                        "f.yaml:4:3: graph: 20001 entries; at most 16384 are possible");
    n = (size_t)sprintf(text, "%s", TRAIN);
    for (int i = 0; i < 1000000; i++)
        n += (size_t)sprintf(text + n, "k%d: 1\n", i);
    assert_int_equal(tsri_experiment_parse("f.yaml", text, n, 0, NULL, &e), TSR_ERR_FORMAT);
    assert_non_null(strstr(tsr_last_error(), "f.yaml:5:1: k0: unknown key; legal are tessera"));
    n = (size_t)sprintf(text, "%sparameters:\n", TRAIN);
    for (int i = 0; i < 60000; i++)
        n += (size_t)sprintf(text + n, "  - {match: '*'}\n");
    assert_int_equal(tsri_experiment_parse("f.yaml", text, n, 0, NULL, &e), TSR_OK);
    tsri_experiment_destroy(e);
    /* Chains of references are not followed again and again. */
    n = (size_t)sprintf(text, "%s", GRAPH);
    n += (size_t)sprintf(text + n, "  y0: {op: relu, in: x}\n");
    for (int i = 1; i < 16000; i++)
        n += (size_t)sprintf(text + n, "  y%d: {op: add, in: [y%d, y%d]}\n", i, i - 1, i - 1);
    assert_int_equal(tsri_experiment_parse("f.yaml", text, n, 0, NULL, &e), TSR_OK);
    tsri_experiment_destroy(e);
    free(text);
}

/* --- what is read ----------------------------------------------------------------------------- */
static tsr_compile_opts opts_of(const tsri_experiment *e)
{
    tsr_compile_opts opts = *TSR_COMPILE_OPTS();
    tsri_experiment_fill(e, &opts);
    return opts;
}

static void test_values(void **state)
{
    (void)state;
    tsri_experiment *e =
        parse_ok(TRAIN "dtype: f64\n"
                       "tensors: {input: {placement: grid, sbp: [S(0), B]}}\n"
                       "parameters: [{match: '*', sbp: auto}]\n"
                       "optimizer: {name: adamw, weight_decay: 0, schedule: {name: step, "
                       "step_size: 5, warmup: 2}, state: {sbp: S(0)}}\n"
                       "train: {steps: 100, seed: 9007199254740992, init: w}\n"
                       "cluster: {ranks_per_node: 8, latency_us: 2.5}\n"
                       "memory_limit: 1.5 GiB\nbucket_mb: 0.5\ninfer_updates: true\n"
                       "search: {seconds: 2.5}\nschedule: {microbatches: 16}\n");
    char text[TSR_SBP_TEXT_MAX], cwd[PATH_MAX];
    assert_int_equal(tsri_experiment_nranks(e), 4);
    assert_true(tsri_experiment_trains(e));
    tsr_compile_opts opts = opts_of(e);
    assert_int_equal(opts.memory_limit, 1610612736);
    assert_true(opts.search_s == 2.5 && opts.bucket_mb == 0.5 && opts.infer_updates &&
                opts.on_nan == TSR_NAN_STOP && opts.microbatches == 16);
    assert_int_equal(tsri_experiment_cluster(e)->ranks_per_node, 8);
    assert_true(tsri_experiment_cluster(e)->latency_us == 2.5);
    assert_true(tsri_experiment_cluster(e)->bandwidth_gb_s == 0);
    assert_int_equal(e->dtype, TSR_F64);
    assert_string_equal(tsr_sbp_format(e->tensors.input.sbp, text), "(S(0),B)");
    assert_string_equal(tsr_sbp_format(e->tensors.label.sbp, text), "(S(0),B)");
    assert_string_equal(e->tensors.label.placement.name, "grid");
    assert_int_equal(e->model.args.inputs, 16);
    assert_int_equal(e->model.args.outputs, 3);
    assert_int_equal(e->optimizer.schedule.head.variant, TSR_SCHEDULE_STEP);
    assert_true(e->optimizer.schedule.gamma == 0.1 && e->optimizer.weight_decay == 0);
    assert_int_equal(e->train.seed, INT64_C(1) << 53);
    /* Names of files start from the folder of the file, here the working folder. */
    assert_non_null(getcwd(cwd, sizeof cwd));
    assert_memory_equal(e->train.init, cwd, strlen(cwd));
    assert_string_equal(e->train.init + strlen(cwd), "/w");
    tsri_experiment_destroy(e);
    e = parse_ok(GRAPH);
    assert_false(tsri_experiment_trains(e));
    assert_null(tsri_experiment_cluster(e));
    opts = opts_of(e);
    assert_int_equal(opts.memory_limit, 0);
    assert_true(opts.search_s == 0 && opts.bucket_mb == 4 && !opts.infer_updates &&
                opts.on_nan == TSR_NAN_WARN && opts.microbatches == 1);
    assert_int_equal(e->fetch.n, 1);
    assert_string_equal(e->fetch.refs[0].name, "x");
    tsri_experiment_destroy(e);
    e = parse_ok(GRAPH "  y: {op: split, in: x, sizes: [1, 1]}\n");
    assert_int_equal(e->fetch.n, 2);
    assert_string_equal(e->fetch.refs[1].name, "y.1");
    tsri_experiment_destroy(e);
    assert_int_equal(tsri_experiment_nranks(NULL), 0);
    assert_null(tsri_experiment_cluster(NULL));
    opts = opts_of(NULL);
    assert_memory_equal(&opts, TSR_COMPILE_OPTS(), sizeof opts);
}

static void test_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } rows[] = {{"1", 1},          {"1000", 1000},        {"'7 B'", 7},
                {"2KiB", 2048},    {"2 kB", 2000},        {"2 KB", 2000},
                {"3 MB", 3000000}, {"0.5 GB", 500000000}, {"1 TiB", INT64_C(1) << 40},
                {"1e3", 1000},     {"512 MiB", 512 << 20}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[1000];
        snprintf(text, sizeof text, "%smemory_limit: %s\n", TRAIN, rows[i].text);
        tsri_experiment *e = parse_ok(text);
        assert_int_equal(opts_of(e).memory_limit, rows[i].bytes);
        tsri_experiment_destroy(e);
    }
}

/* --- dumps ------------------------------------------------------------------------------------ */
static void test_dump(void **state)
{
    (void)state;
    tsri_experiment *e = parse_ok("tessera: 1\n"
                                  "placements: {d: {ranks: [1, 0]}}\n"
                                  "model: {name: mlp}\n"
                                  "data: {dataset: synthetic, shape: [4, 4], classes: 3}\n"
                                  "parameters:\n"
                                  "  - {match: '2.*', sbp: auto}\n"
                                  "  - match: \"tab\\tquote\\\"\"\n");
    char *text = dump(e);
    assert_string_equal(text, "tessera: 1\n"
                              "dtype: f32\n"
                              "placements:\n"
                              "  d: {device: cpu, ranks: [1, 0]}\n"
                              "model:\n"
                              "  name: mlp\n"
                              "  args: {inputs: 16, hidden: 128, outputs: 3, layers: 2}\n"
                              "data:\n"
                              "  dataset: synthetic\n"
                              "  batch_size: 64\n"
                              "  shuffle: true\n"
                              "  seed: 0\n"
                              "  workers: 1\n"
                              "  prefetch: 2\n"
                              "  shape: [4, 4]\n"
                              "  classes: 3\n"
                              "  samples: 1024\n"
                              "  test_samples: 256\n"
                              "  augment: false\n"
                              "  normalize: true\n"
                              "tensors:\n"
                              "  input: {placement: d, sbp: S(0)}\n"
                              "  label: {placement: d, sbp: S(0)}\n"
                              "  logits: {}\n"
                              "  loss: {}\n"
                              "parameters:\n"
                              "  - {match: \"2.*\", sbp: auto}\n"
                              "  - {match: \"tab\\tquote\\\"\"}\n"
                              "optimizer:\n"
                              "  name: sgd\n"
                              "  schedule: {name: constant, warmup: 0}\n"
                              "  accumulate: 1\n"
                              "  loss_scale: 1\n"
                              "  lr: 0.001\n"
                              "  momentum: 0\n"
                              "  dampening: 0\n"
                              "  weight_decay: 0\n"
                              "  nesterov: false\n"
                              "train:\n"
                              "  epochs: 1\n"
                              "  seed: 0\n"
                              "  label_smoothing: 0\n"
                              "  on_nan: stop\n"
                              "bucket_mb: 4\n"
                              "infer_updates: false\n");
    tsri_experiment_destroy(e);
    free(text);
}

static void test_round_trips(void **state)
{
    (void)state;
    for (int i = 0; tsri_config_examples[i]; i++)
        assert_round_trip(tsri_config_examples[i]);
    assert_round_trip(TRAIN "train: {eval: {every: 2 epochs, data: train}, metrics: m.jsonl,\n"
                            "        checkpoint: {dir: a, every: 100 steps, resume: false}}\n");
    assert_round_trip(TRAIN "dtype: f64\ntensors: {logits: {placement: grid, sbp: '(P,P)'}}\n"
                            "parameters: [{match: '*', placement: grid, sbp: [S(0), B]}]\n"
                            "optimizer: {name: adam, lr: 0.30000000000000004, eps: 1e-300}\n"
                            "train: {init: ./a b.safetensors, epochs: 0}\n"
                            "cluster: {bandwidth_gb_s: 12.5}\nmemory_limit: 5 GB\n"
                            "bucket_mb: 0\nschedule: {microbatches: 4}\n");
    assert_round_trip(MESH "strategy: {dp: zero1}\nstages: {axis: tp, rules: [{match: '0.*', "
                           "stage: 0}, {match: \"[24].*\", stage: 1}]}\n");
    assert_round_trip("vars: {d: '$${d}', l: 0.5}\n" TRAIN
                      "optimizer: {name: sgd, lr: '${l}'}\ntrain: {init: '$$${d}'}\n");
    assert_round_trip(GRAPH "  c: {op: constant, value: [[true, 0], [false, 1]], dtype: bool}\n"
                            "  d: {op: constant, value: -1.5e-3, dtype: f64, sbp: [B]}\n"
                            "  e: {op: constant, value: []}\n"
                            "  f: {op: constant, file: x.npy, shape: [2]}\n"
                            "  g: {op: from_local, locals: [a.npy, 'b c.npy'], sbp: S(0)}\n"
                            "  h: {op: constant, arange: true, shape: [3], dtype: i64}\n"
                            "  k: {op: conv2d, in: [x, x], stride: 2, padding: [0, 1]}\n"
                            "  l: {op: sum, in: x, axes: -1, keepdim: true, placement: g, sbp: B}\n"
                            "  m: {op: permute, in: x, order: [1, 0]}\n"
                            "loss: x\nfetch: [grad(x), l]\ntrain: {steps: 3}\n");
}

/* Any text in a name of a file comes back. */
static void test_texts(void **state)
{
    (void)state;
    static const char *const texts[] = {"/plain",
                                        "/with blank",
                                        "/'quotes\"",
                                        "/back\\slash",
                                        "/tab\tnewline\n",
                                        "/#no comment",
                                        "/a: b",
                                        "/[x, y]",
                                        "/\xc3\xa4\xe2\x82\xac",
                                        "/{}",
                                        "/&a",
                                        "/*",
                                        "/@`",
                                        "/%",
                                        "/true"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const tsri_yaml node = {.kind = TSRI_YAML_SCALAR, .text = texts[i], .quoted = true};
        char set[200], *quoted = NULL;
        size_t size;
        FILE *f = open_memstream(&quoted, &size);
        assert_non_null(f);
        tsri_yaml_dump(&node, f);
        fclose(f);
        snprintf(set, sizeof set, "train.init=%s", quoted);
        const char *sets[] = {set};
        tsri_experiment *e = NULL, *again;
        if (tsri_experiment_parse("f", TRAIN, strlen(TRAIN), 1, sets, &e) != TSR_OK)
            fail_msg("%s", tsr_last_error());
        assert_string_equal(e->train.init, texts[i]);
        char *text = dump(e);
        again = parse_ok(text);
        assert_string_equal(again->train.init, texts[i]);
        tsri_experiment_destroy(again);
        tsri_experiment_destroy(e);
        free(text);
        free(quoted);
    }
}

/* Values of any kind, in lists of lists. */
static void test_trees(void **state)
{
    (void)state;
    const char text[] = "- [1, 'two words', []]\n- ~\n-\n- - '5'\n  - [5, -1e3]\n";
    tsri_pool pool = {0};
    tsri_yaml *root;
    char *flow = NULL;
    size_t size;
    assert_int_equal(tsri_yaml_parse(&pool, "f", text, sizeof text - 1, &root), TSR_OK);
    FILE *f = open_memstream(&flow, &size);
    assert_non_null(f);
    tsri_yaml_dump(root, f);
    fclose(f);
    assert_string_equal(flow, "[[1, \"two words\", []], ~, ~, [\"5\", [5, -1e3]]]");
    free(flow);
    tsri_pool_finish(&pool);
}

/* --- overrides -------------------------------------------------------------------------------- */
static void test_overrides(void **state)
{
    (void)state;
    const char *sets[] = {"train.steps=7",           "train.init=rel",
                          "model={name: convnet}",   "parameters[0]={match: '*', sbp: S(0)}",
                          "placements.d.ranks[2]=5", "optimizer.name=adam"};
    tsri_experiment *e;
    char cwd[PATH_MAX], want[PATH_MAX + 8];
    write_file("f.yaml", TRAIN "train: {steps: 1, init: here}\n",
               strlen(TRAIN "train: {steps: 1, init: here}\n"));
    assert_int_equal(tsri_experiment_load(test_path("f.yaml"), 1, sets, &e), TSR_OK);
    assert_int_equal(e->train.steps, 7);
    assert_string_equal(e->train.init, test_path("here"));
    tsri_experiment_destroy(e);
    if (tsri_experiment_load(test_path("f.yaml"), 6, sets, &e) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(want, sizeof want, "%s/rel", cwd);
    assert_string_equal(e->train.init, want);
    assert_int_equal(e->model.head.variant, 1);
    assert_int_equal(e->parameters.n, 1);
    assert_int_equal(tsri_experiment_nranks(e), 6);
    assert_int_equal(e->optimizer.head.variant, TSRI_OPTIMIZER_ADAM);
    tsri_experiment_destroy(e);
    static const struct {
        const char *set, *error;
    } rows[] = {
        {"train.stepz=7", "--set train.stepz=7:1:7: train.stepz: unknown key; legal are epochs, "
                          "steps, seed, init, label_smoothing, on_nan, amp, eval, checkpoint, "
                          "metrics, tensorboard; did you mean 'steps'?"},
        {"train.steps=x", "--set train.steps=x:1:13: train.steps: found 'x'; legal is a whole "
                          "number from 0 to 9007199254740992"},
        {"placements.d.ranks=[[1], 0]",
         "--set placements.d.ranks=[[1], 0]:1:26: placements.d.ranks[1]: a rank stands where a "
         "list is expected: the lists are nested unevenly"},
        {"train", "--set train: column 6: '=' and a value are expected, as in train.steps=5"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(tsri_experiment_parse("f", TRAIN, strlen(TRAIN), 1, &rows[i].set, &e),
                         TSR_ERR_FORMAT);
        assert_string_equal(tsr_last_error(), rows[i].error);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    const char *sets[] = {"placements.m={mesh: {a: 2, b: 2}}", "placements.e={ranks: [[1], [0]]}"};
    static const char *const texts[] = {
        TRAIN "parameters: [{match: '*', placement: d}]\n",
        GRAPH "  y: {op: from_local, locals: [a.npy, b.npy], sbp: P, shape: [2]}\n"
              "  z: {op: constant, value: [1, 2]}\n  w: {op: add, in: [y, z]}\n",
        TRAIN "tensors: {input: {placement: m, sbp: {a: S(0)}}}\n", TRAIN "cluster: l40s:1x8\n"};
    for (int t = 0; t < 4; t++) {
        int64_t n = 1;
        for (;; n++) {
            tsri_mem mem = {.fail_countdown = n};
            tsri_experiment *e = NULL;
            tsr_status status =
                tsri_experiment_parse_with(&mem, "f", texts[t], strlen(texts[t]), 0, 2, sets, &e);
            tsri_experiment_destroy(e);
            if (status == TSR_OK)
                break;
            assert_int_equal(status, TSR_ERR_NO_MEMORY);
            assert_non_null(strstr(tsr_last_error(), "no memory"));
        }
        assert_true(n > 2);
    }
}

/* --- limits ----------------------------------------------------------------------------------- */
static tsr_status read_one(const tsri_field *f, const char *text, const char *error)
{
    const tsri_yaml node = {.file = "f", .text = text, .line = 1, .column = 1};
    char legal[TSRI_LEGAL_MAX];
    double at[2];
    const tsr_status status = tsri_value_read(NULL, f, &node, at);
    if (status != TSR_OK && !strstr(tsr_last_error(), tsri_field_legal(f, legal)))
        fail_msg("%s: %s: %s", f->name, text, tsr_last_error());
    if (status != TSR_OK && error && !strstr(tsr_last_error(), error))
        fail_msg("%s: %s: %s lacks %s", f->name, text, tsr_last_error(), error);
    return status;
}

/* Reads the bounds of a number, and the numbers beside them; errors name both bounds. */
static void try_limits(const tsri_field *f)
{
    char text[64], low[64], high[64];
    const bool whole = f->kind == TSRI_FIELD_INT;
    const int digits = whole ? 19 : 12; /* of 2^62 there are 19 */
    snprintf(low, sizeof low, "%.*g", digits, f->min);
    snprintf(high, sizeof high, "%.*g", digits, f->max);
    assert_int_equal(read_one(f, low, NULL), TSR_OK);
    if (whole)
        snprintf(text, sizeof text, "%lld", (long long)f->min - 1);
    else
        snprintf(text, sizeof text, "%.17g", nextafter(f->min, -INFINITY));
    assert_int_equal(read_one(f, text, low), TSR_ERR_FORMAT);
    if (isinf(f->max))
        return;
    assert_int_equal(read_one(f, text, high), TSR_ERR_FORMAT);
    assert_int_equal(read_one(f, high, NULL), TSR_OK);
    if (whole)
        snprintf(text, sizeof text, "%lld", (long long)f->max + 1);
    else
        snprintf(text, sizeof text, "%.17g", nextafter(f->max, INFINITY));
    assert_int_equal(read_one(f, text, high), TSR_ERR_FORMAT);
}

static int try_section(const tsri_section *s, int depth)
{
    int n = 0;
    for (int i = 0; i < s->nfields; i++) {
        const tsri_field *f = &s->fields[i];
        if (f->section && depth)
            n += try_section(f->section, depth - 1);
        if ((f->kind != TSRI_FIELD_INT && f->kind != TSRI_FIELD_FLOAT) || f->min >= f->max ||
            f->legal)
            continue;
        if (f->kind == TSRI_FIELD_INT) /* bounds are exact */
            assert_true(f->min == floor(f->min) && f->max == floor(f->max) &&
                        fabs(f->min) <= 0x1p62 && fabs(f->max) <= 0x1p62);
        try_limits(f);
        n++;
    }
    for (int i = 0; i < s->nvariants; i++)
        n += try_section(&s->variants[i], depth);
    return n;
}

static void test_limits(void **state)
{
    (void)state;
    const int n = try_section(&tsri_experiment_section, 4);
    print_message("%d numbers\n", n);
    assert_true(n > 200);
}

/* Seeds have all of 64 bits, and bytes that are whole are exact. */
static void test_whole_numbers(void **state)
{
    (void)state;
    tsri_experiment *e = parse_ok(TRAIN "train: {seed: 18446744073709551615, steps: "
                                        "9007199254740992}\nmemory_limit: 4611686018427387903\n");
    assert_true(e->train.seed == UINT64_MAX);
    assert_true(e->train.steps == INT64_C(1) << 53);
    assert_true(e->planning.memory_limit == (INT64_C(1) << 62) - 1);
    char *text = dump(e);
    assert_non_null(strstr(text, "seed: 18446744073709551615\n"));
    free(text);
    tsri_experiment_destroy(e);
}

/* A byte order mark before the first key, in a block or in braces, is no part of it. */
static void test_byte_order_mark(void **state)
{
    (void)state;
    tsri_experiment_destroy(parse_ok("\xef\xbb\xbf" TRAIN));
    tsri_experiment_destroy(parse_ok("\xef\xbb\xbf# comment\n" TRAIN));
    tsri_experiment *e = NULL;
    assert_int_equal(parse("\xef\xbb\xbfstepz: 1\n", &e), TSR_ERR_FORMAT);
    assert_non_null(strstr(tsr_last_error(), "f.yaml:1:1: stepz: unknown key"));
    assert_int_equal(parse("\xef\xbb\xbf", &e), TSR_ERR_FORMAT);
    assert_int_equal(parse("\xef\xbb\xbf\xef\xbb\xbf" TRAIN, &e), TSR_ERR_FORMAT);
}

int main(void)
{
#define FOLDER(fn) cmocka_unit_test_setup_teardown(fn, make_test_dir, remove_test_dir)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_unknown_op),
        FOLDER(test_bad_files),
        cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_dump),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_trees),
        FOLDER(test_overrides),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_whole_numbers),
        cmocka_unit_test(test_byte_order_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
