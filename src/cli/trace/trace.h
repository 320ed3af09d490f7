/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `tessera trace`. Times are microseconds of the trace's clock. */
#ifndef TESSERA_CLI_TRACE_TRACE_H
#define TESSERA_CLI_TRACE_TRACE_H

#include "src/cli/cli.h"
#include "src/core/mem.h"

typedef enum trace_kind {
    TRACE_COMPUTE = 0,
    TRACE_START,     /* of a collective */
    TRACE_WAIT,      /* for its end */
    TRACE_RELEASE,   /* until peers have read */
    TRACE_UNDER_WAY, /* from its start to its end, beside what the rank does meanwhile */
} trace_kind;

typedef struct trace_span {
    trace_kind kind;
    int rank, id;          /* id: of UNDER_WAY */
    const char *op, *name; /* "conv2d" of "features.0.0" */
    double start, end, bytes;
} trace_span;

typedef struct trace {
    tsri_pool pool;
    trace_span *span;
    int n, capacity;
    int nranks; /* the highest, plus one */
} trace;

/* read.c: reads a trace in Chrome's form. Errors are told as "FILE: traceEvents[7]: ..."; *out ends
 * with trace_finish, also after one. */
tsr_status trace_read(const char *path, trace *out);
void trace_finish(trace *t);

/* One row of a table by op: all ranks together. */
typedef struct trace_op {
    const char *op;
    int calls;
    double us, bytes; /* computing; of a collective in its start, its wait and its release */
    double start, wait, release, under_way;
    const trace_span *longest;
} trace_op;

typedef struct trace_rank {
    double compute, calls, wait; /* calls: starting and releasing */
    double idle;                 /* none of these, while the trace lasts */
    double under_way, overlap;   /* at least one collective is; and the rank computes meanwhile */
    int events;
} trace_rank;

typedef struct trace_sums {
    double first, last;
    int nops, ncollectives;
    trace_op *op, *collective; /* most time first */
    trace_rank *rank;          /* [nranks] */
} trace_sums;

/* sum.c; in the trace's pool. */
tsr_status trace_sum(trace *t, trace_sums *out);

#endif
