/* SPDX-License-Identifier: Apache-2.0 */
/* Indexing, selection and cutting in whole programs, on 1, 2 and 3 ranks and in several signatures,
 * forward and backward, against values worked out in plain C. */
#include "rank.h"

/* --- embedding -------------------------------------------------------------------------------- */

enum { V = 7, W = 3, NIDS = 10 };

static const int64_t some_ids[NIDS] = {6, 0, 3, 3, 1, 6, 6, 2, 0, 3};

/* y = table[ids], loss = sum(y * w): its gradient counts w by id. `sbp` is of the table. */
static tsr_status embed(tsr_world *w, void *arg)
{
    double table[V * W], weight[NIDS * W], y[NIDS * W], want[NIDS * W], dx[V * W], want_dx[V * W];
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const tsr_sbp ids_sbp[] = {TSR_B, TSR_S(0)};
    memset(want_dx, 0, sizeof want_dx);
    for (int i = 0; i < V * W; i++)
        table[i] = sin(i);
    for (int i = 0; i < NIDS * W; i++) {
        weight[i] = cos(i);
        want[i] = table[some_ids[i / W] * W + i % W];
        if (some_ids[i / W] != 3)
            want_dx[some_ids[i / W] * W + i % W] += weight[i];
    }
    for (int i = 0; i < 2; i++) {
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
        tsr_tensor *t = tsr_input(g, "table", TSR_F64, TSR_DIMS(V, W), p, *(const tsr_sbp *)arg);
        tsr_tensor *ids = tsr_input(g, "ids", TSR_I64, TSR_DIMS(5, 2), p, ids_sbp[i]), *dt;
        tsr_tensor *out =
            tsr_embedding(t, ids, TSR_EMBEDDING_OPTS(.has_padding_idx = true, .padding_idx = -4));
        tsr_tensor *k = tsr_input(g, "weight", TSR_F64, TSR_DIMS(5, 2, W), p, TSR_B);
        tsr_gradients(tsr_sum(tsr_mul(out, k), TSR_ALL_AXES, false), 1, &t, &dt);
        tsr_output(g, "y", out, p, TSR_B);
        tsr_output(g, "dt", dt, p, *(const tsr_sbp *)arg);
        tsr_output(g, "whole", dt, p, TSR_B);
        tsr_plan *plan;
        TRY(tsr_compile(g, &plan));
        TRY(tsr_feed(plan, "table", table, sizeof table));
        TRY(tsr_feed(plan, "ids", some_ids, sizeof some_ids));
        TRY(tsr_feed(plan, "weight", weight, sizeof weight));
        TRY(tsr_run(plan));
        TRY(tsr_fetch(plan, "y", y, sizeof y));
        TRY(tsr_fetch(plan, "whole", dx, sizeof dx));
        CHECK(all_near("y", y, want, NIDS * W, 1e-14));
        CHECK(all_near("dtable", dx, want_dx, V * W, 1e-14));
        tsr_graph_destroy(g);
    }
    return TSR_OK;
}

static void test_embedding(void **state)
{
    (void)state;
    on_ranks(embed, &TSR_B);
    on_ranks(embed, &TSR_S(0));
    on_ranks(embed, &TSR_S(1));
}

/* Rank 1 has the row that 3 names, and no rank the one that 7 names. */
static tsr_status bad_id(tsr_world *w, void *arg)
{
    const int64_t ids[4] = {3, 2, *(const int64_t *)arg, 0};
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *t = tsr_full(g, TSR_F32, TSR_DIMS(V, W), p, TSR_S(0), 1);
    tsr_tensor *i = tsr_input(g, "ids", TSR_I64, TSR_DIMS(2, 2), p, TSR_B);
    tsr_output(g, "y", tsr_embedding(t, i, NULL), p, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    TRY(tsr_feed(plan, "ids", ids, sizeof ids));
    CHECK(tsr_run(plan) != TSR_OK);
    CHECK(strstr(tsr_last_error(), "is not in 0 <= id < 7"));
    CHECK(strstr(tsr_last_error(), "element 2 of the ids"));
    CHECK(strstr(tsr_last_error(), "test_index.c:"));
    return TSR_OK;
}

static void test_bad_ids(void **state)
{
    (void)state;
    on_ranks(bad_id, &(int64_t){7});
    on_ranks(bad_id, &(int64_t){-1});
}

/* --- constants -------------------------------------------------------------------------------- */

/* A constant in every signature; the plan outlives its graph. */
static tsr_status constants(tsr_world *w, void *arg)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    double data[35], got[35], range[7];
    for (int i = 0; i < 35; i++)
        data[i] = sin(i);
    tsr_graph *g = tsr_graph_create(w, NULL);
    const tsr_sbp sbp = *(const tsr_sbp *)arg;
    tsr_tensor *c = tsr_constant(g, TSR_F64, TSR_DIMS(5, 7), data, p, sbp);
    tsr_tensor *r = tsr_arange(g, TSR_F64, 7, 2, -0.5, p, TSR_S(0));
    const int64_t at[7] = {6, 5, 4, 3, 2, 1, 0};
    tsr_tensor *ids = tsr_constant(g, TSR_I64, TSR_DIMS(7), at, p, TSR_B);
    tsr_tensor *turn = tsr_one_hot(ids, 7, TSR_F64);
    tsr_output(g, "sum", tsr_add(tsr_matmul(c, turn), r), p, TSR_B);
    tsr_output(g, "r", r, p, TSR_B);
    for (int i = 0; i < 35; i++)
        data[i] = 0; /* it was copied */
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    tsr_graph_destroy(g);
    for (int step = 0; step < 2; step++) {
        TRY(tsr_run(plan));
        TRY(tsr_fetch(plan, "sum", got, sizeof got));
        TRY(tsr_fetch(plan, "r", range, sizeof range));
        for (int i = 0; i < 35; i++) {
            CHECK(near_to(range[i % 7], 2 - 0.5 * (i % 7), 0));
            CHECK(near_to(got[i], sin(i / 7 * 7 + 6 - i % 7) + range[i % 7], 1e-14));
        }
    }
    tsr_plan_destroy(plan);
    return TSR_OK;
}

static void test_constants(void **state)
{
    (void)state;
    on_ranks(constants, &TSR_B);
    on_ranks(constants, &TSR_S(0));
    on_ranks(constants, &TSR_S(1));
}

/* Ranks that hold other numbers are told before anything runs. */
static tsr_status other_data(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const float data[3] = {1, 2, tsr_world_rank(w) == 1 ? 4 : 3};
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_output(g, "c", tsr_constant(g, TSR_F32, TSR_DIMS(3), data, p, TSR_B), p, TSR_B);
    tsr_plan *plan;
    if (tsr_world_size(w) == 1)
        return tsr_compile(g, &plan);
    CHECK(tsr_compile(g, &plan) == TSR_ERR_MISMATCH);
    CHECK(strstr(tsr_last_error(), "op 0 is the first that differs: hash of the data is 0x"));
    CHECK(strstr(tsr_last_error(), "; rank 0: test_index.c:"));
    return TSR_OK;
}

static void test_other_data(void **state)
{
    (void)state;
    on_ranks(other_data, NULL);
}

/* --- every op --------------------------------------------------------------------------------- */

enum { R = 4, C = 6, N = R * C, OUT_MAX = 64 };

typedef struct ctx {
    tsr_graph *g;
    const tsr_placement *p;
    tsr_tensor *x, *y, *ids;
    double xv[N], yv[N];
    int64_t iv[R];
} ctx;

typedef struct op_case {
    const char *name;
    tsr_tensor *(*make)(ctx *c);
    int (*want)(const ctx *c, double *o);
} op_case;

/* Element i, of n, is `value`; r and q are its row and column in rows of w. */
#define OP(name, n, w, tensor, value)               \
    static tsr_tensor *make_##name(ctx *c)          \
    {                                               \
        return tensor;                              \
    }                                               \
    static int want_##name(const ctx *c, double *o) \
    {                                               \
        for (int i = 0; i < (n); i++) {             \
            const int r = i / (w), q = i % (w);     \
            const double *x = c->xv, *y = c->yv;    \
            o[i] = value;                           \
            (void)r, (void)q, (void)x, (void)y;     \
        }                                           \
        return n;                                   \
    }
#define REAL(t) tsr_cast((t), TSR_F64)

static double variance_of(const double *x, int n, int step, double correction)
{
    double mean = 0, sum = 0;
    for (int i = 0; i < n; i++)
        mean += x[i * step] / n;
    for (int i = 0; i < n; i++)
        sum += (x[i * step] - mean) * (x[i * step] - mean);
    return sum / (n - correction);
}

static double sum_to(const double *x, int n, int step)
{
    double s = 0;
    for (int i = 0; i <= n; i++)
        s += x[i * step];
    return s;
}

static tsr_tensor *second_part(tsr_tensor *x)
{
    tsr_tensor *part[3];
    tsr_split(x, 3, (const int64_t[]){1, 3, 2}, 1, part);
    return part[1];
}

OP(not_equal, N, C, REAL(tsr_not_equal(c->x, c->y)), x[i] != y[i])
OP(less, N, C, REAL(tsr_less(c->x, c->y)), x[i] < y[i])
OP(less_equal, N, C, REAL(tsr_less_equal(c->x, c->y)), x[i] <= y[i])
OP(greater, N, C, REAL(tsr_greater(c->x, c->y)), x[i] > y[i])
OP(greater_equal, N, C, REAL(tsr_greater_equal(c->x, c->y)), x[i] >= y[i])
OP(maximum, N, C, tsr_maximum(c->x, c->y), fmax(x[i], y[i]))
OP(minimum, N, C, tsr_minimum(c->x, c->y), fmin(x[i], y[i]))
OP(where, N, C, tsr_where(tsr_less(c->x, c->y), tsr_narrow(c->y, 0, 2, 1), c->x),
   x[i] < y[i] ? y[2 * C + q] : x[i])
OP(concat, 2 * N, 2 * C, tsr_concat(2, ((tsr_tensor *[]){c->x, c->y}), 1),
   q < C ? x[r * C + q] : y[r * C + q - C])
OP(stack, 2 * N, C, tsr_stack(2, ((tsr_tensor *[]){c->x, c->y}), 0), i < N ? x[i] : y[i - N])
OP(split, R * 3, 3, second_part(c->x), x[r * C + q + 1])
OP(slice, 2 * 3, 3, tsr_slice(c->x, TSR_DIMS(1, -5), TSR_DIMS(3, 99), TSR_DIMS(1, 2)),
   x[(r + 1) * C + 1 + 2 * q])
OP(pad, 5 * 8, 8, tsr_pad(c->x, TSR_DIMS(1, 0), TSR_DIMS(0, 2), 2.5),
   r &&q < C ? x[(r - 1) * C + q] : 2.5)
OP(gather, N, C, tsr_index_select(c->x, 0, c->ids), x[c->iv[r] * C + q])
OP(gather_columns, R * 4, 4, tsr_index_select(c->x, 1, c->ids), x[r * C + c->iv[q]])
OP(one_hot, R * 5, 5, tsr_one_hot(c->ids, 5, TSR_F64), q == c->iv[r])
OP(triu, N, C, tsr_triu(c->x, 1), q - r >= 1 ? x[i] : 0)
OP(tril, N, C, tsr_tril(c->x, -1), q - r <= -1 ? x[i] : 0)
OP(cumsum, N, C, tsr_cumsum(c->x, 0), sum_to(x + q, r, C))
OP(cumsum_last, N, C, tsr_cumsum(c->x, 1), sum_to(x + r * C, q, 1))
OP(variance, C, C, tsr_variance(c->x, TSR_AXES(0), false, 1), variance_of(x + q, R, C, 1))
OP(variance_all, 1, 1, tsr_variance(c->x, TSR_ALL_AXES, false, 0), variance_of(x, N, 1, 0))
OP(std, R, 1, tsr_std(c->x, TSR_AXES(1), true, 1), sqrt(variance_of(x + r * C, C, 1, 1)))
OP(arange, 6, 6, tsr_arange(c->g, TSR_F64, 6, 3, -2, c->p, TSR_S(0)), 3 - 2 * q)

#define CASE(name)                      \
    {                                   \
#name, make_##name, want_##name \
    }
static const op_case cases[] = {
    CASE(not_equal), CASE(less),         CASE(less_equal), CASE(greater), CASE(greater_equal),
    CASE(maximum),   CASE(minimum),      CASE(where),      CASE(concat),  CASE(stack),
    CASE(split),     CASE(slice),        CASE(pad),        CASE(gather),  CASE(gather_columns),
    CASE(one_hot),   CASE(triu),         CASE(tril),       CASE(cumsum),  CASE(cumsum_last),
    CASE(variance),  CASE(variance_all), CASE(std),        CASE(arange),
};
enum { NCASES = sizeof cases / sizeof *cases };

/* The gradients of all of them together, as one rank has them. */
static double whole_dx[2][N];

static tsr_status every_op(tsr_world *w, void *arg)
{
    const tsr_sbp sbp = *(const tsr_sbp *)arg;
    ctx c = {.iv = {3, 0, 1, 3}};
    for (int i = 0; i < N; i++) {
        c.xv[i] = sin(3.0 * i);
        c.yv[i] = i % 3 == 0 ? c.xv[i] : cos(2.0 * i);
    }
    c.g = tsr_graph_create(w, NULL);
    c.p = tsr_placement_parse(w, "cpu");
    c.x = tsr_input(c.g, "x", TSR_F64, TSR_DIMS(R, C), c.p, sbp);
    c.y = tsr_input(c.g, "y", TSR_F64, TSR_DIMS(R, C), c.p, sbp);
    c.ids = tsr_input(c.g, "ids", TSR_I64, TSR_DIMS(R), c.p, TSR_AUTO);
    tsr_tensor *loss = tsr_mean(tsr_mul(c.x, c.y), TSR_ALL_AXES, false), *of[2] = {c.x, c.y}, *d[2];
    for (int i = 0; i < NCASES; i++) {
        tsr_tensor *t = cases[i].make(&c);
        tsr_output(c.g, cases[i].name, t, c.p, TSR_B);
        loss = tsr_add(loss, tsr_mean(tsr_mul(t, t), TSR_ALL_AXES, false));
    }
    tsr_gradients(loss, 2, of, d);
    tsr_output(c.g, "dx", d[0], c.p, TSR_B);
    tsr_output(c.g, "dy", d[1], c.p, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(c.g, &plan));
    TRY(tsr_feed(plan, "x", c.xv, sizeof c.xv));
    TRY(tsr_feed(plan, "y", c.yv, sizeof c.yv));
    TRY(tsr_feed(plan, "ids", c.iv, sizeof c.iv));
    TRY(tsr_run(plan));
    for (int i = 0; i < NCASES; i++) {
        double want[OUT_MAX], got[OUT_MAX];
        int n = cases[i].want(&c, want);
        TRY(tsr_fetch(plan, cases[i].name, got, (size_t)n * sizeof *got));
        CHECK(all_near(cases[i].name, got, want, n, 1e-12));
    }
    for (int i = 0; i < 2; i++) {
        double got[N];
        TRY(tsr_fetch(plan, i ? "dy" : "dx", got, sizeof got));
        if (tsr_world_size(w) == 1)
            memcpy(whole_dx[i], got, sizeof got);
        CHECK(all_near(i ? "dy" : "dx", got, whole_dx[i], N, 1e-12));
    }
    tsr_plan_destroy(plan);
    return TSR_OK;
}

static void test_every_op(void **state)
{
    (void)state;
    on_ranks(every_op, &TSR_B);
    on_ranks(every_op, &TSR_S(0));
    on_ranks(every_op, &TSR_S(1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding), cmocka_unit_test(test_bad_ids),
        cmocka_unit_test(test_constants), cmocka_unit_test(test_other_data),
        cmocka_unit_test(test_every_op),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
