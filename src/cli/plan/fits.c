/* SPDX-License-Identifier: Apache-2.0 */
/* Smaller experiments for a memory limit that an experiment does not fit. */
#include "src/cli/plan/plan.h"
#include "src/core/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No further change is tried after so many seconds: a refusal should not take long. */
static const double MOST_S = 3;

typedef struct change_trial {
    const cli_fits *how;
    const tsri_experiment *changed;
} change_trial;

/* Compiles the changed experiment, without its data. A tsr_spawn_fn. */
static tsr_status compile_changed(tsr_world *world, void *arg)
{
    const change_trial *t = arg;
    const tsri_program_opts opts = {.no_data = true};
    tsri_program *program;
    tsr_plan *plan = NULL;
    TSRI_TRY(tsri_program_build(t->changed, world, &opts, &program));
    tsr_status status = tsr_compile_with(program->graph, t->how->opts, &plan);
    tsr_plan_destroy(plan);
    tsri_program_destroy(program);
    return status;
}

/* Compiles the experiment with one --set more. TSR_ERR_NO_MEMORY: it does not fit. */
static tsr_status try_set(const cli_fits *how, const char *set)
{
    size_t n = (size_t)how->nsets;
    const char **sets = malloc((n + 1) * sizeof *sets);
    tsri_experiment *changed = NULL;
    tsr_world *world = NULL;
    if (!sets)
        return TSR_ERR_INVALID;
    if (n)
        memcpy(sets, how->sets, n * sizeof *sets);
    sets[n] = set;
    tsr_status status = tsri_experiment_load_for(how->path, tsri_experiment_asked(how->experiment),
                                                 how->nsets + 1, sets, &changed);
    change_trial trial = {how, changed};
    if (status == TSR_OK && how->with_devices)
        status = tsr_spawn(how->ranks, compile_changed, &trial);
    else if (status == TSR_OK)
        status = tsr_world_create_virtual(how->ranks, 0, &world);
    if (status == TSR_OK && world)
        status = compile_changed(world, &trial);
    tsr_world_destroy(world);
    tsri_experiment_destroy(changed);
    free(sets);
    return status;
}

/* Names the largest batch that halving comes to; the smallest tells first whether any will do. */
static void try_batches(const cli_fits *how, double until_s)
{
    char set[64] = "data.batch_size=1";
    int64_t batch = tsri_experiment_batch_size(how->experiment);
    if (batch < 2)
        return;
    if (try_set(how, set) == TSR_ERR_NO_MEMORY) {
        fprintf(stderr, "  a smaller batch is not enough: --set %s does not fit\n", set);
        return;
    }
    for (int64_t b = batch / 2; b > 0 && tsri_now_s() < until_s; b /= 2) {
        snprintf(set, sizeof set, "data.batch_size=%lld", (long long)b);
        if (try_set(how, set) != TSR_OK)
            continue;
        fprintf(stderr, "  what fits: --set %s, where the file has %lld\n", set, (long long)batch);
        return;
    }
}

void cli_say_what_fits(const cli_fits *how)
{
    static const char *const states = "optimizer.state.sbp=auto";
    double until_s = tsri_now_s() + MOST_S;
    tsr_compile_opts opts = *how->opts;
    cli_fits quick = *how;
    opts.alternatives = false;
    quick.opts = &opts;
    if (!opts.memory_limit || !tsri_experiment_trains(how->experiment) || !strcmp(how->path, "-"))
        return;
    try_batches(&quick, until_s);
    if (tsri_now_s() < until_s && try_set(&quick, states) == TSR_OK)
        fprintf(stderr, "  what fits: --set %s\n", states);
}
