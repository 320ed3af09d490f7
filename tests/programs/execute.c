/* SPDX-License-Identifier: Apache-2.0 */
/* A program through the public API, on each rank: declare, compile, feed, run, read everything. */
#include "execute.h"
#include "oracle.h"

#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/graph/graph.h"
#include "src/optim/optim.h"

typedef struct job {
    declared d;
    run_log *log;
    rank_log *mine;
    int rank;
    tsr_optimizer *optimizer[MAX_OPTIMIZERS];
    tsr_grad_scaler *scaler;
    tsr_graph *graph[MAX_GRAPHS];
    tsr_plan *plan[MAX_GRAPHS];
} job;

#define STEP(call)                       \
    do {                                 \
        tsr_status step_status = (call); \
        if (step_status != TSR_OK)       \
            return step_status;          \
    } while (0)

static tsr_status fail_at(job *j, tsr_status status, const char *where)
{
    j->mine->status = status;
    snprintf(j->mine->where, sizeof j->mine->where, "%s", where);
    snprintf(j->mine->text, sizeof j->mine->text, "%s", tsr_last_error());
    return status;
}

static item *add_item(job *j)
{
    rank_log *m = j->mine;
    if (m->nitems == m->citems) {
        m->citems = m->citems ? 2 * m->citems : 64;
        m->items = realloc(m->items, (size_t)m->citems * sizeof *m->items);
    }
    item *it = &m->items[m->nitems++];
    *it = (item){0};
    return it;
}

static void describe_place(item *it, const tsr_placement *p)
{
    it->ndim = tsr_placement_ndim(p);
    it->nranks = tsr_placement_nranks(p);
    for (int i = 0; i < it->ndim; i++)
        it->dim[i] = tsr_placement_dim(p, i);
    for (int i = 0; i < it->nranks; i++)
        it->ranks[i] = tsr_placement_rank(p, i);
}

/* --- numbers in and out ----------------------------------------------------------------------- */
/* A bf16: the upper half of an f32. */
static double wide(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static double load(const void *from, tsr_dtype dtype, int64_t i)
{
    return dtype == TSR_F64    ? ((const double *)from)[i]
           : dtype == TSR_F32  ? (double)((const float *)from)[i]
           : dtype == TSR_I64  ? (double)((const int64_t *)from)[i]
           : dtype == TSR_I32  ? (double)((const int32_t *)from)[i]
           : dtype == TSR_BF16 ? wide(((const uint16_t *)from)[i])
                               : (double)((const uint8_t *)from)[i];
}

enum { MAX_BYTES = 400 * 8 };

static void keep(item *it, tsr_dtype dtype, tsr_dims dims, const void *data)
{
    it->here = true;
    it->dims = dims;
    it->n = count_of(dims);
    it->v = malloc((size_t)(it->n + 1) * sizeof *it->v);
    for (int64_t i = 0; i < it->n; i++)
        it->v[i] = load(data, dtype, i);
}

bool shard_of(tsr_dims dims, const item *at, int rank, int64_t first[TSR_MAX_NDIM], tsr_dims *out)
{
    int place = -1;
    for (int i = 0; i < at->nranks; i++)
        if (at->ranks[i] == rank)
            place = i;
    if (place < 0)
        return false;
    int coord[4];
    for (int k = at->ndim - 1; k >= 0; k--) {
        coord[k] = place % at->dim[k];
        place /= at->dim[k];
    }
    *out = dims;
    for (int i = 0; i < dims.ndim; i++)
        first[i] = 0;
    for (int k = 0; k < at->ndim; k++) {
        if (at->sbp.d[k].kind != TSR_SBP_SPLIT)
            continue;
        int axis = at->sbp.d[k].arg;
        int64_t n = out->d[axis], more = n % at->dim[k], each = n / at->dim[k];
        first[axis] += coord[k] * each + (coord[k] < more ? coord[k] : more);
        out->d[axis] = each + (coord[k] < more);
    }
    return true;
}

/* --- declaring -------------------------------------------------------------------------------- */
static tsr_optimizer *make_optimizer(tsr_module *m, const poptimizer *o)
{
    const double lr = o->lr, decay = o->weight_decay;
    switch (o->kind) {
    case OPT_SGD:
        return tsr_sgd(m, TSR_SGD_OPTS(.lr = lr, .momentum = o->momentum, .dampening = o->dampening,
                                       .weight_decay = decay, .nesterov = o->nesterov,
                                       .schedule = o->schedule, .state = o->state));
    case OPT_RMSPROP:
        return tsr_rmsprop(m, TSR_RMSPROP_OPTS(.lr = lr, .momentum = o->momentum,
                                               .centered = o->centered, .alpha = o->alpha,
                                               .weight_decay = decay, .schedule = o->schedule,
                                               .state = o->state));
    case OPT_ADAGRAD:
        return tsr_adagrad(m, TSR_ADAGRAD_OPTS(.lr = lr, .lr_decay = o->lr_decay,
                                               .initial_accumulator_value = o->start, .eps = o->eps,
                                               .weight_decay = decay, .schedule = o->schedule,
                                               .state = o->state));
    case OPT_LION:
        return tsr_lion(m, TSR_LION_OPTS(.lr = lr, .weight_decay = decay, .schedule = o->schedule,
                                         .state = o->state));
    default:
        return (o->kind == OPT_ADAM ? tsr_adam : tsr_adamw)(
            m, TSR_ADAM_OPTS(.lr = lr, .weight_decay = decay, .schedule = o->schedule,
                             .state = o->state));
    }
}

/* The group of an optimizer, and what is frozen. */
static tsr_status set_apart(job *j, int optimizer)
{
    const poptimizer *o = &j->d.p->optimizer[optimizer];
    char pattern[16];
    if (oracle_owns_in(j->d.p, optimizer, o->group)) {
        snprintf(pattern, sizeof pattern, "m%d.*", o->group);
        tsr_status status = tsr_optimizer_param_group(
            j->optimizer[optimizer], pattern,
            TSR_PARAM_GROUP_OPTS(.lr = o->group_lr, .weight_decay = o->group_decay));
        if (status != TSR_OK)
            return status;
    }
    snprintf(pattern, sizeof pattern, "m%d.*", o->frozen);
    return oracle_owns_in(j->d.p, optimizer, o->frozen)
               ? tsr_optimizer_freeze(j->optimizer[optimizer], pattern, true)
               : TSR_OK;
}

static tsr_status make_modules(job *j)
{
    declared *d = &j->d;
    const program *p = d->p;
    for (int i = 0; i < p->nplaces; i++) {
        d->place[i] = tsr_placement_parse(d->world, p->place[i]);
        if (!d->place[i])
            return fail_at(j, TSR_ERR_INVALID, "placement");
    }
    tsr_nn_opts opts = {.placement = d->place[0], .seed = p->module_seed};
    d->root = tsr_module_create(d->world, &opts, NULL, NULL, NULL);
    for (int i = 0; i < p->nmodules; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", i);
        opts.dtype = p->module_dtype[i];
        d->module[i] =
            tsr_module_add(d->root, name, tsr_module_create(d->world, &opts, NULL, NULL, NULL));
    }
    for (int i = 0; i < p->nvars; i++) {
        const pvar *v = &p->var[i];
        tsr_variable *var = (v->trainable ? tsr_module_param : tsr_module_buffer)(
            d->module[v->module], v->last, v->dims, v->place ? TSR_AUTO : v->sbp, v->init);
        if (!var)
            return fail_at(j, TSR_ERR_INVALID, "variable");
        if (v->place && tsr_module_place(d->root, v->name, d->place[v->place], v->sbp) != TSR_OK)
            return fail_at(j, TSR_ERR_INVALID, "place");
    }
    if (p->init_scale > 0)
        j->scaler = tsr_grad_scaler_create(
            d->world, TSR_GRAD_SCALER_OPTS(.init_scale = p->init_scale,
                                           .growth_interval = p->growth_interval));
    for (int i = 0; i < p->noptimizers; i++) {
        const poptimizer *o = &p->optimizer[i];
        tsr_module *m = o->module < 0 ? d->root : d->module[o->module];
        j->optimizer[i] = make_optimizer(m, o);
        if (j->optimizer[i] && set_apart(j, i) != TSR_OK)
            return fail_at(j, TSR_ERR_INVALID, "optimizer");
    }
    return TSR_OK;
}

static tsr_status set_var(job *j, int var, const double *data)
{
    const pvar *v = &j->d.p->var[var];
    char bytes[MAX_BYTES];
    for (int64_t i = 0; i < count_of(v->dims); i++)
        store_number(bytes, v->dtype, i, data[i]);
    tsr_variable *to = tsr_module_find(j->d.root, v->name);
    tsr_status status =
        tsr_variable_set(to, bytes, (size_t)count_of(v->dims) * tsr_dtype_size(v->dtype));
    return status == TSR_OK ? TSR_OK : fail_at(j, status, "tsr_variable_set");
}

/* The loss times an input that is 1, or infinite. */
static tsr_tensor *scaled_loss(tsr_graph *g, int optimizer, tsr_dtype dtype, tsr_tensor *loss)
{
    char name[16];
    snprintf(name, sizeof name, "factor%d", optimizer);
    return tsr_mul(loss,
                   tsr_input(g, name, dtype, TSR_SCALAR, tsr_tensor_placement(loss), TSR_AUTO));
}

static void minimize(tsr_optimizer *opt, const poptimizer *o, tsr_grad_scaler *scaler,
                     tsr_tensor *loss)
{
    if (o->scaled || o->clip_norm > 0 || o->clip_value > 0 || o->loss_scale != 1 ||
        o->accumulate > 1)
        tsr_minimize_with(
            opt, 1, &loss,
            TSR_MINIMIZE_OPTS(.clip_norm = o->clip_norm, .norm_type = o->norm_type,
                              .clip_value = o->clip_value, .loss_scale = o->loss_scale,
                              .accumulate = o->accumulate, .scaler = o->scaled ? scaler : NULL));
    else
        tsr_minimize(opt, loss);
}

static void add_sinks(job *j, int graph, int after)
{
    declared *d = &j->d;
    for (int i = 0; i < d->g->nsinks; i++) {
        const sink *s = &d->g->sink[i];
        char name[16];
        if (s->after != after)
            continue;
        snprintf(name, sizeof name, "y%d", i);
        tsr_tensor *x = d->tensor[s->node];
        if (s->kind == SINK_OUTPUT)
            tsr_output(j->graph[graph], name, x, s->place < 0 ? NULL : d->place[s->place], s->sbp);
        else if (s->kind == SINK_LOCAL)
            tsr_to_local(j->graph[graph], name, x);
        else if (s->kind == SINK_ASSIGN)
            tsr_assign(tsr_module_find(d->root, d->p->var[s->var].name),
                       tsr_cast(x, d->p->var[s->var].dtype));
        else if (j->optimizer[s->optimizer])
            minimize(j->optimizer[s->optimizer], &d->p->optimizer[s->optimizer], j->scaler,
                     d->p->optimizer[s->optimizer].scaled
                         ? scaled_loss(j->graph[graph], s->optimizer, d->g->node[s->node].dtype, x)
                         : x);
    }
}

static tsr_status declare(job *j, int graph)
{
    declared *d = &j->d;
    d->g = &d->p->graph[graph];
    j->graph[graph] = d->graph = tsr_graph_create(
        d->world, TSR_GRAPH_OPTS(.training = d->g->training, .seed = d->g->seed,
                                 .autocast = d->p->autocast ? TSR_BF16 : TSR_DTYPE_NONE));
    for (int i = 0; i < d->g->nnodes; i++) {
        const pnode *n = &d->g->node[i];
        tsr_tensor *in[MAX_OPERANDS];
        if (d->p->recompute && i % d->p->recompute == 0) {
            if (i)
                tsr_recompute_end(d->graph);
            tsr_recompute(d->graph);
        }
        for (int k = 0; k < n->nin; k++)
            in[k] = n->in[k] < 0 ? NULL : d->tensor[n->in[k]];
        tsr_tensor *t = d->tensor[i] = op_at(n->op)->declare(d, n, in);
        if (!tsr_tensor_ok(t)) {
            tsr_status status = tsr_graph_status(d->graph);
            /* Some ops say that they have no gradient; that counts as a refusal. */
            j->mine->refused = status == TSR_ERR_UNSUPPORTED;
            return fail_at(j, status == TSR_OK ? TSR_ERR_INTERNAL : status, op_at(n->op)->name);
        }
        const bool is_low = d->p->autocast && tsr_tensor_dtype(t) == TSR_BF16;
        if (!tsr_dims_equal(tsr_tensor_dims(t), n->shape) ||
            (tsr_tensor_dtype(t) != n->dtype && !is_low)) {
            tsr_set_error(TSR_ERR_SHAPE, "t%d has another shape or dtype than it should", i);
            return fail_at(j, TSR_ERR_INTERNAL, op_at(n->op)->name);
        }
        add_sinks(j, graph, i);
        tsr_status status = tsr_graph_status(d->graph);
        if (status != TSR_OK)
            return fail_at(j, status, "outputs and updates");
    }
    for (int i = 0; j->rank == 0 && i < d->graph->nops; i++)
        j->log->nops[d->graph->ops[i]->kind]++;
    return TSR_OK;
}

static tsr_status compile(job *j, int graph)
{
    STEP(declare(j, graph));
    const pgraph *g = j->d.g;
    tsr_compile_opts opts = *TSR_COMPILE_OPTS(.bucket_mb = g->bucket_mb, .no_fusion = g->no_fusion,
                                              .memory_limit = g->memory_limit);
    if (g->free_links) {
        opts.nlinks = 1;
        opts.link[0] = (tsr_link){.latency_s = 1e-12, .bytes_per_s = 1e15};
        opts.flops_per_s = 1e3;
    }
    opts.microbatches = g->microbatches > 1 ? g->microbatches : 1;
    opts.pipeline = j->d.p->gpipe ? TSR_PIPELINE_GPIPE : TSR_PIPELINE_1F1B;
    tsr_status status = tsr_compile_with(j->graph[graph], &opts, &j->plan[graph]);
    while (status != TSR_OK && execute_asks_less(j->mine, status, &opts))
        status = tsr_compile_with(j->graph[graph], &opts, &j->plan[graph]);
    if (status != TSR_OK) {
        j->mine->refused = true;
        return fail_at(j, status, "tsr_compile");
    }
    j->mine->plans_in_parts += opts.microbatches > 1;
    return TSR_OK;
}

/* --- running ---------------------------------------------------------------------------------- */
/* This rank's part of an input that is fed per rank: a shard; where B, only the first rank of a
 * group has the value, the others garbage; where P, addends of it. */
static tsr_status feed_part(job *j, int graph, const pnode *n, const char *name, uint64_t seed)
{
    item at = {.sbp = n->sbp};
    int64_t first[TSR_MAX_NDIM];
    tsr_dims part;
    describe_place(&at, j->d.place[n->place]);
    if (!shard_of(n->shape, &at, j->rank, first, &part))
        return TSR_OK;
    int place = 0, coord[4], partial = -1;
    while (at.ranks[place] != j->rank)
        place++;
    bool follower = false, addend = false;
    for (int k = at.ndim - 1; k >= 0; k--) {
        coord[k] = place % at.dim[k];
        place /= at.dim[k];
        follower |= n->sbp.d[k].kind == TSR_SBP_BROADCAST && coord[k];
        if (n->sbp.d[k].kind == TSR_SBP_PARTIAL) {
            partial = n->sbp.d[k].arg;
            addend |= coord[k] != 0;
        }
    }
    /* Other addends: each a number of its coordinates that the first one takes away again. */
    const bool wraps = n->dtype == TSR_I32 || n->dtype == TSR_U8;
    const double each = wraps ? 1234567891 : 0.25, mine = addend ? each : 0;
    double others = 0;
    for (int k = 0, members = 1; k < at.ndim; k++)
        if (n->sbp.d[k].kind == TSR_SBP_PARTIAL) {
            members *= at.dim[k];
            others = each * (members - 1);
        }
    char bytes[MAX_BYTES];
    for (int64_t i = 0; i < count_of(part); i++) {
        int64_t rest = i, index = 0, stride = 1;
        for (int k = part.ndim - 1; k >= 0; k--) {
            index += (first[k] + rest % part.d[k]) * stride;
            rest /= part.d[k];
            stride *= n->shape.d[k];
        }
        double v = input_number(n, seed, index);
        if (follower && partial < 0)
            v = 77 - v;
        else if (partial == TSR_REDUCE_SUM && n->i[1] && !(fabs(v) > 1e-30 && fabs(v) < 1e30))
            v = addend ? -0.0 : v; /* whose sum is v, also where that is -0 or NaN */
        else if (partial == TSR_REDUCE_SUM)
            v = addend ? mine : v - others;
        else if (partial == TSR_REDUCE_MAX)
            v -= addend && !wraps;
        else if (partial == TSR_REDUCE_MIN)
            v += addend && !wraps;
        store_number(bytes, n->dtype, i, v);
    }
    tsr_status status = tsr_feed_shard(j->plan[graph], name, bytes,
                                       (size_t)count_of(part) * tsr_dtype_size(n->dtype));
    return status == TSR_OK ? TSR_OK : fail_at(j, status, "tsr_feed_shard");
}

/* The factor of each scaled loss. */
static tsr_status feed_factors(job *j, int graph, unsigned overflow)
{
    const program *p = j->d.p;
    for (int i = 0; i < p->graph[graph].nsinks; i++) {
        const sink *s = &p->graph[graph].sink[i];
        if (s->kind != SINK_MINIMIZE || !p->optimizer[s->optimizer].scaled ||
            !j->optimizer[s->optimizer])
            continue;
        char name[16], bytes[8];
        const tsr_dtype dtype = p->graph[graph].node[s->node].dtype;
        snprintf(name, sizeof name, "factor%d", s->optimizer);
        store_number(bytes, dtype, 0, overflow >> s->optimizer & 1 ? INFINITY : 1);
        tsr_status status = tsr_feed(j->plan[graph], name, bytes, tsr_dtype_size(dtype));
        if (status != TSR_OK)
            return fail_at(j, status, "tsr_feed");
    }
    return TSR_OK;
}

static tsr_status feed(job *j, int graph, uint64_t seed)
{
    const pgraph *g = &j->d.p->graph[graph];
    int op_input = op_find("input"), op_local = op_find("from_local");
    for (int i = 0; i < g->nnodes; i++) {
        const pnode *n = &g->node[i];
        if (n->op != op_input && n->op != op_local)
            continue;
        char name[16], bytes[MAX_BYTES];
        snprintf(name, sizeof name, "x%d", n->tag);
        if (n->op == op_local) {
            STEP(feed_part(j, graph, n, name, seed));
            continue;
        }
        for (int64_t k = 0; k < count_of(n->shape); k++)
            store_number(bytes, n->dtype, k, input_number(n, seed, k));
        tsr_status status = tsr_feed(j->plan[graph], name, bytes,
                                     (size_t)count_of(n->shape) * tsr_dtype_size(n->dtype));
        if (status != TSR_OK)
            return fail_at(j, status, "tsr_feed");
    }
    return TSR_OK;
}

static tsr_status fetch(job *j, int graph)
{
    const pgraph *g = &j->d.p->graph[graph];
    tsr_plan *plan = j->plan[graph];
    for (int i = 0; i < g->nsinks; i++) {
        if (g->sink[i].kind > SINK_LOCAL)
            continue;
        char name[16], bytes[MAX_BYTES];
        snprintf(name, sizeof name, "y%d", i);
        int at = 0;
        while (at < tsr_plan_nports(plan) &&
               (tsr_plan_port(plan, at).is_input || strcmp(tsr_plan_port(plan, at).name, name)))
            at++;
        tsr_port port = tsr_plan_port(plan, at);
        item *it = add_item(j);
        it->sbp = port.sbp;
        describe_place(it, port.placement);
        if (tsr_placement_find(port.placement, j->rank) < 0)
            continue;
        tsr_dims shard;
        size_t size = (size_t)count_of(port.shard) * tsr_dtype_size(port.dtype);
        tsr_status status = tsr_fetch_shard(plan, name, bytes, size, &shard);
        if (status != TSR_OK)
            return fail_at(j, status, "tsr_fetch_shard");
        keep(it, port.dtype, shard, bytes);
    }
    return TSR_OK;
}

/* One whole variable; all ranks call it, and the first and last keep what they get. */
static tsr_status read_variable(job *j, tsr_variable *v)
{
    char bytes[MAX_BYTES];
    tsr_dims dims = tsr_variable_dims(v);
    tsr_status status =
        tsr_variable_get(v, bytes, (size_t)count_of(dims) * tsr_dtype_size(tsr_variable_dtype(v)));
    if (status != TSR_OK)
        return fail_at(j, status, "tsr_variable_get");
    item *it = add_item(j);
    if (j->rank == 0 || j->rank == j->d.p->nranks - 1)
        keep(it, tsr_variable_dtype(v), dims, bytes);
    return TSR_OK;
}

static tsr_status read_variables(job *j)
{
    const program *p = j->d.p;
    for (int i = 0; i < p->nvars; i++)
        STEP(read_variable(j, tsr_module_find(j->d.root, p->var[i].name)));
    return TSR_OK;
}

static tsr_status read_states(job *j)
{
    const program *p = j->d.p;
    for (int o = 0; o < p->noptimizers; o++) {
        const tsr_optimizer *opt = j->optimizer[o];
        for (int k = 0; opt && k < opt->nslots; k++)
            for (int s = 0; s < TSRI_UPDATE_STATES; s++) {
                tsr_variable *v = opt->slots[k].state[s];
                if (!v)
                    continue;
                if (v->ready)
                    STEP(read_variable(j, v));
                else
                    add_item(j);
            }
    }
    return TSR_OK;
}

/* A checkpoint of the program's modules and optimizers, or of another module with the same names.
 */
static tsr_status open_checkpoint(job *j, tsr_module *root, bool optimizers, tsr_checkpoint **c)
{
    const program *p = j->d.p;
    const tsr_checkpoint_opts *opts = TSR_CHECKPOINT_OPTS(.async = p->nvars % 2 != 0);
    STEP(tsr_checkpoint_create(j->d.world, j->log->folder, opts, c));
    STEP(tsr_checkpoint_add_module(*c, "model", root));
    for (int o = 0; o < p->noptimizers && optimizers; o++) {
        char name[16];
        snprintf(name, sizeof name, "o%d", o);
        if (j->optimizer[o])
            STEP(tsr_checkpoint_add_optimizer(*c, name, j->optimizer[o]));
    }
    return TSR_OK;
}

/* What a checkpoint is to bring back: other values, states and rates. */
static tsr_status scramble(job *j)
{
    const program *p = j->d.p;
    const double zeros[400] = {0};
    for (int i = 0; i < p->nvars; i++)
        STEP(set_var(j, i, zeros));
    for (int o = 0; o < p->noptimizers; o++) {
        const tsr_optimizer *opt = j->optimizer[o];
        if (opt)
            tsr_optimizer_set_lr(j->optimizer[o], 1e3);
        for (int k = 0; opt && k < opt->nslots; k++)
            for (int s = 0; s < TSRI_UPDATE_STATES; s++) {
                tsr_variable *v = opt->slots[k].state[s];
                const size_t bytes =
                    v ? (size_t)tsr_dims_count(v->shape) * tsr_dtype_size(v->dtype) : 0;
                if (v && v->ready)
                    STEP(tsr_variable_set(v, zeros, bytes));
            }
        for (int k = 0; opt && k < opt->nslots; k++) {
            tsr_variable *v = opt->slots[k].gradient;
            if (v && v->ready)
                STEP(tsr_variable_set(v, zeros,
                                      (size_t)tsr_dims_count(v->shape) * tsr_dtype_size(v->dtype)));
        }
    }
    return TSR_OK;
}

/* Saves all, changes all, and loads it back; then the other modules get their values, too. */
static tsr_status keep_checkpoint(job *j, tsr_module *other)
{
    tsr_checkpoint *c;
    int64_t step;
    STEP(open_checkpoint(j, j->d.root, true, &c));
    STEP(tsr_checkpoint_save(c, 7, NAN));
    STEP(tsr_checkpoint_wait(c));
    STEP(scramble(j));
    STEP(tsr_checkpoint_load(c, NULL, &step));
    tsr_checkpoint_destroy(c);
    STEP(open_checkpoint(j, other, false, &c));
    STEP(tsr_checkpoint_load(c, NULL, &step));
    tsr_checkpoint_destroy(c);
    return step == 7 ? TSR_OK : tsr_set_error(TSR_ERR_INTERNAL, "step %d", (int)step);
}

static tsr_status save_and_load(job *j)
{
    const program *p = j->d.p;
    tsr_status status = tsr_save(j->d.root, j->log->path);
    if (status != TSR_OK)
        return fail_at(j, status, "tsr_save");
    /* Into variables of the same names in other signatures. */
    declared *d = &j->d, other = *d;
    tsr_nn_opts opts = {.placement = tsr_placement_parse(d->world, "cpu"), .sbp = TSR_B};
    other.root = tsr_module_create(d->world, &opts, NULL, NULL, NULL);
    for (int i = 0; i < p->nmodules; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", i);
        opts.dtype = p->module_dtype[i];
        other.module[i] =
            tsr_module_add(other.root, name, tsr_module_create(d->world, &opts, NULL, NULL, NULL));
    }
    for (int i = 0; i < p->nvars; i++) {
        const pvar *v = &p->var[i];
        tsr_sbp sbp = v->dims.ndim && i % 2 ? TSR_S(i % v->dims.ndim) : TSR_B;
        tsr_module_param(other.module[v->module], v->last, v->dims, sbp, v->init);
    }
    status = tsr_load(other.root, j->log->path, NULL);
    if (status != TSR_OK)
        return fail_at(j, status, "tsr_load");
    for (int i = 0; i < p->nvars; i++)
        STEP(read_variable(j, tsr_module_find(other.root, p->var[i].name)));
    status = keep_checkpoint(j, other.root);
    if (status != TSR_OK)
        return fail_at(j, status, "a checkpoint");
    for (int i = 0; i < p->nvars; i++)
        STEP(read_variable(j, tsr_module_find(other.root, p->var[i].name)));
    STEP(read_variables(j));
    return read_states(j);
}

static tsr_status run_act(job *j, const act *a)
{
    const program *p = j->d.p;
    double data[400];
    tsr_status status;
    switch (a->kind) {
    case ACT_RUN:
        if (!j->plan[a->graph])
            STEP(compile(j, a->graph));
        STEP(feed(j, a->graph, a->seed));
        STEP(feed_factors(j, a->graph, a->overflow));
        status = tsr_run(j->plan[a->graph]);
        if (status != TSR_OK)
            return fail_at(j, status, "tsr_run");
        STEP(fetch(j, a->graph));
        STEP(read_variables(j));
        return read_states(j);
    case ACT_SET:
        for (int64_t i = 0; i < count_of(p->var[a->var].dims); i++)
            data[i] = (floor(rnd_number(a->seed, i) * 1800) + 200) / 1024;
        return set_var(j, a->var, data);
    case ACT_SET_LR:
        tsr_optimizer_set_lr(j->optimizer[a->optimizer], a->lr);
        return TSR_OK;
    case ACT_SAVE_LOAD:
        return save_and_load(j);
    }
    return TSR_OK;
}

static tsr_status rank_main(tsr_world *world, void *arg)
{
    run_log *log = arg;
    const program *p = log->p;
    int rank = tsr_world_rank(world);
    job *j = calloc(1, sizeof *j);
    *j = (job){.d = {.p = p, .world = world}, .log = log, .mine = &log->rank[rank], .rank = rank};
    tsr_status status = make_modules(j);
    for (int i = 0; status == TSR_OK && i < p->nvars; i++)
        if (!p->var[i].drawn)
            status = set_var(j, i, p->var[i].data);
    for (int i = 0; status == TSR_OK && i < p->nacts; i++)
        status = run_act(j, &p->act[i]);
    free(j);
    return status;
}

static void ignore_log(void *arg, tsr_log_level level, const char *text)
{
    (void)arg, (void)level, (void)text;
}

static int remove_path(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void remove_checkpoints(const char *folder)
{
    nftw(folder, remove_path, 4, FTW_DEPTH | FTW_PHYS);
}

void execute(const program *p, run_log *log)
{
    *log = (run_log){.p = p};
    snprintf(log->path, sizeof log->path, "/tmp/programs_%d.safetensors", (int)getpid());
    snprintf(log->folder, sizeof log->folder, "/tmp/programs_%d.checkpoints", (int)getpid());
    tsr_status status = tsr_spawn_with(
        p->nranks, rank_main, log,
        TSR_WORLD_OPTS(.timeout_s = 60, .threads = 1, .arena_bytes = 64 << 20, .log = ignore_log));
    if (status != TSR_OK && !log->rank[0].text[0])
        snprintf(log->rank[0].text, sizeof log->rank[0].text, "%s: %s", tsr_status_name(status),
                 tsr_last_error());
    if (status != TSR_OK && log->rank[0].status == TSR_OK)
        log->rank[0].status = status;
    unlink(log->path);
    remove_checkpoints(log->folder);
}

void run_log_free(run_log *log)
{
    for (int r = 0; r < MAX_RANKS; r++) {
        for (int i = 0; i < log->rank[r].nitems; i++)
            free(log->rank[r].items[i].v);
        free(log->rank[r].items);
    }
}
