/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `tessera run`. */
#ifndef TESSERA_CLI_RUN_H
#define TESSERA_CLI_RUN_H

#include "src/cli/cli.h"
#include "src/cli/links.h"
#include "src/comm/comm.h"
#include "src/config/experiment.h"

#include "src/plan/plan.h"

/* What was asked for; shared by the ranks of this process. */
typedef struct run_job {
    const char *path; /* of the experiment */
    const char *out;  /* folder, made already; NULL: no files */
    const tsri_experiment *experiment;
    int64_t steps; /* 0: as the file says */
    bool trace, json, progress;
    tsr_compile_opts opts;
} run_job;

/* What happened on one rank: sent around as it is. */
typedef struct run_figures {
    double compile_s, infer_s, cost_s;            /* cost_s: of a step, as planned */
    double run_s, compute_s, comm_s;              /* in tsr_run, of all steps */
    uint64_t variables, activations, ports, host; /* bytes */
    struct {
        uint64_t calls, bytes;                 /* as the communicator counted them, of all steps */
        uint64_t planned_calls, planned_bytes; /* of one step */
    } coll[TSRI_COLL_KIND_COUNT_];
    double trace_start_s; /* of the traced step */
} run_figures;

/* One rank's run. */
typedef struct run_rank {
    const run_job *job;
    tsr_world *world;
    tsri_program *program;
    tsr_plan *plan;
    int64_t steps;
    double *losses;         /* [steps], after run_gather on all ranks; NULL without a loss */
    double *seconds;        /* [steps] of this rank, feeding included */
    run_figures mine, *all; /* all: [ranks] */
} run_rank;

/* The lowest rank that has an output's value, and writes and prints it. */
int run_owner(const run_rank *r, const char *output);

/* run_files.c: into the job's folder. Each rank writes what it has; rank 0 the result. */
tsr_status run_write_arrays(const run_rank *r);
tsr_status run_write_result(const run_rank *r);
struct cJSON *run_make_result(const run_rank *r);
/* run_trace.c: Chrome's trace events of the last step, of all ranks. Collective. */
tsr_status run_write_trace(const run_rank *r);

/* array_text.c: prints an array as NumPy does: nested brackets, and, of many elements, the first
 * and last three of each axis. */
void cli_print_array(FILE *f, tsr_dtype dtype, tsr_dims dims, const void *data);

/* run_rank.c: what each rank does. arg: a run_job. */
tsr_status run_on_rank(tsr_world *world, void *arg);

#endif
