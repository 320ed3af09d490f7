/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator that a test's collectives go through: the world's, or on another kind of
 * device (TESSERA_TEST_DEVICE) the one between the ranks' devices, once it is there. */
#ifndef TESSERA_TESTS_DIST_COMM_IN_USE_H
#define TESSERA_TESTS_DIST_COMM_IN_USE_H

#include "src/plan/plan.h"
#include <tessera/tessera.h>

#include <stdlib.h>

static inline tsri_comm **comm_in_use(tsr_world *w)
{
    tsri_comm **between = NULL;
    for (int k = 1; k < TSRI_DEVICES && !between; k++)
        between = tsri_plan_connection(w, (tsr_device)k);
    return getenv("TESSERA_TEST_DEVICE") && between ? between : &w->comm;
}

/* Lets all ranks talk once, so that what is between their devices is there. */
static inline tsr_status connect_ranks(tsr_world *w)
{
    const tsr_placement *p = tsr_placement_parse(w, "cpu");
    tsr_graph *g = tsr_graph_create(w, NULL);
    tsr_tensor *x = tsr_full(g, TSR_F32, TSR_DIMS(64), p, TSR_S(0), 1);
    float sum;
    tsr_status status =
        tsr_eval(tsr_sum(tsr_to_global(x, p, TSR_S(0)), TSR_ALL_AXES, false), &sum, sizeof sum);
    tsr_graph_destroy(g);
    return status;
}

#endif
