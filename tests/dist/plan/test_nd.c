/* SPDX-License-Identifier: Apache-2.0 */
/* Training over meshes of several dimensions and over several placements: the same losses and the
 * same parameters as on one rank, whatever the signatures; and what the plan says is what is read.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include <tessera/tessera.h>
#include "src/comm/comm.h"
#include "src/plan/plan.h"
#include "tests/dist/comm/rank_checks.h"

enum { ROWS = 13, IN = 10, MID = 7, OUT = 5, STEPS = 3 };

/* One way to lay a two-layer perceptron out. NULL texts: AUTO, or the first stage's placement. */
typedef struct layout {
    const char *name;
    int nranks;
    const char *first, *second; /* placements of the two layers */
    const char *x, *w1, *w2, *state;
    bool adam;
} layout;

static const layout layouts[] = {
    {"one rank", 1, "cpu:[0]", NULL, "S(0)", "B", "B", NULL, false},
    {"one rank, Adam", 1, "cpu:[0]", NULL, "S(0)", "B", "B", NULL, true},
    {"data parallel", 2, "cpu:[0,1]", NULL, "S(0)", "B", "B", NULL, false},
    {"data parallel, ranks reversed", 4, "cpu:[3,1,2,0]", NULL, "S(0)", "B", "B", NULL, false},
    {"sharded states", 4, "cpu:[0,1,2,3]", NULL, "S(0)", "B", "B", "S(0)", false},
    {"sharded states, Adam", 3, "cpu:[0,1,2]", NULL, "S(0)", "B", "B", "S(1)", true},
    {"sharded parameters", 4, "cpu:[0,1,2,3]", NULL, "S(0)", "S(0)", "S(0)", NULL, true},
    {"column and row parallel", 4, "cpu:[0,1,2,3]", NULL, "B", "S(0)", "S(1)", NULL, false},
    {"all inferred", 3, "cpu:[0,1,2]", NULL, "S(0)", NULL, NULL, NULL, false},
    {"data x tensor parallel", 4, "cpu:[[0,1],[2,3]]", NULL, "(S(0),B)", "(B,S(0))", "(B,S(1))",
     NULL, false},
    {"data x sharded parameters", 6, "cpu:[[0,1,2],[3,4,5]]", NULL, "(S(0),S(0))", "(B,S(0))",
     "(B,S(0))", NULL, true},
    {"2-D sharded parameters and states", 4, "cpu:[[0,1],[2,3]]", NULL, "(S(0),S(1))",
     "(S(0),S(1))", "(S(1),S(0))", "(S(0),S(0))", true},
    {"2-D all inferred", 6, "cpu:[[0,1,2],[3,4,5]]", NULL, NULL, NULL, NULL, NULL, false},
    {"2x2x2", 8, "cpu:[[[0,1],[2,3]],[[4,5],[6,7]]]", NULL, "(S(0),B,S(0))", "(B,S(0),B)",
     "(B,S(1),S(0))", NULL, false},
    {"a mesh with a dimension of 1", 2, "cpu:[[0,1]]", NULL, "(S(0),S(0))", "(S(1),B)", "(B,S(1))",
     NULL, false},
    {"pipeline 1 + 1", 2, "cpu:[0]", "cpu:[1]", "S(0)", "B", "B", NULL, false},
    {"pipeline 2 + 2", 4, "cpu:[0,1]", "cpu:[2,3]", "S(0)", "B", "B", NULL, false},
    {"pipeline 2 + 1", 3, "cpu:[2,0]", "cpu:[1]", "S(0)", "S(0)", "S(1)", NULL, true},
    {"overlapping stages", 4, "cpu:[0,1,2]", "cpu:[1,2,3]", "S(0)", "B", "S(0)", NULL, false},
    {"contained stages", 4, "cpu:[0,1,2,3]", "cpu:[2,1]", "S(0)", "B", "S(1)", "S(0)", false},
    {"the same ranks in two meshes", 4, "cpu:[[0,1],[2,3]]", "cpu:[0,1,2,3]", "(S(0),B)",
     "(B,S(0))", "S(0)", NULL, false},
    {"2x2 to 3", 7, "cpu:[[0,1],[2,3]]", "cpu:[4,5,6]", "(S(0),S(0))", "(S(0),S(1))", "S(1)", NULL,
     false},
};
enum { NLAYOUTS = sizeof layouts / sizeof layouts[0] };

/* What a run leaves: the losses and the parameters after the last step. */
typedef struct result {
    double loss[STEPS], w1[MID * IN], b1[MID], w2[OUT * MID];
} result;
static result results[NLAYOUTS];

static tsr_sbp sbp_of(const char *text)
{
    tsr_sbp sbp = TSR_AUTO;
    if (text && tsr_sbp_parse(text, &sbp) != TSR_OK)
        abort();
    return sbp;
}

typedef struct net {
    tsr_module *root, *one, *two;
    tsr_variable *w1, *b1, *w2;
    tsr_optimizer *opt;
} net;

static const tsr_placement *place(tsr_world *w, const layout *l, bool second)
{
    return tsr_placement_parse(w, second && l->second ? l->second : l->first);
}

static tsr_status make_net(tsr_world *w, const layout *l, net *n)
{
    const tsr_init init = {.kind = TSR_INIT_KAIMING_NORMAL};
    const tsr_init bias = {.kind = TSR_INIT_NORMAL, .b = 1};
    const tsr_nn_opts first = {.placement = place(w, l, false), .dtype = TSR_F64, .seed = 3};
    const tsr_nn_opts second = {.placement = place(w, l, true), .dtype = TSR_F64, .seed = 3};
    n->root = tsr_module_create(w, &first, NULL, NULL, NULL);
    n->one = tsr_module_add(n->root, "one", tsr_module_create(w, &first, NULL, NULL, NULL));
    n->two = tsr_module_add(n->root, "two", tsr_module_create(w, &second, NULL, NULL, NULL));
    n->w1 = tsr_module_param(n->one, "w", TSR_DIMS(MID, IN), sbp_of(l->w1), init);
    n->b1 = tsr_module_param(n->one, "b", TSR_DIMS(MID), TSR_AUTO, bias);
    n->w2 = tsr_module_param(n->two, "w", TSR_DIMS(OUT, MID), sbp_of(l->w2), init);
    CHECK(n->w1 && n->b1 && n->w2);
    tsr_sbp state = sbp_of(l->state);
    n->opt = l->adam ? tsr_adamw(n->root, TSR_ADAM_OPTS(.lr = 0.05, .state = state))
                     : tsr_sgd(n->root, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.9,
                                                     .weight_decay = 1e-2, .state = state));
    CHECK(n->opt);
    return TSR_OK;
}

static tsr_graph *declare(tsr_world *w, const layout *l, const net *n)
{
    const tsr_placement *p1 = place(w, l, false), *p2 = place(w, l, true);
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(ROWS, IN), p1, sbp_of(l->x));
    tsr_tensor *y = tsr_input(g, "y", TSR_I64, TSR_DIMS(ROWS), p2, TSR_AUTO);
    tsr_tensor *h = tsr_tanh(tsr_linear(x, tsr_use(n->one, "w", x), tsr_use(n->one, "b", x)));
    if (p1 != p2)
        h = tsr_to_global(h, p2, TSR_AUTO);
    tsr_tensor *logits = tsr_linear(h, tsr_use(n->two, "w", h), NULL);
    tsr_tensor *loss = tsr_cross_entropy(logits, y, TSR_MEAN);
    tsr_minimize(n->opt, loss);
    tsr_output(g, "loss", loss, p1, TSR_AUTO); /* B, on the first stage */
    return g;
}

static uint64_t bytes_read(const tsr_world *w)
{
    tsri_comm_stats stats = {0};
    uint64_t sum = 0;
    if (w->comm)
        tsri_plan_stats(w, &stats);
    for (int i = 0; i < TSRI_COLL_KIND_COUNT_; i++)
        sum += stats.bytes_read[i];
    return sum;
}

static void make_batch(int step, double *x, int64_t *y)
{
    for (int i = 0; i < ROWS * IN; i++)
        x[i] = sin(0.7 * i + step) + 0.1 * (i % 7);
    for (int i = 0; i < ROWS; i++)
        y[i] = (i * 3 + step) % OUT;
}

/* --- ranks that are late at random ------------------------------------------------------------ */
static bool late;
static const tsri_comm_ops *punctual; /* of the communicator, which all ranks share */
static tsri_comm_ops tardy;

static void nap(void)
{
    static atomic_uint_fast64_t calls; /* of all ranks: who gets which nap differs each time */
    uint64_t z = (atomic_fetch_add(&calls, 1) + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    if (z >> 62 == 0)
        nanosleep(&(struct timespec){0, (long)(z >> 40 & 0xfffff)}, NULL); /* up to 1 ms */
}

static tsr_status start_late(tsri_group *g, const tsri_coll *coll, tsri_ticket *out_ticket)
{
    nap();
    return punctual->start(g, coll, out_ticket);
}

static tsr_status finish_late(tsri_group *g, tsri_ticket *ticket)
{
    nap();
    return punctual->finish(g, ticket);
}

static tsr_status release_late(tsri_group *g, tsri_ticket *ticket)
{
    nap();
    return punctual->release(g, ticket);
}

static tsr_status note_ops(tsr_world *w, void *arg)
{
    (void)arg;
    if (tsr_world_rank(w) == 0)
        punctual = w->comm->ops;
    return TSR_OK;
}

static tsr_status train(tsr_world *w, void *arg)
{
    if (late && w->comm)
        w->comm->ops = &tardy;

    const layout *l = arg;
    result *r = &results[l - layouts];
    net n;
    tsr_plan *plan;
    double x[ROWS * IN];
    int64_t y[ROWS];
    tsr_plan_info info = {.size = sizeof info};
    TSRI_TRY(make_net(w, l, &n));
    tsr_graph *g = declare(w, l, &n);
    TSRI_TRY(tsr_compile(g, &plan));
    TSRI_TRY(tsr_plan_get_info(plan, &info));
    CHECK(tsr_plan_explain(plan));
    for (int i = 0; i < STEPS; i++) {
        make_batch(i, x, y);
        TSRI_TRY(tsr_feed(plan, "x", x, sizeof x));
        TSRI_TRY(tsr_feed(plan, "y", y, sizeof y));
        uint64_t before = bytes_read(w);
        TSRI_TRY(tsr_run(plan));
        CHECK(bytes_read(w) - before == info.comm_bytes);
        double loss;
        if (tsr_placement_find(place(w, l, false), tsr_world_rank(w)) < 0)
            continue;
        TSRI_TRY(tsr_fetch_scalar(plan, "loss", &loss));
        if (tsr_world_rank(w) == tsr_placement_rank(place(w, l, false), 0))
            r->loss[i] = loss;
    }
    result mine;
    TSRI_TRY(tsr_variable_get(n.w1, mine.w1, sizeof mine.w1));
    TSRI_TRY(tsr_variable_get(n.b1, mine.b1, sizeof mine.b1));
    TSRI_TRY(tsr_variable_get(n.w2, mine.w2, sizeof mine.w2));
    if (tsr_world_rank(w) == 0) {
        memcpy(r->w1, mine.w1, sizeof mine.w1);
        memcpy(r->b1, mine.b1, sizeof mine.b1);
        memcpy(r->w2, mine.w2, sizeof mine.w2);
    }
    return TSR_OK;
}

static double furthest(const double *a, const double *b, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++)
        most = fabs(a[i] - b[i]) > most ? fabs(a[i] - b[i]) : most;
    return most;
}

static void test_layouts(void **state)
{
    (void)state;
    static result sgd, adam;
    for (int i = 0; i < NLAYOUTS; i++) {
        const layout *l = &layouts[i];
        const tsr_world_opts opts = {
            .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 20, .threads = 1};
        result *want = l->adam ? &adam : &sgd;
        if (tsr_spawn_with(l->nranks, train, (void *)(uintptr_t)l, &opts) != TSR_OK)
            fail_msg("%s: %s", l->name, tsr_last_error());
        if (want->loss[0] == 0) {
            assert_int_equal(l->nranks, 1); /* the first of its optimizer is on one rank */
            *want = results[i];
            continue;
        }
        const result *got = &results[i];
        double worst = furthest(got->loss, want->loss, STEPS), p;
        if ((p = furthest(got->w1, want->w1, MID * IN)) > worst)
            worst = p;
        if ((p = furthest(got->b1, want->b1, MID)) > worst)
            worst = p;
        if ((p = furthest(got->w2, want->w2, OUT * MID)) > worst)
            worst = p;
        if (!(worst < 1e-12))
            fail_msg("%s: off by %g (losses %.15g %.15g %.15g, want %.15g %.15g %.15g)", l->name,
                     worst, got->loss[0], got->loss[1], got->loss[2], want->loss[0], want->loss[1],
                     want->loss[2]);
    }
}

/* --- buckets whose members differ ------------------------------------------------------------- */
/* Two layers that are data parallel, with weights kept in splits of different axes: one bucket
 * scatters both gradients. */
enum { SIDE = 96, ROWS_OF_BUCKET = 48 };
typedef struct bucketed {
    int nranks;
    bool scattered; /* the plan has that bucket */
    double w[2][SIDE * SIDE];
} bucketed;

static tsr_status train_bucketed(tsr_world *w, void *arg)
{
    bucketed *b = arg;
    static double all[8][SIDE * SIDE];
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const tsr_nn_opts o = {.placement = p, .dtype = TSR_F64, .seed = 7};
    const tsr_init init = {.kind = TSR_INIT_XAVIER_NORMAL};
    tsr_module *m = tsr_module_create(w, &o, NULL, NULL, NULL);
    tsr_variable *v[2] = {tsr_module_param(m, "w1", TSR_DIMS(SIDE, SIDE), TSR_S(0), init),
                          tsr_module_param(m, "w2", TSR_DIMS(SIDE, SIDE), TSR_S(1), init)};
    tsr_optimizer *opt = tsr_sgd(m, TSR_SGD_OPTS(.lr = 1));
    CHECK(v[0] && v[1] && opt);
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *h =
        tsr_uniform(g, "x", TSR_F64, TSR_DIMS(ROWS_OF_BUCKET, SIDE), p, TSR_S(0), -1, 1);
    for (int i = 0; i < 2; i++) {
        h = tsr_linear(h, tsr_to_global(tsr_use(m, i ? "w2" : "w1", h), p, TSR_B), NULL);
        h = tsr_to_global(tsr_tanh(h), p, TSR_S(0));
    }
    tsr_minimize(opt, tsr_mean(tsr_mul(h, h), TSR_ALL_AXES, false));
    tsr_plan *plan;
    TSRI_TRY(tsr_compile(g, &plan));
    if (tsr_world_rank(w) == 0)
        b->scattered = strstr(tsr_plan_explain(plan), "box reduce_scatter gradient bucket 0  2 ");
    TSRI_TRY(tsr_run(plan));
    for (int i = 0; i < 2; i++) {
        double *mine = all[tsr_world_rank(w)];
        TSRI_TRY(tsr_variable_get(v[i], mine, sizeof b->w[i]));
        if (tsr_world_rank(w) == 0)
            memcpy(b->w[i], mine, sizeof b->w[i]);
    }
    return TSR_OK;
}

static void test_bucket_axes(void **state)
{
    (void)state;
    static bucketed one = {.nranks = 1}, three = {.nranks = 3};
    const tsr_world_opts opts = {
        .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 20, .threads = 1};
    if (tsr_spawn_with(1, train_bucketed, &one, &opts) != TSR_OK ||
        tsr_spawn_with(3, train_bucketed, &three, &opts) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    assert_true(three.scattered);
    for (int i = 0; i < 2; i++)
        assert_true(furthest(one.w[i], three.w[i], SIDE * SIDE) < 1e-12);
}

/* --- a limit of memory ------------------------------------------------------------------------ */
enum { WIDE = 96, WIDE_BYTES = WIDE * WIDE * 8 };

/* y = x w1 w2 on four ranks, both weights left to the compiler, one step of Adam within `limit`
 * bytes a rank (0: none). Tells what the plan takes. */
typedef struct limited {
    size_t limit, bytes, scratch; /* bytes: of it kernels' scratch */
    double loss, w1[WIDE * WIDE];
} limited;

static tsr_status train_limited(tsr_world *w, void *arg)
{
    limited *l = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const tsr_nn_opts o = {.placement = p, .dtype = TSR_F64, .seed = 5};
    const tsr_init init = {.kind = TSR_INIT_XAVIER_NORMAL};
    tsr_module *m = tsr_module_create(w, &o, NULL, NULL, NULL);
    tsr_variable *w1 = tsr_module_param(m, "w1", TSR_DIMS(WIDE, WIDE), TSR_AUTO, init);
    tsr_variable *w2 = tsr_module_param(m, "w2", TSR_DIMS(WIDE, WIDE), TSR_AUTO, init);
    tsr_optimizer *opt = tsr_adam(m, TSR_ADAM_OPTS(.lr = 0.01));
    CHECK(w1 && w2 && opt);
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_uniform(g, "x", TSR_F64, TSR_DIMS(32, WIDE), p, TSR_AUTO, -1, 1);
    tsr_tensor *h = tsr_tanh(tsr_linear(x, tsr_use(m, "w1", x), NULL));
    tsr_tensor *y = tsr_linear(h, tsr_use(m, "w2", x), NULL);
    tsr_tensor *loss = tsr_mean(tsr_mul(y, y), TSR_ALL_AXES, false);
    tsr_minimize(opt, loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    tsr_plan *plan;
    TSRI_TRY(tsr_compile_with(g, TSR_COMPILE_OPTS(.memory_limit = l->limit), &plan));
    tsr_plan_info info = {.size = sizeof info};
    TSRI_TRY(tsr_plan_get_info(plan, &info));
    double value;
    static double all[8][WIDE * WIDE];
    for (int i = 0; i < 2; i++)
        TSRI_TRY(tsr_run(plan));
    TSRI_TRY(tsr_fetch_scalar(plan, "loss", &value));
    double *mine = all[tsr_world_rank(w)];
    TSRI_TRY(tsr_variable_get(w1, mine, WIDE_BYTES));
    if (tsr_world_rank(w) == 0) {
        l->loss = value;
        l->bytes = info.activation_bytes + info.variable_bytes + info.port_bytes;
        l->scratch = info.scratch_bytes;
        memcpy(l->w1, mine, WIDE_BYTES);
    }
    return TSR_OK;
}

/* The scratch of kernels is among a refusal's five largest terms on the host; on a GPU it needs
 * less here, and is a part of the rest. */
static bool tells_scratch(void)
{
    const char *term = getenv("TESSERA_TEST_DEVICE") ? "the rest" : "kernels' scratch";
    return strstr(tsr_last_error(), term) != NULL;
}

/* The terms of a refusal's rank are what it needs, to the byte. Returns the need. */
static size_t check_refusal(void)
{
    const char *text = tsr_last_error(), *need = strstr(text, "the need ");
    size_t sum = 0, terms = 0, total = need ? strtoull(need + 9, NULL, 10) : 0;
    for (const char *line = strchr(text, '\n'); line; line = strchr(line + 1, '\n')) {
        const char *end = strchr(line + 1, '\n');
        const char *bytes = end && end - line > 6 ? end - 6 : line;
        if (strncmp(line + 1, "    ", 4) != 0 || line[5] == ' ' || strncmp(bytes, " bytes", 6) != 0)
            continue;
        while (bytes[-1] != ' ')
            bytes--;
        sum += strtoull(bytes, NULL, 10);
        terms++;
    }
    if (!total || sum != total || terms < 5 || !tells_scratch())
        fail_msg("%zu terms of %zu bytes in: %s", terms, sum, text);
    return total;
}

static void test_memory_limit(void **state)
{
    (void)state;
    static limited free_of, within, little;
    const tsr_world_opts opts = {
        .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 20, .threads = 1};
    if (tsr_spawn_with(4, train_limited, &free_of, &opts) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    /* Less than what is fastest. */
    within.limit = free_of.scratch + (free_of.bytes - free_of.scratch) * 9 / 10;
    if (tsr_spawn_with(4, train_limited, &within, &opts) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    print_message("%zu bytes without a limit, %zu within %zu\n", free_of.bytes, within.bytes,
                  within.limit);
    assert_true(within.bytes <= within.limit);
    assert_true(fabs(within.loss - free_of.loss) < 1e-12);
    assert_true(furthest(within.w1, free_of.w1, WIDE * WIDE) < 1e-12);
    little.limit = WIDE_BYTES / 4;
    assert_int_equal(tsr_spawn_with(4, train_limited, &little, &opts), TSR_ERR_NO_MEMORY);
    const size_t need = check_refusal();
    limited exact = {.limit = need};
    if (tsr_spawn_with(4, train_limited, &exact, &opts) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    assert_int_equal(exact.bytes, need); /* that a run takes it is not only what was said */
    assert_true(fabs(exact.loss - free_of.loss) < 1e-12);
    exact.limit = need * 97 / 100;
    assert_int_equal(tsr_spawn_with(4, train_limited, &exact, &opts), TSR_ERR_NO_MEMORY);
    assert_int_equal(check_refusal(), need);
    assert_true(free_of.scratch > 0);
    /* Without what kernels need beside it, the plan would fit. */
    little.limit = within.bytes - within.scratch;
    assert_int_equal(tsr_spawn_with(4, train_limited, &little, &opts), TSR_ERR_NO_MEMORY);
    assert_true(tells_scratch());
}

/* Pipelines, and all else, come to the same whatever rank is late: nobody waits for ever. */
static void find_punctual(void)
{
    const tsr_world_opts opts = {
        .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 20, .threads = 1};
    late = false;
    assert_int_equal(tsr_spawn_with(2, note_ops, NULL, &opts), TSR_OK);
    tardy = *punctual;
    tardy.start = start_late;
    tardy.finish = finish_late;
    tardy.release = release_late;
}

static void test_late_ranks(void **state)
{
    (void)state;
    if (getenv("TESSERA_TEST_DEVICE")) {
        print_message("skipped: the communicator that is late here is the host's\n");
        skip();
    }
    const tsr_world_opts opts = {
        .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 60, .threads = 1};
    find_punctual();
    late = true;
    for (int i = 0; i < NLAYOUTS; i++) {
        const layout *l = &layouts[i];
        const result want = results[i]; /* of test_layouts */
        for (int n = 0; n < (l->second ? 5 : 1); n++) {
            if (tsr_spawn_with(l->nranks, train, (void *)(uintptr_t)l, &opts) != TSR_OK)
                fail_msg("%s: %s", l->name, tsr_last_error());
            assert_memory_equal(&want, &results[i], sizeof want); /* bit by bit */
        }
    }
    late = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts), cmocka_unit_test(test_late_ranks),
        cmocka_unit_test(test_bucket_axes), cmocka_unit_test(test_memory_limit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
