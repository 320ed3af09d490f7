/* SPDX-License-Identifier: Apache-2.0 */
#include "src/config/rules/pin.h"

#include <stdio.h>
#include <string.h>

#include "src/core/rng.h"
#include "src/graph/graph.h"
#include "src/nn/place.h"

/* --- what modules give ------------------------------------------------------------------------ */
static void note(void *arg, const char *module, int nout, tsr_tensor *const *out)
{
    tsri_pins *pins = arg;
    tsri_pool *pool = &pins->program->inside->pool;
    for (int i = 0; i < nout && pins->status == TSR_OK; i++) {
        if (!tsr_tensor_ok(out[i]))
            continue;
        if (!TSRI_PUSH(pool, pins->given, pins->n, pins->capacity))
            pins->status = TSR_ERR_NO_MEMORY;
        else
            pins->given[pins->n++] = (tsri_given){.name = module, .tensor = out[i]};
    }
}

void tsri_pins_begin(tsri_pins *pins, const tsri_program *p)
{
    *pins = (tsri_pins){.program = p};
    p->graph->now.applied = note;
    p->graph->now.applied_arg = pins;
}

/* --- moving ----------------------------------------------------------------------------------- */
/* Whether an op is autocast's cast of x to fewer bytes, which rules bring where they bring x. */
static bool narrows(const tsri_op *op, const tsr_tensor *x)
{
    bool any = false;
    for (int k = 0; k < TSRI_AUTOCAST_DTYPES; k++)
        any |= op->out[0] == x->as[k];
    return any && op->kind == TSRI_OP_CAST &&
           tsr_dtype_size(op->out[0]->dtype) < tsr_dtype_size(x->dtype);
}

/* A signature, and where it is said. */
typedef struct said {
    tsr_sbp sbp; /* ndim 0: nothing is said */
    const tsri_yaml *node;
} said;

/* A rule's word for one tensor. */
typedef struct wish {
    said sbp, use, gradient, gradient_use;
    const tsri_yaml *node; /* the rule */
} wish;

static wish wish_of(const tsri_config_pin *by)
{
    return (wish){
        .sbp = {by->sbp, tsri_section_node(by, "sbp")},
        .use = {by->use, tsri_section_node(by, "use")},
        .gradient = {by->gradient, tsri_section_node(by, "gradient")},
        .gradient_use = {by->gradient_use, tsri_section_node(by, "gradient_use")},
        .node = by->head.node,
    };
}

/* A sum of what was narrowed is another than the narrowed sum. */
static bool is_partial(tsr_sbp sbp)
{
    for (int d = 0; d < sbp.ndim; d++)
        if (sbp.d[d].kind == TSR_SBP_PARTIAL)
            return true;
    return false;
}

/* Makes what is said a signature of x's placement. */
static tsr_status take(const tsri_pins *pins, const tsr_tensor *x, said *s)
{
    return tsri_program_sbp(pins->program, s->node, x->placement, &s->sbp);
}

/* Makes it one of x's gradient, and checks it, since that is declared later. */
static tsr_status take_back(const tsri_pins *pins, const tsr_tensor *x, const char *name, said *s)
{
    TSRI_TRY(take(pins, x, s));
    if (!s->sbp.ndim)
        return TSR_OK;
    tsr_status status = tsri_sbp_check(x->placement, x->shape, s->sbp, true);
    return status == TSR_OK
               ? status
               : tsri_program_fail(s->node, tsri_fail_prefix(status, "the gradient of %s", name));
}

/* Whether x is a parameter, or its copy in the dtype of autocast. */
static bool is_parameter(const tsr_tensor *x)
{
    const tsri_op *op = x->op->kind == TSRI_OP_CAST ? x->op->in[0]->op : x->op;
    return op->kind == TSRI_OP_VARIABLE;
}

/* Declares, right after x, that it is brought into a signature, and its gradient into another. */
static tsr_status bring(tsri_pins *pins, tsr_tensor *x, tsr_sbp sbp, tsr_sbp back,
                        const tsri_yaml *node, tsr_tensor **out)
{
    tsr_tensor *y = tsr_to_global_at(x, NULL, sbp, node->file, node->line);
    TSRI_TRY(tsri_program_fail(node, tsr_graph_status(pins->program->graph)));
    y->op->back = back;
    /* The backward pass repeats the conversion with its operand. A parameter is converted once:
     * reshard_after_forward gathers it again. */
    y->op->region = is_parameter(x) ? 0 : x->op->region;
    *out = y;
    return tsri_places_insert(&pins->places, x, y->op);
}

/* Brings x into the signatures that are said, right where it is made: into sbp, and then into use.
 * Its gradient is brought into `gradient`, and then into gradient_use. */
static tsr_status pin(tsri_pins *pins, const char *name, tsr_tensor *x, wish w)
{
    tsr_graph *g = pins->program->graph;
    const char *scope = g->now.scope;
    tsr_tensor *y = x;
    TSRI_TRY(take(pins, x, &w.sbp));
    TSRI_TRY(take(pins, x, &w.use));
    const bool narrowed = !is_partial(w.sbp.sbp) && !is_partial(w.use.sbp);
    for (int k = 0; k < TSRI_AUTOCAST_DTYPES && narrowed; k++)
        if (x->as[k] && narrows(x->as[k]->op, x))
            TSRI_TRY(pin(pins, name, x->as[k], w));
    TSRI_TRY(take_back(pins, x, name, &w.gradient));
    TSRI_TRY(take_back(pins, x, name, &w.gradient_use));
    const int uses = tsri_places_take(&pins->places, x);
    tsr_status status = TSR_OK;
    g->now.scope = name;
    if (w.gradient_use.sbp.ndim)
        status = bring(pins, y, TSR_AUTO, w.gradient_use.sbp, w.node, &y);
    if (status == TSR_OK)
        status = bring(pins, y, w.sbp.sbp, w.gradient.sbp, w.node, &y);
    if (status == TSR_OK && w.use.sbp.ndim)
        status = bring(pins, y, w.use.sbp, TSR_AUTO, w.node, &y);
    g->now.scope = scope;
    TSRI_TRY(status);
    return tsri_places_give(&pins->places, uses, x, y, narrowed ? narrows : NULL);
}

/* --- rules ------------------------------------------------------------------------------------ */
typedef struct rules {
    const tsri_config_pin *items;
    int n;
    bool *used;
} rules;

/* The last rule that fits a name, or the other name of the same (NULL: it has one);
 * NULL: none does. Only patterns with a colon fit ops. */
static const tsri_config_pin *find_rule(const rules *r, const char *name, const char *other,
                                        bool is_op)
{
    const tsri_config_pin *found = NULL;
    for (int i = 0; i < r->n; i++) {
        if ((strchr(r->items[i].match, ':') != NULL) != is_op ||
            (!tsri_glob(r->items[i].match, name) &&
             !(other && tsri_glob(r->items[i].match, other))))
            continue;
        r->used[i] = true;
        found = &r->items[i];
    }
    return found && found->sbp.ndim ? found : NULL;
}

static bool any_of_ops(const rules *r)
{
    bool any = false;
    for (int i = 0; i < r->n; i++)
        any |= strchr(r->items[i].match, ':') != NULL;
    return any;
}

static tsr_status pin_modules(tsri_pins *pins, const rules *r)
{
    for (int i = 0; i < pins->n; i++) {
        const tsri_given given = pins->given[i];
        const tsri_config_op *entry = given.entry;
        const tsri_config_pin *by =
            find_rule(r, given.name, entry ? entry->head.name : NULL, false);
        if (!by)
            continue;
        wish w = wish_of(by);
        /* An entry's own words count more, and an entry that is made so is not brought there. */
        if (entry && entry->said)
            w.sbp = (said){entry->sbp, entry->said};
        if (!entry || !entry->said || w.use.sbp.ndim || w.gradient.sbp.ndim ||
            w.gradient_use.sbp.ndim)
            TSRI_TRY(pin(pins, given.name, given.tensor, w));
    }
    return TSR_OK;
}

/* The module or the entry of a graph that an op is declared for; "": none. */
static const char *owner_of(const tsri_pins *pins, const tsri_op *op)
{
    return pins->of_graph && !op->name[0] ? op->label : op->name;
}

/* How many ops of a kind an owner has so far. */
typedef struct count {
    const char *owner; /* NULL: the place is free */
    tsri_op_kind kind;
    int n;
} count;

/* The place of a count in a hash of 2^n places. */
static count *find_count(count *counts, size_t places, const char *owner, tsri_op_kind kind)
{
    size_t at = (size_t)tsri_hash(TSRI_HASH_INIT + kind, owner, strlen(owner));
    while (counts[at &= places - 1].owner &&
           (counts[at].kind != kind || strcmp(counts[at].owner, owner) != 0))
        at++;
    return &counts[at];
}

/* "blocks.0.attn:softmax", and ":softmax.1" of the second one; NULL: it is too long. */
static const char *name_op(tsri_pool *pool, const char *owner, tsri_op_kind kind, int before)
{
    /* Plans join the parts of softmax under its name. */
    const char *word = kind == TSRI_OP_SOFTMAX_FINISH ? "softmax" : tsri_op_name(kind);
    char name[TSRI_NAME_MAX];
    int n = snprintf(name, sizeof name, "%s:%s", owner, word);
    if (before && n < TSRI_NAME_MAX)
        n += snprintf(name + n, sizeof name - (size_t)n, ".%d", before);
    return n < TSRI_NAME_MAX ? tsri_pool_strdup(pool, name) : "";
}

/* Names ops for rules; NULL: one that no rule can name. */
static tsr_status name_ops(const tsri_pins *pins, int nops, tsri_op *const *ops,
                           const char ***out_names)
{
    tsri_pool *pool = &pins->program->inside->pool;
    size_t places = 16;
    while (places < 2 * (size_t)nops)
        places *= 2;
    const char **names = tsri_pool_alloc(pool, (size_t)nops * sizeof *names);
    count *counts = tsri_pool_alloc(pool, places * sizeof *counts);
    TSRI_NEED(names && counts);
    for (int i = 0; i < nops; i++) {
        const char *owner = owner_of(pins, ops[i]);
        if (!owner[0])
            continue;
        count *c = find_count(counts, places, owner, ops[i]->kind);
        *c = (count){owner, ops[i]->kind, c->n + 1};
        if (ops[i]->nin && ops[i]->kind != TSRI_OP_TO_GLOBAL)
            TSRI_NEED(names[i] = name_op(pool, owner, ops[i]->kind, c->n - 1));
    }
    *out_names = names;
    return TSR_OK;
}

static tsr_status pin_ops(tsri_pins *pins, const rules *r, int nops, tsri_op *const *ops,
                          const char *const *names)
{
    for (int i = 0; names && i < nops; i++) {
        const tsri_config_pin *by =
            names[i] && names[i][0] ? find_rule(r, names[i], NULL, true) : NULL;
        for (int j = 0; by && j < ops[i]->nout; j++)
            TSRI_TRY(pin(pins, owner_of(pins, ops[i]), ops[i]->out[j], wish_of(by)));
    }
    return TSR_OK;
}

/* Brings parameters into the signatures in which the model takes them. */
static tsr_status pin_uses(tsri_pins *pins, int nops, tsri_op *const *ops)
{
    const tsri_experiment *e = pins->program->experiment;
    const tsri_config_pattern *p = e->parameters.items;
    for (int i = 0; i < nops; i++) {
        const tsri_config_pattern *by = NULL;
        if (ops[i]->kind != TSRI_OP_VARIABLE || !ops[i]->variable->trainable)
            continue;
        for (int j = 0; j < e->parameters.n; j++)
            if (tsri_section_has(&tsri_pattern_section, &p[j], "use") &&
                tsri_glob(p[j].match, ops[i]->name))
                by = &p[j];
        if (!by || !by->use.ndim)
            continue;
        wish w = {.sbp = {by->use, tsri_section_node(by, "use")}, .node = by->head.node};
        TSRI_TRY(take(pins, ops[i]->out[0], &w.sbp));
        w.sbp.sbp = tsri_sbp_for_axes(w.sbp.sbp, ops[i]->out[0]->shape.ndim);
        TSRI_TRY(pin(pins, ops[i]->name, ops[i]->out[0], w));
    }
    return TSR_OK;
}

/* --- rules that fit nothing ------------------------------------------------------------------- */
static tsr_status no_match(const tsri_pins *pins, const tsri_config_pin *rule, int nops,
                           const char *const *op_names)
{
    tsri_pool *pool = &pins->program->inside->pool;
    const bool of_ops = strchr(rule->match, ':') != NULL;
    const int most = of_ops ? nops : pins->n;
    const char **names = tsri_pool_alloc(pool, (size_t)most * sizeof *names);
    char mean[TSRI_YAML_TEXT_MAX], list[TSRI_LEGAL_MAX] = "";
    int n = 0;
    TSRI_NEED(names);
    for (int i = 0; i < most; i++) {
        names[n] = of_ops ? op_names[i] : pins->given[i].name;
        n += names[n] && names[n][0];
    }
    size_t used = 0;
    for (int i = 0; i < n && i < 6; i++)
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%s%.100s", i ? ", " : "", names[i]);
    return tsri_yaml_fail(tsri_section_node(rule, "match"),
                          "no %s fits '%.100s'; there are, for example, %s%s",
                          of_ops ? (pins->of_graph ? "op of the graph" : "op of the model")
                                 : (pins->of_graph ? "entry but parameters" : "module"),
                          rule->match, n ? list : "none",
                          tsri_did_you_mean(rule->match, n, names, sizeof *names, mean));
}

static bool any_use(const tsri_experiment *e)
{
    const tsri_config_pattern *p = e->parameters.items;
    for (int i = 0; i < e->parameters.n; i++)
        if (tsri_section_has(&tsri_pattern_section, &p[i], "use"))
            return true;
    return false;
}

tsr_status tsri_pins_end(tsri_pins *pins, tsr_tensor **result)
{
    tsr_graph *g = pins->program->graph;
    const tsri_experiment *e = pins->program->experiment;
    tsri_pool *pool = &pins->program->inside->pool;
    rules r = {.items = e->tensors.match.items, .n = e->tensors.match.n};
    g->now.applied = NULL;
    TSRI_TRY(pins->status);
    if (!r.n && !any_use(e))
        return TSR_OK;
    r.used = tsri_pool_alloc(pool, (size_t)r.n * sizeof *r.used);
    const int nops = g->nops;
    tsri_op **ops = tsri_pool_dup(pool, g->ops, (size_t)nops * sizeof(tsri_op *));
    TSRI_NEED(r.used && ops);
    const char **names = NULL; /* of ops; NULL: no rule names one */
    if (any_of_ops(&r))
        TSRI_TRY(name_ops(pins, nops, ops, &names));
    tsri_places *places = &pins->places;
    TSRI_TRY(tsri_places_init(places, g, pool));
    for (int i = 0; i < pins->n; i++)
        TSRI_TRY(tsri_places_add(places, &pins->given[i].tensor, NULL));
    if (*result)
        TSRI_TRY(tsri_places_add(places, result, NULL));
    /* Rules of ops come first: those of modules are about what is made of them. */
    TSRI_TRY(pin_ops(pins, &r, nops, ops, names));
    TSRI_TRY(pin_modules(pins, &r));
    TSRI_TRY(pin_uses(pins, nops, ops));
    for (int i = 0; i < r.n; i++)
        if (!r.used[i])
            return no_match(pins, &r.items[i], nops, names);
    return tsri_places_sort(places);
}

/* --- what entries of a graph give ------------------------------------------------------------- */
static tsr_status note_entry(tsri_pins *pins, const tsri_config_op *op, tsr_tensor **made)
{
    tsri_pool *pool = &pins->program->inside->pool;
    const int n = tsri_op_results(op);
    for (int i = 0; i < n; i++) {
        const char *name =
            n == 1 ? op->head.name : tsri_pool_printf(pool, "%s.%d", op->head.name, i);
        TSRI_NEED(name && TSRI_PUSH(pool, pins->given, pins->n, pins->capacity));
        pins->given[pins->n++] = (tsri_given){name, made[i], op, &made[i]};
    }
    return TSR_OK;
}

tsr_status tsri_pins_of_graph(const tsri_program *p)
{
    const tsri_config_op *ops = p->experiment->graph.items;
    tsri_pins pins = {.program = p, .of_graph = true};
    tsr_tensor *none = NULL;
    for (int i = 0; i < p->experiment->graph.n; i++)
        if (tsri_op_rows[ops[i].head.variant].role != TSRI_ROLE_PARAMETER)
            TSRI_TRY(note_entry(&pins, &ops[i], p->inside->made[i]));
    TSRI_TRY(tsri_pins_end(&pins, &none));
    for (int i = 0; i < pins.n; i++)
        *pins.given[i].made = pins.given[i].tensor;
    return TSR_OK;
}
