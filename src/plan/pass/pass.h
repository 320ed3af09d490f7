/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The passes build a program from a graph and its signatures, and improve it.
 *
 *   build.c      makes items and values, and the conversions between them
 *   rank_sum.c   makes sums over local graphs
 *   fuse.c       joins items (batch norm + activation)
 *   reshard.c    gathers weights a second time for backward
 *   layout.c     chooses a memory layout for each value, and adds copies between layouts
 *   chain.c      finds kernels that run as one, row by row
 *   defer.c      moves small items to positions where they can be joined
 *   order.c      moves updates after the consumers of the values that they overwrite
 *   update.c     moves updates into the chains that produce their gradients
 *   stages.c     divides the parts of a step into segments of stages, with timetable.c
 *   schedule.c   makes buckets, entries and lifetimes
 *   once.c       finds the items that runs without an update leave out
 *   reasons.c    names the consumers of each conversion
 *   memory.c     assigns offsets in the arena
 *   check.c      checks the program after each pass
 */
#ifndef TESSERA_PLAN_PASS_PASS_H
#define TESSERA_PLAN_PASS_PASS_H

#include "src/ir/ir.h"
#include "src/plan/infer/answer.h"

/* --- passes, in their order ------------------------------------------------------------------- */
tsr_status tsri_plan_build(tsri_ir *ir, tsr_graph *g, const tsri_inferred *inferred);
/* Appends the item of a RANK_SUM whose operands and results are values. */
tsr_status tsri_plan_build_rank_sum(tsri_ir *ir, const tsri_op *op, const int *in, const int *out);
/* The farthest link between the first and the others of n ranks, by the cost model. */
int tsri_plan_farthest(const tsri_ir *ir, const int *ranks, int n);
tsr_status tsri_plan_fuse(tsri_ir *ir);
/* Whether the options allow a fusion. */
static inline bool tsri_plan_fuses(const tsri_ir *ir, tsr_fusion which)
{
    return !(ir->opts.no_fusion & (TSR_FUSE_ANYTHING | (unsigned)which));
}
/* With reshard_after_forward: gives backward its own gathers of weights, except of those that
 * forward gathers last. */
tsr_status tsri_plan_reshard(tsri_ir *ir);
tsr_status tsri_plan_layout(tsri_ir *ir);
tsr_status tsri_plan_chain(tsri_ir *ir);
/* Returns the role that an item can have in a chain. */
tsri_chain_role tsri_chain_role_of(const tsri_ir *ir, const tsri_item *it);
/* After items have their final order: dissolves chains whose items are no longer adjacent, and
 * finds the inner values of the others. */
tsr_status tsri_plan_settle_chains(tsri_ir *ir);
/* The first item of an item's chain, and the first item after the chain. An item without a chain
 * counts as its own. */
int tsri_chain_begin(const tsri_ir *ir, int item);
int tsri_chain_end(const tsri_ir *ir, int item);
tsr_status tsri_plan_defer(tsri_ir *ir);
/* Orders items so that each reads the intended version of a variable, its value at the start of the
 * run, and so that updates follow the buckets of their gradients. */
tsr_status tsri_plan_order(tsri_ir *ir);
/* Joins updates to the chains that produce their gradients, if the gradients have no other
 * consumer. */
tsr_status tsri_plan_update(tsri_ir *ir);
/* Divides the items of the parts into segments, if several stages do them; orders them by these,
 * and makes the timetable. Does nothing without micro-batches. */
tsr_status tsri_plan_stages(tsri_ir *ir);
tsr_status tsri_plan_schedule(tsri_ir *ir);
/* Keeps the conditions of those items alone whose results no item without them consumes. */
tsr_status tsri_plan_once(tsri_ir *ir);
/* Computes the bytes of a rank's block on one kind of device, and, for the world's own rank, sets
 * the values' offsets. */
tsr_status tsri_plan_memory(tsri_ir *ir, int rank, tsr_device kind, size_t *out_bytes);
/* Computes a rank's bytes of variables, ports and values, without kernels' scratch, summed over the
 * kinds of device. */
tsr_status tsri_plan_rank_bytes(tsri_ir *ir, int rank, size_t *out_variables, size_t *out_ports,
                                size_t *out_values);
/* Sets the reason of each conversion without one to the names of its consumers. */
tsr_status tsri_plan_give_reasons(tsri_ir *ir);
/* Appends an item that copies a value into row-major or channels-last order on behalf of for_item.
 * Returns the number of the copy, or -1 if memory runs out. */
int tsri_plan_add_copy(tsri_ir *ir, const tsri_item *for_item, int value, bool nhwc);
/* The query by which a conversion's step was planned. */
tsri_route_query tsri_item_query(const tsri_ir *ir, const tsri_item *item, int pair);
/* Whether lowering may join an item with adjacent items of the same op; see defer.c. */
bool tsri_item_may_join(const tsri_item *item);
/* Whether an item is a call that may write its results before its FINISH (tsri_comm.early). */
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
    TSRI_PASS_STAGES,
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
