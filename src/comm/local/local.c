/* SPDX-License-Identifier: Apache-2.0 */
/* Making and ending the local communicator, and its vtable. */
#include "src/comm/local/local.h"
#include "src/core/rng.h"

#include <tessera/placement.h>

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static tsri_local *of(tsri_comm *c)
{
    return (tsri_local *)c->priv;
}

/* Synchronous, so two buffers do: who writes a third time has seen all read the first. */
static tsr_status exchange(tsri_comm *c, const void *mine, size_t bytes, void *all,
                           uint64_t *number)
{
    tsri_local *local = of(c);
    tsri_local_group *g = local->agree;
    TSRI_TRY(tsri_local_check_abort(local));
    if (bytes > TSRI_EXCHANGE_MAX)
        return tsri_fail(TSR_ERR_INVALID, "exchange of %zu bytes: at most %d", bytes,
                         TSRI_EXCHANGE_MAX);
    int n = local->arena.nranks;
    if (n == 1) {
        if (bytes)
            memcpy(all, mine, bytes);
        return TSR_OK;
    }
    tsri_call_entry call = {.kind = TSRI_COLL_EXCHANGE_, .bytes = bytes}, *record;
    *number = tsri_call_record(g, &(tsri_coll){0}, &call, g->started + 1);
    TSRI_TRY(tsri_call_enter(g, &call, &record));
    if (bytes)
        memcpy(tsri_local_slot(local, c->world->rank)->exchange[call.seq & 1], mine, bytes);
    tsri_local_advance(g->mine, TSRI_WAIT_PUBLISHED, call.seq);
    g->finished = call.seq;
    TSRI_TRY(tsri_call_meet(g, call.seq));
    for (int r = 0; bytes && r < n; r++)
        memcpy((char *)all + (size_t)r * bytes,
               tsri_arena_slot(&local->arena, r)->exchange[call.seq & 1], bytes);
    tsri_call_done(g, call.seq);
    return TSR_OK;
}

static tsr_status local_exchange(tsri_comm *c, const void *mine, size_t bytes, void *all)
{
    uint64_t number = 0;
    tsr_status status = exchange(c, mine, bytes, all, &number);
    return tsri_flight_end(c->world, number, status);
}

static void local_destroy(tsri_comm *c)
{
    if (!c)
        return;
    tsri_local *local = of(c);
    tsri_rank_slot *slot = tsri_local_slot(local, c->world->rank);
    int pid = tsri_rank_pid_of(atomic_load(&slot->holder));
    atomic_store(&slot->holder, tsri_rank_holder(TSRI_RANK_LEFT, pid));
    tsri_local_groups_free(local);
    for (int i = 0; local->pidfds && i < local->arena.nranks; i++)
        if (local->pidfds[i] > 0)
            close(local->pidfds[i] - 1);
    tsri_mem_free(local->pidfds);
    tsri_mem_free(local->place);
    if (local->owns_arena)
        tsri_arena_unmap(&local->arena);
    tsri_region_finish(&c->world->region);
    tsri_mem_free(local);
}

static tsri_comm *get_itself(tsri_comm *c)
{
    return c;
}

static const tsri_comm_ops ops = {
    .size = sizeof ops,
    .name = "local",
    .group = tsri_local_group_find,
    .start = tsri_local_start,
    .finish = tsri_local_finish,
    .release = tsri_local_release,
    .exchange = local_exchange,
    .abort = tsri_local_abort,
    .stats = tsri_local_stats,
    .destroy = local_destroy,
    .check = tsri_local_check,
    .twin = tsri_local_twin,
    .on_machine = get_itself,
    .released = tsri_local_released,
    .poison = tsri_local_poison,
    .prepare = tsri_local_prepare,
    .unprepare = tsri_local_unprepare,
};

/* A number for the GPUs that the process sees: its order is the ranks', so equal texts alone mean
 * the same. */
static uint64_t sees(void)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    return tsri_hash(TSRI_HASH_INIT, text, text ? strlen(text) : 0);
}

int tsri_local_count_alike(const tsri_local *local)
{
    int n = 0;
    uint64_t mine = atomic_load(&tsri_local_slot(local, local->pub.world->rank)->sees);
    for (int i = 0; i < local->arena.nranks; i++)
        n += atomic_load(&tsri_arena_slot(&local->arena, i)->sees) == mine;
    return n;
}

/* Whether process `me` may take the place of rank `rank` from its holder. */
static tsr_status check_holder(uint64_t holder, int rank, int me)
{
    int pid = tsri_rank_pid_of(holder), pidfd = 0;
    if (tsri_rank_state_of(holder) != TSRI_RANK_HERE)
        return TSR_OK;
    if (pid == me)
        return tsri_fail(TSR_ERR_STATE, "rank %d of this process has a world already", rank);
    bool gone = tsri_local_pid_gone(pid, &pidfd);
    if (pidfd > 0)
        close(pidfd - 1);
    return gone ? TSR_OK
                : tsri_fail(TSR_ERR_INVALID,
                            "process %d is rank %d already: RANK must differ from process to "
                            "process",
                            pid, rank);
}

/* Takes the rank's place in the arena. A place that was left can be taken again. If several
 * processes want it at once, one gets it. */
static tsr_status take_slot(tsri_local *local, bool is_process)
{
    int rank = local->pub.world->rank, me = is_process ? (int)getpid() : 0;
    tsri_rank_slot *slot = tsri_local_slot(local, rank);
    uint64_t holder = atomic_load(&slot->holder), mine = tsri_rank_holder(TSRI_RANK_HERE, me);
    do
        TSRI_TRY(check_holder(holder, rank, me));
    while (!atomic_compare_exchange_strong(&slot->holder, &holder, mine));
    atomic_store(&slot->sees, sees());
    local->worlds = atomic_fetch_add(&slot->worlds, 1) + 1;
    return TSR_OK;
}

static void open_flight(tsri_local *local)
{
    tsr_world *world = local->pub.world;
    const char *restart = getenv("TORCHELASTIC_RESTART_COUNT"); /* torchrun's name */
    const char *id = getenv("TESSERA_RUN_ID");                  /* one for all machines */
    char run[TSRI_FLIGHT_RUN];
    if (id && *id)
        snprintf(run, sizeof run, "%.*s", TSRI_FLIGHT_RUN - 1, id);
    else
        snprintf(run, sizeof run, "%016" PRIx64, tsri_arena_get_head(&local->arena)->run);
    world->flight = tsri_arena_flight(&local->arena, tsri_local_place_of(local, world->rank));
    atomic_store(&world->flight->restart, restart ? atoi(restart) : 0);
    tsri_flight_open(world->flight, world->rank, world->nranks, local->worlds, run);
}

/* Spinning helps only while every rank has a core; else it keeps the awaited rank from running. A
 * process that may not use all cores has been bound, as mpirun does it: the others are elsewhere.
 */
static int spins_for(int nranks, bool is_process)
{
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    long all = sysconf(_SC_NPROCESSORS_ONLN);
    if (is_process && cores < all)
        cores = (int)all;
    return nranks > cores ? 20 : 2000;
}

/* Gives each rank its place; `ranks` NULL: every rank its own. */
static tsr_status set_places(tsri_local *local, const int *ranks)
{
    const tsr_world *world = local->pub.world;
    local->place = tsri_mem_alloc(&local->pub.world->mem, (size_t)world->nranks * sizeof(int));
    TSRI_NEED(local->place);
    for (int r = 0; r < world->nranks; r++)
        local->place[r] = ranks ? -1 : r;
    for (int i = 0; ranks && i < local->arena.nranks; i++)
        local->place[ranks[i]] = i;
    return TSR_OK;
}

static tsr_status make_agree(tsri_local *local, const int *ranks)
{
    int all[TSRI_ARENA_MAX_RANKS];
    for (int i = 0; i < local->arena.nranks; i++)
        all[i] = ranks ? ranks[i] : i;
    return tsri_local_group_own(local, local->arena.nranks, all, TSRI_LANE_AGREE, &local->agree);
}

tsr_status tsri_local_create(tsr_world *world, tsri_arena arena, bool owns_arena, const int *ranks,
                             tsri_comm **out_comm)
{
    tsr_status status = TSR_ERR_NO_MEMORY;
    tsri_local *local = tsri_mem_alloc(&world->mem, sizeof *local);
    if (!local)
        goto fail;
    *local = (tsri_local){.pub = {.ops = &ops, .world = world, .priv = local, .in_region = true},
                          .host = local,
                          .mover = &tsri_mover_host,
                          .region = &world->region,
                          .arena = arena,
                          .owns_arena = owns_arena,
                          .spins = spins_for(arena.nranks, owns_arena),
                          .lock = PTHREAD_MUTEX_INITIALIZER};
    TSRI_GOTO(set_places(local, ranks), fail);
    status = TSR_ERR_NO_MEMORY;
    local->pidfds = tsri_mem_alloc(&world->mem, (size_t)arena.nranks * sizeof *local->pidfds);
    if (!local->pidfds)
        goto fail;
    TSRI_GOTO(take_slot(local, owns_arena), fail);
    open_flight(local);
    char *region = tsri_arena_region(&arena, tsri_local_place_of(local, world->rank));
    world->region = (tsri_region){
        .base = region, .size = arena.layout.bytes_per_rank, .top = arena.layout.bytes_per_rank};
    status = make_agree(local, ranks);
    if (status != TSR_OK) {
        local_destroy(&local->pub);
        return status;
    }
    *out_comm = &local->pub;
    return TSR_OK;
fail:
    if (local) {
        tsri_mem_free(local->pidfds);
        tsri_mem_free(local->place);
    }
    tsri_mem_free(local);
    if (owns_arena)
        tsri_arena_unmap(&arena);
    return status;
}
