/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong programs, and what they are told: each text must hold what a stranger needs to mend it:
 * what failed, what was found, what would be legal, and the place in this file. */
#include "rank.h"

/* The words, in any order, are in the last error. */
static void says_all(const char *file, int line, const char *const *words)
{
    const char *text = tsr_last_error();
    for (; *words; words++)
        if (!strstr(text, *words)) {
            fprintf(stderr, "%s:%d: no '%s' in: %s\n", file, line, *words, text);
            fail();
        }
}
#define SAYS(...) says_all(__FILE__, __LINE__, (const char *const[]){__VA_ARGS__, NULL})

/* Keeps "test_errors.c:LINE: " of the next line. */
static char place[64];
#define MARK snprintf(place, sizeof place, "test_errors.c:%d: ", __LINE__ + 1)

typedef struct fixture {
    tsr_world *w;
    const tsr_placement *p;
    tsr_graph *g;
    tsr_tensor *x, *y; /* f32 (4,5), (5,6) */
} fixture;

static int setup(void **state)
{
    static fixture f;
    f = (fixture){0};
    *state = &f;
    if (tsr_world_create(NULL, &f.w) != TSR_OK)
        return -1;
    f.p = tsr_placement_parse(f.w, "cpu");
    f.g = tsr_graph_create(f.w, TSR_GRAPH_OPTS(.training = true));
    f.x = tsr_input(f.g, "x", TSR_F32, TSR_DIMS(4, 5), f.p, TSR_AUTO);
    f.y = tsr_input(f.g, "y", TSR_F32, TSR_DIMS(5, 6), f.p, TSR_AUTO);
    return tsr_tensor_ok(f.y) ? 0 : -1;
}

static int teardown(void **state)
{
    fixture *f = *state;
    tsr_world_destroy(f->w);
    return 0;
}

/* Compiles a graph that must not; the last error is then the first of the declaration. */
static void compile_fails(fixture *f, tsr_status want)
{
    tsr_plan *plan = NULL;
    assert_int_equal(tsr_compile(f->g, &plan), want);
    assert_null(plan);
    assert_int_equal(tsr_graph_status(f->g), want);
}

/* Compilers refuse an option without a name; what came around that is refused when it is read. */
static void test_options_without_names(void **state)
{
    fixture *f = *state;
    const tsr_by_name unnamed = (tsr_by_name)(const void *)f;
    tsr_module *net = tsr_mlp(f->w, f->p, TSR_B, TSR_MLP_OPTS(.inputs = 4));
    assert_null(tsr_sgd(net, TSR_SGD_OPTS(unnamed)));
    SAYS("tsr_sgd: an option has no name; write it as .name = value");
    assert_null(tsr_sgd(net, TSR_SGD_OPTS(.schedule = TSR_STEP_LR(unnamed, .step_size = 3))));
    SAYS("schedule: TSR_SCHEDULE_STEP has a number without a name");
}

/* --- declaring -------------------------------------------------------------------------------- */
static void test_shapes(void **state)
{
    fixture *f = *state;
    MARK;
    tsr_tensor *bad = tsr_matmul(f->y, f->x);
    assert_false(tsr_tensor_ok(bad));
    assert_int_equal(tsr_tensor_dtype(bad), TSR_DTYPE_NONE);
    /* Later calls fail quietly, and the first error stays. */
    tsr_output(f->g, "z", tsr_relu(tsr_add(bad, f->x)), f->p, TSR_B);
    assert_false(tsr_tensor_ok(tsr_matmul(f->x, f->x)));
    compile_fails(f, TSR_ERR_SHAPE);
    SAYS(place, "matmul", "(5,6)", "(4,5)");
}

static void test_broadcasting(void **state)
{
    fixture *f = *state;
    MARK;
    tsr_add(f->x, f->y);
    compile_fails(f, TSR_ERR_SHAPE);
    SAYS(place, "add", "(4,5)", "(5,6)");
}

static void test_dtypes(void **state)
{
    fixture *f = *state;
    MARK;
    tsr_mul(f->x, tsr_cast(f->x, TSR_F64));
    compile_fails(f, TSR_ERR_DTYPE);
    SAYS(place, "mul", "f32", "f64");
}

static void test_axes_and_sizes(void **state)
{
    fixture *f = *state;
    MARK;
    tsr_softmax(f->x, 2);
    compile_fails(f, TSR_ERR_SHAPE);
    SAYS(place, "softmax", "2", "(4,5)");
}

static void test_reshape(void **state)
{
    fixture *f = *state;
    MARK;
    tsr_reshape(f->x, TSR_DIMS(3, -1));
    compile_fails(f, TSR_ERR_SHAPE);
    SAYS(place, "reshape", "(4,5)", "(3,-1)");
}

static void test_signature_axis(void **state)
{
    fixture *f = *state;
    MARK;
    tsr_to_global(f->x, f->p, TSR_S(2));
    compile_fails(f, TSR_ERR_SBP);
    SAYS(place, "to_global", "S(2)", "(4,5)", "legal");
}

/* Reductions of collectives for per-rank buffers alone. */
static void test_signature_reduction(void **state)
{
    fixture *f = *state;
    MARK;
    tsr_to_global(f->x, f->p, ((tsr_sbp){1, {{TSR_SBP_PARTIAL, TSR_REDUCE_PRODUCT}}}));
    compile_fails(f, TSR_ERR_SBP);
    SAYS(place, "to_global", "P of reduction 3", "legal are P(sum), P(max) and P(min)");
}

static void test_signature_dimensions(void **state)
{
    fixture *f = *state;
    tsr_sbp two;
    assert_int_equal(tsr_sbp_parse("(S(0),B)", &two), TSR_OK);
    MARK;
    tsr_output(f->g, "z", f->x, f->p, two);
    compile_fails(f, TSR_ERR_SBP);
    SAYS(place, "(S(0),B)", "cpu:[0]", "2 entries", "1 dimension");
}

static void test_signature_text(void **state)
{
    (void)state;
    tsr_sbp sbp = TSR_B;
    assert_int_equal(tsr_sbp_parse("S(0", &sbp), TSR_ERR_FORMAT);
    SAYS("S(0", "4");
    assert_int_equal(tsr_sbp_parse("Q", &sbp), TSR_ERR_FORMAT);
    SAYS("Q", "1", "S(", "B", "P");
    assert_int_equal(tsr_sbp_parse("P(avg)", &sbp), TSR_ERR_FORMAT);
    SAYS("P(avg)", "sum", "max", "min");
    assert_true(tsr_sbp_equal(sbp, TSR_B)); /* written only on success */
}

/* What is wrong with a placement comes out where it is used. */
static void test_bad_placement(void **state)
{
    fixture *f = *state;
    static const char *const bad[][3] = {
        {"cpu:[0,0]", "0", "twice"},    {"cpu:[1]", "1", "rank"},
        {"tpu:[0]", "tpu", "cpu"},      {"cpu:[[0],[]]", "cpu:[", "column"},
        {"cpu:[0", "cpu:[0", "column"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_null(tsr_placement_parse(f->w, bad[i][0]));
        SAYS(bad[i][0], bad[i][1], bad[i][2]);
    }
    const tsr_placement *p = tsr_placement_parse(f->w, "cpu:[0,5]");
    assert_null(p);
    MARK;
    tsr_input(f->g, "z", TSR_F32, TSR_DIMS(2), p, TSR_B);
    compile_fails(f, TSR_ERR_PLACEMENT);
    SAYS(place, "'z'", "cpu:[0,5]", "5");
}

static void test_two_placements(void **state)
{
    (void)state;
    fixture f = {0};
    assert_int_equal(tsr_world_create_virtual(2, 0, &f.w), TSR_OK);
    f.g = tsr_graph_create(f.w, NULL);
    const tsr_placement *a = tsr_placement_parse(f.w, "cpu:[0]");
    const tsr_placement *b = tsr_placement_parse(f.w, "cpu:[1]");
    tsr_tensor *x = tsr_input(f.g, "x", TSR_F32, TSR_DIMS(4), a, TSR_B);
    tsr_tensor *y = tsr_input(f.g, "y", TSR_F32, TSR_DIMS(4), b, TSR_B);
    MARK;
    tsr_add(x, y);
    tsr_plan *plan;
    assert_int_equal(tsr_compile(f.g, &plan), TSR_ERR_PLACEMENT);
    SAYS(place, "add", "cpu:[0]", "cpu:[1]", "tsr_to_global");
    tsr_world_destroy(f.w);
}

static void test_names(void **state)
{
    fixture *f = *state;
    char first[64];
    MARK;
    tsr_output(f->g, "z", f->x, f->p, TSR_B);
    snprintf(first, sizeof first, "%.*s", (int)strlen(place) - 2, place);
    MARK;
    tsr_output(f->g, "z", f->y, f->p, TSR_B);
    compile_fails(f, TSR_ERR_INVALID);
    SAYS(place, "'z'", first);
}

static void test_nothing_to_compile(void **state)
{
    fixture *f = *state;
    tsr_plan *plan;
    f->g = tsr_graph_create(f->w, NULL);
    assert_int_equal(tsr_compile(f->g, &plan), TSR_ERR_STATE);
    SAYS("tsr_output");
    assert_int_equal(tsr_compile(NULL, &plan), TSR_ERR_INVALID);
    SAYS("no graph");
    assert_null(tsr_graph_create(NULL, NULL));
    SAYS("no world");
}

static void test_two_graphs(void **state)
{
    fixture *f = *state;
    tsr_graph *other = tsr_graph_create(f->w, NULL);
    tsr_tensor *z = tsr_input(other, "z", TSR_F32, TSR_DIMS(4, 5), f->p, TSR_B);
    MARK;
    tsr_add(f->x, z);
    compile_fails(f, TSR_ERR_INVALID);
    SAYS(place, "add", "another graph");
}

/* --- modules and optimizers ------------------------------------------------------------------- */
static void test_module_arguments(void **state)
{
    fixture *f = *state;
    assert_null(tsr_mlp(f->w, f->p, TSR_B, NULL)); /* inputs are needed */
    SAYS("tsr_mlp", "inputs 0", ".inputs has no default");
    assert_null(tsr_mobilenet_v2(f->w, f->p, TSR_B, TSR_MOBILENET_V2_OPTS(.num_classes = -3)));
    SAYS("tsr_mobilenet_v2", "num_classes -3", "at least one class");
    assert_null(tsr_mobilenet_v2(f->w, f->p, TSR_B,
                                 TSR_MOBILENET_V2_OPTS(.variant = (tsr_mobilenet_variant)3)));
    SAYS("tsr_mobilenet_v2", "variant 3", "tsr_mobilenet_variant");
    tsr_nn_opts nn = {.placement = f->p, .sbp = TSR_B};
    assert_null(tsr_nn_linear(f->w, &nn, 0, 3, true));
    SAYS("linear", "0");
    /* A module that isn't there is told where it is applied. */
    MARK;
    tsr_apply(NULL, f->x);
    assert_int_not_equal(tsr_graph_status(f->g), TSR_OK);
    SAYS(place, "linear");
}

static void test_wrong_input(void **state)
{
    fixture *f = *state;
    tsr_module *net = tsr_mlp(f->w, f->p, TSR_B, TSR_MLP_OPTS(.inputs = 7));
    tsr_apply(net, f->x);
    compile_fails(f, TSR_ERR_SHAPE);
    SAYS("linear", "0: ", "(4,5)", "(128,7)"); /* "0": the layer's name */
}

static void test_other_world(void **state)
{
    fixture *f = *state;
    tsr_world *other;
    assert_int_equal(tsr_world_create_virtual(1, 0, &other), TSR_OK);
    tsr_module *net =
        tsr_mlp(other, tsr_placement_parse(other, "cpu"), TSR_B, TSR_MLP_OPTS(.inputs = 5));
    assert_non_null(net);
    MARK;
    tsr_apply(net, f->x);
    compile_fails(f, TSR_ERR_INVALID);
    SAYS(place, "another world");
    tsr_world_destroy(other);
}

static void test_optimizer_arguments(void **state)
{
    fixture *f = *state;
    tsr_module *net = tsr_mlp(f->w, f->p, TSR_B, TSR_MLP_OPTS(.inputs = 5));
    tsr_nn_opts nn = {.placement = f->p};
    assert_null(tsr_sgd(net, TSR_SGD_OPTS(.lr = -0.5)));
    SAYS("tsr_sgd", "lr", "-0.5");
    assert_null(tsr_sgd(net, TSR_SGD_OPTS(.nesterov = true)));
    SAYS("nesterov", "momentum");
    assert_null(tsr_adam(net, TSR_ADAM_OPTS(.beta2 = 1)));
    SAYS("tsr_adam", "beta2", "1", "[0, 1)");
    assert_null(tsr_adamw(net, TSR_ADAM_OPTS(.schedule = {.kind = TSR_SCHEDULE_COSINE})));
    SAYS("tsr_adamw", "COSINE", "steps");
    assert_null(tsr_sgd(tsr_nn_relu(f->w, &nn), NULL));
    SAYS("no parameters");
    MARK;
    tsr_minimize(tsr_sgd(NULL, NULL), f->x);
    compile_fails(f, TSR_ERR_INVALID);
    SAYS(place, "minimize", "tsr_sgd: the module is NULL");
}

static void minimize_fails(fixture *f, tsr_status want, const char *word, int kind)
{
    tsr_module *net = tsr_mlp(f->w, f->p, TSR_B, TSR_MLP_OPTS(.inputs = 5));
    tsr_optimizer *opt = tsr_sgd(net, NULL);
    tsr_tensor *y = tsr_apply(net, f->x), *loss = tsr_mean(y, TSR_ALL_AXES, false);
    if (kind == 0) {
        MARK;
        tsr_minimize(opt, y);
    } else if (kind == 1) {
        MARK;
        tsr_minimize(opt, tsr_mean(f->x, TSR_ALL_AXES, false));
    } else {
        tsr_minimize(opt, loss);
        MARK;
        tsr_minimize(opt, loss);
    }
    compile_fails(f, want);
    SAYS(place, "minimize", word);
}

static void test_minimize_tensor(void **state)
{
    minimize_fails(*state, TSR_ERR_SHAPE, "(4,10)", 0);
}

static void test_minimize_other(void **state)
{
    minimize_fails(*state, TSR_ERR_STATE, "none of the optimizer's 4 parameters", 1);
}

static void test_minimize_twice(void **state)
{
    minimize_fails(*state, TSR_ERR_STATE, "already", 2);
}

/* Graphs and plans outlive modules and optimizers, but are of no use any more. */
static void test_destroyed_module(void **state)
{
    fixture *f = *state;
    tsr_module *net = tsr_mlp(f->w, f->p, TSR_B, TSR_MLP_OPTS(.inputs = 5));
    tsr_output(f->g, "z", tsr_apply(net, f->x), f->p, TSR_B);
    const float data[20] = {0};
    tsr_plan *plan, *again;
    assert_int_equal(tsr_compile(f->g, &plan), TSR_OK);
    assert_int_equal(tsr_feed(plan, "x", data, sizeof data), TSR_OK);
    assert_int_equal(tsr_run(plan), TSR_OK);
    tsr_module_destroy(net);
    assert_int_equal(tsr_run(plan), TSR_ERR_STATE);
    SAYS("tsr_run", "0.weight", "module", "destroyed");
    assert_int_equal(tsr_compile(f->g, &again), TSR_ERR_STATE);
    SAYS("0.weight", "module", "destroyed");
}

/* --- running ---------------------------------------------------------------------------------- */
static void test_ports(void **state)
{
    fixture *f = *state;
    float data[30] = {0};
    double value;
    tsr_plan *plan;
    tsr_output(f->g, "z", f->x, f->p, TSR_B);
    assert_int_equal(tsr_compile(f->g, &plan), TSR_OK);
    assert_int_equal(tsr_feed(plan, "images", data, 80), TSR_ERR_INVALID);
    SAYS("feed", "'images'", "'x'", "'y'");
    assert_int_equal(tsr_feed(plan, "x", data, 79), TSR_ERR_SHAPE);
    SAYS("feed", "'x'", "80", "79", "f32");
    assert_int_equal(tsr_feed_shard(plan, "y", data, 80), TSR_ERR_SHAPE);
    SAYS("feed_shard", "'y'", "120", "80");
    assert_int_equal(tsr_feed(plan, "x", NULL, 80), TSR_ERR_INVALID);
    SAYS("'x'", "no data");
    assert_int_equal(tsr_fetch(plan, "x", data, 80), TSR_ERR_INVALID);
    SAYS("fetch", "'x'", "'z'");
    assert_int_equal(tsr_fetch(plan, "z", data, 120), TSR_ERR_SHAPE);
    SAYS("'z'", "80", "120");
    assert_int_equal(tsr_fetch(plan, "z", NULL, 80), TSR_ERR_INVALID);
    SAYS("fetch", "'z'", "no room");
    assert_int_equal(tsr_fetch_scalar(plan, "z", NULL), TSR_ERR_INVALID);
    SAYS("fetch_scalar", "'z'", "no room");
    assert_int_equal(tsr_fetch_scalar(plan, "z", &value), TSR_ERR_SHAPE);
    SAYS("'z'", "scalar");
    assert_int_equal(tsr_run(NULL), TSR_ERR_INVALID);
    SAYS("no plan");
    tsr_plan_info info = {0};
    assert_int_equal(tsr_plan_get_info(plan, &info), TSR_ERR_INVALID);
    SAYS("size");
    assert_int_equal(tsr_feed(plan, "x", data, 80), TSR_OK);
    assert_int_equal(tsr_run(plan), TSR_OK); /* none of it did harm */
}

static void test_eval_of_input(void **state)
{
    fixture *f = *state;
    float data[20];
    assert_int_not_equal(tsr_eval(tsr_relu(f->x), data, sizeof data), TSR_OK);
    SAYS("'x'", "eval");
    assert_int_not_equal(tsr_eval(NULL, data, sizeof data), TSR_OK);
    SAYS("eval");
}

static void test_virtual_data(void **state)
{
    fixture *f = *state;
    tsr_world_destroy(f->w);
    assert_int_equal(tsr_world_create_virtual(2, 0, &f->w), TSR_OK);
    float data[4];
    const tsr_placement *p = tsr_placement_parse(f->w, "cpu");
    tsr_module *net = tsr_mlp(f->w, p, TSR_B, TSR_MLP_OPTS(.inputs = 2, .layers = 1));
    tsr_graph *g = tsr_graph_create(f->w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(2, 2), p, TSR_S(0));
    tsr_output(g, "y", x, p, TSR_B);
    tsr_plan *plan;
    assert_int_equal(tsr_compile(g, &plan), TSR_OK);
    assert_int_equal(tsr_feed(plan, "x", data, sizeof data), TSR_ERR_STATE);
    SAYS("feed", "virtual world");
    assert_int_equal(tsr_run(plan), TSR_ERR_STATE);
    SAYS("tsr_run", "virtual world");
    assert_int_equal(tsr_fetch(plan, "y", data, sizeof data), TSR_ERR_STATE);
    SAYS("fetch", "virtual world");
    assert_int_equal(tsr_variable_get(tsr_module_find(net, "0.bias"), data, 40), TSR_ERR_STATE);
    SAYS("0.bias", "virtual world");
    assert_int_equal(tsr_save(net, "/nonexistent/x"), TSR_ERR_STATE);
    SAYS("tsr_save", "virtual world");
    assert_int_equal(tsr_world_barrier(f->w), TSR_ERR_STATE);
    SAYS("barrier", "virtual world");
}

static void test_files(void **state)
{
    fixture *f = *state;
    tsr_dataset *data;
    tsr_module *net = tsr_mlp(f->w, f->p, TSR_B, TSR_MLP_OPTS(.inputs = 5));
    assert_int_equal(tsr_load(net, "/nonexistent/a.safetensors", NULL), TSR_ERR_IO);
    SAYS("/nonexistent/a.safetensors", "No such file");
    assert_int_equal(tsr_load(net, "/proc/self/status", NULL), TSR_ERR_FORMAT);
    SAYS("/proc/self/status");
    assert_int_equal(tsr_save(net, "/nonexistent/a.safetensors"), TSR_ERR_IO);
    SAYS("/nonexistent/a.safetensors", "No such file");
    assert_int_equal(tsr_cifar10_open(f->w, "/nonexistent/cifar", true, &data), TSR_ERR_IO);
    SAYS("/nonexistent/cifar", "data_batch_1.bin", "No such file");
    assert_int_equal(tsr_mnist_open(f->w, "/nonexistent/mnist", false, &data), TSR_ERR_IO);
    SAYS("/nonexistent/mnist", "t10k-images-idx3-ubyte");
}

#define WITH_WORLD(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(test_options_without_names),
        WITH_WORLD(test_shapes),
        WITH_WORLD(test_broadcasting),
        WITH_WORLD(test_dtypes),
        WITH_WORLD(test_axes_and_sizes),
        WITH_WORLD(test_reshape),
        WITH_WORLD(test_signature_axis),
        WITH_WORLD(test_signature_reduction),
        WITH_WORLD(test_signature_dimensions),
        cmocka_unit_test(test_signature_text),
        WITH_WORLD(test_bad_placement),
        cmocka_unit_test(test_two_placements),
        WITH_WORLD(test_names),
        WITH_WORLD(test_nothing_to_compile),
        WITH_WORLD(test_two_graphs),
        WITH_WORLD(test_module_arguments),
        WITH_WORLD(test_wrong_input),
        WITH_WORLD(test_other_world),
        WITH_WORLD(test_optimizer_arguments),
        WITH_WORLD(test_minimize_tensor),
        WITH_WORLD(test_minimize_other),
        WITH_WORLD(test_minimize_twice),
        WITH_WORLD(test_destroyed_module),
        WITH_WORLD(test_ports),
        WITH_WORLD(test_eval_of_input),
        WITH_WORLD(test_virtual_data),
        WITH_WORLD(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
