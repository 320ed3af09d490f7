/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizers and schedules of recipes.py, by their names. */
#ifndef TESSERA_TESTS_MODELS_RECIPE_TABLES_H
#define TESSERA_TESTS_MODELS_RECIPE_TABLES_H

#include <string.h>

#include <tessera/tessera.h>

typedef tsr_optimizer *make_fn(tsr_module *m, tsr_sbp state, tsr_schedule s);

static tsr_optimizer *make_sgd(tsr_module *m, tsr_sbp state, tsr_schedule s)
{
    return tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01,
                                   .dampening = 0.1, .schedule = s, .state = state));
}
static tsr_optimizer *make_nesterov(tsr_module *m, tsr_sbp state, tsr_schedule s)
{
    return tsr_sgd(m, TSR_SGD_OPTS(.lr = 0.05, .momentum = 0.9, .nesterov = true, .schedule = s,
                                   .state = state));
}
static tsr_optimizer *make_adam(tsr_module *m, tsr_sbp state, tsr_schedule s)
{
    return tsr_adam(m,
                    TSR_ADAM_OPTS(.lr = 0.05, .weight_decay = 0.01, .schedule = s, .state = state));
}
static tsr_optimizer *make_adamw(tsr_module *m, tsr_sbp state, tsr_schedule s)
{
    return tsr_adamw(m, TSR_ADAM_OPTS(.lr = 0.05, .schedule = s, .state = state));
}
static tsr_optimizer *make_rmsprop(tsr_module *m, tsr_sbp state, tsr_schedule s)
{
    return tsr_rmsprop(
        m, TSR_RMSPROP_OPTS(.lr = 0.01, .weight_decay = 0.01, .schedule = s, .state = state));
}
static tsr_optimizer *make_centered(tsr_module *m, tsr_sbp state, tsr_schedule s)
{
    return tsr_rmsprop(m, TSR_RMSPROP_OPTS(.lr = 0.01, .centered = true, .alpha = 0.9,
                                           .momentum = 0.5, .schedule = s, .state = state));
}
static tsr_optimizer *make_adagrad(tsr_module *m, tsr_sbp state, tsr_schedule s)
{
    return tsr_adagrad(m, TSR_ADAGRAD_OPTS(.lr = 0.1, .lr_decay = 0.1, .weight_decay = 0.01,
                                           .initial_accumulator_value = 0.5, .schedule = s,
                                           .state = state));
}
static tsr_optimizer *make_lion(tsr_module *m, tsr_sbp state, tsr_schedule s)
{
    return tsr_lion(m,
                    TSR_LION_OPTS(.lr = 0.01, .weight_decay = 0.1, .schedule = s, .state = state));
}
static tsr_optimizer *make_lamb(tsr_module *m, tsr_sbp state, tsr_schedule s)
{
    return tsr_lamb(m,
                    TSR_ADAM_OPTS(.lr = 0.02, .weight_decay = 0.1, .schedule = s, .state = state));
}

static const struct {
    const char *name;
    make_fn *make;
} optimizers[] = {
    {"sgd", make_sgd},         {"nesterov", make_nesterov}, {"adam", make_adam},
    {"adamw", make_adamw},     {"rmsprop", make_rmsprop},   {"centered", make_centered},
    {"adagrad", make_adagrad}, {"lion", make_lion},         {"lamb", make_lamb},
};

static double by_callback(int64_t step, double lr, void *arg)
{
    const double *slope = arg;
    return lr / (1 + *slope * (double)step);
}

static inline tsr_schedule schedule_named(const char *name)
{
    static const int64_t milestones[] = {3, 10, 11};
    static double slope = 0.25;
    const struct {
        const char *name;
        tsr_schedule schedule;
    } all[] = {
        {"step", TSR_STEP_LR(.step_size = 7)},
        {"multi_step", TSR_MULTI_STEP_LR(.milestones = milestones, .nmilestones = 3, .gamma = 0.5)},
        {"exponential", TSR_EXPONENTIAL_LR(.gamma = 0.95)},
        {"linear", TSR_LINEAR_LR(.steps = 8)},
        {"cosine", TSR_COSINE_LR(.steps = 50, .min_lr = 1e-3)},
        {"restarts", TSR_COSINE_RESTARTS_LR(.steps = 5, .restart_factor = 2, .min_lr = 1e-3)},
        {"one_cycle", TSR_ONE_CYCLE_LR(.steps = 50, .max_lr = 0.1)},
        {"three_phase",
         TSR_ONE_CYCLE_LR(.steps = 50, .max_lr = 0.1, .three_phase = true, .linear = true)},
        {"plateau", TSR_PLATEAU_LR(.factor = 0.5, .patience = 2, .cooldown = 1, .threshold = 0.05)},
        {"callback", {.kind = TSR_SCHEDULE_CALLBACK, .callback = by_callback, .arg = &slope}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name))
            return all[i].schedule;
    return (tsr_schedule){0};
}

#endif
