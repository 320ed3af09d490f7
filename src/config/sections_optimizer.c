/* SPDX-License-Identifier: Apache-2.0 */
/* The table of optimizers, with their schedules, states and groups. */
#include <math.h>

#include "src/config/ops.h"
#include "src/config/section_fields.h"

#define SCHEDULE(kind_, key, fallback_, low, high, doc_) \
    FIELD(kind_, tsri_config_schedule, #key, key, fallback_, low, high, doc_)
static const tsri_field schedule_fields[] = {
    SCHEDULE(INT, warmup, "0", 0, MOST, "Steps of linear rise to lr, before the schedule."),
};
static const tsri_field schedule_step_fields[] = {
    SCHEDULE(INT, step_size, TSRI_NEEDED, 1, MOST, "Steps between two falls."),
    SCHEDULE(FLOAT, gamma, "0.1", 1e-9, 1, "Multiplies lr at each."),
};
static const tsri_field schedule_cosine_fields[] = {
    SCHEDULE(INT, steps, TSRI_NONE, 1, MOST, "Default: all steps behind the warm-up."),
    SCHEDULE(FLOAT, min_lr, "0", 0, INFINITY, "At the end."),
};
static const tsri_field schedule_multi_step_fields[] = {
    SCHEDULE(INTS, milestones, TSRI_NEEDED, 0, MOST, "The steps at which lr falls; rising."),
    SCHEDULE(FLOAT, gamma, "0.1", 1e-9, 1, "Multiplies lr at each."),
};
static const tsri_field schedule_exponential_fields[] = {
    SCHEDULE(FLOAT, gamma, TSRI_NEEDED, 1e-9, INFINITY, "Multiplies lr at each step."),
};
static const tsri_field schedule_linear_fields[] = {
    SCHEDULE(INT, steps, "5", 1, MOST, "From one factor to the other."),
    SCHEDULE(FLOAT, start_factor, "0.333333333333333333", 1e-9, INFINITY, "Multiplies lr first."),
    SCHEDULE(FLOAT, end_factor, "1", 0, INFINITY, "Multiplies lr at last."),
};
static const tsri_field schedule_restarts_fields[] = {
    SCHEDULE(INT, steps, TSRI_NEEDED, 1, MOST, "Of the first period."),
    SCHEDULE(INT, restart_factor, "1", 1, MOST, "Each period is so many times as long."),
    SCHEDULE(FLOAT, min_lr, "0", 0, INFINITY, "At the end of a period."),
};
static const tsri_field schedule_one_cycle_fields[] = {
    SCHEDULE(INT, steps, TSRI_NONE, 1, MOST, "Default: all steps behind the warm-up."),
    SCHEDULE(FLOAT, max_lr, "0", 0, INFINITY, "At the top; 0 is lr."),
    SCHEDULE(FLOAT, pct_start, "0.3", 0, 1, "The part of the steps that rises."),
    SCHEDULE(FLOAT, div_factor, "25", 1e-9, INFINITY, "It starts at max_lr by this."),
    SCHEDULE(FLOAT, final_div_factor, "1e4", 1e-9, INFINITY, "It ends at its start by this."),
    SCHEDULE(BOOL, linear, "false", 0, 0, "By lines instead of cosines."),
    SCHEDULE(BOOL, three_phase, "false", 0, 0, "Falls as it rose, then to its end."),
    SCHEDULE(BOOL, keep_momentum, "false", 0, 0, "Else momentum goes the other way."),
    SCHEDULE(FLOAT, base_momentum, "0.85", 0, 0.999999999, "At the top."),
    SCHEDULE(FLOAT, max_momentum, "0.95", 0, 0.999999999, "At both ends."),
};
static const tsri_field schedule_plateau_fields[] = {
    SCHEDULE(FLOAT, factor, "0.1", 1e-9, 0.999999999, "Multiplies lr at each fall."),
    SCHEDULE(INT, patience, "10", 0, MOST, "Evaluations without improvement that are let pass."),
    SCHEDULE(INT, cooldown, "0", 0, MOST, "Evaluations after a fall that do not count."),
    SCHEDULE(FLOAT, threshold, "0.0001", 0, INFINITY, "What the loss must improve by."),
    SCHEDULE(BOOL, absolute, "false", 0, 0,
             "The threshold is a difference, not a part of the least loss."),
    SCHEDULE(FLOAT, min_lr, "0", 0, INFINITY, "It falls no lower."),
};
/* In the order of tsr_schedule_kind. */
static const tsri_section schedules[] = {
    {.name = "constant", .doc = "lr stays."},
    {.name = "step", .doc = "lr * gamma^(step / step_size).", FIELDS(schedule_step_fields)},
    {.name = "cosine", .doc = "From lr down to min_lr.", FIELDS(schedule_cosine_fields)},
    {.name = "multi_step",
     .doc = "lr * gamma^(milestones reached).",
     FIELDS(schedule_multi_step_fields)},
    {.name = "exponential", .doc = "lr * gamma^step.", FIELDS(schedule_exponential_fields)},
    {.name = "linear",
     .doc = "lr times a factor that goes from one number to another.",
     FIELDS(schedule_linear_fields)},
    {.name = "cosine_restarts",
     .doc = "The cosine again and again.",
     FIELDS(schedule_restarts_fields)},
    {.name = "one_cycle",
     .doc = "Up to max_lr and down again, momentum the other way.",
     FIELDS(schedule_one_cycle_fields)},
    {.name = "plateau",
     .doc = "lr falls when the loss of the evaluations that train.eval.every asks for has stopped "
            "to improve.",
     FIELDS(schedule_plateau_fields)},
};
const tsri_section tsri_schedule_section = {.name = "schedule",
                                            .size = sizeof(tsri_config_schedule),
                                            FIELDS(schedule_fields),
                                            .selector = "name",
                                            .nvariants = COUNT(schedules),
                                            .variants = schedules};
static const tsri_field state_fields[] = {
    SBP(tsri_config_state,
        "Its signature. Default: the parameter's. S(0) is ZeRO's. By axes' names, those not named "
        "are as the parameter's."),
};
static const tsri_section state_section = {
    .name = "state", .size = sizeof(tsri_config_state), FIELDS(state_fields)};

#define OPTIMIZER(kind_, key, fallback_, low, high, ...) \
    FIELD(kind_, tsri_config_optimizer, #key, key, fallback_, low, high, __VA_ARGS__)
#define LR(usual) OPTIMIZER(FLOAT, lr, usual, 0, INFINITY, "Learning rate.")
#define GROUP(key, doc_) FIELD(FLOAT, tsri_config_group, #key, key, TSRI_NONE, 0, INFINITY, doc_)
static const tsri_field group_fields[] = {
    FIELD(TEXT, tsri_config_group, "match", match, TSRI_NEEDED, 0, 0,
          "A pattern of qualified names, as in parameters."),
    GROUP(lr, "Their own rate."),
    GROUP(weight_decay, "Their own decay."),
    FIELD(BOOL, tsri_config_group, "frozen", frozen, "false", 0, 0, "They are not trained."),
};
const tsri_section tsri_group_section = {
    .name = "groups", .size = sizeof(tsri_config_group), FIELDS(group_fields)};

static const tsri_field optimizer_fields[] = {
    {.name = "schedule",
     .kind = TSRI_FIELD_SECTION,
     .offset = offsetof(tsri_config_optimizer, schedule),
     .fallback = "{}",
     .section = &tsri_schedule_section,
     .doc = "How lr goes from step to step."},
    {.name = "state",
     .kind = TSRI_FIELD_SECTION,
     .offset = offsetof(tsri_config_optimizer, state),
     .fallback = TSRI_NONE,
     .section = &state_section,
     .doc = "What is kept for each parameter."},
    {.name = "groups",
     .kind = TSRI_FIELD_SECTIONS,
     .offset = offsetof(tsri_config_optimizer, groups),
     .fallback = TSRI_NONE,
     .section = &tsri_group_section,
     .max = TSRI_CONFIG_MAX_PATTERNS,
     .doc = "Parameters with numbers of their own: those of the last entry with any that fits a "
            "name; frozen is that of the last entry that says it."},
    OPTIMIZER(FLOAT, clip_norm, TSRI_NONE, 0, INFINITY,
              "All gradients are scaled down to a norm of at most this. Default: they are not."),
    OPTIMIZER(FLOAT, clip_value, TSRI_NONE, 0, INFINITY,
              "Gradients' elements are brought to at most this size. Default: they are not."),
    OPTIMIZER(INT, accumulate, "1", 1, MOST,
              "Steps of whose gradients an update takes the mean. "
              "The last of them alone reduces it over ranks, unless states are split.",
              REFUSED),
    OPTIMIZER(FLOAT, loss_scale, "1", 1e-30, 1e30, "Multiplies the loss, and divides gradients."),
};
static const tsri_field sgd_fields[] = {
    LR("0.001"),
    OPTIMIZER(FLOAT, momentum, "0", 0, INFINITY, ""),
    OPTIMIZER(FLOAT, dampening, "0", 0, 0, ""),
    OPTIMIZER(FLOAT, weight_decay, "0", 0, INFINITY, ""),
    OPTIMIZER(BOOL, nesterov, "false", 0, 0, "Needs momentum, and no dampening."),
};
#define ADAM_FIELDS(name, decay)                                \
    static const tsri_field name[] = {                          \
        LR("0.001"),                                            \
        OPTIMIZER(FLOAT, beta1, "0.9", 0, 0.999999999, ""),     \
        OPTIMIZER(FLOAT, beta2, "0.999", 0, 0.999999999, ""),   \
        OPTIMIZER(FLOAT, eps, "1e-8", 0, INFINITY, ""),         \
        OPTIMIZER(FLOAT, weight_decay, decay, 0, INFINITY, ""), \
    }
ADAM_FIELDS(adam_fields, "0");
ADAM_FIELDS(adamw_fields, "0.01");
static const tsri_field rmsprop_fields[] = {
    LR("0.01"),
    OPTIMIZER(FLOAT, alpha, "0.99", 0, INFINITY, "Of the mean square: what is kept."),
    OPTIMIZER(FLOAT, eps, "1e-8", 0, INFINITY, ""),
    OPTIMIZER(FLOAT, momentum, "0", 0, INFINITY, ""),
    OPTIMIZER(FLOAT, weight_decay, "0", 0, INFINITY, ""),
    OPTIMIZER(BOOL, centered, "false", 0, 0, "The variance stands for the mean square."),
};
static const tsri_field adagrad_fields[] = {
    LR("0.01"),
    OPTIMIZER(FLOAT, lr_decay, "0", 0, INFINITY, ""),
    OPTIMIZER(FLOAT, initial_accumulator_value, "0", 0, INFINITY, "Of the sums of squares.", KEPT),
    OPTIMIZER(FLOAT, eps, "1e-10", 0, INFINITY, ""),
    OPTIMIZER(FLOAT, weight_decay, "0", 0, INFINITY, ""),
};
static const tsri_field lion_fields[] = {
    LR("0.0001"),
    OPTIMIZER(FLOAT, beta1, "0.9", 0, 0.999999999, ""),
    OPTIMIZER(FLOAT, beta2, "0.99", 0, 0.999999999, ""),
    OPTIMIZER(FLOAT, weight_decay, "0", 0, INFINITY, ""),
};
static const tsri_field own_fields[] = {
    LR("0.001"),
    OPTIMIZER(PATH, plugin, TSRI_NONE, 0, 0,
              "The library, whose code building the experiment runs."),
    OPTIMIZER(TEXT, function, TSRI_NEEDED, 0, 0, "The optimizer's name there.", REFUSED),
    {.name = "numbers",
     .kind = TSRI_FIELD_ANY,
     .offset = offsetof(tsri_config_optimizer, numbers),
     .fallback = TSRI_NONE,
     .legal = "a mapping of the optimizer's numbers",
     .json = "{\"type\": \"object\"}",
     .doc = "By name, as in {beta1: 0.9}."},
};
/* In the order of TSRI_OPTIMIZER_... */
static const tsri_section optimizers[] = {
    {.name = "sgd", .doc = "Stochastic gradient descent.", FIELDS(sgd_fields)},
    {.name = "adam", .doc = "Adam; weight decay is added to the gradient.", FIELDS(adam_fields)},
    {.name = "adamw", .doc = "Adam; weight decay is apart.", FIELDS(adamw_fields)},
    {.name = "rmsprop", .doc = "RMSprop.", FIELDS(rmsprop_fields)},
    {.name = "adagrad", .doc = "Adagrad.", FIELDS(adagrad_fields)},
    {.name = "lion", .doc = "The sign of an average of gradients.", FIELDS(lion_fields)},
    {.name = "lamb", .doc = "AdamW's step, scaled by norms.", FIELDS(adam_fields)},
    {.name = "own",
     .doc = "One that a plug-in library defines (docs/extending/optimizer.md).",
     FIELDS(own_fields)},
};
const tsri_section tsri_optimizer_section = {.name = "optimizer",
                                             .size = sizeof(tsri_config_optimizer),
                                             FIELDS(optimizer_fields),
                                             .selector = "name",
                                             .on_resume = TSRI_RESUME_REFUSED,
                                             .nvariants = COUNT(optimizers),
                                             .variants = optimizers};
