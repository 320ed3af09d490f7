/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of a graph section. */
#include <string.h>

#include "src/config/program.h"
#include "src/config/rules/pin.h"
#include "src/graph/graph.h"
#include "src/nn/module.h"

typedef struct builder {
    tsri_program *p;
    tsri_pool *pool;
    tsr_graph *graph;
    int64_t rows;       /* of a batch */
    bool evaluates;     /* the graph of evaluation, with the variables of that of training */
    tsr_tensor ***made; /* by entry, its results; NULL: it is not declared */
} builder;

/* The meaning of a checked name. */
static tsr_tensor *find(const builder *b, const char *name)
{
    int result;
    const tsri_experiment *e = b->p->experiment;
    const tsri_config_op *op = tsri_experiment_result(e, name, &result);
    return b->made[op - (const tsri_config_op *)e->graph.items][result];
}

static tsr_status add_feed(builder *b, tsri_config_feed feed)
{
    tsri_program_inside *in = b->p->inside;
    if (b->evaluates) /* the same values are fed */
        return TSR_OK;
    TSRI_NEED(TSRI_PUSH(b->pool, in->feeds, in->nfeeds, in->cfeeds));
    in->feeds[in->nfeeds++] = feed;
    return TSR_OK;
}

/* --- constants -------------------------------------------------------------------------------- */
/* Outputs have the names of entries, so inputs take others. */
static const char *input_name(builder *b, const tsri_op_call *c)
{
    return tsri_pool_printf(b->pool, "value of %s", c->name);
}

static bool is_drawn(const tsri_config_op *op)
{
    return tsri_op_has(op, "normal") || tsri_op_has(op, "uniform");
}

/* Numbers of the file are part of the program; those of .npy files are fed, since each rank then
 * keeps its part alone. */
static tsr_status build_numbers(builder *b, const tsri_op_call *c, const tsri_config_feed *f,
                                tsr_tensor **out)
{
    void *data;
    size_t bytes;
    TSRI_TRY(tsri_value_make(b->p, f, &data, &bytes));
    *out =
        tsr_constant_at(c->graph, f->dtype, f->dims, data, c->placement, c->sbp, c->file, c->line);
    tsri_mem_free(data);
    return TSR_OK;
}

static tsr_status build_constant(builder *b, const tsri_op_call *c, tsr_tensor **out)
{
    const tsri_config_op *op = c->op;
    tsri_config_feed f = {.op = op, .local = -1};
    if (is_drawn(op)) {
        bool normal = tsri_op_has(op, "normal");
        const double *v = normal ? op->normal : op->uniform;
        *out = (normal ? tsr_normal_at : tsr_uniform_at)(c->graph, c->name, op->dtype, op->shape,
                                                         c->placement, c->sbp, v[0], v[1], c->file,
                                                         c->line);
        return TSR_OK;
    }
    if (tsri_op_has(op, "fill")) {
        *out = tsr_full_at(c->graph, op->dtype, op->shape, c->placement, c->sbp, op->fill, c->file,
                           c->line);
        return TSR_OK;
    }
    if (tsri_op_has(op, "arange") && op->shape.ndim == 1) {
        *out = tsr_arange_at(c->graph, op->dtype, op->shape.d[0], op->arange[0], op->arange[1],
                             c->placement, c->sbp, c->file, c->line);
        return TSR_OK;
    }
    TSRI_TRY(tsri_value_sizes(b->p, op, -1, &f.dtype, &f.dims));
    if (tsri_op_has(op, "value"))
        return build_numbers(b, c, &f, out);
    f.name = input_name(b, c);
    TSRI_NEED(f.name);
    *out = tsr_input_at(c->graph, f.name, f.dtype, f.dims, c->placement, c->sbp, c->file, c->line);
    return add_feed(b, f);
}

static tsr_status build_parameter(builder *b, const tsri_op_call *c, tsr_tensor **out)
{
    const tsri_config_op *op = c->op;
    tsri_config_feed f = {.op = op, .local = -1};
    tsr_init init = {.kind = TSR_INIT_ZEROS};
    tsr_variable **kept =
        &b->p->inside->variables[op - (const tsri_config_op *)b->p->experiment->graph.items];
    if (b->evaluates) {
        *out = tsri_graph_read(c->graph, *kept, (tsri_loc){c->file, c->line});
        return TSR_OK;
    }
    TSRI_TRY(tsri_value_sizes(b->p, op, -1, &f.dtype, &f.dims));
    if (tsri_op_has(op, "normal"))
        init = (tsr_init){.kind = TSR_INIT_NORMAL, .a = op->normal[0], .b = op->normal[1]};
    else if (tsri_op_has(op, "uniform"))
        init = (tsr_init){.kind = TSR_INIT_UNIFORM, .a = op->uniform[0], .b = op->uniform[1]};
    /* Axes that a strategy splits are not those of every parameter. */
    const bool by_strategy =
        op->said && op->said == tsri_yaml_find(b->p->experiment->head.node, "strategy");
    const tsr_sbp sbp = by_strategy ? tsri_sbp_for_axes(c->sbp, f.dims.ndim) : c->sbp;
    tsr_status status = tsri_module_add_variable(b->p->module, c->name, c->placement, f.dtype,
                                                 f.dims, sbp, init, op->trained, &f.variable);
    if (status != TSR_OK)
        return tsri_program_fail(op->said_by ? op->said : op->head.node, status);
    if (op->said_by)
        f.variable->said_at = (tsri_loc){op->said->file, op->said->line};
    else if (op->said)
        f.variable->said_at = (tsri_loc){c->file, c->line};
    f.variable->said_by = op->said_by ? op->said_by : op->said ? NULL : "";
    *kept = f.variable;
    *out = tsri_graph_read(c->graph, f.variable, (tsri_loc){c->file, c->line});
    return is_drawn(op) ? TSR_OK : add_feed(b, f);
}

/* --- inputs ----------------------------------------------------------------------------------- */
static const char *const input_names[] = {"x", "y"};

static tsri_data_input input_of(const builder *b, int field)
{
    return tsri_config_data_input(b->p->experiment, field == TSRI_INPUT_Y, b->rows);
}

static tsr_tensor *build_input(const builder *b, const tsri_op_call *c)
{
    const tsri_data_input in = input_of(b, c->op->field);
    return tsr_input_with_at(c->graph, input_names[c->op->field], in.dtype, in.dims, c->placement,
                             c->sbp, TSR_INPUT_OPTS(.batch_axis = 0), c->file, c->line);
}

/* Loaders feed both fields: one that no entry reads is an input that nothing uses. */
static tsr_status add_unread(const builder *b)
{
    const tsri_experiment *e = b->p->experiment;
    const tsri_config_op *ops = e->graph.items;
    const tsri_yaml *node = e->data.head.node;
    const tsr_placement *where;
    bool reads[2] = {false};
    for (int i = 0; i < e->graph.n; i++)
        if (tsri_op_rows[ops[i].head.variant].role == TSRI_ROLE_INPUT && b->made[i])
            reads[ops[i].field] = true;
    TSRI_TRY(tsri_program_placement(b->p, e->placements.items, &where));
    for (int f = 0; f < 2 && node; f++) {
        const tsri_data_input in = input_of(b, f);
        if (!reads[f])
            tsr_input_with_at(b->graph, input_names[f], in.dtype, in.dims, where,
                              tsri_sbp_b(tsr_placement_ndim(where)),
                              TSR_INPUT_OPTS(.batch_axis = 0), node->file, node->line);
    }
    return tsri_program_fail(node, tsr_graph_status(b->graph));
}

/* --- local values ----------------------------------------------------------------------------- */
static void coordinates(const tsri_ranks *r, int at, int coord[TSR_MAX_HIERARCHY])
{
    for (int d = r->ndim - 1; d >= 0; d--) {
        coord[d] = at % r->dim[d];
        at /= r->dim[d];
    }
}

/* The global shape that parts make: along an axis the sum over the dimensions that split it. */
static tsr_dims join_shapes(const tsri_config_op *op, const tsr_dims *parts)
{
    const tsri_ranks *r = &op->where->ranks;
    tsr_dims whole = parts[0];
    for (int axis = 0; axis < whole.ndim; axis++) {
        whole.d[axis] = 0;
        for (int i = 0; i < r->n; i++) {
            int coord[TSR_MAX_HIERARCHY];
            bool counts = axis < parts[i].ndim;
            coordinates(r, i, coord);
            for (int d = 0; d < r->ndim; d++)
                counts &= coord[d] == 0 ||
                          (op->sbp.d[d].kind == TSR_SBP_SPLIT && op->sbp.d[d].arg == axis);
            whole.d[axis] += counts ? parts[i].d[axis] : 0;
        }
    }
    return whole;
}

static tsr_status check_parts(builder *b, const tsri_op_call *c, tsr_dims whole,
                              const tsr_dims *parts)
{
    const tsri_ranks *r = &c->op->where->ranks;
    char sbp[TSR_SBP_TEXT_MAX];
    const tsri_yaml *node = c->op->locals->first;
    for (int i = 0; i < r->n; i++, node = node->next) {
        tsr_dims want;
        int64_t offset[TSR_MAX_NDIM];
        tsri_shard(whole, c->placement, c->sbp, r->ranks[i], &want, offset);
        if (tsr_dims_equal(want, parts[i]))
            continue;
        return tsri_program_fail(
            node, tsri_fail(TSR_ERR_SHAPE,
                            "rank %d has a part of shape %s; of %s in %s on %s it must be %s",
                            r->ranks[i], tsri_dims_text(b->graph, parts[i]),
                            tsri_dims_text(b->graph, whole), tsr_sbp_format(c->sbp, sbp),
                            tsr_placement_text(c->placement), tsri_dims_text(b->graph, want)));
    }
    return TSR_OK;
}

/* The dtype and shape of all parts and of the whole. */
static tsr_status size_parts(builder *b, const tsri_op_call *c, tsr_dims *parts, tsr_dtype *dtype,
                             tsr_dims *out_whole)
{
    const tsri_config_op *op = c->op;
    int n = op->where->ranks.n;
    if (b->p->inside->no_data && op->paths && tsri_op_has(op, "shape")) {
        *dtype = op->dtype;
        *out_whole = op->shape;
        return TSR_OK;
    }
    for (int i = 0; i < n; i++) {
        tsr_dtype other;
        TSRI_TRY(tsri_value_sizes(b->p, op, i, &other, &parts[i]));
        if (i && other != *dtype)
            return tsri_program_fail(op->locals,
                                     tsri_fail(TSR_ERR_DTYPE, "parts of %s and of %s",
                                               tsr_dtype_name(*dtype), tsr_dtype_name(other)));
        *dtype = other;
    }
    *out_whole = join_shapes(op, parts);
    if (tsri_op_has(op, "shape") && !tsr_dims_equal(*out_whole, op->shape))
        return tsri_program_fail(
            tsri_section_node(op, "shape"),
            tsri_fail(TSR_ERR_SHAPE, "the parts make %s", tsri_dims_text(b->graph, *out_whole)));
    return check_parts(b, c, *out_whole, parts);
}

static tsr_status build_from_local(builder *b, const tsri_op_call *c, tsr_tensor **out)
{
    tsri_config_feed f = {.op = c->op};
    tsr_dims whole,
        *parts = tsri_pool_alloc(b->pool, (size_t)c->op->where->ranks.n * sizeof *parts);
    if (!parts || !(f.name = input_name(b, c)))
        return TSR_ERR_NO_MEMORY;
    TSRI_TRY(size_parts(b, c, parts, &f.dtype, &whole));
    f.local = tsr_placement_find(c->placement, tsr_world_rank(b->p->world));
    if (f.local >= 0)
        f.dims = parts[f.local];
    *out =
        tsr_from_local_at(c->graph, f.name, f.dtype, whole, c->placement, c->sbp, c->file, c->line);
    return add_feed(b, f);
}

/* --- entries ---------------------------------------------------------------------------------- */
/* Operands as the op takes them, moved to where it is made: as said, or where the first one is. */
static void take_operands(const builder *b, tsri_op_call *c)
{
    tsri_op_role role = tsri_op_rows[c->op->head.variant].role;
    const tsr_placement *where = c->placement;
    for (int i = 0; i < c->op->in.n; i++) {
        tsr_tensor *x = find(b, c->op->in.refs[i].name);
        where = where ? where : tsr_tensor_placement(x);
        bool moves = (role == TSRI_ROLE_COMPUTE || role == TSRI_ROLE_SPLIT) && tsr_tensor_ok(x) &&
                     tsr_tensor_placement(x) != where;
        c->in[c->nin++] = moves ? tsr_to_global_at(x, where, TSR_AUTO, c->file, c->line) : x;
    }
}

/* Results in the signature that the entry says. */
static void sign_results(const tsri_op_call *c, int n, tsr_tensor **out)
{
    for (int i = 0; i < n && c->op->said; i++)
        if (tsr_tensor_ok(out[i]))
            out[i] = tsr_to_global_at(out[i], NULL, c->op->sbp, c->file, c->line);
}

/* Checks the signature of a result's gradient here, since the gradient is declared later. */
static tsr_status sign_gradient(const tsri_op_call *c, tsr_tensor *out)
{
    if (!tsri_op_has(c->op, "gradient") || !tsr_tensor_ok(out))
        return TSR_OK;
    const tsr_sbp sbp = c->op->gradient;
    const tsri_yaml *node = tsri_section_node(c->op, "gradient");
    out->op->back = sbp;
    return tsri_program_fail(node, tsri_sbp_check(out->placement, out->shape, sbp, true));
}

/* New tensors are made in B or S(i); P is a signature to be brought into. */
static bool has_partial(tsr_sbp sbp)
{
    bool any = false;
    for (int i = 0; i < sbp.ndim; i++)
        any |= sbp.d[i].kind == TSR_SBP_PARTIAL;
    return any;
}

static tsr_status declare(builder *b, const tsri_op_call *c, tsr_tensor **out)
{
    const tsri_config_op *op = c->op;
    switch (tsri_op_rows[op->head.variant].role) {
    case TSRI_ROLE_CONSTANT:
        return build_constant(b, c, out);
    case TSRI_ROLE_FROM_LOCAL:
        return build_from_local(b, c, out);
    case TSRI_ROLE_PARAMETER:
        return build_parameter(b, c, out);
    case TSRI_ROLE_INPUT:
        *out = build_input(b, c);
        return TSR_OK;
    case TSRI_ROLE_SPLIT:
        tsr_split_at(c->in[0], op->sizes.n, op->sizes.v, (int)op->axis, out, c->file, c->line);
        return TSR_OK;
    default:
        *out = tsri_op_rows[op->head.variant].declare(c);
        return TSR_OK;
    }
}

static tsr_status build_op(builder *b, const tsri_config_op *op, tsr_tensor **out)
{
    tsri_op_role role = tsri_op_rows[op->head.variant].role;
    const tsri_yaml *node = op->head.node;
    bool is_new = role == TSRI_ROLE_SOURCE || role == TSRI_ROLE_CONSTANT;
    tsri_op_call c = {.graph = b->graph,
                      .op = op,
                      .name = op->head.name,
                      .sbp = is_new && has_partial(op->sbp) ? TSR_AUTO : op->sbp,
                      .file = node->file,
                      .line = node->key_line};
    if (op->moves)
        TSRI_TRY(tsri_program_placement(b->p, op->where, &c.placement));
    c.graph->now.label = c.name;
    take_operands(b, &c);
    tsr_status status = declare(b, &c, out);
    const bool unsaid = role == TSRI_ROLE_INPUT && !op->said;
    if (status == TSR_OK && tsr_tensor_ok(out[0]) && (unsaid || op->said_by))
        out[0]->op->said_by = unsaid ? "" : op->said_by;
    if (status == TSR_OK &&
        (role == TSRI_ROLE_COMPUTE || role == TSRI_ROLE_SPLIT || (is_new && has_partial(op->sbp))))
        sign_results(&c, tsri_op_results(op), out);
    c.graph->now.label = "";
    return status == TSR_OK ? sign_gradient(&c, *out) : status;
}

/* --- gradients -------------------------------------------------------------------------------- */
/* "x, w": the entries of no operands that are marked. */
static const char *list_sources(const tsri_experiment *e, const bool *marked, char *buf,
                                size_t size)
{
    enum { MOST = 8 };
    const tsri_config_op *ops = e->graph.items;
    size_t used = 0;
    int n = 0;
    for (int i = 0; i < e->graph.n && used < size; i++)
        if (marked[i] && ops[i].in.n == 0 && n++ <= MOST)
            used += (size_t)snprintf(buf + used, size - used, "%s%s", n > 1 ? ", " : "",
                                     n > MOST ? "..." : ops[i].head.name);
    return buf;
}

/* The loss has no gradient for what `ref` asks for: in the file's words. */
static tsr_status no_gradient(builder *b, const tsri_ref *ref, const char *name)
{
    const tsri_experiment *e = b->p->experiment;
    const tsri_config_op *ops = e->graph.items;
    int result;
    char list[400] = "";
    bool *marked = tsri_pool_alloc(b->pool, (size_t)e->graph.n * sizeof *marked);
    TSRI_NEED(marked);
    tsri_graph_mark(e, e->loss.name, marked);
    if (marked[tsri_experiment_result(e, name, &result) - ops])
        return tsri_yaml_fail(ref->node,
                              "between '%.60s' and the loss '%.60s' stands an op without gradient",
                              name, e->loss.name);
    const tsri_config_op *loss = tsri_experiment_result(e, e->loss.name, &result);
    if (loss->in.n == 0)
        return tsri_yaml_fail(
            ref->node,
            "the loss '%.60s' does not depend on '%.60s': it is %s, computed from "
            "nothing",
            e->loss.name, name, tsri_op_sections[loss->head.variant].name);
    return tsri_yaml_fail(ref->node, "the loss '%.60s' does not depend on '%.60s', but on %s alone",
                          e->loss.name, name, list_sources(e, marked, list, sizeof list));
}

/* --- fetches ---------------------------------------------------------------------------------- */
/* The tensors whose gradients are fetched: one backward pass for all. */
static tsr_status take_gradients(builder *b, tsr_tensor **fetched)
{
    const tsri_experiment *e = b->p->experiment;
    tsr_tensor **x = tsri_pool_alloc(b->pool, (size_t)e->fetch.n * 2 * sizeof(tsr_tensor *));
    int *of = tsri_pool_alloc(b->pool, (size_t)e->fetch.n * sizeof *of);
    int n = 0;
    TSRI_NEED(x && of);
    for (int i = 0; i < e->fetch.n; i++) {
        char name[TSRI_YAML_TEXT_MAX];
        const char *wrt = tsri_grad_of(e->fetch.refs[i].name, name);
        fetched[i] = wrt ? NULL : find(b, e->fetch.refs[i].name);
        if (wrt) {
            x[n] = find(b, wrt);
            of[n++] = i;
        }
    }
    if (!n)
        return TSR_OK;
    const tsri_yaml *node = e->loss.node;
    tsr_tensor **dx = x + e->fetch.n;
    tsr_gradients_at(find(b, e->loss.name), n, x, dx, node->file, node->line);
    const bool some = tsr_graph_status(b->graph) == TSR_ERR_STATE;
    for (int i = 0; i < n; i++) {
        char name[TSRI_YAML_TEXT_MAX];
        const tsri_ref *ref = &e->fetch.refs[of[i]];
        if (some && !tsr_tensor_ok(dx[i]) && strstr(tsr_last_error(), "does not depend on x["))
            return no_gradient(b, ref, tsri_grad_of(ref->name, name));
        fetched[of[i]] = dx[i];
    }
    return tsri_program_fail(node, tsr_graph_status(b->graph));
}

/* A name that no entry of the file can have. */
static tsr_status build_shard(builder *b, const tsri_ref *ref, tsr_tensor *x, tsri_fetch *fetch)
{
    if (!b->p->inside->shards)
        return TSR_OK;
    fetch->shard = tsri_pool_printf(b->pool, "shard of %s", ref->name);
    TSRI_NEED(fetch->shard);
    tsr_to_local_at(b->graph, fetch->shard, x, ref->node->file, ref->node->line);
    return TSR_OK;
}

static tsr_status build_fetches(builder *b)
{
    const tsri_experiment *e = b->p->experiment;
    int n = e->fetch.n;
    tsr_tensor **fetched = tsri_pool_alloc(b->pool, (size_t)n * sizeof *fetched);
    tsri_fetch *fetches = tsri_pool_alloc(b->pool, (size_t)n * sizeof *fetches);
    TSRI_NEED(fetched && fetches);
    TSRI_TRY(take_gradients(b, fetched));
    for (int i = 0; i < n; i++) {
        const tsri_ref *ref = &e->fetch.refs[i];
        tsr_sbp sbp = tsri_sbp_b(tsr_placement_ndim(tsr_tensor_placement(fetched[i])));
        tsr_output_at(b->graph, ref->name, fetched[i], NULL, sbp, ref->node->file, ref->node->line);
        fetches[i] = (tsri_fetch){.name = ref->name,
                                  .placement = tsr_tensor_placement(fetched[i]),
                                  .dtype = tsr_tensor_dtype(fetched[i]),
                                  .dims = tsr_tensor_dims(fetched[i]),
                                  .is_loss = e->loss.name && !strcmp(ref->name, e->loss.name)};
        TSRI_TRY(build_shard(b, ref, fetched[i], &fetches[i]));
    }
    b->p->nfetches = n;
    b->p->inside->fetches = fetches;
    return tsr_graph_status(b->graph);
}

/* --- the whole -------------------------------------------------------------------------------- */
/* Declares the entries, of evaluation those that are marked alone. */
static tsr_status declare_entries(builder *b, const bool *marked)
{
    const tsri_experiment *e = b->p->experiment;
    const tsri_config_op *ops = e->graph.items;
    tsr_status status;
    b->made = tsri_pool_alloc(b->pool, (size_t)e->graph.n * sizeof *b->made);
    TSRI_NEED(b->made);
    for (int i = 0; i < e->graph.n; i++) {
        if (marked && !marked[i])
            continue;
        b->made[i] = tsri_pool_alloc(b->pool, (size_t)tsri_op_results(&ops[i]) * sizeof **b->made);
        TSRI_NEED(b->made[i]);
        TSRI_TRY(build_op(b, &ops[i], b->made[i]));
        status = tsr_graph_status(b->graph);
        const bool of_rule =
            status != TSR_OK && ops[i].said_by && strstr(tsr_last_error(), "signature");
        TSRI_TRY(tsri_program_fail(of_rule ? ops[i].said : ops[i].head.node, status));
    }
    return tsri_section_has(&tsri_experiment_section, e, "data") ? add_unread(b) : TSR_OK;
}

/* Checks that what is made small is a number. */
static tsr_status check_loss(builder *b, const tsr_tensor *loss)
{
    const tsri_ref *ref = &b->p->experiment->loss;
    const tsr_dims dims = tsr_tensor_dims(loss);
    if (dims.ndim)
        return tsri_yaml_fail(ref->node,
                              "'%.60s' is of shape %s; an optimizer makes one number small: reduce "
                              "it with mean or sum",
                              ref->name, tsri_dims_text(b->graph, dims));
    return tsri_is_float(tsr_tensor_dtype(loss))
               ? TSR_OK
               : tsri_yaml_fail(ref->node, "'%.60s' is %s; a loss is floating point", ref->name,
                                tsr_dtype_name(tsr_tensor_dtype(loss)));
}

tsr_status tsri_program_forward_graph(tsri_program *p, tsr_graph *g, int64_t rows,
                                      tsri_forward *out)
{
    const tsri_experiment *e = p->experiment;
    const tsri_config_eval *eval = &e->train.eval;
    tsri_pool pool;
    tsri_pool_init(&pool, &p->world->mem);
    builder b = {.p = p, .pool = &pool, .graph = g, .rows = rows, .evaluates = true};
    const char *const names[] = {e->loss.name, eval->score_name, eval->label_name};
    tsr_tensor *found[3] = {NULL};
    bool *marked = tsri_pool_alloc(&pool, (size_t)e->graph.n * sizeof *marked);
    for (int i = 0; i < 3 && marked; i++)
        if (names[i])
            tsri_graph_mark(e, names[i], marked);
    tsr_status status = marked ? declare_entries(&b, marked) : TSR_ERR_NO_MEMORY;
    for (int i = 0; i < 3 && status == TSR_OK; i++)
        found[i] = names[i] ? find(&b, names[i]) : NULL;
    *out = (tsri_forward){.loss = found[0], .logits = found[1], .labels = found[2]};
    tsri_pool_finish(&pool);
    return status;
}

tsr_status tsri_program_build_graph(tsri_program *p, int64_t steps)
{
    const tsri_experiment *e = p->experiment;
    builder b = {.p = p, .pool = &p->inside->pool, .graph = p->graph};
    if (tsri_section_has(&tsri_experiment_section, e, "data"))
        TSRI_TRY(tsri_program_open_data(p, steps));
    b.rows = p->rows;
    p->inside->variables =
        tsri_pool_alloc(b.pool, (size_t)e->graph.n * sizeof *p->inside->variables);
    p->module = tsr_module_create(
        p->world, &(tsr_nn_opts){.seed = e->train.seed, .dtype = e->dtype}, NULL, NULL, NULL);
    TSRI_NEED(p->inside->variables && p->module);
    TSRI_TRY(declare_entries(&b, NULL));
    p->inside->made = b.made;
    TSRI_TRY(tsri_pins_of_graph(p));
    if (e->trains) {
        tsr_tensor *loss = find(&b, e->loss.name);
        TSRI_TRY(check_loss(&b, loss));
        TSRI_TRY(tsri_program_minimize(p, loss));
    }
    return build_fetches(&b);
}
