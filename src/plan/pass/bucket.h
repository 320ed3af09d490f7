/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that conversions of a bucket become: a part of scheduling. */
#ifndef TESSERA_PLAN_BUCKET_H
#define TESSERA_PLAN_BUCKET_H

#include "src/plan/pass/pass.h"

typedef struct tsri_bucket_call {
    int item;          /* that does all of its members, which are dead */
    int started_after; /* the item behind which it can start; -1: from the beginning */
} tsri_bucket_call;

/* The item that makes a value, by maker[] of items per value (-1: none). Views make nothing: what
 * they show does. */
int tsri_maker_position(const tsri_ir *ir, const int *maker, int value);

/* Joins what waits; sets bucket_of[item] of the members to the number of their call. Calls are in
 * the order in which they start. */
tsr_status tsri_plan_join_buckets(tsri_ir *ir, const int *maker, int *bucket_of,
                                  tsri_bucket_call **out_calls, int *out_n);

#endif
