/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that train a model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/config/layers/layers.h"
#include "src/config/own.h"
#include "src/config/rules/pin.h"
#include "src/config/rules/stages.h"
#include "src/graph/graph.h"
#include "src/nn/module.h"
#include "src/nn/place.h"
#include "src/optim/own.h"

static bool has_layout(const tsri_config_layout *l, const char *key)
{
    return tsri_section_has(&tsri_layout_section, l, key);
}

/* --- parameters ------------------------------------------------------------------------------- */
typedef struct placing {
    const tsri_program *p;
    bool *used; /* by pattern */
} placing;

/* The last pattern that fits wins, for each of placement and signature. */
static tsr_status place_variable(tsr_variable *v, const char *name, void *arg)
{
    placing *a = arg;
    const tsri_section *s = &tsri_pattern_section;
    const tsri_experiment *e = a->p->experiment;
    const tsri_config_pattern *patterns = e->parameters.items, *by = NULL;
    const tsri_config_placement *where = NULL;
    tsr_sbp sbp = TSR_B;
    for (int i = 0; i < e->parameters.n; i++) {
        if (!tsri_glob(patterns[i].match, name))
            continue;
        a->used[i] = true;
        if (tsri_section_has(s, &patterns[i], "placement"))
            where = tsri_experiment_placement(e, patterns[i].placement.name);
        if (tsri_section_has(s, &patterns[i], "sbp")) {
            by = &patterns[i];
            sbp = by->sbp;
        }
    }
    const tsr_placement *p = v->placement;
    if (where)
        TSRI_TRY(tsri_program_placement(a->p, where, &p));
    TSRI_TRY(tsri_program_sbp(a->p, by ? tsri_section_node(by, "sbp") : NULL, p, &sbp));
    tsr_status status = tsri_variable_check_place(v, p, sbp);
    if (status != TSR_OK)
        return tsri_program_fail(by ? tsri_section_node(by, "sbp") : e->head.node, status);
    const tsri_yaml *said = by ? tsri_section_node(by, "sbp") : NULL;
    v->placement = p;
    v->sbp = sbp;
    v->said_by = by ? by->match : "";
    v->said_at = said ? (tsri_loc){said->file, said->line} : (tsri_loc){0};
    return TSR_OK;
}

static tsr_status place_parameters(tsri_program *p)
{
    const tsri_experiment *e = p->experiment;
    const tsri_config_pattern *patterns = e->parameters.items;
    placing a = {.p = p};
    a.used = tsri_pool_alloc(&p->inside->pool, (size_t)e->parameters.n * sizeof *a.used);
    TSRI_NEED(a.used);
    TSRI_TRY(tsr_module_visit(p->module, place_variable, &a));
    for (int i = 0; i < e->parameters.n; i++)
        if (!a.used[i]) {
            /* It fits nothing, which that call says best. */
            tsr_status status = tsr_module_place(p->module, patterns[i].match, NULL, TSR_AUTO);
            return tsri_program_fail(tsri_section_node(&patterns[i], "match"), status);
        }
    return TSR_OK;
}

/* Marks the modules below m that a pattern fits; returns how many. */
static int mark_recomputed(tsr_module *m, const char *match)
{
    char name[TSRI_NAME_MAX];
    tsri_scope_qualified_name(&m->scope, name, sizeof name);
    int n = name[0] && tsri_glob(match, name);
    if (n)
        tsr_module_recompute(m);
    for (tsr_module *c = m->first_child; c; c = c->sibling)
        n += mark_recomputed(c, match);
    return n;
}

static tsr_status recompute(const tsri_program *p)
{
    const tsri_items *all = &p->experiment->recompute;
    const tsri_config_recompute *entries = all->items;
    for (int i = 0; i < all->n; i++)
        if (!mark_recomputed(p->module, entries[i].match))
            return tsri_yaml_fail(tsri_section_node(&entries[i], "match"),
                                  "'%.200s' fits no module of the model; tessera plan FILE "
                                  "--verbose shows their names",
                                  entries[i].match);
    return TSR_OK;
}

static tsr_status make_model(tsri_program *p)
{
    const tsri_experiment *e = p->experiment;
    const tsr_placement *placement;
    TSRI_TRY(tsri_program_placement(
        p, tsri_experiment_placement(e, e->tensors.input.placement.name), &placement));
    TSRI_TRY(tsri_stages_make(p, &placement));
    TSRI_TRY(tsri_model_make(p, placement));
    TSRI_TRY(tsri_stages_apply(p));
    TSRI_TRY(recompute(p));
    return place_parameters(p);
}

/* --- optimizers ------------------------------------------------------------------------------- */
static tsr_schedule make_schedule(const tsri_program *p)
{
    const tsri_config_schedule *s = &p->experiment->optimizer.schedule;
    tsr_schedule made = {.kind = (tsr_schedule_kind)s->head.variant,
                         .warmup = s->warmup,
                         .step_size = s->step_size,
                         .gamma = s->gamma,
                         .steps = s->steps,
                         .min_lr = s->min_lr,
                         .milestones = s->milestones.v,
                         .nmilestones = s->milestones.n,
                         .start_factor = s->start_factor,
                         .end_factor = s->end_factor,
                         .restart_factor = s->restart_factor,
                         .max_lr = s->max_lr,
                         .pct_start = s->pct_start,
                         .div_factor = s->div_factor,
                         .final_div_factor = s->final_div_factor,
                         .base_momentum = s->base_momentum,
                         .max_momentum = s->max_momentum,
                         .linear = s->linear,
                         .three_phase = s->three_phase,
                         .keep_momentum = s->keep_momentum,
                         .factor = s->factor,
                         .patience = s->patience,
                         .cooldown = s->cooldown,
                         .threshold = s->threshold,
                         .absolute = s->absolute};
    const bool ends = made.kind == TSR_SCHEDULE_COSINE || made.kind == TSR_SCHEDULE_ONE_CYCLE;
    if (ends && !made.steps)
        made.steps = p->steps - s->warmup;
    if (ends && made.steps < 1)
        made.kind = TSR_SCHEDULE_CONSTANT; /* all steps are warm-up */
    return made;
}

static tsr_optimizer *make_adam(tsr_module *m, const tsri_config_optimizer *o,
                                tsr_schedule schedule, tsr_sbp state)
{
    const tsr_adam_opts *opts =
        TSR_ADAM_OPTS(.lr = o->lr, .beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps,
                      .weight_decay = o->weight_decay, .schedule = schedule, .state = state);
    return o->head.variant == TSRI_OPTIMIZER_ADAM    ? tsr_adam(m, opts)
           : o->head.variant == TSRI_OPTIMIZER_ADAMW ? tsr_adamw(m, opts)
                                                     : tsr_lamb(m, opts);
}

static tsr_optimizer *make_own(tsr_module *m, const tsri_config_optimizer *o, tsr_schedule schedule,
                               tsr_sbp state)
{
    double numbers[TSR_UPDATE_NUMBERS] = {0};
    char what[80];
    const tsri_own_optimizer *own = tsri_own_optimizer_find(m->world, o->function);
    if (!own && o->plugin && tsr_plugin_load(m->world, o->plugin) != TSR_OK)
        return NULL;
    own = tsri_own_optimizer_find(m->world, o->function);
    snprintf(what, sizeof what, "optimizer '%.60s'", o->function);
    if (own &&
        tsri_own_numbers(o->numbers, what, TSR_UPDATE_NUMBERS, own->def.numbers, numbers) != TSR_OK)
        return NULL;
    return tsr_optimizer_create(m, o->function,
                                TSR_OWN_OPTIMIZER_OPTS(.lr = o->lr, .numbers = numbers,
                                                       .schedule = schedule, .state = state));
}

static tsr_optimizer *make_of_kind(tsr_module *m, const tsri_config_optimizer *o,
                                   tsr_schedule schedule, tsr_sbp state)
{
    switch (o->head.variant) {
    case TSRI_OPTIMIZER_SGD:
        return tsr_sgd(m,
                       TSR_SGD_OPTS(.lr = o->lr, .momentum = o->momentum, .dampening = o->dampening,
                                    .weight_decay = o->weight_decay, .nesterov = o->nesterov,
                                    .schedule = schedule, .state = state));
    case TSRI_OPTIMIZER_RMSPROP:
        return tsr_rmsprop(
            m, TSR_RMSPROP_OPTS(.lr = o->lr, .alpha = o->alpha, .eps = o->eps,
                                .momentum = o->momentum, .weight_decay = o->weight_decay,
                                .centered = o->centered, .schedule = schedule, .state = state));
    case TSRI_OPTIMIZER_ADAGRAD:
        return tsr_adagrad(
            m, TSR_ADAGRAD_OPTS(.lr = o->lr, .lr_decay = o->lr_decay, .eps = o->eps,
                                .initial_accumulator_value = o->initial_accumulator_value,
                                .weight_decay = o->weight_decay, .schedule = schedule,
                                .state = state));
    case TSRI_OPTIMIZER_LION:
        return tsr_lion(m, TSR_LION_OPTS(.lr = o->lr, .beta1 = o->beta1, .beta2 = o->beta2,
                                         .weight_decay = o->weight_decay, .schedule = schedule,
                                         .state = state));
    case TSRI_OPTIMIZER_OWN:
        return make_own(m, o, schedule, state);
    default:
        return make_adam(m, o, schedule, state);
    }
}

static tsr_status make_groups(tsri_program *p)
{
    const tsri_section *s = &tsri_group_section;
    const tsri_items *groups = &p->experiment->optimizer.groups;
    const tsri_config_group *g = groups->items;
    for (int i = 0; i < groups->n; i++) {
        const bool freezes = tsri_section_has(s, &g[i], "frozen");
        const bool has_lr = tsri_section_has(s, &g[i], "lr");
        const bool has_decay = tsri_section_has(s, &g[i], "weight_decay");
        tsr_param_group_opts opts = *TSR_PARAM_GROUP_OPTS();
        opts.lr = has_lr ? g[i].lr : opts.lr;
        opts.weight_decay = has_decay ? g[i].weight_decay : opts.weight_decay;
        tsr_status status = TSR_OK;
        if (has_lr || has_decay || !freezes)
            status = tsr_optimizer_param_group(p->optimizer, g[i].match, &opts);
        if (status == TSR_OK && freezes)
            status = tsr_optimizer_freeze(p->optimizer, g[i].match, g[i].frozen);
        if (status != TSR_OK)
            return tsri_program_fail(tsri_section_node(&g[i], "match"), status);
    }
    return TSR_OK;
}

/* Checks a signature that a rule says for what belongs to a parameter, and sets it. */
static tsr_status set_sbp(const tsri_program *p, const tsri_config_pattern *rule, const char *key,
                          tsr_sbp said, const tsr_variable *v, tsr_sbp *sbp)
{
    char name[TSRI_NAME_MAX];
    if (!tsri_section_has(&tsri_pattern_section, rule, key))
        return TSR_OK;
    TSRI_TRY(tsri_program_sbp(p, tsri_section_node(rule, key), v->placement, &said));
    *sbp = tsri_sbp_for_axes(said, v->shape.ndim);
    tsri_variable_qualified_name(v, name, sizeof name);
    tsr_status status = tsri_sbp_check(v->placement, v->shape, *sbp, false);
    return status == TSR_OK ? status
                            : tsri_program_fail(tsri_section_node(rule, key),
                                                tsri_fail_prefix(status, "%s of %s", key, name));
}

static tsr_status place_states(void *arg, const tsr_variable *v, tsri_optim_said *said)
{
    const tsri_experiment *e = ((const tsri_program *)arg)->experiment;
    const tsri_config_pattern *rules = e->parameters.items;
    char name[TSRI_NAME_MAX];
    tsri_variable_qualified_name(v, name, sizeof name);
    for (int i = 0; i < e->parameters.n; i++) {
        if (!tsri_glob(rules[i].match, name))
            continue;
        TSRI_TRY(set_sbp(arg, &rules[i], "state", rules[i].state, v, &said->state));
        TSRI_TRY(set_sbp(arg, &rules[i], "gradient", rules[i].gradient, v, &said->gradient));
        if (tsri_section_has(&tsri_pattern_section, &rules[i], "state")) {
            const tsri_yaml *node = tsri_section_node(&rules[i], "state");
            said->by = rules[i].match;
            said->at = (tsri_loc){node->file, node->line};
        }
    }
    return TSR_OK;
}

static tsr_status make_optimizer(tsri_program *p)
{
    const tsri_config_optimizer *o = &p->experiment->optimizer;
    const char *input = p->experiment->tensors.input.placement.name;
    const tsri_config_placement *where =
        input ? tsri_experiment_placement(p->experiment, input) : p->experiment->placements.items;
    tsr_sbp state = tsri_sbp_extend(o->state.sbp, where->ranks.ndim);
    if (p->inside->stages.n && state.ndim)
        TSRI_TRY(tsri_stages_sbp(p, tsri_section_node(&o->state, "sbp"), &state));
    p->optimizer = make_of_kind(p->module, o, make_schedule(p), state);
    const tsri_yaml *node = o->head.node ? o->head.node : p->experiment->head.node;
    if (!p->optimizer)
        return tsri_program_fail(node, TSR_ERR_INVALID);
    const tsri_yaml *said = tsri_section_node(&o->state, "sbp");
    if (state.ndim && said)
        tsri_optim_say_states(p->optimizer, "optimizer.state", (tsri_loc){said->file, said->line});
    TSRI_TRY(tsri_optim_place(p->optimizer, place_states, p));
    return make_groups(p);
}

/* --- the step --------------------------------------------------------------------------------- */
typedef struct place {
    const char *file;
    int line;
} place;

static place place_of(const tsri_experiment *e, const char *key)
{
    const tsri_yaml *node = tsri_section_node(e, key);
    return (place){node->file, node->key_line ? node->key_line : node->line};
}

/* x as a layout says, where it says something. */
static tsr_status lay_out(const tsri_program *p, const tsri_config_layout *l, place at,
                          tsr_tensor **x)
{
    const tsr_placement *to = tsr_tensor_placement(*x);
    tsr_sbp sbp = TSR_AUTO;
    if (!has_layout(l, "placement") && !has_layout(l, "sbp"))
        return TSR_OK;
    if (has_layout(l, "placement"))
        TSRI_TRY(tsri_program_placement(
            p, tsri_experiment_placement(p->experiment, l->placement.name), &to));
    if (has_layout(l, "sbp"))
        sbp = l->sbp;
    TSRI_TRY(tsri_program_sbp(p, tsri_section_node(l, "sbp"), to, &sbp));
    *x = tsr_to_global_at(*x, to, sbp, at.file, at.line);
    return TSR_OK;
}

/* A graph that is being declared, and its rows. */
typedef struct pass {
    const tsri_program *p;
    tsr_graph *graph;
    int64_t rows;
} pass;

static tsr_status declare_input(const pass *c, const char *name, tsr_dtype dtype, tsr_dims dims,
                                const tsri_config_layout *l, tsr_tensor **out)
{
    const tsr_placement *where;
    place at = place_of(c->p->experiment, "tensors");
    if (l->head.node)
        at = (place){l->head.node->file, l->head.node->line};
    TSRI_TRY(tsri_program_placement(
        c->p, tsri_experiment_placement(c->p->experiment, l->placement.name), &where));
    *out = tsr_input_with_at(c->graph, name, dtype, dims, where, l->sbp,
                             TSR_INPUT_OPTS(.batch_axis = 0), at.file, at.line);
    if (tsr_tensor_ok(*out) && !tsri_yaml_find(l->head.node, "sbp"))
        (*out)->op->said_by = "";
    return tsri_program_fail(l->head.node, tsr_graph_status(c->graph));
}

/* Logits of (rows, positions) as rows. */
static tsr_tensor *by_rows(tsr_tensor *x, place at)
{
    const tsr_dims d = tsr_tensor_dims(x);
    return d.ndim == 3 ? tsr_reshape_at(x, TSR_DIMS(d.d[0] * d.d[1], d.d[2]), at.file, at.line) : x;
}

/* The logits of an image's bytes but the first, each from those before it; they take the place of
 * labels. */
static tsr_tensor *declare_bytes(const pass *c, tsr_tensor *x, tsr_tensor **labels)
{
    place at = place_of(c->p->experiment, "model");
    /* The loader gives pixel / 255. */
    x = tsr_round_at(tsr_mul_scalar_at(x, 255, at.file, at.line), at.file, at.line);
    x = tsr_flatten_at(tsr_cast_at(x, TSR_I64, at.file, at.line), 1, at.file, at.line);
    const int64_t n = tsr_tensor_dims(x).d[1] - 1;
    tsr_tensor *next = tsr_narrow_at(x, 1, 1, n, at.file, at.line);
    *labels = tsr_flatten_at(next, 0, at.file, at.line);
    x = tsr_apply_at(c->p->module, tsr_narrow_at(x, 1, 0, n, at.file, at.line), at.file, at.line);
    return by_rows(x, at);
}

/* The logits of a text's elements, each from those before it and itself; labels are in a row. */
static tsr_tensor *declare_text(const pass *c, tsr_tensor *x, tsr_tensor **labels)
{
    place at = place_of(c->p->experiment, "model");
    *labels = tsr_flatten_at(*labels, 0, at.file, at.line);
    x = tsr_apply_at(c->p->module, x, at.file, at.line);
    return by_rows(x, at);
}

/* The model's result for rows x, and for which labels. */
static tsr_tensor *declare_logits(const pass *c, const tsri_data_sizes *s, tsr_tensor *x,
                                  tsr_tensor **labels)
{
    place at = place_of(c->p->experiment, "model");
    if (c->p->experiment->data.head.variant == TSRI_DATA_TEXT)
        return declare_text(c, x, labels);
    if (tsri_reads_text(c->p->experiment))
        return declare_bytes(c, x, labels);
    if (c->p->experiment->model.head.variant != TSRI_MODEL_TRANSFORMER)
        return tsr_apply_at(c->p->module, x, at.file, at.line);
    tsr_dims rows = TSR_DIMS(c->rows, s->channels * s->height, s->width);
    x = tsr_reshape_at(x, rows, at.file, at.line);
    x = tsr_apply_at(c->p->module, x, at.file, at.line);
    return tsr_mean_at(x, TSR_AXES(1), false, at.file, at.line);
}

tsr_status tsri_program_forward(const tsri_program *p, tsr_graph *g, int64_t rows,
                                tsri_forward *out)
{
    const pass c = {p, g, rows};
    const tsri_experiment *e = p->experiment;
    const tsri_config_tensors *t = &e->tensors;
    const tsri_data_sizes s = tsri_config_data_sizes(&e->data);
    place model = place_of(e, "model"), tensors = place_of(e, "tensors");
    tsr_tensor *x, *y;
    const tsri_data_input in_x = tsri_config_data_input(e, false, rows);
    const tsri_data_input in_y = tsri_config_data_input(e, true, rows);
    TSRI_TRY(declare_input(&c, "x", in_x.dtype, in_x.dims, &t->input, &x));
    TSRI_TRY(declare_input(&c, "y", in_y.dtype, in_y.dims, &t->label, &y));
    /* Rules are about the step that trains; evaluation takes what is cheapest. */
    const bool pins_rules = g == p->graph;
    tsri_pins pins;
    if (pins_rules)
        tsri_pins_begin(&pins, p);
    g->now.label = tsri_model_section.variants[e->model.head.variant].name;
    tsr_tensor *logits = declare_logits(&c, &s, x, &y);
    TSRI_TRY(tsri_model_fail(p, p->inside->refused, tsr_graph_status(g)));
    g->now.label = "loss";
    if (pins_rules)
        TSRI_TRY(tsri_pins_end(&pins, &logits));
    TSRI_TRY(lay_out(p, &t->logits, tensors, &logits));
    TSRI_TRY(tsri_program_fail(e->tensors.logits.head.node, tsr_graph_status(g)));
    if (tsr_tensor_placement(y) != tsr_tensor_placement(logits))
        y = tsr_to_global_at(y, tsr_tensor_placement(logits), TSR_AUTO, tensors.file, tensors.line);
    tsr_cross_entropy_opts opts = {.size = sizeof opts,
                                   .label_smoothing = e->train.label_smoothing};
    tsr_tensor *loss = tsr_cross_entropy_with_at(logits, y, &opts, model.file, model.line);
    TSRI_TRY(lay_out(p, &t->loss, tensors, &loss));
    *out = (tsri_forward){.loss = loss, .logits = logits, .labels = y};
    g->now.label = "";
    return tsri_program_fail(e->tensors.loss.head.node ? e->tensors.loss.head.node
                                                       : e->model.head.node,
                             tsr_graph_status(g));
}

static void declare_minimize(tsri_program *p, tsr_tensor *loss)
{
    place at = place_of(p->experiment, "optimizer");
    const tsri_config_optimizer *o = &p->experiment->optimizer;
    const tsri_config_amp *amp = &p->experiment->train.amp;
    if (tsri_config_autocast(p->experiment) == TSR_F16)
        p->scaler = tsr_grad_scaler_create(
            p->world,
            TSR_GRAD_SCALER_OPTS(.init_scale = amp->init_scale, .growth_factor = amp->growth_factor,
                                 .backoff_factor = amp->backoff_factor,
                                 .growth_interval = amp->growth_interval));
    const tsr_minimize_opts *how =
        TSR_MINIMIZE_OPTS(.clip_norm = o->clip_norm, .clip_value = o->clip_value,
                          .loss_scale = o->loss_scale, .accumulate = o->accumulate,
                          .scaler = p->scaler);
    tsr_minimize_with_at(p->optimizer, 1, &loss, how, at.file, at.line);
}

tsr_status tsri_program_minimize(tsri_program *p, tsr_tensor *loss)
{
    TSRI_TRY(make_optimizer(p));
    declare_minimize(p, loss);
    return tsri_program_fail(p->experiment->optimizer.head.node, tsr_graph_status(p->graph));
}

tsr_status tsri_program_build_training(tsri_program *p, int64_t steps)
{
    const tsri_experiment *e = p->experiment;
    place tensors = place_of(e, "tensors");
    tsri_forward f;
    TSRI_TRY(tsri_program_open_data(p, steps));
    TSRI_TRY(make_model(p));
    TSRI_TRY(make_optimizer(p));
    TSRI_TRY(tsri_program_forward(p, p->graph, p->rows, &f));
    tsr_tensor *loss = f.loss;
    declare_minimize(p, loss);
    tsr_sbp sbp = tsri_sbp_b(tsr_placement_ndim(tsr_tensor_placement(loss)));
    tsr_output_at(p->graph, "loss", loss, NULL, sbp, tensors.file, tensors.line);
    tsri_fetch *fetch = tsri_pool_alloc(&p->inside->pool, sizeof *fetch);
    TSRI_NEED(fetch);
    *fetch = (tsri_fetch){.name = "loss",
                          .placement = tsr_tensor_placement(loss),
                          .dtype = e->dtype,
                          .is_loss = true};
    p->nfetches = 1;
    p->inside->fetches = fetch;
    return TSR_OK;
}
