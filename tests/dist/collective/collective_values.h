/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of collectives put into buffers, and what must come out: brute force, element by
 * element, in the arithmetic that tessera/collective.h promises. */
#ifndef TESSERA_TESTS_COLLECTIVE_VALUES_H
#define TESSERA_TESTS_COLLECTIVE_VALUES_H

#include <tessera/tessera.h>

/* Before the others, on one thread. */
void values_init(void);
/* A mix of everything that tells one buffer from another. */
uint64_t values_hash(uint64_t a, uint64_t b, uint64_t c);
/* Element i of rank `rank`'s buffer of test case `seed`, written to p[at]. */
void values_put(tsr_dtype t, void *p, int64_t at, int rank, int64_t i, uint64_t seed);
/* dst[0, count): those of `rank`, from element `first` on. */
void values_fill(tsr_dtype t, void *dst, int64_t count, int rank, int64_t first, uint64_t seed);
/* dst[0, count): the reduction of elements `first` on over ranks[0, n), in this order. */
void values_reduce(tsr_dtype t, tsr_reduce_op op, int n, const int *ranks, void *dst, int64_t count,
                   int64_t first, uint64_t seed);

#endif
