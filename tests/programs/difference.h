/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_PROGRAMS_DIFFERENCE_H
#define TESTS_PROGRAMS_DIFFERENCE_H

#include "oracle.h"

/*
 * Holds the tape's gradients against finite differences of its values: along one random direction
 * of each operand of each `gradients` call of a graph, and of each parameter for each loss. Counts
 * what was compared and what had no slope to see (kinks, rounding), and writes the first that
 * differs.
 */
typedef struct difference {
    int64_t compared, skipped, failed;
    char text[200];
} difference;
void check_differences(const program *p, difference *out);

#endif
