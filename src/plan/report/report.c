/* SPDX-License-Identifier: Apache-2.0 */
#include "src/plan/pass/pass.h"
#include "src/plan/report/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/core/figures.h"
#include "src/plan/infer/strategies.h"

typedef struct reporter {
    tsr_plan *plan;
    tsri_report *r;
    int crows;
} reporter;

/* --- what a row's time is spent on ------------------------------------------------------------ */
static double bytes_of(const tsri_value *v)
{
    return tsri_largest_part(v->shape, v->placement, v->layout.sbp) *
           (double)tsr_dtype_size(v->dtype);
}

static double touched(const tsr_plan *plan, const tsri_item *it)
{
    double bytes = 0;
    for (int i = 0; i < it->nin; i++)
        bytes += bytes_of(&plan->ir.values[it->in[i]]);
    for (int i = 0; i < it->nout; i++)
        bytes += bytes_of(&plan->ir.values[it->out[i]]);
    return bytes;
}

/* A kernel takes its start and the longer of computing and touching memory; see strategies.c. */
static void spend_on_kernel(const tsr_plan *plan, const tsri_item *it, tsri_report_row *row)
{
    const double times = (double)row->times / (double)tsri_item_every(it);
    double start = plan->ir.model.kernel_s * times;
    start = it->cost_s < start ? it->cost_s : start;
    double rest = it->cost_s - start;
    double memory = times * touched(plan, it) / plan->ir.model.local_bytes_per_s;
    row->spent_s[TSRI_SPENT_START] = start;
    row->spent_s[rest > memory * 1.0001 ? TSRI_SPENT_FLOPS : TSRI_SPENT_MEMORY] = rest;
}

static void spend_on_box(const tsr_plan *plan, tsri_report_row *row)
{
    if (row->link < 0) {
        row->spent_s[TSRI_SPENT_MEMORY] = row->cost_s;
        return;
    }
    double shake = plan->ir.model.link[row->link].latency_s *
                   (1 + (int)row->item->box.step.two_phase) * row->times /
                   (double)tsri_item_every(row->item);
    shake = shake < row->cost_s ? shake : row->cost_s;
    row->spent_s[TSRI_SPENT_LINK + 2 * row->link] = row->cost_s - shake;
    row->spent_s[TSRI_SPENT_LINK + 2 * row->link + 1] = shake;
}

/* The largest use, where a link's bytes and hand-shakes are one: then the larger of the two. */
static tsri_spent most_of(const double *spent_s)
{
    int most = 0;
    double most_s = spent_s[0];
    for (int i = 1; i < TSRI_SPENT_COUNT; i++) {
        bool link = i >= TSRI_SPENT_LINK;
        double s = spent_s[i] + (link ? spent_s[i + 1] : 0);
        int use = link && spent_s[i + 1] > spent_s[i] ? i + 1 : i;
        if (s > most_s) {
            most_s = s;
            most = use;
        }
        i += link;
    }
    return (tsri_spent)most;
}

/* --- rows ------------------------------------------------------------------------------------- */
static tsri_report_row *add_row(reporter *m, tsri_report_kind kind, const char *what,
                                const char *name)
{
    tsri_report *r = m->r;
    if (!TSRI_PUSH(&r->pool, r->rows, r->nrows, m->crows))
        return NULL;
    tsri_report_row *row = &r->rows[r->nrows++];
    *row = (tsri_report_row){
        .kind = kind, .what = what, .name = name ? name : "", .value = -1, .times = 1, .link = -1};
    return row;
}

static void note_said(tsri_report_row *row, const tsri_value *v)
{
    row->said = v->said;
    row->said_by = v->said_by;
    row->said_at = v->said_at;
}

static tsr_status add_source(reporter *m, int value)
{
    const tsri_value *v = &m->plan->ir.values[value];
    bool variable = v->storage == TSRI_STORAGE_VARIABLE;
    tsri_report_row *row = add_row(m, TSRI_REPORT_SOURCE, variable ? "variable" : "input", v->name);
    TSRI_NEED(row);
    row->value = value;
    note_said(row, v);
    row->alternatives = v->alternatives;
    return TSR_OK;
}

/* Whether a row's op is made of several: its alternatives are those of one of them. */
static bool is_joined(const tsri_report_row *row)
{
    const tsri_alternatives *alt = row->alternatives;
    return row->item && (alt->nin != row->item->nin || alt->nout != row->item->nout);
}

/* Drops the alternatives of an op that is joined to others: they are not the whole's. */
static tsr_status drop_others(reporter *m, tsri_report_row *row)
{
    const tsri_alternatives *alt = row->alternatives;
    if (!alt || !is_joined(row))
        return TSR_OK;
    tsri_alternatives *none = tsri_pool_dup(&m->r->pool, alt, sizeof *alt);
    TSRI_NEED(none);
    none->n = 0;
    row->alternatives = none;
    return TSR_OK;
}

static tsr_status add_op(reporter *m, const tsri_item *it)
{
    tsri_report_row *row =
        add_row(m, TSRI_REPORT_OP, tsri_op_word(it->kernel.op, &it->kernel.attrs), it->name);
    TSRI_NEED(row);
    row->item = it;
    row->times = tsri_item_times(&m->plan->ir, it);
    row->cost_s = it->kind == TSRI_ITEM_VIEW ? 0 : it->cost_s;
    if (it->nout) {
        row->value = it->out[0];
        note_said(row, &m->plan->ir.values[it->out[0]]);
        row->alternatives = m->plan->ir.values[it->out[0]].alternatives;
        TSRI_TRY(drop_others(m, row));
    }
    if (it->kind != TSRI_ITEM_VIEW)
        spend_on_kernel(m->plan, it, row);
    row->most = most_of(row->spent_s);
    return TSR_OK;
}

/* The farthest link between the first rank of a group and the others. Groups of one step differ
 * little; asked of all ranks it would take their number times the boxes' number. */
static void find_group(const tsr_plan *plan, const tsri_item *it, const tsri_call *call,
                       tsri_report_row *row)
{
    const tsr_placement *p = it->placement;
    int n = tsr_placement_nranks(p), first = tsr_placement_rank(p, 0);
    row->group_size = 1;
    if (it->box.ranks) {
        row->groups = 1;
        row->group_size = it->box.nranks;
        row->link = tsri_plan_farthest(&plan->ir, it->box.ranks, it->box.nranks);
        return;
    }
    for (int d = 0, stride = n; d < tsr_placement_ndim(p); d++) {
        int k = tsr_placement_dim(p, d);
        stride /= k;
        if (!(it->box.step.dims >> d & 1) || it->box.step.crosses)
            continue;
        row->group_size *= k;
        int far =
            tsri_link_between(&plan->ir.model, first, tsr_placement_rank(p, stride * (k - 1)));
        row->link = far > row->link ? far : row->link;
    }
    row->groups = n / row->group_size;
    if (!it->box.step.crosses)
        return;
    const tsr_placement *from = it->box.from;
    row->groups = 1;
    row->group_size = call && call->group ? call->group->nranks : tsr_placement_nranks(from);
    for (int i = 0; i < n; i++) {
        int rank = tsr_placement_rank(p, i);
        int far = tsri_link_between(&plan->ir.model, tsr_placement_rank(from, 0), rank);
        row->link = far > row->link ? far : row->link;
        if (!(call && call->group))
            row->group_size += tsr_placement_find(from, rank) < 0;
    }
}

static tsr_status add_box(reporter *m, const tsri_item *it, const tsri_call *call)
{
    const char *what = it->box.broadcast ? "broadcast" : tsri_box_kind_name(it->box.step.kind);
    tsri_report_row *row = add_row(m, TSRI_REPORT_BOX, what, it->name);
    TSRI_NEED(row);
    row->item = it;
    row->times = tsri_item_times(&m->plan->ir, it);
    row->cost_s = it->cost_s;
    find_group(m->plan, it, call, row);
    if (it->kind != TSRI_ITEM_COLLECTIVE)
        row->link = -1;
    row->bytes = row->link < 0 ? 0 : (uint64_t)it->box.step.bytes;
    if (call && call->bytes > row->bytes) /* a step that was lowered here is known to the byte */
        row->bytes = call->bytes;
    row->bytes *= (uint64_t)row->times;
    spend_on_box(m->plan, row);
    row->most = most_of(row->spent_s);
    return TSR_OK;
}

/* --- the whole -------------------------------------------------------------------------------- */
static bool is_source(const tsr_plan *plan, const tsri_value *v)
{
    if (v->storage == TSRI_STORAGE_VARIABLE)
        return v->source;
    return v->storage == TSRI_STORAGE_PORT &&
           (v->port < 0 || plan->ir.ports[v->port].info.is_input);
}

static tsr_status add_rows(reporter *m)
{
    tsr_plan *plan = m->plan;
    const tsri_call **calls = tsri_pool_alloc(&m->r->pool, (size_t)plan->ir.nitems * sizeof *calls);
    TSRI_NEED(calls);
    for (int i = 0; i < plan->nsteps; i++)
        if (plan->steps[i].call)
            calls[plan->steps[i].item - plan->ir.items] = plan->steps[i].call;
    for (int i = 0; i < plan->ir.nvalues; i++)
        if (is_source(plan, &plan->ir.values[i]))
            TSRI_TRY(add_source(m, i));
    for (int i = 0; i < plan->ir.nitems; i++) {
        const tsri_item *it = &plan->ir.items[i];
        if (it->kind == TSRI_ITEM_KERNEL || it->kind == TSRI_ITEM_VIEW)
            TSRI_TRY(add_op(m, it));
        else if (tsri_item_converts(it))
            TSRI_TRY(add_box(m, it, calls[i]));
    }
    return TSR_OK;
}

/* Returns the fraction of the stages that execute an item. */
static double share_of(const tsri_ir *ir, const tsri_item *it)
{
    const int nstages = ir->timetable.nstages;
    return it && nstages > 1 ? (double)tsri_ir_stages_of(ir, it) / nstages : 1;
}

static tsr_status add_up(tsri_report *r)
{
    int capacity = 0;
    for (int i = 0; i < r->nrows; i++) {
        const tsri_report_row *row = &r->rows[i];
        const double share = share_of(&r->plan->ir, row->item);
        *(row->link >= 0 ? &r->comm_s : &r->compute_s) += row->cost_s * share;
        for (int s = 0; s < TSRI_SPENT_COUNT; s++)
            r->spent_s[s] += row->spent_s[s] * share;
        if (row->link < 0)
            continue;
        r->bytes += row->bytes;
        int t = 0;
        while (t < r->ntotals && strcmp(r->totals[t].what, row->what) != 0)
            t++;
        if (t == r->ntotals) {
            TSRI_NEED(TSRI_PUSH(&r->pool, r->totals, r->ntotals, capacity));
            r->totals[r->ntotals++] = (tsri_report_total){.what = row->what};
        }
        r->totals[t].calls += row->times;
        r->totals[t].bytes += row->bytes;
        r->totals[t].cost_s += row->cost_s;
    }
    r->step_s = r->compute_s + r->comm_s;
    if (r->plan->ir.timetable.nstages > 1) {
        r->spent_s[TSRI_SPENT_BUBBLE] = fmax(0, r->plan->ir.step_s - r->step_s);
        r->step_s += r->spent_s[TSRI_SPENT_BUBBLE];
    }
    r->most = most_of(r->spent_s);
    return TSR_OK;
}

tsr_status tsri_report_create(tsr_plan *plan, tsri_report **out_report)
{
    tsri_pool pool;
    tsri_pool_init(&pool, &plan->ir.world->mem);
    tsri_report *r = tsri_pool_alloc(&pool, sizeof *r);
    TSRI_NEED(r);
    *r = (tsri_report){.plan = plan, .pool = pool};
    reporter m = {.plan = plan, .r = r};
    tsr_status status = add_rows(&m);
    if (status == TSR_OK)
        status = add_up(r);
    if (status == TSR_OK)
        status = tsri_report_memory_make(plan, r);
    if (status == TSR_OK)
        status = tsri_strategy_find(plan, &r->pool, &r->strategy);
    if (status == TSR_OK)
        status = tsri_summary_make(r);
    if (status != TSR_OK) {
        tsri_report_destroy(r);
        return status;
    }
    *out_report = r;
    return TSR_OK;
}

void tsri_report_destroy(tsri_report *r)
{
    if (!r)
        return;
    tsri_pool pool = r->pool; /* the report itself lives in it */
    tsri_pool_finish(&pool);
}

bool tsri_change_counts(const tsr_plan *plan, const tsri_change *change)
{
    return fabs(change->more_s) > TSRI_NO_CHANGE * plan->info.cost_s;
}

/* --- words ------------------------------------------------------------------------------------ */
char *tsri_spent_name(const tsri_cost_model *m, tsri_spent spent, char buf[TSRI_SPENT_NAME_MAX])
{
    static const char *const names[] = {"compute", "memory", "kernel starts", "bubble"};
    char link[TSRI_LINK_NAME_MAX];
    if (spent < TSRI_SPENT_LINK)
        snprintf(buf, TSRI_SPENT_NAME_MAX, "%s", names[spent]);
    else
        snprintf(buf, TSRI_SPENT_NAME_MAX, "%s %s",
                 tsri_link_name(m, (spent - TSRI_SPENT_LINK) / 2, link),
                 (spent - TSRI_SPENT_LINK) % 2 ? "hand-shakes" : "bytes");
    return buf;
}

static char *say_said(const tsri_report_row *row, char buf[TSRI_WHY_MAX])
{
    size_t n = 0;
    if (row->said_by && !row->said_by[0])
        n = (size_t)snprintf(buf, TSRI_WHY_MAX, "by default");
    else if (row->said_by)
        n = (size_t)snprintf(buf, TSRI_WHY_MAX, "said by '%.400s'", row->said_by);
    else
        n = (size_t)snprintf(buf, TSRI_WHY_MAX, "said");
    if (row->said_at.file)
        snprintf(buf + n, TSRI_WHY_MAX - n, " at %.400s:%d", tsri_basename(row->said_at.file),
                 row->said_at.line);
    return buf;
}

char *tsri_report_why(const tsri_report_row *row, char buf[TSRI_WHY_MAX])
{
    char sbp[TSR_SBP_TEXT_MAX], more[32];
    const tsri_alternatives *alt = row->alternatives;
    buf[0] = 0;
    if (row->kind == TSRI_REPORT_BOX) {
        snprintf(buf, TSRI_WHY_MAX, "%s", row->item->box.reason ? row->item->box.reason : "");
        return buf;
    }
    if (row->kind == TSRI_REPORT_OP && row->item->kind == TSRI_ITEM_KERNEL &&
        row->item->kernel.recomputes) {
        snprintf(buf, TSRI_WHY_MAX, "recomputed, in the signature of the forward pass");
        return buf;
    }
    if (row->said)
        return say_said(row, buf);
    if (!alt)
        return buf;
    int nin = alt->nin, n = nin + alt->nout;
    size_t at = (size_t)snprintf(
        buf, TSRI_WHY_MAX, alt->legal == 1 ? "the only legal one" : "of %d legal", alt->legal);
    for (int i = 0; i < alt->n && !is_joined(row); i++) {
        for (int j = 0; j < n && at + 128 < TSRI_WHY_MAX; j++)
            at += (size_t)snprintf(
                buf + at, TSRI_WHY_MAX - at, "%s%s",
                j == 0     ? "; "
                : j == nin ? " -> "
                           : ",",
                tsr_sbp_format(j < nin ? alt->sig[i]->in[j] : alt->sig[i]->out[j - nin], sbp));
        if (at + 40 < TSRI_WHY_MAX)
            at += (size_t)snprintf(buf + at, TSRI_WHY_MAX - at, " %s%s",
                                   alt->more_s[i] < 0 ? "" : "+",
                                   tsri_seconds_text(alt->more_s[i], more));
    }
    return buf;
}
