/* SPDX-License-Identifier: Apache-2.0 */
#include "src/comm/world/make.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/core/live.h"

static void log_to_stderr(void *arg, tsr_log_level level, const char *text)
{
    (void)arg;
    if (level <= TSR_LOG_WARNING)
        fprintf(stderr, "tessera: %s: %s\n", level == TSR_LOG_ERROR ? "error" : "warning", text);
}

/* --- options and variables -------------------------------------------------------------------- */

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

/* OMP_NUM_THREADS is the user's word (or the launcher's), of which the first number counts; else
 * the ranks share the cores. OpenMP itself may have been told otherwise, by an earlier world. */
static int default_threads(int nranks)
{
    const char *text = getenv("OMP_NUM_THREADS");
    if (text && *text) {
        char *end;
        errno = 0;
        long n = strtol(text, &end, 10);
        end += strspn(end, " \t");
        bool is_number = !errno && n > 0 && n <= INT_MAX && (!*end || *end == ',');
        return is_number ? (int)n : omp_get_max_threads();
    }
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
                           tsri_arena arena, bool owns_arena, const int *ranks,
                           tsr_world **out_world)
{
    tsr_world *world = tsri_live_alloc(NULL, sizeof *world, TSRI_LIVE_WORLD);
    if (!world) {
        if (owns_arena)
            tsri_arena_unmap(&arena);
        return TSR_ERR_NO_MEMORY;
    }
    world->rank = rank;
    world->nranks = nranks;
    world->local_rank = local_rank;
    world->nalike = arena.nranks;
    world->is_thread = !owns_arena && nranks > 1;
    world->threads = resolved->threads;
    world->timeout_s = resolved->timeout_s;
    world->log = resolved->log;
    world->log_arg = resolved->log_arg;
    tsr_status status = tsri_local_create(world, arena, owns_arena, ranks, &world->comm);
    if (status != TSR_OK) {
        tsri_live_free(world, TSRI_LIVE_WORLD);
        return status;
    }
    omp_set_num_threads(world->threads);
    *out_world = world;
    return TSR_OK;
}

tsr_status tsr_world_create_virtual(int nranks, int rank, tsr_world **out_world)
{
    tsr_world_opts o;
    if (!out_world)
        return tsri_fail(TSR_ERR_INVALID, "tsr_world_create_virtual: out_world is NULL");
    if (nranks < 1 || rank < 0 || rank >= nranks)
        return tsri_fail(TSR_ERR_INVALID, "a virtual world of %d ranks, seen by rank %d", nranks,
                         rank);
    TSRI_TRY(tsri_world_opts_resolve(NULL, 1, &o));
    tsr_world *world = tsri_live_alloc(NULL, sizeof *world, TSRI_LIVE_WORLD);
    TSRI_NEED(world);
    world->rank = world->local_rank = rank;
    world->nranks = world->nalike = nranks;
    world->is_virtual = true;
    world->threads = o.threads;
    world->timeout_s = o.timeout_s;
    world->log = o.log;
    *out_world = world;
    return TSR_OK;
}

void tsr_world_destroy(tsr_world *world)
{
    if (!tsri_is_live(world, TSRI_LIVE_WORLD, __func__))
        return;
    tsri_world_destroy_owned(world);
    if (world->comm)
        world->comm->ops->destroy(world->comm);
    tsri_live_free(world, TSRI_LIVE_WORLD);
}

tsr_status tsri_world_run(tsr_world *world, tsr_rank_fn *fn, void *arg)
{
    tsri_error_clear();
    tsr_status status = fn(world, arg);
    if (status != TSR_OK && !tsr_last_error()[0])
        tsri_fail(status, "its function returned %s", tsr_status_name(status));
    return status;
}

/* --- using ------------------------------------------------------------------------------------ */

int tsr_world_rank(const tsr_world *world)
{
    return tsri_is_live(world, TSRI_LIVE_WORLD, __func__) ? world->rank : -1;
}

int tsr_world_size(const tsr_world *world)
{
    return tsri_is_live(world, TSRI_LIVE_WORLD, __func__) ? world->nranks : 0;
}

int tsr_world_local_rank(const tsr_world *world)
{
    return tsri_is_live(world, TSRI_LIVE_WORLD, __func__) ? world->local_rank : -1;
}

tsr_status tsr_world_barrier(tsr_world *world)
{
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    if (!world)
        return tsri_fail(TSR_ERR_INVALID, "a barrier of no world (did its creation fail?)");
    if (world->is_virtual)
        return tsri_fail(TSR_ERR_STATE, "a barrier in a virtual world: its ranks do not exist");
    tsri_group *g;
    const tsri_coll coll = {.kind = TSRI_COLL_BARRIER, .what = "tsr_world_barrier"};
    TSRI_TRY(tsri_comm_everybody(world->comm, &g));
    return tsri_comm_call(g, &coll);
}

void tsr_world_abort(tsr_world *world, const char *text)
{
    if (tsri_is_live(world, TSRI_LIVE_WORLD, __func__) && world->comm)
        world->comm->ops->abort(world->comm, text ? text : "");
}
