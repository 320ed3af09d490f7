/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packed weights that a plan keeps from run to run. A plan that keeps them and a plan that packs
 * them in each run give the same bits, behind every way in which weights change; and where a graph
 * trains some of its weights, it keeps those of the others alone.
 */
#include "../rank.h"

#include <unistd.h>

enum { N = 6, SIDE = 18, IN = N * 8 * SIDE * SIDE, MOST = N * 64 * SIDE * SIDE };

/* Convolutions of one kind of kernel each: by Winograd, direct with edges, of groups, transposed.
 */
typedef struct net {
    tsr_module *root;
    tsr_module *layer[4];
} net;

static tsr_status make_net(tsr_world *w, const tsr_placement *on, uint64_t seed, net *n)
{
    const tsr_nn_opts o = {.placement = on, .sbp = TSR_B, .seed = seed};
    n->root = tsr_module_create(w, &o, NULL, NULL, NULL);
    n->layer[0] = tsr_nn_conv2d(w, &o, 8, 32, 3, true, TSR_CONV2D_OPTS(.padding = {1, 1}));
    n->layer[1] =
        tsr_nn_conv2d(w, &o, 32, 32, 5, true, TSR_CONV2D_OPTS(.padding = {2, 2}, .stride = {2, 2}));
    n->layer[2] =
        tsr_nn_conv2d(w, &o, 32, 32, 3, false, TSR_CONV2D_OPTS(.padding = {1, 1}, .groups = 4));
    n->layer[3] = tsr_nn_conv_transpose2d(w, &o, 32, 16, (tsr_hw){4, 4}, true,
                                          TSR_CONV_TRANSPOSE2D_OPTS(.stride = {2, 2}));
    for (int i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof name, "c%d", i);
        if (!tsr_module_add(n->root, name, n->layer[i]))
            return TSR_ERR_INTERNAL;
    }
    return TSR_OK;
}

typedef struct pair {
    tsr_world *world;
    const tsr_placement *on;
    net net;
    tsr_plan *keeps, *packs;
    float *x, *one, *other;
    int64_t count;
} pair;

static tsr_status compile(pair *p, unsigned no_fusion, tsr_plan **out_plan)
{
    tsr_graph *g = tsr_graph_create(p->world, NULL);
    tsr_tensor *t = tsr_input(g, "x", TSR_F32, TSR_DIMS(N, 8, SIDE, SIDE), p->on, TSR_S(0));
    for (int i = 0; i < 4; i++)
        t = tsr_apply(p->net.layer[i], t);
    const tsr_dims d = tsr_tensor_dims(t);
    p->count = d.d[0] * d.d[1] * d.d[2] * d.d[3];
    tsr_output(g, "y", tsr_to_global(t, p->on, TSR_S(0)), p->on, TSR_B);
    const tsr_status status =
        tsr_compile_with(g, TSR_COMPILE_OPTS(.no_fusion = no_fusion), out_plan);
    tsr_graph_destroy(g);
    return status;
}

static tsr_status run(pair *p, tsr_plan *plan, float *y)
{
    TRY(tsr_feed(plan, "x", p->x, IN * sizeof *p->x));
    TRY(tsr_run(plan));
    return tsr_fetch(plan, "y", y, (size_t)p->count * sizeof *y);
}

/* Runs both plans twice. `changes`: whether the result must differ from the last one. */
static tsr_status compare(pair *p, const char *what, bool changes)
{
    static _Thread_local float before[MOST];
    memcpy(before, p->one, (size_t)p->count * sizeof *before);
    for (int i = 0; i < 2; i++) {
        TRY(run(p, p->keeps, p->one));
        TRY(run(p, p->packs, p->other));
        const size_t bytes = (size_t)p->count * sizeof *p->one;
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

static tsr_variable *weight(pair *p, int layer)
{
    return tsr_module_find(p->net.layer[layer], "weight");
}

/* --- the ways in which weights change --------------------------------------------------------- */
static tsr_status set_one(pair *p, int layer, float by)
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

/* Another plan trains all weights, or assigns one. */
static tsr_status train(pair *p, bool assigns)
{
    tsr_graph *g = tsr_graph_create(p->world, TSR_GRAPH_OPTS(.training = !assigns));
    tsr_tensor *t = tsr_input(g, "x", TSR_F32, TSR_DIMS(N, 8, SIDE, SIDE), p->on, TSR_S(0));
    tsr_optimizer *sgd = NULL;
    if (assigns) {
        tsr_tensor *v = tsr_read(g, weight(p, 1));
        tsr_assign(weight(p, 1), tsr_mul_scalar(v, 1.5));
        t = tsr_sum(v, TSR_ALL_AXES, false);
    } else {
        sgd = tsr_sgd(p->net.root, TSR_SGD_OPTS(.lr = 0.1));
        for (int i = 0; i < 4; i++)
            t = tsr_apply(p->net.layer[i], t);
        t = tsr_mean(t, TSR_ALL_AXES, false);
        tsr_minimize(sgd, t);
    }
    tsr_output(g, "loss", t, p->on, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    if (!assigns)
        TRY(tsr_feed(plan, "x", p->x, IN * sizeof *p->x));
    TRY(tsr_run(plan));
    tsr_plan_info info = {.size = sizeof info};
    TRY(tsr_plan_get_info(plan, &info));
    CHECK(info.kept_bytes == 0); /* it writes all that it convolves with */
    tsr_plan_destroy(plan);
    tsr_graph_destroy(g);
    tsr_optimizer_destroy(sgd);
    return TSR_OK;
}

static tsr_status change_all(pair *p, const char *folder)
{
    char file[300], saved[300];
    snprintf(file, sizeof file, "%s/a.safetensors", folder);
    snprintf(saved, sizeof saved, "%s/c", folder);
    TRY(compare(p, "the first runs", true));
    TRY(compare(p, "no change", false));
    TRY(tsr_save(p->net.root, file));
    tsr_checkpoint *c;
    TRY(tsr_checkpoint_create(p->world, saved, NULL, &c));
    TRY(tsr_checkpoint_add_module(c, "model", p->net.root));
    TRY(tsr_checkpoint_save(c, 1, NAN));
    TRY(tsr_checkpoint_wait(c));
    for (int i = 0; i < 4; i++) {
        TRY(set_one(p, i, 0.25f));
        TRY(compare(p, "tsr_variable_set", true));
    }
    TRY(tsr_load(p->net.root, file, NULL));
    TRY(compare(p, "tsr_load", true));
    TRY(train(p, false));
    TRY(compare(p, "another plan's update", true));
    TRY(train(p, true));
    TRY(compare(p, "another plan's assignment", true));
    int64_t step;
    TRY(tsr_checkpoint_load(c, NULL, &step));
    TRY(compare(p, "a checkpoint", true));
    tsr_checkpoint_destroy(c);
    TRY(set_one(p, 2, INFINITY));
    TRY(compare(p, "infinite weights", true));
    TRY(set_one(p, 2, -1)); /* they stay infinite */
    return compare(p, "infinite weights again", false);
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

static tsr_status take(tsr_world *w, pair *p)
{
    *p = (pair){.world = w, .on = tsr_placement_parse(w, "cpu")};
    TRY(make_net(w, p->on, 7, &p->net));
    TRY(take_buffers(p));
    TRY(compile(p, 0, &p->keeps));
    TRY(compile(p, TSR_FUSE_KEPT, &p->packs));
    CHECK(p->count <= MOST);
    tsr_plan_info info = {.size = sizeof info};
    TRY(tsr_plan_get_info(p->keeps, &info));
    CHECK(info.kept_bytes > 4 * (32 * 8 * 9 + 32 * 32 * 25));
    TRY(tsr_plan_get_info(p->packs, &info));
    CHECK(info.kept_bytes == 0);
    return TSR_OK;
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

static tsr_status changes(tsr_world *w, void *arg)
{
    pair p;
    TRY(take(w, &p));
    TRY(change_all(&p, arg));
    give(&p);
    return TSR_OK;
}

static void test_changes(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        char folder[] = "/tmp/tessera-kept-XXXXXX", command[100];
        assert_non_null(mkdtemp(folder));
        assert_int_equal(tsr_spawn(n, changes, folder), TSR_OK);
        snprintf(command, sizeof command, "rm -r %s", folder);
        assert_int_equal(system(command), 0);
    }
}

/* --- data parallel ---------------------------------------------------------------------------- */
/* A tsr_ddp gives all ranks the first one's weights: each had its own. */
static tsr_status broadcasts(tsr_world *w, void *arg)
{
    (void)arg;
    pair p = {.world = w};
    const int rank = tsr_world_rank(w);
    p.on = tsr_local_placement(w);
    TRY(make_net(w, p.on, 7 + (uint64_t)rank, &p.net));
    TRY(tsr_module_set_local(p.net.root));
    TRY(take_buffers(&p));
    for (int i = 0; i < 2; i++) {
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.local = true));
        tsr_tensor *t = tsr_input(g, "x", TSR_F32, TSR_DIMS(N, 8, SIDE, SIDE), p.on, TSR_B);
        for (int l = 0; l < 4; l++)
            t = tsr_apply(p.net.layer[l], t);
        const tsr_dims d = tsr_tensor_dims(t);
        p.count = d.d[0] * d.d[1] * d.d[2] * d.d[3];
        tsr_output(g, "y", t, p.on, TSR_B);
        TRY(tsr_compile_with(g, TSR_COMPILE_OPTS(.no_fusion = i ? TSR_FUSE_KEPT : 0),
                             i ? &p.packs : &p.keeps));
        tsr_graph_destroy(g);
    }
    TRY(compare(&p, "the first runs", true));
    tsr_ddp *ddp;
    TRY(tsr_ddp_create(p.net.root, NULL, &ddp));
    TRY(compare(&p, "a broadcast", rank > 0));
    tsr_ddp_destroy(ddp);
    give(&p);
    return TSR_OK;
}

static void test_broadcasts(void **state)
{
    (void)state;
    assert_int_equal(tsr_spawn(2, broadcasts, NULL), TSR_OK);
}

/* A convolution with a buffer. */
static tsr_tensor *blur(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    x = tsr_apply(tsr_module_child(m, "c"), x);
    return tsr_conv2d(x, tsr_use(m, "blur", x), NULL, TSR_CONV2D_OPTS(.padding = {1, 1}));
}

static tsr_status compile_blur(pair *p, bool trains, unsigned no_fusion, tsr_ddp *ddp,
                               tsr_plan **out_plan)
{
    tsr_graph *g = tsr_graph_create(p->world, TSR_GRAPH_OPTS(.local = true, .training = trains));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(N, 8, SIDE, SIDE), p->on, TSR_B);
    tsr_tensor *y = tsr_apply(p->net.root, x);
    if (trains)
        tsr_ddp_backward(ddp, y = tsr_mean(y, TSR_ALL_AXES, false));
    tsr_output(g, "y", y, p->on, TSR_B);
    const tsr_status status =
        tsr_compile_with(g, TSR_COMPILE_OPTS(.no_fusion = no_fusion), out_plan);
    tsr_graph_destroy(g);
    return status;
}

/* A run of a tsr_ddp gives all ranks the first one's buffers. */
static tsr_status sends_buffers(tsr_world *w, void *arg)
{
    (void)arg;
    enum { CHANNELS = 8, TAPS = CHANNELS * CHANNELS * 9 };
    pair p = {.world = w, .on = tsr_local_placement(w), .count = N * CHANNELS * SIDE * SIDE};
    const tsr_nn_opts o = {.placement = p.on, .sbp = TSR_B, .seed = 5};
    const int rank = tsr_world_rank(w);
    p.net.root = tsr_module_create(w, &o, blur, NULL, NULL);
    CHECK(tsr_module_add(p.net.root, "c", tsr_nn_conv2d(w, &o, 8, CHANNELS, 1, true, NULL)));
    tsr_variable *v = tsr_module_buffer(p.net.root, "blur", TSR_DIMS(CHANNELS, CHANNELS, 3, 3),
                                        TSR_B, (tsr_init){TSR_INIT_ONES, 0, 0, false});
    float taps[TAPS];
    tsr_ddp *ddp;
    tsr_plan *trains;
    TRY(tsr_ddp_create(p.net.root, NULL, &ddp));
    TRY(take_buffers(&p));
    TRY(compile_blur(&p, true, 0, ddp, &trains));
    TRY(compile_blur(&p, false, 0, NULL, &p.keeps));
    TRY(compile_blur(&p, false, TSR_FUSE_KEPT, NULL, &p.packs));
    for (int i = 0; i < 3; i++) {
        for (int t = 0; t < TAPS; t++)
            taps[t] = (float)(rank + i + 1);
        TRY(tsr_variable_set(v, taps, sizeof taps));
        TRY(compare(&p, "a buffer of one's own", true));
        TRY(tsr_feed(trains, "x", p.x, IN * sizeof *p.x));
        TRY(tsr_ddp_run(ddp, trains));
        TRY(compare(&p, "buffers that are sent", rank > 0));
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

/* --- frozen ----------------------------------------------------------------------------------- */
/* A graph that trains the last layer keeps the weights of the others, forward and backward. */
static tsr_status freezes(tsr_world *w, void *arg)
{
    (void)arg;
    pair p;
    TRY(take(w, &p));
    float losses[2][4];
    for (int i = 0; i < 2; i++) {
        net n;
        TRY(make_net(w, p.on, 7, &n));
        tsr_optimizer *sgd = tsr_sgd(n.layer[0], TSR_SGD_OPTS(.lr = 0.5));
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
        tsr_tensor *t = tsr_input(g, "x", TSR_F32, TSR_DIMS(N, 8, SIDE, SIDE), p.on, TSR_S(0));
        for (int l = 0; l < 4; l++)
            t = tsr_apply(n.layer[l], t);
        t = tsr_mean(tsr_mul(t, t), TSR_ALL_AXES, false);
        tsr_minimize(sgd, t);
        tsr_output(g, "loss", t, p.on, TSR_B);
        tsr_plan *plan;
        TRY(tsr_compile_with(g, TSR_COMPILE_OPTS(.no_fusion = i ? TSR_FUSE_KEPT : 0), &plan));
        tsr_plan_info info = {.size = sizeof info};
        TRY(tsr_plan_get_info(plan, &info));
        CHECK(i ? info.kept_bytes == 0 : info.kept_bytes > 2 * 4 * 32 * 32 * 25);
        for (int s = 0; s < 4; s++) {
            TRY(tsr_feed(plan, "x", p.x, IN * sizeof *p.x));
            TRY(tsr_run(plan));
            TRY(tsr_fetch(plan, "loss", &losses[i][s], sizeof(float)));
        }
        tsr_plan_destroy(plan);
        tsr_graph_destroy(g);
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

/* A limit of memory counts no kept bytes, since there are none. */
static tsr_status limits(tsr_world *w, void *arg)
{
    (void)arg;
    pair p;
    TRY(take(w, &p));
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *t = tsr_input(g, "x", TSR_F32, TSR_DIMS(N, 8, SIDE, SIDE), p.on, TSR_S(0));
    tsr_output(g, "y", tsr_apply(p.net.layer[0], t), p.on, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile_with(g, TSR_COMPILE_OPTS(.memory_limit = 64 << 20), &plan));
    tsr_plan_info info = {.size = sizeof info};
    TRY(tsr_plan_get_info(plan, &info));
    CHECK(info.kept_bytes == 0);
    tsr_plan_destroy(plan);
    tsr_graph_destroy(g);
    give(&p);
    return TSR_OK;
}

static void test_limits(void **state)
{
    (void)state;
    assert_int_equal(tsr_spawn(1, limits, NULL), TSR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes), cmocka_unit_test(test_broadcasts),
        cmocka_unit_test(test_buffers), cmocka_unit_test(test_freezes),
        cmocka_unit_test(test_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
