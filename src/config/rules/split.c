/* SPDX-License-Identifier: Apache-2.0 */
#include "src/config/rules/split.h"

#include "placement/placement.h"
#include "src/plan/choose/cut.h"

typedef struct listing {
    tsri_pool *pool;
    int n, room;
    tsr_variable **variables;
} listing;

static tsr_status list(tsr_variable *v, const char *name, void *arg)
{
    listing *l = arg;
    (void)name;
    TSRI_NEED(TSRI_PUSH(l->pool, l->variables, l->n, l->room));
    l->variables[l->n++] = v;
    return TSR_OK;
}

typedef struct splitter {
    const tsri_program *p; /* whose stages are sought */
    tsr_world *world;      /* a virtual one */
    tsr_compile_opts opts;
    tsri_cutting how;
    tsri_cut_found best; /* the program's cut so far */
} splitter;

/* Cuts a plan, and gives the program that cut if it is the first, or fits and is shorter. */
static tsr_status cut(splitter *s, const tsri_program *in, const tsr_plan *plan,
                      tsri_cut_found *out)
{
    tsri_program_stages *made = &s->p->inside->stages;
    listing all = {.pool = &s->p->inside->pool};
    TSRI_TRY(tsr_module_visit(in->module, list, &all));
    int *stage = tsri_pool_alloc(all.pool, (size_t)all.n * sizeof *stage);
    TSRI_NEED(stage);
    TSRI_TRY(tsri_plan_cut(plan, &s->how, all.n, all.variables, stage, out));
    if (made->split && (!out->fits || (s->best.fits && out->longest_s >= s->best.longest_s)))
        return TSR_OK;
    made->split = stage;
    s->best = *out;
    return TSR_OK;
}

/* Compiles the experiment with all stages on the ranks of one, within as many memory limits as
 * there are indices, so that the signatures are close to those of the stages, and cuts the plan.
 * `share` is the part of the limits that this program may use: the copies for several
 * micro-batches, which only a program with stages has, take the rest. */
static tsr_status try_share(splitter *s, double share, tsri_cut_found *out)
{
    tsr_compile_opts opts = s->opts;
    tsri_program *in;
    tsr_plan *plan = NULL;
    opts.alternatives = false;
    opts.memory_limit = (size_t)((double)opts.memory_limit * s->how.nindices * share);
    TSRI_TRY(tsri_program_build_in_one_stage(s->p->experiment, s->world, &in));
    tsr_status status = tsr_compile_with(in->graph, &opts, &plan);
    if (status == TSR_ERR_NO_MEMORY && opts.memory_limit && !s->p->inside->stages.split) {
        opts.memory_limit = 0;
        status = tsr_compile_with(in->graph, &opts, &plan);
    }
    if (status == TSR_OK)
        status = cut(s, in, plan, out);
    if (plan)
        tsr_plan_destroy(plan);
    tsri_program_destroy(in);
    return status;
}

/* Tries smaller shares of the limit until the shortest cut of all fits. */
static tsr_status find(splitter *s)
{
    enum { MOST_TRIES = 3 };
    const double limit = (double)s->opts.memory_limit;
    double share = 1;
    for (int i = 0; i < MOST_TRIES; i++) {
        tsri_cut_found cut = {0};
        const tsr_status status = try_share(s, share, &cut);
        if (i > 0 && status == TSR_ERR_NO_MEMORY)
            break;
        TSRI_TRY(status);
        if (!limit || cut.free_need <= limit)
            break;
        share *= limit / cut.free_need;
    }
    return TSR_OK;
}

static tsr_status plan_and_cut(const tsri_program *p, tsr_world *world)
{
    const tsri_program_stages *made = &p->inside->stages;
    const tsri_config_stages *stages = &p->experiment->stages;
    splitter s = {.p = p, .world = world, .opts = *TSR_COMPILE_OPTS(.alternatives = false)};
    if (p->inside->compile)
        s.opts = *p->inside->compile;
    else
        tsri_experiment_fill(p->experiment, &s.opts);
    s.how = (tsri_cutting){.nstages = made->n,
                           .nindices = stages->n,
                           .parts = s.opts.microbatches > 1 ? s.opts.microbatches : 1,
                           .pipeline = s.opts.pipeline,
                           .memory_limit = s.opts.memory_limit,
                           .other_rank = tsr_placement_rank(made->on[stages->n > 1 ? 1 : 0], 0)};
    return tsri_program_fail(tsri_section_node(stages, "split"), find(&s));
}

tsr_status tsri_split_find(const tsri_program *p)
{
    tsr_world *world;
    const int rank = tsr_placement_rank(p->inside->stages.on[0], 0);
    TSRI_TRY(tsr_world_create_virtual(tsr_world_size(p->world), rank, &world));
    tsr_status status = plan_and_cut(p, world);
    tsr_world_destroy(world);
    return status;
}
