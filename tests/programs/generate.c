/* SPDX-License-Identifier: Apache-2.0 */
/* Draws a program from a seed. Values are walked on the tape while drawing, so that a draw can see
 * what it would do (the logarithm of a negative number, a gradient that nothing reaches). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"
#include "program.h"
#include "src/core/rng.h"

const pnode *gen_at(const gen *g, int node)
{
    return &g->g->node[node];
}

const tape_value *gen_value(const gen *g, int node)
{
    return tape_at(g->w.t, g->w.value[node]);
}

int gen_append(gen *g, pnode n)
{
    if (g->g->nnodes == MAX_NODES)
        return -1;
    for (int i = 0; i < n.nin; i++)
        n.opaque |= n.in[i] >= 0 && gen_at(g, n.in[i])->opaque;
    int id = g->g->nnodes++;
    n.tag = id;
    g->g->node[id] = n;
    walk_node(&g->w, id);
    return id;
}

int64_t gen_size(gen *g)
{
    static const int some[] = {1, 2, 2, 3, 3, 4, 5, 6, 7, 8};
    return rnd_chance(&g->r, 0.02) ? 0 : some[rnd_below(&g->r, 10)];
}

int64_t gen_rows(gen *g, int64_t other)
{
    return g->parts && rnd_chance(&g->r, 0.8) ? g->rows : other;
}

tsr_dims gen_dims(gen *g, int low, int high)
{
    tsr_dims d = {.ndim = low + rnd_below(&g->r, high - low + 1)};
    for (int i = 0; i < d.ndim; i++)
        d.d[i] = i ? gen_size(g) : gen_rows(g, gen_size(g));
    while (count_of(d) > 120) {
        const int axis = rnd_below(&g->r, d.ndim);
        d.d[axis] = axis == 0 && g->parts ? d.d[0] : 2;
        if (g->parts && d.ndim > 1 && axis && d.d[axis] == 2 && rnd_chance(&g->r, 0.3))
            d.d[axis] = 1;
    }
    return d;
}

tsr_sbp gen_sbp(gen *g, tsr_dims dims, int place, bool partial)
{
    tsr_sbp s = {.ndim = (int8_t)g->p->place_ndim[place]};
    static const tsr_reduce_op ops[] = {TSR_REDUCE_SUM, TSR_REDUCE_SUM, TSR_REDUCE_SUM,
                                        TSR_REDUCE_MAX, TSR_REDUCE_MIN};
    tsr_reduce_op op = ops[rnd_below(&g->r, 5)];
    if (rnd_chance(&g->r, 0.25))
        return (tsr_sbp){0};
    if (g->data_parallel && !partial && rnd_chance(&g->r, 0.9)) {
        for (int i = 0; i < s.ndim; i++)
            s.d[i] = dims.ndim && i == 0 && !g->for_variable ? (tsr_sbp1){TSR_SBP_SPLIT, 0}
                                                             : (tsr_sbp1){TSR_SBP_BROADCAST, 0};
        return s;
    }
    for (int i = 0; i < s.ndim; i++) {
        double r = rnd_in(&g->r, 0, 1);
        if (r < 0.5 && dims.ndim)
            s.d[i] = (tsr_sbp1){TSR_SBP_SPLIT,
                                (int8_t)(rnd_chance(&g->r, 0.6) ? 0 : rnd_below(&g->r, dims.ndim))};
        else if (r > 0.7 && partial)
            s.d[i] = (tsr_sbp1){TSR_SBP_PARTIAL, (int8_t)op};
        else
            s.d[i] = (tsr_sbp1){TSR_SBP_BROADCAST, 0};
    }
    return s;
}

/* --- operands --------------------------------------------------------------------------------- */
int gen_any(gen *g, tsr_dtype dtype)
{
    for (int k = 0; k < 10 && g->g->nnodes; k++) {
        int x = rnd_below(&g->r, g->g->nnodes);
        if (!dtype || gen_at(g, x)->dtype == dtype)
            return x;
    }
    return -1;
}

int gen_float(gen *g, int low, int high)
{
    int n = g->g->nnodes;
    for (int k = 0; k < 14; k++) {
        /* The latest ones more often: chains grow deep. */
        int x =
            rnd_chance(&g->r, 0.55) ? n - 1 - rnd_below(&g->r, n < 5 ? n : 5) : rnd_below(&g->r, n);
        const pnode *a = gen_at(g, x);
        if (unit_of(a->dtype) == 0 || a->shape.ndim < low || a->shape.ndim > high)
            continue;
        if (a->dtype == g->dtype || rnd_chance(&g->r, 0.5))
            return x;
    }
    return -1;
}

static int append_to_global(gen *g, int node, int place, tsr_sbp sbp)
{
    const pnode *a = gen_at(g, node);
    pnode n = {.op = op_find("to_global"),
               .nin = 1,
               .in = {node},
               .shape = a->shape,
               .dtype = a->dtype,
               .below = a->below,
               .place = place,
               .sbp = sbp,
               .var = -1};
    return gen_append(g, n);
}

int gen_on(gen *g, int node, int place)
{
    if (node < 0 || gen_at(g, node)->place == place)
        return node;
    return append_to_global(g, node, place, gen_sbp(g, gen_at(g, node)->shape, place, false));
}

static int read_var(gen *g, int var)
{
    const pvar *v = &g->p->var[var];
    pnode n = {
        .op = op_find("use"), .place = v->place, .shape = v->dims, .dtype = v->dtype, .var = var};
    return gen_append(g, n);
}

int gen_var(gen *g, tsr_dims dims, tsr_dtype dtype, int place, bool trainable)
{
    program *p = g->p;
    for (int k = 0; k < p->nvars; k++) {
        const pvar *v = &p->var[k];
        if (tsr_dims_equal(v->dims, dims) && v->dtype == dtype && v->place == place &&
            v->trainable == trainable && rnd_chance(&g->r, 0.5))
            return read_var(g, k);
    }
    if (p->nvars == MAX_VARS || unit_of(dtype) == 0)
        return -1;
    int module = rnd_below(&g->r, p->nmodules);
    for (int k = 0; k < p->nmodules && p->module_dtype[module] != dtype; k++)
        module = k;
    if (p->module_dtype[module] != dtype)
        return -1;
    pvar *v = &p->var[p->nvars];
    *v = (pvar){
        .module = module, .dims = dims, .dtype = dtype, .trainable = trainable, .place = place};
    snprintf(v->last, sizeof v->last, "p%d", p->nvars);
    snprintf(v->name, sizeof v->name, "m%d.p%d", v->module, p->nvars);
    g->for_variable = true;
    v->sbp = gen_sbp(g, dims, place, false);
    g->for_variable = false;
    v->init = trainable ? (tsr_init){.kind = TSR_INIT_UNIFORM, .a = -1, .b = 1}
                        : (tsr_init){.kind = TSR_INIT_ONES};
    int64_t n = count_of(dims);
    v->data = malloc((size_t)(n + 1) * sizeof *v->data);
    int style = rnd_below(&g->r, 3);
    v->drawn = trainable && !g->exact && rnd_chance(&g->r, 0.5);
    uint64_t key = tsri_rng_key(p->module_seed, v->name);
    for (int64_t i = 0; i < n; i++) {
        if (v->drawn) {
            v->data[i] = 2 * tsri_rng_uniform(key, 0, (uint64_t)i) - 1;
            continue;
        }
        double r = rnd_number(p->seed + 77 * (uint64_t)p->nvars, i);
        if (trainable && g->exact) {
            v->data[i] = floor(r * 5) - 2;
            continue;
        }
        v->data[i] = !trainable || style == 0 ? (floor(r * 1800) + 200) / 1024
                                              : floor(r * 3000) / 1024 - 1.5;
    }
    for (int64_t i = 0; p->special && !v->drawn && i < n; i++)
        v->data[i] = special_number(dtype, p->seed + 77 * (uint64_t)p->nvars, i, v->data[i]);
    g->w.var_v[p->nvars] = v->data;
    return read_var(g, p->nvars++);
}

int gen_leaf(gen *g, tsr_dims dims, tsr_dtype dtype, int place)
{
    pnode n = {.place = place, .shape = dims, .dtype = dtype, .var = -1};
    bool real = unit_of(dtype) != 0, wraps = dtype == TSR_I32 || dtype == TSR_U8;
    if (count_of(dims) > 260)
        return -1;
    if (real && rnd_chance(&g->r, 0.5)) {
        int id = gen_var(g, dims, dtype, place, true);
        if (id >= 0)
            return id;
    }
    n.sbp = gen_sbp(g, dims, place, false);
    n.i[0] = rnd_chance(&g->r, g->wild) && real ? 3 : g->exact ? 2 : rnd_below(&g->r, 3) == 0;
    if (dtype == TSR_F64 && rnd_chance(&g->r, 0.01))
        n.i[0] = 4;
    n.i[1] = g->p->special && real;
    int kind = rnd_below(&g->r, 10);
    if (kind == 0 && real) {
        n.op = op_find("random");
        n.i[0] = rnd_below(&g->r, 2);
        n.f[0] = -0.5;
        n.f[1] = 1.5;
    } else if (kind == 1) {
        n.op = op_find("full");
        n.f[0] = dtype == TSR_BOOL ? 1 : rnd_below(&g->r, 4);
        n.below = dtype == TSR_I64 ? (int64_t)n.f[0] + 1 : 0;
    } else if (kind == 2 && dims.ndim == 1 && dtype != TSR_BOOL) {
        n.op = op_find("arange");
        n.f[0] = rnd_below(&g->r, 3);
        n.f[1] = real ? 0.25 : 1;
        n.below = dtype == TSR_I64 ? (int64_t)n.f[0] + dims.d[0] + 1 : 0;
    } else if (kind == 3) {
        n.op = op_find("constant");
    } else if (kind <= 5) {
        n.op = op_find("from_local");
        do
            n.sbp = gen_sbp(g, dims, place, (real || wraps) && n.i[0] != 3);
        while (n.sbp.ndim == 0);
    } else {
        n.op = op_find("input");
        n.sbp = gen_sbp(g, dims, place, dtype != TSR_BOOL && n.i[0] != 3 && rnd_chance(&g->r, 0.4));
    }
    return gen_append(g, n);
}

int gen_like(gen *g, tsr_dims dims, tsr_dtype dtype, int place)
{
    for (int k = 0; k < 12; k++) {
        int x = rnd_below(&g->r, g->g->nnodes);
        const pnode *a = gen_at(g, x);
        if (a->dtype == dtype && tsr_dims_equal(a->shape, dims) && (a->place == place || k > 8))
            return gen_on(g, x, place);
    }
    if (dtype == TSR_BOOL && rnd_chance(&g->r, 0.6)) {
        int x = gen_like(g, dims, g->dtype, place), y = gen_like(g, dims, g->dtype, place);
        if (x < 0 || y < 0)
            return -1;
        pnode n = {.op = op_find("less"),
                   .nin = 2,
                   .in = {x, y},
                   .shape = dims,
                   .dtype = TSR_BOOL,
                   .place = place,
                   .var = -1};
        return gen_append(g, n);
    }
    return gen_leaf(g, dims, dtype, place);
}

int gen_ids(gen *g, tsr_dims dims, int64_t below, int place)
{
    for (int k = 0; k < 6; k++) {
        int x = rnd_below(&g->r, g->g->nnodes);
        const pnode *a = gen_at(g, x);
        if (a->dtype == TSR_I64 && tsr_dims_equal(a->shape, dims) && a->below > 0 &&
            a->below <= below)
            return gen_on(g, x, place);
    }
    pnode n = {.op = op_find(rnd_chance(&g->r, 0.7) ? "input" : "constant"),
               .place = place,
               .shape = dims,
               .dtype = TSR_I64,
               .below = below,
               .var = -1};
    n.sbp = gen_sbp(g, dims, place, false);
    return gen_append(g, n);
}

/* --- graphs ----------------------------------------------------------------------------------- */
/* Two operands may have come from different placements. With stages, ops change between them. */
static bool join_places(gen *g, pnode *n)
{
    int op_to_global = op_find("to_global"), op_gradients = op_find("gradients"),
        op_other = op_find("other_gradient");
    if (n->op == op_to_global || n->op == op_gradients || n->op == op_other)
        return true;
    /* The operands of batch norm are variables, which it writes. */
    if (g->has_stages && n->nin && n->var < 0 && n->sbp.ndim == 0 &&
        n->op != op_find("batch_norm") && rnd_chance(&g->r, 0.3))
        n->place = rnd_below(&g->r, g->p->nplaces);
    for (int i = 0; i < n->nin; i++)
        if (n->in[i] >= 0 && gen_at(g, n->in[i])->place != n->place) {
            n->in[i] = gen_on(g, n->in[i], n->place);
            if (n->in[i] < 0)
                return false;
        }
    return true;
}

static void add_sink(gen *g, sink s)
{
    if (g->g->nsinks == MAX_SINKS)
        return;
    s.after = g->g->nnodes - 1;
    g->g->sink[g->g->nsinks++] = s;
}

static void add_output(gen *g, int node)
{
    sink s = {
        .kind = rnd_chance(&g->r, 0.08) ? SINK_LOCAL : SINK_OUTPUT, .node = node, .place = -1};
    bool real = unit_of(gen_at(g, node)->dtype) != 0;
    int place = gen_at(g, node)->place;
    bool variable = gen_at(g, node)->op == op_find("use") && g->p->noptimizers;
    if (variable && g->p->optimizer[0].state.ndim && gen_at(g, node)->shape.ndim > 1 &&
        rnd_chance(&g->r, 0.6)) {
        /* As the update wants it. */
        s.kind = SINK_OUTPUT;
        s.sbp = g->p->optimizer[0].state;
        add_sink(g, s);
        return;
    }
    if (s.kind == SINK_OUTPUT && rnd_chance(&g->r, 0.2))
        s.place = place = rnd_below(&g->r, g->p->nplaces);
    if (s.kind == SINK_OUTPUT && rnd_chance(&g->r, 0.5))
        s.sbp = gen_sbp(g, gen_at(g, node)->shape, place, real && rnd_chance(&g->r, 0.3));
    add_sink(g, s);
}

/* A scalar of a node; -1. */
static int to_scalar(gen *g, int x)
{
    const pnode *a = gen_at(g, x);
    if (a->shape.ndim == 0)
        return x;
    pnode n = {.op = op_find(count_of(a->shape) && rnd_chance(&g->r, 0.5) ? "mean" : "sum"),
               .nin = 1,
               .in = {x},
               .dtype = a->dtype,
               .place = a->place,
               .var = -1};
    return gen_append(g, n);
}

/* Appends the product of a node with itself; -1. */
static int append_square(gen *g, int x)
{
    const pnode *a = gen_at(g, x);
    pnode n = {.op = op_find("mul"),
               .nin = 2,
               .in = {x, x},
               .shape = a->shape,
               .dtype = a->dtype,
               .place = a->place,
               .var = -1};
    return gen_append(g, n);
}

/* Gradients of a sum over y, or over its square, by those of the nodes x that it depends on; shown,
 * so that whatever joins the steps between must leave them. */
static void append_gradients(gen *g, int y, int nx, const int *x)
{
    pnode n = {.op = op_find("gradients"), .nin = 1, .opaque = true, .var = -1};
    if (gen_at(g, y)->opaque || !gen_value(g, y)->diff || g->g->nnodes > MAX_NODES - 16)
        return;
    y = rnd_chance(&g->r, 0.5) ? y : append_square(g, y);
    n.in[0] = y = y < 0 ? -1 : to_scalar(g, y);
    if (y < 0)
        return;
    tape_backward(g->w.t, g->w.value[y]);
    for (int i = 0; i < nx && n.nin < 4; i++)
        if (x[i] >= 0 && gen_value(g, x[i])->diff && gen_value(g, x[i])->reached)
            n.in[n.nin++] = x[i];
    if (n.nin < 2)
        return;
    n.shape = gen_at(g, n.in[1])->shape;
    n.dtype = gen_at(g, n.in[1])->dtype;
    n.place = gen_at(g, n.in[1])->place;
    y = gen_append(g, n);
    if (y >= 0)
        add_output(g, y);
}

static bool draw_node(gen *g, int total)
{
    int pick = rnd_below(&g->r, total), op = 0;
    while (pick >= op_at(op)->weight)
        pick -= op_at(op++)->weight;
    pnode n = {.op = op, .var = -1};
    if (g->g->nnodes > MAX_NODES - 16 || !op_at(op)->draw(g, &n) || !join_places(g, &n) ||
        count_of(n.shape) > 260)
        return false;
    int id = gen_append(g, n);
    if (id >= 0 && gen_value(g, id)->n != count_of(n.shape)) {
        fprintf(stderr, "%s: %lld elements, drawn %lld\n", op_at(op)->name,
                (long long)gen_value(g, id)->n, (long long)count_of(n.shape));
        abort();
    }
    /* Lowering joins batch norm and an activation; other ops may read either. */
    if (id >= 0 && op == op_find("batch_norm") && rnd_chance(&g->r, 0.6)) {
        pnode after = {.op = op_find(rnd_chance(&g->r, 0.6) ? "relu" : "relu6"),
                       .nin = 1,
                       .in = {id},
                       .shape = n.shape,
                       .dtype = n.dtype,
                       .place = n.place,
                       .var = -1};
        int y = gen_append(g, after);
        if (y >= 0 && rnd_chance(&g->r, 0.8))
            append_gradients(g, y, 2, (int[]){id, n.in[0]});
    } else if (id >= 0 && unit_of(n.dtype) && rnd_chance(&g->r, 0.08)) {
        append_gradients(g, id, n.nin, n.in);
    }
    return id >= 0;
}

static bool is_read(const gen *g, int node)
{
    for (int i = node + 1; i < g->g->nnodes; i++)
        for (int k = 0; k < gen_at(g, i)->nin; k++)
            if (gen_at(g, i)->in[k] == node)
                return true;
    return false;
}

/* A node that gradients flow to, most often the end of a chain; -1. */
static int some_end(gen *g)
{
    for (int k = 0; k < 20; k++) {
        int x = k == 0 && rnd_chance(&g->r, 0.3) ? g->layers
                : k < 10                         ? rnd_below(&g->r, g->g->nnodes)
                                                 : gen_float(g, 0, 5);
        if (x < 0 || gen_at(g, x)->opaque || !gen_value(g, x)->diff || (k < 8 && is_read(g, x)))
            continue;
        return x;
    }
    return -1;
}

int gen_loss(gen *g)
{
    int sum = -1;
    for (int k = 1 + rnd_below(&g->r, 4); k > 0; k--) {
        int x = some_end(g);
        if (x < 0 || (sum >= 0 && gen_at(g, x)->dtype != gen_at(g, sum)->dtype))
            continue;
        /* One that is infinite, or as steep, would leave nothing to compare. */
        tape_backward(g->w.t, g->w.value[x]);
        bool fine = true;
        for (int v = 0; v < g->p->nvars; v++)
            for (int64_t i = 0; g->w.reads[v] >= 0 && i < tape_at(g->w.t, g->w.reads[v])->n; i++)
                fine &= fabs(tape_at(g->w.t, g->w.reads[v])->g[i]) < 1e3 || g->p->special;
        if (!fine && !rnd_chance(&g->r, g->wild))
            continue;
        x = to_scalar(g, x);
        if (x >= 0 && sum >= 0) {
            int place = gen_at(g, sum)->place;
            x = gen_on(g, x, place);
            pnode n = {.op = op_find(rnd_chance(&g->r, 0.8) ? "add" : "sub"),
                       .nin = 2,
                       .in = {sum, x},
                       .dtype = gen_at(g, sum)->dtype,
                       .place = place,
                       .var = -1};
            x = x < 0 ? -1 : gen_append(g, n);
        }
        if (x < 0)
            return -1;
        sum = x;
    }
    return sum;
}

static void add_minimize(gen *g, int optimizer)
{
    for (int k = 0; k < 4 && g->g->nnodes < MAX_NODES - 20; k++) {
        int loss = gen_loss(g);
        if (loss < 0)
            continue;
        bool any = false;
        tape_backward(g->w.t, g->w.value[loss]);
        for (int v = 0; v < g->p->nvars; v++)
            any |= g->w.reads[v] >= 0 && oracle_owns(g->p, optimizer, v) &&
                   !oracle_freezes(g->p, optimizer, v) && tape_at(g->w.t, g->w.reads[v])->reached;
        if (any) {
            add_sink(g, (sink){.kind = SINK_MINIMIZE, .node = loss, .optimizer = optimizer});
            return;
        }
    }
}

/* Gives a variable the value of some node like it. */
static void add_assign(gen *g)
{
    int var = g->p->nvars ? rnd_below(&g->r, g->p->nvars) : 0, fits[MAX_NODES], n = 0;
    for (int i = 0; i < g->g->nnodes && g->p->nvars; i++)
        if (tsr_dims_equal(gen_at(g, i)->shape, g->p->var[var].dims) &&
            gen_at(g, i)->dtype == g->p->var[var].dtype &&
            !(gen_at(g, i)->op == op_find("use") && gen_at(g, i)->var == var))
            fits[n++] = i;
    if (n)
        add_sink(g, (sink){.kind = SINK_ASSIGN, .node = fits[rnd_below(&g->r, n)], .var = var});
}

/* Reads a variable behind what updates it so far. */
static void append_updated(gen *g)
{
    if (!g->p->nvars || g->g->nnodes > MAX_NODES - 16)
        return;
    int var = rnd_below(&g->r, g->p->nvars);
    for (int k = 0; k < g->g->nsinks; k++)
        if (g->g->sink[k].kind == SINK_ASSIGN && rnd_chance(&g->r, 0.5))
            var = g->g->sink[k].var;
    const pvar *v = &g->p->var[var];
    gen_append(g, (pnode){.op = op_find("updated"),
                          .place = v->place,
                          .shape = v->dims,
                          .dtype = v->dtype,
                          .var = var});
}

/* Splits the first axis of x over some dimensions of its placement, so that gradients are summed
 * over others than those of the layer before. */
static int turn(gen *g, int x)
{
    tsr_sbp s = {.ndim = (int8_t)g->p->place_ndim[gen_at(g, x)->place]};
    for (int i = 0; i < s.ndim; i++)
        s.d[i] = (tsr_sbp1){rnd_chance(&g->r, 0.5) ? TSR_SBP_SPLIT : TSR_SBP_BROADCAST, 0};
    return append_to_global(g, x, gen_at(g, x)->place, s);
}

/* A small network of parameters of its own: gradients for buckets. */
static void append_layers(gen *g)
{
    int place = rnd_below(&g->r, g->p->nplaces), count = 2 + rnd_below(&g->r, 4);
    int64_t width = 1 + rnd_below(&g->r, 4);
    bool data_parallel = g->data_parallel;
    int x = gen_leaf(g, TSR_DIMS(gen_rows(g, 2 + rnd_below(&g->r, 7)), width), g->dtype, place);
    g->data_parallel |= rnd_chance(&g->r, 0.5);
    for (int k = 0; k < count && x >= 0; k++) {
        int64_t next = 1 + rnd_below(&g->r, 5);
        if (g->p->place_ndim[place] > 1 && rnd_chance(&g->r, 0.7))
            x = turn(g, x);
        if (x < 0)
            break;
        pnode n = {.op = op_find("linear"),
                   .nin = 3,
                   .in = {x, gen_var(g, TSR_DIMS(next, width), g->dtype, place, true),
                          gen_var(g, TSR_DIMS(next), g->dtype, place, true)},
                   .shape = TSR_DIMS(gen_at(g, x)->shape.d[0], next),
                   .dtype = g->dtype,
                   .place = place,
                   .var = -1};
        x = n.in[1] < 0 || gen_at(g, x)->dtype != g->dtype ? -1 : gen_append(g, n);
        width = next;
    }
    g->data_parallel = data_parallel;
    g->layers = x;
}

/* Half of the programs have all fusions, a fifth none; the others have one alone, or lack one. */
static unsigned no_fusion(rnd *r)
{
    const unsigned all = TSR_FUSE_ACTIVATIONS | TSR_FUSE_SOFTMAX | TSR_FUSE_CHAINS |
                         TSR_FUSE_UPDATES | TSR_FUSE_ROWS | TSR_FUSE_POOLS | TSR_FUSE_KEPT;
    const unsigned one = (unsigned)TSR_FUSE_ACTIVATIONS << rnd_below(r, 7);
    const int way = rnd_below(r, 10);
    return way < 5 ? 0 : way < 7 ? TSR_FUSE_ANYTHING : way < 9 ? all & ~one : one;
}

void gen_graph(gen *g, int which, int nops)
{
    static const double buckets[] = {4, 0, 1e-4, 4e-4};
    g->graph = which;
    g->g = &g->p->graph[which];
    *g->g = (pgraph){.training = rnd_chance(&g->r, which ? 0.4 : 0.8),
                     .seed = rnd_next(&g->r) >> 40,
                     .bucket_mb = buckets[rnd_below(&g->r, 4)],
                     .no_fusion = no_fusion(&g->r),
                     .free_links = rnd_chance(&g->r, 0.45)};
    if (rnd_chance(&g->r, 0.15))
        g->g->memory_limit = (size_t)2000 << rnd_below(&g->r, 5);
    tape_clear(g->w.t);
    walk_start(&g->w, g->p, g->g, g->w.t);
    for (int v = 0; v < g->p->nvars; v++)
        g->w.var_v[v] = g->p->var[v].data;
    int total = 0;
    for (int i = 0; op_at(i); i++)
        total += op_at(i)->weight;
    /* The first node is what tsr_use goes by. */
    pnode first = {.op = op_find("input"),
                   .i = {g->exact ? 2 : 0, g->p->special},
                   .shape = gen_dims(g, 1, 4),
                   .dtype = g->dtype,
                   .var = -1,
                   .place = 0};
    first.sbp = gen_sbp(g, first.shape, 0, false);
    gen_append(g, first);
    for (int k = rnd_below(&g->r, 3); k >= 0; k--)
        gen_leaf(g, gen_dims(g, 0, 4), g->dtype, rnd_below(&g->r, g->p->nplaces));
    g->layers = -1;
    if (which == 0 && g->p->noptimizers && rnd_chance(&g->r, 0.25))
        append_layers(g);
    bool minimized[MAX_OPTIMIZERS] = {0};
    for (int tries = 0, made = 0; made < nops && tries < 4 * nops + 20; tries++) {
        made += draw_node(g, total);
        if (rnd_chance(&g->r, 0.12))
            add_output(g, rnd_below(&g->r, g->g->nnodes));
        if (rnd_chance(&g->r, 0.02))
            add_assign(g);
        if (rnd_chance(&g->r, 0.02))
            append_updated(g);
        int o = rnd_below(&g->r, MAX_OPTIMIZERS);
        if (o < g->p->noptimizers && !minimized[o] && rnd_chance(&g->r, 4.0 / (nops + 4)) &&
            (which == 0 || (g->p->optimizer[o].accumulate == 1 && rnd_chance(&g->r, 0.3)))) {
            int before = g->g->nsinks;
            add_minimize(g, o);
            minimized[o] = g->g->nsinks > before;
        }
    }
    for (int o = 0; o < g->p->noptimizers && which == 0; o++)
        if (!minimized[o] && rnd_chance(&g->r, 0.8))
            add_minimize(g, o);
    if (rnd_chance(&g->r, 0.3))
        append_updated(g);
    if (rnd_chance(&g->r, 0.5))
        draw_node(g, total);
    add_output(g, g->g->nnodes - 1);
    if (rnd_chance(&g->r, 0.1))
        add_assign(g);
    for (int i = 0; i < g->g->nnodes; i++)
        if (gen_at(g, i)->op == op_find("use") && rnd_chance(&g->r, 0.1))
            add_output(g, i);
    for (int k = rnd_below(&g->r, 4); k > 0; k--)
        add_output(g, rnd_below(&g->r, g->g->nnodes));
}
