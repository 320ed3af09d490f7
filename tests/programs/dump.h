/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_PROGRAMS_DUMP_H
#define TESTS_PROGRAMS_DUMP_H

#include "program.h"

/* Writes DIR/<seed>.json: the program, and what the oracle says of its first run. */
void program_dump(const program *p, const char *dir);

#endif
