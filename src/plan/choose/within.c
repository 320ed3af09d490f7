/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for a plan within a limit of memory. Inference only estimates a rank's memory, as
 * results in place, layouts, buckets and gaps come later. So plans are built and measured: within
 * limits by the estimate, mixed of two plans that were tried, and with other signatures of
 * variables. How many are tried follows from the number of ops, and from the work that search_s
 * allows, which is counted and not timed: so ranks agree.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "src/core/clock.h"
#include "src/plan/choose/choose.h"

/* --- what was tried --------------------------------------------------------------------------- */
/* Infers signatures of which a rank needs at most `limit` bytes (0: any) by inference's estimate,
 * and builds their plan. Where there are none, c->inferred.fits is false, and nothing is built. */
static tsr_status try_pinned(tsri_choosing *c, tsr_plan *plan, double limit, bool quick,
                             const tsr_sbp *pinned)
{
    const tsri_infer_opts opts = {.memory_limit = (int64_t)limit,
                                  .quick_within = quick,
                                  .pinned = pinned,
                                  .alternatives = plan->ir.opts.alternatives,
                                  .bucket_bytes = plan->ir.opts.bucket_mb * 1048576,
                                  .infer_updates = plan->ir.opts.infer_updates};
    const bool is_limited = plan->ir.opts.memory_limit && plan->ir.opts.microbatches > 1;
    double started_at = tsri_now_s();
    c->inferred = (tsri_inferred){0};
    if (!c->inference.g)
        c->inference = (tsri_inference){.g = c->g,
                                        .pool = &c->inferring,
                                        .model = plan->ir.model,
                                        .is_limited = is_limited,
                                        .holds = is_limited && !plan->ir.opts.reshard_after_forward,
                                        .pipeline = plan->ir.opts.pipeline,
                                        .parts = plan->ir.opts.microbatches,
                                        .work = c->opts->search_s > 0 ? &c->work : NULL};
    TSRI_TRY(tsri_infer(&c->inference, &opts, &c->inferred));
    plan->info.infer_s += tsri_now_s() - started_at;
    return c->inferred.fits ? tsri_build_inferred(c, plan) : TSR_OK;
}

static tsr_status try_limit(tsri_choosing *c, tsr_plan *plan, double limit, bool quick)
{
    return try_pinned(c, plan, limit, quick, NULL);
}

/* Whether a graph is too large for anything but a quick search. */
static bool is_huge(const tsri_choosing *c)
{
    enum { HUGE_GRAPH = 4000 };
    return c->g->nops > HUGE_GRAPH;
}

/* Returns how many tries a graph of this size is worth: ops / its ops, from least to most. */
static int tries_of(const tsri_choosing *c, int ops, int least, int most)
{
    const int n = ops / (c->g->nops + 1);
    return n < least ? least : n > most ? most : n;
}

/* Whether signatures cost less by more than rounding and what is not worth a search. */
static bool is_cheaper(const tsri_inferred *a, const tsri_inferred *b)
{
    return a->cost < b->cost * (1 - 1e-6);
}

/* Returns the cheapest of what was tried that fits, the first of equals; NULL: none does. */
static const tsri_tried *best_within(const tsri_choosing *c, double limit)
{
    const tsri_tried *best = NULL;
    for (int i = 0; i < c->ntried; i++)
        if ((double)c->tried[i].bytes <= limit &&
            (!best || is_cheaper(&c->tried[i].inferred, &best->inferred)))
            best = &c->tried[i];
    return best;
}

/* Builds again what was tried, where that is not what was built last. */
static tsr_status build_tried(tsri_choosing *c, tsr_plan *plan, const tsri_tried *tried)
{
    if (c->inferred.choice == tried->inferred.choice && c->inferred.fits)
        return TSR_OK;
    const tsri_tried t = *tried; /* the list may move */
    c->inferred = t.inferred;
    return tsri_build_inferred(c, plan);
}

static bool has_tries(const tsri_choosing *c, int tries)
{
    return tries > 0 && !tsri_choosing_is_over(c);
}

/* --- mixtures --------------------------------------------------------------------------------- */
/* Parts of what does not fit, `to`, that may go into what does, `from`. */
typedef struct mixture {
    tsri_inferred from, to;
    tsri_parts parts;
    bool *taken; /* [parts.n] */
    double limit;
    int tries; /* that are left */
} mixture;

static tsr_status try_mixture(tsri_choosing *c, tsr_plan *plan, mixture *m, bool *out_fits)
{
    TSRI_TRY(tsri_infer_mix(&m->from, &m->to, &m->parts, m->taken, plan->ir.opts.alternatives,
                            &c->inferred));
    TSRI_TRY(tsri_build_inferred(c, plan));
    m->tries--;
    *out_fits = (double)c->bytes <= m->limit;
    return TSR_OK;
}

/* Takes over parts of m->to: the most that fit together, by the order of their worth, and then each
 * further one that fits with them. */
static tsr_status take_parts(tsri_choosing *c, tsr_plan *plan, mixture *m)
{
    bool fits;
    m->from = best_within(c, m->limit)->inferred;
    if (!is_cheaper(&m->to, &m->from))
        return TSR_OK;
    TSRI_TRY(tsri_infer_parts(&m->from, &m->to, &m->parts));
    const int n = m->parts.n;
    m->taken = tsri_pool_alloc(c->pool, (size_t)n * sizeof *m->taken);
    TSRI_NEED(m->taken);
    /* The first `fit` parts fit, the first `over` do not: all of them are what does not. */
    int fit = 0, over = n == m->parts.count ? n : n + 1;
    while (over - fit > 1 && has_tries(c, m->tries)) {
        int next = over > n ? n : (fit + over) / 2;
        for (int k = 0; k < n; k++)
            m->taken[k] = k < next;
        TSRI_TRY(try_mixture(c, plan, m, &fits));
        *(fits ? &fit : &over) = next;
    }
    for (int k = 0; k < n; k++)
        m->taken[k] = k < fit;
    for (int k = fit + 1; k < n && has_tries(c, m->tries); k++) {
        m->taken[k] = true;
        TSRI_TRY(try_mixture(c, plan, m, &m->taken[k]));
    }
    return TSR_OK;
}

/* --- variables -------------------------------------------------------------------------------- */
/* A walk from plan to plan, each with another signature for one variable or for all of a class, and
 * what is cheapest for all else. */
typedef struct walk {
    double limit;  /* 0: to where least memory is needed */
    tsr_sbp *pins; /* [ops] */
    size_t bytes;  /* of the plan that it has come to */
    double cost;
    int tries; /* that are left */
} walk;

/* Whether a walk goes on to a plan from the one it has come to. */
static bool is_step(const walk *w, size_t bytes, double cost)
{
    bool fits = (double)bytes <= w->limit, fitted = (double)w->bytes <= w->limit;
    if (fits && fitted)
        return cost < w->cost * (1 - 1e-6);
    return bytes < w->bytes || (bytes == w->bytes && cost < w->cost * (1 - 1e-6));
}

static tsr_status try_step(tsri_choosing *c, tsr_plan *plan, walk *w, bool *out_taken)
{
    w->tries--;
    TSRI_TRY(try_pinned(c, plan, 0, false, w->pins));
    *out_taken = c->inferred.fits && is_step(w, c->bytes, c->inferred.cost);
    if (*out_taken) {
        w->bytes = c->bytes;
        w->cost = c->inferred.cost;
    }
    return TSR_OK;
}

typedef enum step_scope { ONE, CLASS, ALL } step_scope; /* of variables that change together */

/* Where a signature stands among those of a variable; -1. */
static int place_of(const tsri_choosing *c, int op, tsr_sbp sig)
{
    int n;
    const tsri_nd_signature *list = tsri_infer_signatures(&c->tried[0].inferred, op, &n);
    for (int s = 0; s < n; s++)
        if (tsr_sbp_equal(list[s].out[0], sig))
            return s;
    return -1;
}

/* Whether the variables a and b are of one class, or (ALL) can both have a signature. */
static bool changes_with(const tsri_choosing *c, step_scope scope, int a, int b, tsr_sbp sig)
{
    int n;
    const tsri_inferred *any = &c->tried[0].inferred;
    bool same = tsri_infer_signatures(any, a, &n) == tsri_infer_signatures(any, b, &n);
    return a == b || (scope == CLASS && same) || (scope == ALL && place_of(c, b, sig) >= 0);
}

/* Whether no variable before `op` stands for it with a signature: then a step for both is that
 * one's. */
static bool leads(const tsri_choosing *c, const walk *w, step_scope scope, int op, tsr_sbp sig)
{
    for (int i = 0; i < op; i++)
        if (w->pins[i].ndim && changes_with(c, scope, op, i, sig))
            return false;
    return true;
}

/* Tries each other signature for variable `op`, and for all that change with it. */
static tsr_status walk_from(tsri_choosing *c, tsr_plan *plan, walk *w, step_scope scope, int op,
                            bool *moved)
{
    const size_t bytes = (size_t)c->g->nops * sizeof *w->pins;
    int n;
    const tsri_nd_signature *list = tsri_infer_signatures(&c->tried[0].inferred, op, &n);
    tsr_sbp *kept = tsri_pool_dup(c->pool, w->pins, bytes);
    TSRI_NEED(kept);
    for (int s = 0; s < n && has_tries(c, w->tries); s++) {
        const tsr_sbp sig = list[s].out[0];
        bool taken;
        if (!leads(c, w, scope, op, sig))
            continue;
        for (int i = op; i < c->g->nops; i++)
            if (w->pins[i].ndim && changes_with(c, scope, op, i, sig))
                w->pins[i] = sig;
        if (!memcmp(w->pins, kept, bytes))
            continue;
        TSRI_TRY(try_step(c, plan, w, &taken));
        *moved |= taken;
        memcpy(taken ? kept : w->pins, taken ? w->pins : kept, bytes);
    }
    return TSR_OK;
}

/* The first of a variable's signatures that leave a rank least of it. */
static tsr_sbp slightest_of(const tsri_choosing *c, int op)
{
    const tsr_variable *v = c->g->ops[op]->variable;
    int n, best = 0;
    const tsri_nd_signature *list = tsri_infer_signatures(&c->tried[0].inferred, op, &n);
    for (int s = 1; s < n; s++)
        if (tsri_largest_part(v->shape, v->placement, list[s].out[0]) <
            tsri_largest_part(v->shape, v->placement, list[best].out[0]))
            best = s;
    return list[best].out[0];
}

static tsr_status walk_on(tsri_choosing *c, tsr_plan *plan, walk *w)
{
    bool moved = true;
    TSRI_TRY(try_step(c, plan, w, &moved));
    for (moved = true; moved && has_tries(c, w->tries);) {
        moved = false;
        for (int scope = ALL; scope >= ONE; scope--)
            for (int i = 0; i < c->g->nops; i++)
                if (w->pins[i].ndim)
                    TSRI_TRY(walk_from(c, plan, w, scope, i, &moved));
    }
    return TSR_OK;
}

/* Returns what a walk begins with: of what was tried, where it would end. */
static const tsri_tried *nearest_tried(const tsri_choosing *c, double limit)
{
    const tsri_tried *from = &c->tried[0];
    for (int i = 1; i < c->ntried; i++) {
        const tsri_tried *t = &c->tried[i];
        const walk w = {.limit = limit, .bytes = from->bytes, .cost = from->inferred.cost};
        if ((limit > 0 || t->seeks_leanest) && is_step(&w, t->bytes, t->inferred.cost))
            from = t;
    }
    return from;
}

/* Walks over variables that the user left to the compiler, so that hand-written plans with their
 * signatures are on the way: from the nearest plan that was tried, and (where least memory is
 * sought) from the least of each variable. Plans are measured, since inference's estimate may not
 * tell them apart. Graphs for which few tries are left do without. */
static tsr_status walk_variables(tsri_choosing *c, tsr_plan *plan, double limit)
{
    enum { OPS = 40000, MOST = 100, LEAST = 12 };
    const int tries = tries_of(c, OPS, 0, MOST);
    int open = 0;
    for (int start = 0; start < (limit > 0 ? 1 : 2) && tries >= LEAST; start++) {
        if (!has_tries(c, tries))
            break;
        const tsri_tried from = *nearest_tried(c, limit);
        walk w = {.limit = limit, .tries = tries, .bytes = from.bytes, .cost = from.inferred.cost};
        w.pins = tsri_pool_alloc(c->pool, (size_t)c->g->nops * sizeof *w.pins);
        TSRI_NEED(w.pins);
        for (int i = 0; i < c->g->nops; i++)
            if (c->is_chosen[i] && from.inferred.live[i]) {
                w.pins[i] = start ? slightest_of(c, i) : from.inferred.chosen[i]->out[0];
                open++;
            }
        if (start)
            w.bytes = SIZE_MAX;
        if (open)
            TSRI_TRY(walk_on(c, plan, &w));
    }
    return TSR_OK;
}

/* --- within the limit ------------------------------------------------------------------------- */
/* Spends the memory that the best plan within the limit leaves: on parts of cheaper plans, and
 * (unless the search is quick) before that on plans between its estimate and that of a cheaper plan
 * over the limit, and then on other signatures of variables. Builds the best plan in the end. */
static tsr_status improve_within(tsri_choosing *c, tsr_plan *plan, double limit)
{
    enum { OPS = 12000, LEAST = 3, MOST = 32, MOST_QUICK = 10 };
    if (c->any_will_do || (double)c->tried[0].bytes <= limit)
        return build_tried(c, plan, best_within(c, limit));
    const tsri_inferred cheapest = c->tried[0].inferred;
    tsri_inferred over = cheapest;
    mixture m = {.limit = limit, .tries = tries_of(c, OPS, LEAST, c->is_quick ? MOST_QUICK : MOST)};
    double low = (double)best_within(c, limit)->inferred.peak, high = (double)over.peak;
    for (int i = 0; i < c->ntried; i++) {
        const tsri_tried *t = &c->tried[i];
        if ((double)t->bytes > limit && (double)t->inferred.peak < high &&
            (double)t->inferred.peak > low) {
            over = t->inferred;
            high = (double)over.peak;
        }
    }
    for (int i = c->is_quick ? 0 : m.tries / 2; has_tries(c, i) && high - low > 0.005 * high;
         i--, m.tries--) {
        if (!is_cheaper(&over, &best_within(c, limit)->inferred))
            break;
        const double asked = (low + high) / 2;
        TSRI_TRY(try_limit(c, plan, asked, false));
        if (c->inferred.fits && (double)c->bytes > limit) {
            over = c->inferred;
            high = fmin(asked, (double)over.peak);
        } else {
            low = asked;
        }
    }
    m.to = over;
    TSRI_TRY(take_parts(c, plan, &m));
    if (over.choice != cheapest.choice) {
        m.to = cheapest;
        TSRI_TRY(take_parts(c, plan, &m));
    }
    if (!c->is_quick)
        TSRI_TRY(walk_variables(c, plan, limit));
    TSRI_TRY(build_tried(c, plan, best_within(c, limit)));
    c->inferred.exact = false;
    return TSR_OK;
}

/* Tries limits of inference's estimate between the least that it knows and the cheapest plan's. */
static tsr_status halve_estimates(tsri_choosing *c, tsr_plan *plan, int tries, bool quick)
{
    double high = (double)c->tried[0].inferred.peak;
    double low = fmin((double)c->tried[0].inferred.least, high);
    for (int i = 0; i < tries && high - low > 0.01 * high; i++) {
        const double asked = 0.4 * low + 0.6 * high;
        TSRI_TRY(try_limit(c, plan, asked, quick));
        if (c->inferred.fits)
            high = fmin((double)c->inferred.peak, asked);
        else
            low = asked;
    }
    return TSR_OK;
}

/* Looks for the plan that needs least memory a rank, and notes the plans on the way in c->tried.
 * The two kinds of search find different plans, of which either may be the leaner. */
static tsr_status seek_leanest(tsri_choosing *c, tsr_plan *plan)
{
    enum { TRIES = 6, TRIES_OF_HUGE = 2 };
    c->seeks_leanest = c->sought_leanest = true;
    TSRI_TRY(try_limit(c, plan, 0, false)); /* again, so that it counts as one of these */
    TSRI_TRY(halve_estimates(c, plan, is_huge(c) ? TRIES_OF_HUGE : TRIES, true));
    if (!is_huge(c))
        TSRI_TRY(halve_estimates(c, plan, TRIES, false));
    TSRI_TRY(walk_variables(c, plan, 0));
    c->seeks_leanest = false;
    return TSR_OK;
}

/* A limit is hopeless if plans of the least estimate so far would need so many times of it. */
static const double hopeless = 1.33;
enum { QUICK_TRIES = 3, MOST_TRIES = 8 };

/*
 * Looks for a plan within the limit by at most `tries` limits of inference's own estimate: in
 * proportion where a plan's measured bytes tell how much less to ask for, until a plan fits. Limits
 * within which inference finds nothing grow by ever larger steps. Returns whether to go on looking:
 * false if a plan was found (c->found), or if the limit is hopeless.
 */
static tsr_status seek_by_estimate(tsri_choosing *c, tsr_plan *plan, double limit, int tries,
                                   bool *out_goes_on)
{
    /* Inference finds nothing within `low`, and the plan that it finds within `high` is too large.
     */
    const double cheapest_bytes = (double)c->tried[0].bytes;
    double low = 0, high = (double)c->tried[0].inferred.peak, step = 1.1;
    double next = high * limit / cheapest_bytes, share = cheapest_bytes / high;
    *out_goes_on = true;
    for (int i = 0; i < tries && high - low > 0.01 * high && *out_goes_on; i++) {
        double asked = next > low && next < high ? next : 0.4 * low + 0.6 * high;
        TSRI_TRY(try_limit(c, plan, asked, c->is_quick));
        if (!c->inferred.fits) {
            low = fmax(asked, (double)c->inferred.least);
            *out_goes_on = share * low <= hopeless * limit;
            next = step * low;
            step *= step;
            continue;
        }
        c->found = (double)c->bytes <= limit;
        *out_goes_on = !c->found;
        high = fmin((double)c->inferred.peak, asked);
        share = fmin(share, (double)c->bytes / high);
        next = asked * 0.98 * limit / (double)c->bytes;
    }
    return TSR_OK;
}

/*
 * Looks for a plan within the limit, and sets c->found to whether there is one. A quick search
 * comes first for all but small graphs: one price of memory, which finds as cheap a plan where the
 * estimate tells plans apart. If it finds nothing, the graph is searched as small ones are. The
 * tries that find the leanest plan come last.
 */
static tsr_status seek_within(tsri_choosing *c, tsr_plan *plan, double limit)
{
    enum { SMALL = 150 };
    bool goes_on;
    c->is_quick = c->g->nops > SMALL;
    TSRI_TRY(seek_by_estimate(c, plan, limit, c->is_quick && !is_huge(c) ? QUICK_TRIES : MOST_TRIES,
                              &goes_on));
    if (!c->found && c->is_quick && !is_huge(c)) {
        c->is_quick = false;
        TSRI_TRY(seek_by_estimate(c, plan, limit, MOST_TRIES, &goes_on));
    }
    if (!goes_on)
        return TSR_OK;
    if (!c->sought_leanest)
        TSRI_TRY(seek_leanest(c, plan));
    c->found = best_within(c, limit) != NULL;
    return TSR_OK;
}

/* Seeks with as much work as it takes, which still counts: whether a limit is refused must not
 * depend on search_s. limit 0: the leanest. */
static tsr_status seek_unended(tsri_choosing *c, tsr_plan *plan, double limit)
{
    static const double much = 1e6 * TSRI_WORK_PER_S;
    c->work += much;
    tsr_status status = limit > 0 ? seek_within(c, plan, limit) : seek_leanest(c, plan);
    c->work -= much;
    return status;
}

/* Whether the best plan within the limit costs more time, in proportion to the cheapest of all,
 * than it saves memory: then another search may be worth its time. */
static bool is_dear(const tsri_choosing *c, double limit)
{
    static const double tolerance = 5e-4;
    const tsri_tried *cheapest = &c->tried[0], *best = best_within(c, limit);
    return best->inferred.cost / cheapest->inferred.cost - 1 >
           tolerance + fmax(0, 1 - limit / (double)cheapest->bytes);
}

tsr_status tsri_choose_within(tsri_choosing *c, tsr_plan *plan)
{
    const double limit = (double)plan->ir.opts.memory_limit - (double)c->reserve;
    if (!c->ntried)
        TSRI_TRY(try_limit(c, plan, 0, false));
    c->found = !plan->ir.opts.memory_limit || best_within(c, limit);
    if (!plan->ir.opts.memory_limit || limit <= 0)
        return TSR_OK;
    if (!c->found)
        TSRI_TRY(seek_unended(c, plan, limit));
    if (!c->found)
        return TSR_OK;
    TSRI_TRY(improve_within(c, plan, limit));
    if (!c->is_quick || is_huge(c) || !is_dear(c, limit))
        return TSR_OK;
    bool goes_on;
    c->is_quick = false;
    TSRI_TRY(seek_by_estimate(c, plan, limit, MOST_TRIES, &goes_on));
    c->found = true; /* in any case by the quick search */
    return improve_within(c, plan, limit);
}

tsr_status tsri_choose_leanest(tsri_choosing *c, tsr_plan *plan)
{
    const tsri_tried *leanest = NULL;
    if (!c->sought_leanest)
        TSRI_TRY(seek_unended(c, plan, 0));
    for (int i = 0; i < c->ntried; i++) {
        const tsri_tried *t = &c->tried[i];
        if (t->seeks_leanest &&
            (!leanest || t->bytes < leanest->bytes ||
             (t->bytes == leanest->bytes && is_cheaper(&t->inferred, &leanest->inferred))))
            leanest = t;
    }
    c->found = true;
    return build_tried(c, plan, leanest);
}
