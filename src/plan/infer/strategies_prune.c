/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shorter lists. A list grows with the power of the hierarchy's dimensions: six 1-D signatures of a
 * product are 36 on two dimensions and 1,296 on four. Lists that are too long are cut, and nothing
 * is proven then.
 *
 * On two dimensions the cut takes first the signatures that leave ranks empty, then those that pass
 * partial sums on (except where sums meet), then the slowest. On more dimensions the costs of
 * conversions decide, not those of the op: the list keeps the signatures that are alike on all
 * dimensions, so that a mesh of many dimensions can do what one of a single dimension does, then
 * those of two kinds, each on some dimensions. After an answer the list is made anew around it: the
 * signatures in which some dimensions change together, and those that convert nothing to or from a
 * neighbour: see infer_refine.c.
 */
#include <stdlib.h>
#include <string.h>

#include "src/plan/infer/strategies.h"

enum { MOST_OF_TWO = 128 };

static bool leaves_empty(const tsri_op *op, const tsri_rule *rule, const tsri_nd_signature *sig)
{
    for (int l = 0; l < tsri_rule_nindices(rule); l++) {
        int64_t parts = 1;
        for (int d = 0; d < tsr_placement_ndim(op->placement); d++)
            if (sig->split[d] >> l & 1)
                parts *= tsr_placement_dim(op->placement, d);
        if (parts > 1 && tsri_rule_index_size(rule, l) < parts)
            return true;
    }
    return false;
}

static bool passes_partial(const tsri_op *op, const tsri_nd_signature *sig)
{
    for (int i = 0; i < op->nin && !tsri_op_def_of(op->kind)->is_linear; i++)
        for (int d = 0; d < sig->in[i].ndim; d++)
            if (sig->in[i].d[d].kind == TSR_SBP_PARTIAL)
                return true;
    return false;
}

/* Keeps those with drop[i] false, if any are left. */
static int keep(tsri_nd_signature *sig, int n, const bool *drop)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        kept += !drop[i];
    if (!kept)
        return n;
    kept = 0;
    for (int i = 0; i < n; i++)
        if (!drop[i])
            sig[kept++] = sig[i];
    return kept;
}

/* --- two dimensions --------------------------------------------------------------------------- */
static int by_cost(const void *a, const void *b)
{
    const float *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static tsr_status prune_two(tsri_strategy_table *t, const tsri_op *op, const tsri_op_work *work,
                            const tsri_rule *rule, tsri_strategies *s)
{
    const int most = MOST_OF_TWO;
    size_t n = (size_t)s->n;
    bool *drop = tsri_pool_alloc(t->pool, n * sizeof *drop);
    float *cost = tsri_pool_alloc(t->pool, 2 * n * sizeof *cost);
    TSRI_NEED(drop && cost);
    for (int pass = 0; pass < 2 && s->n > most; pass++) {
        for (int i = 0; i < s->n; i++)
            drop[i] = i > 0 &&
                      (pass ? passes_partial(op, &s->sig[i]) : leaves_empty(op, rule, &s->sig[i]));
        s->n = keep(s->sig, s->n, drop);
    }
    if (s->n <= most)
        return TSR_OK;
    float *sorted = cost + n;
    for (int i = 0; i < s->n; i++)
        sorted[i] = cost[i] = tsri_strategy_seconds(t, op, work, &s->sig[i]);
    qsort(sorted, (size_t)s->n, sizeof *sorted, by_cost);
    int taken = 0;
    for (int i = 0; i < s->n; i++) {
        drop[i] = i > 0 && (cost[i] > sorted[most - 1] || taken >= most);
        taken += !drop[i];
    }
    s->n = keep(s->sig, s->n, drop);
    return TSR_OK;
}

/* --- three and four dimensions ---------------------------------------------------------------- */
/* Why a signature stays, the most important first. */
typedef enum worth {
    NEAR,        /* some dimensions of the answer's changed together */
    ALIKE,       /* on all dimensions the same */
    SUITS_EACH,  /* on each dimension it suits some neighbour, or is as it was */
    SUITS_SAID,  /* on each dimension it suits an operand as the program says that is */
    SUITS_ONE,   /* it takes an operand as it is, or leaves a result as it is read */
    OF_TWO,      /* two kinds, each on some dimensions */
    OF_MORE,     /* more kinds */
    LEAVES_EMPTY /* ranks */
} worth;

typedef struct candidate {
    worth worth;
    float cost;
    int index;
} candidate;

static int by_worth(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->worth != y->worth)
        return x->worth < y->worth ? -1 : 1;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return x->index - y->index;
}

static bool same_entry(tsr_sbp1 a, tsr_sbp1 b)
{
    return a.kind == b.kind && a.arg == b.arg;
}

/* Whether a is on dimension d what b is on dimension e. */
static bool same_on(const tsri_op *op, const tsri_nd_signature *a, int d,
                    const tsri_nd_signature *b, int e)
{
    bool same = a->split[d] == b->split[e];
    for (int i = 0; i < op->nin && same; i++)
        same = same_entry(a->in[i].d[d], b->in[i].d[e]);
    for (int i = 0; i < op->nout && same; i++)
        same = same_entry(a->out[i].d[d], b->out[i].d[e]);
    return same;
}

/* How many 1-D signatures one is composed of. Dimensions of one rank count for nothing. */
static int count_kinds(const tsri_op *op, const tsri_nd_signature *sig)
{
    int kinds = 0;
    for (int d = 0; d < tsr_placement_ndim(op->placement); d++) {
        bool known = tsr_placement_dim(op->placement, d) == 1;
        for (int e = 0; e < d && !known; e++)
            known = tsr_placement_dim(op->placement, e) > 1 && same_on(op, sig, d, sig, e);
        kinds += !known;
    }
    return kinds;
}

/* Whether all dimensions on which sig differs from another have the same 1-D signature. */
static bool changes_together(const tsri_op *op, const tsri_nd_signature *sig,
                             const tsri_nd_signature *from)
{
    int first = -1;
    for (int d = 0; d < tsr_placement_ndim(op->placement); d++) {
        if (same_on(op, sig, d, from, d))
            continue;
        first = first < 0 ? d : first;
        if (!same_on(op, sig, d, sig, first))
            return false;
    }
    return true;
}

/* The signature that an answer gives the maker of operand i. NULL: it is not known, or on another
 * mesh. */
static const tsr_sbp *maker_gives(const tsri_strategy_table *t, const tsri_op *op, int i)
{
    const tsri_op *maker = op->in[i]->op;
    return t->nearby && maker->placement == op->placement
               ? &t->nearby->chosen[maker->id]->out[op->in[i]->out]
               : NULL;
}

/* Whether a signature takes operands as the program says that they are: on each dimension one of
 * them is split, or is whole and may be cut. */
static bool suits_program(const tsri_strategy_table *t, const tsri_op *op,
                          const tsri_nd_signature *sig)
{
    const int ndim = tsr_placement_ndim(op->placement);
    unsigned suits = 0;
    for (int i = 0; i < op->nin; i++) {
        const tsri_op *maker = op->in[i]->op;
        const tsr_sbp said = tsri_strategies_hint(t, maker);
        for (int d = 0; d < ndim && said.ndim && maker->placement == op->placement; d++)
            suits |= (unsigned)(said.d[d].kind == TSR_SBP_BROADCAST ||
                                same_entry(said.d[d], sig->in[i].d[d]))
                     << d;
    }
    return suits == (1u << ndim) - 1;
}

/* The signature in which an answer has the first reader of result i take it, likewise. */
static const tsr_sbp *reader_takes(const tsri_strategy_table *t, const tsri_op *op, int i)
{
    const tsri_op *reader = t->nearby ? t->nearby->reader[op->out[i]->id] : NULL;
    for (int j = 0; reader && j < reader->nin && reader->placement == op->placement; j++)
        if (reader->in[j] == op->out[i])
            return &t->nearby->chosen[reader->id]->in[j];
    return NULL;
}

/* How a signature suits the neighbours: NEAR where it takes all operands as their makers leave
 * them, or leaves all results as their first readers take them. was: the answer's; NULL: none. */
static worth suits_neighbours(const tsri_strategy_table *t, const tsri_op *op,
                              const tsri_nd_signature *sig, const tsri_nd_signature *was)
{
    const int ndim = tsr_placement_ndim(op->placement);
    int takes = 0, leaves = 0;
    unsigned suits = 0;
    for (int d = 0; d < ndim; d++)
        if (tsr_placement_dim(op->placement, d) == 1 || (was && same_on(op, sig, d, was, d)))
            suits |= 1u << d;
    for (int i = 0; i < op->nin; i++) {
        const tsr_sbp *given = maker_gives(t, op, i);
        takes += given && tsr_sbp_equal(*given, sig->in[i]);
        for (int d = 0; d < ndim && given; d++)
            suits |= (unsigned)same_entry(given->d[d], sig->in[i].d[d]) << d;
    }
    for (int i = 0; i < op->nout; i++) {
        const tsr_sbp *taken = reader_takes(t, op, i);
        leaves += taken && tsr_sbp_equal(*taken, sig->out[i]);
        for (int d = 0; d < ndim && taken; d++)
            suits |= (unsigned)same_entry(taken->d[d], sig->out[i].d[d]) << d;
    }
    return (takes && takes == op->nin) || (leaves && leaves == op->nout) ? NEAR
           : suits == (1u << ndim) - 1                                   ? SUITS_EACH
           : suits_program(t, op, sig)                                   ? SUITS_SAID
           : takes || leaves                                             ? SUITS_ONE
                                                                         : OF_MORE;
}

static void raise_worth(candidate *c, worth w)
{
    c->worth = w < c->worth ? w : c->worth;
}

/* Whether two ops of one class have the same signature by an answer, or, before there is one,
 * operands of which the program says the same. */
static bool centres_equal(const tsri_strategy_table *t, const tsri_op *a, const tsri_op *b)
{
    if (t->nearby)
        return !memcmp(t->nearby->chosen[a->id], t->nearby->chosen[b->id],
                       sizeof **t->nearby->chosen);
    bool same = true;
    for (int i = 0; i < a->nin && same; i++)
        same = tsr_sbp_equal(tsri_strategies_hint(t, a->in[i]->op),
                             tsri_strategies_hint(t, b->in[i]->op));
    return same;
}

/* Raises the worth of what suits the first few ops that share the list and differ in what they
 * have. */
static void mark_near(const tsri_strategy_table *t, const tsri_op *op, const tsri_strategies *s,
                      candidate *list)
{
    enum { MOST_CENTRES = 4 };
    const tsri_nearby *near = t->nearby;
    const tsri_op *centre[MOST_CENTRES];
    int ncentres = 0;
    for (int i = 0; t->g && i < t->g->nops && ncentres < MOST_CENTRES; i++) {
        const tsri_op *other = t->g->ops[i];
        bool known = (near && !near->live[i]) || !tsri_strategies_same(t, op, other);
        for (int c = 0; c < ncentres && !known; c++)
            known = centres_equal(t, centre[c], other);
        if (known)
            continue;
        centre[ncentres++] = other;
        const tsri_nd_signature *was = near ? near->chosen[i] : NULL;
        for (int k = 0; k < s->n; k++)
            raise_worth(&list[k], was && changes_together(op, &s->sig[k], was)
                                      ? NEAR
                                      : suits_neighbours(t, other, &s->sig[k], was));
    }
}

/* Whether sig is what the program holds the op's result to. */
static bool is_pinned(const tsri_strategy_table *t, const tsri_op *op, const tsri_nd_signature *sig)
{
    const tsri_pin *pin = t->g ? &t->g->pin : NULL;
    return pin && pin->tensor && tsri_strategies_same(t, op, pin->tensor->op) &&
           tsr_sbp_equal(sig->out[pin->tensor->out], pin->sbp);
}

static tsr_status prune_more(tsri_strategy_table *t, const tsri_op *op, const tsri_op_work *work,
                             const tsri_rule *rule, int most, tsri_strategies *s)
{
    size_t n = (size_t)s->n;
    bool *drop = tsri_pool_alloc(t->pool, n * sizeof *drop);
    candidate *list = tsri_pool_alloc(t->pool, n * sizeof *list);
    TSRI_NEED(drop && list);
    for (int i = 0; i < s->n; i++) {
        int kinds = count_kinds(op, &s->sig[i]);
        worth w = kinds < 2                            ? ALIKE
                  : leaves_empty(op, rule, &s->sig[i]) ? LEAVES_EMPTY
                  : kinds == 2                         ? OF_TWO
                                                       : OF_MORE;
        list[i] = (candidate){i == 0 || is_pinned(t, op, &s->sig[i]) ? NEAR : w,
                              tsri_strategy_seconds(t, op, work, &s->sig[i]), i};
    }
    mark_near(t, op, s, list);
    qsort(list, n, sizeof *list, by_worth);
    for (int i = 0, others = 0; i < s->n; i++)
        drop[list[i].index] = list[i].worth > ALIKE && others++ >= most;
    s->n = keep(s->sig, s->n, drop);
    return TSR_OK;
}

tsr_status tsri_strategies_prune(tsri_strategy_table *t, const tsri_op *op,
                                 const tsri_op_work *work, const tsri_rule *rule,
                                 tsri_strategies *s)
{
    bool two = tsr_placement_ndim(op->placement) <= 2;
    int most = two ? MOST_OF_TWO : t->most;
    if (s->n <= most)
        return TSR_OK;
    t->pruned = true;
    t->refines |= !two;
    return two ? prune_two(t, op, work, rule, s) : prune_more(t, op, work, rule, most, s);
}
