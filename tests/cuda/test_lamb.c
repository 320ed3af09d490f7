/* SPDX-License-Identifier: Apache-2.0 */
/* LAMB on a GPU: its updates against the formula in f64 and against a CPU's, and how many launches
 * they take: none more for more parameters, but for a few of scalars. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "src/core/status.h"
#include "src/plan/plan.h"
#include "tests/dist/comm/rank_checks.h"
#include <tessera/tessera.h>

enum { PARAMS = 6, MOST = 5000, RUNS = 4 };
static const int64_t counts[PARAMS] = {1, 5, 21, 256, 4999, 7};
static const double lr = 0.02, decay = 0.1, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;

static const tsr_world_opts opts = {
    .size = sizeof opts, .arena_bytes = 64 << 20, .timeout_s = 20, .threads = 1};

/* The last parameter begins at 0; the first one's gradient is 0 in the first run. */
static double first_value(int p, int64_t i)
{
    return p == PARAMS - 1 ? 0 : 0.3 * sin(1.7 * (double)i + p) + 0.1;
}

static double gradient(int run, int p, int64_t i)
{
    return p == 0 && run == 0 ? 0 : 0.01 * cos(0.9 * (double)i + 2 * run + p);
}

/* --- the formula ------------------------------------------------------------------------------ */
static void expect(int p, int nruns, double *x)
{
    static double m[MOST], v[MOST], r[MOST];
    const int64_t n = counts[p];
    for (int64_t i = 0; i < n; i++) {
        x[i] = first_value(p, i);
        m[i] = v[i] = 0;
    }
    for (int run = 0; run < nruns; run++) {
        double size = 0, far = 0;
        for (int64_t i = 0; i < n; i++) {
            const double g = gradient(run, p, i);
            m[i] = beta1 * m[i] + (1 - beta1) * g;
            v[i] = beta2 * v[i] + (1 - beta2) * g * g;
            r[i] =
                m[i] / (1 - pow(beta1, run + 1)) / (sqrt(v[i] / (1 - pow(beta2, run + 1))) + eps) +
                decay * x[i];
            size += x[i] * x[i];
            far += r[i] * r[i];
        }
        const double trust = size > 0 && far > 0 ? sqrt(size) / sqrt(far) : 1;
        for (int64_t i = 0; i < n; i++)
            x[i] -= lr * trust * r[i];
    }
}

/* --- the program ------------------------------------------------------------------------------ */
typedef struct task {
    const char *where;
    tsr_dtype dtype;
    int nparams, nsteps, joined_adam, joined_sgd, joined_squares;
    double value[PARAMS][MOST];
} task;

static void store(tsr_dtype dtype, void *data, int64_t i, double v)
{
    if (dtype == TSR_F64)
        ((double *)data)[i] = v;
    else
        ((float *)data)[i] = (float)v;
}

static double load(tsr_dtype dtype, const void *data, int64_t i)
{
    return dtype == TSR_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void count_steps(const tsr_plan *plan, task *t)
{
    t->nsteps = plan->nsteps;
    t->joined_adam = t->joined_sgd = t->joined_squares = 0;
    for (int i = 0; i < plan->nsteps; i++) {
        const tsri_step *s = &plan->steps[i];
        if (s->kind != TSRI_STEP_KERNEL)
            continue;
        const tsri_op_kind op = s->item->kernel.op;
        t->joined_adam += op == TSRI_OP_ADAM ? s->nparts : 0;
        t->joined_sgd += op == TSRI_OP_SGD ? s->nparts : 0;
        t->joined_squares += op == TSRI_OP_REDUCE ? s->nparts : 0;
    }
}

static tsr_status run(tsr_world *w, void *arg)
{
    task *t = arg;
    const tsr_placement *p = tsr_placement_parse(w, t->where);
    const tsr_nn_opts nn = {.placement = p, .sbp = TSR_B, .dtype = t->dtype};
    tsr_module *net = tsr_module_create(w, &nn, NULL, NULL, NULL);
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *loss = NULL;
    tsr_plan *plan;
    char name[PARAMS][8];
    double data[MOST];
    for (int i = 0; i < t->nparams; i++) {
        snprintf(name[i], sizeof name[i], "p%d", i);
        tsr_module_param(net, name[i], TSR_DIMS(counts[i]), TSR_B,
                         (tsr_init){.kind = TSR_INIT_ZEROS});
    }
    for (int i = 0; i < t->nparams; i++) {
        tsr_tensor *c = tsr_input(g, name[i], t->dtype, TSR_DIMS(counts[i]), p, TSR_B);
        tsr_tensor *sum = tsr_sum(tsr_mul(c, tsr_use(net, name[i], c)), TSR_ALL_AXES, false);
        loss = loss ? tsr_add(loss, sum) : sum;
    }
    tsr_minimize(tsr_lamb(net, TSR_ADAM_OPTS(.lr = lr, .weight_decay = decay)), loss);
    tsr_output(g, "loss", loss, p, TSR_B);
    TSRI_TRY(tsr_compile(g, &plan));
    count_steps(plan, t);
    for (int i = 0; i < t->nparams; i++) {
        for (int64_t k = 0; k < counts[i]; k++)
            store(t->dtype, data, k, first_value(i, k));
        TSRI_TRY(tsr_variable_set(tsr_module_find(net, name[i]), data,
                                  (size_t)counts[i] * tsr_dtype_size(t->dtype)));
    }
    for (int r = 0; r < RUNS; r++) {
        for (int i = 0; i < t->nparams; i++) {
            for (int64_t k = 0; k < counts[i]; k++)
                store(t->dtype, data, k, gradient(r, i, k));
            TSRI_TRY(tsr_feed(plan, name[i], data, (size_t)counts[i] * tsr_dtype_size(t->dtype)));
        }
        TSRI_TRY(tsr_run(plan));
        TSRI_TRY(tsr_wait(plan));
    }
    for (int i = 0; i < t->nparams; i++) {
        TSRI_TRY(tsr_variable_get(tsr_module_find(net, name[i]), data,
                                  (size_t)counts[i] * tsr_dtype_size(t->dtype)));
        for (int64_t k = 0; k < counts[i]; k++)
            t->value[i][k] = load(t->dtype, data, k);
    }
    return TSR_OK;
}

static void do_run(task *t)
{
    if (tsr_spawn_with(1, run, t, &opts) != TSR_OK)
        fail_msg("%s: %s", t->where, tsr_last_error());
}

/* --- tests ------------------------------------------------------------------------------------ */
static void check_values(tsr_dtype dtype, double tolerance)
{
    static task gpu, cpu;
    static double want[MOST];
    gpu = (task){.where = "cuda:[0]", .dtype = dtype, .nparams = PARAMS};
    cpu = (task){.where = "cpu:[0]", .dtype = dtype, .nparams = PARAMS};
    do_run(&gpu);
    do_run(&cpu);
    for (int i = 0; i < PARAMS; i++) {
        expect(i, RUNS, want);
        for (int64_t k = 0; k < counts[i]; k++) {
            if (!(fabs(gpu.value[i][k] - want[k]) <= tolerance))
                fail_msg("parameter %d, element %d: %.17g on the GPU, %.17g by the formula", i,
                         (int)k, gpu.value[i][k], want[k]);
            if (!(fabs(gpu.value[i][k] - cpu.value[i][k]) <= tolerance))
                fail_msg("parameter %d, element %d: %.17g on the GPU, %.17g on the CPU", i, (int)k,
                         gpu.value[i][k], cpu.value[i][k]);
        }
    }
}

static void test_values(void **state)
{
    (void)state;
    check_values(TSR_F64, 1e-14);
    check_values(TSR_F32, 1e-6);
}

/* Each stage's kernels are one launch; what is left for each parameter are its decay and scalars.
 */
static void test_launches(void **state)
{
    static task few, many;
    (void)state;
    few = (task){.where = "cuda:[0]", .dtype = TSR_F32, .nparams = 2};
    many = (task){.where = "cuda:[0]", .dtype = TSR_F32, .nparams = PARAMS};
    do_run(&few);
    do_run(&many);
    /* Of each parameter 5 are the loss's and its gradient's, and 7 the update's: of those 6
     * scalars. */
    assert_in_range(many.nsteps - few.nsteps, 1, 12 * (PARAMS - 2));
    assert_int_equal(many.joined_adam, PARAMS);
    assert_int_equal(many.joined_sgd, PARAMS);
    assert_int_equal(many.joined_squares, 2 * PARAMS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_launches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
