/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prices a plan anew for other links or another size, in a fraction of a millisecond: signatures,
 * conversions, fusions and buckets stay as they are. A size is a number that every length of the
 * program's tensors depends on as a + b * size, such as the batch.
 */
#ifndef TESSERA_PLAN_PRICE_H
#define TESSERA_PLAN_PRICE_H

#include "src/plan/plan.h"

typedef struct tsri_pricer tsri_pricer;

/* How a program depends on a size: the copies of three graphs that a compile works on. The first is
 * the plan's; the second teaches how lengths grow, and the third tests that. */
typedef struct tsri_price_sizes {
    int64_t size[3];
    const tsr_graph *graph[3];
} tsri_price_sizes;

/* The price of a step. */
typedef struct tsri_price {
    double step_s, compute_s, comm_s;
    uint64_t bytes;  /* that the busiest rank reads in each conversion, added up */
    uint64_t memory; /* of the neediest of the ranks asked for, without gaps between tensors */
} tsri_price;

/*
 * Makes a pricer of a plan that was compiled with .alternatives from sizes->graph[0], or, where no
 * rewrite adds ops, from the graph that this is a copy of. It needs
 * neither afterwards, but their world. With graph[1] NULL, all sizes are the plan's.
 * ranks[nranks]: those whose memory is told. Errors: TSR_ERR_UNSUPPORTED, naming an op in which the
 * programs differ by more than lengths, or the item that the pricer can't give the plan's own price
 * at the plan's size; or where the plan has micro-batches.
 */
tsr_status tsri_pricer_create(const tsr_plan *plan, const tsri_price_sizes *sizes, int nranks,
                              const int *ranks, tsri_pricer **out_pricer);
/* Whether the program, declared in g at this size, is what the pricer takes it to be there: the
 * same ops, and tensors of the lengths that it has learned. Errors: TSR_ERR_UNSUPPORTED. */
tsr_status tsri_pricer_check(const tsri_pricer *p, const tsr_graph *g, int64_t size);
/* Prices the plan; without a size (0) at its own. Errors: TSR_ERR_UNSUPPORTED, where a conversion's
 * step is not to be had then. */
tsr_status tsri_pricer_price(tsri_pricer *p, const tsri_cost_model *m, int64_t size,
                             tsri_price *out_price);
void tsri_pricer_destroy(tsri_pricer *p);

#endif
