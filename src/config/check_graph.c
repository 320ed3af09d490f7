/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the entries of a graph. */
#include <math.h>
#include <string.h>

#include "src/config/array.h"
#include "src/config/ops.h"
#include "src/config/rules/entries.h"
#include "src/core/dims.h"

static const tsri_section *section_of(const tsri_config_op *op)
{
    return &tsri_op_sections[op->head.variant];
}

/* --- operands --------------------------------------------------------------------------------- */
static tsr_status check_operand(const tsri_experiment *e, const tsri_ref *ref, int upto)
{
    int result;
    const tsri_config_op *ops = e->graph.items;
    const tsri_config_op *found = tsri_experiment_result(e, ref->name, &result);
    if (found && found - ops < upto && result < 0 && tsri_op_results(found) == 1)
        return tsri_yaml_fail(ref->node, "'%s' has one result, called by its name alone",
                              found->head.name);
    if (found && found - ops < upto && result < 0)
        return tsri_yaml_fail(ref->node, "'%s' has %d results; legal are %s.0 to %s.%d",
                              found->head.name, tsri_op_results(found), found->head.name,
                              found->head.name, tsri_op_results(found) - 1);
    if (found && found - ops < upto)
        return TSR_OK;
    if (found && found - ops == upto)
        return tsri_yaml_fail(ref->node, "an entry can't use itself; it uses those above it");
    if (found)
        return tsri_yaml_fail(ref->node,
                              "'%.60s' is declared later, in line %d; entries use those "
                              "above them",
                              ref->name, found->head.node->key_line);
    return tsri_unknown_name(ref, "entry", &e->graph, sizeof *ops, upto);
}

tsr_status tsri_check_entry(const tsri_experiment *e, const tsri_ref *ref)
{
    return check_operand(e, ref, e->graph.n);
}

static tsr_status check_operands(const tsri_experiment *e, const tsri_config_op *op, int index)
{
    int least, most;
    const tsri_section *s = section_of(op);
    tsri_op_operands(s, &least, &most);
    if (op->in.n < least || op->in.n > most)
        return tsri_yaml_fail(tsri_section_node(op, "in"),
                              "%d operand%s; %s takes %s (? may be left out)", op->in.n,
                              op->in.n == 1 ? "" : "s", s->name, s->operands);
    for (int i = 0; i < op->in.n; i++)
        TSRI_TRY(check_operand(e, &op->in.refs[i], index));
    return TSR_OK;
}

/* --- values ----------------------------------------------------------------------------------- */
/* Whether a number that the file computes is one of the dtype. */
static tsr_status check_number(const tsri_yaml *node, tsr_dtype dtype, double v)
{
    bool is_float = tsri_is_float(dtype);
    double high = is_float           ? tsri_dtype_max(dtype)
                  : dtype == TSR_I64 ? 0x1p53
                  : dtype == TSR_I32 ? INT32_MAX
                  : dtype == TSR_U8  ? UINT8_MAX
                                     : 1;
    double low = is_float || dtype == TSR_I64 ? -high : dtype == TSR_I32 ? INT32_MIN : 0;
    if (is_float && !(fabs(v) <= high))
        return tsri_yaml_fail(node, "%g is too large for %s", v, tsr_dtype_name(dtype));
    if (!is_float && v != floor(v))
        return tsri_yaml_fail(node, "%s are whole numbers, of at most 2^53 here",
                              tsr_dtype_name(dtype));
    return v >= low && v <= high
               ? TSR_OK
               : tsri_yaml_fail(node, "%.17g is no %s; these go from %.17g to %.17g here", v,
                                tsr_dtype_name(dtype), low, high);
}

/* Refuses a whole number beyond 2^53, which a double would round. */
static tsr_status check_exact(const tsri_yaml *node, tsr_dtype dtype)
{
    int64_t v;
    const char *digits = node->kind == TSRI_YAML_SCALAR ? node->text + (node->text[0] == '-') : "";
    if (tsri_is_float(dtype) || !digits[0] || digits[strspn(digits, "0123456789")])
        return TSR_OK;
    TSRI_TRY(tsri_value_int(node, &v));
    return v >= -(INT64_C(1) << 53) && v <= INT64_C(1) << 53
               ? TSR_OK
               : tsri_yaml_fail(node, "%s are whole numbers, of at most 2^53 here",
                                tsr_dtype_name(dtype));
}

static tsr_status check_fill(const tsri_config_op *op, const char *key)
{
    const double *v = !strcmp(key, "fill")     ? &op->fill
                      : !strcmp(key, "arange") ? op->arange
                      : !strcmp(key, "normal") ? op->normal
                                               : op->uniform;
    const tsri_yaml *node = tsri_section_node(op, key);
    bool is_float = tsri_is_float(op->dtype);
    if (!tsri_op_has(op, "shape"))
        return tsri_yaml_fail_key(node, "'shape' is missing beside it");
    if ((!strcmp(key, "normal") || !strcmp(key, "uniform")) && !is_float)
        return tsri_yaml_fail_key(node, "random numbers are floating point; dtype is %s",
                                  tsr_dtype_name(op->dtype));
    if (!strcmp(key, "normal") && v[1] < 0)
        return tsri_yaml_fail(node, "a standard deviation of %g; it is at least 0", v[1]);
    TSRI_TRY(check_exact(node, op->dtype));
    for (const tsri_yaml *c = node->first; c; c = c->next)
        TSRI_TRY(check_exact(c, op->dtype));
    TSRI_TRY(check_number(node, op->dtype, v[0]));
    if (strcmp(key, "arange"))
        return TSR_OK;
    if (!is_float && v[1] != floor(v[1]))
        return tsri_yaml_fail(node, "%s are whole numbers, of at most 2^53 here",
                              tsr_dtype_name(op->dtype));
    int64_t n = tsr_dims_count(op->shape);
    return check_number(node, op->dtype, v[0] + v[1] * (double)(n > 1 ? n - 1 : 0));
}

/* A constant or parameter: exactly one way to say its value. */
static tsr_status check_value(tsri_config_op *op)
{
    static const char *const ways[] = {"value", "file", "fill", "arange", "normal", "uniform"};
    const char *way = NULL;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (!tsri_op_has(op, ways[i]))
            continue;
        if (way)
            return tsri_yaml_fail_key(tsri_section_node(op, ways[i]),
                                      "not beside '%s': one of them says the value", way);
        way = ways[i];
    }
    if (!way)
        return tsri_yaml_fail_key(op->head.node, "a value is missing; legal are value, file, fill, "
                                                 "arange, normal or uniform");
    if (!strcmp(way, "file"))
        return TSR_OK;
    if (strcmp(way, "value"))
        return check_fill(op, way);
    TSRI_TRY(tsri_array_check(op->value, op->dtype, &op->dims));
    if (tsri_op_has(op, "shape") && !tsr_dims_equal(op->shape, op->dims))
        return tsri_yaml_fail(tsri_section_node(op, "shape"),
                              "the value has another shape: %d axes, the first of %lld",
                              op->dims.ndim, (long long)(op->dims.ndim ? op->dims.d[0] : 1));
    return TSR_OK;
}

static tsr_status check_locals(tsri_config_op *op, const tsri_reader *r)
{
    const tsri_yaml *list = op->locals;
    char shown[TSRI_YAML_TEXT_MAX];
    if (list->kind != TSRI_YAML_LIST)
        return tsri_yaml_fail(list,
                              "found %s; legal is a list with one value, or .npy file, for "
                              "each rank",
                              tsri_yaml_shown(list, shown));
    if (list->n != op->where->ranks.n)
        return tsri_yaml_fail(list, "%d values; placement %s has %d ranks", list->n,
                              op->where->head.name, op->where->ranks.n);
    if (!op->said || op->sbp.ndim == 0)
        return tsri_yaml_fail_key(op->head.node, "'sbp' is missing; from_local must say what the "
                                                 "parts are: S(i), B or P");
    for (const tsri_yaml *c = list->first; c; c = c->next) {
        tsr_dims dims;
        bool is_file = tsri_value_is_text(c);
        if (!is_file) {
            TSRI_TRY(tsri_array_check(c, op->dtype, &dims));
            continue;
        }
        if (!op->paths)
            op->paths = tsri_pool_alloc(r->pool, (size_t)list->n * sizeof *op->paths);
        if (!op->paths || !(op->paths[c->index] = tsri_value_path(r, c)))
            return TSR_ERR_NO_MEMORY;
    }
    return TSR_OK;
}

/* --- entries ---------------------------------------------------------------------------------- */
/* Where the entry's result lives: what it or a rule says, or where its first operand is. */
static tsr_status find_place(const tsri_experiment *e, tsri_config_op *op)
{
    int result;
    TSRI_TRY(tsri_entry_place(e, op, &op->where));
    op->moves = op->where != NULL;
    if (!op->where)
        op->where = op->in.n ? tsri_experiment_result(e, op->in.refs[0].name, &result)->where
                             : e->placements.items;
    if (tsri_op_has(op, "gradient"))
        TSRI_TRY(tsri_check_sbp(tsri_section_node(op, "gradient"), op->where, &op->gradient));
    return tsri_entry_sbp(e, op);
}

/* A field of the batch: rows are split by default. */
static tsr_status check_input(tsri_experiment *e, int index)
{
    tsri_config_op *ops = e->graph.items, *op = &ops[index];
    if (!tsri_section_has(&tsri_experiment_section, e, "data"))
        return tsri_yaml_fail_key(op->head.node, "'data' is missing: what gives the batches");
    for (int i = 0; i < index; i++)
        if (tsri_op_rows[ops[i].head.variant].role == TSRI_ROLE_INPUT && ops[i].field == op->field)
            return tsri_yaml_fail(tsri_section_node(op, "field"),
                                  "'%s' reads it already; other entries can use that",
                                  ops[i].head.name);
    op->dtype = tsri_config_data_input(e, op->field == TSRI_INPUT_Y, 1).dtype;
    if (op->said)
        return TSR_OK;
    op->sbp = tsri_sbp_b(op->where->ranks.ndim);
    for (int d = 0; d < op->sbp.ndim; d++)
        op->sbp.d[d] = (tsr_sbp1){TSR_SBP_SPLIT, 0};
    tsri_section_give(&tsri_op_section, op, "sbp");
    return TSR_OK;
}

static tsr_status check_op(tsri_experiment *e, const tsri_reader *r, int index)
{
    tsri_config_op *op = (tsri_config_op *)e->graph.items + index;
    const tsri_op_role role = tsri_op_rows[op->head.variant].role;
    if (section_of(op)->operands)
        TSRI_TRY(check_operands(e, op, index));
    TSRI_TRY(find_place(e, op));
    bool has_operands = section_of(op)->operands != NULL;
    if (!has_operands && !tsri_op_has(op, "placement")) {
        op->moves = true;
        op->placement = (tsri_ref){op->where->head.name, NULL};
        tsri_section_give(&tsri_op_section, op, "placement");
    }
    if (!tsri_op_has(op, "dtype"))
        op->dtype = e->dtype;
    if (role == TSRI_ROLE_SPLIT && (op->sizes.n < 2 || op->sizes.n > TSRI_CONFIG_MAX_IN))
        return tsri_yaml_fail(tsri_section_node(op, "sizes"), "%d sizes; legal are 2 to %d",
                              op->sizes.n, TSRI_CONFIG_MAX_IN);
    if (role == TSRI_ROLE_CONSTANT || role == TSRI_ROLE_PARAMETER)
        return check_value(op);
    if (role == TSRI_ROLE_INPUT)
        return check_input(e, index);
    if (role == TSRI_ROLE_FROM_LOCAL)
        return check_locals(op, r);
    if (role == TSRI_ROLE_TO_GLOBAL && !op->moves && !op->said && !tsri_op_has(op, "gradient"))
        return tsri_yaml_fail_key(op->head.node,
                                  "neither 'placement' nor 'sbp' is there: to where, "
                                  "or to what?");
    return TSR_OK;
}

/* --- fetches ---------------------------------------------------------------------------------- */
static tsr_status check_fetch(const tsri_experiment *e, const tsri_ref *ref)
{
    char name[TSRI_YAML_TEXT_MAX];
    const char *of = tsri_grad_of(ref->name, name);
    const tsri_ref what = {of ? of : ref->name, ref->node};
    if (of && !tsri_section_has(&tsri_experiment_section, e, "loss"))
        return tsri_yaml_fail(ref->node, "'loss' is missing: gradients are those of the entry that "
                                         "it names");
    return tsri_check_entry(e, &what);
}

/* By default what the last entry makes. */
static tsr_status fetch_last(tsri_experiment *e, const tsri_reader *r)
{
    const tsri_config_op *last = (const tsri_config_op *)e->graph.items + e->graph.n - 1;
    int n = tsri_op_results(last);
    e->fetch.n = n;
    e->fetch.refs = tsri_pool_alloc(r->pool, (size_t)n * sizeof *e->fetch.refs);
    for (int i = 0; e->fetch.refs && i < n; i++) {
        const char *name =
            n == 1 ? last->head.name : tsri_pool_printf(r->pool, "%s.%d", last->head.name, i);
        TSRI_NEED(name);
        e->fetch.refs[i] = (tsri_ref){name, last->head.node};
    }
    return e->fetch.refs ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* Puts the loss, which runs that train show, behind what is fetched. */
static tsr_status fetch_loss(tsri_experiment *e, const tsri_reader *r)
{
    for (int i = 0; i < e->fetch.n; i++)
        if (!strcmp(e->fetch.refs[i].name, e->loss.name))
            return TSR_OK;
    tsri_ref *refs = tsri_pool_alloc(r->pool, ((size_t)e->fetch.n + 1) * sizeof *refs);
    TSRI_NEED(refs);
    if (e->fetch.n)
        memcpy(refs, e->fetch.refs, (size_t)e->fetch.n * sizeof *refs);
    refs[e->fetch.n] = e->loss;
    e->fetch = (tsri_refs){e->fetch.n + 1, refs};
    return TSR_OK;
}

static tsr_status check_fetches(tsri_experiment *e, const tsri_reader *r)
{
    enum { MOST = 1024 };
    if (!tsri_section_has(&tsri_experiment_section, e, "fetch")) {
        TSRI_TRY(e->trains ? fetch_loss(e, r) : fetch_last(e, r));
        tsri_section_give(&tsri_experiment_section, e, "fetch");
        return TSR_OK;
    }
    if (e->fetch.n < 1 || e->fetch.n > MOST)
        return tsri_yaml_fail(tsri_section_node(e, "fetch"), "%d names; legal are 1 to %d",
                              e->fetch.n, MOST);
    for (int i = 0; i < e->fetch.n; i++) {
        TSRI_TRY(check_fetch(e, &e->fetch.refs[i]));
        for (int j = 0; j < i; j++)
            if (!strcmp(e->fetch.refs[i].name, e->fetch.refs[j].name))
                return tsri_yaml_fail(e->fetch.refs[i].node, "'%.60s' is there twice",
                                      e->fetch.refs[i].name);
    }
    return e->trains ? fetch_loss(e, r) : TSR_OK;
}

/* Checks that what is there for training is used. */
static tsr_status check_training(const tsri_experiment *e)
{
    const tsri_config_op *ops = e->graph.items;
    const tsri_section *all = &tsri_experiment_section;
    int ninputs = 0, ntrained = 0;
    for (int i = 0; i < e->graph.n; i++) {
        tsri_op_role role = tsri_op_rows[ops[i].head.variant].role;
        ninputs += role == TSRI_ROLE_INPUT;
        ntrained += role == TSRI_ROLE_PARAMETER && ops[i].trained;
    }
    if (tsri_section_has(all, e, "data") && !ninputs)
        return tsri_yaml_fail_key(tsri_section_node(e, "data"),
                                  "nothing reads it: graph has no entry {op: input, field: x}");
    if (e->trains && !tsri_section_has(all, e, "loss"))
        return tsri_yaml_fail_key(tsri_section_node(e, "optimizer"),
                                  "'loss' is missing: the entry that it makes small");
    if (e->trains && !ntrained)
        return tsri_yaml_fail_key(tsri_section_node(e, "optimizer"),
                                  "graph has no entry {op: parameter} that it could train");
    return TSR_OK;
}

void tsri_graph_mark(const tsri_experiment *e, const char *name, bool *marked)
{
    int result;
    const tsri_config_op *ops = e->graph.items;
    int i = (int)(tsri_experiment_result(e, name, &result) - ops);
    marked[i] = true;
    for (; i >= 0; i--) /* operands stand above their reader */
        for (int k = 0; k < ops[i].in.n && marked[i]; k++)
            marked[tsri_experiment_result(e, ops[i].in.refs[k].name, &result) - ops] = true;
}

tsr_status tsri_check_graph(tsri_experiment *e, const tsri_reader *r)
{
    tsri_config_op *ops = e->graph.items;
    TSRI_TRY(tsri_entries_check(e, r));
    for (int i = 0; i < e->graph.n; i++) {
        TSRI_TRY(check_op(e, r, i));
        /* A file's own dtype counts, which isn't known here. That of a sum's result has no default.
         */
        const tsri_field *f = tsri_section_field(&tsri_op_sections[ops[i].head.variant], "dtype");
        const bool has_default = f && f->offset == offsetof(tsri_config_op, dtype);
        if (has_default && !tsri_op_has(&ops[i], "file") && !ops[i].paths)
            tsri_section_give(&tsri_op_section, &ops[i], "dtype");
    }
    if (tsri_section_has(&tsri_experiment_section, e, "loss"))
        TSRI_TRY(tsri_check_entry(e, &e->loss));
    TSRI_TRY(check_training(e));
    return check_fetches(e, r);
}
