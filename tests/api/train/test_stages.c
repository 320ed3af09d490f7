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
    bool clips, zero, recompute, scales;
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
    tsr_minimize_with(
        opt, 1, &t.loss,
        TSR_MINIMIZE_OPTS(.clip_norm = j->clips ? 0.5 : 0, .out_norm = &norm, .scaler = scaler));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp),
        cmocka_unit_test(test_gpt),
        cmocka_unit_test(test_mobilenet),
        cmocka_unit_test(test_autocast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
