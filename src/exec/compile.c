/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_compile: the passes in order; and a plan's life. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/core/opts.h"
#include "src/core/clock.h"
#include "src/core/live.h"
#include "src/exec/compare.h"
#include "src/exec/finite.h"
#include "src/plan/agree.h"
#include "src/plan/choose/choose.h"
#include "src/plan/choose/need.h"
#include "src/plan/pass/pass.h"
#include "src/rewrite/rewrite.h"

/* Returns what the plan has of its devices and communicators. */
static void release_parts(tsr_plan *plan)
{
    char before[2048]; /* the last error stays */
    snprintf(before, sizeof before, "%s", tsr_last_error());
    for (int k = 0; k < TSRI_DEVICES; k++) /* nobody may still be running it */
        if (plan->part[k].device && plan->part[k].device->ops->stream_sync)
            plan->part[k].device->ops->stream_sync(plan->part[k].device, NULL);
    tsri_fail(TSR_OK, "%s", before);
    tsri_replay_drop(&plan->replay);
    for (int i = 0; i < plan->nsteps; i++) {
        tsri_step *s = &plan->steps[i];
        if (s->kernel)
            s->kernel->destroy(s->kernel);
        for (int j = 0; j < s->nparts; j++)
            s->parts[j]->destroy(s->parts[j]);
        for (int c = s->kind == TSRI_STEP_START ? s->call->slots : 0; c-- > 0;)
            if (s->call[c].coll.prepared)
                s->call->group->comm->ops->unprepare(s->call->group, &s->call[c].coll);
    }
    for (int i = 0; i < plan->ir.nports; i++) {
        tsri_ir_port *p = &plan->ir.ports[i];
        tsri_device *device = plan->part[tsr_placement_device(p->info.placement)].device;
        if (p->ptr)
            device->ops->buffer_free(device, p->ptr, p->bytes);
    }
    tsri_kept_free(plan);
    for (int i = 0; i < plan->nwords; i++)
        plan->words[i].device->ops->buffer_free(plan->words[i].device, plan->words[i].ptr,
                                                sizeof(int64_t));
}

static void destroy_plan(void *object)
{
    tsr_plan *plan = object;
    tsri_world_disown(&plan->owned);
    tsri_live_remove(plan, TSRI_LIVE_PLAN);
    release_parts(plan);
    tsri_mem_free(plan->explain);
    tsri_ir_finish(&plan->ir);
    tsri_pool pool = plan->pool; /* the plan itself lives in it */
    tsri_pool_finish(&pool);
}

void tsr_plan_destroy(tsr_plan *plan)
{
    if (tsri_is_live(plan, TSRI_LIVE_PLAN, __func__))
        destroy_plan(plan);
}

static void lose_variable(void *object, const void *gone)
{
    tsr_plan *plan = object;
    for (int i = 0; i < plan->ir.nvalues && !plan->failure[0]; i++) {
        const tsri_value *v = &plan->ir.values[i];
        if (v->variable && v->variable == gone)
            snprintf(plan->failure, sizeof plan->failure,
                     "variable %.200s of this plan was destroyed, with its module or optimizer",
                     v->name ? v->name : v->variable->name);
    }
}

tsri_cost_model tsri_plan_cost_model(const tsr_compile_opts *opts, tsr_device kind)
{
    tsri_cost_model m = tsri_cost_model_of(kind);
    m.rings = tsri_target_can(kind, TSRI_CAN_RINGS);
    if (opts->local_bytes_per_s > 0)
        m.local_bytes_per_s = opts->local_bytes_per_s;
    if (opts->flops_per_s > 0)
        m.flops_per_s = opts->flops_per_s;
    for (int d = 0; d < TSR_DTYPE_COUNT_; d++)
        m.dtype_flops_per_s[d] = opts->dtype_flops_per_s[d];
    m.attention_share = opts->attention_share;
    memcpy(m.product_share, opts->product_share, sizeof m.product_share);
    if (opts->kernel_s >= 0)
        m.kernel_s = opts->kernel_s;
    if (opts->nlinks <= 0)
        return m;
    m.nlinks = opts->nlinks < TSRI_MAX_LINKS ? opts->nlinks : TSRI_MAX_LINKS;
    for (int i = 0; i < m.nlinks; i++)
        m.link[i] = (tsri_link){i == m.nlinks - 1 ? 0 : opts->link[i].ranks,
                                opts->link[i].latency_s, opts->link[i].bytes_per_s};
    memcpy(m.link_name, opts->link_name, sizeof m.link_name);
    return m;
}

/* Returns the kind of device whose figures price the program: that of the first op that is not on
 * the host, else the host. */
static tsr_device main_device(const tsr_graph *g)
{
    for (int i = 0; i < g->nops; i++)
        if (!tsri_placement_can(g->ops[i]->placement, TSRI_CAN_HOST_MEMORY))
            return tsr_placement_device(g->ops[i]->placement);
    return TSRI_TARGET_HOST;
}

static tsr_plan *new_plan(const tsr_graph *graph, const tsr_compile_opts *opts)
{
    tsr_world *world = graph->world;
    tsri_pool pool;
    tsri_pool_init(&pool, &world->mem);
    tsr_plan *plan = tsri_live_pool_alloc(&pool, sizeof *plan, TSRI_LIVE_PLAN);
    if (!plan) {
        tsri_pool_finish(&pool);
        return NULL;
    }
    tsri_ir_init(&plan->ir, world);
    plan->ir.opts = *opts;
    for (int i = 0; i < TSRI_MAX_LINKS; i++)
        if (opts->link_name[i] &&
            !(plan->ir.opts.link_name[i] = tsri_pool_strdup(&pool, opts->link_name[i]))) {
            tsri_pool_finish(&pool);
            return NULL;
        }
    plan->pool = pool;
    plan->ir.model = tsri_plan_cost_model(&plan->ir.opts, main_device(graph));
    tsri_world_own(world, &plan->owned, plan, destroy_plan);
    plan->owned.lose = lose_variable;
    return plan;
}

/* Every variable that the plan reads gets its shard and its first value. */
static tsr_status prepare_variables(tsr_plan *plan)
{
    double t = tsri_now_s();
    for (int i = 0; i < plan->ir.nvalues; i++) {
        const tsri_value *v = &plan->ir.values[i];
        if (v->storage != TSRI_STORAGE_VARIABLE || !v->source)
            continue;
        TSRI_TRY(tsri_variable_prepare(v->variable));
        plan->info.variable_bytes += v->variable->bytes;
    }
    plan->info.init_s = tsri_now_s() - t;
    return TSR_OK;
}

/* Whether there is anything that a run leaves behind: an output, or a variable written. */
static bool keeps_something(const tsr_graph *g)
{
    bool keeps = g->nports > 0;
    for (int i = 0; i < g->nops && !keeps; i++)
        for (int j = 0; j < g->ops[i]->nout; j++)
            keeps |= g->ops[i]->out[j]->writes != NULL;
    return keeps;
}

/* Opens this rank's device of a placement, if the rank is part of it. title, name: the op or output
 * that errors name. */
static tsr_status find_device(tsr_plan *plan, const tsr_placement *p, tsri_loc loc,
                              const char *title, const char *name)
{
    tsr_device kind = tsr_placement_device(p);
    if (plan->part[kind].device || tsr_placement_find(p, plan->ir.world->rank) < 0)
        return TSR_OK;
    tsr_status status = tsri_device_get(plan->ir.world, kind, &plan->part[kind].device);
    return status == TSR_OK
               ? TSR_OK
               : tsri_fail_prefix(status, "%s:%d: %s%s%s on %s", tsri_basename(loc.file), loc.line,
                                  title, name[0] ? " " : "", name, tsr_device_name(kind));
}

/* The devices that the program's placements name for this rank, and the CPU, by which kinds of
 * device talk. Outputs may be on placements without any op. A virtual world has no devices. */
static tsr_status find_devices(tsr_graph *g, tsr_plan *plan)
{
    if (g->world->is_virtual)
        return TSR_OK;
    TSRI_TRY(tsri_device_get(g->world, TSRI_TARGET_HOST, &plan->part[TSRI_TARGET_HOST].device));
    for (int i = 0; i < g->nops; i++) {
        const tsri_op *op = g->ops[i];
        TSRI_TRY(find_device(plan, op->placement, op->loc, tsri_op_title(op->kind, &op->attrs),
                             op->name));
    }
    for (int i = 0; i < g->nports; i++) {
        const tsri_graph_port *port = &g->ports[i];
        if (port->placement)
            TSRI_TRY(find_device(plan, port->placement, port->loc, "output", port->name));
    }
    return TSR_OK;
}

static tsr_status run_passes(tsri_choosing *c, tsr_plan *plan)
{
    tsr_graph *g = c->g;
    if (g->nops == 0 || !keeps_something(g))
        return tsri_fail(TSR_ERR_STATE,
                         "nothing to compile: the graph has no %s; see tsr_output and tsr_minimize",
                         g->nops ? "output" : "ops");
    TSRI_TRY(find_devices(g, plan));
    TSRI_TRY(tsri_plan_choose(plan, c));
    return c->found ? tsri_ir_settle(&plan->ir) : TSR_OK;
}

/* Returns whether ranks may have to connect their devices, which is collective: some op or output
 * is not on the host. */
static bool names_devices(const tsr_graph *g)
{
    bool names = !tsri_target_can(main_device(g), TSRI_CAN_HOST_MEMORY);
    for (int i = 0; i < g->nports; i++)
        names |= g->ports[i].placement &&
                 !tsri_placement_can(g->ports[i].placement, TSRI_CAN_HOST_MEMORY);
    return names && !g->world->is_virtual;
}

/* Whether ranks have calls to prepare together: all see the same items. */
static bool talks(const tsr_plan *plan)
{
    for (int i = 0; i < plan->ir.nitems; i++)
        if (plan->ir.items[i].kind == TSRI_ITEM_COLLECTIVE)
            return true;
    return false;
}

/* Counts the bytes that this rank needs, kernels' scratch included. */
static tsr_status count_need(tsr_plan *plan, tsri_need *out_need)
{
    size_t variables, ports, values;
    TSRI_TRY(tsri_plan_rank_bytes(&plan->ir, plan->ir.world->rank, &variables, &ports, &values));
    out_need->scratch = tsri_plan_scratch(plan);
    out_need->bytes = variables + ports + values + out_need->scratch;
    for (int i = 0; i < plan->ir.world->nranks && out_need->scratch_of; i++)
        if (i == plan->ir.world->rank || plan->ir.world->is_virtual)
            out_need->scratch_of[i] = out_need->scratch;
    return TSR_OK;
}

/* Makes kernels and calls, and tells what the neediest rank needs. Collective over the world,
 * unless the graph is local. */
static tsr_status lower(tsri_choosing *c, tsr_plan *plan, tsri_need *out_need)
{
    tsr_graph *g = c->declared;
    tsr_status status = plan ? run_passes(c, plan) : TSR_ERR_NO_MEMORY;
    *out_need = (tsri_need){.rank = g->world->rank,
                            .compares = tsri_compare_asked(c->opts),
                            .scratch_of = out_need->scratch_of};
    if (!g->local && names_devices(g)) {
        TSRI_TRY(tsri_plan_agree(g, c->opts, status, NULL));
        status = c->found ? tsri_plan_connect(plan) : TSR_OK;
    }
    if (status == TSR_OK && c->found) {
        status = tsri_plan_lower(plan);
        if (status == TSR_OK)
            out_need->order = tsri_plan_order_hash(&plan->ir);
        if (status == TSR_OK && c->opts->memory_limit)
            status = count_need(plan, out_need);
    }
    return g->local ? status : tsri_plan_agree(g, c->opts, status, out_need);
}

/* Variables and memory, and what ranks prepare together. */
static tsr_status bind(tsr_graph *g, bool compares, tsr_plan *plan)
{
    tsr_status status = prepare_variables(plan);
    if (status == TSR_OK)
        status = tsri_plan_bind(plan);
    if (status == TSR_OK && !g->world->is_virtual) {
        tsri_plan_note_inputs(plan);
        status = tsri_kept_create(plan);
    }
    if (status == TSR_OK && compares && g->world->comm && !g->local)
        status = tsri_compare_create(plan);
    if (status == TSR_OK)
        status = tsri_finite_create(plan);
    if (g->local)
        return status;
    TSRI_TRY(tsri_plan_agree(g, NULL, status, NULL));
    if (!talks(plan))
        return TSR_OK;
    TSRI_TRY(tsri_plan_agree(g, NULL, tsri_plan_prepare(plan), NULL));
    return names_devices(g) ? tsri_replay_connect(plan) : TSR_OK;
}

/* Bytes of the neediest rank. The ranks of a virtual world do not meet: each is taken to have the
 * scratch of the one that asks. */
static size_t most_of(const tsri_choosing *c, const tsri_need *need)
{
    const size_t bytes = c->bytes + (c->g->world->is_virtual ? need->scratch : 0);
    return need->bytes > bytes ? need->bytes : bytes;
}

/* Whether .infer_updates may change anything: some parameter has a signature of its own. */
static bool holds_updates(const tsri_choosing *c)
{
    bool holds = false;
    for (int i = 0; i < c->g->nops && !c->opts->infer_updates; i++)
        holds |= c->g->ops[i]->kind == TSRI_OP_VARIABLE && c->g->ops[i]->variable->trainable &&
                 !c->is_open[i];
    return holds;
}

/* Counts the bytes of the leanest plan with updates that are inferred. Collective as `lower` is. */
static tsr_status try_updates(tsri_choosing *c, tsri_need *out_need)
{
    const tsr_compile_opts *asked = c->opts;
    if (!holds_updates(c))
        return TSR_OK;
    tsr_compile_opts opts = *asked;
    opts.infer_updates = true;
    c->opts = &opts;
    tsr_plan *plan = new_plan(c->g, &opts);
    tsr_status status = lower(c, plan, out_need);
    tsr_plan_destroy(plan);
    c->opts = asked;
    return status;
}

/* Says what the leanest plan needs, and what would fit. Collective as `lower` is. */
static tsr_status refuse(tsri_choosing *c, tsr_plan *plan, const tsri_need *need)
{
    tsri_need with_updates = {0};
    if (most_of(c, need) < 2 * c->opts->memory_limit) /* else they are too few by far */
        TSRI_TRY(try_updates(c, &with_updates));
    if (with_updates.scratch < need->scratch)
        with_updates.scratch = need->scratch;
    const tsri_shortage shortage = {.limit = c->opts->memory_limit,
                                    .scratch_of = need->scratch_of,
                                    .with_updates = most_of(c, &with_updates)};
    return tsri_plan_refuse(plan, &shortage);
}

/* The scratch of kernels is known only when they are made: where it is too much with the rest,
 * signatures are chosen again, with so much less. In the end comes the leanest plan, which the
 * limit is refused with unless it fits: so a limit of just what that one needs is never refused. */
static tsr_status make_plan(tsri_choosing *c, tsr_plan **out_plan)
{
    const tsr_compile_opts *opts = c->opts;
    enum { MOST_TRIES = 6 };
    tsri_need need = {0};
    for (int i = 1;; i++) {
        c->leanest = (i > 1 && !c->found) || i > MOST_TRIES;
        if (c->leanest)
            need.scratch_of =
                tsri_pool_alloc(c->pool, (size_t)c->g->world->nranks * sizeof *need.scratch_of);
        tsr_plan *plan = new_plan(c->g, opts);
        tsr_status status = lower(c, plan, &need);
        bool fits = c->found && (most_of(c, &need) <= opts->memory_limit || !opts->memory_limit);
        if (status == TSR_OK && fits)
            status = bind(c->declared, need.compares, plan);
        if (status == TSR_OK && fits) {
            *out_plan = plan;
            return TSR_OK;
        }
        if (status == TSR_OK && c->leanest)
            status = refuse(c, plan, &need);
        tsr_plan_destroy(plan);
        TSRI_TRY(status);
        if (!c->found)
            continue;
        c->reserve += need.bytes - opts->memory_limit;
        c->reserve = c->reserve > need.scratch ? c->reserve : need.scratch;
    }
}

tsr_status tsri_compile_copy(const tsr_graph *graph, const tsr_compile_opts *opts,
                             tsr_graph **out_copy)
{
    tsr_graph *copy;
    TSRI_TRY(tsri_graph_copy(graph, &copy));
    copy->step = (tsri_step_form){.parts = opts->microbatches,
                                  .regathers = opts->reshard_after_forward,
                                  .stops = opts->on_nan == TSR_NAN_STOP};
    tsr_status status = tsri_rewrite(copy);
    if (status != TSR_OK)
        tsri_graph_copy_free(copy);
    else
        *out_copy = copy;
    return status;
}

/* Begins a compile with a copy of the graph. Not collective. Where it fails, nothing is to be
 * ended.
 */
static tsr_status begin(tsr_graph *graph, const tsr_compile_opts *opts, bool fixes, tsri_pool *pool,
                        tsri_choosing *c)
{
    tsr_graph *copy;
    TSRI_TRY(tsri_graph_status(graph));
    TSRI_TRY(tsri_compile_copy(graph, opts, &copy));
    tsri_pool_init(pool, &graph->world->mem);
    tsri_choosing_begin(graph, copy, opts, fixes, pool, c);
    return TSR_OK;
}

/* `frees`: see tsri_choosing_end. */
static void end(tsri_choosing *c, bool frees, tsri_pool *pool)
{
    tsri_choosing_end(c, frees);
    tsri_graph_copy_free(c->g);
    tsri_pool_finish(pool);
}

tsr_status tsri_plan_compile(tsr_graph *graph, const tsr_compile_opts *opts, bool fixes,
                             tsr_plan **out_plan)
{
    tsr_compile_opts o = *TSR_COMPILE_OPTS();
    TSRI_TRY(tsri_opts_read(&o, sizeof o, opts, "tsr_compile"));
    if (!(o.bucket_mb >= 0))
        return tsri_fail(TSR_ERR_INVALID, "tsr_compile: bucket_mb is %g; it must not be negative",
                         o.bucket_mb);
    if (o.compare_values && graph->local && graph->world->nranks > 1)
        tsri_log(graph->world, TSR_LOG_WARNING,
                 "compare_values compares nothing in a local graph, whose inputs are each rank's "
                 "own: TESSERA_COMPARE=1 has a tsr_ddp compare parameters");
    if (o.microbatches < 0)
        return tsri_fail(TSR_ERR_INVALID, "tsr_compile: %d micro-batches; at least 1 is possible",
                         o.microbatches);
    if (o.pipeline != TSR_PIPELINE_1F1B && o.pipeline != TSR_PIPELINE_GPIPE)
        return tsri_fail(TSR_ERR_INVALID, "tsr_compile: there is no pipeline schedule %d",
                         (int)o.pipeline);
    if (!(o.search_s >= 0))
        return tsri_fail(TSR_ERR_INVALID, "tsr_compile: search_s is %g; it must not be negative",
                         o.search_s);
    double t = tsri_now_s();
    tsri_pool pool;
    tsr_plan *plan = NULL;
    tsri_choosing c;
    tsr_status status = begin(graph, &o, fixes, &pool, &c);
    if (status != TSR_OK) /* the other ranks wait to hear of it */
        return graph->local ? status : tsri_plan_agree(graph, &o, status, NULL);
    status = make_plan(&c, &plan);
    end(&c, status != TSR_OK || !fixes, &pool);
    TSRI_TRY(status);
    tsri_pool_finish(&plan->ir.scratch);
    plan->info.host_bytes = tsri_pool_bytes(&plan->pool) + tsri_pool_bytes(&plan->ir.program);
    plan->info.steps = plan->nsteps;
    for (int k = 0; k < TSRI_DEVICES; k++)
        plan->info.activation_bytes += plan->part[k].arena_bytes;
    plan->info.scratch_bytes = tsri_plan_scratch(plan);
    plan->info.kept_bytes = plan->kept.bytes;
    plan->info.compile_s = tsri_now_s() - t;
    tsri_error_settled();
    *out_plan = plan;
    return TSR_OK;
}

tsr_status tsri_plan_fits(tsr_graph *graph, const tsr_compile_opts *opts, bool *out_fits)
{
    tsr_compile_opts o = *TSR_COMPILE_OPTS();
    TSRI_TRY(tsri_opts_read(&o, sizeof o, opts, "tsr_compile"));
    tsri_pool pool;
    tsri_choosing c;
    TSRI_TRY(begin(graph, &o, false, &pool, &c));
    c.any_will_do = true;
    bool fits = false;
    tsr_status status = TSR_OK;
    /* The leanest last, as a compile does, unless it would need to be much leaner. */
    for (int i = 0; i < 2 && status == TSR_OK && !fits; i++) {
        c.leanest = i > 0;
        tsr_plan *plan = new_plan(c.g, &o);
        status = plan ? run_passes(&c, plan) : TSR_ERR_NO_MEMORY;
        fits = status == TSR_OK && c.found && (!o.memory_limit || c.bytes <= o.memory_limit);
        if (fits && o.memory_limit) { /* with the scratch that is known then */
            status = tsri_plan_lower(plan);
            fits = c.bytes + tsri_plan_scratch(plan) <= o.memory_limit;
        }
        tsr_plan_destroy(plan);
        if (c.bytes > 2 * o.memory_limit)
            break;
    }
    end(&c, true, &pool);
    if (status == TSR_OK)
        *out_fits = fits;
    return status;
}

tsr_status tsr_compile_with(tsr_graph *graph, const tsr_compile_opts *opts, tsr_plan **out_plan)
{
    if (!graph)
        return tsri_fail(TSR_ERR_INVALID, "tsr_compile: no graph%s", tsri_error_cause());
    if (!out_plan)
        return tsri_fail(TSR_ERR_INVALID,
                         "tsr_compile: out_plan is NULL; give the address of a tsr_plan *");
    TSRI_TRY(tsri_live_check(graph, TSRI_LIVE_GRAPH, "tsr_compile"));
    return tsri_plan_compile(graph, opts, true, out_plan);
}

tsr_status tsr_compile(tsr_graph *graph, tsr_plan **out_plan)
{
    return tsr_compile_with(graph, NULL, out_plan);
}

tsr_status tsr_plan_get_info(const tsr_plan *plan, tsr_plan_info *info)
{
    if (!plan || !info || !info->size)
        return tsri_fail(TSR_ERR_INVALID, "tsr_plan_get_info: no plan, or info->size is not set");
    TSRI_TRY(tsri_live_check(plan, TSRI_LIVE_PLAN, "tsr_plan_get_info"));
    size_t size = info->size < sizeof *info ? info->size : sizeof *info;
    memcpy(info, &plan->info, size);
    info->size = size;
    return TSR_OK;
}
