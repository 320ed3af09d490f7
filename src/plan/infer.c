/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inference: states the choice of signatures for the whole step as a search problem (sbp/search.h)
 * and takes its answer. Nodes are ops with their legal signatures and compute times; edges are
 * conversions. A tensor with several readers gets a node of its own, whose strategies are the
 * signature it is made in and one further that is made once and shared; so sharing is priced.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sbp/search.h"
#include "src/plan/plan.h"

/* Signatures of one tensor, numbered: S(0).., B, P(sum), P(max), P(min). */
enum { MAX_CODES = TSR_MAX_NDIM + 4 };

static int code_of(tsr_sbp1 s, int ndim)
{
    return s.kind == TSR_SBP_SPLIT ? s.arg : s.kind == TSR_SBP_BROADCAST ? ndim : ndim + 1 + s.arg;
}

static tsr_sbp1 sbp_of(int code, int ndim)
{
    if (code < ndim)
        return (tsr_sbp1){TSR_SBP_SPLIT, (int8_t)code};
    if (code == ndim)
        return (tsr_sbp1){TSR_SBP_BROADCAST, 0};
    return (tsr_sbp1){TSR_SBP_PARTIAL, (int8_t)(code - ndim - 1)};
}

typedef struct strategies {
    int n;
    tsri_signature *sig;
    float *cost;
    int groups_index; /* the rule's index g, or -2 */
} strategies;

/* A reader of a tensor: operand `arg` of an op, or an output (op -1, its one signature). */
typedef struct reader {
    struct reader *next;
    int op, arg, node;
    tsr_sbp1 sbp;
} reader;

typedef struct problem {
    tsr_graph *g;
    const tsri_cost_model *m;
    tsri_pool *pool;
    tsri_inferred *out;
    strategies *strat; /* per op */
    int *node_of;      /* per op */
    reader **readers;  /* per tensor */
    tsri_search_node *nodes;
    int nnodes, cnodes;
    tsri_search_edge *edges;
    int nedges, cedges;
} problem;

static tsr_status no_memory(void)
{
    return TSR_ERR_NO_MEMORY;
}

/* --- live ops -----------------------------------------------------------------------------------
 */
static tsr_status mark_live(problem *p)
{
    tsr_graph *g = p->g;
    bool *live = p->out->live = tsri_pool_alloc(p->pool, (size_t)g->nops + 1);
    if (!live)
        return no_memory();
    for (int i = 0; i < g->nports; i++)
        live[g->ports[i].tensor->op->id] = true;
    for (int i = g->nops; i-- > 0;) {
        tsri_op *op = g->ops[i];
        for (int j = 0; j < op->nout && j < 4; j++)
            live[i] |= op->writes[j] != NULL;
        for (int j = 0; j < op->nin && live[i]; j++)
            live[op->in[j]->op->id] = true;
    }
    return TSR_OK;
}

/* --- strategies of one op
 * ------------------------------------------------------------------------- */
static double local_count(const tsr_tensor *t, tsr_sbp1 s, int k)
{
    double n = (double)tsr_dims_count(t->shape);
    if (s.kind != TSR_SBP_SPLIT || t->shape.d[s.arg] == 0)
        return n;
    int64_t size = t->shape.d[s.arg];
    return n / (double)size * (double)((size + k - 1) / k);
}

/* Seconds of an op in a signature, on the rank with the largest part. */
static float compute_cost(const problem *p, const tsri_op *op, const tsri_signature *sig, int k)
{
    double bytes = 0, whole = 0, local = 0;
    for (int i = 0; i < op->nin; i++)
        bytes += local_count(op->in[i], sig->in[i], k) * (double)tsr_dtype_size(op->in[i]->dtype);
    for (int i = 0; i < op->nout; i++) {
        const tsr_tensor *t = op->out[i];
        bytes += local_count(t, sig->out[i], k) * (double)tsr_dtype_size(t->dtype);
        whole += (double)tsr_dims_count(t->shape);
        local += local_count(t, sig->out[i], k);
    }
    const tsri_op_def *def = tsri_op_def_of(op->kind);
    double flops = def && def->flops ? def->flops(op) : whole;
    /* A split divides the work: by the outputs' shrinking, or (a reduced index) the operands'. */
    double share = whole > 0 ? local / whole : 1;
    for (int i = 0; i < op->nin && sig->index >= 0; i++)
        if (sig->in[i].kind == TSR_SBP_SPLIT && tsr_dims_count(op->in[i]->shape)) {
            double s =
                local_count(op->in[i], sig->in[i], k) / (double)tsr_dims_count(op->in[i]->shape);
            share = s < share ? s : share;
        }
    double compute = flops * share / p->m->flops_per_s, memory = bytes / p->m->local_bytes_per_s;
    return (float)(p->m->kernel_s + (compute > memory ? compute : memory));
}

static tsr_status one_strategy(problem *p, strategies *s)
{
    s->n = 1;
    s->sig = tsri_pool_alloc(p->pool, sizeof *s->sig);
    s->cost = tsri_pool_alloc(p->pool, sizeof *s->cost);
    return s->sig && s->cost ? TSR_OK : no_memory();
}

/* Ops whose signature is the user's word. */
static tsr_status fixed_strategy(problem *p, const tsri_op *op, strategies *s)
{
    TSRI_TRY(one_strategy(p, s));
    tsr_sbp1 sbp = op->kind == TSRI_OP_VARIABLE ? op->variable->sbp.d[0] : op->sbp.d[0];
    s->sig->index = -1;
    s->sig->in[0] = s->sig->out[0] = sbp;
    return TSR_OK;
}

/* Whether a signature respects the user's hint and the variables that the op writes in place. */
static bool allowed(const tsri_op *op, const tsri_signature *sig)
{
    if (tsr_placement_nranks(op->placement) == 1)
        return true; /* all signatures are one */
    for (int i = 0; i < op->nout; i++) {
        tsr_sbp1 want = {0};
        if (op->sbp.ndim)
            want = op->sbp.d[0];
        if (i < 4 && op->writes[i])
            want = op->writes[i]->sbp.d[0];
        if (want.kind && !tsri_sbp1_equal(want, sig->out[i]))
            return false;
        if (op->out[i]->dtype == TSR_BOOL && sig->out[i].kind == TSR_SBP_PARTIAL &&
            sig->out[i].arg == TSR_REDUCE_SUM)
            return false;
    }
    return true;
}

static tsr_status no_signature(const tsri_op *op, const tsri_signature *sig, int n)
{
    char list[1024], text[TSR_SBP_TEXT_MAX];
    size_t at = 0;
    list[0] = 0;
    for (int i = 0; i < n && at + 80 < sizeof list; i++) {
        at += (size_t)snprintf(list + at, sizeof list - at, i ? "; " : "");
        for (int j = 0; j < op->nout; j++)
            at += (size_t)snprintf(list + at, sizeof list - at, j ? ",%s" : "%s",
                                   tsr_sbp_format((tsr_sbp){1, {sig[i].out[j]}}, text));
    }
    const char *what = "the asked-for signature";
    tsr_sbp want = op->sbp;
    for (int i = 0; i < op->nout && i < 4; i++)
        if (op->writes[i]) {
            what = "the signature of the variable that it updates";
            want = op->writes[i]->sbp;
        }
    return tsri_fail_at(op->loc, TSR_ERR_SBP, "%s %s: %s, %s, is not legal; its results can be: %s",
                        tsri_op_name(op->kind), op->name, what, tsr_sbp_format(want, text), list);
}

static tsr_status derived_strategies(problem *p, const tsri_op *op, strategies *s)
{
    const tsri_op_def *def = tsri_op_def_of(op->kind);
    if (!def || !def->rule)
        return tsri_fail_at(op->loc, TSR_ERR_INTERNAL, "%s has no rule", tsri_op_name(op->kind));
    tsri_rule_text text = {0};
    tsr_dims in[TSRI_RULE_MAX_ARGS], out[TSRI_RULE_MAX_ARGS];
    for (int i = 0; i < op->nin; i++)
        in[i] = op->in[i]->shape;
    for (int i = 0; i < op->nout; i++)
        out[i] = op->out[i]->shape;
    int k = tsr_placement_nranks(op->placement), n;
    tsri_rule *rule;
    tsri_signature *sig;
    TSRI_TRY(def->rule(op, &text));
    tsr_status status = tsri_rule_bind(p->pool, text.text, op->nin, in, op->nout, out, text.nsizes,
                                       text.sizes, &rule);
    if (status == TSR_OK)
        status = tsri_rule_derive(p->pool, rule, k, &n, &sig);
    if (status != TSR_OK)
        return tsri_fail_prefix(status, "%s:%d: %s %s", tsri_basename(op->loc.file), op->loc.line,
                                tsri_op_name(op->kind), op->name);
    bool extra = text.extra_parts == k && k > 1;
    s->sig = tsri_pool_alloc(p->pool, (size_t)(n + 1) * sizeof *s->sig);
    s->cost = tsri_pool_alloc(p->pool, (size_t)(n + 1) * sizeof *s->cost);
    if (!s->sig || !s->cost)
        return no_memory();
    if (extra) {
        tsri_signature *more = tsri_pool_alloc(p->pool, (size_t)(n + 1) * sizeof *more);
        if (!more)
            return no_memory();
        memcpy(more, sig, (size_t)n * sizeof *more);
        more[n].index = 0;
        memcpy(more[n].in, text.extra_in, sizeof more[n].in);
        memcpy(more[n].out, text.extra_out, sizeof more[n].out);
        sig = more;
        n++;
    }
    s->groups_index = tsri_rule_find_index(rule, "g");
    for (int i = 0; i < n; i++)
        if (allowed(op, &sig[i])) {
            s->sig[s->n] = sig[i];
            s->cost[s->n++] = compute_cost(p, op, &sig[i], k);
        }
    return s->n ? TSR_OK : no_signature(op, sig, n);
}

static tsr_status add_node(problem *p, int nstrat, const float *cost, int *out_node)
{
    if (!TSRI_PUSH(p->pool, p->nodes, p->nnodes, p->cnodes))
        return no_memory();
    p->nodes[p->nnodes] = (tsri_search_node){.nstrat = nstrat, .cost = cost};
    *out_node = p->nnodes++;
    return TSR_OK;
}

static tsr_status list_strategies(problem *p)
{
    tsr_graph *g = p->g;
    p->strat = tsri_pool_alloc(p->pool, (size_t)(g->nops + 1) * sizeof *p->strat);
    p->node_of = tsri_pool_alloc(p->pool, (size_t)(g->nops + 1) * sizeof *p->node_of);
    p->readers = tsri_pool_alloc(p->pool, (size_t)(g->ntensors + 1) * sizeof *p->readers);
    if (!p->strat || !p->node_of || !p->readers)
        return no_memory();
    for (int i = 0; i < g->nops; i++) {
        const tsri_op *op = g->ops[i];
        strategies *s = &p->strat[i];
        if (!p->out->live[i])
            continue;
        if (tsr_placement_ndim(op->placement) != 1)
            return tsri_fail_at(op->loc, TSR_ERR_UNSUPPORTED,
                                "%s %s: placement %s has %d dimensions; this version compiles "
                                "one-dimensional placements",
                                tsri_op_name(op->kind), op->name, tsr_placement_text(op->placement),
                                tsr_placement_ndim(op->placement));
        s->groups_index = -2;
        bool fixed = op->kind == TSRI_OP_INPUT || op->kind == TSRI_OP_VARIABLE ||
                     op->kind == TSRI_OP_TO_GLOBAL;
        TSRI_TRY(fixed ? fixed_strategy(p, op, s) : derived_strategies(p, op, s));
        TSRI_TRY(add_node(p, s->n, s->cost, &p->node_of[i]));
    }
    return TSR_OK;
}

/* --- edges
 * ---------------------------------------------------------------------------------------- */
static tsr_status add_reader(problem *p, const tsr_tensor *t, reader r)
{
    reader *copy = tsri_pool_dup(p->pool, &r, sizeof r);
    if (!copy)
        return no_memory();
    reader **tail = &p->readers[t->id];
    while (*tail)
        tail = &(*tail)->next;
    *tail = copy;
    return TSR_OK;
}

static tsr_status list_readers(problem *p)
{
    tsr_graph *g = p->g;
    for (int i = 0; i < g->nops; i++)
        for (int j = 0; j < g->ops[i]->nin && p->out->live[i]; j++)
            TSRI_TRY(add_reader(p, g->ops[i]->in[j],
                                (reader){.op = i, .arg = j, .node = p->node_of[i]}));
    for (int i = 0; i < g->nports; i++) {
        const tsri_graph_port *port = &g->ports[i];
        if (port->is_input || port->is_local)
            continue;
        int node;
        float *zero = tsri_pool_alloc(p->pool, sizeof *zero);
        if (!zero)
            return no_memory();
        TSRI_TRY(add_node(p, 1, zero, &node));
        TSRI_TRY(
            add_reader(p, port->tensor, (reader){.op = -1, .node = node, .sbp = port->sbp.d[0]}));
    }
    return TSR_OK;
}

static tsr_sbp1 wanted(const problem *p, const reader *r, int strategy)
{
    return r->op < 0 ? r->sbp : p->strat[r->op].sig[strategy].in[r->arg];
}

static int nwanted(const problem *p, const reader *r)
{
    return r->op < 0 ? 1 : p->strat[r->op].n;
}

static tsr_status add_edge(problem *p, int u, int v, const float *cost)
{
    if (!TSRI_PUSH(p->pool, p->edges, p->nedges, p->cedges))
        return no_memory();
    p->edges[p->nedges++] = (tsri_search_edge){u, v, cost};
    return TSR_OK;
}

/* Conversion costs between all signatures of a tensor. */
static void fill_costs(const problem *p, const tsr_tensor *t, float cost[MAX_CODES][MAX_CODES])
{
    int nd = t->shape.ndim, n = nd + 4, k = tsr_placement_nranks(t->placement);
    double bytes = (double)tsr_dims_count(t->shape) * (double)tsr_dtype_size(t->dtype);
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++)
            cost[a][b] = (float)tsri_box_cost(p->m, sbp_of(a, nd), sbp_of(b, nd), bytes, k);
}

static tsr_status direct_edge(problem *p, const tsr_tensor *t, const reader *r,
                              float cost[MAX_CODES][MAX_CODES])
{
    const strategies *s = &p->strat[t->op->id];
    int nd = t->shape.ndim, n = nwanted(p, r);
    float *c = tsri_pool_alloc(p->pool, (size_t)s->n * (size_t)n * sizeof *c);
    if (!c)
        return no_memory();
    for (int i = 0; i < s->n; i++)
        for (int j = 0; j < n; j++)
            c[i * n + j] = cost[code_of(s->sig[i].out[t->out], nd)][code_of(wanted(p, r, j), nd)];
    return add_edge(p, p->node_of[t->op->id], r->node, c);
}

/* The node of a tensor with several readers: strategies (made in a, shared conversion to e). */
static tsr_status shared_node(problem *p, const tsr_tensor *t, float cost[MAX_CODES][MAX_CODES])
{
    const strategies *s = &p->strat[t->op->id];
    int nd = t->shape.ndim, ncodes = nd + 4, n = 0, node;
    bool made[MAX_CODES] = {0}, read[MAX_CODES] = {0};
    for (int i = 0; i < s->n; i++)
        made[code_of(s->sig[i].out[t->out], nd)] = true;
    for (const reader *r = p->readers[t->id]; r; r = r->next)
        for (int j = 0; j < nwanted(p, r); j++)
            read[code_of(wanted(p, r, j), nd)] = true;
    int a[MAX_CODES * MAX_CODES], e[MAX_CODES * MAX_CODES];
    for (int i = 0; i < ncodes; i++)
        for (int j = -1; j < ncodes && made[i]; j++)
            if (j < 0 || (read[j] && j != i)) {
                a[n] = i;
                e[n++] = j < 0 ? i : j;
            }
    float *own = tsri_pool_alloc(p->pool, (size_t)n * sizeof *own);
    float *up = tsri_pool_alloc(p->pool, (size_t)(n * s->n) * sizeof *up);
    if (!own || !up)
        return no_memory();
    for (int i = 0; i < n; i++)
        own[i] = cost[a[i]][e[i]];
    TSRI_TRY(add_node(p, n, own, &node));
    for (int i = 0; i < s->n; i++)
        for (int j = 0; j < n; j++)
            up[i * n + j] = code_of(s->sig[i].out[t->out], nd) == a[j] ? 0 : INFINITY;
    TSRI_TRY(add_edge(p, p->node_of[t->op->id], node, up));
    for (const reader *r = p->readers[t->id]; r; r = r->next) {
        int m = nwanted(p, r);
        float *c = tsri_pool_alloc(p->pool, (size_t)(n * m) * sizeof *c);
        if (!c)
            return no_memory();
        for (int i = 0; i < n; i++)
            for (int j = 0; j < m; j++) {
                int w = code_of(wanted(p, r, j), nd);
                c[i * m + j] = w == a[i] || w == e[i] ? 0 : cost[a[i]][w];
            }
        TSRI_TRY(add_edge(p, node, r->node, c));
    }
    return TSR_OK;
}

static tsr_status list_edges(problem *p)
{
    tsr_graph *g = p->g;
    for (int i = 0; i < g->ntensors; i++) {
        const tsr_tensor *t = g->tensors[i];
        const reader *r = p->readers[i];
        if (!p->out->live[t->op->id] || !r || tsr_placement_nranks(t->placement) == 1)
            continue;
        float cost[MAX_CODES][MAX_CODES];
        fill_costs(p, t, cost);
        if (r->next)
            TSRI_TRY(shared_node(p, t, cost));
        else
            TSRI_TRY(direct_edge(p, t, r, cost));
    }
    return TSR_OK;
}

/* --- the whole
 * ------------------------------------------------------------------------------------ */
static tsr_status take_choice(problem *p, const int *choice)
{
    tsr_graph *g = p->g;
    p->out->chosen = tsri_pool_alloc(p->pool, (size_t)(g->nops + 1) * sizeof *p->out->chosen);
    p->out->splits_groups = tsri_pool_alloc(p->pool, (size_t)g->nops + 1);
    if (!p->out->chosen || !p->out->splits_groups)
        return no_memory();
    for (int i = 0; i < g->nops; i++)
        if (p->out->live[i]) {
            tsri_signature *sig = &p->strat[i].sig[choice[p->node_of[i]]];
            p->out->chosen[i] = sig;
            p->out->splits_groups[i] = sig->index >= 0 && sig->index == p->strat[i].groups_index;
        }
    return TSR_OK;
}

tsr_status tsri_infer(tsr_graph *g, const tsri_cost_model *m, tsri_pool *pool,
                      tsri_inferred *out_inferred)
{
    problem p = {.g = g, .m = m, .pool = pool, .out = out_inferred};
    TSRI_TRY(mark_live(&p));
    TSRI_TRY(list_strategies(&p));
    TSRI_TRY(list_readers(&p));
    TSRI_TRY(list_edges(&p));
    int *choice = tsri_pool_alloc(pool, (size_t)(p.nnodes + 1) * sizeof *choice);
    if (!choice)
        return no_memory();
    const tsri_search_problem sp = {.nnodes = p.nnodes,
                                    .nedges = p.nedges,
                                    .nodes = p.nodes,
                                    .edges = p.edges,
                                    .mem = &g->world->mem};
    tsri_search_result result = {0};
    TSRI_TRY(tsri_search(&sp, choice, &result));
    if (isinf(result.cost))
        return tsri_fail(TSR_ERR_SBP, "no combination of legal signatures fits the hints");
    out_inferred->cost = result.cost;
    out_inferred->exact = result.exact;
    return take_choice(&p, choice);
}
