/* SPDX-License-Identifier: Apache-2.0 */
/* Values that several ops, outputs and gradients use, on 1, 2 and 3 thread ranks: nothing is lost,
 * counted twice or fused away. Expected values are worked out in plain C. */
#include "rank.h"

enum { ROWS = 5, COLUMNS = 2, COUNT = ROWS * COLUMNS };
static const double xs[COUNT] = {1, -2, 0.5, 4, -3, 1.5, 2, -0.25, 0.75, 3};
static const double gamma_of[COLUMNS] = {1.5, -0.5}, beta_of[COLUMNS] = {0.25, 0.75};
static const double eps = 1e-5;

static double weight(int i)
{
    return 1 + 0.5 * sin(1.7 * i);
}

/* --- batch norm ------------------------------------------------------------------------------- */
typedef struct normed {
    double hat[COUNT], y[COUNT], deviation[COLUMNS];
} normed;

static void norm_by_hand(normed *n)
{
    for (int c = 0; c < COLUMNS; c++) {
        double mean = 0, var = 0;
        for (int i = c; i < COUNT; i += COLUMNS)
            mean += xs[i] / ROWS;
        for (int i = c; i < COUNT; i += COLUMNS)
            var += (xs[i] - mean) * (xs[i] - mean) / ROWS;
        n->deviation[c] = sqrt(var + eps);
        for (int i = c; i < COUNT; i += COLUMNS) {
            n->hat[i] = (xs[i] - mean) / n->deviation[c];
            n->y[i] = gamma_of[c] * n->hat[i] + beta_of[c];
        }
    }
}

/* dy: the gradient of the loss with respect to y. */
static void norm_gradient_by_hand(const normed *n, const double *dy, double *dx)
{
    for (int c = 0; c < COLUMNS; c++) {
        double sum = 0, dot = 0;
        for (int i = c; i < COUNT; i += COLUMNS) {
            sum += dy[i] / ROWS;
            dot += dy[i] * n->hat[i] / ROWS;
        }
        for (int i = c; i < COUNT; i += COLUMNS)
            dx[i] = gamma_of[c] / n->deviation[c] * (dy[i] - sum - n->hat[i] * dot);
    }
}

static tsr_status same(tsr_plan *plan, const char *name, const double *want)
{
    double got[COUNT];
    TRY(tsr_fetch(plan, name, got, sizeof got));
    CHECK(all_near(name, got, want, COUNT, 1e-12));
    return TSR_OK;
}

enum { FETCH_Y = 1, FETCH_DY = 2, USE_DY = 4, ALL_OF_THEM = 8 };

/* loss = sum w relu(batch_norm(x)); what else reads y, and the gradient of y, is drawn by `with`.
 */
static tsr_status norm_uses(tsr_world *w, int with)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(ROWS, COLUMNS), p, TSR_S(0));
    tsr_tensor *weights = tsr_input(g, "w", TSR_F64, TSR_DIMS(ROWS, COLUMNS), p, TSR_S(0));
    tsr_tensor *gamma = tsr_input(g, "gamma", TSR_F64, TSR_DIMS(COLUMNS), p, TSR_B);
    tsr_tensor *beta = tsr_input(g, "beta", TSR_F64, TSR_DIMS(COLUMNS), p, TSR_B);
    tsr_tensor *y = tsr_batch_norm(x, gamma, beta, NULL, NULL, NULL);
    tsr_tensor *z = tsr_relu(y), *of[2] = {y, x}, *d[2];
    tsr_gradients(tsr_sum(tsr_mul(z, weights), TSR_ALL_AXES, false), 2, of, d);
    tsr_output(g, "z", z, p, TSR_B);
    tsr_output(g, "dx", d[1], p, TSR_B);
    if (with & FETCH_Y)
        tsr_output(g, "tripled", tsr_mul_scalar(y, 3), p, TSR_B);
    if (with & FETCH_DY)
        tsr_output(g, "dy", d[0], p, TSR_B);
    if (with & USE_DY)
        tsr_output(g, "doubled", tsr_mul_scalar(d[0], 2), p, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));

    normed n;
    norm_by_hand(&n);
    double ws[COUNT], zs[COUNT], tripled[COUNT], dy[COUNT], doubled[COUNT], dx[COUNT];
    for (int i = 0; i < COUNT; i++) {
        ws[i] = weight(i);
        zs[i] = n.y[i] > 0 ? n.y[i] : 0;
        tripled[i] = 3 * n.y[i];
        dy[i] = n.y[i] > 0 ? ws[i] : 0;
        doubled[i] = 2 * dy[i];
    }
    norm_gradient_by_hand(&n, dy, dx);
    TRY(tsr_feed(plan, "x", xs, sizeof xs));
    TRY(tsr_feed(plan, "w", ws, sizeof ws));
    TRY(tsr_feed(plan, "gamma", gamma_of, sizeof gamma_of));
    TRY(tsr_feed(plan, "beta", beta_of, sizeof beta_of));
    for (int run = 0; run < 2; run++) {
        TRY(tsr_run(plan));
        TRY(same(plan, "z", zs));
        TRY(same(plan, "dx", dx));
        if (with & FETCH_Y)
            TRY(same(plan, "tripled", tripled));
        if (with & FETCH_DY)
            TRY(same(plan, "dy", dy));
        if (with & USE_DY)
            TRY(same(plan, "doubled", doubled));
    }
    tsr_graph_destroy(g);
    return TSR_OK;
}

static tsr_status all_norm_uses(tsr_world *w, void *arg)
{
    (void)arg;
    for (int with = 0; with < ALL_OF_THEM; with++)
        TRY(norm_uses(w, with));
    return TSR_OK;
}

static void test_norm(void **state)
{
    (void)state;
    on_ranks(all_norm_uses, NULL);
}

/* --- gradients of what has many uses ---------------------------------------------------------- */
/* The gradient of sum (1 x + 2 x + ... + n x) is 1 + 2 + ... + n: sums of more than 8 addends are
 * made in parts. */
static tsr_status many_uses(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(COUNT), p, TSR_S(0)), *dx;
    char name[8];
    for (int n = 1; n <= 24; n++) {
        tsr_tensor *y = tsr_mul_scalar(x, 1);
        for (int i = 2; i <= n; i++)
            y = tsr_add(y, tsr_mul_scalar(x, i));
        tsr_gradients(tsr_sum(y, TSR_ALL_AXES, false), 1, &x, &dx);
        snprintf(name, sizeof name, "d%d", n);
        tsr_output(g, name, dx, p, TSR_B);
    }
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    TRY(tsr_feed(plan, "x", xs, sizeof xs));
    TRY(tsr_run(plan));
    for (int n = 1; n <= 24; n++) {
        double want[COUNT];
        for (int i = 0; i < COUNT; i++)
            want[i] = n * (n + 1) / 2;
        snprintf(name, sizeof name, "d%d", n);
        TRY(same(plan, name, want));
    }
    tsr_graph_destroy(g);
    return TSR_OK;
}

static void test_many_uses(void **state)
{
    (void)state;
    on_ranks(many_uses, NULL);
}

/* h = 3 x, loss = sum h^2 + 5 h + h x: dh = 2 h + 5 + x, dx = 3 dh + h. dh is asked for twice, and
 * the pass that makes dx reads it too. */
static tsr_status intermediate(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(COUNT), p, TSR_S(0));
    tsr_tensor *h = tsr_mul_scalar(x, 3), *of[3] = {h, x, h}, *d[3];
    tsr_tensor *y = tsr_add(tsr_add(tsr_mul(h, h), tsr_mul_scalar(h, 5)), tsr_mul(h, x));
    tsr_gradients(tsr_sum(y, TSR_ALL_AXES, false), 3, of, d);
    tsr_output(g, "dh", d[0], p, TSR_B);
    tsr_output(g, "dx", d[1], p, TSR_B);
    tsr_output(g, "again", d[2], p, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    TRY(tsr_feed(plan, "x", xs, sizeof xs));
    TRY(tsr_run(plan));
    double dh[COUNT], dx[COUNT];
    for (int i = 0; i < COUNT; i++) {
        dh[i] = 7 * xs[i] + 5;
        dx[i] = 3 * dh[i] + 3 * xs[i];
    }
    TRY(same(plan, "dh", dh));
    TRY(same(plan, "dx", dx));
    TRY(same(plan, "again", dh));
    tsr_graph_destroy(g);
    return TSR_OK;
}

static void test_intermediate(void **state)
{
    (void)state;
    on_ranks(intermediate, NULL);
}

/* --- parameters ------------------------------------------------------------------------------- */
static tsr_tensor *add_both(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    return tsr_mul(x, tsr_add(tsr_use(m, "a", x), tsr_use(m, "b", x)));
}

/* loss = sum x (a + b): a and b have one gradient, the sum of x over its rows. What is read of a
 * before the updates is the value before them. */
static tsr_status shared_gradient(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const tsr_nn_opts nn = {.placement = p, .sbp = TSR_B, .dtype = TSR_F64};
    tsr_module *m = tsr_module_create(w, &nn, add_both, NULL, NULL);
    const tsr_init ones = {.kind = TSR_INIT_ONES}, zeros = {.kind = TSR_INIT_ZEROS};
    tsr_variable *v[2] = {tsr_module_param(m, "a", TSR_DIMS(COLUMNS), TSR_B, ones),
                          tsr_module_param(m, "b", TSR_DIMS(COLUMNS), TSR_B, zeros)};
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(ROWS, COLUMNS), p, TSR_S(0));
    tsr_tensor *loss = tsr_sum(tsr_apply(m, x), TSR_ALL_AXES, false);
    tsr_output(g, "a", tsr_use(m, "a", x), p, TSR_B);
    tsr_minimize(tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.25)), loss);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    TRY(tsr_feed(plan, "x", xs, sizeof xs));
    double total[COLUMNS] = {0};
    for (int i = 0; i < COUNT; i++)
        total[i % COLUMNS] += xs[i];
    for (int run = 0; run < 3; run++) {
        double got[COLUMNS];
        TRY(tsr_run(plan));
        TRY(tsr_fetch(plan, "a", got, sizeof got));
        for (int c = 0; c < COLUMNS; c++)
            CHECK(near_to(got[c], 1 - 0.25 * run * total[c], 1e-12));
        for (int k = 0; k < 2; k++) {
            TRY(tsr_variable_get(v[k], got, sizeof got));
            for (int c = 0; c < COLUMNS; c++)
                CHECK(near_to(got[c], 1 - k - 0.25 * (run + 1) * total[c], 1e-12));
        }
    }
    tsr_graph_destroy(g);
    return TSR_OK;
}

static void test_shared_gradient(void **state)
{
    (void)state;
    on_ranks(shared_gradient, NULL);
}

/* --- one operand twice ------------------------------------------------------------------------ */
/* x + (x + x): three gradients of x meet, of which two are one tensor. In f32, which has kernels of
 * its own. */
static tsr_status twice(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_full(g, TSR_F32, TSR_DIMS(COUNT), p, TSR_B, 0.5), *d;
    tsr_gradients(tsr_sum(tsr_add(x, tsr_add(x, x)), TSR_ALL_AXES, false), 1, &x, &d);
    float got[COUNT];
    TRY(tsr_eval(d, got, sizeof got));
    for (int i = 0; i < COUNT; i++)
        CHECK(got[i] == 3);
    return TSR_OK;
}

static void test_twice(void **state)
{
    (void)state;
    on_ranks(twice, NULL);
}

/* --- detached --------------------------------------------------------------------------------- */
/* sum w x d with d = detach(x): x and d each have the other as their factor, and what d is made of
 * has no part in it. */
static tsr_status detached(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    double ws[COUNT];
    for (int i = 0; i < COUNT; i++)
        ws[i] = weight(i);
    tsr_tensor *x = tsr_constant(g, TSR_F64, TSR_DIMS(COUNT), xs, p, TSR_S(0));
    tsr_tensor *d = tsr_detach(tsr_mul_scalar(x, 2));
    tsr_tensor *by = tsr_constant(g, TSR_F64, TSR_DIMS(COUNT), ws, p, TSR_B);
    tsr_tensor *loss = tsr_sum(tsr_mul(tsr_mul(x, d), by), TSR_ALL_AXES, false);
    tsr_tensor *of[2] = {x, d}, *grad[2];
    tsr_gradients(loss, 2, of, grad);
    for (int k = 0; k < 2; k++) {
        double got[COUNT];
        TRY(tsr_eval(grad[k], got, sizeof got));
        for (int i = 0; i < COUNT; i++)
            CHECK(near_to(got[i], (k ? 1 : 2) * ws[i] * xs[i], 1e-14));
    }
    tsr_gradients(tsr_sum(d, TSR_ALL_AXES, false), 1, &x, grad);
    CHECK(tsr_graph_status(g) == TSR_ERR_STATE &&
          strstr(tsr_last_error(), "y does not depend on x[0]"));
    tsr_graph_destroy(g);
    return TSR_OK;
}

static void test_detached(void **state)
{
    (void)state;
    on_ranks(detached, NULL);
}

/* --- assigned --------------------------------------------------------------------------------- */
/* a and b change places in each run, each read by the other's assignment; c counts what a moved by,
 * from its old and its new value at once; of two assignments of d the last counts. */
static tsr_status assigned(tsr_world *w, void *arg)
{
    enum { RUNS = 3 };
    const tsr_sbp sbp[] = {TSR_B, TSR_S(0)}, a_sbp = sbp[*(int *)arg & 1],
                  b_sbp = sbp[*(int *)arg >> 1];
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const tsr_nn_opts nn = {.placement = p, .dtype = TSR_F64};
    tsr_module *m = tsr_module_create(w, &nn, NULL, NULL, NULL);
    tsr_variable *a = tsr_module_buffer(m, "a", TSR_DIMS(COUNT), a_sbp, (tsr_init){0});
    tsr_variable *b = tsr_module_buffer(m, "b", TSR_DIMS(COUNT), b_sbp, (tsr_init){0});
    tsr_variable *c = tsr_module_buffer(m, "c", TSR_DIMS(COUNT), TSR_AUTO, (tsr_init){0});
    tsr_variable *d = tsr_module_buffer(m, "d", TSR_DIMS(COUNT), TSR_AUTO, (tsr_init){0});
    double first[COUNT], got[COUNT], sum[COUNT] = {0};
    for (int i = 0; i < COUNT; i++)
        first[i] = weight(i);
    TRY(tsr_variable_set(a, xs, sizeof xs));
    TRY(tsr_variable_set(b, first, sizeof first));
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_assign(a, tsr_read(g, b));
    tsr_assign(b, tsr_read(g, a));
    tsr_tensor *move = tsr_sub(tsr_read_updated(g, a), tsr_read(g, a));
    tsr_assign(c, tsr_add(tsr_read(g, c), tsr_mul(move, move)));
    tsr_assign(d, move);
    tsr_assign(d, tsr_add_scalar(tsr_read(g, d), 1));
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    for (int run = 1; run <= RUNS; run++) {
        TRY(tsr_run(plan));
        TRY(tsr_variable_get(a, got, sizeof got));
        for (int i = 0; i < COUNT; i++)
            CHECK(got[i] == (run % 2 ? first[i] : xs[i]));
    }
    TRY(tsr_variable_get(b, got, sizeof got));
    for (int i = 0; i < COUNT; i++)
        CHECK(got[i] == xs[i]);
    TRY(tsr_variable_get(c, got, sizeof got));
    for (int i = 0; i < COUNT; i++) {
        for (int run = 0; run < RUNS; run++)
            sum[i] += (xs[i] - first[i]) * (xs[i] - first[i]);
        CHECK(near_to(got[i], sum[i], 1e-14));
    }
    TRY(tsr_variable_get(d, got, sizeof got));
    for (int i = 0; i < COUNT; i++)
        CHECK(got[i] == RUNS);
    g = tsr_graph_create(w, NULL);
    tsr_assign(a, tsr_full(g, TSR_F64, TSR_DIMS(COUNT, 1), p, TSR_B, 1));
    CHECK(tsr_graph_status(g) == TSR_ERR_SHAPE &&
          strstr(tsr_last_error(), "the variable a is f64"));
    g = tsr_graph_create(w, NULL);
    tsr_assign(a, tsr_full(g, TSR_F32, TSR_DIMS(COUNT), p, TSR_B, 1));
    CHECK(tsr_graph_status(g) == TSR_ERR_DTYPE);
    return TSR_OK;
}

static void test_assigned(void **state)
{
    (void)state;
    for (int signatures = 0; signatures < 4; signatures++)
        on_ranks(assigned, &signatures);
}

/* log_softmax and cross entropy of numbers far from zero keep their digits. */
static tsr_status far_from_zero(tsr_world *w, void *arg)
{
    enum { CLASSES = 3 };
    const double rows[2][CLASSES] = {{1e6 + 0.25, 1e6 - 1, 1e6 + 2}, {-1e6, -1e6 + 0.5, -1e6}};
    const int64_t labels[2] = {1, 2};
    const tsr_sbp sbp = *(const tsr_sbp *)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    double want[2][CLASSES], losses[2], got[2][CLASSES];
    for (int i = 0; i < 2; i++) {
        double sum = 0, base = i ? -1e6 : 1e6;
        for (int c = 0; c < CLASSES; c++)
            sum += exp(rows[i][c] - base);
        for (int c = 0; c < CLASSES; c++)
            want[i][c] = rows[i][c] - base - log(sum);
        losses[i] = -want[i][labels[i]];
    }
    for (int which = 0; which < 2; which++) {
        tsr_graph *g = tsr_graph_create(w, NULL);
        tsr_tensor *x = tsr_constant(g, TSR_F64, TSR_DIMS(2, CLASSES), rows, p, sbp);
        tsr_tensor *y = tsr_constant(g, TSR_I64, TSR_DIMS(2), labels, p, TSR_B);
        if (which) {
            TRY(tsr_eval(tsr_cross_entropy(x, y, TSR_NONE), got, sizeof losses));
            CHECK(all_near("loss", &got[0][0], losses, 2, 1e-13));
        } else {
            TRY(tsr_eval(tsr_log_softmax(x, 1), got, sizeof got));
            CHECK(all_near("log_softmax", &got[0][0], &want[0][0], 2 * CLASSES, 1e-13));
        }
    }
    return TSR_OK;
}

static void test_far_from_zero(void **state)
{
    (void)state;
    tsr_sbp all[] = {TSR_B, TSR_S(0), TSR_S(1)};
    for (int i = 0; i < 3; i++)
        on_ranks(far_from_zero, &all[i]);
}

/* Without weight decay a parameter that became infinite leaves the moments alone. */
static tsr_status infinite_parameter(tsr_world *w, void *arg)
{
    (void)arg;
    tsr_nn_opts nn = {.placement = tsr_placement_parse(w, "cpu"), .sbp = TSR_B};
    tsr_module *m = tsr_module_create(w, &nn, NULL, NULL, NULL);
    tsr_variable *v =
        tsr_module_param(m, "p", TSR_DIMS(COUNT), TSR_AUTO, (tsr_init){.kind = TSR_INIT_ONES});
    tsr_optimizer *opt = tsr_adam(m, TSR_ADAM_OPTS(.lr = 0.5));
    tsr_optimizer *sgd = tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.5, .momentum = 0.5));
    float p[COUNT] = {INFINITY, -INFINITY, 1};
    TRY(tsr_variable_set(v, p, sizeof p));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_full(g, TSR_F32, TSR_DIMS(COUNT), nn.placement, TSR_B, 2);
    tsr_tensor *loss = tsr_sum(tsr_mul(x, tsr_use(m, "p", x)), TSR_ALL_AXES, false);
    tsr_minimize(opt, loss);
    tsr_minimize(sgd, loss);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    for (int run = 0; run < 2; run++) {
        TRY(tsr_run(plan));
        TRY(tsr_variable_get(v, p, sizeof p));
        CHECK(p[0] == INFINITY && p[1] == -INFINITY && isfinite(p[2]));
    }
    return TSR_OK;
}

static void test_infinite_parameter(void **state)
{
    (void)state;
    on_ranks(infinite_parameter, NULL);
}

/* The mean of a channel with an infinity is infinite, on whichever rank and row it lies. */
static tsr_status infinite_mean(tsr_world *w, void *arg)
{
    enum { N = 6, C = 4 };
    const tsr_dtype dtype = *(const tsr_dtype *)arg;
    tsr_nn_opts nn = {.placement = tsr_placement_parse(w, "cpu"), .sbp = TSR_B, .dtype = dtype};
    tsr_module *m = tsr_nn_batch_norm(w, &nn, C, NULL);
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", dtype, TSR_DIMS(N, C), nn.placement, TSR_S(0));
    tsr_output(g, "y", tsr_apply(m, x), nn.placement, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    float rows[N][C], mean[C];
    double wide_rows[N][C], wide_mean[C];
    for (int i = 0; i < N * C; i++)
        rows[i / C][i % C] = (float)i;
    rows[0][1] = rows[2][2] = INFINITY;
    for (int i = 0; i < N * C; i++)
        wide_rows[i / C][i % C] = rows[i / C][i % C];
    bool wide = dtype == TSR_F64;
    TRY(tsr_feed(plan, "x", wide ? (void *)wide_rows : rows,
                 wide ? sizeof wide_rows : sizeof rows));
    TRY(tsr_run(plan));
    TRY(tsr_variable_get(tsr_module_find(m, "running_mean"), wide ? (void *)wide_mean : mean,
                         wide ? sizeof wide_mean : sizeof mean));
    for (int c = 0; c < C; c++) {
        double found = wide ? wide_mean[c] : mean[c];
        CHECK(c == 1 || c == 2 ? found == INFINITY : isfinite(found));
    }
    return TSR_OK;
}

static void test_infinite_mean(void **state)
{
    (void)state;
    on_ranks(infinite_mean, &(tsr_dtype){TSR_F32});
    on_ranks(infinite_mean, &(tsr_dtype){TSR_F64});
}

/* --- gradients of a power at zero ------------------------------------------------------------- */
/* Recorded from PyTorch 1.13, in f64: z = x^y, gradients of sum z. */
enum { POWERS = 7 };
static const double bases[POWERS] = {0, 0, 0, 0, -1, -2, 3};
static const double exponents[POWERS] = {1, 0, 2, -1, 2, 0, 0.5};
static const double dbases[POWERS] = {1, 0, 0, -INFINITY, -2, 0, 0.28867513459481287};
static const double dexponents[POWERS] = {0, 0, 0, -INFINITY, NAN, NAN, 1.902852301792692};

static tsr_status powers(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *d[2], *x[2] = {tsr_input(g, "x", TSR_F64, TSR_DIMS(POWERS), p, TSR_S(0)),
                               tsr_input(g, "y", TSR_F64, TSR_DIMS(POWERS), p, TSR_B)};
    tsr_gradients(tsr_sum(tsr_pow(x[0], x[1]), TSR_ALL_AXES, false), 2, x, d);
    tsr_output(g, "dx", d[0], p, TSR_B);
    tsr_output(g, "dy", d[1], p, TSR_B);
    tsr_plan *plan;
    TRY(tsr_compile(g, &plan));
    double got[2][POWERS];
    TRY(tsr_feed(plan, "x", bases, sizeof bases));
    TRY(tsr_feed(plan, "y", exponents, sizeof exponents));
    TRY(tsr_run(plan));
    TRY(tsr_fetch(plan, "dx", got[0], sizeof got[0]));
    TRY(tsr_fetch(plan, "dy", got[1], sizeof got[1]));
    for (int i = 0; i < 2 * POWERS; i++) {
        double found = got[i / POWERS][i % POWERS];
        double right = i < POWERS ? dbases[i] : dexponents[i - POWERS];
        CHECK(isnan(right)       ? isnan(found)
              : !isfinite(right) ? found == right
                                 : fabs(found - right) <= 1e-12);
    }
    return TSR_OK;
}

static void test_powers(void **state)
{
    (void)state;
    on_ranks(powers, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),          cmocka_unit_test(test_many_uses),
        cmocka_unit_test(test_intermediate),  cmocka_unit_test(test_shared_gradient),
        cmocka_unit_test(test_twice),         cmocka_unit_test(test_detached),
        cmocka_unit_test(test_far_from_zero), cmocka_unit_test(test_infinite_parameter),
        cmocka_unit_test(test_infinite_mean), cmocka_unit_test(test_powers),
        cmocka_unit_test(test_assigned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
