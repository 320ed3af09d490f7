/* SPDX-License-Identifier: Apache-2.0 */
/* The places where a file says a tensor's signature, and the words that say another. */
#include <stdio.h>
#include <string.h>

#include "src/config/program.h"
#include "src/graph/graph.h"
#include "src/nn/place.h"

tsr_status tsri_program_entries(const tsri_program *p, tsri_pool *pool, int *out_n,
                                tsri_program_entry **out_entries)
{
    const tsri_experiment *e = p->experiment;
    const tsri_config_op *ops = e->graph.items;
    tsri_program_entry *list = NULL;
    int n = 0, capacity = 0;
    for (int i = 0; p->inside->made && i < e->graph.n; i++) {
        int results = tsri_op_results(&ops[i]);
        for (int j = 0; j < results; j++) {
            const char *name = results == 1 ? ops[i].head.name
                                            : tsri_pool_printf(pool, "%s.%d", ops[i].head.name, j);
            TSRI_NEED(name && TSRI_PUSH(pool, list, n, capacity));
            list[n++] = (tsri_program_entry){name, p->inside->made[i][j]};
        }
    }
    *out_n = n;
    *out_entries = list;
    return TSR_OK;
}

int tsri_experiment_nparameters(const tsri_experiment *e)
{
    const tsri_yaml *said = tsri_yaml_find(e->head.node, "parameters");
    return said ? said->n : 0; /* without the rules of a strategy, which `--set` does not count */
}

int tsri_experiment_relay(const tsri_experiment *e, int naxes, const char *const *names,
                          const int *sizes, const char *strategy,
                          char out[TSRI_RELAY_MOST][TSRI_RELAY_TEXT])
{
    const tsri_config_placement *p = e->placements.items;
    char mesh[48] = "";
    int n = 0;
    if (e->placements.n != 1 || strlen(p->head.name) > 40 || tsri_experiment_says(e, "stages"))
        return 0;
    bool stays = naxes == p->ranks.ndim;
    for (int d = 0; d < naxes; d++) {
        stays = stays && sizes[d] == p->ranks.dim[d];
        snprintf(mesh + strlen(mesh), sizeof mesh - strlen(mesh), "%s%s: %d", d ? ", " : "",
                 names[d], sizes[d]);
    }
    snprintf(out[n++], TSRI_RELAY_TEXT, "strategy=%s", strategy);
    if (!stays && e->mesh.ndim)
        snprintf(out[n++], TSRI_RELAY_TEXT, "mesh={%s}", mesh);
    else if (!stays)
        snprintf(out[n++], TSRI_RELAY_TEXT, "placements.%s={device: %s, mesh: {%s}}", p->head.name,
                 tsri_target_names[p->device], mesh);
    if (tsri_yaml_find(e->head.node, "parameters"))
        snprintf(out[n++], TSRI_RELAY_TEXT, "parameters=[]");
    if (tsri_yaml_find(e->head.node, "tensors"))
        snprintf(out[n++], TSRI_RELAY_TEXT, "tensors={}");
    return n;
}

bool tsri_experiment_says(const tsri_experiment *e, const char *key)
{
    return tsri_yaml_find(e->head.node, key) != NULL;
}

/* Writes "pp: 2, dp: 4" of a placement whose axis d is divided. An axis of one rank is left out
 * unless words of a strategy refer to it. Returns the number of axes; 0: they have no room, or no
 * names. */
static int write_staged_mesh(const tsri_config_placement *p, int d, int nstages, bool keeps,
                             char mesh[64])
{
    static const char *const unnamed[] = {"dp"};
    const bool has_names = p->mesh.ndim > 0;
    const char *const *names = has_names ? p->mesh.name : unnamed;
    int naxes = 1, used = snprintf(mesh, 64, "pp: %d", nstages);
    if (p->ranks.ndim >= TSR_MAX_HIERARCHY || (!has_names && p->ranks.ndim > 1))
        return 0;
    for (int i = 0; i < p->ranks.ndim && used < 64; i++) {
        const int size = p->ranks.dim[i] / (i == d ? nstages : 1);
        if (!strcmp(names[i], "pp"))
            return 0;
        if (size == 1 && i == d && !keeps)
            continue;
        used += snprintf(mesh + used, 64 - (size_t)used, ", %s: %d", names[i], size);
        naxes++;
    }
    return used < 64 ? naxes : 0;
}

/* The axis whose ranks are divided into stages. */
static int staged_axis(const tsri_config_placement *p)
{
    int d = p->mesh.ndim - 1;
    while (d > 0 && strcmp(p->mesh.name[d], "dp") != 0)
        d--;
    return d > 0 ? d : 0;
}

int tsri_experiment_stage(const tsri_experiment *e, int nstages,
                          char out[TSRI_RELAY_MOST][TSRI_RELAY_TEXT])
{
    const tsri_config_placement *p = e->placements.items;
    const tsri_words *said = &e->strategy;
    const bool has_list = said->n > 1 && !said->by_axis;
    char mesh[64];
    int n = 0;
    if (e->placements.n != 1 || strlen(p->head.name) > 30 || tsri_experiment_says(e, "stages") ||
        !tsri_experiment_says(e, "model"))
        return 0;
    const int d = staged_axis(p);
    if (nstages < 2 || p->ranks.dim[d] % nstages != 0 ||
        !write_staged_mesh(p, d, nstages, has_list || said->by_axis, mesh))
        return 0;
    if (e->mesh.ndim)
        snprintf(out[n++], TSRI_RELAY_TEXT, "mesh={%s}", mesh);
    else
        snprintf(out[n++], TSRI_RELAY_TEXT, "placements.%s={device: %s, mesh: {%s}}", p->head.name,
                 tsri_target_names[p->device], mesh);
    if (has_list) {
        const tsri_field *words = tsri_section_field(&tsri_experiment_section, "strategy");
        int used = snprintf(out[n], TSRI_RELAY_TEXT, "strategy=[data");
        for (int i = 0; i < said->n; i++)
            used += snprintf(out[n] + used, TSRI_RELAY_TEXT - (size_t)used, ", %s",
                             words->words[said->words[i]]);
        snprintf(out[n++] + used, TSRI_RELAY_TEXT - (size_t)used, "]");
    }
    snprintf(out[n++], TSRI_RELAY_TEXT, "stages={axis: pp, split: auto}");
    return n;
}

int tsri_experiment_axis(const tsri_experiment *e, const char *name)
{
    for (int d = 0; d < e->mesh.ndim; d++)
        if (e->mesh.name[d] && !strcmp(e->mesh.name[d], name))
            return e->mesh.size[d];
    return 0;
}

bool tsri_experiment_recompute(const tsri_experiment *e, char out[TSRI_RELAY_TEXT])
{
    static const char *const blocks[] = {[TSRI_MODEL_GPT] = "h.*",
                                         [TSRI_MODEL_TRANSFORMER] = "blocks.*",
                                         [TSRI_MODEL_RESNET18] = "layer*"};
    const int model = e->model.head.variant;
    if (!tsri_yaml_find(e->head.node, "model") || tsri_yaml_find(e->head.node, "recompute") ||
        model >= (int)(sizeof blocks / sizeof *blocks) || !blocks[model])
        return false;
    snprintf(out, TSRI_RELAY_TEXT, "recompute=[{match: \"%s\"}]", blocks[model]);
    return true;
}

/* The entry of `graph` that a tensor is a result of; NULL: none. */
static const tsri_config_op *entry_of(const tsri_program *p, const tsr_tensor *t)
{
    const tsri_config_op *ops = p->experiment->graph.items;
    for (int i = 0; p->inside->made && i < p->experiment->graph.n; i++)
        for (int j = 0; j < tsri_op_results(&ops[i]); j++)
            if (p->inside->made[i][j] == t)
                return &ops[i];
    return NULL;
}

/* The rule of `tensors` by which a tensor is brought into a signature; NULL: none. */
static const tsri_config_pin *pin_of(const tsri_program *p, const tsr_tensor *t)
{
    const tsri_config_pin *pins = p->experiment->tensors.match.items, *found = NULL;
    const tsri_op *op = t->op;
    for (int i = 0; op->kind == TSRI_OP_TO_GLOBAL && i < p->experiment->tensors.match.n; i++) {
        const tsri_yaml *node = pins[i].head.node;
        /* The rules of a strategy are all in its line. */
        if (node->line == op->loc.line && !strcmp(node->file, op->loc.file) &&
            (!found || tsri_glob(pins[i].match, op->name)))
            found = &pins[i];
    }
    return found;
}

/* The key of `tensors` that speaks of a tensor of a training program; NULL: none does. */
static const char *layout_key(const tsri_program *p, const tsr_tensor *t)
{
    if (!p->experiment->trains)
        return NULL;
    if (t->op->kind == TSRI_OP_INPUT)
        return !strcmp(t->op->name, "x") ? "input" : !strcmp(t->op->name, "y") ? "label" : NULL;
    if (t->op->kind == TSRI_OP_TO_GLOBAL && t->op->sbp.ndim && !t->op->backward && !pin_of(p, t))
        return t->is_loss ? "loss" : "logits";
    return NULL;
}

static const tsri_config_layout *layout_of(const tsri_program *p, const char *key)
{
    const tsri_config_tensors *t = &p->experiment->tensors;
    return !strcmp(key, "input")   ? &t->input
           : !strcmp(key, "label") ? &t->label
           : !strcmp(key, "loss")  ? &t->loss
                                   : &t->logits;
}

/* The last pattern for the variable's name that says a signature; NULL: none does. */
static const tsri_config_pattern *pattern_of(const tsri_program *p, const tsr_variable *v)
{
    const tsri_experiment *e = p->experiment;
    const tsri_config_pattern *patterns = e->parameters.items;
    char name[TSRI_NAME_MAX];
    tsri_variable_qualified_name(v, name, sizeof name);
    for (int i = e->parameters.n - 1; i >= 0; i--)
        if (tsri_section_has(&tsri_pattern_section, &patterns[i], "sbp") &&
            tsri_glob(patterns[i].match, name))
            return &patterns[i];
    return NULL;
}

/* The node that says the signature of a tensor; NULL: none does. */
static const tsri_yaml *said_node(const tsri_program *p, const tsr_tensor *t,
                                  const char **out_match)
{
    const tsri_config_op *entry = entry_of(p, t);
    const char *key = layout_key(p, t);
    const tsr_variable *v = t->op->kind == TSRI_OP_VARIABLE ? t->op->variable : NULL;
    const tsri_config_pin *pin = pin_of(p, t);
    *out_match = pin ? pin->match : NULL;
    if (pin)
        return tsri_section_node(pin, "sbp");
    const tsri_yaml *strategy = tsri_yaml_find(p->experiment->head.node, "strategy");
    if (entry) {
        *out_match = entry->said_by;
        return !entry->said && t->op->kind == TSRI_OP_INPUT ? strategy : entry->said;
    }
    if (key) {
        const tsri_config_layout *l = layout_of(p, key);
        if (strategy && t->op->kind == TSRI_OP_INPUT && !tsri_yaml_find(l->head.node, "sbp"))
            return strategy;
        return tsri_section_has(&tsri_layout_section, l, "sbp") ? tsri_section_node(l, "sbp")
                                                                : NULL;
    }
    if (v && p->experiment->trains && v->scope) {
        const tsri_config_pattern *by = pattern_of(p, v);
        *out_match = by ? by->match : NULL;
        return by ? tsri_section_node(by, "sbp") : NULL;
    }
    const tsri_config_pattern *rules = p->experiment->parameters.items;
    for (int i = 0; v && i < p->experiment->parameters.n; i++)
        if (v->said_by == rules[i].match) {
            *out_match = rules[i].match;
            bool own = tsri_section_has(&tsri_pattern_section, &rules[i], "state");
            return tsri_section_node(&rules[i], own ? "state" : "sbp");
        }
    if (v && p->experiment->trains && p->experiment->optimizer.state.head.node)
        return tsri_section_node(&p->experiment->optimizer.state, "sbp");
    return NULL;
}

bool tsri_program_said(const tsri_program *p, const tsr_tensor *t, tsri_said *out_said)
{
    const tsri_yaml *node = said_node(p, t, &out_said->match);
    if (!node)
        return false;
    snprintf(out_said->place, sizeof out_said->place, "%.400s:%d:%d", node->file, node->line,
             node->column);
    tsri_yaml_path(node, out_said->key);
    return true;
}

tsr_status tsri_program_set(const tsri_program *p, const tsr_tensor *t, tsr_sbp sbp,
                            tsri_pool *pool, char **out_set)
{
    const tsri_config_op *entry = entry_of(p, t);
    const char *key = layout_key(p, t);
    const tsr_variable *v = t->op->kind == TSRI_OP_VARIABLE ? t->op->variable : NULL;
    char text[TSR_SBP_TEXT_MAX], name[TSRI_NAME_MAX], *set;
    tsr_sbp_format(sbp, text);
    *out_set = NULL;
    if (entry ? tsri_op_results(entry) > 1 : !key && !(v && p->experiment->trains && v->scope))
        return TSR_OK;
    if (entry) {
        set = tsri_pool_printf(pool, "graph.%s.sbp=%s", entry->head.name, text);
    } else if (key) {
        set = tsri_pool_printf(pool, "tensors.%s.sbp=%s", key, text);
    } else {
        tsri_variable_qualified_name(v, name, sizeof name);
        set = tsri_pool_printf(pool, "parameters[%d]={match: \"%s\", sbp: \"%s\"}",
                               tsri_experiment_nparameters(p->experiment), name, text);
    }
    TSRI_NEED(set);
    *out_set = set;
    return TSR_OK;
}
