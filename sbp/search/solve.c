/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search without a limit, in rounds: reduce; if elimination solves the core at little cost, do
 * that; otherwise raise the dual bound and improve an assignment, drop the strategies that the gap
 * between them excludes, and reduce again. The rest of the budget then goes to elimination with
 * larger tables, or to more improvement. Budgets are counted in additions.
 */
#include "sbp/search/branch.h"

#include <math.h>
#include <string.h>

static const double default_table = 1 << 20, most_table = 0x1p40;
/* All tables together may have that many times the entries of the largest allowed: a byte each, and
 * time. The tables of a relaxation are kept whole. */
static const double entries_per_limit = 128, relaxed_per_limit = 16;
static const double work_per_node = 512;
/* Elimination that is done at once; while the dual still has a gap; with one of a thousandth. */
static const double work_at_once = 2e8, work_for_gap = 4e10, work_for_proof = 6e8;
static const double small_gap = 1e-3;
static const double branch_work = 2e8, most_levels = 1e6; /* doubles of all levels */
static const double dual_work = 6e8, improve_work = 4e7, last_improve_work = 2e9, deep_work = 6e7;
/* From this effort on, trees, branch and bound and relaxation have their whole budgets. */
static const double enough_effort = 0.125;
/* Another round is worth its start if no larger share of the strategies is left. */
static const double most_left = 0.9, rise_worth = 0.004;

enum { ROUNDS = 6, LEAST_STEPS = 24, STALE_STEPS = 6 };

typedef struct solver {
    const tsri_search_problem *p;
    const double *price;
    tsri_sreducer r;
    double limit;
    int *best, *trial;  /* [n] the problem's strategies */
    double cost, lower; /* of best; of the whole problem */
    double effort;
    double deep_left; /* additions of improvement by more than trees */
    uint64_t random;
    double dual_left; /* additions */
    bool done;        /* best is the optimum, or nothing is feasible */
    tsri_search_result *result;
} solver;

/* One round's core. */
typedef struct core {
    tsri_pool pool;
    tsri_sgraph g;
    tsri_sg_plan plan;
    double work; /* of exact elimination; INFINITY: the tables are too large */
    int *choice, *trial, *best;
    double cost; /* of best */
    tsri_sg_dual dual;
} core;

/* --- the caller's budget ---------------------------------------------------------------------- */
/* Returns the additions that are left; any number until there is an assignment. */
static double left_of(const solver *s)
{
    return s->p->work && s->cost < INFINITY ? *s->p->work : INFINITY;
}

static void spend(const solver *s, double work)
{
    if (s->p->work)
        *s->p->work -= work;
}

/* Whether the search has to do with its best assignment. */
static bool is_spent(const solver *s)
{
    return left_of(s) <= 0.0;
}

/* Returns the share of a budget that this effort allows. */
static double share_of(const solver *s)
{
    return fmin(1.0, s->effort / enough_effort);
}

/* --- assignments ------------------------------------------------------------------------------ */
static double priced_cost(const solver *s, const int *choice)
{
    double sum = tsri_search_cost(s->p, choice);
    for (int v = 0; v < s->p->nnodes && s->price; v++)
        if (s->p->nodes[v].usage)
            sum += s->price[v] * (double)s->p->nodes[v].usage[choice[v]];
    return sum;
}

/* Takes the core's assignment, completed, if it is the best so far. */
static tsr_status offer(solver *s, const core *c, const int *choice)
{
    for (int i = 0; c && i < c->g.n; i++)
        s->trial[c->g.node[i]] = s->r.nodes[c->g.node[i]].orig[choice[i]];
    TSRI_TRY(tsri_sr_complete(&s->r, s->trial));
    double cost = priced_cost(s, s->trial);
    if (cost < s->cost) {
        s->cost = cost;
        memcpy(s->best, s->trial, (size_t)s->p->nnodes * sizeof(int));
    }
    return TSR_OK;
}

/* The choice that the earlier rounds found, as far as its strategies are left. */
static void start_best(const solver *s, core *c)
{
    if (s->cost == INFINITY)
        return;
    for (int i = 0; i < c->g.n; i++)
        c->best[i] = tsri_sr_place(&s->r, c->g.node[i], s->best[c->g.node[i]]);
    c->cost = tsri_sg_cost(&c->g, c->best);
}

static tsr_status start_core(solver *s, core *c)
{
    tsri_pool_init(&c->pool, s->r.pool->mem);
    TSRI_TRY(tsri_sg_build(&c->pool, &s->r, &c->g));
    size_t bytes = (size_t)c->g.n * sizeof(int);
    c->choice = tsri_pool_alloc(&c->pool, bytes);
    c->trial = tsri_pool_alloc(&c->pool, bytes);
    c->best = tsri_pool_alloc(&c->pool, bytes);
    TSRI_NEED(c->choice && c->trial && c->best);
    c->cost = INFINITY;
    start_best(s, c);
    double entries = s->limit * entries_per_limit, count;
    TSRI_TRY(tsri_sg_plan_within(&c->pool, &c->g, s->limit, entries, NULL, &c->plan));
    if (!s->result->tables)
        s->result->tables = (int64_t)c->plan.largest;
    count = tsri_sg_combinations(&c->g, &c->plan);
    c->work = INFINITY;
    if (!c->plan.ncut || count * (c->plan.entries + c->g.n) <= entries)
        c->work = count * (c->plan.work + work_per_node * c->g.n);
    return TSR_OK;
}

static tsr_status solve_exactly(solver *s, core *c)
{
    TSRI_TRY(tsri_sg_enumerate(s->r.pool->mem, &c->g, &c->plan, s->limit, c->trial, c->choice));
    spend(s, c->work);
    s->done = true;
    s->result->tables = (int64_t)c->plan.largest;
    return offer(s, c, c->choice);
}

/* A core's assignment: kept if better, and offered to the whole. */
static tsr_status take(solver *s, core *c, const int *choice, double cost)
{
    if (cost >= c->cost)
        return TSR_OK;
    c->cost = cost;
    if (choice != c->best)
        memcpy(c->best, choice, (size_t)c->g.n * sizeof(int));
    return offer(s, c, choice);
}

static void take_bound(solver *s, const core *c, double lower)
{
    lower += s->r.constant;
    s->lower = lower > s->lower ? lower : s->lower;
    /* Equal but for rounding; or above every feasible total. */
    s->done |= s->lower >= s->cost - 1e-12 * c->g.range || lower > c->g.range * (1.0 + 1e-9);
}

/* By trees alone: the dual's last guess, and the best. */
static tsr_status improve_trees(solver *s, core *c)
{
    const double most = improve_work * share_of(s);
    double cost = tsri_sg_cost(&c->g, c->trial), work = most;
    TSRI_TRY(tsri_sg_improve_trees(s->r.pool->mem, &c->g, &s->random, &work, c->trial, &cost));
    TSRI_TRY(take(s, c, c->trial, cost));
    memcpy(c->trial, c->best, (size_t)c->g.n * sizeof(int));
    cost = c->cost;
    TSRI_TRY(tsri_sg_improve_trees(s->r.pool->mem, &c->g, &s->random, &work, c->trial, &cost));
    spend(s, most - work);
    return take(s, c, c->trial, cost);
}

/* Improves c->choice, of that cost. */
static tsr_status improve_choice(solver *s, core *c, double cost, double work)
{
    work = fmin(work, left_of(s));
    double left = work;
    TSRI_TRY(tsri_sg_improve(s->r.pool->mem, &c->g, s->limit, &left, c->choice, &cost));
    spend(s, work - left);
    return take(s, c, c->choice, cost);
}

static tsr_status improve(solver *s, core *c, double work)
{
    memcpy(c->choice, c->best, (size_t)c->g.n * sizeof(int));
    return improve_choice(s, c, c->cost, work);
}

/* Steps until the bound meets the best, hardly rises, or much has been dropped. When it hardly
 * rises for the first time, what lacks may be the assignment. */
static tsr_status raise_bound(solver *s, core *c)
{
    tsri_sg_dual *d = &c->dual;
    TSRI_TRY(tsri_sg_dual_start(&c->pool, &c->g, d));
    int64_t first = d->left;
    double before = -INFINITY;
    for (int i = 1, stale = 0, next = 2; !s->done; i++) {
        d->upper = s->cost < INFINITY ? s->cost - s->r.constant : INFINITY;
        tsri_sg_dual_step(d, c->trial);
        s->dual_left -= d->pass;
        spend(s, d->pass);
        TSRI_TRY(take(s, c, c->trial, tsri_sg_cost(&c->g, c->trial)));
        take_bound(s, c, d->lower);
        if (i == next && !s->done) {
            TSRI_TRY(improve_trees(s, c));
            next += 4;
            take_bound(s, c, d->lower);
        }
        double gap = s->cost - s->r.constant - d->lower;
        stale = d->lower - before < rise_worth * gap ? stale + 1 : 0;
        before = d->lower;
        if (d->left * 2 <= first || (i >= LEAST_STEPS && s->dual_left <= 0.0) || is_spent(s))
            break;
        if (stale < STALE_STEPS)
            continue;
        if (s->deep_left <= 0.0)
            break;
        TSRI_TRY(improve(s, c, deep_work < s->deep_left ? deep_work : s->deep_left));
        s->deep_left -= deep_work;
        take_bound(s, c, d->lower);
        stale = 0;
    }
    return TSR_OK;
}

static double gap_of(const solver *s)
{
    return s->cost < INFINITY ? (s->cost - s->lower) / fabs(s->cost) : INFINITY;
}

/* Mini-buckets: another bound, and another start for improvement. */
static tsr_status relax(solver *s, core *c)
{
    double limit = floor(s->limit * relaxed_per_limit * share_of(s) / c->g.n), lower;
    limit = limit < s->limit ? limit : s->limit;
    for (int i = 0; i < 2 && !s->done && !is_spent(s); i++, limit = floor(limit / 64.0)) {
        TSRI_TRY(tsri_sg_eliminate(s->r.pool->mem, &c->g, &c->plan, TSRI_SG_RELAX, limit, c->choice,
                                   &lower));
        spend(s, limit * c->g.n);
        TSRI_TRY(improve_choice(s, c, tsri_sg_cost(&c->g, c->choice),
                                last_improve_work / 4 * s->effort));
        take_bound(s, c, lower);
    }
    return TSR_OK;
}

/* Branch and bound, where its levels are few and small. */
static tsr_status branch(solver *s, core *c)
{
    double strategies = 0.0;
    for (int v = 0; v < c->g.n; v++)
        strategies += c->g.k[v];
    if (strategies * c->g.n > most_levels)
        return TSR_OK;
    const double work = fmin(branch_work * share_of(s), left_of(s));
    tsri_branch b = {.g = &c->g, .work = work, .choice = c->choice};
    b.upper = s->cost - s->r.constant;
    TSRI_TRY(tsri_sg_branch(s->r.pool->mem, &b));
    spend(s, work - b.work);
    if (b.found)
        TSRI_TRY(take(s, c, c->choice, tsri_sg_cost(&c->g, c->choice)));
    s->done |= b.work > 0.0;
    return TSR_OK;
}

static tsr_status finish_core(solver *s, core *c)
{
    if (is_spent(s))
        return TSR_OK;
    TSRI_TRY(branch(s, c));
    if (s->done)
        return TSR_OK;
    bool close = gap_of(s) <= small_gap;
    if (c->work <= fmin((close ? work_for_proof : work_for_gap) * s->effort, left_of(s)))
        return solve_exactly(s, c);
    if (close)
        return TSR_OK;
    TSRI_TRY(improve(s, c, last_improve_work * s->effort));
    take_bound(s, c, -INFINITY);
    return s->done || gap_of(s) <= small_gap ? TSR_OK : relax(s, c);
}

/* One round; *out_again: the problem has become smaller. */
static tsr_status solve_core(solver *s, bool last, bool *out_again)
{
    core c = {0};
    tsr_status status;
    *out_again = false;
    TSRI_GOTO(start_core(s, &c), done);
    if (c.work <= work_at_once * share_of(s)) {
        status = solve_exactly(s, &c);
        goto done;
    }
    TSRI_GOTO(raise_bound(s, &c), done);
    if (s->done)
        goto done;
    int64_t all = 0;
    for (int v = 0; v < c.g.n; v++)
        all += c.g.k[v];
    if (!last && (double)c.dual.left < most_left * (double)all && !is_spent(s)) {
        *out_again = true;
        /* Domination is worth its time again only after much was dropped. */
        if (c.dual.left * 2 > all)
            s->r.memo.work = 0.0;
        status = tsri_sg_dual_keep(&c.dual, &s->r);
    } else {
        status = finish_core(s, &c);
    }
done:
    tsri_pool_finish(&c.pool);
    return status;
}

static tsr_status solve(solver *s)
{
    bool again = true;
    for (int round = 0; again && !s->done; round++) {
        const double before = s->r.memo.spent;
        TSRI_TRY(tsri_sr_run(&s->r));
        spend(s, s->r.memo.spent - before);
        /* Nothing is left that is feasible, or that is better than the best. */
        s->done = s->r.empty;
        if (!s->done)
            TSRI_TRY(solve_core(s, round == ROUNDS, &again));
    }
    return TSR_OK;
}

tsr_status tsri_search_priced(const tsri_search_problem *problem, const double *price,
                              double effort, int *choice, tsri_search_result *result)
{
    tsri_pool pool;
    tsri_pool_init(&pool, problem->mem);
    solver s = {.p = problem,
                .price = price,
                .cost = INFINITY,
                .lower = -INFINITY,
                .effort = effort,
                .dual_left = dual_work * effort,
                .best = choice,
                .result = result};
    double limit = problem->max_table ? (double)problem->max_table : default_table;
    s.deep_left = deep_work * effort;
    s.limit = limit < most_table ? limit : most_table;
    tsr_status status;
    TSRI_GOTO(tsri_sr_start(&s.r, &pool, problem, price, false), done);
    status = TSR_ERR_NO_MEMORY;
    s.trial = tsri_pool_alloc(&pool, (size_t)problem->nnodes * sizeof(int));
    if (!s.trial)
        goto done;
    if (problem->nnodes)
        memset(choice, 0, (size_t)problem->nnodes * sizeof(int));
    TSRI_GOTO(solve(&s), done);
    result->exact = s.done;
    result->cost = s.cost;
    result->bound = s.done ? s.cost : s.lower < s.cost ? s.lower : s.cost;
done:
    tsri_pool_finish(&pool);
    return status;
}
