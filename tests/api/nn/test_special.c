/* SPDX-License-Identifier: Apache-2.0 */
/* Infinities, NaN, signed zeros and empty axes: values and gradients, by bit class, on 1 to 3 ranks
 * in every split, with the fast kernels and with those of reference. Wanted values are PyTorch's,
 * but where a header states another. */
#include "../rank.h"

enum { MOST = 3, ROOM = 128 };
#define INF INFINITY

typedef tsr_tensor *program(tsr_tensor *const x[MOST], tsr_tensor *labels);

static tsr_tensor *logcumsumexp(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    (void)labels;
    return tsr_logcumsumexp(x[0], 1);
}

static tsr_tensor *logsumexp(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    (void)labels;
    return tsr_logsumexp(x[0], TSR_AXES(1), false);
}

static tsr_tensor *softmax(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    (void)labels;
    return tsr_add(tsr_softmax(x[0], 1), tsr_log_softmax(x[0], 1));
}

static tsr_tensor *floor_divide(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    (void)labels;
    return tsr_floor_divide(x[0], x[1]);
}

static tsr_tensor *atan_of_two(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    (void)labels;
    return tsr_atan2(x[0], x[1]);
}

static tsr_tensor *kl_div(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    (void)labels;
    return tsr_kl_div(x[0], x[1], false, TSR_NONE);
}

static tsr_tensor *cross_entropy(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    return tsr_cross_entropy_with(
        x[0], labels, TSR_CROSS_ENTROPY_OPTS(.has_ignore_index = true, .ignore_index = -100));
}

static tsr_tensor *nll_loss(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    return tsr_nll_loss(x[0], labels,
                        TSR_NLL_LOSS_OPTS(.has_ignore_index = true, .ignore_index = -100,
                                          .weight = tsr_sum(tsr_abs(x[0]), TSR_AXES(0), false)));
}

static tsr_tensor *through_sum(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    (void)labels;
    const tsr_placement *p = tsr_tensor_placement(x[0]);
    return tsr_div(x[1], tsr_to_global(tsr_to_global(x[0], p, TSR_P), p, TSR_B));
}

static tsr_tensor *grouped(tsr_tensor *const x[MOST], tsr_tensor *labels)
{
    (void)labels;
    return tsr_conv2d(x[0], x[1], NULL, TSR_CONV2D_OPTS(.groups = 2, .padding = {1, 1}));
}

typedef struct special {
    const char *name;
    program *make;
    int n;
    tsr_dims dims[MOST];
    double x[MOST][16], y[16], dx[MOST][16]; /* dx[0][0] = 77: not looked at */
} special;

/* clang-format off */
#define D(...) {(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}}
/* clang-format on */
static const special cases[] = {
    {"logcumsumexp",
     logcumsumexp,
     1,
     {D(3, 4)},
     {{1, INF, 2, 3, -INF, -INF, 1, -INF, NAN, INF, 1, 0}},
     {1, INF, INF, INF, -INF, -INF, 1, 1, NAN, NAN, NAN, NAN},
     {{1, NAN, 0, 0, 0, 0, 2, 0, NAN, NAN, NAN, NAN}}},
    {"logsumexp",
     logsumexp,
     1,
     {D(3, 2)},
     {{1, INF, -INF, -INF, NAN, INF}},
     {INF, -INF, NAN},
     {{0, NAN, NAN, NAN, NAN, NAN}}},
    {"logsumexp of nothing", logsumexp, 1, {D(2, 0)}, {{0}}, {-INF, -INF}, {{0}}},
    {"logsumexp of no rows", logsumexp, 1, {D(0, 2)}, {{0}}, {0}, {{0}}},
    {"softmax of nothing", softmax, 1, {D(2, 0)}, {{0}}, {0}, {{0}}},
    {"floor_divide",
     floor_divide,
     2,
     {D(4, 4), D(4, 4)},
     {{-1, 1, -1, 1, INF, -INF, 0, -0.0, 5, -5, 1, -1, INF, NAN, 0, -1},
      {INF, INF, -INF, -INF, 2, 2, INF, INF, 0, 0, -0.0, -0.0, INF, 1, 0, -2}},
     {-1, 0, 0, -1, NAN, NAN, 0, -0.0, INF, -INF, -INF, INF, NAN, NAN, NAN, 0},
     {{77}}},
    {"atan2",
     atan_of_two,
     2,
     {D(2, 2), D(2, 2)},
     {{0, -0.0, 1, 0}, {0, 0, 0, -1}},
     {0, -0.0, M_PI / 2, M_PI},
     {{0, 0, 0, -1}, {-0.0, 0, -1, -0.0}}},
    {"kl_div",
     kl_div,
     2,
     {D(2, 3), D(2, 3)},
     {{-1, -2, -3, 0, 0, -1}, {1, 0, -0.5, NAN, INF, 2}},
     {1, 0, NAN, NAN, NAN, 2 * M_LN2 + 2},
     {{77}}},
    {"cross_entropy, all ignored",
     cross_entropy,
     1,
     {D(2, 3)},
     {{1, 2, INF, 4, 5, 6}},
     {0},
     {{77}}},
    {"nll_loss, all ignored", nll_loss, 1, {D(2, 3)}, {{-1, -2, -3, -4, -5, -6}}, {0}, {{77}}},
    {"-0 through P",
     through_sum,
     2,
     {D(2, 3), D(2, 3)},
     {{-0.0, 0, -INF, INF, NAN, 1}, {1, 1, 1, 1, 1, 1}},
     {-INF, INF, -0.0, 0, NAN, 1},
     {{77}}},
    {"grouped convolution",
     grouped,
     2,
     {D(1, 4, 2, 1), D(4, 2, 1, 1)},
     {{1, 2, 3, 4, 5, 6, 7, 8}, {INF, 1, 1, 1, 1, 1, -INF, 2}},
     {0},
     {{77}}},
};

typedef struct how {
    const special *c;
    tsr_dtype dtype;
    int axis; /* that is split in every operand that has it; -1: none */
} how;

static bool is_like(double got, double want)
{
    return isnan(want)            ? isnan(got)
           : isinf(want) || !want ? got == want && signbit(got) == signbit(want)
                                  : fabs(got - want) <= 1e-6 * fabs(want);
}

static bool all_like(const how *h, int n, const char *what, const double *got, const double *want,
                     int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!is_like(got[i], want[i])) {
            fprintf(stderr, "%s, %s, axis %d of %d ranks: %s[%lld]: %g, not %g\n", h->c->name,
                    tsr_dtype_name(h->dtype), h->axis, n, what, (long long)i, got[i], want[i]);
            return false;
        }
    return true;
}

static tsr_status feed(tsr_plan *plan, const char *name, tsr_dtype dtype, const double *v,
                       int64_t n)
{
    float small[ROOM];
    for (int64_t i = 0; i < n; i++)
        small[i] = (float)v[i];
    return tsr_feed(plan, name, dtype == TSR_F32 ? (const void *)small : v,
                    (size_t)n * tsr_dtype_size(dtype));
}

static tsr_status fetch(tsr_plan *plan, const char *name, tsr_dtype dtype, double *v, int64_t n)
{
    float small[ROOM];
    TRY(tsr_fetch(plan, name, dtype == TSR_F32 ? (void *)small : v,
                  (size_t)n * tsr_dtype_size(dtype)));
    for (int64_t i = 0; i < n && dtype == TSR_F32; i++)
        v[i] = (double)small[i];
    return TSR_OK;
}

/* The grouped convolution of 1 x 1 windows: what is around x adds nothing. */
static void convolve(const special *c, double *y)
{
    memset(y, 0, 48 * sizeof *y);
    for (int o = 0; o < 4; o++)
        for (int at = 0; at < 2; at++)
            y[(o * 4 + 1 + at) * 3 + 1] = c->x[0][(o / 2 * 2) * 2 + at] * c->x[1][o * 2] +
                                          c->x[0][(o / 2 * 2 + 1) * 2 + at] * c->x[1][o * 2 + 1];
}

static tsr_status one(tsr_world *w, void *arg)
{
    const how *h = arg;
    const special *c = h->c;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x[MOST] = {NULL}, *dx[MOST];
    double buf[ROOM], want[ROOM];
    char name[16];
    for (int i = 0; i < c->n; i++) {
        snprintf(name, sizeof name, "x%d", i);
        const bool split = h->axis >= 0 && h->axis < c->dims[i].ndim;
        x[i] = tsr_input(g, name, h->dtype, c->dims[i], p, split ? TSR_S(h->axis) : TSR_B);
    }
    tsr_tensor *labels = tsr_input(g, "labels", TSR_I64, TSR_DIMS(2), p, TSR_B);
    tsr_tensor *y = c->make(x, labels);
    const int64_t ny = tsr_dims_count(tsr_tensor_dims(y));
    const bool slopes = c->dx[0][0] != 77;
    tsr_output(g, "y", y, p, TSR_B);
    if (slopes)
        tsr_gradients(tsr_sum(y, TSR_ALL_AXES, false), c->n, x, dx);
    for (int i = 0; i < c->n && slopes; i++) {
        snprintf(name, sizeof name, "dx%d", i);
        tsr_output(g, name, dx[i], p, TSR_B);
    }
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    for (int i = 0; i < c->n; i++) {
        snprintf(name, sizeof name, "x%d", i);
        TRY(feed(plan, name, h->dtype, c->x[i], tsr_dims_count(c->dims[i])));
    }
    TRY(tsr_feed(plan, "labels", (int64_t[]){-100, -100}, 2 * sizeof(int64_t)));
    TRY(tsr_run(plan));
    TRY(fetch(plan, "y", h->dtype, buf, ny));
    memcpy(want, c->y, sizeof c->y);
    if (c->make == grouped)
        convolve(c, want);
    CHECK(all_like(h, tsr_world_size(w), "y", buf, want, ny));
    for (int i = 0; i < c->n && slopes; i++) {
        snprintf(name, sizeof name, "dx%d", i);
        TRY(fetch(plan, name, h->dtype, buf, tsr_dims_count(c->dims[i])));
        CHECK(all_like(h, tsr_world_size(w), name, buf, c->dx[i], tsr_dims_count(c->dims[i])));
    }
    return TSR_OK;
}

static void with_kernels(const char *kernels, void (*fn)(void))
{
    setenv("TESSERA_KERNELS", kernels, 1);
    fn();
    unsetenv("TESSERA_KERNELS");
}

static void try_cases(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int axis = -1; axis < cases[i].dims[0].ndim; axis++)
            for (int f64 = 0; f64 < 2; f64++)
                on_ranks(one, &(how){&cases[i], f64 ? TSR_F64 : TSR_F32, axis});
}

static void test_cases(void **state)
{
    (void)state;
    try_cases();
    with_kernels("ref", try_cases);
}

/* --- attention: a NaN in a key that is not seen ----------------------------------------------- */

enum { HEADS = 2, S = 4, T = 4, D = 5, E = 3, Q = HEADS * S * D, K = HEADS * T * D };

typedef struct hiding {
    bool fused, causal, masked;
    double dropout, hidden; /* what stands in the key that is not seen */
    tsr_dtype dtype, cast;  /* of the inputs, and of attention's operands; NONE: the same */
    int axis;
} hiding;

typedef struct results {
    double y[HEADS * S * E], dq[Q], dk[K], dv[HEADS * T * E];
} results;

static tsr_status attend_one(tsr_world *w, const hiding *h, results *out)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true, .seed = 5));
    const int64_t last[3] = {D, D, E};
    tsr_tensor *x[3], *dx[3];
    char name[16];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "x%d", i);
        x[i] = tsr_input(g, name, h->dtype, TSR_DIMS(1, HEADS, S, last[i]), p,
                         h->axis < 0 ? TSR_B : TSR_S(h->axis));
        x[i] = h->cast ? tsr_cast(x[i], h->cast) : x[i];
    }
    tsr_tensor *mask = tsr_input(g, "mask", TSR_BOOL, TSR_DIMS(T), p, TSR_B);
    const tsr_attention_opts *o = TSR_ATTENTION_OPTS(.causal = h->causal, .dropout = h->dropout);
    tsr_tensor *y =
        h->fused ? tsr_scaled_dot_product_attention(x[0], x[1], x[2], h->masked ? mask : NULL, o)
                 : tsr_attention(x[0], x[1], x[2], o);
    /* Of a causal mask the last query sees the NaN; it has no say in the gradients. */
    tsr_tensor *some = h->causal ? tsr_narrow(y, 2, 0, S - 1) : y;
    tsr_gradients(tsr_sum(tsr_square(some), TSR_ALL_AXES, false), 3, x, dx);
    tsr_output(g, "y", h->cast ? tsr_cast(y, h->dtype) : y, p, TSR_B);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "dx%d", i);
        tsr_output(g, name, h->cast ? tsr_cast(dx[i], h->dtype) : dx[i], p, TSR_B);
    }
    tsr_plan *plan;
    double v[ROOM], *const dst[3] = {out->dq, out->dk, out->dv};
    TRY(tsr_compile(g, &plan));
    for (int i = 0; i < 3; i++) {
        for (int64_t e = 0; e < HEADS * T * last[i]; e++)
            v[e] = sin(0.7 * (double)e + i);
        for (int64_t e = 0; e < HEADS && i == 1; e++)
            v[(e * T + T - 1) * D + 1] = h->hidden;
        snprintf(name, sizeof name, "x%d", i);
        TRY(feed(plan, name, h->dtype, v, HEADS * T * last[i]));
    }
    if (h->fused && h->masked)
        TRY(tsr_feed(plan, "mask", (uint8_t[]){1, 1, 1, 0}, T));
    TRY(tsr_run(plan));
    TRY(fetch(plan, "y", h->dtype, out->y, HEADS * S * E));
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "dx%d", i);
        TRY(fetch(plan, name, h->dtype, dst[i], HEADS * T * last[i]));
    }
    return TSR_OK;
}

/* What is seen of the keys that are not hidden. */
static bool same_rows(const char *what, const double *a, const double *b, int64_t row, int rows)
{
    for (int64_t i = 0; i < HEADS * T * row; i++)
        if (i / row % T < rows && !(a[i] == b[i])) {
            fprintf(stderr, "%s[%lld]: %g with a NaN, %g without\n", what, (long long)i, b[i],
                    a[i]);
            return false;
        }
    return true;
}

static tsr_status hide_one(tsr_world *w, void *arg)
{
    hiding h = *(const hiding *)arg;
    results a, b;
    TRY(attend_one(w, &h, &a));
    h.hidden = NAN;
    TRY(attend_one(w, &h, &b));
    const int rows = h.causal ? S - 1 : S;
    /* The last query's own gradient is 0 times NaN, and with it what keys and values get. */
    bool same = same_rows("y", a.y, b.y, E, rows) && same_rows("dq", a.dq, b.dq, D, rows);
    if (!h.causal)
        same = same && same_rows("dk", a.dk, b.dk, D, T) && same_rows("dv", a.dv, b.dv, E, T);
    if (!same)
        fprintf(stderr, "%s%s%s, dropout %g, %s, axis %d of %d ranks\n", h.fused ? "fused" : "",
                h.causal ? " causal" : "", h.masked ? " masked" : "", h.dropout,
                tsr_dtype_name(h.cast ? h.cast : h.dtype), h.axis, tsr_world_size(w));
    CHECK(same);
    return TSR_OK;
}

static void try_hidden(void)
{
    static const tsr_dtype dtypes[4][2] = {
        {TSR_F64}, {TSR_F32}, {TSR_F32, TSR_F16}, {TSR_F32, TSR_BF16}};
    for (int i = 0; i < 128; i++)
        for (int axis = -1; axis < 3; axis++) {
            hiding h = {.fused = i & 1,
                        .causal = i & 2,
                        .masked = i & 4,
                        .dropout = i & 8 ? 0.3 : 0,
                        .dtype = dtypes[i >> 4 & 3][0],
                        .cast = dtypes[i >> 4 & 3][1],
                        .hidden = i & 64 ? 0.4 : INFINITY,
                        .axis = axis};
            if (h.causal != h.masked && (h.fused || h.causal) && isfinite(h.hidden))
                on_ranks(hide_one, &h);
        }
}

static void test_hidden_keys(void **state)
{
    (void)state;
    try_hidden();
    with_kernels("ref", try_hidden);
}

/* A query that sees no key gets zeros, whether or not weights are dropped. */
static tsr_status nothing_seen(tsr_world *w, void *arg)
{
    const double dropout = *(const double *)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_full(g, TSR_F32, TSR_DIMS(1, 1, 2, 2), p, TSR_B, 1);
    tsr_tensor *mask = tsr_input(g, "mask", TSR_BOOL, TSR_DIMS(2, 2), p, TSR_B);
    tsr_output(
        g, "y",
        tsr_scaled_dot_product_attention(x, x, x, mask, TSR_ATTENTION_OPTS(.dropout = dropout)), p,
        TSR_B);
    tsr_plan *plan;
    float y[4];
    TRY(tsr_compile(g, &plan));
    TRY(tsr_feed(plan, "mask", (uint8_t[]){0, 0, 1, 1}, 4));
    TRY(tsr_run(plan));
    TRY(tsr_fetch(plan, "y", y, sizeof y));
    CHECK(y[0] == 0 && y[1] == 0);
    return TSR_OK;
}

static void test_nothing_seen(void **state)
{
    (void)state;
    on_ranks(nothing_seen, &(double){0});
    on_ranks(nothing_seen, &(double){0.25});
}

/* --- refusals over an empty axis -------------------------------------------------------------- */
static tsr_status refuse(tsr_world *w, void *arg)
{
    (void)arg;
    static const char *const names[] = {"max", "min", "argmax", "argmin", "norm", "median"};
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    for (int i = 0; i < 6; i++) {
        tsr_graph *g = tsr_graph_create(w, NULL);
        tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(2, 0), p, TSR_B);
        tsr_tensor *y = i == 0   ? tsr_max(x, TSR_AXES(1), false)
                        : i == 1 ? tsr_min(x, TSR_AXES(1), false)
                        : i == 2 ? tsr_argmax(x, 1)
                        : i == 3 ? tsr_argmin(x, 1)
                        : i == 4 ? tsr_norm(x, INFINITY, TSR_AXES(1), false)
                                 : tsr_median(x, 1, false, NULL);
        CHECK(!tsr_tensor_ok(y));
        tsr_plan *plan;
        CHECK(tsr_compile(g, &plan) == TSR_ERR_SHAPE);
        char start[32];
        snprintf(start, sizeof start, ": %s: ", names[i]);
        if (!strstr(tsr_last_error(), start))
            fprintf(stderr, "%s: %s\n", names[i], tsr_last_error());
        CHECK(strstr(tsr_last_error(), start));
    }
    return TSR_OK;
}

static void test_refusals(void **state)
{
    (void)state;
    on_ranks(refuse, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_hidden_keys),
        cmocka_unit_test(test_nothing_seen),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
