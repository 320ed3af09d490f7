/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks agree on a plan: the parts of programs that they compare, and how messages call them.
 */
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

/* A rank's need for a plan, in bytes. */
typedef struct tsri_need {
    size_t bytes, scratch; /* all; of it for kernels while they run */
    size_t *scratch_of;    /* [ranks]: becomes every rank's scratch; NULL: is not wanted */
    int rank;
    bool compares;  /* it asks for runs that compare values; of all: whether any does */
    uint64_t order; /* tsri_plan_order_hash of its plan */
} tsri_need;
/* Joins the statuses of all ranks and compares their programs. `status` is this rank's own, with
 * its text as the thread's last error. *need (may be NULL) is this rank's, and becomes that of the
 * neediest rank; plans with other orders of communication are an error of ours. With opts NULL,
 * statuses alone are exchanged. Collective over the world. */
tsr_status tsri_plan_agree(tsr_graph *g, const tsr_compile_opts *opts, tsr_status status,
                           tsri_need *need);

#endif
