/* SPDX-License-Identifier: Apache-2.0 */
/* Stages that work on several micro-batches at a time equal one rank with the whole batch: losses,
 * norms and all variables of ten steps, in f64, with data parallel ranks inside a stage; and have
 * the same bits under every schedule. */
#include "../rank.h"

enum { ROWS = 48, WIDTH = 12, STEPS = 10, MOST_STAGES = 8 };

typedef struct job {
    int stages, each; /* each: ranks of a stage, 1 or 2 */
    int chunks;       /* of a stage, 0 is 1: layers come back to the first ranks */
    int parts;
    tsr_pipeline pipeline;
    bool skips; /* the last stage adds what the first one gives */
    bool tied;  /* the last stage uses the first one's weight too */
    bool clips, recompute, scales;
    bool uneven; /* the second stage has three times the layers */
} job;

typedef struct result {
    double loss[STEPS], norm[STEPS];
    double value[MOST_STAGES * 8 * WIDTH * (WIDTH + 2)];
    int64_t n;
    tsr_plan_info info;
} result;

/* One linear layer with dropout and a residual connection. */
static tsr_tensor *apply_layer(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    tsr_tensor *y = tsr_linear(x, tsr_use(m, "weight", x), tsr_use(m, "bias", x));
    return tsr_add(x, tsr_dropout(tsr_silu(y), 0.2));
}

static tsr_module *make_layer(tsr_world *w, const tsr_placement *p)
{
    tsr_module *m = tsr_module_create(
        w, &(tsr_nn_opts){.placement = p, .sbp = TSR_B, .dtype = TSR_F64}, apply_layer, NULL, NULL);
    const tsr_init normal = {.kind = TSR_INIT_NORMAL, .b = 0.3};
    tsr_module_param(m, "weight", TSR_DIMS(WIDTH, WIDTH), TSR_AUTO, normal);
    tsr_module_param(m, "bias", TSR_DIMS(WIDTH), TSR_AUTO, normal);
    return m;
}

/* Of a reference all stages are rank 0's. */
static const tsr_placement *stage(tsr_world *w, const job *j, int s)
{
    char text[40];
    if (j->parts == 0)
        return tsr_placement_parse(w, "cpu:[0]");
    s %= j->stages;
    snprintf(text, sizeof text, j->each == 1 ? "cpu:[%d]" : "cpu:[%d,%d]", s * j->each,
             s * j->each + 1);
    return tsr_placement_parse(w, text);
}

static tsr_status keep(tsr_variable *v, const char *name, void *arg)
{
    result *r = arg;
    const int64_t n = tsr_dims_count(tsr_variable_dims(v));
    (void)name;
    CHECK(r->n + n <= (int64_t)(sizeof r->value / sizeof *r->value));
    TRY(tsr_variable_get(v, r->value + r->n, (size_t)n * sizeof(double)));
    r->n += n;
    return TSR_OK;
}

static tsr_tensor *declare(tsr_world *w, tsr_graph *g, const job *j, tsr_module *net)
{
    char name[20];
    tsr_tensor *x = tsr_input_with(g, "x", TSR_F64, TSR_DIMS(ROWS, WIDTH), stage(w, j, 0), TSR_S(0),
                                   TSR_INPUT_OPTS(.batch_axis = 0));
    tsr_tensor *first = NULL;
    const tsr_placement *last = stage(w, j, j->stages - 1);
    for (int s = 0; s < j->stages * (j->chunks ? j->chunks : 1); s++)
        for (int i = 0; i < (j->uneven && s == 1 ? 3 : 1); i++) {
            snprintf(name, sizeof name, "%d", 4 * s + i);
            tsr_module *m = tsr_module_add(net, name, make_layer(w, stage(w, j, s)));
            if (j->recompute && s % 2 == 0)
                tsr_module_recompute(m);
            x = tsr_apply(m, x);
            first = first ? first : x;
        }
    if (j->skips)
        x = tsr_add(x, tsr_to_global(first, last, TSR_AUTO));
    if (j->tied)
        x = tsr_matmul(
            x, tsr_to_global(tsr_read(g, tsr_module_find(net, "0.weight")), last, TSR_AUTO));
    tsr_tensor *y = tsr_input_with(g, "y", TSR_I64, TSR_DIMS(ROWS), last, TSR_S(0),
                                   TSR_INPUT_OPTS(.batch_axis = 0));
    return tsr_cross_entropy_with(
        x, y, TSR_CROSS_ENTROPY_OPTS(.has_ignore_index = true, .ignore_index = 3));
}

static tsr_status train(tsr_world *w, const job *j, result *out)
{
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .seed = 5));
    tsr_module *net = tsr_module_create(
        w, &(tsr_nn_opts){.placement = stage(w, j, 0), .sbp = TSR_B, .dtype = TSR_F64}, NULL, NULL,
        NULL);
    tsr_tensor *loss = declare(w, g, j, net), *norm = NULL;
    tsr_optimizer *opt = tsr_adam(net, TSR_ADAM_OPTS(.lr = 1e-2));
    tsr_grad_scaler *scaler = j->scales ? tsr_grad_scaler_create(w, NULL) : NULL;
    tsr_plan *plan;
    tsr_minimize_with(
        opt, 1, &loss,
        TSR_MINIMIZE_OPTS(.clip_norm = j->clips ? 0.1 : 0, .out_norm = &norm, .scaler = scaler));
    const tsr_placement *all = tsr_placement_parse(w, "cpu");
    tsr_output(g, "loss", loss, all, TSR_B);
    tsr_output(g, "norm", norm, all, TSR_B);
    TRY(tsr_compile_with(g, TSR_COMPILE_OPTS(.microbatches = j->parts, .pipeline = j->pipeline),
                         &plan));
    for (int s = 0; s < STEPS; s++) {
        double x[ROWS * WIDTH];
        int64_t y[ROWS];
        for (int i = 0; i < ROWS * WIDTH; i++)
            x[i] = sin(1.7 * i + s);
        for (int i = 0; i < ROWS; i++)
            y[i] = (i * 7 + i / 5 + s) % WIDTH;
        TRY(tsr_feed(plan, "x", x, sizeof x));
        TRY(tsr_feed(plan, "y", y, sizeof y));
        TRY(tsr_run(plan));
        TRY(tsr_fetch(plan, "loss", &out->loss[s], sizeof(double)));
        TRY(tsr_fetch(plan, "norm", &out->norm[s], sizeof(double)));
    }
    out->n = 0;
    TRY(tsr_module_visit(net, keep, out));
    out->info.size = sizeof out->info;
    TRY(tsr_plan_get_info(plan, &out->info));
    if (getenv("PP_EXPLAIN") && j->parts > 1)
        puts(tsr_plan_explain(plan));
    tsr_plan_destroy(plan);
    tsr_graph_destroy(g);
    tsr_optimizer_destroy(opt);
    tsr_grad_scaler_destroy(scaler);
    tsr_module_destroy(net);
    return TSR_OK;
}

static tsr_status compare(tsr_world *w, job j, result *r)
{
    job one = j;
    one.parts = 0;
    one.recompute = false;
    TRY(train(w, &one, &r[0]));
    for (j.parts = 1; j.parts <= 12; j.parts = j.parts == 1 ? 2 : j.parts * 2 - j.parts / 4) {
        if (ROWS % (j.parts * j.each))
            continue;
        for (int k = 0; k < 2; k++) {
            j.pipeline = k ? TSR_PIPELINE_GPIPE : TSR_PIPELINE_1F1B;
            TRY(train(w, &j, &r[1 + k]));
            CHECK(all_near("loss", r[1 + k].loss, r->loss, STEPS, 1e-12));
            CHECK(all_near("norm", r[1 + k].norm, r->norm, STEPS, 1e-12));
            CHECK(r[1 + k].n == r->n && all_near("value", r[1 + k].value, r->value, r->n, 1e-11));
        }
        CHECK(!memcmp(r[1].value, r[2].value, (size_t)r->n * sizeof(double)));
        CHECK(!memcmp(r[1].loss, r[2].loss, sizeof r->loss));
    }
    return TSR_OK;
}

static tsr_status as_one(tsr_world *w, void *arg)
{
    result *r = calloc(3, sizeof *r);
    CHECK(r);
    const tsr_status status = compare(w, *(const job *)arg, r);
    free(r);
    return status;
}

static void hold(job j)
{
    j.each = j.each ? j.each : 1;
    const tsr_status status = tsr_spawn(j.stages * j.each, as_one, &j);
    if (status != TSR_OK)
        fail_msg("%d stages of %d: %s: %s", j.stages, j.each, tsr_status_name(status),
                 tsr_last_error());
}

static void test_chains(void **state)
{
    (void)state;
    hold((job){.stages = 2});
    hold((job){.stages = 4, .clips = true});
    hold((job){.stages = 3, .uneven = true});
    hold((job){.stages = 8});
}

static void test_interleaved(void **state)
{
    (void)state;
    hold((job){.stages = 2, .chunks = 2, .clips = true});
    hold((job){.stages = 3, .chunks = 2, .recompute = true});
    hold((job){.stages = 2, .each = 2, .chunks = 3});
}

static void test_data_parallel(void **state)
{
    (void)state;
    hold((job){.stages = 2, .each = 2, .clips = true});
    hold((job){.stages = 3, .each = 2, .uneven = true, .scales = true});
}

static void test_other_graphs(void **state)
{
    (void)state;
    hold((job){.stages = 3, .skips = true});
    hold((job){.stages = 3, .tied = true, .clips = true});
    hold((job){.stages = 4, .each = 2, .skips = true, .tied = true});
    hold((job){.stages = 3, .recompute = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains), cmocka_unit_test(test_interleaved),
        cmocka_unit_test(test_data_parallel), cmocka_unit_test(test_other_graphs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
