/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a tsr_grad_scaler. Its numbers are the host's, and are in variables that graphs
 * read. A graph writes, for each optimizer, whether its gradients were finite. The steps of
 * optimizers and the next scale, which follow from that, are settled on the host before anything
 * asks for them.
 */
#ifndef TESSERA_OPTIM_SCALER_H
#define TESSERA_OPTIM_SCALER_H

#include <stdio.h>

#include <tessera/grad_scaler.h>

#include "src/graph/op.h"

/* The numbers on one placement, in B. */
typedef struct tsri_scaler_place {
    const tsr_placement *placement;
    tsr_variable *scale, *inverse; /* f64 scalars */
} tsri_scaler_place;

/* A word on the gradients of an optimizer. A run's hook points to it, so that it stays where it is.
 */
typedef struct tsri_scaler_flag {
    struct tsri_scaler_flag *next;
    tsr_grad_scaler *scaler;
    tsr_optimizer *optimizer; /* NULL: it has gone */
    const tsr_placement *placement;
    tsr_variable *found; /* f32 scalar in B: 1 where they were not finite, else 0 */
    /* For optimizers that update in one of several runs: 1 if an addend of the gradients since the
     * last update was not finite, else 0. `found` is 0 in runs without an update. NULL if every run
     * updates. */
    tsr_variable *found_so_far;
    bool waits; /* for the host to read it: a run that updates has written it */
} tsri_scaler_flag;

struct tsr_grad_scaler {
    tsri_owned owned;
    tsr_world *world;
    bool enabled;
    tsr_grad_scaler_state now; /* scale: a value of f32 */
    int64_t accumulate;        /* of all its optimizers; 0: it has none yet */
    int nplaces;
    tsri_scaler_place *places;
    tsri_scaler_flag *flags;
};

/* Whether losses are scaled at all: there is an enabled scaler. */
static inline bool tsri_scaler_works(const tsr_grad_scaler *s)
{
    return s && s->enabled;
}

/* --- on the host ------------------------------------------------------------------------------ */
/* Reads what the last run has found of all optimizers, counts their updates, and sets the next
 * scale. Nothing where nothing waits. Errors: those of the run. */
tsr_status tsri_scaler_settle(tsr_grad_scaler *s);
/* The text of the warning when a scale has fallen to 0. */
extern const char tsri_scaler_gave_up[];
/* Forgets an optimizer, which goes. */
void tsri_scaler_forget(tsr_grad_scaler *s, const tsr_optimizer *o);
/* Writes the state as text, a line for each of PyTorch's keys; none where it is disabled. */
tsr_status tsri_scaler_put(tsr_grad_scaler *s, FILE *f);
/* Takes such a text; with keeps_own the scale and the tracker alone. On an error nothing has
 * changed. TSR_ERR_FORMAT; TSR_ERR_STATE for the text of a disabled scaler. A disabled one ignores
 * all. */
tsr_status tsri_scaler_take(tsr_grad_scaler *s, const char *text, bool keeps_own);

/* --- in graphs -------------------------------------------------------------------------------- */
/* Checks that a scaler (NULL: none) can serve in the graph of *c. */
bool tsri_want_scaler(const tsri_ctx *c, const tsr_grad_scaler *s);
/* Checks that a scaler serves an optimizer that updates once in `accumulate` runs. */
bool tsri_want_scaled(const tsri_ctx *c, tsr_grad_scaler *s, int64_t accumulate);
/* Returns a loss times the scale; the loss where s does not work. */
tsr_tensor *tsri_scale_loss(const tsri_ctx *c, tsr_grad_scaler *s, tsr_tensor *loss);
/* Returns 1 / scale, an f64 scalar on a placement. */
tsr_tensor *tsri_scaler_inverse(const tsri_ctx *c, tsr_grad_scaler *s, const tsr_placement *p);
/* Returns x times `inverse`, which is brought to its placement and dtype. */
tsr_tensor *tsri_scaler_unscaled(const tsri_ctx *c, tsr_tensor *x, tsr_tensor *inverse);
/* Declares whether the n scaled gradients of an optimizer (NULL: left out) are finite, for its
 * updates in this graph. Returns that, 1 where they are not, else 0; NULL where the graph has
 * failed. */
tsr_tensor *tsri_scaler_find(const tsri_ctx *c, tsr_grad_scaler *s, tsr_optimizer *o, int n,
                             tsr_tensor *const *grads);
/* Declares, for an optimizer that updates in one of several runs, the check that the ranks' addends
 * of a run's gradients are finite, as only the last run sums over ranks. To be called before
 * tsri_scaler_find. */
void tsri_scaler_look(const tsri_ctx *c, tsr_grad_scaler *s, tsr_optimizer *o, int n,
                      tsr_tensor *const *grads);
/* Returns the word that tsri_scaler_find has declared on an optimizer; NULL: none. */
const tsri_graph_scaled *tsri_scaler_found(const tsr_graph *g, const tsr_optimizer *o);

#endif
