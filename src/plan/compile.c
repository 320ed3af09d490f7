/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_compile: the passes in order; and a plan's life. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/core/clock.h"
#include "src/plan/plan.h"

/* What the plan has of its devices and communicators. */
static void release_parts(tsr_plan *plan)
{
    const tsri_replay *replay = &plan->replay;
    for (int k = 0; k < TSRI_DEVICES; k++) /* nobody may still be running it */
        if (plan->part[k].device && plan->part[k].device->ops->stream_sync)
            plan->part[k].device->ops->stream_sync(plan->part[k].device, NULL);
    if (replay->device && replay->captured)
        replay->device->ops->captured_destroy(replay->device, replay->captured);
    for (int i = 0; i < plan->nsteps; i++) {
        tsri_step *s = &plan->steps[i];
        if (s->kernel)
            s->kernel->destroy(s->kernel);
        for (int j = 0; j < s->nparts; j++)
            s->parts[j]->destroy(s->parts[j]);
        if (s->kind == TSRI_STEP_START && s->call->coll.prepared)
            s->call->group->comm->ops->unprepare(s->call->group, &s->call->coll);
    }
    for (int i = 0; i < plan->nports; i++) {
        tsri_plan_port *p = &plan->ports[i];
        tsri_device *device = plan->part[tsr_placement_device(p->info.placement)].device;
        if (p->ptr)
            device->ops->buffer_free(device, p->ptr, p->bytes);
    }
    for (int i = 0; i < plan->nstep_ptrs; i++)
        plan->step_devices[i]->ops->buffer_free(plan->step_devices[i], plan->step_ptrs[i],
                                                sizeof(int64_t));
}

static void destroy_plan(void *object)
{
    tsr_plan *plan = object;
    tsri_world_disown(&plan->owned);
    release_parts(plan);
    tsri_mem_free(plan->explain);
    tsri_pool_finish(&plan->scratch);
    tsri_pool pool = plan->pool; /* the plan itself lives in it */
    tsri_pool_finish(&pool);
}

void tsr_plan_destroy(tsr_plan *plan)
{
    if (plan)
        destroy_plan(plan);
}

void tsri_variable_forget(const tsr_variable *v)
{
    tsri_graphs_forget(v);
    for (tsri_owned *o = v->world->owned; o; o = o->next) {
        tsr_plan *plan = o->destroy == destroy_plan ? o->object : NULL;
        for (int i = 0; plan && i < plan->nvalues && !plan->failure[0]; i++)
            if (plan->values[i].variable == v)
                snprintf(plan->failure, sizeof plan->failure,
                         "variable %.200s of this plan was destroyed, with its module or optimizer",
                         plan->values[i].name ? plan->values[i].name : v->name);
    }
}

tsri_cost_model tsri_plan_cost_model(const tsr_compile_opts *opts, tsr_device kind)
{
    tsri_cost_model m = kind == TSR_DEVICE_CPU ? tsri_cost_model_local() : tsri_cost_model_gpu();
    if (opts->local_bytes_per_s > 0)
        m.local_bytes_per_s = opts->local_bytes_per_s;
    if (opts->flops_per_s > 0)
        m.flops_per_s = opts->flops_per_s;
    if (opts->kernel_s > 0)
        m.kernel_s = opts->kernel_s;
    if (opts->nlinks <= 0)
        return m;
    m.nlinks = opts->nlinks < TSRI_MAX_LINKS ? opts->nlinks : TSRI_MAX_LINKS;
    for (int i = 0; i < m.nlinks; i++)
        m.link[i] = (tsri_link){i == m.nlinks - 1 ? 0 : opts->link[i].ranks,
                                opts->link[i].latency_s, opts->link[i].bytes_per_s};
    return m;
}

/* GPUs, if there are any in the program: they do what is worth counting. */
static tsr_device main_device(const tsr_graph *g)
{
    for (int i = 0; i < g->nops; i++)
        if (tsr_placement_device(g->ops[i]->placement) != TSR_DEVICE_CPU)
            return TSR_DEVICE_CUDA;
    return TSR_DEVICE_CPU;
}

static tsr_plan *new_plan(const tsr_graph *graph, const tsr_compile_opts *opts)
{
    tsr_world *world = graph->world;
    tsri_pool pool;
    tsri_pool_init(&pool, &world->mem);
    tsr_plan *plan = tsri_pool_alloc(&pool, sizeof *plan);
    if (!plan)
        return NULL;
    plan->world = world;
    plan->pool = pool;
    tsri_pool_init(&plan->scratch, &world->mem);
    plan->opts = *opts;
    plan->model = tsri_plan_cost_model(opts, main_device(graph));
    tsri_world_own(world, &plan->owned, plan, destroy_plan);
    return plan;
}

/* Every variable gets its shard and its first value. */
static tsr_status prepare_variables(tsr_graph *g, size_t *out_bytes)
{
    *out_bytes = 0;
    for (int i = 0; i < g->nops; i++) {
        tsr_variable *v = g->ops[i]->variable;
        if (g->ops[i]->kind != TSRI_OP_VARIABLE)
            continue;
        TSRI_TRY(tsri_variable_prepare(v));
        *out_bytes += v->bytes;
    }
    return TSR_OK;
}

/* Whether there is anything that a run leaves behind: an output, or a variable written. */
static bool keeps_something(const tsr_graph *g)
{
    bool keeps = g->nports > 0;
    for (int i = 0; i < g->nops && !keeps; i++)
        for (int j = 0; j < 4; j++)
            keeps |= g->ops[i]->writes[j] != NULL;
    return keeps;
}

/* The devices that the program's placements name for this rank, and the CPU, by which kinds of
 * device talk. A virtual world plans for any, and has none. */
static tsr_status find_devices(tsr_graph *g, tsr_plan *plan)
{
    if (g->world->is_virtual)
        return TSR_OK;
    TSRI_TRY(tsri_device_get(g->world, TSR_DEVICE_CPU, &plan->part[TSR_DEVICE_CPU].device));
    for (int i = 0; i < g->nops; i++) {
        const tsri_op *op = g->ops[i];
        tsr_device kind = tsr_placement_device(op->placement);
        if (plan->part[kind].device || tsr_placement_find(op->placement, g->world->rank) < 0)
            continue;
        tsr_status status = tsri_device_get(g->world, kind, &plan->part[kind].device);
        if (status != TSR_OK)
            return tsri_fail_prefix(
                status, "%s:%d: %s %s: placement %s", tsri_basename(op->loc.file), op->loc.line,
                tsri_op_name(op->kind), op->name, tsr_placement_text(op->placement));
    }
    return TSR_OK;
}

/* --- choosing, within memory ------------------------------------------------------------------ */
/* Gives the variables that were left to the compiler what was chosen; or takes it back. */
static void set_inferred(tsr_graph *g, const tsri_inferred *inferred, const bool *was_auto,
                         bool set)
{
    for (int i = 0; i < g->nops && inferred->chosen; i++)
        if (was_auto[i] && inferred->live[i])
            g->ops[i]->variable->sbp = set ? inferred->chosen[i]->out[0] : TSR_AUTO;
}

static const struct {
    tsri_pass pass;
    tsr_status (*run)(tsr_plan *plan);
} passes[] = {
    {TSRI_PASS_BUILD, NULL}, /* takes the graph too */
    {TSRI_PASS_FUSE, tsri_plan_fuse},
    {TSRI_PASS_LAYOUT, tsri_plan_layout},
    {TSRI_PASS_DEFER, tsri_plan_defer},
    {TSRI_PASS_ORDER, tsri_plan_order},
    {TSRI_PASS_SCHEDULE, tsri_plan_schedule},
};

/* From signatures to the order of things and the lifetimes of values. */
static tsr_status build(tsr_graph *g, tsr_plan *plan, const tsri_inferred *inferred)
{
    tsri_pool_finish(&plan->scratch);
    tsri_pool_init(&plan->scratch, &g->world->mem);
    plan->group = NULL;
    plan->cgroup = 0;
    plan->values = NULL;
    plan->items = NULL;
    plan->entries = NULL;
    plan->nvalues = plan->cvalues = plan->nitems = plan->citems = 0;
    plan->nentries = plan->centries = plan->info.ops = 0;
    TSRI_TRY(tsri_plan_build(plan, g, inferred));
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        if (passes[i].pass == TSRI_PASS_FUSE && plan->opts.no_fusion)
            continue;
        if (passes[i].run)
            TSRI_TRY(passes[i].run(plan));
        TSRI_TRY(tsri_plan_check(plan, passes[i].pass));
    }
    return TSR_OK;
}

/* The most that a rank needs, judged by the first rank of each placement, whose parts are the
 * largest. */
static tsr_status most_bytes(const tsr_graph *g, tsr_plan *plan, size_t *out_bytes)
{
    const tsr_placement *seen = NULL;
    *out_bytes = 0;
    for (int i = 0; i < g->nops; i++) {
        size_t variables, ports, values;
        if (g->ops[i]->placement == seen)
            continue;
        seen = g->ops[i]->placement;
        TSRI_TRY(
            tsri_plan_rank_bytes(plan, tsr_placement_rank(seen, 0), &variables, &ports, &values));
        if (variables + ports + values > *out_bytes)
            *out_bytes = variables + ports + values;
    }
    return TSR_OK;
}

typedef struct chooser {
    tsr_graph *g;
    tsr_plan *plan;
    tsri_pool *pool;
    bool *was_auto; /* per op: reads a variable whose signature is left to the compiler */
    tsri_inferred inferred;
    size_t bytes; /* that what was built last needs on a rank */
} chooser;

/* Infers with a limit on what inference estimates, and builds, if something fits. */
static tsr_status try_limit(chooser *c, double limit)
{
    const tsri_infer_opts how = {.memory_limit = (int64_t)limit,
                                 .alternatives = c->plan->opts.alternatives};
    double t = tsri_now_s();
    set_inferred(c->g, &c->inferred, c->was_auto, false);
    c->inferred = (tsri_inferred){0};
    TSRI_TRY(tsri_infer(c->g, &c->plan->model, &how, c->pool, &c->inferred));
    c->plan->info.infer_s += tsri_now_s() - t;
    if (!c->inferred.fits)
        return TSR_OK;
    set_inferred(c->g, &c->inferred, c->was_auto, true);
    TSRI_TRY(build(c->g, c->plan, &c->inferred));
    return c->plan->opts.memory_limit ? most_bytes(c->g, c->plan, &c->bytes) : TSR_OK;
}

/* Infers and builds. What inference takes for a rank's memory is an estimate (what is done in
 * place, layouts, buckets and gaps come later). So with a limit the fastest plan is built and
 * measured, and if it is too large, inference is asked for less, in proportion, until what is built
 * fits. */
static tsr_status choose(chooser *c)
{
    enum { MOST_TRIES = 8 };
    const double limit = (double)c->plan->opts.memory_limit;
    TSRI_TRY(try_limit(c, 0));
    if (limit == 0 || (double)c->bytes <= limit)
        return TSR_OK;
    size_t leanest = c->bytes;
    /* Nothing fits an estimate of `low`; what fits `high` is too large. */
    double low = 0, high = (double)c->inferred.peak, ask = high * limit / (double)c->bytes;
    for (int i = 0; i < MOST_TRIES && high - low > 0.01 * high; i++) {
        if (ask <= low || ask >= high)
            ask = (low + high) / 2;
        TSRI_TRY(try_limit(c, ask));
        if (c->inferred.fits && (double)c->bytes <= limit)
            return TSR_OK;
        if (!c->inferred.fits) {
            low = ask;
            ask = 1.1 * ask;
            continue;
        }
        leanest = c->bytes < leanest ? c->bytes : leanest;
        high = ask;
        ask *= 0.98 * limit / (double)c->bytes;
    }
    return tsri_fail(TSR_ERR_NO_MEMORY,
                     "the leanest plan that was found needs %zu bytes on a rank; the limit is %zu",
                     leanest, c->plan->opts.memory_limit);
}

static tsr_status choose_and_prepare(tsr_graph *g, tsr_plan *plan, tsri_pool *pool)
{
    chooser c = {.g = g, .plan = plan, .pool = pool};
    c.was_auto = tsri_pool_alloc(pool, (size_t)g->nops + 1);
    if (!c.was_auto)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < g->nops; i++)
        c.was_auto[i] = g->ops[i]->kind == TSRI_OP_VARIABLE && g->ops[i]->variable->sbp.ndim == 0;
    tsr_status status = choose(&c);
    if (status != TSR_OK) {
        set_inferred(g, &c.inferred, c.was_auto, false);
        return status;
    }
    plan->info.cost_s = c.inferred.cost;
    plan->info.bound_s = c.inferred.bound;
    plan->info.exact = c.inferred.exact;
    double t = tsri_now_s();
    status = prepare_variables(g, &plan->info.variable_bytes);
    plan->info.init_s = tsri_now_s() - t;
    return status;
}

static tsr_status run_passes(tsr_graph *g, tsr_plan *plan)
{
    TSRI_TRY(tsr_graph_status(g));
    if (g->nops == 0 || !keeps_something(g))
        return tsri_fail(TSR_ERR_STATE,
                         "nothing to compile: the graph has no %s; see tsr_output and tsr_minimize",
                         g->nops ? "output" : "ops");
    TSRI_TRY(find_devices(g, plan));
    tsri_pool pool;
    tsri_pool_init(&pool, &g->world->mem);
    tsr_status status = choose_and_prepare(g, plan, &pool);
    tsri_pool_finish(&pool);
    TSRI_TRY(status);
    return tsri_plan_settle(plan);
}

/* Whether ranks may have to connect their devices, which they do together. */
static bool names_devices(const tsr_graph *g)
{
    return !g->world->is_virtual && main_device(g) != TSR_DEVICE_CPU;
}

/* Whether ranks have calls to prepare together: all see the same items. */
static bool talks(const tsr_plan *plan)
{
    for (int i = 0; i < plan->nitems; i++)
        if (plan->items[i].kind == TSRI_ITEM_COLLECTIVE)
            return true;
    return false;
}

static tsr_status make_plan(tsr_graph *g, tsr_plan *plan, const tsr_compile_opts *opts)
{
    tsr_status status = plan ? run_passes(g, plan) : TSR_ERR_NO_MEMORY;
    if (g->local)
        return status == TSR_OK ? tsri_plan_lower(plan) : status;
    if (names_devices(g)) {
        TSRI_TRY(tsri_plan_agree(g, opts, status));
        status = tsri_plan_connect(plan);
    }
    if (status == TSR_OK)
        status = tsri_plan_lower(plan);
    TSRI_TRY(tsri_plan_agree(g, opts, status));
    if (!talks(plan))
        return TSR_OK;
    TSRI_TRY(tsri_plan_agree(g, opts, tsri_plan_prepare(plan)));
    return names_devices(g) ? tsri_replay_connect(plan) : TSR_OK;
}

tsr_status tsr_compile_with(tsr_graph *graph, const tsr_compile_opts *opts, tsr_plan **out_plan)
{
    if (!graph)
        return tsri_fail(TSR_ERR_INVALID, "tsr_compile: no graph%s%s",
                         tsr_last_error()[0] ? ": " : "", tsr_last_error());
    tsr_compile_opts o = {0};
    if (opts)
        memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    double t = tsri_now_s();
    tsr_plan *plan = new_plan(graph, &o);
    tsr_status status = make_plan(graph, plan, &o);
    if (status != TSR_OK) {
        tsr_plan_destroy(plan);
        return status;
    }
    tsri_pool_finish(&plan->scratch);
    plan->info.host_bytes = tsri_pool_bytes(&plan->pool);
    plan->info.steps = plan->nsteps;
    for (int k = 0; k < TSRI_DEVICES; k++)
        plan->info.activation_bytes += plan->part[k].arena_bytes;
    plan->info.scratch_bytes = tsri_plan_scratch(plan);
    plan->info.compile_s = tsri_now_s() - t;
    *out_plan = plan;
    return TSR_OK;
}

tsr_status tsr_compile(tsr_graph *graph, tsr_plan **out_plan)
{
    return tsr_compile_with(graph, NULL, out_plan);
}

tsr_status tsr_plan_get_info(const tsr_plan *plan, tsr_plan_info *info)
{
    if (!plan || !info || !info->size)
        return tsri_fail(TSR_ERR_INVALID, "tsr_plan_get_info: no plan, or info->size is not set");
    size_t size = info->size < sizeof *info ? info->size : sizeof *info;
    memcpy(info, &plan->info, size);
    info->size = size;
    return TSR_OK;
}
