/* SPDX-License-Identifier: Apache-2.0 */
/* Stages of a pipeline: trainings over 2 and 4 stages, with data ranks in each, have the losses,
 * norms and variables of one rank, in f64; a parameter that several stages use has one home; where
 * ops are; refusals. */
#include "../rank.h"

enum { ROWS = 16, STEPS = 4, MOST_VALUES = 400000 };

typedef enum net { MLP, GPT, MOBILENET, NNETS } net;

typedef struct job {
    net net;
    int stages, data; /* ranks: stages x data */
    int parts;        /* micro-batches */
    bool inner;       /* the stages are the inner axis of the mesh */
    bool on_first;    /* inputs are declared on the first stage */
    bool clips, zero, recompute, scales, penalty;
    int accumulate;
    tsr_dtype autocast;
} job;

typedef struct result {
    double loss[STEPS], norm[STEPS];
    double value[MOST_VALUES];
    int64_t n;
} result;

/* The mesh of a job, one stage of it, and how the rows of a batch lie on the mesh. */
static const tsr_placement *mesh_of(tsr_world *w, const job *j)
{
    const int ranks[] = {0, 1, 2, 3, 4, 5, 6, 7};
    const int outer[] = {j->stages, j->data}, inner[] = {j->data, j->stages};
    return tsr_placement_create(w, TSR_DEVICE_CPU, 2, j->inner ? inner : outer, ranks);
}

static const tsr_placement *stage_of(const tsr_placement *mesh, const job *j, int stage)
{
    return tsr_placement_slice(mesh, j->inner ? 1 : 0, stage);
}

static tsr_sbp rows_of(const job *j)
{
    return j->inner ? TSR_ND(TSR_S(0), TSR_B) : TSR_ND(TSR_B, TSR_S(0));
}

static tsr_tensor *input(tsr_graph *g, const char *name, tsr_dtype dtype, tsr_dims dims,
                         const tsr_placement *mesh, const job *j)
{
    const tsr_input_opts *opts = TSR_INPUT_OPTS(.batch_axis = 0);
    return j->on_first ? tsr_input_with(g, name, dtype, dims, stage_of(mesh, j, 0), TSR_S(0), opts)
                       : tsr_input_with(g, name, dtype, dims, mesh, rows_of(j), opts);
}

/* Puts n children of m, and those that follow, into stages, evenly. */
static tsr_status stage_children(tsr_module *m, int n, const tsr_placement *mesh, const job *j)
{
    for (int i = 0; tsr_module_child_at(m, i); i++) {
        const int stage = i < n ? i * j->stages / n : j->stages - 1;
        TRY(tsr_module_stage(tsr_module_child_at(m, i), stage, stage_of(mesh, j, stage)));
    }
    return TSR_OK;
}

static tsr_status stage_gpt(tsr_module *m, const tsr_placement *mesh, const job *j)
{
    TRY(tsr_module_stage(tsr_module_child(m, "wte"), 0, stage_of(mesh, j, 0)));
    TRY(tsr_module_stage(tsr_module_child(m, "wpe"), 0, stage_of(mesh, j, 0)));
    TRY(stage_children(tsr_module_child(m, "h"), 4, mesh, j));
    return tsr_module_stage(tsr_module_child(m, "ln_f"), j->stages - 1,
                            stage_of(mesh, j, j->stages - 1));
}

static tsr_status stage_mobilenet(tsr_module *m, const tsr_placement *mesh, const job *j)
{
    TRY(stage_children(tsr_module_child(m, "features"), 19, mesh, j));
    return tsr_module_stage(tsr_module_child(m, "classifier"), j->stages - 1,
                            stage_of(mesh, j, j->stages - 1));
}

typedef struct trained {
    tsr_module *net;
    tsr_tensor *loss;
} trained;

static tsr_status declare(tsr_world *w, tsr_graph *g, const tsr_placement *mesh, const job *j,
                          trained *t)
{
    const tsr_sbp sbp =
        j->zero ? (j->inner ? TSR_ND(TSR_S(0), TSR_B) : TSR_ND(TSR_B, TSR_S(0))) : TSR_B;
    const tsr_dtype dtype = j->autocast ? TSR_F32 : TSR_F64;
    tsr_tensor *x, *y;
    switch (j->net) {
    case MLP:
        t->net = tsr_mlp(
            w, mesh, sbp,
            TSR_MLP_OPTS(.inputs = 12, .hidden = 24, .outputs = 8, .layers = 4, .dtype = dtype));
        TRY(stage_children(t->net, 7, mesh, j));
        x = input(g, "x", dtype, TSR_DIMS(ROWS, 12), mesh, j);
        y = input(g, "y", TSR_I64, TSR_DIMS(ROWS), mesh, j);
        t->loss = tsr_cross_entropy_with(tsr_dropout(tsr_apply(t->net, x), 0.3), y,
                                         TSR_CROSS_ENTROPY_OPTS(.has_ignore_index = true,
                                                                .ignore_index = 3,
                                                                .label_smoothing = 0.1));
        break;
    case GPT:
        t->net = tsr_gpt(w, mesh, sbp,
                         TSR_GPT_OPTS(.vocab = 24, .positions = 6, .width = 16, .heads = 4,
                                      .layers = 4, .dropout = 0.1, .dtype = dtype));
        TRY(stage_gpt(t->net, mesh, j));
        if (j->recompute)
            for (int i = 0; i < 4; i++)
                tsr_module_recompute(tsr_module_child_at(tsr_module_child(t->net, "h"), i));
        x = input(g, "x", TSR_I64, TSR_DIMS(ROWS, 6), mesh, j);
        y = input(g, "y", TSR_I64, TSR_DIMS(ROWS, 6), mesh, j);
        t->loss = tsr_cross_entropy(tsr_reshape(tsr_apply(t->net, x), TSR_DIMS(ROWS * 6, 24)),
                                    tsr_reshape(y, TSR_DIMS(ROWS * 6)), TSR_MEAN);
        break;
    default:
        t->net = tsr_mobilenet_v2(
            w, mesh, sbp,
            TSR_MOBILENET_V2_OPTS(.num_classes = 8, .width = 0.1, .dropout = 0.2,
                                  .variant = TSR_MOBILENET_CIFAR, .bn = TSR_BN_LOCAL,
                                  .bn_parts = ROWS, .dtype = dtype));
        TRY(stage_mobilenet(t->net, mesh, j));
        x = input(g, "x", dtype, TSR_DIMS(ROWS, 3, 8, 8), mesh, j);
        y = input(g, "y", TSR_I64, TSR_DIMS(ROWS), mesh, j);
        t->loss = tsr_cross_entropy(tsr_apply(t->net, x), y, TSR_MEAN);
    }
    return TSR_OK;
}

static tsr_status keep(tsr_variable *v, const char *name, void *arg)
{
    result *r = arg;
    const int64_t n = tsr_dims_count(tsr_variable_dims(v));
    (void)name;
    CHECK(r->n + n <= MOST_VALUES);
    if (tsr_variable_dtype(v) == TSR_F32) {
        float *f = malloc((size_t)n * sizeof *f);
        CHECK(f);
        TRY(tsr_variable_get(v, f, (size_t)n * sizeof *f));
        for (int64_t i = 0; i < n; i++)
            r->value[r->n + i] = f[i];
        free(f);
    } else {
        TRY(tsr_variable_get(v, r->value + r->n, (size_t)n * sizeof(double)));
    }
    r->n += n;
    return TSR_OK;
}

static tsr_status feed(tsr_plan *plan, const char *name, int step)
{
    static _Thread_local double x[ROWS * 3 * 8 * 8];
    static _Thread_local float f[ROWS * 3 * 8 * 8];
    static _Thread_local int64_t ids[ROWS * 6];
    tsr_port port = tsr_plan_port(plan, 0);
    for (int i = 1; strcmp(port.name, name) != 0; i++)
        port = tsr_plan_port(plan, i);
    const int64_t n = tsr_dims_count(port.dims);
    for (int64_t i = 0; i < n && port.dtype != TSR_I64; i++)
        f[i] = (float)(x[i] = sin(1.7 * (double)i + step));
    for (int64_t i = 0; i < n && port.dtype == TSR_I64; i++)
        ids[i] = (i * 7 + i / 5 + step) % 8;
    return port.dtype == TSR_F64   ? tsr_feed(plan, name, x, (size_t)n * sizeof *x)
           : port.dtype == TSR_F32 ? tsr_feed(plan, name, f, (size_t)n * sizeof *f)
                                   : tsr_feed(plan, name, ids, (size_t)n * sizeof *ids);
}

static double number(tsr_dtype dtype, const void *bytes)
{
    float f;
    double d;
    memcpy(&f, bytes, sizeof f);
    memcpy(&d, bytes, sizeof d);
    return dtype == TSR_F32 ? (double)f : d;
}

/* A second loss, of weights of the first stage. */
static tsr_tensor *penalty(tsr_graph *g, tsr_module *m)
{
    tsr_tensor *weight = tsr_read(g, tsr_module_find(m, "0.weight"));
    return tsr_mul_scalar(tsr_sum(tsr_mul(weight, weight), TSR_ALL_AXES, false), 0.01);
}

static tsr_status train(tsr_world *w, const job *j, result *out)
{
    const tsr_placement *mesh = mesh_of(w, j);
    CHECK(mesh);
    tsr_graph *g =
        tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .seed = 5, .autocast = j->autocast));
    trained t = {0};
    tsr_plan *plan;
    tsr_tensor *norm = NULL;
    char bytes[8] = {0};
    TRY(declare(w, g, mesh, j, &t));
    tsr_optimizer *opt = tsr_adam(t.net, TSR_ADAM_OPTS(.lr = 1e-2));
    tsr_grad_scaler *scaler = j->scales ? tsr_grad_scaler_create(w, NULL) : NULL;
    tsr_tensor *losses[2] = {t.loss, j->penalty ? penalty(g, t.net) : NULL};
    tsr_minimize_with(opt, j->penalty ? 2 : 1, losses,
                      TSR_MINIMIZE_OPTS(.clip_norm = j->clips ? 0.5 : 0, .out_norm = &norm,
                                        .scaler = scaler,
                                        .accumulate = j->accumulate ? j->accumulate : 1));
    tsr_output(g, "loss", t.loss, mesh, TSR_AUTO);
    tsr_output(g, "norm", norm, mesh, TSR_AUTO);
    TRY(tsr_compile_with(g, TSR_COMPILE_OPTS(.microbatches = j->parts), &plan));
    for (int s = 0; s < STEPS; s++) {
        TRY(feed(plan, "x", s));
        TRY(feed(plan, "y", s));
        TRY(tsr_run(plan));
        TRY(tsr_fetch(plan, "loss", bytes, tsr_dtype_size(tsr_tensor_dtype(t.loss))));
        out->loss[s] = number(tsr_tensor_dtype(t.loss), bytes);
        TRY(tsr_fetch(plan, "norm", bytes, tsr_dtype_size(tsr_tensor_dtype(norm))));
        out->norm[s] = number(tsr_tensor_dtype(norm), bytes);
    }
    out->n = 0;
    TRY(tsr_module_visit(t.net, keep, out));
    tsr_plan_destroy(plan);
    tsr_graph_destroy(g);
    tsr_optimizer_destroy(opt);
    tsr_grad_scaler_destroy(scaler);
    tsr_module_destroy(t.net);
    return TSR_OK;
}

/* --- equal to one rank ------------------------------------------------------------------------ */
static result one_rank; /* written by a world of one rank, then read by those of several */

static tsr_status alone(tsr_world *w, void *arg)
{
    return train(w, arg, &one_rank);
}

static tsr_status in_stages(tsr_world *w, void *arg)
{
    const job *j = arg;
    const double limit = j->autocast ? 2e-2 : 1e-12;
    result *r = calloc(1, sizeof *r);
    CHECK(r);
    TRY(train(w, j, r));
    CHECK(all_near("loss", r->loss, one_rank.loss, STEPS, limit));
    CHECK(all_near("norm", r->norm, one_rank.norm, STEPS, limit));
    CHECK(r->n == one_rank.n && r->n > 100);
    CHECK(all_near("value", r->value, one_rank.value, r->n, 10 * limit));
    free(r);
    return TSR_OK;
}

static void hold(job j)
{
    job one = j;
    one.stages = one.data = one.parts = 1;
    one.recompute = one.on_first = false;
    tsr_status status = tsr_spawn(1, alone, &one);
    for (j.parts = 1; j.parts <= 2 && status == TSR_OK; j.parts++)
        status = tsr_spawn(j.stages * j.data, in_stages, &j);
    if (status != TSR_OK)
        fail_msg("net %d, %d stages x %d, %d parts: %s: %s", j.net, j.stages, j.data, j.parts,
                 tsr_status_name(status), tsr_last_error());
}

static void test_mlp(void **state)
{
    (void)state;
    hold((job){.net = MLP, .stages = 2, .data = 1, .clips = true});
    hold((job){.net = MLP, .stages = 2, .data = 2, .inner = true, .scales = true});
    hold((job){.net = MLP, .stages = 4, .data = 1, .on_first = true});
    hold((job){.net = MLP, .stages = 3, .data = 2, .zero = true, .clips = true});
    hold((job){.net = MLP, .stages = 2, .data = 2, .penalty = true, .clips = true});
    hold((job){.net = MLP, .stages = 2, .data = 2, .accumulate = 2});
}

static void test_gpt(void **state)
{
    (void)state;
    hold((job){.net = GPT, .stages = 2, .data = 2, .clips = true});
    hold((job){.net = GPT, .stages = 4, .data = 2, .clips = true});
    hold((job){.net = GPT, .stages = 4, .data = 1, .on_first = true});
    hold((job){.net = GPT, .stages = 2, .data = 1, .recompute = true});
    hold((job){.net = GPT, .stages = 2, .data = 2, .zero = true, .inner = true});
}

static void test_mobilenet(void **state)
{
    (void)state;
    hold((job){.net = MOBILENET, .stages = 2, .data = 1});
    hold((job){.net = MOBILENET, .stages = 2, .data = 2, .clips = true});
}

static void test_autocast(void **state)
{
    (void)state;
    hold((job){.net = GPT, .stages = 2, .data = 1, .autocast = TSR_BF16});
    hold((job){.net = MLP, .stages = 2, .data = 2, .autocast = TSR_F16, .scales = true});
}

/* --- where ops are ---------------------------------------------------------------------------- */
static tsr_module *linear(tsr_module *root, const char *name, tsr_world *w, const tsr_placement *p)
{
    return tsr_module_add(
        root, name,
        tsr_nn_linear(w, &(tsr_nn_opts){.placement = p, .sbp = TSR_B, .dtype = TSR_F64}, 4, 4,
                      false));
}

/* A constant in a forward function is in no stage; x comes to the module's. */
static tsr_tensor *add_row_forward(tsr_module *m, tsr_tensor *x, void *arg)
{
    const double row[4] = {1, 2, 3, 4};
    return tsr_add(x, tsr_add(tsr_use(m, "bias", x), tsr_constant(tsr_tensor_graph(x), TSR_F64,
                                                                  TSR_DIMS(4), row, arg, TSR_B)));
}

static tsr_status where(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *mesh = tsr_placement_parse(w, "cpu:[[0],[1],[2]]");
    const tsr_placement *on[3];
    for (int i = 0; i < 3; i++)
        on[i] = tsr_placement_slice(mesh, 0, i);
    const tsr_placement *all = tsr_placement_parse(w, "cpu:[0,1,2]");
    tsr_module *root = tsr_module_create(w, NULL, NULL, NULL, NULL);
    tsr_module *a = linear(root, "a", w, mesh), *b = linear(root, "b", w, mesh);
    tsr_module *c = linear(root, "c", w, mesh);
    tsr_module *d =
        tsr_module_add(root, "d",
                       tsr_module_create(w, &(tsr_nn_opts){.placement = mesh, .dtype = TSR_F64},
                                         add_row_forward, (void *)(uintptr_t)all, NULL));
    tsr_module_param(d, "bias", TSR_DIMS(4), TSR_AUTO, (tsr_init){.kind = TSR_INIT_ONES});
    /* Chunks of an interleaved pipeline: stages 0 and 2 are on one placement. */
    TRY(tsr_module_stage(a, 0, on[0]));
    TRY(tsr_module_stage(b, 1, on[1]));
    TRY(tsr_module_stage(c, 2, on[0]));
    TRY(tsr_module_stage(d, 1, on[2]));
    TRY(tsr_module_stage(d, 3, on[2]));
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(2, 4), mesh, TSR_ND(TSR_B, TSR_B));
    tsr_tensor *ya = tsr_apply(a, x), *yb = tsr_apply(b, ya), *yc = tsr_apply(c, yb);
    tsr_tensor *yd = tsr_apply(d, yc);
    CHECK(tsr_tensor_placement(ya) == on[0] && tsr_tensor_placement(yb) == on[1]);
    CHECK(tsr_tensor_placement(yc) == on[0] && tsr_tensor_placement(yd) == on[2]);
    /* Outside of modules: the latest operand's, whichever it is. */
    CHECK(tsr_tensor_placement(tsr_add(ya, yb)) == on[1]);
    CHECK(tsr_tensor_placement(tsr_add(yb, ya)) == on[1]);
    CHECK(tsr_tensor_placement(tsr_add(yb, yc)) == on[0]);
    CHECK(tsr_tensor_placement(tsr_add(yc, yd)) == on[2]);
    CHECK(tsr_tensor_placement(tsr_add(x, yb)) == on[1]);
    CHECK(tsr_tensor_placement(tsr_mul_scalar(yb, 2)) == on[1]);
    CHECK(tsr_tensor_placement(tsr_add(tsr_neg(tsr_mul_scalar(ya, 2)), yb)) == on[1]);
    CHECK(tsr_tensor_placement(tsr_mul_scalar(x, 2)) == mesh);
    /* A module without a stage is where its input is. */
    tsr_module *e = linear(root, "e", w, mesh);
    CHECK(tsr_tensor_placement(tsr_apply(e, x)) == mesh);
    CHECK(tsr_tensor_placement(tsr_apply(e, yb)) == on[1]);
    tsr_tensor *three[] = {ya, yd, yb};
    CHECK(tsr_tensor_placement(tsr_concat(3, three, 0)) == on[2]);
    CHECK(tsr_tensor_placement(tsr_matmul(ya, tsr_read(g, tsr_module_find(b, "weight")))) == on[1]);
    /* tsr_to_global still says where something is, and then nothing is moved but what it meets. */
    tsr_tensor *back = tsr_to_global(yd, on[1], TSR_AUTO);
    CHECK(tsr_tensor_placement(tsr_mul_scalar(back, 2)) == on[1]);
    CHECK(tsr_tensor_placement(tsr_add(back, ya)) == on[1]);
    CHECK(tsr_tensor_placement(tsr_add(tsr_to_global(yd, all, TSR_AUTO), ya)) == on[0]);
    tsr_tensor *sum = tsr_sum(tsr_add(tsr_mul(ya, yd), tsr_mul(yb, yc)), TSR_ALL_AXES, false);
    tsr_tensor *of[] = {x, ya}, *dx[2];
    tsr_gradients(sum, 2, of, dx);
    CHECK(tsr_tensor_placement(dx[0]) == mesh && tsr_tensor_placement(dx[1]) == on[0]);
    tsr_output(g, "sum", sum, all, TSR_B);
    tsr_output(g, "dx", dx[0], all, TSR_B);
    tsr_plan *plan;
    double v[8] = {0.1, -0.2, 0.3, 0.4, -0.5, 0.6, 0.7, 0.8}, got[8], up, down;
    TRY(tsr_compile(g, &plan));
    TRY(tsr_feed(plan, "x", v, sizeof v));
    TRY(tsr_run(plan));
    TRY(tsr_fetch(plan, "dx", got, sizeof got));
    for (int i = 0; i < 8; i++) {
        const double was = v[i], h = 1e-5;
        v[i] = was + h;
        TRY(tsr_feed(plan, "x", v, sizeof v));
        TRY(tsr_run(plan));
        TRY(tsr_fetch(plan, "sum", &up, sizeof up));
        v[i] = was - h;
        TRY(tsr_feed(plan, "x", v, sizeof v));
        TRY(tsr_run(plan));
        TRY(tsr_fetch(plan, "sum", &down, sizeof down));
        v[i] = was;
        CHECK(near_to(got[i], (up - down) / (2 * h), 1e-8));
    }
    tsr_plan_destroy(plan);
    tsr_module_destroy(root);
    return TSR_OK;
}

static void test_where(void **state)
{
    (void)state;
    assert_int_equal(tsr_spawn(3, where, NULL), TSR_OK);
}

/* --- one home --------------------------------------------------------------------------------- */
/* A weight that three stages read, of which the first comes before its home: one move to each
 * stage, one gradient from each, one update. */
static tsr_status tied(tsr_world *w, void *arg)
{
    const bool in_stages = tsr_world_size(w) > 1;
    double *out = arg, value[16];
    const tsr_placement *mesh = tsr_placement_parse(w, "cpu"), *on[3];
    tsr_module *root = tsr_module_create(w, NULL, NULL, NULL, NULL);
    const char *const names[] = {"a", "b", "c"};
    tsr_module *m[3];
    for (int i = 0; i < 3; i++) {
        on[i] = tsr_placement_slice(mesh, 0, in_stages ? i : 0);
        m[i] = linear(root, names[i], w, mesh);
        TRY(tsr_module_stage(m[i], i, on[i]));
    }
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input_with(g, "x", TSR_F64, TSR_DIMS(4, 4), mesh, TSR_B,
                                   TSR_INPUT_OPTS(.batch_axis = 0));
    tsr_tensor *weight = tsr_read(g, tsr_module_find(m[1], "weight"));
    x = tsr_apply(m[0], x);
    for (int i = 0; i < 3; i++) {
        x = i ? tsr_apply(m[i], x) : x;
        x = tsr_tanh(x);
        /* At stage 0 the weight's own would be the latest; the reader is told to be at 0. */
        tsr_tensor *here = i == 0 ? tsr_to_global(weight, on[0], TSR_AUTO) : weight;
        x = tsr_add(tsr_matmul(x, here), tsr_matmul(tsr_square(x), here));
        CHECK(tsr_tensor_placement(x) == on[i]);
    }
    tsr_optimizer *opt = tsr_sgd(root, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9));
    tsr_tensor *loss = tsr_mean(tsr_square(x), TSR_ALL_AXES, false), *norm = NULL;
    tsr_minimize_with(opt, 1, &loss, TSR_MINIMIZE_OPTS(.clip_norm = 0.7, .out_norm = &norm));
    tsr_output(g, "norm", norm, mesh, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile_with(g, TSR_COMPILE_OPTS(.microbatches = 2), &plan));
    for (int s = 0; s < 3; s++) {
        double v[16];
        for (int i = 0; i < 16; i++)
            v[i] = sin(i + s);
        TRY(tsr_feed(plan, "x", v, sizeof v));
        TRY(tsr_run(plan));
    }
    /* Bytes that a stage reads: activations and their gradients in each part, 64; once a step the
     * weight, 128, at the two others, and at home one gradient of each of these; and a few scalars.
     */
    tsr_plan_info info = {.size = sizeof info};
    TRY(tsr_plan_get_info(plan, &info));
    const uint64_t most[] = {2 * 64 + 128, 4 * 64 + 2 * 128, 2 * 64 + 128};
    CHECK(!in_stages || info.comm_bytes < most[tsr_world_rank(w)] + 64);
    for (int i = 0; i < 3; i++) {
        TRY(tsr_variable_get(tsr_module_find(m[i], "weight"), value, sizeof value));
        for (int k = 0; k < 16 && !in_stages; k++)
            out[16 * i + k] = value[k];
        CHECK(all_near("weight", value, out + 16 * i, 16, 1e-12));
    }
    tsr_plan_destroy(plan);
    tsr_optimizer_destroy(opt);
    tsr_module_destroy(root);
    return TSR_OK;
}

static void test_tied(void **state)
{
    (void)state;
    double one[48];
    assert_int_equal(tsr_spawn(1, tied, one), TSR_OK);
    assert_int_equal(tsr_spawn(3, tied, one), TSR_OK);
}

/* --- halves ----------------------------------------------------------------------------------- */
/* A function of two stages' halves rounds once, as within one stage: the same bits. */
static tsr_status halves(tsr_world *w, void *arg)
{
    enum { N = 64 };
    const bool in_stages = tsr_world_size(w) > 1;
    uint16_t *out = arg, got[N];
    const tsr_placement *mesh = tsr_placement_parse(w, "cpu");
    tsr_module *root = tsr_module_create(w, NULL, NULL, NULL, NULL), *m[2];
    const tsr_nn_opts nn = {.placement = mesh, .sbp = TSR_B, .dtype = TSR_F16, .seed = 3};
    for (int i = 0; i < 2; i++) {
        m[i] = tsr_module_add(root, i ? "b" : "a", tsr_module_create(w, &nn, NULL, NULL, NULL));
        tsr_module_param(m[i], "v", TSR_DIMS(N), TSR_B,
                         (tsr_init){.kind = TSR_INIT_NORMAL, .a = 0.3, .b = 2});
        TRY(tsr_module_stage(m[i], i, tsr_placement_slice(mesh, 0, in_stages ? i : 0)));
    }
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_read(g, tsr_module_find(m[0], "v"));
    tsr_tensor *y = tsr_read(g, tsr_module_find(m[1], "v"));
    tsr_tensor *e = tsr_binary_cross_entropy_with_logits(x, y, NULL, TSR_NONE);
    tsr_output(g, "e", e, mesh, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    TRY(tsr_run(plan));
    TRY(tsr_fetch(plan, "e", got, sizeof got));
    if (!in_stages)
        memcpy(out, got, sizeof got);
    CHECK(!memcmp(out, got, sizeof got));
    tsr_plan_destroy(plan);
    tsr_module_destroy(root);
    return TSR_OK;
}

static void test_halves(void **state)
{
    (void)state;
    uint16_t one[64];
    assert_int_equal(tsr_spawn(1, halves, one), TSR_OK);
    assert_int_equal(tsr_spawn(2, halves, one), TSR_OK);
}

/* --- refusals --------------------------------------------------------------------------------- */
#define FAILS(expr, want, text)                                                        \
    do {                                                                               \
        CHECK((expr) == (want));                                                       \
        if (!strstr(tsr_last_error(), text)) {                                         \
            fprintf(stderr, "%d: no '%s' in: %s\n", __LINE__, text, tsr_last_error()); \
            return TSR_ERR_INTERNAL;                                                   \
        }                                                                              \
    } while (0)

static tsr_status refusals(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *mesh = tsr_placement_parse(w, "cpu:[[0,1],[2,3]]");
    const tsr_placement *on[2] = {tsr_placement_slice(mesh, 0, 0), tsr_placement_slice(mesh, 0, 1)};
    tsr_module *root = tsr_module_create(w, NULL, NULL, NULL, NULL);
    tsr_module *a = linear(root, "a", w, mesh), *b = linear(root, "b", w, mesh);
    tsr_variable *v = tsr_module_find(a, "weight");
    FAILS(tsr_module_stage(NULL, 0, on[0]), TSR_ERR_INVALID,
          "tsr_module_stage: the module is NULL");
    FAILS(tsr_module_stage(a, -1, on[0]), TSR_ERR_INVALID, "stage -1; legal are 0 to 32766");
    FAILS(tsr_module_stage(a, 32767, on[0]), TSR_ERR_INVALID, "stage 32767; legal are 0 to 32766");
    FAILS(tsr_module_stage(a, 0, NULL), TSR_ERR_PLACEMENT, "stage 0 has no placement");
    FAILS(tsr_module_stage(a, 0, tsr_placement_slice(mesh, 2, 0)), TSR_ERR_PLACEMENT,
          "tsr_placement_slice: dimension 2; placement cpu:[[0,1],[2,3]] has dimensions 0 to 1");
    /* A signature keeps its entries but that of the dimension that is cut. */
    TRY(tsr_module_place(a, "weight", NULL, TSR_ND(TSR_S(1), TSR_S(0))));
    const tsr_placement *other = tsr_placement_parse(w, "cpu:[0,2,3]");
    FAILS(
        tsr_module_stage(a, 0, other), TSR_ERR_SBP,
        "stage 0: variable a.weight: its signature (S(1),S(0)) is of placement cpu:[[0,1],[2,3]], "
        "of which the stage's placement cpu:[0,2,3] is no slice");
    CHECK(tsr_sbp_equal(tsr_variable_sbp(v), TSR_ND(TSR_S(1), TSR_S(0))));
    TRY(tsr_module_stage(a, 0, on[0]));
    CHECK(tsr_sbp_equal(tsr_variable_sbp(v), TSR_S(0)));
    TRY(tsr_module_stage(a, 0, tsr_placement_slice(mesh, 1, 1)));
    CHECK(tsr_sbp_equal(tsr_variable_sbp(v), TSR_S(0)));
    TRY(tsr_module_stage(b, 1, other)); /* B is B anywhere */
    CHECK(tsr_sbp_equal(tsr_variable_sbp(tsr_module_find(b, "weight")), TSR_B));
    TRY(tsr_module_stage(a, 0, on[0]));
    /* Without stages operands are brought together by the user alone. */
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_plan *plan;
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(4, 4), on[0], TSR_B);
    tsr_tensor *y = tsr_input(g, "y", TSR_F64, TSR_DIMS(4, 4), on[1], TSR_B);
    tsr_output(g, "z", tsr_add(x, y), NULL, TSR_AUTO);
    FAILS(
        tsr_compile(g, &plan), TSR_ERR_PLACEMENT,
        "operands live on two placements, cpu:[0,1] and cpu:[2,3] (operand 1); bring them together "
        "with tsr_to_global");
    g = tsr_graph_create(w, NULL);
    x = tsr_input(g, "x", TSR_F64, TSR_DIMS(4, 4), on[1], TSR_B);
    tsr_apply(a, x);
    FAILS(tsr_module_stage(a, 0, on[1]), TSR_ERR_STATE, "variable a.weight is used already");
    tsr_module_destroy(root);
    return TSR_OK;
}

/* Running averages that the user has put elsewhere than their module's stage. */
static tsr_status strayed(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p[2] = {tsr_placement_parse(w, "cpu:[0,1]"),
                                 tsr_placement_parse(w, "cpu:[2,3]")};
    tsr_module *m =
        tsr_nn_batch_norm(w, &(tsr_nn_opts){.placement = p[0], .dtype = TSR_F64}, 4, NULL);
    TRY(tsr_module_stage(m, 0, p[0]));
    TRY(tsr_module_place(m, "running_*", p[1], TSR_B));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_apply(m, tsr_input(g, "x", TSR_F64, TSR_DIMS(4, 4, 2, 2), p[0], TSR_B));
    FAILS(tsr_graph_status(g), TSR_ERR_PLACEMENT,
          "variable running_mean lives on cpu:[2,3], and its new value is computed on cpu:[0,1]");
    tsr_module_destroy(m);
    return TSR_OK;
}

static void test_refusals(void **state)
{
    (void)state;
    assert_int_equal(tsr_spawn(4, refusals, NULL), TSR_OK);
    assert_int_equal(tsr_spawn(4, strayed, NULL), TSR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp),       cmocka_unit_test(test_gpt),
        cmocka_unit_test(test_mobilenet), cmocka_unit_test(test_autocast),
        cmocka_unit_test(test_where),     cmocka_unit_test(test_tied),
        cmocka_unit_test(test_halves),    cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
