/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training steps against torch.optim's formulas, written out here in double precision: a linear
 * layer fitted to fixed targets, on one and two ranks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include <tessera/tessera.h>
#include "src/core/status.h"

enum { N = 4, IN = 3, OUT = 2, PARAMS = OUT * IN + OUT, STEPS = 6 };

static const float inputs[N][IN] = {{1, -2, 0.5f}, {0.25f, 1, 3}, {-1, 0.5f, 2}, {2, 2, -1}};
static const float targets[N][OUT] = {{1, 0}, {-1, 2}, {0.5f, -0.5f}, {3, 1}};
static const double start[PARAMS] = {0.5, -0.25, 1, 0.75, 0.125, -0.5, 0.25, -1};

/* --- the reference ---------------------------------------------------------------------------- */
/* Of the mean of (x w^T + b - t)^2; p is w, row-major, then b. */
static void reference_gradient(const double *p, double *g)
{
    memset(g, 0, PARAMS * sizeof *g);
    for (int n = 0; n < N; n++)
        for (int o = 0; o < OUT; o++) {
            double y = p[OUT * IN + o];
            for (int i = 0; i < IN; i++)
                y += p[o * IN + i] * (double)inputs[n][i];
            double dy = 2 * (y - (double)targets[n][o]) / (N * OUT);
            for (int i = 0; i < IN; i++)
                g[o * IN + i] += dy * (double)inputs[n][i];
            g[OUT * IN + o] += dy;
        }
}

typedef struct optim_case {
    const char *name;
    const tsr_sgd_opts *sgd;
    const tsr_adam_opts *adam;
    bool decoupled;
    double lr[STEPS];
} optim_case;

/* The algorithm boxes of torch.optim.SGD. */
static void reference_sgd(const tsr_sgd_opts *o, double lr, int step, double *p, double *m,
                          const double *grad)
{
    for (int i = 0; i < PARAMS; i++) {
        double g = grad[i] + o->weight_decay * p[i];
        if (o->momentum != 0) {
            m[i] = step == 0 ? g : o->momentum * m[i] + (1 - o->dampening) * g;
            g = o->nesterov ? g + o->momentum * m[i] : m[i];
        }
        p[i] -= lr * g;
    }
}

/* Of torch.optim.Adam and AdamW, at the betas and eps that the cases have. */
static void reference_adam(const optim_case *c, double lr, int step, double *p, double *m,
                           double *v, const double *grad)
{
    const double b1 = 0.8, b2 = 0.95, eps = 1e-6, decay = c->adam->weight_decay;
    for (int i = 0; i < PARAMS; i++) {
        double g = grad[i];
        if (c->decoupled)
            p[i] -= lr * decay * p[i];
        else
            g += decay * p[i];
        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        double mhat = m[i] / (1 - pow(b1, step + 1)), vhat = v[i] / (1 - pow(b2, step + 1));
        p[i] -= lr * mhat / (sqrt(vhat) + eps);
    }
}

static void reference(const optim_case *c, double *p)
{
    double m[PARAMS] = {0}, v[PARAMS] = {0}, g[PARAMS];
    memcpy(p, start, sizeof start);
    for (int step = 0; step < STEPS; step++) {
        reference_gradient(p, g);
        if (c->sgd)
            reference_sgd(c->sgd, c->lr[step], step, p, m, g);
        else
            reference_adam(c, c->lr[step], step, p, m, v, g);
    }
}

/* --- the program ------------------------------------------------------------------------------ */
static tsr_status set_start(tsr_module *net)
{
    float w[OUT * IN], b[OUT];
    for (int i = 0; i < OUT * IN; i++)
        w[i] = (float)start[i];
    for (int i = 0; i < OUT; i++)
        b[i] = (float)start[OUT * IN + i];
    TSRI_TRY(tsr_variable_set(tsr_module_find(net, "weight"), w, sizeof w));
    return tsr_variable_set(tsr_module_find(net, "bias"), b, sizeof b);
}

static tsr_status check(tsr_module *net, const optim_case *c)
{
    float got[PARAMS];
    double expected[PARAMS];
    TSRI_TRY(tsr_variable_get(tsr_module_find(net, "weight"), got, OUT * IN * sizeof *got));
    TSRI_TRY(tsr_variable_get(tsr_module_find(net, "bias"), got + OUT * IN, OUT * sizeof *got));
    reference(c, expected);
    for (int i = 0; i < PARAMS; i++)
        if (!(fabs((double)got[i] - expected[i]) < 2e-6 * (1 + fabs(expected[i]))))
            return tsri_fail(TSR_ERR_INTERNAL, "%s: parameter %d is %.9g, expected %.9g", c->name,
                             i, (double)got[i], expected[i]);
    return TSR_OK;
}

static tsr_status train(tsr_world *w, const optim_case *c, tsr_sbp sbp)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_nn_opts nn = {.placement = p, .sbp = sbp};
    tsr_module *net = tsr_nn_linear(w, &nn, IN, OUT, true);
    TSRI_TRY(set_start(net));
    tsr_optimizer *opt = c->sgd         ? tsr_sgd(net, c->sgd)
                         : c->decoupled ? tsr_adamw(net, c->adam)
                                        : tsr_adam(net, c->adam);
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F32, TSR_DIMS(N, IN), p, TSR_S(0));
    tsr_tensor *t = tsr_input(g, "t", TSR_F32, TSR_DIMS(N, OUT), p, TSR_S(0));
    tsr_minimize(opt, tsr_mse_loss(tsr_apply(net, x), t, TSR_MEAN));
    tsr_plan *plan;
    TSRI_TRY(tsr_compile(g, &plan));
    for (int step = 0; step < STEPS; step++) {
        if (!(fabs(tsr_optimizer_lr(opt) / c->lr[step] - 1) < 1e-12))
            return tsri_fail(TSR_ERR_INTERNAL, "%s: step %d has another rate", c->name, step);
        TSRI_TRY(tsr_feed(plan, "x", inputs, sizeof inputs));
        TSRI_TRY(tsr_feed(plan, "t", targets, sizeof targets));
        TSRI_TRY(tsr_run(plan));
    }
    if (tsr_optimizer_steps(opt) != STEPS)
        return tsri_fail(TSR_ERR_INTERNAL, "%s: %lld steps", c->name,
                         (long long)tsr_optimizer_steps(opt));
    return check(net, c);
}

static tsr_status train_all_ways(tsr_world *w, void *arg)
{
    TSRI_TRY(train(w, arg, TSR_B));
    TSRI_TRY(train(w, arg, TSR_S(0)));
    return train(w, arg, TSR_AUTO);
}

static void run_case(optim_case c)
{
    for (int n = 1; n <= 2; n++)
        if (tsr_spawn(n, train_all_ways, &c) != TSR_OK)
            fail_msg("%d ranks: %s", n, tsr_last_error());
}

#define CONSTANT(lr)           \
    {                          \
        lr, lr, lr, lr, lr, lr \
    }

static void test_sgd(void **state)
{
    (void)state;
    run_case((optim_case){"sgd", TSR_SGD_OPTS(.lr = 0.05), NULL, false, CONSTANT(0.05)});
    run_case((optim_case){"weight decay", TSR_SGD_OPTS(.lr = 0.05, .weight_decay = 0.1), NULL,
                          false, CONSTANT(0.05)});
    run_case((optim_case){"momentum", TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9), NULL, false,
                          CONSTANT(0.05)});
    run_case((optim_case){"dampening", TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9, .dampening = 0.3),
                          NULL, false, CONSTANT(0.05)});
    run_case((optim_case){
        "nesterov",
        TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1), NULL,
        false, CONSTANT(0.05)});
}

static void test_adam(void **state)
{
    (void)state;
    const tsr_adam_opts *o =
        TSR_ADAM_OPTS(.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1);
    run_case((optim_case){"adam", NULL, o, false, CONSTANT(0.02)});
    run_case((optim_case){"adamw", NULL, o, true, CONSTANT(0.02)});
}

static void test_schedule(void **state)
{
    (void)state;
    run_case((optim_case){"schedule",
                          TSR_SGD_OPTS(.lr = 0.1, .schedule = {.kind = TSR_SCHEDULE_STEP,
                                                               .warmup = 2,
                                                               .step_size = 2,
                                                               .gamma = 0.5}),
                          NULL,
                          false,
                          {0.05, 0.1, 0.1, 0.1, 0.05, 0.05}});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_adam),
        cmocka_unit_test(test_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
