/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values in a step: every read of a variable gives what it has when the run begins, wherever it is
 * declared; updates show when the run has ended; several updates of one variable follow each other.
 * Figures are worked out by hand, in f64, on 1 to 4 ranks and in several signatures.
 */
#include "rank.h"

static const tsr_sbp *signatures(int *n)
{
    static const tsr_sbp all[] = {
        {1, {{TSR_SBP_BROADCAST, 0}}}, {1, {{TSR_SBP_SPLIT, 0}}}, {1, {{TSR_SBP_SPLIT, 1}}}, {0}};
    *n = sizeof all / sizeof *all;
    return all;
}

typedef struct where {
    tsr_sbp param, state;
} where;

/* fn in every pair of signatures of parameters and optimizer states, on 1 to 4 ranks. */
static void everywhere(tsr_rank_fn *fn)
{
    int n;
    const tsr_sbp *all = signatures(&n);
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int i = 0; i < n * n; i++) {
            where at = {all[i / n], all[i % n]};
            tsr_status status = tsr_spawn(ranks, fn, &at);
            if (status != TSR_OK)
                fail_msg("%d ranks, signatures %d and %d: %s", ranks, i / n, i % n,
                         tsr_last_error());
        }
}

/* Compiles by figures according to which it pays to split even these few elements. */
static tsr_status compile_split(tsr_graph *g, tsr_plan **out_plan)
{
    const tsr_compile_opts *slow = TSR_COMPILE_OPTS(.nlinks = 1, .link = {{0, 1e-9, 1e12}},
                                                    .flops_per_s = 1e4, .local_bytes_per_s = 1e5);
    return tsr_compile_with(g, slow, out_plan);
}

static tsr_module *make_module(tsr_world *w, const where *at, int n, const char *const *names,
                               const double *values)
{
    tsr_nn_opts nn = {
        .placement = tsr_placement_parse(w, "cpu"), .sbp = at->param, .dtype = TSR_F64};
    tsr_module *m = tsr_module_create(w, &nn, NULL, NULL, NULL);
    for (int i = 0; i < n; i++)
        tsr_module_param(m, names[i], TSR_DIMS(4, 5), at->param,
                         (tsr_init){.kind = TSR_INIT_CONSTANT, .a = values[i]});
    return m;
}

static tsr_module *make_one(tsr_world *w, const where *at, const char *name, double value)
{
    return make_module(w, at, 1, &name, &value);
}

static tsr_optimizer *make_sgd(tsr_module *m, const where *at, double lr, double momentum)
{
    return tsr_sgd(m, TSR_SGD_OPTS(.lr = lr, .momentum = momentum, .state = at->state));
}

static tsr_tensor *total(tsr_tensor *x)
{
    return tsr_sum(x, TSR_ALL_AXES, false);
}

static tsr_status expect_variable(tsr_module *m, const char *name, double want)
{
    double got[20], all[20];
    for (int i = 0; i < 20; i++)
        all[i] = want;
    TRY(tsr_variable_get(tsr_module_find(m, name), got, sizeof got));
    CHECK(all_near(name, got, all, 20, 1e-12));
    return TSR_OK;
}

static tsr_status expect_output(tsr_plan *plan, const char *name, double want)
{
    double got[20], all[20];
    for (int i = 0; i < 20; i++)
        all[i] = want;
    TRY(tsr_fetch(plan, name, got, sizeof got));
    CHECK(all_near(name, got, all, 20, 1e-12));
    return TSR_OK;
}

static tsr_tensor *anchor(tsr_graph *g, tsr_world *w)
{
    return tsr_full(g, TSR_F64, TSR_DIMS(4, 5), tsr_placement_parse(w, "cpu"), TSR_AUTO, 1);
}

/* --- two optimizers --------------------------------------------------------------------------- */
/* loss = sum(head body): each gradient is the other's value at the start of the step. */
static tsr_status two_optimizers(tsr_world *w, void *arg)
{
    const where *at = arg;
    for (int order = 0; order < 2; order++) {
        tsr_module *head = make_one(w, at, "head", 1), *body = make_one(w, at, "body", 2);
        tsr_optimizer *oh = make_sgd(head, at, 0.1, 0.9), *ob = make_sgd(body, at, 0.1, 0.9);
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
        tsr_tensor *x = anchor(g, w);
        tsr_tensor *loss = total(tsr_mul(tsr_use(head, "head", x), tsr_use(body, "body", x)));
        tsr_minimize(order ? ob : oh, loss);
        tsr_minimize(order ? oh : ob, loss);
        tsr_plan *plan;
        TRY(compile_split(g, &plan));
        TRY(tsr_run(plan));
        TRY(expect_variable(head, "head", 0.8));
        TRY(expect_variable(body, "body", 1.9));
        TRY(tsr_run(plan)); /* momenta: 0.9 * 2 + 1.9 and 0.9 * 1 + 0.8 */
        TRY(expect_variable(head, "head", 0.8 - 0.37));
        TRY(expect_variable(body, "body", 1.9 - 0.17));
    }
    return TSR_OK;
}

static void test_two_optimizers(void **state)
{
    (void)state;
    everywhere(two_optimizers);
}

/* Both over one net: the second starts from what the first gave; gradients are the start's. */
static tsr_status one_net(tsr_world *w, void *arg)
{
    const where *at = arg;
    tsr_module *m = make_module(w, at, 2, (const char *const[]){"a", "b"}, (double[]){2, 3});
    tsr_optimizer *first = make_sgd(m, at, 0.1, 0), *second = make_sgd(m, at, 0.01, 0.5);
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = anchor(g, w);
    tsr_tensor *a = tsr_use(m, "a", x), *b = tsr_use(m, "b", x);
    tsr_minimize(first, total(tsr_mul(a, b)));
    tsr_minimize(second, total(tsr_mul(a, tsr_mul(a, b)))); /* 2 a b, a^2 */
    tsr_output(g, "a", a, NULL, TSR_B);
    tsr_plan *plan;
    TRY(compile_split(g, &plan));
    TRY(tsr_run(plan));
    TRY(expect_output(plan, "a", 2));
    TRY(expect_variable(m, "a", 2 - 0.3 - 0.12));
    TRY(expect_variable(m, "b", 3 - 0.2 - 0.04));
    return TSR_OK;
}

static void test_one_net(void **state)
{
    (void)state;
    everywhere(one_net);
}

/* The order of a GAN: a critic's update is declared before the loss that reads the critic again. */
static tsr_status gan(tsr_world *w, void *arg)
{
    const where *at = arg;
    tsr_module *critic = make_one(w, at, "c", 3), *maker = make_one(w, at, "m", 2);
    tsr_optimizer *oc = make_sgd(critic, at, 0.1, 0), *om = make_sgd(maker, at, 0.1, 0);
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = anchor(g, w);
    tsr_tensor *made = tsr_mul(tsr_use(maker, "m", x), x);
    tsr_tensor *judged = tsr_mul(tsr_use(critic, "c", x), made);
    tsr_minimize(oc, total(judged));
    tsr_tensor *again = tsr_mul(tsr_use(critic, "c", x), made), *grad;
    tsr_tensor *loss = tsr_neg(total(tsr_mul(again, again))), *m = tsr_use(maker, "m", x);
    tsr_minimize(om, loss);
    tsr_gradients(loss, 1, &m, &grad);
    tsr_output(g, "grad", grad, NULL, TSR_B);
    tsr_output(g, "again", again, NULL, TSR_AUTO);
    tsr_plan *plan;
    TRY(compile_split(g, &plan));
    TRY(tsr_run(plan));
    TRY(expect_output(plan, "again", 6));
    TRY(expect_output(plan, "grad", -36)); /* -2 c^2 m */
    TRY(expect_variable(critic, "c", 3 - 0.2));
    TRY(expect_variable(maker, "m", 2 + 3.6));
    return TSR_OK;
}

static void test_gan(void **state)
{
    (void)state;
    everywhere(gan);
}

/* --- reads and outputs around an update ------------------------------------------------------- */
static tsr_status reads(tsr_world *w, void *arg)
{
    const where *at = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_module *m = make_one(w, at, "w", 1);
    tsr_optimizer *opt = tsr_adam(m, TSR_ADAM_OPTS(.lr = 0.1, .state = at->state));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = anchor(g, w), *v = tsr_use(m, "w", x);
    tsr_output(g, "before", v, NULL, TSR_B);
    tsr_output(g, "early", tsr_to_global(v, p, TSR_S(0)), NULL, TSR_AUTO);
    tsr_output(g, "double", tsr_mul_scalar(tsr_use(m, "w", x), 2), NULL, TSR_AUTO);
    tsr_minimize(opt, total(v));
    tsr_tensor *late = tsr_use(m, "w", x);
    tsr_output(g, "after", late, p, TSR_B);
    tsr_output(g, "late", tsr_to_global(late, p, TSR_S(1)), NULL, TSR_AUTO);
    tsr_output(g, "flat", tsr_flatten(late, 0), NULL, TSR_AUTO);
    tsr_plan *plan;
    TRY(compile_split(g, &plan));
    double start = 1;
    for (int run = 0; run < 2; run++) {
        TRY(tsr_run(plan));
        TRY(expect_output(plan, "before", start));
        TRY(expect_output(plan, "early", start));
        TRY(expect_output(plan, "double", 2 * start));
        TRY(expect_output(plan, "after", start));
        TRY(expect_output(plan, "late", start));
        TRY(expect_output(plan, "flat", start));
        start -= 0.1 / (1 + 1e-8); /* Adam: with a gradient of 1, each step is lr */
        TRY(expect_variable(m, "w", start));
    }
    return TSR_OK;
}

static void test_reads(void **state)
{
    (void)state;
    everywhere(reads);
}

/* --- running averages ------------------------------------------------------------------------- */
enum { ROWS = 6, CHANNELS = 5 };

static double row_value(int i, int c)
{
    return i * 0.5 - c * 0.25 + (i * c) % 3;
}

/* What one application leaves of running averages: momentum 0.1. */
static void fold_in(int c, double scale, double *mean, double *var)
{
    double m = 0, v = 0;
    for (int i = 0; i < ROWS; i++)
        m += scale * row_value(i, c) / ROWS;
    for (int i = 0; i < ROWS; i++)
        v += pow(scale * row_value(i, c) - m, 2) / (ROWS - 1);
    *mean = 0.9 * *mean + 0.1 * m;
    *var = 0.9 * *var + 0.1 * v;
}

/* b reads the running mean before and after batch norm, of which there are two of one module. */
static tsr_status averages(tsr_world *w, void *arg)
{
    const where *at = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const tsr_sbp vector =
        at->param.ndim && at->param.d[0].kind == TSR_SBP_SPLIT ? TSR_S(0) : TSR_B;
    tsr_nn_opts nn = {.placement = p, .sbp = TSR_B, .dtype = TSR_F64};
    tsr_module *m = tsr_module_create(w, &nn, NULL, NULL, NULL);
    const tsr_init ones = {.kind = TSR_INIT_ONES}, zeros = {.kind = TSR_INIT_ZEROS};
    tsr_module_param(m, "w", TSR_DIMS(CHANNELS), vector, ones);
    tsr_module_param(m, "gamma", TSR_DIMS(CHANNELS), vector, ones);
    tsr_module_param(m, "beta", TSR_DIMS(CHANNELS), vector, zeros);
    tsr_module_buffer(m, "mean", TSR_DIMS(CHANNELS), vector,
                      (tsr_init){.kind = TSR_INIT_CONSTANT, .a = 10});
    tsr_module_buffer(m, "var", TSR_DIMS(CHANNELS), vector, ones);
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(ROWS, CHANNELS), p, TSR_S(0));
    tsr_tensor *mean = tsr_use(m, "mean", x), *var = tsr_use(m, "var", x), *v = tsr_use(m, "w", x);
    tsr_tensor *gamma = tsr_use(m, "gamma", x), *beta = tsr_use(m, "beta", x), *grad;
    tsr_tensor *b = tsr_mul(mean, v);
    tsr_tensor *y = tsr_batch_norm(x, gamma, beta, mean, var, NULL);
    tsr_tensor *z = tsr_batch_norm(tsr_mul_scalar(x, 2), gamma, beta, mean, var, NULL);
    tsr_tensor *loss = tsr_add(total(b), tsr_mul_scalar(total(tsr_add(y, z)), 0));
    tsr_gradients(loss, 1, &v, &grad);
    tsr_output(g, "grad", grad, NULL, TSR_B);
    tsr_output(g, "mean", mean, NULL, TSR_B);
    tsr_output(g, "var", var, NULL, TSR_B);
    tsr_output(g, "late", tsr_mul(tsr_use(m, "mean", x), tsr_mul_scalar(v, 2)), NULL, TSR_B);
    tsr_plan *plan;
    TRY(compile_split(g, &plan));
    double data[ROWS][CHANNELS], means[CHANNELS], vars[CHANNELS], got[CHANNELS], twice[CHANNELS];
    for (int i = 0; i < ROWS; i++)
        for (int c = 0; c < CHANNELS; c++)
            data[i][c] = row_value(i, c);
    for (int c = 0; c < CHANNELS; c++) {
        means[c] = 10;
        vars[c] = 1;
    }
    TRY(tsr_feed(plan, "x", data, sizeof data));
    for (int run = 0; run < 2; run++) {
        TRY(tsr_run(plan));
        TRY(tsr_fetch(plan, "grad", got, sizeof got));
        CHECK(all_near("grad", got, means, CHANNELS, 1e-12));
        TRY(tsr_fetch(plan, "mean", got, sizeof got));
        CHECK(all_near("mean", got, means, CHANNELS, 1e-12));
        TRY(tsr_fetch(plan, "var", got, sizeof got));
        CHECK(all_near("var", got, vars, CHANNELS, 1e-12));
        for (int c = 0; c < CHANNELS; c++)
            twice[c] = 2 * means[c];
        TRY(tsr_fetch(plan, "late", got, sizeof got));
        CHECK(all_near("late", got, twice, CHANNELS, 1e-12));
        for (int c = 0; c < CHANNELS; c++) {
            fold_in(c, 1, &means[c], &vars[c]);
            fold_in(c, 2, &means[c], &vars[c]);
        }
        TRY(tsr_variable_get(tsr_module_find(m, "mean"), got, sizeof got));
        CHECK(all_near("running mean", got, means, CHANNELS, 1e-12));
        TRY(tsr_variable_get(tsr_module_find(m, "var"), got, sizeof got));
        CHECK(all_near("running var", got, vars, CHANNELS, 1e-12));
    }
    return TSR_OK;
}

static void test_averages(void **state)
{
    (void)state;
    everywhere(averages);
}

/* --- entries that do nothing ------------------------------------------------------------------ */
/* The op numbered i of x (4,5), which leaves it as it is. */
static tsr_tensor *same(int i, tsr_tensor *x)
{
    tsr_tensor *y;
    switch (i) {
    case 0:
        return tsr_dropout(x, 0);
    case 1:
        return tsr_cast(x, TSR_F64);
    case 2:
        return tsr_reshape(x, TSR_DIMS(4, 5));
    case 3:
        return tsr_flatten(x, 1);
    case 4:
        return tsr_slice(x, TSR_DIMS(0, 0), TSR_DIMS(4, 5), TSR_SCALAR);
    case 5:
        return tsr_narrow(x, 1, 0, 5);
    case 6:
        return tsr_pad(x, TSR_DIMS(0, 0), TSR_DIMS(0, 0), 0);
    case 7:
        return tsr_concat(1, &x, 0);
    case 8:
        return tsr_permute(x, TSR_AXES(0, 1));
    case 9:
        return tsr_transpose(x, 1, 1);
    case 10:
        return tsr_expand(x, TSR_DIMS(4, 5));
    case 11:
        return tsr_cumsum(tsr_reshape(x, TSR_DIMS(4, 5, 1)), 2);
    case 12:
        tsr_split(x, 1, (const int64_t[]){5}, 1, &y);
        return y;
    default:
        return NULL;
    }
}

static tsr_status nothing(tsr_world *w, void *arg)
{
    const where *at = arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    for (int i = 0; i < 13; i++) {
        tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = i != 0));
        tsr_tensor *x = tsr_full(g, TSR_F64, TSR_DIMS(4, 5), p, at->param, 2);
        tsr_tensor *y = same(i, x), *of[2] = {y, x}, *d[2];
        tsr_tensor *loss = tsr_add(total(y), total(tsr_mul_scalar(x, 10)));
        tsr_gradients(loss, 2, of, d);
        tsr_output(g, "y", y, NULL, TSR_B);
        tsr_output(g, "dy", d[0], NULL, TSR_B);
        tsr_output(g, "dx", d[1], NULL, TSR_B);
        tsr_plan *plan;
        TRY(compile_split(g, &plan));
        TRY(tsr_run(plan));
        TRY(expect_output(plan, "y", 2));
        TRY(expect_output(plan, "dy", 1));
        TRY(expect_output(plan, "dx", 11));
        /* Nor has an entry that the loss does not use a gradient. */
        tsr_graph *unused = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
        x = tsr_full(unused, TSR_F64, TSR_DIMS(4, 5), p, at->param, 2);
        y = same(i, x);
        tsr_gradients(total(x), 1, &y, d);
        CHECK(tsr_graph_status(unused) == TSR_ERR_STATE);
        CHECK(strstr(tsr_last_error(), "does not depend"));
    }
    return TSR_OK;
}

static void test_nothing(void **state)
{
    (void)state;
    everywhere(nothing);
}

static tsr_status flat_scalar(tsr_world *w, void *arg)
{
    (void)arg;
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_full(g, TSR_F64, TSR_SCALAR, p, TSR_B, 3);
    tsr_tensor *y = tsr_flatten(x, 0);
    CHECK(tsr_dims_equal(tsr_tensor_dims(y), TSR_DIMS(1)));
    CHECK(tsr_dims_equal(tsr_tensor_dims(tsr_flatten(x, -1)), TSR_DIMS(1)));
    double got;
    TRY(tsr_eval(y, &got, sizeof got));
    CHECK(got == 3);
    CHECK(!tsr_tensor_ok(tsr_flatten(x, 1)));
    return TSR_OK;
}

static void test_flat_scalar(void **state)
{
    (void)state;
    on_ranks(flat_scalar, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_optimizers),
        cmocka_unit_test(test_one_net),
        cmocka_unit_test(test_gan),
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_averages),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_flat_scalar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
