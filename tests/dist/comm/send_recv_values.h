/* SPDX-License-Identifier: Apache-2.0 */
/* Values of SEND_RECV's tests, and an oracle that knows no communication: elements as whole
 * numbers, pulls done one element at a time. */
#ifndef TESSERA_TESTS_SEND_RECV_VALUES_H
#define TESSERA_TESTS_SEND_RECV_VALUES_H

#include "src/comm/comm.h"

enum {
    WHOLE = 700,        /* elements of every src and dst */
    NOTHING = -999999,  /* the identity of a sum: -0 of floats */
    LOWEST = -1000000,  /* stands for a max' identity */
    HIGHEST = 1000000,  /* for a min's */
    UNTOUCHED = 999999, /* for what was in dst before the call */
};

/* Element e of member m's src of a segment: 0 to 10. For bools, true if it is a multiple of 3. */
int sr_value(int m, int seg, int64_t e);
/* Writes v as element i. UNTOUCHED: the bytes are 0x5a. */
void sr_put(tsr_dtype t, void *base, int64_t i, int v);
/* What dst (of WHOLE elements) must hold, as whole numbers for sr_put. */
void sr_expect(const tsri_segment *s, tsr_reduce_op op, int seg, int *out);

/* splitmix64 */
uint64_t sr_random(uint64_t *state);
/* From 0 to n - 1. */
int sr_below(uint64_t *state, int n);

/* A pull of random sources (which must give), axes, lengths and steps, within WHOLE elements on
 * both sides. src: room for nranks. */
tsri_pull sr_random_pull(uint64_t *state, int nranks, const bool *gives, int *src);

#endif
