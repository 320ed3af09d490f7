/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan's program as text, which reads back: values, items, and the order in which this rank does
 * them. People read it in records and differences; passes are tested from text to text.
 *
 *   plan 1 ranks 2 rank 0
 *   p0 cpu:[0,1]
 *   v0 f32 (8,4) S(0) p0 port 0 "x" | tensor 0
 *   v1 f32 (16,4) B p0 variable 0 source "fc1.weight" | tensor 1
 *   v2 f32 (8,16) S(0) p0 "fc1" | tensor 2 first 0 last 3
 *   i0 kernel linear "fc1": v0 v1 -> v2 | on p0 op 2 flops 1024 in f32 cost 1.2e-06
 *   i1 collective all_reduce dims 1 back "fc1.weight": v3 -> v4 | on p0 at p0 from P to B bytes 128
 *   run i0 i1< i2 i1> i1.
 *
 * A value: dtype, global shape, layout, placement, where its bytes are. An item: what it does, its
 * name, operands and results; behind the bar stands what passes and figures need besides, none of
 * it where it is 0. `run`: iN does it, iN< starts a call, iN> finishes it, iN. releases it.
 * Numbers are exact. A variable, an own op, a constant's bytes and a group can't be written: see
 * tsri_text_read.
 */
#ifndef TESSERA_PLAN_TEXT_H
#define TESSERA_PLAN_TEXT_H

#include <stdio.h>

#include "src/plan/plan.h"

/* Writes the program of a plan after any pass before it is lowered; `places`: with the files and
 * lines of the user's program. TSR_ERR_NO_MEMORY: a part is missing. */
tsr_status tsri_text_write(const tsr_plan *plan, bool places, FILE *f);
/* Makes values, items and entries of a plan from text, in place of those that it has: with this
 * rank's parts of the values, in the plan's scratch. Variables, own ops, constants and groups are
 * taken from `of`, a plan of the same program, by number of value or item (it may be the plan
 * itself); with NULL variables are made that have a name and a type alone, and a program with own
 * ops, constants or groups is an error. Errors name the line. */
tsr_status tsri_text_read(tsr_plan *plan, const char *text, const tsr_plan *of);
/* With TESSERA_CHECK: writes the program, reads it back in its place, and writes it again: the
 * plan that is lowered is the one that was read. Differences are TSR_ERR_INTERNAL. */
tsr_status tsri_text_check(tsr_plan *plan);
/* Where TESSERA_PASS_TEXTS names a folder: writes the program as the pass leaves it to
 * rankR-N-PASS.txt there, over what an earlier plan has left. */
tsr_status tsri_text_of_pass(const tsr_plan *plan, int number, const char *pass);

#endif
