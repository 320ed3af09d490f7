/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a group, by its first error. */
#include "src/comm/collective/collective.h"
#include "src/comm/flight/flight.h"

#include <stdio.h>

bool tsri_group_is_over(tsr_group *g)
{
    return atomic_load_explicit(&g->over, memory_order_acquire) != TSR_OK;
}

tsr_status tsri_group_fail_over(tsr_group *g)
{
    return tsri_fail((tsr_status)atomic_load(&g->over), "%s", g->text);
}

tsr_status tsri_group_check(tsr_group *g)
{
    return tsri_group_is_over(g) ? tsri_group_fail_over(g) : TSR_OK;
}

void tsri_group_end_by(tsr_group *g, bool tells, tsr_status status)
{
    pthread_mutex_lock(&g->lock);
    bool first = !tsri_group_is_over(g);
    if (first) {
        snprintf(g->text, sizeof g->text, "%s", tsr_last_error());
        atomic_store(&g->over, (int)status);
    }
    pthread_mutex_unlock(&g->lock);
    tsri_comm *comm = g->engine->comm;
    if (!first)
        return;
    tsri_flight_fail(g->engine->world, 0, status);
    if (g->inner && tells && TSRI_COMM_HAS(comm, poison))
        comm->ops->poison(g->inner, status, g->text);
}

static bool has_left(tsri_queue *q)
{
    return atomic_load_explicit(&q->left, memory_order_acquire) > 0;
}

void tsri_group_end(tsr_group *g, tsr_status status)
{
    /* Nobody else may be in a call of the inner group. */
    tsri_group_end_by(g, !has_left(&g->queue) && !has_left(&g->sends), status);
}
