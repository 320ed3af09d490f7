/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_PROGRAMS_PRINT_H
#define TESTS_PROGRAMS_PRINT_H

#include <stdio.h>

#include "program.h"

/* A C program that does the same, with what it should print. */
void program_print(const program *p, FILE *out);

#endif
