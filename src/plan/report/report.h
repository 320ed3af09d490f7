/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan as plain figures: what `tessera plan` and results print, as text, JSON or a picture. All
 * figures are per run of the plan. A report points into its plan, and lives shorter.
 */
#ifndef TESSERA_PLAN_REPORT_H
#define TESSERA_PLAN_REPORT_H

#include "src/plan/plan.h"
#include "src/plan/report/strategy.h"
#include "src/plan/report/summary.h"

typedef enum tsri_report_kind {
    TSRI_REPORT_SOURCE = 0, /* an input or a variable: no item */
    TSRI_REPORT_OP,
    TSRI_REPORT_BOX, /* one step of a conversion, or a bucket of several */
} tsri_report_kind;

/* The use of a row's time. */
typedef enum tsri_spent {
    TSRI_SPENT_FLOPS = 0,
    TSRI_SPENT_MEMORY, /* reading and writing the rank's own */
    TSRI_SPENT_START,  /* of kernels */
    TSRI_SPENT_BUBBLE, /* waiting for other stages */
    TSRI_SPENT_LINK,   /* + 2 l: bytes over link l; + 2 l + 1: its hand-shakes */
    TSRI_SPENT_COUNT = TSRI_SPENT_LINK + 2 * TSRI_MAX_LINKS,
} tsri_spent;

typedef struct tsri_report_row {
    tsri_report_kind kind;
    const char *what;      /* "linear", "variable", "all_reduce" */
    const char *name;      /* of the op or tensor */
    const tsri_item *item; /* NULL of a source */
    int value;             /* a source's; of an op its first result, -1 if it has none */
    bool said;             /* the signature of `value` is the user's word */
    const char *said_by;   /* the rule or key that says it; "": a default; NULL: not known */
    tsri_loc said_at;      /* file NULL: not known */
    const tsri_alternatives *alternatives; /* NULL: not asked for */
    int times;                             /* that a step does it: in each micro-batch, or once */
    double cost_s, spent_s[TSRI_SPENT_COUNT];
    tsri_spent most; /* of spent_s */
    /* BOX */
    tsri_traffic_kind use;
    int groups, group_size; /* that do it side by side; ranks of one */
    int link;               /* the farthest in a group; -1: nothing is sent */
    uint64_t bytes;         /* that the busiest rank reads from peers, all times */
} tsri_report_row;

/* Collectives of one kind. */
typedef struct tsri_report_total {
    const char *what;
    int calls;
    uint64_t bytes; /* sum of the rows' */
    double cost_s;
} tsri_report_total;

/* The use of a value's memory. */
typedef enum tsri_memory_kind {
    TSRI_MEMORY_PARAMETERS = 0, /* as ops read them: casts of masters too */
    TSRI_MEMORY_MASTERS,        /* parameters that ops read in another dtype of fewer bytes */
    TSRI_MEMORY_BUFFERS,
    TSRI_MEMORY_OPTIMIZER,
    TSRI_MEMORY_PORTS,
    TSRI_MEMORY_GRADIENTS,
    TSRI_MEMORY_ACTIVATIONS,
    TSRI_MEMORY_COMMUNICATION,
    TSRI_MEMORY_KINDS,
} tsri_memory_kind;

/* Ranks that need the same memory, in bytes. */
typedef struct tsri_report_memory {
    int nranks, rank; /* how many; the lowest */
    uint64_t masters, buffers, optimizer, ports;
    /* Parts of the plan's block, at the time when most is alive; of parameters the casts are. */
    uint64_t parameters, gradients, activations, communication;
    uint64_t scratch; /* of kernels: of those that were made, else as is expected of a GPU's */
    uint64_t other;   /* gaps */
    uint64_t total;   /* sum of all */
    uint64_t alive;   /* of the block at that time: a part of all but of scratch and other */
    bool exact;       /* else without gaps */
    int peak;         /* the entry at which most of the block is alive; -1: none is */
} tsri_report_memory;

typedef struct tsri_report {
    const tsr_plan *plan;
    int nrows;
    tsri_report_row *rows; /* sources and ops in the order of the program, boxes before readers */
    int ntotals;
    tsri_report_total *totals; /* by kind of collective */
    int nmemory;
    tsri_report_memory *memory; /* most first */
    int *memory_of;             /* [ranks of the world] into memory; -1 beyond its limit */
    const uint8_t *kind_of;     /* [values]: a tsri_memory_kind of each that takes memory */
    int nclasses;               /* of ranks; memory[] has the neediest of them */
    double spent_s[TSRI_SPENT_COUNT];
    tsri_spent most;
    /* step_s is their sum: overlap is not counted. With stages these are the stages' mean, and
     * step_s has the bubble too. */
    double compute_s, comm_s, step_s;
    uint64_t bytes; /* sum of the boxes' */
    tsri_strategy strategy;
    tsri_summary summary;
    tsri_pool pool;
} tsri_report;

tsr_status tsri_report_create(tsr_plan *plan, tsri_report **out_report);
void tsri_report_destroy(tsri_report *report);

/* report_memory.c */
tsr_status tsri_report_memory_make(tsr_plan *plan, tsri_report *r);
/* Whether a value has bytes of its own. */
bool tsri_value_takes_memory(const tsri_value *v);

enum { TSRI_WHY_MAX = 1024 };
/* Why a row's signature is what it is: "said by '*.fc1.*' at a.yaml:7"; "the only legal one"; "of 7
 * legal; B,S(0) -> S(0) +1.20 us; ..."; of a box its reason. */
char *tsri_report_why(const tsri_report_row *row, char buf[TSRI_WHY_MAX]);
/* "compute", "memory", "kernel starts", "NVLink bytes", "link 1 hand-shakes"; without a model
 * (NULL) links have numbers. */
enum { TSRI_SPENT_NAME_MAX = TSRI_LINK_NAME_MAX + 16 };
char *tsri_spent_name(const tsri_cost_model *m, tsri_spent spent, char buf[TSRI_SPENT_NAME_MAX]);

/* A line about fusion. */
typedef struct tsri_report_fused {
    const char *how;  /* "chain", "fused": into one kernel; "alone": what could be, and is not */
    const char *name; /* of the op */
    const char *text; /* which ops; why not */
} tsri_report_fused;
/* Calls `each` for what a plan fuses, in the order of the program, and for what it could; until one
 * call returns false: TSR_ERR_NO_MEMORY. */
tsr_status tsri_report_fusions(const tsr_plan *plan,
                               bool (*each)(void *arg, const tsri_report_fused *line), void *arg);

/* Whether a change is more than rounding. */
bool tsri_change_counts(const tsr_plan *plan, const tsri_change *change);

#endif
