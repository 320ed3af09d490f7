/* SPDX-License-Identifier: Apache-2.0 */
/* Running a program on thread ranks, and what came of it. */
#ifndef TESTS_PROGRAMS_EXECUTE_H
#define TESTS_PROGRAMS_EXECUTE_H

#include "program.h"

#include "src/core/op_list.h"

/* Something that a rank read: a shard, or a whole value. */
typedef struct item {
    bool here; /* the rank has it */
    int64_t n;
    tsr_dims dims;
    tsr_sbp sbp;
    int nranks, ndim, dim[4], ranks[MAX_RANKS];
    double *v;
} item;

/* One rank's view, in the order of the program. */
typedef struct rank_log {
    tsr_status status;
    bool refused; /* by tsr_compile, or by an op that has no gradient */
    char where[48], text[600];
    int nitems, citems;
    item *items;
    uint64_t rejected_limits; /* memory limits that no plan kept */
    /* Plans with micro-batches; those that cannot have them, by sizes and by ops, run whole. */
    uint64_t plans_in_parts, parts_by_size, parts_by_op;
    char parts_text[600]; /* why the last of these cannot */
} rank_log;

typedef struct run_log {
    const program *p;
    rank_log rank[MAX_RANKS];
    char path[64], folder[64]; /* for saving */
    int nops[TSRI_OP_COUNT_];  /* how often each op of the library was in a graph (rank 0) */
} run_log;

void execute(const program *p, run_log *log);
void run_log_free(run_log *log);

/* The shard of a rank, by the definition alone: false if the rank has none. */
bool shard_of(tsr_dims dims, const item *at, int rank, int64_t first[TSR_MAX_NDIM], tsr_dims *out);

/* What a comparison found. */
typedef struct verdict {
    bool failed, refused;
    int kind; /* of failure: 0 a wrong value, else a status, or 1000 and a signal */
    char text[1200];
    int64_t compared, skipped;
} verdict;
void judge(const program *p, const run_log *log, verdict *out);
/* Executes and judges; by bit class on one rank, and with other kernels, if it is special. */
void run_and_judge(const program *p, run_log *log, verdict *out);

/* Removes the option that a compile was refused for. Returns false if it failed for another reason.
 * In judge.c. */
bool execute_asks_less(rank_log *m, tsr_status status, tsr_compile_opts *opts);

#endif
