/* SPDX-License-Identifier: Apache-2.0 */
/* An optimizer of a plug-in beside the library's own of the same formulas, over steps with groups,
 * a schedule, freezing, accumulation, clipping, a loss scale and sharded states; and what wrong
 * definitions and functions are told. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tessera/tessera.h>

#define CHECK(e)                                                                         \
    do {                                                                                 \
        if (!(e))                                                                        \
            return tsr_set_error(TSR_ERR_INTERNAL, "%s:%d: %s", __FILE__, __LINE__, #e); \
    } while (0)

enum { STEPS = 7 };

typedef struct setting {
    tsr_sbp param, state;
    int64_t accumulate;
    double clip, scale;
    bool groups, freezes, schedule;
} setting;

typedef struct net {
    tsr_module *m;
    tsr_variable *w, *b;
    tsr_optimizer *o;
    tsr_plan *plan;
} net;

static tsr_tensor *layer(tsr_module *m, tsr_tensor *x, void *arg)
{
    (void)arg;
    return tsr_linear(x, tsr_use(m, "w", x), tsr_use(m, "b", x));
}

static tsr_status make(tsr_world *w, const setting *s, bool own, net *n)
{
    static const char *const where[] = {"cpu:[0]", "cpu:[0,1]", "cpu:[0,1,2]", "cpu:[0,1,2,3]"};
    const tsr_placement *p = tsr_placement_parse(w, where[tsr_world_size(w) - 1]);
    const tsr_nn_opts nn = {.placement = p, .sbp = s->param, .dtype = TSR_F64, .seed = 3};
    n->m = tsr_module_create(w, &nn, layer, NULL, NULL);
    const tsr_init init = {.kind = TSR_INIT_NORMAL, .b = 1};
    n->w = tsr_module_param(n->m, "w", TSR_DIMS(6, 4), s->param, init);
    n->b = tsr_module_param(n->m, "b", TSR_DIMS(6), s->param, (tsr_init){0});
    const tsr_schedule schedule = {.kind = s->schedule ? TSR_SCHEDULE_STEP : TSR_SCHEDULE_CONSTANT,
                                   .step_size = 2,
                                   .gamma = 0.5};
    n->o = own ? tsr_optimizer_create(n->m, "own_lion",
                                      TSR_OWN_OPTIMIZER_OPTS(.lr = 0.01, .schedule = schedule,
                                                             .numbers = (double[]){0.8, 0.95, 0.1},
                                                             .state = s->state))
               : tsr_lion(n->m, TSR_LION_OPTS(.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95,
                                              .weight_decay = 0.1, .schedule = schedule,
                                              .state = s->state));
    CHECK(p && n->w && n->b && n->o);
    if (s->groups)
        TSR_TRY(tsr_optimizer_param_group(
            n->o, "b", TSR_PARAM_GROUP_OPTS(.lr = 0.1, .weight_decay = 0.3, .beta2 = 0.9)));
    if (s->freezes)
        TSR_TRY(tsr_optimizer_freeze(n->o, "b", false));
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(8, 4), p, TSR_S(0));
    tsr_tensor *loss = tsr_mean(tsr_square(tsr_apply(n->m, x)), TSR_ALL_AXES, false);
    tsr_minimize_with(n->o, 1, &loss,
                      TSR_MINIMIZE_OPTS(.accumulate = s->accumulate, .clip_norm = s->clip,
                                        .loss_scale = s->scale));
    return tsr_compile(g, &n->plan);
}

static tsr_status step(const net *n, const setting *s, int t)
{
    double x[32];
    for (int i = 0; i < 32; i++)
        x[i] = sin(i + 3.7 * t);
    if (s->freezes)
        TSR_TRY(tsr_optimizer_freeze(n->o, "b", t == 2 || t == 3));
    TSR_TRY(tsr_feed(n->plan, "x", x, sizeof x));
    return tsr_run(n->plan);
}

static tsr_status alike(tsr_variable *a, tsr_variable *b)
{
    double x[24], y[24];
    size_t bytes = (size_t)tsr_dims_count(tsr_variable_dims(a)) * sizeof *x;
    TSR_TRY(tsr_variable_get(a, x, bytes));
    TSR_TRY(tsr_variable_get(b, y, bytes));
    for (size_t i = 0; i < bytes / sizeof *x; i++)
        CHECK(fabs(x[i] - y[i]) < 1e-13 && isfinite(x[i]));
    return TSR_OK;
}

static tsr_status compare(tsr_world *w, const setting *s)
{
    net n[2];
    for (int i = 0; i < 2; i++)
        TSR_TRY(make(w, s, i, &n[i]));
    for (int t = 0; t < STEPS; t++) {
        for (int i = 0; i < 2; i++)
            TSR_TRY(step(&n[i], s, t));
        TSR_TRY(alike(n[0].w, n[1].w));
        TSR_TRY(alike(n[0].b, n[1].b));
        CHECK(tsr_optimizer_steps(n[0].o) == tsr_optimizer_steps(n[1].o));
    }
    tsr_variable *m[2] = {tsr_optimizer_state(n[0].o, n[0].w, "exp_avg"),
                          tsr_optimizer_state(n[1].o, n[1].w, "exp_avg")};
    CHECK(m[0] && m[1]);
    return alike(m[0], m[1]);
}

static tsr_status beside_lion(tsr_world *w, void *arg)
{
    const tsr_sbp auto_ = {0};
    const setting all[] = {
        {TSR_B, auto_, 1, 0, 1, false, false, false},
        {TSR_B, TSR_S(0), 1, 0, 1, true, false, true},
        {TSR_S(0), auto_, 1, 0.1, 1, false, true, true},
        {TSR_B, auto_, 3, 0, 1, true, true, false},
        {TSR_B, auto_, 2, 0.05, 64, false, false, true},
        {TSR_S(0), TSR_S(0), 1, 0, 8, true, true, true},
    };
    (void)arg;
    TSR_TRY(tsr_plugin_load(w, PLUGIN));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const tsr_status status = compare(w, &all[i]);
        if (status != TSR_OK)
            return tsr_set_error(status, "setting %zu: %.300s", i, tsr_last_error());
    }
    return TSR_OK;
}

/* --- wrong ones ------------------------------------------------------------------------------- */
static void sets_nothing(tsr_update *u)
{
    (void)u;
}

static void sets_scalar(tsr_update *u)
{
    u->new_param = u->lr;
}

static void forgets_state(tsr_update *u)
{
    u->new_param = u->grad;
}

static void keeps(tsr_update *u)
{
    u->new_param = u->param;
}

static tsr_status refused(tsr_world *w, const tsr_optimizer_def *def, const char *why)
{
    CHECK(tsr_optimizer_define(w, def) == TSR_ERR_INVALID);
    if (!strstr(tsr_last_error(), why))
        return tsr_set_error(TSR_ERR_INTERNAL, "'%.200s' does not say '%s'", tsr_last_error(), why);
    return TSR_OK;
}

static tsr_status fails(tsr_world *w, const char *name, tsr_update_fn *fn, bool state,
                        const char *why)
{
    TSR_TRY(tsr_optimizer_define(
        w, TSR_OPTIMIZER_DEF(.name = name, .update = fn, .states = {state ? "kept" : NULL})));
    const tsr_placement *p = tsr_placement_parse(w, "cpu:[0]");
    const tsr_nn_opts nn = {.placement = p, .sbp = TSR_B, .dtype = TSR_F64};
    tsr_module *m = tsr_nn_linear(w, &nn, 4, 6, true);
    tsr_optimizer *o = tsr_optimizer_create(m, name, NULL);
    CHECK(o);
    tsr_graph *g = tsr_graph_create(w, TSR_GRAPH_OPTS(.training = true));
    tsr_tensor *x = tsr_input(g, "x", TSR_F64, TSR_DIMS(8, 4), p, TSR_B);
    tsr_minimize(o, tsr_mean(tsr_square(tsr_apply(m, x)), TSR_ALL_AXES, false));
    tsr_plan *plan;
    const tsr_status status = tsr_compile(g, &plan);
    if (!why)
        return status;
    CHECK(status != TSR_OK);
    if (!strstr(tsr_last_error(), why) || !strstr(tsr_last_error(), name))
        return tsr_set_error(TSR_ERR_INTERNAL, "'%.200s' does not say '%s'", tsr_last_error(), why);
    return TSR_OK;
}

static tsr_status wrong(tsr_world *w, void *arg)
{
    (void)arg;
    TSR_TRY(refused(w, TSR_OPTIMIZER_DEF(.update = keeps), "NULL"));
    TSR_TRY(refused(w, TSR_OPTIMIZER_DEF(.name = "a.b", .update = keeps), "a.b"));
    TSR_TRY(refused(w, TSR_OPTIMIZER_DEF(.name = "none"), "no update function"));
    TSR_TRY(
        refused(w, TSR_OPTIMIZER_DEF(.name = "o", .update = keeps, .states = {"a b"}), "'a b'"));
    TSR_TRY(refused(w, TSR_OPTIMIZER_DEF(.name = "o", .update = keeps, .states = {"gradient"}),
                    "'gradient'"));
    TSR_TRY(refused(w, TSR_OPTIMIZER_DEF(.name = "o", .update = keeps, .numbers = {{"n", 2, 0, 1}}),
                    "not in [0, 1]"));
    TSR_TRY(fails(w, "nothing", sets_nothing, false, "sets no new parameter"));
    TSR_TRY(fails(w, "scalar", sets_scalar, false, "sets a new parameter that is f64 ()"));
    TSR_TRY(fails(w, "forgets", forgets_state, true, "sets no new kept"));
    TSR_TRY(fails(w, "fine", keeps, false, NULL));
    TSR_TRY(refused(w, TSR_OPTIMIZER_DEF(.name = "fine", .update = keeps), "defined already"));
    CHECK(!tsr_optimizer_create(NULL, "fine", NULL));
    return TSR_OK;
}

int main(void)
{
    int failed = 0;
    for (int ranks = 1; ranks <= 4; ranks++)
        if (tsr_spawn(ranks, beside_lion, NULL) != TSR_OK) {
            fprintf(stderr, "%d ranks: %s\n", ranks, tsr_last_error());
            failed++;
        }
    if (tsr_spawn(1, wrong, NULL) != TSR_OK) {
        fprintf(stderr, "wrong: %s\n", tsr_last_error());
        failed++;
    }
    return failed != 0;
}
