/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of convolution and pooling beside the functions that they are made of, on 1 to 3 ranks:
 * values, parameters' names, shapes and initial distributions. Also what the functions refuse, and
 * dropout of whole channels. */
#include "rank.h"

enum { ROOM = 1 << 16 };

/* A world, a graph, options, and operands of one, two and three axes for layers and functions. */
typedef struct bench {
    tsr_world *w;
    tsr_graph *g;
    const tsr_nn_opts *o;
    tsr_tensor *line, *image, *volume; /* (2,4,9), (2,4,8,6), (2,4,5,6,7) */
} bench;

static bench bench_of(tsr_world *w, const tsr_nn_opts *o, bool training)
{
    bench b = {.w = w, .g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = training)), .o = o};
    const tsr_placement *p = o->placement;
    b.line = tsr_uniform(b.g, "line", TSR_F64, TSR_DIMS(2, 4, 9), p, TSR_AUTO, -1, 1);
    b.image = tsr_uniform(b.g, "image", TSR_F64, TSR_DIMS(2, 4, 8, 6), p, TSR_AUTO, -1, 1);
    b.volume = tsr_uniform(b.g, "volume", TSR_F64, TSR_DIMS(2, 4, 5, 6, 7), p, TSR_AUTO, -1, 1);
    return b;
}

static int64_t count(tsr_dims d)
{
    int64_t n = 1;
    for (int i = 0; i < d.ndim; i++)
        n *= d.d[i];
    return n;
}

/* Checks that a layer gives for x what the function gives, bit by bit. */
static tsr_status same(const bench *b, tsr_module *m, tsr_tensor *x, tsr_tensor *want)
{
    static _Thread_local double got_values[ROOM], want_values[ROOM];
    tsr_tensor *got = tsr_apply(m, x);
    TRY(tsr_graph_status(b->g));
    const int64_t n = count(tsr_tensor_dims(got));
    CHECK(tsr_dims_equal(tsr_tensor_dims(got), tsr_tensor_dims(want)) && n > 0 && n < ROOM);
    TRY(tsr_eval(got, got_values, (size_t)n * sizeof *got_values));
    TRY(tsr_eval(want, want_values, (size_t)n * sizeof *want_values));
    CHECK(!memcmp(got_values, want_values, (size_t)n * sizeof *want_values));
    return TSR_OK;
}

/* Checks that a parameter is uniform in (-bound, bound): its edges and its mean square. */
static tsr_status is_uniform(tsr_module *m, const char *name, tsr_dims dims, double bound)
{
    static _Thread_local double v[ROOM];
    tsr_variable *p = tsr_module_find(m, name);
    const int64_t n = count(dims);
    double most = 0, squares = 0;
    CHECK(p && tsr_dims_equal(tsr_variable_dims(p), dims) && tsr_variable_trainable(p));
    TRY(tsr_variable_get(p, v, (size_t)n * sizeof *v));
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs(v[i]));
        squares += v[i] * v[i];
    }
    CHECK(most <= bound && most > 0.9 * bound);
    CHECK(fabs(squares / (double)n / (bound * bound / 3) - 1) < 0.25);
    return TSR_OK;
}

static tsr_tensor *value_of(const bench *b, tsr_module *m, const char *name)
{
    return tsr_read(b->g, tsr_module_find(m, name));
}

#define WEIGHT value_of(&b, m, "weight")
#define BIAS value_of(&b, m, "bias")

/* The fan that bounds the initial values is the weight's second size times its window. */
static tsr_status convolutions(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_nn_opts o = {
        .placement = tsr_placement_parse(w, "cpu"), .sbp = TSR_B, .dtype = TSR_F64, .seed = 3};
    bench b = bench_of(w, &o, false);
    const tsr_conv1d_opts *one = TSR_CONV1D_OPTS(.stride = 2, .padding = 1, .groups = 2);
    tsr_module *m = tsr_nn_conv1d(w, &o, 4, 96, 3, true, one);
    CHECK(m && tsr_module_count(m) == 96 * 2 * 3 + 96);
    TRY(same(&b, m, b.line, tsr_conv1d(b.line, WEIGHT, BIAS, one)));
    TRY(is_uniform(m, "weight", TSR_DIMS(96, 2, 3), 1 / sqrt(6)));
    TRY(is_uniform(m, "bias", TSR_DIMS(96), 1 / sqrt(6)));

    const tsr_conv3d_opts *three = TSR_CONV3D_OPTS(.padding = {1, 0, 2}, .dilation = {2, 1, 1});
    m = tsr_nn_conv3d(w, &o, 4, 8, (tsr_dhw){3, 2, 4}, false, three);
    CHECK(m && tsr_module_count(m) == 8 * 4 * 24 && !tsr_module_find(m, "bias"));
    TRY(same(&b, m, b.volume, tsr_conv3d(b.volume, WEIGHT, NULL, three)));
    TRY(is_uniform(m, "weight", TSR_DIMS(8, 4, 3, 2, 4), 1 / sqrt(96)));

    m = tsr_nn_conv_transpose1d(w, &o, 4, 96, 5, true, NULL);
    TRY(same(&b, m, b.line, tsr_conv_transpose1d(b.line, WEIGHT, BIAS, NULL)));
    TRY(is_uniform(m, "weight", TSR_DIMS(4, 96, 5), 1 / sqrt(96 * 5)));
    TRY(is_uniform(m, "bias", TSR_DIMS(96), 1 / sqrt(96 * 5)));

    const tsr_conv_transpose2d_opts *up =
        TSR_CONV_TRANSPOSE2D_OPTS(.stride = {2, 2}, .padding = {1, 0}, .output_padding = {1, 0},
                                  .groups = 2);
    m = tsr_nn_conv_transpose2d(w, &o, 4, 96, (tsr_hw){3, 2}, true, up);
    TRY(same(&b, m, b.image, tsr_conv_transpose2d(b.image, WEIGHT, BIAS, up)));
    TRY(is_uniform(m, "weight", TSR_DIMS(4, 48, 3, 2), 1 / sqrt(48 * 6)));
    TRY(is_uniform(m, "bias", TSR_DIMS(96), 1 / sqrt(48 * 6)));

    const tsr_conv_transpose3d_opts *deep = TSR_CONV_TRANSPOSE3D_OPTS(.stride = {1, 2, 1});
    m = tsr_nn_conv_transpose3d(w, &o, 4, 6, (tsr_dhw){2, 1, 3}, true, deep);
    TRY(same(&b, m, b.volume, tsr_conv_transpose3d(b.volume, WEIGHT, BIAS, deep)));
    TRY(is_uniform(m, "weight", TSR_DIMS(4, 6, 2, 1, 3), 1 / sqrt(36)));
    tsr_graph_destroy(b.g);
    return TSR_OK;
}

static tsr_status pools(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_nn_opts o = {.placement = tsr_placement_parse(w, "cpu"), .sbp = TSR_B};
    bench b = bench_of(w, &o, false);
    tsr_tensor *line = b.line, *image = b.image, *volume = b.volume;
    const tsr_pool1d_opts *one = TSR_POOL1D_OPTS(.kernel = 3, .stride = 2, .padding = 1);
    const tsr_pool2d_opts *two =
        TSR_POOL2D_OPTS(.kernel = {3, 2}, .padding = {1, 0}, .count_include_pad = false);
    const tsr_pool3d_opts *three = TSR_POOL3D_OPTS(.kernel = {2, 3, 2}, .padding = {1, 1, 0});
    TRY(same(&b, tsr_nn_max_pool1d(w, &o, one), line, tsr_max_pool1d(line, one)));
    TRY(same(&b, tsr_nn_avg_pool1d(w, &o, one), line, tsr_avg_pool1d(line, one)));
    TRY(same(&b, tsr_nn_avg_pool2d(w, &o, two), image, tsr_avg_pool2d(image, two)));
    TRY(same(&b, tsr_nn_max_pool3d(w, &o, three), volume, tsr_max_pool3d(volume, three)));
    TRY(same(&b, tsr_nn_avg_pool3d(w, &o, three), volume, tsr_avg_pool3d(volume, three)));
    const tsr_hw k = {2, 3}, s = {1, 2};
    TRY(same(&b, tsr_nn_lp_pool2d(w, &o, 2, k, s), image, tsr_lp_pool2d(image, 2, k, s)));
    TRY(same(&b, tsr_nn_adaptive_avg_pool1d(w, &o, 4), line, tsr_adaptive_avg_pool1d(line, 4)));
    TRY(same(&b, tsr_nn_adaptive_max_pool1d(w, &o, 4), line, tsr_adaptive_max_pool1d(line, 4)));
    TRY(same(&b, tsr_nn_adaptive_avg_pool2d(w, &o, 3, 4), image,
             tsr_adaptive_avg_pool2d(image, 3, 4)));
    TRY(same(&b, tsr_nn_adaptive_max_pool2d(w, &o, 3, 4), image,
             tsr_adaptive_max_pool2d(image, 3, 4)));
    TRY(same(&b, tsr_nn_adaptive_avg_pool3d(w, &o, 2, 3, 4), volume,
             tsr_adaptive_avg_pool3d(volume, 2, 3, 4)));
    TRY(same(&b, tsr_nn_adaptive_max_pool3d(w, &o, 2, 3, 4), volume,
             tsr_adaptive_max_pool3d(volume, 2, 3, 4)));
    TRY(same(&b, tsr_nn_channel_shuffle(w, &o, 2), image, tsr_channel_shuffle(image, 2)));
    tsr_graph_destroy(b.g);
    return TSR_OK;
}

/* A training graph drops channels whole, about the share p of them; another graph drops none. */
static tsr_status channels_dropped(tsr_world *w, void *arg)
{
    (void)arg;
    enum { N = 20, C = 30, PIXELS = 6 };
    static _Thread_local double y[N * C * PIXELS];
    const tsr_nn_opts o = {.placement = tsr_placement_parse(w, "cpu"), .sbp = TSR_B};
    for (int training = 0; training < 2; training++) {
        bench b = bench_of(w, &o, training);
        tsr_tensor *x = tsr_full(b.g, TSR_F64, TSR_DIMS(N, C, 2, 3), o.placement, TSR_AUTO, 3);
        TRY(tsr_eval(tsr_apply(tsr_nn_dropout2d(w, &o, 0.25), x), y, sizeof y));
        int dropped = 0;
        for (int i = 0; i < N * C; i++) {
            const double first = y[i * PIXELS];
            CHECK(first == 0 || near_to(first, training ? 4 : 3, 1e-15));
            dropped += first == 0;
            for (int j = 1; j < PIXELS; j++)
                CHECK(y[i * PIXELS + j] == first);
        }
        CHECK(training ? dropped > 100 && dropped < 200 : dropped == 0);
        tsr_graph_destroy(b.g);
    }
    return TSR_OK;
}

/* --- what is sent ----------------------------------------------------------------------------- */

/* The results for operands of which the batch is split, and so has the result. */
#define SPLIT(ROW)                                                                          \
    ROW(conv1d(line, w1, NULL, TSR_CONV1D_OPTS(.padding = 1)))                              \
    ROW(conv3d(volume, w3, NULL, TSR_CONV3D_OPTS(.stride = {2, 1, 1})))                     \
    ROW(conv_transpose1d(line, w1, NULL, TSR_CONV_TRANSPOSE1D_OPTS(.stride = 2)))           \
    ROW(conv_transpose2d(image, w2, NULL, TSR_CONV_TRANSPOSE2D_OPTS(.stride = {2, 2})))     \
    ROW(conv_transpose3d(volume, w3, NULL, TSR_CONV_TRANSPOSE3D_OPTS(.stride = {1, 2, 1}))) \
    ROW(max_pool1d(line, TSR_POOL1D_OPTS(.kernel = 2)))                                     \
    ROW(avg_pool3d(volume, TSR_POOL3D_OPTS(.kernel = {2, 2, 2}, .stride = {1, 1, 1})))      \
    ROW(max_pool3d(volume, TSR_POOL3D_OPTS(.kernel = {2, 3, 2})))                           \
    ROW(lp_pool2d(image, 2, (tsr_hw){2, 2}, (tsr_hw){0, 0}))                                \
    ROW(adaptive_avg_pool3d(volume, 2, 4, 3))                                               \
    ROW(adaptive_max_pool1d(line, 4))                                                       \
    ROW(adaptive_max_pool2d(image, 3, 4))                                                   \
    ROW(adaptive_max_pool3d(volume, 2, 4, 3))                                               \
    ROW(fold(columns, 5, 5, (tsr_hw){2, 2}, (tsr_hw){1, 1}, (tsr_hw){0, 0}))                \
    ROW(channel_shuffle(image, 2))                                                          \
    ROW(dropout2d(image, 0.5))

/* Declares the i-th function of split operands; NULL behind the last. */
static tsr_tensor *declare_split(tsr_graph *g, const tsr_placement *p, int i)
{
    tsr_tensor *line = tsr_input(g, "x", TSR_F32, TSR_DIMS(6, 4, 9), p, TSR_S(0));
    tsr_tensor *image = tsr_input(g, "i", TSR_F32, TSR_DIMS(6, 4, 8, 6), p, TSR_S(0));
    tsr_tensor *volume = tsr_input(g, "v", TSR_F32, TSR_DIMS(6, 4, 5, 6, 7), p, TSR_S(0));
    tsr_tensor *columns = tsr_input(g, "c", TSR_F32, TSR_DIMS(6, 12, 16), p, TSR_S(0));
    tsr_tensor *w1 = tsr_full(g, TSR_F32, TSR_DIMS(4, 4, 3), p, TSR_B, 1);
    tsr_tensor *w2 = tsr_full(g, TSR_F32, TSR_DIMS(4, 4, 3, 2), p, TSR_B, 1);
    tsr_tensor *w3 = tsr_full(g, TSR_F32, TSR_DIMS(4, 4, 3, 2, 2), p, TSR_B, 1);
    int at = 0;
#define CALL(call) \
    if (i == at++) \
        return tsr_##call;
    SPLIT(CALL)
#undef CALL
    return NULL;
}

/* A batch that is split stays split: no rank sends anything. */
static tsr_status nothing_is_sent(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    for (int i = 0;; i++) {
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
        tsr_tensor *y = declare_split(g, p, i);
        tsr_plan *plan = NULL;
        tsr_plan_info info = {.size = sizeof info};
        if (!y) {
            tsr_graph_destroy(g);
            CHECK(i > 10);
            return TSR_OK;
        }
        tsr_output(g, "y", y, p, TSR_S(0));
        TRY(tsr_compile(g, &plan));
        TRY(tsr_plan_get_info(plan, &info));
        if (info.comm_bytes) {
            fprintf(stderr, "function %d sends %lld bytes\n", i, (long long)info.comm_bytes);
            return TSR_ERR_INTERNAL;
        }
        tsr_plan_destroy(plan);
        tsr_graph_destroy(g);
    }
}

/* --- kernels of transposed convolutions ------------------------------------------------------- */

/* A layer that enlarges square images: of a DCGAN's generator (Radford et al., 2016, for 64 x 64),
 * with groups, and of other strides and padding. */
typedef struct enlarging {
    int64_t in, out, side, groups;
    int kernel, stride, padding, output_padding;
} enlarging;

static const enlarging enlarging_layers[] = {
    {100, 512, 1, 1, 4, 1, 0, 0}, {512, 256, 4, 1, 4, 2, 1, 0}, {256, 128, 8, 1, 4, 2, 1, 0},
    {128, 64, 16, 1, 4, 2, 1, 0}, {64, 3, 32, 1, 4, 2, 1, 0},   {64, 48, 8, 8, 4, 2, 1, 0},
    {32, 32, 9, 32, 3, 2, 1, 1},  {24, 40, 7, 1, 2, 2, 0, 0},   {24, 40, 7, 1, 3, 1, 1, 0},
};
enum { NENLARGING = sizeof enlarging_layers / sizeof *enlarging_layers };

static tsr_tensor *drawn(tsr_graph *g, const tsr_placement *p, const char *name, tsr_dims dims,
                         tsr_dtype dtype)
{
    return tsr_cast(tsr_uniform(g, name, TSR_F32, dims, p, TSR_B, -1, 1), dtype);
}

/* Declares a layer and its gradients by x and by the weight. */
static void enlarge(tsr_graph *g, const tsr_placement *p, const enlarging *l, tsr_dtype dtype,
                    tsr_tensor *out[3])
{
    const int s = l->stride, pad = l->padding, more = l->output_padding, k = l->kernel;
    tsr_tensor *of[2] = {drawn(g, p, "x", TSR_DIMS(2, l->in, l->side, l->side), dtype),
                         drawn(g, p, "weight", TSR_DIMS(l->in, l->out / l->groups, k, k), dtype)};
    out[0] = tsr_conv_transpose2d(of[0], of[1], NULL,
                                  TSR_CONV_TRANSPOSE2D_OPTS(.stride = {s, s}, .padding = {pad, pad},
                                                            .output_padding = {more, more},
                                                            .groups = l->groups));
    tsr_tensor *dy = drawn(g, p, "dy", tsr_tensor_dims(out[0]), dtype);
    tsr_gradients(tsr_sum(tsr_mul(out[0], dy), TSR_ALL_AXES, false), 2, of, out + 1);
}

/* Returns whether the text has one row that begins with `kind`, and that is of a fast kernel: its
 * own, or one that it shares with others. */
static bool has_fast_row(const char *text, const char *kind)
{
    const char *row = strstr(text, kind), *end = row ? strchr(row + 1, '\n') : NULL;
    if (!end || strstr(end, kind))
        return false;
    const char *fast = strstr(row, "[fast"), *chain = strstr(row, "[chain]");
    return (fast && fast < end) || (chain && chain < end);
}

/* Checks that a plan has one op of each of a convolution's kinds, all in fast kernels, and none
 * that only moves elements. */
static tsr_status runs_fast(tsr_plan *plan)
{
    static const char *const kinds[] = {"\n  conv2d_dx ", "\n  conv2d ", "\n  conv2d_dw "};
    static const char *const moves[] = {"\n  permute ", "\n  slice ", "\n  pad ", "\n  reshape "};
    const char *text = tsr_plan_explain(plan);
    bool fits = text != NULL;
    for (int i = 0; i < 3 && fits; i++)
        fits = has_fast_row(text, kinds[i]);
    for (int i = 0; i < 4 && fits; i++)
        fits = !strstr(text, moves[i]);
    if (!fits)
        fprintf(stderr, "%s\n", text ? text : tsr_last_error());
    CHECK(fits);
    return TSR_OK;
}

static tsr_status check_enlarging(tsr_world *w, const enlarging *l)
{
    enum { MOST = 1 << 21 };
    static float got[MOST];
    static double want[MOST];
    static const char *const names[3] = {"y", "dx", "dw"};
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[0]");
    tsr_plan *plan[2];
    tsr_tensor *out[3];
    for (int i = 0; i < 2; i++) {
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
        enlarge(g, p, l, i ? TSR_F64 : TSR_F32, out);
        for (int j = 0; j < 3; j++)
            tsr_output(g, names[j], out[j], p, TSR_B);
        TRY(tsr_compile(g, &plan[i]));
        TRY(tsr_run(plan[i]));
        if (i == 0)
            TRY(runs_fast(plan[i]));
        for (int j = 0; j < 3 && i; j++) {
            const int64_t n = count(tsr_tensor_dims(out[j]));
            double most = 0, far = 0;
            CHECK(n > 0 && n <= MOST);
            TRY(tsr_fetch(plan[0], names[j], got, (size_t)n * sizeof *got));
            TRY(tsr_fetch(plan[1], names[j], want, (size_t)n * sizeof *want));
            for (int64_t e = 0; e < n; e++) {
                most = fmax(most, fabs(want[e]));
                far = fmax(far, fabs((double)got[e] - want[e]));
            }
            CHECK(most > 0 && far <= 5e-6 * most);
        }
        tsr_graph_destroy(g);
    }
    tsr_plan_destroy(plan[0]);
    tsr_plan_destroy(plan[1]);
    return TSR_OK;
}

static tsr_status enlarging_is_fast(tsr_world *w, void *arg)
{
    (void)arg;
    for (int i = 0; i < NENLARGING; i++)
        TRY(check_enlarging(w, &enlarging_layers[i]));
    return TSR_OK;
}

/* A stride that is far longer than the result: most of its phases have no element. */
static tsr_status long_strides(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[0]");
    const int far = 1 << 29;
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_full(g, TSR_F32, TSR_DIMS(1, 1, 3), p, TSR_B, 2);
    tsr_tensor *k = tsr_full(g, TSR_F32, TSR_DIMS(1, 1, 2), p, TSR_B, 3);
    /* Windows begin at 0, far and 2 far, and the result at far - 2. */
    tsr_tensor *y = tsr_conv_transpose1d(
        x, k, NULL, TSR_CONV_TRANSPOSE1D_OPTS(.stride = far, .padding = far - 2));
    const float want[6] = {0, 0, 6, 6, 0, 0};
    float got[6];
    CHECK(tsr_dims_equal(tsr_tensor_dims(y), TSR_DIMS(1, 1, 6)));
    TRY(tsr_eval(y, got, sizeof got));
    CHECK(!memcmp(got, want, sizeof want));
    tsr_graph_destroy(g);
    return TSR_OK;
}

/* --- refusals --------------------------------------------------------------------------------- */

static tsr_tensor *operand(const bench *b, tsr_dims dims)
{
    return tsr_full(b->g, TSR_F64, dims, b->o->placement, TSR_B, 1);
}

#define W(...) operand(b, TSR_DIMS(__VA_ARGS__))
#define REFUSALS(ROW)                                                                             \
    ROW(conv1d(b->image, W(4, 4, 3), NULL, NULL),                                                 \
        "conv1d: x (2,4,8,6), weight (4,4,3); legal are x (n,c,l), weight (o,c/groups,k)")        \
    ROW(conv1d(b->line, W(4, 4, 12), NULL, NULL),                                                 \
        "conv1d: x (2,4,9): the window of 12 (kernel with dilation) is larger than the 9 "        \
        "elements of axis 2 with padding; pad more")                                              \
    ROW(conv1d(b->line, W(4, 3, 2), NULL, NULL),                                                  \
        "conv1d: x (2,4,9), weight (4,3,2): with 1 group the weight must be (o,c/groups,k), and " \
        "the groups divide both channels")                                                        \
    ROW(conv1d(b->line, W(6, 1, 2), NULL, TSR_CONV1D_OPTS(.groups = 4)),                          \
        "conv1d: x (2,4,9), weight (6,1,2): with 4 groups the weight must be")                    \
    ROW(conv1d(b->line, W(4, 4, 2), NULL, TSR_CONV1D_OPTS(.stride = 0)),                          \
        "conv1d: stride is 0 along axis 2; it must be at least 1")                                \
    ROW(conv1d(b->line, W(4, 4, 2), W(3), NULL), "conv1d: bias")                                  \
    ROW(conv1d(b->line, tsr_cast(W(4, 4, 2), TSR_F32), NULL, NULL), "conv1d: ")                   \
    ROW(conv3d(b->volume, W(4, 4, 2, 2, 2), NULL, TSR_CONV3D_OPTS(.padding = {0, -1, 0})),        \
        "conv3d: padding is -1 along axis 3; it must be at least 0")                              \
    ROW(conv3d(b->volume, W(4, 4, 0, 2, 2), NULL, NULL),                                          \
        "conv3d: x (2,4,5,6,7), weight (4,4,0,2,2): axis 2 must be")                              \
    ROW(conv_transpose1d(b->line, W(3, 4, 2), NULL, NULL),                                        \
        "conv_transpose1d: x (2,4,9), weight (3,4,2): with 1 group the weight must be "           \
        "(c,o/groups,k)")                                                                         \
    ROW(conv_transpose2d(b->image, W(4, 4, 2, 2), NULL,                                           \
                         TSR_CONV_TRANSPOSE2D_OPTS(.output_padding = {0, 1})),                    \
        "conv_transpose2d: output_padding is 1 along axis 3; it must be below the stride (1) or " \
        "the dilation (1)")                                                                       \
    ROW(conv_transpose2d(b->image, W(4, 4, 2, 2), NULL,                                           \
                         TSR_CONV_TRANSPOSE2D_OPTS(.padding = {0, 4})),                           \
        "conv_transpose2d: x (2,4,8,6): axis 3 of the result would have -1 elements; pad less")   \
    ROW(conv_transpose3d(                                                                         \
            b->volume, W(4, 4, 2, 2, 2), NULL,                                                    \
            TSR_CONV_TRANSPOSE3D_OPTS(.stride = {1 << 29, 1 << 29, 1 << 29},                      \
                                      .padding = {4 * (1 << 28) - 1, 5 * (1 << 28) - 1,           \
                                                  6 * (1 << 28) - 1})),                           \
        "conv_transpose3d: x (2,4,5,6,7), weight (4,4,2,2,2): stride, dilation or "               \
        "output_padding is too large")                                                            \
    ROW(conv_transpose3d(b->volume, W(4, 4, 2, 2, 2), W(3), NULL), "conv_transpose3d: bias")      \
    ROW(max_pool1d(b->image, TSR_POOL1D_OPTS(.kernel = 2)),                                       \
        "max_pool1d: x is (2,4,8,6); it must be (n,c,l)")                                         \
    ROW(avg_pool1d(b->line, NULL), "avg_pool1d: kernel 0, stride 0 and padding 0 along axis 2; "  \
                                   "kernel and stride must be at least 1")                        \
    ROW(max_pool3d(b->volume, TSR_POOL3D_OPTS(.kernel = {2, 2, 9})),                              \
        "max_pool3d: x (2,4,5,6,7): kernel 9 is larger than the 7 elements of axis 4 with "       \
        "padding")                                                                                \
    ROW(avg_pool3d(b->volume, TSR_POOL3D_OPTS(.kernel = {2, 2, 2}, .padding = {0, 2, 0})),        \
        "avg_pool3d: kernel 2, stride 2 and padding 2 along axis 3")                              \
    ROW(lp_pool2d(b->image, 0, (tsr_hw){2, 2}, (tsr_hw){0, 0}),                                   \
        "lp_pool2d: p is 0; it must be finite and not 0")                                         \
    ROW(adaptive_max_pool2d(b->image, 0, 2),                                                      \
        "adaptive_max_pool2d: 0 windows along axis 2; legal are 1 to 16777216")                   \
    ROW(adaptive_avg_pool3d(b->image, 1, 1, 1),                                                   \
        "adaptive_avg_pool3d: x is (2,4,8,6); it must be (n,c,d,h,w)")                            \
    ROW(fold(b->line, 3, 3, (tsr_hw){2, 2}, (tsr_hw){1, 1}, (tsr_hw){0, 0}),                      \
        "fold: x is (2,4,9), the images 3 x 3, the kernel 2 x 2")                                 \
    ROW(channel_shuffle(b->image, 3), "channel_shuffle: x is (2,4,8,6), groups 3")                \
    ROW(dropout2d(b->image, 1), "dropout2d: p is 1, x (2,4,8,6); p must be in [0, 1)")

#define ENTRY(call, text) text,
static const char *const refusals[] = {REFUSALS(ENTRY)};
enum { NREFUSALS = sizeof refusals / sizeof *refusals };

/* Declares the i-th of the calls above. */
static void declare_refused(const bench *b, int i)
{
    int at = 0;
#define CALL(call, text) \
    if (i == at++)       \
        (void)tsr_##call;
    REFUSALS(CALL)
#undef CALL
}

static tsr_status refused(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_nn_opts o = {.placement = tsr_placement_parse(w, "cpu"), .sbp = TSR_B};
    for (int i = 0; i < NREFUSALS; i++) {
        bench b = bench_of(w, &o, false);
        declare_refused(&b, i);
        const bool fails = tsr_graph_status(b.g) != TSR_OK;
        if (!fails || !strstr(tsr_last_error(), refusals[i])) {
            fprintf(stderr, "%s: %s\n", refusals[i], fails ? tsr_last_error() : "no error");
            return TSR_ERR_INTERNAL;
        }
        tsr_graph_destroy(b.g);
    }
    CHECK(!tsr_nn_conv3d(w, &o, 4, 6, (tsr_dhw){1, 1, 1}, true, TSR_CONV3D_OPTS(.groups = 4)));
    CHECK(strstr(tsr_last_error(), "tsr_nn_conv3d: in = 4 and out = 6 channels must be multiples"));
    CHECK(!tsr_nn_avg_pool1d(w, &o, NULL));
    CHECK(strstr(tsr_last_error(), "tsr_nn_avg_pool1d: kernel has the size 0"));
    CHECK(!tsr_nn_adaptive_max_pool3d(w, &o, 1, 0, 1));
    CHECK(strstr(tsr_last_error(), "tsr_nn_adaptive_max_pool3d: 0 windows"));
    return TSR_OK;
}

static void test_convolutions(void **state)
{
    (void)state;
    on_ranks(convolutions, NULL);
}

static void test_pools(void **state)
{
    (void)state;
    on_ranks(pools, NULL);
}

static void test_channels_dropped(void **state)
{
    (void)state;
    on_ranks(channels_dropped, NULL);
}

static void test_nothing_is_sent(void **state)
{
    (void)state;
    on_ranks(nothing_is_sent, NULL);
}

static void test_enlarging(void **state)
{
    (void)state;
    if (tsr_spawn(1, enlarging_is_fast, NULL) != TSR_OK ||
        tsr_spawn(1, long_strides, NULL) != TSR_OK)
        fail_msg("%s", tsr_last_error());
}

static void test_refused(void **state)
{
    (void)state;
    on_ranks(refused, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolutions),     cmocka_unit_test(test_pools),
        cmocka_unit_test(test_channels_dropped), cmocka_unit_test(test_nothing_is_sent),
        cmocka_unit_test(test_enlarging),        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
