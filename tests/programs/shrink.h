/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_PROGRAMS_SHRINK_H
#define TESTS_PROGRAMS_SHRINK_H

#include "execute.h"

/* Runs and judges a program in a process of its own: a crash or a hang is a failure too. */
void try_program(const program *p, verdict *out);
/* A smaller program that fails as well; the caller's. */
program *program_shrink(const program *p);

#endif
