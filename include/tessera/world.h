/* SPDX-License-Identifier: Apache-2.0 */
/* A world: one rank's view of the group of ranks that run a program together. Everything else
 * hangs on it. A rank is a thread (tsr_spawn) or a process (`tessera launch`). */
#ifndef TESSERA_WORLD_H
#define TESSERA_WORLD_H

#include <tessera/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Destroyed objects: a call with an object that was destroyed, by itself or with its world, is
 * TSR_ERR_INVALID (TSR_ERR_PLACEMENT of a placement, as of one of another world) and names the
 * object; a destroyer does nothing, a call that returns a pointer or a number returns what it does
 * for NULL, and both set the error text. Not detected: an object whose address has become that of a
 * newer object of its kind; what an object keeps of another that was destroyed first, as a graph
 * does of a module and a sampler of a generator; a tsr_worker or tsr_batch_out after its callback;
 * a call that runs while another thread destroys its object. */
/* Thread-safety: a world and all that hangs on it is used by one thread, its rank's. */
typedef struct tsr_world tsr_world;

typedef enum tsr_log_level {
    TSR_LOG_ERROR = 1,
    TSR_LOG_WARNING,
    TSR_LOG_INFO,
    TSR_LOG_DEBUG,
} tsr_log_level;

/* Receives the library's messages; called on the rank's own thread. */
typedef void tsr_log_fn(void *arg, tsr_log_level level, const char *text);

typedef struct tsr_world_opts {
    size_t size; /* of this struct */
    tsr_by_name by_name;
    double timeout_s; /* how long a rank waits for the others in a collective; 0 = 60 */
    int threads; /* compute threads of this rank; 0 = cores / ranks of this machine, at least 1 */
    size_t
        arena_bytes; /* address space kept for this rank's tensors; 0 = by the machine's memory */
    tsr_log_fn *log; /* NULL = warnings and errors to stderr */
    void *log_arg;
    /* How the processes of a run find each other (see tessera/store.h for the forms); NULL: the
     * variable TESSERA_INIT_METHOD, else what the launcher has set. */
    const char *init_method;
} tsr_world_opts;

#define TSR_WORLD_OPTS(...) TSR_OPTIONS(tsr_world_opts, (), __VA_ARGS__)

/*
 * Makes the world of this process. Under `tessera launch`, mpirun, srun or torchrun this process is
 * one rank of several, on one machine or on many; else, unless init_method says more, the only
 * rank. Ranks of a machine share memory; those of different machines talk through Gloo. Collective
 * over all ranks. opts may be NULL. The caller owns *out_world; tsr_world_destroy ends it. Errors:
 * TSR_ERR_INVALID (variables that make no sense), TSR_ERR_NO_MEMORY, TSR_ERR_TIMEOUT naming the
 * ranks that did not come, and those of tsr_store_open.
 */
TSR_API tsr_status tsr_world_create(const tsr_world_opts *opts, tsr_world **out_world);

/*
 * Makes a virtual world: `nranks` ranks that do not exist, seen by `rank`, for planning. Graphs
 * compile and explain in it; nothing can be run, fed or fetched. Not collective.
 */
TSR_API tsr_status tsr_world_create_virtual(int nranks, int rank, tsr_world **out_world);

/* Ends a world and everything that belongs to it (placements, modules, graphs, plans). NULL is
 * fine. Not collective: peers see that the rank has left. */
TSR_API void tsr_world_destroy(tsr_world *world);

/* Returns this rank's number; -1 for NULL. */
TSR_API int tsr_world_rank(const tsr_world *world);
/* Returns the number of ranks of a world; 0 for NULL. */
TSR_API int tsr_world_size(const tsr_world *world);
/* Returns the rank among those of this machine: LOCAL_RANK. */
TSR_API int tsr_world_local_rank(const tsr_world *world);

/* Returns when every rank has called it. Collective over all ranks. */
TSR_API tsr_status tsr_world_barrier(tsr_world *world);

/*
 * Makes this rank's error everybody's: ranks that wait for it fail at once with TSR_ERR_REMOTE and
 * `text`. For a program that gives up outside of Tessera. Not collective.
 */
TSR_API void tsr_world_abort(tsr_world *world, const char *text);

/* The body of a rank. The world is the callee's for the call's length; do not destroy it. */
typedef tsr_status tsr_rank_fn(tsr_world *world, void *arg);

/*
 * Runs fn as `nranks` thread ranks of this process and waits for all. Returns TSR_OK if all did,
 * else the status of the first rank that failed by itself, and its text, with the rank's number,
 * as the calling thread's last error. A rank that returns an error is seen as failed by the others
 * at once. opts may be NULL.
 */
TSR_API tsr_status tsr_spawn_with(int nranks, tsr_rank_fn *fn, void *arg,
                                  const tsr_world_opts *opts);
/* As tsr_spawn_with, with the default options. */
TSR_API tsr_status tsr_spawn(int nranks, tsr_rank_fn *fn, void *arg);
/*
 * Runs fn as ranks that are processes, forked from this one: what fn changes in memory stays in its
 * process. A rank that fails or dies (its signal is named) ends the others: SIGTERM, then SIGKILL.
 * To be called before this process has worlds of its own, and before it has used a GPU: CUDA does
 * not work in children that come later (TSR_ERR_STATE). opts may be NULL.
 */
TSR_API tsr_status tsr_spawn_processes_with(int nranks, tsr_rank_fn *fn, void *arg,
                                            const tsr_world_opts *opts);
/* As tsr_spawn_processes_with, with the default options. */
TSR_API tsr_status tsr_spawn_processes(int nranks, tsr_rank_fn *fn, void *arg);
/*
 * Runs fn, for the main of a program that runs both ways, as this process's rank, where a launcher
 * or an address says that it is one; else as nranks thread ranks, as tsr_spawn_with. nranks is at
 * least 1, also where a launcher's number counts. Errors are
 * those of fn, with the rank's number, and of tsr_world_create. opts may be NULL.
 */
TSR_API tsr_status tsr_start_ranks_with(int nranks, tsr_rank_fn *fn, void *arg,
                                        const tsr_world_opts *opts);
/* As tsr_start_ranks_with, with the default options. */
TSR_API tsr_status tsr_start_ranks(int nranks, tsr_rank_fn *fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
