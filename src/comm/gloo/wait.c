/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for a group's jobs, on the rank's own thread, and who is to blame if nothing happens. */
#include "src/comm/flight.h"
#include "src/comm/gloo/inside.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* " 2, 3": the members whose addresses are not there. */
static void name_absent(tsri_gloo_group *g, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = 0;
    for (int p = __atomic_load_n(&g->at, __ATOMIC_RELAXED); p >= 0 && p < g->pub.nranks; p++) {
        char key[192], address[TSRI_GLOO_ADDRESS_BYTES];
        size_t bytes = 0;
        tsri_gloo_pair_key(g, p, g->pub.index, key, sizeof key);
        if (p == g->pub.index)
            continue;
        if (tsri_gloo_store_poll(g->comm->root, key, false, address, sizeof address, &bytes) !=
            TSR_OK)
            return;
        if (!bytes && used < size - 16)
            used += (size_t)snprintf(buf + used, size - used, "%s %d", used ? "," : "",
                                     g->pub.ranks[p]);
    }
}

/* The call that the group is at: the first that is not done. */
static tsri_call current_call(tsri_gloo_group *g, const tsri_gloo_job *job)
{
    static const tsri_call none;
    pthread_mutex_lock(&g->comm->root->lock);
    const tsri_call c = g->first ? g->first->record : job ? job->record : none;
    pthread_mutex_unlock(&g->comm->root->lock);
    return c;
}

/* Whether the group waits for a message of a member. */
static bool is_awaited(const tsri_gloo_group *g, int member)
{
    int at = __atomic_load_n(&g->at, __ATOMIC_RELAXED);
    return at >= 0 ? member == at : __atomic_load_n(&g->due[member], __ATOMIC_RELAXED) > 0;
}

/* Whether the connection to a member is gone, and with it what the group waits for. A member may
 * leave when it has done its part: then its last message is here, and the group's thread takes it,
 * as soon as it runs. */
static bool is_lost(const tsri_gloo_group *g, int member, tsri_gloo_error *err)
{
    enum { LOOKS = 5 };
    const tsri_gloo_root *root = g->comm->root;
    const struct timespec t = {.tv_nsec = 100000000};
    uint64_t moved = __atomic_load_n(&g->moved, __ATOMIC_RELAXED);
    for (int i = 0; i <= LOOKS; i++) {
        if (i > 0)
            nanosleep(&t, NULL);
        if (atomic_load(&root->ended) || !is_awaited(g, member) ||
            __atomic_load_n(&g->moved, __ATOMIC_RELAXED) != moved ||
            root->api->mesh_probe(g->mesh, member, err) != TSRI_GLOO_LOST)
            return false;
    }
    return true;
}

/* Of a member that dies Gloo tells who waits for it by name, but not within a message. So who waits
 * looks, at those that it waits for: others may have done their part, and left. */
static void look_for_dead(tsri_gloo_group *g, const tsri_gloo_job *job)
{
    tsri_gloo_root *root = g->comm->root;
    tsri_gloo_error err = {""};
    for (int m = 0; m < g->pub.nranks; m++) {
        if (m == g->pub.index || atomic_load(&g->stage) == TSRI_GLOO_CONNECTING ||
            !is_lost(g, m, &err))
            continue;
        const tsri_call record = current_call(g, job);
        char text[1280];
        if (tsri_gloo_check(root) != TSR_OK)
            return;
        tsri_gloo_lost(g, m, &record, &err);
        snprintf(text, sizeof text, "%s", tsr_last_error());
        tsri_gloo_fail(root, TSR_ERR_DEAD, g->pub.ranks[m], text);
        return;
    }
}

/* Nothing has happened for so long: says who is to blame, to all. */
static void give_up(tsri_gloo_group *g, const tsri_gloo_job *job)
{
    tsri_gloo_root *root = g->comm->root;
    const tsri_call record = current_call(g, job);
    char text[1280], call[192], absent[256] = "";
    int at = __atomic_load_n(&g->at, __ATOMIC_RELAXED), stage = atomic_load(&g->stage);
    for (int m = 0; at < 0 && m < g->pub.nranks; m++)
        if (__atomic_load_n(&g->due[m], __ATOMIC_RELAXED))
            at = m;
    int about = at < 0 ? -1 : g->pub.ranks[at];
    tsri_call_text(&record, call, sizeof call);
    if (stage == TSRI_GLOO_CONNECTING)
        name_absent(g, absent, sizeof absent);
    if (strchr(absent, ','))
        snprintf(text, sizeof text, "ranks%s did not come to %s within %g s", absent, call,
                 root->world->timeout_s);
    else
        snprintf(text, sizeof text, "rank %d did not %s %s within %g s",
                 at < 0 ? root->world->rank : about,
                 stage == TSRI_GLOO_MOVING || at < 0 ? "finish" : "come to", call,
                 root->world->timeout_s);
    tsri_gloo_fail(root, TSR_ERR_TIMEOUT, about, text);
}

typedef enum wait_for { DONE, PULLED, FEW } wait_for;

static bool is_reached(const tsri_gloo_group *g, const tsri_gloo_job *job, wait_for what,
                       uint64_t most)
{
    return what == FEW ? g->jobs - g->ndone <= most : job->done || (what == PULLED && job->pulled);
}

/* With root->lock, which it gives back while it waits. */
static void await(tsri_gloo_group *g, const tsri_gloo_job *job, wait_for what, uint64_t most)
{
    tsri_gloo_root *root = g->comm->root;
    double timeout = root->world->timeout_s, since = tsri_gloo_now(), look = 1;
    uint64_t moved = 0, ndone = 0;
    while (!is_reached(g, job, what, most)) {
        const struct timespec t = tsri_gloo_in(timeout < 10 ? timeout / 10 : 1);
        int at = __atomic_load_n(&g->at, __ATOMIC_RELAXED);
        if (job && at >= 0)
            tsri_flight_waits(root->world->flight, job->flight, g->pub.ranks[at]);
        pthread_cond_timedwait(&g->done, &root->lock, &t);
        uint64_t now_moved = __atomic_load_n(&g->moved, __ATOMIC_RELAXED);
        double now = tsri_gloo_now();
        if (now_moved != moved || g->ndone != ndone) {
            since = now;
            look = 1;
        }
        moved = now_moved;
        ndone = g->ndone;
        bool is_late = now - since >= timeout, looks = now - since >= look || is_late;
        if (!looks || is_reached(g, job, what, most) || atomic_load(&root->ended))
            continue;
        pthread_mutex_unlock(&root->lock);
        look_for_dead(g, job);
        if (is_late)
            give_up(g, job);
        look = 2 * (now - since);
        pthread_mutex_lock(&root->lock);
    }
    /* Whom it waits for stays on record where it comes to nothing. */
    if (job && (!job->done || job->status == TSR_OK))
        tsri_flight_waited(root->world->flight, job->flight);
}

static tsr_status await_job(tsri_gloo_group *g, tsri_gloo_job *job, wait_for what)
{
    tsri_gloo_root *root = g->comm->root;
    pthread_mutex_lock(&root->lock);
    await(g, job, what, 0);
    tsr_status status = !job->done || job->told ? TSR_OK : job->status;
    job->told = job->done;
    pthread_mutex_unlock(&root->lock);
    return status == TSR_OK ? TSR_OK : tsri_fail(status, "%s", job->text);
}

tsr_status tsri_gloo_job_wait(tsri_gloo_group *g, tsri_gloo_job *job)
{
    return await_job(g, job, DONE);
}

tsr_status tsri_gloo_job_wait_pulled(tsri_gloo_group *g, tsri_gloo_job *job)
{
    return await_job(g, job, PULLED);
}

tsr_status tsri_gloo_jobs_wait(tsri_gloo_group *g, uint64_t most)
{
    pthread_mutex_lock(&g->comm->root->lock);
    await(g, NULL, FEW, most);
    pthread_mutex_unlock(&g->comm->root->lock);
    return tsri_gloo_check(g->comm->root);
}
