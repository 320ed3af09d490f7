/* SPDX-License-Identifier: Apache-2.0 */
/* The recording communicator: passes all on to another one, and remembers what was started, so that
 * what a plan says can be compared with what was asked for. */
#ifndef TESTS_DIST_RECORDER_H
#define TESTS_DIST_RECORDER_H

#include "src/comm/comm.h"

/* A call that was started. */
typedef struct recorded_call {
    tsri_coll_kind kind;
    tsr_reduce_op op;
    int nranks, lane;
    uint64_t bytes; /* by tsri_coll_bytes, all segments */
    char what[64];
} recorded_call;

/* Destroying the recorder gives `inner` back, alive. */
tsr_status recorder_create(tsri_comm *inner, tsri_comm **out_comm);
const recorded_call *recorder_calls(const tsri_comm *recorder, int *out_count);
void recorder_clear(tsri_comm *recorder);

#endif
