/* SPDX-License-Identifier: Apache-2.0 */
/* Experiments of several files, and variables: what comes of them, and every error with its text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/config/inside.h"
#include "src/config/ops.h"
#include "tests/unit/files.h"
#include "tests/unit/heap.h"

#define HEAD       \
    "tessera: 1\n" \
    "placements: {d: {ranks: [0, 1]}}\n"
#define TRAIN                   \
    HEAD "model: {name: mlp}\n" \
         "data: {dataset: synthetic, shape: [1, 4, 4], classes: 3}\n"

static char old_folder[PATH_MAX];

static int enter(void **state)
{
    return !getcwd(old_folder, sizeof old_folder) || make_test_dir(state) || chdir(test_dir);
}

static int leave(void **state)
{
    return chdir(old_folder) || remove_test_dir(state);
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static tsri_experiment *load(const char *name, int n, const char *const *sets)
{
    tsri_experiment *e = NULL;
    if (tsri_experiment_load(name, n, sets, &e) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    return e;
}

/* --- includes --------------------------------------------------------------------------------- */
static void test_merge(void **state)
{
    (void)state;
    assert_int_equal(mkdir("common", 0777), 0);
    put("common/base.yaml",
        TRAIN "parameters: [{match: '*'}, {match: '0.*', sbp: S(0)}]\n"
              "optimizer: {name: adam, lr: 0.5, beta1: 0.7, schedule: {name: step, step_size: 3}}\n"
              "train: {init: weights, steps: 9}\n");
    put("common/more.yaml", "include: base.yaml\ntrain: {steps: 5, seed: 4}\n");
    put("last.yaml", "train: {seed: 6}\n");
    put("f.yaml", "include: [common/more.yaml, last.yaml]\n"
                  "placements: {e: {ranks: [2]}}\n"
                  "model: {args: {hidden: 8}}\n"
                  "parameters: []\n"
                  "optimizer: {beta2: 0.6, schedule: {name: cosine}}\n");
    tsri_experiment *e = load("f.yaml", 0, NULL);
    const tsri_config_placement *p = e->placements.items;
    assert_int_equal(e->placements.n, 2);
    assert_string_equal(p[0].head.name, "d");
    assert_string_equal(p[1].head.name, "e");
    assert_string_equal(e->tensors.input.placement.name, "d");
    assert_int_equal(e->model.args.hidden, 8);
    assert_int_equal(e->parameters.n, 0);
    assert_int_equal(e->optimizer.head.variant, TSRI_OPTIMIZER_ADAM);
    assert_true(e->optimizer.lr == 0.5 && e->optimizer.beta1 == 0.7 && e->optimizer.beta2 == 0.6);
    /* Another kind of schedule takes none of the keys of the first. */
    assert_int_equal(e->optimizer.schedule.head.variant, TSR_SCHEDULE_COSINE);
    assert_int_equal(e->optimizer.schedule.step_size, 0);
    assert_int_equal(e->train.steps, 5);
    assert_int_equal(e->train.seed, 6);
    char want[PATH_MAX], real[PATH_MAX];
    assert_non_null(realpath(".", real));
    snprintf(want, sizeof want, "%.3000s/common/weights", real);
    assert_string_equal(e->train.init, want);
    tsri_experiment_destroy(e);
    const char *sets[] = {"include[1]=common/base.yaml", "train.seed=8", "optimizer.name=adam"};
    e = load("f.yaml", 3, sets);
    assert_int_equal(e->train.seed, 8);
    assert_int_equal(e->train.steps, 9);
    tsri_experiment_destroy(e);
}

/* Entries of a graph: those of the file that is included come first. */
static void test_merge_graphs(void **state)
{
    (void)state;
    put("base.yaml", HEAD "graph:\n"
                          "  x: {op: constant, fill: 1, shape: [2, 2]}\n"
                          "  y: {op: softmax, in: x, axis: 0}\n");
    put("f.yaml", "include: base.yaml\ngraph:\n  z: {op: neg, in: y}\n  y: {op: relu, in: x}\n");
    tsri_experiment *e = load("f.yaml", 0, NULL);
    const tsri_config_op *ops = e->graph.items;
    assert_int_equal(e->graph.n, 3);
    assert_string_equal(ops[1].head.name, "y");
    assert_string_equal(tsri_op_sections[ops[1].head.variant].name, "relu");
    assert_string_equal(ops[2].head.name, "z");
    assert_string_equal(ops[2].head.node->file, "f.yaml");
    assert_string_equal(ops[0].head.node->file, "base.yaml");
    tsri_experiment_destroy(e);
}

/* --- variables -------------------------------------------------------------------------------- */
static void test_variables(void **state)
{
    (void)state;
    const char *text =
        "vars:\n  n: 6\n  lr: ${n}e-${k}\n  k: 3\n  flag: true\n  where: d\n  dir: runs\n" HEAD
        "model:\n  name: mlp\n  args:\n    hidden: ${n}4\n"
        "data: {dataset: synthetic, shape: [1, '${n}', 4], classes: 3,\n"
        "       shuffle: '${flag}', batch_size: '${n}'}\n"
        "tensors: {input: {placement: '${where}'}}\n"
        "optimizer: {name: sgd, lr: '${lr}'}\n"
        "train:\n"
        "  init: ${dir}/$${n}-${n}\n"
        "  seed: ${n}${k}\n";
    put("f.yaml", text);
    tsri_experiment *e = load("f.yaml", 0, NULL);
    assert_int_equal(e->model.args.hidden, 64);
    assert_int_equal(e->data.shape.d[1], 6);
    assert_int_equal(e->data.batch_size, 6);
    assert_true(e->data.shuffle);
    assert_true(e->optimizer.lr == 6e-3);
    assert_int_equal(e->train.seed, 63);
    assert_string_equal(strrchr(e->train.init, '/'), "/${n}-6");
    tsri_experiment_destroy(e);
    const char *sets[] = {"vars.n=8", "vars.flag=false", "vars.k=${n}"};
    e = load("f.yaml", 3, sets);
    assert_int_equal(e->data.batch_size, 8);
    assert_false(e->data.shuffle);
    assert_true(e->optimizer.lr == 8e-8);
    tsri_experiment_destroy(e);
    /* A file name in an override starts from the working folder, wherever it is used. */
    assert_int_equal(mkdir("sub", 0777), 0);
    put("sub/f.yaml", "vars: {init: a}\n" TRAIN "train: {init: \"${init}\"}\n");
    const char *set = "vars.init=b";
    char want[PATH_MAX], real[PATH_MAX];
    assert_non_null(realpath(".", real));
    e = load("sub/f.yaml", 0, NULL);
    snprintf(want, sizeof want, "%.3000s/sub/a", real);
    assert_string_equal(e->train.init, want);
    tsri_experiment_destroy(e);
    e = load("sub/f.yaml", 1, &set);
    snprintf(want, sizeof want, "%.3000s/b", real);
    assert_string_equal(e->train.init, want);
    tsri_experiment_destroy(e);
}

/* Variables of an included file are the file's own, to be set anew. */
static void test_variables_of_includes(void **state)
{
    (void)state;
    put("base.yaml", "vars: {batch: 64, unused: 1}\n" TRAIN "train: {steps: '${batch}'}\n");
    put("f.yaml", "include: base.yaml\nvars: {batch: 32}\n");
    tsri_experiment *e = load("f.yaml", 0, NULL);
    assert_int_equal(e->train.steps, 32);
    tsri_experiment_destroy(e);
}

/* --- errors ----------------------------------------------------------------------------------- */
static const struct {
    const char *main, *other, *error; /* other: the text of base.yaml */
} errors[] = {
    {"include: bas.yaml\n", "",
     "f.yaml:1:10: include: there is no file 'bas.yaml'; did you mean 'base.yaml'?"},
    {TRAIN "include:\n  - base.yaml\n  - other/x.yaml\n", HEAD,
     "f.yaml:7:5: include[1]: there is no file 'other/x.yaml'"},
    {"include: .\n", "", "f.yaml:1:10: include: '.' is no file, but a folder or device"},
    {"include: /dev/zero\n", "",
     "f.yaml:1:10: include: '/dev/zero' is no file, but a folder or device"},
    {"include: {a: b}\n", "",
     "f.yaml:1:10: include: found a mapping; legal is a file name, or a list of them"},
    {"include: 7\n", "",
     "f.yaml:1:10: include: found '7'; legal is a file name, or a list of them"},
    {"include: [[base.yaml]]\n", "",
     "f.yaml:1:11: include[0]: found a list; legal is a file name, or a list of them"},
    {"include: ${base}.yaml\n", "",
     "f.yaml:1:10: include: variables can't be used here: files are included before their values "
     "are known"},
    {"include: f.yaml\n", "", "f.yaml:1:10: include: 'f.yaml' includes itself"},
    {"include: base.yaml\n", "\ninclude: ./f.yaml\n",
     "base.yaml:2:10: include: './f.yaml' includes itself, by way of base.yaml"},
    {"include: base.yaml\n", "a: [\n",
     "base.yaml:2:1: not YAML: did not find expected node content while parsing a flow node of "
     "line 2"},
    {"include: base.yaml\n", "- a\n", "base.yaml:1:1: it is no mapping with keys of experiments"},
    /* No word of a file that is no part of an experiment is shown. */
    {"include: base.yaml\n", "root:$6$hash:19000:0:99999:7:::\n",
     "base.yaml:1:1: a key that no experiment has: the file is no part of one"},
    {"include: base.yaml\n", "root:hash:19000 and so on\n",
     "base.yaml:1:1: it is no mapping with keys of experiments"},
    {"include: base.yaml\n", "seed: 1\npassword: hunter2\n",
     "base.yaml:1:1: a key that no experiment has: the file is no part of one"},
    {"include: base.yaml\n", "data: {password: hunter2}\ntoken: x\n",
     "base.yaml:2:1: a key that no experiment has: the file is no part of one"},
    {"include: base.yaml\n", "a:\n  password: 1\n  password: 2\n",
     "base.yaml:3:3: this key is there twice"},
    {"include: base.yaml\n", TRAIN "optimiser: {name: sgd}\n",
     "base.yaml:5:1: optimiser: unknown key; legal are tessera, include, vars, dtype, placements, "
     "mesh, device, strategy, model, data, tensors, parameters, optimizer, graph, loss, fetch, "
     "train, cluster, memory_limit, bucket_mb, infer_updates, reshard_after_forward, recompute, "
     "fusion, search, schedule, stages; did "
     "you mean 'optimizer'?"},
    {"include: base.yaml\n", TRAIN "train:\n  stepz: 3\n",
     "base.yaml:6:3: train.stepz: unknown key; legal are epochs, steps, seed, init, "
     "label_smoothing, on_nan, amp, eval, checkpoint, metrics, tensorboard; did you mean 'steps'?"},
    {"include: base.yaml\ntrain: {steps: 3}\n", TRAIN "train:\n  seed: x\n",
     "base.yaml:6:9: train.seed: found 'x'; legal is a whole number from 0 to "
     "18446744073709551615"},
    {"include: base.yaml\ntensors: {input: {placement: e}}\n", TRAIN,
     "f.yaml:2:30: tensors.input.placement: there is no placement 'e'; legal are d"},
    {"vars: [1]\n" TRAIN, "",
     "f.yaml:1:7: vars: found a list; legal is a mapping from names to "
     "values"},
    {"vars: {a b: 1}\n" TRAIN, "",
     "f.yaml:1:8: vars.a b: not a name; legal are up to 100 letters, digits, _ and -, with a "
     "letter or _ first"},
    {"vars: {a: [1]}\n" TRAIN, "",
     "f.yaml:1:11: vars.a: found a list; legal is a number, a text, true or false"},
    {TRAIN "train: {steps: '${batch}'}\n", "",
     "f.yaml:5:16: train.steps: there is no variable 'batch': 'vars' is missing"},
    {"vars: {batch: 4, b: 1}\n" TRAIN "train: {steps: '${bacth}'}\n", "",
     "f.yaml:6:16: train.steps: there is no variable 'bacth'; legal are batch, b; did you mean "
     "'batch'?"},
    {"vars: {a: '${b}', b: '${c}0', c: '${a}'}\n" TRAIN, "",
     "f.yaml:1:34: vars.c: 'a' is made of itself"},
    {"vars: {a: '${a}'}\n" TRAIN, "", "f.yaml:1:11: vars.a: 'a' is made of itself"},
    {TRAIN "train: {init: 'a${b'}\n", "",
     "f.yaml:5:15: train.init: '${' without '}'; a text with ${ in it is written $${"},
    {TRAIN "train: {init: '${a b}'}\n", "",
     "f.yaml:5:15: train.init: '${a b}' has no name of a variable; a text with ${ in it is written "
     "$${"},
    {"vars: {s: x}\n" TRAIN "train: {steps: '${s}'}\n", "",
     "f.yaml:6:16: train.steps: found 'x'; legal is a whole number from 0 to 9007199254740992"},
    {"vars: {s: \"5\"}\n" TRAIN "train: {steps: '${s}'}\n", "",
     "f.yaml:6:16: train.steps: found \"5\"; legal is a whole number from 0 to 9007199254740992"},
    {"vars: {s: 5}\n" TRAIN "train: {init: '${s}'}\n", "",
     "f.yaml:6:15: train.init: found '5'; legal is a file name"},
    {TRAIN "train: {steps: ${s}}\n", "",
     "f.yaml:5:17: not YAML: did not find expected ',' or '}' while parsing a flow mapping of line "
     "5; within {} and [] a variable needs quotes, as in \"${batch}\""},
};

static void test_errors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        tsri_experiment *e = NULL;
        put("base.yaml", errors[i].other);
        put("f.yaml", errors[i].main);
        tsr_status status = tsri_experiment_load("f.yaml", 0, NULL, &e);
        if (status != TSR_ERR_FORMAT || e)
            fail_msg("accepted:\n%s", errors[i].main);
        if (strcmp(tsr_last_error(), errors[i].error) != 0)
            fail_msg("\n%s\nis told as   %s\ninstead of %s", errors[i].main, tsr_last_error(),
                     errors[i].error);
    }
}

static void test_bad_overrides(void **state)
{
    (void)state;
    static const struct {
        const char *set, *error;
    } rows[] = {
        {"vars.bacth=7", "--set vars.bacth=7:1:6: vars.bacth: nothing in the file uses ${bacth}; "
                         "did you mean 'batch'?"},
        {"vars.batch=x", "f.yaml:6:16: train.steps: found 'x'; legal is a whole number from "
                         "0 to 9007199254740992"},
        {"vars.batch=${batch}", "--set vars.batch=${batch}:1:12: vars.batch: 'batch' is made of "
                                "itself"},
        {"include=f.yml", "--set include=f.yml:1:9: include: there is no file 'f.yml'; did you "
                          "mean 'f.yaml'?"},
        {"include=f.yaml", "--set include=f.yaml:1:9: include: 'f.yaml' includes itself"},
    };
    put("f.yaml", "vars: {batch: 4}\n" TRAIN "train: {steps: '${batch}'}\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tsri_experiment *e = NULL;
        assert_int_equal(tsri_experiment_load("f.yaml", 1, &rows[i].set, &e), TSR_ERR_FORMAT);
        assert_string_equal(tsr_last_error(), rows[i].error);
    }
}

/* Nests nine files, includes many, and grows a text: all end at their bounds. */
static void test_bounds(void **state)
{
    (void)state;
    char name[32], text[8192];
    tsri_experiment *e = NULL;
    for (int i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "d%d.yaml", i);
        snprintf(text, sizeof text, "include: d%d.yaml\n", i + 1);
        put(name, i < 9 ? text : "");
    }
    assert_int_equal(tsri_experiment_load("d0.yaml", 0, NULL, &e), TSR_ERR_FORMAT);
    assert_string_equal(tsr_last_error(),
                        "d8.yaml:1:10: include: includes are nested more than 8 deep");
    put("leaf.yaml", "dtype: f32\n");
    size_t n = (size_t)snprintf(text, sizeof text, "include: [leaf.yaml");
    for (int i = 0; i < 64; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, ",leaf.yaml");
    snprintf(text + n, sizeof text - n, "]\n" TRAIN);
    put("f.yaml", text);
    assert_int_equal(tsri_experiment_load("f.yaml", 0, NULL, &e), TSR_ERR_FORMAT);
    assert_string_equal(tsr_last_error(),
                        "f.yaml:1:651: include[64]: more than 64 files are included");
    n = (size_t)snprintf(text, sizeof text, "vars:\n  v0: aaaaaaaaaa\n");
    for (int i = 1; i < 40; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "  v%d: ${v%d}${v%d}\n", i, i - 1, i - 1);
    put("f.yaml", text);
    assert_int_equal(tsri_experiment_load("f.yaml", 0, NULL, &e), TSR_ERR_FORMAT);
    assert_string_equal(tsr_last_error(),
                        "f.yaml:11:7: vars.v9: more than 4096 bytes with its variables' values");
}

static void load_and_drop(void)
{
    tsri_experiment_destroy(load("f.yaml", 0, NULL));
}

static void test_no_memory(void **state)
{
    (void)state;
    const char *text = "include: base.yaml\nvars: {a: '${b}', b: 1}\ntrain: {steps: '${a}'}\n";
    put("base.yaml", TRAIN);
    put("f.yaml", text);
    int64_t n = 1;
    for (;; n++) {
        tsri_mem mem = {.fail_countdown = n};
        tsri_experiment *e = NULL;
        tsr_status status =
            tsri_experiment_parse_with(&mem, "f.yaml", text, strlen(text), 0, 0, NULL, &e);
        tsri_experiment_destroy(e);
        if (status == TSR_OK)
            break;
        if (status != TSR_ERR_NO_MEMORY)
            fail_msg("%s", tsr_last_error());
        assert_non_null(strstr(tsr_last_error(), "no memory"));
    }
    assert_true(n > 10);
    KEEPS_NOTHING(load_and_drop());
}

int main(void)
{
#define FOLDER(fn) cmocka_unit_test_setup_teardown(fn, enter, leave)
    const struct CMUnitTest tests[] = {
        FOLDER(test_merge),     FOLDER(test_merge_graphs),
        FOLDER(test_variables), FOLDER(test_variables_of_includes),
        FOLDER(test_errors),    FOLDER(test_bad_overrides),
        FOLDER(test_bounds),    FOLDER(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
