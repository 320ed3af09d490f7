/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers of the tests that draw nets: a program's one state, set from a seed. */
#ifndef TESSERA_TESTS_UNIT_GRAPH_DRAWS_H
#define TESSERA_TESTS_UNIT_GRAPH_DRAWS_H

#include <stdint.h>

static uint64_t state_of_draws;

/* Returns a number from 0 to n - 1: SplitMix64 (Steele, Lea and Flood 2014). */
static inline int draw(int n)
{
    uint64_t z = state_of_draws += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (int)((z ^ (z >> 31)) % (uint64_t)n);
}

#endif
