/* SPDX-License-Identifier: Apache-2.0 */
/* tsr_plan_explain: the plan as text. */
#include <stdio.h>
#include <stdlib.h>

#include "src/core/shown.h"
#include "src/core/live.h"
#include "src/core/text_stream.h"
#include "src/plan/pass/pass.h"
#include "src/plan/report/report.h"
#include "src/plan/report/stages.h"

static void put_value(FILE *f, const tsri_value *v)
{
    char sbp[TSRI_LAYOUT_TEXT_MAX], dims[TSRI_DIMS_TEXT_MAX];
    tsri_fshow(f, "%s[%s] %s", tsr_dtype_name(v->dtype), tsri_dims_format(v->shape, dims),
               tsri_layout_format(&v->layout, sbp));
}

static void put_operands(FILE *f, const tsr_plan *plan, const tsri_item *it)
{
    for (int i = 0; i < it->nin; i++) {
        fputs(i ? ", " : "", f);
        put_value(f, &plan->ir.values[it->in[i]]);
    }
    tsri_fshow(f, " -> ");
    for (int i = 0; i < it->nout; i++) {
        fputs(i ? ", " : "", f);
        put_value(f, &plan->ir.values[it->out[i]]);
    }
}

/* Whether an item adds a value, a shard of a gradient, to the mean of gradients over runs. */
static bool adds_shard(const tsr_plan *plan, int value)
{
    for (int i = 0; i < plan->ir.nitems; i++) {
        const tsri_item *it = &plan->ir.items[i];
        const bool adds = tsri_item_is_update(it) && it->kernel.attrs.update.adds;
        if (adds && it->in[1] == value &&
            tsri_sbp_dims(it->placement, plan->ir.values[value].layout.sbp, TSR_SBP_SPLIT))
            return true;
    }
    return false;
}

/* Returns the name of an output that is a value or a copy of it; NULL if there is none. */
static const char *output_of(const tsr_plan *plan, int value)
{
    const tsri_value *v = &plan->ir.values[tsri_ir_root(&plan->ir, value)];
    if (v->storage == TSRI_STORAGE_PORT && v->port >= 0)
        return plan->ir.ports[v->port].info.name;
    for (int i = 0; i < plan->ir.nitems; i++) {
        const tsri_item *it = &plan->ir.items[i];
        const bool is_copy = it->kind == TSRI_ITEM_KERNEL && it->kernel.op == TSRI_OP_COPY;
        const bool shows = is_copy || tsri_item_shows(it);
        const char *name = shows && it->in[0] == value ? output_of(plan, it->out[0]) : NULL;
        if (name)
            return name;
    }
    return NULL;
}

/* Says of a reduction in a plan that updates in one of several runs that each run makes it. */
static void put_each_run(FILE *f, const tsr_plan *plan, const tsri_item *it)
{
    bool adds = false;
    if (!tsri_ir_every(&plan->ir) || it->only_if || it->kind != TSRI_ITEM_COLLECTIVE ||
        !tsri_sbp_dims(it->box.from, it->box.step.from.sbp, TSR_SBP_PARTIAL))
        return;
    for (int i = 0; i < it->nout; i++)
        adds |= adds_shard(plan, it->out[i]);
    tsri_fshow(f, "  in each run%s", adds ? ", as shards of the mean over runs are kept" : "");
    for (int i = 0; i < it->nout && it->box.is_bucket; i++) {
        const char *name = output_of(plan, it->out[i]);
        if (name)
            tsri_fshow(f, ", as output '%s' is fetched", name);
    }
}

/* Marks the rows of the micro-batches, and those that some runs leave out. */
static void put_times(FILE *f, const tsr_plan *plan, const tsri_item *it)
{
    const int times = tsri_item_times(&plan->ir, it);
    if (times > 1)
        tsri_fshow(f, "  %d times", times);
    if (it->only_if)
        tsri_fshow(f, "  once in %lld runs", (long long)tsri_item_every(it));
}

static const tsri_call *call_of(const tsr_plan *plan, const tsri_item *it)
{
    for (int i = 0; i < plan->nsteps; i++)
        if (plan->steps[i].item == it && plan->steps[i].call)
            return plan->steps[i].call;
    return NULL;
}

static void put_conversion(FILE *f, const tsr_plan *plan, const tsri_item *it)
{
    const tsri_call *call = call_of(plan, it);
    const char *what = it->box.broadcast ? "broadcast" : tsri_box_kind_name(it->box.step.kind);
    tsri_fshow(f, "      box %-14s %s  ", what, it->name);
    if (it->nin == 1) {
        put_operands(f, plan, it);
    } else {
        char from[TSRI_LAYOUT_TEXT_MAX];
        double bytes = 0;
        for (int i = 0; i < it->nin; i++) {
            const tsri_value *v = &plan->ir.values[it->in[i]];
            bytes += (double)tsr_dims_count(v->shape) * (double)tsr_dtype_size(v->dtype);
        }
        tsri_fshow(f, "%d tensors, %.0f bytes, from %s", it->nin, bytes,
                   tsri_layout_format(&plan->ir.values[it->in[0]].layout, from));
    }
    if (it->kind == TSRI_ITEM_COLLECTIVE) {
        tsri_fshow(f, "  group %s",
                   it->box.ranks ? "of ranks " : tsr_placement_text(it->placement));
        for (int i = 0; i < it->box.nranks; i++)
            tsri_fshow(f, "%s%d", i ? "," : "", it->box.ranks[i]);
        tsri_fshow(f, ", %s", it->box.is_bucket ? "bulk lane" : "critical lane");
        if (call)
            tsri_fshow(f, ", %s%llu bytes read here",
                       call->coll.algo == TSRI_ALGO_TWO_PHASE ? "two-phase, " : "",
                       (unsigned long long)call->bytes);
    }
    put_times(f, plan, it);
    put_each_run(f, plan, it);
    tsri_fshow(f, "  because: %s\n", it->box.reason);
}

static void put_alternatives(FILE *f, const tsr_plan *plan, const tsri_item *it)
{
    char why[TSRI_WHY_MAX];
    if (!it->nout)
        return;
    const tsri_value *made = &plan->ir.values[it->out[0]];
    const tsri_report_row row = {.kind = TSRI_REPORT_OP,
                                 .item = it,
                                 .said = made->said,
                                 .said_by = made->said_by,
                                 .said_at = made->said_at,
                                 .alternatives = made->alternatives};
    if (row.alternatives || it->kernel.recomputes)
        tsri_fshow(f, "      %s\n", tsri_report_why(&row, why));
}

static void put_items(FILE *f, const tsr_plan *plan)
{
    bool backward = false;
    tsri_fshow(f, "program (in the order of this rank, %s):\n", "signatures behind shapes");
    for (int e = 0; e < plan->ir.nentries; e++) {
        const tsri_item *it = &plan->ir.items[plan->ir.entries[e].item];
        tsri_phase phase = plan->ir.entries[e].phase;
        if (it->backward && !backward && it->kind == TSRI_ITEM_KERNEL) {
            backward = true;
            tsri_fshow(f, "  backward:\n");
        }
        if (phase == TSRI_PHASE_FINISH && it->box.is_bucket)
            tsri_fshow(f, "      wait %s\n", it->name);
        if (phase == TSRI_PHASE_FINISH || phase == TSRI_PHASE_RELEASE)
            continue;
        if (it->kind != TSRI_ITEM_KERNEL) {
            put_conversion(f, plan, it);
            continue;
        }
        tsri_fshow(f, "  %-18s %-32s ", tsri_op_word(it->kernel.op, &it->kernel.attrs), it->name);
        put_operands(f, plan, it);
        tsri_fshow(f, "%s%s%s", it->kernel.impl ? "  [" : "",
                   it->kernel.impl ? it->kernel.impl : "", it->kernel.impl ? "]" : "");
        put_times(f, plan, it);
        tsri_fshow(f, "\n");
        put_alternatives(f, plan, it);
    }
}

static bool put_fused(void *arg, const tsri_report_fused *line)
{
    tsri_fshow(arg, "  %-18s %-32s %s\n", line->how, line->name, line->text);
    return true;
}

static void put_ports(FILE *f, const tsr_plan *plan)
{
    for (int i = 0; i < plan->ir.nports; i++) {
        char sbp[TSR_SBP_TEXT_MAX], dims[TSRI_DIMS_TEXT_MAX];
        const tsr_port *p = &plan->ir.ports[i].info;
        tsri_fshow(f, "%s %-12s %s[%s] %s on %s\n", p->is_input ? "input " : "output", p->name,
                   tsr_dtype_name(p->dtype), tsri_dims_format(p->dims, dims),
                   tsr_sbp_format(p->sbp, sbp), tsr_placement_text(p->placement));
    }
}

static void put_totals(FILE *f, const tsr_plan *plan)
{
    uint64_t bytes[TSRI_COLL_KIND_COUNT_] = {0}, bytes_in_each = 0;
    int calls[TSRI_COLL_KIND_COUNT_] = {0}, repeated = 0, calls_in_each = 0;
    for (int i = 0; i < plan->nsteps; i++)
        if (plan->steps[i].kind == TSRI_STEP_START) {
            const tsri_call *c = plan->steps[i].call;
            const int times = tsri_item_times(&plan->ir, plan->steps[i].item);
            calls[c->coll.kind] += times;
            bytes[c->coll.kind] += c->bytes * (uint64_t)times;
            repeated += times > 1 ? times : 0;
            calls_in_each += plan->steps[i].only_if ? 0 : times;
            bytes_in_each += plan->steps[i].only_if ? 0 : c->bytes * (uint64_t)times;
        }
    const bool updates_once = tsri_ir_every(&plan->ir) != 0;
    tsri_fshow(f, "communication of rank %d, per run%s:\n", plan->ir.world->rank,
               updates_once ? " with an update" : "");
    bool any = false;
    for (int i = 0; i < TSRI_COLL_KIND_COUNT_; i++)
        if (calls[i]) {
            tsri_fshow(f, "  %-16s %5d calls %14llu bytes read from peers\n",
                       tsri_coll_kind_name(i), calls[i], (unsigned long long)bytes[i]);
            any = true;
        }
    if (!any)
        tsri_fshow(f, "  none\n");
    if (updates_once)
        tsri_fshow(f, "  a run without an update makes %d calls and reads %llu bytes from peers\n",
                   calls_in_each, (unsigned long long)bytes_in_each);
    if (repeated)
        tsri_fshow(
            f,
            "  %d of these calls are in the micro-batches, whose number multiplies them, and "
            "the bytes of those that do not convert rows of the batch, as of parameters\n",
            repeated);
}

static tsr_status put_memory(FILE *f, tsr_plan *plan)
{
    tsri_fshow(f, "memory, bytes:\n  rank      variables    activations          ports\n");
    for (int r = 0; r < plan->ir.world->nranks && r < 64; r++) {
        size_t variables, activations, ports;
        TSRI_TRY(tsri_plan_rank_bytes(&plan->ir, r, &variables, &ports, &activations));
        tsri_fshow(f, "  %4d %14zu %14zu %14zu\n", r, variables,
                   activations + tsri_plan_scratch(plan), ports);
    }
    if (plan->info.kept_bytes)
        tsri_fshow(f, "  and on this rank %zu for packed weights, which are kept from run to run\n",
                   plan->info.kept_bytes);
    return TSR_OK;
}

/* Why the plan's estimate is not the one that signatures were chosen by. */
static void put_changes(FILE *f, const tsr_plan *plan)
{
    bool any = false;
    for (int i = 0; i < TSRI_CHANGES; i++) {
        const tsri_change *c = &plan->ir.change[i];
        if (!tsri_change_counts(plan, c))
            continue;
        if (!any)
            tsri_fshow(f, "  signatures were chosen at %.3f ms; then\n", plan->info.cost_s * 1e3);
        tsri_fshow(f, "  %+10.3f ms  %s\n", c->more_s * 1e3, c->reason);
        any = true;
    }
}

static void put_stage_line(const char *line, void *f)
{
    tsri_fshow(f, "%s\n", line);
}

static tsr_status put_all(FILE *f, tsr_plan *plan)
{
    tsri_fshow(f, "plan: %d ops, %d steps, %d collectives; estimated %.3f ms of a step (%s)\n",
               plan->info.ops, plan->nsteps, plan->info.collectives, plan->info.step_s * 1e3,
               plan->info.exact ? "signatures proven cheapest by the model"
                                : "signatures by bounded search");
    if (plan->ir.parts > 1)
        tsri_fshow(
            f,
            "%d micro-batches: rows with \"%d times\" run in each of them, with the shapes of "
            "one\n",
            plan->ir.parts, plan->ir.parts);
    tsri_report_stages(plan, (tsri_stages_shown){32, true, true}, put_stage_line, f);
    if (tsri_ir_every(&plan->ir))
        tsri_fshow(
            f,
            "updates in one of %lld runs: other runs leave out the rows with \"once in\"; the "
            "estimate is the mean over runs\n",
            (long long)tsri_ir_every(&plan->ir));
    put_changes(f, plan);
    put_ports(f, plan);
    put_items(f, plan);
    tsri_fshow(f, "fusion:\n");
    TSRI_TRY(tsri_report_fusions(plan, put_fused, f));
    put_totals(f, plan);
    return put_memory(f, plan);
}

const char *tsr_plan_explain(tsr_plan *plan)
{
    if (!tsri_is_live(plan, TSRI_LIVE_PLAN, __func__))
        return "no plan";
    if (plan->explain)
        return plan->explain;
    tsri_text_stream t;
    if (!tsri_text_open(&t, &plan->ir.world->mem))
        return NULL;
    const tsr_status status = put_all(t.stream, plan);
    char *text = tsri_text_close(&t, NULL);
    if (text && status == TSR_OK)
        plan->explain = tsri_mem_strdup(&plan->ir.world->mem, text);
    free(text);
    return plan->explain;
}
