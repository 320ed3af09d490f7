/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers of a program's own: a function that declares the update of one parameter from its
 * gradient, with any ops, tsr_op_apply among them. Groups, freezing, accumulation, clipping,
 * schedules, checkpoints, YAML files and tsr_ddp take them as they take tsr_sgd.
 *
 *   static void signum(tsr_update *u)
 *   {
 *       u->new_state[0] = tsr_add(tsr_mul(u->state[0], u->number[0]), u->grad);
 *       u->new_param = tsr_sub(u->param, tsr_mul(tsr_sign(u->new_state[0]), u->lr));
 *   }
 *   ...
 *   tsr_optimizer_define(world, TSR_OPTIMIZER_DEF(.name = "signum", .update = signum,
 *                                                 .states = {"momentum"},
 *                                                 .numbers = {{"beta", 0.9, 0, 1}}));
 *   tsr_optimizer *o = tsr_optimizer_create(net, "signum", TSR_OWN_OPTIMIZER_OPTS(.lr = 0.01));
 */
#ifndef TESSERA_OWN_OPTIMIZER_H
#define TESSERA_OWN_OPTIMIZER_H

#include <tessera/optim.h>
#include <tessera/own_op.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TSR_UPDATE_STATES = 3, TSR_UPDATE_NUMBERS = 6 };

/* The update of one parameter, being declared. All tensors are on the parameter's placement and of
 * its dtype; lr, step and number[] are scalars whose values may differ from run to run. */
typedef struct tsr_update {
    size_t size; /* of this struct */
    tsr_tensor *param, *grad;
    tsr_tensor *state[TSR_UPDATE_STATES];     /* those that the definition names; 0 at first */
    tsr_tensor *lr;                           /* the rate of this update */
    tsr_tensor *step;                         /* 1 in the first update, then 2, ... */
    tsr_tensor *number[TSR_UPDATE_NUMBERS];   /* in the order of the definition */
    tsr_tensor *new_param;                    /* to be set, in the parameter's shape */
    tsr_tensor *new_state[TSR_UPDATE_STATES]; /* to be set, where there is a state */
} tsr_update;

/* Declares an update. It is called once for each parameter and graph; errors stick to the graph. A
 * run in which nothing is updated (the parameter is frozen, or gradients accumulate) keeps the old
 * values, whatever the function declares. */
typedef void tsr_update_fn(tsr_update *u);

typedef struct tsr_optimizer_def {
    size_t size;
    tsr_by_name by_name;
    const char *name; /* letters, digits and _ */
    tsr_update_fn *update;
    const char *states[TSR_UPDATE_STATES];     /* names; NULL: the end */
    tsr_op_option numbers[TSR_UPDATE_NUMBERS]; /* a name of NULL: the end */
} tsr_optimizer_def;
#define TSR_OPTIMIZER_DEF(...) TSR_OPTIONS(tsr_optimizer_def, (), __VA_ARGS__)

/* Defines an optimizer. Texts are copied; it goes with the world. Not collective; every rank
 * defines the same. Errors: TSR_ERR_INVALID naming the optimizer and what is wrong with its
 * definition. */
TSR_API tsr_status tsr_optimizer_define(tsr_world *world, const tsr_optimizer_def *def);

typedef struct tsr_own_optimizer_opts {
    size_t size;
    tsr_by_name by_name;
    double lr TSR_IS(1e-3); /* default 1e-3 */
    const double *numbers;  /* as many as are defined, in their order; NULL: the defaults */
    tsr_schedule schedule;
    tsr_sbp state;
} tsr_own_optimizer_opts;
#define TSR_OWN_OPTIMIZER_OPTS(...) TSR_OPTIONS(tsr_own_optimizer_opts, (.lr = 1e-3, ), __VA_ARGS__)

/* Makes an optimizer that was defined, over all trainable variables of a module. NULL on error
 * (tsr_last_error). opts may be NULL. */
TSR_API tsr_optimizer *tsr_optimizer_create(tsr_module *m, const char *name,
                                            const tsr_own_optimizer_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
