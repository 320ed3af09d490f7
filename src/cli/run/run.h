/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `tessera run`. */
#ifndef TESSERA_CLI_RUN_RUN_H
#define TESSERA_CLI_RUN_RUN_H

#include "src/cli/cli.h"
#include "src/cli/links.h"
#include "src/comm/comm.h"
#include "src/config/experiment.h"

#include "src/plan/plan.h"

/* The request; shared by the ranks of this process. */
typedef struct run_job {
    const char *path; /* of the experiment */
    const char *html; /* a file for the page; NULL: none */
    const char *out;  /* folder, made already; NULL: no files */
    const tsri_experiment *experiment;
    int64_t steps; /* 0: as the file says */
    bool trace, json, progress;
    tsr_compile_opts opts;
    _Atomic int stopped_by; /* the signal that the ranks have agreed to stop for; 0: none */
} run_job;

typedef struct run_watch run_watch;

/* The figures of one rank: sent around as they are. */
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
    run_job *job;
    tsr_world *world;
    tsri_program *program;
    tsr_plan *plan;
    int64_t steps;      /* that were done */
    int64_t planned;    /* steps; more than were done where the run was interrupted */
    bool is_alone;      /* a step was left in the middle: the other ranks' figures are not known */
    char failure[2048]; /* what the run failed with; "": it did not */
    double printed_s;   /* when the last line of a loss was */
    run_watch *watch;   /* of the process; NULL: another rank has it */
    double *losses;     /* [steps], after run_gather on all ranks; NULL without a loss */
    double *seconds;    /* [steps] of this rank, feeding included */
    run_figures mine, *all; /* all: [ranks] */
} run_rank;

/* The plan's output of that name; all zeros if there is none. */
tsr_port run_port(const run_rank *r, const char *output);
/* The lowest rank that has an output's value, and writes and prints it. */
int run_owner(const run_rank *r, const char *output);

/* files.c: into the job's folder. Each rank writes what it has; rank 0 the result. */
tsr_status run_write_arrays(const run_rank *r);
tsr_status run_write_result(const run_rank *r);
/* page.c: the result as a page, where one is asked for. */
tsr_status run_write_page(const run_rank *r);
struct cJSON *run_make_result(const run_rank *r);
/* trace.c: Chrome's trace events of the last step, of all ranks. Collective. */
tsr_status run_write_trace(const run_rank *r);

/*
 * stop.c: SIGINT and SIGTERM. Before run_watch_start they end the process with 128 + signal.
 * After it the first one is noted, and the ranks stop together behind a step; if the step has not
 * ended within 0.5 s, or half as long again as the longest one before, the watch aborts the world.
 * A second signal ends the process at once. A signal that was ignored at the start stays ignored.
 */
void run_stop_open(void);
/* The text with which the watch aborts. */
#define RUN_STEP_LEFT "the run was interrupted, and its step did not end"
/* The signal that has come, or 0. */
int run_stop_signal(void);
/* NULL: without a thread, a step may take as long as it likes. */
run_watch *run_watch_start(tsr_world *world);
void run_watch_step(run_watch *w, double seconds);
void run_watch_end(run_watch *w);

/* array_text.c: prints an array as NumPy does: nested brackets, and, of many elements, the first
 * and last three of each axis. */
void cli_print_array(FILE *f, tsr_dtype dtype, tsr_dims dims, const void *data);

/* run.c: whether this process is one rank of several. */
bool run_is_launched(void);

/* rank.c: what each rank does. arg: a run_job. */
tsr_status run_on_rank(tsr_world *world, void *arg);

#endif
