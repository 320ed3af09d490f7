/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers and learning-rate schedules, with PyTorch's formulas. */
#ifndef TESSERA_OPTIM_H
#define TESSERA_OPTIM_H

#include <tessera/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Holds state per parameter, step and learning rate; outlives graphs. Belongs to its world. States
 * are in their parameter's signature unless `state` says otherwise: parameters in B with states in
 * S(0) are ZeRO's first two stages: gradients are reduce-scattered, each rank updates its part, and
 * the new values are gathered. (A split of an axis that a parameter does not have is B for it.)
 */
typedef struct tsr_optimizer tsr_optimizer;

/* A rate over time, by PyTorch's names; torch.optim.lr_scheduler has the formulas. Make them with
 * the macros below, which have PyTorch's defaults. */
typedef enum tsr_schedule_kind {
    TSR_SCHEDULE_CONSTANT = 0,
    TSR_SCHEDULE_STEP,            /* lr * gamma^(step / step_size) */
    TSR_SCHEDULE_COSINE,          /* from lr to min_lr over `steps` steps; stays there */
    TSR_SCHEDULE_MULTI_STEP,      /* lr * gamma^(milestones reached) */
    TSR_SCHEDULE_EXPONENTIAL,     /* lr * gamma^step */
    TSR_SCHEDULE_LINEAR,          /* from lr * start_factor to lr * end_factor over `steps` */
    TSR_SCHEDULE_COSINE_RESTARTS, /* the cosine again and again: `steps` steps, then each time
                                     restart_factor times as many */
    TSR_SCHEDULE_ONE_CYCLE, /* up to max_lr and down again in `steps`; momentum the other way */
    TSR_SCHEDULE_PLATEAU,   /* lr * factor whenever a metric stops improving */
    TSR_SCHEDULE_CALLBACK,  /* callback(step, lr, arg) */
} tsr_schedule_kind;
/* The rate of an update, from 0, for the base rate `lr`. Ranks must compute the same. */
typedef double tsr_schedule_fn(int64_t step, double lr, void *arg);
/* Steps are updates, counted from 0. warmup: the first `warmup` steps rise linearly to lr:
 * lr * (step + 1) / warmup; the schedule starts behind them. */
typedef struct tsr_schedule {
    tsr_schedule_kind kind;
    tsr_by_name by_name;
    int64_t warmup;
    int64_t step_size;         /* STEP; needed there */
    double gamma;              /* STEP, MULTI_STEP, EXPONENTIAL; needed there, above 0 */
    int64_t steps;             /* COSINE, LINEAR, COSINE_RESTARTS, ONE_CYCLE; needed there */
    double min_lr;             /* COSINE, COSINE_RESTARTS, PLATEAU */
    const int64_t *milestones; /* MULTI_STEP: rising; copied by the optimizer */
    int nmilestones;
    double start_factor TSR_IS(1.0 / 3), end_factor TSR_IS(1); /* LINEAR; the first above 0 */
    int64_t restart_factor TSR_IS(1);                          /* COSINE_RESTARTS; at least 1 */
    /* ONE_CYCLE */
    double max_lr;                /* 0: the optimizer's lr */
    double pct_start TSR_IS(0.3); /* the part of the steps that rises */
    double div_factor TSR_IS(25), final_div_factor TSR_IS(1e4); /* it starts at max_lr / div_factor
                                            and ends at that / final_div_factor */
    double base_momentum TSR_IS(0.85), max_momentum TSR_IS(0.95); /* Adam's is beta1 */
    bool linear, three_phase, keep_momentum; /* default: by cosines, in two phases, cycled */
    /* PLATEAU: see tsr_optimizer_report */
    bool rises;                    /* the metric is better when larger */
    bool absolute;                 /* threshold is a difference, not a part of the best metric */
    double factor TSR_IS(0.1);     /* in (0, 1) */
    int64_t patience TSR_IS(10);   /* reports without improvement that are let pass */
    int64_t cooldown;              /* reports after a reduction that do not count */
    double threshold TSR_IS(1e-4); /* what a metric must improve by */
    tsr_schedule_fn *callback;     /* CALLBACK; needed there */
    void *arg;
} tsr_schedule;
#define TSR_STEP_LR(...) \
    TSR_OVERRIDDEN_(tsr_schedule, .gamma = 0.1, .kind = TSR_SCHEDULE_STEP, __VA_ARGS__)
#define TSR_MULTI_STEP_LR(...) \
    TSR_OVERRIDDEN_(tsr_schedule, .gamma = 0.1, .kind = TSR_SCHEDULE_MULTI_STEP, __VA_ARGS__)
#define TSR_EXPONENTIAL_LR(...) \
    TSR_OVERRIDDEN_(tsr_schedule, .kind = TSR_SCHEDULE_EXPONENTIAL, __VA_ARGS__)
#define TSR_LINEAR_LR(...)                                                              \
    TSR_OVERRIDDEN_(tsr_schedule, .start_factor = 1.0 / 3, .end_factor = 1, .steps = 5, \
                    .kind = TSR_SCHEDULE_LINEAR, __VA_ARGS__)
#define TSR_COSINE_LR(...) TSR_OVERRIDDEN_(tsr_schedule, .kind = TSR_SCHEDULE_COSINE, __VA_ARGS__)
#define TSR_COSINE_RESTARTS_LR(...)                                                          \
    TSR_OVERRIDDEN_(tsr_schedule, .restart_factor = 1, .kind = TSR_SCHEDULE_COSINE_RESTARTS, \
                    __VA_ARGS__)
#define TSR_ONE_CYCLE_LR(...)                                                                    \
    TSR_OVERRIDDEN_(tsr_schedule, .pct_start = 0.3, .div_factor = 25, .final_div_factor = 1e4,   \
                    .base_momentum = 0.85, .max_momentum = 0.95, .kind = TSR_SCHEDULE_ONE_CYCLE, \
                    __VA_ARGS__)
#define TSR_PLATEAU_LR(...)                                                         \
    TSR_OVERRIDDEN_(tsr_schedule, .factor = 0.1, .patience = 10, .threshold = 1e-4, \
                    .kind = TSR_SCHEDULE_PLATEAU, __VA_ARGS__)

typedef struct tsr_sgd_opts {
    size_t size;
    tsr_by_name by_name;
    double lr TSR_IS(1e-3); /* default 1e-3 */
    double momentum, dampening, weight_decay;
    bool nesterov;
    tsr_schedule schedule;
    tsr_sbp state; /* signature of momentum; AUTO (the default): each parameter's own */
} tsr_sgd_opts;
#define TSR_SGD_OPTS(...) TSR_OPTIONS(tsr_sgd_opts, (.lr = 1e-3, ), __VA_ARGS__)

typedef struct tsr_adam_opts {
    size_t size;
    tsr_by_name by_name;
    double lr TSR_IS(1e-3);                        /* default 1e-3 */
    double beta1 TSR_IS(0.9), beta2 TSR_IS(0.999); /* default 0.9, 0.999 */
    double eps TSR_IS(1e-8);                       /* default 1e-8 */
    double weight_decay TSR_IS(TSR_NOT_GIVEN); /* default (TSR_NOT_GIVEN): 0, but of AdamW 0.01 */
    tsr_schedule schedule;
    tsr_sbp state; /* signature of the moments; AUTO (the default): each parameter's own */
} tsr_adam_opts;
#define TSR_ADAM_OPTS(...)                                                                        \
    TSR_OPTIONS(                                                                                  \
        tsr_adam_opts,                                                                            \
        (.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = TSR_NOT_GIVEN, ), \
        __VA_ARGS__)

typedef struct tsr_rmsprop_opts {
    size_t size;
    tsr_by_name by_name;
    double lr TSR_IS(1e-2);    /* default 1e-2 */
    double alpha TSR_IS(0.99); /* default 0.99 */
    double eps TSR_IS(1e-8);   /* default 1e-8 */
    double momentum, weight_decay;
    bool centered; /* the variance stands for the mean square */
    tsr_schedule schedule;
    tsr_sbp state;
} tsr_rmsprop_opts;
#define TSR_RMSPROP_OPTS(...) \
    TSR_OPTIONS(tsr_rmsprop_opts, (.lr = 1e-2, .alpha = 0.99, .eps = 1e-8, ), __VA_ARGS__)

typedef struct tsr_adagrad_opts {
    size_t size;
    tsr_by_name by_name;
    double lr TSR_IS(1e-2); /* default 1e-2 */
    double lr_decay, weight_decay;
    double initial_accumulator_value; /* of the sums of squares */
    double eps TSR_IS(1e-10);         /* default 1e-10 */
    tsr_schedule schedule;
    tsr_sbp state;
} tsr_adagrad_opts;
#define TSR_ADAGRAD_OPTS(...) \
    TSR_OPTIONS(tsr_adagrad_opts, (.lr = 1e-2, .eps = 1e-10, ), __VA_ARGS__)

/* Lion (Chen et al. 2023): the sign of an average of gradients; weight decay is apart. */
typedef struct tsr_lion_opts {
    size_t size;
    tsr_by_name by_name;
    double lr TSR_IS(1e-4);                       /* default 1e-4 */
    double beta1 TSR_IS(0.9), beta2 TSR_IS(0.99); /* default 0.9, 0.99 */
    double weight_decay;
    tsr_schedule schedule;
    tsr_sbp state;
} tsr_lion_opts;
#define TSR_LION_OPTS(...) \
    TSR_OPTIONS(tsr_lion_opts, (.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99, ), __VA_ARGS__)

/* Makes an optimizer (SGD) over all trainable variables of a module. NULL on error
 * (tsr_last_error). opts may be NULL. */
TSR_API tsr_optimizer *tsr_sgd(tsr_module *m, const tsr_sgd_opts *opts);
/* As tsr_sgd, with Adam: weight decay is added to the gradients. */
TSR_API tsr_optimizer *tsr_adam(tsr_module *m, const tsr_adam_opts *opts);
/* As tsr_sgd, with AdamW: weight decay is apart from the gradients. */
TSR_API tsr_optimizer *tsr_adamw(tsr_module *m, const tsr_adam_opts *opts);
/* As tsr_sgd, with RMSprop. */
TSR_API tsr_optimizer *tsr_rmsprop(tsr_module *m, const tsr_rmsprop_opts *opts);
/* As tsr_sgd, with Adagrad. */
TSR_API tsr_optimizer *tsr_adagrad(tsr_module *m, const tsr_adagrad_opts *opts);
/* As tsr_sgd, with Lion: see tsr_lion_opts. */
TSR_API tsr_optimizer *tsr_lion(tsr_module *m, const tsr_lion_opts *opts);
/* As tsr_sgd, with LAMB (You et al. 2020): AdamW's step, scaled for each parameter by its own norm
 * over that of the step. Norms are those of the whole parameter. */
TSR_API tsr_optimizer *tsr_lamb(tsr_module *m, const tsr_adam_opts *opts);
/* Frees an optimizer with its states. NULL is fine. */
TSR_API void tsr_optimizer_destroy(tsr_optimizer *o);

/* Numbers of a group of parameters; TSR_NOT_GIVEN, the default: the optimizer's own. */
typedef struct tsr_param_group_opts {
    size_t size;
    tsr_by_name by_name;
    double lr TSR_IS(TSR_NOT_GIVEN), weight_decay TSR_IS(TSR_NOT_GIVEN);
    double momentum TSR_IS(TSR_NOT_GIVEN);                           /* SGD, RMSprop */
    double beta1 TSR_IS(TSR_NOT_GIVEN), beta2 TSR_IS(TSR_NOT_GIVEN); /* Adam, AdamW, Lion, LAMB */
    double eps TSR_IS(TSR_NOT_GIVEN);
    const tsr_schedule *schedule; /* NULL: the optimizer's */
} tsr_param_group_opts;
#define TSR_PARAM_GROUP_OPTS(...)                                                               \
    TSR_OPTIONS(tsr_param_group_opts,                                                           \
                (.lr = TSR_NOT_GIVEN, .weight_decay = TSR_NOT_GIVEN, .momentum = TSR_NOT_GIVEN, \
                 .beta1 = TSR_NOT_GIVEN, .beta2 = TSR_NOT_GIVEN, .eps = TSR_NOT_GIVEN, ),       \
                __VA_ARGS__)
/*
 * Makes the parameters whose qualified names fit a pattern (as tsr_module_place's) a group with
 * numbers of its own, as "*.bias" without weight decay; a parameter is in the last group that it
 * fits. Called again with a group's pattern, at any time, it changes the group's numbers, which
 * recompiles nothing; those that are not given stay. Errors: TSR_ERR_STATE where a graph uses the
 * optimizer and the pattern fits only some of the parameters that share their numbers there, so
 * make groups before; TSR_ERR_INVALID if no name fits, or a number is none that the optimizer can
 * have (a momentum where it was made without). Not collective, but all ranks must do the same: they
 * compare at the next compile.
 */
TSR_API tsr_status tsr_optimizer_param_group(tsr_optimizer *o, const char *pattern,
                                             const tsr_param_group_opts *opts);
/*
 * Freezes the parameters whose names fit a pattern, or ends that: their updates change nothing, and
 * their states stay. Graphs that are declared afterwards leave out the gradients that only frozen
 * parameters would need; so what was frozen when a graph was declared can't be trained by it.
 * Errors: TSR_ERR_INVALID if no name fits, TSR_ERR_STATE as of tsr_optimizer_param_group. Not
 * collective, but all ranks must do the same.
 */
TSR_API tsr_status tsr_optimizer_freeze(tsr_optimizer *o, const char *pattern, bool frozen);

/*
 * Declares, in loss's graph, the gradients of the optimizer's parameters and their update: running
 * the plan is one training step. Parameters that loss doesn't depend on are left alone. Sticky
 * errors. loss must be a scalar. A graph may have several optimizers, over other or the same
 * parameters: all gradients are those at the values with which a run begins (see graph.h).
 * In a graph without .training, dropout and batch norm evaluate while the rest is trained. Where
 * loss depends on one of them, a warning that names the first goes to rank 0's log (a local graph's
 * to its rank's), once per graph.
 */
TSR_API void tsr_minimize_at(tsr_optimizer *o, tsr_tensor *loss, const char *file, int line);
#define tsr_minimize(...) tsr_minimize_at(__VA_ARGS__, TSR_HERE)

/*
 * Returns the gradient of a parameter that the last tsr_minimize or tsr_minimize_with of graph g
 * has declared: of the sum of its losses, before it is accumulated and clipped. To be an output, or
 * printed. Sticky error: TSR_ERR_STATE if there is none.
 */
TSR_API tsr_tensor *tsr_read_gradient_at(tsr_graph *g, const tsr_variable *v, const char *file,
                                         int line);
#define tsr_read_gradient(...) tsr_read_gradient_at(__VA_ARGS__, TSR_HERE)

/* A scaler of f16 losses, which leaves out updates: tessera/grad_scaler.h. */
typedef struct tsr_grad_scaler tsr_grad_scaler;

/* How tsr_minimize_with treats gradients. They are added up, divided by the scale, then clipped by
 * value, then by norm. */
typedef struct tsr_minimize_opts {
    size_t size;
    tsr_by_name by_name;
    double loss_scale
        TSR_IS(1);     /* the losses are multiplied by it, and gradients divided; default 1 */
    double clip_value; /* elements are brought into [-clip_value, clip_value]; 0: they are not */
    double clip_norm;  /* gradients are scaled down so that the norm of all together is at most
                          this, as PyTorch's clip_grad_norm_ does; 0: they are not */
    double norm_type TSR_IS(2); /* its power; INFINITY: the largest element; default 2 */
    /* Runs of which each update takes the mean of the gradients: the parameters change in the last
     * of them alone, and steps count these. Ranks keep addends of the mean where the gradient is a
     * sum over ranks, and the last run reduces it once; where states are kept as shards, each run
     * reduces to these. A gradient that is an output is reduced in each run. tsr_plan_explain marks
     * the items that run once per update. Graphs of one optimizer accumulate alike, and for the
     * same parameters; ranks make the same runs. Default 1. */
    int64_t accumulate TSR_IS(1);
    /* Gets the norm of the mean before it is clipped, an f64 scalar: NaN in runs that do not
     * update. NULL: unasked. */
    tsr_tensor **out_norm;
    tsr_grad_scaler *scaler; /* by which the losses are multiplied; NULL: none */
    /* Gets 1 where a gradient so far is not finite, so that this update is left out, else 0; an f32
     * scalar on all ranks. Runs that do not update look at what each rank has of a sum. For an
     * enabled scaler alone. NULL: unasked. */
    tsr_tensor **out_found_inf;
} tsr_minimize_opts;
#define TSR_MINIMIZE_OPTS(...)                                                           \
    TSR_OPTIONS(tsr_minimize_opts, (.loss_scale = 1, .norm_type = 2, .accumulate = 1, ), \
                __VA_ARGS__)
/* As tsr_minimize, of the sum of n losses, with options (NULL: none). The norm is that of the whole
 * gradients, however they are laid out. */
TSR_API void tsr_minimize_with_at(tsr_optimizer *o, int n, tsr_tensor *const *losses,
                                  const tsr_minimize_opts *opts, const char *file, int line);
#define tsr_minimize_with(...) tsr_minimize_with_at(__VA_ARGS__, TSR_HERE)

/*
 * Declares the update of parameters from gradients of the user's making, as tsr_gradients gives
 * them and ops may have changed them: the part of tsr_minimize behind differentiation. grads[i], of
 * the shape, dtype and placement of params[i], is that of params[i]; NULL: params[i] is left alone.
 * Each of the n parameters must be the optimizer's, and be there once. An optimizer updates in a
 * graph once, by this call or by tsr_minimize. Sticky errors, of the gradients' graph.
 */
TSR_API void tsr_apply_gradients_at(tsr_optimizer *o, int n, tsr_variable *const *params,
                                    tsr_tensor *const *grads, const char *file, int line);
#define tsr_apply_gradients(...) tsr_apply_gradients_at(__VA_ARGS__, TSR_HERE)

/* Returns the norm of n tensors together (NULL ones are left out), an f64 scalar: (sum of
 * |x|^power)^(1 / power), or for INFINITY the largest |x|. */
TSR_API tsr_tensor *tsr_global_norm_at(int n, tsr_tensor *const *x, double power, const char *file,
                                       int line);
#define tsr_global_norm(...) tsr_global_norm_at(__VA_ARGS__, TSR_HERE)
/* Puts scaled gradients in the place of grads[i] (NULL ones are left out), so that the norm of all
 * together is at most max_norm: each is multiplied by min(1, max_norm / (norm + 1e-6)). Returns the
 * norm before that. */
TSR_API tsr_tensor *tsr_clip_grad_norm_at(int n, tsr_tensor **grads, double max_norm, double power,
                                          const char *file, int line);
#define tsr_clip_grad_norm(...) tsr_clip_grad_norm_at(__VA_ARGS__, TSR_HERE)
/* Puts gradients with all elements in [-max_value, max_value] in the place of grads[i] (NULL ones
 * are left out). */
TSR_API void tsr_clip_grad_value_at(int n, tsr_tensor **grads, double max_value, const char *file,
                                    int line);
#define tsr_clip_grad_value(...) tsr_clip_grad_value_at(__VA_ARGS__, TSR_HERE)

/* Sets a new base learning rate, of all parameters but those in groups with a rate of their own;
 * recompiles nothing. All ranks must set the same: ranks compare it at the next tsr_compile of a
 * graph that uses the optimizer, and in each run where that was asked for
 * (tsr_compile_opts.compare_values). */
TSR_API void tsr_optimizer_set_lr(tsr_optimizer *o, double lr);
/* Returns the learning rate that the next update will use, of the parameters that are in no group.
 * */
TSR_API double tsr_optimizer_lr(const tsr_optimizer *o);
/* Returns the learning rate of a group, by its pattern; NAN, with tsr_last_error, if there is none.
 * */
TSR_API double tsr_optimizer_group_lr(const tsr_optimizer *o, const char *pattern);
/*
 * Returns a state that an optimizer keeps for a parameter, by PyTorch's names ("momentum_buffer",
 * "exp_avg", "exp_avg_sq", "square_avg", "grad_avg", "sum"), for tsr_variable_get and tsr_read.
 * NULL, with tsr_last_error, which lists what there is. Belongs to the optimizer.
 */
TSR_API tsr_variable *tsr_optimizer_state(const tsr_optimizer *o, const tsr_variable *param,
                                          const char *name);
/* Returns the number of updates made so far. */
TSR_API int64_t tsr_optimizer_steps(const tsr_optimizer *o);
/* Takes a metric, such as a validation loss, for TSR_SCHEDULE_PLATEAU: once an epoch, say. A metric
 * that is not finite is no improvement, and later ones are not compared with it. All ranks must
 * report the same; not collective. Without such a schedule it does nothing. */
TSR_API void tsr_optimizer_report(tsr_optimizer *o, double metric);

#ifdef __cplusplus
}
#endif
#endif
