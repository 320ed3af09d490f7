/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tsr_world_create: a process becomes a rank.
 *
 *   alone, or all on this machine under `tessera launch`: its arena, no store and no port
 *   some on this machine under `tessera launch`: its arena, and a store for the others
 *   another launcher, or none: the ranks meet in a store, and those of a machine make an arena
 *
 * Where all ranks turn out to be on this machine the store is closed at once.
 */
#include "src/comm/gloo/gloo.h"
#include "src/comm/world/hosts.h"
#include "src/comm/world/ident.h"
#include "src/comm/store/store.h"
#include "src/comm/world/make.h"
#include "src/comm/world/meet.h"
#include "src/core/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The rank that serves the store waits for the others to leave; so long after a failure. */
static const double leave_failed_s = 1;
enum { RETRY_US = 10000 };

typedef struct creation {
    const tsr_world_opts *given;
    tsr_world_opts opts; /* resolved */
    tsri_ident id;
    tsr_store *store; /* NULL: none, or closed */
    tsri_machine machine;
} creation;

/* --- the store -------------------------------------------------------------------------------- */

/* Set by rank 0 in a store that a world keeps. */
static const char kept[] = "kept by a world";

/* Whether the store is still an earlier world's, after looking at it until it goes away or the time
 * is over. Looked at on one connection: each leaves a port of this machine in use for a minute. */
static tsr_status watch_old_store(const creation *c, const char *prefix, double deadline,
                                  bool *out_is_old)
{
    const char *key = kept;
    tsr_store *store;
    tsr_status status =
        tsri_store_connect(c->id.url, TSR_STORE_OPTS(.timeout_s = c->opts.timeout_s), &store);
    if (status == TSR_ERR_TIMEOUT)
        return tsri_fail_prefix(status, "rank 0 of %d, which serves, has not come", c->id.nranks);
    TSRI_TRY(status);
    status = tsri_store_prefix(store, prefix);
    while (status == TSR_OK) {
        status = tsr_store_check(store, 1, &key, out_is_old);
        if (status != TSR_OK || !*out_is_old || tsri_now_s() > deadline)
            break;
        usleep(RETRY_US);
    }
    tsr_store_close(store);
    if (status == TSR_ERR_DEAD) { /* it was going away */
        *out_is_old = true;
        return TSR_OK;
    }
    return status;
}

/* Rank 0 serves anew for each world. A rank that was quicker to leave the last one must not join
 * the old store: it waits until that is gone. */
static tsr_status await_new_store(const creation *c, const char *prefix)
{
    double deadline = tsri_now_s() + c->opts.timeout_s;
    for (bool is_old = true; is_old;) {
        TSRI_TRY(watch_old_store(c, prefix, deadline, &is_old));
        if (is_old && tsri_now_s() > deadline)
            return tsri_fail(TSR_ERR_TIMEOUT,
                             "the store at %s is still that of an earlier world: rank 0 did not "
                             "come to this one within %g s",
                             c->id.url, c->opts.timeout_s);
        if (is_old)
            usleep(RETRY_US);
    }
    return TSR_OK;
}

/* A folder that is refused is not removed either. */
static tsr_status make_folder(tsri_ident *id)
{
    bool failed = mkdir(id->folder, 0700) && errno != EEXIST;
    int why = errno;
    if (!failed && tsri_is_private(id->folder))
        return TSR_OK;
    tsr_status status =
        failed ? tsri_fail(TSR_ERR_IO, "can't make the folder %s, in which the ranks meet: %s",
                           id->folder, strerror(why))
               : tsri_fail(TSR_ERR_IO,
                           "the folder %s, in which the ranks meet, is not this user's alone",
                           id->folder);
    id->folder[0] = 0;
    return status;
}

static tsr_status open_store(creation *c)
{
    const tsri_ident *id = &c->id;
    char prefix[sizeof id->job + 16];
    if (id->folder[0])
        TSRI_TRY(make_folder(&c->id));
    snprintf(prefix, sizeof prefix, "tessera/%s/", id->job);
    if (!id->hosted && id->rank > 0 && !strncmp(id->url, "tcp:", 4))
        TSRI_TRY(await_new_store(c, prefix));
    return tsri_store_open_under(id->url,
                                 TSR_STORE_OPTS(.timeout_s = c->opts.timeout_s, .rank = id->rank,
                                                .nranks = id->nranks, .hosted = id->hosted),
                                 prefix, &c->store);
}

static void close_store(creation *c, tsr_status status)
{
    char text[3800] = "";
    if (status != TSR_OK) {
        snprintf(text, sizeof text, "%s", tsr_last_error());
        if (c->store && tsr_store_set_timeout(c->store, leave_failed_s) != TSR_OK)
            tsri_error_clear();
    }
    tsr_store_close(c->store);
    c->store = NULL;
    if (c->id.folder[0])
        (void)rmdir(c->id.folder); /* the last to leave can */
    if (status != TSR_OK)
        tsri_fail(status, "%s", text);
}

/* --- this machine's ranks --------------------------------------------------------------------- */

/* Takes the arena that the launcher gave: nodes are neighbours in the order of ranks. */
static tsr_status take_arena(creation *c)
{
    const tsri_ident *id = &c->id;
    tsri_machine *m = &c->machine;
    bool all_here = id->nranks == 1 || id->local_nranks == id->nranks;
    m->nranks = all_here ? id->nranks : id->local_nranks;
    m->index = all_here ? id->rank : id->local_rank;
    if (m->nranks > TSRI_ARENA_MAX_RANKS)
        return tsri_fail(TSR_ERR_INVALID, "%d ranks on one machine: at most %d can be", m->nranks,
                         TSRI_ARENA_MAX_RANKS);
    if (id->rank < m->index || id->rank - m->index + m->nranks > id->nranks)
        return tsri_fail(TSR_ERR_INVALID,
                         "rank %d of %d is the local rank %d of %d: expected the ranks of a "
                         "machine to follow each other",
                         id->rank, id->nranks, m->index, m->nranks);
    for (int i = 0; i < m->nranks; i++)
        m->rank[i] = id->rank - m->index + i;
    return tsri_arena_inherit(id->arena, m->nranks, &m->arena);
}

static tsr_status find_machine(creation *c)
{
    const tsri_ident *id = &c->id;
    if (!id->arena && id->nranks == 1) {
        c->machine = (tsri_machine){.nranks = 1};
        return tsri_arena_make(1, c->opts.arena_bytes, &c->machine.arena);
    }
    if (id->arena)
        TSRI_TRY(take_arena(c));
    if (id->url[0] && id->nranks > 1) {
        tsr_status status = open_store(c);
        if (status == TSR_OK && !id->arena)
            status =
                tsri_machine_meet(c->store, id->rank, id->nranks, c->opts.arena_bytes, &c->machine);
        if (status != TSR_OK)
            tsri_arena_unmap(&c->machine.arena);
        return status;
    }
    return TSR_OK;
}

/* --- the world -------------------------------------------------------------------------------- */

/* The world's communicator becomes one that reaches other machines too. Takes the store. */
static tsr_status reach_others(creation *c, tsr_world *world)
{
    tsri_comm *remote, *local = world->comm;
    char address[64] = "";
    tsri_store_address(c->store, address, sizeof address);
    if (!address[0])
        tsri_machine_address(address, sizeof address);
    if (world->rank == 0)
        TSRI_TRY(tsr_store_set(c->store, kept, "1", 1));
    TSRI_TRY(tsri_gloo_create(world, c->store, address, &remote));
    tsr_store *store = c->store;
    c->store = NULL;
    world->comm = NULL;
    return tsri_hosts_create(world, local, remote, store, c->id.folder, &world->comm);
}

static tsr_status make_world(creation *c, tsr_world **out_world)
{
    const tsri_ident *id = &c->id;
    const tsri_machine *m = &c->machine;
    bool all_here = m->nranks == id->nranks;
    int here = id->local_nranks ? id->local_nranks : m->nranks;
    tsr_status status = tsri_world_opts_resolve(c->given, here, &c->opts);
    if (status != TSR_OK) {
        tsri_arena_unmap(&c->machine.arena);
        return status;
    }
    TSRI_TRY(tsri_world_make(&c->opts, id->nranks, id->rank,
                             id->local_rank >= 0 ? id->local_rank : m->index, m->arena, true,
                             all_here ? NULL : m->rank, out_world));
    if (!all_here)
        status = reach_others(c, *out_world);
    else if (c->store)
        close_store(c, TSR_OK);
    if (status == TSR_OK)
        status = tsr_world_barrier(*out_world);
    if (status == TSR_OK) /* as all have come */
        (*out_world)->nalike = tsri_local_count_alike(
            (const tsri_local *)tsri_comm_on_machine((*out_world)->comm)->priv);
    return status;
}

tsr_status tsr_world_create(const tsr_world_opts *opts, tsr_world **out_world)
{
    creation c = {.given = opts};
    tsr_world *world = NULL;
    if (!out_world)
        return tsri_fail(TSR_ERR_INVALID, "tsr_world_create: out_world is NULL");
    TSRI_TRY(tsri_world_opts_resolve(opts, 1, &c.opts));
    TSRI_TRY(tsri_ident_read(c.opts.init_method, &c.id));
    tsr_status status = find_machine(&c);
    if (status == TSR_OK)
        status = make_world(&c, &world);
    if (status != TSR_OK) {
        tsr_world_destroy(world);
        close_store(&c, status);
        return status;
    }
    if (c.id.arena && c.opts.arena_bytes > world->region.size)
        tsri_log(world, TSR_LOG_WARNING,
                 "arena_bytes asks for %zu bytes, but the launcher gave each rank %zu: set "
                 "TESSERA_ARENA_BYTES for `tessera launch`",
                 c.opts.arena_bytes, world->region.size);
    *out_world = world;
    return TSR_OK;
}
