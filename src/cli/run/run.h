/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `tessera run`. */
#ifndef TESSERA_CLI_RUN_RUN_H
#define TESSERA_CLI_RUN_RUN_H

#include <tessera/checkpoint.h>

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
    int64_t steps;     /* 0: as the file says */
    double base_bytes; /* that the process has used when it begins */
    bool trace, json, progress;
    tsr_compile_opts opts;
    _Atomic int stopped_by; /* the signal that the ranks have agreed to stop for; 0: none */
} run_job;

typedef struct run_watch run_watch;

/* The figures of one rank: sent around as they are. */
typedef struct run_figures {
    double compile_s, infer_s, cost_s, step_s;    /* step_s: of a step, as planned */
    double run_s, compute_s, comm_s;              /* in tsr_run, of all steps */
    uint64_t variables, activations, ports, host; /* bytes */
    uint64_t scratch; /* of activations: kernels', which a plan without devices does not know */
    uint64_t kept;    /* packed weights; as scratch */
    struct {
        uint64_t calls, bytes;                 /* as the communicator counted them, of all steps */
        uint64_t planned_calls, planned_bytes; /* of each step */
        uint64_t once_calls, once_bytes;       /* planned beside these for a step that updates */
    } coll[TSRI_COLL_KIND_COUNT_];
    double trace_start_s; /* of the traced step */
} run_figures;

/* An evaluation after so many steps. */
typedef struct run_eval {
    int64_t step;
    double seconds;
    tsri_evaluation mean;
} run_eval;

/* The part of a checkpoint that says what its steps were. */
typedef struct run_saved {
    int64_t rows, steps_per_epoch;
} run_saved;

/* Where figures go as they come, on the rank that speaks. */
typedef struct run_metrics {
    FILE *lines, *events; /* NULL: not asked for */
    double start_s;
} run_metrics;

/* One rank's run. */
typedef struct run_rank {
    run_job *job;
    tsr_world *world;
    tsri_program *program;
    tsr_plan *plan;
    int64_t first;      /* steps that were done before, of a run that goes on */
    int64_t steps;      /* that were done by this one */
    int64_t planned;    /* steps in all; more than were done where the run was interrupted */
    bool is_traced;     /* the trace of its last step is written */
    bool speaks;        /* has the loss, and prints */
    bool is_alone;      /* a step was left in the middle: the other ranks' figures are not known */
    char failure[2048]; /* what the run failed with; "": it did not */
    double printed_s;   /* when the last line of a loss was */
    int64_t printed_steps;      /* that it and those before it speak of */
    run_watch *watch;           /* of the process; NULL: another rank has it */
    tsr_checkpoint *checkpoint; /* NULL: none is kept */
    run_saved of;               /* of the checkpoint that was loaded, or will be saved */
    char *dump;                 /* the experiment, which checkpoints hold; NULL: none is kept */
    char *changes;              /* since the checkpoint, a line each; NULL: none */
    bool is_refused;            /* the checkpoint is not of this experiment */
    int64_t saved, evaluated;   /* after which step last; -1: never */
    run_metrics metrics;
    int nevals;
    run_eval *evals;        /* [nevals], on all ranks */
    double *losses;         /* [steps], after run_gather on all ranks; NULL without a loss */
    double *seconds;        /* [steps] of this rank, feeding included */
    run_figures mine, *all; /* all: [ranks] */
} run_rank;

/* The plan's output of that name; all zeros if there is none. */
tsr_port run_port(const run_rank *r, const char *output);
/* The lowest rank that has an output's value, and writes and prints it. */
int run_owner(const run_rank *r, const char *output);

/* The output that is the loss; NULL: there is none. */
const tsri_fetch *run_loss(const tsri_program *p);
tsr_status run_no_memory(void);
/* Bytes of a rank, as planned. */
uint64_t run_memory(const run_figures *f);

/* show.c: the lines of the rank that speaks. */
void run_show_header(const run_rank *r);
/* The i-th step of this run. */
void run_show_loss(run_rank *r, int64_t i);
void run_show_progress(const run_rank *r, int64_t i);
void run_clear_progress(const run_rank *r);
/* A number in so many digits; "nan" of either sign. */
char *run_number(double v, int digits, char buf[CLI_NUMBER_MAX]);
void run_show_eval(const run_rank *r, const run_eval *e);
/* The values of a graph, printed by the ranks that have them, one after the other. Collective. */
tsr_status run_print_values(const run_rank *r);

/* rank.c: whether a signal has come to any rank. Collective. */
tsr_status run_agree_to_stop(run_rank *r, bool *stops);

/* upkeep.c: evaluation and checkpoints; nothing where the experiment speaks of none. Collective. */
/* Before the first step: r->first is the step from which the run goes on. */
tsr_status run_upkeep_open(run_rank *r);
/* After each step; *stops: whether a signal has come meanwhile. */
tsr_status run_upkeep_step(run_rank *r, bool *stops);
/* After the last one: the checkpoint and the weights. */
tsr_status run_upkeep_finish(run_rank *r);

/* metrics.c: on the rank that speaks; nothing where the experiment names no files. */
tsr_status run_metrics_open(run_rank *r);
/* The i-th step of this run, whose update was made with that rate. */
void run_metrics_step(const run_rank *r, int64_t i, double lr);
void run_metrics_eval(const run_rank *r, const run_eval *e);
void run_metrics_checkpoint(const run_rank *r, int64_t step, double seconds);
/* Closes the files, of which an earlier write may have failed. */
tsr_status run_metrics_close(run_rank *r);

/* events.c */
typedef struct run_scalar {
    const char *tag;
    double value;
} run_scalar;
/* A new file of events in the folder, which is made, of a run that begins behind that step. */
tsr_status run_events_open(const char *folder, int64_t step, FILE **out_file);
/* f may be NULL. */
void run_events_add(FILE *f, int64_t step, int n, const run_scalar *scalars);

/* summary.c: seconds of a step on this rank, by kind of op and collective, the largest first. */
typedef struct run_kind {
    const char *what;
    bool is_comm;
    double planned_s, measured_s;
} run_kind;
enum { RUN_KINDS = TSRI_OP_COUNT_ + TSRI_COLL_KIND_COUNT_ + 1 };
int run_kinds(const tsr_plan *plan, run_kind kinds[RUN_KINDS]);
void run_print_summary(const run_rank *r);
/* A line of /proc/self/status: "VmHWM:" is the most memory that the process has had, and not, as
 * that of getrusage may be, what its parent had when it forked. 0: there is no such file. */
double run_process_bytes(const char *key);

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
/* From now on to now something is done that is no step, and may take its time. */
void run_watch_hold(run_watch *w, bool held);
void run_watch_end(run_watch *w);

/* array_text.c: prints an array as NumPy does: nested brackets, and, of many elements, the first
 * and last three of each axis. */
void cli_print_array(FILE *f, tsr_dtype dtype, tsr_dims dims, const void *data);

/* run.c: whether this process is one rank of several. */
bool run_is_launched(void);

/* rank.c: what each rank does. arg: a run_job. */
tsr_status run_on_rank(tsr_world *world, void *arg);

#endif
