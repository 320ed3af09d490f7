/* SPDX-License-Identifier: Apache-2.0 */
/* The store, seen by several threads, and how all of a root's groups end together. */
#include "src/comm/flight/flight.h"
#include "src/comm/gloo/inside.h"
#include "src/core/clock.h"
#include "src/core/foreign.h"
#include "src/core/thread.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How often a rank that nobody cuts off looks whether all is over. */
static const double LOOK_S = 0.1;
/* A request's timeout, once all is over. */
static const double LAST_S = 5;

/* --- the store -------------------------------------------------------------------------------- */
tsr_status tsri_gloo_store_set(tsri_gloo_root *root, const char *key, const void *value,
                               size_t bytes)
{
    pthread_mutex_lock(&root->store_lock);
    tsr_status status = tsr_store_set(root->store, key, value, bytes);
    pthread_mutex_unlock(&root->store_lock);
    return status;
}

tsr_status tsri_gloo_store_poll(tsri_gloo_root *root, const char *key, bool take, void *value,
                                size_t room, size_t *out_bytes)
{
    bool there = false;
    size_t bytes = 0;
    pthread_mutex_lock(&root->store_lock);
    tsr_status status = tsr_store_check(root->store, 1, &key, &there);
    if (status == TSR_OK && there)
        status = tsr_store_get(root->store, key, value, room, &bytes);
    if (status == TSR_OK && there && take)
        status = tsr_store_delete(root->store, key, NULL);
    pthread_mutex_unlock(&root->store_lock);
    if (status == TSR_OK)
        *out_bytes = bytes;
    return status;
}

/* --- the end ---------------------------------------------------------------------------------- */
/* As it stands in the store: "status by about text". */
enum { NOTE_BYTES = sizeof(tsri_gloo_end) + 64 };

static void end_key(const tsri_gloo_root *root, char *key, size_t size)
{
    snprintf(key, size, "%send", root->key);
}

static bool read_note(const char *note, int nranks, tsri_gloo_end *out)
{
    int by, about;
    tsr_status status;
    if (!tsri_take_error(&note, &status) || !tsri_take_char(&note, ' ') ||
        !tsri_take_int(&note, -1, nranks - 1, &by) || !tsri_take_char(&note, ' ') ||
        !tsri_take_int(&note, -1, nranks - 1, &about) || !tsri_take_char(&note, ' '))
        return false;
    *out = (tsri_gloo_end){.status = status, .by = by, .about = about};
    snprintf(out->text, sizeof out->text, "%s", note);
    tsri_make_printable(out->text, true);
    return true;
}

/* Notes the end for all, and gives the one that counts: the first. */
static void note_end(tsri_gloo_root *root, tsri_gloo_end *end)
{
    char key[64], mine[NOTE_BYTES], first[NOTE_BYTES + 1];
    size_t bytes = 0;
    int n = snprintf(mine, sizeof mine, "%d %d %d %s", (int)end->status, end->by, end->about,
                     end->text);
    end_key(root, key, sizeof key);
    pthread_mutex_lock(&root->store_lock);
    (void)tsr_store_set_timeout(root->store, LAST_S); /* it may be the server that is gone */
    tsr_status status =
        tsr_store_compare_set(root->store, key, "", 0, mine, (size_t)n, first, NOTE_BYTES, &bytes);
    pthread_mutex_unlock(&root->store_lock);
    if (status != TSR_OK)
        return;
    first[bytes] = 0;
    read_note(first, root->world->nranks, end);
}

/* All threads that wait for peers are woken; peers see the connections go. */
static void declare(tsri_gloo_root *root, const tsri_gloo_end *end)
{
    pthread_mutex_lock(&root->lock);
    if (!atomic_load(&root->ended)) {
        root->end = *end;
        atomic_store(&root->ended, true);
        for (tsri_gloo_group *g = root->groups; g; g = g->next) {
            if (g->mesh)
                root->api->mesh_interrupt(g->mesh);
            pthread_cond_broadcast(&g->asked);
        }
        pthread_cond_broadcast(&root->changed);
    }
    pthread_mutex_unlock(&root->lock);
}

tsr_status tsri_gloo_check(tsri_gloo_root *root)
{
    if (!atomic_load_explicit(&root->ended, memory_order_acquire))
        return TSR_OK;
    const tsri_gloo_end *e = &root->end; /* does not change any more */
    int me = root->world->rank;
    bool is_abort = e->status == TSR_ERR_REMOTE;
    bool seen_by_all =
        e->status == TSR_ERR_DEAD || e->status == TSR_ERR_TIMEOUT || e->status == TSR_ERR_MISMATCH;
    if (!is_abort && (e->by == me || (seen_by_all && e->about != me)))
        return tsri_fail(e->status, "%s", e->text);
    return tsri_fail(TSR_ERR_REMOTE, "rank %d failed: %s", e->by, e->text);
}

tsr_status tsri_gloo_fail(tsri_gloo_root *root, tsr_status status, int about, const char *text)
{
    tsri_gloo_end end = {.status = status, .by = root->world->rank, .about = about};
    snprintf(end.text, sizeof end.text, "%s", text);
    pthread_mutex_lock(&root->lock);
    bool first = !root->ending;
    root->ending = true;
    while (!first && !atomic_load(&root->ended))
        pthread_cond_wait(&root->changed, &root->lock);
    pthread_mutex_unlock(&root->lock);
    if (first) {
        note_end(root, &end);
        declare(root, &end);
    }
    return tsri_gloo_check(root);
}

/* --- who sleeps for whom ---------------------------------------------------------------------- */
static void sleep_key(const tsri_gloo_root *root, int rank, char *key, size_t size)
{
    snprintf(key, size, "%ssleep/%d", root->key, rank);
}

uint64_t tsri_gloo_sleep_of(tsri_gloo_root *root, int rank)
{
    char key[80], note[40];
    const char *p = note;
    size_t bytes = 0;
    int count, next;
    sleep_key(root, rank, key, sizeof key);
    if (tsri_gloo_store_poll(root, key, false, note, sizeof note - 1, &bytes) != TSR_OK)
        return 0;
    note[bytes] = 0;
    if (!tsri_take_int(&p, 0, INT_MAX, &count) || !tsri_take_char(&p, ' ') ||
        !tsri_take_int(&p, 0, root->world->nranks, &next) || *p)
        return 0;
    return (uint64_t)count << 32 | (uint32_t)next;
}

/* Lets the other machines' ranks know that this one sleeps on. */
static void note_sleep(tsri_gloo_root *root, uint64_t *noted)
{
    const tsri_flight *f = root->world->flight;
    uint64_t now = f ? atomic_load(&f->sleeps_for) : 0;
    char key[80], note[40];
    if (now == *noted)
        return;
    *noted = now;
    sleep_key(root, root->world->rank, key, sizeof key);
    int n =
        snprintf(note, sizeof note, "%d %d", (int)(now >> 32 & INT_MAX), (int)(now & UINT32_MAX));
    (void)tsri_gloo_store_set(root, key, note, (size_t)n);
}

/* --- looking for the end ---------------------------------------------------------------------- */
static void *watch(void *arg)
{
    enum { NOTE_EVERY = 3 };
    tsri_gloo_root *root = arg;
    uint64_t noted = 0;
    int looks = 0;
    char key[64], note[NOTE_BYTES + 1];
    end_key(root, key, sizeof key);
    pthread_mutex_lock(&root->lock);
    while (!root->stop && !atomic_load(&root->ended)) {
        const struct timespec t = tsri_in_s(LOOK_S);
        pthread_cond_timedwait(&root->changed, &root->lock, &t);
        if (root->stop || atomic_load(&root->ended))
            break;
        pthread_mutex_unlock(&root->lock);
        size_t bytes = 0;
        tsri_gloo_end end;
        tsr_status status = tsri_gloo_store_poll(root, key, false, note, NOTE_BYTES, &bytes);
        note[bytes] = 0;
        if (status == TSR_OK && bytes && read_note(note, root->world->nranks, &end))
            declare(root, &end);
        else if (status == TSR_OK && ++looks % NOTE_EVERY == 0)
            note_sleep(root, &noted);
        pthread_mutex_lock(&root->lock);
        /* The store is gone: what peers do is still seen by their connections. */
        if (status != TSR_OK && status != TSR_ERR_TIMEOUT)
            break;
    }
    pthread_mutex_unlock(&root->lock);
    return NULL;
}

tsr_status tsri_gloo_watch(tsri_gloo_root *root)
{
    int error = tsri_thread_start(&root->watcher, "tsr-gloo-watch", watch, root);
    if (error)
        return tsri_fail(TSR_ERR_NO_MEMORY, "no thread for the Gloo communicator: %s",
                         strerror(error));
    root->watches = true;
    return TSR_OK;
}

void tsri_gloo_unwatch(tsri_gloo_root *root)
{
    if (!root->watches)
        return;
    pthread_mutex_lock(&root->lock);
    root->stop = true;
    pthread_cond_broadcast(&root->changed);
    pthread_mutex_unlock(&root->lock);
    pthread_join(root->watcher, NULL);
    root->watches = false;
}
