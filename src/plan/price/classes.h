/* SPDX-License-Identifier: Apache-2.0 */
/* A plan taken apart into what its prices depend on: the inside of a pricer. Equal things are one
 * class with the number of items that are of it, so that a network's layers cost little more than
 * one. Structs of classes are compared byte by byte: zeroed before they are filled. */
#ifndef TESSERA_PLAN_PRICE_CLASSES_H
#define TESSERA_PLAN_PRICE_CLASSES_H

#include "src/plan/infer/strategies.h"
#include "src/plan/price/price.h"

/* A length: base + slope * (size - the plan's). */
typedef struct tsri_length {
    int64_t base, slope;
} tsri_length;

typedef struct tsri_shape {
    int64_t ndim;
    tsri_length d[TSR_MAX_NDIM];
} tsri_shape;

/* Values of one shape in one layout. */
typedef struct tsri_priced_part {
    int shape, element;
    const tsr_placement *placement;
    tsri_layout layout;
} tsri_priced_part;

enum { TSRI_PRICE_PARTS = 2 * TSRI_RULE_MAX_ARGS };

/* Ops of one amount of work. */
typedef struct tsri_priced_kernel {
    int64_t every; /* one of so many runs has it */
    int nparts, part[TSRI_PRICE_PARTS];
    int64_t nindices;
    tsri_length index[TSRI_RULE_MAX_INDICES];
    int64_t dtype;   /* that they compute in */
    int64_t attends; /* as tsri_op_work's */
    int64_t multiplies;
    double reach;
    tsri_work_shape work;
    double flops, slope; /* of the whole op: flops + slope * (size - the plan's) */
    const tsr_placement *placement;
    uint32_t split[TSR_MAX_HIERARCHY];
} tsri_priced_kernel;

/* Steps of conversions that are alike. */
typedef struct tsri_priced_box {
    int64_t every; /* one of so many runs has it */
    const tsr_placement *from_placement, *to_placement;
    tsri_route_step step; /* without cost_s, bytes and two_phase */
    int shape, element;
    bool joins;   /* it is a member of a bucket */
    bool talks;   /* else it copies on each rank, */
    bool crosses; /* between kinds of device */
} tsri_priced_box;

/* Classes of one kind, by hash. */
enum { TSRI_PRICE_BUCKETS = 1024 };
typedef struct tsri_classes {
    size_t size; /* of a class's struct */
    void *all;
    int n, call;
    int *count; /* items of each */
    int ccount;
    int *next; /* 1 + the next of its hash */
    int cnext;
    int first[TSRI_PRICE_BUCKETS];
} tsri_classes;

/* One call of several conversions. */
typedef struct tsri_priced_bucket {
    int n, *box;
} tsri_priced_bucket;

/* A value that takes memory from entry first to last; first -1: all the time. */
typedef struct tsri_life {
    int part, first, last;
} tsri_life;

struct tsri_pricer {
    tsri_pool pool;
    int64_t size;            /* the plan's */
    uint64_t ops;            /* tsri_ops_hash of the graph */
    int ntensors, *shape_of; /* per tensor of the graph */
    tsri_classes shapes, parts, kernels, boxes;
    int nbuckets, cbuckets;
    tsri_priced_bucket *buckets;
    int nlives, clives, nentries;
    tsri_life *lives;
    int nranks, *ranks;
    /* Worked out for the size `at`; `ready` false: for none yet. */
    bool ready;
    int64_t at;
    double *part_bytes;    /* by part: of the largest */
    double *flops, *bytes; /* by kernel: of the busiest rank */
    uint64_t memory;
    uint64_t scratch; /* of kernels, at the plan's own size */
    /* Room for working: by box, of a bucket, by entry, by part. */
    tsri_joint *joint, *member;
    int64_t *change, *rank_bytes;
};

/* The number of the class of x, which is added if there is none alike, and counts one item more;
 * -1: no memory. */
int tsri_class_of(tsri_pool *pool, tsri_classes *t, const void *x);
#define TSRI_CLASSES(t, type) ((const type *)(t).all)

/* A hash of which ops there are, in order, with how many operands and results. */
uint64_t tsri_ops_hash(const tsr_graph *g);
/* Takes the plan apart. Errors as tsri_pricer_create's. */
tsr_status tsri_price_classes(tsri_pricer *p, const tsri_ir *ir, const tsri_price_sizes *sizes);

/* A shape at a size, which is told by its distance from the plan's. */
tsr_dims tsri_shape_at(const tsri_shape *shape, int64_t more);

#endif
