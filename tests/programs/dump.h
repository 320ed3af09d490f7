/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_PROGRAMS_DUMP_H
#define TESTS_PROGRAMS_DUMP_H

#include "execute.h"

/* Writes DIR/<seed>.json: the program, what was fed, and what the library gave for it. */
void program_dump(const program *p, const run_log *log, const char *dir);

#endif
