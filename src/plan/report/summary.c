/* SPDX-License-Identifier: Apache-2.0 */
#include "src/plan/report/summary.h"

#include <stdlib.h>
#include <string.h>

#include "src/ir/flow.h"
#include "src/plan/report/report.h"

typedef struct summer {
    tsri_report *r;
    const tsr_plan *plan;
    tsri_flow flow;
    int capacity;
} summer;

static const struct {
    const char *word, *name;
} kinds[] = {
    [TSRI_TRAFFIC_GRADIENTS] = {"gradients", "gradients"},
    [TSRI_TRAFFIC_UPDATES] = {"updates", "updated variables"},
    [TSRI_TRAFFIC_WEIGHTS] = {"weights", "weights"},
    [TSRI_TRAFFIC_STATISTICS] = {"statistics", "statistics of norms"},
    [TSRI_TRAFFIC_FORWARD] = {"forward", "forward values"},
    [TSRI_TRAFFIC_BACKWARD] = {"backward", "backward values"},
    [TSRI_TRAFFIC_STAGES] = {"stages", "values between placements"},
    [TSRI_TRAFFIC_OUTPUTS] = {"outputs", "outputs"},
};

const char *tsri_traffic_name(tsri_traffic_kind kind)
{
    return kinds[kind].name;
}

const char *tsri_traffic_word(tsri_traffic_kind kind)
{
    return kinds[kind].word;
}

/* --- traffic ---------------------------------------------------------------------------------- */
static bool is_output(const tsr_plan *plan, int value)
{
    const tsri_value *v = &plan->ir.values[value];
    return v->storage == TSRI_STORAGE_PORT && v->port >= 0 && plan->ir.ports[v->port].is_output;
}

/* Whether nothing but outputs, or nothing but updates that take it as a gradient, reads a value,
 * also through further conversions. */
static bool serves_only(const summer *s, int value, bool outputs)
{
    const tsri_flow *f = &s->flow;
    bool any = outputs && is_output(s->plan, value);
    for (int i = f->first[value]; i < f->first[value + 1]; i++) {
        const tsri_item *it = &s->plan->ir.items[f->reader[i]];
        int gradient =
            it->kind == TSRI_ITEM_KERNEL ? tsri_op_gradient_operand(it->kernel.op, it->nin) : -1;
        bool serves = !outputs && gradient >= 0 && it->in[gradient] == value;
        if (it->kind == TSRI_ITEM_VIEW || (tsri_item_converts(it) && it->nin == 1))
            serves = serves_only(s, it->out[0], outputs);
        if (!serves)
            return false;
        any = true;
    }
    return any;
}

static bool is_statistic(const summer *s, int value)
{
    int maker = s->flow.maker[value];
    const tsri_item *it = maker >= 0 ? &s->plan->ir.items[maker] : NULL;
    if (it && tsri_item_converts(it))
        return is_statistic(s, tsri_operand_behind(it, value));
    const char *end = it && it->kind == TSRI_ITEM_KERNEL
                          ? strstr(tsri_op_title(it->kernel.op, &it->kernel.attrs), "_stats")
                          : NULL;
    return end && !end[6];
}

static tsri_traffic_kind kind_of(const summer *s, const tsri_item *it)
{
    const tsr_plan *plan = s->plan;
    int variable = tsri_variable_behind(&s->flow, it->in[0]);
    if (it->box.is_bucket || it->box.part.number)
        return it->box.part_of ? TSRI_TRAFFIC_UPDATES : TSRI_TRAFFIC_GRADIENTS;
    if (plan->ir.values[tsri_ir_root(&plan->ir, it->out[0])].storage == TSRI_STORAGE_VARIABLE)
        return TSRI_TRAFFIC_UPDATES;
    if (it->box.from != it->placement)
        return TSRI_TRAFFIC_STAGES;
    if (serves_only(s, it->out[0], false))
        return TSRI_TRAFFIC_GRADIENTS;
    if (serves_only(s, it->out[0], true))
        return TSRI_TRAFFIC_OUTPUTS;
    if (variable >= 0)
        return TSRI_TRAFFIC_WEIGHTS;
    if (is_statistic(s, it->in[0]))
        return TSRI_TRAFFIC_STATISTICS;
    return it->backward ? TSRI_TRAFFIC_BACKWARD : TSRI_TRAFFIC_FORWARD;
}

static tsr_status add_traffic(summer *s, const tsri_report_row *row)
{
    tsri_summary *sum = &s->r->summary;
    const tsri_item *it = row->item;
    const tsri_traffic one = {.kind = row->use,
                              .what = row->what,
                              .from = it->box.from,
                              .to = it->placement,
                              .dims = it->box.step.crosses || it->box.ranks ? 0 : it->box.step.dims,
                              .link = row->link,
                              .group_size = row->group_size};
    int at = 0;
    for (; at < sum->ntraffic; at++) {
        const tsri_traffic *t = &sum->traffic[at];
        if (t->kind == one.kind && !strcmp(t->what, one.what) && t->dims == one.dims &&
            t->link == one.link && t->group_size == one.group_size &&
            tsr_placement_ndim(t->to) == tsr_placement_ndim(one.to))
            break;
    }
    if (at == sum->ntraffic) {
        TSRI_NEED(TSRI_PUSH(&s->r->pool, sum->traffic, sum->ntraffic, s->capacity));
        sum->traffic[sum->ntraffic++] = one;
    }
    sum->traffic[at].calls += row->times;
    sum->traffic[at].bytes += row->bytes;
    sum->traffic[at].cost_s += row->cost_s;
    return TSR_OK;
}

static int by_cost(const void *a, const void *b)
{
    const tsri_traffic *x = a, *y = b;
    return x->cost_s != y->cost_s ? (x->cost_s < y->cost_s) - (x->cost_s > y->cost_s)
                                  : (int)x->kind - (int)y->kind;
}

/* --- compute ---------------------------------------------------------------------------------- */
/* The ranks that do an item alike: along dimensions on which no operand and no result is split or
 * partial. */
static int ranks_alike(const tsr_plan *plan, const tsri_item *it)
{
    int alike = 1;
    for (int d = 0; d < tsr_placement_ndim(it->placement); d++) {
        bool same = true;
        for (int j = 0; j < it->nin + it->nout; j++) {
            int value = j < it->nin ? it->in[j] : it->out[j - it->nin];
            same &= plan->ir.values[value].placement != it->placement ||
                    plan->ir.values[value].layout.sbp.d[d].kind == TSR_SBP_BROADCAST;
        }
        alike *= same ? tsr_placement_dim(it->placement, d) : 1;
    }
    return alike;
}

/* The ids that an item looks up in a parameter, one row of them for each sample; 0: it is no
 * embedding. */
static int64_t count_tokens(const summer *s, const tsri_item *it)
{
    const int times = tsri_item_times(&s->plan->ir, it);
    int64_t ids = 0;
    bool table = false;
    for (int j = 0; j < it->nin && !it->backward; j++) {
        const tsri_value *v = &s->plan->ir.values[it->in[j]];
        if (v->dtype == TSR_I64 && v->shape.ndim == 2 &&
            v->shape.d[0] * times == s->r->summary.samples)
            ids = tsr_dims_count(v->shape) * times;
        else
            table |= tsri_variable_behind(&s->flow, it->in[j]) >= 0;
    }
    return table ? ids : 0;
}

static void add_compute(summer *s, const tsri_report_row *row)
{
    tsri_summary *sum = &s->r->summary;
    int alike = row->cost_s > 0 ? ranks_alike(s->plan, row->item) : 1;
    /* MFU is of the model's work, once (Chowdhery et al., "PaLM", 2022, appendix B). */
    const double flops = row->item->kernel.recomputes ? 0 : row->item->kernel.flops * row->times;
    sum->flops += flops;
    sum->flops_in[row->item->kernel.dtype] += flops;
    if (!sum->tokens)
        sum->tokens = count_tokens(s, row->item);
    if (tsri_op_def_of(row->item->kernel.op)->is_update)
        return;
    sum->alike_s += alike > 1 ? row->cost_s : 0;
    sum->alike = alike > sum->alike ? alike : sum->alike;
}

/* --- sizes ------------------------------------------------------------------------------------ */
static void add_source(summer *s, const tsri_report_row *row)
{
    tsri_summary *sum = &s->r->summary;
    const tsri_value *v = &s->plan->ir.values[row->value];
    if (!v->variable || !v->variable->scope || !v->variable->trainable)
        return;
    sum->parameters += tsr_dims_count(v->shape);
    sum->tensors++;
}

static void count_rows(summer *s)
{
    tsri_summary *sum = &s->r->summary;
    for (int i = 0; i < s->plan->ir.nports; i++) {
        const tsr_port *p = &s->plan->ir.ports[i].info;
        if (!p->is_input || p->dims.ndim < 1 || (sum->samples > 1 && p->dims.d[0] <= 1))
            continue;
        if (sum->samples > 1)
            return;
        sum->samples = p->dims.d[0];
    }
}

/* Whether a placement was seen before; values of few placements follow each other. */
static bool was_seen(const tsr_placement **seen, int n, const tsr_placement *p)
{
    for (int i = n; i-- > 0;)
        if (seen[i] == p)
            return true;
    return false;
}

static tsr_status count_ranks(summer *s, tsri_pool *scratch)
{
    const tsr_plan *plan = s->plan;
    const tsr_placement **seen = NULL;
    int n = 0, capacity = 0;
    bool *has = tsri_pool_alloc(scratch, (size_t)plan->ir.world->nranks * sizeof *has);
    TSRI_NEED(has);
    for (int i = 0; i < plan->ir.nvalues; i++) {
        const tsr_placement *p = plan->ir.values[i].placement;
        if (was_seen(seen, n, p))
            continue;
        TSRI_NEED(TSRI_PUSH(scratch, seen, n, capacity));
        seen[n++] = p;
        for (int k = 0; k < tsr_placement_nranks(p); k++)
            has[tsr_placement_rank(p, k)] = true;
    }
    for (int i = 0; i < plan->ir.world->nranks; i++)
        s->r->summary.nranks += has[i];
    return TSR_OK;
}

static tsr_status add_all(summer *s, tsri_pool *scratch)
{
    tsri_report *r = s->r;
    count_rows(s);
    for (int i = 0; i < r->nrows; i++) {
        tsri_report_row *row = &r->rows[i];
        if (row->kind == TSRI_REPORT_SOURCE)
            add_source(s, row);
        else if (row->kind == TSRI_REPORT_OP)
            add_compute(s, row);
        else
            row->use = kind_of(s, row->item);
        if (row->kind == TSRI_REPORT_BOX && row->link >= 0)
            TSRI_TRY(add_traffic(s, row));
    }
    if (r->summary.ntraffic)
        qsort(r->summary.traffic, (size_t)r->summary.ntraffic, sizeof *r->summary.traffic, by_cost);
    return count_ranks(s, scratch);
}

tsr_status tsri_summary_make(tsri_report *report)
{
    summer s = {.r = report, .plan = report->plan};
    tsri_pool scratch;
    tsri_pool_init(&scratch, &report->plan->ir.world->mem);
    report->summary = (tsri_summary){.alike = 1};
    tsr_status status = tsri_flow_find(&report->plan->ir, &scratch, &s.flow);
    if (status == TSR_OK)
        status = add_all(&s, &scratch);
    tsri_pool_finish(&scratch);
    return status;
}
