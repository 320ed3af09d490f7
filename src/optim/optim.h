/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of an optimizer.
 *
 *   optim.c     making one: its options, and what it keeps for each parameter
 *   group.c     groups of parameters, and their numbers
 *   schedule.c  the rate over time
 *   update.c    from gradients to updates, as ops of a graph, and what is done before each run
 *   lamb.c      those of LAMB
 *   apply.c     the parts of which they are declared (update.h)
 *   minimize.c  from a loss to gradients
 *   scaler.c    a gradient scaler: its numbers, and what it makes of a run (scaler.h)
 *   scale.c     the scaler in graphs
 *   state.c     what a checkpoint keeps
 *   own.c       optimizers of a program's own
 */
#ifndef TESSERA_OPTIM_OPTIM_H
#define TESSERA_OPTIM_OPTIM_H

#include <tessera/optim.h>
#include "src/graph/graph.h"

/* X(ENUM, text): the optimizers. */
#define TSRI_OPTIM_LIST(X) \
    X(SGD, sgd)            \
    X(ADAM, adam)          \
    X(ADAMW, adamw)        \
    X(RMSPROP, rmsprop)    \
    X(ADAGRAD, adagrad)    \
    X(LION, lion)          \
    X(LAMB, lamb)          \
    X(OWN, own)
typedef enum tsri_optim_kind {
#define TSRI_OPTIM_ENUM(KIND, name) TSRI_OPTIM_##KIND,
    TSRI_OPTIM_LIST(TSRI_OPTIM_ENUM)
#undef TSRI_OPTIM_ENUM
} tsri_optim_kind;

/* X(ENUM, name, below_one): the numbers that optimizers have; all are finite and, but for
 * dampening, not negative; some are below 1. */
#define TSRI_NUMBER_LIST(X)              \
    X(LR, lr, false)                     \
    X(WEIGHT_DECAY, weight_decay, false) \
    X(MOMENTUM, momentum, false)         \
    X(DAMPENING, dampening, false)       \
    X(BETA1, beta1, true)                \
    X(BETA2, beta2, true)                \
    X(ALPHA, alpha, false)               \
    X(EPS, eps, false)                   \
    X(LR_DECAY, lr_decay, false)         \
    X(START, initial_accumulator_value, false)
typedef enum tsri_number {
#define TSRI_NUMBER_ENUM(NUMBER, name, below_one) TSRI_##NUMBER,
    TSRI_NUMBER_LIST(TSRI_NUMBER_ENUM)
#undef TSRI_NUMBER_ENUM
        TSRI_NUMBERS
} tsri_number;

/* A parameter and what the optimizer keeps for it. */
typedef struct tsri_optim_slot {
    tsr_variable *param;
    int class;                               /* by which it gets its numbers */
    bool named;                              /* in the call under way */
    tsr_variable *state[TSRI_UPDATE_STATES]; /* by update_list.h; NULL: none */
    tsr_variable *gradient;                  /* the mean so far; NULL: it does not accumulate */
    bool is_lent;         /* the gradient is a tsr_ddp's, and is the sum so far */
    tsr_sbp state_sbp;    /* of this parameter's states; AUTO: the optimizer's word counts */
    tsr_sbp gradient_sbp; /* that the gradient is brought into before the update; AUTO: none */
} tsri_optim_slot;

/* The memory of TSR_SCHEDULE_PLATEAU. */
typedef struct tsri_plateau {
    bool has_best;
    double best, lr; /* lr: after the reductions so far; 0: none yet */
    int64_t bad, cooldown;
} tsri_plateau;

/* Parameters with numbers of their own. Group 0 has those that are in no other. */
typedef struct tsri_optim_group {
    char *pattern;               /* NULL: of group 0 */
    double number[TSRI_NUMBERS]; /* NAN: the optimizer's, which is group 0's */
    bool has_schedule;
    tsr_schedule schedule;
    int64_t *milestones; /* the schedule's, owned */
    tsri_plateau plateau;
} tsri_optim_group;

/* Parameters whose updates read the same numbers: what groups and freezing have not told apart. */
typedef struct tsri_optim_class {
    int group;
    bool frozen;
    int64_t step; /* updates made while it was not frozen */
} tsri_optim_class;

/* The numbers that updates of one class read on one placement: f64[TSRI_HYPER_COUNT], B. */
typedef enum tsri_hyper_part {
    TSRI_HYPER_UPDATE = 0, /* of the op that keeps the states; LAMB's makes Adam's step */
    TSRI_HYPER_MEAN,       /* of adding a gradient to the mean so far */
    TSRI_HYPER_LAMB,       /* LAMB: of what it does with that step */
    TSRI_HYPER_NORM,       /* no numbers: the norm that a run with an update computes; else -1 */
} tsri_hyper_part;
typedef struct tsri_hyper {
    const tsr_placement *placement;
    int class;
    tsri_hyper_part part;
    tsr_variable *variable;
    tsr_tensor *scaled; /* in the graph under way: with its gradients' scale; NULL: not yet */
} tsri_hyper;

struct tsr_optimizer {
    tsri_owned owned;
    tsr_world *world;
    tsri_optim_kind kind;
    const char *name;                     /* "sgd", "adam", "adamw" */
    const struct tsri_own_optimizer *own; /* of kind OWN: its definition */
    double own_numbers[6];                /* and the numbers of the definition */
    uint32_t numbers;                     /* bit i: it has tsri_number i */
    bool nesterov, decoupled;
    int has;                /* the states that it keeps: attrs.update.has */
    tsr_sbp state_sbp;      /* AUTO, as a whole or as an entry: the parameter's */
    int64_t accumulate;     /* runs of an update; 0 until a graph uses the optimizer */
    tsri_condition updates; /* holds in runs that update */
    int64_t was_accumulate; /* that of the run whose numbers were loaded; 0: none were */
    int64_t step;           /* updates made */
    int64_t runs;           /* and runs, which masks follow */
    /* Says whether the run that begins, or the last one until the host has read it, updates; NULL:
     * its update was not scaled. */
    struct tsri_scaler_flag *flag;
    int64_t gathered; /* runs since the last update whose gradients a tsr_ddp has */
    int nslots;
    tsri_optim_slot *slots;
    int ngroups;
    tsri_optim_group *groups;
    int nclasses;
    tsri_optim_class *classes;
    int nhypers; /* 0 until a graph uses the optimizer */
    tsri_hyper *hypers;
};

/* Counts an update that a run has made. */
static inline void tsri_optim_count_update(tsr_optimizer *o)
{
    for (int i = 0; i < o->nclasses; i++)
        o->classes[i].step += !o->classes[i].frozen;
    o->step++;
}
/* Sees to it that the updates of all runs so far are counted, those that a scaler has left out
 * excepted. Before anything reads the steps. */
void tsri_optim_settle(const tsr_optimizer *o);

/* The word that public calls have for a kind: "adamw". */
const char *tsri_optim_name(tsri_optim_kind kind);
/* The signature that a parameter's states are to have, as far as it is said yet. */
tsr_sbp tsri_optim_state_sbp(const tsr_optimizer *o, const tsri_optim_slot *slot);
/* The word for what belongs to a parameter. */
typedef struct tsri_optim_said {
    tsr_sbp state, gradient; /* AUTO: nothing is said */
    const char *by;          /* of `state`, as of tsr_variable */
    tsri_loc at;
} tsri_optim_said;
/* Says the signatures of the states and of the gradient of each parameter, which `place` sets,
 * before a graph uses the optimizer. Returns the first status that is not OK. */
typedef tsr_status tsri_optim_place_fn(void *arg, const tsr_variable *param, tsri_optim_said *said);
tsr_status tsri_optim_place(tsr_optimizer *o, tsri_optim_place_fn *place, void *arg);
/* Notes what says the signature of all states, for readers: see tsr_variable. */
void tsri_optim_say_states(tsr_optimizer *o, const char *by, tsri_loc at);

/* "lr", "weight_decay", ... */
const char *tsri_number_name(tsri_number which);
/* Checks a number. `who` is the public call, in messages. */
tsr_status tsri_number_check(const char *who, tsri_number which, double value);
/* A number of a group, which may be the optimizer's. */
double tsri_optim_number(const tsr_optimizer *o, const tsri_optim_group *group, tsri_number which);
/* Copies a schedule, which is legal, to a group. */
tsr_status tsri_group_set_schedule(tsr_optimizer *o, tsri_optim_group *group,
                                   const tsr_schedule *schedule);
/* The schedule of a group, which may be the optimizer's. */
const tsr_schedule *tsri_group_schedule(const tsr_optimizer *o, const tsri_optim_group *group);
/* The rate of the next update of a group. */
double tsri_group_lr(const tsr_optimizer *o, const tsri_optim_group *group);

/* Checks that an optimizer can update in the graph of *c. */
struct tsri_ctx;
bool tsri_want_optimizer(const struct tsri_ctx *c, const tsr_optimizer *o);
/* Puts the mean of the gradients of some runs, so far, in the place of grads[i] (NULL: none) of the
 * parameter params[i]. Nothing changes where each run updates. False: the graph has failed. */
bool tsri_accumulate(const struct tsri_ctx *c, tsr_optimizer *o, int64_t runs, int n,
                     tsr_variable *const *params, tsr_tensor **grads);
/*
 * Declares the updates of n parameters from their gradients, tensors of the graph of the
 * parameters' shapes, dtypes and placements (NULL: no update of that one), and what is done before
 * each run: the rate, the step. Parameters that are none of the optimizer's, and gradients that
 * don't fit, fail the graph, naming them. scale: an f64 scalar by which gradients are multiplied
 * first; NULL: none. The optimizer is one that tsri_want_optimizer has passed.
 */
void tsri_apply_gradients(const struct tsri_ctx *c, tsr_optimizer *o, int n,
                          tsr_variable *const *params, tsr_tensor *const *grads, tsr_tensor *scale);

/* Checks the options of a minimization. */
bool tsri_want_minimize(const struct tsri_ctx *c, const tsr_minimize_opts *m);
/* Returns the sum of n losses, scaled; NULL: the graph has failed. */
tsr_tensor *tsri_add_losses(const struct tsri_ctx *c, int n, tsr_tensor *const *losses,
                            double scale);
/* Warns where a loss that is trained depends on ops that evaluate. */
void tsri_warn_of_evaluation(tsr_graph *g, const tsr_tensor *loss, tsri_loc loc);
/* As tsri_apply_gradients, of the gradients of m->loss_scale times the loss, which are clipped as
 * *m says; sets *m->out_norm. m->accumulate is not looked at. n is above 0. */
void tsri_apply_clipped(const struct tsri_ctx *c, tsr_optimizer *o, const tsr_minimize_opts *m,
                        int n, tsr_variable *const *params, tsr_tensor **grads);
/* The optimizer's slot of a parameter; NULL: it has none. */
tsri_optim_slot *tsri_optim_find_slot(const tsr_optimizer *o, const tsr_variable *p);

/* Writes a hook's facts about an optimizer; see tsri_hook. */
void tsri_optimizer_describe(const void *optimizer, FILE *f);

/* The rate of update `step` (from 0) for a base rate. */
double tsri_schedule_lr(const tsr_schedule *s, double base, int64_t step);
/* The momentum of update `step` where the schedule has one, else `base`. */
double tsri_schedule_momentum(const tsr_schedule *s, double base, int64_t step);
tsr_status tsri_schedule_check(const tsr_schedule *s);
/* Takes a metric in. lr: the group's base rate. */
void tsri_plateau_report(tsri_plateau *p, const tsr_schedule *s, double lr, double metric);

#endif
