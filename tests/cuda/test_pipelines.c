/* SPDX-License-Identifier: Apache-2.0 */
/* Stages on GPUs work on several micro-batches at a time: losses and variables of one rank on a
 * CPU, to rounding, and the same bits under each schedule, in each order of the emulator's work,
 * and in runs that replay captures, of which there is one for each segment and copy. */
#include "../api/rank.h"

#include <dlfcn.h>

#include "src/plan/plan.h"
#include "tests/cuda/emulator/control.h"
#include "tests/cuda/gpus.h"

enum { ROWS = 24, WIDTH = 6, STEPS = 4, MOST_RANKS = 8, MOST_VALUES = 8 * WIDTH * (WIDTH + 1) };

typedef struct job {
    int stages, each; /* each: ranks of a stage, 1 or 2 */
    int chunks;       /* of a stage: layers come back to the first ranks */
    int parts;        /* 0: one rank of a CPU */
    bool gathers;     /* within each layer */
    bool skips;       /* the last stage adds what the first one gives */
    tsr_pipeline pipeline;
} job;

typedef struct result {
    double loss[STEPS], value[MOST_VALUES];
    int64_t n;
    tsri_comm_stats stats[MOST_RANKS];
    int captured[MOST_RANKS], apart[MOST_RANKS]; /* parts */
} result;

typedef struct run {
    job job;
    result result;
} run;

static test_gpus gpus;
static tsri_emulated_reseed_fn *reseed;

static const tsr_placement *stage_of(tsr_world *w, const job *j, int s)
{
    char text[40];
    const int first = s % j->stages * j->each;
    if (!j->parts)
        return tsr_placement_parse(w, "cpu:[0]");
    snprintf(text, sizeof text, j->each == 1 ? "cuda:[%d]" : "cuda:[%d,%d]", first, first + 1);
    return tsr_placement_parse(w, text);
}

/* A linear layer with dropout and a residual connection. */
static tsr_tensor *apply_layer(tsr_module *m, tsr_tensor *x, void *arg)
{
    const job *j = arg;
    const tsr_placement *p = tsr_tensor_placement(tsr_use(m, "bias", x));
    x = tsr_to_global(x, p, TSR_S(0));
    tsr_tensor *y = j->gathers ? tsr_to_global(x, p, TSR_B) : x;
    y = tsr_silu(tsr_linear(y, tsr_use(m, "weight", y), tsr_use(m, "bias", y)));
    return tsr_add(x, tsr_dropout(tsr_to_global(y, p, TSR_S(0)), 0.2));
}

static tsr_module *make_layer(tsr_world *w, const tsr_placement *p, const job *j)
{
    const tsr_nn_opts opts = {.placement = p, .sbp = TSR_B, .dtype = TSR_F64};
    const tsr_init normal = {.kind = TSR_INIT_NORMAL, .b = 0.3};
    tsr_module *m = tsr_module_create(w, &opts, apply_layer, (void *)(uintptr_t)j, NULL);
    tsr_module_param(m, "weight", TSR_DIMS(WIDTH, WIDTH), TSR_AUTO, normal);
    tsr_module_param(m, "bias", TSR_DIMS(WIDTH), TSR_AUTO, normal);
    return m;
}

static tsr_tensor *declare(tsr_world *w, tsr_graph *g, const job *j, tsr_module *net)
{
    const tsr_input_opts *rows = TSR_INPUT_OPTS(.batch_axis = 0);
    const tsr_placement *last = stage_of(w, j, j->stages - 1);
    tsr_tensor *first = NULL, *x = tsr_input_with(g, "x", TSR_F64, TSR_DIMS(ROWS, WIDTH),
                                                  stage_of(w, j, 0), TSR_S(0), rows);
    for (int s = 0; s < j->stages * j->chunks; s++) {
        char name[12];
        snprintf(name, sizeof name, "%d", s);
        x = tsr_apply(tsr_module_add(net, name, make_layer(w, stage_of(w, j, s), j)), x);
        first = first ? first : x;
    }
    if (j->skips)
        x = tsr_add(x, tsr_to_global(first, last, TSR_AUTO));
    return tsr_cross_entropy(
        x, tsr_input_with(g, "y", TSR_I64, TSR_DIMS(ROWS), last, TSR_S(0), rows), TSR_MEAN);
}

static tsr_status keep(tsr_variable *v, const char *name, void *arg)
{
    result *r = arg;
    const int64_t n = tsr_dims_count(tsr_variable_dims(v));
    (void)name;
    CHECK(r->n + n <= MOST_VALUES);
    TRY(tsr_variable_get(v, r->value + r->n, (size_t)n * sizeof(double)));
    r->n += n;
    return TSR_OK;
}

static tsr_status feed(tsr_plan *plan, int step)
{
    double x[ROWS * WIDTH];
    int64_t y[ROWS];
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = sin(1.7 * i + step);
    for (int i = 0; i < ROWS; i++)
        y[i] = (i * 7 + i / 5 + step) % WIDTH;
    TRY(tsr_feed(plan, "x", x, sizeof x));
    return tsr_feed(plan, "y", y, sizeof y);
}

/* Counts the parts of a capture; no call between stages is in one that is captured. */
static tsr_status look_at_capture(const tsr_plan *plan, int rank, result *r)
{
    const tsri_capture *c = &plan->replay.capture[0];
    for (int k = 0; k < c->nranges && c->nparts; k++) {
        const tsri_replay_range *range = &c->range[k];
        for (int i = 0, step = range->first; i < range->nparts; i++) {
            const tsri_replay_part *part = &c->part[range->first_part + i];
            r->captured[rank] += part->captured != NULL;
            r->apart[rank] += !part->captured;
            for (; step < part->end; step++)
                CHECK(!part->captured == (plan->steps[step].side != TSRI_SIDE_ALL));
        }
    }
    return TSR_OK;
}

static tsr_status train(tsr_world *w, void *arg)
{
    run *t = arg;
    const job *j = &t->job;
    const int rank = tsr_world_rank(w);
    result own = {.n = 0}, *r = rank ? &own : &t->result;
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .seed = 5));
    tsr_module *net = tsr_module_create(
        w, &(tsr_nn_opts){.placement = stage_of(w, j, 0), .sbp = TSR_B, .dtype = TSR_F64}, NULL,
        NULL, NULL);
    tsr_tensor *loss = declare(w, g, j, net);
    tsr_optimizer *opt = tsr_adam(net, TSR_ADAM_OPTS(.lr = 1e-2));
    tsr_plan *plan;
    tsr_minimize(opt, loss);
    tsr_output(g, "loss", loss, tsr_placement_parse(w, j->parts ? "cuda" : "cpu"), TSR_B);
    TRY(tsr_compile_with(g, TSR_COMPILE_OPTS(.microbatches = j->parts, .pipeline = j->pipeline),
                         &plan));
    CHECK(j->parts < 2 || plan->ir.timetable.nstages == (j->stages > 1 ? j->stages : 1));
    for (int s = 0; s < STEPS; s++) {
        TRY(feed(plan, s));
        TRY(tsr_run(plan));
        TRY(tsr_fetch(plan, "loss", &r->loss[s], sizeof(double)));
    }
    TRY(look_at_capture(plan, rank, &t->result));
    tsri_plan_stats(w, &t->result.stats[rank]);
    TRY(tsr_module_visit(net, keep, r));
    CHECK(r->n > 0);
    tsr_plan_destroy(plan);
    tsr_graph_destroy(g);
    tsr_optimizer_destroy(opt);
    tsr_module_destroy(net);
    return TSR_OK;
}

static void train_on(int nranks, run *t)
{
    const tsr_status status = tsr_spawn(nranks, train, t);
    if (status != TSR_OK)
        fail_msg("%d stages of %d, %d chunks, %d parts: %s: %s", t->job.stages, t->job.each,
                 t->job.chunks, t->job.parts, tsr_status_name(status), tsr_last_error());
}

/* On GPUs; captured: runs replay captures, where the communicator's calls can be captured. */
static void train_on_gpus(const job *j, tsr_pipeline pipeline, bool captured, unsigned seed, run *t)
{
    *t = (run){.job = *j};
    t->job.pipeline = pipeline;
    if (reseed)
        reseed(seed);
    setenv("TESSERA_CUDA_GRAPH", captured ? "1" : "0", 1);
    train_on(j->stages * j->each, t);
}

static void check_near(const result *r, const result *one)
{
    assert_int_equal(r->n, one->n);
    assert_true(all_near("loss", r->loss, one->loss, STEPS, 1e-12));
    assert_true(all_near("value", r->value, one->value, one->n, 1e-11));
}

static void check_equal(const result *a, const result *b)
{
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->value, b->value, sizeof a->value);
}

static void hold(job j)
{
    static const struct {
        tsr_pipeline pipeline;
        bool captured;
        unsigned seed; /* 0: the latest order */
    } ways[] = {{TSR_PIPELINE_GPIPE, false, 5},
                {TSR_PIPELINE_1F1B, true, 0},
                {TSR_PIPELINE_GPIPE, true, 2},
                {TSR_PIPELINE_1F1B, false, 1}};
    const char *comm = getenv("TESSERA_CUDA_COMM");
    const bool is_nccl = !comm || strcmp(comm, "local") != 0;
    static run one, first, t;
    j.chunks = j.chunks ? j.chunks : 1;
    j.each = j.each ? j.each : 1;
    const int nranks = j.stages * j.each;
    if (is_nccl && nranks > gpus.n)
        return;
    one = (run){.job = j};
    one.job.parts = 0;
    train_on(1, &one);
    train_on_gpus(&j, TSR_PIPELINE_1F1B, false, 0, &first);
    check_near(&first.result, &one.result);
    for (int k = 0; k < 4; k++) {
        train_on_gpus(&j, ways[k].pipeline, ways[k].captured, ways[k].seed, &t);
        check_equal(&t.result, &first.result);
        assert_memory_equal(t.result.stats, first.result.stats, sizeof t.result.stats);
        const bool captures = ways[k].captured && (is_nccl || nranks == 1);
        for (int r = 0; r < nranks; r++) {
            assert_true(captures ? t.result.captured[r] >= 3 : !t.result.captured[r]);
            assert_true(!captures || j.stages == 1 || t.result.apart[r] > 0);
        }
    }
}

static void test_one_stage(void **state)
{
    (void)state;
    hold((job){.stages = 1, .parts = 4});
    hold((job){.stages = 1, .each = 2, .parts = 3, .gathers = true});
}

static void test_chains(void **state)
{
    (void)state;
    hold((job){.stages = 2, .parts = 6});
    hold((job){.stages = 4, .parts = 8});
    hold((job){.stages = 3, .parts = 6, .skips = true});
}

static void test_data_parallel(void **state)
{
    (void)state;
    hold((job){.stages = 2, .each = 2, .parts = 4});
    hold((job){.stages = 4, .each = 2, .parts = 6, .gathers = true});
}

static void test_interleaved(void **state)
{
    (void)state;
    hold((job){.stages = 2, .chunks = 2, .parts = 4});
    hold((job){.stages = 2, .each = 2, .chunks = 2, .parts = 6, .gathers = true, .skips = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_stage), cmocka_unit_test(test_chains),
        cmocka_unit_test(test_data_parallel), cmocka_unit_test(test_interleaved)};
    const int skipped = test_gpus_find(1, &gpus);
    if (getenv("TESSERA_TEST_ONLY"))
        cmocka_set_test_filter(getenv("TESSERA_TEST_ONLY"));
    const char *name = getenv("TESSERA_CUDA_MODULE");
    void *module = gpus.emulated && name ? dlopen(name, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (module)
        *(void **)&reseed = dlsym(module, "tsri_emulated_reseed");
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
