/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The passes that make a program of a graph's signatures and improve it.
 *
 *   build.c      -> items and values, conversions between them (src/ir/ir.c appends them)
 *   rank_sum.c   sums over the ranks of local graphs
 *   fuse.c       joins items (batch norm + activation)
 *   reshard.c    gathers weights again for backward
 *   layout.c     row-major, channels last or by head, per value; adds copies between them
 *   chain.c      finds kernels that run as one, row by row
 *   defer.c      puts small things off to where they can be joined
 *   order.c      puts updates behind the readers of what they overwrite
 *   update.c     puts updates behind what makes their gradients, where they alone read these
 *   schedule.c   buckets, entries, lifetimes
 *   reasons.c    which readers each conversion is for
 *   memory.c     offsets in the arena
 *   check.c      what must hold after each of these passes
 */
#ifndef TESSERA_PLAN_PASS_PASS_H
#define TESSERA_PLAN_PASS_PASS_H

#include "src/ir/ir.h"
#include "src/plan/infer/answer.h"

/* --- from signatures to steps ----------------------------------------------------------------- */
tsr_status tsri_plan_build(tsri_ir *ir, tsr_graph *g, const tsri_inferred *inferred);
/* The item of a RANK_SUM whose operands and results are values. */
tsr_status tsri_plan_build_rank_sum(tsri_ir *ir, const tsri_op *op, const int *in, const int *out);
/* The farthest link between the first and the others of n ranks, by the plan's model. */
int tsri_plan_farthest(const tsri_ir *ir, const int *ranks, int n);
tsr_status tsri_plan_fuse(tsri_ir *ir);
/* Whether the options leave this fusion on. */
static inline bool tsri_plan_fuses(const tsri_ir *ir, tsr_fusion which)
{
    return !(ir->opts.no_fusion & (TSR_FUSE_ANYTHING | (unsigned)which));
}
/* Where the options say so, no item of backward reads a weight that was gathered for forward, but
 * those that are gathered last there. */
tsr_status tsri_plan_reshard(tsri_ir *ir);
tsr_status tsri_plan_layout(tsri_ir *ir);
tsr_status tsri_plan_chain(tsri_ir *ir);
/* Returns what an item can be in a chain. */
tsri_chain_role tsri_chain_role_of(const tsri_ir *ir, const tsri_item *it);
/* Once items are in their final order: dissolves chains that are no longer in one piece, and finds
 * what is inside the others. */
tsr_status tsri_plan_settle_chains(tsri_ir *ir);
/* The first item, and the end, of the chain that an item is in, or of the item itself. */
int tsri_chain_begin(const tsri_ir *ir, int item);
int tsri_chain_end(const tsri_ir *ir, int item);
tsr_status tsri_plan_defer(tsri_ir *ir);
/* Afterwards every item reads the version that the program means: of a variable, what a run begins
 * with; and an optimizer's updates follow the buckets of their gradients. */
tsr_status tsri_plan_order(tsri_ir *ir);
/* Joins updates to the chains that make their gradients, where no other item reads these. */
tsr_status tsri_plan_update(tsri_ir *ir);
tsr_status tsri_plan_schedule(tsri_ir *ir);
/* For any rank: returns the bytes of the plan's block on a kind of device; offsets are kept for the
 * world's own rank. */
tsr_status tsri_plan_memory(tsri_ir *ir, int rank, tsr_device kind, size_t *out_bytes);
/* Bytes that a rank needs: variables, values and ports; kernels' scratch apart. On all kinds of
 * device together. */
tsr_status tsri_plan_rank_bytes(tsri_ir *ir, int rank, size_t *out_variables, size_t *out_ports,
                                size_t *out_values);
/* Writes the reasons of conversions that have none yet: their readers. */
tsr_status tsri_plan_give_reasons(tsri_ir *ir);
/* Appends a copy of a value, in row-major order or channels last, and the item that makes it, for
 * another item; returns the copy, or -1 when there is no memory. */
int tsri_plan_add_copy(tsri_ir *ir, const tsri_item *for_item, int value, bool nhwc);
/* The query that a conversion's step was planned for. */
tsri_route_query tsri_item_query(const tsri_ir *ir, const tsri_item *item, int pair);
/* Whether lowering may join an item with neighbours of its op; see defer.c. */
bool tsri_item_may_join(const tsri_item *item);
/* Whether an item is a call that may write its results before it is finished (tsri_comm.early). */
bool tsri_item_writes_early(const tsri_ir *ir, const tsri_item *item);
/* Whether a value's kernel may write over its first operand (equal shape, dtype and layout). */
bool tsri_item_in_place(const tsri_ir *ir, const tsri_item *item);

typedef enum tsri_pass {
    TSRI_PASS_BUILD = 0,
    TSRI_PASS_FUSE,
    TSRI_PASS_RESHARD,
    TSRI_PASS_LAYOUT,
    TSRI_PASS_CHAIN,
    TSRI_PASS_DEFER,
    TSRI_PASS_ORDER,
    TSRI_PASS_UPDATE,
    TSRI_PASS_SCHEDULE,
    TSRI_PASS_MEMORY, /* offsets are known: after lowering */
} tsri_pass;
/* "build", "fuse", ... */
const char *tsri_pass_name(tsri_pass pass);
/* With TESSERA_CHECK (tsri_checks): TSR_ERR_INTERNAL, naming pass, item and value, if the plan is
 * not what the pass promises. BUILD to ORDER: items read what items before them make, both ends of
 * a conversion are as it says, results lie on operands of the same size. ORDER: and nobody reads
 * what has been written over. SCHEDULE: every reader stands behind its writer's FINISH, updates
 * behind the last reader and behind the RELEASE of calls by which peers read, everything is done
 * once and used within its lifetime. MEMORY: no two values that live at the same time share bytes.
 */
tsr_status tsri_plan_check(tsri_ir *ir, tsri_pass after);
/* Hashes the order in which the plan starts and finishes its collectives, and what each of them is:
 * equal on all ranks. */
uint64_t tsri_plan_order_hash(const tsri_ir *ir);

#endif
