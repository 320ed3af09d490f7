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

typedef enum tsr_schedule_kind {
    TSR_SCHEDULE_CONSTANT = 0,
    TSR_SCHEDULE_STEP,   /* lr * gamma^(step / step_size) */
    TSR_SCHEDULE_COSINE, /* from lr to min_lr over `steps` steps */
} tsr_schedule_kind;
/* Steps are updates, counted from 0. warmup: the first `warmup` steps rise linearly to lr:
 * lr * (step + 1) / warmup; the schedule starts behind them. */
typedef struct tsr_schedule {
    tsr_schedule_kind kind;
    int64_t warmup;
    int64_t step_size; /* STEP; needed there */
    double gamma;      /* STEP; needed there, above 0 */
    int64_t steps;     /* COSINE; needed there */
    double min_lr;
} tsr_schedule;

typedef struct tsr_sgd_opts {
    size_t size;
    double lr; /* default 1e-3 */
    double momentum, dampening, weight_decay;
    bool nesterov;
    tsr_schedule schedule;
    tsr_sbp state; /* signature of momentum; AUTO (the default): each parameter's own */
} tsr_sgd_opts;
#define TSR_SGD_OPTS(...) \
    (&(const tsr_sgd_opts){.size = sizeof(tsr_sgd_opts), .lr = 1e-3, __VA_ARGS__})

typedef struct tsr_adam_opts {
    size_t size;
    double lr;           /* default 1e-3 */
    double beta1, beta2; /* default 0.9, 0.999 */
    double eps;          /* default 1e-8 */
    double weight_decay; /* default (TSR_NOT_GIVEN): Adam 0, AdamW 0.01 */
    tsr_schedule schedule;
    tsr_sbp state; /* signature of the moments; AUTO (the default): each parameter's own */
} tsr_adam_opts;
#define TSR_ADAM_OPTS(...)                                 \
    (&(const tsr_adam_opts){.size = sizeof(tsr_adam_opts), \
                            .lr = 1e-3,                    \
                            .beta1 = 0.9,                  \
                            .beta2 = 0.999,                \
                            .eps = 1e-8,                   \
                            .weight_decay = TSR_NOT_GIVEN, \
                            __VA_ARGS__})

/* Over all trainable variables of a module. NULL on error (tsr_last_error). opts may be NULL. */
TSR_API tsr_optimizer *tsr_sgd(tsr_module *m, const tsr_sgd_opts *opts);
TSR_API tsr_optimizer *tsr_adam(tsr_module *m, const tsr_adam_opts *opts);
TSR_API tsr_optimizer *tsr_adamw(tsr_module *m, const tsr_adam_opts *opts);
TSR_API void tsr_optimizer_destroy(tsr_optimizer *o);

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
#define tsr_minimize(o, loss) tsr_minimize_at((o), (loss), TSR_HERE)

/* A new base learning rate; recompiles nothing. All ranks must set the same: ranks compare it at
 * the next tsr_compile of a graph that uses the optimizer, and in each run where that was asked for
 * (tsr_compile_opts.compare_values). */
TSR_API void tsr_optimizer_set_lr(tsr_optimizer *o, double lr);
/* The learning rate that the next update will use. */
TSR_API double tsr_optimizer_lr(const tsr_optimizer *o);
/* Updates made so far. */
TSR_API int64_t tsr_optimizer_step(const tsr_optimizer *o);

#ifdef __cplusplus
}
#endif
#endif
