/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packed weights that a plan keeps from run to run. A plan that keeps them and a plan that packs
 * them in each run give the same bits after each kind of write to the weights. A graph that trains
 * some of its weights keeps only the others.
 */
#include "../rank.h"

#include <unistd.h>

enum { N = 6, CHANNELS = 8, SIDE = 18, IN = N * CHANNELS * SIDE * SIDE, LAYERS = 6 };
enum { MOST = N * 64 * SIDE * SIDE };
enum { WEIGHTS = 32 * CHANNELS * 9 + 32 * 32 * 25 + 32 * 8 * 9 + 32 * 16 * 16 + 16 * 9 + 24 * 16 };

/* One convolution for each kernel that keeps weights: Winograd, direct, direct with groups, the
 * gradient of one, which is a transposed convolution, depthwise, and a matrix product. The last two
 * are in chains with the activations behind them. */
typedef struct net {
    tsr_module *root, *layer[LAYERS];
} net;

typedef struct pair {
    tsr_world *world;
    const tsr_placement *on;
    bool local;
    net net;
    tsr_plan *keeps, *packs;
    float *x, *one, *other;
    int64_t count;
} pair;

static tsr_status make_net(const pair *p, uint64_t seed, net *n)
{
    const tsr_nn_opts o = {.placement = p->on, .sbp = TSR_B, .seed = seed};
    tsr_world *w = p->world;
    n->root = tsr_module_create(w, &o, NULL, NULL, NULL);
    n->layer[0] = tsr_nn_conv2d(w, &o, CHANNELS, 32, 3, true, TSR_CONV2D_OPTS(.padding = {1, 1}));
    n->layer[1] =
        tsr_nn_conv2d(w, &o, 32, 32, 5, true, TSR_CONV2D_OPTS(.padding = {2, 2}, .stride = {2, 2}));
    n->layer[2] =
        tsr_nn_conv2d(w, &o, 32, 32, 3, false, TSR_CONV2D_OPTS(.padding = {1, 1}, .groups = 4));
    n->layer[3] = tsr_nn_conv_transpose2d(w, &o, 32, 16, (tsr_hw){4, 4}, true,
                                          TSR_CONV_TRANSPOSE2D_OPTS(.stride = {2, 2}));
    n->layer[4] = tsr_nn_conv2d(w, &o, 16, 16, 3, true,
                                TSR_CONV2D_OPTS(.padding = {1, 1}, .stride = {2, 2}, .groups = 16));
    n->layer[5] = tsr_nn_conv2d(w, &o, 16, 24, 1, true, NULL);
    for (int i = 0; i < LAYERS; i++) {
        char name[8];
        snprintf(name, sizeof name, "c%d", i);
        CHECK(tsr_module_add(n->root, name, n->layer[i]));
    }
    return TSR_OK;
}

static tsr_graph *begin(const pair *p, bool trains)
{
    return tsr_graph_create(p->world, TSR_GRAPH_OPTS(.local = p->local, .training = trains));
}

static tsr_tensor *input(const pair *p, tsr_graph *g)
{
    return tsr_input_with(g, "x", TSR_F32, TSR_DIMS(N, CHANNELS, SIDE, SIDE), p->on,
                          p->local ? TSR_B : TSR_S(0), TSR_INPUT_OPTS(.batch_axis = 0));
}

static tsr_tensor *apply(const net *n, tsr_tensor *x)
{
    for (int i = 0; i < LAYERS; i++) {
        x = tsr_apply(n->layer[i], x);
        x = i < 4 ? x : tsr_relu(x);
    }
    return x;
}

/* Compiles a graph with the output "y", and destroys it. */
static tsr_status finish(const pair *p, tsr_graph *g, tsr_tensor *y, const tsr_compile_opts *opts,
                         tsr_plan **out_plan)
{
    /* Data parallel: a split of channels would slice the weights. */
    if (!p->local && tsr_tensor_dims(y).ndim > 0)
        y = tsr_to_global(y, p->on, TSR_S(0));
    tsr_output(g, "y", y, p->on, TSR_B);
    const tsr_status status = tsr_compile_with(g, opts, out_plan);
    tsr_graph_destroy(g);
    return status;
}

static size_t kept_by(const tsr_plan *plan)
{
    tsr_plan_info info = {.size = sizeof info};
    return tsr_plan_get_info(plan, &info) == TSR_OK ? info.kept_bytes : SIZE_MAX;
}

/* Compiles one graph twice. Both plans have the parts of one another's steps. */
static tsr_status compile_both(pair *p, int microbatches)
{
    for (int i = 0; i < 2; i++) {
        tsr_graph *g = begin(p, false);
        tsr_tensor *y = apply(&p->net, input(p, g));
        const tsr_dims d = tsr_tensor_dims(y);
        p->count = d.d[0] * d.d[1] * d.d[2] * d.d[3];
        TRY(finish(
            p, g, y,
            TSR_COMPILE_OPTS(.no_fusion = i ? TSR_FUSE_KEPT : 0, .microbatches = microbatches),
            i ? &p->packs : &p->keeps));
    }
    CHECK(p->count <= MOST);
    CHECK(kept_by(p->keeps) >= 4 * WEIGHTS && kept_by(p->packs) == 0);
    return TSR_OK;
}

static tsr_status take_buffers(pair *p)
{
    p->x = malloc(IN * sizeof *p->x);
    p->one = calloc(MOST, sizeof *p->one);
    p->other = calloc(MOST, sizeof *p->other);
    CHECK(p->x && p->one && p->other);
    for (int i = 0; i < IN; i++)
        p->x[i] = (float)(i * 7919 % 2003) / 1001 - 1;
    return TSR_OK;
}

/* A local net is each rank's own, with initial values of its own. */
static tsr_status take(tsr_world *w, bool local, int microbatches, pair *p)
{
    *p = (pair){.world = w, .local = local};
    p->on = local ? tsr_local_placement(w) : tsr_placement_parse(w, "cpu");
    TRY(make_net(p, 7 + (local ? (uint64_t)tsr_world_rank(w) : 0), &p->net));
    if (local)
        TRY(tsr_module_set_local(p->net.root));
    TRY(take_buffers(p));
    return compile_both(p, microbatches);
}

static void give(pair *p)
{
    tsr_plan_destroy(p->keeps);
    tsr_plan_destroy(p->packs);
    tsr_module_destroy(p->net.root);
    free(p->x);
    free(p->one);
    free(p->other);
}

static tsr_status run(const pair *p, tsr_plan *plan, float *y)
{
    TRY(tsr_feed(plan, "x", p->x, IN * sizeof *p->x));
    TRY(tsr_run(plan));
    return tsr_fetch(plan, "y", y, (size_t)p->count * sizeof *y);
}

/* Runs both plans twice. `changes`: whether the result must differ from the last one. */
static tsr_status compare(pair *p, const char *what, bool changes)
{
    static _Thread_local float before[MOST];
    const size_t bytes = (size_t)p->count * sizeof *p->one;
    memcpy(before, p->one, bytes);
    for (int i = 0; i < 2; i++) {
        TRY(run(p, p->keeps, p->one));
        TRY(run(p, p->packs, p->other));
        if (memcmp(p->one, p->other, bytes) != 0) {
            fprintf(stderr, "%s: run %d has other bits\n", what, i + 1);
            return TSR_ERR_INTERNAL;
        }
        if (i == 0 && changes == !memcmp(before, p->one, bytes)) {
            fprintf(stderr, "%s: the result %s\n", what, changes ? "is the same" : "has changed");
            return TSR_ERR_INTERNAL;
        }
    }
    return TSR_OK;
}

static tsr_variable *weight(const pair *p, int layer)
{
    return tsr_module_find(p->net.layer[layer], "weight");
}

/* --- writes ----------------------------------------------------------------------------------- */
static tsr_status set_one(const pair *p, int layer, float by)
{
    tsr_variable *v = weight(p, layer);
    const tsr_dims d = tsr_variable_dims(v);
    const size_t n = (size_t)(d.d[0] * d.d[1] * d.d[2] * d.d[3]);
    float *values = malloc(n * sizeof *values);
    CHECK(values);
    TRY(tsr_variable_get(v, values, n * sizeof *values));
    for (size_t i = 0; i < n; i++)
        values[i] += by;
    TRY(tsr_variable_set(v, values, n * sizeof *values));
    free(values);
    return TSR_OK;
}

/* Another plan trains all weights. It keeps none. */
static tsr_status train(const pair *p)
{
    tsr_optimizer *sgd = tsr_sgd(p->net.root, TSR_SGD_OPTS(.lr = 0.1));
    tsr_graph *g = begin(p, true);
    tsr_tensor *loss = tsr_mean(apply(&p->net, input(p, g)), TSR_ALL_AXES, false);
    tsr_plan *plan;
    tsr_minimize(sgd, loss);
    TRY(finish(p, g, loss, NULL, &plan));
    CHECK(kept_by(plan) == 0);
    TRY(tsr_feed(plan, "x", p->x, IN * sizeof *p->x));
    TRY(tsr_run(plan));
    tsr_plan_destroy(plan);
    tsr_optimizer_destroy(sgd);
    return TSR_OK;
}

/* Another plan assigns a weight, and convolves with its value from before, which it reads before
 * the assignment is declared or after. */
static tsr_status assign(const pair *p, bool reads_first)
{
    const tsr_dims d = tsr_variable_dims(weight(p, 0));
    float sums[2];
    tsr_graph *g = begin(p, false);
    tsr_tensor *x = input(p, g);
    tsr_tensor *before = reads_first ? tsr_apply(p->net.layer[0], x) : NULL;
    tsr_assign(weight(p, 0), tsr_full(g, TSR_F32, d, p->on, TSR_B, 0.01));
    if (!reads_first)
        before = tsr_apply(p->net.layer[0], x);
    tsr_plan *plan;
    TRY(finish(p, g, tsr_sum(before, TSR_ALL_AXES, false), NULL, &plan));
    for (int i = 0; i < 2; i++) {
        TRY(tsr_feed(plan, "x", p->x, IN * sizeof *p->x));
        TRY(tsr_run(plan));
        TRY(tsr_fetch(plan, "y", &sums[i], sizeof *sums));
        TRY(set_one(p, 0, 0)); /* the same bytes */
    }
    CHECK(sums[0] != sums[1]); /* the second run convolves with the assigned value */
    tsr_plan_destroy(plan);
    return TSR_OK;
}

/* tsr_eval keeps its plans, and follows a write between two calls. */
static tsr_status evaluate(const pair *p)
{
    const tsr_dims d = TSR_DIMS(1, CHANNELS, 4, 4);
    float first, second;
    tsr_graph *g = begin(p, false);
    tsr_tensor *x = tsr_full(g, TSR_F32, d, p->on, TSR_B, 0.5);
    tsr_tensor *y = tsr_sum(tsr_apply(p->net.layer[0], x), TSR_ALL_AXES, false);
    TRY(tsr_eval(y, &first, sizeof first));
    TRY(tsr_eval(y, &second, sizeof second));
    CHECK(first == second);
    TRY(set_one(p, 0, 0.5f));
    TRY(tsr_eval(y, &second, sizeof second));
    CHECK(fabsf(second - first) > 1);
    tsr_graph_destroy(g);
    return TSR_OK;
}

static tsr_status change_all(pair *p, const char *folder)
{
    char file[300], saved[300];
    tsr_checkpoint *c;
    int64_t step;
    snprintf(file, sizeof file, "%s/a.safetensors", folder);
    snprintf(saved, sizeof saved, "%s/c", folder);
    TRY(compare(p, "the first runs", true));
    TRY(compare(p, "no change", false));
    TRY(tsr_save(p->net.root, file));
    TRY(tsr_checkpoint_create(p->world, saved, NULL, &c));
    TRY(tsr_checkpoint_add_module(c, "model", p->net.root));
    TRY(tsr_checkpoint_save(c, 1, NAN));
    TRY(tsr_checkpoint_wait(c));
    for (int i = 0; i < LAYERS; i++) {
        TRY(set_one(p, i, 0.25f));
        TRY(compare(p, "tsr_variable_set", true));
    }
    TRY(tsr_load(p->net.root, file, NULL));
    TRY(compare(p, "tsr_load", true));
    TRY(train(p));
    TRY(compare(p, "another plan's update", true));
    TRY(tsr_checkpoint_load(c, NULL, &step));
    TRY(compare(p, "a checkpoint", true));
    for (int i = 0; i < 2; i++) {
        TRY(tsr_load(p->net.root, file, NULL));
        TRY(compare(p, "tsr_load before an assignment", i > 0));
        TRY(assign(p, i > 0));
        TRY(compare(p, "another plan's assignment", true));
    }
    TRY(evaluate(p));
    TRY(compare(p, "tsr_variable_set beside tsr_eval", true));
    tsr_checkpoint_destroy(c);
    TRY(set_one(p, 2, INFINITY));
    TRY(compare(p, "infinite weights", true));
    TRY(set_one(p, 2, -1)); /* they stay infinite */
    return compare(p, "infinite weights again", false);
}

typedef struct changes_arg {
    const char *folder;
    int microbatches;
} changes_arg;

static tsr_status changes(tsr_world *w, void *arg)
{
    const changes_arg *a = arg;
    pair p;
    TRY(take(w, false, a->microbatches, &p));
    TRY(change_all(&p, a->folder));
    give(&p);
    return TSR_OK;
}

static void check_changes(int nranks, int microbatches)
{
    char folder[] = "/tmp/tessera-kept-XXXXXX", command[100];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(tsr_spawn(nranks, changes, &(changes_arg){folder, microbatches}), TSR_OK);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void test_changes(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        check_changes(n, 1);
}

static void test_microbatches(void **state)
{
    (void)state;
    check_changes(1, 3);
    check_changes(2, 3);
}

/* --- data parallel ---------------------------------------------------------------------------- */
/* A tsr_ddp gives the first rank's weights to the other ranks, which had others. */
static tsr_status broadcasts(tsr_world *w, void *arg)
{
    (void)arg;
    pair p;
    tsr_ddp *ddp;
    TRY(take(w, true, 1, &p));
    TRY(compare(&p, "the first runs", true));
    TRY(tsr_ddp_create(p.net.root, NULL, &ddp));
    TRY(compare(&p, "a broadcast", tsr_world_rank(w) > 0));
    tsr_ddp_destroy(ddp);
    give(&p);
    return TSR_OK;
}

static void test_broadcasts(void **state)
{
    (void)state;
    assert_int_equal(tsr_spawn(2, broadcasts, NULL), TSR_OK);
}

/* A convolution whose weight is a buffer. */
static tsr_tensor *blur(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    x = tsr_apply(tsr_module_child(m, "c"), x);
    return tsr_conv2d(x, tsr_use(m, "blur", x), NULL, TSR_CONV2D_OPTS(.padding = {1, 1}));
}

/* A run of a tsr_ddp gives the first rank's buffers to the other ranks. */
static tsr_status sends_buffers(tsr_world *w, void *arg)
{
    (void)arg;
    enum { WIDE = 32, TAPS = WIDE * CHANNELS * 9 };
    pair p = {.world = w, .on = tsr_local_placement(w), .local = true};
    p.count = (int64_t)N * WIDE * SIDE * SIDE;
    const tsr_nn_opts o = {.placement = p.on, .sbp = TSR_B, .seed = 5};
    p.net.root = tsr_module_create(w, &o, blur, NULL, NULL);
    CHECK(tsr_module_add(p.net.root, "c", tsr_nn_conv2d(w, &o, CHANNELS, CHANNELS, 1, true, NULL)));
    tsr_variable *v = tsr_module_buffer(p.net.root, "blur", TSR_DIMS(WIDE, CHANNELS, 3, 3), TSR_B,
                                        (tsr_init){TSR_INIT_ONES, 0, 0, false});
    float taps[TAPS];
    tsr_ddp *ddp;
    tsr_plan *trains;
    TRY(tsr_ddp_create(p.net.root, NULL, &ddp));
    TRY(take_buffers(&p));
    for (int i = 0; i < 3; i++) {
        tsr_graph *g = begin(&p, i == 2);
        tsr_tensor *y = tsr_apply(p.net.root, input(&p, g));
        if (i == 2)
            tsr_ddp_backward(ddp, y = tsr_mean(y, TSR_ALL_AXES, false));
        TRY(finish(&p, g, y, TSR_COMPILE_OPTS(.no_fusion = i == 1 ? TSR_FUSE_KEPT : 0),
                   i == 0   ? &p.keeps
                   : i == 1 ? &p.packs
                            : &trains));
    }
    CHECK(kept_by(p.keeps) >= 4 * TAPS);
    for (int i = 0; i < 3; i++) {
        for (int t = 0; t < TAPS; t++)
            taps[t] = (float)(tsr_world_rank(w) + i + 1);
        TRY(tsr_variable_set(v, taps, sizeof taps));
        TRY(compare(&p, "a buffer of one's own", true));
        TRY(tsr_feed(trains, "x", p.x, IN * sizeof *p.x));
        TRY(tsr_ddp_run(ddp, trains));
        TRY(compare(&p, "buffers that are sent", tsr_world_rank(w) > 0));
    }
    tsr_plan_destroy(trains);
    tsr_ddp_destroy(ddp);
    give(&p);
    return TSR_OK;
}

static void test_buffers(void **state)
{
    (void)state;
    assert_int_equal(tsr_spawn(2, sends_buffers, NULL), TSR_OK);
}

/* --- frozen weights --------------------------------------------------------------------------- */
/* A graph that trains the first layer keeps the weights of the others, forward and backward. */
static tsr_status freezes(tsr_world *w, void *arg)
{
    (void)arg;
    pair p;
    float losses[2][4];
    TRY(take(w, false, 1, &p));
    for (int i = 0; i < 2; i++) {
        net n;
        tsr_plan *plan;
        TRY(make_net(&p, 7, &n));
        tsr_optimizer *sgd = tsr_sgd(n.layer[0], TSR_SGD_OPTS(.lr = 0.5));
        tsr_graph *g = begin(&p, true);
        tsr_tensor *y = apply(&n, input(&p, g));
        tsr_tensor *loss = tsr_mean(tsr_mul(y, y), TSR_ALL_AXES, false);
        tsr_minimize(sgd, loss);
        TRY(finish(&p, g, loss, TSR_COMPILE_OPTS(.no_fusion = i ? TSR_FUSE_KEPT : 0), &plan));
        CHECK(i ? kept_by(plan) == 0 : kept_by(plan) > 2 * 4 * 32 * 32 * 25);
        for (int s = 0; s < 4; s++) {
            TRY(tsr_feed(plan, "x", p.x, IN * sizeof *p.x));
            TRY(tsr_run(plan));
            TRY(tsr_fetch(plan, "y", &losses[i][s], sizeof(float)));
        }
        tsr_plan_destroy(plan);
        tsr_optimizer_destroy(sgd);
        tsr_module_destroy(n.root);
    }
    CHECK(!memcmp(losses[0], losses[1], sizeof losses[0]));
    CHECK(losses[0][3] < losses[0][0]);
    give(&p);
    return TSR_OK;
}

static void test_freezes(void **state)
{
    (void)state;
    on_ranks(freezes, NULL);
}

/* A plan keeps the weights through which the gradient of its input goes. It keeps nothing of a
 * weight whose gradient it computes, and nothing under a limit of memory. */
static tsr_status leaves_out(tsr_world *w, void *arg)
{
    (void)arg;
    pair p;
    tsr_plan *plan;
    TRY(take(w, false, 1, &p));
    for (int i = 0; i < 3; i++) {
        tsr_graph *g = begin(&p, false);
        tsr_tensor *x = input(&p, g), *y = tsr_apply(p.net.layer[0], x), *dx;
        tsr_tensor *of = i == 1 ? tsr_read(g, weight(&p, 0)) : x;
        tsr_gradients(tsr_sum(tsr_mul(y, y), TSR_ALL_AXES, false), 1, &of, &dx);
        TRY(finish(&p, g, tsr_sum(dx, TSR_ALL_AXES, false),
                   TSR_COMPILE_OPTS(.memory_limit = i == 2 ? 64 << 20 : 0), &plan));
        CHECK((kept_by(plan) > 0) == (i == 0));
        tsr_plan_destroy(plan);
    }
    give(&p);
    return TSR_OK;
}

static void test_leaves_out(void **state)
{
    (void)state;
    assert_int_equal(tsr_spawn(1, leaves_out, NULL), TSR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes),    cmocka_unit_test(test_microbatches),
        cmocka_unit_test(test_broadcasts), cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_freezes),    cmocka_unit_test(test_leaves_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
