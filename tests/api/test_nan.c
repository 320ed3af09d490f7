/* SPDX-License-Identifier: Apache-2.0 */
/* Losses that are not finite: where it began is named, parameters stay as they were, and a plan
 * warns once or says nothing, as it was asked. */
#include "rank.h"

enum { RANKS = 2, N = 4 };

/* What a program does wrong. */
typedef enum fault {
    LOG_OF_NEGATIVE = 0, /* an input under log */
    TOO_LARGE,           /* exp of 1e5 is an infinity */
    NAN_INPUT,
    NAN_WEIGHT,
    MASK, /* infinities that are meant, and a NaN behind them that is not */
    FAULTS,
} fault;

typedef struct warnings {
    int n;
    char text[512];
} warnings;

typedef struct told {
    fault fault;
    tsr_dtype dtype;
    tsr_on_nan on_nan;
    bool only_gradients; /* no optimizer */
    tsr_status status[RANKS];
    char text[RANKS][512];
    /* w before the run that failed and after it, and whether that could be read. */
    double before, after;
    tsr_status read;
    warnings warned;
} told;

static void note(void *arg, tsr_log_level level, const char *text)
{
    warnings *w = arg;
    if (level != TSR_LOG_WARNING)
        return;
    w->n++;
    snprintf(w->text, sizeof w->text, "%s", text);
}

/* mean(f(w x)), w in B and x's rows in S(0). */
static tsr_status declare(tsr_world *w, const told *t, tsr_module **out_m, tsr_plan **out_plan)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    const tsr_nn_opts o = {.placement = p, .sbp = TSR_B, .dtype = t->dtype};
    tsr_module *m = tsr_module_create(w, &o, NULL, NULL, NULL);
    tsr_module_param(m, "w", TSR_DIMS(1), TSR_B, (tsr_init){.kind = TSR_INIT_ONES});
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input(g, "x", t->dtype, TSR_DIMS(N), p, TSR_S(0));
    tsr_tensor *weight = tsr_use(m, "w", x);
    tsr_tensor *y = tsr_mul(x, weight);
    if (t->fault == MASK)
        y = tsr_where(tsr_less(x, tsr_full(g, t->dtype, TSR_DIMS(N), p, TSR_S(0), 2)), y,
                      tsr_full(g, t->dtype, TSR_DIMS(N), p, TSR_S(0), -INFINITY));
    y = t->fault == TOO_LARGE ? tsr_exp(y) : tsr_log(y);
    tsr_tensor *loss = tsr_mean(y, TSR_ALL_AXES, false), *dw;
    if (t->only_gradients) {
        tsr_gradients(loss, 1, &weight, &dw);
        tsr_output(g, "dw", dw, p, TSR_B);
    } else {
        tsr_minimize(tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.1)), loss);
    }
    tsr_output(g, "loss", loss, p, TSR_B);
    *out_m = m;
    return tsr_compile_with(g, TSR_COMPILE_OPTS(.on_nan = t->on_nan), out_plan);
}

static tsr_status feed(tsr_plan *plan, const told *t, bool good)
{
    static const double bad[FAULTS][N] = {[LOG_OF_NEGATIVE] = {1, 1, 1, -1},
                                          [TOO_LARGE] = {1, 1, 1, 1e5},
                                          [NAN_INPUT] = {1, 1, NAN, 1},
                                          [NAN_WEIGHT] = {1, 1, 1, 1},
                                          [MASK] = {1, 3, 1, 1}};
    double x[N];
    float x4[N];
    for (int i = 0; i < N; i++) {
        x[i] = good ? 1 : bad[t->fault][i];
        x4[i] = (float)x[i];
    }
    const void *data = t->dtype == TSR_F64 ? (const void *)x : (const void *)x4;
    return tsr_feed(plan, "x", data, N * tsr_dtype_size(t->dtype));
}

static tsr_status run(tsr_world *w, void *arg)
{
    told *t = arg;
    int rank = tsr_world_rank(w);
    tsr_module *m;
    tsr_plan *plan;
    double nan = NAN;
    TRY(declare(w, t, &m, &plan));
    TRY(feed(plan, t, true));
    TRY(tsr_run(plan));
    TRY(feed(plan, t, false));
    if (t->fault == NAN_WEIGHT)
        TRY(tsr_variable_set(tsr_module_find(m, "w"), &nan, sizeof nan));
    if (t->dtype == TSR_F64)
        TRY(tsr_variable_get(tsr_module_find(m, "w"), &t->before, sizeof t->before));
    t->status[rank] = tsr_run(plan);
    snprintf(t->text[rank], sizeof t->text[rank], "%s", tsr_last_error());
    if (t->on_nan != TSR_NAN_STOP)
        TRY(tsr_run(plan));
    else if (t->dtype == TSR_F64 && tsr_world_size(w) == 1)
        t->read = tsr_variable_get(tsr_module_find(m, "w"), &t->after, sizeof t->after);
    return TSR_OK;
}

static void spawn(int nranks, told *t)
{
    const tsr_world_opts opts = {.size = sizeof opts, .log = note, .log_arg = &t->warned};
    tsr_status status = tsr_spawn_with(nranks, run, t, &opts);
    if (status != TSR_OK && !(nranks > 1 && t->on_nan == TSR_NAN_STOP))
        fail_msg("%s: %s", tsr_status_name(status), tsr_last_error());
}

static void expect(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' does not say '%s'", text, part);
}

/* --- tests ------------------------------------------------------------------------------------ */
static void test_origin(void **state)
{
    (void)state;
    static const char *const parts[FAULTS][3] = {
        [LOG_OF_NEGATIVE] = {"step 2: the loss is nan; it begins in the result of log",
                             ", 1 of 4 elements nan; what it was computed from is finite",
                             " (test_nan.c:"},
        [TOO_LARGE] =
            {"the loss is infinite; it begins in the result of exp",
             ", 1 of 4 elements infinite; of what it was computed from, a part is no longer held",
             ""},
        [NAN_INPUT] = {"the loss is nan; it begins in input 'x', 1 of 4 elements nan", "", ""},
        [NAN_WEIGHT] = {"the loss is nan; it begins in variable 'w', 1 of 1 elements nan", "", ""},
        [MASK] = {"the loss is nan; it begins in the result of log", "1 of 4 elements nan",
                  "before it the result of"}};
    for (int i = 0; i < FAULTS; i++) {
        told t = {.fault = (fault)i, .dtype = TSR_F64, .on_nan = TSR_NAN_STOP};
        spawn(1, &t);
        assert_int_equal(t.status[0], TSR_ERR_NAN);
        for (int k = 0; k < 3; k++)
            expect(t.text[0], parts[i][k]);
        assert_int_equal(t.warned.n, 0);
    }
}

static void test_parameters_stay(void **state)
{
    (void)state;
    told t = {.dtype = TSR_F64, .on_nan = TSR_NAN_STOP};
    spawn(1, &t);
    assert_int_equal(t.read, TSR_OK);
    assert_true(t.before != 1); /* the first run has changed it */
    assert_true(t.after == t.before);
}

static void test_dtypes(void **state)
{
    (void)state;
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F64};
    for (int i = 0; i < 2; i++) {
        told t = {.dtype = dtypes[i], .on_nan = TSR_NAN_STOP};
        spawn(1, &t);
        assert_int_equal(t.status[0], TSR_ERR_NAN);
        expect(t.text[0], "log");
        expect(t.text[0], "1 of 4 elements nan");
    }
}

static void test_warning(void **state)
{
    (void)state;
    told t = {.dtype = TSR_F32, .on_nan = TSR_NAN_WARN};
    spawn(1, &t);
    assert_int_equal(t.status[0], TSR_OK);
    assert_int_equal(t.warned.n, 1);
    expect(t.warned.text, "step 2: the loss is nan; it begins in the result of log");
    told quiet = {.dtype = TSR_F32, .on_nan = TSR_NAN_IGNORE};
    spawn(1, &quiet);
    assert_int_equal(quiet.status[0], TSR_OK);
    assert_int_equal(quiet.warned.n, 0);
    assert_int_equal(TSR_COMPILE_OPTS()->on_nan, TSR_NAN_WARN);
}

static void test_gradients_alone(void **state)
{
    (void)state;
    told t = {.dtype = TSR_F64, .on_nan = TSR_NAN_STOP, .only_gradients = true};
    spawn(1, &t);
    assert_int_equal(t.status[0], TSR_ERR_NAN);
}

/* The rank whose rows have it says it, whichever rank the loss is fetched on. */
static void test_other_rank(void **state)
{
    (void)state;
    told t = {.dtype = TSR_F64, .on_nan = TSR_NAN_STOP};
    spawn(RANKS, &t);
    assert_int_equal(t.status[1], TSR_ERR_NAN);
    expect(t.text[1], "step 2: the loss is nan; it begins in the result of log");
    expect(t.text[1], "1 of 2 elements nan");
    assert_int_equal(t.status[0], TSR_ERR_REMOTE);
    expect(t.text[0], "rank 1");
    expect(t.text[0], "the loss is nan");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_origin),          cmocka_unit_test(test_parameters_stay),
        cmocka_unit_test(test_dtypes),          cmocka_unit_test(test_warning),
        cmocka_unit_test(test_gradients_alone), cmocka_unit_test(test_other_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
