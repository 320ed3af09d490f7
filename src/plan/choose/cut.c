/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A *unit* is a module that has variables; units are numbered in the order of their first use in
 * the forward pass. A forward item belongs to the latest unit of its operands. A backward item
 * belongs to the earliest unit of the gradients among its operands, within the range of its
 * module's forward items. The result of a forward item crosses each boundary between units up to
 * its last consumer, and its gradient crosses them on the way back.
 *
 * Dynamic programming over the units then finds the stages: best[j] is the least bound on the
 * longest of stages 0 to s that have units 0 to j.
 */
#include "src/plan/choose/cut.h"

#include <math.h>
#include <string.h>

typedef struct range {
    int low, high;
} range;

/* The forward items of a name, by the name. */
typedef struct named {
    const char *name;
    range at;
} named;

typedef struct cutter {
    const tsri_ir *ir;
    const tsri_cutting *how;
    tsri_pool pool;
    int n;
    tsr_variable *const *variables;
    int *unit_of;  /* by variable; -1: the forward pass does not read it */
    int nunits;    /* sums below: [nunits + 1], of the units before one */
    int *origin;   /* by value: its source, if that is one variable alone; else -1 */
    int *at;       /* by value: its unit; -1: none */
    bool *forward; /* by value: a forward item of the parts made it */
    bool *total;   /* by value: it is collected over all parts */
    bool *tied;    /* by variable: forward items of several units read it */
    int nnames;
    named *names; /* by name, with room for all items */
    double *time_s, *state, *kept;
    double *work;    /* [nunits] peak bytes of all other live values during a unit */
    double *crosses; /* [nunits] bytes sent forward over the boundary after a unit */
} cutter;

typedef struct bound {
    double most, sent; /* the longest stage, or the neediest; seconds of all that is sent */
} bound;

/* --- units ------------------------------------------------------------------------------------ */
static bool is_work(const cutter *c, const tsri_item *it)
{
    const bool runs = it->kind != TSRI_ITEM_DEAD && it->kind != TSRI_ITEM_OUTPUT;
    return runs && (c->ir->parts > 1 ? it->turn == TSRI_TURN_PARTS : !tsri_item_is_update(it));
}

static int variable_number(const cutter *c, const tsr_variable *v)
{
    for (int i = 0; i < c->n && v; i++)
        if (c->variables[i] == v)
            return i;
    return -1;
}

/* Returns the unit of a variable's module; begins the next unit if the module has none. */
static int enter_unit(cutter *c, int variable)
{
    if (c->unit_of[variable] < 0) {
        for (int i = 0; i < c->n; i++)
            if (c->variables[i]->scope == c->variables[variable]->scope)
                c->unit_of[i] = c->nunits;
        c->nunits++;
    }
    return c->unit_of[variable];
}

/* The variable that is the only source of all operands; -1 if there is none. */
static int origin_of(const cutter *c, const tsri_item *it)
{
    int origin = -1;
    for (int j = 0; j < it->nin; j++) {
        const int from = c->origin[it->in[j]];
        if (from < 0 || (origin >= 0 && from != origin))
            return -1;
        origin = from;
    }
    return origin;
}

static int place_forward(cutter *c, const tsri_item *it)
{
    int at = -1;
    for (int j = 0; j < it->nin; j++)
        at = c->at[it->in[j]] > at ? c->at[it->in[j]] : at;
    for (int j = 0; j < it->nin; j++) {
        const int from = c->origin[it->in[j]];
        const int unit = from >= 0 ? enter_unit(c, from) : -1;
        at = unit > at ? unit : at;
    }
    for (int j = 0; j < it->nin; j++) {
        const int from = c->origin[it->in[j]];
        if (from >= 0 && c->unit_of[from] != at)
            c->tied[from] = true;
    }
    return at;
}

/* The units of the forward items with a name. */
static range *find_name(cutter *c, const char *name)
{
    int low = 0, high = c->nnames;
    name = name ? name : "";
    while (low < high) {
        const int middle = (low + high) / 2, order = strcmp(c->names[middle].name, name);
        if (!order)
            return &c->names[middle].at;
        *(order < 0 ? &low : &high) = order < 0 ? middle + 1 : middle;
    }
    memmove(c->names + low + 1, c->names + low, (size_t)(c->nnames++ - low) * sizeof *c->names);
    c->names[low] = (named){name, {-1, -1}};
    return &c->names[low].at;
}

static void widen(range *r, int at)
{
    r->low = r->low < 0 || at < r->low ? at : r->low;
    r->high = at > r->high ? at : r->high;
}

static int place_backward(cutter *c, const tsri_item *it)
{
    int gradient = c->nunits - 1, read = -1;
    for (int j = 0; j < it->nin; j++) {
        const int v = it->in[j], from = c->origin[v];
        if (from >= 0 && !c->tied[from])
            read = c->unit_of[from] > read ? c->unit_of[from] : read;
        else if (c->forward[v])
            read = c->at[v] > read ? c->at[v] : read;
        else if (c->at[v] >= 0 && c->at[v] < gradient)
            gradient = c->at[v];
    }
    const int at = read >= 0 && read < gradient ? read : gradient;
    const range *r = find_name(c, it->name);
    return r->high < 0 ? at : at < r->low ? r->low : at > r->high ? r->high : at;
}

/* Finds the unit of each item and value. */
static void place(cutter *c, int *item_at)
{
    const tsri_ir *ir = c->ir;
    for (int i = 0; i < ir->nvalues; i++) {
        const tsri_value *v = &ir->values[i];
        c->at[i] = -1;
        c->origin[i] =
            v->storage == TSRI_STORAGE_VARIABLE && v->source ? variable_number(c, v->variable) : -1;
    }
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        const int origin = it->nin > 0 && !it->backward ? origin_of(c, it) : -1;
        int at = -1;
        /* A conversion of a parameter counts if each micro-batch repeats it. */
        if (is_work(c, it) && (origin < 0 || ir->parts > 1))
            at = origin >= 0    ? enter_unit(c, origin)
                 : it->backward ? place_backward(c, it)
                                : place_forward(c, it);
        if (at >= 0 && origin < 0 && !it->backward)
            widen(find_name(c, it->name), at);
        item_at[i] = at;
        for (int j = 0; j < it->nout; j++) {
            c->at[it->out[j]] = at;
            c->origin[it->out[j]] = origin;
            c->forward[it->out[j]] = at >= 0 && origin < 0 && !it->backward;
        }
    }
}

/* --- weights of units ------------------------------------------------------------------------- */
static size_t bytes_of(const cutter *c, const tsri_value *v)
{
    return v->storage == TSRI_STORAGE_INNER ? 0 : tsri_value_bytes(v, c->ir->world->rank);
}

/* Finds each value's last consumer in the forward pass, as a unit, and whether it has a consumer in
 * the backward pass. */
static void find_uses(const cutter *c, const int *item_at, int *last, bool *kept)
{
    const tsri_ir *ir = c->ir;
    for (int i = 0; i < ir->nitems; i++) {
        const tsri_item *it = &ir->items[i];
        for (int j = 0; j < it->nin && item_at[i] >= 0; j++) {
            const int v = tsri_ir_root(ir, it->in[j]);
            kept[v] |= it->backward && c->forward[it->in[j]];
            if (!it->backward && item_at[i] > last[v])
                last[v] = item_at[i];
        }
        for (int j = 0; j < it->nout && item_at[i] >= 0 && ir->parts > 1; j++)
            c->total[it->out[j]] = tsri_item_collects(it);
    }
}

/* Adds the bytes of a value to its unit: to `state` if it is a total or was computed from a
 * variable before the micro-batches, to `kept` if it is a forward value with a backward consumer.
 * All other values change the live bytes, by more[entry] at each entry. Forward values are also
 * added to the boundaries that they cross. */
static void weigh_value(cutter *c, int v, int last, bool kept, double *more)
{
    const tsri_value *value = &c->ir->values[v];
    const double bytes = (double)bytes_of(c, value);
    const int from = c->origin[v];
    for (int u = c->at[v]; c->forward[v] && u < last; u++)
        c->crosses[u] += bytes;
    if (value->storage != TSRI_STORAGE_ARENA || value->first < 0 || bytes <= 0)
        return;
    if (from >= 0 && c->unit_of[from] >= 0 && c->at[v] < 0)
        c->state[c->unit_of[from] + 1] += bytes;
    else if (c->total[v])
        c->state[c->at[v] + 1] += bytes;
    else if (kept && c->forward[v])
        c->kept[c->at[v] + 1] += bytes;
    else if (c->at[v] >= 0) {
        more[value->first] += bytes;
        more[value->last + 1] -= bytes;
    }
}

static tsr_status weigh_values(cutter *c, const int *item_at)
{
    const tsri_ir *ir = c->ir;
    int *last = tsri_pool_alloc(&c->pool, (size_t)ir->nvalues * sizeof *last);
    bool *kept = tsri_pool_alloc(&c->pool, (size_t)ir->nvalues);
    double *more = tsri_pool_alloc(&c->pool, ((size_t)ir->nentries + 1) * sizeof *more);
    TSRI_NEED(last && kept && more);
    memset(last, -1, (size_t)ir->nvalues * sizeof *last);
    find_uses(c, item_at, last, kept);
    for (int v = 0; v < ir->nvalues; v++)
        weigh_value(c, v, last[v], kept[v], more);
    double live = 0;
    for (int e = 0; e < ir->nentries; e++) {
        const int at = item_at[ir->entries[e].item];
        live += more[e];
        if (at >= 0)
            c->work[at] = fmax(c->work[at], live);
    }
    return TSR_OK;
}

/* Finds the parameter of an optimizer's state by name ("fc.weight" of "fc.weight.exp_avg"), or the
 * parameter itself; -1 if there is none. */
static int holder_of(const cutter *c, const char *const *names, const char *name)
{
    int best = -1;
    size_t longest = 0;
    for (int i = 0; i < c->n; i++) {
        const size_t n = strlen(names[i]);
        if (n > longest && !strncmp(name, names[i], n) && (name[n] == '.' || !name[n])) {
            best = i;
            longest = n;
        }
    }
    return best;
}

static tsr_status weigh_variables(cutter *c)
{
    const char **names = tsri_pool_alloc(&c->pool, (size_t)c->n * sizeof *names);
    char name[TSRI_NAME_MAX];
    TSRI_NEED(names);
    for (int i = 0; i < c->n; i++) {
        tsri_variable_qualified_name(c->variables[i], name, sizeof name);
        names[i] = tsri_pool_strdup(&c->pool, name);
        TSRI_NEED(names[i]);
    }
    for (int i = 0; i < c->ir->nvalues; i++) {
        const tsri_value *v = &c->ir->values[i];
        if (v->storage != TSRI_STORAGE_VARIABLE || !v->source)
            continue;
        tsri_variable_qualified_name(v->variable, name, sizeof name);
        const int holder = holder_of(c, names, name);
        if (holder >= 0 && c->unit_of[holder] >= 0)
            c->state[c->unit_of[holder] + 1] += (double)bytes_of(c, v);
    }
    return TSR_OK;
}

static tsr_status weigh(cutter *c, const int *item_at)
{
    const size_t n = (size_t)c->nunits + 1;
    c->time_s = tsri_pool_alloc(&c->pool, n * sizeof *c->time_s);
    c->state = tsri_pool_alloc(&c->pool, n * sizeof *c->state);
    c->kept = tsri_pool_alloc(&c->pool, n * sizeof *c->kept);
    c->work = tsri_pool_alloc(&c->pool, n * sizeof *c->work);
    c->crosses = tsri_pool_alloc(&c->pool, n * sizeof *c->crosses);
    TSRI_NEED(c->time_s && c->state && c->kept && c->work && c->crosses);
    for (int i = 0; i < c->ir->nitems; i++)
        if (item_at[i] >= 0 && !tsri_item_shows(&c->ir->items[i]))
            c->time_s[item_at[i] + 1] += c->ir->items[i].cost_s / c->ir->parts;
    TSRI_TRY(weigh_values(c, item_at));
    TSRI_TRY(weigh_variables(c));
    for (int u = 0; u < c->nunits; u++) {
        c->time_s[u + 1] += c->time_s[u];
        c->state[u + 1] += c->state[u];
        c->kept[u + 1] += c->kept[u];
    }
    return TSR_OK;
}

/* --- stages ----------------------------------------------------------------------------------- */
/* The bytes that are sent forward over the boundary after a unit. */
static double crossing(const cutter *c, int unit)
{
    return unit < 0 || unit >= c->nunits - 1 ? 0 : c->crosses[unit];
}

/* The seconds of that send. */
static double send_s(const cutter *c, int unit)
{
    const tsri_cost_model *m = &c->ir->model;
    if (unit < 0 || unit >= c->nunits - 1)
        return 0;
    const int link = tsri_link_between(m, c->ir->world->rank, c->how->other_rank);
    return m->link[link].latency_s + crossing(c, unit) / m->link[link].bytes_per_s;
}

/* The bytes of a rank, if all chunks of its index need as much as this stage with units first to
 * last. `work` is the largest peak of these units. A stage keeps received operands as long as its
 * own forward values, and two copies of received gradients. */
static double need_of(const cutter *c, int stage, int first, int last, double work)
{
    const tsri_cutting *h = c->how;
    const int chunks = h->nstages / h->nindices;
    const double copies = tsri_stage_copies(h->pipeline, h->nstages, h->nindices, stage, h->parts);
    const double held = c->state[last + 1] - c->state[first] +
                        copies * (c->kept[last + 1] - c->kept[first] + crossing(c, first - 1)) +
                        fmin(2, h->parts) * crossing(c, last);
    return chunks * held + work;
}

static double time_of(const cutter *c, int first, int last)
{
    return c->time_s[last + 1] - c->time_s[first] + send_s(c, first - 1) + send_s(c, last);
}

static bool is_less(bound a, bound b)
{
    return a.most < b.most || (a.most == b.most && a.sent < b.sent);
}

typedef enum sought { SHORTEST, SHORTEST_WITHIN, LEANEST } sought;

/* Sets first[s * nunits + j] to the first unit of stage s in the best cut of units 0 to j into
 * stages 0 to s. Returns whether a cut exists in which each stage has a unit, and keeps the limit.
 */
static bool find_cut(const cutter *c, sought aim, bound *best, int *first)
{
    const int n = c->nunits, stages = c->how->nstages;
    const bound none = {INFINITY, INFINITY};
    const double limit = aim == SHORTEST_WITHIN ? (double)c->how->memory_limit : INFINITY;
    for (int s = 0; s < stages; s++)
        for (int j = n - 1; j >= 0; j--) {
            bound found = none;
            double work = 0;
            for (int i = j; i >= s; i--) {
                const bound before = s ? best[i - 1] : (bound){i ? INFINITY : 0, 0};
                work = fmax(work, c->work[i]);
                const double need = need_of(c, s, i, j, work);
                const double own = aim == LEANEST ? need : time_of(c, i, j);
                const bound b = {fmax(before.most, own), before.sent + send_s(c, i - 1)};
                if (need <= limit && b.most < INFINITY && is_less(b, found)) {
                    found = b;
                    first[s * n + j] = i;
                }
            }
            best[j] = found;
        }
    return best[n - 1].most < INFINITY;
}

/* Writes the stage of each unit. Returns the bytes of the stage that needs most. */
static double read_cut(const cutter *c, const int *first, int *stage)
{
    const int n = c->nunits;
    double most = 0;
    for (int s = c->how->nstages - 1, j = n - 1; s >= 0; s--) {
        const int from = first[s * n + j];
        double work = 0;
        for (int u = from; u <= j; u++) {
            stage[u] = s;
            work = fmax(work, c->work[u]);
        }
        most = fmax(most, need_of(c, s, from, j, work));
        j = from - 1;
    }
    return most;
}

static tsr_status cut(cutter *c, int *out_stage, tsri_cut_found *out)
{
    const int n = c->nunits, stages = c->how->nstages;
    if (n < stages)
        return tsri_fail(TSR_ERR_INVALID,
                         "the forward pass has %d module%s with parameters, and a module is in one "
                         "stage: there can't be %d stages",
                         n, n == 1 ? "" : "s", stages);
    bound *best = tsri_pool_alloc(&c->pool, (size_t)n * sizeof *best);
    int *first = tsri_pool_alloc(&c->pool, (size_t)n * (size_t)stages * sizeof *first);
    int *stage = tsri_pool_alloc(&c->pool, (size_t)n * sizeof *stage);
    TSRI_NEED(best && first && stage);
    find_cut(c, SHORTEST, best, first);
    out->longest_s = best[n - 1].most;
    out->free_need = read_cut(c, first, stage);
    out->fits = !c->how->memory_limit || out->free_need <= (double)c->how->memory_limit;
    if (!out->fits) {
        out->fits = find_cut(c, SHORTEST_WITHIN, best, first);
        out->longest_s = best[n - 1].most;
        if (!out->fits)
            find_cut(c, LEANEST, best, first);
        read_cut(c, first, stage);
    }
    for (int i = 0; i < c->n; i++)
        out_stage[i] = c->unit_of[i] >= 0 ? stage[c->unit_of[i]] : i ? out_stage[i - 1] : 0;
    return TSR_OK;
}

static tsr_status work(cutter *c, int *out_stage, tsri_cut_found *out)
{
    const size_t values = (size_t)c->ir->nvalues, items = (size_t)c->ir->nitems, n = (size_t)c->n;
    int *item_at = tsri_pool_alloc(&c->pool, items * sizeof *item_at);
    c->unit_of = tsri_pool_alloc(&c->pool, n * sizeof *c->unit_of);
    c->tied = tsri_pool_alloc(&c->pool, n);
    c->origin = tsri_pool_alloc(&c->pool, values * sizeof *c->origin);
    c->at = tsri_pool_alloc(&c->pool, values * sizeof *c->at);
    c->forward = tsri_pool_alloc(&c->pool, values);
    c->total = tsri_pool_alloc(&c->pool, values);
    c->names = tsri_pool_alloc(&c->pool, (items + 1) * sizeof *c->names);
    TSRI_NEED(item_at && c->unit_of && c->tied && c->origin && c->at && c->forward && c->total &&
              c->names);
    memset(c->unit_of, -1, n * sizeof *c->unit_of);
    place(c, item_at);
    TSRI_TRY(weigh(c, item_at));
    return cut(c, out_stage, out);
}

tsr_status tsri_plan_cut(const tsr_plan *plan, const tsri_cutting *how, int n,
                         tsr_variable *const *variables, int *out_stage, tsri_cut_found *out_cut)
{
    cutter c = {.ir = &plan->ir, .how = how, .n = n, .variables = variables};
    tsri_pool_init(&c.pool, &plan->ir.world->mem);
    tsr_status status = work(&c, out_stage, out_cut);
    tsri_pool_finish(&c.pool);
    return status;
}
