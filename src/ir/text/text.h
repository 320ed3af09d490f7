/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a plan's program (values, items and this rank's order of execution) as text and parses it
 * again. Recorded plans use the text, and so do tests of single passes.
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
 * The line of a value has its dtype, global shape, layout, placement and storage. The line of an
 * item has its op or conversion, its name, its operands and its results. Fields that only passes
 * and reports need follow the bar; fields that are 0 are left out. In `run`, iN executes an item,
 * iN< starts a call, iN> finishes it and iN. releases it; - marks the
 * sending side of a call between stages, + the receiving side. A program of several stages has its
 * timetable before `run`:
 *
 *   stages 2 2 2                  (copies of values that outlive a task, per stage)
 *   segment 0 0 1.5e-05           (stage, depth and seconds)
 *   task 0 0 0 1.5e-05 ...        (segment, micro-batch, start and end)
 *
 * Numbers are exact. Variables, own ops,
 * the bytes of constants, and groups are pointers and have no text: see tsri_text_read.
 */
#ifndef TESSERA_IR_TEXT_H
#define TESSERA_IR_TEXT_H

#include <stdio.h>

#include "src/ir/ir.h"

/* Writes a program that has not been lowered. `places` adds files and line numbers of
 * the user's program. Returns TSR_ERR_NO_MEMORY if the text is incomplete. */
tsr_status tsri_text_write(const tsri_ir *ir, bool places, FILE *f);
/* Replaces values, items and entries by those of the text, and computes this rank's parts of the
 * values; arrays are in the program's scratch. Pointers without text are copied from `of`, the same
 * program in another `tsri_ir` (or `ir` itself), by the numbers of values and items. If `of`
 * is NULL, variables are created that have a name and a type only, and own ops, constants and
 * groups are errors. Errors (TSR_ERR_INVALID) name the line. */
tsr_status tsri_text_read(tsri_ir *ir, const char *text, const tsri_ir *of);
/* With TESSERA_CHECK, replaces a program by its own text, parsed, so that the program that is
 * lowered has been written and read. TSR_ERR_INTERNAL if the second text differs from the first. */
tsr_status tsri_text_check(tsri_ir *ir);
/* If the variable TESSERA_PASS_TEXTS names a folder, writes the program there, to the file
 * rankR-N-PASS.txt, which replaces that of an earlier plan. */
tsr_status tsri_text_of_pass(const tsri_ir *ir, int number, const char *pass);

#endif
