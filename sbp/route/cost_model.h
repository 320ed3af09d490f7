/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's abilities: the figures that every estimate of time is made of. */
#ifndef TESSERA_SBP_ROUTE_COST_MODEL_H
#define TESSERA_SBP_ROUTE_COST_MODEL_H

#include "sbp/rule/layout.h"
#include "src/target/target.h"

/* Ranks r with equal r / ranks are joined by this link: the cores of a machine, the GPUs of a node,
 * the nodes of a cluster. */
typedef struct tsri_link {
    int ranks;          /* 0: all */
    double latency_s;   /* of one collective's hand-shake over it */
    double bytes_per_s; /* that one rank takes in over it */
} tsri_link;

enum { TSRI_MAX_LINKS = 3, TSRI_PRODUCT_SIZES = 8 };

typedef struct tsri_cost_model {
    int nlinks;
    tsri_link link[TSRI_MAX_LINKS]; /* nearest first; the last one joins all ranks */
    double local_bytes_per_s;       /* streaming own memory */
    double flops_per_s;
    double kernel_s; /* of starting a kernel */
    /* Whether gathering and reducing go in rings, as NCCL's do: what is read over a link then comes
     * to a node once, and the ranks of the node share that. Else each rank reads all from peers. */
    bool rings;
    double dtype_flops_per_s[TSR_DTYPE_COUNT_]; /* 0: flops_per_s */
    double attention_share; /* of these, that an attention kernel reaches; 0: all */
    /* The part of these that a product reaches which would take 4^i / 8 us at them; the last 0:
     * all. */
    double product_share[TSRI_PRODUCT_SIZES];
    const char *link_name[TSRI_MAX_LINKS]; /* for texts: "NVLink"; NULL: it has a number */
} tsri_cost_model;

/* Returns the model of ranks of one machine whose devices are of a kind, by the figures of the
 * kind's row in src/target/target.c. `rings` is false. */
tsri_cost_model tsri_cost_model_of(tsr_device kind);

/* Operations a second of a rank that computes in a dtype. */
double tsri_flops_of(const tsri_cost_model *m, tsr_dtype dtype);

/* The part of tsri_flops_of that a product reaches which would take `seconds` at it: between two
 * sizes by the logarithm; a smaller one than the first takes as long as that. */
double tsri_product_share(const tsri_cost_model *m, double seconds);

/* A link's name, "NVLink", else its number, "link 1"; without a model (NULL) its number. In buf. */
enum { TSRI_LINK_NAME_MAX = 32 };
char *tsri_link_name(const tsri_cost_model *m, int link, char buf[TSRI_LINK_NAME_MAX]);

/* The link that two ranks meet over: the first whose `ranks` puts them together. */
int tsri_link_between(const tsri_cost_model *m, int a, int b);

/* Seconds that nobody can read `bytes` faster in: the least hand-shake of all links, and the pace
 * of the fastest; 0 for no bytes. */
double tsri_least_seconds(const tsri_cost_model *m, double bytes);

/* Whether an all-reduce of `bytes` over k ranks that meet over `link` is cheaper in two phases
 * (each reduces a k-th, then all gather) than in one shot (each reads all). */
bool tsri_two_phase(const tsri_link *link, double bytes, int k);

#endif
