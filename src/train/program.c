/* SPDX-License-Identifier: Apache-2.0 */
/* Programs: plans by the batch's rows. */
#include "src/train/program.h"

#include <inttypes.h>
#include <string.h>

#include "src/core/live.h"
#include "src/core/opts.h"
#include "src/data/loader/loader.h"
#include "src/core/world.h"

typedef struct kept {
    int64_t rows;
    bool training;
    uint64_t asked; /* when, by the program's count */
    tsr_graph *graph;
    tsr_plan *plan; /* NULL: the place is free */
} kept;

struct tsr_program {
    tsri_owned owned;
    tsr_world *world;
    tsr_declare_fn *declare;
    void *arg;
    tsr_program_opts opts;
    tsr_compile_opts compile;
    uint64_t asked;
    kept *plans; /* opts.plans places */
};

tsr_world *tsri_program_world(const tsr_program *p)
{
    return p->world;
}

static void drop(kept *k)
{
    tsr_plan_destroy(k->plan);
    tsr_graph_destroy(k->graph);
    *k = (kept){0};
}

static void destroy(void *object)
{
    tsr_program *p = object;
    tsri_world_disown(&p->owned);
    for (int i = 0; i < p->opts.plans && !p->world->ends; i++) /* else they go by themselves */
        drop(&p->plans[i]);
    tsri_mem_free(p->plans);
    tsri_live_free(p, TSRI_LIVE_PROGRAM);
}

void tsr_program_destroy(tsr_program *p)
{
    if (tsri_is_live(p, TSRI_LIVE_PROGRAM, __func__))
        destroy(p);
}

tsr_status tsr_program_create(tsr_world *world, tsr_declare_fn *declare, void *arg,
                              const tsr_program_opts *opts, tsr_program **out_program)
{
    tsr_program_opts o = *TSR_PROGRAM_OPTS();
    tsr_compile_opts compile = *TSR_COMPILE_OPTS();
    TSRI_TRY(tsri_live_check(world, TSRI_LIVE_WORLD, __func__));
    if (!world || !declare || !out_program)
        return tsri_fail(TSR_ERR_INVALID, "tsr_program_create: %s is NULL",
                         !world     ? "the world"
                         : !declare ? "declare"
                                    : "out_program");
    TSRI_TRY(tsri_opts_read(&o, sizeof o, opts, __func__));
    TSRI_TRY(tsri_opts_read(&compile, sizeof compile, o.compile, __func__));
    if (o.plans < 1)
        return tsri_fail(TSR_ERR_INVALID, "tsr_program_create: plans is %d; it is at least 1",
                         o.plans);
    tsr_program *p = tsri_live_alloc(&world->mem, sizeof *p, TSRI_LIVE_PROGRAM);
    kept *plans = tsri_mem_alloc(&world->mem, (size_t)o.plans * sizeof *plans);
    if (!p || !plans) {
        tsri_mem_free(plans);
        tsri_live_free(p, TSRI_LIVE_PROGRAM);
        return TSR_ERR_NO_MEMORY;
    }
    *p = (tsr_program){.world = world, .declare = declare, .arg = arg, .opts = o, .plans = plans};
    p->compile = compile;
    tsri_world_own(world, &p->owned, p, destroy);
    *out_program = p;
    return TSR_OK;
}

/* The place of this plan; else a free one, or that of the plan that was asked for longest ago. */
static kept *find_place(const tsr_program *p, int64_t rows, bool training)
{
    kept *oldest = &p->plans[0];
    for (int i = 0; i < p->opts.plans; i++) {
        kept *k = &p->plans[i];
        if (k->plan && k->rows == rows && k->training == training)
            return k;
        if (oldest->plan && (!k->plan || k->asked < oldest->asked))
            oldest = k;
    }
    return oldest;
}

static tsr_status make_plan(tsr_program *p, int64_t rows, bool training, kept *k)
{
    kept made = {.rows = rows, .training = training};
    made.graph =
        tsr_graph_create(p->world, TSR_GRAPH_OPTS(.training = training, .seed = p->opts.seed,
                                                  .local = p->opts.local));
    TSRI_NEED(made.graph);
    tsr_status status = p->declare(made.graph, rows, training, p->arg);
    if (status == TSR_OK)
        status = tsr_compile_with(made.graph, &p->compile, &made.plan);
    if (status != TSR_OK) {
        tsr_graph_destroy(made.graph);
        return status;
    }
    drop(k);
    *k = made;
    return TSR_OK;
}

tsr_status tsr_program_plan(tsr_program *p, int64_t rows, bool training, tsr_plan **out_plan)
{
    TSRI_TRY(tsri_live_check(p, TSRI_LIVE_PROGRAM, __func__));
    if (!p || !out_plan)
        return tsri_fail(TSR_ERR_INVALID, "tsr_program_plan: %s is NULL",
                         p ? "out_plan" : "the program");
    if (rows < 1)
        return tsri_fail(TSR_ERR_INVALID, "tsr_program_plan: a batch of %" PRId64 " rows", rows);
    kept *k = find_place(p, rows, training);
    if (!k->plan || k->rows != rows || k->training != training)
        TSRI_TRY(make_plan(p, rows, training, k));
    k->asked = ++p->asked;
    *out_plan = k->plan;
    return TSR_OK;
}

tsr_status tsr_program_feed(tsr_program *p, tsr_loader *loader, bool training, tsr_plan **out_plan,
                            int64_t *out_rows)
{
    TSRI_TRY(tsri_live_check(p, TSRI_LIVE_PROGRAM, __func__));
    TSRI_TRY(tsri_live_check(loader, TSRI_LIVE_LOADER, __func__));
    if (!p || !loader || !out_plan)
        return tsri_fail(TSR_ERR_INVALID, "tsr_program_feed: %s is NULL%s",
                         !p        ? "the program"
                         : !loader ? "the loader"
                                   : "out_plan",
                         p ? tsri_error_cause() : "");
    int64_t rows;
    const tsr_status status = tsri_loader_peek(loader, &rows);
    if (status != TSR_OK || rows == 0) { /* the end of an epoch, or a batch that fails: next says */
        const tsr_batch *batch;
        TSRI_TRY(tsr_loader_next(loader, &batch));
        return tsri_fail(TSR_ERR_INVALID, "tsr_program_feed: a batch of no rows");
    }
    const int64_t all = rows * loader->ranks;
    TSRI_TRY(tsr_program_plan(p, p->opts.local ? rows : all, training, out_plan));
    TSRI_TRY(tsr_loader_feed(loader, *out_plan));
    if (out_rows)
        *out_rows = all;
    return TSR_OK;
}

bool tsri_program_is_local(const tsr_program *p)
{
    return p->opts.local;
}
