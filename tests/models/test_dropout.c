/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout's masks: the share that is kept, differences between steps, layers and seeds, and the
 * same masks on 1, 2 and 4 ranks in every signature. */
#include "rank_train.h"

enum { ROWS = 201, COLUMNS = 250, N = ROWS * COLUMNS, LAYERS = 4, RUNS = 2 };
#define KEEP 0.8

typedef struct mask_spec {
    tsr_sbp sbp;
    uint64_t seed;
    uint8_t *masks; /* [RUNS][LAYERS][N], written by rank 0 */
} mask_spec;

/* Layers 0, 1: modules of one kind; 2, 3: ops. All get x = 3, so that a kept element is 3.75. */
static tsr_status declare(tsr_world *w, const mask_spec *s, tsr_plan **out_plan)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_nn_opts nn = {.placement = p, .sbp = TSR_B, .dtype = TSR_F64};
    tsr_module *net = tsr_nn_sequential(w, &nn);
    tsr_module *first = tsr_module_add(net, "0", tsr_nn_dropout(w, &nn, 1 - KEEP));
    tsr_module *second = tsr_module_add(net, "1", tsr_nn_dropout(w, &nn, 1 - KEEP));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .seed = s->seed));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(ROWS, COLUMNS), p, s->sbp), *dx;
    tsr_tensor *last = tsr_dropout(x, 1 - KEEP);
    tsr_output(g, "0", tsr_apply(first, x), p, TSR_B);
    tsr_output(g, "1", tsr_apply(second, x), p, TSR_B);
    tsr_output(g, "2", tsr_dropout(x, 1 - KEEP), p, TSR_B);
    tsr_output(g, "3", last, p, TSR_B);
    tsr_gradients(last, 1, &x, &dx);
    tsr_output(g, "dx", dx, p, TSR_B);
    return tsr_compile(g, out_plan);
}

static tsr_status draw(tsr_world *w, void *arg)
{
    const mask_spec *s = arg;
    tsr_plan *plan;
    TRY(declare(w, s, &plan));
    double *v = malloc(N * sizeof *v);
    CHECK(v);
    for (int i = 0; i < N; i++)
        v[i] = 3;
    TRY(tsr_feed(plan, "x", v, N * sizeof *v));
    for (int run = 0; run < RUNS; run++) {
        TRY(tsr_run(plan));
        for (int layer = 0; layer < LAYERS + 1; layer++) {
            bool gradient = layer == LAYERS;
            double kept = gradient ? 1 / KEEP : 3 / KEEP;
            char name[2] = {(char)('0' + layer), 0};
            TRY(tsr_fetch(plan, gradient ? "dx" : name, v, N * sizeof *v));
            uint8_t *mask = s->masks + (ptrdiff_t)(run * LAYERS + layer - gradient) * N;
            for (int i = 0; i < N; i++) {
                CHECK(v[i] == 0 || near_to(v[i], kept, 1e-15));
                if (tsr_world_rank(w) == 0 && !gradient)
                    mask[i] = v[i] != 0;
                else if (tsr_world_rank(w) == 0)
                    CHECK(mask[i] == (v[i] != 0)); /* the gradient passes where the value did */
            }
        }
    }
    free(v);
    return TSR_OK;
}

static uint8_t *masks_on(int ranks, tsr_sbp sbp, uint64_t seed)
{
    mask_spec s = {sbp, seed, calloc(RUNS * LAYERS, N)};
    assert_non_null(s.masks);
    if (tsr_spawn(ranks, draw, &s) != TSR_OK)
        fail_msg("%d ranks: %s", ranks, tsr_last_error());
    return s.masks;
}

static void test_same_everywhere(void **state)
{
    (void)state;
    const tsr_sbp sbps[] = {TSR_B, TSR_S(0), TSR_S(1), TSR_P};
    const int ranks[] = {1, 2, 4};
    uint8_t *want = masks_on(1, TSR_B, 5);
    for (int s = 0; s < 4; s++)
        for (int r = 0; r < 3; r++) {
            uint8_t *got = masks_on(ranks[r], sbps[s], 5);
            assert_memory_equal(got, want, (size_t)RUNS * LAYERS * N);
            free(got);
        }
    free(want);
}

/* Whether `share` of N fair draws of probability p is within five sigma. */
static void assert_share(double share, double p)
{
    assert_true(fabs(share - p) <= 5 * sqrt(p * (1 - p) / N));
}

/* Two independent masks agree in KEEP^2 + (1-KEEP)^2 of the elements. */
static void assert_independent(const uint8_t *a, const uint8_t *b)
{
    int same = 0;
    for (int i = 0; i < N; i++)
        same += a[i] == b[i];
    assert_share((double)same / N, KEEP * KEEP + (1 - KEEP) * (1 - KEEP));
}

static void test_independent(void **state)
{
    (void)state;
    enum { MASKS = RUNS * LAYERS };
    uint8_t *m = masks_on(1, TSR_B, 5), *other = masks_on(1, TSR_B, 6);
    for (int a = 0; a < MASKS; a++) {
        int kept = 0;
        for (int i = 0; i < N; i++)
            kept += m[a * N + i];
        assert_share((double)kept / N, KEEP);
        for (int b = 0; b < a; b++)
            assert_independent(m + a * N, m + b * N);
        for (int b = 0; b < MASKS; b++)
            assert_independent(m + a * N, other + b * N);
        /* Nor do neighbours within a mask go together. */
        int pairs = 0;
        for (int i = 0; i < N; i++)
            pairs += m[a * N + i] == m[a * N + (i + 1) % N];
        assert_share((double)pairs / N, KEEP * KEEP + (1 - KEEP) * (1 - KEEP));
    }
    free(m);
    free(other);
}

/* The mask is of the optimizer's step: it goes on where it stood in another plan of the program. */
static tsr_status steps_go_on(tsr_world *w, void *arg)
{
    (void)arg;
    enum { WIDTH = 400 };
    double losses[2][4], ones[WIDTH];
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    for (int i = 0; i < WIDTH; i++)
        ones[i] = 1;
    for (int split = 0; split < 2; split++) {
        tsr_module *net =
            tsr_mlp(w, p, TSR_B,
                    TSR_MLP_OPTS(.inputs = WIDTH, .outputs = 1, .layers = 1, .dtype = TSR_F64));
        tsr_optimizer *opt = tsr_sgd(net, TSR_SGD_OPTS(.lr = 1e-6));
        for (int at = 0; at < 4;) {
            tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
            tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(1, WIDTH), p, TSR_AUTO);
            tsr_tensor *y = tsr_apply(net, tsr_dropout(x, 1 - KEEP));
            tsr_tensor *loss = tsr_sum(tsr_mul(y, y), TSR_ALL_AXES, false);
            tsr_minimize(opt, loss);
            tsr_output(g, "loss", loss, p, TSR_B);
            tsr_plan *plan;
            TRY(tsr_compile(g, &plan));
            TRY(tsr_feed(plan, "x", ones, sizeof ones));
            for (int i = 0; i < (split ? 2 : 4); i++, at++) {
                TRY(tsr_run(plan));
                TRY(tsr_fetch_scalar(plan, "loss", &losses[split][at]));
            }
            tsr_plan_destroy(plan);
        }
        tsr_optimizer_destroy(opt);
        tsr_module_destroy(net);
    }
    CHECK(!memcmp(losses[0], losses[1], sizeof losses[0]));
    CHECK(losses[0][0] != losses[0][2] && losses[0][1] != losses[0][2]);
    return TSR_OK;
}

static void test_steps_go_on(void **state)
{
    (void)state;
    on_ranks(steps_go_on, NULL);
}

/* selu's dropout of a constant has two values, whose mean over many draws is that of x; whole
 * channels fall together, and an evaluation changes nothing. */
static tsr_status draw_alpha(tsr_world *w, void *arg)
{
    (void)arg;
    const double p = 0.3, low = -1.7580993408473766, a = 1 / sqrt((1 - p) * (1 + p * low * low));
    const double kept = a * (0.25 - low * p), dropped = a * (low - low * p);
    enum { CHANNELS = 500, PIXELS = 40, COUNT = CHANNELS * PIXELS };
    static const int64_t one_drop[2] = {1, PIXELS};
    double *v = malloc(COUNT * sizeof *v);
    CHECK(v);
    for (int training = 0; training < 2; training++) {
        const tsr_placement *all = tsr_placement_parse(w, "cpu");
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = training, .seed = 5));
        tsr_tensor *x =
            tsr_full(g, TSR_F64, TSR_DIMS(10, CHANNELS / 10, PIXELS), all, TSR_S(1), 0.25);
        tsr_output(g, "0", tsr_alpha_dropout(x, p), all, TSR_B);
        tsr_output(g, "1", tsr_feature_alpha_dropout(x, p), all, TSR_B);
        tsr_plan *plan;
        TRY(tsr_compile(g, &plan));
        TRY(tsr_run(plan));
        for (int features = 0; features < 2; features++) {
            TRY(tsr_fetch(plan, features ? "1" : "0", v, COUNT * sizeof *v));
            int drops = 0;
            for (int i = 0; i < COUNT; i++) {
                const bool drop = near_to(v[i], dropped, 1e-14);
                CHECK(training ? drop || near_to(v[i], kept, 1e-14) : v[i] == 0.25);
                CHECK(!features || v[i] == v[i - i % PIXELS]);
                drops += drop;
            }
            /* Five standard deviations of a binomial share. */
            const double share = (double)drops / COUNT;
            const double draws = (double)COUNT / (double)one_drop[features];
            CHECK(!training || fabs(share - p) < 5 * sqrt(p * (1 - p) / draws));
        }
        tsr_plan_destroy(plan);
    }
    free(v);
    return TSR_OK;
}

static void test_alpha(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++)
        if (tsr_spawn(ranks, draw_alpha, NULL) != TSR_OK)
            fail_msg("%d ranks: %s", ranks, tsr_last_error());
}

/* Noise of a step: [graph][step][which][N], of rank 0. */
enum { NOISE_STEPS = 3, NOISES = 2 };
typedef struct noise_spec {
    tsr_sbp sbp;
    double *values;
} noise_spec;

static tsr_status draw_noise(tsr_world *w, void *arg)
{
    const noise_spec *s = arg;
    const tsr_placement *all = tsr_placement_parse(w, "cpu");
    double *v = malloc(N * sizeof *v);
    CHECK(v);
    for (int training = 0; training < 2; training++) {
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = training, .seed = 8));
        tsr_tensor *x = tsr_full(g, TSR_F64, TSR_DIMS(ROWS, COLUMNS), all, s->sbp, 0);
        tsr_output(g, "0", tsr_rand_like(x), all, TSR_B);
        tsr_output(g, "1", tsr_randn_like(x), all, TSR_B);
        tsr_plan *plan;
        TRY(tsr_compile(g, &plan));
        for (int step = 0; step < NOISE_STEPS; step++) {
            TRY(tsr_run(plan));
            for (int which = 0; which < NOISES; which++) {
                TRY(tsr_fetch(plan, which ? "1" : "0", v, N * sizeof *v));
                if (tsr_world_rank(w) == 0)
                    memcpy(s->values +
                               (ptrdiff_t)((training * NOISE_STEPS + step) * NOISES + which) * N,
                           v, N * sizeof *v);
            }
        }
        tsr_plan_destroy(plan);
    }
    free(v);
    return TSR_OK;
}

/* Numbers have the moments of their distributions, do not repeat from step to step, and are the
 * same for any number of ranks and any signature. */
static void test_noise(void **state)
{
    (void)state;
    const size_t count = (size_t)2 * NOISE_STEPS * NOISES * N;
    double *first = malloc(count * sizeof *first), *other = malloc(count * sizeof *other);
    assert_true(first && other);
    const struct {
        int ranks;
        tsr_sbp sbp;
    } runs[] = {{1, TSR_B}, {2, TSR_S(0)}, {3, TSR_S(1)}, {4, TSR_B}};
    for (int r = 0; r < 4; r++) {
        noise_spec s = {runs[r].sbp, r ? other : first};
        if (tsr_spawn(runs[r].ranks, draw_noise, &s) != TSR_OK)
            fail_msg("%d ranks: %s", runs[r].ranks, tsr_last_error());
        assert_true(!r || !memcmp(first, other, count * sizeof *first));
    }
    for (int k = 0; k < 2 * NOISE_STEPS; k++)
        for (int which = 0; which < NOISES; which++) {
            const double *v = first + (ptrdiff_t)(k * NOISES + which) * N;
            double sum = 0, squares = 0, with_next = 0;
            int repeated = 0;
            for (int i = 0; i < N; i++) {
                sum += v[i];
                squares += v[i] * v[i];
                assert_true(which || (v[i] >= 0 && v[i] < 1));
                if (k % NOISE_STEPS < NOISE_STEPS - 1) {
                    repeated += v[i] == v[i + NOISES * N];
                    with_next +=
                        (v[i] - (which ? 0 : 0.5)) * (v[i + NOISES * N] - (which ? 0 : 0.5));
                }
            }
            /* Five standard deviations of each mean. */
            const double mean = which ? 0 : 0.5, var = which ? 1 : 1.0 / 12;
            assert_true(fabs(sum / N - mean) < 5 * sqrt(var / N));
            assert_true(fabs(squares / N - var - mean * mean) < 5 * sqrt(2.0 / N));
            assert_true(fabs(with_next / N) < 5 * var / sqrt(N));
            assert_true(repeated < 5);
        }
    free(first);
    free(other);
}

/* The noise of Gumbel draws classes as softmax has them; rrelu's slopes are between both ends. */
static tsr_status draw_classes(tsr_world *w, void *arg)
{
    enum { DRAWS = 20000, CLASSES = 3 };
    static const double logits[CLASSES] = {0, 1, -0.5};
    (void)arg;
    const tsr_placement *all = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .seed = 8));
    tsr_tensor *x = tsr_expand(tsr_constant(g, TSR_F64, TSR_DIMS(CLASSES, 1), logits, all, TSR_B),
                               TSR_DIMS(CLASSES, DRAWS));
    tsr_tensor *hard = tsr_gumbel_softmax(x, 0.7, true, 0), *dx;
    tsr_tensor *soft = tsr_gumbel_softmax(x, 0.7, false, 0);
    tsr_gradients(tsr_sum(tsr_narrow(hard, 0, 1, 1), TSR_ALL_AXES, false), 1, &x, &dx);
    tsr_output(g, "counts", tsr_sum(hard, TSR_AXES(1), false), all, TSR_B);
    tsr_output(g, "sums", tsr_sum(soft, TSR_AXES(0), false), all, TSR_B);
    tsr_output(g, "slope", tsr_sum(tsr_abs(dx), TSR_ALL_AXES, false), all, TSR_B);
    tsr_output(g, "rrelu",
               tsr_rrelu(tsr_full(g, TSR_F64, TSR_DIMS(DRAWS), all, TSR_S(0), -1), 0.25, 0.5), all,
               TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    TRY(tsr_run(plan));
    double counts[CLASSES], slope, total = 0, sum = 0, *v = malloc(DRAWS * sizeof *v);
    CHECK(v);
    TRY(tsr_fetch(plan, "counts", counts, sizeof counts));
    TRY(tsr_fetch(plan, "slope", &slope, sizeof slope));
    CHECK(slope > 0);
    for (int i = 0; i < CLASSES; i++)
        total += exp(logits[i]);
    for (int i = 0; i < CLASSES; i++) {
        const double p = exp(logits[i]) / total;
        CHECK(fabs(counts[i] / DRAWS - p) < 5 * sqrt(p * (1 - p) / DRAWS));
    }
    TRY(tsr_fetch(plan, "sums", v, DRAWS * sizeof *v));
    for (int i = 0; i < DRAWS; i++)
        CHECK(near_to(v[i], 1, 1e-14));
    TRY(tsr_fetch(plan, "rrelu", v, DRAWS * sizeof *v));
    for (int i = 0; i < DRAWS; i++) {
        CHECK(v[i] <= -0.25 && v[i] > -0.5);
        sum += v[i];
    }
    CHECK(fabs(sum / DRAWS + 0.375) < 5 * 0.25 / sqrt(12.0 * DRAWS));
    free(v);
    return TSR_OK;
}

static void test_classes(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++)
        if (tsr_spawn(ranks, draw_classes, NULL) != TSR_OK)
            fail_msg("%d ranks: %s", ranks, tsr_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_everywhere), cmocka_unit_test(test_independent),
        cmocka_unit_test(test_steps_go_on),     cmocka_unit_test(test_alpha),
        cmocka_unit_test(test_noise),           cmocka_unit_test(test_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
