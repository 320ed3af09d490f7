/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers: schedules, options, and what tsr_minimize declares. Values are tested where programs
 * run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/models.h>

#include "src/optim/optim.h"

static void assert_error(const char *part)
{
    if (!strstr(tsr_last_error(), part))
        fail_msg("'%s' is not in: %s", part, tsr_last_error());
}

typedef struct fixture {
    tsr_world *world;
    const tsr_placement *p;
    tsr_module *net; /* (n,3) -> (n,2) */
    int logged;
} fixture;

static void count_log(void *arg, tsr_log_level level, const char *text)
{
    (void)text;
    fixture *f = arg;
    f->logged += level == TSR_LOG_ERROR;
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    if (!f || tsr_world_create(TSR_WORLD_OPTS(.threads = 1, .log = count_log, .log_arg = f),
                               &f->world) != TSR_OK)
        return -1;
    f->p = tsr_placement_parse(f->world, "cpu:[0]");
    tsr_nn_opts o = {.placement = f->p, .sbp = TSR_B};
    f->net = tsr_nn_sequential(f->world, &o);
    tsr_module_add(f->net, "fc", tsr_nn_linear(f->world, &o, 3, 2, true));
    *state = f;
    return f->p ? 0 : -1;
}

static int teardown(void **state)
{
    fixture *f = *state;
    tsr_world_destroy(f->world);
    free(f);
    return 0;
}

/* --- schedules: numbers of torch.optim.lr_scheduler ------------------------------------------- */
typedef struct lr_case {
    int64_t step;
    double lr;
} lr_case;

static void check_schedule(const tsr_schedule *s, const lr_case *cases, int n)
{
    assert_int_equal(tsri_schedule_check(s), TSR_OK);
    for (int i = 0; i < n; i++)
        assert_true(fabs(tsri_schedule_lr(s, 0.1, cases[i].step) / cases[i].lr - 1) < 1e-12);
}

static void test_schedules(void **state)
{
    (void)state;
    const lr_case constant[] = {{0, 0.1}, {1000, 0.1}};
    check_schedule(&(tsr_schedule){0}, constant, 2);
    const lr_case step[] = {{0, 0.1}, {2, 0.1}, {3, 0.05}, {5, 0.05}, {6, 0.025}, {9, 0.0125}};
    check_schedule(&(tsr_schedule){.kind = TSR_SCHEDULE_STEP, .step_size = 3, .gamma = 0.5}, step,
                   6);
    const lr_case tenth[] = {{0, 0.1}, {4, 0.01}, {8, 0.001}};
    check_schedule(&(tsr_schedule){.kind = TSR_SCHEDULE_STEP, .step_size = 4, .gamma = 0.1}, tenth,
                   3);
    const lr_case cosine[] = {{0, 0.1},   {1, 0.09779754323328192},  {3, 0.08145033635316129},
                              {5, 0.055}, {7, 0.028549663646838717}, {10, 0.01},
                              {50, 0.01}};
    check_schedule(&(tsr_schedule){.kind = TSR_SCHEDULE_COSINE, .steps = 10, .min_lr = 0.01},
                   cosine, 7);
    const lr_case warm[] = {{0, 0.025}, {1, 0.05}, {3, 0.1},   {4, 0.1},
                            {6, 0.1},   {7, 0.05}, {10, 0.025}};
    check_schedule(
        &(tsr_schedule){.kind = TSR_SCHEDULE_STEP, .warmup = 4, .step_size = 3, .gamma = 0.5}, warm,
        7);
}

static void expect_numbers(const tsr_optimizer *o, double lr, double beta1, double beta2,
                           double weight_decay, double eps)
{
    const double *n = o->groups[0].number;
    assert_true(n[TSRI_LR] == lr && n[TSRI_BETA1] == beta1 && n[TSRI_BETA2] == beta2);
    assert_true(n[TSRI_WEIGHT_DECAY] == weight_decay && n[TSRI_EPS] == eps);
}

static void test_options(void **state)
{
    fixture *f = *state;
    assert_null(tsr_sgd(NULL, NULL));
    assert_error("tsr_sgd: the module is NULL");
    assert_null(tsr_sgd(f->net, TSR_SGD_OPTS(.lr = -0.5)));
    assert_error("tsr_sgd: lr = -0.5 must be finite and not negative");
    assert_null(tsr_sgd(f->net, TSR_SGD_OPTS(.lr = NAN)));
    assert_null(tsr_sgd(f->net, TSR_SGD_OPTS(.momentum = -0.1)));
    assert_error("momentum = -0.1");
    assert_null(tsr_sgd(f->net, TSR_SGD_OPTS(.nesterov = true)));
    assert_error("nesterov needs a momentum above 0");
    assert_null(tsr_sgd(f->net, TSR_SGD_OPTS(.momentum = 0.9, .dampening = 0.1, .nesterov = true)));
    assert_error("dampening 0.1");
    assert_null(tsr_sgd(f->net, TSR_SGD_OPTS(.schedule = {.kind = TSR_SCHEDULE_STEP})));
    assert_error("needs a step_size");
    assert_null(
        tsr_sgd(f->net, TSR_SGD_OPTS(.schedule = {.kind = TSR_SCHEDULE_STEP, .step_size = 2})));
    assert_error("needs a gamma above 0, such as 0.1; found 0");
    assert_null(tsr_adam(f->net, TSR_ADAM_OPTS(.beta1 = 1)));
    assert_error("tsr_adam: beta1 = 1 must be in [0, 1)");
    assert_null(tsr_adamw(f->net, TSR_ADAM_OPTS(.beta2 = -0.25)));
    assert_error("tsr_adamw: beta2 = -0.25");
    assert_null(tsr_adam(f->net, TSR_ADAM_OPTS(.schedule = {.kind = TSR_SCHEDULE_COSINE})));
    assert_error("needs steps");
    assert_null(tsr_sgd(f->net, &(tsr_sgd_opts){.lr = 1}));
    assert_error("tsr_sgd: a struct's size is 0");
    assert_null(tsr_adam(f->net, &(tsr_adam_opts){.lr = 1}));
    assert_error("tsr_adam: a struct's size is 0");
    tsr_nn_opts o = {.placement = f->p};
    assert_null(tsr_sgd(tsr_nn_relu(f->world, &o), NULL));
    assert_error("no parameters");
    assert_null(tsr_rmsprop(f->net, TSR_RMSPROP_OPTS(.alpha = -1)));
    assert_error("tsr_rmsprop: alpha = -1 must be finite and not negative");
    assert_null(tsr_adagrad(f->net, TSR_ADAGRAD_OPTS(.initial_accumulator_value = -1)));
    assert_error("tsr_adagrad: initial_accumulator_value = -1");
    assert_null(tsr_lion(f->net, TSR_LION_OPTS(.beta2 = 2)));
    assert_error("tsr_lion: beta2 = 2 must be in [0, 1)");
    assert_null(tsr_lamb(f->net, TSR_ADAM_OPTS(.weight_decay = -1)));
    assert_error("tsr_lamb: weight_decay = -1");
    /* A zero that is given is a zero. */
    tsr_optimizer *a = tsr_adamw(f->net, TSR_ADAM_OPTS(.beta1 = 0));
    expect_numbers(a, 1e-3, 0, 0.999, 0.01, 1e-8);
    assert_true(a->decoupled);
    a = tsr_adamw(f->net, TSR_ADAM_OPTS(.lr = 0, .beta2 = 0, .eps = 0, .weight_decay = 0));
    expect_numbers(a, 0, 0.9, 0, 0, 0);
    assert_true(tsr_optimizer_lr(tsr_sgd(f->net, TSR_SGD_OPTS(.lr = 0))) == 0);
    assert_true(tsr_optimizer_lr(tsr_sgd(f->net, NULL)) == 1e-3);
    tsr_adam_opts copied = *TSR_ADAM_OPTS();
    copied.beta1 = 0;
    expect_numbers(tsr_adam(f->net, &copied), 1e-3, 0, 0.999, 0, 1e-8);
    a = tsr_adam(f->net, NULL);
    assert_false(a->decoupled);
    tsr_optimizer_destroy(a);
}

static void test_set_lr(void **state)
{
    fixture *f = *state;
    tsr_optimizer *o = tsr_sgd(f->net, TSR_SGD_OPTS(.lr = 0.5));
    assert_true(tsr_optimizer_lr(o) == 0.5);
    tsr_optimizer_set_lr(o, 0.25);
    assert_true(tsr_optimizer_lr(o) == 0.25);
    tsr_optimizer_set_lr(o, -2);
    assert_true(tsr_optimizer_lr(o) == 0.25);
    assert_int_equal(f->logged, 1);
}

/* A rate that is given anew takes the place of what a plateau has made of the one before. */
static void test_plateau(void **state)
{
    fixture *f = *state;
    tsr_optimizer *o = tsr_sgd(
        f->net, TSR_SGD_OPTS(.lr = 1, .schedule = TSR_PLATEAU_LR(.factor = 0.5, .patience = 0)));
    assert_int_equal(
        tsr_optimizer_param_group(o, "fc.bias", TSR_PARAM_GROUP_OPTS(.weight_decay = 0.5)), TSR_OK);
    assert_int_equal(tsr_optimizer_param_group(o, "fc.weight", TSR_PARAM_GROUP_OPTS(.lr = 8)),
                     TSR_OK);
    tsr_optimizer_report(o, 1);
    tsr_optimizer_report(o, 1);
    assert_true(tsr_optimizer_lr(o) == 0.5 && tsr_optimizer_group_lr(o, "fc.bias") == 0.5);
    assert_true(tsr_optimizer_group_lr(o, "fc.weight") == 4);
    tsr_optimizer_set_lr(o, 0.25);
    assert_true(tsr_optimizer_lr(o) == 0.25 && tsr_optimizer_group_lr(o, "fc.bias") == 0.25);
    assert_true(tsr_optimizer_group_lr(o, "fc.weight") == 4);
    tsr_optimizer_param_group(o, "fc.weight", TSR_PARAM_GROUP_OPTS(.lr = 2));
    assert_true(tsr_optimizer_group_lr(o, "fc.weight") == 2);
    assert_true(isnan(tsr_optimizer_group_lr(o, "none")));
    tsr_optimizer_destroy(o);
}

/* Metrics that are not finite improve on nothing, and a finite one after them does. */
static void test_plateau_not_finite(void **state)
{
    static const double firsts[] = {NAN, INFINITY, -INFINITY};
    const fixture *f = *state;
    for (int rises = 0; rises < 2; rises++)
        for (int i = 0; i < 3; i++) {
            tsr_optimizer *o =
                tsr_sgd(f->net, TSR_SGD_OPTS(.lr = 1, .schedule = TSR_PLATEAU_LR(.factor = 0.5,
                                                                                 .patience = 1,
                                                                                 .rises = rises)));
            tsr_optimizer_report(o, firsts[i]);
            for (int step = 0; step < 8; step++)
                tsr_optimizer_report(o, rises ? 1 + step : 9 - step);
            assert_true(tsr_optimizer_lr(o) == 1);
            tsr_optimizer_report(o, firsts[i]);
            assert_true(tsr_optimizer_lr(o) == 1);
            tsr_optimizer_report(o, firsts[i]);
            assert_true(tsr_optimizer_lr(o) == 0.5);
            tsr_optimizer_destroy(o);
        }
}

/* Ranks compare what the first states start from. */
static void test_described(void **state)
{
    fixture *f = *state;
    char *text = NULL;
    size_t size;
    tsr_optimizer *o = tsr_adagrad(f->net, TSR_ADAGRAD_OPTS(.initial_accumulator_value = 0.5));
    FILE *to = open_memstream(&text, &size);
    tsri_optimizer_describe(o, to);
    fclose(to);
    assert_non_null(strstr(text, "\ninitial_accumulator_value: 0.5\n"));
    free(text);
    tsr_optimizer_destroy(o);
    /* A late step of many short periods is found without counting them. */
    const tsr_schedule s = TSR_COSINE_RESTARTS_LR(.steps = 2);
    assert_true(tsri_schedule_lr(&s, 1, INT64_C(1) << 60) == 1);
}

/* --- what is declared ------------------------------------------------------------------------- */
static tsr_tensor *make_loss(fixture *f, tsr_graph *g)
{
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4, 3), f->p, TSR_S(0));
    return tsr_mean(tsr_apply(f->net, x), TSR_ALL_AXES, false);
}

static tsri_op *find_update(tsr_graph *g, tsri_op_kind kind, const char *name)
{
    for (int i = 0; i < g->nops; i++)
        if (g->ops[i]->kind == kind && !strcmp(g->ops[i]->name, name))
            return g->ops[i];
    fail_msg("no %s of %s", tsri_op_name(kind), name);
    return NULL;
}

static void check_update(fixture *f, tsr_optimizer *o, tsri_op_kind kind, int nstates,
                         const char *const *states)
{
    tsr_graph *g = tsr_graph_create(f->world, TSR_GRAPH_OPTS(.training = true));
    tsr_minimize(o, make_loss(f, g));
    if (tsr_graph_status(g) != TSR_OK)
        fail_msg("%s", tsr_last_error());
    tsri_op *op = find_update(g, kind, "fc.weight");
    assert_true(op->backward);
    assert_int_equal(op->nin, 3 + nstates);
    assert_int_equal(op->nout, 1 + nstates);
    assert_ptr_equal(op->out[0]->writes, tsr_module_find(f->net, "fc.weight"));
    assert_ptr_equal(op->in[0]->op->variable, op->out[0]->writes);
    for (int i = 0; i < nstates; i++) {
        assert_string_equal(op->out[i + 1]->writes->name, states[i]);
        assert_ptr_equal(op->in[i + 1]->op->variable, op->out[i + 1]->writes);
        assert_true(tsr_dims_equal(op->out[i + 1]->writes->shape, TSR_DIMS(2, 3)));
        assert_true(tsr_sbp_equal(op->out[i + 1]->writes->sbp, TSR_B));
    }
    assert_true(tsr_dims_equal(op->in[nstates + 1]->shape, TSR_DIMS(2, 3)));
    assert_int_equal(op->in[nstates + 2]->dtype, TSR_F64);
    find_update(g, kind, "fc.bias");
    assert_int_equal(g->nhooks, 1);
    /* The hook writes what the next update reads. */
    tsr_variable *hyper = op->in[nstates + 2]->op->variable;
    assert_int_equal(tsri_variable_prepare(hyper), TSR_OK);
    const double *h = hyper->data;
    g->hooks[0].fn(g->hooks[0].arg);
    const double correction = kind == TSRI_OP_ADAM ? 1 - 0.9 : 1;
    assert_true(fabs(h[TSRI_HYPER_LR] - 0.5 / correction) < 1e-12);
    assert_int_equal(tsr_optimizer_steps(o), 1);
    tsr_optimizer_set_lr(o, 0.25);
    g->hooks[0].fn(g->hooks[0].arg);
    const double second = kind == TSRI_OP_ADAM ? 1 - 0.9 * 0.9 : 1;
    assert_true(fabs(h[TSRI_HYPER_LR] - 0.25 / second) < 1e-12);
    assert_ptr_equal(g->step_value, &o->runs);
}

static void test_minimize(void **state)
{
    fixture *f = *state;
    static const char *const momentum[] = {"fc.weight.momentum_buffer"};
    static const char *const moments[] = {"fc.weight.exp_avg", "fc.weight.exp_avg_sq"};
    check_update(f, tsr_sgd(f->net, TSR_SGD_OPTS(.lr = 0.5)), TSRI_OP_SGD, 0, NULL);
    check_update(f, tsr_sgd(f->net, TSR_SGD_OPTS(.lr = 0.5, .momentum = 0.9)), TSRI_OP_SGD, 1,
                 momentum);
    check_update(f, tsr_sgd(f->net, TSR_SGD_OPTS(.lr = 0.5, .momentum = 1)), TSRI_OP_SGD, 1,
                 momentum);
    check_update(f, tsr_adam(f->net, TSR_ADAM_OPTS(.lr = 0.5)), TSRI_OP_ADAM, 2, moments);
}

static void expect_failure(tsr_graph *g, tsr_status status, const char *part)
{
    assert_int_equal(tsr_graph_status(g), status);
    assert_error("test_optim.c:");
    assert_error(part);
    tsr_graph_destroy(g);
}

static void test_minimize_errors(void **state)
{
    fixture *f = *state;
    tsr_optimizer *o = tsr_sgd(f->net, NULL);
    tsr_graph *g = tsr_graph_create(f->world, NULL);
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4, 3), f->p, TSR_S(0));
    tsr_minimize(o, tsr_apply(f->net, x));
    expect_failure(g, TSR_ERR_SHAPE, "must be a scalar, but has shape (4,2)");
    g = tsr_graph_create(f->world, NULL);
    tsr_minimize(NULL, make_loss(f, g));
    expect_failure(g, TSR_ERR_INVALID, "the optimizer is NULL");
    g = tsr_graph_create(f->world, NULL);
    x = tsr_input(g, "x", TSR_F32, TSR_DIMS(4, 3), f->p, TSR_S(0));
    tsr_minimize(o, tsr_sum(x, TSR_ALL_AXES, false));
    expect_failure(g, TSR_ERR_STATE, "depends on none of the optimizer's 2 parameters");
    g = tsr_graph_create(f->world, NULL);
    tsr_tensor *loss = make_loss(f, g);
    tsr_minimize(o, loss);
    tsr_minimize(o, loss);
    expect_failure(g, TSR_ERR_STATE, "minimizes a loss of this graph already");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedules),
        cmocka_unit_test_setup_teardown(test_options, setup, teardown),
        cmocka_unit_test_setup_teardown(test_set_lr, setup, teardown),
        cmocka_unit_test_setup_teardown(test_plateau, setup, teardown),
        cmocka_unit_test_setup_teardown(test_plateau_not_finite, setup, teardown),
        cmocka_unit_test_setup_teardown(test_described, setup, teardown),
        cmocka_unit_test_setup_teardown(test_minimize, setup, teardown),
        cmocka_unit_test_setup_teardown(test_minimize_errors, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
