/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inference: states the choice of signatures for the whole step as a search problem
 * (sbp/search/search.h) and takes its answer. Nodes are ops with their legal signatures and compute
 * times; edges are conversions. A tensor with several readers gets a node of its own, whose
 * strategies are the signature it is made in and one further that is made once and shared; so
 * sharing is priced. A variable that is updated has an edge from its update, which is converted
 * back if need be: so parameters in B with optimizer states in S(0) reduce-scatter gradients and
 * gather updates.
 *
 * Ops of one class share their lists of strategies, and so edges between equal classes share
 * their matrices: the layers of a network cost little more than one.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/plan/infer/infer.h"

/* --- nodes and edges -------------------------------------------------------------------------- */

/* Finds each tensor's last consumer. A view's consumers count as its operand's. A tensor that is
 * computed before the micro-batches and consumed in them is needed until they end. */
static void find_last_uses(tsri_problem *p)
{
    tsr_graph *g = p->g;
    int end = 0;
    p->reads.parts_begin = 0;
    for (int i = 0; i < g->nops; i++) {
        p->reads.parts_begin += g->ops[i]->turn == TSRI_TURN_HEAD;
        end += g->ops[i]->turn != TSRI_TURN_TAIL;
    }
    for (int i = g->nops; i-- > 0;) {
        const tsri_op *op = g->ops[i];
        if (!p->out->live[i])
            continue;
        bool is_view = tsri_op_def_of(op->kind)->is_view;
        int until = i;
        if (is_view && p->reads.last_use[op->out[0]->id] > until)
            until = p->reads.last_use[op->out[0]->id];
        for (int j = 0; j < op->nin; j++) {
            const bool stays = op->turn == TSRI_TURN_PARTS && op->in[j]->op->turn == TSRI_TURN_HEAD;
            const int last = stays && until < end - 1 ? end - 1 : until;
            if (p->reads.last_use[op->in[j]->id] < last)
                p->reads.last_use[op->in[j]->id] = last;
        }
    }
}

static tsr_status list_ops(tsri_problem *p)
{
    tsr_graph *g = p->g;
    p->strat = tsri_pool_alloc(p->pool, (size_t)g->nops * sizeof *p->strat);
    p->node_of = tsri_pool_alloc(p->pool, (size_t)g->nops * sizeof *p->node_of);
    p->first = tsri_pool_alloc(p->pool, (size_t)g->nops * sizeof *p->first);
    p->memory_of = tsri_pool_alloc(p->pool, (size_t)g->nops * sizeof *p->memory_of);
    p->reads.first = tsri_pool_alloc(p->pool, (size_t)g->ntensors * sizeof *p->reads.first);
    p->reads.last = tsri_pool_alloc(p->pool, (size_t)g->ntensors * sizeof *p->reads.last);
    p->reads.last_use = tsri_pool_alloc(p->pool, (size_t)g->ntensors * sizeof *p->reads.last_use);
    TSRI_NEED(p->strat && p->node_of && p->first && p->memory_of && p->reads.first &&
              p->reads.last && p->reads.last_use);
    if (p->reads.holds) {
        p->reads.shared = tsri_pool_alloc(p->pool, (size_t)g->ntensors * sizeof(tsri_shared *));
        p->reads.node = tsri_pool_alloc(p->pool, (size_t)g->ntensors * sizeof *p->reads.node);
        TSRI_NEED(p->reads.shared && p->reads.node);
    }
    find_last_uses(p);
    for (int i = 0; i < g->nops; i++) {
        const tsri_op *op = g->ops[i];
        if (!op->again)
            p->first[op->origin] = i;
        if (!p->out->live[i])
            continue;
        if (op->again && p->out->live[p->first[op->origin]]) {
            TSRI_TRY(tsri_share_node(p, i));
            continue;
        }
        TSRI_TRY(tsri_strategies_of(&p->table, op, &p->strat[i]));
        tsri_search_node node = {.nstrat = p->strat[i]->n, .cost = p->strat[i]->cost};
        if (g->pin.tensor && g->pin.tensor->op == op)
            TSRI_TRY(tsri_pinned_costs(p->pool, &g->pin, p->strat[i], &node.cost));
        TSRI_TRY(tsri_add_node(p, node, &p->node_of[i]));
    }
    return TSR_OK;
}

static tsr_status add_reader(tsri_problem *p, const tsr_tensor *t, int node, const tsri_side *want,
                             double share, bool in_parts)
{
    const tsri_reader r = {.node = node, .want = want, .share = share, .in_parts = in_parts};
    tsri_reader *copy = tsri_pool_dup(p->pool, &r, sizeof r);
    TSRI_NEED(copy);
    tsri_reader **last = &p->reads.last[t->id];
    *(*last ? &(*last)->next : &p->reads.first[t->id]) = copy;
    *last = copy;
    return TSR_OK;
}

/* An output reads its tensor in one signature. */
static tsr_status add_output(tsri_problem *p, const tsri_graph_port *port)
{
    tsri_side *want = tsri_pool_alloc(p->pool, sizeof *want);
    float *zero = tsri_pool_alloc(p->pool, sizeof *zero);
    tsr_sbp sbp = tsri_sbp_canonical(port->placement, port->sbp);
    int node;
    if (!want || !zero || !(want->of = tsri_pool_alloc(p->pool, sizeof *want->of)) ||
        !(want->list = tsri_intern_list(p, &sbp, 1)))
        return TSR_ERR_NO_MEMORY;
    want->placement = port->placement;
    want->added = true;
    want->n = 1;
    TSRI_TRY(tsri_add_node(p, (tsri_search_node){.nstrat = 1, .cost = zero}, &node));
    return add_reader(p, port->tensor, node, want, 0, false);
}

/* The op that reads the variable which takes a result when the run ends; NULL: none does. */
static const tsri_op *reader_of_written(const tsri_problem *p, const tsr_tensor *result)
{
    if (!result->writes || result->superseded)
        return NULL;
    const tsr_tensor *read = tsri_graph_find_read(p->g, result->writes);
    return read && p->out->live[read->op->id] ? read->op : NULL;
}

static tsr_status list_readers(tsri_problem *p)
{
    tsr_graph *g = p->g;
    for (int i = 0; i < g->nops; i++) {
        const tsri_op *op = g->ops[i];
        tsri_sides *all;
        if (!p->out->live[i])
            continue;
        TSRI_TRY(tsri_sides_of(p, p->strat[i], &all));
        for (int j = 0; j < op->nin; j++)
            if (!tsri_reads_with_first(p, op, j))
                TSRI_TRY(add_reader(p, op->in[j], p->node_of[i], &all->in[j],
                                    p->out->gradient[op->in[j]->id].share,
                                    op->turn == TSRI_TURN_PARTS));
        for (int j = 0; j < op->nout; j++) {
            const tsri_op *var = reader_of_written(p, op->out[j]);
            const tsri_side *kept;
            if (!var)
                continue;
            TSRI_TRY(tsri_made_side(p, var->out[0], &kept));
            TSRI_TRY(tsri_conversion_edge(p, op->out[j], tsri_op_every(op), p->node_of[i],
                                          &all->out[j], p->node_of[var->id], kept,
                                          p->out->bucket[i].share));
        }
    }
    for (int i = 0; i < g->nports; i++)
        if (!g->ports[i].is_input && !g->ports[i].is_local)
            TSRI_TRY(add_output(p, &g->ports[i]));
    return TSR_OK;
}

/* When the results of ops take memory: those with a relay until that takes over. */
static tsr_status set_lifetimes(tsri_problem *p)
{
    tsr_graph *g = p->g;
    for (int i = 0; i < g->nops; i++) {
        const tsri_op *op = g->ops[i];
        bool is_view = tsri_op_def_of(op->kind)->is_view;
        if (!p->out->live[i] || op->out[0]->writes || is_view)
            continue;
        const bool shares = op->again && p->memory_of[i];
        tsri_search_node *node = &p->nodes[shares ? p->memory_of[i] : p->node_of[i]];
        bool kept = tsri_is_kept(op->out[0]);
        node->usage = p->strat[i]->usage;
        TSRI_TRY(tsri_copied_usage(p, op->out[0], p->strat[i]->n, &node->usage));
        node->first = kept ? 0 : tsri_op_def_of(op->kind)->collects ? p->reads.parts_begin : i;
        node->last = kept ? g->nops : i;
        for (int j = 0; j < op->nout; j++) {
            const tsri_reader *r = p->reads.first[op->out[j]->id];
            int last = p->reads.last_use[op->out[j]->id];
            if (r && !r->next && last > node->last)
                node->last = last;
        }
        const int window = tsri_window(p, op->out[0]->placement);
        node->first += window;
        node->last += window;
    }
    return TSR_OK;
}

static tsr_status list_edges(tsri_problem *p)
{
    tsr_graph *g = p->g;
    for (int i = 0; i < g->ntensors; i++) {
        const tsr_tensor *t = g->tensors[i];
        const tsri_reader *r = p->reads.first[i];
        const tsri_side *made;
        if (!p->out->live[t->op->id] || !r)
            continue;
        TSRI_TRY(tsri_made_side(p, t, &made));
        if (r->next)
            TSRI_TRY(tsri_add_shared(p, t, made));
        else
            TSRI_TRY(tsri_conversion_edge(p, t, tsri_tensor_every(t), p->node_of[t->op->id], made,
                                          r->node, r->want, r->share));
    }
    return TSR_OK;
}

/* Adds the memory of conversions that stay for all micro-batches. */
static tsr_status list_held(tsri_problem *p)
{
    const int before = p->nedges;
    for (int i = 0; i < p->g->ntensors && p->reads.holds; i++) {
        const tsr_tensor *t = p->g->tensors[i];
        const tsri_side *made;
        tsri_having h;
        if (!p->out->live[t->op->id] || !p->reads.first[i])
            continue;
        TSRI_TRY(tsri_made_side(p, t, &made));
        const int node = p->reads.shared[i] ? p->reads.node[i] : p->node_of[t->op->id];
        TSRI_TRY(tsri_having_of(p, made, p->reads.shared[i], &h));
        for (const tsri_reader *r = p->reads.first[i]; r; r = r->next)
            if (tsri_is_held(p, t, r))
                TSRI_TRY(tsri_hold(p, t, node, &h, r));
    }
    p->reads.nties = p->nedges - before;
    return TSR_OK;
}

/* --- the answer ------------------------------------------------------------------------------- */
/* Weighs each strategy of each op with all other ops as chosen: totals[v][i]. The signatures that
 * its results are shared in by several readers follow: an op's strategy allows few of those. */
static tsr_status weigh(tsri_problem *p, const int *choice, double **totals)
{
    bool *follows = tsri_pool_alloc(p->pool, (size_t)p->nnodes * sizeof *follows);
    TSRI_NEED(follows);
    memset(follows, true, (size_t)p->nnodes * sizeof *follows);
    for (int i = 0; i < p->g->nops; i++)
        if (p->out->live[i])
            follows[p->node_of[i]] = false;
    for (int v = 0; v < p->nnodes; v++) {
        totals[v] = tsri_pool_alloc(p->pool, (size_t)p->nodes[v].nstrat * sizeof *totals[v]);
        TSRI_NEED(totals[v]);
        for (int i = 0; i < p->nodes[v].nstrat; i++)
            totals[v][i] = p->nodes[v].cost[i];
    }
    for (int e = 0; e < p->nedges - p->reads.nties; e++) {
        const tsri_search_edge *edge = &p->edges[e];
        int u = edge->u, v = edge->v, nu = p->nodes[u].nstrat, nv = p->nodes[v].nstrat;
        bool later = follows[v] && !follows[u];
        for (int i = 0; i < nu && !later; i++)
            totals[u][i] += edge->cost[i * nv + choice[v]];
        for (int j = 0; j < nv && !later; j++)
            totals[v][j] += edge->cost[choice[u] * nv + j];
    }
    for (int e = 0; e < p->nedges - p->reads.nties; e++) {
        const tsri_search_edge *edge = &p->edges[e];
        int u = edge->u, v = edge->v, nv = p->nodes[v].nstrat;
        for (int i = 0; i < p->nodes[u].nstrat && follows[v] && !follows[u]; i++) {
            double least = INFINITY;
            for (int j = 0; j < nv; j++)
                least = fmin(least, edge->cost[i * nv + j] + totals[v][j]);
            totals[u][i] += least;
        }
    }
    return TSR_OK;
}

/* The best of the strategies that were not chosen. */
static void rank_alternatives(const tsri_strategies *s, const double *total, int chosen,
                              tsri_alternatives *to)
{
    to->legal = s->n;
    for (int i = 0; i < s->n; i++) {
        double more = total[i] - total[chosen];
        if (i == chosen || isinf(more))
            continue;
        int at = to->n < TSRI_MAX_ALTERNATIVES ? to->n++ : TSRI_MAX_ALTERNATIVES;
        while (at > 0 && more < to->more_s[at - 1]) {
            if (at < TSRI_MAX_ALTERNATIVES) {
                to->more_s[at] = to->more_s[at - 1];
                to->sig[at] = to->sig[at - 1];
            }
            at--;
        }
        if (at < TSRI_MAX_ALTERNATIVES) {
            to->more_s[at] = more;
            to->sig[at] = &s->sig[i];
        }
    }
}

static tsr_status list_alternatives(tsri_problem *p, const int *choice)
{
    tsr_graph *g = p->g;
    double **totals = tsri_pool_alloc(p->pool, (size_t)p->nnodes * sizeof(double *));
    p->out->alternatives = tsri_pool_alloc(p->pool, (size_t)g->nops * sizeof *p->out->alternatives);
    TSRI_NEED(totals && p->out->alternatives);
    TSRI_TRY(weigh(p, choice, totals));
    for (int i = 0; i < g->nops; i++)
        if (p->out->live[i]) {
            int node = p->node_of[i];
            rank_alternatives(p->strat[i], totals[node], choice[node], &p->out->alternatives[i]);
        }
    return TSR_OK;
}

static tsr_status take_choice(tsri_problem *p, const int *choice)
{
    tsr_graph *g = p->g;
    tsri_inferred *out = p->out;
    size_t n = (size_t)g->nops;
    out->chosen = tsri_pool_alloc(p->pool, n * sizeof *out->chosen);
    out->groups_index = tsri_pool_alloc(p->pool, n * sizeof *out->groups_index);
    out->op_cost = tsri_pool_alloc(p->pool, n * sizeof *out->op_cost);
    TSRI_NEED(out->chosen && out->groups_index && out->op_cost);
    out->choice = choice;
    for (int i = 0; i < g->nops; i++)
        if (out->live[i]) {
            int c = choice[p->node_of[i]];
            out->chosen[i] = &p->strat[i]->sig[c];
            out->groups_index[i] = p->strat[i]->groups_index;
            out->op_cost[i] = p->strat[i]->cost[c];
        }
    return TSR_OK;
}

static tsri_search_problem search_problem_of(const tsri_problem *p, const tsri_infer_opts *opts)
{
    return (tsri_search_problem){.nnodes = p->nnodes,
                                 .nedges = p->nedges,
                                 .nodes = p->nodes,
                                 .edges = p->edges,
                                 .usage_limit = opts->memory_limit,
                                 .quick_within = opts->quick_within,
                                 .work = p->work,
                                 .mem = &p->g->world->mem};
}

/* States the problem: all that answers with and without a limit have alike. */
static tsr_status state_problem(tsri_problem *p, const tsri_infer_opts *opts)
{
    p->out = &p->alike;
    p->out->live = tsri_pool_alloc(p->pool, (size_t)p->g->nops);
    TSRI_NEED(p->out->live);
    tsri_graph_mark_live(p->g, p->out->live);
    if (!p->table.infer_updates)
        TSRI_TRY(tsri_infer_parallel(p));
    for (int i = 0; i < p->nparallel; i++)
        p->parallel_somewhere |= p->parallel[i].dims != 0;
    TSRI_TRY(list_ops(p));
    TSRI_TRY(tsri_know_lists(p));
    TSRI_TRY(tsri_infer_buckets(p, opts->bucket_bytes));
    TSRI_TRY(list_readers(p));
    TSRI_TRY(set_lifetimes(p));
    TSRI_TRY(list_edges(p));
    TSRI_TRY(list_held(p));
    const tsri_search_problem sp = search_problem_of(p, opts);
    return tsri_search_least(&sp, &p->least);
}

/* The search without a limit, which is done once. */
static tsr_status find_cheapest(tsri_problem *p)
{
    const tsri_infer_opts no_limit = {0};
    const tsri_search_problem sp = search_problem_of(p, &no_limit);
    int *choice = tsri_pool_alloc(p->pool, (size_t)p->nnodes * sizeof *choice);
    TSRI_NEED(choice);
    TSRI_TRY(tsri_search(&sp, choice, &p->shared.result));
    p->shared.choice = choice;
    return TSR_OK;
}

/* The nodes with INFINITY for what is not pinned. */
static tsr_status pin_nodes(tsri_problem *p, const tsr_sbp *pinned, const tsri_search_node **out)
{
    size_t bytes = (size_t)p->nnodes * sizeof *p->nodes;
    tsri_search_node *nodes = tsri_pool_dup(p->pool, p->nodes, bytes);
    TSRI_NEED(nodes);
    for (int i = 0; i < p->g->nops; i++)
        if (p->alike.live[i] && pinned[i].ndim) {
            const tsri_pin pin = {.tensor = p->g->ops[i]->out[0], .sbp = pinned[i]};
            TSRI_TRY(tsri_pinned_costs(p->pool, &pin, p->strat[i], &nodes[p->node_of[i]].cost));
        }
    *out = nodes;
    return TSR_OK;
}

static tsr_status solve_pinned(tsri_problem *p, const tsri_infer_opts *opts, int *choice,
                               tsri_search_result *result)
{
    tsri_search_problem sp = search_problem_of(p, opts);
    TSRI_TRY(pin_nodes(p, opts->pinned, &sp.nodes));
    return tsri_search(&sp, choice, result);
}

static tsr_status solve(tsri_problem *p, const tsri_infer_opts *opts, int *choice)
{
    const tsri_search_problem sp = search_problem_of(p, opts);
    tsri_search_result result = {0};
    p->out->least = p->least;
    p->out->fits = !sp.usage_limit || p->least <= sp.usage_limit;
    if (!p->out->fits)
        return TSR_OK;
    if (!p->shared.choice && !opts->pinned)
        TSRI_TRY(find_cheapest(p));
    TSRI_TRY(opts->pinned ? solve_pinned(p, opts, choice, &result)
                          : tsri_search_within(&sp, &p->shared, choice, &result));
    p->out->fits =
        (!sp.usage_limit || result.peak <= sp.usage_limit) && !(opts->pinned && isinf(result.cost));
    if (!p->out->fits)
        return TSR_OK;
    p->out->peak = result.peak;
    p->out->cost = result.cost;
    p->out->exact = result.exact && !p->table.pruned;
    return TSR_OK;
}

static tsr_status answer(tsri_problem *p, const tsri_infer_opts *opts, tsri_inferred *out)
{
    *out = p->alike;
    out->problem = p;
    p->out = out;
    int *choice = tsri_pool_alloc(p->pool, (size_t)p->nnodes * sizeof *choice);
    TSRI_NEED(choice);
    TSRI_TRY(solve(p, opts, choice));
    if (!out->fits || isinf(out->cost))
        return TSR_OK;
    TSRI_TRY(take_choice(p, choice));
    return opts->alternatives ? list_alternatives(p, choice) : TSR_OK;
}

const tsri_nd_signature *tsri_infer_signatures(const tsri_inferred *inferred, int op, int *out_n)
{
    const tsri_strategies *s = inferred->problem->strat[op];
    *out_n = s->n;
    return s->sig;
}

double tsri_infer_bound(const tsri_inferred *inferred)
{
    const tsri_problem *p = inferred->problem;
    return p->table.pruned ? 0 : p->shared.result.bound;
}

/* Whether the program says that some result is a partial sum. */
static bool says_sums(const tsr_graph *g)
{
    for (int i = 0; i < g->nops; i++)
        for (int d = 0; d < g->ops[i]->sbp.ndim; d++)
            if (g->ops[i]->sbp.d[d].kind == TSR_SBP_PARTIAL)
                return true;
    return false;
}

tsr_status tsri_infer_take(const tsri_inferred *from, int *choice, bool alternatives,
                           tsri_inferred *out_inferred)
{
    tsri_problem *p = from->problem;
    const tsri_infer_opts opts = {0};
    const tsri_search_problem sp = search_problem_of(p, &opts);
    *out_inferred = p->alike;
    out_inferred->problem = p;
    out_inferred->relaxed = from->relaxed;
    out_inferred->fits = true;
    out_inferred->least = p->least;
    out_inferred->cost = tsri_search_cost(&sp, choice);
    p->out = out_inferred;
    TSRI_TRY(tsri_search_peak(p->pool, &sp, choice, &out_inferred->peak));
    TSRI_TRY(take_choice(p, choice));
    return alternatives ? list_alternatives(p, choice) : TSR_OK;
}

/* How many signatures an op on more than two dimensions may have: the fewer ops a graph has the
 * more, up to most of those of a product on four. Lists are made anew around an answer, which then
 * costs as little as with longer ones, but not always. */
static int most_signatures(const tsr_graph *g, const tsri_infer_opts *opts)
{
    enum { SMALL = 64, MOST_OF_SMALL = 256, MOST_OF_ALL = 1024 };
    const int n = SMALL * MOST_OF_SMALL / (g->nops + 1);
    return opts->most_signatures ? opts->most_signatures
           : g->nops > SMALL     ? TSRI_MOST_SIGNATURES
           : n > MOST_OF_ALL     ? MOST_OF_ALL
           : n < MOST_OF_SMALL   ? MOST_OF_SMALL
                                 : n;
}

tsr_status tsri_make_problem(tsri_inference *inference, const tsri_infer_opts *opts,
                             bool infer_updates, bool fill_zeros, const tsri_nearby *nearby,
                             tsri_problem **out)
{
    tsri_pool *pool = inference->pool;
    tsri_problem *p = tsri_pool_alloc(pool, sizeof *p);
    TSRI_NEED(p);
    p->g = inference->g;
    p->m = &inference->model;
    p->pool = p->shared.pool = pool;
    p->work = inference->work;
    p->fill_zeros = fill_zeros;
    p->reads.holds = inference->holds;
    if (inference->is_limited)
        TSRI_TRY(tsri_find_copies(p, inference->pipeline, inference->parts));
    p->known = &inference->known;
    p->table = (tsri_strategy_table){.pool = pool,
                                     .model = &inference->model,
                                     .infer_updates = infer_updates,
                                     .most = most_signatures(inference->g, opts),
                                     .nearby = nearby,
                                     .g = inference->g};
    TSRI_TRY(state_problem(p, opts));
    *out = p;
    return TSR_OK;
}

/* Where lists on more than two dimensions were cut, makes them anew around the cheapest answer, for
 * as long as that makes it cheaper. */
static tsr_status refine(tsri_inference *inference, const tsri_infer_opts *opts, tsri_problem **p)
{
    enum { MOST_ROUNDS = 6 };
    static const double worth_a_round = 1e-4;
    bool gains = (*p)->table.refines;
    for (int round = 0; round < MOST_ROUNDS && gains; round++) {
        if (round > 0 && inference->work && *inference->work <= 0)
            break;
        tsri_problem *was = *p, *next;
        tsri_nearby *nearby;
        if (!was->shared.choice)
            TSRI_TRY(find_cheapest(was));
        const double cost = was->shared.result.cost;
        if (isinf(cost))
            break;
        TSRI_TRY(tsri_find_nearby(was, &nearby));
        TSRI_TRY(tsri_make_problem(inference, opts, was->table.infer_updates, was->fill_zeros,
                                   nearby, &next));
        TSRI_TRY(find_cheapest(next));
        gains = next->shared.result.cost < cost * (1 - worth_a_round);
        if (next->shared.result.cost < cost)
            *p = next;
    }
    return TSR_OK;
}

static tsr_status find_problem(tsri_inference *inference, const tsri_infer_opts *opts,
                               bool infer_updates, bool fill_zeros, tsri_problem **out)
{
    tsri_problem **known = &inference->problem[infer_updates + fill_zeros];
    if (!*known) {
        tsri_problem *p;
        TSRI_TRY(tsri_make_problem(inference, opts, infer_updates, fill_zeros, NULL, &p));
        TSRI_TRY(refine(inference, opts, &p));
        *known = p;
    }
    *out = *known;
    return TSR_OK;
}

tsr_status tsri_infer(tsri_inference *inference, const tsri_infer_opts *opts,
                      tsri_inferred *out_inferred)
{
    bool parallel = false, done = false;
    /* Again without data parallelism, where a program or its memory has no way to be so, and then
     * with addends of zeros wherever rules allow them, as sums that are said may ask for. */
    for (int again = 0; again < 3 && !done; again++) {
        tsri_problem *p;
        if ((again == 1 && !parallel) || (again == 2 && !says_sums(inference->g)))
            continue;
        TSRI_TRY(find_problem(inference, opts, opts->infer_updates || again > 0, again > 1, &p));
        TSRI_TRY(answer(p, opts, out_inferred));
        parallel = p->parallel_somewhere;
        out_inferred->relaxed = again > 0;
        done = out_inferred->fits && !isinf(out_inferred->cost);
    }
    if (out_inferred->fits && isinf(out_inferred->cost))
        return tsri_fail(TSR_ERR_SBP, "no combination of legal signatures fits the hints");
    return TSR_OK;
}
