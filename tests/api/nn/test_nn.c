/* SPDX-License-Identifier: Apache-2.0 */
/* Ops in parts on 1 to 3 ranks, with the axis split that they sum over: what they give is what the
 * whole op gives, and what they send is a few numbers a row. */
#include "../rank.h"

enum { ROWS = 3, WIDE = 20011 };

typedef struct big {
    double x[ROWS * WIDE], dy[ROWS * WIDE];
    int64_t labels[ROWS];
} big;

static big given; /* to all ranks */

static int fill(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS * WIDE; i++) {
        given.x[i] = 3 * sin(0.7 * i) + (i % 11 == 0 ? 2 : 0);
        given.dy[i] = cos(0.3 * i);
    }
    for (int i = 0; i < ROWS; i++)
        given.labels[i] = (WIDE - 1) * i / (ROWS - 1);
    return 0;
}

typedef struct run {
    tsr_world *w;
    tsr_graph *g;
    const tsr_placement *p;
    tsr_plan *plan;
    tsr_tensor *x, *dy, *labels;
} run;

static void begin(run *r, tsr_world *w, tsr_sbp sbp)
{
    *r = (run){.w = w, .g = tsr_graph_create(w, NULL), .p = tsr_placement_parse(w, "cpu")};
    r->x = tsr_input(r->g, "x", TSR_F64, TSR_DIMS(ROWS, WIDE), r->p, sbp);
    r->dy = tsr_input(r->g, "dy", TSR_F64, TSR_DIMS(ROWS, WIDE), r->p, sbp);
    r->labels = tsr_input(r->g, "labels", TSR_I64, TSR_DIMS(ROWS), r->p, TSR_B);
}

static bool has_input(const run *r, const char *name)
{
    for (int i = 0; i < tsr_plan_nports(r->plan); i++)
        if (!strcmp(tsr_plan_port(r->plan, i).name, name))
            return true;
    return false;
}

/* Compiles, feeds and runs; says what a rank reads from its peers. */
static tsr_status go(run *r, uint64_t *out_bytes)
{
    const big *b = &given;
    TRY(tsr_compile(r->g, &r->plan));
    TRY(tsr_feed(r->plan, "x", b->x, sizeof b->x));
    if (has_input(r, "dy"))
        TRY(tsr_feed(r->plan, "dy", b->dy, sizeof b->dy));
    if (has_input(r, "labels"))
        TRY(tsr_feed(r->plan, "labels", b->labels, sizeof b->labels));
    TRY(tsr_run(r->plan));
    tsr_plan_info info = {.size = sizeof info};
    TRY(tsr_plan_get_info(r->plan, &info));
    *out_bytes = info.comm_bytes;
    return TSR_OK;
}

static bool ran(const run *r, const char *kernel)
{
    tsr_plan_time t[32];
    int n = tsr_plan_times(r->plan, 32, t);
    for (int i = 0; i < n && i < 32; i++)
        if (!t[i].is_comm && !strcmp(t[i].what, kernel))
            return true;
    return false;
}

/* This rank's columns of an output against the whole op's. */
static tsr_status same_shard(const run *r, const char *name, const double *want)
{
    static _Thread_local double got[ROWS * WIDE];
    int64_t first, n;
    tsr_balanced_split(WIDE, tsr_world_size(r->w), tsr_world_rank(r->w), &first, &n);
    TRY(tsr_fetch_shard(r->plan, name, got, (size_t)(ROWS * n) * sizeof *got, NULL));
    for (int64_t i = 0; i < ROWS; i++)
        CHECK(all_near(name, got + i * n, want + i * WIDE + first, n, 1e-12));
    return TSR_OK;
}

static tsr_status softmax(tsr_world *w, void *arg)
{
    const bool is_log = *(const bool *)arg, split = tsr_world_size(w) > 1;
    const big *b = &given;
    static _Thread_local double y[ROWS * WIDE], dx[ROWS * WIDE];
    for (int i = 0; i < ROWS; i++) {
        const double *x = b->x + i * WIDE, *dy = b->dy + i * WIDE;
        double sum = 0, dot = 0;
        for (int j = 0; j < WIDE; j++)
            sum += exp(x[j]);
        for (int j = 0; j < WIDE; j++)
            dot += is_log ? dy[j] : exp(x[j]) / sum * dy[j];
        for (int j = 0; j < WIDE; j++) {
            double p = exp(x[j]) / sum;
            y[i * WIDE + j] = is_log ? x[j] - log(sum) : p;
            dx[i * WIDE + j] = is_log ? dy[j] - p * dot : p * (dy[j] - dot);
        }
    }
    run r;
    uint64_t bytes;
    begin(&r, w, TSR_S(1));
    tsr_tensor *z = is_log ? tsr_log_softmax(r.x, 1) : tsr_softmax(r.x, 1), *grad;
    tsr_gradients(tsr_sum(tsr_mul(z, r.dy), TSR_ALL_AXES, false), 1, &r.x, &grad);
    tsr_output(r.g, "y", z, r.p, TSR_S(1));
    tsr_output(r.g, "dx", grad, r.p, TSR_S(1));
    TRY(go(&r, &bytes));
    TRY(same_shard(&r, "y", y));
    TRY(same_shard(&r, "dx", dx));
    CHECK(bytes < 1000 && (bytes > 0) == split);
    CHECK(ran(&r, "softmax_sum") == split && ran(&r, "softmax") == !split);
    CHECK(ran(&r, "softmax_bwd") == split && ran(&r, "softmax_dx") == !split);
    return TSR_OK;
}

static void test_softmax(void **state)
{
    (void)state;
    on_ranks(softmax, &(bool){false});
    on_ranks(softmax, &(bool){true});
}

static tsr_status cross_entropy(tsr_world *w, void *arg)
{
    const tsr_cross_entropy_opts *o = arg;
    const bool split = tsr_world_size(w) > 1;
    const double s = o->label_smoothing;
    const big *b = &given;
    static _Thread_local double dx[ROWS * WIDE];
    double loss = 0;
    int count = 0;
    for (int i = 0; i < ROWS; i++)
        count += !(o->has_ignore_index && b->labels[i] == o->ignore_index);
    for (int i = 0; i < ROWS; i++) {
        const double *x = b->x + i * WIDE;
        const bool counts = !(o->has_ignore_index && b->labels[i] == o->ignore_index);
        double sum = 0;
        for (int j = 0; j < WIDE; j++)
            sum += exp(x[j]);
        for (int j = 0; j < WIDE; j++) {
            double target = (j == b->labels[i] ? 1 - s : 0) + s / WIDE;
            loss -= counts ? target * (x[j] - log(sum)) / count : 0;
            dx[i * WIDE + j] = counts ? (exp(x[j]) / sum - target) / count : 0;
        }
    }
    run r;
    uint64_t bytes;
    double got;
    begin(&r, w, TSR_S(1));
    tsr_tensor *l = tsr_cross_entropy_with(r.x, r.labels, o), *grad;
    tsr_gradients(l, 1, &r.x, &grad);
    tsr_output(r.g, "loss", l, r.p, TSR_B);
    tsr_output(r.g, "dx", grad, r.p, TSR_S(1));
    TRY(go(&r, &bytes));
    TRY(tsr_fetch_scalar(r.plan, "loss", &got));
    CHECK(near_to(got, loss, 1e-12));
    TRY(same_shard(&r, "dx", dx));
    CHECK(bytes < 1000 && (bytes > 0) == split);
    CHECK(ran(&r, "ce_terms") == split && ran(&r, "ce") == !split);
    /* Another shard's label is none here; one of no shard is an error. */
    int64_t wrong[ROWS] = {0, WIDE, 1};
    TRY(tsr_feed(r.plan, "labels", wrong, sizeof wrong));
    CHECK(tsr_run(r.plan) != TSR_OK && strstr(tsr_last_error(), "label 20011 of row 1"));
    CHECK(strstr(tsr_last_error(), "0 <= label < 20011"));
    return TSR_OK;
}

static void test_cross_entropy(void **state)
{
    (void)state;
    on_ranks(cross_entropy, &(tsr_cross_entropy_opts){.size = sizeof(tsr_cross_entropy_opts)});
    on_ranks(cross_entropy, &(tsr_cross_entropy_opts){.size = sizeof(tsr_cross_entropy_opts),
                                                      .label_smoothing = 0.2,
                                                      .has_ignore_index = true,
                                                      .ignore_index = (WIDE - 1) / 2});
}

static tsr_status layer_norm(tsr_world *w, void *arg)
{
    (void)arg;
    const bool split = tsr_world_size(w) > 1;
    const big *b = &given;
    static _Thread_local double y[ROWS * WIDE], dx[ROWS * WIDE];
    for (int i = 0; i < ROWS; i++) {
        const double *x = b->x + i * WIDE, *dy = b->dy + i * WIDE;
        double mean = 0, var = 0, d0 = 0, d1 = 0;
        for (int j = 0; j < WIDE; j++)
            mean += x[j] / WIDE;
        for (int j = 0; j < WIDE; j++)
            var += (x[j] - mean) * (x[j] - mean) / WIDE;
        const double r = 1 / sqrt(var + 1e-3);
        for (int j = 0; j < WIDE; j++) {
            y[i * WIDE + j] = (x[j] - mean) * r;
            d0 += dy[j] / WIDE;
            d1 += dy[j] * y[i * WIDE + j] / WIDE;
        }
        for (int j = 0; j < WIDE; j++)
            dx[i * WIDE + j] = r * (dy[j] - d0 - y[i * WIDE + j] * d1);
    }
    run r;
    uint64_t bytes;
    begin(&r, w, TSR_S(1));
    tsr_tensor *z = tsr_layer_norm(r.x, NULL, NULL, TSR_LAYER_NORM_OPTS(.eps = 1e-3)), *grad;
    tsr_gradients(tsr_sum(tsr_mul(z, r.dy), TSR_ALL_AXES, false), 1, &r.x, &grad);
    tsr_output(r.g, "y", z, r.p, TSR_S(1));
    tsr_output(r.g, "dx", grad, r.p, TSR_S(1));
    TRY(go(&r, &bytes));
    TRY(same_shard(&r, "y", y));
    TRY(same_shard(&r, "dx", dx));
    CHECK(bytes < 1000 && (bytes > 0) == split);
    /* On GPUs whole rows are one pass forward and one back. */
    const bool apart = split || tsr_placement_device(r.p) == TSR_DEVICE_CPU;
    CHECK(ran(&r, "ln_stats") == apart && ran(&r, "ln_apply"));
    CHECK(ran(&r, "ln_bwd_stats") == apart && ran(&r, "ln_bwd_apply"));
    return TSR_OK;
}

static void test_layer_norm(void **state)
{
    (void)state;
    on_ranks(layer_norm, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_layer_norm),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
