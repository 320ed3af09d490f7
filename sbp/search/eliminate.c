/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bucket elimination (Dechter 1999) along a given order. A table's variables are sorted by that
 * order, the first to go outermost: so the tables that meet when v goes all have v as their
 * outermost variable and the rest in one order, and eliminating is a minimum over contiguous rows.
 * The way back needs a byte per entry of them, the argument of the minimum; their own
 * memory goes to the next tables and so stays in the cache.
 */
#include "sbp/search/graph.h"
#include "sbp/search/minimum.h"

#include <math.h>
#include <string.h>

enum {
    GOOD_BLOCK = 64, /* entries that the innermost loop should have */
    MAX_BYTE = 256,  /* strategies that a byte can tell apart */
    SIZES = 48,      /* powers of two of reused tables */
};

typedef struct factor {
    struct factor *next;
    const double *table; /* [k(v)][k(vars[0])]...[k(vars[nvars - 1])], v the bucket's node */
    double *owned;       /* the same, or NULL when it is the graph's */
    int64_t row;         /* entries for one strategy of v */
    int nvars;
    const int *vars;
    bool used; /* already in a mini-bucket */
} factor;

/* Memory of a table, while it is free. */
typedef struct spare {
    struct spare *next;
} spare;

typedef struct bucket {
    factor *first, **last;
    double *cost; /* [k(v)]: node costs, and all tables of v alone */
    /* Once it is eliminated: the best strategy for those of scope[nscope], unless NULL. */
    uint8_t *arg;
    const int *scope;
    int nscope;
} bucket;

typedef struct eliminator {
    const tsri_sgraph *g;
    tsri_pool *pool;
    int *pos; /* [n] place in the order */
    bucket *buckets;
    int *mark, stamp;
    double limit, constant;
    bool relax;
    factor **group; /* scratch: the factors of one mini-bucket, and room for as many operands */
    tsri_operand *operands;
    int ngroup, group_cap, operand_cap;
    spare *spares[SIZES];
} eliminator;

static int size_of(double entries)
{
    int size = 2;
    while (ldexp(1.0, size) < entries)
        size++;
    return size;
}

/* Not zeroed. */
static double *new_table(eliminator *el, double entries)
{
    int size = size_of(entries);
    if (size >= SIZES) {
        tsri_fail(TSR_ERR_NO_MEMORY, "search: a table of %g entries", entries);
        return NULL;
    }
    spare *s = el->spares[size];
    if (!s)
        return tsri_pool_alloc(el->pool, sizeof(double) << size);
    el->spares[size] = s->next;
    return (double *)s;
}

static void free_table(eliminator *el, double *table, double entries)
{
    spare *s = (spare *)table;
    int size = size_of(entries);
    s->next = el->spares[size];
    el->spares[size] = s;
}

/* `owned` is the table where the eliminator made it, else NULL. */
static tsr_status add_factor(eliminator *el, int v, const double *table, double *owned, int nvars,
                             const int *vars)
{
    bucket *b = &el->buckets[v];
    if (!nvars) {
        for (int s = 0; s < el->g->k[v]; s++)
            b->cost[s] += table[s];
        if (owned)
            free_table(el, owned, el->g->k[v]);
        return TSR_OK;
    }
    factor *f = tsri_pool_alloc(el->pool, sizeof *f);
    TSRI_NEED(f);
    *f = (factor){.table = table, .owned = owned, .row = 1, .nvars = nvars, .vars = vars};
    for (int i = 0; i < nvars; i++)
        f->row *= el->g->k[vars[i]];
    *b->last = f;
    b->last = &f->next;
    return TSR_OK;
}

/* The edge's table with the node that goes first outermost. */
static tsr_status add_edge(eliminator *el, const tsri_sg_edge *e)
{
    if (el->pos[e->u] < el->pos[e->v])
        return add_factor(el, e->u, e->cost, NULL, 1, &e->v);
    return add_factor(el, e->v, e->flip, NULL, 1, &e->u);
}

/* An edge to a fixed node is a cost of the other. */
static void add_fixed(eliminator *el, const tsri_sg_edge *e, const bool *is_cut, const int *choice)
{
    int ku = el->g->k[e->u], kv = el->g->k[e->v], cu = choice[e->u], cv = choice[e->v];
    if (is_cut[e->u] && is_cut[e->v])
        el->constant += e->cost[(int64_t)cu * kv + cv];
    else if (is_cut[e->u])
        for (int j = 0; j < kv; j++)
            el->buckets[e->v].cost[j] += e->cost[(int64_t)cu * kv + j];
    else
        for (int i = 0; i < ku; i++)
            el->buckets[e->u].cost[i] += e->cost[(int64_t)i * kv + cv];
}

static tsr_status start(eliminator *el, const tsri_sg_plan *plan, const int *choice)
{
    const tsri_sgraph *g = el->g;
    size_t n = (size_t)g->n;
    el->pos = tsri_pool_alloc(el->pool, n * sizeof(int));
    el->mark = tsri_pool_alloc(el->pool, n * sizeof(int));
    el->buckets = tsri_pool_alloc(el->pool, n * sizeof *el->buckets);
    TSRI_NEED(el->pos && el->mark && el->buckets);
    for (int i = 0; i < g->n; i++)
        el->pos[plan->order[i]] = i;
    for (int v = 0; v < g->n; v++) {
        bucket *b = &el->buckets[v];
        b->last = &b->first;
        b->cost = tsri_pool_dup(el->pool, g->cost[v], (size_t)g->k[v] * sizeof(double));
        TSRI_NEED(b->cost);
        if (!el->relax && plan->is_cut[v])
            el->constant += g->cost[v][choice[v]];
    }
    for (int i = 0; i < g->nedges; i++) {
        const tsri_sg_edge *e = &g->edges[i];
        if (!el->relax && (plan->is_cut[e->u] || plan->is_cut[e->v]))
            add_fixed(el, e, plan->is_cut, choice);
        else
            TSRI_TRY(add_edge(el, e));
    }
    return TSR_OK;
}

/* Repeats a table that has some of the block's variables so that it has all. */
static double *spread(eliminator *el, const factor *f, int k, int nin, const int *scope, int nscope,
                      int nouter, int64_t block)
{
    int64_t inner = 1, rows;
    for (int i = f->nvars - nin; i < f->nvars; i++)
        inner *= el->g->k[f->vars[i]];
    rows = k * (f->row / inner);
    double *table = new_table(el, (double)(rows * block));
    if (!table)
        return NULL;
    for (int64_t j = 0; j < block; j++) {
        int64_t rest = j, at = 0, stride = 1;
        for (int d = nscope - 1, i = f->nvars - 1; d >= nouter; d--) {
            int kd = el->g->k[scope[d]];
            if (i >= 0 && f->vars[i] == scope[d]) {
                at += stride * (rest % kd);
                stride *= kd;
                i--;
            }
            rest /= kd;
        }
        for (int64_t i = 0; i < rows; i++)
            table[i * block + j] = f->table[i * inner + at];
    }
    return table;
}

static tsr_status add_operand(eliminator *el, tsri_minimum *m, const factor *f, const int *scope,
                              int nscope)
{
    int nin = 0, where[TSRI_MIN_VARS];
    for (int d = 0, i = 0; d < nscope && i < f->nvars; d++)
        if (f->vars[i] == scope[d]) {
            where[i++] = d;
            nin += d >= m->nouter;
        }
    double *table = NULL;
    int64_t stride = nin ? m->block : 1;
    if (nin && nin < nscope - m->nouter) {
        table = spread(el, f, m->k, nin, scope, nscope, m->nouter, m->block);
        TSRI_NEED(table);
    }
    /* Rows from the front, scalars from the back. */
    tsri_operand *op = nin ? &m->rows[m->nrows++] : --m->scalars;
    m->nscalars += !nin;
    *op = (tsri_operand){.at = table ? table : f->table, .spread = table};
    for (int i = f->nvars - nin - 1; i >= 0; i--) {
        op->stride[where[i]] = stride;
        stride *= el->g->k[f->vars[i]];
    }
    op->row = stride;
    return TSR_OK;
}

/* Entries that tables with some but not all of the block's variables would be spread to. */
static double spread_entries(const eliminator *el, int k, const int *scope, int nscope, int nouter,
                             double block)
{
    double sum = 0.0;
    for (int i = 0; i < el->ngroup; i++) {
        const factor *f = el->group[i];
        double outer = k;
        int nin = 0;
        for (int j = 0, d = 0; j < f->nvars; j++) {
            while (scope[d] != f->vars[j])
                d++;
            if (d >= nouter)
                nin++;
            else
                outer *= el->g->k[f->vars[j]];
        }
        if (nin && nin < nscope - nouter)
            sum += outer * block;
    }
    return sum;
}

/* The innermost variables that make a block long enough, as far as spreading tables for it costs
 * little beside the minimum itself. */
static void choose_block(const eliminator *el, tsri_minimum *m, const int *scope, int nscope,
                         double entries)
{
    int64_t block = m->block = el->g->k[scope[nscope - 1]];
    m->nouter = nscope - 1;
    for (int nouter = nscope - 2; nouter >= 0 && m->block < GOOD_BLOCK; nouter--) {
        block *= el->g->k[scope[nouter]];
        if (spread_entries(el, m->k, scope, nscope, nouter, (double)block) > entries * m->k / 4.0)
            continue;
        m->nouter = nouter;
        m->block = block;
    }
    for (int d = 0; d < m->nouter; d++)
        m->size[d] = el->g->k[scope[d]];
}

static tsr_status start_minimum(eliminator *el, tsri_minimum *m, const int *scope, int nscope,
                                double entries)
{
    choose_block(el, m, scope, nscope, entries);
    while (el->operand_cap < el->ngroup)
        TSRI_NEED(TSRI_PUSH(el->pool, el->operands, el->operand_cap, el->operand_cap));
    m->rows = el->operands;
    m->scalars = el->operands + el->ngroup;
    m->sums = new_table(el, m->k);
    m->arg = (int64_t *)new_table(el, (double)m->block);
    TSRI_NEED(m->sums && m->arg);
    for (int i = 0; i < el->ngroup; i++)
        TSRI_TRY(add_operand(el, m, el->group[i], scope, nscope));
    return TSR_OK;
}

static void finish_minimum(eliminator *el, tsri_minimum *m)
{
    free_table(el, m->sums, m->k);
    free_table(el, (double *)m->arg, (double)m->block);
    for (int i = 0; i < m->nrows; i++)
        if (m->rows[i].spread)
            free_table(el, m->rows[i].spread, (double)(m->k * m->rows[i].row));
}

/* The minimum over v of the group's sum, as a table of the scope's first node. Where the group is
 * the whole bucket, its tables give way to the arguments of the minimum. */
static tsr_status reduce_group(eliminator *el, int v, const double *cost, const int *scope,
                               int nscope, double entries)
{
    bucket *b = &el->buckets[v];
    tsri_minimum m = {.k = el->g->k[v], .cost = cost};
    bool whole = !el->relax && m.k <= MAX_BYTE;
    TSRI_TRY(start_minimum(el, &m, scope, nscope, entries));
    double *out = new_table(el, entries);
    uint8_t *arg = whole ? tsri_pool_alloc(el->pool, (size_t)entries) : NULL;
    if (!out || (whole && !arg))
        return TSR_ERR_NO_MEMORY;
    tsri_minimum_run(&m, out, arg);
    finish_minimum(el, &m);
    if (whole) {
        b->arg = arg;
        b->scope = scope;
        b->nscope = nscope;
        for (factor *f = b->first; f; f = f->next)
            if (f->owned)
                free_table(el, f->owned, (double)(m.k * f->row));
        b->first = NULL;
    }
    return add_factor(el, scope[0], out, out, nscope - 1, scope + 1);
}

/* Adds to the group the factors that keep its table within the limit; the first always does. The
 * scope is sorted by the order. */
static tsr_status fill_group(eliminator *el, bucket *b, int *scope, int *nscope, double *entries)
{
    el->ngroup = *nscope = 0;
    el->stamp++;
    *entries = 1.0;
    for (factor *f = b->first; f; f = f->next) {
        double more = *entries;
        int nmore = *nscope;
        for (int i = 0; i < f->nvars; i++)
            if (el->mark[f->vars[i]] != el->stamp) {
                more *= el->g->k[f->vars[i]];
                nmore++;
            }
        if (f->used || (el->ngroup && more > el->limit) || nmore > TSRI_MIN_VARS)
            continue;
        TSRI_NEED(TSRI_PUSH(el->pool, el->group, el->ngroup, el->group_cap));
        el->group[el->ngroup++] = f;
        f->used = true;
        *entries = more;
        for (int i = 0; i < f->nvars; i++) {
            int w = f->vars[i], at = *nscope;
            if (el->mark[w] == el->stamp)
                continue;
            el->mark[w] = el->stamp;
            for (; at > 0 && el->pos[scope[at - 1]] > el->pos[w]; at--)
                scope[at] = scope[at - 1];
            scope[at] = w;
            ++*nscope;
        }
    }
    return TSR_OK;
}

static tsr_status eliminate(eliminator *el, int v)
{
    const double *cost = el->buckets[v].cost;
    int scope[TSRI_MIN_VARS], nscope;
    double entries;
    for (bool first = true;; first = false) {
        TSRI_TRY(fill_group(el, &el->buckets[v], scope, &nscope, &entries));
        if (!el->ngroup && !first)
            return TSR_OK;
        if (!el->ngroup) {
            el->constant += tsri_least_of(cost, el->g->k[v]);
            return TSR_OK;
        }
        const int *kept = tsri_pool_dup(el->pool, scope, (size_t)nscope * sizeof(int));
        TSRI_NEED(kept);
        TSRI_TRY(reduce_group(el, v, first ? cost : NULL, kept, nscope, entries));
    }
}

static int64_t entry_of(const tsri_sgraph *g, const int *vars, int nvars, const int *choice)
{
    int64_t at = 0;
    for (int i = 0; i < nvars; i++)
        at = at * g->k[vars[i]] + choice[vars[i]];
    return at;
}

/* The strategy of v that goes best with those of the nodes after it; the lowest of equals. */
static int best_strategy(const eliminator *el, int v, const int *choice)
{
    const bucket *b = &el->buckets[v];
    double *sum = b->cost;
    int best = 0, k = el->g->k[v];
    if (b->arg)
        return b->arg[entry_of(el->g, b->scope, b->nscope, choice)];
    for (const factor *f = b->first; f; f = f->next) {
        int64_t at = entry_of(el->g, f->vars, f->nvars, choice);
        for (int s = 0; s < k; s++)
            sum[s] += f->table[s * f->row + at];
    }
    for (int s = 1; s < k; s++)
        if (sum[s] < sum[best])
            best = s;
    return best;
}

tsr_status tsri_sg_eliminate(tsri_mem *mem, const tsri_sgraph *g, const tsri_sg_plan *plan,
                             tsri_sg_mode mode, double limit, int *choice, double *out_bound)
{
    tsri_pool pool;
    tsri_pool_init(&pool, mem);
    eliminator el = {.g = g, .pool = &pool, .limit = limit};
    el.relax = mode == TSRI_SG_RELAX;
    int count = el.relax ? g->n : plan->norder;
    tsr_status status;
    TSRI_GOTO(start(&el, plan, choice), done);
    for (int i = 0; i < count; i++)
        TSRI_GOTO(eliminate(&el, plan->order[i]), done);
    for (int i = count - 1; i >= 0; i--)
        choice[plan->order[i]] = best_strategy(&el, plan->order[i], choice);
    *out_bound = el.constant;
done:
    tsri_pool_finish(&pool);
    return status;
}
