/* SPDX-License-Identifier: Apache-2.0 */
/* Modules, variables and the models: names, shapes, initial values, errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/optim.h>
#include <tessera/models.h>

#include "src/nn/module.h"
#include "src/graph/variable.h"
#include "tests/unit/data/mobilenet_v2_names.h"

#define NENTRIES ((int)(sizeof torch_entries / sizeof *torch_entries))

static void assert_error(const char *part)
{
    if (!strstr(tsr_last_error(), part))
        fail_msg("'%s' is not in: %s", part, tsr_last_error());
}

/* --- planning world: names and shapes --------------------------------------------------------- */
typedef struct fixture {
    tsr_world *world;
    const tsr_placement *p;
} fixture;

static int setup_virtual(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (!f || tsr_world_create_virtual(4, 1, &f->world) != TSR_OK)
        return -1;
    f->p = tsr_placement_parse(f->world, "cpu:[0,1,2,3]");
    *state = f;
    return f->p ? 0 : -1;
}

static int setup_real(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (!f || tsr_world_create(TSR_WORLD_OPTS(.threads = 1), &f->world) != TSR_OK)
        return -1;
    f->p = tsr_placement_parse(f->world, "cpu:[0]");
    *state = f;
    return f->p ? 0 : -1;
}

static int teardown(void **state)
{
    fixture *f = *state;
    tsr_world_destroy(f->world);
    free(f);
    return 0;
}

static tsr_status check_entry(tsr_variable *v, const char *name, void *arg)
{
    int *at = arg;
    assert_in_range(*at, 0, NENTRIES - 1);
    assert_string_equal(name, torch_entries[*at].name);
    tsr_dims dims = tsr_variable_dims(v);
    for (int i = 0; i < 4; i++)
        assert_int_equal(i < dims.ndim ? dims.d[i] : 0, torch_entries[*at].shape[i]);
    ++*at;
    return TSR_OK;
}

static void test_mobilenet_entries(void **state)
{
    fixture *f = *state;
    tsr_module *m =
        tsr_mobilenet_v2(f->world, f->p, TSR_B, TSR_MOBILENET_V2_OPTS(.num_classes = 10));
    assert_non_null(m);
    int n = 0;
    assert_int_equal(tsr_module_visit(m, check_entry, &n), TSR_OK);
    assert_int_equal(n, 262);
    assert_true(tsr_variable_trainable(tsr_module_find(m, "features.3.conv.1.1.bias")));
    assert_false(tsr_variable_trainable(tsr_module_find(m, "features.3.conv.1.1.running_var")));
    assert_null(tsr_module_find(m, "features.3.conv.1.1.nothing"));
    assert_null(tsr_module_find(m, "features.33.conv"));
    assert_null(tsr_module_find(m, "features.3"));
    tsr_module_destroy(m);
}

static void test_mobilenet_counts(void **state)
{
    fixture *f = *state;
    for (size_t i = 0; i < sizeof torch_counts / sizeof *torch_counts; i++) {
        tsr_module *m =
            tsr_mobilenet_v2(f->world, f->p, TSR_B,
                             TSR_MOBILENET_V2_OPTS(.num_classes = torch_counts[i].classes,
                                                   .width = torch_counts[i].width));
        assert_int_equal(tsr_module_count(m), torch_counts[i].count);
        tsr_module_destroy(m);
    }
}

/* Maps of 32 x 32 images after the stem, the second stage and all of them, by the strides. */
static void test_mobilenet_strides(void **state)
{
    fixture *f = *state;
    static const int64_t sides[][3] = {[TSR_MOBILENET_TORCHVISION] = {16, 8, 1},
                                       [TSR_MOBILENET_CIFAR] = {32, 32, 4},
                                       [TSR_MOBILENET_STEM1] = {32, 16, 2}};
    for (int v = 0; v < 3; v++) {
        tsr_module *m = tsr_mobilenet_v2(
            f->world, f->p, TSR_B, TSR_MOBILENET_V2_OPTS(.variant = (tsr_mobilenet_variant)v));
        const tsr_module *features = tsr_module_child(m, "features");
        tsr_graph *g = tsr_graph_create(f->world, NULL);
        tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4, 3, 32, 32), f->p, TSR_S(0));
        for (int i = 0; i < 19; i++) {
            x = tsr_apply(tsr_module_child_at(features, i), x);
            if (i == 0 || i == 2 || i == 18)
                assert_int_equal(tsr_tensor_dims(x).d[2], sides[v][i == 18 ? 2 : i / 2]);
        }
        tsr_graph_destroy(g);
        tsr_module_destroy(m);
    }
}

static tsr_status append_name(tsr_variable *v, const char *name, void *arg)
{
    char *text = arg;
    tsr_dims d = tsr_variable_dims(v);
    sprintf(text + strlen(text), "%s:%lld ", name, (long long)tsr_dims_count(d));
    return TSR_OK;
}

static void test_small_models(void **state)
{
    fixture *f = *state;
    char text[2048] = "";
    tsr_module *m = tsr_convnet(f->world, f->p, TSR_B, NULL);
    assert_int_equal(tsr_module_visit(m, append_name, text), TSR_OK);
    assert_string_equal(text, "layer1.0.weight:400 layer1.0.bias:16 layer1.1.weight:16 "
                              "layer1.1.bias:16 layer1.1.running_mean:16 layer1.1.running_var:16 "
                              "layer2.0.weight:12800 layer2.0.bias:32 layer2.1.weight:32 "
                              "layer2.1.bias:32 layer2.1.running_mean:32 layer2.1.running_var:32 "
                              "fc.weight:15680 fc.bias:10 ");
    text[0] = 0;
    m = tsr_mlp(f->world, f->p, TSR_S(0), TSR_MLP_OPTS(.inputs = 5, .hidden = 7, .layers = 3));
    assert_int_equal(tsr_module_visit(m, append_name, text), TSR_OK);
    assert_string_equal(text, "0.weight:35 0.bias:7 2.weight:49 2.bias:7 4.weight:70 4.bias:10 ");
    assert_int_equal(tsr_module_count(m), 178);
    assert_null(tsr_mlp(f->world, f->p, TSR_B, NULL));
    assert_error("inputs 0");
}

static void test_local_statistics(void **state)
{
    fixture *f = *state;
    tsr_module *m = tsr_convnet(f->world, f->p, TSR_B, TSR_CONVNET_OPTS(.bn = TSR_BN_LOCAL));
    tsr_variable *v = tsr_module_find(m, "layer1.1.running_var");
    assert_true(tsr_dims_equal(tsr_variable_dims(v), TSR_DIMS(4, 16)));
    assert_true(tsr_sbp_equal(tsr_variable_sbp(v), TSR_S(0)));
    assert_true(tsr_sbp_equal(tsr_variable_sbp(tsr_module_find(m, "layer1.1.weight")), TSR_B));
}

static void test_signatures(void **state)
{
    fixture *f = *state;
    const tsr_placement *grid = tsr_placement_parse(f->world, "cpu:[[0,1],[2,3]]");
    tsr_nn_opts o = {.placement = f->p, .sbp = TSR_S(1)};
    tsr_module *m = tsr_nn_linear(f->world, &o, 8, 4, true);
    assert_true(tsr_sbp_equal(tsr_variable_sbp(tsr_module_find(m, "weight")), TSR_S(1)));
    assert_true(tsr_sbp_equal(tsr_variable_sbp(tsr_module_find(m, "bias")), TSR_B));
    o = (tsr_nn_opts){.placement = grid, .sbp = TSR_B};
    m = tsr_nn_linear(f->world, &o, 8, 4, true);
    assert_int_equal(tsr_variable_sbp(tsr_module_find(m, "weight")).ndim, 2);
    o.sbp = TSR_S(0);
    assert_null(tsr_nn_linear(f->world, &o, 8, 4, true));
    assert_error("parameter 'weight': signature S(0) has 1 entry, but placement");
    o = (tsr_nn_opts){.placement = f->p, .sbp = TSR_P};
    assert_null(tsr_nn_linear(f->world, &o, 8, 4, true));
    assert_error("for shape (4,8); legal are B and S(i)");
}

static void test_module_errors(void **state)
{
    fixture *f = *state;
    tsr_nn_opts o = {.placement = f->p, .sbp = TSR_B};
    tsr_init zeros = {.kind = TSR_INIT_ZEROS};
    tsr_module *root = tsr_nn_sequential(f->world, &o);
    tsr_module *a = tsr_module_add(root, "a", tsr_nn_sequential(f->world, &o));
    assert_ptr_equal(tsr_module_child(root, "a"), a);
    assert_ptr_equal(tsr_module_child_at(root, 0), a);
    assert_null(tsr_module_child_at(root, 1));
    assert_non_null(tsr_module_param(a, "w", TSR_DIMS(2), TSR_AUTO, zeros));
    assert_null(tsr_module_param(a, "w", TSR_DIMS(2), TSR_AUTO, zeros));
    assert_error("module 'a' has a 'w' already");
    /* A module that misses a part can't be used, and says which part. */
    assert_int_equal(tsr_module_visit(root, append_name, (char[256]){""}), TSR_ERR_INVALID);
    assert_error("module 'a' has a 'w' already");

    tsr_module *b = tsr_nn_sequential(f->world, &o);
    assert_null(tsr_module_add(b, "x.y", tsr_nn_relu(f->world, &o)));
    assert_error("have no dots");
    assert_null(tsr_module_add(b, "\xff\xfe", tsr_nn_relu(f->world, &o)));
    assert_error("names are UTF-8");
    assert_null(tsr_module_param(b, "a\nb", TSR_DIMS(2), TSR_AUTO, zeros));
    assert_error("ends of lines");
    assert_null(tsr_module_add(b, "self", b));
    assert_error("its own ancestor");
    assert_null(tsr_module_add(b, "a", a));
    assert_error("has a parent already");
    assert_null(tsr_module_param(b, "w", TSR_DIMS(3), TSR_AUTO,
                                 (tsr_init){.kind = TSR_INIT_KAIMING_NORMAL}));
    assert_error("at least 2 axes");
    assert_null(tsr_module_param(b, "w", TSR_DIMS(-1), TSR_AUTO, zeros));
    assert_error("axis 0 is -1");

    tsr_module *nowhere = tsr_nn_sequential(f->world, NULL);
    assert_null(tsr_placement_parse(f->world, "cpu:[0,0]"));
    char text[512];
    snprintf(text, sizeof text, "%s", tsr_last_error());
    assert_null(tsr_module_param(nowhere, "w", TSR_DIMS(1), TSR_AUTO, zeros));
    assert_error("has no placement");
    assert_error(text);
    assert_null(tsr_mobilenet_v2(f->world, NULL, TSR_B, NULL));
    assert_error("has no placement");
    assert_null(tsr_nn_dropout(f->world, &o, 1.5));
    assert_error("1.5");
    assert_null(tsr_nn_conv2d(f->world, &o, 6, 8, 3, true, TSR_CONV2D_OPTS(.groups = 4)));
    assert_error("groups = 4");
}

static int freed;
static void count_free(void *arg)
{
    (void)arg;
    freed++;
}

/* Many children are found by name, and a name is there once among them. */
static void test_many_children(void **state)
{
    fixture *f = *state;
    enum { MANY = 3000 };
    char name[32];
    tsr_module *m = tsr_module_create(f->world, NULL, NULL, NULL, NULL), *child[MANY];
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "%d", i * 7);
        child[i] = tsr_module_create(f->world, NULL, NULL, NULL, NULL);
        assert_null(tsri_module_child(m, name));
        assert_ptr_equal(tsr_module_add(m, name, child[i]), child[i]);
        assert_ptr_equal(tsri_module_child(m, name), child[i]);
    }
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "%d", i * 7);
        assert_ptr_equal(tsri_module_child(m, name), child[i]);
        assert_ptr_equal(tsr_module_child_at(m, i), child[i]);
        snprintf(name, sizeof name, "%d", i * 7 + 1);
        assert_null(tsri_module_child(m, name));
    }
    assert_null(tsr_module_child_at(m, MANY));
    assert_null(tsr_module_add(m, "21", tsr_module_create(f->world, NULL, NULL, NULL, NULL)));
    assert_non_null(strstr(tsr_last_error(), "has a '21' already"));
    tsr_module_destroy(m);
}

static void test_ownership(void **state)
{
    fixture *f = *state;
    freed = 0;
    tsr_module *root = tsr_module_create(f->world, NULL, NULL, &freed, count_free);
    tsr_module_add(root, "a", tsr_module_create(f->world, NULL, NULL, &freed, count_free));
    assert_null(
        tsr_module_add(root, "a", tsr_module_create(f->world, NULL, NULL, &freed, count_free)));
    assert_int_equal(freed, 1);
    assert_null(
        tsr_module_add(NULL, "a", tsr_module_create(f->world, NULL, NULL, &freed, count_free)));
    assert_int_equal(freed, 2);
    tsr_module_destroy(root);
    assert_int_equal(freed, 4);
    tsr_world *w;
    assert_int_equal(tsr_world_create_virtual(1, 0, &w), TSR_OK);
    assert_non_null(tsr_module_create(w, NULL, NULL, &freed, count_free));
    tsr_world_destroy(w);
    assert_int_equal(freed, 5);
}

/* Whichever allocation fails, building a model fails, says so and leaves nothing behind. */
static void test_no_memory(void **state)
{
    fixture *f = *state;
    tsri_mem *mem = &f->world->mem;
    int n = 1;
    for (;; n++) {
        const tsri_owned *newest = f->world->owned;
        tsri_error_clear();
        mem->fail_countdown = n;
        tsr_module *m = tsr_convnet(f->world, f->p, TSR_B, NULL);
        tsr_optimizer *o = m ? tsr_adam(m, NULL) : NULL;
        bool failed = mem->fail_countdown == 0;
        mem->fail_countdown = 0;
        assert_true(failed == !o);
        if (failed)
            assert_error("no memory");
        tsr_optimizer_destroy(o);
        tsr_module_destroy(m);
        assert_ptr_equal(f->world->owned, newest);
        if (!failed)
            break;
    }
    assert_true(n > 50);
}

/* --- applying --------------------------------------------------------------------------------- */
static const char *seen_scope;
static tsr_tensor *scope_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)m;
    (void)arg;
    seen_scope = x->graph->now.scope;
    return x;
}

static tsr_tensor *no_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)m;
    if (arg)
        tsri_graph_fail(x->graph, (tsri_loc){"own.c", 7}, TSR_ERR_SHAPE, "its own reason");
    return NULL;
}

/* A forward function that returns NULL says why, or it is said that it does not. */
static void test_no_result(void **state)
{
    fixture *f = *state;
    tsr_nn_opts o = {.placement = f->p, .sbp = TSR_B};
    for (int says = 0; says < 2; says++) {
        tsr_graph *g = tsr_graph_create(f->world, NULL);
        tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4), f->p, TSR_B);
        tsr_module *m = tsr_module_create(f->world, &o, no_forward, says ? f : NULL, NULL);
        assert_false(tsr_tensor_ok(tsr_apply(m, x)));
        assert_int_equal(tsr_graph_status(g), says ? TSR_ERR_SHAPE : TSR_ERR_INVALID);
        assert_error(says ? "own.c:7: its own reason"
                          : "apply: the forward function returned NULL");
        assert_string_equal(g->now.scope, "");
    }
}

static void test_apply(void **state)
{
    fixture *f = *state;
    tsr_nn_opts o = {.placement = f->p, .sbp = TSR_B};
    tsr_module *root = tsr_nn_sequential(f->world, &o);
    tsr_module *a = tsr_module_add(root, "a", tsr_nn_sequential(f->world, &o));
    tsr_module_add(a, "b", tsr_module_create(f->world, &o, scope_forward, NULL, NULL));
    tsr_variable *v = tsr_module_param(a, "w", TSR_DIMS(2, 3), TSR_AUTO, (tsr_init){0});
    tsr_graph *g = tsr_graph_create(f->world, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4), f->p, TSR_B);
    assert_ptr_equal(tsr_apply(root, x), x);
    assert_string_equal(seen_scope, "a.b");
    assert_string_equal(g->now.scope, "");
    tsr_tensor *w = tsr_use(a, "w", x);
    assert_ptr_equal(w->op->variable, v);
    assert_string_equal(w->op->name, "a.w");
    assert_ptr_equal(tsr_use(a, "w", x), w);
    assert_null(tsr_apply(root, NULL));
    assert_null(tsr_use(a, "w", NULL));
    assert_false(tsr_tensor_ok(tsr_use(a, "v", x)));
    assert_int_equal(tsr_graph_status(g), TSR_ERR_INVALID);
    assert_error("test_module.c:");
    assert_error("no variable 'v'; it has w");
    g = tsr_graph_create(f->world, NULL);
    x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4), f->p, TSR_B);
    assert_false(tsr_tensor_ok(tsr_apply(NULL, x)));
    assert_int_equal(tsr_graph_status(g), TSR_ERR_INVALID);
    assert_error("the module is NULL");
    /* Why it is NULL is told where that is known, and only there. */
    static const char *const whys[] = {"", "x", "no memory for it"};
    for (int i = 0; i < 3; i++) {
        char want[64];
        snprintf(want, sizeof want, "apply: the module is NULL%s%s", i ? ": " : "", whys[i]);
        g = tsr_graph_create(f->world, NULL);
        x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4), f->p, TSR_B);
        tsri_fail(TSR_ERR_INVALID, "an earlier error");
        tsri_error_clear();
        if (i)
            tsri_fail(TSR_ERR_INVALID, "%s", whys[i]);
        assert_false(tsr_tensor_ok(tsr_apply(NULL, x)));
        const char *said = strstr(tsr_last_error(), "apply: ");
        assert_non_null(said);
        assert_string_equal(said, want);
        tsr_graph_destroy(g);
    }
    /* A name that is mistyped: which child is not there, and the nearest that is. */
    static const struct {
        bool of_a;
        const char *name, *said;
    } mistyped[] = {
        {false, "aa", "apply: the module is NULL: the model has no child 'aa'; did you mean 'a'?"},
        {false, "encoder", "apply: the module is NULL: the model has no child 'encoder'; it has a"},
        {true, "c1", "apply: the module is NULL: module 'a' has no child 'c1'; it has b"},
    };
    for (size_t i = 0; i < sizeof mistyped / sizeof *mistyped; i++) {
        g = tsr_graph_create(f->world, NULL);
        x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4), f->p, TSR_B);
        tsri_error_clear();
        tsr_module *child = tsr_module_child(mistyped[i].of_a ? a : root, mistyped[i].name);
        assert_null(child);
        assert_false(tsr_tensor_ok(tsr_apply(child, x)));
        const char *said = strstr(tsr_last_error(), "apply: ");
        assert_non_null(said);
        assert_string_equal(said, mistyped[i].said);
        tsr_graph_destroy(g);
    }
}

/* --- one real rank: initial values ------------------------------------------------------------ */
typedef struct moments {
    double mean, std, low, high;
} moments;

static moments measure(tsr_variable *v)
{
    int64_t n = tsr_dims_count(tsr_variable_dims(v));
    float *x = malloc((size_t)n * sizeof *x);
    assert_int_equal(tsr_variable_get(v, x, (size_t)n * sizeof *x), TSR_OK);
    moments m = {.low = INFINITY, .high = -INFINITY};
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
        squares += (double)x[i] * x[i];
        m.low = fmin(m.low, x[i]);
        m.high = fmax(m.high, x[i]);
    }
    m.mean = sum / (double)n;
    m.std = sqrt(squares / (double)n - m.mean * m.mean);
    free(x);
    return m;
}

/* Against bounds and deviations in numbers: torch.nn.Linear(400, 500), Conv2d(32, 64, 5, groups=2).
 */
static void check_uniform(tsr_variable *v, double bound)
{
    moments m = measure(v);
    double n = (double)tsr_dims_count(tsr_variable_dims(v)), std = bound / sqrt(3);
    assert_true(fabs(m.mean) < 5 * std / sqrt(n));
    assert_true(fabs(m.std / std - 1) < 5 / sqrt(n));
    assert_true(m.low >= -bound && m.high <= bound);
    assert_true(m.high - m.low > 2 * bound * (1 - 20 / n));
}

static void check_normal(tsr_variable *v, double std)
{
    moments m = measure(v);
    double n = (double)tsr_dims_count(tsr_variable_dims(v));
    assert_true(fabs(m.mean) < 5 * std / sqrt(n));
    assert_true(fabs(m.std / std - 1) < 5 / sqrt(n));
    assert_true(m.high > 3 * std && m.high < 7 * std);
}

static void test_layer_init(void **state)
{
    fixture *f = *state;
    tsr_nn_opts o = {.placement = f->p, .sbp = TSR_B, .seed = 3};
    tsr_module *m = tsr_nn_linear(f->world, &o, 400, 500, true);
    check_uniform(tsr_module_find(m, "weight"), 0.05);
    check_uniform(tsr_module_find(m, "bias"), 0.05);
    m = tsr_nn_conv2d(f->world, &o, 32, 64, 5, true, TSR_CONV2D_OPTS(.groups = 2));
    check_uniform(tsr_module_find(m, "weight"), 0.05);
    check_uniform(tsr_module_find(m, "bias"), 0.05);
    m = tsr_nn_batch_norm(f->world, &o, 33, NULL);
    moments one = measure(tsr_module_find(m, "running_var"));
    assert_true(one.low == 1 && one.high == 1);
    one = measure(tsr_module_find(m, "running_mean"));
    assert_true(one.low == 0 && one.high == 0);
}

static void test_init_kinds(void **state)
{
    fixture *f = *state;
    tsr_nn_opts o = {.placement = f->p, .sbp = TSR_B};
    tsr_module *m = tsr_nn_sequential(f->world, &o);
    tsr_dims d = TSR_DIMS(50, 80, 3, 3); /* fan_in 720, fan_out 450 */
    check_normal(tsr_module_param(m, "a", d, TSR_AUTO, (tsr_init){.kind = TSR_INIT_KAIMING_NORMAL}),
                 0.05270462766947299); /* sqrt(2/720) */
    check_normal(tsr_module_param(m, "b", d, TSR_AUTO,
                                  (tsr_init){.kind = TSR_INIT_KAIMING_NORMAL, .fan_out = true}),
                 0.06666666666666667); /* sqrt(2/450) */
    check_uniform(
        tsr_module_param(m, "c", d, TSR_AUTO, (tsr_init){.kind = TSR_INIT_XAVIER_UNIFORM, .a = 2}),
        0.14322297480788657); /* 2 sqrt(6/1170) */
    check_normal(tsr_module_param(m, "d", d, TSR_AUTO, (tsr_init){.kind = TSR_INIT_XAVIER_NORMAL}),
                 0.04134491153475029); /* sqrt(2/1170) */
    moments c = measure(
        tsr_module_param(m, "e", d, TSR_AUTO, (tsr_init){.kind = TSR_INIT_CONSTANT, .a = 0.75}));
    assert_true(c.low == 0.75 && c.high == 0.75);
    c = measure(tsr_module_param(m, "f", d, TSR_AUTO,
                                 (tsr_init){.kind = TSR_INIT_UNIFORM, .a = 2, .b = 3}));
    assert_true(c.low >= 2 && c.high < 3 && fabs(c.mean - 2.5) < 0.01);
}

static void test_set_get(void **state)
{
    fixture *f = *state;
    tsr_nn_opts o = {.placement = f->p};
    tsr_module *m = tsr_nn_linear(f->world, &o, 2, 3, false);
    tsr_variable *v = tsr_module_find(m, "weight");
    float x[6] = {1, 2, 3, 4, 5, 6}, y[6] = {0};
    assert_int_equal(tsr_variable_set(v, x, sizeof x), TSR_OK);
    assert_int_equal(tsr_variable_get(v, y, sizeof y), TSR_OK);
    assert_memory_equal(x, y, sizeof x);
    assert_int_equal(tsr_variable_set(v, x, 20), TSR_ERR_SHAPE);
    assert_error("'weight': 20 bytes given; its 6 elements of f32 are 24");
}

/* --- several ranks: one value, whatever the signature ----------------------------------------- */
static tsr_status get_both(tsr_world *w, const tsr_nn_opts *nn, tsr_init init, int n, float *drawn,
                           float *set)
{
    tsr_module *m = tsr_nn_sequential(w, nn);
    tsr_module *child = tsr_module_add(m, "child", tsr_nn_sequential(w, nn));
    tsr_variable *v = tsr_module_param(child, "w", TSR_DIMS(7, 5, 3), TSR_AUTO, init);
    if (!v)
        return TSR_ERR_INVALID;
    size_t bytes = (size_t)n * sizeof(float);
    TSRI_TRY(tsr_variable_get(v, drawn, bytes));
    for (int i = 0; i < n; i++)
        set[i] = (float)i;
    TSRI_TRY(tsr_variable_set(v, set, bytes));
    memset(set, 0, bytes);
    TSRI_TRY(tsr_variable_get(v, set, bytes));
    tsr_module_destroy(m);
    return TSR_OK;
}

static tsr_status check_signatures(tsr_world *w, void *arg)
{
    enum { N = 105 };
    const float *expected = arg;
    static const struct {
        const char *placement;
        tsr_sbp sbp;
    } cases[] = {
        {"cpu", {1, {{TSR_SBP_BROADCAST, 0}}}},
        {"cpu", {1, {{TSR_SBP_SPLIT, 0}}}},
        {"cpu", {1, {{TSR_SBP_SPLIT, 1}}}},
        {"cpu", {1, {{TSR_SBP_SPLIT, 2}}}},
        {"cpu:[2,0]", {1, {{TSR_SBP_SPLIT, 1}}}},
        {"cpu:[3]", {1, {{TSR_SBP_BROADCAST, 0}}}},
        {"cpu:[[0,1],[2,3]]", {2, {{TSR_SBP_SPLIT, 0}, {TSR_SBP_SPLIT, 1}}}},
        {"cpu:[[3,1],[2,0]]", {2, {{TSR_SBP_SPLIT, 2}, {TSR_SBP_SPLIT, 2}}}},
        {"cpu:[[0,1],[2,3]]", {2, {{TSR_SBP_BROADCAST, 0}, {TSR_SBP_SPLIT, 1}}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tsr_nn_opts nn = {.placement = tsr_placement_parse(w, cases[i].placement),
                          .sbp = cases[i].sbp,
                          .seed = 11};
        float drawn[N] = {0}, set[N];
        TSRI_TRY(get_both(w, &nn, (tsr_init){.kind = TSR_INIT_NORMAL, .b = 1}, N, drawn, set));
        for (int j = 0; j < N; j++)
            if (drawn[j] != expected[j] || set[j] != (float)j)
                return tsri_fail(TSR_ERR_INTERNAL, "case %d, element %d: %g, expected %g; %g",
                                 (int)i, j, (double)drawn[j], (double)expected[j], (double)set[j]);
    }
    return TSR_OK;
}

static void test_same_for_every_signature(void **state)
{
    fixture *f = *state;
    float expected[105], set[105];
    tsr_nn_opts nn = {.placement = f->p, .sbp = TSR_B, .seed = 11};
    assert_int_equal(
        get_both(f->world, &nn, (tsr_init){.kind = TSR_INIT_NORMAL, .b = 1}, 105, expected, set),
        TSR_OK);
    assert_true(expected[0] != expected[1]);
    if (tsr_spawn(4, check_signatures, expected) != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

/* Values pass the exchange in several pieces. */
static tsr_status check_large(tsr_world *w, void *arg)
{
    (void)arg;
    enum { ROWS = 301, COLUMNS = 513 };
    tsr_nn_opts nn = {.placement = tsr_placement_parse(w, "cpu"), .sbp = TSR_S(1)};
    tsr_module *m = tsr_nn_linear(w, &nn, COLUMNS, ROWS, false);
    size_t bytes = (size_t)ROWS * COLUMNS * sizeof(float);
    float *x = malloc(bytes);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        x[i] = (float)i;
    tsr_status status = tsr_variable_set(tsr_module_find(m, "weight"), x, bytes);
    memset(x, 0, bytes);
    if (status == TSR_OK)
        status = tsr_variable_get(tsr_module_find(m, "weight"), x, bytes);
    for (int i = 0; i < ROWS * COLUMNS && status == TSR_OK; i++)
        if (x[i] != (float)i)
            status = tsri_fail(TSR_ERR_INTERNAL, "element %d is %g", i, (double)x[i]);
    free(x);
    return status;
}

static void test_get_large(void **state)
{
    (void)state;
    if (tsr_spawn(2, check_large, NULL) != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

int main(void)
{
#define VIRTUAL(fn) cmocka_unit_test_setup_teardown(fn, setup_virtual, teardown)
#define REAL(fn) cmocka_unit_test_setup_teardown(fn, setup_real, teardown)
    const struct CMUnitTest tests[] = {
        VIRTUAL(test_mobilenet_entries),
        VIRTUAL(test_mobilenet_counts),
        VIRTUAL(test_mobilenet_strides),
        VIRTUAL(test_small_models),
        VIRTUAL(test_local_statistics),
        VIRTUAL(test_signatures),
        VIRTUAL(test_module_errors),
        VIRTUAL(test_many_children),
        VIRTUAL(test_ownership),
        VIRTUAL(test_apply),
        VIRTUAL(test_no_result),
        VIRTUAL(test_no_memory),
        REAL(test_layer_init),
        REAL(test_init_kinds),
        REAL(test_set_get),
        REAL(test_same_for_every_signature),
        cmocka_unit_test(test_get_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
