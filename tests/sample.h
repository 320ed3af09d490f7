/* SPDX-License-Identifier: Apache-2.0 */
/* How much of a suite is run where a checker makes it slow: set by scripts/test, never for the
 * plain suites, which run everything. */
#ifndef TESSERA_TESTS_SAMPLE_H
#define TESSERA_TESTS_SAMPLE_H

#include <stdbool.h>
#include <stdlib.h>

/* Returns n where TESSERA_SAMPLE=n asks for every n-th case; otherwise 1. */
static inline int test_sample(void)
{
    const char *n = getenv("TESSERA_SAMPLE");
    return n && atoi(n) > 0 ? atoi(n) : 1;
}

/* Returns whether TESSERA_SMALL asks to leave out inputs of many megabytes. */
static inline bool test_small_inputs(void)
{
    return getenv("TESSERA_SMALL") != NULL;
}

#endif
