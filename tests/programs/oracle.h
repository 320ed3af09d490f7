/* SPDX-License-Identifier: Apache-2.0 */
/* What a program means: a walk over its graphs on the tape, run by run. */
#ifndef TESTS_PROGRAMS_ORACLE_H
#define TESTS_PROGRAMS_ORACLE_H

#include "program.h"

/* A variable's or a state's value between runs. */
typedef struct held {
    int64_t n;
    double *v, *e;
} held;

typedef struct oracle {
    const program *p;
    tape *t;
    walk w; /* of the last run */
    held var[MAX_VARS];
    held state[MAX_OPTIMIZERS][MAX_VARS][2];
    held mean[MAX_OPTIMIZERS][MAX_VARS]; /* of gradients, so far */
    int64_t step[MAX_OPTIMIZERS], optimizer_runs[MAX_OPTIMIZERS];
    double lr[MAX_OPTIMIZERS];
    bool overflowed[MAX_OPTIMIZERS]; /* a loss since the last update was infinite */
    bool is_lost[MAX_OPTIMIZERS];    /* whether a scaler left out an update is not known */
    int64_t runs[MAX_GRAPHS];
} oracle;

void oracle_start(oracle *o, const program *p);
void oracle_finish(oracle *o);
/* One run of a graph; o->w then has all its values. */
void oracle_run(oracle *o, const act *a);
void oracle_set(oracle *o, const act *a);
/* Whether an optimizer has a variable among its parameters, and whether it is frozen there. */
bool oracle_owns(const program *p, int optimizer, int var);
bool oracle_freezes(const program *p, int optimizer, int var);
/* Whether a module has parameters of an optimizer. */
bool oracle_owns_in(const program *p, int optimizer, int module);
/* States of an optimizer of that kind. */
int oracle_states(const poptimizer *o);

#endif
