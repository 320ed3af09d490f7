/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of the oracle's tape, of one number and of two, and their derivatives. */
#ifndef TESTS_PROGRAMS_TAPE_FN_H
#define TESTS_PROGRAMS_TAPE_FN_H

#include "tape.h"

void tape_apply1(tape_fn fn, double p, double x, double *f, double *d);
void tape_apply2(tape_fn fn, double x, double y, double *f, double *da, double *db);
/* Whether fn gives a bool. */
bool tape_compares(tape_fn fn);

#endif
