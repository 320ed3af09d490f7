/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategies: words that stand for rules of parameters and tensors, one for each dimension of a
 * placement. ZeRO is after Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion
 * Parameter Models" (2020); the pairs of linear layers after Shoeybi et al., "Megatron-LM" (2019);
 * the norms between them after Korthikanti et al., "Reducing Activation Recomputation in Large
 * Transformer Models" (2022).
 */
#include <stdio.h>
#include <string.h>

#include "src/config/layers/layers.h"
#include "src/config/ops.h"
#include "src/config/rules/entries.h"
#include "src/config/rules/roles.h"
#include "src/config/rules/stages.h"

enum { NONE = TSRI_PAIR_WHOLE };

typedef struct expansion {
    tsri_experiment *e;
    const tsri_reader *reader;
    const tsri_yaml *node; /* `strategy` */
    const tsri_config_placement *where;
    int ndim, words[TSR_MAX_HIERARCHY];
    int stages; /* the dimension that has stages; -1: none */
    int npairs; /* that were found in layers of the file */
    tsri_pair_rules *roles;
    tsri_config_pattern *params;
    tsri_config_pin *pins;
    int nparams, cparams, npins, cpins;
} expansion;

/* --- words ------------------------------------------------------------------------------------ */
static bool is_pairs(int word)
{
    return word == TSRI_CONFIG_STRATEGY_MEGATRON || word == TSRI_CONFIG_STRATEGY_SEQUENCE;
}

static const char *strategy_word(int word)
{
    return tsri_section_field(&tsri_experiment_section, "strategy")->words[word];
}

static bool has_word(const expansion *x, int first, int last)
{
    bool any = false;
    for (int d = 0; d < x->ndim; d++)
        any |= x->words[d] >= first && x->words[d] <= last;
    return any;
}

static bool is_graph(const expansion *x)
{
    return tsri_section_has(&tsri_experiment_section, x->e, "graph");
}

/* The first input of a graph: the batch, whose placement is the strategy's. */
static tsr_status find_input(expansion *x)
{
    const tsri_config_op *ops = x->e->graph.items;
    const tsri_config_placement *said = NULL;
    int i = 0;
    while (i < x->e->graph.n && tsri_op_rows[ops[i].head.variant].role != TSRI_ROLE_INPUT)
        i++;
    if (i == x->e->graph.n)
        return tsri_yaml_fail(x->node, "graph has no entry {op: input, field: x}: there is no "
                                       "batch that could be split");
    TSRI_TRY(tsri_entry_place(x->e, &ops[i], &said));
    x->where = said ? said : x->where;
    return TSR_OK;
}

static tsr_status find_place(expansion *x)
{
    const tsri_config_layout *input = &x->e->tensors.input;
    x->where = x->e->placements.items;
    if (is_graph(x))
        TSRI_TRY(find_input(x));
    else if (tsri_section_has(&tsri_layout_section, input, "placement"))
        TSRI_TRY(tsri_check_placement(x->e, &input->placement, &x->where));
    x->ndim = x->where->ranks.ndim;
    return TSR_OK;
}

/* Gives the axes that a mapping names their words; others are data parallel. */
static tsr_status name_words(expansion *x)
{
    const tsri_words *said = &x->e->strategy;
    const tsri_mesh_axes *mesh = &x->where->mesh;
    char list[TSRI_LEGAL_MAX] = "", mean[TSRI_YAML_TEXT_MAX];
    int used = 0, i = 0;
    if (!mesh->ndim)
        return tsri_yaml_fail(
            x->node,
            "the dimensions of placement %s have no names; say a list with a word "
            "each, or a mesh",
            x->where->head.name);
    for (int d = 0; d < mesh->ndim; d++) {
        x->words[d] = TSRI_CONFIG_STRATEGY_DATA;
        used += snprintf(list + used, sizeof list - (size_t)used, "%s%.200s", d ? ", " : "",
                         mesh->name[d]);
    }
    for (const tsri_yaml *c = said->by_axis->first; c; c = c->next, i++) {
        int d = 0;
        while (d < mesh->ndim && strcmp(mesh->name[d], c->key) != 0)
            d++;
        if (d == mesh->ndim)
            return tsri_yaml_fail_key(
                c, "placement %.200s has no axis '%.60s'; legal are %s%s", x->where->head.name,
                c->key, list,
                tsri_did_you_mean(c->key, mesh->ndim, mesh->name, sizeof *mesh->name, mean));
        x->words[d] = said->words[i];
    }
    return TSR_OK;
}

/* Gives each dimension its word. */
static tsr_status spread_words(expansion *x)
{
    const tsri_words *said = &x->e->strategy;
    int npairs = 0;
    if (said->by_axis)
        TSRI_TRY(name_words(x));
    else if (said->n > 1 && said->n != x->ndim)
        return tsri_yaml_fail(x->node,
                              "%d words; placement %s has %d dimension%s, with a word each",
                              said->n, x->where->head.name, x->ndim, x->ndim == 1 ? "" : "s");
    for (int d = 0; d < x->ndim; d++) {
        bool is_last = d == x->ndim - (x->stages == x->ndim - 1 ? 2 : 1);
        x->words[d] = said->by_axis                          ? x->words[d]
                      : said->n > 1                          ? said->words[d]
                      : is_pairs(said->words[0]) && !is_last ? TSRI_CONFIG_STRATEGY_DATA
                                                             : said->words[0];
        if (d == x->stages && said->n == 1 && !said->by_axis)
            x->words[d] = TSRI_CONFIG_STRATEGY_DATA; /* one word is for the other dimensions */
        if (d == x->stages && x->words[d] != TSRI_CONFIG_STRATEGY_DATA)
            return tsri_yaml_fail(x->node,
                                  "%s for axis '%.60s', which has the stages; legal is data there",
                                  strategy_word(x->words[d]), x->e->stages.axis);
        npairs += is_pairs(x->words[d]);
        if ((said->n > 1 || said->by_axis) && x->words[d] == TSRI_CONFIG_STRATEGY_AUTO)
            return tsri_yaml_fail(x->node, "auto stands alone: it is for all dimensions");
    }
    return npairs > 1 ? tsri_yaml_fail(x->node, "megatron and sequence are for one dimension")
                      : TSR_OK;
}

/* --- rules ------------------------------------------------------------------------------------ */
static tsr_sbp1 split(int axis)
{
    return axis < 0 ? (tsr_sbp1){TSR_SBP_BROADCAST, 0} : (tsr_sbp1){TSR_SBP_SPLIT, (int8_t)axis};
}

/* The axis along a dimension of pairs. */
static int axis_of(const expansion *x, int d, const tsri_pair_rule *rule)
{
    return x->words[d] == TSRI_CONFIG_STRATEGY_MEGATRON ? rule->megatron : rule->sequence;
}

/* The axis of the batch's rows, of which each stage has all. */
static int rows_axis(const expansion *x, int d)
{
    return d == x->stages ? NONE : 0;
}

/* The axis along a dimension of ZeRO: another than the pairs', whose pieces are then cut again. */
static int zero_axis(const expansion *x, const tsri_pair_rule *rule)
{
    bool taken = false;
    for (int d = 0; d < x->ndim; d++)
        taken |= is_pairs(x->words[d]) && axis_of(x, d, rule) == 0;
    return rule->naxes < 2 ? NONE : taken ? 1 : 0;
}

/* Says a signature of a rule, if there is something to say. */
static void say(tsri_config_pattern *p, const char *key, tsr_sbp *at, tsr_sbp sbp)
{
    *at = sbp;
    tsri_section_give(&tsri_pattern_section, p, key);
}

/* A rule of parameters: what pairs split is rule's axis. */
static tsr_status add_param(expansion *x, const tsri_pair_rule *rule)
{
    TSRI_NEED(TSRI_PUSH(x->reader->pool, x->params, x->nparams, x->cparams));
    tsri_config_pattern *p = &x->params[x->nparams++];
    tsr_sbp sbp = {.ndim = (int8_t)x->ndim}, use = sbp, state = sbp, gradient = sbp;
    *p = (tsri_config_pattern){.head = {.node = x->node}, .match = rule->match};
    const tsr_sbp1 zero = split(zero_axis(x, rule));
    for (int d = 0; d < x->ndim; d++) {
        int word = x->words[d];
        const tsr_sbp1 pairs = split(is_pairs(word) ? axis_of(x, d, rule) : NONE);
        sbp.d[d] = word == TSRI_CONFIG_STRATEGY_ZERO3 ? zero : pairs;
        use.d[d] = pairs;
        state.d[d] =
            word >= TSRI_CONFIG_STRATEGY_ZERO1 && word <= TSRI_CONFIG_STRATEGY_ZERO3 ? zero : pairs;
        gradient.d[d] = word == TSRI_CONFIG_STRATEGY_ZERO1 ? split(NONE) : state.d[d];
    }
    tsri_section_give(&tsri_pattern_section, p, "match");
    say(p, "sbp", &p->sbp,
        has_word(x, TSRI_CONFIG_STRATEGY_AUTO, TSRI_CONFIG_STRATEGY_AUTO) ? TSR_AUTO : sbp);
    if (has_word(x, TSRI_CONFIG_STRATEGY_ZERO1, TSRI_CONFIG_STRATEGY_SEQUENCE))
        say(p, "use", &p->use, use);
    if (has_word(x, TSRI_CONFIG_STRATEGY_ZERO1, TSRI_CONFIG_STRATEGY_ZERO3) &&
        !tsri_section_has(&tsri_optimizer_section, &x->e->optimizer, "state"))
        say(p, "state", &p->state, state);
    if (has_word(x, TSRI_CONFIG_STRATEGY_ZERO1, TSRI_CONFIG_STRATEGY_ZERO1))
        say(p, "gradient", &p->gradient, gradient);
    return TSR_OK;
}

static tsr_status add_pin(expansion *x, const tsri_pair_rule *rule)
{
    TSRI_NEED(TSRI_PUSH(x->reader->pool, x->pins, x->npins, x->cpins));
    tsri_config_pin *p = &x->pins[x->npins++];
    *p = (tsri_config_pin){.head = {.node = x->node}, .match = rule->match};
    p->sbp.ndim = (int8_t)x->ndim;
    for (int d = 0; d < x->ndim; d++)
        p->sbp.d[d] = split(is_pairs(x->words[d]) ? axis_of(x, d, rule) : rows_axis(x, d));
    tsri_section_give(&tsri_pin_section, p, "match");
    tsri_section_give(&tsri_pin_section, p, "sbp");
    p->gradient = p->sbp;
    tsri_section_give(&tsri_pin_section, p, "gradient");
    /* Sequences gather what is split by positions before a pair, and its gradient behind one. */
    if (!rule->use || !has_word(x, TSRI_CONFIG_STRATEGY_SEQUENCE, TSRI_CONFIG_STRATEGY_SEQUENCE))
        return TSR_OK;
    tsr_sbp *whole = rule->use == TSRI_PAIR_USED_WHOLE ? &p->use : &p->gradient_use;
    whole->ndim = (int8_t)x->ndim;
    for (int d = 0; d < x->ndim; d++)
        whole->d[d] = split(is_pairs(x->words[d]) ? NONE : rows_axis(x, d));
    tsri_section_give(&tsri_pin_section, p,
                      rule->use == TSRI_PAIR_USED_WHOLE ? "use" : "gradient_use");
    return TSR_OK;
}

static tsr_status add_rule(expansion *x, const tsri_pair_rule *rule)
{
    return rule->naxes ? add_param(x, rule) : add_pin(x, rule);
}

/* A pair of linear layers of a sequence: the first by its outputs, the second by its inputs. Their
 * results are (rows, features). */
static tsr_status add_pair(void *arg, const char *first, const char *second)
{
    expansion *x = arg;
    tsri_pool *pool = x->reader->pool;
    x->npairs++;
    const tsri_pair_rule rules[] = {
        {tsri_pool_printf(pool, "%s.weight", first), 2, 0, 0, TSRI_PAIR_CUT},
        {tsri_pool_printf(pool, "%s.bias", first), 1, 0, 0, TSRI_PAIR_CUT},
        {tsri_pool_printf(pool, "%s.weight", second), 2, 1, 1, TSRI_PAIR_CUT},
        {tsri_pool_strdup(pool, first), 0, 1, 1, TSRI_PAIR_CUT},
        {tsri_pool_strdup(pool, second), 0, NONE, NONE, TSRI_PAIR_CUT},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        TSRI_NEED(rules[i].match);
        TSRI_TRY(add_rule(x, &rules[i]));
    }
    return TSR_OK;
}

/* --- models ----------------------------------------------------------------------------------- */
/* Own layers: those that are linear with element-wise ops alone between them. */
static tsr_status add_layers(expansion *x)
{
    TSRI_TRY(tsri_layers_pairs(x->e, add_pair, x));
    return x->npairs ? TSR_OK
                     : tsri_yaml_fail(x->node, "megatron: the layers have no pair of linear ones "
                                               "with element-wise ops alone between them");
}

static tsr_status read_roles(tsr_module *model, void *arg)
{
    const expansion *x = arg;
    const tsr_status status = tsri_pair_rules_read(model, x->reader->pool, x->roles);
    return status == TSR_OK ? TSR_OK : tsri_program_fail(x->node, status);
}

/* Fails for a model whose roles make no pairs. */
static tsr_status fail_without_pairs(const expansion *x, const char *word)
{
    const int model = x->e->model.head.variant;
    const bool is_megatron = !strcmp(word, "megatron");
    if (model == TSRI_MODEL_PLUGIN)
        return tsri_yaml_fail(x->node,
                              "%s: the model tells no roles%s of its parameters "
                              "(tsr_variable_set_role), by which layers are paired",
                              word, x->roles->pairs ? " with positions" : "");
    if (model == TSRI_MODEL_MLP && is_megatron)
        return tsri_yaml_fail(x->node, "a pair of linear layers is needed; the model has %lld",
                              (long long)x->e->model.args.layers);
    return tsri_yaml_fail(
        x->node, "%s: there are no rules for model %s; there are for transformer, gpt%s", word,
        tsri_model_section.variants[model].name, is_megatron ? ", mlp and layers" : "");
}

static tsr_status add_pairs(expansion *x)
{
    const bool is_megatron =
        has_word(x, TSRI_CONFIG_STRATEGY_MEGATRON, TSRI_CONFIG_STRATEGY_MEGATRON);
    tsri_pair_rules roles = {0};
    x->roles = &roles;
    if (x->e->model.head.variant == TSRI_MODEL_LAYERS && is_megatron)
        return add_layers(x);
    if (x->e->model.head.variant != TSRI_MODEL_LAYERS)
        TSRI_TRY(tsri_model_visit(x->e, read_roles, x));
    if (!roles.pairs || (!roles.positions && !is_megatron))
        return fail_without_pairs(x, is_megatron ? "megatron" : "sequence");
    for (int i = 0; i < roles.n; i++)
        TSRI_TRY(add_rule(x, &roles.rules[i]));
    return TSR_OK;
}

/* --- the whole -------------------------------------------------------------------------------- */
static tsr_status prepend(tsri_pool *pool, tsri_items *items, size_t size, int n, const void *first)
{
    char *all = tsri_pool_alloc(pool, (size_t)(n + items->n) * size);
    TSRI_NEED(all);
    if (n)
        memcpy(all, first, (size_t)n * size);
    if (items->n)
        memcpy(all + (size_t)n * size, items->items, (size_t)items->n * size);
    *items = (tsri_items){n + items->n, all};
    return TSR_OK;
}

/* A graph has no modules, by whose names pairs are known; without an optimizer it has no states. */
static tsr_status check_graph(const expansion *x)
{
    for (int d = 0; d < x->ndim; d++) {
        const int word = x->words[d];
        if (is_pairs(word))
            return tsri_yaml_fail(
                x->node,
                "%s: there are no rules for a graph, which has no layers to pair; "
                "say them in parameters and tensors. Legal are data, zero1, "
                "zero2, zero3 and auto",
                strategy_word(word));
        if (word >= TSRI_CONFIG_STRATEGY_ZERO1 && word <= TSRI_CONFIG_STRATEGY_ZERO3 &&
            !x->e->trains)
            return tsri_yaml_fail(x->node,
                                  "%s splits what an optimizer keeps; 'optimizer' is missing",
                                  strategy_word(word));
    }
    return TSR_OK;
}

static void split_input(expansion *x)
{
    tsri_config_layout *input = &x->e->tensors.input;
    if (tsri_section_has(&tsri_layout_section, input, "sbp"))
        return;
    input->sbp = (tsr_sbp){.ndim = (int8_t)x->ndim};
    for (int d = 0; d < x->ndim; d++)
        input->sbp.d[d] = split(is_pairs(x->words[d]) ? NONE : rows_axis(x, d));
    tsri_section_give(&tsri_layout_section, input, "sbp");
}

tsr_status tsri_strategy_expand(tsri_experiment *e, const tsri_reader *r)
{
    static const tsri_pair_rule all = {"*", 2, NONE, NONE, TSRI_PAIR_CUT};
    expansion x = {.e = e,
                   .reader = r,
                   .node = tsri_section_node(e, "strategy"),
                   .stages = tsri_stages_dim(e)};
    TSRI_TRY(find_place(&x));
    TSRI_TRY(spread_words(&x));
    if (is_graph(&x))
        TSRI_TRY(check_graph(&x));
    else
        split_input(&x);
    TSRI_TRY(add_param(&x, &all));
    if (has_word(&x, TSRI_CONFIG_STRATEGY_MEGATRON, TSRI_CONFIG_STRATEGY_SEQUENCE))
        TSRI_TRY(add_pairs(&x));
    TSRI_TRY(prepend(r->pool, &e->parameters, sizeof *x.params, x.nparams, x.params));
    TSRI_TRY(prepend(r->pool, &e->tensors.match, sizeof *x.pins, x.npins, x.pins));
    tsri_section_give(&tsri_experiment_section, e, "parameters");
    if (x.npins)
        tsri_section_give(&tsri_tensors_section, &e->tensors, "match");
    if (has_word(&x, TSRI_CONFIG_STRATEGY_ZERO3, TSRI_CONFIG_STRATEGY_ZERO3) &&
        !tsri_section_has(&tsri_experiment_section, e, "reshard_after_forward")) {
        e->planning.reshard_after_forward = true;
        tsri_section_give(&tsri_experiment_section, e, "reshard_after_forward");
    }
    /* The rules take its place: what is printed reads as the same experiment. */
    tsri_section_drop(&tsri_experiment_section, e, "strategy");
    return TSR_OK;
}
