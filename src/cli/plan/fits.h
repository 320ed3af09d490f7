/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of an experiment that a memory limit was refused for, and trials of them. */
#ifndef TESSERA_CLI_PLAN_FITS_H
#define TESSERA_CLI_PLAN_FITS_H

#include "src/cli/plan/plan.h"

/* The overrides of a trial, which follow those of the command line: at most a layout's, stages,
 * micro-batches and recomputation. */
enum { FITS_SETS = TSRI_RELAY_MOST + 3, FITS_TEXT = FITS_SETS * (TSRI_RELAY_TEXT + 16) };
typedef struct fits_change {
    int n;
    char sets[FITS_SETS][TSRI_RELAY_TEXT];
} fits_change;

typedef enum fits_verdict {
    FITS = 0,
    DOES_NOT_FIT,
    ILLEGAL,   /* not a legal experiment */
    CUT_SHORT, /* abandoned, or not started for want of time */
} fits_verdict;

/* The trials of one refusal. */
typedef struct fits_trials {
    const cli_fits *how;
    double until_s, priced_until_s; /* no trial, and no pricing, starts later */
    int cut;                        /* number of changes with the verdict CUT_SHORT */
} fits_trials;

/* The figures of the plan that a change makes. */
typedef struct fits_price {
    bool known;
    double step_s;
    uint64_t memory; /* of the neediest rank */
} fits_price;

TSR_PRINTF(2, 3) void fits_add(fits_change *c, const char *format, ...);
/* Appends " --set ..." for each override, quoted where a shell would read it otherwise. */
void fits_put_sets(const fits_change *c, char *text, size_t size);

/* Begins the time of all trials. */
fits_trials fits_begin(const cli_fits *how);
/* Returns whether the experiment can be read with the change, without compiling it. */
bool fits_is_legal(const fits_trials *t, const fits_change *c);
/* Compiles the change in a process of its own, whose time is limited; where ranks are threads with
 * devices, in this one. */
fits_verdict fits_try(fits_trials *t, const fits_change *c);
/* Plans a change that fits as `tessera plan` would, in a process of its own. Returns DOES_NOT_FIT
 * if that plan is refused, else FITS. out->known stays false if there is no time, or if ranks are
 * threads with devices, whose kernels' scratch a plan does not know. */
fits_verdict fits_find_price(fits_trials *t, const fits_change *c, fits_price *out);

#endif
