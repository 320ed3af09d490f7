/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The optimizers' updates, one row each, and the numbers that they read. From this table come the
 * enum and the names (op_list.h), the definitions (src/graph/defs/defs.c) and the kernels' slots;
 * kernels/update_t.h has the arithmetic of one element, which every kernel shares.
 */
#ifndef TESSERA_CORE_UPDATE_LIST_H
#define TESSERA_CORE_UPDATE_LIST_H

/* X(ENUM, name, flops, n, states...): the flops of one element, and the names of its n states in
 * the order of the operands. An optimizer may keep only some of SGD's and RMSprop's:
 * attrs.update.has.
 */
// clang-format off
#define TSRI_UPDATE_LIST(X) \
    X(SGD, sgd, 4, 1, "momentum_buffer") \
    X(ADAM, adam, 20, 2, "exp_avg", "exp_avg_sq") \
    X(RMSPROP, rmsprop, 20, 3, "square_avg", "momentum_buffer", "grad_avg") \
    X(ADAGRAD, adagrad, 16, 1, "sum") \
    X(LION, lion, 10, 1, "exp_avg")
// clang-format on
enum { TSRI_UPDATE_STATES = 3 }; /* the most that one keeps */

/*
 * `hyper`, the last operand: what an update reads at run time, f64. src/optim prepares it on the
 * host before each run, so that new numbers recompile nothing. A number that an update does not use
 * is 0.
 */
enum {
    TSRI_HYPER_LR = 0, /* what p moves by: the rate, with corrections of bias */
    TSRI_HYPER_SKIP,   /* not 0: nothing is changed */
    TSRI_HYPER_SCALE,  /* g is multiplied by it, before all else */
    TSRI_HYPER_DECAY,  /* then it, times p, is added to g */
    TSRI_HYPER_SHRINK, /* p is multiplied by it */
    TSRI_HYPER_KEEP1,  /* of the average of g, or the momentum: what is kept */
    TSRI_HYPER_TAKE1,  /* and what is taken in */
    TSRI_HYPER_KEEP2,  /* of the other average, that of g^2 or Lion's */
    TSRI_HYPER_TAKE2,
    TSRI_HYPER_LOOK, /* Nesterov's momentum; 0: plain */
    TSRI_HYPER_EPS,  /* added to the root */
    TSRI_HYPER_ROOT, /* what the root is multiplied by */
    TSRI_HYPER_COUNT,
};

#endif
