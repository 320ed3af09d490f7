/* SPDX-License-Identifier: Apache-2.0 */
#include "src/comm/world_make.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void log_to_stderr(void *arg, tsr_log_level level, const char *text)
{
    (void)arg;
    if (level <= TSR_LOG_WARNING)
        fprintf(stderr, "tessera: %s: %s\n", level == TSR_LOG_ERROR ? "error" : "warning", text);
}

/* --- options and variables -------------------------------------------------------------------- */

static tsr_status env_int(const char *name, int least, bool *out_set, int *out_value)
{
    const char *text = getenv(name);
    *out_set = text && *text;
    if (!*out_set)
        return TSR_OK;
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (errno || *end || v < least || v > INT_MAX)
        return tsri_fail(TSR_ERR_INVALID,
                         "the variable %s is '%s': expected a whole number from %d", name, text,
                         least);
    *out_value = (int)v;
    return TSR_OK;
}

static tsr_status default_timeout(double *out_s)
{
    const char *text = getenv("TESSERA_TIMEOUT_S");
    *out_s = 60;
    if (!text || !*text)
        return TSR_OK;
    char *end;
    double v = strtod(text, &end);
    if (*end || !(v > 0) || isinf(v))
        return tsri_fail(TSR_ERR_INVALID,
                         "the variable TESSERA_TIMEOUT_S is '%s': expected seconds, above 0", text);
    *out_s = v;
    return TSR_OK;
}

/* OMP_NUM_THREADS is the user's word (or the launcher's); else the ranks share the cores. */
static int default_threads(int nranks)
{
    const char *text = getenv("OMP_NUM_THREADS");
    if (text && *text)
        return omp_get_max_threads();
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    return cores / nranks > 1 ? cores / nranks : 1;
}

tsr_status tsri_world_opts_resolve(const tsr_world_opts *opts, int nranks, tsr_world_opts *out)
{
    tsr_world_opts o = {0};
    if (opts) {
        if (opts->size < offsetof(tsr_world_opts, timeout_s))
            return tsri_fail(TSR_ERR_INVALID,
                             "tsr_world_opts.size is %zu: make options with TSR_WORLD_OPTS(...)",
                             opts->size);
        memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    }
    if (!(o.timeout_s >= 0) || isinf(o.timeout_s))
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_world_opts.timeout_s is %g: expected seconds, or 0 for 60",
                         o.timeout_s);
    if (o.threads < 0)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_world_opts.threads is %d: expected a count, or 0 for the default",
                         o.threads);
    o.size = sizeof o;
    if (o.timeout_s == 0)
        TSRI_TRY(default_timeout(&o.timeout_s));
    if (o.threads == 0)
        o.threads = default_threads(nranks);
    if (!o.log)
        o.log = log_to_stderr;
    *out = o;
    return TSR_OK;
}

/* --- making and ending ------------------------------------------------------------------------ */

tsr_status tsri_world_make(const tsr_world_opts *resolved, int nranks, int rank, int local_rank,
                           tsri_arena arena, bool owns_arena, tsr_world **out_world)
{
    tsr_world *world = tsri_mem_alloc(NULL, sizeof *world);
    if (!world) {
        if (owns_arena)
            tsri_arena_unmap(&arena);
        return TSR_ERR_NO_MEMORY;
    }
    world->rank = rank;
    world->nranks = nranks;
    world->local_rank = local_rank;
    world->is_thread = !owns_arena && nranks > 1;
    world->threads = resolved->threads;
    world->timeout_s = resolved->timeout_s;
    world->log = resolved->log;
    world->log_arg = resolved->log_arg;
    tsr_status status = tsri_local_create(world, arena, owns_arena, NULL, &world->comm);
    if (status != TSR_OK) {
        tsri_mem_free(world);
        return status;
    }
    omp_set_num_threads(world->threads);
    *out_world = world;
    return TSR_OK;
}

/* Who this process is: the variables that a launcher sets. */
static tsr_status read_ranks(int *out_nranks, int *out_rank, int *out_local_rank)
{
    bool has_size, has_rank, has_local, has_arena = getenv("TESSERA_ARENA") != NULL;
    int nranks = 1, rank = 0, local_rank = 0;
    TSRI_TRY(env_int("WORLD_SIZE", 1, &has_size, &nranks));
    TSRI_TRY(env_int("RANK", 0, &has_rank, &rank));
    TSRI_TRY(env_int("LOCAL_RANK", 0, &has_local, &local_rank));
    if (has_size != has_rank)
        return tsri_fail(TSR_ERR_INVALID, "%s is set, but %s is not: `tessera launch` sets both",
                         has_size ? "WORLD_SIZE" : "RANK", has_size ? "RANK" : "WORLD_SIZE");
    if (rank >= nranks)
        return tsri_fail(TSR_ERR_INVALID, "RANK is %d, but WORLD_SIZE is %d", rank, nranks);
    if (nranks > TSRI_ARENA_MAX_RANKS)
        return tsri_fail(TSR_ERR_INVALID, "WORLD_SIZE is %d: at most %d ranks share a machine",
                         nranks, TSRI_ARENA_MAX_RANKS);
    if (nranks > 1 && !has_arena)
        return tsri_fail(TSR_ERR_INVALID,
                         "WORLD_SIZE is %d, but TESSERA_ARENA is not set: start the program with "
                         "`tessera launch -n %d`",
                         nranks, nranks);
    *out_nranks = nranks;
    *out_rank = rank;
    *out_local_rank = has_local ? local_rank : rank;
    return TSR_OK;
}

tsr_status tsr_world_create(const tsr_world_opts *opts, tsr_world **out_world)
{
    int nranks = 1, rank = 0, local_rank = 0;
    tsr_world_opts o;
    tsri_arena arena;
    tsr_world *world;
    TSRI_TRY(read_ranks(&nranks, &rank, &local_rank));
    TSRI_TRY(tsri_world_opts_resolve(opts, nranks, &o));
    const char *inherited = getenv("TESSERA_ARENA");
    if (inherited)
        TSRI_TRY(tsri_arena_inherit(inherited, nranks, &arena));
    else
        TSRI_TRY(tsri_arena_make(1, o.arena_bytes, &arena));
    TSRI_TRY(tsri_world_make(&o, nranks, rank, local_rank, arena, true, &world));
    if (o.arena_bytes > world->region.size)
        tsri_log(world, TSR_LOG_WARNING,
                 "arena_bytes asks for %zu bytes, but the launcher gave each rank %zu: set "
                 "TESSERA_ARENA_BYTES for `tessera launch`",
                 o.arena_bytes, world->region.size);
    tsr_status status = tsr_world_barrier(world);
    if (status != TSR_OK) {
        tsr_world_destroy(world);
        return status;
    }
    *out_world = world;
    return TSR_OK;
}

tsr_status tsr_world_create_virtual(int nranks, int rank, tsr_world **out_world)
{
    tsr_world_opts o;
    if (nranks < 1 || rank < 0 || rank >= nranks)
        return tsri_fail(TSR_ERR_INVALID, "a virtual world of %d ranks, seen by rank %d", nranks,
                         rank);
    TSRI_TRY(tsri_world_opts_resolve(NULL, 1, &o));
    tsr_world *world = tsri_mem_alloc(NULL, sizeof *world);
    if (!world)
        return TSR_ERR_NO_MEMORY;
    world->rank = world->local_rank = rank;
    world->nranks = nranks;
    world->is_virtual = true;
    world->threads = o.threads;
    world->timeout_s = o.timeout_s;
    world->log = o.log;
    *out_world = world;
    return TSR_OK;
}

void tsr_world_destroy(tsr_world *world)
{
    if (!world)
        return;
    tsri_world_destroy_owned(world);
    if (world->comm)
        world->comm->ops->destroy(world->comm);
    tsri_mem_free(world);
}

/* --- using ------------------------------------------------------------------------------------ */

int tsr_world_rank(const tsr_world *world)
{
    return world ? world->rank : -1;
}

int tsr_world_size(const tsr_world *world)
{
    return world ? world->nranks : 0;
}

int tsr_world_local_rank(const tsr_world *world)
{
    return world ? world->local_rank : -1;
}

tsr_status tsr_world_barrier(tsr_world *world)
{
    if (!world)
        return tsri_fail(TSR_ERR_INVALID, "a barrier of no world (did its creation fail?)");
    if (world->is_virtual)
        return tsri_fail(TSR_ERR_STATE, "a barrier in a virtual world: its ranks do not exist");
    tsri_comm *c = world->comm;
    int ranks[TSRI_ARENA_MAX_RANKS];
    for (int i = 0; i < world->nranks; i++)
        ranks[i] = i;
    tsri_group *g;
    tsri_ticket ticket;
    const tsri_coll coll = {.kind = TSRI_COLL_BARRIER, .what = "tsr_world_barrier"};
    TSRI_TRY(c->ops->group(c, world->nranks, ranks, 0, &g));
    TSRI_TRY(c->ops->start(g, &coll, &ticket));
    TSRI_TRY(c->ops->finish(g, &ticket));
    return c->ops->release(g, &ticket);
}

void tsr_world_abort(tsr_world *world, const char *text)
{
    if (world && world->comm)
        world->comm->ops->abort(world->comm, text ? text : "");
}
