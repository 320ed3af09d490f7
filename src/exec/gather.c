/* SPDX-License-Identifier: Apache-2.0 */
/* Words that ranks of a plan show each other beside its own communication. */
#include "src/exec/exec.h"

tsr_status tsri_plan_gather(const tsr_plan *plan, int n, const int *peers, const char *what,
                            int64_t words, const int64_t *mine, int64_t *all)
{
    tsri_comm_stats before;
    tsri_plan_stats(plan->ir.world, &before);
    tsr_status status = tsri_comm_gather_words(plan->ir.world, n, peers, what, words, mine, all);
    tsri_plan_uncount(plan, &before);
    return status;
}
