/* SPDX-License-Identifier: Apache-2.0 */
/* Timing single kernels on a GPU: what bench_cuda_kernels is made of. */
#ifndef TESSERA_TESTS_BENCH_BENCH_CUDA_H
#define TESSERA_TESTS_BENCH_BENCH_CUDA_H

#include "kernels/device.h"

/* What an operand holds. Not zeros: they cost less power, so clocks would be higher. */
typedef enum bench_fill {
    BENCH_UNIFORM = 0, /* -1..1 */
    BENCH_POSITIVE,    /* 0..1 */
    BENCH_LABEL,       /* 0..classes-1 */
    BENCH_STATS,       /* batch norm's sums, of `classes` elements a channel */
    BENCH_ROW_STATS,   /* layer norm's sums, of `classes` elements a row */
    BENCH_LSE,         /* about the log of a sum of exponentials */
    BENCH_HYPER,       /* an optimizer's */
} bench_fill;

typedef struct bench_operand {
    tsri_arg arg;
    bench_fill fill;
    int64_t classes;
} bench_operand;

/* A kernel and its operands. */
typedef struct bench_job {
    tsri_op_kind op;
    tsri_attrs attrs;
    int64_t groups;
    int nin, nout;
    bench_operand in[8], out[4];
    bool in_place; /* output i is operand i */
    double flops;  /* 0: bound by memory */
} bench_job;

/* A row-major operand; one with its second axis innermost. */
bench_operand bench_row(tsr_dtype dtype, int ndim, const int64_t *shape);
bench_operand bench_nhwc(tsr_dtype dtype, int64_t n, int64_t c, int64_t h, int64_t w);
bench_operand bench_vector(tsr_dtype dtype, int64_t n);

typedef struct bench_gpu {
    tsr_world *world;
    tsri_device *device;
    bool tuned; /* libraries' kernels are chosen by timing */
    bool tiny;
    double seconds; /* that one measurement is to take */
    int repeats;
} bench_gpu;

/* A device of its own, for a setting of TF32. */
tsr_status bench_open(bench_gpu *g, bool tf32, bool tuned);
void bench_close(bench_gpu *g);

typedef struct bench_time {
    double median_s, min_s; /* of one launch */
    const char *impl;
    bool joined;
    double bytes; /* each operand counted once */
} bench_time;

/*
 * Times n jobs as one, joined into one launch where n is more than 1 and the kernels can be.
 * impl NULL: the one that a plan would take. Operands take turns, so that no cache holds them.
 * TSR_ERR_UNSUPPORTED where a kernel declines.
 */
tsr_status bench_run(bench_gpu *g, const bench_job *jobs, int n, const tsri_kernels *impl,
                     bench_time *out_time);
/* Copies of 256 MiB, by the device's own move; bytes are those read and those written. */
tsr_status bench_copy(bench_gpu *g, bench_time *out_time);

#endif
