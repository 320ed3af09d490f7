/* SPDX-License-Identifier: Apache-2.0 */
/* The few figures of a plan that a reader asks for first. All are per run of the plan. */
#ifndef TESSERA_PLAN_SUMMARY_H
#define TESSERA_PLAN_SUMMARY_H

#include "src/plan/plan.h"

/* The use of what is sent. */
typedef enum tsri_traffic_kind {
    TSRI_TRAFFIC_GRADIENTS = 0, /* of parameters, for their updates */
    TSRI_TRAFFIC_UPDATES,       /* new values of variables, into the signatures that they keep */
    TSRI_TRAFFIC_WEIGHTS,       /* parameters, for ops that read them */
    TSRI_TRAFFIC_STATISTICS,    /* of norms */
    TSRI_TRAFFIC_FORWARD,       /* other values of the forward pass */
    TSRI_TRAFFIC_BACKWARD,
    TSRI_TRAFFIC_STAGES,  /* between placements */
    TSRI_TRAFFIC_OUTPUTS, /* for outputs alone */
    TSRI_TRAFFIC_KINDS,
} tsri_traffic_kind;

/* Steps of one collective for one use over one set of dimensions, of one placement or of several
 * that are alike. */
typedef struct tsri_traffic {
    tsri_traffic_kind kind;
    const char *what;               /* "all_reduce" */
    const tsr_placement *from, *to; /* of the first; the same unless kind is STAGES */
    unsigned dims;                  /* of the placement, as bits, that the groups go along */
    int link, group_size;
    int calls;
    uint64_t bytes; /* that the busiest rank of them reads */
    double cost_s;
} tsri_traffic;

typedef struct tsri_summary {
    int64_t parameters, tensors; /* trainable elements, and variables that hold them */
    /* The rows of a step, by the first input whose axis 0 is longer than 1 (else the first), and
     * the ids that an embedding looks up for them; 0: there is none. */
    int64_t samples, tokens;
    double flops; /* of products and convolutions, each counted once: neither ranks that do the
                     same nor recomputation count */
    double flops_in[TSR_DTYPE_COUNT_]; /* of them, by the dtype that they are computed in */
    int nranks;                        /* that hold anything */
    /* The seconds of ops, updates apart, that several ranks compute alike, a part of the report's
     * compute_s; and the most ranks that compute one alike. */
    double alike_s;
    int alike;
    int ntraffic;
    tsri_traffic *traffic; /* the most expensive first */
} tsri_summary;

struct tsri_report;
/* Sums up the rows of a report, in its pool. */
tsr_status tsri_summary_make(struct tsri_report *report);
/* "gradients", "updated variables", ..., for readers; and a word: "gradients", "updates", ....
 * Static storage. */
const char *tsri_traffic_name(tsri_traffic_kind kind);
const char *tsri_traffic_word(tsri_traffic_kind kind);

#endif
