/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing the signatures of a program. measure.c builds plans, within.c looks for one within a
 * limit of memory. */
#ifndef TESSERA_PLAN_CHOOSE_H
#define TESSERA_PLAN_CHOOSE_H

#include "src/plan/infer/answer.h"
#include "src/plan/plan.h"

/* Signatures that were inferred and built. */
typedef struct tsri_tried {
    tsri_inferred inferred;
    size_t bytes;       /* that their plan needs on a rank, without scratch */
    bool seeks_leanest; /* they were tried whatever the limit is */
} tsri_tried;

/* The choices of one compile: open ones, and those made so far. */
typedef struct tsri_choosing {
    tsr_graph *declared; /* the user's */
    tsr_graph *g;        /* the rewritten copy that is compiled */
    const tsr_compile_opts *opts;
    tsri_pool *pool;
    tsri_pool inferring; /* what inference keeps for the next limit */
    bool *is_open;       /* per op: reads a variable that has no signature yet */
    bool *is_chosen;     /* per op: of those, the ones that can be brought into any signature */
    size_t reserve;      /* of the memory limit, what is kept for kernels' scratch */
    bool leanest;        /* the plan of which ranks need least is wanted, whatever the limit is */
    bool any_will_do;    /* within the limit; not the fastest that is found */
    tsri_inference inference;
    tsri_inferred inferred;
    size_t bytes;      /* that what was built last needs on a rank, without scratch */
    tsri_tried *tried; /* [ntried] so far, the cheapest of all first; none without a limit */
    int ntried, ctried;
    bool updates_tried; /* they were inferred with .infer_updates */
    bool seeks_leanest, sought_leanest;
    bool is_quick; /* the search within the limit uses one price of memory, and few tries */
    bool found;    /* something fits the limit */
    double work;   /* units of work that search_s leaves */
} tsri_choosing;

/* Whether the search has done all the work that search_s allows. */
static inline bool tsri_choosing_is_over(const tsri_choosing *c)
{
    return c->opts->search_s > 0 && c->work <= 0;
}

/*
 * Begins a compile of `declared`, of which g is the copy that is compiled. `fixes`: it settles the
 * signatures of the variables that it reads; otherwise (tsr_eval) they are free again afterwards,
 * and values that were given stay as they are. While plans are tried, variables that may be chosen
 * stay without a signature; from then on until the end they have that of the plan that was chosen.
 */
void tsri_choosing_begin(tsr_graph *declared, tsr_graph *g, const tsr_compile_opts *opts,
                         bool fixes, tsri_pool *pool, tsri_choosing *c);
/* Gives back what inference keeps. `frees`: the variables that were open are so again. */
void tsri_choosing_end(tsri_choosing *c, bool frees);
/* Infers signatures within the memory limit, and builds the plan up to its schedule. Where c->found
 * is false, no plan within the limit was found, and what was built is of no use. */
tsr_status tsri_plan_choose(tsr_plan *plan, tsri_choosing *c);

/* --- measure.c -------------------------------------------------------------------------------- */
/* Builds the plan of what c->inferred has and, where there is a limit, measures it and adds it to
 * c->tried. */
tsr_status tsri_build_inferred(tsri_choosing *c, tsr_plan *plan);

/* --- within.c --------------------------------------------------------------------------------- */
/* Builds the fastest plan that is found within the limit, or sets c->found to false. */
tsr_status tsri_choose_within(tsri_choosing *c, tsr_plan *plan);
/* Builds the plan that needs least memory a rank, whatever the limit is, so that every refused
 * limit is compared with the same plan. */
tsr_status tsri_choose_leanest(tsri_choosing *c, tsr_plan *plan);

#endif
