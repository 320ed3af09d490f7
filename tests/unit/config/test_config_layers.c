/* SPDX-License-Identifier: Apache-2.0 */
/* Models of layers that stand in the file: their parameters' names, what they compute, each layer
 * of the table, and every error with its text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/layers.h>

#include "src/config/layers/layers.h"
#include "tests/unit/config/config_refused.h"

#define HEAD "tessera: 1\nplacements: {d: {ranks: [0]}}\n"
#define DATA(shape) \
    "data: {dataset: synthetic, shape: " shape ", classes: 4, samples: 16, batch_size: 4}\n"
#define IMAGES HEAD DATA("[3, 8, 8]") "model:\n"

static tsri_experiment *parse(const char *text)
{
    tsri_experiment *e = NULL;
    if (tsri_experiment_parse("f.yaml", text, strlen(text), 0, NULL, &e) != TSR_OK)
        fail_msg("%s\n%s", text, tsr_last_error());
    return e;
}

/* --- names ------------------------------------------------------------------------------------ */
typedef struct list {
    char text[2000];
    size_t used;
} list;

static tsr_status add_name(tsr_variable *v, const char *name, void *arg)
{
    list *l = arg;
    char dims[64] = "";
    tsr_dims d = tsr_variable_dims(v);
    for (int i = 0, n = 0; i < d.ndim; i++)
        n += snprintf(dims + n, sizeof dims - (size_t)n, "%s%d", i ? "," : "", (int)d.d[i]);
    l->used += (size_t)snprintf(l->text + l->used, sizeof l->text - l->used, "%s[%s]%s ", name,
                                dims, tsr_variable_trainable(v) ? "" : "b");
    return TSR_OK;
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *model, *names;
    } rows[] = {
        {"  layers: [flatten, {layer: linear, in: 192, out: 8}, relu, {layer: linear, in: 8, out: "
         "4, "
         "bias: false}]\n",
         "1.weight[8,192] 1.bias[8] 3.weight[4,8] "},
        {"  layers:\n"
         "  - {layer: conv2d, in: 3, out: 4, kernel: 3, padding: 1, name: stem}\n"
         "  - {layer: residual, repeat: 2, layers: [{layer: part, of: block}]}\n"
         "  - {layer: sequential, name: body, repeat: 2, layers: [{layer: part, of: block}]}\n"
         "  - {layer: residual, layers: [relu],\n"
         "     shortcut: [{layer: conv2d, in: 4, out: 4, kernel: 1, bias: false}]}\n"
         "  - {layer: mean, axes: [2, 3]}\n"
         "  parts: {block: [{layer: batch_norm, channels: 4}, relu]}\n",
         "stem.weight[4,3,3,3] stem.bias[4] "
         "1.0.0.weight[4] 1.0.0.bias[4] 1.0.0.running_mean[4]b 1.0.0.running_var[4]b "
         "2.0.0.weight[4] 2.0.0.bias[4] 2.0.0.running_mean[4]b 2.0.0.running_var[4]b "
         "body.0.0.0.weight[4] body.0.0.0.bias[4] body.0.0.0.running_mean[4]b "
         "body.0.0.0.running_var[4]b "
         "body.1.0.0.weight[4] body.1.0.0.bias[4] body.1.0.0.running_mean[4]b "
         "body.1.0.0.running_var[4]b "
         "4.shortcut.0.weight[4,4,1,1] "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[2000];
        list l = {0};
        tsr_world *w;
        tsri_program *p;
        tsr_plan *plan;
        snprintf(text, sizeof text, "%s%s", IMAGES, rows[i].model);
        tsri_experiment *e = parse(text);
        assert_int_equal(tsr_world_create_virtual(1, 0, &w), TSR_OK);
        if (tsri_program_build(e, w, NULL, &p) != TSR_OK || tsr_compile(p->graph, &plan) != TSR_OK)
            fail_msg("%s\n%s", text, tsr_last_error());
        assert_int_equal(tsr_module_visit(p->module, add_name, &l), TSR_OK);
        assert_string_equal(l.text, rows[i].names);
        tsr_plan_destroy(plan);
        tsri_program_destroy(p);
        tsr_world_destroy(w);
        tsri_experiment_destroy(e);
    }
}

/* --- values ----------------------------------------------------------------------------------- */
#define NET                                                                              \
    "  layers:\n"                                                                        \
    "  - {layer: conv2d, in: 3, out: 4, kernel: 3, stride: 2, padding: [1, 1]}\n"        \
    "  - {layer: batch_norm, channels: 4, eps: 0.01}\n"                                  \
    "  - {layer: leaky_relu, slope: 0.2}\n"                                              \
    "  - {layer: residual, layers: [{layer: conv2d, in: 4, out: 4, kernel: 1}, tanh]}\n" \
    "  - flatten\n"                                                                      \
    "  - {layer: linear, in: 64, out: 4}\n"

static tsr_tensor *residual(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    tsr_tensor *y = tsr_apply(tsr_module_child_at(m, 0), x);
    return tsr_add(tsr_apply(tsr_module_child_at(m, 1), y), x);
}

static tsr_tensor *slope(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)m, (void)arg;
    return tsr_leaky_relu(x, 0.2);
}

static tsr_tensor *flat(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)m, (void)arg;
    return tsr_flatten(x, 1);
}

/* The network of the file above, built by hand from the library's layers. */
static tsr_module *by_hand(tsr_world *w, const tsr_placement *p)
{
    const tsr_nn_opts o = {.placement = p, .sbp = TSR_B, .dtype = TSR_F32, .seed = 7};
    tsr_module *m = tsr_nn_sequential(w, &o);
    tsr_module_add(
        m, "0",
        tsr_nn_conv2d(w, &o, 3, 4, 3, true, TSR_CONV2D_OPTS(.stride = {2, 2}, .padding = {1, 1})));
    tsr_module_add(m, "1", tsr_nn_batch_norm(w, &o, 4, TSR_BATCH_NORM_OPTS(.eps = 0.01)));
    tsr_module_add(m, "2", tsr_module_create(w, &o, slope, NULL, NULL));
    tsr_module *r = tsr_module_add(m, "3", tsr_module_create(w, &o, residual, NULL, NULL));
    tsr_module_add(r, "0", tsr_nn_conv2d(w, &o, 4, 4, 1, true, NULL));
    tsr_module_add(r, "1", tsr_nn_fn(w, tsr_tanh_at));
    tsr_module_add(m, "4", tsr_module_create(w, &o, flat, NULL, NULL));
    tsr_module_add(m, "5", tsr_nn_linear(w, &o, 64, 4, true));
    return m;
}

/* Three steps of sgd on the loader's batches. */
static tsr_status losses_by_hand(tsr_world *w, tsri_program *p, float out[3])
{
    const tsr_placement *place = tsr_placement_parse(w, "cpu:[0]");
    tsr_module *m = by_hand(w, place);
    tsr_optimizer *o = tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.1));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .seed = 7));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4, 3, 8, 8), place, TSR_S(0));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(4), place, TSR_S(0));
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(m, x), y, TSR_MEAN);
    tsr_plan *plan;
    tsr_minimize(o, loss);
    tsr_output(g, "loss", loss, NULL, TSR_B);
    TSR_TRY(tsr_compile(g, &plan));
    for (int i = 0; i < 3; i++) {
        TSR_TRY(tsr_loader_feed(p->loader, plan));
        TSR_TRY(tsr_run(plan));
        TSR_TRY(tsr_fetch(plan, "loss", &out[i], sizeof *out));
    }
    return TSR_OK;
}

static tsr_status compare(tsr_world *w, void *arg)
{
    tsri_program *p, *fresh;
    tsr_plan *plan;
    float mine[3], theirs[3];
    TSR_TRY(tsri_program_build(arg, w, NULL, &p));
    TSR_TRY(tsri_program_build(arg, w, NULL, &fresh)); /* for its loader */
    TSR_TRY(tsr_compile(p->graph, &plan));
    for (int i = 0; i < 3; i++) {
        TSR_TRY(tsri_program_feed(p, plan));
        TSR_TRY(tsr_run(plan));
        TSR_TRY(tsr_fetch(plan, "loss", &mine[i], sizeof *mine));
    }
    TSR_TRY(losses_by_hand(w, fresh, theirs));
    assert_memory_equal(mine, theirs, sizeof mine);
    assert_true(mine[0] > 0.1f && mine[0] != mine[2]);
    tsri_program_destroy(p);
    tsri_program_destroy(fresh);
    return TSR_OK;
}

static void test_values(void **state)
{
    (void)state;
    tsri_experiment *e = parse(IMAGES NET "optimizer: {name: sgd, lr: 0.1}\ntrain: {seed: 7}\n");
    if (tsr_spawn(1, compare, e) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    tsri_experiment_destroy(e);
}

/* --- each layer of the table ------------------------------------------------------------------ */
static void test_table(void **state)
{
    (void)state;
    /* Layers that take rows (4, 8, 6); every result is brought to that shape. */
    static const char *const texts[] = {
        "{layer: linear, in: 6, out: 5}",
        "{layer: conv1d, in: 8, out: 4, kernel: 3, padding: 1, stride: 2}",
        "{layer: conv_transpose1d, in: 8, out: 4, kernel: 2, stride: 2, groups: 2}",
        "{layer: layer_norm, shape: [8, 6]}",
        "{layer: group_norm, groups: 2, channels: 8}",
        "{layer: instance_norm, channels: 8, affine: true}",
        "{layer: rms_norm, shape: [6]}",
        "{layer: prelu, channels: 8}",
        "{layer: lstm, in: 6, hidden: 5, layers: 2, batch_first: true, bidirectional: true}",
        "{layer: gru, in: 6, hidden: 5, bias: false}",
        "{layer: rnn, in: 6, hidden: 5, batch_first: true, dropout: 0.1, layers: 2}",
        "{layer: multihead_attention, width: 6, heads: 2, causal: true, dropout: 0.1}",
        "{layer: transformer_encoder_layer, width: 6, heads: 2, inner: 12, norm_first: true}",
        "{layer: transformer_encoder, width: 6, heads: 2, inner: 12, layers: 2, norm: true, gelu: "
        "true}",
        "{layer: sequential, layers: [relu]}",
        "{layer: residual, layers: [relu]}",
        "identity",
        "{layer: part, of: p}",
        "softmax",
        "{layer: transpose, a: 1, b: 2}",
        /* Layers that take images (4, 2, 4, 6). */
        "{layer: conv2d, in: 2, out: 4, kernel: 3, dilation: 1, groups: 2}",
        "{layer: conv_transpose2d, in: 2, out: 3, kernel: [2, 3], stride: 2, output_padding: 1}",
        "{layer: dropout2d, p: 0.2}",
        "{layer: batch_norm, channels: 2, momentum: 0.2, stats: local}",
        /* Layers that take volumes (4, 1, 2, 4, 6). */
        "{layer: conv3d, in: 1, out: 2, kernel: [1, 2, 3]}",
        "{layer: conv_transpose3d, in: 1, out: 2, kernel: 2, padding: [0, 1, 0]}",
        /* A layer that takes ids. */
        "{layer: embedding, in: 300, out: 3}",
    };
    const int planes = 20, volumes = 24, ids = 26;
    bool seen[512] = {false};
    for (int i = 0; i < (int)(sizeof texts / sizeof *texts); i++) {
        char text[2000];
        tsr_world *w;
        tsri_program *p;
        tsr_plan *plan;
        snprintf(text, sizeof text,
                 HEAD DATA("[1, 8, 6]") "model:\n  parts: {p: [tanh]}\n  layers:\n"
                                        "  - {layer: reshape, shape: %s}\n%s"
                                        "  - %s\n%s"
                                        "  - {layer: flatten, from_axis: 1}\n"
                                        "  - {layer: narrow, axis: 1, length: 4}\n"
                                        "  - {layer: linear, in: 4, out: 4}\n",
                 i >= ids       ? "[4, 48]"
                 : i >= volumes ? "[4, 1, 2, 4, 6]"
                 : i >= planes  ? "[4, 2, 4, 6]"
                                : "[4, 8, 6]",
                 i >= ids ? "  - {layer: cast, dtype: i64}\n" : "", texts[i],
                 i == 9 ? "  - {layer: transpose, a: 0, b: 1}\n" : "");
        if (i == 9) /* time first */
            memcpy(strstr(text, "[4, 8, 6]"), "[8, 4, 6]", 9);
        tsri_experiment *e = parse(text);
        const tsri_config_layer *l = e->model.layers.items;
        for (int k = 0; k < e->model.layers.n; k++)
            seen[l[k].op.head.variant] = true;
        assert_int_equal(tsr_world_create_virtual(1, 0, &w), TSR_OK);
        if (tsri_program_build(e, w, NULL, &p) != TSR_OK || tsr_compile(p->graph, &plan) != TSR_OK)
            fail_msg("%s\n%s", text, tsr_last_error());
        tsr_plan_destroy(plan);
        tsri_program_destroy(p);
        tsr_world_destroy(w);
        tsri_experiment_destroy(e);
    }
    for (int i = 0; i < tsri_layer_section.nvariants; i++)
        if (!seen[i] && tsri_layer_section.variants[i].size == tsri_layer_section.size)
            fail_msg("%s is not tried", tsri_layer_section.variants[i].name);
}

/* --- errors ----------------------------------------------------------------------------------- */
#define LAYERS IMAGES "  layers:\n"
static const refused errors[] = {
    {IMAGES "  layers: []\n", "f.yaml:5:11: model.layers: 0 entries; at least 1 is needed"},
    {IMAGES "  layers: relu\n",
     "f.yaml:5:11: model.layers: found 'relu'; legal is a list of mappings"},
    {IMAGES "  layer: [relu]\n",
     "f.yaml:4:1: model: 'name' is missing; legal are mobilenet_v2, convnet, mlp, transformer, "
     "resnet18, lenet, gpt, lstm_lm, layers, plugin"},
    {IMAGES "  name: mlp\n  layers: [relu]\n",
     "f.yaml:6:3: model.layers: unknown key; legal are name, args"},
    {LAYERS "  - {layer: linaer, in: 3, out: 4}\n",
     "f.yaml:6:13: model.layers[0].layer: found 'linaer'; legal are the 166 that tessera-yaml(5) "
     "lists; did you mean 'linear'?"},
    {LAYERS "  - relu\n  - gleu\n",
     "f.yaml:7:5: model.layers[1].layer: found 'gleu'; legal are the 166 that tessera-yaml(5) "
     "lists; did you mean 'gelu'?"},
    {LAYERS "  - {in: 3, out: 4}\n",
     "f.yaml:6:5: model.layers[0]: 'layer' is missing; legal are the 166 that tessera-yaml(5) "
     "lists"},
    {LAYERS "  - {layer: linear, in: 3}\n",
     "f.yaml:6:5: model.layers[0]: 'out' is missing; legal is a whole number from 1 to 2147483648"},
    {LAYERS "  - {layer: linear, in: 3, out: 4, baise: false}\n",
     "f.yaml:6:36: model.layers[0].baise: unknown key; legal are layer, name, repeat, in, out, "
     "bias; did you mean 'bias'?"},
    {LAYERS "  - {layer: conv2d, in: 3, out: 4, kernel: 0}\n",
     "f.yaml:6:44: model.layers[0].kernel: found '0'; legal is a whole number from 1 to "
     "2147483647"},
    {LAYERS "  - {layer: dropout, p: 1}\n",
     "f.yaml:6:25: model.layers[0].p: found '1'; legal is a number from 0 to 0.999999999"},
    {LAYERS "  - {layer: relu, repeat: 0}\n",
     "f.yaml:6:27: model.layers[0].repeat: found '0'; legal is a whole number from 1 to 4096"},
    {LAYERS "  - {layer: relu, name: a.b}\n", "f.yaml:6:25: model.layers[0].name: not a name of a "
                                              "layer; legal are up to 100 letters, digits, "
                                              "_ and -"},
    {LAYERS "  - {layer: relu, name: \"1\"}\n",
     "f.yaml:6:25: model.layers[0].name: numbers are names of layers that have none"},
    {LAYERS "  - {layer: relu, name: a}\n  - {layer: tanh, name: a}\n",
     "f.yaml:7:25: model.layers[1].name: 'a' is there twice, first in line 6"},
    {LAYERS "  - {layer: residual, layers: []}\n",
     "f.yaml:6:31: model.layers[0].layers: 0 entries; at least 1 is needed"},
    {LAYERS "  - {layer: residual, layers: [{layer: linear, in: 1, otu: 2}]}\n",
     "f.yaml:6:55: model.layers[0].layers[0].otu: unknown key; legal are layer, name, repeat, in, "
     "out, bias; did you mean 'out'?"},
    {LAYERS "  - {layer: part, of: block}\n",
     "f.yaml:6:23: model.layers[0].of: there is no part 'block': 'parts' is missing"},
    {LAYERS "  - {layer: part, of: blok}\n  parts: {block: [relu]}\n",
     "f.yaml:6:23: model.layers[0].of: there is no part 'blok'; legal are block; did you mean "
     "'block'?"},
    {LAYERS "  - relu\n  parts: {a: [{layer: part, of: a}]}\n",
     "f.yaml:7:33: model.parts.a[0].of: 'a' is this part itself; parts use those above them"},
    {LAYERS "  - relu\n  parts: {a: [{layer: part, of: b}], b: [relu]}\n",
     "f.yaml:7:33: model.parts.a[0].of: 'b' is declared later; parts use those above them"},
    {LAYERS "  - relu\n  parts: {a b: [relu]}\n", "f.yaml:7:11: model.parts.a b: not a name; legal "
                                                  "are up to 100 letters, digits, _ and -, with a "
                                                  "letter or _ first"},
    {LAYERS "  - {layer: relu, repeat: 4000}\n  - {layer: sequential, repeat: 4000, layers: [relu, "
            "relu, relu, relu]}\n",
     "f.yaml:7:5: model.layers[1]: more than 16384 layers, repeated ones counted each"},
    {LAYERS "  - flatten\n  - {layer: linear, in: 191, out: 4}\n",
     "f.yaml:7:5: model.layers[1]: 1: linear: x (4,192), weight (4,191): sizes 192 and 191 of the "
     "last axes differ; the weight is (out,in), so it must be (4,192) here"},
    {LAYERS "  - {layer: residual, layers: [{layer: conv2d, in: 3, out: 4, kernel: 1}]}\n",
     "f.yaml:6:5: model.layers[0]: 0: add: (4,4,8,8) and (4,3,8,8); from the right, sizes "
     "must be equal or one of them 1"},
    {LAYERS "  - {layer: multihead_attention, width: 6, heads: 4}\n",
     "f.yaml:6:5: model.layers[0]: multihead_attention: width 6, heads 4, dropout 0: heads "
     "must divide the width, and the dropout be in [0, 1)"},
    /* The message names neither C functions nor lines of the library's models. */
    {LAYERS "  - {layer: group_norm, groups: 2, channels: 3}\n",
     "f.yaml:6:5: model.layers[0]: group_norm: 2 groups of 3 channels; the number must divide "
     "them"},
    {LAYERS "  - {layer: cast, dtype: i64}\n  - relu\n  - {layer: linear, in: 8, out: 8}\n",
     "f.yaml:7:5: model.layers[1]: 1: relu: operand (4,3,8,8) is i64; floating point is needed: "
     "use "
     "{op: cast, dtype: f32}"},
    {LAYERS "  - {layer: repeat_interleave, n: 2, axis: 0}\n  - flatten\n  - {layer: linear, in: "
            "192, out: 9}\n",
     "f.yaml:5:3: model: cross_entropy: logits (8,9), labels (4); legal are logits (n,c), labels "
     "(n)"},
    {IMAGES "  name: mlp\n  args: {inputs: 2, hidden: 7}\n",
     "f.yaml:5:3: model: 0: linear: x (4,192), weight (7,2): sizes 192 and 2 of the last axes "
     "differ; the weight is (out,in), so it must be (7,192) here"},
    {IMAGES "  name: lenet\n",
     "f.yaml:5:3: model: lenet: num_classes 4, channels 3, height 8, width 8: images of 28 x 28 or "
     "32 x 32 are needed, and at least one channel and one class"},
    {IMAGES "  name: mlp\noptimizer: {name: sgd, nesterov: true}\n",
     "f.yaml:6:12: optimizer: sgd: nesterov needs a momentum above 0 and no dampening; found "
     "momentum 0, dampening 0"},
    {IMAGES "  name: mlp\noptimizer: {name: sgd, groups: [{match: q, lr: 1}]}\n",
     "f.yaml:6:41: optimizer.groups[0].match: no name of the optimizer's 4 parameters fits 'q'; "
     "the "
     "first is '0.weight'"},
    {IMAGES "  name: mlp\ntrain: {init: tsr_add/tsr_mul.safetensors}\nparameters: [{match: "
            "tsr_add, sbp: B}]\n",
     "f.yaml:7:22: parameters[0].match: no variable's name fits 'tsr_add'; there are, for example, "
     "0.weight, 0.bias, 2.weight"},
    {IMAGES "  plugin: no.so\n",
     "f.yaml:4:1: model: 'function' is missing; legal is a text (numbers in quotes)"},
    {IMAGES "  plugin: 7\n  function: f\n",
     "f.yaml:5:11: model.plugin: found '7'; legal is a file name"},
};

static void test_errors(void **state)
{
    (void)state;
    assert_refused(errors, sizeof errors / sizeof *errors, 1);
}

static void test_dump(void **state)
{
    (void)state;
    tsri_experiment *e = parse(IMAGES NET "  parts: {a: [relu], b: [{layer: part, of: a}]}\n"),
                    *again;
    char *once = NULL, *twice = NULL;
    size_t size;
    FILE *f = open_memstream(&once, &size);
    assert_int_equal(tsri_experiment_dump(e, f), TSR_OK);
    fclose(f);
    assert_non_null(strstr(once, "  name: layers\n  layers:\n    - {layer: conv2d, in: 3, out: 4, "
                                 "kernel: 3, stride: [2, 2], padding: [1, 1], dilation: [1, 1], "
                                 "groups: 1, bias: true}\n"));
    assert_non_null(strstr(once, "    - {layer: residual, layers: [{layer: conv2d, in: 4, out: 4, "
                                 "kernel: 1, stride: [1, 1], padding: [0, 0], dilation: [1, 1], "
                                 "groups: 1, bias: true}, {layer: tanh}]}\n"));
    assert_non_null(strstr(once, "  parts:\n    a: {layers: [{layer: relu}]}\n"));
    again = parse(once);
    f = open_memstream(&twice, &size);
    assert_int_equal(tsri_experiment_dump(again, f), TSR_OK);
    fclose(f);
    assert_string_equal(once, twice);
    tsri_experiment_destroy(e);
    tsri_experiment_destroy(again);
    free(once);
    free(twice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),  cmocka_unit_test(test_values), cmocka_unit_test(test_table),
        cmocka_unit_test(test_errors), cmocka_unit_test(test_dump),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
