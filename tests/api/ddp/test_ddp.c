/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_ddp: what it computes, and what it says when ranks do not do the same. Against PyTorch's:
 * tests/models/ddp_parity.py. */
#include "ddp_rank.h"

#include <time.h>

enum { INPUTS = 6, HIDDEN = 5, OUTPUTS = 4 };

static tsr_module *make_mlp(tsr_world *w, const tsr_placement *p)
{
    return tsr_mlp(w, p, TSR_B,
                   TSR_MLP_OPTS(.inputs = INPUTS, .hidden = HIDDEN, .outputs = OUTPUTS,
                                .dtype = TSR_F64, .seed = 7));
}

static double sample(int64_t row, int64_t i, int step)
{
    return sin(1.7 * (double)row + 0.9 * (double)i + 2.3 * step);
}

static void fill(int64_t first, int64_t rows, int step, double *x, int64_t *y)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < INPUTS; i++)
            x[r * INPUTS + i] = sample(first + r, i, step);
        y[r] = (first + r + step) % OUTPUTS;
    }
}

static tsr_status compile_step(tsr_world *w, const tsr_placement *p, tsr_module *net, int64_t rows,
                               tsr_ddp *ddp, tsr_optimizer *opt, tsr_plan **out_plan)
{
    bool local = ddp != NULL;
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = local));
    tsr_sbp sbp = local ? TSR_B : TSR_S(0);
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(rows, INPUTS), p, sbp);
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(rows), p, sbp);
    tsr_tensor *loss = tsr_cross_entropy(tsr_apply(net, x), y, TSR_MEAN);
    tsr_output(g, "loss", loss, p, TSR_B);
    if (local)
        tsr_ddp_backward(ddp, loss);
    else
        tsr_minimize(opt, loss);
    return tsr_compile(g, out_plan);
}

static tsr_status feed(tsr_plan *plan, int64_t first, int64_t rows, int step)
{
    double x[32 * INPUTS];
    int64_t y[32];
    fill(first, rows, step, x, y);
    TRY(tsr_feed(plan, "x", x, (size_t)rows * INPUTS * sizeof *x));
    return tsr_feed(plan, "y", y, (size_t)rows * sizeof *y);
}

typedef struct snapshot {
    double v[256];
    int64_t n;
} snapshot;

static tsr_status add_value(tsr_variable *v, const char *name, void *arg)
{
    snapshot *s = arg;
    int64_t n = tsr_dims_count(tsr_variable_dims(v));
    (void)name;
    CHECK(s->n + n <= 256);
    TRY(tsr_variable_get(v, s->v + s->n, (size_t)n * sizeof *s->v));
    s->n += n;
    return TSR_OK;
}

/* --- the same as a program over global tensors ------------------------------------------------ */
enum { ROWS = 3, STEPS = 4 };

static tsr_status all_ranks(tsr_world *w, char buf[64])
{
    size_t at = (size_t)snprintf(buf, 64, "cpu:[0");
    for (int r = 1; r < tsr_world_size(w); r++)
        at += (size_t)snprintf(buf + at, 64 - at, ",%d", r);
    snprintf(buf + at, 64 - at, "]");
    return TSR_OK;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* arg: not NULL where backward computes the module again. */
static tsr_status equals_global(tsr_world *w, void *arg)
{
    int rank = tsr_world_rank(w), n = tsr_world_size(w);
    char text[64];
    TRY(all_ranks(w, text));
    const tsr_placement *all = tsr_placement_parse(w, text), *here = tsr_local_placement(w);
    tsr_module *one = make_mlp(w, all), *mine = make_mlp(w, here);
    tsr_ddp *ddp;
    if (arg)
        TRY(tsr_module_recompute(mine));
    TRY(tsr_ddp_create(mine, NULL, &ddp));
    tsr_optimizer *opt_one = tsr_sgd(one, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9));
    tsr_optimizer *opt_mine = tsr_sgd(mine, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9));
    tsr_plan *global, *local;
    double spent_s = 0;
    TRY(compile_step(w, all, one, (int64_t)ROWS * n, NULL, opt_one, &global));
    TRY(compile_step(w, here, mine, ROWS, ddp, NULL, &local));
    for (int i = 0; i < STEPS; i++) {
        double want, got;
        TRY(feed(global, 0, (int64_t)ROWS * n, i));
        TRY(feed(local, (int64_t)ROWS * rank, ROWS, i));
        TRY(tsr_run(global));
        double start_s = now_s();
        TRY(tsr_ddp_run(ddp, local));
        spent_s += now_s() - start_s;
        TRY(tsr_ddp_step(ddp, opt_mine));
        TRY(tsr_fetch_scalar(global, "loss", &want));
        TRY(tsr_fetch_scalar(local, "loss", &got));
        TRY(tsr_all_reduce(tsr_world_group(w), &got, 1, TSR_F64, TSR_REDUCE_AVG));
        CHECK(near_to(got, want, 1e-13));
    }
    snapshot a = {.n = 0}, b = {.n = 0};
    TRY(tsr_module_visit(one, add_value, &a));
    TRY(tsr_module_visit(mine, add_value, &b));
    CHECK(a.n == b.n && all_near("parameter", b.v, a.v, a.n, 1e-13));
    tsr_ddp_info info = {.size = sizeof info};
    TRY(tsr_ddp_get_info(ddp, &info));
    CHECK(info.nranks == n && info.syncs == STEPS && info.steps == STEPS && info.nbuckets == 1);
    CHECK(info.bucket_cap_bytes == 25 << 20 && info.first_bucket_bytes == 1 << 20);
    CHECK(info.run_s > 0 && info.run_s <= spent_s);
    CHECK(info.overlap_s >= 0 && info.overlap_s <= info.comm_s && info.comm_s <= spent_s);
    CHECK(tsr_optimizer_steps(opt_mine) == STEPS);
    return tsr_ddp_close(&ddp);
}

static void test_equals_global(void **state)
{
    (void)state;
    static int recomputes;
    for (int n = 1; n <= 4; n++)
        expect_ok(n, equals_global, NULL);
    expect_ok(2, equals_global, &recomputes);
}

/* --- local graphs of different sizes ---------------------------------------------------------- */
static tsr_status uneven(tsr_world *w, void *arg)
{
    (void)arg;
    int rank = tsr_world_rank(w), n = tsr_world_size(w);
    tsr_module *net = make_mlp(w, tsr_local_placement(w));
    tsr_ddp *ddp;
    TRY(tsr_ddp_create(net, NULL, &ddp));
    tsr_plan *plan;
    int64_t rows = 1 + 2 * rank;
    TRY(compile_step(w, tsr_local_placement(w), net, rows, ddp, NULL, &plan));
    TRY(feed(plan, 0, rows, rank));
    tsr_variable *v = tsr_module_find(net, "2.bias");
    bool there;
    tsr_ddp_no_sync(ddp, true);
    TRY(tsr_ddp_run(ddp, plan));
    double want[OUTPUTS];
    memcpy(want, tsr_ddp_gradient(ddp, v, &there), sizeof want);
    CHECK(there);
    for (int i = 0; i < OUTPUTS; i++)
        want[i] *= 1.0 / n;
    TRY(tsr_all_reduce(tsr_world_group(w), want, OUTPUTS, TSR_F64, TSR_REDUCE_SUM));
    tsr_ddp_zero_grad(ddp);
    tsr_ddp_no_sync(ddp, false);
    TRY(tsr_ddp_run(ddp, plan));
    CHECK(all_near("gradient", tsr_ddp_gradient(ddp, v, &there), want, OUTPUTS, 1e-15));
    /* What is there is added to: the average of each rank's own and the average so far. */
    TRY(tsr_ddp_run(ddp, plan));
    for (int i = 0; i < OUTPUTS; i++)
        want[i] *= 2;
    CHECK(all_near("twice", tsr_ddp_gradient(ddp, v, &there), want, OUTPUTS, 1e-15));
    return tsr_ddp_close(&ddp);
}

static void test_uneven(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++)
        expect_ok(n, uneven, NULL);
}

/* --- buckets ---------------------------------------------------------------------------------- */
static tsr_status buckets(tsr_world *w, void *arg)
{
    static const double mib[] = {0.4, 0.4, 0.4, 10, 10, 10, 30, 1};
    (void)arg;
    const tsr_nn_opts nn = {.placement = tsr_local_placement(w), .sbp = TSR_B};
    tsr_module *m = tsr_module_create(w, &nn, NULL, NULL, NULL);
    for (int i = 0; i < 8; i++) {
        char name[8];
        snprintf(name, sizeof name, "p%d", i);
        int64_t n = (int64_t)(mib[i] * 1048576) / 4;
        CHECK(tsr_module_param(m, name, TSR_DIMS(n), TSR_B, (tsr_init){0}));
    }
    tsr_ddp *ddp;
    TRY(tsr_ddp_create(m, NULL, &ddp));
    /* From the last parameter on: the first bucket is full at 1 MiB, the others at 25. */
    static const double want[] = {1, 30, 30, 1.2};
    for (int b = 0; b < 4; b++)
        CHECK(fabs((double)tsr_ddp_bucket_bytes(ddp, b) / 1048576 - want[b]) < 1e-3);
    CHECK(tsr_ddp_bucket_bytes(ddp, 4) == 0);
    TRY(tsr_ddp_close(&ddp));
    TRY(tsr_ddp_create(m, TSR_DDP_OPTS(.bucket_cap_mb = 5), &ddp));
    static const double small[] = {1, 30, 10, 10, 10, 1.2};
    for (int b = 0; b < 6; b++)
        CHECK(fabs((double)tsr_ddp_bucket_bytes(ddp, b) / 1048576 - small[b]) < 1e-3);
    return tsr_ddp_close(&ddp);
}

static void test_buckets(void **state)
{
    (void)state;
    expect_ok(1, buckets, NULL);
}

/* --- parameters that some ranks do not use ---------------------------------------------------- */
static tsr_tensor *two_terms(tsr_module *m, tsr_tensor *x, void *arg)
{
    const bool *uses_b = arg;
    tsr_tensor *y = tsr_mul(x, tsr_use(m, "a", x));
    return *uses_b ? tsr_add(y, tsr_mul(x, tsr_use(m, "b", x))) : y;
}

static tsr_status unused(tsr_world *w, void *arg)
{
    (void)arg;
    bool uses_b = tsr_world_rank(w) == 1;
    const tsr_placement *here = tsr_local_placement(w);
    const tsr_nn_opts nn = {.placement = here, .sbp = TSR_B};
    tsr_module *m = tsr_module_create(w, &nn, two_terms, &uses_b, NULL);
    tsr_variable *b = NULL, *c = NULL;
    CHECK(tsr_module_param(m, "a", TSR_DIMS(1), TSR_B, (tsr_init){0}));
    CHECK((b = tsr_module_param(m, "b", TSR_DIMS(1), TSR_B, (tsr_init){0})));
    CHECK((c = tsr_module_param(m, "c", TSR_DIMS(1), TSR_B, (tsr_init){TSR_INIT_ONES, 0, 0, 0})));
    tsr_ddp *ddp, *strict;
    TRY(tsr_ddp_create(m, TSR_DDP_OPTS(.find_unused_parameters = true), &ddp));
    TRY(tsr_ddp_create(m, NULL, &strict));
    tsr_optimizer *sgd = tsr_sgd(m, TSR_SGD_OPTS(.lr = 1, .weight_decay = 0.5));
    for (int k = 0; k < 2; k++) {
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
        tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(1), here, TSR_B);
        tsr_ddp_backward(k ? strict : ddp, tsr_sum(tsr_apply(m, x), TSR_ALL_AXES, false));
        tsr_plan *plan;
        if (k) {
            FAILS(tsr_compile(g, &plan), TSR_ERR_STATE, "'c' (2)");
            CHECK(!!strstr(tsr_last_error(), "'b' (1)") == !uses_b);
            break;
        }
        TRY(tsr_compile(g, &plan));
        const float two = 2;
        TRY(tsr_feed(plan, "x", &two, sizeof two));
        TRY(tsr_ddp_run(ddp, plan));
        bool there;
        const float *grad = tsr_ddp_gradient(ddp, b, &there);
        CHECK(there && *grad == 1); /* (0 + 2) / 2 */
        tsr_ddp_gradient(ddp, c, &there);
        CHECK(!there);
        TRY(tsr_ddp_step(ddp, sgd));
        float value;
        TRY(tsr_variable_get(b, &value, sizeof value));
        CHECK(value == -1);
        TRY(tsr_variable_get(c, &value, sizeof value));
        CHECK(value == 1); /* no gradient: no decay either */
        tsr_ddp_info info = {.size = sizeof info};
        TRY(tsr_ddp_get_info(ddp, &info));
        CHECK(info.unused == 1);
    }
    tsr_ddp_destroy(strict);
    return tsr_ddp_close(&ddp);
}

static void test_unused(void **state)
{
    (void)state;
    expect_ok(2, unused, NULL);
}

/* --- ranks that do not do the same ------------------------------------------------------------ */
static tsr_status one_less(tsr_world *w, void *arg)
{
    const char *const *texts = arg;
    int rank = tsr_world_rank(w);
    tsr_module *net = make_mlp(w, tsr_local_placement(w));
    tsr_ddp *ddp;
    TRY(tsr_ddp_create(net, NULL, &ddp));
    tsr_plan *plan;
    TRY(compile_step(w, tsr_local_placement(w), net, ROWS, ddp, NULL, &plan));
    TRY(feed(plan, 0, ROWS, 0));
    tsr_status status = TSR_OK;
    for (int i = 0; i < (rank == 1 ? 2 : 3) && status == TSR_OK; i++)
        status = tsr_ddp_run(ddp, plan);
    if (status == TSR_OK)
        status = tsr_ddp_close(&ddp);
    else
        tsr_ddp_destroy(ddp);
    if (ON_DEVICE && status == TSR_ERR_REMOTE) /* by NCCL the first to find it tells the others */
        status = TSR_ERR_MISMATCH;
    for (int i = 0; texts[i]; i++)
        FAILS(status, TSR_ERR_MISMATCH, texts[i]);
    return TSR_OK;
}

static void test_one_less(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "rank 0 is at all_reduce", "ddp run 3, bucket 0",  "test_ddp.c",
        "rank 1 is at barrier",    "ddp end after 2 runs", NULL};
    expect_ok(2, one_less, (void *)(uintptr_t)texts);
}

static tsr_status other_module(tsr_world *w, void *arg)
{
    (void)arg;
    int64_t inputs = tsr_world_rank(w) == 2 ? INPUTS + 1 : INPUTS;
    const tsr_placement *here = tsr_local_placement(w);
    tsr_module *net = tsr_mlp(w, here, TSR_B, TSR_MLP_OPTS(.inputs = inputs, .hidden = 5));
    tsr_ddp *ddp;
    FAILS(tsr_ddp_create(net, NULL, &ddp), TSR_ERR_MISMATCH,
          "on rank 0 parameter 0 is '0.weight' f32 (5,6); on rank 2 parameter 0 is '0.weight' f32 "
          "(5,7)");
    /* Nothing is over: the group goes on. */
    net = make_mlp(w, here);
    bool odd = tsr_world_rank(w) == 1;
    FAILS(tsr_ddp_create(net, TSR_DDP_OPTS(.static_graph = odd), &ddp), TSR_ERR_MISMATCH,
          "ranks 0 and 1 give different options");
    TRY(tsr_ddp_create(net, NULL, &ddp));
    return tsr_ddp_close(&ddp);
}

static void test_other_module(void **state)
{
    (void)state;
    expect_ok(3, other_module, NULL);
}

/* --- join ------------------------------------------------------------------------------------- */
/* w starts at 1; each gradient is 1: rank r has r + 1 batches. */
static tsr_status join(tsr_world *w, void *arg)
{
    const tsr_ddp_join_opts *how = arg;
    int rank = tsr_world_rank(w), n = tsr_world_size(w);
    const tsr_placement *here = tsr_local_placement(w);
    const tsr_nn_opts nn = {.placement = here, .sbp = TSR_B, .dtype = TSR_F64};
    tsr_module *net = tsr_nn_linear(w, &nn, 1, 1, false);
    tsr_variable *v = tsr_module_find(net, "weight");
    const double one = 1;
    TRY(tsr_variable_set(v, &one, sizeof one));
    tsr_ddp *ddp;
    TRY(tsr_ddp_create(net, NULL, &ddp));
    FAILS(tsr_ddp_join(ddp), TSR_ERR_STATE, "tsr_ddp_join_begin comes first");
    tsr_optimizer *sgd = tsr_sgd(net, TSR_SGD_OPTS(.lr = 0.5));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(1, 1), here, TSR_B);
    tsr_ddp_backward(ddp, tsr_sum(tsr_apply(net, x), TSR_ALL_AXES, false));
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    TRY(tsr_feed(plan, "x", &one, sizeof one));
    TRY(tsr_ddp_join_begin(ddp, how));
    tsr_status status = TSR_OK;
    for (int i = 0; i <= rank && status == TSR_OK; i++) {
        status = tsr_ddp_run(ddp, plan);
        if (status == TSR_OK)
            TRY(tsr_ddp_step(ddp, sgd));
    }
    if (status == TSR_OK)
        status = tsr_ddp_join(ddp);
    if (how->throw_on_early_termination) {
        FAILS(status, TSR_ERR_STATE, "rank 0 has exhausted its inputs after 1 runs");
        tsr_ddp_destroy(ddp);
        return TSR_OK;
    }
    TRY(status);
    double want = 1, got;
    for (int i = 0; i < n; i++) /* n - i ranks go on in run i */
        want -= 0.5 * (how->divide_by_active ? 1 : (double)(n - i) / n);
    TRY(tsr_variable_get(v, &got, sizeof got));
    CHECK(near_to(got, want, 1e-14));
    return tsr_ddp_close(&ddp);
}

static void test_join(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++) {
        expect_ok(n, join, (void *)(uintptr_t)TSR_DDP_JOIN_OPTS(.divide_by_active = false));
        expect_ok(n, join, (void *)(uintptr_t)TSR_DDP_JOIN_OPTS(.divide_by_active = true));
        if (n > 1)
            expect_ok(n, join,
                      (void *)(uintptr_t)TSR_DDP_JOIN_OPTS(.throw_on_early_termination = true));
    }
}

/* --- wrong calls ------------------------------------------------------------------------------ */
static tsr_status wrong(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *here = tsr_local_placement(w), *all = tsr_placement_parse(w, "cpu:[0,1]");
    tsr_module *net = make_mlp(w, here);
    tsr_ddp *ddp = NULL;
    FAILS(tsr_ddp_create(NULL, NULL, &ddp), TSR_ERR_INVALID, "the module is NULL");
    const tsr_ddp_opts no_size = {0};
    FAILS(tsr_ddp_create(net, &no_size, &ddp), TSR_ERR_INVALID, "size is 0");
    FAILS(tsr_ddp_create(net, NULL, NULL), TSR_ERR_INVALID, "out_ddp is NULL");
    char text[64];
    snprintf(text, sizeof text, "0.weight is on %s:[0,1]", DEVICE_NAME);
    FAILS(tsr_ddp_create(make_mlp(w, all), NULL, &ddp), TSR_ERR_PLACEMENT, text);
    FAILS(tsr_ddp_create(net, TSR_DDP_OPTS(.bucket_cap_mb = -1), &ddp), TSR_ERR_INVALID,
          "bucket_cap_mb is -1");
    FAILS(tsr_ddp_create(net, TSR_DDP_OPTS(.bucket_cap_mb = NAN), &ddp), TSR_ERR_INVALID,
          "bucket_cap_mb is nan");
    FAILS(tsr_ddp_create(net, TSR_DDP_OPTS(.bucket_cap_mb = 1e300), &ddp), TSR_ERR_INVALID,
          "bucket_cap_mb is 1e+300; expected MiB up to 1e+12");
    static const char *const every[] = {"*"};
    FAILS(tsr_ddp_create(net, TSR_DDP_OPTS(.nignored = 1, .ignored = every), &ddp), TSR_ERR_INVALID,
          "no parameters to average");
    FAILS(tsr_ddp_close(&ddp), TSR_ERR_INVALID, "ddp is NULL");
    CHECK(!tsr_local_placement(NULL));
    TRY(tsr_ddp_create(net, NULL, &ddp));
    tsr_optimizer *sgd = tsr_sgd(net, NULL);
    FAILS(tsr_ddp_step(ddp, sgd), TSR_ERR_STATE, "there is no gradient");
    FAILS(tsr_ddp_step(ddp, NULL), TSR_ERR_INVALID, "the optimizer is NULL");
    FAILS(tsr_ddp_run(ddp, NULL), TSR_ERR_INVALID, "no plan");
    tsr_plan *plan;
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(1, INPUTS), here, TSR_B);
    tsr_ddp_backward(ddp, tsr_sum(tsr_apply(net, x), TSR_ALL_AXES, false));
    FAILS(tsr_graph_status(g), TSR_ERR_STATE, ".local = true");
    g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .local = true));
    x = tsr_input(g, "x", TSR_F64, TSR_DIMS(1, INPUTS), here, TSR_B);
    tsr_ddp_backward(ddp, tsr_apply(net, x));
    FAILS(tsr_graph_status(g), TSR_ERR_SHAPE, "must be a scalar");
    g = tsr_graph_create(w, TSR_GRAPH_OPTS(.local = true));
    x = tsr_input(g, "x", TSR_F64, TSR_DIMS(1, INPUTS), here, TSR_B);
    tsr_output(g, "y", tsr_apply(net, x), here, TSR_B);
    TRY(tsr_compile(g, &plan));
    FAILS(tsr_ddp_run(ddp, plan), TSR_ERR_STATE, "has no backward pass");
    return tsr_ddp_close(&ddp);
}

static void test_wrong(void **state)
{
    (void)state;
    expect_ok(2, wrong, NULL);
}

/* A plan that was run with tsr_ddp_run can't be run past it. */
static tsr_status past_it(tsr_world *w, void *arg)
{
    (void)arg;
    tsr_module *net = make_mlp(w, tsr_local_placement(w));
    tsr_ddp *ddp;
    TRY(tsr_ddp_create(net, NULL, &ddp));
    tsr_plan *plan;
    TRY(compile_step(w, tsr_local_placement(w), net, ROWS, ddp, NULL, &plan));
    TRY(feed(plan, 0, ROWS, 0));
    TRY(tsr_ddp_run(ddp, plan));
    FAILS(tsr_run(plan), TSR_ERR_STATE, "run it with tsr_ddp_run");
    tsr_ddp_destroy(ddp);
    /* One whose last run succeeded is over with its ddp. */
    TRY(tsr_ddp_create(net, NULL, &ddp));
    TRY(compile_step(w, tsr_local_placement(w), net, ROWS, ddp, NULL, &plan));
    TRY(feed(plan, 0, ROWS, 0));
    TRY(tsr_ddp_run(ddp, plan));
    tsr_ddp_destroy(ddp);
    FAILS(tsr_run(plan), TSR_ERR_STATE, "of this plan was destroyed");
    return TSR_OK;
}

static void test_past_it(void **state)
{
    (void)state;
    expect_ok(1, past_it, NULL);
}

/* Parameters of each rank's own keep their values and get no gradient. */
static tsr_status ignored(tsr_world *w, void *arg)
{
    (void)arg;
    static const char *const mine[] = {"0.*"};
    tsr_module *net = make_mlp(w, tsr_local_placement(w));
    double own[HIDDEN], found[HIDDEN];
    for (int i = 0; i < HIDDEN; i++)
        own[i] = tsr_world_rank(w) + 0.25 * i;
    tsr_variable *v = tsr_module_find(net, "0.bias");
    TRY(tsr_variable_set(v, own, sizeof own));
    tsr_ddp *ddp;
    TRY(tsr_ddp_create(net, TSR_DDP_OPTS(.nignored = 1, .ignored = mine), &ddp));
    TRY(tsr_variable_get(v, found, sizeof found));
    CHECK(!memcmp(own, found, sizeof own));
    bool there = true;
    CHECK(!tsr_ddp_gradient(ddp, v, &there) && !there);
    CHECK(!tsr_ddp_gradient(ddp, v, NULL));
    tsr_ddp_info info = {.size = sizeof info};
    TRY(tsr_ddp_get_info(ddp, &info));
    CHECK(info.nparams == 2);
    return tsr_ddp_close(&ddp);
}

static void test_ignored(void **state)
{
    (void)state;
    expect_ok(2, ignored, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_global), cmocka_unit_test(test_uneven),
        cmocka_unit_test(test_buckets),       cmocka_unit_test(test_unused),
        cmocka_unit_test(test_one_less),      cmocka_unit_test(test_other_module),
        cmocka_unit_test(test_join),          cmocka_unit_test(test_past_it),
        cmocka_unit_test(test_wrong),         cmocka_unit_test(test_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
