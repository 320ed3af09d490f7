/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for a group's jobs, on the rank's own thread, and who is to blame if nothing happens. */
#include "src/comm/flight/flight.h"
#include "src/comm/gloo/inside.h"
#include "src/core/clock.h"

#include <stdio.h>
#include <string.h>

/* " 2, 3": the members whose addresses are not there. */
static void name_absent(tsri_gloo_group *g, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = 0;
    for (int p = __atomic_load_n(&g->where.at, __ATOMIC_RELAXED); p >= 0 && p < g->pub.nranks;
         p++) {
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
static tsri_call_entry current_call(tsri_gloo_group *g, const tsri_gloo_job *job)
{
    static const tsri_call_entry none;
    pthread_mutex_lock(&g->comm->root->lock);
    const tsri_call_entry c = g->first ? g->first->record : job ? job->record : none;
    pthread_mutex_unlock(&g->comm->root->lock);
    return c;
}

/* Whether the group waits for a message of a member. */
static bool is_awaited(const tsri_gloo_group *g, int member)
{
    int at = __atomic_load_n(&g->where.at, __ATOMIC_RELAXED);
    return at >= 0 ? member == at : __atomic_load_n(&g->where.due[member], __ATOMIC_RELAXED) > 0;
}

/* Whether the connection to a member is gone, and with it what the group waits for. A member may
 * leave when it has done its part: then its last message is here, and the group's thread takes it,
 * as soon as it runs. */
static bool is_lost(const tsri_gloo_group *g, int member, tsri_gloo_error *err)
{
    enum { LOOKS = 5 };
    const tsri_gloo_root *root = g->comm->root;
    uint64_t moved = __atomic_load_n(&g->where.moved, __ATOMIC_RELAXED);
    for (int i = 0; i <= LOOKS; i++) {
        if (i > 0)
            tsri_sleep_s(0.1);
        if (atomic_load(&root->ended) || !is_awaited(g, member) ||
            __atomic_load_n(&g->where.moved, __ATOMIC_RELAXED) != moved ||
            root->api->mesh_probe(g->mesh, member, err) != TSRI_GLOO_LOST)
            return false;
    }
    return true;
}

/* Gloo tells a rank that waits for a member by name when that one dies, but not within a message.
 * So the rank looks at the members that it waits for: others may have done their part, and left.
 * Returns a member that is lost, -1 if none is. */
static int find_dead(const tsri_gloo_group *g, tsri_gloo_error *err)
{
    for (int m = 0; m < g->pub.nranks; m++)
        if (m != g->pub.index && atomic_load(&g->where.stage) != TSRI_GLOO_CONNECTING &&
            is_lost(g, m, err))
            return m;
    return -1;
}

/* Ends all if a member that this rank waits for is gone. */
static void look_for_dead(tsri_gloo_group *g, const tsri_gloo_job *job)
{
    tsri_gloo_root *root = g->comm->root;
    tsri_gloo_error err = {""};
    int dead = find_dead(g, &err);
    if (dead < 0)
        return;
    const tsri_call_entry record = current_call(g, job);
    char text[1280];
    if (tsri_gloo_check(root) != TSR_OK)
        return;
    tsri_gloo_lost(g, dead, &record, &err);
    snprintf(text, sizeof text, "%s", tsr_last_error());
    tsri_gloo_fail(root, TSR_ERR_DEAD, g->pub.ranks[dead], text);
}

/* The world rank of the member that the group waits for, the first of several; -1: none. */
static int find_awaited(const tsri_gloo_group *g)
{
    for (int m = 0; m < g->pub.nranks; m++)
        if (m != g->pub.index && is_awaited(g, m))
            return g->pub.ranks[m];
    return -1;
}

/* Follows the ranks that sleep, from `rank`, by the notes that their watchers leave in the store:
 * returns the one that keeps them all waiting, and in *out_waiter who sleeps for it. A rank whose
 * note does not change for a second waits for nobody, or stands still. */
static int find_behind(tsri_gloo_group *g, int rank, int *out_waiter)
{
    enum { SLICES = 10, MOST = 16 };
    tsri_gloo_root *root = g->comm->root;
    int direct = rank, waiter = root->world->rank;
    *out_waiter = waiter;
    for (int i = 0; i < MOST && rank >= 0; i++) {
        uint64_t before = tsri_gloo_sleep_of(root, rank), now = before;
        for (int k = 0; k < SLICES && before == now && before && !atomic_load(&root->ended); k++) {
            tsri_flight_sleeps_on(root->world->flight, direct);
            tsri_sleep_s(0.1);
            now = tsri_gloo_sleep_of(root, rank);
        }
        int next = tsri_flight_sleeps_for(before, now);
        if (next == root->world->rank || next >= root->world->nranks)
            return direct; /* they wait for each other */
        if (next < 0) {
            *out_waiter = waiter;
            return rank;
        }
        waiter = rank;
        rank = next;
    }
    return direct;
}

/* Nothing has happened for so long: says who is to blame, to all. */
static void give_up(tsri_gloo_group *g, const tsri_gloo_job *job)
{
    tsri_gloo_root *root = g->comm->root;
    const tsri_call_entry record = current_call(g, job);
    char text[1280], call[192], absent[256] = "";
    int at = find_awaited(g), waiter, stage = atomic_load(&g->where.stage);
    uint64_t moved = __atomic_load_n(&g->where.moved, __ATOMIC_RELAXED);
    int about = find_behind(g, at, &waiter);
    if (atomic_load(&root->ended) || __atomic_load_n(&g->where.moved, __ATOMIC_RELAXED) != moved)
        return;
    tsri_call_text(&record, call, sizeof call);
    if (stage == TSRI_GLOO_CONNECTING)
        name_absent(g, absent, sizeof absent);
    if (strchr(absent, ','))
        snprintf(text, sizeof text, "ranks%s did not come to %s within %g s", absent, call,
                 root->world->timeout_s);
    else if (waiter != root->world->rank)
        snprintf(
            text, sizeof text,
            "rank %d did not finish what rank %d waits for within %g s; rank %d waits for rank "
            "%d in %s",
            about, waiter, root->world->timeout_s, root->world->rank, at, call);
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
    double timeout = root->world->timeout_s, since = tsri_now_s(), look = 1;
    uint64_t moved = 0, ndone = 0;
    while (!is_reached(g, job, what, most)) {
        const struct timespec t = tsri_in_s(timeout < 1 ? timeout / 10 : 0.1);
        int awaited = find_awaited(g);
        if (job && awaited >= 0)
            tsri_flight_waits(root->world->flight, job->flight, awaited);
        if (pthread_cond_timedwait(&g->done, &root->lock, &t) && awaited >= 0)
            tsri_flight_sleeps_on(root->world->flight, awaited);
        uint64_t now_moved = __atomic_load_n(&g->where.moved, __ATOMIC_RELAXED);
        double now = tsri_now_s();
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

/* --- leaving ---------------------------------------------------------------------------------- */
static bool has_work(const tsri_gloo_group *g)
{
    pthread_mutex_lock(&g->comm->root->lock);
    bool has = g->ndone < g->jobs && !g->stop;
    pthread_mutex_unlock(&g->comm->root->lock);
    return has;
}

/* Whether a member has said that it leaves: it comes to no further call. */
static bool has_left(tsri_gloo_group *g)
{
    char key[96], yes;
    for (int m = 0; m < g->pub.nranks; m++) {
        size_t bytes = 0;
        tsri_gloo_left_key(g->comm, g->pub.ranks[m], key, sizeof key);
        if (m != g->pub.index &&
            tsri_gloo_store_poll(g->comm->root, key, false, &yes, 1, &bytes) == TSR_OK && bytes)
            return true;
    }
    return false;
}

/* How far all groups are: a number that grows with each message. */
static uint64_t progress_of(const tsri_gloo *comm)
{
    uint64_t sum = 0;
    pthread_mutex_lock(&comm->root->lock);
    for (const tsri_gloo_group *g = comm->groups; g; g = g->next_own)
        sum += g->ndone + __atomic_load_n(&g->where.moved, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&comm->root->lock);
    return sum;
}

/* Stops the groups whose members come no more, and returns whether another has work left. `idle`:
 * no message has come for so long that none is on its way from a member that has left. */
static bool stop_vain(tsri_gloo *comm, bool idle)
{
    bool left = false;
    tsri_gloo_error err;
    for (tsri_gloo_group *g = comm->groups; g; g = g->next_own) {
        bool works = has_work(g);
        if (works && idle && (has_left(g) || find_dead(g, &err) >= 0)) {
            tsri_gloo_group_stop(g);
            works = false;
        }
        left |= works;
    }
    return left;
}

static void await_takers(tsri_gloo *comm)
{
    tsri_gloo_root *root = comm->root;
    const double idle_s = 1;
    double since = tsri_now_s(), look = idle_s, idle = 0;
    uint64_t progress = progress_of(comm);
    while (stop_vain(comm, idle >= look) && !atomic_load(&root->ended) &&
           idle < root->world->timeout_s) {
        if (idle >= look)
            look += idle_s;
        tsri_sleep_s(5e-3);
        uint64_t now = progress_of(comm);
        if (now != progress) {
            since = tsri_now_s();
            look = idle_s;
        }
        progress = now;
        idle = tsri_now_s() - since;
    }
}

void tsri_gloo_leave(tsri_comm *c)
{
    tsri_gloo *comm = (tsri_gloo *)c->priv;
    tsri_gloo_root *root = comm->root;
    char key[96];
    if (stop_vain(comm, false) && !atomic_load(&root->ended)) {
        pthread_mutex_lock(&root->lock);
        for (tsri_gloo_group *g = comm->groups; g; g = g->next_own)
            g->parting = true;
        pthread_mutex_unlock(&root->lock);
        /* Two ranks may have sent each other what neither asks for: each says that it leaves. */
        tsri_gloo_left_key(comm, root->world->rank, key, sizeof key);
        tsri_gloo_store_set(root, key, "1", 1);
        await_takers(comm);
    }
    for (tsri_gloo_group *g = comm->groups; g; g = g->next_own)
        tsri_gloo_group_stop(g);
}
