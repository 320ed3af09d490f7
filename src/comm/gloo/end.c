/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of groups: what it means that Gloo did not do what was asked, and what others have said. */
#include "src/comm/gloo/inside.h"

#include <stdio.h>

void tsri_gloo_pair_key(const tsri_gloo_group *g, int from, int to, char *key, size_t size)
{
    snprintf(key, size, "%s%d/%d", g->key, from, to);
}

bool tsri_gloo_is_stopped(tsri_gloo_group *g)
{
    pthread_mutex_lock(&g->comm->root->lock);
    bool stop = g->stop;
    pthread_mutex_unlock(&g->comm->root->lock);
    return stop;
}

tsr_status tsri_gloo_fail_stopped(void)
{
    return tsri_fail(TSR_ERR_STATE, "the communicator was destroyed while a call was under way");
}

void tsri_gloo_left_key(const tsri_gloo *comm, int rank, char *key, size_t size)
{
    snprintf(key, size, "%sleft/%d/%d", comm->root->key, rank, comm->twin);
}

tsr_status tsri_gloo_lost(tsri_gloo_group *g, int member, const tsri_call_entry *record,
                          const tsri_gloo_error *err)
{
    tsri_gloo_root *root = g->comm->root;
    char key[96], call[192], yes;
    size_t left = 0;
    tsri_call_text(record, call, sizeof call);
    tsri_gloo_left_key(g->comm, g->pub.ranks[member], key, sizeof key);
    if (tsri_gloo_store_poll(root, key, false, &yes, 1, &left) == TSR_OK && left)
        return tsri_fail(TSR_ERR_DEAD, "rank %d has left while rank %d waited for it in %s",
                         g->pub.ranks[member], root->world->rank, call);
    return tsri_fail(TSR_ERR_DEAD,
                     "rank %d died, or was cut off, while rank %d waited for it in %s (%s)",
                     g->pub.ranks[member], root->world->rank, call, err->text);
}

/* Finds a lost member: a wait for any of several says that one is lost, not which. -1: none is. */
static int find_lost(tsri_gloo_group *g)
{
    tsri_gloo_error err;
    for (int m = 0; m < g->pub.nranks; m++)
        if (__atomic_load_n(&g->where.due[m], __ATOMIC_RELAXED) > 0 &&
            g->comm->root->api->mesh_probe(g->mesh, m, &err) == TSRI_GLOO_LOST)
            return m;
    return -1;
}

tsr_status tsri_gloo_backend(tsri_gloo_group *g, const tsri_gloo_job *job, tsri_gloo_result result,
                             const tsri_gloo_error *err)
{
    int at = __atomic_load_n(&g->where.at, __ATOMIC_RELAXED);
    TSRI_TRY(tsri_gloo_check(g->comm->root));
    if (tsri_gloo_is_stopped(g))
        return tsri_gloo_fail_stopped();
    if (result == TSRI_GLOO_NO_MEMORY)
        return tsri_fail(TSR_ERR_NO_MEMORY, "no memory for Gloo's messages");
    if (at < 0 && result == TSRI_GLOO_LOST)
        __atomic_store_n(&g->where.at, at = find_lost(g), __ATOMIC_RELAXED);
    if (at >= 0 && result == TSRI_GLOO_LOST)
        return tsri_gloo_lost(g, at, &job->record, err);
    char call[192];
    return tsri_fail(TSR_ERR_BACKEND, "Gloo, in %s: %s",
                     tsri_call_text(&job->record, call, sizeof call), err->text);
}

tsr_status tsri_gloo_check_over(tsri_gloo_group *g)
{
    pthread_mutex_lock(&g->comm->root->lock);
    tsr_status status = (tsr_status)g->over.status;
    if (status != TSR_OK)
        tsri_fail(status, "%s", g->over.text);
    pthread_mutex_unlock(&g->comm->root->lock);
    return status;
}

tsr_status tsri_gloo_set_over(tsri_gloo_group *g, tsr_status status, const char *text)
{
    pthread_mutex_lock(&g->comm->root->lock);
    if (g->over.status == TSR_OK) {
        snprintf(g->over.text, sizeof g->over.text, "%s", text);
        g->over.status = (int32_t)status;
    }
    pthread_mutex_unlock(&g->comm->root->lock);
    return tsri_gloo_check_over(g);
}

void tsri_gloo_job_pulled(tsri_gloo_group *g, tsri_gloo_job *job)
{
    pthread_mutex_lock(&g->comm->root->lock);
    job->pulled = true;
    pthread_cond_broadcast(&g->done);
    pthread_mutex_unlock(&g->comm->root->lock);
}
