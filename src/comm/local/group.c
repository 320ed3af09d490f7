/* SPDX-License-Identifier: Apache-2.0 */
/* Groups. The members of a group find each other's counters in a channel of the arena, which the
 * first of them to come claims under a hash of the list of ranks and the lane. */
#include "src/comm/local/local.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static bool is_channel_of(const tsri_channel *ch, int nranks, const int *ranks, int lane)
{
    return ch->lane == lane && ch->nranks == nranks &&
           !memcmp(ch->ranks, ranks, (size_t)nranks * sizeof *ranks);
}

/* By the rank that has claimed it. */
static void fill_channel(const tsri_arena *arena, tsri_channel *ch, int nranks, const int *ranks,
                         int lane)
{
    uint32_t n = (uint32_t)nranks, all = (uint32_t)arena->nranks * TSRI_ARENA_BLOCKS;
    ch->lane = lane;
    ch->nranks = nranks;
    memcpy(ch->ranks, ranks, (size_t)nranks * sizeof *ranks);
    ch->first_block = atomic_fetch_add(&tsri_arena_get_head(arena)->blocks, n);
    bool fits = ch->first_block <= all - n;
    atomic_store(&ch->ready, fits ? TSRI_CHANNEL_READY : TSRI_CHANNEL_FULL);
}

static tsr_status fail_full(const tsri_local *local)
{
    return tsri_fail(TSR_ERR_NO_MEMORY,
                     "the program has too many groups of ranks (lists of ranks, times lanes): at "
                     "most %d, of %d members together",
                     TSRI_ARENA_CHANNELS, local->arena.nranks * TSRI_ARENA_BLOCKS);
}

static tsr_status find_channel(tsri_local *local, int nranks, const int *ranks, int lane,
                               tsri_channel **out_channel)
{
    uint64_t hash =
        tsri_ranks_hash(UINT64_C(0x243f6a8885a308d3) + (uint64_t)(lane + 3), nranks, ranks);
    uint64_t key = hash ? hash : 1;
    for (uint64_t probe = 0; probe < TSRI_ARENA_CHANNELS; probe++) {
        tsri_channel *ch =
            tsri_arena_channel(&local->arena, (int)((key + probe) % TSRI_ARENA_CHANNELS));
        uint64_t there = 0;
        if (atomic_compare_exchange_strong(&ch->key, &there, key)) {
            fill_channel(&local->arena, ch, nranks, ranks, lane);
            there = key;
        }
        if (there != key)
            continue;
        /* A few stores away, unless the claimer was killed just between them. */
        for (int i = 0; i < 1000000 && !atomic_load(&ch->ready); i++)
            sched_yield();
        if (!atomic_load(&ch->ready))
            return tsri_fail(TSR_ERR_DEAD, "a rank died while it made a group of %d ranks", nranks);
        if (!is_channel_of(ch, nranks, ranks, lane))
            continue;
        if (atomic_load(&ch->ready) == TSRI_CHANNEL_FULL)
            break;
        *out_channel = ch;
        return TSR_OK;
    }
    return fail_full(local);
}

static tsr_status check_ranks(const tsri_local *local, int nranks, const int *ranks, int *out_index)
{
    const tsr_world *world = local->pub.world;
    TSRI_TRY(tsri_ranks_check(world, nranks, ranks, "asks for", out_index));
    for (int i = 0; i < nranks; i++)
        if (tsri_local_place_of(local, ranks[i]) < 0)
            return tsri_fail(
                TSR_ERR_INVALID,
                "a group in shared memory with rank %d, which is on another machine than rank %d",
                ranks[i], world->rank);
    return TSR_OK;
}

/* Groups of several communicators on the same ranks are several: "local", "local.3" on devices,
 * "twin" and "twin.2" for other threads. */
static int flight_group_of(const tsri_local *local, int nranks, const int *ranks, int lane,
                           int channel_lane)
{
    char comm[16];
    int first = local->first_lane;
    bool closes = channel_lane <= TSRI_LANE_CLOSING &&
                  channel_lane >= TSRI_LANE_CLOSING - (int)TSRI_DEVICE_COMM_GROUP;
    if (closes) /* no calls */
        return 0;
    if (first < 0)
        snprintf(comm, sizeof comm, first < -2 * TSRI_LANES ? "twin.%d" : "twin",
                 -first / TSRI_LANES - 1);
    else if (channel_lane == TSRI_LANE_AGREE)
        snprintf(comm, sizeof comm, "exchange");
    else
        snprintf(comm, sizeof comm, first ? "local.%d" : "local", first / TSRI_LANES);
    return tsri_flight_group_of(local->pub.world->flight, comm, lane, nranks, ranks);
}

static tsr_status make_group(tsri_local *local, int nranks, const int *ranks, int lane,
                             int channel_lane, int index, tsri_local_group **out_group)
{
    size_t n = (size_t)nranks;
    tsri_local_group *g = tsri_mem_alloc(
        &local->pub.world->mem, sizeof *g + n * (sizeof *g->src + sizeof *g->peer + sizeof *ranks));
    TSRI_NEED(g);
    g->src = (const char **)(g + 1);
    g->peer = (tsri_peer *)(g->src + n);
    int *copy = (int *)(g->peer + n);
    memcpy(copy, ranks, n * sizeof *ranks);
    g->pub = (tsri_group){.comm = &local->pub,
                          .nranks = nranks,
                          .index = index,
                          .ranks = copy,
                          .lane = lane,
                          .flight = flight_group_of(local, nranks, ranks, lane, channel_lane),
                          .priv = g};
    g->local = local;
    if (nranks > 1) {
        tsr_status status = find_channel(local, nranks, ranks, channel_lane, &g->channel);
        if (status != TSR_OK) {
            tsri_mem_free(g);
            return status;
        }
        /* An earlier world of this rank may have been here, or an earlier communicator on device
         * memory, whose numbers go on. The calls that it left unfinished are over; the records that
         * it published stay, for a peer that has yet to look at it. */
        g->members = tsri_arena_members(&local->arena, g->channel);
        g->mine = &g->members[index];
        g->started = (uint64_t)local->worlds << TSRI_SEQ_BITS;
        uint64_t published = atomic_load(&g->mine->published), done = atomic_load(&g->mine->done);
        g->started = g->started < published ? published : g->started;
        g->started = g->started < done ? done : g->started;
        g->finished = g->done = g->started;
        tsri_local_advance(g->mine, TSRI_WAIT_DONE, g->started);
    }
    *out_group = g;
    return TSR_OK;
}

static void free_group(tsri_local_group *g)
{
    if (g->device)
        g->local->mover->close(g);
    if (g->stage)
        tsri_local_stage_give(g);
    tsri_mem_free(g);
}

void tsri_local_groups_free(tsri_local *local)
{
    while (local->groups) {
        tsri_local_group *next = local->groups->next;
        free_group(local->groups);
        local->groups = next;
    }
}

static void keep(tsri_local *local, tsri_local_group *g)
{
    g->next = local->groups;
    local->groups = g;
}

tsr_status tsri_local_group_find(tsri_comm *c, int nranks, const int *ranks, int lane,
                                 tsri_group **out_group)
{
    tsri_local *local = (tsri_local *)c->priv;
    tsri_local_group *g;
    int index;
    for (g = local->groups; g; g = g->next)
        if (tsri_group_is(&g->pub, nranks, ranks, lane)) {
            *out_group = &g->pub;
            return TSR_OK;
        }
    TSRI_TRY(check_ranks(local, nranks, ranks, &index));
    TSRI_TRY(make_group(local, nranks, ranks, lane, lane + local->first_lane, index, &g));
    if (nranks > 1) {
        tsr_status status = local->mover->open(g);
        if (status == TSR_OK && local->first_lane < 0 && lane == 0)
            status = tsri_local_stage_take(g);
        if (status != TSR_OK) {
            free_group(g);
            return status;
        }
    }
    keep(local, g);
    *out_group = &g->pub;
    return TSR_OK;
}

tsr_status tsri_local_group_own(tsri_local *local, int nranks, const int *ranks, int lane,
                                tsri_local_group **out_group)
{
    int index;
    TSRI_TRY(check_ranks(local, nranks, ranks, &index));
    TSRI_TRY(make_group(local, nranks, ranks, lane, lane, index, out_group));
    keep(local, *out_group);
    return TSR_OK;
}
