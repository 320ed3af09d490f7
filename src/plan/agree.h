/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of programs that ranks compare, and how messages call it. */
#ifndef TESSERA_PLAN_AGREE_H
#define TESSERA_PLAN_AGREE_H

#include "src/plan/plan.h"

/* The parts of a program, in the order in which differences are looked for. */
typedef enum tsri_part_kind {
    TSRI_PART_SETTINGS = 0, /* one: of the graph and of tsr_compile_with */
    TSRI_PART_HOOKS,        /* optimizers */
    TSRI_PART_OPS,
    TSRI_PART_PORTS, /* inputs and outputs */
    TSRI_PART_KINDS,
} tsri_part_kind;

typedef struct tsri_program_view {
    tsr_graph *g;
    const tsr_compile_opts *opts;
} tsri_program_view;

int tsri_part_count(const tsri_program_view *p, tsri_part_kind kind);
/* Hashes all that decides what part i does; the texts of tsri_part_text differ where the hashes do.
 */
uint64_t tsri_part_hash(const tsri_program_view *p, tsri_part_kind kind, int i);

enum { TSRI_PART_TEXT = 4096 };
/* A first line that says what and where the part is, then a line "name: value" for each thing that
 * decides. Parts that there are not have one line. */
void tsri_part_text(const tsri_program_view *p, tsri_part_kind kind, int i,
                    char buf[TSRI_PART_TEXT]);

#endif
