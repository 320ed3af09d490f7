/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lagrangian relaxation of the limit: usage gets a price at each time, and the search without a
 * limit at those prices, less what the limit is worth, is a lower bound. One price, at the time
 * that is fullest without a limit, is found by cutting planes in one dimension; then come steps
 * over all times. Each answer on the way is repaired, improved, and merged with the best. Small
 * problems go to branch and bound at the best prices.
 *
 * A quick search (quick_within) searches for one price alone. If the problem has equal blocks, it
 * ties them (tie.h) and mends the answer as a whole at the end. The time that is fullest without a
 * limit is the same for all limits, and so are many prices: their answers serve further limits.
 */
#include "sbp/search/memory.h"

#include "sbp/search/tie.h"

#include <math.h>
#include <string.h>

enum { SECANT_STEPS = 12, VOLUME_STEPS = 20 };
/* A repair with its improvements and merges takes about as many looks at all strategies. */
enum { MEND_PASSES = 16 };

static const double inner_effort = 0.125, tied_effort = 0.004, small_gap = 1e-4;
static const double branch_work = 3e8, most_levels = 1e6;

/* The answer of a quick search at a price of the fullest time. */
typedef struct tsri_priced {
    double price, bound;
    int *choice; /* [n] of the problem, or of the tied one */
    struct tsri_priced *next;
} tsri_priced;

typedef struct lagrangian {
    const tsri_search_problem *p;
    tsri_search_shared *shared;
    tsri_pool *pool;
    tsri_times times;
    int **adj;                    /* [n] count and edge numbers */
    double range;                 /* no feasible cost is larger */
    double *lambda, *best_lambda; /* [ntimes] */
    double *mean;                 /* [ntimes] load of a mixture of answers */
    double *price;                /* [n] */
    int *choice, *trial, *best;   /* [n] */
    double lower, upper;          /* upper: of best; INFINITY: none is known */
    double value, cost;           /* of the last evaluation: its bound; its choice's own cost */
    int64_t *load;                /* [ntimes] of its choice */
    double *sum;                  /* [ntimes + 1] of prices before each time */
    double pass;                  /* additions of a look at all strategies of all nodes */
    const tsri_ties *ties;        /* NULL: nothing is tied */
    double *tied_price;           /* [ties->tied.nnodes] */
    int *tied_choice;
} lagrangian;

static double most_of(const float *cost, int64_t count)
{
    float most = 0.0f;
    for (int64_t i = 0; i < count; i++)
        if (cost[i] < INFINITY && fabsf(cost[i]) > most)
            most = fabsf(cost[i]);
    return most;
}

static tsr_status list_edges(lagrangian *x)
{
    const tsri_search_problem *p = x->p;
    size_t n = (size_t)p->nnodes;
    int *count = tsri_pool_alloc(x->pool, n * sizeof(int));
    int **adj = tsri_pool_alloc(x->pool, n * sizeof *adj);
    TSRI_NEED(count && adj);
    for (int e = 0; e < p->nedges; e++) {
        count[p->edges[e].u]++;
        count[p->edges[e].v]++;
    }
    for (int v = 0; v < p->nnodes; v++) {
        adj[v] = tsri_pool_alloc(x->pool, ((size_t)count[v] + 1) * sizeof(int));
        TSRI_NEED(adj[v]);
    }
    for (int e = 0; e < p->nedges; e++) {
        int u = p->edges[e].u, v = p->edges[e].v;
        adj[u][++adj[u][0]] = e;
        adj[v][++adj[v][0]] = e;
        x->range += most_of(p->edges[e].cost, (int64_t)p->nodes[u].nstrat * p->nodes[v].nstrat);
    }
    for (int v = 0; v < p->nnodes; v++) {
        x->range += most_of(p->nodes[v].cost, p->nodes[v].nstrat);
        x->pass += (double)p->nodes[v].nstrat * (adj[v][0] + 1);
    }
    x->adj = adj;
    return TSR_OK;
}

static tsr_status start(lagrangian *x)
{
    size_t n = (size_t)x->p->nnodes, ntimes = (size_t)x->times.ntimes;
    x->lambda = tsri_pool_alloc(x->pool, ntimes * sizeof(double));
    x->best_lambda = tsri_pool_alloc(x->pool, ntimes * sizeof(double));
    x->mean = tsri_pool_alloc(x->pool, ntimes * sizeof(double));
    x->load = tsri_pool_alloc(x->pool, ntimes * sizeof(int64_t));
    x->price = tsri_pool_alloc(x->pool, n * sizeof(double));
    x->choice = tsri_pool_alloc(x->pool, n * sizeof(int));
    x->trial = tsri_pool_alloc(x->pool, n * sizeof(int));
    x->best = tsri_pool_alloc(x->pool, n * sizeof(int));
    TSRI_NEED(x->lambda && x->best_lambda && x->mean && x->load && x->price && x->choice &&
              x->trial && x->best);
    return list_edges(x);
}

/* Whether the caller's budget is used up and there is an answer. */
static bool is_spent(const lagrangian *x)
{
    return x->p->work && *x->p->work <= 0.0 && x->upper < INFINITY;
}

static void offer(lagrangian *x, const int *choice)
{
    double cost = tsri_search_cost(x->p, choice);
    if (cost < x->upper && tsri_times_load(&x->times, choice, x->times.load) <= x->p->usage_limit) {
        x->upper = cost;
        memcpy(x->best, choice, (size_t)x->p->nnodes * sizeof(int));
    }
}

/* Everything within the limit that choice leads to. */
static tsr_status mend(lagrangian *x, const int *choice)
{
    size_t bytes = (size_t)x->p->nnodes * sizeof(int);
    int *const *adj = x->adj;
    if (x->p->work)
        *x->p->work -= MEND_PASSES * x->pass;
    memcpy(x->trial, choice, bytes);
    if (tsri_times_repair(&x->times, adj, x->trial)) {
        tsri_times_improve(&x->times, adj, x->trial);
        TSRI_TRY(tsri_times_merge(&x->times, x->pool->mem, adj, choice, x->trial));
        offer(x, x->trial);
    }
    if (x->upper == INFINITY)
        return TSR_OK;
    memcpy(x->trial, x->best, bytes);
    TSRI_TRY(tsri_times_merge(&x->times, x->pool->mem, adj, choice, x->trial));
    tsri_times_improve(&x->times, adj, x->trial);
    offer(x, x->trial);
    return TSR_OK;
}

/* Prices of a tied problem: differences of sums, which round. */
static void set_tied_prices(lagrangian *x)
{
    const int n = x->times.ntimes;
    for (int t = 0; t < n; t++)
        x->sum[t + 1] = x->sum[t] + x->lambda[t];
    memset(x->tied_price, 0, (size_t)x->ties->tied.nnodes * sizeof *x->tied_price);
    for (int v = 0; v < x->p->nnodes; v++)
        if (x->times.from[v] <= x->times.to[v])
            x->tied_price[x->ties->of[v]] += x->sum[x->times.to[v] + 1] - x->sum[x->times.from[v]];
}

static void set_prices(lagrangian *x)
{
    /* Times without a price add nothing; most are so, or none. */
    int first = 0, last = x->times.ntimes - 1;
    while (first <= last && x->lambda[first] == 0.0)
        first++;
    while (first <= last && x->lambda[last] == 0.0)
        last--;
    for (int v = 0; v < x->p->nnodes; v++) {
        int from = x->times.from[v] > first ? x->times.from[v] : first;
        int to = x->times.to[v] < last ? x->times.to[v] : last;
        x->price[v] = 0.0;
        for (int t = from; t <= to; t++)
            x->price[v] += x->lambda[t];
    }
}

/* Finds the answer of `p` (the problem, or its tied form) at the given prices of its nodes. key > 0
 * is the price of the fullest time if no other time has one: then an answer at the same key is
 * taken from x->shared, or added to it. */
static tsr_status search_priced(lagrangian *x, const tsri_search_problem *p, const double *price,
                                double key, double effort, int *choice, double *out_bound)
{
    const size_t bytes = (size_t)p->nnodes * sizeof *choice;
    for (const tsri_priced *k = x->shared->priced; key > 0 && k; k = k->next)
        if (k->price == key) {
            memcpy(choice, k->choice, bytes);
            *out_bound = k->bound;
            return TSR_OK;
        }
    tsri_search_result result = {0};
    TSRI_TRY(tsri_search_priced(p, price, effort, choice, &result));
    *out_bound = result.bound;
    if (key <= 0)
        return TSR_OK;
    tsri_priced *kept = tsri_pool_alloc(x->shared->pool, sizeof *kept);
    int *copy = tsri_pool_dup(x->shared->pool, choice, bytes);
    TSRI_NEED(kept && copy);
    *kept = (tsri_priced){key, result.bound, copy, x->shared->priced};
    x->shared->priced = kept;
    return TSR_OK;
}

/* The tied problem at lambda, which bounds nothing. */
static tsr_status evaluate_tied(lagrangian *x, double key)
{
    double bound;
    set_tied_prices(x);
    TSRI_TRY(
        search_priced(x, &x->ties->tied, x->tied_price, key, tied_effort, x->tied_choice, &bound));
    for (int v = 0; v < x->p->nnodes; v++)
        x->choice[v] = x->tied_choice[x->ties->of[v]];
    x->cost = tsri_search_cost(x->p, x->choice);
    tsri_times_load(&x->times, x->choice, x->load);
    offer(x, x->choice);
    return TSR_OK;
}

/* Solves the relaxation at lambda; key: see search_priced. */
static tsr_status evaluate(lagrangian *x, double key)
{
    if (x->ties)
        return evaluate_tied(x, key);
    set_prices(x);
    TSRI_TRY(search_priced(x, x->p, x->price, key, inner_effort, x->choice, &x->value));
    for (int t = 0; t < x->times.ntimes; t++)
        x->value -= x->lambda[t] * (double)x->p->usage_limit;
    if (x->value > x->lower) {
        x->lower = x->value;
        memcpy(x->best_lambda, x->lambda, (size_t)x->times.ntimes * sizeof(double));
    }
    x->cost = tsri_search_cost(x->p, x->choice);
    tsri_times_load(&x->times, x->choice, x->load);
    return mend(x, x->choice);
}

static bool proven(const lagrangian *x)
{
    return x->lower >= x->upper - 1e-12 * x->range || x->lower > x->range * (1.0 + 1e-9);
}

static bool settled(const lagrangian *x)
{
    return proven(x) || x->upper - x->lower <= small_gap * fabs(x->upper);
}

/* Solves the relaxation where only the fullest time has a price. Only quick searches share answers,
 * as those of a tied problem would not do for the others. */
static tsr_status evaluate_at(lagrangian *x, int fullest, double price)
{
    x->lambda[fullest] = price;
    return evaluate(x, x->p->quick_within ? price : 0);
}

/* Finds an answer of little usage, by a price that outweighs all costs. A quick search tries the
 * fullest time alone first, at which equal blocks stay equal; otherwise all times have the price.
 */
static tsr_status least_usage(lagrangian *x, int fullest)
{
    const double price = 1e6 * x->range / (double)x->shared->result.peak;
    if (x->p->quick_within) {
        TSRI_TRY(evaluate_at(x, fullest, price));
        x->lambda[fullest] = 0;
        if (x->upper < INFINITY)
            return TSR_OK;
    }
    for (int t = 0; t < x->times.ntimes; t++)
        x->lambda[t] = price / x->times.ntimes;
    TSRI_TRY(evaluate(x, 0));
    memset(x->lambda, 0, (size_t)x->times.ntimes * sizeof(double));
    return TSR_OK;
}

static void copy_load(const lagrangian *x, double *out)
{
    for (int t = 0; t < x->times.ntimes; t++)
        out[t] = (double)x->load[t];
}

/* Finds the best price of one time. An answer over the limit and one within the limit are lines of
 * the dual; the next price is that of their intersection. The loop ends when the dual at that price
 * lies on the intersection, or, in a quick search, within a twentieth of the cost that the limit
 * adds. On entry low[ntimes] is the load of the answer over the limit and low_cost its cost; the
 * answer within the limit is the present one. On return x->mean is the mixture of both loads that
 * just fills the time. */
static tsr_status one_price(lagrangian *x, int at, double low_cost, double *low)
{
    const double limit = (double)x->p->usage_limit, free_cost = low_cost;
    const double near = x->p->quick_within ? 0.05 : 0;
    double high_cost = x->cost, *high = x->mean;
    copy_load(x, high);
    for (int i = 0; i < SECANT_STEPS && high[at] < low[at] && !settled(x) && !is_spent(x); i++) {
        double price = (high_cost - low_cost) / (low[at] - high[at]);
        if (!(price > 0.0) || price == INFINITY)
            break;
        double line = low_cost + price * (low[at] - limit);
        TSRI_TRY(evaluate_at(x, at, price));
        double load = (double)x->load[at];
        if (x->cost + price * (load - limit) >=
            line - fmax(1e-9 * fabs(line), near * (line - free_cost)))
            break;
        if (load > limit)
            low_cost = x->cost;
        else
            high_cost = x->cost;
        copy_load(x, load > limit ? low : high);
    }
    double share = low[at] > high[at] ? (limit - high[at]) / (low[at] - high[at]) : 0.0;
    share = share > 0.0 ? share < 1.0 ? share : 1.0 : 0.0;
    for (int t = 0; t < x->times.ntimes; t++)
        x->mean[t] = share * low[t] + (1.0 - share) * high[t];
    return TSR_OK;
}

/* Steps from the best prices along the mean load of the answers so far, which approximates that of
 * the relaxation's optimum: the volume algorithm (Barahona and Anbil 2000). */
static tsr_status all_prices(lagrangian *x)
{
    double share = 0.5, limit = (double)x->p->usage_limit;
    for (int i = 0; i < VOLUME_STEPS && share > 0.02 && x->upper < INFINITY; i++) {
        if (settled(x) || is_spent(x))
            break;
        double norm = 0.0, before = x->lower;
        for (int t = 0; t < x->times.ntimes; t++) {
            double g = x->mean[t] - limit;
            norm += g > 0.0 || x->best_lambda[t] > 0.0 ? g * g : 0.0;
        }
        if (norm <= 1e-8 * limit * limit)
            break;
        double step = share * (x->upper - x->lower) / norm;
        for (int t = 0; t < x->times.ntimes; t++)
            x->lambda[t] = fmax(0.0, x->best_lambda[t] + step * (x->mean[t] - limit));
        TSRI_TRY(evaluate(x, 0));
        for (int t = 0; t < x->times.ntimes; t++)
            x->mean[t] += 0.15 * ((double)x->load[t] - x->mean[t]);
        share *= x->lower > before + 0.01 * (x->upper - before) ? 1.2 : 0.66;
    }
    return TSR_OK;
}

/* The core's usage, and its costs at the prices. */
static tsr_status price_core(lagrangian *x, tsri_sreducer *r, tsri_sgraph *g, tsri_usage *usage)
{
    *usage = (tsri_usage){
        .ntimes = x->times.ntimes, .from = x->times.from, .to = x->times.to, .price = x->price};
    usage->room = tsri_pool_alloc(x->pool, (size_t)usage->ntimes * sizeof(int64_t));
    usage->use = tsri_pool_alloc(x->pool, (size_t)g->n * sizeof *usage->use);
    TSRI_NEED(usage->room && usage->use);
    for (int t = 0; t < usage->ntimes; t++)
        usage->room[t] = x->p->usage_limit;
    for (int v = 0; v < x->p->nnodes; v++)
        if (r->nodes[v].gone && r->nodes[v].use >= 0) {
            const double *use = tsri_sm_rows(&r->memo, r->nodes[v].use);
            TSRI_NEED(use);
            for (int t = usage->from[v]; t <= usage->to[v]; t++)
                usage->room[t] -= (int64_t)use[0];
        }
    for (int i = 0; i < g->n; i++) {
        int v = g->node[i];
        double *cost = tsri_pool_dup(x->pool, g->cost[i], (size_t)g->k[i] * sizeof *cost);
        TSRI_NEED(cost);
        g->cost[i] = cost;
        if (r->nodes[v].use < 0)
            continue;
        usage->use[i] = tsri_sm_rows(&r->memo, r->nodes[v].use);
        TSRI_NEED(usage->use[i]);
        for (int s = 0; s < g->k[i]; s++)
            cost[s] += x->price[v] * usage->use[i][s];
    }
    for (int t = 0; t < usage->ntimes; t++)
        usage->discount += x->lambda[t] * (double)usage->room[t];
    return TSR_OK;
}

/* Whether the best is then proven: *out_done. */
static tsr_status branch(lagrangian *x, bool *out_done)
{
    tsri_sreducer r;
    tsri_sgraph g;
    tsri_usage usage;
    TSRI_TRY(tsri_sr_start(&r, x->pool, x->p, NULL, true));
    TSRI_TRY(tsri_sr_run(&r));
    if (r.empty) {
        *out_done = true;
        return TSR_OK;
    }
    memcpy(x->lambda, x->best_lambda, (size_t)x->times.ntimes * sizeof(double));
    set_prices(x);
    /* A forbidden choice must stand above prices too. */
    for (int v = 0; v < x->p->nnodes; v++)
        for (int s = 0; x->p->nodes[v].usage && s < x->p->nodes[v].nstrat; s++)
            r.range += x->price[v] * (double)x->p->nodes[v].usage[s];
    r.forbid = 3.0 * r.range + 1.0;
    TSRI_TRY(tsri_sg_build(x->pool, &r, &g));
    double strategies = 0.0;
    for (int v = 0; v < g.n; v++)
        strategies += g.k[v];
    if (strategies * g.n > most_levels)
        return TSR_OK;
    TSRI_TRY(price_core(x, &r, &g, &usage));
    tsri_branch b = {.g = &g, .usage = &usage, .work = branch_work, .upper = x->upper - r.constant};
    b.choice = tsri_pool_alloc(x->pool, (size_t)g.n * sizeof(int));
    TSRI_NEED(b.choice);
    TSRI_TRY(tsri_sg_branch(x->pool->mem, &b));
    if (x->p->work)
        *x->p->work -= branch_work - b.work;
    if (b.found) {
        for (int i = 0; i < g.n; i++)
            x->trial[g.node[i]] = r.nodes[g.node[i]].orig[b.choice[i]];
        TSRI_TRY(tsri_sr_complete(&r, x->trial));
        offer(x, x->trial);
    }
    *out_done = b.work > 0.0;
    return TSR_OK;
}

/* Ties the equal blocks of a quick search's problem, if that makes it smaller by a quarter. */
static tsr_status tie_blocks(lagrangian *x)
{
    enum { LARGE = 200 };
    static const double most_left = 0.75;
    if (!x->p->quick_within || x->p->nnodes < LARGE)
        return TSR_OK;
    if (!x->shared->ties) {
        x->shared->ties = tsri_pool_alloc(x->shared->pool, sizeof *x->shared->ties);
        TSRI_NEED(x->shared->ties);
        TSRI_TRY(tsri_ties_make(x->shared->pool, x->p, x->shared->ties));
    }
    const size_t n = (size_t)x->shared->ties->tied.nnodes;
    if ((double)n > most_left * x->p->nnodes)
        return TSR_OK;
    x->ties = x->shared->ties;
    x->tied_price = tsri_pool_alloc(x->pool, n * sizeof *x->tied_price);
    x->tied_choice = tsri_pool_alloc(x->pool, n * sizeof *x->tied_choice);
    x->sum = tsri_pool_alloc(x->pool, ((size_t)x->times.ntimes + 1) * sizeof *x->sum);
    TSRI_NEED(x->tied_price && x->tied_choice && x->sum);
    return TSR_OK;
}

static tsr_status minimise(lagrangian *x, int *cheapest, bool *out_done)
{
    int at = 0;
    double low_cost = tsri_search_cost(x->p, x->choice);
    tsri_times_load(&x->times, x->choice, x->load);
    for (int t = 1; t < x->times.ntimes; t++)
        at = x->load[t] > x->load[at] ? t : at;
    double *low = tsri_pool_alloc(x->pool, (size_t)x->times.ntimes * sizeof(double));
    TSRI_NEED(low);
    copy_load(x, low);
    TSRI_TRY(tie_blocks(x));
    if (!x->ties)
        TSRI_TRY(mend(x, x->choice));
    TSRI_TRY(least_usage(x, at));
    if (!proven(x))
        TSRI_TRY(one_price(x, at, low_cost, low));
    if (x->ties)
        TSRI_TRY(mend(x, cheapest));
    if (!proven(x) && !x->p->quick_within)
        TSRI_TRY(all_prices(x));
    *out_done = proven(x);
    return *out_done || x->p->quick_within || is_spent(x) ? TSR_OK : branch(x, out_done);
}

tsr_status tsri_search_limited(tsri_pool *pool, const tsri_search_problem *p,
                               tsri_search_shared *shared, int *picked, tsri_search_result *result)
{
    lagrangian x = {
        .p = p, .shared = shared, .pool = pool, .lower = result->bound, .upper = INFINITY};
    bool done = true;
    TSRI_TRY(tsri_times_start(&x.times, pool, p));
    result->least = x.times.least;
    if (!x.times.infeasible) {
        TSRI_TRY(start(&x));
        memcpy(x.choice, picked, (size_t)p->nnodes * sizeof(int));
        TSRI_TRY(minimise(&x, picked, &done));
    }
    result->exact = done;
    result->cost = x.upper;
    result->bound = done || x.lower > x.upper ? x.upper : x.lower;
    if (x.upper < INFINITY)
        memcpy(picked, x.best, (size_t)p->nnodes * sizeof(int));
    return tsri_search_peak(pool, p, picked, &result->peak);
}
