/* SPDX-License-Identifier: Apache-2.0 */
/* Questions asked of plans: why a tensor is as it is, how plans differ, and what a change does. */
#ifndef TESSERA_CLI_PLAN_ASK_H
#define TESSERA_CLI_PLAN_ASK_H

#include "src/cli/options.h"
#include "src/cli/plan/plan.h"

/* --- make.c: a file's plan -------------------------------------------------------------------- */
/* How a plan is made: as the command line says. */
typedef struct plan_source {
    const char *path;
    int nsets;
    const char *const *sets;
    int ranks;           /* 0: those that the file names */
    size_t memory_limit; /* 0: the file's own */
    bool alternatives;
} plan_source;

/* A plan, and all that it stands on. */
typedef struct plan_made {
    const plan_source *from;
    tsri_experiment *experiment;
    tsr_world *world;
    tsri_program *program;
    cli_links links;
    tsr_compile_opts opts;
    tsr_plan *plan;
    tsri_report *report;
} plan_made;

/* Reads the file and declares its program, in a world that is only imagined. plan_drop frees what
 * was made, also after an error. */
tsr_status plan_open(const plan_source *from, plan_made *m);
/* Compiles what was opened, and reports on it; again and again if need be. */
tsr_status plan_compile(plan_made *m);
/* plan_open and plan_compile. */
tsr_status plan_make(const plan_source *from, plan_made *m);
void plan_drop(plan_made *m);
/* Whether a plan with these options has failed as there was no memory to make it, and not as it
 * would need more than its limit. */
bool plan_lacks_memory(tsr_status status, const tsr_compile_opts *opts);
/* Prints the last error, or, where there was no memory to write one, that. Returns CLI_FAILED. */
int plan_failed(tsr_status status);

/* The figures of a plan that plans are compared by. */
typedef struct plan_figures {
    double step_s, compute_s, link_s[TSRI_MAX_LINKS];
    uint64_t link_bytes[TSRI_MAX_LINKS], bytes; /* what the busiest rank reads */
    uint64_t memory;                            /* of the neediest rank */
} plan_figures;
plan_figures plan_figures_of(const tsri_report *r);

/* --- names.c: the tensors of a program by name ------------------------------------------------ */
typedef struct plan_name {
    const char *name;  /* "features.0.1", "grad(w)": may be that of several tensors */
    const char *label; /* "bn_stats features.0.1": one tensor's alone */
    const tsr_tensor *tensor;
    bool is_given; /* the file, the model or the optimizer has given the name */
} plan_name;

typedef struct plan_names {
    tsri_pool pool;
    const tsr_graph *graph;
    int n, capacity;
    plan_name *all;
    const char **of; /* by tensor: its name, or its label where several have that name */
} plan_names;

tsr_status plan_names_make(const tsri_program *p, plan_names *names);
void plan_names_finish(plan_names *names);
/* The tensor of a name, a label, or a pattern that fits one alone. Else NULL, and says on stderr
 * which there are. */
const tsr_tensor *plan_names_find(const plan_names *names, const char *text);

/* --- the questions: return the exit code ------------------------------------------------------ */
/* why.c */
int plan_why(const plan_source *from, const char *name);

/* compare.c: the plans of files side by side. */
enum { PLAN_COMPARE_MAX = 6 };
int plan_compare(const plan_source *from, int n, char *const *paths);

/* sweep.c: a grid of overrides. */
typedef struct plan_sweep {
    const cli_list *keys; /* each "PATH=VALUE,VALUE,..." */
    bool fixed;           /* price the file's plan again, in place of planning each point */
    const char *csv;      /* a file that gets the table; NULL: none */
    const char *best;     /* the figure that alone is starred, "tokens_per_s"; NULL: each */
    bool verbose;         /* every row */
} plan_sweep;
int plan_sweep_run(const plan_source *from, const plan_sweep *how);

/* One point of a sweep. */
typedef struct sweep_point {
    double step_s, compute_s, comm_s;
    plan_pace pace;
    uint64_t memory, bytes;
    char failure[240]; /* why there is no plan; "": there is one */
    char alone[160];   /* why its plan is not priced at other points; "": it is, or is not asked */
    bool done, lacks_memory;
    int by;        /* the point whose plan this is, priced here; -1: its own */
    double anew_s; /* by >= 0: a step of its own plan */
} sweep_point;

typedef struct sweep_axis {
    char *key;
    int n;
    char **values;
    char **sets; /* "key=value" */
} sweep_axis;

typedef struct sweep_grid {
    int naxes;
    sweep_axis *axes;
    int npoints;
    sweep_point *points; /* the last axis runs fastest */
    bool fixed;
    int best;            /* the column that alone is starred; -1: each */
    bool compared, left; /* points have each other's plans; there were too many for that */
} sweep_grid;

/* The number of an axis's value at a point. */
int sweep_value(const sweep_grid *g, int point, int axis);

/* sweep_price.c: a plan that is priced at other points. */
/* A batch at which the program was declared. */
typedef struct checked_batch {
    int64_t batch;
    char failure[160]; /* "": it is priced rightly there */
} checked_batch;
typedef struct sweep_pricer {
    plan_source from; /* with alternatives; its texts must live on */
    plan_made base;
    struct tsri_pricer *pricer;
    checked_batch *checked;
    int nchecked;
} sweep_pricer;
/* Whether a plan can be priced again at other values of a key. */
bool sweep_reprices(const char *key);
/* Makes the plan. sweep_pricer_finish frees what was made, also after an error. */
tsr_status sweep_pricer_plan(const plan_source *from, sweep_pricer *p);
/* Makes it a plan that can be priced at the grid's points. */
tsr_status sweep_pricer_learn(sweep_pricer *p, const sweep_grid *g);
/* Prices the plan at the links and the batch of an experiment; the rest is the plan's own. It is
 * refused where it does not leave so much of a memory limit: a part of what it needs. */
tsr_status sweep_pricer_price(sweep_pricer *p, const tsri_experiment *e, double spare,
                              sweep_point *out_point);
void sweep_pricer_finish(sweep_pricer *p);

/* sweep_workers.c */
/* Points that processes share; NULL: no memory. */
sweep_point *sweep_points_create(int n);
void sweep_points_destroy(sweep_point *points, int n);
/* Works out each point by fn, in as many processes as there are cores, and tells how far it is. */
typedef void sweep_point_fn(void *arg, int i, sweep_point *x);
void sweep_each(sweep_point *points, int npoints, sweep_point_fn *fn, void *arg);

/* sweep_table.c */
/* The column of a name, as --best takes it; -1: there is none. */
int sweep_column(const char *name);
/* Whether the points have a figure in a column. */
bool sweep_has_column(const sweep_grid *g, int column);
void sweep_print(const sweep_grid *g, bool every);
/* Returns 0 or -errno. */
int sweep_write_csv(const sweep_grid *g, const char *path);

#endif
