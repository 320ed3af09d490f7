/* SPDX-License-Identifier: Apache-2.0 */
/* TSR_NAN_STOP on devices whose losses the host sees only when they are fetched: a step with a loss
 * that is not finite changes no parameter and no state, and the next one goes on. */
#include "../api/rank.h"

enum { ROWS = 8, WIDTH = 4, MOST = 64 };

typedef struct kind {
    const char *name;
    int ranks;
    bool adam, lamb, own, clips, stages, scales, applies;
    bool two_losses, two_optimizers; /* a finite loss beside the one that is not */
    int microbatches, accumulate;
} kind;

typedef struct values {
    float of[MOST];
    int n;
} values;

typedef struct told {
    const kind *kind;
    values before, behind_bad, behind_good; /* the parameters */
    values skipped;                         /* those of the same steps without the bad one */
    tsr_status fetched;
} told;

static tsr_status read_one(tsr_variable *v, const char *name, void *arg)
{
    values *to = arg;
    const int n = (int)tsr_dims_count(tsr_variable_dims(v));
    (void)name;
    if (to->n + n > MOST)
        return TSR_ERR_INVALID;
    TRY(tsr_variable_get(v, &to->of[to->n], (size_t)n * sizeof(float)));
    to->n += n;
    return TSR_OK;
}

typedef struct program {
    tsr_module *m;
    tsr_plan *plan;
} program;

/* p - lr g, with the step in a state. */
static void descend(tsr_update *u)
{
    u->new_state[0] = tsr_mul(u->grad, u->lr);
    u->new_param = tsr_sub(u->param, u->new_state[0]);
}

static tsr_optimizer *make_optimizer(const kind *k, tsr_module *m)
{
    return k->own    ? tsr_optimizer_create(m, "descend", NULL)
           : k->adam ? tsr_adam(m, TSR_ADAM_OPTS(.lr = 0.1))
           : k->lamb ? tsr_lamb(m, TSR_ADAM_OPTS(.lr = 0.1))
                     : tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.1, .momentum = 0.5));
}

/* Declares the updates of all parameters, by one optimizer or by one for each module. */
static void minimize(tsr_world *w, const kind *k, tsr_module *all, tsr_tensor *loss,
                     tsr_tensor *finite)
{
    tsr_module *first = tsr_module_child(all, "first"), *second = tsr_module_child(all, "second");
    tsr_grad_scaler *scaler = k->scales ? tsr_grad_scaler_create(w, NULL) : NULL;
    tsr_tensor *losses[] = {finite, loss};
    if (k->two_optimizers) {
        tsr_minimize(make_optimizer(k, second), loss);
        tsr_minimize(make_optimizer(k, first), loss);
    } else if (k->applies) {
        tsr_variable *v[] = {tsr_module_find(first, "a"), tsr_module_find(second, "b")};
        tsr_tensor *x[] = {tsr_use(first, "a", loss), tsr_use(second, "b", loss)}, *dx[2];
        tsr_gradients(loss, 2, x, dx);
        tsr_apply_gradients(make_optimizer(k, all), 2, v, dx);
    } else {
        tsr_minimize_with(make_optimizer(k, all), k->two_losses ? 2 : 1,
                          k->two_losses ? losses : &loss,
                          TSR_MINIMIZE_OPTS(.clip_norm = k->clips ? 1 : 0, .scaler = scaler,
                                            .accumulate = k->accumulate + !k->accumulate));
    }
}

/* mean(log((x a + 2) b)), whose loss is NaN for a row that is below 0. */
static tsr_status declare(tsr_world *w, const kind *k, tsr_on_nan on_nan, program *out)
{
    const tsr_placement *all = tsr_placement_parse(w, "cpu");
    const tsr_placement *first = k->stages ? tsr_placement_parse(w, "cpu:[0]") : all;
    const tsr_placement *last = k->stages ? tsr_placement_parse(w, "cpu:[1]") : all;
    const tsr_nn_opts o = {.placement = first, .sbp = TSR_B, .dtype = TSR_F32};
    const tsr_nn_opts o2 = {.placement = last, .sbp = TSR_B, .dtype = TSR_F32};
    const tsr_init ones = {.kind = TSR_INIT_ONES};
    tsr_module *m = tsr_module_create(w, &o, NULL, NULL, NULL);
    tsr_module *one = tsr_module_add(m, "first", tsr_module_create(w, &o, NULL, NULL, NULL));
    tsr_module *second = tsr_module_add(m, "second", tsr_module_create(w, &o2, NULL, NULL, NULL));
    tsr_module_param(one, "a", TSR_DIMS(WIDTH), TSR_B, ones);
    tsr_module_param(second, "b", TSR_DIMS(WIDTH), TSR_B, ones);
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_input_with(g, "x", TSR_F32, TSR_DIMS(ROWS, WIDTH), first,
                                   k->stages ? TSR_B : TSR_S(0), TSR_INPUT_OPTS(.batch_axis = 0));
    tsr_tensor *y = tsr_mul(x, tsr_use(one, "a", x));
    y = k->stages ? tsr_to_global(y, last, TSR_B) : y;
    tsr_tensor *loss = tsr_mean(tsr_log(tsr_mul(y, tsr_use(second, "b", y))), TSR_ALL_AXES, false);
    tsr_tensor *finite = tsr_mean(tsr_square(tsr_use(second, "b", y)), TSR_ALL_AXES, false);
    minimize(w, k, m, loss, finite);
    tsr_output(g, "loss", loss, last, TSR_B);
    out->m = m;
    return tsr_compile_with(g, TSR_COMPILE_OPTS(.on_nan = on_nan, .microbatches = k->microbatches),
                            &out->plan);
}

/* Runs a step; the value of all rows is `value`, but that the last row of a bad step is below 0. */
static tsr_status step(const program *p, float value, bool is_bad)
{
    float x[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = is_bad && i >= (ROWS - 1) * WIDTH ? -1 : value;
    TRY(tsr_feed(p->plan, "x", x, sizeof x));
    TRY(tsr_run(p->plan));
    return tsr_wait(p->plan);
}

static tsr_status train(tsr_world *w, void *arg)
{
    told *t = arg;
    program stops, ignores;
    values before = {0}, bad = {0}, good = {0}, skipped = {0};
    const int times = t->kind->accumulate > 1 ? t->kind->accumulate : 1;
    double loss;
    TRY(tsr_optimizer_define(
        w, TSR_OPTIMIZER_DEF(.name = "descend", .update = descend, .states = {"step"})));
    TRY(declare(w, t->kind, TSR_NAN_STOP, &stops));
    TRY(declare(w, t->kind, TSR_NAN_IGNORE, &ignores));
    for (int i = 0; i < times; i++) {
        TRY(step(&stops, 1.5F, false));
        TRY(step(&ignores, 1.5F, false));
    }
    TRY(tsr_module_visit(stops.m, read_one, &before));
    for (int i = 0; i < times; i++)
        TRY(step(&stops, 2, true));
    TRY(tsr_module_visit(stops.m, read_one, &bad));
    for (int i = 0; i < times; i++) {
        TRY(step(&stops, 3, false));
        TRY(step(&ignores, 3, false));
    }
    TRY(tsr_module_visit(stops.m, read_one, &good));
    TRY(tsr_module_visit(ignores.m, read_one, &skipped));
    if (tsr_world_size(w) == 1) { /* else the other rank meets the error in its step */
        TRY(step(&stops, 2, true));
        t->fetched = tsr_fetch_scalar(stops.plan, "loss", &loss);
    }
    if (tsr_world_rank(w) == tsr_world_size(w) - 1) {
        t->before = before;
        t->behind_bad = bad;
        t->behind_good = good;
        t->skipped = skipped;
    }
    return TSR_OK;
}

static void test_stop(void **state)
{
    static const kind kinds[] = {
        {.name = "sgd", .ranks = 1},
        {.name = "sgd on 2 ranks", .ranks = 2},
        {.name = "sgd, clipped", .ranks = 2, .clips = true},
        {.name = "adam on 2 ranks", .ranks = 2, .adam = true},
        {.name = "lamb on 2 ranks", .ranks = 2, .lamb = true},
        {.name = "sgd in parts", .ranks = 2, .microbatches = 2},
        {.name = "adam in parts, clipped",
         .ranks = 2,
         .adam = true,
         .clips = true,
         .microbatches = 4},
        {.name = "an own optimizer", .ranks = 2, .own = true},
        {.name = "two losses", .ranks = 2, .two_losses = true},
        {.name = "two optimizers", .ranks = 2, .two_optimizers = true},
        {.name = "applied gradients", .ranks = 2, .applies = true},
        {.name = "a loss scaler", .ranks = 2, .scales = true},
        {.name = "two losses in parts and stages",
         .ranks = 2,
         .two_losses = true,
         .stages = true,
         .microbatches = 4},
        {.name = "sgd in two runs", .ranks = 2, .accumulate = 2},
        {.name = "sgd in stages", .ranks = 2, .stages = true, .microbatches = 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        static told t;
        t = (told){.kind = &kinds[i]};
        const tsr_status status = tsr_spawn(kinds[i].ranks, train, &t);
        if (status != TSR_OK)
            fail_msg("%s: %s", kinds[i].name, tsr_last_error());
        if (t.before.n != 2 * WIDTH || memcmp(&t.before, &t.behind_bad, sizeof t.before) != 0)
            fail_msg("%s: a bad step changes %g to %g", kinds[i].name, t.before.of[0],
                     t.behind_bad.of[0]);
        if (!memcmp(&t.behind_bad, &t.behind_good, sizeof t.before) ||
            !isfinite(t.behind_good.of[0]))
            fail_msg("%s: %g after a good step", kinds[i].name, t.behind_good.of[0]);
        if (!kinds[i].adam && !kinds[i].lamb &&
            memcmp(&t.behind_good, &t.skipped, sizeof t.skipped) != 0)
            fail_msg("%s: %g, and %g without the bad step", kinds[i].name, t.behind_good.of[0],
                     t.skipped.of[0]);
        if (t.fetched != (kinds[i].ranks == 1 ? TSR_ERR_NAN : TSR_OK))
            fail_msg("%s: the fetch of the loss gives %s", kinds[i].name,
                     tsr_status_name(t.fetched));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
